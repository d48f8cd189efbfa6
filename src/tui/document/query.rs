//! A query and its answer: SQL with its line breaks, and rows as a table.

use super::{DocumentBlock, StyleRole, char_boundary, query_table::QueryTable};
use ingestdeck_core::actions::sql_query::SqlQuery;

/// Columns before each line of SQL.
const INDENT: usize = 2;

/// A section with the connection and the other arguments of a query, followed by at most `most` bytes of its SQL.
pub(crate) fn query_blocks(query: &SqlQuery, most: usize) -> Vec<DocumentBlock> {
    let connection = (StyleRole::Text, format!("connection {}", query.connection));
    let options = query.options().into_iter();
    let facts = [connection]
        .into_iter()
        .chain(options.map(|option| (StyleRole::Text, option)))
        .collect();
    let sql = Some(query.sql.as_str().into());
    let mut blocks = vec![DocumentBlock::titled(
        "query",
        "query".to_owned(),
        facts,
        sql,
    )];
    let shown = &query.sql[..char_boundary(&query.sql, most.max(1))];
    blocks.extend(shown.lines().map(sql_line));
    blocks
}

/// A line of SQL. Rows that continue it are indented more than its beginning.
fn sql_line(line: &str) -> DocumentBlock {
    let code = line.trim_start_matches([' ', '\t']);
    let spaces = &line[..line.len() - code.len()];
    // A tab takes two columns everywhere.
    let indent = INDENT + spaces.len() + spaces.matches('\t').count();
    DocumentBlock::Spans {
        indent,
        hang: indent + INDENT,
        runs: vec![(StyleRole::JsonText, code.to_owned())],
    }
}

/// The rows of an answer. `None` if the answer is not a table, such as an error.
pub(crate) fn answer_blocks(answer: &str) -> Option<Vec<DocumentBlock>> {
    QueryTable::parse(answer).map(|table| vec![DocumentBlock::Table(table)])
}
