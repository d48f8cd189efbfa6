//! What is on the screen, at three sizes.

use std::time::Duration;

use super::{
    script::{Script, options, play},
    tape::{self},
};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

#[test]
fn dump() {
    for size in SIZES.into_iter().chain([(40, 12)]) {
        for keys in ["", "<tab>k", "<enter>", "<enter><enter>", "?", "R"] {
            let (script, _) = play(tape::running().timeline(), None, options(), Script::new(keys, size).after(Duration::from_secs(30)));
            println!("=== {size:?} {keys}\n{}", script.text());
        }
    }
}
