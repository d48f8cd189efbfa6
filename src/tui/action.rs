//! All user actions of the screen, by name. Help, hints and the documentation are derived from this table.
//!
//! Keys are in [`super::keymap`]; the effects of actions are in [`super::update`].

/// Where an action is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ActionScope {
    View,
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
    /// While the retry form is edited.
    Form,
}

/// Heading in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HelpGroup {
    Move,
    Units,
    Find,
    Time,
    Screen,
    /// Questions and text input.
    Dialogs,
}

impl HelpGroup {
    /// All groups, in the order of the help.
    pub(crate) const ALL: [Self; 6] = [Self::Move, Self::Units, Self::Find, Self::Time, Self::Screen, Self::Dialogs];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Move => "Move",
            Self::Units => "Units",
            Self::Find => "Find",
            Self::Time => "Time",
            Self::Screen => "Screen",
            Self::Dialogs => "Questions and text",
        }
    }
}

macro_rules! actions {
    ($($variant:ident $name:literal $group:ident $scope:ident $hint:literal $about:literal;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum UserAction {
            $(#[doc = $about] $variant,)+
        }

        impl UserAction {
            /// All actions, in the order of the help.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Name in the keymap and in the config.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Heading in the help.
            pub(crate) fn group(self) -> HelpGroup {
                match self { $(Self::$variant => HelpGroup::$group,)+ }
            }

            pub(crate) fn scope(self) -> ActionScope {
                match self { $(Self::$variant => ActionScope::$scope,)+ }
            }

            /// Short label for the line of hints.
            pub(crate) fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)+ }
            }

            /// Description for the help.
            pub(crate) fn description(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }
    };
}

actions! {
    Down "down" Move View "down" "next row";
    Up "up" Move View "up" "previous row";
    Top "top" Move View "top" "first row";
    Bottom "bottom" Move View "end" "last row; follow new rows";
    HalfDown "half-down" Move View "½ down" "half a page down";
    HalfUp "half-up" Move View "½ up" "half a page up";
    PageDown "page-down" Move View "page down" "a page down";
    PageUp "page-up" Move View "page up" "a page up";
    Right "right" Move View "next" "next attempt, or next entry";
    Left "left" Move View "previous" "previous attempt, or previous entry";
    NextPane "next-pane" Move View "pane" "next pane";
    PreviousPane "previous-pane" Move View "pane" "previous pane";
    Zoom "zoom" Move View "zoom" "the focused pane alone, and back";
    Open "open" Move View "open" "open or unfold the selection";
    Inspect "inspect" Move View "inspect" "inspect the unit, and back";
    Compare "compare" Move View "compare" "two attempts side by side, and back";
    Tab "tab" Move View "panel" "panel or pane by number";
    Counterpart "counterpart" Move View "match" "from a call to its result and back";
    Back "back" Move View "back" "one level back; never quits";
    Retry "retry" Units View "retry" "retry the unit";
    RetryWith "retry-with" Units View "retry with" "retry with feedback, another model or budget";
    RetryFailed "retry-failed" Units View "retry all" "retry unfinished units, or saving; asks";
    Causes "causes" Units View "causes" "failures by cause; remaining work";
    Stop "stop" Units View "stop" "stop the unit; asks";
    More "more-at-once" Units View "more" "raise the concurrency by one";
    Fewer "fewer-at-once" Units View "fewer" "lower the concurrency by one; stops none";
    LiftLimit "go-on" Units View "resume" "do not wait for the limit";
    Hold "hold" Units Live "hold" "hold a running unit at its next call";
    LetGo "let-go" Units Held "release" "release a held unit";
    RunOn "run-on" Units Held "run on" "run it to a failure or a breakpoint";
    AllowOnce "allow-once" Units Held "allow once" "allow the held call; the next waits";
    EditCall "edit" Units Held "edit" "edit the arguments of the held call";
    DenyCall "deny" Units Held "deny" "deny the held call; asks for a reason";
    NextFailure "next-failure" Units View "failure" "next problem, failure or difference in the pane";
    PreviousFailure "previous-failure" Units View "failure" "the previous one";
    Search "search" Find View "search" "search in the pane";
    NextMatch "next-match" Find View "next match" "next match";
    PreviousMatch "previous-match" Find View "previous match" "previous match";
    Filter "filter" Find View "filter" "all units; problems, running, queued, done";
    FilterText "filter-text" Find View "filter text" "only units that contain a text";
    Sort "sort" Find View "sort" "order units by state, cost, time, …";
    Reverse "reverse" Find View "reverse" "reverse the order";
    Group "group" Find View "group" "units under their connections";
    Play "play" Time View "play" "play or pause";
    StepForward "step-forward" Time View "step" "one entry forward";
    StepBack "step-back" Time View "back" "one entry back";
    ActionForward "action-forward" Time View "action" "one action of the unit forward";
    ActionBack "action-back" Time View "action back" "one action of the unit back";
    TurnForward "turn-forward" Time View "turn" "one turn of the unit forward";
    TurnBack "turn-back" Time View "turn back" "one turn of the unit back";
    RunToFailure "run-to-failure" Time View "to failure" "run to the next failure of any unit";
    BackToFailure "back-to-failure" Time View "back to failure" "back to the last failure of any unit";
    Faster "faster" Time View "faster" "double the speed; past 64, unlimited";
    Slower "slower" Time View "slower" "half the speed";
    ToStart "to-start" Time View "start" "to the first entry";
    ToEnd "to-end" Time View "live" "to the last entry; live again";
    Breakpoints "breakpoints" Time View "breakpoints" "breakpoints; Enter toggles, x deletes";
    CommandLine "command" Screen View "command" "type a time, a condition or any action";
    Help "help" Screen View "help" "this page";
    Grid "grid" Screen View "grid" "live panes of units; and back";
    Log "log" Screen View "log" "messages of the run";
    Copy "copy" Screen View "copy" "copy the selection";
    CopyName "copy-name" Screen View "copy name" "copy the unit's key or resume line";
    Editor "editor" Screen View "editor" "open a copy of the selection in $EDITOR";
    Pager "pager" Screen View "pager" "open the selection in $PAGER";
    Mouse "mouse" Screen View "mouse" "mouse on; off to select text";
    Redraw "redraw" Screen View "redraw" "redraw the screen";
    Suspend "suspend" Screen View "suspend" "suspend; fg resumes";
    Quit "quit" Screen View "quit" "quit; asks while units run";
    Interrupt "interrupt" Screen View "interrupt" "drain; again: stop all; again: kill all";
    Confirm "confirm" Dialogs Question "yes" "yes";
    Cancel "cancel" Dialogs Question "no" "no";
    Accept "accept" Dialogs Typing "accept" "accept the text";
    Complete "complete" Dialogs Typing "complete" "complete the word of a command";
    Older "older" Dialogs Typing "older" "previous command";
    Newer "newer" Dialogs Typing "newer" "next command";
    Dismiss "dismiss" Dialogs Typing "dismiss" "discard the text";
    Erase "erase" Dialogs Typing "erase" "erase a character";
    EraseAll "erase-all" Dialogs Typing "clear" "erase everything";
    NextField "next-field" Dialogs Form "field" "next field of the form";
    PreviousField "previous-field" Dialogs Form "field" "previous field of the form";
    Send "send" Dialogs Editing "send" "send the arguments or the form";
    Discard "discard" Dialogs Editing "cancel" "discard the edits";
}
