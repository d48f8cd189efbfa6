//! `mcp`: the tools of a unit for any MCP client, on stdin and stdout.

use std::io::{self, IsTerminal as _};

use super::{
    args::{GlobalArgs, McpArgs, SelectArgs},
    exit::{CliError, Exit},
    playback_output, project,
};
use ingestdeck_agent::mcp;
use ingestdeck_ingest::{WorkUnit, plan, project::Project, standalone_tools};

/// Serves until stdin ends.
///
/// # Errors
/// If the project, unit or connection does not exist, the workspace cannot be used, or the client does not speak MCP.
pub(crate) fn mcp(global: &GlobalArgs, args: &McpArgs) -> Result<Exit, CliError> {
    let project = project::open(global)?;
    let units = units(&project, args)?;
    let tools = standalone_tools::open_tools(&project, &units, args.workspace.as_deref())
        .map_err(|error| CliError::usage(error.to_string()).with_help("see --workspace"))?;
    mcp::validate_tools(&tools.specs())
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    if io::stdin().is_terminal() {
        playback_output::print_stderr(
            "ingestdeck: speaking MCP on stdin and stdout, one JSON message a line; Ctrl-D ends it",
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Exit::Internal, format!("cannot start: {error}")))?;
    let served = runtime.block_on(mcp::serve(tools, rmcp::transport::stdio()));
    // Do not wait for a blocked call or for the reader of stdin.
    runtime.shutdown_background();
    served
        .map(|()| Exit::Ok)
        .map_err(|error| CliError::usage(error.to_string()))
}

/// The units whose raw files are served.
fn units(project: &Project, args: &McpArgs) -> Result<Vec<WorkUnit>, CliError> {
    let select = match (&args.unit, &args.connection) {
        (Some(unit), _) => SelectArgs {
            only: vec![globset::escape(unit)],
            ..SelectArgs::default()
        },
        (None, Some(connection)) => SelectArgs {
            connections: vec![connection.clone()],
            ..SelectArgs::default()
        },
        (None, None) => return Ok(Vec::new()),
    };
    Ok(plan::plan(project, &project::selection(&select))?.units)
}
