//! Properties of the translator for arbitrary streams.

use super::*;

/// Generates streams of valid and meaningless lines.
fn any_stream() -> impl Strategy<Value = Vec<String>> {
    let id = prop::sample::select(vec!["a", "b", "c", "", "é\\n"]);
    let session = prop::sample::select(vec!["s", "s", "s", "other", ""]);
    let line = prop_oneof![
        Just(INIT.to_owned()),
        Just(OK.to_owned()),
        Just(
            r#"{"type":"result","is_error":true,"session_id":"s","permission_denials":["Bash",{"tool_use_id":"a"}]}"#
                .to_owned()
        ),
        Just(r#"{"type":"system","subtype":"task_started","is_backgrounded":true}"#.to_owned()),
        Just("{".to_owned()),
        ".{0,40}",
        id.clone().prop_map(|id| call(id, "Bash", r#"{"command":"x\u0007"}"#)),
        id.clone().prop_map(|id| call(id, "Write", r#"{"path":"\ud800"}"#)),
        id.clone().prop_map(|id| result(id, r#","content":["x"],"is_error":true"#)),
        id.clone()
            .prop_map(|id| format!(r#"{{"type":"tool_progress","tool_use_id":"{id}","elapsed_time_seconds":1.5}}"#)),
        id.prop_map(|id| format!(r#"{{"type":"system","subtype":"permission_denied","tool_use_id":"{id}"}}"#)),
        any::<String>().prop_map(|message| text(&message)),
    ];
    let line = (line, session)
        .prop_map(|(line, session)| line.replace("\"s\"", &format!("\"{session}\"")));
    prop::collection::vec(line, 0..30)
}

proptest! {
    #[test]
    fn every_stream_obeys_the_contract(
        lines in any_stream(), open in any::<bool>(), resume in any::<bool>(), tolerant in any::<bool>(),
    ) {
        let mut translator = TranslatedStream::new(if open { TurnTracker::default() } else { TurnTracker::for_one_prompt() });
        if resume {
            translator.translator.set_identity(SessionIdentity::resuming("s", tolerant));
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let events = run_with(translator, &lines);
        check(&events);
    }

    #[test]
    fn cloned_translator_gives_the_same_events(lines in any_stream(), at in any::<prop::sample::Index>()) {
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let (before, after) = lines.split_at(at.index(lines.len() + 1));
        let mut translator = one_prompt();
        push(&mut translator, before);
        prop_assert_eq!(run_with(translator.clone(), after), run_with(translator, after));
    }
}

/// Checks the properties that the events of every run have.
fn check(events: &[Value]) {
    let outline = outline(events);
    assert_eq!(outline.last().map(String::as_str), Some("completed"));
    assert_eq!(
        outline.iter().filter(|event| *event == "completed").count(),
        1
    );
    assert!(outline.iter().filter(|event| *event == "started").count() <= 1);
    if let Some(started) = events.iter().find(|event| event["type"] == "started") {
        assert_eq!(started["resume"], last(events)["resume"]);
    }
    let mut open = std::collections::BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "action") {
        let (id, title) = (
            event["action"]["id"].as_str().unwrap(),
            &event["action"]["title"],
        );
        assert!(!id.is_empty());
        match event["phase"].as_str().unwrap() {
            "started" => {
                open.insert(id, title);
            }
            "updated" => assert_eq!(open.get(id), Some(&title)),
            _ => {
                if let Some(opened) = open.remove(id) {
                    assert_eq!(opened, title);
                }
            }
        }
    }
    assert!(open.is_empty(), "never settled: {open:?}");
}
