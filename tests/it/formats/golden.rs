//! Published formats as files: compares the output of the program with the committed file, after removing what differs
//! from run to run. It must not know what a format means.

use std::{env, fs, path::PathBuf, sync::LazyLock};

use regex_lite::Regex;
use serde_json::Value;
use similar::TextDiff;

/// Environment variable that makes the tests write the files instead of comparing with them.
const WRITE: &str = "INGESTDECK_WRITE_FORMATS";

/// Longest text that is a word or a name. Longer texts with spaces are sentences for people, which may be reworded.
const WORDS: usize = 3;

/// Path of the committed file.
pub(super) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/formats")
        .join(name)
}

/// Text of the committed file.
pub(super) fn read(name: &str) -> String {
    fs::read_to_string(path(name))
        .unwrap_or_else(|error| panic!("{}: {error}", path(name).display()))
}

/// Compares `actual` with the committed file, byte for byte.
pub(crate) fn assert_published(name: &str, actual: &str) {
    if env::var_os(WRITE).is_some() {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), actual).unwrap();
        return;
    }
    let published = fs::read_to_string(path(name)).unwrap_or_default();
    if published != actual {
        let diff = TextDiff::from_lines(published.as_str(), actual);
        let diff = diff
            .unified_diff()
            .context_radius(1)
            .header("published", "written now")
            .to_string();
        panic!(
            "a published format changed: tests/fixtures/formats/{name}\n\n{diff}\nPrograms and files out there depend on \
             it. If the change is on purpose, run this test with {WRITE}=1, and describe the change in the changelog."
        );
    }
}

/// Lines of JSON as objects. They must be in compact form.
pub(super) fn json_lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().map(|line| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(value.to_string(), line, "JSON lines are compact");
        value
    });
    parsed.collect()
}

/// Objects as lines, without sentences and without the values of keys for which `is_volatile` is true.
pub(crate) fn lines_without(values: Vec<Value>, is_volatile: &dyn Fn(&str) -> bool) -> String {
    values
        .into_iter()
        .map(|value| format!("{}\n", stable(value, is_volatile)))
        .collect()
}

/// Like [`lines_without`] for one object, on several lines.
pub(super) fn pretty_without(value: Value, is_volatile: &dyn Fn(&str) -> bool) -> String {
    format!("{:#}\n", stable(value, is_volatile))
}

/// For output that is the same every time, except for messages to people, even short ones.
pub(crate) fn is_message(key: &str) -> bool {
    key == "text"
}

fn stable(value: Value, is_volatile: &dyn Fn(&str) -> bool) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| {
                let value = match value {
                    Value::Null => Value::Null,
                    value if !is_volatile(&key) => stable(value, is_volatile),
                    Value::Number(_) => "<number>".into(),
                    Value::String(_) => "<text>".into(),
                    Value::Array(_) => "<list>".into(),
                    Value::Object(_) => "<object>".into(),
                    Value::Bool(_) => "<switch>".into(),
                };
                (key, value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| stable(item, is_volatile))
            .collect(),
        Value::String(text) if text.split_whitespace().count() > WORDS => "<sentence>".into(),
        other => other,
    }
}

/// Replaces ids, times, hashes and the directory `root` with placeholders.
pub(super) fn without_ids(text: &str, root: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let patterns = [
            (r"\d{4}-\d{2}-\d{2}-\d{6}-local-[0-9a-z]+", "<sync id>"),
            (r"local-[0-9a-z]{7,}", "<job>"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uuid>"),
            (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z", "<time>"),
            (r"\b[0-9a-f]{64}\b", "<sha256>"),
            (r"\b[0-9a-f]{40}\b", "<commit>"),
        ];
        patterns
            .map(|(pattern, name)| (Regex::new(pattern).unwrap(), name))
            .into()
    });
    let text = text.replace(root, "<project>");
    PATTERNS.iter().fold(text, |text, (pattern, name)| {
        pattern.replace_all(&text, *name).into_owned()
    })
}
