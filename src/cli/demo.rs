//! `demo`: a bundled project, run with a scripted agent through the same code path as a real run.

#![expect(
    clippy::disallowed_methods,
    reason = "writes the bundled project into a new directory"
)]

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    args::{DemoArgs, GlobalArgs},
    attach,
    exit::{self, CliError, Exit},
    last_demo::{self, KeptDemo},
    launch::{self, RunResult, TapeLocation},
    project, settings,
};
use ingestdeck_agent::{
    Agent,
    private_dir::{self, PrivateDir},
};
use ingestdeck_core::{
    config::{FailureRule, TurnLimitAction},
    control::DisconnectAction,
    run::RunOptions,
};
use ingestdeck_engine::{
    execute::RunPlaces,
    launch::{HeldCalls, Launch, PriorWork, ReviewOptions},
    notifier::NotificationTargets,
    prepare::PreparedProject,
    span_exporter::TraceOptions,
};
use ingestdeck_ingest::plan::{self, UnitSelection};
use ingestdeck_tui::{Keymap, actions};

const FILES: &[(&str, &str)] = &[
    (
        "ktx.yaml",
        include_str!("../../assets/demo/project/ktx.yaml"),
    ),
    (
        "sources/dbt/dbt_project.yml",
        include_str!("../../assets/demo/project/sources/dbt/dbt_project.yml"),
    ),
    (
        "sources/dbt/models/marts/fct_revenue_daily.sql",
        include_str!("../../assets/demo/project/sources/dbt/models/marts/fct_revenue_daily.sql"),
    ),
    (
        "sources/dbt/models/marts/fct_roast_yield.sql",
        include_str!("../../assets/demo/project/sources/dbt/models/marts/fct_roast_yield.sql"),
    ),
    (
        "sources/dbt/models/marts/schema.yml",
        include_str!("../../assets/demo/project/sources/dbt/models/marts/schema.yml"),
    ),
    (
        "sources/dbt/models/staging/sources.yml",
        include_str!("../../assets/demo/project/sources/dbt/models/staging/sources.yml"),
    ),
    (
        "sources/dbt/models/staging/stg_orders.sql",
        include_str!("../../assets/demo/project/sources/dbt/models/staging/stg_orders.sql"),
    ),
    (
        "sources/handbook/bean-contracts.md",
        include_str!("../../assets/demo/project/sources/handbook/bean-contracts.md"),
    ),
    (
        "sources/handbook/metric-changelog.md",
        include_str!("../../assets/demo/project/sources/handbook/metric-changelog.md"),
    ),
    (
        "sources/handbook/order-lifecycle.md",
        include_str!("../../assets/demo/project/sources/handbook/order-lifecycle.md"),
    ),
    (
        "sources/handbook/revenue-and-refunds.md",
        include_str!("../../assets/demo/project/sources/handbook/revenue-and-refunds.md"),
    ),
    (
        "sources/handbook/roast-batches.md",
        include_str!("../../assets/demo/project/sources/handbook/roast-batches.md"),
    ),
    (
        "sources/handbook/subscription-terms.md",
        include_str!("../../assets/demo/project/sources/handbook/subscription-terms.md"),
    ),
    (
        "sources/handbook/wholesale-accounts.md",
        include_str!("../../assets/demo/project/sources/handbook/wholesale-accounts.md"),
    ),
    (
        "wiki/global/lantern-glossary.md",
        include_str!("../../assets/demo/project/wiki/global/lantern-glossary.md"),
    ),
];

/// The script of the agent.
const SCRIPT: &str = include_str!("../../assets/demo/script.toml");

/// Units that fail on purpose, so that there is something to retry.
const EXPECTED_FAILURES: &[&str] = &["docs-bean-contracts"];

/// Runs the demo.
///
/// # Errors
/// If the project cannot be written or the run cannot be recorded.
pub(crate) fn demo(global: &GlobalArgs, args: &DemoArgs) -> Result<Exit, CliError> {
    if !(args.speed.is_finite() && args.speed > 0.0) {
        return Err(CliError::usage(format!(
            "invalid --speed `{}`; expected a number above 0, such as 2",
            args.speed
        )));
    }
    if attach::is_on_screen(global) {
        let location = record_location(args);
        return Ok(demo_exit(&attach::start_on_screen(
            global,
            None,
            location,
            Some(DisconnectAction::Stop),
        )?));
    }
    let config = settings::load(global)?;
    let notice = notice(&settings::keymap(&config)?);
    let place = DemoPlace::prepare(args)?;
    let root = place.project();
    write(&root).map_err(|error| write_failure(&error))?;
    let script = root.join(".ktx/ingestdeck/demo-script.toml");
    write_file(&script, SCRIPT).map_err(|error| write_failure(&error))?;
    let exe = std::env::current_exe().map_err(|error| {
        CliError::failed(format!(
            "cannot determine the path of this program: {error}"
        ))
    })?;
    let project = project::read(&root).map_err(CliError::internal)?;
    let planned = plan::plan(&project, &UnitSelection::default())?;
    let mut options = RunOptions::from_config(&config, project.settings.work_units.step_budget);
    options.pass_env.clear();
    // The script is written for these.
    options.ingest.partial_messages.value = true;
    options.ingest.tool_failures.value = FailureRule::Strict;
    options.ingest.turn_limit.value = TurnLimitAction::Finish;
    let slots = project.settings.work_units.max_concurrency;
    let agent = Arc::new(Agent::scripted(exe, script, args.speed));
    // The `--keep` directory may be inside any repository.
    let prepared =
        PreparedProject::with_private_repository(&project, &planned, &exit::print_warning)?;
    let order = Launch {
        project,
        planned,
        prior: PriorWork::default(),
        agent,
        options: Arc::new(options),
        places: RunPlaces::local(slots),
        held: HeldCalls::default(),
        notifications: NotificationTargets::default(),
        trace: TraceOptions::default(),
        prepared,
        reconcile: None,
        review: args.review.then(ReviewOptions::default),
    };
    let outcome = launch::launch(
        global,
        &config,
        order,
        record_location(args),
        vec![notice],
        None,
    )?;
    Ok(demo_exit(&outcome))
}

fn record_location(args: &DemoArgs) -> TapeLocation {
    match &args.keep {
        Some(keep) => TapeLocation::InProject {
            flag: Some(keep.clone()),
        },
        None => TapeLocation::Demo,
    }
}

/// What will happen, and the keys that act on it.
fn notice(keymap: &Keymap) -> String {
    let key = |name: &str| {
        let mut actions = actions::ALL.iter();
        let action = actions.find(|action| action.name == name)?.action;
        keymap.first(action)
    };
    match (key("next-failure"), key("retry")) {
        (Some(next), Some(retry)) => {
            format!("one unit fails: {next} selects it, {retry} retries it")
        }
        _ => "one unit fails".to_owned(),
    }
}

/// Where the project of a demo is. It may be used until this value is dropped.
enum DemoPlace {
    /// A directory that the user named.
    Named(PathBuf),
    Kept(KeptDemo),
    Temporary(PrivateDir),
}

impl DemoPlace {
    /// A demo whose project cannot be kept has a temporary one.
    fn prepare(args: &DemoArgs) -> Result<Self, CliError> {
        if let Some(keep) = &args.keep {
            return prepare_keep_dir(keep).map(Self::Named);
        }
        last_demo::replace().map(Self::Kept).or_else(|error| {
            tracing::warn!(%error, "the demo is not kept");
            let temporary = PrivateDir::new(private_dir::DEMO_PREFIX);
            let place = temporary.map(Self::Temporary);
            let place = place.map_err(|error| write_failure(&error))?;
            // Without its name, it is reached by its id.
            let _ = last_demo::name_temporary(&place.project());
            Ok(place)
        })
    }

    /// The directory of the project, whose name is shown on the screen.
    fn project(&self) -> PathBuf {
        match self {
            Self::Named(project) => project.clone(),
            Self::Kept(kept) => kept.project.clone(),
            Self::Temporary(temporary) => temporary.path().join("lantern"),
        }
    }
}

/// The exit code of the demo. A signal is the user's request and keeps its code. Units that fail on purpose do not
/// count as failures; stopped units do.
fn demo_exit(outcome: &RunResult) -> Exit {
    let as_scripted = outcome
        .summary
        .unfinished
        .iter()
        .all(|unit| EXPECTED_FAILURES.contains(&unit.as_str()));
    match outcome.exit {
        Exit::UnitFailed if as_scripted => Exit::Ok,
        exit => exit,
    }
}

/// The `--keep` directory, which must be new or empty: existing files are never overwritten.
fn prepare_keep_dir(keep: &Path) -> Result<PathBuf, CliError> {
    let is_free = match fs::read_dir(keep) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !is_free {
        return Err(CliError::usage(format!("{} is not empty", keep.display()))
            .with_help("name a new directory for the demo"));
    }
    std::path::absolute(keep).map_err(|error| write_failure(&error))
}

fn write(root: &Path) -> io::Result<()> {
    FILES
        .iter()
        .try_for_each(|(path, text)| write_file(&root.join(path), text))
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}

fn write_failure(error: &io::Error) -> CliError {
    CliError::failed("cannot write the demo project")
        .with_cause(error)
        .with_help("name another directory with --keep")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::summary::RunSummary;
    use ingestdeck_tui::ChordList;

    #[test]
    fn demo_ignores_only_the_scripted_failure() {
        let ended = |exit, unfinished: &[&str]| {
            let unfinished = unfinished.iter().map(|unit| (*unit).to_owned()).collect();
            let mut summary = RunSummary::default();
            summary.unfinished = unfinished;
            demo_exit(&RunResult { exit, summary })
        };
        assert_eq!(ended(Exit::UnitFailed, EXPECTED_FAILURES), Exit::Ok);
        assert_eq!(
            ended(Exit::UnitFailed, &["docs-bean-contracts", "dbt-all"]),
            Exit::UnitFailed
        );
        assert_eq!(ended(Exit::Signal(2), EXPECTED_FAILURES), Exit::Signal(2));
    }

    #[test]
    fn notice_names_the_keys_of_the_user() {
        let keymap = |overrides: &[(&str, &str)]| {
            let overrides = overrides.iter();
            let chord = |chord: &&str| ChordList::One((*chord).to_owned());
            let overrides = overrides.map(|(name, keys)| ((*name).to_owned(), chord(keys)));
            Keymap::new(&overrides.collect()).unwrap()
        };
        let usual = "one unit fails: ] selects it, r retries it";
        assert_eq!(notice(&keymap(&[])), usual);
        let other = "one unit fails: F5 selects it, r retries it";
        assert_eq!(notice(&keymap(&[("next-failure", "<f5>")])), other);
    }

    #[test]
    fn every_file_of_the_project_is_embedded() {
        fn collect(dir: &Path, root: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    collect(&path, root, found);
                } else {
                    found.push(
                        path.strip_prefix(root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo/project");
        let mut found = Vec::new();
        collect(&root, &root, &mut found);
        found.sort();
        assert_eq!(
            found,
            FILES
                .iter()
                .map(|(path, _)| (*path).to_owned())
                .collect::<Vec<_>>()
        );
    }
}
