//! The command line: parsing and completion.
//!
//! Parsing is pure, and any invalid text results in an error with a remedy. This module must not know how a request is
//! carried out.

use std::str::FromStr as _;

use jiff::SignedDuration;

use super::time::SPEEDS;
use crate::{
    action::{ActionScope, UserAction},
    action_spec::ActionSpec,
};
use ingestdeck_core::{
    control::{AgentRequest, BreakCondition, NamePattern, ReviewVerdict},
    diagnostic::Diagnostic,
    run::review::ChangePattern,
    tape::Millis,
};

/// Keywords that are not names of actions, with their effects.
const KEYWORDS: [(&str, &str); 19] = [
    ("break", "stop there whenever playing or stepping passes it"),
    ("breaks", "list of the breakpoints"),
    (
        "changes",
        "accept, reject, reopen or send-back the changes of a pattern, or undo: changes reject wiki/*",
    ),
    ("context", "how full the context of a session is"),
    ("end", "to the last entry"),
    ("find", "where a text occurs in the whole run"),
    (
        "leash",
        "hold the selected unit at every Nth call, such as 5",
    ),
    (
        "accept",
        "use the result of the selected unit, which is out of turns",
    ),
    ("live", "to the present of a live run"),
    ("model", "another model for a session, such as opus"),
    (
        "permission-mode",
        "another permission mode for a session, such as plan",
    ),
    ("q", "quit"),
    (
        "speed",
        "play at 0.25 to 64 times the recorded speed, or max",
    ),
    ("start", "to the first entry"),
    ("stop-task", "stop a background task of a session by its id"),
    ("tasks", "list of the tasks in the background of sessions"),
    ("until", "play or run until a condition is met"),
    ("usage", "usage windows of the account of a session"),
    (
        "view",
        "arrangement of the table with this name; save NAME keeps one, delete NAME forgets it",
    ),
];

/// Permission modes of Claude Code. It knows which of them a session may use.
const PERMISSION_MODES: [(&str, &str); 6] = [
    ("acceptEdits", "files are edited without asking"),
    ("auto", "a model decides which calls need you"),
    ("bypassPermissions", "every call is allowed"),
    ("default", "calls ask, unless a rule allows them"),
    ("dontAsk", "calls that would ask are denied"),
    ("plan", "the model only reads, and writes a plan"),
];

/// Names of models that Claude Code resolves.
const MODELS: [(&str, &str); 3] = [
    ("haiku", "the fastest model"),
    ("opus", "the most capable model"),
    ("sonnet", "the model between them"),
];

/// Kinds of conditions after `until` and `break`, with their meanings.
const CONDITIONS: [(&str, &str); 5] = [
    ("cost", "a unit has cost this much, such as $0.50"),
    ("failure", "a call or a unit fails"),
    ("path", "a call names a path, such as models/*.yml"),
    (
        "silence",
        "a unit writes nothing for this long, such as 30s",
    ),
    ("tool", "a call of this tool, such as wiki_*"),
];

/// The parsed request of a line.
#[derive(Clone, Debug)]
pub enum CommandRequest {
    /// Seek to another moment.
    Seek(TimeTarget),
    /// Seek to the end and follow the run.
    Live,
    /// Play at a multiple of the recorded speed; `None` for as fast as possible.
    Speed(Option<f64>),
    /// Play until a condition is met.
    Until(BreakCondition),
    Break(BreakCondition),
    /// Show the list of breakpoints.
    Breaks,
    /// Show the tasks in the background.
    Tasks,
    /// List where a text occurs in the run.
    Find(String),
    /// List what happened in this time before the moment that is shown.
    Last(Millis),
    /// Hold the selected unit at every so many calls.
    Leash(u32),
    /// Use the result of the selected unit.
    Accept,
    /// Decide about the changes of a review that match the pattern, with a reason for a rejection.
    Review(ReviewVerdict, ChangePattern, Option<String>),
    /// Undo the last decisions of the review.
    UndoReview,
    /// End the review, with the commit on this branch.
    FinishReview(String),
    /// Bookmark this place with a note.
    Bookmark(String),
    /// Show a saved arrangement of the table, save the one that is shown, or delete one; without a name, list them.
    View(ViewRequest),
    /// Ask the agent of the session.
    Ask(AgentRequest),
    /// Perform the action of a key.
    Action(UserAction),
}

/// What happens to the saved arrangements of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewRequest {
    List,
    Show(String),
    Save(String),
    Delete(String),
}

/// A moment as the user writes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeTarget {
    /// The start of the run.
    Start,
    End,
    /// Time since the start.
    Elapsed(Millis),
    /// Hours, minutes and seconds since the start, or of the wall clock if the run is shorter than that.
    ElapsedOrWallClock(u64, u8, u8),
    /// Hours, minutes and seconds of the wall clock.
    WallClock(u8, u8, u8),
    /// A duration after the current moment.
    Later(Millis),
    /// A duration before the current moment.
    Earlier(Millis),
    /// Percentage of the total time, 0 to 100.
    Percent(f64),
    /// The moment after this number of entries.
    Entry(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The line is empty.
    #[error("empty command")]
    Empty,
    /// The first word is unknown.
    #[error("unknown command `{0}`")]
    Unknown(String),
    /// A required argument is missing: keyword, expected argument.
    #[error("`{0}` needs an argument: {1}")]
    Missing(&'static str, &'static str),
    /// An argument is not accepted: keyword, argument.
    #[error("`{0}` takes no argument, but got `{1}`")]
    ExtraArgument(&'static str, String),
    /// A number without a unit.
    #[error("invalid time `{0}`: no unit")]
    BareNumber(String),
    #[error("invalid time `{0}`; expected a time such as 90s, 12m30s, 1:02:03 or @14:03:22")]
    Time(String),
    #[error("invalid percentage `{0}`; expected 0% to 100%")]
    Percent(String),
    #[error("invalid entry `{0}`; expected a number such as #1234")]
    Entry(String),
    #[error("invalid speed `{0}`; expected a number from 0.25 to 64, or max")]
    Speed(String),
    #[error("invalid number of calls `{0}`; expected 1 or more")]
    Calls(String),
    #[error(
        "invalid decision `{0}`; expected undo, or accept, reject, send-back or reopen and a pattern"
    )]
    Decision(String),
    #[error("invalid cost `{0}`; expected dollars, such as $0.50")]
    Cost(String),
    #[error(
        "unknown condition `{0}`; expected failure, tool NAME, path GLOB, cost $0.50 or silence 30s"
    )]
    BreakCondition(String),
    #[error("invalid pattern `{pattern}`: {why}")]
    Pattern {
        /// The pattern as typed.
        pattern: String,
        /// Reason of the parser.
        why: String,
    },
}

impl Diagnostic for CommandError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Empty => "type a time such as 12m30s, or a word such as until".into(),
            Self::Unknown(_) => {
                "Tab completes words, times look like 12m30s, 1:02:03, +30s, 50% or #1234".into()
            }
            Self::BareNumber(number) => {
                format!(
                    "write {number}s for seconds, #{number} for an entry or {number}% of the run"
                )
            }
            Self::Pattern { .. } => "`*` matches any text".into(),
            _ => return None,
        })
    }
}

/// A decision about the changes that match a pattern: `reject wiki/*`.
fn changes(text: &str) -> Result<CommandRequest, CommandError> {
    let mut words = text.splitn(3, char::is_whitespace);
    let (word, pattern, feedback) = (
        words.next().unwrap_or_default(),
        words.next(),
        words.next().unwrap_or_default(),
    );
    let verdict = match word {
        "undo" => {
            return match pattern {
                Some(extra) => Err(CommandError::ExtraArgument(
                    "changes undo",
                    extra.to_owned(),
                )),
                None => Ok(CommandRequest::UndoReview),
            };
        }
        "accept" => ReviewVerdict::Accept,
        "reject" => ReviewVerdict::Reject,
        "reopen" => ReviewVerdict::Reopen,
        "send-back" => ReviewVerdict::SendBack(feedback.trim().to_owned()),
        _ => return Err(CommandError::Decision(word.to_owned())),
    };
    let Some(pattern) = pattern else {
        return Err(CommandError::Missing(
            "changes",
            "a pattern, such as wiki/*",
        ));
    };
    match &verdict {
        ReviewVerdict::SendBack(feedback) if feedback.is_empty() => {
            return Err(CommandError::Missing(
                "changes send-back",
                "what the units should change",
            ));
        }
        ReviewVerdict::SendBack(_) | ReviewVerdict::Reject => {}
        _ if !feedback.is_empty() => {
            return Err(CommandError::ExtraArgument("changes", feedback.to_owned()));
        }
        _ => {}
    }
    let parsed = ChangePattern::parse(pattern);
    let pattern = parsed.map_err(|error| CommandError::Pattern {
        pattern: pattern.to_owned(),
        why: error.kind().to_string(),
    })?;
    let reason = Some(feedback.trim().to_owned())
        .filter(|text| verdict == ReviewVerdict::Reject && !text.is_empty());
    Ok(CommandRequest::Review(verdict, pattern, reason))
}

/// Parses a line.
///
/// # Errors
/// When the line is not a valid request.
pub fn parse(text: &str) -> Result<CommandRequest, CommandError> {
    let text = text.trim().trim_start_matches(':').trim();
    let (word, rest) = text
        .split_once(char::is_whitespace)
        .map_or((text, ""), |(word, rest)| (word, rest.trim()));
    let alone = |name: &'static str, request: CommandRequest| {
        if rest.is_empty() {
            Ok(request)
        } else {
            Err(CommandError::ExtraArgument(name, rest.to_owned()))
        }
    };
    match word {
        "" => Err(CommandError::Empty),
        "start" => alone("start", CommandRequest::Seek(TimeTarget::Start)),
        "end" => alone("end", CommandRequest::Seek(TimeTarget::End)),
        "live" => alone("live", CommandRequest::Live),
        "accept" => alone("accept", CommandRequest::Accept),
        "changes" => changes(rest),
        "tasks" => alone("tasks", CommandRequest::Tasks),
        "breaks" => alone("breaks", CommandRequest::Breaks),
        "q" => alone("q", CommandRequest::Action(UserAction::Quit)),
        "speed" => speed(rest).map(CommandRequest::Speed),
        "find" if rest.is_empty() => Err(CommandError::Missing("find", "a text")),
        "find" => Ok(CommandRequest::Find(rest.to_owned())),
        "last" if !rest.is_empty() => last(rest).map(CommandRequest::Last),
        "leash" if rest.is_empty() => Err(CommandError::Missing(
            "leash",
            "a number of calls, such as 5",
        )),
        "leash" => match rest.parse() {
            Ok(calls) if calls > 0 => Ok(CommandRequest::Leash(calls)),
            _ => Err(CommandError::Calls(rest.to_owned())),
        },
        "finish-review" if !rest.is_empty() => Ok(CommandRequest::FinishReview(rest.to_owned())),
        "bookmark" if !rest.is_empty() => Ok(CommandRequest::Bookmark(rest.to_owned())),
        "view" => view(rest).map(CommandRequest::View),
        "context" => alone("context", CommandRequest::Ask(AgentRequest::Context)),
        "usage" => alone("usage", CommandRequest::Ask(AgentRequest::Usage)),
        "model" => named("model", "a name, such as opus", rest, AgentRequest::Model),
        "permission-mode" => named(
            "permission-mode",
            "a mode, such as plan or acceptEdits",
            rest,
            AgentRequest::PermissionMode,
        ),
        "stop-task" => named(
            "stop-task",
            "the id of a task, as `tasks` lists it",
            rest,
            AgentRequest::StopTask,
        ),
        "until" => condition("until", rest).map(CommandRequest::Until),
        "break" => condition("break", rest).map(CommandRequest::Break),
        _ => match action_named(word) {
            Some(spec) => alone(spec.name, CommandRequest::Action(spec.action)),
            None => parse_time_target(text).map(CommandRequest::Seek),
        },
    }
}

fn view(text: &str) -> Result<ViewRequest, CommandError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(ViewRequest::List),
        ["save" | "delete"] => Err(CommandError::Missing("view", "a name after save or delete")),
        ["save", name] => Ok(ViewRequest::Save((*name).to_owned())),
        ["delete", name] => Ok(ViewRequest::Delete((*name).to_owned())),
        [name] => Ok(ViewRequest::Show((*name).to_owned())),
        [..] => Err(CommandError::Missing("view", "one word as a name")),
    }
}

fn named(
    word: &'static str,
    expected: &'static str,
    text: &str,
    request: fn(String) -> AgentRequest,
) -> Result<CommandRequest, CommandError> {
    match text.split_once(char::is_whitespace) {
        _ if text.is_empty() => Err(CommandError::Missing(word, expected)),
        Some((_, extra)) => Err(CommandError::ExtraArgument(word, extra.trim().to_owned())),
        None => Ok(CommandRequest::Ask(request(text.to_owned()))),
    }
}

/// The action with that name, if commands may run it.
fn action_named(word: &str) -> Option<&'static ActionSpec> {
    actions().find(|spec| spec.name == word)
}

fn actions() -> impl Iterator<Item = &'static ActionSpec> {
    super::ALL.iter().filter(|spec| {
        matches!(
            spec.scope,
            ActionScope::View | ActionScope::Live | ActionScope::Held
        )
    })
}

fn speed(text: &str) -> Result<Option<f64>, CommandError> {
    match text.trim_start_matches(['x', '×']) {
        "" => Err(CommandError::Missing(
            "speed",
            "a number from 0.25 to 64, or max",
        )),
        "max" => Ok(None),
        number => match number.parse() {
            Ok(speed) if (SPEEDS.0..=SPEEDS.1).contains(&speed) => Ok(Some(speed)),
            _ => Err(CommandError::Speed(text.to_owned())),
        },
    }
}

fn condition(word: &'static str, text: &str) -> Result<BreakCondition, CommandError> {
    let (kind, rest) = text
        .split_once(char::is_whitespace)
        .map_or((text, ""), |(kind, rest)| (kind, rest.trim()));
    let pattern = |name, what| match rest {
        "" => Err(CommandError::Missing(name, what)),
        rest => NamePattern::new(rest).map_err(|why| CommandError::Pattern {
            pattern: rest.to_owned(),
            why: why.to_string(),
        }),
    };
    match (kind, rest) {
        ("", _) => Err(CommandError::Missing(
            word,
            "failure, tool NAME, path GLOB, cost $0.50 or silence 30s",
        )),
        ("failure", "") => Ok(BreakCondition::Failure),
        ("failure", rest) => Err(CommandError::ExtraArgument("failure", rest.to_owned())),
        ("tool", _) => {
            pattern("tool", "a name, such as wiki_write or wiki_*").map(BreakCondition::Tool)
        }
        ("path", _) => {
            pattern("path", "a pattern, such as *.yml or models/*").map(BreakCondition::Path)
        }
        ("cost", "") => Err(CommandError::Missing("cost", "dollars, such as $0.50")),
        ("cost", rest) => match rest.trim_start_matches('$').parse::<f64>() {
            Ok(dollars) if dollars.is_finite() && dollars > 0.0 => {
                Ok(BreakCondition::Cost(dollars))
            }
            _ => Err(CommandError::Cost(rest.to_owned())),
        },
        ("silence", "") => Err(CommandError::Missing("silence", "a time, such as 30s")),
        ("silence", rest) => duration(rest).map(BreakCondition::Silence),
        (other, _) => Err(CommandError::BreakCondition(other.to_owned())),
    }
}

fn parse_time_target(text: &str) -> Result<TimeTarget, CommandError> {
    let unknown = || CommandError::Unknown(text.to_owned());
    let first = text.chars().next().ok_or(CommandError::Empty)?;
    let rest = &text[first.len_utf8()..];
    match first {
        '+' | '-' | '−' if rest.is_empty() => Err(CommandError::Time(text.to_owned())),
        '+' => duration(rest).map(TimeTarget::Later),
        '-' | '−' => duration(rest).map(TimeTarget::Earlier),
        '#' => rest
            .parse()
            .map(TimeTarget::Entry)
            .map_err(|_| CommandError::Entry(text.to_owned())),
        '@' => wall(rest).ok_or_else(|| CommandError::Time(text.to_owned())),
        '0'..='9' => match text.strip_suffix('%') {
            Some(share) => match share.trim_end().parse() {
                Ok(share) if (0.0..=100.0).contains(&share) => Ok(TimeTarget::Percent(share)),
                _ => Err(CommandError::Percent(text.to_owned())),
            },
            None => match clock(text) {
                Some((hours, minutes, seconds)) if text.matches(':').count() == 2 => {
                    Ok(TimeTarget::ElapsedOrWallClock(hours, minutes, seconds))
                }
                _ => duration(text).map(TimeTarget::Elapsed),
            },
        },
        _ => Err(unknown()),
    }
}

/// Parses `1:02:03` or `02:03`.
fn clock(text: &str) -> Option<(u64, u8, u8)> {
    let mut parts = text.rsplit(':');
    let seconds = parts.next()?.parse().ok().filter(|seconds| *seconds < 60)?;
    let minutes: u64 = parts.next()?.parse().ok()?;
    let hours = parts.next();
    if parts.next().is_some() {
        return None;
    }
    match hours {
        None => Some((minutes / 60, u8::try_from(minutes % 60).ok()?, seconds)),
        Some(hours) => Some((
            hours.parse().ok()?,
            u8::try_from(minutes).ok().filter(|minutes| *minutes < 60)?,
            seconds,
        )),
    }
}

/// Parses a time of day such as `14:03` or `14:03:22`.
fn wall(text: &str) -> Option<TimeTarget> {
    let whole = if text.matches(':').count() == 1 {
        format!("{text}:00")
    } else {
        text.to_owned()
    };
    let (hours, minutes, seconds) = clock(&whole)?;
    let hours = u8::try_from(hours).ok().filter(|hours| *hours < 24)?;
    Some(TimeTarget::WallClock(hours, minutes, seconds))
}

/// Parses a duration such as `90s`, `12m30s`, `1h 2m`, `500ms` or `2:13`.
fn duration(text: &str) -> Result<Millis, CommandError> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CommandError::BareNumber(text.to_owned()));
    }
    let fault = || CommandError::Time(text.to_owned());
    if let Some((hours, minutes, seconds)) = clock(text) {
        let minutes = hours
            .checked_mul(60)
            .and_then(|all| all.checked_add(u64::from(minutes)))
            .ok_or_else(fault)?;
        let seconds = minutes
            .checked_mul(60)
            .and_then(|all| all.checked_add(u64::from(seconds)))
            .ok_or_else(fault)?;
        return seconds.checked_mul(1000).map(Millis).ok_or_else(fault);
    }
    if text.contains(':') || !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(fault());
    }
    let time = SignedDuration::from_str(text).map_err(|_| fault())?;
    u64::try_from(time.as_millis())
        .map(Millis)
        .map_err(|_| fault())
}

/// Parses the time of `last`; a number without a unit is one of minutes. At least a second.
fn last(text: &str) -> Result<Millis, CommandError> {
    let time = match text.parse::<u64>() {
        Ok(minutes) => Millis(minutes.saturating_mul(60_000)),
        Err(_) => duration(text)?,
    };
    Ok(time.max(Millis(1000)))
}

/// The words that can follow, with their descriptions: keywords, then actions by name.
fn words_after(before: &str) -> Box<dyn Iterator<Item = (&'static str, &'static str)>> {
    match before {
        "" => Box::new(
            KEYWORDS
                .into_iter()
                .chain(actions().map(|spec| (spec.name, spec.description))),
        ),
        "until" | "break" => Box::new(CONDITIONS.into_iter()),
        "speed" => Box::new([("max", "as fast as possible")].into_iter()),
        "permission-mode" => Box::new(PERMISSION_MODES.into_iter()),
        "model" => Box::new(MODELS.into_iter()),
        _ => Box::new(std::iter::empty()),
    }
}

/// The words that can be typed next, with their descriptions.
pub(crate) fn offers(text: &str) -> Vec<(&'static str, &'static str)> {
    let (before, word) = text.rsplit_once(' ').unwrap_or(("", text));
    words_after(before.trim())
        .filter(|(name, _)| name.starts_with(word))
        .collect()
}

/// Completes the last word of `text` as far as it is unambiguous.
pub(crate) fn complete(text: &str) -> String {
    let before = text
        .rsplit_once(' ')
        .map_or("", |(before, _)| &text[..=before.len()]);
    let offers = offers(text);
    let Some((first, _)) = offers.first() else {
        return text.to_owned();
    };
    let shared = offers.iter().fold(first.len(), |shared, (offer, _)| {
        first
            .bytes()
            .zip(offer.bytes())
            .take(shared)
            .take_while(|(one, other)| one == other)
            .count()
    });
    let mut line = format!("{before}{}", &first[..shared]);
    if offers.len() == 1 && accepts_argument(before.trim(), first) {
        line.push(' ');
    }
    line
}

fn accepts_argument(before: &str, word: &str) -> bool {
    match before {
        "" => matches!(
            word,
            "until"
                | "break"
                | "speed"
                | "find"
                | "bookmark"
                | "last"
                | "model"
                | "permission-mode"
                | "stop-task"
        ),
        "until" | "break" => word != "failure",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        match parse(text) {
            Ok(CommandRequest::Seek(place)) => format!("{place:?}"),
            Ok(CommandRequest::Speed(speed)) => format!("Speed({speed:?})"),
            Ok(CommandRequest::Until(condition)) => format!("until {condition}"),
            Ok(CommandRequest::Break(condition)) => format!("break {condition}"),
            Ok(request) => format!("{request:?}"),
            Err(error) => error.to_line(),
        }
    }

    #[test]
    fn command_lines_parse_to_requests() {
        let lines = [
            "12m30s",
            "90s",
            "500ms",
            "1h 2m",
            "2:13",
            "61:01",
            "1:02:03",
            "14:03:22",
            "@14:03:22",
            "@14:03",
            "+30s",
            "-1m",
            "50%",
            "99.5%",
            "#1234",
            "end",
            "start",
            "live",
            ":live",
            "speed 8",
            "speed ×0.5",
            "speed max",
            "until failure",
            "until tool wiki_*",
            "until path models/*.yml",
            "until cost $0.50",
            "until cost 2",
            "until silence 30s",
            "break silence 1:30",
            "breaks",
            "bookmark",
            "bookmark why it failed",
            "bookmarks",
            "last",
            "last 10m",
            "last 10",
            "last 0s",
            "q",
            "quit",
            "retry",
            "filter",
            "next-failure",
        ];
        let results: Vec<_> = lines
            .iter()
            .map(|line| format!("{line:<24} {}", shown(line)))
            .collect();
        insta::assert_snapshot!(results.join("\n"));
    }

    #[test]
    fn parse_errors_suggest_a_fix() {
        let lines = [
            "",
            "   ",
            "fly",
            "90",
            "12x",
            "1:99",
            "1:99:00",
            "1:02:99",
            "25:00:00:00",
            "@25:00",
            "@",
            "+",
            "-x",
            "150%",
            "%",
            "#",
            "#-3",
            "speed",
            "speed 100",
            "speed 0",
            "speed fast",
            "until",
            "until rain",
            "until tool",
            "until path",
            "until path a[",
            "until cost",
            "until cost x",
            "until cost -1",
            "until silence",
            "until silence 30",
            "until failure now",
            "break",
            "retry now",
            "last year",
            "live 5",
            "confirm",
            "99999999999999999999h",
            "99999999999999999999:00:00",
        ];
        let results: Vec<_> = lines
            .iter()
            .map(|line| format!("{line:<24} {}", shown(line)))
            .collect();
        insta::assert_snapshot!(results.join("\n"));
    }

    #[test]
    fn completion_stops_at_the_first_ambiguity() {
        let completed = |text: &str| {
            let several = Some(offers(text).len()).filter(|offers| *offers > 1);
            (complete(text), several.unwrap_or_default())
        };
        assert_eq!(completed("unt"), ("until ".into(), 0));
        assert_eq!(completed("until s"), ("until silence ".into(), 0));
        assert_eq!(completed("until f"), ("until failure".into(), 0));
        assert_eq!(completed("until "), ("until ".into(), 5));
        assert!(completed("retr").0 == "retry" && completed("retr").1 > 1);
        assert_eq!(completed("speed m"), ("speed max".into(), 0));
        assert_eq!(completed("per"), ("permission-mode ".into(), 0));
        assert_eq!(
            completed("permission-mode pl"),
            ("permission-mode plan".into(), 0)
        );
        assert_eq!(completed("model o"), ("model opus".into(), 0));
        assert_eq!(completed("zzz"), ("zzz".into(), 0));
        assert_eq!(completed("until tool x"), ("until tool x".into(), 0));
        assert!(offers("").iter().any(|(name, _)| *name == "break"));
    }

    #[test]
    fn every_action_of_a_view_has_a_command() {
        for spec in actions() {
            assert!(
                KEYWORDS.iter().all(|(word, _)| *word != spec.name),
                "{} has two meanings",
                spec.name
            );
            assert!(
                matches!(parse(spec.name), Ok(CommandRequest::Action(action)) if action == spec.action),
                "{}",
                spec.name
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_request_or_an_error(text in ".{0,40}") {
            let _ = parse(&text);
            let completed = complete(&text);
            prop_assert!(completed.len() >= text.len());
        }

        #[test]
        fn any_argument_is_a_request_or_an_error(
            word in prop::sample::select(vec!["until ", "break ", "speed ", "until tool ", "until cost ", "until silence ", "+", "-", "#", "@", ""]),
            rest in "[0-9:.hms$%*\\[a-c ]{0,12}",
        ) {
            let _ = parse(&format!("{word}{rest}"));
        }

        #[test]
        fn a_condition_is_read_as_it_is_shown(seconds in 1..100_000_u64, cents in 1..100_000_u32) {
            for condition in [BreakCondition::Silence(Millis(seconds)), BreakCondition::Cost(f64::from(cents) / 100.0), BreakCondition::Failure] {
                let text = format!("until {condition}");
                prop_assert_eq!(shown(&text), text);
            }
        }

        #[test]
        fn times_in_the_run_are_read_as_clocks_show_them(seconds in 0..1_000_000_u64) {
            let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let clock = format!("+{hours}:{minutes:02}:{rest:02}");
            prop_assert_eq!(shown(&clock), format!("Later(Millis({}))", seconds * 1000));
            let words = format!("{seconds}s");
            prop_assert_eq!(shown(&words), format!("Elapsed(Millis({}))", seconds * 1000));
        }
    }
}
