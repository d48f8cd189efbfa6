//! The calls of one attempt, for the question which call wrote a line and what the agent had read before it.
//!
//! Pure: receives the events of the fold. Which arguments of KTX's tools name what is read is known here only.

use std::collections::HashSet;

use serde::Serialize;

use super::{
    OutcomeDetail, SinkEvent,
    event::{ActionDetail, ActionEvent, ActionPhase, AgentEvent},
};
use crate::{
    actions::label,
    decode::RawJson,
    tape::{Millis, Note, Seq, note::CallDecision},
};

/// Most characters of a name or query that an agent wrote.
const MAX_TARGET_CHARS: usize = 300;
/// Most raw files of a call that are kept.
const MAX_RAW_PATHS: usize = 100;
/// Most calls of an attempt that are kept.
const MAX_CALLS: usize = 200_000;

/// What a call read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadAccess {
    pub kind: ReadKind,
    /// Path, key, name or query, as the agent wrote it.
    pub target: String,
    /// First and last line, if the agent asked for a part. The last is `None` if it asked for everything after the first.
    pub lines: Option<(u64, Option<u64>)>,
}

/// The kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadKind {
    /// A file of the unit.
    RawFile,
    /// A page of the wiki.
    Page,
    /// A source of the semantic layer.
    Source,
    /// A query in SQL.
    Query,
    /// Tables and columns of a database.
    Tables,
    /// A search for pages, sources or tables.
    Search,
    /// Changes of other units, which the reconcile step reads.
    Stage,
}

impl ReadKind {
    /// Its name in sentences.
    pub fn label(self) -> &'static str {
        match self {
            Self::RawFile => "raw file",
            Self::Page => "page",
            Self::Source => "source",
            Self::Query => "query",
            Self::Tables => "tables",
            Self::Search => "search",
            Self::Stage => "changes of units",
        }
    }
}

/// One call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceCall {
    /// Id of the call in the stream.
    pub id: String,
    /// Tool without the prefix of its server.
    pub tool: String,
    /// Turn of the model in which it was made, from 1.
    pub turn: u32,
    /// Entry that contains the call.
    pub entry: Seq,
    /// Entry that contains its result.
    pub ended: Option<Seq>,
    pub at: Millis,
    /// What it read; `None` for a call that reads nothing.
    pub read: Option<ReadAccess>,
    /// Raw files that the agent named as the basis of a change.
    pub raw_paths: Vec<String>,
    /// True if it ran with arguments that a person edited.
    pub is_edited: bool,
    /// True if it ended without failure, denial or refusal.
    pub succeeded: bool,
}

/// Collects the calls of one attempt.
#[derive(Debug, Default)]
pub struct ProvenanceCalls {
    calls: Vec<ProvenanceCall>,
    turns: u32,
}

impl ProvenanceCalls {
    /// Processes an effect of an entry of the attempt.
    pub fn observe(&mut self, emitted: &SinkEvent<'_>) {
        match emitted {
            SinkEvent::Line { turns, .. } => self.turns = *turns,
            SinkEvent::Agent {
                entry,
                at,
                event: AgentEvent::Action(event),
                outcome_detail,
                ..
            } => {
                self.observe_action((*entry, *at), event, *outcome_detail);
            }
            SinkEvent::Note {
                note:
                    Note::CallDecided {
                        tool_use_id: Some(id),
                        input: Some(input),
                        decision,
                        ..
                    },
                ..
            } if *decision == CallDecision::Edited => {
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.id == *id) {
                    (call.read, call.raw_paths) = accesses(&call.tool, RawJson(&input.to_string()));
                    call.is_edited = true;
                }
            }
            _ => {}
        }
    }

    fn observe_action(
        &mut self,
        (entry, at): (Seq, Millis),
        event: &ActionEvent<'_>,
        outcome: Option<OutcomeDetail>,
    ) {
        let ActionDetail::Tool(detail) = &event.action.detail else {
            return;
        };
        let id = event.action.id.as_ref();
        if event.phase == ActionPhase::Started && self.calls.len() < MAX_CALLS {
            let tool = label::short_name(detail.tool_name.as_deref().unwrap_or("?")).to_owned();
            let input = detail
                .tool_input
                .as_ref()
                .map_or(RawJson("{}"), |input| input.raw());
            let (read, raw_paths) = accesses(&tool, input);
            let (id, tool) = (id.to_owned(), cut(&tool));
            let turn = self.turns;
            self.calls.push(ProvenanceCall {
                id,
                tool,
                turn,
                entry,
                ended: None,
                at,
                read,
                raw_paths,
                is_edited: false,
                succeeded: false,
            });
        }
        if event.phase == ActionPhase::Completed
            && let Some(call) = self.calls.iter_mut().rfind(|call| call.id == id)
        {
            call.ended = Some(entry);
            call.succeeded = event.ok == Some(true) && outcome.is_none();
        }
    }

    /// The call with this id.
    pub fn call(&self, id: &str) -> Option<&ProvenanceCall> {
        self.calls.iter().find(|call| call.id == id)
    }

    /// The successful reads that ended before the agent made the call `write`, newest first. Of equal reads, only the
    /// newest.
    pub fn reads_before(&self, write: &ProvenanceCall) -> Vec<&ProvenanceCall> {
        let mut reads: Vec<&ProvenanceCall> = Vec::new();
        let mut known: HashSet<&ReadAccess> = HashSet::new();
        // Calls of one turn may be parallel: the agent had no result of a read when it wrote.
        let is_before = |call: &ProvenanceCall| {
            let has_ended =
                call.turn < write.turn || call.ended.is_some_and(|ended| ended < write.entry);
            call.entry < write.entry && has_ended && call.succeeded
        };
        for call in self.calls.iter().rev().filter(|call| is_before(call)) {
            let Some(read) = &call.read else { continue };
            if known.insert(read) {
                reads.push(call);
            }
        }
        reads
    }
}

/// What a call of `tool` with these arguments reads, and the raw files that it names as the basis of a change.
fn accesses(tool: &str, input: RawJson<'_>) -> (Option<ReadAccess>, Vec<String>) {
    let text = |name: &str| {
        input
            .get(name)
            .and_then(RawJson::as_str)
            .map(|text| cut(&text))
    };
    let number = |name: &str| {
        input
            .get(name)
            .and_then(|value| value.0.parse::<u64>().ok())
    };
    let from = |kind, target: Option<String>| {
        target.map(|target| ReadAccess {
            kind,
            target,
            lines: None,
        })
    };
    let search = || {
        from(
            ReadKind::Search,
            text("query").or_else(|| text("sourceName")),
        )
    };
    let read = match tool {
        "read_raw_file" => from(ReadKind::RawFile, text("path")),
        "read_raw_span" => from(ReadKind::RawFile, text("path")).map(|read| ReadAccess {
            lines: number("startLine").map(|first| (first, number("endLine"))),
            ..read
        }),
        "wiki_read" => from(ReadKind::Page, text("key")),
        "sl_read_source" => {
            let connection = text("connectionId")
                .map(|connection| format!("{connection}/"))
                .unwrap_or_default();
            let source = text("sourceName").map(|source| format!("{connection}{source}"));
            from(ReadKind::Source, source).map(|read| ReadAccess {
                lines: number("startLine")
                    .filter(|first| *first > 1)
                    .map(|first| (first, None)),
                ..read
            })
        }
        "sql_execution" => from(ReadKind::Query, text("sql")),
        "entity_details" => {
            let targets = input.get("targets").map(RawJson::items).unwrap_or_default();
            let name = |target: &RawJson<'_>| {
                let [display, name, column] = target.pick(["display", "name", "column"]);
                let text = |value: Option<RawJson<'_>>| {
                    value
                        .and_then(RawJson::as_str)
                        .map(|text| text.into_owned())
                };
                let of_column = |name: String| match text(column) {
                    Some(column) => format!("{name}.{column}"),
                    None => name,
                };
                text(display).or_else(|| text(name).map(of_column))
            };
            let names: Vec<String> = targets.iter().filter_map(name).collect();
            from(
                ReadKind::Tables,
                (!names.is_empty()).then(|| cut(&names.join(", "))),
            )
        }
        "wiki_search" | "sl_discover" | "discover_data" => search(),
        "stage_diff" => {
            let units: Vec<String> = ["unitKeyA", "unitKeyB"]
                .into_iter()
                .filter_map(text)
                .collect();
            from(
                ReadKind::Stage,
                (!units.is_empty()).then(|| units.join(", ")),
            )
        }
        _ => None,
    };
    let raw_paths = input
        .get("rawPaths")
        .map(RawJson::items)
        .unwrap_or_default();
    let raw_paths = raw_paths
        .into_iter()
        .filter_map(RawJson::as_str)
        .take(MAX_RAW_PATHS)
        .map(|path| cut(&path));
    (read, raw_paths.collect())
}

/// The beginning of a text that an agent wrote.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TARGET_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tool: &str, input: &str) -> Option<ReadAccess> {
        accesses(tool, RawJson(input)).0
    }

    #[test]
    fn reads_name_their_target_and_lines() {
        let found = |kind, target: &str, lines| {
            Some(ReadAccess {
                kind,
                target: target.to_owned(),
                lines,
            })
        };
        assert_eq!(
            read("read_raw_file", r#"{"path":"a.md"}"#),
            found(ReadKind::RawFile, "a.md", None)
        );
        let span = r#"{"path":"a.md","startLine":3,"endLine":9}"#;
        assert_eq!(
            read("read_raw_span", span),
            found(ReadKind::RawFile, "a.md", Some((3, Some(9))))
        );
        let source = r#"{"connectionId":"shop","sourceName":"orders","startLine":50}"#;
        assert_eq!(
            read("sl_read_source", source),
            found(ReadKind::Source, "shop/orders", Some((50, None)))
        );
        let targets = r#"{"targets":[{"display":"main.a"},{"name":"b","column":"c"},7]}"#;
        assert_eq!(
            read("entity_details", targets),
            found(ReadKind::Tables, "main.a, b.c", None)
        );
        assert_eq!(
            read("sl_discover", r#"{"sourceName":"x"}"#),
            found(ReadKind::Search, "x", None)
        );
        assert_eq!(
            read("sql_execution", r#"{"sql":"SELECT 1"}"#),
            found(ReadKind::Query, "SELECT 1", None)
        );
        assert_eq!(
            read("stage_diff", r#"{"unitKeyA":"a","unitKeyB":"b"}"#),
            found(ReadKind::Stage, "a, b", None)
        );
    }

    #[test]
    fn hostile_arguments_are_ignored_or_cut() {
        for input in [
            "",
            "[]",
            "{",
            r#"{"path":7}"#,
            r#"{"path":null,"rawPaths":"x"}"#,
            r#"{"rawPaths":[{},1]}"#,
        ] {
            assert_eq!(
                accesses("read_raw_file", RawJson(input)),
                (None, Vec::new()),
                "{input}"
            );
        }
        let long = format!(
            r#"{{"key":"{}","rawPaths":[{}"a"]}}"#,
            "k".repeat(5_000),
            r#""b","#.repeat(5_000)
        );
        let (read, raw_paths) = accesses("wiki_read", RawJson(&long));
        assert_eq!(read.unwrap().target.chars().count(), MAX_TARGET_CHARS + 1);
        assert_eq!(raw_paths.len(), MAX_RAW_PATHS);
        assert_eq!(
            accesses("wiki_write", RawJson(r#"{"key":"a"}"#)),
            (None, Vec::new())
        );
    }

    #[test]
    fn reads_are_newest_first_without_repetitions() {
        let call = |entry: u64, target: &str, succeeded| ProvenanceCall {
            id: entry.to_string(),
            tool: "wiki_read".into(),
            turn: 1,
            entry: Seq(entry),
            ended: Some(Seq(entry)),
            at: Millis(entry),
            read: Some(ReadAccess {
                kind: ReadKind::Page,
                target: target.into(),
                lines: None,
            }),
            raw_paths: Vec::new(),
            is_edited: false,
            succeeded,
        };
        let parallel = ProvenanceCall {
            ended: Some(Seq(10)),
            ..call(5, "e", true)
        };
        let write = call(9, "d", true);
        let list = [
            call(1, "a", true),
            call(2, "b", true),
            call(3, "a", true),
            call(4, "c", false),
            parallel,
            write,
        ];
        let calls = ProvenanceCalls {
            calls: list.to_vec(),
            turns: 1,
        };
        let entries = |write: &ProvenanceCall| -> Vec<u64> {
            calls
                .reads_before(write)
                .iter()
                .map(|call| call.entry.0)
                .collect()
        };
        assert_eq!(
            entries(&list[5]),
            [3, 2],
            "the read in entry 5 ended after the write began"
        );
        assert_eq!(
            entries(&ProvenanceCall {
                turn: 2,
                ..list[5].clone()
            }),
            [5, 3, 2]
        );
    }
}
