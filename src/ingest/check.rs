//! What must hold of what an attempt leaves: pages can be read and their references lead somewhere, sources are whole
//! and their joins lead to sources.
//!
//! Checked at the end, not at each write, as a page may refer to one that is written later. It must not judge attempts.

use std::{collections::BTreeSet, io, path::Path};

use super::{
    layer::{self, Findings, Layer},
    references::{Astray, Catalog, When},
    wiki::{self, Page, Wiki},
    workspace::{Change, Workspace},
};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// References without a page, as `page -> missing`.
    pub dangling: Vec<String>,
    /// Pages and sources that do not hold, one sentence each.
    pub invalid: Vec<String>,
}

/// What was found in the semantic layer of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerReport {
    /// How many sources there are.
    pub(crate) sources: usize,
    /// What was found.
    pub(crate) findings: Findings,
}

/// Checks the sources of `connection`: those that the attempt touched and the joins of others to them; all of them if
/// it touched none. What was broken before is not this attempt's doing.
pub(crate) fn layer(workspace: &Workspace, connection: &str) -> io::Result<LayerReport> {
    let sources = Layer(workspace).sources(connection)?;
    let changes = workspace.changes();
    let is_own = |path: &&String| layer::place_of(path).is_some_and(|(of, _)| of == connection);
    let changed: BTreeSet<&str> = changes.keys().filter(is_own).map(String::as_str).collect();
    let mut findings = Findings::default();
    let is_meant = |path: &str| changed.is_empty() || changed.contains(path);
    let broken = sources.broken.iter().filter(|(path, _)| is_meant(path));
    findings.errors.extend(broken.map(|(path, why)| format!("{path}: {why}")));
    let mut touched: BTreeSet<String> = BTreeSet::new();
    for path in &changed {
        let versions = workspace.versions(path)?;
        touched.extend(versions.iter().map(|bytes| layer::name_in(&String::from_utf8_lossy(bytes), path)));
    }
    for file in &sources.files {
        let Ok(doc) = &file.doc else { continue };
        if is_meant(&file.path) {
            let found = layer::judge(&file.name, doc, &sources);
            findings.errors.extend(found.errors);
            findings.warnings.extend(found.warnings);
        } else {
            let lost = layer::dangling(&file.name, doc, &sources);
            findings.errors.extend(lost.into_iter().filter(|(to, _)| touched.contains(to)).map(|(_, text)| text));
        }
    }
    Ok(LayerReport { sources: sources.all.len(), findings })
}

/// Checks what the attempt touched, and what refers to what it removed or changed. Pages may speak of the sources of
/// `targets` without naming the connection.
pub(crate) fn check(workspace: &Workspace, targets: &[String]) -> Checked {
    let mut checked = Checked::default();
    semantic_layer(workspace, &mut checked);
    for (path, change) in &workspace.changes() {
        if let (Some(key), Some(_)) = (wiki::key_of(path), change.now) {
            touched(Wiki(workspace), key, &mut checked);
        }
    }
    match references(workspace, targets) {
        Ok(found) => {
            checked.dangling = found.dangling;
            checked.invalid.extend(found.invalid);
        }
        Err(error) => checked.invalid.push(format!("the wiki cannot be listed: {error}")),
    }
    checked
}

/// Checks the references of the pages that the attempt touched, and of the others those that led somewhere before it.
/// What `sl_refs` of the others lose is repaired when everything is saved.
pub(crate) fn references(workspace: &Workspace, targets: &[String]) -> io::Result<Checked> {
    let mut checked = Checked::default();
    let now = Catalog::new(workspace, targets, When::Now)?;
    let changes = workspace.changes();
    let is_written = |key: &&String| changes.contains_key(&wiki::path_of(key));
    let (own, others): (Vec<&String>, Vec<&String>) = now.keys().iter().partition(is_written);
    for key in own {
        if let Some(page) = page_of(workspace, key) {
            checked.astray(key, now.astray(key, &page));
        }
    }
    let is_gone = |path: &String, change: &Change| wiki::key_of(path).is_some() && change.now.is_none();
    if !changes.iter().any(|(path, change)| is_gone(path, change) || layer::place_of(path).is_some()) {
        return Ok(checked);
    }
    let before = Catalog::new(workspace, targets, When::Before)?;
    for key in others {
        let Some(page) = page_of(workspace, key) else { continue };
        let mut lost = now.astray(key, &page);
        let is_new_refusal =
            |astray: &Astray| matches!(astray, Astray::Entry(entry, _) if now.refuses(entry) && !before.refuses(entry));
        lost.retain(|astray| !is_mended(&now, astray) && !is_new_refusal(astray));
        if !lost.is_empty() {
            let stale = before.astray(key, &page);
            lost.retain(|astray| !stale.contains(astray));
        }
        checked.astray(key, lost);
    }
    Ok(checked)
}

/// The pages of the project in `root`, wherever they come from, that KTX refuses to ingest beside, and why: one text for
/// each reference that leads nowhere. It looks at all pages as soon as a source was changed or a page removed, but mends
/// their `sl_refs` itself.
pub(crate) fn standing(root: &Path, connections: &[String]) -> io::Result<Vec<String>> {
    let workspace = Workspace::read_only(root);
    let catalog = Catalog::new(&workspace, connections, When::Now)?;
    let mut checked = Checked::default();
    for key in catalog.keys() {
        let Some(page) = page_of(&workspace, key) else { continue };
        let mut astray = catalog.astray(key, &page);
        astray.retain(|astray| !is_mended(&catalog, astray));
        checked.astray(key, astray);
    }
    Ok(checked.dangling.into_iter().chain(checked.invalid).collect())
}

/// Whether the repair of `sl_refs` takes it out.
fn is_mended(catalog: &Catalog<'_>, astray: &Astray) -> bool {
    matches!(astray, Astray::Entry(entry, _) if !catalog.keeps(entry))
}

/// The page `key`, unless it cannot be read: that is another fault than a reference that leads nowhere.
fn page_of(workspace: &Workspace, key: &str) -> Option<Page> {
    Page::parse(&workspace.peek(&wiki::path_of(key)).ok()??).ok()
}

impl Checked {
    /// References of the page `key` lead nowhere.
    fn astray(&mut self, key: &str, astray: Vec<Astray>) {
        for astray in astray {
            match astray {
                Astray::Page(missing) => self.dangling.push(format!("{key} -> {missing}")),
                Astray::Entry(_, why) | Astray::Mention(why) => self.invalid.push(format!("wiki page {key}: {why}")),
            }
        }
    }
}

fn semantic_layer(workspace: &Workspace, checked: &mut Checked) {
    let changes = workspace.changes();
    let places = changes.keys().filter_map(|path| layer::place_of(path));
    let connections: BTreeSet<&str> = places.map(|(connection, _)| connection).collect();
    for connection in connections {
        let found = match layer(workspace, connection) {
            Ok(report) => report.findings.errors,
            Err(error) => vec![format!("the semantic layer cannot be read: {error}")],
        };
        checked.invalid.extend(found.into_iter().map(|text| format!("{connection}:{text}")));
    }
}

fn touched(wiki: Wiki<'_>, key: &str, checked: &mut Checked) {
    let page = match wiki.text(key) {
        Ok(Some(bytes)) => Page::parse(&bytes).map_err(|error| error.to_string()),
        Ok(None) => Err("it is gone".into()),
        Err(error) => Err(error.to_string()),
    };
    match page {
        Err(why) => checked.invalid.push(format!("wiki page {key}: {why}")),
        Ok(page) => {
            checked.invalid.extend(faults(key, &page).into_iter().map(|why| format!("wiki page {key}: {why}")));
        }
    }
}

fn faults(key: &str, page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    if !wiki::is_key(key) {
        faults.push("its key is not flat".to_owned());
    }
    if page.front.summary.trim().is_empty() {
        faults.push("it has no summary".into());
    }
    if page.front.summary.chars().count() > wiki::SUMMARY {
        faults.push(format!("its summary is longer than {} characters", wiki::SUMMARY));
    }
    if page.body.is_empty() {
        faults.push("it has no content".into());
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn page(refs: &[&str]) -> Vec<u8> {
        let mut page = Page { body: "x".into(), ..Page::default() };
        page.front.summary = "s".into();
        page.front.refs = Some(refs.iter().map(|key| (*key).to_owned()).collect());
        page.render().unwrap().into_bytes()
    }

    #[test]
    fn references_are_judged_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("wiki/global")).unwrap();
        for (key, refs) in [("old", vec![]), ("fan", vec!["old"]), ("stale", vec!["never-was"])] {
            fs::write(dir.path().join(wiki::path_of(key)), page(&refs)).unwrap();
        }
        let space = Workspace::create(dir.path(), &dir.path().join("work")).unwrap();
        space.write(&wiki::path_of("new"), &page(&["later", "old"])).unwrap();
        assert_eq!(check(&space, &[]).dangling, ["new -> later"], "what was stale before is not this attempt's doing");
        space.write(&wiki::path_of("later"), &page(&["new"])).unwrap();
        assert_eq!(check(&space, &[]), Checked::default());
        space.read(&wiki::path_of("old")).unwrap();
        space.remove(&wiki::path_of("old")).unwrap();
        assert_eq!(check(&space, &[]).dangling, ["new -> old", "fan -> old"]);
    }

    #[test]
    fn what_a_change_breaks_elsewhere_is_its_own_fault() {
        let dir = tempfile::tempdir().unwrap();
        let source = |measure: &str| {
            let columns = "grain: [id]\ncolumns: [{name: id, type: number}]";
            format!("name: s\ntable: s\n{columns}\nmeasures: [{{name: {measure}, expr: count(*)}}]\n")
        };
        let text = |body: &str, sl_refs: &str| format!("---\nsummary: s\nsl_refs: [{sl_refs}]\n---\n\n{body}\n");
        for (path, text) in [
            ("semantic-layer/wh/s.yaml", source("m")),
            ("wiki/global/fan.md", text("`s.m` `s.never` [[nowhere]]", "s.m, s.never")),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let targets = ["wh".to_owned()];
        let space = Workspace::create(dir.path(), &dir.path().join("work")).unwrap();
        space.read("semantic-layer/wh/s.yaml").unwrap();
        space.write("semantic-layer/wh/s.yaml", (source("m") + "segments: []\n").as_bytes()).unwrap();
        assert_eq!(check(&space, &targets), Checked::default(), "what was stale before is not this attempt's doing");
        space.write("semantic-layer/wh/s.yaml", source("n").as_bytes()).unwrap();
        let lost = "wiki page fan: `s.m`: source s has no measure, segment or column `m`";
        assert_eq!(check(&space, &targets).invalid, [lost]);
        let repaired = crate::ingest::repair::sl_refs(&space, &targets).unwrap();
        assert_eq!(repaired.iter().map(|page| &page.repair.removed_refs[..]).collect::<Vec<_>>(), [["s.m"]]);
        let standing = standing(dir.path(), &targets).unwrap();
        assert_eq!(
            standing,
            ["fan -> nowhere", "wiki page fan: `s.never`: source s has no measure, segment or column `never`"]
        );
    }

    #[test]
    fn pages_that_do_not_hold_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let space = Workspace::create(dir.path(), &dir.path().join("work")).unwrap();
        space.write(&wiki::path_of("broken"), b"---\nsummary: x\n").unwrap();
        space.write(&wiki::path_of("bare"), b"").unwrap();
        insta::assert_snapshot!(check(&space, &[]).invalid.join("\n"));
    }
}
