//! A screen without a world: one picture of a story. For measurements and for pictures in documents.
//!
//! Draws through the same views as the live screen. It reads nothing: whoever wants a picture hands in the words of
//! its rows.

use ratatui::buffer::Buffer;

use super::{
    Options,
    cache::{self, Cache, RowId, RowLine},
    key::Key,
    model::Model,
    msg::Msg,
    theme::Theme,
    update,
    view::{self, Scene, Shown},
};
use crate::{
    run::{
        Chronicle, Origin,
        state::{Row, Story},
    },
    tape::UnitKey,
};

/// A screen that shows one moment.
#[derive(Debug)]
pub struct Still {
    model: Model,
    cache: Cache,
    theme: Theme,
    shown: Shown,
    chronicle: Chronicle,
}

impl Still {
    /// A screen called `name` over no story yet.
    pub fn new(name: &str, options: Options) -> Self {
        let origin = Origin {
            name: name.to_owned(),
            format: "tape",
            header: None,
            started_at: None,
            has_times: true,
            fallback_unit: UnitKey::from(name),
        };
        let shown = Shown { origin, known: 0, position: (0, None), at_end: true, ended: true, broken: None };
        Self {
            model: Model::new(options.keymap, false),
            cache: Cache::default(),
            theme: options.theme,
            shown,
            chronicle: Chronicle::default(),
        }
    }

    /// Presses a key. What the key wants of the world is ignored.
    pub fn press(&mut self, story: &Story, key: Key) {
        let _ = update::update(&mut self.model, story, Msg::Key(key));
    }

    /// Paints a frame; `words` gives the words of rows that become visible.
    pub fn draw(&mut self, story: &Story, words: impl Fn(&Row) -> RowLine, buf: &mut Buffer) {
        buf.reset();
        self.model.size = (buf.area.width, buf.area.height);
        self.shown.known = story.state.entries;
        self.model.settle(story);
        for row in cache::wants(&self.model, story, &self.cache).rows {
            let id = RowId::of(&row, story);
            if self.cache.row(id).is_none() {
                self.cache.put_row(id, words(&row));
            }
        }
        let Self { model, cache, theme, shown: source, chronicle } = self;
        view::draw(&Scene { model, story, chronicle, cache, theme, source }, buf);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;
    use crate::{
        run::state::{Attempt, Holding, Lane, LaneId, RowEnd, RowKind, RunState, Unit, UnitStatus},
        tape::Seq,
        tui::{Look, key},
    };

    #[test]
    fn a_picture_costs_what_is_visible() {
        let rows = 1_000_000_u64;
        let lane = Lane {
            rows: (0..rows).map(|seq| Row::new(Seq(seq), 0, RowKind::Text, RowEnd::Ok, 0)).collect(),
            entries: Vec::new(),
        };
        let attempt = Attempt { number: 1, lane: LaneId(0), ..Attempt::default() };
        let unit = Unit {
            key: "big".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            holding: Holding::No,
        };
        let state = RunState { units: vec![unit], entries: rows, ..RunState::default() };
        let story = Story::new(state, vec![lane], Vec::new());
        let mut still = Still::new("big", Options::new(&Look::default(), |_| None).unwrap());
        let mut buf = Buffer::empty(Rect::new(0, 0, 200, 60));
        let asked = std::cell::Cell::new(0);
        still.draw(
            &story,
            |row| {
                asked.set(asked.get() + 1);
                RowLine { label: format!("row {}", row.first()), ..RowLine::default() }
            },
            &mut buf,
        );
        assert!(asked.get() < 120, "{} rows were built", asked.get());
        still.press(&story, key::parse("<tab>").unwrap()[0]);
        still.press(&story, key::parse("<home>").unwrap()[0]);
        still.draw(&story, |row| RowLine { label: format!("row {}", row.first()), ..RowLine::default() }, &mut buf);
        let text: String = buf.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        assert!(text.contains("row 0 ") && text.contains("PAUSED"));
    }
}
