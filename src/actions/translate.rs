//! The translator of one attempt: lines in, events out, in the order of the stream.

use super::event::Event;
use crate::decode::Line;

/// State of one attempt's translation. Cheap to clone: what it remembers is shared.
#[derive(Clone, Debug, Default)]
pub struct Translator {
    _private: (),
}

/// How the stream ended, as far as its owner knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that killed the process.
    pub signal: Option<i32>,
    /// Last line of stderr.
    pub stderr: Option<String>,
}

impl Translator {
    /// A translator for a new session, or one that must continue `resume`.
    pub fn new(_resume: Option<&str>, _title: Option<&str>) -> Self {
        Self::default()
    }

    /// Translates one stdout line. `bytes` is the undecoded line, for the warning about a malformed one.
    pub fn push<'a>(&mut self, _line: &Line<'a>, _bytes: &'a [u8], _emit: &mut dyn FnMut(Event<'a>)) {}

    /// The stream is over. Emits what is missing: open actions closed, and the one `completed`.
    pub fn end<'a>(&mut self, _ended: &Ended, _emit: &mut dyn FnMut(Event<'a>)) {}

    /// True after `completed`.
    pub fn is_complete(&self) -> bool {
        false
    }
}
