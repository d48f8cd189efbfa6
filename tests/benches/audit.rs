//! Durable audit rows: the tape (one write per row, synced every 100 ms) against one SQLite commit per row.

use ingestdeck_core::{
    run::entry_source::{NewEntry, Recorder as _},
    tape::{EntryBody, FORMAT_VERSION, Header, UnitKey},
};
use ingestdeck_records::store::RunStore;

use crate::harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, time};

const PAIRS: usize = 5;
const RECORDED: u32 = 50_000;
const COMMITTED: u32 = 500;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let row = format!(
        "{{\"tool\":\"read_raw_file\",\"input\":\"{}\"}}",
        "x".repeat(300)
    );
    let (mut ratios, mut a_row) = (Vec::new(), Vec::new());
    for round in 0..PAIRS {
        let run = RunStore::new(folder.path()).create(None, |run| Header {
            tape: FORMAT_VERSION,
            program: "bench".into(),
            run,
            started_at: jiff::Timestamp::UNIX_EPOCH,
            project: None,
            scripted: true,
            agent: None,
        })?;
        let (tape, _lock) = run.into_parts();
        let start = std::time::Instant::now();
        let unit = UnitKey::from("unit");
        for _ in 0..RECORDED {
            tape.record(&[NewEntry {
                attempt: Some((&unit, 1)),
                body: EntryBody::Stdout(row.as_bytes()),
            }])?;
        }
        // Syncs the rest.
        drop(tape);
        let ours = f64::from(RECORDED) / start.elapsed().as_secs_f64();

        let database = rusqlite::Connection::open(folder.path().join(format!("{round}.sqlite")))?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", "full")?;
        database.execute_batch("CREATE TABLE rows (body TEXT)")?;
        let start = std::time::Instant::now();
        for _ in 0..COMMITTED {
            database
                .prepare_cached("INSERT INTO rows VALUES (?1)")?
                .execute([&row])?;
        }
        let theirs = f64::from(COMMITTED) / start.elapsed().as_secs_f64();
        ratios.push(ours / theirs);
        a_row.push(1.0 / ours);
    }
    let bar = FigureGoal {
        required: Threshold::AtLeast(15.0),
        goal: Threshold::AtLeast(30.0),
    };
    report.figure(
        "durable rows a second / SQLite, a commit per row",
        &Sample::new(ratios),
        bar,
    );
    report.note(&format!(
        "{} a row; at most 100 ms are at risk",
        time(Sample::new(a_row).median())
    ));
    Ok(())
}
