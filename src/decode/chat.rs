//! `assistant` and `user` lines: the message, its blocks, and what stands beside it.

use std::borrow::Cow;

use super::{
    Block, Chat, Prose, Raw, ToolResult, ToolUse, Usage,
    read::{Head, error_text},
    scan::{Scan, Scanned},
};

/// Where the blocks of a line are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// In `message.content`, or in a top-level `content`.
    Message,
    /// The line itself is one block.
    Block,
}

pub(super) fn read<'a>(scan: &mut Scan<'a>, head: &mut Head<'a>, role: Role) -> Scanned<Chat<'a>> {
    let mut chat = Chat::default();
    let mut fields = Fields::default();
    let mut all_refused = false;
    scan.object(|scan, key| {
        match key {
            b"message" => message(scan, &mut chat)?,
            b"content" if role == Role::Message => blocks(scan, &mut chat.blocks)?,
            b"error" => chat.error = error_text(scan)?,
            b"api_error" | b"apiError" => chat.api_error = scan.word()?,
            b"api_error_status" | b"apiErrorStatus" => chat.api_error_status = scan.count()?,
            b"isSynthetic" | b"isMeta" => chat.synthetic |= scan.boolean()? == Some(true),
            b"aborted" | b"isAbortedMidStream" => chat.aborted |= scan.boolean()? == Some(true),
            b"tool_result_meta" => scan.array(|scan| {
                chat.refused.extend(refused(scan)?);
                Ok(())
            })?,
            b"tool_use_result" | b"toolUseResult" => {
                let twin = chat.blocks.iter().find_map(|block| match block {
                    Block::ToolResult(result) => result.content,
                    _ => None,
                });
                scan.skip_twin(twin)?;
            }
            b"toolDenialKind" => all_refused |= scan.word()?.is_some(),
            b"permissionDecision" => all_refused |= is_reject(scan)?,
            _ if role == Role::Block && fields.take(scan, key)? => {}
            _ => head.field(scan, key)?,
        }
        Ok(())
    })?;
    if role == Role::Block {
        chat.blocks.extend(fields.into_block());
    }
    if all_refused {
        chat.refused.extend(chat.blocks.iter().filter_map(|block| match block {
            Block::ToolResult(result) if !result.tool_use_id.is_empty() => Some(result.tool_use_id.clone()),
            _ => None,
        }));
    }
    Ok(chat)
}

/// `message`: an object, or just its text.
fn message<'a>(scan: &mut Scan<'a>, chat: &mut Chat<'a>) -> Scanned<()> {
    if scan.peek()? != b'{' {
        return blocks(scan, &mut chat.blocks);
    }
    scan.object(|scan, key| {
        match key {
            b"id" => chat.message_id = scan.word()?,
            b"model" => chat.model = scan.word()?,
            b"content" => blocks(scan, &mut chat.blocks)?,
            b"usage" => chat.usage = counts(scan)?,
            b"stop_reason" => chat.stop_reason = scan.word()?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(())
}

impl Usage {
    /// The counts of a `usage` that was kept as it came.
    pub fn of(usage: Raw<'_>) -> Self {
        counts(&mut Scan::of(usage.0)).ok().flatten().unwrap_or_default()
    }
}

/// `usage`; `None` if it is no object.
fn counts(scan: &mut Scan<'_>) -> Scanned<Option<Usage>> {
    let mut usage = Usage::default();
    let found = scan.object(|scan, key| {
        match key {
            b"input_tokens" => usage.input = scan.count()?.unwrap_or(0),
            b"output_tokens" => usage.output = scan.count()?.unwrap_or(0),
            b"cache_read_input_tokens" => usage.cache_read = scan.count()?.unwrap_or(0),
            b"cache_creation_input_tokens" => usage.cache_write = scan.count()?.unwrap_or(0),
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(found.then_some(usage))
}

/// An array of blocks, one block, or one text.
fn blocks<'a>(scan: &mut Scan<'a>, blocks: &mut Vec<Block<'a>>) -> Scanned<()> {
    blocks.clear();
    match scan.peek()? {
        b'[' => scan.array(|scan| {
            blocks.extend(block(scan)?);
            Ok(())
        }),
        b'{' | b'"' => {
            blocks.extend(block(scan)?);
            Ok(())
        }
        _ => scan.skip(),
    }
}

fn block<'a>(scan: &mut Scan<'a>) -> Scanned<Option<Block<'a>>> {
    if scan.peek()? == b'"' {
        return Ok(scan.prose()?.map(Block::Text));
    }
    let mut fields = Fields::default();
    let found = scan.object(|scan, key| if fields.take(scan, key)? { Ok(()) } else { scan.skip() })?;
    Ok(if found { fields.into_block() } else { None })
}

/// Fields of any block, in any order: the type may come last.
#[derive(Debug, Default)]
struct Fields<'a> {
    kind: Option<Cow<'a, str>>,
    text: Option<Prose<'a>>,
    thinking: Option<Prose<'a>>,
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    input: Option<Raw<'a>>,
    tool_use_id: Option<Cow<'a, str>>,
    content: Option<Raw<'a>>,
    is_error: Option<bool>,
    media_type: Option<Cow<'a, str>>,
}

impl<'a> Fields<'a> {
    /// Takes a field of a block. False, and nothing consumed, if blocks have no such field.
    fn take(&mut self, scan: &mut Scan<'a>, key: &[u8]) -> Scanned<bool> {
        match key {
            b"type" => self.kind = scan.text()?,
            b"text" => self.text = scan.prose()?,
            b"thinking" => self.thinking = scan.prose()?,
            b"id" => self.id = scan.word()?,
            b"name" => self.name = scan.word()?,
            b"input" => self.input = scan.raw()?,
            b"tool_use_id" => self.tool_use_id = scan.word()?,
            b"content" => self.content = scan.raw()?,
            b"is_error" => self.is_error = scan.boolean()?,
            b"source" => drop(scan.object(|scan, key| {
                match key {
                    b"media_type" => self.media_type = scan.word()?,
                    _ => scan.skip()?,
                }
                Ok(())
            })?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `None` for a block without a type.
    fn into_block(self) -> Option<Block<'a>> {
        let kind = self.kind?;
        Some(match &*kind {
            "text" => Block::Text(self.text.unwrap_or_default()),
            "thinking" => Block::Thinking(self.thinking.unwrap_or_default()),
            "tool_use" => Block::ToolUse(ToolUse {
                id: self.id.unwrap_or_default(),
                name: self.name.unwrap_or_default(),
                input: self.input,
            }),
            "tool_result" => Block::ToolResult(ToolResult {
                tool_use_id: self.tool_use_id.unwrap_or_default(),
                content: self.content,
                is_error: self.is_error,
            }),
            "image" => Block::Image(self.media_type),
            _ => Block::Unknown(kind),
        })
    }
}

/// The id of a call that an entry of `tool_result_meta` calls refused.
fn refused<'a>(scan: &mut Scan<'a>) -> Scanned<Option<Cow<'a, str>>> {
    let (mut id, mut refused) = (None, false);
    scan.object(|scan, key| {
        match key {
            b"id" => id = scan.word()?,
            b"non_execution_kind" => refused |= scan.word()?.is_some(),
            b"permission_decision" => refused |= is_reject(scan)?,
            _ => scan.skip()?,
        }
        Ok(())
    })?;
    Ok(id.filter(|_| refused))
}

/// `{"decision":"reject",…}`, or just the word.
fn is_reject(scan: &mut Scan<'_>) -> Scanned<bool> {
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
