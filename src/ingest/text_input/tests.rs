//! Texts from the command line, from files of every kind, and from records.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
};

use nix::{sys::stat::Mode, unistd};

use super::*;
use ingestdeck_core::diagnostic::Diagnostic as _;

fn inline(text: &str) -> TextInput {
    TextInput::inline(text, TextMode::Captured).unwrap()
}

fn refusal(bytes: &[u8]) -> String {
    TextInput::read_stdin(bytes, TextMode::Captured)
        .unwrap_err()
        .to_line()
}

#[test]
fn labels_are_printable_and_unique() {
    assert_eq!(
        inline("NRR\n\tmeans  \u{1b}[31mnet").label,
        "\"NRR means [31mnet\""
    );
    assert_eq!(
        inline(&"é".repeat(80)).label,
        format!("\"{}\"", "é".repeat(50))
    );
    assert_eq!(inline("a\u{202e}b").label, "\"a\\u{202e}b\"");
    let text = |content: &str| TextInput {
        label: "notes.md".into(),
        content: content.into(),
        is_file: true,
    };
    let inputs = TextInputs::collect(
        vec![text("a"), text("b"), text(" a\n"), text("c")],
        TextMode::Captured,
    )
    .unwrap();
    let labels: Vec<&str> = inputs
        .texts
        .iter()
        .map(|text| text.label.as_str())
        .collect();
    assert_eq!(labels, ["notes.md", "notes.md (2)", "notes.md (3)"]);
    assert_eq!(
        inputs.duplicates,
        ["notes.md is left out: an earlier text, notes.md, is equal"]
    );
}

#[test]
fn keys_follow_label_and_content_only() {
    let keys = |texts: &[&str]| {
        TextInputs::collect(
            texts.iter().map(|text| inline(text)).collect(),
            TextMode::Captured,
        )
        .unwrap()
        .keys()
    };
    let both = keys(&["ARR is annual.", "\u{4e2d}\u{6587}"]);
    assert_eq!(both, ["text-arr-is-annual-6e2d0050", "text-72726d88"]);
    assert_eq!(
        keys(&["\u{4e2d}\u{6587}", "ARR is annual."]),
        [both[1].clone(), both[0].clone()]
    );
    let long = keys(&[&"word ".repeat(40)]);
    assert!(
        long[0].len() <= "text-".len() + KEY_SLUG_BYTES + 9,
        "{long:?}"
    );
    assert!(
        keys(&["../../etc"])[0]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    );
}

#[test]
fn unusable_bytes_are_refused_with_the_reason() {
    assert_eq!(refusal(b""), "cannot use stdin: it is empty");
    assert_eq!(refusal(b"\xef\xbb\xbf \n"), "cannot use stdin: it is empty");
    assert_eq!(
        refusal("\u{a0}\u{2003}".as_bytes()),
        "cannot use stdin: it is empty"
    );
    assert_eq!(refusal(b"a\0b"), "cannot use stdin: it is not text");
    assert_eq!(
        refusal(b"a\xff"),
        "cannot use stdin: it is not UTF-8 text; save it as UTF-8"
    );
    let long = refusal("é".repeat(MAX_TEXT_CHARS + 1).as_bytes());
    assert!(
        long.starts_with("cannot use stdin: it has 48001 characters, the limit is 48000; split it"),
        "{long}"
    );
    let endless = refusal_of(io::repeat(b'a'));
    assert!(
        endless.starts_with("cannot use stdin: it has more than 192000 bytes"),
        "{endless}"
    );
    let limit = "\u{1f34e}".repeat(MAX_TEXT_CHARS);
    assert_eq!(
        TextInput::read_stdin(limit.as_bytes(), TextMode::Captured)
            .unwrap()
            .content,
        limit
    );
    assert_eq!(
        TextInput::read_stdin(&b"\xef\xbb\xbfa"[..], TextMode::Captured)
            .unwrap()
            .content,
        "a"
    );
}

fn refusal_of(input: impl io::Read) -> String {
    TextInput::read_stdin(input, TextMode::Captured)
        .unwrap_err()
        .to_line()
}

#[test]
fn texts_of_a_run_have_a_common_limit() {
    // A control character needs six bytes in JSON.
    let text = |number: usize| TextInput {
        label: "a".into(),
        content: format!("{number}{}", "\u{1}".repeat(47_000)),
        is_file: true,
    };
    assert!(TextInputs::collect((0..11).map(text).collect(), TextMode::Captured).is_ok());
    let error = TextInputs::collect((0..12).map(text).collect(), TextMode::Captured)
        .unwrap_err()
        .to_line();
    assert_eq!(
        error,
        "the texts are too long together: the limit of a run is 3 MiB; give them to several runs"
    );
}

#[test]
fn only_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let read = |name: &str| {
        TextInput::read_file(&root.join(name), &root.join("project"), TextMode::Captured)
    };
    let refusal = |name: &str| read(name).unwrap_err().to_line();
    fs::write(root.join("a.md"), "text").unwrap();
    fs::create_dir(root.join("dir")).unwrap();
    unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(root.join("socket")).unwrap();
    symlink("missing", root.join("broken")).unwrap();
    assert_eq!(
        read("a.md").unwrap(),
        TextInput {
            label: "a.md".into(),
            content: "text".into(),
            is_file: true,
        }
    );
    assert!(
        refusal("dir").contains("it is a directory; name the files in it"),
        "{}",
        refusal("dir")
    );
    assert!(
        refusal("fifo").contains("it is a pipe; pipe its content"),
        "{}",
        refusal("fifo")
    );
    for missing in ["none", "broken", "a.md/b", "socket"] {
        assert!(
            refusal(missing).starts_with("cannot read `"),
            "{}",
            refusal(missing)
        );
    }
}

#[test]
fn links_of_a_project_must_not_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let project = root.join("project");
    fs::create_dir_all(project.join("notes")).unwrap();
    fs::create_dir(root.join("private")).unwrap();
    fs::write(root.join("private/key"), "secret").unwrap();
    fs::write(project.join("notes/own.md"), "own").unwrap();
    symlink(root.join("private/key"), project.join("key.md")).unwrap();
    symlink(root.join("private"), project.join("folder")).unwrap();
    symlink("notes/own.md", project.join("inside.md")).unwrap();
    symlink(&project, root.join("alias")).unwrap();
    symlink(project.join("notes/own.md"), root.join("mine.md")).unwrap();
    let read = |path: &Path| TextInput::read_file(path, &project, TextMode::Captured);
    for path in ["key.md", "folder/key", "notes/../key.md"] {
        let error = read(&project.join(path)).unwrap_err().to_line();
        assert!(
            error.contains("it is a link that leads outside the project, to `"),
            "{error}"
        );
    }
    for path in [
        "project/inside.md",
        "project/notes/own.md",
        "mine.md",
        "project/../mine.md",
        "private/key",
    ] {
        assert!(read(&root.join(path)).is_ok(), "{path}");
    }
    let aliased = TextInput::read_file(
        &root.join("alias/key.md"),
        &root.join("alias"),
        TextMode::Captured,
    );
    assert!(aliased.is_err(), "the project may be named through a link");
}

#[test]
fn recorded_texts_are_checked_again() {
    let text = inline("ARR is annual.");
    assert_eq!(
        TextInput::recorded(&text.label, &text.content).unwrap(),
        text
    );
    assert!(TextInput::recorded("a", &"x".repeat(MAX_TEXT_CHARS + 1)).is_err());
    assert_eq!(
        TextInput::recorded("a\u{1b}", "x").unwrap().label,
        "a\\u{1b}"
    );
}
