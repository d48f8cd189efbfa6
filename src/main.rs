//! The program: hands its arguments to [`ingestdeck::cli`] and its exit code to the system.

use std::process::ExitCode;

fn main() -> ExitCode {
    ingestdeck::cli::main().into()
}
