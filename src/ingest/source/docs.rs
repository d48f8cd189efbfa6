//! The `docs` adapter: one unit per Markdown or text file that `include` and `exclude` select.

use std::{
    collections::{BTreeSet, HashSet},
    path::PathBuf,
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ingestdeck_core::diagnostic::Problem;

use super::{
    ChunkedSource, DEPENDENCY_DIRS, ProjectConnection, ProposalScan, ProposedLists, SourceAdapter,
    SourceDirError, SourceTree, UnitChunk, peers,
    proposal::{common_folder, is_below, split, within},
    shared_names,
    tree::{WalkFilter, has_extension},
    verbatim::VerbatimAdapter,
    walk_source,
};
use crate::{
    connection::{Connection, KeySpec, ValueType},
    slug::{unique_keys, without_extension},
    untrusted_text::visible_path,
};

/// Extensions that are read without an `include`, and those that are read with one.
const EXTENSIONS: [&str; 3] = ["md", "markdown", "txt"];
const INCLUDED_EXTENSIONS: [&str; 2] = ["mdx", "rst"];
/// Most patterns of a list, and most bytes of one.
const MAX_PATTERNS: usize = 100;
const MAX_PATTERN_BYTES: usize = 200;
/// Most `*` and `{` of a pattern, because the cost of matching grows with their combinations.
const MAX_BRANCHES: usize = 12;
/// What a new project includes.
const PROSE: [&str; 4] = ["**/*.md", "**/*.markdown", "**/*.mdx", "**/*.rst"];
/// What a new project excludes: pages that describe a repository or instruct agents, and installed packages.
const NO_PROSE: [&str; 6] = [
    "**/{AGENTS,CLAUDE,SKILL}.md",
    "**/{CHANGELOG[-.],CHANGES.}*",
    "**/LICEN[CS]E[-.]*",
    "**/dbt_packages/**",
    "**/site-packages/**",
    "**/third_party/**",
];
/// Where a page with rules describes the repository; elsewhere it is content. Relative to the directory of the project.
const CONDUCT: [&str; 2] = ["CODE[-_]OF[-_]CONDUCT*", "docs/CODE[-_]OF[-_]CONDUCT*"];
/// File names of pages that alone do not get a connection.
const ABOUT: [&str; 3] = ["CONTRIBUTING", "README", "SECURITY"];

/// Plain documents, one unit each.
#[derive(Debug)]
pub(crate) struct DocsAdapter;

impl SourceAdapter for DocsAdapter {
    fn name(&self) -> &'static str {
        "docs"
    }

    fn keys(&self) -> &'static [KeySpec] {
        &[
            ("include", ValueType::TextList),
            ("exclude", ValueType::TextList),
            ("verbatim", ValueType::Boolean),
        ]
    }

    fn for_connection(&self, connection: &Connection) -> Option<&'static dyn SourceAdapter> {
        let is_verbatim = connection.keys.0["verbatim"].as_bool();
        (is_verbatim == Some(true)).then_some(&VerbatimAdapter)
    }

    /// The folder of all pages that no other connection reads.
    fn propose<'a>(&self, scan: &ProposalScan<'a>) -> Vec<&'a str> {
        let is_page = |path: &&str| {
            let name = split(path).1;
            let stem = name.split('.').next().unwrap_or(name);
            !ABOUT.iter().any(|about| stem.eq_ignore_ascii_case(about)) && !scan.is_read(path)
        };
        let pages: Vec<&str> = prose(scan).into_iter().filter(is_page).collect();
        common_folder(&pages).into_iter().collect()
    }

    fn proposed_lists(&self, scan: &ProposalScan<'_>, folder: &str) -> ProposedLists {
        let mut exclude: Vec<String> = NO_PROSE.map(str::to_owned).into();
        exclude.extend(
            CONDUCT
                .iter()
                .filter_map(|path| within(path, folder))
                .map(str::to_owned),
        );
        let skills = skill_folders(scan);
        let skills = skills.iter().filter_map(|place| within(place, folder));
        exclude.extend(skills.map(|place| format!("{}/**", globset::escape(place))));
        exclude.retain(|pattern| excess(pattern).is_none());
        let (others, pages): (Vec<&str>, Vec<&str>) =
            prose(scan).into_iter().partition(|path| scan.is_read(path));
        let [others, pages] = [others, pages].map(|paths| {
            let paths = paths.into_iter();
            paths
                .filter_map(|path| within(path, folder))
                .collect::<Vec<&str>>()
        });
        exclude.extend(patterns_for(others, &pages));
        exclude.truncate(MAX_PATTERNS);
        vec![
            ("include", PROSE.map(str::to_owned).into()),
            ("exclude", exclude),
        ]
    }

    fn accepts_file(&self, path: &str) -> bool {
        has_extension(path, &EXTENSIONS) || has_extension(path, &INCLUDED_EXTENSIONS)
    }

    fn accepts_dir(&self, path: &str) -> bool {
        !DEPENDENCY_DIRS.contains(&path.rsplit('/').next().unwrap_or_default())
    }

    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        dir: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        let selected = FileSelection::read(origin.connection)?;
        let is_wanted = |path: &str| self.accepts_file(path) && selected.contains(path);
        let wanted = WalkFilter {
            accepts_file: &is_wanted,
            accepts_dir: &|path| self.accepts_dir(path),
        };
        let mut tree = walk_source(origin, dir, wanted)?;
        if selected.include.is_none() {
            let is_asked_for = |path: &str| has_extension(path, &INCLUDED_EXTENSIONS);
            let others = tree.files.extract_if(.., |file| is_asked_for(&file.path));
            let others: Vec<String> = others.map(|file| visible_path(&file.path)).collect();
            if !others.is_empty() {
                let help = format!(
                    "read them with `include: {PROSE:?}`, or leave them out with `exclude`"
                );
                let warning = Problem::new(".mdx and .rst files are in no unit");
                tree.warnings
                    .push(warning.with_files(others).with_help(help));
            }
        }
        Ok(tree)
    }

    fn detect(&self, tree: &SourceTree) -> Result<(), Problem> {
        if tree.files.is_empty() {
            Err(
                Problem::new("holds no .md, .markdown or .txt file that is included").with_help(
                    "point source_dir at a folder that does, or correct `include` and `exclude`",
                ),
            )
        } else {
            Ok(())
        }
    }

    fn chunk(&self, tree: &SourceTree, _: ProjectConnection<'_>) -> Result<ChunkedSource, Problem> {
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        let all = shared_names(paths.iter().copied());
        let units = unique_keys("docs", &paths, without_extension)
            .into_iter()
            .zip(&paths)
            .map(|(key, path)| UnitChunk {
                key,
                label: Some((*path).to_owned()),
                raw_files: vec![(*path).to_owned()],
                peer_file_index: peers(&all, &BTreeSet::from([*path])),
                ..UnitChunk::default()
            })
            .collect();
        Ok(ChunkedSource {
            units,
            ..ChunkedSource::default()
        })
    }

    fn skill(&self) -> Option<&'static str> {
        Some(include_str!("../../../assets/skills/docs_ingest/SKILL.md"))
    }
}

/// The keys of a [`FileSelection`].
pub(super) const SELECTION_KEYS: [KeySpec; 2] = [
    ("include", ValueType::TextList),
    ("exclude", ValueType::TextList),
];

/// The files that the lists of a connection select.
#[derive(Debug)]
pub(super) struct FileSelection {
    include: Option<GlobFilter>,
    exclude: Option<GlobFilter>,
}

impl FileSelection {
    pub(super) fn read(connection: &Connection) -> Result<Self, Problem> {
        Ok(Self {
            include: GlobFilter::read(connection, "include")?,
            exclude: GlobFilter::read(connection, "exclude")?,
        })
    }

    /// True if a pattern of `include` matches, or there is none, and none of `exclude` does.
    pub(super) fn contains(&self, path: &str) -> bool {
        let mut include = self.include.iter();
        include.all(|globs| globs.matches(path)) && !self.excludes(path)
    }

    /// True if a pattern of `exclude` matches.
    pub(super) fn excludes(&self, path: &str) -> bool {
        let mut exclude = self.exclude.iter();
        exclude.any(|globs| globs.matches(path))
    }
}

/// Patterns of paths, without regard to case.
#[derive(Debug, Default)]
struct GlobFilter(GlobSet);

impl GlobFilter {
    /// The patterns in the list of a connection; `None` if there are none.
    fn read(connection: &Connection, key: &str) -> Result<Option<Self>, Problem> {
        let list = connection.keys.0[key].as_array().into_iter().flatten();
        let patterns: Vec<&str> = list.filter_map(|pattern| pattern.as_str()).collect();
        if patterns.is_empty() {
            return Ok(None);
        }
        let globs = Self::new(&patterns).map_err(|why| why.prefixed(format_args!("its `{key}` ")));
        globs.map(Some)
    }

    /// The error continues a sentence about the list, and quotes no pattern.
    fn new(patterns: &[&str]) -> Result<Self, Problem> {
        if patterns.len() > MAX_PATTERNS {
            let problem = format!("has more than {MAX_PATTERNS} patterns");
            return Err(Problem::new(problem).with_help("use fewer, with `**` and `{a,b}`"));
        }
        let mut set = GlobSetBuilder::new();
        for (number, pattern) in (1..).zip(patterns) {
            let glob = GlobBuilder::new(pattern)
                .literal_separator(true)
                .case_insensitive(true)
                .build();
            let why = match (excess(pattern), glob) {
                (Some(why), _) => why,
                (None, Ok(glob)) => {
                    set.add(glob);
                    continue;
                }
                (None, Err(error)) => error.kind().to_string(),
            };
            return Err(format!("has an invalid pattern, number {number}: {why}").into());
        }
        let set = set.build().map_err(|_| Problem::new("is too complex"))?;
        Ok(Self(set))
    }

    fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

/// What a pattern has too much or too little of.
fn excess(pattern: &str) -> Option<String> {
    if pattern.trim().is_empty() {
        return Some("it is empty".into());
    }
    let branches = pattern.bytes().filter(|byte| b"*{".contains(byte)).count();
    if pattern.len() > MAX_PATTERN_BYTES || branches > MAX_BRANCHES {
        return Some(format!(
            "it has more than {MAX_PATTERN_BYTES} bytes, or more than {MAX_BRANCHES} `*` and `{{`"
        ));
    }
    None
}

/// The pages of a directory, including those that other connections read.
fn prose<'a>(scan: &ProposalScan<'a>) -> Vec<&'a str> {
    let [prose, others] = [&PROSE[..], &[&NO_PROSE[..], &CONDUCT].concat()]
        .map(|patterns| GlobFilter::new(patterns).unwrap_or_default());
    let skills = skill_folders(scan);
    let is_page = |path: &&str| {
        prose.matches(path)
            && !others.matches(path)
            && !skills.iter().any(|folder| is_below(path, folder))
    };
    scan.paths.iter().copied().filter(is_page).collect()
}

/// The patterns that match all of `paths` and none of `pages`, as few as possible: of folders, of names, or of one path.
fn patterns_for(mut paths: Vec<&str>, pages: &[&str]) -> Vec<String> {
    let mut patterns = Vec::new();
    while let Some(path) = paths.first().copied()
        && patterns.len() < MAX_PATTERNS
    {
        let folders = std::iter::successors(Some(split(path).0), |folder| Some(split(folder).0));
        let folders = folders.take_while(|folder| !folder.is_empty());
        let name = format!("**/{}", globset::escape(split(path).1));
        let wider = folders.map(|folder| format!("{}/**", globset::escape(folder)));
        let mut best = (globset::escape(path), vec![path]);
        for pattern in wider
            .chain([name])
            .filter(|pattern| excess(pattern).is_none())
        {
            let globs = GlobFilter::new(&[&pattern]).unwrap_or_default();
            if pages.iter().any(|page| globs.matches(page)) {
                continue;
            }
            let matched = paths.iter().copied().filter(|path| globs.matches(path));
            let matched: Vec<&str> = matched.collect();
            if matched.len() > best.1.len() {
                best = (pattern, matched);
            }
        }
        let covered: HashSet<&str> = best.1.into_iter().collect();
        paths.retain(|path| !covered.contains(path));
        patterns.extend(Some(best.0).filter(|pattern| excess(pattern).is_none()));
    }
    patterns
}

/// The folders of skills for agents, or the folder `skills` that holds them.
fn skill_folders<'a>(scan: &ProposalScan<'a>) -> BTreeSet<&'a str> {
    let skills = scan.paths.iter().map(|path| split(path));
    let skills = skills.filter(|(folder, name)| *name == "SKILL.md" && !folder.is_empty());
    let top = |folder: &'a str| match split(folder).0 {
        above if split(above).1 == "skills" => above,
        _ => folder,
    };
    skills.map(|(folder, _)| top(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        project::{Connection, ConnectionKeys, SourceLocation},
        source::tests::{anywhere, tree_of},
    };
    use ingestdeck_core::diagnostic::to_lines;

    #[test]
    fn texts_of_installed_packages_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folders = [
            "",
            "node_modules/x/",
            "web/node_modules/x/",
            ".venv/",
            "venv/lib/",
            "vendor/",
            "target/doc/",
            "targets/",
        ];
        for folder in folders {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("a.md"), "# A\n").unwrap();
        }
        let connection = Connection {
            source: Some(SourceLocation::Dir(".".into())),
            ..Connection::default()
        };
        let origin = ProjectConnection {
            project: &root,
            connection: &connection,
            ..anywhere()
        };
        let tree = DocsAdapter.list_files(origin, Ok(root.clone())).unwrap();
        assert_eq!(
            tree.files
                .iter()
                .map(|file| file.path.as_str())
                .collect::<Vec<_>>(),
            ["a.md", "targets/a.md"]
        );
    }

    /// The files of a connection with these keys, and the warnings; or why there are none.
    fn listed(files: &[&str], keys: &str) -> Result<(Vec<String>, Vec<String>), String> {
        let files: Vec<(&str, &str)> = files.iter().map(|path| (*path, "# A\n")).collect();
        let (dir, _) = tree_of(&files);
        let root = dir.path().canonicalize().unwrap();
        let keys = crate::yaml::parse_tree(keys).unwrap().to_json();
        let connection = Connection {
            keys: ConnectionKeys(keys),
            ..Connection::default()
        };
        let origin = ProjectConnection {
            project: &root,
            connection: &connection,
            ..anywhere()
        };
        let tree = DocsAdapter.list_files(origin, Ok(root.clone()));
        let tree = tree.map_err(|problem| problem.to_string())?;
        let paths = tree.files.into_iter().map(|file| file.path);
        Ok((paths.collect(), to_lines(&tree.warnings)))
    }

    #[test]
    fn patterns_select_files() {
        let files = [
            "a.md",
            "b.TXT",
            "c.mdx",
            "d/e.md",
            "d/f.RST",
            "d/g.png",
            "d/skip/h.md",
        ];
        let (plain, warnings) = listed(&files, "").unwrap();
        assert_eq!(plain, ["a.md", "b.TXT", "d/e.md", "d/skip/h.md"]);
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].starts_with(".mdx and .rst files are in no unit: c.mdx, d/f.RST"),
            "{warnings:?}"
        );
        let cases = [
            (
                "include: ['d/**']",
                &["d/e.md", "d/f.RST", "d/skip/h.md"][..],
            ),
            (
                "{include: ['*.{md,mdx}', 'D/*'], exclude: [a.MD]}",
                &["c.mdx", "d/e.md", "d/f.RST"],
            ),
            (
                "exclude: ['**/skip/**', '*.mdx', '**/*.rst']",
                &["a.md", "b.TXT", "d/e.md"],
            ),
        ];
        for (keys, expected) in cases {
            assert_eq!(
                listed(&files, keys).unwrap(),
                (
                    expected.iter().map(ToString::to_string).collect(),
                    Vec::new()
                ),
                "{keys}"
            );
        }
        assert_eq!(
            listed(&files, "{include: [], exclude: []}").unwrap().0,
            plain
        );
    }

    #[test]
    fn hostile_patterns_are_refused() {
        let long = format!("include: ['{}']", "a".repeat(MAX_PATTERN_BYTES + 1));
        let many = format!("exclude: [{}]", "a, ".repeat(MAX_PATTERNS + 1));
        let deep = format!("include: ['{}']", "{".repeat(MAX_PATTERN_BYTES));
        let cases = [
            "include: ['a', '[hunter2']",
            "exclude: [' ']",
            "include: ['[z-a]']",
            &long,
            &many,
            &deep,
            "include: ['a{b']",
        ];
        let refused = cases
            .map(|keys| listed(&["a.md"], keys).unwrap_err())
            .join("\n");
        insta::assert_snapshot!(refused, @r"
        its `include` has an invalid pattern, number 2: unclosed character class; missing ']'
        its `exclude` has an invalid pattern, number 1: it is empty
        its `include` has an invalid pattern, number 1: invalid range; 'z' > 'a'
        its `include` has an invalid pattern, number 1: it has more than 200 bytes, or more than 12 `*` and `{`
        its `exclude` has more than 100 patterns
        its `include` has an invalid pattern, number 1: it has more than 200 bytes, or more than 12 `*` and `{`
        its `include` has an invalid pattern, number 1: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
        ");
    }
}
