//! Failure counting: every failed tool call counts once, even if several reporters report it.
//!
//! The hook, the stream and the tool handler may report the same call, in any order. The tally identifies a call by its
//! tool and call id. The module must not depend on the format of a stream.
//!
//! Calls that a person refused are kept apart: the agent reports them as failed, but they failed by a decision, not by
//! a mistake of the model or of a tool.
//!
//! A refusal is a reply of one of our tools that explains how to continue: record the verification ledger first, use a
//! flat key, correct a field. An agent that follows the refusal works as intended, so both rules ([`FailureRule`]) accept
//! a refusal that a later call settled. The rules differ in failures that are not such refusals, and in failures without
//! a known subject: unknown tools, denied calls, arguments that are not JSON, a path that is a number. As in KTX, a
//! refused edit of a source does not count for the recoverable rule.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use super::call_effect::{CallEffect, WriteSubject};
pub use crate::config::schema::FailureRule;

/// Prefix of our tools' names in the agent.
pub const MCP_TOOL_PREFIX: &str = "mcp__ktx__";

/// Maximum length of a stored message, in bytes. The tape has the full message.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// Removes the prefix of our MCP server. Other names are returned unchanged.
pub fn bare_name(tool: &str) -> &str {
    tool.strip_prefix(MCP_TOOL_PREFIX).unwrap_or(tool)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureTally {
    failed: Vec<FailedToolCall>,
    /// Indices in `failed` by tool and call id.
    by_id: HashMap<(String, String), usize>,
    refused: Vec<FailedToolCall>,
    /// Ids of `refused`. The id alone is sufficient: a decision covers one call, whatever name a reporter uses for its
    /// tool.
    refused_ids: HashSet<String>,
    /// Ids of calls that our tool handler reported. It knows more about them than the stream.
    reported_ids: HashSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedToolCall {
    /// Tool name without the server prefix.
    pub tool: String,
    /// Which later call recovers this failure.
    pub recovery_rule: FailureRecoveryRule,
    /// Id of the call, if known.
    pub tool_use_id: Option<String>,
    /// Error text, cut to 4 KiB.
    pub message: String,
    /// Effect of later calls on this failure.
    pub recovery: FailureRecovery,
}

/// Which later call recovers a failed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureRecoveryRule {
    /// Any success of the same tool, because a rejected call was not carried out. Contains the subject, if known.
    SameTool(Option<WriteSubject>),
    /// A write of the same subject, by any tool.
    Subject(WriteSubject),
    Never,
}

/// How later calls recovered a failed call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureRecovery {
    #[default]
    None,
    /// A later call of the same tool succeeded.
    SameTool,
    /// One of our tools refused the call, and a later call wrote its subject or recorded that it cannot be mapped.
    Settled,
}

/// The beginning of Claude Code's answer to a call of an unknown tool.
const NO_SUCH_TOOL: &str = "No such tool available";

impl FailureTally {
    /// Records that a person refused this call. Later reports of the call are not counted as failures.
    pub fn record_refusal(&mut self, tool: &str, tool_use_id: Option<&str>, reason: &str) {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        if let Some(id) = tool_use_id
            && !self.refused_ids.insert(id.to_owned())
        {
            return;
        }
        self.refused.push(new_failed_call(
            tool,
            FailureRecoveryRule::Never,
            tool_use_id,
            reason,
        ));
    }

    /// Records a failure, a rejected call or a call denied by a rule. `tool` may have the server prefix. Returns true
    /// if the call was not counted yet; a call without an id is always counted.
    pub fn record_failure(&mut self, tool: &str, tool_use_id: Option<&str>, message: &str) -> bool {
        self.add_failure(
            tool,
            FailureRecoveryRule::SameTool(None),
            tool_use_id,
            message,
        )
    }

    /// Records a success from the stream. For our own tools, [`record_tool_reply`](Self::record_tool_reply) has more
    /// information and takes precedence.
    pub fn record_success(&mut self, tool: &str, tool_use_id: Option<&str>) {
        if !tool_use_id.is_some_and(|id| self.reported_ids.contains(id)) {
            self.recover_same_tool(bare_name(tool), tool_use_id);
        }
    }

    /// Records the reply of one of our tools, with the error text if the call failed. Returns true for a failure that
    /// was not counted yet.
    pub fn record_tool_reply(
        &mut self,
        tool: &str,
        tool_use_id: Option<&str>,
        effect: &CallEffect,
        failure: Option<&str>,
    ) -> bool {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        self.reported_ids.extend(tool_use_id.map(str::to_owned));
        match effect {
            CallEffect::Wrote(subject) => self.mark_recovered(FailureRecovery::Settled, |call| {
                call.subject() == Some(subject)
            }),
            CallEffect::Unmappable { table, is_recorded } => {
                // KTX accepts a declined call here, too.
                let recovery = if *is_recorded {
                    FailureRecovery::Settled
                } else {
                    FailureRecovery::SameTool
                };
                self.recover_unmappable_writes(table.as_deref(), recovery);
            }
            CallEffect::Neutral
            | CallEffect::Rejected(_)
            | CallEffect::ToolCrashed
            | CallEffect::Declined(_) => {}
        }
        let Some(message) = failure else {
            if !matches!(effect, CallEffect::Declined(_)) {
                self.recover_same_tool(bare_name(tool), tool_use_id);
            }
            return false;
        };
        let recovery_rule = match effect {
            CallEffect::Declined(Some(subject)) => FailureRecoveryRule::Subject(subject.clone()),
            CallEffect::Rejected(subject) => FailureRecoveryRule::SameTool(subject.clone()),
            CallEffect::Neutral
            | CallEffect::ToolCrashed
            | CallEffect::Declined(None)
            | CallEffect::Wrote(_)
            | CallEffect::Unmappable { .. } => FailureRecoveryRule::Never,
        };
        self.add_failure(tool, recovery_rule, tool_use_id, message)
    }

    /// Settles calls of tools that the agent does not have although our own texts may have named them: `is_ours` knows
    /// their names. The agent reads that there is no such tool.
    pub fn settle_absent_tools(&mut self, is_ours: impl Fn(&str) -> bool) {
        let is_absent = |message: &str| {
            message
                .strip_prefix("Error: ")
                .unwrap_or(message)
                .starts_with(NO_SUCH_TOOL)
        };
        self.mark_recovered(FailureRecovery::Settled, |call| {
            is_ours(&call.tool) && is_absent(&call.message)
        });
    }

    /// All failed calls, in order of their first report.
    pub fn calls(&self) -> &[FailedToolCall] {
        &self.failed
    }

    /// All calls that a person refused, in order.
    pub fn refusals(&self) -> &[FailedToolCall] {
        &self.refused
    }

    /// Number of calls that fail the unit under `rule`.
    pub fn count(&self, rule: FailureRule) -> usize {
        self.counted(rule).count()
    }

    /// The failed calls that `rule` counts, in order.
    pub(crate) fn counted(&self, rule: FailureRule) -> impl Iterator<Item = &FailedToolCall> {
        self.failed.iter().filter(move |call| match rule {
            FailureRule::Strict => call.recovery < FailureRecovery::Settled,
            FailureRule::Recoverable => {
                call.recovery == FailureRecovery::None && !call.is_refused_edit()
            }
        })
    }

    /// The failed call that explains best why `rule` fails the unit: the last failure that nothing recovered, if
    /// possible one that left its subject unwritten. A call that was denied earlier is rarely what the unit lacks.
    pub fn deciding_call(&self, rule: FailureRule) -> Option<&FailedToolCall> {
        self.counted(rule)
            .max_by_key(|call| (Reverse(call.recovery), call.subject().is_some()))
    }

    /// True if there were failures and later calls recovered all of them.
    pub(crate) fn all_recovered(&self) -> bool {
        !self.failed.is_empty() && self.count(FailureRule::Recoverable) == 0
    }

    fn add_failure(
        &mut self,
        tool: &str,
        recovery_rule: FailureRecoveryRule,
        tool_use_id: Option<&str>,
        message: &str,
    ) -> bool {
        let tool_use_id = tool_use_id.filter(|id| !id.is_empty());
        if let Some(id) = tool_use_id {
            if self.refused_ids.contains(id) {
                return false;
            }
            let key = (bare_name(tool).to_owned(), id.to_owned());
            if let Some(known) = self.by_id.get(&key).and_then(|at| self.failed.get_mut(*at)) {
                known.merge_report(recovery_rule, message);
                return false;
            }
            self.by_id.insert(key, self.failed.len());
        }
        self.failed
            .push(new_failed_call(tool, recovery_rule, tool_use_id, message));
        true
    }

    fn mark_recovered(
        &mut self,
        recovery: FailureRecovery,
        is_meant: impl Fn(&FailedToolCall) -> bool,
    ) {
        for call in self.failed.iter_mut().filter(|call| is_meant(call)) {
            call.recovery = call.recovery.max(recovery);
        }
    }

    /// A call does not recover itself: if reporters disagree about a call, it counts as failed.
    fn recover_same_tool(&mut self, tool: &str, tool_use_id: Option<&str>) {
        self.mark_recovered(FailureRecovery::SameTool, |call| {
            let same_call = tool_use_id.is_some() && call.tool_use_id.as_deref() == tool_use_id;
            matches!(call.recovery_rule, FailureRecoveryRule::SameTool(_))
                && call.tool == tool
                && !same_call
        });
    }

    /// Marks failed writes of the table's source as recovered. Without a table, this applies only if exactly one source
    /// failed.
    fn recover_unmappable_writes(&mut self, table: Option<&str>, recovery: FailureRecovery) {
        let pending = |call: &FailedToolCall| match &call.recovery_rule {
            FailureRecoveryRule::Subject(subject @ WriteSubject::Source { .. })
                if call.recovery < recovery =>
            {
                Some(subject.clone())
            }
            _ => None,
        };
        let meant = |subject: &WriteSubject| match (subject, table) {
            (WriteSubject::Source { name, .. }, Some(table)) => {
                let last = table.rsplit('.').next().unwrap_or(table);
                name.to_lowercase() == last.to_lowercase()
            }
            (WriteSubject::Source { .. }, None) => true,
            (WriteSubject::Page(_), _) => false,
        };
        let given_up: HashSet<WriteSubject> = self
            .failed
            .iter()
            .filter_map(pending)
            .filter(meant)
            .collect();
        if table.is_some() || given_up.len() == 1 {
            let is_given_up = |call: &FailedToolCall| matches!(&call.recovery_rule, FailureRecoveryRule::Subject(subject) if given_up.contains(subject));
            self.mark_recovered(recovery, is_given_up);
        }
    }
}

impl FailedToolCall {
    /// Subject that the call tried to write.
    fn subject(&self) -> Option<&WriteSubject> {
        match &self.recovery_rule {
            FailureRecoveryRule::SameTool(subject) => subject.as_ref(),
            FailureRecoveryRule::Subject(subject) => Some(subject),
            FailureRecoveryRule::Never => None,
        }
    }

    /// True for an edit of a source that the tool declined.
    fn is_refused_edit(&self) -> bool {
        self.tool == "sl_edit_source"
            && matches!(self.recovery_rule, FailureRecoveryRule::Subject(_))
    }

    /// Completes an earlier report of the same call with details from this one.
    fn merge_report(&mut self, recovery_rule: FailureRecoveryRule, message: &str) {
        if self.recovery_rule == FailureRecoveryRule::SameTool(None)
            && self.recovery == FailureRecovery::None
        {
            self.recovery_rule = recovery_rule;
        }
        if self.message.is_empty() {
            self.message = truncate_message(message).to_owned();
        }
    }
}

fn new_failed_call(
    tool: &str,
    recovery_rule: FailureRecoveryRule,
    tool_use_id: Option<&str>,
    message: &str,
) -> FailedToolCall {
    FailedToolCall {
        tool: bare_name(tool).to_owned(),
        recovery_rule,
        tool_use_id: tool_use_id.map(str::to_owned),
        message: truncate_message(message).to_owned(),
        recovery: FailureRecovery::None,
    }
}

fn truncate_message(message: &str) -> &str {
    let end = (0..=MAX_MESSAGE_BYTES)
        .rev()
        .find(|at| message.is_char_boundary(*at))
        .unwrap_or(0);
    &message[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(key: &str) -> WriteSubject {
        WriteSubject::Page(key.into())
    }

    fn source(name: &str) -> WriteSubject {
        WriteSubject::Source {
            connection: "warehouse".into(),
            name: name.into(),
        }
    }

    /// Records a write that our tool declined.
    fn declined(tally: &mut FailureTally, tool: &str, subject: WriteSubject, id: &str) -> bool {
        tally.record_tool_reply(
            tool,
            Some(id),
            &CallEffect::Declined(Some(subject)),
            Some("no"),
        )
    }

    fn wrote(tally: &mut FailureTally, tool: &str, subject: WriteSubject, id: &str) {
        assert!(!tally.record_tool_reply(tool, Some(id), &CallEffect::Wrote(subject), None));
    }

    #[test]
    fn call_reported_by_three_sources_counts_once() {
        let mut tally = FailureTally::default();
        assert!(tally.record_failure("mcp__ktx__wiki_write", Some("t1"), ""));
        assert!(!tally.record_failure("wiki_write", Some("t1"), "no such page"));
        assert!(!declined(&mut tally, "wiki_write", page("orders"), "t1"));
        let [call] = tally.calls() else {
            unreachable!("one call: {tally:?}")
        };
        assert_eq!(
            (&call.recovery_rule, call.message.as_str()),
            (
                &FailureRecoveryRule::Subject(page("orders")),
                "no such page"
            )
        );
    }

    #[test]
    fn user_refusal_is_not_a_failure() {
        let mut tally = FailureTally::default();
        tally.record_refusal("mcp__ktx__wiki_write", Some("t1"), "not this page");
        tally.record_refusal("wiki_write", Some("t1"), "again");
        assert!(!tally.record_failure("wiki_write", Some("t1"), "denied"));
        assert!(!tally.record_failure("?", Some("t1"), "permission denied"));
        assert_eq!(
            (tally.count(FailureRule::Strict), tally.refusals().len()),
            (0, 1)
        );
        assert_eq!(tally.refusals()[0].message, "not this page");
        assert!(tally.record_failure("wiki_write", Some("t2"), "another call"));
        assert_eq!(tally.count(FailureRule::Strict), 1);
    }

    #[test]
    fn calls_without_an_id_always_count() {
        let mut tally = FailureTally::default();
        assert!(tally.record_failure("wiki_write", None, "x"));
        assert!(tally.record_failure("wiki_write", None, "x"));
        assert!(tally.record_failure("wiki_write", Some(""), "x"));
        assert!(tally.record_failure("wiki_write", Some(""), "x"));
        assert_eq!(tally.count(FailureRule::Strict), 4);
    }

    #[test]
    fn the_same_id_of_another_tool_is_another_call() {
        let mut tally = FailureTally::default();
        assert!(tally.record_failure("wiki_write", Some("t1"), "x"));
        assert!(tally.record_failure("wiki_read", Some("t1"), "x"));
    }

    #[test]
    fn only_a_later_write_of_the_subject_recovers_a_failure() {
        let mut tally = FailureTally::default();
        wrote(&mut tally, "wiki_write", page("orders"), "t0");
        assert!(declined(&mut tally, "wiki_write", page("orders"), "t1"));
        assert_eq!(
            tally.count(FailureRule::Recoverable),
            1,
            "an earlier success does not recover a failure"
        );
        wrote(&mut tally, "wiki_write", page("refunds"), "t2");
        tally.record_success("wiki_write", Some("t3"));
        tally.record_tool_reply("wiki_read", Some("t4"), &CallEffect::Neutral, None);
        tally.record_success("wiki_write", Some("t1"));
        assert_eq!(tally.count(FailureRule::Recoverable), 1);
        wrote(&mut tally, "mcp__ktx__wiki_remove", page("orders"), "t5");
        assert_eq!(
            (
                tally.count(FailureRule::Recoverable),
                tally.count(FailureRule::Strict)
            ),
            (0, 0)
        );
        assert!(tally.all_recovered());
    }

    #[test]
    fn deciding_call_left_its_subject_unwritten() {
        let mut tally = FailureTally::default();
        let deciding = |tally: &FailureTally| {
            tally
                .deciding_call(FailureRule::Strict)
                .map(|call| call.message.clone())
        };
        assert_eq!(deciding(&tally), None);
        tally.record_failure("Bash", Some("t1"), "denied");
        assert_eq!(deciding(&tally).as_deref(), Some("denied"));
        declined(&mut tally, "wiki_write", page("orders"), "t2");
        assert_eq!(deciding(&tally).as_deref(), Some("no"));
        tally.record_failure("Grep", Some("t3"), "denied again");
        assert_eq!(
            deciding(&tally).as_deref(),
            Some("no"),
            "nothing wrote the page"
        );
        wrote(&mut tally, "wiki_write", page("orders"), "t4");
        assert_eq!(deciding(&tally).as_deref(), Some("denied again"));
    }

    #[test]
    fn settled_refusals_fail_a_unit_under_no_rule() {
        let rejected = |tally: &mut FailureTally, tool: &str, subject: Option<WriteSubject>| {
            tally.record_tool_reply(
                tool,
                Some("t1"),
                &CallEffect::Rejected(subject),
                Some("correct the arguments"),
            )
        };
        // A field was missing, and a later call wrote the page with it.
        let mut tally = FailureTally::default();
        assert!(rejected(&mut tally, "wiki_write", Some(page("orders"))));
        wrote(&mut tally, "wiki_write", page("refunds"), "t2");
        assert_eq!(
            (
                tally.count(FailureRule::Strict),
                tally.count(FailureRule::Recoverable)
            ),
            (1, 0)
        );
        wrote(&mut tally, "wiki_write", page("orders"), "t3");
        assert_eq!(
            (tally.count(FailureRule::Strict), tally.calls().len()),
            (0, 1),
            "still one failed call on record"
        );
        // Without a subject, or without our reply, nothing proves that the write was done later.
        for is_ours in [true, false] {
            let mut tally = FailureTally::default();
            assert!(match is_ours {
                true => rejected(&mut tally, "read_raw_span", None),
                false =>
                    tally.record_failure("wiki_write", Some("t1"), "arguments that are not JSON"),
            });
            tally.record_tool_reply("read_raw_span", Some("t2"), &CallEffect::Neutral, None);
            wrote(&mut tally, "wiki_write", page("orders"), "t3");
            assert_eq!(
                (
                    tally.count(FailureRule::Strict),
                    tally.count(FailureRule::Recoverable)
                ),
                (1, 0),
                "{is_ours}"
            );
        }
    }

    #[test]
    fn refused_edit_fails_a_unit_under_strict_only() {
        let mut tally = FailureTally::default();
        assert!(tally.record_failure("mcp__ktx__sl_edit_source", Some("t1"), "no"));
        assert!(!declined(
            &mut tally,
            "sl_edit_source",
            source("orders"),
            "t1"
        ));
        assert_eq!(
            (
                tally.count(FailureRule::Strict),
                tally.count(FailureRule::Recoverable)
            ),
            (1, 0)
        );
        wrote(&mut tally, "sl_write_source", source("orders"), "t2");
        assert_eq!(tally.count(FailureRule::Strict), 0, "settled");
        assert!(tally.record_failure("sl_edit_source", Some("t3"), "arguments that are not JSON"));
        assert_eq!(
            tally.count(FailureRule::Recoverable),
            1,
            "the call was rejected"
        );
    }

    #[test]
    fn source_failure_is_recovered_within_its_connection() {
        let mut tally = FailureTally::default();
        declined(&mut tally, "sl_write_source", source("orders"), "t1");
        declined(&mut tally, "sl_write_source", source("orders"), "t2");
        let elsewhere = WriteSubject::Source {
            connection: "lake".into(),
            name: "orders".into(),
        };
        wrote(&mut tally, "sl_edit_source", elsewhere, "t3");
        assert_eq!(tally.count(FailureRule::Recoverable), 2);
        wrote(&mut tally, "sl_edit_source", source("orders"), "t4");
        assert!(tally.all_recovered());
        declined(&mut tally, "sl_write_source", source("orders"), "t5");
        assert_eq!(
            tally.count(FailureRule::Recoverable),
            1,
            "what failed after that counts again"
        );
    }

    #[test]
    fn unmappable_table_settles_its_source() {
        let pending = |table: Option<&str>, names: &[&str]| {
            let mut tally = FailureTally::default();
            declined(&mut tally, "wiki_write", page("orders"), "page");
            for name in names {
                declined(&mut tally, "sl_write_source", source(name), name);
            }
            tally.record_tool_reply(
                "emit_unmapped_fallback",
                Some("e"),
                &CallEffect::Unmappable {
                    table: table.map(str::to_owned),
                    is_recorded: true,
                },
                None,
            );
            assert_eq!(
                tally.count(FailureRule::Strict),
                tally.count(FailureRule::Recoverable)
            );
            tally.count(FailureRule::Recoverable) - 1
        };
        assert_eq!(pending(Some("db.public.ORDERS"), &["orders", "refunds"]), 1);
        assert_eq!(pending(Some("db.public.plans"), &["orders", "refunds"]), 2);
        assert_eq!(pending(None, &["orders"]), 0, "it can only mean that one");
        assert_eq!(
            pending(None, &["orders", "refunds"]),
            2,
            "it could mean either"
        );
        assert_eq!(pending(None, &[]), 0);
    }

    #[test]
    fn unrecorded_unmappable_settles_nothing() {
        let mut tally = FailureTally::default();
        declined(&mut tally, "sl_write_source", source("orders"), "t1");
        let mut give_up = |is_recorded| {
            let effect = CallEffect::Unmappable {
                table: Some("orders".into()),
                is_recorded,
            };
            tally.record_tool_reply("emit_unmapped_fallback", Some("t2"), &effect, None);
            [FailureRule::Strict, FailureRule::Recoverable].map(|rule| tally.count(rule))
        };
        assert_eq!(give_up(false), [1, 0], "KTX takes it for good");
        assert_eq!(give_up(true), [0, 0]);
    }

    #[test]
    fn tool_crash_is_never_recovered() {
        let mut tally = FailureTally::default();
        assert!(tally.record_tool_reply(
            "wiki_write",
            Some("t1"),
            &CallEffect::ToolCrashed,
            Some("it broke down")
        ));
        wrote(&mut tally, "wiki_write", page("orders"), "t2");
        assert_eq!(tally.count(FailureRule::Recoverable), 1);
    }

    #[test]
    fn rejected_call_is_recovered_by_any_success_of_its_tool() {
        let mut tally = FailureTally::default();
        tally.record_failure("wiki_write", Some("t1"), "invalid arguments");
        assert!(tally.record_tool_reply(
            "wiki_write",
            Some("t2"),
            &CallEffect::Rejected(None),
            Some("invalid arguments")
        ));
        // Declined without being a failure, such as when the page was changed concurrently: not a success either.
        tally.record_tool_reply(
            "wiki_write",
            Some("t3"),
            &CallEffect::Declined(Some(page("orders"))),
            None,
        );
        tally.record_success("wiki_write", Some("t3"));
        assert_eq!(tally.count(FailureRule::Recoverable), 2);
        wrote(&mut tally, "wiki_write", page("orders"), "t4");
        assert!(tally.all_recovered());
        assert!(!FailureTally::default().all_recovered());
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut tally = FailureTally::default();
        tally.record_failure("t", None, &"é".repeat(MAX_MESSAGE_BYTES));
        assert!(tally.calls()[0].message.len() <= MAX_MESSAGE_BYTES);
    }

    proptest! {
        #[test]
        fn the_count_is_that_of_distinct_calls(
            reports in prop::collection::vec((0..3u8, prop::option::of(0..4u8), any::<bool>()), 0..60),
        ) {
            let mut tally = FailureTally::default();
            let mut seen = std::collections::HashSet::new();
            let mut anonymous = 0;
            for (tool, id, prefixed) in reports {
                let name = format!("{}tool{tool}", if prefixed { MCP_TOOL_PREFIX } else { "" });
                let id_text = id.map(|id| format!("t{id}"));
                let counted = tally.record_failure(&name, id_text.as_deref(), "x");
                let expected = match id {
                    Some(id) => seen.insert((tool, id)),
                    None => { anonymous += 1; true }
                };
                prop_assert_eq!(counted, expected);
            }
            prop_assert_eq!(tally.count(FailureRule::Strict), seen.len() + anonymous);
        }
    }

    #[test]
    fn absent_tool_that_our_texts_name_is_no_failure() {
        let mut tally = FailureTally::default();
        tally.record_failure(
            "mcp__ktx__entity_details",
            Some("a"),
            "Error: No such tool available: mcp__ktx__entity_details",
        );
        tally.record_failure("mcp__ktx__sql_execution", Some("b"), "the table is unknown");
        tally.record_failure("Bash", Some("c"), "No such tool available: Bash");
        tally.settle_absent_tools(|tool| tool != "Bash");
        let counted: Vec<_> = tally
            .counted(FailureRule::Strict)
            .map(|call| call.tool.as_str())
            .collect();
        assert_eq!(counted, ["sql_execution", "Bash"]);
        assert_eq!(tally.count(FailureRule::Recoverable), 2);
    }
}
