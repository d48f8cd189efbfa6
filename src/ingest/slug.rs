//! Unit keys from paths: readable, safe as file names, and unique.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

/// Longest key in bytes. Keys become file names with additions, and file systems allow 255 bytes. Longer keys end in a
/// hash, where KTX keeps them whole.
pub(crate) const MAX_KEY_BYTES: usize = 200;

/// `path` in lower-case letters, digits and single hyphens; may be empty.
pub(crate) fn slugify(path: &str) -> String {
    let mut slug = String::with_capacity(path.len());
    for c in path.chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// A key `<prefix>-<slug>` for every path, in the order of the paths. `slugged` returns the part of the path for the
/// slug.
///
/// A unique slug is used unchanged. Paths with the same slug all get a hash of the whole path, so that no key depends
/// on the order of the files. Paths must be distinct.
pub(crate) fn unique_keys<'a>(
    prefix: &str,
    paths: &[&'a str],
    slugged: impl Fn(&'a str) -> &'a str,
) -> Vec<String> {
    let slugs: Vec<String> = paths.iter().map(|path| slugify(slugged(path))).collect();
    let bearers = count_bearers(slugs.iter().map(String::as_str));
    let room = MAX_KEY_BYTES.saturating_sub(prefix.len() + 1);
    let bare = |slug: &str| !slug.is_empty() && slug.len() <= room && bearers.get(slug) == Some(&1);
    let key = |path: &str, slug: &str, hash_length: usize| {
        if bare(slug) {
            return format!("{prefix}-{slug}");
        }
        let short: String = slug
            .chars()
            .take(room.saturating_sub(hash_length + 1))
            .collect();
        let parts = [
            prefix,
            short.trim_end_matches('-'),
            &short_hash(path, hash_length),
        ];
        parts
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join("-")
    };
    distinct_keys(|hash_length| {
        paths
            .iter()
            .zip(&slugs)
            .map(|(path, slug)| key(path, slug, hash_length))
            .collect()
    })
}

/// How many of the `keys` are equal to each.
pub(crate) fn count_bearers<'a>(keys: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut bearers = BTreeMap::new();
    keys.for_each(|key| *bearers.entry(key).or_default() += 1);
    bearers
}

/// The keys with the shortest hashes that make them distinct: an unhashed key may be equal to a hashed one. At full
/// length the hashes of distinct paths are distinct.
fn distinct_keys(keys: impl Fn(usize) -> Vec<String>) -> Vec<String> {
    let mut hash_length = 6;
    loop {
        let found = keys(hash_length);
        if hash_length >= 64 || found.iter().collect::<BTreeSet<_>>().len() == found.len() {
            return found;
        }
        hash_length += 2;
    }
}

/// Makes the `wished` keys valid file names and unique. Each is a key with its path; the order is kept. Characters that
/// are not allowed in a file name become hyphens, and duplicate keys all get a hash of their path.
pub(crate) fn disambiguate_keys<P: AsRef<str>>(wished: &[(String, P)]) -> Vec<String> {
    let plain: Vec<String> = wished.iter().map(|(key, _)| sanitize_key(key)).collect();
    let bearers = count_bearers(plain.iter().map(String::as_str));
    let key = |key: &String, path: &str, hash_length: usize| {
        if bearers.get(key.as_str()) == Some(&1) && key.len() <= MAX_KEY_BYTES {
            return key.clone();
        }
        let short: String = key
            .chars()
            .take(MAX_KEY_BYTES.saturating_sub(hash_length + 1))
            .collect();
        format!(
            "{}-{}",
            short.trim_end_matches('-'),
            short_hash(path, hash_length)
        )
    };
    distinct_keys(|hash_length| {
        plain
            .iter()
            .zip(wished)
            .map(|(plain, (_, path))| key(plain, path.as_ref(), hash_length))
            .collect()
    })
}

fn sanitize_key(key: &str) -> String {
    let mut plain = String::with_capacity(key.len());
    for c in key.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') {
            plain.push(c);
        } else if !plain.ends_with('-') {
            plain.push('-');
        }
    }
    plain.trim_end_matches('-').to_owned()
}

/// Whether a file of this name, without its extension, is a device on some systems (such as `con` on Windows).
pub(crate) fn is_device_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let port = name
        .strip_prefix("com")
        .or_else(|| name.strip_prefix("lpt"));
    matches!(name.as_str(), "con" | "prn" | "aux" | "nul")
        || port
            .is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The first `length` hexadecimal digits of the SHA-256 of `text`.
pub(crate) fn short_hash(text: &str, length: usize) -> String {
    let mut hash = hex(&Sha256::digest(text));
    hash.truncate(length);
    hash
}

/// `bytes` as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `path` without the extension of its last component.
pub(crate) fn without_extension(path: &str) -> &str {
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    match path.rfind('.') {
        Some(dot) if dot > name => path.get(..dot).unwrap_or(path),
        _ => path,
    }
}

/// Whether a folder may be that of a scan. Its name is part of paths in commits and messages, and anyone may have created
/// the folder.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= MAX_KEY_BYTES && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn slugs_read_like_their_path() {
        assert_eq!(slugify("Sales Ops/NRR_notes"), "sales-ops-nrr-notes");
        assert_eq!(slugify("--ä--"), "");
        assert_eq!(without_extension("a.b/c.d.md"), "a.b/c.d");
        assert_eq!(without_extension("a.b/c"), "a.b/c");
        assert_eq!(without_extension(".md"), ".md");
    }

    #[test]
    fn keys_are_kept_up_to_the_file_name_limit() {
        let name =
            "models/intermediate/licenses/deduplicated/".to_owned() + &"int_licenses_".repeat(8);
        let key = &unique_keys("dbt", &[&name], without_extension)[0];
        assert_eq!(*key, format!("dbt-{}", slugify(&name)));
        assert!(key.len() > 140, "{key}");
        let (fits, longer) = ("x".repeat(MAX_KEY_BYTES - 4), "x".repeat(MAX_KEY_BYTES - 3));
        let keys = unique_keys("dbt", &[&fits, &longer], |path| path);
        assert_eq!(keys[0], format!("dbt-{fits}"));
        assert_eq!(
            (keys[1].len(), keys[1].rsplit_once('-').unwrap().1),
            (MAX_KEY_BYTES, &*short_hash(&longer, 6))
        );
        let wished = [(format!("metricflow-{longer}"), "a")];
        let key = &disambiguate_keys(&wished)[0];
        assert_eq!(
            (key.len(), key.rsplit_once('-').unwrap().1),
            (MAX_KEY_BYTES, &*short_hash("a", 6))
        );
    }

    #[test]
    fn shared_slugs_are_disambiguated_in_any_order() {
        let paths = ["a-b.md", "a/b.md", "a/c.md", "日本.md"];
        let keys = unique_keys("docs", &paths, without_extension);
        insta::assert_debug_snapshot!(keys);
        let mut reversed: Vec<_> = paths.into_iter().rev().collect();
        let mut again = unique_keys("docs", &reversed, without_extension);
        again.reverse();
        assert_eq!(again, keys);
        reversed.truncate(2);
        assert_eq!(
            unique_keys("docs", &reversed, without_extension)[1],
            "docs-a-c"
        );
    }

    #[test]
    fn slug_resembling_a_hashed_one_is_disambiguated() {
        let posing = format!("a-b-{}", short_hash("a/b", 6));
        let paths = ["a-b", "a/b", posing.as_str()];
        let keys: BTreeSet<_> = unique_keys("docs", &paths, |path| path)
            .into_iter()
            .collect();
        assert_eq!(keys.len(), 3);
    }

    #[test]
    fn preferred_keys_are_kept_where_valid() {
        let wished = [
            ("lookml-a_b", "1"),
            ("lookml-x", "2"),
            ("lookml-x", "3"),
            ("lookml-ä/ö", "4"),
            ("..", "5"),
        ];
        let wished = wished.map(|(key, path)| (key.to_owned(), path));
        let keys = disambiguate_keys(&wished);
        assert_eq!(
            (keys[0].as_str(), keys[3].as_str()),
            ("lookml-a_b", "lookml")
        );
        assert!(
            keys[1].starts_with("lookml-x-")
                && keys[2].starts_with("lookml-x-")
                && keys[1] != keys[2],
            "{keys:?}"
        );
    }

    proptest! {
        #[test]
        fn wished_keys_are_distinct_and_plain(
            wished in prop::collection::btree_map("[a-z/]{1,12}", "[aA_.é/ -]{0,4}|.{0,260}", 0..40),
        ) {
            let wished: Vec<_> = wished.into_iter().map(|(path, key)| (format!("x-{key}"), path)).collect();
            let keys = disambiguate_keys(&wished);
            prop_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), wished.len());
            for key in keys {
                prop_assert!(key.starts_with('x') && key.len() <= MAX_KEY_BYTES);
                prop_assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{}", key);
            }
        }

        #[test]
        fn keys_are_unique_short_and_plain(paths in prop::collection::btree_set("[aAbé/_ .-]{0,6}|.{0,260}", 0..40)) {
            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
            let keys = unique_keys("docs", &paths, without_extension);
            prop_assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), paths.len());
            for key in keys {
                prop_assert!(key.len() <= MAX_KEY_BYTES);
                prop_assert!(key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", key);
            }
        }
    }
}
