//! Identifiers in the artifacts of an attempt that were in nothing that its agent received.
//!
//! [`received`] collects the words that an agent received, [`claims`] finds the identifiers that a text presents as
//! existing elsewhere, and this module compares them. It must not decide the consequences.

mod claims;
mod received;
mod sql_words;

use std::{collections::HashSet, io};

use super::{
    connection_scope::ConnectionScope,
    references,
    verification::Verifier,
    wiki::{self, WikiPage},
    workspace::Workspace,
};
use ingestdeck_core::tape::note::{
    attempt_output::{MAX_UNSOURCED, UnsourcedIdentifier},
    verification::VerificationRecord,
};

pub(crate) use received::ReceivedNames;

/// Most bytes of the changed artifacts of an attempt, before and after it.
const MAX_ARTIFACT_BYTES: usize = 16 << 20;
/// Longest recorded name in characters.
const MAX_NAME_CHARS: usize = 120;

/// An artifact that the attempt created or changed.
struct ChangedArtifact {
    path: String,
    text: String,
    /// Content before the attempt; empty for a new artifact.
    original: String,
}

/// The identifiers that were found, or why nothing was compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsourcedCheck {
    /// By path and line, each once for each artifact; `None` if nothing was compared.
    pub found: Option<Vec<UnsourcedIdentifier>>,
    pub skipped: Option<SkippedCheck>,
    /// What answers of databases and scans prove; `None` if nothing was compared.
    pub verification: Option<VerificationRecord>,
}

/// The artifacts that were not compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedCheck {
    /// Sorted paths of all artifacts that the attempt created or changed.
    pub paths: Vec<String>,
    /// As the end of a sentence.
    pub reason: String,
}

/// Finds the unsourced identifiers in the lines that the attempt added in `workspace`, and what the answers that it
/// received prove about its artifacts and about the identifiers that it `stated` as verified. Names that an artifact of the
/// attempt defines are not reported. Nothing is compared if more was received or written than is compared: a name that
/// is missing in a part of the texts may be in another part.
pub(crate) fn find_unsourced<'s>(
    (workspace, scope): (&Workspace, &ConnectionScope),
    received: &ReceivedNames,
    stated: impl Iterator<Item = &'s str>,
) -> io::Result<UnsourcedCheck> {
    let changes = workspace
        .changes()
        .into_iter()
        .filter(|(_, change)| change.new_hash.is_some());
    let paths: Vec<String> = changes.map(|(path, _)| path).collect();
    let skip = |paths, reason: String| {
        Ok(UnsourcedCheck {
            skipped: Some(SkippedCheck { paths, reason }),
            ..UnsourcedCheck::default()
        })
    };
    if received.is_incomplete() && !paths.is_empty() {
        return skip(
            paths,
            "the agent received more text than is compared".to_owned(),
        );
    }
    let (mut changed, mut bytes) = (Vec::new(), 0);
    for path in &paths {
        let text = |bytes: Option<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let (original, current) = (text(workspace.original(path)?), text(workspace.peek(path)?));
        bytes += original.len() + current.len();
        if bytes > MAX_ARTIFACT_BYTES {
            return skip(
                paths,
                format!("they have more than {} MiB", MAX_ARTIFACT_BYTES >> 20),
            );
        }
        changed.push(ChangedArtifact {
            path: path.clone(),
            text: current,
            original,
        });
    }
    let verifier = Verifier {
        workspace,
        scope,
        facts: received.facts(),
    };
    let texts = changed
        .iter()
        .map(|artifact| (artifact.path.as_str(), artifact.text.as_str()));
    let verification = verifier.verify(texts, stated)?;
    Ok(UnsourcedCheck {
        found: Some(unsourced_in(&changed, received)),
        skipped: None,
        verification: Some(verification),
    })
}

/// The identifiers in `text`, which is to be written to `path`, that were in nothing that the agent received. Links to
/// pages are left out: a page may be written later, and is looked for when the attempt ends. Nothing is compared if more
/// was received or written than is compared.
pub(crate) fn unsourced_in_draft(
    workspace: &Workspace,
    (path, text): (&str, &str),
    received: &ReceivedNames,
) -> io::Result<Vec<UnsourcedIdentifier>> {
    if received.is_incomplete() {
        return Ok(Vec::new());
    }
    let read =
        |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    let mut changed = vec![ChangedArtifact {
        path: path.to_owned(),
        text: text.to_owned(),
        original: read(workspace.original(path)?),
    }];
    let others = workspace.changes().into_iter();
    for (other, _) in others.filter(|(other, change)| other != path && change.new_hash.is_some()) {
        changed.push(ChangedArtifact {
            text: read(workspace.peek(&other)?),
            path: other,
            original: String::new(),
        });
    }
    if changed
        .iter()
        .map(|artifact| artifact.text.len())
        .sum::<usize>()
        > MAX_ARTIFACT_BYTES
    {
        return Ok(Vec::new());
    }
    let page = wiki::page_key(path).and_then(|_| WikiPage::parse(text.as_bytes()).ok());
    let links = page
        .as_ref()
        .map(references::page_links)
        .unwrap_or_default();
    let mut found = unsourced_in(&changed, received);
    found.retain(|found| found.path == path && !links.contains(found.name.as_str()));
    Ok(found)
}

/// True if a line of a page, outside of code blocks, uses `name` as an identifier.
pub(crate) fn is_claimed_in_line(line: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    let claims = claims::claims_in_line(line);
    claims
        .names
        .iter()
        .any(|claim| claim.name.to_lowercase() == name)
}

fn unsourced_in(changed: &[ChangedArtifact], received: &ReceivedNames) -> Vec<UnsourcedIdentifier> {
    let found: Vec<claims::Claims> = changed
        .iter()
        .map(|artifact| claims::find_claims(&artifact.path, &artifact.text))
        .collect();
    let defined: HashSet<String> = found
        .iter()
        .flat_map(|claims| &claims.defined)
        .map(|name| name.to_lowercase())
        .collect();
    let mut unsourced = Vec::new();
    for (artifact, claims) in changed.iter().zip(&found) {
        let mut known = ReceivedNames::default();
        known.add_text(&artifact.original);
        let local: HashSet<String> = claims
            .local
            .iter()
            .map(|name| name.to_lowercase())
            .collect();
        let is_sourced = |name: &str| {
            let lower = name.to_lowercase();
            received.contains(name)
                || known.contains(name)
                || defined.contains(&lower)
                || local.contains(&lower)
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
