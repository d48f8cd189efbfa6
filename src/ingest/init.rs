//! Proposes the first `ktx.yaml` of a directory: the connections that its files suggest.
//!
//! It must not write anything.

use std::{fmt::Write as _, io::Read as _};

use super::{
    database,
    slug::slugify,
    source::{
        self, SourceTree,
        proposal::{ProposalScan, split},
        tree::has_extension,
    },
};
use ingestdeck_os::scoped_dir::ScopedDir;

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
    let mut scan = ProposalScan::new(tree);
    for adapter in source::adapters() {
        let folders = adapter.propose(&scan);
        let named = folders.into_iter().map(|folder| (adapter.name(), folder));
        scan.found.extend(named);
    }
    let is_ours = |path: &&&str| is_database(tree, path);
    let databases: Vec<&str> = scan.paths().iter().filter(is_ours).copied().collect();
    let databases = databases.into_iter().map(|path| (database::DRIVER, path));
    let found: Vec<_> = scan.found.iter().copied().chain(databases).collect();
    assign_ids(&found)
}

/// True if the files of a proposal describe tables of a warehouse, and none of the proposals is one.
pub fn lacks_warehouse(proposals: &[ProposedConnection]) -> bool {
    let describes = |proposal: &ProposedConnection| {
        source::find_adapter(proposal.driver).is_some_and(|adapter| adapter.describes_warehouse())
    };
    proposals.iter().any(describes)
        && !proposals
            .iter()
            .any(|proposal| proposal.driver == database::DRIVER)
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
        let key = if *driver == database::DRIVER {
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
    use crate::source::{RawFile, tree_of};

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
        let latest = "models:\n  - name: orders\n    semantic_model: true\n";
        assert_eq!(offered(&[("m/orders.yml", latest)]), ["m metricflow m"]);
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
