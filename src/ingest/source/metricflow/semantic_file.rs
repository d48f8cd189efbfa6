//! The semantic layer in one YAML file of a dbt project, in either form of MetricFlow's specification.
//!
//! In the latest form, models have the parts of semantic models: entities and dimensions are columns, and simple metrics
//! take the place of measures. dbt itself rewrites it to the form with `semantic_models`, and so does this module, so that
//! units and projections know one form. It must not interpret expressions.

use crate::yaml::{YamlEntry, YamlNode, YamlValue};

/// Texts of which a file contains one if it has a part of the semantic layer.
pub(super) const MARKERS: [&str; 4] = ["semantic_model", "metrics", "saved_queries", "time_spine"];
/// Parameters of metrics that were below `type_params`, with their names there.
const METRIC_PARAMS: [(&str, &str); 8] = [
    ("measure", "measure"),
    ("input_metric", "measure"),
    ("input_metrics", "metrics"),
    ("numerator", "numerator"),
    ("denominator", "denominator"),
    ("base_metric", "base_metric"),
    ("conversion_metric", "conversion_metric"),
    ("expr", "expr"),
];

/// The parts of a file, in its order.
#[derive(Clone, Debug, Default)]
pub(super) struct SemanticFile {
    pub(super) semantic_models: Vec<YamlNode>,
    /// Metrics, each with its parameters in `type_params`.
    pub(super) metrics: Vec<YamlNode>,
    pub(super) saved_queries: Vec<String>,
    /// Models that are time spines.
    pub(super) time_spines: Vec<String>,
}

impl SemanticFile {
    pub(super) fn read(root: &YamlValue) -> Self {
        let named = |key: &str| {
            let names = root.list(key).filter_map(|node| node.text_at("name"));
            names.map(str::to_owned).collect()
        };
        let mut file = Self {
            semantic_models: root.list("semantic_models").cloned().collect(),
            metrics: root
                .list("metrics")
                .map(|node| metric(node, None))
                .collect(),
            saved_queries: named("saved_queries"),
            time_spines: Vec::new(),
        };
        for model in root.list("models") {
            file.read_model(model);
        }
        file
    }

    fn read_model(&mut self, model: &YamlNode) {
        let Some(name) = model.text_at("name") else {
            return;
        };
        if model
            .get("time_spine")
            .is_some_and(|spine| spine.value != YamlValue::Null)
        {
            self.time_spines.push(name.to_owned());
        }
        let semantic_model = model.get("semantic_model");
        let is_off = |node: &YamlNode| node.value == YamlValue::Bool(false);
        if semantic_model
            .is_some_and(|node| is_off(node) || node.get("enabled").is_some_and(is_off))
        {
            return;
        }
        let metrics: Vec<&YamlNode> = model.value.list("metrics").collect();
        let has_model = semantic_model.is_some_and(|node| node.value != YamlValue::Null);
        if has_model {
            let measures = metrics.iter().filter_map(|node| measure(node)).collect();
            self.semantic_models
                .push(semantic_model_of(model, name, measures));
        }
        for node in metrics {
            let measure = measure(node).filter(|_| has_model);
            self.metrics.push(metric(node, measure.as_ref()));
        }
    }
}

fn text(text: &str) -> YamlNode {
    YamlNode {
        line: 1,
        value: YamlValue::Text(text.to_owned()),
    }
}

fn list(nodes: Vec<YamlNode>) -> YamlNode {
    YamlNode {
        line: 1,
        value: YamlValue::List(nodes),
    }
}

/// A map with the given keys.
fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Option<YamlNode>)>) -> YamlNode {
    let entries = entries.into_iter().filter_map(|(key, value)| {
        let value = value?;
        Some(YamlEntry {
            key: key.to_owned(),
            line: value.line,
            value,
        })
    });
    YamlNode {
        line: 1,
        value: YamlValue::Map(entries.collect()),
    }
}

/// `metric` with its parameters in `type_params`. A metric without a type is simple if it aggregates something: other
/// programs have lists of metrics, too.
fn metric(metric: &YamlNode, measure: Option<&YamlNode>) -> YamlNode {
    // Metrics before MetricFlow have no type either, and a method of calculation.
    let is_typed = metric.get("type").is_some() || metric.get("calculation_method").is_some();
    let YamlValue::Map(entries) = &metric.value else {
        return metric.clone();
    };
    let has_parameters = || {
        let mut keys = METRIC_PARAMS.iter().map(|(key, _)| *key).chain(["agg"]);
        keys.any(|key| metric.get(key).is_some())
    };
    let is_complete = is_typed && metric.get("type_params").is_some();
    let is_foreign = !is_typed && metric.get("type_params").is_none() && !has_parameters();
    if is_complete || is_foreign {
        return metric.clone();
    }
    let mut params: Vec<(&str, Option<YamlNode>)> = METRIC_PARAMS
        .iter()
        .map(|(key, param)| (*param, metric.get(key).cloned()))
        .collect();
    params.extend([(
        "measure",
        measure.and_then(|node| node.get("name")).cloned(),
    )]);
    let mut entries = entries.clone();
    let more = [
        ("type", (!is_typed).then(|| text("simple"))),
        (
            "type_params",
            metric.get("type_params").is_none().then(|| map(params)),
        ),
    ];
    if let YamlValue::Map(more) = map(more).value {
        entries.extend(more);
    }
    YamlNode {
        line: metric.line,
        value: YamlValue::Map(entries),
    }
}

/// The measure that a simple metric of a model is.
fn measure(metric: &YamlNode) -> Option<YamlNode> {
    let is_simple = metric.text_at("type").is_none_or(|kind| kind == "simple");
    let has_params = metric.get("type_params").is_some();
    let name = metric.get("name").filter(|_| is_simple && !has_params)?;
    Some(map([
        ("name", Some(name.clone())),
        ("agg", metric.get("agg").cloned()),
        ("expr", metric.get("expr").cloned()),
        ("description", metric.get("description").cloned()),
        ("agg_params", Some(metric.clone())),
        (
            "non_additive_dimension",
            metric.get("non_additive_dimension").cloned(),
        ),
    ]))
}

/// The semantic model in `model`, whose name is `name`.
fn semantic_model_of(model: &YamlNode, name: &str, measures: Vec<YamlNode>) -> YamlNode {
    let called = model
        .get("semantic_model")
        .and_then(|node| node.text_at("name"))
        .unwrap_or(name);
    let parts = |kind: &str, derived: &str| {
        let columns = model.value.list("columns");
        let mut parts: Vec<YamlNode> = columns
            .filter_map(|column| column_part(column, column.get(kind)?))
            .collect();
        let derived = model
            .get("derived_semantics")
            .into_iter()
            .flat_map(|node| node.value.list(derived));
        parts.extend(derived.cloned());
        list(parts)
    };
    map([
        ("name", Some(text(called))),
        ("description", model.get("description").cloned()),
        ("model", Some(text(&format!("ref('{name}')")))),
        ("primary_entity", model.get("primary_entity").cloned()),
        ("entities", Some(parts("entity", "entities"))),
        ("dimensions", Some(parts("dimension", "dimensions"))),
        ("measures", Some(list(measures))),
    ])
}

/// The entity or dimension that a column is: `part` is its type, or a map with it.
fn column_part(column: &YamlNode, part: &YamlNode) -> Option<YamlNode> {
    let name = column.get("name")?;
    let kind = match &part.value {
        YamlValue::Text(_) => part.clone(),
        YamlValue::Map(_) => part.get("type")?.clone(),
        _ => return None,
    };
    let own = |key: &str| part.get(key).cloned();
    Some(map([
        ("name", own("name").or_else(|| Some(name.clone()))),
        ("type", Some(kind)),
        ("expr", Some(name.clone())),
        ("validity_params", own("validity_params")),
        (
            "description",
            own("description").or_else(|| column.get("description").cloned()),
        ),
    ]))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{MetricflowAdapter, SourceAdapter as _};
    use crate::source::{
        ChunkedSource, SourceProjection,
        tests::{anywhere, tree_of},
    };

    fn cut(files: &[(&str, &str)]) -> (ChunkedSource, SourceProjection) {
        let (_dir, tree) = tree_of(files);
        (
            MetricflowAdapter.chunk(&tree, anywhere()).unwrap(),
            MetricflowAdapter.project_sources(&tree),
        )
    }

    const ORDERS: &str = "
models:
  - name: fct_orders
    description: One row an order.
    semantic_model:
      enabled: true
      name: orders
    agg_time_dimension: ordered_at
    primary_entity: order
    columns:
      - {name: order_id, description: The key, entity: {type: primary, name: order}}
      - {name: customer_id, entity: {type: foreign, name: customer}}
      - {name: ordered_at, granularity: day, dimension: {type: time, name: order_date, description: When}}
      - {name: status, dimension: categorical, description: State}
      - name: note
    derived_semantics:
      dimensions:
        - {name: is_large, type: categorical, expr: amount > 100}
      entities:
        - {name: line, type: foreign, expr: \"order_id || '-' || sku\"}
    metrics:
      - {name: order_count, agg: count, expr: order_id, label: Orders}
      - {name: revenue, type: simple, agg: sum, expr: amount, description: Gross}
      - {name: large_revenue, type: simple, agg: sum, expr: amount, filter: \"{{ Dimension('order__is_large') }} = true\"}
      - {name: typical, type: simple, agg: percentile, percentile: 0.5, expr: amount}
      - {name: p90, type: simple, agg: percentile, percentile: 0.9, expr: amount}
      - {name: stock, type: simple, agg: sum, expr: stock, non_additive_dimension: {name: order_date, window_agg: max}}
      - {name: aov, type: ratio, numerator: revenue, denominator: {name: order_count}}
      - {name: share, type: derived, expr: 100 * big / revenue, input_metrics: [{name: large_revenue, alias: big}, {name: revenue}]}
      - {name: running, type: cumulative, input_metric: revenue, window: 7 days}
";
    const CUSTOMERS: &str = "
models:
  - name: customers
    semantic_model: true
    columns: [{name: customer_id, entity: {type: primary, name: customer}}, {name: region, dimension: {type: categorical}}]
    metrics: [{name: customers, agg: count_distinct, expr: customer_id}]
";

    #[test]
    fn models_of_the_latest_form_become_sources() {
        let top = "metrics:\n  - {name: per_customer, type: ratio, numerator: revenue, denominator: customers}\n  \
                   - {name: lost, agg: sum, expr: x}\n";
        let (_, projection) = cut(&[
            ("customers.yml", CUSTOMERS),
            ("orders.yml", ORDERS),
            ("top.yml", top),
        ]);
        let docs: Vec<&_> = projection
            .sources
            .iter()
            .map(|source| &source.doc)
            .collect();
        insta::assert_json_snapshot!(docs);
        let skipped: Vec<String> = projection
            .skipped
            .iter()
            .map(|(path, why)| format!("{path}: {why}"))
            .collect();
        insta::assert_snapshot!(skipped.join("\n"));
    }

    #[test]
    fn both_forms_give_the_same_source() {
        let legacy = "
semantic_models:
  - name: orders
    description: One row an order.
    model: ref('fct_orders')
    entities:
      - {name: order, type: primary, expr: order_id, description: The key}
      - {name: customer, type: foreign, expr: customer_id}
    dimensions:
      - {name: order_date, type: time, expr: ordered_at, description: When}
    measures: [{name: revenue, agg: sum, expr: amount}]
metrics:
  - {name: revenue, type: simple, description: Gross, type_params: {measure: revenue}}
  - {name: per_order, type: derived, type_params: {expr: revenue / 2, metrics: [{name: revenue}]}}
";
        let latest = "
models:
  - name: fct_orders
    description: One row an order.
    semantic_model: {enabled: true, name: orders}
    columns:
      - {name: order_id, description: The key, entity: {type: primary, name: order}}
      - {name: customer_id, entity: {type: foreign, name: customer}}
      - {name: ordered_at, dimension: {type: time, name: order_date, description: When}}
    metrics:
      - {name: revenue, agg: sum, expr: amount, description: Gross}
metrics:
  - {name: per_order, type: derived, expr: revenue / 2, input_metrics: [{name: revenue}]}
";
        let of = |text: &str| -> Vec<Value> {
            let sources = cut(&[("a.yml", text)]).1.sources;
            sources
                .into_iter()
                .map(|source| json!(source.doc))
                .collect()
        };
        assert_eq!(of(latest), of(legacy));
        assert_eq!(of(latest).len(), 1);
    }

    #[test]
    fn every_part_of_the_semantic_layer_is_in_a_unit() {
        let (chunks, _) = cut(&[
            (
                "dbt.yml",
                "models: [{name: plain, description: no metrics}]",
            ),
            (
                "legacy.yml",
                "semantic_models: [{name: vessels, model: ref('v'), measures: [{name: vessel_count, agg: sum}]}]",
            ),
            (
                "off.yml",
                "models: [{name: off, semantic_model: {enabled: false}, metrics: [{name: none, agg: sum}]}]",
            ),
            ("calls.yml", CUSTOMERS),
            (
                "cross.yml",
                "metrics: [{name: rate, type: ratio, numerator: customers, denominator: vessel_count}]",
            ),
            (
                "queries.yml",
                "saved_queries: [{name: weekly, query_params: {metrics: [rate]}}]",
            ),
            (
                "spine.yml",
                "models: [{name: days, time_spine: {standard_granularity_column: day}}]",
            ),
        ]);
        let units: Vec<String> = chunks
            .units
            .iter()
            .map(|unit| {
                format!(
                    "{} [{}] {}",
                    unit.key,
                    unit.raw_files.join(" "),
                    unit.notes.as_deref().unwrap_or_default()
                )
            })
            .collect();
        assert_eq!(
            units,
            [
                "metricflow-customers [calls.yml cross.yml legacy.yml] MetricFlow component (semantic_models: customers, vessels; metrics: customers, rate)",
                "metricflow-days [spine.yml] MetricFlow component (time_spines: days)",
                "metricflow-weekly [queries.yml] MetricFlow component (saved_queries: weekly)",
            ]
        );
        let warnings = ingestdeck_core::diagnostic::to_lines(&chunks.warnings).join("\n");
        assert!(
            warnings.contains(" is in no unit: dbt.yml, off.yml;"),
            "{warnings}"
        );
    }
}
