//! The texts of `--text` and `--file`: they are read once, by the process that the user started.

use std::{io, io::IsTerminal as _, path::Path};

use super::{
    args::{GlobalArgs, SelectArgs, TextArgs},
    engine_process,
    exit::{CliError, Exit},
    project,
};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_ingest::text_input::{TextInput, TextInputs, TextMode};

/// The name of stdin on the command line.
const STDIN: &str = "-";

impl TextArgs {
    /// True if the command runs units of connections.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.file.is_empty()
    }
}

/// Reads the texts of a command; `None` if it has none. An engine receives them from its client.
///
/// # Errors
/// If a text cannot be used, or the texts do not go together with the selection.
pub(super) fn read(
    global: &GlobalArgs,
    args: &TextArgs,
    mode: TextMode,
    select: &SelectArgs,
) -> Result<Option<TextInputs>, CliError> {
    if args.is_empty() {
        return match mode {
            TextMode::Captured => Ok(None),
            TextMode::Verbatim => Err(CliError::usage("--verbatim is about texts")
                .with_help("add --file or --text, or set `verbatim: true` at a `docs` connection")),
        };
    }
    if global.is_engine {
        return engine_process::take_texts().map(Some);
    }
    check_selection(select)?;
    if args
        .file
        .iter()
        .filter(|file| file.as_os_str() == STDIN)
        .count()
        > 1
    {
        return Err(CliError::usage("stdin is named twice").with_help("give `--file -` once"));
    }
    let project = project::resolve_directory(global)?;
    let texts = args.text.iter().map(|text| TextInput::inline(text, mode));
    let files = args.file.iter().map(|file| read_file(file, &project, mode));
    let texts: Result<Vec<TextInput>, Problem> = texts.chain(files).collect();
    let inputs = texts.and_then(|texts| TextInputs::collect(texts, mode));
    inputs
        .map(Some)
        .map_err(|problem| CliError::from_error(Exit::Usage, &problem))
}

fn read_file(file: &Path, project: &Path, mode: TextMode) -> Result<TextInput, Problem> {
    if file.as_os_str() != STDIN {
        return TextInput::read_file(file, project, mode);
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Problem::new("cannot read stdin: it is a terminal")
            .with_help("pipe a text, or use --text"));
    }
    TextInput::read_stdin(stdin.lock(), mode)
}

/// Refuses options that select units of connections.
fn check_selection(select: &SelectArgs) -> Result<(), CliError> {
    let option = [
        ("--full", select.full),
        ("--neighbours", select.neighbours),
        ("--unread", select.unread),
        ("--resume-run", select.resume.resume_run.is_some()),
        ("--failed", select.resume.failed.is_some()),
        ("--failed-from", select.resume.failed_from.is_some()),
    ];
    if let Some((option, _)) = option.into_iter().find(|(_, is_given)| *is_given) {
        let help = match option {
            "--full" | "--neighbours" | "--unread" => "leave it out: every text runs",
            _ => "leave out --text and --file: the run has recorded its texts",
        };
        return Err(CliError::usage(format!(
            "{option} selects recorded or planned units, not texts"
        ))
        .with_help(help));
    }
    if select.connections.len() > 1 {
        let names = select.connections.join(", ");
        return Err(CliError::usage(format!(
            "texts belong to one connection, but there are several: {names}"
        ))
        .with_help("name the connection whose sources the texts define, or none"));
    }
    Ok(())
}
