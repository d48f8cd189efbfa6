//! The home screen: the runs of the project, recent Claude Code sessions and other records. The caller finds them; this reads no file.

use std::path::PathBuf;

use crate::{home_choice::HomeChoice, model::ScrollList};
use ingestdeck_core::run::state::UnitStatus;

/// What the home screen lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeContent {
    /// Name and path of the project, or of the directory.
    pub name: String,
    pub path: String,
    /// True if the directory is a project, so that a run can be started.
    pub is_project: bool,
    /// What a file is called if the list is that of a directory; `None` on the home screen.
    pub record_word: Option<&'static str>,
    pub lines: Vec<HomeLine>,
    /// Number of older runs that have no line.
    pub unlisted_runs: usize,
    /// The line to select first.
    pub selected: usize,
}

/// A line of the home screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeLine {
    Heading(String),
    Run(HomeRun),
    Session(HomeSession),
    /// What Enter starts, as a sentence.
    Command(HomeChoice, String),
    /// A file that is not listed as a record. Opening it shows the error.
    LeftOut {
        path: PathBuf,
        /// Its name, and why it is left out.
        reason: String,
    },
    /// A sentence where there is nothing to list, or about what is not listed.
    Text(String),
}

/// A run of the project, as one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeRun {
    pub id: String,
    /// The short id that screens show.
    pub short: String,
    pub state: HomeRunState,
    /// The outcome, or the state of a run without one.
    pub outcome: String,
    /// Time since it started.
    pub age: String,
    /// How many units succeeded, failed, spent their budget or were reused.
    pub units: String,
    pub cost: String,
    /// True if a scripted agent replaced the model.
    pub is_scripted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeRunState {
    Active,
    Succeeded,
    /// It ended, and some of its units failed.
    Incomplete,
    /// It ended, and some of its units spent their budget.
    OutOfBudget,
    /// It ended before all of its units had ended, and none failed.
    Stopped,
    /// Its process ended before the run did.
    Interrupted,
    /// It ended, and is not in the index.
    Unknown,
}

/// A session file of Claude Code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeSession {
    pub path: PathBuf,
    /// Its title or first prompt, on one row.
    pub title: String,
    /// Time since it was last written, or that it runs.
    pub age: String,
    pub size: String,
    pub cost: String,
    /// Its state while its process runs, or that it failed.
    pub state: Option<HomeSessionState>,
    /// What it waits for; empty if it does not, or does not report it.
    pub needs: String,
    /// Its id, if it is a background session of Claude Code.
    pub background: Option<String>,
}

impl HomeSession {
    /// True while its process runs.
    pub(super) fn is_active(&self) -> bool {
        self.state
            .is_some_and(|state| state != HomeSessionState::Failed)
    }
}

/// What a running session does, or that a record has failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeSessionState {
    Running,
    /// It has ended its turn.
    Idle,
    /// It waits for an answer.
    NeedsYou,
    Failed,
}

/// The state of the home screen.
#[derive(Clone, Debug, Default)]
pub(crate) struct HomePage {
    pub content: HomeContent,
    pub list: ScrollList,
    /// Id of the run that the next one is compared with.
    pub compared: Option<String>,
}

impl HomePage {
    pub(crate) fn new(content: HomeContent) -> Self {
        let mut view = Self {
            content,
            ..Self::default()
        };
        view.select(view.content.selected, true);
        view
    }

    /// Lists other content. The selection stays on its line, wherever that is now.
    pub(crate) fn replace(&mut self, content: HomeContent) {
        let selected = self.content.lines.get(self.list.selected);
        let same = |line: &HomeLine| selected.is_some_and(|selected| selected.is_same(line));
        let line = content.lines.iter().position(same);
        self.content = content;
        self.select(line.unwrap_or(self.list.selected), true);
    }

    /// The selected line; `None` if no line can be opened.
    pub(crate) fn line(&self) -> Option<&HomeLine> {
        self.content
            .lines
            .get(self.list.selected)
            .filter(|line| line.can_open())
    }

    pub(crate) fn run(&self) -> Option<&HomeRun> {
        match self.line() {
            Some(HomeLine::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// The selected session of Claude Code.
    pub(crate) fn session(&self) -> Option<&HomeSession> {
        match self.line() {
            Some(HomeLine::Session(session)) => Some(session),
            _ => None,
        }
    }

    /// Selects a line, or the nearest one that can be opened, preferably in the direction of the move.
    pub(crate) fn select(&mut self, line: usize, forward: bool) {
        let lines = &self.content.lines;
        let line = line.min(lines.len().saturating_sub(1));
        let can_open = |line: &usize| lines.get(*line).is_some_and(HomeLine::can_open);
        let after = || (line..lines.len()).find(can_open);
        let before = || (0..=line).rev().find(can_open);
        let found = if forward {
            after().or_else(before)
        } else {
            before().or_else(after)
        };
        if let Some(line) = found {
            self.list.select(line, lines.len());
        }
    }

    /// Number of lines of a kind.
    pub(crate) fn count(&self, wanted: impl Fn(&HomeLine) -> bool) -> usize {
        self.content
            .lines
            .iter()
            .filter(|line| wanted(line))
            .count()
    }

    pub(crate) fn clamp(&mut self, height: usize) {
        // Before the size of the terminal is known, the selected line must not become the first one on screen.
        if height == 0 {
            return;
        }
        self.list.clamp(self.content.lines.len(), height);
        // The first heading scrolls into view with the first line below it.
        if self.list.offset == 1 {
            self.list.offset = if self.list.selected < height { 0 } else { 1 };
        }
    }
}

impl HomeLine {
    /// True if both lines list the same run, session or command.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Run(run), Self::Run(other)) => run.id == other.id,
            (Self::Session(session), Self::Session(other)) => session.path == other.path,
            _ => self == other,
        }
    }

    fn can_open(&self) -> bool {
        !matches!(self, Self::Heading(_) | Self::Text(_))
    }
}

impl HomeRun {
    /// True if resuming it would run units.
    pub(crate) fn is_resumable(&self) -> bool {
        let has_nothing_left = matches!(
            self.state,
            HomeRunState::Active | HomeRunState::Succeeded | HomeRunState::Unknown
        );
        !self.is_scripted && !has_nothing_left
    }
}

impl HomeRunState {
    /// The status of a unit with the same glyph and color.
    pub(crate) fn status(self) -> UnitStatus {
        match self {
            Self::Active => UnitStatus::Running,
            Self::Succeeded => UnitStatus::Succeeded,
            Self::Incomplete => UnitStatus::Failed,
            Self::OutOfBudget => UnitStatus::BudgetExhausted,
            Self::Stopped => UnitStatus::Stopped,
            Self::Interrupted => UnitStatus::Interrupted,
            Self::Unknown => UnitStatus::NotStarted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn run(short: &str, state: HomeRunState) -> HomeLine {
        HomeLine::Run(HomeRun {
            id: short.to_owned(),
            short: short.to_owned(),
            state,
            outcome: "partial".to_owned(),
            age: "2h ago".to_owned(),
            units: "11 units".to_owned(),
            cost: "$0.20".to_owned(),
            is_scripted: false,
        })
    }

    #[test]
    fn only_lines_that_open_can_be_selected() {
        let heading = || HomeLine::Heading("runs".to_owned());
        let lines = vec![
            heading(),
            run("a", HomeRunState::Active),
            heading(),
            run("b", HomeRunState::Incomplete),
        ];
        let mut view = HomePage::new(HomeContent {
            lines,
            ..HomeContent::default()
        });
        assert_eq!(view.list.selected, 1);
        view.select(view.list.selected + 1, true);
        assert_eq!(view.run().map(|run| run.short.as_str()), Some("b"));
        view.select(view.list.selected - 1, false);
        assert_eq!(view.list.selected, 1);
        view.select(0, false);
        assert_eq!(view.list.selected, 1);
        view.select(usize::MAX, true);
        assert_eq!(view.list.selected, 3);
        assert!(HomePage::new(HomeContent::default()).line().is_none());
        assert!(
            HomePage::new(HomeContent {
                lines: vec![heading()],
                ..HomeContent::default()
            })
            .line()
            .is_none()
        );
    }

    #[test]
    fn selection_stays_on_its_line_as_the_list_changes() {
        let content = |lines: &[(&str, HomeRunState)]| HomeContent {
            lines: lines.iter().map(|(id, state)| run(id, *state)).collect(),
            ..HomeContent::default()
        };
        let (a, b) = (("a", HomeRunState::Active), ("b", HomeRunState::Stopped));
        let mut view = HomePage::new(content(&[a, b]));
        view.select(1, true);
        let moved = [b, ("c", HomeRunState::Active), a];
        view.replace(content(&moved));
        assert_eq!(view.run().map(|run| run.short.as_str()), Some("b"));
        view.select(2, true);
        view.replace(content(&[b, ("a", HomeRunState::Succeeded)]));
        assert_eq!(
            view.run().map(|run| (run.short.as_str(), run.state)),
            Some(("a", HomeRunState::Succeeded))
        );
        // The line is gone.
        view.replace(content(&[b]));
        assert_eq!(view.run().map(|run| run.short.as_str()), Some("b"));
    }

    #[test]
    fn only_incomplete_runs_of_a_model_can_be_resumed() {
        let resumable = |state, is_scripted| {
            let HomeLine::Run(run) = run("a", state) else {
                unreachable!()
            };
            HomeRun { is_scripted, ..run }.is_resumable()
        };
        assert!(!resumable(HomeRunState::Unknown, false));
        assert!(
            resumable(HomeRunState::Incomplete, false)
                && resumable(HomeRunState::Interrupted, false)
        );
        assert!(
            !resumable(HomeRunState::Active, false) && !resumable(HomeRunState::Succeeded, false)
        );
        assert!(!resumable(HomeRunState::Interrupted, true));
    }
}
