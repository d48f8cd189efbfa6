//! Frames on their way to the agent: a queue that is bounded in bytes, and the task that empties it.
//!
//! The queue never waits. While it is read as slowly as it is written, an agent that writes before it reads would lock
//! both of us; so what does not fit is reported, and the caller ends the attempt. It must not know what a frame says.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
};

use super::super::control::ControlFrame;

/// The sending end. The pipe is closed once it is dropped and everything is written.
#[derive(Debug)]
pub(super) struct FrameQueue {
    frames: UnboundedSender<ControlFrame>,
    /// Bytes that wait, the frame that is being written included.
    queued_bytes: Arc<AtomicUsize>,
    limit: usize,
}

impl FrameQueue {
    /// A queue of up to `limit` bytes that is written to `pipe`, and the task that does it.
    pub(super) fn start(pipe: impl AsyncWrite + Unpin + Send + 'static, limit: usize) -> (Self, FrameWriter) {
        let (frames, queued) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let writer = FrameWriter(tokio::spawn(write_frames(pipe, queued, Arc::clone(&waiting))));
        (Self { frames, queued_bytes: waiting, limit }, writer)
    }

    /// True if `frame` may be sent. A single frame always may, however long it is.
    pub(super) fn has_capacity_for(&self, frame: &ControlFrame) -> bool {
        let waiting = self.queued_bytes.load(Ordering::Relaxed);
        waiting == 0 || waiting + frame.0.len() <= self.limit
    }

    pub(super) fn send(&self, frame: ControlFrame) {
        self.queued_bytes.fetch_add(frame.0.len(), Ordering::Relaxed);
        // A closed pipe means that the process is dying; its end is on the way.
        let _ = self.frames.send(frame);
    }
}

/// The task that writes to the agent; a pipe that nobody empties must not outlive the attempt.
#[derive(Debug)]
pub(super) struct FrameWriter(JoinHandle<()>);

impl Drop for FrameWriter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn write_frames(
    mut pipe: impl AsyncWrite + Unpin,
    mut frames: UnboundedReceiver<ControlFrame>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(ControlFrame(mut line)) = frames.recv().await {
        let size = line.len();
        line.push(b'\n');
        if let Err(error) = pipe.write_all(&line).await {
            tracing::debug!(%error, "the process no longer reads");
            return;
        }
        waiting.fetch_sub(size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn queue_is_full_until_its_reader_reads() {
        let (pipe, mut reader) = tokio::io::duplex(4);
        let (queue, _writer) = FrameQueue::start(pipe, 20);
        let frame = || ControlFrame(b"0123456789".to_vec());
        assert!(queue.has_capacity_for(&ControlFrame(vec![b'x'; 100])), "a single frame may have any length");
        for _ in 0..2 {
            assert!(queue.has_capacity_for(&frame()));
            queue.send(frame());
        }
        assert!(!queue.has_capacity_for(&frame()));
        let mut read = [0; 11];
        reader.read_exact(&mut read).await.unwrap();
        while !queue.has_capacity_for(&frame()) {
            tokio::task::yield_now().await;
        }
        drop(queue);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!((&read[..], &rest[..]), (&b"0123456789\n"[..], &b"0123456789\n"[..]));
    }
}
