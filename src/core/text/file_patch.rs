//! Applies the part of a patch that changes one file, to see the text that the patch makes.
//!
//! Reads patches as this program writes them: of git, without renames, with the prefixes `a/` and `b/`. Patches come
//! from files and are untrusted, so everything is checked against the text.

use super::lines;

/// Why a patch does not show the text of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilePatchError {
    #[error("the patch does not change the file")]
    NotInPatch,
    /// The patch is damaged, or the text is not the one that it was made for.
    #[error("the patch does not fit the text")]
    Mismatch,
}

/// The text of `path` after `patch`, if it is `old` before; `None` if the patch deletes the file.
pub fn patched_file(patch: &str, path: &str, old: &str) -> Result<Option<String>, FilePatchError> {
    let header = format!("diff --git a/{path} b/{path}");
    let mut patch = patch.split_inclusive('\n').peekable();
    patch
        .find(|line| line.trim_end() == header)
        .ok_or(FilePatchError::NotInPatch)?;
    let old = lines(old);
    let (mut new, mut at) = (String::with_capacity(old.len()), 0);
    let mut is_deleted = false;
    // Lines of the current hunk that are still expected, of the old and of the new text.
    let (mut old_left, mut new_left) = (0_usize, 0_usize);
    while let Some(line) = patch.next() {
        if (old_left, new_left) == (0, 0) {
            if line.starts_with("diff --git ") {
                break;
            }
            is_deleted |= line.starts_with("deleted file mode ");
            if line.starts_with("GIT binary patch") {
                return Err(FilePatchError::Mismatch);
            }
            if let Some(hunk) = line.strip_prefix("@@ -") {
                let (start, removed, added) = parse_hunk(hunk).ok_or(FilePatchError::Mismatch)?;
                let kept = old.get(at..start).ok_or(FilePatchError::Mismatch)?;
                new.extend(kept.iter().copied());
                (at, old_left, new_left) = (start, removed, added);
            }
            continue;
        }
        let (sign, text) = line.split_at_checked(1).ok_or(FilePatchError::Mismatch)?;
        // The mark of a missing line break at the end of a text follows the line.
        let lacks_break = patch.peek().is_some_and(|next| next.starts_with("\\ "));
        let text = if lacks_break {
            text.strip_suffix('\n').unwrap_or(text)
        } else {
            text
        };
        let count = |left: &mut usize| {
            left.checked_sub(1)
                .map(|rest| *left = rest)
                .ok_or(FilePatchError::Mismatch)
        };
        match sign {
            " " | "-" => {
                if old.get(at) != Some(&text) {
                    return Err(FilePatchError::Mismatch);
                }
                at += 1;
                count(&mut old_left)?;
                if sign == " " {
                    count(&mut new_left)?;
                    new.push_str(text);
                }
            }
            "+" => {
                count(&mut new_left)?;
                new.push_str(text);
            }
            "\\" => {}
            _ => return Err(FilePatchError::Mismatch),
        }
    }
    if (old_left, new_left) != (0, 0) {
        return Err(FilePatchError::Mismatch);
    }
    new.extend(old.get(at..).unwrap_or_default().iter().copied());
    Ok((!is_deleted).then_some(new))
}

/// Parses `start,count +start,count @@`: the lines before the hunk, and its lines in the old and in the new text.
fn parse_hunk(hunk: &str) -> Option<(usize, usize, usize)> {
    let (old, rest) = hunk.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
    };
    let ((start, removed), (_, added)) = (range(old)?, range(new)?);
    // Without lines, the start is the line before the hunk.
    let start = if removed == 0 {
        start
    } else {
        start.checked_sub(1)?
    };
    Some((start, removed, added))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use proptest::prelude::*;

    use super::*;

    const PATH: &str = "wiki/a.md";

    /// The patch that git makes of the two texts, after one of another file.
    fn git_patch(old: &str, new: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut text = String::from(
            "diff --git a/wiki/z.md b/wiki/z.md\n--- a/wiki/z.md\n+++ b/wiki/z.md\n@@ -1 +1 @@\n-x\n+y\n",
        );
        for (name, content) in [("old", old), ("new", new)] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        let made = Command::new("git")
            .args(["diff", "--no-index", "--text", "--no-color", "old", "new"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let made = String::from_utf8(made.stdout).unwrap();
        text.push_str(&made.replace("a/old b/new", &format!("a/{PATH} b/{PATH}")));
        text
    }

    #[test]
    fn patch_of_another_file_is_not_applied() {
        let patch = git_patch("a\n", "b\n");
        assert_eq!(
            patched_file(&patch, "wiki/b.md", "a\n"),
            Err(FilePatchError::NotInPatch)
        );
        assert_eq!(
            patched_file(&patch, PATH, "c\n"),
            Err(FilePatchError::Mismatch)
        );
        assert_eq!(
            patched_file(&patch, PATH, ""),
            Err(FilePatchError::Mismatch)
        );
        assert_eq!(
            patched_file(&patch, "wiki/z.md", "x\n"),
            Ok(Some("y\n".into()))
        );
    }

    #[test]
    fn deleted_file_has_no_text() {
        let patch = format!(
            "diff --git a/{PATH} b/{PATH}\ndeleted file mode 100644\n--- a/{PATH}\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
        );
        assert_eq!(patched_file(&patch, PATH, "a\nb\n"), Ok(None));
    }

    #[test]
    fn damaged_patch_is_refused() {
        let header = format!("diff --git a/{PATH} b/{PATH}\n");
        for hunk in [
            "@@ -9,1 +9,1 @@\n a\n",
            "@@ -1,2 +1,2 @@\n a\n",
            "@@ -0 +1 @@\n",
            "@@ -x +1 @@\n",
            "@@ -1 +1 @@\n?\n",
            "@@ -1,18446744073709551615 +1 @@\n a\n",
            "GIT binary patch\n",
        ] {
            assert_eq!(
                patched_file(&format!("{header}{hunk}"), PATH, "a\n"),
                Err(FilePatchError::Mismatch),
                "{hunk}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn patches_of_git_make_the_new_text(old in "([abc]{0,2}\n){0,20}[ab]{0,2}", new in "([abc]{0,2}\n){0,20}[ab]{0,2}") {
            prop_assume!(old != new);
            prop_assert_eq!(patched_file(&git_patch(&old, &new), PATH, &old), Ok(Some(new)));
        }

        #[test]
        fn any_patch_is_read(patch in "(diff --git a/wiki/a.md b/wiki/a.md|@@ -[0-9],[0-9] \\+[0-9] @@|[-+ \\\\].?|\n){0,12}", old in "(a?\n){0,5}") {
            let _ = patched_file(&patch, PATH, &old);
        }
    }
}
