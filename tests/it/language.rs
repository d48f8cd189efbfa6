//! The language of the code: words that have a plainer equivalent, comments that repeat a name, names that are used twice,
//! and test names that are too long. The glossary is `assets/guide/glossary.md`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use regex_lite::Regex;

/// Words and phrases that comments and sentences do not use, with a plainer one.
const WORDS: &[(&[&str], &str)] = &[
    (
        &[
            "nobody",
            "somebody",
            "anybody",
            "everybody",
            "whoever",
            "whomever",
        ],
        "name the component or `the user`",
    ),
    (&["stranger", "strangers"], "untrusted"),
    (&["heap", "heaps"], "group"),
    (&["beside"], "next to, besides, or in addition to"),
    (&["any more"], "no longer"),
    (&["as long as"], "while"),
    (&["of its own", "of their own"], "its own"),
    (&["told", "tell", "tells"], "report, show, or pass"),
    (&["say", "says", "said"], "report, show, print, or state"),
    (&["stand", "stands", "stood"], "is, or is stored"),
    (&["goes on", "go on"], "continue"),
    (&["at once"], "immediately, or concurrently"),
    (&["astray", "anew", "well again", "lest"], "plain English"),
    (&["the pass", "a pass"], "the reconcile step"),
    (&["in words"], "as text"),
    (&["looks on"], "watches"),
    (&["what is known"], "the known …"),
    (&["of ours"], "our, or the name of the component"),
];

/// Files whose errors are also results of tools, in one line with their remedies.
const ERRORS_FOR_MODELS: &[&str] = &[
    "src/ingest/database.rs",
    "src/ingest/references.rs",
    "src/ingest/semantic_layer.rs",
    "src/ingest/semantic_layer/",
    "src/ingest/tool/",
    "src/ingest/wiki.rs",
    "src/ingest/workspace.rs",
];

/// Clauses of error messages that state what is valid or what happened.
const NOT_REMEDIES: &[&str] = &["; expected ", "; an earlier one did"];

/// Text that quotes a published format, another program or a recorded input.
const QUOTED: &[&str] = &[
    // The key of a scripted agent's text.
    "say =",
    "{ say",
    "`say`",
    // A signal of KTX.
    "stands for",
    // Other programs.
    "redis-cli",
    "hard_heap_limit",
    "tell you how to proceed",
    "the agent said: sub done",
    // A heading of a published list.
    "calls beside their event",
];

/// Most characters of a test name.
const TEST_NAME: usize = 60;

/// Fewest words of a documentation comment; a shorter one repeats the name below it.
const DOC_WORDS: usize = 4;

/// Documentation that is printed by `--help`.
const HELP: &str = "src/cli/args.rs";

/// Type names that several modules may have, because they are always written with the name of the module.
const REPEATED: &[&str] = &["Error", "Builder", "Options", "Args"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Comment,
    Text,
}

struct RustFile {
    path: String,
    text: String,
}

impl RustFile {
    fn line_of(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }
}

fn rust_files() -> Vec<RustFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting: Vec<PathBuf> = ["src", "tests/it", "tests/benches", "tests/support"]
        .map(|dir| root.join(dir))
        .into();
    let mut files = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let relative = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.push(RustFile {
                    path: relative,
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Comments and string literals with their offsets.
fn segments(text: &str) -> Vec<(usize, Kind, &str)> {
    let token = Regex::new(
        r##"(?s)//[^\n]*|/\*.*?\*/|r#+".*?"#+|r".*?"|"(?:[^"\\]|\\.)*"|'(?:[^'\\\n]|\\[^u]|\\u\{[^}]*\})'"##,
    )
    .unwrap();
    let kind = |found: &str| {
        if found.starts_with('/') {
            Kind::Comment
        } else {
            Kind::Text
        }
    };
    token
        .find_iter(text)
        .map(|found| (found.start(), kind(found.as_str()), found.as_str()))
        .collect()
}

fn assert_none(problems: &[String], rule: &str) {
    assert!(problems.is_empty(), "{rule}:\n  {}", problems.join("\n  "));
}

/// The first word or phrase of a sentence that has a plainer equivalent.
fn replaced_word(sentence: &str) -> Option<(&'static str, &'static str)> {
    let lower = sentence.to_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    for (at, word) in words.iter().enumerate() {
        for (phrases, plain) in WORDS {
            let is_phrase = |phrase: &&&str| {
                phrase.starts_with(word)
                    && phrase.split(' ').eq(words
                        .iter()
                        .skip(at)
                        .take(phrase.split(' ').count())
                        .copied())
            };
            if let Some(phrase) = phrases.iter().find(is_phrase) {
                return Some((phrase, plain));
            }
        }
    }
    // `there is no X` and `is no longer` are fine, `X is no Y` is not.
    let claim = words.windows(4).find(|words| {
        words[0] != "there"
            && ["is", "are"].contains(&words[1])
            && words[2] == "no"
            && words[3] != "longer"
    })?;
    Some((
        if claim[1] == "is" { "is no" } else { "are no" },
        "is not a …, or invalid …",
    ))
}

#[test]
fn comments_and_sentences_use_plain_words() {
    let mut problems = Vec::new();
    for file in rust_files()
        .iter()
        .filter(|file| file.path != "tests/it/language.rs")
    {
        for (offset, kind, segment) in segments(&file.text) {
            let is_sentence = kind == Kind::Comment || segment.trim_matches('"').contains(' ');
            let is_quoted = QUOTED.iter().any(|text| segment.contains(text));
            if !is_sentence || is_quoted {
                continue;
            }
            for (line, sentence) in segment.lines().enumerate() {
                if let Some((word, plain)) = replaced_word(sentence) {
                    problems.push(format!(
                        "{}:{}: `{word}`: {plain}",
                        file.path,
                        file.line_of(offset) + line
                    ));
                }
            }
        }
    }
    assert_none(&problems, "words with a plainer equivalent");
}

/// A remedy is the help of an error, not a part of its message.
#[test]
fn error_messages_contain_no_remedy() {
    let attribute = Regex::new(r##"(?s)#\[error\((.*?)\)\]\n"##).unwrap();
    let mut problems = Vec::new();
    for file in rust_files()
        .iter()
        .filter(|file| file.path.starts_with("src/"))
    {
        if ERRORS_FOR_MODELS
            .iter()
            .any(|path| file.path.starts_with(path))
        {
            continue;
        }
        for found in attribute.captures_iter(&file.text) {
            let text = segments(&found[1])
                .into_iter()
                .find(|(_, kind, _)| *kind == Kind::Text);
            let text = text.map(|(_, _, text)| text.to_owned()).unwrap_or_default();
            let text = NOT_REMEDIES
                .iter()
                .fold(text, |text, clause| text.replace(clause, ""));
            if text.contains("; ") {
                let line = file.line_of(found.get(0).unwrap().start());
                problems.push(format!(
                    "{}:{line}: move the remedy to Diagnostic::help: {text}",
                    file.path
                ));
            }
        }
    }
    assert_none(&problems, "errors with a remedy in their message");
}

#[test]
fn documentation_does_not_repeat_names() {
    let mut problems = Vec::new();
    for file in rust_files().iter().filter(|file| file.path != HELP) {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let is_doc = |at: usize| lines.get(at).is_some_and(|line| line.starts_with("///"));
            let is_alone = is_doc(at) && !is_doc(at + 1) && (at == 0 || !is_doc(at - 1));
            if is_alone && line.trim_start_matches('/').split_whitespace().count() < DOC_WORDS {
                problems.push(format!("{}:{}: {line}", file.path, at + 1));
            }
        }
    }
    assert_none(&problems, "documentation of three words or fewer");
}

#[test]
fn type_names_are_unique() {
    let definition =
        Regex::new(r"(?m)^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|type) ([A-Z]\w*)(.*)$")
            .unwrap();
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in rust_files()
        .iter()
        .filter(|file| file.path.starts_with("src/"))
    {
        let mut kept = String::new();
        let mut last = 0;
        for (offset, _, segment) in segments(&file.text) {
            kept.push_str(&file.text[last..offset]);
            last = offset + segment.len();
        }
        kept.push_str(&file.text[last..]);
        for found in definition.captures_iter(&kept) {
            // An associated type has the name that its trait gives it.
            let is_associated =
                found[0].trim_start().starts_with("type ") && found[0].starts_with("    ");
            if !is_associated && !REPEATED.contains(&&found[1]) {
                places
                    .entry(found[1].to_owned())
                    .or_default()
                    .push(file.path.clone());
            }
        }
    }
    let repeated = places.iter().filter(|(_, files)| files.len() > 1);
    let problems: Vec<String> = repeated
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert_none(&problems, "type names used twice");
}

#[test]
fn test_names_are_short() {
    let name = Regex::new(r"fn (\w+)").unwrap();
    let mut problems = Vec::new();
    for file in rust_files() {
        let names = name
            .captures_iter(&file.text)
            .map(|found| found[1].to_owned());
        problems.extend(
            names
                .filter(|name| name.len() > TEST_NAME)
                .map(|name| format!("{}: {name}", file.path)),
        );
    }
    assert_none(&problems, "names over 60 characters");
}

#[test]
fn rules_find_what_they_are_about() {
    for sentence in [
        "nobody reads it",
        "the file is no tape",
        "It goes on",
        "as long as it runs",
        "A heap of errors",
    ] {
        assert!(replaced_word(sentence).is_some(), "{sentence}");
    }
    for sentence in [
        "there is no tape",
        "it is no longer used",
        "besides",
        "understands",
        "the passes",
        "saying",
    ] {
        assert_eq!(replaced_word(sentence), None, "{sentence}");
    }
    let found = segments("let a = \"x // y\"; // z\n/// d\nlet b = 'c'; r#\"q \" q\"#");
    let texts: Vec<&str> = found.iter().map(|(_, _, text)| *text).collect();
    assert_eq!(
        texts,
        ["\"x // y\"", "// z", "/// d", "'c'", "r#\"q \" q\"#"]
    );
}
