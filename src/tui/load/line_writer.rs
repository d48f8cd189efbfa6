//! Finds the call that wrote a line of an artifact, by the lines that the record names or by their text.

use super::artifact::{WritingRow, writing_calls};
use crate::{
    run::{
        Timeline,
        artifacts::{ArtifactWriter, run_artifacts},
        line_owners::line_owners,
        state::RunState,
    },
    tape::{UnitKey, note::attempt_output::RecordedWrite},
    text,
    tui::effect::WrittenLine,
};

/// Columns of the name of a unit.
const MAX_NAME_WIDTH: usize = 60;

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
/// If the record does not contain it; the reason is a sentence.
pub(crate) fn find_writer(timeline: &mut Timeline, line: &WrittenLine) -> Result<LineWriterCall, String> {
    let artifacts = run_artifacts(&timeline.view().state);
    let artifact = artifacts.into_iter().find(|artifact| artifact.path == line.path);
    let artifact = artifact.ok_or("the record does not show who wrote this file")?;
    let writers: Vec<ArtifactWriter> = artifact.effective_writers().cloned().collect();
    let mut found = Vec::new();
    for writer in writers.iter().rev() {
        let state = &timeline.view().state;
        let Some(unit) = state.units.iter().find(|unit| unit.key == writer.unit) else { continue };
        let attempt = unit.attempts.iter().enumerate().find(|(_, attempt)| attempt.number == writer.attempt);
        let Some((index, attempt)) = attempt else { continue };
        let (id, owner) = (attempt.id, owner_of(state, writer, line).filter(|_| writers.len() == 1));
        let calls = writing_calls(timeline, id, &artifact, writer);
        found.push((writer, index, calls, owner));
    }
    let by_owner = found.iter().find_map(|(writer, index, calls, owner)| {
        let call = calls.iter().find(|call| Some(&call.id) == owner.as_ref())?;
        Some((*writer, *index, call))
    });
    let by_text = || {
        let text = line.text.as_deref().filter(|text| line.line.is_some() && !text.trim().is_empty())?;
        found.iter().find_map(|(writer, index, calls, _)| {
            let call = calls.iter().rev().find(|call| call.write.writes_line(text))?;
            Some((*writer, *index, call))
        })
    };
    // A removed line is in no text after a call, and neither is every line of a source that a tool completes.
    let last = || found.iter().find_map(|(writer, index, calls, _)| Some((*writer, *index, calls.last()?)));
    let (is_exact, call) = match by_owner.or_else(by_text) {
        Some(call) => (true, Some(call)),
        None => (false, last()),
    };
    let (writer, attempt, WritingRow { row, .. }) = call.ok_or_else(|| match writers.last() {
        Some(writer) if writer.attempt == 0 => {
            "an attempt of a prior run wrote it; `ingestdeck why` finds it".to_owned()
        }
        _ => "the calls that wrote it are not on this record".to_owned(),
    })?;
    let place = match line.line.filter(|_| is_exact) {
        Some(number) => format!("wrote line {number}"),
        None => "wrote the file last".to_owned(),
    };
    let unit = text::printable(&writer.unit, MAX_NAME_WIDTH);
    let sentence = format!("this call of {unit}, attempt {}, {place}; what its agent read is above it", writer.attempt);
    Ok(LineWriterCall { unit: writer.unit.clone(), attempt, row: *row, sentence })
}

/// Id of the call that wrote the line, from the lines that each write replaced.
fn owner_of(state: &RunState, writer: &ArtifactWriter, line: &WrittenLine) -> Option<String> {
    let unit = state.units.iter().find(|unit| unit.key == writer.unit)?;
    let attempt = unit.attempts.iter().find(|attempt| attempt.number == writer.attempt)?;
    let output = attempt.delivery.output.as_deref()?;
    let writes: Vec<&RecordedWrite> = output.writes.iter().filter(|write| write.path == line.path).collect();
    let number = line.line?;
    // The length before is not recorded. Lines below the last one change nothing above them.
    let removed: usize = writes.iter().flat_map(|write| &write.edits).map(|edit| edit.removed as usize).sum();
    let furthest = writes.iter().flat_map(|write| &write.edits).map(|edit| edit.start as usize).max()?;
    let base = furthest.saturating_add(removed).saturating_add(number);
    let owners = line_owners(base, writes.iter().map(|write| write.edits.as_slice())).ok()?;
    writes.get((*owners.get(number.checked_sub(1)?)?)?)?.call.clone()
}
