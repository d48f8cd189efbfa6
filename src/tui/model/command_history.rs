//! The history of the command line.

/// Largest number of remembered lines.
const MAX_HISTORY: usize = 100;

/// History of typed lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandHistory {
    lines: Vec<String>,
    /// Index of the recalled line, and the text that was typed before recalling.
    at: Option<(usize, String)>,
}

impl CommandHistory {
    /// Appends a line and removes earlier equal ones. A blank line is ignored.
    pub(crate) fn push(&mut self, line: &str) {
        self.at = None;
        if !line.trim().is_empty() {
            self.lines.retain(|known| known != line);
            self.lines.push(line.to_owned());
            let excess = self.lines.len().saturating_sub(MAX_HISTORY);
            self.lines.drain(..excess);
        }
    }

    /// Stops recalling, so that the next recall starts at the newest line.
    pub(crate) fn reset(&mut self) {
        self.at = None;
    }

    /// The line before `typed`, or before the recalled one.
    pub(crate) fn older(&mut self, typed: &str) -> Option<String> {
        let (at, draft) = match self.at.take() {
            Some((at, draft)) => (at.saturating_sub(1), draft),
            None => (self.lines.len().checked_sub(1)?, typed.to_owned()),
        };
        self.at = Some((at, draft));
        self.lines.get(at).cloned()
    }

    /// The line after the recalled one; after the last line, the text that was typed before recalling.
    pub(crate) fn newer(&mut self) -> Option<String> {
        let (at, draft) = self.at.take()?;
        match self.lines.get(at + 1) {
            Some(line) => {
                self.at = Some((at + 1, draft));
                Some(line.clone())
            }
            None => Some(draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_recalls_lines_and_the_draft() {
        let mut history = CommandHistory::default();
        assert_eq!(history.older("draft"), None);
        for line in ["end", "50%", "end", " "] {
            history.push(line);
        }
        assert_eq!(history.older("draft").as_deref(), Some("end"));
        assert_eq!(history.older("end").as_deref(), Some("50%"));
        assert_eq!(
            history.older("50%").as_deref(),
            Some("50%"),
            "there is no older one"
        );
        assert_eq!(history.newer().as_deref(), Some("end"));
        assert_eq!(history.newer().as_deref(), Some("draft"));
        assert_eq!(history.newer(), None);
        for number in 0..2 * MAX_HISTORY {
            history.push(&number.to_string());
        }
        assert_eq!(history.lines.len(), MAX_HISTORY);
    }
}
