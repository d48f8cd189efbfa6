//! The `dbt` adapter: the YAML of a dbt project, whole when it is small, else one unit per model file.

use std::sync::Arc;

use super::{
    Adapter, Chunk, Chunks, RawFile, Tree,
    slug::{stem, unique_keys},
};

/// dbt projects.
#[derive(Debug)]
pub(crate) struct Dbt;

/// Most YAML files of a single unit.
const WHOLE: usize = 25;
/// Most names of a peer index.
const PEERS: usize = 200;
/// Folders that dbt makes itself.
const GENERATED: &[&str] = &["target/", "dbt_packages/", "dbt_modules/", "logs/"];

impl Adapter for Dbt {
    fn name(&self) -> &'static str {
        "dbt"
    }

    fn detect(&self, tree: &Tree) -> Result<(), String> {
        match manifest(tree) {
            Some(_) => Ok(()),
            None => Err("has no dbt_project.yml; point source_dir at the folder of the dbt project".into()),
        }
    }

    fn chunk(&self, tree: &Tree) -> Chunks {
        let mut warnings = Vec::new();
        let own = tree.with_extension(&["yml", "yaml"]).filter(|file| !is_generated(file));
        let files = tree.texts(own, &mut warnings);
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        if paths.len() <= WHOLE {
            let whole = Chunk {
                key: "dbt-all".into(),
                raw_files: paths.iter().map(|path| (*path).to_owned()).collect(),
                ..Chunk::default()
            };
            return Chunks { units: if paths.is_empty() { Vec::new() } else { vec![whole] }, warnings };
        }
        let models: Vec<&str> = paths.iter().filter(|path| path.starts_with("models/")).copied().collect();
        let manifest: Vec<String> = manifest(tree).map(|file| file.path.clone()).into_iter().collect();
        let elsewhere = paths.len() - models.len() - manifest.len().min(paths.len() - models.len());
        if elsewhere > 0 {
            warnings.push(format!(
                "{elsewhere} YAML files outside models/ are in no unit, as the project has more than {WHOLE} of them"
            ));
        }
        // Shared, as every unit names nearly all of the others.
        let peers = paths.iter().filter(|path| !manifest.iter().any(|name| name == *path));
        let peers: Vec<Arc<str>> = peers.map(|path| Arc::from(*path)).collect();
        let units = unique_keys("dbt", &models, stem)
            .into_iter()
            .zip(&models)
            .map(|(key, path)| Chunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                dependency_paths: manifest.clone(),
                peer_file_index: peers.iter().filter(|peer| &***peer != *path).take(PEERS).cloned().collect(),
                ..Chunk::default()
            })
            .collect();
        Chunks { units, warnings }
    }

    fn skills(&self) -> &'static [&'static str] {
        &["dbt_ingest"]
    }
}

fn manifest(tree: &Tree) -> Option<&RawFile> {
    tree.files.iter().find(|file| matches!(file.path.as_str(), "dbt_project.yml" | "dbt_project.yaml"))
}

fn is_generated(file: &RawFile) -> bool {
    GENERATED.iter().any(|folder| file.path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn project(models: usize, others: usize) -> (tempfile::TempDir, Tree) {
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
        let tree = Tree::walk(dir.path()).unwrap();
        (dir, tree)
    }

    #[test]
    fn a_small_project_is_one_unit() {
        let (_dir, tree) = project(23, 1);
        let chunks = Dbt.chunk(&tree);
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(chunks.units[0].key, "dbt-all");
        assert_eq!(chunks.units[0].raw_files.len(), 25);
        assert!(chunks.warnings.is_empty());
    }

    #[test]
    fn a_large_one_is_a_unit_per_model_file() {
        let (_dir, tree) = project(24, 1);
        let chunks = Dbt.chunk(&tree);
        assert_eq!(chunks.units.len(), 24);
        let first = &chunks.units[0];
        assert_eq!(first.key, "dbt-models-marts-m000");
        assert_eq!(first.raw_files, ["models/marts/m000.yml"]);
        assert_eq!(first.dependency_paths, ["dbt_project.yml"]);
        assert_eq!(first.peer_file_index.len(), 24, "23 models and the seed");
        assert_eq!(chunks.warnings.len(), 1);
        assert!(chunks.warnings[0].starts_with("1 YAML files outside models/"), "{:?}", chunks.warnings);
    }

    #[test]
    fn the_peer_index_ends_at_two_hundred() {
        let (_dir, tree) = project(230, 0);
        assert_eq!(Dbt.chunk(&tree).units[0].peer_file_index.len(), 200);
    }

    #[test]
    fn without_its_manifest_it_is_no_dbt_project() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("schema.yml"), "x: 1").unwrap();
        let problem = Dbt.detect(&Tree::walk(dir.path()).unwrap()).unwrap_err();
        assert!(problem.contains("dbt_project.yml"), "{problem}");
    }
}
