//! The `fake` adapter: one unit per folder, with any content. For experiments, as in KTX.

use std::collections::{BTreeMap, BTreeSet};

use ingestdeck_core::diagnostic::Problem;

use super::{ChunkedSource, ProjectConnection, SourceAdapter, SourceTree, UnitChunk};
use crate::{slug, untrusted_text::visible_path};

/// Any folder of text files.
#[derive(Debug)]
pub(crate) struct FakeAdapter;

impl SourceAdapter for FakeAdapter {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn accepts_file(&self, _: &str) -> bool {
        true
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if tree.files.is_empty() {
            Err(Problem::new("holds no files"))
        } else {
            Ok(())
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for file in &tree.files {
            if let Some((folder, _)) = file.path.split_once('/') {
                folders.entry(folder).or_default().push(file.path.clone());
            }
        }
        let outside = tree
            .files
            .iter()
            .map(|file| &file.path)
            .filter(|path| !path.contains('/'));
        let outside: Vec<String> = outside.map(|path| visible_path(path)).collect();
        let warning = || {
            Problem::new("files outside of a folder are in no unit")
                .with_files(outside.clone())
                .with_help("move them into one")
        };
        let warnings = (!outside.is_empty()).then(warning).into_iter().collect();
        let wished: Vec<_> = folders
            .keys()
            .map(|folder| (format!("fake-{folder}"), *folder))
            .collect();
        let units = slug::disambiguate_keys(&wished)
            .into_iter()
            .zip(folders)
            .map(|(key, (folder, raw_files))| UnitChunk {
                key,
                label: Some(folder.to_owned()),
                raw_files,
                ..UnitChunk::default()
            })
            .collect();
        Ok(ChunkedSource {
            units,
            warnings,
            ..ChunkedSource::default()
        })
    }

    /// A folder is ingested as a whole.
    fn narrow_unit(&self, unit: UnitChunk, _: &BTreeSet<&str>) -> UnitChunk {
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::{anywhere, tree_of};

    #[test]
    fn every_folder_is_a_unit() {
        let (_dir, tree) = tree_of(&[
            ("b/x.json", "1"),
            ("a/deep/y.md", "1"),
            ("a/z", "1"),
            ("top.md", "1"),
            ("c d/x", "1"),
        ]);
        let chunks = FakeAdapter.chunk(&tree, anywhere()).unwrap();
        let keys: Vec<_> = chunks.units.iter().map(|unit| unit.key.as_str()).collect();
        assert_eq!(keys, ["fake-a", "fake-b", "fake-c-d"]);
        assert_eq!(chunks.units[0].raw_files, ["a/deep/y.md", "a/z"]);
        assert_eq!(chunks.units[2].label.as_deref(), Some("c d"));
        assert_eq!(chunks.warnings.len(), 1);
        let left =
            FakeAdapter.narrow_unit(chunks.units[0].clone(), &BTreeSet::from(["a/z", "top.md"]));
        assert_eq!(left.raw_files, ["a/deep/y.md", "a/z"]);
    }
}
