//! The structure of the crate, checked by reading its source files: which module uses which, which modules do no I/O,
//! how large a file may be, and that every file is declared.

mod cycles;
mod type_size;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Which modules a module may use. `src/lib.rs` has the same map with its reasons.
const EDGES: &[(&str, &[&str])] = &[
    ("diagnostic", &[]),
    ("tape", &["diagnostic"]),
    ("config", &["diagnostic"]),
    ("guide", &[]),
    ("text", &["tape"]),
    ("decode", &[]),
    ("actions", &["decode", "text"]),
    ("control", &["config", "tape"]),
    ("units", &["tape", "control", "text"]),
    (
        "run",
        &[
            "diagnostic",
            "text",
            "tape",
            "decode",
            "actions",
            "units",
            "control",
        ],
    ),
    ("scoped_dir", &[]),
    ("program_path", &[]),
    ("group_guard", &[]),
    ("open_file_limit", &[]),
    (
        "agent",
        &[
            "diagnostic",
            "tape",
            "decode",
            "actions",
            "units",
            "run",
            "config",
            "scoped_dir",
            "program_path",
            "group_guard",
            "open_file_limit",
        ],
    ),
    (
        "ingest",
        &[
            "diagnostic",
            "text",
            "tape",
            "units",
            "run",
            "config",
            "scoped_dir",
            "program_path",
            "group_guard",
        ],
    ),
    (
        "store",
        &["diagnostic", "tape", "run", "config", "scoped_dir"],
    ),
    (
        "replay",
        &["diagnostic", "tape", "decode", "run", "scoped_dir"],
    ),
    (
        "tui",
        &[
            "diagnostic",
            "text",
            "tape",
            "decode",
            "actions",
            "units",
            "control",
            "run",
            "config",
            "program_path",
            "open_file_limit",
        ],
    ),
    (
        "engine",
        &[
            "diagnostic",
            "text",
            "tape",
            "decode",
            "actions",
            "units",
            "control",
            "run",
            "config",
            "scoped_dir",
            "program_path",
            "group_guard",
            "open_file_limit",
            "agent",
            "ingest",
            "store",
            "replay",
        ],
    ),
    (
        "report",
        &[
            "diagnostic",
            "text",
            "tape",
            "decode",
            "actions",
            "units",
            "run",
            "scoped_dir",
            "ingest",
            "replay",
        ],
    ),
    ("cli", EVERYTHING),
    ("main", &["cli"]),
];

const EVERYTHING: &[&str] = &[
    "diagnostic",
    "tape",
    "config",
    "guide",
    "decode",
    "actions",
    "units",
    "control",
    "run",
    "scoped_dir",
    "program_path",
    "group_guard",
    "open_file_limit",
    "agent",
    "ingest",
    "store",
    "replay",
    "tui",
    "text",
    "engine",
    "report",
];

/// Modules without I/O, tasks, clock or environment.
const PURE: &[&str] = &[
    "diagnostic",
    "text",
    "tape",
    "decode",
    "actions",
    "units",
    "control",
    "run",
];

/// Names that a pure module must not contain.
const IMPURE: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "std::thread",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "nix::",
    "rusqlite",
    "crossterm",
    "ratatui",
];

/// The most lines of code in a file.
const LARGEST_FILE: usize = 800;

/// Ways to write to stdout and stderr. Among the commands, only [`OUTPUT`] may use them.
const PRINTING: &[&str] = &[
    "print!(",
    "println!(",
    "eprint!(",
    "eprintln!(",
    "stdout()",
    "stderr()",
    "Stdout::",
    "Stderr::",
    "/dev/stdout",
    "/dev/tty",
];

/// The writer that escapes control characters.
const OUTPUT: &str = "src/cli/output.rs";

/// Files that write bytes without escaping them, each with its reason.
const RAW_OUTPUT: &[(&str, &str)] = &[
    ("src/cli/ctl_events.rs", "the writer of `--ui json` escapes"),
    (
        "src/cli/engine_process.rs",
        "a pipe to the client receives one line of JSON",
    ),
    ("src/cli/export.rs", "each line of its JSON is escaped"),
    (
        "src/cli/manual.rs",
        "completions and manual pages contain only fixed text, and roff needs control characters",
    ),
    (
        "src/cli/playback_output.rs",
        "the sinks of `--ui lines` and `--ui json` do their own escaping",
    ),
];

/// Names that do not describe the content of a file.
const EMPTY_NAMES: &[&str] = &[
    "mod", "util", "utils", "helper", "helpers", "common", "manager", "misc", "imp",
];

/// A source file with its comments removed.
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

    /// The top-level module that the file belongs to.
    fn module(&self) -> &str {
        let path = self.path.strip_prefix("src/").unwrap_or(&self.path);
        path.split(['/', '.']).next().unwrap_or(path)
    }

    /// Depth of its module: 1 for a top-level module.
    fn depth(&self) -> usize {
        self.path.matches('/').count()
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

/// Top-level modules that a text names, both as `crate::tape::…` and in `crate::{tape::…, run}`.
fn used_modules(code: &str) -> Vec<String> {
    let mut used = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        if code[..at]
            .ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$')
        {
            continue;
        }
        let rest = code[at + found.len()..].trim_start();
        match rest.strip_prefix('{') {
            Some(group) => used.extend(group_heads(group)),
            None => used.extend(identifier(rest)),
        }
    }
    used
}

/// First identifiers of the members of a `{…}` group whose opening brace has been removed.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut at_head) = (0, Vec::new(), true);
    for (at, char) in group.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => at_head = true,
            _ if at_head && !char.is_whitespace() => {
                heads.extend(identifier(&group[at..]));
                at_head = false;
            }
            _ => {}
        }
    }
    heads
}

fn identifier(text: &str) -> Option<String> {
    let end = text
        .find(|char: char| !char.is_alphanumeric() && char != '_')
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// Longest chain of `super::` in a text.
fn longest_super_chain(code: &str) -> usize {
    let (mut longest, mut chain, mut rest) = (0, 0, code);
    while !rest.is_empty() {
        match rest.strip_prefix("super::") {
            Some(after) => {
                chain += 1;
                longest = longest.max(chain);
                rest = after;
            }
            None => {
                chain = 0;
                let next = rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at);
                rest = &rest[next..];
            }
        }
    }
    longest
}

fn report(what: &str, problems: &[String]) {
    assert!(problems.is_empty(), "{what}:\n  {}", problems.join("\n  "));
}

#[test]
fn modules_use_only_lower_layers() {
    let edges: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut problems = Vec::new();
    for source in rust_files("src").iter().filter(|source| {
        !["src/lib.rs", "src/bench.rs", "src/build.rs"].contains(&source.path.as_str())
    }) {
        let module = source.module();
        let Some(allowed) = edges.get(module) else {
            problems.push(format!("{}: {module} is not in the table", source.path));
            continue;
        };
        let used = used_modules(&source.code)
            .into_iter()
            .chain(used_modules(&source.tests));
        for used in used.filter(|used| edges.contains_key(used.as_str())) {
            if used != module && !allowed.contains(&used.as_str()) {
                problems.push(format!("{}: {module} may not use {used}", source.path));
            }
        }
        if longest_super_chain(&source.code) >= source.depth() {
            problems.push(format!(
                "{}: reaches the root through super::; use crate::",
                source.path
            ));
        }
    }
    problems.dedup();
    report("forbidden edges", &problems);
}

#[test]
fn crate_docs_list_every_module() {
    let map = fs::read_to_string(package().join("src/lib.rs")).unwrap();
    let missing: Vec<String> = EDGES
        .iter()
        .map(|(module, _)| *module)
        .filter(|module| *module != "main")
        .filter(|module| {
            !map.contains(&format!("[`{module}`]")) || !map.contains(&format!("\nmod {module};"))
        })
        .map(str::to_owned)
        .collect();
    report(
        "modules that src/lib.rs does not declare or describe",
        &missing,
    );
}

#[test]
fn pure_modules_do_no_io() {
    let mut problems = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| PURE.contains(&source.module()))
    {
        for word in IMPURE.iter().filter(|word| source.code.contains(**word)) {
            problems.push(format!("{} names {word}", source.path));
        }
    }
    report("pure modules with side effects", &problems);
}

#[test]
fn commands_print_through_the_escaping_writer() {
    let mut problems = Vec::new();
    let commands = |source: &&RustFile| source.module() == "cli" || source.path == "src/main.rs";
    for source in rust_files("src")
        .iter()
        .filter(commands)
        .filter(|source| source.path != OUTPUT)
    {
        let code = source
            .code
            .replace("output::stdout()", "")
            .replace("output::raw_stdout()", "RAW")
            .replace(".use_stderr()", "");
        for word in PRINTING.iter().filter(|word| code.contains(**word)) {
            problems.push(format!(
                "{} uses {word} instead of cli::output",
                source.path
            ));
        }
        let is_raw = code.contains("RAW") || code.contains("raw_stdout");
        let is_listed = RAW_OUTPUT.iter().any(|(path, _)| *path == source.path);
        if is_raw != is_listed {
            let verb = if is_raw { "is not" } else { "should not be" };
            problems.push(format!(
                "{} {verb} among the files with raw output",
                source.path
            ));
        }
    }
    report("commands that print without the escaping writer", &problems);
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
    for source in rust_files("src").into_iter().chain(rust_files("tests/it")) {
        let path = Path::new(&source.path);
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if [
            "src/lib.rs",
            "src/main.rs",
            "src/bench.rs",
            "src/build.rs",
            "tests/it/main.rs",
        ]
        .contains(&source.path.as_str())
        {
            continue;
        }
        let folder = path.parent().unwrap();
        let parent = match folder.to_str().unwrap() {
            "src" => PathBuf::from("src/lib.rs"),
            "tests/it" => PathBuf::from("tests/it/main.rs"),
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
fn source_reader_strips_comments_and_finds_imports() {
    let code = "use crate::{\n    tape::{Note, note::{Level}},\n    run::Fold, decode,\n};\nlet x = ingestdeck_tui::draw(); $crate::no; mycrate::no;";
    assert_eq!(used_modules(code), ["tape", "run", "decode", "tui"]);
    assert_eq!(longest_super_chain("super::super::x; super::y"), 2);
    let text = "//! x\nuse a; // crate::no\nlet u = \"http://x\";\n\n#[cfg(test)]\nmod tests {\n    use b;\n}\nfn after() {}\n";
    let source = RustFile::new("src/run/fold.rs".into(), text.into());
    assert_eq!(
        source.code,
        "use a; \nlet u = \"http://x\";\nfn after() {}\n"
    );
    assert_eq!(source.tests, "#[cfg(test)]\nmod tests {\n    use b;\n}\n");
    assert_eq!((source.module(), source.depth()), ("run", 2));
}

/// Functions of the standard library that open a file by its path and follow links.
const FILES_BY_PATH: &[&str] = &[
    "fs::read",
    "fs::write",
    "fs::create_dir",
    "fs::remove",
    "fs::rename",
    "fs::copy",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::canonicalize",
    "fs::exists",
    "fs::set_permissions",
    "fs::hard_link",
    "File::open",
    "File::create",
    "OpenOptions::new",
    "DirBuilder::new",
    ".exists()",
    ".is_file()",
    ".is_dir()",
    ".is_symlink()",
    ".read_dir()",
    ".symlink_metadata()",
    ".canonicalize()",
];

/// Files that may use them, each with its reason.
const FILES_BY_PATH_FOR_A_REASON: &[(&str, &str)] = &[
    (
        "src/ingest/standard_tools.rs",
        "the name of the session's directory, which is opened as a ScopedDir",
    ),
    ("src/cli/table_memory.rs", "the user's directory for state"),
    (
        "src/store/bookmarks.rs",
        "creates the user's directory for state",
    ),
    (
        "src/cli/bookmarks.rs",
        "the file that the command line names",
    ),
    (
        "src/agent/claude/managed_settings.rs",
        "settings of the machine, which may be links that its administrator made",
    ),
    (
        "src/agent/claude/availability.rs",
        "whether the working directory exists",
    ),
    (
        "src/agent/session_lock.rs",
        "creates the user's own directory of locks",
    ),
    (
        "src/agent/start_error.rs",
        "the program that could not be started, and its directory",
    ),
    (
        "src/agent/private_dir.rs",
        "directories for temporary files",
    ),
    (
        "src/agent/scripted.rs",
        "the script that the command line names",
    ),
    (
        "src/agent/unit.rs",
        "writes into a private temporary directory",
    ),
    (
        "src/cli/debug.rs",
        "the log in the current directory, opened without following links",
    ),
    (
        "src/cli/demo.rs",
        "writes the bundled project into a new directory",
    ),
    (
        "src/engine/control_socket/location.rs",
        "private directories of the user for sockets",
    ),
    (
        "src/engine/control_socket/server.rs",
        "the socket in such a directory",
    ),
    (
        "src/engine/descriptors.rs",
        "counts the process's own descriptors",
    ),
    (
        "src/cli/export/out_file.rs",
        "the file that --out names, which is checked there",
    ),
    (
        "src/report/redact/known_values.rs",
        "whether a value of the environment is a path",
    ),
    ("src/cli/home.rs", "whether a directory is a project"),
    (
        "src/cli/init.rs",
        "ktx.yaml in the named directory, created only if nothing is there",
    ),
    ("src/cli/manual.rs", "the directory that --out names"),
    ("src/cli/replay.rs", "whether an argument is a path"),
    ("src/cli/runs.rs", "whether a directory is a project"),
    (
        "src/cli/session.rs",
        "the user's directory for worktrees, and whether a directory is a repository",
    ),
    ("src/cli/settings.rs", "the user's settings and themes"),
    (
        "src/engine/launch.rs",
        "an empty directory of this run; the program of --claude-bin",
    ),
    ("src/engine/trace.rs", "the tape of this run"),
    (
        "src/engine/worker/nats.rs",
        "files of a login that the command line names",
    ),
    ("src/cli/watch.rs", "the length of a tape that was resolved"),
    (
        "src/cli/why.rs",
        "which file of the project an argument names",
    ),
    ("src/config/file.rs", "the user's settings"),
    (
        "src/group_guard/process_table.rs",
        "the process table in /proc",
    ),
    (
        "src/ingest/database/worker.rs",
        "the process's own descriptors",
    ),
    (
        "src/ingest/project.rs",
        "looks for the directory of the project",
    ),
    (
        "src/ingest/project/path_policy.rs",
        "resolves a path to decide whether it may be opened",
    ),
    (
        "src/ingest/connection_scope.rs",
        "resolves the path of a database to decide whether it may be opened",
    ),
    (
        "src/ingest/repository.rs",
        "the directory of the project, and those above it",
    ),
    (
        "src/ingest/source.rs",
        "the directory of a source, after the path policy",
    ),
    (
        "src/ingest/text_input.rs",
        "files that the user names on the command line",
    ),
    (
        "src/ingest/workspace/persistent.rs",
        "the directory that --workspace names",
    ),
    (
        "src/ingest/worktree/ledger.rs",
        "compares paths that git prints",
    ),
    ("src/program_path.rs", "programs in the PATH"),
    (
        "src/replay/file.rs",
        "the record that was named or resolved",
    ),
    (
        "src/replay/claude_sessions.rs",
        "the directory that the command line names",
    ),
    (
        "src/replay/session_process.rs",
        "the session file that the command line names",
    ),
    (
        "src/replay/session_tape.rs",
        "whether that session file was replaced",
    ),
    ("src/store/runs.rs", "the directory of the project itself"),
    (
        "src/tui/export.rs",
        "the file of the project that a reviewer edits",
    ),
    (
        "src/tui/terminal/foreground.rs",
        "the terminal, private copies for the editor, and files of the project that it opens",
    ),
    ("src/tui/terminal/tty_writer.rs", "the terminal"),
];

/// A clone may contain a link, a pipe or a directory where the program expects its own file. Everything below a project
/// is therefore reached through `ScopedDir`.
#[test]
fn project_files_are_reached_through_scoped_dir_only() {
    let mut problems = Vec::new();
    for source in rust_files("src")
        .iter()
        .filter(|source| source.path != "src/scoped_dir.rs")
    {
        let found: Vec<&str> = FILES_BY_PATH
            .iter()
            .copied()
            .filter(|word| source.code.contains(word))
            .collect();
        let is_excused = FILES_BY_PATH_FOR_A_REASON
            .iter()
            .any(|(path, _)| *path == source.path);
        if !found.is_empty() && !is_excused {
            problems.push(format!(
                "{} names {}; use ScopedDir, or add the file to the list with a reason",
                source.path,
                found.join(", ")
            ));
        } else if found.is_empty() && is_excused {
            problems.push(format!("{} no longer needs an exception", source.path));
        }
    }
    report("files that are opened by their path", &problems);
}
