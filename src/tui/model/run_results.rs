//! What a recorded run left, for its summary on the page of units. It is computed once for each state.

use ingestdeck_core::{
    run::{
        artifacts::run_artifacts,
        failure_groups::{FailureGroup, failure_groups},
        run_forecast::RunForecast,
        saved_commits::{commits_line, saved_commits},
        state::{RunState, StateVersion},
    },
    tape::note::attempt_output::ArtifactTarget,
    text::pluralize,
};

/// The results of a recorded run at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunResults {
    /// The pages, sources and other files whose changes are part of the result, as `7 pages, 1 source`.
    pub written: String,
    /// The last commit with its branch, and the files of all.
    pub commit: Option<String>,
    /// The units that need a person, by cause.
    pub causes: Vec<FailureGroup>,
    /// Forecast of the units without a reusable result.
    pub unfinished: RunForecast,
    made_from: Option<StateVersion>,
}

impl RunResults {
    /// Computes the results again if the state has changed.
    pub(super) fn refresh(&mut self, state: &RunState) {
        let made_from = Some(state.version());
        if self.made_from == made_from {
            return;
        }
        let commits = saved_commits(&state.inputs, &state.publication);
        *self = Self {
            written: written(state),
            commit: commits_line(&commits),
            causes: failure_groups(state),
            unfinished: RunForecast::for_retry(state, &unfinished_units(state)),
            made_from,
        };
    }
}

/// Indexes of the units that a continued run would run.
pub(crate) fn unfinished_units(state: &RunState) -> Vec<usize> {
    let units = state.units.iter().enumerate();
    let unfinished = units.filter(|(_, unit)| unit.status.needs_retry());
    unfinished.map(|(unit, _)| unit).collect()
}

fn written(state: &RunState) -> String {
    let artifacts = run_artifacts(state);
    let count = |target: Option<ArtifactTarget>, word| {
        let counted = artifacts.iter().filter(|artifact| artifact.state.counts());
        let count = counted.filter(|artifact| artifact.target == target).count();
        (count > 0).then(|| pluralize(count, word))
    };
    let counts = [
        count(Some(ArtifactTarget::Wiki), "page"),
        count(Some(ArtifactTarget::SemanticLayer), "source"),
        count(None, "other file"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    counts.join(", ")
}
