//! Digests of a unit's inputs, by which a later run decides whether an earlier success can be reused.
//!
//! The digests cover the bytes of its files, the prompt without the current state of the project, the skills, the tools
//! and the model. This module must not know what the digests are compared with.

use ingestdeck_os::scoped_dir::ScopedDir;
use std::{
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{
    connection_scope::ConnectionScope,
    instructions::Instructions,
    job::IngestJob,
    project::Project,
    prompt::{self, ProjectContext, PromptAmendment},
    skill::Skill,
    slug::hex,
    tool::{AttemptTools, ToolContext},
    work_unit::WorkUnit,
    workspace::Workspace,
};
use ingestdeck_core::{
    tape::note::ContentDigests,
    units::{ToolSpec, Toolset as _},
};

/// Version of the prompts and of the digest format. Increase it in a release that changes either.
const DIGEST_VERSION: u32 = 1;

/// Size of the read buffer.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Current digests of `unit`, with `model` planned for it. Reads its files.
///
/// # Errors
/// When one of its files cannot be read.
pub fn digest_unit(
    project: &Project,
    unit: &WorkUnit,
    model: Option<&str>,
) -> io::Result<ContentDigests> {
    let skills = prompt::choose_skills(unit, &project.instructions);
    let context = ToolContext {
        unit: unit.clone(),
        workspace: Workspace::read_only(&project.root),
        scope: ConnectionScope::new(project, unit.own_connection()),
        loadable_skills: project.instructions.loadable_skills(),
        records: Default::default(),
    };
    let tools = AttemptTools::new(Arc::new(context), None);
    digest_unit_with(unit, &project.instructions, &skills, &tools.specs(), model)
}

/// Digests of `unit` with these skills and tools.
pub(crate) fn digest_unit_with(
    unit: &WorkUnit,
    instructions: &Instructions,
    skills: &[Arc<Skill>],
    tools: &[ToolSpec],
    model: Option<&str>,
) -> io::Result<ContentDigests> {
    let planned = &unit.planned;
    let mut content = ContentDigests {
        combined: String::new(),
        raw_files: files(&unit.source_root, &planned.raw_files)?,
        dependencies: files(&unit.source_root, &planned.dependency_paths)?,
        prompt: digest_prompt(unit, instructions, skills),
        tools: digest_tools(tools),
        model: model.map(str::to_owned),
        algorithm_version: DIGEST_VERSION,
        skills: skills.iter().map(|skill| skill.name.clone()).collect(),
    };
    let mut key = PartsDigest::default();
    key.add(DIGEST_VERSION.to_string())
        .add(planned.unit.as_str())
        .add(&planned.connection)
        .add(&planned.adapter);
    key.add(&content.raw_files)
        .add(&content.dependencies)
        .add(&content.prompt)
        .add(&content.tools);
    // An absent model must differ from a model with an empty name.
    key.add(if model.is_some() { "model" } else { "default" })
        .add(model.unwrap_or_default());
    content.combined = key.digest();
    Ok(content)
}

/// Digest of names and bytes of `paths` below `root`.
fn files(root: &Path, paths: &[String]) -> io::Result<String> {
    let mut parts = PartsDigest::default();
    if paths.is_empty() {
        return Ok(parts.digest());
    }
    let folder = ScopedDir::open(root)?;
    let mut piece = vec![0; READ_BUFFER_BYTES];
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

/// Digest of the prompt without the current state of the project: the index of pages and sources changes during a run,
/// and the names of other files are not inputs of this unit.
fn digest_prompt(unit: &WorkUnit, instructions: &Instructions, skills: &[Arc<Skill>]) -> String {
    let unit = WorkUnit {
        peer_file_index: Vec::new(),
        prior_provenance: Vec::new(),
        review_remarks: None,
        ..unit.clone()
    };
    let job = IngestJob {
        id: String::new(),
        sync_id: String::new(),
    };
    let prompt = prompt::build_prompt(
        &unit,
        &job,
        instructions,
        skills,
        &ProjectContext::default(),
        PromptAmendment::Unchanged,
    );
    let mut parts = PartsDigest::default();
    parts.add(prompt.system).add(prompt.user);
    for skill in skills {
        parts.add(&skill.name).add(&skill.body);
    }
    parts.digest()
}

fn digest_tools(tools: &[ToolSpec]) -> String {
    let mut parts = PartsDigest::default();
    for tool in tools {
        // A schema is a tree of strings and numbers, so it always serializes to JSON.
        parts
            .add(tool.name)
            .add(&tool.description)
            .add(serde_json::to_vec(&tool.input_schema).unwrap_or_default());
    }
    parts.digest()
}

/// A digest over length-delimited parts, so that shifting bytes between parts changes it.
#[derive(Default)]
struct PartsDigest(Sha256);

impl PartsDigest {
    fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    fn digest(self) -> String {
        hex(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use ingestdeck_core::tape::note::PlannedUnit;

    struct ContentFixture {
        dir: tempfile::TempDir,
        unit: WorkUnit,
    }

    impl ContentFixture {
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
            let unit = WorkUnit {
                planned,
                source_root: dir.path().to_owned(),
                ..WorkUnit::default()
            };
            Self { dir, unit }
        }

        fn content(&self) -> ContentDigests {
            self.with("sonnet", "reads")
        }

        fn with(&self, model: &str, about: &str) -> ContentDigests {
            let tool = ToolSpec {
                name: "read_raw_file",
                description: about.into(),
                input_schema: Arc::default(),
                read_only: true,
            };
            let instructions = Instructions::default();
            let skills = prompt::choose_skills(&self.unit, &instructions);
            digest_unit_with(&self.unit, &instructions, &skills, &[tool], Some(model)).unwrap()
        }
    }

    #[test]
    fn digest_ignores_peers_and_run_reason() {
        let source = ContentFixture::new();
        let content = source.content();
        assert_eq!(content.combined.len(), 64);
        fs::write(source.dir.path().join("c.md"), "a new peer").unwrap();
        let mut later = ContentFixture {
            unit: source.unit.clone(),
            dir: source.dir,
        };
        later.unit.peer_file_index = vec!["c.md".into()];
        later.unit.planned.why = "something else".into();
        assert_eq!(later.content(), content);
    }

    #[test]
    fn digest_changes_with_each_part() {
        let source = ContentFixture::new();
        let then = source.content();
        let raw = {
            // The same bytes, split at a different position.
            fs::write(source.dir.path().join("a.md"), "ab").unwrap();
            fs::write(source.dir.path().join("b.md"), "").unwrap();
            let now = source.content();
            fs::write(source.dir.path().join("a.md"), "a").unwrap();
            fs::write(source.dir.path().join("b.md"), "b").unwrap();
            now
        };
        assert!(
            raw.raw_files != then.raw_files
                && raw.dependencies == then.dependencies
                && raw.combined != then.combined
        );
        fs::write(source.dir.path().join("dep.yml"), "other").unwrap();
        let dependencies = source.content();
        assert!(
            dependencies.dependencies != then.dependencies
                && dependencies.raw_files == then.raw_files
        );
        fs::write(source.dir.path().join("dep.yml"), "dep").unwrap();
        assert_eq!(source.content(), then);

        let (model, tools) = (
            source.with("opus", "reads"),
            source.with("sonnet", "reads more"),
        );
        assert!(
            model.combined != then.combined
                && (model.tools.as_str(), model.raw_files.as_str())
                    == (&then.tools, &then.raw_files)
        );
        assert!(tools.tools != then.tools && tools.combined != then.combined);
        let mut noted = ContentFixture {
            unit: source.unit.clone(),
            dir: source.dir,
        };
        noted.unit.notes = Some("mind the gap".into());
        assert!(noted.content().prompt != then.prompt);
        noted.unit = WorkUnit {
            planned: PlannedUnit {
                connection: "other".into(),
                ..noted.unit.planned.clone()
            },
            ..noted.unit.clone()
        };
        assert_ne!(noted.content().combined, then.combined);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let source = ContentFixture::new();
        fs::remove_file(source.dir.path().join("b.md")).unwrap();
        assert_eq!(
            digest_unit_with(&source.unit, &Instructions::default(), &[], &[], None)
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
        std::os::unix::fs::symlink("/etc/passwd", source.dir.path().join("b.md")).unwrap();
        assert!(
            digest_unit_with(&source.unit, &Instructions::default(), &[], &[], None).is_err(),
            "nothing is read through a link"
        );
    }
}
