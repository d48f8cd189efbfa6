//! Finds the session files that Claude Code keeps in the user's directory. Reads only the beginning and the end of each
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
    file_lines::read_range,
    session_forks::find_forks,
    session_process::{ActiveSession, running_sessions},
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
/// Maximum number of project folders that are searched.
const MAX_FOLDERS: usize = 10_000;

/// Maximum number of files that are read for a list.
const MAX_CANDIDATES: usize = 10_000;

/// A session file of Claude Code.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFile {
    pub path: PathBuf,
    pub modified: SystemTime,
    pub bytes: u64,
    /// The title that a person chose, else a generated one, else the first prompt; `None` if neither
    /// end of the file contains one.
    pub title: Option<String>,
    /// US dollars, as Claude Code recorded them last, without the cost of the session that it was forked from.
    pub cost_usd: Option<f64>,
    /// The session that it was forked from, if that one is in the list.
    pub fork_of: Option<String>,
    /// Its state while its process runs.
    pub active: Option<ActiveSession>,
}

/// The newest session files of a directory, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionList {
    pub files: Vec<SessionFile>,
    /// Number of older files that are not in the list.
    pub omitted: usize,
}

/// The newest sessions that ran in `directory`, at most `limit`. `claude_dir` is the directory of Claude Code. Links,
/// other files and unreadable directories are ignored.
pub fn recent_sessions(claude_dir: &Path, directory: &Path, limit: usize) -> SessionList {
    let Some(name) = project_name(directory) else {
        return SessionList::default();
    };
    let opened = ScopedDir::open(claude_dir)
        .and_then(|root| root.dir_if_exists(&format!("projects/{name}")));
    let Ok(Some(folder)) = opened else {
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

/// The newest sessions in `folder`, at most `limit`: a project folder of Claude Code, or the directory of all of them.
/// `None` if it contains no session file.
///
/// # Errors
/// If the directory cannot be read.
pub fn sessions_in(folder: &Path, limit: usize) -> io::Result<Option<SessionList>> {
    let opened = ScopedDir::open(folder)?;
    let entries = opened.entries()?;
    let mut found = FoundFiles::default();
    let folders = entries
        .into_iter()
        .filter(|(_, kind)| *kind == FileKind::Directory);
    for (name, _) in folders.take(MAX_FOLDERS) {
        // The directories in a project folder belong to its sessions.
        let Some(name) = name.to_str().filter(|name| name.starts_with('-')) else {
            continue;
        };
        if let Ok(project) = opened.dir(name, None) {
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
    let list = found.into_list(folder, &opened, claude_dir.unwrap_or(&path), limit);
    Ok((!list.files.is_empty()).then_some(list))
}

/// Files that may be sessions, by time.
#[derive(Debug, Default)]
struct FoundFiles {
    /// Names of the folders that contain files; the empty name is the searched directory.
    folders: Vec<String>,
    /// Time in seconds since 1970, size, index of the folder, and name.
    files: Vec<(u64, u64, usize, String)>,
}

impl FoundFiles {
    fn add(&mut self, folder: &str, dir: &ScopedDir) {
        for (name, kind) in dir.entries().unwrap_or_default() {
            // Early releases kept the transcripts of sub-agents in the same directory.
            let is_session = |name: &&str| name.ends_with(".jsonl") && !name.starts_with("agent-");
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
        let file = |(modified, bytes, folder, name): (u64, u64, usize, String)| {
            let folder = &self.folders[folder];
            let (file, _) = dir.dir(folder, None).ok()?.open_entry(&name).ok()?;
            let SessionEnds {
                title,
                cost_usd,
                origin,
            } = SessionEnds::read(&file, bytes)?;
            let session = SessionFile {
                modified: SystemTime::UNIX_EPOCH + Duration::from_secs(modified),
                active: running
                    .iter()
                    .find(|session| name.strip_suffix(".jsonl") == Some(&*session.id))
                    .cloned(),
                path: if folder.is_empty() {
                    path.join(name)
                } else {
                    path.join(folder).join(name)
                },
                bytes,
                title,
                cost_usd,
                fork_of: None,
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
        SessionList {
            files,
            omitted: candidates.len(),
        }
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

/// What the beginning and the end of a session file contain.
#[derive(Debug, Default)]
struct SessionEnds {
    title: Option<String>,
    cost_usd: Option<f64>,
    origin: SessionOrigin,
}

/// Where title and cost of a session come from.
#[derive(Clone, Copy, Debug, Default)]
struct SessionOrigin {
    /// When the recorded cost began, in milliseconds since 1970.
    started: Option<u64>,
    /// The title is not the first prompt.
    is_named: bool,
}

impl SessionEnds {
    /// Reads the ends of a file of `length` bytes; `None` if they contain no line of a session.
    fn read(file: &File, length: u64) -> Option<Self> {
        let head = read_range(file, 0, END_BYTES as usize).ok()?;
        let rest = length.saturating_sub(END_BYTES).max(END_BYTES.min(length));
        let tail = read_range(file, rest, END_BYTES as usize).ok()?;
        // A line that is cut off is not JSON, so it is skipped.
        let lines = [&head, &tail]
            .into_iter()
            .flat_map(|part| part.split(|byte| *byte == b'\n'));
        let (mut is_session, mut cost_usd, mut started, mut prompt) = (false, None, None, None);
        let mut title: Option<(TitleSource, String)> = None;
        for line in lines
            .filter(|line| !line.is_empty())
            .map(decode::decode_line)
        {
            is_session |= line.is_session_file;
            match &line.body {
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
        let is_named = title.is_some();
        let title = title
            .map(|(_, title)| title)
            .or(prompt)
            .map(|title| title.chars().take(MAX_TITLE_CHARS).collect());
        is_session.then_some(Self {
            title,
            cost_usd,
            origin: SessionOrigin { started, is_named },
        })
    }
}

/// The title of the session in `path`, see [`SessionFile::title`].
pub(super) fn session_title(file: &File) -> Option<String> {
    let length = file.metadata().ok()?.len();
    SessionEnds::read(file, length)?.title
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
        let listed = sessions_in(&dir, 9).unwrap().unwrap();
        assert_eq!(listed.files, found(9).files);
        let all = sessions_in(&home.path().join("projects"), 9)
            .unwrap()
            .unwrap();
        assert_eq!(titles(&all), titles(&listed));
        assert_eq!(sessions_in(home.path(), 9).unwrap(), None);
        assert!(sessions_in(&home.path().join("none"), 9).is_err());
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
            let list = sessions_in(home.path(), 1).unwrap().unwrap();
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
