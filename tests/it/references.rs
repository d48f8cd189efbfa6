//! References of wiki pages: every page that a run has saved passes KTX's final gates, and pages that were invalid
//! before the run fail no unit.

use std::{fs, path::Path, process::Command, sync::Arc};

use ingestdeck_core::units::ToolCall;
use ingestdeck_ingest::{
    Project, UnitSelection, WorkUnit,
    attempt::UnitAttempt,
    integrate::{PatchIntegrator, PatchOutcome, UnitPatch},
    job::IngestJob,
    plan,
    prompt::PromptAmendment,
    repository::Repository,
    worktree::Worktrees,
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use crate::support::git::{message, private_worktrees, start_group_guard};

mod oracle;

use oracle::ReferenceOracle;

/// Connections that an ingest of `orbit` writes sources for.
const TARGETS: [&str; 2] = ["orbit", "wh"];

const KEYS: [&str; 6] = ["a", "b", "c", "d-1", "e_2", "Up"];
const SOURCES: [&str; 3] = ["s", "t", "BIG"];
const ENTITIES: [&str; 4] = ["m", "n", "g", "id"];

/// Parts of a body, most of which refer to something.
const PIECES: [&str; 28] = [
    "plain",
    "[[a]]",
    "[[b|the b]]",
    "[[ c ]]",
    "[[d-1]] and [[e_2]]",
    "[[Up]]",
    "[[No Key]]",
    "[[a",
    "[[[b]]",
    "`source:s`",
    "`source: t `",
    "`wh/source:BIG`",
    "`orbit/source:s`",
    "`bi/source:s`",
    "`nowhere/source:s`",
    "`/source:s`",
    "`table:db.s`",
    "`table:\"DB\".[T]`",
    "`wh/table:big`",
    "`table:`",
    "`s.m` and `t.n`",
    "`BIG.id`",
    "`wh/s.g`",
    "`t.m.n`",
    "``s.m``",
    "`models/s.yml`",
    "\n```\n`source:gone` `s.gone`\n```\n",
    "`schema.table`",
];

#[derive(Clone, Debug)]
struct PageText {
    body: Vec<&'static str>,
    refs: Vec<&'static str>,
    sl_refs: Vec<&'static str>,
}

impl PageText {
    fn body(&self) -> String {
        format!("x {}", self.body.join(" "))
    }

    /// The file as a user wrote it.
    fn page(&self) -> String {
        let list = |list: &[&str]| json!(list).to_string();
        let (refs, sl_refs) = (list(&self.refs), list(&self.sl_refs));
        format!(
            "---\nsummary: s\nrefs: {refs}\nsl_refs: {sl_refs}\n---\n\n{}\n",
            self.body()
        )
    }
}

#[derive(Clone, Debug)]
enum PageCall {
    Write(&'static str, PageText),
    /// Changes the text of a page, but not its references.
    Touch(&'static str),
    Remove(&'static str),
    Source(&'static str, &'static str, Vec<&'static str>),
    Drop(&'static str, &'static str),
    Rollback(&'static str),
}

impl PageCall {
    fn named(&self) -> (&'static str, Value) {
        match self {
            Self::Write(key, text) => {
                let (body, refs, sl_refs) = (text.body(), &text.refs, &text.sl_refs);
                (
                    "wiki_write",
                    json!({"key": key, "summary": "s", "content": body, "refs": refs, "sl_refs": sl_refs}),
                )
            }
            Self::Touch(key) => ("wiki_write", json!({"key": key, "summary": "another"})),
            Self::Remove(key) => ("wiki_remove", json!({"key": key})),
            Self::Source(connection, name, entities) => {
                let on = json!({"connectionId": connection, "sourceName": name, "source": source(name, entities)});
                ("sl_write_source", on)
            }
            Self::Drop(connection, name) => (
                "sl_write_source",
                json!({"connectionId": connection, "sourceName": name, "delete": true}),
            ),
            Self::Rollback(name) => ("sl_rollback", json!({"sourceName": name})),
        }
    }
}

/// A source with these parts: `g` is a segment, `id` the column that every source has, the others are measures.
fn source(name: &str, entities: &[&str]) -> Value {
    let has = |entity: &&&str| !["g", "id"].contains(*entity);
    let measures: Vec<Value> = entities
        .iter()
        .filter(has)
        .map(|name| json!({"name": name, "expr": "count(*)"}))
        .collect();
    let segments: Vec<Value> = entities
        .contains(&"g")
        .then(|| json!({"name": "g", "expr": "id > 1"}))
        .into_iter()
        .collect();
    json!({
        "name": name, "table": format!("db.{}", name.to_lowercase()), "grain": ["id"],
        "columns": [{"name": "id", "type": "number"}], "joins": [], "measures": measures, "segments": segments,
    })
}

fn text() -> impl Strategy<Value = PageText> {
    let refs = [&KEYS[..], &["Revenue Policy", "a b"]].concat();
    let sl_refs = vec![
        "s",
        "s.m",
        "s.g",
        "s.id",
        "t",
        "t.n",
        "BIG",
        "BIG.gone",
        "wh/s",
        "orbit/s.m",
        "bi/s",
        "gone",
        "s.",
    ];
    let list = |of: Vec<&'static str>| prop::collection::vec(select(of), 0..3);
    (
        prop::collection::vec(select(PIECES.to_vec()), 0..4),
        list(refs),
        list(sl_refs),
    )
        .prop_map(|(body, refs, sl_refs)| PageText {
            body,
            refs,
            sl_refs,
        })
}

fn entities() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(ENTITIES.to_vec(), 0..=ENTITIES.len())
}

fn call() -> impl Strategy<Value = PageCall> {
    let (key, name, target) = (
        || select(KEYS.to_vec()),
        || select(SOURCES.to_vec()),
        || select(TARGETS.to_vec()),
    );
    prop_oneof![
        5 => (key(), text()).prop_map(|(key, text)| PageCall::Write(key, text)),
        1 => key().prop_map(PageCall::Touch),
        2 => key().prop_map(PageCall::Remove),
        3 => (target(), name(), entities()).prop_map(|(connection, name, entities)| PageCall::Source(connection, name, entities)),
        2 => (target(), name()).prop_map(|(connection, name)| PageCall::Drop(connection, name)),
        1 => name().prop_map(PageCall::Rollback),
    ]
}

/// A project, and the calls of the units of a run.
#[derive(Clone, Debug)]
struct ReferenceCase {
    pages: Vec<(&'static str, PageText)>,
    sources: Vec<(&'static str, &'static str, Vec<&'static str>)>,
    units: Vec<Vec<PageCall>>,
}

fn case() -> impl Strategy<Value = ReferenceCase> {
    let connections = vec!["orbit", "wh", "bi"];
    let sources = (select(connections), select(SOURCES.to_vec()), entities());
    (
        prop::collection::vec((select(KEYS.to_vec()), text()), 0..5),
        prop::collection::vec(sources, 0..4),
        prop::collection::vec(prop::collection::vec(call(), 1..5), 1..4),
    )
        .prop_map(|(pages, sources, units)| ReferenceCase {
            pages,
            sources,
            units,
        })
}

/// The project of a case, planned.
struct ReferenceProject {
    dir: tempfile::TempDir,
    project: Project,
    units: Vec<WorkUnit>,
}

impl ReferenceProject {
    fn new(case: &ReferenceCase) -> Self {
        start_group_guard();
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let settings = "connections:\n  bi: {driver: looker}\n  orbit: {driver: docs, source_dir: docs}\n  wh: {driver: postgres}\n";
        write("ktx.yaml", settings);
        for number in 0..case.units.len() {
            write(&format!("docs/u{number}.md"), "text\n");
        }
        for (key, text) in &case.pages {
            write(&format!("wiki/global/{key}.md"), &text.page());
        }
        for (connection, name, entities) in &case.sources {
            let text = serde_saphyr::to_string(&source(name, entities)).unwrap();
            write(
                &format!("semantic-layer/{connection}/{}.yaml", name.to_lowercase()),
                &text,
            );
        }
        let project = Project::open(dir.path()).unwrap();
        let units = plan(&project, &UnitSelection::default()).unwrap().units;
        assert_eq!(units.len(), case.units.len());
        Self {
            dir,
            project,
            units,
        }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn oracle(&self) -> ReferenceOracle {
        ReferenceOracle::read(self.root())
    }

    /// Executes `calls` as an attempt at a unit. Some of them are declined.
    fn attempt(
        &self,
        number: usize,
        calls: &[PageCall],
        worktrees: &Arc<Worktrees>,
    ) -> UnitAttempt {
        let unit = (number, &self.units[number]);
        let attempt = UnitAttempt::open(
            &self.project,
            unit,
            &job(),
            1,
            PromptAmendment::Unchanged,
            worktrees,
        )
        .unwrap();
        let calls: Vec<_> = calls.iter().map(PageCall::named).collect();
        // The identifiers in the calls are not a subject of these tests.
        let names = calls.iter().map(|(_, arguments)| arguments.to_string());
        let names = names.collect::<String>();
        let ledger = json!({"summary": "read it", "verifiedIdentifiers": [names]});
        let ledger = ("record_verification_ledger", ledger);
        for (name, arguments) in std::iter::once(ledger).chain(calls) {
            attempt.tools().call(&ToolCall {
                name: name.into(),
                arguments,
                tool_use_id: None,
            });
        }
        attempt
    }

    /// A run of a git project. Returns the results of the patches.
    fn run_git(&self, case: &ReferenceCase) -> Vec<PatchOutcome> {
        for args in [
            &["init", "--quiet", "--initial-branch=main"][..],
            &["add", "--all"],
            &["commit", "--quiet", "-m", "one"],
        ] {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=x", "-c", "user.email=x@example.com"])
                .args(args)
                .current_dir(self.root());
            assert!(
                git.env("GIT_CONFIG_GLOBAL", "/dev/null")
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let repository = Repository::find(self.root()).unwrap().unwrap();
        repository.ignore_state_dirs().unwrap();
        let head = repository.check_ready(&[], false).unwrap();
        self.run_in(case, &Worktrees::new(repository, "local-1", &head.commit))
    }

    /// A run of a project without git.
    fn run_without_git(&self, case: &ReferenceCase) -> Vec<PatchOutcome> {
        self.run_in(case, &private_worktrees(self.root()))
    }

    fn run_in(&self, case: &ReferenceCase, trees: &Arc<Worktrees>) -> Vec<PatchOutcome> {
        let mut patches = Vec::new();
        for (number, calls) in case.units.iter().enumerate() {
            let attempt = self.attempt(number, calls, trees);
            if !is_good(&attempt) {
                continue;
            }
            let file = attempt
                .write_patch()
                .unwrap()
                .path
                .map(|path| self.project.root.join(path));
            let unit = self.units[number].planned.unit.clone();
            let targets = self.project.target_ids(Some("orbit"));
            patches.push(UnitPatch {
                unit,
                file,
                source_connections: targets.clone(),
                targets,
            });
        }
        let mut integration =
            PatchIntegrator::open(trees, self.project.target_ids(Some("orbit"))).unwrap();
        let mut results = Vec::new();
        integration
            .integrate_all(&patches, |_, integrated| results.push(integrated.clone()))
            .unwrap();
        integration.save(&message("ingest"), &[]).unwrap();
        results
    }
}

fn is_good(attempt: &UnitAttempt) -> bool {
    let checked = attempt.check();
    checked.dangling_links.is_empty() && checked.invalid.is_empty()
}

fn job() -> IngestJob {
    IngestJob::new("2026-03-17T15:30:01Z".parse().unwrap())
}

/// KTX ingests into the result of a run. Its gates must refuse and repair nothing, except references that were invalid
/// before, in pages that no unit changed.
fn passes_the_gates(
    before: &ReferenceOracle,
    after: &ReferenceOracle,
) -> Result<(), TestCaseError> {
    let wrong = [
        (before.refused(&TARGETS), after.refused(&TARGETS)),
        (before.repaired(&TARGETS), after.repaired(&TARGETS)),
    ];
    for (were, are) in wrong {
        for (key, why) in &are {
            let was_so = were.contains(&(key.clone(), why.clone())) && after.has_same(before, key);
            prop_assert!(was_so, "{key}: {why}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn pages_saved_without_git_pass_the_gates(case in case()) {
        let site = ReferenceProject::new(&case);
        let before = site.oracle();
        site.run_without_git(&case);
        passes_the_gates(&before, &site.oracle())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn committed_pages_pass_the_gates(case in case()) {
        let site = ReferenceProject::new(&case);
        let before = site.oracle();
        site.run_git(&case);
        passes_the_gates(&before, &site.oracle())?;
    }
}

fn says(body: &'static str) -> PageText {
    PageText {
        body: vec![body],
        refs: Vec::new(),
        sl_refs: Vec::new(),
    }
}

/// The gates refuse the references that KTX refuses, so the properties above are not vacuous.
#[test]
fn gates_refuse_dangling_references() {
    let lists = PageText {
        body: vec![],
        refs: vec!["gone-1", "Revenue Policy", "UP"],
        sl_refs: vec!["gone", "s.m", "s.id"],
    };
    let pages = vec![
        ("a", says("[[missing-page]] [[No Key]]")),
        (
            "b",
            says("`source:x` `table:x` `s.nomeasure` `x.nomeasure` `s.m`"),
        ),
        ("c", lists),
    ];
    let site = ReferenceProject::new(&ReferenceCase {
        pages,
        sources: vec![("wh", "s", vec!["m"])],
        units: vec![vec![]],
    });
    let oracle = site.oracle();
    let refused = oracle
        .refused(&TARGETS)
        .into_iter()
        .map(|(key, why)| format!("{key} {why}"));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            "a -> missing-page",
            "b s.nomeasure",
            "b source:x",
            "b table:x",
            "c -> gone-1"
        ]
    );
    let repaired = oracle
        .repaired(&TARGETS)
        .into_iter()
        .map(|(_, entry)| entry);
    assert_eq!(repaired.collect::<Vec<_>>(), ["gone", "s.id"]);
}

#[test]
fn previously_invalid_pages_do_not_fail_units() {
    let wrong = PageText {
        body: vec!["[[e_2]] `source:t` `s.n`"],
        refs: vec!["d-1"],
        sl_refs: vec!["gone", "s"],
    };
    let about = PageText {
        body: vec!["`s.m`"],
        refs: vec!["a"],
        sl_refs: vec!["BIG.m"],
    };
    let case = ReferenceCase {
        pages: vec![("a", wrong.clone())],
        sources: vec![("wh", "s", vec!["m"])],
        units: vec![
            vec![
                PageCall::Source("wh", "s", vec!["m", "g"]),
                PageCall::Source("wh", "BIG", vec!["m"]),
            ],
            vec![PageCall::Write("c", says("`s.m`"))],
            vec![
                PageCall::Source("wh", "BIG", vec!["m"]),
                PageCall::Write("b", about),
            ],
        ],
    };
    let site = ReferenceProject::new(&case);
    let before = site.oracle();
    let results = site.run_git(&case);
    assert!(
        results
            .iter()
            .all(|of| matches!(of, PatchOutcome::Accepted { .. })),
        "{results:?}"
    );
    assert!(site.oracle().has_same(&before, "a"));
    assert_eq!(
        fs::read_to_string(site.root().join("wiki/global/a.md")).unwrap(),
        wrong.page(),
        "the page is unchanged"
    );
}

/// The second unit fails if it breaks a reference; entries of `sl_refs` are removed instead.
#[test]
fn reference_broken_by_another_unit_fails_or_is_repaired() {
    let lists = |sl_refs: Vec<&'static str>| PageText {
        body: vec!["x"],
        refs: Vec::new(),
        sl_refs,
    };
    let run = |units: Vec<Vec<PageCall>>| {
        let pages = vec![("a", lists(vec!["s", "t.m", "gone"])), ("d-1", says("x"))];
        let sources = vec![("wh", "s", vec!["m"]), ("wh", "t", vec!["m"])];
        let case = ReferenceCase {
            pages,
            sources,
            units,
        };
        let site = ReferenceProject::new(&case);
        let results = site
            .run_git(&case)
            .iter()
            .map(|of| matches!(of, PatchOutcome::Accepted { .. }))
            .collect::<Vec<_>>();
        let page = |key: &str| {
            fs::read_to_string(site.root().join(format!("wiki/global/{key}.md")))
                .unwrap_or_default()
        };
        (results, page("a"), page("b"))
    };
    let drop_s = || vec![PageCall::Drop("wh", "s")];
    let (results, a, _) = run(vec![drop_s(), vec![PageCall::Write("b", says("`s.m`"))]]);
    assert_eq!(results, [true, true], "a deleted source causes no message");
    assert!(
        !a.contains("- s\n") && a.contains("t.m") && a.contains("gone"),
        "{a}"
    );

    let (results, ..) = run(vec![
        drop_s(),
        vec![PageCall::Write("b", says("`source:s`"))],
    ]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![
        vec![PageCall::Write("b", says("`source:s`"))],
        drop_s(),
    ]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![drop_s(), vec![PageCall::Write("b", lists(vec!["s"]))]]);
    assert_eq!(results, [true, false]);
    let (results, a, b) = run(vec![
        vec![PageCall::Write("b", lists(vec!["s", "t"]))],
        drop_s(),
    ]);
    assert_eq!(results, [true, true]);
    assert!(
        !b.contains("- s\n") && b.contains("- t\n") && a.contains("gone"),
        "{b}"
    );
    let (results, ..) = run(vec![
        vec![PageCall::Remove("d-1")],
        vec![PageCall::Write("b", says("[[d-1]]"))],
    ]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![
        vec![PageCall::Write("b", says("[[d-1]]"))],
        vec![PageCall::Remove("d-1")],
    ]);
    assert_eq!(results, [true, false]);
}
