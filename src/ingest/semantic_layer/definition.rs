//! The structure of a source: its fields and their types, the same as KTX's.
//!
//! One schema describes to the model which fields it may write, and validates tool arguments and files.
//! [`validate`](super::validate) checks which fields may be combined.

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::SourceDoc;
use crate::ingest::schema;

/// A source. A standalone one has either `table` or `sql`, a `grain` and `columns`; an overlay has neither `table` nor
/// `sql` and adds to the scanned table of its name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceDefinition {
    /// Name of the source, as the database spells it.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) name: String,
    /// Descriptions of the source, by origin (`user`, `dbt`, `ai`).
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// Standalone only, for information; `table` and `sql` determine the kind of the source.
    #[serde(default)]
    pub(crate) source_type: Option<SourceType>,
    /// Standalone only: physical table or view, such as `public.orders`. Not together with `sql`.
    #[serde(default)]
    pub(crate) table: Option<String>,
    /// Standalone only: query that returns the rows. Not together with `table`.
    #[serde(default)]
    pub(crate) sql: Option<String>,
    /// Standalone only: scanned table that supplies types and descriptions of columns that are left out here.
    #[serde(default)]
    pub(crate) inherits_columns_from: Option<String>,
    /// Unqualified names of the columns that identify one row. Required for a standalone source.
    #[serde(default)]
    pub(crate) grain: Option<Vec<String>>,
    /// Standalone: every column. Overlay: computed columns only, with `expr` and `type`.
    #[serde(default)]
    pub(crate) columns: Option<Vec<ColumnDefinition>>,
    /// Overlay only: additional information about columns of the scanned table.
    #[serde(default)]
    pub(crate) column_overrides: Option<Vec<ColumnOverride>>,
    /// Relationships to other sources of the same connection.
    #[serde(default)]
    pub(crate) joins: Option<Vec<JoinDefinition>>,
    /// Aggregations over the rows of the source.
    #[serde(default)]
    pub(crate) measures: Option<Vec<MeasureDefinition>>,
    /// Named conditions that several measures share.
    #[serde(default)]
    pub(crate) segments: Option<Vec<SourceSegment>>,
    /// Overlay only: columns of the scanned table to leave out.
    #[serde(default)]
    pub(crate) exclude_columns: Option<Vec<String>>,
    /// Overlay only: targets of joins of the scanned table to leave out.
    #[serde(default)]
    pub(crate) disable_joins: Option<Vec<String>>,
    /// Time column to use if a query names none.
    #[serde(default)]
    pub(crate) default_time_dimension: Option<Map<String, Value>>,
    /// Standalone only: tags, by origin.
    #[serde(default)]
    pub(crate) tags: Option<Map<String, Value>>,
    /// Standalone only: how recent the rows are, by origin.
    #[serde(default)]
    pub(crate) freshness: Option<Map<String, Value>>,
    /// How the source is used.
    #[serde(default)]
    pub(crate) usage: Option<Map<String, Value>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourceType {
    Table,
    Sql,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourceColumnType {
    String,
    Number,
    Time,
    Boolean,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnRole {
    Time,
    Default,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Visibility {
    Public,
    Internal,
    Hidden,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JoinRelationship {
    ManyToOne,
    OneToMany,
    OneToOne,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnDefinition {
    /// Unqualified name of the column.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Type of the column. Required, unless `inherits_columns_from` supplies it.
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<SourceColumnType>,
    /// `time` for the column that gives the time of a row.
    #[serde(default)]
    pub(crate) role: Option<ColumnRole>,
    /// Visibility of the column; sl_discover omits hidden columns.
    #[serde(default)]
    pub(crate) visibility: Option<Visibility>,
    /// Descriptions of the column, by origin.
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// SQL expression of a computed column.
    #[serde(default)]
    pub(crate) expr: Option<String>,
    /// Smallest time unit of a time column, such as `day`.
    #[serde(default)]
    pub(crate) natural_granularity: Option<String>,
    /// Tested constraints, by origin.
    #[serde(default)]
    pub(crate) constraints: Option<Map<String, Value>>,
    /// Possible values of the column, by origin.
    #[serde(default)]
    pub(crate) enum_values: Option<Map<String, Value>>,
    /// Tests that the column passes.
    #[serde(default)]
    pub(crate) tests: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnOverride {
    /// Name of the column in the scanned table.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// `time` for the column that gives the time of a row.
    #[serde(default)]
    pub(crate) role: Option<ColumnRole>,
    /// Visibility of the column; sl_discover omits hidden columns.
    #[serde(default)]
    pub(crate) visibility: Option<Visibility>,
    /// Descriptions of the column, by origin.
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// Tested constraints, by origin.
    #[serde(default)]
    pub(crate) constraints: Option<Map<String, Value>>,
    /// Possible values of the column, by origin.
    #[serde(default)]
    pub(crate) enum_values: Option<Map<String, Value>>,
    /// Tests that the column passes.
    #[serde(default)]
    pub(crate) tests: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinDefinition {
    /// Name of the source to join.
    #[schemars(length(min = 1))]
    pub(crate) to: String,
    /// Join condition: `local_column = target.column`.
    #[schemars(length(min = 1))]
    pub(crate) on: String,
    /// Number of rows on each side, from this source to the target.
    pub(crate) relationship: JoinRelationship,
    /// Name of the target in queries, if the target is joined more than once.
    #[serde(default)]
    pub(crate) alias: Option<String>,
    /// Origin of the join.
    #[serde(default)]
    pub(crate) source: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasureDefinition {
    /// Name of the measure.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Aggregation, such as `sum(amount)`.
    #[schemars(length(min = 1))]
    pub(crate) expr: String,
    /// Condition for the rows that are aggregated.
    #[serde(default)]
    pub(crate) filter: Option<String>,
    /// Segments of this source whose conditions also apply.
    #[serde(default)]
    pub(crate) segments: Option<Vec<String>>,
    /// What the measure counts, and what it does not.
    #[serde(default)]
    pub(crate) description: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceSegment {
    /// Name of the segment.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Condition on columns of this source.
    #[schemars(length(min = 1))]
    pub(crate) expr: String,
    /// What the condition means.
    #[serde(default)]
    pub(crate) description: Option<String>,
}

static DEFINITION_SCHEMA: LazyLock<schema::Schema> = LazyLock::new(schema::schema_for::<SourceDefinition>);

/// Sorts the fields of `doc`, and of the objects in its lists, in the order of the definition, so that all sources
/// have the same order.
pub(crate) fn order_fields(doc: SourceDoc) -> SourceDoc {
    order_by_schema(&DEFINITION_SCHEMA, doc)
}

fn order_by_schema(schema: &Map<String, Value>, mut doc: SourceDoc) -> SourceDoc {
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let ordered_field = |(field, schema): (&String, &Value)| {
        let (field, value) = doc.shift_remove_entry(field)?;
        let items = schema.get("items").and_then(Value::as_object);
        let value = match (value, items) {
            (Value::Array(list), Some(items)) => {
                list.into_iter().map(|item| order_item_by_schema(items, item)).collect()
            }
            (value, _) => value,
        };
        Some((field, value))
    };
    let mut sorted: SourceDoc = fields.filter_map(ordered_field).collect();
    sorted.extend(doc);
    sorted
}

fn order_item_by_schema(schema: &Map<String, Value>, item: Value) -> Value {
    match item {
        Value::Object(item) => Value::Object(order_by_schema(schema, item)),
        other => other,
    }
}

/// Parses `doc` as a definition. The error lists every problem, each with its field.
pub(super) fn parse_definition(doc: &SourceDoc) -> Result<SourceDefinition, Vec<String>> {
    let value = schema::validate(&DEFINITION_SCHEMA, &Value::Object(doc.clone()))?;
    serde_json::from_value(value).map_err(|error| vec![error.to_string()])
}
