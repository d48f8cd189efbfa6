//! What a unit is made of, as digests: by them a later run tells whether a success still stands.
//!
//! Counted are the bytes of its files, the prompt without what the project says at the moment, the skills, the tools and
//! the model. It must not know what the digests are compared with.

use crate::scoped_dir::ScopedDir;
use std::{
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{
    attempt::Job,
    instructions::Instructions,
    plan::WorkUnit,
    project::Project,
    prompt::{self, Amended, Surroundings},
    reach::Reach,
    skill::Skill,
    source,
    tool::{Bench, Tools},
    workspace::Workspace,
};
use crate::{
    tape::note::Content,
    units::{ToolSpec, Toolset as _},
};

/// Version of the way units are asked and digests are made. A release that changes neither keeps it.
const PROGRAM: u32 = 1;

/// Bytes of a file that are read at once.
const PIECE: usize = 64 << 10;

/// What `unit` is made of now, with `model` planned for it. Reads its files.
///
/// # Errors
/// When one of its files cannot be read.
pub fn of(project: &Project, unit: &WorkUnit, model: Option<&str>) -> io::Result<Content> {
    let extra = source::adapter(&unit.planned.adapter).map_or(&[][..], |adapter| adapter.skills());
    let skills = project.instructions.offered(extra);
    let bench = Bench {
        unit: unit.clone(),
        workspace: Workspace::read_only(&project.root),
        reach: Reach::of(project, Some(&unit.planned.connection)),
        skills: project.instructions.loadable(),
        kept: Default::default(),
    };
    let tools = Tools::new(Arc::new(bench), None);
    made_of(unit, &project.instructions, &skills, &tools.specs(), model)
}

/// What `unit` is made of with these skills and tools.
pub(crate) fn made_of(
    unit: &WorkUnit,
    told: &Instructions,
    skills: &[Arc<Skill>],
    tools: &[ToolSpec],
    model: Option<&str>,
) -> io::Result<Content> {
    let planned = &unit.planned;
    let mut content = Content {
        key: String::new(),
        raw: files(&unit.source_root, &planned.raw_files)?,
        dependencies: files(&unit.source_root, &planned.dependency_paths)?,
        prompt: asked(unit, told, skills),
        tools: offered(tools),
        model: model.map(str::to_owned),
        program: PROGRAM,
        skills: skills.iter().map(|skill| skill.name.clone()).collect(),
    };
    let mut key = Parts::default();
    key.add(PROGRAM.to_string()).add(planned.unit.as_str()).add(&planned.connection).add(&planned.adapter);
    key.add(&content.raw).add(&content.dependencies).add(&content.prompt).add(&content.tools);
    // No model is not a model without a name.
    key.add(if model.is_some() { "model" } else { "default" }).add(model.unwrap_or_default());
    content.key = key.digest();
    Ok(content)
}

/// Names and bytes of `paths` below `root`.
fn files(root: &Path, paths: &[String]) -> io::Result<String> {
    let mut parts = Parts::default();
    if paths.is_empty() {
        return Ok(parts.digest());
    }
    let folder = ScopedDir::open(root)?;
    let mut piece = vec![0; PIECE];
    for path in paths {
        let (mut file, _) = folder.open_file(path)?;
        let mut bytes = Sha256::new();
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => bytes.update(piece.get(..read).unwrap_or_default()),
            }
        }
        parts.add(path).add(bytes.finalize());
    }
    Ok(parts.digest())
}

/// What the agent is told whatever the project says at the moment: the index of pages and sources grows while a run goes
/// on, and the names of other files are no content of this unit.
fn asked(unit: &WorkUnit, told: &Instructions, skills: &[Arc<Skill>]) -> String {
    let unit = WorkUnit { peer_file_index: Vec::new(), prior: Vec::new(), ..unit.clone() };
    let job = Job { id: String::new(), sync_id: String::new() };
    let prompt = prompt::write(&unit, &job, told, skills, &Surroundings::default(), Amended::No);
    let mut parts = Parts::default();
    parts.add(prompt.system).add(prompt.user);
    for skill in skills {
        parts.add(&skill.name).add(&skill.body);
    }
    parts.digest()
}

fn offered(tools: &[ToolSpec]) -> String {
    let mut parts = Parts::default();
    for tool in tools {
        // A schema is a tree of strings and numbers, which has a JSON form.
        parts.add(tool.name).add(&tool.description).add(serde_json::to_vec(&tool.input_schema).unwrap_or_default());
    }
    parts.digest()
}

/// A digest over parts that cannot run into each other.
#[derive(Default)]
struct Parts(Sha256);

impl Parts {
    fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    fn digest(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tape::note::PlannedUnit;

    struct Source {
        dir: tempfile::TempDir,
        unit: WorkUnit,
    }

    impl Source {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in [("a.md", "a"), ("b.md", "b"), ("dep.yml", "dep")] {
                fs::write(dir.path().join(name), text).unwrap();
            }
            let planned = PlannedUnit {
                unit: "docs-a".into(),
                connection: "notes".into(),
                adapter: "docs".into(),
                raw_files: vec!["a.md".into(), "b.md".into()],
                dependency_paths: vec!["dep.yml".into()],
                ..PlannedUnit::default()
            };
            let unit = WorkUnit { planned, source_root: dir.path().to_owned(), ..WorkUnit::default() };
            Self { dir, unit }
        }

        fn content(&self) -> Content {
            self.with("sonnet", "reads")
        }

        fn with(&self, model: &str, about: &str) -> Content {
            let tool = ToolSpec {
                name: "read_raw_file",
                description: about.into(),
                input_schema: serde_json::Map::default(),
                read_only: true,
            };
            let told = Instructions::default();
            made_of(&self.unit, &told, &told.offered(&[]), &[tool], Some(model)).unwrap()
        }
    }

    #[test]
    fn the_same_is_the_same_whatever_stands_beside_it() {
        let source = Source::new();
        let content = source.content();
        assert_eq!(content.key.len(), 64);
        fs::write(source.dir.path().join("c.md"), "a new peer").unwrap();
        let mut later = Source { unit: source.unit.clone(), dir: source.dir };
        later.unit.peer_file_index = vec!["c.md".into()];
        later.unit.planned.why = "something else".into();
        assert_eq!(later.content(), content);
    }

    #[test]
    fn each_part_is_told_apart() {
        let source = Source::new();
        let then = source.content();
        let raw = {
            // The same bytes, cut at another place.
            fs::write(source.dir.path().join("a.md"), "ab").unwrap();
            fs::write(source.dir.path().join("b.md"), "").unwrap();
            let now = source.content();
            fs::write(source.dir.path().join("a.md"), "a").unwrap();
            fs::write(source.dir.path().join("b.md"), "b").unwrap();
            now
        };
        assert!(raw.raw != then.raw && raw.dependencies == then.dependencies && raw.key != then.key);
        fs::write(source.dir.path().join("dep.yml"), "other").unwrap();
        let dependencies = source.content();
        assert!(dependencies.dependencies != then.dependencies && dependencies.raw == then.raw);
        fs::write(source.dir.path().join("dep.yml"), "dep").unwrap();
        assert_eq!(source.content(), then);

        let (model, tools) = (source.with("opus", "reads"), source.with("sonnet", "reads more"));
        assert!(model.key != then.key && (model.tools.as_str(), model.raw.as_str()) == (&then.tools, &then.raw));
        assert!(tools.tools != then.tools && tools.key != then.key);
        let mut noted = Source { unit: source.unit.clone(), dir: source.dir };
        noted.unit.notes = Some("mind the gap".into());
        assert!(noted.content().prompt != then.prompt);
        noted.unit = WorkUnit {
            planned: PlannedUnit { connection: "other".into(), ..noted.unit.planned.clone() },
            ..noted.unit.clone()
        };
        assert_ne!(noted.content().key, then.key);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let source = Source::new();
        fs::remove_file(source.dir.path().join("b.md")).unwrap();
        assert_eq!(
            made_of(&source.unit, &Instructions::default(), &[], &[], None).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        std::os::unix::fs::symlink("/etc/passwd", source.dir.path().join("b.md")).unwrap();
        assert!(
            made_of(&source.unit, &Instructions::default(), &[], &[], None).is_err(),
            "nothing is read through a link"
        );
    }
}
