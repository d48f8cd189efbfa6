//! The columns of a semantic model, and which of them identify a row. It must not know metrics or joins.

use std::collections::BTreeSet;

use super::{
    MeasureFormula, ModelEntity, ProjectedMeasure,
    expr::{column_and_expr, description},
};
use crate::{
    semantic_layer,
    yaml::{YamlNode, YamlValue},
};

#[derive(Debug)]
pub(super) struct ProjectedColumn {
    pub(super) name: String,
    /// The expression that computes the column, if it is not a plain column.
    pub(super) expr: Option<String>,
    /// Name in filters: that of the dimension or entity.
    pub(super) filter_name: Option<String>,
    pub(super) kind: &'static str,
    pub(super) is_hidden: bool,
    pub(super) description: Option<String>,
}

/// The dimensions and entities of the semantic model `node`, and the other columns that its measures use. Foreign entities
/// and columns of measures are hidden. A dimension has the name of its column, unless another dimension has it or a measure
/// computes with it. The second list names dimensions whose name another column has.
pub(super) fn columns_of(
    node: &YamlNode,
    entities: &[ModelEntity],
    measures: &[ProjectedMeasure],
) -> (Vec<ProjectedColumn>, Vec<String>) {
    let mut columns: Vec<ProjectedColumn> = Vec::new();
    let mut without_name = Vec::new();
    let mut seen = BTreeSet::new();
    let key = key_of(node, entities);
    let used = used_columns(measures);
    let numbers: BTreeSet<String> = used
        .iter()
        .filter(|used| used.is_number)
        .map(|used| used.name.to_lowercase())
        .collect();
    for dimension in node.value.list("dimensions") {
        let Some((mut name, mut expr)) = column_and_expr(dimension) else {
            continue;
        };
        let called = dimension.text_at("name");
        let is_number = expr.is_none() && numbers.contains(&name.to_lowercase());
        if let Some(called) = called.filter(|called| {
            !called.eq_ignore_ascii_case(&name)
                && (is_number || seen.contains(&name.to_lowercase()))
        }) {
            expr = Some(std::mem::replace(&mut name, called.to_owned()));
        }
        if seen.insert(name.to_lowercase()) {
            let is_time = dimension.text_at("type") == Some("time");
            columns.push(ProjectedColumn {
                name,
                expr,
                filter_name: called.map(str::to_owned),
                kind: match is_number {
                    true => "number",
                    false if is_time => "time",
                    false => "string",
                },
                is_hidden: false,
                description: description(dimension),
            });
        } else if expr.is_some() {
            without_name.push(name);
        }
    }
    for entity in entities {
        if seen.insert(entity.column.to_lowercase()) {
            columns.push(ProjectedColumn {
                name: entity.column.clone(),
                expr: entity.expr.clone(),
                filter_name: Some(entity.name.clone()),
                kind: "string",
                is_hidden: !entity.identifies_rows() && !key.contains(&entity.column),
                description: entity.description.clone(),
            });
        }
    }
    for UsedColumn { name, is_number } in used {
        if seen.insert(name.to_lowercase()) {
            columns.push(ProjectedColumn {
                name,
                expr: None,
                filter_name: None,
                kind: if is_number { "number" } else { "string" },
                is_hidden: true,
                description: None,
            });
        }
    }
    (columns, without_name)
}

/// A column that a measure uses.
struct UsedColumn {
    name: String,
    /// The measure adds its values up as they are.
    is_number: bool,
}

/// The columns that `measures` use. First are those that a measure aggregates as they are, whose type is known.
fn used_columns(measures: &[ProjectedMeasure]) -> Vec<UsedColumn> {
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for measure in measures {
        let MeasureFormula::Aggregate {
            function, column, ..
        } = &measure.formula
        else {
            continue;
        };
        for name in semantic_layer::referenced_columns(column) {
            let is_plain = name == *column;
            let is_number = is_plain && matches!(*function, "sum" | "avg" | "median");
            let list = if is_plain { &mut plain } else { &mut others };
            list.push(UsedColumn { name, is_number });
        }
    }
    plain.append(&mut others);
    plain
}

/// The columns that identify a row of the semantic model `node`: the primary entity, else the entity that
/// `primary_entity` names, else a unique one, else a natural one with the beginning of the validity of a row.
pub(super) fn key_of(node: &YamlNode, entities: &[ModelEntity]) -> Vec<String> {
    let of_kind = |kind: &str| entities.iter().find(|entity| entity.kind == kind);
    let named = || {
        let name = node.text_at("primary_entity")?;
        entities.iter().find(|entity| entity.name == name)
    };
    if let Some(entity) = of_kind("primary")
        .or_else(named)
        .or_else(|| of_kind("unique"))
    {
        return vec![entity.column.clone()];
    }
    let Some(natural) = of_kind("natural") else {
        return Vec::new();
    };
    let is_start = |dimension: &&YamlNode| {
        let params = dimension.get("type_params").unwrap_or(dimension);
        params
            .get("validity_params")
            .and_then(|validity| validity.get("is_start"))
            .is_some_and(|is| is.value == YamlValue::Bool(true))
    };
    let start = node.value.list("dimensions").find(is_start);
    let start = start.and_then(column_and_expr).map(|(column, _)| column);
    [Some(natural.column.clone()), start]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::{super::SemanticFile, project_models};
    use crate::yaml::{self, YamlValue};

    /// Grain, visible columns and hidden columns of the first source, and why definitions were skipped.
    fn projected(text: &str) -> [String; 4] {
        let root = yaml::from_str::<YamlValue>(text).unwrap();
        let projection = project_models(&[("a.yml", SemanticFile::read(&root))]);
        let doc = &projection.sources[0].doc;
        let is_hidden = |column: &&Value| column.get("visibility").is_some();
        let columns = doc["columns"].as_array().unwrap();
        let (hidden, visible): (Vec<&Value>, Vec<&Value>) = columns.iter().partition(is_hidden);
        let shown = |columns: Vec<&Value>| {
            let text = |column: &Value| {
                let of = |key: &str| column[key].as_str().unwrap().to_owned();
                format!("{} {}", of("name"), of("type"))
            };
            columns.into_iter().map(text).collect::<Vec<_>>().join(", ")
        };
        let grain: Vec<&str> = doc["grain"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let skipped: Vec<&str> = projection.skipped.iter().map(|(_, why)| &**why).collect();
        [
            grain.join(", "),
            shown(visible),
            shown(hidden),
            skipped.join("; "),
        ]
    }

    fn of_entities(entities: &str, more: &str) -> [String; 4] {
        projected(&format!(
            "semantic_models:\n  - name: visits\n    model: ref('visits')\n    entities: [{entities}]\n    \
             dimensions: [{{name: kind, type: categorical}}, {{name: since, type: time, type_params: {{validity_params: \
             {{is_start: true}}}}}}]\n    {more}\n"
        ))
    }

    #[test]
    fn primary_entity_is_the_grain_and_visible() {
        let orders = "
semantic_models:
  - name: orders
    model: ref('orders')
    entities:
      - {name: order_id, type: primary}
      - {name: location, type: foreign, expr: location_id}
    dimensions:
      - {name: ordered_at, expr: ordered_at, type: time, type_params: {time_granularity: day}}
      - {name: order_total_dim, type: categorical, expr: order_total}
      - {name: is_food_order, type: categorical}
    measures:
      - {name: order_total, agg: sum}
      - {name: order_count, expr: 1, agg: sum}
      - {name: tax_paid, agg: sum}
      - {name: food_tax, agg: sum, expr: case when is_food_order then tax_paid else levy end}
      - {name: stores, agg: count_distinct, expr: store}
";
        let expected = [
            "order_id",
            "ordered_at time, order_total_dim number, is_food_order string, order_id string",
            "location_id string, order_total number, tax_paid number, store string, levy string",
            "",
        ];
        assert_eq!(projected(orders), expected);
        let latest = "
models:
  - name: orders
    semantic_model: true
    columns:
      - {name: ordered_at, dimension: {type: time}}
      - {name: order_total, dimension: {type: categorical, name: order_total_dim}}
      - {name: is_food_order, dimension: categorical}
      - {name: order_id, entity: primary}
      - {name: location_id, entity: {type: foreign, name: location}}
    metrics:
      - {name: order_total, agg: sum}
      - {name: order_count, expr: 1, agg: sum}
      - {name: tax_paid, agg: sum}
      - {name: food_tax, agg: sum, expr: case when is_food_order then tax_paid else levy end}
      - {name: stores, agg: count_distinct, expr: store}
";
        assert_eq!(projected(latest), expected);
    }

    #[test]
    fn grain_without_a_primary_entity_is_the_best_key() {
        let place = "{name: place, type: foreign, expr: place_id}";
        let unique = "{name: ticket, type: unique, expr: ticket_no}";
        let natural = "{name: guest, type: natural, expr: guest_id}";
        let grain = |entities: &str, more: &str| of_entities(entities, more)[0].clone();
        assert_eq!(
            grain(&format!("{place}, {unique}, {natural}"), ""),
            "ticket_no"
        );
        assert_eq!(
            grain(&format!("{place}, {unique}"), "primary_entity: place"),
            "place_id"
        );
        assert_eq!(grain(&format!("{place}, {natural}"), ""), "guest_id, since");
        assert_eq!(
            grain("{name: line, type: primary, expr: \"a || '-' || b\"}", ""),
            "line"
        );
        let [grain, visible, hidden, skipped] = of_entities(place, "primary_entity: visit");
        assert_eq!(
            (grain.as_str(), visible.as_str(), hidden.as_str()),
            ("kind, since", "kind string, since time", "place_id string")
        );
        assert_eq!(
            skipped,
            "semantic model visits has no entity that identifies a row; all of its dimensions became the grain"
        );
    }
}
