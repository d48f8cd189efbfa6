//! `step`: one unit, held at every tool call until a person decides.

use std::io::{self, IsTerminal as _};

use super::{
    args::{Global, SelectArgs, StepArgs, Ui},
    exit::{Exit, Failure},
    output, run, show,
};

/// Runs the unit on the screen.
///
/// # Errors
/// Without a terminal; when there is no such unit; as [`run::run`].
pub fn step(global: &Global, args: &StepArgs) -> Result<Exit, Failure> {
    if show::resolve(global.ui) != Ui::Tui || !io::stdin().is_terminal() || !output::is_terminal() {
        return Err(Failure::usage(
            "stepping needs the screen, so that you can decide; use a terminal, without --ui or with `--ui tui`",
        ));
    }
    let select = SelectArgs { only: vec![globset::escape(&args.unit)], ..SelectArgs::default() };
    let want = run::Want { held: vec![args.unit.as_str().into()], ..run::Want::default() };
    run::start(global, &select, &args.terms, want)
}
