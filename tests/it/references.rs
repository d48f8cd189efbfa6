//! References of wiki pages: whatever a run has saved passes KTX's final gates, and pages that were wrong before it cost
//! no unit.

use std::{fs, path::Path, process::Command, sync::Arc};

use ingestdeck::{
    ingest::{
        Attempt, Delivered, Job, Place, Project, Selection, WorkUnit,
        integrate::{Integrated, Integration, Patch},
        plan,
        prompt::Amended,
        repository::Repository,
        worktree::Worktrees,
    },
    units::ToolCall,
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

mod oracle;

use oracle::Oracle;

/// Connections that an ingest of `orbit` writes sources for.
const TARGETS: [&str; 2] = ["orbit", "wh"];

const KEYS: [&str; 6] = ["a", "b", "c", "d-1", "e_2", "Up"];
const SOURCES: [&str; 3] = ["s", "t", "BIG"];
const ENTITIES: [&str; 4] = ["m", "n", "g", "id"];

/// Pieces of a body, most of which refer to something.
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
struct Text {
    body: Vec<&'static str>,
    refs: Vec<&'static str>,
    sl_refs: Vec<&'static str>,
}

impl Text {
    fn body(&self) -> String {
        format!("x {}", self.body.join(" "))
    }

    /// As somebody left it in the project.
    fn page(&self) -> String {
        let list = |list: &[&str]| json!(list).to_string();
        let (refs, sl_refs) = (list(&self.refs), list(&self.sl_refs));
        format!("---\nsummary: s\nrefs: {refs}\nsl_refs: {sl_refs}\n---\n\n{}\n", self.body())
    }
}

#[derive(Clone, Debug)]
enum Call {
    Write(&'static str, Text),
    /// Says something else of a page, whatever it refers to.
    Touch(&'static str),
    Remove(&'static str),
    Source(&'static str, &'static str, Vec<&'static str>),
    Drop(&'static str, &'static str),
    Rollback(&'static str),
}

impl Call {
    fn named(&self) -> (&'static str, Value) {
        match self {
            Self::Write(key, text) => {
                let (body, refs, sl_refs) = (text.body(), &text.refs, &text.sl_refs);
                ("wiki_write", json!({"key": key, "summary": "s", "content": body, "refs": refs, "sl_refs": sl_refs}))
            }
            Self::Touch(key) => ("wiki_write", json!({"key": key, "summary": "another"})),
            Self::Remove(key) => ("wiki_remove", json!({"key": key})),
            Self::Source(connection, name, entities) => {
                let on = json!({"connectionId": connection, "sourceName": name, "source": source(name, entities)});
                ("sl_write_source", on)
            }
            Self::Drop(connection, name) => {
                ("sl_write_source", json!({"connectionId": connection, "sourceName": name, "delete": true}))
            }
            Self::Rollback(name) => ("sl_rollback", json!({"sourceName": name})),
        }
    }
}

/// A source with these parts: `g` is a segment, `id` the column that each has, the others are measures.
fn source(name: &str, entities: &[&str]) -> Value {
    let has = |entity: &&&str| !["g", "id"].contains(*entity);
    let measures: Vec<Value> =
        entities.iter().filter(has).map(|name| json!({"name": name, "expr": "count(*)"})).collect();
    let segments: Vec<Value> =
        entities.contains(&"g").then(|| json!({"name": "g", "expr": "id > 1"})).into_iter().collect();
    json!({
        "name": name, "table": format!("db.{}", name.to_lowercase()), "grain": ["id"],
        "columns": [{"name": "id", "type": "number"}], "joins": [], "measures": measures, "segments": segments,
    })
}

fn text() -> impl Strategy<Value = Text> {
    let refs = [&KEYS[..], &["Revenue Policy", "a b"]].concat();
    let sl_refs =
        vec!["s", "s.m", "s.g", "s.id", "t", "t.n", "BIG", "BIG.gone", "wh/s", "orbit/s.m", "bi/s", "gone", "s."];
    let list = |of: Vec<&'static str>| prop::collection::vec(select(of), 0..3);
    (prop::collection::vec(select(PIECES.to_vec()), 0..4), list(refs), list(sl_refs))
        .prop_map(|(body, refs, sl_refs)| Text { body, refs, sl_refs })
}

fn entities() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(ENTITIES.to_vec(), 0..=ENTITIES.len())
}

fn call() -> impl Strategy<Value = Call> {
    let (key, name, target) = (|| select(KEYS.to_vec()), || select(SOURCES.to_vec()), || select(TARGETS.to_vec()));
    prop_oneof![
        5 => (key(), text()).prop_map(|(key, text)| Call::Write(key, text)),
        1 => key().prop_map(Call::Touch),
        2 => key().prop_map(Call::Remove),
        3 => (target(), name(), entities()).prop_map(|(connection, name, entities)| Call::Source(connection, name, entities)),
        2 => (target(), name()).prop_map(|(connection, name)| Call::Drop(connection, name)),
        1 => name().prop_map(Call::Rollback),
    ]
}

/// A project, and what the units of a run do in it.
#[derive(Clone, Debug)]
struct Case {
    pages: Vec<(&'static str, Text)>,
    sources: Vec<(&'static str, &'static str, Vec<&'static str>)>,
    units: Vec<Vec<Call>>,
}

fn case() -> impl Strategy<Value = Case> {
    let connections = vec!["orbit", "wh", "bi"];
    let sources = (select(connections), select(SOURCES.to_vec()), entities());
    (
        prop::collection::vec((select(KEYS.to_vec()), text()), 0..5),
        prop::collection::vec(sources, 0..4),
        prop::collection::vec(prop::collection::vec(call(), 1..5), 1..4),
    )
        .prop_map(|(pages, sources, units)| Case { pages, sources, units })
}

/// The project of a case, planned.
struct Site {
    dir: tempfile::TempDir,
    project: Project,
    units: Vec<WorkUnit>,
}

impl Site {
    fn new(case: &Case) -> Self {
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
            write(&format!("semantic-layer/{connection}/{}.yaml", name.to_lowercase()), &text);
        }
        let project = Project::open(dir.path()).unwrap();
        let units = plan(&project, &Selection::default()).unwrap().units;
        assert_eq!(units.len(), case.units.len());
        Self { dir, project, units }
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    fn oracle(&self) -> Oracle {
        Oracle::read(self.root())
    }

    /// Carries out `calls` as an attempt at a unit. Some of them are declined.
    fn attempt(&self, number: usize, calls: &[Call], place: &Place) -> Attempt {
        let attempt = Attempt::open(&self.project, &self.units[number], &job(), 1, Amended::No, place).unwrap();
        let ledger = ("record_verification_ledger", json!({"summary": "read it"}));
        for (name, arguments) in std::iter::once(ledger).chain(calls.iter().map(Call::named)) {
            attempt.tools().call(&ToolCall { name: name.into(), arguments, tool_use_id: None });
        }
        attempt
    }

    /// A run without history: good attempts are published one after the other, though all began at the same time.
    fn run_overlay(&self, case: &Case) {
        let place = |number| Place::Overlay(self.project.deck_dir().join(format!("runs/r/work/{number}")));
        let units = case.units.iter().enumerate();
        let attempts: Vec<Attempt> = units.map(|(number, calls)| self.attempt(number, calls, &place(number))).collect();
        for attempt in attempts {
            if is_good(&attempt) {
                // Others may have changed the same files meanwhile.
                let _ = attempt.deliver();
            }
        }
    }

    /// A run of a git project. What became of the patches.
    fn run_git(&self, case: &Case) -> Vec<Integrated> {
        for args in
            [&["init", "--quiet", "--initial-branch=main"][..], &["add", "--all"], &["commit", "--quiet", "-m", "one"]]
        {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=x", "-c", "user.email=x@example.com"]).args(args).current_dir(self.root());
            assert!(git.env("GIT_CONFIG_GLOBAL", "/dev/null").status().unwrap().success());
        }
        let repository = Repository::find(self.root()).unwrap().unwrap();
        repository.hide_ours().unwrap();
        let head = repository.ready(&[]).unwrap();
        let trees = Worktrees::new(repository, "local-1", &head.commit);
        let mut patches = Vec::new();
        for (number, calls) in case.units.iter().enumerate() {
            let place = Place::Worktree { trees: Arc::clone(&trees), index: number };
            let attempt = self.attempt(number, calls, &place);
            if !is_good(&attempt) {
                continue;
            }
            let Delivered::Patch { path, .. } = attempt.deliver().unwrap() else { panic!("no patch") };
            let file = path.map(|path| self.project.root.join(path));
            let unit = self.units[number].planned.unit.clone();
            let targets = self.project.targets(Some("orbit"));
            patches.push(Patch { unit, file, semantic_layer: true, targets });
        }
        let mut integration = Integration::begin(&trees, self.project.targets(Some("orbit"))).unwrap();
        let mut results = Vec::new();
        integration.integrate(&patches, |_, integrated| results.push(integrated.clone())).unwrap();
        integration.save("ingest", &[]).unwrap();
        results
    }
}

fn is_good(attempt: &Attempt) -> bool {
    let checked = attempt.check();
    checked.dangling.is_empty() && checked.invalid.is_empty()
}

fn job() -> Job {
    Job::at("2026-03-17T15:30:01Z".parse().unwrap())
}

/// What a run left is what KTX ingests beside: it refuses nothing and mends nothing but what was so before, in pages
/// that no unit touched.
fn passes_the_gates(before: &Oracle, after: &Oracle) -> Result<(), TestCaseError> {
    let wrong =
        [(before.refused(&TARGETS), after.refused(&TARGETS)), (before.repaired(&TARGETS), after.repaired(&TARGETS))];
    for (were, are) in wrong {
        for (key, why) in &are {
            let was_so = were.contains(&(key.clone(), why.clone())) && after.has_same(before, key);
            prop_assert!(was_so, "{key}: {why}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_is_published_passes_the_gates(case in case()) {
        let site = Site::new(&case);
        let before = site.oracle();
        site.run_overlay(&case);
        passes_the_gates(&before, &site.oracle())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn what_is_committed_passes_the_gates(case in case()) {
        let site = Site::new(&case);
        let before = site.oracle();
        site.run_git(&case);
        passes_the_gates(&before, &site.oracle())?;
    }
}

fn says(body: &'static str) -> Text {
    Text { body: vec![body], refs: Vec::new(), sl_refs: Vec::new() }
}

/// The gates refuse what KTX was seen to refuse, so the properties above are about something.
#[test]
fn the_gates_refuse_what_leads_nowhere() {
    let lists =
        Text { body: vec![], refs: vec!["gone-1", "Revenue Policy", "UP"], sl_refs: vec!["gone", "s.m", "s.id"] };
    let pages = vec![
        ("a", says("[[missing-page]] [[No Key]]")),
        ("b", says("`source:x` `table:x` `s.nomeasure` `x.nomeasure` `s.m`")),
        ("c", lists),
    ];
    let site = Site::new(&Case { pages, sources: vec![("wh", "s", vec!["m"])], units: vec![vec![]] });
    let oracle = site.oracle();
    let refused = oracle.refused(&TARGETS).into_iter().map(|(key, why)| format!("{key} {why}"));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        ["a -> missing-page", "b s.nomeasure", "b source:x", "b table:x", "c -> gone-1"]
    );
    let repaired = oracle.repaired(&TARGETS).into_iter().map(|(_, entry)| entry);
    assert_eq!(repaired.collect::<Vec<_>>(), ["gone", "s.id"]);
}

#[test]
fn pages_that_were_wrong_before_cost_nobody() {
    let wrong = Text { body: vec!["[[e_2]] `source:t` `s.n`"], refs: vec!["d-1"], sl_refs: vec!["gone", "s"] };
    let about = Text { body: vec!["`s.m`"], refs: vec!["a"], sl_refs: vec!["BIG.m"] };
    let case = Case {
        pages: vec![("a", wrong.clone())],
        sources: vec![("wh", "s", vec!["m"])],
        units: vec![
            vec![Call::Source("wh", "s", vec!["m", "g"]), Call::Source("wh", "BIG", vec!["m"])],
            vec![Call::Write("c", says("`s.m`"))],
            vec![Call::Source("wh", "BIG", vec!["m"]), Call::Write("b", about)],
        ],
    };
    let site = Site::new(&case);
    let before = site.oracle();
    let results = site.run_git(&case);
    assert!(results.iter().all(|of| matches!(of, Integrated::Accepted { .. })), "{results:?}");
    assert!(site.oracle().has_same(&before, "a"));
    assert_eq!(fs::read_to_string(site.root().join("wiki/global/a.md")).unwrap(), wrong.page(), "nobody touched it");
}

/// Who comes second pays; entries of `sl_refs` are taken out instead.
#[test]
fn what_another_unit_breaks_costs_a_unit_or_is_repaired() {
    let lists = |sl_refs: Vec<&'static str>| Text { body: vec!["x"], refs: Vec::new(), sl_refs };
    let run = |units: Vec<Vec<Call>>| {
        let pages = vec![("a", lists(vec!["s", "t.m", "gone"])), ("d-1", says("x"))];
        let sources = vec![("wh", "s", vec!["m"]), ("wh", "t", vec!["m"])];
        let case = Case { pages, sources, units };
        let site = Site::new(&case);
        let results =
            site.run_git(&case).iter().map(|of| matches!(of, Integrated::Accepted { .. })).collect::<Vec<_>>();
        let page =
            |key: &str| fs::read_to_string(site.root().join(format!("wiki/global/{key}.md"))).unwrap_or_default();
        (results, page("a"), page("b"))
    };
    let drop_s = || vec![Call::Drop("wh", "s")];
    let (results, a, _) = run(vec![drop_s(), vec![Call::Write("b", says("`s.m`"))]]);
    assert_eq!(results, [true, true], "nothing is said of a source that is gone");
    assert!(!a.contains("- s\n") && a.contains("t.m") && a.contains("gone"), "{a}");

    let (results, ..) = run(vec![drop_s(), vec![Call::Write("b", says("`source:s`"))]]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![vec![Call::Write("b", says("`source:s`"))], drop_s()]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![drop_s(), vec![Call::Write("b", lists(vec!["s"]))]]);
    assert_eq!(results, [true, false]);
    let (results, a, b) = run(vec![vec![Call::Write("b", lists(vec!["s", "t"]))], drop_s()]);
    assert_eq!(results, [true, true]);
    assert!(!b.contains("- s\n") && b.contains("- t\n") && a.contains("gone"), "{b}");
    let (results, ..) = run(vec![vec![Call::Remove("d-1")], vec![Call::Write("b", says("[[d-1]]"))]]);
    assert_eq!(results, [true, false]);
    let (results, ..) = run(vec![vec![Call::Write("b", says("[[d-1]]"))], vec![Call::Remove("d-1")]]);
    assert_eq!(results, [true, false]);
}
