//! `audit`: the tool calls of all runs of the project, from the index.
//!
//! The index has the beginning of long arguments and results. [`payloads`] reads the rest from the tapes.

mod payloads;

use jiff::Timestamp;
use serde_json::Value;

use self::payloads::PayloadReader;
use super::{
    args::{AuditArgs, GlobalArgs, TableFormat},
    exit::{self, CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::{
    tape::Millis,
    text::{self, pluralize},
    units::failure_tally::bare_name,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::store::{
    Db, RunStore,
    db::{AUDIT_COLUMNS, AuditFilter},
};
use ingestdeck_report::redact::Redactor;

/// Columns of the table for people.
const TEXT_COLUMNS: [&str; 9] = [
    "time",
    "run",
    "unit",
    "tool",
    "status",
    "took",
    "size",
    "decision",
    "arguments",
];
/// Characters of a shortened text.
const SHORT_CHARS: usize = 160;

/// Prints the calls that `args` selects.
///
/// # Errors
/// If a filter is invalid, no run matches, or the index cannot be used.
pub(super) fn audit(global: &GlobalArgs, args: &AuditArgs) -> Result<Exit, CliError> {
    let (since_ms, until_ms) = args.period.resolve()?;
    let store = &runs::resolve_store(global)?;
    let format = TableFormat::resolve(args.format, global);
    let filter = AuditFilter {
        run: args
            .run
            .as_deref()
            .map(|run| store.resolve(run))
            .transpose()?
            .map(|found| found.id),
        unit: args.unit.clone(),
        tool: args.tool.clone(),
        decision: args.decision.map(super::args::AuditDecision::as_str),
        only_failed: args.failed,
        since_ms,
        until_ms,
        limit: args.limit,
    };
    let columns = match format {
        TableFormat::Text => TEXT_COLUMNS.iter().map(|name| (*name).to_owned()).collect(),
        TableFormat::Json | TableFormat::Csv => AUDIT_COLUMNS
            .iter()
            .filter(|name| args.results || **name != "output")
            .map(|name| (*name).to_owned())
            .collect(),
    };
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let mut table = TableWriter::new(format, columns, Some(1), redactor);
    let Some(db) = open_index(store)? else {
        return table
            .finish("no runs yet; `ingestdeck run` records one\n")
            .map(|()| Exit::Ok);
    };
    let mut payloads = PayloadReader::new(store, args.results);
    if args.full || args.results {
        db.audit(&filter, &mut |values| {
            payloads.expect(&AuditedCall { values });
            true
        })?;
    }
    let (mut count, mut read) = (0, Ok(()));
    db.audit(&filter, &mut |values| {
        let mut call = AuditedCall { values };
        read = payloads.complete(&mut call);
        // What is shortened may cut a secret, so that its beginning is not recognized.
        call.values = table.masked(call.values);
        count += 1;
        let row = if format == TableFormat::Text {
            call.to_text(args)
        } else {
            call.into_row(args)
        };
        read.is_ok() && table.push(row)
    })?;
    read?;
    let note = if count == 0 {
        "no call matches\n".to_owned()
    } else {
        format!("{}\n", pluralize(count, "call"))
    };
    table.finish(&note)?;
    Ok(Exit::Ok)
}

/// The updated index; `None` without runs. A run that cannot be read is reported on stderr.
///
/// # Errors
/// If the index cannot be used.
pub(super) fn open_index(store: &RunStore) -> Result<Option<Db>, CliError> {
    if store.list()?.is_empty() {
        return Ok(None);
    }
    let (db, left_out) = recorded_tapes::open_updated_index(store)?;
    exit::print_warnings(&left_out);
    Ok(Some(db))
}

/// One call, with its values in the order of [`AUDIT_COLUMNS`].
struct AuditedCall {
    values: Vec<Value>,
}

impl AuditedCall {
    fn get(&self, column: &str) -> &Value {
        const NULL: Value = Value::Null;
        let at = AUDIT_COLUMNS.iter().position(|name| *name == column);
        at.and_then(|at| self.values.get(at))
            .unwrap_or(const { &NULL })
    }

    fn text(&self, column: &str) -> &str {
        self.get(column).as_str().unwrap_or_default()
    }

    fn set(&mut self, column: &str, value: Value) {
        let at = AUDIT_COLUMNS.iter().position(|name| *name == column);
        if let Some(place) = at.and_then(|at| self.values.get_mut(at)) {
            *place = value;
        }
    }

    fn at(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.get("at").as_i64()?).ok()
    }

    /// The row for programs.
    fn into_row(mut self, args: &AuditArgs) -> Vec<Value> {
        self.set(
            "at",
            self.at()
                .map(|at| format!("{at:.3}").into())
                .unwrap_or_default(),
        );
        if !args.full {
            for column in ["input", "error", "decision_reason"] {
                if let Some(text) = self.get(column).as_str() {
                    self.set(column, shortened(text).into());
                }
            }
        }
        let columns = self.values.into_iter().zip(AUDIT_COLUMNS);
        columns
            .filter(|(_, name)| args.results || *name != "output")
            .map(|(value, _)| value)
            .collect()
    }

    /// The row for people.
    fn to_text(&self, args: &AuditArgs) -> Vec<Value> {
        let run = self.text("run");
        let duration = self
            .get("duration_ms")
            .as_u64()
            .map(|took| text::latency(Millis(took)));
        let size = self.get("output_bytes").as_u64().map(text::size);
        let decision = match (self.text("decision"), self.text("decided_by")) {
            ("allowed", "rule") => "allowed".to_owned(),
            (decision, "") => decision.to_owned(),
            (decision, by) => format!("{decision} by {by}"),
        };
        let mut details = vec![self.text("input").to_owned()];
        let reason = ("reason: ", self.text("decision_reason"));
        let error = ("error: ", self.text("error"));
        let output = (
            "result: ",
            if args.results {
                self.text("output")
            } else {
                ""
            },
        );
        for (label, text) in [reason, error, output]
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
        {
            details.push(format!("{label}{text}"));
        }
        if !args.full {
            let is_result = |detail: &String| args.results && detail.starts_with("result: ");
            details
                .iter_mut()
                .filter(|detail| !is_result(detail))
                .for_each(|detail| *detail = shortened(detail));
        }
        let cells = [
            self.at()
                .map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
                .unwrap_or_default(),
            run.get(run.len().saturating_sub(6)..)
                .unwrap_or(run)
                .to_owned(),
            format!("{} #{}", self.text("unit"), self.get("attempt")),
            bare_name(self.text("tool")).to_owned(),
            self.text("status").to_owned(),
            duration.unwrap_or_default(),
            size.unwrap_or_default(),
            decision,
            details.join("  "),
        ];
        cells.map(Value::from).to_vec()
    }
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHORT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
