//! The tools as a model uses them.

use std::{fs, path::Path};

use super::*;
use crate::{
    connection_scope::ConnectionAccess, instructions::Instructions, transcript::ToolTranscript,
    wiki,
};
use ingestdeck_core::tape::{UnitKey, note::PlannedUnit};

mod arguments;
mod known_tables;
mod ktx_files;
mod ledger;
mod pages;
mod queries;
mod sources;
mod staged;
mod texts;

/// A context with a small project in a temporary directory.
fn tool_context() -> (ToolContext, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::create_dir_all(dir.path().join("wiki/global")).unwrap();
    fs::write(source.join("a.md"), "one\ntwo\nthree\n").unwrap();
    fs::write(source.join("sub/dep.yml"), "x: 1\n").unwrap();
    fs::write(source.join("peer.md"), "not for you\n").unwrap();
    for (key, tags) in [("arr", "[revenue, metric]"), ("churn", "[revenue]")] {
        let page = format!(
            "---\nsummary: About {key}\ntags: {tags}\nowner: maya\n---\n\n# {key}\n\nSee the arr mart.\n"
        );
        fs::write(dir.path().join(wiki::page_path(key)), page).unwrap();
    }
    let unit = WorkUnit {
        planned: PlannedUnit {
            unit: UnitKey::from("docs-a"),
            connection: "notes".into(),
            raw_files: vec!["a.md".into()],
            dependency_paths: vec!["sub/dep.yml".into()],
            ..PlannedUnit::default()
        },
        peer_file_index: vec!["peer.md".into()],
        prior_provenance: Vec::new(),
        review_remarks: None,
        notes: None,
        assigned_lines: None,
        source_root: source,
        is_external: false,
        stage_index: None,
        dependency_bytes: 0,
        changes: Default::default(),
    };
    let workspace =
        Workspace::open_persistent(dir.path(), &dir.path().join(".ktx/work/docs-a-1")).unwrap();
    let connections = vec![
        connection("warehouse", "postgres", true),
        connection("notes", "docs", true),
        connection("bi", "looker", false),
    ];
    let scope = ConnectionScope {
        connections,
        ..ConnectionScope::default()
    };
    (
        ToolContext {
            unit,
            workspace,
            scope,
            loadable_skills: Instructions::default().loadable_skills(),
            records: Mutex::default(),
        },
        dir,
    )
}

fn connection(id: &str, driver: &str, is_target: bool) -> ConnectionAccess {
    ConnectionAccess {
        id: id.into(),
        driver: Some(driver.into()),
        is_target,
        database: None,
        facts: Arc::default(),
    }
}

struct ToolFixture {
    tools: AttemptTools,
    dir: tempfile::TempDir,
}

impl ToolFixture {
    fn new() -> Self {
        let (context, dir) = tool_context();
        let transcript = ToolTranscript::open(dir.path(), "local-x", &"docs-a".into(), 1).unwrap();
        Self {
            tools: AttemptTools::new(Arc::new(context), Some(Arc::new(transcript))),
            dir,
        }
    }

    /// A fixture whose verification ledger has an entry.
    fn unlocked() -> Self {
        let fixture = Self::new();
        assert!(
            !fixture
                .call("record_verification_ledger", json!({"summary": "checked"}))
                .is_error
        );
        fixture
    }

    fn call(&self, name: &str, arguments: Value) -> ToolReply {
        self.tools.call(&ToolCall {
            name: name.into(),
            arguments,
            tool_use_id: None,
        })
    }

    fn text(&self, name: &str, arguments: Value) -> String {
        let reply = self.call(name, arguments);
        assert!(!reply.is_error, "{}", reply.markdown);
        reply.markdown
    }

    /// The reason of a declined call, and whether it counts as failed.
    fn decline(&self, name: &str, arguments: Value) -> (String, bool) {
        let reply = self.call(name, arguments);
        let structured = reply
            .structured
            .unwrap_or_else(|| panic!("{}", reply.markdown));
        assert_eq!(structured["success"], false, "{}", reply.markdown);
        (
            structured["reason"].as_str().unwrap().to_owned(),
            reply.is_error,
        )
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }
}

#[test]
fn only_files_of_the_unit_are_read() {
    let fixture = ToolFixture::new();
    assert_eq!(
        fixture.text("read_raw_file", json!({"path": "a.md"})),
        "one\ntwo\nthree\n"
    );
    assert_eq!(
        fixture.text("read_raw_file", json!({"path": "sub/dep.yml"})),
        "x: 1\n"
    );
    for path in [
        "peer.md",
        "../ktx.yaml",
        "./a.md",
        "/etc/passwd",
        "",
        "a.md\0",
        "sub",
    ] {
        let text = fixture.text("read_raw_file", json!({"path": path}));
        assert!(text.starts_with("Error: "), "{path}: {text}");
    }
    fs::remove_file(fixture.root().join("source/a.md")).unwrap();
    assert!(
        fixture
            .text("read_raw_file", json!({"path": "a.md"}))
            .starts_with("Error: `a.md` cannot be read")
    );
}

#[test]
fn doc_blocks_that_shown_lines_name_follow_the_lines() {
    let (mut context, dir) = tool_context();
    context.unit.planned.adapter = "dbt".into();
    context.unit.planned.dependency_paths.push("docs.md".into());
    let source = dir.path().join("source");
    let yaml = "a: \"{{ doc('x') }}\"\nb: \"{{ doc('y') }}\"\n";
    fs::write(source.join("sub/dep.yml"), yaml).unwrap();
    let long = "y".repeat(MAX_ANSWER_CHARS);
    let docs =
        format!("{{% docs y %}}{long}{{% enddocs %}}\n{{% docs x %}}\nAbout x\n{{% enddocs %}}");
    fs::write(source.join("docs.md"), docs).unwrap();
    let tools = AttemptTools::new(Arc::new(context), None);
    let fixture = ToolFixture { tools, dir };
    assert_eq!(
        fixture.text("read_raw_file", json!({"path": "sub/dep.yml"})),
        format!(
            "{yaml}\n[doc x, from docs.md]\nAbout x\n\n[1 more text that these lines name does not fit; read the Markdown files]\n"
        )
    );
    let first = json!({"path": "sub/dep.yml", "startLine": 1, "endLine": 1});
    assert_eq!(
        fixture.text("read_raw_span", first),
        "a: \"{{ doc('x') }}\"\n\n[doc x, from docs.md]\nAbout x\n"
    );
}

#[test]
fn raw_file_replaced_by_link_is_not_read() {
    let fixture = ToolFixture::new();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), "secret").unwrap();
    fs::remove_file(fixture.root().join("source/a.md")).unwrap();
    std::os::unix::fs::symlink(outside.path(), fixture.root().join("source/a.md")).unwrap();
    let text = fixture.text("read_raw_file", json!({"path": "a.md"}));
    assert!(
        text.starts_with("Error: ") && !text.contains("secret"),
        "{text}"
    );
}

#[test]
fn spans_are_lines_from_one_with_both_ends() {
    let fixture = ToolFixture::new();
    let span = |start: u32, end: u32| {
        fixture.text(
            "read_raw_span",
            json!({"path": "a.md", "startLine": start, "endLine": end}),
        )
    };
    assert_eq!(span(2, 3), "two\nthree\n");
    assert_eq!(span(3, 99), "three\n");
    for (start, end) in [(4, 5), (100, 100), (99, 100_000_000)] {
        assert_eq!(span(start, end), "", "as KTX answers past the end");
    }
    assert_eq!(
        span(3, 2),
        "Error: endLine 2 is before startLine 3; give an endLine of at least startLine"
    );
}

#[test]
fn large_files_are_paged_without_loss() {
    let fixture = ToolFixture::new();
    let whole: String = (0..4_000)
        .map(|n| format!("line {n} {}\n", "é".repeat(n % 20)))
        .collect();
    assert!((45_000..120_000).contains(&whole.len()), "{}", whole.len());
    fs::write(fixture.root().join("source/a.md"), &whole).unwrap();
    let mut joined = String::new();
    let mut reply = fixture.call("read_raw_file", json!({"path": "a.md"}));
    loop {
        assert!(reply.markdown.chars().count() <= MAX_ANSWER_CHARS);
        let (page, next) = match reply.markdown.split_once("\n[lines ") {
            Some((page, note)) => (
                page,
                note.split_once("read_raw_span ")
                    .map(|(_, rest)| rest.trim_end().trim_end_matches(']')),
            ),
            None => (reply.markdown.as_str(), None),
        };
        joined.push_str(page);
        let Some(next) = next else { break };
        reply = fixture.call("read_raw_span", serde_json::from_str(next).unwrap());
    }
    assert_eq!(joined, whole);
    fs::write(fixture.root().join("source/a.md"), "x".repeat(130_000)).unwrap();
    assert!(
        fixture
            .text("read_raw_file", json!({"path": "a.md"}))
            .contains("read_raw_span")
    );
    let cut = fixture.text(
        "read_raw_span",
        json!({"path": "a.md", "startLine": 1, "endLine": 1}),
    );
    assert!(
        cut.contains("[line 1 has 130000 characters; the first 44400 are shown]"),
        "{}",
        &cut[cut.len() - 100..]
    );
}

/// A fixture that collects what the agent receives, with an empty entry in the ledger.
fn fixture_with_received_names() -> ToolFixture {
    let fixture = ToolFixture::unlocked();
    let context = &fixture.tools.context;
    context.records().received = Some(ReceivedNames::default());
    let raw = context.unit.source_root.join("a.md");
    fs::write(raw, "`shop.orders` has `net_cents`.\n").unwrap();
    fixture
}

#[test]
fn identifiers_must_be_read_or_in_the_ledger() {
    let fixture = fixture_with_received_names();
    let page = |content: &str| json!({"key": "net", "summary": "Net", "content": content});
    // A text without identifiers needs no names in the ledger, and links are looked for when the attempt ends.
    fixture.text("wiki_write", page("Net is less than gross. See [[gross]]."));
    let written = page("`shop.orders` has `net_cents` and fct_orders_daily.");
    let reply = fixture.call("wiki_write", written.clone());
    assert!(
        reply.is_error && reply.declined,
        "it counts until it succeeds"
    );
    for part in [
        "`shop`, `orders`, `net_cents`, `fct_orders_daily`",
        r#"record_verification_ledger with {"summary":"…","unverifiedIdentifiers":["shop","#,
    ] {
        assert!(reply.markdown.contains(part), "{}", reply.markdown);
    }
    fixture.text("read_raw_file", json!({"path": "a.md"}));
    let reply = fixture.call("wiki_write", written.clone());
    assert!(
        reply
            .markdown
            .contains("you have read: `fct_orders_daily`; call"),
        "what was read counts as verified: {}",
        reply.markdown
    );
    fixture.text(
        "record_verification_ledger",
        json!({"summary": "s", "verifiedIdentifiers": ["reporting.fct_orders_daily"]}),
    );
    fixture.text("wiki_write", written);
    let edit = json!({"key": "net", "summary": "Net", "replacements": [{"oldText": "has", "newText": "has no `vat_cents`, but"}]});
    assert_eq!(
        fixture.decline("wiki_write", edit).0,
        "identifiers_not_in_ledger",
        "an edit is checked, too"
    );
}

#[test]
fn unverified_identifier_needs_its_mark_on_a_page() {
    let fixture = fixture_with_received_names();
    fixture.text(
        "record_verification_ledger",
        json!({"summary": "s", "unverifiedIdentifiers": ["fct_orders_daily"]}),
    );
    let page = |content: &str| json!({"key": "net", "summary": "Net", "content": content});
    let bare = page("Taken from `fct_orders_daily`.");
    assert_eq!(
        fixture.decline("wiki_write", bare).0,
        "identifiers_not_marked"
    );
    let marked = page(
        "Taken from `fct_orders_daily` [unverified - from a.md]. The `fct_orders_daily` table is late.",
    );
    fixture.text("wiki_write", marked);
}

/// A fixture whose ledger declares `orders` and `fct_orders` as unverified, and the arguments of a page.
fn fixture_with_unverified_orders() -> (ToolFixture, impl Fn(&str) -> Value) {
    let fixture = fixture_with_received_names();
    fixture.text(
        "record_verification_ledger",
        json!({"summary": "s", "verifiedIdentifiers": ["shop", "fct_orders_daily"],
            "unverifiedIdentifiers": ["orders", "fct_orders"]}),
    );
    let page = |content: &str| json!({"key": "net", "summary": "Net", "content": content});
    (fixture, page)
}

#[test]
fn heading_with_an_unverified_identifier_needs_no_mark() {
    let (fixture, page) = fixture_with_unverified_orders();
    let bare = page("# Orders\n\nIn `shop.orders`.");
    assert_eq!(
        fixture.decline("wiki_write", bare).0,
        "identifiers_not_marked"
    );
    let marked =
        page("# `orders`\n\nOur orders are late.\n\nIn `shop.orders` [unverified - from a.md].");
    fixture.text("wiki_write", marked);
}

#[test]
fn longer_identifier_needs_no_mark_of_a_shorter_one() {
    let (fixture, page) = fixture_with_unverified_orders();
    let bare = page("`fct_orders_daily` [unverified - from a.md]\n\nMade from `fct_orders`.");
    assert_eq!(
        fixture.decline("wiki_write", bare).0,
        "identifiers_not_marked"
    );
    let marked =
        page("`fct_orders_daily` has a day.\n\nMade from `fct_orders` [unverified - from a.md].");
    fixture.text("wiki_write", marked);
}

#[test]
fn code_block_with_an_unverified_identifier_needs_no_mark() {
    let (fixture, page) = fixture_with_unverified_orders();
    let block = "```sql\nselect 1 from fct_orders\n```";
    let bare = page(&format!("{block}\n\nIt reads `fct_orders`."));
    assert_eq!(
        fixture.decline("wiki_write", bare).0,
        "identifiers_not_marked"
    );
    let marked = page(&format!(
        "{block}\n\nIt reads `fct_orders` [unverified - from a.md]."
    ));
    fixture.text("wiki_write", marked);
    fixture.text("wiki_write", page(block));
}

#[test]
fn source_with_unknown_column_is_refused() {
    let fixture = fixture_with_received_names();
    fixture.text("read_raw_file", json!({"path": "a.md"}));
    let source = |column: &str| {
        json!({"connectionId": "warehouse", "sourceName": "orders", "source": {
            "name": "orders", "table": "shop.orders", "grain": [column],
            "columns": [{"name": column, "type": "number"}],
            "measures": [{"name": "order_count", "expr": "count(*)"}],
        }})
    };
    let reply = fixture.call("sl_write_source", source("order_key"));
    assert!(
        reply.markdown.contains("`order_key`; call"),
        "{}",
        reply.markdown
    );
    fixture.text("sl_write_source", source("net_cents"));
}

#[test]
fn writing_is_locked_until_the_ledger_has_an_entry() {
    let fixture = ToolFixture::new();
    let page = json!({"key": "new", "summary": "s", "content": "c"});
    assert_eq!(
        fixture.decline("wiki_write", page.clone()),
        ("verification_ledger_required".into(), true)
    );
    assert_eq!(
        fixture.decline("wiki_remove", json!({"key": "arr"})),
        ("verification_ledger_required".into(), true)
    );
    let fallback = json!({"rawPath": "a.md", "reason": "parse_error", "fallback": "flagged"});
    assert_eq!(
        fixture.decline("emit_unmapped_fallback", fallback.clone()),
        ("verification_ledger_required".into(), false)
    );
    let reply = fixture.call("wiki_write", page.clone());
    assert_eq!(reply.structured.unwrap()["toolName"], "wiki_write");
    fixture.text(
        "record_verification_ledger",
        json!({"summary": "s", "verifiedIdentifiers": ["a"]}),
    );
    assert_eq!(fixture.text("wiki_write", page), "Wiki page `new` created.");
    fixture.text("emit_unmapped_fallback", fallback);
    assert_eq!(fixture.tools.context.records().unmapped.len(), 1);
}

#[test]
fn pages_are_created_changed_and_removed() {
    let fixture = ToolFixture::unlocked();
    fixture.text("wiki_write", json!({"key": "nrr", "summary": "Net", "content": "# NRR\n\nA b.", "tags": ["revenue"], "refs": ["arr"], "rawPaths": ["a.md"]}));
    fixture.text(
        "wiki_write",
        json!({"key": "nrr", "summary": "Net retention", "replacements": [{"oldText": "A b", "newText": "C d"}]}),
    );
    insta::assert_snapshot!(fixture.text("wiki_read", json!({"key": "nrr"})));
    fixture.text("wiki_write", json!({"key": "arr", "summary": "ARR"}));
    let kept = fixture.text("wiki_read", json!({"key": "arr"}));
    assert!(
        kept.contains("owner: maya") && kept.contains("See the arr mart."),
        "{kept}"
    );
    fixture.text("wiki_read", json!({"key": "churn"}));
    fixture.text("wiki_remove", json!({"key": "churn"}));
    assert!(
        fixture
            .text("wiki_read", json!({"key": "churn"}))
            .starts_with("Error: there is no wiki page `churn`")
    );
    assert!(
        fs::read_to_string(fixture.root().join("wiki/global/churn.md")).is_ok(),
        "the project is untouched"
    );
}

#[test]
fn invalid_writes_are_declined_with_a_reason() {
    let fixture = ToolFixture::unlocked();
    let page = |more: Value| {
        let mut page = json!({"key": "arr", "summary": "s"});
        page.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        fixture.decline("wiki_write", page).0
    };
    assert_eq!(
        page(json!({"key": "../arr", "content": "x"})),
        "invalid_key"
    );
    assert_eq!(
        page(json!({"content": "x", "rawPaths": ["peer.md"]})),
        "raw_paths_not_allowed"
    );
    assert_eq!(
        page(json!({"content": "x", "replacements": []})),
        "content_and_replacements"
    );
    assert_eq!(page(json!({"content": "  "})), "content_required");
    assert_eq!(page(json!({"key": "none"})), "content_required");
    assert_eq!(
        page(json!({"key": "none", "replacements": [{"oldText": "a", "newText": "b"}]})),
        "page_not_found"
    );
    assert_eq!(
        page(json!({"replacements": [{"oldText": "nowhere", "newText": "b"}]})),
        "replacement_not_unique"
    );
    assert_eq!(
        page(json!({"replacements": [{"oldText": "ar", "newText": "b"}]})),
        "replacement_not_unique"
    );
    assert_eq!(
        fixture.decline("wiki_remove", json!({"key": "none"})),
        ("page_not_found".into(), true)
    );
    assert_eq!(
        fixture.decline(
            "emit_unmapped_fallback",
            json!({"rawPath": "peer.md", "reason": "parse_error", "fallback": "flagged"})
        ),
        ("raw_path_not_allowed".into(), false)
    );
}

#[test]
fn page_changed_since_read_is_not_overwritten() {
    let fixture = ToolFixture::unlocked();
    fixture.text("wiki_read", json!({"key": "arr"}));
    fs::write(
        fixture.root().join("wiki/global/arr.md"),
        "---\nsummary: theirs\n---\n\ntheirs\n",
    )
    .unwrap();
    fs::write(fixture.root().join("wiki/global/newer.md"), "theirs").unwrap();
    for key in ["arr", "newer"] {
        let whole = json!({"key": key, "summary": "s", "content": "mine"});
        assert_eq!(
            fixture.decline("wiki_write", whole),
            ("page_changed".into(), false),
            "a concurrent change is not an error"
        );
    }
    // An edit applies to the newest text, so the agent does not have to read it again.
    fixture.text(
        "wiki_write",
        json!({"key": "arr", "summary": "s", "replacements": [{"oldText": "theirs", "newText": "both"}]}),
    );
    assert!(
        fixture
            .text("wiki_read", json!({"key": "arr"}))
            .contains("both")
    );
}

#[test]
fn search_ranks_keys_over_bodies_and_shows_own_pages() {
    let fixture = ToolFixture::unlocked();
    fixture.text(
        "wiki_write",
        json!({"key": "zz-own", "summary": "mentions", "content": "arr here"}),
    );
    let reply = fixture.call("wiki_search", json!({"query": "ARR!"}));
    assert_eq!(
        reply.markdown,
        "- arr: About arr\n- zz-own: mentions\n- churn: About churn"
    );
    assert!(
        fixture
            .text("wiki_search", json!({"query": "arr", "limit": 1}))
            .ends_with("2 more pages match; raise limit or narrow the query.")
    );
    assert_eq!(
        fixture.text("wiki_search", json!({"query": "zebra"})),
        "No wiki page matches `zebra`."
    );
    assert_eq!(
        fixture.text("wiki_search", json!({"query": "?!"})),
        "No wiki page matches `?!`."
    );
    assert_eq!(
        fixture.text("wiki_list_tags", json!({})),
        "- metric (1)\n- revenue (2)"
    );
    assert_eq!(
        fixture.text("wiki_list_tags", Value::Null),
        "- metric (1)\n- revenue (2)"
    );
}

#[test]
fn a_unit_that_writes_no_sources_has_no_tool_for_it() {
    let names = |reason: Option<&str>| {
        let (mut context, _dir) = tool_context();
        context.unit.planned.sl_disallowed = reason.map(str::to_owned);
        let tools = AttemptTools::new(Arc::new(context), None);
        let call = ToolCall {
            name: "sl_write_source".into(),
            arguments: json!({}),
            tool_use_id: None,
        };
        (
            tools
                .specs()
                .iter()
                .map(|spec| spec.name)
                .collect::<Vec<_>>(),
            tools.call(&call).markdown,
        )
    };
    let (all, _) = names(None);
    let (fewer, answer) = names(Some("lookml_connection_mismatch"));
    let lost: Vec<_> = all
        .into_iter()
        .filter(|name| !fewer.contains(name))
        .collect();
    assert_eq!(lost, ["sl_write_source", "sl_edit_source"]);
    assert!(
        answer.starts_with("there is no tool `sl_write_source`"),
        "{answer}"
    );
}

#[test]
fn loaded_skill_lists_the_tools_that_its_unit_lacks() {
    let load = |reason: Option<&str>| {
        let (mut context, _dir) = tool_context();
        context.unit.planned.sl_disallowed = reason.map(str::to_owned);
        let call = ToolCall {
            name: "load_skill".into(),
            arguments: json!({"name": "sl_capture"}),
            tool_use_id: None,
        };
        AttemptTools::new(Arc::new(context), None)
            .call(&call)
            .markdown
    };
    let (all, fewer) = (load(None), load(Some("lookml_connection_mismatch")));
    let note = "This unit does not have sl_write_source, sl_edit_source: skip what needs them.";
    assert!(fewer.ends_with(note) && fewer.starts_with("# "), "{fewer}");
    assert!(
        !all.contains("sl_write_source, sl_edit_source: skip"),
        "{all}"
    );
}

#[test]
fn skills_load_by_name_only() {
    let fixture = ToolFixture::new();
    assert!(
        fixture
            .text("load_skill", json!({"name": "wiki_capture"}))
            .starts_with("# Wiki pages")
    );
    assert!(
        fixture
            .text("load_skill", json!({"name": "dbt_ingest"}))
            .starts_with("# dbt projects"),
        "not of its adapter"
    );
    let text = fixture.text("load_skill", json!({"name": "../dbt_ingest"}));
    let names = "ingest_triage, sl, sl_capture, wiki_capture, dbt_ingest, docs_ingest, lookml_ingest, metricflow_ingest, notion_synthesize";
    assert_eq!(
        text,
        format!("Error: there is no skill `../dbt_ingest`; available skills: {names}")
    );
}

#[test]
fn bad_arguments_and_unknown_tools_are_errors_that_help() {
    let fixture = ToolFixture::new();
    let texts = [
        fixture.call("read_raw_file", json!({"file": "a.md"})),
        fixture.call("read_raw_span", json!({"path": "a.md", "startLine": "1"})),
        fixture.call("wiki_search", json!("arr")),
        fixture.call(
            "emit_unmapped_fallback",
            json!({"rawPath": "a.md", "reason": "lazy", "fallback": "flagged"}),
        ),
        fixture.call("Bash", json!({"command": "ls"})),
    ]
    .map(|reply| {
        assert!(reply.is_error && reply.structured.is_none());
        reply.markdown
    });
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn late_calls_find_the_workspace_closed() {
    let fixture = ToolFixture::unlocked();
    fixture.tools.context.workspace.discard();
    assert_eq!(
        fixture
            .decline(
                "wiki_write",
                json!({"key": "new", "summary": "s", "content": "c"})
            )
            .0,
        "attempt_over"
    );
}

#[test]
fn every_call_is_written_to_the_transcript() {
    let fixture = ToolFixture::new();
    fixture.call("read_raw_file", json!({"path": "a.md"}));
    fixture.call("nothing", json!({}));
    fixture.call(
        "wiki_write",
        json!({"key": "new", "summary": "s", "content": "c"}),
    );
    let text = fs::read_to_string(
        fixture
            .root()
            .join(".ktx/ingest-transcripts/local-x/docs-a.jsonl"),
    )
    .unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["output"]["markdown"], "one\ntwo\nthree\n");
    assert!(
        lines[1]["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("there is no tool")
    );
    assert_eq!(lines[2]["output"]["structured"]["success"], false);
}

#[test]
fn answers_beyond_the_limit_are_declared() {
    let long = mark_oversized(ToolReply::text("é".repeat(MAX_ANSWER_CHARS + 5)));
    assert!(
        long.markdown
            .ends_with("[truncated: the first 45000 of 45005 characters are shown]")
    );
    assert_eq!(
        mark_oversized(ToolReply::text("é".repeat(MAX_ANSWER_CHARS)))
            .markdown
            .chars()
            .count(),
        MAX_ANSWER_CHARS
    );
}
