//! Which files and units later plans contain, after any sequence of edits and runs, compared with a plain model: a file is
//! settled by the last result of the unit that contained it then, and a unit refers to a change if a name that it uses is
//! in a file with another content than in its last success.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use proptest::prelude::*;

use super::super::*;
use ingestdeck_core::{
    run::{
        RunState,
        state::{AttemptState, PriorPatchIntegration, UnitState},
    },
    tape::{
        Header, UnitKey,
        note::{
            AttemptOutput, ContentDigests, ContinuedRun, FilesEvicted, PatchResult, PatchWritten,
            PriorUnitSummary, ReusedSuccess, RunPlanned, attempt_output::UnreadFile,
        },
    },
};
use ingestdeck_ingest::{
    plan::{UnitSelection, plan_against},
    source::find_adapter,
    work_unit::WorkUnit,
};
use ingestdeck_records::store::index_rows::RunIndexRows;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum Step {
    /// Version and references of a model; `None` deletes it.
    Edit(usize, Option<(u8, Vec<usize>)>),
    /// The content of a model before its last edit.
    Revert(usize),
    /// Whether the project is large, so that each file is a unit.
    Large(bool),
    Run {
        only: Vec<usize>,
        is_full: bool,
        unread: bool,
        outcomes: Vec<Outcome>,
        evicts: bool,
    },
    /// Deletes all runs that planning does not need.
    Prune,
    /// A run that is killed, an edit, and the run that resumes it.
    KillAndResume {
        outcomes: Vec<Outcome>,
        edit: Option<(usize, u8)>,
        then: Vec<Outcome>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// With its first model unread, or all files read.
    Succeeded {
        leaves_unread: bool,
    },
    Failed,
    Unsaved {
        leaves_unread: bool,
    },
    Unfinished,
}

impl Outcome {
    fn leaves_unread(self) -> bool {
        matches!(
            self,
            Self::Succeeded {
                leaves_unread: true
            } | Self::Unsaved {
                leaves_unread: true
            }
        )
    }
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        4 => any::<bool>().prop_map(|leaves_unread| Outcome::Succeeded { leaves_unread }),
        1 => Just(Outcome::Failed),
        1 => any::<bool>().prop_map(|leaves_unread| Outcome::Unsaved { leaves_unread }),
        1 => Just(Outcome::Unfinished),
    ];
    let outcomes = prop::collection::vec(outcome, 4);
    let text = (0..3_u8, prop::collection::vec(0..4_usize, 0..3));
    prop_oneof![
        4 => (0..4_usize, prop::option::weighted(0.85, text)).prop_map(|(file, text)| Step::Edit(file, text)),
        2 => (0..4_usize).prop_map(Step::Revert),
        1 => any::<bool>().prop_map(Step::Large),
        2 => Just(Step::Prune),
        4 => (prop::collection::vec(0..4_usize, 0..3), prop::bool::weighted(0.1), any::<bool>(), outcomes.clone(), any::<bool>())
            .prop_map(|(only, is_full, unread, outcomes, evicts)| Step::Run { only, is_full, unread, outcomes, evicts }),
        2 => (outcomes.clone(), prop::option::of((0..4_usize, 0..3_u8)), outcomes)
            .prop_map(|(outcomes, edit, then)| Step::KillAndResume { outcomes, edit, then }),
    ]
}

type Contents = BTreeMap<String, (u8, Vec<usize>)>;

/// The plain model that plans are compared with.
#[derive(Clone, Debug, Default)]
struct Model {
    now: Contents,
    before: BTreeMap<String, Option<(u8, Vec<usize>)>>,
    is_large: bool,
    settled: BTreeMap<String, SettledFile>,
}

#[derive(Clone, Debug)]
struct SettledFile {
    /// The content with which the unit of the file last succeeded.
    content: (u8, Vec<usize>),
    /// All contents at that time.
    seen: Contents,
    /// Whether that unit contained one file only.
    is_alone: bool,
    is_unread: bool,
}

impl Model {
    fn due_files(&self) -> Vec<String> {
        let is_due = |(path, content): &(&String, &(u8, Vec<usize>))| {
            self.settled
                .get(*path)
                .is_none_or(|known| known.content != **content)
        };
        self.now
            .iter()
            .filter(is_due)
            .map(|(path, _)| path.clone())
            .collect()
    }

    fn unread_files(&self) -> Vec<String> {
        let is_unread = |(path, content): &(&String, &(u8, Vec<usize>))| {
            self.settled
                .get(*path)
                .is_some_and(|known| known.content == **content && known.is_unread)
        };
        self.now
            .iter()
            .filter(is_unread)
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Units of settled files that use a changed file of no unit or of another one.
    fn referring_units(&self) -> Vec<String> {
        let due = self.due_files();
        let refers = |path: &String| {
            let Some(known) = self.settled.get(path).filter(|_| !due.contains(path)) else {
                return false;
            };
            let used = self.now[path]
                .1
                .iter()
                .map(|other| model_path(*other))
                .filter(|other| other != path);
            let is_changed = |other: String| {
                let (now, then) = (self.now.get(&other), known.seen.get(&other));
                now != then && (self.is_large || now.is_none())
            };
            used.into_iter().any(is_changed)
        };
        let mut files = self.now.keys().filter(|path| refers(path));
        if self.is_large {
            files
                .map(|path| path.replace("models/", "dbt-models-").replace(".yml", ""))
                .collect()
        } else {
            files
                .next()
                .filter(|_| due.is_empty())
                .map(|_| "dbt-all".to_owned())
                .into_iter()
                .collect()
        }
    }

    fn succeed(&mut self, raw_files: &[String], then: &Contents, leaves_unread: bool) {
        let unread = first_model(raw_files).filter(|_| leaves_unread);
        for path in raw_files {
            if let Some(content) = then.get(path) {
                let settled = SettledFile {
                    content: content.clone(),
                    seen: then.clone(),
                    is_alone: self.is_large,
                    is_unread: unread == Some(path),
                };
                self.settled.insert(path.clone(), settled);
            }
        }
        // The one unit of a small project had read its other files before.
        let others = self
            .settled
            .values_mut()
            .filter(|known| !self.is_large && !known.is_alone);
        others.for_each(|known| known.seen.clone_from(then));
    }

    fn fail(&mut self, raw_files: &[String]) {
        self.settled.retain(|path, _| !raw_files.contains(path));
    }
}

fn model_path(file: usize) -> String {
    format!("models/{}.yml", NAMES[file])
}

fn first_model(raw_files: &[String]) -> Option<&String> {
    raw_files.iter().find(|path| path.starts_with("models/"))
}

/// A project on disk, with the records of its runs.
struct Simulation {
    dir: tempfile::TempDir,
    model: Model,
    runs: u32,
    db: Db,
}

fn run_id(number: u32) -> RunId {
    RunId(uuid::Uuid::from_u128(u128::from(number) << 80))
}

impl Simulation {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("d/models")).unwrap();
        fs::create_dir_all(dir.path().join("d/seeds")).unwrap();
        fs::write(
            dir.path().join("ktx.yaml"),
            "connections:\n  d: {driver: dbt, source_dir: d}\n",
        )
        .unwrap();
        fs::write(dir.path().join("d/dbt_project.yml"), "name: x\n").unwrap();
        fs::create_dir_all(dir.path().join(".ktx/ingestdeck")).unwrap();
        let db = RunStore::new(dir.path()).open_database().unwrap();
        Self {
            dir,
            model: Model::default(),
            runs: 0,
            db,
        }
    }

    fn edit(&mut self, file: usize, content: Option<(u8, Vec<usize>)>) {
        let path = self.dir.path().join("d").join(model_path(file));
        match content {
            Some((version, refs)) => {
                let refs: String = refs
                    .iter()
                    .map(|other| format!("{{{{ ref('{}') }}}}", NAMES[*other]))
                    .collect();
                let name = NAMES[file];
                fs::write(
                    path,
                    format!("models: [{{name: {name}, description: \"v{version} {refs}\"}}]\n"),
                )
                .unwrap();
            }
            None => drop(fs::remove_file(path)),
        }
    }

    fn set(&mut self, file: usize, content: Option<(u8, Vec<usize>)>) {
        self.edit(file, content.clone());
        let path = model_path(file);
        let before = match content {
            Some(content) => self.model.now.insert(path.clone(), content),
            None => self.model.now.remove(&path),
        };
        self.model.before.insert(path, before);
    }

    fn set_large(&mut self, is_large: bool) {
        self.model.is_large = is_large;
        for number in 0..26 {
            let path = self.dir.path().join(format!("d/seeds/s{number}.yml"));
            if is_large {
                fs::write(path, "version: 2\n").unwrap();
            } else {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn baseline(&self, before: Option<RunId>) -> Baseline {
        let marked: HashSet<RunId> = (0..=self.runs).map(run_id).collect();
        let mut baseline = Baseline::default();
        for ((connection, adapter, path), records) in self.db.file_records(before).unwrap() {
            let events = records
                .into_iter()
                .map(|record| file_event(record, &marked));
            baseline.add_file(
                &connection,
                &adapter,
                path,
                PriorFileRecord::from_events(events),
            );
        }
        for success in self.db.last_successes(before).unwrap() {
            baseline.add_success(
                (success.connection, success.unit_key),
                success.read_in,
                true,
            );
        }
        baseline
    }

    fn plan(&self, selection: &UnitSelection, before: Option<RunId>) -> IngestPlan {
        let project = Project::open(self.dir.path()).unwrap();
        plan_against(&project, selection, &self.baseline(before)).unwrap_or_default()
    }

    /// Records a run with these results, and with units that are reused from a prior run.
    fn record(
        &mut self,
        mut planned: IngestPlan,
        results: &[(usize, Outcome)],
        reused: &[(usize, RunId, bool)],
        evicts: bool,
    ) -> RunId {
        self.runs += 1;
        let run = run_id(self.runs);
        let adapter = find_adapter("dbt").unwrap();
        let mut state = RunState::default();
        let mut prior = BTreeMap::new();
        for (index, unit) in planned.units.iter().enumerate() {
            let outcome = results
                .iter()
                .find(|(at, _)| *at == index)
                .map(|(_, outcome)| *outcome);
            let reused_from = reused
                .iter()
                .find(|(at, ..)| *at == index)
                .map(|(_, run, left)| (*run, *left));
            let key: UnitKey = unit.planned.unit.clone();
            let output = |leaves_unread: bool| {
                let first = first_model(&unit.planned.raw_files).filter(|_| leaves_unread);
                let unread = first.map(|path| UnreadFile {
                    path: path.clone(),
                    part: None,
                });
                AttemptOutput {
                    unread: unread.into_iter().collect(),
                    ..AttemptOutput::default()
                }
            };
            let mut attempts = Vec::new();
            if let Some(outcome @ (Outcome::Succeeded { .. } | Outcome::Unsaved { .. })) = outcome {
                let mut attempt = AttemptState {
                    number: 1,
                    ..AttemptState::default()
                };
                let patch = PatchWritten {
                    path: Some("p".into()),
                    ..PatchWritten::default()
                };
                attempt.delivery.patch =
                    matches!(outcome, Outcome::Unsaved { .. }).then(|| Arc::new(patch));
                attempt.delivery.output = Some(Arc::new(output(outcome.leaves_unread())));
                attempts.push(attempt);
            }
            let status = match (outcome, reused_from) {
                (_, Some(_)) => UnitStatus::Reused,
                (Some(Outcome::Succeeded { .. } | Outcome::Unsaved { .. }), _) => {
                    UnitStatus::Succeeded
                }
                (Some(Outcome::Failed), _) => UnitStatus::Failed,
                (Some(Outcome::Unfinished) | None, _) => UnitStatus::Queued,
            };
            if let Some((from, leaves_unread)) = reused_from {
                let taken = PriorPatchIntegration {
                    result: PatchResult::Accepted,
                    verdict: None,
                    is_saved: true,
                    shared_writes: Arc::default(),
                };
                state.publication.prior_patches.insert(key.clone(), taken);
                let reused = ReusedSuccess {
                    attempt: 1,
                    is_budget_exhausted: false,
                    content: ContentDigests::default(),
                    pending_patch: Some("p".into()),
                    output: output(leaves_unread),
                };
                prior.insert(
                    key.clone(),
                    PriorUnitSummary {
                        run: from,
                        attempts: 1,
                        cost_usd: None,
                        reused: Some(reused),
                    },
                );
            }
            let planned = Some(Arc::new(unit.planned.clone()));
            state.units.push(UnitState {
                key,
                planned,
                status,
                attempts,
                retry_at: None,
                hold_mode: Default::default(),
            });
        }
        let continues = ContinuedRun {
            run,
            outcome: None,
            cost_usd: None,
            units: prior,
            unreconciled: BTreeMap::new(),
        };
        state.planned = Some(Arc::new(RunPlanned {
            continues: Some(continues),
            ..RunPlanned::default()
        }));
        for source in &mut planned.sources {
            for path in source.files.keys() {
                let text = fs::read_to_string(self.dir.path().join("d").join(path)).unwrap();
                let names = adapter
                    .defined_names(path, &text)
                    .unwrap()
                    .into_iter()
                    .collect();
                source.definitions.insert(path.clone(), names);
            }
            let note = source.to_note();
            if evicts && !note.deleted.is_empty() {
                let evicted = FilesEvicted {
                    connection: "d".into(),
                    adapter: "dbt".into(),
                    paths: note.deleted.clone(),
                };
                note.deleted
                    .iter()
                    .for_each(|path| drop(self.model.settled.remove(path)));
                state.inputs.evicted.push(Arc::new(evicted));
            }
            state.inputs.sources.push(Arc::new(note));
        }
        let header = format!(
            r#"{{"tape":1,"program":"ingestdeck","run":"{run}","started_at":"2026-01-01T00:00:00Z"}}"#
        );
        let header = Header::parse(header.as_bytes()).unwrap();
        self.db
            .put(&[RunIndexRows::from_state(header, 0, &state)])
            .unwrap();
        run
    }

    fn apply(&mut self, planned: &IngestPlan, results: &[(usize, Outcome)]) {
        let then = self.model.now.clone();
        for (index, outcome) in results {
            let raw_files = &planned.units[*index].planned.raw_files;
            match outcome {
                Outcome::Succeeded { leaves_unread } => {
                    self.model.succeed(raw_files, &then, *leaves_unread)
                }
                Outcome::Failed => self.model.fail(raw_files),
                Outcome::Unsaved { .. } | Outcome::Unfinished => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Edit(file, content) => self.set(*file, content.clone()),
            Step::Revert(file) => {
                if let Some(content) = self.model.before.get(&model_path(*file)).cloned() {
                    self.set(*file, content);
                }
            }
            Step::Large(is_large) => self.set_large(*is_large),
            Step::Run {
                only,
                is_full,
                unread,
                outcomes,
                evicts,
            } => {
                let only = only
                    .iter()
                    .map(|file| format!("dbt-models-{}", NAMES[*file]))
                    .collect();
                let selection = UnitSelection {
                    only,
                    full: *is_full,
                    unread: *unread,
                    ..UnitSelection::default()
                };
                let planned = self.plan(&selection, None);
                let results: Vec<_> = (0..planned.units.len())
                    .map(|at| (at, outcomes[at % outcomes.len()]))
                    .collect();
                self.apply(&planned, &results);
                if !planned.sources.is_empty() {
                    self.record(planned, &results, &[], *evicts);
                }
            }
            Step::KillAndResume {
                outcomes,
                edit,
                then,
            } => self.kill_and_resume(outcomes, *edit, then),
            Step::Prune => {
                let needed: Vec<RunId> = self.db.required_runs().unwrap().into_iter().collect();
                self.db.retain(&needed).unwrap();
            }
        }
    }

    fn kill_and_resume(
        &mut self,
        outcomes: &[Outcome],
        edit: Option<(usize, u8)>,
        then: &[Outcome],
    ) {
        let killed = self.plan(&UnitSelection::default(), None);
        if killed.units.is_empty() {
            return;
        }
        // A killed run has saved nothing.
        let unsaved = |outcome: Outcome| match outcome {
            Outcome::Succeeded { leaves_unread } => Outcome::Unsaved { leaves_unread },
            outcome => outcome,
        };
        let results: Vec<_> = (0..killed.units.len())
            .map(|at| (at, unsaved(outcomes[at % outcomes.len()])))
            .collect();
        self.apply(&killed, &results);
        let before = self.model.now.clone();
        let first = self.record(killed.clone(), &results, &[], false);
        if let Some((file, version)) =
            edit.filter(|(file, _)| self.model.now.contains_key(&model_path(*file)))
        {
            let refs = self.model.now[&model_path(file)].1.clone();
            self.set(file, Some((version, refs)));
        }
        let mut planned = self.plan(&UnitSelection::default(), Some(first));
        let key = |unit: &WorkUnit| unit.planned.unit.clone();
        let (known, new): (Vec<_>, Vec<_>) = std::mem::take(&mut planned.units)
            .into_iter()
            .partition(|unit| killed.units.iter().any(|then| key(then) == key(unit)));
        planned.units = known;
        for unit in &new {
            planned.exclude_unit(unit, false);
        }
        let (mut results, mut reused) = (Vec::new(), Vec::new());
        for (at, unit) in planned.units.iter().enumerate() {
            let index = killed
                .units
                .iter()
                .position(|then| key(then) == key(unit))
                .unwrap();
            let read = |unit: &WorkUnit, contents: &Contents| {
                let paths = unit
                    .planned
                    .raw_files
                    .iter()
                    .chain(&unit.planned.dependency_paths);
                paths
                    .map(|path| (path.clone(), contents.get(path).cloned()))
                    .collect::<Vec<_>>()
            };
            let is_same = read(&killed.units[index], &before) == read(unit, &self.model.now);
            let outcome = unsaved(outcomes[index % outcomes.len()]);
            if is_same && matches!(outcome, Outcome::Unsaved { .. }) {
                reused.push((at, first, outcome.leaves_unread()));
            } else {
                results.push((at, then[at % then.len()]));
            }
        }
        for (at, _, leaves_unread) in &reused {
            self.model.succeed(
                &planned.units[*at].planned.raw_files,
                &before,
                *leaves_unread,
            );
        }
        self.apply(&planned, &results);
        self.record(planned, &results, &reused, false);
    }

    /// The files of `unread` that no unit of a plan has, those that it lists, and those that a plan of them runs.
    fn unread(&self, unread: &[String]) -> (Vec<String>, Vec<String>, Vec<String>) {
        let planned = self.plan(&UnitSelection::default(), None);
        let listed = planned
            .sources
            .iter()
            .flat_map(|source| &source.unread)
            .map(|(_, file)| file.path.clone());
        let is_in_no_unit = |path: &&String| {
            !planned
                .units
                .iter()
                .any(|unit| unit.planned.raw_files.contains(path))
        };
        let rest = unread.iter().filter(is_in_no_unit).cloned().collect();
        let planned = self.plan(
            &UnitSelection {
                unread: true,
                ..UnitSelection::default()
            },
            None,
        );
        assert!(
            planned
                .sources
                .iter()
                .all(|source| source.unread.is_empty())
        );
        let wanted = planned
            .units
            .iter()
            .flat_map(|unit| &unit.changes.unread)
            .map(|file| file.path.clone());
        let (mut listed, mut wanted): (Vec<String>, Vec<String>) =
            (listed.collect(), wanted.collect());
        listed.sort();
        wanted.sort();
        let is_planned = |path| {
            planned
                .units
                .iter()
                .any(|unit| unit.planned.raw_files.contains(path))
        };
        assert!(wanted.iter().all(is_planned));
        (rest, listed, wanted)
    }

    /// The files that are due, and the units that run for changes around them, according to the plan.
    fn planned(&self) -> (Vec<String>, Vec<String>) {
        let planned = self.plan(&UnitSelection::default(), None);
        let is_model = |path: &&String| Path::new(path).starts_with("models");
        let mut due: Vec<String> = planned
            .units
            .iter()
            .flat_map(|unit| &unit.changes.own)
            .filter(is_model)
            .cloned()
            .collect();
        due.sort();
        let refers = |unit: &&WorkUnit| {
            !unit.changes.referred.is_empty()
                && !unit.changes.own.iter().any(|path| is_model(&path))
        };
        let mut referring: Vec<String> = planned
            .units
            .iter()
            .filter(refers)
            .map(|unit| unit.planned.unit.to_string())
            .collect();
        referring.sort();
        (due, referring)
    }
}

/// Checks the plans of a project after each of these steps.
fn check(is_large: bool, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = Simulation::new();
    for file in 0..4 {
        world.set(file, Some((0, vec![(file + 1) % 4])));
    }
    world.set_large(is_large);
    for (number, step) in steps.iter().enumerate() {
        world.step(step);
        let expected = (world.model.due_files(), world.model.referring_units());
        prop_assert_eq!(
            world.planned(),
            expected,
            "after step {}: {:?}",
            number,
            step
        );
        let unread = world.model.unread_files();
        let (rest, listed, wanted) = world.unread(&unread);
        prop_assert_eq!(
            (listed, wanted),
            (rest, unread),
            "after step {}: {:?}",
            number,
            step
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]
    #[test]
    fn plans_contain_what_the_plain_model_expects(is_large in any::<bool>(), steps in prop::collection::vec(step(), 1..14)) {
        check(is_large, &steps)?;
    }
}

/// Chains of runs that are too rare among random ones.
#[test]
fn rare_chains_of_runs_are_planned_as_expected() {
    let run = |only: &[usize], outcome: Outcome| Step::Run {
        only: only.to_vec(),
        is_full: false,
        unread: false,
        outcomes: vec![outcome],
        evicts: true,
    };
    let (read, unread) = (
        Outcome::Succeeded {
            leaves_unread: false,
        },
        Outcome::Succeeded {
            leaves_unread: true,
        },
    );
    let edit =
        |file: usize, version: u8, refs: &[usize]| Step::Edit(file, Some((version, refs.to_vec())));
    // The unit of the first model has seen a content of the second one that nothing else needs.
    let content_as_of_a_success = [
        run(&[], read),
        edit(1, 2, &[]),
        run(&[1], read),
        edit(0, 1, &[1]),
        run(&[0], read),
        edit(1, 1, &[]),
        run(&[1], read),
        Step::Prune,
        Step::Revert(1),
        run(&[1], read),
        Step::Prune,
    ];
    let last_failure = [
        run(&[], read),
        run(&[0], Outcome::Failed),
        run(&[1, 2, 3], read),
        Step::Prune,
    ];
    let last_unread = [
        run(&[], unread),
        run(&[1, 2, 3], read),
        Step::Prune,
        run(&[0], read),
        Step::Prune,
    ];
    let evicted = [
        run(&[], read),
        Step::Edit(0, None),
        run(&[], read),
        Step::Prune,
        Step::Revert(0),
        Step::Prune,
        run(&[], read),
    ];
    for steps in [
        &content_as_of_a_success[..],
        &last_failure,
        &last_unread,
        &evicted,
    ] {
        for is_large in [true, false] {
            check(is_large, steps).unwrap();
        }
    }
}
