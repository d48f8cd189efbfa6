//! Ownership of files in valid and in invalid projects.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    connection::{Connection, ConnectionKeys},
    source::tests::{anywhere, tree_of},
};

fn chunk(files: &[(&str, &str)]) -> ChunkedSource {
    let (_dir, tree) = tree_of(files);
    LookmlAdapter.chunk(&tree, anywhere()).unwrap()
}

fn keys(chunks: &ChunkedSource) -> Vec<&str> {
    chunks.units.iter().map(|unit| unit.key.as_str()).collect()
}

#[test]
fn the_first_model_by_name_owns_what_several_include() {
    let chunks = chunk(&[
        (
            "b.model.lkml",
            "include: \"views/*.view.lkml\"\nexplore: zebra {}\nexplore: ant {}\n",
        ),
        (
            "a.model.lkml",
            "include: \"views/shared.view.lkml\"\ninclude: \"/views/only_a.view\"\n",
        ),
        ("views/shared.view.lkml", "view: shared {}"),
        ("views/only_a.view.lkml", "view: only_a {}"),
        ("views/only_b.view.lkml", "view: only_b {}"),
        ("other/alone.view.lkml", "view: alone {}"),
        ("boards/exec.dashboard.lookml", "- dashboard: exec"),
        ("manifest.lkml", "project_name: \"x\""),
    ]);
    assert_eq!(
        keys(&chunks),
        [
            "lookml-a",
            "lookml-b",
            "lookml-orphans",
            "lookml-dashboard-exec",
            "lookml-manifest"
        ]
    );
    let [a, b, orphans, board, manifest] = &chunks.units[..] else {
        panic!("five units")
    };
    assert_eq!(manifest.raw_files, ["manifest.lkml"]);
    assert_eq!(
        a.raw_files,
        [
            "a.model.lkml",
            "views/only_a.view.lkml",
            "views/shared.view.lkml"
        ]
    );
    assert_eq!(b.raw_files, ["b.model.lkml", "views/only_b.view.lkml"]);
    assert_eq!(
        b.dependency_paths,
        ["views/only_a.view.lkml", "views/shared.view.lkml"]
    );
    assert_eq!(
        b.notes.as_deref(),
        Some("LookML model \"b\" (explores: ant, zebra)")
    );
    assert_eq!(orphans.raw_files, ["other/alone.view.lkml"]);
    assert_eq!(board.raw_files, ["boards/exec.dashboard.lookml"]);
    assert_eq!(chunks.warnings, []);
}

#[test]
fn relative_include_prefers_the_folder_of_its_file() {
    let chunks = chunk(&[
        ("sub/a.model.lkml", "include: \"views/*.view\""),
        ("sub/views/own.view.lkml", "view: own {}"),
        ("views/r.view.lkml", "view: r {}"),
        ("z.model.lkml", "include: \"/views/*.view\""),
    ]);
    assert_eq!(keys(&chunks), ["lookml-a", "lookml-z"]);
    assert_eq!(
        chunks.units[0].raw_files,
        ["sub/a.model.lkml", "sub/views/own.view.lkml"]
    );
    assert_eq!(
        chunks.units[1].raw_files,
        ["views/r.view.lkml", "z.model.lkml"]
    );
    // The folder of the file has no match, so the root is used, as in KTX.
    let chunks = chunk(&[
        ("models/a.model.lkml", "include: \"views/*.view\""),
        ("views/r.view.lkml", "view: r {}"),
    ]);
    assert_eq!(
        chunks.units[0].raw_files,
        ["models/a.model.lkml", "views/r.view.lkml"]
    );
}

#[test]
fn includes_leave_the_folder_and_reach_imported_projects() {
    let chunks = chunk(&[
        (
            "manifest.lkml",
            "project_name: \"harbor\"\nlocal_dependency: { project: \"base\" }",
        ),
        (
            "models/harbor.model.lkml",
            "include: \"../views/a.view\"\ninclude: \"//base/views/*.view\"\ninclude: \"/harbor/views/deep/*.view\"\n\
             include: \"../../outside.view\"\n",
        ),
        ("views/a.view.lkml", "view: a {}"),
        ("views/deep/d.view.lkml", "view: d {}"),
        (
            "imported_projects/base/views/b.view.lkml",
            "include: \"/views/only_base.lkml\"\nview: b {}",
        ),
        (
            "imported_projects/base/views/only_base.lkml",
            "view: only_base {}",
        ),
        (
            "imported_projects/base/manifest.lkml",
            "project_name: \"base\"",
        ),
    ]);
    assert_eq!(keys(&chunks), ["lookml-harbor", "lookml-manifest"]);
    assert_eq!(
        chunks.units[0].raw_files,
        [
            "imported_projects/base/views/b.view.lkml",
            "imported_projects/base/views/only_base.lkml",
            "models/harbor.model.lkml",
            "views/a.view.lkml",
            "views/deep/d.view.lkml",
        ]
    );
    let [warning] = &chunks.warnings[..] else {
        panic!("{:?}", chunks.warnings)
    };
    assert!(
        warning.to_string().contains("../../outside.view"),
        "{warning}"
    );
}

#[test]
fn hostile_project_names_are_names() {
    for name in [".", "..", "", "a/b", "/"] {
        let manifest = format!("project_name: \"{name}\"");
        let model = format!("include: \"/{name}/v.view\"\ninclude: \"//{name}/v.view\"");
        let chunks = chunk(&[
            ("manifest.lkml", &manifest),
            ("a.model.lkml", &model),
            ("v.view.lkml", "view: v {}"),
        ]);
        assert!(keys(&chunks).contains(&"lookml-a"), "{name}");
    }
}

#[test]
fn project_of_a_sibling_folder_is_found_by_its_name() {
    let chunks = chunk(&[
        ("hub/manifest.lkml", "project_name: \"looker_hub\""),
        ("hub/v/x.view.lkml", "include: \"/v/y.view\"\nview: x {}"),
        ("hub/v/y.view.lkml", "view: y {}"),
        ("spoke/manifest.lkml", "project_name: \"spoke\""),
        ("spoke/m.model.lkml", "include: \"//looker_hub/v/x.view\""),
    ]);
    assert_eq!(keys(&chunks), ["lookml-m", "lookml-manifest"]);
    assert_eq!(chunks.units[0].raw_files.len(), 3);
    assert_eq!(chunks.warnings, []);
}

#[test]
fn project_that_is_not_here_is_named_once() {
    let files: Vec<(String, String)> = (0..300)
        .map(|at| {
            let text = format!("include: \"//looker-hub/views/v{at}.view\"\nview: w{at} {{}}");
            (format!("views/w{at}.view.lkml"), text)
        })
        .collect();
    let mut tree: Vec<(&str, &str)> = vec![("m.model.lkml", "include: \"views/*.view\"")];
    tree.extend(
        files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str())),
    );
    let chunks = chunk(&tree);
    let texts: Vec<String> = chunks.warnings.iter().map(Problem::to_string).collect();
    assert_eq!(
        texts,
        ["300 includes of the project `looker-hub`, whose files are not here"]
    );
}

#[test]
fn includes_that_go_in_circles_end() {
    let chunks = chunk(&[
        ("m.model.lkml", "include: \"a.view\""),
        (
            "a.view.lkml",
            "include: \"b.view\"\nview: a { extends: [b] }",
        ),
        (
            "b.view.lkml",
            "include: \"a.view\"\ninclude: \"m.model.lkml\"\nview: b { extends: [a] }",
        ),
    ]);
    assert_eq!(keys(&chunks), ["lookml-m"]);
    assert_eq!(
        chunks.units[0].raw_files,
        ["a.view.lkml", "b.view.lkml", "m.model.lkml"]
    );
}

#[test]
fn direct_include_owns_file_over_transitive_include() {
    let chunks = chunk(&[
        ("a.model.lkml", "include: \"x.view\""),
        ("x.view.lkml", "include: \"y.view\""),
        ("z.model.lkml", "include: \"y.view\""),
        ("y.view.lkml", "view: y {}"),
    ]);
    assert_eq!(chunks.units[1].raw_files, ["y.view.lkml", "z.model.lkml"]);
    assert_eq!(chunks.units[0].dependency_paths, ["y.view.lkml"]);
}

#[test]
fn missing_includes_are_reported() {
    let chunks = chunk(&[(
        "m.model.lkml",
        "include: \"gone/*.view\"\ninclude: \"//other/x.view\"\ninclude: \"[\"",
    )]);
    assert_eq!(keys(&chunks), ["lookml-m"]);
    assert_eq!(
        ingestdeck_core::diagnostic::to_lines(&chunks.warnings),
        [
            "m.model.lkml includes `gone/*.view`, which matches no file",
            "m.model.lkml includes `[`, which matches no file",
            "1 include of the project `other`, whose files are not here; copy them to imported_projects/other next to manifest.lkml",
        ]
    );
}

#[test]
fn clashing_keys_are_disambiguated() {
    let chunks = chunk(&[
        ("one/m.model.lkml", ""),
        ("two/m.model.lkml", "explore: x {}"),
        ("orphans.model.lkml", "explore: x {}"),
        ("v.view.lkml", "view: v {}"),
        ("one/m.model.lkml.txt", "x"),
        ("dashboard-d.model.lkml", "explore: x {}"),
        ("d.dashboard.lookml", "- dashboard: d"),
    ]);
    let distinct: BTreeSet<_> = keys(&chunks).into_iter().collect();
    assert_eq!(distinct.len(), chunks.units.len());
}

#[test]
fn model_of_other_connection_may_not_write_sources() {
    let (_dir, tree) = tree_of(&[
        ("here.model.lkml", "connection: \"bq\""),
        ("there.model.lkml", "connection: \"snow\""),
        ("silent.model.lkml", "explore: x {}"),
    ]);
    let connection = Connection {
        keys: ConnectionKeys(json!({"mappings": {"expectedLookerConnectionName": "bq"}})),
        ..Connection::default()
    };
    let chunks = LookmlAdapter
        .chunk(
            &tree,
            ProjectConnection {
                connection: &connection,
                ..anywhere()
            },
        )
        .unwrap();
    let disallowed: Vec<_> = chunks
        .units
        .iter()
        .map(|unit| unit.sl_disallowed.as_deref())
        .collect();
    assert_eq!(disallowed, [None, None, Some("lookml_connection_mismatch")]);
    let warning = "model there declares connection `snow`, not the expected `bq`: its unit writes no sources \
                   (lookml_connection_mismatch)";
    assert_eq!(
        ingestdeck_core::diagnostic::to_lines(&chunks.warnings),
        [warning]
    );
    let notes = chunks.units[2].notes.as_deref().unwrap();
    assert!(
        notes.starts_with(
            "[LOOKML SL WRITES DISALLOWED]\nreason: lookml_connection_mismatch\nmodel: there\n"
        ),
        "{notes}"
    );
    assert!(
        LookmlAdapter
            .chunk(&tree, anywhere())
            .unwrap()
            .units
            .iter()
            .all(|unit| unit.sl_disallowed.is_none())
    );
}

#[test]
fn include_that_matches_copies_of_runs_is_a_warning() {
    let warnings = |include: &str, is_inside: bool| {
        let model = format!("include: \"{include}\"");
        let (dir, tree) = tree_of(&[
            ("a.model.lkml", &model),
            ("views/a.view.lkml", "view: a {}"),
        ]);
        let root = dir.path().canonicalize().unwrap();
        let project = if is_inside {
            root
        } else {
            root.parent().unwrap().join("other")
        };
        let origin = ProjectConnection {
            project: &project,
            ..anywhere()
        };
        let chunks = LookmlAdapter.chunk(&tree, origin).unwrap();
        ingestdeck_core::diagnostic::to_lines(&chunks.warnings)
    };
    let found = warnings("/**/*.view.lkml", true);
    assert!(
        found.len() == 1 && found[0].contains("a.model.lkml"),
        "{found:?}"
    );
    assert_eq!(warnings("/**/*.view.lkml", false), [] as [String; 0]);
    assert_eq!(warnings("/views/*.view.lkml", true), [] as [String; 0]);
}

#[test]
fn change_reruns_model_with_extended_files() {
    let chunks = chunk(&[
        ("a.model.lkml", "include: \"top.view\""),
        ("top.view.lkml", "view: top { extends: [middle] }"),
        ("middle.view.lkml", "view: middle { extends: [base] }"),
        ("base.view.lkml", "view: base { extends: [middle] }"),
        ("b.model.lkml", "explore: x {}"),
    ]);
    let left =
        LookmlAdapter.narrow_unit(chunks.units[0].clone(), &BTreeSet::from(["top.view.lkml"]));
    assert_eq!(left.raw_files, ["a.model.lkml", "top.view.lkml"]);
    assert_eq!(
        left.dependency_paths,
        ["base.view.lkml", "middle.view.lkml"]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_file_is_in_exactly_one_unit(
        models in prop::collection::btree_map("[ab]{1,2}", prop::collection::vec("(/)?(v/)?([vw]{1,2}|\\*|\\*\\*/\\*)(\\.view)?(\\.lkml)?", 0..4), 0..4),
        views in prop::collection::btree_map("(v/)?[vw]{1,2}", prop::collection::vec("([vw]{1,2}|\\*)\\.view", 0..3), 0..6),
        boards in prop::collection::btree_set("[d]{1,2}", 0..3),
    ) {
        let include = |patterns: &[String]| patterns.iter().map(|pattern| format!("include: \"{pattern}\"\n")).collect::<String>();
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        files.extend(models.iter().map(|(name, includes)| (format!("{name}.model.lkml"), include(includes) + "label: \"m\"")));
        files.extend(views.iter().map(|(name, includes)| (format!("{name}.view.lkml"), include(includes) + "label: \"v\"")));
        files.extend(boards.iter().map(|name| (format!("{name}.dashboard.lookml"), "- dashboard: d".to_owned())));
        let list: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let chunks = chunk(&list);
        let mut raw: Vec<_> = chunks.units.iter().flat_map(|unit| unit.raw_files.clone()).collect();
        raw.sort();
        prop_assert_eq!(raw, files.keys().cloned().collect::<Vec<_>>());
        prop_assert_eq!(keys(&chunks).into_iter().collect::<BTreeSet<_>>().len(), chunks.units.len());
        for unit in &chunks.units {
            prop_assert!(unit.dependency_paths.iter().all(|path| !unit.raw_files.contains(path)));
        }
        prop_assert_eq!(&self::chunk(&list), &chunks);
    }
}
