//! `runs query`: SQL of the user over the index of all runs.

use std::{cell::RefCell, time::Duration};

use super::{
    args::{GlobalArgs, QueryArgs, TableFormat},
    audit,
    exit::{CliError, Exit, ExitError},
    output, project, runs,
    table::TableWriter,
};
use ingestdeck_records::store::db::{IndexQueryError, QueryLimits};
use ingestdeck_report::redact::Redactor;

/// How long a query may run.
const TIME: Duration = Duration::from_secs(10);

impl ExitError for IndexQueryError {
    fn exit(&self) -> Exit {
        match self {
            Self::Index(_) | Self::TimedOut(_) | Self::OutOfMemory => Exit::Internal,
            Self::Invalid(_) | Self::Denied | Self::StatementCount(_) => Exit::Usage,
        }
    }
}

/// Prints the rows of a query.
///
/// # Errors
/// If there are no runs, the index cannot be used, or the query is invalid or exceeds its limits.
pub(super) fn query(global: &GlobalArgs, args: &QueryArgs) -> Result<Exit, CliError> {
    let store = &runs::resolve_store(global)?;
    let format = TableFormat::resolve(args.format, global);
    let Some(db) = audit::open_index(store)? else {
        return Err(
            CliError::not_found("no run is recorded in this project yet")
                .with_help("start one with `ingestdeck run`"),
        );
    };
    let project = project::resolve_directory(global).ok();
    let limits = QueryLimits {
        rows: args.limit,
        time: TIME,
    };
    let table = RefCell::new(None);
    let begin = &mut |columns| {
        let redactor = Redactor::for_process(project.as_deref());
        table.replace(Some(TableWriter::new(format, columns, None, redactor)));
    };
    let take = &mut |row| {
        table
            .borrow_mut()
            .as_mut()
            .is_some_and(|table| table.push(row))
    };
    let more = db.query(&args.sql, limits, begin, take)?;
    table
        .into_inner()
        .map_or(Ok(()), |table| table.finish(""))?;
    if more {
        output::print_stderr(&format!(
            "ingestdeck: only the first {} rows are shown; --limit shows more",
            args.limit
        ));
    }
    Ok(Exit::Ok)
}
