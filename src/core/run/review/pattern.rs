//! Patterns for the changed files of a run.

use globset::{Glob, GlobMatcher};

use crate::tape::{UnitKey, note::ReviewedFile};

/// A pattern for changed files.
#[derive(Clone, Debug)]
pub enum ChangePattern {
    /// Path of the file, relative to the project.
    Path(GlobMatcher),
    /// Key of a unit that changed it.
    Unit(GlobMatcher),
    /// Connection of a unit that changed it.
    Connection(GlobMatcher),
}

impl ChangePattern {
    /// Parses a path, `unit:KEY` or `connection:NAME`, each with `*` for any text.
    ///
    /// # Errors
    /// If the pattern is invalid.
    pub fn parse(text: &str) -> Result<Self, globset::Error> {
        let (make, glob): (fn(GlobMatcher) -> Self, _) = match text.split_once(':') {
            Some(("unit", glob)) => (Self::Unit, glob),
            Some(("connection", glob)) => (Self::Connection, glob),
            _ => (Self::Path, text),
        };
        Ok(make(Glob::new(glob)?.compile_matcher()))
    }

    /// Whether the pattern matches `file`. `connection` is the connection of a unit.
    pub fn matches<'a>(
        &self,
        file: &ReviewedFile,
        connection: impl Fn(&UnitKey) -> Option<&'a str>,
    ) -> bool {
        match self {
            Self::Path(glob) => glob.is_match(&file.path),
            Self::Unit(glob) => file.units.iter().any(|unit| glob.is_match(unit.as_str())),
            Self::Connection(glob) => file
                .units
                .iter()
                .filter_map(connection)
                .any(|name| glob.is_match(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::note::attempt_output::ArtifactChange;

    #[test]
    fn patterns_match_paths_units_and_connections() {
        let file = ReviewedFile {
            path: "wiki/global/orders.md".into(),
            change: ArtifactChange::Created,
            units: vec!["docs-orders".into(), "reconcile".into()],
            diff: String::new(),
            before: None,
            omitted: None,
        };
        let connection = |unit: &UnitKey| (unit.as_str() == "docs-orders").then_some("notes");
        let matches = |text: &str| {
            ChangePattern::parse(text)
                .unwrap()
                .matches(&file, connection)
        };
        for text in [
            "*",
            "wiki/*",
            "*/orders.md",
            "unit:docs-*",
            "unit:reconcile",
            "connection:notes",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in ["orders.md", "unit:orders", "connection:*x", "other:*", ""] {
            assert!(!matches(text), "{text}");
        }
        assert!(ChangePattern::parse("unit:[").is_err());
    }
}
