//! Failures by cause and the forecast: keys, commands and snapshots.

use std::time::Duration;

use ingestdeck_core::{
    control::RunCommand,
    tape::{
        Note,
        note::{PlannedUnit, RunPlanned},
    },
};
use ingestdeck_tui::{Options, TableSettings, host::HostInput};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

const SIZE: (u16, u16) = (120, 36);

/// Ten units: five failed, three of them alike; two succeeded; one runs; two are queued.
fn failures() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..10).map(|unit| format!("page-{unit}")).collect();
    tape.plan(&units);
    let mut failed = |unit: usize, tool: &str, error: &str| {
        let unit = &units[unit];
        tape.start(unit, 1).wait(900);
        tape.call(unit, 1, &format!("t-{unit}"), tool, &json!({"key": unit}))
            .wait(50);
        tape.result(unit, 1, &format!("t-{unit}"), error, true)
            .wait(1500)
            .end(unit, 1, 1)
            .wait(20);
    };
    failed(0, "wiki_write", "page \"arr\" has no title\nsecond line");
    failed(1, "read_raw_file", "no file raw/b.md");
    failed(2, "wiki_write", "page \"net churn\" has no title");
    failed(3, "wiki_write", "page \"logo\" has no title");
    failed(
        4,
        "wiki_write",
        "\u{1b}[31mpage\u{202e} is too large: 412 KB",
    );
    for unit in &units[5..7] {
        tape.start(unit, 1).wait(4000).end(unit, 1, 0).wait(20);
    }
    tape.start(&units[7], 1).wait(500);
    tape.say(&units[7], 1, "Reading.");
    tape
}

/// The screen after `keys` with these settings of the table, and the settings that it leaves.
fn viewed(keys: &str, table: TableSettings) -> (String, TableSettings) {
    let options = Options { table, ..options() };
    let script = ScriptedHost::new(keys, SIZE);
    let (script, exit) = play(failures().timeline(), None, options, script);
    (script.text(), exit.table)
}

#[test]
fn saved_views_return_with_filter_order_and_text() {
    let none = TableSettings::default;
    let keys = "Fcause:title<enter>:view<space>save<space>titles<enter><esc>";
    let (text, saved) = viewed(keys, none());
    assert!(text.contains("page-1 "), "the filter is off again:\n{text}");
    assert_ne!(saved, none());
    // The next screen of the project shows all units, until the view is asked for.
    let (text, left) = viewed("", saved.clone());
    assert!(text.contains("page-1 "), "{text}");
    assert_eq!(left, saved);
    let (text, _) = viewed(":view<space>titles<enter>", saved.clone());
    assert!(
        text.contains("page-0 ") && !text.contains("page-1 "),
        "{text}"
    );
    let (text, _) = viewed(":view<enter>", saved.clone());
    assert!(text.contains("views: titles"), "{text}");
    let (text, _) = viewed(":view<space>other<enter>", saved.clone());
    assert!(text.contains("no view `other`; views: titles"), "{text}");
    let (text, left) = viewed(":view<space>delete<space>titles<enter>", saved);
    assert!(text.contains("view `titles` is deleted"), "{text}");
    assert_eq!(left, none());
    for (keys, refusal) in [
        (":view<space>titles<enter>", "no view is saved"),
        (":view<space>save<enter>", "a name after save or delete"),
        (":view<space>a<space>b<enter>", "one word as a name"),
    ] {
        let (text, left) = viewed(keys, none());
        assert!(text.contains(refusal), "{keys}\n{text}");
        assert_eq!(left, none(), "{keys}");
    }
}

fn live(tape: &TapeFixture, script: ScriptedHost) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(24));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    (
        script,
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

fn shown(keys: &str) -> String {
    live(&failures(), ScriptedHost::new(keys, SIZE)).0.text()
}

/// Seven units of one kind at 0.04 each, five done, with this run budget.
fn budgeted(usd: f64) -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..7).map(|unit| format!("page-{unit}")).collect();
    let planned = units.iter().map(|unit| PlannedUnit {
        unit: unit.as_str().into(),
        ..PlannedUnit::default()
    });
    let plan = RunPlanned {
        units: planned.collect(),
        concurrency: 2,
        run_budget_usd: Some(usd),
        failure_mode: "continue".into(),
        ..RunPlanned::default()
    };
    tape.note(None, &Note::RunPlanned(Box::new(plan)));
    for unit in &units[..5] {
        tape.start(unit, 1).wait(4000).end(unit, 1, 0);
    }
    tape.start(&units[5], 1);
    tape
}

#[test]
fn forecast_is_compared_with_the_run_budget() {
    let shown =
        |usd, keys: &str, size| live(&budgeted(usd), ScriptedHost::new(keys, size)).0.text();
    let enough = shown(1.0, "C", SIZE);
    assert!(
        enough.contains("budget: $0.21 spent, P90 $0.29 of $1.00 budget"),
        "{enough}"
    );
    assert!(
        enough.contains("$0.21+ of ~$0.29, $1.00 budget") && !enough.contains('◆'),
        "{enough}"
    );
    for size in SIZES {
        let little = shown(0.25, "", size);
        assert!(
            little.contains("◆ will be exceeded") || size.0 < 80,
            "{little}"
        );
    }
    let little = shown(0.25, "C", (80, 24));
    assert!(
        little.contains("P90 $0.29 of $0.25 budget  ◆ will be exceeded"),
        "{little}"
    );
    assert!(
        shown(0.2, "", SIZE).contains("◆ spent"),
        "{}",
        shown(0.2, "", SIZE)
    );
}

#[test]
fn causes_view_renders_at_every_size() {
    for (width, height) in SIZES {
        let script = live(&failures(), ScriptedHost::new("Cj", (width, height))).0;
        insta::assert_snapshot!(format!("causes_{width}x{height}"), script.text());
        let script = live(&failures(), ScriptedHost::new("Cr", (width, height))).0;
        insta::assert_snapshot!(format!("causes_retry_{width}x{height}"), script.text());
    }
}

#[test]
fn failure_group_is_retried_as_one() {
    let (script, orders) = live(&failures(), ScriptedHost::new("Cr", SIZE));
    assert!(
        orders.is_empty()
            && script
                .text()
                .contains("Retry 3 units that failed for the same reason")
    );
    let units = |keys: &str| live(&failures(), ScriptedHost::new(keys, SIZE)).1;
    let retry = |units: &[&str]| {
        let units = units.iter().map(|unit| (*unit).into()).collect();
        [RunCommand::RetryUnits {
            units,
            amendment: None,
        }]
    };
    assert_eq!(units("Cry"), retry(&["page-0", "page-2", "page-3"]));
    assert_eq!(units("C]ry"), retry(&["page-1"]));
    assert_eq!(units("CGry"), retry(&["page-4"]));
    assert_eq!(units("Crn"), []);
    let (script, _) = play(
        failures().timeline(),
        None,
        options(),
        ScriptedHost::new("Cr", SIZE),
    );
    assert!(
        script.text().contains("run 7f3a2b is of another project"),
        "{}",
        script.text()
    );
}

#[test]
fn cause_line_opens_its_unit() {
    let selected = |keys: &str| {
        live(&failures(), ScriptedHost::new(&format!("{keys}Y"), SIZE))
            .0
            .copied
    };
    assert_eq!(selected("C<enter>"), ["page-0"]);
    assert_eq!(selected("Cjjj<enter>"), ["page-2"]);
    assert_eq!(selected("C/page-4<enter><enter>"), ["page-4"]);
    // Also when a filter hides the unit.
    assert_eq!(selected("fffC<down><down><down><down><enter>"), ["page-3"]);
    assert_eq!(
        selected("C<esc>"),
        ["page-7"],
        "the selection is at the running unit"
    );
    let script = ScriptedHost::new("C", SIZE)
        .input(HostInput::Click(10, 8))
        .keys("<enter>Y");
    assert_eq!(live(&failures(), script).0.copied, ["page-0"]);
}

#[test]
fn esc_returns_from_the_unit_to_the_causes() {
    let shown = |keys: &str| {
        let (commands, _orders) = mpsc::channel(8);
        let (_grows, changed) = watch::channel(0);
        let growing = failures().growing();
        let live = live_handle(commands, changed);
        let script = ScriptedHost::new(keys, SIZE);
        play(growing.timeline, Some(live), options(), script)
            .0
            .text()
    };
    let causes = "┌ causes ";
    assert!(shown("C").contains(causes));
    assert!(!shown("C<enter>").contains(causes));
    assert!(shown("C<enter><esc>").contains(causes));
    assert!(!shown("C<enter><esc><esc>").contains(causes));
    assert!(!shown("C<enter>j<esc>").contains(causes), "another unit");
}

#[test]
fn remaining_work_is_shown_after_three_finished_units() {
    let header = |keys: &str| shown(keys).lines().next().unwrap_or_default().to_owned();
    assert!(
        header("").contains("left 2s–4s → 10:00  ~$0.29 of ~$0.41"),
        "{}",
        header("")
    );
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c", "d"])
        .start("a", 1)
        .wait(1000)
        .end("a", 1, 0)
        .start("b", 1)
        .wait(2000)
        .end("b", 1, 0);
    tape.start("c", 1);
    let text = live(&tape, ScriptedHost::new("", SIZE)).0.text();
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("  left ?")),
        "{text}"
    );
    let text = live(&tape, ScriptedHost::new("C", SIZE)).0.text();
    assert!(
        text.contains("unknown until three of each kind have finished"),
        "{text}"
    );
    tape.wait(10)
        .end("c", 1, 0)
        .start("d", 1)
        .wait(10)
        .end("d", 1, 0)
        .run_ended(4, 0);
    let text = live(&tape, ScriptedHost::new("C", SIZE)).0.text();
    assert!(
        !text.contains("left $") && text.contains("no work remains"),
        "{text}"
    );
    assert!(text.contains("no unit needs you"), "{text}");
}

#[test]
fn retrying_all_names_the_forecast() {
    assert!(shown("R").contains("Forecast: $0.21"), "{}", shown("R"));
}

#[test]
fn causes_view_renders_at_any_position() {
    let (script, _) = play(
        failures().timeline(),
        None,
        options(),
        ScriptedHost::new("C0", SIZE),
    );
    assert!(
        script.text().contains("no unit needs you"),
        "{}",
        script.text()
    );
    let (script, _) = play(
        failures().timeline(),
        None,
        options(),
        ScriptedHost::new("C0$", SIZE),
    );
    assert!(
        script.text().contains("6 units need you, for 4 reasons"),
        "{}",
        script.text()
    );
}

#[test]
fn rows_of_a_group_do_not_repeat_its_heading() {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..5).map(|unit| format!("page-{unit}")).collect();
    tape.plan(&units);
    for unit in &units {
        tape.start(unit, 1).wait(900);
        tape.call(
            unit,
            1,
            &format!("t-{unit}"),
            "wiki_write",
            &json!({"key": "a"}),
        )
        .wait(50);
        tape.result(
            unit,
            1,
            &format!("t-{unit}"),
            "the wiki is full: 412 of 400 pages",
            true,
        )
        .wait(15)
        .end(unit, 1, 1);
    }
    for (width, height) in [(80, 24), (120, 36), (200, 60)] {
        let text = live(&tape, ScriptedHost::new("C", (width, height)))
            .0
            .text();
        assert_eq!(
            text.matches("412 of 400 pages").count(),
            1,
            "the heading has the figure: {text}"
        );
        assert!(units.iter().all(|unit| text.contains(unit)), "{text}");
    }
}

#[test]
fn untried_units_of_an_interrupted_run_are_counted() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c"]).start("a", 1).wait(500);
    tape.end("a", 1, 0);
    let (script, _) = play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new("C", SIZE),
    );
    let text = script.text();
    assert!(text.contains("nothing failed; 2 untried"), "{text}");
}

#[test]
fn selection_starts_on_the_cause_of_many_failures() {
    let mut tape = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..12).map(|unit| format!("page-{unit}")).collect();
    tape.plan(&units);
    for unit in &units {
        tape.start(unit, 1).wait(100);
        tape.call(
            unit,
            1,
            &format!("t-{unit}"),
            "wiki_write",
            &json!({"key": unit}),
        );
        tape.result(unit, 1, &format!("t-{unit}"), "page has no title", true);
        tape.end(unit, 1, 1).wait(20);
    }
    let text = live(&tape, ScriptedHost::new("e", (80, 24))).0.text();
    assert!(text.contains("new attempts at 12 units"), "{text}");
}
