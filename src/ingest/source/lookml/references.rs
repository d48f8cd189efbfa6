//! What the files of a LookML project define and refer to: views, explores, and the files that they include.
//!
//! Must not parse LookML; `super::scan` does.

use std::collections::BTreeSet;

use super::{
    IncludePatterns, LookmlFileKind, LookmlProject,
    scan::{self, EXPLORE},
};
use crate::{
    source::{
        SourceTree, UnitChunk,
        references::{FileReferences, ReferenceReader, add_name, file_name},
    },
    yaml::{YamlNode, YamlValue, parse_source_file},
};

pub(super) const DASHBOARD: &str = "dashboard";

/// The names that a file defines; `None` if they are not known.
pub(super) fn defined_names(path: &str, text: &str) -> Option<BTreeSet<String>> {
    match LookmlFileKind::from_path(path) {
        LookmlFileKind::Dashboard => dashboard_names(text).map(|(defines, _)| defines),
        _ => Some(scan::scan(text).defines),
    }
}

/// Reads the references of the files in a tree.
pub(super) struct LookmlReferences<'a> {
    tree: &'a SourceTree,
    project: LookmlProject<'a>,
    /// Files that changed and no longer exist.
    deleted: &'a [String],
    defined: Option<BTreeSet<String>>,
}

impl<'a> LookmlReferences<'a> {
    pub(super) fn new(tree: &'a SourceTree, deleted: &'a [String]) -> Self {
        Self {
            tree,
            project: LookmlProject::read(tree),
            deleted,
            defined: None,
        }
    }

    fn defined(&mut self) -> &BTreeSet<String> {
        self.defined.get_or_insert_with(|| {
            let texts = self
                .tree
                .files
                .iter()
                .filter_map(|file| Some((&file.path, self.tree.read_text(&file.path).ok()?)));
            texts
                .filter_map(|(path, text)| defined_names(path, &text))
                .flatten()
                .collect()
        })
    }
}

impl ReferenceReader for LookmlReferences<'_> {
    fn references(&mut self, _: &UnitChunk, path: &str) -> FileReferences {
        if LookmlFileKind::from_path(path) == LookmlFileKind::Dashboard {
            let names = self
                .tree
                .read_text(path)
                .ok()
                .and_then(|text| dashboard_names(&text));
            return names.map_or_else(FileReferences::unknown, |(_, refers_to)| refers_to);
        }
        if LookmlFileKind::from_path(path) == LookmlFileKind::Manifest {
            return FileReferences::default();
        }
        let Some(facts) = self.project.facts.get(path) else {
            return FileReferences::unknown();
        };
        let mut found = facts.refers_to.clone();
        let included = self.project.included_files.get(path).into_iter().flatten();
        found
            .open_names
            .extend(included.map(|path| file_name(path)));
        let deleted: Vec<&str> = self.deleted.iter().map(String::as_str).collect();
        let includes = IncludePatterns::new(path, &facts.includes, &self.project.folders);
        let (included, _) = includes.resolve(&deleted);
        found.open_names.extend(included.into_iter().map(file_name));
        found
    }

    fn refers_to_undefined(&mut self, references: &FileReferences) -> bool {
        let defined = self.defined();
        references.names.iter().any(|name| !defined.contains(name))
    }
}

/// The dashboards of a file, and the explores and dashboards that it refers to. Dashboards are YAML.
fn dashboard_names(text: &str) -> Option<(BTreeSet<String>, FileReferences)> {
    let root = parse_source_file(text).ok()?;
    let (mut defines, mut refers_to) = (BTreeSet::new(), FileReferences::default());
    let mut open: Vec<&YamlNode> = vec![&root];
    while let Some(node) = open.pop() {
        match &node.value {
            YamlValue::List(nodes) => open.extend(nodes),
            YamlValue::Map(entries) => {
                for entry in entries {
                    match (entry.key.as_str(), entry.value.as_text()) {
                        (DASHBOARD, Some(name)) => drop(add_name(&mut defines, DASHBOARD, name)),
                        (EXPLORE, Some(name)) => refers_to.add(EXPLORE, name),
                        ("extends", Some(name)) => refers_to.add(DASHBOARD, name),
                        _ => {}
                    }
                    open.push(&entry.value);
                }
            }
            _ => {}
        }
    }
    Some((defines, refers_to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tree_of;

    fn all(mut found: FileReferences) -> String {
        found.names.append(&mut found.open_names);
        names(found.names)
    }

    fn names(set: impl IntoIterator<Item = String>) -> String {
        set.into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn views_and_explores_that_a_file_uses_are_names() {
        let text = "explore: orders {\n  from: base_orders\n  extends: [root]\n  join: users {}\n  \
                    join: buyers { from: customers  sql_on: ${buyers.id} = ${orders.id} ;; }\n}\n\
                    explore: plain {}\nexplore: bare\nexplore: +late { view_name: late_view }\n\
                    view: +refined { extends: [parent] dimension: x { sql: ${other.y} + ${TABLE}.z ;; } }\n\
                    view: ndt { derived_table: { explore_source: source { column: a {} } } }\n";
        let facts = scan::scan(text);
        assert_eq!(
            names(facts.defines),
            "explore:bare explore:late explore:orders explore:plain view:ndt view:refined"
        );
        assert_eq!(
            names(facts.refers_to.names),
            "explore:late explore:root explore:source view:bare view:base_orders view:buyers view:customers view:late_view \
             view:orders view:other view:parent view:plain view:refined view:users"
        );
        let open = scan::scan("explore: orders { join: users {");
        assert_eq!(names(open.refers_to.names), "view:orders view:users");
    }

    #[test]
    fn includes_are_references_to_files() {
        let (_dir, tree) = tree_of(&[
            (
                "m/a.model.lkml",
                "include: \"/views/*.view\"\ninclude: \"gone.view.lkml\"\nexplore: x {}",
            ),
            ("views/x.view.lkml", "view: x {}"),
            (
                "d.dashboard.lookml",
                "- dashboard: d\n  extends: base\n  elements:\n  - {name: e, model: a, explore: x}\n",
            ),
            ("broken.dashboard.lookml", "- a: [b\nc: 1"),
        ]);
        let gone = [
            "m/gone.view.lkml".to_owned(),
            "m/other.view.lkml".to_owned(),
        ];
        let mut reader = LookmlReferences::new(&tree, &gone);
        let mut read = |path: &str| reader.references(&UnitChunk::default(), path);
        assert_eq!(
            all(read("m/a.model.lkml")),
            "file:m/gone.view.lkml file:views/x.view.lkml view:x"
        );
        assert_eq!(
            names(read("d.dashboard.lookml").names),
            "dashboard:base explore:x"
        );
        assert!(
            read("broken.dashboard.lookml").is_unknown && !read("views/x.view.lkml").is_unknown
        );
        assert_eq!(
            defined_names("broken.dashboard.lookml", "- a: [b\nc: 1"),
            None
        );
    }
}
