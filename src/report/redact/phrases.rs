//! Secrets in the syntax of a command, a statement, an address or a file format. Pure.
//!
//! A table: each phrase has a keyword, so that its pattern runs only on the texts that hold the keyword.

use std::{ops::Range, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::names::{NameKind, NamedValue, has_opaque_shape, is_placeholder, is_secret, is_words};

/// What the value of a phrase must also fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretValueCheck {
    /// It is not a placeholder.
    Any,
    /// It has a digit, or is long.
    Digit,
    /// It has the digits or symbols of a generated password.
    Opaque,
    /// Base64 of a name, a colon and a password.
    Basic,
    /// Letters and digits that are not made of words.
    Random,
    /// It would be a secret after the name `password`.
    Password,
    /// A list of words that is not a sentence.
    Mnemonic,
    /// Base64 near the type of a JSON Web Key.
    WebKey,
}

struct SecretPhrase {
    /// A pattern that is cheap to search and occurs wherever the phrase does.
    keyword: &'static str,
    /// Its first group is the secret.
    pattern: &'static str,
    check: SecretValueCheck,
}

const fn phrase(
    keyword: &'static str,
    check: SecretValueCheck,
    pattern: &'static str,
) -> SecretPhrase {
    SecretPhrase {
        keyword,
        pattern,
        check,
    }
}

#[rustfmt::skip]
const PHRASES: &[SecretPhrase] = &[
    // Headers without their name.
    phrase("bearer", SecretValueCheck::Digit, r"(?:^|[^a-z0-9])bearer[ \t]+([a-z0-9._~+/=-]{8,})"),
    phrase("basic", SecretValueCheck::Basic, r"basic[ \t]+([a-z0-9+/]{8,}={0,2})"),
    // Options of commands.
    phrase("mysql|mariadb|mycli", SecretValueCheck::Any, r#"(?:mysql[a-z]*|mariadb[a-z-]*|mycli)[ \t][^\n|;&]{0,300}?[ \t]?-p["']?([^\s"']{3,})"#),
    phrase("sshpass|mongo|login|snowsql", SecretValueCheck::Any, r#"(?:sshpass|mongo[a-z]*|docker[ \t]+login|podman[ \t]+login|snowsql)[ \t][^\n|;&]{0,300}?[ \t]?-p[ \t=]*["']?([^\s"']{4,})"#),
    phrase("redis-cli", SecretValueCheck::Any, r#"redis-cli[ \t][^\n|;&]{0,300}?[ \t]?(?:-a|--pass)[ \t=]+["']?([^\s"']{4,})"#),
    phrase("curl|wget", SecretValueCheck::Any, r#"(?:curl|wget)[ \t][^\n|;]{0,300}?[ \t]?(?:-u|--user)[ \t=]*["']?[^\s:"']+:([^\s"']{3,})"#),
    phrase("ldap", SecretValueCheck::Any, r#"ldap(?:search|modify|add|delete|passwd|whoami|compare|modrdn)[ \t][^\n|;&]{0,300}?[ \t]?-w[ \t=]*["']?([^\s"'-][^\s"']{2,})"#),
    phrase("sqlplus|sqlldr|expdp|impdp|rman", SecretValueCheck::Any, r#"(?:sqlplus|sqlldr|expdp|impdp|rman)[ \t]+(?:-[a-z]+[ \t]+){0,4}(?:target[ \t]+|userid=)?["']?[a-z][a-z0-9_$#]{0,64}["']?/["']?([^\s@"'/]{3,})"?@"#),
    phrase("sqlplus|sqlcl", SecretValueCheck::Any, r#"(?:sqlplus|sqlcl)[ \t]+(?:-[a-z]+[ \t]+){0,4}'?[a-z][a-z0-9_$#]{0,64}/"([^"\n]{3,128})"@"#),
    // SQL.
    phrase("identified", SecretValueCheck::Any, r"identified[ \t]+by[ \t]+'([^'\n]{4,})'"),
    phrase("identified", SecretValueCheck::Opaque, r#"identified[ \t]+by[ \t]+"?([^\s'";]{4,})"#),
    phrase("password|secret", SecretValueCheck::Any, r"(?:password|secret)[ \t]+'([^'\n]{4,})'"),
    // Files of passwords: `.netrc` and `.pgpass`.
    phrase("login", SecretValueCheck::Any, r"machine[ \t]+[^\s]{1,256}\s{1,80}login[ \t]+[^\s]{1,128}\s{1,80}password[ \t]+([^\s]+)"),
    phrase("login", SecretValueCheck::Opaque, r"login[ \t]+[^\s]{1,128}\s{1,80}password[ \t]+([^\s]+)"),
    phrase(r":(?:\*|[0-9]{4,5}):", SecretValueCheck::Password, r"(?m)^[ \t>|+]{0,8}(?:[0-9]{1,6}(?:\t|\xe2\x86\x92))?(?:[a-z][a-z0-9.*_-]{0,200}|\*|[0-9.]{7,15}):(?:\*|[0-9]{4,5}):(?:[a-z][^:\s\\/]{0,60}|\*):[a-z][^:\s\\/]{0,60}:((?:\\[\\:]|[^:\s\\]){3,128})\r?$"),
    // Addresses without a scheme, and keys in the query of one.
    phrase(r"@(?:tcp|unix|udp)\(", SecretValueCheck::Any, r#"[a-z0-9_.-]{1,64}:([^\s:@/"']{3,128})@(?:tcp|unix|udp)\("#),
    phrase("jdbc:oracle", SecretValueCheck::Any, r"jdbc:oracle:thin:[^/\s@]+/([^@\s]+)@"),
    phrase("[?&;]key=", SecretValueCheck::Random, r#"[?&;]key=(aiza[a-z0-9_-]{6,}|[a-z0-9_~.%+/=-]{16,})"#),
    // The login of a registry in a file of Docker or npm.
    phrase("auth", SecretValueCheck::Basic, r#"(?:^|[^a-z])auth["'\\]{0,4}[ \t]*[:=][ \t]*["'\\]{0,4}([a-z0-9+/]{8,}={0,2})"#),
    // Keys.
    phrase("private", SecretValueCheck::Any, r#"private[ _-]?key["'`:= \t\\]{0,12}(?:is[ \t:]{1,4})?["'`]?(0x[0-9a-f]{64})"#),
    phrase("kty", SecretValueCheck::WebKey, r#"["'](?:d|p|q|dp|dq|qi|k)\\{0,3}["'][ \t]*:[ \t]*\\{0,3}["']([a-z0-9_+/-]{16,})"#),
    phrase("mnemonic|seed|recovery|phrase", SecretValueCheck::Mnemonic, r#"(?:mnemonic|(?:seed|recovery|backup|secret)[ _-]?(?:phrase|words))(?:[ _-]?(?:phrase|words))?["'`*\\]{0,4}[ \t]*(?:is)?[ \t]*[:=]?[ \t\r\n]*["'`*\\]{0,4}((?:[a-z]{3,8}[ \t\r\n,]{1,4}){11,23}[a-z]{3,8})"#),
];

fn regex(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .case_insensitive(true)
        .dfa_size_limit(8 << 20)
        .build()
        .ok()
}

static KEYWORDS: LazyLock<Option<RegexSet>> = LazyLock::new(|| {
    let keywords = PHRASES.iter().map(|phrase| phrase.keyword);
    RegexSetBuilder::new(keywords)
        .unicode(false)
        .case_insensitive(true)
        .build()
        .ok()
});
static PATTERNS: LazyLock<Vec<Option<Regex>>> =
    LazyLock::new(|| PHRASES.iter().map(|phrase| regex(phrase.pattern)).collect());

/// Adds the ranges of such secrets in `text`.
pub(super) fn find(text: &str, spans: &mut Vec<Range<usize>>) {
    let Some(keywords) = &*KEYWORDS else { return };
    for index in keywords.matches(text.as_bytes()) {
        let Some(pattern) = &PATTERNS[index] else {
            continue;
        };
        let values = pattern
            .captures_iter(text.as_bytes())
            .filter_map(|found| Some(found.get(1)?.range()));
        spans.extend(values.filter(|range| passes_check(PHRASES[index].check, text, range)));
    }
}

fn passes_check(check: SecretValueCheck, text: &str, range: &Range<usize>) -> bool {
    let Some(value) = text.get(range.clone()) else {
        return false;
    };
    let has_digit = value.bytes().any(|byte| byte.is_ascii_digit());
    let passes_check = match check {
        SecretValueCheck::Any => true,
        SecretValueCheck::Digit => has_digit || value.len() >= 24,
        SecretValueCheck::Opaque => has_opaque_shape(value),
        SecretValueCheck::Basic => is_basic(value),
        SecretValueCheck::Random => {
            has_digit
                && value.bytes().any(|byte| byte.is_ascii_alphabetic())
                && !is_words(value)
                && !is_uuid(value)
        }
        SecretValueCheck::Password => is_secret(
            NameKind::Password,
            "password",
            NamedValue {
                text: value,
                quoted: false,
                alone: true,
            },
        ),
        SecretValueCheck::Mnemonic => is_mnemonic(value),
        SecretValueCheck::WebKey => is_near_key_type(text, range),
    };
    passes_check && !is_placeholder(value)
}

/// True for base64 of a name, a colon and a password.
pub(super) fn is_basic(code: &str) -> bool {
    let decoded = BASE64
        .decode(code.trim_end_matches('='))
        .unwrap_or_default();
    decoded.contains(&b':') && decoded.iter().all(|byte| (0x20..0x7f).contains(byte))
}

/// True for the name of a list of words that a wallet is restored from.
pub(super) fn is_mnemonic_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '-', ' '], "");
    [
        "mnemonic",
        "mnemonicphrase",
        "seedphrase",
        "seedwords",
        "seed",
        "recoveryphrase",
        "secretphrase",
    ]
    .contains(&&*name)
}

/// True for 12 to 24 words of the kind that BIP-39 has; sentences have other words, too.
pub(super) fn is_mnemonic(text: &str) -> bool {
    const SENTENCE: &[&str] = &[
        "the", "and", "for", "are", "was", "not", "its", "from", "your", "has", "which", "all",
    ];
    let mut words = text
        .split([' ', '\t', '\r', '\n', ','])
        .filter(|word| !word.is_empty());
    (12..=24).contains(&words.clone().count())
        && words.all(|word| {
            let is_word = (3..=8).contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_alphabetic());
            is_word && !SENTENCE.contains(&&*word.to_ascii_lowercase())
        })
}

fn is_uuid(value: &str) -> bool {
    value.len() == 36 && value.bytes().filter(|byte| *byte == b'-').count() == 4
}

/// True if the object around a member of a JSON Web Key may be one.
fn is_near_key_type(text: &str, range: &Range<usize>) -> bool {
    /// Longer than the members of a key of 4,096 bits.
    const NEAR: usize = 4 << 10;
    let around =
        &text.as_bytes()[range.start.saturating_sub(NEAR)..text.len().min(range.end + NEAR)];
    [&b"\"kty"[..], b"'kty"]
        .iter()
        .any(|key| memchr::memmem::find(around, key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let mut spans = Vec::new();
        find(text, &mut spans);
        super::super::merged(spans)
            .into_iter()
            .rev()
            .fold(text.to_owned(), |mut text, span| {
                text.replace_range(span, "#");
                text
            })
    }

    #[test]
    fn values_of_phrases_are_found() {
        for (text, expected) in [
            (
                "ldapsearch -x -D cn=admin -w S3cret! -b dc=x",
                "ldapsearch -x -D cn=admin -w # -b dc=x",
            ),
            ("sqlplus -s scott/t1ger@db", "sqlplus -s scott/#@db"),
            ("sqlplus 'scott/\"t1ger\"@db'", "sqlplus 'scott/\"#\"@db'"),
            ("sqlplus scott/\"ti ger\"@db", "sqlplus scott/\"#\"@db"),
            (
                "machine h login l password hunter",
                "machine h login l password #",
            ),
            (
                "db.example:5432:app:svc:hun\\:ter22",
                "db.example:5432:app:svc:#",
            ),
            ("*:*:*:svc:hunter22\n", "*:*:*:svc:#\n"),
            (
                "https://x/maps?a=1&key=aB3dE5gH7jK9mN1pQ&b=2",
                "https://x/maps?a=1&key=#&b=2",
            ),
            (
                r#"{"auths": {"r": {"auth": "c3ZjOmh1bnRlcjIy"}}"#,
                r##"{"auths": {"r": {"auth": "#"}}"##,
            ),
            ("//r/:_auth=c3ZjOmh1bnRlcjIy", "//r/:_auth=#"),
            (
                r#"{"kty": "EC", "x": "abcdefghijklmnop", "d": "abcdefghijklmnop""#,
                r##"{"kty": "EC", "x": "abcdefghijklmnop", "d": "#""##,
            ),
            (
                r#"{\"kty\":\"EC\",\"d\":\"abcdefghijklmnop\"}"#,
                r##"{\"kty\":\"EC\",\"d\":\"#\"}"##,
            ),
        ] {
            assert_eq!(masked(text), expected);
        }
        let key = format!("0x{}", "1a".repeat(32));
        assert_eq!(
            masked(&format!("the private key is {key}, so")),
            "the private key is #, so"
        );
        let words = "legal winner thank year wave sausage worth useful legal winner thank yellow";
        for before in [
            "mnemonic: ",
            "seed phrase = \"",
            "Recovery phrase is:\n",
            "\"mnemonic\":\"",
        ] {
            assert_eq!(masked(&format!("{before}{words}")), format!("{before}#"));
        }
    }

    #[test]
    fn ordinary_phrases_are_not_masked() {
        for text in [
            "login page password field",
            "the login form has a password field of 12 characters",
            "seed phrase words are shown once and never again because they open the wallet for anyone who reads them",
            "https://x/list?key=customer-orders-2024&key=0199f7a4-6f00-7e64-9bd3-0a1b2c3d4e5f",
            "sqlplus / as sysdba; sqlplus /nolog",
            "src/main.rs:1234:5: error: unknown:name",
            "00:11:22:33:44:55 and 2024-01-01T10:2000:30",
            "oauth: c3ZjOmh1bnRlcjIy, auth = authenticate",
            r#"{"p": "abcdefghijklmnopq", "d": "2024-01-01T00:00:00"}"#,
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
