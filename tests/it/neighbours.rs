//! Which units run again because another file changed, and when a changed file is settled, through the whole program.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::commands::test_dir::TestDir;

const READS: &str = "[[part]]\nsteps = [{ say = \"read\" }]";

fn run(place: &TestDir, script: &str, more: &[&str]) -> Option<i32> {
    let claude = place.scripted_claude(script);
    let options = [
        "run",
        "--claude-bin",
        claude.to_str().unwrap(),
        "--ui",
        "none",
        "--concurrency",
        "4",
        "--no-reconcile",
    ];
    place.run(&[&options[..], more].concat()).code
}

/// Keys and reasons of the planned units.
fn planned(place: &TestDir, more: &[&str]) -> Vec<String> {
    let ran = place.run(&[&["plan", "--ui", "json"], more].concat());
    let objects = ran
        .expect_success()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let units = objects.filter(|object| object["unit"].is_string());
    units
        .map(|object| format!("{}: {}", text(&object["unit"]), text(&object["why"])))
        .collect()
}

/// A dbt project whose model `n` refers to model `n + 1` in its SQL, for the first three.
fn dbt_project(models: usize) -> TestDir {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  d: {driver: dbt, source_dir: d}\n",
    );
    place.write("d/dbt_project.yml", "name: x\n");
    for n in 0..models {
        place.write(
            &format!("d/models/m{n:02}.yml"),
            format!("models:\n  - name: m{n}\n"),
        );
        let sql = if n < 3 {
            format!("select * from {{{{ ref('m{}') }}}}", n + 1)
        } else {
            "select 1".to_owned()
        };
        place.write(&format!("d/models/sql/m{n}.sql"), sql);
    }
    place
}

#[test]
fn an_edit_in_one_project_plans_no_units_of_another() {
    let place = dbt_project(26);
    place.write("d/tests/two/dbt_project.yml", "name: two\n");
    place.write("d/tests/two/models/m3.yml", "models: [{name: m3}]\n");
    let uses = "models: [{name: u, description: \"{{ ref('m3') }} {{ ref(name) }}\"}]\n";
    place.write("d/tests/two/models/u.yml", uses);
    let named = uses.replace("ref('m3')", "ref('x', 'm3')");
    place.write(
        "d/tests/two/models/named.yml",
        named.replace("ref(name)", ""),
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write(
        "d/models/m03.yml",
        "models: [{name: m3, description: new}]\n",
    );
    assert_eq!(
        planned(&place, &[]),
        [
            "dbt-models-m02: refers to a change: models/m03.yml",
            "dbt-models-m03: 1 file modified",
            "dbt-tests-two-models-named: refers to a change: models/m03.yml"
        ]
    );
}

#[test]
fn one_edit_plans_its_unit_and_those_that_refer_to_it() {
    let place = dbt_project(46);
    place.write("d/models/m40.yml", "models:\n  - name: m40\n    columns:\n      - name: id\n        tests:\n          - relationships: {to: ref(\"m3\"), field: id}\n");
    place.write(
        "d/models/m41.yml",
        "models: [{name: m41, description: \"not m3 but {{ ref('m30') }} # ref('m3')\"}]\n",
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);

    place.write(
        "d/models/m03.yml",
        "models:\n  - name: m3\n    description: new\n",
    );
    let own = "dbt-models-m03: 1 file modified";
    let referring = [
        "dbt-models-m02: refers to a change: models/m03.yml",
        "dbt-models-m40: refers to a change: models/m03.yml",
    ];
    assert_eq!(planned(&place, &[]), [referring[0], own, referring[1]]);
    assert_eq!(planned(&place, &["--neighbours"]).len(), 47);
    let table = place.run(&["plan"]);
    assert!(
        table
            .expect_success()
            .contains("1 unit changed, 2 units refer to a change, 44 units unchanged"),
        "{table:?}"
    );

    assert_eq!(run(&place, READS, &["--only", "dbt-models-m03"]), Some(0));
    assert_eq!(planned(&place, &[]), referring);
    let table = place.run(&["plan"]);
    assert!(
        table
            .expect_success()
            .contains("d +0/~0/-0/=47, 2 units refer to a change"),
        "{table:?}"
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);

    place.write(
        "d/models/m20.yml",
        "models:\n  - name: m20\n    description: new\n",
    );
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m20"]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0], "no unit refers to it");
    // The index can be deleted, because it is rebuilt from the tapes.
    fs::remove_file(place.path(".ktx/ingestdeck/db.sqlite")).unwrap();
    assert_eq!(planned(&place, &[]), [""; 0]);
}

#[test]
fn changed_code_of_a_model_plans_the_unit_that_describes_it() {
    let place = dbt_project(30);
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
    place.write("d/models/sql/m1.sql", "select 2 from {{ ref('m2') }}");
    place.write("d/models/sql/undescribed.sql", "select 2");
    let found = ["dbt-models-m01: refers to a change: models/sql/m1.sql"];
    assert_eq!(planned(&place, &[]), found);
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m01"]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);

    fs::remove_file(place.path("d/models/sql/m4.sql")).unwrap();
    assert_eq!(planned(&place, &[]), [""; 0]);
    let table = place.run(&["plan"]);
    assert!(table.expect_success().contains("+0/~0/-0/=31"), "{table:?}");
}

#[test]
fn deleted_or_renamed_model_concerns_those_that_refer_to_it() {
    let place = dbt_project(27);
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write("d/models/m01.yml", "models:\n  - name: renamed\n");
    let referring = "dbt-models-m00: refers to a change: models/m01.yml";
    assert_eq!(
        planned(&place, &[]),
        [referring, "dbt-models-m01: 1 file modified"]
    );
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m01"]), Some(0));
    assert_eq!(planned(&place, &[]), [referring]);
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);

    fs::remove_file(place.path("d/models/m03.yml")).unwrap();
    assert_eq!(
        planned(&place, &[]),
        ["dbt-models-m02: refers to a change: models/m03.yml"]
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(
        planned(&place, &[]),
        [""; 0],
        "the deletion is not decided, but the unit has run without the file"
    );

    // Files that cannot be parsed may refer to anything.
    place.write("d/models/m09.yml", "models: [a\nb: 1\n");
    assert_eq!(planned(&place, &[]), ["dbt-models-m09: 1 file modified"]);
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write(
        "d/models/m20.yml",
        "models:\n  - name: m20\n    description: new\n",
    );
    let all = [
        "dbt-models-m09: may refer to a change: models/m20.yml",
        "dbt-models-m20: 1 file modified",
    ];
    assert_eq!(planned(&place, &[]), all);
}

#[test]
fn new_file_concerns_units_that_referred_to_its_name() {
    let place = dbt_project(27);
    place.write("d/models/sql/m20.sql", "select * from {{ ref('later') }}");
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write("d/models/later.yml", "models:\n  - name: later\n");
    let referring = "dbt-models-m20: refers to a change: models/later.yml";
    assert_eq!(planned(&place, &[]), ["dbt-models-later: new", referring]);
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m01"]), Some(0));
    assert_eq!(planned(&place, &[]), ["dbt-models-later: new", referring]);
    assert_eq!(run(&place, READS, &["--only", "dbt-models-later"]), Some(0));
    assert_eq!(planned(&place, &[]), [referring]);
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
}

/// Makes the tapes those of a version that recorded no names.
fn forget_names(place: &TestDir) {
    let names = regex_lite::Regex::new(r#","defines":\[[^]]*\]"#).unwrap();
    for run in fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap() {
        let tape = run.unwrap().path().join("tape.jsonl");
        let text = fs::read_to_string(&tape).unwrap();
        fs::write(tape, &*names.replace_all(&text, "")).unwrap();
    }
}

#[test]
fn changes_that_an_older_version_ingested_plan_nothing() {
    let place = dbt_project(27);
    place.write(
        "d/models/sql/m26.sql",
        "select * from {{ ref('of_a_package') }}",
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    fs::remove_file(place.path("d/models/m20.yml")).unwrap();
    place.write(
        "d/models/m03.yml",
        "models:\n  - name: m3\n    description: new\n",
    );
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m03"]), Some(0));
    assert_eq!(
        planned(&place, &[]),
        ["dbt-models-m02: refers to a change: models/m03.yml"]
    );
    forget_names(&place);
    assert_eq!(planned(&place, &[]), [""; 0]);
    assert_eq!(planned(&place, &["--neighbours"]), [""; 0]);

    // A later change is a reason. Nothing refers to a name that is not known.
    fs::remove_file(place.path("d/models/m10.yml")).unwrap();
    place.write(
        "d/models/m03.yml",
        "models:\n  - name: m3\n    description: newer\n",
    );
    let referring = "dbt-models-m02: refers to a change: models/m03.yml";
    assert_eq!(
        planned(&place, &[]),
        [referring, "dbt-models-m03: 1 file modified"]
    );
    assert_eq!(run(&place, READS, &["--only", "dbt-models-m03"]), Some(0));
    assert_eq!(
        planned(&place, &[]),
        [referring],
        "this version ingested the change"
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);

    // Of a file that cannot be parsed, and of which no names are recorded, any name may be meant.
    forget_names(&place);
    place.write("d/models/m15.yml", "models: [a\nb: 1\n");
    assert_eq!(
        planned(&place, &[]),
        [
            "dbt-models-m15: 1 file modified",
            "dbt-models-m26: refers to a change: models/m15.yml"
        ]
    );
}

#[test]
fn new_kind_of_reference_plans_nothing_of_older_runs() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  l: {driver: lookml, source_dir: l}\n",
    );
    place.write(
        "l/a.model.lkml",
        "include: \"views/users.view\"\nexplore: orders { join: users {} }\n",
    );
    place.write(
        "l/b.model.lkml",
        "include: \"views/users.view\"\nexplore: users {}\n",
    );
    place.write("l/views/users.view.lkml", "view: users {}\n");
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write(
        "l/views/users.view.lkml",
        "view: users { label: \"new\" }\n",
    );
    let owner = planned(&place, &[])
        .into_iter()
        .find_map(|unit| Some(unit.split_once(": 1 file")?.0.to_owned()));
    assert_eq!(run(&place, READS, &["--only", &owner.unwrap()]), Some(0));
    assert_eq!(planned(&place, &[]).len(), 1);
    forget_names(&place);
    assert_eq!(planned(&place, &[]), [""; 0]);
}

#[test]
fn killed_and_resumed_run_plans_nothing_twice() {
    let place = dbt_project(27);
    assert_eq!(run(&place, READS, &[]), Some(0));
    for n in [1, 5, 6] {
        place.write(
            &format!("d/models/m{n:02}.yml"),
            format!("models:\n  - name: m{n}\n    description: new\n"),
        );
    }
    let page = r#"
[[part]]
unit = "dbt-models-m01"
steps = [
  { call = { tool = "record_verification_ledger", with = { summary = "Read it." } } },
  { call = { tool = "wiki_write", with = { key = "one", summary = "One", content = "Text." } } },
  { say = "Done." },
]
[[part]]
unit = "dbt-models-m06"
steps = [{ say = "now" }, "hang"]
"#;
    let claude = place.scripted_claude(&format!("{page}{READS}"));
    let claude = claude.to_str().unwrap();
    let mut running = place.start(place.command(&[
        "run",
        "--ui",
        "lines",
        "--claude-bin",
        claude,
        "--no-reconcile",
    ]));
    running.wait_for("stdout", "dbt-models-m05#1");
    running.wait_for("stdout", "dbt-models-m06#1");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    let left = planned(&place, &[]);
    assert!(
        left.iter()
            .any(|unit| unit == "dbt-models-m01: what it wrote last time was not saved"),
        "{left:?}"
    );
    assert_eq!(run(&place, READS, &["--resume-run", "latest"]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
}

#[test]
fn metricflow_units_run_for_what_they_refer_to() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  m: {driver: metricflow, source_dir: m}\n",
    );
    let model = |name: &str, more: &str| {
        format!(
            "semantic_models:\n  - name: {name}\n    measures: [{{name: {name}_count}}]\n    entities: [{{name: {name}, type: primary}}{more}]\n"
        )
    };
    place.write(
        "m/orders.yml",
        model("orders", ", {name: users, type: foreign}"),
    );
    place.write("m/users.yml", model("users", ""));
    place.write("m/visits.yml", model("visits", ""));
    let derived =
        "metrics:\n  - {name: x, type: derived, type_params: {metrics: [{name: simple}]}}\n";
    place.write("m/derived.yml", derived);
    place.write(
        "m/simple.yml",
        "metrics:\n  - {name: simple, type: derived, type_params: {}}\n",
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
    place.write(
        "m/users.yml",
        model("users", "").replace("users_count", "users_total"),
    );
    assert_eq!(
        planned(&place, &[]),
        [
            "metricflow-orders: refers to a change: users.yml",
            "metricflow-users: 1 file modified"
        ]
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write(
        "m/simple.yml",
        "metrics:\n  - {name: simple, type: derived, label: new, type_params: {}}\n",
    );
    assert_eq!(
        run(&place, READS, &["--only", "metricflow-simple"]),
        Some(0)
    );
    assert_eq!(
        planned(&place, &[]),
        ["metricflow-x: refers to a change: simple.yml"]
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
}

#[test]
fn lookml_units_run_for_what_they_refer_to() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  l: {driver: lookml, source_dir: l}\n",
    );
    place.write(
        "l/a.model.lkml",
        "include: \"views/orders.view\"\nexplore: orders { join: users {} }\n",
    );
    place.write(
        "l/b.model.lkml",
        "include: \"views/users.view\"\nexplore: users {}\n",
    );
    place.write("l/c.model.lkml", "explore: other { from: base }\n");
    place.write(
        "l/d.dashboard.lookml",
        "- dashboard: d\n  elements:\n  - {name: e, explore: orders}\n",
    );
    place.write("l/views/orders.view.lkml", "view: orders {}\n");
    place.write("l/views/users.view.lkml", "view: users {}\n");
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write(
        "l/views/users.view.lkml",
        "view: users { label: \"new\" }\n",
    );
    assert_eq!(
        planned(&place, &[]),
        [
            "lookml-a: refers to a change: views/users.view.lkml",
            "lookml-b: 1 file modified"
        ]
    );
    assert_eq!(run(&place, READS, &["--only", "lookml-b"]), Some(0));
    assert_eq!(
        planned(&place, &[]),
        ["lookml-a: refers to a change: views/users.view.lkml"]
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
    place.write(
        "l/a.model.lkml",
        "include: \"views/orders.view\"\nexplore: orders { label: \"new\" join: users {} }\n",
    );
    assert_eq!(
        planned(&place, &[]),
        [
            "lookml-a: 1 file modified",
            "lookml-dashboard-d: refers to a change: a.model.lkml"
        ]
    );
}

#[test]
fn new_cut_of_units_plans_nothing_that_succeeded() {
    let place = dbt_project(20);
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
    // More files cut the project into one unit for each model file.
    for n in 0..10 {
        place.write(&format!("d/notes/s{n}.yml"), "version: 2\n");
    }
    assert_eq!(planned(&place, &[]), [""; 0]);
    place.write(
        "d/models/m10.yml",
        "models:\n  - name: m10\n    description: new\n",
    );
    assert_eq!(planned(&place, &[]), ["dbt-models-m10: 1 file modified"]);
    assert_eq!(run(&place, READS, &[]), Some(0));
    (0..10).for_each(|n| fs::remove_file(place.path(&format!("d/notes/s{n}.yml"))).unwrap());
    assert_eq!(planned(&place, &[]), [""; 0]);
}

#[test]
fn explicit_dependency_of_a_manifest_is_a_reference() {
    let place = TestDir::new();
    place.write(
        "ktx.yaml",
        "connections:\n  m: {driver: manifest, path: m/units.jsonl}\n",
    );
    for name in ["a", "b", "c"] {
        place.write(&format!("m/{name}.md"), format!("# {name}\n"));
    }
    let units = "{\"unitKey\":\"x\",\"rawFiles\":[\"a.md\"],\"dependencyPaths\":[\"b.md\"]}\n\
                 {\"unitKey\":\"y\",\"rawFiles\":[\"c.md\"],\"peerFileIndex\":[\"b.md\"]}\n";
    place.write("m/units.jsonl", units);
    assert_eq!(run(&place, READS, &[]), Some(0));
    place.write("m/b.md", "# b, and more\n");
    assert_eq!(planned(&place, &[]), ["x: refers to a change: b.md"]);
    assert_eq!(
        planned(&place, &["--neighbours"]),
        ["x: refers to a change: b.md", "y: 1 file around it changed"]
    );
    assert_eq!(run(&place, READS, &[]), Some(0));
    assert_eq!(planned(&place, &[]), [""; 0]);
}
