//! Integrating thousands of patches: the time for the last of them against the first, which must not depend on the number
//! of pages.

use std::{fs, time::Instant};

use ingestdeck_ingest::{
    integrate::{PatchIntegrator, UnitPatch},
    repository::Repository,
    worktree::Worktrees,
};

use crate::{
    harness::{BenchReport, BenchResult, FigureGoal, Sample, Threshold},
    measured_process::{ProbeOutput, argument, is_installed, run},
    project,
};

const PATCHES: u32 = 2_000;
/// Number of patches at each end that are compared.
const COMPARED: usize = 100;

pub(crate) fn measure(report: &mut BenchReport) -> BenchResult<()> {
    let name = format!("integrating {PATCHES} patches: the last {COMPARED} / the first {COMPARED}");
    if !is_installed("git") {
        report.note_missing_program("git", &name);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    project::of_documents(folder.path(), 1)?;
    let script = "cd \"$1\" && git init --quiet && git add --all && git -c user.name=bench -c user.email=bench@localhost \
                  commit --quiet --no-verify -m First";
    run(
        "sh",
        &["-c", script, "sh", argument(folder.path())?],
        ProbeOutput::Null,
    )?;
    let repository = Repository::find(folder.path())?.ok_or("the project has no repository")?;
    repository.ignore_state_dirs()?;
    let head = repository.check_ready(&[], true)?.commit;
    let worktrees = Worktrees::new(repository, "local-bench", &head);
    let patches = folder.path().join(".ktx/ingest-patches");
    fs::create_dir_all(&patches)?;
    let patch = |number: u32| {
        let page = format!("wiki/global/page-{number:05}.md");
        let lines =
            format!("+---\n+summary: Page {number}\n+---\n+\n+Text of the page {number}.\n");
        let (none, some) = ("0".repeat(40), "1".repeat(40));
        let text = format!(
            "diff --git a/{page} b/{page}\nnew file mode 100644\nindex {none}..{some}\n--- /dev/null\n+++ b/{page}\n@@ -0,0 \
             +1,5 @@\n{lines}"
        );
        let file = patches.join(format!("{number}.patch"));
        fs::write(&file, text)?;
        Ok(UnitPatch {
            unit: format!("unit-{number}").as_str().into(),
            file: Some(file),
            source_connections: Vec::new(),
            targets: Vec::new(),
        })
    };
    let patches = (0..PATCHES).map(patch).collect::<BenchResult<Vec<_>>>()?;
    let mut integrator = PatchIntegrator::open(&worktrees, Vec::new())?;
    let mut seconds = Vec::new();
    for patch in &patches {
        let began = Instant::now();
        integrator.apply_next(patch)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    if integrator.refused_count() > 0 || integrator.changed_paths().count() != patches.len() {
        return Err("not every patch was accepted".into());
    }
    let median = |of: &[f64]| Sample::new(of.to_vec()).median();
    let first = median(&seconds[..COMPARED]);
    let last = median(&seconds[seconds.len() - COMPARED..]);
    let bar = FigureGoal {
        required: Threshold::AtMost(1.3),
        goal: Threshold::AtMost(1.05),
    };
    report.figure(&name, &Sample::new(vec![last / first]), bar);
    report.note(&format!(
        "first {:.1} ms, last {:.1} ms a patch",
        first * 1e3,
        last * 1e3
    ));
    Ok(())
}
