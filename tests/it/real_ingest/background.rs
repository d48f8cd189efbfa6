//! Commands, sub-agents and workflows in the background of a session, with the real CLI.

use std::time::Duration;

use serde_json::{Value, json};

use super::test_project::TestProject;
use crate::support::api::{ApiRoute, ApiTurn, tool};

/// The changes of tasks, and the calls that ran in the background.
fn background_events(events: &[Value]) -> Vec<Value> {
    let of = |line: &Value| {
        let event = &line["event"];
        match event["type"].as_str()? {
            "task" => Some(json!([event["kind"], event["phase"], event["state"]])),
            "action" if line["background"] == true => Some(json!([
                event["action"]["detail"]["tool_name"],
                event["phase"],
                event["ok"]
            ])),
            "completed" => Some(json!(["completed"])),
            _ => None,
        }
    };
    events.iter().filter_map(of).collect()
}

/// The events of a session whose model makes one call, and those of its replay.
fn played(call: Value, work: &str) -> Vec<Value> {
    let turns = [
        ApiTurn::blocks([call]),
        ApiTurn::answer("It runs."),
        ApiTurn::answer("It has ended."),
    ];
    let deck = TestProject::new([
        ApiRoute::on(
            work,
            [ApiTurn::answer("The bark is rough.").delay(Duration::from_millis(300))],
        ),
        ApiRoute::any(turns),
    ])
    .set("allowed_tools = [\"Bash\", \"Task\", \"Agent\", \"Workflow\"]\n");
    let live = deck.play(&["session", "--ui", "json", "--", "count the trees"]);
    assert_eq!(live.code, Some(0), "{live:#?}");
    let replay = deck.play(&["replay", "latest", "--ui", "json"]);
    let (live, replay) = (
        background_events(&live.events()),
        background_events(&replay.events()),
    );
    assert_eq!(live, replay);
    live
}

fn expected(kind: &str, tool: &str) -> Vec<Value> {
    vec![
        json!([kind, "started", null]),
        json!([tool, "completed", true]),
        json!([kind, "completed", "completed"]),
        json!(["completed"]),
    ]
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn background_command_completes_before_its_task_ends() {
    let input =
        json!({"command": "sleep 1; echo bark", "description": "Look", "run_in_background": true});
    assert_eq!(
        played(tool("Bash", input), "no such request"),
        expected("command", "Bash")
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn background_agent_completes_before_its_task_ends() {
    let input = json!({
        "description": "Look", "prompt": "look at the bark", "subagent_type": "general-purpose",
        "run_in_background": true,
    });
    let events = played(tool("Agent", input), "\"content\":\"look at the bark");
    assert_eq!(
        events[0],
        json!(["subagent", "started", null]),
        "{events:#?}"
    );
    assert_eq!(events.last(), Some(&json!(["completed"])), "{events:#?}");
    assert!(
        events.contains(&json!(["subagent", "completed", "completed"])),
        "{events:#?}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn workflow_reports_its_agents_and_its_end() {
    let script = "export const meta = { name: 'look', description: 'agents look', phases: [{ title: 'Look' }] }\n\
                  phase('Look')\n\
                  const r = await parallel([() => agent('SUBTASK one', { label: 'one', phase: 'Look' })])\n\
                  return r\n";
    let events = played(tool("Workflow", json!({"script": script})), "SUBTASK one\"");
    assert!(
        events.contains(&json!(["Workflow", "completed", true])),
        "{events:#?}"
    );
    let changes: Vec<&Value> = events
        .iter()
        .filter(|event| event[0] == "workflow")
        .collect();
    assert_eq!(
        changes,
        [
            &json!(["workflow", "started", null]),
            &json!(["workflow", "updated", null]),
            &json!(["workflow", "completed", "completed"]),
        ],
        "{events:#?}"
    );
}
