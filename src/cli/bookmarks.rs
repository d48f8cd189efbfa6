//! Finds the bookmarks of a record that is shown on the screen.

#![expect(
    clippy::disallowed_methods,
    reason = "the file that the command line names"
)]

use std::{fs, path::Path, sync::Arc};

use super::{args::GlobalArgs, runs};
use ingestdeck_core::{run::SourceInfo, tape::RunId, text::pluralize};
use ingestdeck_os::user_dirs::UserDirs;
use ingestdeck_records::store::{BookmarkFile, RunStore};
use ingestdeck_tui as tui;

/// Loads the bookmarks of a recorded run.
pub(crate) fn attach_to_run(options: &mut tui::Options, store: &RunStore, run: RunId) {
    attach(options, BookmarkFile::of_run(store, run));
}

/// Loads the bookmarks of the recorded run with this tape.
pub(crate) fn attach_to_tape(options: &mut tui::Options, run: RunId, tape: &Path) {
    /// A tape is `.ktx/ingestdeck/runs/<id>/tape.jsonl` in its project.
    const LEVELS_BELOW_PROJECT: usize = 5;
    if let Some(project) = tape.ancestors().nth(LEVELS_BELOW_PROJECT) {
        attach_to_run(options, &RunStore::new(project), run);
    }
}

/// Loads the bookmarks of what the user named: a run of the project, or a file. Input without a name has none.
pub(crate) fn attach_to_record(
    options: &mut tui::Options,
    global: &GlobalArgs,
    what: &str,
    info: &SourceInfo,
) {
    if let Ok(Some((store, found))) = runs::find_recorded(global, what, info) {
        return attach_to_run(options, &store, found.id);
    }
    let path = fs::canonicalize(what)
        .ok()
        .filter(|path| what != "-" && path.is_file());
    if let (Some(path), Some(state)) = (path, UserDirs::from_environment().state) {
        attach(options, BookmarkFile::of_path(&state, &path));
    }
}

fn attach(options: &mut tui::Options, file: BookmarkFile) {
    match file.load() {
        Ok((list, invalid)) => {
            options.bookmarks = tui::Bookmarks {
                list,
                store: Some(Arc::new(file)),
                has_reported_loss: false,
            };
            if invalid > 0 {
                let lines = pluralize(invalid, "line");
                options.startup_messages.push(format!(
                    "skipped {lines} of the bookmarks that cannot be read"
                ));
            }
        }
        // Without the store, nothing overwrites what could not be read.
        Err(error) => options
            .startup_messages
            .push(format!("cannot read the bookmarks: {error}")),
    }
}
