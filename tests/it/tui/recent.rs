//! The page of the last minutes: the actions of all units before the moment that is shown.

use std::time::Duration;

use ingestdeck_core::tape::note::Severity;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::{
    screens::{SIZES, shown},
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::TapeFixture,
};

/// Three units over 20 minutes: one that ended early, one that failed and was retried, and one whose call still runs.
fn units() -> TapeFixture {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["dbt-staging", "docs-glossary", "docs-pricing"]);
    tape.start("dbt-staging", 1).wait(1000);
    tape.say("dbt-staging", 1, "An early text.")
        .wait(1000)
        .end("dbt-staging", 1, 0);
    tape.start("docs-glossary", 1).start("docs-pricing", 1);
    tape.wait(60_000);
    let pattern = json!({"pattern": "revenue"});
    tape.call("docs-pricing", 1, "long", "wiki_search", &pattern);
    tape.wait(600_000);
    let page = json!({"key": "glossary", "text": "# Glossary"});
    tape.call("docs-glossary", 1, "bad", "wiki_write", &page)
        .wait(200);
    let why = "`text` is not a field";
    tape.result("docs-glossary", 1, "bad", why, true).wait(800);
    tape.end("docs-glossary", 1, 1).wait(10_000);
    tape.message(None, Severity::Warning, "five_hour: 95 % of the limit");
    tape.start("docs-glossary", 2).wait(20_000);
    tape.say("docs-glossary", 2, "The field is `content`.");
    tape
}

#[test]
fn last_minutes_of_a_record_are_rendered() {
    for size in SIZES {
        let name = format!("recent_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, shown(units().timeline(), "gm", size));
    }
}

#[test]
fn last_minute_of_a_live_run_follows_its_clock() {
    let page = |seconds| {
        let (commands, _orders) = mpsc::channel(8);
        let (_grows, changed) = watch::channel(0);
        let script = ScriptedHost::new("gm", (120, 36)).after(Duration::from_secs(seconds));
        let live = live_handle(commands, changed);
        play(units().growing().timeline, Some(live), options(), script)
            .0
            .text()
    };
    let now = page(700);
    assert!(now.contains("last 1m, since 10:40"), "{now}");
    assert!(now.contains("wiki_write glossary"), "{now}");
    assert!(!now.contains("An early text."), "{now}");
    let later = page(770);
    assert!(later.contains("last 1m, since 11:50"), "{later}");
    // Only the call that still runs.
    assert!(later.contains("· 1 row "), "{later}");
    assert!(later.contains("wiki_search"), "{later}");
}

#[test]
fn time_is_changed_by_keys_and_by_its_command() {
    let screen = |keys| shown(units().timeline(), keys, (120, 36));
    assert!(screen("gm").contains("last 5m, since "));
    assert!(screen("gmh").contains("last 10m, since "));
    assert!(screen("gmll").contains("last 1m, since "));
    let typed = screen(":last 20m<enter>");
    assert!(typed.contains("last 20m, since 00:00"), "{typed}");
    assert!(typed.contains("An early text."), "{typed}");
    // The page that is open changes, and closes with one key.
    assert!(screen("gm:last 90s<enter>").contains("last 1m 30s, since "));
    assert!(screen("gm:last 90s<enter><esc>").contains(" units "));
    assert!(screen("gmgm").contains(" units "));
}

#[test]
fn moment_in_the_past_has_other_last_minutes() {
    let past = shown(units().timeline(), ":30s<enter>gm", (120, 36));
    assert!(past.contains("An early text."), "{past}");
    assert!(!past.contains("wiki_search"), "{past}");
}

#[test]
fn action_opens_in_the_inspector_and_back() {
    let screen = |keys| shown(units().timeline(), keys, (120, 36));
    let inspector = screen("gm]<enter>");
    let title = "docs-glossary failed inspector";
    assert!(inspector.contains(title), "{inspector}");
    assert!(inspector.contains("`text` is not a field"), "{inspector}");
    assert!(screen("gm]<enter><esc>").contains("last 5m, since "));
    let log = screen("gm][<enter>");
    assert!(
        log.contains("log") && log.contains("95 % of the limit"),
        "{log}"
    );
}

#[test]
fn filter_of_the_table_applies_to_the_last_minutes() {
    let screen = |keys| shown(units().timeline(), keys, (120, 36));
    let one = screen("gmFpricing<enter>");
    assert!(one.contains("\"pricing\" only"), "{one}");
    assert!(
        one.contains("wiki_search") && !one.contains("wiki_write"),
        "{one}"
    );
    let none = screen(":last 10s<enter>Fstaging<enter>");
    assert!(none.contains("none of these units did anything"), "{none}");
}

#[test]
fn last_minutes_name_the_rows_that_are_left_out() {
    let mut tape = TapeFixture::new("orbit", false);
    tape.plan(&["docs-glossary"]).start("docs-glossary", 1);
    for text in 0..2100 {
        tape.wait(10)
            .say("docs-glossary", 1, &format!("text {text}"));
    }
    let screen = shown(tape.timeline(), "gm", (120, 36));
    // The start of the attempt and the end of the record are rows, too.
    assert!(
        screen.contains("2000 rows, 102 earlier left out"),
        "{screen}"
    );
    assert!(
        screen.contains("text 2099") && screen.contains(" 2000/2000 "),
        "{screen}"
    );
    let first = shown(tape.timeline(), "gmgg", (120, 36));
    assert!(
        first.contains("text 101") && first.contains(" 1/2000 "),
        "{first}"
    );
}

#[test]
fn record_without_times_has_no_last_minutes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/captures/control_protocol_stdin.jsonl");
    let source = ingestdeck_records::replay::FileSource::open(&path).unwrap();
    let timeline = ingestdeck_core::run::Timeline::new(Box::new(source));
    let screen = shown(timeline, "gm", (80, 24));
    assert!(screen.contains("this record has no times"), "{screen}");
}
