//! The tasks in the background of the shown attempts: commands, sub-agents and workflows.

use ratatui::buffer::Buffer;

use crate::{
    action::{Availability, UserAction, require},
    effect::{ExportRequest, ExportTool, PagerContent, ScreenEffect},
    layout::{Pane, ScreenLayout},
    model::{ScrollList, SharedModel},
    page::{DrawContext, Page, PageKey, ScreenModel, acts_on_unit},
};
use ingestdeck_core::{
    control::{AgentRequest, RunCommand},
    run::state::{AgentTask, RunView, TaskState, UnitState},
};

mod view;

#[derive(Clone, Debug, Default)]
pub(crate) struct TasksPage(ScrollList);

/// The tasks in the background of the newest attempts, each with the index of its unit.
fn tasks(run_view: &RunView) -> impl Iterator<Item = (usize, &AgentTask)> {
    let units = run_view.state.units.iter().enumerate();
    units.flat_map(|(unit, state)| {
        let attempt = state.latest().into_iter();
        attempt
            .flat_map(|attempt| attempt.live.background_tasks())
            .map(move |task| (unit, task))
    })
}

impl Page for TasksPage {
    fn name(&self) -> &'static str {
        "the tasks in the background"
    }

    fn hints(&self, _: &SharedModel, _: &RunView) -> &'static [UserAction] {
        use UserAction::*;
        &[Back, Open, Stop]
    }

    fn keys(&self) -> &'static [PageKey] {
        const KEYS: &[PageKey] = &[
            PageKey::new(UserAction::Open, "go there", go_to_selected)
                .when(is_selected)
                .about("show the row of the task"),
            PageKey::new(UserAction::Stop, "stop task", stop_selected)
                .when(can_stop)
                .about("stop the selected task"),
        ];
        KEYS
    }

    fn offers(&self, action: UserAction) -> bool {
        action == UserAction::Stop || !acts_on_unit(action)
    }

    fn list(&self) -> Option<&ScrollList> {
        Some(&self.0)
    }

    fn list_mut(&mut self) -> Option<&mut ScrollList> {
        Some(&mut self.0)
    }

    fn len(&self, _: &SharedModel, run_view: &RunView) -> usize {
        tasks(run_view).count()
    }

    fn unit<'a>(&self, _: &SharedModel, run_view: &'a RunView) -> Option<&'a UnitState> {
        let (unit, _) = tasks(run_view).nth(self.0.selected)?;
        run_view.state.units.get(unit)
    }

    fn export(
        &self,
        _: &SharedModel,
        run_view: &RunView,
        tool: ExportTool,
    ) -> Option<ExportRequest> {
        let line = |(_, task): (usize, &AgentTask)| {
            let AgentTask {
                id, kind, title, ..
            } = task;
            let summary = task.summary.as_deref().unwrap_or_default();
            format!("{} {kind} {id} {title} {summary}\n", task.state.as_str())
        };
        let text = tasks(run_view).map(line).collect();
        Some(ExportRequest::pager_only(
            "tasks",
            PagerContent::Text(text),
            tool,
        ))
    }

    fn draw(&self, scene: &DrawContext<'_>, plan: &ScreenLayout, buf: &mut Buffer) {
        view::draw(scene, &self.0, plan.body, buf);
    }
}

fn selected<'a>(model: &ScreenModel, run_view: &'a RunView) -> Option<(usize, &'a AgentTask)> {
    tasks(run_view).nth(model.top::<TasksPage>()?.0.selected)
}

fn is_selected(model: &ScreenModel, run_view: &RunView) -> Availability {
    require(selected(model, run_view).is_some())
}

fn can_stop(model: &ScreenModel, run_view: &RunView) -> Availability {
    let is_running =
        selected(model, run_view).is_some_and(|(_, task)| task.state == TaskState::Running);
    let reaches_session = model.connection.is_session && model.connection.accepts_commands();
    require(is_running && reaches_session)
}

fn stop_selected(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let command = selected(model, run_view).and_then(|(unit, task)| {
        Some(RunCommand::Request {
            unit: run_view.state.units.get(unit)?.key.clone(),
            request: AgentRequest::StopTask(task.id.to_string()),
        })
    });
    command.into_iter().map(ScreenEffect::Command).collect()
}

/// Shows the actions of the unit, with the row of the task selected.
fn go_to_selected(model: &mut ScreenModel, run_view: &RunView) -> Vec<ScreenEffect> {
    let Some((unit, task)) = selected(model, run_view) else {
        return Vec::new();
    };
    model.reveal(run_view, unit);
    let attempt = run_view.state.units.get(unit).and_then(UnitState::latest);
    if let (Some(row), Some(attempt)) = (task.row, attempt) {
        model.units_view.focus = Pane::Stream;
        model
            .units_view
            .stream
            .select(row, run_view.rows(attempt.id).len());
    }
    Vec::new()
}
