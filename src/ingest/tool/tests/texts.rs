//! The tools of an agent that captures a text.

use super::*;

/// The tools for a text of `connection`.
fn text_fixture(connection: &str) -> ToolFixture {
    let (mut context, dir) = tool_context();
    context.unit = WorkUnit {
        planned: PlannedUnit {
            unit: UnitKey::from("text-a"),
            connection: connection.into(),
            text: Some("ARR is annual.".into()),
            ..PlannedUnit::default()
        },
        ..WorkUnit::default()
    };
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    }
}

fn names(fixture: &ToolFixture) -> Vec<&'static str> {
    fixture
        .tools
        .specs()
        .into_iter()
        .map(|spec| spec.name)
        .collect()
}

#[test]
fn text_without_connection_has_only_wiki_tools() {
    let pages = [
        "load_skill",
        "wiki_read",
        "wiki_search",
        "wiki_list_tags",
        "wiki_write",
        "wiki_remove",
    ];
    assert_eq!(names(&text_fixture("")), pages);
}

#[test]
fn text_with_connection_has_source_tools_too() {
    let all = [
        "load_skill",
        "wiki_read",
        "wiki_search",
        "wiki_list_tags",
        "sl_discover",
        "sl_read_source",
        "sl_validate",
        "discover_data",
        "wiki_write",
        "wiki_remove",
        "sl_write_source",
        "sl_edit_source",
        "sl_rollback",
    ];
    assert_eq!(names(&text_fixture("warehouse")), all);
    let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    assert!(
        WIKI_TOOLS
            .iter()
            .chain(&SOURCE_TOOLS)
            .all(|name| known.contains(name)),
        "every name is that of a tool"
    );
}

#[test]
fn text_agent_writes_without_a_ledger() {
    let fixture = text_fixture("");
    let page = json!({"key": "arr", "summary": "s", "content": "c", "rawPaths": ["a.md"]});
    let reply = fixture.call("wiki_write", page);
    assert!(
        reply
            .markdown
            .contains("name only none, because a text has no raw files"),
        "{}",
        reply.markdown
    );
    fixture.text(
        "wiki_write",
        json!({"key": "arr-2", "summary": "s", "content": "c"}),
    );
    for tool in [
        "sl_write_source",
        "read_raw_file",
        "emit_unmapped_fallback",
        "record_verification_ledger",
    ] {
        let reply = fixture.call(tool, json!({}));
        assert!(
            reply.is_error
                && reply
                    .markdown
                    .starts_with(&format!("there is no tool `{tool}`")),
            "{tool}"
        );
    }
}
