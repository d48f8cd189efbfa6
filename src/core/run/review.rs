//! The review of a run: its changes by file and hunk, and the decisions about them. Pure; the engine and the fold of the
//! tape apply the same decisions to the same state.

mod hunk;
mod pattern;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

pub use self::{
    hunk::{DiffHunk, parse_hunks},
    pattern::ChangePattern,
};
use crate::control::{ReviewOrder, ReviewVerdict};
use crate::diagnostic::Problem;
use crate::tape::{
    RECONCILE_KEY, UnitKey,
    note::{
        BlockedFile, ReviewDecided, ReviewDecision, ReviewRequested, ReviewedFile,
        attempt_output::ArtifactChange,
    },
};

/// Maximum characters of the remarks about the changes of a unit.
const MAX_REMARK_CHARS: usize = 8_000;

/// The changes of a run that wait for a review, or waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReviewState {
    pub request: Arc<ReviewRequested>,
    /// The decisions about each file of the request.
    pub files: Vec<FileReview>,
    /// True while the run waits for the end of the review.
    pub is_waiting: bool,
    /// True once a person ended it: units that can start make the changes again that were sent back.
    pub is_finished: bool,
    /// Units that make changes again and have not begun.
    pub(super) sent_back: Vec<UnitKey>,
    /// True once its result is saved.
    pub is_saved: bool,
    /// What the decisions of each command replaced, in order; only the last one may be empty.
    pub(super) acts: Vec<ReviewAct>,
    /// True while decisions belong to the last act.
    pub(super) is_in_act: bool,
}

/// The files that one command decided about, with their decisions before.
pub(super) type ReviewAct = Vec<(String, FileReview)>;

/// The decisions about one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReview {
    /// In the order of the diff. A file without hunks, such as an empty one, has one without lines.
    pub hunks: Vec<HunkReview>,
    /// The text of a person that replaces the file.
    pub edited: Option<Arc<str>>,
}

/// The decision about one hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkReview {
    /// Derived from the path and the changed lines, so that an equal change of a later attempt has the same id.
    pub id: Arc<str>,
    pub decision: ReviewDecision,
    /// What the unit should change, if it was sent back now or before.
    pub feedback: Option<Arc<str>>,
    /// Why it was rejected, if the reviewer wrote it.
    pub reason: Option<Arc<str>>,
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileResolution {
    /// All of its changes.
    AsWritten,
    /// None of its changes.
    AsBefore,
    /// A text that no attempt wrote.
    Text(String),
}

/// Numbers of hunks by decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReviewCounts {
    pub open: usize,
    pub accepted: usize,
    pub rejected: usize,
    pub edited: usize,
    pub sent_back: usize,
}

/// True if one of the units changed the file.
pub fn is_bound(file: &ReviewedFile, units: &HashSet<UnitKey>) -> bool {
    file.units.iter().any(|unit| units.contains(unit))
}

/// The decisions in a line, such as `Changes: 3 accepted, 1 rejected`.
impl fmt::Display for ReviewCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            open,
            accepted,
            rejected,
            edited,
            sent_back,
        } = *self;
        let counts = [
            (accepted, "accepted"),
            (edited, "edited"),
            (rejected, "rejected"),
            (sent_back, "sent back"),
            (open, "undecided"),
        ];
        let counts = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"));
        write!(f, "Changes: {}", counts.collect::<Vec<_>>().join(", "))
    }
}

impl ReviewState {
    /// A review of `request`. Decisions of the review `before` count for equal changes, except that changes that were
    /// sent back are open again once that review was finished.
    pub fn new(request: Arc<ReviewRequested>, before: Option<&Self>) -> Self {
        let earlier: HashMap<&str, (&ReviewedFile, &FileReview)> = before
            .iter()
            .flat_map(|before| before.by_path())
            .map(|known| (&*known.0.path, known))
            .collect();
        let was_finished = before.is_some_and(|before| before.is_finished);
        let file = |file| FileReview::new(file, earlier.get(&*file.path).copied(), was_finished);
        let files = request.files.iter().map(file).collect();
        let request_of_it = Arc::clone(&request);
        let mut new = Self {
            request: request_of_it,
            files,
            is_waiting: true,
            ..Self::default()
        };
        for decided in &request.decided {
            new.decide(decided);
        }
        if let Some(before) = before.filter(|before| before.request.files == request.files) {
            new.acts.clone_from(&before.acts);
        }
        new
    }

    /// The review without the files that `is_excluded`.
    pub fn without_files(mut self, is_excluded: impl Fn(&ReviewedFile) -> bool) -> Self {
        let kept: Vec<bool> = self
            .request
            .files
            .iter()
            .map(|file| !is_excluded(file))
            .collect();
        if kept.contains(&false) {
            let mut keep = kept.iter().copied();
            self.files.retain(|_| keep.next().unwrap_or(true));
            let mut keep = kept.iter().copied();
            Arc::make_mut(&mut self.request)
                .files
                .retain(|_| keep.next().unwrap_or(true));
            // They may be about the files that are gone.
            self.acts.clear();
        }
        self
    }

    /// The units whose changes cannot be committed without these files. The changes of a unit stay together, and so do
    /// those of units that wrote the same file.
    pub fn units_bound_to(&self, blocked: &[BlockedFile]) -> HashSet<UnitKey> {
        let is_blocked =
            |file: &&ReviewedFile| blocked.iter().any(|blocked| blocked.path == file.path);
        let files = &self.request.files;
        let mut bound: HashSet<UnitKey> = files
            .iter()
            .filter(is_blocked)
            .flat_map(|file| file.units.clone())
            .collect();
        loop {
            let before = bound.len();
            for file in files {
                if is_bound(file, &bound) {
                    bound.extend(file.units.iter().cloned());
                }
            }
            if bound.len() == before {
                return bound;
            }
        }
    }

    /// Number of files with changes that can be committed without these; 0 if they are bound to all others. The reconcile
    /// step and projected sources rest on everything else, so nothing is committed without them.
    pub fn count_without(&self, blocked: &[BlockedFile]) -> usize {
        let bound = self.units_bound_to(blocked);
        if bound
            .iter()
            .any(|unit| unit.as_str() == RECONCILE_KEY || unit.is_without_attempt())
        {
            return 0;
        }
        self.by_path()
            .filter(|(file, decided)| !is_bound(file, &bound) && !decided.is_dropped())
            .count()
    }

    /// The files with their decisions.
    pub fn by_path(&self) -> impl Iterator<Item = (&ReviewedFile, &FileReview)> {
        self.request.files.iter().zip(&self.files)
    }

    /// The decisions about the file `path`.
    pub fn file(&self, path: &str) -> Option<(&ReviewedFile, &FileReview)> {
        self.by_path().find(|(file, _)| file.path == path)
    }

    /// Applies a decision. Returns false, and changes nothing, if it names an unknown file or hunk.
    pub fn decide(&mut self, decided: &ReviewDecided) -> bool {
        let Some(at) = self
            .request
            .files
            .iter()
            .position(|file| file.path == decided.path)
        else {
            return false;
        };
        let before = self.is_in_act.then(|| self.files[at].clone());
        let is_known = self.files[at].decide(decided);
        if let (true, Some(before), Some(act)) = (is_known, before, self.acts.last_mut())
            && !act.iter().any(|(path, _)| *path == decided.path)
        {
            act.push((decided.path.clone(), before));
        }
        is_known
    }

    /// The next decisions are made by one command.
    pub fn begin_act(&mut self) {
        self.is_in_act = true;
        if self.acts.last().is_none_or(|act| !act.is_empty()) {
            self.acts.push(ReviewAct::new());
        }
    }

    /// The next decisions restore those of before the last act, which is forgotten.
    pub fn begin_undo(&mut self) {
        self.is_in_act = false;
        self.acts.truncate(self.act_count().saturating_sub(1));
    }

    /// Number of acts that can be undone.
    pub fn act_count(&self) -> usize {
        self.acts.len() - usize::from(self.acts.last().is_some_and(Vec::is_empty))
    }

    /// Paths of the files that the act with this index decided about; empty if there is none.
    pub fn act_paths(&self, act: usize) -> impl Iterator<Item = &str> {
        self.acts
            .get(act)
            .into_iter()
            .flatten()
            .map(|(path, _)| path.as_str())
    }

    /// The decisions that restore the state before the last act.
    pub fn undo_decisions(&self) -> Vec<ReviewDecided> {
        let act = self
            .act_count()
            .checked_sub(1)
            .and_then(|last| self.acts.get(last));
        act.into_iter()
            .flatten()
            .flat_map(|(path, before)| before.decisions_of(path, true))
            .collect()
    }

    pub fn counts(&self) -> ReviewCounts {
        let mut counts = ReviewCounts::default();
        for hunk in self.files.iter().flat_map(|file| &file.hunks) {
            match hunk.decision {
                ReviewDecision::Open => counts.open += 1,
                ReviewDecision::Accepted => counts.accepted += 1,
                ReviewDecision::Rejected => counts.rejected += 1,
                ReviewDecision::Edited => counts.edited += 1,
                ReviewDecision::SentBack => counts.sent_back += 1,
            }
        }
        counts
    }

    /// The units that must work again, each with the feedback about its changes. For units that have forgotten their work,
    /// it contains the changes, too.
    pub fn units_sent_back(
        &self,
        has_forgotten: impl Fn(&UnitKey) -> bool,
    ) -> Vec<(UnitKey, String)> {
        let mut units: Vec<(UnitKey, String)> = Vec::new();
        for (file, review) in self.by_path() {
            let Some(feedback) = review.feedback_text(file) else {
                continue;
            };
            let units_of_file = || file.units.iter().filter(|unit| !unit.is_without_attempt());
            let is_alone = units_of_file().all(|unit| unit.as_str() == RECONCILE_KEY);
            // The reconcile step reviews the work of the units, and follows them.
            for unit in units_of_file().filter(|unit| is_alone || unit.as_str() != RECONCILE_KEY) {
                let text = match has_forgotten(unit) {
                    true => format!(
                        "{feedback}\nYour earlier change of {}:\n{}",
                        file.path, file.diff
                    ),
                    false => feedback.clone(),
                };
                match units.iter_mut().find(|(known, _)| known == unit) {
                    Some((_, feedback)) => {
                        feedback.push_str("\n\n");
                        feedback.push_str(&text);
                    }
                    None => units.push((unit.clone(), text)),
                }
            }
        }
        units
    }

    /// What a reviewer rejected or replaced of the changes of a unit, for its next attempt; `None` if nothing.
    pub fn remarks(&self, unit: &UnitKey) -> Option<String> {
        let mut remarks = String::new();
        for (file, review) in self.by_path().filter(|(file, _)| file.units.contains(unit)) {
            if let Some(text) = &review.edited {
                remarks.push_str(&format!("\n{} was replaced by:\n{text}", file.path));
                continue;
            }
            let hunks = parse_hunks(&file.diff);
            let rejected = hunks
                .iter()
                .zip(&review.hunks)
                .filter(|(_, it)| it.decision == ReviewDecision::Rejected);
            let lines: String = rejected
                .map(|(hunk, it)| match &it.reason {
                    Some(reason) => format!("because: {reason}\n{}", hunk.changed_lines()),
                    None => hunk.changed_lines(),
                })
                .collect();
            if !lines.is_empty() {
                remarks.push_str(&format!("\n{}, rejected:\n{lines}", file.path));
            }
        }
        let shown: String = remarks.chars().take(MAX_REMARK_CHARS).collect();
        (!shown.is_empty()).then(|| {
            format!("A reviewer did not accept these earlier changes as they were; do not repeat them.{shown}")
        })
    }

    /// The decisions that differ from an open state, as notes.
    pub fn decisions(&self) -> Vec<ReviewDecided> {
        self.by_path()
            .flat_map(|(file, review)| review.decisions_of(&file.path, false))
            .collect()
    }
}

impl ReviewedFile {
    /// The text with all changes that are not rejected; `before` is the text without them. `None` if the diff does not
    /// fit it.
    pub fn text_after(&self, before: &str, decisions: &FileReview) -> Option<String> {
        let hunks = parse_hunks(&self.diff);
        let kept = hunks
            .iter()
            .zip(&decisions.hunks)
            .filter(|(_, it)| it.decision != ReviewDecision::Rejected);
        hunk::apply_hunks(before, kept.map(|(hunk, _)| hunk))
    }

    /// The digest of a text before the run.
    pub fn digest(text: &[u8]) -> String {
        hunk::short_digest([text])
    }
}

impl HunkReview {
    /// The feedback of a person after which the unit returned an equal change, which has no new decision.
    pub fn ignored_feedback(&self) -> Option<&str> {
        let is_open = self.decision == ReviewDecision::Open;
        self.feedback.as_deref().filter(|_| is_open)
    }
}

impl FileReview {
    fn new(
        file: &ReviewedFile,
        before: Option<(&ReviewedFile, &Self)>,
        was_finished: bool,
    ) -> Self {
        let is_same_text = before.is_some_and(|(known, _)| known.before == file.before);
        let before = before.map(|(_, review)| review);
        let hunk = |id: String| {
            let earlier =
                before.and_then(|before| before.hunks.iter().find(|hunk| *hunk.id == *id));
            let decision = earlier.map_or(ReviewDecision::Open, |hunk| hunk.decision);
            let is_kept = matches!(
                decision,
                ReviewDecision::Accepted | ReviewDecision::Rejected
            ) || decision == ReviewDecision::SentBack && !was_finished;
            HunkReview {
                id: id.into(),
                decision: if is_kept {
                    decision
                } else {
                    ReviewDecision::Open
                },
                feedback: earlier.and_then(|hunk| hunk.feedback.clone()),
                reason: earlier
                    .filter(|_| is_kept)
                    .and_then(|hunk| hunk.reason.clone()),
            }
        };
        let mut new = Self {
            hunks: hunk::hunk_ids(file).into_iter().map(hunk).collect(),
            edited: None,
        };
        // An edit replaced the whole file, so it counts only if the whole file is equal, before and after.
        let is_equal =
            |before: &&Self| is_same_text && before.edited.is_some() && before.has_same_hunks(&new);
        if let Some(before) = before.filter(is_equal) {
            new = before.clone();
        }
        new
    }

    fn has_same_hunks(&self, other: &Self) -> bool {
        self.hunks
            .iter()
            .map(|hunk| &hunk.id)
            .eq(other.hunks.iter().map(|hunk| &hunk.id))
    }

    fn decide(&mut self, decided: &ReviewDecided) -> bool {
        let feedback = decided.feedback.as_deref().map(Arc::<str>::from);
        let reason = decided
            .reason
            .as_deref()
            .filter(|_| decided.decision == ReviewDecision::Rejected);
        let reason = reason.map(Arc::<str>::from);
        match (&decided.hunk, decided.decision, &decided.text) {
            (None, ReviewDecision::Edited, Some(text)) => self.edited = Some(text.as_str().into()),
            (_, ReviewDecision::Edited, _) => return false,
            (Some(id), ..) if !self.hunks.iter().any(|hunk| *hunk.id == **id) => return false,
            _ => {
                // A decision about a hunk withdraws the text that replaced all of them.
                if self.edited.take().is_some() {
                    self.hunks
                        .iter_mut()
                        .for_each(|hunk| hunk.decision = ReviewDecision::Open);
                }
            }
        }
        let is_meant = |hunk: &HunkReview| decided.hunk.as_deref().is_none_or(|id| *hunk.id == *id);
        for hunk in self.hunks.iter_mut().filter(|hunk| is_meant(hunk)) {
            // Feedback that is withdrawn before it is sent does not count as given.
            let was_sent_back =
                std::mem::replace(&mut hunk.decision, decided.decision) == ReviewDecision::SentBack;
            if was_sent_back && decided.decision != ReviewDecision::SentBack {
                hunk.feedback = None;
            }
            if feedback.is_some() {
                hunk.feedback.clone_from(&feedback);
            }
            hunk.reason = reason.clone();
        }
        true
    }

    /// The decisions about the file as notes; those that are open only `with_open` ones.
    fn decisions_of(&self, path: &str, with_open: bool) -> Vec<ReviewDecided> {
        let of = |hunk: Option<&HunkReview>, decision, text: Option<&Arc<str>>| ReviewDecided {
            path: path.to_owned(),
            hunk: hunk.map(|hunk| hunk.id.to_string()),
            decision,
            text: text.map(ToString::to_string),
            feedback: hunk
                .and_then(|hunk| hunk.feedback.as_ref())
                .map(ToString::to_string),
            reason: hunk
                .and_then(|hunk| hunk.reason.as_ref())
                .map(ToString::to_string),
        };
        match &self.edited {
            Some(text) => vec![of(None, ReviewDecision::Edited, Some(text))],
            None => {
                let hunks = self
                    .hunks
                    .iter()
                    .filter(|hunk| with_open || hunk.decision != ReviewDecision::Open);
                hunks
                    .map(|hunk| of(Some(hunk), hunk.decision, None))
                    .collect()
            }
        }
    }

    /// Acceptances of what is open in the file `path`: of the whole file, or of its open hunks.
    pub fn open_orders(&self, path: &str) -> Vec<ReviewOrder> {
        let order = |hunk: Option<&HunkReview>| ReviewOrder {
            path: path.to_owned(),
            hunk: hunk.map(|hunk| hunk.id.to_string()),
            verdict: ReviewVerdict::Accept,
            reason: None,
        };
        if self.decision() == Some(ReviewDecision::Open) {
            return vec![order(None)];
        }
        let open = self
            .hunks
            .iter()
            .filter(|hunk| hunk.decision == ReviewDecision::Open);
        open.map(|hunk| order(Some(hunk))).collect()
    }

    /// True if some of its changes have no decision.
    pub fn is_open(&self) -> bool {
        self.hunks
            .iter()
            .any(|hunk| hunk.decision == ReviewDecision::Open)
    }

    /// The decision about all hunks; `None` if they differ.
    pub fn decision(&self) -> Option<ReviewDecision> {
        let first = self.hunks.first()?.decision;
        self.hunks
            .iter()
            .all(|hunk| hunk.decision == first)
            .then_some(first)
    }

    /// True if no part of the change is in the commit.
    pub fn is_dropped(&self) -> bool {
        self.edited.is_none()
            && self
                .hunks
                .iter()
                .all(|hunk| hunk.decision != ReviewDecision::Accepted)
    }

    /// True if a file that the run removed is there after the review.
    pub fn is_removal_undone(&self) -> bool {
        self.edited.is_some() || self.decision() != Some(ReviewDecision::Accepted)
    }

    fn feedback_text(&self, file: &ReviewedFile) -> Option<String> {
        let sent: Vec<_> = self
            .hunks
            .iter()
            .enumerate()
            .filter(|(_, hunk)| hunk.decision == ReviewDecision::SentBack)
            .collect();
        let (_, first) = sent.first()?;
        let same = sent.len() == self.hunks.len()
            && sent.iter().all(|(_, hunk)| hunk.feedback == first.feedback);
        let note = |hunk: &HunkReview| hunk.feedback.as_deref().unwrap_or_default().to_owned();
        if same {
            return Some(format!("{}: {}", file.path, note(first)));
        }
        let diffs = parse_hunks(&file.diff);
        let quoted = sent.iter().map(|(at, hunk)| {
            let lines = diffs
                .get(*at)
                .map(DiffHunk::changed_lines)
                .unwrap_or_default();
            format!("{}, at these lines: {}\n{lines}", file.path, note(hunk))
        });
        Some(quoted.collect::<Vec<_>>().join("\n"))
    }

    /// What the commit contains of `file`, whose text before the run is `before`; `None` if that is not UTF-8. Open changes
    /// count as rejected.
    ///
    /// # Errors
    /// If the diff does not fit the text, or a part of a file is accepted that is not UTF-8.
    pub fn resolve(
        &self,
        file: &ReviewedFile,
        before: Option<&str>,
    ) -> Result<FileResolution, Problem> {
        if let Some(text) = &self.edited {
            return Ok(FileResolution::Text(text.to_string()));
        }
        let is_accepted = |hunk: &HunkReview| hunk.decision == ReviewDecision::Accepted;
        if self.hunks.iter().all(is_accepted) {
            return Ok(FileResolution::AsWritten);
        }
        if self.is_dropped() {
            return Ok(FileResolution::AsBefore);
        }
        let before = before.ok_or_else(|| {
            format!(
                "{} is not UTF-8, so it can only be accepted or rejected as a whole",
                file.path.escape_debug()
            )
        })?;
        let hunks = parse_hunks(&file.diff);
        let accepted = hunks
            .iter()
            .zip(&self.hunks)
            .filter(|(_, hunk)| is_accepted(hunk))
            .map(|(hunk, _)| hunk);
        let text = hunk::apply_hunks(before, accepted);
        let text = text.ok_or_else(|| {
            format!(
                "the diff of {} does not fit the file",
                file.path.escape_debug()
            )
        })?;
        Ok(
            if text.is_empty() && file.change == ArtifactChange::Removed {
                FileResolution::AsWritten
            } else {
                FileResolution::Text(text)
            },
        )
    }
}

#[cfg(test)]
mod tests;
