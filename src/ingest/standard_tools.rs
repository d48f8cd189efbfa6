//! The standard tools of a session: `read_file`, `edit_file`, `write_file`, `bash`, `glob` and `grep`.
//!
//! Files are read and written below the directory of the session only, and never through a link. `bash` runs a shell in
//! that directory, which can reach everything that the user can; `units::call_policy` decides which commands run. This
//! module must not know who asks or approves.

#![expect(
    clippy::disallowed_methods,
    reason = "the name of the session's directory, which is opened as a ScopedDir"
)]

mod command;
mod files;
mod search;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::command::RunningCommands;
use super::schema;
use ingestdeck_core::{
    diagnostic::{Diagnostic as _, Problem},
    units::{ToolCall, ToolReply, ToolSpec, Toolset},
};
use ingestdeck_os::scoped_dir::ScopedDir;

/// Most characters of a reply. Claude Code stores longer replies in files.
const MAX_REPLY_CHARS: usize = 45_000;

/// A standard tool with its type erased.
#[derive(Debug)]
struct StandardTool {
    name: &'static str,
    description: &'static str,
    is_read_only: bool,
    schema: schema::LazyToolInputSchema,
    run: fn(&SessionDir, Value) -> Result<String, Problem>,
}

const fn tool<T: DeserializeOwned + JsonSchema>(
    name: &'static str,
    description: &'static str,
    is_read_only: bool,
    run: fn(&SessionDir, Value) -> Result<String, Problem>,
) -> StandardTool {
    StandardTool {
        name,
        description,
        is_read_only,
        schema: schema::lazy_schema_for::<T>(),
        run,
    }
}

static TOOLS: [StandardTool; 6] = [
    tool::<files::ReadFile>(
        "read_file",
        "Read the contents of a file at the specified path",
        true,
        |dir, input| files::read_file(dir, parse(input)?),
    ),
    tool::<files::EditFile>(
        "edit_file",
        "Replace specific text in a file. The old_string must match exactly.",
        false,
        |dir, input| files::edit_file(dir, parse(input)?),
    ),
    tool::<files::WriteFile>(
        "write_file",
        "Create or overwrite a file with the specified content",
        false,
        |dir, input| files::write_file(dir, parse(input)?),
    ),
    tool::<command::RunCommandLine>(
        "bash",
        "Execute a bash command in the agent worktree",
        false,
        |dir, input| command::run(dir, &parse(input)?),
    ),
    tool::<search::FindFiles>(
        "glob",
        "Find files matching a glob pattern",
        true,
        |dir, input| search::find_files(dir, &parse(input)?),
    ),
    tool::<search::SearchText>(
        "grep",
        "Search for text patterns in files",
        true,
        |dir, input| search::search_text(dir, &parse(input)?),
    ),
];

fn parse<T: DeserializeOwned>(input: Value) -> Result<T, String> {
    serde_json::from_value(input).map_err(|error| error.to_string())
}

/// True for the name of a standard tool.
pub fn is_standard_tool(name: &str) -> bool {
    TOOLS.iter().any(|tool| tool.name == name)
}

/// The directory of a session.
#[derive(Debug)]
struct SessionDir {
    path: PathBuf,
    commands: RunningCommands,
}

impl SessionDir {
    fn open(&self) -> Result<ScopedDir, String> {
        ScopedDir::open(&self.path)
            .map_err(|error| format!("cannot open the directory of the session: {error}"))
    }

    /// The path of a file relative to the directory. `named` may be absolute.
    fn relative(&self, named: &str) -> Result<String, String> {
        let path = Path::new(named);
        let inside = if path.is_absolute() {
            path.strip_prefix(&self.path).ok()
        } else {
            Some(path)
        };
        let parts = inside
            .into_iter()
            .flat_map(Path::components)
            .filter(|part| *part != std::path::Component::CurDir);
        let parts: Option<Vec<&str>> = parts
            .map(|part| match part {
                std::path::Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        match (inside, parts) {
            (Some(_), Some(parts)) => Ok(parts.join("/")),
            _ => Err(format!(
                "`{named}` is outside the directory of the session, {}",
                self.path.display()
            )),
        }
    }
}

/// The tools that a session asks for.
#[derive(Debug)]
pub struct StandardTools {
    dir: SessionDir,
    offered: Vec<&'static StandardTool>,
    /// Held by a call that may change something, because edits read before they write.
    write_lock: Mutex<()>,
}

impl StandardTools {
    /// Offers the standard tools among `names`, for the session directory `path`.
    ///
    /// # Errors
    /// If the directory cannot be resolved.
    pub fn new(path: &Path, names: &[String]) -> io::Result<Self> {
        let is_named = |tool: &&StandardTool| names.iter().any(|name| name == tool.name);
        let offered = TOOLS.iter().filter(is_named).collect();
        let dir = SessionDir {
            path: path.canonicalize()?,
            commands: RunningCommands::default(),
        };
        Ok(Self {
            dir,
            offered,
            write_lock: Mutex::default(),
        })
    }
}

impl Toolset for StandardTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &&StandardTool| ToolSpec {
            name: tool.name,
            description: tool.description.to_owned(),
            input_schema: Arc::clone(&tool.schema),
            read_only: tool.is_read_only,
        };
        self.offered.iter().map(spec).collect()
    }

    fn stop(&self) {
        self.dir.commands.kill_all();
    }

    fn call(&self, call: &ToolCall) -> ToolReply {
        let Some(tool) = self.offered.iter().find(|tool| tool.name == call.name) else {
            return ToolReply::error(format!("there is no tool `{}`", call.name.escape_debug()));
        };
        let arguments = match schema::validate(&tool.schema, &call.arguments) {
            Ok(arguments) => arguments,
            Err(problems) => {
                return ToolReply::error(format!(
                    "{} was not called: {}",
                    tool.name,
                    problems.join("; ")
                ));
            }
        };
        // Commands run for minutes, and the agent may start several.
        let changes_files = !tool.is_read_only && tool.name != "bash";
        let _guard = changes_files.then(|| self.write_lock.lock());
        match (tool.run)(&self.dir, arguments) {
            Ok(text) => ToolReply::text(shorten(text)),
            Err(problem) => ToolReply::error(shorten(problem.to_line())),
        }
    }
}

/// Cuts a reply at its limit.
fn shorten(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_REPLY_CHARS) {
        let all = text.len();
        text.truncate(end);
        text.push_str(&format!(
            "\n[cut after {MAX_REPLY_CHARS} characters of {all} bytes]"
        ));
    }
    text
}

#[cfg(test)]
mod tests;
