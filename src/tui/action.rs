//! Everything a person can do on the screen, by name. Help, hints and the docs are derived from this table.
//!
//! Keys are in [`super::keymap`]; what an action does is in [`super::update`].

/// Where an action can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// On every view.
    View,
    /// On a unit that runs just now and can be held.
    Live,
    /// On a unit that a person holds.
    Held,
    /// While a question is open.
    Question,
    /// While text is typed.
    Typing,
    /// While the arguments of a call, or the terms of an attempt, are edited.
    Editing,
    /// While the terms of an attempt are edited.
    Form,
}

/// Heading in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HelpGroup {
    /// Moving about.
    Move,
    /// Acting on units.
    Units,
    /// Finding things.
    Find,
    /// Walking through time.
    Time,
    /// The screen itself.
    Screen,
    /// Questions and text.
    Dialogs,
}

impl HelpGroup {
    /// Every group, in the order of the help.
    pub const ALL: [Self; 6] = [Self::Move, Self::Units, Self::Find, Self::Time, Self::Screen, Self::Dialogs];

    /// The heading.
    pub fn title(self) -> &'static str {
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
        /// A named action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum UserAction {
            $(#[doc = $about] $variant,)+
        }

        impl UserAction {
            /// Every action, in the order of the help.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name in the keymap and in the config.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Its heading in the help.
            pub fn group(self) -> HelpGroup {
                match self { $(Self::$variant => HelpGroup::$group,)+ }
            }

            /// Where it can be used.
            pub fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)+ }
            }

            /// Its word in the line of hints.
            pub fn hint(self) -> &'static str {
                match self { $(Self::$variant => $hint,)+ }
            }

            /// What it does, for the help.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }
    };
}

actions! {
    Down "down" Move View "down" "next row";
    Up "up" Move View "up" "previous row";
    Top "top" Move View "top" "first row";
    Bottom "bottom" Move View "end" "last row; follow what is new";
    HalfDown "half-down" Move View "½ down" "half a page down";
    HalfUp "half-up" Move View "½ up" "half a page up";
    PageDown "page-down" Move View "page down" "a page down";
    PageUp "page-up" Move View "page up" "a page up";
    Right "right" Move View "next" "next attempt, or next entry";
    Left "left" Move View "previous" "previous attempt, or previous entry";
    NextPane "next-pane" Move View "pane" "next pane";
    PreviousPane "previous-pane" Move View "pane" "previous pane";
    Zoom "zoom" Move View "zoom" "the focused pane alone, and back";
    Open "open" Move View "open" "open or unfold what is selected";
    Inspect "inspect" Move View "inspect" "everything about the unit, and back";
    Compare "compare" Move View "compare" "two attempts side by side, and back";
    Tab "tab" Move View "panel" "panel or pane by number";
    Counterpart "counterpart" Move View "match" "from a call to its result and back";
    Back "back" Move View "back" "one level back; never leaves";
    Retry "retry" Units View "retry" "new attempt at the unit";
    RetryWith "retry-with" Units View "retry with" "retry with feedback, another model or budget";
    RetryFailed "retry-failed" Units View "retry all" "all units that are not done again, or saving; asks";
    Causes "causes" Units View "causes" "failures by cause; what is left";
    Stop "stop" Units View "stop" "stop the unit; asks";
    More "more-at-once" Units View "more" "one more unit at once";
    Fewer "fewer-at-once" Units View "fewer" "one unit fewer at once; none is stopped";
    LiftLimit "go-on" Units View "go on" "do not wait for the limit";
    Hold "hold" Units Live "hold" "hold a running unit at its next call";
    LetGo "let-go" Units Held "let go" "let a held unit go on by itself";
    RunOn "run-on" Units Held "run on" "let it run to a failure or a breakpoint";
    AllowOnce "allow-once" Units Held "allow once" "let the held call pass; the next waits";
    EditCall "edit" Units Held "edit" "edit the arguments of the held call";
    DenyCall "deny" Units Held "deny" "refuse the held call; asks for a reason";
    NextFailure "next-failure" Units View "failure" "next problem, failure or difference in the pane";
    PreviousFailure "previous-failure" Units View "failure" "the previous one";
    Search "search" Find View "search" "search in the pane";
    NextMatch "next-match" Find View "next match" "next match";
    PreviousMatch "previous-match" Find View "previous match" "previous match";
    Filter "filter" Find View "filter" "all units; problems, running, queued, done";
    FilterText "filter-text" Find View "filter text" "only units that contain a text";
    Sort "sort" Find View "sort" "order units by state, cost, time, …";
    Reverse "reverse" Find View "reverse" "the opposite order";
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
    Faster "faster" Time View "faster" "double the speed; past 64, all at once";
    Slower "slower" Time View "slower" "half the speed";
    ToStart "to-start" Time View "start" "to the first entry";
    ToEnd "to-end" Time View "live" "to the last entry; live again";
    Breakpoints "breakpoints" Time View "breakpoints" "breakpoints; Enter switches, x deletes";
    CommandLine "command" Screen View "command" "type a time, a condition or any action";
    Help "help" Screen View "help" "this page";
    Grid "grid" Screen View "grid" "live panes of units; and back";
    Log "log" Screen View "log" "the run's remarks";
    Copy "copy" Screen View "copy" "copy what is selected";
    CopyName "copy-name" Screen View "copy name" "copy the unit's key or resume line";
    Editor "editor" Screen View "editor" "what is selected, in $EDITOR; a copy";
    Pager "pager" Screen View "pager" "what is selected, in $PAGER";
    Mouse "mouse" Screen View "mouse" "mouse on; off to select text";
    Redraw "redraw" Screen View "redraw" "draw everything again";
    Suspend "suspend" Screen View "suspend" "suspend; fg brings it back";
    Quit "quit" Screen View "quit" "leave; asks while units run";
    Interrupt "interrupt" Screen View "interrupt" "drain; again: stop all; again: kill all";
    Confirm "confirm" Dialogs Question "yes" "yes";
    Cancel "cancel" Dialogs Question "no" "no";
    Accept "accept" Dialogs Typing "accept" "take the text";
    Complete "complete" Dialogs Typing "complete" "complete the word of a command";
    Older "older" Dialogs Typing "older" "the command before";
    Newer "newer" Dialogs Typing "newer" "the command after";
    Dismiss "dismiss" Dialogs Typing "dismiss" "drop the text";
    Erase "erase" Dialogs Typing "erase" "erase a character";
    EraseAll "erase-all" Dialogs Typing "clear" "erase everything";
    NextField "next-field" Dialogs Form "field" "next field of the form";
    PreviousField "previous-field" Dialogs Form "field" "previous field of the form";
    Send "send" Dialogs Editing "send" "send the arguments or the form";
    Discard "discard" Dialogs Editing "cancel" "drop what was edited";
}
