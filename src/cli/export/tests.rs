//! Exports of recorded runs.

use serde_json::Value;

use super::*;
use crate::{
    replay::FileSource,
    tape::{Millis, Seq},
};

const TAPE: &str = include_str!("../../../tests/fixtures/tapes/demo.jsonl");

fn replays(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let mut timeline = Timeline::forward(Box::new(FileSource::open(&path).unwrap()));
    let (mut gathering, mut steps) = (Gathering::default(), memory_flow::Steps::default());
    while timeline
        .advance(SLICE, &mut |emitted| {
            gathering.take(&emitted);
            steps.take(&emitted);
        })
        .unwrap()
        == Progress::More
    {}
    memory_flow::replays(&gathering.report(timeline.source().origin(), timeline.story(), false), &steps)
}

#[test]
fn every_line_of_a_tape_stays_an_entry() {
    let mut redactor = Redactor::default();
    for line in TAPE.lines().skip(1) {
        let redacted = entry(line.as_bytes(), &mut redactor);
        let (before, after) = (Entry::parse(line.as_bytes()).unwrap(), Entry::parse(redacted.trim_ascii()).unwrap());
        assert_eq!((before.seq, before.at, &before.lane), (after.seq, after.at, &after.lane));
    }
    assert_eq!(redactor.masked, 0, "the demo holds no secrets");
}

#[test]
fn a_secret_in_bytes_that_are_no_text_is_masked_as_well() {
    let mut line = Vec::new();
    let bytes = b"\xff password=hunter22".to_vec();
    Entry { seq: Seq(1), at: Millis(2), lane: None, body: Body::Raw(bytes.into()) }.write(&mut line);
    let mut redactor = Redactor::default();
    let redacted = String::from_utf8(entry(line.trim_ascii(), &mut redactor)).unwrap();
    assert!(redacted.contains("password=[masked]") && !redacted.contains("b64"), "{redacted}");
    assert_eq!(redactor.masked, 1);
}

#[test]
fn a_replay_has_the_shape_of_ktx() {
    let replays = replays("tapes/demo.jsonl");
    assert_eq!(replays.len(), 2, "one a connection");
    for wrapper in &replays {
        assert_eq!(wrapper["memoryFlowReplaySchemaVersion"], 1);
        let replay = &wrapper["replay"];
        for key in ["runId", "connectionId", "adapter", "syncId"] {
            assert!(replay[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
        }
        assert_eq!(replay["status"], "done");
        assert!(replay["events"].as_array().unwrap().iter().all(|event| event["emittedAt"].is_string()));
        assert!(replay["details"]["transcripts"].is_array());
    }
    let handbook = &replays[1]["replay"];
    let of = |kind: &str| handbook["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("work_unit_started"), of("work_unit_finished")), (8, 8), "seven units, one of them twice");
    let failed = handbook["events"].as_array().unwrap().iter().filter(|event| event["status"] == "failed").count();
    assert_eq!((failed, of("candidate_action"), of("saved")), (1, 7, 1));
    assert!(of("work_unit_step") > 30);
}
