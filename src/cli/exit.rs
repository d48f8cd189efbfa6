//! Exit codes and the errors that lead to them: the contract with scripts. Errors and warnings are printed here only.

use std::fmt;

use super::output;
use ingestdeck_bench::BenchError;
pub use ingestdeck_core::exit::Exit;
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem, to_lines},
    run::EntrySourceError,
};
use ingestdeck_engine::{
    launch::LaunchError, prepare::ProjectPreparationError, recorded_tapes::OpenTapeError,
    resume::ResumeError,
};
use ingestdeck_ingest::{lock::ProjectLockError, plan::PlanError, project::ProjectError};
use ingestdeck_records::{
    replay::OpenError,
    store::{db::DbError, index_refresh::RefreshError, retention::PruneError, runs::RunStoreError},
};

pub(crate) const SIGHUP: u8 = 1;
pub(crate) const SIGINT: u8 = 2;
pub(crate) const SIGPIPE: u8 = 13;

/// An error for the user, and the exit code that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CliError {
    pub exit: Exit,
    message: String,
    /// Each explains the previous one; the first explains the message.
    causes: Vec<String>,
    /// What is wrong, if it is more than one problem. Each has its own remedy.
    list: Box<[Problem]>,
    /// Where the mistake is, such as a line of the settings.
    location: Option<String>,
    help: Option<String>,
}

impl CliError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            causes: Vec::new(),
            list: Box::default(),
            location: None,
            help: None,
        }
    }

    /// Invalid usage or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The unit, run or file does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// The program itself failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// The program itself failed because of `error`.
    pub(crate) fn internal(error: impl Diagnostic) -> Self {
        Self::from_error(Exit::Internal, &error)
    }

    /// A task of the program panicked.
    pub(crate) fn task(error: tokio::task::JoinError) -> Self {
        Self::new(Exit::Internal, error.to_string())
    }

    /// An error of another layer, with its help.
    pub(crate) fn from_error(exit: Exit, error: &impl Diagnostic) -> Self {
        Self {
            help: error.help(),
            ..Self::new(exit, error.to_string())
        }
    }

    /// Puts `message` in front; the previous message becomes its cause.
    pub(crate) fn context(mut self, message: impl Into<String>) -> Self {
        self.causes
            .insert(0, std::mem::replace(&mut self.message, message.into()));
        self
    }

    /// Puts the beginning of a sentence in front of the message.
    pub(crate) fn prefixed(self, beginning: &str) -> Self {
        Self {
            message: format!("{beginning}{}", self.message),
            ..self
        }
    }

    /// Adds the cause of the last cause, or of the message.
    pub(crate) fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds the problems that the message sums up.
    pub(crate) fn with_list(self, list: impl IntoIterator<Item = Problem>) -> Self {
        Self {
            list: list.into_iter().collect(),
            ..self
        }
    }

    pub(crate) fn with_location(self, location: impl fmt::Display) -> Self {
        Self {
            location: Some(location.to_string()),
            ..self
        }
    }

    /// How to fix it, as an imperative clause without a full stop.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }
}

/// The form for places with a single line.
impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.head())?;
        if !self.list.is_empty() {
            write!(f, ": {}", to_lines(self.list.iter()).join("; "))?;
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}

impl Diagnostic for CliError {
    fn help(&self) -> Option<String> {
        self.help.clone()
    }
}

impl CliError {
    /// The error without its list and its help.
    fn head(&self) -> String {
        let causes = self.causes.iter().map(|cause| format!(": {cause}"));
        let location = self.location.iter().map(|place| format!(" ({place})"));
        let parts = [self.message.clone()].into_iter();
        parts.chain(causes).chain(location).collect()
    }

    /// The text on stderr: each problem of the list on a line, followed by its help.
    fn render(&self) -> String {
        let problem = |problem: &Problem| {
            let help = problem.help().map(|help| format!("\n  help: {help}"));
            format!("\n  {problem}{}", help.unwrap_or_default())
        };
        let list: String = self.list.iter().map(problem).collect();
        let colon = if list.is_empty() { "" } else { ":" };
        let help = self.help.iter().map(|help| format!("\nhelp: {help}"));
        format!(
            "error: {}{colon}{list}{}",
            self.head(),
            help.collect::<String>()
        )
    }
}

/// An error of another layer, with the exit code that it leads to.
pub(crate) trait ExitError: Diagnostic {
    fn exit(&self) -> Exit {
        Exit::Internal
    }
}

impl<E: ExitError> From<E> for CliError {
    fn from(error: E) -> Self {
        Self::from_error(error.exit(), &error)
    }
}

impl From<BenchError> for CliError {
    fn from(error: BenchError) -> Self {
        Self::from_error(error.exit, &error.problem)
    }
}

impl ExitError for DbError {}
impl ExitError for EntrySourceError {}
impl ExitError for PruneError {}
impl ExitError for RefreshError {}

impl ExitError for LaunchError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open(error) => error.exit(),
            Self::Threads(_) | Self::Staging(_) | Self::Store(_) => Exit::Internal,
        }
    }
}

impl ExitError for ProjectPreparationError {
    fn exit(&self) -> Exit {
        match self {
            Self::Lock(ProjectLockError::Held { .. }) | Self::Repository(_) => Exit::Usage,
            _ => Exit::Internal,
        }
    }
}

impl ExitError for OpenError {
    fn exit(&self) -> Exit {
        match self {
            Self::NotFound { .. } => Exit::NotFound,
            Self::Directory { .. } | Self::WithoutRecord { .. } | Self::Unsupported { .. } => {
                Exit::Usage
            }
            Self::Unreadable { .. } => Exit::Internal,
        }
    }
}

impl ExitError for OpenTapeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Content(error) => error.exit(),
            Self::Io { .. } | Self::Source(_) => Exit::Internal,
        }
    }
}

impl ExitError for PlanError {
    fn exit(&self) -> Exit {
        if self.is_not_found() {
            Exit::NotFound
        } else {
            Exit::Usage
        }
    }
}

impl ExitError for ProjectError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }
}

impl ExitError for ResumeError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Index(error) => error.exit(),
            Self::Plan(error) => error.exit(),
            Self::Tape(error) => error.exit(),
            Self::NoRun | Self::NoUnitsLeft(_) | Self::FailedUnitsGone { .. } => Exit::NotFound,
            Self::Running { .. }
            | Self::NotResumable(_)
            | Self::Continued { .. }
            | Self::RunAsConnection(_) => Exit::Usage,
        }
    }
}

impl ExitError for RunStoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::NotFound(_) | Self::Empty => Exit::NotFound,
            Self::Ambiguous { .. } => Exit::Usage,
            Self::Io { .. } | Self::Record(_) => Exit::Internal,
        }
    }
}

/// Prints an error to stderr. A reader that closed stdout, as `head` does, has what it wanted: the error is printed only
/// if its help names more.
pub(crate) fn print_error(error: &CliError) {
    if error.exit != Exit::Signal(SIGPIPE) || error.help.is_some() {
        output::print_stderr(&error.render());
    }
}

/// Prints a warning to stderr.
pub(crate) fn print_warning(warning: &impl Diagnostic) {
    let help = warning.help().map(|help| format!("\nhelp: {help}"));
    output::print_stderr(&format!("warning: {warning}{}", help.unwrap_or_default()));
}

/// Prints each warning to stderr.
pub(crate) fn print_warnings<T: Clone + Into<Problem>>(warnings: &[T]) {
    warnings
        .iter()
        .cloned()
        .map(T::into)
        .for_each(|warning| print_warning(&warning));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_shows_causes_location_and_help() {
        let error = CliError::usage("no such file")
            .context("cannot read `a`")
            .with_cause("it was moved");
        assert_eq!(
            error.render(),
            "error: cannot read `a`: no such file: it was moved"
        );
        let error = error
            .with_location("config.toml line 2")
            .with_help("name another file");
        assert_eq!(
            error.render(),
            "error: cannot read `a`: no such file: it was moved (config.toml line 2)\nhelp: name another file"
        );
        assert_eq!(
            error.to_line(),
            "cannot read `a`: no such file: it was moved (config.toml line 2); name another file"
        );
    }

    #[test]
    fn listed_problems_have_a_line_each_with_their_help() {
        let problems = [
            Problem::new("a is broken").with_help("fix a"),
            Problem::new("b is broken"),
        ];
        let error = CliError::usage("nothing is planned").with_list(problems);
        assert_eq!(
            error.render(),
            "error: nothing is planned:\n  a is broken\n  help: fix a\n  b is broken"
        );
        assert_eq!(
            error.to_line(),
            "nothing is planned: a is broken; fix a; b is broken"
        );
    }
}
