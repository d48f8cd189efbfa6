//! The composition root: commands, sinks and exit codes. The only layer that knows all the others.

pub mod args;
pub mod debug;
pub mod demo;
pub mod descriptors;
pub mod diff;
pub mod doctor;
pub mod drive;
pub mod execute;
pub mod exit;
pub mod export;
pub mod fuse;
mod gate;
pub mod ground;
mod help;
pub mod init;
pub mod json;
pub mod launch;
pub mod lines;
pub mod manual;
pub mod mcp;
mod meter;
pub mod model;
pub mod output;
pub mod pass;
pub mod past;
pub mod plan;
pub mod project;
mod prune;
pub mod replay;
pub mod report;
pub mod resume;
pub mod run;
pub mod runs;
pub mod screen;
pub mod screenshot;
pub mod session;
pub mod settings;
pub mod show;
pub mod signals;
pub mod step;
pub mod summary;
pub mod tap;
pub mod trace;
pub mod watch;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use self::{
    args::{Cli, Command},
    exit::{Exit, Failure},
};
use crate::{claude::scripted, group_guard, ingest};

/// The hidden subcommand that plays the model in the demo and the tests.
const SCRIPTED_AGENT: &str = "scripted-agent";

/// Runs the program.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    match words.nth(1) {
        // Its arguments are those of `claude`, which are not ours to parse.
        Some(word) if word == SCRIPTED_AGENT => scripted::run(words.map(|word| word.to_string_lossy().into_owned())),
        // It limits itself before anything else runs.
        Some(word) if word == ingest::SQL_WORKER => ingest::run_sql_worker(),
        Some(word) if word == group_guard::GROUP_GUARD => group_guard::run(),
        _ => {
            descriptors::raise_limit();
            front().into()
        }
    }
}

fn front() -> Exit {
    let parsed = output::parse_arguments().and_then(|matches| {
        let command = matches.subcommand_name().unwrap_or_default().to_owned();
        Ok((command, Cli::from_arg_matches(&matches)?))
    });
    let (command, cli) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are answers, not errors.
            output::print_usage(&error);
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let ready = signals::survive_file_limit().and_then(|()| debug::install(cli.global.debug));
    let ran = ready.and_then(|()| {
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        tracing::info!(version, os = std::env::consts::OS, arch = std::env::consts::ARCH, pid, command, "started");
        run(&cli)
    });
    let exit = match ran {
        Ok(exit) => exit,
        Err(failure) => {
            output::tell(&format!("ingestdeck: {}", failure.message));
            tracing::error!(message = failure.message, "failed");
            failure.exit
        }
    };
    tracing::info!(?exit, "ended");
    exit
}

fn run(cli: &Cli) -> Result<Exit, Failure> {
    let global = &cli.global;
    match &cli.command {
        Command::Plan(select) => plan::plan(global, select),
        Command::Init(args) => init::init(global, args),
        Command::Demo(args) => demo::demo(global, args),
        Command::Run(args) => run::run(global, args),
        Command::Step(args) => step::step(global, args),
        Command::Watch(args) => watch::watch(global, args),
        Command::Replay(args) => replay::replay(global, args),
        Command::Screenshot(args) => screenshot::screenshot(global, args),
        Command::Session(args) => session::session(global, args),
        Command::Doctor(args) => doctor::doctor(global, args),
        Command::Completions(args) => manual::completions(args),
        Command::Man(args) => manual::man(args),
        Command::Help(args) => help::help(args),
        Command::Mcp(args) => mcp::mcp(global, args),
        Command::Report(args) => report::report(global, args),
        Command::Diff(args) => diff::diff(global, args),
        Command::Runs { command } => runs::runs(global, command),
        Command::Config { command: args::ConfigCommand::Show } => settings::show(global),
    }
}
