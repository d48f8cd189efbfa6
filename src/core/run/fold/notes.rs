//! The fold of the notes: plan, attempts, retries, limits, end.

use std::sync::Arc;

use super::{
    DEFAULT_SILENCE_AFTER, Fold, RunEvent, SinkEvent, attempt::status_after_attempt,
    silence::MIN_SILENCE_AFTER,
};
use crate::{
    actions::StreamEnd,
    run::{
        EntryRef, EntryScope,
        activity_mark::ActivityMark,
        savings::continued_sentence,
        schedule_change::{RecordedChange, ScheduleChange},
        state::{
            HeldCallState, HoldMode, RecordedIsolation, RequestedAttempt, RowOutcome, RunPause,
            RunView, Throttling, UnitStatus, WorkerWait,
        },
    },
    tape::{
        Millis, Note,
        note::{
            AttemptEnded, AttemptOutcome, AttemptStarted, CallDecision, ContinuedRun,
            ContinuedWork, LimitChanged, RunPlanned, Severity, SourcesProjected,
        },
    },
};

/// Changes the plan of a run as a person changed its limits.
fn apply_limit(planned: &mut RunPlanned, changed: &LimitChanged) {
    match changed.limit.as_str() {
        "run_budget" => planned.run_budget_usd = changed.new.as_f64(),
        "turns" => {
            let turns = changed
                .new
                .as_u64()
                .and_then(|turns| u32::try_from(turns).ok());
            planned.step_budget = turns.unwrap_or(planned.step_budget);
        }
        "tool_failures" => {
            if let Some(rule) = changed.new.as_str() {
                planned.tool_failures = rule.to_owned();
            }
        }
        _ => {}
    }
}

impl Fold {
    pub(super) fn note(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        note: &Note,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let at = entry.at;
        let attempt = match entry.scope {
            EntryScope::Attempt(unit, attempt) => Some((unit, attempt)),
            EntryScope::Run | EntryScope::BySession => None,
        };
        emit(SinkEvent::Note { at, attempt, note });
        match note {
            Note::RunPlanned(planned) => self.planned(view, entry, planned, emit),
            Note::SourceRead(read) => view.state.inputs.sources.push(Arc::new((**read).clone())),
            Note::FilesEvicted(evicted) => {
                self.report_message(view, entry, Severity::Info, note.to_string());
                view.state
                    .inputs
                    .evicted
                    .push(Arc::new((**evicted).clone()));
            }
            Note::SourcesProjected(projected) => {
                let level = if projected.reason.is_some() {
                    Severity::Warning
                } else {
                    Severity::Info
                };
                let left_out = projected
                    .left_out
                    .iter()
                    .map(|why| (Severity::Info, format!("left to the units: {why}")));
                let refused = projected.refusals().map(|(document, why)| {
                    let text = format!("{} is not kept: {why}", document.path);
                    (Severity::Warning, text)
                });
                let messages = [(level, projected.to_string())].into_iter();
                for (level, text) in messages.chain(left_out).chain(refused) {
                    emit(SinkEvent::Run {
                        at,
                        change: RunEvent::Message { level, text: &text },
                    });
                    self.report_message(view, entry, level, text);
                }
                // Changes that no longer fit the branch are lost.
                let is_lost = |earlier: &Arc<SourcesProjected>| {
                    projected.reason.is_some()
                        && earlier.is_unsaved()
                        && earlier.connection == projected.connection
                        && earlier.cause == projected.cause
                };
                view.state
                    .inputs
                    .projected
                    .retain(|earlier| !is_lost(earlier));
                view.state
                    .inputs
                    .projected
                    .push(Arc::new((**projected).clone()));
            }
            Note::CommandReceived(received) => {
                Self::review_command_received(view, &received.command);
                // The effects of keys on the screen are visible; other commands need an explanation.
                let stops = matches!(&*received.command, "drain" | "stop_all" | "kill_all");
                if stops {
                    view.state.limits.stopped_by = received.sender().map(String::into_boxed_str);
                }
                // Another screen shows the end only.
                if stops
                    || received.client.as_deref() != Some("screen")
                    || received.reason.is_some()
                {
                    self.report_message(view, entry, Severity::Info, note.to_string());
                }
            }
            Note::WorkContinued(work) => self.work_continued(view, entry, work, emit),
            Note::AttemptStarted(started) => self.attempt_started(view, entry, started, emit),
            Note::IsolationChecked(checked) => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let fold = self.attempt_fold(attempt_id);
                let attempt = fold.attempt(view);
                attempt.setup.isolation = RecordedIsolation::of_check(checked.breach.as_deref());
                match checked.breach {
                    None => fold.isolation_row(view, entry.seq),
                    Some(_) => fold.breach_row(view, entry.seq),
                }
            }
            Note::AttemptEnded(ended) => self.attempt_ended(view, entry, ended, emit),
            Note::RetryScheduled { delay_ms, .. } => {
                view.last_change.marks.add(ActivityMark::Retry);
                let due = Millis(at.0.saturating_add(*delay_ms));
                if let Some(unit) =
                    self.attempt_waiting(view, entry, Some(due), UnitStatus::Waiting, emit)
                {
                    record_change(view, entry, ScheduleChange::RetryScheduled { unit, due });
                }
                self.report_message(view, entry, Severity::Info, note.to_string());
            }
            Note::RetryRequested { amendment, .. } => {
                view.last_change.marks.add(ActivityMark::Retry);
                if view.state.ended.take().is_some()
                    && let Some(ended) = view
                        .schedule_changes()
                        .iter()
                        .rfind(|it| it.change == ScheduleChange::RunEnded)
                {
                    view.state.time_ended.0 += at.since(ended.at).0;
                }
                view.state.limits.is_stopping = false;
                if let Some(unit) =
                    self.attempt_waiting(view, entry, None, UnitStatus::Queued, emit)
                {
                    record_change(view, entry, ScheduleChange::RetryRequested { unit });
                    let attempts = &mut view.state.units[unit as usize].attempts;
                    if let Some(attempt) = attempts.last_mut() {
                        let feedback = amendment.as_ref().and_then(|it| it.feedback.as_ref());
                        attempt.delivery.next = Some(match feedback {
                            Some(_) => RequestedAttempt::WithFeedback,
                            None => RequestedAttempt::Plain,
                        });
                    }
                }
                self.report_message(view, entry, Severity::Info, note.to_string());
            }
            Note::StopRequested { how } => self.stop_requested(view, entry, *how, emit),
            Note::HoldRequested => {
                self.hold_changed(view, entry, HoldMode::EachCall, "hold requested", emit)
            }
            Note::HoldReleased => self.hold_changed(view, entry, HoldMode::Off, "released", emit),
            Note::RunUntil { condition } => {
                self.hold_changed(
                    view,
                    entry,
                    HoldMode::Until(condition.as_str().into()),
                    &note.to_string(),
                    emit,
                );
            }
            Note::MessageSent { .. } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                self.attempt_fold(attempt_id).message_row(view, entry.seq);
            }
            Note::CallHeld {
                tool,
                tool_use_id,
                input,
                reached,
                needs_decision,
            } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let call = HeldCallState {
                    since: at,
                    tool: tool.as_str().into(),
                    tool_use_id: tool_use_id.as_deref().map(Arc::from),
                    input: input.to_string().into(),
                    reached: reached.as_deref().map(Arc::from),
                };
                let fold = self.attempt_fold(attempt_id);
                let holding = &mut fold.unit(view).hold_mode;
                // A call that a pause of the run holds does not end the wait for a condition.
                if let (HoldMode::Until(_), true) =
                    (&*holding, reached.is_some() && !needs_decision)
                {
                    *holding = HoldMode::EachCall;
                }
                // The row of the call shows that it waits, so only the condition that made it wait needs a row.
                if reached.is_some() || !fold.is_open(tool_use_id.as_deref()) {
                    fold.note_row(view, entry.seq, RowOutcome::Ok);
                }
                fold.attempt(view).held_calls.push(call);
                fold.sync_hold_status(view, at, Some(tool), emit);
                view.last_change.marks.add(ActivityMark::Hold);
                record_change(
                    view,
                    entry,
                    ScheduleChange::CallHeld {
                        attempt: attempt_id.0,
                    },
                );
            }
            Note::CallDecided {
                tool_use_id,
                decision,
                rule,
                ..
            } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let fold = self.attempt_fold(attempt_id);
                let held = &mut fold.attempt(view).held_calls;
                let place = held
                    .iter()
                    .position(|call| call.tool_use_id.as_deref() == tool_use_id.as_deref());
                if let Some(place) = place {
                    let since = held.remove(place).since;
                    if let Some(id) = tool_use_id {
                        let waited = rule.is_none().then(|| at.since(since));
                        fold.decided(view, id, entry.seq, waited);
                    }
                    record_change(
                        view,
                        entry,
                        ScheduleChange::CallDecided {
                            attempt: attempt_id.0,
                        },
                    );
                }
                if let (CallDecision::Edited, Some(id)) = (decision, tool_use_id) {
                    fold.edited(view, id, entry.seq);
                }
                let denied = *decision == CallDecision::Denied;
                if let (true, Some(id)) = (denied, tool_use_id) {
                    fold.record_calls(view, |reducer| match rule {
                        Some(_) => reducer.record_denial(Some(id)),
                        None => reducer.record_refusal(Some(id)),
                    });
                }
                // A denial is shown as the end of the call, and the release of a unit has its own row.
                let shown = denied || *decision == CallDecision::Released;
                if !shown || !fold.is_open(tool_use_id.as_deref()) {
                    fold.note_row(
                        view,
                        entry.seq,
                        if denied {
                            RowOutcome::Denied
                        } else {
                            RowOutcome::Ok
                        },
                    );
                }
                fold.sync_hold_status(view, at, None, emit);
            }
            Note::LimitPaused {
                until,
                limit,
                wait_ms,
            } => {
                view.last_change.marks.add(ActivityMark::Limit);
                let until = until.or_else(|| wait_ms.map(|wait| Millis(at.0.saturating_add(wait))));
                view.state.limits.pause = Some(RunPause {
                    until,
                    reason: limit.clone(),
                });
                record_change(view, entry, ScheduleChange::LimitPaused);
                self.report_message(view, entry, Severity::Warning, note.to_string());
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::Paused { until, limit },
                });
            }
            Note::LimitLifted => {
                view.state.limits.pause = None;
                // The usage windows start again with the process.
                view.state.limits.throttling = None;
                record_change(view, entry, ScheduleChange::LimitLifted);
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::Resumed,
                });
            }
            Note::Throttled { slots, limit } => {
                view.state.limits.throttling = slots.map(|slots| Throttling {
                    concurrency: slots,
                    reason: limit.clone(),
                });
                record_change(view, entry, ScheduleChange::Throttled(*slots));
                let level = if slots.is_some() {
                    Severity::Warning
                } else {
                    Severity::Info
                };
                let text = note.to_string();
                self.report_message(view, entry, level, text.clone());
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::Message { level, text: &text },
                });
            }
            Note::ConcurrencyChanged { slots, .. } => {
                if let Some(planned) = &mut view.state.planned {
                    Arc::make_mut(planned).concurrency = *slots;
                }
                record_change(view, entry, ScheduleChange::Concurrency(*slots));
                self.report_run_change(view, entry, note, emit);
            }
            Note::LimitChanged(changed) => {
                if let Some(planned) = &mut view.state.planned {
                    apply_limit(Arc::make_mut(planned), changed);
                }
                self.report_run_change(view, entry, note, emit);
            }
            Note::DecisionAwaited { .. } => {
                view.last_change.marks.add(ActivityMark::Hold);
                self.report_message(view, entry, Severity::Warning, note.to_string());
            }
            Note::ResultAccepted => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                self.attempt_fold(attempt_id)
                    .note_row(view, entry.seq, RowOutcome::Ok);
            }
            Note::RunPaused | Note::RunResumed => {
                let (limits, pauses) = (&mut view.state.limits, *note == Note::RunPaused);
                (limits.is_paused, limits.paused_since) =
                    (pauses, pauses.then(|| limits.paused_since.unwrap_or(at)));
                self.report_run_change(view, entry, note, emit);
            }
            Note::Published { paths } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let fold = self.attempt_fold(attempt_id);
                fold.attempt(view).delivery.published.clone_from(paths);
                fold.note_row(view, entry.seq, RowOutcome::Ok);
            }
            Note::PatchWritten(written) => self.patch_written(view, entry, written, emit),
            Note::IntegrationAdvanced(advanced) => {
                view.state.publication.ahead = *advanced;
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::IntegrationAdvanced(*advanced),
                });
            }
            Note::IntegrationStarted(integrating) => {
                Self::integrating(view, entry, integrating, emit)
            }
            Note::PatchIntegrated(integrated) => {
                self.patch_integrated(view, entry, integrated, emit)
            }
            Note::ReviewRequested(request) => self.review_requested(view, entry, request, emit),
            Note::ReviewDecided(decided) => self.review_decided(view, entry, decided, emit),
            Note::ReviewPlanned => view.state.publication.is_reviewed = true,
            Note::CommittedReviewPlanned { run } => {
                view.state.publication.committed_run = Some(*run)
            }
            Note::BranchSelected { branch } => {
                view.state.publication.target_branch = branch.as_deref().map(Arc::from);
                self.report_message(view, entry, Severity::Info, note.to_string());
            }
            Note::WorkerJoined(joined) => {
                view.state.workers.join(joined);
                self.report_run_change(view, entry, note, emit);
            }
            Note::WorkerDrained(drained) => {
                view.state.workers.drain(drained);
                self.report_run_change(view, entry, note, emit);
            }
            Note::WorkerLeft(left) => {
                view.state.workers.leave(left);
                self.report_run_change(view, entry, note, emit);
            }
            Note::PoolUse(pool) => view.state.workers.pool = pool.clone(),
            Note::WorkersAwaited { wait_ms } => {
                let until = Millis(at.0.saturating_add(*wait_ms));
                view.state.workers.wait = Some(WorkerWait { since: at, until });
                self.report_message(view, entry, Severity::Warning, note.to_string());
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::WorkersAwaited { until },
                });
            }
            Note::WorkerWaitEnded => {
                view.state.workers.wait = None;
                self.report_message(view, entry, Severity::Info, note.to_string());
                emit(SinkEvent::Run {
                    at,
                    change: RunEvent::Resumed,
                });
            }
            Note::ReviewFinished { sent_back } => {
                Self::close_review(view);
                if let Some(review) = &mut view.state.publication.review {
                    let review = Arc::make_mut(review);
                    (review.is_finished, review.sent_back) = (true, sent_back.clone());
                }
                view.state.publication.save_error = None;
                view.state.publication.blocked = Arc::default();
                self.report_message(view, entry, Severity::Info, note.to_string());
            }
            Note::RunSaved(saved) => self.saved(view, entry, saved, emit),
            Note::SlRefsRepaired(repaired) => self.sl_refs_repaired(view, entry, repaired, emit),
            Note::SaveFailed(failed) => self.save_failed(view, entry, failed, emit),
            Note::ToolFailed {
                tool,
                tool_use_id,
                message,
            } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let fold = self.attempt_fold(attempt_id);
                fold.record_calls(view, |reducer| {
                    reducer.record_failure(tool_use_id.as_deref())
                });
                fold.record_failure_error(view, Some(tool), || message.as_str().into());
            }
            Note::ToolDeclined { tool_use_id, .. } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                let fold = self.attempt_fold(attempt_id);
                fold.record_calls(view, |reducer| {
                    reducer.record_decline(tool_use_id.as_deref())
                });
            }
            Note::LinesSetAside { lines } => {
                let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
                    return;
                };
                self.enter(view, attempt_id, entry);
                self.attempt_fold(attempt_id).transcript.lines_set_aside = *lines;
            }
            Note::Message { level, text } => {
                // Attempt 0 is a unit without an attempt, which has no rows.
                let mut is_reported = false;
                if matches!(entry.scope, EntryScope::Attempt(_, 1..))
                    && let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit)
                {
                    self.enter(view, attempt_id, entry);
                    let fold = self.attempt_fold(attempt_id);
                    fold.note_row(view, entry.seq, RowOutcome::Ok);
                    is_reported = fold.has_warned(text);
                }
                self.report_message(view, entry, *level, text.clone());
                match entry.scope {
                    EntryScope::Run => emit(SinkEvent::Run {
                        at,
                        change: RunEvent::Message {
                            level: *level,
                            text,
                        },
                    }),
                    EntryScope::Attempt(unit, attempt) if !is_reported => {
                        emit(SinkEvent::Message {
                            at,
                            unit,
                            attempt,
                            level: *level,
                            text,
                        });
                    }
                    EntryScope::Attempt(..) | EntryScope::BySession => {}
                }
            }
            Note::RunEnded(ended) => {
                record_change(view, entry, ScheduleChange::RunEnded);
                self.run_ended(view, entry, ended, emit);
            }
            Note::Unknown { .. } => view.state.loss_counts.unknown_notes += 1,
        }
    }

    fn planned(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        planned: &RunPlanned,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        emit(SinkEvent::Run {
            at: entry.at,
            change: RunEvent::Planned(planned),
        });
        let reused = |unit| planned.continues.as_ref()?.units.get(unit)?.reused.as_ref();
        for unit in &planned.units {
            let index = self.unit_index(view, &unit.unit);
            view.state.units[index].planned = Some(Arc::new(unit.clone()));
            let status = if reused(&unit.unit).is_some() {
                UnitStatus::Reused
            } else {
                UnitStatus::Queued
            };
            view.state.units[index].status = status;
            emit(SinkEvent::Unit {
                at: entry.at,
                unit: &unit.unit,
                attempt: 0,
                status,
                reason: Some(&unit.why)
                    .filter(|why| !why.is_empty())
                    .map(String::as_str),
                cause: None,
            });
        }
        for skipped in &planned.skipped {
            self.report_message(view, entry, Severity::Warning, skipped.why.clone());
        }
        if let Some(continues) = &planned.continues {
            let reused = continues
                .units
                .values()
                .filter(|earlier| earlier.reused.is_some())
                .count();
            self.report_message(
                view,
                entry,
                Severity::Info,
                continuation_summary(continues, reused),
            );
            view.state.publication.unreconciled = continues.unreconciled.keys().cloned().collect();
        }
        let silence_after = planned.silence_after_ms.map(Millis);
        self.silence_tracker.set_after(
            silence_after.map_or(DEFAULT_SILENCE_AFTER, |after| after.max(MIN_SILENCE_AFTER)),
        );
        view.state.planned = Some(Arc::new(planned.clone()));
        record_change(
            view,
            entry,
            ScheduleChange::Concurrency(planned.concurrency),
        );
    }

    fn work_continued(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        work: &ContinuedWork,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
            return;
        };
        self.enter(view, attempt_id, entry);
        let fold = self.attempt_fold(attempt_id);
        let basis = fold.attempt(view).setup.basis.get_or_insert_default();
        Arc::make_mut(basis).continued = Some(work.clone());
        fold.note_row(view, entry.seq, RowOutcome::Ok);
        let text = continued_sentence(work);
        if let EntryScope::Attempt(unit, attempt) = entry.scope {
            emit(SinkEvent::Message {
                at: entry.at,
                unit,
                attempt,
                level: Severity::Info,
                text: &text,
            });
        }
        self.report_message(view, entry, Severity::Info, text);
    }

    fn attempt_started(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        started: &AttemptStarted,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
            return;
        };
        self.enter(view, attempt_id, entry);
        view.state.ended = None;
        // As the engine does: the result is reviewed once its units have ended again.
        Self::close_review(view);
        if let (EntryScope::Attempt(unit, _), Some(review)) =
            (entry.scope, &mut view.state.publication.review)
            && !review.sent_back.is_empty()
        {
            Arc::make_mut(review)
                .sent_back
                .retain(|sent| sent.as_str() != unit);
        }
        merge_env_names(&mut view.state.inputs.env_passed, &started.env_passed);
        let fold = self.attempt_fold(attempt_id);
        fold.begin(view, started);
        let worker = started
            .worker
            .as_deref()
            .and_then(|worker| view.state.workers.number(worker));
        let attempt = fold.attempt(view);
        attempt.setup.worker = worker;
        attempt.setup.requested_model = started.model.as_deref().map(Arc::from);
        if let Some(amendment) = &started.amendment {
            let basis = attempt.setup.basis.get_or_insert_default();
            Arc::make_mut(basis).amendment = Some(amendment.clone());
        }
        attempt.setup.content = started.content.clone().map(Arc::new);
        attempt.started_at = entry.at;
        attempt.setup.start_note = Some(entry.seq);
        attempt.pid = started.pid;
        attempt.setup.is_scripted = started.scripted;
        attempt.setup.step_budget = (started.step_budget > 0).then_some(started.step_budget);
        let unit = fold.unit(view);
        unit.retry_at = None;
        unit.status = UnitStatus::Running;
        super::run_endings::no_longer_requested(unit);
        fold.attempt(view).silent_since = Some(entry.at);
        fold.start_row(view, entry.seq);
        // A message of a person is its own row.
        if started
            .amendment
            .as_ref()
            .is_some_and(|amendment| !amendment.is_only_message())
        {
            fold.amendment_row(view, entry.seq);
        }
        if started.is_session() && !started.prompt.trim().is_empty() {
            fold.prompt_row(view, entry.seq);
        }
        fold.emit_status(entry.at, UnitStatus::Running, None, emit);
        self.start_silence_watch(attempt_id, entry.at);
    }

    fn attempt_ended(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        ended: &AttemptEnded,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit) else {
            return;
        };
        self.enter(view, attempt_id, entry);
        self.end_silence(view, attempt_id, entry);
        let fold = self.attempt_fold(attempt_id);
        let has_process =
            fold.attempt(view).pid.is_some() || ended.exit_code.is_some() || ended.signal.is_some();
        let is_unstarted = !has_process && ended.verdict.outcome != AttemptOutcome::Succeeded;
        let stream = StreamEnd {
            exit_code: ended.exit_code,
            signal: ended.signal,
            stderr: ended.stderr_tail.last().cloned(),
            not_started: is_unstarted.then(|| ended.verdict.reason.clone()),
        };
        fold.end(view, entry.seq, &stream, emit);
        let status = status_after_attempt(&ended.verdict);
        if status == UnitStatus::BudgetExhausted {
            view.last_change.marks.add(ActivityMark::Limit);
        }
        if let Some(failed) = &ended.failed_call {
            // The first failure of the stream may have been corrected since.
            fold.attempt(view).deciding_failure = None;
            fold.record_failure_error(view, Some(&failed.tool), || failed.message.as_str().into());
        }
        fold.record_calls(view, |reducer| {
            reducer.record_failure_count(ended.tool_failures)
        });
        let attempt = fold.attempt(view);
        attempt.ended_at = Some(entry.at);
        attempt.pid = None;
        attempt.held_calls.clear();
        attempt.silent_since = None;
        attempt.verdict = Some(ended.verdict.clone());
        attempt.delivery.output = Some(Arc::new(ended.work.clone()));
        let unit = fold.unit(view);
        unit.status = status;
        super::run_endings::no_longer_requested(unit);
        fold.verdict_row(view, entry.seq, ended.verdict.outcome);
        let attempt = fold.attempt(view);
        emit(SinkEvent::Unit {
            at: entry.at,
            unit: &fold.key,
            attempt: attempt.number,
            status,
            reason: Some(&ended.verdict.reason),
            cause: attempt.failure_reason().as_deref(),
        });
        if ended.verdict.outcome == AttemptOutcome::Failed {
            self.report_message(view, entry, Severity::Error, ended.verdict.reason.clone());
        }
    }

    /// A person holds or releases a unit. A unit without an attempt (attempt 0) has no rows.
    fn hold_changed(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        holding: HoldMode,
        text: &str,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) {
        let EntryScope::Attempt(key, number) = entry.scope else {
            return;
        };
        let index = self.unit_index(view, &key.into());
        view.state.units[index].hold_mode = holding;
        if number > 0
            && let Some(attempt_id) = self.resolve_attempt(view, entry, None, emit)
        {
            self.enter(view, attempt_id, entry);
            self.attempt_fold(attempt_id)
                .note_row(view, entry.seq, RowOutcome::Ok);
        }
        self.report_message(view, entry, Severity::Info, text.to_owned());
    }

    /// A unit waits for its next attempt, which does not exist yet and gets no entry. Returns the unit's index.
    fn attempt_waiting(
        &mut self,
        view: &mut RunView,
        entry: &EntryRef<'_>,
        until: Option<Millis>,
        status: UnitStatus,
        emit: &mut dyn FnMut(SinkEvent<'_>),
    ) -> Option<u32> {
        let EntryScope::Attempt(key, attempt) = entry.scope else {
            return None;
        };
        let index = self.unit_index(view, &key.into());
        let unit = &mut view.state.units[index];
        unit.retry_at = until;
        unit.status = status;
        emit(SinkEvent::Unit {
            at: entry.at,
            unit: key,
            attempt,
            status,
            reason: None,
            cause: None,
        });
        u32::try_from(index).ok()
    }
}

/// Records a change of the schedule, unless it was recorded when the entry was folded before.
fn record_change(view: &mut RunView, entry: &EntryRef<'_>, change: ScheduleChange) {
    let seq = u32::try_from(entry.seq.0).unwrap_or(u32::MAX);
    if view
        .schedule_changes
        .last()
        .is_none_or(|last| last.seq < seq)
    {
        // Times of a damaged tape may go back.
        let at = entry.at.max(view.state.last_entry_at);
        view.schedule_changes
            .push(RecordedChange { seq, at, change });
    }
}

/// Adds variable names that are not in the list yet.
fn merge_env_names(known: &mut Arc<[Arc<str>]>, names: &[String]) {
    let is_new = |name: &&String| !known.iter().any(|known| **known == **name);
    if names.iter().any(|name| is_new(&name)) {
        let mut all: Vec<Arc<str>> = known
            .iter()
            .cloned()
            .chain(names.iter().map(|name| name.as_str().into()))
            .collect();
        all.sort_unstable();
        all.dedup();
        *known = all.into();
    }
}

/// Describes in one sentence what a run continues.
fn continuation_summary(continues: &ContinuedRun, reused: usize) -> String {
    let how = continues.outcome.as_deref().unwrap_or("interrupted");
    let cost = continues
        .cost_usd
        .map_or_else(|| "cost ?".to_owned(), |cost| format!("${cost:.2}"));
    format!(
        "continues run {} ({how}, {cost}), {reused} of its units are reused",
        continues.run.short()
    )
}
