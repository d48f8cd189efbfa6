//! Checks whether `claude` is usable: its version, its login, and, on request, whether the service answers. Owns the
//! processes of these checks. It must not depend on where results are shown.

#![expect(
    clippy::disallowed_methods,
    reason = "whether the working directory exists"
)]

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    command_line::DENIED_BUILT_INS,
    version::{ClaudeVersion, SCRIPTED_SUFFIX},
};
use crate::{
    AgentProgram,
    facts_collector::AttemptFactsCollector,
    line_reader::LineReader,
    process::{self, EscalationStep, ProcessExit, ProcessTimeouts, SpawnRequest},
    start_error::StartError,
};
use ingestdeck_core::{
    decode,
    diagnostic::Problem,
    tape::{
        UnitKey,
        note::{AttemptOutcome, VerdictCause},
    },
    units::{
        failure_tally::FailureRule,
        verdict::{AgentStartFault, AttemptFacts, ProcessFacts, judge_attempt},
    },
};

/// First release with `auth status`. Older ones treat it as a prompt and hang.
const FIRST_AUTH_STATUS: ClaudeVersion = ClaudeVersion(2, 1, 40);
/// The release of a script that plays the model.
pub const SCRIPTED_RELEASE: &str = "scripted";
/// Timeout of the checks without the service. A first start with a cold cache takes two seconds.
const QUICK_CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the probe, which waits for a model.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of stdout and of stderr, in bytes each.
const MAX_OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum length of quoted program output, in characters.
const MAX_QUOTE_CHARS: usize = 300;

/// How to start `claude`.
#[derive(Clone, Debug)]
pub struct ClaudeInvocation {
    pub program: AgentProgram,
    pub cwd: PathBuf,
    /// The whole environment. Use the environment of the runs: a key that is withheld from them must not count here.
    pub env: Vec<(OsString, OsString)>,
}

/// Results of the checks that send no request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailabilityReport {
    pub installation: Installation,
    pub login: LoginStatus,
}

impl AvailabilityReport {
    /// The account whose usage limits apply, if the program reports it.
    pub fn account(&self) -> Option<String> {
        match &self.login {
            LoginStatus::LoggedIn { account, .. } => account.clone(),
            LoginStatus::LoggedOut | LoginStatus::Unknown(_) => None,
        }
    }

    /// The release of Claude Code, if it is known.
    pub fn version(&self) -> Option<ClaudeVersion> {
        match self.installation {
            Installation::Version(version) => Some(version),
            _ => None,
        }
    }

    /// The release of the program, or [`SCRIPTED_RELEASE`]; empty if it is unknown.
    pub fn release(&self) -> String {
        match self.installation {
            Installation::Version(version) => version.to_string(),
            Installation::Scripted => SCRIPTED_RELEASE.to_owned(),
            Installation::NotStarted(_) | Installation::UnknownVersion(_) => String::new(),
        }
    }
}

/// Whether the program is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installation {
    /// It cannot be started.
    NotStarted(Problem),
    /// A script plays the model.
    Scripted,
    Version(ClaudeVersion),
    /// The program started, but reported no version; its output.
    UnknownVersion(String),
}

/// Whether a login exists. It is not verified: an expired login counts, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStatus {
    LoggedIn {
        /// `claude.ai`, `api_key`, `oauth_token`, …
        method: String,
        /// Subscription, key source or account, if reported.
        detail: Option<String>,
        /// The account, if reported.
        account: Option<String>,
    },
    LoggedOut,
    /// The login could not be checked.
    Unknown(Problem),
}

impl LoginStatus {
    /// The problem, unless a login exists.
    pub fn problem(&self) -> Option<Problem> {
        match self {
            Self::LoggedIn { .. } => None,
            Self::LoggedOut => Some(
                Problem::new("Claude Code is not logged in")
                    .with_help("run claude once and sign in"),
            ),
            Self::Unknown(why) => Some(why.clone()),
        }
    }
}

/// Result of one real turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    Usable,
    Unusable {
        /// Limits, credit and models have separate causes; they are not a failed login.
        cause: VerdictCause,
        problem: Problem,
    },
}

pub async fn check_installation(asked: &ClaudeInvocation) -> Installation {
    match asked.run(&["--version"], QUICK_CHECK_TIMEOUT).await {
        Err(why) => Installation::NotStarted(why),
        Ok(output) => parse_version_output(&output),
    }
}

/// Checks version and login. Takes a few seconds at most.
pub async fn check_availability(asked: &ClaudeInvocation) -> AvailabilityReport {
    let installed = check_installation(asked).await;
    let login = match &installed {
        Installation::NotStarted(_) => LoginStatus::Unknown(Problem::new(
            "the login was not checked, because claude could not be started",
        )),
        Installation::Version(version) if *version < FIRST_AUTH_STATUS => LoginStatus::Unknown(
            Problem::new(format!("claude {version} cannot report its login"))
                .with_help("update it"),
        ),
        Installation::Scripted | Installation::Version(_) | Installation::UnknownVersion(_) => {
            match asked.run(&["auth", "status"], QUICK_CHECK_TIMEOUT).await {
                Ok(output) => parse_login_output(&output),
                Err(why) => LoginStatus::Unknown(why),
            }
        }
    };
    AvailabilityReport {
        installation: installed,
        login,
    }
}

/// Requests a one-word answer from the model. This costs a request, so it only runs when a person asks for it.
pub async fn probe(asked: &ClaudeInvocation, model: Option<&str>) -> ProbeResult {
    let built_ins = DENIED_BUILT_INS.join(",");
    let mut args = vec![
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources=",
        "--strict-mcp-config",
    ];
    args.extend([
        "--tools=",
        "--disable-slash-commands",
        "--no-chrome",
        "--permission-mode",
        "dontAsk",
    ]);
    args.extend([
        "--disallowedTools",
        &built_ins,
        "--max-turns",
        "1",
        "--no-session-persistence",
    ]);
    args.extend(model.iter().flat_map(|model| ["--model", model]));
    args.extend(["--", "Reply with exactly: ok"]);
    let mut asked = asked.clone();
    // Otherwise a bad key is retried for minutes.
    asked
        .env
        .retain(|(name, _)| name != "CLAUDE_CODE_MAX_RETRIES");
    asked
        .env
        .push(("CLAUDE_CODE_MAX_RETRIES".into(), "0".into()));
    match asked.run(&args, PROBE_TIMEOUT).await {
        Ok(output) => probe_result_from_facts(output.to_facts()),
        Err(problem) => ProbeResult::Unusable {
            cause: VerdictCause::Internal,
            problem,
        },
    }
}

/// Output and exit of a process.
#[derive(Debug, Default)]
struct CheckOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    exit: ProcessExit,
}

impl CheckOutput {
    fn to_facts(&self) -> AttemptFacts {
        let mut stats = AttemptFactsCollector::new(AttemptFacts::default());
        for line in self.stdout.split(|byte| *byte == b'\n') {
            stats.push_line(&decode::decode_line(line));
        }
        String::from_utf8_lossy(&self.stderr)
            .lines()
            .for_each(|line| stats.push_stderr_line(line));
        let facts = stats.into_facts();
        let process = ProcessFacts {
            exit_code: self.exit.code,
            signal: self.exit.signal,
            ..facts.process
        };
        AttemptFacts { process, ..facts }
    }
}

impl ClaudeInvocation {
    /// Runs the program with an empty stdin.
    async fn run(&self, args: &[&str], limit: Duration) -> Result<CheckOutput, Problem> {
        let exe = self.program.exe.display();
        let words = self
            .program
            .prefix
            .iter()
            .cloned()
            .chain(args.iter().map(OsString::from));
        let order = SpawnRequest {
            exe: self.program.exe.clone(),
            args: words.collect(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            stdin: false,
        };
        let mut child = process::spawn(order)
            .await
            .map_err(|error| describe_start_failure(&self.program.exe, &self.cwd, &error))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Problem::new(format!("{exe} was started without pipes")));
        };
        let listening = async {
            let ended = async { Ok(child.wait().await) };
            let (stdout, stderr, ended) =
                tokio::try_join!(read_bounded(stdout), read_bounded(stderr), ended)?;
            Ok(CheckOutput {
                stdout,
                stderr,
                exit: ended,
            })
        };
        let why = match tokio::time::timeout(limit, listening).await {
            Ok(Ok(output)) => return Ok(output),
            Ok(Err(OutputTooLarge)) => format!(
                "answered with more than {} MiB",
                MAX_OUTPUT_BYTES / 1024 / 1024
            ),
            Err(_) => format!("did not answer within {} s", limit.as_secs()),
        };
        child
            .escalate_from(EscalationStep::Terminate, ProcessTimeouts::default())
            .await;
        let what = args
            .iter()
            .take_while(|word| **word != "--")
            .take(2)
            .copied()
            .collect::<Vec<_>>()
            .join(" ");
        Err(Problem::new(format!("{exe} {what} {why}"))
            .with_help("run it in a terminal to see why"))
    }
}

/// Reads all output of a pipe by lines, so that nothing is lost when the child is killed.
async fn read_bounded(pipe: impl tokio::io::AsyncRead + Unpin) -> Result<Vec<u8>, OutputTooLarge> {
    let mut reader = LineReader::with_limit(pipe, MAX_OUTPUT_BYTES);
    let mut bytes = Vec::new();
    while !reader.is_finished() {
        // An error ends the pipe; the data before it is used.
        let _ = reader.fill().await;
        let batch = reader.take_lines();
        if batch.is_piece() || bytes.len() + batch.size() > MAX_OUTPUT_BYTES {
            return Err(OutputTooLarge);
        }
        for line in batch.lines() {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

/// The output exceeds the limit.
struct OutputTooLarge;

fn describe_start_failure(exe: &Path, cwd: &Path, error: &std::io::Error) -> Problem {
    let name = exe.display();
    if !cwd.is_dir() {
        return Problem::new(format!(
            "the working directory {} does not exist",
            cwd.display()
        ));
    }
    let why = StartError::from_io_error(exe, cwd, error);
    match why.fault {
        AgentStartFault::InterpreterMissing => {
            Problem::new(why.message).with_help("install the interpreter, or name another program with --claude-bin")
        }
        _ if error.kind() == std::io::ErrorKind::NotFound => Problem::new(format!("there is no {name}")).with_help(
            "install Claude Code with npm install -g @anthropic-ai/claude-code and run claude once to sign in, or name \
             it with --claude-bin",
        ),
        _ => Problem::new(format!("cannot start {name}: {error}")),
    }
}

fn parse_version_output(output: &CheckOutput) -> Installation {
    let text = String::from_utf8_lossy(&output.stdout);
    match ClaudeVersion::parse(&text) {
        _ if text.trim_end().ends_with(SCRIPTED_SUFFIX) => Installation::Scripted,
        Some(version) => Installation::Version(version),
        None => {
            let words = if text.trim().is_empty() {
                String::from_utf8_lossy(&output.stderr)
            } else {
                text
            };
            Installation::UnknownVersion(quote_output(&words))
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthStatusReply {
    logged_in: bool,
    auth_method: Option<String>,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

fn parse_login_output(output: &CheckOutput) -> LoginStatus {
    match serde_json::from_slice::<AuthStatusReply>(&output.stdout) {
        Ok(AuthStatusReply {
            logged_in: false, ..
        }) => LoginStatus::LoggedOut,
        Ok(AuthStatusReply {
            auth_method, more, ..
        }) => {
            let word = |key: &str| more.get(key).and_then(Value::as_str);
            let detail = ["subscriptionType", "apiKeySource", "email"]
                .into_iter()
                .find_map(word);
            LoginStatus::LoggedIn {
                method: auth_method.unwrap_or_else(|| "?".into()),
                detail: detail.map(str::to_owned),
                account: ["email", "orgId", "orgName"]
                    .into_iter()
                    .find_map(word)
                    .map(str::to_owned),
            }
        }
        Err(_) => {
            // A damaged settings file and the like.
            let facts = output.to_facts();
            let unsigned = AttemptFacts {
                process: facts.process,
                ..AttemptFacts::default()
            };
            let verdict = judge_attempt(&UnitKey::from("login"), &unsigned, FailureRule::Strict);
            if verdict.cause == VerdictCause::StartFailed {
                let problem =
                    Problem::new(format!("claude auth status failed: {}", verdict.reason));
                return LoginStatus::Unknown(match verdict.remedy {
                    Some(remedy) => problem.with_help(remedy),
                    None => problem,
                });
            }
            let printed = [&output.stdout, &output.stderr]
                .map(|bytes| quote_output(&String::from_utf8_lossy(bytes)));
            let printed: Vec<_> = printed
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
            let problem = match &printed[..] {
                [] => "claude auth status printed nothing".to_owned(),
                printed => format!(
                    "claude auth status did not return JSON: {}",
                    printed.join("; ")
                ),
            };
            LoginStatus::Unknown(
                Problem::new(problem).with_help("run it in a terminal, or update claude"),
            )
        }
    }
}

fn probe_result_from_facts(mut facts: AttemptFacts) -> ProbeResult {
    // The probe has no tools; a model that calls one anyway has answered.
    facts.work.tally = Default::default();
    let verdict = judge_attempt(&UnitKey::from("probe"), &facts, FailureRule::Strict);
    if verdict.outcome == AttemptOutcome::Succeeded {
        return ProbeResult::Usable;
    }
    let text = facts
        .reported
        .result
        .as_ref()
        .and_then(|result| result.errors.clone().or_else(|| result.text.clone()));
    let output = text
        .map(|text| quote_output(&text))
        .filter(|text| !text.is_empty());
    let output = output.unwrap_or(verdict.reason);
    let problem = match &verdict.cause {
        VerdictCause::Auth => "Claude Code authentication is not usable",
        VerdictCause::UsageLimit { .. } => {
            "Claude Code is logged in, but its usage limit is reached"
        }
        VerdictCause::RateLimited | VerdictCause::Transient => {
            "Claude Code is logged in, but the service is rejecting requests"
        }
        VerdictCause::Credit => "Claude Code is logged in, but its account has no credit",
        VerdictCause::Model => "Claude Code is logged in, but may not use this model",
        VerdictCause::Network => "Claude Code cannot reach its service",
        VerdictCause::StartFailed => "Claude Code refused to start",
        _ => "Claude Code did not answer",
    };
    let problem = Problem::new(format!("{problem}: {output}"));
    let problem = match verdict.remedy {
        Some(remedy) => problem.with_help(remedy),
        None => problem,
    };
    ProbeResult::Unusable {
        cause: verdict.cause,
        problem,
    }
}

/// Quotes program output inside a message: on one line, with limited length.
fn quote_output(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(MAX_QUOTE_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn shell(script: &str) -> ClaudeInvocation {
        ClaudeInvocation {
            program: AgentProgram {
                exe: "/bin/sh".into(),
                prefix: vec!["-c".into(), script.into()],
            },
            cwd: std::env::temp_dir(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        }
    }

    /// A program that answers both checks. `$0` is the first argument of the check.
    fn answers(version: &str, status: &str) -> ClaudeInvocation {
        shell(&format!(
            "case $0 in --version) echo '{version}';; auth) echo '{status}';; *) exit 3;; esac"
        ))
    }

    #[tokio::test]
    async fn version_and_login_are_read() {
        let report = check_availability(&answers(
            "2.1.330 (Claude Code)",
            r#"{"loggedIn":true,"authMethod":"claude.ai","subscriptionType":"max","email":"a@b.c"}"#,
        ))
        .await;
        let login = LoginStatus::LoggedIn {
            method: "claude.ai".into(),
            detail: Some("max".into()),
            account: Some("a@b.c".into()),
        };
        assert_eq!(
            report,
            AvailabilityReport {
                installation: Installation::Version(ClaudeVersion(2, 1, 330)),
                login
            }
        );

        let out = check_availability(&answers(
            "2.1.330 (Claude Code)",
            r#"{"loggedIn":false,"authMethod":"none"}"#,
        ))
        .await;
        assert_eq!(out.login, LoginStatus::LoggedOut);
        assert!(
            out.login
                .problem()
                .is_some_and(|problem| problem.to_line().contains("sign in"))
        );
    }

    #[tokio::test]
    async fn old_release_is_not_asked_for_login() {
        let report =
            check_availability(&answers("2.1.39 (Claude Code)", r#"{"loggedIn":true}"#)).await;
        assert_eq!(
            report.installation,
            Installation::Version(ClaudeVersion(2, 1, 39))
        );
        assert!(
            matches!(report.login, LoginStatus::Unknown(why) if why.to_string().contains("2.1.39"))
        );
    }

    #[tokio::test]
    async fn foreign_program_is_reported_as_not_claude() {
        let report = check_availability(&answers("bash, I am", "hello there")).await;
        assert_eq!(
            report.installation,
            Installation::UnknownVersion("bash, I am".into())
        );
        assert!(
            matches!(report.login, LoginStatus::Unknown(why) if why.to_string().contains("hello there"))
        );

        let mut missing = shell("");
        missing.program.exe = ingestdeck_test_support::missing("claude").into();
        let report = check_availability(&missing).await;
        assert!(
            matches!(&report.installation, Installation::NotStarted(why) if why.to_line().contains("npm install -g")),
            "{report:?}"
        );

        assert_eq!(
            check_availability(&answers("0.0.0 (scripted)", "{}"))
                .await
                .installation,
            Installation::Scripted
        );
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_program_times_out() {
        let error = shell("sleep 600")
            .run(&["--version"], Duration::from_millis(10))
            .await
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/bin/sh --version did not answer within 0 s"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn oversized_output_is_rejected() {
        for script in ["exec yes", "exec tr '\\0' x < /dev/zero", "exec yes >&2"] {
            let error = shell(script)
                .run(&["--version"], Duration::from_secs(60))
                .await
                .unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("/bin/sh --version answered with more than 4 MiB"),
                "{error}"
            );
        }
    }

    fn judged(lines: &str) -> ProbeResult {
        probe_result_from_facts(
            CheckOutput {
                stdout: lines.into(),
                ..CheckOutput::default()
            }
            .to_facts(),
        )
    }

    #[test]
    fn limit_and_credit_errors_are_not_login_errors() {
        let failed = |class: &str, more: &str, text: &str| {
            format!(
                "{{\"type\":\"assistant\",\"message\":{{\"model\":\"<synthetic>\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}},\
                 \"error\":\"{class}\"{more}}}\n\
                 {{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"terminal_reason\":\"api_error\",\"result\":\"{text}\"}}\n"
            )
        };
        let cases = [
            (
                "authentication_failed",
                "",
                "Not logged in",
                "Claude Code authentication is not usable: ",
            ),
            (
                "rate_limit",
                ",\"api_error\":\"usage_limit_reached\"",
                "You've hit your limit",
                "Claude Code is logged in, but its usage limit",
            ),
            (
                "rate_limit",
                ",\"api_error_status\":429",
                "Slow down",
                "Claude Code is logged in, but the service",
            ),
            (
                "billing_error",
                "",
                "Credit balance is too low",
                "Claude Code is logged in, but its account",
            ),
            (
                "model_not_found",
                "",
                "No such model",
                "Claude Code is logged in, but may not use",
            ),
        ];
        for (class, more, text, start) in cases {
            let ProbeResult::Unusable { problem, .. } = judged(&failed(class, more, text)) else {
                panic!("{class}")
            };
            let output = problem.to_line();
            assert!(
                output.starts_with(start) && output.contains(&format!(": {text}; ")),
                "{class}: {output}"
            );
        }
        let ok = r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","terminal_reason":"completed"}"#;
        assert_eq!(judged(ok), ProbeResult::Usable);
        assert!(
            matches!(judged(""), ProbeResult::Unusable { problem, .. } if problem.to_string().starts_with("Claude Code did not answer: "))
        );
    }
}
