//! The table of units: order, groups and filters, with keys and with the mouse.

use std::time::Duration;

use crate::{
    tape::note::{PlannedUnit, RunPlanned},
    tui::host::HostInput,
};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);
const SIZES: [(u16, u16); 3] = [(40, 12), (80, 24), SIZE];

/// Units of two connections, with the given number of each, of which some ran.
fn two_connections(each: usize) -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    let unit = |connection: &str, index: usize| PlannedUnit {
        unit: format!("{connection}-page-{index}").as_str().into(),
        connection: connection.into(),
        adapter: "docs".into(),
        ..PlannedUnit::default()
    };
    let units: Vec<_> = (0..each).flat_map(|index| [unit("notes", index), unit("warehouse", index)]).collect();
    let plan = RunPlanned { job: "job-1".into(), units, concurrency: 4, step_budget: 40, ..RunPlanned::default() };
    tape.note(None, &crate::tape::Note::RunPlanned(Box::new(plan)));
    for index in 0..each.min(300) {
        let unit = format!("warehouse-page-{index}");
        tape.start(&unit, 1).wait(10 * u64::try_from(index % 7).unwrap());
        tape.end(&unit, 1, u32::from(index % 4 == 1));
    }
    tape
}

fn shown(tape: &TapeFixture, keys: &str) -> String {
    shown_at(tape, keys, SIZE)
}

fn shown_at(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> String {
    play(tape.timeline(), None, options(), ScriptedHost::new(keys, size)).0.text()
}

/// Keys of the units that the table shows, from the top.
fn listed(text: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut words = line.strip_prefix('│')?.split_whitespace();
        let sign = words.next()?;
        let signs = ["○", "▶", "◐", "✓", "◆", "✗", "■", "◌", "‖"];
        signs.contains(&sign).then(|| words.next().unwrap_or_default().to_owned())
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn table_sorts_groups_and_filters_at_every_size() {
    for (width, height) in SIZES {
        let text = shown_at(&two_connections(5_000), "otFpage-1<enter>", (width, height));
        insta::assert_snapshot!(format!("sorted_{width}x{height}"), text);
    }
}

#[test]
fn stream_updates_after_the_selection_rests() {
    let tape = tape::running();
    let after = |keys: &str, ms: u64| {
        let script = ScriptedHost::new(keys, SIZE).keep_open_for(Duration::from_millis(ms));
        let text = play(tape.timeline(), None, options(), script).0.text();
        let title = text.lines().nth(2).unwrap_or_default().split('┌').nth(2);
        (title.expect("the stream pane").to_owned(), text)
    };
    let (before, _) = after("", 200);
    let (moving, text) = after("jj", 40);
    assert_eq!(moving, before, "the pane is not updated with every key");
    assert!(text.contains("3/4"), "the table is:\n{text}");
    let (rested, _) = after("jj", 200);
    assert_ne!(rested, before);
    assert_eq!(rested, after("jj<tab><tab>", 40).0, "it is updated as soon as it has the focus");
}

#[test]
fn sort_orders_cycle_and_reverse() {
    let by = |keys: &str| listed(&shown(&tape::running(), keys));
    let plan = ["notion-revenue-policy", "dbt-all", "lookml-orphans", "lookml-dashboard-exec"];
    assert_eq!(by(""), plan);
    assert_eq!(by("O"), plan.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(by("o")[..2], ["notion-revenue-policy", "dbt-all"], "failed, then interrupted");
    assert_eq!(by("oo")[2..], ["dbt-all", "lookml-dashboard-exec"], "units without a known cost are last");
    assert_eq!(by("ooO")[2..], ["dbt-all", "lookml-dashboard-exec"], "also in reverse order");
    assert_eq!(by("ooo")[0], "dbt-all", "it ran longest");
    assert_eq!(by("ooooo"), ["dbt-all", "lookml-dashboard-exec", "lookml-orphans", "notion-revenue-policy"]);
    assert_eq!(by("oooooo"), plan);
    assert!(shown(&tape::running(), "oooooO").contains("units by key reversed"));
}

#[test]
fn selection_keeps_its_unit() {
    let selected = |keys: &str| {
        let text = shown(&tape::running(), keys);
        // The pane of actions shows the name of the selected unit.
        text.lines().nth(2).unwrap_or_default().split('┌').nth(2).unwrap_or_default().to_owned()
    };
    for keys in
        ["jj", "jjo", "jjoooooO", "jjt", "jjf<esc>", "jjForph<enter>", "jjf<esc>o", "jj0$", "jjFdbt<enter><esc>"]
    {
        assert!(
            selected(&format!("gg{keys}")).contains("lookml-orphans"),
            "{keys}: {}",
            selected(&format!("gg{keys}"))
        );
    }
    assert!(selected("ggjjf").contains("dbt-all"), "the neighbour of a hidden unit is selected");
    assert!(selected("ggjjfgg<esc>").contains("notion-revenue-policy"), "unless the selection was moved meanwhile");
}

#[test]
fn text_filter_applies_while_typing() {
    let text = shown(&tape::running(), "Florph");
    assert_eq!(listed(&text), [""; 0]);
    assert!(text.contains("no unit contains \"lorph\"; Esc shows all"), "{text}");
    let text = shown(&tape::running(), "Flook");
    assert_eq!(listed(&text), ["lookml-orphans", "lookml-dashboard-exec"]);
    assert!(text.contains("\"look\" only ") && text.contains("only units with: look"), "{text}");
    assert_eq!(listed(&shown(&tape::running(), "Flook<enter>ffff")), ["lookml-orphans"]);
    assert!(shown(&tape::running(), "Flook<enter>ffff").contains("done \"look\" only "));
    assert_eq!(listed(&shown(&tape::running(), "Flook<enter>ffff<esc>")).len(), 4);
    assert_eq!(listed(&shown(&tape::running(), "Flook<esc>")).len(), 4);
    // Filtering by connection works, too.
    assert_eq!(listed(&shown(&tape::running(), "Fwareh<enter>")).len(), 4);
}

#[test]
fn groups_have_counts_and_cannot_be_selected() {
    let tape = two_connections(3);
    let text = shown(&tape, "gg");
    assert!(text.contains("1/6"));
    let text = shown(&tape, "ggt");
    assert!(text.contains("│notes  3 units  ○3"), "{text}");
    assert!(text.contains("│warehouse  3 units  ✗1  ✓2  $0.12"), "{text}");
    assert!(shown(&tape, "ggtjjj").contains("4/6"));
    assert!(shown(&tape, "ggtjjjk").contains("3/6"));
}

#[test]
fn mouse_selects_the_unit_under_it_in_any_order() {
    let tape = two_connections(3);
    // Line 5 of the list, below the second heading.
    let script = ScriptedHost::new("ggt", SIZE).input(HostInput::Click(5, 9)).keys("Y");
    let (script, _) = play(tape.timeline(), None, options(), script);
    assert_eq!(script.copied, ["warehouse-page-0"]);
    // A click on a heading selects nothing.
    let script = ScriptedHost::new("ggt", SIZE).input(HostInput::Click(5, 8)).keys("Y");
    let (script, _) = play(tape.timeline(), None, options(), script);
    assert_eq!(script.copied, ["notes-page-0"]);
    let script = ScriptedHost::new("ggt", SIZE).input(HostInput::Wheel(5, 8, true)).keys("Y");
    let (script, _) = play(tape.timeline(), None, options(), script);
    assert_eq!(script.copied, ["warehouse-page-0"]);
}

#[test]
fn messages_do_not_move_rows() {
    let tape = two_connections(40);
    let before = shown(&tape, "gg");
    let after = shown(&tape, "ggrxnr");
    let rows = |text: &str| text.lines().take(33).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&before)[..32], rows(&after)[..32]);
    let after = shown(&tape, "ggn");
    assert_eq!(rows(&before), rows(&after));
    assert!(after.lines().last().is_some_and(|line| line.contains("no search yet")), "{after}");
}

#[test]
fn long_names_are_cut_at_the_start() {
    let mut tape = TapeFixture::new("customer-analytics-platform-production-europe-west", false);
    tape.plan(&["models/marts/finance/revenue/recognised/daily", "models/marts/finance/revenue/recognised/hourly"]);
    let text = shown_at(&tape, "", (80, 24));
    assert!(text.lines().next().is_some_and(|line| line.contains("production-europe-west")), "{text}");
    let text = shown_at(&tape, "", (40, 12));
    assert!(text.lines().next().is_some_and(|line| line.contains("-west")), "{text}");
    assert!(text.contains("cognised/daily") && text.contains("ognised/hourly"), "{text}");
}

#[test]
fn state_and_cost_stay_visible_next_to_long_names() {
    let mut tape = TapeFixture::new("orbit", false);
    let keys = ["finance/revenue", "finance/refunds", "growth/orders", "growth/visits"];
    let keys = keys.map(|end| format!("models/marts/europe/recognised/{end}"));
    tape.plan(&keys.each_ref().map(String::as_str)).start(&keys[0], 1).wait(100).end(&keys[0], 1, 1);
    for width in [100, 120, 140] {
        let text = shown_at(&tape, "", (width, 30));
        let heading = text.lines().nth(3).unwrap_or_default();
        assert!(["UNIT", "STATE", "FAIL", "COST"].iter().all(|name| heading.contains(name)), "{text}");
        for end in ["e/revenue", "e/refunds", "h/orders", "h/visits"] {
            assert!(text.lines().any(|line| line.chars().take(40).collect::<String>().contains(end)), "{end}:\n{text}");
        }
    }
}

#[test]
fn table_uses_needed_rows_and_leaves_space() {
    let rows = |units: usize| {
        let keys: Vec<_> = (0..units).map(|unit| format!("page-{unit}")).collect();
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&keys.iter().map(String::as_str).collect::<Vec<_>>()).start("page-0", 1).wait(100);
        let text = shown_at(&tape, "gg", (80, 24));
        let bottom = text.lines().position(|line| line.starts_with('└')).unwrap_or_default();
        let streamed = text.lines().skip(bottom + 2).take_while(|line| line.starts_with('│')).count();
        (text.lines().filter(|line| line.starts_with("│") && line.contains(" page-")).count(), streamed)
    };
    assert_eq!(rows(4), (4, 10));
    assert_eq!(rows(8), (8, 6), "all units of a demo");
    assert_eq!(rows(9), (7, 7), "half of a longer list");
    assert_eq!(rows(5000), (7, 7));
}

#[test]
fn streaming_text_and_thinking_are_shown_but_not_actions() {
    let delta = |kind: &str, text: &str| {
        serde_json::json!({"type": "stream_event", "session_id": "5e55-a-1", "event": {"type": "content_block_delta",
            "index": 0, "delta": {"type": format!("{kind}_delta"), kind: text}}})
    };
    let live = |tape: &TapeFixture| {
        let growing = tape.growing();
        let (commands, _orders) = tokio::sync::mpsc::channel(8);
        let (_grows, changed) = tokio::sync::watch::channel(0);
        let live = live_handle(commands, changed);
        play(growing.timeline, Some(live), options(), ScriptedHost::new("", SIZE)).0.text()
    };
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a"]).start("a", 1).stdout_line("a", 1, &delta("thinking", "Which page is "));
    tape.stdout_line("a", 1, &delta("thinking", "the right one?"));
    let text = live(&tape);
    assert!(text.contains("∴ Which page is the right one?") && text.contains("0 calls"), "{text}");
    tape.stdout_line("a", 1, &delta("text", "The first one."));
    let text = live(&tape);
    assert!(text.contains("» The first one.") && !text.contains("Which page"), "{text}");
    tape.say("a", 1, "The first one.");
    let text = live(&tape);
    assert_eq!(text.matches("» The first one.").count(), 1, "{text}");
}
