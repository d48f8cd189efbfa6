//! `doctor`: whether everything a run needs is there.

use std::io::{self, Write as _};

use super::{
    args::{DoctorArgs, Global},
    exit::{Exit, Failure},
    launch, project, screen, settings, show,
    summary::counted,
};
use crate::{
    claude::{
        auth::{self, Asked, Installed, Login, Probe},
        env,
        unit::Program,
        version::Standing,
    },
    ingest::project::{Project, ProjectError},
};

/// One finding.
struct Finding {
    good: Option<bool>,
    text: String,
}

/// Looks at everything and says what is wrong with it.
///
/// # Errors
/// When the settings cannot be read or stdout cannot be written.
pub fn doctor(global: &Global, args: &DoctorArgs) -> Result<Exit, Failure> {
    let config = settings::load(global)?;
    let mut findings = vec![git()];
    findings.push(project_finding(global));
    match launch::find_claude(global) {
        Err(failure) => findings.push(Finding { good: Some(false), text: failure.message }),
        Ok(exe) => {
            findings.push(Finding { good: Some(true), text: format!("claude is {}", exe.display()) });
            let asked = asked(Program { exe, prefix: Vec::new(), scripted: false }, &config.claude.pass_env)?;
            let runtime = screen::runtime(1)?;
            runtime.block_on(examine(&asked, args.probe, &mut findings));
        }
    }
    let mut out = io::stdout().lock();
    for finding in &findings {
        let mark = match finding.good {
            Some(true) => "ok  ",
            Some(false) => "FAIL",
            None => "note",
        };
        writeln!(out, "{mark}  {}", finding.text).map_err(|error| show::stdout_failed(&error))?;
    }
    let failed = findings.iter().any(|finding| finding.good == Some(false));
    Ok(if failed { Exit::Setup } else { Exit::Ok })
}

/// What must hold before units run: a release that can be trusted with them, and a login.
///
/// # Errors
/// When one of them is missing, in one sentence with the remedy.
pub fn preflight(exe: &std::path::Path, pass: &[String], probe: bool, model: Option<&str>) -> Result<(), Failure> {
    let setup = |text: String| Failure::new(Exit::Setup, text);
    let asked = asked(Program { exe: exe.to_owned(), prefix: Vec::new(), scripted: false }, pass)?;
    let runtime = screen::runtime(1)?;
    let report = runtime.block_on(auth::inspect(&asked));
    match &report.installed {
        Installed::Yes(version) => match (version.standing(), version.standing().remark(*version)) {
            (Standing::Refused, Some(text)) => return Err(setup(text)),
            (_, remark) => project::warn(&remark.into_iter().collect::<Vec<_>>()),
        },
        Installed::Scripted => {}
        Installed::No(why) => return Err(setup(why.clone())),
        Installed::Unclear(said) => return Err(setup(unclear(&asked, said))),
    }
    if let Some(problem) = report.login.problem() {
        return Err(setup(problem));
    }
    if probe && let Probe::NotUsable { text, .. } = runtime.block_on(auth::probe(&asked, model)) {
        return Err(setup(text));
    }
    Ok(())
}

/// What a unit's agent would get, because only that counts.
///
/// # Errors
/// When the current directory is gone.
pub fn asked(program: Program, pass: &[String]) -> Result<Asked, Failure> {
    let cwd = std::env::current_dir().map_err(Failure::internal)?;
    let env = env::unit(std::env::vars_os(), pass, &std::env::temp_dir()).vars;
    Ok(Asked { program, cwd, env })
}

async fn examine(asked: &Asked, probe: bool, findings: &mut Vec<Finding>) {
    let report = auth::inspect(asked).await;
    match &report.installed {
        Installed::Yes(version) => {
            let standing = version.standing();
            let text =
                standing.remark(*version).unwrap_or_else(|| format!("Claude Code {version} is a tested release"));
            findings.push(Finding { good: Some(standing != Standing::Refused), text });
        }
        Installed::Scripted => findings.push(Finding { good: None, text: "claude is played by a script".into() }),
        Installed::No(why) => findings.push(Finding { good: Some(false), text: why.clone() }),
        Installed::Unclear(said) => findings.push(Finding { good: Some(false), text: unclear(asked, said) }),
    }
    match &report.login {
        Login::In { method, detail } => {
            let detail = detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            let text = format!("logged in by {method}{detail}; only --probe tells whether it still works");
            findings.push(Finding { good: Some(true), text });
        }
        login => findings.extend(login.problem().map(|text| Finding { good: Some(false), text })),
    }
    if probe {
        findings.push(match auth::probe(asked, None).await {
            Probe::Usable => Finding { good: Some(true), text: "a one-turn request was answered".into() },
            Probe::NotUsable { text, .. } => Finding { good: Some(false), text },
        });
    }
}

/// For a program that is something else than Claude Code.
fn unclear(asked: &Asked, said: &str) -> String {
    let (exe, said) = (asked.program.exe.display(), if said.is_empty() { "nothing" } else { said });
    format!("{exe} --version names no release of Claude Code; it said: {said}; name another with --claude-bin")
}

fn git() -> Finding {
    match std::process::Command::new("git").arg("--version").output() {
        Ok(output) if output.status.success() => {
            Finding { good: Some(true), text: String::from_utf8_lossy(&output.stdout).trim().to_owned() }
        }
        _ => {
            Finding { good: None, text: "git is not on the PATH; it is only needed to keep a project's history".into() }
        }
    }
}

fn project_finding(global: &Global) -> Finding {
    let directory = match project::directory(global) {
        Ok(directory) => directory,
        Err(failure) => return Finding { good: Some(false), text: failure.message },
    };
    match Project::open(&directory).and_then(|project| project.runnable().map(|()| project)) {
        Ok(project) => {
            let connections = counted(project.settings.connections.len(), "connection");
            Finding { good: Some(true), text: format!("project {} with {connections}", project.root.display()) }
        }
        // Being nowhere near a project is no fault; one that cannot be used is.
        Err(error @ ProjectError::Missing(_)) => Finding { good: None, text: error.to_string() },
        Err(error) => Finding { good: Some(false), text: error.to_string() },
    }
}
