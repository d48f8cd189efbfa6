//! `step`: one unit, held at every tool call until a person decides.

use std::io::{self, IsTerminal as _};

use super::{
    args::{GlobalArgs, RunArgs, SelectArgs, StepArgs, Ui},
    attach,
    exit::{CliError, Exit},
    launch::TapeLocation,
    output, playback_output, run, texts,
};
use ingestdeck_core::control::DisconnectAction;
use ingestdeck_ingest::text_input::{TextInputs, TextMode};

/// Runs the unit on the screen.
///
/// # Errors
/// Without a terminal, if there is no such unit, or as [`run::run`].
pub(crate) fn step(global: &GlobalArgs, args: &StepArgs) -> Result<Exit, CliError> {
    if args.unit.is_some() && !args.texts.is_empty() {
        return Err(CliError::usage("a unit and a text are given").with_help("step one of them"));
    }
    let has_screen = playback_output::resolve_ui(global.ui) == Ui::Tui
        && io::stdin().is_terminal()
        && output::is_terminal();
    if !has_screen && !global.is_engine {
        return Err(
            CliError::usage("stepping needs the screen, so that you can decide")
                .with_help("use a terminal, without --ui or with `--ui tui`"),
        );
    }
    let texts = texts::read(
        global,
        &args.texts,
        TextMode::Captured,
        &SelectArgs::default(),
    )?;
    let keys: Vec<String> = texts
        .as_ref()
        .map_or_else(|| args.unit.iter().cloned().collect(), TextInputs::keys);
    if keys.len() > 1 {
        return Err(CliError::usage("several texts are given")
            .with_help("step one text; `run` captures several"));
    }
    if !global.is_engine {
        let location = TapeLocation::InProject {
            flag: global.project_dir.clone(),
        };
        let shown = attach::start_on_screen(
            global,
            texts.as_ref(),
            location,
            Some(DisconnectAction::Stop),
        )?;
        return Ok(shown.exit);
    }
    let only = keys.iter().map(|key| globset::escape(key)).collect();
    let select = SelectArgs {
        only,
        ..SelectArgs::default()
    };
    let held = keys.iter().map(|key| key.as_str().into()).collect();
    let run_args = RunArgs {
        select,
        no_reconcile: true,
        attempt: args.attempt.clone(),
        ..RunArgs::default()
    };
    let request = run::RunRequest {
        held,
        texts,
        ..run::RunRequest::default()
    };
    run::start_run(global, &run_args, request)
}
