//! OpenTelemetry for the commands: the settings of the live export, and the spans of recorded runs.

use nix::unistd::{Uid, User};
use serde_json::Value;

use super::{
    args::{ExportArgs, GlobalArgs},
    exit::{self, CliError},
    replay,
};
use ingestdeck_core::{
    config::{Config, SettingOrigin},
    diagnostic::Problem,
    run::{
        EntrySource, EntrySourceError, PollStatus, Timeline,
        otlp::{self, SpanBuilder},
    },
    tape::note::RunStarter,
};
use ingestdeck_engine::span_exporter::{self, SpanTarget, TraceOptions};
use ingestdeck_report::redact::Redactor;

/// Bytes that are folded at a time.
const SLICE: usize = 1 << 20;
/// Path of traces below the address of a collector.
const TRACES_PATH: &str = "/v1/traces";

/// Longest address of a CI job, in bytes.
const MAX_JOB_URL: usize = 500;

/// Who or what starts a run from this process.
fn run_starter() -> RunStarter {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let github = || {
        let (server, repository) = (set("GITHUB_SERVER_URL")?, set("GITHUB_REPOSITORY")?);
        let run = set("GITHUB_RUN_ID")?;
        Some(format!("{server}/{repository}/actions/runs/{run}"))
    };
    // GitLab and Jenkins have an address in a variable.
    let job_url = github()
        .or_else(|| set("CI_JOB_URL"))
        .or_else(|| set("BUILD_URL"))
        .filter(|url| url.starts_with("http") && url.len() <= MAX_JOB_URL);
    RunStarter {
        traceparent: set("TRACEPARENT"),
        user: User::from_uid(Uid::current())
            .ok()
            .flatten()
            .map(|user| user.name),
        job_url,
    }
}

/// The tracing of a run, from the settings and the variables of OpenTelemetry.
///
/// # Errors
/// If the address of the collector is not one of HTTP.
pub(super) fn trace_options(config: &Config) -> Result<TraceOptions, CliError> {
    let set = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|value| !value.trim().is_empty())
    };
    let starter = run_starter();
    let is_off = std::env::var("OTEL_SDK_DISABLED")
        .is_ok_and(|value| value.eq_ignore_ascii_case("true"))
        || std::env::var("OTEL_TRACES_EXPORTER").is_ok_and(|value| value == "none");
    let setting = config
        .otel
        .endpoint
        .value
        .as_ref()
        .map(|url| (traces_url(url), config.otel.endpoint.origin.to_string()));
    let is_first = matches!(
        config.otel.endpoint.origin,
        SettingOrigin::Environment { .. } | SettingOrigin::Flag { .. }
    );
    let standard = || {
        let exact = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let exact = exact.map(|url| (url, "$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT".to_owned()));
        let base = || set("OTEL_EXPORTER_OTLP_ENDPOINT");
        exact.or_else(|| {
            base().map(|url| (traces_url(&url), "$OTEL_EXPORTER_OTLP_ENDPOINT".to_owned()))
        })
    };
    let (endpoint, is_standard) = match setting {
        _ if is_off => (None, false),
        Some(setting) if is_first => (Some(setting), false),
        setting => match standard() {
            Some(endpoint) => (Some(endpoint), true),
            None => (setting, false),
        },
    };
    let Some((url, origin)) = endpoint else {
        return Ok(TraceOptions {
            target: None,
            starter,
        });
    };
    // These variables may be set for other programs.
    if is_standard {
        let protocol = set("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            .or_else(|| set("OTEL_EXPORTER_OTLP_PROTOCOL"));
        let cause = match protocol.as_deref() {
            Some("grpc") => Some("the protocol `grpc` is not supported".to_owned()),
            _ => {
                (!is_http(&url)).then(|| format!("expected http:// or https:// instead of `{url}`"))
            }
        };
        if let Some(cause) = cause {
            let warning = Problem::new(format!(
                "no spans are exported to the collector of `{origin}`: {cause}"
            ));
            exit::print_warning(&warning);
            return Ok(TraceOptions {
                target: None,
                starter,
            });
        }
    }
    let target = target(url, *config.otel.content).map_err(|error| error.with_location(origin))?;
    Ok(TraceOptions {
        target: Some(target),
        starter,
    })
}

/// A collector at `url`, with the headers and the name of the service from the environment.
fn target(url: String, has_content: bool) -> Result<SpanTarget, CliError> {
    if !is_http(&url) {
        return Err(CliError::usage(format!(
            "invalid address of a collector `{url}`; expected http:// or https://"
        )));
    }
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let mut headers = Vec::new();
    // The first variable that is set takes precedence.
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ];
    let set = names
        .map(|name| (name, variable(name)))
        .into_iter()
        .find(|(_, value)| !value.trim().is_empty());
    let (name, value) = set.unwrap_or_default();
    for pair in value.split(',').filter(|pair| !pair.trim().is_empty()) {
        match parse_header(pair) {
            Some(header) => headers.push(header),
            // The value may be a secret.
            None => exit::print_warning(&Problem::new(format!(
                "a header in ${name} is ignored: expected name=value"
            ))),
        }
    }
    let service = Some(variable("OTEL_SERVICE_NAME")).filter(|name| !name.is_empty());
    Ok(SpanTarget {
        url,
        headers,
        service: service.unwrap_or_else(|| "ingestdeck".to_owned()),
        has_content,
    })
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
}

fn traces_url(base: &str) -> String {
    match base.trim_end_matches('/') {
        base if base.ends_with(TRACES_PATH) => base.to_owned(),
        base => format!("{base}{TRACES_PATH}"),
    }
}

/// A header in the form `name=value`, with `%` escapes in the value.
fn parse_header(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once('=')?;
    let (name, mut rest) = (name.trim(), value.trim().as_bytes());
    let mut bytes = Vec::new();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
                rest = after;
            }
            (b'%', _) => return None,
            _ => bytes.push(*first),
        }
    }
    let value = String::from_utf8(bytes).ok()?;
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (is_name && !value.chars().any(char::is_control)).then(|| (name.to_owned(), value))
}

/// Sends the spans of a recorded run to a collector, and returns their number.
///
/// # Errors
/// If the run does not exist, the address is invalid, or the collector does not accept them.
pub(super) fn send(
    global: &GlobalArgs,
    args: &ExportArgs,
    endpoint: &str,
    redactor: &mut Redactor,
) -> Result<usize, CliError> {
    let target = target(traces_url(endpoint), args.content)?;
    let spans = spans(global, args, redactor)?;
    span_exporter::send(&target, &spans).map_err(|error| {
        CliError::failed("cannot send the spans to the collector")
            .with_cause(error)
            .with_help("check the address; it must accept OTLP as JSON over HTTP")
    })?;
    Ok(spans.len())
}

/// The requests of OTLP with the spans of a recorded run.
///
/// # Errors
/// If the run does not exist or cannot be read.
pub(super) fn requests(
    global: &GlobalArgs,
    args: &ExportArgs,
    redactor: &mut Redactor,
) -> Result<Vec<Value>, CliError> {
    let spans = spans(global, args, redactor)?;
    Ok(span_exporter::batches(&spans)
        .map(|batch| otlp::export_request("ingestdeck", batch))
        .collect())
}

fn spans(
    global: &GlobalArgs,
    args: &ExportArgs,
    redactor: &mut Redactor,
) -> Result<Vec<Value>, CliError> {
    let (source, is_live) = replay::open_record(global, &args.run)?;
    let Some(header) = source.info().header.clone() else {
        return Err(CliError::usage(format!(
            "`{}` is not a tape, so it has no spans",
            source.info().name
        ))
        .with_help("name a recorded run"));
    };
    let (mut spans, mut result) = (Vec::new(), Ok(()));
    fold_spans(
        Box::new(source),
        SpanBuilder::new(header, args.content),
        is_live,
        &mut |span| {
            // Text of agents may contain secrets.
            match serde_json::from_str(&redactor.text(&span.to_string())) {
                Ok(mut masked) => {
                    otlp::shorten_texts(&mut masked);
                    spans.push(masked);
                }
                Err(error) => {
                    result = Err(CliError::failed(format!("cannot mask a span: {error}")))
                }
            }
        },
    )?;
    result.map(|()| spans)
}

/// Passes the spans so far, with complete texts. Those of an active run lack what is not complete.
fn fold_spans(
    source: Box<dyn EntrySource>,
    mut builder: SpanBuilder,
    is_live: bool,
    take: &mut dyn FnMut(Value),
) -> Result<(), EntrySourceError> {
    let mut timeline = Timeline::new_forward_only(source);
    while timeline.advance(SLICE, &mut |emitted| builder.observe(&emitted))? == PollStatus::More {
        builder.take_complete().into_iter().for_each(&mut *take);
    }
    let state = &timeline.view().state;
    if is_live {
        builder.add_ended_attempts(state);
    } else {
        builder.finish(state);
    }
    builder.take_complete().into_iter().for_each(take);
    Ok(())
}

/// The error of an option that another format does not have.
pub(super) fn needs_otlp(option: &str) -> CliError {
    CliError::usage(format!("{option} needs --format otlp"))
        .with_help("add --format otlp, or leave it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_or_refused() {
        for (pair, expected) in [
            ("api-key=secret", Some(("api-key", "secret"))),
            (
                " Authorization = Basic%20dXNlcg== ",
                Some(("Authorization", "Basic dXNlcg==")),
            ),
            ("x=", Some(("x", ""))),
            ("x", None),
            ("=y", None),
            ("x=%0d%0aevil: 1", None),
            ("x=%zz", None),
            ("x=%2", None),
            ("x=%ff", None),
            ("a b=c", None),
        ] {
            let parsed = parse_header(pair);
            assert_eq!(
                parsed
                    .as_ref()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
                expected,
                "{pair}"
            );
        }
    }

    #[test]
    fn path_of_traces_is_added_once() {
        for base in [
            "http://h:4318",
            "http://h:4318/",
            "http://h:4318/v1/traces",
            "http://h:4318/v1/traces/",
        ] {
            assert_eq!(traces_url(base), "http://h:4318/v1/traces");
        }
        assert!(target("file:///etc/passwd".into(), false).is_err());
    }
}
