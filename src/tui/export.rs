//! Exports content of the screen to an editor or a pager: raw bytes for an editor, rendered text for a pager.
//!
//! Collects and renders. It must not know which program receives the export, or how.

#![expect(
    clippy::disallowed_methods,
    reason = "the file of the project that a reviewer edits"
)]

use std::{
    ffi::OsStr,
    fs::File,
    io::Read as _,
    path::{Component, Path, PathBuf},
};

use super::{
    document::LaidOutDocument,
    edited_text::EditTarget,
    effect::{ExportRequest, ExportTool, PagerContent},
    entry_part::{EntryPart, PartContent},
    load::{self, EntryReadError},
};
use ingestdeck_core::{
    control::MAX_EDITED_BYTES,
    diagnostic::Diagnostic,
    run::{Timeline, review::ReviewState, state::AttemptId},
    tape::note::{ReviewedFile, attempt_output::ArtifactChange},
};

/// Maximum size of an export in bytes. Editors are slow with larger files, and reading must not block the screen.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of bytes rendered for a pager.
const MAX_RENDERED_BYTES: usize = 8 << 20;

/// Columns of rendered text for a pager.
const WIDTH: u16 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub tool: ExportTool,
    pub bytes: Vec<u8>,
    /// File name extension, by which editors detect the file type.
    pub extension: &'static str,
    /// Line to open at, from 1.
    pub line: Option<usize>,
    /// True if the content exceeded the size limit.
    pub is_truncated: bool,
    /// What the text that the editor leaves is for; `None` if it is not wanted.
    pub edits: Option<EditTarget>,
    /// The file that an editor left before, which is opened again.
    pub unused_file: Option<PathBuf>,
    /// The file that was written: it is opened instead of a copy if it still has this text. The copy is read-only.
    pub written: Option<WrittenFile>,
}

/// A file that an attempt wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenFile {
    /// The directory of the project; `None` if the file is not known to be in it.
    pub project: Option<PathBuf>,
    /// Paths below the project, of which one may be the file.
    pub paths: Vec<PathBuf>,
}

/// Why there is nothing to export.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExportError {
    #[error("no content is laid out yet")]
    NoContent,
    #[error("the run no longer waits for a review")]
    NoReview,
    #[error("{0} has changed since")]
    Changed(String),
    #[error("{0} is longer than {limit} KiB", limit = MAX_EDITED_BYTES / 1024)]
    TooLong(String),
    #[error("the selected action wrote no file")]
    NoFile,
    #[error("the text of {0} after this call is not on this record")]
    NoText(String),
    #[error(transparent)]
    Entry(#[from] EntryReadError),
}

impl Diagnostic for ExportError {
    fn help(&self) -> Option<String> {
        matches!(self, Self::Changed(_) | Self::TooLong(_))
            .then(|| "edit it after the commit".into())
    }
}

/// Reads and renders the requested content.
pub(crate) fn build_export(
    timeline: &mut Timeline,
    request: &ExportRequest,
    document: Option<&LaidOutDocument>,
) -> Result<Export, ExportError> {
    match (request.tool, &request.pager_content) {
        (ExportTool::Editor, PagerContent::Parts(_)) => lines(timeline, request),
        (ExportTool::Pager, PagerContent::Parts(parts)) => rendered(timeline, parts),
        (tool, PagerContent::Text(text)) => Ok(plain(tool, text.clone(), None)),
        (tool, PagerContent::Document) => {
            let document = document.ok_or(ExportError::NoContent)?;
            let lines = (0..document.lines.len())
                .map(|line| document.text(line).trim_end().to_owned() + "\n");
            Ok(plain(
                tool,
                lines.collect(),
                request.selected.map(|line| line + 1),
            ))
        }
    }
}

fn plain(tool: ExportTool, text: String, line: Option<usize>) -> Export {
    Export {
        tool,
        bytes: text.into_bytes(),
        extension: ".txt",
        line,
        is_truncated: false,
        edits: None,
        unused_file: None,
        written: None,
    }
}

/// The text of a form, which an editor changes.
pub(crate) fn form_text(text: String) -> Export {
    Export {
        edits: Some(EditTarget::Form),
        ..plain(ExportTool::Editor, text, None)
    }
}

/// The text of the changed file `path` as it would be committed, for an editor. The text before the run is that of the
/// project.
pub(crate) fn reviewed_text(
    project: Option<&Path>,
    review: Option<&ReviewState>,
    path: &str,
) -> Result<Export, ExportError> {
    let (file, decisions) = review
        .and_then(|review| review.file(path))
        .ok_or(ExportError::NoReview)?;
    let text = match (&decisions.edited, file.change) {
        (Some(text), _) => text.to_string(),
        (None, ArtifactChange::Created) => file.text_after("", decisions).unwrap_or_default(),
        (None, ArtifactChange::Updated | ArtifactChange::Removed) => {
            let before = project.and_then(|project| read_below(project, Path::new(path)));
            // A text that a person changed since must not get into the commit.
            let before = before.filter(|text| {
                file.before.as_deref() == Some(&*ReviewedFile::digest(text.as_bytes()))
            });
            before
                .and_then(|before| file.text_after(&before, decisions))
                .ok_or_else(|| ExportError::Changed(path.to_owned()))?
        }
    };
    if text.len() > MAX_EDITED_BYTES {
        return Err(ExportError::TooLong(path.to_owned()));
    }
    Ok(reviewed_file(path, text))
}

/// The text of the changed file `path` that an editor left in `file` before; `None` if it is gone.
pub(crate) fn unused_text(path: &str, file: &Path) -> Option<Export> {
    let unused_file = file.is_file().then(|| file.to_owned());
    unused_file.map(|file| Export {
        unused_file: Some(file),
        ..reviewed_file(path, String::new())
    })
}

/// The text of the changed file `path`, for an editor.
pub(crate) fn reviewed_file(path: &str, text: String) -> Export {
    let extension = if path.ends_with(".yaml") {
        ".yaml"
    } else {
        ".md"
    };
    let edits = Some(EditTarget::Reviewed(path.to_owned()));
    Export {
        extension,
        edits,
        ..plain(ExportTool::Editor, text, None)
    }
}

/// The text of a file of the project. Links that lead out of it are not followed.
fn read_below(project: &Path, path: &Path) -> Option<String> {
    let is_below = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let project = project.canonicalize().ok()?;
    let path = project
        .join(path)
        .canonicalize()
        .ok()
        .filter(|path| is_below && path.starts_with(&project))?;
    let mut text = String::new();
    // Opening a named pipe would wait.
    let file = path.is_file().then(|| File::open(&path).ok()).flatten()?;
    file.take(MAX_EDITED_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .ok()?;
    (text.len() as u64 <= MAX_EDITED_BYTES as u64).then_some(text)
}

/// The file that the call of a row wrote: one of `paths` below `project` if it has the text after the call, otherwise a
/// copy of that text.
pub(crate) fn written_file(
    timeline: &mut Timeline,
    attempt_id: AttemptId,
    row: usize,
    paths: &[String],
    project: Option<&Path>,
) -> Result<Export, ExportError> {
    let written = load::written_text(timeline, attempt_id, row);
    let (target, text) = written.ok_or(ExportError::NoFile)?;
    let is_below = |path: &&Path| {
        path.components()
            .all(|part| matches!(part, Component::Normal(_)))
    };
    let Some(text) = text else {
        return Err(ExportError::NoText(target));
    };
    let is_target =
        |path: &&Path| path.ends_with(&target) || path.with_extension("").ends_with(&target);
    let paths: Vec<PathBuf> = paths
        .iter()
        .map(Path::new)
        .filter(is_below)
        .filter(is_target)
        .map(Path::to_owned)
        .collect();
    let project = project.filter(|_| !paths.is_empty()).map(Path::to_owned);
    let path = paths
        .first()
        .cloned()
        .unwrap_or_else(|| PathBuf::from(&target));
    let extension = match path.extension().and_then(OsStr::to_str) {
        Some("yaml" | "yml") => ".yaml",
        Some("sql") => ".sql",
        _ => ".md",
    };
    let written = Some(WrittenFile { project, paths });
    Ok(Export {
        extension,
        written,
        ..plain(ExportTool::Editor, text, None)
    })
}

fn lines(timeline: &mut Timeline, request: &ExportRequest) -> Result<Export, ExportError> {
    let (mut bytes, mut cut) = (Vec::new(), false);
    for seq in &request.entries {
        load::read(timeline, *seq, |arrived| {
            let line = load::bytes(&arrived.body);
            cut = !bytes.is_empty() && bytes.len() + line.len() > MAX_BYTES;
            if !cut {
                bytes.extend_from_slice(line);
                bytes.push(b'\n');
            }
        })?;
        if cut {
            break;
        }
    }
    let line = request.selected.map(|at| at + 1);
    Ok(Export {
        tool: ExportTool::Editor,
        bytes,
        extension: ".jsonl",
        line,
        is_truncated: cut,
        edits: None,
        unused_file: None,
        written: None,
    })
}

fn rendered(timeline: &mut Timeline, parts: &[EntryPart]) -> Result<Export, ExportError> {
    let (mut text, mut cut) = (String::new(), false);
    // Keep a result in the same chunk as the call before it.
    for part in parts.chunk_by(|_, next| next.content == PartContent::Result) {
        cut = text.len() > MAX_RENDERED_BYTES;
        if cut {
            break;
        }
        let document = load::render_document(timeline, part, WIDTH);
        for line in 0..document.lines.len() {
            text.push_str(document.text(line).trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
    Ok(Export {
        tool: ExportTool::Pager,
        bytes: text.into_bytes(),
        extension: ".txt",
        line: None,
        is_truncated: cut,
        edits: None,
        unused_file: None,
        written: None,
    })
}
