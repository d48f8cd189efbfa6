//! The `lookml` adapter: one unit per model with the views that it owns, one for views that no model includes, and one
//! per dashboard.
//!
//! A view belongs to the first model, by name, that includes it; other models that include it may read it. This module
//! must not parse LookML; [`scan`] does.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
};

use ingestdeck_core::{diagnostic::Problem, text::pluralize};

use super::{
    ChunkedSource, ProjectConnection, ProposalScan, SourceAdapter, SourceTree, UnitChunk,
    add_dependencies, collate, peers, proposal, references::ReferenceReader, shared_names,
    tree::has_extension,
};
use crate::{
    connection::{Connection, KeySpec, ValueType},
    slug,
    untrusted_text::{squeezed_line, visible_path},
};

mod includes;
mod references;
mod scan;

use includes::{IncludePatterns, ProjectFolders};
use scan::LookmlFacts;

#[derive(Debug)]
pub(crate) struct LookmlAdapter;

/// KTX's reason why a model may not write sources.
const CONNECTION_MISMATCH: &str = "lookml_connection_mismatch";
/// Key of the unit with the manifests, which no model includes.
const MANIFEST_UNIT: &str = "lookml-manifest";
/// Key of the unit with views that no model includes.
const ORPHANS_UNIT: &str = "lookml-orphans";

/// Directories of a LookML project.
const LOOKML_DIRS: [&str; 4] = ["dashboards", "explores", "models", "views"];

impl SourceAdapter for LookmlAdapter {
    fn name(&self) -> &'static str {
        "lookml"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            ("auth_token", ValueType::Text),
            ("auth_token_ref", ValueType::Text),
            (
                "mappings",
                ValueType::OpenMap(&[("expectedLookerConnectionName", ValueType::Text)]),
            ),
        ]
    }

    fn clone_dir(&self) -> &'static str {
        "ingest-lookml-repos"
    }

    fn location_key(&self) -> &'static str {
        "repoUrl"
    }

    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        let is_ours = |path: &&str| self.accepts_file(path) && scan.is_free(path);
        let paths: Vec<&str> = scan.paths.iter().copied().filter(is_ours).collect();
        lookml_projects(&paths).into_iter().collect()
    }

    fn describes_warehouse(&self) -> bool {
        true
    }

    fn accepts_file(&self, path: &str) -> bool {
        has_extension(path, &["lkml", "lookml"])
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if tree.files.is_empty() {
            Err(Problem::new("holds no .lkml or .lookml file")
                .with_help("point source_dir at a folder that does"))
        } else {
            Ok(())
        }
    }

    fn chunk(
        &self,
        tree: &SourceTree,
        origin: ProjectConnection<'_>,
    ) -> Result<ChunkedSource, Problem> {
        let project = LookmlProject::read(tree);
        let owners = project.owners();
        let expected = origin
            .connection
            .text("/mappings/expectedLookerConnectionName");
        let units = units(&project, &owners, expected);
        let mut warnings = project.mismatches(expected);
        warnings.extend(project.included_copies(&tree.root, origin.project));
        warnings.extend(project.warnings);
        Ok(ChunkedSource {
            units,
            warnings,
            ..ChunkedSource::default()
        })
    }

    /// A model is ingested as a whole, as in KTX. Its agent may also read the files that its views extend.
    fn narrow_unit(&self, mut unit: UnitChunk, _: &BTreeSet<&str>) -> UnitChunk {
        let behind = std::mem::take(&mut unit.upstream_files);
        add_dependencies(&mut unit, behind);
        unit
    }

    fn defined_names(&self, path: &str, text: &str) -> Option<BTreeSet<String>> {
        references::defined_names(path, text)
    }

    fn reference_reader<'a>(
        &self,
        _: &Connection,
        tree: &'a SourceTree,
        deleted: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        Some(Box::new(references::LookmlReferences::new(tree, deleted)))
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!(
            "../../../assets/skills/lookml_ingest/SKILL.md"
        ))
    }
}

/// Kind of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookmlFileKind {
    Model,
    Dashboard,
    /// Settings of the project, and of projects that it imports.
    Manifest,
    /// A view, or any other file that models include.
    Includable,
}

impl LookmlFileKind {
    fn from_path(path: &str) -> Self {
        let name = file_name(path);
        if strip_kind(name, ".model").is_some() {
            Self::Model
        } else if strip_kind(name, ".dashboard").is_some() {
            Self::Dashboard
        } else if name == "manifest.lkml" {
            Self::Manifest
        } else {
            Self::Includable
        }
    }
}

/// `orders` for `orders.model.lkml` and the `kind` `.model`.
fn strip_kind<'a>(name: &'a str, kind: &str) -> Option<&'a str> {
    let stem = name.rsplit_once('.').map(|(stem, _)| stem)?;
    let cut = stem.len().checked_sub(kind.len())?;
    stem.get(cut..)
        .is_some_and(|end| end.eq_ignore_ascii_case(kind))
        .then(|| stem.get(..cut))
        .flatten()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Where a run commits a copy of a file: connection, adapter and sync id are any.
const COPIES: &str = "raw-sources/connection/lookml/sync";

struct LookmlProject<'a> {
    /// Models with their names, in KTX's order.
    models: Vec<(&'a str, &'a str)>,
    dashboards: Vec<(&'a str, &'a str)>,
    manifests: Vec<&'a str>,
    includables: Vec<&'a str>,
    facts: BTreeMap<&'a str, LookmlFacts>,
    folders: ProjectFolders<'a>,
    /// Files that the includes of a file match, by file.
    included_files: BTreeMap<&'a str, Vec<&'a str>>,
    warnings: Vec<Problem>,
}

impl<'a> LookmlProject<'a> {
    fn read(tree: &'a SourceTree) -> Self {
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let mut project = LookmlProject {
            folders: ProjectFolders::find(tree, &paths),
            models: Vec::new(),
            dashboards: Vec::new(),
            manifests: Vec::new(),
            includables: Vec::new(),
            facts: BTreeMap::new(),
            included_files: BTreeMap::new(),
            warnings: Vec::new(),
        };
        for path in &paths {
            let name = file_name(path);
            match LookmlFileKind::from_path(path) {
                LookmlFileKind::Model => project
                    .models
                    .push((strip_kind(name, ".model").unwrap_or(name), path)),
                LookmlFileKind::Dashboard => project
                    .dashboards
                    .push((strip_kind(name, ".dashboard").unwrap_or(name), path)),
                LookmlFileKind::Includable => project.includables.push(path),
                LookmlFileKind::Manifest => project.manifests.push(path),
            }
            // Dashboards are YAML in separate files without includes.
            if matches!(
                LookmlFileKind::from_path(path),
                LookmlFileKind::Model | LookmlFileKind::Includable
            ) {
                match tree.read_text(path) {
                    Ok(text) => drop(project.facts.insert(path, scan::scan(&text))),
                    Err(why) => project.warnings.push(
                        format!("{}: its includes are not known: {why}", visible_path(path)).into(),
                    ),
                }
            }
        }
        for list in [&mut project.models, &mut project.dashboards] {
            list.sort_by(|a, b| collate::compare_names(a.0, b.0).then_with(|| a.1.cmp(b.1)));
        }
        let mut absent: BTreeMap<&str, usize> = BTreeMap::new();
        for (path, facts) in &project.facts {
            let includes = IncludePatterns::new(path, &facts.includes, &project.folders);
            let (files, missing) = includes.resolve(&paths);
            project.included_files.insert(path, files);
            for pattern in missing {
                if let Some(name) = project.folders.absent_project(path, pattern) {
                    *absent.entry(name).or_default() += 1;
                    continue;
                }
                let warning = format!(
                    "{} includes `{}`, which matches no file",
                    visible_path(path),
                    visible_path(pattern)
                );
                project.warnings.push(warning.into());
            }
        }
        let absent = absent.into_iter().map(|(name, includes)| {
            Problem::new(format!(
                "{} of the project `{}`, whose files are not here",
                pluralize(includes, "include"),
                visible_path(name)
            ))
            .with_help(format!(
                "copy them to imported_projects/{} next to manifest.lkml",
                visible_path(name)
            ))
        });
        project.warnings.extend(absent);
        project
    }

    /// A warning if an include also matches the copies of files that runs commit, so that Looker would read them twice.
    fn included_copies(&self, source: &Path, project: &Path) -> Option<Problem> {
        let place = project.strip_prefix(source).ok()?.join(COPIES);
        let place = place.to_str()?;
        let is_copied = |(path, facts): &(&&str, &LookmlFacts)| {
            let files = self.included_files.get(**path);
            let copy = files
                .and_then(|files| files.first())
                .map(|file| format!("{place}/{file}"));
            copy.is_some_and(|copy| {
                let includes = IncludePatterns::new(path, &facts.includes, &self.folders);
                !includes.resolve(&[&copy]).0.is_empty()
            })
        };
        let (path, _) = self.facts.iter().find(is_copied)?;
        Some(
            Problem::new(format!(
                "the includes of {} also match the copies that runs commit to raw-sources/, so Looker would read each view twice",
                visible_path(path)
            ))
            .with_help(
                "keep ktx.yaml in a directory outside of this repository, with `source_dir` and ingest.allow_paths for it",
            ),
        )
    }

    /// A warning for each model with another warehouse connection, as in KTX's fetch report.
    fn mismatches(&self, expected: Option<&str>) -> Vec<Problem> {
        let warning = |(name, path): &(&str, &str)| {
            let facts = self.facts.get(*path);
            let declared = facts
                .and_then(|facts| facts.connection.as_deref())
                .filter(|_| has_connection_mismatch(facts, expected))?;
            Some(Problem::new(format!(
                "model {} declares connection `{}`, not the expected `{}`: its unit writes no sources ({CONNECTION_MISMATCH})",
                visible_path(name),
                visible_path(declared),
                visible_path(expected?)
            )))
        };
        self.models.iter().filter_map(warning).collect()
    }

    /// The owner of each includable file, as an index into the models. A model that includes a file directly takes
    /// precedence over one that includes it through other files, so that the owner is the same as in KTX where KTX has
    /// one.
    fn owners(&self) -> BTreeMap<&'a str, usize> {
        let mut owners = BTreeMap::new();
        for (index, (_, model)) in self.models.iter().enumerate() {
            for part in self.included_files.get(model).into_iter().flatten() {
                owners.entry(*part).or_insert(index);
            }
        }
        for (index, (_, model)) in self.models.iter().enumerate() {
            for part in self.transitive_includes(model) {
                owners.entry(part).or_insert(index);
            }
        }
        owners
    }

    /// All files that `model` includes, directly or through other files. Each file is visited once, so cyclic includes
    /// end.
    fn transitive_includes(&self, model: &'a str) -> BTreeSet<&'a str> {
        let mut seen = BTreeSet::new();
        let mut queue = VecDeque::from([model]);
        while let Some(file) = queue.pop_front() {
            for part in self.included_files.get(file).into_iter().flatten() {
                if seen.insert(*part) {
                    queue.push_back(part);
                }
            }
        }
        seen.retain(|path| LookmlFileKind::from_path(path) == LookmlFileKind::Includable);
        seen
    }

    /// Files of the views that the views in `paths` extend, directly or indirectly.
    fn extended_files(&self, paths: &[String]) -> BTreeSet<&'a str> {
        let mut files: BTreeMap<&str, BTreeSet<&'a str>> = BTreeMap::new();
        let mut parents: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, facts) in &self.facts {
            for view in &facts.views {
                files.entry(&view.name).or_default().insert(path);
                parents
                    .entry(&view.name)
                    .or_default()
                    .extend(view.extends.iter().map(String::as_str));
            }
        }
        let own = paths
            .iter()
            .filter_map(|path| self.facts.get(path.as_str()))
            .flat_map(|facts| &facts.views);
        let mut queue: VecDeque<&str> = own.map(|view| view.name.as_str()).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut found = BTreeSet::new();
        while let Some(view) = queue.pop_front() {
            for parent in parents.get(view).into_iter().flatten() {
                if seen.insert(parent) {
                    found.extend(files.get(parent).into_iter().flatten().copied());
                    queue.push_back(parent);
                }
            }
        }
        found
    }
}

fn units(
    project: &LookmlProject<'_>,
    owners: &BTreeMap<&str, usize>,
    expected: Option<&str>,
) -> Vec<UnitChunk> {
    let orphans: Vec<String> = project
        .includables
        .iter()
        .filter(|path| !owners.contains_key(**path))
        .map(|path| (*path).to_owned())
        .collect();
    let mut wished: Vec<(String, &str)> = project
        .models
        .iter()
        .map(|(name, path)| (format!("lookml-{name}"), *path))
        .collect();
    if !orphans.is_empty() {
        wished.push((ORPHANS_UNIT.into(), ""));
    }
    wished.extend(
        project
            .dashboards
            .iter()
            .map(|(name, path)| (format!("lookml-dashboard-{name}"), *path)),
    );
    if !project.manifests.is_empty() {
        wished.push((MANIFEST_UNIT.into(), "manifest"));
    }
    let mut keys = slug::disambiguate_keys(&wished).into_iter();

    let models = project.models.iter().map(|(_, path)| *path);
    let dashboards = project.dashboards.iter().map(|(_, path)| *path);
    let mut everything: Vec<&str> = models
        .chain(dashboards)
        .chain(project.includables.iter().copied())
        .collect();
    everything.sort_unstable();
    let everything = shared_names(everything);

    let mut units = Vec::with_capacity(wished.len());
    for (index, (name, path)) in project.models.iter().enumerate() {
        let (owned, borrowed): (Vec<&str>, Vec<&str>) = project
            .transitive_includes(path)
            .into_iter()
            .partition(|part| owners.get(part) == Some(&index));
        let mut raw_files: Vec<String> = std::iter::once(*path)
            .chain(owned)
            .map(str::to_owned)
            .collect();
        raw_files.sort_unstable();
        let known: BTreeSet<&str> = raw_files
            .iter()
            .map(String::as_str)
            .chain(borrowed.iter().copied())
            .collect();
        let facts = project.facts.get(path);
        let disallowed = has_connection_mismatch(facts, expected);
        let notes = model_notes(name, facts);
        units.push(UnitChunk {
            key: keys.next().unwrap_or_default(),
            label: Some(format!("LookML model \"{name}\"")),
            peer_file_index: peers(&everything, &known),
            dependency_paths: borrowed.into_iter().map(str::to_owned).collect(),
            notes: Some(if disallowed {
                warning_block(name, &notes)
            } else {
                notes
            }),
            sl_disallowed: disallowed.then(|| CONNECTION_MISMATCH.to_owned()),
            upstream_files: project
                .extended_files(&raw_files)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            raw_files,
            assigned_lines: None,
        });
    }
    if !orphans.is_empty() {
        let known = orphans.iter().map(String::as_str).collect();
        units.push(UnitChunk {
            key: keys.next().unwrap_or_default(),
            label: Some("LookML orphan views".into()),
            peer_file_index: peers(&everything, &known),
            notes: Some("No model includes these files.".into()),
            upstream_files: project
                .extended_files(&orphans)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            raw_files: orphans,
            ..UnitChunk::default()
        });
    }
    for (name, path) in &project.dashboards {
        units.push(UnitChunk {
            key: keys.next().unwrap_or_default(),
            label: Some(format!("LookML dashboard \"{name}\"")),
            raw_files: vec![(*path).to_owned()],
            peer_file_index: peers(&everything, &BTreeSet::from([*path])),
            notes: Some(format!("LookML dashboard \"{}\"", squeezed_line(name))),
            ..UnitChunk::default()
        });
    }
    if !project.manifests.is_empty() {
        units.push(UnitChunk {
            key: keys.next().unwrap_or_default(),
            label: Some("LookML manifest".into()),
            raw_files: project
                .manifests
                .iter()
                .map(|path| (*path).to_owned())
                .collect(),
            peer_file_index: peers(&everything, &BTreeSet::new()),
            notes: Some(
                "Constants and imported projects. Models and views are in other units.".into(),
            ),
            ..UnitChunk::default()
        });
    }
    units
}

/// A model without a connection counts as matching.
fn has_connection_mismatch(facts: Option<&LookmlFacts>, expected: Option<&str>) -> bool {
    let declared = facts
        .and_then(|facts| facts.connection.as_deref())
        .filter(|name| !name.is_empty());
    matches!((declared, expected), (Some(declared), Some(expected)) if declared != expected)
}

fn model_notes(name: &str, facts: Option<&LookmlFacts>) -> String {
    let name = squeezed_line(name);
    let explores = facts.into_iter().flat_map(|facts| &facts.explores);
    let explores: BTreeSet<String> = explores.map(|explore| squeezed_line(explore)).collect();
    if explores.is_empty() {
        format!("LookML model \"{name}\"")
    } else {
        format!(
            "LookML model \"{name}\" (explores: {})",
            explores.into_iter().collect::<Vec<_>>().join(", ")
        )
    }
}

/// The warning block that this adapter's skill refers to.
fn warning_block(name: &str, notes: &str) -> String {
    let name = squeezed_line(name);
    format!(
        "[LOOKML SL WRITES DISALLOWED]\nreason: {CONNECTION_MISMATCH}\nmodel: {name}\nThe model belongs to another warehouse \
         connection: write wiki pages only, no sources.\n[/LOOKML SL WRITES DISALLOWED]\n\n{notes}"
    )
}

/// The LookML projects that `paths` belong to. A project may include files of any of its folders, so all files are one
/// project unless each top-level folder has a manifest, which Looker expects at the top of a project.
fn lookml_projects<'a>(paths: &[&'a str]) -> BTreeSet<&'a str> {
    let Some(mut common) = proposal::common_folder(paths) else {
        return BTreeSet::new();
    };
    let tops: BTreeSet<&str> = paths
        .iter()
        .map(|path| path.split_once('/').map_or("", |(top, _)| top))
        .collect();
    let has_manifest = |top: &&str| {
        paths
            .iter()
            .any(|path| proposal::split(path) == (*top, "manifest.lkml"))
    };
    if common.is_empty() && !tops.contains("") && tops.iter().all(has_manifest) {
        return tops;
    }
    while LOOKML_DIRS.contains(&proposal::split(common).1) {
        common = proposal::split(common).0;
    }
    BTreeSet::from([common])
}

#[cfg(test)]
mod tests;
