//! Conditions at which a run or a replay stops, as values with a text and a JSON form.
//!
//! Pure. `crate::run::breakpoint` evaluates them; this module must not know what they are compared with.

use std::fmt;

use globset::{Glob, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::tape::Millis;

/// An occurrence in a run that can stop time.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "condition", content = "value", rename_all = "snake_case")]
pub enum BreakCondition {
    /// A call, a session or a unit fails, or a call is refused.
    Failure,
    /// A tool is called.
    Tool(NamePattern),
    /// A call has a matching file argument.
    Path(NamePattern),
    /// The cost of the run reaches this amount in US dollars, which is above 0.
    Cost(#[serde(deserialize_with = "positive_cost")] f64),
    /// An attempt wrote nothing for this duration.
    Silence(Millis),
}

impl fmt::Display for BreakCondition {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure => to.write_str("failure"),
            Self::Tool(pattern) => write!(to, "tool {}", pattern.text),
            Self::Path(pattern) => write!(to, "path {}", pattern.text),
            Self::Cost(dollars) => write!(to, "cost ${dollars}"),
            Self::Silence(time) if time.0 % 1000 > 0 => write!(to, "silence {}ms", time.0),
            Self::Silence(time) => write!(to, "silence {}s", time.0 / 1000),
        }
    }
}

fn positive_cost<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let cost = f64::deserialize(from)?;
    let is_valid = cost.is_finite() && cost > 0.0;
    is_valid
        .then_some(cost)
        .ok_or_else(|| serde::de::Error::custom("the cost must be above 0"))
}

/// A shell pattern for names: `*`, `?`, `[a-z]`, `{a,b}`.
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(with = "String"))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern {
    text: String,
    matcher: GlobMatcher,
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If the pattern is invalid.
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        let glob = Glob::new(text).map_err(|error| InvalidPattern(error.kind().to_string()))?;
        Ok(Self {
            text: text.to_owned(),
            matcher: glob.compile_matcher(),
        })
    }

    pub fn matches(&self, name: &str) -> bool {
        name == self.text || self.matcher.is_match(name)
    }

    /// True if the path, or its part after any of its directories, matches.
    pub(crate) fn matches_end(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
        std::iter::once(path)
            .chain(ends)
            .any(|end| self.matches(end))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        Self::new(&text)
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.text
    }
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);
