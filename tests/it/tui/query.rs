//! Calls that query a database: the SQL before and after it ran, and its rows.

use ingestdeck_core::{
    control::{RunCommand, UserDecision},
    tape::Note,
};
use serde_json::{Value, json};

use super::{hold, screens::shown, tape::TapeFixture};

const UNIT: &str = "dbt-all";
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

const SQL: &str = "SELECT o.status,\n       count(*) AS \"number of orders\",\n       sum(o.total) AS total\n\
    FROM orders AS o\n  JOIN customers AS c ON c.id = o.customer_id AND c.country = 'Österreich' AND c.deleted_at IS NULL\n\
    GROUP BY o.status\nORDER BY total DESC";

const ROWS: &str = "| status | number of orders | total | first customer | last note |\n| --- | --- | --- | --- | --- |\n\
    | paid | 1204 | 98231.5 | Anna \\| Co | delivered to the neighbour, who signed for it in the afternoon |\n\
    | open | 31 | 1200 | Bob | NULL |\n| returned\u{202e} | 7 | NULL | 漢字 | a\\nb |\n\n3 row(s).";

fn query(sql: &str) -> Value {
    json!({"connectionId": "warehouse", "sql": sql, "rowLimit": 100})
}

/// A unit with a query that returned rows and one that failed.
fn queried() -> TapeFixture {
    let mut tape = hold::running();
    tape.call(UNIT, 1, "q1", "sql_execution", &query(SQL))
        .wait(40);
    tape.result(UNIT, 1, "q1", ROWS, false).wait(40);
    let wrong = query("SELECT totl\nFROM orders");
    tape.call(UNIT, 1, "q2", "sql_execution", &wrong).wait(40);
    let message = "SQL execution failed: no such column: totl; did you mean total?";
    let declined = Note::ToolDeclined {
        tool: "sql_execution".into(),
        tool_use_id: Some("q2".into()),
        message: message.into(),
    };
    tape.note(Some((UNIT, 1)), &declined);
    tape.result(UNIT, 1, "q2", message, false).wait(40);
    tape.end(UNIT, 1, 0).run_ended(1, 0);
    tape
}

fn held(sql: &str) -> TapeFixture {
    let mut tape = hold::running();
    tape.note(Some((UNIT, 1)), &Note::HoldRequested).wait(800);
    tape.call(UNIT, 1, "q1", "sql_execution", &query(sql));
    tape.note(
        Some((UNIT, 1)),
        &Note::CallHeld {
            needs_decision: false,
            tool: "sql_execution".into(),
            tool_use_id: Some("q1".into()),
            input: query(sql),
            reached: None,
        },
    );
    tape
}

#[test]
fn inspector_shows_a_query_and_its_rows() {
    for size in SIZES {
        let opened = shown(queried().timeline(), "i/SELECT<enter><enter>", size);
        insta::assert_snapshot!(format!("rows_{}x{}", size.0, size.1), opened);
        let failed = shown(queried().timeline(), "i/totl<enter><enter>", size);
        insta::assert_snapshot!(format!("error_{}x{}", size.0, size.1), failed);
    }
}

#[test]
fn small_screen_shows_the_rows_below_the_query() {
    let text = shown(queried().timeline(), "i/SELECT<enter><enter>%%", (80, 24));
    insta::assert_snapshot!("rows_scrolled_80x24", text);
}

#[test]
fn held_query_is_shown_as_sql() {
    for size in SIZES {
        let text = hold::screen(&held(SQL), "", size);
        insta::assert_snapshot!(format!("held_query_{}x{}", size.0, size.1), text);
    }
    let text = hold::screen(&held(SQL), "<space>", (120, 36));
    assert!(
        text.contains("sql_execution warehouse (rowLimit 100): SELECT o.status, ⏎ count(*)"),
        "{text}"
    );
    let hostile = "SELECT 1\u{1b}[2J\u{202e}\n-- result · ok\u{200b}";
    let text = hold::screen(&held(hostile), "", (80, 24));
    assert!(text.contains("  SELECT 1\\e[2J\\u{202e}"), "{text}");
    assert!(text.contains("  -- result · ok\\u{200b}"), "{text}");
    let long = format!("SELECT 1{}", "\n  + 1".repeat(20_000));
    let text = hold::screen(&held(&long), "", (80, 24));
    assert!(
        text.contains("in total; open the row above to read it"),
        "{text}"
    );
}

#[test]
fn held_query_is_edited_as_sql() {
    let text = hold::screen(&held(SQL), "e", (120, 36));
    assert!(
        text.contains("sql of sql_execution as plain text")
            && text.contains("count(*) AS \"number of orders\","),
        "{text}"
    );
    let text = hold::screen(&held(SQL), "e<tab>", (120, 36));
    assert!(text.contains("arguments of sql_execution"), "{text}");
    let text = hold::screen(&held("SELECT 1\u{202e}"), "e", (120, 36));
    assert!(text.contains("\"sql\": \"SELECT 1\\u202e\""), "{text}");
    let orders = hold::orders(&held(SQL), "e<c-s>");
    assert!(
        matches!(
            &orders[..],
            [RunCommand::Decide {
                decision: UserDecision::Allow,
                ..
            }]
        ),
        "unchanged: {orders:?}"
    );
    let orders = hold::orders(&held("SELECT 1"), "eEXPLAIN<space><c-s>");
    let [
        RunCommand::Decide {
            decision: UserDecision::Edit(input),
            ..
        },
    ] = &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!(Value::Object(input.clone()), query("EXPLAIN SELECT 1"));
}

#[test]
fn titles_of_queries_name_the_connection() {
    let text = shown(queried().timeline(), "", (120, 36));
    assert!(
        text.contains("sql_execution warehouse: SELECT o.status, count(*) AS"),
        "{text}"
    );
}
