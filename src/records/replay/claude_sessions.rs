//! Finds the session files that Claude Code keeps in the user's directory, and all records in other directories. Reads only the beginning and the end of each
//! for its title and cost, and forks and their parents as a whole; [`super::detect`] recognizes the files when they are
//! opened.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory that the command line names"
)]

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    detect::{self, InputFormat},
    file_lines::read_range,
    line_repair,
    session_forks::find_forks,
    session_process::{ActiveSession, running_sessions},
    zstd_reader::ZSTD_MAGIC,
};
use ingestdeck_core::decode::{
    self, LineBody, MessageBlock,
    line::{SessionFileLine, TitleSource},
    user_text::UserText,
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

/// Bytes read at the beginning and at the end of a file to find its title and cost.
const END_BYTES: u64 = 64 * 1024;
/// Maximum length of the name of a directory that is not shortened by a hash.
const MAX_PLAIN_NAME: usize = 200;
/// Maximum length of a title in characters.
const MAX_TITLE_CHARS: usize = 300;
/// Maximum size of a damaged file that is read to find out whether it can be replayed.
const MAX_REPAIRED_BYTES: u64 = 16 << 20;
const SUB_AGENT: &str = "it is the transcript of a sub-agent; its session shows it";
const SESSION_FILE: &str = InputFormat::SessionFile.description();
/// Maximum number of project folders that are searched.
const MAX_FOLDERS: usize = 10_000;

/// Maximum number of directories in a directory that are searched for records, and of files in each of them.
const MAX_SEARCHED: usize = 100;

/// Maximum number of files that are read for a list.
const MAX_CANDIDATES: usize = 10_000;

/// A session file of Claude Code, or another record that can be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFile {
    pub path: PathBuf,
    /// Name of its format, see [`InputFormat::description`].
    pub format: &'static str,
    pub modified: SystemTime,
    pub bytes: u64,
    /// The title that a person chose, else a generated one, else the first prompt; in a capture, else the first text of
    /// the agent. `None` if neither end of the file contains one.
    pub title: Option<String>,
    /// US dollars, as Claude Code recorded them last, without the cost of the session that it was forked from.
    pub cost_usd: Option<f64>,
    /// The session that it was forked from, if that one is in the list.
    pub fork_of: Option<String>,
    /// Its state while its process runs.
    pub active: Option<ActiveSession>,
    /// True if the last result of a capture is an error, or a unit of a run failed.
    pub has_failed: bool,
}

/// The newest session files of a directory, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionList {
    pub files: Vec<SessionFile>,
    /// Number of older files that are not in the list.
    pub omitted: usize,
    /// Files that are not in the list for another reason.
    pub left_out: Vec<LeftOutFile>,
    /// Directories in it that contain records.
    pub folders: Vec<PathBuf>,
}

/// A file or a directory that a list does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutFile {
    pub path: PathBuf,
    /// Why it cannot be opened, or where its content is shown.
    pub reason: String,
}

/// The newest sessions that ran in `directory`, at most `limit`. `claude_dir` is the directory of Claude Code. Links,
/// other files and unreadable directories are ignored.
pub fn recent_sessions(claude_dir: &Path, directory: &Path, limit: usize) -> SessionList {
    let Some((name, folder)) = project_folder(claude_dir, directory) else {
        return SessionList::default();
    };
    let mut found = FoundFiles::default();
    found.add("", &folder);
    found.into_list(
        &claude_dir.join("projects").join(&name),
        &folder,
        claude_dir,
        limit,
    )
}

/// The folder of the sessions that ran in `directory`, and its name, if there is one.
fn project_folder(claude_dir: &Path, directory: &Path) -> Option<(String, ScopedDir)> {
    let name = project_name(directory)?;
    let root = ScopedDir::open(claude_dir).ok()?;
    let folder = root.dir_if_exists(&format!("projects/{name}")).ok()??;
    Some((name, folder))
}

/// All sessions that ran in `directory`, newest first, with the time at which they were written last, and the number of
/// those beyond the maximum. Unlike [`recent_sessions`], it reads none of them.
pub fn session_paths(claude_dir: &Path, directory: &Path) -> (Vec<(PathBuf, SystemTime)>, usize) {
    let Some((name, folder)) = project_folder(claude_dir, directory) else {
        return Default::default();
    };
    let mut found = FoundFiles::default();
    found.add("", &folder);
    found.files.sort_by(|one, other| other.cmp(one));
    let folder = claude_dir.join("projects").join(name);
    let omitted = found.files.len().saturating_sub(MAX_CANDIDATES);
    found.files.truncate(MAX_CANDIDATES);
    let place = |(modified, _, _, name): (u64, u64, usize, String)| {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(modified);
        (folder.join(name), modified)
    };
    (found.files.into_iter().map(place).collect(), omitted)
}

/// The file of the session `id`, which ran in `directory`, if it exists. `claude_dir` is the directory of Claude Code.
pub fn open_session(claude_dir: &Path, directory: &Path, id: &str) -> Option<File> {
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if id.is_empty() || !id.bytes().all(is_id) {
        return None;
    }
    let name = directory
        .canonicalize()
        .ok()
        .and_then(|path| project_name(&path));
    let root = ScopedDir::open(claude_dir).ok()?;
    let open = |name: &str| {
        let (file, _) = root
            .open_file(&format!("projects/{name}/{id}.jsonl"))
            .ok()?;
        Some(file)
    };
    match name {
        Some(name) => open(&name),
        // The hash at the end of a long name is not known.
        None => {
            let projects = root.dir_if_exists("projects").ok().flatten();
            let folders = projects.and_then(|projects| projects.entries().ok());
            let mut folders = folders.into_iter().flatten().take(MAX_FOLDERS);
            folders.find_map(|(name, _)| open(&name.to_string_lossy()))
        }
    }
}

/// The running session with this id, or the id of a background session, and its file.
pub fn find_active(claude_dir: &Path, id: &str) -> Option<(PathBuf, ActiveSession)> {
    let is_named =
        |session: &ActiveSession| session.id == id || session.background.as_deref() == Some(id);
    let session = running_sessions(claude_dir).into_iter().find(is_named)?;
    let file = claude_dir
        .join("projects")
        .join(project_name(&session.directory)?)
        .join(format!("{}.jsonl", session.id));
    Some((file, session))
}

/// The newest records in `folder`, at most `limit`: a project folder of Claude Code, the directory of all of them, or any
/// other directory.
///
/// # Errors
/// If the directory cannot be read.
pub fn records_in(folder: &Path, limit: usize) -> io::Result<SessionList> {
    let opened = ScopedDir::open(folder)?;
    let mut entries = opened.entries()?;
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut found = FoundFiles {
        has_all_formats: true,
        ..FoundFiles::default()
    };
    let is_directory = |kind: &FileKind| *kind == FileKind::Directory;
    let folders = entries.into_iter().filter(|(_, kind)| is_directory(kind));
    for (name, _) in folders.take(MAX_FOLDERS) {
        let Some(name) = name.to_str() else {
            continue;
        };
        // The directories in a project folder belong to its sessions.
        if !name.starts_with('-') {
            if !opened.is_file(&format!("{name}.jsonl")) {
                let is_searched = found.searched < MAX_SEARCHED;
                found.searched += 1;
                let holds_records = is_searched
                    && opened
                        .dir(name, None)
                        .is_ok_and(|directory| holds_records(&directory));
                let reason = match holds_records {
                    true => "it is a directory with records",
                    false => "it is a directory",
                };
                if holds_records {
                    found.record_folders.push(folder.join(name));
                }
                found.leave_out(folder.join(name), reason.to_owned());
            }
        } else if let Ok(project) = opened.dir(name, None) {
            found.add(name, &project);
        }
    }
    found.add("", &opened);
    let path = folder.canonicalize()?;
    let claude_dir = path
        .ancestors()
        .take(2)
        .find(|dir| dir.ends_with("projects"))
        .and_then(Path::parent);
    Ok(found.into_list(folder, &opened, claude_dir.unwrap_or(&path), limit))
}

/// True if one of the first files of a directory can be replayed.
fn holds_records(directory: &ScopedDir) -> bool {
    let entries = directory.entries().unwrap_or_default();
    let files = entries
        .into_iter()
        .filter(|(_, kind)| *kind == FileKind::File);
    let is_record = |name: &str| {
        let (file, size) = directory.open_entry(name).ok()?;
        let head = read_range(&file, 0, END_BYTES as usize).ok()?;
        detect::format_of(&head, size == head.len() as u64).ok()
    };
    files
        .take(MAX_SEARCHED)
        .any(|(name, _)| name.to_str().and_then(is_record).is_some())
}

/// Files that may be sessions, by time.
#[derive(Debug, Default)]
struct FoundFiles {
    /// Names of the folders that contain files; the empty name is the searched directory.
    folders: Vec<String>,
    /// Time in seconds since 1970, size, index of the folder, and name.
    files: Vec<(u64, u64, usize, String)>,
    /// True to list records of every format, and false for sessions only.
    has_all_formats: bool,
    left_out: Vec<LeftOutFile>,
    /// Number of directories that were searched for records, and those that contain some.
    searched: usize,
    record_folders: Vec<PathBuf>,
}

impl FoundFiles {
    /// Adds a file to those that are left out, as far as the list has room.
    fn leave_out(&mut self, path: PathBuf, reason: String) {
        if self.left_out.len() < MAX_CANDIDATES {
            self.left_out.push(LeftOutFile { path, reason });
        }
    }

    fn add(&mut self, folder: &str, dir: &ScopedDir) {
        let has_all_formats = self.has_all_formats;
        for (name, kind) in dir.entries().unwrap_or_default() {
            let is_session = |name: &&str| {
                has_all_formats || name.ends_with(".jsonl") && !name.starts_with("agent-")
            };
            let Some(name) = name
                .to_str()
                .filter(is_session)
                .filter(|_| kind == FileKind::File)
            else {
                continue;
            };
            let Ok(stat) = dir.entry_stat(name) else {
                continue;
            };
            let unsigned = |number: i64| number.max(0).unsigned_abs();
            self.files.push((
                unsigned(stat.st_mtime),
                unsigned(stat.st_size),
                self.folders.len(),
                name.to_owned(),
            ));
        }
        self.folders.push(folder.to_owned());
    }

    /// The newest sessions. `dir` is the searched directory at `path`.
    fn into_list(
        mut self,
        path: &Path,
        dir: &ScopedDir,
        claude_dir: &Path,
        limit: usize,
    ) -> SessionList {
        self.files.sort_by(|one, other| other.cmp(one));
        let running = running_sessions(claude_dir);
        let (has_all_formats, mut left_out) = (self.has_all_formats, self.left_out);
        let file = |(modified, bytes, folder, name): (u64, u64, usize, String)| {
            let folder = &self.folders[folder];
            let path = match folder.is_empty() {
                true => path.join(&name),
                false => path.join(folder).join(&name),
            };
            let (file, _) = dir.dir(folder, None).ok()?.open_entry(&name).ok()?;
            let SessionEnds {
                title,
                cost_usd,
                origin,
                format,
                has_failed,
            } = match SessionEnds::read(&file, bytes) {
                // Early releases kept the transcripts of sub-agents in the same directory.
                Ok(ends) if ends.is_session() && name.starts_with("agent-") => {
                    let reason = SUB_AGENT.to_owned();
                    left_out.push(LeftOutFile { path, reason });
                    return None;
                }
                Ok(ends) if has_all_formats || ends.is_session() => ends,
                Ok(_) => return None,
                Err(reason) => {
                    left_out.push(LeftOutFile { path, reason });
                    return None;
                }
            };
            let session = SessionFile {
                format,
                modified: SystemTime::UNIX_EPOCH + Duration::from_secs(modified),
                active: running
                    .iter()
                    .find(|session| name.strip_suffix(".jsonl") == Some(&*session.id))
                    .cloned(),
                path,
                bytes,
                title,
                cost_usd,
                fork_of: None,
                has_failed,
            };
            Some((session, origin))
        };
        let mut candidates = self.files.into_iter();
        // Other files do not count, but not all of them are read.
        let (mut files, origins): (Vec<_>, Vec<_>) = candidates
            .by_ref()
            .take(MAX_CANDIDATES)
            .filter_map(file)
            .take(limit)
            .unzip();
        separate_forks(&mut files, &origins);
        left_out.truncate(MAX_CANDIDATES);
        if !has_all_formats {
            left_out.clear();
        }
        SessionList {
            files,
            omitted: candidates.len(),
            left_out,
            folders: self.record_folders,
        }
    }
}

impl SessionFile {
    /// True for the tape of a run.
    pub fn is_tape(&self) -> bool {
        self.format == InputFormat::Tape.description()
    }

    /// True for a session file of Claude Code.
    pub fn is_session(&self) -> bool {
        self.format == SESSION_FILE
    }
}

/// Gives forks a title and a cost without those of their parents.
fn separate_forks(files: &mut [SessionFile], origins: &[SessionOrigin]) {
    let started: Vec<Option<u64>> = origins.iter().map(|origin| origin.started).collect();
    let open = |index: usize| {
        let path = &files.get(index)?.path;
        let name = path.file_name()?.to_str()?;
        let (file, _) = ScopedDir::open(path.parent()?)
            .ok()?
            .open_entry(name)
            .ok()?;
        Some(file)
    };
    for (index, fork) in find_forks(&started, &open) {
        let parent = &files[fork.parent];
        let id = parent
            .path
            .file_stem()
            .map(|id| id.to_string_lossy().into_owned());
        let file = &mut files[index];
        file.fork_of = id;
        file.cost_usd = file.cost_usd.map(|total| (total - fork.paid_usd).max(0.0));
        if !origins[index].is_named
            && let Some(prompt) = fork.prompt
        {
            file.title = Some(prompt.chars().take(MAX_TITLE_CHARS).collect());
        }
    }
}

/// The name of the directory in which Claude Code keeps the sessions of `directory`: its path with `-` for everything
/// but ASCII letters and digits. `None` for a path that is so long that the name ends with a hash.
fn project_name(directory: &Path) -> Option<String> {
    let path = directory.to_str()?;
    let name: String = path
        .chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char
            } else {
                '-'
            }
        })
        .collect();
    (name.len() <= MAX_PLAIN_NAME).then_some(name)
}

/// What the beginning and the end of a record contain.
#[derive(Debug)]
struct SessionEnds {
    format: &'static str,
    title: Option<String>,
    cost_usd: Option<f64>,
    origin: SessionOrigin,
    has_failed: bool,
}

/// Where title and cost of a session come from.
#[derive(Clone, Copy, Debug, Default)]
struct SessionOrigin {
    /// When the recorded cost began, in milliseconds since 1970.
    started: Option<u64>,
    /// The title is not the first prompt.
    is_named: bool,
}

/// The format of a file that is not a session file.
///
/// # Errors
/// The reason why it cannot be replayed.
fn format_of(file: &File, head: &[u8], length: u64) -> Result<&'static str, String> {
    let detected = detect::format_of(head, head.len() as u64 == length);
    // The format of a compressed file is detected when it is opened.
    if head.starts_with(ZSTD_MAGIC) {
        return Ok("compressed file");
    }
    let repaired = match detected.is_err() && length <= MAX_REPAIRED_BYTES {
        true => line_repair::repair_file(file, length).ok().flatten(),
        false => None,
    };
    let repaired = repaired.and_then(|repaired| {
        let head = read_range(&repaired.file, 0, END_BYTES as usize).ok()?;
        detect::format_of(&head, head.len() as u64 == repaired.length).ok()
    });
    repaired.map_or(detected, Ok).map(InputFormat::description)
}

impl SessionEnds {
    fn is_session(&self) -> bool {
        self.format == SESSION_FILE
    }

    /// Reads the ends of a file of `length` bytes.
    ///
    /// # Errors
    /// The reason why it cannot be replayed, or belongs to another record.
    fn read(file: &File, length: u64) -> Result<Self, String> {
        let range = |from| {
            read_range(file, from, END_BYTES as usize)
                .map_err(|error| format!("it cannot be read: {error}"))
        };
        let head = range(0)?;
        let rest = length.saturating_sub(END_BYTES).max(END_BYTES.min(length));
        let tail = range(rest)?;
        // A line that is cut off is not JSON, so it is skipped.
        let lines = [&head, &tail]
            .into_iter()
            .flat_map(|part| part.split(|byte| *byte == b'\n'));
        let (mut is_session, mut cost_usd, mut started, mut prompt) = (false, None, None, None);
        let (mut is_own, mut is_sub_agent, mut answer) = (false, false, None);
        let mut has_failed = false;
        let mut title: Option<(TitleSource, String)> = None;
        for line in lines
            .filter(|line| !line.is_empty())
            .map(decode::decode_line)
        {
            is_session |= line.is_session_file;
            if matches!(line.body, LineBody::User(_) | LineBody::Assistant(_)) {
                is_sub_agent |= line.is_sidechain;
                is_own |= !line.is_sidechain;
            }
            match &line.body {
                LineBody::Result(result) => {
                    cost_usd = result.total_cost_usd.or(cost_usd);
                    has_failed = result.failed();
                }
                LineBody::Assistant(chat) if answer.is_none() => {
                    answer = chat.blocks.iter().find_map(|block| match block {
                        MessageBlock::Text(text) => {
                            Some(text.prefix(8 * MAX_TITLE_CHARS).0.into_owned())
                        }
                        _ => None,
                    });
                }
                LineBody::SessionFile(SessionFileLine::Title(source, text))
                    if title.as_ref().is_none_or(|(known, _)| known <= source) =>
                {
                    title = Some((*source, text.to_string()));
                }
                LineBody::SessionFile(SessionFileLine::Cost {
                    total_usd,
                    is_incomplete,
                    started: since,
                }) => {
                    started = since.or(started);
                    cost_usd = total_usd
                        .filter(|total| *total > 0.0 || !is_incomplete)
                        .or(cost_usd);
                }
                LineBody::User(chat)
                    if prompt.is_none() && !chat.synthetic && !line.is_sidechain =>
                {
                    let text = chat.blocks.iter().find_map(|block| match block {
                        MessageBlock::Text(text) => Some(text.prefix(8 * MAX_TITLE_CHARS).0),
                        _ => None,
                    });
                    prompt = text.and_then(|text| match UserText::parse(chat.author, &text) {
                        UserText::Prompt(prompt) | UserText::Command(prompt) => {
                            Some(prompt.into_owned())
                        }
                        UserText::Report(_) => None,
                    });
                }
                _ => {}
            }
        }
        let format = match (is_session, is_sub_agent && !is_own) {
            (true, true) => {
                return Err(SUB_AGENT.to_owned());
            }
            (true, false) => SESSION_FILE,
            (false, _) => format_of(file, &head, length)?,
        };
        let is_named = title.is_some();
        let answer = answer.filter(|_| !is_session);
        let title = title
            .map(|(_, title)| title)
            .or(prompt)
            .or(answer)
            .map(|title| title.chars().take(MAX_TITLE_CHARS).collect());
        Ok(Self {
            format,
            title,
            cost_usd,
            origin: SessionOrigin { started, is_named },
            has_failed,
        })
    }
}

/// The title of the session in `path`, see [`SessionFile::title`].
pub(super) fn session_title(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    SessionEnds::read(file, length).ok()?.title
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    const META: &str = r#"{"type":"user","sessionId":"s","isMeta":true,"message":{"role":"user","content":"caveat"}}"#;

    fn user(content: &str) -> String {
        format!(r#"{{"type":"user","sessionId":"s","message":{{"content":{content}}}}}"#) + "\n"
    }

    fn write(dir: &Path, name: &str, text: &str, seconds: u64) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(name), text).unwrap();
        let file = File::options().write(true).open(dir.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
    }

    fn titles(list: &SessionList) -> Vec<Option<&str>> {
        list.files
            .iter()
            .map(|file| file.title.as_deref())
            .collect()
    }

    #[test]
    fn sessions_of_the_directory_are_found_newest_first() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("projects").join("-home-dev-orbit-v2");
        let blocks = user(r#"[{"type":"text","text":"Explain refunds"}]"#);
        write(&dir, "old.jsonl", &user("\"go\""), 10);
        write(
            &dir,
            "new.jsonl",
            &format!("{{\"type\":\"mode\"}}\n{META}\n{blocks}\n"),
            30,
        );
        write(&dir, "damaged.jsonl", "\u{0}{", 20);
        write(&dir, "silent.jsonl", META, 15);
        write(&dir, "agent-a.jsonl", &blocks, 50);
        write(&dir, "notes.txt", "{}", 40);
        symlink(dir.join("old.jsonl"), dir.join("link.jsonl")).unwrap();
        let found = |limit| recent_sessions(home.path(), Path::new("/home/dev/orbit.v2"), limit);
        assert_eq!(
            titles(&found(9)),
            [Some("Explain refunds"), None, Some("go")]
        );
        assert_eq!(found(9).files[0].path, dir.join("new.jsonl"));
        assert_eq!((found(1).files.len(), found(1).omitted), (1, 3));
        // A file that is not a session does not hide one.
        assert_eq!(
            (titles(&found(2)), found(2).omitted),
            (vec![Some("Explain refunds"), None], 1)
        );
        assert_eq!(
            recent_sessions(home.path(), Path::new("/home/dev"), 9),
            SessionList::default()
        );
        assert_eq!(
            recent_sessions(&home.path().join("none"), Path::new("/home/dev"), 9),
            SessionList::default()
        );
        let listed = records_in(&dir, 9).unwrap();
        assert_eq!(listed.files, found(9).files);
        let all = records_in(&home.path().join("projects"), 9).unwrap();
        assert_eq!(titles(&all), titles(&listed));
        assert_eq!(records_in(home.path(), 9).unwrap().files, []);
        assert!(records_in(&home.path().join("none"), 9).is_err());
    }

    #[test]
    fn records_of_all_formats_are_listed_or_left_out() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        let side = user("\"do it\"").replacen('{', r#"{"isSidechain":true,"#, 1);
        let answer = r#"{"type":"assistant","session_id":"s","message":{"content":[{"type":"text","text":"hello"}]}}"#;
        let result = r#"{"type":"result","session_id":"s","is_error":true,"total_cost_usd":0.5}"#;
        write(dir, "s.jsonl", &user("\"go\""), 90);
        write(dir, "capture.log", &format!("{answer}\n{result}\n"), 80);
        write(
            dir,
            "two-way",
            r#"{"t":1,"dir":"in","msg":{"type":"user"}}"#,
            70,
        );
        write(dir, "child.jsonl", &side, 60);
        write(dir, "notes.md", "# Notes", 50);
        write(dir, "empty.jsonl", "", 40);
        write(&dir.join("s"), "x", "", 40);
        write(&dir.join("other"), "x", "", 40);
        write(&dir.join("run"), "tape.jsonl", answer, 40);
        let list = records_in(dir, 9).unwrap();
        let listed = list.files.iter();
        let listed: Vec<_> = listed
            .map(|file| (file.format, file.cost_usd, file.has_failed))
            .collect();
        assert_eq!(titles(&list), [Some("go"), Some("hello"), None]);
        assert_eq!(
            listed,
            [
                ("session file", None, false),
                ("stream-json capture", Some(0.5), true),
                ("two-way transcript", None, false)
            ]
        );
        let left_out = list.left_out.iter();
        let left_out: Vec<_> = left_out
            .map(|file| {
                (
                    file.path.file_name().unwrap().to_str().unwrap(),
                    &*file.reason,
                )
            })
            .collect();
        assert_eq!(
            left_out,
            [
                ("other", "it is a directory"),
                ("run", "it is a directory with records"),
                ("child.jsonl", SUB_AGENT),
                (
                    "notes.md",
                    "it contains no line of JSON, and its first line is \"# Notes\""
                ),
                ("empty.jsonl", "it is empty"),
            ]
        );
        assert_eq!(list.folders, [dir.join("run")]);
    }

    #[test]
    fn best_title_and_last_cost_are_at_either_end() {
        let home = tempfile::tempdir().unwrap();
        let padding = format!(
            "{{\"type\":\"api-request-blob\",\"x\":\"{}\"}}\n",
            "y".repeat(200_000)
        );
        let title = |kind: &str, key: &str, text: &str| {
            format!("{{\"type\":\"{kind}\",\"{key}\":\"{text}\"}}\n")
        };
        let cost = |total: &str| {
            format!("{{\"type\":\"cost-state\",\"sessionId\":\"s\",\"totalCostUSD\":{total}}}\n")
        };
        let read = |text: String| {
            write(home.path(), "s.jsonl", &text, 5);
            let list = records_in(home.path(), 1).unwrap();
            (list.files[0].title.clone().unwrap(), list.files[0].cost_usd)
        };
        let prompt = user("\"the prompt\"");
        assert_eq!(
            read(format!("{prompt}{padding}{}{}", cost("0.25"), cost("0.5"))),
            ("the prompt".into(), Some(0.5))
        );
        let named = title("custom-title", "customTitle", "chosen")
            + &title("ai-title", "aiTitle", "generated");
        assert_eq!(
            read(format!("{prompt}{padding}{named}")),
            ("chosen".into(), None)
        );
        let generated =
            title("summary", "summary", "old") + &title("ai-title", "aiTitle", "generated");
        assert_eq!(
            read(format!("{generated}{prompt}{}", cost("\"x\""))),
            ("generated".into(), None)
        );
        let long = read(user(&format!("\"{}\"", "é".repeat(5000)))).0;
        assert_eq!(long.chars().count(), MAX_TITLE_CHARS);
    }
}
