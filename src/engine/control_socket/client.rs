//! The client of the control socket of a run in another process.

use std::{io, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use nix::unistd::Uid;
use tokio::{net::UnixStream, time::timeout};
use tokio_util::codec::{Framed, LinesCodec};

use super::location;
use crate::{
    control::{CONTROL_VERSION, ClientRequest, CommandReply, EngineReply, MAX_REQUEST_BYTES, RunCommand},
    diagnostic::Diagnostic,
    tape::RunId,
};

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the engine of a run.
#[derive(Debug)]
pub(crate) struct ControlClient {
    lines: Framed<UnixStream, LinesCodec>,
    next_id: u64,
}

/// Why the engine of a run cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlClientError {
    #[error("run {run} does not accept commands: {cause}")]
    Connect { run: String, cause: io::Error },
    #[error("the engine of the run did not reply: {0}")]
    Reply(String),
}

impl Diagnostic for ControlClientError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Connect { .. } => {
                "only runs that are active on this machine accept commands; list them with `ingestdeck runs list`"
                    .into()
            }
            Self::Reply(_) => "check whether the run is still active with `ingestdeck runs list`".into(),
        })
    }
}

impl ControlClient {
    /// Connects to the engine of `run`.
    ///
    /// # Errors
    /// If the run has no control socket, or another user owns it.
    pub(crate) async fn connect(run: RunId) -> Result<Self, ControlClientError> {
        let mut cause = io::Error::new(io::ErrorKind::NotFound, "it has no control socket");
        for path in location::existing_socket_paths(run) {
            match UnixStream::connect(&path).await {
                Ok(stream) if stream.peer_cred().is_ok_and(|peer| peer.uid() == Uid::current().as_raw()) => {
                    let lines = Framed::new(stream, LinesCodec::new_with_max_length(MAX_REQUEST_BYTES));
                    return Ok(Self { lines, next_id: 0 });
                }
                Ok(_) => cause = io::Error::new(io::ErrorKind::PermissionDenied, "its socket belongs to another user"),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => cause = error,
            }
        }
        Err(ControlClientError::Connect { run: run.short(), cause })
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Errors
    /// If the engine is gone or does not reply in time.
    pub(crate) async fn execute(&mut self, command: RunCommand) -> Result<CommandReply, ControlClientError> {
        let failed = |error: &dyn std::fmt::Display| ControlClientError::Reply(error.to_string());
        self.next_id += 1;
        let request = ClientRequest { version: CONTROL_VERSION, id: self.next_id, command };
        let line = serde_json::to_string(&request).map_err(|error| failed(&error))?;
        let exchange = async {
            self.lines.send(line).await.map_err(|error| failed(&error))?;
            let reply = self.lines.next().await.ok_or_else(|| failed(&"the connection was closed"))?;
            let reply: EngineReply = reply
                .map_err(|error| failed(&error))
                .and_then(|line| serde_json::from_str(&line).map_err(|error| failed(&error)))?;
            Ok(reply.reply)
        };
        timeout(REPLY_TIMEOUT, exchange).await.map_err(|_| failed(&"no reply within 10 s"))?
    }
}
