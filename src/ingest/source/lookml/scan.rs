//! Extracts the references of a LookML file: includes, the connection, explores, views, what they extend, and the views
//! and explores that the file names.
//!
//! Skips unknown syntax, in one iteration and without recursion: a broken file yields fewer facts, but does not fail.
//! This module must not know which files exist.

use std::collections::BTreeSet;

use crate::source::references::{FileReferences, add_name};

/// Kinds of the names that LookML has.
pub(super) const VIEW: &str = "view";
pub(super) const EXPLORE: &str = "explore";

/// The references of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LookmlFacts {
    /// Patterns of `include:`, in file order.
    pub(super) includes: Vec<String>,
    /// Value of `project_name:` in a manifest.
    pub(super) project: Option<String>,
    /// Value of `connection:`, the warehouse connection.
    pub(super) connection: Option<String>,
    pub(super) explores: Vec<String>,
    /// Views and refinements of views.
    pub(super) views: Vec<LookmlView>,
    /// Names of its views and explores, and of those that it refines.
    pub(super) defines: BTreeSet<String>,
    /// Views and explores that it uses.
    pub(super) refers_to: FileReferences,
}

/// A view or a refinement of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LookmlView {
    /// Name without the `+` of a refinement.
    pub(super) name: String,
    pub(super) extends: Vec<String>,
}

/// Most includes of one file that are read.
const MAX_INCLUDES: usize = 1_000;

/// Scans the text of a file.
pub(super) fn scan(text: &str) -> LookmlFacts {
    let mut scan = LookmlScanner {
        rest: text,
        facts: LookmlFacts::default(),
        open: Vec::new(),
    };
    while let Some(token) = scan.token() {
        match token {
            LookmlToken::Word(word) => scan.read_entry(word),
            LookmlToken::Close => scan.close(),
            // A block without a name or key. It is pushed so that its end does not close another block.
            LookmlToken::Open => scan.open.push(LookmlBlock::Other),
            LookmlToken::Text(_) | LookmlToken::Punctuation => {}
        }
    }
    // Blocks without an end count as closed.
    while !scan.open.is_empty() {
        scan.close();
    }
    scan.facts
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookmlToken<'a> {
    Word(&'a str),
    Text(&'a str),
    Open,
    Close,
    /// `:`, `,`, brackets and other characters without a meaning here.
    Punctuation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookmlBlock<'a> {
    View,
    /// An explore, or a join in one, with the view that it uses unless it names another.
    Explore(Option<&'a str>),
    Join(Option<&'a str>),
    Other,
}

struct LookmlScanner<'a> {
    rest: &'a str,
    facts: LookmlFacts,
    open: Vec<LookmlBlock<'a>>,
}

impl<'a> LookmlScanner<'a> {
    fn token(&mut self) -> Option<LookmlToken<'a>> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest),
                None => break,
            }
        }
        let first = self.rest.chars().next()?;
        if first == '"' {
            return Some(LookmlToken::Text(self.quoted()));
        }
        if is_word(first) {
            let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
            return Some(LookmlToken::Word(self.advance(end)));
        }
        self.advance(first.len_utf8());
        Some(match first {
            '{' => LookmlToken::Open,
            '}' => LookmlToken::Close,
            _ => LookmlToken::Punctuation,
        })
    }

    fn advance(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Reads a quoted text and returns its content. Escapes remain, because names do not contain any.
    fn quoted(&mut self) -> &'a str {
        let inside = self.rest.get(1..).unwrap_or_default();
        let mut escaped = false;
        for (at, c) in inside.char_indices() {
            match c {
                '"' if !escaped => {
                    self.rest = inside.get(at + 1..).unwrap_or_default();
                    return inside.get(..at).unwrap_or_default();
                }
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        self.rest = "";
        inside
    }

    /// True if the word just read is a key; consumes its `:`.
    fn is_key(&mut self) -> bool {
        match self.rest.trim_start().strip_prefix(':') {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn read_entry(&mut self, key: &'a str) {
        if !self.is_key() {
            return;
        }
        if is_free_text(key) {
            // SQL and HTML may contain anything, including braces and quotes.
            if let Some((text, rest)) = self.rest.split_once(";;") {
                self.rest = rest;
                self.add_fields(text);
            }
            return;
        }
        let values = self.values();
        let depth = self.open.len();
        let opens = self.rest.trim_start().starts_with('{');
        self.add_names(key, &values, opens);
        match (key, depth) {
            ("include" | "includes", 0) => {
                let room = MAX_INCLUDES.saturating_sub(self.facts.includes.len());
                self.facts
                    .includes
                    .extend(values.iter().take(room).map(|value| (*value).to_owned()));
            }
            ("project_name", 0) => {
                self.facts.project = values.first().map(|value| value.trim().to_owned())
            }
            ("connection", 0) => {
                self.facts.connection = values.first().map(|value| value.trim().to_owned())
            }
            ("explore", 0) => self
                .facts
                .explores
                .extend(values.iter().map(|value| strip_refinement(value))),
            ("view", 0) => self
                .facts
                .views
                .extend(values.first().map(|name| LookmlView {
                    name: strip_refinement(name),
                    extends: Vec::new(),
                })),
            ("extends" | "extends__all", 1) if self.open.last() == Some(&LookmlBlock::View) => {
                if let Some(view) = self.facts.views.last_mut() {
                    view.extends
                        .extend(values.iter().map(|value| strip_refinement(value)));
                }
            }
            _ => {}
        }
        if opens && matches!(self.token(), Some(LookmlToken::Open)) {
            let name = values.first().copied();
            // A refinement uses the view of the explore that it refines.
            let view = name.filter(|name| !name.starts_with('+'));
            self.open.push(match (key, self.open.last()) {
                ("view", None) => LookmlBlock::View,
                ("explore", None) => LookmlBlock::Explore(view),
                ("join", Some(LookmlBlock::Explore(_))) => LookmlBlock::Join(view),
                _ => LookmlBlock::Other,
            });
        }
    }

    fn close(&mut self) {
        if let Some(LookmlBlock::Explore(Some(view)) | LookmlBlock::Join(Some(view))) =
            self.open.pop()
        {
            self.facts.refers_to.add(VIEW, view);
        }
    }

    /// Adds the names that an entry defines or uses.
    fn add_names(&mut self, key: &str, values: &[&'a str], opens: bool) {
        let facts = &mut self.facts;
        match (key, self.open.last_mut()) {
            ("view" | "explore", None) => {
                let kind = if key == "view" { VIEW } else { EXPLORE };
                for value in values {
                    let name = strip_refinement(value);
                    add_name(&mut facts.defines, kind, &name);
                    if value.starts_with('+') {
                        facts.refers_to.add(kind, &name);
                    } else if key == "explore" && !opens {
                        facts.refers_to.add(VIEW, &name);
                    }
                }
            }
            ("extends" | "extends__all", Some(LookmlBlock::View)) => {
                values
                    .iter()
                    .for_each(|value| facts.refers_to.add(VIEW, &strip_refinement(value)));
            }
            ("extends" | "extends__all", Some(LookmlBlock::Explore(_))) => {
                values
                    .iter()
                    .for_each(|value| facts.refers_to.add(EXPLORE, &strip_refinement(value)));
            }
            ("from" | "view_name", Some(LookmlBlock::Explore(view) | LookmlBlock::Join(view))) => {
                *view = None;
                values
                    .iter()
                    .for_each(|value| facts.refers_to.add(VIEW, value));
            }
            ("explore_source", _) => {
                values
                    .iter()
                    .for_each(|value| facts.refers_to.add(EXPLORE, value));
            }
            _ => {}
        }
    }

    /// Adds the views whose fields an SQL text uses, as in `${users.id}`.
    fn add_fields(&mut self, text: &str) {
        for field in text.split("${").skip(1) {
            let field = field.split('}').next().unwrap_or_default();
            if let Some((view, _)) = field.split_once('.') {
                self.facts.refers_to.add(VIEW, view.trim());
            }
        }
    }

    /// The value of a key: one word or text, or the members of a list.
    fn values(&mut self) -> Vec<&'a str> {
        let mut values = Vec::new();
        let here = self.rest.trim_start();
        if let Some(list) = here.strip_prefix('[') {
            self.rest = list;
            loop {
                let before = self.rest;
                match self.token() {
                    Some(LookmlToken::Word(value) | LookmlToken::Text(value)) => values.push(value),
                    Some(LookmlToken::Punctuation) if before.trim_start().starts_with(']') => {
                        return values;
                    }
                    Some(LookmlToken::Punctuation) => {}
                    // An unclosed list ends where a block begins or ends.
                    Some(LookmlToken::Open | LookmlToken::Close) | None => {
                        self.rest = before;
                        return values;
                    }
                }
            }
        }
        if here.starts_with(|c| c == '"' || is_word(c))
            && let Some(LookmlToken::Word(value) | LookmlToken::Text(value)) = self.token()
        {
            values.push(value);
        }
        values
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '+' | '.' | '*' | '/')
}

fn is_free_text(key: &str) -> bool {
    key.starts_with("sql") || key == "html" || key.starts_with("expression")
}

fn strip_refinement(name: &str) -> String {
    name.trim_start_matches('+').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn model_scan_lists_includes_and_explores() {
        let facts = scan(
            "connection: \"warehouse\" # not \"this\"\ninclude: \"/views/*.view.lkml\"\ninclude: \"more.view\"\n\
             explore: orders {\n  join: users { sql_on: ${orders.id} = ${users.id} AND x = \"}\" ;; }\n}\n\
             explore: +users { view: inner {} }\ninclude: \"last.view.lkml\"",
        );
        assert_eq!(
            facts.includes,
            ["/views/*.view.lkml", "more.view", "last.view.lkml"]
        );
        assert_eq!(facts.connection.as_deref(), Some("warehouse"));
        assert_eq!(facts.explores, ["orders", "users"]);
        assert!(facts.views.is_empty());
    }

    #[test]
    fn view_scan_lists_extended_views() {
        let facts = scan(
            "view: orders {\n  extends: [base, \"other\"]\n  sql_table_name: a.b ;;\n  dimension: extends { extends: no }\n  \
             dimension: x { html: <b>}</b> ;; description: \"a \\\" { quote\" }\n}\nview: +late { extends: orders }\nview: bare {}",
        );
        let view = |name: &str, extends: &[&str]| LookmlView {
            name: name.into(),
            extends: extends.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            facts.views,
            [
                view("orders", &["base", "other"]),
                view("late", &["orders"]),
                view("bare", &[])
            ]
        );
    }

    #[test]
    fn broken_file_scan_keeps_readable_parts() {
        assert_eq!(
            scan("include: \"a\"\nview: x { sql: never ended { }\ninclude: \"b").includes,
            ["a"]
        );
        assert_eq!(scan("include: [\"a\", \"b\"").includes, ["a", "b"]);
        assert_eq!(scan("}}}\ninclude: \"a\"").includes, ["a"]);
        assert_eq!(scan(&"{".repeat(100_000)), LookmlFacts::default());
    }

    proptest! {
        #[test]
        fn scan_ends_for_any_text(text in "(view|include|extends|explore|connection|sql|x|:|\\{|\\}|\\[|\\]|\"|;;|#|\n| |é){0,80}") {
            let facts = scan(&text);
            prop_assert!(facts.includes.len() <= text.len());
        }
    }
}
