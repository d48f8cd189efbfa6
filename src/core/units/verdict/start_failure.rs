//! Why Claude Code refused to start, as it reports it (`startup_failure_reason`), and what a person can do about it.

use super::{AttemptFacts, cause, failure_verdict, quote_foreign};
use crate::{
    tape::note::{StopReason, Verdict, VerdictCause},
    text::{self, commands::shell_quote},
};

/// What Claude Code reports about a start that it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartFailure {
    /// `config_file_invalid`, `proxy_invalid`, …; later releases add more.
    pub reason: String,
    /// The damaged file, and its backup if the agent found one.
    pub config_file: Option<(String, Option<String>)>,
}

/// Where Claude Code names its damaged settings on stderr, for starts that end without a result.
const CONFIG_ERROR: &str = "Configuration error in ";

/// Claude Code's error for a session id that another process uses.
const SESSION_IN_USE: &str = "is already in use";

/// The verdict of an attempt whose agent refused to start.
pub(super) fn start_failure_verdict(facts: &AttemptFacts) -> Option<Verdict> {
    if let Some((reason, remedy)) = &facts.interruption.unsupported_release {
        let verdict = failure_verdict(StopReason::Error, VerdictCause::StartFailed, reason.clone());
        return Some(Verdict {
            remedy: remedy.clone(),
            ..verdict
        });
    }
    let result = facts.reported.result.as_ref();
    let failure = match result {
        Some(result) => result.start_failure.clone()?,
        // An agent that worked may have written the same words.
        None if facts.process.is_mute && !facts.process.terminated_by_us => {
            failure_on_stderr(&facts.process.stderr_tail)?
        }
        None => return None,
    };
    let StartFailure {
        reason,
        config_file,
    } = &failure;
    let errors = result.and_then(|result| result.errors.as_deref());
    let text = match (reason.as_str(), config_file) {
        ("config_file_invalid", Some((path, _))) => {
            format!(
                "Claude Code did not start: {} is not valid JSON",
                quote_foreign(path)
            )
        }
        _ => match errors {
            Some(errors) => format!("Claude Code did not start: {}", quote_foreign(errors)),
            None => format!("Claude Code did not start: {}", quote_foreign(reason)),
        },
    };
    let verdict = failure_verdict(StopReason::Error, VerdictCause::StartFailed, text);
    Some(Verdict {
        remedy: Some(remedy(&failure)),
        ..verdict
    })
}

/// The verdict of a process that ended by itself before it wrote a JSON line, for a reason that is not known otherwise.
pub(super) fn mute_process_verdict(facts: &AttemptFacts) -> Option<Verdict> {
    let process = &facts.process;
    let code = process
        .exit_code
        .filter(|_| process.is_mute && process.signal.is_none() && !process.terminated_by_us)?;
    // Every unit would meet the same fault, but not a session that is used or unknown.
    let is_of_session = facts.is_unknown_session()
        || process
            .stderr_tail
            .iter()
            .any(|line| line.contains(SESSION_IN_USE));
    if is_of_session || cause::loop_failure_cause(facts) != VerdictCause::Crashed {
        return None;
    }
    let mut lines = process
        .stderr_tail
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty());
    let named = lines
        .clone()
        .find(|line| line.to_lowercase().contains("error"))
        .or_else(|| lines.next_back());
    let text = match named {
        Some(line) => format!(
            "Claude Code did not start (exit code {code}): {}",
            quote_foreign(line)
        ),
        None => {
            format!("Claude Code did not start: it ended with exit code {code} without a message")
        }
    };
    Some(failure_verdict(
        StopReason::Error,
        VerdictCause::StartFailed,
        text,
    ))
}

/// The failure in the last lines of stderr.
fn failure_on_stderr(lines: &[String]) -> Option<StartFailure> {
    let named = lines
        .iter()
        .find_map(|line| line.trim_start().strip_prefix(CONFIG_ERROR))?;
    let path = named.split_once(": ").map_or(named, |(path, _)| path);
    Some(StartFailure {
        reason: "config_file_invalid".to_owned(),
        config_file: Some((path.to_owned(), backup_in(lines))),
    })
}

/// The backup that Claude Code names for its damaged settings. The copy of the damaged file is none.
fn backup_in(lines: &[String]) -> Option<String> {
    let named = lines
        .iter()
        .filter(|line| !line.contains("corrupted"))
        .find_map(|line| {
            let line = line.trim();
            line.split_once("backup file exists at: ")
                .or_else(|| line.split_once("backup of it: "))
                .map(|(_, path)| path)
        });
    named.map(str::to_owned)
}

fn remedy(failure: &StartFailure) -> String {
    let text = match failure.reason.as_str() {
        "config_file_invalid" => {
            return match &failure.config_file {
                // A command must name the files exactly.
                Some((path, Some(backup)))
                    if [path, backup]
                        .iter()
                        .all(|path| text::printable(path, usize::MAX - 1) == ***path) =>
                {
                    let (backup, path) = (shell_quote(backup), shell_quote(path));
                    format!(
                        "restore it with `cp {backup} {path}`, or correct its JSON, then run again"
                    )
                }
                Some((_, Some(_))) => {
                    "restore it from its backup, or correct its JSON, then run again".to_owned()
                }
                Some((path, None)) => format!(
                    "correct its JSON, or move {} away to start with default settings and sign in again, then run again",
                    quote_foreign(path)
                ),
                None => {
                    "correct the JSON of the file that the message names, then run again".to_owned()
                }
            };
        }
        "org_pin_api_key_conflict" => {
            "remove the API key or token from the environment: managed settings require a sign-in"
        }
        "provider_not_allowed" => {
            "use an API provider that the managed settings of this machine allow"
        }
        "org_verify_failed" => "check the network, then sign in again with `claude` and /login",
        "org_pin_mismatch" => {
            "sign in with `claude` and /login to an organization that the managed settings allow"
        }
        "managed_settings_invalid" => "have the managed settings of this machine corrected",
        "remote_settings_required_unavailable" | "org_config_required_unavailable" => {
            "check the network: the organization requires settings that could not be fetched; then run again"
        }
        "org_config_refused" => {
            "ask the administrator of the organization, whose settings refuse this start"
        }
        "gateway_signin_required" => "sign in to the gateway with `claude`, then run again",
        "gateway_access_denied" => "ask the administrator of the gateway for access",
        "proxy_invalid" => "correct the proxy variables (HTTPS_PROXY, HTTP_PROXY), then run again",
        "temp_dir_unusable" => {
            "make the directory for temporary files writable, or free some space, then run again"
        }
        "cwd_unavailable" => {
            "make sure that the project directory exists and can be read, then run again"
        }
        "shell_tool_missing" => "install a POSIX shell such as bash, then run again",
        "session_held_by_background" => {
            "stop the background session with `claude stop`, or retry in a new session"
        }
        "worktree_resume_refused" | "worktree_unverified" => "retry in a new session",
        "cli_version_too_old" => "update `claude`, then run again",
        "bypass_root" => "run as another user than root, or do not bypass permissions",
        "sandbox_required_unavailable" => {
            "install what the sandbox needs, which the managed settings require"
        }
        "sideload_flags_disabled" => {
            "ask the administrator, whose settings forbid the flags that isolate agents"
        }
        _ => {
            "run `claude` in a terminal to see why, then run again; `ingestdeck doctor` checks the installation"
        }
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::verdict::{
        FailureRule, InterruptionFacts, ProcessFacts, ReportedFacts, ResultFacts, judge_attempt,
    };

    fn judged(failure: StartFailure, errors: &str) -> Verdict {
        let result = ResultFacts {
            failed: true,
            subtype: Some("error_during_execution".into()),
            errors: Some(errors.into()),
            start_failure: Some(failure),
            ..ResultFacts::default()
        };
        let reported = ReportedFacts {
            result: Some(result),
            ..ReportedFacts::default()
        };
        judge_attempt(
            &"u".into(),
            &AttemptFacts {
                reported,
                ..AttemptFacts::default()
            },
            FailureRule::Strict,
        )
    }

    #[test]
    fn damaged_settings_are_named_with_their_backup() {
        let file = |backup: Option<&str>| StartFailure {
            reason: "config_file_invalid".into(),
            config_file: Some(("/home/a/.claude.json".into(), backup.map(str::to_owned))),
        };
        let verdict = judged(
            file(Some("/home/a/.claude.json.backup")),
            "Config file is not valid JSON",
        );
        assert_eq!(verdict.cause, VerdictCause::StartFailed);
        assert_eq!(
            verdict.reason,
            "Claude Code did not start: /home/a/.claude.json is not valid JSON"
        );
        let remedy = verdict.remedy.unwrap_or_default();
        assert!(
            remedy.contains("`cp /home/a/.claude.json.backup /home/a/.claude.json`"),
            "{remedy}"
        );
        let remedy = judged(file(Some("/a b/$(touch x)")), "x")
            .remedy
            .unwrap_or_default();
        assert!(
            remedy.contains("`cp '/a b/$(touch x)' /home/a/.claude.json`"),
            "{remedy}"
        );
        let long = format!("/a  b/{}", "c".repeat(300));
        let remedy = judged(file(Some(&long)), "x").remedy.unwrap_or_default();
        assert!(
            remedy.contains(&format!("`cp '{long}' ")),
            "a command names the whole path: {remedy}"
        );
        let remedy = judged(file(Some("/a\nb")), "x").remedy.unwrap_or_default();
        assert!(remedy.starts_with("restore it from its backup"), "{remedy}");
        let remedy = judged(file(None), "x").remedy.unwrap_or_default();
        assert!(
            remedy.contains("move /home/a/.claude.json away"),
            "{remedy}"
        );
    }

    #[test]
    fn known_and_unknown_reasons_have_a_remedy() {
        let reason = |reason: &str| StartFailure {
            reason: reason.into(),
            config_file: None,
        };
        let verdict = judged(reason("proxy_invalid"), "HTTPS_PROXY is not a URL");
        assert_eq!(
            verdict.reason,
            "Claude Code did not start: HTTPS_PROXY is not a URL"
        );
        assert!(
            verdict
                .remedy
                .is_some_and(|remedy| remedy.contains("HTTPS_PROXY"))
        );
        let verdict = judged(reason("of_a_later_release\u{1b}[2J"), "x");
        assert_eq!(verdict.cause, VerdictCause::StartFailed);
        assert!(
            verdict.remedy.is_some_and(
                |remedy| remedy.contains("doctor") && !remedy.contains("later_release")
            )
        );
    }

    #[test]
    fn damaged_settings_on_stderr_alone_are_recognised() {
        let stderr_tail = [
            "Configuration error in /home/a/.claude.json: JSON Parse error: Unexpected EOF",
            "No backup of this file was found.",
        ];
        let process = ProcessFacts {
            exit_code: Some(1),
            is_mute: true,
            stderr_tail: stderr_tail.map(str::to_owned).into(),
            ..ProcessFacts::default()
        };
        let facts = AttemptFacts {
            process,
            ..AttemptFacts::default()
        };
        let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
        assert_eq!(verdict.cause, VerdictCause::StartFailed);
        assert_eq!(
            verdict.reason,
            "Claude Code did not start: /home/a/.claude.json is not valid JSON"
        );
        let process = ProcessFacts {
            is_mute: false,
            ..facts.process
        };
        let facts = AttemptFacts { process, ..facts };
        let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
        assert_ne!(
            verdict.cause,
            VerdictCause::StartFailed,
            "it worked before it ended"
        );
    }

    #[test]
    fn process_that_ends_without_a_line_did_not_start() {
        let judged = |code: i32, is_mute: bool, stderr: &[&str]| {
            let stderr_tail = stderr.iter().map(|line| (*line).to_owned()).collect();
            let process = ProcessFacts {
                exit_code: Some(code),
                is_mute,
                stderr_tail,
                ..ProcessFacts::default()
            };
            let facts = AttemptFacts {
                process,
                ..AttemptFacts::default()
            };
            let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
            (verdict.cause, verdict.reason)
        };
        let refused = |reason: &str| (VerdictCause::StartFailed, reason.to_owned());
        let stack = ["bun:main", "Error: Cannot find module", "    at x", ""];
        let found = judged(1, true, &stack);
        assert_eq!(
            found,
            refused("Claude Code did not start (exit code 1): Error: Cannot find module")
        );
        let found = judged(3, true, &["first", "second", " "]);
        assert_eq!(
            found,
            refused("Claude Code did not start (exit code 3): second")
        );
        for code in [0, 1] {
            let text = format!(
                "Claude Code did not start: it ended with exit code {code} without a message"
            );
            assert_eq!(judged(code, true, &[]), refused(&text));
        }
        // It worked before it ended, the session is at fault, or the cause is known.
        assert_eq!(judged(1, false, &stack).0, VerdictCause::Crashed);
        assert_eq!(
            judged(1, true, &["Error: Session ID x is already in use."]).0,
            VerdictCause::Crashed
        );
        assert_eq!(
            judged(1, true, &["No conversation found with session ID: x"]).0,
            VerdictCause::Crashed
        );
        assert_eq!(judged(1, true, &["Invalid API key"]).0, VerdictCause::Auth);
    }

    #[test]
    fn unsupported_release_during_a_run_is_a_start_failure() {
        let unsupported_release = Some((
            "claude 2.1.150 is too old".to_owned(),
            Some("update it".to_owned()),
        ));
        let interruption = InterruptionFacts {
            unsupported_release,
            ..InterruptionFacts::default()
        };
        let facts = AttemptFacts {
            interruption,
            ..AttemptFacts::default()
        };
        let verdict = judge_attempt(&"u".into(), &facts, FailureRule::Strict);
        assert_eq!(
            (verdict.cause, verdict.remedy.as_deref()),
            (VerdictCause::StartFailed, Some("update it"))
        );
    }
}
