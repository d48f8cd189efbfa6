//! Classifies names whose values are secrets, and recognises values that are not secrets. Pure.

/// The kind of secret that a name announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// A password: a short number or a word may be one.
    Password,
    /// A token or key: a word is more likely its name.
    Token,
    /// An HTTP header: the secret may follow a scheme.
    Header,
}

/// The value after a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedValue<'a> {
    pub(super) text: &'a str,
    /// In quotes, or a JSON string.
    pub(super) quoted: bool,
    /// It ends its line or follows the `=` immediately, so it is not the beginning of a sentence.
    pub(super) alone: bool,
}

/// Bytes of the longest name.
const LONGEST_NAME: usize = 120;

/// Last words of names that distinguish several secrets or state an encoding.
#[rustfmt::skip]
const VARIANTS: &[&str] = &[
    "prod", "production", "staging", "stage", "dev", "development", "test", "testing", "qa", "live", "old", "new",
    "current", "previous", "default", "primary", "secondary", "main", "b64", "base64", "value", "plain", "plaintext", "hash", "base",
];

/// First words of names of functions and flags about a secret.
#[rustfmt::skip]
const QUESTIONS: &[&str] = &[
    "is", "has", "get", "fetch", "check", "verify", "validate", "show", "hide", "forgot", "use", "allow", "require",
    "requires", "enable", "disable", "no", "num", "count", "max", "min", "total",
];

/// Words in names of tokens that are not secret.
#[rustfmt::skip]
const HARMLESS_TOKENS: &[&str] = &[
    "progress", "page", "next", "continuation", "cancel", "cancellation", "cursor", "eos", "bos", "pad", "unk", "sep",
    "cls", "mask", "stop", "special",
];

/// Words before `key` that make it a secret.
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "api", "access", "secret", "private", "auth", "encryption", "decryption", "signing", "signature", "fernet", "jwt", "cipher", "aes", "master",
    "shared", "ssh", "deploy", "hmac", "webhook", "subscription",
];

/// Names of passwords in other languages, as the last word of a name or as its end.
#[rustfmt::skip]
const FOREIGN: &[&str] = &["senha", "hasło", "haslo", "heslo", "jelszó", "mdp", "암호"];
#[rustfmt::skip]
const FOREIGN_ENDS: &[&str] = &[
    "kennwort", "contraseña", "contrasena", "contrasenya", "motdepasse", "пароль", "пароля", "密码", "密碼", "口令", "パスワード",
    "비밀번호", "wachtwoord", "lösenord", "salasana",
];

/// Second words of variables that describe a secret, such as `TOKEN_TTL`.
#[rustfmt::skip]
const DESCRIPTIONS: &[&str] = &[
    "age", "alg", "algorithm", "arn", "audience", "budget", "column", "count", "dir", "domain", "enabled", "endpoint", "expiration",
    "expires", "expiry", "field", "file", "format", "header", "hasher", "host", "id", "ids", "issuer", "length", "lifetime", "limit",
    "manager", "max", "min", "model", "name", "path", "policy", "prefix", "project", "provider", "ref", "region", "reset", "rules",
    "samesite", "scope", "scopes", "secure", "size", "store", "timeout", "ttl", "type", "uri", "url", "version",
];

/// With this prefix, dbt requires that a variable is kept secret: `DBT_ENV_SECRET_GIT`.
const DBT_PREFIX: [&str; 3] = ["dbt", "env", "secret"];

/// Returns the kind of secret that a name announces; `None` if its value is not secret.
pub(super) fn kind_of(name: &str) -> Option<NameKind> {
    kind_by_last_word(name).or_else(|| variable_kind(name))
}

/// The same, by the last word of the name alone. For values, which may look like a variable, such as `SECRET_SAUCE`.
pub(super) fn kind_by_last_word(name: &str) -> Option<NameKind> {
    let words = distinctive_words(name)?;
    if let [first, second, third, _, ..] = words.as_slice()
        && [first, second, third] == DBT_PREFIX
    {
        return Some(NameKind::Token);
    }
    let (last, before) = words.split_last()?;
    let last = last.trim_end_matches(|char: char| char.is_ascii_digit());
    let is_plural = last.ends_with('s') && !last.ends_with("ss");
    let singular = if is_plural {
        &last[..last.len() - 1]
    } else {
        last
    };
    if is_plural
        && (["password", "passwd", "passphrase", "passcode"]
            .iter()
            .any(|end| singular.ends_with(end))
            || singular == "key"
                && before
                    .last()
                    .is_some_and(|word| KEYS.contains(&word.as_str())))
    {
        return kind_of_word(singular, before, &words);
    }
    kind_of_word(last, before, &words)
}

/// Classifies a variable of an environment whose secret word is not the last one: `PASSWORD_DB`, `APP_SECRETS_JSON`.
fn variable_kind(name: &str) -> Option<NameKind> {
    let words = distinctive_words(name).filter(|_| is_variable(name))?;
    match words.as_slice() {
        [before @ .., last, format] if matches!(format.as_str(), "json" | "yaml") => {
            kind_of_word(last, before, &words)
        }
        [first, of] if !DESCRIPTIONS.contains(&of.as_str()) => kind_of_word(first, &[], &words),
        _ => None,
    }
}

/// The words of a name without those that distinguish several secrets; `None` for a name that is too long or asks
/// about a secret.
fn distinctive_words(name: &str) -> Option<Vec<String>> {
    if name.len() > LONGEST_NAME {
        return None;
    }
    let mut words = words(name);
    if let [first, second, third, _, ..] = words.as_slice()
        && [first, second, third] == DBT_PREFIX
    {
        return Some(words);
    }
    while words.len() > 1
        && words
            .last()
            .is_some_and(|last| VARIANTS.contains(&last.as_str()) || is_version(last))
    {
        words.pop();
    }
    let is_question = words.len() > 1 && QUESTIONS.contains(&words[0].as_str());
    (!is_question).then_some(words)
}

/// Classifies a name by its last word, its other words, and all of them.
fn kind_of_word(last: &str, before: &[String], words: &[String]) -> Option<NameKind> {
    let ends = |ends: &[&str]| ends.iter().any(|end| last.ends_with(end));
    let previous = before.last().map_or("", String::as_str);
    if ends(&[
        "password",
        "passwd",
        "passwort",
        "passphrase",
        "passcode",
        "pwd",
    ]) || (["pass", "pw"].contains(&last) && !before.is_empty())
        || FOREIGN.contains(&last)
        || ends(FOREIGN_ENDS)
        || last == "passe" && previous == "de"
    {
        return Some(NameKind::Password);
    }
    if ends(&["authorization", "cookie"]) {
        return Some(NameKind::Header);
    }
    let is_token = last.ends_with("token")
        && !words
            .iter()
            .any(|word| HARMLESS_TOKENS.contains(&word.as_str()))
        || ends(&[
            "secret",
            "apikey",
            "accesskey",
            "secretkey",
            "privatekey",
            "authkey",
            "signingkey",
            "accountkey",
        ])
        || [
            "pass",
            "pw",
            "secrets",
            "credential",
            "credentials",
            "creds",
        ]
        .contains(&last)
        || last == "key"
            && (KEYS.contains(&previous)
                || before.len() > 1 && previous == "id" && before[0] == "access");
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
        let after_lower =
            at > 0 && (chars[at - 1].is_ascii_lowercase() || chars[at - 1].is_ascii_digit());
        let before_lower = at > 0
            && chars[at - 1].is_ascii_uppercase()
            && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if !char.is_alphanumeric() || (char.is_ascii_uppercase() && (after_lower || before_lower)) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Values that describe a secret.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "string", "str", "text", "varchar", "char", "number", "integer", "int", "boolean", "bool", "bytes", "byte", "any",
    "object", "array", "uuid", "option", "optional", "required", "null", "none", "nil", "true", "false", "undefined",
    "unknown", "missing", "empty", "invalid", "valid", "expired", "revoked", "hashed", "encrypted", "hidden",
    "masked", "redacted", "plaintext", "secret", "password", "passwd", "pass", "pwd", "token", "bearer", "basic",
    "apikey", "oauth", "oauth2", "oidc", "saml", "sso", "iam", "keypair", "disabled", "enabled", "default",
    "changeme", "change-me", "change_me", "placeholder", "example", "dummy", "todo", "tbd", "include", "omit",
    "same-origin", "prompt", "interactive", "keychain", "vault", "ignored", "unset", "n/a", "u8", "u16", "u32", "u64",
    "i8", "i32", "i64", "usize", "&str", "cstring", "ssl", "tls", "base64", "sha256", "bcrypt", "utf8", "utf-8", "md5", "sha1", "sha512", "sha-256", "oauth1", "argon2",
    "argon2id", "pbkdf2", "bcrypt2", "ed25519", "aes256", "aes-256", "rs256", "hs256", "es256", "x509", "base32", "base58",
    "base62", "varchar2", "int32", "int64", "utf-16", "http2", "k8s", "s3", "obligatorio", "obligatoria", "obrigatória",
    "obligatoire", "requis", "requise", "erforderlich", "opcional", "facultatif", "verplicht", "wymagane", "fehlt", "leer", "vide",
    "vacío", "vacía", "falsch", "incorrecta", "incorrecto", "incorrect", "ungültig", "notwendig",
];

/// Words that only sentences have.
#[rustfmt::skip]
const SENTENCE: &[&str] = &[
    "the", "a", "an", "is", "are", "was", "must", "should", "can", "cannot", "of", "to", "for", "your", "my", "our",
    "not", "be", "or", "and", "with", "in", "on", "by", "from", "this", "that", "it", "no", "least", "characters",
    "required", "if", "when", "has", "have", "will",
];

/// Prefixes of values that refer to a secret elsewhere.
#[rustfmt::skip]
const REFERENCES: &[&str] = &[
    "env:", "file:", "op://", "vault:", "arn:", "ref+", "secret://", "ssm:", "keyring:", "[masked", "[redacted",
    "toolu_", "${", "{{", "{%", "$(", "$env", "%(", "#{", "@{", "env(", "env.", "env[", "env_var(", "process.env",
    "os.environ", "os.getenv", "getenv", "std::env", "system.getenv", "import.meta", "secrets.", "http://",
    "https://",
];

/// True if a value of `name`, whose kind is `kind`, is a secret.
pub(super) fn is_secret(kind: NameKind, name: &str, value: NamedValue<'_>) -> bool {
    let text = value.text.trim();
    if text.is_empty() || is_placeholder(text) {
        return false;
    }
    // A sentence in a script without blanks.
    let is_east_asian = |char: char| char >= '\u{3000}';
    if !value.quoted
        && text.contains(is_east_asian)
        && !text.bytes().any(|byte| byte.is_ascii_alphabetic())
    {
        return false;
    }
    let word = text
        .trim_end_matches([',', ';', '.', '?', '!', ':', ')'])
        .to_ascii_lowercase();
    if WORDS.contains(&&*word) || normalized_name(name) == normalized_name(text) {
        return false;
    }
    if text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b".,:/%_ -".contains(&byte))
    {
        return is_secret_number(kind, text);
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.iter().any(|part| {
        SENTENCE.contains(&&*part.trim_matches([',', '.', ';', ':']).to_ascii_lowercase())
    }) {
        let is_variable = is_variable(name) && value.quoted && !is_about_secrets(&parts);
        return kind == NameKind::Password
            && (is_variable || parts.len() == 1 && value.alone && text.len() >= 6);
    }
    let has_digit = text.bytes().any(|byte| byte.is_ascii_digit());
    let is_word = text
        .chars()
        .all(|char| char.is_alphabetic() || "_-.' ".contains(char));
    let is_name = !has_digit && kind_by_last_word(text).is_some();
    if is_path(text) || is_name || (!value.quoted && is_code(text)) {
        return false;
    }
    match kind {
        NameKind::Password if is_word => {
            text.len() >= 6 && (value.quoted || value.alone && text.is_ascii())
        }
        NameKind::Password => text.len() >= 4,
        NameKind::Token | NameKind::Header if is_word => {
            text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
        }
        NameKind::Token | NameKind::Header => {
            (has_digit && text.len() >= 6) || (text.len() >= 20 && text.contains(['+', '/', '=']))
        }
    }
}

/// True for the name of a variable of an environment that has several words, such as `PGPASSWORD`.
pub(super) fn is_variable(name: &str) -> bool {
    name.len() > "PASSWORD".len()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// True for words that mention a secret, as the label of a field does.
fn is_about_secrets(words: &[&str]) -> bool {
    words.iter().any(|word| {
        kind_by_last_word(word.trim_matches(|char: char| !char.is_alphanumeric())).is_some()
    })
}

/// True for text with the digits or symbols of a generated password, which prose hardly has.
pub(super) fn has_opaque_shape(text: &str) -> bool {
    let has = |is: fn(&u8) -> bool| text.as_bytes().iter().any(is);
    let has_symbol = has(|byte| b"!@#$%^&*+=~?".contains(byte));
    let (has_letter, has_digit) = (has(u8::is_ascii_alphabetic), has(u8::is_ascii_digit));
    let lower = text.to_ascii_lowercase();
    let mut parts = lower
        .split(|char: char| !char.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty());
    // A number with its unit, an ordinal, or a version.
    let is_measure = text
        .trim_start_matches(|char: char| char.is_ascii_digit())
        .bytes()
        .all(|byte| !byte.is_ascii_digit())
        && text.starts_with(|char: char| char.is_ascii_digit())
        && !has_symbol;
    let is_name = !has_symbol
        && is_words(text)
        && (text.contains(['-', '_', '.', '/', ':']) || has_letter && !has_digit);
    text.len() >= 6
        && text.is_ascii()
        && has_letter
        && (has_digit || has_symbol)
        && !is_measure
        && !is_name
        && !["://", "()", "@example."]
            .iter()
            .any(|part| text.contains(part))
        && !parts.any(|part| WORDS.contains(&part))
        && !is_path(text)
        && !is_code(text)
        && !is_placeholder(text)
}

/// True for words, also in camel case, and short numbers between separators: an ordinary identifier.
pub(super) fn is_words(text: &str) -> bool {
    /// Digits of the longest number of an identifier.
    const DIGITS: usize = 4;
    /// Letters that a word has on average at least, and at most.
    const AVERAGE: std::ops::RangeInclusive<usize> = 3..=20;
    text.split(|char: char| !char.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .all(|part| {
            let letters = part.trim_end_matches(|char: char| char.is_ascii_digit());
            if letters.is_empty() || part.len() - letters.len() > DIGITS {
                return part.len() <= DIGITS;
            }
            let bytes = letters.as_bytes();
            if !bytes.iter().all(u8::is_ascii_alphabetic) {
                // Such as `7b` and `3rd`.
                return part.len() <= DIGITS;
            }
            let words = 1 + bytes
                .windows(2)
                .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
                .count();
            letters.len() <= *AVERAGE.start() || AVERAGE.contains(&(letters.len() / words))
        })
}

/// True if a number under a name of this kind is a secret. Counts are not.
pub(super) fn is_secret_number(kind: NameKind, number: &str) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    match kind {
        NameKind::Password => digits >= 4,
        NameKind::Token | NameKind::Header => digits >= 8 && digits == number.len(),
    }
}

/// Returns the range of the secret in the value of a header, without its scheme.
pub(super) fn header_secret(value: &str) -> Option<std::ops::Range<usize>> {
    let end = value.trim_end().len();
    let start = value.len() - value.trim_start().len();
    let is_scheme = |word: &str| {
        word.len() >= 3
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let scheme = value[start..end]
        .split_once(char::is_whitespace)
        .filter(|(word, rest)| is_scheme(word) && !rest.trim().is_empty());
    let start = scheme.map_or(start, |(_, rest)| end - rest.trim_start().len());
    // A blank ends the secret, unless it separates two parts of a cookie.
    let is_end = |(at, char): &(usize, char)| {
        char.is_whitespace() && !value[start..start + at].ends_with([';', ','])
    };
    let end = value[start..end]
        .char_indices()
        .find(is_end)
        .map_or(end, |(at, _)| start + at);
    let secret = &value[start..end];
    let is_opaque = secret
        .bytes()
        .any(|byte| byte.is_ascii_digit() || b"+=_".contains(&byte));
    let is_long = secret.len() >= 16 && !secret.contains(char::is_whitespace);
    (secret.len() >= 6 && (is_opaque || is_long) && !is_placeholder(secret)).then_some(start..end)
}

/// Returns a name in lower case without separators.
fn normalized_name(name: &str) -> String {
    name.chars()
        .filter(|char| char.is_alphanumeric())
        .map(|char| char.to_ascii_lowercase())
        .collect()
}

/// True for placeholders of examples, templates and code.
pub(super) fn is_placeholder(text: &str) -> bool {
    let text = text.trim().trim_matches(['"', '\'', '`', '*']);
    let lower = text.to_ascii_lowercase();
    let first = text.chars().next().unwrap_or_default();
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|char| char.is_ascii_alphanumeric() || char == '_')
    };
    let is_one_case = |name: &str| {
        is_name(name) && (name == name.to_ascii_lowercase() || name == name.to_ascii_uppercase())
    };
    let is_plain = |name: &str| {
        is_one_case(name)
            && !(name.bytes().any(|byte| byte.is_ascii_digit())
                && name == lower.trim_start_matches('$'))
    };
    REFERENCES.iter().any(|start| lower.starts_with(start))
        || text.strip_prefix('<').is_some_and(|rest| {
            rest.contains('>') || rest.len() > 1 && rest.chars().all(char::is_alphabetic)
        })
        || text.strip_prefix('{').is_some_and(|rest| {
            rest.split_once('}').is_some_and(|(name, _)| {
                name.chars()
                    .all(|char| is_name(&char.to_string()) || char == '.')
            })
        })
        || text.strip_prefix('[').is_some_and(|rest| {
            rest.ends_with(']')
                && rest
                    .chars()
                    .all(|char| char.is_alphabetic() || " _-]".contains(char))
        })
        || text.strip_prefix('(').is_some_and(|rest| {
            rest.chars()
                .all(|char| char.is_alphabetic() || " _-,.')".contains(char))
        })
        || text
            .strip_prefix('$')
            .is_some_and(|name| is_plain(name) || name.bytes().all(|byte| byte.is_ascii_digit()))
        || text
            .strip_prefix(['%', '@'])
            .is_some_and(|name| is_plain(name.trim_end_matches(['%', '@'])))
        || text.strip_prefix(':').is_some_and(|name| {
            name.chars()
                .all(|char| char.is_ascii_lowercase() || char == '_')
        })
        || text.strip_prefix('!').is_some_and(|tag| {
            (2..=10).contains(&tag.len()) && tag.chars().all(|char| char.is_ascii_lowercase())
        })
        || ["?", "%s", "%d", "|", ">", "|-", ">-"].contains(&text)
        || text.chars().all(|char| char == first)
        || text.chars().all(|char| "*•.…xX-_#".contains(char))
        || [
            "your", "my-", "my_", "insert", "replace", "example", "changeme",
        ]
        .iter()
        .any(|start| {
            lower.strip_prefix(start).is_some_and(|rest| {
                rest.is_empty()
                    || rest
                        .chars()
                        .all(|char| char.is_ascii_alphabetic() || "-_ .".contains(char))
            })
        })
}

/// True for the path of a file.
fn is_path(text: &str) -> bool {
    let is_path_char = |char: char| char.is_ascii_alphanumeric() || "/._-~".contains(char);
    let has_start = ["/", "./", "../", "~/"]
        .iter()
        .any(|start| text.starts_with(start));
    let extension = text.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_file = [
        "json", "pem", "key", "p8", "p12", "pfx", "txt", "yml", "yaml", "toml", "env", "crt",
    ]
    .contains(&extension);
    text.chars().all(is_path_char)
        && (is_file || (has_start && !text.bytes().any(|byte| byte.is_ascii_uppercase())))
}

/// True for an expression of a program: a path of names, a call, an index or a type.
fn is_code(text: &str) -> bool {
    const ROOTS: &[&str] = &[
        "self", "this", "cls", "config", "cfg", "conf", "settings", "args", "opts", "options",
        "ctx", "req", "request", "var", "local", "module", "data", "params", "user", "input",
        "form", "body", "props", "state", "row", "record", "st", "t", "u", "app", "env", "z", "t1",
        "t2", "sys", "flask", "event", "client", "response", "resp",
    ];
    let text = text
        .trim_start_matches(['&', '*'])
        .trim_end_matches([',', ';']);
    let end = text
        .find(|char: char| !(char.is_ascii_alphanumeric() || "_.:".contains(char)))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let names: Vec<&str> = name
        .split(['.', ':'])
        .filter(|part| !part.is_empty())
        .collect();
    let is_name =
        |part: &&str| part.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
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
            ("passwords", Some(NameKind::Password)),
            ("api_keys", Some(NameKind::Token)),
            ("Secret access key", Some(NameKind::Token)),
            ("SECRET_KEY_BASE", Some(NameKind::Token)),
            ("DBT_ENV_SECRET_GIT", Some(NameKind::Token)),
            ("DBT_ENV_CUSTOM_ENV_REGION", None),
            ("AIRFLOW__CORE__FERNET_KEY", Some(NameKind::Token)),
            ("password_hash", Some(NameKind::Password)),
            ("Contraseña", Some(NameKind::Password)),
            ("mot_de_passe", Some(NameKind::Password)),
            ("ПАРОЛЬ", Some(NameKind::Password)),
            ("パスワード", Some(NameKind::Password)),
            ("resenha", None),
            ("primary_keys", None),
            ("tokens", None),
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
        let value = |text| NamedValue {
            text,
            quoted: false,
            alone: true,
        };
        for secret in [
            "hunter22",
            "8812345678",
            "$ecretPassw0rd",
            "p&9(x)Zq!longer",
            "hun/ter2",
            "correcthorse",
            "a(b1)c!D",
        ] {
            assert!(
                is_secret(NameKind::Password, "password", value(secret)),
                "{secret}"
            );
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
            assert!(
                !is_secret(NameKind::Password, "password", value(other)),
                "{other}"
            );
            assert!(
                !is_secret(NameKind::Token, "token", value(other)),
                "{other}"
            );
        }
        assert!(!is_secret(NameKind::Token, "token", value("1234567")));
        assert!(!is_secret(
            NameKind::Token,
            "secret",
            value("db-credentials")
        ));
    }

    #[test]
    fn generated_passwords_differ_from_words() {
        for text in [
            "hunter22",
            "hunter2!x",
            "Tr0ub4dor&3",
            "c0rrect-horse",
            "P@ssw0rds",
        ] {
            assert!(has_opaque_shape(text), "{text}");
        }
        for text in [
            "base64-encoded",
            "SHA256",
            "8-character",
            "256bit",
            "required",
            "step_2_result",
            "self.token1",
            "v1.2.3",
        ] {
            assert!(!has_opaque_shape(text), "{text}");
        }
        for text in [
            "sk-learn-compatible-estimator-v2",
            "s.customerLifetimeValue2024",
            "pa-model-7b-2-of-2024",
        ] {
            assert!(is_words(text), "{text}");
        }
        for text in [
            "sk-AbCd1234EfGh5678",
            "s.a1B2c3D4e5F6g7H8i9J0k1L2",
            "sk-abcdefghijklmnopqrstuvwxyz123456",
        ] {
            assert!(!is_words(text), "{text}");
        }
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
            assert_eq!(
                header_secret(value).map(|range| &value[range]),
                expected,
                "{value}"
            );
        }
    }
}
