//! The text of a pull request for a run that commits to a branch for one: its report, in a file next to the tape.

use std::path::Path;

use super::{args::GlobalArgs, exit::CliError, prior_files, project};
use ingestdeck_core::{run::EntrySource as _, text::commands::PULL_REQUEST_FILE};
use ingestdeck_os::scoped_dir::{PRIVATE_MODE, ScopedDir};
use ingestdeck_records::replay::FileSource;
use ingestdeck_report::{self as report, ReportContext, ReportFormat};

/// Longest text in bytes: GitHub accepts 65,536 characters.
const MAX_BYTES: usize = 60_000;

/// Writes the report of a run that ended with a commit, with its secrets masked, to the file next to its tape.
///
/// # Errors
/// If the tape cannot be read or the file cannot be written.
pub(super) fn write_body(global: &GlobalArgs, tape: &Path) -> Result<(), CliError> {
    let source = FileSource::open(tape)?;
    let prior = prior_files::prior_results(global, source.info());
    let report = report::fold_report(source, false, prior)?;
    if report.publication.saved.is_none() {
        return Ok(());
    }
    let project = project::resolve_directory(global).ok();
    let (text, _) = report::render_masked(
        &report,
        ReportFormat::Md,
        &ReportContext::default(),
        project.as_deref(),
    );
    let failed = |error| {
        CliError::failed(format!(
            "cannot write {}: {error}",
            tape.with_file_name(PULL_REQUEST_FILE).display()
        ))
    };
    let dir = ScopedDir::open(tape.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    dir.write(
        PULL_REQUEST_FILE,
        shorten(&text, MAX_BYTES).as_bytes(),
        PRIVATE_MODE,
        0o600,
    )
    .map_err(failed)
}

/// The lines of `text` that fit into `most` bytes, and a remark if some do not.
fn shorten(text: &str, most: usize) -> String {
    const REMARK: &str = "\n*The report is longer; `ingestdeck report` shows all of it.*\n";
    if text.len() <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() + REMARK.len() > most {
            break;
        }
        kept.push_str(line);
    }
    kept + REMARK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_report_is_cut_between_lines() {
        assert_eq!(shorten("a\nb\n", 10), "a\nb\n");
        let cut = shorten(&"ä line\n".repeat(100), 200);
        assert!(cut.len() <= 200 && cut.starts_with("ä line\n"), "{cut}");
        let rows = cut.lines().take_while(|row| !row.is_empty());
        assert!(rows.into_iter().all(|row| row == "ä line"), "{cut}");
    }
}
