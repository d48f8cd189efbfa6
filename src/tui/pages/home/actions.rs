//! The home screen: opening, comparing, resuming and starting runs.

use super::{HomeLine, HomePage, HomeRun, HomeRunState};
use crate::{
    action::{ActionScope, Availability, Unavailable, UserAction, require},
    action_spec::{ActionSpec, change, effects},
    effect::ScreenEffect,
    home_choice::HomeChoice,
    model::{ConfirmQuestion, InputPurpose, LineInput},
    page::ScreenModel,
    pages::record_search::actions as record_search,
};
use ingestdeck_core::run::state::RunView;

pub(crate) const ACTIONS: &[ActionSpec] = &[
    effects(
        UserAction::StartRun,
        "start-run",
        "new run",
        "start a run of the project",
        start,
    )
    .scope(ActionScope::Home)
    .when(can_start),
    effects(
        UserAction::ResumeRun,
        "resume-run",
        "resume",
        "run the units of a run that did not succeed",
        resume,
    )
    .scope(ActionScope::Home)
    .when(can_resume),
    effects(
        UserAction::DiffRuns,
        "diff-runs",
        "diff",
        "compare with another run: select that one and press again",
        diff,
    )
    .scope(ActionScope::Home)
    .when(|model, _| require(selected_run(model).is_some()))
    .special_hint(|model, _| view(model)?.compared.as_ref().map(|_| "diff with this")),
    change(
        UserAction::OpenPath,
        "open-path",
        "open path",
        "open a file, or a directory with records",
        |model, _| {
            model.dialogs.line_input = Some(LineInput::new(InputPurpose::OpenPath));
        },
    )
    .scope(ActionScope::Home),
    change(
        UserAction::FindText,
        "find-text",
        "find",
        "find a text in all runs and sessions",
        record_search::type_text,
    )
    .scope(ActionScope::Home)
    .when(|model, _| require(model.connection.has_record_search)),
];

/// Opens the file or directory that was typed.
pub(crate) fn open_path(path: &str) -> Vec<ScreenEffect> {
    let path = path.trim();
    let choice = HomeChoice::File(path.into());
    (!path.is_empty())
        .then_some(ScreenEffect::Choose(choice))
        .into_iter()
        .collect()
}

/// The home screen, if it is shown.
fn view(model: &ScreenModel) -> Option<&HomePage> {
    model.top()
}

fn selected_run(model: &ScreenModel) -> Option<&HomeRun> {
    view(model)?.run()
}

/// Opens the selected run or session.
pub(super) fn open(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let choice = match view(model).and_then(HomePage::line) {
        Some(HomeLine::Run(run)) if run.state == HomeRunState::Active => {
            HomeChoice::Watch(run.id.clone())
        }
        Some(HomeLine::Run(run)) => HomeChoice::Replay(run.id.clone()),
        Some(HomeLine::Session(session)) => HomeChoice::File(session.path.clone()),
        Some(HomeLine::LeftOut { path, .. }) => HomeChoice::File(path.clone()),
        Some(HomeLine::Command(choice, _)) => choice.clone(),
        Some(HomeLine::Heading(_) | HomeLine::Text(_)) | None => return Vec::new(),
    };
    vec![ScreenEffect::Choose(choice)]
}

/// Opens the selected background session in Claude Code.
pub(super) fn attach_session(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let session = view(model).and_then(HomePage::session);
    let id = session.and_then(|session| session.background.clone());
    id.map(|id| ScreenEffect::Choose(HomeChoice::Watch(id)))
        .into_iter()
        .collect()
}

/// Asks whether to stop the selected background session.
pub(super) fn stop_session(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let session = view(model).and_then(HomePage::session);
    let Some(id) = session.and_then(|session| session.background.clone()) else {
        return Vec::new();
    };
    let text = format!("Stop background session {id}?");
    let details = vec!["Its conversation is kept; Claude Code can resume it.".to_owned()];
    let command = format!("claude stop {id}");
    ask(model, text, details, command, HomeChoice::StopSession(id))
}

fn can_start(model: &ScreenModel, _: &RunView) -> Availability {
    let Some(view) = view(model) else {
        return Err(Unavailable::NoEffect);
    };
    if !view.content.is_project {
        return Err(Unavailable::because(
            "there is no ktx.yaml here; `ingestdeck init` writes one",
        ));
    }
    require_no_active_run(view)
}

fn require_no_active_run(view: &HomePage) -> Availability {
    let active =
        view.count(|line| matches!(line, HomeLine::Run(run) if run.state == HomeRunState::Active));
    match active {
        0 => Ok(()),
        _ => Err(Unavailable::because(
            "a run of this project is active; open it, or stop it first",
        )),
    }
}

fn start(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let Some(view) = view(model) else {
        return Vec::new();
    };
    let text = format!("Start a run of {}?", view.content.name);
    let details = vec![
        "It runs the units that are new or changed, and spends money.".to_owned(),
        "`ingestdeck plan` lists them with their expected cost.".to_owned(),
    ];
    ask(
        model,
        text,
        details,
        "ingestdeck run".to_owned(),
        HomeChoice::Start,
    )
}

fn can_resume(model: &ScreenModel, _: &RunView) -> Availability {
    match selected_run(model) {
        None => Err(Unavailable::NoEffect),
        Some(run) if run.is_resumable() => view(model).map_or(Ok(()), require_no_active_run),
        Some(run) if run.is_scripted => {
            Err(Unavailable::because("a scripted run cannot be resumed"))
        }
        Some(run) if run.state == HomeRunState::Active => {
            Err(Unavailable::because("this run is active; open it"))
        }
        Some(run) if run.state == HomeRunState::Unknown => Err(Unavailable::because(
            "the outcome of this run is unknown; open it to see its units",
        )),
        Some(_) => Err(Unavailable::because("every unit of this run succeeded")),
    }
}

fn resume(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let Some(run) = selected_run(model) else {
        return Vec::new();
    };
    let text = format!("Resume run {}?", run.short);
    let details = vec![
        "Units that succeeded with the same content are reused.".to_owned(),
        "The others run again, which spends money.".to_owned(),
    ];
    let (command, choice) = (
        format!("ingestdeck run --resume-run {}", run.short),
        HomeChoice::Resume(run.id.clone()),
    );
    ask(model, text, details, command, choice)
}

fn ask(
    model: &mut ScreenModel,
    text: String,
    mut details: Vec<String>,
    command: String,
    choice: HomeChoice,
) -> Vec<ScreenEffect> {
    details.push(format!("Command: {command}"));
    model.dialogs.question = Some(ConfirmQuestion::new(
        text,
        details,
        vec![ScreenEffect::Choose(choice)],
    ));
    Vec::new()
}

/// Marks the selected run, or compares it with the marked one.
fn diff(model: &mut ScreenModel, _: &RunView) -> Vec<ScreenEffect> {
    let Some(view) = model.top_mut::<HomePage>() else {
        return Vec::new();
    };
    let Some(run) = view.run().map(|run| run.id.clone()) else {
        return Vec::new();
    };
    match view.compared.take() {
        Some(marked) if marked == run => Vec::new(),
        Some(marked) => {
            // Ids are ordered by time.
            let (earlier, later) = if marked < run {
                (marked, run)
            } else {
                (run, marked)
            };
            vec![ScreenEffect::Choose(HomeChoice::Diff(earlier, later))]
        }
        None => {
            view.compared = Some(run);
            Vec::new()
        }
    }
}
