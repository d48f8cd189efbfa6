//! Pages and sources that both KTX and this program write: the same calls create the same files, and files of either
//! program survive edits by the other.

use super::*;

/// The files that KTX wrote for the calls in `calls.jsonl`.
const FILES: [(&str, &str); 3] = [
    (
        "semantic-layer/orbit/m.yaml",
        include_str!("../../../../tests/fixtures/ktx/b3/semantic-layer/orbit/m.yaml"),
    ),
    (
        "semantic-layer/wh/orders.yaml",
        include_str!("../../../../tests/fixtures/ktx/b3/semantic-layer/wh/orders.yaml"),
    ),
    (
        "wiki/global/p1.md",
        include_str!("../../../../tests/fixtures/ktx/b3/wiki/global/p1.md"),
    ),
];
const CALLS: &str = include_str!("../../../../tests/fixtures/ktx/b3/calls.jsonl");
const OTHER: &str = include_str!("../../../../tests/fixtures/ktx/b2/wiki/global/other.md");
const CUSTOMERS: &str =
    include_str!("../../../../tests/fixtures/ktx/b2/semantic-layer/wh/customers.yaml");

/// A fixture for a unit of `orbit` that may write sources of `wh`, in a project with `files`.
fn fixture(files: &[(&str, &str)]) -> ToolFixture {
    let (mut context, dir) = tool_context();
    context.scope.connections = vec![
        connection("orbit", "dbt", true),
        connection("wh", "postgres", true),
    ];
    context.unit.planned.connection = "orbit".into();
    context.unit.planned.raw_files = vec!["schema.yml".into()];
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    }
}

fn written(fixture: &ToolFixture, path: &str) -> String {
    String::from_utf8(fixture.tools.context.workspace.read(path).unwrap().unwrap()).unwrap()
}

fn calls() -> Vec<(String, Value)> {
    let call = |line: &str| {
        let mut call: Value = serde_json::from_str(line).unwrap();
        (
            call["tool"].as_str().unwrap().to_owned(),
            call["input"].take(),
        )
    };
    CALLS.lines().map(call).collect()
}

#[test]
fn ktx_calls_produce_ktx_files() {
    let fixture = fixture(&[]);
    for (tool, input) in calls() {
        fixture.text(&tool, input);
    }
    for (path, text) in FILES {
        assert_eq!(written(&fixture, path), text, "{path}");
    }
}

#[test]
fn fields_left_out_or_in_another_order_make_no_difference() {
    let fixture = fixture(&[]);
    for (tool, mut input) in calls() {
        if let Some(source) = input.get_mut("source").and_then(Value::as_object_mut) {
            source.retain(|field, _| !matches!(field.as_str(), "joins" | "measures"));
            source.sort_keys();
            source["columns"][0] = json!({"type": "number", "name": "id"});
        }
        fixture.text(&tool, input);
    }
    for (path, text) in FILES {
        assert_eq!(written(&fixture, path), text, "{path}");
    }
}

#[test]
fn sources_of_ktx_keep_everything_when_they_are_edited() {
    let path = "semantic-layer/wh/customers.yaml";
    let fixture = fixture(&[FILES[0], FILES[1], (path, CUSTOMERS)]);
    fixture.text("record_verification_ledger", json!({"summary": "checked"}));
    let edit = |source: &str, old: &str, new: &str| {
        let edits = json!([{"oldText": old, "newText": new}]);
        fixture.text(
            "sl_edit_source",
            json!({"connectionId": "wh", "sourceName": source, "yaml_edits": edits}),
        );
    };
    let measure = "measures:\n  - name: revenue\n    expr: sum(amount)";
    edit("orders", "measures: []", measure);
    assert_eq!(
        written(&fixture, FILES[1].0),
        FILES[1].1.replace("measures: []", measure)
    );
    // KTX cannot edit a source without the lists that its schema requires.
    edit("customers", "count(*)", "count(id)");
    assert_eq!(
        written(&fixture, path),
        format!("{}joins: []\n", CUSTOMERS.replace("count(*)", "count(id)"))
    );
}

#[test]
fn pages_of_ktx_keep_everything_when_they_are_edited() {
    let path = "wiki/global/other.md";
    let other = OTHER.replace(
        "sl_refs: []\n",
        "sl_refs: []\nowner: maya\narea: {team: core, since: 2024}\n",
    );
    let fixture = fixture(&[FILES[2], (path, &other)]);
    fixture.text("record_verification_ledger", json!({"summary": "checked"}));
    let edit = |key: &str, summary: &str, old: &str, new: &str| {
        let replacements = json!([{"oldText": old, "newText": new}]);
        fixture.text(
            "wiki_write",
            json!({"key": key, "summary": summary, "replacements": replacements}),
        );
    };
    edit("p1", "P1", "Body", "More");
    assert_eq!(
        written(&fixture, FILES[2].0),
        FILES[2].1.replace("Body", "More")
    );
    edit("other", "Another: page", "Other body", "A body");
    insta::assert_snapshot!(written(&fixture, path));
}
