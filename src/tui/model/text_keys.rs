//! The keys of the texts in forms: those of a shell, where the widget has others.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tui_textarea::TextArea;

use crate::key::KeyPress;

/// Passes a key to a text. `Ctrl-u` erases to the start of the line, and at the start joins the line to the one above;
/// `Ctrl-_` undoes.
pub(super) fn edit(area: &mut TextArea<'static>, key: KeyPress) {
    match (key.code, key.modifiers) {
        (KeyCode::Char('u'), KeyModifiers::CONTROL) => {
            area.delete_line_by_head();
        }
        // A terminal without the extended protocol reports the 7.
        (KeyCode::Char('_' | '7' | '/'), KeyModifiers::CONTROL) => {
            area.undo();
        }
        (code, modifiers) => {
            area.input(KeyEvent::new(code, modifiers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    #[test]
    fn ctrl_u_erases_to_the_start_then_joins_lines() {
        let mut area = TextArea::from(["one", "two"]);
        area.move_cursor(tui_textarea::CursorMove::Jump(1, 2));
        let mut lines = Vec::new();
        for keys in ["<c-u>", "<c-u>", "<c-u>", "<c-_>", "<c-7>"] {
            for key in key::parse(keys).unwrap() {
                edit(&mut area, key);
            }
            lines.push(area.lines().join("|"));
        }
        assert_eq!(lines, ["one|o", "oneo", "o", "oneo", "one|o"]);
    }
}
