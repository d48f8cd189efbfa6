//! Planning ten thousand raw files: read, hashed, compared with the baseline and cut into units, against `sha256sum`
//! over the same files; again without changes; the growth with the number of units; and the memory for a thousand units.

use std::{fs, path::Path};

use ingestdeck_core::{
    run::entry_source::{NewEntry, Recorder as _},
    tape::{
        EntryBody, FORMAT_VERSION, Header, Note, UnitKey,
        note::{
            AttemptEnded, AttemptOutcome as Ended, RunEnded, RunPlanned, StopReason, Verdict,
            VerdictCause,
        },
    },
};
use ingestdeck_ingest::{Project, UnitSelection, plan};
use ingestdeck_records::store::RunStore;

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, pairs},
    measured_process::{ProbeOutput, argument, ingestdeck, is_installed, run},
};

const PAIRS: usize = 9;
const FILES: usize = 10_000;
const UNITS: usize = 1_000;
/// Units of the manifests that are compared.
const LISTED_UNITS: [usize; 2] = [40_000, 10_000];
/// Average bytes per file, as is common in documentation.
const BYTES: usize = 6_000;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (large, small) = (folder.path().join("large"), folder.path().join("small"));
    let paths = project(&large, FILES)?;
    project(&small, UNITS)?;
    let planned = |project: &Path| {
        run(
            ingestdeck(),
            &["plan", "--project-dir", argument(project)?],
            ProbeOutput::Null,
        )
    };

    let name = "10,000 files planned for the first time / sha256sum";
    if is_installed("sha256sum") {
        let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
        let theirs = || Ok(run("sha256sum", &arguments, ProbeOutput::Null)?.seconds);
        let measured = pairs(PAIRS, || Ok(planned(&large)?.seconds), theirs)?;
        let bar = FigureGoal {
            required: Threshold::AtLeast(0.6),
            goal: Threshold::AtLeast(1.0),
        };
        report.figure(name, &measured.ratio.inverse(), bar);
        report.note(&format!(
            "a speed; ours {:.3} s, theirs {:.3} s",
            measured.ours.median(),
            measured.theirs.median()
        ));
    } else {
        report.note_missing_program("sha256sum", name);
    }

    let unrecorded = folder.path().join("unrecorded");
    project(&unrecorded, FILES)?;
    succeed(&large)?;
    let measured = pairs(
        PAIRS,
        || Ok(planned(&large)?.seconds),
        || Ok(planned(&unrecorded)?.seconds),
    )?;
    let bar = FigureGoal {
        required: Threshold::AtMost(1.5),
        goal: Threshold::AtMost(1.0),
    };
    report.ratio(
        "10,000 files planned again without changes / the first time",
        &measured,
        bar,
    );

    let [many, few] = LISTED_UNITS.map(|units| folder.path().join(format!("listed-{units}")));
    for (root, units) in [&many, &few].into_iter().zip(LISTED_UNITS) {
        manifest_project(root, units)?;
    }
    let measured = pairs(
        PAIRS,
        || Ok(planned(&many)?.seconds),
        || Ok(planned(&few)?.seconds),
    )?;
    let bar = FigureGoal {
        required: Threshold::AtMost(4.5),
        goal: Threshold::AtMost(4.0),
    };
    report.ratio(
        "40,000 units of a manifest planned / 10,000",
        &measured,
        bar,
    );

    let peaks = (0..3)
        .map(|_| Ok(planned(&small)?.peak_kib / 1024.0))
        .collect::<BenchResult<Vec<f64>>>()?;
    let bar = FigureGoal {
        required: Threshold::AtMost(64.0),
        goal: Threshold::AtMost(32.0),
    };
    report.figure(
        "peak memory, 1,000 units planned, MiB",
        &Sample::new(peaks),
        bar,
    );
    Ok(())
}

/// Creates a project of `files` documents, a hundred per folder. Returns their paths.
fn project(root: &Path, files: usize) -> BenchResult<Vec<String>> {
    fs::create_dir_all(root)?;
    fs::write(
        root.join("ktx.yaml"),
        "connections:\n  notes:\n    driver: docs\n    source_dir: notes\n",
    )?;
    let mut paths = Vec::with_capacity(files);
    for n in 0..files {
        let folder = root.join(format!("notes/part{:03}", n / 100));
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("page{n:05}.md"));
        let line = format!(
            "Page {n} describes subject number {n} in sentences that are repeated many times.\n"
        );
        fs::write(&path, line.repeat(1 + (BYTES / line.len()) * (n % 5) / 2))?;
        paths.push(argument(&path)?.to_owned());
    }
    Ok(paths)
}

/// Creates a project with a manifest of `units` units, one a line.
fn manifest_project(root: &Path, units: usize) -> BenchResult<()> {
    fs::create_dir_all(root.join("listed"))?;
    fs::write(
        root.join("ktx.yaml"),
        "connections:\n  listed: {driver: manifest, path: listed/units.jsonl}\n",
    )?;
    fs::write(root.join("listed/a.sql"), "select 1\n")?;
    let unit = |n: usize| format!("{{\"unitKey\":\"unit-{n:06}\",\"rawFiles\":[\"a.sql\"]}}\n");
    fs::write(
        root.join("listed/units.jsonl"),
        (0..units).map(unit).collect::<String>(),
    )?;
    Ok(())
}

/// Records a run in which every unit succeeded.
fn succeed(root: &Path) -> BenchResult<()> {
    let planned = plan(&Project::open(root)?, &UnitSelection::default())?;
    let run = RunStore::new(root).create(None, |run| Header {
        tape: FORMAT_VERSION,
        program: "bench".into(),
        run,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        project: None,
        scripted: false,
        agent: None,
    })?;
    let (tape, _lock) = run.into_parts();
    let note = |attempt: Option<(&UnitKey, u32)>, note: &Note| {
        let json = note.to_json();
        tape.record(&[NewEntry {
            attempt,
            body: EntryBody::Note(&json),
        }])
    };
    let units = planned
        .units
        .iter()
        .map(|unit| unit.planned.clone())
        .collect();
    note(
        None,
        &Note::RunPlanned(Box::new(RunPlanned {
            units,
            ..RunPlanned::default()
        })),
    )?;
    for source in &planned.sources {
        note(None, &Note::SourceRead(Box::new(source.to_note())))?;
    }
    for unit in &planned.units {
        let verdict = Verdict {
            outcome: Ended::Succeeded,
            stop: StopReason::Natural,
            cause: VerdictCause::Completed,
            reason: "done".into(),
            remedy: None,
        };
        let ended = AttemptEnded {
            verdict,
            tool_failures: 0,
            failed_call: None,
            exit_code: Some(0),
            signal: None,
            stderr_tail: Vec::new(),
            wrote: Vec::new(),
            work: Default::default(),
            extra: serde_json::Map::default(),
        };
        note(
            Some((&unit.planned.unit, 1)),
            &Note::AttemptEnded(Box::new(ended)),
        )?;
    }
    note(None, &Note::RunEnded(RunEnded::default()))?;
    Ok(())
}
