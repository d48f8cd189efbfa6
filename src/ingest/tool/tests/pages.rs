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
