//! The engine of a run as a process without a terminal: how a client starts it, and how it hands the run over.
//!
//! The client starts this program again with the same arguments and [`ENGINE_FLAG`], and writes one line of JSON to its
//! stdin: the texts of the run, which only one process can read. Until the run is planned, the engine's stderr reaches the terminal through the client. Then the engine writes one line of JSON to stdout, and from
//! there on it writes to a log only. It stops the run if the client ends before it confirms that line.

#![expect(
    clippy::disallowed_methods,
    reason = "a pipe to the client receives one line of JSON"
)]

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use nix::{errno::Errno, unistd};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{
    args::{ENGINE_FLAG, GlobalArgs},
    exit::{CliError, Exit, SIGINT},
    output,
};
use ingestdeck_engine::launch::LiveRun;
use ingestdeck_ingest::text_input::TextInputs;
use ingestdeck_os::scoped_dir::ScopedDir;

/// File name of the engine's log, in the directory of the run.
const LOG_FILE: &str = "engine.log";
/// The line by which a client confirms that it has received the launch record.
const CONFIRMATION: &[u8] = b"confirmed\n";
const MAX_CONFIRMATION_BYTES: u64 = 64;
/// Most bytes of the line with the texts of a run.
const MAX_TEXTS_BYTES: u64 = 8 << 20;
/// How long the last messages of the engine may take to arrive after the launch record.
const MESSAGES_TIMEOUT: Duration = Duration::from_secs(1);

/// Where a run is, for its clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    /// Id of the run.
    pub run: String,
    /// Process id of the engine.
    pub pid: u32,
    pub socket: PathBuf,
    pub tape: PathBuf,
    /// File with the messages of the engine.
    pub log: PathBuf,
    /// Sentences for the screen when it opens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// The result of starting an engine.
#[derive(Debug)]
pub(crate) enum EngineStart {
    /// The run is planned, and the engine waits for the confirmation.
    Launched(Box<EngineProcess>),
    /// The engine ended without a run; it has printed why.
    Ended(Exit),
}

/// A started engine, as its client sees it.
#[derive(Debug)]
pub(crate) struct EngineProcess {
    pub record: LaunchRecord,
    child: Child,
    stdin: Option<ChildStdin>,
}

/// Starts the engine for the arguments of this process, hands it the texts of the run, and waits until
/// its run is planned.
///
/// # Errors
/// If it cannot be started, or breaks off.
pub(crate) fn start(
    global: &GlobalArgs,
    texts: Option<&TextInputs>,
) -> Result<EngineStart, CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::failed("cannot start the engine of the run").with_cause(error)
    };
    let exe = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(exe);
    command.arg(ENGINE_FLAG).args(&global.words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed(&"it has no pipes"));
    };
    let (forwarded, is_forwarded) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        forward_messages(stderr);
        drop(forwarded);
    });
    let input = serde_json::to_string(&texts).map_err(|error| failed(&error))?;
    // An engine that has ended cannot read; it has printed why.
    let _ = writeln!(stdin, "{input}");
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(|error| failed(&error))?;
    // Child processes of the engine may still hold its stderr.
    let _ = is_forwarded.recv_timeout(MESSAGES_TIMEOUT);
    if line.is_empty() {
        drop(stdin);
        let status = child.wait().map_err(|error| failed(&error))?;
        return exit_of(status)
            .map(EngineStart::Ended)
            .ok_or_else(|| failed(&format!("it ended with {status}")));
    }
    let record = serde_json::from_str(&line).map_err(|error| failed(&error))?;
    Ok(EngineStart::Launched(Box::new(EngineProcess {
        record,
        child,
        stdin: Some(stdin),
    })))
}

fn exit_of(status: ExitStatus) -> Option<Exit> {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .and_then(Exit::from_code)
}

/// Copies the messages of the engine to stderr, line by line.
fn forward_messages(from: impl io::Read) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|length| length > 0)
    {
        output::print_stderr(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
}

impl EngineProcess {
    /// Lets the run continue without this process.
    pub(crate) fn confirm(&mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            // If the engine is gone, its socket is closed, which the client notices.
            let _ = stdin.write_all(CONFIRMATION);
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) {
        // Only this process can wait for it.
        let _ = self.child.wait();
    }
}

/// True once the run is about to be recorded: from then on, it ends in order.
static IS_RECORDED: AtomicBool = AtomicBool::new(false);
/// Reports whether the client has confirmed the launch record.
static CONFIRMED: Mutex<Option<oneshot::Receiver<bool>>> = Mutex::new(None);

/// Provides the texts that the client sent.
static TEXTS: Mutex<Option<mpsc::Receiver<Option<TextInputs>>>> = Mutex::new(None);

/// The texts of the run, from the client of this engine.
///
/// # Errors
/// If the client sent none.
pub(crate) fn take_texts() -> Result<TextInputs, CliError> {
    let received = TEXTS.lock().take();
    let texts = received.and_then(|texts| texts.recv().ok()).flatten();
    texts.ok_or_else(|| CliError::failed("the client of the engine sent no texts"))
}

/// Makes this process an engine: it leaves the terminal, and ends with its client until the run is planned, since Ctrl-C
/// reaches only the client.
///
/// # Errors
/// If the system does not allow it.
pub(crate) fn begin() -> Result<(), CliError> {
    match unistd::setsid() {
        // A group leader has its own session or was started by a shell.
        Ok(_) | Err(Errno::EPERM) => {}
        Err(error) => return Err(CliError::failed("cannot leave the terminal").with_cause(error)),
    }
    let (confirm, confirmed) = oneshot::channel();
    *CONFIRMED.lock() = Some(confirmed);
    let (send_texts, texts) = mpsc::channel();
    *TEXTS.lock() = Some(texts);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut line = String::new();
        let is_input_read = io::Read::by_ref(&mut stdin)
            .take(MAX_TEXTS_BYTES)
            .read_line(&mut line)
            .is_ok();
        if let (true, Ok(texts)) = (is_input_read, serde_json::from_str(&line)) {
            // Only commands with texts receive them.
            let _ = send_texts.send(texts);
        }
        drop(send_texts);
        let mut received = Vec::new();
        let is_read = stdin
            .take(MAX_CONFIRMATION_BYTES)
            .read_to_end(&mut received)
            .is_ok();
        let is_confirmed = is_read && received == CONFIRMATION;
        if !is_confirmed && !IS_RECORDED.load(Ordering::SeqCst) {
            std::process::exit(Exit::Signal(SIGINT).code().into());
        }
        // The receiver is gone if the run has ended.
        let _ = confirm.send(is_confirmed);
    });
    Ok(())
}

/// Lets the run end in order even if the client ends before it receives the launch record.
pub(crate) fn begin_run() {
    IS_RECORDED.store(true, Ordering::SeqCst);
}

/// Hands the run over to the client that started this engine: prints the launch record, and directs later messages to
/// the log. The result resolves to false if the client ended before it confirmed.
///
/// # Errors
/// If clients cannot connect, or the log cannot be created.
pub(crate) fn hand_over(
    run: &LiveRun,
    notices: &[String],
) -> Result<impl Future<Output = bool> + use<>, CliError> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::failed("cannot start the engine of the run")
            .with_cause(error)
            .with_help("use --ui lines")
    };
    let socket = run.socket.as_ref().map_err(|error| {
        failed(error).with_help(
            "set XDG_RUNTIME_DIR to a short path of a private directory, or use --ui lines",
        )
    })?;
    let dir = run.tape.parent().unwrap_or(Path::new("/"));
    let log = ScopedDir::open(dir)
        .and_then(|dir| dir.create_new(LOG_FILE))
        .map_err(|error| failed(&error))?;
    let record = LaunchRecord {
        run: run.id.to_string(),
        pid: std::process::id(),
        socket: socket.clone(),
        tape: run.tape.clone(),
        log: dir.join(LOG_FILE),
        notices: notices.to_vec(),
    };
    let line = serde_json::to_string(&record).map_err(|error| failed(&error))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|error| failed(&error))?;
    let redirect = || -> io::Result<()> {
        unistd::dup2_stderr(&log)?;
        let mut stdout = output::raw_stdout();
        // A client that is gone does not confirm the record, which stops the run in order.
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        unistd::dup2_stdout(&null)?;
        Ok(())
    };
    redirect().map_err(|error| failed(&error))?;
    let confirmed = CONFIRMED.lock().take();
    Ok(async move {
        match confirmed {
            Some(confirmed) => confirmed.await.unwrap_or(false),
            None => false,
        }
    })
}

/// Removes the log of an engine that had nothing to report.
pub(crate) fn remove_empty_log(tape: &Path) {
    let Some(dir) = tape.parent() else { return };
    let removed = ScopedDir::open(dir).and_then(|dir| match dir.open_file(LOG_FILE)? {
        (_, 0) => dir.remove(LOG_FILE),
        _ => Ok(false),
    });
    if let Err(error) = removed {
        tracing::debug!(%error, "an empty log remains");
    }
}
