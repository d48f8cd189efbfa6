//! Failure counting: every tool call that failed counts once, whoever reports it.
//!
//! One call may be reported by the hook, by the stream and by our own handler, in any order. The tally tells them
//! apart by tool and call id alone. It must not know how a failure looks in a stream.
//!
//! A call that a person refused is kept apart: the agent reports it as failed, but it failed by a decision, not by a
//! mistake of the model or of a tool.

use std::collections::{HashMap, HashSet};

use super::effect::{Effect, Subject};

/// Prefix under which the agent sees our tools.
pub const SERVER_PREFIX: &str = "mcp__ktx__";

/// Longest message that a tally keeps, in bytes. The tape has it in full.
const MESSAGE_CAP: usize = 4 * 1024;

/// The tool's own name, without our server's prefix. Other names are left as they are.
pub fn bare_name(tool: &str) -> &str {
    tool.strip_prefix(SERVER_PREFIX).unwrap_or(tool)
}

/// Which failed calls fail a unit.
///
/// A refusal is an answer of one of our own tools that says how to go on: record the verification ledger first, use a flat
/// key, correct a field. An agent that follows the refusal has worked as intended, so both rules accept a refusal that
/// a later call settled. They differ in calls that no tool of ours has answered so, and in those that say nothing of their
/// subject: unknown tools, denied calls, arguments that are no JSON, a path that is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailureRule {
    /// All but the refusals that were [settled](Recovery::Settled).
    #[default]
    Strict,
    /// Only those that no later call made good in any way.
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
    /// Ids of calls that our own side has told about: it knows more of them than the stream.
    told: HashSet<String>,
}

/// One failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Tool without its server prefix.
    pub tool: String,
    /// What makes it good.
    pub cure: Cure,
    /// Id of the call, where known.
    pub tool_use_id: Option<String>,
    /// Error text, cut to 4 KiB.
    pub message: String,
    /// What later calls made of it.
    pub recovery: Recovery,
}

/// Which later call makes a failed one good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cure {
    /// Any success of the same tool: a rejected call has not been carried out. What it was about, where it said so.
    SameTool(Option<Subject>),
    /// A write of the same subject by any tool.
    Subject(Subject),
    /// None.
    Never,
}

/// What later calls made of a failed one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recovery {
    /// Nothing.
    #[default]
    None,
    /// Its tool succeeded with something.
    SameTool,
    /// It was a refusal of one of our tools, and its subject was written later or given up on record.
    Settled,
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
        self.refused.push(call(tool, Cure::Never, tool_use_id, reason));
    }

    /// Reports a failure (also a rejected call, or one that a rule denied) of a tool with or without its server prefix.
    /// True if it was not counted yet; without an id it always counts.
    pub fn failed(&mut self, tool: &str, tool_use_id: Option<&str>, message: &str) -> bool {
        self.fail(tool, Cure::SameTool(None), tool_use_id, message)
    }

    /// Reports a success that the stream tells of. Of our own tools it knows less than [`answered`](Self::answered).
    pub fn succeeded(&mut self, tool: &str, tool_use_id: Option<&str>) {
        if !tool_use_id.is_some_and(|id| self.told.contains(id)) {
            self.cure_same_tool(bare_name(tool), tool_use_id);
        }
    }

    /// Reports how one of our own tools answered, with the error text if the call failed. True for a failure that was
    /// not counted yet.
    pub fn answered(&mut self, tool: &str, tool_use_id: Option<&str>, effect: &Effect, failure: Option<&str>) -> bool {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        self.told.extend(tool_use_id.map(str::to_owned));
        match effect {
            Effect::Wrote(subject) => self.recover(Recovery::Settled, |call| call.subject() == Some(subject)),
            Effect::GaveUp { table, is_recorded } => {
                // KTX takes a call that was declined for one, too.
                let recovery = if *is_recorded { Recovery::Settled } else { Recovery::SameTool };
                self.give_up(table.as_deref(), recovery);
            }
            Effect::Plain | Effect::Rejected(_) | Effect::Broken | Effect::Declined(_) => {}
        }
        let Some(message) = failure else {
            if !matches!(effect, Effect::Declined(_)) {
                self.cure_same_tool(bare_name(tool), tool_use_id);
            }
            return false;
        };
        let cure = match effect {
            Effect::Declined(Some(subject)) => Cure::Subject(subject.clone()),
            Effect::Rejected(subject) => Cure::SameTool(subject.clone()),
            Effect::Plain | Effect::Broken | Effect::Declined(None) | Effect::Wrote(_) | Effect::GaveUp { .. } => {
                Cure::Never
            }
        };
        self.fail(tool, cure, tool_use_id, message)
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
        self.counted(rule).count()
    }

    /// The failed calls that `rule` counts, in order.
    pub fn counted(&self, rule: FailureRule) -> impl Iterator<Item = &FailedCall> {
        self.failed.iter().filter(move |call| match rule {
            FailureRule::Strict => call.recovery < Recovery::Settled,
            FailureRule::Recoverable => call.recovery == Recovery::None,
        })
    }

    /// True when there were failures and every one of them was made good later.
    pub fn all_recovered(&self) -> bool {
        !self.failed.is_empty() && self.count(FailureRule::Recoverable) == 0
    }

    fn fail(&mut self, tool: &str, cure: Cure, tool_use_id: Option<&str>, message: &str) -> bool {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        if let Some(id) = tool_use_id {
            if self.refused_ids.contains(id) {
                return false;
            }
            let key = (bare_name(tool).to_owned(), id.to_owned());
            if let Some(known) = self.by_id.get(&key).and_then(|at| self.failed.get_mut(*at)) {
                known.learn(cure, message);
                return false;
            }
            self.by_id.insert(key, self.failed.len());
        }
        self.failed.push(call(tool, cure, tool_use_id, message));
        true
    }

    fn recover(&mut self, recovery: Recovery, is_meant: impl Fn(&FailedCall) -> bool) {
        for call in self.failed.iter_mut().filter(|call| is_meant(call)) {
            call.recovery = call.recovery.max(recovery);
        }
    }

    /// A call never makes itself good: some reporter says that it failed, and failures win.
    fn cure_same_tool(&mut self, tool: &str, tool_use_id: Option<&str>) {
        self.recover(Recovery::SameTool, |call| {
            let same_call = tool_use_id.is_some() && call.tool_use_id.as_deref() == tool_use_id;
            matches!(call.cure, Cure::SameTool(_)) && call.tool == tool && !same_call
        });
    }

    /// Writes of the table's source need not succeed any more. Without a table, the only one that failed is meant.
    fn give_up(&mut self, table: Option<&str>, recovery: Recovery) {
        let pending = |call: &FailedCall| match &call.cure {
            Cure::Subject(subject @ Subject::Source { .. }) if call.recovery < recovery => Some(subject.clone()),
            _ => None,
        };
        let meant = |subject: &Subject| match (subject, table) {
            (Subject::Source { name, .. }, Some(table)) => {
                let last = table.rsplit('.').next().unwrap_or(table);
                name.to_lowercase() == last.to_lowercase()
            }
            (Subject::Source { .. }, None) => true,
            (Subject::Page(_), _) => false,
        };
        let given_up: HashSet<Subject> = self.failed.iter().filter_map(pending).filter(meant).collect();
        if table.is_some() || given_up.len() == 1 {
            let is_given_up =
                |call: &FailedCall| matches!(&call.cure, Cure::Subject(subject) if given_up.contains(subject));
            self.recover(recovery, is_given_up);
        }
    }
}

impl FailedCall {
    /// What it was to write.
    fn subject(&self) -> Option<&Subject> {
        match &self.cure {
            Cure::SameTool(subject) => subject.as_ref(),
            Cure::Subject(subject) => Some(subject),
            Cure::Never => None,
        }
    }

    /// A report that knows more than an earlier one of the same call completes it.
    fn learn(&mut self, cure: Cure, message: &str) {
        if self.cure == Cure::SameTool(None) && self.recovery == Recovery::None {
            self.cure = cure;
        }
        if self.message.is_empty() {
            self.message = cut(message).to_owned();
        }
    }
}

fn call(tool: &str, cure: Cure, tool_use_id: Option<&str>, message: &str) -> FailedCall {
    FailedCall {
        tool: bare_name(tool).to_owned(),
        cure,
        tool_use_id: tool_use_id.map(str::to_owned),
        message: cut(message).to_owned(),
        recovery: Recovery::None,
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

    fn page(key: &str) -> Subject {
        Subject::Page(key.into())
    }

    fn source(name: &str) -> Subject {
        Subject::Source { connection: "warehouse".into(), name: name.into() }
    }

    /// A write that our tool declined.
    fn declined(tally: &mut Tally, tool: &str, subject: Subject, id: &str) -> bool {
        tally.answered(tool, Some(id), &Effect::Declined(Some(subject)), Some("no"))
    }

    fn wrote(tally: &mut Tally, tool: &str, subject: Subject, id: &str) {
        assert!(!tally.answered(tool, Some(id), &Effect::Wrote(subject), None));
    }

    #[test]
    fn hook_stream_and_handler_count_one_call_once() {
        let mut tally = Tally::default();
        assert!(tally.failed("mcp__ktx__wiki_write", Some("t1"), ""));
        assert!(!tally.failed("wiki_write", Some("t1"), "no such page"));
        assert!(!declined(&mut tally, "wiki_write", page("orders"), "t1"));
        let [call] = tally.calls() else { unreachable!("one call: {tally:?}") };
        assert_eq!((&call.cure, call.message.as_str()), (&Cure::Subject(page("orders")), "no such page"));
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
    fn only_a_later_write_of_the_same_subject_makes_it_good() {
        let mut tally = Tally::default();
        wrote(&mut tally, "wiki_write", page("orders"), "t0");
        assert!(declined(&mut tally, "wiki_write", page("orders"), "t1"));
        assert_eq!(tally.count(FailureRule::Recoverable), 1, "an earlier success is no cure");
        wrote(&mut tally, "wiki_write", page("refunds"), "t2");
        tally.succeeded("wiki_write", Some("t3"));
        tally.answered("wiki_read", Some("t4"), &Effect::Plain, None);
        tally.succeeded("wiki_write", Some("t1"));
        assert_eq!(tally.count(FailureRule::Recoverable), 1);
        wrote(&mut tally, "mcp__ktx__wiki_remove", page("orders"), "t5");
        assert_eq!((tally.count(FailureRule::Recoverable), tally.count(FailureRule::Strict)), (0, 0));
        assert!(tally.all_recovered());
    }

    #[test]
    fn settled_refusals_fail_a_unit_under_no_rule() {
        let rejected = |tally: &mut Tally, tool: &str, subject: Option<Subject>| {
            tally.answered(tool, Some("t1"), &Effect::Rejected(subject), Some("correct the arguments"))
        };
        // A field was missing, and the page was written with it.
        let mut tally = Tally::default();
        assert!(rejected(&mut tally, "wiki_write", Some(page("orders"))));
        wrote(&mut tally, "wiki_write", page("refunds"), "t2");
        assert_eq!((tally.count(FailureRule::Strict), tally.count(FailureRule::Recoverable)), (1, 0));
        wrote(&mut tally, "wiki_write", page("orders"), "t3");
        assert_eq!((tally.count(FailureRule::Strict), tally.calls().len()), (0, 1), "still one failed call on record");
        // Without a subject nothing shows that it was done after all, nor of a call that we have not answered.
        for is_ours in [true, false] {
            let mut tally = Tally::default();
            assert!(match is_ours {
                true => rejected(&mut tally, "read_raw_span", None),
                false => tally.failed("wiki_write", Some("t1"), "arguments that are no JSON"),
            });
            tally.answered("read_raw_span", Some("t2"), &Effect::Plain, None);
            wrote(&mut tally, "wiki_write", page("orders"), "t3");
            assert_eq!((tally.count(FailureRule::Strict), tally.count(FailureRule::Recoverable)), (1, 0), "{is_ours}");
        }
    }

    #[test]
    fn a_source_is_made_good_by_writing_or_editing_it_in_its_connection() {
        let mut tally = Tally::default();
        declined(&mut tally, "sl_write_source", source("orders"), "t1");
        declined(&mut tally, "sl_write_source", source("orders"), "t2");
        let elsewhere = Subject::Source { connection: "lake".into(), name: "orders".into() };
        wrote(&mut tally, "sl_edit_source", elsewhere, "t3");
        assert_eq!(tally.count(FailureRule::Recoverable), 2);
        wrote(&mut tally, "sl_edit_source", source("orders"), "t4");
        assert!(tally.all_recovered());
        declined(&mut tally, "sl_write_source", source("orders"), "t5");
        assert_eq!(tally.count(FailureRule::Recoverable), 1, "what failed after that counts again");
    }

    #[test]
    fn giving_up_on_a_table_makes_its_source_good() {
        let pending = |table: Option<&str>, names: &[&str]| {
            let mut tally = Tally::default();
            declined(&mut tally, "wiki_write", page("orders"), "page");
            for name in names {
                declined(&mut tally, "sl_write_source", source(name), name);
            }
            tally.answered(
                "emit_unmapped_fallback",
                Some("e"),
                &Effect::GaveUp { table: table.map(str::to_owned), is_recorded: true },
                None,
            );
            assert_eq!(tally.count(FailureRule::Strict), tally.count(FailureRule::Recoverable));
            tally.count(FailureRule::Recoverable) - 1
        };
        assert_eq!(pending(Some("db.public.ORDERS"), &["orders", "refunds"]), 1);
        assert_eq!(pending(Some("db.public.plans"), &["orders", "refunds"]), 2);
        assert_eq!(pending(None, &["orders"]), 0, "it can only mean that one");
        assert_eq!(pending(None, &["orders", "refunds"]), 2, "it could mean either");
        assert_eq!(pending(None, &[]), 0);
    }

    #[test]
    fn giving_up_without_a_record_settles_nothing() {
        let mut tally = Tally::default();
        declined(&mut tally, "sl_write_source", source("orders"), "t1");
        let mut give_up = |is_recorded| {
            let effect = Effect::GaveUp { table: Some("orders".into()), is_recorded };
            tally.answered("emit_unmapped_fallback", Some("t2"), &effect, None);
            [FailureRule::Strict, FailureRule::Recoverable].map(|rule| tally.count(rule))
        };
        assert_eq!(give_up(false), [1, 0], "KTX takes it for good");
        assert_eq!(give_up(true), [0, 0]);
    }

    #[test]
    fn nothing_makes_a_broken_tool_good() {
        let mut tally = Tally::default();
        assert!(tally.answered("wiki_write", Some("t1"), &Effect::Broken, Some("it broke down")));
        wrote(&mut tally, "wiki_write", page("orders"), "t2");
        assert_eq!(tally.count(FailureRule::Recoverable), 1);
    }

    #[test]
    fn rejected_calls_are_made_good_by_any_success_of_the_tool() {
        let mut tally = Tally::default();
        tally.failed("wiki_write", Some("t1"), "invalid arguments");
        assert!(tally.answered("wiki_write", Some("t2"), &Effect::Rejected(None), Some("invalid arguments")));
        // Declined without being a failure, as when the page was changed by others: no success either.
        tally.answered("wiki_write", Some("t3"), &Effect::Declined(Some(page("orders"))), None);
        tally.succeeded("wiki_write", Some("t3"));
        assert_eq!(tally.count(FailureRule::Recoverable), 2);
        wrote(&mut tally, "wiki_write", page("orders"), "t4");
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
