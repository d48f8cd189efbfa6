//! The `docs` adapter: one unit per Markdown or text file.

use std::collections::BTreeSet;

use super::{
    Adapter, Chunk, Chunks, Origin, Tree, peers, shared,
    slug::{stem, unique_keys},
    tree::has_extension,
};

/// Plain documents, one unit each.
#[derive(Debug)]
pub(crate) struct Docs;

impl Adapter for Docs {
    fn name(&self) -> &'static str {
        "docs"
    }

    fn takes(&self, path: &str) -> bool {
        has_extension(path, &["md", "markdown", "txt"])
    }

    fn detect(&self, tree: &Tree) -> Result<(), String> {
        if tree.files.is_empty() {
            Err("holds no .md, .markdown or .txt file; point source_dir at a folder that does".into())
        } else {
            Ok(())
        }
    }

    fn chunk(&self, tree: &Tree, _: Origin<'_>) -> Result<Chunks, String> {
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let all = shared(paths.iter().copied());
        let units = unique_keys("docs", &paths, stem)
            .into_iter()
            .zip(&paths)
            .map(|(key, path)| Chunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                peer_file_index: peers(&all, &BTreeSet::from([*path])),
                ..Chunk::default()
            })
            .collect();
        Ok(Chunks { units, warnings: Vec::new() })
    }

    fn skills(&self) -> &'static [&'static str] {
        &["docs_ingest"]
    }
}
