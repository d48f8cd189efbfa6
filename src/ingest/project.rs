//! The project: its directory and its `ktx.yaml`.
//!
//! Finds the project directory and limits the size of the file. [`settings`] defines the meaning of the keys. This
//! module must not read the environment; callers pass in what it needs.

#![expect(
    clippy::disallowed_methods,
    reason = "looks for the directory of the project"
)]

use std::{
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    database::{SqlWorkers, WarehouseSettings},
    facts::ProjectFacts,
    git_source::{GitSource, GitSourceError},
    instructions::{Instructions, InvalidInstruction},
    source::{ProjectConnection, split::DEFAULT_UNIT_BYTES},
    yaml,
};
use ingestdeck_core::{
    diagnostic::{Diagnostic, Problem},
    units::token_estimate::BYTES_PER_TOKEN,
};
use ingestdeck_os::scoped_dir::{FileKind, ScopedDir};

mod key_schema;
mod reader;
pub(crate) mod settings;
mod typed_sections;

pub use super::{
    connection::{Connection, ConnectionKeys, PROJECT_FILE, SourceLocation},
    path_policy::{PathPolicy, PathRefusal, UserPermissions},
};
pub use settings::{ModelBackend, ProjectSettings};
pub use typed_sections::{ModelRole, RateLimitSettings};

/// Largest `ktx.yaml` that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A project and its settings.
#[derive(Clone, Debug)]
pub struct Project {
    /// Absolute path of the directory.
    pub root: PathBuf,
    pub settings: ProjectSettings,
    /// Paths that its connections may read.
    pub path_policy: PathPolicy,
    /// Prompts, skills and pins that the agents get in addition to their unit.
    pub instructions: Arc<Instructions>,
    /// Oddities of `ktx.yaml` or the instructions that are not errors, one sentence each.
    pub warnings: Vec<Problem>,
    /// Worker processes that read the databases of its connections. Until the caller sets a program, every read fails.
    pub sql_workers: SqlWorkers,
    /// What the user's settings contain about warehouses.
    pub warehouse: WarehouseSettings,
    /// What files contain about the tables of its connections, once it was asked for.
    pub facts: ProjectFacts,
    /// Largest raw files of a unit that is not split, in bytes.
    pub unit_bytes: u64,
}

/// Inputs that determine the project directory.
#[derive(Clone, Copy, Debug)]
pub struct ProjectLookup<'a> {
    pub flag: Option<&'a Path>,
    pub env: Option<&'a OsStr>,
    /// Absolute path of the current directory.
    pub cwd: &'a Path,
}

/// Why a project cannot be used. Always a configuration error.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// `KTX_PROJECT_DIR` is set to an empty value.
    #[error("KTX_PROJECT_DIR is set but empty")]
    EmptyVariable,
    /// The directory has no `ktx.yaml`.
    #[error("{} has no ktx.yaml", .0.display())]
    NotFound(PathBuf),
    /// The file exists and cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: Problem },
    /// The content of the file is invalid.
    #[error("{} {problem}", path.display())]
    Invalid {
        path: PathBuf,
        /// Everything that is wrong, with the lines.
        problem: Problem,
        /// Oddities that are not errors, as in [`Project`].
        warnings: Vec<Problem>,
    },
    /// A prompt, a skill or the pins are invalid.
    #[error(transparent)]
    InvalidInstruction(#[from] InvalidInstruction),
    /// `ktx.yaml` selects a backend that this program does not support.
    #[error(
        "{} line {line}: {key} is `{backend}`, and units run only through Claude Code here",
        path.display()
    )]
    UnsupportedBackend {
        path: PathBuf,
        line: u64,
        key: &'static str,
        backend: String,
    },
}

impl Diagnostic for ProjectError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::EmptyVariable => "unset it, or set it to the directory of your ktx.yaml".into(),
            Self::NotFound(_) => {
                "go to your project, name it with --project-dir, or let `ingestdeck init` write one"
                    .into()
            }
            Self::UnsupportedBackend { .. } => "set it to `claude-code`".into(),
            Self::Unreadable { cause, .. } => return cause.help(),
            Self::Invalid { problem, .. } => return problem.help(),
            Self::InvalidInstruction(error) => return error.help(),
        })
    }
}

impl ProjectError {
    /// Oddities of a `ktx.yaml` that cannot be used for other reasons.
    pub fn warnings(&self) -> &[Problem] {
        match self {
            Self::Invalid { warnings, .. } => warnings,
            _ => &[],
        }
    }
}

/// Finds the project directory as KTX does: the flag, `KTX_PROJECT_DIR`, the nearest directory at or above the current
/// one that contains a `ktx.yaml`, the current directory. The result is absolute but may not exist.
pub fn find_project_dir(inputs: ProjectLookup<'_>) -> Result<PathBuf, ProjectError> {
    if let Some(flag) = inputs.flag {
        return Ok(inputs.cwd.join(flag));
    }
    if let Some(env) = inputs.env {
        return if env.is_empty() {
            Err(ProjectError::EmptyVariable)
        } else {
            Ok(inputs.cwd.join(env))
        };
    }
    let nearest = inputs
        .cwd
        .ancestors()
        .find(|dir| dir.join(PROJECT_FILE).is_file());
    Ok(nearest.unwrap_or(inputs.cwd).to_path_buf())
}

impl Project {
    /// Reads the project at `root`. Its connections may not read anything outside of it.
    pub fn open(root: &Path) -> Result<Self, ProjectError> {
        let path = root.join(PROJECT_FILE);
        let text = read(root, &path)?;
        let invalid = |problem: Problem, warnings: &[Problem]| ProjectError::Invalid {
            path: path.clone(),
            problem,
            warnings: warnings.to_vec(),
        };
        let tree =
            yaml::parse_tree(&text).map_err(|error| invalid(yaml::explain(&text, &error), &[]))?;
        let (settings, warnings) = settings::parse_settings(&tree);
        let mut warnings: Vec<Problem> = warnings
            .into_iter()
            .map(|warning| warning.prefixed(format_args!("{PROJECT_FILE} ")))
            .collect();
        let settings = settings.map_err(|problem| invalid(problem, &warnings))?;
        let root = root
            .canonicalize()
            .map_err(|cause| unreadable(root, &cause))?;
        check_output_dirs(&root)?;
        let (instructions, idle) = Instructions::load(&root)?;
        warnings.extend(idle);
        let policy = PathPolicy::from_project(&settings.hidden_paths);
        Ok(Self {
            root,
            settings,
            path_policy: policy,
            instructions: Arc::new(instructions),
            warnings,
            sql_workers: SqlWorkers::default(),
            warehouse: WarehouseSettings::default(),
            facts: ProjectFacts::default(),
            unit_bytes: DEFAULT_UNIT_BYTES,
        })
    }

    /// One of its connections, for an adapter.
    pub(crate) fn connection<'a>(&'a self, connection: &'a Connection) -> ProjectConnection<'a> {
        ProjectConnection {
            project: &self.root,
            policy: &self.path_policy,
            connection,
            unit_bytes: self.unit_bytes,
        }
    }

    /// The repositories that git fetches, of the connections with one of these `ids` or of all.
    pub fn git_sources<'a>(
        &'a self,
        ids: &'a [String],
    ) -> impl Iterator<Item = (&'a str, Result<GitSource<'a>, GitSourceError>)> {
        let adapters = self.settings.adapters.as_ref();
        let is_wanted = move |connection: &&Connection| {
            let is_used = |driver: &String| adapters.is_none_or(|names| names.contains(driver));
            (ids.is_empty() || ids.contains(&connection.id))
                && connection.driver.as_ref().is_some_and(is_used)
        };
        let connections = self.settings.connections.iter().filter(is_wanted);
        connections.filter_map(|connection| {
            let source = self.connection(connection).repository().transpose()?;
            Some((connection.id.as_str(), source))
        })
    }

    /// Returns the project with connections that may also read what the user allows. Only the user may allow it, never
    /// the project.
    #[must_use]
    pub fn with_permissions(mut self, permissions: UserPermissions) -> Self {
        self.warehouse = permissions.warehouse.clone();
        self.path_policy.allow(&self.root, permissions);
        self
    }

    /// Returns the project with units whose raw files fill at most `percent` of a context of `tokens`.
    #[must_use]
    pub fn with_unit_share(mut self, percent: u32, tokens: u64) -> Self {
        self.unit_bytes = tokens * BYTES_PER_TOKEN * u64::from(percent) / 100;
        self
    }

    /// Fails if `ktx.yaml` selects an unsupported backend. Planning does not need this check, running does.
    pub fn check_backend(&self) -> Result<(), ProjectError> {
        match &self.settings.backend {
            ModelBackend::ClaudeCode => Ok(()),
            ModelBackend::Unsupported { key, name, line } => {
                Err(ProjectError::UnsupportedBackend {
                    path: self.root.join(PROJECT_FILE),
                    line: *line,
                    key,
                    backend: name.clone(),
                })
            }
        }
    }
}

fn read(root: &Path, path: &Path) -> Result<String, ProjectError> {
    let bytes = match ScopedDir::open(root).and_then(|dir| dir.read(PROJECT_FILE, MAX_FILE_BYTES)) {
        Ok(bytes) => bytes,
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    ProjectError::NotFound(root.to_path_buf())
                }
                io::ErrorKind::FileTooLarge => {
                    let cause = Problem::new("it is larger than 1 MiB")
                        .with_help("keep only settings in it");
                    ProjectError::Unreadable {
                        path: path.to_path_buf(),
                        cause,
                    }
                }
                _ => unreadable(path, &error),
            });
        }
    };
    String::from_utf8(bytes).map_err(|error| {
        let good = error
            .as_bytes()
            .get(..error.utf8_error().valid_up_to())
            .unwrap_or_default();
        let line = 1 + memchr::memchr_iter(b'\n', good).count();
        ProjectError::Invalid {
            path: path.to_path_buf(),
            problem: Problem::new(format!("line {line}: the file is not UTF-8 text"))
                .with_help("save it as UTF-8"),
            warnings: Vec::new(),
        }
    })
}

/// Rejects linked output directories before the run; otherwise every unit would fail on them.
fn check_output_dirs(root: &Path) -> Result<(), ProjectError> {
    let dir = ScopedDir::open(root).map_err(|cause| unreadable(root, &cause))?;
    let is_link = |name: &&&str| {
        dir.kind(name)
            .is_ok_and(|kind| kind == Some(FileKind::Symlink))
    };
    match ["wiki", "semantic-layer"].iter().find(is_link) {
        None => Ok(()),
        Some(name) => {
            let cause =
                Problem::new("it is a symbolic link").with_help("replace it with a real directory");
            Err(ProjectError::Unreadable {
                path: root.join(name),
                cause,
            })
        }
    }
}

fn unreadable(path: &Path, cause: &io::Error) -> ProjectError {
    ProjectError::Unreadable {
        path: path.to_path_buf(),
        cause: Problem::new(cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{
        typed_sections::{RetrySettings, WorkUnitSettings},
        *,
    };
    use ingestdeck_core::units::schedule::FailureMode;

    fn project(text: &str) -> Result<Project, ProjectError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(PROJECT_FILE), text).unwrap();
        Project::open(dir.path())
    }

    fn complaint(text: &str) -> String {
        let message = project(text).unwrap_err().to_line();
        message.split_once(PROJECT_FILE).unwrap().1.to_owned()
    }

    #[test]
    fn the_flag_wins_then_the_variable_then_the_nearest_project() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        let at = |flag: Option<&'static str>, env: Option<&'static str>| {
            find_project_dir(ProjectLookup {
                flag: flag.map(Path::new),
                env: env.map(OsStr::new),
                cwd: &deep,
            })
        };
        assert_eq!(at(Some("x"), Some("/y")).unwrap(), deep.join("x"));
        assert_eq!(at(None, Some("/y")).unwrap(), Path::new("/y"));
        assert!(matches!(
            at(None, Some("")),
            Err(ProjectError::EmptyVariable)
        ));
        assert_eq!(at(Some("x"), Some("")).unwrap(), deep.join("x"));
        assert_eq!(at(None, None).unwrap(), deep);
        fs::write(dir.path().join(PROJECT_FILE), "").unwrap();
        assert_eq!(at(None, None).unwrap(), dir.path());
        fs::create_dir(deep.join(PROJECT_FILE)).unwrap();
        assert_eq!(
            at(None, None).unwrap(),
            dir.path(),
            "a directory named ktx.yaml does not make a project"
        );
    }

    #[test]
    fn missing_ktx_yaml_error_names_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let message = Project::open(dir.path()).unwrap_err().to_line();
        assert!(
            message.ends_with("or let `ingestdeck init` write one"),
            "{message}"
        );
        assert!(matches!(
            Project::open(&dir.path().join("no")),
            Err(ProjectError::NotFound(_))
        ));
    }

    #[test]
    fn an_empty_file_is_a_project_with_defaults() {
        let project = project("# nothing yet\n").unwrap();
        assert_eq!(project.settings, ProjectSettings::default());
        assert!(project.warnings.is_empty());
        assert!(project.check_backend().is_ok());
    }

    #[test]
    fn unreadable_ktx_yaml_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(PROJECT_FILE), b"a: 1\nb: \xff\xfe\n").unwrap();
        let message = Project::open(dir.path()).unwrap_err().to_string();
        assert!(
            message.contains("line 2: the file is not UTF-8"),
            "{message}"
        );
        fs::write(dir.path().join(PROJECT_FILE), vec![b'#'; 1024 * 1024 + 1]).unwrap();
        assert!(
            Project::open(dir.path())
                .unwrap_err()
                .to_string()
                .contains("larger than 1 MiB")
        );
        fs::remove_file(dir.path().join(PROJECT_FILE)).unwrap();
        nix::unistd::mkfifo(
            &dir.path().join(PROJECT_FILE),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        assert!(
            Project::open(dir.path())
                .unwrap_err()
                .to_string()
                .contains("not a regular file")
        );
    }

    #[test]
    fn wrong_type_error_has_a_line() {
        let cases = [
            "connections: 3\n",
            "connections:\n  'a b': {driver: dbt}\n",
            "connections:\n  a: dbt\n",
            "ingest:\n  workUnits:\n    stepBudget: many\n",
            "ingest:\n  workUnits:\n    maxConcurrency: 0\n",
            "ingest:\n  workUnits:\n    failureMode: stop\n",
            "ingest:\n  rateLimit:\n    throttleThreshold: 80\n",
            "ingest:\n  adapters: dbt\n",
            "llm:\n  provider:\n    backend: claudecode\n",
            "llm:\n  models:\n    default: [a]\n",
            "- a\n",
            "a: [1\nb: 2\n",
        ];
        let complaints: Vec<_> = cases.iter().map(|text| complaint(text)).collect();
        insta::assert_snapshot!(complaints.join("\n"));
    }

    #[test]
    fn unknown_keys_are_warnings() {
        let text = "conections: {}\nstorage: {anything: 1}\nllm:\n  provider: {backend: claude-code, modle: x}\n  models: {candidateExtracton: opus}\n\
            ingest:\n  adapters: [dbt, docks]\n  workUnits: {stepbudget: 3, max_concurrency: 2}\nconnections:\n  a: {driver: docs, sourcedir: x}\n";
        insta::assert_snapshot!(
            ingestdeck_core::diagnostic::to_lines(&project(text).unwrap().warnings).join("\n")
        );
    }

    #[test]
    fn foreign_backends_plan_but_do_not_run() {
        let project = project("llm:\n  provider:\n    backend: anthropic\n").unwrap();
        let message = project.check_backend().unwrap_err().to_string();
        assert!(
            message.contains("line 3: llm.provider.backend is `anthropic`"),
            "{message}"
        );
    }

    #[test]
    fn agent_runner_backend_overrides_provider() {
        let text =
            "llm:\n  provider: {backend: anthropic}\n  agentRunner: {backend: claude-code}\n";
        assert!(project(text).unwrap().check_backend().is_ok());
        let text = "llm:\n  provider: {backend: claude-code}\n  agentRunner: {backend: ai-sdk}\n";
        assert!(project(text).unwrap().check_backend().is_err());
    }

    #[test]
    fn models_fall_back_to_the_default_role() {
        let settings = project("llm:\n  models: {default: sonnet, reconcile: opus}\n")
            .unwrap()
            .settings;
        assert_eq!(
            settings.model_with_role(ModelRole::CandidateExtraction),
            Some((ModelRole::Default, "sonnet"))
        );
        assert_eq!(
            settings.model_with_role(ModelRole::Reconcile),
            Some((ModelRole::Reconcile, "opus"))
        );
        assert_eq!(
            ProjectSettings::default().model_with_role(ModelRole::Default),
            None
        );
    }

    #[test]
    fn everything_that_ktx_writes_is_read() {
        let text = "ingest:\n  workUnits: {stepBudget: 7, maxConcurrency: 3, failureMode: abort}\n  rateLimit:\n    enabled: false\n    \
            throttleThreshold: 0.5\n    minConcurrencyUnderPressure: 2\n    maxWaitMs: 1000\n    retry: {maxAttempts: 2, baseDelayMs: 5, maxDelayMs: 50, jitter: false}\n  \
            embeddings: {backend: none}\n  profile: json\n";
        let project = project(text).unwrap();
        assert_eq!(project.warnings, []);
        let settings = project.settings;
        assert_eq!(
            settings.work_units,
            WorkUnitSettings {
                step_budget: 7,
                max_concurrency: 3,
                failure_mode: FailureMode::Abort
            }
        );
        assert_eq!(
            settings.rate_limit.retry,
            RetrySettings {
                max_attempts: 2,
                base_delay_ms: 5,
                max_delay_ms: 50,
                jitter: false
            }
        );
        assert_eq!(settings.rate_limit.max_wait_ms, Some(1000));
    }
}
