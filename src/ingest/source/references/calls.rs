//! Finds the calls of `ref`, `source` and other functions in Jinja, in values of YAML and in Python models.
//!
//! Only calls are searched for; the rest of the text is skipped without being parsed, so any text is accepted, in one
//! iteration. Must not know what a call means for a unit.

use super::FileReferences;

/// Adds what the Jinja blocks of `text` refer to. Comments of Jinja and raw blocks are skipped, but not those of SQL: dbt
/// renders a call in them, too.
pub(in crate::source) fn add_jinja_calls(text: &str, found: &mut FileReferences) {
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let open = rest.get(at..).unwrap_or_default();
        let (block, end) = match open.as_bytes().get(1) {
            Some(b'#') => (None, "#}"),
            Some(b'{') => (open.get(2..), "}}"),
            Some(b'%') => (open.get(2..), "%}"),
            _ => {
                rest = open.get(1..).unwrap_or_default();
                continue;
            }
        };
        let inside = open.get(2..).unwrap_or_default();
        let (inside, after) = inside.split_once(end).unwrap_or((inside, ""));
        rest = after;
        if block.is_none() {
            continue;
        }
        if inside.trim_matches(['-', '+']).trim() == "raw" {
            rest = after
                .find("endraw")
                .and_then(|at| after.get(at..))
                .unwrap_or_default();
            continue;
        }
        add_calls(inside, found);
    }
}

/// Adds what the calls in a value of YAML refer to: those in its Jinja blocks, or in all of it, as in `to: ref('orders')`.
pub(in crate::source) fn add_value_calls(text: &str, found: &mut FileReferences) {
    if text.contains("{{") || text.contains("{%") {
        add_jinja_calls(text, found);
    } else {
        add_calls(text, found);
    }
}

/// Adds what a Python model refers to.
pub(in crate::source) fn add_python_calls(text: &str, found: &mut FileReferences) {
    let code: String = text
        .split_inclusive('\n')
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    add_calls(&code, found);
}

/// Adds what the calls anywhere in `text` refer to.
fn add_calls(text: &str, found: &mut FileReferences) {
    let mut rest = text;
    loop {
        let Some(start) = rest.find(is_word) else {
            return;
        };
        rest = rest.get(start..).unwrap_or_default();
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        rest = after;
        if !FUNCTIONS.contains(&word) {
            continue;
        }
        let Some(list) = after.trim_start().strip_prefix('(') else {
            continue;
        };
        let (arguments, after) = arguments(list);
        rest = after;
        add_call(word, &arguments, found);
    }
}

const FUNCTIONS: [&str; 7] = [
    "ref",
    "source",
    "doc",
    "metric",
    "Metric",
    "Dimension",
    "TimeDimension",
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn add_call(function: &str, arguments: &[CallArgument<'_>], found: &mut FileReferences) {
    let positional: Vec<Option<&str>> = arguments
        .iter()
        .filter_map(|argument| match argument {
            CallArgument::Literal(text) => Some(Some(*text)),
            CallArgument::Computed => Some(None),
            CallArgument::Keyword => None,
        })
        .collect();
    match (function, positional.as_slice()) {
        ("ref", [Some(name)]) => found.add("model", name),
        // The first one names a package of dbt, mostly another one.
        ("ref", [Some(package), Some(name)]) => {
            found.add_package(package);
            found.add_open("model", name);
        }
        ("source", [Some(source), Some(table)]) => {
            found.add("source", &format!("{source}.{table}"))
        }
        ("doc", [Some(name)]) => found.add_open("doc", name),
        ("doc", [Some(package), Some(name)]) => {
            found.add_package(package);
            found.add_open("doc", name);
        }
        ("metric", [Some(name)] | [Some(_), Some(name)]) | ("Metric", [Some(name), ..]) => {
            found.add("metric", name)
        }
        // The name before `__` is that of an entity.
        ("Dimension" | "TimeDimension", [Some(name), ..]) => {
            if let Some((entity, _)) = name.split_once("__") {
                found.add_open("entity", entity);
            }
        }
        ("ref" | "source" | "metric" | "Metric", [_, ..]) => found.is_unknown = true,
        _ => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallArgument<'a> {
    Literal(&'a str),
    /// An argument with a name, such as `v=2`.
    Keyword,
    /// Anything whose value is not in the text.
    Computed,
}

/// The arguments up to the closing parenthesis, and the text after it.
fn arguments(list: &str) -> (Vec<CallArgument<'_>>, &str) {
    /// More arguments than any of the functions has.
    const MAX_ARGUMENTS: usize = 16;
    let mut arguments = Vec::new();
    let mut current: Option<CallArgument<'_>> = None;
    let mut depth = 0_usize;
    let mut rest = list;
    while let Some(first) = rest.chars().next() {
        let mut after = rest.get(first.len_utf8()..).unwrap_or_default();
        match first {
            ')' if depth == 0 => {
                arguments.extend(current);
                return (arguments, after);
            }
            ',' if depth == 0 => {
                arguments.extend(current.take());
                if arguments.len() > MAX_ARGUMENTS {
                    return (arguments, after);
                }
            }
            '\'' | '"' => {
                let (text, end) = quoted(after, first);
                after = end;
                current = Some(match current {
                    None if depth == 0 => CallArgument::Literal(text),
                    Some(CallArgument::Keyword) => CallArgument::Keyword,
                    _ => CallArgument::Computed,
                });
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '=' if depth == 0
                && !after.starts_with('=')
                && current == Some(CallArgument::Computed) =>
            {
                current = Some(CallArgument::Keyword);
            }
            _ if first.is_whitespace() => {}
            _ if current == Some(CallArgument::Keyword) => {}
            _ => current = Some(CallArgument::Computed),
        }
        rest = after;
    }
    arguments.extend(current);
    (arguments, "")
}

/// A quoted text up to `quote`, and the text after it. Names contain no escapes.
fn quoted(text: &str, quote: char) -> (&str, &str) {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => {
                return (
                    text.get(..at).unwrap_or_default(),
                    text.get(at + 1..).unwrap_or_default(),
                );
            }
            _ => {}
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut found: FileReferences) -> String {
        found.names.append(&mut found.open_names);
        found.names.into_iter().collect::<Vec<_>>().join(" ")
    }

    fn jinja(text: &str) -> (String, bool) {
        let mut found = FileReferences::default();
        add_jinja_calls(text, &mut found);
        (all(found.clone()), found.is_unknown)
    }

    #[test]
    fn jinja_calls_are_found_in_any_spelling() {
        let known = [
            ("select * from {{ ref('m1') }}", "model:m1"),
            (
                "{{ref(\"m1\")}} join {{-  ref (  'pkg' ,\n 'm2' ) -}}",
                "model:m1 model:m2",
            ),
            (
                "{{ ref('m', v=2) }} {{ ref('n', version = \"1\") }}",
                "model:m model:n",
            ),
            (
                "{{ builtins.ref('m1') }} {{ source('raw', \"orders\") }}",
                "model:m1 source:raw.orders",
            ),
            (
                "{% set x = ref('m1') %}{%- if true -%}{{ x }}{% endif %}",
                "model:m1",
            ),
            (
                "{{ dbt_utils.star(from=ref('m1'), except=['a)']) }}",
                "model:m1",
            ),
            ("-- {{ ref('m1') }}\nselect 1", "model:m1"),
            (
                "{# {{ ref('m1') }} #} -- ref('m2')\nselect 'ref(''m3'')'",
                "",
            ),
            (
                "{% raw %}{{ ref('m1') }}{% endraw %}{{ ref('m2') }}",
                "model:m2",
            ),
            (
                "{{ my_ref('m1') }} {{ ref }} {{ xref('m2') }} { ref('m3') }",
                "",
            ),
        ];
        for (text, names) in known {
            assert_eq!(jinja(text), (names.to_owned(), false), "{text}");
        }
        for text in [
            "{{ ref(name) }}",
            "{{ ref('stg_' ~ name) }}",
            "{{ source('raw', t) }}",
            "{{ ref('a', 'b', 'c') }}",
        ] {
            assert!(jinja(text).1, "{text}");
        }
    }

    #[test]
    fn values_are_searched_outside_of_jinja_too() {
        let value = |text: &str| {
            let mut found = FileReferences::default();
            add_value_calls(text, &mut found);
            all(found)
        };
        assert_eq!(value("ref('orders')"), "model:orders");
        assert_eq!(
            value("Don't use it. {{ doc('orders') }} isn't {{ doc(\"p\", 'q') }}"),
            "doc:orders doc:q"
        );
        assert_eq!(
            value("{{ Dimension('order__is_food') }} and {{ Metric('m', ['x']) }}"),
            "entity:order metric:m"
        );
        let mut found = FileReferences::default();
        add_python_calls(
            "# dbt.ref('no')\nx = dbt.ref(\"m1\")\ny = dbt.source('a', 'b')\n",
            &mut found,
        );
        assert_eq!(
            found.names.into_iter().collect::<Vec<_>>(),
            ["model:m1", "source:a.b"]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in "(\\{\\{|\\}\\}|\\{%|%\\}|\\{#|ref|source|\\(|\\)|'|\"|,|=|\\\\|\\[|é|m1| |\n){0,60}") {
            let mut found = FileReferences::default();
            add_jinja_calls(&text, &mut found);
            add_value_calls(&text, &mut found);
            prop_assert!(found.names.len() + found.open_names.len() <= text.len());
        }
    }
}
