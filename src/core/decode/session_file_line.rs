//! Decodes the lines that only session files contain: the cost, the titles, messages that waited in the queue, and
//! bookkeeping. Must not know what they are used for.

use std::borrow::Cow;

use super::{
    LazyText, LineBody,
    json_scanner::{JsonScanner, ScanResult},
    line::{SessionFileLine, TextAuthor, TitleSource},
    line_head::LineHead,
};

/// Types of lines that are not shown, of session files and of streams. Sorted for binary search.
const BOOKKEEPING: &[&str] = &[
    "active_goal",
    "agent-color",
    "agent-name",
    "agent-setting",
    "api-request",
    "api-request-blob",
    "api-request-resumed",
    "api-request-shape",
    "artifact-autoreact-ledger",
    "artifact-comment-monitor",
    "atis-latch",
    "attachment",
    "attribution-snapshot",
    "autocompact_state",
    "bridge-session",
    "content-replacement",
    "continued-in",
    "data-flow-incomplete",
    "data-flow-records",
    "derived-from",
    "dev-mods",
    "ended-by-model",
    "file-history-delta",
    "file-history-snapshot",
    "fork-context-ref",
    "frame-link",
    "history-suppression",
    "host-row",
    "hybrid-organization",
    "isolation-latch",
    "last-prompt",
    "memory-mode",
    "mode",
    "observer-ref",
    "permission-mode",
    "pr-link",
    "progress",
    "prompt_suggestion",
    "queue-operation",
    "relocated",
    "repl-mode",
    "resume-head-vouch",
    "session-owner",
    "streamlined_text",
    "streamlined_tool_use_summary",
    "tag",
    "tool_use_summary",
    "tools-used",
    "transcript_mirror",
    "worktree-state",
];

/// Reads a line of type `name`; an unknown type is [`LineBody::Other`].
pub(super) fn read<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    name: Cow<'a, str>,
) -> ScanResult<LineBody<'a>> {
    let line = match &*name {
        "cost-state" => cost(scan, head)?,
        "summary" => title(scan, head, TitleSource::Summary, b"summary", name)?,
        "ai-title" => title(scan, head, TitleSource::Model, b"aiTitle", name)?,
        "custom-title" => title(scan, head, TitleSource::Person, b"customTitle", name)?,
        "attachment" => attachment(scan, head, name)?,
        _ => {
            scan.object(|scan, key| head.read_field(scan, key))?;
            if BOOKKEEPING.binary_search(&&*name).is_err() {
                return Ok(LineBody::Other(name));
            }
            SessionFileLine::Bookkeeping(name)
        }
    };
    Ok(LineBody::SessionFile(line))
}

/// Reads `origin`, which names the producer of a message that no person wrote.
pub(super) fn read_origin(scan: &mut JsonScanner<'_>, author: &mut TextAuthor) -> ScanResult<()> {
    scan.object(|scan, key| {
        match key {
            b"kind" if scan.peek()? == b'"' => {
                if scan.text()?.as_deref() == Some("task-notification") {
                    *author = TextAuthor::BackgroundTask;
                }
            }
            _ => scan.skip()?,
        }
        Ok(())
    })
    .map(drop)
}

fn cost<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
) -> ScanResult<SessionFileLine<'a>> {
    let (mut total_usd, mut is_incomplete, mut started) = (None, false, None);
    scan.object(|scan, key| {
        match key {
            b"totalCostUSD" => total_usd = scan.float()?,
            b"startTime" => started = scan.count()?,
            b"hasUnknownModelCost" => is_incomplete = scan.boolean()? == Some(true),
            _ => head.read_field(scan, key)?,
        }
        Ok(())
    })?;
    Ok(SessionFileLine::Cost {
        total_usd,
        is_incomplete,
        started,
    })
}

fn title<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    source: TitleSource,
    field: &[u8],
    name: Cow<'a, str>,
) -> ScanResult<SessionFileLine<'a>> {
    let mut title = None;
    scan.object(|scan, key| {
        if key == field {
            title = scan.non_empty_text()?;
            return Ok(());
        }
        head.read_field(scan, key)
    })?;
    Ok(title.map_or(SessionFileLine::Bookkeeping(name), |title| {
        SessionFileLine::Title(source, title)
    }))
}

/// Reads `attachment`. Only a message that arrived during a turn is more than bookkeeping.
fn attachment<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    name: Cow<'a, str>,
) -> ScanResult<SessionFileLine<'a>> {
    let (mut is_command, mut author, mut prompt) = (false, TextAuthor::Sender, None);
    scan.object(|scan, key| match key {
        b"attachment" => scan
            .object(|scan, key| {
                match key {
                    b"type" => is_command = scan.text()?.as_deref() == Some("queued_command"),
                    b"commandMode" => {
                        if scan.text()?.as_deref() == Some("task-notification") {
                            author = TextAuthor::BackgroundTask;
                        }
                    }
                    b"origin" => read_origin(scan, &mut author)?,
                    b"prompt" => prompt = prompt_text(scan)?,
                    _ => scan.skip()?,
                }
                Ok(())
            })
            .map(drop),
        _ => head.read_field(scan, key),
    })?;
    Ok(match prompt.filter(|_| is_command) {
        Some(prompt) => SessionFileLine::QueuedText(author, prompt),
        None => SessionFileLine::Bookkeeping(name),
    })
}

/// Reads a text, or the first text of a list of blocks.
fn prompt_text<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<LazyText<'a>>> {
    if scan.peek()? != b'[' {
        return scan.read_lazy_text();
    }
    let mut found = None;
    scan.array(|scan| {
        scan.object(|scan, key| {
            match key {
                b"text" if found.is_none() => found = scan.read_lazy_text()?,
                _ => scan.skip()?,
            }
            Ok(())
        })
        .map(drop)
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode_line;

    #[test]
    fn bookkeeping_types_are_sorted() {
        assert!(BOOKKEEPING.is_sorted());
    }

    #[test]
    fn known_lines_have_their_content() {
        let body = |line: &str| format!("{:?}", decode_line(line.as_bytes()).body);
        let cases = [
            (
                r#"{"type":"cost-state","totalCostUSD":0.5,"hasUnknownModelCost":true}"#,
                "Cost { total_usd: Some(0.5), is_incomplete: true, started: None }",
            ),
            (
                r#"{"type":"cost-state","totalCostUSD":"x","startTime":7}"#,
                "Cost { total_usd: None, is_incomplete: false, started: Some(7) }",
            ),
            (
                r#"{"type":"summary","summary":"a","leafUuid":"u"}"#,
                r#"Title(Summary, "a")"#,
            ),
            (
                r#"{"aiTitle":"b","type":"ai-title","sessionId":"s"}"#,
                r#"Title(Model, "b")"#,
            ),
            (
                r#"{"type":"custom-title","customTitle":"c"}"#,
                r#"Title(Person, "c")"#,
            ),
            (
                r#"{"type":"custom-title","customTitle":7}"#,
                r#"Bookkeeping("custom-title")"#,
            ),
            (
                r#"{"type":"mode","mode":"normal"}"#,
                r#"Bookkeeping("mode")"#,
            ),
            (
                r#"{"type":"attachment","attachment":{"type":"date"}}"#,
                r#"Bookkeeping("attachment")"#,
            ),
            (
                r#"{"type":"attachment","attachment":[1]}"#,
                r#"Bookkeeping("attachment")"#,
            ),
        ];
        for (line, expected) in cases {
            assert_eq!(body(line), format!("SessionFile({expected})"), "{line}");
        }
        assert_eq!(body(r#"{"type":"brand-new"}"#), r#"Other("brand-new")"#);
    }

    #[test]
    fn queued_message_keeps_its_author_and_text() {
        let read = |attachment: &str| {
            let line = format!(r#"{{"type":"attachment","attachment":{attachment}}}"#);
            match decode_line(line.as_bytes()).body {
                LineBody::SessionFile(SessionFileLine::QueuedText(author, text)) => {
                    Some((author, text.text().into_owned()))
                }
                _ => None,
            }
        };
        let typed = r#"{"prompt":"also\nthis","commandMode":"prompt","type":"queued_command"}"#;
        assert_eq!(
            read(typed),
            Some((TextAuthor::Sender, "also\nthis".to_owned()))
        );
        let blocks =
            r#"{"type":"queued_command","prompt":[{"type":"image"},{"type":"text","text":"see"}]}"#;
        assert_eq!(read(blocks), Some((TextAuthor::Sender, "see".to_owned())));
        let task =
            r#"{"type":"queued_command","prompt":"done","origin":{"kind":"task-notification"}}"#;
        assert_eq!(
            read(task),
            Some((TextAuthor::BackgroundTask, "done".to_owned()))
        );
        assert_eq!(
            read(r#"{"type":"queued_command","prompt":{"text":"x"}}"#),
            None
        );
    }

    #[test]
    fn author_of_a_user_line_is_read() {
        let author = |fields: &str| {
            let line = format!(
                r#"{{"type":"user","sessionId":"s",{fields},"message":{{"content":"x"}}}}"#
            );
            match decode_line(line.as_bytes()).body {
                LineBody::User(chat) => chat.author,
                body => panic!("{body:?}"),
            }
        };
        assert_eq!(author(r#""isCompactSummary":true"#), TextAuthor::Compaction);
        assert_eq!(
            author(r#""origin":{"kind":"task-notification"}"#),
            TextAuthor::BackgroundTask
        );
        for fields in [
            r#""isCompactSummary":false"#,
            r#""origin":"task-notification""#,
            r#""origin":{"kind":7}"#,
        ] {
            assert_eq!(author(fields), TextAuthor::Sender, "{fields}");
        }
    }
}
