//! Decodes one line to [`AgentLine`]: determines its type, then reads it in one scan.
//!
//! Errors are tolerated per field: a field of the wrong type counts as absent and affects nothing else. A line is
//! malformed as a whole only if its bytes are not one JSON object with a string `type`.

use std::borrow::Cow;

use super::{
    AgentLine, LineBody, LineKind, RawJson,
    chat_line::{self, BlockPlacement},
    json_scanner::{JsonScanner, ScanResult},
    line::{
        InvalidConfigFile, PermissionDenial, RateLimitEvent, ReportedWindow, ResultLine,
        StreamDelta,
    },
    line_head::{LineHead, error_text},
    session_file_line, system_line,
};

/// A line of an agent without a decoder: nothing is known about it.
pub fn opaque_line(_bytes: &[u8]) -> AgentLine<'_> {
    AgentLine {
        body: LineBody::Other("opaque".into()),
        ..MALFORMED_LINE
    }
}

const MALFORMED_LINE: AgentLine<'static> = AgentLine {
    session_id: None,
    parent_tool_use_id: None,
    timestamp: None,
    is_session_file: false,
    is_sidechain: false,
    agent_id: None,
    body: LineBody::Malformed,
};

/// Decodes one line, with or without its newline. It never fails or panics and allocates little: long values are
/// borrowed. A blank line is [`LineBody::Malformed`]; callers that read files skip blank lines.
///
/// If a field occurs several times, the last value counts, but the first `type` determines the kind of the line.
pub fn decode_line(bytes: &[u8]) -> AgentLine<'_> {
    read(bytes).unwrap_or(MALFORMED_LINE)
}

/// True if the bytes are one JSON value in valid UTF-8, surrounded by nothing but white space.
pub fn is_json(bytes: &[u8]) -> bool {
    // A byte order mark is accepted by decoding, but is not part of JSON.
    !bytes.starts_with(b"\xEF\xBB\xBF") && JsonScanner::with_text_check(bytes).is_whole_json()
}

/// Guesses the kind of a line from its first bytes, for an index. Returns `None` if they do not determine it, or if the
/// line is malformed before its type; the caller then decodes the whole line. A line that is malformed after the prefix
/// still gets a guess.
pub fn guess_kind(prefix: &[u8]) -> Option<LineKind> {
    // Nearly all lines of a capture begin with one of these prefixes.
    if prefix.starts_with(b"{\"type\":\"user\",") {
        return Some(LineKind::User);
    }
    if prefix.starts_with(b"{\"type\":\"assistant\",") {
        return Some(LineKind::Assistant);
    }
    let mut scan = JsonScanner::new(prefix);
    let kind = match &*scan
        .seek(b"type")
        .ok()?
        .then(|| scan.text().ok().flatten())??
    {
        "system" => {
            let mut scan = JsonScanner::new(prefix);
            let subtype = if scan.seek(b"subtype").ok()? {
                scan.text().ok()?
            } else {
                None
            };
            if subtype.as_deref() == Some("init") {
                LineKind::Init
            } else {
                LineKind::System
            }
        }
        "auth_status" | "conversation_reset" => LineKind::System,
        "assistant" | "assistant_message" | "tool_use" => LineKind::Assistant,
        "user" | "tool_result" => LineKind::User,
        "stream_event" => LineKind::StreamEvent,
        "tool_progress" => LineKind::ToolProgress,
        "rate_limit_event" => LineKind::RateLimit,
        "control_request"
        | "control_response"
        | "control_cancel_request"
        | "command_lifecycle"
        | "keep_alive" => LineKind::Control,
        "result" => LineKind::Result,
        _ => LineKind::Other,
    };
    Some(kind)
}

fn read(bytes: &[u8]) -> Option<AgentLine<'_>> {
    let whole = JsonScanner::with_text_check(bytes);
    let name = {
        let mut scan = whole.clone();
        scan.seek(b"type")
            .ok()?
            .then(|| scan.text().ok().flatten())??
    };
    let (mut scan, mut head) = (whole, LineHead::default());
    let body = body(&mut scan, &mut head, name).ok()?;
    scan.end().ok()?;
    let LineHead {
        session_id,
        parent_tool_use_id,
        timestamp,
        on_disk,
        is_sidechain,
        agent_id,
    } = head;
    Some(AgentLine {
        session_id,
        parent_tool_use_id,
        timestamp,
        is_session_file: on_disk,
        is_sidechain,
        agent_id,
        body,
    })
}

fn body<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    name: Cow<'a, str>,
) -> ScanResult<LineBody<'a>> {
    Ok(match &*name {
        "assistant" | "assistant_message" => {
            LineBody::Assistant(chat_line::read(scan, head, BlockPlacement::InMessage)?)
        }
        "user" => LineBody::User(chat_line::read(scan, head, BlockPlacement::InMessage)?),
        "tool_use" => LineBody::Assistant(chat_line::read(scan, head, BlockPlacement::WholeLine)?),
        "tool_result" => LineBody::User(chat_line::read(scan, head, BlockPlacement::WholeLine)?),
        "system" => system_line::read(scan, head)?,
        "auth_status" => LineBody::System(system_line::auth_status(scan, head)?),
        "conversation_reset" => LineBody::System(system_line::conversation_reset(scan, head)?),
        "stream_event" => LineBody::StreamEvent(stream_event(scan, head)?),
        "tool_progress" => tool_progress(scan, head)?,
        "rate_limit_event" => LineBody::RateLimit(rate_limit(scan, head)?),
        "result" => LineBody::Result(Box::new(result(scan, head)?)),
        "control_request"
        | "control_response"
        | "control_cancel_request"
        | "command_lifecycle"
        | "keep_alive" => control(scan, head, name)?,
        _ => session_file_line::read(scan, head, name)?,
    })
}

fn stream_event<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<StreamDelta<'a>> {
    let (mut event, mut text, mut thinking, mut usage, mut message_id) =
        (None, None, None, None, None);
    scan.object(|scan, key| match key {
        b"event" => scan
            .object(|scan, key| {
                match key {
                    b"type" => event = scan.text()?,
                    b"delta" => drop(scan.object(|scan, key| {
                        match key {
                            b"text" => text = scan.text()?,
                            b"thinking" => thinking = scan.text()?,
                            _ => scan.skip()?,
                        }
                        Ok(())
                    })?),
                    b"usage" => usage = chat_line::counts(scan)?,
                    _ => scan.skip()?,
                }
                Ok(())
            })
            .map(drop),
        b"api_message_id" => {
            message_id = scan.non_empty_text()?;
            Ok(())
        }
        _ => head.read_field(scan, key),
    })?;
    Ok(match (text, thinking, usage) {
        (Some(text), ..) => StreamDelta::Text(text),
        (None, Some(thinking), _) => StreamDelta::Thinking(thinking),
        (None, None, Some(usage)) => StreamDelta::Usage { message_id, usage },
        (None, None, None) => StreamDelta::Other(event.unwrap_or_default()),
    })
}

fn tool_progress<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<LineBody<'a>> {
    let (mut id, mut elapsed_seconds) = (Cow::default(), 0.0);
    scan.object(|scan, key| {
        match key {
            b"tool_use_id" => id = scan.text()?.unwrap_or_default(),
            b"elapsed_time_seconds" => elapsed_seconds = scan.float()?.unwrap_or_default(),
            _ => head.read_field(scan, key)?,
        }
        Ok(())
    })?;
    let tool_use_id = without_heartbeat(id);
    // A heartbeat names its own call as its parent; only a different parent is kept.
    head.parent_tool_use_id = head
        .parent_tool_use_id
        .take()
        .filter(|parent| *parent != tool_use_id);
    Ok(LineBody::ToolProgress {
        tool_use_id,
        elapsed_seconds,
    })
}

/// Removes the suffix of `"<id>-heartbeat-<n>"`.
fn without_heartbeat(id: Cow<'_, str>) -> Cow<'_, str> {
    let Some((plain, number)) = id.rsplit_once("-heartbeat-") else {
        return id;
    };
    if plain.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return id;
    }
    let length = plain.len();
    match id {
        Cow::Borrowed(id) => Cow::Borrowed(&id[..length]),
        Cow::Owned(mut id) => {
            id.truncate(length);
            Cow::Owned(id)
        }
    }
}

fn rate_limit<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<RateLimitEvent<'a>> {
    let mut limit = RateLimitEvent::default();
    scan.object(|scan, key| match key {
        b"rate_limit_info" => scan
            .object(|scan, key| {
                match key {
                    b"status" => limit.status = scan.text()?.unwrap_or_default(),
                    b"resetsAt" => limit.resets_at = scan.count()?.and_then(unix_seconds),
                    b"rateLimitType" => limit.limit = scan.non_empty_text()?,
                    b"utilization" => limit.utilization = scan.float()?,
                    b"unifiedWindows" => limit.windows = usage_windows(scan)?,
                    _ => scan.skip()?,
                }
                Ok(())
            })
            .map(drop),
        _ => head.read_field(scan, key),
    })?;
    Ok(limit)
}

/// At most this many usage windows are read; the service has a handful.
const MAX_USAGE_WINDOWS: usize = 32;

fn usage_windows<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Vec<ReportedWindow<'a>>> {
    let mut windows = Vec::new();
    let Some(raw) = scan.raw()? else {
        return Ok(windows);
    };
    let mut scan = JsonScanner::from_text(raw.0);
    scan.object(|scan, name| {
        let mut window = ReportedWindow {
            name: Cow::Owned(String::from_utf8_lossy(name).into_owned()),
            ..ReportedWindow::default()
        };
        let is_object = scan.object(|scan, key| {
            match key {
                b"status" => window.status = scan.non_empty_text()?,
                b"resetsAt" => window.resets_at = scan.count()?.and_then(unix_seconds),
                b"utilization" => window.utilization = scan.float()?,
                _ => scan.skip()?,
            }
            Ok(())
        })?;
        if is_object && windows.len() < MAX_USAGE_WINDOWS {
            windows.push(window);
        }
        Ok(())
    })?;
    Ok(windows)
}

/// `invalid_config_file`: path and backup.
fn invalid_config<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<InvalidConfigFile<'a>>> {
    let (mut path, mut backup) = (None, None);
    scan.object(|scan, key| {
        match key {
            b"path" => path = scan.non_empty_text()?,
            b"backup_path" => backup = scan.non_empty_text()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(path.map(|path| InvalidConfigFile { path, backup }))
}

/// Converts seconds or milliseconds to seconds. Values beyond the year 5138 are milliseconds.
fn unix_seconds(time: u64) -> Option<i64> {
    let seconds = if time >= 100_000_000_000 {
        time / 1000
    } else {
        time
    };
    i64::try_from(seconds).ok()
}

fn control<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    kind: Cow<'a, str>,
) -> ScanResult<LineBody<'a>> {
    let (mut request_id, mut subtype, mut payload) = (None, None, None::<RawJson<'a>>);
    scan.object(|scan, key| {
        match key {
            b"request_id" | b"command_uuid" => request_id = scan.non_empty_text()?,
            b"state" => subtype = scan.non_empty_text()?,
            b"request" | b"response" => payload = scan.raw()?,
            _ => head.read_field(scan, key)?,
        }
        Ok(())
    })?;
    let mut inner = JsonScanner::from_text(payload.map_or("{}", |payload| payload.0));
    inner.object(|scan, key| {
        match key {
            b"subtype" => subtype = scan.non_empty_text()?,
            b"request_id" if request_id.is_none() => request_id = scan.non_empty_text()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    let (subtype, request_id) = (subtype.unwrap_or_default(), request_id.unwrap_or_default());
    Ok(LineBody::Control {
        kind,
        subtype,
        request_id,
        payload,
    })
}

fn result<'a>(scan: &mut JsonScanner<'a>, head: &mut LineHead<'a>) -> ScanResult<ResultLine<'a>> {
    let mut line = ResultLine::default();
    scan.object(|scan, key| {
        match key {
            b"subtype" => line.subtype = scan.non_empty_text()?,
            b"is_error" => line.is_error = scan.boolean()?,
            b"terminal_reason" => line.terminal_reason = scan.non_empty_text()?,
            b"stop_reason" => line.stop_reason = scan.non_empty_text()?,
            b"result" => line.result = scan.text()?,
            b"error" => line.error = scan.non_empty_text()?,
            b"errors" => {
                line.errors.clear();
                scan.array(|scan| {
                    line.errors.extend(error_text(scan)?);
                    Ok(())
                })?;
            }
            b"permission_denials" => {
                line.denials.clear();
                scan.array(|scan| {
                    line.denials.extend(denial(scan)?);
                    Ok(())
                })?;
            }
            b"usage" => line.usage = scan.raw()?,
            b"modelUsage" => line.model_usage = scan.raw()?,
            b"total_cost_usd" => line.total_cost_usd = scan.float()?.or(line.total_cost_usd),
            // The names in releases before 1.0.
            b"cost_usd" | b"total_cost" => {
                line.total_cost_usd = line.total_cost_usd.or(scan.float()?);
            }
            b"model_usage_since_last_result" => {
                line.model_usage_since_last_result = scan.raw()?;
                let usage = line.model_usage_since_last_result;
                line.cost_since_last_result = usage.map(sum_costs).transpose()?.flatten();
            }
            b"duration_ms" => line.duration_ms = scan.count()?,
            b"duration_api_ms" => line.duration_api_ms = scan.count()?,
            b"num_turns" => line.num_turns = scan.count()?,
            b"api_error_status" => line.api_error_status = scan.count()?,
            b"startup_failure_reason" => line.startup_failure = scan.non_empty_text()?,
            b"invalid_config_file" => line.invalid_config = invalid_config(scan)?,
            _ => head.read_field(scan, key)?,
        }
        Ok(())
    })?;
    Ok(line)
}

/// Sums the `costUSD` of all models. `None` if one model has none.
fn sum_costs(usage: RawJson<'_>) -> ScanResult<Option<f64>> {
    let mut total = Some(0.0);
    let mut scan = JsonScanner::from_text(usage.0);
    let is_object = scan.object(|scan, _| {
        let mut cost = None;
        scan.object(|scan, key| {
            match key {
                b"costUSD" => cost = scan.float()?,
                _ => scan.skip()?,
            }
            Ok(())
        })?;
        total = total.zip(cost).map(|(total, cost)| total + cost);
        Ok(())
    })?;
    Ok(total.filter(|_| is_object))
}

/// Reads an object, or the legacy form: the tool's name. Any other value yields `None`.
fn denial<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<PermissionDenial<'a>>> {
    if scan.peek()? != b'{' {
        let name = scan.non_empty_text()?;
        return Ok(name.map(|name| PermissionDenial {
            tool_name: Some(name),
            tool_use_id: None,
            tool_input: None,
        }));
    }
    let mut denial = PermissionDenial {
        tool_name: None,
        tool_use_id: None,
        tool_input: None,
    };
    scan.object(|scan, key| {
        match key {
            b"tool_name" => denial.tool_name = scan.non_empty_text()?,
            b"tool_use_id" => denial.tool_use_id = scan.non_empty_text()?,
            b"tool_input" => denial.tool_input = scan.raw()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok((denial.tool_name.is_some() || denial.tool_use_id.is_some()).then_some(denial))
}
