//! What earlier runs processed: for each file the content with which its units last succeeded, and the contents that it
//! had before. Pure.
//!
//! A file is settled for a unit by the last success of the unit that contained it in that run, however units are cut now.
//! This module must not know where the records are stored.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::source::{Fingerprint, split::is_part_key};
use ingestdeck_core::tape::{RunId, note::attempt_output::UnreadFile};

/// What earlier runs recorded about sources and units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    sources: HashMap<(String, String), BTreeMap<String, PriorFileRecord>>,
    units: HashMap<(String, String), LastUnitOutcome>,
    successes: HashMap<(String, String), UnitSuccessRecord>,
}

/// The order of runs and of KTX's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordTime(u128);

impl RecordTime {
    pub(crate) const LATEST: Self = Self(u128::MAX);
    /// Bits of a run id after its time.
    const RUN_BITS: u32 = 80;

    pub fn from_run(run: RunId) -> Self {
        Self(run.0.as_u128())
    }

    /// A job of KTX that completed at this time, in milliseconds since 1970. It is later than a run that started in the
    /// same millisecond.
    pub fn from_ktx(completed_ms: u64) -> Self {
        Self((u128::from(completed_ms) << Self::RUN_BITS) | ((1 << Self::RUN_BITS) - 1))
    }
}

/// The last saved success of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnitSuccessRecord {
    read_in: RunId,
    is_own: bool,
}

/// Which installation wrote a record of an earlier run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordOrigin {
    #[default]
    Own,
    /// Another installation of this program.
    Foreign,
    /// KTX, in its database, by a run that completed at this time, in milliseconds since 1970.
    Ktx { completed_ms: u64 },
}

/// Outcome of a unit in the last run that planned it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastUnitOutcome {
    Succeeded,
    Failed,
    /// The unit succeeded, but its result never reached the project.
    Unsaved,
    /// The unit ran out of turns or was stopped; contains the reason as a sentence.
    Incomplete(String),
    /// The unit was planned, and neither succeeded nor failed.
    Unfinished,
}

/// What one run, or KTX, recorded about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileEvent {
    pub time: RecordTime,
    pub origin: RecordOrigin,
    /// `None` for a deleted file.
    pub content: Option<Fingerprint>,
    pub outcome: FileOutcome,
    /// Results of the units that contained the file, by KTX's key.
    pub units: Vec<(String, UnitFileOutcome)>,
    /// The part that units with a saved success left unread, by KTX's key.
    pub unread: BTreeMap<String, UnreadFile>,
    /// Names that the file defined; `None` if they are not recorded.
    pub defines: Option<Vec<String>>,
}

/// Result of a run for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileOutcome {
    /// All its units succeeded.
    Processed,
    /// The file was deleted, and its artifacts are decided about.
    Evicted,
    /// The file is not settled, or only for some of its units.
    #[default]
    Open,
}

/// Result of a unit for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFileOutcome {
    /// A saved success that rests on the files as of this time.
    Succeeded(RecordTime),
    Failed,
}

/// What earlier runs recorded about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorFileRecord {
    /// Content when all units of the file last succeeded, and the time of the record; `None` if that never happened, or if
    /// the file was deleted since.
    processed: Option<(Fingerprint, RecordTime)>,
    /// Results of single units since then, or with the same content.
    units: BTreeMap<String, UnitRecord>,
    /// Which installation recorded the newest success.
    origin: RecordOrigin,
    /// Contents so far, oldest first. Equal ones in sequence are one.
    contents: Vec<ContentRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnitRecord {
    time: RecordTime,
    /// The content and the time as of which the unit read other files; `None` if the unit failed.
    success: Option<(Fingerprint, RecordTime)>,
    /// The part that the unit left unread in this success.
    unread: Option<UnreadFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ContentRecord {
    time: RecordTime,
    is_of_ktx: bool,
    content: Option<Fingerprint>,
    /// True if later records that do not name the file found the same content.
    is_lasting: bool,
    defines: Option<Arc<[String]>>,
}

/// A content of a file, as far as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordedContent {
    /// `None` if the file did not exist.
    pub(super) content: Option<Fingerprint>,
    /// Names that the file defined; `None` if they are not recorded.
    pub(super) defines: Option<Arc<[String]>>,
}

impl PriorFileRecord {
    /// A file with the given records, oldest first.
    pub fn from_events(events: impl IntoIterator<Item = FileEvent>) -> Self {
        let mut record = Self::default();
        events.into_iter().for_each(|event| record.add(event));
        record
    }

    fn add(&mut self, event: FileEvent) {
        let FileEvent {
            time,
            origin,
            content,
            outcome,
            units,
            mut unread,
            defines,
        } = event;
        let has_success = units
            .iter()
            .any(|(_, result)| matches!(result, UnitFileOutcome::Succeeded(_)));
        self.add_content(ContentRecord {
            time,
            is_of_ktx: matches!(origin, RecordOrigin::Ktx { .. }),
            content,
            is_lasting: outcome != FileOutcome::Open || has_success,
            defines: defines.map(Arc::from),
        });
        match (outcome, content) {
            (FileOutcome::Evicted, _) | (FileOutcome::Processed, None) => {
                (self.processed, self.origin) = (None, origin);
                self.units.clear();
            }
            (FileOutcome::Processed, Some(content)) => {
                let has_same =
                    |unit: &UnitRecord| unit.success.is_some_and(|(was, _)| was == content);
                // KTX's record of the same content adds nothing to a success of this program.
                let is_known = matches!(origin, RecordOrigin::Ktx { .. })
                    && self.processed.is_some_and(|(was, _)| was == content)
                    && self.units.values().all(has_same);
                if !is_known {
                    (self.processed, self.origin) = (Some((content, time)), origin);
                    self.units.retain(|_, unit| has_same(unit));
                }
            }
            (FileOutcome::Open, _) if has_success => self.origin = origin,
            (FileOutcome::Open, _) => {}
        }
        for (unit, result) in units {
            let success = match (result, content) {
                (UnitFileOutcome::Succeeded(read_at), Some(content)) => Some((content, read_at)),
                _ => None,
            };
            // A run that reuses a saved result does not repeat what was left unread.
            let known = self
                .units
                .get(&unit)
                .filter(|known| known.success == success);
            let unread = unread
                .remove(&unit)
                .or_else(|| known?.unread.clone())
                .filter(|_| success.is_some());
            self.units.insert(
                unit,
                UnitRecord {
                    time,
                    success,
                    unread,
                },
            );
        }
    }

    fn add_content(&mut self, new: ContentRecord) {
        let is_same = |last: &ContentRecord| {
            last.is_lasting
                && last.content == new.content
                && (last.defines == new.defines || new.defines.is_none())
        };
        if !self.contents.last().is_some_and(is_same) {
            self.contents.push(new);
        }
    }

    /// True if a unit succeeded with the file, unless the file was deleted since and the deletion was processed.
    pub(crate) fn is_processed(&self) -> bool {
        self.processed.is_some() || self.units.values().any(|unit| unit.success.is_some())
    }

    /// Which installation recorded that a unit succeeded with the file; `None` if none did.
    pub fn origin(&self) -> Option<RecordOrigin> {
        self.is_processed().then_some(self.origin)
    }

    /// The content that a run or KTX saw last; `None` without a record, and for a deleted file.
    pub(super) fn last_content(&self) -> Option<Fingerprint> {
        self.contents.last()?.content
    }

    /// Whether the file with the content `now` is settled for `unit`; the time is that as of which the unit read other
    /// files. `owners` are the units that contain the file now.
    pub fn settled_at(
        &self,
        unit: Option<&str>,
        now: Fingerprint,
        owners: &FileOwners<'_>,
        last_success: impl Fn(&str) -> Option<RecordTime>,
    ) -> Option<RecordTime> {
        let is_own = |key: &str| unit == Some(key);
        // The unit that contains all of the file now had parts of it before.
        let are_shared = owners.are_shared || self.units.keys().any(|key| is_part_key(key));
        let counting = self.counting_results(unit, owners);
        let since = self.processed.map(|(_, time)| time);
        let mut content = self.processed.map(|(content, _)| content);
        for (key, record) in counting
            .iter()
            .filter(|(_, record)| since.is_none_or(|since| record.time > since))
        {
            let was = record.success.map(|(was, _)| was);
            let is_part = are_shared && !is_own(key);
            content = if is_part && content != was { None } else { was };
        }
        if content != Some(now) {
            return None;
        }
        // A later success of the unit read the files around it, too.
        let read_at = |(key, record): &(&str, &UnitRecord)| {
            let (_, read_at) = record.success.filter(|(was, _)| *was == now)?;
            Some(last_success(key).map_or(read_at, |later| later.max(read_at)))
        };
        let own = counting
            .iter()
            .filter(|(key, _)| is_own(key))
            .find_map(read_at);
        let read = || counting.iter().filter_map(read_at);
        // Units that share files each read what is around them.
        let last = if are_shared {
            own.or_else(|| read().min())
        } else {
            read().max()
        };
        last.or(since)
    }

    /// The results for `unit` by time: its own, and those of units that contained the file in an earlier cut.
    fn counting_results(
        &self,
        unit: Option<&str>,
        owners: &FileOwners<'_>,
    ) -> Vec<(&str, &UnitRecord)> {
        let counts = |key: &str| unit.is_none_or(|unit| unit == key) || !owners.units.contains(key);
        let results = self
            .units
            .iter()
            .map(|(key, record)| (key.as_str(), record));
        let mut counting: Vec<(&str, &UnitRecord)> =
            results.filter(|(key, _)| counts(key)).collect();
        counting.sort_by_key(|(_, record)| record.time);
        counting
    }

    /// The part that the last success of `unit` left unread, if the file with the content `now` is settled for it.
    pub(super) fn unread_by(
        &self,
        unit: &str,
        now: Fingerprint,
        owners: &FileOwners<'_>,
    ) -> Option<&UnreadFile> {
        if self.units.values().all(|record| record.unread.is_none()) {
            return None;
        }
        let counting = self.counting_results(Some(unit), owners);
        let is_of_content = |record: &UnitRecord| record.success.is_some_and(|(was, _)| was == now);
        let (_, last) = counting
            .into_iter()
            .rfind(|(_, record)| is_of_content(record))?;
        last.unread.as_ref()
    }

    /// The content of the file at `time`; `None` if it was not recorded by then.
    pub(super) fn content_at(&self, time: RecordTime) -> Option<RecordedContent> {
        let upto = self.contents.partition_point(|record| record.time <= time);
        let known = self.contents.get(..upto)?;
        let found = match known.last() {
            Some(last) if last.time == time => last,
            _ => known.iter().rfind(|record| record.is_lasting)?,
        };
        Some(RecordedContent {
            content: found.content,
            defines: found.defines.clone(),
        })
    }

    /// True if the file has had the content `now` since the time `first`.
    pub(super) fn is_constant_since(&self, first: RecordTime, now: Option<Fingerprint>) -> bool {
        let is_first = |record: &ContentRecord| record.time == first && record.is_lasting;
        self.contents.first().is_some_and(is_first)
            && self.contents.iter().all(|record| record.content == now)
    }

    /// True if a program that did not run units for changes around their files ingested the content `now`, or recorded
    /// that the file was deleted: KTX, or an older version before `references_since`.
    pub(super) fn is_from_before_references(
        &self,
        now: Option<Fingerprint>,
        references_since: Option<RecordTime>,
    ) -> bool {
        let latest = self
            .contents
            .iter()
            .rev()
            .take_while(|record| record.content == now);
        let first = latest
            .filter(|record| record.is_lasting || now.is_none())
            .last();
        first.is_some_and(|first| {
            first.is_of_ktx || references_since.is_none_or(|since| first.time < since)
        })
    }

    /// The time of the first record with the names that the file defined.
    pub(super) fn first_named_time(&self) -> Option<RecordTime> {
        self.contents
            .iter()
            .find(|record| record.defines.is_some())
            .map(|record| record.time)
    }

    /// The time of the first record.
    pub(super) fn first_time(&self) -> Option<RecordTime> {
        self.contents.first().map(|record| record.time)
    }
}

/// The units that contain a file now.
#[derive(Clone, Debug, Default)]
pub struct FileOwners<'a> {
    pub(crate) units: BTreeSet<&'a str>,
    /// True if units of the source may have files in common. The success of one of them then does not count for others.
    pub(crate) are_shared: bool,
}

impl Baseline {
    pub fn add_file(
        &mut self,
        connection: &str,
        adapter: &str,
        path: String,
        prior: PriorFileRecord,
    ) {
        self.sources
            .entry((connection.into(), adapter.into()))
            .or_default()
            .insert(path, prior);
    }

    /// Adds the last outcome of a unit, by KTX's key.
    pub fn add_unit(&mut self, connection: String, unit: String, standing: LastUnitOutcome) {
        self.units.insert((connection, unit), standing);
    }

    /// Adds the run whose files the last success of a unit, by connection and KTX's key, rests on; `is_own` if this
    /// installation recorded it.
    pub fn add_success(&mut self, unit: (String, String), read_in: RunId, is_own: bool) {
        self.successes
            .insert(unit, UnitSuccessRecord { read_in, is_own });
    }

    /// True if the unit last succeeded in a run of this installation that started after the time `ms`.
    pub(super) fn succeeded_after(&self, connection: &str, unit: &str, ms: u64) -> bool {
        self.last_own_success(connection, unit)
            .is_some_and(|run| run.started_at_ms() > ms)
    }

    /// The run whose files the last success of a unit rests on, if this installation recorded it.
    pub fn last_own_success(&self, connection: &str, unit: &str) -> Option<RunId> {
        let success = self
            .successes
            .get(&(connection.to_owned(), unit.to_owned()))?;
        success.is_own.then_some(success.read_in)
    }

    /// The time as of which the last success of a unit read its files.
    pub(super) fn last_success(&self, connection: &str, unit: &str) -> Option<RecordTime> {
        let success = self
            .successes
            .get(&(connection.to_owned(), unit.to_owned()))?;
        Some(RecordTime::from_run(success.read_in))
    }

    /// Files of a source; `None` if no run has read it.
    pub(super) fn source_files(
        &self,
        connection: &str,
        adapter: &str,
    ) -> Option<&BTreeMap<String, PriorFileRecord>> {
        self.sources
            .get(&(connection.to_owned(), adapter.to_owned()))
    }

    /// Which installation recorded that a unit succeeded with the file; `None` if none did.
    pub(super) fn origin(
        &self,
        connection: &str,
        adapter: &str,
        path: &str,
    ) -> Option<RecordOrigin> {
        self.source_files(connection, adapter)?.get(path)?.origin()
    }

    /// True if a unit succeeded with the file, unless the file was deleted since and the deletion was processed.
    pub fn is_processed(&self, connection: &str, adapter: &str, path: &str) -> bool {
        let known = self
            .source_files(connection, adapter)
            .and_then(|source| source.get(path));
        known.is_some_and(PriorFileRecord::is_processed)
    }

    /// Like [`is_processed`](Self::is_processed), for any adapter.
    pub fn is_processed_by_any_adapter(&self, connection: &str, path: &str) -> bool {
        let mut sources = self.sources.iter().filter(|((of, _), _)| of == connection);
        sources.any(|(_, files)| files.get(path).is_some_and(PriorFileRecord::is_processed))
    }

    pub(super) fn unit_outcome(&self, connection: &str, unit: &str) -> Option<&LastUnitOutcome> {
        self.units.get(&(connection.to_owned(), unit.to_owned()))
    }
}
