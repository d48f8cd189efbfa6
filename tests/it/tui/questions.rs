//! All questions of the screen: a letter has the same meaning in each of them, Enter is harmless, and no answer is hidden.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use tokio::sync::{mpsc, watch};

use super::{
    hold, home, review,
    scripted_host::{ScriptedHost, live_handle, options, play},
    tape::{self, TapeFixture},
};
use ingestdeck_core::{
    control::{DisconnectAction, RunCommand},
    run::Timeline,
    tape::{
        Note,
        note::{ReviewDecision, RunEnded},
    },
};
use ingestdeck_records::replay::FileSource;
use ingestdeck_tui::{
    ExitReason, FirstPage, HomeChoice, HomeSources, KeyOverrides, Keymap, Options,
};

const SIZES: [(u16, u16); 5] = [(40, 12), (60, 20), (80, 24), (120, 36), (200, 60)];

/// What a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// The act that the question is about.
    Act,
    Leave,
    Stop,
}

/// The only meaning that each key may have in a question.
const MEANINGS: [(&str, Effect); 6] = [
    ("y", Effect::Act),
    ("d", Effect::Leave),
    ("S", Effect::Stop),
    ("<esc>", Effect::Nothing),
    ("n", Effect::Nothing),
    ("q", Effect::Nothing),
];

/// How a question is reached.
struct Asked {
    name: &'static str,
    /// The file with the code that asks.
    file: &'static str,
    tape: TapeFixture,
    /// What leaving does; `None` for a run that ends with its screen.
    leave: Option<DisconnectAction>,
    kind: Kind,
    keys: &'static str,
    /// The keys that answer it, besides those that leave everything as it is.
    answers: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Live,
    /// A record of a run of the project.
    Record,
    Home,
}

impl Asked {
    fn live(name: &'static str, file: &'static str, tape: TapeFixture, keys: &'static str) -> Self {
        Self {
            name,
            file,
            tape,
            leave: None,
            kind: Kind::Live,
            keys,
            answers: &["y"],
        }
    }

    /// The screen after the question and `more` keys, and the effect of these.
    fn play(&self, more: &str, size: (u16, u16), options: Options) -> (ScriptedHost, Effect) {
        let (commands, mut orders) = mpsc::channel(50);
        let (_grows, changed) = watch::channel(0);
        let script =
            ScriptedHost::new(&format!("{}{more}", self.keys), size).after(Duration::from_secs(20));
        let (script, exit) = match self.kind {
            Kind::Live => {
                let mut live = live_handle(commands, changed);
                live.engine.as_mut().unwrap().leave_action = self.leave;
                play(self.tape.growing().timeline, Some(live), options, script)
            }
            Kind::Record => {
                let project = Some(Path::new("/nowhere").to_owned());
                play(
                    self.tape.timeline(),
                    None,
                    Options { project, ..options },
                    script,
                )
            }
            Kind::Home => {
                let timeline =
                    Timeline::new(Box::new(FileSource::open(Path::new("/dev/null")).unwrap()));
                play(
                    timeline,
                    None,
                    Options {
                        first_page: FirstPage::Home(HomeSources {
                            content: tokio::sync::watch::channel(home::idle()).1,
                            search: None,
                        }),
                        ..options
                    },
                    script,
                )
            }
        };
        let sent: Vec<RunCommand> = std::iter::from_fn(|| orders.try_recv().ok()).collect();
        let effect = match exit.reason {
            ExitReason::Detached => Effect::Leave,
            // A second Enter opens the record that is selected.
            ExitReason::Chosen(HomeChoice::Replay(_)) => Effect::Nothing,
            ExitReason::Chosen(_) => Effect::Act,
            _ if sent.contains(&RunCommand::StopAll) => Effect::Stop,
            _ if sent.is_empty() => Effect::Nothing,
            _ => Effect::Act,
        };
        (script, effect)
    }
}

/// Every question of the product.
fn questions() -> Vec<Asked> {
    let paused = || {
        let mut tape = tape::running();
        tape.note(None, &Note::RunPaused);
        tape
    };
    let limited = || {
        let mut tape = tape::running();
        tape.note(
            None,
            &Note::LimitPaused {
                until: None,
                limit: "5h".into(),
                wait_ms: Some(60_000),
            },
        );
        tape
    };
    let ended = || {
        let mut tape = TapeFixture::new("orbit", false);
        tape.plan(&["a", "b"])
            .start("a", 1)
            .wait(10)
            .end("a", 1, 2)
            .start("b", 1)
            .wait(10)
            .end("b", 1, 1);
        tape.note(
            None,
            &Note::RunEnded(RunEnded {
                outcome: "partial".into(),
                ..RunEnded::default()
            }),
        );
        tape
    };
    let waiting = || review::waiting(review::three_files());
    let reviewed = || review::decided_as(ReviewDecision::Accepted);
    let leave = [
        Some(DisconnectAction::Continue),
        Some(DisconnectAction::Stop),
        None,
    ];
    let leaving = leave.into_iter().flat_map(|leave| {
        [
            (tape::running(), "leaving a run"),
            (waiting(), "leaving a review"),
        ]
        .map(|(tape, name)| Asked {
            leave,
            answers: if leave.is_some() { &["d", "S"] } else { &["S"] },
            ..Asked::live(name, "actions/screen.rs", tape, "q")
        })
    });
    let record = |name, keys| Asked {
        kind: Kind::Record,
        ..Asked::live(name, "actions/rerun.rs", ended(), keys)
    };
    let start = |name, keys| Asked {
        kind: Kind::Home,
        ..Asked::live(name, "pages/home/actions.rs", tape::running(), keys)
    };
    let live = Asked::live;
    let mut all = vec![
        live("release", "actions/hold.rs", hold::held(), "<space>"),
        live("retry a unit", "actions/units.rs", tape::running(), "kr"),
        live("retry all", "actions/units.rs", tape::running(), "R"),
        live("end a pause", "actions/units.rs", paused(), "p"),
        live("stop a unit", "actions/units.rs", tape::running(), "x"),
        live(
            "stop marked units",
            "actions/units.rs",
            tape::running(),
            "gg****x",
        ),
        live("do not wait", "actions/units.rs", limited(), "u"),
        live(
            "retry a group",
            "actions/group_retry.rs",
            tape::running(),
            "Cr",
        ),
        live("end a review", "pages/review/actions.rs", reviewed(), "g"),
        record("new run of a unit", "r"),
        record("new run of what is left", "R"),
        start("start a run", "gn"),
    ];
    all.extend(leaving);
    all
}

#[test]
fn letters_have_one_meaning_in_all_questions() {
    for asked in questions() {
        for (key, meaning) in MEANINGS {
            let effect = asked.play(key, (120, 36), options()).1;
            let expected = if asked.answers.contains(&key) {
                meaning
            } else {
                Effect::Nothing
            };
            assert_eq!(effect, expected, "{key} in the question: {}", asked.name);
        }
    }
}

#[test]
fn enter_is_harmless_in_all_questions() {
    for asked in questions() {
        let effect = asked.play("<enter>", (120, 36), options()).1;
        let harmless = if asked.answers.contains(&"d") {
            Effect::Leave
        } else {
            Effect::Nothing
        };
        assert_eq!(effect, harmless, "{}", asked.name);
        // A key that is held down answers nothing else.
        let repeated = asked.play("<enter><enter><enter>", (120, 36), options()).1;
        assert_eq!(repeated, harmless, "{}", asked.name);
    }
}

#[test]
fn all_answers_are_visible_at_every_size() {
    for asked in questions() {
        for size in SIZES {
            let text = asked.play("", size, options()).0.text();
            let bar = text.lines().last().unwrap_or_default();
            let no = if asked.answers.contains(&"d") {
                "Esc "
            } else {
                "Esc/Enter "
            };
            for answer in asked.answers.iter().copied().chain([no]) {
                let answer = if answer == "d" {
                    "d/Enter leave"
                } else {
                    answer
                };
                assert!(
                    bar.contains(answer),
                    "{answer} at {size:?} in the hints of: {}\n{text}",
                    asked.name
                );
                let body = &text[..text.len() - bar.len()];
                let key = answer.split(' ').next().unwrap_or_default();
                assert!(
                    body.contains(key),
                    "{answer} at {size:?} in the question: {}\n{text}",
                    asked.name
                );
            }
        }
    }
}

#[test]
fn other_keys_and_pastes_answer_nothing() {
    use ingestdeck_tui::host::HostInput;
    let asked = &questions()[0];
    for key in ('!'..='~')
        .filter(|key| !"ynqdS<".contains(*key))
        .map(String::from)
    {
        let (script, effect) = asked.play(&key, (120, 36), options());
        assert_eq!(effect, Effect::Nothing, "{key}");
        assert!(
            script.text().contains("Release"),
            "{key} leaves the question open: {}",
            script.text()
        );
    }
    let (commands, mut orders) = mpsc::channel(50);
    let (_grows, changed) = watch::channel(0);
    let script = ScriptedHost::new("q", (120, 36))
        .input(HostInput::Paste("ySd\ny".into()))
        .keys("");
    let (script, _) = play(
        tape::running().growing().timeline,
        Some(live_handle(commands, changed)),
        options(),
        script,
    );
    assert!(
        orders.try_recv().is_err() && script.text().contains("stop all and quit"),
        "{}",
        script.text()
    );
}

#[test]
fn answers_follow_the_keys_of_the_user() {
    let overrides: KeyOverrides = toml::from_str(
        "leave-run = 'L'\nstop-run = 'X'\nconfirm = '<enter>'\nharmless-answer = []",
    )
    .unwrap();
    let keys = || Options {
        keymap: Keymap::new(&overrides).unwrap(),
        ..options()
    };
    let leaving = questions()
        .into_iter()
        .find(|asked| asked.answers.len() == 2)
        .unwrap();
    let (script, _) = leaving.play("", (80, 24), keys());
    let bar = script.text().lines().last().unwrap().to_owned();
    assert!(
        bar.contains("L leave") && bar.contains("X stop") && bar.contains("Esc stay"),
        "{bar}"
    );
    for (key, effect) in [
        ("d", Effect::Nothing),
        ("S", Effect::Nothing),
        ("L", Effect::Leave),
        ("X", Effect::Stop),
    ] {
        assert_eq!(leaving.play(key, (80, 24), keys()).1, effect, "{key}");
    }
    // Two meanings of one key are refused, and a former name has no effect.
    let errors = |text: &str| {
        Keymap::new(&toml::from_str(text).unwrap())
            .err()
            .map(|errors| errors.len())
    };
    assert_eq!(errors("stop-run = 'd'"), Some(1));
    assert_eq!(errors("confirm = ['y', '<enter>']"), Some(1));
    assert_eq!(errors("stop-run = []"), Some(1));
    assert_eq!(errors("choose-other = 'o'"), None);
}

/// A new question needs a case above.
#[test]
fn every_question_of_the_code_is_covered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui");
    let mut asking = BTreeMap::new();
    let mut paths = vec![folder.join("actions"), folder.join("pages")];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(
                fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let count = text.matches("ConfirmQuestion::new(").count()
            + text.matches("ConfirmQuestion { text,").count();
        if count > 0 {
            let name = path.strip_prefix(&folder).unwrap();
            asking.insert(name.to_string_lossy().into_owned(), count);
        }
    }
    let mut covered = BTreeMap::<String, usize>::new();
    for asked in questions() {
        *covered.entry(asked.file.to_owned()).or_default() += 1;
    }
    // Leaving has a case for each state of the run.
    covered.insert("actions/screen.rs".to_owned(), 1);
    assert_eq!(asking, covered);
}

/// The answers of a question whose subject ends meanwhile do nothing, and none of them reaches the view below.
#[test]
fn question_without_its_subject_has_no_answer() {
    let before = tape::running();
    let mut after = tape::running();
    after.end("dbt-all", 1, 0);
    for keys in ["xy", "xyy", "xr", "xdS"] {
        let growing = before.growing();
        let (commands, mut orders) = mpsc::channel(8);
        let (grows, changed) = watch::channel(0);
        let (first, rest) = keys.split_at(1);
        let script = ScriptedHost::new(first, (120, 36))
            .after(Duration::from_secs(20))
            .grows(growing.more(&before, &after), grows)
            .keys_after_growth(rest);
        let (script, exit) = play(
            growing.timeline,
            Some(live_handle(commands, changed)),
            options(),
            script,
        );
        assert!(orders.try_recv().is_err(), "{keys}");
        assert_eq!(exit.reason, ExitReason::Closed, "{keys}");
        let text = script.text();
        assert!(
            text.contains("No longer possible: it has ended") && text.contains("Esc/Enter close"),
            "{keys}: {text}"
        );
    }
}
