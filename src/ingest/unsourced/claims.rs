//! The identifiers that an artifact presents as existing elsewhere, and those that it defines.
//!
//! In a source: tables, columns, joins, and the names in expressions. In a page: references, code, and words of the text
//! that look like identifiers. It must not know what the agent received.

use crate::{
    semantic_layer,
    unsourced::sql_words::{self, SqlNames, is_in_name, is_name_start, sql_names},
    wiki,
    yaml::{self, YamlNode, YamlValue},
};

/// Languages of code blocks that are read as SQL.
const SQL_LANGUAGES: [&str; 9] = [
    "sql",
    "postgres",
    "postgresql",
    "bigquery",
    "snowflake",
    "duckdb",
    "sqlite",
    "mysql",
    "jinja",
];

/// Last parts of names of files and hosts, which are not identifiers.
const FILE_ENDINGS: [&str; 20] = [
    "com", "csv", "html", "io", "js", "json", "lkml", "lookml", "md", "net", "org", "parquet",
    "pdf", "py", "sh", "sql", "toml", "txt", "yaml", "yml",
];

/// Fewest characters of an identifier; shorter names are aliases and units.
const MIN_NAME_CHARS: usize = 2;

/// An identifier that a text uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) name: String,
    /// Index of the line from which on the name occurs.
    from: usize,
}

impl Claim {
    /// Number of the first line with the name, counted from 1. `lines` are in lower case.
    pub(super) fn first_line(&self, lines: &[String]) -> u32 {
        let name = self.name.to_lowercase();
        let has_name = |line: &String| {
            line.match_indices(&name).any(|(at, found)| {
                !line[..at].ends_with(is_in_name)
                    && !line[at + found.len()..].starts_with(is_in_name)
            })
        };
        let from = self.from.min(lines.len());
        let index = lines[from..]
            .iter()
            .position(has_name)
            .map_or(self.from, |index| from + index);
        u32::try_from(index + 1).unwrap_or(u32::MAX)
    }
}

/// The identifiers of an artifact.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Identifiers that exist elsewhere according to the artifact, from top to bottom within each part.
    pub(super) names: Vec<Claim>,
    /// Names that the artifact defines for every artifact.
    pub(super) defined: Vec<String>,
    /// Names that the artifact defines for itself, such as aliases.
    pub(super) local: Vec<String>,
}

/// Finds the identifiers in the artifact at `path`. An unreadable artifact has none; other checks report it.
pub(super) fn find_claims(path: &str, text: &str) -> Claims {
    let mut claims = Claims::default();
    if let Some(key) = wiki::page_key(path) {
        claims.defined.push(key.to_owned());
        claims.add_page(text);
    } else if semantic_layer::split_source_path(path).is_some() {
        claims.defined.push(semantic_layer::source_name(text, path));
        if let Ok(tree) = yaml::parse_tree(text) {
            claims.add_source(&tree);
        }
    }
    claims
}

/// Finds the identifiers in a line of Markdown that is in no code block.
pub(super) fn claims_in_line(line: &str) -> Claims {
    let mut claims = Claims::default();
    claims.add_line(line, 0);
    claims
}

/// Index of the line of a node.
fn line_of(node: &YamlNode) -> usize {
    usize::try_from(node.line.saturating_sub(1)).unwrap_or(usize::MAX)
}

/// The texts at `key`: one text, the members of a list, or the values of a map.
fn texts_at<'a>(node: &'a YamlNode, key: &str) -> Vec<(&'a str, usize)> {
    let text = |node: &'a YamlNode| Some((node.as_text()?, line_of(node)));
    let Some(found) = node.get(key) else {
        return Vec::new();
    };
    match &found.value {
        YamlValue::List(items) => items.iter().filter_map(text).collect(),
        YamlValue::Map(entries) => entries
            .iter()
            .filter_map(|entry| text(&entry.value))
            .collect(),
        _ => text(found).into_iter().collect(),
    }
}

impl Claims {
    /// Adds an identifier, unless it cannot be one.
    fn add_name(&mut self, name: &str, from: usize) {
        let is_name =
            name.chars().nth(MIN_NAME_CHARS - 1).is_some() && name.starts_with(is_name_start);
        if is_name && !sql_words::is_keyword(name) {
            self.names.push(Claim {
                name: name.to_owned(),
                from,
            });
        }
    }

    /// Adds the parts of a qualified name: `connection/schema.table`.
    fn add_qualified(&mut self, name: &str, from: usize) {
        let parts = name.split(['.', '/', '"', '`', '[', ']', ' ']);
        parts
            .filter(|part| !part.is_empty())
            .for_each(|part| self.add_name(part, from));
    }

    fn add_sql(&mut self, text: &str, from: usize) {
        let SqlNames { used, defined, .. } = sql_names(text);
        used.into_iter().for_each(|name| self.add_name(name, from));
        self.local.extend(defined.into_iter().map(str::to_owned));
    }

    fn add_source(&mut self, tree: &YamlNode) {
        for key in [
            "table",
            "inherits_columns_from",
            "grain",
            "exclude_columns",
            "default_time_dimension",
        ] {
            texts_at(tree, key)
                .into_iter()
                .for_each(|(text, line)| self.add_qualified(text, line));
        }
        for key in ["sql", "disable_joins"] {
            texts_at(tree, key)
                .into_iter()
                .for_each(|(text, line)| self.add_sql(text, line));
        }
        self.add_descriptions(tree);
        for column in tree
            .value
            .list("columns")
            .chain(tree.value.list("column_overrides"))
        {
            let is_computed = column.get("expr").is_some();
            for (name, line) in texts_at(column, "name") {
                match is_computed {
                    true => self.defined.push(name.to_owned()),
                    false => self.add_name(name, line),
                }
            }
            self.add_expressions(column);
        }
        for join in tree.value.list("joins") {
            texts_at(join, "to")
                .into_iter()
                .for_each(|(text, line)| self.add_qualified(text, line));
            self.add_expressions(join);
        }
        for definition in tree
            .value
            .list("measures")
            .chain(tree.value.list("segments"))
        {
            self.defined
                .extend(definition.text_at("name").map(str::to_owned));
            texts_at(definition, "segments")
                .into_iter()
                .for_each(|(text, line)| self.add_name(text, line));
            self.add_expressions(definition);
        }
        if let Some(usage) = tree.get("usage") {
            self.add_usage(usage);
        }
    }

    /// Adds the expressions and descriptions of a column, join, measure or segment.
    fn add_expressions(&mut self, node: &YamlNode) {
        for key in ["expr", "filter", "on"] {
            texts_at(node, key)
                .into_iter()
                .for_each(|(text, line)| self.add_sql(text, line));
        }
        self.add_descriptions(node);
    }

    fn add_descriptions(&mut self, node: &YamlNode) {
        for key in ["description", "descriptions"] {
            texts_at(node, key)
                .into_iter()
                .for_each(|(text, line)| self.add_markdown(text, line));
        }
    }

    fn add_usage(&mut self, usage: &YamlNode) {
        for key in ["commonFilters", "commonGroupBys"] {
            texts_at(usage, key)
                .into_iter()
                .for_each(|(text, line)| self.add_sql(text, line));
        }
        for join in usage.value.list("commonJoins") {
            texts_at(join, "table")
                .into_iter()
                .for_each(|(text, line)| self.add_qualified(text, line));
            self.add_expressions(join);
        }
        texts_at(usage, "narrative")
            .into_iter()
            .for_each(|(text, line)| self.add_markdown(text, line));
    }

    fn add_page(&mut self, text: &str) {
        let front = text
            .strip_prefix("---\n")
            .and_then(|rest| rest.split_once("\n---\n"));
        let Some((front, body)) = front else {
            return self.add_markdown(text, 0);
        };
        if let Ok(tree) = yaml::parse_tree(front) {
            // The first line of the frontmatter is the second one of the page.
            for (key, line) in texts_at(&tree, "refs") {
                self.add_name(key, line + 1);
            }
            for key in ["sl_refs", "tables"] {
                texts_at(&tree, key)
                    .into_iter()
                    .for_each(|(text, line)| self.add_qualified(text, line + 1));
            }
            texts_at(&tree, "representative_sql")
                .into_iter()
                .for_each(|(text, line)| self.add_sql(text, line + 1));
            texts_at(&tree, "summary")
                .into_iter()
                .for_each(|(text, line)| self.add_markdown(text, line + 1));
            if let Some(usage) = tree.get("usage") {
                self.add_usage(usage);
            }
        }
        self.add_markdown(body, front.lines().count() + 2);
    }

    /// Adds the identifiers of a text whose first line has the index `from`.
    fn add_markdown(&mut self, text: &str, from: usize) {
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let Some(language) = line.trim_start().strip_prefix("```") else {
                self.add_line(line, from + index);
                continue;
            };
            let is_sql = SQL_LANGUAGES.contains(&language.trim().to_ascii_lowercase().as_str());
            let mut block = String::new();
            for (index, line) in lines
                .by_ref()
                .take_while(|(_, line)| !line.trim_start().starts_with("```"))
            {
                match is_sql {
                    true => block.extend([line, "\n"]),
                    false => self.add_words(line, from + index),
                }
            }
            self.add_sql(&block, from + index);
        }
    }

    /// Adds the links, the code and the words of a line of Markdown.
    fn add_line(&mut self, line: &str, from: usize) {
        let mut rest = line;
        while let Some((before, inside)) = rest.split_once('`') {
            self.add_linked_words(before, from);
            let Some((code, after)) = inside.split_once('`') else {
                return self.add_linked_words(inside, from);
            };
            self.add_code(code.trim(), from);
            rest = after;
        }
        self.add_linked_words(rest, from);
    }

    /// Adds keys in `[[key]]`, and the words around them.
    fn add_linked_words(&mut self, text: &str, from: usize) {
        let mut rest = text;
        while let Some((before, inside)) = rest.split_once("[[") {
            self.add_words(before, from);
            let Some((link, after)) = inside.split_once("]]") else {
                return self.add_words(inside, from);
            };
            let key = link.split('|').next().unwrap_or_default().trim();
            if wiki::is_page_key(key) {
                self.add_name(key, from);
            }
            rest = after;
        }
        self.add_words(rest, from);
    }

    /// Adds the identifiers of inline code.
    fn add_code(&mut self, code: &str, from: usize) {
        let code = ["source:", "table:"]
            .iter()
            .fold(code.to_owned(), |code, kind| code.replacen(kind, "", 1));
        let is_in_token = |c: char| is_in_name(c) || matches!(c, '.' | '-' | '/' | '$');
        if code.contains("://") || is_file(&code) {
            return;
        }
        if code.chars().all(is_in_token) {
            let parts = code.split(['.', '/', '-', '$']);
            parts.for_each(|part| self.add_name(part, from));
        } else if code.contains(['(', ')', '=', '<', '>', '*', '+', '/', ',', '{'])
            || starts_query(&code)
        {
            self.add_sql(&code, from);
        } else {
            self.add_words(&code, from);
        }
    }

    /// Adds the words that look like identifiers: `snake_case` and `dotted.names`.
    fn add_words(&mut self, text: &str, from: usize) {
        if text.contains("\\_") {
            return self.add_words(&text.replace("\\_", "_"), from);
        }
        for token in text.split_whitespace() {
            // The target of a link is an address.
            let token = token.split("](").next().unwrap_or(token);
            if token.contains("://") || token.contains('@') || token.contains('/') && is_file(token)
            {
                continue;
            }
            for run in token.split(|c: char| !is_in_name(c) && c != '.') {
                let run = run.trim_matches(['.', '_']);
                if !is_file(run) && (is_snake_case(run) || is_dotted(run)) {
                    run.split('.').for_each(|part| self.add_name(part, from));
                }
            }
        }
    }
}

/// True for a text that begins like a query.
fn starts_query(code: &str) -> bool {
    let first = code.split_whitespace().next().unwrap_or_default();
    ["select", "with", "from", "where", "join"]
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word))
}

/// True for the name or path of a file, or the name of a host.
fn is_file(text: &str) -> bool {
    let ending = text
        .trim_end_matches(['.', ',', ';', ':', ')', '\'', '"'])
        .rsplit_once('.')
        .map(|(_, ending)| ending);
    ending.is_some_and(|ending| FILE_ENDINGS.contains(&ending.to_ascii_lowercase().as_str()))
}

fn is_snake_case(run: &str) -> bool {
    run.contains('_') && run.contains(char::is_alphabetic)
}

/// True for names in lower case that dots separate.
fn is_dotted(run: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.len() >= MIN_NAME_CHARS
            && part.chars().all(|c| is_in_name(c) && !c.is_uppercase())
    };
    run.contains('.') && run.split('.').all(is_part)
}
