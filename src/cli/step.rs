//! `step`: one unit, held at every tool call until a person decides.

use std::io::{self, IsTerminal as _};

use super::{
    args::{GlobalArgs, SelectArgs, StepArgs, Ui},
    attach,
    exit::{CliError, Exit},
    launch::TapeLocation,
    output, playback_output, run,
};
use crate::control::DisconnectAction;

/// Runs the unit on the screen.
///
/// # Errors
/// Without a terminal, if there is no such unit, or as [`run::run`].
pub(crate) fn step(global: &GlobalArgs, args: &StepArgs) -> Result<Exit, CliError> {
    let has_screen =
        playback_output::resolve_ui(global.ui) == Ui::Tui && io::stdin().is_terminal() && output::is_terminal();
    if !has_screen && !global.is_engine {
        return Err(CliError::usage("stepping needs the screen, so that you can decide")
            .with_help("use a terminal, without --ui or with `--ui tui`"));
    }
    if !global.is_engine {
        let location = TapeLocation::InProject { flag: global.project_dir.clone() };
        return Ok(attach::start_on_screen(global, location, Some(DisconnectAction::Stop))?.exit);
    }
    let select = SelectArgs { only: vec![globset::escape(&args.unit)], ..SelectArgs::default() };
    let want = run::RunOverrides { held: vec![args.unit.as_str().into()], ..run::RunOverrides::default() };
    run::start_run(global, &select, &args.attempt, want)
}
