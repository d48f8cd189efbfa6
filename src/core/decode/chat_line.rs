//! Decodes `assistant` and `user` lines: the message, its blocks, and the fields next to the message.

use std::borrow::Cow;

use super::{
    ChatLine, LazyText, MessageBlock, MessageBlocks, RawJson, ToolResult, ToolUse, Usage,
    json_scanner::{InvalidJson, JsonScanner, ScanResult},
    line::TextAuthor,
    line_head::{LineHead, error_text},
    session_file_line,
};

/// Location of the blocks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPlacement {
    /// In `message.content`, or in a top-level `content`.
    InMessage,
    /// The line itself is one block.
    WholeLine,
}

pub(super) fn read<'a>(
    scan: &mut JsonScanner<'a>,
    head: &mut LineHead<'a>,
    role: BlockPlacement,
) -> ScanResult<ChatLine<'a>> {
    let mut chat = ChatLine::default();
    let mut fields = BlockFields::default();
    let mut all_refused = false;
    scan.object(|scan, key| {
        match key {
            b"message" => message(scan, &mut chat)?,
            b"content" if role == BlockPlacement::InMessage => blocks(scan, &mut chat.blocks)?,
            b"requestId" => chat.request_id = scan.non_empty_text()?,
            b"costUSD" => chat.cost_usd = scan.float()?.filter(|cost| (0.0..=1e9).contains(cost)),
            b"error" => chat.error = error_text(scan)?,
            b"api_error" | b"apiError" => chat.api_error = scan.non_empty_text()?,
            b"api_error_status" | b"apiErrorStatus" => chat.api_error_status = scan.count()?,
            b"isSynthetic" | b"isMeta" => chat.synthetic |= scan.boolean()? == Some(true),
            b"isCompactSummary" => {
                if scan.boolean()? == Some(true) {
                    chat.author = TextAuthor::Compaction;
                }
            }
            b"origin" => session_file_line::read_origin(scan, &mut chat.author)?,
            b"aborted" | b"isAbortedMidStream" => chat.aborted |= scan.boolean()? == Some(true),
            b"tool_result_meta" => scan.array(|scan| {
                chat.refused.extend(refused(scan)?);
                Ok(())
            })?,
            b"tool_use_result" | b"toolUseResult" => {
                let twin = chat.blocks.iter().find_map(|block| match block {
                    MessageBlock::ToolResult(result) => result.content,
                    _ => None,
                });
                scan.skip_expecting(twin)?;
            }
            b"toolDenialKind" => all_refused |= scan.non_empty_text()?.is_some(),
            b"permissionDecision" => all_refused |= is_reject(scan)?,
            _ if role == BlockPlacement::WholeLine && fields.read_field(scan, key)? => {}
            _ => head.read_field(scan, key)?,
        }
        Ok(())
    })?;
    if role == BlockPlacement::WholeLine
        && let Some(block) = fields.into_block()
    {
        chat.blocks.push(block);
    }
    if all_refused {
        chat.refused
            .extend(chat.blocks.iter().filter_map(|block| match block {
                MessageBlock::ToolResult(result) if !result.tool_use_id.is_empty() => {
                    Some(result.tool_use_id.clone())
                }
                _ => None,
            }));
    }
    Ok(chat)
}

/// Reads `message`: an object, or only its text.
fn message<'a>(scan: &mut JsonScanner<'a>, chat: &mut ChatLine<'a>) -> ScanResult<()> {
    if scan.peek()? != b'{' {
        return blocks(scan, &mut chat.blocks);
    }
    let mut is_character_map = false;
    scan.object(|scan, key| {
        match key {
            // The text of a message as a map of its characters, which only a damaged file contains.
            b"0" => {
                is_character_map = true;
                scan.skip()?;
            }
            b"id" => chat.message_id = scan.non_empty_text()?,
            b"model" => chat.model = scan.non_empty_text()?,
            b"content" => blocks(scan, &mut chat.blocks)?,
            b"usage" => chat.usage = counts(scan)?,
            b"stop_reason" => chat.stop_reason = scan.non_empty_text()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    if is_character_map && chat.blocks.iter().next().is_none() {
        return Err(InvalidJson);
    }
    Ok(())
}

impl Usage {
    /// Parses the counts of a raw `usage`.
    pub(crate) fn from_raw(usage: RawJson<'_>) -> Self {
        counts(&mut JsonScanner::from_text(usage.0))
            .ok()
            .flatten()
            .unwrap_or_default()
    }
}

/// Reads `usage`; `None` if it is not an object.
pub(super) fn counts(scan: &mut JsonScanner<'_>) -> ScanResult<Option<Usage>> {
    let mut usage = Usage::default();
    let found = scan.object(|scan, key| {
        match key {
            b"input_tokens" => usage.input = scan.count()?.unwrap_or(0),
            b"output_tokens" => usage.output = scan.count()?.unwrap_or(0),
            b"cache_read_input_tokens" => usage.cache_read = scan.count()?.unwrap_or(0),
            b"cache_creation_input_tokens" => usage.cache_write = scan.count()?.unwrap_or(0),
            b"cache_creation" => {
                usage.cache_write_1h = count_in(scan, b"ephemeral_1h_input_tokens")?;
            }
            b"server_tool_use" => usage.web_searches = count_in(scan, b"web_search_requests")?,
            b"speed" => usage.is_fast = scan.text()?.as_deref() == Some("fast"),
            b"inference_geo" => usage.is_us_only = scan.text()?.as_deref() == Some("us"),
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(found.then_some(usage))
}

/// Reads the count `name` of an object; 0 without it.
fn count_in(scan: &mut JsonScanner<'_>, name: &[u8]) -> ScanResult<u64> {
    let mut count = 0;
    scan.object(|scan, key| {
        match key {
            key if key == name => count = scan.count()?.unwrap_or(0),
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(count)
}

/// Reads an array of blocks, one block, or one text.
fn blocks<'a>(scan: &mut JsonScanner<'a>, blocks: &mut MessageBlocks<'a>) -> ScanResult<()> {
    *blocks = MessageBlocks::default();
    let mut read = |scan: &mut JsonScanner<'a>| {
        if let Some(block) = block(scan)? {
            blocks.push(block);
        }
        Ok(())
    };
    match scan.peek()? {
        b'[' => scan.array(read),
        b'{' | b'"' => read(scan),
        _ => scan.skip(),
    }
}

fn block<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<MessageBlock<'a>>> {
    if scan.peek()? == b'"' {
        return Ok(scan.read_lazy_text()?.map(MessageBlock::Text));
    }
    let mut fields = BlockFields::default();
    let found = scan.object(|scan, key| {
        if fields.read_field(scan, key)? {
            Ok(())
        } else {
            scan.skip()
        }
    })?;
    Ok(if found { fields.into_block() } else { None })
}

/// Fields of any block, in any order: the type may come last.
#[derive(Debug, Default)]
struct BlockFields<'a> {
    kind: Option<Cow<'a, str>>,
    text: Option<LazyText<'a>>,
    thinking: Option<LazyText<'a>>,
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    input: Option<RawJson<'a>>,
    tool_use_id: Option<Cow<'a, str>>,
    content: Option<RawJson<'a>>,
    is_error: Option<bool>,
    media_type: Option<Cow<'a, str>>,
}

impl<'a> BlockFields<'a> {
    /// Reads a field of a block. Returns false and consumes nothing if no block has this field.
    fn read_field(&mut self, scan: &mut JsonScanner<'a>, key: &[u8]) -> ScanResult<bool> {
        match key {
            b"type" => self.kind = scan.text()?,
            b"text" => self.text = scan.read_lazy_text()?,
            b"thinking" => self.thinking = scan.read_lazy_text()?,
            b"id" => self.id = scan.non_empty_text()?,
            b"name" => self.name = scan.non_empty_text()?,
            b"input" => self.input = scan.raw()?,
            b"tool_use_id" => self.tool_use_id = scan.non_empty_text()?,
            b"content" => self.content = scan.raw()?,
            b"is_error" => self.is_error = scan.boolean()?,
            b"source" => drop(scan.object(|scan, key| {
                match key {
                    b"media_type" => self.media_type = scan.non_empty_text()?,
                    _ => scan.skip()?,
                }
                Ok(())
            })?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns `None` for a block without a type.
    fn into_block(self) -> Option<MessageBlock<'a>> {
        let kind = self.kind?;
        Some(match &*kind {
            "text" => MessageBlock::Text(self.text.unwrap_or_default()),
            "thinking" => MessageBlock::Thinking(self.thinking.unwrap_or_default()),
            "tool_use" => MessageBlock::ToolUse(ToolUse {
                id: self.id.unwrap_or_default(),
                name: self.name.unwrap_or_default(),
                input: self.input,
            }),
            "tool_result" => MessageBlock::ToolResult(ToolResult {
                tool_use_id: self.tool_use_id.unwrap_or_default(),
                content_len: self.content.map_or(0, RawJson::compact_len),
                content: self.content,
                is_error: self.is_error,
            }),
            "image" => MessageBlock::Image(self.media_type),
            _ => MessageBlock::Unknown(kind),
        })
    }
}

/// Reads the id of a call that an entry of `tool_result_meta` marks as refused.
fn refused<'a>(scan: &mut JsonScanner<'a>) -> ScanResult<Option<Cow<'a, str>>> {
    let (mut id, mut refused) = (None, false);
    scan.object(|scan, key| {
        match key {
            b"id" => id = scan.non_empty_text()?,
            b"non_execution_kind" => refused |= scan.non_empty_text()?.is_some(),
            b"permission_decision" => refused |= is_reject(scan)?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(id.filter(|_| refused))
}

/// Reads `{"decision":"reject",…}`, or only the string `reject`.
fn is_reject(scan: &mut JsonScanner<'_>) -> ScanResult<bool> {
    if scan.peek()? != b'{' {
        return Ok(scan.text()?.as_deref() == Some("reject"));
    }
    let mut reject = false;
    scan.object(|scan, key| {
        match key {
            b"decision" => reject = scan.text()?.as_deref() == Some("reject"),
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(reject)
}
