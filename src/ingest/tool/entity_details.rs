//! `entity_details`: looks up tables and columns of a connection, in files first, then in its database.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    AgentTool, ToolContext, not_found_reply, sl_common::join_names, sql_execution::MAX_RESULT_CHARS,
};
use crate::{
    connection_scope::ConnectionAccess,
    database::{ColumnInfo, LookupTarget, STATEMENT_TIMEOUT, TableInfo, TableLookup},
    facts::{
        FactLookup, FactOrigin, KnownTables, LoadedFacts, TableFinding, TableName, TableSet,
        full_name,
    },
    untrusted_text::one_line,
};
use ingestdeck_core::{diagnostic::Diagnostic as _, units::ToolReply};

/// Longest comment that is shown, in characters.
const MAX_COMMENT_CHARS: usize = 300;

#[derive(Debug)]
pub(super) struct EntityDetails;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EntityDetailsInput {
    /// Id of the connection to query.
    #[serde(rename = "connectionId")]
    connection: String,
    /// Tables or columns to look up.
    #[schemars(length(min = 1, max = 50))]
    targets: Vec<EntityTarget>,
}

/// A table or column, given either by `display` (`orders`, `public.orders`, `orders.total`) or by `name`, with `catalog`
/// and `db`, and `column`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EntityTarget {
    /// The table or column as written in SQL. Required unless `name` is given.
    display: Option<String>,
    /// Database or project of the schema; only used with `name`.
    catalog: Option<String>,
    /// Schema or dataset of the table; only used with `name`.
    db: Option<String>,
    /// Name of the table or view. Required unless `display` is given.
    name: Option<String>,
    /// Name of the column; only used with `name`.
    column: Option<String>,
}

impl EntityTarget {
    /// Name of the target in an answer.
    fn label(&self) -> String {
        let parts = [&self.catalog, &self.db, &self.name, &self.column];
        let joined = parts
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(".");
        one_line(self.display.as_deref().unwrap_or(&joined))
    }

    /// The tables and columns that the target may mean, the likeliest first. Names may contain dots.
    fn interpretations(&self) -> Vec<(TableName, Option<String>)> {
        if let Some(name) = &self.name {
            let places = [self.catalog.as_deref(), self.db.as_deref()];
            return vec![(TableName::from_parts(places, name), self.column.clone())];
        }
        let display = self.display.as_deref().unwrap_or_default();
        let name = TableName::parse(display);
        let with_column = name
            .split_column()
            .map(|(table, column)| (table, Some(column.to_owned())));
        // A list of columns writes the names without quotes.
        let unquoted = display
            .rsplit_once('.')
            .map(|(table, column)| (TableName::whole(table), Some(column.to_owned())));
        let mut readings = vec![(TableName::whole(display), None), (name, None)];
        readings.extend(with_column);
        readings.extend(unquoted);
        readings
    }
}

/// The answer to one target.
enum TargetAnswer {
    Found(DescribedTable),
    /// The table exists and has no such column.
    MissingColumn(DescribedTable),
    /// No table, or several of that name.
    Missing {
        /// Tables that may be meant.
        candidates: Vec<TableName>,
        is_ambiguous: bool,
        /// Whether the database lacks it in a place that was searched.
        is_answered: bool,
    },
}

/// A table, with only the wanted column if there is one.
struct DescribedTable {
    table: TableInfo,
    origin: FactOrigin,
    /// The origin and its age, to continue `From`.
    source: String,
    /// Whether a column that the table lacks does not exist.
    is_proof: bool,
}

impl AgentTool for EntityDetails {
    const NAME: &'static str = "entity_details";
    const DESCRIPTION: &'static str = "Look up tables, views and columns of a connection: types, keys, nullability and \
        sample values, from scans, dbt's artifacts or the database. Use it before you name them in a page or source.";
    const READ_ONLY: bool = true;
    type Input = EntityDetailsInput;

    fn is_offered(context: &ToolContext) -> bool {
        context
            .scope
            .connections
            .iter()
            .any(ConnectionAccess::knows_tables)
    }

    fn run(
        context: &ToolContext,
        EntityDetailsInput {
            connection,
            targets,
        }: EntityDetailsInput,
    ) -> ToolReply {
        let connection = match context.find_connection(&connection) {
            Ok(connection) => connection,
            Err(why) => return not_found_reply(why),
        };
        if let Some(index) = targets
            .iter()
            .position(|target| target.display.is_none() && target.name.is_none())
        {
            return not_found_reply(format_args!(
                "targets[{index}] names no table; give it `display` or `name`"
            ));
        }
        if !connection.knows_tables() {
            return unknown_connection_reply(context, connection, &targets);
        }
        let facts = connection.facts.load();
        let known = context.scope.known_tables(&connection.id);
        let now = context.scope.now();
        let is_proof = |set: &TableSet| {
            known
                .as_ref()
                .is_some_and(|known| known.proves_columns(set))
        };
        let mut answers: Vec<TargetAnswer> = targets
            .iter()
            .map(|target| look_up_in_files(&facts, target, now, is_proof))
            .collect();
        let mut notes = Vec::new();
        let asked = look_up_in_database(context, connection, &targets, &mut answers);
        if let Err(error) = asked {
            if !connection.facts.exist() {
                return not_found_reply(format_args!("connection `{}`: {error}", connection.id));
            }
            notes.push(format!("The database was not asked: {error}"));
        }
        notes.extend(
            facts
                .warnings
                .iter()
                .map(|warning| one_line(&warning.to_line())),
        );
        let is_proven = |target: &EntityTarget, answer: &TargetAnswer| match answer {
            TargetAnswer::Found(_) => false,
            TargetAnswer::MissingColumn(table) => table.is_proof,
            TargetAnswer::Missing {
                is_ambiguous,
                is_answered,
                ..
            } => {
                let lacks_it = |known: &KnownTables| {
                    matches!(known.judge(&target.label()), TableFinding::Missing(_))
                };
                !is_ambiguous && (*is_answered || known.as_ref().is_some_and(lacks_it))
            }
        };
        details_reply(connection, (&targets, &answers), &notes, is_proven)
    }
}

/// The answer for a connection that neither files nor a database describe.
fn unknown_connection_reply(
    context: &ToolContext,
    connection: &ConnectionAccess,
    targets: &[EntityTarget],
) -> ToolReply {
    let others = context.scope.connections.iter();
    let others: Vec<&str> = others
        .filter(|other| other.knows_tables())
        .map(|other| other.id.as_str())
        .collect();
    let missing: Vec<Value> = targets
        .iter()
        .map(|target| json!({"target": target.label(), "candidates": []}))
        .collect();
    ToolReply {
        markdown: format!(
            "Connection `{}` has neither a scan nor a database here, so its tables cannot be looked up; connections that \
             can be: {}",
            connection.id,
            join_names(&others)
        ),
        structured: Some(json!({"resolved": [], "missing": missing, "scanAvailable": false})),
        ..ToolReply::default()
    }
}

fn look_up_in_files(
    facts: &LoadedFacts,
    target: &EntityTarget,
    now: Timestamp,
    is_proof: impl Fn(&TableSet) -> bool,
) -> TargetAnswer {
    let readings = target.interpretations();
    let described = |set: &TableSet, table: &TableInfo| DescribedTable {
        table: table.clone(),
        origin: set.origin,
        source: set.describe(now),
        is_proof: is_proof(set),
    };
    match facts.find(&readings) {
        FactLookup::Found(set, table) => {
            let mut described = described(set, table);
            keep_column(&mut described.table, &readings);
            TargetAnswer::Found(described)
        }
        FactLookup::MissingColumn(set, table) => TargetAnswer::MissingColumn(described(set, table)),
        FactLookup::Ambiguous(tables) => TargetAnswer::Missing {
            candidates: tables.into_iter().map(full_name).collect(),
            is_ambiguous: true,
            is_answered: false,
        },
        FactLookup::Missing => {
            // Of `public.ordrs`, the table is the last part; of `ordrs.total`, the one before it.
            let mut names = readings.iter().skip(1).map(|(name, _)| name.table());
            let first = readings.first().map_or("", |(name, _)| name.table());
            let near = names.find_map(|name| {
                let near = facts.candidates(name);
                (!near.is_empty()).then_some(near)
            });
            let near = near.unwrap_or_else(|| facts.candidates(first));
            TargetAnswer::Missing {
                candidates: near.into_iter().map(full_name).collect(),
                is_ambiguous: false,
                is_answered: false,
            }
        }
    }
}

/// Removes the other columns of the table that one of the readings names, if that reading names a column.
fn keep_column(table: &mut TableInfo, readings: &[(TableName, Option<String>)]) {
    let is_table = |name: &TableName| name.table().to_lowercase() == table.name.to_lowercase();
    let column = readings
        .iter()
        .find(|(name, _)| is_table(name))
        .and_then(|(_, column)| column.as_ref());
    if let Some(wanted) = column {
        let wanted = wanted.to_lowercase();
        table
            .columns
            .retain(|column| column.name.to_lowercase() == wanted);
    }
}

/// Asks the database for what the files lack: tables, columns, the types of the database. Tables that it does not know
/// keep the answer of the files.
fn look_up_in_database(
    context: &ToolContext,
    connection: &ConnectionAccess,
    targets: &[EntityTarget],
    answers: &mut [TargetAnswer],
) -> Result<(), String> {
    let Some(database) = &connection.database else {
        return Ok(());
    };
    let is_open = |answer: &TargetAnswer| match answer {
        TargetAnswer::Found(described) => !described.origin.is_exact(),
        TargetAnswer::MissingColumn(_) => true,
        TargetAnswer::Missing { is_ambiguous, .. } => !is_ambiguous,
    };
    let mut open: Vec<(&EntityTarget, &mut TargetAnswer)> = targets
        .iter()
        .zip(answers)
        .filter(|(_, answer)| is_open(answer))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let wanted = |(target, _): &(&EntityTarget, &mut TargetAnswer)| -> LookupTarget {
        let readings = target.interpretations().into_iter();
        readings
            .map(|(name, column)| (name.parts().to_vec(), column))
            .collect()
    };
    let wanted: Vec<LookupTarget> = open.iter().map(wanted).collect();
    let found = context
        .scope
        .sql_workers
        .look_up(database, STATEMENT_TIMEOUT, wanted)
        .map_err(|error| error.to_string())?;
    let described = |table: TableInfo| DescribedTable {
        // A view that cannot be read has no columns here.
        is_proof: table.error.is_none(),
        table,
        origin: FactOrigin::Connection,
        source: "the database".into(),
    };
    for ((_, answer), found) in open.iter_mut().zip(found) {
        match (found, &mut **answer) {
            (TableLookup::Found(table), answer) => *answer = TargetAnswer::Found(described(table)),
            (TableLookup::MissingColumn(table), answer)
                if !matches!(answer, TargetAnswer::Found(_)) =>
            {
                *answer = TargetAnswer::MissingColumn(described(table));
            }
            (
                TableLookup::Ambiguous(tables),
                TargetAnswer::Missing {
                    candidates,
                    is_ambiguous,
                    ..
                },
            ) => {
                *is_ambiguous = true;
                *candidates = tables.iter().map(full_name).collect();
            }
            (
                TableLookup::MissingTable {
                    closest,
                    is_covered,
                },
                TargetAnswer::Missing {
                    candidates,
                    is_answered,
                    ..
                },
            ) => {
                *is_answered = is_covered;
                let closest = closest.map(|closest| TableName::parse(&closest));
                candidates.extend(closest.filter(|closest| !candidates.contains(closest)));
            }
            (
                TableLookup::MissingColumn(_)
                | TableLookup::Ambiguous(_)
                | TableLookup::MissingTable { .. },
                _,
            ) => {}
        }
    }
    Ok(())
}

/// The answer. A missing target is proven if what lacks it is complete: the database, or a scan of it.
fn details_reply(
    connection: &ConnectionAccess,
    (targets, answers): (&[EntityTarget], &[TargetAnswer]),
    notes: &[String],
    is_proven: impl Fn(&EntityTarget, &TargetAnswer) -> bool,
) -> ToolReply {
    let mut text = String::new();
    let (mut resolved, mut missing) = (Vec::new(), Vec::new());
    for (index, (target, answer)) in targets.iter().zip(answers).enumerate() {
        let label = target.label();
        let part = match answer {
            TargetAnswer::Found(described) => describe_table(described),
            TargetAnswer::MissingColumn(DescribedTable { table, source, .. }) => {
                let names: Vec<String> = table
                    .columns
                    .iter()
                    .map(|column| one_line(&column.name))
                    .collect();
                format!(
                    "Column not found: {label}\nAvailable columns, from {source}: {}",
                    names.join(", ")
                )
            }
            TargetAnswer::Missing {
                candidates,
                is_ambiguous,
                ..
            } => {
                let names: Vec<String> = candidates
                    .iter()
                    .map(|name| one_line(&name.to_string()))
                    .collect();
                match (names.is_empty(), is_ambiguous) {
                    (true, _) => format!("Not found: {label}"),
                    (false, true) => {
                        format!("Ambiguous: {label}\nAdd the schema: {}", names.join(", "))
                    }
                    (false, false) => {
                        format!("Not found: {label}\nClosest matches: {}", names.join(", "))
                    }
                }
            }
        };
        if !text.is_empty() && text.chars().count() + part.chars().count() > MAX_RESULT_CHARS {
            text.push_str(&format!(
                "\n\n[the first {index} targets are shown; look up the others in another call]"
            ));
            break;
        }
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&part);
        let proven = is_proven(target, answer);
        match answer {
            TargetAnswer::Found(described) => resolved.push(table_json(connection, described)),
            TargetAnswer::MissingColumn(described) => {
                let candidates = [name_json(&full_name(&described.table))];
                missing.push(json!({"target": label, "candidates": candidates, "proven": proven}));
            }
            TargetAnswer::Missing { candidates, .. } => {
                let candidates: Vec<Value> = candidates.iter().map(name_json).collect();
                missing.push(json!({"target": label, "candidates": candidates, "proven": proven}));
            }
        }
    }
    for note in notes {
        text.push_str("\n\n");
        text.push_str(note);
    }
    let structured = json!({"resolved": resolved, "missing": missing, "scanAvailable": true});
    ToolReply {
        markdown: text,
        structured: Some(structured),
        ..ToolReply::default()
    }
}

fn name_json(name: &TableName) -> Value {
    json!({"catalog": name.catalog(), "db": name.schema(), "name": name.table()})
}

/// A table in KTX's shape, with its origin. What the origin does not know is null.
fn table_json(connection: &ConnectionAccess, described: &DescribedTable) -> Value {
    let DescribedTable { table, origin, .. } = described;
    let known = |value: bool| origin.has_keys().then_some(value);
    let column = |column: &ColumnInfo| {
        let native = origin.has_native_types().then_some(&column.declared_type);
        json!({
            "name": column.name, "nativeType": native, "nullable": known(column.nullable),
            "primaryKey": known(column.is_key), "comment": column.comment, "sampleValues": column.samples,
        })
    };
    json!({
        "connectionId": connection.id, "catalog": table.catalog, "db": table.schema, "name": table.name,
        "display": full_name(table).to_string(), "kind": table.kind, "comment": table.comment,
        "rowCount": table.rows, "columns": table.columns.iter().map(column).collect::<Vec<_>>(),
        "origin": origin.name(), "proven": described.is_proof,
    })
}

fn describe_table(described: &DescribedTable) -> String {
    let DescribedTable {
        table,
        origin,
        source,
        ..
    } = described;
    let column = |column: &ColumnInfo| {
        let kind = match column.declared_type.is_empty() {
            true => "no type".to_owned(),
            false => one_line(&column.declared_type),
        };
        let nullable = match origin.has_keys() {
            true => format!(", nullable={}", column.nullable),
            false => String::new(),
        };
        let key = if column.is_key { ", PK" } else { "" };
        let samples = if column.samples.is_empty() {
            String::new()
        } else {
            format!(" - sample: {}", json!(column.samples))
        };
        let comment = column
            .comment
            .as_deref()
            .map_or_else(String::new, |text| format!(" - {}", shortened(text)));
        format!(
            "- {} ({kind}{nullable}{key}){samples}{comment}",
            one_line(&column.name)
        )
    };
    let rows = table
        .rows
        .map_or_else(String::new, |rows| format!(" | Rows: about {rows}"));
    let mut lines = vec![
        format!("### {}", one_line(&full_name(table).to_string())),
        format!("From {source}"),
        format!(
            "Type: {} | Native columns: {}{rows}",
            one_line(&table.kind),
            table.columns.len()
        ),
    ];
    if *origin == FactOrigin::DbtManifest {
        lines.push("dbt builds it; whether it exists is not known.".into());
    }
    if let Some(comment) = &table.comment {
        lines.push(format!("Description: {}", shortened(comment)));
    }
    if !table.foreign_keys.is_empty() {
        let keys: Vec<String> = table
            .foreign_keys
            .iter()
            .map(|key| one_line(&key.to_string()))
            .collect();
        lines.push(format!("Foreign keys: {}", keys.join(", ")));
    }
    if let Some(problem) = &table.error {
        lines.push(format!("Cannot be read: {problem}"));
    }
    lines.push("Columns:".into());
    lines.extend(table.columns.iter().map(column));
    lines.join("\n")
}

/// A comment on one line, cut if it is long.
fn shortened(comment: &str) -> String {
    let line = one_line(comment);
    match line.char_indices().nth(MAX_COMMENT_CHARS) {
        Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}
