//! Files of reused units that are missing in the project. The module must not judge units: a file may be deleted on
//! purpose.

use std::path::Path;

use crate::WarningSink;
use ingestdeck_core::{
    diagnostic::Problem,
    run::RunState,
    tape::{
        UnitKey,
        note::{PatchResult, attempt_output::ArtifactChange},
    },
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Maximum number of files that a sentence names.
const NAMED: usize = 3;

/// The files that attempt `number` of `unit` put into the project at `root` and that no longer exist there, except
/// those that a unit removed since. `runs` are the later runs, newest first, and then the run of the attempt.
pub(super) fn deleted_since<'a>(
    root: &Path,
    runs: &[&'a RunState],
    unit: &UnitKey,
    number: u32,
) -> Vec<&'a str> {
    let root = ScopedDir::open(root);
    let is_there = |path: &str| {
        root.as_ref()
            .is_ok_and(|root| root.kind(path).is_ok_and(|kind| kind.is_some()))
    };
    let missing = written_files(runs, unit, number)
        .iter()
        .filter(|path| !is_there(path));
    missing
        .filter(|path| !runs.iter().any(|state| is_removed(state, path)))
        .map(String::as_str)
        .collect()
}

fn written_files<'a>(runs: &[&'a RunState], unit: &UnitKey, number: u32) -> &'a [String] {
    let did = runs
        .last()
        .and_then(|state| state.units.iter().find(|did| did.key == *unit));
    let Some(attempt) =
        did.and_then(|did| did.attempts.iter().find(|attempt| attempt.number == number))
    else {
        return &[];
    };
    // A later run may have integrated the patch.
    let mut later = runs
        .iter()
        .filter_map(|state| state.publication.prior_patches.get(unit));
    let is_saved_later = later.any(|taken| taken.is_saved && taken.result == PatchResult::Accepted);
    match &attempt.delivery.patch {
        Some(patch) if is_saved_later => &patch.paths,
        _ => &attempt.delivery.published,
    }
}

fn is_removed(state: &RunState, path: &str) -> bool {
    let key = Path::new(path).file_stem().and_then(|stem| stem.to_str());
    let works = state
        .units
        .iter()
        .filter_map(|unit| unit.latest()?.delivery.output.as_ref());
    works
        .flat_map(|work| &work.actions)
        .any(|did| did.change == ArtifactChange::Removed && Some(did.key.as_str()) == key)
}

/// The end of the sentence about a reused unit that wrote `files`.
pub(super) fn message(files: &[&str]) -> Option<String> {
    let (first, rest) = files.split_first()?;
    let named: Vec<&str> = std::iter::once(first)
        .chain(rest)
        .take(NAMED)
        .copied()
        .collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let are = if files.len() == 1 { "is" } else { "are" };
    Some(format!("{}{more} {are} gone since", named.join(", ")))
}
/// Files may have been deleted on purpose, so they are only written again on request.
pub(super) fn warn_deleted_files(warn: WarningSink<'_>, units: &[String]) {
    if units.is_empty() {
        return;
    }
    let names: Vec<&str> = units.iter().map(String::as_str).collect();
    let deleted = Problem::new(format!(
        "files of reused units were deleted: {}",
        super::join_names(&names)
    ));
    warn(&deleted.with_help("write them again with `run --full --only UNIT`"));
}
