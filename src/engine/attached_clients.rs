//! The attached clients of a run: how many there are, and what they are informed about.
//!
//! A run stays open for commands after its last unit while a client is attached. The module must not depend on the
//! transport of clients.

use tokio::sync::watch;

/// The attached clients of one run; clones share them.
#[derive(Clone, Debug)]
pub struct AttachedClients {
    count: watch::Sender<usize>,
    /// The run no longer stays open for clients.
    is_released: watch::Sender<bool>,
    failure: watch::Sender<Option<String>>,
}

/// One attached client, until it is dropped.
#[derive(Debug)]
pub struct ClientGuard(AttachedClients);

impl AttachedClients {
    pub(super) fn new() -> Self {
        Self {
            count: watch::Sender::new(0),
            is_released: watch::Sender::new(false),
            failure: watch::Sender::new(None),
        }
    }

    pub(crate) fn attach(&self) -> ClientGuard {
        let is_released = *self.is_released.borrow();
        self.count
            .send_modify(|count| *count += usize::from(!is_released));
        ClientGuard(self.clone())
    }

    /// Lets the run end although clients are attached.
    pub fn release(&self) {
        self.is_released.send_replace(true);
        self.count.send_replace(0);
    }

    /// A person is there, although possibly without a screen.
    pub(super) fn note_activity(&self) {
        self.count.send_modify(|_| ());
    }

    /// Number of attached clients.
    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Reports the number of attached clients whenever it changes or a client sends a command.
    pub(super) fn subscribe(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Informs the clients that the run was aborted. The tape cannot contain the reason.
    pub(super) fn report_failure(&self, reason: String) {
        self.failure.send_replace(Some(reason));
    }

    /// Reports why the run was aborted.
    pub(super) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.subscribe()
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.0
            .count
            .send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_run_counts_no_clients() {
        let clients = AttachedClients::new();
        let first = clients.attach();
        assert_eq!(clients.count(), 1);
        clients.release();
        let second = clients.attach();
        drop(first);
        assert_eq!(clients.count(), 0);
        drop(second);
        assert_eq!(clients.count(), 0);
    }
}
