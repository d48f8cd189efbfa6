//! What the tape of an earlier run knows about attempts that still run on workers, or whose results wait on a server.
//!
//! The module must not know workers.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, BufRead as _, BufReader},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{protocol::AttemptLease, remote_attempt};
use ingestdeck_core::tape::{EntryBody, Note, RunId, TapeEntry, UnitKey};
use ingestdeck_records::store::RunStore;

/// The earlier run, for each server where its attempts may be.
pub(crate) type SharedPrior = Arc<PriorTape>;

/// The tape of the run that another one continues.
#[derive(Debug)]
pub(crate) struct PriorTape {
    pub run: RunId,
    /// Where its tape and those of earlier runs are.
    pub runs: RunStore,
    /// The units that run again: the attempts of others have no use.
    pub units: HashSet<UnitKey>,
}

impl PriorTape {
    fn open(&self, run: RunId) -> io::Result<File> {
        self.runs.open_tape(&self.runs.recorded_run(run))
    }
}

/// The record of a lease on the server, for the run that continues the one that granted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub worker: String,
    /// The connection of the worker, and its run: an earlier one if the attempt was adopted.
    pub link: String,
    pub run: RunId,
    /// As the worker knows it.
    pub lease: AttemptLease,
    /// The number of the attempt in the run that wrote the record.
    pub attempt: u32,
    /// The run whose tape has its entries, and its number there; `None` for the run that granted the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<(RunId, u32)>,
    pub account: String,
    pub session: String,
    /// What the attempt reads and starts from.
    pub content: String,
}

/// An attempt that another run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdoptedAttempt {
    pub account: String,
    pub session: String,
    /// What the attempt reads and starts from.
    pub content: String,
    /// Its entries so far, as lines of the tape.
    pub entries: Vec<Vec<u8>>,
}

/// The attempts of `records` that are not over, with their entries. Blocks on tapes.
///
/// # Errors
/// If the tape of the earlier run cannot be read.
pub(super) fn unfinished(
    prior: &PriorTape,
    records: Vec<LeaseRecord>,
) -> io::Result<Vec<(LeaseRecord, AdoptedAttempt)>> {
    let key = |record: LeaseRecord| {
        let adopted = AdoptedAttempt {
            account: record.account.clone(),
            session: record.session.clone(),
            content: record.content.clone(),
            entries: Vec::new(),
        };
        let key = (record.lease.unit.as_str().to_owned(), record.attempt);
        (key, (record, adopted))
    };
    let mut found: FoundAttempts = records.into_iter().map(key).collect();
    read_entries(prior.open(prior.run)?, &mut found)?;
    let (mut complete, mut unclaimed) = (Vec::new(), HashMap::<RunId, FoundAttempts>::new());
    for (_, (record, adopted)) in found {
        if adopted.entries.is_empty() && record.run != prior.run {
            // The earlier run had adopted the attempt as well, and ended before it claimed it.
            let (run, attempt) = record
                .recorded
                .unwrap_or((record.run, record.lease.attempt));
            let key = (record.lease.unit.as_str().to_owned(), attempt);
            let of_run = unclaimed.entry(run).or_default();
            of_run.insert(key, (record, adopted));
        } else {
            let recorded = Some((prior.run, record.attempt));
            complete.push((LeaseRecord { recorded, ..record }, adopted));
        }
    }
    for (run, mut found) in unclaimed {
        // Without that tape, the attempt begins again.
        match prior
            .open(run)
            .and_then(|tape| read_entries(tape, &mut found))
        {
            Ok(()) => complete.extend(found.into_values()),
            Err(error) => {
                tracing::warn!(%error, %run, "attempts of an earlier run are not continued")
            }
        }
    }
    Ok(complete)
}

/// Attempts by their unit and number on a tape.
type FoundAttempts = HashMap<(String, u32), (LeaseRecord, AdoptedAttempt)>;

/// Adds the entries of a tape to the attempts of it, and removes those that are over.
fn read_entries(tape: File, found: &mut FoundAttempts) -> io::Result<()> {
    let mut reader = BufReader::new(tape);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        // The last line of a run that was killed may be torn.
        let Some(Ok(entry)) = line.strip_suffix(b"\n").map(TapeEntry::parse) else {
            continue;
        };
        let Some((unit, attempt)) = entry.attempt else {
            continue;
        };
        let key = (unit.into_owned(), attempt);
        if let EntryBody::Note(note) = &entry.body {
            match Note::parse(note) {
                Note::AttemptEnded(_) => {
                    found.remove(&key);
                    continue;
                }
                note if !remote_attempt::is_note_of_an_agent(&note) => continue,
                _ => {}
            }
        }
        if let Some((_, adopted)) = found.get_mut(&key) {
            adopted
                .entries
                .push(line.strip_suffix(b"\n").unwrap_or_default().to_vec());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two runs adopted an attempt, and the second was killed before a unit claimed it.
    #[test]
    fn entries_of_an_unclaimed_attempt_are_those_of_its_first_run() {
        let place = tempfile::tempdir().unwrap();
        let [first, second] = [1, 2].map(|number| RunId(uuid::Uuid::from_u128(number)));
        let line = |unit: &str, number: u32, text: &str| {
            format!(
                r#"{{"seq":0,"at":0,"unit":"{unit}","try":{number},"out":{{"type":"{text}"}}}}"#
            ) + "\n"
        };
        let tapes = [
            (first, line("a", 2, "first") + &line("a", 1, "earlier")),
            (second, line("b", 1, "second")),
        ];
        for (run, text) in tapes {
            let folder = place
                .path()
                .join(".ktx/ingestdeck/runs")
                .join(run.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("tape.jsonl"), text).unwrap();
        }
        let record = |unit: &str, run: RunId, attempt: u32| LeaseRecord {
            worker: "w".to_owned(),
            link: "l".to_owned(),
            run,
            lease: AttemptLease {
                unit: unit.into(),
                attempt,
                fence: 1,
            },
            attempt: 1,
            recorded: None,
            account: String::new(),
            session: String::new(),
            content: String::new(),
        };
        let prior = PriorTape {
            run: second,
            runs: RunStore::new(place.path()),
            units: HashSet::new(),
        };
        let records = vec![
            record("a", first, 2),
            record("b", first, 3),
            record("c", second, 1),
        ];
        let mut found: Vec<_> = unfinished(&prior, records)
            .unwrap()
            .into_iter()
            .map(|(record, adopted)| {
                let entries = adopted.entries.concat();
                (record.lease.unit, String::from_utf8(entries).unwrap())
            })
            .collect();
        found.sort();
        let entry = |text: String| text.trim_end().to_owned();
        assert_eq!(
            found,
            [
                ("a".into(), entry(line("a", 2, "first"))),
                ("b".into(), entry(line("b", 1, "second"))),
                ("c".into(), String::new()),
            ]
        );
    }
}
