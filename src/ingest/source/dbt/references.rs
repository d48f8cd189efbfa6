//! What the YAML files of a dbt project and the SQL of their models refer to.
//!
//! SQL is read for its references only, never given to an agent. It is searched for when the first reference is asked
//! for, so a plan without changes reads none.

use std::collections::{BTreeSet, HashMap};

use super::project;
use crate::source::{
    SourceTree, UnitChunk,
    references::{FileReferences, ReferenceReader, calls, dbt_yaml},
    tree::has_extension,
};

/// The names that a file of a dbt project defines; `None` if they are not known.
pub(super) fn defined_names(path: &str, text: &str) -> Option<BTreeSet<String>> {
    if project::is_markdown(path) {
        let names = project::doc_blocks(text);
        return Some(names.map(|name| format!("doc:{name}")).collect());
    }
    dbt_yaml::read(text).map(|names| names.defines)
}

/// The names of the doc blocks that `text` uses, each with its kind.
pub(super) fn doc_calls(text: &str) -> BTreeSet<String> {
    let mut found = FileReferences::default();
    calls::add_jinja_calls(text, &mut found);
    found.open_names
}

/// Reads the references of the files in `tree`.
#[derive(Debug)]
pub(in crate::source) struct DbtReferences<'a> {
    tree: &'a SourceTree,
    reads_sql: bool,
    sql: Option<ModelFiles>,
    defined: Option<BTreeSet<String>>,
}

/// The files with the SQL or Python code of models, by name without the extension.
#[derive(Debug, Default)]
struct ModelFiles {
    paths: HashMap<String, Vec<String>>,
    /// Names of models whose file cannot be read.
    unreadable: BTreeSet<String>,
    /// True if any folder or link was not entered.
    is_partial: bool,
    tree: SourceTree,
}

impl<'a> DbtReferences<'a> {
    pub(in crate::source) fn new(tree: &'a SourceTree) -> Self {
        Self {
            tree,
            reads_sql: true,
            sql: None,
            defined: None,
        }
    }

    /// For a source whose units describe no models.
    pub(in crate::source) fn without_sql(tree: &'a SourceTree) -> Self {
        Self {
            reads_sql: false,
            ..Self::new(tree)
        }
    }

    fn defined(&mut self) -> &BTreeSet<String> {
        if self.defined.is_none() {
            let files = self.tree.files.iter();
            let texts = files.filter_map(|file| {
                let text = self.tree.read_text(&file.path).ok()?;
                Some((&file.path, text))
            });
            let mut defined: BTreeSet<String> = texts
                .filter_map(|(path, text)| defined_names(path, &text))
                .flatten()
                .collect();
            let sql = self.sql.get_or_insert_with(|| ModelFiles::find(self.tree));
            defined.extend(
                sql.paths
                    .keys()
                    .chain(&sql.unreadable)
                    .map(|name| format!("model:{name}")),
            );
            self.defined = Some(defined);
        }
        self.defined.get_or_insert_default()
    }
}

impl ReferenceReader for DbtReferences<'_> {
    fn references(&mut self, _: &UnitChunk, path: &str) -> FileReferences {
        if project::is_markdown(path) {
            return FileReferences::default();
        }
        let Some(names) = self
            .tree
            .read_text(path)
            .ok()
            .and_then(|text| dbt_yaml::read(&text))
        else {
            return FileReferences::unknown();
        };
        let mut found = names.refers_to;
        if self.reads_sql && !names.models.is_empty() {
            let sql = self.sql.get_or_insert_with(|| ModelFiles::find(self.tree));
            for model in &names.models {
                found.extend(sql.references(&model.file_stems));
            }
        }
        found
    }

    fn refers_to_undefined(&mut self, references: &FileReferences) -> bool {
        let defined = self.defined();
        references.names.iter().any(|name| !defined.contains(name))
    }
}

impl ModelFiles {
    fn find(tree: &SourceTree) -> Self {
        let is_code = |path: &str| has_extension(path, &["sql", "py"]);
        let Ok(found) = project::walk(&tree.root, &is_code) else {
            return Self {
                is_partial: true,
                ..Self::default()
            };
        };
        let mut files = Self::default();
        for file in &found.files {
            files
                .paths
                .entry(stem(&file.path).to_owned())
                .or_default()
                .push(file.path.clone());
        }
        for path in &found.unreadable_paths {
            if is_code(path) {
                files.unreadable.insert(stem(path).to_owned());
            } else {
                files.is_partial = true;
            }
        }
        Self {
            tree: found,
            ..files
        }
    }

    fn references(&self, stems: &[String]) -> FileReferences {
        let mut found = FileReferences::default();
        let paths: Vec<&String> = stems
            .iter()
            .filter_map(|stem| self.paths.get(stem))
            .flatten()
            .collect();
        // The file may be where nothing is read.
        found.is_unknown = stems.iter().any(|stem| self.unreadable.contains(stem))
            || paths.is_empty() && self.is_partial;
        for path in paths {
            match self.tree.read_text(path) {
                Ok(text) if has_extension(path, &["py"]) => {
                    calls::add_python_calls(&text, &mut found)
                }
                Ok(text) => calls::add_jinja_calls(&text, &mut found),
                Err(_) => found.is_unknown = true,
            }
        }
        found
    }
}

/// The name of the file without its last extension.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::source::{SourceAdapter as _, dbt::DbtAdapter, tree_of};

    fn references(files: &[(&str, &str)], path: &str) -> (String, bool) {
        let (dir, _) = tree_of(files);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let found = DbtReferences::new(&tree).references(&UnitChunk::default(), path);
        (
            found.names.into_iter().collect::<Vec<_>>().join(" "),
            found.is_unknown,
        )
    }

    #[test]
    fn sql_of_described_models_is_read_wherever_it_is() {
        let yaml = "models:\n  - name: m1\n  - {name: m2, versions: [{v: 3}]}\n";
        let files = [
            ("dbt_project.yml", "name: x"),
            ("models/schema.yml", yaml),
            ("models/deep/er/m1.sql", "select * from {{ ref('a') }}"),
            (
                "elsewhere/m2_v3.sql",
                "select * from {{ source('s', 't') }}",
            ),
            ("models/m10.sql", "select * from {{ ref('no') }}"),
            ("target/compiled/m1.sql", "select * from {{ ref('no') }}"),
            ("models/.hidden/m1.sql", "select * from {{ ref('no') }}"),
        ];
        assert_eq!(
            references(&files, "models/schema.yml"),
            ("model:a model:m1 model:m2 source:s.t".into(), false)
        );
        let broken = [("models/x.yml", "models: [a\nb")];
        assert_eq!(references(&broken, "models/x.yml"), (String::new(), true));
        assert_eq!(
            references(&broken, "models/gone.yml"),
            (String::new(), true)
        );
    }

    #[test]
    fn sql_that_cannot_be_read_may_refer_to_anything() {
        let (dir, _) = tree_of(&[
            ("models/x.yml", "models: [{name: m1}]"),
            ("other.yml", "models: [{name: m2}]"),
        ]);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let is_unknown = |path: &str| {
            DbtReferences::new(&tree)
                .references(&UnitChunk::default(), path)
                .is_unknown
        };
        assert!(!is_unknown("models/x.yml"), "a model without SQL");
        symlink("/etc/hosts", dir.path().join("models/m1.sql")).unwrap();
        assert!(is_unknown("models/x.yml") && !is_unknown("other.yml"));
        symlink("/etc", dir.path().join("linked")).unwrap();
        assert!(is_unknown("other.yml"), "its SQL may be behind the link");
        std::fs::write(dir.path().join("m2.sql"), [0xff, 0xfe]).unwrap();
        assert!(is_unknown("other.yml"));
        std::fs::write(dir.path().join("m2.sql"), "select 1").unwrap();
        assert!(!is_unknown("other.yml"));
    }

    #[test]
    fn names_that_no_file_defines_are_undefined() {
        let (dir, _) = tree_of(&[
            ("models/x.yml", "models: [{name: m1}]"),
            ("models/m2.sql", ""),
        ]);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let mut reader = DbtReferences::new(&tree);
        let mut is_undefined = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            reader.refers_to_undefined(&FileReferences {
                names,
                ..FileReferences::default()
            })
        };
        assert!(!is_undefined(&["model:m1", "model:m2"]));
        assert!(is_undefined(&["model:m1", "model:m10"]) && is_undefined(&["source:a.b"]));
    }
}
