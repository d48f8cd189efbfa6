//! The only access to stdout and stderr for the commands. Text for people is escaped line by line like on the screen,
//! so that a terminal interprets nothing in it. JSON keeps its values but not the characters that a terminal would
//! interpret.
//!
//! Colours and links are methods of the writer, so a text cannot contain its own. The module must not know what is
//! written. clippy checks (`.clippy.toml`) that other files do not write directly.

#![expect(
    clippy::disallowed_methods,
    reason = "the writer that escapes control characters"
)]

mod hyperlink;

use std::{
    borrow::Cow,
    collections::HashSet,
    io::{self, IsTerminal, Stdout, StdoutLock, Write},
    os::fd::AsFd,
    path::Path,
};

use clap::{
    ArgMatches,
    builder::Styles,
    error::{ContextKind, ContextValue},
};
use memchr::memmem;

use super::args::{CLAUDE_BIN, Ui, with_command_groups};
use ingestdeck_core::text;

/// Colours of plain output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnsiColor {
    Green,
    Red,
    Yellow,
    Cyan,
}

impl AnsiColor {
    fn sequence(self) -> &'static str {
        match self {
            Self::Green => "\u{1b}[32m",
            Self::Red => "\u{1b}[31m",
            Self::Yellow => "\u{1b}[33m",
            Self::Cyan => "\u{1b}[36m",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EscapeMode {
    Text,
    Json,
}

/// Escapes everything that is written to it.
#[derive(Debug)]
pub(crate) struct EscapingWriter<W> {
    out: W,
    kind: EscapeMode,
}

impl<W: Write> EscapingWriter<W> {
    pub(crate) fn text(out: W) -> Self {
        Self {
            out,
            kind: EscapeMode::Text,
        }
    }

    /// Writes `text` in a colour, if there is one.
    pub(crate) fn paint(&mut self, color: Option<AnsiColor>, text: &str) -> io::Result<()> {
        let Some(color) = color else {
            return self.write_all(text.as_bytes());
        };
        self.out.write_all(color.sequence().as_bytes())?;
        self.write_all(text.as_bytes())?;
        self.out.write_all(b"\x1b[0m")
    }

    /// Writes `text` with a link at every mention of `path`, if stdout is a terminal that supports links.
    pub(crate) fn write_linked(&mut self, text: &str, path: &Path) -> io::Result<()> {
        self.out
            .write_all(hyperlink::with_hyperlinks(&escape_text(text), path).as_bytes())
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.kind {
            EscapeMode::Text => self
                .out
                .write_all(escape_text(&String::from_utf8_lossy(bytes)).as_bytes())?,
            EscapeMode::Json => self.out.write_all(&escape_json(bytes))?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn stdout() -> EscapingWriter<StdoutLock<'static>> {
    EscapingWriter::text(io::stdout().lock())
}

/// Stdout in the format of `ui`: JSON or text.
pub(crate) fn stdout_for(ui: Ui) -> EscapingWriter<StdoutLock<'static>> {
    let kind = if ui == Ui::Json {
        EscapeMode::Json
    } else {
        EscapeMode::Text
    };
    EscapingWriter {
        out: io::stdout().lock(),
        kind,
    }
}

/// Stdout without escaping, for exports, completions, and writers that escape their output themselves.
pub(crate) fn raw_stdout() -> Stdout {
    io::stdout()
}

/// True if stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// True if a person can read a question on stderr and answer it on stdin.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Maximum width of a text that is not for a terminal: no key and no path is longer.
const MAX_PIPED_WIDTH: usize = 4_000;

/// The maximum width of a text on stdout, in columns. A pipe or a file has complete keys and paths.
pub(crate) fn max_width(on_terminal: usize) -> usize {
    if is_terminal() {
        on_terminal
    } else {
        MAX_PIPED_WIDTH
    }
}

/// Number of columns of the terminal on stdout; `None` if it is not a terminal, or does not report its size.
pub(crate) fn columns() -> Option<usize> {
    columns_of(&io::stdout())
}

fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream)
        .ok()
        .filter(|_| stream.is_terminal())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The name of a thing on stdout. On a terminal, the middle of a name is cut if it is wider than `on_terminal`: names
/// often differ at their end.
pub(crate) fn name(name: &str, on_terminal: usize) -> Cow<'_, str> {
    text::fit_middle(name, max_width(on_terminal), "…")
}

/// Shows `text` on one line of the terminal of stderr, in place of what was there; nothing if it is not a terminal.
pub(crate) fn show_progress(text: &str) {
    if io::stderr().is_terminal() {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        // A line that cannot be drawn is not needed.
        let _ = write!(io::stderr(), "\r{text}\u{1b}[K");
    }
}

/// The lines of `text`, broken between words where they are longer than `columns`. What may be copied remains whole: a
/// quoted `command with words`, and an indented line.
pub(crate) fn break_lines(text: &str, columns: usize) -> Vec<String> {
    let mut rows = Vec::new();
    for line in text.split('\n') {
        if line.starts_with(' ') {
            rows.push(line.to_owned());
            continue;
        }
        let (mut row, mut width, mut is_quoted) = (String::new(), 0, false);
        for (index, word) in line.split(' ').enumerate() {
            let length = text::width(word);
            if !is_quoted && width > 0 && width + 1 + length > columns {
                rows.push(std::mem::take(&mut row));
                width = 0;
            } else if index > 0 {
                row.push(' ');
                width += 1;
            }
            row.push_str(word);
            width += length;
            is_quoted ^= word.matches('`').count() % 2 == 1;
        }
        rows.push(row);
    }
    rows
}

/// Writes lines to stderr, on a terminal broken between words. Ignores a closed stderr, because `eprintln!` would panic.
pub(crate) fn print_stderr(text: &str) {
    let rows = columns_of(&io::stderr()).map(|columns| break_lines(text, columns).join("\n"));
    let text = rows.as_deref().unwrap_or(text);
    let _ = writeln!(EscapingWriter::text(io::stderr()), "{text}");
}

/// The arguments of the program, or the help or error to print. Errors quote arguments and help quotes variables. If
/// one of these needs escaping, the output has no styles, so that all of it can be escaped.
pub(crate) fn parse_arguments() -> Result<ArgMatches, clap::Error> {
    let command = with_command_groups(super::command());
    let parsed = if has_hidden_arguments() {
        command.styles(Styles::plain())
    } else {
        command
    }
    .try_get_matches();
    parsed.map_err(without_hidden_suggestions)
}

/// Removes suggestions of flags and commands that no help lists.
fn without_hidden_suggestions(mut error: clap::Error) -> clap::Error {
    let mut root = super::command();
    root.build();
    let (mut flags, mut commands) = (HashSet::new(), HashSet::new());
    let mut pending = vec![&root];
    while let Some(command) = pending.pop() {
        let hidden = command
            .get_arguments()
            .filter(|arg| arg.is_hide_set())
            .filter_map(clap::Arg::get_long);
        flags.extend(hidden.map(|long| format!("--{long}")));
        commands.extend(command.is_hide_set().then(|| command.get_name().to_owned()));
        pending.extend(command.get_subcommands());
    }
    for (kind, hidden) in [
        (ContextKind::SuggestedArg, &flags),
        (ContextKind::SuggestedSubcommand, &commands),
    ] {
        let shown = match error.remove(kind) {
            Some(ContextValue::String(name)) => {
                (!hidden.contains(&name)).then_some(ContextValue::String(name))
            }
            Some(ContextValue::Strings(mut names)) => {
                names.retain(|name| !hidden.contains(name));
                (!names.is_empty()).then_some(ContextValue::Strings(names))
            }
            other => other,
        };
        shown.and_then(|shown| error.insert(kind, shown));
    }
    error
}

/// Refuses a call without a command where no home screen can be shown.
///
/// # Errors
/// Always: the error is the help.
pub(crate) fn refuse_missing_command() -> Result<(), clap::Error> {
    let command = with_command_groups(super::command()).arg_required_else_help(true);
    let name = command.get_name().to_owned();
    command.try_get_matches_from([name]).map(drop)
}

/// Prints the error of [`parse_arguments`]: usage errors to stderr, help and version to stdout.
///
/// # Errors
/// If help or version cannot be written. A closed stdout is not an error.
pub(crate) fn print_usage(error: &clap::Error) -> io::Result<()> {
    // Without styles, every control sequence in the text comes from a quoted value.
    let shown = error.render().ansi().to_string();
    let printed = match (has_hidden_arguments(), error.use_stderr()) {
        (false, _) => error.print(),
        (true, true) => EscapingWriter::text(io::stderr()).write_all(shown.as_bytes()),
        (true, false) => stdout().write_all(shown.as_bytes()),
    };
    match printed.and_then(|()| io::stdout().flush()) {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe && !error.use_stderr() => {
            Err(failure)
        }
        _ => Ok(()),
    }
}

/// True if an argument, or a variable that replaces one, has a character to escape.
fn has_hidden_arguments() -> bool {
    let mut words = std::env::args_os().chain(std::env::var_os(CLAUDE_BIN));
    words.any(|word| word.to_string_lossy().chars().any(text::is_hidden))
}

/// Returns `text` with its newlines and without other control characters.
fn escape_text(text: &str) -> Cow<'_, str> {
    let Some((first, rest)) = text.split_once('\n') else {
        return text::printable(text, usize::MAX);
    };
    let mut escaped = text::printable(first, usize::MAX).into_owned();
    for line in rest.split('\n') {
        escaped.push('\n');
        escaped.push_str(&text::printable(line, usize::MAX));
    }
    Cow::Owned(escaped)
}

/// Returns lines of JSON with the same values, without characters that a terminal interprets, and with U+FFFD for each
/// unpaired surrogate: agents write these, and strict readers reject them. All JSON here is written from strings, so it
/// is UTF-8; a second check would double the run time of this function.
pub(crate) fn escape_json(json: &[u8]) -> Cow<'_, [u8]> {
    match replace_surrogates(json) {
        Cow::Borrowed(json) => escape_hidden(json),
        Cow::Owned(json) => Cow::Owned(escape_hidden(&json).into_owned()),
    }
}

/// Replaces the escapes of unpaired surrogates.
fn replace_surrogates(json: &[u8]) -> Cow<'_, [u8]> {
    let mut replaced = Cow::Borrowed(json);
    let is_surrogate = |escape: usize| matches!(json.get(escape + 2), Some(b'd' | b'D'));
    if !memmem::find_iter(json, br"\u").any(is_surrogate) {
        return replaced;
    }
    let mut at = 0;
    while let Some(escape) = json.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += escape;
        at += match (utf16(&json[at..]), json.get(at + 6..).and_then(utf16)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                replaced.to_mut()[at..at + 6].copy_from_slice(br"\ufffd");
                6
            }
            _ => 2,
        };
    }
    replaced
}

/// The code unit at the beginning of `json`, if that is a `\u` escape.
fn utf16(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(br"\u")?.get(..4)?;
    // The integer parser accepts a sign, which is not a hex digit.
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok()
}

/// As [`escape_json`], but keeps unpaired surrogates, so that all values stay as they are.
pub(crate) fn escape_hidden(json: &[u8]) -> Cow<'_, [u8]> {
    let (mut escaped, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(suspect) = json.get(at..).and_then(first_suspect) {
        at += suspect;
        let char = first_char(&json[at..]);
        let length = char.map_or(1, char::len_utf8);
        if char.is_none_or(text::is_hidden) {
            escaped.extend_from_slice(&json[copied..at]);
            match char {
                // Between tokens these are layout, and inside strings JSON does not allow them.
                Some('\r' | '\t') => escaped.push(b' '),
                None => escaped.extend_from_slice("\u{fffd}".as_bytes()),
                Some(char) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        escaped.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                    }
                }
            }
            copied = at + length;
        }
        at += length;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    escaped.extend_from_slice(&json[copied..]);
    Cow::Owned(escaped)
}

/// The first character of `bytes`, if they are UTF-8.
fn first_char(bytes: &[u8]) -> Option<char> {
    let length = match bytes.first()? {
        ..0x80 => 1,
        ..0xe0 => 2,
        ..0xf0 => 3,
        _ => 4,
    };
    std::str::from_utf8(bytes.get(..length)?)
        .ok()?
        .chars()
        .next()
}

/// True for control characters and for first bytes of characters that [`text::is_hidden`] may report. Has no branches,
/// so that the compiler can vectorise the search.
fn is_suspect(byte: u8) -> bool {
    let control = (byte < 0x20) & (byte != b'\n');
    let lead = (byte == 0xc2) | (byte == 0xcd) | (byte == 0xd8) | (0xe1..=0xe3).contains(&byte);
    control | (byte == 0x7f) | lead | (byte == 0xef) | (byte >= 0xf0)
}

/// False only for a block without suspects; the block must have no newlines. Cheaper than [`is_suspect`] for each byte.
fn may_have_suspects(block: &[u8]) -> bool {
    // Control characters wrap around to the upper end.
    let highest = block
        .iter()
        .fold(0, |highest: u8, byte| highest.max(byte.wrapping_sub(b' ')));
    highest >= 0xcd - b' ' || memchr::memchr2(0x7f, 0xc2, block).is_some()
}

/// The position of the first suspect byte. Nearly all records are plain, so it searches blocks that grow while nothing
/// is found; dense suspects cost no more than the bytes between them. Blocks end at newlines, which are not suspects.
fn first_suspect(bytes: &[u8]) -> Option<usize> {
    let (mut from, mut size) = (0, 32);
    while from < bytes.len() {
        let block = &bytes[from..bytes.len().min(from + size)];
        let newline = memchr::memchr(b'\n', block);
        let block = &block[..newline.unwrap_or(block.len())];
        if may_have_suspects(block)
            && block
                .iter()
                .fold(false, |found, byte| found | is_suspect(*byte))
        {
            return block
                .iter()
                .position(|byte| is_suspect(*byte))
                .map(|at| from + at);
        }
        from += block.len() + usize::from(newline.is_some());
        size = (size * 2).min(LARGEST_BLOCK);
    }
    None
}

/// Maximum size of a block.
const LARGEST_BLOCK: usize = 4096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        write!(EscapingWriter::text(&mut out), "{text}").unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_broken_between_words_only() {
        let broken = |text| break_lines(text, 20).join("|");
        assert_eq!(broken("short"), "short");
        assert_eq!(
            broken("a sentence of many words"),
            "a sentence of many|words"
        );
        assert_eq!(
            broken("see /a/path/that/is/longer/than/a/line now"),
            "see|/a/path/that/is/longer/than/a/line|now"
        );
        assert_eq!(
            broken("help: run `program --with many arguments` now"),
            "help: run `program --with many arguments`|now"
        );
        let indented = "  program --with many arguments";
        assert_eq!(broken(indented), indented);
        assert_eq!(broken("one\n\ntwo"), "one||two");
    }

    #[test]
    fn text_keeps_newlines_and_shows_escapes() {
        assert_eq!(
            written("a\u{1b}]52;c;UFdO\u{7}\nb\u{202e}\n"),
            "a\\e]52;c;UFdO\\u{7}\nb\\u{202e}\n"
        );
        assert_eq!(written("one\r\ntwo\u{9b}2J"), "one\\r\ntwo\\u{9b}2J");
        assert!(matches!(escape_text("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn only_the_writer_emits_colour_codes() {
        let mut out = Vec::new();
        let mut writer = EscapingWriter::text(&mut out);
        writer.paint(Some(AnsiColor::Red), "x\u{1b}[0m").unwrap();
        writer.paint(None, "y").unwrap();
        assert_eq!(out, b"\x1b[31mx\\e[0m\x1b[0my");
    }

    #[test]
    fn hidden_characters_of_json_become_its_escapes() {
        let json = "{\"a\":\"\u{9b}é\u{e0041}\u{7f}\",\t\"b\":1}\r\n";
        let expected = "{\"a\":\"\\u009bé\\udb40\\udc41\\u007f\", \"b\":1} \n";
        assert_eq!(
            String::from_utf8_lossy(&escape_json(json.as_bytes())),
            expected
        );
        for plain in ["{\"a\":1}\n", "\"é – “日本” 🦀 \u{fffd}\""] {
            assert!(
                matches!(escape_json(plain.as_bytes()), Cow::Borrowed(_)),
                "{plain}"
            );
        }
    }

    #[test]
    fn surrogates_without_partner_are_replaced() {
        for (json, expected) in [
            (r#"{"a":"\ud800"}"#, r#"{"a":"\ufffd"}"#),
            (
                r#""\uDC00\uD800x\ud83d\ude00""#,
                r#""\ufffd\ufffdx\ud83d\ude00""#,
            ),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud800 \\\ud800""#, r#""\\ud800 \\\ufffd""#),
            (r#""\u00e9\ud7ff\ue000""#, r#""\u00e9\ud7ff\ue000""#),
        ] {
            let escaped = escape_json(json.as_bytes());
            assert_eq!(String::from_utf8_lossy(&escaped), expected);
            assert!(serde_json::from_slice::<serde_json::Value>(&escaped).is_ok());
        }
    }

    #[test]
    fn every_hidden_character_begins_with_a_suspect() {
        for char in (char::MIN..=char::MAX).filter(|char| text::is_hidden(*char) && *char != '\n') {
            assert!(
                is_suspect(char.encode_utf8(&mut [0; 4]).as_bytes()[0]),
                "{char:?}"
            );
        }
        assert!(
            (0..=u8::MAX)
                .all(|byte| byte == b'\n' || may_have_suspects(&[byte]) || !is_suspect(byte))
        );
    }

    proptest! {
        #[test]
        fn written_text_never_contains_terminal_controls(text in "(\\PC|[\u{0}-\u{9f}\u{200b}-\u{2069}\u{fe00}-\u{feff}]){0,40}") {
            let shown = written(&text);
            prop_assert!(!shown.chars().any(|char| text::is_hidden(char) && char != '\n'), "{shown:?}");
            prop_assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn first_suspect_is_found_wherever_it_is(plain in 0..20_000usize, tail in any::<Vec<u8>>()) {
            let mut bytes = b"{\"a\": 1}\n".iter().copied().cycle().take(plain).collect::<Vec<u8>>();
            bytes.extend(tail);
            let expected = bytes.iter().position(|byte| is_suspect(*byte));
            prop_assert_eq!(first_suspect(&bytes), expected);
        }

        #[test]
        fn json_keeps_its_value(text in any::<String>()) {
            let json = serde_json::to_vec(&text).unwrap();
            let escaped = escape_json(&json);
            prop_assert_eq!(serde_json::from_slice::<String>(&escaped).unwrap(), text);
            let shown = String::from_utf8(escaped.into_owned()).unwrap();
            prop_assert!(!shown.chars().any(text::is_hidden), "{shown:?}");
        }
    }
}
