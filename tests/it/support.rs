//! Test doubles: a scripted Messages API, and a private home for the real CLI.
//!
//! This module must not know the product; assertions belong in the tests.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod files;
pub(crate) mod git;
pub(crate) mod hostile;
mod service;
pub(crate) mod sshd;

pub(crate) use ingestdeck_test_support::{
    fuzz, missing, open_terminal, pause_before_check, pause_task_before_check,
};

/// Path of the program.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ingestdeck")
}

/// An `ssh` that runs the command after the host on this machine, where the forwarded port is the local one.
pub(crate) const LOCAL_SSH: &str = r#"while [ $# -gt 0 ]; do
  case "$1" in
  -T) shift;;
  -R) forwarded=$2; shift 2;;
  -o|-p|-l) shift 2;;
  --) shift 2; break;;
  esac
done
remote=${forwarded#*:}
command=$(printf '%s' "$*" | sed "s/127.0.0.1:${remote%%:*}/127.0.0.1:${forwarded##*:}/")
exec sh -c "$command""#;
