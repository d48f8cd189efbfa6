//! The `dbt` adapter: one unit with all YAML files of a small dbt project, else one unit per model file.

use std::collections::BTreeSet;

use ingestdeck_core::diagnostic::Problem;

mod references;

pub(super) use references::DbtReferences;

use super::{
    ChunkedSource, MAX_NAMED_FILES, ProjectConnection, ProposalScan, RawFile, SourceAdapter,
    SourceTree, UnitChunk, peers, proposal,
    references::ReferenceReader,
    shared_names,
    tree::{WalkFilter, has_extension},
};
use crate::{
    connection::{KeySpec, ValueType},
    line_budget::first_names,
    slug::{unique_keys, without_extension},
    untrusted_text::visible_path,
};

#[derive(Debug)]
pub(crate) struct DbtAdapter;

/// Most YAML files of a project that becomes a single unit.
const MAX_SINGLE_UNIT_FILES: usize = 25;
/// Prefixes of YAML lines that describe a dbt object.
const DESCRIBES: [&str; 8] = [
    "models:",
    "sources:",
    "seeds:",
    "snapshots:",
    "exposures:",
    "metrics:",
    "semantic_models:",
    "macros:",
];
/// Folders that dbt generates.
const GENERATED_DIRS: &[&str] = &["target/", "dbt_packages/", "dbt_modules/", "logs/"];
/// Files with the logins of the warehouse. They describe nothing, and what is read reaches the model and the commit.
const LOGIN_FILES: [&str; 2] = ["profiles.yml", "profiles.yaml"];
/// Folders with resources of a dbt project.
const RESOURCE_DIRS: [&str; 5] = ["models", "seeds", "snapshots", "analyses", "macros"];

/// True if a file of a dbt project has the logins of its warehouse. A file among the models describes some.
pub(super) fn has_login(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    parts.next().is_some_and(|name| LOGIN_FILES.contains(&name))
        && !parts.any(|dir| RESOURCE_DIRS.contains(&dir))
}

impl SourceAdapter for DbtAdapter {
    fn name(&self) -> &'static str {
        "dbt"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            ("auth_token_ref", ValueType::Text),
            ("profiles_path", ValueType::AnyText),
            ("target", ValueType::Text),
            ("project_name", ValueType::Text),
        ]
    }

    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        let mut found: Vec<&str> = Vec::new();
        for path in &scan.paths {
            let (folder, name) = proposal::split(path);
            let is_project = matches!(name, "dbt_project.yml" | "dbt_project.yaml");
            if is_project && !found.iter().any(|above| proposal::is_below(path, above)) {
                found.push(folder);
            }
        }
        found
    }

    fn describes_warehouse(&self) -> bool {
        true
    }

    fn accepts_file(&self, path: &str) -> bool {
        has_extension(path, &["yml", "yaml"])
            && !GENERATED_DIRS.iter().any(|folder| path.starts_with(folder))
            && !has_login(path)
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        match manifest(tree) {
            Some(_) => Ok(()),
            None => Err(Problem::new("has no dbt_project.yml")
                .with_help("point source_dir at the folder of the dbt project")),
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let models: Vec<&str> = paths
            .iter()
            .filter(|path| path.starts_with("models/"))
            .copied()
            .collect();
        if paths.len() <= MAX_SINGLE_UNIT_FILES || models.is_empty() {
            let whole = UnitChunk {
                key: "dbt-all".into(),
                raw_files: paths.iter().map(|path| (*path).to_owned()).collect(),
                ..UnitChunk::default()
            };
            return Ok(ChunkedSource {
                units: vec![whole],
                warnings: unread(tree).into_iter().collect(),
            });
        }
        let manifest = manifest(tree).map(|file| file.path.as_str());
        let is_elsewhere = |path: &&str| !path.starts_with("models/") && Some(*path) != manifest;
        let elsewhere: Vec<String> = paths
            .iter()
            .copied()
            .filter(is_elsewhere)
            .map(visible_path)
            .collect();
        let warnings = (!elsewhere.is_empty()).then(|| {
            let files = if elsewhere.len() == 1 { "file outside models/ is" } else { "files outside models/ are" };
            Problem::new(format!(
                "{} YAML {files} in no unit, as the project has more than {MAX_SINGLE_UNIT_FILES} of them: {}",
                elsewhere.len(),
                first_names(&elsewhere, MAX_NAMED_FILES)
            ))
            .with_help("describe what agents should know of them in a file below models/")
        });
        let all = shared_names(paths.iter().copied().filter(|path| Some(*path) != manifest));
        let units = unique_keys("dbt", &models, without_extension)
            .into_iter()
            .zip(&models)
            .map(|(key, path)| UnitChunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                dependency_paths: manifest.map(str::to_owned).into_iter().collect(),
                peer_file_index: peers(&all, &BTreeSet::from([*path])),
                ..UnitChunk::default()
            })
            .collect();
        Ok(ChunkedSource {
            units,
            warnings: warnings.into_iter().collect(),
        })
    }

    fn defined_names(&self, _: &str, text: &str) -> Option<BTreeSet<String>> {
        references::defined_names(text)
    }

    fn reference_reader<'a>(
        &self,
        tree: &'a SourceTree,
        _: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        Some(Box::new(DbtReferences::new(tree)))
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!("../../../assets/skills/dbt_ingest/SKILL.md"))
    }
}

/// A warning about a project whose models are described only in SQL and doc blocks, not in YAML. KTX does not read
/// those either.
fn unread(tree: &SourceTree) -> Option<Problem> {
    let others = tree
        .files
        .iter()
        .filter(|file| !matches!(file.path.as_str(), "dbt_project.yml" | "dbt_project.yaml"));
    let describes = |file: &RawFile| {
        tree.read_text(&file.path).is_ok_and(|text| {
            text.lines()
                .any(|line| DESCRIBES.iter().any(|key| line.starts_with(key)))
        })
    };
    if others.into_iter().any(describes) {
        return None;
    }
    let takes = |path: &str| has_extension(path, &["sql", "md"]) && path.starts_with("models/");
    let enters = |path: &str| path == "models" || path.starts_with("models/");
    let unread = SourceTree::walk_filtered(
        &tree.root,
        WalkFilter {
            accepts_file: &takes,
            accepts_dir: &enters,
        },
    )
    .ok()?
    .files
    .len();
    (unread > 0).then(|| {
        Problem::new(
            "only YAML of a dbt project is read, as in KTX: no YAML file describes its models, and SQL models and doc \
             blocks are in no unit",
        )
        .with_help("describe the models in YAML, for example models/schema.yml")
    })
}

fn manifest(tree: &SourceTree) -> Option<&RawFile> {
    tree.files
        .iter()
        .find(|file| matches!(file.path.as_str(), "dbt_project.yml" | "dbt_project.yaml"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::tests::anywhere;

    fn project(models: usize, others: usize) -> (tempfile::TempDir, SourceTree) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("models/marts")).unwrap();
        fs::create_dir_all(dir.path().join("target")).unwrap();
        fs::write(dir.path().join("dbt_project.yml"), "name: x").unwrap();
        fs::write(dir.path().join("target/manifest.yml"), "x: 1").unwrap();
        for n in 0..models {
            fs::write(dir.path().join(format!("models/marts/m{n:03}.yml")), "x: 1").unwrap();
        }
        for n in 0..others {
            fs::write(dir.path().join(format!("seed{n}.yaml")), "x: 1").unwrap();
        }
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        (dir, tree)
    }

    #[test]
    fn a_small_project_is_one_unit() {
        let (_dir, tree) = project(23, 1);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(chunks.units[0].key, "dbt-all");
        assert_eq!(chunks.units[0].raw_files.len(), 25);
        assert!(chunks.warnings.is_empty());
    }

    #[test]
    fn large_project_is_a_unit_per_model_file() {
        let (_dir, tree) = project(24, 1);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 24);
        let first = &chunks.units[0];
        assert_eq!(first.key, "dbt-models-marts-m000");
        assert_eq!(first.raw_files, ["models/marts/m000.yml"]);
        assert_eq!(first.dependency_paths, ["dbt_project.yml"]);
        assert_eq!(first.peer_file_index.len(), 24, "23 models and the seed");
        assert_eq!(chunks.warnings.len(), 1);
        assert!(
            chunks.warnings[0]
                .to_string()
                .starts_with("1 YAML file outside models/"),
            "{:?}",
            chunks.warnings
        );
    }

    #[test]
    fn the_peer_index_ends_at_two_hundred() {
        let (_dir, tree) = project(230, 0);
        assert_eq!(
            DbtAdapter.chunk(&tree, anywhere()).unwrap().units[0]
                .peer_file_index
                .len(),
            200
        );
    }

    #[test]
    fn directory_without_dbt_project_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("schema.yml"), "x: 1").unwrap();
        let problem = DbtAdapter
            .detect(&SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap())
            .unwrap_err();
        assert!(problem.to_string().contains("dbt_project.yml"), "{problem}");
    }

    #[test]
    fn files_with_logins_are_not_read() {
        for path in ["profiles.yml", "integration_tests/ci/profiles.yaml"] {
            assert!(!DbtAdapter.accepts_file(path), "{path}");
        }
        for path in [
            "models/core/profiles.yml",
            "models/profiles/schema.yml",
            "user_profiles.yml",
        ] {
            assert!(DbtAdapter.accepts_file(path), "{path}");
        }
    }

    #[test]
    fn many_files_without_a_model_are_one_unit() {
        let (_dir, tree) = project(0, 30);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(
            (
                chunks.units[0].key.as_str(),
                chunks.units[0].raw_files.len()
            ),
            ("dbt-all", 31)
        );
    }

    #[test]
    fn sql_models_without_yaml_are_a_warning() {
        let (dir, _) = project(0, 0);
        let warnings = || {
            let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
            DbtAdapter.chunk(&tree, anywhere()).unwrap().warnings
        };
        assert!(warnings().is_empty(), "there is nothing to read");
        fs::write(dir.path().join("models/orders.sql"), "select 1").unwrap();
        fs::write(
            dir.path().join("models/docs.md"),
            "{% docs orders %}{% enddocs %}",
        )
        .unwrap();
        assert!(
            warnings()[0]
                .to_string()
                .contains("SQL models and doc blocks are in no unit"),
            "{:?}",
            warnings()
        );
        fs::write(
            dir.path().join("models/schema.yml"),
            "version: 2\nmodels:\n  - name: orders\n",
        )
        .unwrap();
        assert!(warnings().is_empty());
    }

    #[test]
    fn small_project_is_narrowed_to_its_changes() {
        let (_dir, tree) = project(2, 0);
        let unit = DbtAdapter.chunk(&tree, anywhere()).unwrap().units.remove(0);
        let left = DbtAdapter.narrow_unit(unit.clone(), &BTreeSet::from(["models/marts/m001.yml"]));
        assert_eq!(left.raw_files, ["models/marts/m001.yml"]);
        assert_eq!(
            left.dependency_paths,
            ["dbt_project.yml", "models/marts/m000.yml"]
        );
        assert_eq!(
            DbtAdapter.narrow_unit(unit.clone(), &BTreeSet::new()),
            unit,
            "it runs for changes around it"
        );
    }
}
