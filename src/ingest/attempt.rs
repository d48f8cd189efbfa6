//! One try at a unit, from the ingest side: prompt and tools for whoever runs it, then check, publish or discard.
//!
//! It must not know how the agent runs, nor decide whether the attempt was good.

use std::{io, path::Path, sync::Arc};

use jiff::{Timestamp, tz::TimeZone};

use super::{
    check::{self, Checked},
    content,
    instructions::Instructions,
    layer::Layer,
    plan::WorkUnit,
    project::Project,
    prompt::{self, Amended, Prompt, Surroundings},
    reach::Reach,
    source,
    tool::{Bench, Fallback, Kept, Tools},
    transcript::Transcript,
    wiki::{Page, Wiki},
    workspace::{PublishError, Workspace},
};
use crate::{
    tape::note::{Content, Work},
    units::Toolset,
};

/// Names of a run in KTX's places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Job id: folder of the transcripts.
    pub id: String,
    /// Sync id: `YYYY-MM-DD-HHMMSS-<job id>`, in UTC.
    pub sync_id: String,
}

impl Job {
    /// The job that starts at `now`.
    pub fn at(now: Timestamp) -> Self {
        let id = format!("local-{}", base36(now.as_millisecond().unsigned_abs()));
        let date = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H%M%S");
        Self { sync_id: format!("{date}-{id}"), id }
    }
}

/// One try at a unit. Dropped without [`publish`](Self::publish) it leaves nothing behind but its transcript.
#[derive(Debug)]
pub struct Attempt {
    prompt: Prompt,
    instructions: Arc<Instructions>,
    bench: Arc<Bench>,
    tools: Arc<Tools>,
    transcript: Arc<Transcript>,
}

/// An attempt cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare {what}: {cause}")]
pub struct AttemptError {
    what: String,
    cause: io::Error,
}

impl Attempt {
    /// Prepares try number `attempt` (from 1) at `unit`, with what a person adds to its prompt. It works in `dir`, which
    /// lies below the project and must not exist yet.
    pub fn open(
        project: &Project,
        unit: &WorkUnit,
        job: &Job,
        attempt: u32,
        amended: Amended<'_>,
        dir: &Path,
    ) -> Result<Self, AttemptError> {
        let failed = |what: &str| {
            let what = format!("{what} of {}", unit.planned.unit);
            move |cause| AttemptError { what, cause }
        };
        let workspace = Workspace::create(&project.root, dir).map_err(failed("the workspace"))?;
        let transcript = Transcript::open(&project.root, &job.id, &unit.planned.unit, attempt);
        let transcript = Arc::new(transcript.map_err(failed("the transcript"))?);
        let extra = source::adapter(&unit.planned.adapter).map_or(&[][..], |adapter| adapter.skills());
        let skills = project.instructions.offered(extra);
        let around = surroundings(project, &workspace).map_err(failed("the prompt"))?;
        let prompt = prompt::write(unit, job, &project.instructions, &skills, &around, amended);
        let reach = Reach::of(project, Some(&unit.planned.connection));
        let bench = Arc::new(Bench { unit: unit.clone(), workspace, reach, skills, kept: Default::default() });
        let tools = Arc::new(Tools::new(Arc::clone(&bench), Some(Arc::clone(&transcript))));
        let instructions = Arc::clone(&project.instructions);
        Ok(Self { prompt, instructions, bench, tools, transcript })
    }

    /// What the agent is told.
    pub fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// What the agent may call.
    pub fn tools(&self) -> Arc<dyn Toolset> {
        Arc::clone(&self.tools) as _
    }

    /// What the unit is made of, with `model` planned for it. Reads its files.
    ///
    /// # Errors
    /// When one of its files cannot be read.
    pub fn content(&self, model: Option<&str>) -> io::Result<Content> {
        content::made_of(&self.bench.unit, &self.instructions, &self.bench.skills, &self.tools.specs(), model)
    }

    /// The transcript, for calls that failed before they reached the tools.
    pub fn transcript(&self) -> &Arc<Transcript> {
        &self.transcript
    }

    /// What must hold of what was written so far.
    pub fn check(&self) -> Checked {
        check::check(&self.bench.workspace)
    }

    /// Project-relative paths changed so far, sorted.
    pub fn changed(&self) -> Vec<String> {
        self.bench.workspace.changes().into_keys().collect()
    }

    /// Ledger and fallbacks so far.
    pub fn kept(&self) -> Kept {
        self.bench.kept().clone()
    }

    /// What the agent changed and could not map so far.
    pub fn work(&self) -> Work {
        let kept = self.bench.kept();
        let unmapped = kept.fallbacks.iter().map(Fallback::on_record).collect();
        Work { actions: kept.actions.clone(), unmapped, ..Work::default() }
    }

    /// Moves what was written into the project, whole or not at all. Sorted project-relative paths. Blocks while
    /// another attempt publishes. Late tool calls find the workspace closed.
    pub fn publish(&self) -> Result<Vec<String>, PublishError> {
        self.bench.workspace.publish()
    }

    /// Throws away what was written.
    pub fn discard(&self) {
        self.bench.workspace.discard();
    }
}

/// Whoever still holds the tools finds the workspace closed.
impl Drop for Attempt {
    fn drop(&mut self) {
        self.discard();
    }
}

fn surroundings(project: &Project, workspace: &Workspace) -> io::Result<Surroundings> {
    // The index is the attempt's first look at every page and source: what changes after it, it has not seen.
    let mut wiki = Vec::new();
    for key in Wiki(workspace).keys()? {
        let page = Wiki(workspace).text(&key).ok().flatten().and_then(|bytes| Page::parse(&bytes).ok());
        wiki.push((key, page.map_or_else(|| "(cannot be read)".into(), |page| page.front.summary)));
    }
    let mut semantic_layer = Vec::new();
    for connection in &project.settings.connections {
        let sources = Layer(workspace).sources(&connection.id)?;
        for file in &sources.files {
            let _ = workspace.read(&file.path);
        }
        if !sources.all.is_empty() {
            semantic_layer.push((connection.id.clone(), sources.all.into_keys().collect()));
        }
    }
    Ok(Surroundings { wiki, semantic_layer })
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_by_their_time() {
        let job = Job::at("2026-03-17T15:30:01.5Z".parse().unwrap());
        assert_eq!(job.id, "local-mmurqopo");
        assert_eq!(job.sync_id, "2026-03-17-153001-local-mmurqopo");
        assert_eq!((base36(0), base36(35), base36(36)), ("0".into(), "z".into(), "10".into()));
    }
}
