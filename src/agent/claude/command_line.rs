//! The command line of a unit's `claude`. Pure: builds a list of arguments.
//!
//! `--allowedTools` and `--disallowedTools` take any number of values and would consume a positional argument, so
//! another flag follows each. External values are attached to their flag with `=`, so that none of them is parsed as a
//! flag.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

/// Built-in tools that are denied by name, in addition to being disabled: those of all supported releases. Releases ignore
/// names that they do not have.
pub(crate) const DENIED_BUILT_INS: [&str; 70] = [
    "Agent",
    "AgentOutputTool",
    "Artifact",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "BashOutputTool",
    "Brief",
    "ClaudeDesign",
    "Config",
    "CronCreate",
    "CronDelete",
    "CronList",
    "DesignSync",
    "Edit",
    "EndConversation",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "ExitWorktree",
    "Glob",
    "Grep",
    "KillBash",
    "KillShell",
    "LSP",
    "ListAgents",
    "ListMcpResourcesTool",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "OfferChromeSetup",
    "PowerShell",
    "Projects",
    "PushNotification",
    "REPL",
    "Read",
    "ReadMcpResourceDirTool",
    "ReadMcpResourceTool",
    "ReadNotifications",
    "RemoteTrigger",
    "ReportFindings",
    "ScheduleWakeup",
    "SendFeedback",
    "SendMessage",
    "SendUserFile",
    "SendUserMessage",
    "SetGoal",
    "ShareOnboardingGuide",
    "ShowOnboardingRolePicker",
    "Skill",
    "SubagentHandback",
    "Task",
    "TaskCreate",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "TaskStop",
    "TaskUpdate",
    "TeamCreate",
    "TeamDelete",
    "TodoWrite",
    "ToolSearch",
    "WaitForMcpServers",
    "WebBrowser",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
    "propose_skills",
];

/// Arguments that differ between units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitArgs<'a> {
    /// Full tool ids (`mcp__ktx__…`); no other tool may run.
    pub tool_ids: &'a [String],
    /// File with the system prompt.
    pub system_prompt: &'a Path,
    /// Requested model, if any.
    pub model: Option<&'a str>,
    /// Maximum number of API round trips.
    pub max_turns: u32,
    /// Cost limit, in US dollars.
    pub max_budget_usd: Option<f64>,
    pub partial_messages: bool,
    pub session: SessionChoice<'a>,
}

/// The session that the process works in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionChoice<'a> {
    /// A new session with this id (a UUID).
    New(&'a str),
    /// Continues an earlier session under its own id.
    Resume(&'a str),
}

/// Arguments after the program and its prefix.
pub(crate) fn unit_argv(args: &UnitArgs<'_>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = [
        "-p",
        "--input-format",
        "stream-json",
        "--output-format",
        "stream-json",
        "--verbose",
        "--setting-sources=",
        "--strict-mcp-config",
        "--tools=",
        "--disable-slash-commands",
        "--no-chrome",
        "--permission-mode",
        "dontAsk",
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    if !args.tool_ids.is_empty() {
        argv.push("--allowedTools".into());
        argv.push(args.tool_ids.join(",").into());
    }
    argv.push("--disallowedTools".into());
    argv.push(DENIED_BUILT_INS.join(",").into());
    argv.push("--system-prompt-file".into());
    argv.push(args.system_prompt.into());
    if let Some(model) = args.model {
        argv.push(flag_with_value("--model=", model));
    }
    argv.push("--max-turns".into());
    argv.push(args.max_turns.to_string().into());
    if let Some(dollars) = args.max_budget_usd {
        argv.push("--max-budget-usd".into());
        argv.push(dollars.to_string().into());
    }
    if args.partial_messages {
        argv.push("--include-partial-messages".into());
    }
    argv.push(match args.session {
        SessionChoice::New(id) => flag_with_value("--session-id=", id),
        SessionChoice::Resume(id) => flag_with_value("--resume=", id),
    });
    argv
}

/// Converts a command line to text for the tape. Replaces bytes that are not UTF-8.
pub(crate) fn argv_to_strings<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Vec<String> {
    words
        .into_iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn flag_with_value(flag: &str, value: &str) -> OsString {
    let mut word = OsString::from(flag);
    word.push(value);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0199aaaa-0000-7000-8000-000000000000";

    fn args<'a>(tool_ids: &'a [String], session: SessionChoice<'a>) -> UnitArgs<'a> {
        UnitArgs {
            tool_ids,
            system_prompt: Path::new("/private/system.md"),
            model: None,
            max_turns: 40,
            max_budget_usd: None,
            partial_messages: false,
            session,
        }
    }

    fn text(args: &UnitArgs<'_>) -> Vec<String> {
        argv_to_strings(unit_argv(args).iter().map(OsString::as_os_str))
    }

    #[test]
    fn the_whole_command_line() {
        let tools = [
            "mcp__ktx__wiki_read".to_owned(),
            "mcp__ktx__wiki_write".to_owned(),
        ];
        let full = UnitArgs {
            model: Some("sonnet"),
            max_budget_usd: Some(2.5),
            partial_messages: true,
            ..args(&tools, SessionChoice::New(ID))
        };
        assert_eq!(
            text(&full),
            [
                "-p",
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
                "--verbose",
                "--setting-sources=",
                "--strict-mcp-config",
                "--tools=",
                "--disable-slash-commands",
                "--no-chrome",
                "--permission-mode",
                "dontAsk",
                "--allowedTools",
                "mcp__ktx__wiki_read,mcp__ktx__wiki_write",
                "--disallowedTools",
                &DENIED_BUILT_INS.join(","),
                "--system-prompt-file",
                "/private/system.md",
                "--model=sonnet",
                "--max-turns",
                "40",
                "--max-budget-usd",
                "2.5",
                "--include-partial-messages",
                "--session-id=0199aaaa-0000-7000-8000-000000000000",
            ]
        );
    }

    #[test]
    fn built_in_tools_of_the_newest_release_are_denied() {
        // `tools` of the first line of 2.1.332 with all of its tools.
        let announced = [
            "Task",
            "Bash",
            "CronCreate",
            "CronDelete",
            "CronList",
            "DesignSync",
            "Edit",
            "EnterWorktree",
            "ExitWorktree",
            "ListAgents",
            "Monitor",
            "NotebookEdit",
            "Read",
            "ReportFindings",
            "ScheduleWakeup",
            "SendMessage",
            "Skill",
            "TaskStop",
            "ToolSearch",
            "WebFetch",
            "WebSearch",
            "Workflow",
            "Write",
        ];
        assert_eq!(
            announced
                .iter()
                .find(|tool| !DENIED_BUILT_INS.contains(tool)),
            None
        );
    }

    #[test]
    fn without_tools_nothing_is_allowed() {
        assert!(!text(&args(&[], SessionChoice::New(ID))).contains(&"--allowedTools".to_owned()));
    }

    #[test]
    fn resuming_names_no_session_of_its_own() {
        let argv = text(&args(&[], SessionChoice::Resume(ID)));
        assert_eq!(
            argv.last().map(String::as_str),
            Some("--resume=0199aaaa-0000-7000-8000-000000000000")
        );
        assert!(!argv.iter().any(|word| word.starts_with("--session-id")));
    }

    #[test]
    fn every_list_is_followed_by_a_flag() {
        let tools = ["mcp__ktx__a".to_owned()];
        let argv = text(&args(&tools, SessionChoice::New(ID)));
        for list in ["--allowedTools", "--disallowedTools"] {
            let at = argv.iter().position(|word| word == list).unwrap();
            assert!(
                argv[at + 2].starts_with("--"),
                "{list} is followed by {}",
                argv[at + 2]
            );
        }
    }

    #[test]
    fn a_hostile_model_cannot_become_a_flag() {
        let hostile = UnitArgs {
            model: Some("--mcp-config"),
            ..args(&[], SessionChoice::New(ID))
        };
        assert!(text(&hostile).contains(&"--model=--mcp-config".to_owned()));
    }
}
