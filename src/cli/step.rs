//! `step`: one unit, held at every tool call until a person decides.

use std::io::{self, IsTerminal as _};

use super::{
    args::{GlobalArgs, SelectArgs, StepArgs, Ui},
    exit::{CliError, Exit},
    output, playback_output, run,
};

/// Runs the unit on the screen.
///
/// # Errors
/// Without a terminal, if there is no such unit, or as [`run::run`].
pub(crate) fn step(global: &GlobalArgs, args: &StepArgs) -> Result<Exit, CliError> {
    if playback_output::resolve_ui(global.ui) != Ui::Tui || !io::stdin().is_terminal() || !output::is_terminal() {
        return Err(CliError::usage("stepping needs the screen, so that you can decide")
            .with_help("use a terminal, without --ui or with `--ui tui`"));
    }
    let select = SelectArgs { only: vec![globset::escape(&args.unit)], ..SelectArgs::default() };
    let want = run::RunOverrides { held: vec![args.unit.as_str().into()], ..run::RunOverrides::default() };
    run::start_run(global, &select, &args.attempt, want)
}
