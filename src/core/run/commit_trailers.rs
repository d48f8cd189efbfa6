//! The git trailers of the commit of a run: the run, and the attempts whose patches it contains.
//!
//! If a message would become too long, the attempts are in a git note of the commit instead, in the same form, and a
//! trailer names their number.
//!
//! Pure. A commit message may come from anywhere, and keys of units are untrusted, so both directions are bounded.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::{
    tape::{RunId, UnitKey},
    text,
};

const RUN: &str = "Ingest-Run";
const UNIT: &str = "Ingest-Unit";
const ATTEMPT: &str = "Ingest-Attempt";

/// The number of attempts that are in the note of the commit.
const NOTED: &str = "Ingest-Attempts";
/// Names the place of these attempts, after their number.
const IN_NOTE: &str = " in refs/notes/ingestdeck";

/// The ref of the notes, which a clone does not fetch by itself.
pub const NOTES_REF: &str = "refs/notes/ingestdeck";

/// Longest message of a commit with all its trailers, in bytes.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

/// Between the number of an attempt and the run that it belongs to, if that is a prior run.
const OF_RUN: &str = " of ";

/// Longest key in a trailer, in bytes. A longer key is cut, and its hash is appended.
const MAX_KEY_BYTES: usize = 200;
/// Digits of that hash.
const HASH_DIGITS: usize = 16;

/// What `git merge --squash` writes before each line of a message that it quotes.
const SQUASH_INDENT: &str = "    ";

/// Most runs and attempts that are read from one message.
const MAX_PARSED: usize = 100_000;

/// An attempt whose patch is in the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptTrailer {
    /// Key of the unit, in the form of [`trailer_key`].
    pub unit: String,
    pub attempt: u32,
    /// The run of the attempt, if it is not that of the commit.
    pub prior_run: Option<RunId>,
}

/// The trailers of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTrailers {
    pub run: RunId,
    /// In the order in which the patches were integrated.
    pub attempts: Vec<AttemptTrailer>,
    /// Number of attempts that are in the note of the commit, if they are there.
    pub noted: Option<u32>,
}

/// What a run commits under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitMessage {
    pub text: String,
    /// The note of the commit, if the text does not contain all trailers.
    pub note: Option<String>,
}

impl CommitMessage {
    /// The first line of the text; empty for an empty text.
    pub fn subject(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

impl RunTrailers {
    /// Appends the trailers to a message, after an empty line.
    pub fn append_to(&self, message: &str) -> CommitMessage {
        let text = format!("{message}\n\n{}", self.to_lines());
        if text.len() <= MAX_MESSAGE_BYTES {
            return CommitMessage { text, note: None };
        }
        let text = format!(
            "{message}\n\n{RUN}: {}\n{NOTED}: {}{IN_NOTE}\n",
            self.run,
            self.attempts.len()
        );
        CommitMessage {
            text,
            note: Some(self.to_lines()),
        }
    }

    fn to_lines(&self) -> String {
        let mut text = format!("{RUN}: {}\n", self.run);
        for AttemptTrailer {
            unit,
            attempt,
            prior_run,
        } in &self.attempts
        {
            let of_run = prior_run
                .map(|run| format!("{OF_RUN}{run}"))
                .unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{UNIT}: {unit}\n{ATTEMPT}: {attempt}{of_run}");
        }
        text
    }

    /// Finds the trailers of all runs in a message. A squashed commit contains several messages, so they need not be at
    /// the end. Lines that are not trailers of a run are ignored.
    pub fn parse_all(message: &str) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        let mut unit = None;
        let mut parsed = 0;
        for line in message.lines() {
            let line = line.strip_prefix(SQUASH_INDENT).unwrap_or(line);
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match name {
                RUN => {
                    unit = None;
                    runs.extend(RunId::parse(value).map(|run| Self {
                        run,
                        attempts: Vec::new(),
                        noted: None,
                    }));
                }
                UNIT => unit = Some(value),
                ATTEMPT => {
                    let of_unit = unit.take().filter(|unit| unit.len() <= MAX_KEY_BYTES);
                    if let (Some(run), Some(unit), Some((attempt, prior_run))) =
                        (runs.last_mut(), of_unit, parse_attempt(value))
                    {
                        run.attempts.push(AttemptTrailer {
                            unit: unit.to_owned(),
                            attempt,
                            prior_run,
                        });
                    }
                }
                NOTED => {
                    let count = value
                        .strip_suffix(IN_NOTE)
                        .and_then(|count| count.parse().ok());
                    if let (Some(run), Some(count)) = (runs.last_mut(), count) {
                        run.noted = Some(count);
                    }
                }
                _ => continue,
            }
            parsed += 1;
            if parsed > MAX_PARSED {
                break;
            }
        }
        runs
    }
}

fn parse_attempt(value: &str) -> Option<(u32, Option<RunId>)> {
    match value.split_once(OF_RUN) {
        Some((number, run)) => Some((number.parse().ok()?, Some(RunId::parse(run)?))),
        None => Some((value.parse().ok()?, None)),
    }
}

/// The form of a key in a trailer: one line, bounded, and different for different keys. Characters that a reader cannot
/// see are written as `%` and two hexadecimal digits per byte, as in URLs.
pub fn trailer_key(unit: &UnitKey) -> String {
    let last = unit.chars().count().saturating_sub(1);
    let (mut key, mut cut) = (String::new(), None);
    for (place, c) in unit.chars().enumerate() {
        let is_space = c.is_whitespace() && (c != ' ' || place == 0 || place == last);
        let before = key.len();
        if c == '%' || is_space || text::is_hidden(c) {
            c.encode_utf8(&mut [0; 4])
                .bytes()
                .for_each(|byte| key.push_str(&format!("%{byte:02X}")));
        } else {
            key.push(c);
        }
        if cut.is_none() && key.len() > MAX_KEY_BYTES - HASH_DIGITS - 1 {
            cut = Some(before);
        }
        if key.len() > MAX_KEY_BYTES {
            break;
        }
    }
    if key.is_empty() {
        // No other key has this form.
        return "%".to_owned();
    }
    if let Some(cut) = cut.filter(|_| key.len() > MAX_KEY_BYTES) {
        key.truncate(cut);
        let digest = Sha256::digest(unit.as_bytes());
        key.push('~');
        digest
            .iter()
            .take(HASH_DIGITS / 2)
            .for_each(|byte| key.push_str(&format!("{byte:02x}")));
    }
    key
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use proptest::prelude::*;

    use super::*;

    const SUBJECT: &str = "ingest(docs): local-1 syncId=s diff=+1/~0/-0/=0";

    fn run(number: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(number))
    }

    fn of(attempts: &[(&str, u32, Option<u128>)]) -> RunTrailers {
        let attempt = |(unit, attempt, prior): &(&str, u32, Option<u128>)| AttemptTrailer {
            unit: trailer_key(&UnitKey::from(*unit)),
            attempt: *attempt,
            prior_run: prior.map(run),
        };
        RunTrailers {
            run: run(7),
            attempts: attempts.iter().map(attempt).collect(),
            noted: None,
        }
    }

    /// The trailers that git finds in a message.
    fn parse_with_git(message: &str) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "core.commentChar=#", "interpret-trailers", "--parse"]);
        let mut git = git
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        git.stdin
            .take()
            .unwrap()
            .write_all(message.as_bytes())
            .unwrap();
        String::from_utf8(git.wait_with_output().unwrap().stdout).unwrap()
    }

    #[test]
    fn message_ends_with_its_trailers() {
        let trailers = of(&[
            ("dbt-all", 1, None),
            ("docs/a b", 2, Some(9)),
            ("reconcile", 1, None),
        ]);
        insta::assert_snapshot!(trailers.append_to(SUBJECT).text, @"
        ingest(docs): local-1 syncId=s diff=+1/~0/-0/=0

        Ingest-Run: 00000000-0000-0000-0000-000000000007
        Ingest-Unit: dbt-all
        Ingest-Attempt: 1
        Ingest-Unit: docs/a b
        Ingest-Attempt: 2 of 00000000-0000-0000-0000-000000000009
        Ingest-Unit: reconcile
        Ingest-Attempt: 1
        ");
        assert_eq!(
            RunTrailers::parse_all(&trailers.append_to(SUBJECT).text),
            [trailers]
        );
    }

    #[test]
    fn many_attempts_are_in_the_note() {
        let units: Vec<String> = (0..2_000)
            .map(|unit| format!("dbt-models-staging-{unit}"))
            .collect();
        let trailers = of(&units
            .iter()
            .map(|unit| (unit.as_str(), 1, None))
            .collect::<Vec<_>>());
        let CommitMessage { text, note } = trailers.append_to(SUBJECT);
        insta::assert_snapshot!(text, @"
        ingest(docs): local-1 syncId=s diff=+1/~0/-0/=0

        Ingest-Run: 00000000-0000-0000-0000-000000000007
        Ingest-Attempts: 2000 in refs/notes/ingestdeck
        ");
        assert_eq!(
            RunTrailers::parse_all(&text),
            [RunTrailers {
                noted: Some(2_000),
                ..of(&[])
            }]
        );
        assert_eq!(RunTrailers::parse_all(&note.unwrap()), [trailers]);
        assert!(parse_with_git(&text).contains("Ingest-Attempts: 2000"));
    }

    #[test]
    fn hostile_keys_stay_on_one_bounded_line() {
        let key = |key: &str| trailer_key(&UnitKey::from(key));
        assert_eq!(key("a\nIngest-Run: x"), "a%0AIngest-Run: x");
        assert_eq!(key(" a  b\u{202e}% "), "%20a  b%E2%80%AE%25%20");
        assert_eq!(key(""), "%");
        let long = |end: &str| key(&format!("{}{end}", "\u{7}".repeat(5_000)));
        assert!(
            long("a").len() <= MAX_KEY_BYTES && long("a").starts_with("%07%07"),
            "{}",
            long("a")
        );
        assert_ne!(long("a"), long("b"), "a cut key is still unique");
    }

    #[test]
    fn foreign_messages_have_no_trailers() {
        for message in [
            "",
            "Ingest-Unit: a\nIngest-Attempt: 1",
            "Ingest-Run: latest",
            " Ingest-Run: 00000000-0000-0000-0000-000000000007",
            "Ingest-Run\nIngest-Run:",
        ] {
            assert_eq!(RunTrailers::parse_all(message), [], "{message}");
        }
        let odd = format!(
            "Ingest-Run: {}\nIngest-Attempt: 1\nIngest-Unit: a\nIngest-Attempt: -1\n",
            run(7)
        );
        assert_eq!(RunTrailers::parse_all(&odd), [of(&[])]);
    }

    #[test]
    fn squashed_commit_names_all_its_runs() {
        let other = RunTrailers {
            run: run(8),
            ..of(&[("b", 3, None)])
        };
        let first = of(&[("a", 1, None)]);
        let message = format!(
            "Squash\n\n* {}\n* {}\nSigned-off-by: me\n",
            first.append_to("one").text,
            other.append_to("two").text
        );
        assert_eq!(RunTrailers::parse_all(&message), [first, other]);
        let quoted: String = message
            .lines()
            .map(|line| format!("    {line}\n"))
            .collect();
        assert_eq!(
            RunTrailers::parse_all(&quoted),
            RunTrailers::parse_all(&message),
            "as git merge --squash does"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn git_parses_the_trailers_of_any_key(
            units in prop::collection::vec(("[ab:#\\n\\r\t %=-]{0,9}|.{0,300}", any::<u32>(), any::<Option<u128>>()), 0..6)
        ) {
            let units: Vec<_> = units.iter().map(|(unit, attempt, prior)| (unit.as_str(), *attempt, *prior)).collect();
            let trailers = of(&units);
            let message = trailers.append_to(SUBJECT).text;
            prop_assert_eq!(message.lines().next(), Some(SUBJECT));
            let parsed = parse_with_git(&message);
            prop_assert_eq!(format!("{SUBJECT}\n\n{parsed}"), message);
            prop_assert_eq!(RunTrailers::parse_all(&parsed), [trailers]);
        }

        #[test]
        fn any_message_is_parsed(message in "(Ingest-(Run|Unit|Attempt)?:? ?.{0,40}\n){0,9}") {
            for run in RunTrailers::parse_all(&message) {
                prop_assert!(run.attempts.iter().all(|attempt| attempt.unit.len() <= MAX_KEY_BYTES));
            }
        }

        #[test]
        fn keys_differ_where_units_differ(a in "[a% \n]{0,6}", b in "[a% \n]{0,6}") {
            let [key_a, key_b] = [&a, &b].map(|key| trailer_key(&UnitKey::from(key.as_str())));
            prop_assert_eq!(a == b, key_a == key_b);
        }
    }
}
