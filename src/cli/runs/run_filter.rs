//! Which runs `runs list` shows: conditions and order, typed or from a view that is saved for the project.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cli::{
    args::{RunSort, RunsListArgs},
    exit::CliError,
    period,
    table_memory::ProjectMemory,
};
use ingestdeck_core::{
    conditions::{
        ConditionField, ConditionKind, ConditionTest, Conditions, contains, list_examples,
    },
    diagnostic::Diagnostic as _,
    text,
};
use ingestdeck_records::store::db::{IndexedRun, UnitSource};

/// The file of the views in the user's directory for state.
pub(super) const VIEWS_FILE: &str = "runs.json";
/// Largest number of saved views of a project, and of characters in the name of one.
const MAX_VIEWS: usize = 50;
const MAX_NAME_CHARS: usize = 40;

const FIELDS: [ConditionField; 7] = [
    field(
        "outcome",
        ConditionKind::Words(&[
            "done",
            "partial",
            "error",
            "unusable",
            "limit",
            "stopped",
            "waiting",
            "reviewed",
            "interrupted",
            "running",
        ]),
    ),
    field("since", ConditionKind::Checked(is_moment, "7d")),
    field("until", ConditionKind::Checked(is_moment, "2026-01-31")),
    field("cost", ConditionKind::Dollars),
    field("duration", ConditionKind::Duration),
    field("unit", ConditionKind::Path),
    field("source", ConditionKind::Text),
];

const fn field(name: &'static str, kind: ConditionKind) -> ConditionField {
    ConditionField { name, kind }
}

fn is_moment(text: &str) -> bool {
    period::parse_moment(text, jiff::Timestamp::now()).is_some()
}

/// A view of the list of runs that is saved for a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RunsView {
    conditions: String,
    sort: RunSort,
    is_reversed: bool,
}

/// The saved views of a project, by name.
pub(super) type RunsViews = BTreeMap<String, RunsView>;

/// A run with what conditions compare.
pub(super) struct ListedRun<'a> {
    /// Its outcome as the list shows it.
    pub outcome: &'a str,
    /// Its entry in the index.
    pub known: Option<&'a IndexedRun>,
    /// Its units, if a condition needs them.
    pub units: &'a [UnitSource],
}

/// The view that is shown, with its conditions.
pub(super) struct RunFilter {
    view: RunsView,
    conditions: Conditions,
}

impl RunFilter {
    /// The filter of the arguments. Conditions narrow a saved view, and an order replaces that of the view.
    ///
    /// # Errors
    /// If a condition is invalid, or there is no such view.
    pub(super) fn new(
        args: &RunsListArgs,
        memory: &ProjectMemory<RunsViews>,
        project: &str,
    ) -> Result<Self, CliError> {
        let mut view = match &args.view {
            None => RunsView::default(),
            Some(name) => {
                let mut views = memory.load(project);
                match views.remove(name) {
                    Some(view) => view,
                    None => return Err(unknown_view(&views, name)),
                }
            }
        };
        for condition in &args.conditions {
            if !view.conditions.is_empty() {
                view.conditions.push(' ');
            }
            view.conditions.push_str(condition);
        }
        if let Some(sort) = args.sort {
            (view.sort, view.is_reversed) = (sort, false);
        }
        view.is_reversed ^= args.reverse;
        let (conditions, error) = Conditions::parse(&view.conditions, &FIELDS);
        if let Some(error) = error {
            let failed = CliError::usage(error.to_string());
            return Err(match error.help() {
                Some(help) => failed.with_help(help),
                None => failed,
            });
        }
        if let Some(plain) = &conditions.plain {
            let plain = text::printable(plain, MAX_NAME_CHARS);
            let expected = list_examples(&FIELDS);
            return Err(CliError::usage(format!(
                "`{plain}` is not a condition; expected {expected}"
            ))
            .with_help("put a condition with `>` or `<` in quotes, such as 'cost>0.50'"));
        }
        Ok(Self { view, conditions })
    }

    pub(super) fn sort(&self) -> RunSort {
        self.view.sort
    }

    pub(super) fn is_reversed(&self) -> bool {
        self.view.is_reversed
    }

    /// The conditions for a message.
    pub(super) fn described(&self) -> String {
        format!("`{}`", text::printable(&self.view.conditions, 200))
    }

    /// True if a condition compares units.
    pub(super) fn needs_units(&self) -> bool {
        let of_units = |(name, _): &(&str, ConditionTest)| matches!(*name, "unit" | "source");
        self.conditions.tests.iter().any(of_units)
    }

    /// True if the run fulfils all conditions. A run outside of the index fulfils those for its outcome only.
    pub(super) fn passes(&self, run: &ListedRun<'_>) -> bool {
        let tests = &self.conditions.tests;
        tests
            .iter()
            .all(|(name, test)| is_fulfilled(run, name, test))
    }

    /// Saves the view if the arguments demand it.
    ///
    /// # Errors
    /// If the name is invalid, there are too many views, or the file cannot be written.
    pub(super) fn save(
        self,
        args: &RunsListArgs,
        memory: &ProjectMemory<RunsViews>,
        project: &str,
    ) -> Result<(), CliError> {
        let Some(name) = &args.save_view else {
            return Ok(());
        };
        let mut views = memory.load(project);
        let length = name.chars().count();
        if length == 0 || length > MAX_NAME_CHARS || text::printable(name, usize::MAX) != *name {
            return Err(CliError::usage(format!(
                "invalid name of a view; expected 1 to {MAX_NAME_CHARS} characters"
            )));
        }
        if !views.contains_key(name) && views.len() >= MAX_VIEWS {
            return Err(
                CliError::usage(format!("there are {MAX_VIEWS} views already"))
                    .with_help("delete one first with --delete-view NAME"),
            );
        }
        views.insert(name.clone(), self.view);
        store(memory, project, views)
    }
}

fn store(
    memory: &ProjectMemory<RunsViews>,
    project: &str,
    views: RunsViews,
) -> Result<(), CliError> {
    memory
        .save(project, views)
        .map_err(|error| CliError::failed(format!("the view is not saved: {error}")))
}

/// Deletes a saved view.
///
/// # Errors
/// If there is no such view, or the file cannot be written.
pub(super) fn delete_view(
    memory: &ProjectMemory<RunsViews>,
    project: &str,
    name: &str,
) -> Result<(), CliError> {
    let mut views = memory.load(project);
    if views.remove(name).is_none() {
        return Err(unknown_view(&views, name));
    }
    store(memory, project, views)
}

fn unknown_view(views: &RunsViews, name: &str) -> CliError {
    let names: Vec<&str> = views.keys().map(String::as_str).collect();
    let help = match names.as_slice() {
        [] => "no view is saved; --save-view NAME saves one".to_owned(),
        names => format!("views: {}", text::printable(&names.join(", "), 400)),
    };
    CliError::usage(format!(
        "no view `{}`",
        text::printable(name, MAX_NAME_CHARS)
    ))
    .with_help(help)
}

fn is_fulfilled(run: &ListedRun<'_>, field: &str, test: &ConditionTest) -> bool {
    if field == "outcome" {
        return test.accepts(run.outcome);
    }
    let Some(known) = run.known else {
        return false;
    };
    let started = || {
        let started: jiff::Timestamp = known.started_at.parse().ok()?;
        let limit = period::parse_moment(test.text()?, jiff::Timestamp::now())?;
        Some((started.as_millisecond(), limit))
    };
    match field {
        "since" => started().is_some_and(|(started, since)| started >= since),
        "until" => started().is_some_and(|(started, until)| started < until),
        "cost" => test.is_within(known.cost_usd),
        "duration" => test.is_within(Some(known.duration_ms as f64 / 1000.0)),
        "unit" => run.units.iter().any(|unit| test.accepts(&unit.unit)),
        "source" => run.units.iter().any(|unit| {
            let names = unit.connection.iter().chain(&unit.adapter);
            names
                .into_iter()
                .any(|name| test.text().is_some_and(|pattern| contains(name, pattern)))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(conditions: &[&str]) -> RunsListArgs {
        RunsListArgs {
            conditions: conditions.iter().map(|&text| text.to_owned()).collect(),
            ..RunsListArgs::default()
        }
    }

    fn run(outcome: &str, cost_usd: Option<f64>) -> IndexedRun {
        IndexedRun {
            id: ingestdeck_core::tape::RunId(uuid::Uuid::nil()),
            started_at: "2026-01-31T12:00:00Z".into(),
            project: None,
            scripted: false,
            outcome: Some(outcome.into()),
            duration_ms: 90_000,
            units: 1,
            succeeded: 1,
            budget: 0,
            reused: 0,
            failed: 0,
            cost_usd,
            is_cost_partial: false,
            is_active: false,
            tape_bytes: 0,
        }
    }

    #[test]
    fn runs_fulfil_conditions() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(home.path(), VIEWS_FILE);
        let units = [UnitSource {
            unit: "docs-orders".into(),
            connection: Some("docs".into()),
            adapter: Some("notion".into()),
        }];
        let known = run("partial", Some(0.7));
        let listed = ListedRun {
            outcome: "partial",
            known: Some(&known),
            units: &units,
        };
        for (conditions, expected) in [
            (&["cost>0.5"][..], true),
            (&["cost>0.5", "outcome:done,partial"], true),
            (&["outcome:done"], false),
            (&["since:2026-01-31", "until:2026-02-01"], true),
            (&["until:2026-01-31"], false),
            (&["duration:>1m"], true),
            (&["duration<1m"], false),
            (&["unit:*-orders", "source:notion"], true),
            (&["unit:orders"], true),
            (&["unit:orders*"], false),
            (&["source:dbt"], false),
        ] {
            let filter = RunFilter::new(&args(conditions), &memory, "p").unwrap();
            assert_eq!(filter.passes(&listed), expected, "{conditions:?}");
        }
        let filter = RunFilter::new(&args(&["cost<1"]), &memory, "p").unwrap();
        let unknown = run("done", None);
        assert!(!filter.passes(&ListedRun {
            outcome: "done",
            known: Some(&unknown),
            units: &[],
        }));
    }

    #[test]
    fn views_are_saved_narrowed_and_deleted() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(home.path(), VIEWS_FILE);
        let mut saved = args(&["cost>0.5"]);
        saved.sort = Some(RunSort::Cost);
        saved.save_view = Some("dear".into());
        let filter = RunFilter::new(&saved, &memory, "p").unwrap();
        filter.save(&saved, &memory, "p").unwrap();
        let mut shown = args(&["outcome:error"]);
        (shown.view, shown.reverse) = (Some("dear".into()), true);
        let filter = RunFilter::new(&shown, &memory, "p").unwrap();
        assert_eq!(filter.view.conditions, "cost>0.5 outcome:error");
        assert_eq!((filter.sort(), filter.is_reversed()), (RunSort::Cost, true));
        let other = RunFilter::new(&shown, &memory, "q").err().unwrap();
        assert!(other.to_string().contains("no view `dear`"), "{other}");
        delete_view(&memory, "p", "dear").unwrap();
        assert!(delete_view(&memory, "p", "dear").is_err());
        let mut unnamed = args(&[]);
        unnamed.save_view = Some("\u{1b}[2J".into());
        let filter = RunFilter::new(&unnamed, &memory, "p").unwrap();
        assert!(filter.save(&unnamed, &memory, "p").is_err());
    }

    #[test]
    fn invalid_conditions_name_the_allowed_ones() {
        let home = tempfile::tempdir().unwrap();
        let memory = ProjectMemory::in_directory(home.path(), VIEWS_FILE);
        for (condition, expected) in [
            ("luck:7", "expected outcome:done, since:7d"),
            ("orders", "`orders` is not a condition"),
            ("outcome:fine", "expected done, partial"),
            ("since:never", "a value such as 7d"),
        ] {
            let error = RunFilter::new(&args(&[condition]), &memory, "p")
                .err()
                .unwrap();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
