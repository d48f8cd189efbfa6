//! The control socket of a run: the server in its engine, and the client that `ctl` and `attach` use.
//!
//! Every line is a request or a reply of [`ingestdeck_core::control`]. The socket belongs to the user alone: its directory has mode
//! 0700, and both sides check the user of the other. A client that is slow or sends garbage affects its own connection
//! only, but the number of connections is limited.

mod client;
mod location;
mod server;

pub use self::client::{
    AttachedClient, AttachmentEnd, ControlClient, ControlClientError, EngineReports, LeaveMode,
    LeaveSignal,
};
pub(crate) use self::server::{ControlServer, ServedRun};
