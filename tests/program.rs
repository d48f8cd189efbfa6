//! The program as cargo builds it. Cargo builds it only if an integration test asks for it; the other tests, which are
//! part of the library, run it from there.

use std::process::Command;

#[test]
fn program_prints_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_ingestdeck"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("ingestdeck {}\n", env!("CARGO_PKG_VERSION"))
    );
}
