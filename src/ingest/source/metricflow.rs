//! The `metricflow` adapter: one unit per group of semantic models and metrics that refer to each other.
//!
//! Files are joined if a semantic model extends another, or a metric uses a measure. A file that has only saved queries or
//! time spines is a unit. This module must not interpret measures.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
};

mod projection;
mod semantic_file;

use super::{
    ChunkedSource, ProjectConnection, ProposalScan, ProposedLists, SourceAdapter, SourceDirError,
    SourceProjection, SourceTree, UnitChunk, collate,
    dbt::{
        DbtProjects, DbtReferences, has_login, integration_tests,
        project::{self, MoreFiles, is_yaml},
    },
    docs::SELECTION_KEYS,
    peers, proposal,
    references::{ReferenceReader, dbt_yaml},
    shared_names,
};
use crate::{
    connection::{Connection, KeySpec, ValueType},
    slug,
    untrusted_text::{squeezed_line, visible_path},
    yaml::{self, YamlNode, YamlValue},
};
use ingestdeck_core::diagnostic::{Diagnostic as _, Problem};
use semantic_file::SemanticFile;

#[derive(Debug)]
pub(crate) struct MetricflowAdapter;

/// Metric types of MetricFlow. Entries of other types are ignored.
const METRIC_TYPES: [&str; 5] = ["simple", "derived", "cumulative", "ratio", "conversion"];

/// The section of a connection in which KTX keeps its repository.
const SECTION: &str = "metricflow";

impl SourceAdapter for MetricflowAdapter {
    fn name(&self) -> &'static str {
        "metricflow"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            (
                SECTION,
                ValueType::OpenMap(&[
                    ("repoUrl", ValueType::Text),
                    ("branch", ValueType::Text),
                    ("path", ValueType::AnyText),
                    ("targetConnection", ValueType::Text),
                    ("auth_token", ValueType::Text),
                    ("auth_token_ref", ValueType::Text),
                ]),
            ),
            SELECTION_KEYS[0],
            SELECTION_KEYS[1],
        ]
    }

    fn section(&self) -> Option<&'static str> {
        Some(SECTION)
    }

    fn clone_dir(&self) -> &'static str {
        "ingest-metricflow-repos"
    }

    fn location_key(&self) -> &'static str {
        "repoUrl"
    }

    fn alternative_to(&self) -> Option<&'static str> {
        Some("dbt")
    }

    /// The dbt projects with semantic models, and the common folder of all other models.
    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        let has_models = |path: &&str| {
            is_yaml(path)
                && scan
                    .tree
                    .read_text(path)
                    .is_ok_and(|text| has_semantic_models(&text))
        };
        let (mut places, mut others) = (BTreeSet::new(), Vec::new());
        for path in scan.paths.iter().copied().filter(has_models) {
            let mut projects = scan.found.iter().filter(|(driver, _)| *driver == "dbt");
            match projects.find(|(_, place)| proposal::is_below(path, place)) {
                Some((_, place)) => drop(places.insert(*place)),
                None => others.push(path),
            }
        }
        places.extend(proposal::common_folder(&others));
        places.into_iter().collect()
    }

    fn proposed_lists(&self, scan: &ProposalScan<'_>, folder: &str) -> ProposedLists {
        integration_tests(scan, folder)
    }

    fn describes_warehouse(&self) -> bool {
        true
    }

    fn accepts_file(&self, path: &str) -> bool {
        is_yaml(path) && !has_login(path)
    }

    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        dir: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        project::list_files(origin, dir, MoreFiles::YamlOutside)
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if tree.files.is_empty() {
            Err(Problem::new("holds no .yml or .yaml file"))
        } else {
            Ok(())
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let mut project = MetricflowProject::default();
        let dbt = DbtProjects::from_tree(tree);
        let is_read = |path: &str| dbt.project_of_file(path).is_none() && !dbt.is_excluded(path);
        for file in tree.files.iter().filter(|file| is_read(&file.path)) {
            if let Err(why) = project.read(tree, &file.path) {
                project
                    .warnings
                    .push(format!("{} is in no unit: {why}", visible_path(&file.path)).into());
                project.damaged.push(file.path.clone());
            }
        }
        project.warnings.extend(dbt.warnings());
        if project.models.is_empty() && project.metrics.is_empty() && project.others.is_empty() {
            let first = project
                .warnings
                .first()
                .map(|warning| format!(" ({warning})"))
                .unwrap_or_default();
            return Err(Problem::new(format!(
                "none of its files has semantic models, metrics, saved queries or time spines{first}"
            )));
        }
        let without_content = project.files_without_content(tree, is_read);
        project.models.sort_by(|a, b| {
            collate::compare_names(&a.name, &b.name).then_with(|| a.path.cmp(&b.path))
        });
        let components =
            project.components(|path| dbt.owner(path).map_or("", |project| &project.file));
        let wished: Vec<(String, &str)> = components
            .iter()
            .map(|component| {
                (
                    format!("metricflow-{}", component.lead),
                    component.paths.first().map_or("", String::as_str),
                )
            })
            .collect();
        let all = shared_names(tree.files.iter().map(|file| file.path.as_str()));
        let units = slug::disambiguate_keys(&wished)
            .into_iter()
            .zip(&components)
            .map(|(key, component)| UnitChunk {
                key,
                label: Some(format!("MetricFlow \"{}\"", component.lead)),
                peer_file_index: peers(&all, &component.paths.iter().map(String::as_str).collect()),
                raw_files: component.paths.clone(),
                notes: Some(component.describe()),
                ..UnitChunk::default()
            })
            .collect();
        project.warnings.extend(without_content);
        Ok(ChunkedSource {
            units,
            warnings: project.warnings,
            ..ChunkedSource::default()
        })
    }

    fn project_sources(&self, tree: &SourceTree) -> SourceProjection {
        // Unreadable files are reported when the units are cut.
        let dbt = DbtProjects::from_tree(tree);
        let read = |path: &str| {
            let text = read_semantic_yaml(tree, path).ok()??;
            Some(SemanticFile::read(&yaml::from_str(&text).ok()?))
        };
        let files = tree
            .files
            .iter()
            .filter(|file| !dbt.is_excluded(&file.path))
            .filter_map(|file| Some((file.path.as_str(), read(&file.path)?)));
        projection::project_models(&files.collect::<Vec<(&str, SemanticFile)>>())
    }

    fn defined_names(&self, _: &str, text: &str) -> Option<BTreeSet<String>> {
        dbt_yaml::read(text).ok().map(|names| names.defines)
    }

    fn reference_reader<'a>(
        &self,
        _: &Connection,
        tree: &'a SourceTree,
        _: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        Some(Box::new(DbtReferences::without_sql(tree)))
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!(
            "../../../assets/skills/metricflow_ingest/SKILL.md"
        ))
    }
}

/// Whether the YAML in `text` defines semantic models. Searches only for the keys.
fn has_semantic_models(text: &str) -> bool {
    text.lines().any(|line| {
        let key = line.trim_start_matches([' ', '-']);
        line.starts_with("semantic_models:") || key != line && key.starts_with("semantic_model:")
    })
}

/// The text of `path` if it may contain a part of the semantic layer. Most YAML files of a dbt project contain other
/// things, and some are not valid YAML.
fn read_semantic_yaml(tree: &SourceTree, path: &str) -> io::Result<Option<String>> {
    let text = tree.read_text(path)?;
    Ok(semantic_file::MARKERS
        .iter()
        .any(|key| text.contains(key))
        .then_some(text))
}

#[derive(Debug, Default)]
struct MetricflowProject {
    models: Vec<ModelReferences>,
    metrics: Vec<MetricReferences>,
    others: Vec<OtherPart>,
    warnings: Vec<Problem>,
    /// Files that cannot be read or parsed.
    damaged: Vec<String>,
}

#[derive(Debug)]
struct ModelReferences {
    name: String,
    path: String,
    extends: Vec<String>,
    measures: Vec<String>,
}

#[derive(Debug)]
struct MetricReferences {
    name: String,
    path: String,
    uses: Vec<String>,
}

/// A saved query or a time spine. It joins no files.
#[derive(Debug)]
struct OtherPart {
    /// The key that has such parts.
    kind: &'static str,
    name: String,
    path: String,
}

/// Files that refer to each other.
#[derive(Debug)]
struct FileComponent {
    lead: String,
    paths: Vec<String>,
    /// The names of its parts, by the keys that have them.
    parts: [(&'static str, Vec<String>); 4],
}

impl FileComponent {
    fn describe(&self) -> String {
        let parts: Vec<_> = self
            .parts
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{kind}: {}", names.join(", ")))
            .collect();
        format!("MetricFlow component ({})", parts.join("; "))
    }
}

impl MetricflowProject {
    /// Files with a part of the semantic layer.
    fn used_paths(&self) -> BTreeSet<&str> {
        let models = self.models.iter().map(|model| model.path.as_str());
        models
            .chain(self.metrics.iter().map(|metric| metric.path.as_str()))
            .chain(self.others.iter().map(|part| part.path.as_str()))
            .collect()
    }

    /// The warning about the files that dbt reads and MetricFlow does not. A damaged file has another one.
    fn files_without_content(
        &self,
        tree: &SourceTree,
        is_read: impl Fn(&str) -> bool,
    ) -> Option<Problem> {
        let used = self.used_paths();
        let is_left = |path: &&str| {
            !used.contains(path)
                && is_read(path)
                && !["dbt_project.yml", "dbt_project.yaml"].contains(path)
                && !self.damaged.iter().any(|damaged| damaged == path)
        };
        let left: Vec<String> = tree
            .files
            .iter()
            .map(|file| file.path.as_str())
            .filter(is_left)
            .map(visible_path)
            .collect();
        let what = "YAML without semantic models, metrics with a known type, saved queries and time spines is in no unit";
        let help = "describe what agents should know in a semantic model or a metric, or read the files with a `dbt` connection";
        (!left.is_empty()).then(|| Problem::new(what).with_files(left).with_help(help))
    }

    fn read(&mut self, tree: &SourceTree, path: &str) -> Result<(), String> {
        let Some(text) = read_semantic_yaml(tree, path).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let value: YamlValue =
            yaml::from_str(&text).map_err(|error| yaml::explain(&text, &error).to_line())?;
        let file = SemanticFile::read(&value);
        for node in &file.semantic_models {
            if let Some(name) = node.text_at("name") {
                let measures = node
                    .value
                    .list("measures")
                    .filter_map(|node| node.text_at("name"));
                let (measures, extends) = (
                    measures.map(squeezed_line).collect(),
                    texts(node, "extends"),
                );
                self.models.push(ModelReferences {
                    name: squeezed_line(name),
                    path: path.to_owned(),
                    extends,
                    measures,
                });
            }
        }
        for node in &file.metrics {
            if let Some(name) = node.text_at("name")
                && let Some(kind) = node
                    .text_at("type")
                    .filter(|kind| METRIC_TYPES.contains(kind))
            {
                let uses = uses(node, kind);
                self.metrics.push(MetricReferences {
                    name: squeezed_line(name),
                    path: path.to_owned(),
                    uses,
                });
            }
        }
        for (kind, names) in [
            ("saved_queries", &file.saved_queries),
            ("time_spines", &file.time_spines),
        ] {
            self.others.extend(names.iter().map(|name| OtherPart {
                kind,
                name: squeezed_line(name),
                path: path.to_owned(),
            }));
        }
        Ok(())
    }

    /// The groups of files that refer to each other. `project_of` returns the folder of the project of a file.
    fn components<'a>(&'a self, project_of: impl Fn(&str) -> &'a str) -> Vec<FileComponent> {
        let mut sets = PathUnionFind::new(self.used_paths().into_iter());
        // A name means that of the own project, if there is one.
        let mut model_at: BTreeMap<(Option<&str>, &str), &str> = BTreeMap::new();
        let mut measure_at: BTreeMap<(Option<&str>, &str), &str> = BTreeMap::new();
        for model in &self.models {
            for project in [None, Some(project_of(&model.path))] {
                model_at.insert((project, &model.name), &model.path);
                for measure in &model.measures {
                    let measure = measure_at.entry((project, measure));
                    measure.or_insert(&model.path);
                }
            }
        }
        let find = |at: &BTreeMap<(Option<&str>, &str), &'a str>, path: &str, name: &str| {
            let own = at.get(&(Some(project_of(path)), name));
            own.or_else(|| at.get(&(None, name))).copied()
        };
        for model in &self.models {
            for parent in model
                .extends
                .iter()
                .filter_map(|name| find(&model_at, &model.path, name))
            {
                sets.join(&model.path, parent);
            }
        }
        for metric in &self.metrics {
            for owner in metric
                .uses
                .iter()
                .filter_map(|name| find(&measure_at, &metric.path, name))
            {
                sets.join(&metric.path, owner);
            }
        }
        // A file is named after its last model, as in KTX.
        let names: BTreeMap<&str, &str> = self
            .models
            .iter()
            .map(|model| (model.path.as_str(), model.name.as_str()))
            .collect();
        let mut components: Vec<FileComponent> = sets
            .groups()
            .into_iter()
            .map(|paths| self.component(paths, &names))
            .collect();
        components.sort_by(|a, b| {
            collate::compare_names(&a.lead, &b.lead).then_with(|| a.paths.cmp(&b.paths))
        });
        components
    }

    fn component(&self, paths: Vec<&str>, names: &BTreeMap<&str, &str>) -> FileComponent {
        let within: BTreeSet<&str> = paths.iter().copied().collect();
        let first = within.iter().filter_map(|path| names.get(path)).min();
        let sorted = |names: &mut dyn Iterator<Item = (&String, &String)>| {
            let mut names: Vec<String> = names
                .filter(|(path, _)| within.contains(path.as_str()))
                .map(|(_, name)| name.clone())
                .collect();
            names.sort_unstable();
            names
        };
        let models = sorted(&mut self.models.iter().map(|model| (&model.path, &model.name)));
        let metrics = sorted(
            &mut self
                .metrics
                .iter()
                .map(|metric| (&metric.path, &metric.name)),
        );
        let others = |kind: &'static str| {
            let parts = self.others.iter().filter(|part| part.kind == kind);
            (
                kind,
                sorted(&mut parts.map(|part| (&part.path, &part.name))),
            )
        };
        let parts = [
            ("semantic_models", models),
            ("metrics", metrics),
            others("saved_queries"),
            others("time_spines"),
        ];
        let lead = first.map(|name| (*name).to_owned()).or_else(|| {
            let mut names = parts.iter().skip(1).flat_map(|(_, names)| names.first());
            names.next().cloned()
        });
        FileComponent {
            lead: lead.unwrap_or_default(),
            paths: within.into_iter().map(str::to_owned).collect(),
            parts,
        }
    }
}

/// Names that a metric uses: measures, and names that may be measures.
fn uses(node: &YamlNode, kind: &str) -> Vec<String> {
    let Some(params) = node.get("type_params") else {
        return Vec::new();
    };
    let input = |key: &str| {
        let value = params.get(key)?;
        value
            .as_text()
            .or_else(|| value.text_at("name"))
            .map(str::to_owned)
    };
    let measure = if matches!(kind, "simple" | "cumulative") {
        input("measure")
    } else {
        None
    };
    let metrics = params
        .value
        .list("metrics")
        .filter_map(|node| node.as_text().or_else(|| node.text_at("name")))
        .map(str::to_owned);
    measure
        .into_iter()
        .chain(metrics)
        .chain(
            [
                "numerator",
                "denominator",
                "base_metric",
                "conversion_metric",
            ]
            .into_iter()
            .filter_map(input),
        )
        .collect()
}

fn texts(node: &YamlNode, key: &str) -> Vec<String> {
    match node.get(key).map(|node| &node.value) {
        Some(YamlValue::List(nodes)) => nodes
            .iter()
            .filter_map(YamlNode::as_text)
            .map(str::to_owned)
            .collect(),
        Some(YamlValue::Text(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

/// Disjoint sets of paths, with path compression.
struct PathUnionFind<'a> {
    parents: BTreeMap<&'a str, &'a str>,
}

impl<'a> PathUnionFind<'a> {
    fn new(paths: impl Iterator<Item = &'a str>) -> Self {
        Self {
            parents: paths.map(|path| (path, path)).collect(),
        }
    }

    fn root(&mut self, path: &'a str) -> &'a str {
        let mut root = path;
        while let Some(parent) = self.parents.get(root).filter(|parent| **parent != root) {
            root = parent;
        }
        // Path compression: later lookups of these paths find the root directly.
        let mut at = path;
        while at != root {
            at = self.parents.insert(at, root).unwrap_or(root);
        }
        root
    }

    fn join(&mut self, a: &'a str, b: &'a str) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents.insert(a, b);
    }

    fn groups(mut self) -> Vec<Vec<&'a str>> {
        let paths: Vec<&str> = self.parents.keys().copied().collect();
        let mut groups: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
        for path in paths {
            groups.entry(self.root(path)).or_default().push(path);
        }
        groups.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::tests::{anywhere, tree_of};

    fn chunk(files: &[(&str, &str)]) -> Result<ChunkedSource, Problem> {
        let (_dir, tree) = tree_of(files);
        MetricflowAdapter.chunk(&tree, anywhere())
    }

    const ORDERS: &str =
        "semantic_models:\n  - name: orders\n    measures: [{name: revenue}, {name: count}]\n";

    #[test]
    fn mutually_referring_files_are_one_unit() {
        let metric = "metrics:\n  - {name: aov, type: ratio, type_params: {numerator: revenue, denominator: {name: count}}}\n";
        let returns = "semantic_models:\n  - name: returns\n    extends: orders\n";
        let users = "semantic_models: [{name: users, measures: [{name: logins}]}]\nmetrics:\n  - {name: l, type: simple, type_params: {measure: logins}}\n";
        let chunks = chunk(&[
            ("m/orders.yml", ORDERS),
            ("m/aov.yml", metric),
            ("m/returns.yaml", returns),
            ("users.yml", users),
            ("dbt_project.yml", "name: x"),
        ])
        .unwrap();
        let keys: Vec<_> = chunks.units.iter().map(|unit| unit.key.as_str()).collect();
        assert_eq!(keys, ["metricflow-orders", "metricflow-users"]);
        let first = &chunks.units[0];
        assert_eq!(
            first.raw_files,
            ["m/aov.yml", "m/orders.yml", "m/returns.yaml"]
        );
        assert_eq!(
            first
                .peer_file_index
                .iter()
                .map(|path| &**path)
                .collect::<Vec<_>>(),
            ["dbt_project.yml", "users.yml"]
        );
        assert_eq!(
            first.notes.as_deref(),
            Some("MetricFlow component (semantic_models: orders, returns; metrics: aov)")
        );
        let left =
            MetricflowAdapter.narrow_unit(chunks.units[0].clone(), &BTreeSet::from(["m/aov.yml"]));
        assert_eq!((left.raw_files.len(), left.dependency_paths.len()), (1, 2));
    }

    #[test]
    fn equal_names_of_two_projects_are_two_units() {
        let metric = "metrics:\n  - {name: r, type: simple, type_params: {measure: revenue}}\n";
        let chunks = chunk(&[
            ("a/dbt_project.yml", "name: a"),
            ("a/models/orders.yml", ORDERS),
            ("a/models/r.yml", metric),
            ("b/dbt_project.yml", "name: b"),
            ("b/models/orders.yml", ORDERS),
            ("b/models/r.yml", metric),
            ("c/r.yml", metric),
        ])
        .unwrap();
        let files: Vec<String> = chunks
            .units
            .iter()
            .map(|unit| unit.raw_files.join(" "))
            .collect();
        assert_eq!(
            files,
            [
                "a/models/orders.yml a/models/r.yml c/r.yml",
                "b/models/orders.yml b/models/r.yml"
            ]
        );
    }

    #[test]
    fn a_circle_of_extensions_is_one_unit() {
        let model = |name: &str, parent: &str| {
            format!("semantic_models: [{{name: {name}, extends: [{parent}]}}]\n")
        };
        let files = [
            ("a.yml", model("a", "b")),
            ("b.yml", model("b", "c")),
            ("c.yml", model("c", "a")),
        ];
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| (*path, text.as_str()))
            .collect();
        let units = chunk(&files).unwrap().units;
        assert_eq!(units.len(), 1);
        assert_eq!(
            (units[0].key.as_str(), units[0].raw_files.len()),
            ("metricflow-a", 3)
        );
    }

    #[test]
    fn a_file_with_several_models_is_named_as_ktx_names_it() {
        let two = "semantic_models:\n  - name: alpha\n  - name: zeta\n";
        assert_eq!(
            chunk(&[("two.yml", two)]).unwrap().units[0].key,
            "metricflow-zeta"
        );
        let alone = "metrics:\n  - {name: b, type: derived}\n  - {name: a, type: derived}\n  - {name: '0', type: odd}\n";
        assert_eq!(
            chunk(&[("alone.yml", alone)]).unwrap().units[0].key,
            "metricflow-a"
        );
    }

    #[test]
    fn alias_bomb_or_broken_file_skips_only_itself() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            bomb.push_str(&format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{}", level - 1); 10].join(", ")
            ));
        }
        bomb.push_str("metrics: *a8\n");
        let chunks = chunk(&[
            ("bomb.yml", &bomb),
            ("broken.yml", "metrics: [a\nb: 1\n"),
            ("orders.yml", ORDERS),
        ])
        .unwrap();
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(chunks.warnings.len(), 2, "{:?}", chunks.warnings);
        assert!(
            chunks.warnings[0]
                .to_string()
                .starts_with("bomb.yml is in no unit: "),
            "{:?}",
            chunks.warnings
        );
        let faults = [
            ("two.yml", "metrics: []\n---\nmetrics: []\n"),
            ("twice.yml", "metrics: []\nmetrics: []\n"),
        ];
        let chunks = chunk(&[faults[0], faults[1], ("orders.yml", ORDERS)]).unwrap();
        assert_eq!(
            ingestdeck_core::diagnostic::to_lines(&chunks.warnings),
            [
                "twice.yml is in no unit: line 2 column 1, at `metrics: …`: duplicate key `metrics`, already on line 1; keep one of them",
                "two.yml is in no unit: line 2 column 1: a second document begins here; keep one, without `---` between them",
            ]
        );
        assert!(
            chunk(&[("bomb.yml", &bomb)])
                .unwrap_err()
                .to_string()
                .contains("bomb.yml is in no unit")
        );
        assert!(
            chunk(&[("x.yml", "metrics: 3\n")])
                .unwrap_err()
                .to_string()
                .starts_with("none of its files")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_file_that_takes_part_is_in_one_unit(
            models in prop::collection::vec((0..8_usize, 0..8_usize, 0..6_usize), 1..20),
        ) {
            let mut files: BTreeMap<String, String> = BTreeMap::new();
            for (n, (name, parent, file)) in models.iter().enumerate() {
                let text = files.entry(format!("f{file}.yml")).or_insert_with(|| "semantic_models:\n".into());
                text.push_str(&format!("  - {{name: m{name}, extends: [m{parent}], measures: [{{name: x{n}}}]}}\n"));
            }
            let list: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let units = chunk(&list).unwrap().units;
            let mut all: Vec<_> = units.iter().flat_map(|unit| unit.raw_files.clone()).collect();
            all.sort();
            prop_assert_eq!(&all, &files.keys().cloned().collect::<Vec<_>>());
            let keys: BTreeSet<_> = units.iter().map(|unit| &unit.key).collect();
            prop_assert_eq!(keys.len(), units.len());
            prop_assert_eq!(chunk(&list).unwrap().units, units);
        }
    }
}
