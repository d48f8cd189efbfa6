//! `audit`, `costs` and `runs query` over recorded runs, and over an index that cannot be used.

use std::{fs, thread};

use serde_json::Value;

use super::test_dir::TestDir;

const RUN: &str = "01a20141-a13e-713f-b820-144f51fc451a";
const INDEX: &str = ".ktx/ingestdeck/db.sqlite";

/// Lines of one attempt: a call with a secret and long arguments, a formula as an error, and a result of two models.
fn tape(run: &str, total: &str) -> String {
    let (mut seq, mut text) = (0, String::new());
    text.push_str(&format!(
        r#"{{"tape":1,"program":"ingestdeck 0","run":"{run}","started_at":"2026-01-31T23:59:59.5Z","project":"shop","agent":"claude"}}"#
    ));
    let long = "x".repeat(10_000);
    let secret = concat!("sk-ant-", "api03-0123456789abcdefghijklmnopqrstuvwxyz");
    for line in [
        r#"{"type":"system","subtype":"init","session_id":"s1","model":"big","tools":[],"mcp_servers":[]}"#.to_owned(),
        format!(
            r#"{{"type":"assistant","session_id":"s1","message":{{"id":"m1","role":"assistant","model":"big","content":[{{"type":"tool_use","id":"t1","name":"mcp__ktx__wiki_write","input":{{"key":"a","content":"{long}"}}}},{{"type":"tool_use","id":"t2","name":"Bash","input":{{"command":"curl -H 'x-api-key: {secret}' x"}}}}]}}}}"#
        ),
        r#"{"type":"user","session_id":"s1","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"written \u001b[2J"},{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"=cmd|'/c calc'!A1"}]}}"#.to_owned(),
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s1","total_cost_usd":{total},"usage":{{"input_tokens":10,"output_tokens":4}},"modelUsage":{{"big":{{"costUSD":0.25,"inputTokens":8,"outputTokens":3}},"small":{{"costUSD":0.05,"inputTokens":2,"outputTokens":1}}}}}}"#
        ),
    ] {
        text.push_str(&format!("\n{{\"seq\":{seq},\"at\":{},\"unit\":\"docs-a\",\"try\":1,\"out\":{line}}}", 1000 * seq));
        seq += 1;
    }
    text + "\n"
}

fn place() -> TestDir {
    let place = TestDir::new();
    place.write(
        &format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"),
        tape(RUN, "0.3"),
    );
    place
}

fn objects(place: &TestDir, args: &[&str]) -> Vec<Value> {
    place
        .run(args)
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn audit_filters_select_calls() {
    let place = place();
    let tools = |filter: &[&str]| -> Vec<String> {
        let calls = objects(&place, &[&["audit", "--ui", "json"], filter].concat());
        calls
            .iter()
            .map(|call| call["tool"].as_str().unwrap().to_owned())
            .collect()
    };
    let (write, bash) = ("mcp__ktx__wiki_write", "Bash");
    assert_eq!(tools(&[]), [write, bash]);
    assert_eq!(tools(&["--tool", "wiki_*"]), [write]);
    assert_eq!(tools(&["--tool", "mcp__ktx__*"]), [write]);
    assert_eq!(tools(&["--failed"]), [bash]);
    assert_eq!(tools(&["--limit", "1"]), [bash]);
    assert_eq!(
        tools(&["--unit", "docs-?", "--run", "latest"]),
        [write, bash]
    );
    assert_eq!(tools(&["--unit", "docs-b"]), [""; 0]);
    assert_eq!(tools(&["--decision", "edited"]), [""; 0]);
    assert_eq!(tools(&["--since", "2026-02-01"]), [write, bash]);
    assert_eq!(tools(&["--until", "2026-02-01"]), [""; 0]);
    assert_eq!(
        tools(&["--until", "2026-02-01T00:00:00.501Z"]),
        [write, bash]
    );
    assert_eq!(
        place.run(&["audit", "--unit", "docs-b"]).expect_success(),
        "no call matches\n"
    );
    for (args, code, expected) in [
        (
            &["--since", "yesterday"][..],
            2,
            "invalid --since `yesterday`",
        ),
        (
            &["--since", "1h", "--until", "2h"],
            2,
            "--until is not later than --since",
        ),
        (&["--run", "ffffff"], 4, "no run matches"),
    ] {
        let ran = place.run(&[&["audit"], args].concat());
        let refusal = ran.expect_refusal(code);
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn audit_shows_queries_as_sql() {
    let query = |id: &str, sql: &str| {
        let input = serde_json::json!({"connectionId": "wh", "sql": sql, "rowLimit": 5});
        serde_json::json!({"type": "tool_use", "id": id, "name": "mcp__ktx__sql_execution", "input": input})
    };
    let long = format!("SELECT 2 FROM \"t\"{}", " \n + 1".repeat(2_000));
    let place = TestDir::new();
    let calls = format!(
        "{},{}",
        query("q1", "SELECT \"a\"\n  FROM t -- \u{202e}"),
        query("q2", &long)
    );
    let tape = tape(RUN, "0.3").replacen(
        r#""content":[{"type":"tool_use""#,
        &format!(r#""content":[{calls},{{"type":"tool_use""#),
        1,
    );
    place.write(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"), tape);
    let ran = place.run(&["audit", "--tool", "sql_execution"]);
    let text = ran.expect_success();
    assert!(
        text.contains(r#"wh (rowLimit 5): SELECT "a" ⏎ FROM t -- \u{202e}"#),
        "{text}"
    );
    assert!(text.contains("  wh: SELECT 2 FROM \"t\" ⏎ + 1 ⏎"), "{text}");
    let ran = place.run(&["audit", "--tool", "sql_execution", "--full"]);
    assert!(
        ran.expect_success()
            .contains("wh (rowLimit 5): SELECT 2 FROM")
    );
    let rows = objects(
        &place,
        &["audit", "--tool", "sql_execution", "--ui", "json"],
    );
    let input: Value = serde_json::from_str(rows[0]["input"].as_str().unwrap()).unwrap();
    assert_eq!(input["connectionId"], "wh", "programs read the arguments");
}

#[test]
fn audit_shortens_and_masks_what_it_prints() {
    let place = place();
    let short = place.run(&["audit"]);
    let text = short.expect_success();
    assert!(
        text.lines().all(|line| line.chars().count() < 400) && text.contains("[masked]"),
        "{text}"
    );
    assert!(
        !text.contains("sk-ant") && !text.contains("written"),
        "{text}"
    );
    let full = objects(&place, &["audit", "--ui", "json", "--full"]);
    let input: Value = serde_json::from_str(full[0]["input"].as_str().unwrap()).unwrap();
    assert_eq!(
        input["content"].as_str().unwrap().len(),
        10_000,
        "the tape has the rest"
    );
    let with_results = place.run(&["audit", "--results"]);
    let text = with_results.expect_success();
    assert!(
        text.contains("result: ") && text.contains("written") && !text.contains('\u{1b}'),
        "{text}"
    );
    let csv = place.run(&["audit", "--format", "csv"]);
    let text = csv.expect_success();
    assert!(
        text.starts_with("at,project,run,") && text.contains(",'=cmd|'/c calc'!A1,"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn audit_masks_secrets_where_it_shortens() {
    let place = TestDir::new();
    let known = "value-of-this-process";
    let text = |padding: usize| format!("{} {known}", "x".repeat(padding));
    let (input, error) = (text(130), text(2_040));
    let line = tape(RUN, "0.3")
        .replace("curl -H", &format!("{input} curl -H"))
        .replace("=cmd|", &format!("{error} =cmd|"));
    place.write(&format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"), line);
    for args in [
        &["audit"][..],
        &["audit", "--full"],
        &["runs", "query", "SELECT input, error FROM tool_calls"],
    ] {
        let mut command = place.command(args);
        command.env("SHOP_PASSWORD", known);
        let ran = place.ran(command);
        let printed = ran.expect_success();
        assert!(!printed.contains("value-"), "{args:?}: {printed}");
    }
}

#[test]
fn audit_completes_arguments_of_concurrent_runs() {
    let place = place();
    let other = RUN.replace("a13e", "a13f");
    let later = tape(&other, "0.3").replace(r#""at":1000"#, r#""at":1500"#);
    place.write(&format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"), later);
    let lengths = |args: &[&str]| -> Vec<usize> {
        let calls = objects(
            &place,
            &[&["audit", "--ui", "json", "--tool", "wiki_write"], args].concat(),
        );
        calls
            .iter()
            .map(|call| call["input"].as_str().unwrap().len())
            .collect()
    };
    assert!(lengths(&["--full"]).iter().all(|length| *length > 10_000));
    assert_eq!(lengths(&["--full", "--limit", "1"]).len(), 1);
    assert!(lengths(&[]).iter().all(|length| *length < 200));
}

#[test]
fn times_out_of_range_do_not_break_the_commands() {
    for (found, hostile) in [
        ("2026-01-31T23:59:59.5Z", "-000044-01-02T00:00:00Z"),
        ("\"at\":1000", "\"at\":18446744073709551615"),
    ] {
        let place = place();
        let other = RUN.replace("a13e", "a13f");
        let damaged = tape(&other, "0.3")
            .replace(found, hostile)
            .replace("\"at\":0,", "\"at\":18446744073709551615,");
        assert!(damaged.contains(hostile), "{found}");
        place.write(&format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"), damaged);
        let calls = objects(&place, &["audit", "--ui", "json"]);
        assert_eq!(calls.len(), 4);
        assert!(calls.iter().all(|call| call["at"].is_string()), "{calls:?}");
        assert_eq!(
            objects(&place, &["costs", "--by", "day", "--ui", "json"])
                .last()
                .unwrap()["attempts"],
            2
        );
        place
            .run(&["runs", "query", "SELECT started_at FROM tool_calls"])
            .expect_success();
    }
}

#[test]
fn audit_keeps_denials_and_unknown_persons() {
    let place = TestDir::new();
    let note = |seq: u32, note: &str| {
        format!("{{\"seq\":{seq},\"at\":1500,\"unit\":\"docs-a\",\"try\":1,\"note\":{note}}}\n")
    };
    let held = note(
        4,
        r#"{"kind":"call_held","tool":"wiki_write","tool_use_id":null,"input":{}}"#,
    );
    let decided = note(
        5,
        r#"{"kind":"call_decided","tool_use_id":null,"decision":"allowed"}"#,
    );
    let allowed = note(
        6,
        r#"{"kind":"call_decided","tool_use_id":"t2","decision":"allowed"}"#,
    );
    let denied = tape(RUN, "0.3").replace(
        r#""modelUsage""#,
        r#""permission_denials":[{"tool_name":"Bash","tool_use_id":"t2","tool_input":{}}],"modelUsage""#,
    );
    place.write(
        &format!(".ktx/ingestdeck/runs/{RUN}/tape.jsonl"),
        denied + &held + &decided + &allowed,
    );
    let calls = objects(&place, &["audit", "--ui", "json"]);
    assert_eq!(
        (&calls[0]["decision"], &calls[0]["decided_by"]),
        (&"allowed".into(), &Value::Null)
    );
    assert_eq!(
        (&calls[1]["decision"], &calls[1]["decided_by"]),
        (&"denied".into(), &"rule".into())
    );
}

#[test]
fn costs_show_models_and_differences() {
    let place = place();
    let total = |place: &TestDir| objects(place, &["costs", "--by", "model", "--ui", "json"]);
    let lines = total(&place);
    let of = |key: &str| {
        lines.iter().find(|line| line["key"] == key).unwrap()["model_usage_usd"]
            .as_f64()
            .unwrap()
    };
    assert_eq!((of("big"), of("small")), (0.25, 0.05));
    let sum = lines.last().unwrap();
    assert_eq!(
        (&sum["total_cost_usd"], &sum["difference_usd"]),
        (&Value::from(0.3), &Value::from(0.0))
    );
    let text = place.run(&["costs", "--by", "day"]);
    let text = text.expect_success();
    assert!(
        text.contains("2026-01-31") && text.contains("$0.30") && !text.contains("difference"),
        "{text}"
    );
    assert!(
        text.ends_with("the costs of the models add up to those of the results\n"),
        "{text}"
    );

    let other = RUN.replace("a13e", "a13f");
    place.write(
        &format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"),
        tape(&other, "0.4"),
    );
    assert_eq!(total(&place).last().unwrap()["difference_usd"], 0.1);
    let text = place.run(&["costs"]);
    let text = text.expect_success();
    assert!(
        text.contains("difference") && text.contains("$0.10") && text.contains("do not add up"),
        "{text}"
    );
    place.write(
        &format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"),
        tape(&other, "null").replace("costUSD", "x"),
    );
    let text = place.run(&["costs"]);
    let text = text.expect_success();
    assert!(
        text.contains("$?") && text.contains("≥ $0.30") && text.contains("1 attempt is unknown"),
        "{text}"
    );
    assert_eq!(total(&place).last().unwrap()["unknown_attempts"], 1);
    place.write(
        &format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"),
        tape(&other, "0.4").replace("modelUsage", "x"),
    );
    let text = place.run(&["costs"]);
    assert!(
        text.expect_success().contains("of the models add up"),
        "a cost without models is not compared: {text:?}"
    );
}

#[test]
fn query_prints_rows_and_refuses_everything_else() {
    let place = place();
    let query = |sql: &str| place.run(&["runs", "query", sql]);
    let ran = place.run(&[
        "runs",
        "query",
        "SELECT unit, count(*) AS calls FROM tool_calls GROUP BY unit",
        "--ui",
        "json",
    ]);
    assert_eq!(ran.expect_success(), "{\"unit\":\"docs-a\",\"calls\":2}\n");
    let ran = place.run(&[
        "runs",
        "query",
        "SELECT tool FROM tool_calls ORDER BY seq, turn_number",
        "--format",
        "csv",
        "--limit",
        "1",
    ]);
    assert_eq!(ran.expect_success(), "tool\nmcp__ktx__wiki_write\n");
    assert!(
        ran.stderr.contains("only the first 1 rows are shown"),
        "{ran:?}"
    );
    assert!(
        !query("SELECT input FROM tool_calls")
            .expect_success()
            .contains("sk-ant")
    );
    for (sql, expected) in [
        ("DELETE FROM runs", "cannot run the query"),
        ("SELECT nope FROM runs", "no such column: nope"),
        ("SELECT 1; SELECT 2", "but got several"),
        ("ATTACH 'x.db' AS x", "may only read the views"),
    ] {
        let ran = query(sql);
        let refusal = ran.expect_refusal(2);
        assert!(refusal.contains(expected), "{sql}: {refusal}");
    }
    let sorted = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
                  SELECT hex(randomblob(100000)) FROM (SELECT x FROM n LIMIT 5000) ORDER BY 1";
    let ran = query(sorted);
    assert!(
        ran.expect_refusal(1)
            .contains("needs more than 128 MiB of memory"),
        "{ran:?}"
    );
    assert!(!place.path("x.db").exists());
}

#[test]
fn commands_without_runs_print_nothing_for_programs() {
    let place = TestDir::new();
    for command in ["audit", "costs"] {
        assert_eq!(
            place.run(&[command]).expect_success(),
            "no runs yet; `ingestdeck run` records one\n"
        );
        assert_eq!(place.run(&[command, "--ui", "json"]).expect_success(), "");
        assert_eq!(
            place
                .run(&[command, "--format", "csv"])
                .expect_success()
                .lines()
                .count(),
            1
        );
    }
    assert!(
        place
            .run(&["runs", "query", "SELECT 1"])
            .expect_refusal(4)
            .contains("no run is recorded")
    );
    assert!(!place.path(".ktx").exists(), "reading creates no files");
}

#[test]
fn missing_or_damaged_index_is_rebuilt() {
    let place = place();
    let calls = || objects(&place, &["audit", "--ui", "json"]).len();
    assert_eq!(calls(), 2);
    fs::remove_file(place.path(INDEX)).unwrap();
    assert_eq!(calls(), 2, "missing");
    place.write(
        INDEX,
        "this file is not a database, despite its name".repeat(100),
    );
    assert_eq!(calls(), 2, "damaged");
    let bytes = fs::read(place.path(INDEX)).unwrap();
    place.write(INDEX, &bytes[..bytes.len() / 2]);
    assert_eq!(calls(), 2, "cut off");
}

#[test]
fn database_of_another_program_is_refused() {
    let place = place();
    place.write(INDEX, "");
    rusqlite::Connection::open(place.path(INDEX))
        .unwrap()
        .execute_batch("CREATE TABLE runs (x)")
        .unwrap();
    let before = fs::read(place.path(INDEX)).unwrap();
    for args in [&["audit"][..], &["costs"], &["runs", "query", "SELECT 1"]] {
        let ran = place.run(args);
        assert!(
            ran.expect_refusal(1)
                .contains("it belongs to another program"),
            "{ran:?}"
        );
    }
    assert_eq!(fs::read(place.path(INDEX)).unwrap(), before);
}

#[test]
fn unreadable_tape_is_left_out_with_a_warning() {
    let place = place();
    let other = RUN.replace("a13e", "a13f");
    place.write(
        &format!(".ktx/ingestdeck/runs/{other}/tape.jsonl"),
        "garbage\n",
    );
    let ran = place.run(&["audit", "--ui", "json"]);
    assert_eq!(ran.expect_success().lines().count(), 2);
    assert!(ran.stderr.contains("is left out"), "{ran:?}");
}

#[test]
fn two_programs_use_the_index_concurrently() {
    let place = place();
    thread::scope(|scope| {
        let commands: [&[&str]; 4] = [
            &["audit", "--ui", "json"],
            &["costs", "--ui", "json"],
            &["runs", "list", "--ui", "json"],
            &["runs", "query", "SELECT * FROM tool_calls"],
        ];
        for args in commands.into_iter().cycle().take(8) {
            let place = &place;
            scope.spawn(move || place.run(args).expect_success().to_owned());
        }
    });
    assert_eq!(objects(&place, &["audit", "--ui", "json"]).len(), 2);
}
