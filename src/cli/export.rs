//! `runs export`: a run for others to look at, its secrets masked.
//!
//! A tape stays a tape, which replays anywhere; the other formats are KTX's. What was masked is counted on stderr.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Write},
    path::Path,
};

use self::redact::Redactor;
use super::{
    args::{ExportArgs, ExportFormat, Global},
    exit::{Exit, Failure},
    output, report, runs, show,
    summary::counted,
};
use crate::{
    run::{
        Progress, Timeline,
        report::Gathering,
        trace::{Trace, TraceLevel},
    },
    tape::{Body, Entry, Header},
};

mod memory_flow;
mod redact;

/// Bytes folded at a time.
const SLICE: usize = 1 << 20;

/// Exports the run.
///
/// # Errors
/// When there is no such run, it cannot be read, or the export cannot be written.
pub fn export(global: &Global, args: &ExportArgs) -> Result<Exit, Failure> {
    let mut redactor = Redactor::default();
    match &args.out {
        Some(path) => {
            let failed = |error: io::Error| cannot_write(path, &error);
            let mut out = BufWriter::new(File::create(path).map_err(failed)?);
            write(global, args, &mut redactor, &mut out, &failed)?;
            out.flush().map_err(failed)?;
        }
        None => {
            let failed = |error: io::Error| show::stdout_failed(&error);
            let mut out = BufWriter::new(output::raw_stdout().lock());
            write(global, args, &mut redactor, &mut out, &failed)?;
            out.flush().map_err(failed)?;
        }
    }
    show::tell(&match redactor.masked {
        0 => "ingestdeck: no secrets were found in it; look it over before you share it all the same".to_owned(),
        masked => format!("ingestdeck: {} masked; look it over before you share it", counted(masked, "secret")),
    });
    Ok(Exit::Ok)
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("cannot write {}: {error}; name another file with --out", path.display()))
}

fn write(
    global: &Global,
    args: &ExportArgs,
    redactor: &mut Redactor,
    out: &mut impl Write,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    match args.format {
        ExportFormat::Tape => lines(global, &args.run, &mut |line| {
            let line = entry(line, redactor);
            out.write_all(&line).map_err(failed)
        }),
        ExportFormat::Trace => {
            let mut trace: Option<Trace> = None;
            lines(global, &args.run, &mut |line| {
                let mut traced = Vec::new();
                match (&mut trace, Header::parse(line), Entry::parse(line)) {
                    (None, Ok(header), _) => trace = Some(Trace::new(header, TraceLevel::Trace)),
                    (Some(trace), _, Ok(entry)) => trace.take(&entry, &mut traced),
                    _ => {}
                }
                let text = String::from_utf8_lossy(&traced);
                out.write_all(redactor.text(&text).as_bytes()).map_err(failed)
            })
        }
        ExportFormat::MemoryFlow => {
            let (source, live) = report::open(global, &args.run)?;
            let mut timeline = Timeline::forward(Box::new(source));
            let (mut gathering, mut steps) = (Gathering::default(), memory_flow::Steps::default());
            let mut take = |emitted: crate::run::Emitted<'_>| {
                gathering.take(&emitted);
                steps.take(&emitted);
            };
            while timeline.advance(SLICE, &mut take).map_err(Failure::internal)? == Progress::More {}
            let report = gathering.report(timeline.source().origin(), timeline.story(), live);
            for replay in memory_flow::replays(&report, &steps) {
                writeln!(out, "{}", redactor.text(&replay.to_string())).map_err(failed)?;
            }
            Ok(())
        }
    }
}

/// Hands over the lines of the run's tape, without their newlines.
fn lines(global: &Global, run: &str, take: &mut dyn FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
    let tape = runs::tape_of(global, run)?;
    let failed = |error: io::Error| Failure::internal(format!("cannot read {}: {error}", tape.display()));
    let mut reader = BufReader::with_capacity(SLICE, File::open(&tape).map_err(failed)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        take(line.strip_suffix(b"\n").unwrap_or(&line))?;
    }
}

/// A line of a tape without its secrets, with its newline. Bytes that are no text are text afterwards: they are also
/// kept in a form in which nobody would find a secret.
fn entry(line: &[u8], redactor: &mut Redactor) -> Vec<u8> {
    if let Ok(Entry { body: Body::Raw(bytes), seq, at, lane }) = Entry::parse(line) {
        let text = String::from_utf8_lossy(&bytes);
        let text = redactor.text(&text).into_owned();
        let mut out = Vec::new();
        Entry { seq, at, lane, body: Body::Raw(Cow::Owned(text.into_bytes())) }.write(&mut out);
        return out;
    }
    let text = String::from_utf8_lossy(line);
    let mut out = redactor.text(&text).into_owned().into_bytes();
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests;
