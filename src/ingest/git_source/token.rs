//! The token for a private repository, by the reference to it in `ktx.yaml`.
//!
//! The token itself is read only for a call of git, and it is passed in the environment of that call alone.

#![expect(
    clippy::disallowed_methods,
    reason = "a file with a token that the user's own settings name, too"
)]

use std::{env, fmt, fs::File, io::Read as _, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::address::RemoteAddress;
use crate::untrusted_text::visible_path;
use ingestdeck_core::diagnostic::Problem;

/// Largest file with a token, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// Where a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenReference {
    /// Name of a variable.
    Env(String),
    /// Absolute, or below `~/`.
    File(String),
}

impl fmt::Display for TokenReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

/// A token and the user name that belongs to it. Neither is shown.
pub(super) struct Token(String);

impl TokenReference {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let is_name = |name: &&str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            !name.is_empty() && name.bytes().all(is_part)
        };
        let is_path = |path: &&str| {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\`$".contains(&byte);
            (path.starts_with('/') || path.starts_with("~/")) && path.bytes().all(is_plain)
        };
        let env = text.strip_prefix("env:").map(str::trim).filter(is_name);
        let file = text.strip_prefix("file:").map(str::trim).filter(is_path);
        match (env, file) {
            (Some(name), _) => Ok(Self::Env(name.to_owned())),
            (_, Some(path)) => Ok(Self::File(path.to_owned())),
            // The value may be the token itself.
            _ => Err(
                Problem::new("its auth_token_ref is not a reference to a token")
                    .with_help("write `env:NAME`, or `file:PATH` with an absolute path"),
            ),
        }
    }

    /// Reads the token from its place.
    pub(super) fn read(&self) -> Result<Token, Problem> {
        let text = match self {
            Self::Env(name) => env::var(name).ok(),
            Self::File(path) => {
                let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
                let path = path
                    .strip_prefix("~/")
                    .map_or_else(|| PathBuf::from(path), |rest| home.join(rest));
                let mut text = String::new();
                // A named pipe would block.
                let file = path.is_file().then(|| File::open(&path).ok()).flatten();
                file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text).ok())
                    .map(|_| text)
            }
        };
        let token = text.map(|text| text.trim().to_owned()).unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let (what, remedy) = match self {
                Self::Env(name) => (format!("the variable {name}"), format!("set {name}")),
                Self::File(path) => {
                    let path = visible_path(path);
                    (path.clone(), format!("write the token into {path}"))
                }
            };
            let why = format!("its auth_token_ref names {what}, which contains no token");
            return Err(Problem::new(why).with_help(remedy));
        }
        Ok(Token(token))
    }
}

impl Token {
    /// Settings of git that send the token to the host of `address` alone, and that ask no helper of the user for another.
    pub(super) fn settings(&self, address: &RemoteAddress) -> Vec<(String, String)> {
        vec![
            ("credential.helper".into(), String::new()),
            (
                format!("http.{}.extraHeader", address.url()),
                format!("Authorization: Basic {}", self.encoded(address)),
            ),
        ]
    }

    fn encoded(&self, address: &RemoteAddress) -> String {
        // The user names that KTX sends.
        let user = match address.host() {
            host if host.contains("github.com") => "x-token-auth",
            host if host.contains("gitlab.com") => "oauth2",
            _ => "token",
        };
        STANDARD.encode(format!("{user}:{}", self.0))
    }

    /// `text` without the token.
    pub(super) fn redact(&self, text: &str, address: &RemoteAddress) -> String {
        text.replace(&self.0, "***")
            .replace(&self.encoded(address), "***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_as_in_ktx() {
        let shown = |text: &str| TokenReference::parse(text).map(|found| found.to_string());
        assert_eq!(shown("env:GITHUB_TOKEN").unwrap(), "env:GITHUB_TOKEN");
        assert_eq!(shown("env: T1 ").unwrap(), "env:T1");
        assert_eq!(shown("file:/run/secrets/t").unwrap(), "file:/run/secrets/t");
        assert_eq!(shown("file:~/.t").unwrap(), "file:~/.t");
        for text in [
            "",
            "ghp_secret",
            "env:",
            "env:A B",
            "env:A\"",
            "file:t",
            "file:/a b",
            "file:/a\"",
            "ENV:A",
        ] {
            let problem = TokenReference::parse(text).unwrap_err();
            assert!(!problem.to_string().contains("secret"), "{text}");
        }
    }

    #[test]
    fn token_is_sent_to_its_address_only() {
        let address = RemoteAddress::parse("https://github.com/o/x.git").unwrap();
        let token = Token("s3cret".into());
        let settings = token.settings(&address);
        assert_eq!(settings[0], ("credential.helper".into(), String::new()));
        assert_eq!(settings[1].0, "http.https://github.com/o/x.git.extraHeader");
        assert_eq!(
            settings[1].1,
            format!(
                "Authorization: Basic {}",
                STANDARD.encode("x-token-auth:s3cret")
            )
        );
        let text = format!("a s3cret {}", STANDARD.encode("x-token-auth:s3cret"));
        assert_eq!(token.redact(&text, &address), "a *** ***");
    }

    #[test]
    fn missing_or_strange_tokens_are_reported_without_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let reference = TokenReference::File(path.to_str().unwrap().into());
        assert!(
            reference
                .read()
                .is_err_and(|why| why.to_string().ends_with("which contains no token"))
        );
        std::fs::write(&path, "two\nlines\n").unwrap();
        assert!(
            reference
                .read()
                .is_err_and(|why| !why.to_string().contains("two"))
        );
        std::fs::write(&path, " one \n").unwrap();
        assert_eq!(reference.read().unwrap().0, "one");
        assert!(
            TokenReference::File(dir.path().to_str().unwrap().into())
                .read()
                .is_err()
        );
    }
}
