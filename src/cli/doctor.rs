//! `doctor`: checks whether everything that a run needs is available.
//!
//! The JSON output has one object per check: `{"v":1,"check":…,"result":…,"text":…}`, where `check` is `check_git`,
//! `project`, `connection`, `repository`, `runs`, `environment`, `program`, `release`, `login`, `request`, `worker`,
//! `nats` or `updates`, and `result` is `ok`, `note` (nothing to do), `warn` (a run works, but not well) or `fail`.

mod project;
mod updates;
mod warehouse;

use std::{
    io::{self, Write as _},
    path::Path,
};

use serde::Serialize;

use super::{
    args::{DoctorArgs, GlobalArgs, Ui},
    exit::{self, CliError, Exit},
    launch, output, playback_output, settings,
};
use ingestdeck_agent::{
    AgentProgram,
    claude::{
        agent_env::{self, AgentEnvironment},
        availability::{
            self, AvailabilityReport, ClaudeInvocation, Installation, LoginStatus, ProbeResult,
        },
        managed_settings,
        version::{self, ClaudeVersion},
    },
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    text::{pluralize, size},
};
use ingestdeck_engine::{
    launch::runtime,
    worker::{own_server, protocol::WorkerJoin},
};
use ingestdeck_ingest::git;
use ingestdeck_os::program_path;

/// The subject of a check.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum DoctorCheck {
    Git,
    Project,
    Connection,
    Repository,
    Runs,
    Environment,
    Program,
    Release,
    Login,
    Request,
    Worker,
    Nats,
    Updates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckResult {
    Ok,
    Note,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    check: DoctorCheck,
    result: CheckResult,
    text: String,
}

impl DoctorFinding {
    fn ok(check: DoctorCheck, text: impl Into<String>) -> Self {
        Self {
            check,
            result: CheckResult::Ok,
            text: text.into(),
        }
    }

    fn note(check: DoctorCheck, text: impl Into<String>) -> Self {
        Self {
            check,
            result: CheckResult::Note,
            text: text.into(),
        }
    }

    fn fail(check: DoctorCheck, text: impl Into<String>) -> Self {
        Self {
            check,
            result: CheckResult::Fail,
            text: text.into(),
        }
    }

    fn write(&self, json: bool, out: &mut impl io::Write) -> io::Result<()> {
        if json {
            #[derive(Serialize)]
            struct DoctorFindingLine<'a> {
                v: u32,
                #[serde(flatten)]
                finding: &'a DoctorFinding,
            }
            serde_json::to_writer(
                &mut *out,
                &DoctorFindingLine {
                    v: 1,
                    finding: self,
                },
            )?;
            return writeln!(out);
        }
        let mark = match self.result {
            CheckResult::Ok => "ok  ",
            CheckResult::Note => "note",
            CheckResult::Warn => "warn",
            CheckResult::Fail => "FAIL",
        };
        // The second line of a text must not look like a finding.
        let rows = match output::columns() {
            Some(columns) => output::break_lines(&self.text, columns.saturating_sub(6)),
            None => self.text.split('\n').map(str::to_owned).collect(),
        };
        writeln!(out, "{mark}  {}", rows.join("\n      "))
    }
}

/// Runs all checks and prints the findings.
///
/// # Errors
/// If the settings cannot be read or stdout cannot be written.
pub(crate) fn doctor(global: &GlobalArgs, args: &DoctorArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let mut findings = vec![check_git()];
    let model = project::check_project(global, &mut findings);
    let pass = config.claude.pass_env.value.clone();
    let environment = environment(&pass);
    findings.extend(environment_findings(&environment));
    findings.extend(
        program_path::skipped_entries()
            .map(|text| DoctorFinding::note(DoctorCheck::Environment, text)),
    );
    match launch::find_claude(global) {
        Err(failure) => findings.push(DoctorFinding::fail(DoctorCheck::Program, failure.to_line())),
        Ok(exe) => {
            findings.push(DoctorFinding::ok(
                DoctorCheck::Program,
                format!("claude is {}", exe.display()),
            ));
            let asked = claude_invocation(
                AgentProgram {
                    exe,
                    prefix: Vec::new(),
                },
                environment,
            )?;
            let runtime = runtime(1)?;
            runtime.block_on(check_claude(
                &asked,
                args.probe,
                model.as_deref(),
                &mut findings,
            ));
        }
    }
    args.nats.warning().iter().for_each(exit::print_warning);
    if !args.worker.is_empty() || args.nats.address.is_some() {
        runtime(1)?.block_on(check_workers(args, &mut findings));
    }
    findings.extend(
        args.updates
            .as_ref()
            .map(|url| updates::check_updates(url.as_deref())),
    );
    let ui = playback_output::resolve_ui(global.ui);
    let mut out = output::stdout_for(ui);
    if ui != Ui::None {
        let mut written = findings
            .iter()
            .try_for_each(|finding| finding.write(ui == Ui::Json, &mut out));
        if ui != Ui::Json {
            written = written.and_then(|()| writeln!(out, "\n{}", conclusion(&findings)));
        }
        written.map_err(|error| playback_output::stdout_failed(&error))?;
    }
    let failed = findings
        .iter()
        .any(|finding| finding.result == CheckResult::Fail);
    Ok(if failed { Exit::Setup } else { Exit::Ok })
}

/// Whether a run can start, in one sentence.
fn conclusion(findings: &[DoctorFinding]) -> String {
    let count = |result| {
        let found = findings.iter().filter(|finding| finding.result == result);
        found.count()
    };
    match (count(CheckResult::Fail), count(CheckResult::Warn)) {
        (0, 0) => "ready: `ingestdeck plan` shows the units, `ingestdeck run` runs them".into(),
        (0, warnings) => format!(
            "ready, with {}: `ingestdeck plan` shows the units, `ingestdeck run` runs them",
            pluralize(warnings, "warning")
        ),
        (failed, _) => {
            let checks = pluralize(findings.len(), "check");
            format!("not ready: {failed} of {checks} failed")
        }
    }
}

/// Checks the workers and the NATS server of the arguments.
async fn check_workers(args: &DoctorArgs, findings: &mut Vec<DoctorFinding>) {
    if !args.worker.is_empty() {
        findings.push(match own_server::find_server() {
            Ok(path) => DoctorFinding::ok(
                DoctorCheck::Nats,
                format!("{}, for workers over SSH", path.display()),
            ),
            Err(problem) => DoctorFinding::fail(DoctorCheck::Nats, problem.to_line()),
        });
    }
    for worker in &args.worker {
        findings.push(match worker.probe().await {
            Ok(WorkerJoin {
                agent_release,
                slots,
                account,
                ..
            }) => {
                let slots = pluralize(slots as usize, "slot");
                let text =
                    format!("worker {worker}: {slots}, claude {agent_release}, account {account}");
                DoctorFinding::ok(DoctorCheck::Worker, text)
            }
            Err(problem) => DoctorFinding::fail(
                DoctorCheck::Worker,
                format!("worker {worker}: {}", problem.to_line()),
            ),
        });
    }
    if let Some(server) = args.nats.server() {
        findings.push(match server.connect().await {
            Ok(client) => {
                let info = client.server_info();
                let text = format!(
                    "{}: nats-server {}, messages up to {}",
                    server.address,
                    info.version,
                    size(client.max_payload() as u64)
                );
                DoctorFinding::ok(DoctorCheck::Nats, text)
            }
            Err(problem) => DoctorFinding::fail(DoctorCheck::Nats, problem.to_line()),
        });
    }
}

/// Checks the requirements of units: a release that is safe for them, and a login.
///
/// # Errors
/// If one of them is missing, with the remedy.
pub(crate) fn preflight(
    exe: &Path,
    pass: &[String],
    probe: bool,
    model: Option<&str>,
) -> Result<AvailabilityReport, CliError> {
    let setup = |problem: Problem| CliError::from_error(Exit::Setup, &problem);
    let asked = claude_invocation(
        AgentProgram {
            exe: exe.to_owned(),
            prefix: Vec::new(),
        },
        environment(pass),
    )?;
    let runtime = runtime(1)?;
    let report = runtime.block_on(availability::check_availability(&asked));
    accept_release(&asked, &report.installation)?;
    if matches!(report.installation, Installation::Version(_))
        && let Some(problem) = managed_settings::managed_settings_problem(Path::new(
            managed_settings::MANAGED_SETTINGS_DIR,
        ))
    {
        return Err(setup(problem));
    }
    if let Some(problem) = report.login.problem() {
        return Err(setup(problem));
    }
    if probe
        && let ProbeResult::Unusable { cause, problem } =
            runtime.block_on(availability::probe(&asked, model))
    {
        return Err(CliError::from_error(Exit::from_cause(&cause), &problem));
    }
    Ok(report)
}

/// Checks the requirement of a session: a release that is safe for it. The session checks the login itself. Returns the
/// release, if it is known.
///
/// # Errors
/// If it is not met, with the remedy.
pub(crate) fn check_release(
    exe: &Path,
    environment: AgentEnvironment,
) -> Result<Option<ClaudeVersion>, CliError> {
    let asked = claude_invocation(
        AgentProgram {
            exe: exe.to_owned(),
            prefix: Vec::new(),
        },
        environment,
    )?;
    let installed = runtime(1)?.block_on(availability::check_installation(&asked));
    accept_release(&asked, &installed)?;
    Ok(match installed {
        Installation::Version(version) => Some(version),
        _ => None,
    })
}

fn accept_release(asked: &ClaudeInvocation, installed: &Installation) -> Result<(), CliError> {
    let setup = |problem: &Problem| Err(CliError::from_error(Exit::Setup, problem));
    match installed {
        Installation::Version(version) => {
            match (version.support(), version.support().problem(*version)) {
                (version::ReleaseSupport::Unsupported, Some(problem)) => return setup(&problem),
                // Only `doctor` mentions a release that is newer than the tested ones.
                (version::ReleaseSupport::Untested, _) => {}
                (_, problem) => problem.iter().for_each(exit::print_warning),
            }
        }
        Installation::Scripted => {}
        Installation::NotStarted(problem) => return setup(problem),
        Installation::UnknownVersion(version_text) => {
            return setup(&unrecognized_version(asked, version_text));
        }
    }
    Ok(())
}

/// The environment that the agent of a unit would get; doctor's own environment is irrelevant.
fn environment(pass: &[String]) -> AgentEnvironment {
    agent_env::unit_environment(std::env::vars_os(), pass, &std::env::temp_dir())
}

fn claude_invocation(
    program: AgentProgram,
    environment: AgentEnvironment,
) -> Result<ClaudeInvocation, CliError> {
    let cwd = std::env::current_dir().map_err(CliError::internal)?;
    Ok(ClaudeInvocation {
        program,
        cwd,
        env: environment.vars,
    })
}

/// Lists names only: values may be secrets.
fn environment_findings(environment: &AgentEnvironment) -> Vec<DoctorFinding> {
    let list = |names: &[String]| {
        names
            .iter()
            .map(|name| name.escape_debug().to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let passed = match &environment.passed[..] {
        [] => String::new(),
        passed => format!("; by claude.pass_env {}", list(passed)),
    };
    let inherited = environment.inherited();
    let gets = format!(
        "agents of units inherit {}{passed}; {} more are set for them",
        list(&inherited),
        environment.set.len()
    );
    let mut findings = vec![DoctorFinding::ok(DoctorCheck::Environment, gets)];
    if !environment.stripped.is_empty() {
        let withheld = list(&environment.stripped);
        let text = format!(
            "withheld from agents of units: {withheld}; name what they need in claude.pass_env"
        );
        findings.push(DoctorFinding::note(DoctorCheck::Environment, text));
    }
    findings
}

async fn check_claude(
    asked: &ClaudeInvocation,
    probe: bool,
    model: Option<&str>,
    findings: &mut Vec<DoctorFinding>,
) {
    let report = availability::check_availability(asked).await;
    match &report.installation {
        Installation::Version(version) => {
            let standing = version.support();
            let text = standing.problem(*version).map_or_else(
                || format!("Claude Code {version} is a tested release"),
                |problem| problem.to_line(),
            );
            let refused = standing == version::ReleaseSupport::Unsupported;
            let finding = if refused {
                DoctorFinding::fail
            } else {
                DoctorFinding::ok
            };
            findings.push(finding(DoctorCheck::Release, text));
            let managed = managed_settings::managed_settings_problem(Path::new(
                managed_settings::MANAGED_SETTINGS_DIR,
            ));
            findings.extend(
                managed.map(|problem| {
                    DoctorFinding::fail(DoctorCheck::Environment, problem.to_line())
                }),
            );
        }
        Installation::Scripted => findings.push(DoctorFinding::note(
            DoctorCheck::Release,
            "claude is played by a script",
        )),
        Installation::NotStarted(problem) => {
            findings.push(DoctorFinding::fail(DoctorCheck::Release, problem.to_line()))
        }
        Installation::UnknownVersion(version_text) => findings.push(DoctorFinding::fail(
            DoctorCheck::Release,
            unrecognized_version(asked, version_text).to_line(),
        )),
    }
    match &report.login {
        LoginStatus::LoggedIn { method, detail, .. } => {
            let detail = detail
                .as_deref()
                .map(|detail| format!(" ({detail})"))
                .unwrap_or_default();
            let text = format!(
                "logged in by {method}{detail}; only --probe checks whether it still works"
            );
            findings.push(DoctorFinding::ok(DoctorCheck::Login, text));
        }
        login => findings.extend(
            login
                .problem()
                .map(|problem| DoctorFinding::fail(DoctorCheck::Login, problem.to_line())),
        ),
    }
    if probe {
        findings.push(match availability::probe(asked, model).await {
            ProbeResult::Usable => {
                DoctorFinding::ok(DoctorCheck::Request, "a one-turn request was answered")
            }
            ProbeResult::Unusable { problem, .. } => {
                DoctorFinding::fail(DoctorCheck::Request, problem.to_line())
            }
        });
    }
}

/// The error for a program that is not Claude Code.
fn unrecognized_version(asked: &ClaudeInvocation, output: &str) -> Problem {
    let (exe, output) = (
        asked.program.exe.display(),
        if output.is_empty() { "nothing" } else { output },
    );
    Problem::new(format!(
        "{exe} --version printed no release of Claude Code: {output}"
    ))
    .with_help("name another program with --claude-bin")
}

fn check_git() -> DoctorFinding {
    match git::version() {
        Ok(version) => DoctorFinding::ok(DoctorCheck::Git, version),
        Err(error) => DoctorFinding::fail(DoctorCheck::Git, error.to_line()),
    }
}
