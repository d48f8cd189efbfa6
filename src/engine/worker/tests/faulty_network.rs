//! A network that loses, repeats, delays, reorders and interrupts messages.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::worker::uplink::lock;

/// From when nothing is lost.
const CALM_AFTER: Duration = Duration::from_secs(300);

/// What a network does to messages, per thousand.
#[derive(Clone, Debug)]
pub(super) struct NetworkFaults {
    seed: u64,
    lost: u64,
    repeated: u64,
    max_delay_ms: u64,
    /// When nothing arrives: the start and the length in seconds, and the directions.
    partitions: Vec<(u64, u64, bool, bool)>,
    /// The other side notices the end of a connection.
    notices_close: bool,
}

pub(super) fn network_faults() -> impl Strategy<Value = NetworkFaults> {
    let partition = (0..100_u64, 1..100_u64, any::<bool>(), any::<bool>());
    let parts = (
        any::<u64>(),
        0..300_u64,
        0..500_u64,
        1..4000_u64,
        prop::collection::vec(partition, 0..4),
        any::<bool>(),
    );
    parts.prop_map(
        |(seed, lost, repeated, max_delay_ms, partitions, notices_close)| NetworkFaults {
            seed,
            lost,
            repeated,
            max_delay_ms,
            partitions,
            notices_close,
        },
    )
}

/// A network between an engine and a worker.
#[derive(Debug)]
pub(super) struct FaultyNetwork {
    faults: NetworkFaults,
    random: Mutex<u64>,
    began: Instant,
}

impl FaultyNetwork {
    pub(super) fn new(faults: NetworkFaults) -> Arc<Self> {
        let random = Mutex::new(faults.seed | 1);
        Arc::new(Self {
            faults,
            random,
            began: Instant::now(),
        })
    }

    /// A number below `limit`.
    fn below(&self, limit: u64) -> u64 {
        let mut random = lock(&self.random);
        // xorshift64
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % limit.max(1)
    }

    /// When the copies of a message arrive.
    fn deliveries(&self, to_engine: bool) -> Vec<Duration> {
        let now = self.began.elapsed();
        if now >= CALM_AFTER {
            return vec![Duration::ZERO];
        }
        let is_cut = self
            .faults
            .partitions
            .iter()
            .any(|(start, length, up, down)| {
                let is_direction = if to_engine { *up } else { *down };
                is_direction && (*start..start + length).contains(&now.as_secs())
            });
        if is_cut || self.below(1000) < self.faults.lost {
            return Vec::new();
        }
        let copies = 1 + u64::from(self.below(1000) < self.faults.repeated);
        (0..copies)
            .map(|_| Duration::from_millis(self.below(self.faults.max_delay_ms)))
            .collect()
    }

    /// Carries messages as JSON until their sender is gone.
    pub(super) async fn carry<T>(
        self: Arc<Self>,
        mut from: mpsc::UnboundedReceiver<T>,
        to: mpsc::Sender<T>,
        to_engine: bool,
    ) where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let mut copies = JoinSet::new();
        while let Some(message) = from.recv().await {
            let json = serde_json::to_vec(&message).unwrap();
            for delay in self.deliveries(to_engine) {
                let (to, message) = (to.clone(), serde_json::from_slice(&json).unwrap());
                copies.spawn(async move {
                    wait(delay).await;
                    // The receiver may be gone.
                    let _ = to.send(message).await;
                });
            }
        }
        while copies.join_next().await.is_some() {}
        if !self.faults.notices_close {
            std::future::pending::<()>().await;
        }
    }
}

/// Runs `test` with a clock that advances only when everything waits.
pub(super) fn run_paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test);
}

/// Waits on the clock of [`run_paused`].
pub(super) async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}
