//! `review`: decisions about the changes of a run before they become a commit, or afterwards.
//!
//! A run that still waits gets the decisions through its engine. For a run that ended before, an engine starts again with
//! the patches of that run, and nothing is attempted unless changes are sent back.

use std::{collections::HashSet, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    args::{GlobalArgs, ReviewArgs, RunArgs},
    artifacts::verification_json,
    attach, ctl,
    exit::{self, CliError, Exit},
    launch::TapeLocation,
    output,
    review_rules::{ReviewRules, accepted},
    run::{RunRequest, start_run},
    runs,
};
use ingestdeck_core::{
    control::CommandOrigin,
    diagnostic::Problem,
    run::{
        review::{FileReview, HunkReview, ReviewState, is_bound},
        state::{Publication, RunState, UnitState, UnitStatus},
        verification::file_verification,
    },
    tape::{
        RunId, UnitKey,
        note::{ReviewDecision, ReviewedFile},
    },
    text,
};
use ingestdeck_engine::{
    continued_runs::ContinuedRuns,
    control_socket::ControlClient,
    launch::{ReviewOptions, runtime},
    recorded_tapes, resume,
};
use ingestdeck_ingest::{self as ingest, committed_changes, repository::Repository};
use ingestdeck_records::store::{RecordedRun, RunStatus, RunStore};

/// How long a tape may not grow before it is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_PATH_WIDTH: usize = 200;
const MAX_REASON_WIDTH: usize = 600;

/// Shows the changes of a run that wait for a review, or decides about them.
///
/// # Errors
/// If no run waits for a review, or if a decision is refused.
pub(crate) fn review(global: &GlobalArgs, args: &ReviewArgs) -> Result<Exit, CliError> {
    let rules = ReviewRules::new(args)?;
    let runs = runs::resolve_store(global)?;
    let continued = ContinuedRuns::read(&runs)?;
    let (run, state) = find_reviewable_run(&runs, &continued, args.run.as_deref())?;
    let waiting = state.publication.unsaved_review().map(|review| {
        let settled = continued.settled_units(run.id);
        review.clone().without_files(|file| {
            !file.units.is_empty() && file.units.iter().all(|unit| settled.contains(unit))
        })
    });
    let of_commits = match waiting {
        Some(_) => None,
        None => Some(committed_review(&runs, &run, &state)?),
    };
    let review = of_commits.as_ref().or(waiting.as_ref());
    if let Some(review) = review.filter(|_| !rules.is_empty()) {
        // A mistaken pattern must not begin a review.
        rules.commands(&state, review, true)?;
        let kept = rules.kept_count(&state, review);
        if kept > 0 {
            let text = format!(
                "{} with another decision: left as decided",
                text::pluralize(kept, "file")
            );
            exit::print_warning(
                &Problem::new(text).with_help("name a file to `--accept` to replace its decision"),
            );
        }
    }
    // Changes in a commit wait for nothing.
    let exit = if of_commits.is_some() {
        Exit::Ok
    } else {
        Exit::ReviewOpen
    };
    let is_active = runs.status(&run)? == RunStatus::Running;
    let is_screen =
        rules.is_empty() && !args.list && (global.is_engine || attach::is_on_screen(global));
    match (is_active, is_screen) {
        (true, true) if args.branch.is_some() => {
            Err(CliError::usage("--branch without decisions, and the run is active").with_help(format!(
                "add --accept or --reject, or end the review with `:finish-review NAME` on the screen of \
                 `ingestdeck attach {}`",
                run.id.short()
            )))
        }
        (true, true) => attach::attach_to(global, run, None),
        (true, false) if rules.is_empty() => print_changes(global, args, (&state, review), exit),
        (true, false) => decide_active(global, args, &run, &state, &rules),
        (false, _) if global.is_engine => resume_review(global, &run, None, args.branch.clone()),
        (false, true) => {
            let location = TapeLocation::InProject { flag: global.project_dir.clone() };
            Ok(attach::start_on_screen(global, None, location, None)?.exit)
        }
        (false, false) if rules.is_empty() => print_changes(global, args, (&state, review), exit),
        (false, false) => resume_review(global, &run, Some(rules), args.branch.clone()),
    }
}

/// The run that a review is about: the named one, or the newest with changes that wait.
fn find_reviewable_run(
    runs: &RunStore,
    continued: &ContinuedRuns,
    name: Option<&str>,
) -> Result<(RecordedRun, RunState), CliError> {
    if let Some(name) = name {
        let run = runs.resolve(name)?;
        let state = current_state(runs, &run)?;
        refuse_second_review(runs, continued, &run, &state)?;
        let is_active = runs.status(&run)? == RunStatus::Running;
        return match no_review_reason(&run, &state, is_active, &continued.settled_units(run.id)) {
            Some(reason) => Err(reason),
            None => Ok((run, state)),
        };
    }
    // The run that an active run continues, and why the active run has no changes.
    let mut before_active: Option<(Option<RunId>, CliError)> = None;
    for run in runs.list()? {
        let has_review = continued.has_open_review(run.id);
        if let Some((_, reason)) = before_active.take_if(|(before, _)| *before == Some(run.id)) {
            if has_review {
                return Err(reason);
            }
            before_active = Some((continued.continued_run(run.id), reason));
        }
        let is_continuing = continued.continued_run(run.id).is_some();
        // What is in commits is reviewed on request only.
        let is_active = (has_review || is_continuing) && runs.status(&run)? == RunStatus::Running;
        if !has_review && !is_active {
            continue;
        }
        let Ok(state) = current_state(runs, &run) else {
            continue;
        };
        match no_review_reason(&run, &state, is_active, &continued.settled_units(run.id)) {
            None if has_review => return Ok((run, state)),
            Some(reason) if has_review => return Err(reason),
            Some(reason) if is_active => {
                before_active = Some((continued.continued_run(run.id), reason))
            }
            None | Some(_) => {}
        }
    }
    Err(before_active.map(|(_, reason)| reason).unwrap_or_else(|| {
        CliError::not_found("no run of this project waits for a review").with_help(
            "start one with `ingestdeck run --review`, or name a run to review its commits: `ingestdeck review latest`",
        )
    }))
}

/// Why a run has no changes to decide about; `None` if it has. The results of the units `settled` no longer wait.
fn no_review_reason(
    run: &RecordedRun,
    state: &RunState,
    is_active: bool,
    settled: &HashSet<UnitKey>,
) -> Option<CliError> {
    let (id, publication) = (run.id.short(), &state.publication);
    let missing = || CliError::not_found(format!("run {id} has no changes that wait for a review"));
    let finished = publication
        .unsaved_review()
        .filter(|review| review.is_finished);
    let sent_back = finished
        .map(|review| review.units_sent_back(|_| false))
        .unwrap_or_default();
    let is_left = |unit: &UnitState| {
        matches!(
            unit.status,
            UnitStatus::Interrupted | UnitStatus::NotStarted | UnitStatus::Queued
        ) && sent_back.iter().any(|(sent, _)| *sent == unit.key)
            && !settled.contains(&unit.key)
    };
    match (publication.open_review(), publication.unsaved_review()) {
        (Some(_), _) => None,
        (None, Some(_)) if is_active => Some(missing().with_help(format!(
            "its units work again; follow it with `ingestdeck attach {id}`"
        ))),
        (None, Some(_)) if state.units.iter().any(is_left) => Some(
            CliError::not_found(format!(
                "run {id} ended while units made changes again that were sent back"
            ))
            .with_help(format!(
                "`ingestdeck run --resume-run {id}` runs them and keeps the decisions"
            )),
        ),
        (None, Some(_)) => None,
        (None, None) if is_active => Some(missing().with_help(match publication.saved {
            Some(_) => {
                "they are in a commit, which can be reviewed when the run has ended".to_owned()
            }
            None => format!("its units are not done; follow it with `ingestdeck attach {id}`"),
        })),
        (None, None) if resume::committed_run(run.id, state).is_some() => None,
        (None, None) => {
            Some(missing().with_help("start a run that waits with `ingestdeck run --review`"))
        }
    }
}

/// Refuses a review that a later run finished or continues, because two reviews of the same changes would contradict
/// each other, and both would be committed.
fn refuse_second_review(
    runs: &RunStore,
    continued: &ContinuedRuns,
    run: &RecordedRun,
    state: &RunState,
) -> Result<(), CliError> {
    let id = run.id.short();
    if let Some(by) = continued.reviewed_by(run.id) {
        let resume = match continued.has_left_out(run.id) {
            true => format!(
                "; `ingestdeck run --resume-run {id}` takes what it left out, if the plan contains it"
            ),
            false => String::new(),
        };
        return Err(CliError::not_found(format!(
            "the review of run {id} was finished by run {}",
            by.short()
        ))
        .with_help(format!(
            "show what it changed with `ingestdeck artifacts {}`{resume}",
            by.short()
        )));
    }
    let refused = |message: String, later: RunId| {
        Err(CliError::usage(message).with_help(format!(
            "continue with `ingestdeck review {}`",
            later.short()
        )))
    };
    if state.publication.unsaved_review().is_some() {
        return match continued.open_successor(run.id) {
            Some(later) => refused(
                format!(
                    "run {} continues run {id} and waits for decisions about its changes",
                    later.short()
                ),
                later,
            ),
            None => Ok(()),
        };
    }
    for later in runs
        .list()?
        .into_iter()
        .take_while(|later| later.id != run.id)
    {
        if !continued.has_open_review(later.id) || !ingest::is_run_marked(runs.project(), later.id)
        {
            continue;
        }
        // An unreadable record is reported when it is opened.
        let Ok(state) = current_state(runs, &later) else {
            continue;
        };
        if state.publication.committed_run == Some(run.id) {
            let name = later.id.short();
            let message = format!(
                "the commits of run {id} are reviewed by run {name}, which waits for decisions"
            );
            return refused(message, later.id);
        }
    }
    Ok(())
}

/// The review of what the commits of a run changed, without any decision.
fn committed_review(
    runs: &RunStore,
    run: &RecordedRun,
    state: &RunState,
) -> Result<ReviewState, CliError> {
    let id = run.id.short();
    let project = runs.project();
    let of =
        resume::committed_run(run.id, state).filter(|_| ingest::is_run_marked(project, run.id));
    let repository = Repository::find_for_reading(project)
        .map_err(|error| CliError::from_error(Exit::Usage, &error))?;
    let refused = |reason: &str| {
        CliError::not_found(format!(
            "the commits of run {id} cannot be reviewed: {reason}"
        ))
        .with_help(format!(
            "show what the run changed with `ingestdeck artifacts {id}`"
        ))
    };
    let of = of.ok_or_else(|| refused("this installation did not record it"))?;
    let repository = repository.ok_or_else(|| refused("the repository with them is gone"))?;
    let branch = state.publication.target_branch.as_deref();
    let (request, left_out) = repository
        .committed_review(&of, branch)
        .map_err(CliError::internal)?;
    let messages = committed_changes::left_out_messages(&left_out);
    if request.files.is_empty() {
        let error = CliError::not_found(format!(
            "the commits of run {id} have no changes left to review"
        ));
        return Err(messages
            .into_iter()
            .fold(error, CliError::with_cause)
            .with_help(format!(
                "show what the run changed with `ingestdeck artifacts {id}`"
            )));
    }
    messages
        .into_iter()
        .for_each(|message| exit::print_warning(&Problem::new(message)));
    Ok(ReviewState::new(request.into(), None))
}

fn current_state(runs: &RunStore, run: &RecordedRun) -> Result<RunState, CliError> {
    Ok(recorded_tapes::fold(runs, run)?)
}

fn print_changes(
    global: &GlobalArgs,
    args: &ReviewArgs,
    (state, review): (&RunState, Option<&ReviewState>),
    exit: Exit,
) -> Result<Exit, CliError> {
    let Some(review) = review else {
        return Ok(Exit::Ok);
    };
    let diff = args.diff;
    let rows = review.by_path().map(|(file, review)| {
        let names = file_verification(state, file);
        let (mut json, mut text) = (
            change_json(file, review, diff),
            change_text(file, review, diff),
        );
        if !names.is_empty() {
            json["verification"] = verification_json(&names);
            let sentence = names.sentence();
            let names = text::printable(&sentence, output::max_width(MAX_REASON_WIDTH));
            // It precedes the diff.
            let end = text.find('\n').unwrap_or(text.len());
            text.insert_str(end, &format!("\n    {names}"));
        }
        (json, text)
    });
    let summary = (counts_json(review), counts_text(review));
    ctl::print_rows(global, rows.chain([summary]))?;
    Ok(exit)
}

fn change_json(file: &ReviewedFile, review: &FileReview, diff: bool) -> Value {
    let hunks = review.hunks.iter().map(|hunk| {
        let mut json = json!({"id": hunk.id, "decision": hunk.decision, "feedback": hunk.feedback});
        if let Some(reason) = &hunk.reason {
            json["reason"] = json!(reason);
        }
        json
    });
    let mut json = json!({
        "type": "change", "path": file.path, "change": file.change, "units": file.units,
        "decision": review.decision(), "hunks": hunks.collect::<Vec<_>>(),
    });
    if diff {
        json["diff"] = json!(file.diff);
        if let Some(text) = &review.edited {
            json["text"] = json!(text);
        }
    }
    json
}

fn change_text(file: &ReviewedFile, review: &FileReview, diff: bool) -> String {
    let decision = review
        .decision()
        .map_or("partly decided", ReviewDecision::as_str);
    let path = text::printable(&file.path, output::max_width(MAX_PATH_WIDTH));
    let units = file
        .units
        .iter()
        .map(|unit| text::printable(unit, output::max_width(MAX_PATH_WIDTH)))
        .collect::<Vec<_>>()
        .join(", ");
    let mut line = format!("{decision:<14} {:<8} {path}  {units}", file.change.as_str());
    if let Some(feedback) = review.hunks.iter().find_map(HunkReview::ignored_feedback) {
        let sentence = format!("unchanged since it was sent back: {feedback}");
        let sentence = text::printable(&sentence, output::max_width(MAX_REASON_WIDTH));
        line.push_str(&format!("\n    {sentence}"));
    }
    if diff {
        if review.edited.is_some() {
            line.push_str("\n    the text of the reviewer, which replaces the file:");
        }
        for row in review.edited.as_deref().unwrap_or(&file.diff).lines() {
            line.push_str(&format!(
                "\n    {}",
                text::printable(row, output::max_width(MAX_PATH_WIDTH))
            ));
        }
    }
    line
}

fn counts_json(review: &ReviewState) -> Value {
    let counts = review.counts();
    json!({
        "type": "review", "base": review.request.base, "open": counts.open, "accepted": counts.accepted,
        "rejected": counts.rejected, "edited": counts.edited, "sent_back": counts.sent_back,
    })
}

fn counts_text(review: &ReviewState) -> String {
    let counts = review.counts();
    let mut parts = vec![
        format!("{} open", counts.open),
        format!("{} accepted", counts.accepted),
    ];
    let others = [
        (counts.rejected, "rejected"),
        (counts.edited, "edited"),
        (counts.sent_back, "sent back"),
    ];
    parts.extend(
        others
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}")),
    );
    parts.join(", ")
}

/// Sends the decisions to the engine of an active run, and ends the review if nothing is left open.
fn decide_active(
    global: &GlobalArgs,
    args: &ReviewArgs,
    run: &RecordedRun,
    state: &RunState,
    rules: &ReviewRules,
) -> Result<Exit, CliError> {
    let Some(review) = state.publication.open_review() else {
        return Ok(Exit::Ok);
    };
    let commands = rules.commands(state, review, true)?;
    let origin = CommandOrigin {
        client: Some("review".to_owned()),
        reason: None,
    };
    runtime(1)?.block_on(async {
        let mut client = ControlClient::connect(run.id, origin)
            .await
            .map_err(ctl::connection_error)?;
        for command in commands {
            accepted(
                client
                    .execute(command)
                    .await
                    .map_err(ctl::connection_error)?,
            )?;
        }
        Ok::<_, CliError>(())
    })?;
    let runs = runs::resolve_store(global)?;
    let after = settled_state(&runs, run)?;
    match after.publication.open_review() {
        Some(review)
            if after.publication.save_error.is_none() && after.publication.blocked.is_empty() =>
        {
            let (open, id) = (
                text::pluralize(review.counts().open, "change"),
                run.id.short(),
            );
            let next =
                format!("`ingestdeck review {id} --accept '*'` accepts them and ends the review");
            if review.counts().open > 0 {
                exit::print_warning(
                    &Problem::new(format!("{open} without a decision")).with_help(next),
                );
            }
            print_changes(
                global,
                args,
                (&after, after.publication.unsaved_review()),
                Exit::ReviewOpen,
            )
        }
        _ => print_result(global, state, &after),
    }
}

/// The state of an active run once the end of a review has had its effect.
fn settled_state(runs: &RunStore, run: &RecordedRun) -> Result<RunState, CliError> {
    loop {
        let is_active = runs.status(run)? == RunStatus::Running;
        let state = current_state(runs, run)?;
        let publication = &state.publication;
        let works = state
            .units
            .iter()
            .any(|unit| unit.status.is_in_flight() || unit.status == UnitStatus::Queued);
        let is_settled = publication.open_review().is_some()
            || publication.unsaved_review().is_none()
            || publication.save_error.is_some()
            || state.ended.is_some()
            || works;
        if !is_active || is_settled {
            return Ok(state);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Prints what the end of a review led to; `before` is the state of the run when it was decided.
fn print_result(
    global: &GlobalArgs,
    before: &RunState,
    state: &RunState,
) -> Result<Exit, CliError> {
    let publication = &state.publication;
    let commit = |state: &RunState| {
        state
            .publication
            .saved
            .as_ref()
            .and_then(|saved| saved.commit.clone())
    };
    let saved = commit(state).filter(|new| commit(before).as_ref() != Some(new));
    let of_saved = publication
        .saved
        .as_ref()
        .and_then(|saved| saved.branch.as_deref());
    let branch = publication
        .target_branch
        .as_deref()
        .filter(|branch| saved.is_some() && of_saved == Some(*branch));
    let on_branch = branch.map(|branch| {
        format!(
            " on branch {}",
            text::printable(branch, output::max_width(MAX_PATH_WIDTH))
        )
    });
    let unsaved = publication.unsaved_review();
    let again: Vec<UnitKey> = match (unsaved, &publication.save_error) {
        (Some(review), None) => review
            .units_sent_back(|_| false)
            .into_iter()
            .map(|(unit, _)| unit)
            .collect(),
        _ => Vec::new(),
    };
    let left: Vec<&str> = publication
        .blocked
        .iter()
        .map(|left| left.path.as_str())
        .collect();
    let skip = (saved.is_none()
        && publication.save_error.is_some()
        && publication.count_without_blocked() > 0)
        .then_some("or commit the other files with --skip-blocked");
    let text = match (&saved, publication.save_error.as_deref()) {
        (Some(commit), _) => {
            let without = if left.is_empty() {
                String::new()
            } else {
                format!(" without {}", text::list_some(&left))
            };
            let commit = commit.get(..8).unwrap_or(commit);
            let without = text::printable(&without, output::max_width(MAX_REASON_WIDTH));
            format!(
                "saved as commit {commit}{}{without}",
                on_branch.unwrap_or_default()
            )
        }
        (None, Some(error)) => {
            let error = text::printable(error, output::max_width(MAX_REASON_WIDTH));
            format!(
                "not saved: {error}{}",
                skip.map(|skip| format!("; {skip}")).unwrap_or_default()
            )
        }
        (None, None) if unsaved.is_none() => "nothing to commit".to_owned(),
        (None, None) => format!(
            "{} sent back; the run continues",
            text::pluralize(again.len(), "unit")
        ),
    };
    let mut json = finished_json(publication, saved.as_deref(), branch, &again);
    if let Some(skip) = skip {
        json["help"] = skip.into();
    }
    ctl::print_rows(global, [(json, text)].into_iter())?;
    Ok(match publication.save_error {
        Some(_) if publication.is_review_blocked() => Exit::ReviewOpen,
        Some(_) => Exit::UnitFailed,
        None if !left.is_empty() => Exit::ReviewOpen,
        None => Exit::Ok,
    })
}

/// The end of a review; `commit` contains what was accepted of it.
pub fn finished_json(
    publication: &Publication,
    commit: Option<&str>,
    branch: Option<&str>,
    sent_back: &[UnitKey],
) -> Value {
    let mut json = json!({
        "type": "review_finished", "commit": commit, "branch": branch, "not_saved": publication.save_error,
        "sent_back": sent_back,
    });
    if let (Some(review), true) = (
        &publication.review,
        commit.is_some() && !publication.blocked.is_empty(),
    ) {
        let bound = review.units_bound_to(&publication.blocked);
        let left_out = review
            .request
            .files
            .iter()
            .filter(|file| is_bound(file, &bound))
            .map(|file| {
                let mut json = json!({"path": file.path, "units": file.units});
                if let Some(reason) = publication.blocked_reason(&file.path) {
                    json["reason"] = reason.into();
                }
                json
            });
        json["left_out"] = left_out.collect();
    }
    json
}

/// Continues the review of a run that ended: integrates its patches again, then waits for decisions.
fn resume_review(
    global: &GlobalArgs,
    run: &RecordedRun,
    rules: Option<ReviewRules>,
    branch: Option<String>,
) -> Result<Exit, CliError> {
    let args = RunArgs {
        no_reconcile: true,
        branch,
        ..RunArgs::default()
    };
    let request = RunRequest {
        review: Some(ReviewOptions {
            is_decided: rules.is_some(),
            ..ReviewOptions::default()
        }),
        reviewed_run: Some(run.id.to_string()),
        rules: rules.map(Arc::new),
        ..RunRequest::default()
    };
    start_run(global, &args, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingestdeck_core::tape::note::{
        ReviewDecided, ReviewRequested, attempt_output::ArtifactChange,
    };

    #[test]
    fn changes_have_a_stable_json_form() {
        let file = ReviewedFile {
            path: "wiki/global/a.md".into(),
            change: ArtifactChange::Updated,
            units: vec!["docs-a".into()],
            diff: "@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-c\n+d\n".into(),
            before: None,
            omitted: None,
        };
        let request = ReviewRequested {
            base: "c0ffee".into(),
            files: vec![file],
            ..ReviewRequested::default()
        };
        let mut review = ReviewState::new(request.into(), None);
        let [first, second] = [0, 1].map(|hunk: usize| review.files[0].hunks[hunk].id.to_string());
        review.decide(&ReviewDecided {
            path: "wiki/global/a.md".into(),
            hunk: Some(first.clone()),
            decision: ReviewDecision::SentBack,
            text: None,
            feedback: Some("why?".into()),
            reason: None,
        });
        let (file, decisions) = review.by_path().next().unwrap();
        let expected = json!({
            "type": "change", "path": "wiki/global/a.md", "change": "updated", "units": ["docs-a"], "decision": null,
            "hunks": [
                {"id": first, "decision": "sent_back", "feedback": "why?"},
                {"id": second, "decision": "open", "feedback": null},
            ],
            "diff": file.diff,
        });
        assert_eq!(change_json(file, decisions, true), expected);
        let counts = json!({
            "type": "review", "base": "c0ffee", "open": 1, "accepted": 0, "rejected": 0, "edited": 0, "sent_back": 1,
        });
        assert_eq!(counts_json(&review), counts);
        // Scripts keep ids, so they must not change.
        assert_eq!(
            (first.as_str(), second.as_str()),
            ("eefeda0204c56970", "93eb09a6ce3467f2")
        );
    }
}
