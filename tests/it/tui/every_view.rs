//! Every view, in every state of a run, at every size: nothing panics, the frame is complete, and the screen shows the
//! position and the available keys.

use std::{path::Path, time::Duration};

use ingestdeck_core::{run::Timeline, text};
use ingestdeck_records::replay::FileSource;
use ratatui::backend::Backend as _;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZES: [(u16, u16); 5] = [(40, 12), (60, 20), (80, 24), (120, 36), (200, 60)];

/// Keys that open each view from the table of units.
const VIEWS: [&str; 22] = [
    "",
    "<tab>z",
    "<enter>",
    "<tab>gg<enter>",
    "i",
    "i3",
    "=",
    "v",
    "vz",
    "C",
    "L",
    "gl",
    "gm",
    "c",
    ":break failure<enter>B",
    "b<enter>'",
    "?",
    ":find a<enter>",
    "<enter>5",
    "<enter>5<enter>",
    "gr",
    "grG<enter>gg",
];

/// The states, by name.
fn states() -> Vec<(&'static str, TapeFixture)> {
    let mut one = TapeFixture::new("orbit", false);
    one.plan(&["dbt-all"]).start("dbt-all", 1).wait(2000);
    one.call(
        "dbt-all",
        1,
        "t",
        "read_raw_file",
        &json!({"path": "models/schema.yml"}),
    );
    let mut failed = TapeFixture::new("orbit", false);
    failed
        .plan(&["dbt-all"])
        .start("dbt-all", 1)
        .wait(10)
        .end("dbt-all", 1, 2);
    failed
        .start("dbt-all", 2)
        .wait(10)
        .end("dbt-all", 2, 1)
        .run_ended(0, 1);
    let mut many = TapeFixture::new("orbit", false);
    let units: Vec<String> = (0..10_000)
        .map(|unit| format!("docs-page-{unit}"))
        .collect();
    many.plan(&units);
    for (index, unit) in units.iter().enumerate().take(300) {
        many.start(unit, 1)
            .wait(10)
            .end(unit, 1, u32::from(index % 100 == 99));
    }
    let mut wide = TapeFixture::new("漢字-👩‍🚀", false);
    let unit = "売上-日次-👨‍👩‍👧‍👦-é";
    wide.plan(&[unit, "二番目"]).start(unit, 1).wait(10);
    wide.say(unit, 1, &"広い文字列。".repeat(80))
        .think(unit, 1, "👩‍🚀 考え中");
    wide.call(
        unit,
        1,
        "t",
        "wiki_write",
        &json!({"key": "売上", "content": "# 売上\n\n🏴󠁧󠁢󠁥󠁮󠁧󠁿"}),
    );
    wide.result(unit, 1, "t", "頁がない 👎", true)
        .wait(10)
        .end(unit, 1, 1);
    vec![
        ("empty", TapeFixture::new("orbit", false)),
        ("one running", one),
        ("failed", failed),
        ("ten thousand", many),
        ("wide", wide),
        ("mixed", tape::running()),
    ]
}

/// True if the side borders of every frame are intact, so no text has moved them.
fn has_intact_frame(script: &ScriptedHost) -> bool {
    let buffer = script.terminal.backend().buffer();
    let area = buffer.area;
    let symbol = |x: u16, y: u16| buffer[(x, y)].symbol();
    let corners = (0..area.height)
        .filter(|y| symbol(0, *y) == "┌")
        .collect::<Vec<_>>();
    !corners.is_empty()
        && corners.iter().all(|top| {
            let end = (*top..area.height).find(|y| symbol(0, *y) == "└");
            end.is_some_and(|end| {
                (*top + 1..end).all(|y| symbol(0, y) == "│" && symbol(area.width - 1, y) == "│")
            })
        })
}

#[test]
fn every_view_renders_every_state_at_every_size() {
    for (state, tape) in states() {
        for keys in VIEWS {
            for size in SIZES {
                let (script, _) = play(
                    tape.timeline(),
                    None,
                    options(),
                    ScriptedHost::new(keys, size),
                );
                let shown = script.text();
                assert!(
                    has_intact_frame(&script),
                    "{state}, `{keys}` at {size:?}:\n{shown}"
                );
                let (first, last) = (shown.lines().next().unwrap(), shown.lines().last().unwrap());
                // A message covers the hints for a while.
                let has_hint = last.contains("? help") || keys.starts_with(':') || keys == "=";
                let has_hint = has_hint || last.contains("no unit is selected");
                assert!(
                    first.contains(' ') && has_hint,
                    "{state}, `{keys}` at {size:?}:\n{shown}"
                );
            }
        }
    }
}

#[test]
fn live_run_renders_in_every_view_at_every_size() {
    let tape = tape::running();
    for keys in VIEWS.iter().chain(&["ke", "/x", ":until "]) {
        for size in SIZES {
            let growing = tape.growing();
            let (commands, _orders) = mpsc::channel(8);
            let (_grows, changed) = watch::channel(0);
            let script = ScriptedHost::new(keys, size).after(Duration::from_secs(20));
            let (script, _) = play(
                growing.timeline,
                Some(live_handle(commands, changed)),
                options(),
                script,
            );
            assert!(
                has_intact_frame(&script),
                "`{keys}` at {size:?}:\n{}",
                script.text()
            );
        }
    }
}

/// Keys that open every view of a record.
const TOUR: &str = "<tab>gg<enter>llG<esc><esc>i2G3G4G5G1G<esc>=<esc>vz<esc><esc>C<esc>L<esc>c<enter><esc><esc>Sjlhk<esc>0w)}{$";

#[test]
fn every_capture_is_shown_in_every_view_at_every_size() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures");
    let mut seen = 0;
    for folder in [folder.clone(), folder.join("versions")] {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let Ok(source) = FileSource::open(&path) else {
                continue;
            };
            // Each capture is drawn at one size. The size changes from capture to capture, so all three are used often.
            let size = SIZES[seen % SIZES.len()];
            let (script, _) = play(
                Timeline::new(Box::new(source)),
                None,
                options(),
                ScriptedHost::new(TOUR, size),
            );
            let cells = script.terminal.backend().buffer().content();
            assert!(
                cells
                    .iter()
                    .all(|cell| !cell.symbol().chars().any(text::is_hidden)),
                "{}",
                path.display()
            );
            assert!(
                has_intact_frame(&script),
                "{} at {size:?}:\n{}",
                path.display(),
                script.text()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} captures");
}

/// The bytes that a terminal receives for a frame after another one.
fn bytes_between(before: &ScriptedHost, after: &ScriptedHost) -> usize {
    let (before, after) = (
        before.terminal.backend().buffer(),
        after.terminal.backend().buffer(),
    );
    let mut bytes = Vec::new();
    ratatui::backend::CrosstermBackend::new(&mut bytes)
        .draw(before.diff(after).into_iter())
        .unwrap();
    bytes.len()
}

#[test]
fn selection_move_writes_under_a_kilobyte_and_rest_nothing() {
    let tape = tape::running();
    let shown = |keys: &str, size| {
        play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new(keys, size),
        )
        .0
    };
    for size in SIZES {
        // In the wire, only the selection moves.
        for (before, after) in [
            ("i6gg", "i6ggj"),
            ("igg", "iggj"),
            ("<tab>gg", "<tab>ggj"),
            ("??", "??j"),
        ] {
            let bytes = bytes_between(&shown(before, size), &shown(after, size));
            // A step in the help scrolls all of it, and one in the inspector shows other details.
            let most = match before {
                "??" => 16 * 1024,
                // The result below the actions is that of the selected call.
                "<tab>gg" => 12 * 1024,
                "igg" => 8 * 1024,
                _ => 1024,
            };
            assert!(
                (1..=most).contains(&bytes),
                "`{after}` at {size:?}: {bytes} bytes"
            );
        }
        let (before, after) = (shown("i", size), shown("i<f24>", size));
        let (before, after) = (
            before.terminal.backend().buffer(),
            after.terminal.backend().buffer(),
        );
        assert!(before.diff(after).is_empty(), "a key without a binding");
    }
}

#[test]
fn session_and_capture_support_search_and_step_back() {
    let open = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/captures")
            .join(name);
        Timeline::new(Box::new(FileSource::open(&path).unwrap()))
    };
    for (name, query, found, back) in [
        // The last message ends the turn.
        (
            "ondisk_session.jsonl",
            "spans",
            "Reading two spans",
            "✓ 1 succeeded",
        ),
        ("success_tools.jsonl", "orders", "orders.yml", "▶ 1 running"),
    ] {
        let keys = format!("<tab>gg/{query}<enter>");
        let (script, _) = play(
            open(name),
            None,
            options(),
            ScriptedHost::new(&keys, (100, 30)),
        );
        assert!(
            script.text().contains(found) && !script.text().contains("not found"),
            "{}",
            script.text()
        );
        // Inspects the row that was found, then goes back from its end by one entry and by one action.
        let (script, _) = play(
            open(name),
            None,
            options(),
            ScriptedHost::new(&format!("{keys}<enter>"), (100, 30)),
        );
        assert!(
            script.text().contains(" inspector ") && script.text().contains(found),
            "{}",
            script.text()
        );
        let (script, exit) = play(
            open(name),
            None,
            options(),
            ScriptedHost::new(",,(", (100, 30)),
        );
        let state = &exit.timeline.view().state;
        assert!(
            script.text().contains(back) && state.entries < exit.timeline.known_entries() - 2,
            "{}",
            script.text()
        );
    }
}
