//! `screenshot`: renders a record through the code path of the screen as an SVG, for the pictures of the README.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    future,
    io::{self, Write as _},
    time::Duration,
};

use jiff::Timestamp;
use ratatui::{
    buffer::{Buffer, Cell},
    layout::Rect,
    style::{Color, Modifier},
};
use tokio::time::Instant;

use super::{
    args::{GlobalArgs, ScreenshotArgs},
    exit::{CliError, Exit},
    export::{self, out_file},
    project, replay, settings,
};
use ingestdeck_core::{diagnostic::Problem, run::Timeline};
use ingestdeck_engine::launch::runtime;
use ingestdeck_tui::{
    self as tui, ExitReason, Theme,
    export::Export,
    host::{ClockReading, FramePainter, HostInput, ScreenHost, ToolExit, copy_kept_area},
    key::KeyPress,
    notification::{Notification, TerminalProgress},
};

/// Size of a cell, in SVG units.
const CELL_SIZE: (f32, f32) = (8.4, 17.0);

/// Maximum number of columns and of rows.
const MAX_SIDE: u16 = 1000;

/// Time without an event after which the screen is complete.
const SETTLE_DELAY: Duration = Duration::from_millis(200);

/// Margin around the screen, in SVG units.
const MARGIN: f32 = 10.0;

/// The colours of cells that have none.
#[derive(Clone, Copy, Debug)]
struct TerminalColors {
    background: &'static str,
    text: &'static str,
    is_light: bool,
}

impl TerminalColors {
    const DARK: Self = Self {
        background: "#16181d",
        text: "#d7dae0",
        is_light: false,
    };
    const LIGHT: Self = Self {
        background: "#fafafa",
        text: "#1d1f21",
        is_light: true,
    };

    /// Those of the terminals that a theme is for.
    fn of(theme: &Theme) -> Self {
        match theme.is_light() {
            true => Self::LIGHT,
            false => Self::DARK,
        }
    }
}

/// Draws a record after a sequence of keys.
///
/// # Errors
/// If the record cannot be opened or the picture cannot be written.
pub(crate) fn screenshot(global: &GlobalArgs, args: &ScreenshotArgs) -> Result<Exit, CliError> {
    let size = size(&args.size)?;
    let config = settings::load(global)?;
    let mut options = settings::screen_options(global, &config)?;
    // A picture must show the same times wherever it is drawn.
    options.zone = jiff::tz::TimeZone::UTC;
    options.theme = settings::named_theme(global, &args.theme)?;
    let keys = keys(&args.keys)?;
    let colors = TerminalColors::of(&options.theme);
    let runtime = runtime(1)?;
    let buffer = runtime.block_on(async {
        let timeline = Timeline::new(Box::new(replay::open(global, &args.what)?));
        // Read the whole record without keys first, so that the keys apply to the complete run.
        let mut reading = OffscreenHost::new(size, VecDeque::new(), false);
        let read = tui::Options {
            exit_when: Some(tui::ExitCondition::End),
            ..options.clone()
        };
        let left = tui::run_event_loop(timeline, None, read, &mut reading)
            .await
            .map_err(CliError::internal)?;
        let mut picture = OffscreenHost::new(size, keys, true);
        let left = tui::run_event_loop(left.timeline, None, options, &mut picture)
            .await
            .map_err(CliError::internal)?;
        match left.reason {
            ExitReason::Closed | ExitReason::Quit => Ok(picture.buffer),
            ExitReason::ConditionMet
            | ExitReason::Detached
            | ExitReason::Chosen(_)
            | ExitReason::Signal(_) => {
                Err(CliError::failed("the screen ended before it was drawn"))
            }
        }
    })?;
    let project = project::resolve_directory(global).ok();
    let written = out_file::create(&args.out, project.as_deref());
    let written = written.and_then(|mut out| out.write_all(svg(&buffer, colors).as_bytes()));
    written.map_err(|error| export::cannot_write(&args.out, &error))?;
    Ok(Exit::Ok)
}

fn size(text: &str) -> Result<(u16, u16), CliError> {
    let side = |text: &str| {
        text.parse()
            .ok()
            .filter(|side| (1..=MAX_SIDE).contains(side))
    };
    let parsed = text
        .split_once('x')
        .and_then(|(width, height)| Some((side(width)?, side(height)?)));
    parsed.ok_or_else(|| {
        let expected = format!("columns and rows up to {MAX_SIDE}, such as 120x36");
        CliError::usage(format!("invalid --size `{text}`; expected {expected}"))
    })
}

fn keys(text: &str) -> Result<VecDeque<KeyPress>, CliError> {
    if text.is_empty() {
        return Ok(VecDeque::new());
    }
    tui::key::parse(text).map(Into::into).map_err(|error| {
        CliError::from_error(Exit::Usage, &error).context(format!("--keys {text}"))
    })
}

/// An offscreen host: keys come from a list, and frames are kept in memory.
struct OffscreenHost {
    buffer: Buffer,
    keys: VecDeque<KeyPress>,
    started: Instant,
    quits_when_idle: bool,
}

impl OffscreenHost {
    fn new((width, height): (u16, u16), keys: VecDeque<KeyPress>, ends: bool) -> Self {
        let buffer = Buffer::empty(Rect::new(0, 0, width, height));
        Self {
            buffer,
            keys,
            started: Instant::now(),
            quits_when_idle: ends,
        }
    }
}

impl ScreenHost for OffscreenHost {
    fn clock(&self) -> ClockReading {
        ClockReading {
            now: self.started.elapsed(),
            wall: Timestamp::UNIX_EPOCH,
        }
    }

    async fn input(&mut self) -> HostInput {
        match self.keys.pop_front() {
            Some(key) => HostInput::Key(key),
            None if self.quits_when_idle => {
                // Starts again after each event, so that work that is in progress is completed first.
                tokio::time::sleep(SETTLE_DELAY).await;
                HostInput::Closed
            }
            None => future::pending().await,
        }
    }

    fn draw(&mut self, paint: &mut FramePainter<'_>) -> io::Result<()> {
        let last = self.buffer.clone();
        self.buffer.reset();
        let kept = paint(&mut self.buffer, true);
        copy_kept_area(&last, &mut self.buffer, kept);
        Ok(())
    }

    fn title(&mut self, _: &str) {}

    fn progress(&mut self, _: TerminalProgress) {}

    fn notify(&mut self, _: &Notification) -> Result<(), Problem> {
        Ok(())
    }

    fn copy(&mut self, _: &str) {}

    fn mouse(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        Ok(())
    }

    async fn open(&mut self, _: &Export) -> Result<ToolExit, Problem> {
        Ok(ToolExit::default())
    }

    async fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn svg(buffer: &Buffer, colors: TerminalColors) -> String {
    let background = colors.background;
    let Rect { width, height, .. } = buffer.area;
    let (wide, tall) = (
        f32::from(width) * CELL_SIZE.0 + 2.0 * MARGIN,
        f32::from(height) * CELL_SIZE.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{tall}\" viewBox=\"0 0 {wide} {tall}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{background}\"/>\n\
         <g font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for row in 0..height {
        let mut column = 0;
        while column < width {
            let cell = &buffer[(column, row)];
            let mut text = cell.symbol().to_owned();
            let start = column;
            column += 1;
            while column < width && has_same_style(cell, &buffer[(column, row)]) {
                text.push_str(buffer[(column, row)].symbol());
                column += 1;
            }
            write_text_run(&mut out, cell, colors, &text, (start, row), column - start);
        }
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn has_same_style(a: &Cell, b: &Cell) -> bool {
    a.fg == b.fg && a.bg == b.bg && a.modifier == b.modifier
}

fn write_text_run(
    out: &mut String,
    cell: &Cell,
    colors: TerminalColors,
    text: &str,
    (column, row): (u16, u16),
    length: u16,
) {
    let (mut front, mut back) = (
        color(cell.fg, colors, colors.text),
        color(cell.bg, colors, "none"),
    );
    if cell.modifier.contains(Modifier::REVERSED) {
        let ground = if back == "none" {
            colors.background.into()
        } else {
            back
        };
        back = std::mem::replace(&mut front, ground);
    }
    let (x, y) = (
        f32::from(column) * CELL_SIZE.0 + MARGIN,
        f32::from(row) * CELL_SIZE.1 + MARGIN,
    );
    let wide = f32::from(length) * CELL_SIZE.0;
    if back != "none" {
        let tall = CELL_SIZE.1;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{tall}\" fill=\"{back}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let faint = if cell.modifier.contains(Modifier::DIM) {
        " opacity=\"0.6\""
    } else {
        ""
    };
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let base = y + 13.0;
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{base:.1}\" fill=\"{front}\" textLength=\"{wide:.1}\" lengthAdjust=\"spacingAndGlyphs\"{weight}{faint}>{text}</text>"
    );
}

/// The 16 colours are those of common dark terminals; on a light background the ones that are too pale are darker.
fn color(color: Color, colors: TerminalColors, unset: &str) -> String {
    match color {
        Color::Blue if colors.is_light => "#0b5cad".into(),
        Color::Reset => unset.to_owned(),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Black => "#1d1f21".into(),
        Color::Red => "#e06c75".into(),
        Color::Green => "#98c379".into(),
        Color::Yellow => "#e5c07b".into(),
        Color::Blue => "#61afef".into(),
        Color::Magenta => "#c678dd".into(),
        Color::Cyan => "#56b6c2".into(),
        Color::Gray => "#abb2bf".into(),
        Color::DarkGray => "#7f848e".into(),
        Color::LightRed => "#ff7b86".into(),
        Color::LightGreen => "#b5e890".into(),
        Color::LightYellow => "#ffd68a".into(),
        Color::LightBlue => "#82c4ff".into(),
        Color::LightMagenta => "#e09bf5".into(),
        Color::LightCyan => "#7fe0ec".into(),
        Color::White => "#ffffff".into(),
        // The 6x6x6 cube and the greys of the standard palette.
        Color::Indexed(index @ 16..=231) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let index = index - 16;
            format!(
                "#{:02x}{:02x}{:02x}",
                level(index / 36),
                level(index / 6 % 6),
                level(index % 6)
            )
        }
        Color::Indexed(index @ 232..) => {
            let grey = 8 + 10 * (index - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
        Color::Indexed(_) => unset.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_styled() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 1));
        buffer.set_string(
            0,
            0,
            "<a&b>",
            ratatui::style::Style::new()
                .fg(Color::Rgb(1, 2, 3))
                .bg(Color::Indexed(16)),
        );
        let svg = svg(&buffer, TerminalColors::DARK);
        assert!(svg.contains("fill=\"#010203\""), "{svg}");
        assert!(svg.contains("&lt;a&amp;b&gt;"), "{svg}");
        assert!(svg.contains("fill=\"#000000\""), "{svg}");
    }

    #[test]
    fn sizes_are_columns_and_rows() {
        assert_eq!(size("120x36").unwrap(), (120, 36));
        assert_eq!(size("1x1000").unwrap(), (1, 1000));
        for wrong in ["120", "0x24", "80x1001", "65535x65535", "80x-1", "x"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
