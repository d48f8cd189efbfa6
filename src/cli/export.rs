//! `runs export`: a run for sharing, with secrets of known kinds masked.
//!
//! An exported tape can be replayed anywhere; the other formats are KTX's. The number of masked values is printed to
//! stderr. [`ingestdeck_report::redact`] finds the secrets.

#![expect(
    clippy::disallowed_methods,
    reason = "each line of its JSON is escaped"
)]

use std::{
    io::{self, BufReader, BufWriter, Read as _, Seek as _, Write},
    path::Path,
};

use super::{
    args::{ExportArgs, ExportFormat, GlobalArgs},
    exit::{CliError, Exit},
    otel, output, playback_output, project, replay, runs,
};
use ingestdeck_core::{
    run::trace::{TraceLevel, TraceWriter},
    tape::{Header, TapeEntry},
    text::pluralize,
};
use ingestdeck_report::{export, redact::Redactor};

pub(super) mod fixture;
pub(super) mod out_file;

/// Bytes that are read at a time.
const SLICE: usize = 1 << 20;

/// Exports the run.
///
/// # Errors
/// If the run does not exist or cannot be read, or if the export cannot be written.
pub(crate) fn export(global: &GlobalArgs, args: &ExportArgs) -> Result<Exit, CliError> {
    if args.format != ExportFormat::Otlp {
        if args.endpoint.is_some() {
            return Err(otel::needs_otlp("--endpoint"));
        }
        if args.content {
            return Err(otel::needs_otlp("--content"));
        }
    }
    let project = project::resolve_directory(global).ok();
    let mut redactor = Redactor::for_process(project.as_deref());
    if let Some(directory) = &args.fixture {
        let written = fixture::export(global, args, directory, &mut redactor)?;
        playback_output::print_stderr(&format!("ingestdeck: {written}"));
        print_masked(&redactor);
        return Ok(Exit::Ok);
    }
    match out_file::target_path(args.out.as_deref()) {
        None if args.endpoint.is_some() => {
            let endpoint = args.endpoint.as_deref().unwrap_or_default();
            let count = otel::send(global, args, endpoint, &mut redactor)?;
            playback_output::print_stderr(&format!(
                "ingestdeck: {} sent",
                pluralize(count, "span")
            ));
        }
        Some(path) => {
            // Fail before the output file is changed.
            runs::resolve_tape(global, &args.run)?;
            let failed = |error: io::Error| cannot_write(path, &error);
            let mut out =
                BufWriter::new(out_file::create(path, project.as_deref()).map_err(failed)?);
            write(global, args, &mut redactor, &mut out, &failed)?;
            out.flush().map_err(failed)?;
        }
        None => {
            let failed = |error: io::Error| playback_output::stdout_failed(&error);
            let mut out = BufWriter::new(output::raw_stdout().lock());
            write(global, args, &mut redactor, &mut out, &failed)?;
            out.flush().map_err(failed)?;
        }
    }
    print_masked(&redactor);
    Ok(Exit::Ok)
}

/// Prints how much is masked.
fn print_masked(redactor: &Redactor) {
    let (values, were) = (
        pluralize(redactor.masked, "value"),
        if redactor.masked == 1 { "was" } else { "were" },
    );
    playback_output::print_stderr(&format!(
        "ingestdeck: {values} of known kinds {were} masked; other secrets may remain, so review it before you share it"
    ));
}

/// The error for a file of `--out` that cannot be written.
pub(super) fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {error}", path.display()))
        .with_help("name another file with --out")
}

fn write(
    global: &GlobalArgs,
    args: &ExportArgs,
    redactor: &mut Redactor,
    out: &mut impl Write,
    failed: &dyn Fn(io::Error) -> CliError,
) -> Result<(), CliError> {
    match args.format {
        ExportFormat::Tape => {
            // Not byte for byte: a terminal that shows the file later would interpret characters of an agent.
            for_each_redacted_line(global, &args.run, redactor, &mut |line| {
                out.write_all(&output::escape_hidden(line))
                    .and_then(|()| out.write_all(b"\n"))
                    .map_err(failed)
            })
        }
        ExportFormat::Trace => {
            let mut trace: Option<TraceWriter> = None;
            // Secrets are masked before a trace shortens its texts.
            for_each_redacted_line(global, &args.run, redactor, &mut |line| {
                let mut traced = Vec::new();
                match (&mut trace, Header::parse(line), TapeEntry::parse(line)) {
                    (None, Ok(header), _) => {
                        trace = Some(TraceWriter::new(header, TraceLevel::Trace))
                    }
                    (Some(trace), _, Ok(entry)) => trace.write_entry(&entry, &mut traced),
                    _ => {}
                }
                out.write_all(&output::escape_json(&traced)).map_err(failed)
            })
        }
        ExportFormat::Otlp => {
            for request in otel::requests(global, args, redactor)? {
                let line = format!("{request}\n");
                out.write_all(&output::escape_json(line.as_bytes()))
                    .map_err(failed)?;
            }
            Ok(())
        }
        ExportFormat::MemoryFlow => {
            let (source, live) = replay::open_record(global, &args.run)?;
            for replay in export::memory_flows(source, live)? {
                let line = format!("{}\n", redactor.text(&replay.to_string()));
                out.write_all(&output::escape_json(line.as_bytes()))
                    .map_err(failed)?;
            }
            Ok(())
        }
    }
}

/// Passes each line of the run's tape to the callback, without secrets and newline.
fn for_each_redacted_line(
    global: &GlobalArgs,
    run: &str,
    redactor: &mut Redactor,
    take: &mut dyn FnMut(&[u8]) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let (found, tape) = runs::resolve_tape(global, run)?;
    let failed = |error: io::Error| {
        CliError::failed(format!("cannot read {}: {error}", found.tape.display()))
    };
    // A growing tape is read up to its current end: both passes must see the same lines.
    let length = tape.metadata().map_err(failed)?.len();
    let open = || {
        let mut tape = &tape;
        tape.rewind().map_err(failed)?;
        Ok(BufReader::with_capacity(SLICE, tape.take(length)))
    };
    export::mask_lines(redactor, open, failed, take)
}
