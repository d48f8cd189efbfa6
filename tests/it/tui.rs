//! The screen through its real loop: scripts of keys on a test terminal, with a clock that only the script advances.

mod amend;
mod broken_run;
mod compare;
mod deck;
mod declined;
mod every_view;
mod failure_causes;
mod feedback_messages;
mod grid;
mod hold;
mod hostile;
mod huge_lines;
mod inspect;
mod keys;
mod notifications;
mod patches;
mod pty;
pub(crate) mod pty_session;
mod quitting;
mod screens;
mod scripted_host;
mod silence;
mod tape;
mod terminal_handling;
mod themes;
mod time_travel;
mod watch_mode;
