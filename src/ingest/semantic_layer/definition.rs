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
    /// What it is, by who says so (`user`, `dbt`, `ai`).
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// For documentation only; `table` and `sql` decide.
    #[serde(default)]
    pub(crate) source_type: Option<SourceType>,
    /// Physical table or view, such as `public.orders`. Not together with sql.
    #[serde(default)]
    pub(crate) table: Option<String>,
    /// Query that yields the rows. Not together with table.
    #[serde(default)]
    pub(crate) sql: Option<String>,
    /// Scanned table whose columns fill in types and descriptions that are left out here.
    #[serde(default)]
    pub(crate) inherits_columns_from: Option<String>,
    /// Columns that identify one row; unqualified names.
    #[serde(default)]
    pub(crate) grain: Option<Vec<String>>,
    /// Standalone: every column. Overlay: computed columns only, with expr and type.
    #[serde(default)]
    pub(crate) columns: Option<Vec<ColumnDefinition>>,
    /// Overlay only: what to say about columns of the scanned table.
    #[serde(default)]
    pub(crate) column_overrides: Option<Vec<ColumnOverride>>,
    /// Relationships to other sources of the connection.
    #[serde(default)]
    pub(crate) joins: Option<Vec<JoinDefinition>>,
    /// Aggregations.
    #[serde(default)]
    pub(crate) measures: Option<Vec<MeasureDefinition>>,
    /// Named conditions that measures share.
    #[serde(default)]
    pub(crate) segments: Option<Vec<SourceSegment>>,
    /// Overlay only: columns to leave out.
    #[serde(default)]
    pub(crate) exclude_columns: Option<Vec<String>>,
    /// Overlay only: targets of scanned joins to leave out.
    #[serde(default)]
    pub(crate) disable_joins: Option<Vec<String>>,
    /// Time column to use where none is asked for.
    #[serde(default)]
    pub(crate) default_time_dimension: Option<Map<String, Value>>,
    /// Tags, by who says so.
    #[serde(default)]
    pub(crate) tags: Option<Map<String, Value>>,
    /// How recent the rows are, by who says so.
    #[serde(default)]
    pub(crate) freshness: Option<Map<String, Value>>,
    /// How it is used.
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
    /// Unqualified name.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Needed, unless inherits_columns_from supplies it.
    #[serde(default, rename = "type")]
    pub(crate) kind: Option<SourceColumnType>,
    /// `time` for the column that dates a row.
    #[serde(default)]
    pub(crate) role: Option<ColumnRole>,
    /// Who may see it.
    #[serde(default)]
    pub(crate) visibility: Option<Visibility>,
    /// What it means, by who says so.
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// SQL that computes it.
    #[serde(default)]
    pub(crate) expr: Option<String>,
    /// Finest step of a time column.
    #[serde(default)]
    pub(crate) natural_granularity: Option<String>,
    /// Tested constraints, by who says so.
    #[serde(default)]
    pub(crate) constraints: Option<Map<String, Value>>,
    /// Its values, by who says so.
    #[serde(default)]
    pub(crate) enum_values: Option<Map<String, Value>>,
    /// Tests that it passes.
    #[serde(default)]
    pub(crate) tests: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnOverride {
    /// Name of the column in the scanned table.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// `time` for the column that dates a row.
    #[serde(default)]
    pub(crate) role: Option<ColumnRole>,
    /// Who may see it.
    #[serde(default)]
    pub(crate) visibility: Option<Visibility>,
    /// What it means, by who says so.
    #[serde(default)]
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// Tested constraints, by who says so.
    #[serde(default)]
    pub(crate) constraints: Option<Map<String, Value>>,
    /// Its values, by who says so.
    #[serde(default)]
    pub(crate) enum_values: Option<Map<String, Value>>,
    /// Tests that it passes.
    #[serde(default)]
    pub(crate) tests: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinDefinition {
    /// Source to join.
    #[schemars(length(min = 1))]
    pub(crate) to: String,
    /// Condition: `local_column = target.column`.
    #[schemars(length(min = 1))]
    pub(crate) on: String,
    /// How many rows of the one meet how many of the other.
    pub(crate) relationship: JoinRelationship,
    /// Name of the target in queries, where it is joined twice.
    #[serde(default)]
    pub(crate) alias: Option<String>,
    /// Where the join comes from.
    #[serde(default)]
    pub(crate) source: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeasureDefinition {
    /// Name.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Aggregation, such as `sum(amount)`.
    #[schemars(length(min = 1))]
    pub(crate) expr: String,
    /// Condition on the rows that count.
    #[serde(default)]
    pub(crate) filter: Option<String>,
    /// Segments of this source that must hold.
    #[serde(default)]
    pub(crate) segments: Option<Vec<String>>,
    /// What it measures.
    #[serde(default)]
    pub(crate) description: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceSegment {
    /// Name.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Condition on columns of this source.
    #[schemars(length(min = 1))]
    pub(crate) expr: String,
    /// What it stands for.
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
    let of_field = |(field, schema): (&String, &Value)| {
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
    let mut sorted: SourceDoc = fields.filter_map(of_field).collect();
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
