//! Explains errors in handwritten YAML: the position of the mistake, instead of the position where parsing failed, and
//! how to fix it.
//!
//! Owns the messages. It must not quote values, which may be secrets, unless their key is listed in [`PUBLIC_KEYS`].

use super::YamlError;
use ingestdeck_core::diagnostic::Problem;

/// Keys whose values are not secret.
const PUBLIC_KEYS: [&str; 12] = [
    "backend",
    "branch",
    "candidateExtraction",
    "connections",
    "driver",
    "failureMode",
    "ingest",
    "ingestdeck",
    "llm",
    "maxConcurrency",
    "source_dir",
    "stepBudget",
];

/// Explains why `text` could not be parsed: the position, the text at it, the problem, and how to fix it.
pub(crate) fn explain(text: &str, error: &YamlError) -> Problem {
    let lines: Vec<&str> = text.lines().collect();
    let Some(at) = error
        .line
        .and_then(|line| usize::try_from(line).ok()?.checked_sub(1))
    else {
        return Problem::new(error.message.clone()).with_help("fix the YAML");
    };
    // The end of the file is reported as a position after its last line.
    let at = at.min(lines.len().saturating_sub(1));
    let column = error.column.and_then(|column| usize::try_from(column).ok());
    let document = FaultyDocument {
        lines: &lines,
        line_index: at,
        column,
        message: &error.message,
    };
    let YamlFault {
        line: at,
        column,
        problem,
    } = document.locate();
    let column = column
        .map(|column| format!(" column {column}"))
        .unwrap_or_default();
    let shown = lines.get(at).and_then(|line| excerpt(line));
    let shown = shown
        .map(|shown| format!(", at `{shown}`"))
        .unwrap_or_default();
    problem.prefixed(format_args!("line {}{column}{shown}: ", at + 1))
}

/// The lines of a document, and the position and message of the parser error.
struct FaultyDocument<'a> {
    lines: &'a [&'a str],
    line_index: usize,
    column: Option<usize>,
    message: &'a str,
}

/// A problem and its position; columns count from 1.
struct YamlFault {
    line: usize,
    column: Option<usize>,
    problem: Problem,
}

impl<'a> FaultyDocument<'a> {
    fn locate(&self) -> YamlFault {
        let says = |words: &[&str]| words.iter().any(|word| self.message.contains(word));
        self.tab()
            .or_else(|| says(&["duplicate mapping key"]).then(|| self.find_duplicate_key()))
            .or_else(|| {
                says(&["quoted scalar", "end of stream"])
                    .then(|| self.find_unclosed_quote())
                    .flatten()
            })
            .or_else(|| {
                says(&[
                    "flow ",
                    "',' or",
                    "':' indicator",
                    "end of stream",
                    "unclosed",
                ])
                .then(|| self.bracket())
                .flatten()
            })
            .or_else(|| says(&["mapping values are not allowed"]).then(|| self.colon()))
            .or_else(|| {
                says(&["expected key", "block collection", "invalid indentation"])
                    .then(|| self.dedent())
                    .flatten()
            })
            .unwrap_or_else(|| self.at_parser_position(self.reworded_message()))
    }

    fn at_parser_position(&self, problem: Problem) -> YamlFault {
        YamlFault {
            line: self.line_index,
            column: self.column,
            problem,
        }
    }

    fn line(&self) -> &'a str {
        self.lines.get(self.line_index).copied().unwrap_or_default()
    }

    fn tab(&self) -> Option<YamlFault> {
        let line = self.line();
        let column = line
            .chars()
            .take_while(|c| c.is_whitespace())
            .position(|c| c == '\t')?
            + 1;
        Some(YamlFault {
            line: self.line_index,
            column: Some(column),
            problem: Problem::new("a tab cannot indent YAML").with_help("use spaces"),
        })
    }

    fn find_duplicate_key(&self) -> YamlFault {
        let line = self.line();
        let named = self
            .message
            .rsplit_once("key: ")
            .and_then(|(_, rest)| rest.split(", set").next());
        let keep_one = |message: String| Problem::new(message).with_help("keep one of them");
        let unclear = keep_one(format!("duplicate key `{}`", named.unwrap_or("?")));
        let (Some(key), indent) = (key(line).filter(|key| Some(*key) == named), indent(line))
        else {
            return self.at_parser_position(unclear);
        };
        let above = self.lines.iter().take(self.line_index).enumerate().rev();
        let inside =
            above.take_while(|(_, above)| is_blank(above) || self::indent(above) >= indent);
        let first = inside
            .filter(|(_, above)| self::indent(above) == indent)
            .find(|(_, above)| self::key(above) == Some(key));
        let problem = match first {
            Some((first, _)) => keep_one(format!(
                "duplicate key `{key}`, already on line {}",
                first + 1
            )),
            None => unclear,
        };
        YamlFault {
            line: self.line_index,
            column: Some(indent + 1),
            problem,
        }
    }

    /// The last quote up to the error that is not closed on its own line.
    fn find_unclosed_quote(&self) -> Option<YamlFault> {
        let lines = self
            .outside_blocks()
            .take_while(|(at, _)| *at <= self.line_index);
        let (at, (column, quote)) = lines
            .filter_map(|(at, line)| Some((at, LineScan::from_line(line).quote?)))
            .last()?;
        Some(YamlFault {
            line: at,
            column: Some(column),
            problem: Problem::new(format!(
                "the quote {quote} that begins here is never closed"
            ))
            .with_help("close it"),
        })
    }

    /// Lines outside of `|` and `>` block scalars, which may contain anything.
    fn outside_blocks(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let mut block = None;
        self.lines
            .iter()
            .copied()
            .enumerate()
            .filter(move |(_, line)| {
                let is_text =
                    block.is_some_and(|begins| line.trim().is_empty() || indent(line) > begins);
                if !is_text {
                    block = block_scalar_indent(line);
                }
                !is_text
            })
    }

    /// The last bracket up to the error that is never closed, or an entry without a comma before it.
    fn bracket(&self) -> Option<YamlFault> {
        let mut open: Vec<(usize, usize, char)> = Vec::new();
        for (at, line) in self.outside_blocks() {
            // Below the error, only lines that are inside the bracket may close it.
            let is_inside = |from: usize| {
                let begins = self.lines.get(from).map_or(0, |line| indent(line));
                is_blank(line) || indent(line) > begins || line.trim_start().starts_with([']', '}'])
            };
            if at > self.line_index && !open.last().is_some_and(|(from, ..)| is_inside(*from)) {
                break;
            }
            for (column, bracket) in LineScan::from_line(line).brackets {
                match bracket {
                    '[' | '{' => open.push((at, column, bracket)),
                    _ => drop(open.pop()),
                }
            }
        }
        let close = |bracket| if bracket == '[' { ']' } else { '}' };
        match open.iter().rfind(|(at, ..)| *at <= self.line_index) {
            Some(&(at, column, bracket)) => Some(YamlFault {
                line: at,
                column: Some(column),
                problem: Problem::new(format!("the `{bracket}` that opens here is never closed"))
                    .with_help(format!("close it with `{}`", close(bracket))),
            }),
            None if self.message.contains("',' or") => Some(
                self.at_parser_position(
                    Problem::new("a comma is missing before this")
                        .with_help("separate entries by commas"),
                ),
            ),
            None => None,
        }
    }

    /// A colon in the wrong place: a second key on the line, a line below one without `key: value`, or a line below a
    /// value.
    fn colon(&self) -> YamlFault {
        let line = self.line();
        let before = (0..self.line_index)
            .rev()
            .find_map(|at| Some((at, *self.lines.get(at)?)).filter(|(_, line)| !is_blank(line)));
        let Some((above, before)) = before.filter(|_| LineScan::from_line(line).colons < 2) else {
            return self.at_parser_position(Problem::new(
                "a value with `: ` in it needs quotes around it",
            ));
        };
        if LineScan::from_line(before).colons == 0 {
            let problem =
                Problem::new("expected `key: value`").with_help("write a space after the colon");
            return YamlFault {
                line: above,
                column: Some(indent(before) + 1),
                problem,
            };
        }
        let words = format!(
            "unexpected indentation below line {}, which has a value; expected column {}",
            above + 1,
            indent(before) + 1
        );
        YamlFault {
            line: self.line_index,
            column: Some(indent(line) + 1),
            problem: Problem::new(words),
        }
    }

    /// A line whose indentation is between two levels.
    fn dedent(&self) -> Option<YamlFault> {
        let line = self.line();
        let before = (0..self.line_index)
            .rev()
            .find(|at| self.lines.get(*at).is_some_and(|line| !is_blank(line)))?;
        let wanted = indent(self.lines.get(before)?);
        (wanted != indent(line)).then(|| YamlFault {
            line: self.line_index,
            column: Some(indent(line) + 1),
            problem: Problem::new(format!(
                "inconsistent indentation; expected column {}, as on line {}",
                wanted + 1,
                before + 1
            )),
        })
    }

    fn reworded_message(&self) -> Problem {
        let message = self.message;
        let character = message
            .strip_prefix("unexpected character: `")
            .and_then(|rest| rest.strip_suffix('\''));
        if let Some(character) = character {
            return match character {
                "@" | "%" | "`" => Problem::new(format!("a value cannot begin with {character}"))
                    .with_help("put it in quotes"),
                _ => Problem::new(format!("the character {character} is not allowed in YAML"))
                    .with_help("remove it"),
            };
        }
        let known: [(&str, &str, &str); 8] = [
            (
                "unknown anchor",
                "`*` refers to an anchor that this file does not define",
                "put the value in quotes",
            ),
            (
                "misplaced bracket",
                "this closing bracket has no opening bracket",
                "remove it",
            ),
            (
                "escape",
                "a backslash in double quotes begins an escape",
                "use single quotes, or write it twice",
            ),
            (
                "Documents",
                "a second document begins here",
                "keep one, without `---` between them",
            ),
            ("budget", "the document is too large", "make it smaller"),
            (
                "recursive",
                "an anchor refers to itself",
                "write the value out",
            ),
            (
                "expected string scalar",
                "a key must be text",
                "put it in quotes",
            ),
            (
                "block sequence entries",
                "a list cannot begin here",
                "begin it on a new line",
            ),
        ];
        let known = known.into_iter().find(|(part, ..)| message.contains(part));
        let known = known.map(|(_, message, help)| Problem::new(message).with_help(help));
        known.unwrap_or_else(|| Problem::new(message).with_help("fix the YAML there"))
    }
}

/// Structure of a line outside of quotes and comments. Columns count from 1.
#[derive(Debug, Default)]
struct LineScan {
    /// Column and character of a quote that is not closed.
    quote: Option<(usize, char)>,
    brackets: Vec<(usize, char)>,
    /// Colons that end a key.
    colons: usize,
}

impl LineScan {
    fn from_line(line: &str) -> Self {
        let mut scan = Self::default();
        let mut quote: Option<(usize, char)> = None;
        let mut flow = 0_usize;
        // Last character that is not blank: a quote or a bracket has a meaning only where a value begins.
        let (mut last, mut before) = (None::<char>, ' ');
        let mut characters = line.chars().enumerate().peekable();
        while let Some((at, c)) = characters.next() {
            let begins = matches!(last, None | Some(':' | ',' | '[' | '{' | '-' | '?'));
            match (quote, c) {
                (Some((_, '"')), '\\') => drop(characters.next()),
                (Some((_, open)), c) if c == open => {
                    // Two single quotes inside single quotes are one quote.
                    if open == '\'' && characters.next_if(|(_, next)| *next == '\'').is_some() {
                        continue;
                    }
                    quote = None;
                }
                (Some(_), _) => {}
                (None, '#') if before.is_whitespace() => break,
                (None, '"' | '\'') if begins => quote = Some((at + 1, c)),
                (None, '[' | '{') if begins || flow > 0 => {
                    flow += 1;
                    scan.brackets.push((at + 1, c));
                }
                (None, ']' | '}') => {
                    flow = flow.saturating_sub(1);
                    scan.brackets.push((at + 1, c));
                }
                (None, ':')
                    if characters
                        .peek()
                        .is_none_or(|(_, next)| next.is_whitespace()) =>
                {
                    scan.colons += 1
                }
                (None, _) => {}
            }
            before = c;
            last = if c.is_whitespace() { last } else { Some(c) };
        }
        scan.quote = quote;
        scan
    }
}

fn indent(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty() || line.trim_start().starts_with('#')
}

/// Column from 0 to the right of which the block scalar that begins at the end of `line` is indented.
fn block_scalar_indent(line: &str) -> Option<usize> {
    let words = line
        .split_whitespace()
        .take_while(|word| !word.starts_with('#'));
    let (before, header) = words.fold((None, None), |(_, last), word| (last, Some(word)));
    let is_header = header?
        .strip_prefix(['|', '>'])?
        .chars()
        .all(|c| c.is_ascii_digit() || "+-".contains(c));
    let is_value = before.is_some_and(|before| {
        before == "-" || before.ends_with(':') || before.starts_with(['!', '&'])
    });
    let item = line.trim_start_matches([' ', '-']);
    // A key in a list is indented to the right of its dash.
    let begins = if item.starts_with(['|', '>']) {
        indent(line)
    } else {
        line.len() - item.len()
    };
    (is_header && is_value).then_some(begins)
}

/// The plain key that a line begins with, if any.
fn key(line: &str) -> Option<&str> {
    let line = line.trim_start().trim_start_matches("- ");
    let (key, rest) = line.split_once(':')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let ends = rest.is_empty() || rest.starts_with(char::is_whitespace);
    (ends && !key.is_empty() && key.len() <= MAX_SHOWN_CHARS && key.chars().all(is_plain))
        .then_some(key)
}

/// Longest excerpt of a line in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// The part of a line that may be shown. A line without a key may be part of a secret value, and so may the text after
/// a value: a comment, or another key.
fn excerpt(line: &str) -> Option<String> {
    let Some(key) = key(line) else {
        let line = line.trim();
        let begins = line
            .split([' ', ':'])
            .next()
            .filter(|begins| PUBLIC_KEYS.contains(begins))?;
        return Some(if begins == line {
            begins.to_owned()
        } else {
            format!("{begins} …")
        });
    };
    let rest = line.split_once(':').map_or("", |(_, rest)| rest.trim());
    let is_shown = PUBLIC_KEYS.contains(&key) && !rest.contains(['{', '[']);
    let mut words = rest.split_whitespace();
    Some(match words.next() {
        None => format!("{key}:"),
        Some(word) if word.starts_with('#') => format!("{key}:"),
        Some(word) if is_shown => {
            let word: String = word
                .chars()
                .take(MAX_SHOWN_CHARS)
                .map(visible_char)
                .collect();
            let more = if words.next().is_some_and(|word| !word.starts_with('#')) {
                " …"
            } else {
                ""
            };
            format!("{key}: {word}{more}")
        }
        Some(_) => format!("{key}: …"),
    })
}

/// A character for a message. Control and invisible characters are escaped.
fn visible_char(c: char) -> String {
    if c.is_ascii_graphic() || c == ' ' {
        c.into()
    } else {
        c.escape_debug().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse_tree;
    use ingestdeck_core::diagnostic::Diagnostic as _;

    fn explained(text: &str) -> String {
        explain(text, &parse_tree(text).unwrap_err()).to_line()
    }

    #[test]
    fn yaml_faults_are_located_with_a_fix() {
        let cases = [
            "connections:\n\tnotes:\n\t\tdriver: docs\n",
            "connections:\n  notes:\n \t  driver: docs\n",
            "connections:\n  notes:\n    driver: docs\n   source_dir: notes\n",
            "connections:\n  notes:\n    driver: docs\n      source_dir: notes\n",
            "connections:\n  notes:\n    driver: docs\n\n    # again\n    driver: dbt\n",
            "a: {b: 1, b: 2}\n",
            "connections:\n  notes:\n    driver: \"docs\n    source_dir: notes\n",
            "connections:\n  notes:\n    driver: 'docs\n    source_dir: it's\n",
            "connections: [a\nllm:\n  x: 1\n",
            "connections:\n  a: {driver: docs\nllm:\n  x: 1\n",
            "connections: [",
            "connections:\n  notes:\n    driver docs\n    source_dir: notes\n",
            "connections:\n  notes:\n    driver:docs\n    source_dir: notes\n",
            "connections:\n  notes:\n    driver: docs: x\n",
            "connections:\n  notes:\n    source_dir: @foo\n",
            "connections:\n  notes:\n    source_dir: *foo\n",
            "connections:\n  notes:\n    password: %foo\n",
            "connections:\n  notes:\n    password: \"never shown\n    url: https://u:p@h\n",
            "a: 1\n---\nb: 2\n",
            "a: \"a\\q\"\n",
            "a: }\n",
            "a: &a [*a]\n",
            "[a, b]: {driver: docs}\n",
            "x: \u{1}\n",
            "connections:\n  notes: {driver: docs, source_dir: notes}}\n",
            "connections:\n  notes: {driver: docs source_dir: notes}\n",
            "key: - a\n",
            "key: |\n  secret\n bare\nx: y: z\n",
            "connections:\n  a:\n    about: |\n      [draft\n    driver: docs\n  b: {driver: docs source_dir: notes}\n",
            "connections:\n  - about: >- # folded\n\n      {draft\n    driver: docs\n  - {driver: docs source_dir: notes}\n",
            "connections:\n  a:\n    - |\n      [draft\n  b: [docs\nllm:\n  x: [1\n",
            "connections:\n  a: {\n    driver: docs source_dir: notes\n  }\nllm: [\n",
            "connections:\n  a: [\n    {driver: docs,\n     branch: main\nllm:\n  x: 1\n",
            "connections:\n  a:\n    driver: \"docs\n    about: |\n      'draft\n",
            "connections:\n  a:\n    driver: @x  # old password never shown\n",
            "connections:\n  a:\n    driver: %x # never shown\n",
            "connections:\n  a:\n    driver: docs url: https://u:p@h\n",
            "connections:\n  a:\n    driver docs, password never shown\n    source_dir: notes\n",
            "credentials:\n  default: @never-shown\n",
        ];
        let message: Vec<String> = cases.iter().map(|text| explained(text)).collect();
        assert!(
            message
                .iter()
                .all(|message| !message.contains("shown") && !message.contains("u:p")),
            "{message:#?}"
        );
        insta::assert_snapshot!(message.join("\n"));
    }

    #[test]
    fn fuzzed_text_is_always_explained() {
        use proptest::prelude::*;
        proptest!(|(text in "[a-c\"'\\[\\]{}:,#*&@%|>? \t\n\\\\-]{0,60}")| {
            if let Err(error) = parse_tree(&text) {
                let message = explain(&text, &error).to_line();
                prop_assert!(!message.contains('\n') && !message.is_empty());
            }
        });
    }
}
