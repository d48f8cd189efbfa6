//! The prompt for a text that the user gives to a run, in the structure of KTX's memory agent: the project, the text as
//! the answer of an assistant, and a message that asks to ingest it.
//!
//! The text is inlined, because it is the input of the unit. Its lines cannot open a section.

use std::sync::Arc;

use super::{ProjectContext, layer_section, wiki_section};
use crate::{
    capture_signals::{self, RequiredSkill},
    instructions::Instructions,
    skill::Skill,
    untrusted_text::{escape_headings, one_line},
    work_unit::WorkUnit,
};

/// Skills about sources, for texts with a connection.
const SOURCE_SKILLS: [&str; 2] = ["sl", "sl_capture"];
const WIKI_SKILLS: [&str; 1] = ["wiki_capture"];

/// What replaces a tab: tabs are escaped like other control characters.
const TAB: &str = "    ";

/// The skills that fit the text of `unit`.
pub(super) fn choose_skills(unit: &WorkUnit, instructions: &Instructions) -> Vec<Arc<Skill>> {
    let sources = if unit.may_write_sources() {
        &SOURCE_SKILLS[..]
    } else {
        &[]
    };
    let required: Vec<&str> = required(unit)
        .iter()
        .map(|required| required.skill)
        .collect();
    instructions.skills_for_unit(&WIKI_SKILLS, &[sources, &required].concat())
}

fn required(unit: &WorkUnit) -> Vec<RequiredSkill> {
    let text = unit.planned.text.as_deref().unwrap_or_default();
    capture_signals::required_skills(text, unit.may_write_sources())
}

/// The part of the system prompt about skills that the agent must load; `None` if the text requires none of `skills`.
pub(super) fn required_skills(unit: &WorkUnit, skills: &[Arc<Skill>]) -> Option<String> {
    let is_listed =
        |required: &RequiredSkill| skills.iter().any(|skill| skill.name == required.skill);
    let lines: Vec<String> = required(unit)
        .iter()
        .filter(|required| is_listed(required))
        .map(|RequiredSkill { skill, reason }| format!("- {skill}: the artifact {reason}"))
        .collect();
    (!lines.is_empty()).then(|| {
        format!(
            "<required_skills>\nLoad these skills with load_skill before you write anything:\n{}\n</required_skills>",
            lines.join("\n")
        )
    })
}

/// The user prompt for the text of `unit`.
pub(super) fn task(unit: &WorkUnit, project: &ProjectContext) -> String {
    let planned = &unit.planned;
    let wiki = wiki_section(project);
    let layer = unit.may_write_sources().then(|| layer_section(project));
    let text = planned
        .text
        .as_deref()
        .unwrap_or_default()
        .replace("\r\n", "\n")
        .replace('\t', TAB);
    let label = one_line(planned.label.as_deref().unwrap_or(planned.unit.as_str()));
    let excerpt = label
        .strip_prefix('"')
        .and_then(|label| label.strip_suffix('"'));
    let label = excerpt.unwrap_or(&label).replace('"', "'");
    let task = [
        "---".to_owned(),
        format!("## Assistant Response\n{}", escape_headings(&text)),
        format!("## User Message\nIngest external text artifact \"{label}\" into ktx memory."),
    ];
    [wiki]
        .into_iter()
        .chain(layer)
        .chain(task)
        .collect::<Vec<_>>()
        .join("\n\n")
}
