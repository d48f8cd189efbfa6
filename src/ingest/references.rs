//! References of wiki pages, and detection of broken ones, with KTX's rules.
//!
//! A page refers to other pages by `refs` and by `[[page]]`, to sources by `sl_refs` and by `` `source:x` ``, ``
//! `table:x` `` and `` `source.measure` `` in its body. This module must not decide the consequences of a broken
//! reference.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
    sync::LazyLock,
};

use regex_lite::Regex;
use serde_json::Value;

use super::{
    semantic_layer::{self, EffectiveSource, SemanticLayer, SemanticSources, SourceDoc, texts},
    untrusted_text::excerpt,
    wiki::{self, Wiki, WikiPage},
    workspace::Workspace,
};

/// Most connections that a message lists.
const MAX_LISTED: usize = 5;

/// A reference that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BrokenReference {
    /// A reference to the page with this key.
    Page(String),
    /// An entry of `sl_refs`, and a sentence about the problem.
    SlRef(String, String),
    /// A mention in the body: a sentence about the problem.
    BodyMention(String),
}

/// Keys of the pages that `page` refers to. Ignores texts that are not valid keys.
pub(crate) fn page_links(page: &WikiPage) -> BTreeSet<&str> {
    static INLINE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\[\[([^\]\n]+)\]\]").ok());
    let found = INLINE
        .as_ref()
        .into_iter()
        .flat_map(|inline| inline.captures_iter(&page.body));
    let inline = found
        .filter_map(|captures| captures.get(1)?.as_str().split('|').next())
        .map(str::trim);
    page.frontmatter
        .refs
        .iter()
        .flatten()
        .map(String::as_str)
        .chain(inline)
        .filter(|text| is_link(text))
        .collect()
}

/// KTX's rule for a reference to a page. Keys may contain capital letters, but references may not.
fn is_link(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || b"_-".contains(&byte))
}

/// A mention of a source, table or entity in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mention<'a> {
    /// The text in the page, unchanged.
    token: &'a str,
    /// The connection in the mention.
    connection: Option<&'a str>,
    target: MentionTarget<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MentionTarget<'a> {
    Source(&'a str),
    Table(&'a str),
    /// A measure, segment or column if the first name is that of a source; otherwise unrelated text.
    Entity(&'a str, &'a str),
}

/// Mentions in the inline code of `body`. Ignores fenced code.
fn mentions(body: &str) -> Vec<Mention<'_>> {
    let mut is_fenced = false;
    let mut found = Vec::new();
    for line in body.split('\n') {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(inline_code(line).filter_map(mention));
        }
    }
    found
}

/// The texts between pairs of backticks in `line`.
fn inline_code(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            let (_, after_opening) = rest.split_once('`')?;
            let (code, after_closing) = after_opening.split_once('`')?;
            rest = if code.is_empty() {
                after_opening
            } else {
                after_closing
            };
            if !code.is_empty() {
                return Some(code);
            }
        }
    })
}

fn mention(code: &str) -> Option<Mention<'_>> {
    let token = code.trim();
    let (connection, name) = match token.split_once('/') {
        Some((connection, name)) if !connection.is_empty() => (Some(connection), name),
        _ => (None, token),
    };
    let given = |name: &str| !name.is_empty();
    let what = if let Some(source) = name.strip_prefix("source:") {
        Some(source.trim())
            .filter(|name| given(name))
            .map(MentionTarget::Source)
    } else if let Some(table) = name.strip_prefix("table:") {
        Some(table.trim())
            .filter(|name| given(name))
            .map(MentionTarget::Table)
    } else {
        let (source, entity) = name.split_once('.')?;
        (is_identifier(source) && is_identifier(entity))
            .then_some(MentionTarget::Entity(source, entity))
    };
    Some(Mention {
        token,
        connection,
        target: what?,
    })
}

fn is_identifier(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || byte.is_ascii_digit())
}

/// The state of a workspace that references are resolved against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogVersion {
    /// Including the changes of the workspace.
    Current,
    /// Without the changes of the workspace.
    Original,
}

/// Result of looking up a source and one of its entities.
enum EntityLookup {
    Match,
    /// The source exists, but not the entity.
    SourceOnly,
    Missing,
}

/// The pages and sources that references can resolve to.
#[derive(Debug)]
pub(crate) struct ReferenceCatalog<'a> {
    workspace: &'a Workspace,
    /// Connections whose sources may be referred to without naming the connection, sorted.
    targets: &'a [String],
    version: CatalogVersion,
    page_keys: BTreeSet<String>,
    /// Sources by connection, loaded on first use.
    sources_cache: RefCell<BTreeMap<String, Rc<SemanticSources>>>,
}

impl<'a> ReferenceCatalog<'a> {
    /// The catalog of `workspace`, for pages that may refer to the sources of `targets`.
    pub(crate) fn new(
        workspace: &'a Workspace,
        targets: &'a [String],
        version: CatalogVersion,
    ) -> io::Result<Self> {
        let mut keys: BTreeSet<String> = Wiki(workspace).keys()?.into_iter().collect();
        if version == CatalogVersion::Original {
            for (path, change) in workspace.changes() {
                let Some(key) = wiki::page_key(&path) else {
                    continue;
                };
                let _ = if change.base_hash.is_some() {
                    keys.insert(key.to_owned())
                } else {
                    keys.remove(key)
                };
            }
        }
        Ok(Self {
            workspace,
            targets,
            version,
            page_keys: keys,
            sources_cache: RefCell::default(),
        })
    }

    /// Keys of all pages, sorted.
    pub(crate) fn page_keys(&self) -> &BTreeSet<String> {
        &self.page_keys
    }

    /// The references of `page`, whose key is `key`, that cannot be resolved.
    pub(crate) fn broken_references(&self, key: &str, page: &WikiPage) -> Vec<BrokenReference> {
        let links = page_links(page)
            .into_iter()
            .filter(|link| *link != key && !self.page_keys.contains(*link));
        let mut broken: Vec<BrokenReference> = links
            .map(|link| BrokenReference::Page(link.to_owned()))
            .collect();
        let entries = page.frontmatter.sl_refs.iter().flatten();
        broken.extend(
            entries.filter_map(|entry| {
                Some(BrokenReference::SlRef(entry.clone(), self.entry(entry)?))
            }),
        );
        broken.extend(
            mentions(&page.body)
                .into_iter()
                .filter_map(|mention| self.mention(mention))
                .map(BrokenReference::BodyMention),
        );
        broken
    }

    /// The problem of an entry of `sl_refs`: `source` or `source.entity`, optionally preceded by a connection.
    fn entry(&self, entry: &str) -> Option<String> {
        let (connection, name) = match entry.split_once('/') {
            Some(("", name)) => (None, name),
            Some((connection, name)) => (Some(connection), name),
            None => (None, entry),
        };
        let mut parts = name.split('.');
        let (source, entity) = (
            parts.next().unwrap_or_default(),
            parts.next().filter(|entity| !entity.is_empty()),
        );
        let is_target = |connection: &str| self.targets.iter().any(|target| target == connection);
        let found = match connection.filter(|connection| !is_target(connection)) {
            Some(_) => EntityLookup::Missing,
            None => self.find(connection, source, entity),
        };
        match found {
            EntityLookup::Match => None,
            EntityLookup::SourceOnly => {
                let why = missing_entity_text(source, entity.unwrap_or_default());
                Some(format!("`{}` in sl_refs: {why}", excerpt(entry)))
            }
            EntityLookup::Missing => {
                let scope = self.scope_suffix(connection);
                Some(format!(
                    "`{}` in sl_refs: there is no such source{scope}",
                    excerpt(entry)
                ))
            }
        }
    }

    fn mention(
        &self,
        Mention {
            token,
            connection,
            target,
        }: Mention<'_>,
    ) -> Option<String> {
        let missing = |what: &str| {
            Some(format!(
                "`{}`: there is no {what}{}",
                excerpt(token),
                self.scope_suffix(connection)
            ))
        };
        match target {
            MentionTarget::Table(table) => {
                let has_table = |connection: &&str| {
                    self.sources(connection)
                        .by_name
                        .values()
                        .any(|source| names_table(source, table))
                };
                if self.connections(connection).iter().any(has_table) {
                    None
                } else {
                    missing("source for this table")
                }
            }
            MentionTarget::Source(name) => match self.find(connection, name, None) {
                EntityLookup::Match | EntityLookup::SourceOnly => None,
                EntityLookup::Missing => missing("such source"),
            },
            // File names, schemas and other texts look the same, so only an entity of an existing source can be
            // reported as missing.
            MentionTarget::Entity(name, entity) => {
                match self.find(connection, name, Some(entity)) {
                    EntityLookup::SourceOnly => Some(format!(
                        "`{}`: {}",
                        excerpt(token),
                        missing_entity_text(name, entity)
                    )),
                    EntityLookup::Match | EntityLookup::Missing => None,
                }
            }
        }
    }

    /// Whether KTX's repair keeps `entry` in `sl_refs`: it names exactly a source, or a measure or segment of one.
    pub(crate) fn is_kept_by_repair(&self, entry: &str) -> bool {
        let is_named = |source: &EffectiveSource| {
            let Some(rest) = entry.strip_prefix(&source.name) else {
                return false;
            };
            let has = |entity| {
                ["measures", "segments"]
                    .iter()
                    .any(|key| texts(&source.doc, key, "name").contains(&entity))
            };
            rest.is_empty() || rest.strip_prefix('.').is_some_and(has)
        };
        self.targets
            .iter()
            .any(|connection| self.sources(connection).by_name.values().any(is_named))
    }

    /// Whether KTX's repair keeps `entry` but its gate refuses it: the first source with that name lacks the entity,
    /// and a later one has it.
    pub(crate) fn is_rejected_by_gate(&self, entry: &str) -> bool {
        self.is_kept_by_repair(entry) && self.entry(entry).is_some()
    }

    /// Connections in which a reference is looked up.
    fn connections<'b>(&'b self, named: Option<&'b str>) -> Vec<&'b str> {
        named.map_or_else(
            || self.targets.iter().map(String::as_str).collect(),
            |named| vec![named],
        )
    }

    /// Looks up `entity` in the first source with that name.
    fn find(&self, connection: Option<&str>, name: &str, entity: Option<&str>) -> EntityLookup {
        for connection in self.connections(connection) {
            if let Some(EffectiveSource { doc, .. }) = self.sources(connection).by_name.get(name) {
                let has = |entity| {
                    ["measures", "columns", "segments"]
                        .iter()
                        .any(|key| texts(doc, key, "name").contains(&entity))
                };
                return if entity.is_none_or(has) {
                    EntityLookup::Match
                } else {
                    EntityLookup::SourceOnly
                };
            }
        }
        EntityLookup::Missing
    }

    /// The sources of `connection`, which may be arbitrary text from a page; empty if they cannot be read.
    fn sources(&self, connection: &str) -> Rc<SemanticSources> {
        if let Some(read) = self.sources_cache.borrow().get(connection) {
            return Rc::clone(read);
        }
        let sources = match self.version {
            _ if !wiki::is_page_key(connection) => Ok(SemanticSources::default()),
            CatalogVersion::Current => SemanticLayer(self.workspace).sources(connection),
            CatalogVersion::Original => original_sources(self.workspace, connection),
        };
        let sources = Rc::new(sources.unwrap_or_default());
        self.sources_cache
            .borrow_mut()
            .insert(connection.to_owned(), Rc::clone(&sources));
        sources
    }

    /// The end of a sentence that names where something was not found.
    fn scope_suffix(&self, connection: Option<&str>) -> String {
        match self.connections(connection)[..] {
            [] => String::new(),
            [connection] => format!(" in connection {}", excerpt(connection)),
            ref connections if connections.len() <= MAX_LISTED => {
                format!(" in the connections {}", connections.join(", "))
            }
            _ => " in any connection".to_owned(),
        }
    }
}

/// The sources of `connection` without the changes of `workspace`. Scans are never changed there.
fn original_sources(workspace: &Workspace, connection: &str) -> io::Result<SemanticSources> {
    let now = SemanticLayer(workspace).sources(connection)?;
    let mut sources = SemanticSources::from_scan(now.scanned_tables);
    let changes = workspace.changes();
    let unchanged = now
        .files
        .into_iter()
        .filter(|file| !changes.contains_key(&file.path));
    let mut docs: BTreeMap<String, (String, SourceDoc)> = unchanged
        .filter_map(|file| Some((file.path, (file.name, file.doc.ok()?))))
        .collect();
    for path in changes.into_keys().filter(|path| {
        semantic_layer::split_source_path(path).is_some_and(|(of, _)| of == connection)
    }) {
        let Some(bytes) = workspace.original(&path)? else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(doc) = semantic_layer::parse_source(&text) {
            docs.insert(
                path.clone(),
                (semantic_layer::source_name(&text, &path), doc),
            );
        }
    }
    for (name, doc) in docs.into_values() {
        sources.insert(&name, doc);
    }
    Ok(sources)
}

fn missing_entity_text(source: &str, entity: &str) -> String {
    format!(
        "source {} has no measure, segment or column `{}`",
        excerpt(source),
        excerpt(entity)
    )
}

/// True if `table`, as written in a page or a call, is the name of `source` or of its table.
pub(super) fn names_table(source: &EffectiveSource, table: &str) -> bool {
    let plain = |text: &str| text.trim().replace(['"', '`', '[', ']'], "").to_lowercase();
    let wanted = plain(table);
    if wanted.is_empty() {
        return false;
    }
    let own_table = plain(
        source
            .doc
            .get("table")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    let last = own_table.split('.').rfind(|part| !part.is_empty());
    plain(&source.name) == wanted
        || own_table == wanted
        || own_table.ends_with(&format!(".{wanted}"))
        || (!wanted.contains('.') && last == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn page(body: &str, refs: &[&str], sl_refs: &[&str]) -> WikiPage {
        let mut page = WikiPage {
            body: body.into(),
            ..WikiPage::default()
        };
        page.frontmatter.refs = Some(refs.iter().map(|text| (*text).to_owned()).collect());
        page.frontmatter.sl_refs = Some(sl_refs.iter().map(|text| (*text).to_owned()).collect());
        page
    }

    #[test]
    fn only_texts_that_can_be_keys_are_links() {
        let body = "[[a]] [[b|the b]] [[ c-1 ]] [[A]] [[two words]] [[x\ny]] [[]] [[[d]] [[e]f]] ```[[in-code]]```";
        let page = page(
            body,
            &["g_2", "Revenue Policy", "UPPER-page", " g", ""],
            &[],
        );
        assert_eq!(
            page_links(&page).into_iter().collect::<Vec<_>>(),
            ["a", "b", "c-1", "g_2", "in-code"]
        );
    }

    #[test]
    fn mentions_are_found_in_inline_code_only() {
        let body = "`source:a` `wh/table: b.c ` ``a.b``\n`a.b.c` `1.b` `x/y.z` `/a.b` `source:`\n  ```sql\n`source:fenced`\n```\nsource:plain `a\n.b`";
        let found: Vec<String> = mentions(body)
            .into_iter()
            .map(
                |Mention {
                     connection, target, ..
                 }| format!("{} {target:?}", connection.unwrap_or("-")),
            )
            .collect();
        let wanted = [
            "- Source(\"a\")",
            "wh Table(\"b.c\")",
            "- Entity(\"a\", \"b\")",
            "x Entity(\"y\", \"z\")",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn broken_references_are_reported_with_reason() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("wiki/global/known.md", "x\n"),
            (
                "semantic-layer/wh/orders.yaml",
                "name: orders\ntable: shop.Orders\ncolumns: [{name: id}]\nmeasures: [{name: total}]\n",
            ),
            (
                "semantic-layer/wh/_schema/s.yaml",
                "tables:\n  visits:\n    columns: [{name: day}]\n",
            ),
            (
                "semantic-layer/old/gone.yaml",
                "name: gone\nsegments: [{name: big}]\n",
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        let targets = ["orbit".to_owned(), "wh".to_owned()];
        let catalog = ReferenceCatalog::new(&space, &targets, CatalogVersion::Current).unwrap();
        let good = page(
            "[[known]] [[own]] `source:orders` `wh/source:visits` `old/source:gone` `table:SHOP.\"ORDERS\"` `table:orders` \
             `table:visits` `orders.id` `orders.total` `visits.day` `old/gone.big` `shop.orders` `../x.y` `a/source.md`",
            &["known", "No Key"],
            &[
                "orders",
                "wh/orders.total",
                "orders.id",
                "/visits",
                "orders.",
            ],
        );
        assert_eq!(catalog.broken_references("own", &good), []);
        let bad = page(
            "[[gone]] `source:gone` `old/source:orders` `../source:x` `table:shop.visits` `orders.none`",
            &["other"],
            &["gone", "old/gone", "orders.none", "bi/orders", ""],
        );
        let problems =
            catalog
                .broken_references("own", &bad)
                .into_iter()
                .map(|broken| match broken {
                    BrokenReference::Page(key) => format!("page {key}"),
                    BrokenReference::SlRef(_, why) | BrokenReference::BodyMention(why) => why,
                });
        insta::assert_snapshot!(problems.collect::<Vec<_>>().join("\n"), @r"
        page gone
        page other
        `gone` in sl_refs: there is no such source in the connections orbit, wh
        `old/gone` in sl_refs: there is no such source in connection old
        `orders.none` in sl_refs: source orders has no measure, segment or column `none`
        `bi/orders` in sl_refs: there is no such source in connection bi
        `` in sl_refs: there is no such source in the connections orbit, wh
        `source:gone`: there is no such source in the connections orbit, wh
        `old/source:orders`: there is no such source in connection old
        `../source:x`: there is no such source in connection ..
        `table:shop.visits`: there is no source for this table in the connections orbit, wh
        `orders.none`: source orders has no measure, segment or column `none`
        ");
        let kept = [
            "orders",
            "orders.total",
            "orders.id",
            "wh/orders",
            "visits",
            "gone",
            "orders.",
        ];
        assert_eq!(
            kept.map(|entry| catalog.is_kept_by_repair(entry)),
            [true, true, false, false, true, false, false]
        );
    }
}
