//! Calls that ask a person: questions of the model, plans, and input for tool servers.

use ingestdeck_core::{
    actions::input_form::{ELICITATION, PLAN_TOOL, QUESTION_TOOL},
    control::{RunCommand, UserDecision},
    tape::Note,
};
use serde_json::{Map, Value, json};

use super::{
    hold::{orders, screen},
    tape::TapeFixture,
};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];
const SIZE: (u16, u16) = (120, 36);

/// A session whose call of `tool` waits for a person.
fn waiting(tool: &str, input: Value) -> TapeFixture {
    let mut tape = TapeFixture::new("session", false);
    tape.plan(&["session"]).start("session", 1).wait(1000);
    if tool != ELICITATION {
        tape.call("session", 1, "t1", tool, &input);
    }
    let held = Note::CallHeld {
        needs_decision: true,
        tool: tool.to_owned(),
        tool_use_id: Some("t1".into()),
        input,
        reached: Some("permission request".into()),
    };
    tape.note(Some(("session", 1)), &held);
    tape
}

fn asking() -> TapeFixture {
    let option =
        |label: &str, description: &str| json!({"label": label, "description": description});
    waiting(
        QUESTION_TOOL,
        json!({"questions": [
            {
                "question": "Which format should the report of open orders have?", "header": "Format", "multiSelect": false,
                "options": [
                    option("Table", "One row per order, with its status and its age in days"),
                    option("List", "One line per order"),
                ],
            },
            {
                "question": "Which columns do you need?", "header": "Columns", "multiSelect": true,
                "options": [option("Status", ""), option("Age", "In days"), option("Customer", "The name, not the key")],
            },
        ]}),
    )
}

fn plan() -> TapeFixture {
    let plan = "# Move the reports\n\n1. Read `models/orders.sql`\n2. **Rename** the column\n\n- no other file changes\n";
    waiting(
        PLAN_TOOL,
        json!({"plan": plan, "planFilePath": "/p/plan.md"}),
    )
}

fn booking() -> TapeFixture {
    waiting(
        ELICITATION,
        json!({
            "subtype": "elicitation", "mcp_server_name": "booking", "message": "Complete the booking.",
            "requested_schema": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "title": "Name", "description": "Who travels?"},
                "seats": {"type": "integer", "description": "How many seats?"},
                "window": {"type": "boolean", "title": "At the window"},
            }},
        }),
    )
}

fn decided(decision: UserDecision) -> [RunCommand; 1] {
    [RunCommand::Decide {
        unit: "session".into(),
        call: Some("t1".into()),
        decision,
    }]
}

fn answered(answer: Value) -> [RunCommand; 1] {
    let Value::Object(answer) = answer else {
        panic!("{answer}")
    };
    decided(UserDecision::Answer(answer))
}

#[test]
fn requests_for_input_are_rendered_at_every_size() {
    for (width, height) in SIZES {
        let size = (width, height);
        let name = |what: &str| format!("answer_{what}_{width}x{height}");
        insta::assert_snapshot!(name("question"), screen(&asking(), "", size));
        insta::assert_snapshot!(name("form"), screen(&asking(), "s", size));
        insta::assert_snapshot!(name("second"), screen(&asking(), "1<enter>13", size));
        insta::assert_snapshot!(name("own_words"), screen(&asking(), "soas<space>CSV", size));
        insta::assert_snapshot!(name("plan"), screen(&plan(), "", size));
        insta::assert_snapshot!(name("server"), screen(&booking(), "", size));
        insta::assert_snapshot!(name("server_form"), screen(&booking(), "sAda<enter>", size));
    }
}

#[test]
fn digits_answer_the_questions_of_the_model() {
    let form = "Which format should the report of open orders have?";
    let columns = "Which columns do you need?";
    let expected = answered(json!({form: "List", columns: "Status, Customer"}));
    assert_eq!(orders(&asking(), "2<enter>13<enter>"), expected);
    assert_eq!(orders(&asking(), "sj<enter>13<c-s>"), expected);
    let own = answered(json!({form: "as CSV", columns: "Age, and the key"}));
    assert_eq!(
        orders(
            &asking(),
            "soas<space>CSV<enter>2oand<space>the<space>key<enter>"
        ),
        own
    );
    // A question without an answer keeps the form open, and Escape leaves the call waiting.
    assert_eq!(orders(&asking(), "1<tab>o<enter>"), []);
    let text = screen(&asking(), "1<tab>o<enter>", SIZE);
    assert!(text.contains("this field needs an answer"), "{text}");
    assert_eq!(orders(&asking(), "1<esc>"), []);
}

#[test]
fn questions_can_be_declined_with_a_reason() {
    let declined = decided(UserDecision::Deny("too early".into()));
    assert_eq!(orders(&asking(), "dtoo<space>early<enter>"), declined);
    assert_eq!(orders(&asking(), "sdtoo<space>early<enter>"), declined);
}

#[test]
fn plans_are_approved_or_refused() {
    let text = screen(&plan(), "", SIZE);
    for part in ["a plan waits for your approval", "s approve", "d refuse"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(orders(&plan(), "s"), decided(UserDecision::Allow));
    let refused = decided(UserDecision::Deny("tests first".into()));
    assert_eq!(orders(&plan(), "dtests<space>first<enter>"), refused);
}

#[test]
fn fields_of_a_tool_server_are_filled_in() {
    assert_eq!(
        orders(&booking(), "sAda<enter>2<enter>1<enter>"),
        answered(json!({"name": "Ada", "seats": 2, "window": true}))
    );
    // Fields that are not required may be left out.
    assert_eq!(
        orders(&booking(), "sAda<c-s>"),
        answered(json!({"name": "Ada"}))
    );
    assert_eq!(orders(&booking(), "sAda<enter>many<c-s>"), []);
    let text = screen(&booking(), "sAda<enter>many<c-s>", SIZE);
    assert!(text.contains("expected a whole number"), "{text}");
    assert_eq!(
        orders(&booking(), "dno<enter>"),
        decided(UserDecision::Deny("no".into()))
    );
    assert_eq!(
        orders(&booking(), "d<enter>"),
        decided(UserDecision::Cancel)
    );
}

#[test]
fn hostile_questions_stay_answerable() {
    let long = "x".repeat(10_000);
    let mut labels: Vec<String> = (0..48).map(|number| format!("option {number}")).collect();
    labels.extend([long.clone(), "\u{1b}[31mred\u{202e}\u{7}".to_owned()]);
    let options: Vec<Value> = labels
        .iter()
        .map(|label| match *label == long {
            true => json!({"label": label, "description": long}),
            false => json!({"label": label}),
        })
        .collect();
    let tape = waiting(
        QUESTION_TOOL,
        json!({"questions": [{"question": format!("?{long}"), "header": "\u{1b}]0;x\u{7}", "options": options}]}),
    );
    let down = |rows: usize| format!("s{}<enter>", "j".repeat(rows));
    for (width, height) in [(40, 12), (80, 24), (200, 60)] {
        for keys in ["", "s", format!("s{}", "j".repeat(49)).as_str()] {
            let text = screen(&tape, keys, (width, height));
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{text}");
        }
    }
    let answer = |label: &str| {
        let answer = Map::from_iter([(format!("?{long}"), json!(label))]);
        decided(UserDecision::Answer(answer))
    };
    assert_eq!(orders(&tape, &down(48)), answer(&labels[48]));
    assert_eq!(orders(&tape, &down(49)), answer(&labels[49]));
    // Without a usable question, the call can be allowed or denied as any other.
    for odd in [json!([]), json!([{"options": "none"}]), json!(7)] {
        let tape = waiting(QUESTION_TOOL, json!({"questions": odd}));
        assert_eq!(orders(&tape, "s"), decided(UserDecision::Allow));
        let denied = decided(UserDecision::Deny("unclear".into()));
        assert_eq!(orders(&tape, "dunclear<enter>"), denied);
    }
    let equal = json!([{"question": "?", "options": [{"label": "a"}, {"label": "a"}], "multiSelect": true}]);
    let tape = waiting(QUESTION_TOOL, json!({"questions": equal}));
    assert_eq!(orders(&tape, "12<enter>"), answered(json!({"?": "a"})));
}
