//! Measures how many planted identifiers are flagged, and how many alarms recorded artifacts raise.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::*;
use crate::{
    transcript::{RejectedCall, ToolTranscript},
    wiki::{Frontmatter, WikiPage, page_path},
};
use ingestdeck_core::{
    tape::note::attempt_output::UNSOURCED_LIST,
    units::{ToolCall, ToolReply},
};

fn repository(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall {
        name: tool.to_owned(),
        arguments,
        tool_use_id: None,
    }
}

fn read(received: &mut ReceivedNames, path: &str, text: &str) {
    received.add_reply(
        &call("read_raw_file", json!({"path": path})),
        &ToolReply::text(text),
    );
}

/// What an agent received that read every file below `dir`.
fn received_files(dir: &Path) -> ReceivedNames {
    let mut received = ReceivedNames::default();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    received.add_text(&path.display().to_string());
                    read(
                        &mut received,
                        &path.display().to_string(),
                        &fs::read_to_string(&path).unwrap(),
                    );
                }
            }
        }
    }
    received
}

fn artifact(name: &str, text: String) -> ChangedArtifact {
    let path = match name.strip_suffix(".md") {
        Some(key) => page_path(key),
        None => format!("semantic-layer/shop-dbt/{name}"),
    };
    ChangedArtifact {
        path,
        text,
        original: String::new(),
    }
}

/// The artifacts in a directory of fixtures, sorted by name.
fn fixtures(dir: &str) -> Vec<ChangedArtifact> {
    let files: BTreeMap<String, String> = fs::read_dir(repository(dir))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .filter(|(name, _)| !name.ends_with(".txt"))
        .collect();
    files
        .into_iter()
        .map(|(name, text)| artifact(&name, text))
        .collect()
}

/// An agent that read the sources of the demo and was given the names of its connections.
fn demo_reader() -> ReceivedNames {
    let mut received = received_files(&repository("assets/demo/project/sources"));
    received.add_text("## shop-dbt\n(no sources yet)");
    received
}

/// The pages that each attempt on a recorded tape wrote, with what its agent received.
fn recorded_attempts(tape: &str) -> Vec<(ReceivedNames, Vec<ChangedArtifact>)> {
    let mut attempts: BTreeMap<(String, u64), (ReceivedNames, BTreeMap<String, ChangedArtifact>)> =
        BTreeMap::new();
    let mut open: BTreeMap<String, ToolCall> = BTreeMap::new();
    for line in fs::read_to_string(repository(tape))
        .unwrap()
        .lines()
        .skip(1)
    {
        let entry: Value = serde_json::from_str(line).unwrap();
        let Some(unit) = entry["unit"].as_str() else {
            continue;
        };
        let (received, pages) = attempts
            .entry((unit.to_owned(), entry["try"].as_u64().unwrap()))
            .or_default();
        if let Some(prompt) = entry["in"]["message"]["content"].as_str() {
            received.add_text(prompt);
        }
        for block in entry["out"]["message"]["content"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if block["type"] == "tool_use" {
                let name = text(&block["name"]).rsplit("__").next().unwrap().to_owned();
                open.insert(text(&block["id"]), call(&name, block["input"].clone()));
            }
            let Some(made) = open.remove(&text(&block["tool_use_id"])) else {
                continue;
            };
            let parts = block["content"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|part| text(&part["text"]));
            let answer = text(&block["content"]) + &parts.collect::<Vec<_>>().join("\n");
            let failed = block["is_error"] == true;
            received.add_reply(
                &made,
                &ToolReply {
                    is_error: failed,
                    ..ToolReply::text(answer)
                },
            );
            let names = |field: &str| {
                serde_json::from_value(made.arguments[field].clone()).unwrap_or_default()
            };
            match made.name.as_str() {
                "record_verification_ledger" => {
                    let verified: Vec<String> = names("verifiedIdentifiers");
                    received.add_ledger(&verified, &names("unverifiedIdentifiers"));
                }
                "wiki_write" if !failed && made.arguments["content"].is_string() => {
                    let frontmatter: Frontmatter =
                        serde_json::from_value(made.arguments.clone()).unwrap();
                    let page = WikiPage {
                        frontmatter,
                        body: text(&made.arguments["content"]),
                    };
                    let key = text(&made.arguments["key"]);
                    pages.insert(
                        key.clone(),
                        artifact(&format!("{key}.md"), page.render().unwrap()),
                    );
                }
                _ => {}
            }
        }
    }
    attempts
        .into_values()
        .map(|(received, pages)| (received, pages.into_values().collect()))
        .collect()
}

#[test]
fn planted_identifiers_are_flagged() {
    let found = unsourced_in(
        &fixtures("tests/fixtures/unsourced/planted"),
        &demo_reader(),
    );
    let planted =
        fs::read_to_string(repository("tests/fixtures/unsourced/planted/names.txt")).unwrap();
    let planted: Vec<(&str, &str)> = planted
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let is_flagged = |(file, name): &(&str, &str)| {
        found
            .iter()
            .any(|flag| flag.path.ends_with(&format!("/{file}")) && flag.name == *name)
    };
    let missed: Vec<_> = planted
        .iter()
        .filter(|planted| !is_flagged(planted))
        .collect();
    assert_eq!(planted.len(), 52);
    assert!(missed.len() <= 2, "{missed:?}");
}

#[test]
fn recorded_artifacts_raise_few_alarms() {
    let mut lines = 0;
    let mut alarms = Vec::new();
    let mut count = |received: &ReceivedNames, artifacts: &[ChangedArtifact]| {
        lines += artifacts
            .iter()
            .map(|artifact| artifact.text.lines().count())
            .sum::<usize>();
        alarms.extend(unsourced_in(artifacts, received));
    };
    count(&demo_reader(), &fixtures("tests/fixtures/unsourced/clean"));
    for tape in ["demo", "harbor", "real"] {
        for (received, artifacts) in
            recorded_attempts(&format!("tests/fixtures/tapes/{tape}.jsonl"))
        {
            count(&received, &artifacts);
        }
    }
    assert!(lines >= 500, "{lines}");
    let alarms: BTreeSet<String> = alarms.iter().map(ToString::to_string).collect();
    assert!(alarms.len() <= 5, "{lines} lines: {alarms:#?}");
}

fn page(body: &str) -> Vec<ChangedArtifact> {
    vec![artifact(
        "arr.md",
        format!("---\nsummary: s\n---\n\n{body}\n"),
    )]
}

fn flagged(received: &ReceivedNames, body: &str) -> Vec<String> {
    unsourced_in(&page(body), received)
        .into_iter()
        .map(|flag| flag.to_string())
        .collect()
}

#[test]
fn own_words_are_not_sourced_by_an_echo() {
    let mut received = ReceivedNames::default();
    let query = call("wiki_search", json!({"query": "fct_made_up"}));
    received.add_reply(
        &query,
        &ToolReply::text("No wiki page matches `fct_made_up`."),
    );
    let failed = call(
        "sql_execution",
        json!({"sql": "select made_up_id from orders"}),
    );
    received.add_reply(&failed, &ToolReply::error("no such column: made_up_id"));
    let write = call(
        "wiki_write",
        json!({"key": "arr", "content": "`fct_made_up` `made_up_id` `orders`"}),
    );
    received.add_reply(&write, &ToolReply::text("wrote `fct_made_up`"));
    received.add_reply(
        &call("wiki_read", json!({"key": "arr"})),
        &ToolReply::text("`made_up_id` of fct_made_up"),
    );
    let body = "`fct_made_up` `made_up_id`";
    let both = [
        "wiki/global/arr.md:5 `fct_made_up`",
        "wiki/global/arr.md:5 `made_up_id`",
    ];
    assert_eq!(flagged(&received, body), both);
    read(&mut received, "a.sql", "select MADE_UP_ID from fct_made_up");
    assert_eq!(flagged(&received, body), [""; 0]);
}

#[test]
fn only_denials_of_tools_are_echoes() {
    let mut received = ReceivedNames::default();
    let ask = |query: &str| call("entity_details", json!({"targets": [query]}));
    received.add_reply(
        &ask("fct_arr.has_no_renewal"),
        &ToolReply::text("fct_arr.has_no_renewal bool (nullable=no)"),
    );
    assert_eq!(flagged(&received, "`fct_arr.has_no_renewal`"), [""; 0]);
    for denial in [
        "Not found: fct_x",
        "- Column not found: fct_x",
        "No wiki page fct_x",
        "there is no fct_x in wh",
    ] {
        received.add_reply(&ask("fct_x"), &ToolReply::text(denial));
    }
    assert_eq!(
        flagged(&received, "`fct_x`"),
        ["wiki/global/arr.md:5 `fct_x`"]
    );
}

#[test]
fn aliases_and_texts_of_a_query_are_not_received() {
    let mut received = ReceivedNames::default();
    let query = call(
        "sql_execution",
        json!({"sql": "select net_arr as my_alias, 'my_text' from fct_arr"}),
    );
    received.add_reply(
        &query,
        &ToolReply::text("| my_alias | net_arr |\n| my_text | 1 |"),
    );
    let flags = flagged(&received, "`my_alias` `my_text` `net_arr`");
    assert_eq!(
        flags,
        [
            "wiki/global/arr.md:5 `my_alias`",
            "wiki/global/arr.md:5 `my_text`"
        ]
    );
}

#[test]
fn claims_and_received_words_are_split_alike() {
    let mut received = ReceivedNames::default();
    received.add_text("_fct_arr_ $plan_id a$dim_plan fct\\_flow __meta_id");
    let body =
        "`fct_arr` `$plan_id` `a_b$dim_plan` fct\\_flow `fct_flow` `__meta_id` and made\\_up_id";
    assert_eq!(
        flagged(&received, body),
        [
            "wiki/global/arr.md:5 `a_b`",
            "wiki/global/arr.md:5 `made_up_id`"
        ]
    );
}

#[test]
fn quoted_lines_in_feedback_are_not_received() {
    let mut received = ReceivedNames::default();
    received.add_feedback(
        "wiki/global/arr.md, at these lines: use fct_arr\n-uses old_arr\n+uses made_up",
    );
    assert_eq!(
        flagged(&received, "`fct_arr` `old_arr` `made_up`"),
        ["wiki/global/arr.md:5 `made_up`"]
    );
}

#[test]
fn findings_in_feedback_are_not_received() {
    let flag = |name: &str, declared| UnsourcedIdentifier {
        path: "wiki/global/arr.md".into(),
        line: 8,
        name: name.into(),
        declared,
    };
    let (first, second) = (flag("made_up", false), flag("also_made_up", true));
    let reason = format!(
        "validation failed for: {}, {}",
        first.finding(),
        second.finding()
    );
    let wrapped = reason.replace("nothing that", "nothing\n        that");
    let warning =
        format!("2 identifiers in its artifacts {UNSOURCED_LIST} {first}, {second} and 3 more");
    for text in [
        reason.as_str(),
        &wrapped,
        &format!("▲ {}\nfix this", second.finding()),
        &warning,
    ] {
        let mut received = ReceivedNames::default();
        received.add_feedback(text);
        received.add_feedback(&first.finding());
        let flags = flagged(&received, "`made_up` `also_made_up`");
        assert_eq!(
            flags,
            [
                "wiki/global/arr.md:5 `made_up`",
                "wiki/global/arr.md:5 `also_made_up`"
            ],
            "{text}"
        );
        received.add_feedback(&format!(
            "{text}. The column is also_made_up, and {first} is right."
        ));
        assert_eq!(
            flagged(&received, "`made_up` `also_made_up`"),
            [""; 0],
            "the words of a person count: {text}"
        );
    }
}

#[test]
fn declared_identifier_is_marked() {
    let mut received = ReceivedNames::default();
    received.add_ledger(&["fct_arr".into()], &["shop.dim_plan".into()]);
    let flags = flagged(&received, "`fct_arr` joins `shop.dim_plan`");
    let mark = |name: &str| format!("wiki/global/arr.md:5 `{name}` (declared as unverified)");
    assert_eq!(flags, [mark("shop"), mark("dim_plan")]);
}

#[test]
fn names_of_the_original_are_not_flagged() {
    let mut pages = page("`old_name`\n`new_name`");
    pages[0].original = "`old_name`".to_owned();
    let flags = unsourced_in(&pages, &ReceivedNames::default());
    assert_eq!(
        flags
            .iter()
            .map(|flag| (flag.line, flag.name.as_str()))
            .collect::<Vec<_>>(),
        [(6, "new_name")]
    );
}

#[test]
fn transcript_of_a_session_counts_as_received() {
    let mut received = ReceivedNames::default();
    let line = |tool: &str, text: &str| {
        json!({"toolName": tool, "input": {"path": "a.md"}, "output": {"markdown": text}})
            .to_string()
    };
    let transcript = [
        line("read_raw_file", "uses fct_arr"),
        "{torn".into(),
        line("wiki_read", "and dim_plan"),
    ]
    .join("\n");
    received.add_transcript(transcript.as_bytes());
    assert_eq!(
        flagged(&received, "fct_arr dim_plan other_name"),
        ["wiki/global/arr.md:5 `other_name`"]
    );
    let skill = crate::skill::bundled_skills()
        .iter()
        .find(|skill| skill.body.contains('_'))
        .unwrap();
    let mut only_skill = ReceivedNames::default();
    only_skill.add_reply(
        &call("load_skill", json!({"name": skill.name})),
        &ToolReply::text(skill.body.as_str()),
    );
    let with_note = format!("{}\n\nThis unit does not have sl_write_source.", skill.body);
    only_skill.add_reply(
        &call("load_skill", json!({"name": skill.name})),
        &ToolReply::text(with_note),
    );
    assert_eq!(
        only_skill,
        ReceivedNames::default(),
        "the examples of a bundled skill do not exist in the project"
    );
}

/// An agent that continues a session received the same as the agent of the session.
#[test]
fn failed_calls_of_a_transcript_count_as_failed() {
    let dir = tempfile::tempdir().unwrap();
    let transcript = ToolTranscript::open(dir.path(), "local-1", &"u".into(), 1).unwrap();
    let ledger = json!({"summary": "s", "verifiedIdentifiers": ["fct_verified"], "unverifiedIdentifiers": ["fct_open"]});
    let refused = ToolReply {
        structured: Some(json!({"success": false})),
        ..ToolReply::error("no such fct_refused")
    };
    let mut live = ReceivedNames::default();
    for (made, reply) in [
        (
            call("entity_details", json!({"targets": ["fct_missing"]})),
            ToolReply::declined("Error: fct_missing or fct_arr"),
        ),
        (
            call("sql_execution", json!({"sql": "select 1 from fct_query"})),
            {
                let structured =
                    Some(json!({"sql": "select 1 from fct_query", "error": "no such table"}));
                ToolReply {
                    structured,
                    ..ToolReply::declined("SQL execution failed: no such table: fct_query")
                }
            },
        ),
        (
            call("sl_write_source", json!({"sourceName": "fct_refused"})),
            refused,
        ),
        (
            call("read_raw_file", json!({"path": "fct_typo"})),
            ToolReply::error("fct_typo; the files are dim_plan"),
        ),
        (
            call("record_verification_ledger", ledger),
            ToolReply::text("Recorded."),
        ),
    ] {
        live.add_reply(&made, &reply);
        transcript.record(
            &made,
            jiff::Timestamp::UNIX_EPOCH,
            std::time::Duration::ZERO,
            &reply,
        );
    }
    let rejected = RejectedCall {
        tool: "wiki_write",
        tool_use_id: None,
        input: &json!({"key": "fct_key"}),
        message: "fct_key: use dim_owner",
        duration_ms: 0,
    };
    transcript.record_failure(&rejected);
    live.add_text("dim_owner");
    live.add_ledger(&["fct_verified".into()], &["fct_open".into()]);
    let mut resumed = ReceivedNames::default();
    resumed.add_transcript(&fs::read(dir.path().join(transcript.relative_path())).unwrap());
    let body = "fct_missing fct_arr fct_query fct_refused fct_typo dim_plan fct_verified fct_open fct_key dim_owner";
    let names = [
        "fct_missing",
        "fct_query",
        "fct_refused",
        "fct_typo",
        "fct_open",
        "fct_key",
    ];
    let mut expected = names.map(|name| format!("wiki/global/arr.md:5 `{name}`"));
    expected[4].push_str(" (declared as unverified)");
    assert_eq!(flagged(&live, body), expected);
    assert_eq!(flagged(&resumed, body), expected);
}

fn check(workspace: &Workspace, received: &ReceivedNames) -> io::Result<UnsourcedCheck> {
    let scope = ConnectionScope::default();
    find_unsourced((workspace, &scope), received, std::iter::empty())
}

#[test]
fn texts_beyond_the_limits_are_not_compared() {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
    let mut received = ReceivedNames::default();
    assert_eq!(
        check(&workspace, &received).unwrap().found,
        Some(Vec::new())
    );
    let path = |number: usize| format!("wiki/global/{number:02}.md");
    workspace
        .write(&path(0), b"---\nsummary: s\n---\n\n`made_up`\n")
        .unwrap();
    let checked = check(&workspace, &received).unwrap();
    assert_eq!(
        (checked.found.map(|found| found.len()), checked.skipped),
        (Some(1), None)
    );
    let skipped = |received: &ReceivedNames| {
        let checked = check(&workspace, received).unwrap();
        assert_eq!(checked.found, None, "a part of the texts proves nothing");
        checked.skipped.unwrap()
    };
    received.mark_incomplete();
    let of_one = skipped(&received);
    assert_eq!(
        (of_one.paths, of_one.reason.as_str()),
        (
            vec![path(0)],
            "the agent received more text than is compared"
        )
    );
    let large = vec![b' '; 1 << 20];
    (1..=16).for_each(|number| workspace.write(&path(number), &large).unwrap());
    let of_all = skipped(&ReceivedNames::default());
    assert_eq!(
        (of_all.paths.len(), of_all.reason.as_str()),
        (17, "they have more than 16 MiB")
    );
}

#[test]
fn flags_of_a_hostile_artifact_are_bounded() {
    let text: String = (0..20_000)
        .map(|number| format!("`{}_{number}` [[", "x".repeat(300)))
        .collect();
    let flags = unsourced_in(&page(&text), &ReceivedNames::default());
    assert_eq!(flags.len(), MAX_UNSOURCED);
    assert!(flags.iter().all(|flag| flag.name.len() <= MAX_NAME_CHARS));
    for text in [
        "---\n",
        "---\nrefs: [[[\n---\n",
        "```sql\nselect '",
        "`",
        "[[",
        "``` \n```",
        "---\nusage: 1\n---\n\u{0}",
    ] {
        unsourced_in(
            &[
                artifact("a.md", text.to_owned()),
                artifact("a.yaml", text.to_owned()),
            ],
            &demo_reader(),
        );
    }
}
