//! `wiki_read`, `wiki_search` and `wiki_list_tags`: read the wiki of this attempt, including its own pages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{AgentTool, ToolContext, not_found_reply};
use crate::{
    spelling::did_you_mean,
    untrusted_text::excerpt,
    wiki::{self, Wiki, WikiPage},
};
use ingestdeck_core::units::ToolReply;

#[derive(Debug)]
pub(super) struct WikiRead;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiReadInput {
    /// Key of the page to read.
    key: String,
}

impl AgentTool for WikiRead {
    const NAME: &'static str = "wiki_read";
    const DESCRIPTION: &'static str =
        "Read one wiki page: its fields and its body. Read a page before you change it.";
    const READ_ONLY: bool = true;
    type Input = WikiReadInput;

    fn run(context: &ToolContext, WikiReadInput { key }: WikiReadInput) -> ToolReply {
        let wiki = Wiki(&context.workspace);
        if !wiki::is_page_key(&key) {
            return not_found_reply(format_args!(
                "invalid page key `{}`; use a key such as `net-revenue`, without folders",
                excerpt(&key)
            ));
        }
        match wiki.read_text(&key) {
            Ok(Some(bytes)) => ToolReply {
                markdown: String::from_utf8_lossy(&bytes).into_owned(),
                structured: Some(json!({"key": key, "path": wiki::page_path(&key)})),
                ..ToolReply::default()
            },
            Ok(None) => {
                let keys = wiki.keys().unwrap_or_default();
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let hint = did_you_mean(&key, &keys);
                not_found_reply(format_args!("there is no wiki page `{key}`{hint}"))
            }
            Err(error) => {
                not_found_reply(format_args!("wiki page `{key}` cannot be read: {error}"))
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct WikiSearch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiSearchInput {
    /// Words to search for in keys, summaries, tags and bodies.
    #[schemars(length(min = 1))]
    query: String,
    /// Maximum number of pages; 10 by default.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<u32>,
}

impl AgentTool for WikiSearch {
    const NAME: &'static str = "wiki_search";
    const DESCRIPTION: &'static str = "Search the wiki for words. Returns keys and summaries, best match first, at \
        most `limit` pages (1 to 100, default 10).";
    const READ_ONLY: bool = true;
    type Input = WikiSearchInput;

    fn run(context: &ToolContext, WikiSearchInput { query, limit }: WikiSearchInput) -> ToolReply {
        Self::find(context, &query, limit.unwrap_or(10) as usize)
    }
}

impl WikiSearch {
    /// The best `limit` pages for `query`.
    pub(super) fn find(context: &ToolContext, query: &str, limit: usize) -> ToolReply {
        let pages = match Wiki(&context.workspace).pages() {
            Ok(pages) => pages,
            Err(error) => return not_found_reply(format_args!("the wiki cannot be read: {error}")),
        };
        let words = query_words(query);
        let own = context.workspace.changes();
        let mut hits: Vec<_> = pages
            .iter()
            .map(|(key, page)| {
                (
                    score(&words, key, page),
                    own.contains_key(&wiki::page_path(key)),
                    key,
                    page,
                )
            })
            .filter(|(score, ..)| *score > 0)
            .collect();
        // Equal matches: pages of this attempt first, then by key.
        hits.sort_by(|a, b| (b.0, b.1, a.2).cmp(&(a.0, a.1, b.2)));
        let found = hits.len();
        hits.truncate(limit);
        let lines: Vec<_> = hits
            .iter()
            .map(|(_, _, key, page)| format!("- {key}: {}", page.frontmatter.summary))
            .collect();
        let results: Vec<_> = hits
            .iter()
            .map(|(score, _, key, page)| json!({"key": key, "summary": page.frontmatter.summary, "score": score}))
            .collect();
        let markdown = match (lines.len(), found - lines.len()) {
            (0, _) => format!("No wiki page matches `{}`.", excerpt(query)),
            (_, 0) => lines.join("\n"),
            (_, more) => format!(
                "{}\n{more} more pages match; raise limit or narrow the query.",
                lines.join("\n")
            ),
        };
        ToolReply {
            markdown,
            structured: Some(json!({"results": results, "totalFound": found})),
            ..ToolReply::default()
        }
    }
}

/// The words of a query in lower case, up to a limit.
pub(super) fn query_words(text: &str) -> Vec<String> {
    const MAX_QUERY_WORDS: usize = 32;
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    words.take(MAX_QUERY_WORDS).map(str::to_lowercase).collect()
}

/// Sum over the words of the query: the key has the highest weight, then summary and tags, then the body.
fn score(words: &[String], key: &str, page: &WikiPage) -> u32 {
    let (key, summary, body) = (
        key.to_lowercase(),
        page.frontmatter.summary.to_lowercase(),
        page.body.to_lowercase(),
    );
    let tags = page
        .frontmatter
        .tags
        .as_deref()
        .unwrap_or_default()
        .join(" ")
        .to_lowercase();
    words
        .iter()
        .map(|word| {
            let weigh = |text: &str, weight| {
                if text.contains(word.as_str()) {
                    weight
                } else {
                    0
                }
            };
            weigh(&key, 8) + weigh(&summary, 4) + weigh(&tags, 4) + weigh(&body, 1)
        })
        .sum()
}

#[derive(Debug)]
pub(super) struct WikiListTags;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiListTagsInput {}

impl AgentTool for WikiListTags {
    const NAME: &'static str = "wiki_list_tags";
    const DESCRIPTION: &'static str =
        "List the tags of all wiki pages, each with its number of pages.";
    const READ_ONLY: bool = true;
    type Input = WikiListTagsInput;

    fn run(context: &ToolContext, WikiListTagsInput {}: WikiListTagsInput) -> ToolReply {
        let pages = match Wiki(&context.workspace).pages() {
            Ok(pages) => pages,
            Err(error) => return not_found_reply(format_args!("the wiki cannot be read: {error}")),
        };
        let mut tags: BTreeMap<&str, u32> = BTreeMap::new();
        for tag in pages
            .iter()
            .flat_map(|(_, page)| page.frontmatter.tags.iter().flatten())
        {
            *tags.entry(tag).or_default() += 1;
        }
        let lines: Vec<_> = tags
            .iter()
            .map(|(tag, count)| format!("- {tag} ({count})"))
            .collect();
        let markdown = if lines.is_empty() {
            "No tags yet.".to_owned()
        } else {
            lines.join("\n")
        };
        ToolReply {
            markdown,
            structured: Some(json!({"tags": tags})),
            ..ToolReply::default()
        }
    }
}
