//! The top-level modules of a crate use only those that are below them. Between crates, Cargo checks this.

use super::{cycles::named_paths, report, rust_files};

/// A module, and those that it may use.
type Layer = (&'static str, &'static [&'static str]);

/// The top-level modules of crates with several layers, from the lowest, each with those that it may use.
const LAYERS: &[(&str, &[Layer])] = &[
    (
        "src/core",
        &[
            ("diagnostic", &[]),
            ("tape", &["diagnostic"]),
            ("exit", &["tape"]),
            ("decode", &[]),
            ("token_prices", &["decode"]),
            ("config", &["diagnostic", "token_prices"]),
            ("text", &["tape"]),
            ("actions", &["decode", "diagnostic", "text"]),
            ("conditions", &["config", "diagnostic", "text"]),
            ("control", &["config", "tape"]),
            (
                "units",
                &["tape", "config", "control", "text", "token_prices"],
            ),
            (
                "run",
                &[
                    "diagnostic",
                    "config",
                    "text",
                    "tape",
                    "decode",
                    "actions",
                    "units",
                    "control",
                    "token_prices",
                ],
            ),
        ],
    ),
    ("src/records", &[("store", &[]), ("replay", &[])]),
];

#[test]
fn modules_use_only_lower_layers() {
    let mut problems = Vec::new();
    for (folder, layers) in LAYERS {
        for source in rust_files(folder) {
            let inner = source.path[folder.len()..].trim_start_matches('/');
            let module = inner.split(['/', '.']).next().unwrap();
            if module == "lib" {
                continue;
            }
            let Some((_, allowed)) = layers.iter().find(|(layer, _)| *layer == module) else {
                problems.push(format!("{}: {module} is not in the table", source.path));
                continue;
            };
            for path in named_paths(&format!("{}{}", source.code, source.tests)) {
                let [root, used, ..] = &path[..] else {
                    continue;
                };
                let is_layer = layers.iter().any(|(layer, _)| layer == used);
                if root == "crate" && is_layer && used != module && !allowed.contains(&&used[..]) {
                    problems.push(format!("{}: {module} may not use {used}", source.path));
                }
            }
        }
    }
    problems.dedup();
    report("forbidden edges", &problems);
}
