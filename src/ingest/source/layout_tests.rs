//! Random layouts of sources: every file that the tool of a source reads is a raw file of exactly one unit, and every
//! other file of none. A warning counts the other files that a user would expect to be read.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::subsequence};

use super::{
    SourceAdapter,
    dbt::DbtAdapter,
    docs::DocsAdapter,
    fake::FakeAdapter,
    lookml::LookmlAdapter,
    metricflow::MetricflowAdapter,
    notion::NotionAdapter,
    tests::{anywhere, tree_of},
};

/// Cuts `files` and compares the raw files of the units with what the tool reads. `left` is the number of other files
/// that warnings count.
fn check(
    adapter: &dyn SourceAdapter,
    files: &BTreeMap<String, String>,
    is_read: &dyn Fn(&str) -> bool,
    left: usize,
) -> Result<(), TestCaseError> {
    let list: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    let (dir, _) = tree_of(&list);
    let root = dir.path().canonicalize().unwrap();
    let tree = adapter.list_files(anywhere(), Ok(root)).unwrap();
    let read: Vec<&String> = files.keys().filter(|path| is_read(path)).collect();
    let chunks = match adapter
        .detect(&tree)
        .and_then(|()| adapter.chunk(&tree, anywhere()))
    {
        Ok(chunks) => chunks,
        Err(why) => {
            prop_assert!(read.is_empty(), "{why}: {read:?}");
            return Ok(());
        }
    };
    let mut raw: Vec<&String> = chunks
        .units
        .iter()
        .flat_map(|unit| &unit.raw_files)
        .collect();
    raw.sort();
    prop_assert_eq!(raw, read, "{} {:?}", adapter.name(), chunks.warnings);
    let others = "files outside of a folder";
    let counted = chunks.warnings.iter();
    let counted = counted.filter(|warning| !warning.to_string().starts_with(others));
    let counted = counted.map(|warning| warning.files().len());
    prop_assert_eq!(counted.sum::<usize>(), left, "{:?}", chunks.warnings);
    Ok(())
}

/// A dbt project below `folder`, in which `models` and `seeds` are model-paths.
#[derive(Clone, Debug)]
struct Layout {
    model_paths: Vec<&'static str>,
    target: Option<&'static str>,
    packages: Option<&'static str>,
}

impl Layout {
    fn settings(&self) -> String {
        let list = self.model_paths.join(", ");
        let setting = |key: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!("{key}: {value}\n"))
        };
        format!(
            "name: x\nmodel-paths: [{list}]\n{}{}",
            setting("target-path", self.target),
            setting("packages-install-path", self.packages)
        )
    }

    /// Folders that dbt reads, and those that it generates.
    fn dirs(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let defaults = [
            "seeds",
            "snapshots",
            "analyses",
            "macros",
            "tests",
            "functions",
        ];
        let output = ["target", "logs", "dbt_packages", "dbt_modules"];
        (
            self.model_paths.iter().copied().chain(defaults).collect(),
            output
                .into_iter()
                .chain(self.target)
                .chain(self.packages)
                .collect(),
        )
    }

    fn reads(&self, path: &str) -> bool {
        let (resources, generated) = self.dirs();
        let within = |dirs: &[&str]| {
            let containing = dirs
                .iter()
                .filter(|dir| path.starts_with(&format!("{dir}/")));
            containing.map(|dir| dir.len()).max()
        };
        within(&resources).is_some() && within(&resources) >= within(&generated)
            || ["dbt_project.yml", "packages.yml"].contains(&path)
    }

    /// True for a file whose absence is expected, because dbt wrote it.
    fn is_output(&self, path: &str) -> bool {
        let (_, generated) = self.dirs();
        generated
            .iter()
            .any(|dir| path.starts_with(&format!("{dir}/")))
            && !self.reads(path)
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    let model_paths = subsequence(
        vec!["models", "transform", "marts/deep", "build/models", "build"],
        1..3,
    );
    let target = prop::option::of(prop::sample::select(vec!["build", "out/target"]));
    let packages = prop::option::of(prop::sample::select(vec!["vendor", "lib/dbt"]));
    (model_paths, target, packages).prop_map(|(model_paths, target, packages)| Layout {
        model_paths,
        target,
        packages,
    })
}

const PATH: &str = "((models|transform|marts/deep|marts|seeds|macros|build|build/models|target|vendor/p|lib/dbt/p|dbt_packages/p|docs|models/target)/)?[a-h]{1,2}\\.(yml|yaml|md|sql)";

fn yaml_files(count: std::ops::Range<usize>) -> impl Strategy<Value = BTreeMap<String, String>> {
    let texts = vec![
        "models: [{name: m}]",
        "text: 1",
        "semantic_models: [{name: s, model: ref('m')}]",
        "metrics: [{name: x, type: simple, type_params: {measure: y}}]",
        "models: [{name: m, semantic_model: true}]",
        "models: [{name: m, semantic_model: {enabled: true}, metrics: [{name: x, agg: sum}]}]",
        "models: [{name: m, semantic_model: {enabled: false}, metrics: [{name: x, agg: sum}]}]",
        "models: [{name: m, time_spine: {standard_granularity_column: d}}]",
        "saved_queries: [{name: q, query_params: {metrics: [x]}}]",
        "metrics: [{name: x, type: odd}]",
        "text: '{% docs x %} {% enddocs %}'",
    ];
    prop::collection::btree_map(
        PATH,
        prop::sample::select(texts).prop_map(str::to_owned),
        count,
    )
}

fn is_yaml(path: &str) -> bool {
    path.ends_with(".yml") || path.ends_with(".yaml")
}

/// Whether a text of [`yaml_files`] has a part of the semantic layer.
fn is_semantic(text: &str) -> bool {
    let others = ["models: [{name: m}]", "text: "];
    !others.iter().any(|other| text.starts_with(other))
        && !text.contains("enabled: false")
        && !text.contains("type: odd")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn files_that_dbt_reads_are_in_one_unit(
        layout in layouts(),
        nested in prop::option::of(layouts()),
        files in prop_oneof![yaml_files(1..12), yaml_files(30..60)],
    ) {
        let mut files = files;
        files.insert("dbt_project.yml".into(), layout.settings());
        files.insert("packages.yml".into(), "packages: []".into());
        if let Some(nested) = &nested {
            let below: Vec<(String, String)> =
                files.iter().map(|(path, text)| (format!("sub/{path}"), text.clone())).collect();
            files.extend(below);
            files.insert("sub/dbt_project.yml".into(), nested.settings());
        }
        let of = |path: &str, test: &dyn Fn(&Layout, &str) -> bool| match (path.strip_prefix("sub/"), &nested) {
            (Some(inner), Some(nested)) => test(nested, inner),
            _ => test(&layout, path),
        };
        // As in KTX, a file that describes objects of dbt is read wherever it is.
        let describes = |path: &str| {
            is_yaml(path) && !files[path].starts_with("text: ") && !files[path].starts_with("name: ") && !of(path, &Layout::is_output)
        };
        let is_read = |path: &str| {
            let is_kind = is_yaml(path) || path.ends_with(".md") && files[path].contains("{% docs");
            is_kind && of(path, &Layout::reads) || describes(path)
        };
        let is_left = |path: &str| is_yaml(path) && !is_read(path) && !of(path, &Layout::is_output);
        let left = files.keys().filter(|path| is_left(path)).count();
        check(&DbtAdapter, &files, &is_read, left)?;

        let is_property = |path: &str| is_yaml(path) && !of(path, &Layout::is_output) && !["dbt_project.yml", "packages.yml"].iter().any(|name| path.ends_with(name));
        let has_content = |path: &str| is_property(path) && is_semantic(&files[path]);
        let without = files.keys().filter(|path| is_property(path) && !has_content(path)).count();
        check(&MetricflowAdapter, &files, &has_content, without)?;
    }

    #[test]
    fn semantic_files_without_a_dbt_project_are_in_one_unit(files in yaml_files(1..20)) {
        let is_read = |path: &str| is_yaml(path) && is_semantic(&files[path]);
        let left = files.keys().filter(|path| is_yaml(path) && !is_read(path)).count();
        check(&MetricflowAdapter, &files, &is_read, left)?;
    }

    #[test]
    fn files_of_looker_are_in_one_unit(
        files in prop::collection::btree_map(
            "((views|models|imported_projects/p|views/deep)/)?([ab]\\.(model|view|explore|dashboard)\\.(lkml|lookml)|manifest\\.lkml|c\\.lkml|d\\.md)",
            prop::sample::select(vec![
                "include: \"/views/*.view\"\nexplore: a {}", "include: \"**/*.lkml\"", "include: \"../*.view\"", "view: v { extends: [w] }",
                "project_name: \"p\"", "- dashboard: d", "include: \"/models/*.model\"", "",
            ]).prop_map(str::to_owned),
            1..16,
        ),
    ) {
        check(&LookmlAdapter, &files, &|path| path.ends_with("lkml") || path.ends_with("lookml"), 0)?;
    }

    #[test]
    fn documents_pages_and_folders_are_in_one_unit(
        files in prop::collection::btree_map(
            "((a|pages/b|node_modules/x|a/venv)/)?(page\\.md|metadata\\.json|x\\.(md|txt|json)|y\\.markdown)",
            "[a-z]{1,9}",
            1..12,
        ),
    ) {
        let is_document = |path: &str| {
            !path.ends_with(".json") && !path.contains("node_modules/") && !path.contains("venv/")
        };
        check(&DocsAdapter, &files, &is_document, 0)?;
        check(&FakeAdapter, &files, &|path| path.contains('/'), 0)?;
        let is_page = |path: &str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or_default();
            ["page.md", "metadata.json"].contains(&name) && files.contains_key(&format!("{folder}/page.md"))
        };
        let left = files.keys().filter(|path| path.ends_with(".md") && !is_page(path)).count();
        check(&NotionAdapter, &files, &is_page, left)?;
    }
}
