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
    /// The files that it is about. The text names the first of them after the message.
    files: Vec<String>,
    help: Option<String>,
}

/// Most files that the text of a problem names.
const MAX_NAMED_FILES: usize = 5;

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            files: Vec::new(),
            help: None,
        }
    }

    /// The problem that `error` reports.
    pub fn from_error(error: &impl Diagnostic) -> Self {
        Self {
            message: error.to_string(),
            files: Vec::new(),
            help: error.help(),
        }
    }

    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Names `files`, which are the end of the sentence.
    pub fn with_files(self, files: Vec<String>) -> Self {
        Self { files, ..self }
    }

    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The problem with those of its files that `is_left`; `None` if it was about files and none is left.
    pub fn retain_files(mut self, is_left: impl FnMut(&String) -> bool) -> Option<Self> {
        let was_about_files = !self.files.is_empty();
        self.files.retain(is_left);
        (!was_about_files || !self.files.is_empty()).then_some(self)
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
        f.write_str(&self.message)?;
        let named = self.files.len().min(MAX_NAMED_FILES);
        let (named, more) = self.files.split_at(named);
        match (named, more.len()) {
            ([], _) => Ok(()),
            (_, 0) => write!(f, ": {}", named.join(", ")),
            (_, more) => write!(f, ": {} and {more} more", named.join(", ")),
        }
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
        let files = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
        let unread = Problem::new("not read")
            .with_files(files)
            .with_help("move them");
        assert_eq!(
            unread.to_line(),
            "not read: a, b, c, d, e and 1 more; move them"
        );
        let left = unread.clone().retain_files(|file| file == "e").unwrap();
        assert_eq!(left.to_string(), "not read: e");
        assert_eq!(unread.retain_files(|_| false), None);
        assert_eq!(problem.clone().retain_files(|_| false), Some(problem));
    }
}
