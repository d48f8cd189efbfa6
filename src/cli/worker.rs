//! `worker`: runs attempts for the engine of a run on another machine.

use std::sync::Arc;

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{
    args::{GlobalArgs, WorkerArgs},
    doctor,
    exit::{self, CliError, Exit},
    launch, playback_output, project, settings,
};
use crate::{
    agent::{claude::ClaudeCode, process, session_lock::SessionLocks},
    config::paths::UserDirs,
    diagnostic::Problem,
    engine::{
        self,
        launch::runtime,
        worker::{
            connection::PROGRAM_VERSION,
            protocol::{PROTOCOL_VERSION, WorkerJoin},
            service::{self, EngineConnection, ServiceEnd, WorkerSetup},
            stdio,
            workspace::WorkerMachine,
        },
    },
};

/// Capacity of the queue of messages of the engine.
const QUEUE_CAPACITY: usize = 64;

/// Serves an engine on stdin and stdout until its run ends.
///
/// # Errors
/// If Claude Code cannot be used here, the engine refuses the worker, or the connection is lost.
pub(crate) fn worker(global: &GlobalArgs, args: &WorkerArgs) -> Result<Exit, CliError> {
    let config = settings::load(global)?;
    let claude = launch::find_claude(global)?;
    let found = doctor::preflight(&claude, &config.claude.pass_env, false, None)?;
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "worker".to_owned());
    let account = args.account.clone().or_else(|| found.account());
    let join = WorkerJoin {
        protocol: PROTOCOL_VERSION,
        program: PROGRAM_VERSION.to_owned(),
        agent_release: found.release().map(|release| release.to_string()).unwrap_or_default(),
        slots: args.slots,
        // A login without a name belongs to this machine only.
        account: account.unwrap_or_else(|| format!("login of {host}")),
        host,
        clock_ms: 0,
    };
    let locks = UserDirs::from_environment().locks();
    let locks = locks.ok_or_else(|| {
        CliError::from_error(Exit::Setup, &Problem::new("there is no directory for locks").with_help("set HOME"))
    })?;
    let allowed = settings::allowed_paths(global)?;
    allowed.warnings.iter().for_each(exit::print_warning);
    let machine = WorkerMachine {
        allowed_paths: allowed.allowed,
        settings_file: allowed.file,
        sql_workers: project::sql_workers(),
    };
    let setup =
        WorkerSetup { join, agent: Arc::new(ClaudeCode { exe: claude }), machine, locks: SessionLocks::new(locks) };
    engine::prepare_worker_process();
    let runtime = runtime(2)?;
    let end = runtime.block_on(serve_stdio(setup))?;
    // No child process may outlive this process.
    process::kill_all();
    // Do not wait for the reader of stdin.
    runtime.shutdown_background();
    match end {
        ServiceEnd::Done => Ok(Exit::Ok),
        ServiceEnd::Refused(reason) => Err(CliError::new(Exit::Setup, reason)),
        ServiceEnd::EngineLost(reason) => {
            playback_output::print_stderr(&format!("ingestdeck: the engine was lost: {reason}; agents were stopped"));
            Ok(Exit::Internal)
        }
        ServiceEnd::Failed(reason) => Err(CliError::new(Exit::Internal, reason)),
    }
}

async fn serve_stdio(setup: WorkerSetup) -> Result<ServiceEnd, CliError> {
    let (to_service, incoming) = mpsc::channel(QUEUE_CAPACITY);
    let (outgoing, mut to_engine) = mpsc::unbounded_channel();
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::internal)?;
    let reading = tokio::spawn(async move { stdio::read_messages(tokio::io::stdin(), &to_service).await });
    let writing = tokio::spawn(async move { stdio::write_messages(tokio::io::stdout(), &mut to_engine).await });
    let leave = async move {
        terminate.recv().await;
        "it was asked to end".to_owned()
    };
    let end = service::serve(setup, EngineConnection { incoming, outgoing, resend_after: None }, leave).await;
    // The last messages are written; nothing comes after them.
    let written = tokio::time::timeout(std::time::Duration::from_secs(2), writing).await;
    if let Ok(Ok(Err(error))) = written {
        tracing::debug!(%error, "cannot write to the engine");
    }
    Ok(match end {
        ServiceEnd::EngineLost(_) if reading.is_finished() => match reading.await {
            Ok(end) => ServiceEnd::EngineLost(end.to_string()),
            Err(error) => ServiceEnd::EngineLost(error.to_string()),
        },
        end => end,
    })
}
