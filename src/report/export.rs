//! Exports of recorded runs without secrets: lines of tapes, and KTX's replays of its memory flow.

use std::io::{self, BufRead as _};

use serde_json::Value;

use super::{SLICE, redact::Redactor};
use ingestdeck_core::{
    run::{EntrySource, EntrySourceError, PollStatus, SinkEvent, Timeline, report::ReportBuilder},
    tape::shared_value::EarlierValues,
};

mod memory_flow;

/// Longest line of an exported tape, in bytes: the longest line of an agent with every byte escaped.
const LONGEST_LINE: u64 = 6 * (64 << 20) + (1 << 20);

/// KTX's replays of the memory flow, one per connection; the run is active if `live`.
///
/// # Errors
/// If the record cannot be read.
pub fn memory_flows(
    source: impl EntrySource + 'static,
    live: bool,
) -> Result<Vec<Value>, EntrySourceError> {
    let mut timeline = Timeline::new_forward_only(Box::new(source));
    let (mut gathering, mut steps) = (
        ReportBuilder::default(),
        memory_flow::ReplaySteps::default(),
    );
    let mut take = |emitted: SinkEvent<'_>| {
        gathering.observe(&emitted);
        steps.observe(&emitted);
    };
    while timeline.advance(SLICE, &mut take)? == PollStatus::More {}
    Ok(memory_flow::replays(
        &gathering.finish(timeline.source().info(), timeline.view(), live),
        &steps,
    ))
}

/// Masks the lines of a tape in two passes; `open` opens the tape.
///
/// # Errors
/// If the tape cannot be read, or if `take` fails.
pub fn mask_lines<R: io::BufRead, E>(
    redactor: &mut Redactor,
    open: impl Fn() -> Result<R, E>,
    failed: impl Fn(io::Error) -> E,
    take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut values = EarlierValues::default();
    each_line(open()?, &failed, |number, line| {
        redactor.collect_deltas(number, values.complete(line).as_deref().unwrap_or(line));
        Ok(())
    })?;
    redactor.finish_collection();
    // A masked value has another digest, so each line contains its own.
    let mut values = EarlierValues::default();
    each_line(open()?, &failed, |number, line| {
        take(&redactor.tape_line(number, values.complete(line).as_deref().unwrap_or(line)))
    })
}

fn each_line<E>(
    mut reader: impl io::BufRead,
    failed: &dyn Fn(io::Error) -> E,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        if io::Read::take(&mut reader, LONGEST_LINE + 1)
            .read_until(b'\n', &mut line)
            .map_err(failed)?
            == 0
        {
            break;
        }
        if line.len() as u64 > LONGEST_LINE {
            let why = format!(
                "line {} is longer than {} MiB, which no run records",
                number + 1,
                LONGEST_LINE >> 20
            );
            return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        take(number, line.strip_suffix(b"\n").unwrap_or(&line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
