//! Pages that must not be written, because they could not be read again or would share a file.

use super::*;

fn page(key: &str) -> Value {
    json!({"key": key, "summary": "s", "content": "Text."})
}

#[test]
fn page_too_deep_to_parse_is_declined() {
    let fixture = ToolFixture::unlocked();
    let deep = |levels: usize| (0..levels).fold(json!("leaf"), |inner, _| json!({ "k": inner }));
    let with_usage =
        |usage: Value| json!({"key": "deep", "summary": "s", "content": "Text.", "usage": usage});
    let (reason, _) = fixture.decline("wiki_write", with_usage(deep(100)));
    assert_eq!(reason, "not_writable");
    assert!(
        !fixture
            .text("wiki_search", json!({"query": "deep"}))
            .contains("- deep:")
    );
    fixture.text("wiki_write", with_usage(deep(5)));
    fixture.text(
        "wiki_write",
        json!({"key": "deep", "summary": "t", "replacements": []}),
    );
}

#[test]
fn reserved_and_shared_keys_are_refused() {
    let fixture = ToolFixture::unlocked();
    for key in ["CON", "nul", "Com1", "ARR", "CLAUDE", "agents", "Gemini"] {
        let (reason, _) = fixture.decline("wiki_write", page(key));
        assert_eq!(reason, "key_not_available", "{key}");
    }
    fixture.text("wiki_write", page("console"));
    assert_eq!(
        fixture.decline("wiki_write", page("Console")).0,
        "key_not_available"
    );
    fixture.text("wiki_remove", json!({"key": "console"}));
    fixture.text("wiki_write", page("Console"));
    fixture.text("wiki_write", page("arr"));
}

#[test]
fn page_that_is_a_document_is_not_changed() {
    let fixture = ToolFixture::unlocked();
    let page = "---\nsummary: Leave\nverbatim:\n  document: handbook/leave.md\n  sha256: ab\n---\n\nTen days.\n";
    fs::write(fixture.dir.path().join(wiki::page_path("leave")), page).unwrap();
    fixture.text("wiki_read", json!({"key": "leave"}));
    let write = json!({"key": "leave", "summary": "s", "content": "Nine days."});
    let reply = fixture.call("wiki_write", write.clone());
    assert!(
        reply
            .markdown
            .contains("it is the document handbook/leave.md, kept verbatim"),
        "{}",
        reply.markdown
    );
    for (tool, arguments) in [
        ("wiki_write", write),
        ("wiki_remove", json!({"key": "leave"})),
    ] {
        assert_eq!(fixture.decline(tool, arguments).0, "page_is_document");
    }
}
