//! The user actions of the screen as plain names, so that the keymap and the model can refer to them.
//!
//! It must not know what an action does; [`super::actions`] has one value for each with its hint, help, availability and
//! effect.

/// Where an action is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionScope {
    View,
    /// On the home screen.
    Home,
    /// On the review page.
    Review,
    /// On a running unit that can be held.
    Live,
    /// On a unit that a person holds.
    Held,
    /// While a question is open.
    Question,
    /// While text is typed.
    Typing,
    /// While the arguments of a call or the retry form are edited.
    Editing,
    /// While the fields of either are edited.
    Form,
}

pub(crate) type Availability = Result<(), Unavailable>;

/// Why an action is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// Its key does nothing here.
    NoEffect,
    /// Its key shows this reason.
    Because(String),
}

impl Unavailable {
    pub(crate) fn because(reason: impl Into<String>) -> Self {
        Self::Because(reason.into())
    }

    pub(crate) fn no_unit_selected() -> Self {
        Self::because("no unit is selected")
    }
}

/// `Ok` if the condition holds; otherwise the action does nothing.
pub(crate) fn require(condition: bool) -> Availability {
    if condition {
        Ok(())
    } else {
        Err(Unavailable::NoEffect)
    }
}

/// Heading in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HelpGroup {
    Move,
    Units,
    Find,
    Time,
    Screen,
    Home,
    Review,
    /// Questions and text input.
    Dialogs,
}

impl HelpGroup {
    pub(crate) const COUNT: usize = 8;

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Move => "Move",
            Self::Units => "Units",
            Self::Find => "Find",
            Self::Time => "Time",
            Self::Screen => "Screen",
            Self::Home => "Home",
            Self::Review => "Review",
            Self::Dialogs => "Questions and text",
        }
    }
}

/// An action, in the order of the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UserAction {
    Down,
    Up,
    Top,
    Bottom,
    HalfDown,
    HalfUp,
    PageDown,
    PageUp,
    Right,
    Left,
    NextAttempt,
    PreviousAttempt,
    ScrollDown,
    ScrollUp,
    NextPane,
    PreviousPane,
    Zoom,
    Open,
    Inspect,
    Read,
    Compare,
    Tab,
    Counterpart,
    Back,
    Retry,
    RetryWith,
    RetryFailed,
    Causes,
    Stop,
    Mark,
    More,
    Fewer,
    LiftLimit,
    PauseRun,
    Hold,
    LetGo,
    RunOn,
    Say,
    AllowOnce,
    EditCall,
    DenyCall,
    NextFailure,
    PreviousFailure,
    Search,
    NextMatch,
    PreviousMatch,
    Filter,
    FilterText,
    Sort,
    Reverse,
    Group,
    Play,
    StepForward,
    StepBack,
    ActionForward,
    ActionBack,
    TurnForward,
    TurnBack,
    RunToFailure,
    BackToFailure,
    Faster,
    Slower,
    SkipIdle,
    ToStart,
    ToEnd,
    Breakpoints,
    Bookmark,
    Bookmarks,
    Lanes,
    LastMinutes,
    WallClock,
    CommandLine,
    Help,
    Grid,
    Log,
    Review,
    Artifacts,
    Copy,
    CopyName,
    OpenFile,
    Editor,
    Pager,
    Mouse,
    Redraw,
    Suspend,
    Detach,
    Quit,
    Interrupt,
    StartRun,
    ResumeRun,
    DiffRuns,
    OpenPath,
    FindText,
    AcceptChange,
    RejectChange,
    SendBack,
    EditChange,
    UndoDecision,
    ReopenChange,
    AcceptRest,
    FinishReview,
    WhyLine,
    Why,
    Confirm,
    LeaveRun,
    StopRun,
    Cancel,
    HarmlessAnswer,
    Accept,
    Complete,
    Older,
    Newer,
    Dismiss,
    Erase,
    EraseAll,
    NextField,
    PreviousField,
    Send,
    EditText,
    Discard,
}

impl UserAction {
    pub(crate) const COUNT: usize = Self::Discard as usize + 1;

    /// True if a general action has a meaning on the home screen and on the pages above it.
    pub(crate) fn works_at_home(self) -> bool {
        use UserAction::*;
        matches!(
            self,
            Down | Up
                | Top
                | Bottom
                | HalfDown
                | HalfUp
                | PageDown
                | PageUp
                | Open
                | Back
                | Help
                | Mouse
                | Redraw
                | Suspend
                | Quit
                | Interrupt
        )
    }
}
