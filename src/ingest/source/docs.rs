//! The `docs` adapter: one unit per Markdown or text file.

use std::collections::BTreeSet;

use ingestdeck_core::diagnostic::Problem;

use super::{
    ChunkedSource, ProjectConnection, SourceAdapter, SourceTree, UnitChunk, peers, shared_names,
    tree::has_extension,
};
use crate::slug::{unique_keys, without_extension};

/// Folders of installed packages and build output, whose files do not describe the project.
pub(crate) const DEPENDENCY_DIRS: [&str; 5] = [".venv", "node_modules", "target", "vendor", "venv"];

/// Plain documents, one unit each.
#[derive(Debug)]
pub(crate) struct DocsAdapter;

impl SourceAdapter for DocsAdapter {
    fn name(&self) -> &'static str {
        "docs"
    }

    fn accepts_file(&self, path: &str) -> bool {
        has_extension(path, &["md", "markdown", "txt"])
    }

    fn accepts_dir(&self, path: &str) -> bool {
        !DEPENDENCY_DIRS.contains(&path.rsplit('/').next().unwrap_or_default())
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if tree.files.is_empty() {
            Err(Problem::new("holds no .md, .markdown or .txt file")
                .with_help("point source_dir at a folder that does"))
        } else {
            Ok(())
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let all = shared_names(paths.iter().copied());
        let units = unique_keys("docs", &paths, without_extension)
            .into_iter()
            .zip(&paths)
            .map(|(key, path)| UnitChunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                peer_file_index: peers(&all, &BTreeSet::from([*path])),
                ..UnitChunk::default()
            })
            .collect();
        Ok(ChunkedSource {
            units,
            warnings: Vec::new(),
        })
    }

    fn skills(&self) -> &'static [&'static str] {
        &["docs_ingest"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        project::{Connection, SourceLocation},
        source::tests::anywhere,
    };

    #[test]
    fn texts_of_installed_packages_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folders = [
            "",
            "node_modules/x/",
            "web/node_modules/x/",
            ".venv/",
            "venv/lib/",
            "vendor/",
            "target/doc/",
            "targets/",
        ];
        for folder in folders {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("a.md"), "# A\n").unwrap();
        }
        let connection = Connection {
            source: Some(SourceLocation::Dir(".".into())),
            ..Connection::default()
        };
        let tree = DocsAdapter
            .list_files(ProjectConnection {
                project: &root,
                connection: &connection,
                ..anywhere()
            })
            .unwrap();
        assert_eq!(
            tree.files
                .iter()
                .map(|file| file.path.as_str())
                .collect::<Vec<_>>(),
            ["a.md", "targets/a.md"]
        );
    }
}
