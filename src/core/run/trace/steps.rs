//! The steps before and after the units: the plan, the reconcile step, the integration, the commit.

use serde_json::{Map, Value, json};

use super::{TraceEvent, TraceLevel, TraceOrigin, TraceWriter, is_reconcile_step, started};
use crate::tape::{
    Millis, UnitKey,
    note::{
        AttemptEnded, AttemptOutcome, DiffCounts, PatchIntegrated, PatchResult, RunSaved,
        SourceRead,
    },
};

const DEBUG: TraceLevel = TraceLevel::Debug;
const ERROR: TraceLevel = TraceLevel::Error;

impl TraceWriter {
    /// Writes the steps that led to the plan of one connection. Only copying its files is long enough to be timed. The
    /// job of a connection without units begins here.
    pub(super) fn source_read(&mut self, at: Millis, read: &SourceRead, out: &mut Vec<u8>) {
        let SourceRead {
            connection,
            adapter,
            staged,
            ..
        } = read;
        let DiffCounts {
            added,
            modified,
            deleted,
            unchanged,
        } = read.diff;
        let diff = json!({"added": added, "modified": modified, "deleted": deleted, "unchanged": unchanged});
        let count = added.saturating_add(modified).saturating_add(unchanged);
        let units = self
            .plan
            .units
            .iter()
            .filter(|unit| unit.connection == *connection && unit.adapter == *adapter);
        let units = units.count();
        let is_known =
            |source: &TraceOrigin| source.connection == *connection && source.adapter == *adapter;
        if !self.sources.iter().any(is_known) {
            if units == 0 {
                self.write(at, connection, adapter, &started(), out);
            }
            // A plan without units contains only the reconcile step.
            let is_in_reconcile_step = !read.deleted.is_empty() || self.plan.units.is_empty();
            let (connection, adapter) = (connection.clone(), adapter.clone());
            self.sources.push(TraceOrigin {
                connection,
                adapter,
                is_in_reconcile_step,
            });
        }
        let of_source = json!({"connectionId": connection, "sourceKey": adapter});
        let with = |more: Value| {
            let fields = [&of_source, &more]
                .into_iter()
                .filter_map(Value::as_object)
                .flatten();
            Value::Object(
                fields
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            )
        };
        let steps = [
            (
                "fetch",
                "resolve_staged_dir_finished",
                json!({"bundleRefKind": "upload", "sourceKey": adapter}),
            ),
            (
                "stage_raw_files",
                "stage_raw_files_finished",
                with(json!({"stagedDir": staged, "syncId": self.sync()})),
            ),
            (
                "diff",
                "compute_diff_set_finished",
                with(json!({"currentHashCount": count, "scopeFingerprint": null})),
            ),
            (
                "snapshot",
                "input_snapshot",
                json!({"stagedDir": staged, "rawFileCount": count, "diffSummary": diff}),
            ),
            ("detect", "adapter_detected", json!({"detected": true})),
            (
                "planning",
                "chunk_work_units_finished",
                json!({"stagedDir": staged, "added": added, "modified": modified, "deleted": deleted}),
            ),
            (
                "planning",
                "work_units_planned",
                json!({
                    "workUnitCount": units, "evictionCount": read.deleted.len(), "unresolvedCardCount": 0,
                    "triageEnabled": false,
                }),
            ),
        ];
        for (phase, name, data) in steps {
            let took = read
                .stage_ms
                .map(Millis)
                .filter(|_| phase == "stage_raw_files");
            let event = TraceEvent {
                took,
                ..TraceEvent::new(TraceLevel::Debug, phase, name, data)
            };
            self.write(at, connection, adapter, &event, out);
        }
    }

    pub(super) fn saved(&mut self, at: Millis, saved: &RunSaved, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.reconciled) {
            let data = json!({
                "skipped": true, "stopReason": null, "actionCount": 0, "conflictCount": 0, "fallbackCount": 0,
                "artifactResolutionCount": 0,
            });
            let event = TraceEvent::new(
                TraceLevel::Debug,
                "reconciliation",
                "reconciliation_finished",
                data,
            );
            self.write_run_event(at, &event, out);
        }
        let data =
            json!({"commitSha": saved.commit, "branch": saved.branch, "touchedPaths": saved.paths});
        let event = TraceEvent::new(TraceLevel::Debug, "squash", "squash_finished", data);
        let took = self.step(at);
        self.write_run_event(at, &TraceEvent { took, ..event }, out);
        // A later integration that changed nothing has no commit.
        self.commit = saved.commit.clone().or(self.commit.take());
    }

    /// Returns the duration of the step that ends now, and starts the next step.
    fn step(&mut self, at: Millis) -> Option<Millis> {
        self.last_step_end.replace(at).map(|began| at.since(began))
    }

    /// The reconcile step is not a work unit: KTX traces it in a separate phase.
    pub(super) fn reconcile_ended(
        &mut self,
        at: Millis,
        ended: &AttemptEnded,
        took: Option<Millis>,
        figures: Map<String, Value>,
        out: &mut Vec<u8>,
    ) {
        let AttemptEnded { verdict, work, .. } = ended;
        self.last_step_end = Some(at);
        self.reconciled = true;
        let mut data = Map::new();
        data.insert("mode".into(), "single".into());
        data.insert("skipped".into(), false.into());
        data.insert("stopReason".into(), json!(verdict.stop));
        data.extend(figures);
        let executed = TraceEvent::new(
            TraceLevel::Debug,
            "reconciliation",
            "reconciliation_executed",
            Value::Object(data),
        );
        self.write_run_event(at, &TraceEvent { took, ..executed }, out);
        if verdict.outcome != AttemptOutcome::Succeeded {
            return self.reconcile_failed(at, &verdict.reason, out);
        }
        let data = json!({
            "skipped": false, "stopReason": verdict.stop, "actionCount": work.actions.len(),
            "conflictCount": work.conflicts.len(), "fallbackCount": work.unmapped.len(),
            "artifactResolutionCount": work.resolutions.len(),
        });
        let event = TraceEvent::new(
            TraceLevel::Debug,
            "reconciliation",
            "reconciliation_finished",
            data,
        );
        self.write_run_event(at, &event, out);
    }

    fn reconcile_failed(&self, at: Millis, reason: &str, out: &mut Vec<u8>) {
        let event = TraceEvent::new(
            TraceLevel::Error,
            "reconciliation",
            "reconciliation_failed",
            Value::Null,
        );
        self.write_run_event(
            at,
            &TraceEvent {
                error: Some(("Error", reason)),
                ..event
            },
            out,
        );
    }

    pub(super) fn integrated(
        &mut self,
        at: Millis,
        unit: &UnitKey,
        integrated: &PatchIntegrated,
        out: &mut Vec<u8>,
    ) {
        let took = self.step(at);
        let verdict = integrated.verdict.as_ref();
        if is_reconcile_step(unit) {
            return verdict
                .into_iter()
                .for_each(|verdict| self.reconcile_failed(at, &verdict.reason, out));
        }
        if verdict.is_some() {
            self.failed.insert(unit.clone());
        } else {
            self.failed.remove(unit);
        }
        // The preceding steps as KTX traces them; the first one has the duration of all.
        let steps: &[(TraceLevel, &str)] = match integrated.result {
            PatchResult::Accepted => &[
                (DEBUG, "patch_apply_finished"),
                (DEBUG, "semantic_gate_finished"),
                (DEBUG, "patch_accepted"),
            ],
            PatchResult::Noop => &[(DEBUG, "patch_noop_accepted")],
            PatchResult::TextualConflict => &[
                (ERROR, "patch_apply_failed"),
                (ERROR, "patch_textual_conflict"),
            ],
            PatchResult::SemanticConflict => &[
                (DEBUG, "patch_apply_finished"),
                (ERROR, "semantic_gate_failed"),
                (ERROR, "patch_semantic_conflict"),
            ],
            PatchResult::ForbiddenPaths => &[(ERROR, "patch_policy_rejected")],
            PatchResult::PatchUnreadable => &[(ERROR, "patch_apply_failed")],
        };
        for (index, (level, name)) in steps.iter().enumerate() {
            let mut data = json!({"unitKey": self.key(unit), "touchedPaths": integrated.paths});
            if index + 1 == steps.len() {
                match verdict {
                    Some(verdict) => data["reason"] = verdict.reason.as_str().into(),
                    None => {
                        data["commitSha"] = json!(integrated.commit);
                        if !integrated.shared.is_empty() {
                            data["sharedPaths"] = json!(integrated.shared);
                        }
                    }
                }
            }
            let took = took.filter(|_| index == 0);
            self.write_unit_event(
                at,
                unit,
                &TraceEvent {
                    took,
                    ..TraceEvent::new(*level, "integration", name, data)
                },
                out,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::tape::{
        EntryBody, Header, Note, Seq, TapeEntry,
        note::{
            AttemptOutput, IntegrationStarted, PatchWritten, PlannedUnit, RunEnded, RunPlanned,
            StopReason, Verdict,
        },
    };

    fn ended(outcome: AttemptOutcome, work: AttemptOutput) -> Note {
        let verdict = Verdict {
            outcome,
            stop: StopReason::Natural,
            cause: crate::tape::note::VerdictCause::Completed,
            reason: "its reason".into(),
            remedy: None,
        };
        let json = json!({"kind": "attempt_ended", "verdict": verdict, "work": work});
        Note::parse(&serde_json::to_vec(&json).unwrap())
    }

    /// Time, unit and note of an entry; a result line has no note.
    type TraceEntry<'a> = (u64, Option<&'a str>, Option<Note>);

    fn trace_of(entries: &[TraceEntry<'_>]) -> Vec<Value> {
        let usage = r#"{"input_tokens":5,"output_tokens":2}"#;
        trace_with_usage(entries, &[usage])
    }

    /// The trace of entries whose result lines have these usages; the last one repeats.
    fn trace_with_usage(entries: &[TraceEntry<'_>], usages: &[&str]) -> Vec<Value> {
        let header = include_str!("../../../../tests/fixtures/tapes/demo.jsonl")
            .lines()
            .next()
            .unwrap();
        let mut trace =
            TraceWriter::new(Header::parse(header.as_bytes()).unwrap(), TraceLevel::Debug);
        let (mut out, mut results) = (Vec::new(), 0);
        for (seq, (at, unit, note)) in (0..).zip(entries) {
            let usage = usages[results.min(usages.len() - 1)];
            let result =
                format!(r#"{{"type":"result","subtype":"success","num_turns":9,"usage":{usage}}}"#);
            results += usize::from(note.is_none());
            let json = note.as_ref().map(Note::to_json);
            let body = json
                .as_deref()
                .map_or(EntryBody::Stdout(result.as_bytes()), EntryBody::Note);
            let attempt_key = unit.map(|unit| (unit.into(), 1));
            trace.write_entry(
                &TapeEntry {
                    seq: Seq(seq),
                    at: Millis(*at),
                    attempt: attempt_key,
                    body,
                },
                &mut out,
            );
        }
        String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn planned(units: &[(&str, &str)]) -> Note {
        let unit = |(unit, connection): &(&str, &str)| PlannedUnit {
            unit: (*unit).into(),
            connection: (*connection).into(),
            adapter: "dbt".into(),
            ..PlannedUnit::default()
        };
        let units = units.iter().map(unit).collect();
        Note::RunPlanned(Box::new(RunPlanned {
            job: "j".into(),
            units,
            ..RunPlanned::default()
        }))
    }

    fn integrated(result: PatchResult, verdict: Option<Verdict>) -> Note {
        Note::PatchIntegrated(Box::new(PatchIntegrated {
            result,
            verdict,
            ..PatchIntegrated::default()
        }))
    }

    /// A run of two connections with a successful and a failed unit, a reconcile step and a commit.
    fn traced() -> Vec<Value> {
        let read = SourceRead {
            connection: "orbit".into(),
            adapter: "dbt".into(),
            staged: Some(".ktx/cache/local-ingest/j/upload/orbit".into()),
            stage_ms: Some(9),
            diff: DiffCounts {
                added: 6,
                ..DiffCounts::default()
            },
            ..SourceRead::default()
        };
        let paths = vec!["wiki/global/a.md".to_owned()];
        let patch = PatchWritten {
            paths: paths.clone(),
            ..PatchWritten::default()
        };
        let work = AttemptOutput {
            conflicts: vec![json!({})],
            ..AttemptOutput::default()
        };
        let entries: Vec<TraceEntry<'_>> = vec![
            (
                0,
                None,
                Some(planned(&[("good", "orbit"), ("bad", "shop")])),
            ),
            (1, None, Some(Note::SourceRead(Box::new(read)))),
            (10, Some("good"), Some(Note::AttemptStarted(Box::default()))),
            (12, Some("bad"), Some(Note::AttemptStarted(Box::default()))),
            (500, Some("good"), None),
            (530, Some("good"), Some(Note::PatchWritten(patch.clone()))),
            (
                540,
                Some("good"),
                Some(ended(AttemptOutcome::Succeeded, AttemptOutput::default())),
            ),
            (
                600,
                Some("bad"),
                Some(ended(AttemptOutcome::Failed, AttemptOutput::default())),
            ),
            (
                610,
                None,
                Some(Note::IntegrationStarted(IntegrationStarted {
                    units: vec!["good".into()],
                    ..IntegrationStarted::default()
                })),
            ),
            (
                640,
                Some("good"),
                Some(integrated(PatchResult::Accepted, None)),
            ),
            (
                650,
                Some(super::super::RECONCILE_KEY),
                Some(Note::AttemptStarted(Box::default())),
            ),
            (800, Some(super::super::RECONCILE_KEY), None),
            (
                820,
                Some(super::super::RECONCILE_KEY),
                Some(Note::PatchWritten(patch)),
            ),
            (
                850,
                Some(super::super::RECONCILE_KEY),
                Some(ended(AttemptOutcome::Succeeded, work)),
            ),
            (
                860,
                Some(super::super::RECONCILE_KEY),
                Some(integrated(PatchResult::Noop, None)),
            ),
            (
                900,
                None,
                Some(Note::RunSaved(RunSaved {
                    commit: Some("c0ffee".into()),
                    paths,
                    ..RunSaved::default()
                })),
            ),
            (
                910,
                None,
                Some(Note::RunEnded(RunEnded {
                    outcome: "partial".into(),
                    ..RunEnded::default()
                })),
            ),
        ];
        trace_of(&entries)
    }

    #[test]
    fn run_trace_has_the_steps_of_ktx() {
        let lines = traced();
        let steps: Vec<String> = lines
            .iter()
            .map(|line| {
                let took = line["durationMs"]
                    .as_u64()
                    .map_or(String::new(), |took| format!(" {took} ms"));
                let unit = line["data"]["unitKey"]
                    .as_str()
                    .map_or(String::new(), |unit| format!(" {unit}"));
                let text = |key: &str| line[key].as_str().unwrap().to_owned();
                format!(
                    "{} {} {}{unit}{took}",
                    text("connectionId"),
                    text("phase"),
                    text("event")
                )
            })
            .collect();
        insta::assert_snapshot!(steps.join("\n"));
    }

    /// KTX's profile sums durations by phase and treats every event with a unit key as a work unit.
    #[test]
    fn ktx_profile_ranks_units_slowest() {
        let mut phases: BTreeMap<String, u64> = BTreeMap::new();
        let mut units = BTreeSet::new();
        for line in traced() {
            *phases
                .entry(line["phase"].as_str().unwrap().to_owned())
                .or_default() += line["durationMs"].as_u64().unwrap_or(0);
            units.extend(line["data"]["unitKey"].as_str().map(str::to_owned));
        }
        phases.retain(|_, took| *took > 0);
        let expected = [
            ("integration", 30),
            ("reconciliation", 200),
            ("squash", 40),
            ("stage_raw_files", 9),
            ("work_unit", 1_118),
        ];
        assert_eq!(
            phases,
            expected
                .map(|(phase, took)| (phase.to_owned(), took))
                .into()
        );
        assert_eq!(units.into_iter().collect::<Vec<_>>(), ["bad", "good"]);
        let executed: Vec<Value> = traced()
            .into_iter()
            .filter(|line| line["event"] == "work_unit_executed")
            .collect();
        assert_eq!(
            (
                &executed[0]["data"]["agentLoopMs"],
                &executed[0]["durationMs"]
            ),
            (&json!(490), &json!(530))
        );
        let finished = traced()
            .into_iter()
            .rev()
            .find(|line| line["connectionId"] == "shop")
            .unwrap();
        assert_eq!(finished["data"]["failedWorkUnits"], json!(["bad"]));
        assert_eq!(finished["data"]["commitSha"], "c0ffee");
    }

    #[test]
    fn repeated_result_and_result_without_tokens_change_nothing() {
        let tokens = |usages: &[&str]| {
            let results = (0..usages.len() as u64).map(|at| (20 + at, Some("a"), None));
            let start = [
                (0, None, Some(planned(&[("a", "orbit")]))),
                (10, Some("a"), Some(Note::AttemptStarted(Box::default()))),
            ];
            let end = (
                90,
                Some("a"),
                Some(ended(AttemptOutcome::Succeeded, AttemptOutput::default())),
            );
            let entries: Vec<_> = start.into_iter().chain(results).chain([end]).collect();
            let lines = trace_with_usage(&entries, usages);
            let executed = lines
                .into_iter()
                .find(|line| line["event"] == "work_unit_executed")
                .unwrap();
            (
                executed["data"]["totalTokens"].as_u64(),
                executed["data"]["agentLoopMs"].as_u64(),
            )
        };
        let (some, more, none) = (
            r#"{"input_tokens":5}"#,
            r#"{"input_tokens":9}"#,
            r#"{"input_tokens":0}"#,
        );
        assert_eq!(tokens(&[some]), (Some(5), Some(10)));
        assert_eq!(tokens(&[some, more]), (Some(5), Some(10)));
        assert_eq!(tokens(&[none]), (None, Some(10)));
    }

    /// Returns commit and failed units from the last line of each connection.
    fn summaries(entries: &[TraceEntry<'_>]) -> Vec<(Value, Value)> {
        let lines = trace_of(entries);
        let last = lines
            .iter()
            .filter(|line| line["event"] == "ingest_finished");
        last.map(|line| {
            (
                line["data"]["commitSha"].clone(),
                line["data"]["failedWorkUnits"].clone(),
            )
        })
        .collect()
    }

    fn saved(commit: Option<&str>) -> Option<Note> {
        Some(Note::RunSaved(RunSaved {
            commit: commit.map(str::to_owned),
            ..RunSaved::default()
        }))
    }

    fn done() -> Option<Note> {
        Some(Note::RunEnded(RunEnded {
            outcome: "partial".into(),
            ..RunEnded::default()
        }))
    }

    #[test]
    fn commit_is_that_of_the_last_round_that_changed_something() {
        let plan = || Some(planned(&[("a", "orbit")]));
        let commit = |rounds: &[Option<&str>]| {
            let rounds = rounds.iter().map(|commit| (1, None, saved(*commit)));
            let entries: Vec<_> = std::iter::once((0, None, plan()))
                .chain(rounds)
                .chain([(2, None, done())])
                .collect();
            summaries(&entries).remove(0).0
        };
        assert_eq!(commit(&[]), Value::Null);
        assert_eq!(commit(&[None]), Value::Null);
        assert_eq!(commit(&[Some("c0ffee"), None]), "c0ffee");
        assert_eq!(
            commit(&[None, Some("c0ffee"), Some("decade"), None]),
            "decade"
        );
    }

    #[test]
    fn failed_units_are_those_whose_last_attempt_or_patch_failed() {
        let attempt = |outcome| Some(ended(outcome, AttemptOutput::default()));
        let refused = Verdict {
            outcome: AttemptOutcome::Failed,
            stop: StopReason::Natural,
            cause: crate::tape::note::VerdictCause::Completed,
            reason: "unknown source".into(),
            remedy: None,
        };
        let units = [
            ("good", "orbit"),
            ("bad", "orbit"),
            ("retried", "orbit"),
            ("refused", "shop"),
            ("mended", "shop"),
        ];
        let mut entries: Vec<TraceEntry<'_>> = vec![
            (0, None, Some(planned(&units))),
            (1, Some("good"), attempt(AttemptOutcome::Succeeded)),
            (2, Some("bad"), attempt(AttemptOutcome::Failed)),
            (3, Some("retried"), attempt(AttemptOutcome::Failed)),
            (4, Some("refused"), attempt(AttemptOutcome::Succeeded)),
            (5, Some("mended"), attempt(AttemptOutcome::Succeeded)),
            (
                6,
                Some("refused"),
                Some(integrated(
                    PatchResult::SemanticConflict,
                    Some(refused.clone()),
                )),
            ),
            (
                7,
                Some("mended"),
                Some(integrated(PatchResult::TextualConflict, Some(refused))),
            ),
            (
                8,
                Some(super::super::RECONCILE_KEY),
                attempt(AttemptOutcome::Failed),
            ),
        ];
        let failed = |entries: &[TraceEntry<'_>]| {
            let failed = summaries(entries).into_iter().map(|(_, failed)| failed);
            failed.collect::<Vec<_>>()
        };
        entries.push((9, None, done()));
        assert_eq!(
            failed(&entries),
            [json!(["bad", "retried"]), json!(["mended", "refused"])]
        );
        entries.pop();
        entries.push((10, Some("retried"), attempt(AttemptOutcome::Succeeded)));
        entries.push((11, Some("mended"), attempt(AttemptOutcome::Succeeded)));
        entries.push((
            12,
            Some("mended"),
            Some(integrated(PatchResult::Accepted, None)),
        ));
        entries.push((13, None, done()));
        assert_eq!(
            failed(&entries),
            [json!(["bad"]), json!(["refused"])],
            "the reconcile step is not a unit"
        );
    }
}
