//! Names in the YAML of dbt projects, with MetricFlow's semantic models and metrics: what a file defines, and what it
//! refers to. Measures and metrics have one kind of name, because a metric may name either.
//!
//! Must not read files.

use std::collections::BTreeSet;

use super::{FileReferences, add_name, calls};
use crate::yaml::{YamlError, YamlNode, YamlValue, parse_source_file};

/// Facts of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct DbtYamlNames {
    pub(in crate::source) defines: BTreeSet<String>,
    pub(in crate::source) refers_to: FileReferences,
    /// Models that the file describes.
    pub(in crate::source) models: Vec<DescribedModel>,
}

/// A model and the names that its SQL file may have, without the extension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct DescribedModel {
    pub(in crate::source) file_stems: Vec<String>,
}

/// Types of entities that identify the rows of their semantic model. Others refer to an entity of another one.
const OWN_ENTITIES: [&str; 3] = ["primary", "unique", "natural"];
/// Keys of metrics whose values name measures or metrics.
const METRIC_INPUTS: [&str; 12] = [
    "measure",
    "measures",
    "metric",
    "metrics",
    "numerator",
    "denominator",
    "base_measure",
    "conversion_measure",
    "base_metric",
    "conversion_metric",
    "input_metric",
    "input_metrics",
];

/// Reads the names in `text`, which is YAML.
pub(in crate::source) fn read(text: &str) -> Result<DbtYamlNames, YamlError> {
    let root = parse_source_file(text)?;
    let mut names = DbtYamlNames::default();
    names.read_root(&root);
    add_calls(&root, &mut names.refers_to);
    Ok(names)
}

/// Adds the calls in all values.
fn add_calls(root: &YamlNode, found: &mut FileReferences) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        match &node.value {
            YamlValue::Text(text) => calls::add_value_calls(text, found),
            YamlValue::List(nodes) => open.extend(nodes),
            YamlValue::Map(entries) => open.extend(entries.iter().map(|entry| &entry.value)),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_) => {}
        }
    }
}

impl DbtYamlNames {
    fn define(&mut self, kind: &str, name: &str) {
        add_name(&mut self.defines, kind, name);
    }

    fn read_root(&mut self, root: &YamlNode) {
        for node in root.value.list("models") {
            self.read_model(node);
        }
        for node in ["seeds", "snapshots"]
            .into_iter()
            .flat_map(|key| root.value.list(key))
        {
            if let Some(name) = node.text_at("name") {
                self.define("model", name);
                self.refers_to.add("model", name);
            }
        }
        for source in root.value.list("sources") {
            let Some(name) = source.text_at("name") else {
                continue;
            };
            for table in source
                .value
                .list("tables")
                .filter_map(|table| table.text_at("name"))
            {
                self.define("source", &format!("{name}.{table}"));
            }
        }
        for node in root.value.list("unit_tests") {
            if let Some(model) = node.text_at("model") {
                self.refers_to.add("model", model);
            }
        }
        for node in root.value.list("semantic_models") {
            if let Some(name) = node.text_at("name") {
                self.define("semantic_model", name);
            }
            self.read_semantic_model(node);
        }
        for node in root.value.list("metrics") {
            self.read_metric(node);
        }
        for node in root.value.list("saved_queries") {
            self.read_inputs(node);
        }
    }

    fn read_model(&mut self, node: &YamlNode) {
        let Some(name) = node.text_at("name") else {
            return;
        };
        self.define("model", name);
        // The file describes the model, so it refers to the SQL of the model.
        self.refers_to.add("model", name);
        let mut file_stems = vec![name.to_owned()];
        for version in node.value.list("versions") {
            let number = match version.get("v").map(|node| &node.value) {
                Some(YamlValue::Int(number)) => number.to_string(),
                Some(YamlValue::Float(number)) => number.to_string(),
                Some(YamlValue::Text(text)) => text.clone(),
                _ => continue,
            };
            file_stems.extend([format!("{name}_v{number}"), format!("{name}.v{number}")]);
            file_stems.extend(version.text_at("defined_in").map(str::to_owned));
        }
        self.models.push(DescribedModel { file_stems });
        // The latest form of MetricFlow has the parts of semantic models in models.
        self.read_semantic_model(node);
        for metric in node.value.list("metrics") {
            self.read_metric(metric);
        }
        for column in node.value.list("columns") {
            let Some(entity) = column.get("entity") else {
                continue;
            };
            let kind = entity.as_text().or_else(|| entity.text_at("type"));
            self.read_entity(
                kind,
                entity.text_at("name").or_else(|| column.text_at("name")),
            );
        }
        if let Some(semantic_model) = node.get("semantic_model") {
            self.define(
                "semantic_model",
                semantic_model.text_at("name").unwrap_or(name),
            );
        }
        let derived = node.get("derived_semantics");
        for entity in derived
            .into_iter()
            .flat_map(|node| node.value.list("entities"))
        {
            self.read_entity(entity.text_at("type"), entity.text_at("name"));
        }
    }

    fn read_semantic_model(&mut self, node: &YamlNode) {
        for parent in names_at(node, "extends") {
            self.refers_to.add("semantic_model", parent);
        }
        for measure in node
            .value
            .list("measures")
            .filter_map(|measure| measure.text_at("name"))
        {
            self.define("metric", measure);
        }
        if let Some(entity) = node.text_at("primary_entity") {
            self.define("entity", entity);
        }
        for entity in node.value.list("entities") {
            self.read_entity(entity.text_at("type"), entity.text_at("name"));
        }
    }

    fn read_entity(&mut self, kind: Option<&str>, name: Option<&str>) {
        let Some(name) = name else { return };
        if kind.is_some_and(|kind| OWN_ENTITIES.contains(&kind)) {
            self.define("entity", name);
        } else {
            self.refers_to.add_open("entity", name);
        }
    }

    fn read_metric(&mut self, node: &YamlNode) {
        if let Some(name) = node.text_at("name") {
            self.define("metric", name);
        }
        self.read_inputs(node);
    }

    /// Reads the inputs of a metric at any depth: older and newer forms nest them differently.
    fn read_inputs(&mut self, node: &YamlNode) {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            match &node.value {
                YamlValue::List(nodes) => open.extend(nodes),
                YamlValue::Map(entries) => {
                    for entry in entries {
                        if METRIC_INPUTS.contains(&entry.key.as_str()) {
                            input_names(&entry.value)
                                .for_each(|name| self.refers_to.add("metric", name));
                        }
                        open.push(&entry.value);
                    }
                }
                _ => {}
            }
        }
    }
}

/// A name, a map with a name, or a list of them.
fn input_names(node: &YamlNode) -> impl Iterator<Item = &str> {
    let list = match &node.value {
        YamlValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    list.iter()
        .filter_map(|node| node.as_text().or_else(|| node.text_at("name")))
}

fn names_at<'a>(node: &'a YamlNode, key: &str) -> impl Iterator<Item = &'a str> {
    node.get(key).into_iter().flat_map(input_names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(text: &str) -> (String, String) {
        let names = read(text).unwrap();
        let joined = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
        let mut refers_to = names.refers_to;
        refers_to.names.append(&mut refers_to.open_names);
        (joined(names.defines), joined(refers_to.names))
    }

    #[test]
    fn dbt_yaml_names_are_read() {
        let text = r#"
version: 2
x-common: &tests
  - relationships: {to: "ref('customers')", field: id}
models:
  - name: orders   # ref('comment')
    description: "{{ doc('orders') }}"
    versions: [{v: 1}, {v: 2, defined_in: orders_new}]
    columns:
      - name: customer_id
        data_tests: *tests
      - name: x
        tests:
          - relationships:
              to: source("raw", "x")
  - name: payments
seeds: [{name: country_codes}]
sources:
  - name: raw
    tables: [{name: orders}, {name: x}]
exposures:
  - name: board
    depends_on:
      - ref('m', v=2)
      - ref("pkg", "p")
unit_tests:
  - {name: t, model: totals, given: [{input: ref('input')}]}
"#;
        let (defines, refers_to) = lists(text);
        assert_eq!(
            defines,
            "model:country_codes model:orders model:payments source:raw.orders source:raw.x"
        );
        assert_eq!(
            refers_to,
            "doc:orders model:country_codes model:customers model:input model:m model:orders model:p model:payments \
             model:totals source:raw.x"
        );
        let stems: Vec<String> = read(text)
            .unwrap()
            .models
            .into_iter()
            .flat_map(|model| model.file_stems)
            .collect();
        assert_eq!(
            stems.join(" "),
            "orders orders_v1 orders.v1 orders_v2 orders.v2 orders_new payments"
        );
    }

    #[test]
    fn semantic_yaml_names_are_read() {
        let text = "
semantic_models:
  - name: orders
    model: ref('orders')
    extends: [base]
    entities: [{name: order, type: primary}, {name: customer, type: foreign}]
    measures: [{name: revenue}]
metrics:
  - {name: aov, type: ratio, type_params: {numerator: revenue, denominator: {name: order_count}}}
  - {name: growth, type: derived, type_params: {metrics: [{name: aov}, other]}}
  - name: food
    type: simple
    type_params: {measure: {name: food_revenue, filter: \"{{ Dimension('order__is_food') }}\"}}
";
        let (defines, refers_to) = lists(text);
        assert_eq!(
            defines,
            "entity:order metric:aov metric:food metric:growth metric:revenue semantic_model:orders"
        );
        assert_eq!(
            refers_to,
            "entity:customer entity:order metric:aov metric:food_revenue metric:order_count metric:other metric:revenue \
             model:orders semantic_model:base"
        );
        let latest = "models:
  - name: calls
    semantic_model: true
    derived_semantics: {entities: [{name: port, type: unique, expr: a || b}]}
    primary_entity: call
    columns: [{name: call_id, entity: {type: primary, name: call}}, {name: vessel, entity: foreign}]
    metrics: [{name: count, type: simple, agg: count}, {name: rate, type: ratio, numerator: count, denominator: total}]
";
        let (defines, refers_to) = lists(latest);
        assert_eq!(
            defines,
            "entity:call entity:port metric:count metric:rate model:calls semantic_model:calls"
        );
        assert_eq!(
            refers_to,
            "entity:vessel metric:count metric:total model:calls"
        );
    }

    #[test]
    fn hostile_or_broken_yaml_has_no_names() {
        for text in ["models: [a\nb: 1", "a: 1\n---\nb: 2"] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in [
            "",
            "models: 3",
            "models: {name: x}",
            "- models",
            "models: [[[]]]",
            "sources: [{name: x, tables: y}]",
        ] {
            assert_eq!(lists(text), (String::new(), String::new()), "{text}");
        }
        let long = "x".repeat(2_000);
        let names = read(&format!(
            "models: [{{name: {long}}}, {{description: \"{{{{ ref('{long}') }}}}\"}}]"
        ))
        .unwrap();
        assert!(names.defines.is_empty() && names.refers_to.is_unknown);
    }
}
