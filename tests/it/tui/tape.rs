//! Tapes made by hand, with the entries that a run would have recorded.

use std::io::Write as _;

use ingestdeck_core::{
    run::Timeline,
    tape::{
        EntryBody, FORMAT_VERSION, Header, Millis, Note, RunId, Seq, TapeEntry,
        note::{
            AttemptEnded, AttemptOutcome, AttemptStarted, PlannedUnit, RunEnded, RunPlanned,
            Severity, StopReason, Verdict, VerdictCause,
        },
    },
};
use ingestdeck_records::replay::FileSource;
use serde_json::{Value, json};

/// A builder for a tape.
pub(crate) struct TapeFixture {
    bytes: Vec<u8>,
    seq: u64,
    at: u64,
    /// Counter for the ids of messages.
    messages: u64,
}

impl TapeFixture {
    pub(crate) fn new(project: &str, scripted: bool) -> Self {
        let header = Header {
            tape: FORMAT_VERSION,
            program: "ingestdeck test".into(),
            run: RunId(uuid::Uuid::from_u128(
                0x0193_4f5a_0000_7000_8000_0000_007f_3a2b,
            )),
            started_at: super::scripted_host::EPOCH.parse().unwrap(),
            project: Some(project.into()),
            scripted,
            agent: None,
        };
        Self {
            bytes: header.to_line(),
            seq: 0,
            at: 0,
            messages: 0,
        }
    }

    /// Advances the time of the next entry.
    pub(crate) fn wait(&mut self, ms: u64) -> &mut Self {
        self.at += ms;
        self
    }

    pub(crate) fn entry(&mut self, lane: Option<(&str, u32)>, body: EntryBody<'_>) -> &mut Self {
        let lane = lane.map(|(unit, attempt)| (unit.into(), attempt));
        TapeEntry {
            seq: Seq(self.seq),
            at: Millis(self.at),
            attempt: lane,
            body,
        }
        .write(&mut self.bytes);
        self.seq += 1;
        self
    }

    pub(crate) fn note(&mut self, lane: Option<(&str, u32)>, note: &Note) -> &mut Self {
        self.entry(lane, EntryBody::Note(&note.to_json()))
    }

    pub(crate) fn stdout_line(&mut self, unit: &str, attempt: u32, line: &Value) -> &mut Self {
        self.entry(
            Some((unit, attempt)),
            EntryBody::Stdout(line.to_string().as_bytes()),
        )
    }

    pub(crate) fn plan<S: AsRef<str>>(&mut self, units: &[S]) -> &mut Self {
        let units = units.iter().map(|unit| PlannedUnit {
            unit: unit.as_ref().into(),
            connection: "warehouse".into(),
            adapter: "dbt".into(),
            raw_files: vec!["models/schema.yml".into(), "models/marts.yml".into()],
            why: "2 raw files, never ingested".into(),
            ..PlannedUnit::default()
        });
        let plan = RunPlanned {
            job: "job-1".into(),
            units: units.collect(),
            concurrency: 4,
            step_budget: 40,
            failure_mode: "continue".into(),
            tool_failures: "strict".into(),
            ..RunPlanned::default()
        };
        self.note(None, &Note::RunPlanned(Box::new(plan)))
    }

    pub(crate) fn start(&mut self, unit: &str, attempt: u32) -> &mut Self {
        let started = AttemptStarted {
            argv: vec!["claude".into(), "-p".into()],
            model: Some("claude-sonnet-5-5".into()),
            step_budget: 40,
            tools: vec!["mcp__ktx__read_raw_file".into()],
            pid: Some(4242),
            ..AttemptStarted::default()
        };
        self.note(
            Some((unit, attempt)),
            &Note::AttemptStarted(Box::new(started)),
        );
        self.stdout_line(
            unit,
            attempt,
            &json!({"type": "system", "subtype": "init", "session_id": format!("5e55-{unit}-{attempt}"), "model": "claude-sonnet-5-5",
                "cwd": "/p", "tools": ["mcp__ktx__read_raw_file"], "mcp_servers": [{"name": "ktx", "status": "connected"}]}),
        )
    }

    fn assistant(&mut self, unit: &str, attempt: u32, block: &Value) -> &mut Self {
        self.messages += 1;
        let id = format!("msg_{}", self.messages);
        self.stdout_line(
            unit,
            attempt,
            &json!({"type": "assistant", "session_id": format!("5e55-{unit}-{attempt}"), "parent_tool_use_id": null,
                "message": {"id": id, "role": "assistant", "model": "claude-sonnet-5-5", "content": [block],
                    "usage": {"input_tokens": 10, "output_tokens": 5}}}),
        )
    }

    pub(crate) fn say(&mut self, unit: &str, attempt: u32, text: &str) -> &mut Self {
        self.assistant(unit, attempt, &json!({"type": "text", "text": text}))
    }

    pub(crate) fn think(&mut self, unit: &str, attempt: u32, text: &str) -> &mut Self {
        self.assistant(
            unit,
            attempt,
            &json!({"type": "thinking", "thinking": text}),
        )
    }

    pub(crate) fn call(
        &mut self,
        unit: &str,
        attempt: u32,
        id: &str,
        tool: &str,
        input: &Value,
    ) -> &mut Self {
        let name = format!("mcp__ktx__{tool}");
        self.assistant(
            unit,
            attempt,
            &json!({"type": "tool_use", "id": id, "name": name, "input": input}),
        )
    }

    pub(crate) fn result(
        &mut self,
        unit: &str,
        attempt: u32,
        id: &str,
        text: &str,
        failed: bool,
    ) -> &mut Self {
        self.stdout_line(
            unit,
            attempt,
            &json!({"type": "user", "session_id": format!("5e55-{unit}-{attempt}"), "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}], "is_error": failed}]}}),
        )
    }

    pub(crate) fn delta(&mut self, unit: &str, attempt: u32, text: &str) -> &mut Self {
        self.stdout_line(
            unit,
            attempt,
            &json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}, "session_id": format!("5e55-{unit}-{attempt}")}),
        )
    }

    pub(crate) fn end(&mut self, unit: &str, attempt: u32, failures: u32) -> &mut Self {
        self.stdout_line(
            unit,
            attempt,
            &json!({"type": "result", "subtype": "success", "is_error": false, "result": "Done.", "num_turns": 3,
                "total_cost_usd": 0.0412, "duration_ms": 21_000, "session_id": format!("5e55-{unit}-{attempt}"),
                "usage": {"input_tokens": 100, "output_tokens": 50}}),
        );
        self.judged(unit, attempt, failures)
    }

    /// Ends the attempt with a failed verdict, without a result line.
    pub(crate) fn crash(&mut self, unit: &str, attempt: u32) -> &mut Self {
        self.judged(unit, attempt, 1)
    }

    fn judged(&mut self, unit: &str, attempt: u32, failures: u32) -> &mut Self {
        let failed = failures > 0;
        let verdict = Verdict {
            outcome: if failed {
                AttemptOutcome::Failed
            } else {
                AttemptOutcome::Succeeded
            },
            stop: StopReason::Natural,
            cause: if failed {
                VerdictCause::ToolFailures
            } else {
                VerdictCause::Completed
            },
            reason: if failed {
                format!("{failures} tool call(s) failed during WorkUnit {unit}")
            } else {
                "completed".into()
            },
            remedy: failed
                .then(|| "press r to try again, or set tool_failures = \"recoverable\"".into()),
        };
        let ended = AttemptEnded {
            verdict,
            tool_failures: failures,
            failed_call: None,
            exit_code: Some(0),
            signal: None,
            stderr_tail: Vec::new(),
            wrote: Vec::new(),
            work: Default::default(),
            extra: serde_json::Map::default(),
        };
        self.note(Some((unit, attempt)), &Note::AttemptEnded(Box::new(ended)))
    }

    pub(crate) fn message(&mut self, unit: Option<&str>, level: Severity, text: &str) -> &mut Self {
        self.note(
            unit.map(|unit| (unit, 1)),
            &Note::Message {
                level,
                text: text.into(),
            },
        )
    }

    pub(crate) fn run_ended(&mut self, succeeded: u32, failed: u32) -> &mut Self {
        let outcome = if failed > 0 { "partial" } else { "done" };
        self.note(
            None,
            &Note::RunEnded(RunEnded {
                outcome: outcome.into(),
                succeeded,
                failed,
                ..RunEnded::default()
            }),
        )
    }

    pub(crate) fn entries(&self) -> u64 {
        self.seq
    }

    /// A timeline over the finished tape.
    pub(crate) fn timeline(&self) -> Timeline {
        let file = self.file();
        // The source keeps the file open; its name may be deleted.
        Timeline::new(Box::new(FileSource::open(file.path()).unwrap()))
    }

    /// A timeline over the tape while it grows.
    pub(crate) fn growing(&self) -> GrowingTape {
        let file = self.file();
        let (source, finish) = FileSource::follow(file.path()).unwrap();
        GrowingTape {
            timeline: Timeline::new(Box::new(source)),
            finish,
            file,
        }
    }

    fn file(&self) -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new()
            .prefix("run")
            .suffix(".jsonl")
            .tempfile()
            .unwrap();
        file.write_all(&self.bytes).unwrap();
        file
    }
}

/// A record that a writer still has open.
pub(crate) struct GrowingTape {
    pub(crate) timeline: Timeline,
    /// Marks the end of the record.
    pub(crate) finish: ingestdeck_records::replay::file::FollowHandle,
    file: tempfile::NamedTempFile,
}

impl GrowingTape {
    /// The file, and the bytes that `whole` has after those of `before`.
    pub(crate) fn more(
        &self,
        before: &TapeFixture,
        whole: &TapeFixture,
    ) -> (std::fs::File, Vec<u8>) {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.file.path())
            .unwrap();
        (
            file,
            whole
                .bytes
                .strip_prefix(before.bytes.as_slice())
                .expect("`before` is the start of `whole`")
                .to_vec(),
        )
    }
}

/// A run in the middle: one unit failed, one runs, one is done, one is queued.
pub(crate) fn running() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&[
        "notion-revenue-policy",
        "dbt-all",
        "lookml-orphans",
        "lookml-dashboard-exec",
    ]);
    tape.start("notion-revenue-policy", 1).wait(1200);
    tape.call(
        "notion-revenue-policy",
        1,
        "t1",
        "read_raw_file",
        &json!({"path": "policy.md"}),
    )
    .wait(100);
    tape.result("notion-revenue-policy", 1, "t1", &"x".repeat(15_700), false)
        .wait(900);
    tape.call(
        "notion-revenue-policy",
        1,
        "t2",
        "wiki_write",
        &json!({"key": "revenue", "content": "# Revenue"}),
    )
    .wait(50);
    tape.result(
        "notion-revenue-policy",
        1,
        "t2",
        "wiki_write rejected: front matter is missing a title\nsecond line",
        true,
    )
    .wait(500);
    tape.end("notion-revenue-policy", 1, 1).wait(200);
    tape.start("lookml-orphans", 1).wait(700);
    tape.say("lookml-orphans", 1, "Nothing refers to these views.")
        .wait(2000);
    tape.end("lookml-orphans", 1, 0).wait(100);
    tape.start("dbt-all", 1).wait(1000);
    tape.think("dbt-all", 1, "I should read the schema first.\nThen write.")
        .wait(300);
    tape.call(
        "dbt-all",
        1,
        "d1",
        "read_raw_file",
        &json!({"path": "models/schema.yml"}),
    )
    .wait(120);
    tape.result(
        "dbt-all",
        1,
        "d1",
        "version: 2\nmodels:\n  - name: mart_arr_daily\n",
        false,
    )
    .wait(1500);
    tape.call("dbt-all", 1, "d2", "wiki_search", &json!({"query": "arr"}))
        .wait(10);
    tape.result("dbt-all", 1, "d2", "[]", false).wait(1200);
    tape.say(
        "dbt-all",
        1,
        "The wiki has no page about ARR yet, so I write one.\nIt covers both marts.",
    )
    .wait(400);
    tape.stdout_line("dbt-all", 1, &json!({"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "tool_use_id": "d9", "message": "not allowed"}));
    tape.call(
        "dbt-all",
        1,
        "d3",
        "sl_write_source",
        &json!({"sourceName": "mart_arr_daily", "yaml": "a: 1"}),
    )
    .wait(3000);
    tape.stdout_line("dbt-all", 1, &json!({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 1_795_345_200, "rateLimitType": "five_hour", "utilization": 0.62}}));
    tape.delta(
        "dbt-all",
        1,
        "While that runs: the daily mart is built from the ledger, ",
    );
    tape.delta("dbt-all", 1, "not from invoices.");
    tape
}
