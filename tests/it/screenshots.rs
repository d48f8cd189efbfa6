//! The screenshots of README and guide, and the key table: each must match what the program draws and knows
//! today.
//!
//! `INGESTDECK_UPDATE_SCREENSHOTS=1 cargo test --features pictures --test it screenshots` draws them again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Command,
};

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
    Screenshot {
        theme: "light",
        ..shot("light", "harbor", "120x36", "]")
    },
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

/// The animated picture of the demo: seconds of its record, and the keys that are pressed there. A unit fails, another
/// one is held and stepped, and the failed one is retried.
const DEMO: &[(u32, &str)] = &[
    (1, ""),
    (3, ""),
    (5, ""),
    (7, ""),
    (9, "ggj"),
    (11, "ggj"),
    (13, "ggj"),
    (15, "gg"),
    (18, "gg"),
    (21, "gg"),
    (24, "gg"),
    (27, "gg"),
    (29, "gg"),
    (32, "gg"),
    (36, "gg"),
    (41, "gg"),
    (44, "ggj"),
    (46, "ggj"),
    (48, "ggj"),
    (50, "$"),
];
const SECONDS_PER_FRAME: f32 = 1.2;
const MAX_ANIMATION_BYTES: usize = 1 << 20;

/// The pictures of [`DEMO`] as one SVG. What several successive ones share is in it once.
fn animation() -> String {
    let pictures: Vec<String> = DEMO
        .iter()
        .map(|(second, keys)| {
            let keys = format!(":{second}s<enter>{keys}");
            drawn(&shot("", "demo", "110x30", keys.leak()))
        })
        .collect();
    let head = pictures[0].lines().take(3).collect::<Vec<_>>().join("\n");
    let mut frames: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (frame, picture) in pictures.iter().enumerate() {
        for line in picture.lines().filter(|line| is_shape(line)) {
            frames.entry(line).or_default().push(frame);
        }
    }
    // Backgrounds are below texts, whatever the frames are.
    let mut shapes: BTreeMap<(bool, usize, usize), Vec<&str>> = BTreeMap::new();
    for (line, frames) in frames {
        for shown in frames.chunk_by(|one, next| one + 1 == *next) {
            let span = (line.starts_with("<text"), shown[0], shown[0] + shown.len());
            shapes.entry(span).or_default().push(line);
        }
    }
    let percent = |frame: usize| 100.0 * frame as f32 / DEMO.len() as f32;
    let duration = SECONDS_PER_FRAME * DEMO.len() as f32;
    let mut out = format!("{head}\n<style>g g{{animation:{duration:.1}s step-end infinite}}");
    let spans: BTreeSet<(usize, usize)> = shapes.keys().map(|span| (span.1, span.2)).collect();
    for (first, end) in spans {
        // Where nothing is animated, the last picture is shown.
        let still = if end == DEMO.len() {
            "visible"
        } else {
            "hidden"
        };
        let (from, to) = (percent(first), percent(end));
        let before = if first > 0 {
            "0%{visibility:hidden}"
        } else {
            ""
        };
        out += &format!(
            "\n.f{first}-{end}{{visibility:{still};animation-name:f{first}-{end}}}\
             @keyframes f{first}-{end}{{{before}{from:.2}%{{visibility:visible}}{to:.2}%{{visibility:hidden}}}}"
        );
    }
    out += "</style>\n";
    for ((_, first, end), lines) in shapes {
        let lines = lines.join("\n");
        out += &format!("<g class=\"f{first}-{end}\">\n{lines}\n</g>\n");
    }
    out + "</g>\n</svg>\n"
}

fn is_shape(line: &str) -> bool {
    line.starts_with("<text") || line.starts_with("<rect x")
}

#[test]
fn animated_picture_is_the_demo_on_the_screen() {
    let (path, drawn) = (place("screenshots/demo.svg"), animation());
    assert!(drawn.len() <= MAX_ANIMATION_BYTES, "{} bytes", drawn.len());
    if std::env::var_os("INGESTDECK_UPDATE_SCREENSHOTS").is_some() {
        fs::write(path, drawn).unwrap();
    } else {
        let known = fs::read_to_string(path).unwrap_or_default();
        assert!(
            known == drawn,
            "screenshots/demo.svg is out of date; see the header of this file"
        );
    }
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
    let [readme, guide] = ["README.md", "assets/guide/pictures.md"]
        .map(|page| fs::read_to_string(place(page)).unwrap());
    for file in fs::read_dir(place("screenshots")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let (stem, extension) = name.split_once('.').unwrap();
        assert!(
            name == "demo.svg"
                || matches!(extension, "svg" | "png") && SHOTS.iter().any(|shot| shot.name == stem),
            "{name} is unused"
        );
    }
    for shot in SHOTS {
        assert!(
            [&readme, &guide]
                .iter()
                .any(|page| page.contains(&format!("screenshots/{}.", shot.name))),
            "no page shows {}",
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
