//! Changes outside the raw files of a unit that are a reason to run it.
//!
//! A file counts as changed for a unit if its content was another one when the unit last succeeded. It is a reason if a raw
//! file of the unit refers to a name that the file defines, now or then, or if the unit reads the file for its content, as
//! the code of a model. If a file has no known name, neither now nor then,
//! a unit that refers to an undefined name counts as well. Changes that KTX or an older version ingested do not count,
//! because these programs decided by their own rules which units to run for them. Files are only read for their references
//! if any content changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    rc::Rc,
};

use crate::{
    baseline::{PriorFileRecord, RecordTime},
    connection::Connection,
    source::{
        SourceAdapter, SourceTree, UnitChunk,
        proposal::is_below,
        references::{FileReferences, ReferenceReader, file_name},
    },
    source_diff::SourceDiff,
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// The changed files of a source, as each unit sees them.
pub(super) struct Neighbourhood<'a> {
    adapter: &'static dyn SourceAdapter,
    tree: &'a SourceTree,
    prior: &'a BTreeMap<String, PriorFileRecord>,
    /// Files whose changes may be a reason: those that came later than others, and those with more than one content in the
    /// records and now. Sorted.
    candidates: Vec<&'a str>,
    /// When a file of each extension was first recorded. Earlier programs did not read other kinds of files.
    kinds: HashMap<&'a str, RecordTime>,
    reader: Option<Box<dyn ReferenceReader + 'a>>,
    since: HashMap<RecordTime, Rc<ChangedFiles<'a>>>,
    defined: HashMap<&'a str, Option<BTreeSet<String>>>,
}

/// The files whose content changed since a time.
#[derive(Default)]
struct ChangedFiles<'a> {
    all: BTreeSet<&'a str>,
    /// Files that units read for their content only, which are not in `all`.
    aids: BTreeSet<&'a str>,
    by_name: HashMap<String, Vec<&'a str>>,
    /// Existing files of which no name is known.
    unnamed: Vec<&'a str>,
}

impl<'a> Neighbourhood<'a> {
    /// `deleted` has the deleted files that the records name, sorted.
    pub(super) fn new(
        connection: &Connection,
        adapter: &'static dyn SourceAdapter,
        tree: &'a SourceTree,
        prior: &'a BTreeMap<String, PriorFileRecord>,
        deleted: &'a [String],
    ) -> Self {
        let mut kinds: HashMap<&str, RecordTime> = HashMap::new();
        for (path, time) in prior
            .iter()
            .filter_map(|(path, record)| Some((path, record.first_time()?)))
        {
            let known = kinds.entry(extension(path)).or_insert(time);
            *known = time.min(*known);
        }
        let references_since = prior
            .values()
            .filter_map(PriorFileRecord::first_named_time)
            .min();
        let now = |path: &str| tree.get(path).and_then(|file| file.fingerprint);
        let is_settled = |path: &str, record: &PriorFileRecord| {
            kinds
                .get(extension(path))
                .is_some_and(|first| record.is_constant_since(*first, now(path)))
                || record.is_from_before_references(now(path), references_since)
        };
        let is_candidate = |path: &str| {
            prior
                .get(path)
                .is_none_or(|record| !is_settled(path, record))
        };
        let files = tree
            .files
            .iter()
            .filter(|file| file.fingerprint.is_some())
            .map(|file| file.path.as_str());
        let mut candidates: Vec<&str> = files
            .chain(deleted.iter().map(String::as_str))
            .filter(|path| is_candidate(path))
            .collect();
        candidates.sort_unstable();
        let reader = if candidates.is_empty() {
            None
        } else {
            adapter.reference_reader(connection, tree, deleted)
        };
        Self {
            adapter,
            tree,
            prior,
            candidates,
            kinds,
            reader,
            since: HashMap::new(),
            defined: HashMap::new(),
        }
    }

    /// Changed files that a unit refers to, and whether that is uncertain because not all its references can be read.
    /// `files` are its raw files, each with the time as of which the unit read the other files.
    pub(super) fn referred(
        &mut self,
        unit: &UnitChunk,
        files: &[(&str, RecordTime)],
    ) -> (Vec<String>, bool) {
        let own: HashSet<&str> = unit.raw_files.iter().map(String::as_str).collect();
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let mut is_uncertain = false;
        for (path, time) in files {
            let changed = self.changed_since(*time);
            if changed.all.iter().all(|path| own.contains(path)) {
                continue;
            }
            let Some(reader) = &mut self.reader else {
                break;
            };
            let references = reader.references(unit, path);
            let mut referred = changed.referred(&references, reader.as_mut());
            referred.retain(|to| !own.contains(to) && reader.may_see(path, &references, to));
            is_uncertain |= references.is_unknown && !referred.is_empty();
            found.extend(referred);
        }
        let first = files.iter().map(|(_, time)| *time).min();
        let may_read = unit.dependency_paths.iter().map(String::as_str);
        if let Some(time) = first {
            let changed = self.changed_since(time);
            found.extend(may_read.filter_map(|path| changed.aids.get(path)));
        }
        (found.into_iter().map(str::to_owned).collect(), is_uncertain)
    }

    /// Changed files among the dependencies and peers of a unit since `time`, without those in `known`.
    pub(super) fn around(
        &mut self,
        unit: &UnitChunk,
        time: RecordTime,
        known: &[String],
    ) -> Vec<String> {
        let changed = self.changed_since(time);
        let dependencies = unit.dependency_paths.iter().map(String::as_str);
        let around = dependencies.chain(unit.peer_file_index.iter().map(|path| &**path));
        let around: BTreeSet<&str> = around.filter(|path| changed.all.contains(path)).collect();
        around
            .into_iter()
            .filter(|path| !known.iter().any(|known| known == path))
            .map(str::to_owned)
            .collect()
    }

    fn changed_since(&mut self, time: RecordTime) -> Rc<ChangedFiles<'a>> {
        if let Some(known) = self.since.get(&time) {
            return known.clone();
        }
        let mut changed = ChangedFiles::default();
        for path in self.candidates.clone() {
            let now = self.tree.get(path).and_then(|file| file.fingerprint);
            let then = self
                .prior
                .get(path)
                .and_then(|record| record.content_at(time));
            let is_changed = match &then {
                Some(then) => then.content != now,
                None => {
                    now.is_some()
                        && self
                            .kinds
                            .get(extension(path))
                            .is_some_and(|first| *first <= time)
                }
            };
            if !is_changed {
                continue;
            }
            if self.adapter.is_reading_aid(path) {
                changed.aids.insert(path);
                continue;
            }
            changed.all.insert(path);
            if self.reader.is_none() {
                continue;
            }
            let mut names = BTreeSet::from([file_name(path)]);
            if now.is_none() && then.as_ref().is_none_or(|then| then.defines.is_none()) {
                // An older version recorded it without names; most files define what they are named after.
                names.extend(file_name(path).split('.').next().map(str::to_owned));
            }
            let before = then.and_then(|then| then.defines);
            let after = if now.is_some() {
                self.defined_now(path)
            } else {
                None
            };
            names.extend(
                before
                    .iter()
                    .flat_map(|names| names.iter())
                    .chain(after.into_iter().flatten())
                    .cloned(),
            );
            if now.is_some() && before.is_none() && after.is_none() {
                changed.unnamed.push(path);
            }
            for name in names {
                changed.by_name.entry(name).or_default().push(path);
            }
        }
        let changed = Rc::new(changed);
        self.since.insert(time, changed.clone());
        changed
    }

    fn defined_now(&mut self, path: &'a str) -> Option<&BTreeSet<String>> {
        let (adapter, tree) = (self.adapter, self.tree);
        let read = || {
            tree.read_text(path)
                .ok()
                .and_then(|text| adapter.defined_names(path, &text))
        };
        self.defined.entry(path).or_insert_with(read).as_ref()
    }
}

impl<'a> ChangedFiles<'a> {
    fn referred(
        &self,
        references: &FileReferences,
        reader: &mut dyn ReferenceReader,
    ) -> Vec<&'a str> {
        if references.is_unknown {
            return self.all.iter().copied().collect();
        }
        let names = references.names.iter().chain(&references.open_names);
        let named = names
            .filter_map(|name| self.by_name.get(name))
            .flatten()
            .copied();
        let mut found: Vec<&str> = named.collect();
        if !self.unnamed.is_empty() && reader.refers_to_undefined(references) {
            found.extend(&self.unnamed);
        }
        found
    }
}

/// Deleted files that the records name, sorted: those whose artifacts wait for a decision, those that have one, and those
/// that no unit has processed.
pub(super) fn deleted_files(
    prior: &BTreeMap<String, PriorFileRecord>,
    tree: &SourceTree,
    diff: &SourceDiff,
    adapter: &dyn SourceAdapter,
) -> Vec<String> {
    let is_missing = missing_below(tree);
    let is_gone = |path: &&String| {
        let is_open = diff.deleted.binary_search(path).is_ok();
        is_open
            || (adapter.accepts_file(path)
                && tree.get(path).is_none()
                && !tree.may_contain(path)
                && is_missing(path))
    };
    prior.keys().filter(is_gone).cloned().collect()
}

/// Removes files from the deletions that are not deleted: files that still exist and that the adapter does not read any
/// longer, and, of those that only KTX recorded, all that exist or that the adapter does not read. If none of KTX's files
/// exist, its paths are relative to another directory, and no file counts as deleted.
pub(super) fn retain_deleted(
    diff: &mut SourceDiff,
    tree: &SourceTree,
    takes: impl Fn(&str) -> bool,
    is_of_ktx: impl Fn(&str) -> bool,
) {
    let any_there = diff
        .modified
        .iter()
        .chain(&diff.unchanged)
        .any(|path| is_of_ktx(path));
    let is_missing = missing_below(tree);
    diff.deleted
        .retain(|path| is_missing(path) && (!is_of_ktx(path) || any_there && takes(path)));
}

/// Whether a file of a source does not exist. One that is reached through a link exists under another path, too.
fn missing_below(tree: &SourceTree) -> impl Fn(&str) -> bool {
    let root = ScopedDir::open(&tree.root);
    let is_linked = |path: &str| tree.links.iter().any(|(link, _)| is_below(path, link));
    move |path| match root.as_ref().map(|root| root.kind(path)) {
        Ok(Ok(kind)) => kind.is_none_or(|kind| kind == FileKind::Directory),
        Ok(Err(error)) => error.kind() == io::ErrorKind::NotADirectory && !is_linked(path),
        Err(_) => false,
    }
}

fn extension(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map_or("", |(_, extension)| extension)
}
