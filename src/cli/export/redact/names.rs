//! Names that give their value away as a secret, and values that are none in spite of their name. Pure.

/// What a name says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A password: even a short number or a word is one.
    Password,
    /// A token or key: a word is rather the name of one.
    Token,
    /// A header of HTTP: a scheme may stand before the secret.
    Header,
}

/// What comes after a name, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    pub(super) text: &'a str,
    /// In quotes, or a string of JSON.
    pub(super) quoted: bool,
    /// Nothing follows on its line, or nothing stands between it and the `=`: it is not the beginning of a sentence.
    pub(super) alone: bool,
}

/// Longest name that is looked at, in bytes.
const LONGEST_NAME: usize = 120;

/// Last words of names that only say which of several secrets it is, or how it is written.
const VARIANTS: &[&str] = &[
    "prod",
    "production",
    "staging",
    "stage",
    "dev",
    "development",
    "test",
    "testing",
    "qa",
    "live",
    "old",
    "new",
    "current",
    "previous",
    "default",
    "primary",
    "secondary",
    "main",
    "b64",
    "base64",
    "value",
    "plain",
    "plaintext",
];

/// First words of names that ask something about a secret.
const QUESTIONS: &[&str] = &[
    "is", "has", "get", "fetch", "check", "verify", "validate", "show", "hide", "forgot", "use", "allow", "require",
    "requires", "enable", "disable", "no", "num", "count", "max", "min", "total",
];

/// Words in names of tokens that open nothing.
const HARMLESS_TOKENS: &[&str] = &[
    "progress",
    "page",
    "next",
    "continuation",
    "cancel",
    "cancellation",
    "cursor",
    "eos",
    "bos",
    "pad",
    "unk",
    "sep",
    "cls",
    "mask",
    "stop",
    "special",
];

/// Words before `key` that make it a secret.
const KEYS: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "auth",
    "encryption",
    "decryption",
    "signing",
    "signature",
    "master",
    "shared",
    "ssh",
    "deploy",
    "hmac",
    "webhook",
    "subscription",
];

/// What a name says about its value; `None` if nothing.
pub(super) fn kind_of(name: &str) -> Option<NameKind> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let mut words = words(name);
    while words.len() > 1 && words.last().is_some_and(|last| VARIANTS.contains(&last.as_str()) || is_version(last)) {
        words.pop();
    }
    let (last, before) = words.split_last()?;
    let last = last.trim_end_matches(|char: char| char.is_ascii_digit());
    if before.first().is_some_and(|first| QUESTIONS.contains(&first.as_str())) {
        return None;
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| last.ends_with(end));
    let previous = before.last().map_or("", String::as_str);
    if ends(&["password", "passwd", "passwort", "passphrase", "passcode", "pwd"])
        || (["pass", "pw"].contains(&last) && !before.is_empty())
    {
        return Some(NameKind::Password);
    }
    if ends(&["authorization", "cookie"]) {
        return Some(NameKind::Header);
    }
    let is_token = last.ends_with("token") && !words.iter().any(|word| HARMLESS_TOKENS.contains(&word.as_str()))
        || ends(&["secret", "apikey", "accesskey", "secretkey", "privatekey", "authkey", "signingkey", "accountkey"])
        || ["pass", "secrets", "credential", "credentials", "creds"].contains(&last)
        || last == "key" && (KEYS.contains(&previous) || before.len() > 1 && previous == "id" && before[0] == "access");
    is_token.then_some(NameKind::Token)
}

fn is_version(word: &str) -> bool {
    let digits = word.strip_prefix('v').unwrap_or(word);
    !digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of a name in lower case: `DBPassword`, `db_password` and `db-password` are `db` and `password`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let chars: Vec<char> = name.chars().collect();
    for (at, &char) in chars.iter().enumerate() {
        let after_lower = at > 0 && (chars[at - 1].is_ascii_lowercase() || chars[at - 1].is_ascii_digit());
        let before_lower =
            at > 0 && chars[at - 1].is_ascii_uppercase() && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if !char.is_alphanumeric() || (char.is_ascii_uppercase() && (after_lower || before_lower)) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.push(char.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Values that say what a secret is like, not what it is.
const WORDS: &[&str] = &[
    "string",
    "str",
    "text",
    "varchar",
    "char",
    "number",
    "integer",
    "int",
    "boolean",
    "bool",
    "bytes",
    "byte",
    "any",
    "object",
    "array",
    "uuid",
    "option",
    "optional",
    "required",
    "null",
    "none",
    "nil",
    "true",
    "false",
    "undefined",
    "unknown",
    "missing",
    "empty",
    "invalid",
    "valid",
    "expired",
    "revoked",
    "hashed",
    "encrypted",
    "hidden",
    "masked",
    "redacted",
    "plaintext",
    "secret",
    "password",
    "passwd",
    "pass",
    "pwd",
    "token",
    "bearer",
    "basic",
    "apikey",
    "oauth",
    "oauth2",
    "oidc",
    "saml",
    "sso",
    "iam",
    "keypair",
    "disabled",
    "enabled",
    "default",
    "changeme",
    "change-me",
    "change_me",
    "placeholder",
    "example",
    "dummy",
    "todo",
    "tbd",
    "include",
    "omit",
    "same-origin",
    "prompt",
    "interactive",
    "keychain",
    "vault",
    "ignored",
    "unset",
    "n/a",
    "u8",
    "u16",
    "u32",
    "u64",
    "i8",
    "i32",
    "i64",
    "usize",
    "&str",
    "cstring",
    "ssl",
    "tls",
    "base64",
    "sha256",
    "bcrypt",
    "utf8",
    "utf-8",
];

/// Words after a secret-like name that show prose instead of a value.
const SENTENCE: &[&str] = &[
    "the",
    "a",
    "an",
    "is",
    "are",
    "was",
    "must",
    "should",
    "can",
    "cannot",
    "of",
    "to",
    "for",
    "your",
    "my",
    "our",
    "not",
    "be",
    "or",
    "and",
    "with",
    "in",
    "on",
    "by",
    "from",
    "this",
    "that",
    "it",
    "no",
    "least",
    "characters",
    "required",
    "if",
    "when",
    "has",
    "have",
    "will",
];

/// How a value begins that names where the secret is kept.
const REFERENCES: &[&str] = &[
    "env:",
    "file:",
    "op://",
    "vault:",
    "arn:",
    "ref+",
    "secret://",
    "ssm:",
    "keyring:",
    "[masked",
    "[redacted",
    "toolu_",
    "${",
    "{{",
    "{%",
    "$(",
    "$env",
    "%(",
    "#{",
    "@{",
    "env(",
    "env.",
    "env[",
    "env_var(",
    "process.env",
    "os.environ",
    "os.getenv",
    "getenv",
    "std::env",
    "system.getenv",
    "import.meta",
    "secrets.",
    "http://",
    "https://",
];

/// True if a value of `name`, which is of `kind`, is a secret.
pub(super) fn is_secret(kind: NameKind, name: &str, value: Value<'_>) -> bool {
    let text = value.text.trim();
    if text.is_empty() || is_placeholder(text) {
        return false;
    }
    let word = text.trim_end_matches([',', ';', '.', '?', '!', ':', ')']).to_ascii_lowercase();
    if WORDS.contains(&&*word) || squashed(name) == squashed(text) {
        return false;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || b".,:/%_ -".contains(&byte)) {
        return is_secret_number(kind, text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.iter().any(|part| SENTENCE.contains(&&*part.trim_matches([',', '.', ';', ':']).to_ascii_lowercase())) {
        return parts.len() == 1 && kind == NameKind::Password && value.alone && text.len() >= 6;
    }
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_word = text.chars().all(|char| char.is_alphabetic() || "_-.' ".contains(char));
    let is_name = !has_digit && kind_of(text).is_some();
    if is_path(text) || is_name || (!value.quoted && is_code(text)) {
        return false;
    }
    match kind {
        NameKind::Password if is_word => text.len() >= 6 && (value.quoted || value.alone),
        NameKind::Password => text.len() >= 4,
        NameKind::Token | NameKind::Header if is_word => {
            text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
        }
        NameKind::Token | NameKind::Header => {
            (has_digit && text.len() >= 6) || (text.len() >= 20 && text.contains(['+', '/', '=']))
        }
    }
}

/// True if a number under a name of this kind is a secret; counts are none.
pub(super) fn is_secret_number(kind: NameKind, number: &str) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    match kind {
        NameKind::Password => digits >= 4,
        NameKind::Token | NameKind::Header => digits >= 8 && digits == number.len(),
    }
}

/// Where the secret is in the value of a header: behind its scheme, if it has one.
pub(super) fn header_secret(value: &str) -> Option<std::ops::Range<usize>> {
    let end = value.trim_end().len();
    let start = value.len() - value.trim_start().len();
    let is_scheme =
        |word: &str| word.len() >= 3 && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let scheme = value[start..end]
        .split_once(char::is_whitespace)
        .filter(|(word, rest)| is_scheme(word) && !rest.trim().is_empty());
    let start = scheme.map_or(start, |(_, rest)| end - rest.trim_start().len());
    // Blanks separate its parts; others separate it from what follows.
    let is_end = |(at, char): &(usize, char)| char.is_whitespace() && !value[start..start + at].ends_with([';', ',']);
    let end = value[start..end].char_indices().find(is_end).map_or(end, |(at, _)| start + at);
    let secret = &value[start..end];
    let is_opaque = secret.bytes().any(|byte| byte.is_ascii_digit() || b"+=_".contains(&byte));
    let is_long = secret.len() >= 16 && !secret.contains(char::is_whitespace);
    (secret.len() >= 6 && (is_opaque || is_long) && !is_placeholder(secret)).then_some(start..end)
}

/// A name without what separates its words, in lower case.
fn squashed(name: &str) -> String {
    name.chars().filter(|char| char.is_alphanumeric()).map(|char| char.to_ascii_lowercase()).collect()
}

/// True for what stands in the place of a value in examples, templates and code.
pub(super) fn is_placeholder(text: &str) -> bool {
    let text = text.trim().trim_matches(['"', '\'', '`', '*']);
    let lower = text.to_ascii_lowercase();
    let first = text.chars().next().unwrap_or_default();
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    let is_one_case =
        |name: &str| is_name(name) && (name == name.to_ascii_lowercase() || name == name.to_ascii_uppercase());
    let is_plain = |name: &str| {
        is_one_case(name) && !(name.bytes().any(|byte| byte.is_ascii_digit()) && name == lower.trim_start_matches('$'))
    };
    REFERENCES.iter().any(|start| lower.starts_with(start))
        || text
            .strip_prefix('<')
            .is_some_and(|rest| rest.contains('>') || rest.len() > 1 && rest.chars().all(char::is_alphabetic))
        || text.strip_prefix('{').is_some_and(|rest| {
            rest.split_once('}')
                .is_some_and(|(name, _)| name.chars().all(|char| is_name(&char.to_string()) || char == '.'))
        })
        || text.strip_prefix('[').is_some_and(|rest| {
            rest.ends_with(']') && rest.chars().all(|char| char.is_alphabetic() || " _-]".contains(char))
        })
        || text.strip_prefix('$').is_some_and(|name| is_plain(name) || name.bytes().all(|byte| byte.is_ascii_digit()))
        || text.strip_prefix(['%', '@']).is_some_and(|name| is_plain(name.trim_end_matches(['%', '@'])))
        || text.strip_prefix(':').is_some_and(|name| name.chars().all(|char| char.is_ascii_lowercase() || char == '_'))
        || text
            .strip_prefix('!')
            .is_some_and(|tag| (2..=10).contains(&tag.len()) && tag.chars().all(|char| char.is_ascii_lowercase()))
        || ["?", "%s", "%d", "|", ">", "|-", ">-"].contains(&text)
        || text.chars().all(|char| char == first)
        || text.chars().all(|char| "*•.…xX-_#".contains(char))
        || ["your", "my-", "my_", "insert", "replace", "example", "changeme"].iter().any(|start| {
            lower.strip_prefix(start).is_some_and(|rest| {
                rest.is_empty() || rest.chars().all(|char| char.is_ascii_alphabetic() || "-_ .".contains(char))
            })
        })
}

/// True for a path of a file.
fn is_path(text: &str) -> bool {
    let is_path_char = |char: char| char.is_ascii_alphanumeric() || "/._-~".contains(char);
    let has_start = ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start));
    let extension = text.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_file =
        ["json", "pem", "key", "p8", "p12", "pfx", "txt", "yml", "yaml", "toml", "env", "crt"].contains(&extension);
    text.chars().all(is_path_char) && (is_file || (has_start && !text.bytes().any(|byte| byte.is_ascii_uppercase())))
}

/// True for an expression of a program: a path of names, a call, an index or a type.
fn is_code(text: &str) -> bool {
    const ROOTS: &[&str] = &[
        "self", "this", "cls", "config", "cfg", "conf", "settings", "args", "opts", "options", "ctx", "req", "request",
        "var", "local", "module", "data", "params", "user", "input", "form", "body", "props", "state", "row", "record",
        "st", "t", "u", "app", "env", "z", "t1", "t2", "sys", "flask", "event", "client", "response", "resp",
    ];
    let text = text.trim_start_matches(['&', '*']).trim_end_matches([',', ';']);
    let end = text.find(|char: char| !(char.is_ascii_alphanumeric() || "_.:".contains(char))).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let names: Vec<&str> = name.split(['.', ':']).filter(|part| !part.is_empty()).collect();
    let is_name = |part: &&str| part.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
    if names.is_empty() || !names.iter().all(is_name) {
        return false;
    }
    if rest.is_empty() {
        let known = |name: &&str| kind_of(name).is_some();
        return names.len() > 1 && (ROOTS.contains(&names[0]) || names.last().is_some_and(known));
    }
    let is_plain = !name.bytes().any(|byte| byte.is_ascii_digit()) && name.len() > 1;
    let tail = rest.rsplit_once([')', ']', '>']).map(|(_, tail)| tail);
    is_plain
        && rest.starts_with(['(', '[', '<'])
        && tail.is_none_or(|tail| tail.chars().all(|char| "?!;,.)".contains(char)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_recognised() {
        for (name, expected) in [
            ("password", Some(NameKind::Password)),
            ("DB_PASSWORD", Some(NameKind::Password)),
            ("dbPassword2", Some(NameKind::Password)),
            ("PGPASSWORD", Some(NameKind::Password)),
            ("DATABASE_PASSWORD_PROD", Some(NameKind::Password)),
            ("SMTP_PASS", Some(NameKind::Password)),
            ("pass", Some(NameKind::Token)),
            ("accessToken", Some(NameKind::Token)),
            ("APIKey", Some(NameKind::Token)),
            ("x-api-key", Some(NameKind::Token)),
            ("aws_secret_access_key", Some(NameKind::Token)),
            ("client_secret", Some(NameKind::Token)),
            ("Set-Cookie", Some(NameKind::Header)),
            ("Authorization", Some(NameKind::Header)),
            ("max_tokens", None),
            ("cache_read_input_tokens", None),
            ("token_count", None),
            ("progressToken", None),
            ("next_page_token", None),
            ("primary_key", None),
            ("account_key", None),
            ("bypass", None),
            ("auth_token_ref", None),
            ("is_password", None),
            ("session_id", None),
            ("", None),
        ] {
            assert_eq!(kind_of(name), expected, "{name}");
        }
    }

    #[test]
    fn values_of_secret_names_are_judged() {
        let value = |text| Value { text, quoted: false, alone: true };
        for secret in
            ["hunter22", "8812345678", "$ecretPassw0rd", "p&9(x)Zq!longer", "hun/ter2", "correcthorse", "a(b1)c!D"]
        {
            assert!(is_secret(NameKind::Password, "password", value(secret)), "{secret}");
        }
        for other in [
            "<your password>",
            "${VAR}",
            "{{ env_var('X') }}",
            "env:NAME",
            "$PGPASSWORD",
            "$db_password",
            "string",
            "os.environ[\"X\"]",
            "self.password",
            "getpass()",
            "Option<String>",
            "user_password",
            "********",
            "your_password",
            "null",
            ":password",
            "%s",
            "[masked]",
        ] {
            assert!(!is_secret(NameKind::Password, "password", value(other)), "{other}");
            assert!(!is_secret(NameKind::Token, "token", value(other)), "{other}");
        }
        assert!(!is_secret(NameKind::Token, "token", value("1234567")));
        assert!(!is_secret(NameKind::Token, "secret", value("db-credentials")));
    }

    #[test]
    fn header_secrets_begin_after_the_scheme() {
        for (value, expected) in [
            ("Bearer abcdef123", Some("abcdef123")),
            ("token abc123x", Some("abc123x")),
            ("abc123x", Some("abc123x")),
            ("session=1; theme=dark", Some("session=1; theme=dark")),
            ("Bearer abcdef123 it was", Some("abcdef123")),
            ("chocolate; with nuts, and milk", None),
            ("Bearer <token>", None),
            ("Bearer ${TOKEN}", None),
            ("required", None),
            ("see the page of the service", None),
        ] {
            assert_eq!(header_secret(value).map(|range| &value[range]), expected, "{value}");
        }
    }
}
