//! The program: calls [`ingestdeck::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ingestdeck::cli::main()
}
