//! What reused units wrote and is not in the project any more. It must not judge units: whoever deleted it may have meant to.

use std::path::Path;

use crate::{
    run::{RunState, state::Unit},
    tape::note::work::Change,
};

/// Files of most units that a sentence names.
const NAMED: usize = 3;

/// The files that `unit` of the run `state` put into the project below `root` and that nobody finds there now, but for
/// those that a unit of that run removed.
pub(super) fn of<'a>(root: &Path, state: &RunState, unit: &'a Unit) -> Vec<&'a str> {
    let published = unit.latest().map(|attempt| attempt.published.as_slice()).unwrap_or_default();
    let missing = published.iter().filter(|path| root.join(path).symlink_metadata().is_err());
    missing.filter(|path| !is_removed(state, path)).map(String::as_str).collect()
}

fn is_removed(state: &RunState, path: &str) -> bool {
    let key = Path::new(path).file_stem().and_then(|stem| stem.to_str());
    let works = state.units.iter().filter_map(|unit| unit.latest()?.work.as_ref());
    works.flat_map(|work| &work.actions).any(|did| did.change == Change::Removed && Some(did.key.as_str()) == key)
}

/// The end of the sentence about a reused unit that wrote `files`.
pub(super) fn words(files: &[&str]) -> Option<String> {
    let (first, rest) = files.split_first()?;
    let named: Vec<&str> = std::iter::once(first).chain(rest).take(NAMED).copied().collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let are = if files.len() == 1 { "is" } else { "are" };
    Some(format!("{}{more} {are} gone since", named.join(", ")))
}
