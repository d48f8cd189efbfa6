//! `read_file`, `edit_file` and `write_file`.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::Deserialize;

use super::SessionDir;
use ingestdeck_core::diagnostic::Problem;
use ingestdeck_os::scoped_dir::SHARED_MODE;

/// Most bytes of a file that is read or written.
const MAX_FILE_BYTES: u64 = 10 << 20;
/// Mode of a new file; the umask applies.
const FILE_MODE: u32 = 0o666;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum FileEncoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// The arguments of `read_file`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ReadFile {
    /// Absolute path to the file to read
    file_path: String,
    /// Encoding of the reply
    #[serde(default)]
    encoding: FileEncoding,
}

/// The arguments of `edit_file`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct EditFile {
    /// Absolute path to the file
    file_path: String,
    /// Text to find and replace
    old_string: String,
    /// Text to write instead
    new_string: String,
    /// Replace all occurrences of it
    #[serde(default)]
    replace_all: bool,
}

/// The arguments of `write_file`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteFile {
    /// Absolute path to the file
    file_path: String,
    /// The new content of the file
    content: String,
}

pub(super) fn read_file(
    dir: &SessionDir,
    ReadFile {
        file_path,
        encoding,
    }: ReadFile,
) -> Result<String, Problem> {
    let bytes = read(dir, &file_path)?;
    match encoding {
        FileEncoding::Base64 => Ok(STANDARD.encode(bytes)),
        FileEncoding::Utf8 => String::from_utf8(bytes).map_err(|_| {
            Problem::new(format!("`{file_path}` is not UTF-8 text"))
                .with_help("read it with the encoding base64")
        }),
    }
}

pub(super) fn edit_file(dir: &SessionDir, edit: EditFile) -> Result<String, Problem> {
    let EditFile {
        file_path,
        old_string,
        new_string,
        replace_all,
    } = edit;
    if old_string.is_empty() {
        return Err(Problem::new("old_string is empty")
            .with_help("name the text to replace, or use write_file"));
    }
    let text = String::from_utf8(read(dir, &file_path)?)
        .map_err(|_| format!("`{file_path}` is not UTF-8 text"))?;
    let count = if replace_all {
        text.matches(&old_string).count()
    } else {
        1
    };
    let size = text
        .len()
        .saturating_add(count.saturating_mul(new_string.len().saturating_sub(old_string.len())));
    if size as u64 > MAX_FILE_BYTES {
        return Err(Problem::new(format!(
            "cannot write `{file_path}`: it would have {size} bytes, the limit is {MAX_FILE_BYTES}"
        )));
    }
    let edited = match text.matches(&old_string).count() {
        0 => return Err(format!("old_string does not occur in `{file_path}`").into()),
        1 => text.replacen(&old_string, &new_string, 1),
        _ if replace_all => text.replace(&old_string, &new_string),
        many => {
            return Err(
                Problem::new(format!("old_string occurs {many} times in `{file_path}`"))
                    .with_help("name more text around it, or set replace_all"),
            );
        }
    };
    write(dir, &file_path, edited.as_bytes())?;
    Ok(format!("Successfully edited {file_path}"))
}

pub(super) fn write_file(
    dir: &SessionDir,
    WriteFile { file_path, content }: WriteFile,
) -> Result<String, Problem> {
    write(dir, &file_path, content.as_bytes())?;
    Ok(format!("Successfully wrote {file_path}"))
}

fn read(dir: &SessionDir, path: &str) -> Result<Vec<u8>, String> {
    let relative = dir.relative(path)?;
    dir.open()?
        .read(&relative, MAX_FILE_BYTES)
        .map_err(|error| format!("cannot read `{path}`: {}", cause(&error)))
}

fn write(dir: &SessionDir, path: &str, bytes: &[u8]) -> Result<(), String> {
    let relative = dir.relative(path)?;
    if is_protected(&relative) {
        return Err(format!(
            "cannot write `{path}`: it configures programs; a person must change it"
        ));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "cannot write `{path}`: it has {} bytes, the limit is {MAX_FILE_BYTES}",
            bytes.len()
        ));
    }
    // A script stays executable.
    let root = dir.open()?;
    let known = root
        .open_file(&relative)
        .and_then(|(file, _)| file.metadata())
        .ok();
    let written = root
        .write(&relative, bytes, SHARED_MODE, FILE_MODE)
        .and_then(|()| match known {
            Some(known) => {
                let mode = Permissions::from_mode(known.permissions().mode() & 0o777);
                root.open_file(&relative)?.0.set_permissions(mode)
            }
            None => Ok(()),
        });
    written.map_err(|error| format!("cannot write `{path}`: {}", cause(&error)))
}

/// True for files that decide which programs run, or which calls are permitted.
fn is_protected(relative: &str) -> bool {
    let is_directory = |part: &str| matches!(part, ".git" | ".claude" | ".ktx");
    let name = relative.rsplit('/').next().unwrap_or(relative);
    relative.split('/').any(is_directory)
        || matches!(name, ".mcp.json" | "ingestdeck.toml" | "ktx.yaml")
}

fn cause(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(nix::libc::ELOOP) => "links are not followed".to_owned(),
        _ => error.to_string(),
    }
}
