//! `doctor`: whether everything a run needs is there.
//!
//! As JSON, one object a check: `{"v":1,"check":…,"result":…,"text":…}`, where `check` is `git`, `project`, `connection`,
//! `repository`, `runs`, `environment`, `program`, `release`, `login` or `request`, and `result` is `ok`, `note` (nothing to do) or `fail`.

mod project;

use std::{io, path::Path};

use serde::Serialize;

use super::{
    args::{DoctorArgs, Global, Ui},
    exit::{Exit, Failure},
    launch, output,
    project::warn,
    screen, settings, show,
};
use crate::{
    claude::{
        auth::{self, Asked, Installed, Login, Probe},
        env::{self, Environment},
        managed,
        unit::Program,
        version,
    },
    ingest::git::{self, GitError},
    program_path,
};

/// What was looked at.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Check {
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
}

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    Ok,
    Note,
    Fail,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    check: Check,
    result: Standing,
    text: String,
}

impl Finding {
    fn ok(check: Check, text: impl Into<String>) -> Self {
        Self { check, result: Standing::Ok, text: text.into() }
    }

    fn note(check: Check, text: impl Into<String>) -> Self {
        Self { check, result: Standing::Note, text: text.into() }
    }

    fn fail(check: Check, text: impl Into<String>) -> Self {
        Self { check, result: Standing::Fail, text: text.into() }
    }

    fn write(&self, json: bool, out: &mut impl io::Write) -> io::Result<()> {
        if json {
            #[derive(Serialize)]
            struct Line<'a> {
                v: u32,
                #[serde(flatten)]
                finding: &'a Finding,
            }
            serde_json::to_writer(&mut *out, &Line { v: 1, finding: self })?;
            return writeln!(out);
        }
        let mark = match self.result {
            Standing::Ok => "ok  ",
            Standing::Note => "note",
            Standing::Fail => "FAIL",
        };
        // A second line of a text must not pass for a finding.
        writeln!(out, "{mark}  {}", self.text.replace('\n', "\n      "))
    }
}

/// Looks at everything and says what is wrong with it.
///
/// # Errors
/// When the settings cannot be read or stdout cannot be written.
pub fn doctor(global: &Global, args: &DoctorArgs) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let mut findings = vec![git()];
    let model = project::examine(global, &mut findings);
    let pass = config.claude.pass_env.value.clone();
    let environment = environment(&pass);
    findings.extend(of_environment(&environment));
    findings.extend(program_path::skipped_entries().map(|text| Finding::note(Check::Environment, text)));
    match launch::find_claude(global) {
        Err(failure) => findings.push(Finding::fail(Check::Program, failure.message)),
        Ok(exe) => {
            findings.push(Finding::ok(Check::Program, format!("claude is {}", exe.display())));
            let asked = asked(Program { exe, prefix: Vec::new(), scripted: false }, environment)?;
            let runtime = screen::runtime(1)?;
            runtime.block_on(examine(&asked, args.probe, model.as_deref(), &mut findings));
        }
    }
    let ui = show::resolve(global.ui);
    let mut out = output::stdout_for(ui);
    if ui != Ui::None {
        let written = findings.iter().try_for_each(|finding| finding.write(ui == Ui::Json, &mut out));
        written.map_err(|error| show::stdout_failed(&error))?;
    }
    let failed = findings.iter().any(|finding| finding.result == Standing::Fail);
    Ok(if failed { Exit::Setup } else { Exit::Ok })
}

/// What must hold before units run: a release that can be trusted with them, and a login.
///
/// # Errors
/// When one of them is missing, in one sentence with the remedy.
pub fn preflight(exe: &Path, pass: &[String], probe: bool, model: Option<&str>) -> Result<(), Failure> {
    let setup = |text: String| Failure::new(Exit::Setup, text);
    let asked = asked(Program { exe: exe.to_owned(), prefix: Vec::new(), scripted: false }, environment(pass))?;
    let runtime = screen::runtime(1)?;
    let report = runtime.block_on(auth::inspect(&asked));
    accept_release(&asked, &report.installed)?;
    if matches!(report.installed, Installed::Yes(_))
        && let Some(problem) = managed::problem(Path::new(managed::DIRECTORY))
    {
        return Err(setup(problem));
    }
    if let Some(problem) = report.login.problem() {
        return Err(setup(problem));
    }
    if probe && let Probe::NotUsable { cause, text } = runtime.block_on(auth::probe(&asked, model)) {
        return Err(Failure::new(Exit::of_cause(&cause), text));
    }
    Ok(())
}

/// What must hold before a session runs: a release that can be trusted with it. The login is the session's own business.
///
/// # Errors
/// When it is missing, in one sentence with the remedy.
pub fn check_release(exe: &Path, environment: Environment) -> Result<(), Failure> {
    let asked = asked(Program { exe: exe.to_owned(), prefix: Vec::new(), scripted: false }, environment)?;
    let installed = screen::runtime(1)?.block_on(auth::installed(&asked));
    accept_release(&asked, &installed)
}

fn accept_release(asked: &Asked, installed: &Installed) -> Result<(), Failure> {
    let setup = |text: String| Failure::new(Exit::Setup, text);
    match installed {
        Installed::Yes(version) => match (version.standing(), version.standing().remark(*version)) {
            (version::Standing::Refused, Some(text)) => return Err(setup(text)),
            (_, remark) => warn(&remark.into_iter().collect::<Vec<_>>()),
        },
        Installed::Scripted => {}
        Installed::No(why) => return Err(setup(why.clone())),
        Installed::Unclear(said) => return Err(setup(unclear(asked, said))),
    }
    Ok(())
}

/// What a unit's agent would get, because only that counts.
fn environment(pass: &[String]) -> Environment {
    env::unit(std::env::vars_os(), pass, &std::env::temp_dir())
}

fn asked(program: Program, environment: Environment) -> Result<Asked, Failure> {
    let cwd = std::env::current_dir().map_err(Failure::internal)?;
    Ok(Asked { program, cwd, env: environment.vars })
}

/// Names only: values may be secrets.
fn of_environment(environment: &Environment) -> Vec<Finding> {
    let list =
        |names: &[String]| names.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ");
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
    let mut findings = vec![Finding::ok(Check::Environment, gets)];
    if !environment.stripped.is_empty() {
        let withheld = list(&environment.stripped);
        let text = format!("withheld from agents of units: {withheld}; name what they need in claude.pass_env");
        findings.push(Finding::note(Check::Environment, text));
    }
    findings
}

async fn examine(asked: &Asked, probe: bool, model: Option<&str>, findings: &mut Vec<Finding>) {
    let report = auth::inspect(asked).await;
    match &report.installed {
        Installed::Yes(version) => {
            let standing = version.standing();
            let text =
                standing.remark(*version).unwrap_or_else(|| format!("Claude Code {version} is a tested release"));
            let refused = standing == version::Standing::Refused;
            let finding = if refused { Finding::fail } else { Finding::ok };
            findings.push(finding(Check::Release, text));
            let managed = managed::problem(Path::new(managed::DIRECTORY));
            findings.extend(managed.map(|text| Finding::fail(Check::Environment, text)));
        }
        Installed::Scripted => findings.push(Finding::note(Check::Release, "claude is played by a script")),
        Installed::No(why) => findings.push(Finding::fail(Check::Release, why.clone())),
        Installed::Unclear(said) => findings.push(Finding::fail(Check::Release, unclear(asked, said))),
    }
    match &report.login {
        Login::In { method, detail } => {
            let detail = detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            let text = format!("logged in by {method}{detail}; only --probe tells whether it still works");
            findings.push(Finding::ok(Check::Login, text));
        }
        login => findings.extend(login.problem().map(|text| Finding::fail(Check::Login, text))),
    }
    if probe {
        findings.push(match auth::probe(asked, model).await {
            Probe::Usable => Finding::ok(Check::Request, "a one-turn request was answered"),
            Probe::NotUsable { text, .. } => Finding::fail(Check::Request, text),
        });
    }
}

/// For a program that is something else than Claude Code.
fn unclear(asked: &Asked, said: &str) -> String {
    let (exe, said) = (asked.program.exe.display(), if said.is_empty() { "nothing" } else { said });
    format!("{exe} --version names no release of Claude Code; it said: {said}; name another with --claude-bin")
}

fn git() -> Finding {
    match git::version() {
        Ok(version) => Finding::ok(Check::Git, version),
        Err(GitError::Missing) => {
            Finding::note(Check::Git, "git is not on the PATH; only projects that are git repositories need it")
        }
        Err(error) => Finding::fail(Check::Git, error.to_string()),
    }
}
