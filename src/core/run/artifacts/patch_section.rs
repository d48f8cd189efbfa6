//! The parts of a patch about its files. Pure.

use std::{collections::HashMap, ops::Range};

/// The parts of a patch in git's format by path of the file, without the lines before the first hunk of each.
pub fn patch_sections(patch: &str) -> HashMap<&str, Range<usize>> {
    const HEADER: &str = "diff --git ";
    let mut sections = HashMap::new();
    let mut start = 0;
    while patch[start..].starts_with(HEADER) {
        // Lines of a hunk begin with a space, a sign or a backslash, so only the next file begins with the header.
        let end = patch[start..]
            .find("\ndiff --git ")
            .map_or(patch.len(), |end| start + end + 1);
        let section = &patch[start..end];
        let (names, changes) = section.split_once('\n').unwrap_or((section, ""));
        if let Some(path) = same_path(&names[HEADER.len()..]) {
            let hunks = if changes.starts_with("@@") {
                Some(0)
            } else {
                changes.find("\n@@").map(|at| at + 1)
            };
            let first = hunks.map_or(end, |at| end - changes.len() + at);
            sections.entry(path).or_insert(first..end);
        }
        start = end;
    }
    sections
}

/// The path in `a/PATH b/PATH`; `None` for a file that is renamed.
fn same_path(names: &str) -> Option<&str> {
    let rest = names.strip_prefix("a/")?;
    let path = rest.get(..rest.len().checked_sub(" b/".len())? / 2)?;
    (rest.strip_prefix(path)?.strip_prefix(" b/") == Some(path)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section<'a>(patch: &'a str, path: &str) -> Option<&'a str> {
        patch_sections(patch)
            .get(path)
            .map(|section| &patch[section.clone()])
    }

    #[test]
    fn section_of_each_file_is_found() {
        let patch = "diff --git a/wiki/a.md b/wiki/a.md\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/wiki/a.md\n\
                     @@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+text\ndiff --git a/wiki/b.md b/wiki/b.md\n\
                     deleted file mode 100644\n--- a/wiki/b.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";
        assert_eq!(
            section(patch, "wiki/a.md"),
            Some("@@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+text\n")
        );
        assert_eq!(section(patch, "wiki/b.md"), Some("@@ -1 +0,0 @@\n-gone\n"));
        assert_eq!(
            (
                section(patch, "x"),
                section("", "x"),
                section("diff --git ", "")
            ),
            (None, None, None)
        );
        assert_eq!(
            section("diff --git a/e b/e\nnew file mode 100644\n", "e"),
            Some(""),
            "an empty file"
        );
        assert_eq!(
            section("diff --git a/é b/éé\n@@\n", "é"),
            None,
            "a renamed file"
        );
    }
}
