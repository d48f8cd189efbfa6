//! `stage_list`, `stage_diff` and `eviction_list`: show the changes of all units to the reconcile step.

use std::{fmt::Write as _, path::Path};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{AgentTool, ToolContext, not_found_reply, pagination};
use crate::{
    reconcile::{StageIndex, StagedUnit},
    untrusted_text::excerpt,
};
use ingestdeck_core::units::ToolReply;

impl ToolContext {
    /// Changes of all units; `None` unless this is the reconcile step.
    pub(super) fn stage_index(&self) -> Option<&StageIndex> {
        self.unit.stage_index.as_deref()
    }

    /// Location of a raw file: its source directory, and its path in there.
    pub(super) fn resolve_raw_path<'a>(&'a self, path: &'a str) -> (&'a Path, &'a str) {
        let staged = self
            .stage_index()
            .and_then(|stage| stage.resolve_raw_path(path));
        staged.unwrap_or((&self.unit.source_root, path))
    }
}

#[derive(Debug)]
pub(super) struct StageList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoArguments {}

impl AgentTool for StageList {
    const NAME: &'static str = "stage_list";
    const DESCRIPTION: &'static str = "List every work unit of this ingest with its status, its raw files, and the \
        pages and sources that it changed.";
    const READ_ONLY: bool = true;
    type Input = NoArguments;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(context: &ToolContext, _: NoArguments) -> ToolReply {
        let Some(stage) = context.stage_index() else {
            return not_found_reply("no unit has changes to reconcile");
        };
        let mut text = String::new();
        if stage.units.is_empty() {
            text.push_str("This ingest has no units; eviction_list lists the deleted raw files.\n");
        }
        for unit in &stage.units {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "## {} ({})", unit.unit, unit.status);
            let _ = writeln!(text, "raw files: {}", unit.raw_files.join(", "));
            let _ = writeln!(text, "changes: {}", changes(unit));
        }
        let structured = json!({
            "units": stage.units.iter().map(|unit| json!({
                "unitKey": unit.unit, "status": unit.status, "rawFiles": unit.raw_files,
                "actions": unit.changes.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        });
        ToolReply {
            structured: Some(structured),
            ..ToolReply::text(text)
        }
    }
}

#[derive(Debug)]
pub(super) struct StageDiff;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StageDiffInput {
    /// Key of the first unit, as stage_list lists it.
    #[serde(rename = "unitKeyA")]
    unit_key_a: String,
    /// Key of the second unit, as stage_list lists it.
    #[serde(rename = "unitKeyB")]
    unit_key_b: String,
}

impl AgentTool for StageDiff {
    const NAME: &'static str = "stage_diff";
    const DESCRIPTION: &'static str = "Show the changes of two work units: first the pages and sources that both \
        changed, with the changed lines of each unit, then those that only one of them changed.";
    const READ_ONLY: bool = true;
    type Input = StageDiffInput;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(
        context: &ToolContext,
        StageDiffInput {
            unit_key_a,
            unit_key_b,
        }: StageDiffInput,
    ) -> ToolReply {
        let Some(stage) = context.stage_index() else {
            return not_found_reply("no unit has changes to reconcile");
        };
        let find = |key: &str| {
            stage
                .unit(key)
                .ok_or_else(|| format!("there is no unit `{}`", excerpt(key)))
        };
        let (a, b) = match (find(&unit_key_a), find(&unit_key_b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(why), _) | (_, Err(why)) => {
                return not_found_reply(format_args!("{why}; use a key that stage_list lists"));
            }
        };
        let of = |unit: &StagedUnit, path: &str| {
            unit.changes
                .iter()
                .find(|change| change.path == path)
                .cloned()
        };
        let mut text = String::new();
        let mut both = Vec::new();
        for change in &a.changes {
            let Some(other) = of(b, &change.path) else {
                continue;
            };
            both.push(change.path.as_str());
            let _ = writeln!(text, "## changed by both: {}", change.path);
            for (unit, change) in [(a, change), (b, &other)] {
                let _ = writeln!(
                    text,
                    "### {}: {change}\n{}",
                    unit.unit,
                    change.diff.trim_end()
                );
            }
        }
        if both.is_empty() {
            text.push_str("No page or source was changed by both.\n");
        }
        for (unit, other) in [(a, b), (b, a)] {
            for change in unit
                .changes
                .iter()
                .filter(|change| of(other, &change.path).is_none())
            {
                let _ = writeln!(
                    text,
                    "## changed only by {}: {}: {change}\n{}",
                    unit.unit,
                    change.path,
                    change.diff.trim_end()
                );
            }
        }
        let structured = json!({"unitKeyA": a.unit, "unitKeyB": b.unit, "both": both});
        let lines: Vec<&str> = text.lines().collect();
        let page = pagination::paginate(&lines, 1, lines.len());
        let mut markdown = page.text.clone();
        if page.last_line < lines.len() {
            let _ = write!(
                markdown,
                "\n[truncated: read the other pages and sources with wiki_read and sl_read_source]\n"
            );
        }
        ToolReply {
            structured: Some(structured),
            ..ToolReply::text(markdown)
        }
    }
}

#[derive(Debug)]
pub(super) struct EvictionList;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EvictionListInput {
    /// First line of the list to return, counted from 1; 1 by default.
    #[schemars(range(min = 1, max = 100_000_000))]
    start_line: Option<u32>,
}

impl AgentTool for EvictionList {
    const NAME: &'static str = "eviction_list";
    const DESCRIPTION: &'static str = "List the raw files that were deleted since an earlier ingest, each with the \
        pages and sources that are based on it. If the list does not fit into one answer, the answer ends with the \
        call that continues it.";
    const READ_ONLY: bool = true;
    type Input = EvictionListInput;

    fn is_offered(context: &ToolContext) -> bool {
        context.stage_index().is_some()
    }

    fn run(
        context: &ToolContext,
        EvictionListInput { start_line }: EvictionListInput,
    ) -> ToolReply {
        let evictions = context
            .stage_index()
            .map(|stage| stage.evictions.as_slice())
            .unwrap_or_default();
        let all: Vec<String> = evictions.iter().map(ToString::to_string).collect();
        let lines: Vec<&str> = all.iter().flat_map(|eviction| eviction.lines()).collect();
        let file_of = |line: usize| {
            lines
                .iter()
                .take(line)
                .rev()
                .find(|line| line.starts_with("- "))
        };
        let start = start_line.map_or(1, |line| line as usize).max(1);
        let text = if lines.is_empty() {
            "No raw file was deleted.".to_owned()
        } else if start > lines.len() {
            return not_found_reply(format_args!(
                "startLine is {start}, but the list has {} lines; give a smaller startLine",
                lines.len()
            ));
        } else {
            let page = pagination::paginate(&lines, start, lines.len());
            let next = |line: usize| json!({"startLine": line});
            // A part that begins with a page or source names its file again.
            let file = file_of(start).filter(|_| {
                lines
                    .get(start - 1)
                    .is_some_and(|line| !line.starts_with("- "))
            });
            let file = file.map(|line| {
                format!(
                    "[continued: {}]\n",
                    line.trim_start_matches("- ")
                        .chars()
                        .take(400)
                        .collect::<String>()
                )
            });
            let file = file.unwrap_or_default();
            match page.continuation_note(start, lines.len(), lines.len(), Self::NAME, next) {
                Some(note) => format!("{file}{}[{note}]", page.text),
                None => format!("{file}{}", page.text.trim_end()),
            }
        };
        // The text has the list; the transcript would hold it once per part.
        let artifacts: usize = evictions
            .iter()
            .map(|eviction| eviction.artifacts.len())
            .sum();
        let structured = json!({
            "deletedFiles": evictions.len(), "artifacts": artifacts, "startLine": start, "totalLines": lines.len(),
        });
        ToolReply {
            structured: Some(structured),
            ..ToolReply::text(text)
        }
    }
}

fn changes(unit: &StagedUnit) -> String {
    let changes: Vec<String> = unit.changes.iter().map(ToString::to_string).collect();
    if changes.is_empty() {
        "none".into()
    } else {
        changes.join(", ")
    }
}
