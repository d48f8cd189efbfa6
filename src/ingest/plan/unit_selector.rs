//! Which units the user selected. Must not know what changed.

use globset::{Glob, GlobSet, GlobSetBuilder};

use super::{PlanError, UnitSelection};

/// The units that the user selected, by key.
pub(super) struct UnitSelector<'a> {
    only: Option<GlobSet>,
    patterns: &'a [String],
    pub(super) is_full: bool,
    pub(super) neighbours: bool,
    pub(super) unread: bool,
}

impl<'a> UnitSelector<'a> {
    pub(super) fn from_selection(selection: &'a UnitSelection) -> Result<Self, PlanError> {
        let UnitSelection {
            only,
            full,
            neighbours,
            unread,
            ..
        } = selection;
        Ok(Self {
            only: globs(only)?,
            patterns: only,
            is_full: *full,
            neighbours: *neighbours,
            unread: *unread,
        })
    }

    /// Whether the unit is selected, by KTX's key or by its key in the run.
    pub(super) fn selects(&self, (key, in_run): (&str, &str)) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| only.is_match(key) || only.is_match(in_run))
    }

    /// True if the key was given in full, which selects the unit even if it is unchanged.
    pub(super) fn selects_by_name(&self, (key, in_run): (&str, &str)) -> bool {
        let is = |pattern: &String, key: &str| pattern == key || *pattern == globset::escape(key);
        self.patterns
            .iter()
            .any(|pattern| is(pattern, key) || is(pattern, in_run))
    }
}

fn globs(patterns: &[String]) -> Result<Option<GlobSet>, PlanError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let bad = |pattern: &str, error: &globset::Error| {
        PlanError::InvalidPattern(pattern.to_owned(), error.kind().to_string())
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| bad(pattern, &error))?);
    }
    set.build()
        .map(Some)
        .map_err(|error| bad(&patterns.join(", "), &error))
}
