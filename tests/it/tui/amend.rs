//! A new attempt with changes to the last one: the form, the command that it sends, and how the attempt is shown
//! afterwards.

use std::time::Duration;

use ingestdeck_core::{
    control::RunCommand,
    tape::{
        Note,
        note::{Amendment, AttemptStarted},
    },
};
use ingestdeck_tui::{
    edited_text::UnusableEdit,
    host::{HostInput, ToolExit},
};
use tokio::sync::{mpsc, watch};

use super::{
    screens::SIZES,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};

const SIZE: (u16, u16) = (120, 36);
const UNIT: &str = "notion-revenue-policy";

fn live(tape: &TapeFixture, script: ScriptedHost) -> (ScriptedHost, Vec<RunCommand>) {
    let growing = tape.growing();
    let (commands, mut orders) = mpsc::channel(8);
    let (_grows, changed) = watch::channel(0);
    let script = script.after(Duration::from_secs(20));
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

/// Selects the failed unit, which is the first one.
fn keys(keys: &str) -> (ScriptedHost, Vec<RunCommand>) {
    live(&tape::running(), ScriptedHost::new(keys, SIZE))
}

fn asked(amendment: Amendment) -> RunCommand {
    RunCommand::Retry {
        unit: UNIT.into(),
        amendment: Some(amendment),
    }
}

#[test]
fn feedback_reaches_the_run() {
    let (script, given) = keys("gge");
    assert!(
        given.is_empty()
            && script
                .text()
                .contains("new attempt at notion-revenue-policy"),
        "{}",
        script.text()
    );
    let (script, given) = keys("ggeUse<space>the<enter>glossary.<c-s>");
    let feedback = Some("Use the\nglossary.".to_owned());
    assert!(
        matches!(&given[..], [RunCommand::Retry { amendment: Some(given), .. }] if given.feedback == feedback)
    );
    assert!(
        script
            .text()
            .contains("new attempt at notion-revenue-policy: "),
        "{}",
        script.text()
    );
    let (script, given) = keys("ggex<esc>");
    assert!(
        given.is_empty() && !script.text().contains("new attempt at"),
        "{}",
        script.text()
    );
    assert_eq!(
        keys("ggex<c-c>").1,
        [RunCommand::Drain],
        "Ctrl-C works in the form"
    );
}

#[test]
fn model_budget_and_session_are_chosen_field_by_field() {
    let (_, given) = keys("gge<tab><c-a><c-k>opus<enter><c-a><c-k>60<tab><space><a-enter>");
    let session = Some(format!("5e55-{UNIT}-1"));
    let amendment = Amendment {
        model: Some("opus".into()),
        step_budget: Some(60),
        resume: session,
        ..Amendment::default()
    };
    assert_eq!(given, [asked(amendment)]);
    let (script, given) = keys("gge<tab><tab><c-a><c-k>0<c-s>");
    assert!(
        given.is_empty() && script.text().contains("expected 1 to 10000"),
        "{}",
        script.text()
    );
    let (_, given) = keys("gge<tab><tab><c-a><c-k>0<c-s><c-a><c-k>41<c-s>");
    assert!(
        matches!(&given[..], [RunCommand::Retry { amendment: Some(given), .. }] if given.step_budget == Some(41))
    );
}

#[test]
fn running_unit_cannot_be_amended() {
    for (tape, keys, why) in [
        (tape::running(), "e", "dbt-all is running; stop it first"),
        (tape::running(), "Gke", "lookml-dashboard-exec is queued"),
    ] {
        let (script, given) = live(&tape, ScriptedHost::new(keys, SIZE));
        assert!(
            given.is_empty() && script.text().contains(why),
            "{}",
            script.text()
        );
    }
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options(),
        ScriptedHost::new("gge", SIZE),
    );
    assert!(
        script.text().contains("run 7f3a2b is of another project"),
        "{}",
        script.text()
    );
}

#[test]
fn pasted_feedback_is_escaped() {
    let script = ScriptedHost::new("gge", SIZE).input(HostInput::Paste(
        "no\u{1b}[31m drafts\r\nplease\u{202e}".into(),
    ));
    let (script, _) = live(&tape::running(), script);
    assert!(
        script.text().contains("no[31m drafts") && script.text().contains("please"),
        "{}",
        script.text()
    );
    assert!(!script.text().contains('\u{202e}'));
}

#[test]
fn form_fits_every_size() {
    for size in SIZES {
        let shown = |keys: &str| {
            live(&tape::running(), ScriptedHost::new(keys, size))
                .0
                .text()
        };
        insta::assert_snapshot!(
            format!("form_{}x{}", size.0, size.1),
            shown("ggeUse<space>the<space>glossary.")
        );
        insta::assert_snapshot!(
            format!("form_wrong_{}x{}", size.0, size.1),
            shown("gge<tab><tab><c-a><c-k>many<c-s>")
        );
    }
    for size in [(20, 5), (25, 7), (300, 100)] {
        live(
            &tape::running(),
            ScriptedHost::new("gge<tab><tab><tab><space><c-s>", size),
        );
    }
}

#[test]
fn replay_shows_the_amendment() {
    let amendment = Amendment {
        message: None,
        feedback: Some("Use the\nglossary.\u{202e}".into()),
        model: Some("opus".into()),
        step_budget: Some(60),
        resume: Some(format!("5e55-{UNIT}-1")),
    };
    let mut tape = tape::running();
    let note = Note::RetryRequested {
        next: 2,
        amendment: Some(amendment.clone()),
    };
    tape.note(Some((UNIT, 1)), &note).wait(10);
    let started = AttemptStarted {
        model: Some("opus".into()),
        step_budget: 60,
        amendment: Some(amendment),
        ..AttemptStarted::default()
    };
    tape.note(Some((UNIT, 2)), &Note::AttemptStarted(Box::new(started)))
        .wait(10);
    let screen = |keys: &str| {
        play(
            tape.timeline(),
            None,
            options(),
            ScriptedHost::new(keys, (140, 36)),
        )
        .0
        .text()
    };
    let stream = screen("gg");
    let wanted = "continues the session · requested: model opus, 60 turns, feedback: Use";
    assert!(stream.contains(wanted), "{stream}");
    assert!(
        stream.contains("the session ends here without a result line"),
        "{stream}"
    );
    let transcript = screen("gg<enter>6");
    assert!(
        transcript.contains("0 tools · continues the session · requested: model opus"),
        "{transcript}"
    );
    let log = screen("L");
    assert!(
        log.contains(
            "retry requested: attempt 2, same session, model opus, 60 turns, feedback: Use the"
        ),
        "{log}"
    );
    assert!(!(stream + &log).contains('\u{202e}'));
}

#[test]
fn feedback_is_edited_in_another_program() {
    let edited = |text: Result<&str, UnusableEdit>, keys: &str| {
        let mut script = ScriptedHost::new(keys, SIZE);
        script.opened = Ok(ToolExit {
            signal: None,
            edited: Some(text.map(str::to_owned)),
        });
        live(&tape::running(), script)
    };
    let (script, given) = edited(Ok("Use the\nglossary.\u{202e}\n"), "ggeold<c-o><c-s>");
    assert_eq!(script.handouts.len(), 1);
    assert_eq!(script.handouts[0].bytes, b"old");
    let feedback = Some("Use the\nglossary.".to_owned());
    assert!(
        matches!(&given[..], [RunCommand::Retry { amendment: Some(given), .. }] if given.feedback == feedback)
    );
    // From another field, the feedback is edited as well.
    let (_, given) = edited(Ok("shorter"), "gge<tab><c-o><c-s>");
    assert!(
        matches!(&given[..], [RunCommand::Retry { amendment: Some(given), .. }] if given.feedback.as_deref() == Some("shorter"))
    );
    let unusable = UnusableEdit {
        reason: "not UTF-8".into(),
        file: Some("/tmp/ingestdeck-1.txt".into()),
    };
    let (script, given) = edited(Err(unusable), "ggeold<c-o>");
    let shown = "not UTF-8; your text is not used, and kept in /tmp/ingestdeck-1.txt";
    assert!(
        given.is_empty() && script.text().contains(shown),
        "{}",
        script.text()
    );
    assert!(
        script.text().contains("old"),
        "the typed text stays: {}",
        script.text()
    );
}

#[test]
fn form_shows_why_the_last_attempt_failed() {
    let reason = keys("gg").0.text();
    let reason = reason
        .lines()
        .find_map(|line| Some(line.split_once("✗ failed: ")?.1.to_owned()))
        .unwrap();
    let start: String = reason.chars().take(30).collect();
    let text = keys("gge").0.text();
    let form = text
        .lines()
        .skip_while(|line| !line.contains("new attempt at"));
    let form: Vec<_> = form.take(3).collect();
    assert!(form[1].contains(start.trim_end()), "{start}\n{text}");
    assert!(
        form.iter().any(|line| line.contains("feedback: ")),
        "{text}"
    );
}

#[test]
fn requested_retry_is_shown_until_it_starts() {
    let asked = |feedback: Option<&str>| {
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&["u"]).start("u", 1).wait(500);
        tape.end("u", 1, 1).wait(100);
        let amendment = feedback.map(|feedback| Amendment {
            feedback: Some(feedback.into()),
            ..Amendment::default()
        });
        tape.note(Some(("u", 1)), &Note::RetryRequested { next: 2, amendment });
        tape
    };
    let shown = |tape: &TapeFixture| live(tape, ScriptedHost::new("", SIZE)).0.text();
    let text = shown(&asked(Some("cite")));
    let waits = text.matches("retry 2 waits, with feedback").count();
    assert_eq!(waits, 2, "in the table and in the pane:\n{text}");
    let text = shown(&asked(None));
    assert_eq!(text.matches("retry 2 waits").count(), 2, "{text}");
    assert!(!text.contains("with feedback"), "{text}");
    let mut started = asked(Some("cite"));
    started.start("u", 2);
    let text = live(&started, ScriptedHost::new("A", SIZE)).0.text();
    assert!(!text.contains("retry 2 waits"), "{text}");
}
