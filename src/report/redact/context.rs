//! Secrets that follow a name, fill the column of a table with that name, or are part of an address. Pure.
//!
//! Works on text of any kind, also on code, logs and broken JSON. [`names`](super::names) classifies names and values,
//! [`phrases`](super::phrases) has the syntax of commands and files.

use std::{ops::Range, sync::LazyLock};

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use super::{
    names::{
        NameKind, NamedValue, has_opaque_shape, header_secret, is_placeholder, is_secret,
        is_variable, is_words, kind_of,
    },
    tables,
};

/// The last word of a name that may announce a secret.
const NAME: &str = "pass(?:word|wd|wort|phrase|code)?|pwd?|secrets?|token|credentials?|creds|authorization|cookie\
    |kennwort|contrase(?:ñ|Ñ|ny?)a|mot[ _-]?de[ _-]?passe|mdp|senha|has(?:l|ł|Ł)o|heslo|jelsz(?:ó|Ó)|wachtwoord\
    |l(?:ö|Ö)senord|salasana|пароль|Пароль|ПАРОЛЬ|密码|密碼|口令|パスワード|비밀번호|암호\
    |(?:api|access|secret|private|auth|encryption|decryption|signing|signature|master|shared|account|ssh|deploy|hmac\
    |webhook|subscription|fernet|jwt|cipher|aes)[ _.-]?key(?:_id)?";

/// The separator of a name and its value: closing quotes, a sign and blanks; or another key for the value.
const SEPARATOR: &str = r#"^(?:["'`*\\\])?]{0,6}[ \t]{0,40}(?::=|=>|->|={1,3}|:|%3[DdAa]|\xef\xbc[\x9a\x9d])[ \t]{0,40}\**[ \t]*|["'\\]{0,4}[ \t]*,?\s{0,80}["'\\]{0,4}(?i:value)["'\\]{0,4}[ \t]*[:=][ \t]*)"#;

/// The separator of an option of a command and its value.
const AFTER_OPTION: &str = r#"^(?:["'\\]{1,4},[ \t]*|[ \t]+)"#;

/// The verb of a sentence that contains a value.
const VERB: &str = r#"^["'`*)]{0,4}[ \t]+(?:is|was|ist|war|es|est|era|jest|to)[ \t]*:?[ \t]+\**"#;

/// Bytes of a value that are searched for its end, so that no text takes quadratic time.
const LONGEST: usize = 16 << 10;

/// Bytes of a value without quotes that are searched for its end.
const LONGEST_BARE: usize = 4 << 10;

/// The same once the values of a text overlap so much that each of its bytes has been searched [`SEARCHES`] times.
const LONGEST_CROWDED: usize = 128;
const SEARCHES: usize = 8;

/// Bytes of an address that are searched.
const LONGEST_ADDRESS: usize = 2 << 10;

/// Bytes after a value that show whether a sentence continues there.
const NEAR: usize = 256;

/// Items of a list of secrets that are masked.
const MOST_ITEMS: usize = 10_000;

fn regex(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(true)
        .dfa_size_limit(8 << 20)
        .build()
        .ok()
}

/// The ends of the scheme of an address, also in a string of JSON.
static SCHEMES: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["://", ":\\/\\/"].map(Finder::new));
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| regex(NAME));
static SEPARATORS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(SEPARATOR));
static AFTER_OPTIONS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(AFTER_OPTION));
static VERBS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(VERB));

/// How a value follows its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueSeparator {
    /// After an `=` without blanks.
    Tight,
    Loose,
    /// After the verb of a sentence.
    Sentence,
}

/// Adds the ranges of such secrets in `text`.
pub(super) fn find(text: &str, spans: &mut Vec<Range<usize>>) {
    named(text, spans);
    addresses(text, spans);
}

fn named(text: &str, spans: &mut Vec<Range<usize>>) {
    let Some(names) = &*NAMES else { return };
    let (mut cells, mut table_end) = (Vec::new(), 0);
    let mut budget = SEARCHES.saturating_mul(text.len().max(LONGEST));
    for found in names.find_iter(text.as_bytes()) {
        let name = whole_name(text, found.range());
        let Some(kind) = kind_of(&text[name.clone()]) else {
            continue;
        };
        let Some((from, link)) = after_name(text, &name) else {
            if name.start >= table_end {
                table_end = tables::find(text, name.start, &mut cells).unwrap_or(table_end);
            }
            continue;
        };
        // The value of one name is not the name of another value.
        if spans.last().is_some_and(|last| last.contains(&name.start)) {
            continue;
        }
        let opener = text[..name.start]
            .trim_end_matches('\\')
            .chars()
            .next_back();
        let name = &text[name];
        let longest = if budget == 0 {
            LONGEST_CROWDED
        } else {
            LONGEST_BARE
        };
        let near = window(text, from, longest);
        budget = budget.saturating_sub(near.find(char::is_whitespace).unwrap_or(near.len()));
        let items = if link == ValueSeparator::Sentence {
            Vec::new()
        } else {
            list(text, from, is_plural(name))
        };
        if !items.is_empty() {
            let is_meant = |item: &(Range<usize>, bool)| {
                is_secret(
                    kind,
                    name,
                    NamedValue {
                        text: &text[item.0.clone()],
                        quoted: item.1,
                        alone: true,
                    },
                )
            };
            spans.extend(items.into_iter().filter(is_meant).map(|(range, _)| range));
        } else if let Some(span) = value(
            ValueSearchWindow {
                text,
                from,
                longest,
            },
            kind,
            name,
            opener,
            link,
        ) {
            spans.push(span);
        }
    }
    spans.extend(cells);
}

fn is_plural(name: &str) -> bool {
    name.ends_with(['s', 'S']) && !name.ends_with("ss") && !name.ends_with("SS")
}

/// The items of the list that begins at `from`, and whether each is in quotes. The name of the list `is_plural` if it
/// may have items without quotes, or an item in each line.
fn list(text: &str, from: usize, is_plural: bool) -> Vec<(Range<usize>, bool)> {
    let mut items = Vec::new();
    let skipped = |from: usize, blanks: &[char]| {
        let near = window(text, from, LONGEST);
        from + near.len() - near.trim_start_matches(blanks).len()
    };
    if text[from..].starts_with(['[', '(', '{']) {
        let mut at = skipped(from + 1, &[' ', '\t', '\r', '\n']);
        while items.len() < MOST_ITEMS {
            let Some(item) = in_quotes(text, at) else {
                let line = window(text, at, LONGEST_BARE)
                    .split('\n')
                    .next()
                    .unwrap_or_default();
                let bare = line.split([',', ']']).next().unwrap_or_default();
                if !is_plural
                    || !text[from..].starts_with('[')
                    || !line.contains(']')
                    || bare.trim().is_empty()
                {
                    break;
                }
                items.push((at..at + bare.trim_end().len(), false));
                at = skipped(at + bare.len(), &[' ', '\t', ',']);
                continue;
            };
            let slashes = text[item.end..]
                .bytes()
                .take_while(|byte| *byte == b'\\')
                .count();
            at = skipped(item.end + slashes + 1, &[' ', '\t', '\r', '\n', ',']);
            items.push((item, true));
        }
    } else if is_plural {
        let mut at = skipped(from, &[' ', '\t', '\r']);
        while items.len() < MOST_ITEMS && text[at..].starts_with('\n') {
            let dash = skipped(at + 1, &[' ', '\t']);
            if !text[dash..].starts_with("- ") {
                break;
            }
            let start = skipped(dash + 2, &[' ']);
            let (range, is_quoted) = in_quotes(text, start).map_or_else(
                || (bare_value(text, start, LONGEST_BARE), false),
                |range| (range, true),
            );
            let line = window(text, range.end, NEAR);
            at = range.end + memchr::memchr(b'\n', line.as_bytes()).unwrap_or(line.len());
            items.push((range, is_quoted));
        }
    }
    items
}

/// The name around its last word.
fn whole_name(text: &str, word: Range<usize>) -> Range<usize> {
    /// Bytes before and after the word.
    const LONGEST: usize = 100;
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-';
    let before = bytes[..word.start]
        .iter()
        .rev()
        .take(LONGEST)
        .take_while(|byte| is_part(byte) || **byte == b'.')
        .count();
    let after = bytes[word.end..]
        .iter()
        .take(LONGEST)
        .take_while(|byte| is_part(byte))
        .count();
    let start = word.start - before;
    // The letter of an escape is not part of the name.
    let is_escape =
        text[..start].ends_with('\\') && text[start..].starts_with(['n', 'r', 't', 'b', 'f']);
    start + usize::from(is_escape && before > 0)..word.end + after
}

/// Where the value of a name begins, and what links them.
fn after_name(text: &str, name: &Range<usize>) -> Option<(usize, ValueSeparator)> {
    let rest = text.as_bytes().get(name.end..)?;
    if let Some(found) = SEPARATORS.as_ref()?.find(rest) {
        let is_tight = found.as_bytes().ends_with(b"=")
            || found.as_bytes().to_ascii_lowercase().ends_with(b"%3d");
        return Some((
            name.end + found.end(),
            if is_tight {
                ValueSeparator::Tight
            } else {
                ValueSeparator::Loose
            },
        ));
    }
    if text[name.clone()].starts_with('-')
        && let Some(found) = AFTER_OPTIONS.as_ref()?.find(rest)
    {
        return Some((name.end + found.end(), ValueSeparator::Loose))
            .filter(|(from, _)| !text[*from..].starts_with('-'));
    }
    let is_tag = rest.starts_with(b">") && text[..name.start].ends_with('<');
    let is_call = rest.starts_with(b"(\"") || rest.starts_with(b"('") || rest.starts_with(b"(\\\"");
    if is_tag || is_call {
        return Some((
            name.end + 1,
            if is_tag {
                ValueSeparator::Tight
            } else {
                ValueSeparator::Loose
            },
        ));
    }
    // A list of variables with tabs.
    if rest.starts_with(b"\t") {
        let from = name.end + rest.iter().take_while(|byte| **byte == b'\t').count();
        return Some((
            from,
            if is_variable(&text[name.clone()]) {
                ValueSeparator::Loose
            } else {
                ValueSeparator::Sentence
            },
        ))
        .filter(|_| text[name.clone()].contains('_') || is_variable(&text[name.clone()]));
    }
    VERBS
        .as_ref()?
        .find(rest)
        .map(|found| (name.end + found.end(), ValueSeparator::Sentence))
}

/// Where a value begins, and how many bytes of it are searched if it has no quotes.
#[derive(Clone, Copy)]
struct ValueSearchWindow<'a> {
    text: &'a str,
    from: usize,
    longest: usize,
}

/// The range of the secret in the value that begins in `near` and belongs to `name`.
fn value(
    near: ValueSearchWindow<'_>,
    kind: NameKind,
    name: &str,
    opener: Option<char>,
    link: ValueSeparator,
) -> Option<Range<usize>> {
    let ValueSearchWindow {
        text,
        from,
        longest,
    } = near;
    let quoted = in_quotes(text, from);
    if kind == NameKind::Header && link == ValueSeparator::Sentence {
        return None;
    }
    if kind == NameKind::Header {
        let range = quoted.unwrap_or_else(|| {
            let line = window(text, from, LONGEST);
            let quote = opener
                .filter(|char| "\"'`".contains(*char))
                .and_then(|char| u8::try_from(char).ok());
            let end = memchr::memchr3(b'\n', b'\r', quote.unwrap_or(b'\n'), line.as_bytes())
                .unwrap_or(line.len());
            from..from + line[..end].trim_end_matches('\\').len()
        });
        let secret = header_secret(&text[range.clone()])?;
        return Some(range.start + secret.start..range.start + secret.end);
    }
    let (range, is_quoted) = match quoted {
        Some(range) => (range, true),
        None => (bare_value(text, block_scalar(text, from), longest), false),
    };
    if link == ValueSeparator::Sentence {
        let word = text[range.clone()].trim_end_matches(['.', ',', ';', ':', ')']);
        let is_meant = has_opaque_shape(word) && (kind == NameKind::Password || !is_words(word));
        return is_meant.then(|| range.start..range.start + word.len());
    }
    let rest = window(text, range.end, NEAR)
        .split('\n')
        .next()
        .unwrap_or_default();
    let rest = rest.trim_start_matches([
        ' ', '\t', '\r', ',', ';', '"', '\'', '`', ')', '}', ']', '*',
    ]);
    let alone = link == ValueSeparator::Tight
        || rest.is_empty()
        || rest.starts_with(['#', '<', '\\', '&'])
        || rest.starts_with("//");
    if !is_secret(
        kind,
        name,
        NamedValue {
            text: &text[range.clone()],
            quoted: is_quoted,
            alone,
        },
    ) {
        return None;
    }
    // Mask a value to its end, also if the search for the end stopped before.
    let is_cut = !is_quoted && range.len() + 4 >= longest;
    let rest = if is_cut {
        text[range.end..]
            .find(char::is_whitespace)
            .unwrap_or(text.len() - range.end)
    } else {
        0
    };
    Some(range.start..range.end + rest)
}

/// The text from `from` on, `length` bytes at most.
fn window(text: &str, from: usize, length: usize) -> &str {
    let mut end = text.len().min(from.saturating_add(length));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[from..end]
}

/// The range between the quotes that open at `from`. They may be escaped or have a prefix as in Python.
fn in_quotes(text: &str, from: usize) -> Option<Range<usize>> {
    let rest = &text[from..];
    let prefix = rest.len()
        - rest
            .trim_start_matches(['r', 'b', 'f', 'u', 'R', 'B', 'F', 'U', '@'])
            .len();
    let prefix = if prefix <= 2 { prefix } else { 0 };
    let slashes = rest[prefix..].len() - rest[prefix..].trim_start_matches('\\').len();
    let quote = *rest
        .as_bytes()
        .get(prefix + slashes)
        .filter(|byte| b"\"'`".contains(byte))?;
    let start = from + prefix + slashes + 1;
    let line = window(text, start, LONGEST).as_bytes();
    let line = &line[..memchr::memchr(b'\n', line).unwrap_or(line.len())];
    let slashes_before = |end: usize| {
        line[..end]
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count()
    };
    let is_closing = |end: &usize| {
        if slashes == 0 {
            slashes_before(*end) % 2 == 0
        } else {
            slashes_before(*end) == slashes
        }
    };
    let end = memchr::memchr_iter(quote, line).find(is_closing)?;
    Some(start..start + end - slashes)
}

/// Skips the YAML indicator of a block scalar at `from`, and the line end after it.
fn block_scalar(text: &str, from: usize) -> usize {
    let Some((line, _)) = window(text, from, 4).split_once('\n') else {
        return from;
    };
    let next = &text[from + line.len() + 1..];
    if !["|", ">", "|-", ">-", "|+", ">+"].contains(&line.trim_end()) {
        return from;
    }
    text.len() - next.trim_start().len()
}

/// A value without quotes, which ends at a blank or at the delimiter of the syntax around it.
fn bare_value(text: &str, from: usize, longest: usize) -> Range<usize> {
    // A quote that is not closed.
    let near = window(text, from, longest);
    let rest = near.trim_start_matches(['\\', '"', '\'', '`']);
    let from = from + near.len() - rest.len();
    let end = rest
        .find(|char: char| char.is_whitespace() || char.is_control())
        .unwrap_or(rest.len());
    let word = &rest[..end];
    let is_assignment = |rest: &str| {
        let rest = rest.trim_start();
        let name = rest
            .find(|char: char| !(char.is_ascii_alphanumeric() || "_-. []".contains(char)))
            .unwrap_or(rest.len());
        name > 0 && (rest[name..].starts_with('=') || rest[name..].starts_with("%3D"))
    };
    let closers_from = word
        .trim_end_matches(|char| ",;:.)]}>\"'`\\*".contains(char))
        .len();
    let mut open = [0_i32; 3];
    let cut = word.char_indices().find(|&(at, char)| {
        let after = &word[at + char.len_utf8()..];
        match char {
            '"' | '\'' | '`' => {
                after.is_empty() || after.starts_with([',', ';', ':', ')', ']', '}', '>', '\\'])
            }
            '\\' => after.starts_with(['"', '\'', 'n', 'r', 't']),
            ';' => after.is_empty() || after.starts_with(['"', '\'', '\\']) || is_assignment(after),
            '&' => after.starts_with("amp;") || is_assignment(after),
            '%' => after.starts_with("26") && is_assignment(&after[2..]),
            ',' => after.is_empty() || after.starts_with(['"', '\'', '\\']) || is_assignment(after),
            '<' => after.starts_with('/'),
            '(' | '[' | '{' => {
                open["([{".find(char).unwrap_or(0)] += 1;
                false
            }
            ')' | ']' | '}' => {
                let balance = &mut open[")]}".find(char).unwrap_or(0)];
                *balance -= 1;
                *balance < 0 && at + 1 >= closers_from
            }
            _ => false,
        }
    });
    from..from + cut.map_or(word.len(), |(at, _)| at)
}

/// Passwords, and tokens as user names, in addresses.
fn addresses(text: &str, spans: &mut Vec<Range<usize>>) {
    let starts = SCHEMES.iter().flat_map(|mark| {
        mark.find_iter(text.as_bytes())
            .map(|at| at + mark.needle().len())
    });
    for start in starts {
        let rest = window(text, start, LONGEST_ADDRESS);
        if !rest.contains('@') {
            continue;
        }
        let end = rest.find(|char: char| {
            char.is_whitespace() || char.is_control() || "\"'`<>".contains(char)
        });
        let scheme = text.as_bytes()[..start]
            .iter()
            .rev()
            .take(10)
            .skip_while(|byte| b":/\\".contains(byte));
        let scheme: Vec<u8> = scheme.map(u8::to_ascii_lowercase).collect();
        let is_web = ["ptth", "sptth", "sw", "ssw"]
            .iter()
            .any(|web| scheme.starts_with(web.as_bytes()));
        // Templates hold blanks and brackets.
        let end = if rest.starts_with("{{") || rest.starts_with("${") {
            None
        } else {
            end
        };
        user_info(&rest[..end.unwrap_or(rest.len())], is_web, &mut |range| {
            spans.push(start + range.start..start + range.end)
        });
    }
}

/// Secrets before the host of an address without its scheme.
fn user_info(address: &str, is_web: bool, found: &mut dyn FnMut(Range<usize>)) {
    let path = address.find(['/', '?', '#']).unwrap_or(address.len());
    let in_authority = address[..path].rfind('@');
    let at = match address.find(':').filter(|colon| *colon < path) {
        Some(colon) => {
            let port = &address[colon + 1..path];
            let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
            // A slash or another `@` may be part of the password.
            let query = address[colon..]
                .find(['?'])
                .map_or(address.len(), |query| colon + query);
            let last = address[..query]
                .rfind('@')
                .filter(|at| *at > colon && !address[..*at].ends_with('/'));
            match in_authority {
                Some(at) if is_web => Some(at),
                Some(at) => last.or(Some(at)),
                None if is_port && (is_web || port.is_empty()) => None,
                None => last,
            }
        }
        None => in_authority,
    };
    let Some(at) = at else { return };
    let (user, password) = address[..at]
        .split_once(':')
        .unwrap_or((&address[..at], ""));
    let is_example = [
        "password", "pass", "passwd", "pwd", "PASSWORD", "PASS", "...",
    ]
    .contains(&password);
    let is_constant = ["x-oauth-basic", "x", "api", ""].contains(&password);
    if !is_constant && !is_example && !is_placeholder(password) {
        found(user.len() + 1..at);
    }
    let has_digit = user.bytes().any(|byte| byte.is_ascii_digit());
    if is_web
        && is_constant
        && !is_placeholder(user)
        && (user.len() >= 16 || (user.len() >= 8 && has_digit))
    {
        found(0..user.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let mut spans = Vec::new();
        super::super::phrases::find(text, &mut spans);
        find(text, &mut spans);
        spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        let (mut out, mut done) = (String::new(), 0);
        for span in spans {
            if span.start >= done {
                out.push_str(&text[done..span.start]);
                out.push('#');
                done = span.end;
            }
        }
        out + &text[done..]
    }

    #[test]
    fn values_of_names_are_found() {
        for (text, expected) in [
            ("password: hunter22", "password: #"),
            ("password: 8812345678", "password: #"),
            ("password: $ecretPassw0rd", "password: #"),
            ("password: p&9(x)Zq!longer", "password: #"),
            ("pass: hunter22", "pass: #"),
            ("SMTP_PASS=hunter22", "SMTP_PASS=#"),
            ("DB_PASSWORD=hunter22 next", "DB_PASSWORD=# next"),
            (
                "Server=db;Uid=svc;Pwd=hunter22;Database=x",
                "Server=db;Uid=svc;Pwd=#;Database=x",
            ),
            (
                "?user=a&password=a&b!c9&next=1",
                "?user=a&password=#&next=1",
            ),
            (
                r#"{\"api_key\": \"abcdef123\", \"x\": 1}"#,
                r##"{\"api_key\": \"#\", \"x\": 1}"##,
            ),
            (r#"{"accessToken":"abcdef123"}"#, r##"{"accessToken":"#"}"##),
            (
                "connect(password='four 9 \" words long', x=1)",
                "connect(password='#', x=1)",
            ),
            (
                r#"{"broken": "\npassword = \"hunter22\""#,
                r##"{"broken": "\npassword = \"#\""##,
            ),
            (
                "password: |\n  hunter22\nhost: x",
                "password: |\n  #\nhost: x",
            ),
            ("**Password:** hunter22", "**Password:** #"),
            ("API key: abc123def", "API key: #"),
            (
                "- name: DB_PASSWORD\n  value: hunter22",
                "- name: DB_PASSWORD\n  value: #",
            ),
            ("<password>hunter22</password>", "<password>#</password>"),
            (
                "<add key=\"Password\" value=\"hunter22\" />",
                "<add key=\"Password\" value=\"#\" />",
            ),
            ("db.setPassword(\"hunter22\");", "db.setPassword(\"#\");"),
            (
                "dbtool --password hunter22 --host x",
                "dbtool --password # --host x",
            ),
            (
                "a%26password%3Dhunter22%26b%3D1",
                "a%26password%3D#%26b%3D1",
            ),
            ("password = correcthorse\n", "password = #\n"),
            ("PGPASSWORD='a b c' psql", "PGPASSWORD='#' psql"),
            (
                "DB_PASSWORD\thunter2x\nDB_HOST\tdb",
                "DB_PASSWORD\t#\nDB_HOST\tdb",
            ),
            ("pw=hunter22", "pw=#"),
            ("The password is hunter2!x, so", "The password is #, so"),
            ("Das Passwort ist \"hunter22\".", "Das Passwort ist \"#\"."),
            (
                "passwords: [\"hunter2!\", \"b9x!\"]",
                "passwords: [\"#\", \"#\"]",
            ),
            ("passwords: [hunter2!, b9x!]", "passwords: [#, #]"),
            ("db_password\thunter2x", "db_password\t#"),
            (
                "passwords:\n  - hunter22\n  - 'b9x!'\nhosts:\n  - a1b2",
                "passwords:\n  - #\n  - '#'\nhosts:\n  - a1b2",
            ),
            ("kennwort=hunter22", "kennwort=#"),
            ("Passwort: hunter22", "Passwort: #"),
            ("contraseña: hunter22", "contraseña: #"),
            (
                "mot_de_passe=hunter22, mot de passe : hunter22",
                "mot_de_passe=#, mot de passe : #",
            ),
            ("SENHA=hunter22", "SENHA=#"),
            ("hasło: hunter22", "hasło: #"),
            ("Пароль: тайна123", "Пароль: #"),
            ("密码：hunter22", "密码：#"),
            ("パスワード: hunter22", "パスワード: #"),
            ("SECRET_KEY_BASE=a1b2c3d4e5f6", "SECRET_KEY_BASE=#"),
            ("FERNET_KEY=a1b2c3d4e5f6g7h8=", "FERNET_KEY=#"),
            ("id,password\n1,hunter22\n", "id,password\n1,#\n"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn headers_commands_and_sql_are_found() {
        for (text, expected) in [
            (
                "Authorization: Bearer abcdefghijklmnop",
                "Authorization: Bearer #",
            ),
            ("Authorization: token abc123def", "Authorization: token #"),
            (
                "curl -H 'Authorization: ApiKey abc123def' x",
                "curl -H 'Authorization: ApiKey #' x",
            ),
            ("a Bearer abc123def456", "a Bearer #"),
            ("Basic c3ZjOmh1bnRlcjIy", "Basic #"),
            (
                "Cookie: session=abc; theme=dark\nHost: x",
                "Cookie: #\nHost: x",
            ),
            ("Set-Cookie: sid=1a2b3c; Path=/", "Set-Cookie: #"),
            ("mysql -uroot -pS3cret db", "mysql -uroot -p# db"),
            ("curl -u svc:hunter22 https://x", "curl -u svc:# https://x"),
            (
                "CREATE USER a IDENTIFIED BY 'hunter22'",
                "CREATE USER a IDENTIFIED BY '#'",
            ),
            (
                "machine h login l password p9x",
                "machine h login l password #",
            ),
            ("svc:hunter22@tcp(db:3306)/x", "svc:#@tcp(db:3306)/x"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn secrets_in_addresses_are_found() {
        for (text, expected) in [
            (
                "postgres://ada:s3cret@db:5432/x",
                "postgres://ada:#@db:5432/x",
            ),
            ("postgres://svc:hun/ter2@db", "postgres://svc:#@db"),
            (
                "postgres://svc:h@n/t@r@db/x?a=b@c",
                "postgres://svc:#@db/x?a=b@c",
            ),
            (
                "https://abcdef0123456789abcdef@github.com/x",
                "https://#@github.com/x",
            ),
            (
                "https://abcdef0123456789:x-oauth-basic@github.com/x",
                "https://#:x-oauth-basic@github.com/x",
            ),
            ("redis://:hunter22@cache:6379/0", "redis://:#@cache:6379/0"),
            ("https:\\/\\/a:hunter22@b", "https:\\/\\/a:#@b"),
        ] {
            assert_eq!(masked(text), expected);
        }
    }

    #[test]
    fn long_value_is_found_as_a_whole() {
        let token = "aB3+".repeat(20_000);
        assert_eq!(masked(&format!("token={token} next")), "token=# next");
    }

    #[test]
    fn hostile_text_is_searched_in_linear_steps() {
        for part in [
            "://",
            "token=",
            "password=$a&",
            "cookie: ",
            "password: \"",
            "mysql bearer ab1cd2ef3 ",
            "(password:",
            "a:b@",
            "pass:",
            "pass:)",
        ] {
            masked(&part.repeat(40_000));
        }
        masked(&format!("pass:{}", ")".repeat(400)).repeat(500));
    }

    #[test]
    fn ordinary_text_holds_no_secret() {
        for text in [
            "password: <your password>",
            "password: ${VAR}",
            "password: \"{{ env_var('X') }}\"",
            "password: {{ env_var('X') }}",
            "auth_token_ref: env:NOTION_TOKEN",
            "password=$PGPASSWORD psql",
            "the password is hashed",
            "Password: required, at least 8 characters",
            "a token is a word; the secret of coffee is freshness",
            "the secret: freshness",
            "token count: 1234",
            "\"max_tokens\": 4096, \"cache_read_input_tokens\": 123",
            "{\"input_tokens\":123456,\"token\":1234567}",
            "tests pass: 1234, fail: 2",
            "password VARCHAR(255) NOT NULL, token UUID",
            "SELECT password, token FROM users WHERE token = t.token AND password = $1",
            "fn login(password: &str, token: Option<String>) -> bool",
            "connect(user=user, password=password, token=access_token)",
            "password = os.environ[\"DB_PASSWORD\"]",
            "password: z.string().min(8),",
            "const token = await getToken();",
            "if password == None:",
            "https://example.com/a/b:c",
            "https://packages.example.org/@babel/core and http://localhost:3000/@vite/client",
            "https://ada@dev.azure.com/x and ssh://git@github.com/a/b",
            "postgres://user:${PASSWORD}@host/db",
            "mail ada@example.com: see https://example.com:443/?to=a@b.example",
            "Authorization: required",
            "bearer authentication and basic understanding of things",
            "Cookie: a small cake",
            "credentials: service-account.json",
            "- name: password\n  description: Hash of the password of 2024.",
            "dimension: password { type: string sql: ${TABLE}.password ;; }",
            "mysql -p$MYSQL_PASSWORD -h db",
            "passphrase: (optional)",
            "the password is base64-encoded, the token is OAuth2 and the secret is required",
            "le mot de passe est obligatoire ; das Passwort ist erforderlich; пароль: обязателен",
            "passwords: [\"required\", \"optional\"]",
            "USER_PASSWORD\tstring\trequired",
            "user_password\tThe password of 2024",
            "`SO_USER_COOKIE` to `sys::socket2` for all",
            "(SOCKET, SCM_CREDENTIALS) => {\n    let cred: libc::ucred = read(p9 as *const _);",
            "pw: Page, pw = playwright",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
