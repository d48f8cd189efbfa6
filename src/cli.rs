//! The composition root: commands, sinks and exit codes. The only layer that knows all the others.

pub(crate) mod args;
mod artifacts;
mod attach;
mod audit;
mod background_sessions;
mod bench;
mod bookmarks;
mod config_show;
mod costs;
mod ctl;
mod ctl_answer;
mod ctl_events;
pub(crate) mod debug;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
mod engine_process;
pub(crate) mod exit;
pub(crate) mod export;
mod failed_from;
mod find;
mod gh_artifact;
mod git_sources;
mod help;
mod home;
mod home_activity;
pub(crate) mod init;
pub(crate) mod json;
mod last_demo;
pub(crate) mod launch;
pub(crate) mod lines;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod model_choice;
mod otel;
pub(crate) mod output;
#[cfg(test)]
mod output_agreement;
mod period;
pub(crate) mod plan;
pub(crate) mod playback_output;
pub(crate) mod policy;
mod prior_files;
pub(crate) mod project;
mod prune;
mod pull_request;
mod query;
mod rehearsal;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod review;
mod review_rules;
pub(crate) mod run;
mod run_limits;
pub(crate) mod runs;
mod scan;
pub(crate) mod screen;
pub(crate) mod screenshot;
pub(crate) mod session;
mod session_files;
mod session_watch;
pub(crate) mod settings;
mod settings_file;
pub(crate) mod signals;
pub(crate) mod step;
pub(crate) mod summary;
mod table;
mod table_memory;
mod texts;
pub(crate) mod watch;
mod why;
mod worker;
mod worker_keys;
mod worker_session;
mod zip_entries;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use self::{
    args::{Cli, CliCommand, EventVocabulary, RunsCommand, Ui},
    exit::{CliError, Exit},
};
use ingestdeck_agent::scripted;
use ingestdeck_core::diagnostic::Diagnostic as _;
use ingestdeck_engine::descriptors;
use ingestdeck_ingest as ingest;
use ingestdeck_os::group_guard;

/// The command line, with all subcommands and flags.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    match words.nth(1) {
        // The remaining arguments are those of `claude`; clap must not parse them.
        Some(word) if word == scripted::SUBCOMMAND => scripted::run(words),
        // The worker sets its own resource limits before anything else runs.
        Some(word) if word == ingest::SQL_WORKER => ingest::run_sql_worker(),
        Some(word) if word == ingest::WAREHOUSE_WORKER => ingestdeck_warehouse::run(),
        Some(word) if word == group_guard::GROUP_GUARD => group_guard::run(),
        _ => {
            descriptors::raise_limit();
            ExitCode::from(parse_and_run().code())
        }
    }
}

fn parse_and_run() -> Exit {
    let parsed = output::parse_arguments().and_then(|matches| {
        let command = matches.subcommand_name().unwrap_or_default().to_owned();
        let mut cli = Cli::from_arg_matches(&matches)?;
        cli.global.words = std::env::args_os().skip(1).collect();
        if cli.global.is_engine {
            cli.global.ui = Ui::None;
        }
        if cli.command.is_none() && !home::is_available(&cli.global) {
            output::refuse_missing_command()?;
        }
        Ok((command, cli))
    });
    let (command, mut cli) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are answers, not errors.
            if let Err(error) = output::print_usage(&error) {
                let failure = playback_output::stdout_failed(&error);
                exit::print_error(&failure);
                return failure.exit;
            }
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
        }
    };
    let ready = signals::ignore_sigxfsz().and_then(|()| debug::install(cli.global.debug));
    let ready = ready.and_then(|()| {
        if cli.global.is_engine {
            engine_process::begin()
        } else {
            Ok(())
        }
    });
    let ran = ready.and_then(|()| {
        let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
        tracing::info!(
            version,
            os = std::env::consts::OS,
            arch = std::env::consts::ARCH,
            pid,
            command,
            "started"
        );
        settings::install_prices(&cli.global);
        last_demo::resolve_name(&mut cli)?;
        run(&cli)
    });
    let exit = match ran {
        Ok(exit) => exit,
        Err(failure) => {
            exit::print_error(&failure);
            // The hooks of `debug` format the report.
            let report = color_eyre::Report::msg(failure.to_line());
            tracing::error!(?report, "failed");
            failure.exit
        }
    };
    tracing::info!(?exit, "ended");
    exit
}

fn run(cli: &Cli) -> Result<Exit, CliError> {
    let global = &cli.global;
    if global.events == EventVocabulary::Agent && global.ui != Ui::Json && !global.is_engine {
        return Err(CliError::usage("--events agent needs --ui json")
            .with_help("add --ui json, or leave it out"));
    }
    let Some(command) = &cli.command else {
        return home::home(global, run);
    };
    match command {
        CliCommand::Plan(args) => plan::plan(global, args),
        CliCommand::Init(args) => init::init(global, args),
        CliCommand::Demo(args) => demo::demo(global, args),
        CliCommand::Scan(args) => scan::scan(global, args),
        CliCommand::Run(args) => run::run(global, args),
        CliCommand::Step(args) => step::step(global, args),
        CliCommand::Attach(args) => attach::attach(global, args),
        CliCommand::Review(args) => review::review(global, args),
        CliCommand::Watch(args) => watch::watch(global, args),
        CliCommand::Ctl(args) => ctl::ctl(global, args),
        CliCommand::Replay(args) => replay::replay(global, args, run),
        CliCommand::Screenshot(args) => screenshot::screenshot(global, args),
        CliCommand::Session(args) => session::session(global, args),
        CliCommand::Doctor(args) => doctor::doctor(global, args),
        CliCommand::Completions(args) => manual::completions(args),
        CliCommand::Man(args) => manual::man(args),
        CliCommand::Help(args) => help::help(args),
        CliCommand::Mcp(args) => mcp::mcp(global, args),
        CliCommand::Worker(args) => worker::worker(global, args),
        CliCommand::Report(args) => report::report(global, args),
        CliCommand::Diff(args) => diff::diff(global, args),
        CliCommand::Artifacts(args) => artifacts::artifacts(global, args),
        CliCommand::Bench(args) => bench::bench(global, args),
        CliCommand::Find(args) => find::find(global, args),
        CliCommand::Audit(args) => audit::audit(global, args),
        CliCommand::Costs(args) => costs::costs(global, args),
        CliCommand::Why(args) => why::why(global, args),
        CliCommand::Runs { command } => match command {
            RunsCommand::List(args) => runs::list(global, args),
            RunsCommand::Show { run } => runs::show(global, run),
            RunsCommand::Export(args) => export::export(global, args),
            RunsCommand::Query(args) => query::query(global, args),
            RunsCommand::Prune(args) => prune::prune(global, args),
            RunsCommand::Reindex => runs::reindex(global),
        },
        CliCommand::Config {
            command: args::ConfigCommand::Show,
        } => config_show::show(global),
    }
}
