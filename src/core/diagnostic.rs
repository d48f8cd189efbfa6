//! Errors for the user: the message states what failed and why, and the help states how to fix it.
//!
//! Error types of every layer implement [`Diagnostic`], so that a remedy is never part of a message. The commands print
//! message and help separately (`cli::exit`); places with a single line join them with [`one_line`]. This module must not
//! know any error of the program, and must not print.

use std::{error::Error, fmt, io};

/// An error whose text has the form `what failed: why`, with an optional remedy.
pub trait Diagnostic: Error {
    /// How to fix it, as an imperative clause without a full stop; `None` if no remedy is known.
    fn help(&self) -> Option<String> {
        None
    }

    /// The message with its help, for places with a single line: the screen, notes on the tape, fields of JSON.
    fn to_line(&self) -> String {
        one_line(&self.to_string(), self.help().as_deref())
    }
}

impl Diagnostic for io::Error {}

/// A problem that no caller distinguishes from others: its message, and its help.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    message: String,
    help: Option<String>,
}

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    /// The problem that `error` reports.
    pub fn from_error(error: &impl Diagnostic) -> Self {
        Self {
            message: error.to_string(),
            help: error.help(),
        }
    }

    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Puts the beginning of a sentence in front of the message.
    pub fn prefixed(self, beginning: impl fmt::Display) -> Self {
        Self {
            message: format!("{beginning}{}", self.message),
            ..self
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Problem {}

/// A problem without a known remedy.
impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl Diagnostic for Problem {
    fn help(&self) -> Option<String> {
        self.help.clone()
    }
}

/// Each problem as a line.
pub fn to_lines<'a>(problems: impl IntoIterator<Item = &'a (impl Diagnostic + 'a)>) -> Vec<String> {
    problems.into_iter().map(Diagnostic::to_line).collect()
}

/// Joins a message with its help.
pub(crate) fn one_line(message: &str, help: Option<&str>) -> String {
    match help {
        Some(help) => format!("{message}; {help}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read `a`: no such file")]
    struct Missing;

    impl Diagnostic for Missing {
        fn help(&self) -> Option<String> {
            Some("create it".into())
        }
    }

    #[test]
    fn one_line_appends_the_help() {
        assert_eq!(
            Missing.to_line(),
            "cannot read `a`: no such file; create it"
        );
        assert_eq!(io::Error::other("closed").to_line(), "closed");
        let problem = Problem::new("is a link")
            .with_help("delete it")
            .prefixed("`a` ");
        assert_eq!(
            (problem.to_string().as_str(), problem.to_line().as_str()),
            ("`a` is a link", "`a` is a link; delete it")
        );
    }
}
