//! Every capture of the real CLI, through the decoder and the translator.

use std::{fs, path::PathBuf};

use ingestdeck::decode::{self, Body, Kind};
use serde_json::Value;

/// Every capture, as (name, lines). Two-way transcripts give the frames that the CLI sent.
fn captures() -> Vec<(String, Vec<Vec<u8>>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut files = Vec::new();
    for folder in [root.clone(), root.join("versions")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let bytes = fs::read(&path).unwrap();
            let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(from_cli);
            (name, lines.collect())
        })
        .collect()
}

/// A line as it is, or the frame inside a line of a two-way transcript.
fn from_cli(line: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(line).unwrap();
    match (value.get("dir").and_then(Value::as_str), value.get("msg")) {
        (Some("<-" | "out"), Some(message)) => Some(serde_json::to_vec(message).unwrap()),
        (Some(_), Some(_)) => None,
        _ => Some(line.to_vec()),
    }
}

#[test]
fn no_line_of_the_real_cli_is_malformed_and_the_guess_agrees() {
    let captures = captures();
    assert!(captures.len() > 100);
    for (name, lines) in &captures {
        for line in lines {
            let decoded = decode::line(line);
            let shown = String::from_utf8_lossy(line);
            assert_ne!(decoded.body, Body::Malformed, "{name}: {shown}");
            assert_eq!(decode::kind(line), Some(decoded.body.kind()), "{name}: {shown}");
            let value: Value = serde_json::from_slice(line).unwrap();
            let session = value.get("session_id").or(value.get("sessionId")).and_then(Value::as_str);
            assert_eq!(decoded.session_id.as_deref(), session.filter(|id| !id.is_empty()), "{name}: {shown}");
        }
    }
    assert!(captures.iter().any(|(_, lines)| lines.iter().any(|line| decode::kind(line) == Some(Kind::Control))));
}
