//! The reading end of a pipe that can be paused: while it is paused, writes to it do not wake the runtime.
//!
//! The pipes of the runtime wake their thread for every write, even if its data is not wanted yet. The module must not
//! depend on the content of the pipe.

use std::{
    io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll},
};

use nix::{errno::Errno, unistd};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe::Receiver,
    process::ChildStdout,
};

/// Bytes read from a paused pipe before it is registered again: its full capacity. The runtime would not report data
/// that was left in it.
const PIPE_CAPACITY: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct PausablePipe {
    state: PipeState,
    /// Data of a paused pipe on its way to a caller, whose buffer would have to be zeroed before each read.
    received: Vec<u8>,
}

#[derive(Debug)]
enum PipeState {
    /// The runtime is notified when data arrives.
    Registered(Receiver),
    Paused(OwnedFd),
    /// The runtime could not register the pipe.
    Failed,
}

impl PausablePipe {
    /// Reads the stdout of a process.
    ///
    /// # Errors
    /// If the runtime cannot register the pipe.
    pub(crate) fn from_stdout(stdout: ChildStdout) -> io::Result<Self> {
        Self::new(stdout.into_owned_fd()?)
    }

    fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            state: PipeState::Registered(Receiver::from_owned_fd(end)?),
            received: vec![0; PIPE_CAPACITY],
        })
    }

    /// Pauses the pipe until the next read.
    pub(crate) fn pause(&mut self) {
        self.state = match std::mem::replace(&mut self.state, PipeState::Failed) {
            PipeState::Registered(watched) => watched
                .into_nonblocking_fd()
                .map_or(PipeState::Failed, PipeState::Paused),
            other => other,
        };
    }
}

/// Reads what is available without waiting, through `received`.
fn read_available(end: &OwnedFd, received: &mut [u8], out: &mut ReadBuf<'_>) -> Result<(), Errno> {
    let room = out.remaining().min(received.len());
    let count = unistd::read(end, &mut received[..room])?;
    out.put_slice(&received[..count]);
    Ok(())
}

impl AsyncRead for PausablePipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { state, received } = self.get_mut();
        if let PipeState::Paused(end) = state {
            match read_available(end, received, out) {
                Err(Errno::EAGAIN) => {}
                done => return Poll::Ready(done.map_err(io::Error::from)),
            }
            if let PipeState::Paused(end) = std::mem::replace(state, PipeState::Failed) {
                *state = PipeState::Registered(Receiver::from_owned_fd_unchecked(end)?);
            }
        }
        match state {
            PipeState::Registered(watched) => Pin::new(watched).poll_read(context, out),
            PipeState::Paused(_) | PipeState::Failed => {
                Poll::Ready(Err(io::Error::other("the pipe cannot be watched")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn pipe() -> (PausablePipe, io::PipeWriter) {
        let (reader, writer) = io::pipe().unwrap();
        (PausablePipe::new(reader.into()).unwrap(), writer)
    }

    #[tokio::test]
    async fn data_is_read_while_paused_and_while_registered() {
        let (mut pipe, mut writer) = pipe();
        let mut text = Vec::new();
        for round in 0..4 {
            let waiting = tokio::time::timeout(Duration::ZERO, pipe.read_buf(&mut text)).await;
            assert!(waiting.is_err(), "there is nothing to read yet");
            if round % 2 == 0 {
                pipe.pause();
            }
            writer.write_all(b"fox ").unwrap();
            pipe.read_buf(&mut text).await.unwrap();
        }
        drop(writer);
        assert_eq!(pipe.read_buf(&mut text).await.unwrap(), 0);
        assert_eq!(text, b"fox fox fox fox ");
    }

    #[tokio::test]
    async fn full_pipe_is_read_in_one_call() {
        let (mut pipe, mut writer) = pipe();
        pipe.pause();
        writer.write_all(&[b'x'; PIPE_CAPACITY]).unwrap();
        assert_eq!(
            pipe.read_buf(&mut Vec::with_capacity(PIPE_CAPACITY))
                .await
                .unwrap(),
            PIPE_CAPACITY
        );
    }

    #[tokio::test]
    async fn large_stream_is_read_completely() {
        const SIZE: usize = 3 << 20;
        let (mut pipe, mut writer) = pipe();
        let flood = std::thread::spawn(move || writer.write_all(&vec![b'x'; SIZE]).unwrap());
        let mut seen = Vec::new();
        while pipe.read_buf(&mut seen).await.unwrap() > 0 {
            if seen.len() % 3 == 0 {
                pipe.pause();
            }
        }
        flood.join().unwrap();
        assert_eq!(seen.len(), SIZE);
    }

    #[tokio::test]
    async fn the_end_is_noticed_while_waiting() {
        let (mut pipe, writer) = pipe();
        let reading = tokio::spawn(async move { pipe.read_to_end(&mut Vec::new()).await.unwrap() });
        tokio::task::yield_now().await;
        drop(writer);
        assert_eq!(reading.await.unwrap(), 0);
    }
}
