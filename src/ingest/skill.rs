//! Skills: instructions that an agent loads when it needs them, shipped with the program.
//!
//! The prompt lists names and descriptions; bodies come through `load_skill` only. It must not know about units.

use std::sync::LazyLock;

use serde::Deserialize;

use super::yaml;

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) body: String,
}

/// Offered to every unit, whatever its adapter.
const COMMON: [&str; 3] = ["ingest_triage", "sl_capture", "wiki_capture"];

const FILES: [&str; 8] = [
    include_str!("../../assets/skills/ingest_triage/SKILL.md"),
    include_str!("../../assets/skills/sl_capture/SKILL.md"),
    include_str!("../../assets/skills/wiki_capture/SKILL.md"),
    include_str!("../../assets/skills/dbt_ingest/SKILL.md"),
    include_str!("../../assets/skills/docs_ingest/SKILL.md"),
    include_str!("../../assets/skills/lookml_ingest/SKILL.md"),
    include_str!("../../assets/skills/metricflow_ingest/SKILL.md"),
    include_str!("../../assets/skills/notion_synthesize/SKILL.md"),
];

/// The common skills and those named in `extra`, in the order of the files.
pub(crate) fn offered(extra: &[&str]) -> Vec<&'static Skill> {
    static ALL: LazyLock<Vec<Skill>> = LazyLock::new(|| FILES.iter().filter_map(|text| parse(text)).collect());
    let is_offered = |skill: &&Skill| COMMON.contains(&skill.name.as_str()) || extra.contains(&skill.name.as_str());
    ALL.iter().filter(is_offered).collect()
}

fn parse(text: &str) -> Option<Skill> {
    #[derive(Deserialize)]
    struct Front {
        name: String,
        description: String,
    }
    let (front, body) = text.strip_prefix("---\n")?.split_once("\n---\n")?;
    let Front { name, description } = yaml::from_str(front).ok()?;
    Some(Skill { name, description, body: body.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::source;

    #[test]
    fn every_file_is_a_skill() {
        for text in FILES {
            let skill = parse(text).unwrap();
            assert!(!skill.description.is_empty() && skill.body.starts_with("# "), "{}", skill.name);
        }
    }

    #[test]
    fn whatever_an_adapter_names_exists() {
        for adapter in source::names().filter_map(source::adapter) {
            let offered = offered(adapter.skills());
            assert_eq!(offered.len(), COMMON.len() + adapter.skills().len(), "{}", adapter.name());
        }
    }
}
