//! What the program itself costs while agents speak: its own processor time against theirs, from start to exit, with
//! lines and on a terminal.
//!
//! With `INGESTDECK_TEST_CLAUDE` the agents are the real CLI, which hears its model from a scripted service here.
//! Without, they are scripted and say the same at the same pace, and the real one's cost is taken as it was measured.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        wait::{Id, WaitPidFlag, waitid},
    },
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

use crate::{
    api::{Api, Route, Turn},
    harness::{Bar, Limit, Outcome, Report, Sample},
    probe::{argument, ingestdeck},
    project,
    screen::Screen,
};

/// What an agent says, and how fast: a piece with every few words.
const PIECE: usize = 20;
const PACE: Duration = Duration::from_millis(30);
const PIECES: usize = 270;
/// Seconds of processor time of release 2.1.330 that says so much at that pace: its start, and 2 ms a piece.
const CLAUDE: f64 = 1.1;
const ROUNDS: usize = 3;

pub(crate) fn measure(report: &mut Report) -> Outcome<()> {
    let claude = std::env::var("INGESTDECK_TEST_CLAUDE").ok();
    report.note(match &claude {
        Some(_) => "the agents are the real CLI",
        None => "the agents are scripted: the CPU of real ones is taken as measured, 1.1 s each",
    });
    let at_one = Bar { hard: Limit::AtMost(1.5), aim: Limit::AtMost(0.5) };
    let at_more = Bar { hard: Limit::AtMost(1.0), aim: Limit::AtMost(0.5) };
    for (agents, bar) in [(1, at_one), (4, at_more)] {
        for terminal in [false, true] {
            let costs = (0..ROUNDS).map(|_| cost(claude.as_deref(), agents, terminal)).collect::<Outcome<Vec<_>>>()?;
            let shares = costs.iter().map(|cost| cost.own / cost.agents * 100.0).collect();
            let shown = if terminal { "on a terminal" } else { "with lines" };
            let name = format!("own CPU / CPU of {agents} speaking, {shown}, %");
            report.figure(&name, &Sample::new(shares), bar);
            let own = Sample::new(costs.iter().map(|cost| cost.own * 1000.0).collect());
            let theirs = Sample::new(costs.iter().map(|cost| cost.agents).collect());
            report.note(&format!("own {own} ms, theirs {theirs} s"));
        }
    }
    Ok(())
}

/// Seconds of processor time.
struct Cost {
    own: f64,
    agents: f64,
}

fn cost(claude: Option<&str>, agents: u32, terminal: bool) -> Outcome<Cost> {
    let folder = tempfile::tempdir()?;
    let (place, home) = (folder.path().join("project"), folder.path().join("home"));
    fs::create_dir_all(home.join("ingestdeck"))?;
    fs::create_dir(&place)?;
    project::of_documents(&place, agents)?;
    let speech: String = "The quick brown fox ".chars().cycle().take(PIECE * PIECES).collect();
    let (agent, api) = match claude {
        Some(claude) => (claude.to_owned(), Some(Api::start([Route::any([Turn::says(&speech).slowly(PACE)])]))),
        None => {
            let pace = PACE.as_millis();
            let script = format!(
                "[pace]\nchunk_chars = {PIECE}\nchunk_ms = {pace}\n[[part]]\nsteps = [{{ say = \"{speech}\" }}]\n"
            );
            (project::agent(folder.path(), &script)?, None)
        }
    };
    let many = agents.to_string();
    let words = ["run", "--project-dir", argument(&place)?, "--claude-bin", &agent, "--concurrency", &many];
    let mut command = Command::new(ingestdeck());
    command.args(words).env("HOME", &home).env("XDG_CONFIG_HOME", &home);
    if let Some(api) = &api {
        let config = "[claude]\npass_env = [\"ANTHROPIC_BASE_URL\", \"ANTHROPIC_API_KEY\"]\n";
        fs::write(home.join("ingestdeck/config.toml"), config)?;
        command.env("ANTHROPIC_BASE_URL", api.url()).env("ANTHROPIC_API_KEY", "none");
    }
    let cost = if terminal { on_terminal(&mut command) } else { with_lines(&mut command) }?;
    let agents = if claude.is_some() { cost.agents } else { CLAUDE * f64::from(agents) };
    Ok(Cost { agents, ..cost })
}

fn with_lines(command: &mut Command) -> Outcome<Cost> {
    command.args(["--ui", "lines"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end(&mut command.spawn()?)
}

fn on_terminal(command: &mut Command) -> Outcome<Cost> {
    let mut screen = Screen::start(command.args(["--ui", "tui"]))?;
    screen.until(|text| text.contains("done"))?;
    screen.press(b"q")?;
    end(screen.child())
}

/// Waits for the end, and tells what the program itself had from what its children had.
fn end(child: &mut Child) -> Outcome<Cost> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let sum = || -> Outcome<f64> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
    };
    let before = sum()?;
    // It has ended, and its clock can still be read.
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)?;
    let own = Duration::from(clock_gettime(clock_getcpuclockid(pid)?)?).as_secs_f64();
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("ended with {status}").into());
    }
    Ok(Cost { own, agents: sum()? - before - own })
}
