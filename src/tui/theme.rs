//! Colours, attributes and glyphs by role. Views must use roles, never colours.
//!
//! A theme is a file of `role = "style"`; it must define every role. The colour level is decided once, from the flag
//! and the environment that the caller passes.

use std::collections::BTreeMap;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

use ingestdeck_core::{
    diagnostic::Diagnostic,
    run::{
        ActivityMark,
        state::{RowKind, RowOutcome, UnitState, UnitStatus},
    },
};

macro_rules! roles {
    ($($role:ident $name:literal,)+) => {
        /// Meaning of a part of the screen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StyleRole {
            $(#[doc = $name] $role,)+
        }

        impl StyleRole {
            /// All roles in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$role,)+];

            /// Name of the role in theme files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$role => $name,)+ }
            }
        }
    };
}

roles! {
    Text "text",
    Dim "dim",
    Strong "strong",
    Border "border",
    Focus "focus",
    Selected "selected",
    Resting "resting",
    Key "key",
    Badge "badge",
    Match "match",
    Queued "queued",
    Running "running",
    Waiting "waiting",
    Succeeded "succeeded",
    Budget "budget",
    Failed "failed",
    Stopped "stopped",
    Interrupted "interrupted",
    Denied "denied",
    Warning "warning",
    Said "said",
    Thinking "thinking",
    Live "live",
    Paused "paused",
    JsonKey "json-key",
    JsonText "json-text",
    JsonValue "json-value",
}

const FILES: &[(&str, &str)] = &[
    ("dark", include_str!("../../assets/themes/dark.toml")),
    ("light", include_str!("../../assets/themes/light.toml")),
    (
        "high-contrast",
        include_str!("../../assets/themes/high-contrast.toml"),
    ),
    (
        "color-blind",
        include_str!("../../assets/themes/color-blind.toml"),
    ),
];

/// An error in the choice or the text of a theme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThemeError {
    /// There is no built-in theme of that name.
    #[error("unknown theme `{name}`")]
    Unknown {
        name: String,
        /// Names of the built-in themes.
        known: String,
    },
    /// The text of a theme is invalid.
    #[error("theme `{name}` is not valid: {cause}")]
    Invalid {
        /// Name of the theme.
        name: String,
        /// Message of the parser.
        cause: String,
    },
}

impl Diagnostic for ThemeError {
    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Unknown { known, .. } => {
                format!("choose one of {known}, or name a file by its path")
            }
            Self::Invalid { .. } => return None,
        })
    }
}

/// How much colour to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorLevel {
    #[default]
    Full,
    /// Attributes such as bold, without colours.
    Attributes,
    /// Neither colours nor attributes.
    Plain,
}

/// The colour setting of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// Decide from the environment.
    #[default]
    Auto,
    /// Use colours in any environment.
    Always,
    /// Use no colours in any environment.
    Never,
}

impl ColorChoice {
    /// Decides from the setting and the environment: `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR`, `TERM=dumb`.
    pub fn resolve(self, variable: impl Fn(&str) -> Option<String>) -> ColorLevel {
        let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let dumb = variable("TERM").is_some_and(|term| term == "dumb");
        let without = if dumb {
            ColorLevel::Plain
        } else {
            ColorLevel::Attributes
        };
        match self {
            Self::Always => ColorLevel::Full,
            Self::Never => without,
            Self::Auto if set("NO_COLOR") => without,
            Self::Auto
                if variable("CLICOLOR_FORCE")
                    .is_some_and(|value| !value.is_empty() && value != "0") =>
            {
                ColorLevel::Full
            }
            Self::Auto if dumb || variable("CLICOLOR").is_some_and(|value| value == "0") => without,
            Self::Auto => ColorLevel::Full,
        }
    }
}

/// True when the locale or the terminal can show only ASCII.
pub fn wants_ascii(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let term = variable("TERM");
    matches!(term.as_deref(), Some("dumb" | "linux" | "vt100" | "vt220"))
        || locale.is_some_and(|locale| matches!(locale.as_str(), "C" | "POSIX"))
}

/// A theme with its glyphs, resolved for one colour level.
#[derive(Clone, Debug)]
pub struct Theme {
    styles: Vec<Style>,
    /// The glyphs in use.
    pub glyphs: &'static GlyphSet,
}

#[derive(Deserialize)]
struct ThemeFile {
    roles: BTreeMap<String, String>,
}

impl Theme {
    /// True if it draws with ASCII only.
    pub fn is_ascii(&self) -> bool {
        self.glyphs.is_ascii()
    }

    /// Names of the built-in themes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The built-in theme `name` at a colour level.
    pub fn new(name: &str, color: ColorLevel, ascii: bool) -> Result<Self, ThemeError> {
        let Some((_, text)) = FILES.iter().find(|(known, _)| *known == name) else {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(ThemeError::Unknown {
                name: name.to_owned(),
                known,
            });
        };
        Self::parse(name, text, color, ascii)
    }

    /// Parses a user's theme from the text of a file called `name`.
    pub fn parse(
        name: &str,
        text: &str,
        color: ColorLevel,
        ascii: bool,
    ) -> Result<Self, ThemeError> {
        let invalid = |cause: String| ThemeError::Invalid {
            name: name.to_owned(),
            cause,
        };
        let file: ThemeFile =
            toml::from_str(text).map_err(|error| invalid(with_line_number(text, &error)))?;
        if let Some(unknown) = file
            .roles
            .keys()
            .find(|role| !StyleRole::ALL.iter().any(|known| known.name() == *role))
        {
            return Err(invalid(format!("no role is named `{unknown}`")));
        }
        let mut styles = Vec::with_capacity(StyleRole::ALL.len());
        for role in StyleRole::ALL {
            let words = file
                .roles
                .get(role.name())
                .ok_or_else(|| invalid(format!("role `{}` is missing", role.name())))?;
            styles.push(reduce_color(style(words).map_err(&invalid)?, color));
        }
        Ok(Self {
            styles,
            glyphs: if ascii { &ASCII } else { &UNICODE },
        })
    }

    /// True if it is made for terminals with a light background.
    pub fn is_light(&self) -> bool {
        /// Colours of the palette that are darker than most backgrounds of light terminals.
        const DARK: [u8; 3] = [0, 8, 16];
        match self.style(StyleRole::Text).fg {
            Some(Color::Black | Color::DarkGray) => true,
            Some(Color::Indexed(index)) => DARK.contains(&index) || (232..=243).contains(&index),
            Some(Color::Rgb(red, green, blue)) => {
                u16::from(red) + u16::from(green) + u16::from(blue) < 3 * 128
            }
            _ => false,
        }
    }

    /// The style of a role at the colour level of the theme.
    pub fn style(&self, role: StyleRole) -> Style {
        self.styles.get(role as usize).copied().unwrap_or_default()
    }
}

fn with_line_number(text: &str, error: &toml::de::Error) -> String {
    let before = error
        .span()
        .and_then(|span| text.get(..span.start))
        .unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {}", error.message().replace('\n', " "))
}

fn style(words: &str) -> Result<Style, String> {
    let mut style = Style::new();
    let mut ground = false;
    for word in words.split_whitespace() {
        let modifier = match word {
            "on" => {
                ground = true;
                continue;
            }
            "bold" => Modifier::BOLD,
            "dim" => Modifier::DIM,
            "italic" => Modifier::ITALIC,
            "underlined" => Modifier::UNDERLINED,
            "reversed" => Modifier::REVERSED,
            colour => {
                let colour: Color = colour
                    .parse()
                    .map_err(|_| format!("`{colour}` is neither a colour nor an attribute"))?;
                style = if ground {
                    style.bg(colour)
                } else {
                    style.fg(colour)
                };
                continue;
            }
        };
        style = style.add_modifier(modifier);
    }
    Ok(style)
}

fn reduce_color(style: Style, color: ColorLevel) -> Style {
    match color {
        ColorLevel::Full => style,
        // A background marks the selection; without colour, reverse video does.
        ColorLevel::Attributes if style.bg.is_some() => {
            Style::new().add_modifier(style.add_modifier | Modifier::REVERSED)
        }
        ColorLevel::Attributes => Style::new().add_modifier(style.add_modifier),
        ColorLevel::Plain
            if style.bg.is_some() || style.add_modifier.contains(Modifier::REVERSED) =>
        {
            Style::new().add_modifier(Modifier::REVERSED)
        }
        ColorLevel::Plain => Style::new(),
    }
}

/// Signs that are drawn next to words.
#[derive(Debug)]
pub struct GlyphSet {
    /// Statuses of units, then a conflict.
    statuses: [&'static str; 12],
    ends: [&'static str; 6],
    kinds: [&'static str; 10],
    /// Marks a text that was cut.
    pub cut: &'static str,
    pub dot: &'static str,
    /// Marks a live run.
    pub live: &'static str,
    pub paused: &'static str,
    pub playing: &'static str,
    /// Levels of activity, from low to high.
    pub levels: [&'static str; 8],
    /// Marks the moment that is shown.
    pub here: &'static str,
    pub breakpoint: &'static str,
    /// Marks of the timeline, then a bookmark.
    marks: [&'static str; ActivityMark::ALL.len() + 1],
    /// Corners and sides: top left, top right, bottom left, bottom right, vertical, horizontal.
    pub frame: [&'static str; 6],
    pub arrow: &'static str,
    /// Done and remaining parts of a progress bar, which are the critical path and the start-up in a lane; and the other
    /// parts of a lane: work, hold, and no slot in use during a limit.
    pub progress: [&'static str; 5],
}

impl GlyphSet {
    /// True when only ASCII is used.
    pub(crate) fn is_ascii(&self) -> bool {
        self.cut.is_ascii()
    }

    pub(crate) fn status(&self, status: UnitStatus) -> &'static str {
        self.statuses[match status {
            UnitStatus::Queued | UnitStatus::NotStarted => 0,
            UnitStatus::Running => 1,
            UnitStatus::Waiting => 2,
            UnitStatus::Succeeded => 3,
            UnitStatus::BudgetExhausted => 4,
            UnitStatus::Failed => 5,
            UnitStatus::Stopped => 6,
            UnitStatus::Interrupted => 7,
            UnitStatus::Held => 8,
            UnitStatus::Reused => 9,
            UnitStatus::Silent => 10,
        }]
    }

    /// Glyph of a unit: that of its status, unless its patch was not integrated.
    pub(crate) fn unit(&self, unit: &UnitState) -> &'static str {
        if unit.has_conflict() {
            self.statuses[11]
        } else {
            self.status(unit.status)
        }
    }

    pub(crate) fn mark(&self, mark: ActivityMark) -> &'static str {
        self.marks[mark as usize]
    }

    pub(crate) fn bookmark(&self) -> &'static str {
        self.marks[ActivityMark::ALL.len()]
    }

    pub(crate) fn row(&self, kind: RowKind, end: RowOutcome) -> &'static str {
        let by_end = self.ends[match end {
            RowOutcome::Open => 0,
            RowOutcome::Ok => 1,
            RowOutcome::Failed => 2,
            RowOutcome::Denied => 3,
            RowOutcome::Aborted => 4,
            RowOutcome::Declined => 5,
        }];
        let kind = match kind {
            RowKind::Tool | RowKind::Task => return by_end,
            _ if matches!(
                end,
                RowOutcome::Failed | RowOutcome::Denied | RowOutcome::Aborted
            ) =>
            {
                return by_end;
            }
            RowKind::Text => 1,
            RowKind::Thinking => 2,
            RowKind::Denial => 3,
            RowKind::Warning => 4,
            RowKind::Notice => 5,
            RowKind::Started => 6,
            RowKind::Completed => 7,
            RowKind::Note => 8,
            RowKind::Prompt => 9,
        };
        self.kinds[kind]
    }
}

static UNICODE: GlyphSet = GlyphSet {
    statuses: ["○", "▶", "◐", "✓", "◆", "✗", "■", "◌", "‖", "≡", "!", "≠"],
    ends: ["▸", "✓", "✗", "▲", "■", "△"],
    kinds: ["·", "»", "∴", "▲", "!", "·", "●", "■", "◇", "❯"],
    cut: "…",
    dot: "·",
    live: "●",
    paused: "‖",
    playing: "▶",
    levels: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    here: "┃",
    breakpoint: "◉",
    marks: ["✗", "▲", "◆", "↻", "‖", "★"],
    frame: ["┌", "┐", "└", "┘", "│", "─"],
    arrow: "→",
    progress: ["━", "╌", "─", "‖", "░"],
};

static ASCII: GlyphSet = GlyphSet {
    statuses: ["o", ">", "~", "v", "B", "x", "#", "/", "=", "^", "z", "%"],
    ends: [">", "v", "x", "!", "#", "n"],
    kinds: ["-", "\"", ":", "!", "!", "-", "*", "=", "@", "<"],
    cut: "~",
    dot: "-",
    live: "*",
    paused: "=",
    playing: ">",
    levels: [".", ".", ":", ":", "-", "=", "*", "#"],
    here: "|",
    breakpoint: "@",
    marks: ["x", "!", "B", "~", "=", "&"],
    frame: ["+", "+", "+", "+", "|", "-"],
    arrow: ">",
    progress: ["=", ".", "-", "|", "%"],
};

pub fn status_role(status: UnitStatus) -> StyleRole {
    match status {
        UnitStatus::Queued | UnitStatus::NotStarted => StyleRole::Queued,
        UnitStatus::Running => StyleRole::Running,
        UnitStatus::Waiting => StyleRole::Waiting,
        UnitStatus::Succeeded => StyleRole::Succeeded,
        UnitStatus::BudgetExhausted => StyleRole::Budget,
        UnitStatus::Failed => StyleRole::Failed,
        UnitStatus::Stopped => StyleRole::Stopped,
        UnitStatus::Interrupted => StyleRole::Interrupted,
        UnitStatus::Silent => StyleRole::Warning,
        UnitStatus::Held => StyleRole::Paused,
        UnitStatus::Reused => StyleRole::Succeeded,
    }
}

pub(crate) fn mark_role(mark: ActivityMark) -> StyleRole {
    match mark {
        ActivityMark::Failure => StyleRole::Failed,
        ActivityMark::Denial => StyleRole::Denied,
        ActivityMark::Limit => StyleRole::Budget,
        ActivityMark::Retry => StyleRole::Waiting,
        ActivityMark::Hold => StyleRole::Paused,
    }
}

/// The role of the sign of a row.
pub(crate) fn row_role(kind: RowKind, end: RowOutcome) -> StyleRole {
    match (kind, end) {
        (_, RowOutcome::Failed) => StyleRole::Failed,
        (_, RowOutcome::Denied) | (RowKind::Denial, _) => StyleRole::Denied,
        (RowKind::Tool | RowKind::Task, RowOutcome::Open) => StyleRole::Running,
        (_, RowOutcome::Aborted) => StyleRole::Stopped,
        (_, RowOutcome::Declined) => StyleRole::Warning,
        (RowKind::Tool | RowKind::Task | RowKind::Completed, RowOutcome::Ok | RowOutcome::Open) => {
            StyleRole::Succeeded
        }
        (RowKind::Text, _) => StyleRole::Said,
        (RowKind::Prompt, _) => StyleRole::Strong,
        (RowKind::Thinking, _) => StyleRole::Thinking,
        (RowKind::Warning, _) => StyleRole::Warning,
        (RowKind::Notice | RowKind::Started | RowKind::Note, _) => StyleRole::Dim,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_theme_is_complete() {
        for name in Theme::names() {
            Theme::new(name, ColorLevel::Full, false).unwrap_or_else(|error| panic!("{error}"));
        }
        let error = Theme::new("neon", ColorLevel::Full, false).unwrap_err();
        assert_eq!(
            error.to_line(),
            "unknown theme `neon`; choose one of dark, light, high-contrast, color-blind, or name a file by its path"
        );
        assert!(Theme::parse("x", "[roles]\ntext = ''", ColorLevel::Full, false).is_err());
        assert!(Theme::parse("x", "[roles]\nnope = ''", ColorLevel::Full, false).is_err());
    }

    #[test]
    fn states_differ_in_colour_and_in_glyph() {
        use UnitStatus::{
            BudgetExhausted, Failed, Held, Interrupted, Queued, Running, Silent, Stopped,
            Succeeded, Waiting,
        };
        let all = [
            Queued,
            Running,
            Waiting,
            Succeeded,
            BudgetExhausted,
            Failed,
            Stopped,
            Interrupted,
            Held,
            Silent,
        ];
        for glyphs in [&UNICODE, &ASCII] {
            let signs: std::collections::BTreeSet<_> = all
                .iter()
                .map(|status| glyphs.status(*status))
                .chain([glyphs.statuses[11]])
                .collect();
            assert_eq!(signs.len(), all.len() + 1);
        }
        for name in Theme::names() {
            let theme = Theme::new(name, ColorLevel::Full, false).unwrap();
            let colour = |status| theme.style(status_role(status));
            for (one, other) in [
                (Running, Succeeded),
                (Succeeded, Failed),
                (Failed, Running),
                (Waiting, Running),
                (Held, Running),
            ] {
                assert_ne!(colour(one), colour(other), "{name}: {one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn selection_is_visible_without_color() {
        let theme = Theme::new("dark", ColorLevel::Attributes, true).unwrap();
        assert!(
            theme
                .style(StyleRole::Selected)
                .add_modifier
                .contains(Modifier::REVERSED)
        );
        assert!(
            StyleRole::ALL
                .iter()
                .all(|role| theme.style(*role).fg.is_none() && theme.style(*role).bg.is_none())
        );
    }

    #[test]
    fn color_auto_follows_the_environment() {
        let resolve = |choice: ColorChoice, set: &[(&str, &str)]| {
            choice.resolve(|name| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(resolve(ColorChoice::Auto, &[]), ColorLevel::Full);
        assert_eq!(
            resolve(ColorChoice::Auto, &[("NO_COLOR", "1")]),
            ColorLevel::Attributes
        );
        assert_eq!(
            resolve(ColorChoice::Auto, &[("NO_COLOR", "")]),
            ColorLevel::Full
        );
        assert_eq!(
            resolve(ColorChoice::Auto, &[("TERM", "dumb")]),
            ColorLevel::Plain
        );
        assert_eq!(
            resolve(
                ColorChoice::Auto,
                &[("TERM", "dumb"), ("CLICOLOR_FORCE", "1")]
            ),
            ColorLevel::Full
        );
        assert_eq!(
            resolve(ColorChoice::Always, &[("NO_COLOR", "1")]),
            ColorLevel::Full
        );
        assert_eq!(resolve(ColorChoice::Never, &[]), ColorLevel::Attributes);
    }
}
