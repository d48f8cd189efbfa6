//! Reads the user's settings file, with a size limit.

#![expect(clippy::disallowed_methods, reason = "the user's settings")]

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
};

use ingestdeck_core::config::{ConfigError, file::MAX_BYTES};

/// Reads the text of a file. Returns `None` if it does not exist, unless `asked_for` is true because the user named it.
///
/// # Errors
/// If the file cannot be read, is too large, or is not UTF-8.
pub(super) fn read(path: &Path, asked_for: bool) -> Result<Option<String>, ConfigError> {
    let unreadable = |cause: String| ConfigError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && !asked_for => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| unreadable("it is not UTF-8 text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_invalid_settings_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        assert_eq!(read(&path, false).unwrap(), None);
        let unreadable = |path: &Path, asked_for| {
            matches!(read(path, asked_for), Err(ConfigError::Unreadable { .. }))
        };
        assert!(unreadable(&path, true));
        assert!(unreadable(dir.path(), false));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(unreadable(&path, false));
        std::fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
        assert!(matches!(
            read(&path, false),
            Err(ConfigError::TooLarge { .. })
        ));
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&path, false).unwrap().as_deref(), Some(""));
    }
}
