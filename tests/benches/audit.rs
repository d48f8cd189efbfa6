//! Durable audit rows: the tape (one write per row, synced every 100 ms) against one SQLite commit per row.

use crate::{
    run::entry_source::{NewEntry, Recorder as _},
    store::TapeWriter,
    tape::{EntryBody, FORMAT_VERSION, Header, RunId, UnitKey},
};

use crate::bars::harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold, time};

const PAIRS: usize = 5;
const RECORDED: u32 = 50_000;
const COMMITTED: u32 = 500;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let row = format!("{{\"tool\":\"read_raw_file\",\"input\":\"{}\"}}", "x".repeat(300));
    let (mut ratios, mut a_row) = (Vec::new(), Vec::new());
    for round in 0..PAIRS {
        let header = Header {
            tape: FORMAT_VERSION,
            program: "bench".into(),
            run: RunId(uuid::Uuid::from_u128(round as u128)),
            started_at: "2026-01-01T00:00:00Z".parse()?,
            project: None,
            scripted: true,
        };
        let start = std::time::Instant::now();
        let tape = TapeWriter::create(&folder.path().join(format!("{round}.jsonl")), &header)?;
        let unit = UnitKey::from("unit");
        for _ in 0..RECORDED {
            tape.record(&[NewEntry { attempt: Some((&unit, 1)), body: EntryBody::Stdout(row.as_bytes()) }])?;
        }
        tape.close()?;
        let ours = f64::from(RECORDED) / start.elapsed().as_secs_f64();

        let database = rusqlite::Connection::open(folder.path().join(format!("{round}.sqlite")))?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", "full")?;
        database.execute_batch("CREATE TABLE rows (body TEXT)")?;
        let start = std::time::Instant::now();
        for _ in 0..COMMITTED {
            database.prepare_cached("INSERT INTO rows VALUES (?1)")?.execute([&row])?;
        }
        let theirs = f64::from(COMMITTED) / start.elapsed().as_secs_f64();
        ratios.push(ours / theirs);
        a_row.push(1.0 / ours);
    }
    let bar = FigureGoal { required: Threshold::AtLeast(15.0), goal: Threshold::AtLeast(30.0) };
    report.figure("durable rows a second / SQLite, a commit per row", &Sample::new(ratios), bar);
    report.note(&format!("{} a row; at most 100 ms are at risk", time(Sample::new(a_row).median())));
    Ok(())
}
