//! The pages of the screen, one folder each: the file of its name has its `Page` and the other meanings of general keys on
//! it, the folder its state, actions (`actions.rs`) and drawing. To add one, see "A page of the screen" in `assets/guide/extending.md`.

use crate::page::ScreenModel;
use ingestdeck_core::run::state::RunView;

pub(crate) mod artifacts;
pub(crate) mod bookmarks;
pub(crate) mod breakpoints;
pub(crate) mod compare;
pub(crate) mod entry;
pub(crate) mod failure_groups;
pub(crate) mod find;
pub(crate) mod grid;
pub(crate) mod help;
pub mod home;
pub(crate) mod inspect;
pub(crate) mod lanes;
pub(crate) mod log;
pub(crate) mod reading;
pub(crate) mod recent;
pub(crate) mod record_search;
pub(crate) mod review;
pub(crate) mod tasks;
pub(crate) mod transcript;
pub(crate) mod units;

/// Opens the page that a change of the run calls for, and brings everything into range.
pub(crate) fn refresh(model: &mut ScreenModel, run_view: &RunView) {
    review::show_new_review(model, run_view);
    reading::show_single_session(model, run_view);
    model.refresh(run_view);
}
