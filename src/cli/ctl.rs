//! `ctl`: commands to a run of another process, and its state.
//!
//! State is read from the tape; only commands go to the engine.

use std::io::Write as _;

use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::{
    args::{CtlArgs, CtlVerb, GlobalArgs, LimitName, Ui},
    background_sessions, ctl_answer, ctl_events,
    exit::{CliError, Exit},
    output, playback_output, runs,
    summary::RunSummary,
};
use ingestdeck_core::{
    actions::input_form::InputForm,
    config::value::parse_duration,
    control::{
        AgentRequest, BreakCondition, CommandOrigin, CommandReply, FailureRule, NamePattern,
        RunCommand, RunLimit, UserDecision,
    },
    run::{
        PollStatus, Timeline, plain_reason,
        state::{HeldCallState, RunState, TaskState, UnitState, WorkerState},
    },
    tape::{Millis, UnitKey, note::Amendment},
    text,
};
use ingestdeck_engine::{
    control_socket::{ControlClient, ControlClientError},
    launch::runtime,
    recorded_tapes,
};
use ingestdeck_records::store::{RecordedRun, RunStatus, RunStore};
use ingestdeck_tui::model::wall_clock;

/// Lines of a summary that contain counts only.
const COUNT_LINES: usize = 2;

/// The value of a limit that does not apply.
const NO_LIMIT: &str = "none";

/// Maximum width of a text from outside the program, in columns.
const MAX_TEXT_WIDTH: usize = 160;

/// Sends a command to a run, or shows its state.
///
/// # Errors
/// If the run does not exist or is not active, or if its engine refuses the command.
pub(crate) fn ctl(global: &GlobalArgs, args: &CtlArgs) -> Result<Exit, CliError> {
    let ui = if args.json { Ui::Json } else { global.ui };
    let global = &GlobalArgs {
        ui,
        ..global.clone()
    };
    let runs = runs::resolve_store(global)?;
    let run = match &args.run {
        Some(name) => match (runs.resolve(name), &args.verb) {
            (Err(error), CtlVerb::StopAll { .. }) => {
                let by_claude = background_sessions::run_claude(global, "stop", name);
                return by_claude.unwrap_or_else(|| Err(error.into()));
            }
            (resolved, _) => resolved?,
        },
        None => find_active_run(&runs, "--run")?,
    };
    match &args.verb {
        CtlVerb::Status { content } => {
            let is_active = runs.status(&run)? == RunStatus::Running;
            print_status(global, &read_run(&runs, &run)?, is_active, *content)
        }
        CtlVerb::Units { content } => {
            let timeline = read_run(&runs, &run)?;
            let units = timeline.view().state.units.iter();
            print_rows(
                global,
                units.map(|unit| (unit_json(unit, *content), unit_line(unit, *content))),
            )
        }
        CtlVerb::Approvals { content } => {
            let timeline = read_run(&runs, &run)?;
            let calls = held_calls(&timeline.view().state);
            print_rows(
                global,
                calls.map(|(unit, call)| {
                    let (mut json, mut line) = (call_json(unit, call), call_line(unit, call));
                    if *content {
                        ctl_answer::add_content(call, &mut json, &mut line);
                    }
                    (json, line)
                }),
            )
        }
        CtlVerb::Workers => {
            let timeline = read_run(&runs, &run)?;
            let state = &timeline.view().state;
            let workers = state.workers.present.iter();
            let pool = &state.workers.pool;
            let others = (!pool.runs.is_empty()).then(|| {
                let line = pool.to_string();
                let line = text::printable(&line, output::max_width(MAX_TEXT_WIDTH));
                (
                    json!({"type": "pool", "runs": pool.runs}),
                    line.into_owned(),
                )
            });
            let rows = workers.map(|(name, worker)| {
                let running = running_on(state, name);
                let others = pool.slots.get(&**name).copied().unwrap_or_default();
                (
                    worker_json(name, worker, others, &running),
                    worker_line(name, worker, others, &running),
                )
            });
            print_rows(global, rows.chain(others))
        }
        CtlVerb::Events { follow, content } => {
            ctl_events::print_events(&runs, &run, *follow, *content)
        }
        verb => {
            let command = to_command(verb, args.reason.as_deref(), || read_run(&runs, &run))?;
            send(global, &run, command, args.reason.as_deref())
        }
    }
}

/// The only active run. `how` is how the user names another one.
pub(super) fn find_active_run(runs: &RunStore, how: &str) -> Result<RecordedRun, CliError> {
    let mut active = Vec::new();
    for run in runs.list()? {
        if runs.status(&run)? == RunStatus::Running {
            active.push(run);
        }
    }
    match active.len() {
        1 => Ok(active.remove(0)),
        0 => Err(
            CliError::not_found("no run is active in this project").with_help(format!(
                "name a run with {how}, or start one with `ingestdeck run`"
            )),
        ),
        _ => {
            let ids: Vec<String> = active.iter().map(|run| run.id.short()).collect();
            Err(
                CliError::usage(format!("several runs are active: {}", ids.join(", ")))
                    .with_help(format!("name one with {how}")),
            )
        }
    }
}

/// Everything that the run has recorded so far.
fn read_run(runs: &RunStore, run: &RecordedRun) -> Result<Timeline, CliError> {
    let is_active = runs.status(run)? == RunStatus::Running;
    let source = match is_active {
        true => recorded_tapes::follow(runs, run).map(|(source, _)| source),
        false => recorded_tapes::open_source(runs, run),
    };
    let mut timeline = Timeline::new_forward_only(Box::new(source?.with_shortened_lines()));
    while timeline.advance(1 << 20, &mut |_| {})? == PollStatus::More {}
    if is_active {
        playback_output::advance_to_now(&mut timeline, &mut |_| {});
    }
    Ok(timeline)
}

fn held_calls(state: &RunState) -> impl Iterator<Item = (&UnitKey, &HeldCallState)> {
    let units = state.units.iter().filter_map(|unit| {
        unit.latest()
            .map(|attempt| (&unit.key, &attempt.held_calls))
    });
    units.flat_map(|(unit, calls)| calls.iter().map(move |call| (unit, call)))
}

/// Claude Code answers a request to stop a task that does not run like any other.
fn check_task(state: &RunState, unit: &str, task: &str) -> Result<(), CliError> {
    let Some(known) = state.unit(&unit.into()) else {
        // The engine names the units.
        return Ok(());
    };
    let tasks = known
        .latest()
        .and_then(|attempt| attempt.live.tasks.as_deref());
    let running = tasks.into_iter().flatten();
    let running = running.filter(|task| task.state == TaskState::Running);
    let ids: Vec<&str> = running.map(|task| &*task.id).collect();
    if ids.contains(&task) {
        return Ok(());
    }
    let error = CliError::not_found(format!(
        "no task `{}` of {unit} runs",
        text::printable(task, 40)
    ));
    Err(match ids.as_slice() {
        [] => error,
        ids => error.with_help(format!(
            "running tasks: {}",
            text::printable(&ids.join(", "), 400)
        )),
    })
}

/// The command of a verb that changes the run. `read` provides the state, which names the waiting call.
fn to_command(
    verb: &CtlVerb,
    reason: Option<&str>,
    read: impl Fn() -> Result<Timeline, CliError>,
) -> Result<RunCommand, CliError> {
    let decide = |unit: &str, call: Option<&str>, decision| -> Result<RunCommand, CliError> {
        let call = match call {
            Some(call) => Some(call.into()),
            None => oldest_call(read()?.view().state.units.iter(), unit)?,
        };
        Ok(RunCommand::Decide {
            unit: unit.into(),
            call,
            decision,
        })
    };
    let ask = |unit: &str, request| RunCommand::Request {
        unit: unit.into(),
        request,
    };
    Ok(match verb {
        CtlVerb::Retry {
            unit,
            feedback,
            model,
            turns,
        } => {
            let amendment = Amendment {
                feedback: feedback.clone(),
                model: model.clone(),
                step_budget: *turns,
                ..Amendment::default()
            };
            RunCommand::Retry {
                unit: unit.as_str().into(),
                amendment: Some(amendment).filter(|it| !it.is_empty()),
            }
        }
        CtlVerb::RetryFailed => RunCommand::RetryUnsuccessful,
        CtlVerb::Stop { unit } => RunCommand::Stop {
            unit: unit.as_str().into(),
        },
        CtlVerb::StopAll { kill: false } => RunCommand::StopAll,
        CtlVerb::StopAll { kill: true } => RunCommand::KillAll,
        CtlVerb::Drain => RunCommand::Drain,
        CtlVerb::AddWorker { worker } => RunCommand::AddWorker {
            url: worker.clone(),
        },
        CtlVerb::UndrainWorker { worker } => RunCommand::UndrainWorker {
            worker: worker.clone(),
        },
        CtlVerb::DrainWorker { worker } => RunCommand::DrainWorker {
            worker: worker.clone(),
        },
        CtlVerb::StopWorker { worker } => RunCommand::StopWorker {
            worker: worker.clone(),
        },
        CtlVerb::LiftLimit => RunCommand::LiftLimit,
        CtlVerb::Pause => RunCommand::Pause,
        CtlVerb::Resume => RunCommand::Resume,
        CtlVerb::Set { limit, value } => limit_command(*limit, value)?,
        CtlVerb::Hold { unit } => RunCommand::Hold {
            unit: unit.as_str().into(),
        },
        CtlVerb::RunUntil {
            unit,
            failure,
            tool,
            path,
            cost,
        } => {
            let pattern = |text: &String| {
                NamePattern::new(text)
                    .map_err(|why| CliError::usage(format!("invalid pattern `{text}`: {why}")))
            };
            let mut conditions: Vec<BreakCondition> = failure
                .then_some(BreakCondition::Failure)
                .into_iter()
                .collect();
            for tool in tool {
                conditions.push(BreakCondition::Tool(pattern(tool)?));
            }
            for path in path {
                conditions.push(BreakCondition::Path(pattern(path)?));
            }
            if let Some(cost) = cost.filter(|cost| !(cost.is_finite() && *cost > 0.0)) {
                return Err(CliError::usage(format!(
                    "invalid --cost `{cost}`; expected an amount above 0"
                )));
            }
            conditions.extend(cost.map(BreakCondition::Cost));
            RunCommand::RunUntil {
                unit: unit.as_str().into(),
                call: None,
                conditions,
            }
        }
        CtlVerb::Say { unit, text } => RunCommand::Say {
            unit: unit.as_str().into(),
            text: text.clone(),
        },
        CtlVerb::Accept { unit } => RunCommand::Accept {
            unit: unit.as_str().into(),
        },
        CtlVerb::Leash { unit, calls } => RunCommand::Leash {
            unit: unit.as_str().into(),
            calls: *calls,
        },
        CtlVerb::Release { unit } => RunCommand::Release {
            unit: unit.as_str().into(),
        },
        CtlVerb::Allow { unit, call } => decide(unit, call.as_deref(), UserDecision::Allow)?,
        CtlVerb::Deny { unit, call } => {
            let reason = reason.ok_or_else(|| {
                CliError::usage("a denial needs a reason")
                    .with_help("add --reason TEXT, which the model receives")
            })?;
            decide(unit, call.as_deref(), UserDecision::Deny(reason.to_owned()))?
        }
        CtlVerb::Answer {
            unit,
            choose,
            text,
            call,
        } => {
            let timeline = read()?;
            let (call, answer) =
                ctl_answer::answer(&timeline.view().state, unit, call.as_deref(), choose, text)?;
            RunCommand::Decide {
                unit: unit.as_str().into(),
                call,
                decision: UserDecision::Answer(answer),
            }
        }
        CtlVerb::Model { unit, model } => ask(unit, AgentRequest::Model(model.clone())),
        CtlVerb::PermissionMode { unit, mode } => {
            ask(unit, AgentRequest::PermissionMode(mode.clone()))
        }
        CtlVerb::Context { unit } => ask(unit, AgentRequest::Context),
        CtlVerb::Usage { unit } => ask(unit, AgentRequest::Usage),
        CtlVerb::StopTask { unit, task } => {
            check_task(&read()?.view().state, unit, task)?;
            ask(unit, AgentRequest::StopTask(task.clone()))
        }
        CtlVerb::Cancel { unit, call } => decide(unit, call.as_deref(), UserDecision::Cancel)?,
        CtlVerb::Edit { unit, input, call } => {
            let input: Map<String, Value> = serde_json::from_str(input).map_err(|error| {
                CliError::usage(format!("invalid --input: {error}; expected a JSON object"))
            })?;
            decide(unit, call.as_deref(), UserDecision::Edit(input))?
        }
        CtlVerb::Status { .. }
        | CtlVerb::Units { .. }
        | CtlVerb::Approvals { .. }
        | CtlVerb::Workers
        | CtlVerb::Events { .. } => {
            return Err(CliError::failed("this verb sends no command"));
        }
    })
}

/// The command that changes a limit to a value as the user wrote it.
fn limit_command(limit: LimitName, value: &str) -> Result<RunCommand, CliError> {
    let invalid =
        |expected: &str| CliError::usage(format!("invalid value `{value}`; expected {expected}"));
    let whole = || value.parse::<u32>().map_err(|_| invalid("a whole number"));
    let limit = match limit {
        LimitName::Concurrency if value.starts_with(['+', '-']) => {
            let by = value
                .parse()
                .map_err(|_| invalid("a number, or a change such as +1 or -2"))?;
            return Ok(RunCommand::AdjustConcurrency { by });
        }
        LimitName::Concurrency => RunLimit::Concurrency(whole()?),
        LimitName::RunBudget if value == NO_LIMIT => RunLimit::RunBudget(None),
        LimitName::RunBudget => {
            // JSON has no form for other amounts, and null means that there is no limit.
            let amount = value
                .trim_start_matches('$')
                .parse()
                .ok()
                .filter(|amount: &f64| amount.is_finite());
            RunLimit::RunBudget(Some(
                amount.ok_or_else(|| invalid("an amount in USD, or none"))?,
            ))
        }
        LimitName::Turns => RunLimit::Turns(whole()?),
        LimitName::Retries => RunLimit::Retries(whole()?),
        LimitName::ToolFailures => match value {
            "strict" => RunLimit::ToolFailures(FailureRule::Strict),
            "recoverable" => RunLimit::ToolFailures(FailureRule::Recoverable),
            _ => return Err(invalid("strict or recoverable")),
        },
        LimitName::SilenceTimeout if value == NO_LIMIT => RunLimit::SilenceTimeout(None),
        LimitName::SilenceTimeout => {
            let limit =
                parse_duration(value).and_then(|limit| u64::try_from(limit.as_millis()).ok());
            RunLimit::SilenceTimeout(Some(Millis(
                limit.ok_or_else(|| invalid("a duration such as 5m, or none"))?,
            )))
        }
    };
    Ok(RunCommand::Set { limit })
}

/// The id of the call of `unit` that has waited longest; `None` if the agent did not report an id.
fn oldest_call<'a>(
    mut units: impl Iterator<Item = &'a UnitState>,
    unit: &str,
) -> Result<Option<std::sync::Arc<str>>, CliError> {
    let found = units.find(|known| known.key.as_str() == unit);
    let found =
        found.ok_or_else(|| CliError::not_found(format!("the run has no unit `{unit}`")))?;
    let call = found.oldest_held_call();
    call.map(|call| call.tool_use_id.clone()).ok_or_else(|| {
        CliError::not_found(format!("{unit}: no call waits for approval")).with_help(format!(
            "hold the unit first with `ingestdeck ctl hold {unit}`"
        ))
    })
}

/// The error of a connection to an engine, with its exit code.
pub(super) fn connection_error(error: ControlClientError) -> CliError {
    let exit = if matches!(error, ControlClientError::Connect { .. }) {
        Exit::NotFound
    } else {
        Exit::Internal
    };
    CliError::from_error(exit, &error)
}

fn send(
    global: &GlobalArgs,
    run: &RecordedRun,
    command: RunCommand,
    reason: Option<&str>,
) -> Result<Exit, CliError> {
    let origin = CommandOrigin {
        client: Some("ctl".to_owned()),
        reason: reason.map(str::to_owned),
    };
    let reply = runtime(1)?.block_on(async {
        ControlClient::connect(run.id, origin)
            .await?
            .execute(command)
            .await
    });
    let reply = reply.map_err(connection_error)?;
    if global.ui == Ui::Json {
        print_rows(global, [(json!(reply), String::new())].into_iter())?;
    }
    match reply {
        CommandReply::Accepted | CommandReply::Attached { .. } | CommandReply::Detached { .. } => {
            Ok(Exit::Ok)
        }
        CommandReply::Refused { reason } => Err(CliError::not_found(reason.to_string())),
        CommandReply::Invalid { message } => {
            Err(CliError::failed(message)
                .with_help("use the same version of ingestdeck as the run"))
        }
    }
}

fn print_status(
    global: &GlobalArgs,
    timeline: &Timeline,
    is_active: bool,
    content: bool,
) -> Result<Exit, CliError> {
    let state = &timeline.view().state;
    let is_open = is_active && state.ended.is_none();
    let mut summary = RunSummary::from_state(state);
    summary.open_until = is_open.then(|| playback_output::run_time(timeline).unwrap_or_default());
    let waiting: Vec<Value> = held_calls(state)
        .map(|(unit, call)| call_json(unit, call))
        .collect();
    let mut json = summary.to_json();
    json["approvals"] = waiting.into();
    json["paused"] = (is_open && state.limits.is_paused).into();
    let wait = state.workers.wait.filter(|_| is_open);
    json["waiting_for_workers"] = wait.map_or(
        Value::Null,
        |wait| json!({"since": wait.since.0, "until": wait.until.0}),
    );
    if let Some(review) = state.publication.open_review() {
        json["review"] = json!({"files": review.files.len(), "open": review.counts().open});
    }
    let mut lines = summary.to_text(timeline.source().info(), state);
    if !content {
        remove_content(&mut json);
        lines = lines
            .lines()
            .take(COUNT_LINES)
            .map(|line| format!("{line}\n"))
            .collect();
    }
    if let Some(review) = state.publication.open_review() {
        lines.push_str(&format!(
            "{}: {} open\n",
            review.request,
            review.counts().open
        ));
    }
    if let Some(wait) = wait {
        let info = timeline.source().info();
        let began = info.header.as_ref().map(|header| header.started_at);
        let since = began.and_then(|began| wall_clock(began, wait.since, &TimeZone::system()));
        let since = since.unwrap_or_else(|| wait.since.to_string());
        let ends = wait.until.since(wait.since);
        lines.push_str(&format!(
            "waiting for workers since {since}; the run ends after {ends} without any\n"
        ));
    }
    held_calls(state)
        .for_each(|(unit, call)| lines.push_str(&format!("{}\n", call_line(unit, call))));
    print_rows(global, [(json, lines.trim_end().to_owned())].into_iter())
}

/// Removes what agents may have written from a summary: a model that monitors the run could take it for instructions.
fn remove_content(summary: &mut Value) {
    for (list, text) in [
        ("failed", "reason"),
        ("budget", "reason"),
        ("flagged", "text"),
    ] {
        for entry in summary[list]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            entry.remove(text);
        }
    }
    summary["not_saved"] = Value::from(!summary["not_saved"].is_null());
}

fn unit_json(unit: &UnitState, content: bool) -> Value {
    let latest = unit.latest();
    let verdict = latest.and_then(|attempt| attempt.verdict.as_ref());
    let mut json = json!({
        "type": "unit", "unit": unit.key, "state": unit.status.as_str(),
        "try": latest.map(|attempt| attempt.number), "cause": verdict.map(|verdict| verdict.cause.label()),
    });
    if content {
        json["reason"] = json!(verdict.map(|verdict| &verdict.reason));
    }
    json
}

fn unit_line(unit: &UnitState, content: bool) -> String {
    let latest = unit.latest();
    let key = text::printable(&unit.key, output::max_width(MAX_TEXT_WIDTH));
    let mut line = format!("{} {:<11} {key}", unit.status.glyph(), unit.status.as_str());
    if let Some(attempt) = latest.filter(|attempt| attempt.number > 1) {
        line.push_str(&format!("  attempt {}", attempt.number));
    }
    let verdict = latest
        .and_then(|attempt| attempt.verdict.as_ref())
        .filter(|_| !unit.status.is_in_flight());
    let reason = verdict.map(|verdict| {
        if content {
            plain_reason(&verdict.reason)
        } else {
            verdict.cause.label().into()
        }
    });
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        line.push_str(&format!(
            "  {}",
            text::printable(&reason, output::max_width(MAX_TEXT_WIDTH))
        ));
    }
    line
}

/// The units that run on a worker.
fn running_on<'a>(state: &'a RunState, worker: &str) -> Vec<&'a UnitKey> {
    let is_there = |unit: &&UnitState| {
        let attempt = unit.latest().filter(|_| unit.status.is_in_flight());
        attempt.and_then(|attempt| state.workers.name(attempt.setup.worker?)) == Some(worker)
    };
    state
        .units
        .iter()
        .filter(is_there)
        .map(|unit| &unit.key)
        .collect()
}

fn worker_json(name: &str, worker: &WorkerState, others: u32, running: &[&UnitKey]) -> Value {
    json!({
        "type": "worker", "worker": name, "slots": worker.slots, "account": &*worker.account, "draining": worker.is_draining,
        "units": running, "used_by_other_runs": others,
    })
}

fn worker_line(name: &str, worker: &WorkerState, others: u32, running: &[&UnitKey]) -> String {
    let name = text::printable(name, output::max_width(MAX_TEXT_WIDTH));
    let account = text::printable(&worker.account, output::max_width(MAX_TEXT_WIDTH));
    let draining = if worker.is_draining { "draining, " } else { "" };
    let of_others = match others {
        0 => String::new(),
        others => format!(", {others} by other runs"),
    };
    let mut line = format!(
        "{name}: {draining}{} of {} in use{of_others}, account {account}",
        running.len(),
        worker.slots
    );
    if !running.is_empty() {
        let units: Vec<&str> = running.iter().map(|unit| unit.as_str()).collect();
        line.push_str(&format!(
            ": {}",
            text::printable(&text::list_some(&units), output::max_width(MAX_TEXT_WIDTH))
        ));
    }
    line
}

/// Metadata only: arguments are content, which may try to instruct a model that monitors the run.
fn call_json(unit: &UnitKey, call: &HeldCallState) -> Value {
    json!({"type": "approval", "unit": unit, "call": call.tool_use_id, "tool": call.tool, "since_ms": call.since.0})
}

fn call_line(unit: &UnitKey, call: &HeldCallState) -> String {
    let (unit, tool) = (
        text::printable(unit, output::max_width(MAX_TEXT_WIDTH)),
        text::printable(&call.tool, output::max_width(MAX_TEXT_WIDTH)),
    );
    let id = call.tool_use_id.as_deref().map(|id| {
        format!(
            "  {}",
            text::printable(id, output::max_width(MAX_TEXT_WIDTH))
        )
    });
    let what = match InputForm::of_call(&call.tool, &call.input) {
        Some(_) => "an answer",
        None => "approval",
    };
    format!(
        "‖ {unit}: {tool} waits for {what}{}",
        id.unwrap_or_default()
    )
}

pub(super) fn print_rows(
    global: &GlobalArgs,
    rows: impl Iterator<Item = (Value, String)>,
) -> Result<Exit, CliError> {
    let mut out = output::stdout_for(global.ui);
    for (json, line) in rows {
        let printed = match global.ui {
            Ui::Json => writeln!(out, "{json}"),
            Ui::None => Ok(()),
            Ui::Auto | Ui::Tui | Ui::Lines => writeln!(out, "{line}"),
        };
        printed.map_err(|error| playback_output::stdout_failed(&error))?;
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_amounts_are_budgets() {
        for (value, expected) in [("5", Some(5.0)), ("$0.5", Some(0.5)), ("none", None)] {
            let command = limit_command(LimitName::RunBudget, value).unwrap();
            assert_eq!(
                command,
                RunCommand::Set {
                    limit: RunLimit::RunBudget(expected)
                }
            );
        }
        for value in ["NaN", "inf", "-inf", "1e400", "", "five"] {
            assert!(
                limit_command(LimitName::RunBudget, value).is_err(),
                "{value}"
            );
        }
    }
}
