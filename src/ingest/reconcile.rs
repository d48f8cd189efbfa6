//! The material of the reconcile step: the changes of the units, and the artifacts of deleted files.
//!
//! It must not know how the units ran, nor when the step runs.

use ingestdeck_os::scoped_dir::ScopedDir;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    line_budget::{first_names, fit_lines, joined_chars, short_summary},
    untrusted_text::one_line,
};
use ingestdeck_core::{
    tape::note::{AttemptOutput, attempt_output::MemoryAction},
    units::verdict::MAX_PROMPT_CHARS,
};

/// Largest patch that is parsed, in bytes.
const MAX_PATCH_BYTES: u64 = 64 * 1024 * 1024;

/// Most characters of the list of units and their changes in the prompt.
const MAX_UNITS_CHARS: usize = MAX_PROMPT_CHARS / 2;
/// Most characters of the list of deleted raw files.
const MAX_EVICTIONS_CHARS: usize = MAX_PROMPT_CHARS / 8;
/// Most raw files that are named as further support of an artifact.
const MAX_SUPPORT: usize = 3;

/// Turn budget of a reconcile step with this many undecided artifacts of deleted files: KTX's 60 turns, and three more
/// for each artifact up to 300. What is left is for the next run.
pub fn step_budget(undecided: usize) -> u32 {
    const BASE: u32 = 60;
    const MOST: u32 = 300;
    u32::try_from(undecided)
        .unwrap_or(MOST)
        .saturating_mul(3)
        .saturating_add(BASE)
        .min(MOST)
}

/// The material of the reconcile step: the changes of all units of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageIndex {
    /// The units in plan order.
    pub units: Vec<StagedUnit>,
    /// Raw files that an earlier run ingested and that were deleted.
    pub evictions: Vec<Eviction>,
    /// Directory of the raw files of each connection.
    pub source_dirs: BTreeMap<String, PathBuf>,
}

/// A unit and its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedUnit {
    /// Key of the unit.
    pub unit: String,
    /// `success`, or `failed` with the reason.
    pub status: String,
    /// Its raw files, as `connection/path`.
    pub raw_files: Vec<String>,
    pub changes: Vec<StagedChange>,
}

/// A file that a unit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedChange {
    /// Relative to the project.
    pub path: String,
    pub kind: ChangeKind,
    /// The changed lines in patch format.
    pub diff: String,
}

/// Kind of a change to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    Created,
    Updated,
    Removed,
}

impl ChangeKind {
    /// KTX's term for the change.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
        }
    }
}

/// Writes the artifact with KTX's terms: `wiki net-revenue created`.
impl fmt::Display for StagedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.as_str();
        if let Some(page) = self
            .path
            .strip_prefix("wiki/global/")
            .and_then(|page| page.strip_suffix(".md"))
        {
            return write!(f, "wiki {page} {kind}");
        }
        match self.path.strip_prefix("semantic-layer/") {
            Some(source) => write!(
                f,
                "sl {} {kind}",
                source.strip_suffix(".yaml").unwrap_or(source)
            ),
            None => write!(f, "{} {kind}", self.path),
        }
    }
}

/// An artifact that an earlier run wrote from a raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorProvenance {
    pub raw_path: String,
    /// Short id of the run.
    pub run: String,
    /// Kind of the artifact, `wiki` or `sl`.
    pub artifact_kind: String,
    /// Page key, or connection and name of a source.
    pub artifact_key: String,
    /// `created`, `updated` or `removed`.
    pub action: String,
}

/// A deleted raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub raw_path: String,
    /// Artifacts that earlier runs made from the file and that no later run removed.
    pub artifacts: Vec<EvictionCandidate>,
}

/// An artifact that was made from a deleted raw file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionCandidate {
    /// The last change by a run because of that file.
    pub provenance: PriorProvenance,
    /// Existing raw files that it was also made from, as `connection/path`, sorted.
    pub supporting_files: Vec<String>,
}

/// Writes `- notes/gone.md`, followed by one line for each artifact.
impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "- {}", one_line(&self.raw_path))?;
        if self.artifacts.is_empty() {
            write!(f, "\n  - no page or source on record")?;
        }
        self.artifacts
            .iter()
            .try_for_each(|artifact| write!(f, "\n  - {artifact}"))
    }
}

impl EvictionCandidate {
    /// Name for use in a sentence: `wiki growers`, `sl shop/orders`.
    pub fn name(&self) -> String {
        one_line(&format!(
            "{} {}",
            self.provenance.artifact_kind, self.provenance.artifact_key
        ))
    }

    /// True if `kind` and `key` identify this artifact. As in KTX, the key of a source may omit the connection.
    pub(crate) fn is_named(&self, kind: &str, key: &str) -> bool {
        let own = self.provenance.artifact_key.as_str();
        let is_source = kind == "sl" && own.split_once('/').is_some_and(|(_, name)| name == key);
        self.provenance.artifact_kind == kind && (own == key || is_source)
    }

    /// True if `work` has an eviction decision about this artifact for the deleted file `raw_path`, or changed it.
    pub fn is_decided(&self, raw_path: &str, work: &AttemptOutput) -> bool {
        let text =
            |decision: &Value, key: &str| decision[key].as_str().unwrap_or_default().to_owned();
        let is_decision = |decision: &Value| {
            decision["rawPath"] == raw_path
                && self.is_named(
                    &text(decision, "artifactKind"),
                    &text(decision, "artifactKey"),
                )
        };
        let is_change =
            |action: &MemoryAction| self.is_named(action.target.as_str(), &action.full_key());
        work.evictions.iter().any(is_decision) || work.actions.iter().any(is_change)
    }
}

/// Writes `wiki growers (created in run a1b2c3), also rests on notes/crates.md`.
impl fmt::Display for EvictionCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PriorProvenance {
            artifact_kind: kind,
            artifact_key: key,
            action,
            run,
            ..
        } = &self.provenance;
        f.write_str(&one_line(&format!("{kind} {key} ({action} in run {run})")))?;
        if self.supporting_files.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = self
            .supporting_files
            .iter()
            .map(|path| one_line(path))
            .collect();
        write!(f, ", also rests on {}", first_names(&named, MAX_SUPPORT))
    }
}

impl StageIndex {
    pub(crate) fn unit(&self, key: &str) -> Option<&StagedUnit> {
        self.units.iter().find(|unit| unit.unit == key)
    }

    /// Resolves `connection/path` to a directory and the path below it.
    pub fn resolve_raw_path<'a>(&self, path: &'a str) -> Option<(&Path, &'a str)> {
        let (connection, path) = path.split_once('/')?;
        Some((self.source_dirs.get(connection)?, path))
    }

    /// Renders the prompt of the reconcile step. `details` contains summaries and descriptions by path; they are
    /// included if they fit.
    pub(crate) fn prompt(&self, details: &BTreeMap<String, String>) -> String {
        let change = |change: &StagedChange, is_detailed: bool| {
            let detail = details
                .get(&change.path)
                .filter(|_| is_detailed)
                .map(|detail| short_summary(&one_line(detail)));
            let detail = detail
                .filter(|detail| !detail.is_empty())
                .map(|detail| format!(": {detail}"));
            format!("\n  - {change}{}", detail.unwrap_or_default())
        };
        let unit = |unit: &StagedUnit, is_detailed: bool| {
            let changes: Vec<String> = unit
                .changes
                .iter()
                .map(|of| change(of, is_detailed))
                .collect();
            let changes = if changes.is_empty() {
                "\n  - no changes".to_owned()
            } else {
                changes.concat()
            };
            format!(
                "- {} ({}){changes}",
                one_line(&unit.unit),
                one_line(&unit.status)
            )
        };
        let list = |is_detailed| {
            self.units
                .iter()
                .map(|of| unit(of, is_detailed))
                .collect::<Vec<_>>()
        };
        let units = Some(list(true))
            .filter(|units| joined_chars(units) <= MAX_UNITS_CHARS)
            .unwrap_or_else(|| list(false));
        let gone: Vec<String> = self.evictions.iter().map(ToString::to_string).collect();
        let units = fit_lines(units, MAX_UNITS_CHARS, |more| {
            format!("{more} more units; list all with stage_list")
        });
        let gone = fit_lines(gone, MAX_EVICTIONS_CHARS, |more| {
            format!("{more} more files; list all with eviction_list")
        });
        let or_none = |lines: Vec<String>| {
            if lines.is_empty() {
                "(none)".to_owned()
            } else {
                lines.join("\n")
            }
        };
        format!(
            "# Stage Index\n{}\n\n# Eviction Set\n{}\n\n# Source Reconciliation Notes\n(none)",
            or_none(units),
            or_none(gone)
        )
    }
}

/// Name of a raw file in the reconcile step.
pub fn staged_path(connection: &str, path: &str) -> String {
    format!("{connection}/{path}")
}

/// Parses the changes of the patch in the file `path` below `root`. Empty if the patch is missing or cannot be read.
pub fn read_patch_changes(root: &Path, path: &str) -> Vec<StagedChange> {
    let bytes = ScopedDir::open(root)
        .and_then(|folder| folder.read(path, MAX_PATCH_BYTES))
        .unwrap_or_default();
    parse_patch(&String::from_utf8_lossy(&bytes))
}

/// Splits a patch into files. A line of content cannot look like a header, because it begins with a marker.
pub(crate) fn parse_patch(patch: &str) -> Vec<StagedChange> {
    let mut found: Vec<StagedChange> = Vec::new();
    for line in patch.split_inclusive('\n') {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let path = names
                .trim_end()
                .rsplit_once(" b/")
                .map_or("", |(_, path)| path);
            found.push(StagedChange {
                path: path.to_owned(),
                kind: ChangeKind::Updated,
                diff: String::new(),
            });
            continue;
        }
        let Some(change) = found.last_mut() else {
            continue;
        };
        match line {
            _ if line.starts_with("new file mode ") => change.kind = ChangeKind::Created,
            _ if line.starts_with("deleted file mode ") => change.kind = ChangeKind::Removed,
            _ if line.starts_with("@@") || !change.diff.is_empty() => change.diff.push_str(line),
            // Ignore modes, object names and paths, which repeat the other lines.
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

    /// Two units over the files of one connection; one of them failed.
    pub(crate) fn stage(root: &Path) -> StageIndex {
        let unit = |name: &str, status: &str, changes: Vec<StagedChange>| StagedUnit {
            unit: format!("docs-{name}"),
            status: status.into(),
            raw_files: vec![staged_path("notes", &format!("{name}.md"))],
            changes,
        };
        let other = StagedChange {
            path: "wiki/global/arr.md".into(),
            kind: ChangeKind::Updated,
            diff: "@@ -1 +1 @@\n-a\n+b\n".into(),
        };
        StageIndex {
            units: vec![
                unit("a", "success", parse_patch(PATCH)),
                unit("b", "success", vec![other]),
                unit("c", "failed: no luck", Vec::new()),
            ],
            evictions: vec![
                Eviction {
                    raw_path: "notes/gone.md".into(),
                    artifacts: vec![
                        resting("wiki", "gone", &[]),
                        resting("sl", "shop/orders", &["a", "b", "c", "d"]),
                    ],
                },
                Eviction {
                    raw_path: "notes/old\n# x.md".into(),
                    artifacts: Vec::new(),
                },
            ],
            source_dirs: BTreeMap::from([("notes".to_owned(), root.to_owned())]),
        }
    }

    fn resting(kind: &str, key: &str, support: &[&str]) -> EvictionCandidate {
        let (kind, key) = (kind.to_owned(), key.to_owned());
        EvictionCandidate {
            provenance: PriorProvenance {
                raw_path: "gone.md".into(),
                run: "a1b2c3".into(),
                artifact_kind: kind,
                artifact_key: key,
                action: "created".into(),
            },
            supporting_files: support
                .iter()
                .map(|name| staged_path("notes", &format!("{name}.md")))
                .collect(),
        }
    }

    #[test]
    fn patch_is_split_into_file_changes() {
        let found = parse_patch(PATCH);
        let words: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["sl shop/orders removed", "wiki arr created"]);
        assert_eq!(
            found[1].diff,
            "@@ -0,0 +1,3 @@\n+---\n+diff --git a/x b/x\n+new file mode 100644\n"
        );
        assert_eq!(parse_patch(""), []);
        assert_eq!(parse_patch("garbage\n@@\n"), []);
        assert_eq!(
            read_patch_changes(
                Path::new(&ingestdeck_test_support::missing("project")),
                "x.patch"
            ),
            []
        );
    }

    #[test]
    fn prompt_lists_units_and_evictions() {
        let details = [
            ("wiki/global/arr.md", "Annual recurring\n# revenue"),
            ("semantic-layer/shop/orders.yaml", ""),
            ("wiki/global/other.md", "Another page"),
        ];
        let details = details
            .map(|(path, detail)| (path.to_owned(), detail.to_owned()))
            .into();
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
    fn details_are_dropped_before_units() {
        let change = |page: usize| StagedChange {
            path: format!("wiki/global/p{page}.md"),
            kind: ChangeKind::Created,
            diff: String::new(),
        };
        let unit = |page| StagedUnit {
            unit: format!("docs-{page}"),
            changes: vec![change(page)],
            ..StagedUnit::default()
        };
        let stage = StageIndex {
            units: (0..1_000).map(unit).collect(),
            ..StageIndex::default()
        };
        let details = (0..1_000)
            .map(|page| (change(page).path, "word ".repeat(40)))
            .collect();
        let text = stage.prompt(&details);
        assert!(
            text.contains("  - wiki p999 created\n") && !text.contains("word"),
            "{}",
            &text[..200]
        );
    }

    #[test]
    fn turns_grow_with_undecided_artifacts() {
        assert_eq!(
            [0, 1, 70, 80, usize::MAX].map(step_budget),
            [60, 63, 270, 300, 300]
        );
    }
}
