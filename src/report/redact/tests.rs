//! Secrets of every kind at every place of a tape are masked; ordinary text keeps its bytes.

use std::{collections::HashSet, fmt::Write as _};

use proptest::{
    prelude::*, strategy::ValueTree as _, string::string_regex, test_runner::TestRunner,
};
use serde_json::{Value, json};

use super::*;
use ingestdeck_core::tape::{EntryBody, Millis, Seq};

mod hidden;
mod kinds;
mod ordinary;
mod texts;

/// No part of a secret of this length may survive.
const TELLING: usize = 12;

fn redacted(text: &str) -> (String, usize) {
    let mut redactor = Redactor::default();
    let text = redactor.text(text).into_owned();
    (text, redactor.masked)
}

/// The lines of a tape after both passes.
fn exported(lines: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
    let mut redactor = Redactor::default();
    for (number, line) in (0..).zip(lines) {
        redactor.collect_deltas(number, line);
    }
    redactor.finish_collection();
    let out = (0..)
        .zip(lines)
        .map(|(number, line)| redactor.tape_line(number, line).into_owned())
        .collect();
    (out, redactor.masked)
}

fn entry(body: EntryBody<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    TapeEntry {
        seq: Seq(7),
        at: Millis(8),
        attempt: Some(("unit".into(), 1)),
        body,
    }
    .write(&mut line);
    line.pop();
    line
}

fn out(value: &Value) -> Vec<u8> {
    entry(EntryBody::Stdout(value.to_string().as_bytes()))
}

fn delta(index: u64, kind: &str, field: &str, piece: &str) -> Vec<u8> {
    out(&json!({
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": index, "delta": {"type": kind, (field): piece}},
        "session_id": "s",
        "parent_tool_use_id": null,
    }))
}

/// Deltas of a block with `text`, whose lengths in characters repeat `sizes`.
fn streamed(index: u64, kind: &str, field: &str, text: &str, sizes: &[usize]) -> Vec<Vec<u8>> {
    let (mut rest, mut lines) = (text, Vec::new());
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).max(1);
        let end = rest
            .char_indices()
            .nth(size)
            .map_or(rest.len(), |(at, _)| at);
        lines.push(delta(index, kind, field, &rest[..end]));
        rest = &rest[end..];
    }
    let stop = json!({"type": "stream_event", "event": {"type": "content_block_stop", "index": index},
        "session_id": "s", "parent_tool_use_id": null});
    lines.push(out(&stop));
    lines
}

/// Everything that a reader can decode from exported lines: strings at every depth, JSON and base64 in them, and joined
/// deltas.
fn everything(lines: &[Vec<u8>]) -> String {
    fn collect(value: &Value, all: &mut String) {
        match value {
            Value::String(text) => {
                let _ = writeln!(all, "{text}");
                if let Ok(inner) = serde_json::from_str::<Value>(text) {
                    collect(&inner, all);
                }
                if let Ok(bytes) = BASE64.decode(text) {
                    let text: String = String::from_utf8_lossy(&bytes).into_owned();
                    let _ = writeln!(all, "{text}\n{}", text.replace('\0', ""));
                }
            }
            Value::Number(number) => _ = writeln!(all, "{number}"),
            Value::Array(values) => values.iter().for_each(|value| collect(value, all)),
            Value::Object(object) => object.iter().for_each(|(key, value)| {
                let _ = writeln!(all, "{key}");
                collect(value, all);
            }),
            Value::Bool(_) | Value::Null => {}
        }
    }
    let (mut all, mut deltas) = (String::new(), String::new());
    for line in lines {
        all.push_str(&String::from_utf8_lossy(line));
        all.push('\n');
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        collect(&value, &mut all);
        let delta = &value["out"]["event"]["delta"];
        deltas.extend(
            delta["text"]
                .as_str()
                .or(delta["partial_json"].as_str())
                .or(delta["thinking"].as_str()),
        );
    }
    all + &deltas
}

/// All parts of a text of length [`TELLING`].
struct Pieces<'a>(HashSet<&'a [u8]>);

impl<'a> Pieces<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.as_bytes().windows(TELLING).collect())
    }

    /// True if a piece of `secret` is among them.
    fn hold(&self, secret: &str) -> bool {
        assert!(secret.len() >= TELLING, "{secret} is too short to look for");
        secret
            .as_bytes()
            .windows(TELLING)
            .any(|piece| self.0.contains(piece))
    }
}

fn survives(secret: &str, text: &str) -> bool {
    Pieces::of(text).hold(secret)
}

/// Pseudo-random numbers, the same in every run.
struct TestRng(u64);

impl TestRng {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }

    fn word(&mut self, of: &str, length: usize) -> String {
        (0..length)
            .map(|_| char::from(of.as_bytes()[self.roll(of.len())]))
            .collect()
    }
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";

/// A secret in the format of its service, and a text that contains it.
fn planted(kind: usize, dice: &mut TestRng) -> (String, String) {
    let dice = std::cell::RefCell::new(dice);
    let token = |start: &str, of: &str, length: usize| {
        format!("{start}{}", dice.borrow_mut().word(of, length))
    };
    let alone = |secret: String| (secret.clone(), secret);
    let within = |text: &str, secret: String| (secret.clone(), text.replace('#', &secret));
    let odd = || format!("{}&9({})!", token("p", ALNUM, 4), token("x", ALNUM, 4));
    match kind % KINDS {
        0 => alone(token("AKIA", UPPER, 16)),
        1 => alone(token("ghp_", ALNUM, 36)),
        2 => alone(token("github_pat_", ALNUM, 82)),
        3 => alone(token("glpat-", ALNUM, 20)),
        4 => alone(format!(
            "xoxb-{}-{}-{}",
            token("", HEX, 11),
            token("", HEX, 12),
            token("", ALNUM, 24)
        )),
        5 => alone(token("sk-ant-api03-", ALNUM, 93)),
        6 => alone(token("sk-proj-", ALNUM, 60)),
        7 => alone(token("hf_", ALNUM, 34)),
        8 => alone(token("npm_", ALNUM, 36)),
        9 => alone(token("pypi-AgEIcHlwaS5vcmc", ALNUM, 80)),
        10 => alone(token("dapi", HEX, 32)),
        11 => alone(format!(
            "SG.{}.{}",
            token("", ALNUM, 22),
            token("", ALNUM, 43)
        )),
        12 => alone(token("dbtu_", ALNUM, 40)),
        13 => alone(token("secret_9", ALNUM, 42)),
        14 => alone(token("ntn_", ALNUM, 46)),
        15 => alone(token("sk_live_", ALNUM, 24)),
        16 => alone(token("AIza", ALNUM, 35)),
        17 => alone(format!(
            "eyJ{}.eyJ{}.{}",
            token("", ALNUM, 20),
            token("", ALNUM, 40),
            token("", ALNUM, 43)
        )),
        18 => alone(token("dop_v1_", HEX, 64)),
        19 => alone(token("lin_api_", ALNUM, 40)),
        20 => alone(token("shpat_", HEX, 32)),
        21 => alone(token("hvs.", ALNUM, 90)),
        22 => alone(token("AGE-SECRET-KEY-1", UPPER, 58)),
        23 => alone(token("glsa_", ALNUM, 41)),
        24 => alone(token("dp.pt.", ALNUM, 43)),
        25 => alone(token("PMAK-", HEX, 24) + &token("-", HEX, 34)),
        26 => alone(token("ATATT3", ALNUM, 186)),
        27 => alone(token("NRAK-", UPPER, 27)),
        28 => alone(token("SK", HEX, 32)),
        29 => alone(token("https://hooks.slack.com/services/T", ALNUM, 43)),
        30 => within("password: #", odd()),
        31 => within("SMTP_PASS=#", token("$", ALNUM, 10) + "1aB"),
        32 => within("password: #", token("88", "0123456789", 10)),
        33 => within(
            "postgres://svc:#@db:5432/x",
            format!("{}/{}", token("h", ALNUM, 8), token("t", ALNUM, 8)),
        ),
        34 => within("https://#@github.com/a/b", token("t0", HEX, 38)),
        35 => within("Authorization: token #", token("x1", ALNUM, 30)),
        36 => within("Cookie: session=#", token("s1", ALNUM, 30)),
        37 => within("Server=h;Pwd=#;Database=x", token("1a", ALNUM, 12)),
        38 => within(
            "DefaultEndpointsProtocol=https;AccountKey=#==;x",
            token("", ALNUM, 86),
        ),
        39 => within("mysql -uroot -p# db", token("S3", ALNUM, 12)),
        40 => within("api_key = \"#\"", token("k3", ALNUM, 20)),
        41 => within("client_secret: #", token("c5", ALNUM, 20)),
        _ => {
            let body: Vec<String> = (0..4).map(|_| token("", ALNUM, 64)).collect();
            let kind = [
                "RSA PRIVATE KEY",
                "OPENSSH PRIVATE KEY",
                "PGP PRIVATE KEY BLOCK",
            ][kind % 3];
            let lines = body.join("\n");
            (
                body[2].clone(),
                format!("-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"),
            )
        }
    }
}

const KINDS: usize = 43;
const PLACES: usize = 13;

/// Lines of a tape with `text` at a place.
fn put(place: usize, text: &str, dice: &mut TestRng) -> Vec<Vec<u8>> {
    let message =
        |content: Value| json!({"type": "user", "message": {"role": "user", "content": [content]}});
    let result = |text: &str| {
        message(json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": text}))
    };
    let sizes: Vec<usize> = (0..5).map(|_| 1 + dice.roll(9)).collect();
    match place % PLACES {
        0 => vec![out(&result(&format!("creds:\n{text}\nend")))],
        1 => vec![out(&result(&format!("a\t{text}\tb")))],
        2 => vec![out(&result(&format!("it is {text} here")))],
        3 => streamed(
            0,
            "text_delta",
            "text",
            &format!("the value {text} is"),
            &sizes,
        ),
        4 => text
            .lines()
            .map(|line| entry(EntryBody::Stderr(line.into())))
            .collect(),
        5 => vec![out(&json!({"type": "assistant", "message": {"content":
            [{"type": "tool_use", "id": "toolu_2", "name": "x", "input": {"deep": [{"note": format!("see {text}")}]}}]}}))],
        6 => {
            let inner = json!({"rows": [{"note": format!("x\n{text}")}]}).to_string();
            vec![out(&result(&json!({"inner": inner}).to_string()))]
        }
        7 => vec![entry(EntryBody::StdoutRaw(
            [b"\xff ", text.as_bytes()].concat().into(),
        ))],
        8 => vec![entry(EntryBody::Note(
            json!({"kind": "remark", "text": format!("so: {text}")})
                .to_string()
                .as_bytes(),
        ))],
        9 => {
            let input = json!({"content": format!("a\n{text}\nb")}).to_string();
            streamed(1, "input_json_delta", "partial_json", &input, &sizes)
        }
        10 => vec![entry(EntryBody::StdoutRaw(
            format!("{{\"broken\": {}", json!(format!("\n{text}")))
                .into_bytes()
                .into(),
        ))],
        11 => vec![out(&json!({"type": "system", (format!("of {text}")): 1}))],
        _ => streamed(
            2,
            "thinking_delta",
            "thinking",
            &format!("hm\n{text}"),
            &sizes,
        ),
    }
}

#[test]
fn planted_secrets_do_not_survive() {
    let mut dice = TestRng(0x9E37_79B9_7F4A_7C15);
    let (mut secrets, mut lines) = (Vec::new(), Vec::new());
    for round in 0..KINDS * PLACES {
        let (kind, place) = (round % KINDS, round / KINDS + round % KINDS);
        let (secret, text) = planted(kind, &mut dice);
        lines.extend(put(place, &text, &mut dice));
        secrets.push((kind, place % PLACES, secret));
    }
    assert!(secrets.len() >= 300);
    let all = everything(&lines);
    let pieces = Pieces::of(&all);
    assert!(
        secrets.iter().all(|(.., secret)| pieces.hold(secret)),
        "all are there before"
    );
    let (exported, masked) = exported(&lines);
    let all = everything(&exported);
    let pieces = Pieces::of(&all);
    let survivors: Vec<_> = secrets
        .iter()
        .filter(|(.., secret)| pieces.hold(secret))
        .collect();
    assert!(
        survivors.is_empty(),
        "{} of {}: {survivors:#?}",
        survivors.len(),
        secrets.len()
    );
    assert!(masked >= secrets.len());
    for (before, after) in lines.iter().zip(&exported) {
        let (before, after) = (
            TapeEntry::parse(before).unwrap(),
            TapeEntry::parse(after).unwrap(),
        );
        assert_eq!(
            (before.seq, before.at, before.attempt),
            (after.seq, after.at, after.attempt)
        );
    }
}

#[test]
fn values_under_names_are_masked_in_json() {
    for (json, expected) in [
        (
            r#"{"password": 8812345678, "port": 5432}"#,
            r#"{"password": "[masked]", "port": 5432}"#,
        ),
        (
            r#"{"input_tokens":123456,"token":1234567,"password":false}"#,
            r#"{"input_tokens":123456,"token":1234567,"password":false}"#,
        ),
        (
            r#"{"headers":{"Authorization":"Bearer abc123def"}}"#,
            r#"{"headers":{"Authorization":"Bearer [masked]"}}"#,
        ),
        (
            r#"{"env":[{"name":"DB_PASSWORD","value":"hunter22"}]}"#,
            r#"{"env":[{"name":"DB_PASSWORD","value":"[masked]"}]}"#,
        ),
        (
            r#"["--password","hunter22","--host","hunter22"]"#,
            r#"["--password","[masked]","--host","hunter22"]"#,
        ),
        (
            r#"{"a":"\u0041KIAIOSFODNN7ABCDEFG"}"#,
            r#"{"a":"[masked]"}"#,
        ),
        (
            r#"{"a":"{\"b\":\"{\\\"secret_key\\\":\\\"abc123\\\"}\"}"}"#,
            r#"{"a":"{\"b\":\"{\\\"secret_key\\\":\\\"[masked]\\\"}\"}"}"#,
        ),
        (
            r#"{"progressToken":"toolu_059d3db6ff6e4870b731db19b353bb6a"}"#,
            r#"{"progressToken":"toolu_059d3db6ff6e4870b731db19b353bb6a"}"#,
        ),
        (
            r#"{"odd":"\ud800","password":null}"#,
            r#"{"odd":"\ud800","password":null}"#,
        ),
    ] {
        assert_eq!(redacted(json).0, expected);
    }
}

#[test]
fn escapes_and_base64_hide_no_secret() {
    let key = format!("AKIA{}", "ABCDEFG2".repeat(2));
    for before in [
        "",
        "\n",
        "\t",
        "\\n",
        "\\t",
        "\\u000a",
        "%20",
        "\u{1b}[32m",
        "é",
        "\"",
        "=",
        "_",
    ] {
        assert_eq!(
            redacted(&format!("x{before} {before}{key}")).0,
            format!("x{before} {before}[masked]")
        );
    }
    assert_eq!(
        redacted("broken \\u0041KIAABCDEFG2ABCDEFG2").0,
        "broken [masked]"
    );
    let code = BASE64.encode(format!("first line\nkey = {key}\n "));
    assert_eq!(redacted(&code), ("[masked]".to_owned(), 1));
}

#[test]
fn key_in_an_array_of_lines_is_masked() {
    let line = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
    let json = json!({"lines": ["a: |", "-----BEGIN RSA PRIVATE KEY-----", line, "c2g=", "-----END RSA PRIVATE KEY-----", "done"]});
    let (text, masked) = redacted(&json.to_string());
    let expected = json!({"lines": ["a: |", "[masked]", "[masked]", "[masked]", "-----END RSA PRIVATE KEY-----", "done"]});
    assert_eq!(
        (serde_json::from_str::<Value>(&text).unwrap(), masked),
        (expected, 3)
    );
}

#[test]
fn streamed_deltas_lose_their_part_of_a_secret() {
    let pieces = ["key sk-ant-", "api03-AbCd", "EfGhIjKlMn", "OpQrSt end"];
    let lines: Vec<Vec<u8>> = pieces
        .iter()
        .map(|piece| delta(0, "text_delta", "text", piece))
        .collect();
    let (exported, masked) = exported(&lines);
    let text = |line: &Vec<u8>| {
        let value: Value = serde_json::from_slice(line).unwrap();
        value["out"]["event"]["delta"]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        exported.iter().map(text).collect::<Vec<_>>(),
        ["key [masked]", "", "", " end"]
    );
    assert_eq!(masked, 1);
}

#[test]
fn streams_of_other_attempts_are_kept_apart() {
    let of = |unit: &str, text: &str| {
        let mut line = Vec::new();
        TapeEntry {
            seq: Seq(1),
            at: Millis(1),
            attempt: Some((unit.into(), 1)),
            body: EntryBody::Stderr(text.into()),
        }
        .write(&mut line);
        line.pop();
        line
    };
    let line = "MIIEpAIBAAKCAQEAx7Jq".repeat(3);
    let lines = [
        of("a", "-----BEGIN PRIVATE KEY-----"),
        of("b", "word"),
        of("a", &line),
        of("a", "-----END PRIVATE KEY-----"),
        of("a", "word"),
    ];
    let (exported, _) = exported(&lines);
    let changed: Vec<bool> = lines
        .iter()
        .zip(&exported)
        .map(|(before, after)| before != after)
        .collect();
    assert_eq!(changed, [true, false, true, false, false]);
}

/// The rules whose secret is a whole word, which the rule itself can generate.
fn token_rules() -> Vec<(String, String)> {
    let file: toml::Value = toml::from_str(include_str!("../../../assets/redaction.toml")).unwrap();
    let rules = file["rules"].as_array().unwrap().iter();
    let text = |rule: &toml::Value, key: &str| rule[key].as_str().unwrap().to_owned();
    rules
        .take_while(|rule| rule["id"].as_str() != Some("private-key"))
        .filter(|rule| rule.get("secretGroup").is_none())
        .map(|rule| (text(rule, "id"), text(rule, "regex").replacen(r"\b", "", 1)))
        .collect()
}

/// Tokens of a rule that it does not allow. The generator also folds cases beyond ASCII.
fn tokens_of(id: &str, pattern: &str) -> impl Strategy<Value = String> + use<> {
    let rule = rules::RULES
        .rules
        .iter()
        .find(|rule| rule.id == id)
        .unwrap();
    string_regex(pattern)
        .unwrap()
        .prop_filter("a token", |token| {
            token.is_ascii() && !rule.allows(token.as_bytes(), token.as_bytes())
        })
}

/// A token of any kind.
fn token() -> impl Strategy<Value = (String, String)> {
    prop::sample::select(token_rules()).prop_flat_map(|(id, pattern)| {
        tokens_of(&id, &pattern).prop_map(move |token| (id.clone(), token))
    })
}

/// Any text around a secret.
const AROUND: &str = "(\\PC{0,20}|[a-z ]{0,20}|[\"\\\\{}:,=\n\t]{0,8})";

#[test]
fn ten_tokens_of_every_kind_are_masked() {
    let mut runner = TestRunner::deterministic();
    let rules = token_rules();
    assert!(rules.len() >= 140, "{}", rules.len());
    for (id, pattern) in rules {
        let tokens = tokens_of(&id, &pattern);
        for _ in 0..10 {
            let token = tokens.new_tree(&mut runner).unwrap().current();
            let (text, masked) = redacted(&format!("is {token}\nnext"));
            assert!(
                masked >= 1 && !survives(&token, &text),
                "{id}: {token} {text}"
            );
        }
    }
}

proptest! {
    #[test]
    fn secret_of_any_kind_does_not_survive(
        (kind, secret) in token(),
        before in AROUND,
        border in prop::sample::select(vec!["", " ", "\n", "\t", "\"", "=", "'", "(", "\\n"]),
        after in AROUND,
        sizes in prop::collection::vec(1..12_usize, 1..6),
        place in 0..PLACES,
    ) {
        let border = if border.is_empty() && before.ends_with(|char: char| char.is_ascii_alphanumeric()) { " " } else { border };
        let text = format!("{before}{border}{secret}{border}{after}");
        let (masked, _) = redacted(&text);
        prop_assert!(!survives(&secret, &masked), "{kind}: {masked}");
        let (lines, _) = exported(&streamed(0, "text_delta", "text", &text, &sizes));
        prop_assert!(!survives(&secret, &everything(&lines)), "{kind} in pieces");
        if !text.contains(['\n', '\r']) {
            let (lines, _) = exported(&put(place, &text, &mut TestRng(sizes.len() as u64 + 1)));
            prop_assert!(!survives(&secret, &everything(&lines)), "{kind} at {place}");
        }
    }

    #[test]
    fn masking_is_idempotent(
        name in "password|api_key|note|token",
        value in "\\PC{0,20}|[a-z\"\\\\\n=:;]{0,30}|sk-[a-zA-Z0-9]{20}",
        nested in any::<bool>(),
    ) {
        let object = json!({ (name): value });
        let object = if nested { json!({"text": object.to_string()}) } else { object };
        let (text, _) = redacted(&object.to_string());
        prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
        prop_assert_eq!(redacted(&text).0, text, "twice is once");
    }

    #[test]
    fn generated_prose_stays(words in prop::collection::vec("[a-z]{1,9}|password|token|secret|[0-9]{1,5}|The|is", 0..30)) {
        let text = words.join(" ");
        prop_assert_eq!(redacted(&text), (text, 0));
    }

    #[test]
    fn any_bytes_can_be_exported(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let (exported, _) = exported(&[line]);
        prop_assert_eq!(exported.len(), 1);
    }
}

#[test]
fn fuzzed_lines_stay_json_and_are_masked_once() {
    let tapes = [
        include_str!("../../../tests/fixtures/tapes/demo.jsonl"),
        include_str!("../../../tests/fixtures/captures/partial_messages.jsonl"),
    ];
    let secrets = "password: hunter2-is-long\nAKIAIOSFODNN7EXAMPL2 postgres://svc:hun/ter2@db -----BEGIN PRIVATE KEY-----\nMIIE";
    let mut corpus: Vec<Vec<u8>> = tapes
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| line.as_bytes().to_vec())
        .collect();
    corpus.extend([
        out(&json!({"text": secrets, "raw": json!({"inner": secrets}).to_string()})),
        delta(0, "text_delta", "text", secrets),
    ]);
    ingestdeck_test_support::fuzz::fuzz("redaction", &corpus, |line| {
        let (once, _) = exported(&[line.to_vec()]);
        let is_json = |line: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
        assert!(
            !is_json(line) || is_json(&once[0]),
            "{}",
            once[0].escape_ascii()
        );
        assert_eq!(exported(&once).0, once, "masking again changes it");
    });
}
