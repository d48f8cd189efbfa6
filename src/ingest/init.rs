//! Proposes the first `ktx.yaml` of a directory: the connections that its files suggest.
//!
//! It must not write anything.

use std::{fmt::Write as _, io::Read as _, path::Path};

use serde_json::Value;

use super::{
    database::{self, WarehouseDriver},
    slug::slugify,
    source::{
        self, ProposedDatabase, ProposedLists, SourceTree,
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
    /// Lists of texts, by their keys.
    lists: ProposedLists,
    /// The id of a proposal for the same files. The file then has this one as a comment.
    pub alternative_to: Option<String>,
    /// The description of a database, which `location` names.
    database: Option<ProposedDatabase>,
}

/// The driver of connections that are a DuckDB file.
const DUCKDB: &str = WarehouseDriver::DuckDb.name();

/// Most projects whose databases are looked up.
const MAX_DATABASES: usize = 20;

/// Proposes connections for the files of `tree`, in the order of their drivers. Of the directory of the user, only what
/// belongs to the tools of the sources is read.
pub fn propose_connections(tree: &SourceTree, home: Option<&Path>) -> Vec<ProposedConnection> {
    let mut scan = ProposalScan::new(tree);
    let mut found = Vec::new();
    for adapter in source::adapters() {
        let folders = adapter.propose(&scan);
        for folder in &folders {
            found.push((
                adapter.name(),
                *folder,
                adapter.proposed_lists(&scan, folder),
            ));
        }
        let named = folders.into_iter().map(|folder| (adapter.name(), folder));
        scan.found.extend(named);
    }
    for path in scan.paths() {
        let driver = database_driver(tree, path);
        found.extend(driver.map(|driver| (driver, *path, Vec::new())));
    }
    let mut proposals = assign_ids(found);
    let mut described: Vec<ProposedDatabase> = Vec::new();
    for (driver, folder) in scan.found.iter().take(MAX_DATABASES) {
        let adapter = source::find_adapter(driver);
        let database = adapter.and_then(|adapter| adapter.proposed_database(tree, folder, home));
        // The file of a DuckDB database was found already, or does not exist yet.
        let is_found = |database: &ProposedDatabase| {
            described.contains(database)
                || database.driver == DUCKDB
                    && proposals.iter().any(|proposal| proposal.driver == DUCKDB)
        };
        let database = database.filter(|database| !is_found(database));
        described.extend(database);
    }
    for database in described {
        proposals.push(ProposedConnection {
            id: free_id(&proposals, &database.name, database.driver),
            driver: database.driver,
            location: database.file.clone(),
            lists: Vec::new(),
            alternative_to: None,
            database: Some(database),
        });
    }
    proposals
}

/// True if the files of a proposal describe tables of a warehouse, and none of the proposals is one.
pub fn lacks_warehouse(proposals: &[ProposedConnection]) -> bool {
    let describes = |proposal: &ProposedConnection| {
        source::find_adapter(proposal.driver).is_some_and(|adapter| adapter.describes_warehouse())
    };
    proposals.iter().any(describes)
        && !proposals
            .iter()
            .any(|proposal| source::is_database_driver(proposal.driver))
}

/// Renders a `ktx.yaml` with these connections.
pub fn render_ktx_yaml(proposals: &[ProposedConnection]) -> String {
    let mut sections = [String::new(), String::new()];
    for proposal in proposals {
        let (section, margin) = if source::is_ktx_driver(proposal.driver) {
            (&mut sections[0], "  ")
        } else {
            (&mut sections[1], "    ")
        };
        let mut comment = "";
        if let Some(other) = &proposal.alternative_to {
            let _ = writeln!(
                section,
                "{margin}# Reads files of `{other}`. Use one of them, or pay for these files twice."
            );
            comment = "# ";
        }
        for line in proposal.lines() {
            let _ = writeln!(section, "{margin}{comment}{line}");
        }
    }
    let [for_both, for_us] = sections;
    let mut text = String::new();
    if !for_both.is_empty() {
        let _ = write!(text, "connections:\n{for_both}");
    }
    if !for_us.is_empty() {
        text.push_str("# KTX ignores this section with a warning: it refuses the drivers of these connections.\n");
        let _ = write!(text, "ingestdeck:\n  connections:\n{for_us}");
    }
    text.push_str("llm:\n  provider:\n    backend: claude-code\n  models:\n    default: sonnet\n");
    text.push_str("ingest:\n  workUnits:\n    stepBudget: 40\n    maxConcurrency: 2\n    failureMode: continue\n");
    text
}

impl ProposedConnection {
    /// Its lines in a section with connections.
    fn lines(&self) -> Vec<String> {
        if let Some(database) = &self.database {
            return self.database_lines(database);
        }
        let adapter = source::find_adapter(self.driver);
        let section = adapter.and_then(|adapter| adapter.section());
        let key = adapter.map_or("path", |adapter| adapter.location_key());
        let place = match key {
            "repoUrl" => format!("file:{}", self.location.replace('%', "%25")),
            _ => self.location.clone(),
        };
        let mut lines = vec![
            format!("{}:", self.id),
            format!("  driver: {}", self.driver),
        ];
        lines.extend(section.map(|section| format!("  {section}:")));
        let margin = if section.is_some() { "    " } else { "  " };
        // Every JSON string is also a valid YAML string.
        lines.push(format!("{margin}{key}: {}", Value::from(place)));
        for (key, texts) in &self.lists {
            lines.push(format!("  {key}:"));
            lines.extend(
                texts
                    .iter()
                    .map(|text| format!("    - {}", Value::from(&**text))),
            );
        }
        lines
    }

    /// Its lines if a file describes it. All values are references to variables.
    fn database_lines(&self, database: &ProposedDatabase) -> Vec<String> {
        let prefix = self.id.to_ascii_uppercase().replace('-', "_");
        let named = |key: &str| format!("{prefix}_{}", key.to_ascii_uppercase());
        let url = database.scheme.map(|_| ("url", None));
        let keys = url.iter().chain(&database.keys);
        let keys: Vec<(&str, String, bool)> = keys
            .map(|(key, variable)| match variable {
                Some(variable) => (*key, variable.clone(), false),
                None => (*key, named(key), true),
            })
            .collect();
        let missing: Vec<&str> = keys
            .iter()
            .filter(|(.., new)| *new)
            .map(|(_, name, _)| &**name)
            .collect();
        let mut lines = vec![format!("{}:", self.id)];
        if !missing.is_empty() {
            let example = database.scheme.map_or(String::new(), |scheme| {
                format!(", as in {scheme}://USER:PASSWORD@HOST:PORT/DATABASE")
            });
            let file = Value::from(&*database.file);
            lines.push(format!(
                "  # Set {} to what {file} has{example}.",
                missing.join(", ")
            ));
        }
        lines.push(format!("  driver: {}", self.driver));
        lines.extend(
            keys.iter()
                .map(|(key, variable, _)| format!("  {key}: \"env:{variable}\"")),
        );
        lines
    }
}

/// The driver of a file that is a database, by its first bytes instead of its name.
fn database_driver(tree: &SourceTree, path: &str) -> Option<&'static str> {
    let mut head = [0; 16];
    if !has_extension(path, &["db", "sqlite", "sqlite3", "duckdb", "ddb"]) {
        return None;
    }
    let mut file = ScopedDir::open(&tree.root).ok()?.open_file(path).ok()?.0;
    file.read_exact(&mut head).ok()?;
    match &head {
        b"SQLite format 3\0" => Some(database::DRIVER),
        // A checksum of eight bytes is in front.
        [_, _, _, _, _, _, _, _, b'D', b'U', b'C', b'K', ..] => Some(DUCKDB),
        _ => None,
    }
}

fn assign_ids(found: Vec<(&'static str, &str, ProposedLists)>) -> Vec<ProposedConnection> {
    let mut proposals: Vec<ProposedConnection> = Vec::new();
    for (driver, place, lists) in found {
        let last = split(place).1;
        let name = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
        let id = free_id(&proposals, name, driver);
        let location = if place.is_empty() { "." } else { place }.to_owned();
        let other = source::find_adapter(driver).and_then(|adapter| adapter.alternative_to());
        let is_same = |proposal: &&ProposedConnection| {
            Some(proposal.driver) == other && proposal.location == location
        };
        let same = proposals.iter().find(is_same);
        proposals.push(ProposedConnection {
            id,
            driver,
            alternative_to: same.map(|other| other.id.clone()),
            location,
            lists,
            database: None,
        });
    }
    proposals
}

/// An id from `name` that no proposal has.
fn free_id(proposals: &[ProposedConnection], name: &str, driver: &str) -> String {
    let name = match slugify(name) {
        empty if empty.is_empty() => driver.to_owned(),
        name => name,
    };
    let taken = |id: &str| proposals.iter().any(|proposal| proposal.id == id);
    std::iter::once(name.clone())
        .chain(std::iter::once(format!("{name}-{driver}")))
        .chain((2..).map(|number| format!("{name}-{driver}-{number}")))
        .find(|id| !taken(id))
        .unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        project::Project,
        source::{RawFile, tree_of},
    };

    fn render_ids(proposals: &[ProposedConnection]) -> Vec<String> {
        proposals
            .iter()
            .map(|found| {
                let instead = found.alternative_to.as_deref();
                let instead = instead.map_or(String::new(), |id| format!(" or {id}"));
                format!("{} {} {}{instead}", found.id, found.driver, found.location)
            })
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
        render_ids(&propose_connections(&tree, None))
    }

    #[test]
    fn files_suggest_connections() {
        let paths = [
            "README.md",
            "sources/dbt/dbt_project.yml",
            "sources/dbt/models/a.md",
            "sources/dbt/models/b.md",
        ];
        assert_eq!(
            proposed(&paths),
            ["dbt dbt sources/dbt", "models docs sources/dbt/models"]
        );
        assert_eq!(
            proposed(&["dbt_project.yml", "docs/a.md", "README.md"]),
            ["dbt dbt .", "docs docs docs"]
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
        assert_eq!(proposed(&paths), ["docs docs ."]);
        assert_eq!(
            proposed(&["README.md", "pricing.md", "x.db", "wiki/global/a.md"]),
            ["docs docs ."]
        );
        assert_eq!(proposed(&["pricing.md", "notes/a.md"]), ["docs docs ."]);
        assert_eq!(
            proposed(&["pricing.md", "dbt_project.yml"]),
            ["dbt dbt .", "docs docs ."]
        );
        let rules = ["rules/code-of-conduct.md", "rules/changes-after-pr.md"];
        assert_eq!(proposed(&rules), ["rules docs rules"]);
        assert!(
            proposed(&[
                "README.md",
                "CHANGELOG-2.md",
                "CHANGES.md",
                "docs/code_of_conduct.md",
                "LICENSE.md",
                "requirements.txt",
                "robots.txt",
                "code-of-conduct.md",
                "agents/skills/sql/SKILL.md",
                "agents/skills/sql/joins.md",
                "third_party/x/guide.md",
            ])
            .is_empty()
        );
        assert_eq!(
            proposed(&["site/guide/a.mdx", "site/guide/more/b.rst"]),
            ["guide docs site/guide"]
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
        let paths = ["a", "b", "c"].map(|folder| format!("{folder}/shop/dbt_project.yml"));
        assert_eq!(
            proposed(&paths.each_ref().map(String::as_str)),
            [
                "shop dbt a/shop",
                "shop-dbt dbt b/shop",
                "shop-dbt-2 dbt c/shop"
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
            render_ids(&propose_connections(&tree, None))
        };
        let dbt = ("dbt_project.yml", "name: x\n");
        assert_eq!(
            offered(&[dbt, ("models/orders.yml", model)]),
            ["dbt dbt .", "metricflow metricflow . or dbt"]
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
            ["shop dbt shop", "shop-metricflow metricflow shop or shop"]
        );
        let alone = [
            ("flow/orders.yaml", model),
            ("flow/more/users.yml", model),
            ("README.md", "# About\n"),
        ];
        assert_eq!(offered(&alone), ["flow metricflow flow"]);
    }

    /// Writes the file for `files`, and returns its text and the project.
    fn written(files: &[(&str, &str)]) -> (tempfile::TempDir, String, Project) {
        let (dir, tree) = tree_of(files);
        let text = render_ktx_yaml(&propose_connections(&tree, None));
        std::fs::write(dir.path().join("ktx.yaml"), &text).unwrap();
        let project = Project::open(dir.path()).unwrap();
        assert_eq!(project.warnings, []);
        (dir, text, project)
    }

    const EVERY_KIND: [(&str, &str); 9] = [
        ("shop/dbt_project.yml", "name: shop\n"),
        ("shop/models/a.yml", "models: []\n"),
        ("shop/models/m.yml", "semantic_models:\n  - name: orders\n"),
        ("shop/docs/no.md", "{% docs no %}No{% enddocs %}\n"),
        ("bi 100%41/a.model.lkml", "explore: a {}\n"),
        (
            "flow/m.yml",
            "semantic_models:\n  - name: users\n    model: ref('users')\n",
        ),
        ("x.db", "SQLite format 3\0"),
        ("notes [1]/a.md", "# A\n"),
        ("more/skills/sql/SKILL.md", "# Skill\n"),
    ];

    #[test]
    fn written_file_is_one_that_ktx_accepts() {
        let (_dir, text, project) = written(&EVERY_KIND);
        let document = crate::yaml::parse_tree(&text).unwrap().to_json();
        // KTX knows these sections, and names and ignores others.
        let sections: Vec<&String> = document.as_object().unwrap().keys().collect();
        assert_eq!(sections, ["connections", "ingestdeck", "llm", "ingest"]);
        for (id, keys) in document["connections"].as_object().unwrap() {
            let text = |pointer: &str| keys.pointer(pointer).and_then(Value::as_str);
            let required = match text("/driver").unwrap() {
                "dbt" => "/source_dir",
                "lookml" => "/repoUrl",
                "metricflow" => "/metricflow/repoUrl",
                "sqlite" => "/path",
                other => panic!("KTX has no driver {other}"),
            };
            assert!(!text(required).unwrap().is_empty(), "{id}: {keys}");
        }
        let plan = crate::plan(&project, &crate::UnitSelection::default()).unwrap();
        assert_eq!(
            (plan.skipped.len(), plan.warnings.len()),
            (0, 0),
            "{:?}",
            plan.warnings
        );
        let read: Vec<&String> = plan
            .units
            .iter()
            .flat_map(|unit| &unit.planned.raw_files)
            .collect();
        let expected = [
            "dbt_project.yml",
            "models/a.yml",
            "models/m.yml",
            "a.model.lkml",
            "m.yml",
            "a.md",
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn pages_of_other_connections_are_excluded() {
        let block = "{% docs a %}A{% enddocs %}\n";
        let mut files = EVERY_KIND.to_vec();
        files.extend([
            ("top.mdx", "# Top\n"),
            ("LICENSE.md", "MIT\n"),
            ("lib/CHANGELOG.md", "1.0\n"),
            ("shop/README.md", "# Shop\n"),
            ("shop/models/x/docs.md", block),
            ("shop/models/x/notes.md", "# X\n"),
            ("shop/models/y/Docs.md", block),
            ("shop/models/y/z/more.md", block),
            ("shop/models/z/notes.md", "# Z\n"),
            ("shop/macros/a.md", block),
            ("shop/macros/deep/b.md", block),
        ]);
        let (_dir, text, project) = written(&files);
        let (_, patterns) = text.split_once("third_party/**\"\n").unwrap();
        let (patterns, _) = patterns.split_once("llm:").unwrap();
        insta::assert_snapshot!(patterns, @r#"
        - "CODE[-_]OF[-_]CONDUCT*"
        - "docs/CODE[-_]OF[-_]CONDUCT*"
        - "more/skills/**"
        - "shop/docs/no.md"
        - "shop/macros/**"
        - "**/docs.md"
        - "shop/models/y/z/more.md"
        "#);
        let plan = crate::plan(&project, &crate::UnitSelection::default()).unwrap();
        let docs = plan
            .units
            .iter()
            .filter(|unit| unit.planned.connection == "docs");
        let read: Vec<&String> = docs.flat_map(|unit| &unit.planned.raw_files).collect();
        let expected = [
            "notes [1]/a.md",
            "shop/README.md",
            "shop/models/x/notes.md",
            "shop/models/z/notes.md",
            "top.mdx",
        ];
        assert_eq!(read, expected);
    }

    const PROJECT: (&str, &str) = ("dbt_project.yml", "name: x\nprofile: my shop\n");

    /// The part of a `ktx.yaml` about the database, for a `profiles.yml` in the project or in the directory of the user.
    fn database_of(files: &[(&str, &str)], home: Option<&Path>) -> String {
        let (dir, tree) = tree_of(files);
        let text = render_ktx_yaml(&propose_connections(&tree, home));
        std::fs::write(dir.path().join("ktx.yaml"), &text).unwrap();
        assert_eq!(Project::open(dir.path()).unwrap().warnings, []);
        assert!(!text.contains("hunter2"), "{text}");
        let (_, rest) = text.split_once("source_dir: \".\"\n").unwrap();
        rest.split_once("llm:").unwrap().0.to_owned()
    }

    #[test]
    fn profile_of_dbt_becomes_a_connection_without_secrets() {
        let of = |outputs: &str| {
            let text = format!("other: {{}}\nmy shop:\n  target: prod\n  outputs:\n{outputs}");
            database_of(&[PROJECT, ("profiles.yml", &text)], None)
        };
        let servers = [
            "    prod: {type: postgres, host: \"{{ env_var('PG_HOST') }}\", port: 5432, dbname: \"{{ env_var('DB') }}\", user: \"{{ env_var('U') }}\", pass: \"{{ env_var('P', 'hunter2') }}\"}\n",
            "    prod: {type: postgres, host: hunter2, user: hunter2, password: \"{{ env_var('P') }}\", port: 1}\n",
            "    dev: {type: snowflake, account: hunter2, user: \"{{ env_var('U') }}\", password: hunter2}\n",
            "    prod: {type: bigquery, method: oauth, dataset: hunter2}\n",
        ];
        insta::assert_snapshot!(servers.map(of).join("\n"), @r#"
        my-shop:
          driver: postgres
          host: "env:PG_HOST"
          database: "env:DB"
          username: "env:U"
          password: "env:P"

        my-shop:
          # Set MY_SHOP_URL to what "profiles.yml" has, as in postgresql://USER:PASSWORD@HOST:PORT/DATABASE.
          driver: postgres
          url: "env:MY_SHOP_URL"
          password: "env:P"

        my-shop:
          # Set MY_SHOP_ACCOUNT, MY_SHOP_PASSWORD to what "profiles.yml" has.
          driver: snowflake
          account: "env:MY_SHOP_ACCOUNT"
          username: "env:U"
          password: "env:MY_SHOP_PASSWORD"

        my-shop:
          # Set MY_SHOP_CREDENTIALS_JSON, MY_SHOP_DATASET_ID to what "profiles.yml" has.
          driver: bigquery
          credentials_json: "env:MY_SHOP_CREDENTIALS_JSON"
          dataset_id: "env:MY_SHOP_DATASET_ID"
        "#);
        let ours = [
            "    prod: {type: redshift, host: \"{{ env_var('H') }}\", dbname: hunter2, user: hunter2, password: hunter2}\n",
            "    prod: {type: databricks, host: hunter2, http_path: \"{{ env_var('H') }}\", token: \"{{ env_var('T') }}\"}\n",
            "    prod: {type: duckdb, path: hunter2}\n",
        ];
        insta::assert_snapshot!(ours.map(of).join("\n"), @r#"
        # KTX ignores this section with a warning: it refuses the drivers of these connections.
        ingestdeck:
          connections:
            my-shop:
              # Set MY_SHOP_URL to what "profiles.yml" has, as in redshift://USER:PASSWORD@HOST:PORT/DATABASE.
              driver: redshift
              url: "env:MY_SHOP_URL"
              host: "env:H"

        # KTX ignores this section with a warning: it refuses the drivers of these connections.
        ingestdeck:
          connections:
            my-shop:
              # Set MY_SHOP_HOST to what "profiles.yml" has.
              driver: databricks
              host: "env:MY_SHOP_HOST"
              http_path: "env:H"
              token: "env:T"

        # KTX ignores this section with a warning: it refuses the drivers of these connections.
        ingestdeck:
          connections:
            my-shop:
              # Set MY_SHOP_PATH to what "profiles.yml" has.
              driver: duckdb
              path: "env:MY_SHOP_PATH"
        "#);
        for unknown in [
            "    prod: {type: hunter2}\n",
            "    prod: hunter2\n",
            "    [hunter2\n",
            "    prod: {type: [postgres], password: hunter2}\n",
        ] {
            assert_eq!(of(unknown), "");
        }
    }

    #[test]
    fn database_files_are_recognised_by_their_content() {
        let duckdb = "12345678DUCK@\0\0\0";
        let files = [
            ("dbt_project.yml", "name: x\nprofile: p\n"),
            (
                "profiles.yml",
                "p: {outputs: {default: {type: duckdb, path: shop.duckdb}}}\n",
            ),
            ("shop.duckdb", duckdb),
            ("no.duckdb", "text"),
            ("lite.db", "SQLite format 3\0"),
        ];
        let (dir, _) = tree_of(&files);
        let tree = SourceTree::walk(dir.path(), &|_| true).unwrap();
        assert_eq!(
            render_ids(&propose_connections(&tree, None)),
            [
                "dbt dbt .",
                "lite sqlite lite.db",
                "shop duckdb shop.duckdb"
            ]
        );
    }

    #[test]
    fn profile_is_read_where_dbt_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let profile = "my shop: {outputs: {default: {type: mysql, password: hunter2}}}\n";
        std::fs::create_dir(home.path().join(".dbt")).unwrap();
        std::fs::write(home.path().join(".dbt/profiles.yml"), profile).unwrap();
        let found = database_of(&[PROJECT], Some(home.path()));
        assert!(
            found.contains("driver: mysql") && found.contains("~/.dbt/profiles.yml"),
            "{found}"
        );
        let inside = [PROJECT, ("profiles.yml", "other: {}\n")];
        assert_eq!(
            database_of(&inside, Some(home.path())),
            "",
            "the file in the project counts alone"
        );
        // A link leads out of the project.
        let (dir, tree) = tree_of(&[PROJECT]);
        let target = home.path().join(".dbt/profiles.yml");
        std::os::unix::fs::symlink(&target, dir.path().join("profiles.yml")).unwrap();
        let proposals = propose_connections(&tree, None);
        assert_eq!(render_ids(&proposals), ["dbt dbt ."]);
    }

    #[test]
    fn whatever_is_found_is_written_and_planned() {
        use proptest::prelude::*;
        let names = "([a-c é'\"#%*{\\[]{0,2}[a-cé'\"#%*{\\[]/){0,3}(skills/)?(dbt_project\\.yml|a\\.md|b\\.RST|README\\.md|SKILL\\.md|b\\.lkml|m\\.yml|LICENSE\\.md)";
        proptest!(ProptestConfig::with_cases(48), |(paths in prop::collection::btree_set(names, 1..12))| {
            let text = "semantic_models:\n  - name: o\n";
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (&**path, text)).collect();
            let (dir, tree) = tree_of(&files);
            let proposals = propose_connections(&tree, None);
            std::fs::write(dir.path().join("ktx.yaml"), render_ktx_yaml(&proposals)).unwrap();
            let project = Project::open(dir.path()).unwrap();
            prop_assert_eq!(&project.warnings, &[]);
            let written = project.settings.connections.iter().map(|of| (&*of.id, of.driver.as_deref().unwrap()));
            let mut found: Vec<_> = proposals.iter().filter(|of| of.alternative_to.is_none()).map(|of| (&*of.id, of.driver)).collect();
            found.sort_by_key(|(_, driver)| !source::is_ktx_driver(driver));
            prop_assert_eq!(written.collect::<Vec<_>>(), found);
            if !proposals.is_empty() {
                let plan = crate::plan(&project, &crate::UnitSelection::default()).unwrap();
                let skipped: Vec<String> = plan.skipped.iter().map(|of| of.problem.to_string()).collect();
                prop_assert!(skipped.is_empty(), "{skipped:?}");
            }
        });
    }
}
