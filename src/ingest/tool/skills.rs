//! `load_skill`: the body of a skill.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Bench, Tool, miss};
use crate::{ingest::schema::shown, units::ToolReply};

#[derive(Debug)]
pub(super) struct LoadSkill;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Name, as under Skills.
    name: String,
}

impl Tool for LoadSkill {
    const NAME: &'static str = "load_skill";
    const ABOUT: &'static str = "Load the instructions of a skill. The system prompt lists those that fit this unit; a name that \
        does not exist is answered with all names.";
    const READ_ONLY: bool = true;
    type Input = Input;

    fn run(bench: &Bench, Input { name }: Input) -> ToolReply {
        match bench.skills.iter().find(|skill| skill.name == name) {
            Some(skill) => {
                ToolReply { structured: Some(json!({"name": skill.name})), ..ToolReply::text(skill.body.as_str()) }
            }
            None => {
                let names: Vec<_> = bench.skills.iter().map(|skill| skill.name.as_str()).collect();
                miss(format_args!("there is no skill `{}`; there are {}", shown(&name), names.join(", ")))
            }
        }
    }
}
