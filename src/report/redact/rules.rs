//! The rules of `assets/redaction.toml`, which describes their format: tokens by their shape, secrets in the syntax of a
//! command or a file, and the names of [`names`](super::names). Pure.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{LazyLock, OnceLock},
};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder, SetMatches};
use serde::Deserialize;

/// Bytes of compiled regexes, and of the cache of each while it runs.
const SIZE_LIMIT: usize = 64 << 20;
const CACHE_LIMIT: usize = 8 << 20;

/// What precedes a token whose regex begins with `\b`: no letter or digit, or an escape that was not decoded. As a part of
/// the regex, it is searched in the same pass, so that a word which only contains the token hides no other one.
const BOUNDARY: &str = r"(?:^|[^A-Za-z0-9]|\\[abfnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,6}[A-Za-z])";

#[derive(Deserialize)]
struct RuleFile {
    rules: Vec<SecretRule>,
    names: Vec<SecretRule>,
    allowlists: Vec<AllowList>,
}

/// A rule. Its regex is compiled when a text contains one of its keywords.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecretRule {
    pub(super) id: String,
    regex: String,
    #[serde(default)]
    secret_group: usize,
    #[serde(default)]
    entropy: f64,
    keywords: Vec<String>,
    #[serde(skip)]
    compiled: OnceLock<Option<Regex>>,
}

/// Values that are not secret.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllowList {
    #[serde(default)]
    target_rules: Vec<String>,
    #[serde(default)]
    regex_target: String,
    regexes: Vec<String>,
    #[serde(skip)]
    compiled: OnceLock<RegexSet>,
}

/// The rules of the file.
#[derive(Default)]
pub(super) struct SecretRules {
    pub(super) rules: Vec<SecretRule>,
    /// The keywords of each rule, and those of all names.
    keywords: RegexSet,
    pub(super) names: Vec<SecretRule>,
    /// Matches a part of each name.
    pub(super) name_keywords: String,
    allowlists: Vec<AllowList>,
}

pub(super) static RULES: LazyLock<SecretRules> = LazyLock::new(|| {
    // A test reads the file and compiles each regex, so nothing here can fail.
    let Ok(file) = toml::from_str::<RuleFile>(include_str!("../../../assets/redaction.toml"))
    else {
        return SecretRules::default();
    };
    let names = alternation(file.names.iter().flat_map(|name| &name.keywords));
    let keywords = file.rules.iter().map(|rule| alternation(&rule.keywords));
    let keywords = keywords.chain([names.clone()]);
    SecretRules {
        keywords: set(keywords.map(|keywords| format!("(?i){keywords}"))).unwrap_or_default(),
        rules: file.rules,
        names: file.names,
        name_keywords: names,
        allowlists: file.allowlists,
    }
});

/// Joins keywords. The first one that matches wins, so the longest comes first.
fn alternation<'a>(keywords: impl IntoIterator<Item = &'a String>) -> String {
    let keywords = keywords.into_iter().map(|keyword| regex::escape(keyword));
    let mut keywords: Vec<_> = keywords.collect();
    keywords.sort_by_key(|keyword| std::cmp::Reverse(keyword.len()));
    keywords.join("|")
}

impl AllowList {
    fn applies_to(&self, id: &str) -> bool {
        self.target_rules.is_empty() || self.target_rules.iter().any(|target| target == id)
    }

    fn contains(&self, matched: &[u8], secret: &[u8]) -> bool {
        let regexes = self
            .compiled
            .get_or_init(|| set(&self.regexes).unwrap_or_default());
        regexes.is_match(if self.regex_target == "match" {
            matched
        } else {
            secret
        })
    }
}

fn set(patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(patterns)
        .unicode(false)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(CACHE_LIMIT)
        .build()
}

/// Compiles a pattern of bytes.
pub(super) fn regex(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(CACHE_LIMIT)
        .build()
}

/// The bytes without the entities of a report in HTML or XML.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    /// Without their semicolons, at which a value may end.
    const ENTITIES: [(&str, &str); 5] = [
        ("&quot", "\""),
        ("&#39", "'"),
        ("&lt", "<"),
        ("&gt", ">"),
        ("&amp", "&"),
    ];
    let text = String::from_utf8_lossy(bytes).into_owned();
    let decode = |text: String, (entity, char): &(&str, &str)| {
        text.replace(&format!("{entity};"), char)
            .replace(entity, char)
    };
    ENTITIES.iter().fold(text, decode).into_bytes()
}

/// Shannon entropy, in bits per byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = HashMap::new();
    for byte in bytes {
        *counts.entry(byte).or_insert(0.0) += 1.0 / bytes.len() as f64;
    }
    -counts
        .values()
        .map(|share: &f64| share * share.log2())
        .sum::<f64>()
}

/// True for placeholders of examples, templates and code.
pub(super) fn is_placeholder(text: &str) -> bool {
    let mut global = RULES
        .allowlists
        .iter()
        .filter(|list| list.target_rules.is_empty());
    global.any(|list| list.contains(b"", text.as_bytes()))
}

/// The rules whose keywords a text contains.
pub(super) struct RuleMatches(SetMatches);

impl RuleMatches {
    pub(super) fn new(text: &str) -> Self {
        Self(RULES.keywords.matches(text.as_bytes()))
    }

    /// True if the text may contain a name of a secret.
    pub(super) fn may_hold_name(&self) -> bool {
        self.0.matched(RULES.rules.len())
    }

    /// Adds the ranges of the secrets in `text`, or only of those that are recognised without a context.
    pub(super) fn find(&self, text: &str, only_tokens: bool, spans: &mut Vec<Range<usize>>) {
        if !self.0.matched_any() {
            return;
        }
        let rules = self.0.iter().filter_map(|index| RULES.rules.get(index));
        for rule in rules.filter(|rule| rule.secret_group == 0 || !only_tokens) {
            rule.find(text.as_bytes(), spans);
        }
    }
}

impl SecretRule {
    /// The compiled regex. The first group of one that begins with `\b` is all that follows.
    pub(super) fn regex(&self) -> Option<&Regex> {
        let compile = || match self.regex.strip_prefix(r"\b") {
            Some(token) => regex(&format!("{BOUNDARY}({token})")).ok(),
            None => regex(&self.regex).ok(),
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// True if the secret of a match is not one.
    pub(super) fn allows(&self, matched: &[u8], secret: &[u8]) -> bool {
        let is_listed = |matched: &[u8], secret: &[u8]| {
            let lists = &mut RULES.allowlists.iter();
            lists.any(|list| list.applies_to(&self.id) && list.contains(matched, secret))
        };
        let is_escaped = secret.contains(&b'&');
        is_listed(matched, secret)
            || self.entropy > 0.0 && entropy(secret) < self.entropy
            || is_escaped && is_listed(&unescaped(matched), &unescaped(secret))
    }

    /// Adds the ranges of the secrets of this rule.
    fn find(&self, text: &[u8], spans: &mut Vec<Range<usize>>) {
        let Some(regex) = self.regex() else { return };
        let (has_group, mut at) = (regex.captures_len() > 1, 0);
        while let Some(whole) = regex.find_at(text, at) {
            let groups = has_group
                .then(|| regex.captures_at(text, whole.start()))
                .flatten();
            // Alternatives of a regex may have a group each.
            let secret = groups
                .and_then(|groups| groups.iter().flatten().last())
                .unwrap_or(whole);
            if !secret.is_empty() && !self.allows(whole.as_bytes(), secret.as_bytes()) {
                spans.push(secret.range());
            }
            at = whole.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_file_compiles_and_names_its_own_rules() {
        let file: RuleFile =
            toml::from_str(include_str!("../../../assets/redaction.toml")).unwrap();
        let ids: Vec<_> = file
            .rules
            .iter()
            .chain(&file.names)
            .map(|rule| &rule.id)
            .collect();
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{id} twice");
        }
        for list in &file.allowlists {
            for id in &list.target_rules {
                assert!(ids.contains(&id), "no rule {id}");
            }
        }
        for list in &file.allowlists {
            set(&list.regexes).unwrap();
        }
        for rule in file.rules.iter().chain(&file.names) {
            let regex = rule.regex().unwrap_or_else(|| panic!("{}", rule.id));
            assert!(rule.secret_group < regex.captures_len(), "{}", rule.id);
        }
        assert!(!RULES.keywords.is_empty());
        assert!(file.rules.len() >= 150);
    }

    #[test]
    fn entropy_is_in_bits_per_byte() {
        for (text, bits) in [("", 0.0), ("aaaa", 0.0), ("abab", 1.0), ("abcd", 2.0)] {
            assert!((entropy(text.as_bytes()) - bits).abs() < 1e-9, "{text}");
        }
    }
}
