//! `load_skill`: the body of a skill.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{AgentTool, ToolContext, absent_tools_notice, not_found_reply};
use crate::untrusted_text::excerpt;
use ingestdeck_core::units::ToolReply;

#[derive(Debug)]
pub(super) struct LoadSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadSkillInput {
    /// Name of the skill, as listed under Skills.
    name: String,
}

impl AgentTool for LoadSkill {
    const NAME: &'static str = "load_skill";
    const DESCRIPTION: &'static str = "Load the instructions of a skill that the system prompt does not contain. \
        An unknown name is answered with the names of all skills.";
    const READ_ONLY: bool = true;
    type Input = LoadSkillInput;

    fn run(context: &ToolContext, LoadSkillInput { name }: LoadSkillInput) -> ToolReply {
        match context
            .loadable_skills
            .iter()
            .find(|skill| skill.name == name)
        {
            Some(skill) => {
                let mut body = skill.body.clone();
                body += &absent_tools_notice(&body, context);
                ToolReply {
                    structured: Some(json!({"name": skill.name})),
                    ..ToolReply::text(body)
                }
            }
            None => {
                let names: Vec<_> = context
                    .loadable_skills
                    .iter()
                    .map(|skill| skill.name.as_str())
                    .collect();
                not_found_reply(format_args!(
                    "there is no skill `{}`; available skills: {}",
                    excerpt(&name),
                    names.join(", ")
                ))
            }
        }
    }
}
