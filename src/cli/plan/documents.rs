//! The lines of a plan about documents that are kept verbatim.

use std::io;

use serde_json::{Value, json};

use super::MAX_NAMED;
use crate::cli::output;
use ingestdeck_core::text::{self, pluralize};
use ingestdeck_ingest::{projection::PendingProjection, source::VerbatimDocument};

/// The object about the documents of a connection.
pub(super) fn to_json(due: &PendingProjection) -> Value {
    let documents: Vec<Value> = due.documents.iter().map(document_json).collect();
    json!({
        "connection": due.connection, "adapter": due.adapter, "cause": due.cause(),
        "documents": documents, "why": "kept as pages, unchanged, before the units run",
    })
}

/// A document that a run keeps, or why it does not.
fn document_json(document: &VerbatimDocument) -> Value {
    let mut object = json!({"path": document.path, "page": document.page});
    if let Err(why) = &document.text {
        object["refused"] = json!(why);
    }
    object
}

/// Writes the documents that become pages before the units run.
pub(super) fn write(out: &mut impl io::Write, due: &PendingProjection) -> io::Result<()> {
    let (kept, refused): (Vec<_>, Vec<_>) = due
        .documents
        .iter()
        .partition(|document| document.text.is_ok());
    let named = kept.iter().take(MAX_NAMED);
    let named: Vec<String> = named
        .map(|document| format!("{} as {}", document.path, document.page))
        .collect();
    let more = match kept.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of = match due.connection.as_str() {
        "" => String::new(),
        connection => format!("{connection}: "),
    };
    if !kept.is_empty() {
        writeln!(
            out,
            "{of}{} kept verbatim, without an agent: {}{more}",
            pluralize(kept.len(), "document"),
            text::printable(&named.join(", "), output::max_width(400))
        )?;
    }
    for (document, why) in refused
        .iter()
        .filter_map(|it| Some((it, it.text.as_ref().err()?)))
    {
        let sentence = format!("{of}{} is not kept: {why}", document.path);
        writeln!(
            out,
            "{}",
            text::printable(&sentence, output::max_width(400))
        )?;
    }
    Ok(())
}
