//! The `notion` adapter: one unit per staged page, in KTX's layout (`pages/<id>/page.md` and `metadata.json`).
//!
//! A page that is too long for one unit is split into ranges of lines. This module must not know how pages are fetched.

use std::{collections::BTreeSet, io};

use ingestdeck_core::diagnostic::Problem;

use serde::Deserialize;

use super::{
    AssignedLines, ChunkedSource, ProjectConnection, SourceAdapter, SourceTree, UnitChunk,
    narrow_unit, peers, shared_names,
};
use crate::{
    connection::{KeySpec, ValueType},
    slug,
    untrusted_text::{is_presentable, visible_path},
};

#[derive(Debug)]
pub(crate) struct NotionAdapter;

/// Longest page of one unit, in characters.
const MAX_UNIT_CHARS: usize = 40_000;
/// Metadata of the fetch.
const MANIFEST_FILE: &str = "manifest.json";

impl SourceAdapter for NotionAdapter {
    fn name(&self) -> &'static str {
        "notion"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            ("auth_token", ValueType::Text),
            ("auth_token_ref", ValueType::Text),
            (
                "crawl_mode",
                ValueType::OneOfOrOther(&["selected_roots", "all_accessible"]),
            ),
            ("root_page_ids", ValueType::TextList),
            ("root_database_ids", ValueType::TextList),
            ("root_data_source_ids", ValueType::TextList),
            ("max_pages_per_run", ValueType::Integer(1)),
            ("max_knowledge_creates_per_run", ValueType::Integer(0)),
            ("max_knowledge_updates_per_run", ValueType::Integer(0)),
        ]
    }

    fn without_files(&self) -> Option<Problem> {
        Some(
            Problem::new("pages are not fetched here")
                .with_help("stage them, and name their folder as source_dir"),
        )
    }

    fn accepts_file(&self, path: &str) -> bool {
        path == MANIFEST_FILE || path.ends_with(".json") || path.ends_with(".md")
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        let has_page = tree.files.iter().any(|file| is_page(&file.path));
        if has_page || is_notion(tree) {
            Ok(())
        } else {
            Err(Problem::new("holds no staged page (pages/<id>/page.md)")
                .with_help("for plain Markdown files use driver: docs"))
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let pages: Vec<NotionPage<'_>> = tree
            .files
            .iter()
            .filter_map(|file| NotionPage::open(tree, &file.path))
            .collect();
        let wished: Vec<(String, &str)> = pages
            .iter()
            .map(|page| (page.preferred_key(), page.folder))
            .collect();
        let all = shared_names(tree.files.iter().map(|file| file.path.as_str()));
        let mut chunks = ChunkedSource::default();
        let others = tree.files.iter().map(|file| file.path.as_str());
        let others: Vec<String> = others
            .filter(|path| path.ends_with(".md") && !is_page(path))
            .map(visible_path)
            .collect();
        if !others.is_empty() {
            let what = "Markdown is in no unit, because a staged page is pages/<id>/page.md";
            let help = "for plain Markdown files use driver: docs";
            let warning = Problem::new(what).with_files(others).with_help(help);
            chunks.warnings.push(warning);
        }
        for (page, key) in pages.iter().zip(slug::disambiguate_keys(&wished)) {
            let whole = page.unit(tree, key);
            let known: BTreeSet<&str> = whole
                .raw_files
                .iter()
                .chain(&whole.dependency_paths)
                .map(String::as_str)
                .collect();
            let whole = UnitChunk {
                peer_file_index: peers(&all, &known),
                ..whole
            };
            match page.ranges(tree) {
                Err(why) => chunks
                    .warnings
                    .push(format!("{} is in no unit: {why}", visible_path(&page.text)).into()),
                Ok(ranges) if ranges.len() < 2 => chunks.units.push(whole),
                Ok(ranges) => {
                    chunks.warnings.push(
                        format!(
                            "{} is long, so {} units share it",
                            visible_path(&page.text),
                            ranges.len()
                        )
                        .into(),
                    );
                    chunks.units.extend(page.parts(&whole, &ranges));
                }
            }
        }
        Ok(chunks)
    }

    /// If only the metadata of a page changed, its parts become one unit again, because no text has to be read.
    fn narrow_unit(&self, unit: UnitChunk, due: &BTreeSet<&str>) -> UnitChunk {
        let page = unit.raw_files.iter().find(|path| is_page(path)).cloned();
        let part = unit
            .key
            .rsplit_once("-part-")
            .filter(|_| unit.notes.as_deref().is_some_and(is_part));
        let whole = part.map(|(key, _)| key.to_owned());
        let mut unit = narrow_unit(unit, due);
        if let (Some(key), Some(page)) = (whole, page)
            && !due.is_empty()
            && !due.contains(page.as_str())
        {
            unit.key = key;
            unit.assigned_lines = None;
            unit.notes = Some(WHOLE_PAGE_NOTES.into());
            unit.label = unit
                .label
                .map(|label| label.split(" (part ").next().unwrap_or_default().to_owned());
        }
        unit
    }

    /// The parts of a long page have its file in common.
    fn shares_files(&self) -> bool {
        true
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!(
            "../../../assets/skills/notion_synthesize/SKILL.md"
        ))
    }
}

const WHOLE_PAGE_NOTES: &str = "Write down what lasts of this page. Sources belong to the connection that holds the data, never to this one.";
const PART_NOTES_PREFIX: &str = "Only a part of this page: read lines";

fn is_part(notes: &str) -> bool {
    notes.starts_with(PART_NOTES_PREFIX)
}

fn is_page(path: &str) -> bool {
    path.ends_with("/page.md")
}

/// Whether the manifest is that of a Notion fetch.
fn is_notion(tree: &SourceTree) -> bool {
    #[derive(Deserialize)]
    struct FetchManifest {
        source: String,
    }
    let text = tree
        .get(MANIFEST_FILE)
        .and_then(|_| tree.read_text(MANIFEST_FILE).ok());
    text.and_then(|text| serde_json::from_str::<FetchManifest>(&text).ok())
        .is_some_and(|manifest| manifest.source == "notion")
}

struct NotionPage<'a> {
    folder: &'a str,
    text: String,
}

impl<'a> NotionPage<'a> {
    fn open(tree: &SourceTree, path: &'a str) -> Option<Self> {
        let folder = path.strip_suffix("/page.md")?;
        tree.get(path).map(|_| Self {
            folder,
            text: path.to_owned(),
        })
    }

    /// The key `notion-page-<id>` for the page `pages/<id>`.
    fn preferred_key(&self) -> String {
        let path = match self.folder.strip_prefix("pages/") {
            Some(id) => format!("page/{id}"),
            None => self.folder.to_owned(),
        };
        let words: Vec<&str> = path
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        format!("notion-{}", words.join("-"))
    }

    fn sibling_path(&self, tree: &SourceTree, name: &str) -> Option<String> {
        let path = format!("{}/{name}", self.folder);
        tree.get(&path).map(|_| path)
    }

    fn unit(&self, tree: &SourceTree, key: String) -> UnitChunk {
        let manifest = tree.get(MANIFEST_FILE).map(|_| MANIFEST_FILE.to_owned());
        UnitChunk {
            key,
            label: Some(self.title(tree).unwrap_or_else(|| self.folder.to_owned())),
            raw_files: self
                .sibling_path(tree, "metadata.json")
                .into_iter()
                .chain([self.text.clone()])
                .collect(),
            dependency_paths: manifest
                .into_iter()
                .chain(self.sibling_path(tree, "blocks.json"))
                .collect(),
            notes: Some(WHOLE_PAGE_NOTES.into()),
            ..UnitChunk::default()
        }
    }

    /// The path of the page in Notion, from its metadata.
    fn title(&self, tree: &SourceTree) -> Option<String> {
        #[derive(Deserialize)]
        struct NotionMetadata {
            path: String,
        }
        let text = tree
            .read_text(&self.sibling_path(tree, "metadata.json")?)
            .ok()?;
        let metadata: NotionMetadata = serde_json::from_str(&text).ok()?;
        (is_presentable(&metadata.path) && !metadata.path.is_empty())
            .then(|| metadata.path.chars().take(200).collect())
    }

    /// Ranges of lines, inclusive, of at most [`MAX_UNIT_CHARS`] characters each. A line is never split.
    fn ranges(&self, tree: &SourceTree) -> io::Result<Vec<AssignedLines>> {
        let text = tree.read_text(&self.text)?;
        if text.encode_utf16().count() <= MAX_UNIT_CHARS {
            return Ok(Vec::new());
        }
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let range = |first: usize, last: usize, bytes: u64| AssignedLines {
            path: self.text.clone(),
            first,
            last,
            bytes,
        };
        let (mut ranges, mut start, mut length, mut bytes, mut last) = (Vec::new(), 1, 0, 0, 0);
        for (index, line) in text.split('\n').enumerate() {
            // KTX counts UTF-16 code units, as JavaScript does.
            let chars = line.encode_utf16().count() + 1;
            if length > 0 && length + chars > MAX_UNIT_CHARS {
                ranges.push(range(start, index, bytes));
                start = index + 1;
                (length, bytes) = (0, 0);
            }
            length += chars;
            bytes += line.len() as u64 + 1;
            last = index + 1;
        }
        ranges.push(range(start, last, bytes));
        // A single very long line remains one unit, which the agent reads in parts.
        Ok(ranges)
    }

    fn parts<'u>(
        &'u self,
        whole: &'u UnitChunk,
        ranges: &'u [AssignedLines],
    ) -> impl Iterator<Item = UnitChunk> + 'u {
        let count = ranges.len();
        ranges
            .iter()
            .enumerate()
            .map(move |(index, lines)| UnitChunk {
                key: format!("{}-part-{}", whole.key, index + 1),
                label: whole
                    .label
                    .as_ref()
                    .map(|label| format!("{label} (part {} of {count})", index + 1)),
                notes: Some(format!(
                    "{PART_NOTES_PREFIX} {}-{} of {} with read_raw_span. {WHOLE_PAGE_NOTES}",
                    lines.first, lines.last, self.text
                )),
                assigned_lines: Some(lines.clone()),
                ..whole.clone()
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::tests::{anywhere, tree_of};
    use ingestdeck_core::diagnostic::Diagnostic as _;

    const METADATA: &str =
        r#"{"objectType":"page","id":"a1","title":"T","path":"Handbook / Terms"}"#;

    fn chunk(files: &[(&str, &str)]) -> ChunkedSource {
        let (_dir, tree) = tree_of(files);
        NotionAdapter.detect(&tree).unwrap();
        NotionAdapter.chunk(&tree, anywhere()).unwrap()
    }

    #[test]
    fn a_page_is_a_unit_with_its_metadata() {
        let chunks = chunk(&[
            ("manifest.json", r#"{"source":"notion"}"#),
            ("pages/A1-b/page.md", "# T"),
            ("pages/A1-b/metadata.json", METADATA),
            ("pages/A1-b/blocks.json", "[]"),
            ("pages/c/page.md", "# C"),
        ]);
        let unit = &chunks.units[0];
        assert_eq!(
            (unit.key.as_str(), unit.label.as_deref()),
            ("notion-page-A1-b", Some("Handbook / Terms"))
        );
        assert_eq!(
            unit.raw_files,
            ["pages/A1-b/metadata.json", "pages/A1-b/page.md"]
        );
        assert_eq!(
            unit.dependency_paths,
            ["manifest.json", "pages/A1-b/blocks.json"]
        );
        assert_eq!(
            unit.peer_file_index
                .iter()
                .map(|path| &**path)
                .collect::<Vec<_>>(),
            ["pages/c/page.md"]
        );
        assert_eq!(chunks.units[1].raw_files, ["pages/c/page.md"]);
        assert_eq!(chunks.units[1].label.as_deref(), Some("pages/c"));
    }

    #[test]
    fn long_page_is_split_into_line_ranges() {
        let long = format!("{}\n", "x".repeat(999)).repeat(100);
        let chunks = chunk(&[
            ("pages/a/page.md", &long),
            ("pages/a/metadata.json", METADATA),
        ]);
        let keys: Vec<_> = chunks.units.iter().map(|unit| unit.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "notion-page-a-part-1",
                "notion-page-a-part-2",
                "notion-page-a-part-3"
            ]
        );
        assert!(
            chunks.units[1]
                .notes
                .as_deref()
                .unwrap()
                .contains("lines 41-80 of pages/a/page.md")
        );
        assert_eq!(
            chunks.units[2].label.as_deref(),
            Some("Handbook / Terms (part 3 of 3)")
        );
        let exact = "é".repeat(MAX_UNIT_CHARS);
        assert_eq!(chunk(&[("pages/a/page.md", &exact)]).units.len(), 1);
        let narrowed =
            |due: &str| NotionAdapter.narrow_unit(chunks.units[1].clone(), &BTreeSet::from([due]));
        let left = narrowed("pages/a/metadata.json");
        assert_eq!(
            (left.key.as_str(), left.dependency_paths.len()),
            ("notion-page-a", 1)
        );
        assert_eq!(narrowed("pages/a/page.md").key, "notion-page-a-part-2");
    }

    #[test]
    fn plain_markdown_error_names_docs_adapter() {
        let (_dir, tree) = tree_of(&[("a.md", "# A")]);
        assert!(
            NotionAdapter
                .detect(&tree)
                .unwrap_err()
                .to_line()
                .contains("driver: docs")
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn ranges_cover_every_line_once(lines in prop::collection::vec(0..50_000_usize, 1..12)) {
            let text: String = lines.iter().map(|length| format!("{}.\n", "y".repeat(*length))).collect();
            let (_dir, tree) = tree_of(&[("pages/a/page.md", &text)]);
            let page = NotionPage::open(&tree, "pages/a/page.md").unwrap();
            let ranges = page.ranges(&tree).unwrap();
            if text.len() <= MAX_UNIT_CHARS {
                prop_assert!(ranges.is_empty());
            } else {
                let covered: Vec<usize> = ranges.iter().flat_map(|lines| lines.first..=lines.last).collect();
                prop_assert_eq!(covered, (1..=lines.len()).collect::<Vec<_>>());
            }
        }
    }
}
