//! The part of a patch about one file. Pure.

/// The part of a patch in git's format about the file at `path`, without the lines before its first hunk. `None` if the
/// patch does not change the file.
pub(crate) fn patch_section<'a>(patch: &'a str, path: &str) -> Option<&'a str> {
    const HEADER: &str = "diff --git ";
    let mut rest = patch.strip_prefix(HEADER)?;
    loop {
        // Lines of a hunk begin with a space, a sign or a backslash, so only the next file begins with the header.
        let (section, next) = match rest.find("\ndiff --git ") {
            Some(end) => (&rest[..=end], rest.get(end + 1 + HEADER.len()..)),
            None => (rest, None),
        };
        let (names, changes) = section.split_once('\n').unwrap_or((section, ""));
        let is_of =
            names.strip_prefix("a/").and_then(|names| names.strip_prefix(path)?.strip_prefix(" b/")) == Some(path);
        if is_of {
            let hunks = if changes.starts_with("@@") { Some(0) } else { changes.find("\n@@").map(|at| at + 1) };
            return Some(hunks.map_or("", |at| &changes[at..]));
        }
        rest = next?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_of_each_file_is_found() {
        let patch = "diff --git a/wiki/a.md b/wiki/a.md\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/wiki/a.md\n\
                     @@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+text\ndiff --git a/wiki/b.md b/wiki/b.md\n\
                     deleted file mode 100644\n--- a/wiki/b.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";
        assert_eq!(patch_section(patch, "wiki/a.md"), Some("@@ -0,0 +1,2 @@\n+diff --git a/x b/x\n+text\n"));
        assert_eq!(patch_section(patch, "wiki/b.md"), Some("@@ -1 +0,0 @@\n-gone\n"));
        assert_eq!(
            (patch_section(patch, "x"), patch_section("", "x"), patch_section("diff --git ", "")),
            (None, None, None)
        );
        assert_eq!(patch_section("diff --git a/e b/e\nnew file mode 100644\n", "e"), Some(""), "an empty file");
    }
}
