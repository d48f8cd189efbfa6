//! Skills: instructions that an agent loads when it needs them, bundled with the program or provided by the project.
//!
//! The prompt contains those that fit a unit, and lists the project's own; `load_skill` returns any. This module must not know
//! about units, nor where a project keeps its own skills.

use std::sync::{Arc, LazyLock};

use ingestdeck_core::diagnostic::Problem;

use serde::Deserialize;

use super::{source, yaml};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skill {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) body: String,
    /// Whether agents of work units may load the skill.
    pub(crate) is_for_units: bool,
}

/// Skills that are offered to every unit, regardless of its adapter.
pub(crate) const COMMON_SKILLS: [&str; 3] = ["ingest_triage", "sl_capture", "wiki_capture"];

/// KTX's name for the agent of a work unit.
const WORK_UNIT_CALLER: &str = "memory_agent";

/// KTX's names of agents.
const KNOWN_CALLERS: [&str; 2] = [WORK_UNIT_CALLER, "research"];

/// Longest description, in characters. Descriptions are part of every unit's prompt.
const MAX_DESCRIPTION_CHARS: usize = 500;

/// Files that do not belong to an adapter.
const COMMON_FILES: [&str; 4] = [
    include_str!("../../assets/skills/ingest_triage/SKILL.md"),
    include_str!("../../assets/skills/sl/SKILL.md"),
    include_str!("../../assets/skills/sl_capture/SKILL.md"),
    include_str!("../../assets/skills/wiki_capture/SKILL.md"),
];

/// The bundled skills: the common ones, and those of adapters in the order of their names.
pub(crate) fn bundled_skills() -> &'static [Arc<Skill>] {
    static ALL: LazyLock<Vec<Arc<Skill>>> = LazyLock::new(|| {
        let parsed = |text: &&str| parse(text).ok().map(Arc::new);
        let mut skills: Vec<Arc<Skill>> = COMMON_FILES.iter().filter_map(parsed).collect();
        let of_adapters = source::adapters().filter_map(|adapter| adapter.skill());
        let common = skills.len();
        skills.extend(of_adapters.filter_map(|text| parsed(&text)));
        skills[common..].sort_by(|one, other| one.name.cmp(&other.name));
        skills
    });
    &ALL
}

/// Parses a `SKILL.md`. The error is the end of a sentence about the file.
pub(crate) fn parse(text: &str) -> Result<Skill, Problem> {
    #[derive(Deserialize)]
    struct SkillFrontmatter {
        name: String,
        description: String,
        callers: Option<Vec<String>>,
    }
    let missing_frontmatter = || {
        Problem::new("does not start with frontmatter")
            .with_help("begin it with `---`, name, description and `---`")
    };
    // Accept line endings of Windows.
    let text = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .replace("\r\n", "\n");
    let (front, body) = text
        .strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---\n"))
        .ok_or_else(missing_frontmatter)?;
    let SkillFrontmatter {
        name,
        description,
        callers,
    } = yaml::from_str(front).map_err(|error| {
        Problem::new(format!("has frontmatter that cannot be read ({error})"))
            .with_help("it takes name, description and callers")
    })?;
    if description.trim().is_empty() || description.chars().count() > MAX_DESCRIPTION_CHARS {
        return Err(Problem::new(format!(
            "has no description of 1 to {MAX_DESCRIPTION_CHARS} characters; units choose skills by it"
        )));
    }
    if body.trim().is_empty() {
        return Err(
            Problem::new("has no body").with_help("write the instructions below the frontmatter")
        );
    }
    let strange = callers
        .iter()
        .flatten()
        .find(|caller| !KNOWN_CALLERS.contains(&caller.as_str()));
    if let Some(caller) = strange {
        return Err(
            Problem::new(format!("names the caller `{}`", caller.escape_debug()))
                .with_help(format!("callers are {}", KNOWN_CALLERS.join(", "))),
        );
    }
    let for_units =
        callers.is_none_or(|callers| callers.iter().any(|caller| caller == WORK_UNIT_CALLER));
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Skill {
        name,
        description,
        body: body.trim().to_owned(),
        is_for_units: for_units,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_skill() {
        let of_adapters = source::adapters().filter_map(|adapter| adapter.skill());
        for text in COMMON_FILES.into_iter().chain(of_adapters) {
            let skill = parse(text).unwrap();
            assert!(
                skill.is_for_units && skill.body.starts_with("# "),
                "{}",
                skill.name
            );
        }
        let names: Vec<&str> = bundled_skills()
            .iter()
            .map(|skill| skill.name.as_str())
            .collect();
        assert!(
            COMMON_SKILLS.iter().all(|name| names.contains(name)),
            "{names:?}"
        );
    }

    /// The code blocks of a language in the text of a skill.
    fn blocks<'a>(body: &'a str, language: &str) -> Vec<&'a str> {
        let start = format!("```{language}\n");
        let blocks = body.split(start.as_str()).skip(1);
        blocks
            .filter_map(|block| block.split("\n```").next())
            .collect()
    }

    /// What agents copy from an example must be accepted by the tools.
    #[test]
    fn examples_in_skills_are_valid() {
        let find = |name: &str| bundled_skills().iter().find(|skill| skill.name == name);
        let pages = blocks(&find("wiki_capture").unwrap().body, "json");
        for page in &pages {
            let arguments = serde_json::from_str(page).unwrap();
            let problems = crate::tool::argument_problems("wiki_write", &arguments);
            assert!(problems.is_empty(), "{problems:?}");
        }
        let sources = blocks(&find("sl_capture").unwrap().body, "yaml");
        for source in &sources {
            let source: serde_json::Value = yaml::from_str(source).unwrap();
            let arguments = serde_json::json!({
                "connectionId": "wh", "sourceName": source["name"], "source": source,
            });
            let problems = crate::tool::argument_problems("sl_write_source", &arguments);
            assert!(problems.is_empty(), "{problems:?}");
        }
        assert_eq!((pages.len(), sources.len()), (2, 2));
    }

    #[test]
    fn invalid_skill_error_names_the_cause() {
        let cases = [
            ("# plain", "does not start with frontmatter"),
            ("---\nname: a\n---\nbody", "frontmatter that cannot be read"),
            (
                "---\nname: a\ndescription: ''\n---\nbody",
                "has no description",
            ),
            ("---\nname: a\ndescription: d\n---\n \n", "has no body"),
            (
                "---\nname: a\ndescription: d\ncallers: [me]\n---\nbody",
                "names the caller `me`",
            ),
            (
                "---\nname: a\ndescription: d\ncallers: memory_agent\n---\nbody",
                "frontmatter that cannot be read",
            ),
        ];
        for (text, start) in cases {
            let problem = parse(text).unwrap_err();
            assert!(problem.to_string().contains(start), "{problem}");
        }
        let skill =
            parse("\u{feff}---\r\nname: on\r\ndescription: \"a\\n b\"\r\ncallers: [research]\r\n---\r\nbody\r\n")
                .unwrap();
        assert_eq!(
            (
                skill.name.as_str(),
                skill.description.as_str(),
                skill.is_for_units
            ),
            ("on", "a b", false)
        );
    }
}
