//! Units of prior runs whose attempts were cut by a limit, by an error of the service, or by the end of their engine, and
//! whose sessions still exist. Must not start anything.

use std::{
    collections::HashMap,
    fs::Metadata,
    time::{Duration, UNIX_EPOCH},
};

use super::{ResumeChain, planned_units};
use crate::{
    continued_runs::ContinuedRuns,
    cut_sessions::{CutSession, session_file},
};
use ingestdeck_core::{
    run::{
        RunState,
        spending::attempt_duration,
        state::{AttemptState, RecordedIsolation, UnitState},
    },
    tape::{
        Millis, RunId,
        note::{AttemptOutcome, ContinuedWork},
    },
    units::retry::is_cut_from_outside,
};
use ingestdeck_ingest::{
    self as ingest, content_digest, project::Project, transcript::RecordedCalls,
    work_unit::WorkUnit,
};

/// Most attempts that a session may have.
const MAX_ATTEMPTS: usize = 64;

/// The runs that a run continues, as the origin of sessions.
#[derive(Debug)]
pub(super) struct CutUnits<'a> {
    project: &'a Project,
    /// Newest first; empty if their sessions may not be continued.
    runs: Vec<(RunId, &'a RunState)>,
    model: Option<&'a str>,
}

impl<'a> CutUnits<'a> {
    /// Sessions that a record from elsewhere names are not resumed, nor those that another run may have continued.
    pub(super) fn new(
        project: &'a Project,
        chain: &'a ResumeChain,
        continued: &ContinuedRuns,
        model: Option<&'a str>,
    ) -> Self {
        let is_own = |run: RunId| {
            ingest::is_run_marked(&project.root, run)
                && !continued.is_continued_besides(run, chain.id())
        };
        let runs = chain.runs().take_while(|(run, _)| is_own(*run)).collect();
        Self {
            project,
            runs,
            model,
        }
    }

    /// The session that the next attempt at `unit` continues.
    pub(super) fn find(&self, unit: &WorkUnit) -> Option<CutSession> {
        let key = &unit.planned.unit;
        let mut attempted = self.runs.iter().filter_map(|(run, state)| {
            let unit = planned_units(state).find(|known| known.key == *key)?;
            Some((*run, unit, unit.latest()?))
        });
        let (run, then, last) = attempted.next()?;
        let session = last.setup.session.as_deref().filter(|_| is_cut(last))?;
        let now = content_digest::digest_unit(self.project, unit, self.model).ok()?;
        let is_same = last
            .setup
            .content
            .as_ref()
            .is_some_and(|content| content.combined == now.combined);
        let work = ContinuedWork {
            run: Some(run),
            attempt: last.number,
            turns: last.counts.turns,
            tokens: last.counts.tokens.total(),
            active_ms: attempt_duration(then, last, last.last_at).0,
            cost_usd: last.counts.cost_usd,
        };
        let work = work.after(last.setup.continued());
        if !is_same || work.turns == 0 {
            return None;
        }
        let file = session_file(&self.project.root, session)?;
        if has_changed_since(&file, run, last.last_at) {
            return None;
        }
        Some(CutSession {
            session: session.to_owned(),
            work,
            calls: self.calls(run, then, last)?,
            file_bytes: None,
        })
    }

    /// Where the calls of the session of `last` are recorded; `None` if a part of them is not.
    fn calls(
        &self,
        run: RunId,
        unit: &UnitState,
        last: &AttemptState,
    ) -> Option<Vec<RecordedCalls>> {
        let states: HashMap<RunId, &RunState> = self.runs.iter().copied().collect();
        let (mut run, mut attempt) = (run, last);
        let mut calls = Vec::new();
        while calls.len() < MAX_ATTEMPTS {
            let state = states.get(&run)?;
            calls.push(RecordedCalls {
                job: state.planned.as_ref()?.job.clone(),
                attempt: attempt.number,
            });
            let Some(earlier) = attempt.setup.continued() else {
                calls.reverse();
                return Some(calls);
            };
            run = earlier.run.unwrap_or(run);
            let mut attempts = planned_units(states.get(&run)?)
                .filter(|known| known.key == unit.key)
                .flat_map(|known| &known.attempts);
            attempt = attempts.find(|known| known.number == earlier.attempt)?;
        }
        None
    }
}

/// True if the file of a session was written long after its last entry on the tape, such as by a person who continued it.
fn has_changed_since(file: &Metadata, run: RunId, last: Millis) -> bool {
    // The agent of a killed engine ends soon after it.
    const MARGIN: Duration = Duration::from_secs(120);
    let started = run.0.get_timestamp().map(|at| at.to_unix());
    let Some(((seconds, nanos), modified)) = started.zip(file.modified().ok()) else {
        return false;
    };
    let last = Duration::new(seconds, nanos) + Duration::from_millis(last.0) + MARGIN;
    modified
        .duration_since(UNIX_EPOCH)
        .is_ok_and(|modified| modified > last)
}

/// True for an attempt on this machine that was cut from outside, with nothing that counts against it.
fn is_cut(attempt: &AttemptState) -> bool {
    let failures = attempt.counts.failures as usize;
    let is_external = match &attempt.verdict {
        // Its engine ended first.
        None => failures == 0,
        Some(verdict) => {
            verdict.outcome == AttemptOutcome::Failed
                && is_cut_from_outside(&verdict.cause, failures)
        }
    };
    is_external
        && attempt.setup.worker.is_none()
        && !attempt.setup.is_scripted
        && attempt.setup.isolation == RecordedIsolation::Verified
}
