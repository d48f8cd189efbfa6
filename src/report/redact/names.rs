//! Secrets that follow a name: assignments, members, options, headers and lists, in text of any kind. Pure.
//!
//! `assets/redaction.toml` has the names and the values that are not secret; this module knows the syntax between the
//! two.

use std::{ops::Range, sync::LazyLock};

use regex::bytes::Regex;

use super::rules::{self, RULES, SecretRule};

/// Bytes of the longest name.
const LONGEST_NAME: usize = 120;

/// Bytes of a value that are searched for its end.
const LONGEST: usize = 4 << 10;

/// The same once the values of a text overlap so much that each of its bytes was searched [`SEARCHES`] times, so that no
/// text takes quadratic time.
const LONGEST_CROWDED: usize = 128;
const SEARCHES: usize = 8;

/// Items of a list of secrets that are masked.
const MOST_ITEMS: usize = 10_000;

/// What follows a name: an assignment, also with another key for the value, or what only some names may have before a
/// value.
const SEPARATOR: &str = r#"(["'`*\\)\]?]{0,6}[ \t]{0,40}(?::=|=>|->|={1,3}|:|%3[Dd]|：|＝)[ \t]{0,40}\**[ \t]*|["'\\]{0,4}[ \t]*,?\s{0,80}["'\\]{0,4}(?i:value)["'\\]{0,4}[ \t]*[:=][ \t]*)|["'\\]{1,4},[ \t]*|[ \t]+|["'\\]{0,4}>|\("#;

/// The name of a variable and its value in the syntax of Docker, shells and web servers, of an attribute of XML and its
/// element, and of two arguments of a function.
const DECLARED: &str = r#"(?:^|[^A-Za-z0-9_]|\\[nrt])(?:(?:ENV|ARG|setx(?:[ \t]+/[Mm])?|[Ss]et[Ee]nv)[ \t]+\S+[ \t]+|(?:[Kk]ey|[Nn]ame)[ \t]*=[ \t]*["'\\]{1,4}[^\s"']+["'\\]{1,4}>|(?i:define|setenv|setproperty|set|put|append)\([ \t]*["'\\]{1,4}[^\s"']+["'\\]{1,4},[ \t]*)$"#;

/// What precedes the name in such a declaration, in bytes.
const DECLARATION: usize = 40;

/// A value in quotes, which may be escaped or have a prefix as in Python.
const QUOTED: &str = r#"[rbfuRBFU@]{0,2}(?:"((?:[^"\\\n]|\\[^\n])*)"|'((?:[^'\\\n]|\\[^\n])*)'|`([^`\n]*)`|\\+"([^"\n]*?)\\+"|\\+'([^'\n]*?)\\+')"#;

/// Where a value without quotes ends: at a blank, a closing quote, an escape, or the next assignment.
const BARE_END: &str = r#"[\s\x00-\x1f\x7f]|["'`](?:$|[\s,;:)\]}>\\])|\\["'nrt]|[;,](?:$|[\s"'\\])|[;&,][A-Za-z0-9_.\[\]-]+(?:=|%3D)|&amp;|%26[A-Za-z0-9_.\[\]-]+(?:=|%3D)|</|\]\]>"#;

/// What precedes a value without quotes: the beginning of a section of XML, or the indicator of a block of YAML and the
/// line end after it.
const BARE_START: &str =
    r"^(?:<!\[CDATA\[|[|>][0-9+-]{0,2}[ \t]*(?:#[^\n]*)?(?:\r?\n|(?:\\r)?\\n)\s*)";

/// The compiled patterns of this module.
struct Syntax {
    /// A name and what follows it.
    name: Regex,
    quoted: Regex,
    declared: Regex,
    bare_start: Regex,
    bare_end: Regex,
    /// The next item of a list in brackets, and of a list in lines.
    item: Regex,
    line_item: Regex,
    header: Regex,
    /// What follows a value that ends its line.
    rest: Regex,
}

static SYNTAX: LazyLock<Option<Syntax>> = LazyLock::new(|| {
    let keywords = &RULES.name_keywords;
    let name = format!("([A-Za-z0-9_.-]*(?i:{keywords})[A-Za-z0-9_-]*)(?:{SEPARATOR})");
    let item = format!(r"^[\s,]*(?:{QUOTED}|([^\s,\[\](){{}}]+)[ \t]*[,\]])");
    let line_item = format!(r"^[ \t\r]*\n[ \t]*- +(?:{QUOTED}|(\S+))[^\n]*");
    Some(Syntax {
        name: rules::regex(&name).ok()?,
        quoted: rules::regex(&format!("^{QUOTED}")).ok()?,
        declared: rules::regex(DECLARED).ok()?,
        bare_start: rules::regex(BARE_START).ok()?,
        bare_end: rules::regex(BARE_END).ok()?,
        item: rules::regex(&item).ok()?,
        line_item: rules::regex(&line_item).ok()?,
        header: rules::regex(r"^\s*(?:[A-Za-z0-9-]{3,}\s+)?((?:\S*[;,]\s+)*\S+)").ok()?,
        rest: rules::regex(r#"^[ \t\r,;"'`)}\]*]*(?:$|[\n#<\\&]|//)"#).ok()?,
    })
});

/// The index of the rule for a name; `None` if its value is not secret.
pub(super) fn kind_of(name: &str) -> Option<usize> {
    let matches = |rule: &SecretRule| {
        rule.regex()
            .is_some_and(|regex| regex.is_match(name.as_bytes()))
    };
    RULES
        .names
        .iter()
        .position(matches)
        .filter(|_| name.len() <= LONGEST_NAME)
}

/// Where a value ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueEnd {
    /// At its quote, at the end of its JSON string or of its cell. It is not code, and an ordinary word may be a password.
    Delimiter,
    /// At the end of its line, or at the delimiter of an address. An ordinary word may be a password.
    Line,
    /// At a blank, so it may be the first word of a sentence.
    Word,
}

/// The range of the secret in the value of `name`, whose rule is `kind`.
pub(super) fn secret(kind: usize, name: &str, value: &str, end: ValueEnd) -> Option<Range<usize>> {
    let rule = &RULES.names[kind];
    let text = value.trim();
    let start = value.len() - value.trim_start().len();
    let quote = if end == ValueEnd::Delimiter { "\"" } else { "" };
    let is_allowed = |name: &str, value: &str| {
        let matched = format!("{name}={quote}{value}{quote}");
        rule.allows(matched.as_bytes(), value.as_bytes())
    };
    if rule.id == "header" {
        let found = SYNTAX
            .as_ref()?
            .header
            .captures(value.as_bytes())?
            .get(1)?
            .range();
        let header = &value[found.clone()];
        let is_opaque = header
            .bytes()
            .any(|byte| byte.is_ascii_digit() || b"+=_".contains(&byte));
        let is_long = header.len() >= 16 && !header.contains(char::is_whitespace);
        return (header.len() >= 6 && (is_opaque || is_long) && !is_allowed("", header))
            .then_some(found);
    }
    let is_word = text
        .chars()
        .all(|char| char.is_alphabetic() || "_-.' ".contains(char));
    let is_short = text.len() < 6 && !text.contains(' ');
    // A token of letters alone is longer than most words.
    let is_odd_word =
        is_word && (is_short || end == ValueEnd::Word && (rule.id != "token" || text.len() < 16));
    (!is_odd_word && !is_allowed(name, text)).then(|| start..start + text.len())
}

/// Adds the ranges of such secrets in `text`.
pub(super) fn find(text: &str, spans: &mut Vec<Range<usize>>) {
    let Some(syntax) = &*SYNTAX else { return };
    let mut budget = SEARCHES.saturating_mul(text.len().max(LONGEST));
    let mut at = 0;
    while let Some(found) = syntax.name.captures_at(text.as_bytes(), at) {
        let (Some(whole), Some(name)) = (found.get(0), found.get(1)) else {
            break;
        };
        at = name.end();
        let (before, from) = (&text[..name.start()], whole.end());
        let (name, link) = (&text[name.range()], &text[name.end()..from]);
        let is_linked = found.get(2).is_some()
            || match link.as_bytes()[0] {
                b'(' => syntax
                    .quoted
                    .is_match(window(text, from, LONGEST).as_bytes()),
                b'>' => before.ends_with('<'),
                b'\t' => name.contains('_') || name.bytes().all(|byte| byte.is_ascii_uppercase()),
                _ => {
                    name.starts_with('-') && !link.ends_with('>') && !text[from..].starts_with('-')
                }
            }
            || syntax
                .declared
                .is_match(&text.as_bytes()[before.len().saturating_sub(DECLARATION)..from]);
        let Some(kind) = kind_of(name).filter(|_| is_linked) else {
            continue;
        };
        at = from;
        let longest = if budget == 0 {
            LONGEST_CROWDED
        } else {
            LONGEST
        };
        let items = syntax.items(text, from, name.ends_with(['s', 'S']));
        let mut push = |range: Range<usize>, end| {
            budget = budget.saturating_sub(range.len());
            if let Some(secret) = secret(kind, name, &text[range.clone()], end) {
                at = range.start + secret.end;
                spans.push(range.start + secret.start..at);
            }
        };
        if !items.is_empty() {
            items.into_iter().for_each(|(range, end)| push(range, end));
        } else if let Some(quoted) = syntax.quoted(text, from, longest) {
            push(quoted, ValueEnd::Delimiter);
        } else if RULES.names[kind].id == "header" {
            let line = window(text, from, longest);
            let ends = [
                line.find(['\n', '\r', '"', '\'', '`', '\\']),
                line.find("&quot;"),
                line.find("&#39;"),
            ];
            let end = ends.into_iter().flatten().min().unwrap_or(line.len());
            push(from..from + end, ValueEnd::Line);
        } else {
            let bare = syntax.bare(text, from, longest);
            let is_tight = link.ends_with(['=', '>']) || link.to_ascii_lowercase().ends_with("%3d");
            let is_alone = is_tight
                || syntax
                    .rest
                    .is_match(window(text, bare.end, LONGEST).as_bytes());
            let is_ascii = text[bare.clone()].is_ascii();
            let (is_cut, end) = (bare.len() + 4 >= longest, bare.end);
            push(
                bare,
                if is_alone && is_ascii {
                    ValueEnd::Line
                } else {
                    ValueEnd::Word
                },
            );
            // Mask a value to its end, also if the search for the end stopped before.
            if is_cut && at == end {
                let rest = text[end..]
                    .find(char::is_whitespace)
                    .unwrap_or(text.len() - end);
                at += rest;
                if let Some(last) = spans.last_mut() {
                    last.end = at;
                }
            }
        }
    }
}

impl Syntax {
    /// The items of the list that begins at `from`. Only a name that `is_plural` has items without quotes, or one in each
    /// line.
    fn items(&self, text: &str, from: usize, is_plural: bool) -> Vec<(Range<usize>, ValueEnd)> {
        let mut items = Vec::new();
        let is_inline = text[from..].starts_with(['[', '(']);
        let (mut at, pattern) = match is_inline {
            true => (from + 1, &self.item),
            false if is_plural => (from, &self.line_item),
            false => return items,
        };
        while items.len() < MOST_ITEMS {
            let near = window(text, at, LONGEST);
            let Some(found) = pattern.captures(near.as_bytes()) else {
                break;
            };
            let Some(item) = found.iter().skip(1).flatten().next() else {
                break;
            };
            let is_quoted = found.get(found.len() - 1).is_none();
            if !is_quoted && !is_plural {
                break;
            }
            let end = if is_quoted {
                ValueEnd::Delimiter
            } else {
                ValueEnd::Word
            };
            items.push((at + item.start()..at + item.end(), end));
            at += if is_quoted || !is_inline {
                found[0].len()
            } else {
                item.end()
            };
        }
        items
    }

    fn quoted(&self, text: &str, from: usize, longest: usize) -> Option<Range<usize>> {
        let found = self
            .quoted
            .captures(window(text, from, longest).as_bytes())?;
        let value = found.iter().skip(1).flatten().next()?;
        Some(from + value.start()..from + value.end())
    }

    /// A value without quotes. It ends at the delimiter of the syntax around it.
    fn bare(&self, text: &str, from: usize, longest: usize) -> Range<usize> {
        let near = window(text, from, longest);
        let start = self.bare_start.find(near.as_bytes());
        let from = from + start.map_or(0, |start| start.end());
        let near = window(text, from, longest);
        // A quote that is not closed.
        let rest = near.trim_start_matches(['\\', '"', '\'', '`']);
        let from = from + near.len() - rest.len();
        let end = self
            .bare_end
            .find(rest.as_bytes())
            .map_or(rest.len(), |end| end.start());
        // An object or a list is searched itself.
        let is_structure = rest.starts_with(['{', '['])
            && rest[1..].starts_with(['"', '\'', '\\', '{', '[', '}', ']']);
        let word = if is_structure { "" } else { &rest[..end] };
        let trimmed = word.trim_end_matches(|char| ",;:.)]}>\"'`\\*".contains(char));
        let closes =
            word[trimmed.len()..].contains([')', ']', '}']) && !word.contains(['(', '[', '{']);
        from..from + if closes { trimmed.len() } else { word.len() }
    }
}

/// The text from `from` on, `length` bytes at most.
fn window(text: &str, from: usize, length: usize) -> &str {
    let mut end = text.len().min(from.saturating_add(length));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[from..end]
}
