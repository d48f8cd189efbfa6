//! The rules of `rules.toml`, which describes their format: tokens by their shape, secrets in the syntax of a command or a
//! file, and the names of [`names`](super::names). Pure.

use std::{collections::HashMap, ops::Range, sync::LazyLock};

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder, SetMatches};
use serde::Deserialize;

/// Bytes of compiled regexes, and of the cache of each while it runs.
const SIZE_LIMIT: usize = 64 << 20;
const CACHE_LIMIT: usize = 8 << 20;

/// What precedes a token whose regex begins with `\b`: no letter or digit, or an escape that was not decoded.
static BOUNDARY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(r"(?:[^A-Za-z0-9]|\\[abfnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,6}[A-Za-z])$").ok()
});

/// Bytes of the longest escape before a token.
const LONGEST_ESCAPE: usize = 9;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleFile {
    rules: Vec<RuleText>,
    names: Vec<RuleText>,
    allowlists: Vec<AllowListText>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleText {
    id: String,
    regex: String,
    #[serde(default)]
    secret_group: usize,
    #[serde(default)]
    entropy: f64,
    keywords: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllowListText {
    #[serde(default)]
    target_rules: Vec<String>,
    #[serde(default)]
    regex_target: String,
    regexes: Vec<String>,
}

/// A rule whose regexes are compiled.
pub(super) struct SecretRule {
    pub(super) id: String,
    pub(super) regex: Regex,
    group: usize,
    is_bounded: bool,
    entropy: f64,
    allowed: RegexSet,
    allowed_matches: RegexSet,
}

impl SecretRule {
    /// True if the secret of a match is not one.
    pub(super) fn allows(&self, matched: &[u8], secret: &[u8]) -> bool {
        self.allowed.is_match(secret)
            || self.allowed_matches.is_match(matched)
            || self.entropy > 0.0 && entropy(secret) < self.entropy
    }
}

/// The compiled rules of the file.
#[derive(Default)]
pub(super) struct SecretRules {
    pub(super) rules: Vec<SecretRule>,
    /// The keywords of each rule, and those of all names.
    keywords: RegexSet,
    pub(super) names: Vec<SecretRule>,
    placeholders: RegexSet,
    /// Matches a part of each name.
    pub(super) name_keywords: String,
}

pub(super) static RULES: LazyLock<SecretRules> = LazyLock::new(|| {
    // A test compiles the file, so neither can fail.
    let file = toml::from_str(include_str!("rules.toml")).ok();
    file.and_then(|file| compile(&file).ok())
        .unwrap_or_default()
});

fn compile(file: &RuleFile) -> Result<SecretRules, regex::Error> {
    let rules = |texts: &[RuleText]| {
        texts
            .iter()
            .map(|text| rule(text, &file.allowlists))
            .collect::<Result<_, _>>()
    };
    let names = alternation(file.names.iter().flat_map(|name| &name.keywords));
    let keywords = file.rules.iter().map(|rule| alternation(&rule.keywords));
    let keywords = keywords.chain([names.clone()]);
    let global = file
        .allowlists
        .iter()
        .filter(|list| list.target_rules.is_empty());
    Ok(SecretRules {
        rules: rules(&file.rules)?,
        keywords: set(keywords.map(|keywords| format!("(?i){keywords}")))?,
        names: rules(&file.names)?,
        placeholders: set(global.flat_map(|list| &list.regexes))?,
        name_keywords: names,
    })
}

/// Joins keywords. The first one that matches wins, so the longest comes first.
fn alternation<'a>(keywords: impl IntoIterator<Item = &'a String>) -> String {
    let mut keywords: Vec<_> = keywords
        .into_iter()
        .map(|keyword| regex::escape(keyword))
        .collect();
    keywords.sort_by_key(|keyword| std::cmp::Reverse(keyword.len()));
    keywords.join("|")
}

fn rule(text: &RuleText, allowlists: &[AllowListText]) -> Result<SecretRule, regex::Error> {
    let allowed = |of_match: bool| {
        let lists = allowlists.iter().filter(|list| {
            (list.target_rules.is_empty() || list.target_rules.contains(&text.id))
                && (list.regex_target == "match") == of_match
        });
        set(lists.flat_map(|list| &list.regexes))
    };
    let token = text.regex.strip_prefix(r"\b");
    Ok(SecretRule {
        id: text.id.clone(),
        regex: regex(token.unwrap_or(&text.regex))?,
        group: text.secret_group,
        is_bounded: token.is_some(),
        entropy: text.entropy,
        allowed: allowed(false)?,
        allowed_matches: allowed(true)?,
    })
}

fn set(patterns: impl Iterator<Item = impl AsRef<str>>) -> Result<RegexSet, regex::Error> {
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
    RULES.placeholders.is_match(text.as_bytes())
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
        for rule in rules.filter(|rule| rule.group == 0 || !only_tokens) {
            spans.extend(rule.secrets(text.as_bytes()));
        }
    }
}

impl SecretRule {
    /// The ranges of the secrets of this rule.
    fn secrets<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        self.regex.find_iter(text).filter_map(|found| {
            let start = found.start();
            let before = &text[start.saturating_sub(LONGEST_ESCAPE)..start];
            if self.is_bounded && start > 0 && !BOUNDARY.as_ref()?.is_match(before) {
                return None;
            }
            let groups = (self.group > 0)
                .then(|| self.regex.captures_at(text, start))
                .flatten();
            // Alternatives of a regex may have a group each.
            let secret = groups
                .and_then(|groups| groups.iter().flatten().last())
                .unwrap_or(found);
            let is_allowed = self.allows(found.as_bytes(), secret.as_bytes());
            (!is_allowed && !secret.is_empty()).then(|| secret.range())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_file_compiles_and_names_its_own_rules() {
        let file: RuleFile = toml::from_str(include_str!("rules.toml")).unwrap();
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
        let rules = compile(&file).unwrap();
        for rule in rules.rules.iter().chain(&rules.names) {
            assert!(rule.group < rule.regex.captures_len(), "{}", rule.id);
        }
        assert!(rules.rules.len() >= 150);
    }

    #[test]
    fn entropy_is_in_bits_per_byte() {
        for (text, bits) in [("", 0.0), ("aaaa", 0.0), ("abab", 1.0), ("abcd", 2.0)] {
            assert!((entropy(text.as_bytes()) - bits).abs() < 1e-9, "{text}");
        }
    }
}
