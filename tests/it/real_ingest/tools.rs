//! The tools of the semantic layer and of databases, called by the real CLI.

use serde_json::{Value, json};

use super::test_project::{TestProject, UNITS, asked_by, good_turns, ktx};
use crate::support::api::{ApiTurn, tool};

#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn cli_reads_concurrently_and_writes_a_source() {
    let source = json!({"name": "crates", "table": "crates", "grain": ["id"], "columns": [{"name": "id", "type": "number"}]});
    let write = json!({"connectionId": "stock", "sourceName": "crates", "source": source, "rawPaths": ["crates.md"]});
    let deck = TestProject::new([asked_by(
        "docs-crates",
        [
            ApiTurn::blocks([
                ktx("read_raw_file", json!({"path": "crates.md"})),
                ktx("discover_data", json!({"query": "crate"})),
                ktx("sl_discover", json!({})),
                ktx(
                    "entity_details",
                    json!({"connectionId": "stock", "targets": [{"display": "crates"}]}),
                ),
                ktx(
                    "sql_execution",
                    json!({"connectionId": "stock", "sql": "SELECT id FROM crates"}),
                ),
            ]),
            ApiTurn::blocks([ktx(
                "record_verification_ledger",
                json!({"summary": "Asked the stock."}),
            )]),
            ApiTurn::blocks([ktx("sl_write_source", write)]),
            ApiTurn::blocks([ktx("sl_validate", json!({"connectionId": "stock"}))]),
            ApiTurn::answer("Crates are a source now."),
        ],
    )]);
    let settings = deck.read("ktx.yaml");
    let more = "connections:\n  stock:\n    driver: sqlite\n    path: stock.db\n";
    std::fs::write(
        deck.home.project().join("ktx.yaml"),
        settings.replace("connections:\n", more),
    )
    .unwrap();
    let database = rusqlite::Connection::open(deck.home.project().join("stock.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE crates (id INTEGER PRIMARY KEY); INSERT INTO crates VALUES (7)",
        )
        .unwrap();

    let run = deck.run("docs-crates", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    assert_eq!(
        deck.read("semantic-layer/stock/crates.yaml").lines().next(),
        Some("name: crates")
    );
    let asked = deck.api.requests();
    let named = asked[0].tool_names();
    for tool in [
        "sl_discover",
        "sl_write_source",
        "discover_data",
        "entity_details",
        "sql_execution",
    ] {
        assert!(
            named.contains(&format!("mcp__ktx__{tool}")),
            "{tool}: {named:?}"
        );
    }
    let prompt = &asked.last().unwrap().body;
    assert!(
        prompt.contains("| 7 |") && prompt.contains("All sources are valid."),
        "{prompt}"
    );
    let job = run.events()[0]["event"]["job"].as_str().unwrap().to_owned();
    let transcript = deck.read(&format!(".ktx/ingest-transcripts/{job}/docs-crates.jsonl"));
    let lines: Vec<Value> = transcript
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 8, "{transcript}");
    assert!(
        lines.iter().all(|line| line.get("error").is_none()),
        "{transcript}"
    );
}

/// The project has no database, so the unit has no tool that looks into one.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn call_of_an_absent_tool_of_ours_does_not_fail_its_unit() {
    let unit = |first: Value| {
        let turns = [ApiTurn::blocks([first])]
            .into_iter()
            .chain(good_turns("docs-crates", "crates.md"));
        TestProject::new([asked_by("docs-crates", turns)])
    };
    let absent = || {
        ktx(
            "sql_execution",
            json!({"connectionId": "stock", "sql": "SELECT 1"}),
        )
    };
    let deck = unit(absent());
    let run = deck.run("docs-crates", &[]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let offered = deck.api.requests()[0].tool_names();
    assert!(
        !offered.contains(&"mcp__ktx__sql_execution".to_owned()),
        "{offered:?}"
    );
    let replies: Vec<String> = deck
        .entries()
        .iter()
        .map(|entry| entry["out"]["tool_use_result"].to_string())
        .collect();
    assert!(
        replies
            .iter()
            .any(|reply| reply.contains("No such tool available")),
        "{replies:?}"
    );

    let deck = unit(tool("Bash", json!({"command": "true"})));
    let run = deck.run("docs-crates", &[]);
    assert_eq!(
        run.code,
        Some(100),
        "a tool that none of our texts names fails the unit: {run:#?}"
    );
}

/// What the model's cache can reuse: tools and system prompt are equal in every byte.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn units_of_an_adapter_send_the_same_prefix() {
    let units = [("docs-crates", "crates.md"), ("docs-juice", "juice.md")];
    let deck = TestProject::new(units.map(|(unit, file)| asked_by(unit, good_turns(unit, file))));
    let run = deck.play(&[
        "run",
        "--ui",
        "json",
        "--only",
        "docs-crates",
        "--only",
        "docs-juice",
    ]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let requests = deck.api.requests();
    let [first, second] = units.map(|(unit, _)| {
        let heading = format!("## WorkUnit: {unit}");
        let bodies = requests.iter().map(|request| request.json());
        let mut of_unit = bodies.filter(|body| body["messages"].to_string().contains(&heading));
        of_unit.next().unwrap()
    });
    assert_eq!(first["system"], second["system"]);
    assert_eq!(first["tools"], second["tools"]);
    let [system, tools, rest] = [&second["system"], &second["tools"], &second["messages"][0]]
        .map(|part| part.to_string().len());
    let share = (system + tools) * 100 / (system + tools + rest);
    let figures = format!("{system} bytes of system prompt, {tools} of tools, {rest} of the unit");
    eprintln!("{figures}: {share} % are shared");
    assert!(share >= 90, "{figures}");
}

/// A token counts as four bytes of a request, cached or not.
#[test]
#[ignore = "needs INGESTDECK_TEST_CLAUDE"]
fn estimates_of_the_plan_hold_what_units_send() {
    // Hasty, usual and careful agents.
    let turns = |place: usize, unit: &str, file: &str| -> Vec<ApiTurn> {
        let [read, ledger, page, end] = good_turns(unit, file);
        let search = |tool: &str| ApiTurn::blocks([ktx(tool, json!({"query": "crates"}))]);
        let searches = [
            search("wiki_search"),
            search("sl_discover"),
            search("discover_data"),
        ];
        match place % 3 {
            0 => vec![read, ledger, page, end],
            1 => [read]
                .into_iter()
                .chain(searches)
                .chain([ledger, page, end])
                .collect(),
            _ => searches
                .into_iter()
                .chain([read])
                .chain([search("wiki_search"), ledger, page, end])
                .collect(),
        }
    };
    let routes = UNITS.iter().enumerate();
    let routes = routes.map(|(place, (unit, file))| asked_by(unit, turns(place, unit, file)));
    let deck = TestProject::new(routes.collect::<Vec<_>>());
    let planned = deck.play(&["plan", "--ui", "json"]);
    let run = deck.play(&["run", "--ui", "json"]);
    assert_eq!(run.code, Some(0), "{run:#?}");
    let requests = deck.api.requests();
    let sent = |unit: &str| -> u64 {
        let heading = format!("## WorkUnit: {unit}\\n");
        let of_unit = requests
            .iter()
            .filter(|request| request.body.contains(&heading));
        let bytes = of_unit.map(|request| {
            let body = request.json();
            ["system", "tools", "messages"]
                .map(|part| body[part].to_string().len())
                .iter()
                .sum::<usize>()
        });
        bytes.sum::<usize>() as u64 / 4
    };
    let estimates = planned.stdout.lines().filter_map(|line| {
        let unit: Value = serde_json::from_str(line).unwrap();
        let range = unit["estimate"]["inputTokens"].as_object()?;
        let [low, high] = ["low", "high"].map(|end| range[end].as_u64().unwrap());
        assert!(high <= 4 * low, "{line}");
        Some((unit["unit"].as_str()?.to_owned(), low, high))
    });
    let found: Vec<(String, u64, u64, u64)> = estimates
        .map(|(unit, low, high)| (unit.clone(), low, sent(&unit), high))
        .collect();
    let held = found
        .iter()
        .filter(|(_, low, sent, high)| (low..=high).contains(&sent))
        .count();
    assert_eq!(found.len(), UNITS.len());
    assert!(held * 10 >= found.len() * 8, "{found:?}");
}
