//! The server of the control socket. It ends with its run.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use nix::unistd::Uid;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::codec::{Framed, LinesCodec};

use super::location;
use crate::{
    control::{self, CONTROL_VERSION, CommandReply, EngineReply, MAX_REQUEST_BYTES},
    engine::controller::WeakRunController,
    tape::RunId,
};

/// Maximum number of connected clients.
const MAX_CLIENTS: usize = 64;
/// How long a client may take to accept a reply before it is disconnected.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server. Dropping it disconnects all clients and removes the socket.
#[derive(Debug)]
pub(crate) struct ControlServer {
    path: PathBuf,
    accepting: JoinHandle<()>,
}

impl ControlServer {
    /// Serves the commands of clients of the run.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub(in crate::engine) async fn start(run: RunId, controller: WeakRunController) -> io::Result<Self> {
        let path = location::new_socket_path(run)?;
        if let Some(dir) = path.parent() {
            remove_abandoned_sockets(dir).await;
        }
        // Run ids are unique, so a file at the path has no owner.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { accepting: tokio::spawn(accept_clients(listener, controller)), path })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.accepting.abort();
        // A socket that remains refuses connections.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the sockets of killed runs: nothing accepts connections there.
async fn remove_abandoned_sockets(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_some_and(|extension| extension == "sock")
            && UnixStream::connect(&path).await.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            // Another run may have removed it first.
            let _ = fs::remove_file(&path);
        }
    }
}

async fn accept_clients(listener: UnixListener, controller: WeakRunController) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let mut clients = tokio::task::JoinSet::new();
    loop {
        // Accepting waits for a place: further clients wait in the queue of the kernel.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client of the control socket could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while clients.try_join_next().is_some() {}
        if stream.peer_cred().is_ok_and(|peer| peer.uid() == Uid::current().as_raw()) {
            let controller = controller.clone();
            clients.spawn(async move {
                serve_client(stream, &controller).await;
                drop(place);
            });
        }
    }
}

/// Replies to each line of a client until it leaves, sends a line that is too long, or accepts no reply.
async fn serve_client(stream: UnixStream, controller: &WeakRunController) {
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST_BYTES));
    while let Some(line) = lines.next().await {
        let reply = match &line {
            Ok(line) => reply_to(line, controller).await,
            Err(error) => invalid(format!("unreadable request: {error}; the limit is {MAX_REQUEST_BYTES} bytes")),
        };
        let Ok(json) = serde_json::to_string(&reply) else { return };
        let sent = timeout(REPLY_TIMEOUT, lines.send(json)).await;
        if line.is_err() || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

async fn reply_to(line: &str, controller: &WeakRunController) -> EngineReply {
    match control::parse_request(line) {
        Ok(request) => {
            let reply = controller.execute(request.command).await;
            EngineReply { version: CONTROL_VERSION, id: Some(request.id), reply }
        }
        Err(reply) => reply,
    }
}

fn invalid(message: String) -> EngineReply {
    EngineReply { version: CONTROL_VERSION, id: None, reply: CommandReply::Invalid { message } }
}
