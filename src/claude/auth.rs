//! Whether there is a usable `claude`: its version, whether it is logged in, and, only when asked, whether an answer
//! comes back. Owns the processes of these questions. It must not know where the answer is shown.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    argv::DENIED_BUILT_INS,
    gather::Gather,
    not_started::NotStarted,
    process::{self, Ended, Order, Patience, Rung},
    reader::LineReader,
    unit::Program,
    version::Version,
};
use crate::{
    decode,
    tape::{
        UnitKey,
        note::{Cause, Outcome},
    },
    units::{
        tally::FailureRule,
        verdict::{Facts, StartFault, decide},
    },
};

/// First release with `auth status`; older ones take it for a prompt and hang.
const FIRST_AUTH_STATUS: Version = Version(2, 1, 40);
/// Limit of the cheap questions. A first start with a cold cache takes two seconds.
const QUICK: Duration = Duration::from_secs(10);
/// Limit of the probe, which waits for a model.
const PROBE: Duration = Duration::from_secs(60);
/// Most that an answer may have, in bytes: of its stdout, and of its stderr.
const ANSWER: usize = 4 * 1024 * 1024;
/// Longest piece of the program's own words in a sentence, in characters.
const QUOTE: usize = 300;

/// How to ask `claude`.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The program.
    pub program: Program,
    /// Working directory.
    pub cwd: PathBuf,
    /// Whole environment. Give it what the runs get: a key that is withheld from them must not count here.
    pub env: Vec<(OsString, OsString)>,
}

/// What is known without any request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The program.
    pub installed: Installed,
    /// The login.
    pub login: Login,
}

/// Whether the program is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It cannot be started; one sentence with the remedy.
    No(String),
    /// A script plays it.
    Scripted,
    /// It is.
    Yes(Version),
    /// Something was started that does not say its version; what it said.
    Unclear(String),
}

/// Whether somebody is logged in. Presence only: an expired login still counts as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Yes, and how.
    In {
        /// `claude.ai`, `api_key`, `oauth_token`, …
        method: String,
        /// Subscription, key source or account, if said.
        detail: Option<String>,
    },
    /// No.
    Out,
    /// Could not be found out; one sentence.
    Unknown(String),
}

impl Login {
    /// One sentence with the remedy, unless somebody is logged in.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::In { .. } => None,
            Self::Out => Some("Claude Code is not logged in; run claude once and sign in".into()),
            Self::Unknown(why) => Some(why.clone()),
        }
    }
}

/// What came of one real turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An answer came back.
    Usable,
    /// None came back.
    NotUsable {
        /// Why. Limits, credit and models are causes of their own, and not a failed login.
        cause: Cause,
        /// One sentence or two, with the remedy.
        text: String,
    },
}

/// Asks for the version.
pub async fn installed(asked: &Asked) -> Installed {
    match asked.run(&["--version"], QUICK).await {
        Err(why) => Installed::No(why),
        Ok(said) => version(&said),
    }
}

/// Asks for version and login. Takes seconds at most.
pub async fn inspect(asked: &Asked) -> Report {
    let installed = installed(asked).await;
    let login = match &installed {
        Installed::No(_) => Login::Unknown("there is no claude to ask for its login".into()),
        Installed::Yes(version) if *version < FIRST_AUTH_STATUS => {
            Login::Unknown(format!("claude {version} cannot say whether it is logged in; update it"))
        }
        Installed::Scripted | Installed::Yes(_) | Installed::Unclear(_) => {
            match asked.run(&["auth", "status"], QUICK).await {
                Ok(said) => login(&said.stdout),
                Err(why) => Login::Unknown(why),
            }
        }
    };
    Report { installed, login }
}

/// Has the model answer one word. Costs a request, so it only runs when a person asks for it.
pub async fn probe(asked: &Asked, model: Option<&str>) -> Probe {
    let built_ins = DENIED_BUILT_INS.join(",");
    let mut args =
        vec!["-p", "--output-format", "stream-json", "--verbose", "--setting-sources=", "--strict-mcp-config"];
    args.extend(["--tools=", "--disable-slash-commands", "--no-chrome", "--permission-mode", "dontAsk"]);
    args.extend(["--disallowedTools", &built_ins, "--max-turns", "1", "--no-session-persistence"]);
    args.extend(model.iter().flat_map(|model| ["--model", model]));
    args.extend(["--", "Reply with exactly: ok"]);
    let mut asked = asked.clone();
    // A bad key would otherwise be tried again for minutes.
    asked.env.retain(|(name, _)| name != "CLAUDE_CODE_MAX_RETRIES");
    asked.env.push(("CLAUDE_CODE_MAX_RETRIES".into(), "0".into()));
    match asked.run(&args, PROBE).await {
        Ok(said) => judge(said.facts()),
        Err(why) => Probe::NotUsable { cause: Cause::Internal, text: why },
    }
}

/// What a process said, and how it ended.
#[derive(Debug, Default)]
struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ended: Ended,
}

impl Said {
    fn facts(&self) -> Facts {
        let mut gather = Gather::new(Facts::default());
        for line in self.stdout.split(|byte| *byte == b'\n') {
            gather.line(&decode::line(line));
        }
        String::from_utf8_lossy(&self.stderr).lines().for_each(|line| gather.stderr(line));
        Facts { exit_code: self.ended.code, signal: self.ended.signal, ..gather.finish() }
    }
}

impl Asked {
    /// Runs the program with nothing on stdin. The error is a sentence.
    async fn run(&self, args: &[&str], limit: Duration) -> Result<Said, String> {
        let exe = self.program.exe.display();
        let words = self.program.prefix.iter().cloned().chain(args.iter().map(OsString::from));
        let order = Order {
            exe: self.program.exe.clone(),
            args: words.collect(),
            cwd: self.cwd.clone(),
            env: self.env.clone(),
            stdin: false,
        };
        let mut child = process::spawn(order).await.map_err(|error| unstarted(&self.program.exe, &self.cwd, &error))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(format!("{exe} was started without pipes"));
        };
        let listening = async {
            let ended = async { Ok(child.wait().await) };
            let (stdout, stderr, ended) = tokio::try_join!(all(stdout), all(stderr), ended)?;
            Ok(Said { stdout, stderr, ended })
        };
        let why = match tokio::time::timeout(limit, listening).await {
            Ok(Ok(said)) => return Ok(said),
            Ok(Err(TooLong)) => format!("answered with more than {} MiB", ANSWER / 1024 / 1024),
            Err(_) => format!("did not answer within {} s", limit.as_secs()),
        };
        child.end(Rung::Terminate, Patience::default()).await;
        let what = args.iter().take_while(|word| **word != "--").take(2).copied().collect::<Vec<_>>().join(" ");
        Err(format!("{exe} {what} {why}; run it in a terminal to see why"))
    }
}

/// Everything that comes out of a pipe, line by line, so that a child that is killed loses nothing.
async fn all(pipe: impl tokio::io::AsyncRead + Unpin) -> Result<Vec<u8>, TooLong> {
    let mut reader = LineReader::with_limit(pipe, ANSWER);
    let mut bytes = Vec::new();
    while !reader.is_over() {
        // An error ends the pipe; what came before it is taken all the same.
        let _ = reader.fill().await;
        let batch = reader.take();
        if batch.is_piece() || bytes.len() + batch.size() > ANSWER {
            return Err(TooLong);
        }
        for line in batch.lines() {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

/// More than an answer may have.
struct TooLong;

fn unstarted(exe: &Path, cwd: &Path, error: &std::io::Error) -> String {
    let name = exe.display();
    if !cwd.is_dir() {
        return format!("the working directory {} does not exist", cwd.display());
    }
    let why = NotStarted::explain(exe, cwd, error);
    match why.fault {
        StartFault::InterpreterMissing => {
            format!("{}; install the interpreter, or name another program with --claude-bin", why.sentence)
        }
        _ if error.kind() == std::io::ErrorKind::NotFound => format!(
            "there is no {name}; install Claude Code with npm install -g @anthropic-ai/claude-code and run claude once \
             to sign in, or name it with --claude-bin"
        ),
        _ => format!("cannot start {name}: {error}"),
    }
}

fn version(said: &Said) -> Installed {
    let text = String::from_utf8_lossy(&said.stdout);
    match Version::parse(&text) {
        _ if text.trim_end().ends_with("(scripted)") => Installed::Scripted,
        Some(version) => Installed::Yes(version),
        None => {
            let words = if text.trim().is_empty() { String::from_utf8_lossy(&said.stderr) } else { text };
            Installed::Unclear(quote(&words))
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    logged_in: bool,
    auth_method: Option<String>,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

fn login(stdout: &[u8]) -> Login {
    match serde_json::from_slice::<Status>(stdout) {
        Ok(Status { logged_in: false, .. }) => Login::Out,
        Ok(Status { auth_method, more, .. }) => {
            let word = |key: &str| more.get(key).and_then(Value::as_str);
            let detail = ["subscriptionType", "apiKeySource", "email"].into_iter().find_map(word);
            Login::In { method: auth_method.unwrap_or_else(|| "?".into()), detail: detail.map(str::to_owned) }
        }
        Err(_) => {
            let said = quote(&String::from_utf8_lossy(stdout));
            Login::Unknown(format!("claude auth status gave no JSON: {said}; update claude"))
        }
    }
}

fn judge(mut facts: Facts) -> Probe {
    // The probe has no tools; a model that calls one all the same has answered.
    facts.tally = Default::default();
    let verdict = decide(&UnitKey::from("probe"), &facts, FailureRule::Strict);
    if verdict.outcome == Outcome::Succeeded {
        return Probe::Usable;
    }
    let text = facts.result.as_ref().and_then(|result| result.errors.clone().or_else(|| result.text.clone()));
    let said = text.map(|text| quote(&text)).filter(|text| !text.is_empty());
    let said = said.unwrap_or(verdict.reason);
    let problem = match &verdict.cause {
        Cause::Auth => "Claude Code authentication is not usable",
        Cause::UsageLimit { .. } => "Claude Code is logged in, but its usage limit is reached",
        Cause::RateLimited | Cause::Transient => {
            "Claude Code is logged in, but the service turns requests away just now"
        }
        Cause::Credit => "Claude Code is logged in, but its account has no credit",
        Cause::Model => "Claude Code is logged in, but may not use this model",
        Cause::Network => "Claude Code cannot reach its service",
        _ => "Claude Code did not answer",
    };
    let remedy = verdict.remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
    Probe::NotUsable { cause: verdict.cause, text: format!("{problem}: {said}{remedy}") }
}

/// Foreign text inside a sentence of ours: on one line, bounded.
fn quote(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(QUOTE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Asked {
        Asked {
            program: Program { exe: "/bin/sh".into(), prefix: vec!["-c".into(), script.into()], scripted: false },
            cwd: std::env::temp_dir(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        }
    }

    /// A program that answers both questions. The first argument of the question is `$0`.
    fn answers(version: &str, status: &str) -> Asked {
        shell(&format!("case $0 in --version) echo '{version}';; auth) echo '{status}';; *) exit 3;; esac"))
    }

    #[tokio::test]
    async fn version_and_login_are_read() {
        let report = inspect(&answers(
            "2.1.330 (Claude Code)",
            r#"{"loggedIn":true,"authMethod":"claude.ai","subscriptionType":"max","email":"a@b.c"}"#,
        ))
        .await;
        let login = Login::In { method: "claude.ai".into(), detail: Some("max".into()) };
        assert_eq!(report, Report { installed: Installed::Yes(Version(2, 1, 330)), login });

        let out = inspect(&answers("2.1.330 (Claude Code)", r#"{"loggedIn":false,"authMethod":"none"}"#)).await;
        assert_eq!(out.login, Login::Out);
        assert!(out.login.problem().is_some_and(|text| text.contains("sign in")));
    }

    #[tokio::test]
    async fn an_old_release_is_not_asked_for_its_login() {
        let report = inspect(&answers("2.1.39 (Claude Code)", r#"{"loggedIn":true}"#)).await;
        assert_eq!(report.installed, Installed::Yes(Version(2, 1, 39)));
        assert!(matches!(report.login, Login::Unknown(why) if why.contains("2.1.39")));
    }

    #[tokio::test]
    async fn what_is_not_claude_is_told() {
        let report = inspect(&answers("bash, I am", "hello there")).await;
        assert_eq!(report.installed, Installed::Unclear("bash, I am".into()));
        assert!(matches!(report.login, Login::Unknown(why) if why.contains("hello there")));

        let mut missing = shell("");
        missing.program.exe = "/nonexistent/claude".into();
        let report = inspect(&missing).await;
        assert!(matches!(&report.installed, Installed::No(why) if why.contains("npm install -g")), "{report:?}");

        assert_eq!(inspect(&answers("0.0.0 (scripted)", "{}")).await.installed, Installed::Scripted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_that_hangs_is_given_up() {
        let error = shell("sleep 600").run(&["--version"], Duration::from_millis(10)).await.unwrap_err();
        assert!(error.starts_with("/bin/sh --version did not answer within 0 s"), "{error}");
    }

    #[tokio::test]
    async fn endless_answer_is_given_up() {
        for script in ["exec yes", "exec tr '\\0' x < /dev/zero", "exec yes >&2"] {
            let error = shell(script).run(&["--version"], Duration::from_secs(60)).await.unwrap_err();
            assert!(error.starts_with("/bin/sh --version answered with more than 4 MiB"), "{error}");
        }
    }

    fn judged(lines: &str) -> Probe {
        judge(Said { stdout: lines.into(), ..Said::default() }.facts())
    }

    #[test]
    fn limits_and_credit_are_not_a_failed_login() {
        let failed = |class: &str, more: &str, text: &str| {
            format!(
                "{{\"type\":\"assistant\",\"message\":{{\"model\":\"<synthetic>\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}},\
                 \"error\":\"{class}\"{more}}}\n\
                 {{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"terminal_reason\":\"api_error\",\"result\":\"{text}\"}}\n"
            )
        };
        let cases = [
            ("authentication_failed", "", "Not logged in", "Claude Code authentication is not usable: "),
            (
                "rate_limit",
                ",\"api_error\":\"usage_limit_reached\"",
                "You've hit your limit",
                "Claude Code is logged in, but its usage limit",
            ),
            ("rate_limit", ",\"api_error_status\":429", "Slow down", "Claude Code is logged in, but the service"),
            ("billing_error", "", "Credit balance is too low", "Claude Code is logged in, but its account"),
            ("model_not_found", "", "No such model", "Claude Code is logged in, but may not use"),
        ];
        for (class, more, text, start) in cases {
            let Probe::NotUsable { text: said, .. } = judged(&failed(class, more, text)) else { panic!("{class}") };
            assert!(said.starts_with(start) && said.contains(&format!(": {text}; ")), "{class}: {said}");
        }
        let ok =
            r#"{"type":"result","subtype":"success","is_error":false,"result":"ok","terminal_reason":"completed"}"#;
        assert_eq!(judged(ok), Probe::Usable);
        assert!(
            matches!(judged(""), Probe::NotUsable { text, .. } if text.starts_with("Claude Code did not answer: "))
        );
    }
}
