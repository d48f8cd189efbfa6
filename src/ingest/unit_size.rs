//! Sizes of units before they run: the prompt and the tools that their attempts would get, and their files.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    connection_scope::ConnectionScope,
    job::IngestJob,
    project::Project,
    project_context,
    prompt::{self, PromptAmendment},
    tool::{AttemptTools, ToolContext},
    work_unit::WorkUnit,
    workspace::Workspace,
};
use ingestdeck_core::units::{Toolset as _, token_estimate::UnitSize};

/// Bytes of the fixed parts of a user prompt.
const PROMPT_FRAME: usize = 300;
/// Bytes of a line that names a file, besides the name.
const LINE_FRAME: usize = 3;

/// The sizes of `units`, in their order. The prompt of each adapter and connection is built once, from the project as it is
/// now.
pub fn measure_units(project: &Project, units: &[WorkUnit]) -> Vec<UnitSize> {
    let around = project_context::read_context(
        project,
        &ConnectionScope::new(project, None),
        &Workspace::read_only(&project.root),
        None,
    )
    .unwrap_or_default();
    let job = IngestJob::new(Timestamp::UNIX_EPOCH);
    let shared_prompt = |unit: &WorkUnit| -> usize {
        let skills = prompt::choose_skills(unit, &project.instructions);
        let instructions = &project.instructions;
        let unchanged = PromptAmendment::Unchanged;
        let prompt = prompt::build_prompt(unit, &job, instructions, &skills, &around, unchanged);
        let context = ToolContext {
            unit: unit.clone(),
            workspace: Workspace::read_only(&project.root),
            scope: ConnectionScope::new(project, unit.own_connection()),
            loadable_skills: instructions.loadable_skills(),
            records: Default::default(),
        };
        let tools = AttemptTools::new(Arc::new(context), None).specs();
        let sizes = tools.iter().map(|tool| {
            let schema = Value::Object((*tool.input_schema).clone()).to_string();
            tool.name.len() + tool.description.len() + schema.len()
        });
        prompt.system.len() + sizes.sum::<usize>()
    };
    let mut known: HashMap<(&str, &str, bool), usize> = HashMap::new();
    let sizes = units.iter().map(|unit| {
        let WorkUnit { planned, .. } = unit;
        let kind = (
            planned.adapter.as_str(),
            planned.connection.as_str(),
            unit.may_write_sources(),
        );
        let shared = *known.entry(kind).or_insert_with(|| shared_prompt(unit));
        let paths = planned.raw_files.iter().chain(&planned.dependency_paths);
        let names = paths.map(String::len);
        let names = names.chain(
            unit.peer_file_index
                .iter()
                .map(|path| path.len())
                .take(prompt::MAX_PEERS),
        );
        let own = names.map(|name| name + LINE_FRAME).sum::<usize>()
            + unit.notes.as_ref().map_or(0, String::len)
            + planned.text.as_ref().map_or(0, String::len)
            + PROMPT_FRAME;
        UnitSize {
            shared_prompt: shared as u64,
            own_prompt: own as u64,
            raw_files: planned
                .bytes
                .filter(|_| !unit.is_text())
                .unwrap_or_default(),
            dependencies: unit.dependency_bytes,
            read_calls: unit.min_read_calls(),
        }
    });
    sizes.collect()
}
