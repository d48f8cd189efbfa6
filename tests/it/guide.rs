//! README and guide: every link resolves, every page is linked, and every command and flag exists.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Command;
use ingestdeck::guide::PAGES;

/// Largest size of the README in bytes, so that it remains an overview.
const README_BYTES: usize = 6 * 1024;

struct Document {
    path: PathBuf,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<Document> {
    let guide = fs::read_dir(root().join("assets/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let paths = guide.chain([root().join("README.md")]);
    paths
        .map(|path| Document {
            text: fs::read_to_string(&path).unwrap(),
            path,
        })
        .collect()
}

#[test]
fn readme_is_short_and_links_every_page() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.len() <= README_BYTES,
        "README.md has {} bytes",
        readme.len()
    );
    for page in PAGES {
        assert!(
            readme.contains(&format!("(assets/guide/{}.md)", page.topic)),
            "README.md does not link {}",
            page.topic
        );
        assert!(page.text.starts_with("# "), "{} has no title", page.topic);
    }
    let topics: BTreeSet<String> = PAGES
        .iter()
        .map(|page| format!("{}.md", page.topic))
        .collect();
    let files: BTreeSet<String> = fs::read_dir(root().join("assets/guide"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(topics, files);
}

#[test]
fn links_of_documents_resolve() {
    let mut links = 0;
    for document in documents() {
        for target in document
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let file = target.split('#').next().unwrap();
            if file.contains("://") || file.is_empty() {
                continue;
            }
            links += 1;
            let path = document.path.parent().unwrap().join(file);
            assert!(
                path.exists(),
                "{}: `{target}` does not exist",
                document.path.display()
            );
        }
    }
    assert!(links > 30, "{links}");
}

#[test]
fn commands_in_code_blocks_parse() {
    let mut commands = 0;
    for document in documents() {
        let text = document.text.replace("\\\n", " ");
        let blocks = text
            .split("```sh\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        for line in blocks.flat_map(str::lines) {
            let line = line.split(" #").next().unwrap().trim();
            let words = shlex::split(line).unwrap();
            let words = match words
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .as_slice()
            {
                ["cargo", "run", "--release", "--", rest @ ..] => [&["ingestdeck"], rest].concat(),
                ["ingestdeck", ..] => words.iter().map(String::as_str).collect(),
                _ => continue,
            };
            commands += 1;
            let parsed = ingestdeck::command().try_get_matches_from(&words);
            assert!(
                parsed.is_ok(),
                "{}: `{line}`: {}",
                document.path.display(),
                parsed.unwrap_err()
            );
        }
    }
    assert!(commands >= 5, "{commands}");
}

#[test]
fn commands_in_sentences_exist_with_their_flags() {
    let mut root = ingestdeck::command();
    root.build();
    let mut checked = 0;
    for document in documents() {
        let outside_blocks: String = document.text.split("```").step_by(2).collect();
        for code in outside_blocks.split('`').skip(1).step_by(2) {
            let Some(usage) = code.strip_prefix("ingestdeck ") else {
                continue;
            };
            checked += 1;
            check_usage(&root, usage)
                .unwrap_or_else(|what| panic!("{}: `{code}`: {what}", document.path.display()));
        }
    }
    assert!(checked > 20, "{checked}");
}

/// Checks the commands and flags of a usage such as `runs list|show [--keep N]`.
fn check_usage(root: &Command, usage: &str) -> Result<(), String> {
    let mut command = root;
    for word in usage
        .replace('\\', "")
        .split([' ', '[', ']'])
        .filter(|word| !word.is_empty())
    {
        if let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) {
            let name = flag.split(['=', '|']).next().unwrap();
            let known = command
                .get_arguments()
                .any(|argument| argument.get_long() == Some(name));
            if !known && !["help", "version"].contains(&name) {
                return Err(format!("no flag --{name}"));
            }
        } else if command.has_subcommands() {
            let names: Vec<&str> = word.split('|').collect();
            for name in &names {
                command
                    .find_subcommand(name)
                    .ok_or_else(|| format!("no command {name}"))?;
            }
            if let [name] = names.as_slice() {
                command = command.find_subcommand(name).unwrap();
            }
        }
    }
    Ok(())
}

#[test]
fn check_usage_finds_what_does_not_exist() {
    let mut root = ingestdeck::command();
    root.build();
    for usage in [
        "runs list|show",
        "run --failed[=RUN]",
        "plan [CONNECTION…] [--only GLOB]",
        "help TOPIC",
    ] {
        assert_eq!(check_usage(&root, usage), Ok(()), "{usage}");
    }
    for usage in ["runs list|missing", "run --missing", "missing"] {
        assert!(check_usage(&root, usage).is_err(), "{usage}");
    }
}

fn run_help(words: &[&str]) -> (Option<i32>, String) {
    let mut program = std::process::Command::new(crate::support::program());
    let output = program.arg("help").args(words).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn help_prints_pages_and_commands() {
    for page in PAGES {
        assert_eq!(run_help(&[page.topic]), (Some(0), page.text.to_owned()));
    }
    let (code, overview) = run_help(&[]);
    assert_eq!(code, Some(0));
    assert!(
        PAGES.iter().all(|page| overview.contains(page.title())),
        "{overview}"
    );
    let (code, export) = run_help(&["runs", "export"]);
    assert_eq!(code, Some(0));
    assert!(export.contains("Usage: ingestdeck runs export"), "{export}");
    for unknown in [
        &["missing"][..],
        &["runs", "missing"],
        &["screenshot"],
        &["exit-codes", "run"],
    ] {
        assert_eq!(run_help(unknown).0, Some(4), "{unknown:?}");
    }
}
