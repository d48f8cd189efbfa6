//! Deletes what runs that are over have left on a server before it expires there.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    time::Duration,
};

use async_nats::jetstream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::time::timeout;

use super::{
    Announcement, NatsServer,
    pool_streams::{LinkId, PoolNames, PoolStreams},
};
use ingestdeck_core::diagnostic::Problem;

/// How long to listen for runs: they announce themselves every 3 s.
const LISTENING: Duration = Duration::from_secs(8);

/// Number of things that were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedGarbage {
    pub messages: usize,
    pub leases: usize,
    pub files: usize,
    /// Runs that are active, of which nothing was deleted.
    pub active_runs: usize,
}

impl NatsServer {
    /// Deletes the messages and leases of runs that are not active and wrote nothing for `age`, and all files if no run
    /// is active. Takes some seconds.
    ///
    /// # Errors
    /// If the server cannot be used.
    pub async fn collect_garbage(&self, age: Duration) -> Result<DeletedGarbage, Problem> {
        let failed = |error: &dyn fmt::Display| {
            Problem::new(format!("cannot clean {}: {error}", self.address))
        };
        let client = self.connect().await?;
        let names = PoolNames(self.pool.clone());
        let streams = PoolStreams::open(jetstream::new(client.clone()), names).await?;
        let listening = client.subscribe(streams.names.runs()).await;
        let mut announced = listening.map_err(|error| failed(&error))?;
        let mut active = HashSet::new();
        let listening = async {
            while let Some(message) = announced.next().await {
                if let Ok(of) = serde_json::from_slice::<Announcement>(&message.payload) {
                    active.insert(of.run.to_string());
                }
            }
        };
        // It ends only with the time.
        let _ = timeout(LISTENING, listening).await;
        let now = jiff::Timestamp::now().as_second();
        let is_old =
            |at: i64| now.saturating_sub(at) >= i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        let mut deleted = DeletedGarbage {
            active_runs: active.len(),
            ..DeletedGarbage::default()
        };
        for stream in [&streams.orders, &streams.entries] {
            let subjects = stream.info_with_subjects(">").await;
            let subjects = subjects.map_err(|error| failed(&error))?;
            let subjects: Vec<(String, usize)> = subjects
                .try_collect()
                .await
                .map_err(|error| failed(&error))?;
            let mut runs: HashMap<String, (Vec<String>, i64)> = HashMap::new();
            for (subject, _) in subjects {
                let Some(link) =
                    LinkId::of_subject(&subject).filter(|of| !active.contains(&of.run))
                else {
                    continue;
                };
                let last = stream.get_last_raw_message_by_subject(&subject).await;
                let at = last.map_or(0, |message| message.time.unix_timestamp());
                let (subjects, newest) = runs.entry(link.run).or_default();
                subjects.push(subject);
                *newest = at.max(*newest);
            }
            for (subjects, newest) in runs.into_values() {
                for subject in subjects.iter().filter(|_| is_old(newest)) {
                    let purged = stream.purge().filter(subject).await;
                    deleted.messages +=
                        usize::try_from(purged.map_err(|error| failed(&error))?.purged)
                            .unwrap_or(0);
                }
            }
        }
        let keys = streams
            .leases
            .keys()
            .await
            .map_err(|error| failed(&error))?;
        let keys: Vec<String> = keys.try_collect().await.map_err(|error| failed(&error))?;
        for key in keys {
            let entry = streams.leases.entry(&key).await;
            let entry = entry.map_err(|error| failed(&error))?;
            let is_over = key
                .split_once('.')
                .is_some_and(|(run, _)| !active.contains(run));
            if is_over && entry.is_some_and(|entry| is_old(entry.created.unix_timestamp())) {
                let purged = streams.leases.purge(&key).await;
                purged.map_err(|error| failed(&error))?;
                deleted.leases += 1;
            }
        }
        if active.is_empty() {
            let files = streams.files.list().await.map_err(|error| failed(&error))?;
            let files: Vec<_> = files.try_collect().await.map_err(|error| failed(&error))?;
            for file in files {
                if file.modified.is_some_and(|at| is_old(at.unix_timestamp())) {
                    let removed = streams.files.delete(&file.name).await;
                    removed.map_err(|error| failed(&error))?;
                    deleted.files += 1;
                }
            }
        }
        Ok(deleted)
    }
}
