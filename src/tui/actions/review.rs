//! Decisions about the changes of a run that wait for a review.

use super::{ActionSpec, Availability, Unavailable, change, effects, require, views};
use crate::{
    control::{ReviewOrder, ReviewVerdict, RunCommand},
    diagnostic::Problem,
    run::{
        review::{ChangePattern, ReviewCounts, ReviewState},
        state::RunView,
    },
    tape::note::{ReviewDecision, ReviewedFile, attempt_output::ArtifactChange},
    text::pluralize,
    tui::{
        action::{ActionScope, UserAction},
        effect::{ScreenEffect, WrittenLine},
        model::{
            ConfirmQuestion, InputPurpose, LineInput, OverlayView, ReviewLine, ReviewTarget, ReviewView, ScreenModel,
            decision_of, diff_rows,
        },
        playback::Playback,
    },
};

/// Maximum number of decisions in one request.
const MAX_ORDERS: usize = 2000;

pub(super) const ACTIONS: &[ActionSpec] = &[
    effects(UserAction::AcceptChange, "accept-change", "accept", "accept the change", |model, run_view| {
        decide(model, run_view, ReviewVerdict::Accept)
    })
    .scope(ActionScope::Review)
    .when(can_decide),
    effects(UserAction::RejectChange, "reject-change", "reject", "reject the change", |model, run_view| {
        decide(model, run_view, ReviewVerdict::Reject)
    })
    .scope(ActionScope::Review)
    .when(can_decide),
    change(
        UserAction::SendBack,
        "send-back",
        "send back",
        "send the change back to its unit with feedback",
        ask_feedback,
    )
    .scope(ActionScope::Review)
    .when(can_decide),
    effects(UserAction::EditChange, "edit-change", "edit", "edit the file before it is committed", edit)
        .scope(ActionScope::Review)
        .when(can_edit),
    effects(UserAction::ReopenChange, "reopen-change", "undo", "withdraw the decision", |model, run_view| {
        decide(model, run_view, ReviewVerdict::Reopen)
    })
    .scope(ActionScope::Review)
    .when(can_reopen),
    effects(UserAction::AcceptRest, "accept-rest", "accept the rest", "accept all open changes", accept_rest)
        .scope(ActionScope::Review)
        .when(|model, run_view| {
            is_open(model, run_view)?;
            require(review(run_view).is_some_and(|review| review.counts().open > 0))
        }),
    change(UserAction::FinishReview, "finish-review", "commit", "end the review: commit, or send back", ask_finish)
        .scope(ActionScope::Review)
        .when(is_open),
    effects(UserAction::Why, "why", "why", "the call that wrote the selected line, after what its agent had read", why)
        .when(has_changed_line),
];

/// The review of the run, waiting or over.
fn review(run_view: &RunView) -> Option<&ReviewState> {
    run_view.state.publication.review.as_deref()
}

fn view(model: &ScreenModel) -> Option<&ReviewView> {
    match model.views.last() {
        Some(OverlayView::Review(view)) => Some(view),
        _ => None,
    }
}

/// Opens the page, or closes it.
pub(super) fn toggle(model: &mut ScreenModel, _: &RunView) {
    views::toggle(model, OverlayView::Review(ReviewView::default()));
}

pub(super) fn has_review(_: &ScreenModel, run_view: &RunView) -> Availability {
    match review(run_view) {
        Some(_) => Ok(()),
        None => Err(Unavailable::because("no changes wait for a review; `run --review` lets a run wait")),
    }
}

fn is_open(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(view(model).is_some())?;
    if !model.connection.accepts_commands() {
        return Err(Unavailable::because("this is a record; decide with `ingestdeck review`"));
    }
    if model.playhead.playback != Playback::Follow {
        return Err(Unavailable::because("the past is shown; return to the present first"));
    }
    match run_view.state.publication.open_review() {
        Some(_) => Ok(()),
        None => Err(Unavailable::because("the run does not wait for a review")),
    }
}

fn can_decide(model: &ScreenModel, run_view: &RunView) -> Availability {
    is_open(model, run_view)?;
    require(view(model).and_then(ReviewView::selected).is_some())
}

fn can_reopen(model: &ScreenModel, run_view: &RunView) -> Availability {
    can_decide(model, run_view)?;
    let line = view(model).and_then(ReviewView::selected);
    let decision = review(run_view).zip(line).and_then(|(review, line)| decision_of(review, line));
    require(decision != Some(ReviewDecision::Open))
}

fn has_changed_line(model: &ScreenModel, run_view: &RunView) -> Availability {
    match model.views.last() {
        Some(OverlayView::Review(view)) => require(review(run_view).is_some_and(|review| view.row(review).is_some())),
        Some(OverlayView::Artifacts(view)) => require(view.selected().is_some()),
        _ => Err(Unavailable::because("select a change in the review or an artifact first")),
    }
}

/// Finds the call that wrote the selected line; of an artifact, the last one.
fn why(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let line = match model.views.last() {
        Some(OverlayView::Review(view)) => review(run_view).and_then(|review| {
            let row = view.row(review).filter(|row| matches!(row.marker, '+' | '-'))?;
            let file = review.request.files.get(view.selected()?.file())?;
            let is_known = file.change == ArtifactChange::Created && file.omitted.is_none();
            let lines = is_known.then(|| diff_rows(&file.diff).iter().filter(|row| row.marker == '+').count());
            let number = (row.marker != '-').then_some(row.line);
            Some(WrittenLine { path: file.path.clone(), line: number, text: Some(row.text.to_owned()), lines })
        }),
        Some(OverlayView::Artifacts(view)) => view.selected().map(|artifact| WrittenLine {
            path: artifact.path.clone(),
            line: None,
            text: None,
            lines: None,
        }),
        _ => None,
    };
    if line.is_none() {
        let row = match model.views.last() {
            Some(OverlayView::Review(view)) => review(run_view).and_then(|review| view.row(review)),
            _ => None,
        };
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
        ReviewLine::Hunk { file, hunk } => Some(review.files.get(file)?.hunks.get(hunk)?.id.to_string()),
    };
    Some(ReviewTarget { path, hunk })
}

fn send(target: ReviewTarget, verdict: ReviewVerdict) -> Vec<ScreenEffect> {
    let ReviewTarget { path, hunk } = target;
    let decisions = vec![ReviewOrder { path, hunk, verdict }];
    vec![ScreenEffect::Command(RunCommand::Review { decisions })]
}

/// Decides about the selected change, and selects the next open one.
fn decide(model: &mut ScreenModel, run_view: &RunView, verdict: ReviewVerdict) -> Vec<ScreenEffect> {
    let Some(target) = target(model, run_view) else { return Vec::new() };
    let stays = verdict == ReviewVerdict::Reopen;
    let effects = send(target, verdict);
    if let (Some(OverlayView::Review(view)), Some(review), false) = (model.views.last_mut(), review(run_view), stays) {
        view.select_next_open(review);
    }
    effects
}

fn ask_feedback(model: &mut ScreenModel, run_view: &RunView) {
    if let Some(target) = target(model, run_view) {
        model.dialogs.line_input = Some(LineInput::new(InputPurpose::SendBack(target)));
    }
}

/// Submits the feedback about a change.
pub(super) fn send_back(
    model: &mut ScreenModel,
    run_view: &RunView,
    target: ReviewTarget,
    feedback: String,
) -> Vec<ScreenEffect> {
    if feedback.trim().is_empty() {
        model.toasts.show("type what the agent should change");
        model.dialogs.line_input = Some(LineInput::new(InputPurpose::SendBack(target)));
        return Vec::new();
    }
    let effects = send(target, ReviewVerdict::SendBack(feedback));
    if let (Some(OverlayView::Review(view)), Some(review)) = (model.views.last_mut(), review(run_view)) {
        view.select_next_open(review);
    }
    effects
}

fn can_edit(model: &ScreenModel, run_view: &RunView) -> Availability {
    can_decide(model, run_view)?;
    let line = view(model).and_then(ReviewView::selected);
    let file = review(run_view).zip(line).and_then(|(review, line)| review.request.files.get(line.file()));
    match file {
        Some(file) if file.change == ArtifactChange::Removed => Err(Unavailable::because("the file is deleted")),
        Some(file) if file.omitted.is_some() => Err(Unavailable::because("the file is too long to be edited here")),
        Some(_) => Ok(()),
        None => Err(Unavailable::NoEffect),
    }
}

fn edit(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(target) = target(model, run_view) else { return Vec::new() };
    vec![ScreenEffect::EditReviewed(target.path)]
}

/// Decides about all changes that match a pattern.
///
/// # Errors
/// If the run does not wait for a review, or nothing matches.
pub(super) fn decide_matching(
    model: &mut ScreenModel,
    run_view: &RunView,
    verdict: &ReviewVerdict,
    pattern: &ChangePattern,
) -> Result<Vec<ScreenEffect>, Problem> {
    let open = run_view.state.publication.open_review();
    let is_present = model.connection.accepts_commands() && model.playhead.playback == Playback::Follow;
    let review = open.filter(|_| is_present).ok_or_else(|| Problem::new("the run does not wait for a review"))?;
    let state = &run_view.state;
    let matching = review.request.files.iter().filter(|file| pattern.matches(file, |unit| state.connection_of(unit)));
    let order = |file: &ReviewedFile| ReviewOrder { path: file.path.clone(), hunk: None, verdict: verdict.clone() };
    let decisions: Vec<ReviewOrder> = matching.map(order).collect();
    if decisions.is_empty() {
        return Err(Problem::new("no changed file matches this pattern").with_help("`*` matches any text"));
    }
    model.toasts.show(format!("decided about {}", pluralize(decisions.len(), "file")));
    Ok(vec![ScreenEffect::Command(RunCommand::Review { decisions })])
}

/// Submits the text that an editor left.
pub(crate) fn edited(model: &mut ScreenModel, text: String) -> Vec<ScreenEffect> {
    let Some(path) = model.dialogs.edited_review.take() else { return Vec::new() };
    model.toasts.show(format!("{path} has your text"));
    send(ReviewTarget { path, hunk: None }, ReviewVerdict::Edit(text))
}

/// Copies the path of the selected file.
pub(super) fn copy(view: &ReviewView, run_view: &RunView) -> Vec<ScreenEffect> {
    let file = review(run_view).zip(view.selected()).and_then(|(review, line)| review.request.files.get(line.file()));
    file.map(|file| ScreenEffect::Copy { text: file.path.clone(), what: "path".to_owned() }).into_iter().collect()
}

fn accept_rest(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some(review) = review(run_view) else { return Vec::new() };
    let mut decisions = Vec::new();
    for (file, decided) in review.by_path() {
        let open = decided.hunks.iter().filter(|hunk| hunk.decision == ReviewDecision::Open);
        decisions.extend(open.map(|hunk| ReviewOrder {
            path: file.path.clone(),
            hunk: Some(hunk.id.to_string()),
            verdict: ReviewVerdict::Accept,
        }));
    }
    model.toasts.show(format!("{} accepted", pluralize(decisions.len(), "change")));
    // A request has a maximum length.
    let commands = decisions.chunks(MAX_ORDERS).map(|some| RunCommand::Review { decisions: some.to_vec() });
    commands.map(ScreenEffect::Command).collect()
}

/// Asks for the end of the review, with a summary.
fn ask_finish(model: &mut ScreenModel, run_view: &RunView) {
    ask_finish_on(model, run_view, None);
}

/// As [`ask_finish`], with the commit on `branch` instead of that of the run.
pub(super) fn ask_finish_on(model: &mut ScreenModel, run_view: &RunView, branch: Option<String>) {
    let Some(review) = review(run_view) else { return };
    let ReviewCounts { open, accepted, rejected, edited, sent_back } = review.counts();
    if open > 0 {
        let key = model.keymap.first(UserAction::AcceptRest).unwrap_or_default();
        model.toasts.show(format!("{} open: decide first, or accept with {key}", pluralize(open, "change")));
        return;
    }
    let counts = [(accepted, "accepted"), (edited, "edited"), (rejected, "rejected"), (sent_back, "sent back")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let units = review.units_sent_back(|_| false).len();
    let is_committed = run_view.state.publication.committed_run.is_some();
    let has_worked = run_view.state.units.iter().any(|unit| !unit.attempts.is_empty());
    let what = if is_committed { "what the review changes" } else { "the accepted changes" };
    let text = match units {
        0 if is_committed && rejected + edited == 0 && !has_worked => {
            "End the review? The commits stay as they are.".to_owned()
        }
        0 => match branch.as_deref().or(run_view.state.publication.target_branch.as_deref()) {
            Some(branch) => format!("Commit {what} to branch {branch}?"),
            None => format!("Commit {what}?"),
        },
        units => format!("Send {} back?", pluralize(units, "unit")),
    };
    let mut details = vec![format!("Changes: {}", counts.join(", "))];
    if units > 0 {
        details.push("Nothing is committed before their new changes are reviewed.".to_owned());
    } else if rejected > 0 && is_committed {
        details.push("Rejected changes are taken back in one further commit.".to_owned());
    } else if rejected > 0 {
        details.push("Rejected changes stay in the record of the run.".to_owned());
    }
    let then = vec![ScreenEffect::Command(RunCommand::FinishReview { branch })];
    model.dialogs.question = Some(ConfirmQuestion { text, details, then, other: None });
}
