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

use serde_json::Value;

use super::{
    plan::{Prior, WorkUnit},
    prompt::{fit, joined_chars, one_line, short},
};
use crate::{
    tape::{
        UnitKey,
        note::{PlannedUnit, Work, work::MemoryAction},
    },
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
/// Most raw files that are named as further support of a page or source.
const SUPPORT: usize = 3;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// As `connection/path`.
    pub raw_path: String,
    /// Pages and sources that earlier runs wrote from it and that no later run removed.
    pub artifacts: Vec<RestingArtifact>,
}

/// A page or source that rests on a raw file that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestingArtifact {
    /// The last thing that a run did to it because of that file.
    pub prior: Prior,
    /// Raw files that it also rests on and that are still there, as `connection/path`, sorted.
    pub support: Vec<String>,
}

/// `- notes/gone.md`, and below it a line for each page and source.
impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- {}", one_line(&self.raw_path))?;
        if self.artifacts.is_empty() {
            write!(f, "\n  - no page or source on record")?;
        }
        self.artifacts.iter().try_for_each(|artifact| write!(f, "\n  - {artifact}"))
    }
}

impl RestingArtifact {
    /// How a sentence names it: `wiki growers`, `sl shop/orders`.
    pub fn name(&self) -> String {
        one_line(&format!("{} {}", self.prior.kind, self.prior.key))
    }

    /// True if `kind` and `key` name it. As in KTX, the key of a source may come without its connection.
    pub(crate) fn is_named(&self, kind: &str, key: &str) -> bool {
        let own = self.prior.key.as_str();
        let is_source = kind == "sl" && own.split_once('/').is_some_and(|(_, name)| name == key);
        self.prior.kind == kind && (own == key || is_source)
    }

    /// True if `work` has an eviction decision about it for the gone file `raw_path`, or changed it.
    pub(crate) fn is_decided(&self, raw_path: &str, work: &Work) -> bool {
        let text = |decision: &Value, key: &str| decision[key].as_str().unwrap_or_default().to_owned();
        let is_decision = |decision: &Value| {
            decision["rawPath"] == raw_path
                && self.is_named(&text(decision, "artifactKind"), &text(decision, "artifactKey"))
        };
        let is_change = |action: &MemoryAction| self.is_named(action.target.word(), &action.full_key());
        work.evictions.iter().any(is_decision) || work.actions.iter().any(is_change)
    }
}

/// `wiki growers (created in run a1b2c3), also rests on notes/crates.md`.
impl fmt::Display for RestingArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Prior { kind, key, action, run, .. } = &self.prior;
        f.write_str(&one_line(&format!("{kind} {key} ({action} in run {run})")))?;
        if self.support.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = self.support.iter().take(SUPPORT).map(|path| one_line(path)).collect();
        write!(f, ", also rests on {}", named.join(", "))?;
        match self.support.len().saturating_sub(SUPPORT) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
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

    /// The prompt of the reconcile step, with the summaries and descriptions in `details`, by path, if they fit.
    pub(crate) fn prompt(&self, details: &BTreeMap<String, String>) -> String {
        let change = |change: &Change, is_detailed: bool| {
            let detail = details.get(&change.path).filter(|_| is_detailed).map(|detail| short(&one_line(detail)));
            let detail = detail.filter(|detail| !detail.is_empty()).map(|detail| format!(": {detail}"));
            format!("\n  - {change}{}", detail.unwrap_or_default())
        };
        let unit = |unit: &StagedUnit, is_detailed: bool| {
            let changes: Vec<String> = unit.changes.iter().map(|of| change(of, is_detailed)).collect();
            let changes = if changes.is_empty() { "\n  - no changes".to_owned() } else { changes.concat() };
            format!("- {} ({}){changes}", one_line(&unit.unit), one_line(&unit.status))
        };
        let list = |is_detailed| self.units.iter().map(|of| unit(of, is_detailed)).collect::<Vec<_>>();
        let units = Some(list(true)).filter(|units| joined_chars(units) <= UNITS_SHARE).unwrap_or_else(|| list(false));
        let gone: Vec<String> = self.evictions.iter().map(ToString::to_string).collect();
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
            evictions: vec![
                Eviction {
                    raw_path: "notes/gone.md".into(),
                    artifacts: vec![resting("wiki", "gone", &[]), resting("sl", "shop/orders", &["a", "b", "c", "d"])],
                },
                Eviction { raw_path: "notes/old\n# x.md".into(), artifacts: Vec::new() },
            ],
            folders: BTreeMap::from([("notes".to_owned(), root.to_owned())]),
        }
    }

    fn resting(kind: &str, key: &str, support: &[&str]) -> RestingArtifact {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        RestingArtifact {
            prior: Prior { path: "gone.md".into(), run: "a1b2c3".into(), kind, key, action: "created".into() },
            support: support.iter().map(|name| staged_path("notes", &format!("{name}.md"))).collect(),
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
        let details = [
            ("wiki/global/arr.md", "Annual recurring\n# revenue"),
            ("semantic-layer/shop/orders.yaml", ""),
            ("wiki/global/other.md", "Another page"),
        ];
        let details = details.map(|(path, detail)| (path.to_owned(), detail.to_owned())).into();
        insta::assert_snapshot!(stage(Path::new("/raw")).prompt(&details), @r"
        # Stage Index
        - docs-a (success)
          - sl shop/orders removed
          - wiki arr created: Annual recurring # revenue
        - docs-b (success)
          - wiki arr updated: Annual recurring # revenue
        - docs-c (failed: no luck)
          - no changes

        # Eviction Set
        - notes/gone.md
          - wiki gone (created in run a1b2c3)
          - sl shop/orders (created in run a1b2c3), also rests on notes/a.md, notes/b.md, notes/c.md and 1 more
        - notes/old # x.md
          - no page or source on record

        # Source Reconciliation Notes
        (none)
        ");
    }

    #[test]
    fn details_give_way_before_units_are_left_out() {
        let change = |page: usize| Change {
            path: format!("wiki/global/p{page}.md"),
            kind: ChangeKind::Created,
            diff: String::new(),
        };
        let unit =
            |page| StagedUnit { unit: format!("docs-{page}"), changes: vec![change(page)], ..StagedUnit::default() };
        let stage = Stage { units: (0..1_000).map(unit).collect(), ..Stage::default() };
        let details = (0..1_000).map(|page| (change(page).path, "word ".repeat(40))).collect();
        let text = stage.prompt(&details);
        assert!(text.contains("  - wiki p999 created\n") && !text.contains("word"), "{}", &text[..200]);
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
