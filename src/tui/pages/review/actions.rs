//! Decisions about the changes of a run that wait for a review.

use super::{
    ReviewLine, ReviewPage,
    state::{decision_of, diff_rows},
};
use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    edited_text::UnusableEdit,
    effect::{ScreenEffect, WrittenLine},
    model::{ConfirmQuestion, InputPurpose, LineInput, ReviewTarget, TextPurpose, WrittenText},
    page::ScreenModel,
    playback::Playback,
};
use ingestdeck_core::{
    control::{ReviewOrder, ReviewVerdict, RunCommand},
    diagnostic::Problem,
    run::{
        review::{ChangePattern, FileReview, ReviewCounts, ReviewState, is_bound},
        state::RunView,
    },
    tape::note::{ReviewDecision, ReviewedFile, attempt_output::ArtifactChange},
    text::pluralize,
};

const NOTHING_TO_UNDO: &str = "no decision to undo since this review was opened";

/// The actions of the review page, in the order of the help. Their keys are in `assets/keymap.toml`.
pub(crate) const ACTIONS: &[ActionSpec] = &[
    effects(
        UserAction::AcceptChange,
        "accept-change",
        "accept",
        "accept the change",
        |model, run_view| decide(model, run_view, ReviewVerdict::Accept),
    )
    .scope(ActionScope::Review)
    .when(can_decide),
    change(
        UserAction::RejectChange,
        "reject-change",
        "reject",
        "reject the change; asks for a reason, which may be empty",
        |model, run_view| ask(model, run_view, InputPurpose::Reject),
    )
    .scope(ActionScope::Review)
    .when(can_decide),
    change(
        UserAction::SendBack,
        "send-back",
        "send back",
        "send the change back to its unit with feedback",
        |model, run_view| ask(model, run_view, InputPurpose::SendBack),
    )
    .scope(ActionScope::Review)
    .when(can_decide),
    effects(
        UserAction::EditChange,
        "edit-change",
        "edit",
        "edit the file before it is committed",
        edit,
    )
    .scope(ActionScope::Review)
    .when(can_edit),
    effects(
        UserAction::UndoDecision,
        "undo-decision",
        "undo",
        "undo the last decision, also one about many",
        undo,
    )
    .scope(ActionScope::Review)
    .when(can_undo),
    effects(
        UserAction::ReopenChange,
        "reopen-change",
        "reopen",
        "withdraw the decision about the selected change",
        |model, run_view| decide(model, run_view, ReviewVerdict::Reopen),
    )
    .scope(ActionScope::Review)
    .when(can_reopen),
    effects(
        UserAction::AcceptRest,
        "accept-rest",
        "accept the rest",
        "accept all open changes",
        accept_rest,
    )
    .scope(ActionScope::Review)
    .when(|model, run_view| {
        is_open(model, run_view)?;
        require(review(run_view).is_some_and(|review| review.counts().open > 0))
    }),
    change(
        UserAction::FinishReview,
        "finish-review",
        "commit",
        "end the review: commit, or send back",
        ask_finish,
    )
    .scope(ActionScope::Review)
    .when(is_open),
    effects(
        UserAction::WhyLine,
        "why-line",
        "why",
        "the call that wrote the selected line; as why",
        why,
    )
    .scope(ActionScope::Review)
    .when(has_changed_line),
    change(
        UserAction::Why,
        "why",
        "why",
        "the call that wrote the selected line, after what its agent had read",
        |_, _| {},
    )
    .when(|_, _| {
        Err(Unavailable::because(
            "select a change in the review or an artifact first",
        ))
    }),
];

/// The review of the run, waiting or over.
pub(super) fn review(run_view: &RunView) -> Option<&ReviewState> {
    run_view.state.publication.review.as_deref()
}

fn view(model: &ScreenModel) -> Option<&ReviewPage> {
    model.top()
}

/// Opens the page. On the open page, the key does not close it: the keys that follow would mean something else.
pub(crate) fn open(model: &mut ScreenModel, _: &RunView) {
    match view(model) {
        Some(_) => {
            let key = model.keymap.first(UserAction::Back).unwrap_or_default();
            model
                .toasts
                .show(format!("this is the review; {key} leaves it"));
        }
        None => model.toggle(ReviewPage::default()),
    }
}

pub(crate) fn has_review(_: &ScreenModel, run_view: &RunView) -> Availability {
    match review(run_view) {
        Some(_) => Ok(()),
        None => Err(Unavailable::because(
            "no changes wait for a review; `run --review` lets a run wait",
        )),
    }
}

fn is_open(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(view(model).is_some())?;
    if !model.connection.accepts_commands() {
        return Err(Unavailable::because(
            "this is a record; decide with `ingestdeck review`",
        ));
    }
    if model.playhead.playback != Playback::Follow {
        return Err(Unavailable::because(
            "the past is shown; return to the present first",
        ));
    }
    closed_reason(run_view).map_or(Ok(()), |reason| Err(Unavailable::because(reason)))
}

/// Why nothing can be decided now; `None` if the run waits for decisions.
fn closed_reason(run_view: &RunView) -> Option<&'static str> {
    match run_view.state.open_review() {
        Some(_) => None,
        None if run_view.state.publication.open_review().is_some() => {
            Some("the run has ended; decide with `ingestdeck review`")
        }
        None if run_view.state.is_review_interrupted() => {
            Some("a unit works again; the review continues after it")
        }
        None => Some("the run does not wait for a review"),
    }
}

fn can_decide(model: &ScreenModel, run_view: &RunView) -> Availability {
    is_open(model, run_view)?;
    require(view(model).and_then(ReviewPage::selected).is_some())
}

fn can_reopen(model: &ScreenModel, run_view: &RunView) -> Availability {
    can_decide(model, run_view)?;
    let line = view(model).and_then(ReviewPage::selected);
    let decision = review(run_view)
        .zip(line)
        .and_then(|(review, line)| decision_of(review, line));
    require(decision != Some(ReviewDecision::Open))
}

pub(crate) fn has_changed_line(model: &ScreenModel, run_view: &RunView) -> Availability {
    let row = view(model)
        .zip(review(run_view))
        .and_then(|(view, review)| view.row(review));
    require(row.is_some())
}

/// Finds the call that wrote the selected line.
pub(crate) fn why(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some((view, review)) = view(model).zip(review(run_view)) else {
        return Vec::new();
    };
    let row = view.row(review);
    let line = row
        .filter(|row| matches!(row.marker, '+' | '-'))
        .and_then(|row| {
            let file = review.request.files.get(view.selected()?.file())?;
            let is_known = file.change == ArtifactChange::Created && file.omitted.is_none();
            let lines = is_known.then(|| {
                diff_rows(&file.diff)
                    .iter()
                    .filter(|row| row.marker == '+')
                    .count()
            });
            let number = (row.marker != '-').then_some(row.line);
            Some(WrittenLine {
                path: file.path.clone(),
                line: number,
                text: Some(row.text.to_owned()),
                lines,
            })
        });
    if line.is_none() {
        model.toasts.show(match row {
            Some(row) if row.marker == '=' => "a reviewer edited this file",
            _ => "the run did not change this line; `ingestdeck why FILE:LINE` shows who wrote it",
        });
    }
    line.map(ScreenEffect::Explain).into_iter().collect()
}

/// The file and hunk of the selected line.
fn target(model: &ScreenModel, run_view: &RunView) -> Option<ReviewTarget> {
    let review = review(run_view)?;
    let line = view(model)?.selected()?;
    let path = review.request.files.get(line.file())?.path.clone();
    let hunk = match line {
        ReviewLine::File(_) => None,
        ReviewLine::Hunk { file, hunk } => {
            Some(review.files.get(file)?.hunks.get(hunk)?.id.to_string())
        }
    };
    Some(ReviewTarget { path, hunk })
}

fn send(target: ReviewTarget, verdict: ReviewVerdict, reason: Option<String>) -> Vec<ScreenEffect> {
    let ReviewTarget { path, hunk } = target;
    let decisions = vec![ReviewOrder {
        path,
        hunk,
        verdict,
        reason,
    }];
    vec![ScreenEffect::Command(RunCommand::Review { decisions })]
}

fn can_undo(model: &ScreenModel, run_view: &RunView) -> Availability {
    is_open(model, run_view)?;
    match model.unrecorded_acts.last_act(&run_view.state.publication) {
        Some(_) => Ok(()),
        None => Err(Unavailable::because(NOTHING_TO_UNDO)),
    }
}

/// Withdraws the last decisions, and selects the first change that they were about.
fn undo(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let publication = &run_view.state.publication;
    let last = model.unrecorded_acts.last_act(publication);
    let Some((review, last)) = publication.review.as_deref().zip(last) else {
        return Vec::new();
    };
    let text = match last.paths.as_slice() {
        [path] => format!("undone: the last decision, about {path}"),
        paths => format!(
            "undone: the last decision, about {}",
            pluralize(paths.len(), "file")
        ),
    };
    let place = last.paths.first().and_then(|path| {
        review
            .request
            .files
            .iter()
            .position(|file| file.path == *path)
    });
    let known = u32::try_from(last.count).ok();
    if let (Some(view), Some(file)) = (model.top_mut::<ReviewPage>(), place) {
        view.select_file(file);
    }
    model.toasts.show(text);
    vec![ScreenEffect::Command(RunCommand::UndoReview { known })]
}

/// As the key, from the command line.
pub(crate) fn undo_by_name(
    model: &mut ScreenModel,
    run_view: &RunView,
) -> Result<Vec<ScreenEffect>, Problem> {
    if let Some(reason) = closed_reason(run_view) {
        return Err(Problem::new(reason));
    }
    let has_act = model
        .unrecorded_acts
        .last_act(&run_view.state.publication)
        .is_some();
    match has_act && model.connection.accepts_commands() {
        true => Ok(undo(model, run_view)),
        false => Err(Problem::new(NOTHING_TO_UNDO)),
    }
}

/// Decides about the selected change, and selects the next open one.
fn decide(
    model: &mut ScreenModel,
    run_view: &RunView,
    verdict: ReviewVerdict,
) -> Vec<ScreenEffect> {
    let Some(target) = target(model, run_view) else {
        return Vec::new();
    };
    let stays = verdict == ReviewVerdict::Reopen;
    let effects = send(target, verdict, None);
    if !stays {
        select_next_open(model, run_view);
    }
    effects
}

fn select_next_open(model: &mut ScreenModel, run_view: &RunView) {
    if let (Some(view), Some(review)) = (model.top_mut::<ReviewPage>(), review(run_view)) {
        view.select_next_open(review);
    }
}

fn ask(model: &mut ScreenModel, run_view: &RunView, purpose: fn(ReviewTarget) -> InputPurpose) {
    if let Some(target) = target(model, run_view) {
        model.dialogs.ask_text(purpose(target));
    }
}

/// Submits the reason of a rejection, or feedback about a change.
pub(crate) fn submit(
    model: &mut ScreenModel,
    run_view: &RunView,
    purpose: InputPurpose,
    text: String,
) -> Vec<ScreenEffect> {
    let (target, verdict, reason) = match &purpose {
        InputPurpose::SendBack(_) if text.trim().is_empty() => {
            model.toasts.show("type what the agent should change");
            model.dialogs.line_input = Some(LineInput::new(purpose));
            return Vec::new();
        }
        InputPurpose::SendBack(target) => {
            (target.clone(), ReviewVerdict::SendBack(text.clone()), None)
        }
        InputPurpose::Reject(target) => {
            let reason = text.trim().to_owned();
            (
                target.clone(),
                ReviewVerdict::Reject,
                Some(reason).filter(|reason| !reason.is_empty()),
            )
        }
        _ => return Vec::new(),
    };
    if let Some(why) = closed_reason(run_view) {
        let written = TextPurpose::of_input(&purpose).map(|purpose| WrittenText { purpose, text });
        let answer = model.dialogs.refused(why, written);
        model.toasts.show(answer);
        return Vec::new();
    }
    select_next_open(model, run_view);
    send(target, verdict, reason)
}

fn can_edit(model: &ScreenModel, run_view: &RunView) -> Availability {
    can_decide(model, run_view)?;
    let line = view(model).and_then(ReviewPage::selected);
    let file = review(run_view)
        .zip(line)
        .and_then(|(review, line)| review.request.files.get(line.file()));
    match file {
        Some(file) if file.change == ArtifactChange::Removed => {
            Err(Unavailable::because("the file is deleted"))
        }
        Some(file) if file.omitted.is_some() => Err(Unavailable::because(
            "the file is too long to be edited here",
        )),
        Some(_) => Ok(()),
        None => Err(Unavailable::NoEffect),
    }
}

fn edit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(target) = target(model, run_view) else {
        return Vec::new();
    };
    vec![ScreenEffect::EditReviewed(target.path)]
}

/// Decides about all changes that match a pattern.
///
/// # Errors
/// If the run does not wait for a review, or nothing matches.
pub(crate) fn decide_matching(
    model: &mut ScreenModel,
    run_view: &RunView,
    verdict: &ReviewVerdict,
    pattern: &ChangePattern,
    reason: Option<&str>,
) -> Result<Vec<ScreenEffect>, Problem> {
    let open = run_view.state.open_review();
    let is_present =
        model.connection.accepts_commands() && model.playhead.playback == Playback::Follow;
    let closed =
        || Problem::new(closed_reason(run_view).unwrap_or("the run does not wait for a review"));
    let review = open.filter(|_| is_present).ok_or_else(closed)?;
    let state = &run_view.state;
    let matching: Vec<_> = review
        .by_path()
        .filter(|(file, _)| pattern.matches(file, |unit| state.connection_of(unit)))
        .collect();
    let orders = |(file, decided): &(&ReviewedFile, &FileReview)| match verdict {
        // As on the command line: an acceptance of several files keeps the decisions of before.
        ReviewVerdict::Accept if matching.len() > 1 => decided.open_orders(&file.path),
        _ => vec![ReviewOrder {
            path: file.path.clone(),
            hunk: None,
            verdict: verdict.clone(),
            reason: reason.map(str::to_owned),
        }],
    };
    let decisions: Vec<ReviewOrder> = matching.iter().flat_map(orders).collect();
    if decisions.is_empty() && !matching.is_empty() {
        return Err(
            Problem::new("all of these changes have a decision").with_help("withdraw it first")
        );
    }
    if decisions.is_empty() {
        return Err(
            Problem::new("no changed file matches this pattern").with_help("`*` matches any text")
        );
    }
    model.toasts.show(format!(
        "decided about {}",
        pluralize(decisions.len(), "file")
    ));
    Ok(ReviewOrder::into_commands(decisions)
        .into_iter()
        .map(ScreenEffect::Command)
        .collect())
}

/// Submits what an editor left of the file `path`.
pub(crate) fn edited(
    model: &mut ScreenModel,
    run_view: &RunView,
    path: String,
    text: Result<String, UnusableEdit>,
) -> Vec<ScreenEffect> {
    let key = model
        .keymap
        .first(UserAction::EditChange)
        .unwrap_or_default();
    let text = match text {
        Ok(text) => text,
        Err(edit) => {
            let again = if edit.file.is_some() {
                format!("; {key} opens it again")
            } else {
                String::new()
            };
            model.toasts.announce(format!("{path}: {edit}{again}"));
            model
                .dialogs
                .unused_files
                .extend(edit.file.map(|file| (path, file)));
            return Vec::new();
        }
    };
    let purpose = TextPurpose::File(path.clone());
    model.dialogs.unused_files.remove(&path);
    // The editor began with it.
    model.dialogs.kept_texts.take(&purpose);
    if let Some(why) = closed_reason(run_view) {
        let answer = model
            .dialogs
            .refused(why, Some(WrittenText { purpose, text }));
        model.toasts.show(answer);
        return Vec::new();
    }
    model.toasts.show(format!("{path} has your text"));
    send(
        ReviewTarget { path, hunk: None },
        ReviewVerdict::Edit(text),
        None,
    )
}

/// Copies the path of the selected file.
pub(crate) fn copy(view: &ReviewPage, run_view: &RunView) -> Vec<ScreenEffect> {
    let file = review(run_view)
        .zip(view.selected())
        .and_then(|(review, line)| review.request.files.get(line.file()));
    file.map(|file| ScreenEffect::Copy {
        text: file.path.clone(),
        what: "path".to_owned(),
    })
    .into_iter()
    .collect()
}

fn accept_rest(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(review) = review(run_view) else {
        return Vec::new();
    };
    let mut decisions = Vec::new();
    for (file, decided) in review.by_path() {
        decisions.extend(decided.open_orders(&file.path));
    }
    model.toasts.show(format!(
        "{} accepted",
        pluralize(review.counts().open, "change")
    ));
    ReviewOrder::into_commands(decisions)
        .into_iter()
        .map(ScreenEffect::Command)
        .collect()
}

/// Asks for the end of the review, with a summary.
fn ask_finish(model: &mut ScreenModel, run_view: &RunView) {
    ask_finish_on(model, run_view, None);
}

/// As [`ask_finish`], with the commit on `branch` instead of that of the run.
pub(crate) fn ask_finish_on(model: &mut ScreenModel, run_view: &RunView, branch: Option<String>) {
    let Some(review) = review(run_view) else {
        return;
    };
    let counts = review.counts();
    let ReviewCounts {
        open,
        rejected,
        edited,
        ..
    } = counts;
    // What the commits of a run contain stays in them unless it is rejected.
    let is_committed = run_view.state.publication.committed_run.is_some();
    if open > 0 && !is_committed {
        let key = model
            .keymap
            .first(UserAction::AcceptRest)
            .unwrap_or_default();
        // A question, so that the answer that often follows does not decide about the selected change.
        model.dialogs.question = Some(ConfirmQuestion {
            text: format!("{} without a decision.", pluralize(open, "change")),
            details: vec![format!("Decide first, or accept what is open with {key}.")],
            answers: Vec::new(),
        });
        return;
    }
    let units = review.units_sent_back(|_| false).len();
    let has_worked = run_view
        .state
        .units
        .iter()
        .any(|unit| !unit.attempts.is_empty());
    let what = if is_committed {
        "what the review changes"
    } else {
        "the accepted changes"
    };
    let text = match units {
        0 if is_committed && rejected + edited == 0 && !has_worked => {
            "End the review? The commits stay as they are.".to_owned()
        }
        0 => match branch
            .as_deref()
            .or(run_view.state.publication.target_branch.as_deref())
        {
            Some(branch) => format!("Commit {what} to branch {branch}?"),
            None => format!("Commit {what}?"),
        },
        units => format!("Send {} back?", pluralize(units, "unit")),
    };
    let mut details = vec![counts.to_string()];
    if units > 0 {
        details.push("Nothing is committed before their new changes are reviewed.".to_owned());
    } else if rejected > 0 && is_committed {
        details.push("Rejected changes are taken back in one further commit.".to_owned());
    } else if rejected > 0 {
        details.push("Rejected changes stay in the record of the run.".to_owned());
    }
    let publication = &run_view.state.publication;
    let is_stuck = |(file, decided): &(&ReviewedFile, &FileReview)| {
        !decided.is_dropped() && publication.blocked_reason(&file.path).is_some()
    };
    let stuck = review.by_path().filter(is_stuck).count();
    // The others can be committed without them.
    let free = if units == 0 && stuck > 0 {
        publication.count_without_blocked()
    } else {
        0
    };
    let leave_blocked = free > 0;
    let text = match leave_blocked {
        true => {
            let verb = if stuck == 1 { "blocks" } else { "block" };
            format!(
                "{} {verb}; commit {free} without {}?",
                pluralize(stuck, "file"),
                if stuck == 1 { "it" } else { "them" }
            )
        }
        false => text,
    };
    if stuck > 0 {
        let path = publication
            .blocked
            .first()
            .map(|file| format!("{} {}.", file.path, file.reason));
        details.extend(path);
    }
    if leave_blocked {
        let units = review.units_bound_to(&publication.blocked);
        let is_free = |file: &ReviewedFile| publication.blocked_reason(&file.path).is_none();
        let with = if review
            .request
            .files
            .iter()
            .any(|file| is_bound(file, &units) && is_free(file))
        {
            ", with the other files of its units"
        } else {
            ""
        };
        details.push(format!(
            "What is blocked still waits{with}: move your file away, then end the review again."
        ));
    }
    if open > 0 {
        details.push(format!(
            "{} without a decision: kept as committed.",
            pluralize(open, "change")
        ));
    }
    let kept = review
        .by_path()
        .flat_map(|(file, decided)| decided.open_orders(&file.path))
        .collect();
    let finish = RunCommand::FinishReview {
        branch,
        leave_blocked,
    };
    let commands = ReviewOrder::into_commands(kept).into_iter().chain([finish]);
    let then = commands.map(ScreenEffect::Command).collect();
    model.dialogs.question = Some(ConfirmQuestion::new(text, details, then));
}
