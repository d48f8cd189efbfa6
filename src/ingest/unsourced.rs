//! Identifiers in the artifacts of an attempt that were in nothing that its agent received.
//!
//! [`received`] collects the words that an agent received, [`claims`] finds the identifiers that a text presents as
//! existing elsewhere, and this module compares them. It must not decide the consequences.

mod claims;
mod received;
mod sql_words;

use std::{collections::HashSet, io};

use super::workspace::Workspace;
use crate::tape::note::attempt_output::{MAX_UNSOURCED, UnsourcedIdentifier};

pub(crate) use received::ReceivedNames;

/// Longest recorded name in characters.
const MAX_NAME_CHARS: usize = 120;

/// An artifact that the attempt created or changed.
struct ChangedArtifact {
    path: String,
    text: String,
    /// Content before the attempt; empty for a new artifact.
    original: String,
}

/// Finds the unsourced identifiers in the lines that the attempt added in `workspace`, sorted by path and line, each
/// once for each artifact. Names that an artifact of the attempt defines are not reported. `received` must be complete.
pub(crate) fn find_unsourced(workspace: &Workspace, received: &ReceivedNames) -> io::Result<Vec<UnsourcedIdentifier>> {
    let mut changed = Vec::new();
    for (path, change) in workspace.changes() {
        if change.new_hash.is_none() {
            continue;
        }
        let text = |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let (original, current) = (text(workspace.original(&path)?), text(workspace.peek(&path)?));
        changed.push(ChangedArtifact { path, text: current, original });
    }
    Ok(unsourced_in(&changed, received))
}

fn unsourced_in(changed: &[ChangedArtifact], received: &ReceivedNames) -> Vec<UnsourcedIdentifier> {
    let found: Vec<claims::Claims> =
        changed.iter().map(|artifact| claims::find_claims(&artifact.path, &artifact.text)).collect();
    let defined: HashSet<String> =
        found.iter().flat_map(|claims| &claims.defined).map(|name| name.to_lowercase()).collect();
    let mut unsourced = Vec::new();
    for (artifact, claims) in changed.iter().zip(&found) {
        let mut known = ReceivedNames::default();
        known.add_text(&artifact.original);
        let local: HashSet<String> = claims.local.iter().map(|name| name.to_lowercase()).collect();
        let is_sourced = |name: &str| {
            let lower = name.to_lowercase();
            received.contains(name) || known.contains(name) || defined.contains(&lower) || local.contains(&lower)
        };
        // A name that the original does not have is in an added line.
        let lines: Vec<String> = artifact.text.lines().map(str::to_lowercase).collect();
        let mut of_artifact: Vec<UnsourcedIdentifier> = Vec::new();
        let mut seen = HashSet::new();
        for claim in claims.names.iter().filter(|claim| !is_sourced(&claim.name)) {
            if of_artifact.len() == MAX_UNSOURCED {
                break;
            }
            if seen.insert(claim.name.to_lowercase()) {
                of_artifact.push(UnsourcedIdentifier {
                    path: artifact.path.clone(),
                    line: claim.first_line(&lines),
                    name: claim.name.chars().take(MAX_NAME_CHARS).collect(),
                    declared: received.is_declared(&claim.name),
                });
            }
        }
        of_artifact.sort_by_key(|identifier| identifier.line);
        unsourced.append(&mut of_artifact);
    }
    unsourced.truncate(MAX_UNSOURCED);
    unsourced
}

#[cfg(test)]
mod tests;
