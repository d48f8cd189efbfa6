//! `worker keys`, `worker gc` and `worker install`: the logins of a pool, what its runs have left on the server, and the
//! program of its machines.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory that the user names for the keys; files are created, never overwritten, but for the list of users"
)]

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::{
    args::{WorkerGcArgs, WorkerInstallArgs, WorkerKeysArgs},
    exit::{CliError, Exit},
    output, playback_output,
};
use ingestdeck_agent::process;
use ingestdeck_core::{diagnostic::Problem, text::pluralize};
use ingestdeck_engine::{
    self as engine,
    launch::runtime,
    worker::{
        connection::PROGRAM_VERSION,
        nats::{
            DeletedGarbage, SubjectName,
            pool_users::{self, ENGINE, PoolUser},
        },
        protocol::WorkerJoin,
    },
};

/// Name of the configuration that a server is started with.
const SERVER_FILE: &str = "nats.conf";
/// Name of its part with the users.
const USERS_FILE: &str = "users.conf";

/// Writes the logins of an engine and of workers, and the configuration of a server that knows them. Logins that exist
/// are kept.
///
/// # Errors
/// If a name is reserved, or a file cannot be read or written.
pub(crate) fn keys(args: &WorkerKeysArgs) -> Result<Exit, CliError> {
    let engine: SubjectName = ENGINE.parse().map_err(|problem| failed(&problem))?;
    if args.workers.contains(&engine) {
        return Err(
            CliError::usage(format!("`{ENGINE}` is the name of the user of engines"))
                .with_help("name the worker otherwise"),
        );
    }
    let dir = &args.dir;
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(dir);
    made.map_err(|error| unwritable(dir, &error))?;
    let mut names = known_workers(dir)?;
    for name in &args.workers {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut users = Vec::new();
    for name in std::iter::once(engine).chain(names) {
        let path = dir.join(format!("{name}.nk"));
        let key = match fs::read_to_string(&path) {
            Ok(seed) => pool_users::public_key(&seed).map_err(|problem| {
                failed(&Problem::new(format!("{}: {problem}", path.display())))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (seed, key) = pool_users::new_login().map_err(|problem| failed(&problem))?;
                write_new(&path, &format!("{seed}\n"))?;
                key
            }
            Err(error) => return Err(unwritable(&path, &error)),
        };
        users.push(PoolUser { name, key });
    }
    let path = dir.join(USERS_FILE);
    // It is public, and made from the keys.
    fs::write(&path, pool_users::server_users(&args.pool, &users))
        .map_err(|error| unwritable(&path, &error))?;
    let path = dir.join(SERVER_FILE);
    if !path.exists() {
        write_new(&path, &server_configuration())?;
    }
    let pool = match args.pool == SubjectName::default() {
        true => String::new(),
        false => format!(" --pool {}", args.pool),
    };
    print(&format!(
        "{} in {dir}\n\n\
         server   nats-server -c {server}\n\
         engine   ingestdeck run --nats URL --nats-nkey {dir}/{ENGINE}.nk{pool}\n\
         worker   ingestdeck worker --nats URL --nats-nkey NAME.nk --name NAME{pool}\n",
        pluralize(users.len(), "login"),
        dir = dir.display(),
        server = path.display(),
    ))
}

pub(super) fn print(text: &str) -> Result<Exit, CliError> {
    let printed = output::stdout().write_all(text.as_bytes());
    printed.map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// A server on this machine; for others, it needs an address and a certificate.
fn server_configuration() -> String {
    format!(
        "listen: \"127.0.0.1:4222\"\n\
         # For other machines: listen to their network, and encrypt it.\n\
         # listen: \"0.0.0.0:4222\"\n\
         # tls {{ cert_file: \"server.pem\", key_file: \"server.key\" }}\n\
         jetstream {{ store_dir: \"jetstream\", max_file_store: 16G }}\n\
         include \"{USERS_FILE}\"\n"
    )
}

/// The workers that have a login in `dir`.
fn known_workers(dir: &Path) -> Result<Vec<SubjectName>, CliError> {
    let entries = fs::read_dir(dir).map_err(|error| unwritable(dir, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| unwritable(dir, &error))?.file_name();
        let name = name.to_string_lossy();
        let name = name.strip_suffix(".nk").filter(|name| *name != ENGINE);
        names.extend(name.and_then(|name| name.parse().ok()));
    }
    names.sort_by(|a: &SubjectName, b: &SubjectName| a.as_str().cmp(b.as_str()));
    Ok(names)
}

/// Writes a file that does not exist, for its owner only.
fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    failed(&Problem::new(format!(
        "cannot use {}: {error}",
        path.display()
    )))
}

fn failed(problem: &Problem) -> CliError {
    CliError::from_error(Exit::Setup, problem)
}

/// Deletes what runs that are over have left on the server.
///
/// # Errors
/// If the server cannot be used.
pub(crate) fn gc(args: &WorkerGcArgs) -> Result<Exit, CliError> {
    let server = args.nats.server().ok_or_else(|| {
        CliError::usage("no NATS server is named").with_help("name it with --nats")
    })?;
    let runtime = runtime(1)?;
    let deleted = runtime.block_on(server.collect_garbage(args.older_than));
    let DeletedGarbage {
        messages,
        leases,
        files,
        active_runs,
    } = deleted.map_err(|problem| failed(&problem))?;
    print(&format!(
        "pool {}: deleted {}, {} and {}; {} active\n",
        server.pool,
        pluralize(messages, "message"),
        pluralize(leases, "lease"),
        pluralize(files, "file"),
        pluralize(active_runs, "run"),
    ))
}

/// Copies this program to another machine.
pub(super) fn install(args: &WorkerInstallArgs) -> Result<Exit, CliError> {
    let program = std::env::current_exe().map_err(CliError::internal)?;
    engine::prepare_worker_process();
    let installed = runtime(1)?.block_on(args.worker.install(&program));
    process::kill_all();
    let (_, join) = installed.map_err(|problem| CliError::from_error(Exit::Setup, &problem))?;
    let WorkerJoin {
        agent_release,
        account,
        ..
    } = join;
    let worker = &args.worker;
    print(&format!(
        "{worker}: ~/.local/bin/ingestdeck {PROGRAM_VERSION}, claude {agent_release}, account {account}\n\
         `ingestdeck run --worker {worker}` uses it\n"
    ))
}
