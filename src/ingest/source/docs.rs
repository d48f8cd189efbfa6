//! The `docs` adapter: one unit per Markdown or text file.

use std::sync::Arc;

use super::{
    Adapter, Chunk, Chunks, Tree,
    slug::{stem, unique_keys},
};

/// Plain documents, one unit each.
#[derive(Debug)]
pub(crate) struct Docs;

/// Most names of a peer index.
const PEERS: usize = 200;
const EXTENSIONS: &[&str] = &["md", "markdown", "txt"];

impl Adapter for Docs {
    fn name(&self) -> &'static str {
        "docs"
    }

    fn detect(&self, tree: &Tree) -> Result<(), String> {
        match tree.with_extension(EXTENSIONS).next() {
            Some(_) => Ok(()),
            None => Err("holds no .md, .markdown or .txt file".into()),
        }
    }

    fn chunk(&self, tree: &Tree) -> Chunks {
        let mut warnings = Vec::new();
        let files = tree.texts(tree.with_extension(EXTENSIONS), &mut warnings);
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        // Shared, as every unit names nearly all of the others.
        let peers: Vec<Arc<str>> = paths.iter().map(|path| Arc::from(*path)).collect();
        let units = unique_keys("docs", &paths, stem)
            .into_iter()
            .zip(&paths)
            .map(|(key, path)| Chunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                peer_file_index: peers.iter().filter(|peer| &***peer != *path).take(PEERS).cloned().collect(),
                ..Chunk::default()
            })
            .collect();
        Chunks { units, warnings }
    }

    fn skills(&self) -> &'static [&'static str] {
        &["docs_ingest"]
    }
}
