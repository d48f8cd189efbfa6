//! Sources that KTX could not load or would refuse to edit.

use super::*;

/// Sources that KTX's loader drops, according to a port of it.
#[test]
fn sources_that_ktx_cannot_load_are_not_written() {
    let fixture = joined("name: customers\n");
    let overlay = |more: Value| {
        let mut source =
            json!({"name": "customers", "measures": [{"name": "n", "expr": "count(*)"}]});
        source
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        on("customers", json!({"source": source}))
    };
    let column = |more: Value| {
        let mut column = json!({"name": "x", "type": "string", "expr": "upper(NAME)"});
        column
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        overlay(json!({"columns": [column]}))
    };
    let id = |more: Value| {
        let mut column = json!({"name": "id", "type": "number"});
        column
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        table("s", json!({"columns": [column]}))
    };
    let bare = json!({"columns": [{"name": "ID"}, {"name": "extra"}], "grain": ["ID"]});
    let inheriting = |from: &str| {
        let mut more = bare.clone();
        more["inherits_columns_from"] = from.into();
        table("s", more)
    };
    let usage =
        json!({"narrative": "n", "frequencyTier": "daily", "commonFilters": [], "commonJoins": []});
    let cases = [
        column(json!({"name": "Name"})),
        column(json!({"natural_granularity": "day"})),
        column(json!({"enum_values": {"dbt": ["a"]}})),
        overlay(
            json!({"exclude_columns": ["NAME"], "column_overrides": [{"name": "NAME", "role": "default"}]}),
        ),
        overlay(json!({"default_time_dimension": {"dbt": 5}})),
        overlay(json!({"default_time_dimension": ["x"]})),
        overlay(json!({"table": ""})),
        overlay(json!({"grain": []})),
        overlay(json!({"column_overrides": [{"name": "NAME", "enum_values": {"dbt": [1, 2]}}]})),
        overlay(json!({"usage": {"x": 1}})),
        overlay(json!({"usage": usage})),
        overlay(json!({"exclude_columns": ["ID", "NAME"]})),
        overlay(json!({"disable_joins": ["regions"]})),
        id(json!({"enum_values": {"dbt": [1]}})),
        id(json!({"constraints": {"dbt": {"not_null": "yes"}}})),
        id(json!({"tests": {"dbt": [{"name": "unique"}]}})),
        table("s", json!({"tags": {"dbt": "finance"}})),
        table("s", json!({"tags": {"dbt": [1]}})),
        table("s", json!({"freshness": {"dbt": {"loaded_at_field": 5}}})),
        table("s", json!({"sql": " "})),
        inheriting("nowhere"),
        inheriting("PUBLIC.customers"),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|arguments| {
            let reply = fixture.call("sl_write_source", arguments);
            assert!(reply.is_error, "{}", reply.markdown);
            reply
                .markdown
                .replace("Correct the arguments and call it again.", "")
                .split(". Its fields")
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    insta::assert_snapshot!(texts.join("\n"));
    assert!(fixture.tools.context.workspace.changes().is_empty());
    let usage = json!({"narrative": "n", "frequencyTier": "high", "commonFilters": [], "commonJoins": [], "more": 1});
    fixture.text(
        "sl_write_source",
        overlay(json!({"usage": usage, "column_overrides": [{"name": "name", "role": "default"}]})),
    );
    fixture.text(
        "sl_write_source",
        table(
            "s",
            json!({"default_time_dimension": {"x": 1}, "freshness": {"dbt": {"raw": [1]}}}),
        ),
    );
}

#[test]
fn disabled_joins_are_on_clauses_of_the_scan() {
    let fixture = joined("name: customers\n");
    let write = |clause: &str| {
        let source = json!({"name": "customers", "disable_joins": [clause]});
        fixture.call(
            "sl_write_source",
            on("customers", json!({"source": source})),
        )
    };
    let refused = write("regions").markdown;
    assert!(
        refused.contains("`customers.ID = regions.region_id`"),
        "{refused}"
    );
    let saved = write("customers.ID  =\n regions.region_id").markdown;
    assert!(saved.contains("saved successfully"), "{saved}");
    let found = fixture.text("sl_discover", json!({"sourceName": "customers"}));
    assert!(found.contains("Joins: 0"), "{found}");
}

#[test]
fn columns_that_the_scan_lacks_are_not_written() {
    let fixture = joined("name: customers\n");
    let source = |name: &str, more: Value| {
        let mut arguments = table(name, more);
        arguments["source"]["table"] = "customers".into();
        fixture.call("sl_write_source", arguments).markdown
    };
    let texts = [
        source(
            "s",
            json!({"columns": [{"name": "id", "type": "number"}, {"name": "ghost", "type": "string"}]}),
        ),
        source(
            "s",
            json!({"measures": [{"name": "n", "expr": "sum(amount)", "filter": "nmae = 'x'"}, {"name": "m", "expr": "n + count(s.gone)"}]}),
        ),
        source(
            "s",
            json!({"segments": [{"name": "n", "expr": "NAME = 'x'"}]}),
        ),
        source(
            "s",
            json!({"joins": [{"to": "regions", "on": "s.region = regions.id", "relationship": "many_to_one"}]}),
        ),
        source(
            "s",
            json!({"columns": [{"name": "id", "type": "number"}, {"name": "twice", "type": "number", "expr": "ID * factor"}]}),
        ),
    ];
    insta::assert_snapshot!(texts.join("\n"));
    let good = json!({"measures": [{"name": "n", "expr": "count(distinct case when ID > 1 then s.id end)"}],
        "joins": [{"to": "regions", "on": "s.id = regions.region_id", "relationship": "many_to_one"}]});
    assert!(source("s", good).contains("saved successfully"));
    assert!(
        !fixture
            .call(
                "sl_write_source",
                table(
                    "unscanned",
                    json!({"measures": [{"name": "n", "expr": "sum(x)"}]})
                )
            )
            .is_error
    );
}

#[test]
fn edit_is_judged_by_what_it_makes_worse() {
    let base = "name: customers\nmeasures:\n  - name: total\n    expr: count(*)\n";
    let standalone = "name: customers\ntable: public.customers\ngrain: [ID]\ncolumns: [{name: ID, type: number}]\n\
        joins: []\nmeasures:\n  - name: total\n    expr: count(*)\n";
    let edit = |fixture: &ToolFixture, new: &str| {
        let edits = json!({"yaml_edits": [{"oldText": "name: total", "newText": new}]});
        fixture.call("sl_edit_source", on("customers", edits))
    };
    for accepted in [
        format!("{base}column_overrides:\n  - name: name\n    role: default\n"),
        format!("{base}exclude_columns: [GONE]\n"),
        format!("{base}disable_joins: [regions]\n"),
        format!("{base}    note: x\n"),
        standalone.to_owned(),
    ] {
        let fixture = joined(&accepted);
        assert!(!edit(&fixture, "name: all").is_error, "{accepted}");
        let report = crate::workspace_check::check_changes(
            &fixture.tools.context.workspace,
            &[],
            &fixture.tools.context.scope,
        );
        assert_eq!(
            (&report.dangling_links[..], &report.invalid[..]),
            (&[][..], &[][..]),
            "{accepted}"
        );
        let worse = fixture.call(
            "sl_edit_source",
            on(
                "customers",
                json!({"yaml_edits": [{"oldText": "count(*)", "newText": "sum(x)"}]}),
            ),
        );
        assert!(
            worse.is_error && worse.markdown.contains("1 error(s)"),
            "{accepted}: {}",
            worse.markdown
        );
    }
    let broken = joined(&format!("{base}default_time_dimension: {{dbt: 5}}\n"));
    assert!(edit(&broken, "name: all").is_error, "KTX cannot load it");
    let fixture = joined(
        "name: customers\ntable:\nmeasures:\n  - name: total\n    expr: count(*)\n    filter:\n",
    );
    assert!(
        edit(&fixture, "name: all")
            .markdown
            .contains("`measures[0].filter` is empty; leave it out")
    );
}
