//! `help`: shows the help of a command, or a page of the guide in the user's pager.

use std::{
    io::{self, Write as _},
    process::{Command as Process, Stdio},
};

use clap::Command;

use super::{
    args::{HelpArgs, help_topics, with_command_groups},
    exit::{CliError, Exit},
    output,
};
use crate::guide::{self, PAGES};
use ingestdeck_os::program_path;
use ingestdeck_tui::ToolPrograms;

/// The word for the list of all commands.
const ALL: &str = "all";

/// Shows the page of a topic or the help of a command; without arguments, the help of the program.
///
/// # Errors
/// If the topic or command does not exist, or stdout cannot be written.
pub(super) fn help(args: &HelpArgs) -> Result<Exit, CliError> {
    if let [topic] = args.words.as_slice()
        && let Some(page) = guide::find(topic)
    {
        return show_page(page.text);
    }
    let mut root = match args.words.as_slice() {
        [] => with_command_groups(super::command()),
        _ => super::command(),
    };
    root.build();
    let mut command = &mut root;
    let words = args
        .words
        .iter()
        .filter(|word| *word != ALL || args.words.len() > 1);
    for word in words {
        command = find_subcommand(command, word).ok_or_else(|| unknown_topic(&args.words))?;
    }
    let help = command.render_long_help().to_string();
    let topics = if args.words.is_empty() || args.words == [ALL] {
        format!("\n{}\n", help_topics())
    } else {
        String::new()
    };
    write_stdout(&format!("{help}{topics}"))
}

fn find_subcommand<'a>(command: &'a mut Command, name: &str) -> Option<&'a mut Command> {
    command
        .find_subcommand_mut(name)
        .filter(|found| !found.is_hide_set())
}

fn unknown_topic(words: &[String]) -> CliError {
    let topics: Vec<&str> = PAGES.iter().map(|page| page.topic).collect();
    let word = words.join(" ").escape_debug().to_string();
    let topics = topics.join(", ");
    CliError::not_found(format!("no command or topic `{word}`")).with_help(format!(
        "list the commands with `ingestdeck help all`; the topics are {topics}"
    ))
}

fn show_page(text: &str) -> Result<Exit, CliError> {
    if !output::is_terminal() {
        return write_stdout(text);
    }
    let words = ToolPrograms::from_env(|name| std::env::var(name).ok())
        .pager_words()
        .map_err(|problem| CliError::from_error(Exit::Usage, &problem))?;
    let Some((program, arguments)) = words.split_first() else {
        return write_stdout(text);
    };
    let mut pager = Process::new(program);
    pager
        .args(arguments)
        .env("PATH", program_path::search_path())
        .stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Short pages stay on the terminal after the pager ends.
        pager.env("LESS", "FRX");
    }
    let Ok(mut child) = pager.spawn() else {
        return write_stdout(text);
    };
    if let Some(mut stdin) = child.stdin.take() {
        // The user may quit the pager before it has read everything.
        let _ = stdin.write_all(text.as_bytes());
    }
    child
        .wait()
        .map_err(|error| CliError::failed(format!("cannot wait for `{program}`: {error}")))?;
    Ok(Exit::Ok)
}

fn write_stdout(text: &str) -> Result<Exit, CliError> {
    match output::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        Err(error) => Err(CliError::failed(format!("cannot write to stdout: {error}"))),
        Ok(()) => Ok(Exit::Ok),
    }
}
