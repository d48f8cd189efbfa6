//! The table of units: order, groups and filters, with keys and with the mouse.

use std::time::Duration;

use ingestdeck_core::{
    control::RunCommand,
    tape::{
        Note,
        note::{PlannedUnit, RunPlanned},
    },
};
use ingestdeck_tui::host::HostInput;
use tokio::sync::{mpsc, watch};

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
    let units: Vec<_> = (0..each)
        .flat_map(|index| [unit("notes", index), unit("warehouse", index)])
        .collect();
    let plan = RunPlanned {
        job: "job-1".into(),
        units,
        concurrency: 4,
        step_budget: 40,
        ..RunPlanned::default()
    };
    tape.note(
        None,
        &ingestdeck_core::tape::Note::RunPlanned(Box::new(plan)),
    );
    for index in 0..each.min(300) {
        let unit = format!("warehouse-page-{index}");
        tape.start(&unit, 1)
            .wait(10 * u64::try_from(index % 7).unwrap());
        tape.end(&unit, 1, u32::from(index % 4 == 1));
    }
    tape
}

fn shown(tape: &TapeFixture, keys: &str) -> String {
    shown_at(tape, keys, SIZE)
}

fn shown_at(tape: &TapeFixture, keys: &str, size: (u16, u16)) -> String {
    play(
        tape.timeline(),
        None,
        options(),
        ScriptedHost::new(keys, size),
    )
    .0
    .text()
}

/// The title of the pane below the table, which names the selected unit or group.
fn stream_title(text: &str) -> &str {
    text.lines()
        .filter(|line| line.starts_with('┌'))
        .nth(1)
        .expect("the stream pane")
}

/// Keys of the units that the table shows, from the top.
fn listed(text: &str) -> Vec<String> {
    let row = |line: &str| {
        let mut words = line.strip_prefix('│')?.split_whitespace();
        let sign = words.next()?;
        let signs = ["○", "▶", "◐", "✓", "◆", "✗", "■", "◌", "‖"];
        signs
            .contains(&sign)
            .then(|| words.next().unwrap_or_default().to_owned())
    };
    text.lines()
        .take_while(|line| !line.starts_with('└'))
        .filter_map(row)
        .collect()
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
        (stream_title(&text).to_owned(), text)
    };
    let (before, _) = after("", 200);
    let (moving, text) = after("jj", 40);
    assert_eq!(moving, before, "the pane is not updated with every key");
    assert!(text.contains("3/4"), "the table is:\n{text}");
    let (rested, _) = after("jj", 200);
    assert_ne!(rested, before);
    assert_eq!(
        rested,
        after("jj<tab><tab>", 40).0,
        "it is updated as soon as it has the focus"
    );
}

#[test]
fn pane_of_a_selection_that_moves_by_itself_is_painted() {
    let tape = || {
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&["dbt-all", "docs-juice"])
            .start("docs-juice", 1)
            .say("docs-juice", 1, "reads the docs")
            .wait(1000);
        tape
    };
    let (before, mut after) = (tape(), tape());
    after
        .start("dbt-all", 1)
        .say("dbt-all", 1, "reads the models");
    let growing = before.growing();
    let (commands, _orders) = mpsc::channel(8);
    let (grows, changed) = watch::channel(0);
    // The tape grows after 50 ms, and a pane that waits for a settled selection would follow 60 ms later.
    let script = ScriptedHost::new("", SIZE).grows(growing.more(&before, &after), grows);
    let script = script.keep_open_for(Duration::from_millis(100));
    let (script, _) = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    let text = script.text();
    assert!(stream_title(&text).contains("dbt-all"), "{text}");
}

#[test]
fn sort_orders_cycle_and_reverse() {
    let by = |keys: &str| listed(&shown(&tape::running(), keys));
    let by_need = [
        "notion-revenue-policy",
        "dbt-all",
        "lookml-dashboard-exec",
        "lookml-orphans",
    ];
    assert_eq!(by(""), by_need, "failed, interrupted, not started, done");
    assert_eq!(
        by("tt"),
        [
            "notion-revenue-policy",
            "dbt-all",
            "lookml-orphans",
            "lookml-dashboard-exec"
        ],
        "the plan"
    );
    assert_eq!(by("ttO"), by("tt").into_iter().rev().collect::<Vec<_>>());
    assert_eq!(
        by("tto")[2..],
        ["dbt-all", "lookml-dashboard-exec"],
        "a unit without a known or estimated cost is last"
    );
    assert_eq!(
        by("ttoO")[2..],
        ["lookml-orphans", "lookml-dashboard-exec"],
        "also in reverse order"
    );
    assert_eq!(by("ttoo")[0], "dbt-all", "it ran longest");
    assert_eq!(
        by("ttoooo"),
        [
            "dbt-all",
            "lookml-dashboard-exec",
            "lookml-orphans",
            "notion-revenue-policy"
        ]
    );
    assert_eq!(by("ttooooo"), by("tt"));
    assert_eq!(
        by("oooo"),
        by("ttoooo"),
        "a list without headings is sorted as a whole"
    );
    assert!(shown(&tape::running(), "ooooO").contains("units by key reversed"));
}

#[test]
fn selection_keeps_its_unit() {
    let selected = |keys: &str| stream_title(&shown(&tape::running(), keys)).to_owned();
    for keys in [
        "jj",
        "jjo",
        "jjooooO",
        "jjt",
        "jjf<esc>",
        "jjFexec<enter>",
        "jjf<esc>o",
        "jj0$",
        "jjFdbt<enter><esc>",
    ] {
        let title = selected(&format!("gg{keys}"));
        assert!(title.contains("lookml-dashboard-exec"), "{keys}: {title}");
    }
    assert!(
        selected("ggjjf").contains("dbt-all"),
        "the neighbour of a hidden unit is selected"
    );
    assert!(
        selected("ggjjfgg<esc>").contains("notion-revenue-policy"),
        "unless the selection was moved meanwhile"
    );
}

#[test]
fn text_filter_applies_while_typing() {
    let text = shown(&tape::running(), "Florph");
    assert_eq!(listed(&text), [""; 0]);
    assert!(
        text.contains("no unit fulfils \"lorph\"; Esc shows all"),
        "{text}"
    );
    let text = shown(&tape::running(), "Flook");
    assert_eq!(listed(&text), ["lookml-dashboard-exec", "lookml-orphans"]);
    assert!(
        text.contains("\"look\" only ") && text.contains("only units with: look"),
        "{text}"
    );
    assert_eq!(
        listed(&shown(&tape::running(), "Flook<enter>fffff")),
        ["lookml-orphans"]
    );
    assert!(shown(&tape::running(), "Flook<enter>fffff").contains("done \"look\" only "));
    assert_eq!(
        listed(&shown(&tape::running(), "Flook<enter>ffff<esc>")).len(),
        4
    );
    assert_eq!(listed(&shown(&tape::running(), "Flook<esc>")).len(), 4);
    // Filtering by connection works, too.
    assert_eq!(listed(&shown(&tape::running(), "Fwareh<enter>")).len(), 4);
}

#[test]
fn units_are_grouped_by_need_or_connection() {
    let tape = two_connections(5);
    let text = shown(&tape, "gg");
    let headings: Vec<_> = text
        .lines()
        .take_while(|line| !line.starts_with('└'))
        .filter(|line| line.contains(" · "))
        .collect();
    assert!(headings[1].starts_with("│needs you · 1 "), "{text}");
    assert!(headings[2].starts_with("│next · 5, 2 folded"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.contains("warehouse") && line.contains("5/5")),
        "progress of done units: {text}"
    );
    assert_eq!(
        listed(&text),
        [
            "warehouse-page-1",
            "notes-page-0",
            "notes-page-1",
            "notes-page-2"
        ]
    );
    let text = shown(&tape, "ggt");
    assert!(
        text.contains("│notes · 5 ") && text.contains("│warehouse · 5 "),
        "{text}"
    );
    assert_eq!(listed(&text).len(), 10);
    assert_eq!(listed(&shown(&tape, "ggtt")).len(), 10);
    assert!(
        !shown(&tape, "ggtt").contains("│notes · "),
        "a flat list has no headings"
    );
}

#[test]
fn headings_can_be_selected_and_folded_by_key_and_mouse() {
    let tape = two_connections(5);
    let after = |keys: &str| listed(&shown(&tape, keys));
    let all_next = [
        "warehouse-page-1",
        "notes-page-0",
        "notes-page-1",
        "notes-page-2",
        "notes-page-3",
        "notes-page-4",
    ];
    // The second heading is below the only failed unit.
    assert!(
        stream_title(&shown(&tape, "ggjj")).contains("next · 5 units"),
        "{}",
        shown(&tape, "ggjj")
    );
    for keys in [
        "ggjj<enter>",
        "ggjjl",
        "ggjj<right>",
        "ggjjl<enter><enter>",
        "ggjjlhl",
    ] {
        assert_eq!(after(keys), all_next, "{keys}");
    }
    assert_eq!(after("ggjj<enter><enter>"), after("gg"), "folded again");
    assert_eq!(
        after("ggjjjhh"),
        [
            "warehouse-page-1",
            "notes-page-0",
            "notes-page-1",
            "notes-page-2"
        ],
        "`h` goes to the heading"
    );
    let text = shown(&tape, "gg");
    let line = text
        .lines()
        .position(|line| line.starts_with("│next · "))
        .expect("a heading");
    let line = u16::try_from(line).expect("a small number");
    let clicked = |clicks: usize| {
        let mut script = ScriptedHost::new("gg", SIZE);
        for _ in 0..clicks {
            script = script.input(HostInput::Click(5, line));
        }
        listed(&play(tape.timeline(), None, options(), script).0.text())
    };
    assert_eq!(
        clicked(1),
        after("gg"),
        "the first click selects the heading"
    );
    assert_eq!(clicked(2), all_next);
    assert_eq!(clicked(3), after("gg"));
}

#[test]
fn mouse_selects_the_unit_under_it_in_any_order() {
    let tape = two_connections(3);
    let script = ScriptedHost::new("ggtt", SIZE)
        .input(HostInput::Click(5, 5))
        .keys("Y");
    let (script, _) = play(tape.timeline(), None, options(), script);
    assert_eq!(script.copied, ["warehouse-page-0"]);
    let script = ScriptedHost::new("ggtt", SIZE)
        .input(HostInput::Wheel(5, 8, true))
        .keys("Y");
    let (script, _) = play(tape.timeline(), None, options(), script);
    assert_eq!(script.copied, ["warehouse-page-2"]);
}

#[test]
fn messages_cover_no_rows_or_hints_and_end_with_a_key() {
    let tape = two_connections(40);
    let before = shown(&tape, "ggj");
    let after = shown(&tape, "ggjn");
    let second = |text: &str| text.lines().nth(1).unwrap_or_default().to_owned();
    let rest = |text: &str| {
        text.lines()
            .enumerate()
            .filter(|(line, _)| *line != 1)
            .map(|(_, line)| line.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(rest(&before), rest(&after));
    assert!(
        second(&after).starts_with(second(&before).trim_end())
            && second(&after).ends_with("no search yet; / searches"),
        "{after}"
    );
    assert_eq!(shown(&tape, "ggjnkj"), before);
}

#[test]
fn long_names_are_cut_at_the_start() {
    let mut tape = TapeFixture::new("customer-analytics-platform-production-europe-west", false);
    tape.plan(&[
        "models/marts/finance/revenue/recognised/daily",
        "models/marts/finance/revenue/recognised/hourly",
    ]);
    let text = shown_at(&tape, "", (80, 24));
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("production-europe-west")),
        "{text}"
    );
    let text = shown_at(&tape, "", (40, 12));
    assert!(
        text.lines()
            .next()
            .is_some_and(|line| line.contains("-west")),
        "{text}"
    );
    assert!(
        text.contains("nised/daily") && text.contains("ised/hourly"),
        "{text}"
    );
}

#[test]
fn name_and_reason_have_room_before_other_columns() {
    let mut tape = TapeFixture::new("orbit", false);
    let keys = [
        "finance/revenue",
        "finance/refunds",
        "growth/orders",
        "growth/visits",
    ];
    let keys = keys.map(|end| format!("models/marts/europe/recognised/{end}"));
    tape.plan(&keys.each_ref().map(String::as_str))
        .start(&keys[0], 1)
        .wait(100)
        .end(&keys[0], 1, 1);
    let mut columns = Vec::new();
    for width in [80, 100, 120, 140, 160] {
        let text = shown_at(&tape, "", (width, 30));
        let heading = text.lines().nth(3).unwrap_or_default();
        columns.push(heading.split_whitespace().count());
        for end in ["e/revenue", "e/refunds", "h/orders", "h/visits"] {
            assert!(
                text.lines()
                    .any(|line| line.chars().take(50).collect::<String>().contains(end)),
                "{end}:\n{text}"
            );
        }
        assert!(text.contains("1 tool call failed"), "{text}");
    }
    assert!(
        columns.is_sorted() && columns[0] < columns[4],
        "{columns:?}"
    );
}

#[test]
fn table_uses_needed_rows_and_leaves_space() {
    let rows = |units: usize| {
        let keys: Vec<_> = (0..units).map(|unit| format!("page-{unit}")).collect();
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&keys.iter().map(String::as_str).collect::<Vec<_>>())
            .start("page-0", 1)
            .wait(100);
        let text = shown_at(&tape, "gg", (80, 24));
        let bottom = text
            .lines()
            .position(|line| line.starts_with('└'))
            .unwrap_or_default();
        let streamed = text
            .lines()
            .skip(bottom + 2)
            .take_while(|line| line.starts_with('│'))
            .count();
        (
            text.lines()
                .take(bottom)
                .filter(|line| line.contains(" page-"))
                .count(),
            streamed,
        )
    };
    assert_eq!(rows(4), (4, 10));
    assert_eq!(rows(8), (8, 6), "all units of a demo");
    // With headings: those of the running and the next units.
    assert_eq!(rows(9), (4, 8), "the next units are folded");
    assert_eq!(rows(5000), (4, 8));
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
        play(
            growing.timeline,
            Some(live),
            options(),
            ScriptedHost::new("", SIZE),
        )
        .0
        .text()
    };
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a"])
        .start("a", 1)
        .stdout_line("a", 1, &delta("thinking", "Which page is "));
    tape.stdout_line("a", 1, &delta("thinking", "the right one?"));
    let text = live(&tape);
    assert!(
        text.contains("∴ Which page is the right one?") && text.contains("0 calls"),
        "{text}"
    );
    tape.stdout_line("a", 1, &delta("text", "The first one."));
    let text = live(&tape);
    assert!(
        text.contains("» The first one.") && !text.contains("Which page"),
        "{text}"
    );
    tape.say("a", 1, "The first one.");
    let text = live(&tape);
    assert_eq!(text.matches("» The first one.").count(), 1, "{text}");
}

#[test]
fn retry_on_a_heading_asks_for_its_units() {
    let tape = two_connections(5);
    let retried = |keys: &str| {
        let growing = tape.growing();
        let (commands, mut orders) = tokio::sync::mpsc::channel(8);
        let (_grows, changed) = tokio::sync::watch::channel(0);
        let live = live_handle(commands, changed);
        let script = play(
            growing.timeline,
            Some(live),
            options(),
            ScriptedHost::new(keys, SIZE),
        )
        .0;
        (script.text(), orders.try_recv().ok())
    };
    let units = vec!["warehouse-page-1".into()];
    assert_eq!(
        retried("ggry").1,
        Some(RunCommand::RetryUnits {
            units,
            amendment: None
        })
    );
    assert!(
        retried("ggr").0.contains("Retry 1 unit of this group?"),
        "{}",
        retried("ggr").0
    );
    // No unit of this group has failed.
    let (text, order) = retried("ggjjr");
    assert!(
        order.is_none() && text.contains("no unit of this group can be retried now"),
        "{text}"
    );
}

/// The screen after some keys in a live run, and the commands that they sent.
fn commanded(tape: &TapeFixture, keys: &str) -> (String, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = tokio::sync::mpsc::channel(32);
    let (_grows, changed) = tokio::sync::watch::channel(0);
    let script = play(
        growing.timeline,
        Some(live_handle(commands, changed)),
        options(),
        ScriptedHost::new(keys, SIZE),
    )
    .0;
    (
        script.text(),
        std::iter::from_fn(|| orders.try_recv().ok()).collect(),
    )
}

#[test]
fn commands_apply_to_marked_units() {
    let tape = two_connections(12);
    let failed = ["warehouse-page-1", "warehouse-page-5", "warehouse-page-9"];
    let (text, orders) = commanded(&tape, "ggj**");
    assert!(
        text.contains("units 2 marked") && text.contains("✗*") && orders.is_empty(),
        "{text}"
    );
    let retry = |units: &[&str]| {
        let units = units.iter().map(|unit| (*unit).into()).collect();
        vec![RunCommand::RetryUnits {
            units,
            amendment: None,
        }]
    };
    assert!(
        commanded(&tape, "ggj**r")
            .0
            .contains("Retry 2 units of 2 marked?")
    );
    assert_eq!(commanded(&tape, "ggj**ry").1, retry(&failed[..2]));
    // The second press takes a mark away; a mark on a heading covers its units; Esc removes all.
    assert_eq!(commanded(&tape, "ggj**gg*ry").1, retry(&failed));
    assert!(!commanded(&tape, "ggj*k*").0.contains("marked"));
    assert!(!commanded(&tape, "ggj**<esc>").0.contains("marked"));
    // An answer other than yes keeps the marks.
    assert!(commanded(&tape, "ggj**rn").0.contains("units 2 marked"));
    assert!(!commanded(&tape, "ggj**ry").0.contains("marked"));
    // Ended units cannot be stopped.
    let (text, orders) = commanded(&tape, "ggj**x");
    assert!(
        orders.is_empty() && text.contains("every marked unit has ended"),
        "{text}"
    );
}

#[test]
fn marks_come_before_the_held_call_of_the_selected_unit() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b"])
        .start("a", 1)
        .wait(10)
        .end("a", 1, 1)
        .start("b", 1);
    tape.note(Some(("b", 1)), &Note::HoldRequested);
    let input = serde_json::json!({});
    let held = Note::CallHeld {
        needs_decision: false,
        tool: "wiki_write".into(),
        tool_use_id: Some("t".into()),
        input,
        reached: None,
    };
    tape.note(Some(("b", 1)), &held);
    assert!(
        commanded(&tape, "gge")
            .0
            .contains("arguments of wiki_write"),
        "{}",
        commanded(&tape, "gge").0
    );
    // Only `a` can be retried.
    for keys in ["G*gge", "gg*G*gge"] {
        assert!(
            commanded(&tape, keys).0.contains("new attempt at a"),
            "{keys}: {}",
            commanded(&tape, keys).0
        );
    }
    let text = commanded(&tape, "gg*gge").0;
    assert!(
        text.contains("no marked unit can be retried now") && !text.contains("arguments of"),
        "{text}"
    );
}

#[test]
fn question_about_several_units_ends_with_a_retry() {
    let before = two_connections(12);
    let mut after = two_connections(12);
    after.note(
        Some(("warehouse-page-5", 1)),
        &Note::RetryRequested {
            next: 2,
            amendment: None,
        },
    );
    let asked = |after: &TapeFixture| {
        let growing = before.growing();
        let (commands, _orders) = tokio::sync::mpsc::channel(8);
        let (grows, changed) = tokio::sync::watch::channel(0);
        let script = ScriptedHost::new("ggj**r", SIZE).grows(growing.more(&before, after), grows);
        play(
            growing.timeline,
            Some(live_handle(commands, changed)),
            options(),
            script,
        )
        .0
        .text()
    };
    assert!(asked(&before).contains("Retry 2 units of 2 marked?"));
    assert!(
        asked(&after).contains("No longer possible: one of them runs already."),
        "{}",
        asked(&after)
    );
}

#[test]
fn repeated_search_follows_the_order_of_the_table() {
    let tape = two_connections(12);
    for keys in [
        "/page-9<enter>",
        "/page-9<enter>on",
        "/page-9<enter>tn",
        "/page-9<enter>oOn",
    ] {
        let text = shown(&tape, keys);
        assert!(stream_title(&text).contains("page-9"), "{keys}: {text}");
    }
}

#[test]
fn feedback_can_go_to_several_units() {
    let tape = two_connections(12);
    let (text, _) = commanded(&tape, "ggj**e");
    assert!(
        text.contains("new attempts at 2 units") && text.contains("a new one for each"),
        "{text}"
    );
    let amendment = |orders: Vec<RunCommand>| match orders.as_slice() {
        [
            RunCommand::RetryUnits {
                units,
                amendment: Some(amendment),
            },
        ] => Some((
            units.len(),
            amendment.feedback.clone(),
            amendment.resume.clone(),
        )),
        _ => None,
    };
    let sent = amendment(commanded(&tape, "ggj**eUse `content`<c-s>").1);
    assert_eq!(sent, Some((2, Some("Use `content`".to_owned()), None)));
    // A heading, and a group of failures.
    assert_eq!(
        amendment(commanded(&tape, "ggex<c-s>").1).map(|sent| sent.0),
        Some(3)
    );
    assert_eq!(
        amendment(commanded(&tape, "Cex<c-s>").1).map(|sent| sent.0),
        Some(3)
    );
}

#[test]
fn marked_units_that_run_are_stopped_together() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["a", "b", "c"])
        .start("a", 1)
        .start("b", 1)
        .wait(10);
    let stop = |unit: &str| RunCommand::Stop { unit: unit.into() };
    assert_eq!(commanded(&tape, "gg**xy").1, [stop("a"), stop("b")]);
    let (text, orders) = commanded(&tape, "gg***x");
    assert!(
        text.contains("Stop 3 units of 3 marked?") && orders.is_empty(),
        "{text}"
    );
}

#[test]
fn heading_is_the_place_from_which_keys_continue() {
    let tape = two_connections(12);
    // Three units failed; `]` selects the first of them from the heading, then the next one.
    let failed = ["warehouse-page-1", "warehouse-page-5", "warehouse-page-9"];
    for (keys, unit) in [("gg]", failed[0]), ("gg]]", failed[1]), ("gg[", failed[2])] {
        assert!(
            stream_title(&shown(&tape, keys)).contains(unit),
            "{keys}: {}",
            shown(&tape, keys)
        );
    }
    // The pane of a group cannot have the focus.
    assert!(
        stream_title(&shown(&tape, "gg<tab>j")).contains(failed[0]),
        "{}",
        shown(&tape, "gg<tab>j")
    );
    // A filter unfolds all groups, and folds are as before afterwards.
    assert_eq!(
        listed(&shown(&tape, "ggFpage<enter><enter><esc>")),
        listed(&shown(&tape, "gg"))
    );
}

#[test]
fn last_group_is_shown_with_its_progress_bars() {
    let tape = two_connections(40);
    for keys in ["G", "GkG"] {
        let text = shown_at(&tape, keys, (80, 24));
        assert!(
            text.contains("  40/40  ") && text.contains("done · 30"),
            "{text}"
        );
    }
}
