//! The build script: links development builds for a fixed address.
//!
//! Such a build has 200,000 relocations, which the dynamic linker would apply at each start, and a run of the tests
//! starts thousands of processes. Release builds and statically linked ones remain position-independent.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let is = |name, value| env::var_os(name).is_some_and(|actual| actual == value);
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if is("PROFILE", "debug")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && !is_static
    {
        println!("cargo::rustc-link-arg=-no-pie");
    }
}
