//! Encodes cells as few bytes as possible, since a frame may be sent over a slow connection.
//!
//! ratatui writes both colours whenever one changes, each by its number, and the row with every cursor movement. This
//! encoder writes only differences, and compares the cells of two frames itself, which takes a third of the time. Frames
//! must be repaired by [`close_wide_cells`](crate::view::close_wide_cells): cells below a wide character change only
//! together with it. The module must not know what the cells show.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use ratatui::{
    buffer::{Buffer, Cell, CellWidth as _},
    layout::{Position, Rect},
    style::{Color, Modifier},
};

use ingestdeck_core::text;

/// Minimum blanks at the end of a change for which erasing takes fewer bytes than writing.
const MIN_ERASED_TRAILING: u16 = 5;
/// Minimum blanks for erasing if the cursor must be moved behind them afterwards.
const MIN_ERASED_INSIDE: u16 = 11;

/// Requests the emoji presentation of the preceding character, which is wide.
const EMOJI_STYLE: char = '\u{fe0f}';

/// Modifiers that are visible on a blank cell.
const VISIBLE_ON_BLANKS: Modifier = Modifier::UNDERLINED
    .union(Modifier::REVERSED)
    .union(Modifier::CROSSED_OUT);

/// Codes that switch a modifier on.
const MODIFIERS: [(Modifier, &str); 9] = [
    (Modifier::BOLD, "1"),
    (Modifier::DIM, "2"),
    (Modifier::ITALIC, "3"),
    (Modifier::UNDERLINED, "4"),
    (Modifier::SLOW_BLINK, "5"),
    (Modifier::RAPID_BLINK, "6"),
    (Modifier::REVERSED, "7"),
    (Modifier::HIDDEN, "8"),
    (Modifier::CROSSED_OUT, "9"),
];

const HIDE_CURSOR: &[u8] = b"\x1b[?25l";

/// Draws frames on a terminal.
#[derive(Debug)]
pub struct FrameWriter<W: Write> {
    out: W,
    /// The frame on the terminal, unless the terminal was cleared.
    shown: Buffer,
    is_cleared: bool,
    /// The buffer of the next frame, empty between two frames.
    next: Buffer,
    wide: WideCells,
    is_cursor_hidden: bool,
}

/// Wide characters on the terminal, by row and column of their left half. Right halves are blanks in the style of the
/// left half, see [`close_wide_cells`](crate::view::close_wide_cells).
type WideCells = BTreeMap<(u16, u16), CellStyle>;

impl<W: Write> FrameWriter<W> {
    /// Writes frames for an empty terminal of this size to `out`, each followed by a flush.
    pub fn new(out: W, area: Rect) -> Self {
        let (shown, next) = (Buffer::empty(area), Buffer::empty(area));
        Self {
            out,
            shown,
            is_cleared: true,
            next,
            wide: WideCells::new(),
            is_cursor_hidden: false,
        }
    }

    /// The cells on the terminal.
    pub fn shown(&self) -> &Buffer {
        &self.shown
    }

    /// The terminal was cleared, and has this size now.
    pub(crate) fn restart(&mut self, area: Rect) {
        (self.shown, self.next) = (Buffer::empty(area), Buffer::empty(area));
        self.wide.clear();
        (self.is_cleared, self.is_cursor_hidden) = (true, false);
    }

    /// Draws a frame. `paint` does what [`FramePainter`](crate::host::FramePainter) describes.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer, bool) -> Rect) -> io::Result<()> {
        let area = self.shown.area;
        let is_cleared = std::mem::take(&mut self.is_cleared);
        let kept = paint(&mut self.next, !is_cleared).intersection(area);
        let mut encoder = FrameEncoder::new(&mut self.wide);
        let width = usize::from(area.width.max(1));
        let rows = self
            .shown
            .content
            .chunks_mut(width)
            .zip(self.next.content.chunks_mut(width));
        for (y, (old, new)) in (area.y..area.bottom()).zip(rows) {
            let has_kept = kept.contains(Position::new(kept.x, y));
            let (left, right) = if has_kept {
                (kept.x, kept.right())
            } else {
                (area.right(), area.right())
            };
            let (kept_start, kept_end) = (usize::from(left - area.x), usize::from(right - area.x));
            encoder.row(area.x, y, &old[..kept_start], &new[..kept_start]);
            encoder.row(right, y, &old[kept_end..], &new[kept_end..]);
            // The cells are in the cache now.
            let unused = if kept.is_empty() {
                old
            } else {
                old[..kept_start].swap_with_slice(&mut new[..kept_start]);
                old[kept_end..].swap_with_slice(&mut new[kept_end..]);
                new
            };
            unused.iter_mut().for_each(Cell::reset);
        }
        if kept.is_empty() {
            std::mem::swap(&mut self.shown, &mut self.next);
        }
        let bytes = encoder.end();
        self.out.write_all(&bytes)?;
        if !std::mem::replace(&mut self.is_cursor_hidden, true) {
            self.out.write_all(HIDE_CURSOR)?;
        }
        self.out.flush()
    }

    /// Writes a sequence between two frames. It must not change the style.
    ///
    /// # Errors
    ///
    /// If `out` fails.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }
}

/// Number of columns that a cell takes.
fn column_count(cell: &Cell) -> u16 {
    let symbol = cell.symbol();
    // A wide character has at least three bytes in UTF-8.
    if symbol.len() < 3 || text::is_simple_piece(symbol) {
        1
    } else {
        cell.cell_width().max(1)
    }
}

/// The first cell from `from` on that differs, and its index. Most cells do not, and the loop over them is fast only as a
/// separate function.
#[inline(never)]
fn next_change<'a>(old: &[Cell], new: &'a [Cell], from: usize) -> Option<(usize, &'a Cell)> {
    let mut cells = old.get(from..)?.iter().zip(new.get(from..)?).enumerate();
    cells
        .find(|(_, (old, new))| !is_same_cell(old, new))
        .map(|(at, (_, new))| (from + at, new))
}

/// True if two cells look the same. Most symbols are one byte long, and comparing these needs no call.
fn is_same_cell(one: &Cell, other: &Cell) -> bool {
    let is_same_symbol = match (one.symbol().as_bytes(), other.symbol().as_bytes()) {
        ([one], [other]) => one == other,
        (one, other) => one == other,
    };
    is_same_symbol && CellStyle::from_cell(one) == CellStyle::from_cell(other)
}

/// Colours and modifiers of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CellStyle {
    fg: Color,
    bg: Color,
    modifier: Modifier,
}

impl CellStyle {
    fn from_cell(cell: &Cell) -> Self {
        Self {
            fg: cell.fg,
            bg: cell.bg,
            modifier: cell.modifier,
        }
    }

    /// Appends the codes that change this style to `next`.
    fn change(self, next: Self, out: &mut Vec<u8>) {
        if self == next {
            return;
        }
        out.extend_from_slice(b"\x1b[");
        let begun = out.len();
        let mut code = |code: &str| {
            if out.len() > begun {
                out.push(b';');
            }
            out.extend_from_slice(code.as_bytes());
        };
        // No code switches off bold without dim.
        let kept = if next.modifier.contains(self.modifier) {
            self
        } else {
            code("0");
            Self::default()
        };
        for (modifier, on) in MODIFIERS {
            if next.modifier.contains(modifier) && !kept.modifier.contains(modifier) {
                code(on);
            }
        }
        if next.fg != kept.fg {
            code(&color(next.fg, 30));
        }
        if next.bg != kept.bg {
            code(&color(next.bg, 40));
        }
        out.push(b'm');
    }
}

/// The code of a colour; `base` is 30 for the foreground and 40 for the background.
fn color(color: Color, base: u8) -> String {
    let of_eight = |number: u8| (base + number).to_string();
    let bright = |number: u8| (base + 60 + number).to_string();
    match color {
        Color::Reset => of_eight(9),
        Color::Black => of_eight(0),
        Color::Red => of_eight(1),
        Color::Green => of_eight(2),
        Color::Yellow => of_eight(3),
        Color::Blue => of_eight(4),
        Color::Magenta => of_eight(5),
        Color::Cyan => of_eight(6),
        Color::Gray => of_eight(7),
        Color::DarkGray => bright(0),
        Color::LightRed => bright(1),
        Color::LightGreen => bright(2),
        Color::LightYellow => bright(3),
        Color::LightBlue => bright(4),
        Color::LightMagenta => bright(5),
        Color::LightCyan => bright(6),
        Color::White => bright(7),
        Color::Indexed(number) => format!("{};5;{number}", base + 8),
        Color::Rgb(red, green, blue) => format!("{};2;{red};{green};{blue}", base + 8),
    }
}

/// A frame that is being encoded.
#[derive(Debug)]
struct FrameEncoder<'a> {
    bytes: Vec<u8>,
    wide: &'a mut WideCells,
    /// The right half of a wide character whose left half was overwritten. Terminals differ in the content of this
    /// cell.
    orphan: Option<(u16, u16, CellStyle)>,
    style: CellStyle,
    /// Current write position of the terminal, if it is known.
    cursor: Option<(u16, u16)>,
    /// Number of blanks from the cursor on that are not written yet.
    pending_blanks: u16,
}

impl<'a> FrameEncoder<'a> {
    fn new(wide: &'a mut WideCells) -> Self {
        Self {
            bytes: Vec::new(),
            wide,
            orphan: None,
            style: CellStyle::default(),
            cursor: None,
            pending_blanks: 0,
        }
    }

    /// Encodes what differs between two rows whose first cell is in column `x`. Cells below a wide character differ only
    /// if it does.
    fn row(&mut self, x: u16, y: u16, old: &[Cell], new: &[Cell]) {
        let mut from = 0;
        while let Some((at, cell)) = next_change(old, new, from) {
            self.cell(
                x.saturating_add(u16::try_from(at).unwrap_or(u16::MAX)),
                y,
                cell,
            );
            from = at + usize::from(column_count(cell));
        }
    }

    fn cell(&mut self, x: u16, y: u16, cell: &Cell) {
        if self
            .orphan
            .is_some_and(|(column, row, _)| (column, row) != (x, y))
        {
            self.blank_orphan();
        }
        self.orphan = None;
        let left = x.checked_sub(1);
        if left.is_some_and(|left| self.wide.contains_key(&(y, left))) {
            // The right half of a wide character was drawn together with its left half.
            return;
        }
        let width = cell.cell_width().max(1);
        let right = x.saturating_add(width);
        let overwritten = (x..right)
            .filter_map(|column| Some((column, self.wide.remove(&(y, column))?)))
            .last();
        self.orphan = overwritten
            .filter(|(column, _)| column + 2 > right)
            .map(|(_, style)| (right, y, style));
        if width > 1 {
            self.wide.insert((y, x), CellStyle::from_cell(cell));
        }
        self.draw(x, y, cell);
    }

    /// Draws an orphaned right half as a blank, which is its content in the buffer if it did not change.
    fn blank_orphan(&mut self) {
        if let Some((x, y, style)) = self.orphan.take() {
            let mut blank = Cell::new(" ");
            (blank.fg, blank.bg, blank.modifier) = (style.fg, style.bg, style.modifier);
            self.draw(x, y, &blank);
        }
    }

    fn draw(&mut self, x: u16, y: u16, cell: &Cell) {
        let next = self
            .cursor
            .map(|(x, y)| (x.saturating_add(self.pending_blanks), y));
        if next != Some((x, y)) {
            self.flush_blanks(MIN_ERASED_TRAILING);
            self.move_to(x, y);
        }
        let style = CellStyle::from_cell(cell);
        let blank = cell.symbol() == " " && !style.modifier.intersects(VISIBLE_ON_BLANKS);
        // Terminals differ in the background colour of erased cells, so only cells without one are erased.
        if blank && style.bg == Color::Reset {
            if self.pending_blanks == 0
                && (self.style.bg != style.bg || self.style.modifier.intersects(VISIBLE_ON_BLANKS))
            {
                self.set_style(style);
            }
            self.pending_blanks += 1;
            return;
        }
        if self.flush_blanks(MIN_ERASED_INSIDE) {
            self.move_to(x, y);
        }
        // A blank shows only its background.
        self.set_style(
            if blank && !self.style.modifier.intersects(VISIBLE_ON_BLANKS) {
                CellStyle {
                    bg: style.bg,
                    ..self.style
                }
            } else {
                style
            },
        );
        if cell.symbol().contains(EMOJI_STYLE) {
            // Some terminals treat the symbol as narrow, so the second cell is cleared first.
            self.bytes.extend_from_slice(b"  ");
            self.cursor = Some((x.saturating_add(2), y));
            self.move_to(x, y);
        }
        self.bytes.extend_from_slice(cell.symbol().as_bytes());
        self.cursor = Some((x.saturating_add(1), y));
    }

    fn set_style(&mut self, style: CellStyle) {
        self.style.change(style, &mut self.bytes);
        self.style = style;
    }

    /// Uses the absolute column: a terminal may measure a symbol differently.
    fn move_to(&mut self, x: u16, y: u16) {
        let row = self.cursor.map(|(_, row)| row);
        let sequence = if row == Some(y) {
            format!("\x1b[{}G", x + 1)
        } else {
            format!("\x1b[{};{}H", y + 1, x + 1)
        };
        self.bytes.extend_from_slice(sequence.as_bytes());
        self.cursor = Some((x, y));
    }

    /// Writes the pending blanks, or erases them if there are at least `erased`. Erasing does not move the cursor; the
    /// result is true in that case.
    fn flush_blanks(&mut self, erased: u16) -> bool {
        let blanks = std::mem::take(&mut self.pending_blanks);
        if blanks >= erased {
            self.bytes
                .extend_from_slice(format!("\x1b[{blanks}X").as_bytes());
            return true;
        }
        self.bytes
            .resize(self.bytes.len() + usize::from(blanks), b' ');
        self.cursor = self.cursor.map(|(x, y)| (x.saturating_add(blanks), y));
        false
    }

    fn end(mut self) -> Vec<u8> {
        self.blank_orphan();
        self.flush_blanks(MIN_ERASED_TRAILING);
        self.set_style(CellStyle::default());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::{Terminal, TerminalOptions, Viewport, backend::CrosstermBackend, style::Style};

    use super::*;
    use crate::view::close_wide_cells;

    const AREA: Rect = Rect {
        x: 0,
        y: 0,
        width: 40,
        height: 6,
    };

    /// Content of an emulator after these bytes: text, and the styles of visible cells.
    fn shown(bytes: &[u8]) -> Vec<String> {
        let mut emulator = vt100::Parser::new(
            AREA.height.try_into().unwrap(),
            AREA.width.try_into().unwrap(),
            0,
        );
        emulator.process(bytes);
        let screen = emulator.screen();
        let cell = |(row, column): (u16, u16)| {
            let cell = screen.cell(row, column).unwrap();
            let text = if cell.has_contents() {
                cell.contents()
            } else {
                " "
            };
            let visible = text != " " || cell.inverse() || cell.underline();
            let fg = visible.then(|| (cell.fgcolor(), cell.bold(), cell.dim(), cell.italic()));
            format!(
                "{text:?} {:?} {fg:?} {} {}",
                cell.bgcolor(),
                cell.inverse(),
                cell.underline()
            )
        };
        (0..AREA.height)
            .flat_map(|row| (0..AREA.width).map(move |column| (row, column)))
            .map(cell)
            .collect()
    }

    /// What is written for these frames, one after the other.
    fn written(frames: &[Buffer]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes, AREA);
        for frame in frames {
            let paint = |target: &mut Buffer, _: bool| {
                assert_eq!(*target, Buffer::empty(AREA));
                target.clone_from(frame);
                Rect::default()
            };
            writer.draw(paint).unwrap();
            assert_eq!(writer.shown(), frame);
        }
        bytes
    }

    /// What ratatui writes for these frames.
    fn written_by_ratatui(frames: &[Buffer]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(AREA),
        };
        let mut terminal =
            Terminal::with_options(CrosstermBackend::new(&mut bytes), options).unwrap();
        for frame in frames {
            terminal
                .draw(|target| target.buffer_mut().clone_from(frame))
                .unwrap();
        }
        drop(terminal);
        bytes
    }

    fn color() -> impl Strategy<Value = Color> {
        prop_oneof![
            3 => Just(Color::Reset),
            3 => prop::sample::select(vec![Color::Red, Color::Gray, Color::DarkGray, Color::White]),
            1 => any::<u8>().prop_map(Color::Indexed),
            1 => any::<[u8; 3]>().prop_map(|[red, green, blue]| Color::Rgb(red, green, blue)),
        ]
    }

    fn style() -> impl Strategy<Value = Style> {
        let modifier = prop::sample::select(vec![
            Modifier::empty(),
            Modifier::BOLD,
            Modifier::DIM | Modifier::ITALIC,
            Modifier::REVERSED,
            Modifier::UNDERLINED | Modifier::BOLD,
        ]);
        (color(), color(), modifier)
            .prop_map(|(fg, bg, modifier)| Style::reset().fg(fg).bg(bg).add_modifier(modifier))
    }

    /// Pieces of text at random positions, each with its style. The emulator treats bold and dim as the same attribute.
    fn buffer() -> impl Strategy<Value = Buffer> {
        let piece = (
            0..AREA.width,
            0..AREA.height,
            "[a-c 日]{0,12}|[ ]{0,30}",
            style(),
        );
        prop::collection::vec(piece, 0..12).prop_map(|pieces| {
            let mut buffer = Buffer::empty(AREA);
            for (x, y, text, style) in pieces {
                buffer.set_string(x, y, text, style);
            }
            close_wide_cells(&mut buffer, 0..AREA.height);
            buffer
        })
    }

    /// Content of a tmux cell.
    #[derive(Clone, Debug, Default, PartialEq)]
    enum TmuxCell {
        #[default]
        Blank,
        Symbol(String),
        /// The right half of the preceding wide character.
        Right,
        /// A half whose other half was erased: it takes no column, so the rest of the row is shown too far left.
        Broken,
    }

    /// The rows of a tmux pane after these bytes. Text that overwrites half of a wide character turns the other half
    /// into a blank; erasing does not.
    fn tmux_rows(bytes: &[u8]) -> Vec<Vec<TmuxCell>> {
        let (width, height) = (usize::from(AREA.width), usize::from(AREA.height));
        let mut rows = vec![vec![TmuxCell::default(); width]; height];
        let (mut x, mut y) = (0, 0);
        let text = std::str::from_utf8(bytes).unwrap();
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            if char == '\x1b' {
                assert_eq!(chars.next(), Some('['));
                let mut numbers = String::new();
                let last = loop {
                    match chars.next().unwrap() {
                        part @ ('0'..='9' | ';' | '?') => numbers.push(part),
                        last => break last,
                    }
                };
                let number = |at: usize| {
                    numbers
                        .split(';')
                        .nth(at)
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(1_usize)
                };
                match last {
                    'H' => (x, y) = (number(1) - 1, number(0) - 1),
                    'G' => x = number(0) - 1,
                    'X' => {
                        let end = (x + number(0)).min(width);
                        if rows[y][x] == TmuxCell::Right {
                            rows[y][x - 1] = TmuxCell::Broken;
                        }
                        if rows[y].get(end) == Some(&TmuxCell::Right) {
                            rows[y][end] = TmuxCell::Broken;
                        }
                        rows[y][x..end].fill(TmuxCell::Blank);
                    }
                    'm' | 'h' | 'l' => {}
                    other => panic!("unexpected sequence {other}"),
                }
                continue;
            }
            let symbol = char.to_string();
            let end = x + usize::from(symbol.cell_width());
            if rows[y][x] == TmuxCell::Right {
                rows[y][x - 1] = TmuxCell::Blank;
            }
            if rows[y].get(end) == Some(&TmuxCell::Right) {
                rows[y][end] = TmuxCell::Blank;
            }
            rows[y][x..end].fill(TmuxCell::Right);
            rows[y][x] = if symbol == " " {
                TmuxCell::Blank
            } else {
                TmuxCell::Symbol(symbol)
            };
            x = end;
        }
        rows
    }

    proptest! {
        #[test]
        fn encoder_output_matches_the_crossterm_backend(pictures in prop::collection::vec(buffer(), 1..5)) {
            let (ours, theirs) = (written(&pictures), written_by_ratatui(&pictures));
            // ratatui leaves halves of wide characters on the screen, so its incremental output differs from a full
            // redraw.
            let redraw = written_by_ratatui(&pictures[pictures.len() - 1..]);
            let differs = shown(&ours).into_iter().zip(shown(&redraw)).enumerate().find(|(_, (ours, theirs))| ours != theirs);
            prop_assert_eq!(differs, None);
            let is_narrow = |picture: &Buffer| picture.content.iter().all(|cell| cell.symbol().cell_width() < 2);
            if pictures.iter().all(is_narrow) {
                prop_assert!(ours.len() <= theirs.len(), "{} bytes, theirs are {}", ours.len(), theirs.len());
            }
        }
    }

    /// Frames with many wide characters at random positions.
    fn wide_buffer() -> impl Strategy<Value = Buffer> {
        let piece = (
            0..AREA.width,
            0..2_u16,
            "[a日🦀│ ]{1,14}|[ ]{0,30}|[日🦀]{1,9}",
            any::<bool>(),
        );
        prop::collection::vec(piece, 0..6).prop_map(|pieces| {
            let mut buffer = Buffer::empty(AREA);
            for (x, y, text, marked) in pieces {
                let style = if marked {
                    Style::reset().bg(Color::Red)
                } else {
                    Style::reset()
                };
                buffer.set_string(x, y, text, style);
            }
            close_wide_cells(&mut buffer, 0..AREA.height);
            buffer
        })
    }

    proptest! {
        #[test]
        fn frames_with_wide_characters_match_a_full_redraw(pictures in prop::collection::vec(wide_buffer(), 2..6)) {
            let (changes, redraw) = (written(&pictures), written(&pictures[pictures.len() - 1..]));
            prop_assert_eq!(tmux_rows(&changes), tmux_rows(&redraw));
            let differs = shown(&changes).into_iter().zip(shown(&redraw)).enumerate().find(|(_, (left, right))| left != right);
            prop_assert_eq!(differs, None);
        }
    }

    #[test]
    fn erased_blanks_cover_both_halves_of_a_wide_character() {
        let (mut before, mut after) = (Buffer::empty(AREA), Buffer::empty(AREA));
        before.set_string(
            0,
            0,
            format!("{}🦀{}│", "x".repeat(30), "x".repeat(7)),
            Style::new(),
        );
        after.set_string(39, 0, "│", Style::new());
        let bytes = written(&[before, after]);
        let mut blank = vec![TmuxCell::Blank; 39];
        blank.push(TmuxCell::Symbol("│".to_owned()));
        assert_eq!(tmux_rows(&bytes)[0], blank);
        assert!(String::from_utf8(bytes).unwrap().contains("\x1b[39X"));
    }

    #[test]
    fn wide_character_under_a_border_becomes_a_blank() {
        let mut buffer = Buffer::empty(Rect {
            height: 1,
            width: 6,
            ..AREA
        });
        buffer.set_string(0, 0, "日日日", Style::new());
        buffer.set_string(3, 0, "│", Style::new());
        close_wide_cells(&mut buffer, [0]);
        assert_eq!(
            buffer.content.iter().map(Cell::symbol).collect::<String>(),
            "日  │日 "
        );
    }

    #[test]
    fn encoder_writes_only_changes() {
        let draw = |paint: &dyn Fn(&mut Buffer)| {
            let mut buffer = Buffer::empty(AREA);
            paint(&mut buffer);
            String::from_utf8(written(&[buffer])).unwrap()
        };
        assert_eq!(draw(&|_| {}), "\x1b[?25l");
        let bold = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let words = |buffer: &mut Buffer| {
            buffer.set_string(1, 1, "one", bold);
            buffer.set_string(20, 1, "two", Style::new().fg(Color::Red));
            buffer.set_string(0, 2, "three", Style::new());
        };
        assert_eq!(
            draw(&words),
            "\x1b[2;2H\x1b[1;31mone\x1b[21G\x1b[0;31mtwo\x1b[3;1H\x1b[39mthree\x1b[?25l"
        );
    }

    #[test]
    fn cells_below_a_character_of_three_columns_are_not_drawn() {
        let (mut before, mut after) = (Buffer::empty(AREA), Buffer::empty(AREA));
        before.set_string(0, 0, "abcd", Style::new());
        after.set_string(3, 0, "d", Style::new());
        after[(0, 0)].set_symbol("क्ष्म");
        assert_eq!(after[(0, 0)].cell_width(), 3);
        let first = written(std::slice::from_ref(&before)).len();
        let second = written(&[before, after]).split_off(first);
        assert_eq!(String::from_utf8(second).unwrap(), "\x1b[1;1Hक्ष्म");
    }

    #[test]
    fn frame_after_a_restart_is_drawn_completely() {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes, AREA);
        for is_shown in [false, true, false] {
            let paint = |buffer: &mut Buffer, is_last_shown: bool| {
                assert_eq!(is_last_shown, is_shown);
                buffer.set_string(0, 0, "one", Style::new());
                Rect::default()
            };
            writer.draw(paint).unwrap();
            if is_shown {
                writer.restart(AREA);
            }
        }
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "\x1b[1;1Hone\x1b[?25l".repeat(2)
        );
    }

    proptest! {
        /// Both frames have the same cells in the kept area, which the second frame takes from the first.
        #[test]
        fn kept_area_is_not_encoded_again(
            [first, mut second] in prop_oneof![[buffer(), buffer()], [wide_buffer(), wide_buffer()]],
            (x, width) in (0..AREA.width, 0..=AREA.width),
            (y, height) in (0..AREA.height, 0..=AREA.height),
        ) {
            let kept = Rect { x, y, width, height }.intersection(AREA);
            for position in kept.positions() {
                second[position] = first[position].clone();
            }
            close_wide_cells(&mut second, 0..AREA.height);
            prop_assume!(kept.positions().all(|position| second[position] == first[position]));
            prop_assert_eq!(written_with_kept_area(&first, &second, kept), written(&[first, second]));
        }
    }

    /// What is written for two frames, of which the second takes the cells of an area from the first.
    fn written_with_kept_area(first: &Buffer, second: &Buffer, kept: Rect) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = FrameWriter::new(&mut bytes, AREA);
        for frame in [first, second] {
            let paint = |target: &mut Buffer, is_shown: bool| {
                let kept = if is_shown { kept } else { Rect::default() };
                for position in AREA
                    .positions()
                    .filter(|position| !kept.contains(*position))
                {
                    target[position] = frame[position].clone();
                }
                kept
            };
            writer.draw(paint).unwrap();
            assert_eq!(writer.shown(), frame);
        }
        assert_eq!(writer.next, Buffer::empty(AREA));
        bytes
    }

    #[test]
    fn right_half_in_a_kept_area_is_blanked() {
        let (mut before, mut after) = (Buffer::empty(AREA), Buffer::empty(AREA));
        before.set_string(3, 0, "日b", Style::new());
        after.set_string(3, 0, "a b", Style::new());
        let kept = Rect {
            x: 4,
            width: 9,
            ..AREA
        };
        let bytes = written_with_kept_area(&before, &after, kept);
        assert_eq!(tmux_rows(&bytes), tmux_rows(&written(&[after])));
    }

    #[test]
    fn unchanged_frame_writes_nothing() {
        let mut picture = Buffer::empty(AREA);
        picture.set_string(0, 0, "one", Style::new());
        let once = written(std::slice::from_ref(&picture));
        assert_eq!(written(&[picture.clone(), picture]), once);
    }

    #[test]
    fn many_blanks_are_erased() {
        let (mut before, mut after) = (Buffer::empty(AREA), Buffer::empty(AREA));
        before.set_string(0, 0, "x".repeat(40), Style::new());
        after.set_string(30, 0, "x", Style::new());
        let first = written(std::slice::from_ref(&before)).len();
        let second = written(&[before, after]).split_off(first);
        assert_eq!(
            String::from_utf8(second).unwrap(),
            "\x1b[1;1H\x1b[30X\x1b[32G\x1b[9X"
        );
    }
}
