//! Commands of this program in sentences for people, as words of a shell.

use std::path::Path;

/// Widest title of a pull request, in columns; GitHub cuts longer ones.
const MAX_TITLE_WIDTH: usize = 250;
/// Name of the file with the text of a pull request, in the directory of its run.
pub const PULL_REQUEST_FILE: &str = "pull-request.md";

/// The command that resumes `run`.
pub fn resume_command(project: Option<&Path>, run: &str) -> String {
    format!(
        "ingestdeck run{} --resume-run {run}",
        project_dir_flag(project)
    )
}

/// The command that decides about the changes of a run.
pub fn review_command(project: Option<&Path>, run: &str) -> String {
    format!("ingestdeck review{} {run}", project_dir_flag(project))
}

/// The commands that make a pull request of `branch` for the run with this `tape`.
pub fn pull_request_commands(branch: &str, subject: &str, tape: &Path) -> String {
    let branch = shell_quote(branch);
    // What follows is for programs; earlier releases had another word after the job.
    let title = subject.split(" diff=").next().unwrap_or_default();
    let title = title.split(" syncId=").next().unwrap_or_default();
    let title = shell_quote(&super::printable(title, MAX_TITLE_WIDTH));
    let body = shell_quote(&tape.with_file_name(PULL_REQUEST_FILE).display().to_string());
    format!(
        "  git push -u origin {branch}\n  gh pr create --head {branch} --title {title} --body-file {body}\n"
    )
}

/// The sentence about a run that a client left, with the commands that reach it.
pub fn detached_run(project: Option<&Path>, run: &str) -> String {
    format!("run {run} continues; {}", active_run_commands(project, run))
}

/// The commands that show and stop an active run, in a sentence.
pub fn active_run_commands(project: Option<&Path>, run: &str) -> String {
    let flag = project_dir_flag(project);
    format!(
        "`ingestdeck attach{flag} {run}` shows it, `ingestdeck ctl{flag} --run {run} stop-all` stops it"
    )
}

/// The sentence about a run that was started in the background.
pub fn background_run(project: Option<&Path>, run: &str, pid: u32) -> String {
    let flag = project_dir_flag(project);
    format!(
        "run {run} started, process {pid}\n  ingestdeck attach{flag} {run}\n  ingestdeck ctl{flag} --run {run} status"
    )
}

/// The flag that names `project`, after a space; empty without one.
pub fn project_dir_flag(project: Option<&Path>) -> String {
    project
        .map(|project| {
            format!(
                " --project-dir {}",
                shell_quote(&project.display().to_string())
            )
        })
        .unwrap_or_default()
}

/// Quotes `text` as one word of a shell.
pub fn shell_quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@%+=:,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted() {
        assert_eq!(shell_quote("a 'b'; c"), r"'a '\''b'\''; c'");
        assert_eq!(shell_quote("docs/a.md"), "docs/a.md");
    }
}
