//! `worker`: runs attempts for the engine of a run on another machine.

use std::{io, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    args::{GlobalArgs, PoolCommand, WorkerArgs},
    doctor,
    exit::{self, CliError, Exit},
    launch, playback_output, project, settings, worker_keys, worker_session,
};
use ingestdeck_agent::{Agent, process, session_lock::SessionLocks};
use ingestdeck_core::{diagnostic::Problem, text::pluralize};
use ingestdeck_engine::{
    self as engine,
    launch::runtime,
    worker::{
        connection::PROGRAM_VERSION,
        nats::{self, NatsServer, NkeySeed, PoolMember, PoolServiceError, SubjectName},
        protocol::{PROTOCOL_VERSION, WorkerJoin},
        service::{LeaveRequest, WorkerSetup, WorkerSlots},
        workspace::WorkerMachine,
    },
};
use ingestdeck_os::user_dirs::UserDirs;

/// Serves the runs of a pool, until a signal or the end of its session asks it to end.
///
/// # Errors
/// If Claude Code cannot be used here, the server cannot be used, or an engine refuses the worker of a session.
pub(crate) fn worker(global: &GlobalArgs, args: &WorkerArgs) -> Result<Exit, CliError> {
    match &args.command {
        Some(PoolCommand::Keys(args)) => return worker_keys::keys(args),
        Some(PoolCommand::Gc(args)) => return worker_keys::gc(args),
        Some(PoolCommand::Install(args)) => return worker_keys::install(args),
        None => {}
    }
    args.nats.warning().iter().for_each(exit::print_warning);
    let config = settings::load(global)?;
    let claude = launch::find_claude(global)?;
    let found = doctor::preflight(&claude, &config.claude.pass_env, false, None)?;
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok());
    let host = host.unwrap_or_else(|| "worker".to_owned());
    let account = args.account.clone().or_else(|| found.account());
    let join = WorkerJoin {
        protocol: PROTOCOL_VERSION,
        program: PROGRAM_VERSION.to_owned(),
        agent_release: found.release(),
        slots: args.slots,
        // A login without a name belongs to this machine only.
        account: account.unwrap_or_else(|| format!("login of {host}")),
        host: args.name.as_ref().map_or(host, ToString::to_string),
        clock_ms: 0,
    };
    let locks = UserDirs::from_environment().locks();
    let locks = locks.ok_or_else(|| {
        CliError::from_error(
            Exit::Setup,
            &Problem::new("there is no directory for locks").with_help("set HOME"),
        )
    })?;
    let (permissions, warnings) = settings::permissions(global)?;
    warnings.iter().for_each(exit::print_warning);
    let machine = WorkerMachine {
        permissions,
        sql_workers: project::sql_workers(),
    };
    let setup = WorkerSetup {
        join,
        agent: Arc::new(Agent::claude_code(claude, found.version())),
        machine,
        locks: SessionLocks::new(locks),
        pass_env: config.claude.pass_env.value,
        slots: WorkerSlots::new(args.slots),
    };
    let Some(mut server) = args.nats.server().filter(|_| !args.describe) else {
        let description = serde_json::to_string(&setup.join).map_err(io::Error::other);
        let description = description.map_err(CliError::internal)?;
        return worker_keys::print(&format!("{description}\n"));
    };
    engine::prepare_worker_process();
    let name = args.name.clone().unwrap_or_else(SubjectName::random);
    let (session, _lock) = match args.session {
        true => {
            let (seed, session) = worker_session::begin()?;
            server.nkey = Some(NkeySeed::Given(seed));
            let turn = format!("worker {} {name}", server.pool);
            let lock = worker_session::wait_for_turn(&setup.locks, &turn, &session)?;
            if lock.is_none() {
                return Ok(Exit::Ok);
            }
            (Some(session), lock)
        }
        false => (None, None),
    };
    let runtime = runtime(2)?;
    let member = PoolMember {
        setup,
        name,
        pool: server.pool.clone(),
        grace: args.grace,
        session,
    };
    let served = runtime.block_on(serve_nats(&member, &server));
    // No child process may outlive this process.
    process::kill_all();
    runtime.shutdown_background();
    served.map(|()| Exit::Ok)
}

/// Serves the runs that are announced at a NATS server, until a signal asks it to end.
async fn serve_nats(member: &PoolMember, server: &NatsServer) -> Result<(), CliError> {
    let setup_failed = |problem: Problem| CliError::from_error(Exit::Setup, &problem);
    let client = server.connect_as(member.name.as_str()).await;
    let client = client.map_err(setup_failed)?;
    let leave = leave_on_signals()?;
    let tell = |text: &str| playback_output::print_stderr(&format!("ingestdeck: {text}"));
    tell(&format!(
        "waiting for runs at {}, with {}",
        server.address,
        pluralize(member.setup.join.slots as usize, "slot")
    ));
    nats::serve_runs(member, &client, leave, &tell)
        .await
        .map_err(|error| match error {
            // The engine of the session recognises the code.
            PoolServiceError::Refused(problem) => CliError::from_error(Exit::Usage, &problem),
            PoolServiceError::Failed(problem) => setup_failed(problem),
        })
}

/// The first signal lets running attempts finish, the second one ends them.
fn leave_on_signals() -> Result<watch::Receiver<LeaveRequest>, CliError> {
    let listen = |kind| signal(kind).map_err(CliError::internal);
    let (mut terminate, mut interrupt) = (
        listen(SignalKind::terminate())?,
        listen(SignalKind::interrupt())?,
    );
    let mut hangup = listen(SignalKind::hangup())?;
    let (requests, leave) = watch::channel(LeaveRequest::Stay);
    tokio::spawn(async move {
        for request in [LeaveRequest::Finish, LeaveRequest::Abort] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
            requests.send_replace(request);
            if request == LeaveRequest::Finish {
                playback_output::print_stderr(
                    "ingestdeck: running attempts may finish; another signal ends them",
                );
            }
        }
        // The receivers must not take the end of this task for a request.
        std::future::pending::<()>().await;
    });
    Ok(leave)
}
