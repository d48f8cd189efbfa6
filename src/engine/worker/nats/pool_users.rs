//! The users of a pool at a NATS server: an engine, and one for each worker, with what each may do.
//!
//! A worker publishes below its own name and pulls from its own consumers. It creates nothing: neither streams nor
//! consumers, whose messages a server would deliver wherever their creator wants. So it can neither act as another worker
//! nor as an engine, nor read what another one is sent. The module must not write files.

use std::{fmt::Write as _, io};

use nkeys::KeyPair;

use super::pool_streams::{LinkId, PoolNames, SubjectName};
use ingestdeck_core::diagnostic::Problem;

/// The name of the user that engines have.
pub const ENGINE: &str = "engine";

/// A user of a server: a name, and the key of its login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUser {
    /// [`ENGINE`], or the name of a worker.
    pub name: SubjectName,
    /// The public key of its login.
    pub key: String,
}

/// A new login. Returns the seed for the file of the user, and the public key for the server.
///
/// # Errors
/// If the system provides no random numbers.
pub fn new_login() -> Result<(String, String), Problem> {
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(io::Error::other);
    let seed = seed.map_err(|error| Problem::new(format!("cannot create a key: {error}")))?;
    Ok((seed, pair.public_key()))
}

/// The public key of a login.
///
/// # Errors
/// If `seed` is not the seed of an nkey.
pub fn public_key(seed: &str) -> Result<String, Problem> {
    let pair = KeyPair::from_seed(seed.trim()).map_err(io::Error::other);
    let pair =
        pair.map_err(|error| Problem::new(format!("it is not the seed of an nkey: {error}")))?;
    Ok(pair.public_key())
}

/// The users of a pool as part of the configuration of a server.
pub fn server_users(pool: &SubjectName, users: &[PoolUser]) -> String {
    let names = PoolNames(pool.clone());
    let mut text = format!(
        "# Users of the pool `{pool}`, written by `ingestdeck worker keys`; the `.nk` files are their logins.\n\
         authorization {{\n  users: [\n"
    );
    for user in users {
        let (publish, subscribe) = match user.name.as_str() {
            ENGINE => engine_permissions(&names),
            worker => worker_permissions(&names, worker),
        };
        let list = |subjects: Vec<String>| {
            let subjects: Vec<String> = subjects.iter().map(|of| format!("\"{of}\"")).collect();
            subjects.join(", ")
        };
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "    # {}\n    {{ nkey: {}, permissions: {{\n      publish: {{ allow: [{}] }},\n      subscribe: {{ allow: [{}] }}\n    }} }}\n",
            user.name,
            user.key,
            list(publish),
            list(subscribe)
        );
    }
    text.push_str("  ]\n}\n");
    text
}

/// What an engine may publish, and what it may listen to: everything of its pool.
fn engine_permissions(names: &PoolNames) -> (Vec<String>, Vec<String>) {
    let pool = &names.0;
    let (leases, files) = (names.lease_bucket(), names.file_bucket());
    let streams = [
        names.order_stream(),
        names.entry_stream(),
        format!("KV_{leases}"),
        format!("OBJ_{files}"),
    ];
    let mut publish = vec![
        format!("ingestdeck.{pool}.>"),
        "$JS.API.INFO".to_owned(),
        "$JS.FC.>".to_owned(),
        format!("$KV.{leases}.>"),
        format!("$O.{files}.>"),
    ];
    for stream in streams {
        publish.extend([
            format!("$JS.API.STREAM.*.{stream}"),
            format!("$JS.API.STREAM.MSG.*.{stream}"),
            format!("$JS.API.CONSUMER.*.{stream}"),
            format!("$JS.API.CONSUMER.*.{stream}.>"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.>"),
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.>"),
            format!("$JS.API.DIRECT.GET.{stream}"),
            format!("$JS.API.DIRECT.GET.{stream}.>"),
            format!("$JS.ACK.{stream}.>"),
        ]);
    }
    (
        publish,
        vec![
            format!("_INBOX_{ENGINE}.>"),
            format!("ingestdeck.{pool}.hello.>"),
            names.runs(),
        ],
    )
}

fn worker_permissions(names: &PoolNames, worker: &str) -> (Vec<String>, Vec<String>) {
    let (orders, files) = (names.order_stream(), names.file_bucket());
    let own = LinkId {
        worker: worker.to_owned(),
        run: "*".to_owned(),
        link: "*".to_owned(),
    };
    let mut publish = vec![
        names.up(&own),
        names.hello(&own),
        format!("$JS.API.DIRECT.GET.OBJ_{files}"),
        format!("$JS.API.DIRECT.GET.OBJ_{files}.>"),
    ];
    for consumer in [
        PoolNames::order_consumer(worker),
        PoolNames::down_consumer(worker),
    ] {
        publish.extend([
            format!("$JS.API.CONSUMER.INFO.{orders}.{consumer}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{orders}.{consumer}"),
            format!("$JS.ACK.{orders}.{consumer}.>"),
        ]);
    }
    (
        publish,
        vec![
            format!("_INBOX_{worker}.>"),
            names.runs(),
            names.hellos_of(worker),
        ],
    )
}
