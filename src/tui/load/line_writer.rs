//! Finds the call that wrote a line of an artifact, by the lines that the record names or by their text.

use super::artifact::{WritingRow, writing_calls};
use crate::effect::WrittenLine;
use ingestdeck_core::{
    diagnostic::Problem,
    run::{
        Timeline,
        artifacts::{ArtifactWriter, run_artifacts},
        line_owners::line_owners,
        state::RunState,
    },
    tape::{UnitKey, VERBATIM_KEY, note::attempt_output::RecordedWrite},
    text,
};

/// Columns of the name of a unit.
const MAX_NAME_WIDTH: usize = 60;

/// How sure it is that a call wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Certainty {
    Certain,
    /// Its text has the line, and so has that of another call.
    Possible,
    /// No call is known to have written it.
    LastCall,
}

/// The call that wrote a line.
pub(crate) struct LineWriterCall {
    pub unit: UnitKey,
    /// Index of the attempt in its unit.
    pub attempt: usize,
    /// Index of the row of the call in the attempt.
    pub row: usize,
    /// What is shown, as a sentence.
    pub sentence: String,
}

/// Finds the call that wrote `line`.
///
/// # Errors
/// If the record does not contain it.
pub(crate) fn find_writer(
    timeline: &mut Timeline,
    line: &WrittenLine,
) -> Result<LineWriterCall, Problem> {
    let artifacts = run_artifacts(&timeline.view().state);
    let artifact = artifacts
        .into_iter()
        .find(|artifact| artifact.path == line.path);
    let artifact =
        artifact.ok_or_else(|| Problem::new("the record does not show who wrote this file"))?;
    let writers: Vec<ArtifactWriter> = artifact.effective_writers().cloned().collect();
    let mut found = Vec::new();
    for writer in writers.iter().rev() {
        let state = &timeline.view().state;
        let Some(unit) = state.units.iter().find(|unit| unit.key == writer.unit) else {
            continue;
        };
        let attempt = unit
            .attempts
            .iter()
            .enumerate()
            .find(|(_, attempt)| attempt.number == writer.attempt);
        let Some((index, attempt)) = attempt else {
            continue;
        };
        let (id, owner) = (
            attempt.id,
            owner_of(state, writer, line).filter(|_| writers.len() == 1),
        );
        let calls = writing_calls(timeline, id, &artifact, writer);
        found.push((writer, index, calls, owner));
    }
    let text = line
        .text
        .as_deref()
        .filter(|text| line.line.is_some() && !text.trim().is_empty());
    let writes_line = |call: &WritingRow| text.is_some_and(|text| call.write.writes_line(text));
    let by_owner = found.iter().find_map(|(writer, index, calls, owner)| {
        let call = calls.iter().find(|call| Some(&call.id) == owner.as_ref())?;
        // After a merge, the lines of the attempt may have other numbers.
        (line.lines.is_some() || writes_line(call)).then_some((*writer, *index, call))
    });
    let mut matching = Vec::new();
    for (writer, index, calls, _) in &found {
        matching.extend(
            calls
                .iter()
                .rev()
                .filter(|call| writes_line(call))
                .map(|call| (*writer, *index, call)),
        );
    }
    // Without a call of every writer, or with a line that no call contains, the last call proves nothing about it.
    let last = || {
        found
            .iter()
            .find_map(|(writer, index, calls, _)| Some((*writer, *index, calls.last()?)))
    };
    let (certainty, call) = match (by_owner, matching.as_slice()) {
        (Some(call), _) => (Certainty::Certain, Some(call)),
        (None, [call]) if found.len() == writers.len() => (Certainty::Certain, Some(*call)),
        (None, [call, ..]) => (Certainty::Possible, Some(*call)),
        (None, []) => (Certainty::LastCall, last()),
    };
    let (writer, attempt, WritingRow { row, .. }) =
        call.ok_or_else(|| no_call_reason(timeline, &writers))?;
    let number = line.line.unwrap_or_default();
    let place = match certainty {
        Certainty::Certain => format!("wrote line {number}"),
        Certainty::Possible => format!("may have written line {number}"),
        Certainty::LastCall => "was the last one to write the file".to_owned(),
    };
    let unit = text::printable(&writer.unit, MAX_NAME_WIDTH);
    let sentence = format!(
        "this call of {unit}, attempt {}, {place}; what its agent read is above it",
        writer.attempt
    );
    Ok(LineWriterCall {
        unit: writer.unit.clone(),
        attempt,
        row: *row,
        sentence,
    })
}

/// Why there is no call to show.
fn no_call_reason(timeline: &Timeline, writers: &[ArtifactWriter]) -> String {
    let Some(writer) = writers.last() else {
        return "the record does not show who wrote it".to_owned();
    };
    let planned = timeline.view().state.planned.as_ref();
    let prior = planned.and_then(|planned| planned.continues.as_ref()?.units.get(&writer.unit));
    match prior {
        _ if writer.unit.as_str() == VERBATIM_KEY => {
            "no agent wrote it: the page is a document kept verbatim".to_owned()
        }
        _ if writer.unit.is_without_attempt() => {
            "no agent wrote it: it was derived from raw files".to_owned()
        }
        Some(prior) if writer.attempt == 0 => {
            format!(
                "it was written in run {0}; `ingestdeck replay {0}` shows its calls",
                prior.run.short()
            )
        }
        _ => "the calls that wrote it are not on this record".to_owned(),
    }
}

/// Id of the call that wrote the line, from the lines that each write replaced.
fn owner_of(state: &RunState, writer: &ArtifactWriter, line: &WrittenLine) -> Option<String> {
    let unit = state.units.iter().find(|unit| unit.key == writer.unit)?;
    let attempt = unit
        .attempts
        .iter()
        .find(|attempt| attempt.number == writer.attempt)?;
    let output = attempt.delivery.output.as_deref()?;
    let writes: Vec<&RecordedWrite> = output
        .writes
        .iter()
        .filter(|write| write.path == line.path)
        .collect();
    let number = line.line?;
    let edits = || writes.iter().map(|write| write.edits.as_slice());
    if let Some(lines) = line.lines {
        let owners = line_owners(0, edits())
            .ok()
            .filter(|owners| owners.len() == lines)?;
        return writes
            .get((*owners.get(number.checked_sub(1)?)?)?)?
            .call
            .clone();
    }
    // The length before is not recorded. Lines below the last one change nothing above them.
    let removed: usize = writes
        .iter()
        .flat_map(|write| &write.edits)
        .map(|edit| edit.removed as usize)
        .sum();
    let furthest = writes
        .iter()
        .flat_map(|write| &write.edits)
        .map(|edit| edit.start as usize)
        .max()?;
    let base = furthest.saturating_add(removed).saturating_add(number);
    let owners = line_owners(base, edits()).ok()?;
    writes
        .get((*owners.get(number.checked_sub(1)?)?)?)?
        .call
        .clone()
}
