//! The structure of a source: its fields and their types, the same as KTX's.
//!
//! One schema describes to the model which fields it may write, and validates tool arguments and files.
//! [`validate`](super::validate) checks which fields may be combined.

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::SourceDoc;
use crate::schema;

/// A source. A standalone one has either `table` or `sql`, a `grain` and `columns`; an overlay has neither `table` nor
/// `sql` and adds to the scanned table of its name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceDefinition {
    /// Name of the source, as the database spells it.
    #[schemars(length(min = 1, max = 200))]
    pub(crate) name: String,
    /// Descriptions of the source, by origin (`user`, `dbt`, `ai`).
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// Standalone only, for information; `table` and `sql` determine the kind of the source.
    pub(crate) source_type: Option<SourceType>,
    /// Standalone only: physical table or view, such as `public.orders`. Not together with `sql`.
    pub(crate) table: Option<String>,
    /// Standalone only: query that returns the rows. Not together with `table`.
    pub(crate) sql: Option<String>,
    /// Standalone only: scanned table that supplies types and descriptions of columns that are left out here.
    pub(crate) inherits_columns_from: Option<String>,
    /// Unqualified names of the columns that identify one row. Required for a standalone source.
    #[schemars(inner(length(min = 1)))]
    pub(crate) grain: Option<Vec<String>>,
    /// Standalone: every column. Overlay: computed columns only, with `expr` and `type`.
    pub(crate) columns: Option<Vec<ColumnDefinition>>,
    /// Overlay only: additional information about columns of the scanned table.
    pub(crate) column_overrides: Option<Vec<ColumnOverride>>,
    /// Relationships to other sources of the same connection.
    pub(crate) joins: Option<Vec<JoinDefinition>>,
    /// Aggregations over the rows of the source.
    pub(crate) measures: Option<Vec<MeasureDefinition>>,
    /// Named conditions that several measures share.
    pub(crate) segments: Option<Vec<SourceSegment>>,
    /// Overlay only: columns of the scanned table to leave out.
    pub(crate) exclude_columns: Option<Vec<String>>,
    /// Overlay only: `on` clauses of scanned joins to leave out, each as sl_read_source shows it.
    pub(crate) disable_joins: Option<Vec<String>>,
    /// Time column to use if a query names none.
    pub(crate) default_time_dimension: Option<TextFromDbt>,
    /// Standalone only: tags of the dbt model.
    pub(crate) tags: Option<TextListFromDbt>,
    /// Standalone only: how recent the rows are according to dbt.
    pub(crate) freshness: Option<SourceFreshness>,
    /// How queries use the source.
    pub(crate) usage: Option<TableUsage>,
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
    #[serde(rename = "type")]
    pub(crate) kind: Option<SourceColumnType>,
    /// `time` for the column that gives the time of a row.
    pub(crate) role: Option<ColumnRole>,
    /// Visibility of the column; sl_discover omits hidden columns.
    pub(crate) visibility: Option<Visibility>,
    /// Descriptions of the column, by origin.
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// SQL expression of a computed column.
    pub(crate) expr: Option<String>,
    /// Standalone only: finest step of a time column.
    pub(crate) natural_granularity: Option<String>,
    /// Standalone only: constraints that dbt tests.
    pub(crate) constraints: Option<ColumnConstraints>,
    /// Standalone only: possible values of the column, by origin.
    pub(crate) enum_values: Option<TextListFromDbt>,
    /// Standalone only: tests that the column passes.
    pub(crate) tests: Option<ColumnTests>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnOverride {
    /// Name of the column in the scanned table.
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// `time` for the column that gives the time of a row.
    pub(crate) role: Option<ColumnRole>,
    /// Visibility of the column; sl_discover omits hidden columns.
    pub(crate) visibility: Option<Visibility>,
    /// Descriptions of the column, by origin.
    pub(crate) descriptions: Option<BTreeMap<String, String>>,
    /// Constraints that dbt tests.
    pub(crate) constraints: Option<ColumnConstraints>,
    /// Possible values of the column, by origin.
    pub(crate) enum_values: Option<TextListFromDbt>,
    /// Tests that the column passes.
    pub(crate) tests: Option<ColumnTests>,
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
    pub(crate) alias: Option<String>,
    /// Origin of the join.
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
    pub(crate) filter: Option<String>,
    /// Segments of this source whose conditions also apply.
    #[schemars(inner(length(min = 1)))]
    pub(crate) segments: Option<Vec<String>>,
    /// What the measure counts, and what it does not.
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
    pub(crate) description: Option<String>,
}

// KTX ignores unknown fields in the types below.

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct TextFromDbt {
    pub(crate) dbt: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct TextListFromDbt {
    /// Texts; numbers need quotes.
    #[schemars(inner(length(min = 1)))]
    pub(crate) dbt: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct ColumnConstraints {
    pub(crate) dbt: Option<DbtConstraints>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct DbtConstraints {
    pub(crate) not_null: Option<bool>,
    pub(crate) unique: Option<bool>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct ColumnTests {
    pub(crate) dbt: Option<Vec<DbtTest>>,
    /// Names of tests by package.
    pub(crate) dbt_by_package: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct DbtTest {
    #[schemars(length(min = 1))]
    pub(crate) name: String,
    /// Package that defines it, such as `dbt` or `dbt_utils`.
    #[schemars(length(min = 1))]
    pub(crate) package: String,
    pub(crate) kwargs: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct SourceFreshness {
    pub(crate) dbt: Option<DbtFreshness>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct DbtFreshness {
    #[serde(default)]
    pub(crate) raw: Option<Value>,
    pub(crate) loaded_at_field: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TableUsage {
    pub(crate) narrative: String,
    pub(crate) frequency_tier: FrequencyTier,
    pub(crate) common_filters: Vec<String>,
    pub(crate) common_group_bys: Option<Vec<String>>,
    pub(crate) common_joins: Vec<UsageJoin>,
    /// Time in ISO 8601.
    pub(crate) stale_since: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FrequencyTier {
    High,
    Mid,
    Low,
    Unused,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct UsageJoin {
    pub(crate) table: String,
    pub(crate) on: Vec<String>,
}

static DEFINITION_SCHEMA: LazyLock<schema::ToolInputSchema> =
    LazyLock::new(schema::schema_for::<SourceDefinition>);

/// Sorts the fields of `doc`, and of the objects in its lists, in the order of the definition, so that all sources
/// have the same order.
pub(crate) fn order_fields(doc: SourceDoc) -> SourceDoc {
    order_by_schema(&DEFINITION_SCHEMA, doc)
}

fn order_by_schema(schema: &Map<String, Value>, mut doc: SourceDoc) -> SourceDoc {
    let fields = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let ordered_field = |(field, schema): (&String, &Value)| {
        let (field, value) = doc.shift_remove_entry(field)?;
        let items = schema.get("items").and_then(Value::as_object);
        let value = match (value, items) {
            (Value::Array(list), Some(items)) => list
                .into_iter()
                .map(|item| order_item_by_schema(items, item))
                .collect(),
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

/// A violation of the definition.
pub(super) struct FieldProblem {
    pub(super) text: String,
    /// True if KTX cannot load a source with it.
    pub(super) is_fatal: bool,
}

/// Parses `doc` as a definition. Problems with fields that KTX ignores leave the rest readable.
pub(super) fn parse_definition(doc: &SourceDoc) -> (Option<SourceDefinition>, Vec<FieldProblem>) {
    let mut value = Value::Object(doc.clone());
    let is_standalone = ["table", "sql"]
        .iter()
        .any(|key| doc.get(*key).is_some_and(|text| text != ""));
    let mut problems = Vec::new();
    let mut add = |texts: Vec<String>, is_ignored: fn(&str) -> bool| {
        let problem = |text: String| FieldProblem {
            is_fatal: !is_ignored(field_path(&text)),
            text,
        };
        problems.extend(texts.into_iter().map(problem));
    };
    add(
        schema::remove_unknown_fields(&DEFINITION_SCHEMA, &mut value),
        is_ignored_by_ktx,
    );
    add(schema::null_fields(&DEFINITION_SCHEMA, &value), may_be_null);
    let parsed = schema::validate(&DEFINITION_SCHEMA, &value)
        .and_then(|value| serde_json::from_value(value).map_err(|error| vec![error.to_string()]));
    match parsed {
        Ok(definition) => (Some(definition), problems),
        Err(texts) => {
            // KTX reads these fields of overlays only.
            let unread = |path: &str| {
                ["usage", "source_type"]
                    .iter()
                    .any(|field| path.starts_with(field))
            };
            add(texts, if is_standalone { unread } else { |_| false });
            (None, problems)
        }
    }
}

/// The path at the beginning of a problem.
fn field_path(problem: &str) -> &str {
    problem
        .strip_prefix('`')
        .and_then(|rest| rest.split('`').next())
        .unwrap_or_default()
}

/// KTX drops unknown fields of measures and segments, and moves `description` to `descriptions`.
fn is_ignored_by_ktx(path: &str) -> bool {
    path.starts_with("measures[")
        || path.starts_with("segments[")
        || path.rsplit('.').next() == Some("description")
}

/// KTX replaces these by empty values, or permits null.
fn may_be_null(path: &str) -> bool {
    let lists = ["columns", "joins", "measures", "grain", "descriptions"];
    lists.contains(&path) || path.ends_with(".descriptions")
}
