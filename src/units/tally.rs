//! Failure counting: every tool call that failed counts once, whoever reports it.
//!
//! One call may be reported by the hook, by the stream and by our own handler, in any order. The tally tells them
//! apart by tool and call id alone. It must not know how a failure looks in a stream.
//!
//! A call that a person refused is kept apart: the agent reports it as failed, but it failed by a decision, not by a
//! mistake of the model or of a tool.

use std::collections::{HashMap, HashSet};

/// Prefix under which the agent sees our tools.
pub const SERVER_PREFIX: &str = "mcp__ktx__";

/// Longest message that a tally keeps, in bytes. The tape has it in full.
const MESSAGE_CAP: usize = 4 * 1024;

/// The tool's own name, without our server's prefix. Other names are left as they are.
pub fn bare_name(tool: &str) -> &str {
    tool.strip_prefix(SERVER_PREFIX).unwrap_or(tool)
}

/// Which failed calls fail a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureRule {
    /// Any.
    #[default]
    Strict,
    /// Only those that no later call made good.
    Recoverable,
}

impl FailureRule {
    /// Reads the setting's value.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "strict" => Some(Self::Strict),
            "recoverable" => Some(Self::Recoverable),
            _ => None,
        }
    }

    /// The setting's value.
    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Recoverable => "recoverable",
        }
    }
}

/// Failed calls of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    failed: Vec<FailedCall>,
    /// Positions in `failed`, by tool and call id.
    by_id: HashMap<(String, String), usize>,
    refused: Vec<FailedCall>,
    /// Ids of `refused`. An id alone is enough: a person decides over one call, whatever its reporters call its tool.
    refused_ids: HashSet<String>,
}

/// One failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Tool without its server prefix.
    pub tool: String,
    /// What the call was about (a wiki key, a source), where the reporter knows.
    pub subject: Option<String>,
    /// Id of the call, where known.
    pub tool_use_id: Option<String>,
    /// Error text, cut to 4 KiB.
    pub message: String,
    /// A later call of the same kind on the same subject succeeded.
    pub recovered: bool,
}

impl Tally {
    /// A person refused this call. Later reports of it are not counted as failures.
    pub fn refused(&mut self, tool: &str, tool_use_id: Option<&str>, reason: &str) {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        if let Some(id) = tool_use_id
            && !self.refused_ids.insert(id.to_owned())
        {
            return;
        }
        self.refused.push(FailedCall {
            tool: bare_name(tool).to_owned(),
            subject: None,
            tool_use_id: tool_use_id.map(str::to_owned),
            message: cut(reason).to_owned(),
            recovered: false,
        });
    }

    /// Reports a failure (also a rejected call, or one that a rule denied) of a tool with or without its server prefix.
    /// True if it was not counted yet; without an id it always counts.
    pub fn failed(&mut self, tool: &str, tool_use_id: Option<&str>, message: &str) -> bool {
        self.failed_on(tool, None, tool_use_id, message)
    }

    /// As [`failed`](Self::failed), with the subject of the call. A report that knows more than an earlier one of the
    /// same call completes it.
    pub fn failed_on(&mut self, tool: &str, subject: Option<&str>, tool_use_id: Option<&str>, message: &str) -> bool {
        let tool = bare_name(tool);
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        if let Some(id) = tool_use_id {
            if self.refused_ids.contains(id) {
                return false;
            }
            let key = (tool.to_owned(), id.to_owned());
            if let Some(known) = self.by_id.get(&key).and_then(|at| self.failed.get_mut(*at)) {
                known.learn(subject, message);
                return false;
            }
            self.by_id.insert(key, self.failed.len());
        }
        self.failed.push(FailedCall {
            tool: tool.to_owned(),
            subject: subject.map(str::to_owned),
            tool_use_id: tool_use_id.map(str::to_owned),
            message: cut(message).to_owned(),
            recovered: false,
        });
        true
    }

    /// Reports a success, which recovers earlier failures of the same tool that name no subject.
    pub fn succeeded(&mut self, tool: &str, tool_use_id: Option<&str>) {
        self.succeeded_on(tool, None, tool_use_id);
    }

    /// Reports a success on a subject, which recovers earlier failures of the same tool on that subject, and those
    /// that name none (a call with broken arguments has no subject). A call never recovers itself.
    pub fn succeeded_on(&mut self, tool: &str, subject: Option<&str>, tool_use_id: Option<&str>) {
        let tool = bare_name(tool);
        for call in &mut self.failed {
            let same_call = tool_use_id.is_some() && call.tool_use_id.as_deref() == tool_use_id;
            let same_subject = call.subject.is_none() || call.subject.as_deref() == subject;
            if call.tool == tool && same_subject && !same_call {
                call.recovered = true;
            }
        }
    }

    /// Every failed call, in order of its first report.
    pub fn calls(&self) -> &[FailedCall] {
        &self.failed
    }

    /// Every call that a person refused, in order.
    pub fn refusals(&self) -> &[FailedCall] {
        &self.refused
    }

    /// How many calls fail the unit under `rule`.
    pub fn count(&self, rule: FailureRule) -> usize {
        match rule {
            FailureRule::Strict => self.failed.len(),
            FailureRule::Recoverable => self.failed.iter().filter(|call| !call.recovered).count(),
        }
    }

    /// True when there were failures and every one of them was made good later.
    pub fn all_recovered(&self) -> bool {
        !self.failed.is_empty() && self.count(FailureRule::Recoverable) == 0
    }
}

impl FailedCall {
    fn learn(&mut self, subject: Option<&str>, message: &str) {
        if self.subject.is_none() && !self.recovered {
            self.subject = subject.map(str::to_owned);
        }
        if self.message.is_empty() {
            self.message = cut(message).to_owned();
        }
    }
}

fn cut(message: &str) -> &str {
    let end = (0..=MESSAGE_CAP).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
    &message[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hook_stream_and_handler_count_one_call_once() {
        let mut tally = Tally::default();
        assert!(tally.failed("mcp__ktx__wiki_write", Some("t1"), ""));
        assert!(!tally.failed("wiki_write", Some("t1"), "no such page"));
        assert!(!tally.failed_on("wiki_write", Some("orders"), Some("t1"), "later words"));
        let [call] = tally.calls() else { unreachable!("one call: {tally:?}") };
        assert_eq!((call.subject.as_deref(), call.message.as_str()), (Some("orders"), "no such page"));
    }

    #[test]
    fn a_refusal_of_a_person_is_no_failure_whoever_reports_it() {
        let mut tally = Tally::default();
        tally.refused("mcp__ktx__wiki_write", Some("t1"), "not this page");
        tally.refused("wiki_write", Some("t1"), "again");
        assert!(!tally.failed("wiki_write", Some("t1"), "denied"));
        assert!(!tally.failed("?", Some("t1"), "permission denied"));
        assert_eq!((tally.count(FailureRule::Strict), tally.refusals().len()), (0, 1));
        assert_eq!(tally.refusals()[0].message, "not this page");
        assert!(tally.failed("wiki_write", Some("t2"), "another call"));
        assert_eq!(tally.count(FailureRule::Strict), 1);
    }

    #[test]
    fn calls_without_an_id_always_count() {
        let mut tally = Tally::default();
        assert!(tally.failed("wiki_write", None, "x"));
        assert!(tally.failed("wiki_write", None, "x"));
        assert!(tally.failed("wiki_write", Some(""), "x"));
        assert!(tally.failed("wiki_write", Some(""), "x"));
        assert_eq!(tally.count(FailureRule::Strict), 4);
    }

    #[test]
    fn the_same_id_of_another_tool_is_another_call() {
        let mut tally = Tally::default();
        assert!(tally.failed("wiki_write", Some("t1"), "x"));
        assert!(tally.failed("wiki_read", Some("t1"), "x"));
    }

    #[test]
    fn only_a_later_success_on_the_same_subject_recovers() {
        let mut tally = Tally::default();
        tally.succeeded_on("wiki_write", Some("orders"), Some("t0"));
        tally.failed_on("wiki_write", Some("orders"), Some("t1"), "x");
        assert_eq!(tally.count(FailureRule::Recoverable), 1, "an earlier success is no cure");
        tally.succeeded_on("wiki_write", Some("refunds"), Some("t2"));
        tally.succeeded("wiki_write", Some("t3"));
        tally.succeeded_on("wiki_read", Some("orders"), Some("t4"));
        tally.succeeded_on("wiki_write", Some("orders"), Some("t1"));
        assert_eq!(tally.count(FailureRule::Recoverable), 1);
        tally.succeeded_on("mcp__ktx__wiki_write", Some("orders"), Some("t5"));
        assert_eq!((tally.count(FailureRule::Recoverable), tally.count(FailureRule::Strict)), (0, 1));
        assert!(tally.all_recovered());
    }

    #[test]
    fn broken_arguments_are_made_good_by_any_success_of_the_tool() {
        let mut tally = Tally::default();
        tally.failed("wiki_write", Some("t1"), "invalid arguments");
        tally.succeeded_on("wiki_write", Some("orders"), Some("t2"));
        assert!(tally.all_recovered());
        assert!(!Tally::default().all_recovered());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut tally = Tally::default();
        tally.failed("t", None, &"é".repeat(MESSAGE_CAP));
        assert!(tally.calls()[0].message.len() <= MESSAGE_CAP);
    }

    #[test]
    fn rules_read_and_write_their_setting() {
        for rule in [FailureRule::Strict, FailureRule::Recoverable] {
            assert_eq!(FailureRule::parse(rule.word()), Some(rule));
        }
        assert_eq!(FailureRule::parse("lenient"), None);
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_distinct_calls(
            reports in prop::collection::vec((0..3u8, prop::option::of(0..4u8), any::<bool>()), 0..60),
        ) {
            let mut tally = Tally::default();
            let mut seen = std::collections::HashSet::new();
            let mut anonymous = 0;
            for (tool, id, prefixed) in reports {
                let name = format!("{}tool{tool}", if prefixed { SERVER_PREFIX } else { "" });
                let id_text = id.map(|id| format!("t{id}"));
                let counted = tally.failed(&name, id_text.as_deref(), "x");
                let expected = match id {
                    Some(id) => seen.insert((tool, id)),
                    None => { anonymous += 1; true }
                };
                prop_assert_eq!(counted, expected);
            }
            prop_assert_eq!(tally.count(FailureRule::Strict), seen.len() + anonymous);
        }
    }
}
