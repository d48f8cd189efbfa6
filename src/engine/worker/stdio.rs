//! Messages as lines of JSON over a pair of byte streams: stdin and stdout of a worker, or of `ssh`.
//!
//! It must not know what the messages mean.

use std::{fmt, io};

use futures_util::StreamExt as _;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::protocol::MAX_MESSAGE_BYTES;

/// Why the messages of the other side end.
#[derive(Debug)]
pub(crate) enum MessagesEnd {
    /// The stream was closed, or its messages have no receiver.
    Closed,
    /// Something else than a message arrived.
    Garbage(String),
    Io(io::Error),
}

impl fmt::Display for MessagesEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the connection was closed"),
            Self::Garbage(what) => write!(f, "the other side sent {what}"),
            Self::Io(error) => write!(f, "the connection broke: {error}"),
        }
    }
}

/// Reads messages until the stream ends or breaks. Blank lines are ignored.
pub(crate) async fn read_messages<M: DeserializeOwned>(
    stream: impl AsyncRead + Unpin,
    messages: &mpsc::Sender<M>,
) -> MessagesEnd {
    let mut lines = FramedRead::new(stream, LinesCodec::new_with_max_length(MAX_MESSAGE_BYTES));
    loop {
        let line = match lines.next().await {
            None => return MessagesEnd::Closed,
            Some(Ok(line)) if line.trim().is_empty() => continue,
            Some(Ok(line)) => line,
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                return MessagesEnd::Garbage(format!(
                    "a line of more than {MAX_MESSAGE_BYTES} bytes"
                ));
            }
            Some(Err(LinesCodecError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => {
                return MessagesEnd::Garbage("bytes that are not text".to_owned());
            }
            Some(Err(LinesCodecError::Io(error))) => return MessagesEnd::Io(error),
        };
        let Ok(message) = serde_json::from_str(&line) else {
            let start: String = line.chars().take(200).collect();
            return MessagesEnd::Garbage(format!("`{}`", start.escape_debug()));
        };
        if messages.send(message).await.is_err() {
            return MessagesEnd::Closed;
        }
    }
}

/// Writes messages until there are no more.
///
/// # Errors
/// If the stream is closed or breaks.
pub(crate) async fn write_messages<M: Serialize>(
    mut stream: impl AsyncWrite + Unpin,
    messages: &mut impl MessageQueue<M>,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = serde_json::to_vec(&message)?;
        line.push(b'\n');
        // Messages that are ready go out together.
        while line.len() < super::protocol::CHUNK_BYTES
            && let Some(message) = messages.try_recv()
        {
            serde_json::to_writer(&mut line, &message)?;
            line.push(b'\n');
        }
        stream.write_all(&line).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// The receiving end of a queue of messages.
pub(crate) trait MessageQueue<M> {
    /// The next message; `None` after the last one.
    async fn recv(&mut self) -> Option<M>;

    /// The next message, if there is one already.
    fn try_recv(&mut self) -> Option<M>;
}

impl<M> MessageQueue<M> for mpsc::Receiver<M> {
    async fn recv(&mut self) -> Option<M> {
        Self::recv(self).await
    }

    fn try_recv(&mut self) -> Option<M> {
        Self::try_recv(self).ok()
    }
}

impl<M> MessageQueue<M> for mpsc::UnboundedReceiver<M> {
    async fn recv(&mut self) -> Option<M> {
        Self::recv(self).await
    }

    fn try_recv(&mut self) -> Option<M> {
        Self::try_recv(self).ok()
    }
}
