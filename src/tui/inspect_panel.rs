//! The panels of the inspector.

/// A panel of the inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InspectPanel {
    /// Messages, calls and results, one at a time.
    Actions,
    /// The prompts of the agent.
    Prompt,
    /// Tools, settings and paths that the agent had access to.
    Isolation,
    /// Output of the process outside of the protocol.
    Stderr,
    /// Outcome of the attempt and its cause.
    Verdict,
}

impl InspectPanel {
    /// All panels, in the order of their keys.
    pub(crate) const ALL: [Self; 5] = [
        Self::Actions,
        Self::Prompt,
        Self::Isolation,
        Self::Stderr,
        Self::Verdict,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Actions => "actions",
            Self::Prompt => "prompt",
            Self::Isolation => "isolation",
            Self::Stderr => "stderr",
            Self::Verdict => "verdict",
        }
    }
}
