//! What the answers of databases and scans prove about the identifiers of an attempt. Plain data.

use serde::{Deserialize, Serialize};

/// Maximum number of identifiers that are recorded for an attempt; contradicted ones come first.
pub const MAX_CHECKED: usize = 1_000;
/// Maximum number of identifiers of its ledger that are recorded for an attempt.
const MAX_UNPROVEN: usize = 100;

/// The identifiers of an attempt, compared with the answers to its calls. All empty if there was nothing to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VerificationRecord {
    /// Its pages and sources that name tables or columns, by path; at most [`MAX_CHECKED`] identifiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactVerification>,
    /// Identifiers that its ledger lists as verified although no answer has them, at most [`MAX_UNPROVEN`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unproven: Vec<String>,
    /// Connections that it wrote sources for and that have neither a database nor a scan, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
}

impl VerificationRecord {
    /// Keeps at most [`MAX_CHECKED`] identifiers, contradicted ones first, then unverified ones, and artifacts that have some.
    pub fn truncate(&mut self) {
        let mut room = MAX_CHECKED;
        for artifact in &mut self.artifacts {
            artifact.contradicted.truncate(room);
            room -= artifact.contradicted.len();
        }
        for artifact in &mut self.artifacts {
            artifact.unverified.truncate(room);
            room -= artifact.unverified.len();
        }
        for artifact in &mut self.artifacts {
            artifact.verified.truncate(room);
            room -= artifact.verified.len();
        }
        self.artifacts.retain(|artifact| !artifact.is_empty());
        self.unproven.truncate(MAX_UNPROVEN);
    }
}

/// The tables and columns that a page or source names, as it spells them: `public.orders`, `public.orders.status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArtifactVerification {
    /// Path of the artifact, relative to the project.
    pub path: String,
    /// Those that a successful answer has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verified: Vec<String>,
    /// Those that no answer has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
    /// Those that a complete answer disproves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contradicted: Vec<ContradictedIdentifier>,
}

/// An identifier that a complete answer disproves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContradictedIdentifier {
    pub name: String,
    /// What the answer has instead, as a clause: ``there is no such table in `wh` ``.
    pub found: String,
}

impl ArtifactVerification {
    /// Number of identifiers that were compared.
    pub fn len(&self) -> usize {
        self.verified.len() + self.unverified.len() + self.contradicted.len()
    }

    /// True if no identifier was compared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A sentence without its end for each contradicted identifier.
    pub fn findings(&self) -> impl Iterator<Item = String> {
        let finding = |it: &ContradictedIdentifier| {
            let ContradictedIdentifier { name, found } = it;
            format!("{} `{name}`: {found}", self.path)
        };
        self.contradicted.iter().map(finding)
    }
}
