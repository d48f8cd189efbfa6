//! The mouse: clicks on what is painted, double clicks, and the wheel.

use ingestdeck_tui::{TuiExit, host::HostInput};

use super::{
    scripted_host::{ScriptedHost, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);

fn record(tape: &TapeFixture, script: ScriptedHost) -> (ScriptedHost, TuiExit) {
    play(tape.timeline(), None, options(), script)
}

/// The cell of the first occurrence of a text.
fn place_of(text: &str, shown: &str) -> (u16, u16) {
    let found = shown.lines().enumerate().find_map(|(y, line)| {
        let at = line.find(text)?;
        Some((line[..at].chars().count(), y))
    });
    let (x, y) = found.unwrap_or_else(|| panic!("`{text}` is not on the screen:\n{shown}"));
    (u16::try_from(x).unwrap(), u16::try_from(y).unwrap())
}

/// The screen after clicks on texts, each of them where it was painted before.
fn clicked(tape: &TapeFixture, keys: &str, texts: &[&str]) -> (ScriptedHost, TuiExit) {
    let mut places: Vec<(u16, u16)> = Vec::new();
    let play = |places: &[(u16, u16)]| {
        let click =
            |script: ScriptedHost, (x, y): &(u16, u16)| script.input(HostInput::Click(*x, *y));
        record(
            tape,
            places.iter().fold(ScriptedHost::new(keys, SIZE), click),
        )
    };
    for text in texts {
        places.push(place_of(text, &play(&places).0.text()));
    }
    play(&places)
}

#[test]
fn click_on_a_hint_performs_its_action() {
    let tape = tape::running();
    assert!(
        clicked(&tape, "", &["? help"])
            .0
            .text()
            .contains("keys and signs")
    );
    let (script, _) = clicked(&tape, "", &["L log"]);
    assert!(script.text().contains("┌ log "), "{}", script.text());
    assert!(
        clicked(&tape, "", &["L log", "Esc back"])
            .0
            .text()
            .contains("┌ units")
    );
    // Of text that is being typed, too; what the line covers cannot be clicked.
    let (script, _) = clicked(&tape, ":bookmarks", &["Enter accept"]);
    assert!(script.text().contains("┌ bookmarks"), "{}", script.text());
    let (script, _) = clicked(&tape, ":", &["TIME"]);
    assert!(!script.text().contains("by time"), "{}", script.text());
}

#[test]
fn click_on_a_tab_shows_its_panel() {
    let (script, _) = clicked(&tape::running(), "i", &["5 verdict"]);
    assert!(script.text().contains("[5 verdict]"), "{}", script.text());
    let (script, _) = clicked(&tape::running(), "i", &["6 wire"]);
    assert!(script.text().contains("[6 wire]"), "{}", script.text());
    let (script, _) = clicked(&tape::running(), "i6", &["3 isolation"]);
    assert!(script.text().contains("[3 isolation]"), "{}", script.text());
    let mut twice = TapeFixture::new("orbit", false);
    twice
        .plan(&["dbt-all"])
        .start("dbt-all", 1)
        .wait(10)
        .end("dbt-all", 1, 1);
    twice.start("dbt-all", 2).wait(10).end("dbt-all", 2, 0);
    for keys in ["i", "i6"] {
        let (script, _) = clicked(&twice, keys, &["try 1"]);
        assert!(script.text().contains("[✗ try 1]"), "{}", script.text());
    }
}

#[test]
fn click_on_a_column_heading_orders_the_table() {
    let (script, _) = clicked(&tape::running(), "", &["COST"]);
    assert!(
        script.text().contains("┌ units by cost ─"),
        "{}",
        script.text()
    );
    let (script, _) = clicked(&tape::running(), "", &["COST", "COST"]);
    assert!(
        script.text().contains("┌ units by cost reversed ─"),
        "{}",
        script.text()
    );
    assert!(
        clicked(&tape::running(), "", &["UNIT"])
            .0
            .text()
            .contains("┌ units by key ─")
    );
    assert!(
        clicked(&tape::running(), "", &["TIME"])
            .0
            .text()
            .contains("┌ units by time ─")
    );
}

#[test]
fn double_click_opens_the_row() {
    let tape = tape::running();
    let twice = |keys: &str, text: &'static str| clicked(&tape, keys, &[text, text]).0.text();
    let text = twice("", "lookml-orphans");
    assert!(
        text.contains("✓ lookml-orphans succeeded inspector"),
        "{text}"
    );
    let text = twice("j", "wiki_search \"arr\"");
    assert!(
        text.contains("dbt-all interrupted inspector")
            && text.contains("call · mcp__ktx__wiki_search"),
        "{text}"
    );
    let text = twice("i6", " init ");
    assert!(text.contains("line 2/"), "{text}");
    // Two clicks on different rows, or with a pause between them, only select.
    let text = clicked(&tape, "", &["lookml-orphans", "dbt-all"]).0.text();
    assert!(
        text.contains("┌ ◌ dbt-all interrupted") && !text.contains("inspector"),
        "{text}"
    );
}

#[test]
fn double_click_on_a_heading_leaves_it_folded() {
    let units: Vec<String> = (0..12).map(|unit| format!("page-{unit}")).collect();
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&units);
    for unit in &units[..3] {
        tape.start(unit, 1).wait(10).end(unit, 1, 1);
    }
    let text = clicked(&tape, "", &["needs you · 3", "needs you · 3"])
        .0
        .text();
    assert!(text.contains("needs you · 3, folded"), "{text}");
}

#[test]
fn wheel_scrolls_the_half_of_the_inspector_under_it() {
    let tape = tape::running();
    let inspect = |x: u16, turns: usize| {
        let wheel = |script: ScriptedHost, _| script.input(HostInput::Wheel(x, 12, true));
        record(
            &tape,
            (0..turns).fold(ScriptedHost::new("j<enter>gg<down><down>", SIZE), wheel),
        )
        .0
        .text()
    };
    let before = inspect(100, 0);
    let (position, top) = (" 3/9 ", "call · mcp__ktx__read_raw_file");
    assert!(
        before.contains(position) && before.contains(top),
        "{before}"
    );
    let detail = inspect(100, 4);
    assert!(
        detail.contains(position),
        "the selection at the left does not move: {detail}"
    );
    assert!(!detail.contains(top), "{detail}");
    let list = inspect(5, 1);
    assert!(list.contains(" 6/9 "), "{list}");
}

#[test]
fn click_on_a_mark_shows_what_it_marks() {
    let tape = tape::running();
    for (size, row) in [(SIZE, 32), ((80, 24), 21), ((40, 12), 10)] {
        let shown = record(&tape, ScriptedHost::new("", size)).0.text();
        let line = shown.lines().nth(row).unwrap();
        let x = line
            .chars()
            .position(|sign| sign == '✗')
            .unwrap_or_else(|| panic!("{shown}"));
        let click = HostInput::Click(u16::try_from(x).unwrap(), u16::try_from(row).unwrap());
        let (script, exit) = record(&tape, ScriptedHost::new("", size).input(click));
        let state = &exit.timeline.view().state;
        assert!(state.entries < tape.entries(), "{}", script.text());
        assert_eq!(
            state.units[0].attempts[0].counts.failures,
            1,
            "{size:?}: {}",
            script.text()
        );
    }
    // A bookmark is an exact moment.
    let keys = ":#8<enter>b<enter>$";
    let shown = record(&tape, ScriptedHost::new(keys, SIZE)).0.text();
    let x = shown
        .lines()
        .nth(32)
        .unwrap()
        .chars()
        .position(|sign| sign == '★')
        .unwrap();
    let click = HostInput::Click(u16::try_from(x).unwrap(), 32);
    let (script, exit) = record(&tape, ScriptedHost::new(keys, SIZE).input(click));
    assert_eq!(exit.timeline.view().state.entries, 8, "{}", script.text());
}
