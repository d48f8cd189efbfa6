//! Converts semantic models to semantic-layer sources, as KTX writes them before any unit runs: dimensions and entities
//! become columns, measures and the metrics of one model become measures, and foreign entities become joins.
//!
//! Definitions that a source cannot express are left to the units, with the reason: percentiles, cumulative and
//! conversion metrics, and metrics over several models, other periods or filtered inputs. This module must not know the
//! files of the semantic layer.

mod expr;
mod model_columns;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Map, Value as Json, json};

use self::{
    expr::{
        column_and_expr, description, expression, filter_sql, identifier, scalar_text,
        substitute_inputs, table_name,
    },
    model_columns::{ProjectedColumn, columns_of, key_of},
};
use super::{
    super::{ProjectedSource, SourceProjection},
    METRIC_TYPES, SemanticFile,
};
use crate::{
    untrusted_text::{squeezed_line, visible_path},
    yaml::{YamlNode, YamlValue},
};

/// Longest name in bytes of a table, and of a column in a join. Many short entities may refer to the same name.
const LONGEST_NAME: usize = 300;

/// Most bytes that all metrics together may add, because many short metrics may repeat a long expression.
const MOST_ADDED: usize = 32 << 20;

/// Converts the semantic models in `files`, which are raw files with their content.
pub(super) fn project_models(files: &[(&str, SemanticFile)]) -> SourceProjection {
    let mut models = SemanticModels::default();
    for (path, file) in files {
        for node in &file.semantic_models {
            models.add(path, node);
        }
    }
    let metrics = files
        .iter()
        .flat_map(|(path, file)| file.metrics.iter().map(move |node| (*path, node)));
    let metrics: Vec<MetricNode<'_>> = metrics
        .filter_map(|(path, node)| MetricNode::from_node(path, node))
        .collect();
    models.resolve(&metrics);
    models.into_projection()
}

#[derive(Debug, Default)]
struct SemanticModel {
    /// The file of the semantic model, then those of the metrics that became its measures.
    files: Vec<String>,
    /// The table or dbt model of the semantic model.
    table: String,
    description: Option<String>,
    columns: Vec<ProjectedColumn>,
    /// The columns that identify a row.
    grain: Vec<String>,
    /// Indices of the columns, by their name in filters.
    column_at: HashMap<String, usize>,
    entities: Vec<ModelEntity>,
    measures: Vec<ProjectedMeasure>,
    /// Indices of the measures, by name. Of duplicate names, the first.
    measure_at: HashMap<String, usize>,
}

#[derive(Debug)]
struct ModelEntity {
    name: String,
    kind: String,
    column: String,
    /// The expression of the measure, if it is not a plain column.
    expr: Option<String>,
    description: Option<String>,
}

#[derive(Debug)]
struct ProjectedMeasure {
    name: String,
    formula: MeasureFormula,
    description: Option<String>,
}

#[derive(Clone, Debug)]
enum MeasureFormula {
    Aggregate {
        function: &'static str,
        column: String,
        filter: Option<String>,
    },
    Derived(String),
}

/// A metric with a name and a type.
#[derive(Clone, Copy, Debug)]
struct MetricNode<'a> {
    path: &'a str,
    name: &'a str,
    kind: &'a str,
    node: &'a YamlNode,
}

/// A metric or measure that a metric is computed from.
#[derive(Debug)]
struct MetricInput {
    name: String,
    alias: Option<String>,
    /// The input has no filter and no other period.
    is_unmodified: bool,
}

/// A foreign entity of one model, and the primary entity of another that it refers to.
#[derive(Debug)]
struct EntityJoin<'a> {
    from: (&'a str, &'a str),
    to: (&'a str, &'a str),
}

#[derive(Debug, Default)]
struct SemanticModels {
    all: Vec<SemanticModel>,
    /// Bytes that metrics have added so far.
    added: usize,
    /// Names of the measures that a source cannot express.
    left_measures: BTreeSet<String>,
    skipped: Vec<(String, String)>,
}

impl SemanticModels {
    fn add(&mut self, path: &str, node: &YamlNode) {
        let Some(name) = node.text_at("name").map(squeezed_line) else {
            return;
        };
        let Some(about) = node
            .text_at("model")
            .map(table_name)
            .filter(|about| !identifier(about).is_empty())
        else {
            return self.skip(path, &format!("semantic model {name} names no model"));
        };
        if about.len() > LONGEST_NAME {
            return self.skip(
                path,
                &format!("semantic model {name} has a model of too long a name"),
            );
        }
        let entities = node
            .value
            .list("entities")
            .filter_map(ModelEntity::from_node);
        let (entities, too_long): (Vec<ModelEntity>, Vec<ModelEntity>) =
            entities.partition(|entity| entity.column.len() <= LONGEST_NAME);
        if !too_long.is_empty() {
            self.skip(
                path,
                &format!("semantic model {name} has entities of too long a name"),
            );
        }
        let mut measures = Vec::new();
        for node in node.value.list("measures") {
            match ProjectedMeasure::from_node(node) {
                Some(Ok(measure)) => measures.push(measure),
                Some(Err(why)) => {
                    self.left_measures
                        .extend(node.text_at("name").map(str::to_owned));
                    self.skip(path, &why);
                }
                None => {}
            }
        }
        let (columns, hidden) = columns_of(node, &entities, &measures);
        for dimension in hidden {
            let why = format!(
                "dimension {} of semantic model {name} has the name of another column",
                squeezed_line(&dimension)
            );
            self.skip(path, &why);
        }
        let mut grain = key_of(node, &entities);
        if grain.is_empty() {
            let dimensions = columns.iter().filter(|column| !column.is_hidden);
            grain.extend(dimensions.map(|column| column.name.clone()));
            if !grain.is_empty() {
                let why = format!(
                    "semantic model {name} has no entity that identifies a row; all of its dimensions became the grain"
                );
                self.skip(path, &why);
            }
        }
        let mut column_at = HashMap::new();
        for (at, column) in columns.iter().enumerate() {
            if let Some(called) = &column.filter_name {
                column_at.entry(called.clone()).or_insert(at);
            }
        }
        let (files, description) = (vec![path.to_owned()], description(node));
        let mut model = SemanticModel {
            files,
            table: about,
            description,
            columns,
            grain,
            column_at,
            entities,
            ..SemanticModel::default()
        };
        measures.into_iter().for_each(|measure| model.put(measure));
        self.all.push(model);
    }

    fn skip(&mut self, path: &str, why: &str) {
        self.skipped.push((path.to_owned(), why.to_owned()));
    }

    /// Converts the metrics of a single model to measures.
    fn resolve(&mut self, metrics: &[MetricNode<'_>]) {
        let mut measure_at: HashMap<String, usize> = HashMap::new();
        for (at, model) in self.all.iter().enumerate() {
            measure_at.extend(
                model
                    .measures
                    .iter()
                    .map(|measure| (measure.name.clone(), at)),
            );
        }
        // The model of each metric, and the expression for it there.
        let mut known: HashMap<&str, (usize, String)> = HashMap::new();
        let (simple, others): (Vec<&MetricNode<'_>>, Vec<_>) =
            metrics.iter().partition(|metric| metric.kind == "simple");
        for metric in simple {
            if self.left_measures.contains(metric.name)
                && !measure_at.contains_key(metric.name)
                && metric
                    .input("measure")
                    .is_some_and(|of| of.name == metric.name)
            {
                continue;
            }
            match self.add_simple(metric, &measure_at) {
                Ok(at) => {
                    known.insert(metric.name, (at, metric.name.to_owned()));
                    if let Some(key) = metric.null_key() {
                        let name = squeezed_line(metric.name);
                        let why = format!("metric {name} is without its {key}, which sources lack");
                        self.skip(metric.path, &why);
                    }
                }
                Err(why) => self.skip(metric.path, &why),
            }
        }
        for metric in others {
            match metric.kind {
                "derived" | "ratio" => self.add_derived(metric, &mut known),
                kind => self.skip(
                    metric.path,
                    &format!(
                        "{kind} metric {} has no counterpart",
                        squeezed_line(metric.name)
                    ),
                ),
            }
        }
    }

    /// A metric of one measure: a new measure, or the description of the measure with its name. Returns the place of the
    /// model; the error is the reason why a source cannot express the metric.
    fn add_simple(
        &mut self,
        metric: &MetricNode<'_>,
        measure_at: &HashMap<String, usize>,
    ) -> Result<usize, String> {
        let name = squeezed_line(metric.name);
        let Some(measure) = metric.input("measure") else {
            return Err(format!(
                "metric {name} names no measure, and is in no semantic model"
            ));
        };
        if !measure.is_unmodified {
            return Err(format!("the measure of metric {name} has a filter"));
        }
        let without_source = || {
            let measure = squeezed_line(&measure.name);
            format!("metric {name} is of measure {measure}, which no source has")
        };
        let (at, model) = measure_at
            .get(&measure.name)
            .and_then(|at| Some((*at, self.all.get_mut(*at)?)))
            .ok_or_else(without_source)?;
        let base = model
            .measure_at
            .get(&measure.name)
            .and_then(|at| model.measures.get_mut(*at))
            .ok_or_else(without_source)?;
        let is_own = metric.name == base.name;
        let description = description(metric.node).or_else(|| base.description.clone());
        let filters = metric.filters();
        if filters.is_empty() && is_own {
            base.description = description;
            model.add_file(metric.path);
            return Ok(at);
        }
        let MeasureFormula::Aggregate {
            function, column, ..
        } = base.formula.clone()
        else {
            return Err(has_other_name(&name));
        };
        let column_called = |name: &str| {
            let at = model.column_at.get(name)?;
            Some(model.columns.get(*at)?.name.clone())
        };
        let filter: Option<Vec<String>> = filters
            .iter()
            .map(|filter| filter_sql(filter, column_called))
            .collect();
        let Some(filter) = filter.map(|filter| filter.join(" AND ")) else {
            return Err(format!(
                "the filter of metric {name} is not about columns of its model"
            ));
        };
        let size = column.len() + filter.len() + description.as_ref().map_or(0, String::len);
        if !has_room(&mut self.added, size) {
            return Err(too_large(metric));
        }
        let formula = MeasureFormula::Aggregate {
            function,
            column,
            filter: Some(filter).filter(|filter| !filter.is_empty()),
        };
        if is_own {
            (base.formula, base.description) = (formula, description);
        } else if model.measure_at.contains_key(metric.name) {
            return Err(has_other_name(&name));
        } else {
            model.put(ProjectedMeasure {
                name: metric.name.to_owned(),
                formula,
                description,
            });
        }
        model.add_file(metric.path);
        Ok(at)
    }

    /// Converts a metric of other metrics, if they all belong to one model.
    fn add_derived<'a>(
        &mut self,
        metric: &MetricNode<'a>,
        known: &mut HashMap<&'a str, (usize, String)>,
    ) {
        let inputs = metric.inputs();
        let owners: BTreeSet<usize> = inputs
            .iter()
            .filter_map(|input| Some(known.get(input.name.as_str())?.0))
            .collect();
        let name = squeezed_line(metric.name);
        let is_known =
            |input: &MetricInput| input.is_unmodified && known.contains_key(input.name.as_str());
        let (Some(at), 1) = (owners.first().copied(), owners.len()) else {
            return self.skip(
                metric.path,
                &format!("metric {name} is not of one semantic model"),
            );
        };
        if !inputs.iter().all(is_known) || !metric.filters().is_empty() {
            return self.skip(
                metric.path,
                &format!("metric {name} is not made of whole measures"),
            );
        }
        let substitute = |input: &MetricInput| {
            known
                .get(input.name.as_str())
                .map_or_else(|| input.name.clone(), |(_, measure)| measure.clone())
        };
        let written = metric
            .node
            .get("type_params")
            .and_then(|params| scalar_text(params, "expr"));
        let expr = match (written, &*inputs) {
            (Some(expr), _) => substitute_inputs(&expr, &inputs, substitute),
            (None, [above, below]) if metric.kind == "ratio" => Some(format!(
                "{} / NULLIF({}, 0)",
                substitute(above),
                substitute(below)
            )),
            (None, _) => None,
        };
        let Some(expr) = expr.filter(|expr| !expr.trim().is_empty()) else {
            return self.skip(
                metric.path,
                &format!("metric {name} has no expression that can be used"),
            );
        };
        if !has_room(&mut self.added, expr.len()) {
            return self.skip(metric.path, &too_large(metric));
        }
        if let Some(model) = self.all.get_mut(at) {
            if model.measure_at.contains_key(metric.name) {
                return self.skip(metric.path, &has_other_name(&name));
            }
            let description = description(metric.node);
            model.add_file(metric.path);
            model.put(ProjectedMeasure {
                name: metric.name.to_owned(),
                formula: MeasureFormula::Derived(expr),
                description,
            });
            known.insert(metric.name, (at, metric.name.to_owned()));
        }
    }

    /// The joins of foreign entities, without duplicates, where both columns exist.
    fn relationships(&self) -> Vec<EntityJoin<'_>> {
        let mut primary: HashMap<&str, (&str, &str)> = HashMap::new();
        for model in &self.all {
            for entity in model
                .entities
                .iter()
                .filter(|entity| matches!(&*entity.kind, "primary" | "unique"))
            {
                primary.insert(&entity.name, (&model.table, &entity.column));
            }
        }
        let columns: BTreeMap<&str, BTreeSet<String>> = self
            .all
            .iter()
            .map(|model| {
                (
                    &*model.table,
                    model
                        .columns
                        .iter()
                        .map(|column| column.name.to_lowercase())
                        .collect(),
                )
            })
            .collect();
        let has = |(about, column): (&str, &str)| {
            columns
                .get(about)
                .is_some_and(|of| of.contains(&column.to_lowercase()))
        };
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for model in &self.all {
            for entity in model
                .entities
                .iter()
                .filter(|entity| entity.kind == "foreign")
            {
                let from = (&*model.table, &*entity.column);
                let Some(to) = primary
                    .get(&*entity.name)
                    .copied()
                    .filter(|to| to.0 != from.0)
                else {
                    continue;
                };
                if has(from)
                    && has(to)
                    && seen.insert([from.0, from.1, to.0, to.1].map(str::to_lowercase))
                {
                    found.push(EntityJoin { from, to });
                }
            }
        }
        found
    }

    fn into_projection(mut self) -> SourceProjection {
        let mut joins: HashMap<&str, Vec<Json>> = HashMap::new();
        for EntityJoin { from, to } in self.relationships() {
            let (source, target) = (identifier(from.0), identifier(to.0));
            let on = format!("{source}.{} = {target}.{}", from.1, to.1);
            joins
                .entry(from.0)
                .or_default()
                .push(json!({"to": target, "on": on, "relationship": "many_to_one"}));
        }
        let mut models: Vec<&SemanticModel> = Vec::new();
        let mut place_of: HashMap<String, usize> = HashMap::new();
        let mut replaced = Vec::new();
        for model in &self.all {
            let name = identifier(&model.table);
            match place_of.get(&name).and_then(|at| models.get_mut(*at)) {
                // As in KTX, the last one wins.
                Some(known) => {
                    let path = known.files.first().cloned().unwrap_or_default();
                    replaced.push((path, format!("another semantic model is about {name}, too")));
                    *known = model;
                }
                None => {
                    place_of.insert(name, models.len());
                    models.push(model);
                }
            }
        }
        let source =
            |model: &SemanticModel| model.source(joins.remove(&*model.table).unwrap_or_default());
        let sources = models.into_iter().map(source).collect();
        self.skipped.append(&mut replaced);
        SourceProjection {
            sources,
            skipped: self.skipped,
            ..SourceProjection::default()
        }
    }
}

impl SemanticModel {
    fn put(&mut self, measure: ProjectedMeasure) {
        self.measure_at
            .entry(measure.name.clone())
            .or_insert(self.measures.len());
        self.measures.push(measure);
    }

    /// Adds the file of a metric. Metrics are processed in the order of their files.
    fn add_file(&mut self, path: &str) {
        if [self.files.first(), self.files.last()]
            .into_iter()
            .flatten()
            .all(|known| known != path)
        {
            self.files.push(path.to_owned());
        }
    }

    fn source(&self, joins: Vec<Json>) -> ProjectedSource {
        let column = |column: &ProjectedColumn| {
            let mut map = json!({"name": column.name, "type": column.kind});
            if let Some(expr) = &column.expr {
                map["expr"] = json!(expr);
            }
            if column.is_hidden {
                map["visibility"] = "hidden".into();
            }
            if let Some(text) = &column.description {
                map["descriptions"] = json!({"dbt": text});
            }
            map
        };
        let name = identifier(&self.table);
        let doc = Map::from_iter([
            ("name".to_owned(), Json::from(&*name)),
            (
                "descriptions".to_owned(),
                json!({"dbt": self.description.as_ref().unwrap_or(&self.table)}),
            ),
            ("table".to_owned(), Json::from(&*self.table)),
            ("grain".to_owned(), json!(self.grain)),
            (
                "columns".to_owned(),
                self.columns.iter().map(column).collect(),
            ),
            ("joins".to_owned(), Json::Array(joins)),
            (
                "measures".to_owned(),
                self.measures
                    .iter()
                    .map(ProjectedMeasure::to_json)
                    .collect(),
            ),
        ]);
        ProjectedSource {
            name,
            files: self.files.clone(),
            doc,
        }
    }
}

impl ModelEntity {
    fn identifies_rows(&self) -> bool {
        matches!(&*self.kind, "primary" | "unique" | "natural")
    }

    fn from_node(node: &YamlNode) -> Option<Self> {
        let (name, (column, expr)) = (node.text_at("name")?.to_owned(), column_and_expr(node)?);
        let kind = node.text_at("type").unwrap_or_default().to_owned();
        Some(Self {
            name,
            kind,
            column,
            expr,
            description: description(node),
        })
    }
}

impl ProjectedMeasure {
    /// Parses a measure. The error is the reason why a source cannot express it; `None` if it has no name.
    fn from_node(node: &YamlNode) -> Option<Result<Self, String>> {
        let name = node.text_at("name")?.to_owned();
        if node.get("non_additive_dimension").is_some() {
            return Some(Err(format!(
                "measure {} has a non-additive dimension, which sources lack",
                squeezed_line(&name)
            )));
        }
        let percentile = || {
            let params = node.get("agg_params")?;
            scalar_text(params, "percentile")?.parse::<f64>().ok()
        };
        let function = match node.text_at("agg").unwrap_or_default() {
            "sum" | "sum_boolean" => "sum",
            "average" | "avg" => "avg",
            "count" => "count",
            "count_distinct" => "count_distinct",
            "min" => "min",
            "max" => "max",
            "median" => "median",
            "percentile" if percentile().is_none_or(|share| (share - 0.5).abs() < f64::EPSILON) => {
                "median"
            }
            other => {
                return Some(Err(format!(
                    "measure {} has aggregation `{}`, which sources lack",
                    squeezed_line(&name),
                    visible_path(other)
                )));
            }
        };
        let column = expression(node)?;
        let formula = MeasureFormula::Aggregate {
            function,
            column,
            filter: None,
        };
        Some(Ok(Self {
            name,
            formula,
            description: description(node),
        }))
    }

    fn to_json(&self) -> Json {
        let (expr, filter) = match &self.formula {
            MeasureFormula::Aggregate {
                function,
                column,
                filter,
            } => (format!("{function}({column})"), filter.as_ref()),
            MeasureFormula::Derived(expr) => (expr.clone(), None),
        };
        let mut map = json!({"name": self.name, "expr": expr});
        if let Some(filter) = filter {
            map["filter"] = json!(filter);
        }
        if let Some(text) = &self.description {
            map["description"] = json!(text);
        }
        map
    }
}

impl<'a> MetricNode<'a> {
    fn from_node(path: &'a str, node: &'a YamlNode) -> Option<Self> {
        let (name, kind) = (node.text_at("name")?, node.text_at("type")?);
        METRIC_TYPES.contains(&kind).then_some(Self {
            path,
            name,
            kind,
            node,
        })
    }

    /// The input at the parameter `key`.
    fn input(&self, key: &str) -> Option<MetricInput> {
        let node = self.node.get("type_params")?.get(key)?;
        MetricInput::from_node(node)
    }

    /// The key that gives the metric a value for times without rows.
    fn null_key(&self) -> Option<&'static str> {
        let measure = self
            .node
            .get("type_params")
            .and_then(|params| params.get("measure"));
        let has = |node: &YamlNode, key: &str| {
            let value = node.get(key).map(|node| &node.value);
            value.is_some_and(|value| !matches!(value, YamlValue::Null | YamlValue::Bool(false)))
        };
        ["fill_nulls_with", "join_to_timespine"]
            .into_iter()
            .find(|key| has(self.node, key) || measure.is_some_and(|measure| has(measure, key)))
    }

    /// The metrics that the metric is computed from.
    fn inputs(&self) -> Vec<MetricInput> {
        if self.kind == "ratio" {
            return ["numerator", "denominator"]
                .into_iter()
                .filter_map(|key| self.input(key))
                .collect();
        }
        let params = self.node.get("type_params");
        params
            .into_iter()
            .flat_map(|params| params.value.list("metrics"))
            .filter_map(MetricInput::from_node)
            .collect()
    }

    fn filters(&self) -> Vec<String> {
        let Some(filter) = self.node.get("filter") else {
            return Vec::new();
        };
        match &filter.value {
            YamlValue::Text(text) if text.is_empty() => Vec::new(),
            YamlValue::Text(text) => vec![text.clone()],
            YamlValue::List(nodes) => nodes
                .iter()
                .filter_map(YamlNode::as_text)
                .map(str::to_owned)
                .collect(),
            YamlValue::Map(_) => {
                let wheres = filter.value.list("where_filters");
                wheres
                    .filter_map(|node| node.text_at("where_sql_template"))
                    .map(str::to_owned)
                    .collect()
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_) => {
                Vec::new()
            }
        }
    }
}

impl MetricInput {
    fn from_node(node: &YamlNode) -> Option<Self> {
        let name = node.as_text().or_else(|| node.text_at("name"))?.to_owned();
        let is_plain = ["filter", "offset_window", "offset_to_grain"]
            .iter()
            .all(|key| node.get(key).is_none());
        Some(Self {
            name,
            alias: node.text_at("alias").map(str::to_owned),
            is_unmodified: is_plain,
        })
    }
}

/// Adds `size` to the total, if the limit permits it.
fn has_room(added: &mut usize, size: usize) -> bool {
    let has_room = added.saturating_add(size) <= MOST_ADDED;
    *added += if has_room { size } else { 0 };
    has_room
}

fn has_other_name(name: &str) -> String {
    format!("metric {name} has the name of another measure of its model")
}

fn too_large(metric: &MetricNode<'_>) -> String {
    format!(
        "metric {} would make the sources too large",
        squeezed_line(metric.name)
    )
}

#[cfg(test)]
mod tests {
    use super::{expr::MAX_EXPR_BYTES, *};
    use crate::yaml;

    fn projected(files: &[(&str, &str)]) -> SourceProjection {
        let files: Vec<(&str, SemanticFile)> = files
            .iter()
            .map(|(path, text)| {
                let root = yaml::from_str::<YamlValue>(text).unwrap();
                (*path, SemanticFile::read(&root))
            })
            .collect();
        project_models(&files)
    }

    const ORDERS: &str = r#"
semantic_models:
  - name: orders
    description: " One row an order. "
    model: ref('fct_Orders')
    entities:
      - {name: order_id, type: primary}
      - {name: customer, type: foreign, expr: customer_id, description: Who bought}
    dimensions:
      - {name: ordered_at, type: time, type_params: {time_granularity: day}, description: When}
      - {name: is_large, type: categorical, expr: is_large_order}
      - {name: month, type: time, expr: "date_trunc('month', o.ordered_at)"}
    measures:
      - {name: revenue, agg: sum, expr: amount, description: Gross}
      - {name: order_count, agg: sum, expr: 1}
      - {name: p90, agg: percentile, expr: amount, agg_params: {percentile: 0.9}}
      - {name: typical, agg: percentile, expr: amount}
"#;
    const CUSTOMERS: &str = r#"
semantic_models:
  - name: customers
    model: source("shop", "customers")
    entities: [{name: customer, type: primary, expr: customer_id}]
    dimensions: [{name: region, type: categorical}]
    measures: [{name: customer_count, agg: count_distinct, expr: customer_id}]
"#;
    const METRICS: &str = r#"
metrics:
  - {name: revenue, type: simple, description: All revenue, type_params: {measure: revenue}}
  - name: large_revenue
    type: simple
    type_params: {measure: {name: revenue}}
    filter: |
      {{ Dimension('order_id__is_large') }} = true
  - {name: orders, type: simple, type_params: {measure: order_count}}
  - {name: local, type: simple, type_params: {measure: order_count}, filter: "{{ Dimension('customer__region') }} = 'x'"}
  - {name: aov, type: ratio, type_params: {numerator: revenue, denominator: orders}}
  - {name: share, type: derived, type_params: {expr: 100 * big / revenue, metrics: [{name: large_revenue, alias: big}, {name: revenue}]}}
  - {name: running, type: cumulative, type_params: {measure: revenue}}
  - {name: growth, type: derived, type_params: {expr: a - b, metrics: [{name: revenue, alias: a}, {name: revenue, alias: b, offset_window: 1 month}]}}
  - {name: per_customer, type: ratio, type_params: {numerator: revenue, denominator: customers}}
  - {name: customers, type: simple, type_params: {measure: customer_count}}
  - {name: visits, type: conversion, type_params: {}}
"#;

    #[test]
    fn semantic_models_become_sources() {
        let projection = projected(&[
            ("a.yml", METRICS),
            ("m/customers.yml", CUSTOMERS),
            ("m/orders.yml", ORDERS),
        ]);
        insta::assert_json_snapshot!(
            projection
                .sources
                .iter()
                .map(|source| &source.doc)
                .collect::<Vec<_>>()
        );
        let files: Vec<_> = projection
            .sources
            .iter()
            .map(|source| (&*source.name, source.files.join(" ")))
            .collect();
        let expected = [
            ("customers", "m/customers.yml a.yml"),
            ("fct_orders", "m/orders.yml a.yml"),
        ];
        assert_eq!(
            files,
            expected.map(|(name, files)| (name, files.to_owned()))
        );
        let left_out: Vec<String> = projection
            .skipped
            .iter()
            .map(|(path, why)| format!("{path}: {why}"))
            .collect();
        insta::assert_snapshot!(left_out.join("\n"));
    }

    #[test]
    fn every_metric_is_a_measure_or_named() {
        let text = r#"
semantic_models:
  - name: orders
    model: ref('orders')
    entities: [{name: order_id, type: primary}]
    dimensions:
      - {name: ordered_at, type: time, expr: cast(ordered_at as date)}
      - {name: ordered_at_test, type: time, expr: ordered_at}
      - {name: order_total_dim, type: categorical, expr: order_total}
      - {name: status, type: categorical}
      - {name: status, type: categorical, expr: lower(status)}
    measures:
      - {name: order_total, agg: sum, description: Per order}
      - {name: order_count, agg: sum, expr: 1}
      - {name: p90, agg: percentile, agg_params: {percentile: 0.9}}
metrics:
  - {name: order_total, type: simple, type_params: {measure: order_total}}
  - {name: orders, type: simple, description: Count, type_params: {measure: order_count}}
  - {name: large, type: simple, type_params: {measure: order_count}, filter: "{{ Dimension('order_id__order_total_dim') }} >= 20"}
  - {name: filled, type: simple, description: Zero, type_params: {measure: {name: order_count, fill_nulls_with: 0, join_to_timespine: true}}}
  - {name: spined, type: simple, type_params: {measure: {name: order_count, join_to_timespine: true}}}
  - {name: twice, type: derived, type_params: {expr: 2 * filled, metrics: [filled]}}
  - {name: p90, type: simple, type_params: {measure: p90}}
  - {name: long_tail, type: simple, type_params: {measure: p90}}
  - {name: large, type: ratio, type_params: {numerator: order_total, denominator: orders}}
  - {name: average, type: ratio, type_params: {numerator: order_total, denominator: orders}}
"#;
        let projection = projected(&[("a.yml", text)]);
        let doc = &projection.sources[0].doc;
        let shown = |key: &str| {
            let list = doc[key].as_array().unwrap().iter();
            list.map(Json::to_string).collect::<Vec<_>>().join("\n")
        };
        let skipped: Vec<&str> = projection.skipped.iter().map(|(_, why)| &**why).collect();
        let parts = [shown("columns"), shown("measures"), skipped.join("\n")];
        insta::assert_snapshot!(parts.join("\n\n"), @r#"
        {"name":"ordered_at","type":"time","expr":"cast(ordered_at as date)"}
        {"name":"ordered_at_test","type":"time","expr":"ordered_at"}
        {"name":"order_total_dim","type":"number","expr":"order_total"}
        {"name":"status","type":"string"}
        {"name":"order_id","type":"string"}
        {"name":"order_total","type":"number","visibility":"hidden"}

        {"name":"order_total","expr":"sum(order_total)","description":"Per order"}
        {"name":"order_count","expr":"sum(1)"}
        {"name":"orders","expr":"sum(1)","description":"Count"}
        {"name":"large","expr":"sum(1)","filter":"order_total_dim >= 20"}
        {"name":"filled","expr":"sum(1)","description":"Zero"}
        {"name":"spined","expr":"sum(1)"}
        {"name":"twice","expr":"2 * filled"}
        {"name":"average","expr":"order_total / NULLIF(orders, 0)"}

        measure p90 has aggregation `percentile`, which sources lack
        dimension status of semantic model orders has the name of another column
        metric filled is without its fill_nulls_with, which sources lack
        metric spined is without its join_to_timespine, which sources lack
        metric long_tail is of measure p90, which no source has
        metric large has the name of another measure of its model
        "#);
    }

    #[test]
    fn metric_of_a_left_measure_uses_the_one_of_another_model() {
        let text = r#"
semantic_models:
  - name: visits
    model: ref('fct_visits')
    entities: [{name: visit_id, type: primary}]
    measures:
      - {name: total, agg: percentile, agg_params: {percentile: 0.9}}
  - name: sales
    model: ref('fct_sales')
    entities: [{name: sale_id, type: primary}]
    measures:
      - {name: total, agg: sum, expr: amount}
metrics:
  - {name: total, type: simple, description: All sales, type_params: {measure: total}}
"#;
        let projection = projected(&[("a.yml", text)]);
        let is_described = |source: &ProjectedSource| {
            let measures = source.doc.get("measures").map(Json::to_string);
            measures.is_some_and(|measures| measures.contains("All sales"))
        };
        assert!(
            projection.sources.iter().any(is_described),
            "{projection:?}"
        );
    }

    #[test]
    fn metric_inputs_are_substituted_in_one_bounded_pass() {
        let input = |name: &str, alias: Option<&str>| MetricInput {
            name: name.into(),
            alias: alias.map(str::to_owned),
            is_unmodified: true,
        };
        let plain = |of: &MetricInput| of.name.clone();
        let swapped = [input("x", Some("y")), input("y", Some("x"))];
        assert_eq!(
            substitute_inputs("x - y / xy", &swapped, plain).unwrap(),
            "y - x / xy"
        );
        let chained = [input("revenue", None), input("gross", None)];
        let measure = |of: &MetricInput| {
            if of.name == "revenue" {
                "gross".to_owned()
            } else {
                "net".to_owned()
            }
        };
        assert_eq!(
            substitute_inputs("revenue - gross", &chained, measure).unwrap(),
            "gross - net"
        );
        let long = |_: &MetricInput| "m".repeat(MAX_EXPR_BYTES / 2);
        assert_eq!(
            substitute_inputs(&"b ".repeat(4_000), &[input("m", Some("b"))], long),
            None
        );
        assert_eq!(
            substitute_inputs(&"b".repeat(MAX_EXPR_BYTES + 1), &[], plain),
            None
        );
    }

    #[test]
    fn texts_that_are_repeated_are_bounded() {
        let metric = |n: u32| {
            format!(
                "  - {{name: m{n}, type: simple, type_params: {{measure: m}}, filter: \"{{{{ Dimension('o__at') }}}} > {n}\"}}\n"
            )
        };
        let metrics: String = (0..100).map(metric).collect();
        let model = format!(
            "semantic_models:\n  - name: o\n    model: ref('o')\n    dimensions: [{{name: at, type: time}}]\n    entities: [{{name: id, type: primary}}, {{name: far, type: foreign, expr: {}}}]\n    measures: [{{name: m, agg: sum, expr: {}a}}]\n",
            "c".repeat(LONGEST_NAME + 1),
            "a + ".repeat(1 << 18),
        );
        let projection = projected(&[("a.yml", &format!("{model}metrics:\n{metrics}"))]);
        let size: usize = projection
            .sources
            .iter()
            .map(|source| Json::from(source.doc.clone()).to_string().len())
            .sum();
        assert!((MOST_ADDED / 2..2 * MOST_ADDED).contains(&size), "{size}");
        let left_out: Vec<&str> = projection
            .skipped
            .iter()
            .map(|(_, why)| why.as_str())
            .collect();
        assert_eq!(
            left_out[0],
            "semantic model o has entities of too long a name"
        );
        assert_eq!(left_out[1], "metric m31 would make the sources too large");
        let long = |_: &str| Some("c".repeat(MAX_EXPR_BYTES / 2));
        assert_eq!(
            filter_sql("{{ Dimension('a') }} = {{ Dimension('a') }}", long),
            None
        );
    }

    #[test]
    fn names_of_tables_become_names_of_sources() {
        let cases = [
            ("ref('orders')", "orders"),
            ("ref('shop', \"fct_Orders\")", "fct_orders"),
            ("source('raw', 'order items')", "order_items"),
            ("Analytics.Public.Orders", "orders"),
            ("ref(orders", "ref_orders"),
            ("日本", ""),
        ];
        for (model, name) in cases {
            assert_eq!(identifier(&table_name(model)), name, "{model}");
        }
        let column = |name: &str| (name == "at").then(|| "ordered_at".to_owned());
        assert_eq!(
            filter_sql("{{ TimeDimension('order__at', 'day') }} > x ", column).as_deref(),
            Some("ordered_at > x")
        );
        for filter in [
            "{{ Dimension('customer__kind') }} = 1",
            "{{Metric('x', group_by=['a'])}} > 1",
            "{% if x %}",
        ] {
            assert_eq!(filter_sql(filter, column), None, "{filter}");
        }
    }
}
