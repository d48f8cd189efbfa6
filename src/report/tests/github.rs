//! Workflow commands of GitHub Actions, as its runner reads them.

use super::{report_of, written};
use ingestdeck_core::run::{RunOutcome, RunReport};

/// The level, title and message of a workflow command, as the runner of GitHub reads it.
pub(super) fn workflow_command(line: &str) -> [String; 3] {
    let (head, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
    let (level, title) = head.split_once(" title=").unwrap();
    assert!(["error", "warning", "notice"].contains(&level), "{line}");
    assert!(!title.contains([':', ',']) && !message.is_empty(), "{line}");
    let decoded = |text: &str| {
        text.replace("%0A", "\n")
            .replace("%3A", ":")
            .replace("%2C", ",")
            .replace("%25", "%")
    };
    [level.to_owned(), decoded(title), decoded(message)]
}

#[test]
fn annotations_are_one_per_cause_and_bounded() {
    let mut report = report_of("tapes/real.jsonl");
    let commands = |report: &RunReport| -> Vec<[String; 3]> {
        written(report)[4].lines().map(workflow_command).collect()
    };
    let levels = |report: &RunReport| -> Vec<String> {
        let commands = commands(report).into_iter();
        commands.map(|[level, ..]| level).collect()
    };
    let causes = report.failure_groups.len();
    assert!(causes > 0);
    let count = levels(&report)
        .iter()
        .filter(|level| *level == "error")
        .count();
    assert_eq!(count, causes);
    // A text of an agent cannot begin a command.
    let group = &mut report.failure_groups[0];
    group.example = "100 %\n::error::forged\r\n::stop-commands::x".into();
    group.reason = "a,b::c\n::notice::d".into();
    let hostile = commands(&report);
    assert!(
        hostile[0][1].ends_with("a,b::c ⏎ ::notice::d"),
        "{hostile:?}"
    );
    assert!(
        hostile[0][2].contains("\n100 %\n::error::forged"),
        "{hostile:?}"
    );
    report.failure_groups = vec![report.failure_groups[0].clone(); 25];
    let many = commands(&report);
    let errors: Vec<_> = many.iter().filter(|[level, ..]| level == "error").collect();
    assert_eq!((errors.len(), errors[9][1].as_str()), (10, "16 more"));
    assert_eq!(errors[9][2].lines().count(), 16);
    // A spent budget is a warning, and changes that wait for a review are not lost.
    let mut done = report_of("tapes/demo.jsonl");
    assert_eq!(levels(&done), ["warning", "notice"]);
    done.units[0].is_unsaved = true;
    assert_eq!(levels(&done), ["error", "warning", "notice"]);
    done.outcome = RunOutcome::WaitingApproval;
    assert_eq!(levels(&done), ["warning", "notice"]);
}
