//! A run of many units with every kind of fault: each unit ends with a verdict and a reason, and afterwards the program
//! holds no more descriptors, threads, files, children or memory than it did for a single unit.
//! `INGESTDECK_SOAK_SECONDS` repeats a run of 500 units for that long.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::commands::test_dir::{DEADLINE, TestDir};

/// The unit that runs last and hangs until it is killed. Meanwhile, the program is measured.
const GATE: &str = "docs-zz-gate";
/// Kinds of units, in plan order. Each name is also the first word of the key.
const KINDS: [&str; 6] = [
    "a-good", "b-crash", "e-hang", "f-turns", "g-denied", "h-broken",
];
/// Number of units of a short run.
const FEW: usize = 48;
/// Number of units of a long run.
const MANY: usize = 500;
/// Memory that the program may use beyond what it uses for one unit, in KiB: for each unit, and in total.
const KIB_EACH: u64 = 96;
const KIB_MORE: u64 = 48 << 10;

const SCRIPT: &str = r##"
[[part]]
unit = "docs-a-good-*"
steps = [{ call = { tool = "wiki_list_tags", with = {} } }, { say = "done" }]

[[part]]
unit = "docs-b-crash-*"
steps = [{ stderr = "segmentation fault" }, { exit = 139 }]

[[part]]
unit = "docs-e-hang-*"
steps = [{ say = "thinking about it" }, "hang"]

[[part]]
unit = "docs-f-turns-*"
steps = [{ say = "not done" }, { result = { subtype = "error_max_turns", terminal_reason = "max_turns" } }]

[[part]]
unit = "docs-g-denied-*"
steps = [{ deny = { tool = "Bash", with = { command = "ls" } } }, { say = "done" }]

[[part]]
unit = "docs-h-broken-*"
steps = [{ line = "not JSON" }, { call = { tool = "wiki_write", with = { key = 7 } } }, { say = "done" }]

[[part]]
unit = "docs-zz-gate"
steps = [{ say = "waiting" }, "hang"]
"##;

/// Played by every 23rd process, whatever its unit.
const BUSY: &str = r#"
[[part]]
steps = [{ api_error = { error = "overloaded", status = 529, text = "API Error: 529 Overloaded" } }]
"#;

/// Played by every 19th process.
const LIMIT: &str = r#"
[[part]]
steps = [
  { rate_limit = { status = "rejected", resets_in_s = 1 } },
  { api_error = { status = 429, error = "rate_limit", text = "You've hit your session limit", api_error = "usage_limit_reached" } },
]
"#;

/// An agent that plays [`SCRIPT`], except in the processes that meet a faulty service.
fn agent(place: &TestDir) -> String {
    for (name, text) in [
        ("count", "0"),
        ("script.toml", SCRIPT),
        ("busy.toml", BUSY),
        ("limit.toml", LIMIT),
    ] {
        place.write(&format!("agent/{name}"), text);
    }
    let body = r#"n=$(flock AGENT/count sh -c 'n=$(($(cat "$0") + 1)); echo $n > "$0"; echo $n' AGENT/count)
script=script
[ $((n % 23)) -eq 5 ] && script=busy
[ $((n % 19)) -eq 7 ] && script=limit
exec EXE scripted-agent --script AGENT/$script.toml -- "$@""#;
    let body = body.replace("AGENT", place.path("agent").to_str().unwrap());
    place
        .claude(&body.replace("EXE", crate::support::program()))
        .display()
        .to_string()
}

/// Delays for limits, which would otherwise take most of the time.
const PACE: &str = "rateLimit: {retry: {baseDelayMs: 50, maxDelayMs: 200}}";

/// Resources of the program while only [`GATE`] runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceUsage {
    descriptors: usize,
    threads: usize,
    children: usize,
    temporary: usize,
}

/// A run that is killed when this value is dropped.
struct SoakRun(Child);

impl Drop for SoakRun {
    fn drop(&mut self) {
        // The run has ended, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl SoakRun {
    fn start(mut command: Command) -> Self {
        Self(
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn entries(&self, of: &str) -> Vec<String> {
        let entries = fs::read_dir(format!("/proc/{}/{of}", self.0.id())).unwrap();
        entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect()
    }

    fn resource_usage(&self, place: &TestDir) -> ResourceUsage {
        let children = |task: &String| {
            let path = format!("/proc/{}/task/{task}/children", self.0.id());
            fs::read_to_string(path)
                .unwrap_or_default()
                .split_whitespace()
                .count()
        };
        let threads = self.entries("task");
        ResourceUsage {
            descriptors: self.entries("fd").len(),
            children: threads.iter().map(children).sum(),
            threads: threads.len(),
            temporary: fs::read_dir(place.temporary()).unwrap().count(),
        }
    }

    /// Peak of its memory, in KiB.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Waits until the program holds `wanted`, because threads and descriptors of a pool are released some time after
    /// their work. The number of idle threads that the pool keeps depends on the machine, so it may be lower.
    fn wait_for_usage(&self, place: &TestDir, wanted: &ResourceUsage) -> ResourceUsage {
        let is_settled = |held: &ResourceUsage| {
            let threads = held.threads.min(wanted.threads);
            *held
                == ResourceUsage {
                    threads,
                    ..wanted.clone()
                }
        };
        let deadline = Instant::now() + DEADLINE;
        loop {
            let held = self.resource_usage(place);
            if is_settled(&held) {
                return held;
            }
            assert!(Instant::now() < deadline, "holds {held:?}, not {wanted:?}");
            crate::support::pause_before_check();
        }
    }

    /// Waits for 200 equal checks in a row, because resources that started the gate are released some time later.
    fn wait_for_stable_usage(&self, place: &TestDir) -> ResourceUsage {
        let deadline = Instant::now() + DEADLINE;
        let (mut held, mut checks) = (self.resource_usage(place), 0);
        while checks < 200 {
            assert!(
                Instant::now() < deadline,
                "the usage does not settle: {held:?}"
            );
            crate::support::pause_before_check();
            let now = self.resource_usage(place);
            checks = if now == held { checks + 1 } else { 0 };
            held = now;
        }
        held
    }
}

/// Kills the agent that plays `session`, as a person or the system would.
fn kill_agent(session: &str) {
    let flag = format!("--session-id={session}");
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for pid in pids.filter_map(|pid| pid.parse::<i32>().ok()) {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if words
            .split(|byte| *byte == 0)
            .any(|word| word == flag.as_bytes())
        {
            // The agent may already have exited.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Runs the project of `place` and measures when only the gate is left. The measurement must equal `wanted`.
fn soak(
    place: &TestDir,
    more: &[&str],
    units: usize,
    wanted: Option<&ResourceUsage>,
) -> (ResourceUsage, u64) {
    let claude = agent(place);
    // Makes the test fail instead of hanging if a unit does not end.
    let words = [
        "run",
        "--full",
        "--no-reconcile",
        "--unit-timeout",
        "2m",
        "--ui",
        "json",
        "--claude-bin",
        &claude,
    ];
    let mut run = SoakRun::start(place.command(&[&words, more].concat()));
    let lines = BufReader::new(run.0.stdout.take().unwrap()).lines();
    let (mut over, mut gate, mut measured) = (BTreeSet::new(), None, None);
    for line in lines {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let (unit, event) = (
            line["unit"].as_str().unwrap_or_default().to_owned(),
            &line["event"],
        );
        match event["type"].as_str() {
            Some("started") => {
                let session = event["resume"]["value"].as_str().unwrap();
                if unit == GATE {
                    gate = Some(session.to_owned());
                } else if unit.starts_with("docs-e-hang-") {
                    kill_agent(session);
                }
            }
            // A unit that will be retried is `failed` first and `waiting` immediately afterwards.
            Some("unit")
                if ["succeeded", "budget", "failed"]
                    .contains(&event["state"].as_str().unwrap()) =>
            {
                over.insert(unit);
            }
            Some("unit") => {
                over.remove(&unit);
            }
            _ => {}
        }
        if over.len() + 1 == units
            && !over.contains(GATE)
            && let Some(session) = gate.take()
        {
            let usage = match wanted {
                Some(wanted) => run.wait_for_usage(place, wanted),
                None => run.wait_for_stable_usage(place),
            };
            measured = Some((usage, run.peak()));
            kill_agent(&session);
        }
    }
    assert_eq!(
        run.0.wait().unwrap().code(),
        Some(100),
        "units failed, and nothing else happened"
    );
    place.wait_until_no_process_left();
    assert_eq!(
        fs::read_dir(place.temporary()).unwrap().count(),
        0,
        "temporary files are left"
    );
    measured.expect("the gate was never the only running unit")
}

/// Outcome, cause and reason by unit.
type VerdictsByUnit = BTreeMap<String, (String, String, String)>;

/// The last verdict of every unit on the newest tape, and the causes of verdicts that were followed by another attempt.
fn verdicts(place: &TestDir) -> (VerdictsByUnit, BTreeSet<String>) {
    let runs = fs::read_dir(place.path(".ktx/ingestdeck/runs")).unwrap();
    let newest = runs
        .map(|run| run.unwrap().path().join("tape.jsonl"))
        .max()
        .unwrap();
    let tape = fs::read_to_string(newest).unwrap();
    let (mut verdicts, mut retried) = (BTreeMap::new(), BTreeSet::new());
    for line in tape.lines().skip(1) {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["note"]["kind"] != "attempt_ended" {
            continue;
        }
        let word = |key: &str| {
            let value = &entry["note"]["verdict"][key];
            // A cause with more data is an object with one key.
            let name = value
                .as_object()
                .and_then(|object| object.keys().next().map(String::as_str));
            value.as_str().or(name).unwrap_or_default().to_owned()
        };
        let verdict = (word("outcome"), word("cause"), word("reason"));
        let unit = entry["unit"].as_str().unwrap().to_owned();
        retried.extend(verdicts.insert(unit, verdict).map(|(_, cause, _)| cause));
    }
    (verdicts, retried)
}

#[test]
#[cfg(target_os = "linux")]
fn many_units_with_faults_leave_nothing_behind() {
    let seconds = std::env::var("INGESTDECK_SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let units = if seconds.is_some() { MANY } else { FEW };
    let place = TestDir::new();
    let names: Vec<String> = (0..units - 1)
        .map(|unit| format!("{}-{unit:03}", KINDS[unit % KINDS.len()]))
        .collect();
    place.notes(
        &names
            .iter()
            .map(String::as_str)
            .chain(["zz-gate"])
            .collect::<Vec<_>>(),
    );
    let yaml = fs::read_to_string(place.path("ktx.yaml")).unwrap();
    place.write(
        "ktx.yaml",
        format!("{yaml}ingest: {{workUnits: {{maxConcurrency: 8}}, {PACE}}}\n"),
    );

    let (wanted, alone) = soak(&place, &["--only", GATE], 1, None);
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        let (_, peak) = soak(&place, &[], units, Some(&wanted));
        let most = alone + KIB_MORE + KIB_EACH * units as u64;
        assert!(
            peak <= most,
            "{peak} KiB for {units} units, {alone} KiB for one"
        );
        let (verdicts, retried) = verdicts(&place);
        assert_eq!(verdicts.len(), units);
        assert!(
            ["transient", "usage_limit"]
                .iter()
                .all(|cause| retried.contains(*cause)),
            "{retried:?}"
        );
        for (unit, (outcome, cause, reason)) in &verdicts {
            let expected = match &unit[5..10] {
                "a-goo" => ("succeeded", "completed"),
                "b-cra" | "e-han" | "zz-ga" => ("failed", "crashed"),
                "f-tur" => ("succeeded", "budget"),
                _ => ("failed", "tool_failures"),
            };
            assert_eq!(
                (outcome.as_str(), cause.as_str()),
                expected,
                "{unit}: {reason}"
            );
            assert!(!reason.is_empty(), "{unit}");
        }
        if until.is_none_or(|until| Instant::now() >= until) {
            return;
        }
    }
}
