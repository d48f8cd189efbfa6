//! The verification ledger compared with the answers of database tools.

use super::{queries::with_shop, *};

/// A fixture with the SQLite connection `shop` that collects what the agent receives.
fn fixture() -> ToolFixture {
    let (mut context, dir) = with_shop();
    context.records.get_mut().received = Some(ReceivedNames::default());
    ToolFixture {
        tools: AttemptTools::new(Arc::new(context), None),
        dir,
    }
}

fn ledger(verified: &[&str]) -> Value {
    json!({"summary": "checked", "verifiedIdentifiers": verified})
}

#[test]
fn ledger_names_what_no_answer_has() {
    let fixture = fixture();
    fixture.call("discover_data", json!({"query": "orders total"}));
    let names = [
        "Orders",
        "orders.total",
        "orders.total",
        "orders.status",
        "customers",
        "all files",
    ];
    let reply = fixture.call("record_verification_ledger", ledger(&names));
    assert!(!reply.is_error && !reply.declined);
    let structured = reply.structured.unwrap();
    assert_eq!(
        structured["unproven"],
        json!(["orders.status", "customers"])
    );
    assert_eq!(structured["success"], json!(true));
    assert!(
        reply
            .markdown
            .contains("verified identifiers: `orders.status`, `customers`."),
        "{}",
        reply.markdown
    );
    // A failed query and the names in it prove nothing.
    let query = json!({"connectionId": "shop", "sql": "SELECT status FROM orders -- customers"});
    fixture.call("sql_execution", query);
    fixture.call("discover_data", json!({"query": "customers"}));
    let reply = fixture.call("record_verification_ledger", ledger(&names));
    assert_eq!(
        reply.structured.unwrap()["unproven"],
        json!(["orders.status"])
    );
}

#[test]
fn long_list_of_unproven_names_is_cut() {
    let fixture = fixture();
    let names: Vec<String> = (0..60).map(|index| format!("t{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let reply = fixture.call("record_verification_ledger", ledger(&names));
    assert!(
        reply.markdown.contains("`t19` and 40 more."),
        "{}",
        reply.markdown
    );
    assert_eq!(
        reply.structured.unwrap()["unproven"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
}

#[test]
fn ledger_is_not_compared_without_a_database() {
    let (mut context, dir) = tool_context();
    context.records.get_mut().received = Some(ReceivedNames::default());
    let tools = AttemptTools::new(Arc::new(context), None);
    let fixture = ToolFixture { tools, dir };
    let reply = fixture.call("record_verification_ledger", ledger(&["orders"]));
    assert!(!reply.markdown.contains("orders"), "{}", reply.markdown);
    assert_eq!(reply.structured.unwrap().get("unproven"), None);
}
