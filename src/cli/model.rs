//! Which model plays a role, and who chose it: a flag, the project, or Claude Code itself; and what the project tells it.

use crate::ingest::project::{FILE, Project, Role};

/// A model and where the choice comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Alias or full id; `None` leaves it to Claude Code.
    pub model: Option<String>,
    /// `--model`, `llm.models.default, ktx.yaml line 9`, …
    pub origin: String,
    /// Prompts, skills and pins that the project brings itself, one phrase each.
    pub instructions: Vec<String>,
}

impl Choice {
    /// The model of `role` in `project`, unless a flag names another.
    pub fn of(project: &Project, role: Role, flag: Option<&str>) -> Self {
        let (model, origin) = match (flag, project.settings.model_of(role)) {
            (Some(model), _) => (Some(model), "--model".to_owned()),
            (None, None) => (None, "Claude Code's own choice".to_owned()),
            (None, Some((named, model))) => {
                let key = format!("llm.models.{}", named.word());
                let line = project.settings.lines.get(&key).map(|line| format!(" line {line}")).unwrap_or_default();
                (Some(model), format!("{key}, {FILE}{line}"))
            }
        };
        let instructions = project.instructions.overrides.iter().map(ToString::to_string).collect();
        Self { model: model.map(str::to_owned), origin, instructions }
    }

    /// The sentence about the model, then what the project brings itself.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        [self.sentence()].into_iter().chain(self.instructions.iter().cloned())
    }

    /// `model opus (--model)`.
    pub fn sentence(&self) -> String {
        match &self.model {
            Some(model) => format!("model {model} ({})", self.origin),
            None => format!("no model is set ({})", self.origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_outranks_the_role_and_the_role_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let say = |text: &str, flag| {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let project = Project::open(dir.path()).unwrap();
            Choice::of(&project, Role::CandidateExtraction, flag).sentence()
        };
        assert_eq!(say("", None), "no model is set (Claude Code's own choice)");
        let text = "llm:\n  models:\n    default: haiku\n";
        assert_eq!(say(text, None), "model haiku (llm.models.default, ktx.yaml line 3)");
        let text = "llm:\n  models:\n    default: haiku\n    candidateExtraction: claude-sonnet-4-6\n";
        assert_eq!(say(text, None), "model claude-sonnet-4-6 (llm.models.candidateExtraction, ktx.yaml line 4)");
        assert_eq!(say(text, Some("opus")), "model opus (--model)");
    }
}
