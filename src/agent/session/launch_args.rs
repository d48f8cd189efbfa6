//! The command line of a session, and the prompts that it rejects. Pure.

use std::ffi::OsString;

use crate::{
    attempt::session_monitor::BYPASS_PERMISSION_MODE, claude::agent_env::AgentEnvironment,
};
use ingestdeck_core::diagnostic::Diagnostic;

/// Maximum length of a prompt on the command line, in bytes. Linux allows 128 KiB per argument.
const MAX_ARGUMENT_BYTES: usize = 96 * 1024;

/// Permission mode in which only allowed tools run. Set explicitly, because releases and user settings have other
/// defaults.
const DEFAULT_PERMISSION_MODE: &str = "default";

/// Arguments of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaudeSessionArgs {
    pub resume: Option<String>,
    /// Continue under a new id; needs `resume`.
    pub fork: bool,
    /// Model; by default the program's.
    pub model: Option<String>,
    /// Tools that need no permission. If empty, the flag is omitted.
    pub allowed_tools: Vec<String>,
    /// Skip all permission checks.
    pub bypass_permissions: bool,
    /// Permission mode that a person chose in an earlier turn.
    pub permission_mode: Option<String>,
    /// Maximum number of API round trips.
    pub max_turns: Option<u32>,
    /// System prompt that replaces the program's own.
    pub system_prompt: Option<String>,
    /// The only built-in tools that exist in the session; `None` for all.
    pub offered_tools: Option<Vec<String>>,
    /// The program records the system prompt of a session and would send that one when the session is resumed.
    pub has_prompt_snapshot: bool,
}

impl ClaudeSessionArgs {
    /// The permission mode that the session is started in.
    pub(super) fn permission_mode(&self) -> &str {
        if self.bypass_permissions {
            BYPASS_PERMISSION_MODE
        } else {
            self.permission_mode
                .as_deref()
                .unwrap_or(DEFAULT_PERMISSION_MODE)
        }
    }
}

/// A prompt that cannot be sent unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPrompt {
    #[error("the prompt is empty")]
    Empty,
    /// Claude Code would run it as a command.
    #[error("the prompt starts with a slash, so Claude Code would run it as a command")]
    SlashCommand,
}

impl Diagnostic for InvalidPrompt {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Empty => "describe the task for Claude Code".into(),
            Self::SlashCommand => "put a space before the slash".into(),
        })
    }
}

/// How the prompt reaches the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptDelivery {
    /// As the last argument.
    Argument,
    /// As a user message on stdin.
    Stdin,
    /// As a user message of the two-way protocol.
    Conversation {
        /// A person answers requests for permission.
        asks_permission: bool,
    },
}

/// Validates a prompt and selects its delivery: arguments have a maximum length and cannot contain a NUL.
pub fn choose_delivery(prompt: &str) -> Result<PromptDelivery, InvalidPrompt> {
    if prompt.trim().is_empty() {
        return Err(InvalidPrompt::Empty);
    }
    if is_slash_command(prompt) {
        return Err(InvalidPrompt::SlashCommand);
    }
    let fits = prompt.len() <= MAX_ARGUMENT_BYTES && !prompt.contains('\0');
    Ok(if fits {
        PromptDelivery::Argument
    } else {
        PromptDelivery::Stdin
    })
}

/// True for `/name` and `/name …`, but not for a path such as `/usr/bin`.
fn is_slash_command(prompt: &str) -> bool {
    let word = prompt.split_whitespace().next().unwrap_or_default();
    prompt.starts_with('/') && word.len() > 1 && !word[1..].contains('/')
}

/// The arguments, in the order of the contract.
pub(crate) fn session_argv(
    args: &ClaudeSessionArgs,
    prompt: &str,
    delivery: PromptDelivery,
) -> Vec<OsString> {
    let mut words: Vec<&str> = vec!["-p", "--output-format", "stream-json", "--verbose"];
    if delivery != PromptDelivery::Argument {
        words.extend(["--input-format", "stream-json"]);
    }
    if let PromptDelivery::Conversation { asks_permission } = delivery {
        words.push("--include-partial-messages");
        if asks_permission {
            words.extend(["--permission-prompt-tool", "stdio"]);
        }
    }
    if let Some(session) = &args.resume {
        words.extend(["--resume", session]);
        if args.fork {
            words.push("--fork-session");
        }
        // The two-way protocol has a field for it.
        if args.has_prompt_snapshot && !matches!(delivery, PromptDelivery::Conversation { .. }) {
            words.extend(["--system-prompt-snapshot", "off"]);
        }
    }
    if let Some(model) = &args.model {
        words.extend(["--model", model]);
    }
    let tools = args.allowed_tools.join(",");
    if !tools.is_empty() {
        words.extend(["--allowedTools", &tools]);
    }
    if args.bypass_permissions {
        // This flag overrides every other source of a mode.
        words.push("--dangerously-skip-permissions");
    } else {
        words.extend(["--permission-mode", args.permission_mode()]);
    }
    let offered = args
        .offered_tools
        .as_ref()
        .map(|tools| format!("--tools={}", tools.join(",")));
    words.extend(offered.as_deref());
    let turns = args.max_turns.map(|turns| turns.to_string());
    if let Some(turns) = &turns {
        words.extend(["--max-turns", turns]);
    }
    if let Some(system) = &args.system_prompt {
        words.extend(["--system-prompt", system]);
    }
    if delivery == PromptDelivery::Argument {
        words.extend(["--", prompt]);
    }
    words.into_iter().map(OsString::from).collect()
}

/// The environment of a session. By contract its commands run as in the user's shell, so it is not an allow list as for
/// units. It is our own environment, without the API key that would be billed instead of the subscription, and without
/// the marker of a nested session.
pub fn session_environment(
    parent: impl IntoIterator<Item = (OsString, OsString)>,
    use_api_billing: bool,
) -> AgentEnvironment {
    let mut done = AgentEnvironment::default();
    for (name, value) in parent {
        match name.to_str() {
            Some(key @ "ANTHROPIC_API_KEY") if use_api_billing => done.passed.push(key.to_owned()),
            Some(key @ ("ANTHROPIC_API_KEY" | "CLAUDECODE")) => {
                done.stripped.push(key.to_owned());
                continue;
            }
            _ => {}
        }
        done.vars.push((name, value));
    }
    done.vars.sort();
    done.stripped.sort();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::user_message_frame;

    fn words(args: &ClaudeSessionArgs, prompt: &str) -> Vec<String> {
        let argv = session_argv(args, prompt, choose_delivery(prompt).unwrap());
        argv.into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn the_command_line_is_the_contract() {
        let bare = words(&ClaudeSessionArgs::default(), "hi");
        assert_eq!(
            bare,
            [
                "-p",
                "--output-format",
                "stream-json",
                "--verbose",
                "--permission-mode",
                "default",
                "--",
                "hi"
            ]
        );
        let full = ClaudeSessionArgs {
            resume: Some("é-1".into()),
            fork: true,
            model: Some("opus".into()),
            allowed_tools: vec!["Bash".into(), "Read".into()],
            bypass_permissions: true,
            permission_mode: Some("plan".into()),
            max_turns: Some(50),
            system_prompt: Some("Be careful.".into()),
            offered_tools: Some(vec!["Bash".into(), "Read".into()]),
            has_prompt_snapshot: true,
        };
        assert_eq!(
            words(&full, "--help")[4..],
            [
                "--resume",
                "é-1",
                "--fork-session",
                "--system-prompt-snapshot",
                "off",
                "--model",
                "opus",
                "--allowedTools",
                "Bash,Read",
                "--dangerously-skip-permissions",
                "--tools=Bash,Read",
                "--max-turns",
                "50",
                "--system-prompt",
                "Be careful.",
                "--",
                "--help"
            ]
        );
        let fork_of_nothing = ClaudeSessionArgs {
            fork: true,
            ..ClaudeSessionArgs::default()
        };
        assert_eq!(words(&fork_of_nothing, "hi"), bare);
    }

    #[test]
    fn unusual_prompts_are_passed_unchanged() {
        for prompt in [
            "-one thing",
            "-",
            "--model opus",
            "do this - and that",
            "!ls",
            "# x",
            "/usr/bin is a path",
            "/",
        ] {
            let words = words(&ClaudeSessionArgs::default(), prompt);
            assert_eq!(words[words.len() - 2..], ["--", prompt]);
        }
    }

    #[test]
    fn large_prompts_go_through_stdin() {
        let edge = "x".repeat(MAX_ARGUMENT_BYTES);
        assert_eq!(choose_delivery(&edge), Ok(PromptDelivery::Argument));
        for prompt in [format!("{edge}x"), "a\0b".to_owned()] {
            assert_eq!(choose_delivery(&prompt), Ok(PromptDelivery::Stdin));
            let words = words(&ClaudeSessionArgs::default(), &prompt);
            assert_eq!(
                words[3..],
                [
                    "--verbose",
                    "--input-format",
                    "stream-json",
                    "--permission-mode",
                    "default"
                ]
            );
            let line: serde_json::Value =
                serde_json::from_slice(&user_message_frame(&prompt).0).unwrap();
            assert_eq!(line["message"]["content"], prompt);
        }
    }

    #[test]
    fn empty_and_slash_command_prompts_are_refused() {
        for prompt in ["/compact", "/clear now", "/mcp__x:y"] {
            assert_eq!(
                choose_delivery(prompt),
                Err(InvalidPrompt::SlashCommand),
                "{prompt}"
            );
            assert_eq!(
                choose_delivery(&format!(" {prompt}")),
                Ok(PromptDelivery::Argument)
            );
        }
        assert_eq!(choose_delivery(" \n"), Err(InvalidPrompt::Empty));
    }

    #[test]
    fn api_key_is_withheld_unless_api_billing_is_on() {
        let parent =
            ["PATH", "ANTHROPIC_API_KEY", "CLAUDECODE"].map(|name| (name.into(), "x".into()));
        let stripped = session_environment(parent.clone(), false);
        assert_eq!(stripped.stripped, ["ANTHROPIC_API_KEY", "CLAUDECODE"]);
        assert_eq!(stripped.vars.len(), 1);
        let billed = session_environment(parent, true);
        assert_eq!(
            (billed.passed.as_slice(), billed.vars.len()),
            (["ANTHROPIC_API_KEY".to_owned()].as_slice(), 2)
        );
    }
}
