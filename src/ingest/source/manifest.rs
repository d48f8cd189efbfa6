//! The `manifest` adapter: units that another program has cut, in a JSON or JSON lines file.
//!
//! One object per unit, with KTX's names: `unitKey`, `rawFiles`, and optionally `displayLabel`, `dependencyPaths`,
//! `peerFileIndex`, `notes`, `slDisallowed`, `slDisallowedReason`. The file is a contract between two programs, so the
//! first error in it skips the connection and is reported with its line. This module must not guess.

use ingestdeck_core::{diagnostic::Problem, run::state::RECONCILE_KEY};
use ingestdeck_os::scoped_dir::{self, ScopedDir};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::sys::stat::fstat;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    ChunkedSource, MAX_PEERS, ProjectConnection, SourceAdapter, SourceDirError, SourceTree,
    UnitChunk, display_path,
    file_stamp::FileStamp,
    references::{FileReferences, ReferenceReader, file_name},
    run_output_dirs, source_root_dir,
    tree::{RawFile, hard_link_refusal},
};
use crate::{
    connection::Connection,
    slug::MAX_KEY_BYTES as LONGEST_KEY,
    spelling::nearest_name,
    untrusted_text::{escape_headings, is_presentable, visible_path},
};

#[derive(Debug)]
pub(crate) struct ManifestAdapter;

/// Largest manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024 * 1024;
/// Keys of a unit.
const UNIT_KEYS: [&str; 9] = [
    "unitKey",
    "displayLabel",
    "label",
    "rawFiles",
    "dependencyPaths",
    "peerFileIndex",
    "notes",
    "slDisallowed",
    "slDisallowedReason",
];
/// Keys that may contain the list of units.
const LIST_KEYS: [&str; 2] = ["workUnits", "units"];

impl SourceAdapter for ManifestAdapter {
    fn name(&self) -> &'static str {
        "manifest"
    }

    fn accepts_file(&self, _: &str) -> bool {
        true
    }

    /// Only the files that the units name.
    fn list_files(
        &self,
        origin: ProjectConnection<'_>,
        _: Result<PathBuf, SourceDirError>,
    ) -> Result<SourceTree, Problem> {
        let list = ManifestFile::read(origin)?;
        let root = list.root.clone();
        let folder = ScopedDir::open(&root).map_err(|error| {
            Problem::new(format!("cannot read {}: {error}", display_path(&root)))
        })?;
        let ours = run_output_dirs(origin.project, &root);
        let mut found: BTreeMap<&str, RawFile> = BTreeMap::new();
        for (line, path) in list.paths() {
            if found.contains_key(path) {
                continue;
            }
            origin
                .check(&root.join(path))
                .map_err(|why| list.fault(line, Problem::from_error(&why)))?;
            if ours.iter().any(|our| Path::new(path).starts_with(our)) {
                let why = Problem::new(format!("`{}` is where runs write", visible_path(path)));
                return Err(list.fault(
                    line,
                    why.with_help("point source_dir at a folder to read it"),
                ));
            }
            let stat = folder
                .open_file(path)
                .and_then(|(file, _)| Ok(fstat(&file)?));
            let stat = stat.map_err(|error| {
                list.fault(
                    line,
                    Problem::new(format!(
                        "cannot read `{}` below {}: {error}",
                        visible_path(path),
                        display_path(&root)
                    )),
                )
            })?;
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            if let Some(why) =
                hard_link_refusal(&stat, || folder.dir(parent, None)?.entry_stat("."))
            {
                return Err(list.fault(
                    line,
                    Problem::new(format!("cannot read `{}`: {why}", visible_path(path))),
                ));
            }
            found.insert(
                path,
                RawFile::new(path.to_owned(), FileStamp::from_stat(&stat)),
            );
        }
        let files = found.into_values().collect();
        Ok(SourceTree {
            root,
            files,
            ..SourceTree::default()
        })
    }

    fn detect(&self, _: &SourceTree) -> Result<(), Problem> {
        Ok(())
    }

    fn chunk(
        &self,
        tree: &SourceTree,
        origin: ProjectConnection<'_>,
    ) -> Result<ChunkedSource, Problem> {
        let list = ManifestFile::read(origin)?;
        if let Some((line, path)) = list.paths().find(|(_, path)| tree.get(path).is_none()) {
            let skipped = format!("{} is skipped: ", visible_path(path));
            let warnings = tree.warnings.iter().map(ToString::to_string);
            let why = warnings
                .filter_map(|warning| Some(warning.strip_prefix(&skipped)?.to_owned()))
                .next();
            let why = why.as_deref().unwrap_or("it is gone");
            return Err(list.fault(
                line,
                Problem::new(format!("`{}` cannot be used: {why}", visible_path(path))),
            ));
        }
        Ok(ChunkedSource {
            units: list
                .units
                .into_iter()
                .map(|(_, unit)| unit.into())
                .collect(),
            ..ChunkedSource::default()
        })
    }

    fn shares_files(&self) -> bool {
        true
    }

    /// Dependencies are explicit, so each of them is a reference.
    fn reference_reader<'a>(
        &self,
        _: &Connection,
        _: &'a SourceTree,
        _: &'a [String],
    ) -> Option<Box<dyn ReferenceReader + 'a>> {
        Some(Box::new(ManifestReferences))
    }
}

/// A unit in the format of the file.
struct ManifestReferences;

impl ReferenceReader for ManifestReferences {
    fn references(&mut self, unit: &UnitChunk, _: &str) -> FileReferences {
        let open_names = unit
            .dependency_paths
            .iter()
            .map(|path| file_name(path))
            .collect();
        FileReferences {
            open_names,
            ..FileReferences::default()
        }
    }

    fn refers_to_undefined(&mut self, _: &FileReferences) -> bool {
        false
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestUnit {
    unit_key: String,
    #[serde(alias = "label")]
    display_label: Option<String>,
    raw_files: Vec<String>,
    #[serde(default)]
    dependency_paths: Vec<String>,
    #[serde(default)]
    peer_file_index: Vec<String>,
    notes: Option<String>,
    #[serde(default)]
    sl_disallowed: bool,
    sl_disallowed_reason: Option<String>,
}

impl From<ManifestUnit> for UnitChunk {
    fn from(unit: ManifestUnit) -> Self {
        let reason = unit
            .sl_disallowed_reason
            .unwrap_or_else(|| "manifest".into());
        Self {
            key: unit.unit_key,
            label: unit.display_label,
            raw_files: unit.raw_files,
            dependency_paths: unit.dependency_paths,
            peer_file_index: unit
                .peer_file_index
                .into_iter()
                .take(MAX_PEERS)
                .map(Arc::from)
                .collect(),
            notes: unit.notes.map(|notes| escape_headings(&notes)),
            sl_disallowed: unit.sl_disallowed.then_some(reason),
            upstream_files: Vec::new(),
            assigned_lines: None,
        }
    }
}

/// Line and description of an error.
type ManifestFault = (usize, Problem);

/// A parsed and validated manifest.
struct ManifestFile {
    file: PathBuf,
    /// Directory that its paths are relative to.
    root: PathBuf,
    /// Units, each with the line on which it begins.
    units: Vec<(usize, ManifestUnit)>,
}

impl ManifestFile {
    fn read(origin: ProjectConnection<'_>) -> Result<Self, Problem> {
        let Some(path) = &origin.connection.subdir else {
            return Err(Problem::new("it names no manifest")
                .with_help("set path to a file of units (JSON, or one unit a line)"));
        };
        let file = origin.project.join(path);
        let text = text(origin, &file)?;
        let folder = file.parent().unwrap_or(origin.project);
        let root = match source_root_dir(origin) {
            Err(SourceDirError::NotConfigured) => {
                let root = origin.resolve(folder).map_err(|_| missing(&file))?;
                root.map_err(|refusal| Problem::from_error(&refusal))?
            }
            other => other.map_err(|why| Problem::from_error(&why))?,
        };
        let mut list = Self {
            file,
            root,
            units: Vec::new(),
        };
        list.units = units(&text).map_err(|(line, problem)| list.fault(line, problem))?;
        Ok(list)
    }

    fn fault(&self, line: usize, problem: Problem) -> Problem {
        problem.prefixed(format_args!("{} line {line}: ", display_path(&self.file)))
    }

    /// Every file that a unit may read, with the line of the unit.
    fn paths(&self) -> impl Iterator<Item = (usize, &str)> {
        self.units.iter().flat_map(|(line, unit)| {
            unit.raw_files
                .iter()
                .chain(&unit.dependency_paths)
                .map(|path| (*line, path.as_str()))
        })
    }
}

fn missing(file: &Path) -> Problem {
    Problem::new(format!(
        "its manifest {} does not exist",
        display_path(file)
    ))
    .with_help("correct path in ktx.yaml")
}

fn text(origin: ProjectConnection<'_>, file: &Path) -> Result<String, Problem> {
    let cannot = |why: &str| {
        Problem::new(format!(
            "cannot read its manifest {}: {why}",
            display_path(file)
        ))
    };
    let real = match origin.resolve(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(file)),
        Err(error) => return Err(cannot(&error.to_string())),
        Ok(resolved) => resolved.map_err(|refusal| Problem::from_error(&refusal))?,
    };
    let (Some(folder), Some(name)) = (
        real.parent(),
        real.file_name().and_then(|name| name.to_str()),
    ) else {
        return Err(cannot("its name is not UTF-8 text"));
    };
    let bytes = ScopedDir::open(folder).and_then(|folder| folder.read(name, MAX_MANIFEST_BYTES));
    let bytes = bytes.map_err(|error| cannot(&error.to_string()))?;
    String::from_utf8(bytes)
        .map_err(|_| cannot("it is not UTF-8 text").with_help("save it as UTF-8"))
}

/// Parses the units of a manifest: a list, an object with a list, or a sequence of objects.
fn units(text: &str) -> Result<Vec<(usize, ManifestUnit)>, ManifestFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut values: Vec<&RawValue> = Vec::new();
    let stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for value in stream {
        values.push(value.map_err(|error| syntax_fault(1, &error))?);
    }
    let lines = LineStarts::new(text);
    let line = |value: &RawValue| lines.line_of(value);
    let members = match values.as_slice() {
        [] => return Err((1, Problem::new("it holds no units"))),
        [only] if only.get().starts_with('[') => {
            members(only).map_err(|error| syntax_fault(line(only), &error))?
        }
        [only] => match unit_list(only) {
            Some((key, list)) => members(list).map_err(|_| {
                (
                    line(list),
                    Problem::new(format!("{key} must be a list of units")),
                )
            })?,
            None => values,
        },
        _ => values,
    };
    let mut keys: BTreeMap<String, usize> = BTreeMap::new();
    let mut units = Vec::with_capacity(members.len());
    for value in members {
        let at = line(value);
        let unit = unit(value).map_err(|(offset, problem)| (at + offset, problem))?;
        if let Some(first) = keys.insert(unit.unit_key.clone(), at) {
            let key = visible_path(&unit.unit_key);
            return Err((
                at,
                Problem::new(format!(
                    "duplicate unitKey `{key}`, already on line {first}"
                )),
            ));
        }
        units.push((at, unit));
    }
    Ok(units)
}

fn members(list: &RawValue) -> serde_json::Result<Vec<&RawValue>> {
    serde_json::from_str(list.get())
}

/// The list of units inside an object that is not a unit itself.
fn unit_list(value: &RawValue) -> Option<(&'static str, &RawValue)> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).ok()?;
    LIST_KEYS
        .into_iter()
        .find_map(|key| Some((key, *object.get(key)?)))
}

/// The lines of a text. A manifest asks for the line of every unit, so they are counted only once.
struct LineStarts<'a> {
    text: &'a str,
    /// Offsets of the line feeds, in bytes.
    line_feeds: Vec<usize>,
}

impl<'a> LineStarts<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            line_feeds: memchr::memchr_iter(b'\n', text.as_bytes()).collect(),
        }
    }

    /// The line on which `value`, a part of the text, begins, from 1.
    fn line_of(&self, value: &RawValue) -> usize {
        let offset = (value.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        1 + self
            .line_feeds
            .partition_point(|line_feed| *line_feed < offset)
    }
}

fn syntax_fault(first_line: usize, error: &serde_json::Error) -> ManifestFault {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    (first_line + error.line().max(1) - 1, Problem::new(message))
}

/// Parses one unit. Lines of errors count from 0 at its beginning.
fn unit(value: &RawValue) -> Result<ManifestUnit, ManifestFault> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).map_err(|_| {
        (
            0,
            Problem::new("a unit must be an object with unitKey and rawFiles"),
        )
    })?;
    if let Some((key, at)) = object
        .iter()
        .find(|(key, _)| !UNIT_KEYS.contains(&key.as_str()))
    {
        let problem = Problem::new(format!("unknown key `{}`", visible_path(key)));
        let problem = match nearest_name(key, &UNIT_KEYS) {
            Some(name) => problem.with_help(format!("did you mean `{name}`?")),
            None => problem,
        };
        return Err((LineStarts::new(value.get()).line_of(at) - 1, problem));
    }
    let unit: ManifestUnit =
        serde_json::from_str(value.get()).map_err(|error| syntax_fault(0, &error))?;
    match unit_problem(&unit) {
        Some(problem) => Err((0, problem)),
        None => Ok(unit),
    }
}

/// The first problem of a unit.
fn unit_problem(unit: &ManifestUnit) -> Option<Problem> {
    let key = unit.unit_key.as_str();
    let one_line = [
        ("unitKey", Some(key)),
        ("displayLabel", unit.display_label.as_deref()),
        ("slDisallowedReason", unit.sl_disallowed_reason.as_deref()),
    ];
    if key.trim().is_empty() || key.trim() != key {
        return Some(Problem::new(
            "unitKey must be a name, without space around it",
        ));
    }
    if key.len() > LONGEST_KEY || key.contains(['/', '\\']) || key.starts_with('.') {
        return Some(Problem::new(format!(
            "unitKey `{}` names files, so it may have at most {LONGEST_KEY} bytes, no slash, and no dot in front",
            visible_path(key).chars().take(60).collect::<String>()
        )));
    }
    if key == RECONCILE_KEY {
        return Some(
            Problem::new(format!(
                "unitKey `{RECONCILE_KEY}` is reserved for the reconcile step"
            ))
            .with_help("choose another"),
        );
    }
    if let Some((name, text)) = one_line
        .into_iter()
        .find(|(_, text)| text.is_some_and(|text| !is_presentable(text)))
    {
        return Some(Problem::new(format!(
            "{name} `{}` holds characters that cannot be shown",
            visible_path(text.unwrap_or_default())
        )));
    }
    if unit.raw_files.is_empty() {
        return Some(Problem::new(format!("unit `{key}` has no rawFiles")));
    }
    let mut seen = BTreeSet::new();
    for path in unit.raw_files.iter().chain(&unit.dependency_paths) {
        if !is_presentable(path) || scoped_dir::validate_relative_path(path).is_err() {
            return Some(Problem::new(format!(
                "`{}` is not a plain path below the source",
                visible_path(path)
            )));
        }
        if !seen.insert(path) {
            return Some(Problem::new(format!(
                "unit `{key}` names `{}` twice",
                visible_path(path)
            )));
        }
    }
    let hostile = unit
        .peer_file_index
        .iter()
        .find(|name| !is_presentable(name));
    hostile.map(|name| {
        Problem::new(format!(
            "peerFileIndex names `{}`, which cannot be shown",
            visible_path(name)
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        project::Connection,
        source::{fingerprint, tests::anywhere},
    };
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn chunk(file: &str, text: &str) -> Result<ChunkedSource, String> {
        let dir = tempfile::tempdir().unwrap();
        for path in ["in/a.sql", "in/b/c.md"] {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "text").unwrap();
        }
        fs::write(dir.path().join("in/bad.bin"), [0, 1]).unwrap();
        fs::write(dir.path().join("in").join(file), text).unwrap();
        let connection = Connection {
            subdir: Some(format!("in/{file}")),
            ..Connection::default()
        };
        let root = dir.path().canonicalize().unwrap();
        let origin = ProjectConnection {
            project: &root,
            connection: &connection,
            ..anywhere()
        };
        let message = |why: Problem| why.to_line().replace(&root.display().to_string(), "<dir>");
        let mut tree = ManifestAdapter
            .list_files(origin, Err(SourceDirError::NotConfigured))
            .map_err(message)?;
        fingerprint::fingerprint_tree(&mut tree, &fingerprint::KnownFingerprints::new());
        ManifestAdapter.chunk(&tree, origin).map_err(message)
    }

    #[test]
    fn every_shape_of_list_is_read() {
        let one = r#"{"unitKey":"x","rawFiles":["a.sql"],"dependencyPaths":["b/c.md"],"notes":"n","displayLabel":"X","slDisallowed":true}"#;
        let two = r#"{"unitKey":"y","rawFiles":["b/c.md"],"label":"Y"}"#;
        let shapes = [
            format!("{one}\n\n{two}\r\n"),
            format!("[{one},\n{two}]"),
            format!("{{\"workUnits\": [{one}, {two}], \"reconcileNotes\": []}}"),
            format!("\u{feff}{{\"units\": [{one}, {two}]}}"),
        ];
        let all: Vec<ChunkedSource> = shapes
            .iter()
            .map(|text| chunk("units.json", text).unwrap())
            .collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        let [first, second] = &all[0].units[..] else {
            panic!("two units")
        };
        assert_eq!(
            (
                first.key.as_str(),
                first.label.as_deref(),
                first.sl_disallowed.as_deref()
            ),
            ("x", Some("X"), Some("manifest"))
        );
        assert_eq!(
            (first.dependency_paths[0].as_str(), second.label.as_deref()),
            ("b/c.md", Some("Y"))
        );
        assert_eq!(chunk("one.jsonl", two).unwrap().units.len(), 1);
    }

    #[test]
    fn manifest_fault_has_its_line() {
        let good = r#"{"unitKey":"g","rawFiles":["a.sql"]}"#;
        let faults = [
            "".to_owned(),
            "nonsense".into(),
            format!("{good}\n{{\"unitKey\":"),
            format!("{good}\n[1]"),
            format!("[{good},\n\n 3]"),
            format!("{good}\n{{\"unitKey\":\"h\",\n\"rawfiles\":[]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\n\"rawFiles\":[1]}}"),
            format!("{good}\n{good}"),
            format!("{good}\n{{\"unitKey\":\"h\"}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"../secret\"]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"/etc/passwd\"]}}"),
            format!(
                "{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"a.sql\"],\"dependencyPaths\":[\"a.sql\"]}}"
            ),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"gone.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"bad.bin\"]}}"),
            format!("{good}\n{{\"unitKey\":\"../h\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"reconcile\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"a\\nb\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"a\\u202eb\",\"rawFiles\":[\"a.sql\"]}}"),
            "{\"workUnits\": 3}".into(),
        ];
        let message: Vec<String> = faults
            .iter()
            .map(|text| chunk("u.jsonl", text).unwrap_err())
            .collect();
        insta::assert_snapshot!(message.join("\n"));
    }

    #[test]
    fn missing_or_invalid_manifest_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let read = |path: Option<&str>, source: Option<&str>| {
            let source = source.map(|dir| crate::project::SourceLocation::Dir(dir.into()));
            let connection = Connection {
                subdir: path.map(str::to_owned),
                source,
                ..Connection::default()
            };
            ManifestFile::read(ProjectConnection {
                project: &root,
                connection: &connection,
                ..anywhere()
            })
            .map(|list| list.root)
        };
        assert!(
            read(None, None)
                .unwrap_err()
                .to_line()
                .contains("set path to a file of units")
        );
        assert!(
            read(Some("no/units.json"), None)
                .unwrap_err()
                .to_line()
                .contains("does not exist")
        );
        assert!(
            read(Some("."), None)
                .unwrap_err()
                .to_line()
                .contains("not a regular file")
        );
        fs::write(dir.path().join("u.json"), [0xff]).unwrap();
        assert!(
            read(Some("u.json"), None)
                .unwrap_err()
                .to_line()
                .contains("not UTF-8")
        );
        fs::write(
            dir.path().join("u.json"),
            r#"[{"unitKey":"x","rawFiles":["a"]}]"#,
        )
        .unwrap();
        fs::create_dir(dir.path().join("raw")).unwrap();
        assert_eq!(read(Some("u.json"), None).unwrap(), root);
        assert_eq!(read(Some("u.json"), Some("raw")).unwrap(), root.join("raw"));
        assert!(
            read(Some("u.json"), Some("none"))
                .unwrap_err()
                .to_line()
                .contains("does not exist")
        );
        assert_eq!(Path::new("u.json").parent(), Some(Path::new("")));
    }
}
