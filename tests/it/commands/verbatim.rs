//! Documents that are kept verbatim: pages without an agent, of `docs` connections with `verbatim: true` and of texts.

use std::fs;

use serde_json::{Value, json};

use super::{
    end_to_end::{git, is_clean, subjects, summary},
    test_dir::{CommandOutput, TestDir, parse_json_events},
};

const LEAVE: &str = "---\nowner: maya\nsummary: How leave works\n---\n\n# Leave\n\nTen days.  \n\n---\n\nSee [[nothing]] and `orders.net`.\n";
const REFUNDS: &str = "# Refunds\n\nThe limit is 0.30 EUR.\n";

/// A project with two documents, and no agent.
pub(crate) fn handbook() -> TestDir {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections: {}\ningestdeck:\n  connections:\n    handbook: {driver: docs, source_dir: handbook, verbatim: true}\n",
    );
    place.write("handbook/hr/leave.md", LEAVE);
    place.write("handbook/refunds.md", REFUNDS);
    git(&place, &["init", "--quiet", "--initial-branch=main"]);
    commit(&place);
    place
}

fn commit(place: &TestDir) {
    git(place, &["add", "--all"]);
    git(place, &["commit", "--quiet", "--message=By hand"]);
}

/// A run without any `claude`.
pub(crate) fn run(place: &TestDir, args: &[&str]) -> CommandOutput {
    let common = ["run", "--ui", "json", "--claude-bin", "/nowhere/claude"];
    place.run(&[&common[..], args].concat())
}

fn json(place: &TestDir, args: &[&str]) -> Vec<Value> {
    let output = place.run(&[args, &["--ui", "json"]].concat());
    let lines = output.expect_success().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn page(place: &TestDir, key: &str) -> String {
    fs::read_to_string(place.path(&format!("wiki/global/{key}.md"))).unwrap_or_default()
}

/// The text after the frontmatter.
fn body(page: &str) -> &str {
    page.split_once("\n---\n\n").map_or("", |(_, body)| body)
}

#[test]
fn documents_become_pages_without_an_agent() {
    let place = handbook();
    let planned = json(&place, &["plan"]);
    assert_eq!(
        planned[0]["documents"],
        json!([
            {"path": "hr/leave.md", "page": "hr-leave"},
            {"path": "refunds.md", "page": "refunds"},
        ])
    );
    assert_eq!(planned.len(), 1, "there are no units: {planned:?}");
    let output = run(&place, &[]);
    let events = parse_json_events(output.expect_success());
    assert_eq!(
        summary(&events)["documents"],
        json!({"kept": 2, "refused": []})
    );
    assert_eq!(summary(&events)["units"], json!({}), "and no attempts");
    let leave = page(&place, "hr-leave");
    assert_eq!(
        body(&leave),
        "# Leave\n\nTen days.  \n\n---\n\nSee [[nothing]] and `orders.net`.\n",
        "the body is the document"
    );
    assert!(
        leave.starts_with("---\nsummary: How leave works\n") && leave.contains("owner: maya\n"),
        "{leave}"
    );
    assert!(page(&place, "refunds").contains("summary: Refunds\n"));
    is_clean(&place);
    assert_eq!(subjects(&place).len(), 2, "one commit holds both");
    assert!(subjects(&place)[0].contains("diff=+2/~0/-0/=0"));

    assert_eq!(
        json(&place, &["plan"]),
        [] as [Value; 0],
        "they are settled"
    );
    let artifacts = json(&place, &["artifacts"]);
    let writers = artifacts.iter().map(|it| &it["writers"][0]["unit"]);
    assert_eq!(writers.collect::<Vec<_>>(), ["verbatim", "verbatim"]);
    let why = json(&place, &["why", "wiki/global/refunds.md:9"]);
    assert_eq!(
        (&why[0]["origin"], &why[0]["document"]),
        (
            &json!("verbatim"),
            &json!({"connection": "handbook", "path": "refunds.md"})
        )
    );
}

#[test]
fn edited_document_replaces_its_page() {
    let place = handbook();
    run(&place, &[]).expect_success();
    place.write("handbook/refunds.md", REFUNDS.replace("0.30", "0.40"));
    commit(&place);
    run(&place, &[]).expect_success();
    assert_eq!(
        body(&page(&place, "refunds")),
        "# Refunds\n\nThe limit is 0.40 EUR.\n"
    );
    fs::remove_file(place.path("handbook/refunds.md")).unwrap();
    commit(&place);
    let planned = json(&place, &["plan"]);
    assert_eq!(planned[0]["evicted"], json!(["refunds.md"]));
}

#[test]
fn page_of_someone_else_is_never_replaced() {
    let place = handbook();
    run(&place, &[]).expect_success();
    let edited = page(&place, "refunds").replace("0.30", "0.50");
    place.write("wiki/global/refunds.md", &edited);
    place.write("handbook/refunds.md", REFUNDS.replace("0.30", "0.40"));
    place.write("handbook/terms.md", "# Terms\n\nOurs.\n");
    let terms = "---\nsummary: Terms\n---\n\nAn agent wrote this.\n";
    place.write("wiki/global/terms.md", terms);
    commit(&place);
    let output = run(&place, &[]);
    assert_eq!(output.code, Some(100), "{output:?}");
    let events = parse_json_events(&output.stdout);
    let refused = &summary(&events)["documents"]["refused"];
    assert_eq!(
        refused,
        &json!([
            {"path": "refunds.md", "reason": "page refunds: it was edited since a run wrote it"},
            {"path": "terms.md", "reason": "page terms: it exists, and does not come from this document"},
        ])
    );
    assert_eq!(page(&place, "refunds"), edited);
    assert_eq!(page(&place, "terms"), terms);
    let planned = json(&place, &["plan"]);
    assert_eq!(
        planned[0]["documents"].as_array().unwrap().len(),
        2,
        "they are tried again: {planned:?}"
    );
    fs::remove_file(place.path("wiki/global/terms.md")).unwrap();
    git(
        &place,
        &[
            "checkout",
            "--quiet",
            "HEAD~1",
            "--",
            "wiki/global/refunds.md",
        ],
    );
    commit(&place);
    run(&place, &[]).expect_success();
    assert_eq!(body(&page(&place, "terms")), "# Terms\n\nOurs.\n");
}

#[test]
fn unusable_documents_are_named() {
    let place = handbook();
    place.write("handbook/open.md", "---\nowner: maya\n\ntext\n");
    place.write("handbook/large.md", "x".repeat((1 << 20) + 1));
    place.write("handbook/empty.md", " \n");
    place.write("handbook/binary.md", "a\0b");
    place.write("handbook/AGENTS.md", "# Do this\n");
    commit(&place);
    let output = run(&place, &[]);
    assert_eq!(output.code, Some(100), "{output:?}");
    let events = parse_json_events(&output.stdout);
    let refused = summary(&events)["documents"]["refused"].as_array().unwrap();
    let paths: Vec<&Value> = refused.iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["AGENTS.md", "large.md", "open.md"], "{refused:?}");
    for why in [
        "empty.md is skipped: it is empty",
        "binary.md is skipped: it is not text",
    ] {
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
    assert!(!page(&place, "hr-leave").is_empty(), "the others are kept");
}

#[test]
fn review_decides_about_documents() {
    let place = handbook();
    let output = run(&place, &["--review"]);
    assert_eq!(output.code, Some(103), "{output:?}");
    assert_eq!(subjects(&place).len(), 1, "nothing is saved before");
    let review = [
        "review",
        "latest",
        "--accept",
        "*/refunds.md",
        "--reject",
        "*/hr-leave.md",
    ];
    place
        .run(&[&review[..], &["--claude-bin", "/nowhere/claude"]].concat())
        .expect_success();
    assert_eq!(body(&page(&place, "refunds")), REFUNDS);
    assert_eq!(page(&place, "hr-leave"), "");
    assert_eq!(json(&place, &["plan"]), [] as [Value; 0]);
}

#[test]
fn verbatim_texts_become_pages() {
    let place = TestDir::new();
    place.write("ktx.yaml", "llm: {provider: {backend: none}}\n");
    let long = format!("# Rules\n\n{}\n", "A rule. ".repeat(10_000).trim_end());
    place.write("Rule Book.md", &long);
    let texts = ["--verbatim", "--file", "Rule Book.md", "--text", REFUNDS];
    let output = run(&place, &texts);
    let events = parse_json_events(output.expect_success());
    assert_eq!(summary(&events)["documents"]["kept"], 2);
    assert_eq!(body(&page(&place, "rule-book")), long);
    assert_eq!(body(&page(&place, "refunds")), REFUNDS);

    let again = run(&place, &texts);
    again.expect_success();
    assert!(
        again.stderr.contains("page `refunds` holds it already"),
        "{again:?}"
    );
    let changed = REFUNDS.replace("0.30", "0.40");
    let refused = run(&place, &["--verbatim", "--text", &changed]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("page `refunds`: "), "{refused:?}");
    assert_eq!(body(&page(&place, "refunds")), REFUNDS);
    for (args, why) in [
        (&["--verbatim"][..], "--verbatim is about texts"),
        (
            &["--verbatim", "--text", "no heading"],
            "it begins with no heading",
        ),
        (&["--verbatim", "--text", " "], "it is empty"),
    ] {
        let refused = run(&place, args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
}
