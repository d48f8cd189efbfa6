//! The program: calls [`ingestdeck::main`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ingestdeck::main()
}
