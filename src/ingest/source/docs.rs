//! The `docs` adapter: one unit per Markdown or text file.

use std::collections::BTreeSet;

use ingestdeck_core::diagnostic::Problem;

use super::{
    ChunkedSource, DEPENDENCY_DIRS, OUTPUT_DIRS, ProjectConnection, ProposalScan, SourceAdapter,
    SourceTree, UnitChunk, peers,
    proposal::{is_below, split},
    shared_names,
    tree::has_extension,
};
use crate::slug::{unique_keys, without_extension};

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

/// Plain documents, one unit each.
#[derive(Debug)]
pub(crate) struct DocsAdapter;

impl SourceAdapter for DocsAdapter {
    fn name(&self) -> &'static str {
        "docs"
    }

    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        if scan.found.is_empty() && self.has_root_pages_only(scan.tree) {
            return vec![""];
        }
        let folders = page_dirs(&scan.paths).into_iter();
        folders.filter(|folder| scan.is_free(folder)).collect()
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

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!("../../../assets/skills/docs_ingest/SKILL.md"))
    }
}

impl DocsAdapter {
    /// True if all pages are in the root and nothing else looks like documentation: then every file would become a unit.
    fn has_root_pages_only(&self, tree: &SourceTree) -> bool {
        let is_output = |path: &str| OUTPUT_DIRS.iter().any(|folder| is_below(path, folder));
        let mut texts = tree
            .files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| !is_output(path) && self.accepts_file(path));
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
}

/// Folders with pages, without those below another one. Excludes the root and folders whose only page is a README,
/// because folders of code have those too.
fn page_dirs<'a>(paths: &[&'a str]) -> Vec<&'a str> {
    let is_page = |path: &&str| {
        has_extension(path, &["md"]) && !split(path).1.eq_ignore_ascii_case("README.md")
    };
    let all: BTreeSet<&str> = paths
        .iter()
        .copied()
        .filter(is_page)
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
        let origin = ProjectConnection {
            project: &root,
            connection: &connection,
            ..anywhere()
        };
        let tree = DocsAdapter.list_files(origin, Ok(root.clone())).unwrap();
        assert_eq!(
            tree.files
                .iter()
                .map(|file| file.path.as_str())
                .collect::<Vec<_>>(),
            ["a.md", "targets/a.md"]
        );
    }
}
