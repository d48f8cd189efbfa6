//! Tasks in the background: the rows of their calls, the agents of a workflow, and the events of their ends.

use super::*;
use crate::run::{TaskChange, state::TaskState};

const WORKFLOW: &str = include_str!(
    "../../../../../tests/fixtures/captures/versions/2.1.332_workflow_two_agents.jsonl"
);
const COMMAND: &str = include_str!("../../../../../tests/fixtures/captures/background_bash.jsonl");
const AGENT: &str = include_str!("../../../../../tests/fixtures/captures/background_agent.jsonl");
const FOREGROUND: &str =
    include_str!("../../../../../tests/fixtures/captures/subagent_foreground.jsonl");
const OLD_AGENT: &str =
    include_str!("../../../../../tests/fixtures/captures/versions/2.1.160_background_agent.jsonl");

/// Folds lines; returns the view after them, and what is reported about calls and tasks.
fn fold_lines<'l>(lines: impl IntoIterator<Item = &'l str>) -> (RunView, Vec<String>) {
    let (mut fold, mut view) = (Fold::new("?".into()), RunView::default());
    let mut reported = Vec::new();
    let mut emit = |event: SinkEvent<'_>| match event {
        SinkEvent::Agent {
            event: AgentEvent::Action(action),
            outcome_detail: Some(detail),
            ..
        } => reported.push(format!("{} {}", action.action.id, detail.as_str())),
        SinkEvent::Agent {
            event: AgentEvent::Completed(_),
            ..
        } => reported.push("completed".to_owned()),
        SinkEvent::Task { task, change, .. } => reported.push(match change {
            TaskChange::Started => format!("{} {} started", task.kind, task.title),
            TaskChange::Ended => format!("{} {} {}", task.kind, task.title, task.state.as_str()),
            TaskChange::AgentEnded(agent) => format!("agent {}", agent.name),
        }),
        _ => {}
    };
    for (seq, line) in lines.into_iter().enumerate() {
        let seq = seq as u64;
        let entry = EntryRef {
            seq: Seq(seq),
            at: Millis(seq),
            scope: EntryScope::BySession,
            body: EntryBody::Stdout(line.as_bytes()),
            is_well_formed: true,
            decoded: None,
        };
        fold.apply(&mut view, &entry, &mut emit);
    }
    fold.finish(&mut view, &mut emit);
    (view, reported)
}

/// Kind, depth and end of the rows at the moment after `entries` entries, without texts and the end of the session.
fn rows(view: &RunView, entries: u64) -> Vec<(RowKind, u8, RowOutcome)> {
    let rows = view.attempts[0].rows_at(entries).iter();
    rows.filter(|row| matches!(row.kind, RowKind::Tool | RowKind::Task | RowKind::Notice))
        .map(|row| (row.kind, row.depth, row.end(entries)))
        .collect()
}

#[test]
fn row_of_a_background_call_stays_open_until_its_task_ends() {
    let (view, reported) = fold_lines(COMMAND.lines());
    assert_eq!(
        reported,
        [
            "command wait started",
            "b1 in the background",
            "command wait completed",
            "completed"
        ]
    );
    let at = |text: &str| {
        COMMAND
            .lines()
            .position(|line| line.contains(text))
            .unwrap() as u64
    };
    let (result, end) = (at("\"tool_result\""), at("task_notification"));
    let call = |moment| rows(&view, moment)[0];
    assert_eq!(call(result + 1), (RowKind::Tool, 0, RowOutcome::Open));
    assert_eq!(call(end), (RowKind::Tool, 0, RowOutcome::Open));
    assert_eq!(call(end + 1), (RowKind::Tool, 0, RowOutcome::Ok));
    let row = *view
        .rows(AttemptId(0))
        .iter()
        .find(|row| row.kind == RowKind::Tool)
        .unwrap();
    let entries = view.row_entries(&row).map(|seq| seq.map(|seq| seq.0));
    assert_eq!(entries, [Some(row.first().0), Some(result), Some(end)]);
}

#[test]
fn workflow_has_rows_for_its_phases_and_agents() {
    let (view, reported) = fold_lines(WORKFLOW.lines());
    assert_eq!(
        reported,
        [
            "workflow two-look started",
            "wf1 in the background",
            "agent one",
            "agent two",
            "workflow two-look completed",
            "completed"
        ]
    );
    let tools = [
        (RowKind::Tool, 0, RowOutcome::Ok),
        (RowKind::Notice, 1, RowOutcome::Ok),
        (RowKind::Task, 2, RowOutcome::Ok),
        (RowKind::Task, 2, RowOutcome::Ok),
    ];
    assert_eq!(rows(&view, view.state.entries), tools);
    let progress = WORKFLOW
        .lines()
        .position(|line| line.contains(r#""state":"done""#));
    let states: Vec<_> = rows(&view, progress.unwrap() as u64 + 1)
        .into_iter()
        .map(|(_, _, end)| end)
        .collect();
    assert_eq!(
        states,
        [
            RowOutcome::Open,
            RowOutcome::Ok,
            RowOutcome::Ok,
            RowOutcome::Open
        ]
    );
    let attempt = &view.state.units[0].attempts[0];
    let task = attempt.live.background_tasks().next().unwrap();
    assert_eq!(
        (task.tokens, task.agent_counts().as_deref()),
        (Some(211), Some("2/2 agents"))
    );
    assert_eq!(attempt.counts.calls, 1, "a task is not a call");
}

#[test]
fn elements_beyond_the_last_row_share_one() {
    let agents = |count: usize| {
        let agents = (1..=count).map(|index| {
            format!(
                r#"{{"type":"workflow_agent","index":{index},"label":"a{index}","state":"done"}}"#
            )
        });
        let agents = agents.collect::<Vec<_>>().join(",");
        format!(
            r#"{{"type":"system","subtype":"task_progress","task_id":"w","tool_use_id":"c","workflow_progress":[{agents}],"session_id":"s"}}"#
        )
    };
    let line = |subtype: &str, rest: &str| {
        format!(
            r#"{{"type":"system","subtype":"{subtype}","task_id":"w","tool_use_id":"c",{rest},"session_id":"s"}}"#
        )
    };
    let lines = [
        line("task_started", r#""task_type":"local_workflow""#),
        agents(10),
        agents(255),
        agents(256),
        agents(300),
        line("task_notification", r#""status":"completed""#),
    ];
    let (view, _) = fold_lines(lines.iter().map(String::as_str));
    let rows: Vec<_> = view.rows(AttemptId(0)).iter().collect();
    let further: Vec<_> = rows.iter().filter(|row| row.block == u8::MAX).collect();
    let tasks = rows.iter().filter(|row| row.kind == RowKind::Task).count();
    assert_eq!((tasks, further.len()), (1 + 255 + 1, 1));
    // From the first line that lists them to the last one.
    assert_eq!(
        (further[0].first(), further[0].last(u64::MAX)),
        (Seq(3), Some(Seq(4)))
    );
    let attempt = &view.state.units[0].attempts[0];
    let task = attempt.live.background_tasks().next().unwrap();
    assert_eq!(task.agent_counts().as_deref(), Some("300/300 agents"));
}

#[test]
fn sub_agent_is_linked_to_the_call_that_started_it() {
    for (lines, linked) in [(FOREGROUND, true), (AGENT, true), (COMMAND, false)] {
        let (view, _) = fold_lines(lines.lines());
        let rows = view.rows(AttemptId(0));
        let nested: Vec<_> = rows.iter().filter(|row| row.depth > 0).collect();
        assert_eq!(!nested.is_empty(), linked);
        for row in nested {
            let call = view
                .sub_agents
                .call_of_row(row)
                .and_then(|call| rows.get(call));
            assert_eq!(
                call.map(|call| (call.kind, call.depth)),
                Some((RowKind::Tool, 0))
            );
        }
    }
}

#[test]
fn background_is_known_where_the_release_does_not_report_it() {
    let (_, reported) = fold_lines(AGENT.lines());
    let agent = [
        "subagent look started",
        "a1 in the background",
        "subagent look completed",
    ];
    assert_eq!(reported[..3], agent);
    let (_, reported) = fold_lines(OLD_AGENT.lines());
    assert_eq!(reported.len(), 4, "{reported:?}");
    assert!(reported[1].ends_with("in the background"));
    let (view, reported) = fold_lines(FOREGROUND.lines());
    assert_eq!(reported, ["completed"]);
    assert_eq!(
        view.state.units[0].attempts[0]
            .live
            .background_tasks()
            .count(),
        0
    );
    let unreported = FOREGROUND.replace(r#""is_backgrounded":false,"#, "");
    assert_eq!(fold_lines(unreported.lines()).1, ["completed"]);
}

#[test]
fn failed_and_abandoned_tasks_mark_their_rows() {
    let failed = COMMAND.replace(
        r#""tool_use_id":"b1","status":"completed""#,
        r#""tool_use_id":"b1","status":"failed""#,
    );
    let (view, reported) = fold_lines(failed.lines());
    assert_eq!(rows(&view, u64::MAX)[0].2, RowOutcome::Failed);
    assert_eq!(reported[2], "command wait failed");
    assert_eq!(view.state.units[0].attempts[0].counts.failures, 0);

    let abandoned = WORKFLOW
        .lines()
        .filter(|line| !line.contains("task_notification") && !line.contains(r#""state":"done""#));
    let (view, reported) = fold_lines(abandoned);
    let ends: Vec<_> = rows(&view, u64::MAX)
        .into_iter()
        .map(|(_, _, end)| end)
        .collect();
    let cut = RowOutcome::Aborted;
    assert_eq!(ends, [cut, RowOutcome::Ok, cut, cut]);
    assert_eq!(reported[2..], ["workflow two-look stopped", "completed"]);
    let task = view.state.units[0].attempts[0]
        .live
        .background_tasks()
        .next();
    assert_eq!(task.unwrap().state, TaskState::Stopped);
}

#[test]
fn task_without_its_call_has_a_row() {
    let lines = COMMAND
        .lines()
        .filter(|line| !line.contains(r#""type":"tool_use""#));
    let (view, _) = fold_lines(lines);
    assert!(rows(&view, u64::MAX).contains(&(RowKind::Task, 0, RowOutcome::Ok)));
}

#[test]
fn hostile_task_lines_are_bounded() {
    let init = r#"{"type":"system","subtype":"init","session_id":"s"}"#.to_owned();
    let start = |index: usize| {
        format!(
            r#"{{"type":"system","subtype":"task_started","session_id":"s","task_id":"t{index}","task_type":"local_workflow","workflow_name":"{}"}}"#,
            "x".repeat(900)
        )
    };
    let items: Vec<String> = (0..3_000)
        .map(|index| {
            format!(r#"{{"type":"workflow_agent","index":{index},"label":"a","state":"start"}}"#)
        })
        .chain(["1".to_owned(), r#"{"type":"workflow_agent"}"#.to_owned()])
        .collect();
    let progress = format!(
        r#"{{"type":"system","subtype":"task_progress","session_id":"s","task_id":"t0","workflow_progress":[{}]}}"#,
        items.join(",")
    );
    let lines: Vec<String> = [init]
        .into_iter()
        .chain((0..1_500).map(start))
        .chain([progress])
        .collect();
    let (view, _) = fold_lines(lines.iter().map(String::as_str));
    let tasks = view.state.units[0].attempts[0]
        .live
        .tasks
        .as_deref()
        .unwrap();
    assert_eq!((tasks.len(), tasks[0].agents.len()), (1_000, 1_000));
    assert!(tasks[0].title.chars().count() <= 201);
    // Only the first 256 elements of a line can be named by a row.
    assert_eq!(rows(&view, u64::MAX).len(), 1_000 + 256);
}
