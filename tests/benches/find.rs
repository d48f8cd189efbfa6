//! `find` in 1,000 runs with 1 GB of tapes, against `rg -c` over the same files: from the start of the process to its first
//! results. The words were read before; a note has the time that it takes.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    capture::{self, BenchRng},
    harness::{BenchReport, BenchResult, FigureGoal, Threshold, pairs, time},
    measured_process::{ProbeOutput, argument, ingestdeck, is_installed, run},
};

const RUNS: u64 = 1_000;
const TAPE_BYTES: usize = 1 << 20;
const PAIRS: usize = 5;
/// In few entries of the oldest runs.
const RARE_WORD: &str = "zanzibarquarterly";

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let runs = record(folder.path())?;
    let (project, runs) = (argument(folder.path())?, argument(&runs)?);
    let find = |word: &str, more: &[&str]| -> BenchResult<f64> {
        let args = [
            "--project-dir",
            project,
            "find",
            word,
            "--no-sessions",
            "--limit",
            "20",
        ];
        let args = [&args[..], more].concat();
        Ok(run(ingestdeck(), &args, ProbeOutput::Null)?.seconds)
    };
    let seconds = find(RARE_WORD, &["--all"])?;
    let words = fs::metadata(folder.path().join(".ktx/ingestdeck/text.sqlite"))?.len();
    report.note(&format!(
        "{RUNS} runs are read in {}; the index has {} MiB",
        time(seconds),
        words >> 20
    ));
    // The second is in every entry.
    for (name, word) in [
        ("a rare word", RARE_WORD),
        ("a word of all entries", "mcp__ktx__wiki_write"),
    ] {
        let figure = format!("first results of find, {name} / rg -c");
        if !is_installed("rg") {
            report.note_missing_program("rg", &figure);
            continue;
        }
        let theirs = || {
            Ok(run(
                "rg",
                &["-c", "--no-ignore", "--hidden", word, runs],
                ProbeOutput::Null,
            )?
            .seconds)
        };
        let measured = pairs(PAIRS, || find(word, &[]), theirs)?;
        report.ratio(
            &figure,
            &measured,
            FigureGoal {
                required: Threshold::AtMost(0.1),
                goal: Threshold::AtMost(0.05),
            },
        );
    }
    Ok(())
}

/// Writes the tapes of the runs. Returns their directory.
fn record(project: &Path) -> BenchResult<PathBuf> {
    fs::write(project.join("ktx.yaml"), "connections: {}\n")?;
    let runs = project.join(".ktx/ingestdeck/runs");
    let mut random = BenchRng(7);
    let words = capture::words(&mut random);
    for number in 0..RUNS {
        // Ids are ordered by time.
        let id = format!("01a2{number:04x}-0000-7000-8000-000000000001");
        let run = runs.join(&id);
        fs::create_dir_all(&run)?;
        let mut tape = format!(
            "{{\"tape\":1,\"program\":\"bench\",\"run\":\"{id}\",\"started_at\":\"2026-11-25T16:59:09Z\",\"project\":\"bench\",\"agent\":\"claude\",\"scripted\":true}}\n"
        )
        .into_bytes();
        let mut seq = 0;
        while tape.len() < TAPE_BYTES {
            let rare = if number % 100 == 0 && seq == 0 {
                RARE_WORD
            } else {
                ""
            };
            write!(
                tape,
                "{{\"seq\":{seq},\"at\":{seq},\"unit\":\"docs-page\",\"try\":1,\"out\":{{\"type\":\"assistant\",\"message\":{{\"role\":\"assistant\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"t{seq}\",\"name\":\"mcp__ktx__wiki_write\",\"input\":{{\"content\":\"{rare} "
            )?;
            let size = random.size(1_500.0, 0.8).min(20_000);
            capture::prose(&mut random, &words, &mut tape, size);
            tape.extend_from_slice(b"\"}}]}}}\n");
            seq += 1;
        }
        fs::write(run.join("tape.jsonl"), tape)?;
    }
    Ok(runs)
}
