//! Proposes the first `ktx.yaml` of a directory: the connections that its files suggest.
//!
//! It must not write anything.

use std::{collections::BTreeSet, fmt::Write as _, io::Read as _};

use super::{
    slug::slugify,
    source::{self, RawFile, SourceTree, docs::DEPENDENCY_DIRS, metricflow, tree::has_extension},
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Directories that are skipped in addition to [`DEPENDENCY_DIRS`]: packages, and the output of runs.
const IGNORED_DIRS: [&str; 5] = [
    "dbt_packages",
    "raw-sources",
    "semantic-layer",
    "site-packages",
    "wiki",
];

/// Directories of a LookML project.
const LOOKML_DIRS: [&str; 4] = ["dashboards", "explores", "models", "views"];

/// A connection that the files suggest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedConnection {
    /// Unique among the proposals.
    pub id: String,
    pub driver: &'static str,
    /// Directory, or file of a database, relative and with `/`; `.` is the whole tree.
    pub location: String,
}

/// Proposes connections for the files of `tree`, in the order of their drivers.
pub fn propose_connections(tree: &SourceTree) -> Vec<ProposedConnection> {
    let files: Vec<&RawFile> = tree
        .files
        .iter()
        .filter(|file| is_considered(&file.path))
        .collect();
    let mut found: Vec<(&'static str, &str)> = Vec::new();
    let free = |found: &[(&'static str, &str)], path: &str| {
        !found.iter().any(|(_, place)| is_below(path, place))
    };
    for file in &files {
        let (folder, name) = split(&file.path);
        if matches!(name, "dbt_project.yml" | "dbt_project.yaml") && free(&found, &file.path) {
            found.push(("dbt", folder));
        }
    }
    let looks: Vec<&str> = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| is_lookml(path))
        .collect();
    let looks: Vec<&str> = looks
        .into_iter()
        .filter(|path| free(&found, path))
        .collect();
    let semantic_models = semantic_models(tree, &files, &found);
    found.extend(
        lookml_projects(&looks)
            .into_iter()
            .map(|place| ("lookml", place)),
    );
    found.extend(
        semantic_models
            .into_iter()
            .map(|place| ("metricflow", place)),
    );
    if found.is_empty() && has_root_pages_only(tree) {
        found.push(("docs", ""));
    }
    for folder in page_dirs(&files) {
        if free(&found, folder) {
            found.push(("docs", folder));
        }
    }
    found.extend(
        files
            .iter()
            .filter(|file| is_database(tree, &file.path))
            .map(|file| ("sqlite", file.path.as_str())),
    );
    found.retain(|(driver, _)| *driver == "sqlite" || source::find_adapter(driver).is_some());
    assign_ids(&found)
}

/// Renders a `ktx.yaml` with these connections.
pub fn render_ktx_yaml(proposals: &[ProposedConnection]) -> String {
    let mut text = String::from("connections:\n");
    for ProposedConnection {
        id,
        driver,
        location: place,
    } in proposals
    {
        let key = if *driver == "sqlite" {
            "path"
        } else {
            "source_dir"
        };
        // Every JSON string is also a valid YAML string.
        let place = serde_json::Value::from(place.as_str());
        let _ = write!(text, "  {id}:\n    driver: {driver}\n    {key}: {place}\n");
    }
    text.push_str("llm:\n  provider:\n    backend: claude-code\n  models:\n    default: sonnet\n");
    text.push_str("ingest:\n  workUnits:\n    stepBudget: 40\n    maxConcurrency: 2\n    failureMode: continue\n");
    text
}

fn is_considered(path: &str) -> bool {
    !path
        .split('/')
        .any(|part| IGNORED_DIRS.contains(&part) || DEPENDENCY_DIRS.contains(&part))
}

/// Splits a path into folder (empty for the root) and name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_lookml(path: &str) -> bool {
    has_extension(path, &["lkml", "lookml"])
}

/// The deepest folder that contains all of `paths`, empty for the root; `None` for no paths.
fn common_folder<'a>(paths: &[&'a str]) -> Option<&'a str> {
    let mut common = split(paths.first()?).0;
    while !paths.iter().all(|path| is_below(path, common)) {
        common = split(common).0;
    }
    Some(common)
}

/// The LookML projects that `paths` belong to. A project may include files of any of its folders, so all files are one
/// project unless each top-level folder has a manifest, which Looker expects at the top of a project.
fn lookml_projects<'a>(paths: &[&'a str]) -> BTreeSet<&'a str> {
    let Some(mut common) = common_folder(paths) else {
        return BTreeSet::new();
    };
    let tops: BTreeSet<&str> = paths
        .iter()
        .map(|path| path.split_once('/').map_or("", |(top, _)| top))
        .collect();
    let has_manifest = |top: &&str| {
        paths
            .iter()
            .any(|path| split(path) == (*top, "manifest.lkml"))
    };
    if common.is_empty() && !tops.contains("") && tops.iter().all(has_manifest) {
        return tops;
    }
    while LOOKML_DIRS.contains(&split(common).1) {
        common = split(common).0;
    }
    BTreeSet::from([common])
}

/// Directories with MetricFlow semantic models: the dbt projects in `found` that have some, and the common folder of
/// all others.
fn semantic_models<'a>(
    tree: &SourceTree,
    files: &[&'a RawFile],
    found: &[(&'static str, &'a str)],
) -> BTreeSet<&'a str> {
    let holds_some = |file: &&&RawFile| {
        has_extension(&file.path, &["yml", "yaml"])
            && tree
                .read_text(&file.path)
                .is_ok_and(|text| metricflow::has_semantic_models(&text))
    };
    let (mut places, mut others) = (BTreeSet::new(), Vec::new());
    for file in files.iter().filter(holds_some) {
        match found.iter().find(|(_, place)| is_below(&file.path, place)) {
            Some((_, place)) => drop(places.insert(*place)),
            None => others.push(file.path.as_str()),
        }
    }
    places.extend(common_folder(&others));
    places
}

/// Folders with pages, without those below another one. Excludes the root and folders whose only page is a README,
/// because folders of code have those too.
fn page_dirs<'a>(files: &[&'a RawFile]) -> Vec<&'a str> {
    let is_page = |path: &str| {
        has_extension(path, &["md"]) && !split(path).1.eq_ignore_ascii_case("README.md")
    };
    let pages = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| is_page(path));
    let all: BTreeSet<&str> = pages
        .map(|path| split(path).0)
        .filter(|folder| !folder.is_empty())
        .collect();
    let mut folders: Vec<&str> = Vec::new();
    for folder in all {
        if !folders.iter().any(|above| is_below(folder, above)) {
            folders.push(folder);
        }
    }
    folders
}

/// File names of pages that describe their folder.
const README_NAMES: [&str; 8] = [
    "AGENTS",
    "CHANGELOG",
    "CLAUDE",
    "CODE_OF_CONDUCT",
    "CONTRIBUTING",
    "LICENSE",
    "README",
    "SECURITY",
];

/// True if all pages are in the root and nothing else looks like documentation: then every file would become a unit.
fn has_root_pages_only(tree: &SourceTree) -> bool {
    let written = |path: &str| {
        ["raw-sources", "semantic-layer", "wiki"]
            .iter()
            .any(|folder| is_below(path, folder))
    };
    let mut texts = tree
        .files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| !written(path))
        .filter(|path| is_text(path));
    let is_about = |stem: &str| {
        README_NAMES
            .iter()
            .any(|name| stem.eq_ignore_ascii_case(name))
    };
    let is_page = |path: &str| {
        path.rsplit_once('.').is_some_and(|(stem, extension)| {
            !extension.eq_ignore_ascii_case("txt") && !is_about(stem)
        })
    };
    texts.clone().any(is_page) && texts.all(|path| !path.contains('/'))
}

fn is_text(path: &str) -> bool {
    source::find_adapter("docs").is_some_and(|docs| docs.accepts_file(path))
}

/// Detects a database by its first bytes, not by its name.
fn is_database(tree: &SourceTree, path: &str) -> bool {
    let mut head = [0; 16];
    has_extension(path, &["db", "sqlite", "sqlite3"])
        && ScopedDir::open(&tree.root)
            .and_then(|dir| dir.open_file(path)?.0.read_exact(&mut head))
            .is_ok()
        && head == *b"SQLite format 3\0"
}

fn assign_ids(found: &[(&'static str, &str)]) -> Vec<ProposedConnection> {
    let mut proposals: Vec<ProposedConnection> = Vec::new();
    for (driver, place) in found {
        let last = split(place).1;
        let name = match slugify(last.rsplit_once('.').map_or(last, |(stem, _)| stem)) {
            empty if empty.is_empty() => (*driver).to_owned(),
            name => name,
        };
        let taken = |id: &str| proposals.iter().any(|proposal| proposal.id == id);
        let id = std::iter::once(name.clone())
            .chain(std::iter::once(format!("{name}-{driver}")))
            .chain((2..).map(|number| format!("{name}-{driver}-{number}")))
            .find(|id| !taken(id))
            .unwrap_or(name);
        let place = if place.is_empty() { "." } else { place };
        proposals.push(ProposedConnection {
            id,
            driver,
            location: place.to_owned(),
        });
    }
    proposals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree_of;

    fn render_ids(proposals: &[ProposedConnection]) -> Vec<String> {
        proposals
            .iter()
            .map(|found| format!("{} {} {}", found.id, found.driver, found.location))
            .collect()
    }

    fn proposed(paths: &[&str]) -> Vec<String> {
        let mut files: Vec<RawFile> = paths
            .iter()
            .map(|path| RawFile {
                path: (*path).into(),
                bytes: 1,
                ..RawFile::default()
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let tree = SourceTree {
            files,
            ..SourceTree::default()
        };
        render_ids(&propose_connections(&tree))
    }

    #[test]
    fn files_suggest_connections() {
        let paths = [
            "README.md",
            "sources/dbt/dbt_project.yml",
            "sources/dbt/models/a.md",
            "sources/dbt/models/b.md",
        ];
        assert_eq!(proposed(&paths), ["dbt dbt sources/dbt"]);
        assert_eq!(
            proposed(&["dbt_project.yml", "docs/a.md", "docs/b.md"]),
            ["dbt dbt ."]
        );
        assert_eq!(
            proposed(&["bi/views/a.lkml", "bi/b.dashboard.lookml"]),
            ["bi lookml bi"]
        );
        let paths = [
            "notes/a.md",
            "notes/b.md",
            "notes/deep/c.md",
            "notes/deep/d.md",
            "one/a.md",
            "code/README.md",
            "x.db",
        ];
        assert_eq!(proposed(&paths), ["notes docs notes", "one docs one"]);
        assert_eq!(
            proposed(&["README.md", "pricing.md", "x.db", "wiki/global/a.md"]),
            ["docs docs ."]
        );
        assert_eq!(
            proposed(&["pricing.md", "notes/a.md"]),
            ["notes docs notes"]
        );
        assert_eq!(proposed(&["pricing.md", "dbt_project.yml"]), ["dbt dbt ."]);
        assert!(
            proposed(&[
                "README.md",
                "CHANGELOG.md",
                "LICENSE.md",
                "requirements.txt"
            ])
            .is_empty()
        );
        assert!(
            proposed(&["pricing.md", "node_modules/x/index.md"]).is_empty(),
            "that would become a unit, too"
        );
        let paths = [
            "wiki/global/a.md",
            "wiki/global/b.md",
            "node_modules/x/a.md",
            "node_modules/x/b.md",
        ];
        assert!(proposed(&paths).is_empty());
    }

    #[test]
    fn proposed_ids_are_unique() {
        let paths = [
            "a/docs/x.md",
            "a/docs/y.md",
            "b/docs/x.md",
            "b/docs/y.md",
            "c/docs/x.md",
            "c/docs/y.md",
        ];
        assert_eq!(
            proposed(&paths),
            [
                "docs docs a/docs",
                "docs-docs docs b/docs",
                "docs-docs-2 docs c/docs"
            ]
        );
        assert_eq!(proposed(&["日本/x.md", "日本/y.md"]), ["docs docs 日本"]);
    }

    #[test]
    fn lookml_is_one_connection_at_its_top() {
        let block = [
            "LICENSE.md",
            "block_sap.model.lkml",
            "manifest.lkml",
            "dashboards/orders.dashboard.lookml",
            "explores/orders.explore.lkml",
            "views/core/orders.view.lkml",
            "views/customers.view.lkml",
        ];
        assert_eq!(proposed(&block), ["lookml lookml ."]);
        let standard = [
            "models/shop.model.lkml",
            "views/orders.view.lkml",
            "views/users.view.lkml",
        ];
        assert_eq!(proposed(&standard), ["lookml lookml ."]);
        assert_eq!(
            proposed(&["views/orders.view.lkml", "views/users.view.lkml"]),
            ["lookml lookml ."]
        );
        assert_eq!(
            proposed(&["a/finance.model.lkml", "b/orders.view.lkml"]),
            ["lookml lookml ."]
        );
        let within = [
            "code/x.py",
            "bi/models/shop.model.lkml",
            "bi/views/orders.view.lkml",
            "notes/a.md",
        ];
        assert_eq!(proposed(&within), ["bi lookml bi", "notes docs notes"]);
        let several = [
            "bi/manifest.lkml",
            "bi/views/a.view.lkml",
            "web/manifest.lkml",
            "web/a.model.lkml",
        ];
        assert_eq!(proposed(&several), ["bi lookml bi", "web lookml web"]);
        let beside = [
            "dbt/dbt_project.yml",
            "models/shop.model.lkml",
            "views/orders.view.lkml",
        ];
        assert_eq!(proposed(&beside), ["dbt dbt dbt", "lookml lookml ."]);
    }

    #[test]
    fn metricflow_is_offered_for_semantic_models() {
        let model = "version: 2\nsemantic_models:\n  - name: orders\n";
        let offered = |files: &[(&str, &str)]| {
            let (_dir, tree) = tree_of(files);
            render_ids(&propose_connections(&tree))
        };
        let dbt = ("dbt_project.yml", "name: x\n");
        assert_eq!(
            offered(&[dbt, ("models/orders.yml", model)]),
            ["dbt dbt .", "metricflow metricflow ."]
        );
        assert_eq!(
            offered(&[dbt, ("models/orders.yml", "# semantic_models: none yet\n")]),
            ["dbt dbt ."]
        );
        assert_eq!(
            offered(&[dbt, ("dbt_packages/x/orders.yml", model)]),
            ["dbt dbt ."]
        );
        let nested = [
            ("shop/dbt_project.yml", "name: x\n"),
            ("shop/models/orders.yml", model),
        ];
        assert_eq!(
            offered(&nested),
            ["shop dbt shop", "shop-metricflow metricflow shop"]
        );
        let alone = [
            ("flow/orders.yaml", model),
            ("flow/more/users.yml", model),
            ("README.md", "# About\n"),
        ];
        assert_eq!(offered(&alone), ["flow metricflow flow"]);
    }
}
