//! What neither Cargo nor clippy can check, by reading the source files: cycles of modules, sizes of files and types, and
//! that every file is declared and has a header.

mod cycles;
mod layers;
mod type_size;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The most lines of code in a file.
const LARGEST_FILE: usize = 800;

/// Names that do not describe the content of a file.
const EMPTY_NAMES: &[&str] = &[
    "mod", "util", "utils", "helper", "helpers", "common", "manager", "misc", "imp",
];

/// A source file with its comments removed.
#[derive(Clone)]
struct RustFile {
    /// Path relative to the package, with `/`.
    path: String,
    /// The unmodified text, with comments and tests.
    text: String,
    /// Without comments and tests.
    code: String,
    /// The code of the tests, without comments.
    tests: String,
}

impl RustFile {
    fn new(path: String, text: String) -> Self {
        let whole_file_is_test =
            path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/");
        let (mut code, mut tests) = (String::new(), String::new());
        let mut in_tests = false;
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            // rustfmt puts the end of a test module in the first column.
            let opens = line.starts_with("#[cfg(test)]")
                && lines
                    .peek()
                    .is_some_and(|next| next.starts_with("mod ") && next.trim_end().ends_with('{'));
            in_tests |= opens;
            let target = if in_tests || whole_file_is_test {
                &mut tests
            } else {
                &mut code
            };
            let kept = without_comment(line);
            if !kept.trim().is_empty() {
                target.push_str(kept);
                target.push('\n');
            }
            in_tests &= line != "}";
        }
        Self {
            path,
            text,
            code,
            tests,
        }
    }
}

fn without_comment(line: &str) -> &str {
    // A `//` inside a string removes too much text, never too little.
    let cut = line
        .match_indices("//")
        .map(|(at, _)| at)
        .find(|at| !line[..*at].ends_with(':'));
    cut.map_or(line, |at| &line[..at])
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(below: &str) -> Vec<RustFile> {
    let mut open = vec![package().join(below)];
    let mut found = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no Rust files below {below}");
    found
        .into_iter()
        .map(|path| RustFile::new(relative(&path), fs::read_to_string(&path).unwrap()))
        .collect()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(package())
        .unwrap()
        .to_string_lossy()
        .replace('\\', "/")
}

fn report(what: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{what}:\n  {}", problems.join("\n  "));
}

#[test]
fn files_stay_small() {
    let problems: Vec<String> = rust_files("src")
        .iter()
        .map(|source| (source, source.code.lines().count()))
        .filter(|(_, lines)| *lines > LARGEST_FILE)
        .map(|(source, lines)| format!("{}: {lines} lines of code", source.path))
        .collect();
    report("files with more than 800 lines of code", &problems);
}

#[test]
fn every_file_has_a_module_header() {
    let sources = rust_files("src").into_iter().chain(rust_files("tests"));
    let silent: Vec<String> = sources
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();
    report("files that do not start with `//!`", &silent);
}

#[test]
fn file_names_are_not_vague() {
    let sources = rust_files("src").into_iter().chain(rust_files("tests"));
    let empty = |source: &RustFile| {
        source
            .path
            .split(['/', '.'])
            .any(|part| EMPTY_NAMES.contains(&part))
    };
    let found: Vec<String> = sources.filter(empty).map(|source| source.path).collect();
    report("files with vague names", &found);
}

/// A file that no module declares is not compiled, and its tests never run.
#[test]
fn every_file_is_declared() {
    let mut problems = Vec::new();
    for source in [
        rust_files("src"),
        rust_files("tests/it"),
        rust_files("tests/support"),
    ]
    .concat()
    {
        let path = Path::new(&source.path);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if ["lib", "main", "build"].contains(&name.as_str()) {
            continue;
        }
        let folder = path.parent().unwrap();
        let parent = match folder.to_str().unwrap() {
            "tests/it" => PathBuf::from("tests/it/main.rs"),
            _ if package().join(folder).join("lib.rs").exists() => folder.join("lib.rs"),
            _ => folder.with_extension("rs"),
        };
        let declares = fs::read_to_string(package().join(&parent)).is_ok_and(|text| {
            let mut lines = text.lines().map(str::trim);
            lines.any(|line| line.ends_with(&format!("mod {name};")))
        });
        if !declares {
            problems.push(format!(
                "{} is not declared in {}",
                source.path,
                parent.display()
            ));
        }
    }
    report("forgotten files", &problems);
}

#[test]
fn tests_wait_for_a_condition_not_for_a_duration() {
    // The needle is in two parts because this file is searched, too. With a paused clock, a tokio sleep takes no time.
    let nap = concat!("sleep", "(");
    let paused_nap = format!("tokio::time::{nap}");
    let sources = rust_files("src").into_iter().chain(rust_files("tests"));
    let naps = |source: &RustFile| {
        let paused = ["start_paused = true", ".start_paused(true)"]
            .iter()
            .any(|mark| source.tests.contains(mark));
        let tests = if paused {
            source.tests.replace(&paused_nap, "")
        } else {
            source.tests.clone()
        };
        tests.contains(nap)
    };
    let found: Vec<String> = sources.filter(naps).map(|source| source.path).collect();
    report(
        "tests that sleep instead of waiting for a condition",
        &found,
    );
}

/// A test that checks its condition over and over takes the processor from what it waits for. Tests in `src` yield for
/// other reasons, too, and are not checked.
#[test]
fn tests_pause_between_two_checks_of_a_condition() {
    // In two parts, as above.
    let busy = concat!("thread::yield", "_now()");
    let found: Vec<String> = rust_files("tests")
        .into_iter()
        .filter(|source| source.tests.contains(busy))
        .map(|source| source.path)
        .collect();
    report("tests that check without pauses", &found);
}

#[test]
fn source_reader_strips_comments_and_tests() {
    let text = "//! x\nuse a; // crate::no\nlet u = \"http://x\";\n\n#[cfg(test)]\nmod tests {\n    use b;\n}\nfn after() {}\n";
    let source = RustFile::new("src/core/run/fold.rs".into(), text.into());
    assert_eq!(
        source.code,
        "use a; \nlet u = \"http://x\";\nfn after() {}\n"
    );
    assert_eq!(source.tests, "#[cfg(test)]\nmod tests {\n    use b;\n}\n");
}
