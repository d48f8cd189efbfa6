//! `diff`: compares two runs, for people and for programs.

use std::io::Write as _;

use super::{
    args::{DiffArgs, GlobalArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output, report, runs,
};
use ingestdeck_core::run::{RunReport, diff::RunDiff};
use ingestdeck_report::{MAX_NAME_WIDTH, render_json, render_text};

/// Compares two runs.
///
/// # Errors
/// If a run does not exist or cannot be read.
pub(crate) fn diff(global: &GlobalArgs, args: &DiffArgs) -> Result<Exit, CliError> {
    let before = report::gather_report(global, &args.before)?;
    let after = report::gather_report(global, args.after.as_deref().unwrap_or("latest"));
    let after = after.map_err(|error| match args.after {
        Some(_) => error,
        None => error
            .prefixed("the second run is the newest one of this project: ")
            .with_help("name a second run, or a file"),
    })?;
    if args.after.is_none()
        && let Some(why) = same_run_failure(global, &before, &after)?
    {
        return Err(why);
    }
    let diff = RunDiff::new(&before, &after);
    let text = match global.ui {
        Ui::Json => render_json(&before, &after, &diff),
        Ui::None => String::new(),
        Ui::Auto | Ui::Tui | Ui::Lines => render_text(
            &before,
            &after,
            &diff,
            args.all,
            output::max_width(MAX_NAME_WIDTH),
        ),
    };
    let mut out = output::stdout_for(global.ui);
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

/// Returns an error if both sides are the newest run because the user named only one.
fn same_run_failure(
    global: &GlobalArgs,
    before: &RunReport,
    after: &RunReport,
) -> Result<Option<CliError>, CliError> {
    let run = |report: &RunReport| report.origin.header.as_ref().map(|header| header.run);
    let Some(run) = run(after).filter(|after| run(before) == Some(*after)) else {
        return Ok(None);
    };
    let run = run.short();
    Ok(Some(match runs::resolve_store(global)?.list()?.len() {
        1 => CliError::not_found(format!(
            "there is only one run, {run}, and no other run to compare it with"
        ))
        .with_help("name a file as the second"),
        _ => CliError::usage(format!("run {run} is the newest one"))
            .with_help("name an earlier run to compare it with"),
    }))
}
