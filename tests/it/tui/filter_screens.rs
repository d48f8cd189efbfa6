//! The filter of the table of units with conditions: while it is typed, with an error, and without a unit.

use super::{screens::shown, tape};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

#[test]
fn conditions_of_the_filter_are_rendered() {
    let typed = [
        ("empty", "F"),
        (
            "combined",
            "Fcost>0.01<space>cause:title<space>state:failed",
        ),
        ("invalid", "Fstate:failed<space>luck:7<enter>"),
        ("no_unit", "Ffile:models/**<space>cost>9<enter>"),
    ];
    for (name, keys) in typed {
        for size in SIZES {
            let text = shown(tape::running().timeline(), keys, size);
            insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), text);
        }
    }
}
