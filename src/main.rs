//! The program: hands everything to [`ingestdeck::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ingestdeck::cli::main()
}
