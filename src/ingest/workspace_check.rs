//! Validates the result of an attempt: pages must be readable and their references must resolve; sources must be valid
//! and their joins must resolve.
//!
//! Runs at the end, not at each write, because a page may refer to one that is written later. It must not judge
//! attempts.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Duration,
};

use super::{
    connection_scope::ConnectionScope,
    database::TableLookup,
    facts::{KnownTables, TableFinding, TableName},
    references::{BrokenReference, CatalogVersion, ReferenceCatalog},
    semantic_layer::{
        self, SemanticLayer, SemanticSources, SourceFile, SourceFindings, SourceKind,
    },
    verbatim,
    wiki::{self, Wiki, WikiPage},
    workspace::{Workspace, WorkspaceChange},
};
use ingestdeck_core::tape::note::attempt_output::MAX_DANGLING;

/// Time limit of the question which tables exist.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Most tables that one check asks a database about.
const MAX_ASKED: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceCheckReport {
    /// Unresolved references between pages, as `page -> missing`.
    pub dangling_links: Vec<String>,
    /// Invalid pages and sources, one sentence each.
    pub invalid: Vec<String>,
    /// The references among both that do not resolve, at most [`MAX_DANGLING`]; `None` if they were not checked.
    pub dangling_references: Option<Vec<String>>,
}

/// Result of checking the semantic layer of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SemanticLayerReport {
    /// Number of sources checked.
    pub(crate) sources: usize,
    pub(crate) findings: SourceFindings,
}

/// Checks the sources of `connection`: those that the attempt changed and the joins of others to them; all of them if
/// it changed none. Problems that existed before the attempt are not reported. Tables are compared with the facts in
/// `scope`; a database that may be used is asked about those that files lack.
pub(crate) fn check_connection_sources(
    workspace: &Workspace,
    connection: &str,
    scope: &ConnectionScope,
) -> io::Result<SemanticLayerReport> {
    let mut sources = SemanticLayer(workspace).sources(connection)?;
    let changes = workspace.changes();
    let is_own = |path: &&String| {
        semantic_layer::split_source_path(path).is_some_and(|(of, _)| of == connection)
    };
    let changed: BTreeSet<&str> = changes.keys().filter(is_own).map(String::as_str).collect();
    let mut findings = SourceFindings::default();
    let is_meant = |path: &str| changed.is_empty() || changed.contains(path);
    sources.known_tables = scope.known_tables(connection).map(|mut known| {
        let checked = sources.files.iter().filter(|file| is_meant(&file.path));
        known.answers = ask_database(scope, connection, &known, (&sources, checked));
        known
    });
    let broken = sources
        .broken_files
        .iter()
        .filter(|(path, _)| is_meant(path));
    findings
        .errors
        .extend(broken.map(|(path, why)| format!("{path}: {why}")));
    let mut touched: BTreeSet<String> = BTreeSet::new();
    for path in &changed {
        let versions = workspace.versions(path)?;
        touched.extend(
            versions
                .iter()
                .map(|bytes| semantic_layer::source_name(&String::from_utf8_lossy(bytes), path)),
        );
    }
    for file in &sources.files {
        let Ok(doc) = &file.doc else { continue };
        if is_meant(&file.path) {
            let mut found = semantic_layer::validate_source(&file.name, doc, &sources);
            if changed.contains(file.path.as_str())
                && let Some(before) = findings_before(workspace, file, &sources)?
            {
                found.excuse_known(&before);
            }
            findings.errors.extend(found.errors);
            findings.warnings.extend(found.warnings);
        } else {
            let lost = semantic_layer::dangling_joins(&file.name, doc, &sources);
            findings.errors.extend(
                lost.into_iter()
                    .filter(|(to, _)| touched.contains(to))
                    .map(|(_, text)| text),
            );
        }
    }
    Ok(SemanticLayerReport {
        sources: sources.by_name.len(),
        findings,
    })
}

/// Asks the database about the tables of the sources in `files` that files with facts lack, as a tool does when it writes a
/// source: a table may be newer than the scan. Without an answer, files decide.
fn ask_database<'s>(
    scope: &ConnectionScope,
    connection: &str,
    known: &KnownTables,
    (sources, files): (&SemanticSources, impl Iterator<Item = &'s SourceFile>),
) -> BTreeMap<String, bool> {
    let access = scope.get(connection);
    let Some(database) = access.and_then(|access| access.database.as_ref()) else {
        return BTreeMap::new();
    };
    let table = |file: &'s SourceFile| {
        let doc = file.doc.as_ref().ok()?;
        let is_table = SourceKind::from_doc(doc) == SourceKind::Table;
        let table = doc.get("table").filter(|_| is_table)?.as_str()?.trim();
        let is_open = sources.scanned_table(table).is_none()
            && !matches!(known.judge(table), TableFinding::Fine);
        is_open.then_some(table)
    };
    let open: BTreeSet<&str> = files.filter_map(table).take(MAX_ASKED).collect();
    if open.is_empty() {
        return BTreeMap::new();
    }
    let target = |table: &&str| vec![(TableName::parse(table).parts().to_vec(), None)];
    let targets = open.iter().map(target).collect();
    let found = scope.sql_workers.look_up(database, ASK_TIMEOUT, targets);
    let answers = open.into_iter().zip(found.unwrap_or_default());
    let exists = answers.filter_map(|(table, found)| match found {
        TableLookup::Found(_) | TableLookup::MissingColumn(_) => Some((table.to_owned(), true)),
        TableLookup::MissingTable { is_covered, .. } => {
            is_covered.then(|| (table.to_owned(), false))
        }
        TableLookup::Ambiguous(_) => None,
    });
    exists.collect()
}

/// The findings about the source in `file` before the attempt, if it existed.
fn findings_before(
    workspace: &Workspace,
    file: &SourceFile,
    sources: &SemanticSources,
) -> io::Result<Option<SourceFindings>> {
    let original = workspace.original(&file.path)?;
    let Some(doc) = original
        .and_then(|bytes| semantic_layer::parse_source(&String::from_utf8_lossy(&bytes)).ok())
    else {
        return Ok(None);
    };
    let mut sources = sources.clone();
    sources.insert(&file.name, doc.clone());
    Ok(Some(semantic_layer::validate_source(
        &file.name, &doc, &sources,
    )))
}

/// Checks what the attempt changed, and what refers to anything that it removed or changed. Pages may refer to the
/// sources of `targets` without naming the connection.
pub(crate) fn check_changes(
    workspace: &Workspace,
    targets: &[String],
    scope: &ConnectionScope,
) -> WorkspaceCheckReport {
    let mut checked = WorkspaceCheckReport::default();
    check_changed_sources(workspace, scope, &mut checked);
    for (path, change) in &workspace.changes() {
        if let (Some(key), Some(_)) = (wiki::page_key(path), change.new_hash) {
            check_page(Wiki(workspace), key, &mut checked);
        }
    }
    match check_references(workspace, targets) {
        Ok(found) => {
            let all = found.dangling_links.iter().chain(&found.invalid);
            checked.dangling_references = Some(all.take(MAX_DANGLING).cloned().collect());
            checked.dangling_links = found.dangling_links;
            checked.invalid.extend(found.invalid);
        }
        Err(error) => checked
            .invalid
            .push(format!("the wiki cannot be listed: {error}")),
    }
    checked
}

/// Checks the references of changed pages, and those references of other pages that resolved before the attempt.
/// Entries of `sl_refs` that broke in other pages are repaired on save.
pub(crate) fn check_references(
    workspace: &Workspace,
    targets: &[String],
) -> io::Result<WorkspaceCheckReport> {
    let mut checked = WorkspaceCheckReport::default();
    let now = ReferenceCatalog::new(workspace, targets, CatalogVersion::Current)?;
    let changes = workspace.changes();
    let is_written = |key: &&String| changes.contains_key(&wiki::page_path(key));
    let (own, others): (Vec<&String>, Vec<&String>) = now.page_keys().iter().partition(is_written);
    for key in own {
        // A document is kept as it is, whatever it refers to.
        let page = read_page(workspace, key).filter(|page| verbatim::mark(page).is_none());
        if let Some(page) = page {
            checked.add_broken_references(key, now.broken_references(key, &page));
        }
    }
    let is_gone = |path: &String, change: &WorkspaceChange| {
        wiki::page_key(path).is_some() && change.new_hash.is_none()
    };
    if !changes.iter().any(|(path, change)| {
        is_gone(path, change) || semantic_layer::split_source_path(path).is_some()
    }) {
        return Ok(checked);
    }
    let before = ReferenceCatalog::new(workspace, targets, CatalogVersion::Original)?;
    for key in others {
        let Some(page) = read_page(workspace, key) else {
            continue;
        };
        let mut lost = now.broken_references(key, &page);
        let is_new_refusal = |broken: &BrokenReference| matches!(broken, BrokenReference::SlRef(entry, _) if now.is_rejected_by_gate(entry) && !before.is_rejected_by_gate(entry));
        lost.retain(|broken| !is_repairable(&now, broken) && !is_new_refusal(broken));
        if !lost.is_empty() {
            let stale = before.broken_references(key, &page);
            lost.retain(|broken| !stale.contains(broken));
        }
        checked.add_broken_references(key, lost);
    }
    Ok(checked)
}

/// Pages of the project in `root` whose references make KTX refuse an ingest, regardless of who wrote them: one text
/// for each broken reference. KTX checks all pages once a source changed or a page was removed, but repairs their
/// `sl_refs` itself.
pub fn blocking_references(root: &Path, connections: &[String]) -> io::Result<Vec<String>> {
    let workspace = Workspace::read_only(root);
    let catalog = ReferenceCatalog::new(&workspace, connections, CatalogVersion::Current)?;
    let mut checked = WorkspaceCheckReport::default();
    for key in catalog.page_keys() {
        let Some(page) = read_page(&workspace, key) else {
            continue;
        };
        let mut broken = catalog.broken_references(key, &page);
        broken.retain(|broken| !is_repairable(&catalog, broken));
        checked.add_broken_references(key, broken);
    }
    Ok(checked
        .dangling_links
        .into_iter()
        .chain(checked.invalid)
        .collect())
}

/// Whether the repair of `sl_refs` removes the reference.
fn is_repairable(catalog: &ReferenceCatalog<'_>, broken: &BrokenReference) -> bool {
    matches!(broken, BrokenReference::SlRef(entry, _) if !catalog.is_kept_by_repair(entry))
}

/// The page `key`; `None` if it cannot be read, which is reported elsewhere.
fn read_page(workspace: &Workspace, key: &str) -> Option<WikiPage> {
    WikiPage::parse(&workspace.peek(&wiki::page_path(key)).ok()??).ok()
}

impl WorkspaceCheckReport {
    /// Adds the broken references of the page `key`.
    fn add_broken_references(&mut self, key: &str, broken: Vec<BrokenReference>) {
        for broken in broken {
            match broken {
                BrokenReference::Page(missing) => {
                    self.dangling_links.push(format!("{key} -> {missing}"))
                }
                BrokenReference::SlRef(_, why) | BrokenReference::BodyMention(why) => {
                    self.invalid.push(format!("wiki page {key}: {why}"))
                }
            }
        }
    }
}

fn check_changed_sources(
    workspace: &Workspace,
    scope: &ConnectionScope,
    checked: &mut WorkspaceCheckReport,
) {
    let changes = workspace.changes();
    let places = changes
        .keys()
        .filter_map(|path| semantic_layer::split_source_path(path));
    let connections: BTreeSet<&str> = places.map(|(connection, _)| connection).collect();
    for connection in connections {
        let found = match check_connection_sources(workspace, connection, scope) {
            Ok(report) => report.findings.errors,
            Err(error) => vec![format!("the semantic layer cannot be read: {error}")],
        };
        checked
            .invalid
            .extend(found.into_iter().map(|text| format!("{connection}:{text}")));
    }
}

fn check_page(wiki: Wiki<'_>, key: &str, checked: &mut WorkspaceCheckReport) {
    let page = match wiki.read_text(key) {
        Ok(Some(bytes)) => WikiPage::parse(&bytes).map_err(|error| error.to_string()),
        Ok(None) => Err("it is gone".into()),
        Err(error) => Err(error.to_string()),
    };
    match page {
        Err(why) => checked.invalid.push(format!("wiki page {key}: {why}")),
        Ok(page) => {
            checked.invalid.extend(
                page_faults(key, &page)
                    .into_iter()
                    .map(|why| format!("wiki page {key}: {why}")),
            );
        }
    }
}

fn page_faults(key: &str, page: &WikiPage) -> Vec<String> {
    let mut faults = Vec::new();
    if !wiki::is_page_key(key) {
        faults.push("its key is not flat".to_owned());
    }
    if page.frontmatter.summary.trim().is_empty() {
        faults.push("it has no summary".into());
    }
    if page.frontmatter.summary.chars().count() > wiki::MAX_SUMMARY_CHARS {
        faults.push(format!(
            "its summary is longer than {} characters",
            wiki::MAX_SUMMARY_CHARS
        ));
    }
    if page.body.is_empty() {
        faults.push("it has no content".into());
    }
    faults
}

/// Files of the semantic layer that KTX cannot load, with the reason: their sources do not exist for KTX, and it refuses
/// to edit the other sources of their connection.
pub fn unloadable_sources(root: &Path, connections: &[String]) -> io::Result<Vec<String>> {
    let workspace = Workspace::read_only(root);
    let mut found = Vec::new();
    for connection in connections {
        let sources = SemanticLayer(&workspace).sources(connection)?;
        for file in &sources.files {
            match &file.doc {
                Err(why) => found.push(format!("{}: {why}", file.path)),
                Ok(doc) => {
                    let findings = semantic_layer::validate_source(&file.name, doc, &sources);
                    found.extend(
                        findings
                            .load_errors
                            .first()
                            .map(|why| format!("{}: {why}", file.path)),
                    );
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        connection_scope::ConnectionAccess,
        database::Database,
        facts::{FactFiles, ProjectFacts},
    };

    fn check_changes(workspace: &Workspace, targets: &[String]) -> WorkspaceCheckReport {
        super::check_changes(workspace, targets, &ConnectionScope::default())
    }

    #[test]
    fn permission_to_connect_does_not_weaken_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-11-29T12:00:00Z";
        let scan = "raw-sources/wh/live-database/1";
        let properties = serde_json::json!({"extractedAt": now, "scope": {}, "tableCount": 1});
        let table = |name: &str| {
            format!(
                "name: {name}\ntable: {name}\ngrain: [id]\ncolumns: [{{name: id, type: number}}]\n"
            )
        };
        for (path, text) in [
            (format!("{scan}/connection.json"), properties.to_string()),
            (
                format!("{scan}/tables/a.json"),
                "{\"name\": \"orders\", \"columns\": []}".into(),
            ),
            ("semantic-layer/wh/orders.yaml".into(), table("orders")),
            ("semantic-layer/wh/newer.yaml".into(), table("newer")),
            ("semantic-layer/wh/gone.yaml".into(), table("gone")),
        ] {
            crate::test_projects::write(dir.path(), &path, &text);
        }
        let file = dir.path().canonicalize().unwrap().join("shop.db");
        let create = "CREATE TABLE orders (id INTEGER); CREATE TABLE newer (id INTEGER)";
        rusqlite::Connection::open(&file)
            .unwrap()
            .execute_batch(create)
            .unwrap();
        let lacking = |database: Option<Database>| {
            let access = ConnectionAccess {
                id: "wh".into(),
                driver: None,
                is_target: true,
                database,
                facts: ProjectFacts::default().of("wh", || FactFiles {
                    project: dir.path().to_owned(),
                    connection: "wh".into(),
                    ..FactFiles::default()
                }),
            };
            let scope = ConnectionScope {
                connections: vec![access],
                fixed_now: now.parse().ok(),
                max_scan_age: Duration::from_secs(60),
                ..ConnectionScope::default()
            };
            let space = Workspace::read_only(dir.path());
            let report = check_connection_sources(&space, "wh", &scope).unwrap();
            assert_eq!(report.findings.warnings, [""; 0]);
            let errors = report.findings.errors.iter();
            errors
                .map(|error| error.split(':').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(lacking(None), ["gone", "newer"]);
        assert_eq!(lacking(Some(Database::Sqlite(file))), ["gone"]);
        // Without an answer, the scan decides as if the connection was not allowed.
        let missing = dir.path().join("missing.db");
        assert_eq!(lacking(Some(Database::Sqlite(missing))), ["gone", "newer"]);
    }

    fn page(refs: &[&str]) -> Vec<u8> {
        let mut page = WikiPage {
            body: "x".into(),
            ..WikiPage::default()
        };
        page.frontmatter.summary = "s".into();
        page.frontmatter.refs = Some(refs.iter().map(|key| (*key).to_owned()).collect());
        page.render().unwrap().into_bytes()
    }

    fn sound() -> WorkspaceCheckReport {
        WorkspaceCheckReport {
            dangling_references: Some(Vec::new()),
            ..WorkspaceCheckReport::default()
        }
    }

    #[test]
    fn references_are_checked_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("wiki/global")).unwrap();
        for (key, refs) in [
            ("old", vec![]),
            ("fan", vec!["old"]),
            ("stale", vec!["never-was"]),
        ] {
            fs::write(dir.path().join(wiki::page_path(key)), page(&refs)).unwrap();
        }
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        space
            .write(&wiki::page_path("new"), &page(&["later", "old"]))
            .unwrap();
        assert_eq!(
            check_changes(&space, &[]).dangling_links,
            ["new -> later"],
            "what was stale before is not this attempt's doing"
        );
        space
            .write(&wiki::page_path("later"), &page(&["new"]))
            .unwrap();
        assert_eq!(check_changes(&space, &[]), sound());
        space.read(&wiki::page_path("old")).unwrap();
        space.remove(&wiki::page_path("old")).unwrap();
        assert_eq!(
            check_changes(&space, &[]).dangling_links,
            ["new -> old", "fan -> old"]
        );
    }

    #[test]
    fn change_is_blamed_for_references_it_breaks() {
        let dir = tempfile::tempdir().unwrap();
        let source = |measure: &str| {
            let columns = "grain: [id]\ncolumns: [{name: id, type: number}]";
            format!(
                "name: s\ntable: s\n{columns}\nmeasures: [{{name: {measure}, expr: count(*)}}]\n"
            )
        };
        let text = |body: &str, sl_refs: &str| {
            format!("---\nsummary: s\nsl_refs: [{sl_refs}]\n---\n\n{body}\n")
        };
        for (path, text) in [
            ("semantic-layer/wh/s.yaml", source("m")),
            (
                "wiki/global/fan.md",
                text("`s.m` `s.never` [[nowhere]]", "s.m, s.never"),
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let targets = ["wh".to_owned()];
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        space.read("semantic-layer/wh/s.yaml").unwrap();
        space
            .write(
                "semantic-layer/wh/s.yaml",
                (source("m") + "segments: []\n").as_bytes(),
            )
            .unwrap();
        assert_eq!(
            check_changes(&space, &targets),
            sound(),
            "what was stale before is not this attempt's doing"
        );
        space
            .write("semantic-layer/wh/s.yaml", source("n").as_bytes())
            .unwrap();
        let lost = "wiki page fan: `s.m`: source s has no measure, segment or column `m`";
        let checked = check_changes(&space, &targets);
        assert_eq!(
            (&checked.invalid[..], checked.dangling_references),
            (&[lost.to_owned()][..], Some(vec![lost.into()]))
        );
        let repaired = crate::sl_ref_repair::repair_sl_refs(&space, &targets).unwrap();
        assert_eq!(
            repaired
                .iter()
                .map(|page| &page.repair.removed_refs[..])
                .collect::<Vec<_>>(),
            [["s.m"]]
        );
        let blocking = blocking_references(dir.path(), &targets).unwrap();
        assert_eq!(
            blocking,
            [
                "fan -> nowhere",
                "wiki page fan: `s.never`: source s has no measure, segment or column `never`"
            ]
        );
    }

    #[test]
    fn sources_that_ktx_cannot_load_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("semantic-layer/wh");
        fs::create_dir_all(&folder).unwrap();
        let source = |name: &str, more: &str| {
            format!(
                "name: {name}\ntable: t\ngrain: [id]\ncolumns: [{{name: id, type: number}}]\n{more}"
            )
        };
        for (name, more) in [
            ("good", ""),
            (
                "odd",
                "measures: [{name: n, expr: count(*), note: x}]\njoins: [{to: gone, on: a = b, relationship: one_to_one}]\n",
            ),
            ("unread", "usage: {x: 1}\n"),
            ("typed", "tags: {dbt: finance}\n"),
            ("unknown", "tag: x\n"),
            ("null", "sql:\n"),
            ("yaml", "joins: [\n"),
        ] {
            fs::write(folder.join(format!("{name}.yaml")), source(name, more)).unwrap();
        }
        let found = unloadable_sources(dir.path(), &["wh".to_owned(), "other".to_owned()]).unwrap();
        let names: Vec<&str> = found
            .iter()
            .filter_map(|text| text.split(['/', '.']).nth(2))
            .collect();
        assert_eq!(names, ["null", "typed", "unknown", "yaml"], "{found:?}");
        assert_eq!(
            found[1],
            "semantic-layer/wh/typed.yaml: typed: `tags.dbt` must be a list, not text"
        );
    }

    #[test]
    fn invalid_pages_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        space
            .write(&wiki::page_path("broken"), b"---\nsummary: x\n")
            .unwrap();
        space.write(&wiki::page_path("bare"), b"").unwrap();
        insta::assert_snapshot!(check_changes(&space, &[]).invalid.join("\n"));
    }
}
