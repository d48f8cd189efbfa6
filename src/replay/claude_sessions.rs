//! Finds the session files that Claude Code keeps in the user's directory. Reads the beginning of each for its first
//! prompt; [`super::detect`] recognizes the files when they are opened.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::Deserialize;

use crate::scoped_dir::{FileKind, ScopedDir};

/// Bytes read of a file to find its first prompt.
const HEAD_BYTES: u64 = 64 * 1024;
/// Maximum length of the name of a directory that is not shortened by a hash.
const MAX_PLAIN_NAME: usize = 200;

/// A session file of Claude Code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionFile {
    pub path: PathBuf,
    pub modified: SystemTime,
    pub bytes: u64,
    /// The first prompt of the user, if the beginning of the file contains it.
    pub prompt: Option<String>,
}

/// The newest sessions that ran in `directory`, newest first, at most `limit`. `claude_dir` is the directory of Claude
/// Code. Links, other files and unreadable directories are ignored.
pub(crate) fn recent_sessions(claude_dir: &Path, directory: &Path, limit: usize) -> Vec<SessionFile> {
    let Some(name) = project_name(directory) else { return Vec::new() };
    let path = claude_dir.join("projects").join(&name);
    let opened = ScopedDir::open(claude_dir).and_then(|root| root.dir_if_exists(&format!("projects/{name}")));
    let Ok(Some(sessions)) = opened else { return Vec::new() };
    let mut found = Vec::new();
    for (name, kind) in sessions.entries().unwrap_or_default() {
        let Some(name) = name.to_str().filter(|name| kind == FileKind::File && name.ends_with(".jsonl")) else {
            continue;
        };
        let Ok(stat) = sessions.entry_stat(name) else { continue };
        let modified = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(stat.st_mtime.max(0).unsigned_abs());
        found.push((modified, stat.st_size.max(0).unsigned_abs(), name.to_owned()));
    }
    found.sort_by(|one, other| other.cmp(one));
    found.truncate(limit);
    let file = |(modified, bytes, name): (SystemTime, u64, String)| {
        let prompt = sessions.open_file(&name).ok().and_then(|(file, _)| {
            let mut head = Vec::new();
            file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
            first_prompt(&head)
        });
        SessionFile { path: path.join(name), modified, bytes, prompt }
    };
    found.into_iter().map(file).collect()
}

/// The name of the directory in which Claude Code keeps the sessions of `directory`: its path with `-` for everything
/// but ASCII letters and digits. `None` for a path that is so long that the name ends with a hash.
fn project_name(directory: &Path) -> Option<String> {
    let path = directory.to_str()?;
    let name: String = path.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
    (name.len() <= MAX_PLAIN_NAME).then_some(name)
}

fn first_prompt(head: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct SessionLine {
        r#type: String,
        #[serde(default, rename = "isMeta")]
        is_meta: bool,
        message: Option<UserMessage>,
    }
    #[derive(Deserialize)]
    struct UserMessage {
        content: PromptContent,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum PromptContent {
        Text(String),
        Blocks(Vec<PromptBlock>),
    }
    #[derive(Deserialize)]
    struct PromptBlock {
        text: Option<String>,
    }
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let line: SessionLine = serde_json::from_slice(line).ok()?;
        let message = line.message.filter(|_| line.r#type == "user" && !line.is_meta)?;
        match message.content {
            PromptContent::Text(text) => Some(text),
            PromptContent::Blocks(blocks) => blocks.into_iter().find_map(|block| block.text),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn sessions_of_the_directory_are_found_newest_first() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("projects").join("-home-dev-orbit-v2");
        fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, text: &str, seconds: u64| {
            let file = fs::File::create(dir.join(name)).unwrap();
            fs::write(dir.join(name), text).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        let meta = r#"{"type":"user","isMeta":true,"message":{"role":"user","content":"caveat"}}"#;
        let blocks = r#"{"type":"user","message":{"content":[{"type":"text","text":"Explain refunds"}]}}"#;
        write("old.jsonl", "{\"type\":\"user\",\"message\":{\"content\":\"go\"}}\n", 10);
        write("new.jsonl", &format!("{{\"type\":\"mode\"}}\n{meta}\n{blocks}\n"), 30);
        write("damaged.jsonl", "\u{0}{", 20);
        write("notes.txt", "{}", 40);
        std::os::unix::fs::symlink(dir.join("old.jsonl"), dir.join("link.jsonl")).unwrap();
        let found = recent_sessions(home.path(), Path::new("/home/dev/orbit.v2"), 9);
        let prompts: Vec<_> = found.iter().map(|file| file.prompt.as_deref()).collect();
        assert_eq!(prompts, [Some("Explain refunds"), None, Some("go")]);
        assert_eq!(found[0].path, dir.join("new.jsonl"));
        assert_eq!(recent_sessions(home.path(), Path::new("/home/dev/orbit.v2"), 1).len(), 1);
        assert!(recent_sessions(home.path(), Path::new("/home/dev"), 9).is_empty());
        assert!(recent_sessions(Path::new("/nonexistent"), Path::new("/home/dev"), 9).is_empty());
    }
}
