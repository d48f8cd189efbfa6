//! The client of the control socket of a run in another process.

use std::{collections::VecDeque, io, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use nix::unistd::Uid;
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::codec::{Framed, LinesCodec};

use super::location;
use ingestdeck_core::{
    control::{
        AttachRequest, ClientRequest, CommandOrigin, CommandOutcome, CommandReply, EngineEvent,
        EngineLine, MAX_REQUEST_BYTES, RefusalReason, RequestBody, RunCommand,
    },
    diagnostic::Diagnostic,
    tape::RunId,
};

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the engine of a run.
#[derive(Debug)]
pub struct ControlClient {
    lines: Framed<UnixStream, LinesCodec>,
    origin: CommandOrigin,
    next_id: u64,
}

/// Why the engine of a run cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ControlClientError {
    #[error("run {run} does not accept commands: {cause}")]
    Connect { run: String, cause: io::Error },
    #[error("the engine of the run did not reply: {0}")]
    Reply(String),
    #[error("the command exceeds {MAX_REQUEST_BYTES} bytes")]
    TooLarge,
    #[error("the engine of the run refused the connection: {0}")]
    Refused(String),
    #[error("the engine of the run refused the connection: {0}")]
    Full(RefusalReason),
}

impl Diagnostic for ControlClientError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Connect { .. } => {
                "only runs that are active on this machine accept commands; list them with `ingestdeck runs list`, or follow one with `ingestdeck watch`"
                    .into()
            }
            Self::Reply(_) => "check whether the run is still active with `ingestdeck runs list`".into(),
            Self::TooLarge => "shorten the arguments or the feedback".into(),
            Self::Refused(_) => "use the same version of ingestdeck as the run".into(),
            Self::Full(_) => "close a screen or another client of the run, then try again".into(),
        })
    }
}

fn failed(error: impl std::fmt::Display) -> ControlClientError {
    ControlClientError::Reply(error.to_string())
}

impl ControlClient {
    /// Connects to the engine of `run`. The tape records `origin` with each command.
    ///
    /// # Errors
    /// If the run has no control socket, or another user owns it.
    pub async fn connect(run: RunId, origin: CommandOrigin) -> Result<Self, ControlClientError> {
        let mut cause = io::Error::new(io::ErrorKind::NotFound, "it has no control socket");
        for path in location::existing_socket_paths(run) {
            match UnixStream::connect(&path).await {
                Ok(stream)
                    if stream
                        .peer_cred()
                        .is_ok_and(|peer| peer.uid() == Uid::current().as_raw()) =>
                {
                    let lines =
                        Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST_BYTES));
                    return Ok(Self {
                        lines,
                        origin,
                        next_id: 0,
                    });
                }
                Ok(_) => {
                    cause = io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        "its socket belongs to another user",
                    )
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => cause = error,
            }
        }
        Err(ControlClientError::Connect {
            run: run.short(),
            cause,
        })
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Errors
    /// If the engine is gone or does not reply in time.
    pub async fn execute(
        &mut self,
        command: RunCommand,
    ) -> Result<CommandReply, ControlClientError> {
        self.exchange(RequestBody::Command(command)).await
    }

    /// Keeps the run open for commands while the connection exists. Returns the number of attached clients.
    ///
    /// # Errors
    /// If the engine is gone, does not reply in time, or accepts no further clients.
    pub async fn attach(
        mut self,
        request: AttachRequest,
    ) -> Result<(AttachedClient, usize), ControlClientError> {
        match self.exchange(RequestBody::Attach(request)).await? {
            CommandReply::Attached { clients } => Ok((AttachedClient { client: self }, clients)),
            CommandReply::Invalid { message } => Err(ControlClientError::Refused(message)),
            CommandReply::Refused {
                reason: reason @ RefusalReason::TooManyClients { .. },
            } => Err(ControlClientError::Full(reason)),
            CommandReply::Refused { reason } => {
                Err(ControlClientError::Refused(reason.to_string()))
            }
            CommandReply::Accepted | CommandReply::Detached { .. } => {
                Err(failed("it sent another reply"))
            }
        }
    }

    async fn exchange(&mut self, body: RequestBody) -> Result<CommandReply, ControlClientError> {
        let exchange = async {
            self.send(body).await?;
            loop {
                match self.next_line().await? {
                    Some(EngineLine::Reply(reply)) => return Ok(reply.reply),
                    Some(EngineLine::Event(_)) => {}
                    None => return Err(failed("the connection was closed")),
                }
            }
        };
        timeout(REPLY_TIMEOUT, exchange)
            .await
            .map_err(|_| failed("no reply within 10 s"))?
    }

    async fn send(&mut self, body: RequestBody) -> Result<(), ControlClientError> {
        self.next_id += 1;
        let request = ClientRequest {
            id: self.next_id,
            body,
            origin: self.origin.clone(),
        };
        let line = serde_json::to_string(&request).map_err(failed)?;
        if line.len() > MAX_REQUEST_BYTES {
            return Err(ControlClientError::TooLarge);
        }
        self.lines.send(line).await.map_err(failed)
    }

    /// The next line of the engine that this version knows; `None` after the last one.
    async fn next_line(&mut self) -> Result<Option<EngineLine>, ControlClientError> {
        loop {
            let Some(line) = self.lines.next().await else {
                return Ok(None);
            };
            let line = line.map_err(failed)?;
            match serde_json::from_str(&line) {
                Ok(line) => return Ok(Some(line)),
                Err(error) => tracing::warn!(%error, "a line of the engine is not understood"),
            }
        }
    }
}

/// A connection that keeps the run open for commands.
#[derive(Debug)]
pub struct AttachedClient {
    client: ControlClient,
}

/// Where an attached client delivers what the engine reports. Receivers that are gone are ignored.
#[derive(Debug)]
pub struct EngineReports {
    /// Counts the reports of growth of the tape.
    pub grown: watch::Sender<u64>,
    /// The answers to the commands, in their order.
    pub outcomes: mpsc::UnboundedSender<CommandOutcome>,
    /// Why the run was aborted; `None` once it is delivered.
    pub failed: Option<oneshot::Sender<String>>,
    /// The commands without an answer, oldest first: why one cannot be sent, or `None` if the engine has it.
    pub unanswered: VecDeque<Option<String>>,
}

impl EngineReports {
    /// Delivers the answer to the oldest command, and those that follow from it.
    fn answered(&mut self, outcome: CommandOutcome) {
        self.unanswered.pop_front();
        drop(self.outcomes.send(outcome));
        while let Some(Some(problem)) = self.unanswered.front_mut().map(Option::take) {
            self.unanswered.pop_front();
            drop(self.outcomes.send(invalid(problem)));
        }
    }
}

fn invalid(problem: String) -> CommandOutcome {
    Err(RefusalReason::InvalidArgument { problem })
}

/// How a client leaves a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveMode {
    RunContinues,
    /// The run ends; without other clients, this one waits for that.
    AwaitEnd,
}

/// The request to leave, which arrives once and outlives a connection.
#[derive(Debug)]
pub struct LeaveSignal {
    /// `None` once the request has arrived, or the screen can no longer leave in order.
    receiver: Option<oneshot::Receiver<LeaveMode>>,
    mode: Option<LeaveMode>,
}

impl LeaveSignal {
    pub fn new(receiver: oneshot::Receiver<LeaveMode>) -> Self {
        Self {
            receiver: Some(receiver),
            mode: None,
        }
    }

    async fn wait(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            self.mode = receiver.await.ok();
            self.receiver = None;
        }
    }
}

/// How an attachment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentEnd {
    /// This client detached; this many others remain attached.
    Detached { clients: usize },
    /// The engine closed the connection.
    Closed,
    /// The engine aborted the run, for this reason.
    Aborted(String),
}

enum ClientEvent {
    Command(RunCommand),
    /// The screen leaves, or can no longer leave in order.
    Leave,
    Line(Option<EngineLine>),
}

impl AttachedClient {
    /// Exchanges commands and reports with the engine until `leave` fires or the engine ends. If the sender of `leave`
    /// is dropped, the client stays until the engine ends.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn run(
        mut self,
        commands: &mut mpsc::Receiver<RunCommand>,
        leave: &mut LeaveSignal,
        reports: &mut EngineReports,
    ) -> Result<AttachmentEnd, ControlClientError> {
        let mut failure = None;
        // This connection cannot repeat what the last one sent: the engine may have carried it out.
        while !reports.unanswered.is_empty() {
            reports.answered(invalid(
                "the connection broke; send the command again".to_owned(),
            ));
        }
        if leave.mode.is_some() {
            // The connection on which the client left has broken.
            self.client.send(RequestBody::Detach).await?;
        }
        loop {
            let event = tokio::select! {
                biased;
                Some(command) = commands.recv() => ClientEvent::Command(command),
                () = leave.wait(), if leave.receiver.is_some() => ClientEvent::Leave,
                line = self.client.next_line() => ClientEvent::Line(line?),
            };
            match event {
                ClientEvent::Command(command) => {
                    match self.client.send(RequestBody::Command(command)).await {
                        // The answers keep the order of the commands.
                        Err(error @ ControlClientError::TooLarge)
                            if !reports.unanswered.is_empty() =>
                        {
                            reports.unanswered.push_back(Some(error.to_string()));
                        }
                        Err(error @ ControlClientError::TooLarge) => {
                            reports.answered(invalid(error.to_string()))
                        }
                        sent => {
                            reports.unanswered.push_back(None);
                            sent?;
                        }
                    }
                }
                ClientEvent::Leave => {
                    if leave.mode.is_some() {
                        self.client.send(RequestBody::Detach).await?;
                    }
                }
                ClientEvent::Line(None) => {
                    return Ok(failure.map_or(AttachmentEnd::Closed, AttachmentEnd::Aborted));
                }
                ClientEvent::Line(Some(EngineLine::Event(EngineEvent::Grown))) => {
                    reports.grown.send_modify(|count| *count += 1)
                }
                ClientEvent::Line(Some(EngineLine::Event(EngineEvent::RecordingFailed {
                    message,
                }))) => {
                    if let Some(failed) = reports.failed.take() {
                        let _ = failed.send(message.clone());
                    }
                    failure = Some(message);
                }
                ClientEvent::Line(Some(EngineLine::Reply(reply))) => match reply.reply {
                    CommandReply::Detached { clients: 0 }
                        if leave.mode == Some(LeaveMode::AwaitEnd) => {}
                    CommandReply::Detached { clients } => {
                        return Ok(AttachmentEnd::Detached { clients });
                    }
                    CommandReply::Accepted => reports.answered(Ok(())),
                    CommandReply::Refused { reason } => reports.answered(Err(reason)),
                    CommandReply::Invalid { message } => reports.answered(invalid(message)),
                    CommandReply::Attached { .. } => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_the_commands() {
        let (outcomes, mut delivered) = mpsc::unbounded_channel();
        let unanswered = VecDeque::from([None, Some("too large".to_owned()), None]);
        let mut reports = EngineReports {
            grown: watch::channel(0).0,
            outcomes,
            failed: None,
            unanswered,
        };
        reports.answered(Ok(()));
        reports.answered(Err(RefusalReason::NotInReview));
        let delivered: Vec<_> = std::iter::from_fn(|| delivered.try_recv().ok()).collect();
        assert_eq!(
            delivered,
            [
                Ok(()),
                invalid("too large".to_owned()),
                Err(RefusalReason::NotInReview)
            ]
        );
        assert!(reports.unanswered.is_empty());
    }
}
