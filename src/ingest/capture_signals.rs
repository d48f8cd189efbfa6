//! Capture signals: what a text contains according to its wording, and therefore which skills its agent must load, and
//! whether an agent is worth its cost. Pure.
//!
//! The signals are KTX's. They only add requirements to a prompt; the agent decides what to write.

/// Skill about wiki pages.
const WIKI_SKILL: &str = "wiki_capture";
/// Skill about semantic layer sources.
const SOURCE_SKILL: &str = "sl_capture";
/// Skill about LookML files.
const LOOKML_SKILL: &str = "lookml_ingest";

/// Words of a text that defines something.
const KNOWLEDGE_PHRASES: [&str; 13] = [
    "define",
    "defined",
    "defines",
    "definition",
    "going forward",
    "from now on",
    "alias",
    "aka",
    "stands for",
    "means",
    "convention",
    "is the canonical",
    "source of truth",
];

/// Words of a text that determines how something is computed.
const SOURCE_PHRASES: [&str; 11] = [
    "define",
    "defined",
    "definition",
    "always apply",
    "always exclude",
    "always filter",
    "treat as",
    "cohort",
    "measure",
    "calculated as",
    "computed as",
];

/// SQL aggregates, each with its parenthesis.
const AGGREGATES: [&str; 7] = [
    "sum(",
    "count(",
    "avg(",
    "min(",
    "max(",
    "median(",
    "percentile_cont(",
];

/// Words by which even a very short text is a query.
const SQL_WORDS: [&str; 4] = ["select", "from", "join", "where"];

/// Fewest characters of a text whose aggregates are taken as a definition.
const MIN_AGGREGATE_CHARS: usize = 100;

/// Fewest characters of a text without SQL.
const MIN_CHARS: usize = 6;

/// A skill that the agent must load, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequiredSkill {
    pub(super) skill: &'static str,
    /// End of the sentence "the artifact …".
    pub(super) reason: &'static str,
}

/// The skills that `text` requires. Skills about sources are required only if sources may be written.
pub(super) fn required_skills(text: &str, may_write_sources: bool) -> Vec<RequiredSkill> {
    let lower = text.to_lowercase();
    let has_any = |phrases: &[&str]| phrases.iter().any(|phrase| contains_phrase(&lower, phrase));
    let aggregates = AGGREGATES.iter().any(|aggregate| lower.contains(aggregate));
    let is_long = text.chars().count() >= MIN_AGGREGATE_CHARS;
    let mut required = Vec::new();
    if has_any(&KNOWLEDGE_PHRASES) {
        required.push(RequiredSkill {
            skill: WIKI_SKILL,
            reason: "defines terms or rules",
        });
    }
    if may_write_sources && aggregates && is_long {
        required.push(RequiredSkill {
            skill: SOURCE_SKILL,
            reason: "contains SQL aggregates",
        });
    } else if may_write_sources && has_any(&SOURCE_PHRASES) {
        required.push(RequiredSkill {
            skill: SOURCE_SKILL,
            reason: "determines how something is computed",
        });
    }
    if is_lookml(text) {
        required.push(RequiredSkill {
            skill: LOOKML_SKILL,
            reason: "is LookML",
        });
    }
    required
}

/// Why `text` contains nothing to capture, so that no agent is started for it; the end of a sentence about the text.
pub(super) fn skip_reason(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    if text.trim().chars().count() < MIN_CHARS
        && !SQL_WORDS.iter().any(|word| contains_phrase(&lower, word))
    {
        return Some("it is too short to contain knowledge");
    }
    (is_only_lookml(text) && !has_lookml_content(&lower)).then_some(
        "its LookML only wraps tables, without joins, derived tables or measures other than counts",
    )
}

/// True if a line of `text` opens a LookML object.
pub(super) fn is_lookml(text: &str) -> bool {
    let is_dashboard = |line: &str| line.trim_start().starts_with("- dashboard:");
    text.lines()
        .any(|line| opens_object(line) || is_dashboard(line))
}

fn opens_object(line: &str) -> bool {
    const OBJECTS: [&str; 4] = ["view:", "explore:", "model:", "dashboard:"];
    let line = line.trim_start();
    let object = OBJECTS.iter().find_map(|object| line.strip_prefix(object));
    object.is_some_and(|rest| rest.trim_end().ends_with('{'))
}

/// True if all of `text` is inside LookML objects, each of which is closed.
fn is_only_lookml(text: &str) -> bool {
    let mut depth = 0_usize;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if depth == 0 && !opens_object(line) {
            return false;
        }
        for (at, c) in line.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if c == '}' && depth == 0 && at + 1 < line.len() {
                return false;
            }
        }
    }
    depth == 0
}

/// True if LookML, in lower case, defines more than columns and row counts.
fn has_lookml_content(lower: &str) -> bool {
    const STRUCTURE: [&str; 8] = [
        "join:",
        "derived_table:",
        "description:",
        "extends:",
        "case:",
        "- dashboard:",
        "sql_always_where:",
        "filters:",
    ];
    const MEASURES: [&str; 8] = [
        "type: sum",
        "type: average",
        "type: min",
        "type: max",
        "type: median",
        "type: percentile",
        "type: number",
        "type: count_distinct",
    ];
    let measures = lower.split("measure:").skip(1);
    let has_measure = measures
        .into_iter()
        .any(|measure| MEASURES.iter().any(|kind| measure.contains(kind)));
    has_measure || STRUCTURE.iter().any(|key| lower.contains(key))
}

/// True if `lower` contains `phrase` between characters that are not part of a word.
fn contains_phrase(lower: &str, phrase: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    lower.match_indices(phrase).any(|(at, found)| {
        let (before, after) = (lower.get(..at), lower.get(at + found.len()..));
        !is_part(before.and_then(|text| text.chars().next_back()))
            && !is_part(after.and_then(|text| text.chars().next()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skills(text: &str, may_write_sources: bool) -> Vec<&'static str> {
        required_skills(text, may_write_sources)
            .into_iter()
            .map(|required| required.skill)
            .collect()
    }

    #[test]
    fn wording_determines_required_skills() {
        let none: [&str; 0] = [];
        assert_eq!(skills("Lunch is at noon.", true), none);
        assert_eq!(
            skills("meanscore aliased cohorts", true),
            none,
            "parts of words do not count"
        );
        assert_eq!(
            skills("NRR stands for net revenue retention", false),
            [WIKI_SKILL]
        );
        assert_eq!(
            skills("Going forward, always apply the paid filter", true),
            [WIKI_SKILL, SOURCE_SKILL]
        );
        assert_eq!(
            skills("ARR: always apply the paid filter", false),
            none,
            "no source may be written"
        );
        assert_eq!(
            skills("select sum(x) from y", true),
            none,
            "too short to be a definition"
        );
        let query = format!(
            "select sum(net_cents) / 100 from orders {}",
            "where paid ".repeat(10)
        );
        assert_eq!(skills(&query, true), [SOURCE_SKILL]);
        assert_eq!(
            skills("view: orders {\n  dimension: id {}\n}", true),
            [LOOKML_SKILL]
        );
        assert_eq!(
            skills("the view: orders {", true),
            none,
            "an object opens at the beginning of a line"
        );
    }

    #[test]
    fn texts_without_content_are_skipped() {
        assert_eq!(
            skip_reason(" ok \n"),
            Some("it is too short to contain knowledge")
        );
        assert_eq!(skip_reason("from"), None, "a query may be short");
        assert_eq!(skip_reason("ARR=12"), None);
        let wrapper = "view: orders {\n  sql_table_name: shop.orders ;;\n  dimension: id {}\n  measure: n { type: count }\n}";
        assert!(skip_reason(wrapper).is_some_and(|reason| reason.contains("only wraps tables")));
        let sum = wrapper.replace("type: count", "type: sum");
        assert_eq!(skip_reason(&sum), None);
        let joined = format!("{wrapper}\nexplore: orders {{\n  join: users {{}}\n}}");
        assert_eq!(skip_reason(&joined), None);
        let dimension = wrapper.replace("dimension: id {}", "dimension: id { type: number }");
        assert!(skip_reason(&dimension).is_some(), "dimensions are columns");
        for text in [
            format!("Refunds are subtracted.\n{wrapper}"),
            format!("{wrapper}\nRefunds are subtracted."),
            format!("{wrapper} Refunds are subtracted."),
            "view: orders {\nRefunds are subtracted.".to_owned(),
        ] {
            assert_eq!(skip_reason(&text), None, "{text}");
        }
    }
}
