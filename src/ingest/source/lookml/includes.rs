//! Which files the includes of a LookML file mean.
//!
//! A path with a leading `/` begins at the folder of its project, one with `//NAME/` at the folder of an imported
//! project, any other at the folder of its file. KTX resolves every path from the root of the source, which is therefore
//! the last choice. This module must not know models and owners.

use std::collections::{BTreeMap, BTreeSet};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::{LookmlFileKind, scan};
use crate::source::{SourceTree, tree::has_extension};

/// Looker's folder for the projects that a project imports.
const IMPORTED: &str = "imported_projects";

/// Most folders of projects with the same name.
const MAX_FOLDERS: usize = 4;

/// The folders of the LookML projects in a source. A name is that of a manifest, or of Looker's folder for an imported
/// project.
#[derive(Debug, Default)]
pub(super) struct ProjectFolders<'a> {
    names: BTreeMap<&'a str, BTreeSet<String>>,
    folders: BTreeMap<String, BTreeSet<&'a str>>,
}

impl<'a> ProjectFolders<'a> {
    pub(super) fn find(tree: &SourceTree, paths: &[&'a str]) -> Self {
        let mut found = Self::default();
        for path in paths {
            if LookmlFileKind::from_path(path) == LookmlFileKind::Manifest {
                let text = tree.read_text(path).unwrap_or_default();
                found.add(folder_of(path), scan::scan(&text).project);
            }
            for (folder, name) in imported_folders(path) {
                found.add(folder, Some(name.to_owned()));
            }
        }
        found
    }

    fn add(&mut self, folder: &'a str, name: Option<String>) {
        let names = self.names.entry(folder).or_default();
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            names.insert(name.clone());
            let folders = self.folders.entry(name).or_default();
            // Projects of one name are copies of each other, and each include is looked for in all of them.
            if folders.len() < MAX_FOLDERS {
                folders.insert(folder);
            }
        }
    }

    /// The folder of the project that a file belongs to: the innermost one, or the root of the source.
    fn folder_of_file<'p>(&self, path: &'p str) -> &'p str {
        let mut folder = folder_of(path);
        while !folder.is_empty() && !self.names.contains_key(folder) {
            folder = folder_of(folder);
        }
        folder
    }

    fn is_named(&self, folder: &str, name: &str) -> bool {
        let names = self.names.get(folder);
        names.is_some_and(|names| names.contains(name))
    }

    /// The folders of the project with a name, those below `from` first.
    fn named(&self, name: &str, from: &str) -> Vec<&'a str> {
        let named = self.folders.get(name).into_iter().flatten();
        let mut folders: Vec<&str> = named.copied().collect();
        folders.sort_by_key(|folder| !is_below(folder, from));
        folders
    }

    /// The project of an include such as `//NAME/views/*`, if the source does not contain it.
    pub(super) fn absent_project<'p>(&self, file: &str, pattern: &'p str) -> Option<&'p str> {
        let name = pattern.strip_prefix("//")?.split('/').next()?;
        self.named(name, self.folder_of_file(file))
            .is_empty()
            .then_some(name)
    }

    /// The globs that an include may mean, the most likely one first.
    fn globs(&self, file: &str, pattern: &str) -> Vec<String> {
        let project = self.folder_of_file(file);
        let places: Vec<(&str, &str)> = if let Some(imported) = pattern.strip_prefix("//") {
            let (name, rest) = imported.split_once('/').unwrap_or((imported, "**"));
            let folders = self.named(name, project).into_iter();
            folders.map(|folder| (folder, rest)).collect()
        } else if let Some(rest) = pattern.strip_prefix('/') {
            // A project may name itself.
            let own = rest.split_once('/');
            let own = own.filter(|(name, _)| self.is_named(project, name));
            let own = own.map(|(_, inside)| (project, inside));
            [(project, rest), ("", rest)]
                .into_iter()
                .chain(own)
                .collect()
        } else {
            vec![
                (folder_of(file), pattern),
                (project, pattern),
                ("", pattern),
            ]
        };
        let globs = places.into_iter();
        globs
            .filter_map(|(folder, rest)| join(folder, rest))
            .collect()
    }
}

/// The folders in a path that Looker would have made for imported projects, with their names.
fn imported_folders(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = path.match_indices(IMPORTED).map(|(start, _)| start);
    starts.filter_map(move |start| {
        let is_whole = start == 0 || path.as_bytes().get(start - 1) == Some(&b'/');
        let inside = path.get(start + IMPORTED.len()..)?.strip_prefix('/')?;
        let (name, _) = inside.split_once('/').filter(|_| is_whole)?;
        Some((path.get(..start + IMPORTED.len() + 1 + name.len())?, name))
    })
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_below(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/'))
}

/// The glob of a pattern in a folder, without `.` and `..`; `None` if it leaves the source.
fn join(folder: &str, pattern: &str) -> Option<String> {
    let escaped = globset::escape(folder);
    let mut segments: Vec<&str> = Vec::new();
    for segment in escaped.split('/').chain(pattern.split('/')) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()?),
            _ => segments.push(segment),
        }
    }
    Some(segments.join("/"))
}

/// The include patterns of one file.
pub(super) struct IncludePatterns<'a> {
    patterns: Vec<&'a str>,
    set: GlobSet,
    /// For each glob of the set, the index of its pattern, and its place among the globs that the pattern may mean.
    pattern_of_glob: Vec<(usize, usize)>,
}

impl<'a> IncludePatterns<'a> {
    pub(super) fn new(path: &str, patterns: &'a [String], folders: &ProjectFolders<'_>) -> Self {
        let mut set = GlobSetBuilder::new();
        let mut of = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            for (rank, spelling) in folders.globs(path, pattern).into_iter().enumerate() {
                for spelling in with_extensions(spelling) {
                    if let Ok(glob) = GlobBuilder::new(&spelling).literal_separator(true).build() {
                        set.add(glob);
                        of.push((index, rank));
                    }
                }
            }
        }
        Self {
            patterns: patterns.iter().map(String::as_str).collect(),
            set: set.build().unwrap_or_default(),
            pattern_of_glob: of,
        }
    }

    /// The files that the patterns match, and the patterns that match none. A pattern has the most likely of its
    /// meanings that matches a file.
    pub(super) fn resolve<'p>(&self, paths: &[&'p str]) -> (Vec<&'p str>, Vec<&'a str>) {
        // Two passes, because a list of files per pattern would grow with the product of both.
        let mut ranks: Vec<Option<usize>> = vec![None; self.patterns.len()];
        for path in paths {
            for &(index, rank) in self.matches(path) {
                let best = ranks[index].unwrap_or(rank);
                ranks[index] = Some(best.min(rank));
            }
        }
        let is_meant = |path: &&&str| {
            let mut matches = self.matches(path);
            matches.any(|&(index, rank)| Some(rank) == ranks[index])
        };
        let mut files: Vec<&str> = paths.iter().filter(is_meant).copied().collect();
        files.sort_unstable();
        let patterns = self.patterns.iter().zip(&ranks);
        let missing = patterns.filter(|(_, rank)| rank.is_none());
        (files, missing.map(|(pattern, _)| *pattern).collect())
    }

    /// The patterns that match a file, and the place of the glob that does.
    fn matches(&self, path: &str) -> impl Iterator<Item = &(usize, usize)> {
        let globs = if self.pattern_of_glob.is_empty() {
            Vec::new()
        } else {
            self.set.matches(path)
        };
        globs
            .into_iter()
            .filter_map(|glob| self.pattern_of_glob.get(glob))
    }
}

/// A glob as it is, and with the extensions that it may leave out.
fn with_extensions(glob: String) -> Vec<String> {
    if has_extension(&glob, &["lkml", "lookml"]) {
        return vec![glob];
    }
    let endings = ["lkml", "lookml"].map(|ending| format!("{glob}.{ending}"));
    std::iter::once(glob).chain(endings).collect()
}
