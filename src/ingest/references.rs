//! What wiki pages refer to, and what of it leads nowhere, judged as KTX judges it.
//!
//! A page refers to other pages by `refs` and by `[[page]]`, to sources by `sl_refs` and by `` `source:x` ``,
//! `` `table:x` `` and `` `source.measure` `` in its body. This module must not decide what a reference that leads
//! nowhere costs.

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
    layer::{self, Doc, Layer, Source, Sources, texts},
    schema::shown,
    wiki::{self, Page, Wiki},
    workspace::Workspace,
};

/// Most connections that a sentence names.
const NAMED: usize = 5;

/// A reference that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Astray {
    /// To the page of this key.
    Page(String),
    /// An entry of `sl_refs`, and a sentence about it.
    Entry(String, String),
    /// A mention in the body; a sentence about it.
    Mention(String),
}

/// Keys of the pages that `page` refers to. A text that can be no key refers to nothing.
pub(crate) fn links(page: &Page) -> BTreeSet<&str> {
    static INLINE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\[\[([^\]\n]+)\]\]").ok());
    let found = INLINE.as_ref().into_iter().flat_map(|inline| inline.captures_iter(&page.body));
    let inline = found.filter_map(|captures| captures.get(1)?.as_str().split('|').next()).map(str::trim);
    page.front.refs.iter().flatten().map(String::as_str).chain(inline).filter(|text| is_link(text)).collect()
}

/// KTX's rule for a reference to a page. Keys with capital letters are keys, but nothing refers to them.
fn is_link(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_first) && text.bytes().all(|byte| is_first(byte) || b"_-".contains(&byte))
}

/// Something of the semantic layer that a body mentions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mention<'a> {
    /// The text in the page, unchanged.
    token: &'a str,
    /// The connection that it names.
    connection: Option<&'a str>,
    what: What<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What<'a> {
    Source(&'a str),
    Table(&'a str),
    /// A measure, segment or column, if the first name is that of a source; else anything.
    Entity(&'a str, &'a str),
}

/// What inline code of `body` mentions. Fenced code says nothing.
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

/// The texts between two backticks of `line`.
fn inline_code(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            let (_, behind) = rest.split_once('`')?;
            let (code, after) = behind.split_once('`')?;
            rest = if code.is_empty() { behind } else { after };
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
        Some(source.trim()).filter(|name| given(name)).map(What::Source)
    } else if let Some(table) = name.strip_prefix("table:") {
        Some(table.trim()).filter(|name| given(name)).map(What::Table)
    } else {
        let (source, entity) = name.split_once('.')?;
        (is_identifier(source) && is_identifier(entity)).then_some(What::Entity(source, entity))
    };
    Some(Mention { token, connection, what: what? })
}

fn is_identifier(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_first) && text.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit())
}

/// The state of a workspace that pages are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// With what was changed in it.
    Now,
    /// Without what was changed in it.
    Before,
}

/// What is there of a source and a part of it.
enum Found {
    All,
    /// The source without that part.
    Source,
    Nothing,
}

/// What pages can refer to.
#[derive(Debug)]
pub(crate) struct Catalog<'a> {
    workspace: &'a Workspace,
    /// Connections whose sources need not be named with their connection, sorted.
    targets: &'a [String],
    when: When,
    /// Keys of all pages.
    keys: BTreeSet<String>,
    /// Sources by connection, as far as they were asked for.
    read: RefCell<BTreeMap<String, Rc<Sources>>>,
}

impl<'a> Catalog<'a> {
    /// What there is in `workspace`, for pages that speak of the sources of `targets`.
    pub(crate) fn new(workspace: &'a Workspace, targets: &'a [String], when: When) -> io::Result<Self> {
        let mut keys: BTreeSet<String> = Wiki(workspace).keys()?.into_iter().collect();
        if when == When::Before {
            for (path, change) in workspace.changes() {
                let Some(key) = wiki::key_of(&path) else { continue };
                let _ = if change.base.is_some() { keys.insert(key.to_owned()) } else { keys.remove(key) };
            }
        }
        Ok(Self { workspace, targets, when, keys, read: RefCell::default() })
    }

    /// Keys of all pages, sorted.
    pub(crate) fn keys(&self) -> &BTreeSet<String> {
        &self.keys
    }

    /// What of the references of `page`, whose key is `key`, leads nowhere.
    pub(crate) fn astray(&self, key: &str, page: &Page) -> Vec<Astray> {
        let links = links(page).into_iter().filter(|link| *link != key && !self.keys.contains(*link));
        let mut astray: Vec<Astray> = links.map(|link| Astray::Page(link.to_owned())).collect();
        let entries = page.front.sl_refs.iter().flatten();
        astray.extend(entries.filter_map(|entry| Some(Astray::Entry(entry.clone(), self.entry(entry)?))));
        astray
            .extend(mentions(&page.body).into_iter().filter_map(|mention| self.mention(mention)).map(Astray::Mention));
        astray
    }

    /// What is wrong with an entry of `sl_refs`: `source` or `source.entity`, and a target before it if need be.
    fn entry(&self, entry: &str) -> Option<String> {
        let (connection, name) = match entry.split_once('/') {
            Some(("", name)) => (None, name),
            Some((connection, name)) => (Some(connection), name),
            None => (None, entry),
        };
        let mut parts = name.split('.');
        let (source, entity) = (parts.next().unwrap_or_default(), parts.next().filter(|entity| !entity.is_empty()));
        let is_target = |connection: &str| self.targets.iter().any(|target| target == connection);
        let found = match connection.filter(|connection| !is_target(connection)) {
            Some(_) => Found::Nothing,
            None => self.find(connection, source, entity),
        };
        match found {
            Found::All => None,
            Found::Source => {
                let lacks = lacks(source, entity.unwrap_or_default());
                Some(format!("`{}` in sl_refs: {lacks}", shown(entry)))
            }
            Found::Nothing => Some(format!("`{}` in sl_refs is no source{}", shown(entry), self.within(connection))),
        }
    }

    fn mention(&self, Mention { token, connection, what }: Mention<'_>) -> Option<String> {
        let nowhere = |what: &str| Some(format!("`{}` names no {what}{}", shown(token), self.within(connection)));
        match what {
            What::Table(table) => {
                let is_there =
                    |connection: &&str| self.sources(connection).all.values().any(|source| is_of_table(source, table));
                if self.connections(connection).iter().any(is_there) { None } else { nowhere("table of a source") }
            }
            What::Source(name) => match self.find(connection, name, None) {
                Found::All | Found::Source => None,
                Found::Nothing => nowhere("source"),
            },
            // Files, schemas and much else look like it: only what is said of a source that is there can be wrong.
            What::Entity(name, entity) => match self.find(connection, name, Some(entity)) {
                Found::Source => Some(format!("`{}`: {}", shown(token), lacks(name, entity))),
                Found::All | Found::Nothing => None,
            },
        }
    }

    /// Whether `entry` stays in `sl_refs` when KTX repairs them: it is exactly a source, or a measure or segment of one.
    pub(crate) fn keeps(&self, entry: &str) -> bool {
        let is_meant = |source: &Source| {
            let Some(rest) = entry.strip_prefix(&source.name) else { return false };
            let has =
                |entity| ["measures", "segments"].iter().any(|key| texts(&source.doc, key, "name").contains(&entity));
            rest.is_empty() || rest.strip_prefix('.').is_some_and(has)
        };
        self.targets.iter().any(|connection| self.sources(connection).all.values().any(is_meant))
    }

    /// Whether KTX's repair keeps `entry` and its gate refuses it: the first source of that name lacks what another has.
    pub(crate) fn refuses(&self, entry: &str) -> bool {
        self.keeps(entry) && self.entry(entry).is_some()
    }

    /// Where a reference is looked up.
    fn connections<'b>(&'b self, named: Option<&'b str>) -> Vec<&'b str> {
        named.map_or_else(|| self.targets.iter().map(String::as_str).collect(), |named| vec![named])
    }

    /// Looks for `entity` in the first source of that name.
    fn find(&self, connection: Option<&str>, name: &str, entity: Option<&str>) -> Found {
        for connection in self.connections(connection) {
            if let Some(Source { doc, .. }) = self.sources(connection).all.get(name) {
                let has = |entity| {
                    ["measures", "columns", "segments"].iter().any(|key| texts(doc, key, "name").contains(&entity))
                };
                return if entity.is_none_or(has) { Found::All } else { Found::Source };
            }
        }
        Found::Nothing
    }

    /// The sources of `connection`, which may be a text out of a page; none where nothing can be read.
    fn sources(&self, connection: &str) -> Rc<Sources> {
        if let Some(read) = self.read.borrow().get(connection) {
            return Rc::clone(read);
        }
        let sources = match self.when {
            _ if !wiki::is_key(connection) => Ok(Sources::default()),
            When::Now => Layer(self.workspace).sources(connection),
            When::Before => before(self.workspace, connection),
        };
        let sources = Rc::new(sources.unwrap_or_default());
        self.read.borrow_mut().insert(connection.to_owned(), Rc::clone(&sources));
        sources
    }

    /// The end of a sentence about something that is not found.
    fn within(&self, connection: Option<&str>) -> String {
        match self.connections(connection)[..] {
            [] => String::new(),
            [connection] => format!(" of connection {}", shown(connection)),
            ref connections if connections.len() <= NAMED => format!(" of the connections {}", connections.join(", ")),
            _ => " of any connection".to_owned(),
        }
    }
}

/// The sources of `connection` without what was changed in `workspace`. Scans are never changed there.
fn before(workspace: &Workspace, connection: &str) -> io::Result<Sources> {
    let now = Layer(workspace).sources(connection)?;
    let mut sources = Sources { scanned: now.scanned, ..Sources::default() };
    for (name, doc) in sources.scanned.clone() {
        sources.all.insert(name.clone(), Source { name, doc });
    }
    let changes = workspace.changes();
    let unchanged = now.files.into_iter().filter(|file| !changes.contains_key(&file.path));
    let mut docs: BTreeMap<String, (String, Doc)> =
        unchanged.filter_map(|file| Some((file.path, (file.name, file.doc.ok()?)))).collect();
    for path in changes.into_keys().filter(|path| layer::place_of(path).is_some_and(|(of, _)| of == connection)) {
        let Some(bytes) = workspace.before(&path)? else { continue };
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(doc) = layer::parse(&text) {
            docs.insert(path.clone(), (layer::name_in(&text, &path), doc));
        }
    }
    for (name, doc) in docs.into_values() {
        sources.put(&name, doc);
    }
    Ok(sources)
}

fn lacks(source: &str, entity: &str) -> String {
    format!("source {} has no measure, segment or column `{}`", shown(source), shown(entity))
}

/// True if `table`, as written in a page or a call, names `source` or its table.
pub(super) fn is_of_table(source: &Source, table: &str) -> bool {
    let plain = |text: &str| text.trim().replace(['"', '`', '[', ']'], "").to_lowercase();
    let wanted = plain(table);
    if wanted.is_empty() {
        return false;
    }
    let own = plain(source.doc.get("table").and_then(Value::as_str).unwrap_or_default());
    let last = own.split('.').rfind(|part| !part.is_empty());
    plain(&source.name) == wanted
        || own == wanted
        || own.ends_with(&format!(".{wanted}"))
        || (!wanted.contains('.') && last == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn page(body: &str, refs: &[&str], sl_refs: &[&str]) -> Page {
        let mut page = Page { body: body.into(), ..Page::default() };
        page.front.refs = Some(refs.iter().map(|text| (*text).to_owned()).collect());
        page.front.sl_refs = Some(sl_refs.iter().map(|text| (*text).to_owned()).collect());
        page
    }

    #[test]
    fn only_texts_that_can_be_keys_are_links() {
        let body = "[[a]] [[b|the b]] [[ c-1 ]] [[A]] [[two words]] [[x\ny]] [[]] [[[d]] [[e]f]] ```[[in-code]]```";
        let page = page(body, &["g_2", "Revenue Policy", "UPPER-page", " g", ""], &[]);
        assert_eq!(links(&page).into_iter().collect::<Vec<_>>(), ["a", "b", "c-1", "g_2", "in-code"]);
    }

    #[test]
    fn mentions_are_in_inline_code_alone() {
        let body = "`source:a` `wh/table: b.c ` ``a.b``\n`a.b.c` `1.b` `x/y.z` `/a.b` `source:`\n  ```sql\n`source:fenced`\n```\nsource:plain `a\n.b`";
        let found: Vec<String> = mentions(body)
            .into_iter()
            .map(|Mention { connection, what, .. }| format!("{} {what:?}", connection.unwrap_or("-")))
            .collect();
        let wanted = ["- Source(\"a\")", "wh Table(\"b.c\")", "- Entity(\"a\", \"b\")", "x Entity(\"y\", \"z\")"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_leads_nowhere_is_told_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("wiki/global/known.md", "x\n"),
            (
                "semantic-layer/wh/orders.yaml",
                "name: orders\ntable: shop.Orders\ncolumns: [{name: id}]\nmeasures: [{name: total}]\n",
            ),
            ("semantic-layer/wh/_schema/s.yaml", "tables:\n  visits:\n    columns: [{name: day}]\n"),
            ("semantic-layer/old/gone.yaml", "name: gone\nsegments: [{name: big}]\n"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let space = Workspace::create(dir.path(), &dir.path().join("work")).unwrap();
        let targets = ["orbit".to_owned(), "wh".to_owned()];
        let catalog = Catalog::new(&space, &targets, When::Now).unwrap();
        let good = page(
            "[[known]] [[own]] `source:orders` `wh/source:visits` `old/source:gone` `table:SHOP.\"ORDERS\"` `table:orders` \
             `table:visits` `orders.id` `orders.total` `visits.day` `old/gone.big` `shop.orders` `../x.y` `a/source.md`",
            &["known", "No Key"],
            &["orders", "wh/orders.total", "orders.id", "/visits", "orders."],
        );
        assert_eq!(catalog.astray("own", &good), []);
        let bad = page(
            "[[gone]] `source:gone` `old/source:orders` `../source:x` `table:shop.visits` `orders.none`",
            &["other"],
            &["gone", "old/gone", "orders.none", "bi/orders", ""],
        );
        let told = catalog.astray("own", &bad).into_iter().map(|astray| match astray {
            Astray::Page(key) => format!("page {key}"),
            Astray::Entry(_, why) | Astray::Mention(why) => why,
        });
        insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r"
        page gone
        page other
        `gone` in sl_refs is no source of the connections orbit, wh
        `old/gone` in sl_refs is no source of connection old
        `orders.none` in sl_refs: source orders has no measure, segment or column `none`
        `bi/orders` in sl_refs is no source of connection bi
        `` in sl_refs is no source of the connections orbit, wh
        `source:gone` names no source of the connections orbit, wh
        `old/source:orders` names no source of connection old
        `../source:x` names no source of connection ..
        `table:shop.visits` names no table of a source of the connections orbit, wh
        `orders.none`: source orders has no measure, segment or column `none`
        ");
        let kept = ["orders", "orders.total", "orders.id", "wh/orders", "visits", "gone", "orders."];
        assert_eq!(kept.map(|entry| catalog.keeps(entry)), [true, true, false, false, true, false, false]);
    }
}
