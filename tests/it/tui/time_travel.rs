//! Moving through time: the timeline bar, typed moments, steps, breakpoints, and the past of a live run.

use std::time::Duration;

use ingestdeck_core::control::RunCommand;
use ingestdeck_tui::{ExitReason, TuiExit, host::HostInput};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape,
};

const SIZE: (u16, u16) = (120, 36);

fn record(keys: &str) -> ScriptedHost {
    play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(keys, SIZE),
    )
    .0
}

/// The line of the timeline bar that shows the position.
fn bar(script: &ScriptedHost) -> String {
    script
        .text()
        .lines()
        .rev()
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

/// Number of entries that are shown.
fn at(script: &ScriptedHost) -> u64 {
    let bar = bar(script);
    let found = bar
        .split_whitespace()
        .find_map(|word| word.split_once('/')?.0.parse().ok());
    found.unwrap_or_else(|| panic!("{bar}"))
}

fn live(keys: &str) -> (ScriptedHost, TuiExit, Vec<RunCommand>) {
    let growing = tape::running().growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new(keys, SIZE).after(Duration::from_secs(20));
    let (script, exit) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    let orders = std::iter::from_fn(|| orders.try_recv().ok()).collect();
    (script, exit, orders)
}

#[test]
fn typed_time_seeks() {
    let entries = tape::running().entries();
    assert_eq!(
        at(&record(":0s<enter>")),
        3,
        "all entries of the first moment"
    );
    assert_eq!(at(&record(":1200ms<enter>")), 4);
    assert_eq!(at(&record(":#7<enter>")), 7);
    assert_eq!(at(&record(":start<enter>")), 0);
    assert_eq!(at(&record(":end<enter>")), entries);
    assert_eq!(at(&record(":100%<enter>")), entries);
    let quarter = at(&record(":25%<enter>"));
    assert!(quarter > 5 && quarter < entries / 2 + 5, "{quarter}");
    assert_eq!(at(&record("0:+1s<enter>")), 3);
    assert_eq!(at(&record("0:+1s<enter>:+1s<enter>:-9s<enter>")), 3);
    // The tape starts at 10:00:00 and is not ten hours long.
    assert_eq!(
        at(&record(":10:00:00<enter>")),
        at(&record(":999ms<enter>"))
    );
    assert_eq!(
        at(&record(":@10:00:02<enter>")),
        at(&record(":2999ms<enter>"))
    );
    let script = record(":@11:00:00<enter>");
    assert!(
        script
            .text()
            .contains("11:00:00 is outside this tape, which covers 10:00:00 to"),
        "{}",
        script.text()
    );
    assert!(
        record(":9h<enter>")
            .text()
            .contains("this is the end: 00:13")
    );
}

#[test]
fn commands_have_completion_history_and_suggestions() {
    assert!(
        record(":unt<tab>fail<tab>")
            .text()
            .contains(":until failure▏")
    );
    assert!(
        record(":until <tab>")
            .text()
            .contains("a call of this tool, such as wiki_*")
    );
    let script = record(":fly<enter>");
    assert!(
        script.text().contains("unknown command `fly`") && script.text().contains(":fly▏"),
        "{}",
        script.text()
    );
    assert!(
        record(":#3<enter>:50%<enter>:<up><up>")
            .text()
            .contains(":#3▏")
    );
    assert!(record(":#3<enter>:x<up><down>").text().contains(":x▏"));
    // Every action on the screen has a command.
    assert!(record(":help<enter>").text().contains("┌ keys"));
    assert!(record(":log<enter>").text().contains("┌ log"));
    assert!(
        record(":allow-once<enter>")
            .text()
            .contains("`allow-once` is for a unit that you hold")
    );
    let (_, exit) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new(":quit<enter>", SIZE),
    );
    assert_eq!(exit.reason, ExitReason::Quit);
}

#[test]
fn failure_keys_move_in_both_directions() {
    let first = record("0w");
    assert!(
        first.text().contains("notion-revenue-policy: failure"),
        "{}",
        first.text()
    );
    assert!(
        first.text().contains("✗ wiki_write revenue"),
        "{}",
        first.text()
    );
    let (one, two, three) = (at(&first), at(&record("0ww")), at(&record("0www")));
    assert!(one < two && two < three, "{one} {two} {three}");
    assert!(
        record("0www").text().contains("dbt-all: denial"),
        "{}",
        record("0www").text()
    );
    assert_eq!(at(&record("0wwwW")), two);
    assert_eq!(at(&record("0wwwWW")), one);
    assert!(record("0wW").text().contains("no failure before this"));
    assert!(record("0wwww").text().contains("no failure until the end"));
    assert_eq!(at(&record("0wwww")), tape::running().entries());
}

#[test]
fn action_keys_move_in_both_directions() {
    let steps: Vec<_> = (1..6)
        .map(|steps| at(&record(&format!("0gg.{}", ")".repeat(steps)))))
        .collect();
    assert!(steps.is_sorted_by(|one, other| one < other), "{steps:?}");
    assert_eq!(at(&record("0gg.))))(")), steps[2]);
    assert!(
        record("0gg.(")
            .text()
            .contains("no action of notion-revenue-policy before this")
    );
    assert!(
        record("gg)")
            .text()
            .contains("no further action until the end")
    );
}

#[test]
fn playing_stops_at_breakpoints() {
    let script = record("0:break tool wiki_search<enter>:speed max<enter>");
    assert!(
        script
            .text()
            .contains("breakpoint 1 (tool wiki_search): dbt-all: calls wiki_search \"arr\""),
        "{}",
        script.text()
    );
    assert!(
        bar(&script).contains("PAUSED") && bar(&script).contains("◉ 1 breakpoint"),
        "{}",
        bar(&script)
    );
    assert!(
        script.text().contains("▸ wiki_search \"arr\""),
        "{}",
        script.text()
    );
    // After the breakpoint, playing continues to the end.
    let script = record("0:break tool wiki_search<enter>:speed max<enter>:speed max<enter>");
    assert_eq!(at(&script), tape::running().entries());
    // A longer step stops there too; a jump does not.
    let here = at(&record("0:break tool wiki_search<enter>:speed max<enter>"));
    assert_eq!(
        at(&record("0:break tool wiki_search<enter>www")),
        here.min(at(&record("0www")))
    );
    assert_eq!(
        at(&record("0:break tool wiki_search<enter>:end<enter>")),
        tape::running().entries()
    );
    for (condition, what) in [
        (
            "path schema.yml",
            "dbt-all: calls read_raw_file models/schema.yml",
        ),
        ("silence 2s", "lookml-orphans: silent for 2s before this"),
        ("cost $0.05", "the run has cost $0.0824"),
        ("failure", "notion-revenue-policy: failure"),
    ] {
        let script = record(&format!("0:until {condition}<enter>"));
        assert!(
            script.text().contains(what),
            "{condition}:\n{}",
            script.text()
        );
        assert!(bar(&script).contains("PAUSED"), "{}", bar(&script));
    }
    assert!(
        record("0:until cost $9<enter>")
            .text()
            .contains("no cost $9 until the end")
    );
}

#[test]
fn breakpoints_are_listed_toggled_and_deleted() {
    assert!(record("B").text().contains("none yet; type one of these:"));
    let keys = "0:break failure<enter>:break silence 30s<enter>B";
    let script = record(keys);
    assert!(
        script.text().contains("1 ◉ on  failure") && script.text().contains("2 ◉ on  silence 30s"),
        "{}",
        script.text()
    );
    assert!(
        record(&format!("{keys}<enter>"))
            .text()
            .contains("1 · off failure")
    );
    let script = record(&format!("{keys}x"));
    assert!(
        script.text().contains("1 ◉ on  silence 30s") && !script.text().contains("2 ◉"),
        "{}",
        script.text()
    );
    let script = record(&format!("{keys}<enter><esc>:speed max<enter>"));
    assert_eq!(
        at(&script),
        tape::running().entries(),
        "a disabled breakpoint stops nothing"
    );
}

#[test]
fn bar_clicks_and_drags_seek() {
    let scrubbed = |inputs: &[HostInput]| {
        let script = inputs
            .iter()
            .fold(ScriptedHost::new("", SIZE), |script, input| {
                script.input(input.clone())
            });
        play(tape::running().timeline(), None, options(), script).0
    };
    let strip = 33;
    let half = at(&scrubbed(&[HostInput::Click(60, strip)]));
    assert!(half > 10 && half < 24, "{half}");
    assert_eq!(
        at(&scrubbed(&[
            HostInput::Click(60, strip),
            HostInput::Drag(0)
        ])),
        3
    );
    assert_eq!(
        at(&scrubbed(&[
            HostInput::Click(60, strip),
            HostInput::Drag(30),
            HostInput::Drag(119)
        ])),
        tape::running().entries()
    );
    // A drag that starts elsewhere does not seek.
    assert_eq!(
        at(&scrubbed(&[HostInput::Click(5, 6), HostInput::Drag(30)])),
        tape::running().entries()
    );
    let back = at(&scrubbed(&[HostInput::Wheel(60, strip, false)]));
    assert!(back < tape::running().entries(), "{back}");
}

#[test]
fn playback_skips_time_without_entries() {
    let mut tape = tape::TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all"])
        .start("dbt-all", 1)
        .wait(80_000)
        .say("dbt-all", 1, "Reading.")
        .end("dbt-all", 1, 0);
    let played = |keys: &str, seconds| {
        let mut paused = options();
        paused.paused_after = Some(0);
        let script = ScriptedHost::new(keys, SIZE).keep_open_for(Duration::from_secs(seconds));
        play(tape.timeline(), None, paused, script).0
    };
    let early = played("<space>", 1);
    assert!(
        bar(&early).contains("▶ ×1  skipped 1m 18s without entries  01:18 of 01:20"),
        "{}",
        bar(&early)
    );
    assert!(
        played("<space>", 3).text().contains("✓ 1 succeeded"),
        "the end is reached after two seconds"
    );
    let complete = played("I<space>", 3);
    assert!(
        bar(&complete).contains("▶ ×1  00:02 of 01:20"),
        "{}",
        bar(&complete)
    );
}

#[test]
fn beginning_of_an_ended_run_is_not_its_end() {
    let mut tape = tape::TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all", "docs"])
        .start("dbt-all", 1)
        .end("dbt-all", 1, 0)
        .run_ended(1, 0);
    let mut paused = options();
    paused.paused_after = Some(1);
    let script = play(tape.timeline(), None, paused, ScriptedHost::new("", SIZE)).0;
    let header = script.text().lines().next().unwrap_or_default().to_owned();
    assert!(
        header.contains("starting") && !header.contains("interrupted"),
        "{header}"
    );
}

#[test]
fn speed_doubles_up_to_the_maximum() {
    assert!(bar(&record("0>")).contains("▶ ×1"));
    assert!(bar(&record("0:speed 0.5<enter><lt>")).contains("▶ ×0.25"));
    let all = record("0:speed 64<enter>>");
    assert_eq!(at(&all), tape::running().entries());
}

#[test]
fn paused_record_is_prefetched_to_its_end() {
    let mut paused = options();
    paused.paused_after = Some(0);
    let (script, exit) = play(
        tape::running().timeline(),
        None,
        paused,
        ScriptedHost::new("", SIZE),
    );
    assert_eq!(
        (at(&script), exit.timeline.known_entries()),
        (0, tape::running().entries())
    );
    assert!(
        bar(&script).contains("00:00.0 of 00:13") && bar(&script).contains("✗ 2 failures"),
        "{}",
        bar(&script)
    );
}

#[test]
fn record_opens_after_an_entry_with_its_unit() {
    let opened = |entries: u64| {
        let mut paused = options();
        paused.paused_after = Some(entries);
        play(
            tape::running().timeline(),
            None,
            paused,
            ScriptedHost::new("", SIZE),
        )
        .0
    };
    let all = tape::running().entries();
    let (early, last) = (opened(all / 2), opened(all));
    assert_eq!((at(&early), at(&last)), (all / 2, all));
    assert!(bar(&early).contains("PAUSED"), "{}", bar(&early));
    let beyond = opened(all + 7);
    assert!(
        beyond
            .text()
            .contains(&format!("no entry {} until the end", all + 6)),
        "{}",
        beyond.text()
    );

    let mut tape = tape::TapeFixture::new("orbit", false);
    tape.plan(&["dbt-all", "docs-x"])
        .start("dbt-all", 1)
        .start("docs-x", 1)
        .say("docs-x", 1, "Deep in the page.");
    let entries = tape.entries();
    tape.say("dbt-all", 1, "Elsewhere.")
        .say("docs-x", 1, "Later.");
    let mut paused = options();
    paused.paused_after = Some(entries);
    let text = play(tape.timeline(), None, paused, ScriptedHost::new("", SIZE))
        .0
        .text();
    assert!(
        text.contains("Deep in the page.")
            && !text.contains("Elsewhere.")
            && !text.contains("Later."),
        "{text}"
    );
}

/// The entry of a call is named by `why`, and what matters is what came of it.
#[test]
fn record_opens_a_call_with_its_result() {
    let mut tape = tape::TapeFixture::new("orbit", false);
    let page = json!({"key": "revenue", "content": "# Revenue"});
    tape.plan(&["dbt-all", "docs-x"])
        .start("dbt-all", 1)
        .start("docs-x", 1)
        .call("docs-x", 1, "w", "wiki_write", &page);
    let entries = tape.entries();
    tape.say("dbt-all", 1, "Elsewhere.")
        .result("docs-x", 1, "w", "Wiki page `revenue` created.", false)
        .say("docs-x", 1, "Later.");
    let mut paused = options();
    paused.paused_after = Some(entries);
    let shown = |keys: &str| {
        play(
            tape.timeline(),
            None,
            paused.clone(),
            ScriptedHost::new(keys, SIZE),
        )
        .0
        .text()
    };
    let text = shown("");
    assert!(
        text.contains("docs-x running inspector") && text.contains("PAUSED"),
        "{text}"
    );
    assert!(
        text.contains("Wiki page `revenue` created.") && text.contains("+ # Revenue"),
        "{text}"
    );
    assert!(!text.contains("Later."), "{text}");
    assert!(shown("<esc>").contains("┌ units"), "{}", shown("<esc>"));
}

#[test]
fn record_opens_a_call_without_a_result_at_its_beginning() {
    let mut tape = tape::TapeFixture::new("orbit", false);
    let page = json!({"key": "revenue", "content": "# Revenue"});
    tape.plan(&["dbt-all", "docs-x"])
        .start("dbt-all", 1)
        .start("docs-x", 1)
        .call("docs-x", 1, "w", "wiki_write", &page);
    let entries = tape.entries();
    tape.say("dbt-all", 1, "Elsewhere.")
        .say("docs-x", 1, "Later.");
    let mut paused = options();
    paused.paused_after = Some(entries);
    let (script, exit) = play(tape.timeline(), None, paused, ScriptedHost::new("", SIZE));
    let text = script.text();
    assert_eq!(exit.timeline.view().state.entries, entries, "{text}");
    assert!(
        text.contains("docs-x running inspector") && text.contains("PAUSED"),
        "{text}"
    );
}

#[test]
fn commands_in_the_past_of_a_live_run_apply_to_now() {
    let (script, ..) = live("");
    assert!(!script.text().contains("behind live"), "{}", script.text());
    let (script, ..) = live(":2s<enter>");
    assert!(
        bar(&script).contains("PAUSED  -00:18 behind live"),
        "{}",
        bar(&script)
    );
    assert!(
        script
            .text()
            .lines()
            .next()
            .is_some_and(|header| header.contains("PAST -00:18")),
        "{}",
        script.text()
    );
    // New failures are announced while the view shows the past.
    assert!(
        bar(&script).contains("LIVE: ✗ 1 failed, ✓ 1 succeeded"),
        "{}",
        bar(&script)
    );
    let (script, ..) = live(",");
    assert!(
        !bar(&script).contains("LIVE: "),
        "nothing else ended since: {}",
        bar(&script)
    );
    for keys in [":2s<enter>ggr", ":2s<enter>R", ":2s<enter>ggx"] {
        let (script, _, given) = live(keys);
        assert!(
            given.is_empty()
                && script
                    .text()
                    .contains("this is the past, 00:18 behind live"),
            "{}",
            script.text()
        );
    }
    let (script, _, given) = live(":2s<enter>$kry");
    assert_eq!(
        given,
        [RunCommand::Retry {
            unit: "notion-revenue-policy".into(),
            amendment: None
        }],
        "{}",
        script.text()
    );
    // At the beginning no unit ran yet; at the end, one does.
    let (script, exit, _) = live("0q");
    assert_eq!(exit.reason, ExitReason::Closed);
    assert!(
        script.text().contains("stop all and quit"),
        "{}",
        script.text()
    );
    let (_, _, given) = live("0<c-c>");
    assert_eq!(given, [RunCommand::Drain]);
    let (script, _, given) = live("k:until failure<enter>");
    assert!(
        given.is_empty() && script.text().contains("no unit is selected that can run"),
        "{}",
        script.text()
    );
}

#[test]
fn long_message_is_shown_completely() {
    for (size, end) in [
        ((120, 36), "select one, or leave LIVE"),
        ((80, 24), "leave LIVE"),
        ((40, 12), "LIVE"),
    ] {
        let growing = tape::running().growing();
        let (commands, _orders) = mpsc::channel(8);
        let (_grows, changed) = watch::channel(0);
        let script =
            ScriptedHost::new("k:until failure<enter>", size).after(Duration::from_secs(20));
        let (script, _) = play(
            growing.timeline,
            Some(live_handle(commands, changed)),
            options(),
            script,
        );
        assert!(
            script.text().contains("no unit is selected") && script.text().contains(end),
            "{}",
            script.text()
        );
    }
}

#[test]
fn breakpoint_does_not_stop_seeking_back() {
    let here = at(&record("0}}{"));
    assert_eq!(
        at(&record(
            "0:break<space>failure<enter>:break<space>tool<space>*<enter>:#9<enter>{"
        )),
        {
            let plain = record(":#9<enter>{");
            at(&plain)
        }
    );
    assert!(here > 0);
}

#[test]
fn record_without_times_uses_entries_as_axis() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures/control_protocol_stdin.jsonl");
    let source = ingestdeck_records::replay::FileSource::open(&path).unwrap();
    assert!(!ingestdeck_core::run::EntrySource::info(&source).has_times);
    let timeline = ingestdeck_core::run::Timeline::new(Box::new(source));
    let (script, _) = play(
        timeline,
        None,
        options(),
        ScriptedHost::new(":50%<enter>:1s<enter>", SIZE),
    );
    assert!(
        bar(&script).contains("no times: by entry"),
        "{}",
        script.text()
    );
    assert!(
        script
            .text()
            .contains("this tape has no times; use an entry such as #120"),
        "{}",
        script.text()
    );
    let known = std::fs::read_to_string(&path).unwrap().lines().count() as u64;
    assert!(
        (known / 2 - 1..=known / 2 + 1).contains(&at(&script)),
        "{}",
        bar(&script)
    );
}
