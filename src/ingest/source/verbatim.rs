//! The `verbatim` adapter: documents of a `docs` connection that become wiki pages unchanged. It has no units.

use std::path::PathBuf;

use ingestdeck_core::diagnostic::Problem;

use super::{
    ChunkedSource, ProjectConnection, SourceAdapter, SourceDirError, SourceTree, docs::DocsAdapter,
};

/// The files of a `docs` connection, in no unit.
#[derive(Debug)]
pub(super) struct VerbatimAdapter;

impl SourceAdapter for VerbatimAdapter {
    fn name(&self) -> &'static str {
        "verbatim"
    }

    fn keeps_documents(&self) -> bool {
        true
    }

    fn accepts_file(&self, path: &str) -> bool {
        DocsAdapter.accepts_file(path)
    }

    fn accepts_dir(&self, path: &str) -> bool {
        DocsAdapter.accepts_dir(path)
    }

    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        dir: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        DocsAdapter.list_files(origin, dir)
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        DocsAdapter.detect(tree)
    }

    fn chunk(&self, _: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        Ok(ChunkedSource::default())
    }
}
