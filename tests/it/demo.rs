//! The bundled demo: its script matches its project, and it takes at most half a minute.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use ingestdeck_agent::scripted::{
    ScriptedAgentOptions,
    args::{ScriptedAgentArgs, ScriptedCommand},
    play_script,
    script::{AgentScript, ScriptStep, ScriptedCall},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    sync::mpsc,
    time::Instant,
};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo")
}

fn script() -> AgentScript {
    let text = std::fs::read_to_string(demo().join("script.toml")).expect("the script");
    AgentScript::parse(&text).expect("a valid script")
}

/// Units in plan order, each with the directory of its source and its raw files.
fn units() -> Vec<(String, PathBuf, Vec<String>)> {
    let project = demo().join("project");
    let dbt = project.join("sources/dbt");
    let raw = [
        "dbt_project.yml",
        "models/marts/schema.yml",
        "models/staging/sources.yml",
    ];
    let mut units = vec![("dbt-all".to_owned(), dbt, raw.map(str::to_owned).to_vec())];
    let handbook = project.join("sources/handbook");
    let mut files: Vec<String> = std::fs::read_dir(&handbook)
        .expect("the handbook")
        .map(|entry| {
            entry
                .expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    files.sort();
    for file in files {
        let key = format!("docs-{}", file.strip_suffix(".md").expect("Markdown"));
        units.push((key, handbook.clone(), vec![file]));
    }
    units
}

fn calls(steps: &[ScriptStep]) -> Vec<&ScriptedCall> {
    let calls = steps.iter().flat_map(|step| match step {
        ScriptStep::Call(call) => vec![call],
        ScriptStep::Calls(calls) => calls.iter().collect(),
        _ => Vec::new(),
    });
    calls.collect()
}

#[test]
fn demo_calls_match_the_demo_project() {
    let script = script();
    let mut pages = BTreeMap::new();
    for (unit, folder, raw_files) in units() {
        let attempts = if unit == "docs-bean-contracts" { 2 } else { 1 };
        let part = script
            .find_part(&unit, attempts, "")
            .unwrap_or_else(|| panic!("no part for {unit}"));
        let mut unlocked = false;
        for call in calls(&part.steps) {
            let text = |key: &str| {
                call.arguments
                    .get(key)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            match call.tool.as_str() {
                "read_raw_file" | "read_raw_span" => {
                    assert!(
                        raw_files.contains(&text("path").to_owned()),
                        "{unit} reads {}",
                        text("path")
                    );
                    let lines = std::fs::read_to_string(folder.join(text("path")))
                        .expect("a raw file")
                        .lines()
                        .count();
                    let end = call
                        .arguments
                        .get("endLine")
                        .and_then(Value::as_u64)
                        .unwrap_or(1);
                    assert!(end as usize <= lines, "{unit} reads line {end} of {lines}");
                }
                "record_verification_ledger" => unlocked = true,
                "wiki_write" => {
                    assert!(unlocked, "{unit} writes before its ledger");
                    let key = text("key");
                    assert!(
                        key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
                        "{key} is not flat"
                    );
                    assert!(
                        !text("summary").is_empty() && text("summary").chars().count() <= 200,
                        "{key}"
                    );
                    assert!(text("content").chars().count() <= 4_000, "{key}");
                    let owner = pages
                        .insert(key.to_owned(), unit.clone())
                        .unwrap_or_else(|| unit.clone());
                    assert_eq!(owner, unit, "two units write {key}");
                    for reference in call
                        .arguments
                        .get("refs")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                    {
                        let page = format!(
                            "project/wiki/global/{}.md",
                            reference.as_str().unwrap_or_default()
                        );
                        assert!(demo().join(&page).is_file(), "{key} refers to {page}");
                    }
                    for raw in call
                        .arguments
                        .get("rawPaths")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                    {
                        assert!(
                            raw_files.iter().any(|file| raw == file),
                            "{key} rests on {raw}"
                        );
                    }
                }
                "wiki_read" | "wiki_search" | "wiki_list_tags" | "load_skill" => {}
                other => panic!("{unit} calls {other}"),
            }
        }
    }
    assert_eq!(pages.len(), 9);
    assert!(units().len() == 8, "{} units", units().len());
}

/// Plays an attempt against a host whose tools accept every call. Returns its duration and its lines.
async fn play(unit: &str, attempt: u32) -> (Duration, Vec<Value>) {
    let tools = [
        "read_raw_file",
        "read_raw_span",
        "wiki_read",
        "wiki_search",
        "wiki_list_tags",
        "wiki_write",
        "record_verification_ledger",
        "load_skill",
    ];
    let allowed: Vec<String> = tools
        .iter()
        .map(|tool| format!("mcp__ktx__{tool}"))
        .collect();
    let words = format!(
        "--script x --attempt {attempt} -p --input-format stream-json --output-format stream-json --verbose \
         --include-partial-messages --permission-mode dontAsk --allowedTools {} --max-turns 12",
        allowed.join(",")
    );
    let args =
        ScriptedAgentArgs::parse(words.split_whitespace().map(str::to_owned)).expect("arguments");
    let ScriptedCommand::Run(run) = args.request else {
        panic!("not a run")
    };
    let casting = ScriptedAgentOptions {
        attempt,
        unit: None,
        speed: 1.0,
        run: *run,
    };
    let (mut stdin, its_stdin) = tokio::io::duplex(1 << 16);
    let (its_stdout, stdout) = tokio::io::duplex(1 << 16);
    let (_signals, its_signals) = mpsc::channel(1);
    let started = Instant::now();
    tokio::spawn(play_script(
        script(),
        casting,
        its_stdin,
        its_stdout,
        tokio::io::sink(),
        its_signals,
    ));
    let initialize = json!({"subtype": "initialize", "hooks": {}, "sdkMcpServers": ["ktx"]});
    let prompt = json!({"role": "user", "content": format!("## WorkUnit: {unit}\n")});
    for frame in [
        json!({"type": "control_request", "request_id": "i", "request": initialize}),
        json!({"type": "user", "message": prompt}),
    ] {
        stdin
            .write_all(format!("{frame}\n").as_bytes())
            .await
            .expect("the agent reads");
    }
    let mut lines = BufReader::new(stdout).lines();
    let mut seen = Vec::new();
    while let Some(line) = lines.next_line().await.expect("stdout can be read") {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        let message = &line["request"]["message"];
        let result = match message["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": "2025-11-25"}),
            Some("tools/list") => {
                let tool = |name: &&str| {
                    let reads = name.starts_with("read")
                        || matches!(*name, "wiki_read" | "wiki_search" | "wiki_list_tags");
                    json!({"name": name, "annotations": {"readOnlyHint": reads}})
                };
                json!({"tools": tools.iter().map(tool).collect::<Vec<Value>>()})
            }
            Some("tools/call") => {
                let unknown = message["params"]["arguments"].get("text").is_some();
                json!({"content": [{"type": "text", "text": "as it should be"}], "isError": unknown})
            }
            _ => json!({}),
        };
        if line["type"] == "control_request" {
            let reply =
                json!({"mcp_response": {"jsonrpc": "2.0", "id": message["id"], "result": result}});
            let response =
                json!({"subtype": "success", "request_id": line["request_id"], "response": reply});
            let frame = json!({"type": "control_response", "response": response});
            stdin
                .write_all(format!("{frame}\n").as_bytes())
                .await
                .expect("the agent reads");
        }
        let is_over = line["type"] == "result";
        seen.push(line);
        if is_over {
            return (started.elapsed(), seen);
        }
    }
    panic!("{unit} ended without a result");
}

#[tokio::test(start_paused = true)]
async fn demo_has_every_scene_and_is_short() {
    let mut slots = [Duration::ZERO; 4];
    let mut kinds = Vec::new();
    for (unit, ..) in units() {
        let (took, lines) = play(&unit, 1).await;
        slots.sort();
        slots[0] += took;
        let result = lines.last().expect("a result");
        let failed = lines
            .iter()
            .filter(|line| line["message"]["content"][0]["is_error"] == true)
            .count();
        let ending = result["subtype"].as_str().unwrap_or_default();
        match unit.as_str() {
            "docs-bean-contracts" => assert_eq!((ending, failed), ("success", 2)),
            "docs-metric-changelog" => assert_eq!((ending, failed), ("error_max_turns", 0)),
            _ => assert_eq!((ending, failed), ("success", 0), "{unit}"),
        }
        assert!(
            result["total_cost_usd"]
                .as_f64()
                .is_some_and(|cost| (0.005..0.2).contains(&cost)),
            "{result}"
        );
        kinds.extend(lines.iter().filter_map(|line| {
            Some(
                line["subtype"]
                    .as_str()
                    .or(line["type"].as_str())?
                    .to_owned(),
            )
        }));
    }
    for kind in [
        "api_retry",
        "rate_limit_event",
        "permission_denied",
        "stream_event",
    ] {
        assert!(kinds.iter().any(|seen| seen == kind), "no {kind}");
    }
    let all = slots.iter().max().copied().unwrap_or_default();
    assert!(
        all > Duration::from_secs(12) && all < Duration::from_secs(27),
        "{slots:?}"
    );

    let (_, lines) = play("docs-bean-contracts", 2).await;
    assert!(
        lines
            .iter()
            .all(|line| line["message"]["content"][0]["is_error"] != true),
        "the retry is clean"
    );
}
