//! `wiki_write` and `wiki_remove`: create, change and delete pages in the attempt's workspace.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{AgentTool, ToolContext, refusal, verification_ledger::refusal_of_identifiers};
use crate::{
    untrusted_text::excerpt,
    verbatim,
    wiki::{self, Frontmatter, Wiki, WikiPage},
    workspace::WriteError,
};
use ingestdeck_core::units::ToolReply;

#[derive(Debug)]
pub(super) struct WikiWrite;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiWriteInput {
    /// Key of the page: lower-case letters, digits, hyphens and underscores. References to other keys are ignored.
    #[schemars(length(min = 1, max = 120))]
    key: String,
    /// One sentence about the subject of the page. Required for every write.
    #[schemars(length(min = 1, max = 200))]
    summary: String,
    /// The whole body in Markdown. Required for a new page; replaces the body of an existing page.
    #[schemars(length(max = 4000))]
    content: Option<String>,
    /// Edits of the body of an existing page, applied in order. Not together with `content`.
    replacements: Option<Vec<Replacement>>,
    /// Tags that help to find the page; reuse those of wiki_list_tags.
    tags: Option<Vec<String>>,
    /// Keys of related pages.
    refs: Option<Vec<String>>,
    /// Sources that the page explains, such as `orders`, or their measures or segments, such as `orders.revenue`.
    sl_refs: Option<Vec<String>>,
    /// Origin of the information.
    source: Option<String>,
    /// Question that the page answers.
    intent: Option<String>,
    /// Tables that the page describes.
    tables: Option<Vec<String>>,
    /// One SQL query that is typical of the subject.
    representative_sql: Option<String>,
    /// How the subject of the page is used.
    usage: Option<Map<String, Value>>,
    /// Fingerprints of queries that the page covers.
    fingerprints: Option<Vec<String>>,
    /// Raw files of this work unit that the page is based on; in the reconcile step, of any unit, or deleted ones.
    #[serde(rename = "rawPaths")]
    raw_paths: Option<Vec<String>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Replacement {
    /// Text that occurs exactly once in the body. Earlier replacements of this call are already applied.
    #[schemars(length(min = 1))]
    old_text: String,
    /// Text that replaces it; empty to delete it.
    new_text: String,
}

impl AgentTool for WikiWrite {
    const NAME: &'static str = "wiki_write";
    const DESCRIPTION: &'static str = "Create a wiki page, or change one. Give `content` for the whole body, or \
        `replacements` to edit an existing body. Read an existing page with wiki_read before you replace its \
        `content`. Fields that are left out keep their value. Requires an entry in the verification ledger.";
    const READ_ONLY: bool = false;
    const NEEDS_LEDGER: bool = true;
    type Input = WikiWriteInput;

    fn run(context: &ToolContext, input: WikiWriteInput) -> ToolReply {
        let key = input.key.clone();
        match write(context, input) {
            Ok(is_new) => {
                let action = if is_new { "created" } else { "updated" };
                ToolReply {
                    markdown: format!("Wiki page `{key}` {action}."),
                    structured: Some(
                        json!({"success": true, "key": key, "path": wiki::page_path(&key), "action": action}),
                    ),
                    ..ToolReply::default()
                }
            }
            Err(declined) => declined.reply(Self::NAME, &key),
        }
    }
}

#[derive(Debug)]
pub(super) struct WikiRemove;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiRemoveInput {
    /// Key of the page to remove.
    #[schemars(length(min = 1, max = 120))]
    key: String,
    /// Raw files of this work unit that make the page obsolete; in the reconcile step, of any unit, or deleted ones.
    #[serde(rename = "rawPaths")]
    raw_paths: Option<Vec<String>>,
}

impl AgentTool for WikiRemove {
    const NAME: &'static str = "wiki_remove";
    const DESCRIPTION: &'static str = "Remove a wiki page if the raw files show that it is wrong or obsolete. Read \
        the page with wiki_read first, and correct the pages that refer to it. Requires an entry in the verification \
        ledger.";
    const READ_ONLY: bool = false;
    const NEEDS_LEDGER: bool = true;
    type Input = WikiRemoveInput;

    fn run(
        context: &ToolContext,
        WikiRemoveInput { key, raw_paths }: WikiRemoveInput,
    ) -> ToolReply {
        let removed = check_change(context, &key, raw_paths.as_deref())
            .and_then(|()| check_no_document(context, &key, is_deleted_file))
            .and_then(|()| Ok(context.workspace.remove(&wiki::page_path(&key))?))
            .and_then(|existed| {
                if existed {
                    Ok(())
                } else {
                    Err(DeclinedPageChange::new(
                        "page_not_found",
                        "there is no such page; find its key with wiki_search",
                    ))
                }
            });
        match removed {
            Ok(()) => ToolReply {
                markdown: format!("Wiki page `{key}` removed."),
                structured: Some(json!({"success": true, "key": key, "action": "removed"})),
                ..ToolReply::default()
            },
            Err(declined) => declined.reply(Self::NAME, &key),
        }
    }
}

/// Why a page is not changed.
struct DeclinedPageChange {
    reason: &'static str,
    text: String,
}

impl DeclinedPageChange {
    fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Self {
            reason,
            text: text.into(),
        }
    }

    fn reply(self, tool: &str, key: &str) -> ToolReply {
        let text = format!(
            "Wiki page `{}` was not changed: {}.",
            excerpt(key),
            self.text
        );
        refusal(tool, text, json!({"reason": self.reason, "key": key}))
    }
}

impl From<WriteError> for DeclinedPageChange {
    fn from(error: WriteError) -> Self {
        Self::new(super::decline_reason(&error), error.to_string())
    }
}

/// Checks the key and the raw files of a change.
fn check_change(
    context: &ToolContext,
    key: &str,
    raw_paths: Option<&[String]>,
) -> Result<(), DeclinedPageChange> {
    if !wiki::is_page_key(key) {
        return Err(DeclinedPageChange::new(
            "invalid_key",
            "invalid key; use letters, digits, hyphens and underscores, starting with a letter or digit",
        ));
    }
    context
        .check_raw_paths(raw_paths)
        .map_err(|why| DeclinedPageChange::new("raw_paths_not_allowed", why))
}

/// True if the document was deleted. The reconcile step removes the page of such a document.
fn is_deleted_file(context: &ToolContext, document: &str) -> bool {
    let evictions = context.stage_index().map(|stage| &stage.evictions);
    evictions
        .into_iter()
        .flatten()
        .any(|eviction| eviction.raw_path == document)
}

/// Refuses a page that is a document and kept verbatim, unless the document `may_change`.
fn check_no_document(
    context: &ToolContext,
    key: &str,
    may_change: fn(&ToolContext, &str) -> bool,
) -> Result<(), DeclinedPageChange> {
    let page = context.workspace.peek(&wiki::page_path(key)).ok().flatten();
    let page = page.and_then(|bytes| WikiPage::parse(&bytes).ok());
    let mark = page.and_then(|page| verbatim::mark(&page));
    let Some(mark) = mark.filter(|mark| !may_change(context, &mark.document)) else {
        return Ok(());
    };
    let why = format!(
        "it is the document {}, kept verbatim; write what you add on another page, and refer to this one",
        excerpt(&mark.document)
    );
    Err(DeclinedPageChange::new("page_is_document", why))
}

/// Writes the page. Returns true if it is new.
fn write(context: &ToolContext, input: WikiWriteInput) -> Result<bool, DeclinedPageChange> {
    check_change(context, &input.key, input.raw_paths.as_deref())?;
    check_no_document(context, &input.key, |_, _| false)?;
    let path = wiki::page_path(&input.key);
    let unreadable = |why: String| {
        DeclinedPageChange::new(
            "page_unreadable",
            format!("the existing page cannot be read: {why}"),
        )
    };
    // Edits apply to the newest text. A whole body replaces only text that the agent has read.
    let found = if input.content.is_some() {
        context.workspace.peek(&path)
    } else {
        context.workspace.read(&path)
    };
    let existing = match found.map_err(|error| unreadable(error.to_string()))? {
        Some(bytes) => {
            Some(WikiPage::parse(&bytes).map_err(|error| unreadable(error.to_string()))?)
        }
        None => None,
    };
    let is_new = existing.is_none();
    if is_new {
        let failed = |error: std::io::Error| {
            DeclinedPageChange::new("not_writable", format!("the wiki cannot be read: {error}"))
        };
        let conflict = Wiki(&context.workspace)
            .key_conflict(&input.key)
            .map_err(failed)?;
        conflict.map_or(Ok(()), |why| {
            Err(DeclinedPageChange::new("key_not_available", why))
        })?;
    }
    let page = merge_page(existing, input)?;
    let text = page
        .render()
        .map_err(|error| DeclinedPageChange::new("not_writable", error.to_string()))?;
    if let Some((reason, why)) = refusal_of_identifiers(context, &path, &text) {
        return Err(DeclinedPageChange::new(reason, why));
    }
    context.workspace.write(&path, text.as_bytes())?;
    Ok(is_new)
}

fn merge_page(
    existing: Option<WikiPage>,
    input: WikiWriteInput,
) -> Result<WikiPage, DeclinedPageChange> {
    let body = match (&existing, input.content, input.replacements) {
        (_, Some(_), Some(_)) => {
            return Err(DeclinedPageChange::new(
                "content_and_replacements",
                "both content and replacements are given; give only one of them",
            ));
        }
        (_, Some(content), None) if content.trim().is_empty() => {
            return Err(DeclinedPageChange::new(
                "content_required",
                "content is empty; give the body of the page",
            ));
        }
        (_, Some(content), None) => content,
        (Some(page), None, replacements) => {
            apply_replacements(&page.body, &replacements.unwrap_or_default())?
        }
        (None, None, Some(_)) => {
            return Err(DeclinedPageChange::new(
                "page_not_found",
                "there is no such page to edit; give content to create it",
            ));
        }
        (None, None, None) => {
            return Err(DeclinedPageChange::new(
                "content_required",
                "content is missing; give it to create the page",
            ));
        }
    };
    let old = existing.map(|page| page.frontmatter).unwrap_or_default();
    let front = Frontmatter {
        summary: input.summary,
        usage_mode: old.usage_mode.or_else(|| Some("auto".into())),
        sort_order: old.sort_order.or(Some(0)),
        tags: input.tags.or(old.tags),
        refs: input.refs.or(old.refs),
        sl_refs: input.sl_refs.or(old.sl_refs),
        source: input.source.or(old.source),
        intent: input.intent.or(old.intent),
        tables: input.tables.or(old.tables),
        representative_sql: input.representative_sql.or(old.representative_sql),
        usage: input.usage.map(Value::Object).or(old.usage),
        fingerprints: input.fingerprints.or(old.fingerprints),
        other_fields: old.other_fields,
    };
    Ok(WikiPage {
        frontmatter: front,
        body: body.trim().to_owned(),
    })
}

fn apply_replacements(
    body: &str,
    replacements: &[Replacement],
) -> Result<String, DeclinedPageChange> {
    let mut body = body.to_owned();
    for (index, Replacement { old_text, new_text }) in replacements.iter().enumerate() {
        let count = body.matches(old_text.as_str()).count();
        if count != 1 {
            let times = if count == 0 {
                "does not occur".to_owned()
            } else {
                format!("occurs {count} times")
            };
            let text = format!(
                "oldText of replacements[{index}] {times} in the body, but must occur exactly once; read the page and \
                 copy a longer, exact text"
            );
            return Err(DeclinedPageChange::new("replacement_not_unique", text));
        }
        body = body.replacen(old_text.as_str(), new_text, 1);
    }
    if body.trim().is_empty() {
        return Err(DeclinedPageChange::new(
            "content_required",
            "the replacements leave an empty body; use wiki_remove to remove the page",
        ));
    }
    Ok(body)
}
