//! `find`: what contains a text, in all runs and Claude Code sessions of the project. What it leaves out is counted.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    args::{FindArgs, GlobalArgs, TableFormat},
    exit::{self, CliError, Exit},
    project, runs,
    table::TableWriter,
};
use ingestdeck_core::units::failure_tally::bare_name;
use ingestdeck_records::store::text_record::TextRecord;
use ingestdeck_report::redact::Redactor;

mod finder;
pub(crate) mod live;
mod place;
mod query;
mod terms;

use finder::{LeftOutRecords, RecordFinder, short_name};
use query::{FindQuery, FoundMoment};
use terms::FindTerms;

/// How long records may be read that are not searched yet.
const INDEX_TIME: Duration = Duration::from_secs(10);

/// Prints the entries that contain all texts of `args`, newest run first.
///
/// # Errors
/// If a text or a filter is invalid, no run matches, or the index cannot be used.
pub(super) fn find(global: &GlobalArgs, args: &FindArgs) -> Result<Exit, CliError> {
    let format = TableFormat::resolve(args.format, global);
    let query = FindQuery::new(&runs::resolve_store(global)?, &FindTerms::from(args))?;
    let columns: &[&str] = match format {
        TableFormat::Text => &["time", "run", "unit", "kind", "tool", "text", "entry"],
        TableFormat::Json | TableFormat::Csv => &[
            "at", "run", "session", "unit", "attempt", "seq", "kind", "tool", "failed", "text",
        ],
    };
    let redactor = Redactor::for_process(project::resolve_directory(global).ok().as_deref());
    let columns = columns.iter().copied().map(str::to_owned).collect();
    let mut table = TableWriter::new(format, columns, Some(1), redactor);
    let Some(mut finder) = RecordFinder::open(global)? else {
        table.push_object("left_out", LeftOutRecords::default().to_json());
        return table
            .finish("no runs yet; `ingestdeck run` records one\n")
            .map(|()| Exit::Ok);
    };
    let deadline = Instant::now() + INDEX_TIME;
    finder.refresh(&mut |_, _| args.all || Instant::now() < deadline)?;
    let mut count = 0;
    let problems = finder.find(&query, &|| false, &mut |moment| {
        count += 1;
        table.push(to_row(&moment, format)) && count < args.limit
    })?;
    let left_out = finder.left_out()?;
    let waiting = left_out.waiting_problem("call it again, or once with --all");
    let problems = problems
        .into_iter()
        .chain(waiting)
        .chain(left_out.problems());
    problems.for_each(|problem| exit::print_warning(&problem));
    table.push_object("left_out", left_out.to_json());
    let note = match count {
        0 => "nothing contains it\n".to_owned(),
        count if count == args.limit => format!("the newest {count}; --limit shows more\n"),
        1 => "1 entry\n".to_owned(),
        count => format!("{count} entries\n"),
    };
    table.finish(&note)?;
    Ok(Exit::Ok)
}

fn to_row(moment: &FoundMoment, format: TableFormat) -> Vec<Value> {
    let at = moment
        .at
        .and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    let at = at.map(|at| at.to_string()).unwrap_or_default();
    let is_session = matches!(moment.record, TextRecord::Session(_));
    if format == TableFormat::Text {
        let unit = match (&moment.unit, moment.attempt) {
            (Some(unit), Some(attempt)) => format!("{unit} #{attempt}"),
            _ if is_session => "session".to_owned(),
            _ => String::new(),
        };
        let time: String = at.chars().take(19).collect();
        let tool = moment.tool.as_deref().map(bare_name).unwrap_or_default();
        return vec![
            json!(time.replace('T', " ")),
            json!(short_name(&moment.record)),
            json!(unit),
            json!(moment.kind),
            json!(tool),
            json!(moment.text),
            json!(moment.seq.0.to_string()),
        ];
    }
    let (run, session) = match &moment.record {
        TextRecord::Run(id) => (Some(id.to_string()), None),
        TextRecord::Session(path) => (None, Some(path.to_string_lossy().into_owned())),
    };
    vec![
        json!(at),
        json!(run),
        json!(session),
        json!(moment.unit),
        json!(moment.attempt),
        json!(moment.seq.0),
        json!(moment.kind),
        json!(moment.tool),
        json!(moment.has_failed),
        json!(moment.text),
    ]
}
