//! `init`: writes a first `ktx.yaml` based on the files of a directory.

#![expect(
    clippy::disallowed_methods,
    reason = "ktx.yaml in the named directory, created only if nothing is there; the directory of the user"
)]

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::{
    args::{GlobalArgs, InitArgs},
    doctor,
    exit::{self, CliError, Exit},
    launch, output, playback_output, settings,
};
use ingestdeck_core::{
    diagnostic::Diagnostic as _,
    text::{self, pluralize},
};
use ingestdeck_ingest::{
    Project, UnitSelection,
    init::{self, ProposedConnection},
    plan,
    source::SourceTree,
};

/// Writes a `ktx.yaml` with the connections that the files of a directory suggest. Never overwrites one.
///
/// # Errors
/// If a file exists already, nothing was found, or the file cannot be written.
pub(crate) fn init(global: &GlobalArgs, args: &InitArgs) -> Result<Exit, CliError> {
    let root = match (&args.dir, &global.project_dir) {
        (Some(dir), Some(project)) if dir != project => {
            return Err(
                CliError::usage("init writes ktx.yaml into the directory that it reads, and two are named").with_help(
                    "name one of them; files outside of a project need `source_dir: PATH` in its ktx.yaml, and PATH in \
                     ingest.allow_paths of your settings",
                ),
            );
        }
        (Some(dir), _) | (None, Some(dir)) => dir.clone(),
        (None, None) => std::env::current_dir().map_err(|error| {
            CliError::usage("cannot determine the current directory")
                .with_cause(error)
                .with_help("change to an existing directory")
        })?,
    };
    let file = root.join("ktx.yaml");
    if file.symlink_metadata().is_ok() {
        return Err(exists(&file));
    }
    let tree = SourceTree::walk(&root, &|_| true).map_err(|error| {
        CliError::usage(format!("cannot read {}: {error}", root.display()))
            .with_help("name another directory")
    })?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let proposals = init::propose_connections(&tree, home.as_deref());
    if proposals.is_empty() {
        return Err(CliError::usage(format!(
            "{} holds no dbt project, no LookML, no semantic models of MetricFlow, no folder of Markdown files and no SQLite \
             database",
            root.display()
        ))
        .with_help(
            "change to their directory, or write a ktx.yaml yourself: `ingestdeck: {connections: {notes: {driver: docs, source_dir: PATH}}}`",
        ));
    }
    if args.probe {
        let config = settings::load(global)?;
        doctor::preflight(
            &launch::find_claude(global)?,
            &config.claude.pass_env,
            true,
            None,
        )?;
    }
    write(&file, &init::render_ktx_yaml(&proposals))?;
    print_proposals(global, &root, &file, &proposals)
        .map_err(|error| playback_output::stdout_failed(&error))?;
    Ok(Exit::Ok)
}

fn exists(file: &Path) -> CliError {
    CliError::usage(format!("{} already exists", file.display()))
        .with_help("edit it, or check it with `ingestdeck plan`")
}

fn write(file: &Path, text: &str) -> Result<(), CliError> {
    // Another process may have created the file meanwhile; it must not be overwritten.
    let made = OpenOptions::new().write(true).create_new(true).open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes()))
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(file),
            _ => CliError::failed(format!("cannot write {}: {error}", file.display())),
        })
}

fn print_proposals(
    global: &GlobalArgs,
    root: &Path,
    file: &Path,
    proposals: &[ProposedConnection],
) -> io::Result<()> {
    let mut out = output::stdout();
    writeln!(out, "wrote {}", file.display())?;
    let widest = proposals
        .iter()
        .map(|proposal| proposal.id.len())
        .max()
        .unwrap_or(0);
    let drivers = proposals
        .iter()
        .map(|proposal| proposal.driver.len())
        .max()
        .unwrap_or(0);
    for proposal in proposals {
        let ProposedConnection { id, driver, .. } = proposal;
        let place = text::printable(&proposal.location, 100);
        let instead = proposal.alternative_to.as_deref();
        let instead = instead.map_or_else(String::new, |other| {
            format!(" (only a comment in ktx.yaml: use it instead of {other}, which reads the same files)")
        });
        writeln!(out, "  {id:widest$}  {driver:drivers$}  {place}{instead}")?;
    }
    let (permissions, _) = settings::permissions(global).unwrap_or_default();
    let project = Project::open(root)
        .ok()
        .map(|project| project.with_permissions(permissions));
    let planned = project.as_ref().and_then(|project| {
        exit::print_warnings(&project.warnings);
        plan(project, &UnitSelection::default()).ok()
    });
    if let Some(planned) = planned {
        let count = planned.units.len();
        let them = if count == 1 { "it" } else { "them" };
        writeln!(
            out,
            "{}; `ingestdeck plan` lists {them}, `ingestdeck run` runs {them}",
            pluralize(count, "unit")
        )?;
    }
    for connection in project.iter().flat_map(|of| &of.settings.connections) {
        let facts = project
            .as_ref()
            .and_then(|of| of.available_facts(connection));
        if let Some(refusal) = facts.and_then(|facts| facts.refusal) {
            let id = &connection.id;
            writeln!(out, "connection {id}: {}", refusal.to_line())?;
        }
    }
    if init::lacks_warehouse(proposals) {
        writeln!(
            out,
            "sources of the semantic layer need a connection to the warehouse; add it to connections in ktx.yaml, for \
             example `db: {{driver: postgres, url: \"env:DATABASE_URL\"}}`"
        )?;
    }
    Ok(())
}
