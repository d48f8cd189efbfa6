//! Tests of the layout: the text, the slices, and the escaping of hostile input.

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr as _;

use super::{
    query::{answer_blocks, query_blocks},
    *,
};
use ingestdeck_core::actions::sql_query::SqlQuery;

fn shown(json: &str, width: u16) -> String {
    read(
        vec![DocumentBlock::Json(JsonFormatter::unfolded(json))],
        width,
    )
}

#[test]
fn json_is_indented_and_strings_are_read() {
    let json = r#"{"a":1,"text":"one\n\"two\"","empty":{},"list":[true,null,[]],"big":12345678901234567890}"#;
    insta::assert_snapshot!(shown(json, 40));
}

#[test]
fn truncated_value_is_laid_out() {
    insta::assert_snapshot!(shown(r#"{"type":"user","content":[{"text":"cut of"#, 40));
}

#[test]
fn hostile_strings_are_escaped() {
    let json = r#"{"\u001b[2J":"\u202ebidi","lone":"\ud800","tab":"a\tb"}"#;
    insta::assert_snapshot!(shown(json, 60));
}

fn laid(pieces: Vec<DocumentBlock>, width: u16, budget: usize) -> LaidOutDocument {
    let mut layout = DocumentLayout::new(pieces, BTreeSet::new(), width);
    while !layout.is_complete() {
        layout.step(budget);
    }
    layout.document().clone()
}

fn read(pieces: Vec<DocumentBlock>, width: u16) -> String {
    let document = laid(pieces, width, usize::MAX);
    (0..document.lines.len())
        .map(|line| document.text(line) + "\n")
        .collect()
}

#[test]
fn markdown_is_read_without_its_marks() {
    let text = "# Net revenue\n\nIt is **gross** minus `refunds`, see [the page](https://example.com/a).\n\n\
        1. first point that is long enough to continue in a second row\n2. second\n   - nested\n\n\
        > quoted\n\n```sql\nselect  1\n  from t\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\nlast <b>tag</b>";
    insta::assert_snapshot!(read(
        vec![DocumentBlock::Markdown { text: text.into() }],
        40
    ));
}

fn query(input: &str, width: u16) -> String {
    let query = SqlQuery::parse("mcp__ktx__sql_execution", input).unwrap();
    read(query_blocks(&query, usize::MAX), width)
}

#[test]
fn query_keeps_its_lines_and_indentation() {
    let sql = "SELECT status,\r\n\tcount(*) AS \"number of orders\" -- all of them, with those that were returned\n\n    \
        FROM main.orders\u{202e}\u{200b}\n\u{1b}[2JWHERE note = 'a\\nb'\n";
    let input =
        serde_json::json!({"connectionId": "wh\n", "sql": sql, "rowLimit": 5, "by": ["me"]});
    insta::assert_snapshot!(query(&input.to_string(), 44));
}

#[test]
fn deep_indentation_hides_nothing() {
    let sql = format!("SELECT 1;\n{}DROP TABLE orders", " ".repeat(5_000));
    let input = serde_json::json!({"connectionId": "wh", "sql": sql}).to_string();
    insta::assert_snapshot!(query(&input, 40));
}

fn answer(text: &str, width: u16) -> String {
    answer_blocks(text).map_or_else(|| "no table".to_owned(), |blocks| read(blocks, width))
}

#[test]
fn rows_are_aligned_and_cut_to_the_width() {
    let orders = "| id | customer | total | note |\n| --- | --- | --- | --- |\n\
        | 1 | Ann | 9.5 | left at the door, and called twice before that |\n| 20 | Bob \\| Co | NULL |  |\n\n2 row(s).";
    insta::assert_snapshot!(answer(orders, 80));
    insta::assert_snapshot!(answer(orders, 40));
    insta::assert_snapshot!(answer(orders, 22));
    insta::assert_snapshot!(answer(orders, 1));
}

#[test]
fn rows_in_json_are_a_table_too() {
    let json = r#"{"headers":["n","text"],"headerTypes":["INT64","STRING"],"rows":[[12345678901234567890,"a|b\nc"],[null,true]],"rowCount":2}"#;
    insta::assert_snapshot!(answer(json, 60));
    let more = json.replace("\"rowCount\":2", "\"rowCount\":9");
    assert!(answer(&more, 60).ends_with("2 rows of 9\n"));
}

#[test]
fn text_that_only_looks_like_a_table_is_none() {
    for text in [
        "",
        "SQL execution failed: near \"FORM\": syntax error",
        "| a |",
        "| a |\n| b |",
        "| a |\n| --- | --- |\n| 1 |",
        "| a |\n| --- |\n| 1 | 2 |",
        "| a |\n| --- |\n| 1 \\|",
        "| a |\n| --- |\n|1|",
        "| a |\n| --- |\n| 1 |\n\n1 row(s).\n| 2 |",
        "| a |\n| --- |\n| |",
        r#"{"headers":[],"rows":[],"rowCount":0}"#,
        r#"{"headers":["a"],"rows":[[1,2]],"rowCount":1}"#,
        r#"{"headers":["a"],"rows":[]}"#,
        r#"{"headers":["a"],"rows":"#,
    ] {
        assert_eq!(answer(text, 40), "no table", "{text}");
    }
    let empty = "| a |\n| --- |\n\nQuery returned no rows.";
    insta::assert_snapshot!(answer(empty, 40));
}

#[test]
fn forged_table_in_a_cell_remains_one_cell() {
    let cell = "x \\|\\n\\| 9 \\| 9 \\|";
    let text = format!("| a | b |\n| --- | --- |\n| 1 | {cell} |\n| 2 | a\\ |\n\n2 row(s).");
    insta::assert_snapshot!(answer(&text, 40));
}

#[test]
fn table_of_many_columns_and_rows_is_bounded() {
    let row = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = (0..1_000).map(cell).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let wide = row(&|index| format!("column_{index}"))
        + &row(&|_| "---".to_owned())
        + &row(&|index| "x".repeat(index % 3 * 200))
        + "\n1 row(s).";
    insta::assert_snapshot!(answer(&wide, 60));
    let long = format!("| a |\n| --- |\n| {} |", "y".repeat(100_000));
    insta::assert_snapshot!(answer(&long, 20));
    let rows = format!("| a |\n| --- |\n{}\n1200 row(s).", "| 1 |\n".repeat(1_200));
    let shown = answer(&rows, 30);
    assert_eq!(shown.lines().count(), 2 + 1_000 + 2);
    assert!(shown.ends_with("1\n… 200 more rows\n1200 row(s).\n"));
}

#[test]
fn diff_shows_changes_with_context() {
    let old: String = (0..20).map(|line| format!("line {line}\n")).collect();
    let new = old
        .replace("line 10\n", "line ten\nand more\n")
        .replace("line 19\n", "line 19");
    insta::assert_snapshot!(read(text_diff::diff_blocks(&old, &new), 40));
    assert_eq!(text_diff::count(&old, &new), (2, 1));
    assert_eq!(
        read(text_diff::diff_blocks("a\r\n", "a\r\n"), 40),
        "nothing differs\n"
    );
}

#[test]
fn large_values_are_folded_until_toggled() {
    let json = format!(
        r#"{{"small":[1,2],"large":{{"text":"{}","n":[1]}},"end":true}}"#,
        "x".repeat(100)
    );
    let piece = || {
        vec![DocumentBlock::Json(JsonFormatter::folded(
            json.as_str(),
            1,
            50,
        ))]
    };
    let document = laid(piece(), 60, usize::MAX);
    let all: String = (0..document.lines.len())
        .map(|line| document.text(line) + "\n")
        .collect();
    insta::assert_snapshot!(all);
    let (line, fold) = document
        .folds
        .iter()
        .find(|(line, _)| document.text(**line).contains("large"))
        .unwrap();
    let mut layout = DocumentLayout::new(piece(), BTreeSet::from([*fold]), 60);
    layout.step(usize::MAX);
    assert_eq!(layout.document().text(*line), r#"  "large": {"#);
    assert!(layout.is_complete());
}

#[test]
fn a_result_of_megabytes_is_laid_out_in_slices() {
    let json = serde_json::json!({"result": "one line of text\n".repeat(150_000), "long": "y".repeat(300_000)});
    let mut layout = DocumentLayout::new(
        vec![DocumentBlock::Json(JsonFormatter::unfolded(
            json.to_string(),
        ))],
        BTreeSet::new(),
        80,
    );
    let (mut steps, mut lines) = (0, 0);
    while !layout.is_complete() {
        layout.step(64 * 1024);
        steps += 1;
        let now = layout.document().lines.len();
        assert!(
            now - lines < 8_000,
            "one step laid out {} lines",
            now - lines
        );
        lines = now;
    }
    assert!(steps > 40, "{steps} steps");
    assert!(lines > 150_000);
}

#[test]
fn an_escape_that_is_longer_than_the_line_is_broken() {
    let document = laid(
        vec![DocumentBlock::text(StyleRole::Text, "\u{1face}\u{e0100}")],
        1,
        usize::MAX,
    );
    let lines: Vec<String> = (0..document.lines.len())
        .map(|line| document.text(line))
        .collect();
    assert_eq!(lines, ["\u{1face}\\u", "{e01", "00}"]);
}

proptest! {
    #[test]
    fn any_text_is_laid_out_within_the_width(text in any::<String>(), width in 1..60_u16) {
        let text: Arc<str> = text.into();
        let pieces = vec![
            DocumentBlock::section("s", None),
            DocumentBlock::Json(JsonFormatter::folded(Arc::clone(&text), 1, 4)),
            DocumentBlock::text(StyleRole::Text, Arc::clone(&text)),
            DocumentBlock::Markdown { text: Arc::clone(&text) },
            DocumentBlock::fact("name", StyleRole::Text, text.to_string()),
        ];
        let document = laid(pieces, width, usize::MAX);
        for line in 0..document.lines.len() {
            prop_assert!(document.text(line).width() <= usize::from(width.max(10)));
            prop_assert!(!document.text(line).chars().any(text::is_hidden));
        }
    }

    #[test]
    fn sliced_layout_equals_layout_in_one_step(
        text in prop::collection::vec(prop_oneof![Just("{\"a\":["), Just("漢字"), Just("e\u{301}"), Just("\\n\""), Just("]},"), Just("# x\n")], 0..60),
        budget in 1..200_usize,
    ) {
        let text: Arc<str> = text.concat().into();
        let pieces = || vec![
            DocumentBlock::Json(JsonFormatter::unfolded(Arc::clone(&text))),
            DocumentBlock::text(StyleRole::Text, Arc::clone(&text)),
            DocumentBlock::Markdown { text: Arc::clone(&text) },
        ];
        prop_assert_eq!(laid(pieces(), 30, budget), laid(pieces(), 30, usize::MAX));
    }

    #[test]
    fn any_table_is_laid_out_within_the_width(
        cells in prop::collection::vec(prop::collection::vec("[a-z]{0,12}|-?[0-9]{1,9}|[漢\u{301}\u{202e}\u{200b}👍 |\\\\]{0,8}", 4), 1..6),
        width in 4..60_u16,
    ) {
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |", cells.join(" | "))
        };
        let mut lines: Vec<String> = cells.iter().map(line).collect();
        lines.insert(1, "| --- | --- | --- | --- |".to_owned());
        let blocks = answer_blocks(&lines.join("\n")).unwrap();
        let document = laid(blocks, width, usize::MAX);
        let rows: Vec<String> = (0..document.lines.len()).map(|line| document.text(line)).collect();
        let rule = rows.iter().position(|row| row.starts_with('─')).unwrap();
        prop_assert_eq!(rows.len(), rule + cells.len());
        for row in &rows {
            prop_assert!(row.width() <= usize::from(width), "{row:?}");
            prop_assert!(!row.chars().any(text::is_hidden));
        }
        for row in &rows[rule - 1..] {
            prop_assert_eq!(row.width(), rows[rule].width());
        }
    }

    #[test]
    fn layout_terminates_at_any_depth(depth in 0..200_usize) {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let lines = shown(&deep, 20);
        prop_assert!(lines.lines().all(|line| line.width() <= 20));
    }
}
