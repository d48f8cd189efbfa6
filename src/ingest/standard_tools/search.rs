//! `glob` and `grep`: searches below the directory of a session.

use std::{
    io,
    time::{Duration, Instant},
};

use globset::{GlobBuilder, GlobMatcher};
use regex_lite::RegexBuilder;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{MAX_REPLY_CHARS, SessionDir};
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Most files and directories that a search visits.
const MAX_ENTRIES: usize = 200_000;
/// Larger files are not searched, in bytes.
const MAX_SEARCHED_BYTES: u64 = 10 << 20;
/// Most characters of a line in a result.
const MAX_LINE_CHARS: usize = 300;
/// Longest time of a search; what was found until then is the result.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(30);
/// Most bytes of a compiled pattern.
const MAX_REGEX_BYTES: usize = 1 << 20;

const fn default_limit() -> usize {
    100
}

const fn default_max_results() -> usize {
    50
}

/// The arguments of `glob`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct FindFiles {
    /// Glob pattern (e.g., `**/*.ts`)
    pattern: String,
    /// Directory to search in, inside the session's
    cwd: Option<String>,
    /// Maximum number of files
    #[serde(default = "default_limit")]
    limit: usize,
}

/// The arguments of `grep`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SearchText {
    /// Regular expression to search for
    pattern: String,
    /// File or directory to search in
    path: String,
    /// Glob filter for the files
    glob: Option<String>,
    /// Maximum number of results
    #[serde(default = "default_max_results")]
    max_results: usize,
}

pub(super) fn find_files(dir: &SessionDir, input: &FindFiles) -> Result<String, Problem> {
    let base = dir.relative(input.cwd.as_deref().unwrap_or("."))?;
    let pattern = compile_glob(&input.pattern)?;
    let mut size = 0;
    let mut found = Vec::new();
    walk(&dir.open()?, &base, &mut |path| {
        let below = path
            .strip_prefix(&base)
            .map_or(path, |rest| rest.trim_start_matches('/'));
        if pattern.is_match(below) {
            found.push(path.to_owned());
        }
        size += path.len();
        found.len() < input.limit && size < MAX_REPLY_CHARS
    })?;
    Ok(listing(found))
}

pub(super) fn search_text(dir: &SessionDir, input: &SearchText) -> Result<String, Problem> {
    let base = dir.relative(&input.path)?;
    let glob = input.glob.as_deref().map(compile_glob).transpose()?;
    let regex = RegexBuilder::new(&input.pattern)
        .size_limit(MAX_REGEX_BYTES)
        .build();
    let regex = regex.map_err(|error| format!("invalid pattern: {error}"))?;
    let files = dir.open()?;
    let deadline = Instant::now() + MAX_SEARCH_TIME;
    let mut size = 0;
    let mut found = Vec::new();
    let mut search = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        if glob
            .as_ref()
            .is_some_and(|glob| !glob.is_match(path) && !glob.is_match(name))
        {
            return true;
        }
        let Ok(bytes) = files.read(path, MAX_SEARCHED_BYTES) else {
            return true;
        };
        // Binary files have NUL bytes.
        let Some(text) = std::str::from_utf8(&bytes)
            .ok()
            .filter(|text| !text.contains('\0'))
        else {
            return true;
        };
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| regex.is_match(line))
        {
            if found.len() == input.max_results || size >= MAX_REPLY_CHARS {
                return false;
            }
            let line: String = line.chars().take(MAX_LINE_CHARS).collect();
            size += path.len() + line.len();
            found.push(format!("{path}:{}:{line}", index + 1));
        }
        found.len() < input.max_results && size < MAX_REPLY_CHARS && Instant::now() < deadline
    };
    walk(&files, &base, &mut search)?;
    Ok(listing(found))
}

fn listing(found: Vec<String>) -> String {
    if found.is_empty() {
        "(no matches)".to_owned()
    } else {
        found.join("\n")
    }
}

fn compile_glob(pattern: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| format!("invalid glob pattern: {}", error.kind()))
}

/// Visits the files below `base` in the order of their names, until `visit` returns false.
/// Follows no links, and leaves out git's directories.
fn walk(root: &ScopedDir, base: &str, visit: &mut dyn FnMut(&str) -> bool) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("cannot read `{base}`: {error}");
    let kind = if base.is_empty() {
        Some(FileKind::Directory)
    } else {
        root.kind(base).map_err(unreadable)?
    };
    let mut pending = vec![(
        base.to_owned(),
        kind.ok_or_else(|| format!("`{base}` does not exist"))?,
    )];
    let mut visited = 0_usize;
    while let Some((path, kind)) = pending.pop() {
        match kind {
            FileKind::File if !visit(&path) => return Ok(()),
            FileKind::Directory => {
                let listed = if path.is_empty() {
                    root.entries()
                } else {
                    root.dir(&path, None).and_then(|dir| dir.entries())
                };
                // A directory may vanish or be unreadable.
                let entries = listed.unwrap_or_default().into_iter();
                let entries =
                    entries.filter_map(|(name, kind)| Some((name.into_string().ok()?, kind)));
                let mut entries: Vec<(String, FileKind)> =
                    entries.filter(|(name, _)| name != ".git").collect();
                entries.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
                visited += entries.len();
                if visited > MAX_ENTRIES {
                    return Err(format!(
                        "more than {MAX_ENTRIES} files; search a smaller directory"
                    ));
                }
                let child = |name: String| {
                    if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    }
                };
                pending.extend(entries.into_iter().map(|(name, kind)| (child(name), kind)));
            }
            FileKind::File | FileKind::Symlink | FileKind::Socket | FileKind::Special => {}
        }
    }
    Ok(())
}
