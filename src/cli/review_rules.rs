//! The rules of `review --accept … --reject … --send-back …`.

use std::time::Duration;

use tokio::{sync::watch, time::timeout};

use super::{args::ReviewArgs, exit::CliError};
use ingestdeck_core::{
    control::{CommandOrigin, CommandReply, ReviewOrder, ReviewVerdict, RunCommand},
    run::{
        PollStatus, Timeline,
        review::{ChangePattern, FileReview, ReviewState},
        state::RunState,
    },
    tape::note::{ReviewDecision, ReviewedFile},
};
use ingestdeck_engine::controller::RunController;
use ingestdeck_records::replay::FileSource;

/// How long a tape may not grow before it is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes that are folded before the state is looked at.
const SLICE: usize = 1 << 20;

/// Which changes are accepted, rejected and sent back.
#[derive(Debug, Default)]
pub(crate) struct ReviewRules {
    accept: Vec<NamedPattern>,
    reject: Vec<NamedPattern>,
    send_back: Vec<NamedPattern>,
    /// What the units should change.
    feedback: String,
    /// Why changes are rejected.
    reason: Option<String>,
    /// The branch for the commit.
    branch: Option<String>,
    /// Changes that files of the user block are left out of the commit.
    skip_blocked: bool,
}

/// A pattern as the user wrote it, and its meaning.
#[derive(Debug)]
struct NamedPattern {
    text: String,
    pattern: ChangePattern,
}

fn parse_pattern(text: &str) -> Result<NamedPattern, CliError> {
    let invalid = |error: globset::Error| {
        CliError::usage(format!(
            "invalid pattern `{}`: {}",
            text.escape_debug(),
            error.kind()
        ))
    };
    Ok(NamedPattern {
        text: text.to_owned(),
        pattern: ChangePattern::parse(text).map_err(invalid)?,
    })
}

impl ReviewRules {
    /// # Errors
    /// If a pattern is invalid, or if changes are sent back without feedback.
    pub(super) fn new(args: &ReviewArgs) -> Result<Self, CliError> {
        let parse = |patterns: &[String]| {
            patterns
                .iter()
                .map(|pattern| parse_pattern(pattern))
                .collect()
        };
        let feedback = args.feedback.clone().unwrap_or_default();
        if !args.send_back.is_empty() && feedback.trim().is_empty() {
            return Err(CliError::usage("--send-back without feedback")
                .with_help("add --feedback TEXT for the agent"));
        }
        let [accept, reject, send_back]: [Result<Vec<_>, CliError>; 3] =
            [&args.accept, &args.reject, &args.send_back].map(|patterns| parse(patterns));
        let (branch, reason) = (args.branch.clone(), args.reason.clone());
        Ok(Self {
            accept: accept?,
            reject: reject?,
            send_back: send_back?,
            feedback,
            reason,
            branch,
            skip_blocked: args.skip_blocked,
        })
    }

    /// True if units run again to make changes again, for which an agent must be usable.
    pub(super) fn sends_back(&self) -> bool {
        !self.send_back.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accept.is_empty() && self.reject.is_empty() && self.send_back.is_empty()
    }

    /// A rejection or an order that is about nothing may be a mistake, and the other changes would be committed.
    fn check_patterns(&self, state: &RunState, review: &ReviewState) -> Result<(), CliError> {
        let flags = [("reject", &self.reject), ("send-back", &self.send_back)];
        for (flag, named) in flags
            .into_iter()
            .flat_map(|(flag, patterns)| patterns.iter().map(move |it| (flag, it)))
        {
            let mut files = review.by_path();
            if !files.any(|(file, _)| {
                named
                    .pattern
                    .matches(file, |unit| state.connection_of(unit))
            }) {
                return Err(CliError::not_found(format!(
                    "no change matches --{flag} `{}`",
                    named.text.escape_debug()
                ))
                .with_help("list the changes with `ingestdeck review --list`"));
            }
        }
        Ok(())
    }

    /// Number of files with a decision that only patterns of acceptance match, so that they keep it.
    pub(super) fn kept_count(&self, state: &RunState, review: &ReviewState) -> usize {
        let is_match = |file: &ReviewedFile, patterns: &[NamedPattern]| {
            patterns.iter().any(|named| {
                named
                    .pattern
                    .matches(file, |unit| state.connection_of(unit))
            })
        };
        let is_kept = |(file, decided): &(&ReviewedFile, &FileReview)| {
            let is_other = decided.decision() != Some(ReviewDecision::Accepted);
            let is_replaced =
                is_match(file, &self.reject) || is_match(file, &self.send_back) || self.names(file);
            !decided.is_open() && is_other && !is_replaced && is_match(file, &self.accept)
        };
        review.by_path().filter(is_kept).count()
    }

    /// True if the file is accepted by its name, not by a pattern for several.
    fn names(&self, file: &ReviewedFile) -> bool {
        self.accept.iter().any(|named| named.text == file.path)
    }

    /// The commands for a review: the decisions, and its end if no change stays open. A rejection outranks everything,
    /// and an order to send back outranks an acceptance. A pattern for several files accepts only what is open: otherwise
    /// the careful decisions of before would be lost. Unless the review `is_first`, changes with a decision keep it,
    /// nothing is sent back, and changes that could not be made again count as open.
    ///
    /// # Errors
    /// If a pattern matches no change, so that it may be a mistake.
    pub(super) fn commands(
        &self,
        state: &RunState,
        review: &ReviewState,
        is_first: bool,
    ) -> Result<Vec<RunCommand>, CliError> {
        if is_first {
            self.check_patterns(state, review)?;
        }
        let mut decided = review.clone();
        let (mut decisions, mut is_matched) = (Vec::new(), false);
        for (file, decision) in review.by_path() {
            let matches = |patterns: &[NamedPattern]| {
                patterns.iter().any(|named| {
                    named
                        .pattern
                        .matches(file, |unit| state.connection_of(unit))
                })
            };
            let is_open = decision.is_open();
            let verdict = match () {
                () if !is_first && !is_open => continue,
                () if matches(&self.reject) => ReviewVerdict::Reject,
                () if is_first && matches(&self.send_back) => {
                    ReviewVerdict::SendBack(self.feedback.clone())
                }
                () if matches(&self.accept) && !self.names(file) => {
                    is_matched = true;
                    for order in decision.open_orders(&file.path) {
                        decided.decide(&order.clone().into_decision());
                        decisions.push(order);
                    }
                    continue;
                }
                () if matches(&self.accept) => ReviewVerdict::Accept,
                () => continue,
            };
            let reason = self
                .reason
                .clone()
                .filter(|_| verdict == ReviewVerdict::Reject);
            let order = ReviewOrder {
                path: file.path.clone(),
                hunk: None,
                verdict,
                reason,
            };
            decided.decide(&order.clone().into_decision());
            decisions.push(order);
        }
        if decisions.is_empty() && is_first && !is_matched {
            return Err(CliError::not_found("no change matches these patterns")
                .with_help("list the changes with `ingestdeck review --list`"));
        }
        let counts = decided.counts();
        let is_complete = counts.open == 0 && (is_first || counts.sent_back == 0);
        let orders = ReviewOrder::into_commands(decisions).into_iter();
        let finish = || RunCommand::FinishReview {
            branch: self.branch.clone(),
            leave_blocked: self.skip_blocked,
        };
        Ok(orders.chain(is_complete.then(finish)).collect())
    }
}

/// # Errors
/// If the command had no effect.
pub(super) fn accepted(reply: CommandReply) -> Result<(), CliError> {
    match reply {
        CommandReply::Accepted | CommandReply::Attached { .. } | CommandReply::Detached { .. } => {
            Ok(())
        }
        CommandReply::Refused { reason } => Err(CliError::not_found(reason.to_string())),
        CommandReply::Invalid { message } => Err(CliError::failed(message)),
    }
}

/// Decides about the changes of a run of this process by `rules`, each time it waits for a review, until its tape ends.
/// Changes are sent back only once.
///
/// # Errors
/// If the tape cannot be read or a decision is refused. The run has been stopped then.
pub(super) async fn decide_by_rules(
    source: FileSource,
    mut changed: watch::Receiver<u64>,
    controller: RunController,
    rules: &ReviewRules,
) -> Result<(), CliError> {
    let mut timeline = Timeline::new_forward_only(Box::new(source));
    let origin = || CommandOrigin {
        client: Some("review".to_owned()),
        reason: None,
    };
    let mut is_first = true;
    loop {
        match timeline.advance(SLICE, &mut |_| {})? {
            PollStatus::More => continue,
            PollStatus::End => return Ok(()),
            PollStatus::Waiting => {}
        }
        let state = &timeline.view().state;
        if state.ended.is_some() {
            return Ok(());
        }
        let is_refused = !is_first
            && (state.publication.save_error.is_some() || !state.publication.blocked.is_empty());
        if is_refused {
            // The same decisions would fail in the same way.
            controller.execute(RunCommand::Drain, origin()).await;
            return Ok(());
        }
        if let Some(review) = state.publication.open_review() {
            let decided = async {
                let commands = rules.commands(state, review, is_first)?;
                let is_finished = commands
                    .iter()
                    .any(|command| matches!(command, RunCommand::FinishReview { .. }));
                for command in commands {
                    accepted(controller.execute(command, origin()).await)?;
                }
                Ok::<_, CliError>(is_finished)
            };
            let decided = decided.await;
            is_first = false;
            if !matches!(decided, Ok(true)) {
                controller.execute(RunCommand::Drain, origin()).await;
                return decided.map(drop);
            }
            while timeline.advance(SLICE, &mut |_| {})? == PollStatus::More {}
        }
        // The tape may have grown before the last look at it.
        let _ = timeout(POLL_INTERVAL, changed.changed()).await;
    }
}
