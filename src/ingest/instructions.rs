//! Instructions that agents get in addition to their unit: prompts, skills and canonical pins. Files of the project
//! override the bundled ones.
//!
//! Owns the paths and the limits of these files. They are read once, when the project is opened, so that an invalid one
//! is reported before anything runs. It must not know units, nor how a prompt is assembled.

use ingestdeck_core::diagnostic::{Diagnostic, Problem};
use ingestdeck_os::scoped_dir::ScopedDir;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::Path,
    sync::Arc,
};

use super::{
    skill::{self, Skill},
    spelling::nearest_name,
    yaml::{self, YamlValue},
};

/// Directory with the prompts of a project.
pub const PROMPTS_DIR: &str = ".ktx/prompts";
/// Directory with its skills, one directory each.
pub(crate) const SKILLS_DIR: &str = ".ktx/skills";
/// Its canonical pins: a map from contested keys to canonical artifacts.
pub(crate) const PINS_FILE: &str = ".ktx/canonical-pins.yaml";

/// Largest prompt, skill or pins file, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 << 10;
/// Most skills of a project.
const MAX_SKILLS: usize = 100;
const MAX_PINS: usize = 500;
/// Longest name of a skill, and longest key of a pin, in characters.
const MAX_NAME_CHARS: usize = 120;

/// A prompt that a project may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PromptKind {
    /// Instructions for the agent of a work unit.
    WorkUnit,
    /// Instructions for the agent of the reconcile step.
    Reconcile,
    /// Instructions for the agent that captures a text.
    ExternalText,
    /// The part of the first two that requires verification before a write.
    Verification,
}

impl PromptKind {
    const ALL: [Self; 4] = [
        Self::WorkUnit,
        Self::Reconcile,
        Self::ExternalText,
        Self::Verification,
    ];

    /// File name without `.md`.
    fn name(self) -> &'static str {
        match self {
            Self::WorkUnit => "work_unit",
            Self::Reconcile => "reconcile",
            Self::ExternalText => "external_text",
            Self::Verification => "verification",
        }
    }

    fn bundled_text(self) -> &'static str {
        match self {
            Self::WorkUnit => include_str!("../../assets/prompts/work_unit.md"),
            Self::Reconcile => include_str!("../../assets/prompts/reconcile.md"),
            Self::ExternalText => include_str!("../../assets/prompts/external_text.md"),
            Self::Verification => include_str!("../../assets/prompts/verification.md"),
        }
    }
}

/// An instruction file of the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionOverride {
    /// Text such as `prompt work_unit`, `skill dbt_ingest` or `2 canonical pins`.
    pub label: String,
    /// Path of the file, relative to the project.
    pub path: String,
    /// Whether it replaces a bundled instruction of the same name.
    pub replaces_bundled: bool,
}

impl std::fmt::Display for InstructionOverride {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.replaces_bundled {
            " instead of the program's"
        } else {
            ""
        };
        write!(f, "{} from {}{how}", self.label, self.path)
    }
}

/// All instructions of a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instructions {
    prompts: BTreeMap<PromptKind, String>,
    skills: Vec<Arc<Skill>>,
    /// Names of the project's own skills, which every unit is offered.
    project_skill_names: Vec<String>,
    /// Contested keys and their canonical artifacts.
    pub(crate) pins: Vec<(String, String)>,
    /// Files of the project that are in use, in the order of prompts, skills, pins.
    pub overrides: Vec<InstructionOverride>,
}

/// An instruction file of the project is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} {problem}")]
pub struct InvalidInstruction {
    /// Relative to the project.
    pub path: String,
    /// End of the sentence that begins with the path.
    pub problem: Problem,
}

impl Diagnostic for InvalidInstruction {
    fn help(&self) -> Option<String> {
        self.problem.help()
    }
}

impl Default for Instructions {
    fn default() -> Self {
        Self {
            prompts: BTreeMap::new(),
            skills: skill::bundled_skills().to_vec(),
            project_skill_names: Vec::new(),
            pins: Vec::new(),
            overrides: Vec::new(),
        }
    }
}

impl Instructions {
    /// Loads the instructions of the project at `root`. The second part lists files that have no effect, one sentence
    /// each.
    pub fn load(root: &Path) -> Result<(Self, Vec<Problem>), InvalidInstruction> {
        let mut found = (Self::default(), Vec::new());
        let Ok(folder) = ScopedDir::open(root) else {
            return Ok(found);
        };
        // A file in place of the directory is reported by the code that writes to the directory.
        if folder.is_file(".ktx") {
            return Ok(found);
        }
        found.0.read_prompts(&folder, &mut found.1)?;
        found.0.read_skills(&folder, &mut found.1)?;
        found.0.read_pins(&folder)?;
        Ok(found)
    }

    pub(crate) fn prompt(&self, text: PromptKind) -> &str {
        self.prompts
            .get(&text)
            .map_or_else(|| text.bundled_text(), String::as_str)
            .trim_end()
    }

    /// The text of the project in place of a bundled prompt.
    pub(crate) fn replaced_prompt(&self, kind: PromptKind) -> Option<&str> {
        self.prompts.get(&kind).map(String::as_str)
    }

    /// The skills for a unit: those named in `common` and `extra`, and the project's own.
    pub(crate) fn skills_for_unit(&self, common: &[&str], extra: &[&str]) -> Vec<Arc<Skill>> {
        let wanted = |skill: &&Arc<Skill>| {
            let name = skill.name.as_str();
            let named = common.contains(&name) || extra.contains(&name);
            skill.is_for_units && (named || self.project_skill_names.iter().any(|own| own == name))
        };
        self.skills.iter().filter(wanted).map(Arc::clone).collect()
    }

    /// True for a skill of the project that does not replace one of the program.
    pub(crate) fn is_added_by_project(&self, name: &str) -> bool {
        let bundled = skill::bundled_skills();
        self.project_skill_names.iter().any(|own| own == name)
            && !bundled.iter().any(|skill| skill.name == name)
    }

    /// Every skill that units may load, regardless of their adapter.
    pub(crate) fn loadable_skills(&self) -> Vec<Arc<Skill>> {
        self.skills
            .iter()
            .filter(|skill| skill.is_for_units)
            .map(Arc::clone)
            .collect()
    }

    fn read_prompts(
        &mut self,
        folder: &ScopedDir,
        idle: &mut Vec<Problem>,
    ) -> Result<(), InvalidInstruction> {
        let known = PromptKind::ALL.map(PromptKind::name);
        for file in list(folder, PROMPTS_DIR)?
            .into_iter()
            .filter(|file| file.ends_with(".md"))
        {
            let path = format!("{PROMPTS_DIR}/{file}");
            let stem = file.trim_end_matches(".md");
            let Some(text) = PromptKind::ALL.into_iter().find(|text| text.name() == stem) else {
                let names: Vec<_> = known.iter().map(|name| format!("{name}.md")).collect();
                let hint = nearest_name(stem, &known)
                    .map(|name| format!("; did you mean {name}.md?"))
                    .unwrap_or_default();
                idle.push(
                    format!(
                        "{path} is ignored: only these prompts can be replaced: {}{hint}",
                        names.join(", ")
                    )
                    .into(),
                );
                continue;
            };
            let content = read(folder, &path)?;
            if content.trim().is_empty() {
                return Err(invalid(
                    &path,
                    Problem::new("is empty")
                        .with_help("write the prompt, or remove the file to use the program's"),
                ));
            }
            self.prompts.insert(text, content);
            self.overrides.push(InstructionOverride {
                label: format!("prompt {stem}"),
                path,
                replaces_bundled: true,
            });
        }
        Ok(())
    }

    fn read_skills(
        &mut self,
        folder: &ScopedDir,
        idle: &mut Vec<Problem>,
    ) -> Result<(), InvalidInstruction> {
        let names = list(folder, SKILLS_DIR)?;
        if names.len() > MAX_SKILLS {
            let problem = Problem::new(format!("holds {} entries", names.len()))
                .with_help(format!("keep {MAX_SKILLS} skills or fewer"));
            return Err(invalid(SKILLS_DIR, problem));
        }
        for name in names.into_iter().filter(|name| !name.starts_with('.')) {
            let path = format!("{SKILLS_DIR}/{name}/SKILL.md");
            let content = match read(folder, &path) {
                Err(error) if error.problem == missing() => {
                    idle.push(
                        format!("{SKILLS_DIR}/{name} is ignored: it contains no SKILL.md").into(),
                    );
                    continue;
                }
                content => content?,
            };
            let skill = skill::parse(&content).map_err(|problem| invalid(&path, problem))?;
            if skill.name != name || !is_name(&name) {
                let problem = Problem::new(format!("is named `{}`", skill.name.escape_debug()))
                    .with_help(
                        "give the skill the name of its folder: letters, digits, `-` and `_`",
                    );
                return Err(invalid(&path, problem));
            }
            let packaged = self.skills.iter().position(|known| known.name == name);
            self.overrides.push(InstructionOverride {
                label: format!("skill {name}"),
                path,
                replaces_bundled: packaged.is_some(),
            });
            match packaged {
                Some(place) => self.skills[place] = Arc::new(skill),
                None => {
                    self.project_skill_names.push(name);
                    self.skills.push(Arc::new(skill));
                }
            }
        }
        Ok(())
    }

    fn read_pins(&mut self, folder: &ScopedDir) -> Result<(), InvalidInstruction> {
        const PINS_FORMAT: &str = "must be a map from contested keys to canonical artifacts, such as \
                             `arr: annual-recurring-revenue`";
        let content = match read(folder, PINS_FILE) {
            Err(error) if error.problem == missing() => return Ok(()),
            content => content?,
        };
        let tree = yaml::parse_tree(&content).map_err(|error| {
            invalid(
                PINS_FILE,
                Problem::new(format!("is not valid YAML: {error}")),
            )
        })?;
        let entries = match tree.value {
            YamlValue::Null => return Ok(()),
            YamlValue::Map(entries) => entries,
            _ => return Err(invalid(PINS_FILE, Problem::new(PINS_FORMAT))),
        };
        if entries.len() > MAX_PINS {
            return Err(invalid(
                PINS_FILE,
                Problem::new(format!("holds {} pins", entries.len()))
                    .with_help(format!("keep {MAX_PINS} or fewer")),
            ));
        }
        for entry in entries {
            let line = entry.line;
            match entry.value.value {
                YamlValue::Text(artifact)
                    if is_printable(&entry.key) && is_printable(&artifact) =>
                {
                    self.pins.push((entry.key, artifact));
                }
                _ => {
                    return Err(invalid(
                        PINS_FILE,
                        Problem::new(format!(
                            "line {line}: {PINS_FORMAT}, each of 1 to {MAX_NAME_CHARS} characters on one line"
                        )),
                    ));
                }
            }
        }
        if !self.pins.is_empty() {
            let plural = if self.pins.len() == 1 { "" } else { "s" };
            let what = format!("{} canonical pin{plural}", self.pins.len());
            self.overrides.push(InstructionOverride {
                label: what,
                path: PINS_FILE.to_owned(),
                replaces_bundled: false,
            });
        }
        Ok(())
    }
}

/// The problem that [`read`] reports for a missing file.
fn missing() -> Problem {
    Problem::new("does not exist")
}

fn invalid(path: &str, problem: Problem) -> InvalidInstruction {
    InvalidInstruction {
        path: path.to_owned(),
        problem,
    }
}

fn read(folder: &ScopedDir, path: &str) -> Result<String, InvalidInstruction> {
    let bytes = folder
        .read(path, MAX_FILE_BYTES)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => invalid(path, missing()),
            _ => invalid(path, read_problem(&error)),
        })?;
    String::from_utf8(bytes).map_err(|_| {
        invalid(
            path,
            Problem::new("is not UTF-8 text").with_help("save it as UTF-8"),
        )
    })
}

/// Sorted names in `relative`; empty if it is missing.
fn list(folder: &ScopedDir, relative: &str) -> Result<Vec<String>, InvalidInstruction> {
    let entries = folder
        .dir_if_exists(relative)
        .and_then(|dir| dir.map_or(Ok(Vec::new()), |dir| dir.entries()));
    let entries = entries.map_err(|error| invalid(relative, read_problem(&error)))?;
    // Skip names that are not UTF-8: they cannot name an instruction.
    let mut names: Vec<String> = entries
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect();
    names.sort_unstable();
    Ok(names)
}

fn read_problem(error: &io::Error) -> Problem {
    match error.kind() {
        // These errors already name the path and the remedy.
        ErrorKind::NotADirectory | ErrorKind::InvalidInput => {
            Problem::new(format!("cannot be read: {error}"))
        }
        _ => Problem::new(format!("cannot be read: {error}")).with_help("fix it or remove it"),
    }
}

fn is_name(name: &str) -> bool {
    name.chars().count() <= MAX_NAME_CHARS
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn is_printable(text: &str) -> bool {
    !text.trim().is_empty()
        && text.chars().count() <= MAX_NAME_CHARS
        && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests;
