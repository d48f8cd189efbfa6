//! The build script: states the version, and links development builds for a fixed address.
//!
//! The version of a release build names its commit and the date of it, if the sources are a git checkout, and `-dirty` if they
//! differ from it. A development
//! build does not, because every commit would compile it again.
//!
//! A development build has 200,000 relocations, which the dynamic linker would apply at each start, and a run of the tests
//! starts thousands of processes. Release builds and statically linked ones remain position-independent.

use std::{env, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let commit = match env::var("PROFILE").as_deref() {
        Ok("release") => git(&[
            "show",
            "--no-patch",
            "--no-show-signature",
            "--format=%h %cs",
            "--abbrev=8",
            "HEAD",
        ]),
        _ => None,
    };
    // Of a checkout with changes, the commit alone would be misleading.
    let is_dirty = commit.is_some() && {
        println!("cargo::rerun-if-changed=src");
        git(&[
            "--no-optional-locks",
            "status",
            "--porcelain",
            "--untracked-files=no",
        ])
        .is_some()
    };
    let dirty = if is_dirty { "-dirty" } else { "" };
    let commit = commit.map_or_else(String::new, |commit| {
        let (id, date) = commit.split_once(' ').unwrap_or((&commit, ""));
        format!(" ({id}{dirty} {date})")
    });
    println!("cargo::rustc-env=INGESTDECK_VERSION={version}{commit}");
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

/// The first line that git prints, after which this script runs again when the commit changes.
fn git(args: &[&str]) -> Option<String> {
    let line = |args: &[&str]| {
        let mut git = Command::new("git");
        // A hook of another repository may be what builds.
        git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
        let ran = git.args(args).output().ok()?;
        let text = String::from_utf8(ran.stdout).ok()?;
        let line = text.lines().next()?.trim().to_owned();
        (ran.status.success() && !line.is_empty()).then_some(line)
    };
    // An archive of the sources may be unpacked in a directory of another repository.
    line(&["ls-files", "--error-unmatch", "src/build.rs"])?;
    let log = line(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    line(args)
}
