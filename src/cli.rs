//! The composition root: commands, sinks and exit codes. The only layer that knows all the others.

pub mod args;
pub mod drive;
pub mod exit;
pub mod summary;
pub fn main() -> exit::Exit {
    exit::Exit::Ok
}
