//! Documents that become wiki pages unchanged, without an agent: the keys and texts of their pages, and the mark in the
//! frontmatter by which a later run recognizes such a page and every other edit of it.
//!
//! As in KTX, the body is the document; fields of its frontmatter are kept, and missing ones are added. This module must
//! not write files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    slug,
    source::{SourceTree, VerbatimDocument},
    untrusted_text::visible_path,
    wiki::{self, WikiPage},
    workspace::MAX_FILE_BYTES,
};
use ingestdeck_core::diagnostic::Problem;

/// Field of the frontmatter with the mark.
const MARK: &str = "verbatim";
/// Digits of the hash in a key whose path is too long, or has no characters of a key.
const HASH_DIGITS: usize = 8;

/// The mark of a page that is a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerbatimMark {
    /// The raw file as `connection/path`, or the label of a text.
    pub(crate) document: String,
    /// Digest of the rest of the page, which differs once the page is edited.
    sha256: String,
}

impl VerbatimDocument {
    /// The document in a raw file of `tree`, which is a source of `connection`.
    fn of_file(connection: &str, path: &str, tree: &SourceTree) -> Self {
        let text = tree.read_text(path).map_err(|error| error.to_string());
        let name = document_name(connection, path);
        Self {
            path: path.to_owned(),
            page: page_key(slug::without_extension(path), path),
            text: text.and_then(|text| page_text(&name, &text, None)),
        }
    }

    /// A text of the command line: the file `label`, or a text that begins with a heading. Its page names the
    /// `connection` that it is about, if there is one.
    ///
    /// # Errors
    /// If no page can hold the text.
    pub(crate) fn of_text(
        label: &str,
        is_file: bool,
        content: &str,
        connection: Option<&str>,
    ) -> Result<Self, Problem> {
        let refused = |why: &str| Problem::new(format!("cannot keep {label} verbatim: {why}"));
        let heading = || {
            let page = WikiPage::parse(content.as_bytes()).ok()?;
            heading_text(page.body.lines().next()?).map(str::to_owned)
        };
        let name = match is_file {
            true => slug::without_extension(label).to_owned(),
            false => heading().ok_or_else(|| {
                refused("it begins with no heading, which names its page")
                    .with_help("begin it with a line such as `# Refunds`, or give it as a file")
            })?,
        };
        let text = page_text(label, content, connection).map_err(|why| refused(&why))?;
        Ok(Self {
            path: label.to_owned(),
            page: page_key(&name, label),
            text: Ok(text),
        })
    }

    /// Name of a document of `connection` in the mark of its page.
    pub(crate) fn name(&self, connection: &str) -> String {
        document_name(connection, &self.path)
    }
}

fn document_name(connection: &str, path: &str) -> String {
    format!("{connection}/{path}")
}

/// The documents in the files at `paths`, by path.
pub(crate) fn documents<'a>(
    connection: &str,
    tree: &SourceTree,
    paths: impl Iterator<Item = &'a str>,
) -> Vec<VerbatimDocument> {
    let paths: BTreeSet<&str> = paths.collect();
    let documents = paths.into_iter();
    documents
        .map(|path| VerbatimDocument::of_file(connection, path, tree))
        .collect()
}

/// The key of the page for a document with this name. `whole` identifies documents whose names are too long for a key.
fn page_key(name: &str, whole: &str) -> String {
    let slug = slug::slugify(name);
    if !slug.is_empty() && slug.len() <= wiki::MAX_KEY_CHARS {
        return slug;
    }
    let room = wiki::MAX_KEY_CHARS - HASH_DIGITS - 1;
    let start = slug.get(..room.min(slug.len())).unwrap_or_default();
    let start = match start.trim_end_matches('-') {
        "" => "document",
        start => start,
    };
    format!("{start}-{}", slug::short_hash(whole, HASH_DIGITS))
}

/// The page of a document: its text, its frontmatter, and what the frontmatter lacks.
fn page_text(document: &str, text: &str, connection: Option<&str>) -> Result<String, String> {
    let mut page = WikiPage::parse(text.as_bytes()).map_err(|error| error.to_string())?;
    if page.body.is_empty() {
        return Err("it has no text".to_owned());
    }
    let front = &mut page.frontmatter;
    if front.other_fields.contains_key(MARK) {
        return Err(format!(
            "its frontmatter has the field `{MARK}`, which marks pages of documents"
        ));
    }
    if front.summary.trim().is_empty() {
        front.summary = summary(&page.body).unwrap_or_else(|| visible_path(document));
    }
    front.usage_mode.get_or_insert_with(|| "auto".to_owned());
    if let Some(connection) = connection {
        let own = front
            .other_fields
            .entry("connections")
            .or_insert_with(|| json!([connection]));
        if *own != json!([connection]) {
            return Err(format!(
                "its frontmatter names other connections than --connection {connection}"
            ));
        }
    }
    if front.summary.chars().count() > wiki::MAX_SUMMARY_CHARS {
        return Err(format!(
            "its summary has more than {} characters",
            wiki::MAX_SUMMARY_CHARS
        ));
    }
    let mark = VerbatimMark {
        document: document.to_owned(),
        sha256: digest(&page),
    };
    let mark = serde_json::to_value(mark).map_err(|error| error.to_string())?;
    page.frontmatter.other_fields.insert(MARK.to_owned(), mark);
    let text = page.render().map_err(|error| error.to_string())?;
    match text.len() as u64 {
        bytes if bytes > MAX_FILE_BYTES => Err(format!(
            "it has {bytes} bytes, and the limit of a page is {MAX_FILE_BYTES}; split it"
        )),
        _ => Ok(text),
    }
}

/// The heading in the first line, or else the first sentence; `None` without any words.
fn summary(body: &str) -> Option<String> {
    let mut lines = body.lines().map(str::trim);
    let heading = heading_text(lines.clone().next()?).map(str::to_owned);
    let sentence = || {
        let first = lines.find(|line| line.chars().any(char::is_alphanumeric))?;
        let end = first.find(". ").map_or(first.len(), |end| end + 1);
        first.get(..end).map(str::to_owned)
    };
    let text = heading.or_else(sentence)?;
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(match text.char_indices().nth(wiki::MAX_SUMMARY_CHARS) {
        None => text,
        Some(_) => {
            let start: String = text.chars().take(wiki::MAX_SUMMARY_CHARS - 1).collect();
            format!("{}…", start.trim_end())
        }
    })
}

/// The text of a Markdown heading; `None` for another line.
fn heading_text(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    let text = text.strip_prefix([' ', '\t'])?.trim().trim_end_matches('#');
    (1..=6)
        .contains(&level)
        .then(|| text.trim_end())
        .filter(|text| !text.is_empty())
}

/// The digest of a page, whatever the order of its fields.
fn digest(page: &WikiPage) -> String {
    let front = serde_json::to_value(&page.frontmatter).unwrap_or_default();
    let fields: BTreeMap<&String, &Value> = front
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key != MARK)
        .collect();
    slug::short_hash(&format!("{}\n{}", json!(fields), page.body), 64)
}

/// The mark of a page that is a document.
pub(crate) fn mark(page: &WikiPage) -> Option<VerbatimMark> {
    let mark = page.frontmatter.other_fields.get(MARK)?;
    VerbatimMark::deserialize(mark).ok()
}

/// What a run may do with the page of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    /// It holds the document.
    Current,
    /// It holds an earlier text of the same document, and was not edited since.
    Outdated,
    /// It must not be replaced: a sentence about the page.
    Other(String),
}

/// Compares the page at the key of a document, `existing`, with its new text. `document` is its name in the mark; a text
/// of the command line has none, because another text of the same name may be another document.
pub(crate) fn page_state(existing: &[u8], new: &str, document: Option<&str>) -> PageState {
    if existing == new.as_bytes() {
        return PageState::Current;
    }
    let page = WikiPage::parse(existing).unwrap_or_default();
    let mark = mark(&page);
    let has_same_body = || WikiPage::parse(new.as_bytes()).is_ok_and(|new| new.body == page.body);
    if (document.is_none() || mark.is_none()) && has_same_body() {
        return PageState::Current;
    }
    let Some(mark) = mark else {
        return PageState::Other("it exists, and does not come from this document".to_owned());
    };
    if Some(mark.document.as_str()) != document {
        let other = visible_path(&mark.document);
        return PageState::Other(match document {
            Some(_) => format!("it holds the document {other}"),
            None => format!("it holds another text, {other}"),
        });
    }
    match mark.sha256 == digest(&page) {
        true => PageState::Outdated,
        false => PageState::Other("it was edited since a run wrote it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Result<String, String> {
        page_text("notes/a.md", text, None)
    }

    fn page(content: &str) -> WikiPage {
        WikiPage::parse(text(content).unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn summary_is_the_heading_or_the_first_sentence() {
        let cases = [
            ("# Net revenue #\n\nText.", "Net revenue"),
            (
                "Net is less than gross. Always.\nMore.",
                "Net is less than gross.",
            ),
            ("***\nFirst words", "First words"),
            ("---\nsummary: Mine\n---\n# Heading", "Mine"),
            ("***", "notes/a.md"),
            ("#hashtag is text", "#hashtag is text"),
        ];
        for (content, expected) in cases {
            assert_eq!(page(content).frontmatter.summary, expected, "{content}");
        }
        let long = page(&"word ".repeat(100)).frontmatter.summary;
        assert!(long.ends_with("word…") && long.chars().count() <= wiki::MAX_SUMMARY_CHARS);
    }

    #[test]
    fn frontmatter_is_kept_and_completed() {
        let page = page("---\nowner: maya\nusage_mode: never\ntags: [a]\n---\nText.");
        let front = &page.frontmatter;
        assert_eq!(front.other_fields["owner"], "maya");
        assert_eq!(front.usage_mode.as_deref(), Some("never"));
        assert_eq!(front.tags.as_deref(), Some(&["a".to_owned()][..]));
        assert_eq!(mark(&page).unwrap().document, "notes/a.md");
        for (content, why) in [
            ("---\nverbatim: yes\n---\nText.", "has the field `verbatim`"),
            ("---\ntags: {a: b}\n---\nText.", "frontmatter is not valid"),
            ("---\ntags: [a]\n---\n", "it has no text"),
        ] {
            let refused = text(content).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let of = |content: &str| page_text("a.md", content, Some("wh"));
        assert!(of("Text.").unwrap().contains("connections:\n  - wh\n"));
        assert!(of("---\nconnections: [other]\n---\nText.").is_err());
    }

    #[test]
    fn keys_are_those_of_the_path() {
        let long = "a/".repeat(100);
        let keys = ["hr/Leave Policy", "日本", &long].map(|name| page_key(name, name));
        assert_eq!(keys[0], "hr-leave-policy");
        assert!(keys[1].starts_with("document-"), "{keys:?}");
        assert!(keys.iter().all(|key| wiki::is_page_key(key)), "{keys:?}");
    }

    #[test]
    fn only_unedited_pages_of_the_document_are_replaced() {
        let (old, new) = (text("# A\n\nold").unwrap(), text("# A\n\nnew").unwrap());
        let state = |existing: &str| page_state(existing.as_bytes(), &new, Some("notes/a.md"));
        assert_eq!(state(&new), PageState::Current);
        assert_eq!(state(&old), PageState::Outdated);
        assert_eq!(state("# A\n\nnew\n"), PageState::Current);
        for edited in [
            old.replace("old", "older"),
            old.replace("summary: A", "summary: B"),
            old.replace("notes/a.md", "notes/b.md"),
            "# A\n\nold\n".to_owned(),
        ] {
            assert!(matches!(state(&edited), PageState::Other(_)), "{edited}");
        }
        let of_text = |existing: &str| page_state(existing.as_bytes(), &new, None);
        assert!(matches!(of_text(&old), PageState::Other(_)));
        let other_frontmatter = new.replace("summary: A", "summary: B");
        assert_eq!(of_text(&other_frontmatter), PageState::Current);
    }
}
