//! The text of a `user` line as a person wrote it: without the markup that Claude Code adds to commands, and
//! distinguished from texts that Claude Code wrote itself.

use std::borrow::Cow;

use super::line::TextAuthor;

/// What precedes the task that a workflow gives to an agent.
const WORKFLOW_TASK: &str = "The computed task text follows:\n";

/// Elements in which editors and Claude Code add what the person did not write.
const CONTEXTS: [&str; 4] = [
    "ide_opened_file",
    "ide_selection",
    "ide_diagnostics",
    "system-reminder",
];

/// The text of a `user` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserText<'a> {
    /// What a person, or the agent that started this one, wrote.
    Prompt(Cow<'a, str>),
    /// A command of Claude Code or of the shell. The model answers some of them.
    Command(Cow<'a, str>),
    /// What Claude Code reports to the model.
    Report(Cow<'a, str>),
}

impl<'a> UserText<'a> {
    /// Interprets the `text` of a line whose author is `author`. The text may be cut at its end.
    pub fn parse(author: TextAuthor, text: &'a str) -> Self {
        let text = text.trim_start();
        if author == TextAuthor::Compaction {
            return Self::Report(Cow::Borrowed(text));
        }
        if author == TextAuthor::BackgroundTask || text.starts_with("<task-notification>") {
            return Self::Report(element(text, "summary").map_or_else(
                || {
                    Cow::Borrowed(
                        text.strip_prefix("<task-notification>")
                            .unwrap_or(text)
                            .trim_start(),
                    )
                },
                |summary| match element(text, "status") {
                    Some(status) => Cow::Owned(format!("{summary} ({status})")),
                    None => Cow::Borrowed(summary),
                },
            ));
        }
        if let Some((_, task)) = text
            .split_once(WORKFLOW_TASK)
            .filter(|_| text.starts_with("[Workflow harness"))
        {
            return Self::Prompt(Cow::Borrowed(task.trim_start()));
        }
        if text.starts_with("[Request interrupted by user") {
            return Self::Report(Cow::Borrowed(text));
        }
        if let Some(command) =
            element(text, "command-name").filter(|_| text.starts_with("<command-"))
        {
            // The text may end within the arguments.
            let cut = || {
                text.split_once("<command-args>")
                    .map(|(_, rest)| rest.trim())
            };
            let arguments = element(text, "command-args")
                .or_else(cut)
                .unwrap_or_default();
            return Self::Command(match arguments {
                "" => Cow::Borrowed(command),
                arguments => Cow::Owned(format!("{command} {arguments}")),
            });
        }
        if let Some(command) =
            element(text, "bash-input").filter(|_| text.starts_with("<bash-input>"))
        {
            return Self::Command(Cow::Owned(format!("! {command}")));
        }
        if let Some(note) =
            element(text, "user-memory-input").filter(|_| text.starts_with("<user-memory-input>"))
        {
            return Self::Command(Cow::Owned(format!("# {note}")));
        }
        if let Some(content) = context(text) {
            return Self::Report(Cow::Borrowed(content));
        }
        const OUTPUTS: [&str; 4] = [
            "local-command-stdout",
            "local-command-stderr",
            "bash-stdout",
            "bash-stderr",
        ];
        for output in OUTPUTS {
            if let Some(content) = text
                .strip_prefix('<')
                .and_then(|text| text.strip_prefix(output))
            {
                let content = content.strip_prefix('>').unwrap_or(content);
                let first = element(text, output).unwrap_or(content);
                // The other output follows.
                let later = content
                    .split_once(&format!("</{output}>"))
                    .map_or("", |(_, later)| later);
                let second = OUTPUTS
                    .into_iter()
                    .find_map(|output| element(later, output))
                    .unwrap_or_default();
                return Self::Report(match (without_styles(first), without_styles(second)) {
                    (first, second) if second.is_empty() => first,
                    (first, second) if first.is_empty() => second,
                    (first, second) => Cow::Owned(format!("{first}\n{second}")),
                });
            }
        }
        if text.starts_with("<local-command-caveat>") || is_bare_output(text) {
            return Self::Report(Cow::Borrowed(text));
        }
        Self::Prompt(Cow::Borrowed(text))
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Prompt(text) | Self::Command(text) | Self::Report(text) => text,
        }
    }
}

/// True for a text that only surrounds what a person wrote.
pub fn is_context(text: &str) -> bool {
    context(text.trim_start()).is_some()
}

/// The content of an element of [`CONTEXTS`], if there is nothing else.
fn context(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('<')?;
    CONTEXTS.into_iter().find_map(|name| {
        let rest = rest.strip_prefix(name)?.strip_prefix('>')?;
        // Without its end, the text was cut.
        let end = format!("</{name}>");
        let (content, after) = rest.split_once(&end).unwrap_or((rest, ""));
        after.trim().is_empty().then(|| content.trim())
    })
}

/// True for what some releases wrote about a command without markup.
fn is_bare_output(text: &str) -> bool {
    let unknown = text
        .strip_prefix("Unknown skill: ")
        .or_else(|| text.strip_prefix("Unknown slash command: "));
    unknown.is_some_and(|name| !name.trim_end().contains(char::is_whitespace))
        || text.trim_end() == "(no content)"
}

/// Removes control sequences of terminals, such as those for colors.
pub(super) fn without_styles(text: &str) -> Cow<'_, str> {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default();
    if first.len() == text.len() {
        return Cow::Borrowed(text);
    }
    let is_parameter = |char: char| matches!(char, ' '..='?');
    parts
        .map(|part| {
            let mut rest = part.trim_start_matches(is_parameter).chars();
            rest.next();
            rest.as_str()
        })
        .fold(first.to_owned(), |text, part| text + part)
        .into()
}

/// The content of the first element with this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(content, _)| content.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_of_claude_code_is_removed() {
        let parse = |text| UserText::parse(TextAuthor::Sender, text);
        let prompt = |text: &'static str| UserText::Prompt(text.into());
        let command = |text: &'static str| UserText::Command(text.into());
        let report = |text: &'static str| UserText::Report(text.into());
        assert_eq!(parse(" find <b>it</b>"), prompt("find <b>it</b>"));
        let review = "<command-message>review</command-message>\n<command-name>/review</command-name>\n<command-args>src</command-args>";
        assert_eq!(parse(review), command("/review src"));
        assert_eq!(
            parse(review.split_once("</command-args>").unwrap().0),
            command("/review src")
        );
        assert_eq!(
            parse("<command-name>/clear</command-name>"),
            command("/clear")
        );
        assert_eq!(parse("<command-name>/cut"), prompt("<command-name>/cut"));
        assert_eq!(parse("<bash-input>ls</bash-input>"), command("! ls"));
        let unknown = "Unknown skill: deploy-it";
        assert_eq!(parse(unknown), report(unknown));
        assert_eq!(parse("(no content)"), report("(no content)"));
        assert_eq!(
            parse("<user-memory-input>use tabs</user-memory-input>"),
            command("# use tabs")
        );
        assert_eq!(
            parse(
                "<local-command-stdout>\u{1b}[1mSet \u{1b}[38;2;1;2;3mmodel\u{1b}[22m</local-command-stdout>"
            ),
            report("Set model")
        );
        let opened = "<ide_opened_file>a.rs is open</ide_opened_file>";
        assert_eq!(parse(opened), report("a.rs is open"));
        assert_eq!(parse("<ide_selection>fn a"), report("fn a"));
        let both = "<ide_selection>fn a</ide_selection>\nWhy?";
        assert_eq!(parse(both), prompt(both));
        let question = "Unknown skill: what does that mean?";
        assert_eq!(parse(question), prompt(question));
        assert_eq!(
            parse("<bash-stdout>a\nb</bash-stdout><bash-stderr></bash-stderr>"),
            report("a\nb")
        );
        assert_eq!(
            parse("<bash-stdout></bash-stdout><bash-stderr>no</bash-stderr>"),
            report("no")
        );
        assert_eq!(
            parse("<bash-stdout>a</bash-stdout><bash-stderr>b</bash-stderr>"),
            report("a\nb")
        );
        assert_eq!(parse("<local-command-stdout>cut"), report("cut"));
        assert_eq!(
            parse("[Request interrupted by user for tool use]"),
            report("[Request interrupted by user for tool use]")
        );
        let task = "<task-notification>\n<status>completed</status>\n<summary>Agent \"x\" finished</summary>\n<result>";
        assert_eq!(parse(task), report("Agent \"x\" finished (completed)"));
        assert_eq!(parse("<task-notification>\nodd"), report("odd"));
        let workflow = "[Workflow harness — computed task] It was not typed. The computed task text follows:\n  check it";
        assert_eq!(parse(workflow), prompt("check it"));
        assert_eq!(
            UserText::parse(TextAuthor::Compaction, "so far"),
            report("so far")
        );
        assert_eq!(parse(""), prompt(""));
    }
}
