//! Validation of arguments against the schemas of the tools.

use proptest::prelude::*;

use super::{queries::with_shop, *};
use crate::schema::validate;

/// A future schemars version may emit keywords that the validation does not check; this test finds them.
#[test]
fn schemas_use_only_checked_keywords() {
    const CHECKED: &[&str] = &[
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "description",
        "default",
    ];
    fn visit(schema: &Value, at: &str) {
        let Value::Object(map) = schema else { return };
        for (keyword, value) in map {
            assert!(CHECKED.contains(&keyword.as_str()), "{at}: {keyword}");
            match value {
                Value::Object(fields) if keyword == "properties" => {
                    fields
                        .iter()
                        .for_each(|(name, schema)| visit(schema, &format!("{at}.{name}")));
                }
                other => visit(other, at),
            }
        }
    }
    for tool in &TOOLS {
        let schema = &tool.schema;
        assert_eq!(schema["type"], "object", "{}", tool.name);
        assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
        visit(&Value::Object((**schema).as_ref().clone()), tool.name);
    }
}

#[test]
fn all_argument_problems_are_listed_by_field() {
    let schema = &TOOLS
        .iter()
        .find(|tool| tool.name == "wiki_write")
        .unwrap()
        .schema;
    let arguments = json!({
        "key": 3, "sumary": "x", "tags": ["a", 1], "replacements": [{"oldText": "a"}], "content": "x".repeat(4001),
        "refs": null,
    });
    insta::assert_snapshot!(validate(schema, &arguments).unwrap_err().join("\n"));
    assert!(validate(schema, &json!("text")).is_err());
    assert!(validate(schema, &json!({"key": "a", "summary": "b", "tags": null})).is_ok());
}

#[test]
fn whole_numbers_are_whole() {
    let schema = &TOOLS
        .iter()
        .find(|tool| tool.name == "read_raw_span")
        .unwrap()
        .schema;
    assert!(validate(schema, &json!({"path": "a", "startLine": 1, "endLine": 2})).is_ok());
    assert!(validate(schema, &json!({"path": "a", "startLine": 0, "endLine": 2})).is_err());
    assert!(
        validate(
            schema,
            &json!({"path": "a", "startLine": 1.5, "endLine": 2})
        )
        .is_err()
    );
    assert!(
        validate(
            schema,
            &json!({"path": "a", "startLine": "1", "endLine": 2})
        )
        .is_err()
    );
}

const ANY_FIELD: &str = "key|path|summary|startLine|limit|tags|connectionId|sourceName|source|name|columns|table|yaml_edits|\
    oldText|newText|delete|query|sql|rowLimit|targets|display|rawPaths|.{0,4}";

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "warehouse|shop|arr|orders|a.md|SELECT 1|.{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(ANY_FIELD, inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// The tools accept all arguments that pass validation, without a second, vaguer error.
    #[test]
    fn valid_arguments_are_accepted_by_tools(value in json()) {
        let (context, _dir) = with_shop();
        for tool in &TOOLS {
            if let Ok(value) = validate(&tool.schema, &value) {
                let reply = (tool.run)(&context, value);
                prop_assert!(!reply.markdown.contains("was not called"), "{}: {}", tool.name, reply.markdown);
            }
        }
    }
}

/// For any arguments of a model: no tool panics, writes outside its two directories, or saves a page that cannot be
/// read again.
#[test]
fn fuzzed_arguments_stay_in_the_workspace() {
    let corpus = [
        r##"{"key": "arr", "summary": "Recurring revenue", "content": "# ARR\n\nSee [[churn]].", "tags": ["a"], "refs": ["churn"], "sl_refs": ["orders"]}"##,
        r#"{"key": "arr", "replacements": [{"oldText": "arr", "newText": "ARR", "replaceAll": true}]}"#,
        r#"{"path": "a.md", "startLine": 1, "endLine": 2}"#,
        r#"{"connectionId": "warehouse", "sourceName": "orders", "source": {"name": "orders", "columns": [{"name": "id", "type": "number"}], "grain": ["id"], "table": "orders"}}"#,
        r#"{"connectionId": "warehouse", "sourceName": "orders", "delete": true, "yaml_edits": [{"oldText": "id", "newText": "key"}]}"#,
        r#"{"query": "arr", "limit": 3, "name": "dbt_ingest", "target": "orders", "table": "orders"}"#,
    ];
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|text| text.as_bytes().to_vec()).collect();
    let fixture = ToolFixture::unlocked();
    let next = std::cell::Cell::new(0);
    ingestdeck_test_support::fuzz::fuzz("tool arguments", &corpus, |bytes| {
        let Ok(arguments) = serde_json::from_slice::<Value>(bytes) else {
            return;
        };
        let tool = &TOOLS[next.get() % TOOLS.len()];
        next.set(next.get() + 1);
        let reply = fixture.call(tool.name, arguments);
        assert!(!reply.markdown.is_empty(), "{}", tool.name);
    });
    let names: Vec<_> = fs::read_dir(fixture.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| [".ktx", "source", "wiki"].iter().any(|known| name == known)),
        "{names:?}"
    );
}
