//! Tests the labels of actions.

use super::*;

#[test]
fn labels_follow_the_table() {
    for (name, input, kind, text) in [
        (
            "Bash",
            r#"{"command":"cat /p/a.md\n  | wc"}"#,
            "command",
            "cat a.md | wc",
        ),
        ("bash", "{}", "command", "bash"),
        ("killshell", "{}", "command", "killshell"),
        (
            "Write",
            r#"{"file_path":"/p/x/a.md"}"#,
            "file_change",
            "x/a.md",
        ),
        (
            "edit",
            r#"{"path":"/other/a.md"}"#,
            "file_change",
            "/other/a.md",
        ),
        ("NotebookEdit", "{}", "file_change", "NotebookEdit"),
        ("Read", r#"{"file_path":"/p/a.md"}"#, "tool", "read: `a.md`"),
        ("read", "{}", "tool", "read"),
        ("Glob", r#"{"pattern":"*.md"}"#, "tool", "glob: `*.md`"),
        ("Grep", r#"{"pattern":"x y"}"#, "tool", "grep: x y"),
        ("find", "{}", "tool", "find"),
        ("LS", r#"{"path":"/p/d"}"#, "tool", "ls: `d`"),
        ("WebSearch", r#"{"query":"q"}"#, "web_search", "q"),
        ("web_search", "{}", "web_search", "search"),
        ("WebFetch", r#"{"url":"u"}"#, "web_search", "u"),
        ("web_fetch", "{}", "web_search", "fetch"),
        ("TodoWrite", r#"{"todos":[]}"#, "note", "update todos"),
        ("TodoRead", "{}", "note", "read todos"),
        ("AskUserQuestion", "{}", "note", "ask user"),
        (
            "AskUserQuestion",
            r#"{"questions":[{"question":"Which  format?"},{"question":"Where?"}]}"#,
            "note",
            "ask user: Which format? (and 1 more)",
        ),
        (
            "Workflow",
            r#"{"script":"export const meta = { name: 'look', phases: [] }"}"#,
            "tool",
            "workflow look",
        ),
        (
            "Workflow",
            r#"{"name":"review"}"#,
            "tool",
            "workflow review",
        ),
        ("Workflow", r#"{"script":"name: look"}"#, "tool", "Workflow"),
        (
            "Task",
            r#"{"description":"d","prompt":"p"}"#,
            "subagent",
            "d",
        ),
        ("Agent", r#"{"prompt":"p"}"#, "subagent", "p"),
        ("agent", "{}", "subagent", "agent"),
        (
            "mcp__ktx__read_raw_file",
            r#"{"path":"schema.yml"}"#,
            "tool",
            "read_raw_file schema.yml",
        ),
        (
            "mcp__ktx__wiki_search",
            r#"{"limit":3,"query":"arr"}"#,
            "tool",
            "wiki_search \"arr\"",
        ),
        (
            "mcp__ktx__sl_write_source",
            r#"{"connectionId":"c","sourceName":"mart"}"#,
            "tool",
            "sl_write_source mart",
        ),
        (
            "mcp__ktx__sql_execution",
            r#"{"connectionId":"wh","sql":"SELECT count(*)\n  FROM orders","rowLimit":5}"#,
            "tool",
            "sql_execution wh: SELECT count(*) FROM orders",
        ),
        (
            "mcp__ktx__sql_execution",
            r#"{"sql":"SELECT 1"}"#,
            "tool",
            "sql_execution SELECT 1",
        ),
        ("mcp__ktx__wiki_list_tags", "{}", "tool", "wiki_list_tags"),
        ("mcp__a__b__c", r#"{"key":7}"#, "tool", "b__c 7"),
        ("mcp__odd", r#"{"path":{"a":1}}"#, "tool", "mcp__odd"),
        ("Skill", "[]", "tool", "Skill"),
    ] {
        let label = label::call_label(name, Some(RawJson(input)), Some("/p/"));
        assert_eq!(
            (label.kind.as_str(), &*label.text),
            (kind, text),
            "{name} {input}"
        );
    }
    assert_eq!(label::call_label("Bash", None, None).text, "Bash");
}

#[test]
fn action_label_includes_its_call() {
    let mut labels = Vec::new();
    let mut translator = one_prompt();
    for line in [
        call("t", "mcp__ktx__wiki_read", r#"{"key":"a\nb"}"#),
        result("t", ""),
        result("u", ""),
        "x".into(),
    ] {
        translator.push(
            &decode::decode_line(line.as_bytes()),
            line.as_bytes(),
            &mut |event| {
                if let AgentEvent::Action(action) = &event {
                    labels.push(label::action_label(&action.action).to_string());
                }
            },
        );
    }
    assert_eq!(
        labels,
        [
            "wiki_read a b",
            "wiki_read a b",
            "tool result",
            "invalid JSON from claude; ignoring line"
        ]
    );
}

#[test]
fn results_are_summed_up() {
    let lines = format!("\"{}\"", "line\\n".repeat(12));
    let long = format!("\"{}\"", "x".repeat(16_077));
    for (content, fact) in [
        (None, "empty"),
        (Some("\"\""), "empty"),
        (Some("[]"), "empty"),
        (Some("\"one line\""), "8 B"),
        (Some(&*lines), "12 lines"),
        (Some(&*long), "15.7 KB"),
        (
            Some(r#"[{"type":"text","text":"a\nb"},{"type":"text","text":"c"}]"#),
            "3 lines",
        ),
        (Some(r#"[{"type":"image","source":{}}]"#), "1 image"),
        (
            Some(r#"[{"type":"image"},{"type":"image"},{"type":"text","text":"x"}]"#),
            "2 images",
        ),
    ] {
        assert_eq!(
            label::result_summary(content.map(RawJson)),
            fact,
            "{content:?}"
        );
    }
}

#[test]
fn errors_are_shown_without_wrapping_tags() {
    for (error, reason) in [
        (
            "PreToolUse:mcp__ktx__wiki_write hook error: write the other page first",
            "denied: write the other page first",
        ),
        (
            "Permission to use Bash has been denied because this is a test.",
            "denied: this is a test.",
        ),
        ("Permission to use Bash has been denied.", "denied."),
        (
            "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. it \
             was a file edit). Wait for the user, who shows you how to proceed.",
            "rejected by the user",
        ),
        (
            "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. it \
             was a file edit). To show you how to proceed, the user wrote:\nread it first",
            "rejected by the user: read it first",
        ),
        (
            "Permission to use this page has been denied.",
            "Permission to use this page has been denied.",
        ),
        (
            "PreToolUse: a page about hook error: none",
            "PreToolUse: a page about hook error: none",
        ),
        (
            "<tool_use_error>Error: No such tool available: Bash</tool_use_error>",
            "Error: No such tool available: Bash",
        ),
        ("<tool_use_error>cut sho", "cut sho"),
        (" the key must be flat\n", "the key must be flat"),
        ("", ""),
    ] {
        assert_eq!(label::tool_error_reason(error), reason);
    }
}

// Arbitrary input.
