//! Second-level modules of a layer form no cycles.
//!
//! A layer is a crate, or a top-level module of a crate that has several ([`WITH_LAYERS`]). A second-level module is a
//! file directly below it, with everything below that file: `ingest::plan` is `src/ingest/plan.rs` and
//! `src/ingest/plan/**`. The file of the layer itself declares all of them and does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::{RustFile, report, rust_files};

/// A path of module or item names, without `crate`.
type Path = Vec<String>;

/// Modules that a module uses, each with an example of a path.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

/// Crates whose top-level modules are layers.
const WITH_LAYERS: [&str; 3] = ["src/core/", "src/os/", "src/records/"];

/// The layer of a file, followed by its modules.
fn module_path(source: &RustFile) -> Path {
    let below = WITH_LAYERS
        .iter()
        .find_map(|folder| source.path.strip_prefix(folder));
    let path = below.or_else(|| source.path.strip_prefix("src/"));
    let path = path.unwrap_or(&source.path);
    path.trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect()
}

/// The paths that a text names, starting at `crate::`, `super::` or `self::`; groups in braces are expanded.
pub(super) fn named_paths(code: &str) -> Vec<Path> {
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|before| before.is_alphanumeric() || "_$:".contains(before)) {
                let _ = expand(&code[at..], &Path::new(), &mut found);
            }
        }
    }
    found
}

/// Reads one path with its groups from the start of `text`, and returns the text behind it.
fn expand<'t>(mut text: &'t str, prefix: &Path, found: &mut Vec<Path>) -> &'t str {
    let mut path = prefix.clone();
    loop {
        text = text.trim_start();
        if let Some(group) = text.strip_prefix('{') {
            text = group.trim_start();
            while !text.is_empty() && !text.starts_with('}') {
                let before = text.len();
                text = expand(text, &path, found).trim_start();
                if let Some(alias) = text.strip_prefix("as ") {
                    text = alias
                        .trim_start_matches(|char: char| char.is_alphanumeric() || char == '_')
                        .trim_start();
                }
                text = text.strip_prefix(',').unwrap_or(text).trim_start();
                if text.len() == before {
                    break;
                }
            }
            return text.strip_prefix('}').unwrap_or(text);
        }
        let end = text
            .find(|char: char| !char.is_alphanumeric() && char != '_')
            .unwrap_or(text.len());
        if end == 0 {
            found.push(path);
            return text;
        }
        path.push(text[..end].to_owned());
        text = &text[end..];
        match text.strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                found.push(path);
                return text;
            }
        }
    }
}

/// The path that `path` means in the module `here`. With `is_layer`, the crate of `here` is one layer.
fn resolve(here: &Path, path: &[String], is_layer: bool) -> Path {
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") if is_layer => here[..1].iter().chain(&path[1..]).cloned().collect(),
        Some("crate") => path[1..].to_vec(),
        Some("super") => here[..here.len().saturating_sub(ups)]
            .iter()
            .chain(&path[ups..])
            .cloned()
            .collect(),
        _ => here.iter().chain(&path[1..]).cloned().collect(),
    }
}

/// The uses between second-level modules of the same layer.
fn second_level_edges(sources: &[RustFile]) -> Edges {
    let sources = || {
        sources
            .iter()
            .filter(|source| !source.path.ends_with("/lib.rs"))
    };
    let modules: BTreeSet<Path> = sources().map(module_path).collect();
    let mut edges = Edges::new();
    for source in sources() {
        let here = module_path(source);
        let [layer, module, ..] = &here[..] else {
            continue;
        };
        let is_layer = layer != "cli"
            && !WITH_LAYERS
                .iter()
                .any(|folder| source.path.starts_with(folder));
        for path in named_paths(&source.code) {
            let target = resolve(&here, &path, is_layer);
            let owner = (2..=target.len())
                .rev()
                .map(|end| target[..end].to_vec())
                .find(|path| modules.contains(path));
            if let Some(owner) = owner
                && owner[0] == *layer
                && owner[1] != *module
            {
                let used = edges.entry(format!("{layer}::{module}")).or_default();
                used.entry(format!("{layer}::{}", owner[1]))
                    .or_insert_with(|| target.join("::"));
            }
        }
    }
    edges
}

/// Modules that reach themselves, each with the uses that lead to another such module.
fn modules_in_cycles(edges: &Edges) -> Vec<String> {
    let reachable = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            for used in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(used) {
                    open.push(used);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|module| (module, reachable(module)))
        .collect();
    let is_mutual = |one: &String, other: &String| {
        reached
            .get(other)
            .is_some_and(|reached| reached.contains(one))
    };
    let mut problems = Vec::new();
    for (module, used) in edges {
        let back = used.iter().filter(|(other, _)| is_mutual(module, other));
        problems.extend(back.map(|(other, path)| {
            format!("{module} uses {other}, which leads back to it ({path})")
        }));
    }
    problems
}

#[test]
fn second_level_modules_form_no_cycles() {
    let problems = modules_in_cycles(&second_level_edges(&rust_files("src")));
    report("cycles between modules of a layer", &problems);
}

#[test]
fn cycle_finder_follows_groups_and_parents() {
    let file = |path: &str, text: &str| RustFile::new(path.into(), text.into());
    let cyclic = [
        file("src/a/x.rs", "use crate::{y::{self, Deep}, z as other};\n"),
        file("src/a/y.rs", "pub struct Deep;\n"),
        file("src/a/y/inner.rs", "use super::super::z::Thing;\n"),
        file("src/a/z.rs", "fn back() { super::x::call(); }\n"),
        file("src/b/x.rs", "use ingestdeck_a::x;\n"),
        file("src/core/a/v.rs", "use crate::a::w::Thing;\n"),
    ];
    let edges = second_level_edges(&cyclic);
    assert_eq!(edges["a::x"].keys().collect::<Vec<_>>(), ["a::y", "a::z"]);
    assert_eq!(edges["a::y"].keys().collect::<Vec<_>>(), ["a::z"]);
    assert!(!edges.contains_key("b::x"));
    assert!(!edges.contains_key("a::v"), "there is no a::w");
    assert_eq!(modules_in_cycles(&edges).len(), 4);
    assert!(modules_in_cycles(&second_level_edges(&cyclic[..3])).is_empty());
}
