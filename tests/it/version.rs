//! The program as cargo builds it.

use std::process::Command;

use crate::support::program;

#[test]
fn program_prints_its_version() {
    let output = Command::new(program()).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("ingestdeck {}\n", env!("INGESTDECK_VERSION"))
    );
}
