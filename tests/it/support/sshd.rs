//! An sshd for this user alone, with keys made for the test.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, User},
};

use super::pause_before_check;

const SSHD: &str = "/usr/sbin/sshd";
const DEADLINE: Duration = Duration::from_secs(60);

/// A server on a loopback port.
pub(crate) struct SshServer {
    process: Option<Child>,
    /// The directory of the keys.
    keys: PathBuf,
    pub port: u16,
}

impl SshServer {
    /// Starts a server, with its files in the new directory `keys`.
    pub(crate) fn start(keys: &Path) -> Self {
        fs::create_dir(keys).unwrap();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(keys.join(name));
            assert!(keygen.status().unwrap().success());
        }
        // The port is free once the listener is dropped.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let path = keys.display();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nAuthorizedKeysFile {path}/user.pub\nStrictModes no\n\
             UsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        );
        fs::write(keys.join("config"), config).unwrap();
        let mut server = Self {
            process: None,
            keys: keys.to_owned(),
            port,
        };
        server.begin();
        server
    }

    /// Starts it again at its port.
    pub(crate) fn begin(&mut self) {
        let mut sshd = Command::new(SSHD);
        sshd.args(["-D", "-e", "-f"])
            .arg(self.keys.join("config"))
            .stderr(Stdio::null());
        self.process = Some(sshd.spawn().unwrap());
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "sshd does not listen");
            pause_before_check();
        }
    }

    /// Ends the server and all of its sessions.
    pub(crate) fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        for client in self.clients() {
            // It may have ended meanwhile.
            let _ = kill(client, Signal::SIGKILL);
        }
    }

    /// The running `ssh` clients of the server.
    fn clients(&self) -> Vec<Pid> {
        let key = self.keys.join("user").display().to_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.parse().ok().map(Pid::from_raw)
        });
        let is_client = |pid: &Pid| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split('\0').any(|word| word == key)
        };
        pids.filter(is_client).collect()
    }

    /// The user and the host.
    pub(crate) fn address(&self) -> String {
        let user = User::from_uid(Uid::current()).unwrap().unwrap().name;
        format!("{user}@127.0.0.1")
    }

    /// What `ssh` needs to be let in.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![
            "-i".to_owned(),
            self.keys.join("user").display().to_string(),
        ];
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
            "BatchMode=yes",
        ] {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        options
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.end();
    }
}
