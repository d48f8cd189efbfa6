//! The benchmarks, compiled together with the modules of the program: benchmarks measure internal functions, which the
//! library does not export.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "benchmarks use a part of the modules"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report on stdout is what a benchmark is for"
)]

#[path = "../tests/benches/main.rs"]
mod bars;

mod actions;
mod agent;
mod cli;
mod config;
mod control;
mod decode;
mod diagnostic;
mod engine;
mod group_guard;
mod guide;
mod ingest;
mod open_file_limit;
mod program_path;
mod replay;
mod report;
mod run;
mod scoped_dir;
mod store;
mod tape;
mod text;
mod tui;
mod units;

fn main() -> std::process::ExitCode {
    bars::run()
}
