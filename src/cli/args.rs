//! The command-line arguments. Knows nothing about what the commands do.

mod artifacts;
mod attempt;
mod index;
mod review;
mod scan;
mod worker;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::artifacts::ArtifactsArgs;
pub(crate) use self::attempt::AttemptArgs;
pub(crate) use self::index::{
    AuditArgs, CostGrouping, CostsArgs, FindArgs, PeriodArgs, QueryArgs, RunSort, RunsListArgs,
    TableFormat,
};
pub(crate) use self::review::ReviewArgs;
pub(crate) use self::scan::ScanArgs;
pub(crate) use self::worker::{
    DoctorArgs, NatsArgs, PoolCommand, WorkerArgs, WorkerGcArgs, WorkerInstallArgs, WorkerKeysArgs,
};
use crate::guide::PAGES;
pub(crate) use ingestdeck_bench::BenchArgs;
use ingestdeck_core::config::time_limit::TimeLimitSetting;
use ingestdeck_engine::worker::ssh::SshWorker;
use ingestdeck_report::ReportFormat;

/// Variable that names the Claude Code program.
pub(crate) const CLAUDE_BIN: &str = "INGESTDECK_CLAUDE_BIN";

/// The hidden flag that makes a command that runs units the engine of its run.
pub(crate) const ENGINE_FLAG: &str = "--run-as-engine";

/// Watch, replay and step through ingest work units that run in your own Claude Code session
#[derive(Debug, Parser)]
#[command(
    name = "ingestdeck",
    version = env!("INGESTDECK_VERSION"),
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    /// Settings of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command; the home screen without one.
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

/// Settings of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct GlobalArgs {
    /// Project directory [default: $KTX_PROJECT_DIR, else the nearest directory with a ktx.yaml]
    #[arg(long, global = true, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// Claude Code program
    #[arg(long, global = true, value_name = "PATH", env = CLAUDE_BIN)]
    pub claude_bin: Option<PathBuf>,
    /// Output: `auto` is the screen on a terminal, and lines elsewhere
    #[arg(long, global = true, value_enum, default_value_t = Ui::Auto)]
    pub ui: Ui,
    /// Names of the events of --ui json: those of Takopi, or of agent SDKs (`tool:start`, `stream:token`)
    #[arg(long, global = true, value_enum, default_value_t = EventVocabulary::Takopi)]
    pub events: EventVocabulary,
    /// Begin each line of --ui lines with the time of day (UTC)
    #[arg(long, global = true)]
    pub timestamps: bool,
    /// When to use color
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// User settings file [default: $XDG_CONFIG_HOME/ingestdeck/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Draw with ASCII only
    #[arg(long, global = true)]
    pub ascii: bool,
    /// Do not capture the mouse
    #[arg(long, global = true)]
    pub no_mouse: bool,
    /// Write ingestdeck-debug.log to the current directory (RUST_BACKTRACE=1 adds backtraces of panics)
    #[arg(long, global = true)]
    pub debug: bool,
    /// Run as the engine of a client in another process
    #[arg(long = "run-as-engine", global = true, hide = true)]
    pub is_engine: bool,
    /// The arguments of this process, with which a client starts its engine.
    #[arg(skip)]
    pub words: Vec<OsString>,
}

impl GlobalArgs {
    /// The options that an engine of another command of this project needs, as arguments.
    pub(crate) fn option_words(&self) -> Vec<OsString> {
        let options = [
            ("--project-dir", &self.project_dir),
            ("--claude-bin", &self.claude_bin),
            ("--config", &self.config),
        ];
        let given = options
            .into_iter()
            .filter_map(|(option, path)| Some([option.into(), path.clone()?.into()]));
        given
            .flatten()
            .chain(self.debug.then(|| "--debug".into()))
            .collect()
    }
}

/// Output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ui {
    /// The screen on a terminal, lines elsewhere.
    Auto,
    /// The screen.
    Tui,
    /// One line per event.
    Lines,
    /// One JSON object per event.
    Json,
    /// Nothing but the exit code.
    None,
}

/// The names that `--ui json` gives to the events of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventVocabulary {
    /// The events of Takopi: `started`, `action`, `completed`.
    Takopi,
    /// `tool:start`, `tool:result`, `agent:turn`, `stream:token`, `agent:complete`.
    Agent,
}

/// When to use colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the terminal supports it.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run the bundled project with a scripted agent; needs no account and no network
    Demo(DemoArgs),
    /// Write a first ktx.yaml for the sources found in a directory
    Init(InitArgs),
    /// Show which units would run, and why
    Plan(PlanArgs),
    /// Read the tables of a database, so that units can check what they write
    ///
    /// The files are those of KTX's scan: semantic-layer/CONNECTION/_schema and raw-sources/CONNECTION/live-database. A later scan
    /// changes only what is different in the database; descriptions and joins that people added are kept. In a project with git,
    /// the files become one commit.
    Scan(ScanArgs),
    /// Run the work units of a project
    Run(Box<RunArgs>),
    /// Run one unit and stop before every tool call
    Step(StepArgs),
    /// Show an active run with all keys; it continues when you leave
    Attach(AttachArgs),
    /// Accept, reject, edit or send back the changes of a run: before they become a commit, or afterwards
    Review(ReviewArgs),
    /// Watch a run started by another process, without changing it
    Watch(WatchArgs),
    /// Send a command to an active run, or show its state
    Ctl(CtlArgs),
    /// Replay a run, a capture or a session file
    Replay(ReplayArgs),
    /// Run one plain Claude Code session and record it
    ///
    /// A session is not isolated: settings, hooks and MCP servers of the user and of the directory apply, and the tools listed in
    /// `[claude] allowed_tools` may change files. Start one only in a directory that you trust. The prompt is an argument of the
    /// `claude` process, so other users of this machine can read it.
    ///
    /// Changes made by its tools remain when the session fails or is stopped. An automatic retry (`[retry]`) sends the prompt again
    /// only if no tool has run; otherwise it continues the session.
    Session(SessionArgs),
    /// Serve the tools of a unit to any MCP client over stdio
    Mcp(McpArgs),
    /// Run attempts for the engine of a run on another machine
    Worker(Box<WorkerArgs>),
    /// Write a report of a run: Markdown, JUnit, HTML or KTX's JSON
    Report(ReportArgs),
    /// Compare two runs: units, figures of quality, artifacts
    Diff(DiffArgs),
    /// Run the units of the project at HEAD with several models and prompts, and score each combination
    ///
    /// Each run works in a temporary clone of the commit, which is deleted afterwards: the project, its branch and its recorded runs do
    /// not change. The tapes and the result are kept in `.ktx/ingestdeck/bench`.
    Bench(BenchArgs),
    /// Show the pages and sources of a run, what became of them, and the raw files they rest on
    Artifacts(ArtifactsArgs),
    /// Find what agents were asked, did, read and wrote in all recorded runs
    ///
    /// An index has the words of all tapes; each call fills it for 10 seconds at most. What is left out is printed.
    Find(FindArgs),
    /// Show who called which tool, when, with which arguments and result, and who decided it
    Audit(AuditArgs),
    /// Show what runs cost, by day, connection, model, unit or run
    Costs(CostsArgs),
    /// Show who wrote a line: the commit, the run, the attempt, the call, and what the agent had read before
    Why(WhyArgs),
    /// Manage recorded runs
    Runs {
        /// Subcommand.
        #[command(subcommand)]
        command: RunsCommand,
    },
    /// Check that everything a run needs is present
    Doctor(DoctorArgs),
    /// Print a shell completion script
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands
    Man(ManArgs),
    /// Print the help of a command, or show a page of the guide
    #[command(after_help = help_topics())]
    Help(HelpArgs),
    /// Draw a recorded run as SVG after pressing keys
    #[command(hide = true)]
    Screenshot(ScreenshotArgs),
    /// Show the settings
    Config {
        /// Subcommand.
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

/// `help`.
#[derive(Clone, Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command (`runs export`), a topic, or `all` for the list of all commands
    #[arg(value_name = "COMMAND|TOPIC")]
    pub words: Vec<String>,
}

/// The commands that the help of the program shows, by what they are for.
const COMMAND_GROUPS: [(&str, &[&str]); 3] = [
    ("Work", &["run", "step", "review"]),
    ("Look", &["replay", "watch", "why"]),
    ("Set up", &["demo", "init", "doctor", "plan"]),
];

/// The command line with the help of the program in groups. It hides all commands from clap's list.
pub(super) fn with_command_groups(command: clap::Command) -> clap::Command {
    let line = |name: &&str| {
        let about = command
            .find_subcommand(name)
            .and_then(clap::Command::get_about);
        let about = about.map(ToString::to_string).unwrap_or_default();
        // What follows the colon is in the help of the command.
        let about = about.split(": ").next().unwrap_or_default();
        format!("  {name:<8}{about}")
    };
    let groups = COMMAND_GROUPS.map(|(title, names)| {
        let lines: Vec<String> = names.iter().map(line).collect();
        format!("{title}:\n{}", lines.join("\n"))
    });
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n\n\
        More: `{name} help all` lists every command, `{name}` alone shows the recorded runs.\n\n{{all-args}}",
        groups.join("\n\n"),
        name = command.get_name(),
    );
    let usage = format!("{} [OPTIONS] [COMMAND]", command.get_name());
    command
        .override_usage(usage)
        .help_template(template)
        .mut_subcommands(|subcommand| subcommand.hide(true))
}

/// The pages of the guide, one per line.
pub(super) fn help_topics() -> String {
    let width = PAGES
        .iter()
        .map(|page| page.topic.len())
        .max()
        .unwrap_or_default();
    let topics: Vec<String> = PAGES
        .iter()
        .map(|page| format!("  {:width$}  {}", page.topic, page.title()))
        .collect();
    format!("Topics:\n{}", topics.join("\n"))
}

/// `demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Play faster (2) or slower (0.5)
    #[arg(long, default_value_t = 1.0, value_name = "K")]
    pub speed: f64,
    /// Use this directory for the project; otherwise it is kept until the next demo
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Wait for a review of the changes before they become a commit
    #[arg(long)]
    pub review: bool,
}

/// `init`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory [default: --project-dir, else the current directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Check first that Claude Code is usable, with a request of one turn
    #[arg(long)]
    pub probe: bool,
}

/// Selects units.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectArgs {
    /// Connections [default: all]
    #[arg(value_name = "CONNECTION")]
    pub connections: Vec<String>,
    /// Only units whose key matches this pattern; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// All units, including those whose files have not changed
    #[arg(long)]
    pub full: bool,
    /// Units around any changed file, not only those that refer to it
    #[arg(long)]
    pub neighbours: bool,
    /// Also raw files that units left unread when they last succeeded
    #[arg(long)]
    pub unread: bool,
    /// Continues an earlier run.
    #[command(flatten)]
    pub resume: ResumeArgs,
}

/// Arguments of `plan`: what is planned, and whether repositories are fetched first.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PlanArgs {
    /// Selects units.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Fetch the repositories of connections first, as `run` does
    #[arg(long)]
    pub fetch: bool,
}

impl SelectArgs {
    /// True if no units are excluded.
    pub(crate) fn is_everything(&self) -> bool {
        self.only.is_empty() && self.resume.failed.is_none() && self.resume.failed_from.is_none()
    }
}

/// Continues an earlier run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ResumeArgs {
    /// Continue this run; units that succeeded there and have not changed are reused
    #[arg(long, value_name = "RUN")]
    pub resume_run: Option<String>,
    /// Only units that failed, ran out of turns or were stopped in this run [default: latest]
    #[arg(
        long, value_name = "RUN", num_args = 0..=1, require_equals = true, default_missing_value = "latest",
        conflicts_with = "resume_run"
    )]
    pub failed: Option<String>,
    /// Only units that need another attempt in this record of another machine: a file, or the address or id of an artifact or a
    /// run of GitHub Actions, which `gh` fetches
    #[arg(long, value_name = "RECORD", conflicts_with_all = ["resume_run", "failed", "only"])]
    pub failed_from: Option<String>,
}

/// `run`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Selects units.
    #[command(flatten)]
    pub select: SelectArgs,
    /// Texts to capture instead of the units of connections.
    #[command(flatten)]
    pub texts: TextArgs,
    /// Make each text a wiki page as it is, without an agent
    ///
    /// The page of a file has the name of the file, that of another text its first heading. Frontmatter of the text is kept. A page
    /// with another text is not replaced.
    #[arg(long)]
    pub verbatim: bool,
    /// Number of units that run concurrently [default: from ktx.yaml, 1 for texts]
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Also run units on this machine: ssh://USER@HOST:PORT?slots=N, of which only HOST is required; can be repeated
    ///
    /// `ssh` starts `ingestdeck worker` there, with your SSH configuration. The machine needs ingestdeck, git and Claude Code
    /// with its own login, and no project. `--concurrency 0` runs units on workers only.
    #[arg(long, value_name = "URL")]
    pub worker: Vec<SshWorker>,
    /// The NATS server where workers wait for runs.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Skip the reconcile step
    #[arg(long)]
    pub no_reconcile: bool,
    /// Wait for a review of the changes before they become a commit; without a screen, the run ends first
    #[arg(long, conflicts_with_all = ["text", "file"])]
    pub review: bool,
    /// Commit to this branch, which is created if it does not exist; files and the current branch stay as they are
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// What the agents should do differently than in an earlier run; a part of the prompt of each unit
    #[arg(long, value_name = "TEXT")]
    pub feedback: Option<String>,
    /// Run in the background: return when the run is planned; `attach` and `ctl` reach it
    #[arg(long)]
    pub detach: bool,
    /// Cost limit of the project for a day, in UTC: the run gets what is left of it
    #[arg(long, value_name = "USD")]
    pub max_day_budget_usd: Option<f64>,
    /// Repeat the recorded answers of this run with the tools, rules and validators of today; the arguments are patterns of units
    ///
    /// Claude Code runs without a login in a temporary clone, and nothing is written to the project. Where an answer of a tool
    /// differs from that in the record, the record ends: what a model would do then is not known.
    /// RUN may also be the directory of a fixture (`runs export --fixture`).
    #[arg(long, value_name = "RUN", conflicts_with_all = ["resume_run", "failed", "failed_from", "text", "file", "detach", "review", "branch", "feedback", "worker"])]
    pub rehearse: Option<String>,
    /// Wait for another ingest of the project to end, at most this long (10m, or none for no limit) [default: do not wait]
    #[arg(long, value_name = "DURATION", value_parser = attempt::time_limit)]
    pub lock_timeout: Option<TimeLimitSetting>,
    /// How attempts at units run.
    #[command(flatten)]
    pub attempt: AttemptArgs,
}

/// Texts to capture instead of the units of connections.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TextArgs {
    /// Capture this text in the wiki, and in the sources of CONNECTION if one is named; can be repeated
    #[arg(long, value_name = "TEXT")]
    pub text: Vec<String>,
    /// Capture the text in this file, `-` for stdin; can be repeated
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
}

/// `step`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StepArgs {
    /// Key of the unit, as printed by `plan`
    #[arg(required_unless_present_any = ["text", "file"])]
    pub unit: Option<String>,
    /// A text to capture instead of a unit.
    #[command(flatten)]
    pub texts: TextArgs,
    /// How attempts at units run.
    #[command(flatten)]
    pub attempt: AttemptArgs,
}

/// `attach`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AttachArgs {
    /// Run id or a unique part of it, or the id of a background session [default: the active run]
    pub run: Option<String>,
    /// Exit after this step; for benchmarks
    #[arg(long, hide = true, value_enum)]
    pub until: Option<MeasuredStep>,
}

/// `watch`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Run id (or a unique part of it), `latest`, or the id or file of a running Claude Code session
    #[arg(default_value = "latest")]
    pub run: String,
}

/// `ctl`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CtlArgs {
    /// Run id or a unique part of it [default: the active run]
    #[arg(long, value_name = "RUN", global = true)]
    pub run: Option<String>,
    /// Print JSON; the same as --ui json
    #[arg(long, global = true)]
    pub json: bool,
    /// Why: the record of the run keeps it, and the model receives it when a call is denied
    #[arg(long, value_name = "TEXT", global = true)]
    pub reason: Option<String>,
    /// Command for the run
    #[command(subcommand)]
    pub verb: CtlVerb,
}

/// Verbs of `ctl`. Those that change the run are answered by its engine.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CtlVerb {
    /// Show the counts, the cost and the calls that wait for approval
    Status {
        /// Include reasons and texts, which agents may have written
        #[arg(long)]
        content: bool,
    },
    /// Show every unit with its state
    Units {
        /// Include reasons, which may quote agents
        #[arg(long)]
        content: bool,
    },
    /// Show the tool calls that wait for approval or for an answer
    Approvals {
        /// Include the questions, options and plans, which agents and tool servers have written
        #[arg(long)]
        content: bool,
    },
    /// Show the workers, with their slots and accounts
    Workers,
    /// Start a worker over SSH, too
    AddWorker {
        /// The machine with options, as for `run --worker`
        #[arg(value_name = "URL")]
        worker: String,
    },
    /// Start nothing more on a worker; its running attempts finish
    DrainWorker {
        /// Name of the worker, as printed by `ctl workers`
        worker: String,
    },
    /// Start units again on a worker that was drained, also after a fault
    UndrainWorker {
        /// Name of the worker, as printed by `ctl workers`
        worker: String,
    },
    /// Start nothing more on a worker, and repeat its running attempts elsewhere
    StopWorker {
        /// Name of the worker, as printed by `ctl workers`
        worker: String,
    },
    /// Print the events of the run as JSON, without texts of agents
    Events {
        /// Continue until the run ends
        #[arg(long)]
        follow: bool,
        /// Include texts, arguments and results
        #[arg(long)]
        content: bool,
    },
    /// Retry a unit
    Retry {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Feedback for the model
        #[arg(long, value_name = "TEXT")]
        feedback: Option<String>,
        /// Another model
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// Another maximum number of turns
        #[arg(long, value_name = "N")]
        turns: Option<u32>,
    },
    /// Retry all unfinished units; if there are none, save again
    RetryFailed,
    /// Stop a unit; a second time kills it
    Stop {
        /// Key of the unit, as printed by `plan`
        unit: String,
    },
    /// Stop all units and start no more
    StopAll {
        /// Kill the agents instead of interrupting them
        #[arg(long)]
        kill: bool,
    },
    /// Start no more units and let the running ones finish
    Drain,
    /// Do not wait for the usage limit to reset
    LiftLimit,
    /// Start no more units, and hold the running ones at their next tool call
    Pause,
    /// End a pause: units start again, and the calls that it held are made
    Resume,
    /// Change a limit of the run
    Set {
        /// The limit to change
        #[arg(value_enum)]
        limit: LimitName,
        /// The new value: a number (+1 and -1 change the concurrency), strict or recoverable, a duration, or `none`
        #[arg(allow_hyphen_values = true, value_name = "VALUE")]
        value: String,
    },
    /// Hold a unit at its next tool call
    Hold {
        /// Key of the unit, as printed by `plan`
        unit: String,
    },
    /// Let a unit run until one of its calls meets a condition; that call waits
    RunUntil {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Stop at the first call after a failed one
        #[arg(long)]
        failure: bool,
        /// Stop at a call of this tool
        #[arg(long, value_name = "GLOB")]
        tool: Vec<String>,
        /// Stop at a call that names a path
        #[arg(long, value_name = "GLOB")]
        path: Vec<String>,
        /// Stop at the first call after the run has cost this much
        #[arg(long, value_name = "USD")]
        cost: Option<f64>,
    },
    /// Send a message to the agent of a running unit; it arrives with the result of its current or next call
    Say {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Text of the message, at most 20,000 characters
        text: String,
    },
    /// Use the result of a unit that is out of turns, if the run waits for a decision about it
    Accept {
        /// Key of the unit, as printed by `plan`
        unit: String,
    },
    /// Hold a unit at every Nth call
    Leash {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Number of calls after which the unit waits, 1 or more
        calls: u32,
    },
    /// Release a held unit; its waiting calls are allowed
    Release {
        /// Key of the unit, as printed by `plan`
        unit: String,
    },
    /// Allow the tool call of a held unit that has waited longest
    Allow {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Another call that waits, by its id
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Answer the questions of a waiting call, as printed by `ctl approvals --content`
    Answer {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Number of an option, from 1; for a later question with its number first, such as 2.1
        #[arg(long, value_name = "N")]
        choose: Vec<String>,
        /// Own words; each one answers the next question without an option
        #[arg(long, value_name = "TEXT")]
        text: Vec<String>,
        /// Another call that waits, by its id
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Use another model in a session, for this turn and later ones
    Model {
        /// Key of the unit: `session`
        unit: String,
        /// Name of the model, such as opus
        model: String,
    },
    /// Use another permission mode in a session, for this turn and later ones
    PermissionMode {
        /// Key of the unit: `session`
        unit: String,
        /// Name of the mode, such as plan
        mode: String,
    },
    /// Report how full the context of a session is, as a message of the run
    Context {
        /// Key of the unit: `session`
        unit: String,
    },
    /// Report the usage windows of the account of a session, as a message of the run
    Usage {
        /// Key of the unit: `session`
        unit: String,
    },
    /// Stop a background task of a session
    StopTask {
        /// Key of the unit: `session`
        unit: String,
        /// Id of the task
        task: String,
    },
    /// Give a tool server that asks for input no answer, without refusing it
    Cancel {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Another call that waits, by its id
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Allow a waiting tool call with other arguments
    Edit {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// The arguments, a JSON object
        #[arg(long, value_name = "JSON")]
        input: String,
        /// Another call that waits, by its id
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Deny a waiting tool call; needs --reason
    Deny {
        /// Key of the unit, as printed by `plan`
        unit: String,
        /// Another call that waits, by its id
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
}

/// A limit that `ctl set` changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LimitName {
    /// Number of units that run at the same time
    Concurrency,
    /// Cost limit of the run in USD, or `none`
    RunBudget,
    /// Turn limit of attempts that start later
    Turns,
    /// Number of automatic retries of a unit
    Retries,
    /// Which failed tool calls fail a unit: strict or recoverable
    ToolFailures,
    /// Time without output after which an attempt ends (90s, 5m), or `none`
    SilenceTimeout,
}

/// `replay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayArgs {
    /// File, directory with sessions and other records, run id (or a unique part of it), `latest`, `demo` for the last
    /// demo, or `-` for stdin
    pub what: String,
    /// Start paused at the first entry
    #[arg(long)]
    pub paused: bool,
    /// Start paused with the action of this entry open, a call with its result; `why` prints the numbers of entries
    #[arg(long, value_name = "N", conflicts_with_all = ["paused", "speed"])]
    pub entry: Option<u64>,
    /// Play at K times the recorded speed; `max` plays entry by entry as fast as possible [default: show everything immediately]
    #[arg(long, value_name = "K")]
    pub speed: Option<String>,
    /// Exit after this step; for benchmarks
    #[arg(long, hide = true, value_enum)]
    pub until: Option<MeasuredStep>,
    /// The home screen opened it, and is shown again after it.
    #[arg(skip)]
    pub is_from_home: bool,
}

impl ReplayArgs {
    /// The number of entries after which the screen starts paused.
    pub(crate) fn paused_after(&self) -> Option<u64> {
        self.entry
            .map(|entry| entry.saturating_add(1))
            .or(self.paused.then_some(0))
    }
}

/// Step after which a benchmark ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MeasuredStep {
    /// The first frame is on the screen.
    FirstFrame,
    /// Every line is indexed.
    Indexed,
    /// Everything is folded.
    End,
}

/// `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell whose completions are printed
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page per command to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `screenshot`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ScreenshotArgs {
    /// File, run id or `latest`
    pub what: String,
    /// File to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Columns and rows
    #[arg(long, default_value = "120x36", value_name = "WxH")]
    pub size: String,
    /// Keys to press first, in the notation of `[keys]`
    #[arg(long, default_value = "")]
    pub keys: String,
    /// Name of a theme, or the path of a theme file
    #[arg(long, default_value = "dark")]
    pub theme: String,
}

/// `session`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SessionArgs {
    /// Continue this session
    #[arg(long, value_name = "ID")]
    pub resume: Option<String>,
    /// Continue it as a new session
    #[arg(long, requires = "resume")]
    pub fork_session: bool,
    /// Model [default: from the settings]
    #[arg(long)]
    pub model: Option<String>,
    /// Section of the settings: `[claude]` or `[agent]`
    #[arg(long, value_enum, default_value_t = SessionProfile::Claude)]
    pub profile: SessionProfile,
    /// Work in a new git worktree instead of the current directory
    #[arg(long)]
    pub worktree: bool,
    /// The prompt
    #[arg(last = true, required = true)]
    pub prompt: Vec<String>,
}

/// Settings of a plain session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionProfile {
    /// `[claude]`.
    Claude,
    /// `[agent]`.
    Agent,
}

/// `mcp`.
#[derive(Clone, Debug, Args)]
pub(crate) struct McpArgs {
    /// Serve the raw files of this unit (its key as printed by `plan`) [default: none]
    #[arg(long, value_name = "UNIT", conflicts_with = "connection")]
    pub unit: Option<String>,
    /// Serve the raw files of all units of this connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
    /// Write pages and sources to this directory [default: write nothing]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// `report`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Run id (or a unique part of it), `latest`, `demo`, or a file that `replay` opens
    #[arg(default_value = "latest")]
    pub run: String,
    /// Format [default: md, or json with --ui json]
    #[arg(long, value_enum)]
    pub format: Option<ReportFormat>,
    /// Output file; `-` is stdout [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only this connection
    #[arg(long, value_name = "CONNECTION")]
    pub connection: Option<String>,
}

/// `why`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WhyArgs {
    /// A file of the project, and the line or lines: FILE, FILE:LINE or FILE:LINE-LINE
    #[arg(value_name = "FILE[:LINE[-LINE]]")]
    pub place: String,
}

/// `runs export`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExportArgs {
    /// Run id (or a unique part of it) or `latest`
    #[arg(default_value = "latest")]
    pub run: String,
    /// Format of the exported file
    #[arg(long, value_enum, default_value_t = ExportFormat::Tape)]
    pub format: ExportFormat,
    /// Output file; `-` is stdout [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// With --format otlp: send the spans to this collector instead of printing them
    #[arg(long, value_name = "URL", conflicts_with = "out")]
    pub endpoint: Option<String>,
    /// With --format otlp: include arguments and results of tool calls
    #[arg(long)]
    pub content: bool,
    /// Write a failed unit as a fixture to this new directory: its files, the recorded answers and its verdict
    ///
    /// `run --rehearse DIR` plays it on any machine, without a login.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "endpoint", "content"])]
    pub fixture: Option<PathBuf>,
    /// With --fixture: the unit, if the run has several that failed
    #[arg(long, value_name = "UNIT", requires = "fixture")]
    pub unit: Option<String>,
}

/// Format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A tape that `replay` opens.
    Tape,
    /// KTX's memory-flow replay, one object per connection and line.
    MemoryFlow,
    /// KTX's ingest trace at the finest level.
    Trace,
    /// OpenTelemetry spans, one OTLP request per line.
    Otlp,
}

/// `diff`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier run: id, `latest`, `demo`, or a file that `replay` opens
    pub before: String,
    /// The later run [default: latest]
    pub after: Option<String>,
    /// Also list units that differ only in cost and time
    #[arg(long)]
    pub all: bool,
}

/// `runs`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first, or those that fulfil conditions
    List(RunsListArgs),
    /// Show one run
    Show {
        /// Run id (or a unique part of it) or `latest`
        #[arg(default_value = "latest")]
        run: String,
    },
    /// Export a run to share it, with known kinds of secrets masked
    Export(ExportArgs),
    /// Run a read-only SQL query on the index of all runs
    Query(QueryArgs),
    /// Delete old runs, keeping those needed for incremental planning
    Prune(PruneArgs),
    /// Rebuild the index from the tapes
    Reindex,
}

/// `runs prune`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PruneArgs {
    /// Number of most recent runs to keep
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub keep: usize,
    /// Delete only runs older than this: 30d, 12h, "2 weeks"
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub older_than: Option<jiff::Span>,
    /// List the runs that would be deleted without deleting them
    #[arg(long)]
    pub dry_run: bool,
}

/// Parses an age. The library explains its own syntax, so its message is replaced.
fn parse_age(text: &str) -> Result<jiff::Span, &'static str> {
    text.parse()
        .map_err(|_| "expected an age such as 30d, 12h or \"2 weeks\"")
}

/// `config`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting and its origin
    Show,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn cli_definition_passes_clap_debug_assert() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_prompt_may_look_like_flags() {
        let cli = Cli::try_parse_from(["ingestdeck", "session", "--", "--model", "opus"]).unwrap();
        assert!(
            matches!(cli.command, Some(CliCommand::Session(session)) if session.prompt == ["--model", "opus"])
        );
    }
}
