//! The command line: what can be said, and nothing about what is done.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::value;

/// Variable that names the Claude Code program.
pub const CLAUDE_BIN: &str = "INGESTDECK_CLAUDE_BIN";

/// Watch, replay and step ingest work units that run through your own Claude Code session.
#[derive(Debug, Parser)]
#[command(name = "ingestdeck", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// Settings of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Settings of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Project directory [default: $KTX_PROJECT_DIR, else the nearest directory with a ktx.yaml]
    #[arg(long, global = true, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// Claude Code program
    #[arg(long, global = true, value_name = "PATH", env = CLAUDE_BIN)]
    pub claude_bin: Option<PathBuf>,
    /// How to show it: auto is the screen on a terminal and lines elsewhere
    #[arg(long, global = true, value_enum, default_value_t = Ui::Auto)]
    pub ui: Ui,
    /// When to use colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// User settings file [default: $XDG_CONFIG_HOME/ingestdeck/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Draw with ASCII only
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Leave the mouse to the terminal
    #[arg(long, global = true)]
    pub no_mouse: bool,
    /// Write ingestdeck-debug.log here (RUST_BACKTRACE=1 adds backtraces to panics)
    #[arg(long, global = true)]
    pub debug: bool,
}

/// How a command shows what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ui {
    /// The screen on a terminal, lines elsewhere.
    Auto,
    /// The screen.
    Tui,
    /// One line an event.
    Lines,
    /// One JSON object an event.
    Json,
    /// Nothing but the exit code.
    None,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On terminals that want it.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Play the bundled project with a scripted agent: no account, no network
    Demo(DemoArgs),
    /// Write a first ktx.yaml from what lies in a directory
    Init(InitArgs),
    /// Show what would run, and why
    Plan(SelectArgs),
    /// Run the work units of a project
    Run(RunArgs),
    /// Run one unit, held at every tool call until you decide
    Step(StepArgs),
    /// Look on at a run of another process
    Watch(WatchArgs),
    /// Replay a run, a capture or a session file
    Replay(ReplayArgs),
    /// Run one plain Claude Code session and record it
    ///
    /// Unlike the units of a run, a session is not isolated: settings, hooks and MCP servers of the user and of the directory
    /// apply, and the tools that `[claude] allowed_tools` names may change files. Start one only in a directory that you trust. The prompt
    /// is an argument of the `claude` process, so other users of this machine can read it.
    ///
    /// What its tools did stays when it fails or is stopped. An automatic retry (`[retry]`) sends the prompt again only if no tool has
    /// run; otherwise it continues the session.
    Session(SessionArgs),
    /// Serve the tools of a unit to any MCP client, on stdin and stdout
    Mcp(McpArgs),
    /// Write a report of a run: for a pull request, for CI, as a page, or in KTX's own shape
    Report(ReportArgs),
    /// Compare two runs, unit by unit
    Diff(DiffArgs),
    /// Look at recorded runs
    Runs {
        /// What about them.
        #[command(subcommand)]
        command: RunsCommand,
    },
    /// Check that everything a run needs is there
    Doctor(DoctorArgs),
    /// Print what makes a shell complete these commands
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands
    Man(ManArgs),
    /// Draw a record into an SVG, after some keys
    #[command(hide = true)]
    Screenshot(ScreenshotArgs),
    /// Look at the settings
    Config {
        /// What about them.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Play faster (2) or slower (0.5)
    #[arg(long, default_value_t = 1.0, value_name = "K")]
    pub speed: f64,
    /// Keep the project in this directory instead of a temporary one
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// `init`.
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    /// Directory [default: that of --project-dir, else the current one]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Which units.
#[derive(Clone, Debug, Default, Args)]
pub struct SelectArgs {
    /// Connections [default: all]
    #[arg(value_name = "CONNECTION")]
    pub connections: Vec<String>,
    /// Only units whose key matches this pattern; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// All units, whether or not anything changed since they last succeeded
    #[arg(long)]
    pub full: bool,
    /// What to take over.
    #[command(flatten)]
    pub past: PastArgs,
}

/// What to take over from an earlier run.
#[derive(Clone, Debug, Default, Args)]
pub struct PastArgs {
    /// Continue this run: what succeeded there and has not changed is not run again
    #[arg(long, value_name = "RUN")]
    pub resume_run: Option<String>,
    /// Only units that failed, ran out of turns or were stopped in this run [default: latest]
    #[arg(
        long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "latest",
        conflicts_with = "resume_run"
    )]
    pub failed: Option<String>,
}

/// `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Which units.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Units at once, instead of the project's
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Commit what the units of a git project wrote without a pass that puts it together
    #[arg(long)]
    pub no_reconcile: bool,
    /// How they run.
    #[command(flatten)]
    pub terms: TermArgs,
}

/// How units run.
#[derive(Clone, Debug, Args)]
pub struct TermArgs {
    /// Model, instead of the project's
    #[arg(long)]
    pub model: Option<String>,
    /// Turns of an attempt, instead of the project's
    #[arg(long, value_name = "N")]
    pub step_budget: Option<u32>,
    /// End an attempt that has cost this much
    #[arg(long, value_name = "USD")]
    pub max_budget_usd: Option<f64>,
    /// Start nothing more once all attempts together have cost this much; the run can be resumed
    #[arg(long, value_name = "USD")]
    pub max_run_budget_usd: Option<f64>,
    /// End an attempt that has written nothing for this long (90s, 5m); `[retry]` then applies [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub silence_timeout: Option<Duration>,
    /// End an attempt that takes this long (10m, 1h), without the time in which it waits for you; `[retry]` then applies [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub unit_timeout: Option<Duration>,
    /// Send a one-turn request first, to learn whether the login works
    #[arg(long)]
    pub probe: bool,
}

/// `step`.
#[derive(Clone, Debug, Args)]
pub struct StepArgs {
    /// Key of the unit, as `plan` prints it
    pub unit: String,
    /// How it runs.
    #[command(flatten)]
    pub terms: TermArgs,
}

/// `watch`.
#[derive(Clone, Debug, Args)]
pub struct WatchArgs {
    /// Run id (any unique part of it) or `latest`
    #[arg(default_value = "latest")]
    pub run: String,
}

/// `replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// File, run id (any unique part of it), `latest`, or `-` for stdin
    pub what: String,
    /// Start paused at the first entry
    #[arg(long)]
    pub paused: bool,
    /// Play at K times the recorded pace, or `max` entry by entry as fast as possible [default: all at once]
    #[arg(long, value_name = "K")]
    pub speed: Option<String>,
    /// Leave after this step; for measuring
    #[arg(long, hide = true, value_enum)]
    pub until: Option<Until>,
}

/// Steps that a measurement ends at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// The first frame is on the screen.
    FirstFrame,
    /// Every line is indexed.
    Indexed,
    /// Everything is folded.
    End,
}

/// `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `screenshot`.
#[derive(Clone, Debug, Args)]
pub struct ScreenshotArgs {
    /// File, run id or `latest`
    pub what: String,
    /// File to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Columns and rows
    #[arg(long, default_value = "120x36", value_name = "WxH")]
    pub size: String,
    /// Keys to press first, as `[keys]` writes them
    #[arg(long, default_value = "")]
    pub keys: String,
    /// Theme
    #[arg(long, default_value = "dark")]
    pub theme: String,
}

/// `session`.
#[derive(Clone, Debug, Args)]
pub struct SessionArgs {
    /// Continue this session
    #[arg(long, value_name = "ID")]
    pub resume: Option<String>,
    /// Continue it under a new id
    #[arg(long, requires = "resume")]
    pub fork_session: bool,
    /// Model, instead of the configured one
    #[arg(long)]
    pub model: Option<String>,
    /// Settings to use: `[claude]` or `[agent]`
    #[arg(long, value_enum, default_value_t = Profile::Claude)]
    pub profile: Profile,
    /// The prompt
    #[arg(last = true, required = true)]
    pub prompt: Vec<String>,
}

/// Settings of a plain session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// `[claude]`.
    Claude,
    /// `[agent]`.
    Agent,
}

/// `mcp`.
#[derive(Clone, Debug, Args)]
pub struct McpArgs {
    /// Serve the raw files of this unit, by its key as `plan` prints it [default: none]
    #[arg(long, value_name = "UNIT", conflicts_with = "connection")]
    pub unit: Option<String>,
    /// Serve the raw files of all units of this connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
    /// Write pages and sources below this directory, never into the project [default: write nothing]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Run id (any unique part of it), `latest`, or a file that `replay` opens
    #[arg(default_value = "latest")]
    pub run: String,
    /// How it is written [default: md, with --ui json: json]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Write it there instead of to stdout; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only what is about this connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
}

/// `runs export`.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Run id (any unique part of it) or `latest`
    #[arg(default_value = "latest")]
    pub run: String,
    /// What is written
    #[arg(long, value_enum, default_value_t = ExportFormat::Tape)]
    pub format: ExportFormat,
    /// Write it there instead of to stdout; `-` is stdout
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The tape, which replays anywhere.
    Tape,
    /// KTX's memory-flow replay, one object a connection and line.
    MemoryFlow,
    /// KTX's ingest trace, with everything in it.
    Trace,
}

/// `diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// The earlier run: id, `latest`, or a file that `replay` opens
    pub before: String,
    /// The later one; `latest` unless it is named
    pub after: Option<String>,
    /// Also list units that are the same but for cost and time
    #[arg(long)]
    pub all: bool,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Markdown, to paste into a pull request.
    Md,
    /// KTX's report, one object a connection and line.
    Json,
    /// Failed units as failed tests, for CI.
    Junit,
    /// One page that needs nothing else.
    Html,
}

/// `runs`.
#[derive(Clone, Debug, Subcommand)]
pub enum RunsCommand {
    /// List them, newest first
    List,
    /// Show one
    Show {
        /// Run id (any unique part of it) or `latest`
        #[arg(default_value = "latest")]
        run: String,
    },
    /// Write a run to share, with secrets of known kinds masked
    Export(ExportArgs),
    /// Remove old records, but none on which rests what is known of the sources
    Prune(PruneArgs),
    /// Build the index anew from the tapes
    Reindex,
}

/// `runs prune`.
#[derive(Clone, Debug, Args)]
pub struct PruneArgs {
    /// So many of the newest stay
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub keep: usize,
    /// Only runs older than this go: 30d, 12h, "2 weeks"
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<jiff::Span>,
    /// Say what would go, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Also send a one-turn request, to learn whether the login works
    #[arg(long)]
    pub probe: bool,
}

/// `config`.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting with its origin
    Show,
}

fn duration(text: &str) -> Result<Duration, String> {
    value::duration(text).ok_or_else(|| format!("expected a {}", value::DURATION))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_prompt_may_look_like_flags() {
        let cli = Cli::try_parse_from(["ingestdeck", "session", "--", "--model", "opus"]).unwrap();
        assert!(matches!(cli.command, Command::Session(session) if session.prompt == ["--model", "opus"]));
    }
}
