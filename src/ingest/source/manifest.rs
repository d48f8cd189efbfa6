//! The `manifest` adapter: units that somebody else has cut, in a file of JSON or JSON lines.
//!
//! One object a unit, with KTX's names: `unitKey`, `rawFiles`, and where wanted `displayLabel`, `dependencyPaths`,
//! `peerFileIndex`, `notes`, `slDisallowed`, `slDisallowedReason`. The file is a contract between two programs, so the
//! first fault in it stops the connection, with its line. It must not guess.

use crate::scoped_dir::{self, ScopedDir};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Adapter, Chunk, Chunks, Origin, PEERS, SourceError, Tree, display,
    print::Stamp,
    slug::LONGEST as LONGEST_KEY,
    source_root,
    tree::{RawFile, presentable, shown, without_headings},
    written_by_runs,
};
use crate::ingest::{project::nearest, reconcile::RECONCILE};

/// Ready-made units.
#[derive(Debug)]
pub(crate) struct Manifest;

/// Largest manifest, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;
/// Keys of a unit.
const KEYS: [&str; 9] = [
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
/// Keys that a list of units may stand at.
const LISTS: [&str; 2] = ["workUnits", "units"];

impl Adapter for Manifest {
    fn name(&self) -> &'static str {
        "manifest"
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    /// The files that its units name, and no others.
    fn gather(&self, origin: Origin<'_>) -> Result<Tree, String> {
        let list = List::read(origin)?;
        let root = list.root.clone();
        let folder = ScopedDir::open(&root).map_err(|error| format!("cannot read {}: {error}", display(&root)))?;
        let ours = written_by_runs(origin.project, &root);
        let mut found: BTreeMap<&str, RawFile> = BTreeMap::new();
        for (line, path) in list.paths() {
            if found.contains_key(path) {
                continue;
            }
            origin.policy.check(origin.project, &root.join(path)).map_err(|why| list.fault(line, &why.to_string()))?;
            if ours.iter().any(|our| Path::new(path).starts_with(our)) {
                let why = format!("`{}` is where runs write; point source_dir at a folder to read it", shown(path));
                return Err(list.fault(line, &why));
            }
            let file = folder.open_file(path).and_then(|(file, _)| file.metadata());
            let file = file.map_err(|error| {
                list.fault(line, &format!("`{}` is not to be had below {}: {error}", shown(path), display(&root)))
            })?;
            found.insert(path, RawFile::new(path.to_owned(), Stamp::of(&file)));
        }
        let files = found.into_values().collect();
        Ok(Tree { root, files, ..Tree::default() })
    }

    fn detect(&self, _: &Tree) -> Result<(), String> {
        Ok(())
    }

    fn chunk(&self, tree: &Tree, origin: Origin<'_>) -> Result<Chunks, String> {
        let list = List::read(origin)?;
        if let Some((line, path)) = list.paths().find(|(_, path)| tree.get(path).is_none()) {
            let skipped = format!("{} is skipped: ", shown(path));
            let why = tree.warnings.iter().find_map(|warning| warning.strip_prefix(&skipped)).unwrap_or("it is gone");
            return Err(list.fault(line, &format!("`{}` cannot be used: {why}", shown(path))));
        }
        Ok(Chunks { units: list.units.into_iter().map(|(_, unit)| unit.into()).collect(), warnings: Vec::new() })
    }

    fn skills(&self) -> &'static [&'static str] {
        &[]
    }
}

/// A unit as the file has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unit {
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

impl From<Unit> for Chunk {
    fn from(unit: Unit) -> Self {
        let reason = unit.sl_disallowed_reason.unwrap_or_else(|| "manifest".into());
        Self {
            key: unit.unit_key,
            label: unit.display_label,
            raw_files: unit.raw_files,
            dependency_paths: unit.dependency_paths,
            peer_file_index: unit.peer_file_index.into_iter().take(PEERS).map(Arc::from).collect(),
            notes: unit.notes.map(|notes| without_headings(&notes)),
            sl_disallowed: unit.sl_disallowed.then_some(reason),
            behind: Vec::new(),
        }
    }
}

/// What is wrong, and on which line.
type Fault = (usize, String);

/// The file, read and found sound.
struct List {
    file: PathBuf,
    /// What its paths are relative to.
    root: PathBuf,
    /// Units with the lines that they begin on.
    units: Vec<(usize, Unit)>,
}

impl List {
    fn read(origin: Origin<'_>) -> Result<Self, String> {
        let Some(path) = &origin.connection.subdir else {
            return Err("it names no manifest; set path to a file of units (JSON, or one unit a line)".into());
        };
        let file = origin.project.join(path);
        let text = text(origin, &file)?;
        let folder = file.parent().unwrap_or(origin.project);
        let root = match source_root(origin) {
            Err(SourceError::Nowhere) => {
                let root = origin.resolve(folder).map_err(|_| missing(&file))?;
                root.map_err(|refusal| refusal.to_string())?
            }
            other => other.map_err(|why| why.to_string())?,
        };
        let mut list = Self { file, root, units: Vec::new() };
        list.units = units(&text).map_err(|(line, problem)| list.fault(line, &problem))?;
        Ok(list)
    }

    fn fault(&self, line: usize, problem: &str) -> String {
        format!("{} line {line}: {problem}", display(&self.file))
    }

    /// Every file that a unit may read, with the line of the unit.
    fn paths(&self) -> impl Iterator<Item = (usize, &str)> {
        self.units.iter().flat_map(|(line, unit)| {
            unit.raw_files.iter().chain(&unit.dependency_paths).map(|path| (*line, path.as_str()))
        })
    }
}

fn missing(file: &Path) -> String {
    format!("its manifest {} does not exist; correct path in ktx.yaml", display(file))
}

fn text(origin: Origin<'_>, file: &Path) -> Result<String, String> {
    let cannot = |why: &str| format!("cannot read its manifest {}: {why}", display(file));
    let real = match origin.resolve(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(file)),
        Err(error) => return Err(cannot(&error.to_string())),
        Ok(resolved) => resolved.map_err(|refusal| refusal.to_string())?,
    };
    let (Some(folder), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str())) else {
        return Err(cannot("its name is not UTF-8 text"));
    };
    let bytes = ScopedDir::open(folder).and_then(|folder| folder.read(name, LARGEST));
    let bytes = bytes.map_err(|error| cannot(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8 text; save it as UTF-8"))
}

/// The units of a manifest: a list, an object with a list, or objects one after the other.
fn units(text: &str) -> Result<Vec<(usize, Unit)>, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut values: Vec<&RawValue> = Vec::new();
    let stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    for value in stream {
        values.push(value.map_err(|error| syntax(1, &error))?);
    }
    let line = |value: &RawValue| line_of(text, value);
    let members = match values.as_slice() {
        [] => return Err((1, "it holds no units".into())),
        [only] if only.get().starts_with('[') => members(only).map_err(|error| syntax(line(only), &error))?,
        [only] => match container(only) {
            Some((key, list)) => members(list).map_err(|_| (line(list), format!("{key} must be a list of units")))?,
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
            return Err((at, format!("unitKey `{}` is taken already on line {first}", shown(&unit.unit_key))));
        }
        units.push((at, unit));
    }
    Ok(units)
}

fn members(list: &RawValue) -> serde_json::Result<Vec<&RawValue>> {
    serde_json::from_str(list.get())
}

/// The list inside an object that is no unit itself.
fn container(value: &RawValue) -> Option<(&'static str, &RawValue)> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).ok()?;
    LISTS.into_iter().find_map(|key| Some((key, *object.get(key)?)))
}

/// The line of `text` that `value`, a part of it, begins on.
fn line_of(text: &str, value: &RawValue) -> usize {
    let offset = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    1 + memchr::memchr_iter(b'\n', text.as_bytes().get(..offset).unwrap_or_default()).count()
}

fn syntax(first_line: usize, error: &serde_json::Error) -> Fault {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    (first_line + error.line().max(1) - 1, message.to_owned())
}

/// One unit; lines of faults count from 0 here.
fn unit(value: &RawValue) -> Result<Unit, Fault> {
    let object: BTreeMap<String, &RawValue> = serde_json::from_str(value.get())
        .map_err(|_| (0, "a unit must be an object with unitKey and rawFiles".to_owned()))?;
    if let Some((key, at)) = object.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        let hint = nearest(key, &KEYS).map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        return Err((line_of(value.get(), at) - 1, format!("unknown key `{}`{hint}", shown(key))));
    }
    let unit: Unit = serde_json::from_str(value.get()).map_err(|error| syntax(0, &error))?;
    match sound(&unit) {
        Some(problem) => Err((0, problem)),
        None => Ok(unit),
    }
}

/// What is wrong with a unit.
fn sound(unit: &Unit) -> Option<String> {
    let key = unit.unit_key.as_str();
    let one_line = [
        ("unitKey", Some(key)),
        ("displayLabel", unit.display_label.as_deref()),
        ("slDisallowedReason", unit.sl_disallowed_reason.as_deref()),
    ];
    if key.trim().is_empty() || key.trim() != key {
        return Some("unitKey must be a name, without space around it".into());
    }
    if key.len() > LONGEST_KEY || key.contains(['/', '\\']) || key.starts_with('.') {
        return Some(format!(
            "unitKey `{}` names files, so it may have at most {LONGEST_KEY} bytes, no slash, and no dot in front",
            shown(key).chars().take(60).collect::<String>()
        ));
    }
    if key == RECONCILE {
        return Some(format!("unitKey `{RECONCILE}` is the name of the pass over all units; choose another"));
    }
    if let Some((name, text)) = one_line.into_iter().find(|(_, text)| text.is_some_and(|text| !presentable(text))) {
        return Some(format!("{name} `{}` holds characters that cannot be shown", shown(text.unwrap_or_default())));
    }
    if unit.raw_files.is_empty() {
        return Some(format!("unit `{key}` has no rawFiles"));
    }
    let mut seen = BTreeSet::new();
    for path in unit.raw_files.iter().chain(&unit.dependency_paths) {
        if !presentable(path) || scoped_dir::check(path).is_err() {
            return Some(format!("`{}` is not a plain path below the source", shown(path)));
        }
        if !seen.insert(path) {
            return Some(format!("unit `{key}` names `{}` twice", shown(path)));
        }
    }
    let hostile = unit.peer_file_index.iter().find(|name| !presentable(name));
    hostile.map(|name| format!("peerFileIndex names `{}`, which cannot be shown", shown(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ingest::{
        project::Connection,
        source::{print, tests::anywhere},
    };

    fn chunk(file: &str, text: &str) -> Result<Chunks, String> {
        let dir = tempfile::tempdir().unwrap();
        for path in ["in/a.sql", "in/b/c.md"] {
            fs::create_dir_all(dir.path().join(path).parent().unwrap()).unwrap();
            fs::write(dir.path().join(path), "text").unwrap();
        }
        fs::write(dir.path().join("in/bad.bin"), [0, 1]).unwrap();
        fs::write(dir.path().join("in").join(file), text).unwrap();
        let connection = Connection { subdir: Some(format!("in/{file}")), ..Connection::default() };
        let root = dir.path().canonicalize().unwrap();
        let origin = Origin { project: &root, connection: &connection, ..anywhere() };
        let told = |why: String| why.replace(&root.display().to_string(), "<dir>");
        let mut tree = Manifest.gather(origin).map_err(told)?;
        print::read(&mut tree, &print::Known::new());
        Manifest.chunk(&tree, origin).map_err(told)
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
        let all: Vec<Chunks> = shapes.iter().map(|text| chunk("units.json", text).unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        let [first, second] = &all[0].units[..] else { panic!("two units") };
        assert_eq!(
            (first.key.as_str(), first.label.as_deref(), first.sl_disallowed.as_deref()),
            ("x", Some("X"), Some("manifest"))
        );
        assert_eq!((first.dependency_paths[0].as_str(), second.label.as_deref()), ("b/c.md", Some("Y")));
        assert_eq!(chunk("one.jsonl", two).unwrap().units.len(), 1);
    }

    #[test]
    fn a_fault_is_told_with_its_line() {
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
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"a.sql\"],\"dependencyPaths\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"gone.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"h\",\"rawFiles\":[\"bad.bin\"]}}"),
            format!("{good}\n{{\"unitKey\":\"../h\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"reconcile\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"a\\nb\",\"rawFiles\":[\"a.sql\"]}}"),
            format!("{good}\n{{\"unitKey\":\"a\\u202eb\",\"rawFiles\":[\"a.sql\"]}}"),
            "{\"workUnits\": 3}".into(),
        ];
        let told: Vec<String> = faults.iter().map(|text| chunk("u.jsonl", text).unwrap_err()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn the_file_itself_may_be_missing_or_odd() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let read = |path: Option<&str>, source: Option<&str>| {
            let source = source.map(|dir| crate::ingest::project::SourceAt::Dir(dir.into()));
            let connection = Connection { subdir: path.map(str::to_owned), source, ..Connection::default() };
            List::read(Origin { project: &root, connection: &connection, ..anywhere() }).map(|list| list.root)
        };
        assert!(read(None, None).unwrap_err().contains("set path to a file of units"));
        assert!(read(Some("no/units.json"), None).unwrap_err().contains("does not exist"));
        assert!(read(Some("."), None).unwrap_err().contains("not a regular file"));
        fs::write(dir.path().join("u.json"), [0xff]).unwrap();
        assert!(read(Some("u.json"), None).unwrap_err().contains("not UTF-8"));
        fs::write(dir.path().join("u.json"), r#"[{"unitKey":"x","rawFiles":["a"]}]"#).unwrap();
        fs::create_dir(dir.path().join("raw")).unwrap();
        assert_eq!(read(Some("u.json"), None).unwrap(), root);
        assert_eq!(read(Some("u.json"), Some("raw")).unwrap(), root.join("raw"));
        assert!(read(Some("u.json"), Some("none")).unwrap_err().contains("does not exist"));
        assert_eq!(Path::new("u.json").parent(), Some(Path::new("")));
    }
}
