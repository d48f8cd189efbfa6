//! The server of the control socket. It ends with its run.

#![expect(clippy::disallowed_methods, reason = "the socket in such a directory")]

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures_util::{
    FutureExt as _, SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use nix::unistd::Uid;
use serde::Serialize;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::{AbortHandle, JoinHandle, JoinSet},
    time::{Instant, timeout},
};
use tokio_util::codec::{Framed, LinesCodec};

use super::location;
use crate::{
    attached_clients::{AttachedClients, ClientGuard},
    controller::WeakRunController,
};
use ingestdeck_core::{
    control::{
        self, AttachRequest, CONTROL_VERSION, ClientRequest, CommandOrigin, CommandReply,
        DisconnectAction, EngineEvent, EngineReply, MAX_REQUEST_BYTES, RefusalReason, RequestBody,
        RunCommand,
    },
    tape::RunId,
};

/// Maximum number of attached clients, and of others, which do not take their places: commands stay possible.
const MAX_ATTACHED: usize = 64;
const MAX_OTHERS: usize = 64;
/// How long a client may take to accept a reply before it is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client that is not attached may be connected without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum interval between two reports of growth to a client, which draws a frame for each.
const GROWTH_INTERVAL: Duration = Duration::from_millis(50);
/// How long clients may take to receive their last replies when the run ends.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropping it disconnects all clients and removes the socket.
#[derive(Debug)]
pub(crate) struct ControlServer {
    path: PathBuf,
    closing: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// What the connections of a run share.
#[derive(Clone, Debug)]
pub(crate) struct ServedRun {
    pub controller: WeakRunController,
    pub clients: AttachedClients,
    /// Length of the tape.
    pub growth: watch::Receiver<u64>,
}

impl ControlServer {
    /// Serves the commands of clients of the run.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub(crate) async fn start(run: RunId, served: ServedRun) -> io::Result<Self> {
        let path = location::new_socket_path(run)?;
        if let Some(dir) = path.parent() {
            remove_abandoned_sockets(dir).await;
        }
        // The socket gets its name once it accepts connections: until then, another run would take it for an abandoned
        // one. Run ids are unique, so a file at the path has no owner.
        let unnamed = path.with_extension("new");
        let _ = fs::remove_file(&unnamed);
        let listener = UnixListener::bind(&unnamed)?;
        fs::set_permissions(&unnamed, fs::Permissions::from_mode(0o600))?;
        fs::rename(&unnamed, &path)?;
        let closing = watch::Sender::new(false);
        let accepting = tokio::spawn(accept_clients(listener, served, closing.subscribe()));
        Ok(Self {
            path,
            closing,
            accepting,
        })
    }

    /// The path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the server after the replies to the requests that it has read.
    pub(crate) async fn close(mut self) {
        self.closing.send_replace(true);
        let _ = timeout(CLOSING_TIMEOUT, &mut self.accepting).await;
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
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path
            .extension()
            .is_some_and(|extension| extension == "sock")
            && UnixStream::connect(&path)
                .await
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            // Another run may have removed it first.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Accepts clients until the run ends, then waits for their last replies.
async fn accept_clients(
    listener: UnixListener,
    served: ServedRun,
    mut closing: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MAX_ATTACHED));
    let mut connections = JoinSet::new();
    let mut others = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            _ = closing.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client of the control socket could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        if !stream
            .peer_cred()
            .is_ok_and(|peer| peer.uid() == Uid::current().as_raw())
        {
            continue;
        }
        let mut connection = ClientConnection::new(stream, served.clone(), Arc::clone(&places));
        if make_room(&mut others) {
            let (state, closing) = (Arc::clone(&connection.state), closing.clone());
            let task = connections.spawn(async move { connection.serve(closing).await });
            others.push_back((state, task));
        } else {
            connections.spawn(async move {
                // A client that does not read its refusal learns nothing else either.
                let _ = connection.send(&too_many(None, MAX_OTHERS)).await;
            });
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Makes room for another client that is not attached: if all places are taken, the client that has been idle longest is
/// disconnected, as it may never send a request. Returns false if each of them waits for a reply.
fn make_room(others: &mut VecDeque<(Arc<AtomicU8>, AbortHandle)>) -> bool {
    let state_of = |state: &AtomicU8| state.load(Ordering::Relaxed);
    others.retain(|(state, task)| !task.is_finished() && state_of(state) != ATTACHED);
    if others.len() < MAX_OTHERS {
        return true;
    }
    let idle = others.iter().position(|(state, _)| state_of(state) == IDLE);
    let Some((_, task)) = idle.and_then(|at| others.remove(at)) else {
        return false;
    };
    task.abort();
    true
}

/// What a client does: nothing, wait for a reply, or follow the run.
const IDLE: u8 = 0;
const BUSY: u8 = 1;
const ATTACHED: u8 = 2;

/// The connection of one client.
struct ClientConnection {
    lines: SplitStream<Framed<UnixStream, LinesCodec>>,
    replies: SplitSink<Framed<UnixStream, LinesCodec>, String>,
    served: ServedRun,
    attached: Option<(ClientGuard, AttachRequest)>,
    places: Arc<Semaphore>,
    /// Held since the client attached.
    place: Option<OwnedSemaphorePermit>,
    state: Arc<AtomicU8>,
    /// The client was attached before: it may wait for the end of the run.
    has_detached: bool,
}

enum ConnectionEvent {
    Line(Result<String, String>),
    Grown,
    /// The client has read what was sent.
    CaughtUp(bool),
    Failed,
    Ended,
}

impl ClientConnection {
    fn new(stream: UnixStream, served: ServedRun, places: Arc<Semaphore>) -> Self {
        let framed = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST_BYTES));
        let (replies, lines) = framed.split();
        let state = Arc::new(AtomicU8::new(IDLE));
        Self {
            lines,
            replies,
            served,
            attached: None,
            places,
            place: None,
            state,
            has_detached: false,
        }
    }

    /// Serves the client until it leaves, sends a line that is too long, or accepts no reply.
    async fn serve(&mut self, closing: watch::Receiver<bool>) {
        self.exchange_lines(closing).await;
        let Some((client, request)) = self.attached.take() else {
            return;
        };
        drop(client);
        if request.on_disconnect == DisconnectAction::Stop && self.served.clients.count() == 0 {
            let reason = "the last screen of the run disappeared".to_owned();
            let origin = CommandOrigin {
                client: Some("engine".to_owned()),
                reason: Some(reason),
            };
            // A run that is over refuses commands.
            self.served
                .controller
                .execute(RunCommand::StopAll, origin)
                .await;
        }
    }

    async fn exchange_lines(&mut self, mut closing: watch::Receiver<bool>) {
        let (mut growth, mut failure) = (self.served.growth.clone(), self.served.clients.failure());
        let (mut next_growth, mut is_behind) = (Instant::now(), false);
        loop {
            let is_attached = self.attached.is_some();
            let may_be_idle = is_attached || self.has_detached;
            let grown = async {
                tokio::time::sleep_until(next_growth).await;
                growth.changed().await
            };
            let event = tokio::select! {
                biased;
                line = self.lines.next() => match line {
                    Some(line) => ConnectionEvent::Line(line.map_err(|error| error.to_string())),
                    None => ConnectionEvent::Ended,
                },
                Ok(()) = failure.changed(), if is_attached => ConnectionEvent::Failed,
                flushed = self.replies.flush(), if is_behind => ConnectionEvent::CaughtUp(flushed.is_ok()),
                // A client that does not read gets one report for everything that it has missed.
                Ok(()) = grown, if is_attached && !is_behind => ConnectionEvent::Grown,
                _ = closing.changed() => ConnectionEvent::Ended,
                () = tokio::time::sleep(IDLE_TIMEOUT), if !may_be_idle => ConnectionEvent::Ended,
            };
            let was_sent = match event {
                ConnectionEvent::Ended => return,
                ConnectionEvent::Line(Ok(line)) => {
                    self.state.store(BUSY, Ordering::Relaxed);
                    let reply = self.reply_to(&line).await;
                    let was_sent = self.send(&reply).await;
                    self.state.store(
                        if self.place.is_some() { ATTACHED } else { IDLE },
                        Ordering::Relaxed,
                    );
                    was_sent
                }
                ConnectionEvent::Line(Err(error)) => {
                    let message = format!(
                        "unreadable request: {error}; the limit is {MAX_REQUEST_BYTES} bytes"
                    );
                    self.send(&invalid(None, message)).await;
                    return;
                }
                ConnectionEvent::Grown => {
                    next_growth = Instant::now() + GROWTH_INTERVAL;
                    let Ok(line) = serde_json::to_string(&EngineEvent::Grown) else {
                        return;
                    };
                    let fed = self.replies.feed(line).await;
                    let flushed = self.replies.flush().now_or_never();
                    is_behind = flushed.is_none();
                    fed.is_ok() && !matches!(flushed, Some(Err(_)))
                }
                ConnectionEvent::CaughtUp(is_open) => {
                    is_behind = false;
                    is_open
                }
                ConnectionEvent::Failed => {
                    let message = failure.borrow().clone().unwrap_or_default();
                    self.send(&EngineEvent::RecordingFailed { message }).await
                }
            };
            if !was_sent {
                return;
            }
        }
    }

    async fn reply_to(&mut self, line: &str) -> EngineReply {
        let ClientRequest { id, body, origin } = match control::parse_request(line) {
            Ok(request) => request,
            Err(reply) => return reply,
        };
        let reply = match body {
            RequestBody::Command(command) => {
                self.served.clients.note_activity();
                self.served.controller.execute(command, origin).await
            }
            RequestBody::Attach(request) => {
                if self.place.is_none() {
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        return too_many(Some(id), MAX_ATTACHED);
                    };
                    self.place = Some(place);
                }
                if self.attached.is_none() {
                    self.attached = Some((self.served.clients.attach(), request));
                }
                CommandReply::Attached {
                    clients: self.served.clients.count(),
                }
            }
            RequestBody::Detach => {
                self.has_detached |= self.attached.take().is_some();
                CommandReply::Detached {
                    clients: self.served.clients.count(),
                }
            }
        };
        EngineReply {
            version: CONTROL_VERSION,
            id: Some(id),
            reply,
        }
    }

    /// Returns false if the client does not accept the line.
    async fn send(&mut self, line: &impl Serialize) -> bool {
        let Ok(json) = serde_json::to_string(line) else {
            return false;
        };
        matches!(
            timeout(SEND_TIMEOUT, self.replies.send(json)).await,
            Ok(Ok(()))
        )
    }
}

fn too_many(id: Option<u64>, limit: usize) -> EngineReply {
    let reply = CommandReply::Refused {
        reason: RefusalReason::TooManyClients { limit },
    };
    EngineReply {
        version: CONTROL_VERSION,
        id,
        reply,
    }
}

fn invalid(id: Option<u64>, message: String) -> EngineReply {
    EngineReply {
        version: CONTROL_VERSION,
        id,
        reply: CommandReply::Invalid { message },
    }
}
