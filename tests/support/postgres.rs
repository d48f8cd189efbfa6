//! A PostgreSQL server of one test.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

/// Variable that names the folder with `initdb`, `pg_ctl` and `psql`.
pub const PROGRAMS: &str = "INGESTDECK_TEST_POSTGRES";

/// User of the operating system that runs the server if this process is root, which PostgreSQL refuses.
const UNPRIVILEGED: u32 = 65_534;

/// A server on 127.0.0.1 with the administrator `admin`, who needs no password; `locked` needs one. It stops when it is
/// dropped.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
}

impl PostgresServer {
    /// Starts a server; `None` if [`PROGRAMS`] is not set.
    pub fn start() -> Option<Self> {
        let programs = PathBuf::from(std::env::var_os(PROGRAMS)?);
        let folder = tempfile::Builder::new().prefix("pg").tempdir().unwrap();
        if is_root() {
            chown(folder.path(), Some(UNPRIVILEGED), None).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let server = Self {
            programs,
            folder,
            port,
        };
        let data = server.data();
        let locale = ["-E", "UTF8", "--locale=C", "-A", "trust", "-U", "admin"];
        server.run(
            "initdb",
            &[&["-D", &data, "-N"], locale.as_slice()].concat(),
        );
        let rules = "host all locked all scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        fs::write(Path::new(&data).join("pg_hba.conf"), rules).unwrap();
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
        );
        let log = format!("{data}/log");
        let start = ["-D", &data, "-o", &options, "-l", &log, "-w", "start"];
        server.run("pg_ctl", &start);
        Some(server)
    }

    /// Its address, for the user `admin`.
    pub fn url(&self) -> String {
        format!("postgres://admin@127.0.0.1:{}/postgres", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path of the program `psql`.
    pub fn psql(&self) -> PathBuf {
        self.programs.join("psql")
    }

    /// Runs `text` as `admin` and returns the output.
    pub fn sql(&self, text: &str) -> String {
        let url = self.url();
        self.run("psql", &[&url, "-qAtc", text]).trim().to_owned()
    }

    fn data(&self) -> String {
        let data = self.folder.path().join("data");
        data.to_str().unwrap().to_owned()
    }

    fn run(&self, program: &str, args: &[&str]) -> String {
        let (status, out, errors) = self.ran(program, args);
        assert!(status.success(), "{program}: {status}: {errors}");
        out
    }

    fn ran(&self, program: &str, args: &[&str]) -> (ExitStatus, String, String) {
        let mut command = Command::new(self.programs.join(program));
        command.args(args).current_dir("/");
        if is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        // A server that inherited a pipe would keep it open.
        let [out, errors] = ["out", "err"].map(|name| self.folder.path().join(name));
        command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&errors).unwrap());
        let status = command.status().unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        (status, text(&out), text(&errors))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // A server that did not start needs no end.
        self.ran("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"]);
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
