//! Stop conditions, and the watcher that checks them while entries are folded.
//!
//! Pure. It must not know how time advances or what is selected afterwards.

use serde_json::Value;

use crate::{
    actions::label,
    control::BreakCondition,
    run::{
        ActivityMark, EntryRef, SeekTarget, SinkEvent,
        event::{ActionDetail, ActionPhase, AgentEvent, ToolDetail},
        state::{AttemptId, RunView},
        timeline::StopCondition,
    },
    tape::Seq,
    units::call_policy::has_file_argument,
};

impl BreakCondition {
    /// True if a call of `tool` with these arguments matches. Only tool and path conditions can match.
    pub fn matches_call_input(&self, tool: &str, input: &Value) -> bool {
        match self {
            Self::Tool(pattern) => {
                pattern.matches(label::short_name(tool)) || pattern.matches(tool)
            }
            Self::Path(pattern) => has_file_argument(input, pattern),
            Self::Failure | Self::Cost(_) | Self::Silence(_) => false,
        }
    }

    /// Describes the call if it matches.
    fn matches_call(&self, call: &ToolDetail<'_>) -> Option<String> {
        let name = call.tool_name.as_deref().unwrap_or_default();
        let input = call.tool_input.as_ref().map(|input| input.raw());
        let says = || format!("calls {}", label::call_label(name, input, None).text);
        match self {
            // A tool condition ignores the arguments, which may be long.
            Self::Tool(_) => self.matches_call_input(name, &Value::Null).then(says),
            Self::Path(_) => {
                let input: Value = serde_json::from_str(input?.0).ok()?;
                self.matches_call_input(name, &input).then(says)
            }
            Self::Failure | Self::Cost(_) | Self::Silence(_) => None,
        }
    }

    /// Describes what happened if the last entry met the condition.
    fn is_met(&self, run_view: &RunView, spent: f64) -> Option<String> {
        let touch = &run_view.last_change;
        match self {
            Self::Failure if touch.marks.has(ActivityMark::Failure) => Some("failure".to_owned()),
            Self::Failure if touch.marks.has(ActivityMark::Denial) => Some("denial".to_owned()),
            Self::Cost(most) if spent < *most && run_view.state.spent_usd >= *most => {
                Some(format!("the run has cost ${:.4}", run_view.state.spent_usd))
            }
            Self::Silence(least) if touch.attempt.is_some() && touch.silence >= *least => {
                Some(format!("silent for {} before this", touch.silence))
            }
            Self::Failure | Self::Tool(_) | Self::Path(_) | Self::Cost(_) | Self::Silence(_) => {
                None
            }
        }
    }
}

/// A persistent stop condition.
#[derive(Clone, Debug)]
pub struct Breakpoint {
    pub condition: BreakCondition,
    pub is_enabled: bool,
}

/// Target of a seek through time.
#[derive(Clone, Debug)]
pub enum SeekGoal {
    /// No goal; only breakpoints stop.
    Nothing,
    /// A condition that the user requested once.
    BreakCondition(BreakCondition),
    /// The next row of a unit, by its index.
    Row(usize),
    /// More turns of a unit (by its index) than this number.
    Turn(usize, u64),
    /// The start of a turn of a unit, when moving back.
    TurnBack {
        /// Index of the unit.
        unit: usize,
        /// Number of the turn, from 1.
        turn: u64,
        /// Number of entries at the current moment, which must be left.
        here: u64,
    },
    /// A moment; breakpoints are ignored.
    Moment(SeekTarget),
    /// The moment after an entry, whose attempt is selected then.
    Entry(Seq),
    /// The end of a row of an attempt, by its index.
    RowEnd(AttemptId, usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStop {
    /// Entry after which time stopped.
    pub seq: Seq,
    /// Attempt that caused the stop.
    pub attempt: Option<AttemptId>,
    /// Index of the breakpoint in the list; `None` for the goal.
    pub breakpoint: Option<usize>,
    /// Description of the event; empty for a step.
    pub description: String,
}

/// Checks a goal and breakpoints while entries are folded.
#[derive(Clone, Debug)]
pub struct StopWatcher {
    /// Last moment to advance to, if there is a limit.
    pub upto: Option<SeekTarget>,
    goal: SeekGoal,
    breakpoints: Vec<(usize, BreakCondition)>,
    cost: f64,
    /// Stop requested by the entry that is being folded: breakpoint index and description.
    current_call: Option<(Option<usize>, String)>,
    /// The stop, once there is one.
    pub hit: Option<TimeStop>,
}

impl StopWatcher {
    /// Starts watching at `run_view`.
    pub fn new(goal: SeekGoal, breakpoints: &[Breakpoint], run_view: &RunView) -> Self {
        let upto = if let SeekGoal::Moment(moment) = goal {
            Some(moment)
        } else {
            None
        };
        let on = breakpoints
            .iter()
            .enumerate()
            .filter(|(_, breakpoint)| breakpoint.is_enabled && upto.is_none());
        let breakpoints = on
            .map(|(place, breakpoint)| (place, breakpoint.condition.clone()))
            .collect();
        Self {
            upto,
            goal,
            breakpoints,
            cost: run_view.state.spent_usd,
            current_call: None,
            hit: None,
        }
    }

    pub fn goal(&self) -> &SeekGoal {
        &self.goal
    }

    fn conditions(&self) -> impl Iterator<Item = (Option<usize>, &BreakCondition)> {
        let asked = if let SeekGoal::BreakCondition(condition) = &self.goal {
            Some((None, condition))
        } else {
            None
        };
        self.breakpoints
            .iter()
            .map(|(place, condition)| (Some(*place), condition))
            .chain(asked)
    }

    /// True if a goal without description is reached.
    fn is_goal_reached(&self, run_view: &RunView) -> bool {
        let unit = |unit: usize| run_view.state.units.get(unit);
        match self.goal {
            SeekGoal::Row(place) => {
                let attempt_id = run_view
                    .last_change
                    .attempt
                    .filter(|_| run_view.last_change.row_began);
                unit(place).is_some_and(|unit| {
                    unit.attempts
                        .iter()
                        .any(|attempt| Some(attempt.id) == attempt_id)
                })
            }
            SeekGoal::Turn(place, before) => unit(place).is_some_and(|unit| turns(unit) > before),
            SeekGoal::TurnBack {
                unit: place, turn, ..
            } => unit(place).is_some_and(|unit| turns(unit) >= turn),
            SeekGoal::Entry(entry) => run_view.state.entries > entry.0,
            SeekGoal::RowEnd(attempt_id, row) => run_view
                .rows(attempt_id)
                .get(row)
                .is_some_and(|row| row.last(run_view.state.entries).is_some()),
            SeekGoal::Nothing | SeekGoal::BreakCondition(_) | SeekGoal::Moment(_) => false,
        }
    }
}

/// Number of turns in all attempts of a unit.
pub fn turns(unit: &crate::run::state::UnitState) -> u64 {
    unit.attempts
        .iter()
        .map(|attempt| u64::from(attempt.counts.turns))
        .sum()
}

impl StopCondition for StopWatcher {
    fn stops_before(&mut self, arrived: &EntryRef<'_>) -> bool {
        self.upto.is_some_and(|upto| !upto.includes_entry(arrived))
    }

    fn observe(&mut self, emitted: &SinkEvent<'_>) {
        if let SinkEvent::Agent {
            event: AgentEvent::Action(action),
            ..
        } = emitted
            && action.phase == ActionPhase::Started
            && let ActionDetail::Tool(call) = &action.action.detail
            && self.current_call.is_none()
        {
            let called = self
                .conditions()
                .find_map(|(place, condition)| Some((place, condition.matches_call(call)?)));
            self.current_call = called;
        }
    }

    fn stops_after(&mut self, arrived: &EntryRef<'_>, run_view: &RunView) -> bool {
        let called = self.current_call.take();
        let happened = || {
            self.conditions().find_map(|(place, condition)| {
                Some((place, condition.is_met(run_view, self.cost)?))
            })
        };
        let found = called.or_else(happened).or_else(|| {
            self.is_goal_reached(run_view)
                .then(|| (None, String::new()))
        });
        self.cost = run_view.state.spent_usd;
        let Some((breakpoint, what)) = found else {
            return false;
        };
        self.hit = Some(TimeStop {
            seq: arrived.seq,
            attempt: run_view.last_change.attempt,
            breakpoint,
            description: what,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::control::NamePattern;

    #[test]
    fn path_pattern_matches_path_or_file_name() {
        let names = |pattern: &str, input: Value| {
            has_file_argument(&input, &NamePattern::new(pattern).unwrap())
        };
        assert!(names("schema.yml", json!({"path": "models/schema.yml"})));
        assert!(names("models/*", json!({"file_path": "models/schema.yml"})));
        assert!(names(
            "*.yml",
            json!({"files": ["a.sql", {"rawPath": "models/schema.yml"}]})
        ));
        assert!(
            !names("*.yml", json!({"query": "schema.yml"})),
            "a query is not a file"
        );
        assert!(!names("*.sql", json!({"path": "models/schema.yml"})));
        assert!(!names("*", json!(["x", null, 1])));
        assert!(NamePattern::new("a[").is_err());
    }

    #[test]
    fn tool_pattern_matches_short_and_full_names() {
        let sees = |pattern: &str| {
            let call = ToolDetail {
                tool_name: Some("mcp__ktx__wiki_write".into()),
                ..ToolDetail::default()
            };
            BreakCondition::Tool(NamePattern::new(pattern).unwrap()).matches_call(&call)
        };
        assert_eq!(sees("wiki_write").as_deref(), Some("calls wiki_write"));
        assert!(sees("wiki_*").is_some() && sees("mcp__ktx__*").is_some());
        assert!(sees("wiki_read").is_none());
    }
}
