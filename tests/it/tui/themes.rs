//! Colours: the style of each state in each theme, and whether people can distinguish states.

use ingestdeck_core::run::state::UnitStatus;
use ingestdeck_tui::{
    ColorLevel, Theme,
    theme::{StyleRole, status_role},
};
use ratatui::style::{Color, Modifier};

use super::{
    scripted_host::{ScriptedHost, options, play},
    tape,
};

const STATES: [UnitStatus; 11] = [
    UnitStatus::Queued,
    UnitStatus::Running,
    UnitStatus::Silent,
    UnitStatus::Held,
    UnitStatus::Waiting,
    UnitStatus::Succeeded,
    UnitStatus::BudgetExhausted,
    UnitStatus::Failed,
    UnitStatus::Stopped,
    UnitStatus::Interrupted,
    UnitStatus::Reused,
];

/// The style of the cell with a state's sign on the screen.
fn cell(theme: &str, sign: &str) -> String {
    let mut options = options();
    options.theme = Theme::new(theme, ColorLevel::Full, false).unwrap();
    let (script, _) = play(
        tape::running().timeline(),
        None,
        options,
        ScriptedHost::new("0.....", (120, 36)),
    );
    let style = script.style_of(sign);
    format!(
        "{sign:<16} {:?} on {:?} {:?}",
        style.fg.unwrap(),
        style.bg.unwrap(),
        style.add_modifier
    )
}

#[test]
fn status_cells_have_the_colours_of_their_theme() {
    let mut text = String::new();
    for theme in Theme::names() {
        text.push_str(&format!("{theme}\n"));
        for sign in ["▶ 1 running", "○ 3 queued", "▶ notion"] {
            text.push_str(&format!("  {}\n", cell(theme, sign)));
        }
        let theme = Theme::new(theme, ColorLevel::Full, false).unwrap();
        for state in STATES {
            let style = theme.style(status_role(state));
            text.push_str(&format!(
                "  {:<12} {:?} {:?}\n",
                state.as_str(),
                style.fg,
                style.add_modifier
            ));
        }
    }
    insta::assert_snapshot!(text);
}

/// Linear values from 0 to 1 for red, green and blue.
fn linear(color: Color) -> [f64; 3] {
    let Color::Rgb(red, green, blue) = color else {
        panic!("{color:?} is chosen by the terminal")
    };
    [red, green, blue].map(|part| {
        let part = f64::from(part) / 255.0;
        if part <= 0.04045 {
            part / 12.92
        } else {
            ((part + 0.055) / 1.055).powf(2.4)
        }
    })
}

fn times(matrix: [[f64; 3]; 3], color: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| {
        row.iter()
            .zip(color)
            .map(|(a, b)| a * b)
            .sum::<f64>()
            .clamp(0.0, 1.0)
    })
}

/// CIELAB, in which distances approximate perceived differences.
fn lab(color: [f64; 3]) -> [f64; 3] {
    const XYZ: [[f64; 3]; 3] = [
        [0.4124, 0.3576, 0.1805],
        [0.2126, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9505],
    ];
    let white = [0.9505, 1.0, 1.089];
    let [x, y, z] = std::array::from_fn(|axis| {
        let part: f64 = XYZ[axis].iter().zip(color).map(|(a, b)| a * b).sum::<f64>() / white[axis];
        if part > 0.008_856 {
            part.cbrt()
        } else {
            7.787 * part + 16.0 / 116.0
        }
    });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

/// Machado, Oliveira and Fernandes 2009, severity 1.
const BLINDNESS: [(&str, [[f64; 3]; 3]); 3] = [
    (
        "protanopia",
        [
            [0.152_286, 1.052_583, -0.204_868],
            [0.114_503, 0.786_281, 0.099_216],
            [-0.003_882, -0.048_116, 1.051_998],
        ],
    ),
    (
        "deuteranopia",
        [
            [0.367_322, 0.860_646, -0.227_968],
            [0.280_085, 0.672_501, 0.047_413],
            [-0.011_820, 0.042_940, 0.968_881],
        ],
    ),
    (
        "tritanopia",
        [
            [1.255_528, -0.076_749, -0.178_779],
            [-0.078_411, 0.930_809, 0.147_602],
            [0.004_733, 0.691_367, 0.303_900],
        ],
    ),
];

#[test]
fn states_are_distinguishable_with_colour_blindness() {
    use UnitStatus::{Failed, Running, Succeeded, Waiting};
    for name in ["color-blind", "high-contrast"] {
        let theme = Theme::new(name, ColorLevel::Full, false).unwrap();
        let color = |state| linear(theme.style(status_role(state)).fg.unwrap());
        for (blindness, matrix) in BLINDNESS {
            for (one, other) in [
                (Failed, Succeeded),
                (Failed, Running),
                (Failed, Waiting),
                (Succeeded, Waiting),
                (Running, Waiting),
            ] {
                let (a, b) = (
                    lab(times(matrix, color(one))),
                    lab(times(matrix, color(other))),
                );
                let distance = a
                    .iter()
                    .zip(b)
                    .map(|(a, b)| (a - b).powi(2))
                    .sum::<f64>()
                    .sqrt();
                assert!(
                    distance > 15.0,
                    "{name}: {one:?} and {other:?} look alike with {blindness}: {distance:.1}"
                );
            }
        }
        // Failure has an additional attribute.
        assert!(
            theme
                .style(status_role(Failed))
                .add_modifier
                .contains(Modifier::UNDERLINED)
        );
    }
}

#[test]
fn high_contrast_theme_has_ratio_seven() {
    let theme = Theme::new("high-contrast", ColorLevel::Full, false).unwrap();
    let light = |color: Color| {
        let [red, green, blue] = linear(color);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    for role in StyleRole::ALL
        .iter()
        .filter(|role| !matches!(role, StyleRole::Border | StyleRole::Resting))
    {
        let style = theme.style(*role);
        let (front, back) = (light(style.fg.unwrap()), style.bg.map_or(0.0, light));
        let ratio = (front.max(back) + 0.05) / (front.min(back) + 0.05);
        assert!(ratio >= 7.0, "{role:?} has {ratio:.1} to 1");
    }
}
