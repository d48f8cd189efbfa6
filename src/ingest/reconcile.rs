//! The pass after the units: what they wrote, as the material of a unit of its own.
//!
//! It must not know how the units ran, nor when the pass is due.

use crate::scoped_dir::ScopedDir;
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    plan::WorkUnit,
    prompt::{fit, one_line},
};
use crate::{
    tape::{UnitKey, note::PlannedUnit},
    units::verdict::PROMPT_LIMIT,
};

/// Key of the pass, and its adapter's name.
pub const RECONCILE: &str = "reconcile";

/// Largest patch that is looked at, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Most characters of the list of units and their changes in the prompt.
const UNITS_SHARE: usize = PROMPT_LIMIT / 2;
/// Most characters of the list of raw files that are gone.
const EVICTIONS_SHARE: usize = PROMPT_LIMIT / 8;

/// Turns of the pass.
pub const STEP_BUDGET: u32 = 60;

/// What the units of a run wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// The units in plan order.
    pub units: Vec<StagedUnit>,
    /// Raw files that an earlier run knew and that are gone.
    pub evictions: Vec<Eviction>,
    /// Where the raw files of each connection are.
    pub folders: BTreeMap<String, PathBuf>,
}

/// A unit and what it wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagedUnit {
    /// Its key.
    pub unit: String,
    /// `success`, or `failed` with the reason.
    pub status: String,
    /// Its raw files, as `connection/path`.
    pub raw_files: Vec<String>,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// A file that a unit changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Project-relative path.
    pub path: String,
    /// How.
    pub kind: ChangeKind,
    /// The lines, as a patch has them.
    pub diff: String,
}

/// How a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It was there before.
    Updated,
    /// It is gone.
    Removed,
}

impl ChangeKind {
    /// KTX's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
        }
    }
}

/// A wiki page or a source, as KTX names it: `wiki net-revenue created`.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.word();
        if let Some(page) = self.path.strip_prefix("wiki/global/").and_then(|page| page.strip_suffix(".md")) {
            return write!(f, "wiki {page} {kind}");
        }
        match self.path.strip_prefix("semantic-layer/") {
            Some(source) => write!(f, "sl {} {kind}", source.strip_suffix(".yaml").unwrap_or(source)),
            None => write!(f, "{} {kind}", self.path),
        }
    }
}

/// A raw file that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// As `connection/path`.
    pub raw_path: String,
}

impl Stage {
    /// True when there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.evictions.is_empty() && self.units.iter().all(|unit| unit.changes.is_empty())
    }

    /// The pass as a unit. Its agent reads the raw files of all.
    pub fn into_unit(self) -> WorkUnit {
        let mut raw_files: Vec<String> = self.units.iter().flat_map(|unit| unit.raw_files.iter().cloned()).collect();
        raw_files.sort_unstable();
        raw_files.dedup();
        let planned = PlannedUnit {
            unit: UnitKey::from(RECONCILE),
            adapter: RECONCILE.into(),
            label: Some("Reconciliation".into()),
            raw_files,
            why: "after the units: one pass over what they wrote".into(),
            ..PlannedUnit::default()
        };
        WorkUnit { planned, stage: Some(Arc::new(self)), ..WorkUnit::default() }
    }

    /// The unit of that key.
    pub(crate) fn unit(&self, key: &str) -> Option<&StagedUnit> {
        self.units.iter().find(|unit| unit.unit == key)
    }

    /// Where the file `connection/path` is: the directory, and its path in there.
    pub(crate) fn place<'a>(&self, path: &'a str) -> Option<(&Path, &'a str)> {
        let (connection, path) = path.split_once('/')?;
        Some((self.folders.get(connection)?, path))
    }

    /// What the agent of the pass is told of it.
    pub(crate) fn prompt(&self) -> String {
        let unit = |unit: &StagedUnit| {
            let changes: Vec<String> = unit.changes.iter().map(|change| format!("\n  - {change}")).collect();
            let changes = if changes.is_empty() { "\n  - no changes".to_owned() } else { changes.concat() };
            format!("- {} ({}){changes}", one_line(&unit.unit), one_line(&unit.status))
        };
        let units: Vec<String> = self.units.iter().map(unit).collect();
        let gone: Vec<String> = self.evictions.iter().map(|gone| format!("- {}", one_line(&gone.raw_path))).collect();
        let units = fit(units, UNITS_SHARE, |more| format!("{more} more units; list all with stage_list"));
        let gone = fit(gone, EVICTIONS_SHARE, |more| format!("{more} more files; list all with eviction_list"));
        let or_none = |lines: Vec<String>| if lines.is_empty() { "(none)".to_owned() } else { lines.join("\n") };
        format!(
            "# Stage Index\n{}\n\n# Eviction Set\n{}\n\n# Source Reconciliation Notes\n(none)",
            or_none(units),
            or_none(gone)
        )
    }
}

/// The name of a raw file in the pass.
pub fn staged_path(connection: &str, path: &str) -> String {
    format!("{connection}/{path}")
}

/// What the patch in the file `path` below `root` changes. Nothing for a patch that is gone or cannot be read.
pub fn changes_of(root: &Path, path: &str) -> Vec<Change> {
    let bytes = ScopedDir::open(root).and_then(|folder| folder.read(path, LARGEST)).unwrap_or_default();
    changes(&String::from_utf8_lossy(&bytes))
}

/// Cuts a patch into files. A line of content never begins like a header.
fn changes(patch: &str) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    for line in patch.split_inclusive('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = names.trim_end().rsplit_once(" b/").map_or("", |(_, path)| path);
            found.push(Change { path: path.to_owned(), kind: ChangeKind::Updated, diff: String::new() });
            continue;
        }
        let Some(change) = found.last_mut() else { continue };
        match line {
            _ if line.starts_with("new file mode ") => change.kind = ChangeKind::Created,
            _ if line.starts_with("deleted file mode ") => change.kind = ChangeKind::Removed,
            _ if line.starts_with("@@") || !change.diff.is_empty() => change.diff.push_str(line),
            // Modes, object names and paths say nothing that the change does not say.
            _ => {}
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PATCH: &str = "\
diff --git a/semantic-layer/shop/orders.yaml b/semantic-layer/shop/orders.yaml
deleted file mode 100644
index 1..0
--- a/semantic-layer/shop/orders.yaml
+++ /dev/null
@@ -1 +0,0 @@
-name: orders
diff --git a/wiki/global/arr.md b/wiki/global/arr.md
new file mode 100644
index 0..1
--- /dev/null
+++ b/wiki/global/arr.md
@@ -0,0 +1,3 @@
+---
+diff --git a/x b/x
+new file mode 100644
";

    /// Two units, one of which failed, over the files of one connection.
    pub(crate) fn stage(root: &Path) -> Stage {
        let unit = |name: &str, status: &str, changes: Vec<Change>| StagedUnit {
            unit: format!("docs-{name}"),
            status: status.into(),
            raw_files: vec![staged_path("notes", &format!("{name}.md"))],
            changes,
        };
        let other = Change {
            path: "wiki/global/arr.md".into(),
            kind: ChangeKind::Updated,
            diff: "@@ -1 +1 @@\n-a\n+b\n".into(),
        };
        Stage {
            units: vec![
                unit("a", "success", changes(PATCH)),
                unit("b", "success", vec![other]),
                unit("c", "failed: no luck", Vec::new()),
            ],
            evictions: vec![Eviction { raw_path: "notes/gone.md".into() }],
            folders: BTreeMap::from([("notes".to_owned(), root.to_owned())]),
        }
    }

    #[test]
    fn a_patch_is_cut_into_what_it_changes() {
        let found = changes(PATCH);
        let words: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["sl shop/orders removed", "wiki arr created"]);
        assert_eq!(found[1].diff, "@@ -0,0 +1,3 @@\n+---\n+diff --git a/x b/x\n+new file mode 100644\n");
        assert_eq!(changes(""), []);
        assert_eq!(changes("garbage\n@@\n"), []);
        assert_eq!(changes_of(Path::new("/nowhere"), "x.patch"), []);
    }

    #[test]
    fn the_prompt_lists_units_and_what_is_gone() {
        insta::assert_snapshot!(stage(Path::new("/raw")).prompt(), @r"
        # Stage Index
        - docs-a (success)
          - sl shop/orders removed
          - wiki arr created
        - docs-b (success)
          - wiki arr updated
        - docs-c (failed: no luck)
          - no changes

        # Eviction Set
        - notes/gone.md

        # Source Reconciliation Notes
        (none)
        ");
    }

    #[test]
    fn the_pass_is_a_unit_with_the_raw_files_of_all() {
        let stage = stage(Path::new("/raw"));
        assert_eq!(stage.place("notes/sub/a.md"), Some((Path::new("/raw"), "sub/a.md")));
        assert_eq!((stage.place("other/a.md"), stage.place("a.md")), (None, None));
        assert!(!stage.is_empty() && Stage::default().is_empty());
        let unit = stage.into_unit();
        assert_eq!(unit.planned.unit.as_str(), RECONCILE);
        assert_eq!(unit.planned.raw_files, ["notes/a.md", "notes/b.md", "notes/c.md"]);
    }
}
