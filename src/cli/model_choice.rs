//! The model of a role and the origin of that choice: a flag, the project, or Claude Code; and the project's
//! instructions.

use ingestdeck_ingest::project::{ModelRole, PROJECT_FILE, Project};

/// A model and the origin of the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelChoice {
    /// Alias or full id; `None` leaves the choice to Claude Code.
    pub model: Option<String>,
    /// For example `--model` or `llm.models.default, ktx.yaml line 9`.
    pub origin: String,
    /// The project's own prompts, skills and pins, one phrase each.
    pub instructions: Vec<String>,
}

impl ModelChoice {
    /// The model of `role` in `project`, unless a flag overrides it.
    pub(crate) fn resolve(project: &Project, role: ModelRole, flag: Option<&str>) -> Self {
        let (model, origin) = match (flag, project.settings.model_with_role(role)) {
            (Some(model), _) => (Some(model), "--model".to_owned()),
            (None, None) => (None, "Claude Code's own choice".to_owned()),
            (None, Some((named, model))) => {
                let key = format!("llm.models.{}", named.as_str());
                let line = project
                    .settings
                    .key_lines
                    .get(&key)
                    .map(|line| format!(" line {line}"))
                    .unwrap_or_default();
                (Some(model), format!("{key}, {PROJECT_FILE}{line}"))
            }
        };
        let instructions = project
            .instructions
            .overrides
            .iter()
            .map(ToString::to_string)
            .collect();
        Self {
            model: model.map(str::to_owned),
            origin,
            instructions,
        }
    }

    /// The sentence about the model, then the project's instructions.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        [self.summary()]
            .into_iter()
            .chain(self.instructions.iter().cloned())
    }

    /// For example `model opus (--model)`.
    pub(crate) fn summary(&self) -> String {
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
    fn model_choice_prefers_flag_then_role_then_default() {
        let dir = tempfile::tempdir().unwrap();
        let say = |text: &str, flag| {
            std::fs::write(dir.path().join(PROJECT_FILE), text).unwrap();
            let project = Project::open(dir.path()).unwrap();
            ModelChoice::resolve(&project, ModelRole::CandidateExtraction, flag).summary()
        };
        assert_eq!(say("", None), "no model is set (Claude Code's own choice)");
        let text = "llm:\n  models:\n    default: haiku\n";
        assert_eq!(
            say(text, None),
            "model haiku (llm.models.default, ktx.yaml line 3)"
        );
        let text =
            "llm:\n  models:\n    default: haiku\n    candidateExtraction: claude-sonnet-4-6\n";
        assert_eq!(
            say(text, None),
            "model claude-sonnet-4-6 (llm.models.candidateExtraction, ktx.yaml line 4)"
        );
        assert_eq!(say(text, Some("opus")), "model opus (--model)");
    }
}
