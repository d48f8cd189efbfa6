//! The commands of a person. Those that neither start nor stop anything are carried out here: changed limits, pauses and
//! messages.

use serde_json::{Value, json};

use super::{Schedule, ScheduleEffect, push_message, unit_table::UnitPhase};
use crate::{
    control::{AgentRequest, CONCURRENCY_RANGE, RunCommand, RunLimit},
    tape::{
        Note, UnitKey,
        note::{Amendment, LimitChanged, Severity, StopMode},
    },
};

/// Changes of release that are reported; more are not expected in a run.
const MAX_CHANGES: u32 = 16;

impl Schedule {
    /// Carries out the command of a person.
    pub(super) fn carry_out(&mut self, command: RunCommand, effects: &mut Vec<ScheduleEffect>) {
        match command {
            RunCommand::Retry { unit, amendment } => {
                self.handle_retry_request(&unit, amendment, effects)
            }
            RunCommand::RetryUnits { units, amendment } => {
                for unit in units {
                    self.handle_retry_request(&unit, amendment.clone(), effects);
                }
            }
            RunCommand::RetryUnsuccessful => self.retry_failed(effects),
            RunCommand::Stop { unit } => self.handle_stop_request(&unit, effects),
            RunCommand::Say { unit, text } => self.pass_message(&unit, text, effects),
            RunCommand::Request { unit, request } => self.pass_request(&unit, request, effects),
            RunCommand::Accept { unit } => self.accept_result(&unit, effects),
            RunCommand::Drain => {
                self.set_paused(false, effects);
                self.stop_run(StopMode::Drain, effects);
            }
            RunCommand::StopAll => self.stop_run(StopMode::Stop, effects),
            RunCommand::KillAll => self.stop_run(StopMode::Kill, effects),
            RunCommand::LiftLimit => self.resume_after_limit(effects),
            RunCommand::AdjustConcurrency { by } => self.change_concurrency(by, effects),
            RunCommand::Set { limit } => self.change_limit(limit, effects),
            RunCommand::Pause => self.set_paused(true, effects),
            RunCommand::Resume => self.set_paused(false, effects),
            RunCommand::Hold { .. }
            | RunCommand::Release { .. }
            | RunCommand::RunUntil { .. }
            | RunCommand::Leash { .. }
            | RunCommand::Decide { .. }
            | RunCommand::Review { .. }
            | RunCommand::UndoReview { .. }
            | RunCommand::FinishReview { .. }
            | RunCommand::DrainWorker { .. }
            | RunCommand::AddWorker { .. }
            | RunCommand::UndrainWorker { .. }
            | RunCommand::StopWorker { .. } => {}
        }
    }

    fn change_concurrency(&mut self, by: i32, effects: &mut Vec<ScheduleEffect>) {
        let now = self.settings.concurrency;
        // A run that was started with a concurrency above the range keeps it, but cannot increase it.
        let slots = now.saturating_add_signed(by).clamp(
            *CONCURRENCY_RANGE.start(),
            now.max(*CONCURRENCY_RANGE.end()),
        );
        self.set_concurrency(slots, effects);
    }

    fn set_concurrency(&mut self, slots: u32, effects: &mut Vec<ScheduleEffect>) {
        let old = std::mem::replace(
            &mut self.settings.concurrency,
            slots.max(u32::from(self.settings.worker_slots.is_none())),
        );
        if slots != old {
            let note = Note::ConcurrencyChanged {
                slots,
                old: Some(old),
            };
            effects.push(ScheduleEffect::RecordNote {
                attempt: None,
                note,
            });
        }
    }

    /// Changes a limit that the schedule applies. The other limits belong to the attempts.
    fn change_limit(&mut self, limit: RunLimit, effects: &mut Vec<ScheduleEffect>) {
        let (old, new) = match limit {
            RunLimit::Concurrency(slots) => return self.set_concurrency(slots, effects),
            RunLimit::RunBudget(budget) => (json!(self.budget.replace(budget)), json!(budget)),
            RunLimit::Retries(retries) => (
                json!(std::mem::replace(
                    &mut self.settings.retry.max_retries,
                    retries
                )),
                json!(retries),
            ),
            RunLimit::Turns(_) | RunLimit::ToolFailures(_) | RunLimit::SilenceTimeout(_) => return,
        };
        if old != new {
            effects.push(limit_note(limit.name(), old, new));
        }
    }

    /// Reports a release that is another than the last one in the same place: an update during the run.
    pub(super) fn record_release(
        &mut self,
        release: String,
        worker: Option<String>,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let place = worker
            .as_ref()
            .map(|worker| format!(" on worker {worker}"))
            .unwrap_or_default();
        let before = self.releases.newest.insert(worker, release.clone());
        let Some(before) =
            before.filter(|before| *before != release && self.releases.changes < MAX_CHANGES)
        else {
            return;
        };
        self.releases.changes += 1;
        let text = format!("claude {release} runs{place} from now on, instead of {before}");
        push_message(Severity::Warning, text, effects);
    }

    fn pass_message(&mut self, key: &UnitKey, text: String, effects: &mut Vec<ScheduleEffect>) {
        let Some(at) = self.table.find(key) else {
            return;
        };
        let unit = &self.table.units()[at];
        match unit.phase {
            UnitPhase::InFlight { .. } => {
                effects.push(ScheduleEffect::MessageAttempt {
                    unit: key.clone(),
                    attempt: unit.attempts,
                    text,
                });
            }
            _ if self.settings.is_session && unit.phase != UnitPhase::Settled => {
                self.table.queue_message(at, text)
            }
            _ if self.settings.is_session => {
                let before = unit.amendment.as_deref().cloned().unwrap_or_default();
                let amendment = Amendment {
                    message: Some(text),
                    feedback: None,
                    resume: None,
                    ..before
                };
                self.handle_retry_request(key, Some(amendment), effects);
            }
            _ => {
                let text =
                    format!("{key} does not run, so it gets no message; retry it with feedback");
                push_message(Severity::Warning, text, effects);
            }
        }
    }

    /// Passes a request to the agent of a session, which answers only while a turn runs.
    fn pass_request(
        &mut self,
        key: &UnitKey,
        request: AgentRequest,
        effects: &mut Vec<ScheduleEffect>,
    ) {
        let running = self.table.find(key).map(|at| &self.table.units()[at]);
        let running = running.filter(|unit| matches!(unit.phase, UnitPhase::InFlight { .. }));
        match running.filter(|_| self.settings.is_session) {
            Some(unit) => effects.push(ScheduleEffect::RequestAttempt {
                unit: key.clone(),
                attempt: unit.attempts,
                request,
            }),
            None => {
                let subject = request.subject();
                let text = format!(
                    "{key}: no turn of a session runs, so {subject} is unchanged and unknown"
                );
                push_message(Severity::Warning, text, effects);
            }
        }
    }

    /// Passes the messages that waited for the attempts that start.
    pub(super) fn pass_queued_messages(&mut self, effects: &mut Vec<ScheduleEffect>) {
        if !self.settings.is_session {
            return;
        }
        let started = effects.iter().filter_map(|effect| match effect {
            ScheduleEffect::StartAttempt { unit, attempt, .. } => Some((unit.clone(), *attempt)),
            _ => None,
        });
        for (unit, attempt) in started.collect::<Vec<_>>() {
            effects.extend(self.table.take_messages(&unit, attempt));
        }
    }

    fn set_paused(&mut self, pause: bool, effects: &mut Vec<ScheduleEffect>) {
        if std::mem::replace(&mut self.person.is_paused, pause) != pause {
            let note = if pause {
                Note::RunPaused
            } else {
                Note::RunResumed
            };
            effects.push(ScheduleEffect::RecordNote {
                attempt: None,
                note,
            });
        }
    }
}

fn limit_note(limit: &str, old: Value, new: Value) -> ScheduleEffect {
    let note = Note::LimitChanged(LimitChanged {
        limit: limit.to_owned(),
        old,
        new,
    });
    ScheduleEffect::RecordNote {
        attempt: None,
        note,
    }
}
