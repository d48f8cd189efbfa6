//! What a git call may do on the network, and with which secrets.
//!
//! The repository of such a call is one that this program has just created and that the call names, so no setting of another
//! author counts: the configuration of the user and of the machine does, as for the user's own `git clone`, and [`SETTINGS`]
//! override it.

use std::{ffi::OsString, fmt, process::Command, time::Duration};

use ingestdeck_os::file_size_limit;

use super::GitCallLimits;

/// Transports that git may use, also where the user's own `url.*.insteadOf` replaces an address.
pub(super) const PROTOCOLS: &str = "https:ssh";

/// Settings of calls that use the network: no redirects to other hosts, no other sources of objects that a server names, no
/// submodules, no questions, and checks of every object. A server that stops sending is given up.
pub(super) const SETTINGS: &[&str] = &[
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "transfer.bundleURI=false",
    "fetch.uriProtocols=",
    "promisor.acceptFromServer=none",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    // One file, whose size has a limit.
    "fetch.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "credential.interactive=false",
];

/// Options of ssh: no questions, and nothing of the user's agent or displays for the server.
const SSH_OPTIONS: &str = "-o BatchMode=yes -o ForwardAgent=no -o ForwardX11=no -o ClearAllForwardings=yes \
                           -o PermitLocalCommand=no";

/// Access of calls to the network.
pub(crate) struct NetworkAccess {
    /// Command that starts ssh, for a shell.
    ssh: OsString,
    /// Settings that are passed in the environment, because the command line is public. They may be secrets.
    pub(super) settings: Vec<(String, String)>,
    max_file_bytes: u64,
    pub(super) limits: GitCallLimits,
}

impl fmt::Debug for NetworkAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkAccess").finish_non_exhaustive()
    }
}

impl NetworkAccess {
    /// Most bytes of messages of git and the server.
    const OUTPUT: u64 = 4 << 20;

    /// Access with the user's own `ssh` command and `settings`. A call writes no file above `max_file_bytes`.
    pub(crate) fn new(
        ssh: Option<OsString>,
        settings: Vec<(String, String)>,
        max_file_bytes: u64,
        time: Duration,
    ) -> Self {
        let mut ssh = ssh.unwrap_or_else(|| "ssh".into());
        ssh.push(" ");
        ssh.push(SSH_OPTIONS);
        Self {
            ssh,
            settings,
            max_file_bytes,
            limits: GitCallLimits {
                time,
                output: Self::OUTPUT,
            },
        }
    }

    pub(super) fn prepare(&self, command: &mut Command) {
        command
            .env("GIT_SSH_COMMAND", &self.ssh)
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GCM_INTERACTIVE", "never");
        file_size_limit::limit_file_size_in(command, self.max_file_bytes);
    }
}
