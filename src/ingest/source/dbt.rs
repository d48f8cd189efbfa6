//! The `dbt` adapter: one unit with all files of a small source with few YAML files, else one unit per file, and one per
//! project with the files in its folder. Read are YAML files and doc blocks, and as dependencies the code of the models that
//! YAML describes.
//!
//! A source has a project at its root, or several in its folders. Of the files that dbt does not read, those that describe
//! its objects are in units, as in KTX.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use ingestdeck_core::diagnostic::Problem;

pub(crate) mod profiles;
pub(super) mod project;
mod references;

use profiles::ProposedDatabase;
pub(super) use project::DbtProjects;
use project::{MoreFiles, doc_blocks, doc_texts, is_markdown, is_yaml};
pub(super) use references::DbtReferences;
use references::ModelCode;

use super::{
    ChunkedSource, NamedText, ProjectConnection, ProposalScan, ProposedLists, RawFile,
    SourceAdapter, SourceDirError, SourceTree, UnitChunk,
    docs::{FileSelection, SELECTION_KEYS},
    peers, proposal,
    references::ReferenceReader,
    shared_names,
    tree::has_extension,
};
use crate::{
    connection::{Connection, KeySpec, ValueType},
    slug::{short_hash, slugify, unique_keys, without_extension},
    untrusted_text::visible_path,
};

#[derive(Debug)]
pub(crate) struct DbtAdapter;

/// Most YAML files of a project that becomes a single unit.
const MAX_SINGLE_UNIT_FILES: usize = 25;
/// Prefixes of YAML lines that describe a dbt object.
const DESCRIBES: [&str; 9] = [
    "models:",
    "sources:",
    "seeds:",
    "snapshots:",
    "exposures:",
    "metrics:",
    "semantic_models:",
    "saved_queries:",
    "macros:",
];
/// Folders that dbt generates.
const GENERATED_DIRS: &[&str] = &["target/", "dbt_packages/", "dbt_modules/", "logs/"];
/// Files with the logins of the warehouse. They describe nothing, and what is read reaches the model and the commit.
const LOGIN_FILES: [&str; 2] = ["profiles.yml", "profiles.yaml"];
/// Beginning of the names of folders with projects that test the one above.
const TESTS_PREFIX: &str = "integration_tests";
/// Folders with resources of a dbt project.
const RESOURCE_DIRS: [&str; 5] = ["models", "seeds", "snapshots", "analyses", "macros"];

/// True if a file of a dbt project has the logins of its warehouse. A file among the models describes some.
pub(super) fn has_login(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    parts.next().is_some_and(|name| LOGIN_FILES.contains(&name))
        && !parts.any(|dir| RESOURCE_DIRS.contains(&dir))
}

impl SourceAdapter for DbtAdapter {
    fn name(&self) -> &'static str {
        "dbt"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            ("auth_token", ValueType::Text),
            ("auth_token_ref", ValueType::Text),
            ("profiles_path", ValueType::AnyText),
            ("target", ValueType::Text),
            ("project_name", ValueType::Text),
            SELECTION_KEYS[0],
            SELECTION_KEYS[1],
        ]
    }

    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        let mut found: Vec<&str> = Vec::new();
        for path in &scan.paths {
            let (folder, name) = proposal::split(path);
            if is_project_file(name) && !found.iter().any(|above| proposal::is_below(path, above)) {
                found.push(folder);
            }
        }
        found
    }

    fn proposed_lists(&self, scan: &ProposalScan<'_>, folder: &str) -> ProposedLists {
        integration_tests(scan, folder)
    }

    fn proposed_database(
        &self,
        tree: &SourceTree,
        folder: &str,
        home: Option<&Path>,
    ) -> Option<ProposedDatabase> {
        profiles::find_database(tree, folder, home)
    }

    fn describes_warehouse(&self) -> bool {
        true
    }

    fn accepts_file(&self, path: &str) -> bool {
        (is_yaml(path) || is_markdown(path))
            && !GENERATED_DIRS.iter().any(|folder| path.starts_with(folder))
            && !has_login(path)
    }

    fn reads_page(&self, tree: &SourceTree, path: &str) -> bool {
        let text = |path| tree.read_text(path).unwrap_or_default();
        is_markdown(path) && doc_blocks(&text(path)).next().is_some()
    }

    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        dir: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        project::list_files(origin, dir, MoreFiles::DocBlocks)
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if DbtProjects::from_tree(tree).is_empty() {
            return Err(Problem::new("has no dbt_project.yml")
                .with_help("point source_dir at the folder of the dbt project"));
        }
        Ok(())
    }

    fn chunk(
        &self,
        tree: &SourceTree,
        origin: ProjectConnection<'_>,
    ) -> Result<ChunkedSource, Problem> {
        let projects = DbtProjects::from_tree(tree);
        let selected = FileSelection::read(origin.connection)?;
        let paths = tree.files.iter().map(|file| file.path.as_str());
        let (read, others): (Vec<&str>, Vec<&str>) = paths.partition(|path| {
            projects.reads(path)
                || is_yaml(path) && !projects.is_excluded(path) && describes_objects(tree, path)
        });
        let paths = tree.files.iter().map(|file| file.path.as_str());
        let paths: Vec<&str> = paths.filter(|path| is_yaml(path)).collect();
        let mut warnings: Vec<Problem> = projects.warnings().collect();
        let mut code = ModelCode::find(tree, &projects, &selected);
        warnings.extend(left_out(&projects, &code, &others));
        let text_of = |path: &'_ str| tree.read_text(path).unwrap_or_default();
        let mut models = read.iter().filter(|path| is_yaml(path));
        let bytes = read.iter().filter_map(|path| Some(tree.get(path)?.bytes));
        let is_small =
            paths.len() <= MAX_SINGLE_UNIT_FILES && bytes.sum::<u64>() <= origin.unit_bytes;
        if is_small || !models.any(|path| projects.has_model(path)) {
            warnings.extend(unread(tree, &projects, &selected));
            let yaml = read.iter().filter(|path| is_yaml(path));
            let code_files = code.of_unit("dbt-all", yaml.map(|path| (*path, text_of(path))));
            let (reading_aids, more) = code.finish();
            warnings.extend(more);
            let whole = UnitChunk {
                key: "dbt-all".into(),
                dependency_paths: code_files.into_iter().collect(),
                raw_files: read.iter().map(|path| (*path).to_owned()).collect(),
                ..UnitChunk::default()
            };
            return Ok(ChunkedSource {
                units: vec![whole],
                reading_aids,
                warnings,
            });
        }
        let manifest = manifest(tree).map(|file| file.path.as_str());
        let all = shared_names(paths.iter().copied().filter(|path| Some(*path) != manifest));
        // Files of projects, and doc blocks, by their folder and kind.
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut docs: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for path in &read {
            let kind = match projects.project_of_file(path) {
                Some(_) => "project",
                None if is_markdown(path) => "docs",
                None => continue,
            };
            let name = format!("{} {kind}", proposal::split(path).0);
            groups.entry(name).or_default().push(path);
            if is_markdown(path) {
                for name in tree
                    .read_text(path)
                    .iter()
                    .flat_map(|text| doc_blocks(text))
                {
                    docs.entry(format!("doc:{name}")).or_default().push(path);
                }
            }
        }
        // KTX has units for the files in `models` of the root, so their keys depend on no other file.
        let (first, rest): (Vec<&str>, Vec<&str>) = read
            .into_iter()
            .filter(|path| is_yaml(path) && projects.project_of_file(path).is_none())
            .partition(|path| path.starts_with("models/"));
        let mut keys = unique_keys("dbt", &first, without_extension);
        let more = unique_keys("dbt", &rest, without_extension);
        let mut taken: HashSet<String> = keys.iter().cloned().collect();
        for (key, path) in more.into_iter().zip(&rest) {
            keys.push(distinct_key(&mut taken, key, path));
        }
        let mut dependencies = |key: &str, path: &str| -> Vec<String> {
            let text = text_of(path);
            let project = projects.reader(path).map(|project| project.file.as_str());
            let project = project.or(manifest);
            let references = references::jinja_references(&text);
            let used = references.open_names.iter();
            let used = used.filter_map(|name| docs.get(name)).flatten();
            let used = used.filter(|file| projects.may_see(path, &references, file));
            let files: BTreeSet<&str> = project.into_iter().chain(used.copied()).collect();
            let files = files.into_iter().filter(|file| *file != path);
            let mut files: Vec<String> = files.map(str::to_owned).collect();
            files.extend(code.of_unit(key, std::iter::once((path, text))));
            files
        };
        let mut units: Vec<UnitChunk> = keys
            .iter()
            .zip(first.iter().chain(&rest))
            .map(|(key, path)| UnitChunk {
                key: key.clone(),
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                dependency_paths: dependencies(key, path),
                peer_file_index: peers(&all, &BTreeSet::from([*path])),
                ..UnitChunk::default()
            })
            .collect();
        for (name, files) in groups {
            let key = distinct_key(&mut taken, format!("dbt-{}", slugify(&name)), &name);
            units.push(UnitChunk {
                key,
                label: Some(name.trim().to_owned()),
                peer_file_index: peers(&all, &files.iter().copied().collect()),
                raw_files: files.into_iter().map(str::to_owned).collect(),
                ..UnitChunk::default()
            });
        }
        let (reading_aids, more) = code.finish();
        warnings.extend(more);
        Ok(ChunkedSource {
            units,
            reading_aids,
            warnings,
        })
    }

    fn is_reading_aid(&self, path: &str) -> bool {
        references::is_code(path)
    }

    fn named_texts(
        &self,
        path: &str,
        text: &str,
        readable: &[&str],
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Vec<NamedText> {
        let mut wanted = match is_yaml(path) {
            true => references::jinja_references(text).open_names,
            false => BTreeSet::new(),
        };
        let mut found = Vec::new();
        for file in readable.iter().filter(|file| is_markdown(file)) {
            if wanted.is_empty() {
                break;
            }
            let docs = read(file).unwrap_or_default();
            for (name, after) in doc_texts(&docs) {
                if wanted.remove(&format!("doc:{name}")) {
                    found.push(NamedText {
                        heading: format!("doc {name}, from {file}"),
                        text: project::doc_body(after).trim().to_owned(),
                    });
                }
            }
        }
        found
    }

    fn defined_names(&self, path: &str, text: &str) -> Option<BTreeSet<String>> {
        references::defined_names(path, text)
    }

    fn reference_reader<'a>(
        &self,
        connection: &Connection,
        tree: &'a SourceTree,
        _: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        // Lists that cannot be read are reported when the files are listed.
        let selected = FileSelection::read(connection).ok();
        Some(Box::new(DbtReferences::with_selection(tree, selected)))
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!("../../../assets/skills/dbt_ingest/SKILL.md"))
    }
}

/// True for the name of the file with the settings of a project.
fn is_project_file(name: &str) -> bool {
    matches!(name, "dbt_project.yml" | "dbt_project.yaml")
}

/// The list that leaves out the projects below the dbt project in `folder` that test it.
pub(super) fn integration_tests(scan: &ProposalScan<'_>, folder: &str) -> ProposedLists {
    let tests = scan.paths.iter().filter_map(|path| {
        let (project, name) = proposal::split(proposal::within(path, folder)?);
        let at = project
            .split('/')
            .position(|part| part.starts_with(TESTS_PREFIX))
            .filter(|_| is_project_file(name))?;
        let parts: Vec<&str> = project.split('/').take(at + 1).collect();
        Some(format!("{}/**", globset::escape(&parts.join("/"))))
    });
    let tests: BTreeSet<String> = tests.collect();
    match tests.is_empty() {
        true => Vec::new(),
        false => vec![("exclude", tests.into_iter().collect())],
    }
}

/// `key`, or one that is not among the `taken` ones, which then contain it.
fn distinct_key(taken: &mut HashSet<String>, key: String, path: &str) -> String {
    let key = match taken.contains(&key) {
        true => format!("{key}-{}", short_hash(path, 12)),
        false => key,
    };
    taken.insert(key.clone());
    key
}

/// True if a YAML file describes objects of dbt.
fn describes_objects(tree: &SourceTree, path: &str) -> bool {
    tree.read_text(path).is_ok_and(|text| {
        text.lines()
            .any(|line| DESCRIBES.iter().any(|key| line.starts_with(key)))
    })
}

/// The warning about YAML files that dbt does not read.
fn left_out(projects: &DbtProjects, code: &ModelCode<'_>, others: &[&str]) -> Option<Problem> {
    let is_left = |path: &&&str| is_yaml(path) && !projects.is_excluded(path);
    let others: Vec<&str> = others.iter().filter(is_left).copied().collect();
    let what = "YAML is in no unit, because dbt does not read it outside of the folders in dbt_project.yml, and no object of dbt is described there";
    let files = others.iter().map(|path| visible_path(path)).collect();
    let warning = Problem::new(what).with_files(files);
    // Files next to SQL may be meant for dbt; others belong to other programs.
    let folders = code.sql_folders();
    let is_beside_sql = |path: &&str| folders.contains(proposal::split(path).0);
    match others.iter().any(is_beside_sql) {
        _ if others.is_empty() => None,
        true => {
            Some(warning.with_help("describe what agents should know in a file below model-paths"))
        }
        false => Some(warning),
    }
}

/// A warning about projects whose models are only in SQL and described in no YAML. KTX does not read SQL either.
fn unread(tree: &SourceTree, projects: &DbtProjects, selected: &FileSelection) -> Option<Problem> {
    let others = tree
        .files
        .iter()
        .filter(|file| !is_project_file(&file.path));
    if others
        .into_iter()
        .any(|file| describes_objects(tree, &file.path))
    {
        return None;
    }
    let takes = |path: &str| {
        has_extension(path, &["sql"]) && projects.has_model(path) && selected.contains(path)
    };
    let unread = project::walk(&tree.root, &takes).ok()?.files.len();
    (unread > 0).then(|| {
        Problem::new(
            "no YAML file of the dbt project describes its models, and SQL models are in no unit, as in KTX",
        )
        .with_help("describe the models in YAML, for example models/schema.yml")
    })
}

fn manifest(tree: &SourceTree) -> Option<&RawFile> {
    tree.files.iter().find(|file| is_project_file(&file.path))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::source::{tests::anywhere, tree_of};

    fn project(models: usize, others: usize) -> (tempfile::TempDir, SourceTree) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("models/marts")).unwrap();
        fs::create_dir_all(dir.path().join("target")).unwrap();
        fs::create_dir_all(dir.path().join("seeds")).unwrap();
        fs::write(dir.path().join("dbt_project.yml"), "name: x").unwrap();
        fs::write(dir.path().join("target/manifest.yml"), "x: 1").unwrap();
        for n in 0..models {
            fs::write(dir.path().join(format!("models/marts/m{n:03}.yml")), "x: 1").unwrap();
        }
        for n in 0..others {
            fs::write(dir.path().join(format!("seeds/seed{n}.yaml")), "x: 1").unwrap();
        }
        let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
        (dir, tree)
    }

    #[test]
    fn a_small_project_is_one_unit() {
        let (_dir, tree) = project(23, 1);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(chunks.units[0].key, "dbt-all");
        assert_eq!(chunks.units[0].raw_files.len(), 25);
        assert!(chunks.warnings.is_empty());
    }

    #[test]
    fn large_project_is_a_unit_per_model_file() {
        let (_dir, tree) = project(24, 1);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 26);
        let first = &chunks.units[0];
        assert_eq!(first.key, "dbt-models-marts-m000");
        assert_eq!(first.raw_files, ["models/marts/m000.yml"]);
        assert_eq!(first.dependency_paths, ["dbt_project.yml"]);
        assert_eq!(first.peer_file_index.len(), 24, "23 models and the seed");
        let more: Vec<(&str, &[String])> = chunks.units[24..]
            .iter()
            .map(|unit| (&*unit.key, &*unit.raw_files))
            .collect();
        assert_eq!(
            more,
            [
                ("dbt-seeds-seed0", &["seeds/seed0.yaml".to_owned()][..]),
                ("dbt-project", &["dbt_project.yml".to_owned()][..])
            ]
        );
        assert!(chunks.warnings.is_empty(), "{:?}", chunks.warnings);
    }

    /// Units as `key: files`, and the warnings.
    fn cut(files: &[(&str, &str)], links: &[(&str, &str)]) -> (Vec<String>, String) {
        let (dir, _) = tree_of(files);
        let root = dir.path().canonicalize().unwrap();
        for (link, target) in links {
            symlink(target, root.join(link)).unwrap();
        }
        let tree = DbtAdapter.list_files(anywhere(), Ok(root)).unwrap();
        DbtAdapter.detect(&tree).unwrap();
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        let units = chunks.units.iter();
        let units = units.map(|unit| format!("{}: {}", unit.key, unit.raw_files.join(" ")));
        let warnings: Vec<Problem> = tree.warnings.into_iter().chain(chunks.warnings).collect();
        (
            units.collect(),
            ingestdeck_core::diagnostic::to_lines(&warnings).join("\n"),
        )
    }

    #[test]
    fn keys_of_models_do_not_depend_on_other_folders() {
        let settings = "model-paths: [models, models_stg]\n";
        let texts: Vec<String> = (0..26).map(|n| format!("models/m{n}.yml")).collect();
        let mut files: Vec<(&str, &str)> = texts.iter().map(|path| (&**path, "x: 1")).collect();
        files.extend([
            ("dbt_project.yml", settings),
            ("packages.yml", "packages: []"),
            ("models/stg/a.yml", "x: 1"),
            ("models_stg/a.yml", "x: 1"),
            ("sub/dbt_project.yml", "name: y\n"),
        ]);
        let (units, warnings) = cut(&files, &[]);
        assert_eq!(units[26], "dbt-models-stg-a: models/stg/a.yml");
        assert!(units[27].starts_with("dbt-models-stg-a-"), "{units:?}");
        assert_eq!(
            units[28..],
            [
                "dbt-project: dbt_project.yml packages.yml",
                "dbt-sub-project: sub/dbt_project.yml"
            ]
        );
        assert_eq!(warnings, "");
    }

    #[test]
    fn unusable_settings_have_warnings_and_defaults() {
        let settings = "name: x
model-paths: models2
seed-paths: [data, 3]
macro-paths: [\"{{ env_var('MACROS', 'lib') }}\"]
snapshot-paths: [../snaps, ./history/]
analysis-paths: null
target-path: [build]
log-path: /var/log
docs-paths: docs
";
        let (units, warnings) = cut(
            &[
                ("dbt_project.yml", settings),
                ("models/a.yml", "x: 1"),
                ("models2/b.yml", "x: 1"),
                ("seeds/c.yml", "x: 1"),
                ("data/d.yml", "x: 1"),
                ("macros/e.yml", "x: 1"),
                ("history/f.yml", "x: 1"),
                ("snapshots/g.yml", "x: 1"),
                ("analyses/h.yml", "x: 1"),
                ("target/i.yml", "x: 1"),
            ],
            &[],
        );
        assert_eq!(
            units,
            [
                "dbt-all: analyses/h.yml data/d.yml dbt_project.yml history/f.yml macros/e.yml models/a.yml seeds/c.yml"
            ]
        );
        insta::assert_snapshot!(warnings);
        let (units, warnings) = cut(
            &[("dbt_project.yml", "name: [\n"), ("models/a.yml", "x: 1")],
            &[],
        );
        assert_eq!(units, ["dbt-all: dbt_project.yml models/a.yml"]);
        assert!(
            warnings.starts_with("dbt_project.yml cannot be used: "),
            "{warnings}"
        );
    }

    #[test]
    fn links_within_the_source_are_followed_as_dbt_does() {
        let (units, warnings) = cut(
            &[
                (
                    "dbt_project.yml",
                    "name: x\nmodel-paths: [models, all/marts]\n",
                ),
                ("models/a.yml", "x: 1"),
                ("shared/s.yml", "x: 1"),
                ("shared/more.yml", "x: 1"),
                ("common/deep/c.yml", "x: 1"),
                ("real/marts/m.yml", "x: 1"),
                ("real/other.yml", "x: 1"),
                (".hidden/h.yml", "x: 1"),
                ("target/t.yml", "x: 1"),
            ],
            &[
                ("models/link.yml", "../shared/s.yml"),
                ("models/twice.yml", "a.yml"),
                ("models/common", "../common"),
                ("all", "real"),
                ("models/hidden.yml", "../.hidden/h.yml"),
                ("models/target", "../target"),
                ("models/loop", ".."),
                ("models/broken.yml", "nowhere.yml"),
                ("models/outside.yml", "/etc/hosts"),
                ("models/run.sql", "../shared/more.yml"),
            ],
        );
        assert_eq!(
            units,
            [
                "dbt-all: common/deep/c.yml dbt_project.yml models/a.yml real/marts/m.yml shared/s.yml"
            ]
        );
        insta::assert_snapshot!(warnings);
    }

    #[test]
    fn ignored_files_and_several_projects_are_cut_as_dbt_reads_them() {
        let (units, warnings) = cut(
            &[
                ("a/dbt_project.yml", "name: a\n"),
                ("a/models/x.yml", "x: 1"),
                ("a/target/t.yml", "x: 1"),
                ("b/dbt_project.yaml", "name: b\nclean-targets: [gen]\n"),
                (
                    "b/.dbtignore",
                    "# none\nold/\n/models/y*.yml\n!models/yes.yml\n",
                ),
                ("b/models/x.yml", "x: 1"),
                ("b/models/y.yml", "x: 1"),
                ("b/models/yes.yml", "x: 1"),
                ("b/models/deep/old/z.yml", "x: 1"),
                ("b/gen/z.yml", "x: 1"),
                ("b/models/node_modules/n.yml", "x: 1"),
                ("b/node_modules/n.yml", "x: 1"),
                ("b/marts/profiles.yml", "x: 1"),
                ("c/dbt_project.yml", "name: c\nmodel-paths: [., marts]\n"),
                ("c/profiles.yml", "password: x"),
                ("c/tests/profiles.yml", "password: x"),
                ("c/marts/profiles.yml", "x: 1"),
                ("b/models/profiles.yml", "x: 1"),
                ("docker-compose.yml", "x: 1"),
                ("a/docker-compose.yml", "x: 1"),
                ("a/.github/ci.yml", "x: 1"),
                ("a/schema.yml", "models: [{name: x}]"),
            ],
            &[],
        );
        assert_eq!(
            units,
            [
                "dbt-all: a/dbt_project.yml a/models/x.yml a/schema.yml b/dbt_project.yaml b/models/node_modules/n.yml \
                 b/models/profiles.yml b/models/x.yml b/models/yes.yml c/dbt_project.yml c/marts/profiles.yml"
            ]
        );
        assert_eq!(
            warnings,
            "YAML is in no unit, because dbt does not read it outside of the folders in dbt_project.yml, and no \
             object of dbt is described there: a/docker-compose.yml"
        );
        let files = [
            ("dbt_project.yml", "name: a\n"),
            ("marts/a.sql", "select 1"),
            ("marts/a.yml", "x: 1"),
        ];
        let (_, warnings) = cut(&files, &[]);
        let help = "marts/a.yml; describe what agents should know in a file below model-paths";
        assert!(warnings.ends_with(help), "{warnings}");
    }

    const TESTED: [(&str, &str); 7] = [
        ("dbt_project.yml", "name: x\n"),
        ("models/a.yml", "x: 1"),
        ("models/docs.md", "{% docs a %}A{% enddocs %}"),
        ("integration_tests/dbt_project.yml", "name: tests\n"),
        ("integration_tests/models/b.yml", "models: [{name: b}]"),
        ("integration_tests/ci.yml", "x: 1"),
        ("integration_tests_sl/one/dbt_project.yaml", "name: sl\n"),
    ];

    /// The units of a connection with these `keys`.
    fn chunk_with(root: &Path, keys: &str) -> Result<ChunkedSource, Problem> {
        let keys = crate::yaml::parse_tree(keys).unwrap().to_json();
        let connection = crate::connection::Connection {
            keys: crate::connection::ConnectionKeys(keys),
            ..Default::default()
        };
        let origin = ProjectConnection {
            connection: &connection,
            ..anywhere()
        };
        let tree = DbtAdapter.list_files(origin, Ok(root.to_path_buf()))?;
        DbtAdapter.detect(&tree)?;
        let chunks = DbtAdapter.chunk(&tree, origin)?;
        assert_eq!(chunks.warnings, [], "{:?}", connection.keys);
        Ok(chunks)
    }

    #[test]
    fn lists_of_a_connection_select_code_and_spare_settings() {
        let (dir, _) = tree_of(&[
            ("dbt_project.yml", "name: x\n"),
            ("models/a.yml", "models: [{name: a}, {name: b}]"),
            ("models/a.sql", "select 1"),
            ("models/secret/b.sql", "select 2"),
        ]);
        let root = dir.path().canonicalize().unwrap();
        let all = ["models/a.sql", "models/secret/b.sql"];
        for (keys, code) in [
            ("", &all[..]),
            ("include: ['models/**']", &all[..]),
            ("exclude: ['**/secret/**']", &all[..1]),
            ("include: ['models/*']", &all[..1]),
        ] {
            let unit = chunk_with(&root, keys).unwrap().units.remove(0);
            assert_eq!(
                unit.raw_files,
                ["dbt_project.yml", "models/a.yml"],
                "{keys}"
            );
            assert_eq!(unit.dependency_paths, code, "{keys}");
        }
        assert!(chunk_with(&root, "exclude: ['dbt_project.yml']").is_err());
    }

    #[test]
    fn lists_of_a_connection_select_files() {
        let (dir, _) = tree_of(&TESTED);
        let root = dir.path().canonicalize().unwrap();
        let read = |keys: &str| {
            let chunks = chunk_with(&root, keys)?;
            Ok::<String, Problem>(chunks.units[0].raw_files.join(" "))
        };
        let own = "dbt_project.yml models/a.yml models/docs.md";
        let excluded = "exclude: ['integration_tests/**', 'integration_tests_sl/**']";
        assert_eq!(read(excluded).unwrap(), own);
        assert_eq!(
            read("{include: ['*', '**/*.yml'], exclude: ['integration_tests/c*', '*/models/**']}")
                .unwrap(),
            "dbt_project.yml integration_tests/dbt_project.yml integration_tests_sl/one/dbt_project.yaml models/a.yml"
        );
        assert!(read("exclude: ['[z']").is_err());
        fs::write(root.join(".dbtignore"), "integration_tests*/\n").unwrap();
        assert_eq!(read("").unwrap(), own);
    }

    #[test]
    fn projects_that_test_another_one_are_left_out_of_proposals() {
        let lists = |files: &[(&str, &str)], folder: &str| {
            let (_dir, tree) = tree_of(files);
            let scan = ProposalScan::new(&tree);
            DbtAdapter.proposed_lists(&scan, folder)
        };
        assert_eq!(
            lists(&TESTED, ""),
            [(
                "exclude",
                ["integration_tests/**", "integration_tests_sl/**"]
                    .map(str::to_owned)
                    .into()
            )]
        );
        assert_eq!(lists(&TESTED, "integration_tests"), []);
        assert_eq!(lists(&TESTED[..3], ""), []);
        let folder = ("integration_tests/seeds/x.yml", "x: 1");
        assert_eq!(lists(&[TESTED[0], folder], ""), [], "it is not a project");
    }

    #[test]
    fn the_peer_index_ends_at_two_hundred() {
        let (_dir, tree) = project(230, 0);
        assert_eq!(
            DbtAdapter.chunk(&tree, anywhere()).unwrap().units[0]
                .peer_file_index
                .len(),
            200
        );
    }

    #[test]
    fn directory_without_dbt_project_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("schema.yml"), "x: 1").unwrap();
        let problem = DbtAdapter
            .detect(&SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap())
            .unwrap_err();
        assert!(problem.to_string().contains("dbt_project.yml"), "{problem}");
    }

    #[test]
    fn files_with_logins_are_not_read() {
        for path in ["profiles.yml", "integration_tests/ci/profiles.yaml"] {
            assert!(!DbtAdapter.accepts_file(path), "{path}");
        }
        for path in [
            "models/core/profiles.yml",
            "models/profiles/schema.yml",
            "user_profiles.yml",
        ] {
            assert!(DbtAdapter.accepts_file(path), "{path}");
        }
    }

    #[test]
    fn many_files_without_a_model_are_one_unit() {
        let (_dir, tree) = project(0, 30);
        let chunks = DbtAdapter.chunk(&tree, anywhere()).unwrap();
        assert_eq!(chunks.units.len(), 1);
        assert_eq!(
            (
                chunks.units[0].key.as_str(),
                chunks.units[0].raw_files.len()
            ),
            ("dbt-all", 31)
        );
    }

    #[test]
    fn doc_blocks_are_raw_files_and_those_in_use_are_dependencies() {
        let block = "# Terms\n{%- docs orders -%}\nOne row an order.\n{% enddocs %}\n{% docs other %}{% enddocs %}";
        let texts: Vec<String> = (0..25).map(|n| format!("models/m{n}.yml")).collect();
        let mut files: Vec<(&str, &str)> = texts.iter().map(|path| (&**path, "x: 1")).collect();
        files.extend([
            ("dbt_project.yml", "name: x\n"),
            ("models/docs.md", block),
            (
                "models/docs.yml",
                "models: [{name: a, description: \"{{ doc('orders') }}\"}]",
            ),
            ("models/README.md", "no blocks, {% if docs %}"),
            ("README.md", block),
        ]);
        let (dir, _) = tree_of(&files);
        let root = dir.path().canonicalize().unwrap();
        let units = || {
            let tree = DbtAdapter.list_files(anywhere(), Ok(root.clone())).unwrap();
            DbtAdapter.chunk(&tree, anywhere()).unwrap().units
        };
        let large = units();
        let of = |key: &str| large.iter().find(|unit| unit.key.starts_with(key)).unwrap();
        assert_eq!(
            of("dbt-models-docs").dependency_paths,
            ["dbt_project.yml", "models/docs.md"]
        );
        assert_eq!(of("dbt-models-m1").dependency_paths, ["dbt_project.yml"]);
        assert_eq!(of("dbt-models-docs-").raw_files, ["models/docs.md"]);
        assert_eq!(large.len(), 28);
        for path in &texts {
            fs::remove_file(root.join(path)).unwrap();
        }
        let docs = "docs-paths: [.]\n";
        fs::write(root.join("dbt_project.yml"), docs).unwrap();
        assert_eq!(
            units()[0].raw_files,
            [
                "README.md",
                "dbt_project.yml",
                "models/docs.md",
                "models/docs.yml"
            ]
        );
    }

    #[test]
    fn doc_blocks_of_other_projects_are_no_dependencies() {
        let block = "{% docs orders %}One row an order.{% enddocs %}";
        let uses = "models: [{name: a, description: \"{{ doc('orders') }}\"}]";
        let texts: Vec<String> = (0..25).map(|n| format!("a/models/m{n}.yml")).collect();
        let mut files: Vec<(&str, &str)> = texts.iter().map(|path| (&**path, "x: 1")).collect();
        files.extend([
            ("a/dbt_project.yml", "name: a\n"),
            ("a/models/docs.md", block),
            ("a/models/uses.yml", uses),
            ("b/dbt_project.yml", "name: b\n"),
            ("b/models/docs.md", block),
            (
                "b/models/names.yml",
                "models: [{name: a, description: \"{{ doc('a', 'orders') }}\"}]",
            ),
        ]);
        let (dir, _) = tree_of(&files);
        let root = dir.path().canonicalize().unwrap();
        let tree = DbtAdapter.list_files(anywhere(), Ok(root)).unwrap();
        let units = DbtAdapter.chunk(&tree, anywhere()).unwrap().units;
        let of = |path: &str| {
            let unit = units.iter().find(|unit| unit.raw_files == [path]).unwrap();
            unit.dependency_paths.join(" ")
        };
        assert_eq!(
            of("a/models/uses.yml"),
            "a/dbt_project.yml a/models/docs.md"
        );
        assert_eq!(
            of("b/models/names.yml"),
            "a/models/docs.md b/dbt_project.yml b/models/docs.md"
        );
    }

    #[test]
    fn code_of_described_models_is_a_dependency() {
        let texts: Vec<String> = (0..25).map(|n| format!("models/m{n}.yml")).collect();
        let mut files: Vec<(&str, &str)> = texts.iter().map(|path| (&**path, "x: 1")).collect();
        files.extend([
            ("dbt_project.yml", "name: x\n"),
            (
                "models/schema.yml",
                "models: [{name: orders}, {name: score}, {name: sql_only}]",
            ),
            ("models/marts/orders.sql", "select * from {{ ref('raw') }}"),
            ("models/marts/raw.sql", "select 1"),
            ("models/score.py", "def model(dbt, session): ..."),
            ("analyses/score.sql", "select 1"),
        ]);
        let (dir, _) = tree_of(&files);
        let root = dir.path().canonicalize().unwrap();
        let dependencies = |key: &str| {
            let tree = DbtAdapter.list_files(anywhere(), Ok(root.clone())).unwrap();
            let units = DbtAdapter.chunk(&tree, anywhere()).unwrap().units;
            let unit = units.into_iter().find(|unit| unit.key == key).unwrap();
            unit.dependency_paths.join(" ")
        };
        let code = "models/marts/orders.sql models/score.py";
        assert_eq!(
            dependencies("dbt-models-schema"),
            format!("dbt_project.yml {code}")
        );
        assert_eq!(dependencies("dbt-models-m1"), "dbt_project.yml");
        for path in &texts {
            fs::remove_file(root.join(path)).unwrap();
        }
        assert_eq!(dependencies("dbt-all"), code);
    }

    #[test]
    fn doc_calls_are_resolved_by_readable_files() {
        let docs = "{% docs orders %}\nOne row {% raw %}an{% endraw %} order.\n{% enddocs %}{% docs open %} to the end";
        let read = |path: &str| (path == "models/docs.md").then(|| docs.to_owned());
        let texts = |path: &str, text: &str| {
            let readable = ["models/x.yml", "gone.md", "models/docs.md"];
            let texts = DbtAdapter.named_texts(path, text, &readable, &read);
            let shown = texts
                .into_iter()
                .map(|of| format!("{}: {}", of.heading, of.text));
            shown.collect::<Vec<_>>()
        };
        let yaml =
            "description: \"{{ doc('orders') }} {{ doc('pkg', 'open') }} {{ doc('none') }}\"";
        assert_eq!(
            texts("models/x.yml", yaml),
            [
                "doc orders, from models/docs.md: One row {% raw %}an{% endraw %} order.",
                "doc open, from models/docs.md: to the end"
            ]
        );
        assert!(texts("models/x.sql", yaml).is_empty() && texts("models/x.yml", "x: 1").is_empty());
    }

    #[test]
    fn sql_models_without_yaml_are_a_warning() {
        let (dir, _) = project(0, 0);
        let warnings = || {
            let tree = SourceTree::walk(dir.path(), &|path| DbtAdapter.accepts_file(path)).unwrap();
            DbtAdapter.chunk(&tree, anywhere()).unwrap().warnings
        };
        assert!(warnings().is_empty(), "there is nothing to read");
        fs::write(dir.path().join("models/orders.sql"), "select 1").unwrap();
        fs::write(
            dir.path().join("models/docs.md"),
            "{% docs orders %}{% enddocs %}",
        )
        .unwrap();
        assert!(
            warnings()[0]
                .to_string()
                .contains("SQL models are in no unit"),
            "{:?}",
            warnings()
        );
        fs::write(
            dir.path().join("models/schema.yml"),
            "version: 2\nmodels:\n  - name: orders\n",
        )
        .unwrap();
        assert!(warnings().is_empty());
    }

    #[test]
    fn small_project_is_narrowed_to_its_changes() {
        let (_dir, tree) = project(2, 0);
        let unit = DbtAdapter.chunk(&tree, anywhere()).unwrap().units.remove(0);
        let left = DbtAdapter.narrow_unit(unit.clone(), &BTreeSet::from(["models/marts/m001.yml"]));
        assert_eq!(left.raw_files, ["models/marts/m001.yml"]);
        assert_eq!(
            left.dependency_paths,
            ["dbt_project.yml", "models/marts/m000.yml"]
        );
        assert_eq!(
            DbtAdapter.narrow_unit(unit.clone(), &BTreeSet::new()),
            unit,
            "it runs for changes around it"
        );
    }
}
