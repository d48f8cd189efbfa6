//! What databases and scans prove about the identifiers of pages and sources, over the attempts that wrote them. Pure.
//!
//! It must not know how they are shown.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{RunState, UnitStatus};
use crate::{
    tape::note::{
        AttemptOutput, ReviewedFile,
        verification::{ArtifactVerification, MAX_CHECKED},
    },
    text::list_some,
};

/// The identifiers of a page or source, each in one state: an identifier that one attempt verified is verified, unless
/// another one found that it is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedNames {
    pub verified: BTreeSet<String>,
    pub unverified: BTreeSet<String>,
    /// With what was found instead.
    pub contradicted: BTreeMap<String, String>,
}

impl<'a> FromIterator<&'a ArtifactVerification> for VerifiedNames {
    fn from_iter<I: IntoIterator<Item = &'a ArtifactVerification>>(artifacts: I) -> Self {
        let mut names = Self::default();
        for artifact in artifacts {
            names.verified.extend(artifact.verified.iter().cloned());
            names.unverified.extend(artifact.unverified.iter().cloned());
            let contradicted = artifact.contradicted.iter();
            names
                .contradicted
                .extend(contradicted.map(|it| (it.name.clone(), it.found.clone())));
        }
        let Self {
            verified,
            unverified,
            contradicted,
        } = &mut names;
        verified.retain(|name| !contradicted.contains_key(name));
        unverified.retain(|name| !contradicted.contains_key(name) && !verified.contains(name));
        names
    }
}

impl VerifiedNames {
    /// True if no identifier was compared.
    pub fn is_empty(&self) -> bool {
        self.verified.is_empty() && self.unverified.is_empty() && self.contradicted.is_empty()
    }

    fn numbers(&self) -> [usize; 3] {
        [
            self.verified.len(),
            self.unverified.len(),
            self.contradicted.len(),
        ]
    }

    /// The contradicted identifiers, each with what was found instead.
    pub fn contradictions(&self) -> impl Iterator<Item = String> {
        self.contradicted
            .iter()
            .map(|(name, found)| format!("`{name}`: {found}"))
    }

    /// The numbers, and the first names of each state: ``1 contradicted (`c`: …); 2 verified (a, b)``.
    pub fn sentence(&self) -> String {
        let lists: [(&str, Vec<String>); 3] = [
            ("contradicted", self.contradictions().collect()),
            ("unverified", self.unverified.iter().cloned().collect()),
            ("verified", self.verified.iter().cloned().collect()),
        ];
        let lists = lists.iter().filter(|(_, names)| !names.is_empty());
        let lists: Vec<String> = lists
            .map(|(state, names)| format!("{} {state} ({})", names.len(), list_some(names)))
            .collect();
        lists.join("; ")
    }
}

/// The identifiers of all pages and sources that the successful units of a run wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunVerification {
    /// Numbers of verified, unverified and contradicted identifiers.
    pub counts: [usize; 3],
    /// Connections that sources were written for and that nothing could be checked against, sorted.
    pub unchecked: BTreeSet<String>,
}

impl RunVerification {
    /// What the latest attempts of the successful units of `state` recorded.
    pub fn from_state(state: &RunState) -> Self {
        let mut found = Self::default();
        let mut by_path: BTreeMap<&str, Vec<&ArtifactVerification>> = BTreeMap::new();
        let units = state
            .units
            .iter()
            .filter(|unit| unit.status == UnitStatus::Succeeded);
        let outputs = units.filter_map(|unit| unit.latest()?.delivery.output.as_deref());
        for record in outputs.filter_map(|output| output.verification.as_ref()) {
            for artifact in record.artifacts.iter().take(MAX_CHECKED) {
                by_path.entry(&artifact.path).or_default().push(artifact);
            }
            found
                .unchecked
                .extend(record.unchecked.iter().take(MAX_CHECKED).cloned());
        }
        for names in by_path.into_values() {
            let names: VerifiedNames = names.into_iter().collect();
            for (count, more) in found.counts.iter_mut().zip(names.numbers()) {
                *count += more;
            }
        }
        found
    }

    /// The sentences of a summary: the counts, if an identifier was compared, and what could not be checked.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let counts = format_counts(self.counts);
        let counts = (!counts.is_empty()).then(|| format!("tables and columns: {counts}"));
        let unchecked: Vec<String> = self.unchecked.iter().map(|id| format!("`{id}`")).collect();
        let unchecked = (!unchecked.is_empty())
            .then(|| format!("nothing could be checked against {}", list_some(&unchecked)));
        counts.into_iter().chain(unchecked)
    }
}

fn format_counts(counts: [usize; 3]) -> String {
    let counts = counts
        .into_iter()
        .zip(["verified", "unverified", "contradicted"]);
    let counts = counts.filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, state)| format!("{count} {state}"))
        .collect();
    counts.join(", ")
}

/// The identifiers of a reviewed file that its units wrote.
pub fn file_verification(state: &RunState, file: &ReviewedFile) -> VerifiedNames {
    let units = state.units.iter();
    let units = units.filter(|unit| file.units.contains(&unit.key));
    let outputs = units.filter_map(|unit| state.work(unit).or_else(|| state.committed_work(unit)));
    outputs
        .flat_map(|output| of_path(output, &file.path))
        .collect()
}

/// What an output records about the artifact at `path`.
fn of_path<'a>(
    output: &'a AttemptOutput,
    path: &'a str,
) -> impl Iterator<Item = &'a ArtifactVerification> {
    let record = output.verification.iter();
    record
        .flat_map(|record| record.artifacts.iter().take(MAX_CHECKED))
        .filter(move |artifact| artifact.path == path)
}
