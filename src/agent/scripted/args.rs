//! Arguments of the scripted agent: its own first, then those of `claude`. The module must not read files or the
//! environment.

use std::{ffi::OsString, path::PathBuf};

/// Parsed arguments of the scripted agent.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptedAgentArgs {
    pub script: PathBuf,
    pub attempt: u32,
    /// Unit key; by default from the heading of the prompt.
    pub unit: Option<String>,
    /// All times are divided by this.
    pub speed: f64,
    pub request: ScriptedCommand,
}

/// Command of the emulated `claude`.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptedCommand {
    Version,
    AuthStatus,
    Run(Box<ClaudeFlags>),
}

/// Flags that affect a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaudeFlags {
    /// Prompts come from stdin.
    pub stream_input: bool,
    pub partial_messages: bool,
    /// Prompt of the command line.
    pub prompt: Option<String>,
    /// Session id to use.
    pub session_id: Option<String>,
    pub resume: Option<String>,
    /// Continue under a new id.
    pub fork: bool,
    pub max_turns: Option<u32>,
    pub permission_mode: Option<String>,
    pub allowed_tools: Vec<String>,
}

/// Invalid arguments, which the real program would reject, too.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptedArgsError {
    #[error("scripted-agent: {0}")]
    OwnFlag(String),
    #[error("{0}")]
    ClaudeFlag(String),
}

const SWITCH_FLAGS: &[&str] = &[
    "-p",
    "--print",
    "--verbose",
    "--strict-mcp-config",
    "--disable-slash-commands",
    "--no-chrome",
    "--restricted",
    "--include-partial-messages",
    "--fork-session",
    "--dangerously-skip-permissions",
    "--no-session-persistence",
    "--replay-user-messages",
];

const VALUE_FLAGS: &[&str] = &[
    "--output-format",
    "--input-format",
    "--setting-sources",
    "--permission-mode",
    "--permission-prompt-tool",
    "--system-prompt",
    "--system-prompt-file",
    "--system-prompt-snapshot",
    "--append-system-prompt",
    "--model",
    "--fallback-model",
    "--max-turns",
    "--max-budget-usd",
    "--session-id",
    "--resume",
    "--settings",
    "--effort",
];

/// Flags that take every following word up to the next flag.
const VARIADIC_FLAGS: &[&str] = &[
    "--allowedTools",
    "--disallowedTools",
    "--tools",
    "--mcp-config",
];

impl ScriptedAgentArgs {
    /// Parses the arguments after the subcommand.
    pub fn parse(
        words: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Self, ScriptedArgsError> {
        let mut words = words.into_iter().map(Into::<OsString>::into).peekable();
        let (mut script, mut attempt, mut unit, mut speed) = (None, 1, None, 1.0);
        let is_own = |word: &OsString| {
            matches!(
                word.to_str(),
                Some("--script" | "--attempt" | "--unit" | "--speed")
            )
        };
        while let Some(flag) = words.next_if(is_own) {
            let flag = flag.to_string_lossy();
            let given = words
                .next()
                .ok_or_else(|| ScriptedArgsError::OwnFlag(format!("{flag} needs a value")))?;
            let value = given.to_string_lossy().into_owned();
            let wrong = || ScriptedArgsError::OwnFlag(format!("{flag} cannot be `{value}`"));
            match &*flag {
                // A path need not be UTF-8.
                "--script" => script = Some(PathBuf::from(given)),
                "--attempt" => attempt = value.parse().map_err(|_| wrong())?,
                "--unit" => unit = Some(value),
                _ => {
                    speed = value
                        .parse()
                        .ok()
                        .filter(|speed| *speed > 0.0)
                        .ok_or_else(wrong)?
                }
            }
        }
        // A separator between the two sets of flags is optional.
        let claude: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let claude = match claude.as_slice() {
            [first, rest @ ..] if first == "--" => rest,
            all => all,
        };
        let script =
            script.ok_or_else(|| ScriptedArgsError::OwnFlag("--script FILE is needed".into()))?;
        Ok(Self {
            script,
            attempt,
            unit,
            speed,
            request: parse_request(claude)?,
        })
    }
}

fn parse_request(words: &[String]) -> Result<ScriptedCommand, ScriptedArgsError> {
    match words {
        [word] if word == "--version" || word == "-v" => return Ok(ScriptedCommand::Version),
        [first, second, ..] if first == "auth" && second == "status" => {
            return Ok(ScriptedCommand::AuthStatus);
        }
        _ => {}
    }
    let mut run = ClaudeFlags::default();
    let (mut verbose, mut streams) = (false, false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        if word == "--" {
            run.prompt = rest.next().cloned();
            break;
        } else if VARIADIC_FLAGS.contains(&name) {
            let mut values: Vec<String> = inline.into_iter().collect();
            if values.is_empty() {
                while let Some(value) = rest
                    .as_slice()
                    .first()
                    .filter(|value| !value.starts_with('-'))
                {
                    values.push(value.clone());
                    rest.next();
                }
            }
            if name == "--allowedTools" {
                run.allowed_tools = values
                    .iter()
                    .flat_map(|list| list.split([',', ' ']))
                    .filter(|tool| !tool.is_empty())
                    .map(str::to_owned)
                    .collect();
            }
        } else if VALUE_FLAGS.contains(&name) {
            let value = inline.or_else(|| rest.next().cloned()).ok_or_else(|| {
                ScriptedArgsError::ClaudeFlag(format!(
                    "error: option '{name} <value>' argument missing"
                ))
            })?;
            match name {
                "--output-format" => streams = value == "stream-json",
                "--input-format" => run.stream_input = value == "stream-json",
                "--permission-mode" => run.permission_mode = Some(value),
                "--max-turns" => run.max_turns = value.parse().ok(),
                "--session-id" => run.session_id = Some(value),
                "--resume" => run.resume = Some(value),
                _ => {}
            }
        } else if SWITCH_FLAGS.contains(&name) {
            match name {
                "--verbose" => verbose = true,
                "--include-partial-messages" => run.partial_messages = true,
                "--fork-session" => run.fork = true,
                _ => {}
            }
        } else if name.starts_with('-') {
            return Err(ScriptedArgsError::ClaudeFlag(format!(
                "error: unknown option '{name}'"
            )));
        } else {
            run.prompt = Some(word.clone());
        }
    }
    if streams && !verbose {
        let text = "Error: When using --print, --output-format=stream-json requires --verbose";
        return Err(ScriptedArgsError::ClaudeFlag(text.into()));
    }
    if !run.stream_input && run.prompt.as_deref().is_none_or(str::is_empty) {
        let text = "Error: Input must be provided either through stdin or as a prompt argument when using --print";
        return Err(ScriptedArgsError::ClaudeFlag(text.into()));
    }
    if run.session_id.is_some() && run.resume.is_some() && !run.fork {
        let text = "Error: --session-id can only be used with --resume if --fork-session is also specified.";
        return Err(ScriptedArgsError::ClaudeFlag(text.into()));
    }
    Ok(ScriptedCommand::Run(Box::new(run)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ScriptedAgentArgs, ScriptedArgsError> {
        ScriptedAgentArgs::parse(line.split_whitespace().map(str::to_owned))
    }

    fn run(line: &str) -> ClaudeFlags {
        match parse(line).unwrap().request {
            ScriptedCommand::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_flags_precede_claude_flags() {
        let args =
            parse("--script s.toml --attempt 2 --unit dbt-all --speed 10 --version").unwrap();
        assert_eq!(
            (args.attempt, args.unit.as_deref(), args.speed),
            (2, Some("dbt-all"), 10.0)
        );
        assert_eq!(args.request, ScriptedCommand::Version);
        for line in ["--script s auth status", "--script s -- auth status --json"] {
            assert_eq!(parse(line).unwrap().request, ScriptedCommand::AuthStatus);
        }
    }

    #[test]
    fn path_of_the_script_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStringExt as _;

        let path = OsString::from_vec(b"dir\xff/s.toml".to_vec());
        let words = [OsString::from("--script"), path.clone(), "--version".into()];
        assert_eq!(
            ScriptedAgentArgs::parse(words)
                .unwrap()
                .script
                .into_os_string(),
            path
        );
    }

    #[test]
    fn a_whole_unit_command_line_is_read() {
        let run = run(
            "--script s -p --input-format stream-json --output-format stream-json --verbose \
             --setting-sources= --strict-mcp-config --tools= --permission-mode dontAsk \
             --allowedTools mcp__ktx__a,mcp__ktx__b --disallowedTools Bash Read --max-turns 40 \
             --include-partial-messages --session-id 11111111-1111-4111-8111-111111111111",
        );
        assert!(run.stream_input && run.partial_messages && run.prompt.is_none());
        assert_eq!(run.allowed_tools, ["mcp__ktx__a", "mcp__ktx__b"]);
        assert_eq!(run.max_turns, Some(40));
    }

    #[test]
    fn the_prompt_is_the_word_after_the_separator() {
        let base = "--script s -p --output-format stream-json --verbose --allowedTools Bash,Read";
        assert_eq!(
            run(&format!("{base} -- --help")).prompt.as_deref(),
            Some("--help")
        );
        assert_eq!(
            run(&format!("--script s -- {}", "-p --verbose -- hi"))
                .prompt
                .as_deref(),
            Some("hi")
        );
    }

    #[test]
    fn arguments_claude_refuses_are_refused() {
        for (line, text) in [
            ("", "--script FILE"),
            ("--script", "--script needs a value"),
            ("--script s --speed 0", "--speed cannot be `0`"),
            ("--script s -p --zzz -- x", "unknown option '--zzz'"),
            (
                "--script s -p --output-format stream-json -- x",
                "requires --verbose",
            ),
            ("--script s -p --tools x", "Input must be provided"),
            ("--script s -p --model", "argument missing"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}
