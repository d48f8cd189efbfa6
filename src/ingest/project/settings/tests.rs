//! Documents in KTX's format with every documented key.

use super::*;
use crate::yaml;
use ingestdeck_core::units::schedule::FailureMode;

fn read(text: &str) -> Result<(ProjectSettings, Vec<Problem>), Problem> {
    let (settings, warnings) = parse_settings(&yaml::parse_tree(text).unwrap());
    settings.map(|settings| (settings, warnings))
}

fn warnings(text: &str) -> Vec<String> {
    diagnostic::to_lines(&read(text).unwrap().1)
}

fn fault(text: &str) -> String {
    let fault = read(text).unwrap_err().to_string();
    fault.strip_prefix("line ").unwrap().to_owned()
}

/// Every key that KTX documents outside of the connections.
const COMPLETE: &str = r#"
setup: {database_connection_ids: [warehouse]}
storage:
  state: sqlite
  search: sqlite-fts5
  git: {author: "Ada <ada@example.com>"}
llm:
  provider:
    backend: claude-code
    vertex: {project: p, location: us-east5}
    anthropic: {api_key: "env:ANTHROPIC_API_KEY", base_url: "https://proxy.example.com"}
    gateway: {api_key: "file:/run/secrets/gateway", base_url: "https://gateway.example.com"}
  agentRunner: {backend: claude-code}
  models:
    default: sonnet
    triage: haiku
    candidateExtraction: claude-sonnet-4-6
    curator: opus
    reconcile: claude-opus-4-20250514
    repair: haiku
ingest:
  adapters: [dbt, lookml, historic-sql]
  embeddings:
    backend: openai
    model: text-embedding-3-small
    dimensions: 1536
    batchSize: 64
    openai: {api_key: "env:OPENAI_API_KEY"}
    sentenceTransformers: {base_url: "", pathPrefix: /v1}
  workUnits: {stepBudget: 40, maxConcurrency: 6, failureMode: abort}
  rateLimit:
    enabled: true
    throttleThreshold: 1
    minConcurrencyUnderPressure: 2
    maxWaitMs: 600000
    retry: {maxAttempts: 6, baseDelayMs: 1000, maxDelayMs: 60000, jitter: false}
  profile: json
agent:
  run_research: {enabled: true, max_iterations: 0, default_toolset: [wiki_search]}
scan:
  enrichment: {mode: llm, embeddings: {backend: none, dimensions: 8}}
  relationships:
    enabled: true
    llmProposals: false
    validationRequiredForManifest: true
    acceptThreshold: 0.85
    reviewThreshold: 0.55
    maxLlmTablesPerBatch: 40
    maxCandidatesPerColumn: 25
    profileSampleRows: 10000
    profileConcurrency: 4
    validationConcurrency: 4
    validationBudget: all
    detectionBudgetMs: 600000
"#;

const CONNECTIONS: &str = r#"
connections:
  warehouse: {driver: postgres, url: "env:DATABASE_URL", enabled_tables: [public.orders], query_timeout_ms: 500, context: {queryHistory: {enabled: true}}}
  lake: {driver: bigquery, dataset_id: analytics, credentials_json: "file:/run/secrets/key.json"}
  local: {driver: sqlite, path: demo.db}
  events: {driver: mongodb, url: "env:MONGO", databases: [app], sample_size: 10, order_by: at}
  dbt: {driver: dbt, repo_url: "https://example.com/x.git", branch: main, path: "", auth_token_ref: "env:TOKEN", profiles_path: p, target: prod, project_name: x}
  looks: {driver: lookml, repoUrl: "file:../looks", branch: main, mappings: {expectedLookerConnectionName: bq}}
  flow: {driver: metricflow, metricflow: {repoUrl: "file:flow", branch: main, path: models}}
  pages: {driver: notion, auth_token_ref: "file:/run/secrets/notion", crawl_mode: selected_roots, root_page_ids: [a], max_pages_per_run: 10, max_knowledge_creates_per_run: 0}
  charts: {driver: metabase, api_url: "https://m.example.com", api_key_ref: "env:MB", mappings: {databaseMappings: {"1": warehouse}}}
  explores: {driver: looker, base_url: "https://l.example.com", client_id: id, client_secret_ref: "env:LS"}
  books: {driver: sigma, api_url: "https://s.example.com", client_id: id, connectionMappings: {a: warehouse}}
  drive: {driver: gdrive, service_account_key_ref: "file:/key.json", folder_id: f, recursive: true}
"#;

#[test]
fn every_documented_key_is_known() {
    assert_eq!(warnings(COMPLETE), [] as [&str; 0]);
    assert_eq!(warnings(CONNECTIONS), [] as [&str; 0]);
    let (settings, _) = read(&format!("{COMPLETE}{CONNECTIONS}")).unwrap();
    assert_eq!(settings.connections.len(), 12);
    assert_eq!(settings.rate_limit.throttle_threshold, 1.0);
    assert_eq!(settings.work_units.failure_mode, FailureMode::Abort);
}

#[test]
fn role_without_model_uses_the_default() {
    let (settings, _) = read(COMPLETE).unwrap();
    assert_eq!(
        settings
            .model_with_role(ModelRole::CandidateExtraction)
            .unwrap()
            .1,
        "claude-sonnet-4-6"
    );
    assert_eq!(
        settings.model_with_role(ModelRole::Reconcile).unwrap().1,
        "claude-opus-4-20250514"
    );
    let (settings, _) = read("llm:\n  models:\n    default: '  my/gateway-model '\n").unwrap();
    assert_eq!(
        settings.model_with_role(ModelRole::Repair),
        Some((ModelRole::Default, "my/gateway-model"))
    );
    assert_eq!(settings.key_lines["llm.models.default"], 3);
    assert_eq!(
        ProjectSettings::default().model_with_role(ModelRole::Repair),
        None
    );
}

#[test]
fn unknown_key_warning_names_the_nearest_key() {
    let text = "workUnits: {}\nscan: {relationships: {acceptTreshold: 1, zzz: 1}}\nstorage: {git: {autor: x}}\n\
        agent: {run_research: {maxIterations: 3}}\nconnections:\n  n: {driver: notion, crawlmode: x, anything: 1}\n  p: {driver: postgres, host: h, port: 1, user: u}\n\
        llm: {baseDelayMs: 1}\n";
    insta::assert_snapshot!(warnings(text).join("\n"));
}

#[test]
fn keys_of_ktx_in_connections_are_no_warnings() {
    let text = "connections:\n  d: {driver: dbt, repo_url: x, branch: main, path: a, auth_token: x, profiles_path: p, target: t, project_name: n}\n  \
        l: {driver: lookml, repoUrl: x, auth_token: x, auth_token_ref: y, mappings: {}}\n  p: {driver: postgres, ssl: {}, whatever: 1}\n";
    assert_eq!(warnings(text), [] as [&str; 0]);
    let text = "connections: {d: {driver: dbt, source_dir: x, filter: [a], tarjet: y}}";
    assert_eq!(
        warnings(text),
        [
            "line 1: unknown key `connections.d.filter` is ignored",
            "line 1: unknown key `connections.d.tarjet` is ignored; did you mean `target`?",
        ]
    );
}

#[test]
fn every_wrong_type_is_a_fault_with_its_line() {
    let cases = [
        "setup: {database_connection_ids: warehouse}",
        "storage: {git: {author: 3}}",
        "storage: {state: [a]}",
        "llm: {agentRunner: {backend: claude}}",
        "llm: {models: {triage: ''}}",
        "ingest: {profile: yes please}",
        "ingest: {embeddings: {dimensions: 0}}",
        "ingest: {rateLimit: {enabled: 'no'}}",
        "ingest: {rateLimit: {maxWaitMs: 0}}",
        "ingest: {rateLimit: {retry: 6}}",
        "ingest: {adapters: [dbt, 3]}",
        "scan: {relationships: {validationBudget: some}}",
        "scan: {relationships: {acceptThreshold: 2}}",
        "connections: {n: {driver: notion, max_pages_per_run: many}}",
        "connections: {n: {driver: [notion]}}",
    ];
    insta::assert_snapshot!(cases.map(fault).join("\n"));
}

#[test]
fn every_fault_is_listed_and_hides_no_warning() {
    let text = "connections:\n  a b: {driver: docs}\n  c: dbt\nllm:\n  modles: {}\n  promptCaching: {}\n\
        ingest:\n  adapters: [docks]\n  workUnits: {stepBudget: many, maxConcurency: 2}\n";
    let (settings, warnings) = parse_settings(&yaml::parse_tree(text).unwrap());
    insta::assert_snapshot!(settings.unwrap_err().to_string().replace("; line", "\nline"), @r"
    line 2: invalid connection id `a b`; use letters, digits, `-` and `_`, starting with a letter or digit
    line 3: connections.c must be a map of keys, not text; as in `c: {driver: docs, source_dir: PATH}`
    line 9: ingest.workUnits.stepBudget must be a whole number, 1 or more, not `many`
    ");
    insta::assert_snapshot!(diagnostic::to_lines(&warnings).join("\n"), @r"
    line 5: unknown key `llm.modles` is ignored; did you mean `models`?
    line 9: unknown key `ingest.workUnits.maxConcurency` is ignored; did you mean `maxConcurrency`?
    line 6: llm.promptCaching has no effect: Claude Code decides what it caches
    line 8: unknown adapter `docks` in ingest.adapters; did you mean `docs`?
    ");
}

#[test]
fn list_of_faults_is_limited() {
    let many: String = (0..5_000).map(|n| format!("  a{n}: 3\n")).collect();
    let fault = read(&format!("connections:\n{many}"))
        .unwrap_err()
        .to_string();
    assert_eq!(fault.matches("line ").count(), MAX_FAULTS);
    assert!(fault.ends_with("; 4980 more errors"), "{fault}");
}

#[test]
fn ktx_keys_without_effect_are_warnings() {
    let said = warnings("storage: {state: duckdb}\nllm: {promptCaching: {systemTtl: 1h}}\n");
    assert_eq!(
        said,
        [
            "line 1: storage.state is `duckdb`, which has no effect here",
            "line 2: llm.promptCaching has no effect: Claude Code decides what it caches",
        ]
    );
}

#[test]
fn secrets_stay_out_of_every_message() {
    let cases = [
        "connections: 'postgres://u:hunter2@h/db'",
        "connections: {w: 'postgres://u:hunter2@h/db'}",
        "connections: {w: {driver: postgres, query_timeout_ms: hunter2}}",
        "connections: {w: {driver: postgres, enabled_tables: hunter2}}",
        "llm: {provider: {anthropic: hunter2}}",
        "llm: {provider: {gateway: {api_key: [hunter2]}}}",
    ];
    for text in cases {
        let said = fault(text);
        assert!(!said.contains("hunter2"), "{said}");
    }
    assert_eq!(
        warnings("connections: {w: {driver: postgres, ur1: 'env:HUNTER2'}}").join(""),
        "line 1: unknown key `connections.w.ur1` is ignored; did you mean `url`?"
    );
}

#[test]
fn set_keys_have_their_line() {
    let (settings, _) =
        read("llm:\n  models: {default: sonnet}\ningest:\n  workUnits:\n    stepBudget: 3\n    maxConcurrency:\n")
            .unwrap();
    let lines: Vec<_> = settings
        .key_lines
        .iter()
        .map(|(key, line)| (key.as_str(), *line))
        .collect();
    assert_eq!(
        lines,
        [
            ("ingest.workUnits.stepBudget", 5),
            ("llm.models.default", 2)
        ]
    );
}

#[test]
fn empty_section_counts_as_absent() {
    assert_eq!(
        read("llm:\ningest:\n  workUnits:\nconnections:\nscan:\n").unwrap(),
        (ProjectSettings::default(), Vec::new())
    );
}

#[test]
fn connections_of_both_sections_are_read() {
    let text = "ingestdeck:\n  connections:\n    b: {driver: docs, source_dir: b}\nconnections:\n  a: {driver: dbt}\n";
    let (settings, warnings) = read(text).unwrap();
    let ids: Vec<_> = settings
        .connections
        .iter()
        .map(|of| of.id.as_str())
        .collect();
    assert_eq!((ids, warnings), (vec!["a", "b"], Vec::new()));
    assert_eq!(settings.key_lines, BTreeMap::new());
    let alone = read("ingestdeck:\n  connections:\n    b: {driver: docs}\n")
        .unwrap()
        .0;
    assert_eq!(alone.connections[0].driver.as_deref(), Some("docs"));
    assert_eq!(read("ingestdeck:\n").unwrap().0, ProjectSettings::default());
}

#[test]
fn id_in_both_sections_is_a_fault_with_both_lines() {
    let text = "connections:\n  a: {driver: docs}\n  b: {driver: docs}\ningestdeck:\n  connections:\n    c: {driver: docs}\n    b: {driver: docs}\n";
    assert_eq!(fault(text), "7: connection `b` is also on line 3");
}

#[test]
fn checks_of_connections_hold_in_both_sections() {
    let faults = [
        "ingestdeck: x",
        "ingestdeck: {connections: 3}",
        "ingestdeck: {connections: {'a b': {driver: docs}}}",
        "ingestdeck: {connections: {a: docs}}",
        "ingestdeck: {connections: {a: {driver: docs, url: [hunter2], include: hunter2}}}",
        "ingestdeck: {connections: {a: {driver: notion, auth_token: {hunter2: 1}}}}",
    ];
    let faults = faults.map(fault);
    let hints = warnings(
        "ingestdeck: {conections: {}, connections: {a: {driver: docs, sourcedir: hunter2}}}\ningest: {connections: {}}\n",
    );
    let all = faults
        .into_iter()
        .chain(hints)
        .collect::<Vec<_>>()
        .join("\n");
    assert!(!all.contains("hunter2"), "{all}");
    insta::assert_snapshot!(all, @r"
    1: ingestdeck must be a map of keys, not text
    1: ingestdeck.connections must be a map of keys, not a number
    1: invalid connection id `a b`
    1: ingestdeck.connections.a must be a map of keys, not text
    1: ingestdeck.connections.a.url must be text, not a list; line 1: ingestdeck.connections.a.include must be a list of names, not text
    1: ingestdeck.connections.a.auth_token must be text, not a map of keys
    line 1: unknown key `ingestdeck.conections` is ignored; did you mean `connections`?
    line 1: unknown key `ingestdeck.connections.a.sourcedir` is ignored; did you mean `source_dir`?
    line 2: unknown key `ingest.connections` is ignored; did you mean `connections`?
    ");
}
