//! The screen.
use super::{
    args::{Global, ReplayArgs},
    exit::{Exit, Failure},
};
use crate::run::Timeline;
pub fn recorded(_global: &Global, _args: &ReplayArgs, _timeline: Timeline) -> Result<Exit, Failure> {
    Err(Failure::usage("later"))
}
