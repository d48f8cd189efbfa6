//! Benchmarks with goals for speed and memory, as ratios to named programs on the same file in the same run.
//!
//! `cargo bench` measures everything on a generated 1 GB capture; `cargo bench -- search memory` only those topics;
//! `INGESTDECK_BENCH_MB=100` shrinks the capture (the goals are meant for the full size). Exits with 1 when a hard goal
//! is missed, or when a measurement fails.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a report on stdout is what a benchmark is for"
)]

mod attach;
mod audit;
mod capture;
mod find;
mod flood;
mod frame;
mod harness;
mod integrate;
mod measured_process;
mod open;
mod overhead;
mod plan;
mod project;
mod screen;
mod search;
mod seek;
mod session_file;
mod translate;
mod units;
mod views;
mod warehouse;
mod why;
mod worker_latency;

use std::process::ExitCode;

use harness::BenchReport;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    if let Some((role, rest)) = arguments.split_first()
        && let Some(code) = measured_process::play(role, rest)
            .or_else(|| flood::play(role, rest))
            .or_else(|| overhead::play(role, rest))
            .or_else(|| worker_latency::play(role, rest))
    {
        return code;
    }
    let capture = match capture::prepare() {
        Ok(capture) => capture,
        Err(error) => {
            eprintln!("cannot make the capture: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("capture: {capture}");
    let mut report = BenchReport::new(arguments);
    report.topic("open", |report| open::measure(report, &capture));
    report.topic("session-file", session_file::measure);
    report.topic("translate", |report| translate::measure(report, &capture));
    report.topic("search", search::measure);
    report.topic("find", find::measure);
    report.topic("seek", |report| seek::measure(report, &capture));
    report.topic("flood", |report| flood::measure(report, &capture));
    report.topic("frame", frame::measure);
    report.topic("screen", screen::measure);
    report.topic("audit", audit::measure);
    report.topic("views", views::measure);
    report.topic("overhead", overhead::measure);
    report.topic("attach", attach::measure);
    report.topic("plan", plan::measure);
    report.topic("why", why::measure);
    report.topic("warehouse", warehouse::measure);
    report.topic("integrate", integrate::measure);
    report.topic("units", units::measure);
    report.topic("workers", worker_latency::measure);
    report.end()
}
