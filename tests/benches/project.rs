//! A project of documents, and a scripted agent for it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    harness::BenchResult,
    measured_process::{argument, ingestdeck},
};

/// Creates a project of `count` documents in `folder`, one unit each. The folder must not be inside a git repository.
pub(crate) fn of_documents(folder: &Path, count: u32) -> BenchResult<()> {
    fs::create_dir(folder.join("docs"))?;
    for number in 0..count {
        fs::write(folder.join(document(number)), format!("# Page {number}\n"))?;
    }
    Ok(fs::write(
        folder.join("ktx.yaml"),
        "connections:\n  handbook: {driver: docs, source_dir: docs}\n",
    )?)
}

/// Path of a document, relative to the project.
fn document(number: u32) -> String {
    format!("docs/{}", raw_file(number))
}

/// Path of a document, relative to its source.
pub(crate) fn raw_file(number: u32) -> String {
    format!("page-{number:04}.md")
}

/// Key of the unit of a document.
pub(crate) fn unit(number: u32) -> String {
    format!("docs-page-{number:04}")
}

/// Writes a program for `--claude-bin` into `folder` that plays `script`.
pub(crate) fn agent(folder: &Path, script: &str) -> BenchResult<String> {
    let (script_file, agent) = (folder.join("script.toml"), folder.join("agent"));
    fs::write(&script_file, script)?;
    let script_file = argument(&script_file)?;
    program(
        &agent,
        &format!(
            "exec '{}' scripted-agent --script '{script_file}' -- \"$@\"",
            ingestdeck()
        ),
    )?;
    Ok(argument(&agent)?.to_owned())
}

/// Makes `folder` contain an `ssh` that runs the command on this machine, where the forwarded port is the local one, and a
/// worker with `agent`. Returns a `PATH` with that `ssh`, and the worker's program. The run needs a `nats-server`.
pub(crate) fn local_worker(folder: &Path, agent: &str) -> BenchResult<(String, PathBuf)> {
    let ssh = r#"while [ "$1" != -- ]; do
  case "$1" in -R) forwarded=$2;; esac
  shift
done
shift 2
remote=${forwarded#*:}
command=$(printf '%s' "$*" | sed "s/127.0.0.1:${remote%%:*}/127.0.0.1:${forwarded##*:}/")
exec sh -c "$command""#;
    program(&folder.join("ssh"), ssh)?;
    let worker = folder.join("worker");
    program(
        &worker,
        &format!("exec '{}' --claude-bin '{agent}' \"$@\"", ingestdeck()),
    )?;
    Ok((
        format!(
            "{}:{}",
            folder.display(),
            std::env::var("PATH").unwrap_or_default()
        ),
        worker,
    ))
}

/// Writes a shell script to `path`.
pub(crate) fn program(path: &Path, body: &str) -> BenchResult<()> {
    fs::write(path, format!("#!/bin/sh\n{body}\n"))?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o700),
    )?)
}
