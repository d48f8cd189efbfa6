//! The screen through its real loop: scripts of keys on a test terminal, with a clock that stands unless it is told.

mod amend;
mod answers;
mod broken;
mod causes;
mod compare;
mod deck;
mod declined;
mod everywhere;
mod grid;
mod hold;
mod hostile;
mod huge;
mod inspect;
mod keys;
mod leaving;
mod manners;
mod outside;
mod patches;
mod pty;
mod screens;
mod script;
pub(crate) mod session;
mod silence;
mod tape;
mod themes;
mod time;
mod watched;
