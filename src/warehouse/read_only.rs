//! Whether a statement of an agent is one query that only reads, and which tables it reads.
//!
//! A warehouse that offers read-only sessions refuses changes by itself, too ([`super::options`]); for the others this
//! check is the only protection besides the rights of the user. Their server gets the parsed statement as text, so that it
//! cannot understand another statement than this module.

use std::{collections::BTreeSet, ops::ControlFlow};

use sqlparser::{
    ast::{
        Expr, Function, Ident, ObjectName, Query, Select, SelectItem, SetExpr, Statement,
        TableFactor, Visit as _, Visitor,
    },
    dialect::{
        BigQueryDialect, DatabricksDialect, Dialect, DuckDbDialect, MsSqlDialect, MySqlDialect,
        PostgreSqlDialect, RedshiftSqlDialect, SnowflakeDialect,
    },
    parser::{Parser, ParserError},
};

use ingestdeck_ingest::{QueryError, WarehouseDriver};

const REFUSED_FUNCTIONS: &str = include_str!("../../assets/warehouse/refused_functions.txt");

/// Names without brackets that are values in SQL, not columns.
const VALUE_NAMES: [&str; 18] = [
    "user",
    "current_user",
    "session_user",
    "system_user",
    "current_role",
    "current_catalog",
    "current_schema",
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "sysdate",
    "rownum",
    "rowid",
    "ctid",
    "oid",
    "tableoid",
];

/// A query that only reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckedQuery {
    /// What is sent to the warehouse.
    pub(crate) sql: String,
    /// Tables that it reads, as it names them.
    pub(crate) tables: Vec<String>,
    /// The table whose columns it returns, and which of them.
    returned: Option<(String, ReturnedColumns)>,
}

#[derive(Debug, PartialEq, Eq)]
enum ReturnedColumns {
    All,
    Named(Vec<String>),
}

impl CheckedQuery {
    /// A query of this program.
    pub(crate) fn trusted(sql: &str) -> Self {
        Self {
            sql: sql.to_owned(),
            tables: Vec::new(),
            returned: None,
        }
    }

    /// Tables and their columns that a result with `headers` proves to exist.
    pub(crate) fn columns(&self, headers: &[String]) -> Vec<(String, String)> {
        let Some((table, returned)) = &self.returned else {
            return Vec::new();
        };
        let names = match returned {
            ReturnedColumns::All => headers,
            ReturnedColumns::Named(names) => names,
        };
        names
            .iter()
            .map(|name| (table.clone(), name.clone()))
            .collect()
    }
}

/// Checks the statement `sql`.
///
/// # Errors
/// If it cannot be parsed, is not a single query, or would do more than read.
pub(crate) fn check(driver: WarehouseDriver, sql: &str) -> Result<CheckedQuery, QueryError> {
    refuse_ambiguous_text(driver, sql)?;
    let (query, reading) = read(driver, sql)?;
    let sql = match driver {
        // Its errors name places in the text of the agent. Its driver puts more text after the statement, which a comment
        // in its last line would hide.
        WarehouseDriver::Postgres => format!("{sql}\n"),
        _ => {
            let sent = query.to_string();
            match read(driver, &sent) {
                Ok((again, _)) if again == query => sent,
                _ => {
                    let what =
                        "text that cannot be passed on unchanged, such as a backslash in a literal";
                    return Err(QueryError::Refused(what.into()));
                }
            }
        }
    };
    let ReadingVisitor { ctes, tables, .. } = reading;
    let is_table = |name: &String| !ctes.contains(&name.to_lowercase());
    Ok(CheckedQuery {
        sql,
        returned: returned(&query).filter(|(table, _)| is_table(table)),
        tables: tables.into_iter().filter(is_table).collect(),
    })
}

/// Refuses text that servers read in another way than the parser.
fn refuse_ambiguous_text(driver: WarehouseDriver, sql: &str) -> Result<(), QueryError> {
    // Some end a comment there, others do not.
    if sql
        .replace("\r\n", "\n")
        .contains(['\r', '\0', '\u{85}', '\u{2028}', '\u{2029}'])
    {
        let what = "a line that ends with something else than a line break";
        return Err(QueryError::Refused(what.into()));
    }
    // MySQL and MariaDB execute such comments.
    if driver == WarehouseDriver::MySql && (sql.contains("/*!") || sql.contains("/*M!")) {
        return Err(QueryError::Refused("comments with code".into()));
    }
    // Names with escapes, which the parser takes for an operator.
    let lower = sql.to_ascii_lowercase();
    if driver == WarehouseDriver::Postgres && (lower.contains("u&\"") || lower.contains("u&'")) {
        return Err(QueryError::Refused("names and texts with U&".into()));
    }
    Ok(())
}

/// Parses `sql` as one query and looks at everything that it contains.
fn read(driver: WarehouseDriver, sql: &str) -> Result<(Query, ReadingVisitor), QueryError> {
    let parsed = Parser::parse_sql(dialect(driver).as_ref(), sql).map_err(|error| match error {
        ParserError::TokenizerError(why) | ParserError::ParserError(why) => {
            QueryError::Unparsed(why)
        }
        ParserError::RecursionLimitExceeded => {
            QueryError::Unparsed("it is nested too deeply".into())
        }
    })?;
    let mut statements = parsed.into_iter();
    let query = match (statements.next(), statements.next()) {
        (None, _) => return Err(QueryError::EmptyStatement),
        (Some(Statement::Query(query)), None) => *query,
        (Some(_), None) => return Err(QueryError::NotReadOnly),
        (Some(_), Some(_)) => return Err(QueryError::MultipleStatements),
    };
    let mut reading = ReadingVisitor {
        driver,
        ctes: BTreeSet::new(),
        tables: BTreeSet::new(),
    };
    match query.visit(&mut reading) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok((query, reading)),
    }
}

fn dialect(driver: WarehouseDriver) -> Box<dyn Dialect> {
    match driver {
        WarehouseDriver::Postgres => Box::new(PostgreSqlDialect {}),
        WarehouseDriver::Redshift => Box::new(RedshiftSqlDialect {}),
        WarehouseDriver::DuckDb => Box::new(DuckDbDialect {}),
        WarehouseDriver::Snowflake => Box::new(SnowflakeDialect {}),
        WarehouseDriver::BigQuery => Box::new(BigQueryDialect {}),
        WarehouseDriver::Databricks => Box::new(DatabricksDialect {}),
        WarehouseDriver::MySql => Box::new(MySqlDialect {}),
        WarehouseDriver::SqlServer => Box::new(MsSqlDialect {}),
    }
}

struct ReadingVisitor {
    driver: WarehouseDriver,
    /// Names of common table expressions, in lower case.
    ctes: BTreeSet<String>,
    tables: BTreeSet<String>,
}

impl Visitor for ReadingVisitor {
    type Break = QueryError;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<QueryError> {
        match statement {
            Statement::Query(_) => ControlFlow::Continue(()),
            // A common table expression that writes.
            _ => ControlFlow::Break(QueryError::NotReadOnly),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<QueryError> {
        if !query.locks.is_empty() {
            return ControlFlow::Break(QueryError::NotReadOnly);
        }
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.ctes
            .extend(tables.map(|table| table.alias.name.value.to_lowercase()));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<QueryError> {
        match select.into {
            Some(_) => ControlFlow::Break(QueryError::NotReadOnly),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<QueryError> {
        match table {
            TableFactor::Table {
                name, args: None, ..
            } => {
                if is_file(self.driver, name) {
                    let what = format!("`{name}`, which is a file or another server");
                    return ControlFlow::Break(QueryError::Refused(what));
                }
                self.tables.insert(plain_name(name));
                ControlFlow::Continue(())
            }
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => {
                check_function(name)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<QueryError> {
        match expr {
            Expr::Function(Function { name, .. }) => check_function(name),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether a name in place of a table is that of a file, as DuckDB accepts it, or of a stage of Snowflake.
fn is_file(driver: WarehouseDriver, name: &ObjectName) -> bool {
    let is_file = |ident: &Ident| match driver {
        WarehouseDriver::DuckDb => ident.quote_style == Some('\'') || ident.value.contains('/'),
        WarehouseDriver::Snowflake => ident.value.starts_with('@'),
        WarehouseDriver::Databricks => ident.value.contains(['/', ':']),
        _ => false,
    };
    // The first of four parts is another server.
    if driver == WarehouseDriver::SqlServer && name.0.len() > 3 {
        return true;
    }
    name.0
        .iter()
        .any(|part| part.as_ident().is_none_or(is_file))
}

fn check_function(name: &ObjectName) -> ControlFlow<QueryError> {
    let Some(last) = name.0.last().and_then(|part| part.as_ident()) else {
        return ControlFlow::Break(QueryError::Refused(format!("`{name}`")));
    };
    let called = last.value.to_lowercase();
    let names = REFUSED_FUNCTIONS
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_refused = names
        .into_iter()
        .any(|refused| match refused.strip_suffix('*') {
            Some(start) => called.starts_with(start),
            None => called == refused,
        });
    if is_refused {
        ControlFlow::Break(QueryError::Refused(format!("the function `{called}`")))
    } else {
        ControlFlow::Continue(())
    }
}

/// The parts of `name` without quotes.
fn plain_name(name: &ObjectName) -> String {
    let parts = name.0.iter().filter_map(|part| part.as_ident());
    let parts: Vec<&str> = parts.map(|part| part.value.as_str()).collect();
    parts.join(".")
}

/// The table whose columns `query` returns unchanged. `None` if the result may contain anything else.
fn returned(query: &Query) -> Option<(String, ReturnedColumns)> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let [from] = select.from.as_slice() else {
        return None;
    };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = &from.relation
    else {
        return None;
    };
    let renames = alias
        .as_ref()
        .is_some_and(|alias| !alias.columns.is_empty());
    if !from.joins.is_empty() || renames || !select.lateral_views.is_empty() {
        return None;
    }
    let table = plain_name(name);
    if let [SelectItem::Wildcard(options)] = select.projection.as_slice() {
        return (*options == Default::default()).then_some((table, ReturnedColumns::All));
    }
    // A table is a value in PostgreSQL and DuckDB.
    let own = name.0.last().and_then(|part| part.as_ident()).into_iter();
    let own: Vec<String> = own
        .chain(alias.as_ref().map(|alias| &alias.name))
        .map(|ident| ident.value.to_lowercase())
        .collect();
    let is_value = |ident: &Ident| {
        let lower = ident.value.to_lowercase();
        own.contains(&lower) || ident.quote_style.is_none() && VALUE_NAMES.contains(&lower.as_str())
    };
    let names: Vec<String> = select
        .projection
        .iter()
        .filter_map(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(ident))
            | SelectItem::ExprWithAlias {
                expr: Expr::Identifier(ident),
                ..
            } => Some(ident),
            _ => None,
        })
        .filter(|ident| !is_value(ident))
        .map(|ident| ident.value.clone())
        .collect();
    (!names.is_empty()).then_some((table, ReturnedColumns::Named(names)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DRIVERS: [WarehouseDriver; 8] = [
        WarehouseDriver::Postgres,
        WarehouseDriver::Redshift,
        WarehouseDriver::DuckDb,
        WarehouseDriver::Snowflake,
        WarehouseDriver::BigQuery,
        WarehouseDriver::Databricks,
        WarehouseDriver::MySql,
        WarehouseDriver::SqlServer,
    ];

    fn accepted(driver: WarehouseDriver, sql: &str) -> CheckedQuery {
        check(driver, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    #[test]
    fn queries_name_the_tables_that_they_read() {
        let sql = "WITH x AS (SELECT * FROM shop.orders) SELECT * FROM x JOIN \"Customers\" c ON true \
                   WHERE id IN (SELECT id FROM db.shop.refunds)";
        for driver in [WarehouseDriver::Postgres, WarehouseDriver::DuckDb] {
            assert_eq!(
                accepted(driver, sql).tables,
                ["Customers", "db.shop.refunds", "shop.orders"]
            );
        }
        let quoted = "SELECT * FROM `my-project.shop.orders`";
        let tables = accepted(WarehouseDriver::BigQuery, quoted).tables;
        assert_eq!(tables, ["my-project.shop.orders"]);
        let bracketed = "SELECT TOP 5 * FROM [dbo].[Order Lines]";
        let tables = accepted(WarehouseDriver::SqlServer, bracketed).tables;
        assert_eq!(tables, ["dbo.Order Lines"]);
    }

    #[test]
    fn columns_are_proved_only_by_a_plain_selection() {
        let headers = ["id".to_owned(), "total".to_owned()];
        let columns = |sql| -> Vec<String> {
            let found = accepted(WarehouseDriver::Postgres, sql).columns(&headers);
            found
                .into_iter()
                .map(|(table, column)| format!("{table}:{column}"))
                .collect()
        };
        assert_eq!(columns("SELECT * FROM o"), ["o:id", "o:total"]);
        assert_eq!(
            columns("SELECT id, total AS revenue FROM s.o x LIMIT 5"),
            ["s.o:id", "s.o:total"]
        );
        for sql in [
            "SELECT 1 AS id",
            "SELECT 'x' AS id, count(*) AS total FROM o",
            "SELECT * FROM o JOIN p ON true",
            "SELECT * FROM (SELECT 1 AS id) o",
            "WITH o AS (SELECT 1 AS id) SELECT * FROM o",
            "SELECT user, current_date FROM o",
            "SELECT o FROM o",
            "SELECT x FROM o x",
            "SELECT * FROM o AS x (id, total)",
            "SELECT * FROM f(1)",
            "SELECT id FROM o UNION SELECT 1",
        ] {
            assert_eq!(columns(sql), [""; 0], "{sql}");
        }
    }

    #[test]
    fn statements_that_do_more_than_read_are_refused() {
        for sql in [
            "DELETE FROM o",
            "WITH d AS (DELETE FROM o RETURNING *) SELECT * FROM d",
            "WITH d AS (INSERT INTO o VALUES (1) RETURNING *) SELECT * FROM d",
            "WITH d AS (UPDATE o SET a = 1 RETURNING *) SELECT * FROM d",
            "SELECT * FROM o FOR UPDATE",
            "SELECT * INTO p FROM o",
            "CREATE TABLE p AS SELECT 1",
            "COPY o TO '/tmp/x'",
            "CALL f()",
            "SET a = 1",
            "EXPLAIN ANALYZE DELETE FROM o",
            "SHOW ALL",
            "VACUUM",
        ] {
            for driver in DRIVERS {
                let refused = check(driver, sql);
                assert!(
                    matches!(
                        refused,
                        Err(QueryError::NotReadOnly | QueryError::Unparsed(_))
                    ),
                    "{driver:?} {sql}: {refused:?}"
                );
            }
        }
        let postgres = |sql| check(WarehouseDriver::Postgres, sql);
        assert_eq!(
            postgres("SELECT 1; SELECT 2"),
            Err(QueryError::MultipleStatements)
        );
        assert_eq!(postgres(" -- nothing\n"), Err(QueryError::EmptyStatement));
        assert!(matches!(
            postgres("SELECT 1) TO PROGRAM 'id' --"),
            Err(QueryError::Unparsed(_))
        ));
        let nested = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(matches!(postgres(&nested), Err(QueryError::Unparsed(_))));
    }

    #[test]
    fn functions_that_reach_files_or_hosts_are_refused() {
        for (driver, sql) in [
            (WarehouseDriver::Postgres, "SELECT pg_read_file('x')"),
            (WarehouseDriver::Postgres, "SELECT PG_LS_DIR('x')"),
            (
                WarehouseDriver::Postgres,
                "SELECT * FROM pg_catalog.\"pg_read_file\"('x')",
            ),
            (
                WarehouseDriver::Postgres,
                "SELECT 1 ORDER BY (SELECT lo_import('x'))",
            ),
            (
                WarehouseDriver::Postgres,
                "SELECT count(*) FILTER (WHERE dblink('x', 'y') = '') FROM o",
            ),
            (WarehouseDriver::DuckDb, "SELECT * FROM read_csv('x')"),
            (WarehouseDriver::DuckDb, "SELECT * FROM 'x.parquet'"),
            (WarehouseDriver::DuckDb, "SELECT * FROM query('SELECT 1')"),
            (WarehouseDriver::MySql, "SELECT load_file('x')"),
            (WarehouseDriver::MySql, "SELECT 1 /*! INTO OUTFILE 'x' */"),
            (
                WarehouseDriver::SqlServer,
                "SELECT * FROM OPENROWSET('a', 'b', 'c')",
            ),
            (
                WarehouseDriver::BigQuery,
                "SELECT * FROM EXTERNAL_QUERY('a', 'b')",
            ),
            (
                WarehouseDriver::Snowflake,
                "SELECT SYSTEM$CANCEL_ALL_QUERIES(1)",
            ),
        ] {
            let refused = check(driver, sql);
            assert!(
                matches!(
                    refused,
                    Err(QueryError::Refused(_) | QueryError::Unparsed(_))
                ),
                "{driver:?} {sql}: {refused:?}"
            );
        }
    }

    #[test]
    fn warehouses_get_the_text_that_was_parsed() {
        for (driver, sql) in [
            (
                WarehouseDriver::SqlServer,
                "SELECT 'a\\''; DROP TABLE o --'",
            ),
            (
                WarehouseDriver::BigQuery,
                "SELECT 'a\\\\' AS x, '; DROP TABLE d.t --' AS y",
            ),
            (
                WarehouseDriver::Snowflake,
                "SELECT 'a\\\\' AS x, ' ->> DROP TABLE o --' AS y",
            ),
        ] {
            let sent = check(driver, sql).map(|checked| checked.sql);
            let is_safe = sent.as_ref().is_err()
                || sent.as_ref().is_ok_and(|sent| {
                    read(driver, sent).is_ok_and(|(query, _)| query == read(driver, sql).unwrap().0)
                });
            assert!(is_safe, "{driver:?} {sql}: {sent:?}");
        }
        for sql in [
            "SELECT 1 --x\r; CREATE TEMP VIEW orders AS SELECT 1",
            "SELECT U&\"pg\\005fread_file\"('x')",
            "SELECT u&'x'",
        ] {
            let refused = check(WarehouseDriver::Postgres, sql);
            assert!(
                matches!(refused, Err(QueryError::Refused(_))),
                "{sql}: {refused:?}"
            );
        }
        let refused = check(WarehouseDriver::MySql, "SELECT 1 /*M! INTO OUTFILE '/x' */");
        assert!(
            matches!(refused, Err(QueryError::Refused(_))),
            "{refused:?}"
        );
        for (driver, sql) in [
            (
                WarehouseDriver::Databricks,
                "SELECT * FROM text.`s3://evil/x`",
            ),
            (
                WarehouseDriver::SqlServer,
                "SELECT * FROM [linked].[db].[dbo].[t]",
            ),
        ] {
            let refused = check(driver, sql);
            assert!(
                matches!(refused, Err(QueryError::Refused(_))),
                "{sql}: {refused:?}"
            );
        }
        let sql = "select  1 /* hint */ as one";
        assert_eq!(
            accepted(WarehouseDriver::Snowflake, sql).sql,
            "SELECT 1 AS one"
        );
        assert_eq!(
            accepted(WarehouseDriver::Postgres, sql).sql,
            format!("{sql}\n")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_checked_without_a_panic(sql in ".{0,200}", driver in 0..DRIVERS.len()) {
            let _ = check(DRIVERS[driver], &sql);
        }

        #[test]
        fn writing_is_refused_anywhere_in_a_query(
            before in prop::sample::select(vec!["", "SELECT 1 UNION ", "SELECT * FROM (", "WITH a AS (SELECT 1) "]),
            write in prop::sample::select(vec!["DELETE FROM o", "DROP TABLE o", "INSERT INTO o VALUES (1)", "TRUNCATE o"]),
            after in prop::sample::select(vec!["", ";", ") x", " RETURNING *"]),
        ) {
            let sql = format!("{before}{write}{after}");
            for driver in DRIVERS {
                prop_assert!(check(driver, &sql).is_err(), "{:?} {}", driver, sql);
            }
        }
    }
}
