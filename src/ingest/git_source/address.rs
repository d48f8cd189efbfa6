//! Addresses of remote repositories, checked before git sees one.
//!
//! git starts programs for some addresses (`ext::`, and `NAME::` for any `git-remote-NAME` on the PATH), reads others as
//! options, and sends data without encryption for a third kind. So only a narrow grammar is accepted, and everything else is
//! refused, even what git would accept. Pure.

/// Longest address, in bytes.
const MAX_BYTES: usize = 2048;
/// Characters of addresses, in addition to letters and digits. None of them has a meaning for a shell inside quotes.
const PUNCTUATION: &[u8] = b"-._~/:@%+,=[]";

/// How git reaches a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Https,
    /// Addresses such as `ssh://HOST/PATH` or `USER@HOST:PATH`.
    Ssh,
}

/// An address that git may be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteAddress {
    url: String,
    transport: Transport,
    host: String,
}

/// Why git is not given an address. Continues a sentence about the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("its repository address is not one of https, ssh or file")]
    Scheme,
    #[error("its repository address has an unusual character")]
    Character,
    #[error("its repository address has more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("its repository address contains a user name or a password")]
    Login,
    #[error("its repository address has an invalid user name")]
    User,
    #[error("its repository address has an invalid host")]
    Host,
    #[error("its repository address has an invalid path")]
    Path,
}

impl AddressError {
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::Login => "leave it out, and name a token with `auth_token_ref: env:NAME`",
            _ => {
                "write `https://HOST/PATH`, `ssh://USER@HOST/PATH`, `USER@HOST:PATH` or `file:PATH`"
            }
        }
    }
}

impl RemoteAddress {
    pub(crate) fn parse(url: &str) -> Result<Self, AddressError> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || PUNCTUATION.contains(byte);
        if url.len() > MAX_BYTES {
            return Err(AddressError::TooLong);
        }
        let https = url.strip_prefix("https://");
        let ssh = url.strip_prefix("ssh://");
        let (transport, host) = if let Some(rest) = https.or(ssh) {
            let (authority, path) = rest.split_once('/').ok_or(AddressError::Path)?;
            let host = match (authority.rsplit_once('@'), https.is_some()) {
                (Some(_), true) => return Err(AddressError::Login),
                (Some((user, host)), false) => {
                    check_user(user)?;
                    host
                }
                (None, _) => authority,
            };
            let host = check_host_and_port(host)?;
            check_path(path)?;
            let transport = if https.is_some() {
                Transport::Https
            } else {
                Transport::Ssh
            };
            (transport, host)
        } else {
            let (login, path) = url
                .split_once(':')
                .filter(|(_, path)| !path.starts_with(':') && !path.starts_with("//"))
                .ok_or(AddressError::Scheme)?;
            let (user, host) = login.split_once('@').ok_or(AddressError::Scheme)?;
            check_user(user)?;
            check_host(host)?;
            check_path(path.strip_prefix('/').unwrap_or(path))?;
            (Transport::Ssh, host)
        };
        if !url.bytes().all(|byte| is_plain(&byte)) || has_invalid_escape(url) {
            return Err(AddressError::Character);
        }
        Ok(Self {
            url: url.to_owned(),
            transport,
            host: host.to_owned(),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The arguments with which ssh connects to the host.
    pub(super) fn ssh_arguments(&self) -> String {
        let Some(rest) = self.url.strip_prefix("ssh://") else {
            return self.url.split(':').next().unwrap_or_default().to_owned();
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (login, port) = match authority.split_once(']') {
            Some((login, port)) => (login.replace('[', ""), port.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((login, port)) => (login.to_owned(), Some(port)),
                None => (authority.to_owned(), None),
            },
        };
        match port {
            Some(port) => format!("-p {port} {login}"),
            None => login,
        }
    }
}

/// Fails for a password, too.
fn check_user(user: &str) -> Result<(), AddressError> {
    if user.contains(':') {
        return Err(AddressError::Login);
    }
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+".contains(&byte);
    if user.is_empty() || user.starts_with('-') || !user.bytes().all(is_valid) {
        return Err(AddressError::User);
    }
    Ok(())
}

/// The host without its port.
fn check_host_and_port(text: &str) -> Result<&str, AddressError> {
    // `[::1]:22` is an address of IPv6.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => {
            let is_valid = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_valid) {
                return Err(AddressError::Host);
            }
            (host, rest)
        }
        None => {
            let end = text.find(':').unwrap_or(text.len());
            let (host, port) = text.split_at_checked(end).ok_or(AddressError::Host)?;
            check_host(host)?;
            (host, port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok(host),
        Some(port)
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && port.parse::<u16>().is_ok_and(|port| port > 0) =>
        {
            Ok(host)
        }
        _ => Err(AddressError::Host),
    }
}

fn check_host(host: &str) -> Result<(), AddressError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if host.is_empty() || host.starts_with(['-', '.']) || !host.bytes().all(is_valid) {
        return Err(AddressError::Host);
    }
    Ok(())
}

/// Checks a path without the `/` after the host.
fn check_path(path: &str) -> Result<(), AddressError> {
    if path.is_empty() || path.starts_with(['-', '/', ':']) {
        return Err(AddressError::Path);
    }
    Ok(())
}

/// True if a `%` does not begin the code of a visible character, such as `%0a`.
fn has_invalid_escape(url: &str) -> bool {
    url.split('%').skip(1).any(|rest| {
        let code = rest
            .get(..2)
            .filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        code.is_none_or(|code| code < b' ' || code == 0x7f)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_addresses_are_accepted() {
        for (url, transport, host) in [
            (
                "https://github.com/org/dbt.git",
                Transport::Https,
                "github.com",
            ),
            (
                "https://git.example.com:8443/a/b%20c",
                Transport::Https,
                "git.example.com",
            ),
            ("https://[::1]:443/x", Transport::Https, "::1"),
            ("ssh://git@host_1/~me/x.git", Transport::Ssh, "host_1"),
            ("ssh://host:22/x", Transport::Ssh, "host"),
            ("git@github.com:org/dbt.git", Transport::Ssh, "github.com"),
            ("git@host:/srv/dbt.git", Transport::Ssh, "host"),
        ] {
            let parsed = RemoteAddress::parse(url).unwrap();
            assert_eq!(
                (parsed.transport(), parsed.host()),
                (transport, host),
                "{url}"
            );
            assert_eq!(parsed.url(), url);
        }
    }

    #[test]
    fn ssh_gets_user_host_and_port() {
        for (url, arguments) in [
            ("git@github.com:org/dbt.git", "git@github.com"),
            ("ssh://host/x", "host"),
            ("ssh://git@host/x", "git@host"),
            ("ssh://git@host:2222/x", "-p 2222 git@host"),
            ("ssh://git@[::1]/x", "git@::1"),
            ("ssh://[fe80::1]:22/x", "-p 22 fe80::1"),
        ] {
            let address = RemoteAddress::parse(url).unwrap();
            assert_eq!(address.ssh_arguments(), arguments, "{url}");
        }
    }

    #[test]
    fn dangerous_addresses_are_refused() {
        use AddressError as E;
        for (url, why) in [
            ("ext::sh -c id", E::Scheme),
            ("ext::sh%20-c%20id", E::Scheme),
            ("fd::17", E::Scheme),
            ("https::https://h/x", E::Scheme),
            ("git@h::x", E::Scheme),
            ("git@h:://x", E::Scheme),
            ("git://h/x", E::Scheme),
            ("http://h/x", E::Scheme),
            ("HTTPS://h/x", E::Scheme),
            ("ftp://h/x", E::Scheme),
            ("git+ssh://git@h/x", E::Scheme),
            ("persistent-https://h/x", E::Scheme),
            ("/srv/x", E::Scheme),
            ("../x", E::Scheme),
            ("h:x", E::Scheme),
            ("--upload-pack=id", E::Scheme),
            ("--upload-pack=id:x", E::Scheme),
            ("-oProxyCommand=id@h:x", E::User),
            ("git@-oProxyCommand=id:x", E::Host),
            ("ssh://-oProxyCommand=id/x", E::Host),
            ("ssh://git@-h/x", E::Host),
            ("ssh://-u@h/x", E::User),
            ("ssh://@h/x", E::User),
            ("ssh://git:secret@h/x", E::Login),
            ("https://user:secret@h/x", E::Login),
            ("https://token@h/x", E::Login),
            ("https:///x", E::Host),
            ("https://h", E::Path),
            ("https://h/", E::Path),
            ("https://h/-x", E::Path),
            ("git@h:-x", E::Path),
            ("git@h:", E::Path),
            ("https://h:/x", E::Host),
            ("https://h:99999/x", E::Host),
            ("https://h:0/x", E::Host),
            ("https://h:22@evil/x", E::Login),
            ("https://h\\@evil/x", E::Login),
            ("https://h/x\n", E::Character),
            ("https://h/x%0ahost=evil", E::Character),
            ("https://h/x%", E::Character),
            ("https://h/x%zz", E::Character),
            ("https://h/x?y", E::Character),
            ("https://h/x#y", E::Character),
            ("https://h/x y", E::Character),
            ("https://h/\u{e4}", E::Character),
            ("https://h\u{0}/x", E::Host),
            ("git@h:$(id)", E::Character),
            ("git@h:'x", E::Character),
        ] {
            assert_eq!(RemoteAddress::parse(url).unwrap_err(), why, "{url:?}");
        }
        let long = format!("https://h/{}", "x".repeat(MAX_BYTES));
        assert_eq!(RemoteAddress::parse(&long).unwrap_err(), E::TooLong);
    }

    fn hostile_url() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("https://"),
            Just("ssh://"),
            Just("ext::"),
            Just("file://"),
            Just("git@"),
            Just("-o"),
            Just("::"),
            Just(":"),
            Just("@"),
            Just("/"),
            Just("-"),
            Just("h"),
            Just(".."),
            Just("%0a"),
            Just("%"),
            Just("\n"),
            Just("\0"),
            Just("["),
            Just("]"),
            Just(" "),
            Just("="),
            Just("\u{202e}"),
            Just("22"),
            Just("\\"),
            Just("$(id)"),
            Just("x.git"),
        ];
        prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn accepted_addresses_are_harmless(url in prop_oneof![hostile_url(), ".{0,40}"]) {
            let Ok(address) = RemoteAddress::parse(&url) else { return Ok(()) };
            prop_assert_eq!(address.url(), &url);
            prop_assert!(url.is_ascii() && !url.contains("::") || url.contains('['), "{}", url);
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{}", url);
            prop_assert!(!url.contains(['\'', '"', '\\', '$', '`', '?', '#', '&', ';', '|', '<', '>', '*']), "{}", url);
            prop_assert!(!url.starts_with('-') && !address.host().starts_with('-') && !address.host().is_empty());
            match address.transport() {
                Transport::Https => {
                    prop_assert!(url.starts_with("https://"));
                    let authority = url["https://".len()..].split('/').next().unwrap_or_default();
                    prop_assert!(!authority.contains('@'));
                }
                Transport::Ssh => {
                    let rest = url.strip_prefix("ssh://").unwrap_or(&url);
                    prop_assert!(!rest.starts_with('-'));
                    prop_assert!(!url.contains("://") || url.starts_with("ssh://"), "{}", url);
                }
            }
        }
    }
}
