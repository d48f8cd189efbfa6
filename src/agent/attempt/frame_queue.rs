//! Frames for the agent: a queue that is bounded in bytes, and the task that writes it.
//!
//! The queue never waits. An agent that writes before it reads would deadlock with us if a full queue blocked; so a
//! frame that does not fit is reported, and the caller ends the attempt. The module must not depend on the content of a
//! frame.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
};

use crate::control::ControlFrame;

/// The sending end. The pipe is closed once it is dropped and everything is written.
#[derive(Debug)]
pub(super) struct ControlFrameQueue {
    frames: UnboundedSender<ControlFrame>,
    /// Number of bytes that wait, including the frame that is being written.
    queued_bytes: Arc<AtomicUsize>,
    limit: usize,
}

impl ControlFrameQueue {
    /// A queue of up to `limit` bytes that is written to `pipe`, and its writer task.
    pub(super) fn start(
        pipe: impl AsyncWrite + Unpin + Send + 'static,
        limit: usize,
    ) -> (Self, ControlFrameWriter) {
        let (frames, queued) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        let writer = ControlFrameWriter(tokio::spawn(write_frames(
            pipe,
            queued,
            Arc::clone(&waiting),
        )));
        (
            Self {
                frames,
                queued_bytes: waiting,
                limit,
            },
            writer,
        )
    }

    /// True if `frame` may be sent. A single frame always may, regardless of its length.
    pub(super) fn has_capacity_for(&self, frame: &ControlFrame) -> bool {
        let waiting = self.queued_bytes.load(Ordering::Relaxed);
        waiting == 0 || waiting + frame.0.len() <= self.limit
    }

    pub(super) fn send(&self, frame: ControlFrame) {
        self.queued_bytes
            .fetch_add(frame.0.len(), Ordering::Relaxed);
        // A closed pipe means that the process is dying; its exit is reported separately.
        let _ = self.frames.send(frame);
    }
}

/// The writer task. It is aborted on drop, because a pipe that is not read must not outlive the attempt.
#[derive(Debug)]
pub(super) struct ControlFrameWriter(JoinHandle<()>);

impl Drop for ControlFrameWriter {
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
        let (queue, _writer) = ControlFrameQueue::start(pipe, 20);
        let frame = || ControlFrame(b"0123456789".to_vec());
        assert!(
            queue.has_capacity_for(&ControlFrame(vec![b'x'; 100])),
            "a single frame may have any length"
        );
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
        assert_eq!(
            (&read[..], &rest[..]),
            (&b"0123456789\n"[..], &b"0123456789\n"[..])
        );
    }
}
