//! `dbt_project.yml`: which folders of a project dbt reads, and which ones it generates.
//!
//! Paths are relative to the source. Where a setting cannot be used, dbt's default applies, with a warning. This module
//! must not know units.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ingestdeck_core::diagnostic::{Diagnostic as _, Problem};

use super::{has_login, is_project_file};
use crate::{
    source::{
        ProjectConnection, SourceDirError, SourceTree,
        docs::FileSelection,
        proposal::{is_below, split},
        references::FileReferences,
        tree::{WalkFilter, has_extension},
        walk_source,
    },
    untrusted_text::visible_path,
    yaml::{self, YamlNode, YamlValue, parse_source_file},
};

/// Keys with folders whose YAML files dbt reads, with their names before dbt 1.0 and their defaults.
const RESOURCE_KEYS: [(&str, &str, &str); 7] = [
    ("model-paths", "source-paths", "models"),
    ("seed-paths", "data-paths", "seeds"),
    ("snapshot-paths", "", "snapshots"),
    ("analysis-paths", "", "analyses"),
    ("macro-paths", "", "macros"),
    ("test-paths", "", "tests"),
    ("function-paths", "", "functions"),
];
/// Keys with one folder that dbt generates.
const OUTPUT_KEYS: [(&str, &str, &str); 3] = [
    ("target-path", "", "target"),
    ("log-path", "", "logs"),
    ("packages-install-path", "modules-path", "dbt_packages"),
];
/// Folders that dbt generates unless it is configured otherwise. Former output may be left in them.
const OUTPUT_DIRS: [&str; 5] = [
    "target",
    "logs",
    "dbt_packages",
    "dbt_modules",
    "dbt_internal_packages",
];
/// Folders of packages of other languages.
const PACKAGE_DIRS: [&str; 3] = ["node_modules", "site-packages", "venv"];
/// Files in the folder of a project that dbt reads, without their extension.
const PROJECT_FILES: [&str; 7] = [
    "catalogs",
    "dbt_cloud",
    PROJECT_STEM,
    "dependencies",
    "package-lock",
    "packages",
    "selectors",
];
/// Most projects of a source.
const MAX_PROJECTS: usize = 1000;
/// Most folders of settings, folders behind links and lines of `.dbtignore` of a source. All of its projects share them, so
/// that hostile ones cost little time: each file is compared with all of them.
const MAX_ENTRIES: usize = 1000;
/// Most comparisons of a folder with a link, for all projects of a source.
const MAX_LINK_STEPS: usize = 2_000_000;
/// Name of the file that makes a folder a project, without its extension.
const PROJECT_STEM: &str = "dbt_project";

/// True for a file with the extension of doc blocks.
pub(super) fn is_markdown(path: &str) -> bool {
    has_extension(path, &["md"])
}

/// The names of the doc blocks in `text`.
pub(super) fn doc_blocks(text: &str) -> impl Iterator<Item = &str> {
    doc_texts(text).map(|(name, _)| name)
}

/// The names of the doc blocks in `text`, each with the text after its beginning.
pub(super) fn doc_texts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("{%").filter_map(|(at, open)| {
        let block = text.get(at + open.len()..)?;
        let tag = block.split_once("{%").map_or(block, |(tag, _)| tag);
        let call = tag.trim_start_matches(['-', '+']).trim_start();
        let name = call.strip_prefix("docs")?;
        let (name, _) = name.split_once("%}")?;
        let is_call = name.starts_with(char::is_whitespace);
        let name = name.trim_end_matches(['-', '+']).trim();
        let (_, after) = block.split_once("%}")?;
        (is_call && !name.is_empty()).then_some((name, after))
    })
}

/// The text of a doc block, given what follows its beginning.
pub(super) fn doc_body(after: &str) -> &str {
    let is_end = |(at, open): &(usize, &str)| {
        let block = after.get(at + open.len()..).unwrap_or_default();
        let call = block.trim_start_matches(['-', '+']).trim_start();
        call.starts_with("enddocs")
    };
    let end = after.match_indices("{%").find(is_end);
    end.and_then(|(at, _)| after.get(..at)).unwrap_or(after)
}

/// True for a file with the extension of YAML.
pub(in crate::source) fn is_yaml(path: &str) -> bool {
    has_extension(path, &["yml", "yaml"])
}

/// What the projects of a source may still use of its limits.
#[derive(Debug)]
struct ReadingBudget {
    entries: usize,
    link_steps: usize,
    /// The first file or folder that exceeded a limit, with what it has too much of.
    exceeded: Option<(String, &'static str)>,
}

impl Default for ReadingBudget {
    fn default() -> Self {
        Self {
            entries: MAX_ENTRIES,
            link_steps: MAX_LINK_STEPS,
            exceeded: None,
        }
    }
}

impl ReadingBudget {
    /// Whether one more entry may be read. `what` is in the file at `path`.
    fn take_entry(&mut self, path: &str, what: &'static str) -> bool {
        self.take(|budget| &mut budget.entries, path, what)
    }

    fn take(
        &mut self,
        limit: impl Fn(&mut Self) -> &mut usize,
        path: &str,
        what: &'static str,
    ) -> bool {
        let left = limit(self);
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None => {
                self.exceeded.get_or_insert_with(|| (path.to_owned(), what));
                return false;
            }
        }
        true
    }

    /// The warning about what is not read.
    fn warning(&self) -> Option<Problem> {
        let (path, what) = self.exceeded.as_ref()?;
        let why = format!(
            "{}: {what} beyond the {MAX_ENTRIES} of a source are not read",
            visible_path(path)
        );
        Some(
            Problem::new(why)
                .with_help("point source_dir at fewer projects, or name fewer folders"),
        )
    }
}

/// A folder with a `dbt_project.yml`, and its settings.
#[derive(Debug)]
pub(in crate::source) struct DbtProject {
    /// Its folder; empty for the root of the source.
    folder: String,
    /// Path of the file with its settings.
    pub(in crate::source) file: String,
    /// Its name, empty if it has none.
    name: String,
    /// Folders of projects of this source that it installs.
    packages: Vec<String>,
    /// Folders of its models.
    models: Vec<String>,
    /// Folders of all its resources.
    resources: Vec<String>,
    /// Folders of its doc blocks.
    docs: Vec<String>,
    /// Folders that dbt generates.
    generated: Vec<String>,
    ignored: IgnoreRules,
    warnings: Vec<Problem>,
}

impl DbtProject {
    /// The project in `folder`, if there is one.
    fn find(source: &SourceTree, folder: &str, budget: &mut ReadingBudget) -> Option<Self> {
        let file = ["yml", "yaml"]
            .map(|extension| join(folder, &format!("{PROJECT_STEM}.{extension}")))
            .into_iter()
            .flatten()
            .find(|path| source.is_file(path))?;
        let mut project = Self {
            folder: folder.to_owned(),
            name: String::new(),
            packages: local_packages(source, folder),
            models: Vec::new(),
            resources: Vec::new(),
            docs: Vec::new(),
            generated: OUTPUT_DIRS
                .iter()
                .filter_map(|dir| join(folder, dir))
                .collect(),
            ignored: IgnoreRules::read(source, folder, budget),
            warnings: Vec::new(),
            file,
        };
        let settings = source
            .read_text(&project.file)
            .map_err(|error| error.to_string())
            .and_then(|text| {
                parse_source_file(&text).map_err(|error| yaml::explain(&text, &error).to_line())
            });
        let settings = settings.unwrap_or_else(|why| {
            project.warn(format_args!("cannot be used: {why}; dbt's defaults apply"));
            YamlNode {
                line: 1,
                value: YamlValue::Null,
            }
        });
        settings
            .text_at("name")
            .unwrap_or_default()
            .clone_into(&mut project.name);
        for (key, former, default) in RESOURCE_KEYS {
            let dirs = project.dirs(&settings, (key, former, Some(default)), true, budget);
            if key == "model-paths" {
                project.models.clone_from(&dirs);
            }
            project.resources.extend(dirs);
        }
        for (key, former, default) in OUTPUT_KEYS {
            let dirs = project.dirs(&settings, (key, former, Some(default)), false, budget);
            project.generated.extend(dirs);
        }
        // dbt cleans these, but reads resources in them.
        let mut cleaned = project.dirs(&settings, ("clean-targets", "", None), true, budget);
        let is_resource = |dir: &String| {
            let mut resources = project.resources.iter();
            resources.any(|resource| is_below(dir, resource))
        };
        cleaned.retain(|dir| !is_resource(dir));
        project.generated.extend(cleaned);
        // The folder itself is not output, whatever it is called.
        let own = project.folder.clone();
        project.generated.retain(|dir| !is_below(&own, dir));
        project.docs = project.dirs(&settings, ("docs-paths", "", None), true, budget);
        if project.docs.is_empty() {
            project.docs.clone_from(&project.resources);
        }
        Some(project)
    }

    fn warn(&mut self, what: std::fmt::Arguments<'_>) {
        self.warnings
            .push(format!("{} {what}", visible_path(&self.file)).into());
    }

    /// The folders at a key, or at the `former` name of it.
    fn dirs(
        &mut self,
        settings: &YamlNode,
        (key, former, default): (&str, &str, Option<&str>),
        is_list: bool,
        budget: &mut ReadingBudget,
    ) -> Vec<String> {
        let given = [key, former]
            .into_iter()
            .filter_map(|key| settings.get(key))
            .find(|node| node.value != YamlValue::Null);
        let fallback = || default.and_then(|dir| join(&self.folder, dir));
        let instead = match default {
            Some(default) => format!("dbt's default `{default}` applies"),
            None => "it has no effect".to_owned(),
        };
        let Some(node) = given else {
            return fallback().into_iter().collect();
        };
        let nodes = match &node.value {
            YamlValue::List(nodes) if is_list => nodes.as_slice(),
            YamlValue::Text(_) if !is_list => std::slice::from_ref(node),
            other => {
                let expected = if is_list { "a list of paths" } else { "a path" };
                let dirs = fallback().into_iter().collect();
                self.warn(format_args!(
                    "line {}: {key} must be {expected}, not {}; {instead}",
                    node.line,
                    other.kind()
                ));
                return dirs;
            }
        };
        let mut dirs = Vec::new();
        for node in nodes {
            if !budget.take_entry(&self.file, "paths") {
                break;
            }
            let line = node.line;
            match node.as_text() {
                None => {
                    dirs.extend(default.and_then(|dir| join(&self.folder, dir)));
                    self.warn(format_args!(
                        "line {line}: {key} must be a list of paths, and one of them is {}; {instead}",
                        node.value.kind()
                    ));
                }
                Some(text) if ["{{", "{%"].iter().any(|open| text.contains(open)) => {
                    dirs.extend(default.and_then(|dir| join(&self.folder, dir)));
                    self.warn(format_args!(
                        "line {line}: {key} has Jinja, `{}`, which is not rendered here; {instead}",
                        visible_path(text)
                    ));
                }
                Some(text) => match join(&self.folder, text) {
                    Some(dir) => dirs.push(dir),
                    None => self.warn(format_args!(
                        "line {line}: {key} names `{}`, which is outside of the source; nothing there is read",
                        visible_path(text)
                    )),
                },
            }
        }
        dirs
    }

    /// True for a file that this project does not read although it is below one of its folders.
    fn is_generated(&self, path: &str) -> bool {
        match (
            deepest(&self.generated, path),
            deepest(&self.resources, path),
        ) {
            (Some(generated), Some(resource)) => generated > resource,
            (generated, None) => generated.is_some(),
            (None, Some(_)) => false,
        }
    }

    fn is_ignored(&self, path: &str) -> bool {
        self.is_generated(path) || self.ignored.matches(path)
    }

    /// True for a YAML file below a folder of resources, and for a file below a folder of doc blocks.
    fn describes_resources(&self, path: &str) -> bool {
        let dirs = if is_markdown(path) {
            &self.docs
        } else {
            &self.resources
        };
        deepest(dirs, path).is_some() && !self.is_ignored(path)
    }

    fn has_model(&self, path: &str) -> bool {
        deepest(&self.models, path).is_some() && !self.is_ignored(path)
    }

    fn is_project_file(&self, path: &str) -> bool {
        let (folder, name) = split(path);
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        folder == self.folder && PROJECT_FILES.contains(&stem)
    }

    /// Adds the folders and files that links below its folders lead to, because dbt follows them.
    fn follow(&mut self, links: &[(String, String)], budget: &mut ReadingBudget) {
        for dirs in [&mut self.models, &mut self.resources, &mut self.docs] {
            let mut at = 0;
            // Each folder is added once, so cycles end.
            while let Some(dir) = dirs.get(at).cloned() {
                let leads_to_yaml =
                    |(link, target): &&(String, String)| is_yaml(link) || !is_yaml(target);
                for (link, target) in links.iter().filter(leads_to_yaml) {
                    if !budget.take(
                        |budget| &mut budget.link_steps,
                        &self.file,
                        "folders behind links",
                    ) {
                        return;
                    }
                    let behind = if is_below(link, &dir) {
                        Some(target.clone())
                    } else {
                        dir.strip_prefix(link.as_str())
                            .filter(|rest| rest.starts_with('/'))
                            .map(|rest| format!("{target}{rest}"))
                    };
                    if let Some(behind) = behind.filter(|dir| !dirs.contains(dir)) {
                        if !budget.take_entry(&self.file, "folders behind links") {
                            return;
                        }
                        dirs.push(behind);
                    }
                }
                at += 1;
            }
        }
    }
}

/// The folders of the packages that the project in `folder` installs from this source.
fn local_packages(source: &SourceTree, folder: &str) -> Vec<String> {
    let files = ["packages.yml", "dependencies.yml"].map(|name| join(folder, name));
    let texts = files.into_iter().flatten();
    let roots = texts.filter_map(|path| parse_source_file(&source.read_text(&path).ok()?).ok());
    let of_file = |root: YamlNode| {
        let packages = root.value.list("packages").take(MAX_ENTRIES);
        let local = packages.filter_map(|package| join(folder, package.text_at("local")?));
        local.collect::<Vec<String>>()
    };
    roots.flat_map(of_file).collect()
}

/// Length of the longest one of `dirs` that contains `path`.
fn deepest(dirs: &[String], path: &str) -> Option<usize> {
    let containing = dirs.iter().filter(|dir| is_below(path, dir));
    containing.map(String::len).max()
}

/// The path `relative` below `folder`; `None` if it leads out of the source.
fn join(folder: &str, relative: &str) -> Option<String> {
    if relative.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(relative.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The projects of a source, by folder.
#[derive(Debug, Default)]
pub(in crate::source) struct DbtProjects {
    source: SourceTree,
    all: Vec<DbtProject>,
    budget: ReadingBudget,
}

impl DbtProjects {
    /// The projects whose `dbt_project.yml` is in `tree`.
    pub(in crate::source) fn from_tree(tree: &SourceTree) -> Self {
        let files = tree.files.iter().map(|file| split(&file.path));
        let projects = files.filter(|(_, name)| {
            name.rsplit_once('.')
                .is_some_and(|(stem, _)| stem == PROJECT_STEM)
        });
        let mut folders: Vec<&str> = projects.map(|(folder, _)| folder).collect();
        folders.dedup();
        let mut budget = ReadingBudget::default();
        let mut all: Vec<DbtProject> = folders
            .into_iter()
            .take(MAX_PROJECTS)
            .filter_map(|folder| DbtProject::find(tree, folder, &mut budget))
            .collect();
        all.iter_mut()
            .for_each(|project| project.follow(&tree.links, &mut budget));
        let hidden = |project: &DbtProject| {
            let above = |other: &&DbtProject| other.folder != project.folder;
            let mut others = all.iter().filter(above);
            others.any(|other| other.ignored.matches(&project.file))
        };
        let hidden: Vec<bool> = all.iter().map(hidden).collect();
        let mut hidden = hidden.into_iter();
        all.retain(|_| hidden.next() != Some(true));
        Self {
            source: SourceTree::default(),
            all,
            budget,
        }
    }

    /// No projects yet; [`enter`](Self::enter) finds them below `root`.
    fn below(root: PathBuf) -> Self {
        let source = SourceTree {
            root,
            ..SourceTree::default()
        };
        let mut projects = Self {
            source,
            ..Self::default()
        };
        projects.enter("");
        projects
    }

    /// All projects in the folders below `root` that a walk visits. What a project generates is known before its files
    /// are listed.
    fn in_folders(root: PathBuf) -> Self {
        let projects = RefCell::new(Self::below(root.clone()));
        let folders = WalkFilter {
            accepts_file: &|_| false,
            accepts_dir: &|path| projects.borrow_mut().enter(path),
        };
        // The walk that lists the files reports what cannot be read.
        let _ = SourceTree::walk_filtered(&root, folders);
        projects.into_inner()
    }

    /// Whether a walk visits the folder `dir`. Finds the project in it.
    fn enter(&mut self, dir: &str) -> bool {
        let holds_resources = |project: &DbtProject| {
            let mut dirs = project.resources.iter();
            dirs.any(|resource| is_below(resource, dir) || is_below(dir, resource))
        };
        let is_output = |project: &DbtProject| {
            let mut dirs = project.resources.iter();
            project.is_generated(dir) && !dirs.any(|resource| is_below(resource, dir))
        };
        if PACKAGE_DIRS.contains(&split(dir).1) && !self.all.iter().any(holds_resources)
            || self.all.iter().any(is_output)
        {
            return false;
        }
        let is_known = self.all.iter().any(|project| project.folder == dir);
        if !is_known && self.all.len() < MAX_PROJECTS {
            let found = DbtProject::find(&self.source, dir, &mut self.budget);
            self.all.extend(found);
        }
        true
    }

    pub(in crate::source) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The innermost project that reads a file of resources or doc blocks.
    pub(in crate::source) fn reader(&self, path: &str) -> Option<&DbtProject> {
        let readers = self.all.iter();
        readers
            .filter(|project| project.describes_resources(path) && !project.is_project_file(path))
            .max_by_key(|project| (is_below(path, &project.folder), project.folder.len()))
    }

    /// True for a file in a folder of models, where one with the name of a file of logins describes a model. The folder of
    /// the project may hold logins, even if it is a folder of models.
    fn describes_profiles(&self, path: &str) -> bool {
        self.all.iter().any(|project| {
            let mut dirs = project.models.iter();
            dirs.any(|dir| *dir != project.folder && is_below(path, dir))
        })
    }

    /// True for a file among the models of a project.
    pub(in crate::source) fn has_model(&self, path: &str) -> bool {
        self.all.iter().any(|project| project.has_model(path))
    }

    /// The project of which `path` is `dbt_project.yml`, or another file that dbt reads in its folder.
    pub(in crate::source) fn project_of_file(&self, path: &str) -> Option<&DbtProject> {
        self.all
            .iter()
            .find(|project| project.is_project_file(path))
    }

    /// The project that a file belongs to: one that reads it, or else the innermost one above it.
    pub(in crate::source) fn owner(&self, path: &str) -> Option<&DbtProject> {
        self.reader(path).or_else(|| {
            let above = self.all.iter().filter(|of| is_below(path, &of.folder));
            above.max_by_key(|of| of.folder.len())
        })
    }

    /// Whether the file `from`, which has these `references`, can refer to what the file `to` defines: if both are of one
    /// project, if the project of `from` installs the other one, or if `from` names it.
    pub(in crate::source) fn may_see(
        &self,
        from: &str,
        references: &FileReferences,
        to: &str,
    ) -> bool {
        let (Some(from), Some(to)) = (self.owner(from), self.owner(to)) else {
            return true;
        };
        let mut open = vec![from];
        let mut seen = BTreeSet::new();
        while let Some(project) = open.pop() {
            if project.folder == to.folder {
                return true;
            }
            if seen.insert(&project.folder) {
                let installed = self.all.iter();
                open.extend(installed.filter(|of| project.packages.contains(&of.folder)));
            }
        }
        references.packages.contains(&to.name)
    }

    /// True for a file that dbt reads.
    pub(in crate::source) fn reads(&self, path: &str) -> bool {
        self.reader(path).is_some() || self.project_of_file(path).is_some()
    }

    /// True for a file in the folder of a project, or in one that it reads.
    fn contain(&self, path: &str) -> bool {
        self.all.iter().any(|project| {
            let folders = std::iter::once(&project.folder).chain(&project.resources);
            folders
                .chain(&project.docs)
                .any(|folder| is_below(path, folder))
        })
    }

    /// True for a file that `.dbtignore` or the settings of its project exclude, so that its absence is expected.
    pub(in crate::source) fn is_excluded(&self, path: &str) -> bool {
        self.all.iter().any(|project| project.is_ignored(path))
    }

    pub(in crate::source) fn warnings(&self) -> impl Iterator<Item = Problem> {
        let warnings = self.all.iter().flat_map(|project| &project.warnings);
        warnings.cloned().chain(self.budget.warning())
    }
}

/// Which files a source with dbt projects has in addition to YAML files of the projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum MoreFiles {
    /// Files with doc blocks.
    DocBlocks,
    /// YAML files outside of projects.
    YamlOutside,
}

/// The files of a source with dbt projects, without those that dbt generates or installs.
pub(in crate::source) fn list_files(
    origin: ProjectConnection<'_>,
    dir: Result<PathBuf, SourceDirError>,
    more: MoreFiles,
) -> Result<SourceTree, Problem> {
    let root = dir.as_deref().unwrap_or(origin.project).to_path_buf();
    let selected = FileSelection::read(origin.connection)?;
    let projects = RefCell::new(DbtProjects::in_folders(root));
    let is_ours = |path: &str| {
        // Without its settings, a folder is not a project, so `include` need not name them.
        let is_settings = is_project_file(split(path).1);
        if !selected.contains(path) && (!is_settings || selected.excludes(path)) {
            return false;
        }
        let projects = projects.borrow();
        if is_markdown(path) {
            let text = || projects.source.read_text(path).unwrap_or_default();
            return more == MoreFiles::DocBlocks
                && projects.contain(path)
                && doc_blocks(&text()).next().is_some();
        }
        is_yaml(path)
            && (more == MoreFiles::YamlOutside || projects.contain(path))
            && (!has_login(path) || projects.describes_profiles(path))
    };
    let wanted = WalkFilter {
        accepts_file: &is_ours,
        accepts_dir: &|path| projects.borrow_mut().enter(path),
    };
    walk_source(origin, dir, wanted)
}

/// The files of the projects below `root` that `is_wanted`, without those that dbt generates or installs.
pub(super) fn walk(root: &Path, is_wanted: &dyn Fn(&str) -> bool) -> std::io::Result<SourceTree> {
    let projects = RefCell::new(DbtProjects::in_folders(root.to_path_buf()));
    let wanted = WalkFilter {
        accepts_file: is_wanted,
        accepts_dir: &|path| projects.borrow_mut().enter(path),
    };
    SourceTree::walk_filtered(root, wanted)
}

/// The patterns of `.dbtignore`, which has the form of `.gitignore`.
#[derive(Debug, Default)]
struct IgnoreRules {
    set: GlobSet,
    /// For each glob of the set, whether it includes files again.
    is_negated: Vec<bool>,
}

impl IgnoreRules {
    fn read(source: &SourceTree, folder: &str, budget: &mut ReadingBudget) -> Self {
        let path = join(folder, ".dbtignore").unwrap_or_default();
        let text = source.read_text(&path).ok();
        let prefix = match folder {
            "" => String::new(),
            folder => format!("{}/", globset::escape(folder)),
        };
        let (mut set, mut is_negated) = (GlobSetBuilder::new(), Vec::new());
        let lines = text.as_deref().unwrap_or_default().lines();
        for line in lines {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if !budget.take_entry(&path, "lines") {
                break;
            }
            let (is_negative, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern),
                None => (false, line),
            };
            let name = pattern.trim_end_matches('/');
            let anywhere = if name.contains('/') { "" } else { "**/" };
            let path = format!("{prefix}{anywhere}{}", name.trim_start_matches('/'));
            let below = format!("{path}/**");
            let as_file = (name == pattern).then_some(path);
            for glob in as_file.into_iter().chain([below]) {
                if let Ok(glob) = GlobBuilder::new(&glob).literal_separator(true).build() {
                    set.add(glob);
                    is_negated.push(is_negative);
                }
            }
        }
        Self {
            set: set.build().unwrap_or_default(),
            is_negated,
        }
    }

    /// The last pattern that matches decides.
    fn matches(&self, path: &str) -> bool {
        let last = self.set.matches(path).into_iter().max();
        last.is_some_and(|at| self.is_negated.get(at) == Some(&false))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A source with `count` projects in separate folders, each with a full `.dbtignore`, a long list of paths and links.
    fn hostile_source(count: usize) -> (tempfile::TempDir, SourceTree) {
        let dir = tempfile::tempdir().unwrap();
        let lines = |prefix: &str| {
            (0..MAX_ENTRIES)
                .map(|line| format!("{prefix}{line}\n"))
                .collect::<String>()
        };
        for project in 0..count {
            let folder = dir.path().join(format!("p{project}"));
            fs::create_dir_all(folder.join("models")).unwrap();
            fs::write(folder.join(".dbtignore"), lines("*x")).unwrap();
            let settings = format!("model-paths:\n{}", lines("  - m"));
            fs::write(folder.join("dbt_project.yml"), settings).unwrap();
        }
        let mut tree = SourceTree::walk(dir.path(), &|_| true).unwrap();
        tree.links = (0..MAX_ENTRIES)
            .map(|link| {
                (
                    format!("p0/models/l{link}"),
                    format!("p{}/models", link % count.max(1)),
                )
            })
            .collect();
        (dir, tree)
    }

    fn entries(projects: &DbtProjects) -> usize {
        let each = projects.all.iter();
        each.map(|project| {
            project.resources.len() + project.models.len() + project.ignored.is_negated.len()
        })
        .sum()
    }

    /// The defaults of a project are not entries, and there are as many of them as projects.
    #[test]
    fn projects_of_a_source_share_its_limits() {
        let defaults = RESOURCE_KEYS.len() + 1;
        for count in [1, 20] {
            let (_dir, tree) = hostile_source(count);
            let projects = DbtProjects::from_tree(&tree);
            assert_eq!(projects.all.len(), count);
            // A line of `.dbtignore` is up to two patterns, and a path of models is in two lists.
            assert!(
                entries(&projects) <= 2 * MAX_ENTRIES + count * defaults,
                "{}",
                entries(&projects)
            );
            assert!(projects.budget.link_steps > 0, "links cost little, too");
            let warnings: Vec<String> = projects
                .warnings()
                .map(|warning| warning.to_line())
                .collect();
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(
                warnings[0].contains(
                    "beyond the 1000 of a source are not read; point source_dir at fewer"
                ),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn usual_projects_do_not_reach_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        for project in 0..50 {
            let folder = dir.path().join(format!("p{project}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(".dbtignore"), "# generated\n\ndocs\n").unwrap();
            fs::write(
                folder.join("dbt_project.yml"),
                "model-paths: [models, marts]\n",
            )
            .unwrap();
        }
        let tree = SourceTree::walk(dir.path(), &|_| true).unwrap();
        let projects = DbtProjects::from_tree(&tree);
        assert_eq!((projects.all.len(), projects.warnings().count()), (50, 0));
        assert_eq!(projects.budget.entries, MAX_ENTRIES - 150);
    }

    /// Links in a chain lead to a folder each, and each folder is compared with all links.
    #[test]
    fn comparisons_with_links_are_limited() {
        let (_dir, mut tree) = hostile_source(1);
        fs::write(tree.root.join("p0/.dbtignore"), "").unwrap();
        fs::write(tree.root.join("p0/dbt_project.yml"), "").unwrap();
        tree.links = (0..10_000)
            .map(|link| (format!("p0/models/l{link}"), format!("p0/elsewhere/{link}")))
            .collect();
        let projects = DbtProjects::from_tree(&tree);
        assert_eq!(projects.budget.entries, 0);
        assert!(entries(&projects) <= MAX_ENTRIES + 2 * (RESOURCE_KEYS.len() + 1));
    }
}
