//! What the YAML files of a dbt project and the code of their models refer to, and which code belongs to a YAML file.
//!
//! The code is searched for once for the units, and again when the first reference is asked for.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{DbtProjects, project};
use crate::source::{
    RawFile, SourceTree, UnitChunk,
    docs::FileSelection,
    fingerprint,
    proposal::split,
    references::{FileReferences, ReferenceReader, calls, dbt_yaml},
    tree::has_extension,
};
use crate::{untrusted_text::visible_path, yaml};
use ingestdeck_core::{diagnostic::Problem, text::list_some};

/// The names that a file of a dbt project defines; `None` if they are not known.
pub(super) fn defined_names(path: &str, text: &str) -> Option<BTreeSet<String>> {
    if is_code(path) {
        // A change of it is a reason for the units that may read it, not for those that refer to the model.
        return Some(BTreeSet::new());
    }
    if project::is_markdown(path) {
        let names = project::doc_blocks(text);
        return Some(names.map(|name| format!("doc:{name}")).collect());
    }
    dbt_yaml::read(text).ok().map(|names| names.defines)
}

/// What `text` refers to in Jinja. Among the open names are the doc blocks that it uses.
pub(super) fn jinja_references(text: &str) -> FileReferences {
    let mut found = FileReferences::default();
    calls::add_jinja_calls(text, &mut found);
    found
}

/// Most files with code that a unit may read.
const MAX_CODE_FILES: usize = 300;
/// Most damaged YAML files with a warning each.
const MAX_DAMAGED_FILES: usize = 20;

/// The SQL and Python files that units may read, because their YAML describes the models in them.
#[derive(Debug)]
pub(super) struct ModelCode<'a> {
    projects: &'a DbtProjects,
    files: ModelFiles,
    /// Whether a file can be given to an agent, by path, and why not.
    usable: HashMap<String, Option<String>>,
    /// Sentences about units with too many files.
    warnings: Vec<Problem>,
    /// YAML files that cannot be parsed, with the reason.
    damaged: Vec<(String, Problem)>,
}

impl<'a> ModelCode<'a> {
    /// The code in `tree` that the lists of the connection select.
    pub(super) fn find(
        tree: &SourceTree,
        projects: &'a DbtProjects,
        selected: &FileSelection,
    ) -> Self {
        Self {
            projects,
            files: ModelFiles::find(tree, Some(selected)),
            usable: HashMap::new(),
            warnings: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// The code of the models that the YAML files of the unit `key` describe, each with its text, sorted.
    pub(super) fn of_unit<'b>(
        &mut self,
        key: &str,
        yaml: impl Iterator<Item = (&'b str, String)>,
    ) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (path, text) in yaml {
            // Their warnings are about their settings.
            if self.projects.project_of_file(path).is_some() {
                continue;
            }
            let project = self.projects.reader(path).map(|of| &of.file);
            let names = match dbt_yaml::read(&text) {
                Ok(names) => names,
                Err(error) => {
                    let path = visible_path(path);
                    let fault = match error.message.contains("budget") {
                        true => "is not parsed",
                        false => "is not valid YAML, and dbt refuses the project",
                    };
                    let why = yaml::explain(&text, &error);
                    let why = why.prefixed(format_args!("{path} {fault}: "));
                    self.damaged.push((path, why));
                    continue;
                }
            };
            let stems = names.models.iter().flat_map(|model| &model.file_stems);
            let code = stems
                .filter_map(|stem| self.files.paths.get(stem))
                .flatten();
            let is_own = |code: &&String| {
                let owner = self.projects.reader(code).map(|of| &of.file);
                self.projects.has_model(code) && (project.is_none() || owner == project)
            };
            found.extend(code.filter(is_own).cloned());
        }
        found.retain(|path| self.is_usable(path));
        if found.len() > MAX_CODE_FILES {
            let what = format!(
                "unit {key} describes models in {} files with code; agents read the first {MAX_CODE_FILES}",
                found.len()
            );
            self.warnings.push(Problem::new(what));
            found = found.into_iter().take(MAX_CODE_FILES).collect();
        }
        found
    }

    /// The folders with SQL.
    pub(super) fn sql_folders(&self) -> HashSet<&str> {
        let files = self.files.tree.files.iter();
        let code = files.filter(|file| has_extension(&file.path, &["sql"]));
        code.map(|file| split(&file.path).0).collect()
    }

    fn is_usable(&mut self, path: &str) -> bool {
        if let Some(known) = self.usable.get(path) {
            return known.is_none();
        }
        let why = match self.files.tree.read_text(path) {
            Ok(text) => fingerprint::unsuitable_reason(text.as_bytes()).map(str::to_owned),
            Err(error) => Some(error.to_string()),
        };
        let is_usable = why.is_none();
        self.usable.insert(path.to_owned(), why);
        is_usable
    }

    /// The files that units may read, and the warnings about files and units.
    pub(super) fn finish(self) -> (Vec<RawFile>, Vec<Problem>) {
        let is_read = |file: &RawFile| self.usable.get(&file.path).is_some_and(Option::is_none);
        let mut files = self.files.tree.files;
        files.retain(is_read);
        let mut warnings = self.warnings;
        let mut damaged = self.damaged.into_iter();
        warnings.extend(damaged.by_ref().take(MAX_DAMAGED_FILES).map(|(_, why)| why));
        let more: Vec<String> = damaged.map(|(path, _)| path).collect();
        if !more.is_empty() {
            let named = list_some(&more);
            warnings.push(Problem::new(format!(
                "more files are not valid YAML: {named}"
            )));
        }
        let mut skipped: Vec<String> = self
            .usable
            .into_iter()
            .filter_map(|(path, why)| Some(format!("{} ({})", visible_path(&path), why?)))
            .collect();
        skipped.sort_unstable();
        if !skipped.is_empty() {
            let named = list_some(&skipped);
            warnings.push(Problem::new(format!(
                "agents cannot read the code of some models: {named}"
            )));
        }
        (files, warnings)
    }
}

/// Reads the references of the files in `tree`.
#[derive(Debug)]
pub(in crate::source) struct DbtReferences<'a> {
    tree: &'a SourceTree,
    projects: DbtProjects,
    selected: Option<FileSelection>,
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
            projects: DbtProjects::from_tree(tree),
            selected: None,
            reads_sql: true,
            sql: None,
            defined: None,
        }
    }

    /// For a source of which only the code in `selected` is read.
    pub(super) fn with_selection(tree: &'a SourceTree, selected: Option<FileSelection>) -> Self {
        Self {
            selected,
            ..Self::new(tree)
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
            let sql = self
                .sql
                .get_or_insert_with(|| ModelFiles::find(self.tree, self.selected.as_ref()));
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
            .and_then(|text| dbt_yaml::read(&text).ok())
        else {
            return FileReferences::unknown();
        };
        let mut found = names.refers_to;
        if self.reads_sql && !names.models.is_empty() {
            let sql = self
                .sql
                .get_or_insert_with(|| ModelFiles::find(self.tree, self.selected.as_ref()));
            let owner = self.projects.owner(path).map(|of| &of.file);
            let is_own = |code: &str| self.projects.owner(code).map(|of| &of.file) == owner;
            for model in &names.models {
                found.extend(sql.references(&model.file_stems, is_own));
            }
        }
        found
    }

    fn may_see(&self, from: &str, references: &FileReferences, to: &str) -> bool {
        self.projects.may_see(from, references, to)
    }

    fn refers_to_undefined(&mut self, references: &FileReferences) -> bool {
        let defined = self.defined();
        references.names.iter().any(|name| !defined.contains(name))
    }
}

impl ModelFiles {
    /// The files with code below the root of `tree` that the lists of the connection select; all without lists.
    fn find(tree: &SourceTree, selected: Option<&FileSelection>) -> Self {
        let is_wanted =
            |path: &str| is_code(path) && selected.is_none_or(|lists| lists.contains(path));
        let Ok(found) = project::walk(&tree.root, &is_wanted) else {
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

    /// What the code of a model refers to: the files with these names of which `is_own` is true.
    fn references(&self, stems: &[String], is_own: impl Fn(&str) -> bool) -> FileReferences {
        let mut found = FileReferences::default();
        let paths: Vec<&String> = stems
            .iter()
            .filter_map(|stem| self.paths.get(stem))
            .flatten()
            .filter(|path| is_own(path))
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

/// True for a file with SQL or Python code.
pub(super) fn is_code(path: &str) -> bool {
    has_extension(path, &["sql", "py"])
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
    use crate::source::{SourceAdapter as _, dbt::DbtAdapter, tests::anywhere, tree_of};

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
    fn excluded_sql_is_not_read() {
        let (dir, _) = tree_of(&[
            ("dbt_project.yml", "name: x"),
            ("models/schema.yml", "models: [{name: m1}]"),
            ("models/m1.sql", "select * from {{ ref('a') }}"),
        ]);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let keys = crate::yaml::parse_tree("exclude: ['**/*.sql']").unwrap();
        let connection = crate::connection::Connection {
            keys: crate::connection::ConnectionKeys(keys.to_json()),
            ..Default::default()
        };
        let mut reader = DbtAdapter
            .reference_reader(&connection, &tree, &[])
            .unwrap();
        let found = reader.references(&UnitChunk::default(), "models/schema.yml");
        assert_eq!(found.names.into_iter().collect::<Vec<_>>(), ["model:m1"]);
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
    fn code_that_agents_cannot_read_is_a_warning() {
        let names: Vec<String> = (0..MAX_CODE_FILES + 2)
            .map(|n| format!("m{n:03}"))
            .collect();
        let models: Vec<String> = names
            .iter()
            .map(|name| format!("{{name: {name}}}"))
            .collect();
        let paths: Vec<String> = names
            .iter()
            .map(|name| format!("models/{name}.sql"))
            .collect();
        let yaml = format!("models: [{}, {{name: empty}}]", models.join(", "));
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (&**path, "select 1")).collect();
        files.extend([
            ("dbt_project.yml", "name: x"),
            ("models/empty.sql", " \n"),
            ("other/m000.sql", "select 2"),
        ]);
        let (dir, _) = tree_of(&files);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let projects = DbtProjects::from_tree(&tree);
        let selected = FileSelection::read(anywhere().connection).unwrap();
        let mut code = ModelCode::find(&tree, &projects, &selected);
        let found = code.of_unit("dbt-all", [("models/x.yml", yaml)].into_iter());
        assert_eq!(found.len(), MAX_CODE_FILES);
        assert_eq!(found.first().map(String::as_str), Some("models/m000.sql"));
        let warnings = ingestdeck_core::diagnostic::to_lines(&code.finish().1);
        assert_eq!(
            warnings,
            [
                "unit dbt-all describes models in 302 files with code; agents read the first 300",
                "agents cannot read the code of some models: models/empty.sql (it is empty)"
            ]
        );
    }

    #[test]
    fn yaml_that_cannot_be_parsed_is_a_warning() {
        let large = format!("x: [{}]\n", "1, ".repeat(60_000));
        let texts: Vec<String> = (0..25).map(|n| format!("models/m{n}.yml")).collect();
        let mut files: Vec<(&str, &str)> = texts.iter().map(|path| (&**path, "x: 1")).collect();
        files.extend([
            (
                "dbt_project.yml",
                "name: x\nvars: {at: \"{{ env_var('AT') }}\"}\n",
            ),
            ("packages.yml", "packages: [\n"),
            ("models/a.yml", "models:\n  - name: a\nfoo: [\n"),
            ("models/twice.yml", "x: 1\nx: 2\n"),
            ("models/jinja.yml", "x: {{ var('x') }}\n"),
            ("models/large.yml", &large),
            ("models/a.sql", "select 1"),
        ]);
        let (dir, _) = tree_of(&files);
        let warnings = |count: usize| {
            let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
            let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
            assert_eq!(chunks.units.len(), count);
            ingestdeck_core::diagnostic::to_lines(&chunks.warnings).join("\n")
        };
        let of_parts = warnings(30);
        insta::assert_snapshot!(of_parts, @r"
        models/a.yml is not valid YAML, and dbt refuses the project: line 3 column 6, at `foo: …`: the `[` that opens here is never closed; close it with `]`
        models/jinja.yml is not valid YAML, and dbt refuses the project: line 1 column 5, at `x: …`: a key must be text; put it in quotes
        models/large.yml is not parsed: line 1 column 149996, at `x: …`: the document is too large; make it smaller
        ");
        for path in &texts {
            std::fs::remove_file(dir.path().join(path)).unwrap();
        }
        assert_eq!(warnings(1), of_parts);
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
    fn names_are_those_of_the_own_project_and_its_packages() {
        let (dir, _) = tree_of(&[
            ("dbt_project.yml", "name: shop\n"),
            ("models/a.yml", "models: [{name: m}]"),
            ("models/m.sql", "select * from {{ ref('of_shop') }}"),
            ("tests_1/dbt_project.yml", "name: first\n"),
            (
                "tests_1/packages.yml",
                "packages: [{package: x/y}, {local: ../}]",
            ),
            ("tests_1/models/a.yml", "models: [{name: m}]"),
            (
                "tests_1/models/m.sql",
                "select * from {{ ref('of_first') }}",
            ),
            ("tests_2/dbt_project.yml", "name: second\n"),
            (
                "tests_2/dependencies.yml",
                "packages: [{local: ../tests_1}]",
            ),
            ("tests_2/models/a.yml", "models: [{name: m}]"),
            (
                "tests_2/models/b.yml",
                "models: [{name: b, description: \"{{ doc('other', 'd') }}\"}]",
            ),
            ("other/dbt_project.yml", "name: other\n"),
        ]);
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        let mut reader = DbtReferences::new(&tree);
        let unit = UnitChunk::default();
        let names: Vec<String> = ["models/a.yml", "tests_1/models/a.yml"]
            .map(|path| reader.references(&unit, path).names)
            .map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
            .into();
        assert_eq!(names, ["model:m model:of_shop", "model:m model:of_first"]);
        let all = ["models", "tests_1/models", "tests_2/models", "other/models"];
        let mut seen_from = |path: &str| {
            let references = reader.references(&unit, path);
            let of =
                |folder: &&str| reader.may_see(path, &references, &format!("{folder}/gone.yml"));
            all.into_iter().filter(of).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(seen_from("models/a.yml"), "models");
        assert_eq!(seen_from("tests_1/models/a.yml"), "models tests_1/models");
        let installed = "models tests_1/models tests_2/models";
        assert_eq!(seen_from("tests_2/models/a.yml"), installed);
        assert_eq!(
            seen_from("tests_2/models/b.yml"),
            format!("{installed} other/models")
        );
        assert_eq!(seen_from("outside.yml"), "models");
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
