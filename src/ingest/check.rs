//! What must hold of what an attempt leaves: pages can be read and their references lead somewhere, sources are whole
//! and their joins lead to sources.
//!
//! Checked at the end, not at each write, as a page may refer to one that is written later. It must not judge attempts.

use std::{collections::BTreeSet, io};

use super::{
    layer::{self, Findings, Layer},
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

/// Checks what the attempt touched, and what refers to what it removed.
pub(crate) fn check(workspace: &Workspace) -> Checked {
    let mut checked = Checked::default();
    semantic_layer(workspace, &mut checked);
    let wiki = Wiki(workspace);
    let keys: BTreeSet<String> = match wiki.keys() {
        Ok(keys) => keys.into_iter().collect(),
        Err(error) => {
            checked.invalid.push(format!("the wiki cannot be listed: {error}"));
            return checked;
        }
    };
    let changes = workspace.changes();
    let mut removed = BTreeSet::new();
    for (path, change) in &changes {
        match (wiki::key_of(path), change) {
            (Some(key), Change { now: None, .. }) => {
                removed.insert(key);
            }
            (Some(key), _) => touched(wiki, key, &keys, &mut checked),
            (None, _) => {}
        }
    }
    for key in keys.iter().filter(|key| !changes.contains_key(&wiki::path_of(key))) {
        if !removed.is_empty()
            && let Ok(Some(bytes)) = workspace.peek(&wiki::path_of(key))
            && let Ok(page) = Page::parse(&bytes)
        {
            let lost = page.front.refs.iter().filter(|target| removed.contains(target.as_str()));
            checked.dangling.extend(lost.map(|target| format!("{key} -> {target}")));
        }
    }
    checked
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

fn touched(wiki: Wiki<'_>, key: &str, keys: &BTreeSet<String>, checked: &mut Checked) {
    let page = match wiki.text(key) {
        Ok(Some(bytes)) => Page::parse(&bytes).map_err(|error| error.to_string()),
        Ok(None) => Err("it is gone".into()),
        Err(error) => Err(error.to_string()),
    };
    match page {
        Err(why) => checked.invalid.push(format!("wiki page {key}: {why}")),
        Ok(page) => {
            let missing = page.front.refs.iter().filter(|target| !keys.contains(*target));
            checked.dangling.extend(missing.map(|target| format!("{key} -> {}", target.escape_debug())));
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
        page.front.refs = refs.iter().map(|key| (*key).to_owned()).collect();
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
        assert_eq!(check(&space).dangling, ["new -> later"], "what was stale before is not this attempt's doing");
        space.write(&wiki::path_of("later"), &page(&["new"])).unwrap();
        assert_eq!(check(&space), Checked::default());
        space.read(&wiki::path_of("old")).unwrap();
        space.remove(&wiki::path_of("old")).unwrap();
        assert_eq!(check(&space).dangling, ["new -> old", "fan -> old"]);
    }

    #[test]
    fn pages_that_do_not_hold_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let space = Workspace::create(dir.path(), &dir.path().join("work")).unwrap();
        space.write(&wiki::path_of("broken"), b"---\nsummary: x\n").unwrap();
        space.write(&wiki::path_of("bare"), b"").unwrap();
        insta::assert_snapshot!(check(&space).invalid.join("\n"));
    }
}
