//! Why an agent loop failed: machine-readable fields first, texts last.
//!
//! Texts are only used if they are error messages: a model that writes about rate limits has not hit a rate limit.

use crate::tape::note::VerdictCause;

use super::AttemptFacts;

/// The cause of a loop that did not succeed.
pub(super) fn loop_failure_cause(facts: &AttemptFacts) -> VerdictCause {
    let result = facts.reported.result.as_ref();
    let terminal = result.and_then(|result| result.terminal_reason.as_deref());
    by_terminal_reason(terminal)
        .or_else(|| by_api_error(facts))
        .or_else(|| error_texts(facts).find_map(by_agent_message))
        .or_else(|| by_class(facts))
        .or_else(|| by_status(facts))
        .or_else(|| {
            error_texts(facts)
                .find_map(|text| by_phrase(facts, text).or_else(|| by_status_code(text)))
        })
        .or_else(|| last_stderr(facts).find_map(|line| by_phrase(facts, line)))
        .unwrap_or(if result.is_some() {
            VerdictCause::LoopError
        } else {
            VerdictCause::Crashed
        })
}

fn by_terminal_reason(terminal: Option<&str>) -> Option<VerdictCause> {
    match terminal? {
        "aborted_streaming" | "aborted_tools" => Some(VerdictCause::Cancelled),
        "prompt_too_long" | "blocking_limit" | "rapid_refill_breaker" => {
            Some(VerdictCause::ContextOverflow)
        }
        _ => None,
    }
}

fn by_api_error(facts: &AttemptFacts) -> Option<VerdictCause> {
    match facts.reported.api_error.as_deref()? {
        "usage_limit_reached" => Some(usage_limit(facts)),
        "connection_failed" => Some(VerdictCause::Network),
        "max_output_tokens" => Some(VerdictCause::LoopError),
        _ => None,
    }
}

fn by_class(facts: &AttemptFacts) -> Option<VerdictCause> {
    match facts.reported.error_class.as_deref()? {
        "authentication_failed"
        | "oauth_org_not_allowed"
        | "account_on_hold"
        | "verification_required"
        | "cloud_credential_error" => Some(VerdictCause::Auth),
        "billing_error" => Some(VerdictCause::Credit),
        "model_not_found" => Some(VerdictCause::Model),
        "rate_limit" => Some(rate_limit(facts)),
        "overloaded" | "server_error" => Some(VerdictCause::Transient),
        "max_output_tokens" => Some(VerdictCause::LoopError),
        // `invalid_request` and `unknown` are ambiguous: they also cover an overlong prompt and a bad model.
        _ => None,
    }
}

fn by_status(facts: &AttemptFacts) -> Option<VerdictCause> {
    let status = facts
        .reported
        .api_status
        .or_else(|| facts.reported.result.as_ref()?.api_status)?;
    match status {
        401 | 403 => Some(VerdictCause::Auth),
        402 => Some(VerdictCause::Credit),
        404 => Some(VerdictCause::Model),
        429 => Some(rate_limit(facts)),
        408 | 500..=599 => Some(VerdictCause::Transient),
        _ => None,
    }
}

/// Cause of a request without a response, from the agent's own message. Releases before 2.1.330 have no field for it:
/// up to 2.1.199 the class is `unknown`, later it is `server_error`, as for a busy service.
fn by_agent_message(text: &str) -> Option<VerdictCause> {
    const UNREACHABLE: [&str; 6] = [
        "Unable to connect to API",
        "Connection refused",
        "Connection dropped",
        "Can't reach the API server",
        "No internet route",
        "Couldn't connect through your proxy",
    ];
    let text = text.strip_prefix("API Error: ").unwrap_or(text);
    if UNREACHABLE.iter().any(|head| text.starts_with(head)) {
        return Some(VerdictCause::Network);
    }
    let is_empty = text.starts_with(EMPTY_RESPONSE_MESSAGE) || is_empty_message_diagnostic(text);
    is_empty.then_some(VerdictCause::Transient)
}

/// Message for an invalid API response: an empty one, a proxy's page, a truncated stream.
const EMPTY_RESPONSE_MESSAGE: &str = "API returned an empty or malformed response";

/// True for the diagnostic about an API message without content.
pub(super) fn is_empty_message_diagnostic(error: &str) -> bool {
    error.starts_with(DIAGNOSTIC_PREFIX)
        && error.contains("result_type=assistant last_content_type=none")
}

/// True for a text about the internals of the agent's loop.
pub(super) fn is_diagnostic(error: &str) -> bool {
    error.starts_with(DIAGNOSTIC_PREFIX)
}

const DIAGNOSTIC_PREFIX: &str = "[ede_diagnostic]";

/// Error texts: those of the result and of a synthetic line.
fn error_texts(facts: &AttemptFacts) -> impl Iterator<Item = &str> {
    let result = facts.reported.result.as_ref();
    let errors = result.and_then(|result| result.errors.as_deref());
    // Without an error flag, the text of a result comes from the model.
    let text = result
        .filter(|result| result.failed)
        .and_then(|result| result.text.as_deref());
    let synthetic = facts
        .reported
        .error_class
        .as_ref()
        .and(facts.reported.last_text.as_deref());
    errors.into_iter().chain(text).chain(synthetic)
}

/// Stderr lines of a process without a result, newest first. Only phrases count there: the numbers of a stack trace
/// look like status codes.
fn last_stderr(facts: &AttemptFacts) -> impl Iterator<Item = &str> {
    facts
        .process
        .stderr_tail
        .iter()
        .rev()
        .filter(|_| facts.reported.result.is_none())
        .map(String::as_str)
}

/// Phrases by cause. The first matching row decides, so specific rows come first.
const PHRASES: &[(&[&str], VerdictCause)] = &[
    (&["credit balance"], VerdictCause::Credit),
    (
        &[
            "prompt is too long",
            "context length",
            "context window",
            "token limit",
            "context limit",
        ],
        VerdictCause::ContextOverflow,
    ),
    (
        &[
            "invalid api key",
            "please run /login",
            "not logged in",
            "failed to authenticate",
            "oauth token",
            "authentication_error",
        ],
        VerdictCause::Auth,
    ),
    (
        &[
            "issue with the selected model",
            "model_not_found",
            "not_found_error: model",
        ],
        VerdictCause::Model,
    ),
    (
        &[
            "rate limit",
            "rate_limit",
            "too many requests",
            "quota exceeded",
        ],
        VerdictCause::RateLimited,
    ),
    (
        &["overloaded", "internal server error", "api_error"],
        VerdictCause::Transient,
    ),
    (
        &[
            "econnrefused",
            "econnreset",
            "etimedout",
            "enotfound",
            "eai_again",
            "connection reset",
            "connection error",
            "connection refused",
            "connection closed",
            "socket hang up",
            "fetch failed",
            "network error",
            "timed out",
            "timeout",
        ],
        VerdictCause::Network,
    ),
];

/// Phrases of several releases for a subscription's usage windows.
const USAGE_LIMIT_PHRASES: &[&str] = &[
    "usage limit",
    "session limit",
    "5-hour limit",
    "weekly limit",
];

/// Status codes of a busy service, matched as whole words.
const BUSY_STATUS_CODES: &[&str] = &["500", "502", "503", "504", "529"];

fn by_status_code(text: &str) -> Option<VerdictCause> {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.find_map(|word| match word {
        "429" => Some(VerdictCause::RateLimited),
        word => BUSY_STATUS_CODES
            .contains(&word)
            .then_some(VerdictCause::Transient),
    })
}

fn by_phrase(facts: &AttemptFacts, text: &str) -> Option<VerdictCause> {
    let text = text.to_lowercase();
    let has = |phrase: &&str| text.contains(*phrase);
    if USAGE_LIMIT_PHRASES.iter().any(has) || (has(&"hit your") && has(&"limit")) {
        return Some(VerdictCause::UsageLimit {
            resets_at: facts
                .reported
                .limit_resets_at
                .or_else(|| trailing_epoch(&text)),
        });
    }
    PHRASES
        .iter()
        .find(|(phrases, _)| phrases.iter().any(has))
        .map(|(_, cause)| cause.clone())
}

/// Early releases append the reset time: `usage limit reached|1700000000`.
fn trailing_epoch(text: &str) -> Option<i64> {
    text.rsplit_once('|')?.1.trim().parse().ok()
}

fn usage_limit(facts: &AttemptFacts) -> VerdictCause {
    VerdictCause::UsageLimit {
        resets_at: facts.reported.limit_resets_at,
    }
}

/// A rate limit is a usage limit if a window was rejected before.
fn rate_limit(facts: &AttemptFacts) -> VerdictCause {
    if facts.reported.limit_resets_at.is_some() {
        usage_limit(facts)
    } else {
        VerdictCause::RateLimited
    }
}
