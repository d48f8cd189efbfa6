//! The standard tools on real files and commands.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use super::*;

struct Session {
    dir: tempfile::TempDir,
    tools: StandardTools,
}

impl Session {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = TOOLS.iter().map(|tool| tool.name.to_owned()).collect();
        let tools = StandardTools::new(dir.path(), &names).unwrap();
        Self { dir, tools }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn call(&self, name: &str, arguments: Value) -> Result<String, String> {
        let reply = self.tools.call(&ToolCall {
            name: name.to_owned(),
            arguments,
            tool_use_id: None,
        });
        if reply.is_error {
            Err(reply.markdown)
        } else {
            Ok(reply.markdown)
        }
    }
}

#[test]
fn session_offers_the_tools_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let tools = StandardTools::new(dir.path(), &["grep".into(), "Read".into()]).unwrap();
    assert_eq!(
        tools
            .specs()
            .iter()
            .map(|spec| spec.name)
            .collect::<Vec<_>>(),
        ["grep"]
    );
    let call = ToolCall {
        name: "bash".into(),
        arguments: json!({"command": "true"}),
        tool_use_id: None,
    };
    assert!(tools.call(&call).is_error);
}

#[test]
fn schemas_match_the_specification() {
    let session = Session::new();
    let fields = |name: &str| {
        let spec = session
            .tools
            .specs()
            .into_iter()
            .find(|spec| spec.name == name)
            .unwrap();
        let required = spec
            .input_schema
            .get("required")
            .cloned()
            .unwrap_or_default();
        let fields: Vec<String> = spec.input_schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        (fields.join(" "), required)
    };
    assert_eq!(
        fields("read_file"),
        ("file_path encoding".to_owned(), json!(["file_path"]))
    );
    let edit = "file_path old_string new_string replace_all".to_owned();
    assert_eq!(
        fields("edit_file"),
        (edit, json!(["file_path", "old_string", "new_string"]))
    );
    assert_eq!(
        fields("write_file"),
        (
            "file_path content".to_owned(),
            json!(["file_path", "content"])
        )
    );
    assert_eq!(
        fields("bash"),
        ("command cwd timeout".to_owned(), json!(["command"]))
    );
    assert_eq!(
        fields("glob"),
        ("pattern cwd limit".to_owned(), json!(["pattern"]))
    );
    assert_eq!(
        fields("grep"),
        (
            "pattern path glob max_results".to_owned(),
            json!(["pattern", "path"])
        )
    );
}

#[test]
fn file_is_written_edited_and_read() {
    let session = Session::new();
    let path = session.dir.path().canonicalize().unwrap().join("src/a.txt");
    let absolute = path.to_str().unwrap();
    session
        .call(
            "write_file",
            json!({"file_path": absolute, "content": "one two two"}),
        )
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o775)).unwrap();
    let edit = |old: &str, all: bool| {
        let input = json!({"file_path": "src/a.txt", "old_string": old, "new_string": "2", "replace_all": all});
        session.call("edit_file", input)
    };
    assert!(edit("two", false).unwrap_err().contains("occurs 2 times"));
    assert!(edit("three", true).unwrap_err().contains("does not occur"));
    assert!(edit("", true).is_err());
    assert_eq!(edit("two", true).unwrap(), "Successfully edited src/a.txt");
    assert_eq!(
        session
            .call("read_file", json!({"file_path": absolute}))
            .unwrap(),
        "one 2 2"
    );
    let encoded = session.call(
        "read_file",
        json!({"file_path": "src/a.txt", "encoding": "base64"}),
    );
    assert_eq!(encoded.unwrap(), "b25lIDIgMg==");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o775
    );
}

#[test]
fn path_outside_the_session_is_refused() {
    let session = Session::new();
    std::os::unix::fs::symlink("/etc", session.dir.path().join("link")).unwrap();
    assert!(
        session
            .call("bash", json!({"command": "true", "cwd": "link"}))
            .is_err()
    );
    for path in ["/etc/hostname", "../x", "a/../../x", "link/hostname"] {
        assert!(
            session
                .call("read_file", json!({"file_path": path}))
                .is_err(),
            "{path}"
        );
        assert!(
            session
                .call("write_file", json!({"file_path": path, "content": ""}))
                .is_err(),
            "{path}"
        );
        assert!(
            session
                .call("bash", json!({"command": "true", "cwd": path}))
                .is_err(),
            "{path}"
        );
    }
    assert!(
        session
            .call("grep", json!({"pattern": "a", "path": "/etc"}))
            .is_err()
    );
    assert_eq!(
        session
            .call("glob", json!({"pattern": "**/hostname"}))
            .unwrap(),
        "(no matches)",
        "behind the link"
    );
}

#[test]
fn command_runs_in_its_directory_with_its_output() {
    let session = Session::new();
    session.write("sub/file", "");
    let run = |input| session.call("bash", input);
    assert_eq!(run(json!({"command": "ls", "cwd": "sub"})).unwrap(), "file");
    assert_eq!(run(json!({"command": "true"})).unwrap(), "(no output)");
    assert_eq!(
        run(json!({"command": "echo out; echo err >&2"})).unwrap(),
        "out\nerr"
    );
    assert_eq!(
        run(json!({"command": "echo no; exit 3"})).unwrap_err(),
        "Command failed: exit status: 3\nno"
    );
    let long = run(json!({"command": "head -c 1000000 /dev/zero | tr '\\0' x"})).unwrap();
    assert!(
        long.ends_with("[cut after 45000 characters of 180000 bytes]"),
        "{}",
        &long[long.len() - 60..]
    );
}

#[test]
fn configuration_of_programs_is_not_written() {
    let session = Session::new();
    for path in [
        ".git/hooks/pre-commit",
        "a/.claude/settings.json",
        ".mcp.json",
        "ingestdeck.toml",
    ] {
        let input = json!({"file_path": path, "content": ""});
        assert!(
            session
                .call("write_file", input)
                .unwrap_err()
                .contains("configures programs"),
            "{path}"
        );
    }
}

#[test]
fn results_and_edits_are_bounded() {
    let session = Session::new();
    session.write("a.txt", &"a".repeat(1 << 20));
    let input = json!({"file_path": "a.txt", "old_string": "a", "new_string": "b".repeat(1000), "replace_all": true});
    assert!(
        session
            .call("edit_file", input)
            .unwrap_err()
            .contains("the limit is")
    );
    session.write("lines.txt", &"\n".repeat(1 << 20));
    let found = session
        .call(
            "grep",
            json!({"pattern": "", "path": "lines.txt", "max_results": 100_000_000}),
        )
        .unwrap();
    assert!(found.len() < 100_000, "{}", found.len());
}

#[test]
fn command_is_killed_after_its_timeout() {
    let session = Session::new();
    // The background process holds the pipe.
    let error = session
        .call(
            "bash",
            json!({"command": "sleep 600 & sleep 600", "timeout": 50}),
        )
        .unwrap_err();
    assert_eq!(error, "Command failed: it did not end within 50 ms");
    let error = session
        .call(
            "bash",
            json!({"command": "exec >/dev/null 2>&1; sleep 600", "timeout": 50}),
        )
        .unwrap_err();
    assert_eq!(
        error, "Command failed: it did not end within 50 ms",
        "its outputs are closed"
    );
    assert!(session.tools.dir.commands.groups_are_empty());
}

#[test]
fn stop_kills_a_running_command() {
    let session = Session::new();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| session.call("bash", json!({"command": "sleep 600"})));
        while session.tools.dir.commands.groups_are_empty() {
            ingestdeck_test_support::pause_before_check();
        }
        session.tools.stop();
        assert!(call.join().unwrap().unwrap_err().contains("signal: 9"));
    });
}

#[test]
fn files_and_lines_are_found_in_order() {
    let session = Session::new();
    session.write("b.rs", "fn b() {}\n");
    session.write("a/one.rs", "fn one() {}\nlet x;\nfn two() {}\n");
    session.write("a/one.md", "fn text\n");
    session.write("a/data.bin", "fn\0");
    session.write(".git/config.rs", "fn");
    assert_eq!(
        session.call("glob", json!({"pattern": "**/*.rs"})).unwrap(),
        "a/one.rs\nb.rs"
    );
    assert_eq!(
        session
            .call("glob", json!({"pattern": "*.rs", "cwd": "a"}))
            .unwrap(),
        "a/one.rs"
    );
    assert_eq!(
        session
            .call("glob", json!({"pattern": "**/*", "limit": 1}))
            .unwrap(),
        "a/data.bin"
    );
    let grep = |input| session.call("grep", input);
    let all = grep(json!({"pattern": "^fn", "path": ".", "glob": "*.rs"})).unwrap();
    assert_eq!(
        all,
        "a/one.rs:1:fn one() {}\na/one.rs:3:fn two() {}\nb.rs:1:fn b() {}"
    );
    assert_eq!(
        grep(json!({"pattern": "fn", "path": "a", "max_results": 1})).unwrap(),
        "a/one.md:1:fn text"
    );
    assert_eq!(
        grep(json!({"pattern": "two", "path": "a/one.rs"})).unwrap(),
        "a/one.rs:3:fn two() {}"
    );
    assert_eq!(
        grep(json!({"pattern": "nothing", "path": "."})).unwrap(),
        "(no matches)"
    );
    assert!(
        grep(json!({"pattern": "(", "path": "."}))
            .unwrap_err()
            .starts_with("invalid pattern")
    );
    assert!(grep(json!({"pattern": "a", "path": "missing"})).is_err());
}

#[test]
fn invalid_arguments_are_named() {
    let session = Session::new();
    let error = session.call("bash", json!({"comand": "ls"})).unwrap_err();
    assert!(error.starts_with("bash was not called: "), "{error}");
    assert!(session.call("read_file", json!({"file_path": 1})).is_err());
    assert!(
        session
            .call("read_file", json!({"file_path": "missing"}))
            .unwrap_err()
            .contains("cannot read")
    );
}
