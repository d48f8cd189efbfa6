//! Units on workers over a real sshd: lost sessions, killed engines, and the installation of the program.

use std::{fs, process::Command, time::Instant};

use super::{
    nats_workers::{assert_collected, project_with_slow_units, resume_after_a_kill},
    test_dir::{DEADLINE, TestDir},
    workers::{UNITS, assert_complete, claude_of, notes, run_command},
};
use crate::support::{pause_before_check, program, sshd::SshServer};

/// An sshd for a project, and the URL of a worker there.
fn server(place: &TestDir, claude: &str) -> (SshServer, String) {
    let server = SshServer::start(&place.path("../ssh-keys"));
    let options = server.options().join("' '");
    place.script("ssh", &format!("exec /usr/bin/ssh '{options}' \"$@\""));
    let home = place.path("../home-of-worker");
    fs::create_dir_all(&home).unwrap();
    let claude = claude_of(place, claude, "script.toml");
    let body = format!(
        "export HOME='{}' TMPDIR='{}'\nexec '{}' --claude-bin '{}' \"$@\"",
        home.display(),
        place.temporary().display(),
        program(),
        claude.display()
    );
    let program = place.script("program-of-worker", &body);
    let url = format!(
        "ssh://{}:{}?slots=2&program={}",
        server.address(),
        server.port,
        program.display()
    );
    (server, url)
}

fn run(place: &TestDir, url: &str, more: &[&str]) -> Command {
    run_command(place, &[&["--worker", url][..], more].concat())
}

/// The server is away while two units run: their agents work on, and the next session brings their results.
#[test]
#[ignore = "needs sshd and INGESTDECK_TEST_NATS"]
fn workers_survive_their_sessions() {
    let place = project_with_slow_units(6_000);
    let (mut server, url) = server(&place, "ann");
    let mut running = place.start(run(&place, &url, &[]));
    for unit in ["docs-juice", "docs-payments"] {
        running.wait_for(
            "stdout",
            &format!(r#""unit":"{unit}","try":1,"event":{{"type":"started""#),
        );
    }
    server.end();
    let deadline = Instant::now() + DEADLINE;
    while place
        .processes(0)
        .iter()
        .any(|words| words.contains("/usr/bin/ssh"))
    {
        assert!(Instant::now() < deadline, "the session does not end");
        pause_before_check();
    }
    server.begin();
    assert_complete(&place, &running.end());
    assert_eq!(notes(&place, "attempt_started").len(), UNITS.len());
    assert_eq!(notes(&place, "worker_joined").len(), 1);
    drop(server);
    place.wait_until_no_process_left();
}

/// The engine is killed with its NATS server: the run that resumes starts it again, and takes over what runs.
#[test]
#[ignore = "needs sshd and INGESTDECK_TEST_NATS"]
fn workers_survive_their_engine() {
    let place = project_with_slow_units(8_000);
    let (server, url) = server(&place, "ann");
    let run = |more: &[&str]| run(&place, &url, more);
    let (tapes, resumed) = resume_after_a_kill(&place, run, || true);
    assert_collected(&place, &tapes, &resumed);
    drop(server);
    place.wait_until_no_process_left();
    let pools = place.path("../home/.local/state/ingestdeck/pools");
    let left: Vec<_> = fs::read_dir(pools)
        .unwrap()
        .flat_map(|pool| fs::read_dir(pool.unwrap().path()).unwrap())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
