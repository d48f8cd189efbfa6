//! Texts without what differs between two runs of the same calls: dates, times, directories and ids.

use std::{path::PathBuf, sync::LazyLock};

use regex_lite::Regex;

/// Replaces what differs between runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct NormalText {
    /// Directories of the project, in the record and now.
    directories: Vec<String>,
}

impl NormalText {
    /// For runs in these directories.
    pub(crate) fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut directories: Vec<String> = directories
            .into_iter()
            .map(|path| path.display().to_string())
            .collect();
        // A directory may be inside another one.
        directories.sort_by_key(|path| std::cmp::Reverse(path.len()));
        Self { directories }
    }

    pub(crate) fn of(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for directory in &self.directories {
            text = text.replace(directory, "<project>");
        }
        for (pattern, replacement) in PATTERNS.iter() {
            text = pattern.replace_all(&text, *replacement).into_owned();
        }
        text
    }
}

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"\b\d{4}-\d\d-\d\d-\d{6}\b", "<date>"),
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b",
            "<date>",
        ),
        (
            r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
            "<id>",
        ),
        (r"\blocal-[0-9a-z]{6,}\b", "<job>"),
        (r"\b[0-9a-f]{40}\b", "<commit>"),
    ];
    let compiled = patterns.into_iter();
    compiled
        .filter_map(|(pattern, replacement)| Some((Regex::new(pattern).ok()?, replacement)))
        .collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_directories_and_ids_do_not_differ() {
        assert_eq!(PATTERNS.len(), 5);
        let normal = NormalText::new(["/tmp/clone".into(), "/home/ann/project".into()]);
        let texts = [
            "read /home/ann/project/a.md at 2026-11-30T23:44:49Z, 2026-11-30-234449-local-mx3y3bk1",
            "read /tmp/clone/a.md at 2026-12-01T01:02:03.5Z, 2026-12-01-010203-local-abcdefgh",
        ];
        assert_eq!(normal.of(texts[0]), normal.of(texts[1]));
        assert_ne!(normal.of("3 rows"), normal.of("4 rows"));
    }
}
