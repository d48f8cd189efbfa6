//! Workers over NATS: engines announce their runs, and the workers of their pool join all of them.
//!
//! Everything but heartbeats is stored by JetStream until its receiver has handled it, see [`pool_streams`] and
//! [`carrier`]: neither side has to be there when the other one is. [`engine_side`] and [`worker_side`] are the two ends.

#![expect(
    clippy::disallowed_methods,
    reason = "the credentials and certificates that the user names"
)]

mod carrier;
mod engine_side;
mod garbage;
mod other_runs;
mod pool_streams;
pub mod pool_users;
mod worker_side;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions};
// Its version selects the Unicode data of host names for the client.
use idna_adapter as _;
use serde::{Deserialize, Serialize};

pub use self::{
    garbage::DeletedGarbage,
    pool_streams::SubjectName,
    worker_side::{PoolMember, PoolServiceError, WorkerSession, serve_runs},
};
use super::protocol::WorkerLoad;
use ingestdeck_core::{
    diagnostic::Problem,
    tape::{RunId, note::PoolRun},
    text,
};

/// How long a connection to the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Smallest limit of a server that can be used.
const MIN_PAYLOAD: usize = 4 << 10;

/// A NATS server and the login for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsServer {
    pub address: NatsAddress,
    /// A credentials file, as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    pub nkey: Option<NkeySeed>,
    /// Certificates of authorities that sign the certificate of the server.
    pub root_certificates: Option<PathBuf>,
    /// A server that requires no login may be used.
    pub allows_open: bool,
    /// The pool of workers on the server.
    pub pool: SubjectName,
}

/// The seed of an nkey.
#[derive(Clone, PartialEq, Eq)]
pub enum NkeySeed {
    /// A file contains it.
    File(PathBuf),
    Given(String),
}

/// Written without the seed.
impl fmt::Debug for NkeySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Given(_) => f.write_str("Given(..)"),
        }
    }
}

/// What engines hear of a worker, every few seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Hello {
    load: WorkerLoad,
    /// When the process began, in milliseconds since 1970.
    since: i64,
}

/// What workers hear of a run, every few seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    run: RunId,
    protocol: u32,
    program: String,
    /// Workers may join; if not, only their attempts for it continue.
    joins: bool,
    /// Whose run it is, for the other runs of the pool.
    owner: PoolRun,
}

/// The address of a NATS server: `nats://[user:password@]host[:port]`, with a token in place of the user, or `tls://` for an encrypted connection.
#[derive(Clone, PartialEq, Eq)]
pub struct NatsAddress(async_nats::ServerAddr);

impl FromStr for NatsAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let invalid = |why: String| {
            Problem::new(format!("invalid NATS server: {why}")).with_help(
                "write nats://host[:port], or tls://host[:port] for an encrypted connection",
            )
        };
        if !["nats://", "tls://"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        {
            return Err(invalid(
                "it does not begin with nats:// or tls://".to_owned(),
            ));
        }
        let address: async_nats::ServerAddr = text
            .parse()
            .map_err(|error: io::Error| invalid(error.to_string()))?;
        if address.host().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        Ok(Self(address))
    }
}

/// Written without the password.
impl fmt::Display for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}:{}",
            self.0.scheme(),
            self.0.host(),
            self.0.port()
        )
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl NatsServer {
    /// Connects to the server, and checks its limits. Takes 10 s at most.
    ///
    /// # Errors
    /// If a file of the login cannot be read, the server cannot be reached, it refuses the login or requires none, it has no
    /// JetStream, or the limits are too small. Each names the remedy.
    pub async fn connect(&self) -> Result<Client, Problem> {
        self.connect_as("engine").await
    }

    /// Connects as `name`, whose key may only listen to its answers.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_as(&self, name: &str) -> Result<Client, Problem> {
        let mut options = ConnectOptions::new()
            .connection_timeout(CONNECT_TIMEOUT)
            .custom_inbox_prefix(format!("_INBOX_{name}"))
            .name(format!("ingestdeck {name}"));
        let unreadable = |what: &str, path: &Path, error: &dyn fmt::Display| {
            Problem::new(format!(
                "cannot read the {what} {}: {error}",
                path.display()
            ))
        };
        if let Some(path) = &self.credentials {
            let loaded = options.credentials_file(path).await;
            options = loaded.map_err(|error| unreadable("credentials file", path, &error))?;
        }
        if let Some(nkey) = &self.nkey {
            let seed = match nkey {
                NkeySeed::File(path) => tokio::fs::read_to_string(path)
                    .await
                    .map_err(|error| unreadable("nkey file", path, &error))?,
                NkeySeed::Given(seed) => seed.clone(),
            };
            options = options.nkey(seed.trim().to_owned());
        }
        if let Some(path) = &self.root_certificates {
            if let Err(error) = tokio::fs::metadata(path).await {
                return Err(unreadable("certificates", path, &error));
            }
            options = options.add_root_certificates(path.clone());
        }
        let server = &self.address;
        // The client does not take the login from the address.
        let (user, password) = (
            server.0.username().map(text::percent_decoded),
            server.0.password().map(text::percent_decoded),
        );
        options = match (user, password) {
            (Some(user), Some(password)) => options.user_and_password(user, password),
            (Some(token), None) => options.token(token),
            (None, _) => options,
        };
        let client = options.connect(server.0.clone()).await.map_err(|error| {
            let help = match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    "check --nats-creds, --nats-nkey, or the user in the URL"
                }
                ConnectErrorKind::Tls => "check --nats-ca and the host name of the certificate",
                _ => "start it, or check the host and the port",
            };
            Problem::new(format!("cannot connect to {server}: {error}")).with_help(help)
        })?;
        let payload = client.max_payload();
        if payload < MIN_PAYLOAD {
            let text = format!("{server} accepts messages of {payload} bytes at most");
            return Err(Problem::new(text)
                .with_help(format!("raise max_payload of the server to {MIN_PAYLOAD}")));
        }
        if !client.server_info().jetstream {
            let text = format!("{server} has no JetStream, which keeps orders and results");
            return Err(Problem::new(text)
                .with_help("start the server with `nats-server -js`, or write `jetstream {}` in its configuration"));
        }
        // A server may let clients without a login in as one of its users.
        let has_login =
            self.credentials.is_some() || self.nkey.is_some() || server.0.username().is_some();
        if !(self.allows_open || client.server_info().auth_required && has_login) {
            let text = format!(
                "{server} requires no login: each of its clients can act as an engine or a worker"
            );
            let help = "set up a login, for example `nats-server --user NAME --pass PASSWORD`, and name it with \
                 --nats-creds, --nats-nkey or INGESTDECK_NATS_URL; --insecure uses the server as it is";
            return Err(Problem::new(text).with_help(help));
        }
        Ok(client)
    }

    /// True if an argument of this process, which other users of the machine can list, contains the login.
    pub fn exposes_login(&self) -> bool {
        let is_address =
            |argument: &str| argument.contains("nats://") || argument.contains("tls://");
        self.address.0.username().is_some()
            && std::env::args_os().any(|argument| {
                let argument = argument.to_string_lossy();
                is_address(&argument) && argument.contains('@')
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_hide_passwords() {
        let address: NatsAddress = "nats://ann:secret@nats.example:4333".parse().unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "nats://nats.example:4333 nats://nats.example:4333"
        );
        for text in [
            "nats.example",
            "http://nats.example",
            "nats://",
            "nats://host:port",
        ] {
            assert!(text.parse::<NatsAddress>().is_err(), "{text}");
        }
    }
}
