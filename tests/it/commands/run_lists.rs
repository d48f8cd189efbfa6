//! `runs list` with conditions, orders and saved views.

use serde_json::Value;

use super::{
    end_to_end::writes,
    test_dir::{CommandOutput, TestDir},
};

/// The short ids of the listed runs.
fn listed(place: &TestDir, args: &[&str]) -> Vec<String> {
    let list = place.run(&[&["runs", "list", "--ui", "json"][..], args].concat());
    let runs = list.expect_success().lines();
    runs.map(|line| {
        let run: Value = serde_json::from_str(line).unwrap();
        run["run"].as_str().unwrap().to_owned()
    })
    .collect()
}

fn ran(place: &TestDir, unit: &str, content: &str) -> CommandOutput {
    let script = format!(
        "[usd_per_million]\ninput = 1000.0\noutput = 1000.0\n{}{}",
        writes("docs-one", "one.md", "one", content),
        "[[part]]\nunit = \"docs-two\"\nsteps = [{ call = { tool = \"wiki_read\", with = { key = 7 } } }, { say = \"Done.\" }]\n"
    );
    let claude = place.scripted_claude(&script).display().to_string();
    place.run(&[
        "run",
        "--ui",
        "none",
        "--no-reconcile",
        "--only",
        unit,
        "--claude-bin",
        &claude,
    ])
}

#[test]
fn runs_are_filtered_sorted_and_kept_as_views() {
    let place = TestDir::new();
    place.notes(&["one", "two"]);
    let good = ran(&place, "docs-one", "As it is.");
    assert_eq!(good.code, Some(0), "{good:?}");
    assert_ne!(ran(&place, "docs-two", "").code, Some(0));
    let all = listed(&place, &[]);
    let [bad, good] = &all[..] else {
        panic!("two runs: {all:?}")
    };
    for (args, expected) in [
        (&["outcome:done"][..], vec![good]),
        (&["outcome:error,partial"], vec![bad]),
        (&["since:1d", "cost>0.075"], vec![good]),
        (&["until:1d"], vec![]),
        (&["unit:docs-*", "source:notes"], vec![bad, good]),
        (&["unit:two"], vec![bad]),
        (&["--sort", "cost"], vec![good, bad]),
        (&["--reverse"], vec![good, bad]),
    ] {
        let found = listed(&place, args);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{args:?}");
    }
    let saved = ["unit:docs-*", "--sort", "cost", "--save-view", "dear"];
    assert_eq!(listed(&place, &saved), [good.clone(), bad.clone()]);
    assert_eq!(
        listed(&place, &["--view", "dear"]),
        [good.clone(), bad.clone()]
    );
    assert_eq!(
        listed(&place, &["--view", "dear", "outcome:error"]),
        std::slice::from_ref(bad)
    );
    let none = place.run(&["runs", "list", "duration>1h"]);
    let text = "no run fulfils `duration>1h`; there are 2 recorded runs\n";
    assert_eq!(none.expect_success(), text);
    place
        .run(&["runs", "list", "--delete-view", "dear"])
        .expect_success();
    let gone = place.run(&["runs", "list", "--view", "dear"]);
    assert_eq!(gone.code, Some(2));
    assert!(
        gone.stderr.contains("no view `dear`") && gone.stderr.contains("--save-view NAME"),
        "{gone:?}"
    );
    let wrong = place.run(&["runs", "list", "luck:7"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong
            .stderr
            .contains("`luck:7` is not a condition; expected outcome:done, since:7d"),
        "{wrong:?}"
    );
}
