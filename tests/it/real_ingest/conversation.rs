//! A session of several turns on the screen, and one with the tools of the agent profile.

use std::fs;

use serde_json::json;

use super::{screen::TestTerminal, test_project::TestProject};
use crate::support::api::{ApiRoute, ApiTurn, text, tool};
use ingestdeck_core::tape::{Note, note::CallDecision};

/// Calls that were held or decided, as words.
fn decisions(deck: &TestProject) -> Vec<String> {
    let word = |note: Note| match note {
        Note::CallHeld { tool, reached, .. } => {
            Some(format!("held {tool} at {}", reached.unwrap_or_default()))
        }
        Note::CallDecided {
            decision: CallDecision::Denied,
            reason,
            rule,
            ..
        } => Some(format!(
            "denied {} {}",
            rule.unwrap_or_default(),
            reason.unwrap_or_default()
        )),
        Note::CallDecided { decision, .. } => Some(format!("{decision:?}").to_lowercase()),
        _ => None,
    };
    deck.notes().into_iter().filter_map(word).collect()
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn session_of_five_turns_is_steered_and_replayed() {
    let bash = |command: &str| {
        tool(
            "Bash",
            json!({"command": command, "description": "a command"}),
        )
    };
    let slow =
        ApiTurn::blocks([text(&"word ".repeat(40))]).slowly(std::time::Duration::from_millis(400));
    let deck = TestProject::new([ApiRoute::any([
        ApiTurn::blocks([bash("echo one")]),
        ApiTurn::answer("First answer."),
        ApiTurn::blocks([bash("rm -rf build")]),
        ApiTurn::answer("Second answer."),
        ApiTurn::blocks([tool(
            "WebFetch",
            json!({"url": "http://127.0.0.1/", "prompt": "x"}),
        )]),
        ApiTurn::answer("Third answer."),
        slow,
        ApiTurn::answer("Fifth answer."),
    ])]);
    let mut terminal =
        TestTerminal::open(&deck, &["session", "--ui", "tui", "--", "first question"]);
    terminal.sees(&["First answer."]);

    terminal.press("msecond question\r");
    terminal.sees(&["Bash waits for you", "dangerous command rm -rf"]);
    terminal.press("s");
    terminal.sees(&["Second answer."]);

    terminal.press("mthird question\r");
    terminal.sees(&["WebFetch waits for you", "permission request"]);
    terminal.press("dno network\r");
    terminal.sees(&["Third answer."]);

    // The next message waits while the turn runs, and starts once that is interrupted.
    terminal.press("mfourth question\r");
    terminal.sees(&["word word"]);
    terminal.press("mfifth question\r");
    terminal.press("xy");
    terminal.sees(&["Fifth answer."]);
    terminal.sees(&["● ENDED"]);
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);

    let held = [
        "held Bash at dangerous command rm -rf",
        "allowed",
        "held WebFetch at permission request",
        "denied  no network",
    ];
    assert_eq!(decisions(&deck), held);
    let started = deck.started();
    let messages: Vec<_> = started
        .iter()
        .filter_map(|it| it.amendment.as_ref()?.message.as_deref())
        .collect();
    assert_eq!(
        messages,
        [
            "second question",
            "third question",
            "fourth question",
            "fifth question"
        ]
    );
    let resumed = |argv: &[String]| argv.iter().any(|word| word == "--resume");
    assert_eq!(
        started
            .iter()
            .map(|it| resumed(&it.argv))
            .collect::<Vec<_>>(),
        [false, true, true, true, true]
    );
    let last = deck.api.requests().pop().unwrap();
    for words in [
        "first question",
        "Second answer.",
        "no network",
        "fifth question",
    ] {
        assert!(last.body.contains(words), "the session remembers {words}");
    }

    let mut replay = TestTerminal::open(&deck, &["replay", "latest", "--ui", "tui"]);
    replay.sees(&["Fifth answer."]);
    replay.sees(&["❯ fifth question"]);
    // Back through the entries to the beginning of the first turn.
    replay.press("0");
    replay.sees(&["empty"]);
    replay.press(".....");
    replay.sees(&["❯ first question"]);
    replay.press(",,,,,");
    replay.sees(&["empty"]);
    replay.press("q");
    assert_eq!(replay.leaves().exit_code(), 0);
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn session_with_a_full_context_continues_in_a_new_one() {
    let full = || {
        ApiTurn::error(
            400,
            "invalid_request_error",
            "prompt is too long: 250000 tokens > 200000 maximum",
        )
    };
    let deck = TestProject::new([
        ApiRoute::on("ran out of context", [ApiTurn::answer("Continued.")]),
        ApiRoute::any([
            ApiTurn::blocks([tool(
                "Bash",
                json!({"command": "echo one", "description": "x"}),
            )]),
            full(),
        ]),
    ]);
    let ran = deck.play(&["session", "--ui", "json", "--", "count everything"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let started = deck.started();
    let [_, second] = started.as_slice() else {
        panic!("{started:#?}")
    };
    assert!(
        !second.argv.iter().any(|word| word == "--resume"),
        "{:?}",
        second.argv
    );
    for part in ["count everything", "- echo one"] {
        assert!(second.prompt.contains(part), "{}", second.prompt);
    }
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn agent_profile_serves_standard_tools_by_its_rules() {
    let ours = |name: &str, input| tool(&format!("mcp__ktx__{name}"), input);
    let deck = TestProject::new([ApiRoute::any([
        ApiTurn::blocks([ours("write_file", json!({"file_path": "note.txt", "content": "from the agent"}))]),
        ApiTurn::blocks([ours("bash", json!({"command": "cat note.txt"}))]),
        ApiTurn::blocks([ours("bash", json!({"command": "rm -rf ."}))]),
        ApiTurn::blocks([ours("glob", json!({"pattern": "*.txt"}))]),
        ApiTurn::answer("Done."),
    ])])
    .set("[agent]\nallowed_tools = [\"write_file\", \"bash\", \"glob\"]\n[policy]\ndeny = [\"glob\"]\n");
    let ran = deck.play(&[
        "session",
        "--profile",
        "agent",
        "--ui",
        "json",
        "--",
        "write a note",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(deck.read("note.txt"), "from the agent");
    let expected = [
        "denied dangerous command rm -rf Dangerous command blocked: rm -rf .. Requires explicit user approval.",
        "denied rule glob The policy denies this call (rule `glob`).",
    ];
    assert_eq!(decisions(&deck), expected);
    let offered = deck.api.requests().pop().unwrap().tool_names();
    assert_eq!(
        offered,
        ["mcp__ktx__bash", "mcp__ktx__glob", "mcp__ktx__write_file"]
    );
    let read = deck
        .entries()
        .iter()
        .any(|entry| entry["out"].to_string().contains("from the agent"));
    assert!(read, "bash reads the file in the directory of the session");
}

/// The user has another MCP server, whose tools exist in the session.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn agent_profile_denies_tools_that_its_list_does_not_name() {
    let deck = TestProject::new([ApiRoute::any([
        ApiTurn::blocks([tool("mcp__notes__wiki_read", json!({"key": "arr"}))]),
        ApiTurn::answer("It is not allowed."),
    ])])
    .set("[agent]\nallowed_tools = [\"glob\"]\n");
    let server = json!({"type": "stdio", "command": crate::support::program(), "args": ["mcp"]});
    let settings = json!({"mcpServers": {"notes": server}}).to_string();
    std::fs::write(deck.home.path().join(".claude.json"), settings).unwrap();
    let ran = deck.play(&[
        "session",
        "--profile",
        "agent",
        "--ui",
        "json",
        "--",
        "read a note",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let requests = deck.api.requests();
    assert!(
        requests[0]
            .tool_names()
            .contains(&"mcp__notes__wiki_read".to_owned()),
        "{:?}",
        requests[0].tool_names()
    );
    let read = &requests.last().unwrap().body;
    assert!(
        read.contains(r#"Tool \"mcp__notes__wiki_read\" is not allowed. Allowed tools: glob"#),
        "{read}"
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn questions_and_plans_are_answered_on_the_screen() {
    let ask = |question: &str, multiple: bool| {
        let option = |label: &str| json!({"label": label, "description": "why"});
        json!({"question": question, "header": "Format", "multiSelect": multiple, "options": [option("Table"), option("List")]})
    };
    let call = |name: &str, input| ApiTurn::blocks([tool(name, input)]);
    let deck = TestProject::new([ApiRoute::any([
        call(
            "AskUserQuestion",
            json!({"questions": [ask("Which format?", false), ask("What else?", true)]}),
        ),
        call(
            "AskUserQuestion",
            json!({"questions": [ask("Which name?", false)]}),
        ),
        call(
            "AskUserQuestion",
            json!({"questions": [ask("Which colour?", false)]}),
        ),
        ApiTurn::answer("All asked."),
    ])]);
    let mut terminal = TestTerminal::open(&deck, &["session", "--ui", "tui", "--", "ask me"]);
    terminal.sees(&["the model asks you: Which format?"]);
    terminal.sees(&["1 Table"]);
    terminal.press("2\r12\r");
    terminal.sees(&["the model asks you: Which name?"]);
    terminal.press("soMy own\r");
    terminal.sees(&["the model asks you: Which colour?"]);
    terminal.press("dno colours\r");
    terminal.sees(&["All asked."]);
    terminal.sees(&["✓ done"]);
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
    let last = deck.api.requests().pop().unwrap();
    for words in [
        r#"Your questions have been answered: \"Which format?\"=\"List\", \"What else?\"=\"Table, List\""#,
        r#"\"Which name?\"=\"My own\""#,
        "no colours",
    ] {
        assert!(last.body.contains(words), "{words}: {}", last.body);
    }
    let held = |tool: &str| format!("held {tool} at permission request");
    assert_eq!(
        decisions(&deck),
        [
            held("AskUserQuestion").as_str(),
            "answered",
            held("AskUserQuestion").as_str(),
            "answered",
            held("AskUserQuestion").as_str(),
            "denied  no colours",
        ]
    );
}

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn plan_is_refused_and_then_approved() {
    let call = |name: &str| ApiTurn::blocks([tool(name, json!({}))]);
    let deck = TestProject::new([ApiRoute::any([
        call("EnterPlanMode"),
        call("ExitPlanMode"),
        call("ExitPlanMode"),
        ApiTurn::answer("Planned."),
    ])]);
    let mut terminal = TestTerminal::open(&deck, &["session", "--ui", "tui", "--", "plan it"]);
    terminal.sees(&["ExitPlanMode waits for you"]);
    // The model reads where its plan is expected; a file there is the plan.
    let bodies: String = deck.api.requests().into_iter().map(|it| it.body).collect();
    let at = bodies.find("/.claude/plans/").unwrap();
    let name = bodies[at..]
        .split(".md")
        .next()
        .unwrap()
        .trim_start_matches('/');
    let path = deck.home.path().join(format!("{name}.md"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "# Move the reports\n\n- **Rename** the column\n").unwrap();
    terminal.press("dtests first\r");
    terminal.sees(&["a plan waits for your approval"]);
    terminal.sees(&["Move the reports"]);
    terminal.sees(&["Rename the column"]);
    terminal.press("s");
    terminal.sees(&["Planned."]);
    terminal.sees(&["✓ done"]);
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
    let last = deck.api.requests().pop().unwrap();
    for words in ["tests first", "User has approved your plan"] {
        assert!(last.body.contains(words), "{words}: {}", last.body);
    }
}

/// A tool server whose tool asks the user for input, and returns the answer.
const BOOKING_SERVER: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"booking","version":"1"}}}' ;;
    *'"method":"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"book","description":"book","inputSchema":{"type":"object","properties":{}}}]}}' ;;
    *'"method":"tools/call"'*) call=$id; echo '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Complete the booking.","requestedSchema":{"type":"object","properties":{"traveller":{"type":"string","title":"Traveller"},"age":{"type":"integer"},"window":{"type":"boolean"}},"required":["traveller"]}}}' ;;
    *'"id":900'*) answer=$(printf '%s' "$line" | sed 's/"/\\"/g'); echo '{"jsonrpc":"2.0","id":'$call',"result":{"content":[{"type":"text","text":"'$answer'"}]}}' ;;
  esac
done
"#;

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn input_for_a_tool_server_is_given_on_the_screen() {
    let call = || ApiTurn::blocks([tool("mcp__booking__book", json!({}))]);
    let deck = TestProject::new([ApiRoute::any([call(), ApiTurn::answer("Booked.")])])
        .set("allowed_tools = [\"mcp__booking__book\"]\n");
    let server = json!({"mcpServers": {"booking": {"type": "stdio", "command": "sh", "args": ["-c", BOOKING_SERVER]}}});
    fs::write(deck.home.path().join(".claude.json"), server.to_string()).unwrap();
    let mut terminal = TestTerminal::open(&deck, &["session", "--ui", "tui", "--", "book it"]);
    terminal.sees(&["the tool server `booking` asks you"]);
    terminal.sees(&["Complete the booking."]);
    terminal.press("sAda\r36\r2\r");
    terminal.sees(&["Booked."]);
    terminal.sees(&["✓ done"]);
    terminal.press("q");
    assert_eq!(terminal.leaves().exit_code(), 0);
    let last = deck.api.requests().pop().unwrap().body.replace('\\', "");
    let words = r#""action":"accept","content":{"traveller":"Ada","age":36,"window":false}"#;
    assert!(last.contains(words), "{last}");
}
