//! The fold of our own notes: plan, attempts, retries, limits, end.

use std::sync::Arc;

use super::{
    DEFAULT_SILENCE_AFTER, Fold, FoldEvent, RunChange, attempt::status_for_verdict, silence::MIN_SILENCE_AFTER,
};
use crate::{
    actions::StreamEnd,
    run::{
        EntryRef, EntryScope as Address,
        activity_index::ActivityMark,
        state::{HeldCallState, HoldMode, RowEnd, RunPause, RunView, Throttling, UnitStatus},
    },
    tape::{
        Millis, Note,
        note::{AttemptEnded, AttemptOutcome, AttemptStarted, CallDecision, ContinuedRun, RunPlanned, Severity},
    },
};

impl Fold {
    pub(super) fn note(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        note: &Note,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let at = arrived.at;
        match note {
            Note::RunPlanned(planned) => self.planned(story, arrived, planned, emit),
            Note::SourceRead(read) => story.state.sources.push(Arc::new((**read).clone())),
            Note::FilesEvicted(evicted) => {
                let files = if evicted.paths.len() == 1 { "file" } else { "files" };
                let text =
                    format!("dealt with {} {files} of {} that are gone", evicted.paths.len(), evicted.connection);
                self.report_message(story, arrived, Severity::Info, text);
                story.state.evicted.push(Arc::new((**evicted).clone()));
            }
            Note::SourcesProjected(projected) => {
                let level = if projected.reason.is_some() { Severity::Warning } else { Severity::Info };
                let left_out =
                    projected.left_out.iter().map(|why| (Severity::Info, format!("left to the units: {why}")));
                for (level, text) in [(level, projected.to_string())].into_iter().chain(left_out) {
                    emit(FoldEvent::Run { at, change: RunChange::Message { level, text: &text } });
                    self.report_message(story, arrived, level, text);
                }
                story.state.projected.push(Arc::new((**projected).clone()));
            }
            Note::AttemptStarted(started) => self.attempt_started(story, arrived, started, emit),
            Note::IsolationChecked(checked) => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                let fold = self.attempt_fold(lane);
                let attempt = fold.attempt(story);
                attempt.isolation_proven = checked.breach.is_none();
                attempt.breach = checked.breach.as_deref().map(Arc::from);
                match checked.breach {
                    None => fold.note_row(story, arrived.seq, RowEnd::Ok),
                    Some(_) => fold.breach_row(story, arrived.seq),
                }
            }
            Note::AttemptEnded(ended) => self.attempt_ended(story, arrived, ended, emit),
            Note::RetryScheduled { delay_ms, next, .. } => {
                story.last_change.marks.add(ActivityMark::Retry);
                self.attempt_waiting(
                    story,
                    arrived,
                    Some(Millis(at.0.saturating_add(*delay_ms))),
                    UnitStatus::Waiting,
                    emit,
                );
                let wait = Millis(*delay_ms);
                self.report_message(story, arrived, Severity::Info, format!("attempt {next} starts in {wait}"));
            }
            Note::RetryRequested { next, amendment } => {
                story.last_change.marks.add(ActivityMark::Retry);
                story.state.ended = None;
                story.state.is_stopping = false;
                self.attempt_waiting(story, arrived, None, UnitStatus::Queued, emit);
                let amended = amendment.as_ref().map(|amendment| format!(", {amendment}")).unwrap_or_default();
                self.report_message(
                    story,
                    arrived,
                    Severity::Info,
                    format!("retry asked for: attempt {next}{amended}"),
                );
            }
            Note::StopRequested { how } => self.stop_requested(story, arrived, *how, emit),
            Note::HoldRequested => self.hold_changed(story, arrived, HoldMode::EachCall, "hold asked for", emit),
            Note::HoldReleased => self.hold_changed(story, arrived, HoldMode::Off, "let go", emit),
            Note::RunUntil { condition } => {
                let words = format!("runs until {condition}");
                self.hold_changed(story, arrived, HoldMode::Until(condition.as_str().into()), &words, emit);
            }
            Note::CallHeld { tool, tool_use_id, input, reached } => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                let call = HeldCallState {
                    since: at,
                    tool: tool.as_str().into(),
                    tool_use_id: tool_use_id.as_deref().map(Arc::from),
                    input: input.to_string().into(),
                    reached: reached.as_deref().map(Arc::from),
                };
                let fold = self.attempt_fold(lane);
                let holding = &mut fold.unit(story).hold_mode;
                if let HoldMode::Until(_) = holding {
                    *holding = HoldMode::EachCall;
                }
                // The row of the call shows that it waits; only what made it wait is news.
                if reached.is_some() || !fold.is_open(tool_use_id.as_deref()) {
                    fold.note_row(story, arrived.seq, RowEnd::Ok);
                }
                fold.attempt(story).held_calls.push(call);
                fold.sync_hold_status(story, at, Some(tool), emit);
            }
            Note::CallDecided { tool_use_id, decision, .. } => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                let fold = self.attempt_fold(lane);
                let held = &mut fold.attempt(story).held_calls;
                if let Some(place) = held.iter().position(|call| call.tool_use_id.as_deref() == tool_use_id.as_deref())
                {
                    held.remove(place);
                }
                if let (CallDecision::Edited, Some(id)) = (decision, tool_use_id) {
                    fold.edited(story, id, arrived.seq);
                }
                let denied = *decision == CallDecision::Denied;
                if let (true, Some(id)) = (denied, tool_use_id) {
                    fold.record_refusal(story, id);
                }
                // A refusal is what the call comes to, and letting a unit go has a row of its own.
                let shown = denied || *decision == CallDecision::Released;
                if !shown || !fold.is_open(tool_use_id.as_deref()) {
                    fold.note_row(story, arrived.seq, if denied { RowEnd::Denied } else { RowEnd::Ok });
                }
                fold.sync_hold_status(story, at, None, emit);
            }
            Note::LimitPaused { until, limit, wait_ms } => {
                story.last_change.marks.add(ActivityMark::Limit);
                let until = until.or_else(|| wait_ms.map(|wait| Millis(at.0.saturating_add(wait))));
                story.state.pause = Some(RunPause { until, reason: limit.clone() });
                let wait = wait_ms.map(|wait| format!(" for {}", Millis(wait))).unwrap_or_default();
                self.report_message(story, arrived, Severity::Warning, format!("paused{wait}: {limit}"));
                emit(FoldEvent::Run { at, change: RunChange::Paused { until, limit } });
            }
            Note::LimitLifted => {
                story.state.pause = None;
                // The windows start afresh with it.
                story.state.throttling = None;
                emit(FoldEvent::Run { at, change: RunChange::Resumed });
            }
            Note::Throttled { slots, limit } => {
                story.state.throttling = slots.map(|slots| Throttling { concurrency: slots, reason: limit.clone() });
                let (level, text) = match slots {
                    Some(slots) => (Severity::Warning, format!("{limit} is nearly spent: {slots} at a time")),
                    None => (Severity::Info, format!("{limit} is well again: full speed")),
                };
                self.report_message(story, arrived, level, text.clone());
                emit(FoldEvent::Run { at, change: RunChange::Message { level, text: &text } });
            }
            Note::ConcurrencyChanged { slots } => {
                if let Some(planned) = &mut story.state.planned {
                    Arc::make_mut(planned).concurrency = *slots;
                }
                self.report_message(story, arrived, Severity::Info, format!("{slots} at once from here on"));
            }
            Note::Published { paths } => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                let fold = self.attempt_fold(lane);
                fold.attempt(story).published.clone_from(paths);
                fold.note_row(story, arrived.seq, RowEnd::Ok);
            }
            Note::PatchWritten(written) => self.patch_written(story, arrived, written, emit),
            Note::IntegrationStarted(integrating) => Self::integrating(story, arrived, integrating, emit),
            Note::PatchIntegrated(integrated) => self.patch_integrated(story, arrived, integrated, emit),
            Note::RunSaved(saved) => self.saved(story, arrived, saved, emit),
            Note::SlRefsRepaired(repaired) => self.sl_refs_repaired(story, arrived, repaired, emit),
            Note::SaveFailed(failed) => self.save_failed(story, arrived, failed, emit),
            Note::ToolFailed { tool, tool_use_id, message } => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                let fold = self.attempt_fold(lane);
                fold.count_failure(story, tool_use_id.as_deref());
                fold.record_first_failure(story, Some(tool), || message.as_str().into());
            }
            Note::ToolDeclined { tool_use_id, .. } => {
                let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
                self.enter(story, lane, arrived);
                self.attempt_fold(lane).record_decline(story, tool_use_id.as_deref());
            }
            Note::Message { level, text } => {
                // Attempt 0 stands for a unit that has none yet: there is no lane to show it in.
                let mut is_told = false;
                if matches!(arrived.scope, Address::Attempt(_, 1..))
                    && let Some(lane) = self.resolve_attempt(story, arrived, None, emit)
                {
                    self.enter(story, lane, arrived);
                    let fold = self.attempt_fold(lane);
                    fold.note_row(story, arrived.seq, RowEnd::Ok);
                    is_told = fold.has_warned(text);
                }
                self.report_message(story, arrived, *level, text.clone());
                match arrived.scope {
                    Address::Run => emit(FoldEvent::Run { at, change: RunChange::Message { level: *level, text } }),
                    Address::Attempt(unit, attempt) if !is_told => {
                        emit(FoldEvent::Message { at, unit, attempt, level: *level, text });
                    }
                    Address::Attempt(..) | Address::BySession => {}
                }
            }
            Note::RunEnded(ended) => self.run_ended(story, arrived, ended, emit),
            Note::Unknown { .. } => story.state.loss_counts.unknown_notes += 1,
        }
    }

    fn planned(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        planned: &RunPlanned,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        emit(FoldEvent::Run { at: arrived.at, change: RunChange::Planned(planned) });
        let reused = |unit| planned.continues.as_ref()?.units.get(unit)?.reused.as_ref();
        for unit in &planned.units {
            let index = self.unit_index(story, &unit.unit);
            story.state.units[index].planned = Some(Arc::new(unit.clone()));
            let status = if reused(&unit.unit).is_some() { UnitStatus::Reused } else { UnitStatus::Queued };
            story.state.units[index].status = status;
            emit(FoldEvent::Unit {
                at: arrived.at,
                unit: &unit.unit,
                attempt: 0,
                status,
                reason: Some(&unit.why).filter(|why| !why.is_empty()).map(String::as_str),
            });
        }
        for skipped in &planned.skipped {
            self.report_message(story, arrived, Severity::Warning, skipped.why.clone());
        }
        if let Some(continues) = &planned.continues {
            let reused = continues.units.values().filter(|earlier| earlier.reused.is_some()).count();
            self.report_message(story, arrived, Severity::Info, continuation_summary(continues, reused));
            story.state.unreconciled = continues.unreconciled.keys().cloned().collect();
        }
        self.silence_tracker.after =
            planned.silence_after_ms.map_or(DEFAULT_SILENCE_AFTER, |after| Millis(after).max(MIN_SILENCE_AFTER));
        story.state.planned = Some(Arc::new(planned.clone()));
    }

    fn attempt_started(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        started: &AttemptStarted,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        story.state.ended = None;
        merge_env_names(&mut story.state.env_passed, &started.env_passed);
        let fold = self.attempt_fold(lane);
        fold.begin(story, started);
        let attempt = fold.attempt(story);
        attempt.requested_model = started.model.as_deref().map(Arc::from);
        attempt.amendment = started.amendment.clone().map(Arc::new);
        attempt.content = started.content.clone().map(Arc::new);
        attempt.started_at = arrived.at;
        attempt.start_note = Some(arrived.seq);
        attempt.pid = started.pid;
        attempt.is_scripted = started.scripted;
        attempt.step_budget = (started.step_budget > 0).then_some(started.step_budget);
        let unit = fold.unit(story);
        unit.retry_at = None;
        unit.status = UnitStatus::Running;
        fold.attempt(story).silent_since = Some(arrived.at);
        fold.note_row(story, arrived.seq, RowEnd::Ok);
        if started.amendment.is_some() {
            fold.amendment_row(story, arrived.seq);
        }
        fold.emit_status(arrived.at, UnitStatus::Running, None, emit);
        self.start_silence_watch(lane, arrived.at);
    }

    fn attempt_ended(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        ended: &AttemptEnded,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Some(lane) = self.resolve_attempt(story, arrived, None, emit) else { return };
        self.enter(story, lane, arrived);
        self.end_silence(story, lane, arrived);
        let fold = self.attempt_fold(lane);
        let has_process = fold.attempt(story).pid.is_some() || ended.exit_code.is_some() || ended.signal.is_some();
        let is_unstarted = !has_process && ended.verdict.outcome != AttemptOutcome::Succeeded;
        let stream = StreamEnd {
            exit_code: ended.exit_code,
            signal: ended.signal,
            stderr: ended.stderr_tail.last().cloned(),
            not_started: is_unstarted.then(|| ended.verdict.reason.clone()),
        };
        fold.end(story, arrived.seq, &stream, emit);
        let status = status_for_verdict(&ended.verdict);
        if status == UnitStatus::BudgetExhausted {
            story.last_change.marks.add(ActivityMark::Limit);
        }
        if let Some(failed) = &ended.failed_call {
            // The first failure of the stream may have been made good since.
            fold.attempt(story).first_failure = None;
            fold.record_first_failure(story, Some(&failed.tool), || failed.message.as_str().into());
        }
        let attempt = fold.attempt(story);
        attempt.ended_at = Some(arrived.at);
        attempt.pid = None;
        attempt.held_calls.clear();
        attempt.silent_since = None;
        attempt.failures = attempt.failures.max(ended.tool_failures);
        attempt.verdict = Some(ended.verdict.clone());
        attempt.work = Some(Arc::new(ended.work.clone()));
        fold.unit(story).status = status;
        fold.verdict_row(story, arrived.seq, ended.verdict.outcome);
        fold.emit_status(arrived.at, status, Some(&ended.verdict.reason), emit);
        if ended.verdict.outcome == AttemptOutcome::Failed {
            self.report_message(story, arrived, Severity::Error, ended.verdict.reason.clone());
        }
    }

    /// A person holds a unit or lets it go. A unit that has no attempt yet (attempt 0) has no lane to show it in.
    fn hold_changed(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        holding: HoldMode,
        words: &str,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Address::Attempt(key, number) = arrived.scope else { return };
        let index = self.unit_index(story, &key.into());
        story.state.units[index].hold_mode = holding;
        if number > 0
            && let Some(lane) = self.resolve_attempt(story, arrived, None, emit)
        {
            self.enter(story, lane, arrived);
            self.attempt_fold(lane).note_row(story, arrived.seq, RowEnd::Ok);
        }
        self.report_message(story, arrived, Severity::Info, words.to_owned());
    }

    /// A unit waits for its next attempt. Its lane is not entered: that attempt does not exist yet.
    fn attempt_waiting(
        &mut self,
        story: &mut RunView,
        arrived: &EntryRef<'_>,
        until: Option<Millis>,
        status: UnitStatus,
        emit: &mut dyn FnMut(FoldEvent<'_>),
    ) {
        let Address::Attempt(key, attempt) = arrived.scope else { return };
        let index = self.unit_index(story, &key.into());
        let unit = &mut story.state.units[index];
        unit.retry_at = until;
        unit.status = status;
        emit(FoldEvent::Unit { at: arrived.at, unit: key, attempt, status, reason: None });
    }
}

/// Adds names of variables that are not among the others yet.
fn merge_env_names(known: &mut Arc<[Arc<str>]>, names: &[String]) {
    let is_new = |name: &&String| !known.iter().any(|known| **known == **name);
    if names.iter().any(|name| is_new(&name)) {
        let mut all: Vec<Arc<str>> =
            known.iter().cloned().chain(names.iter().map(|name| name.as_str().into())).collect();
        all.sort_unstable();
        all.dedup();
        *known = all.into();
    }
}

/// What a run continues, in one sentence.
fn continuation_summary(continues: &ContinuedRun, reused: usize) -> String {
    let how = continues.outcome.as_deref().unwrap_or("broken off");
    let cost = continues.cost_usd.map_or_else(|| "cost ?".to_owned(), |cost| format!("${cost:.2}"));
    format!("continues run {} ({how}, {cost}), {reused} of its units are reused", continues.run.short())
}
