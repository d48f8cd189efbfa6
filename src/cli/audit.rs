//! `audit`: the tool calls of all runs of the project, from the index.
//!
//! The index has the beginning of long arguments and results. [`payloads`] reads the rest from the tapes.

mod payloads;

use clap::ValueEnum;
use serde_json::{Map, Value};

use self::payloads::PayloadReader;
use super::{
    args::{AuditArgs, GlobalArgs, PeriodArgs, TableFormat},
    exit::{self, CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::{
    actions::sql_query::SqlQuery,
    tape::Millis,
    text::{self, pluralize},
    units::failure_tally::bare_name,
};
use ingestdeck_engine::recorded_tapes;
use ingestdeck_records::store::{
    Db, RunStore,
    db::{IndexFilter, IndexView},
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
    let store = &runs::resolve_store(global)?;
    let format = TableFormat::resolve(args.format, global);
    let filter = IndexFilter {
        unit: args.unit.clone(),
        tool: args.tool.clone(),
        decision: args.decision.map(|decision| value_name(&decision)),
        only_failed: args.failed,
        limit: args.limit,
        ..period_filter(store, args.run.as_deref(), &args.period)?
    };
    let columns = match format {
        TableFormat::Text => TEXT_COLUMNS.to_vec(),
        TableFormat::Json | TableFormat::Csv => IndexView::Audit
            .columns()
            .into_iter()
            .filter(|name| args.results || *name != "output")
            .collect(),
    };
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let mut table = TableWriter::new(
        format,
        columns.iter().copied().map(str::to_owned).collect(),
        Some(1),
        redactor,
    );
    let Some(db) = open_index(store)? else {
        return table
            .finish("no runs yet; `ingestdeck run` records one\n")
            .map(|()| Exit::Ok);
    };
    let mut payloads = PayloadReader::new(store, args.results);
    if args.full || args.results {
        db.rows(IndexView::Audit, &filter, &mut |row| {
            payloads.expect(&AuditedCall(row));
            true
        })?;
    }
    let (mut count, mut read) = (0, Ok(()));
    db.rows(IndexView::Audit, &filter, &mut |row| {
        let mut call = AuditedCall(row);
        read = payloads.complete(&mut call);
        // What is shortened may cut a secret, so that its beginning is not recognized.
        call.0.values_mut().for_each(|value| table.mask(value));
        count += 1;
        let row = if format == TableFormat::Text {
            call.to_text(args)
        } else {
            call.into_row(&columns, args.full)
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

/// The filters that `audit` and `costs` share.
///
/// # Errors
/// If no run matches, or the period is invalid.
pub(super) fn period_filter(
    store: &RunStore,
    run: Option<&str>,
    period: &PeriodArgs,
) -> Result<IndexFilter, CliError> {
    let (since_ms, until_ms) = period.resolve()?;
    let run = run.map(|run| store.resolve(run)).transpose()?;
    Ok(IndexFilter {
        run: run.map(|found| found.id),
        since_ms,
        until_ms,
        ..IndexFilter::default()
    })
}

/// The word for a value on the command line, which is also that of the index.
pub(super) fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One call: a row of [`IndexView::Audit`].
struct AuditedCall(Map<String, Value>);

impl AuditedCall {
    fn get(&self, column: &str) -> &Value {
        self.0.get(column).unwrap_or(&Value::Null)
    }

    fn text(&self, column: &str) -> &str {
        self.get(column).as_str().unwrap_or_default()
    }

    /// The arguments for people: the SQL of a query, or JSON.
    fn arguments(&self) -> String {
        let (tool, input) = (self.text("tool"), self.text("input"));
        // The index may have only the beginning of a long statement.
        let query =
            SqlQuery::parse(tool, input).or_else(|| SqlQuery::parse(tool, &format!("{input}\"}}")));
        query.map_or_else(|| input.to_owned(), |query| query.to_row())
    }

    /// The row for programs.
    fn into_row(mut self, columns: &[&str], is_full: bool) -> Vec<Value> {
        for column in ["input", "error", "decision_reason"] {
            if let Some(Value::String(text)) = self.0.get_mut(column).filter(|_| !is_full) {
                *text = shortened(text);
            }
        }
        let value = |name: &&str| self.0.remove(*name).unwrap_or_default();
        columns.iter().map(value).collect()
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
        let mut details = vec![self.arguments()];
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
            self.text("at")
                .chars()
                .take(19)
                .collect::<String>()
                .replace('T', " "),
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
