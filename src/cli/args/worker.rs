//! Arguments of workers, of the NATS server where they meet engines, and of the checks of both.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use ingestdeck_core::{
    config::value::{self, DURATION_SYNTAX},
    diagnostic::Problem,
};
use ingestdeck_engine::worker::{
    nats::{NatsAddress, NatsServer, NkeySeed, SubjectName},
    ssh::SshWorker,
};

/// Arguments of `worker`, on any machine. It serves where a run uses workers.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_arg("address", |arg| {
        arg.required_unless_present("describe")
            .help("Serve the runs that use this NATS server: nats://HOST:PORT, or tls://HOST:PORT")
    }),
    mut_arg("insecure", |arg| arg.help("Serve at the NATS server even if it requires no login").long_help(
        "Serve at the NATS server even if it requires no login\n\nEach client of such a server can read prompts and files, \
         act as a worker, and act as the engine of a run."
    ))
)]
pub(crate) struct WorkerArgs {
    /// What to do instead of serving runs.
    #[command(subcommand)]
    pub command: Option<PoolCommand>,
    /// Read the login from stdin, and end with it, as `run --worker ssh://…` does through ssh
    #[arg(long, requires_all = ["address", "name"], conflicts_with_all = ["credentials", "nkey"])]
    pub session: bool,
    /// Print what the worker offers, as JSON, and end
    #[arg(long, conflicts_with = "session")]
    pub describe: bool,
    /// The NATS server where runs are announced.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Number of attempts that run concurrently
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub slots: u32,
    /// Name of the worker at the NATS server, as its key has it [default: a new one]
    #[arg(long, value_name = "NAME", requires = "address")]
    pub name: Option<SubjectName>,
    /// How long agents may work without the engine of their run, whose results then wait at the NATS server
    #[arg(long, value_name = "DURATION", requires = "address", default_value = "30m", value_parser = grace)]
    pub grace: Duration,
    /// Name of the account whose usage limits apply [default: as Claude Code reports it]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
}

/// Subcommands of `worker`, for the administrator of the NATS server.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Write logins for an engine and for workers, and the configuration of a NATS server that knows them
    Keys(WorkerKeysArgs),
    /// Copy this program to a machine, and check what it needs there
    Install(WorkerInstallArgs),
    /// Delete what runs that are over have left at the NATS server; it expires by itself after a week
    Gc(WorkerGcArgs),
}

/// Arguments of `worker keys`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerKeysArgs {
    /// Directory for the files
    pub dir: PathBuf,
    /// Names of workers to add; logins that exist are kept
    #[arg(value_name = "NAME")]
    pub workers: Vec<SubjectName>,
    /// The pool of workers at the NATS server
    #[arg(long, value_name = "NAME", default_value_t)]
    pub pool: SubjectName,
}

/// Arguments of `worker install`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerInstallArgs {
    /// The machine with options, as for `run --worker`
    #[arg(value_name = "URL")]
    pub worker: SshWorker,
}

/// Arguments of `worker gc`.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("address", |arg| arg.help("The NATS server: nats://HOST:PORT, or tls://HOST:PORT")))]
pub(crate) struct WorkerGcArgs {
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Keep what is younger: a run that was killed can still be resumed with it
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = grace)]
    pub older_than: Duration,
}

fn grace(text: &str) -> Result<Duration, String> {
    value::parse_duration(text).ok_or_else(|| format!("not a {DURATION_SYNTAX}"))
}

/// A NATS server, and the login for it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NatsArgs {
    /// Use the workers at this NATS server: nats://HOST:PORT, or tls://HOST:PORT
    #[arg(
        long = "nats",
        value_name = "URL",
        env = "INGESTDECK_NATS_URL",
        hide_env_values = true
    )]
    pub address: Option<NatsAddress>,
    /// Credentials file for the NATS server
    #[arg(long = "nats-creds", value_name = "FILE", requires = "address")]
    pub credentials: Option<PathBuf>,
    /// File with the nkey seed for the NATS server
    #[arg(long = "nats-nkey", value_name = "FILE", requires = "address")]
    pub nkey: Option<PathBuf>,
    /// Certificates of the authorities that sign the certificate of the NATS server
    #[arg(long = "nats-ca", value_name = "FILE", requires = "address")]
    pub root_certificates: Option<PathBuf>,
    /// The pool of workers at the NATS server
    #[arg(long, value_name = "NAME", requires = "address", default_value_t)]
    pub pool: SubjectName,
    /// Use the NATS server even if it requires no login
    ///
    /// Each client of such a server can read prompts and files, act as a worker, and act as the engine of a run.
    #[arg(long, requires = "address")]
    pub insecure: bool,
}

impl NatsArgs {
    /// The server, if one is named.
    pub(crate) fn server(&self) -> Option<NatsServer> {
        let Self {
            address,
            credentials,
            nkey,
            root_certificates,
            pool,
            insecure,
        } = self.clone();
        Some(NatsServer {
            address: address?,
            credentials,
            nkey: nkey.map(NkeySeed::File),
            root_certificates,
            pool,
            allows_open: insecure,
        })
    }

    /// The warning about a login that other users of the machine can see.
    pub(crate) fn warning(&self) -> Option<Problem> {
        self.server().filter(NatsServer::exposes_login).map(|_| {
            Problem::new("the login in --nats is visible to other users of this machine, for example in `ps`")
                .with_help("set INGESTDECK_NATS_URL, or use --nats-creds or --nats-nkey")
        })
    }
}

/// Arguments of `doctor`, for this machine and for workers.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Also send a one-turn request to check sign-in, credit, limit and model
    #[arg(long)]
    pub probe: bool,
    /// Also ask GitHub, or URL, for a newer release
    #[arg(long, value_name = "URL", require_equals = true)]
    pub updates: Option<Option<String>>,
    /// Also check this worker, as `run --worker` would use it; can be repeated
    #[arg(long, value_name = "URL")]
    pub worker: Vec<SshWorker>,
    /// A NATS server to check, too.
    #[command(flatten)]
    pub nats: NatsArgs,
}
