//! A network that delays and interrupts messages, and loses none: what the transports make of a real one.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::mpsc, time::Instant};

use crate::worker::uplink::lock;

/// What a network does to messages.
#[derive(Clone, Debug)]
pub(super) struct NetworkFaults {
    seed: u64,
    max_delay_ms: u64,
    /// When nothing arrives: the start and the length in seconds, and the directions.
    partitions: Vec<(u64, u64, bool, bool)>,
    /// The other side notices the end of a connection.
    notices_close: bool,
    /// How long the engine and the worker wait for each other.
    pub patience: (Duration, Duration),
}

pub(super) fn network_faults() -> impl Strategy<Value = NetworkFaults> {
    let partition = (0..100_u64, 1..100_u64, any::<bool>(), any::<bool>());
    let patience = prop_oneof![Just((30, 30)), Just((60, 1800))];
    let parts = (
        any::<u64>(),
        1..4000_u64,
        prop::collection::vec(partition, 0..4),
        any::<bool>(),
        patience,
    );
    parts.prop_map(
        |(seed, max_delay_ms, partitions, notices_close, (engine, worker))| NetworkFaults {
            seed,
            max_delay_ms,
            partitions,
            notices_close,
            patience: (Duration::from_secs(engine), Duration::from_secs(worker)),
        },
    )
}

/// A network between an engine and a worker.
#[derive(Debug)]
pub(super) struct FaultyNetwork {
    pub faults: NetworkFaults,
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

    /// How long a message takes that is sent now.
    fn delay(&self, to_engine: bool) -> Duration {
        let now = self.began.elapsed();
        let ends = self
            .faults
            .partitions
            .iter()
            .filter(|(start, length, up, down)| {
                let is_direction = if to_engine { *up } else { *down };
                is_direction && (*start..start + length).contains(&now.as_secs())
            })
            .map(|(start, length, ..)| Duration::from_secs(start + length));
        let cut = ends.max().map_or(Duration::ZERO, |end| end - now);
        cut + Duration::from_millis(self.below(self.faults.max_delay_ms))
    }

    /// Carries messages as JSON, in order, until their sender is gone.
    pub(super) async fn carry<T, D>(
        self: Arc<Self>,
        mut from: mpsc::UnboundedReceiver<T>,
        to: mpsc::Sender<D>,
        to_engine: bool,
    ) where
        T: Serialize + Send + 'static,
        D: DeserializeOwned + Send + 'static,
    {
        let mut arrived = Instant::now();
        while let Some(message) = from.recv().await {
            let json = serde_json::to_vec(&message).unwrap();
            arrived = arrived.max(Instant::now() + self.delay(to_engine));
            tokio::time::sleep_until(arrived).await;
            // The receiver may be gone.
            let _ = to.send(serde_json::from_slice(&json).unwrap()).await;
        }
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
