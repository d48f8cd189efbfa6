//! Executes effects: the timeline and the cache answer immediately, everything else becomes a host request.

use tokio::sync::mpsc;

use super::{App, HostRequest};
use crate::{
    ExitReason,
    effect::ScreenEffect,
    export, load,
    model::{TextPurpose, WrittenText},
    pages::{find, inspect::InspectPage},
    text_search,
};
use ingestdeck_core::{
    control::{RefusalReason, RunCommand},
    diagnostic::Diagnostic as _,
    run::bookmark::BookmarkChange,
    tape::Seq,
    text,
};

/// Maximum bytes that terminals accept for the clipboard.
const MAX_CLIPBOARD_BYTES: usize = 74_000;

impl App {
    pub(super) fn perform(&mut self, effect: ScreenEffect) -> Option<HostRequest> {
        match effect {
            ScreenEffect::Quit => return Some(HostRequest::Quit(ExitReason::Quit)),
            ScreenEffect::Detach => return Some(HostRequest::Quit(ExitReason::Detached)),
            ScreenEffect::Choose(choice) => {
                return Some(HostRequest::Quit(ExitReason::Chosen(choice)));
            }
            ScreenEffect::Suspend => return Some(HostRequest::Suspend),
            ScreenEffect::Mouse(ours) => return Some(HostRequest::Mouse(ours)),
            ScreenEffect::Redraw => return Some(HostRequest::Clear),
            ScreenEffect::Copy { text, what } => return self.copy(text, &what),
            ScreenEffect::CopyEntries { seqs, what } => return self.copy_entries(&seqs, &what),
            ScreenEffect::CopySection { line } => {
                let section = self
                    .cache
                    .document()
                    .and_then(|document| document.section(line));
                match section.and_then(|section| Some((section.what, section.text.clone()?))) {
                    Some((what, text)) => return self.copy(text.to_string(), what),
                    None => self.model.toasts.show("there is nothing to copy here"),
                }
            }
            ScreenEffect::CopyName { row, text, what } => {
                let named =
                    row.and_then(|(seq, block)| load::call_target(&mut self.timeline, seq, block));
                return match named {
                    Some((what, text)) => self.copy(text, what),
                    None => self.copy(text, what),
                };
            }
            ScreenEffect::Export(request) => {
                match export::build_export(&mut self.timeline, &request, self.cache.document()) {
                    Ok(export) => {
                        if export.is_truncated {
                            self.model.toasts.show(format!(
                                "{} was too long; only its beginning was exported",
                                request.what
                            ));
                        }
                        return Some(HostRequest::OpenExport(export));
                    }
                    Err(error) => self.model.toasts.show(error.to_line()),
                }
            }
            ScreenEffect::OpenFile {
                attempt_id,
                row,
                paths,
            } => {
                let project = self.project.as_deref();
                match export::written_file(&mut self.timeline, attempt_id, row, &paths, project) {
                    Ok(export) => return Some(HostRequest::OpenExport(export)),
                    Err(error) => self.model.toasts.show(error.to_line()),
                }
            }
            ScreenEffect::Explain(line) => match load::find_writer(&mut self.timeline, &line) {
                Ok(call) => {
                    let view = InspectPage::new(call.unit, call.attempt, Some(call.row));
                    self.model.open(view);
                    self.model.toasts.show(call.sentence);
                }
                Err(reason) => self.model.toasts.show(reason.to_string()),
            },
            ScreenEffect::EditReviewed(path) => {
                let dialogs = &self.model.dialogs;
                let kept = dialogs.kept_texts.find(&TextPurpose::File(path.clone()));
                let review = self.timeline.view().state.open_review();
                // Kept until the editor leaves another one.
                let unused = dialogs
                    .unused_files
                    .get(&path)
                    .and_then(|file| export::unused_text(&path, file));
                let export = match (unused, kept) {
                    (Some(export), _) => Ok(export),
                    (None, Some(text)) => Ok(export::reviewed_file(&path, text.to_owned())),
                    (None, None) => export::reviewed_text(self.project.as_deref(), review, &path),
                };
                match export {
                    Ok(export) => return Some(HostRequest::OpenExport(export)),
                    Err(error) => self.model.toasts.show(error.to_line()),
                }
            }
            ScreenEffect::EditText(text) => {
                return Some(HostRequest::OpenExport(export::form_text(text)));
            }
            ScreenEffect::Command(command) => self.command(command),
            ScreenEffect::Seek(moment) => self.seek_when_read(moment),
            ScreenEffect::Scrub(moment) => self.playing.pending_scrub = Some(moment),
            ScreenEffect::Step(step) => self.step(&step),
            ScreenEffect::RunUntil(condition) => self.run_until(condition),
            ScreenEffect::ChangeBookmarks(change) => self.change_bookmarks(change),
            ScreenEffect::SetPlayback(playback) => self.set_playback(playback),
            ScreenEffect::FindInRun(query) => {
                match text_search::RunSearch::new(&query, &self.timeline) {
                    Ok(search) => self.reading.run_search = Some(search),
                    Err(error) => find::search_of_run_failed(
                        &mut self.model,
                        &format!("cannot search: {error}"),
                    ),
                }
            }
            ScreenEffect::FindInRecords(text) => {
                let queries = self.record_queries.as_ref();
                // The other thread ends with the screen.
                let is_sent = queries.is_some_and(|queries| queries.send(text).is_ok());
                if !is_sent {
                    self.model
                        .toasts
                        .show("the search has ended; open the home screen again");
                }
            }
            ScreenEffect::Find(request) => match text_search::TextSearch::new(request) {
                Ok(search) => self.reading.search = Some(search),
                Err(error) => self.search_failed(&format!("cannot search: {error}")),
            },
        }
        None
    }

    /// Changes the bookmarks and keeps the change immediately, so that it survives a program that is killed.
    /// The first problem is shown.
    fn change_bookmarks(&mut self, mut change: BookmarkChange) {
        if let BookmarkChange::Set(bookmark) = &mut change {
            // Without a body, this reads only the time.
            let at = load::read_head(&mut self.timeline, bookmark.entry, 0, |entry, _| entry.at);
            bookmark.at = at.unwrap_or(bookmark.at);
        }
        let bookmarks = &mut self.model.playhead.bookmarks;
        change.apply(&mut bookmarks.list);
        let problem = match &bookmarks.store {
            Some(store) => store.change(&change).err().map(|problem| problem.to_line()),
            None => Some("bookmarks of this record are lost when you quit".to_owned()),
        };
        if let Some(problem) =
            problem.filter(|_| !std::mem::replace(&mut bookmarks.has_reported_loss, true))
        {
            self.model.toasts.show(problem);
        }
    }

    fn copy_entries(&mut self, seqs: &[Seq], what: &str) -> Option<HostRequest> {
        let (mut lines, mut all) = (Vec::new(), 0);
        for seq in seqs {
            let line = load::read_head(
                &mut self.timeline,
                *seq,
                MAX_CLIPBOARD_BYTES,
                |arrived, size| {
                    all += size;
                    // Content that exceeds the limit is not copied at all.
                    (all <= MAX_CLIPBOARD_BYTES as u64)
                        .then(|| String::from_utf8_lossy(arrived.body.bytes()).into_owned())
                },
            );
            match line {
                Ok(line) => lines.extend(line),
                Err(error) => {
                    self.model.toasts.show(error.to_string());
                    return None;
                }
            }
        }
        if all > MAX_CLIPBOARD_BYTES as u64 {
            self.refuse(what, all)
        } else {
            self.copy(lines.join("\n"), what)
        }
    }

    fn refuse(&mut self, what: &str, size: u64) -> Option<HostRequest> {
        let size = text::size(size);
        self.model
            .toasts
            .show(format!("{what} is too large for the clipboard: {size}"));
        None
    }

    fn copy(&mut self, text: String, what: &str) -> Option<HostRequest> {
        let size = text::size(text.len() as u64);
        if text.len() > MAX_CLIPBOARD_BYTES {
            return self.refuse(what, text.len() as u64);
        }
        self.model.toasts.show(format!("copied {what}, {size}"));
        Some(HostRequest::Copy(text))
    }

    fn command(&mut self, command: RunCommand) {
        let Some(commands) = &self.commands else {
            return;
        };
        let refused = match commands.try_reserve() {
            Ok(place) => {
                self.model.dialogs.command_sent(&command);
                self.model
                    .unrecorded_acts
                    .sent(&command, &self.timeline.view().state.publication);
                place.send(command);
                return;
            }
            Err(mpsc::error::TrySendError::Full(())) => "the run is busy; try again".to_owned(),
            Err(mpsc::error::TrySendError::Closed(())) => RefusalReason::RunEnded.to_string(),
        };
        let text = self
            .model
            .dialogs
            .refused(&refused, WrittenText::of_command(&command));
        self.show_message(text);
    }
}
