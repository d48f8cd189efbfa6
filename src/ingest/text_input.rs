//! Texts that the user gives to a run on the command line, as files or on stdin.
//!
//! Owns their limits, labels and keys. Files are named by the user, so they may be anywhere, but a name inside a project
//! must not lead outside of it. This module must not know plans or prompts.

#![expect(
    clippy::disallowed_methods,
    reason = "files that the user names on the command line"
)]

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
};

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use super::{
    slug,
    source::fingerprint,
    untrusted_text::{escape_unpresentable, excerpt},
    workspace::MAX_FILE_BYTES,
};
use ingestdeck_core::diagnostic::Problem;

/// KTX's name for the origin of such texts, in place of an adapter.
pub const TEXT_ADAPTER: &str = "external_ingest";

/// Longest text in characters. KTX cuts longer ones, which loses their end.
pub(crate) const MAX_TEXT_CHARS: usize = 48_000;

/// Maximum number of turns of an attempt at a text, as in KTX.
pub const TEXT_STEP_BUDGET: u32 = 30;

/// Most bytes of all texts of a run, as JSON. Longer lines of a tape are abbreviated when it is read.
const MAX_TOTAL_BYTES: usize = 3 << 20;

/// Most characters of inline text in a label.
const LABEL_CHARS: usize = 50;

/// Most bytes of the readable part of a key.
const KEY_SLUG_BYTES: usize = 26;

/// What becomes of texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextMode {
    /// Agents capture what they mean.
    #[default]
    Captured,
    /// They become pages unchanged.
    Verbatim,
}

impl TextMode {
    /// Most characters of a text.
    fn max_chars(self) -> usize {
        match self {
            Self::Captured => MAX_TEXT_CHARS,
            Self::Verbatim => usize::MAX,
        }
    }

    /// Most bytes of a text.
    fn max_bytes(self) -> u64 {
        match self {
            Self::Captured => MAX_TEXT_CHARS as u64 * 4,
            Self::Verbatim => MAX_FILE_BYTES,
        }
    }
}

/// A text with its name for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextInput {
    pub(crate) label: String,
    pub(crate) content: String,
    /// True if the label is the name of its file.
    #[serde(default)]
    pub(crate) is_file: bool,
}

impl TextInput {
    /// A text of the command line. Its label is its quoted beginning.
    ///
    /// # Errors
    /// If it is empty or too long.
    pub fn inline(text: &str, mode: TextMode) -> Result<Self, Problem> {
        let printable: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let label: String = printable
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(LABEL_CHARS)
            .collect();
        let label = format!("\"{}\"", escape_unpresentable(&label));
        Self::parse(label, text.as_bytes(), "the text of --text", mode)
    }

    /// A text with its label from the record of a prior run.
    ///
    /// # Errors
    /// If the record was changed so that it is no longer a valid text.
    pub fn recorded(label: &str, content: &str) -> Result<Self, Problem> {
        Self::parse(
            escape_unpresentable(label),
            content.as_bytes(),
            "the recorded text",
            TextMode::Captured,
        )
    }

    /// The text in a file. Its label is the name of the file. `project` is the directory of the project.
    ///
    /// # Errors
    /// If it is not a readable text file, is too long, or a link in the project leads outside of it.
    pub fn read_file(path: &Path, project: &Path, mode: TextMode) -> Result<Self, Problem> {
        let name = format!("`{}`", excerpt(&path.to_string_lossy()));
        let failed =
            |why: &dyn std::fmt::Display| Problem::new(format!("cannot read {name}: {why}"));
        check_link(path, project)
            .map_err(|problem| problem.prefixed(format_args!("cannot read {name}: ")))?;
        // Opening a FIFO must not wait for its writer.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .map_err(|error| failed(&error))?;
        let kind = file.metadata().map_err(|error| failed(&error))?.file_type();
        if kind.is_dir() {
            return Err(
                failed(&"it is a directory").with_help("name the files in it, each with --file")
            );
        }
        if !kind.is_file() {
            let what = if kind.is_fifo() {
                "it is a pipe"
            } else {
                "it is not a regular file"
            };
            return Err(failed(&what).with_help("pipe its content and read it with `--file -`"));
        }
        let label = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy();
        let text = Self::parse(
            escape_unpresentable(&label),
            &read_bounded(file, mode).map_err(|error| failed(&error))?,
            &name,
            mode,
        )?;
        Ok(Self {
            is_file: true,
            ..text
        })
    }

    /// The text that `input` provides until its end.
    ///
    /// # Errors
    /// If it cannot be read, is not text or is too long.
    pub fn read_stdin(input: impl io::Read, mode: TextMode) -> Result<Self, Problem> {
        let bytes = read_bounded(input, mode)
            .map_err(|error| Problem::new(format!("cannot read stdin: {error}")))?;
        Self::parse("stdin".to_owned(), &bytes, "stdin", mode)
    }

    /// Checks the bytes of a text; `name` is its name in the error.
    fn parse(label: String, bytes: &[u8], name: &str, mode: TextMode) -> Result<Self, Problem> {
        let refused = |why: String| Problem::new(format!("cannot use {name}: {why}"));
        let split = "split it, or ingest it as a file of a `docs` connection, whose units read long files in parts";
        let (max_bytes, max_chars) = (mode.max_bytes(), mode.max_chars());
        if bytes.len() as u64 > max_bytes {
            return Err(match mode {
                TextMode::Captured => refused(format!(
                    "it has more than {max_bytes} bytes, the limit is {max_chars} characters"
                ))
                .with_help(split),
                TextMode::Verbatim => refused(format!(
                    "it has more than {max_bytes} bytes, the limit of a page"
                ))
                .with_help("split it"),
            });
        }
        if let Some(reason) = fingerprint::unsuitable_reason(bytes) {
            return Err(match reason.split_once("; ") {
                Some((why, help)) => refused(why.to_owned()).with_help(help),
                None => refused(reason.to_owned()),
            });
        }
        let content = String::from_utf8_lossy(bytes);
        let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
        let count = content.chars().count();
        if count > max_chars {
            let why = format!("it has {count} characters, the limit is {max_chars}");
            return Err(refused(why).with_help(split));
        }
        if content.trim().is_empty() {
            return Err(refused("it is empty".to_owned()));
        }
        Ok(Self {
            label,
            content: content.to_owned(),
            is_file: false,
        })
    }
}

/// Reads one byte more than the limit, so that a longer input is noticed.
fn read_bounded(input: impl io::Read, mode: TextMode) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(mode.max_bytes() + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a path in the project that leads outside of it: a cloned project may contain a link to a private file.
fn check_link(path: &Path, project: &Path) -> Result<(), Problem> {
    let Ok(root) = project.canonicalize() else {
        return Ok(());
    };
    // A missing file is reported when it is opened.
    let Ok(target) = path.canonicalize() else {
        return Ok(());
    };
    let Ok(absolute) = std::path::absolute(path) else {
        return Ok(());
    };
    let named = absolute
        .components()
        .fold(PathBuf::new(), |mut named, part| {
            match part {
                Component::ParentDir => drop(named.pop()),
                part => named.push(part),
            }
            named
        });
    let is_named_inside = [project, &root].iter().any(|root| named.starts_with(root));
    if is_named_inside && !target.starts_with(&root) {
        let target = excerpt(&target.to_string_lossy());
        return Err(Problem::new(format!(
            "it is a link that leads outside the project, to `{target}`"
        ))
        .with_help("name that file itself, if it is meant"));
    }
    Ok(())
}

/// The texts of a run, each once, with unique labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextInputs {
    pub(crate) texts: Vec<TextInput>,
    /// Texts that are left out because an earlier one is equal; one sentence each.
    pub(crate) duplicates: Vec<String>,
    #[serde(default)]
    pub(crate) mode: TextMode,
}

impl TextInputs {
    /// Collects `texts` in their order.
    ///
    /// # Errors
    /// If they are too long together.
    pub fn collect(texts: Vec<TextInput>, mode: TextMode) -> Result<Self, Problem> {
        let mut inputs = Self {
            mode,
            ..Self::default()
        };
        for mut text in texts {
            let content = text.content.trim();
            if let Some(earlier) = inputs
                .texts
                .iter()
                .find(|earlier| earlier.content.trim() == content)
            {
                inputs.duplicates.push(format!(
                    "{} is left out: an earlier text, {}, is equal",
                    text.label, earlier.label
                ));
                continue;
            }
            let plain = text.label.clone();
            let is_used = |label: &str| inputs.texts.iter().any(|other| other.label == label);
            let mut number = 2;
            while is_used(&text.label) {
                text.label = format!("{plain} ({number})");
                number += 1;
            }
            inputs.texts.push(text);
        }
        let json_bytes = |text: &TextInput| {
            serde_json::to_string(&text.content).map_or(usize::MAX, |json| json.len())
        };
        if inputs.texts.iter().map(json_bytes).sum::<usize>() > MAX_TOTAL_BYTES {
            let limit = MAX_TOTAL_BYTES >> 20;
            let problem = Problem::new(format!(
                "the texts are too long together: the limit of a run is {limit} MiB"
            ));
            return Err(problem.with_help("give them to several runs"));
        }
        Ok(inputs)
    }

    /// A key for each text, from its label and its content: equal texts have equal keys in every run.
    pub fn keys(&self) -> Vec<String> {
        let key = |text: &TextInput, hash_length| {
            let mut slug = slug::slugify(&text.label);
            slug.truncate(KEY_SLUG_BYTES);
            let hash = slug::short_hash(&text.content, hash_length);
            let parts = ["text", slug.trim_end_matches('-'), &hash];
            parts
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("-")
        };
        let keys = |hash_length| {
            self.texts
                .iter()
                .map(|text| key(text, hash_length))
                .collect::<Vec<String>>()
        };
        let is_distinct =
            |keys: &Vec<String>| keys.iter().collect::<BTreeSet<_>>().len() == keys.len();
        // The contents differ, so their full hashes do.
        (8..=64)
            .step_by(8)
            .map(keys)
            .find(is_distinct)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
