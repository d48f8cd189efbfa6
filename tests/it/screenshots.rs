//! The screenshots of the README and the key table of the guide: each must match what the program draws and knows
//! today.
//!
//! `INGESTDECK_UPDATE_SCREENSHOTS=1 cargo test --features pictures --test it screenshots` draws them again.

use std::{fs, path::PathBuf, process::Command};

use ingestdeck_tui::{KeyOverrides, Keymap};

/// A picture: its name, the tape, the size, and the keys to press first.
struct Screenshot {
    name: &'static str,
    tape: &'static str,
    size: &'static str,
    keys: &'static str,
    theme: &'static str,
}

const fn shot(
    name: &'static str,
    tape: &'static str,
    size: &'static str,
    keys: &'static str,
) -> Screenshot {
    Screenshot {
        name,
        tape,
        size,
        keys,
        theme: "dark",
    }
}

/// Runs of the demo (a unit held and stepped, another one failed and retried; one with a review), of the real CLI, and
/// of a scripted agent that fails in several ways.
const SHOTS: &[Screenshot] = &[
    shot("deck", "harbor", "120x36", ":22s<enter>ggj"),
    shot("inspector", "real", "120x36", "gg/crates<enter><enter>"),
    shot("held-call", "demo", "120x36", "gg:29s<enter>"),
    shot("stepped", "demo", "120x36", "gg<tab>"),
    shot("grid", "demo", "120x36", "gg:28s<enter>v"),
    shot("review", "review", "120x36", ":15s<enter>V"),
    shot("artifacts", "review", "120x36", "c"),
    shot("workers", "workers", "120x36", ":14s<enter>ggj"),
    shot("causes", "real", "100x24", "C"),
    shot("transcript", "real", "80x24", "gg<enter>6gg"),
    Screenshot {
        theme: "color-blind",
        ..shot("narrow", "demo", "60x20", "gg")
    },
];

fn place(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(below)
}

/// Draws a picture as the command line does, without any data of this machine.
fn drawn(shot: &Screenshot) -> String {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out.svg");
    let tape = place(&format!("tests/fixtures/tapes/{}.jsonl", shot.tape));
    let ran = Command::new(crate::support::program())
        .arg("screenshot")
        .arg(tape)
        .args([
            "--size", shot.size, "--keys", shot.keys, "--theme", shot.theme, "--out",
        ])
        .arg(&out)
        .env_clear()
        .envs([
            ("TERM", "xterm-256color"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
        ])
        .env("HOME", home.path())
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}: {}",
        shot.name,
        String::from_utf8_lossy(&ran.stderr)
    );
    fs::read_to_string(out).unwrap()
}

#[test]
fn screenshots_match_the_rendered_screen() {
    let update = std::env::var_os("INGESTDECK_UPDATE_SCREENSHOTS").is_some();
    let mut stale = Vec::new();
    for shot in SHOTS {
        let (path, svg) = (
            place(&format!("screenshots/{}.svg", shot.name)),
            drawn(shot),
        );
        if update {
            fs::write(&path, &svg).unwrap();
            png::write(&svg, &path.with_extension("png"));
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&svg) {
            stale.push(shot.name);
        }
    }
    assert!(
        stale.is_empty(),
        "screenshots/ is not what the program draws: {stale:?}; \
         INGESTDECK_UPDATE_SCREENSHOTS=1 cargo test --features pictures --test it screenshots draws it again"
    );
}

/// The markers around the table of keys in [`KEYS_PAGE`].
const KEYS_PAGE: &str = "assets/guide/keys.md";
const KEYS: (&str, &str) = ("<!-- keys -->\n", "<!-- end of keys -->\n");

#[test]
fn documented_keys_match_the_bindings() {
    let page = fs::read_to_string(place(KEYS_PAGE)).unwrap();
    let (before, rest) = page.split_once(KEYS.0).unwrap();
    let (table, after) = rest.split_once(KEYS.1).unwrap();
    let keys = Keymap::new(&KeyOverrides::new()).unwrap().markdown();
    if std::env::var_os("INGESTDECK_UPDATE_SCREENSHOTS").is_some() {
        fs::write(
            place(KEYS_PAGE),
            [before, KEYS.0, "\n", &keys, KEYS.1, after].concat(),
        )
        .unwrap();
    } else {
        assert_eq!(
            table.trim(),
            keys.trim(),
            "the table of keys is out of date; see the header of this file"
        );
    }
}

#[test]
fn every_screenshot_file_is_used() {
    let readme = fs::read_to_string(place("README.md")).unwrap();
    for file in fs::read_dir(place("screenshots")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let (stem, extension) = name.split_once('.').unwrap();
        assert!(
            matches!(extension, "svg" | "png") && SHOTS.iter().any(|shot| shot.name == stem),
            "{name} is unused"
        );
    }
    for shot in SHOTS {
        assert!(
            readme.contains(&format!("screenshots/{}.", shot.name)),
            "README does not show {}",
            shot.name
        );
    }
}

/// A tape records the path of the program, which differs on every machine.
#[test]
fn recorded_tapes_name_no_build_folder() {
    for file in fs::read_dir(place("tests/fixtures/tapes")).unwrap() {
        let path = file.unwrap().path();
        let tape = fs::read_to_string(&path).unwrap();
        assert!(
            !tape.contains("/target/debug/") && !tape.contains("/target/release/"),
            "{}",
            path.display()
        );
    }
}

#[cfg(not(feature = "pictures"))]
mod png {
    use std::path::Path;

    pub(super) fn write(_: &str, path: &Path) {
        panic!("{} needs `--features pictures`", path.display());
    }
}

#[cfg(feature = "pictures")]
mod png {
    use std::path::Path;

    use resvg::{
        tiny_skia::{Pixmap, Transform},
        usvg::{Options, Tree},
    };

    /// The font that the pictures are drawn with. It has every character that the screen uses.
    const FONT: &str = "DejaVu Sans Mono";

    pub(super) fn write(svg: &str, path: &Path) {
        let mut options = Options {
            font_family: FONT.to_owned(),
            ..Options::default()
        };
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        assert!(
            fonts
                .faces()
                .any(|face| face.families.iter().any(|(family, _)| family == FONT)),
            "the font {FONT} is not installed"
        );
        fonts.set_monospace_family(FONT);
        let tree = Tree::from_str(svg, &options).unwrap();
        let size = tree.size().to_int_size();
        let mut pixels = Pixmap::new(size.width(), size.height()).unwrap();
        resvg::render(&tree, Transform::default(), &mut pixels.as_mut());
        pixels.save_png(path).unwrap();
    }
}
