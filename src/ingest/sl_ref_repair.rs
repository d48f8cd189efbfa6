//! Repairs `sl_refs` that no longer resolve, by removing them from their pages, as KTX does before a commit.
//!
//! In unchanged pages, entries that were already broken are kept. This module must not write.

use std::io;

use super::{
    references::{CatalogVersion, ReferenceCatalog},
    verbatim,
    wiki::{self, WikiPage},
    workspace::Workspace,
};
use ingestdeck_core::tape::note::SlRefRepair;

/// Directory of personal pages, with one subdirectory for each user.
pub(crate) const PERSONAL_PAGES_DIR: &str = "wiki/user";

/// A page without its broken entries.
pub(crate) struct RepairedPage {
    /// Relative to the project.
    pub(crate) path: String,
    /// The whole text of the repaired page.
    pub(crate) text: String,
    /// Description of the repair.
    pub(crate) repair: SlRefRepair,
}

/// Repairs the pages whose `sl_refs` no longer resolve after the changes of `workspace`. In changed pages, removes all
/// broken entries; in others, those that resolved before. Also removes entries that KTX's repair would keep but that
/// KTX's gate refuses since the changes. Skips documents that are kept verbatim, and pages that cannot be read or rendered.
pub(crate) fn repair_sl_refs(
    workspace: &Workspace,
    connections: &[String],
) -> io::Result<Vec<RepairedPage>> {
    let changes = workspace.changes();
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let now = ReferenceCatalog::new(workspace, connections, CatalogVersion::Current)?;
    let before = ReferenceCatalog::new(workspace, connections, CatalogVersion::Original)?;
    let shared = now
        .page_keys()
        .iter()
        .map(|key| (None, key.clone(), wiki::page_path(key)));
    let mut repaired = Vec::new();
    for (scope_id, page_key, path) in shared.chain(personal_pages(workspace)) {
        let bytes = workspace.peek(&path).ok().flatten();
        let Some(mut page) = bytes.and_then(|bytes| WikiPage::parse(&bytes).ok()) else {
            continue;
        };
        if verbatim::mark(&page).is_some() {
            continue;
        }
        let is_changed = changes.contains_key(&path);
        let is_lost = |entry: &String| {
            let is_new_refusal =
                now.is_rejected_by_gate(entry) && !before.is_rejected_by_gate(entry);
            is_new_refusal
                || !now.is_kept_by_repair(entry) && (is_changed || before.is_kept_by_repair(entry))
        };
        let mut entries: Vec<String> = Vec::new();
        for entry in page.frontmatter.sl_refs.into_iter().flatten() {
            if !entry.trim().is_empty() && !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        let (removed_refs, kept): (Vec<String>, Vec<String>) =
            entries.into_iter().partition(is_lost);
        page.frontmatter.sl_refs = Some(kept);
        if let (false, Ok(text)) = (removed_refs.is_empty(), page.render()) {
            repaired.push(RepairedPage {
                path,
                text,
                repair: SlRefRepair {
                    page_key,
                    scope_id,
                    removed_refs,
                },
            });
        }
    }
    Ok(repaired)
}

/// Personal pages: user, key and path.
fn personal_pages(workspace: &Workspace) -> impl Iterator<Item = (Option<String>, String, String)> {
    let people = workspace.names(PERSONAL_PAGES_DIR, "").unwrap_or_default();
    people.into_iter().flat_map(|person| {
        let folder = format!("{PERSONAL_PAGES_DIR}/{person}");
        let names = workspace.names(&folder, ".md").unwrap_or_default();
        let keys = names
            .into_iter()
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()));
        let page = move |key: String| {
            (
                Some(person.clone()),
                key.clone(),
                format!("{folder}/{key}.md"),
            )
        };
        keys.filter(|key| wiki::is_page_key(key)).map(page)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn repair_removes_only_broken_sl_refs() {
        let dir = tempfile::tempdir().unwrap();
        let page =
            "---\nsummary: s\nsl_refs: [s, t, never, s, s.m, s.id]\nowner: maya\n---\n\ntext\n";
        for (path, text) in [
            (
                "semantic-layer/wh/s.yaml",
                "name: s\ncolumns: [{name: id}]\nmeasures: [{name: m}]\n",
            ),
            ("semantic-layer/wh/t.yaml", "name: t\n"),
            ("wiki/global/a.md", page),
            ("wiki/global/b.md", page),
            ("wiki/global/broken.md", "---\nsl_refs: [s]\n"),
            ("wiki/user/maya/own.md", page),
            ("wiki/user/maya/not a key.md", page),
            ("wiki/user/odd.md", page),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        assert!(
            repair_sl_refs(&space, &["wh".to_owned()])
                .unwrap()
                .is_empty(),
            "nothing was changed"
        );
        space.read("semantic-layer/wh/s.yaml").unwrap();
        space.remove("semantic-layer/wh/s.yaml").unwrap();
        space.read("wiki/global/b.md").unwrap();
        space
            .write("wiki/global/b.md", page.replace("text", "new").as_bytes())
            .unwrap();
        let repaired = repair_sl_refs(&space, &["wh".to_owned()]).unwrap();
        let repairs: Vec<String> = repaired
            .iter()
            .map(|page| page.repair.to_string())
            .collect();
        insta::assert_snapshot!(repairs.join("\n"), @r"
        page a no longer has sl_refs to s, s.m
        page b no longer has sl_refs to s, never, s.m, s.id
        page own no longer has sl_refs to s, s.m (a page of user maya)
        ");
        assert_eq!(repaired[2].path, "wiki/user/maya/own.md");
        let kept = WikiPage::parse(repaired[0].text.as_bytes()).unwrap();
        assert_eq!(kept.frontmatter.sl_refs.unwrap(), ["t", "never", "s.id"]);
        assert_eq!(
            (
                kept.body.as_str(),
                kept.frontmatter.other_fields["owner"].as_str()
            ),
            ("text", Some("maya"))
        );
    }

    /// KTX's repair looks for an entry in every connection; its gate checks only the first source with that name.
    #[test]
    fn repair_removes_sl_refs_the_gate_rejects() {
        let dir = tempfile::tempdir().unwrap();
        let page = "---\nsummary: s\nsl_refs: [t, t.n]\n---\n\ntext\n";
        for (path, text) in [
            ("semantic-layer/orbit/t.yaml", "name: t\n"),
            ("wiki/global/a.md", page),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let space = Workspace::open_persistent(dir.path(), &dir.path().join("work")).unwrap();
        space
            .write(
                "semantic-layer/wh/t.yaml",
                b"name: t\nmeasures: [{name: n}]\n",
            )
            .unwrap();
        let repaired = repair_sl_refs(&space, &["orbit".to_owned(), "wh".to_owned()]).unwrap();
        let repairs: Vec<String> = repaired
            .iter()
            .map(|page| page.repair.to_string())
            .collect();
        assert_eq!(repairs, ["page a no longer has sl_refs to t.n"]);
    }
}
