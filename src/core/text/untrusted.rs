//! Converts untrusted text to printable text. All text that is shown passes through here.
//!
//! Owns escaping and cutting by display width. It must not know styles, panes or the origin of a text.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Maximum code points in one cell. Longer sequences are cut, so that combining marks cannot overlap other cells.
const MAX_STACKED_CHARS: usize = 6;

/// Mark at the place where text was cut.
const ELLIPSIS: &str = "…";

/// Makes `text` safe for one row of at most `width` columns. Control, bidi, zero-width and tag characters become
/// escapes; a text that does not fit ends in `…`. The result is never wider than `width`.
pub fn printable(text: &str, width: usize) -> Cow<'_, str> {
    fit(text, width, ELLIPSIS)
}

/// Like [`printable`], with the mark `cut` instead of `…`.
pub fn fit<'a>(text: &'a str, width: usize, cut: &str) -> Cow<'a, str> {
    let (simple, columns) = simple_prefix(text, width.saturating_add(1));
    if simple == text.len() && columns <= width {
        return Cow::Borrowed(text);
    }
    let mark = if self::width(cut) <= width { cut } else { "" };
    let room = width.saturating_sub(self::width(cut));
    if columns > width {
        let (kept, _) = simple_prefix(text, room);
        return Cow::Owned([&text[..kept], mark].concat());
    }
    let (mut out, mut used, mut kept) = (String::new(), 0, 0);
    for piece in printable_pieces(text) {
        let wide = column_count(&piece);
        if used + wide > width {
            out.truncate(kept);
            out.push_str(mark);
            return Cow::Owned(out);
        }
        out.push_str(&piece);
        used += wide;
        if used <= room {
            kept = out.len();
        }
    }
    Cow::Owned(out)
}

/// Like [`fit`], but cuts the middle: the start of a name shows its kind, and the end identifies it.
pub fn fit_middle<'a>(text: &'a str, width: usize, cut: &str) -> Cow<'a, str> {
    if self::width(text) <= width {
        return fit(text, width, cut);
    }
    let room = width.saturating_sub(cut.width());
    // The end gets the larger part.
    let (before, after) = (room / 3, room - room / 3);
    let (mut head, mut used) = (String::new(), 0);
    for piece in printable_pieces(text) {
        used += piece.width();
        if used > before {
            break;
        }
        head.push_str(&piece);
    }
    let all: Vec<_> = printable_pieces(text).collect();
    let mut from = all.len();
    let mut used = 0;
    while let Some(piece) = from.checked_sub(1).and_then(|place| all.get(place)) {
        used += piece.width();
        if used > after {
            break;
        }
        from -= 1;
    }
    if cut.width() <= width {
        head.push_str(cut);
    }
    head.extend(all[from..].iter().map(AsRef::as_ref));
    Cow::Owned(head)
}

/// Columns of `text` after escaping.
pub fn width(text: &str) -> usize {
    width_up_to(text, usize::MAX)
}

/// Columns of `text` after escaping, at most `most`. The cost does not depend on the text after these columns.
pub fn width_up_to(text: &str, most: usize) -> usize {
    let (simple, columns) = simple_prefix(text, most);
    if simple == text.len() || columns == most {
        return columns;
    }
    let mut used = 0;
    for piece in printable_pieces(text) {
        used += column_count(&piece);
        if used >= most {
            return most;
        }
    }
    used
}

/// Joins the lines of `text` with a visible mark and collapses other white space. The result is not escaped yet.
pub fn one_row(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !out.is_empty() {
            out.push_str(" ⏎ ");
        }
        out.extend(line.chars().take(limit.saturating_sub(out.len())));
        if out.len() >= limit {
            break;
        }
    }
    out
}

/// Wraps all of `text` into safe rows of at most `width` columns, broken between words if possible.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_at_most(text, width, usize::MAX)
}

/// The first `most` rows of [`wrap`]. The cost does not depend on the length of printable ASCII behind them.
pub fn wrap_at_most(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut rows = Vec::new();
    if width == 0 {
        return rows;
    }
    for line in text.split('\n') {
        if rows.len() >= most {
            break;
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        // One byte more than fits shows that the last row is full, and another that no combining mark follows that one.
        let plain = line
            .get(..width.saturating_mul(most).saturating_add(2))
            .unwrap_or(line);
        if is_plain(plain) {
            wrap_plain(plain, width, &mut rows);
        } else {
            wrap_line(line, width, &mut rows);
        }
    }
    rows.truncate(most);
    rows
}

fn wrap_line(line: &str, width: usize, rows: &mut Vec<String>) {
    let mut row = RowWrapper::default();
    for piece in printable_pieces(line) {
        // An escape that is longer than the row is split like a long word.
        let parts: Vec<&str> = if column_count(&piece) > width {
            piece.graphemes(true).collect()
        } else {
            vec![&piece]
        };
        for part in parts {
            if column_count(part) > width {
                continue;
            }
            // The word moved to the next row may leave too little room again.
            while row.used > 0 && row.used + column_count(part) > width {
                rows.push(row.end(width));
            }
            row.push(part);
        }
    }
    rows.push(row.text);
}

/// Like [`wrap_line`], for printable ASCII only.
fn wrap_plain(mut line: &str, width: usize, rows: &mut Vec<String>) {
    while let Some((row, _)) = line
        .split_at_checked(width)
        .filter(|(_, rest)| !rest.is_empty())
    {
        let word = row.rfind(' ').map(|space| space + 1);
        let (row, rest) = line.split_at(word.filter(|word| word * 2 > width).unwrap_or(width));
        rows.push(row.trim_end_matches(' ').to_owned());
        line = rest;
    }
    rows.push(line.to_owned());
}

/// A row that is being filled.
#[derive(Default)]
struct RowWrapper {
    text: String,
    used: usize,
    /// Position after the last space: bytes and columns.
    word: Option<(usize, usize)>,
}

impl RowWrapper {
    fn push(&mut self, part: &str) {
        self.text.push_str(part);
        self.used += column_count(part);
        if part == " " {
            self.word = Some((self.text.len(), self.used));
        }
    }

    /// Ends the row before its last word and continues with that word, unless that would leave most of the row empty.
    fn end(&mut self, width: usize) -> String {
        let (at, used) = self
            .word
            .filter(|(_, used)| used * 2 > width)
            .unwrap_or((self.text.len(), self.used));
        let rest = self.text.split_off(at);
        let mut row = std::mem::replace(
            self,
            Self {
                used: self.used - used,
                text: rest,
                word: None,
            },
        )
        .text;
        row.truncate(row.trim_end_matches(' ').len());
        row
    }
}

/// True for printable ASCII, where each byte takes one column.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(is_plain_byte)
}

/// True for simple characters only, each of which takes one column; see [`is_simple`].
pub fn is_simple_text(text: &str) -> bool {
    simple_prefix(text, usize::MAX).0 == text.len()
}

fn is_plain_byte(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

/// Display columns of a printable piece.
pub fn column_count(piece: &str) -> usize {
    if is_simple_piece(piece) {
        1
    } else {
        piece.width()
    }
}

/// True for a piece of one simple character; see [`is_simple`].
pub fn is_simple_piece(piece: &str) -> bool {
    let mut chars = piece.chars();
    chars.next().is_some_and(is_simple) && chars.as_str().is_empty()
}

/// True for common printable characters that take one column and do not join with other characters except combining
/// marks, so that the Unicode tables are not needed for them: ASCII, Latin and Cyrillic letters, dashes, quotes, arrows,
/// lines, blocks, geometric shapes and the signs of units and calls.
fn is_simple(char: char) -> bool {
    matches!(
        char,
        ' '..='~' | '«' | '·' | '»' | 'À'..='ɏ' | 'А'..='я' | '–'..='—' | '‘'..='”' | '•' | '…' | '←'..='↓' | '∴' | '⏎'
            | '─'..='◼' | '✓' | '✗'
    )
}

/// Bytes and columns of the simple characters at the start of `text`, of which at most `most` are counted. A combining
/// mark may follow the last one.
fn simple_prefix(text: &str, most: usize) -> (usize, usize) {
    let plain = text
        .bytes()
        .take(most)
        .position(|byte| !is_plain_byte(byte))
        .unwrap_or(text.len().min(most));
    let simple = text[plain..]
        .chars()
        .take(most - plain)
        .take_while(|char| is_simple(*char));
    simple.fold((plain, plain), |(bytes, columns), char| {
        (bytes + char.len_utf8(), columns + 1)
    })
}

/// Splits `text` into printable pieces that must not be split further.
pub fn printable_pieces(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (first, is_plain) = grapheme(&mut rest)?;
        Some(if is_plain {
            Cow::Borrowed(first)
        } else {
            printable_piece(first)
        })
    })
}

/// Splits safe text into graphemes. Those of some scripts take more than two columns.
pub fn graphemes(safe: &str) -> impl Iterator<Item = &str> {
    let mut rest = safe;
    std::iter::from_fn(move || grapheme(&mut rest).map(|(first, _)| first))
}

/// Takes the first grapheme of a text. The flag is true if it is a simple character.
fn grapheme<'a>(rest: &mut &'a str) -> Option<(&'a str, bool)> {
    let mut chars = rest.chars();
    let is_first_simple = chars.next().is_some_and(is_simple);
    let after = chars.as_str();
    let is_alone = is_first_simple
        && chars
            .next()
            .is_none_or(|next| next.is_ascii() || is_simple(next));
    let length = if is_alone {
        rest.len() - after.len()
    } else {
        rest.graphemes(true).next()?.len()
    };
    let (first, after) = rest.split_at(length);
    *rest = after;
    Some((first, is_alone))
}

fn printable_piece(grapheme: &str) -> Cow<'_, str> {
    let printable = |char: char| !is_hidden(char);
    if grapheme.chars().all(printable)
        && grapheme.chars().count() <= MAX_STACKED_CHARS
        && grapheme.width() > 0
    {
        return Cow::Borrowed(grapheme);
    }
    // Joined emoji are shown as separate characters: terminals disagree about the width of joined sequences.
    let joined = grapheme.chars().next().is_some_and(is_pictograph);
    let mut out = String::new();
    let mut stack = 0;
    for char in grapheme.chars() {
        if joined && matches!(char, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}') {
            continue;
        }
        if is_hidden(char) {
            escape(char, &mut out);
        } else if char.width().unwrap_or(0) == 0 && out.is_empty() {
            out.push('◌');
            out.push(char);
        } else if char.width().unwrap_or(0) == 0 {
            stack += 1;
            if stack < MAX_STACKED_CHARS {
                out.push(char);
            }
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

/// Code points of `text`, each with whether it can be drawn unchanged: it is not hidden and does not exceed the
/// stacking limit.
pub fn classified_chars(text: &str) -> impl Iterator<Item = (char, bool)> {
    text.chars().scan(0, |stack, char| {
        *stack = if char.width() == Some(0) {
            *stack + 1
        } else {
            0
        };
        Some((char, !is_hidden(char) && *stack < MAX_STACKED_CHARS))
    })
}

fn is_pictograph(char: char) -> bool {
    matches!(u32::from(char), 0x2190..=0x2bff | 0x3030 | 0x303d | 0x3297 | 0x3299 | 0x1_f000..=0x1_faff)
}

/// True for control characters of terminals and characters that a reader cannot see.
pub fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            u32::from(char),
            0xad | 0x34f
                | 0x61c
                | 0x115f
                | 0x1160
                | 0x17b4
                | 0x17b5
                | 0x180b..=0x180f
                | 0x200b..=0x200f
                | 0x2028..=0x202e
                | 0x2060..=0x206f
                | 0x3164
                | 0xfe00..=0xfe0f
                | 0xfeff
                | 0xffa0
                | 0xfff0..=0xfffb
                | 0x1_bca0..=0x1_bca3
                | 0x1_d173..=0x1_d17a
                | 0xe_0000..=0xe_0fff
        )
}

fn escape(char: char, out: &mut String) {
    match char {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("  "),
        '\u{1b}' => out.push_str("\\e"),
        _ => out.extend(char.escape_unicode()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_text_is_borrowed_and_cut_with_a_mark() {
        assert!(matches!(printable("plain", 5), Cow::Borrowed("plain")));
        assert_eq!(printable("plain text", 6), "plain…");
        assert_eq!(printable("plain", 1), "…");
        assert_eq!(printable("plain", 0), "");
    }

    #[test]
    fn control_characters_are_shown_escaped() {
        assert_eq!(printable("\u{1b}[31mred\r\n", 40), "\\e[31mred\\r\\n");
        assert_eq!(
            printable("a\u{202e}b\u{200b}c\u{e0041}", 60),
            "a\\u{202e}b\\u{200b}c\\u{e0041}"
        );
        assert_eq!(printable("\u{9b}2J\u{7f}\0", 60), "\\u{9b}2J\\u{7f}\\u{0}");
    }

    #[test]
    fn wide_characters_are_never_halved() {
        assert_eq!(printable("漢字漢字", 5), "漢字…");
        assert_eq!(printable("漢字", 4), "漢字");
        assert_eq!(printable("漢字", 3), "漢…");
        assert_eq!(printable("👩‍🚀 go", 10), "👩🚀 go");
    }

    #[test]
    fn a_cut_in_the_middle_keeps_both_ends() {
        assert_eq!(
            fit_middle("dbt-models-marts-revenue", 24, ELLIPSIS),
            "dbt-models-marts-revenue"
        );
        assert_eq!(
            fit_middle("dbt-models-marts-revenue", 14, ELLIPSIS),
            "dbt-…s-revenue"
        );
        assert_eq!(fit_middle("漢字漢字漢字", 7, ELLIPSIS), "漢…漢字");
        assert_eq!(fit_middle("abc", 1, ELLIPSIS), "…");
        assert_eq!(fit_middle("abc", 0, ELLIPSIS), "");
    }

    #[test]
    fn stacked_marks_are_truncated() {
        let pile = format!("Z{}", "\u{301}".repeat(40));
        assert!(printable(&pile, 10).chars().count() <= MAX_STACKED_CHARS);
        assert_eq!(width(&pile), 1);
    }

    #[test]
    fn lines_become_one_row() {
        assert_eq!(one_row("  a\n\n  b \r\nc", 99), "a ⏎ b ⏎ c");
    }

    #[test]
    fn wrapping_keeps_everything() {
        assert_eq!(wrap("abcdef\ng", 4), ["abcd", "ef", "g"]);
        assert_eq!(wrap("漢字漢", 4), ["漢字", "漢"]);
        assert_eq!(wrap("\u{202e}", 4), ["\\u{2", "02e}"]);
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("漢漢 a\u{e0080}", 9), ["漢漢", "a", "\\u{e0080}"]);
    }

    #[test]
    fn simple_characters_take_one_column() {
        for char in (char::MIN..=char::MAX).filter(|char| is_simple(*char)) {
            assert!(!is_hidden(char) && char.width() == Some(1), "{char:?}");
        }
    }

    proptest! {
        #[test]
        fn fast_path_finds_the_same_pieces(text in "([ -~]|[─-◿·…→✓✗]|[«»À-ɏА-я–—‘-”•←-↓∴⏎]|\\PC|[\u{0300}\u{200d}\u{1f1e6}-\u{1f1ff}\r\n\t\u{fe0f}]){0,40}") {
            let all: Vec<Cow<'_, str>> = text.graphemes(true).map(printable_piece).collect();
            prop_assert_eq!(printable_pieces(&text).collect::<Vec<_>>(), all);
            let columns = printable_pieces(&text).map(|piece| piece.width()).sum::<usize>();
            prop_assert_eq!(width(&text), columns);
            for most in [0, 1, 7, 40] {
                prop_assert_eq!(width_up_to(&text, most), columns.min(most));
            }
        }

        #[test]
        fn fast_path_cuts_at_the_same_places(text in "[ -~]{0,12}|([a-c─-◿…éж—”漢]|[\u{0300}\u{fe0f}]){0,12}", room in 0..12_usize) {
            let pieces: Vec<_> = printable_pieces(&text).collect();
            let columns = |pieces: &[Cow<'_, str>]| pieces.iter().map(|piece| column_count(piece)).sum::<usize>();
            let kept = |most| (0..=pieces.len()).rev().find(|end| columns(&pieces[..*end]) <= most).unwrap_or_default();
            let cut = match room {
                _ if columns(&pieces) <= room => pieces.concat(),
                0 => String::new(),
                _ => pieces[..kept(room - 1)].concat() + ELLIPSIS,
            };
            prop_assert_eq!(printable(&text, room), cut);
        }

        #[test]
        fn fast_path_wraps_at_the_same_places(line in "[a-z ]{0,60}|[ -~]{0,60}", room in 1..20_usize) {
            let (mut short, mut long) = (Vec::new(), Vec::new());
            wrap_plain(&line, room, &mut short);
            wrap_line(&line, room, &mut long);
            prop_assert_eq!(short, long);
        }

        #[test]
        fn printable_text_is_inert_and_fits(text in any::<String>(), room in 0..40_usize) {
            for shown in [printable(&text, room), fit_middle(&text, room, ELLIPSIS)] {
                prop_assert!(shown.width() <= room);
                prop_assert!(!shown.chars().any(is_hidden), "{shown:?}");
            }
        }

        #[test]
        fn hostile_ranges_are_escaped(
            chars in prop::collection::vec(
                prop_oneof![
                    Just('a'), Just('漢'), Just('👍'), prop::char::range('\u{0}', '\u{ff}'),
                    prop::char::range('\u{200b}', '\u{206f}'), prop::char::range('\u{fe00}', '\u{feff}'),
                    prop::char::range('\u{e0000}', '\u{e01ef}'), prop::char::range('\u{300}', '\u{36f}'),
                    Just(' '), Just('\u{93e}'),
                ],
                0..30,
            ),
            room in 0..60_usize,
            most in 0..6_usize,
        ) {
            let text: String = chars.into_iter().collect();
            let shown = printable(&text, room);
            prop_assert!(shown.width() <= room);
            prop_assert!(!shown.chars().any(is_hidden));
            let first: Vec<String> = wrap(&text, room).into_iter().take(most).collect();
            prop_assert_eq!(wrap_at_most(&text, room, most), first);
            for row in wrap(&text, room) {
                prop_assert!(row.width() <= room);
            }
        }
    }
}
