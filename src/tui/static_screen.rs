//! A screen without a host: renders single frames of a run view, for measurements and for images in documents.
//!
//! Draws through the same views as the live screen. It reads nothing: the caller passes the text of the rows.

use ratatui::buffer::Buffer;

use super::{
    Options,
    cache::{self, RowId, RowLine, ScreenCache},
    key::KeyPress,
    model::ScreenModel,
    screen_message::ScreenMessage,
    theme::Theme,
    update,
    view::{self, DrawContext, SourceStatus},
};
use crate::{
    run::{
        ActivityIndex, SourceInfo,
        state::{RunView, StreamRow},
    },
    tape::UnitKey,
};

/// A screen that shows one moment.
#[derive(Debug)]
pub(crate) struct StaticScreen {
    model: ScreenModel,
    cache: ScreenCache,
    theme: Theme,
    source_status: SourceStatus,
    activity: ActivityIndex,
}

impl StaticScreen {
    /// Creates a screen called `name` without a run view.
    pub(crate) fn new(name: &str, options: Options) -> Self {
        let origin = SourceInfo {
            name: name.to_owned(),
            format: "tape",
            header: None,
            started_at: None,
            has_times: true,
            fallback_unit: UnitKey::from(name),
        };
        let shown =
            SourceStatus { origin, known_entries: 0, position: (0, None), at_end: true, ended: true, read_error: None };
        Self {
            model: ScreenModel::new(options.keymap, false),
            cache: ScreenCache::default(),
            theme: options.theme,
            source_status: shown,
            activity: ActivityIndex::default(),
        }
    }

    /// Presses a key. Effects that need the host are ignored.
    pub(crate) fn press(&mut self, run_view: &RunView, key: KeyPress) {
        let _ = update::update(&mut self.model, run_view, ScreenMessage::Key(key));
    }

    /// Renders a frame; `words` returns the text of rows that become visible.
    pub(crate) fn draw(&mut self, run_view: &RunView, words: impl Fn(&StreamRow) -> RowLine, buf: &mut Buffer) {
        buf.reset();
        self.model.size = (buf.area.width, buf.area.height);
        self.source_status.known_entries = run_view.state.entries;
        self.model.refresh(run_view);
        for row in cache::cache_request(&self.model, run_view, &self.cache).rows {
            let id = RowId::new(&row, run_view);
            if self.cache.row(id).is_none() {
                self.cache.put_row(id, words(&row));
            }
        }
        let Self { model, cache, theme, source_status: source, activity } = self;
        view::draw(&DrawContext { model, run_view, activity, cache, theme, source }, buf);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;

    use super::*;
    use crate::{
        run::state::{
            AttemptId, AttemptRows, AttemptState, HoldMode, RowKind, RowOutcome, RunState, UnitState, UnitStatus,
        },
        tape::Seq,
        tui::{UiPreferences, key},
    };

    #[test]
    fn static_frame_loads_only_visible_rows() {
        let rows = 1_000_000_u64;
        let attempt_rows = AttemptRows {
            rows: (0..rows).map(|seq| StreamRow::new(Seq(seq), 0, RowKind::Text, RowOutcome::Ok, 0)).collect(),
            entries: Vec::new(),
        };
        let attempt = AttemptState { number: 1, id: AttemptId(0), ..AttemptState::default() };
        let unit = UnitState {
            key: "big".into(),
            planned: None,
            status: UnitStatus::Running,
            attempts: vec![attempt],
            retry_at: None,
            hold_mode: HoldMode::Off,
        };
        let state = RunState { units: vec![unit], entries: rows, ..RunState::default() };
        let run_view = RunView::new(state, vec![attempt_rows], Vec::new());
        let mut still = StaticScreen::new("big", Options::new(&UiPreferences::default(), |_| None).unwrap());
        let mut buf = Buffer::empty(Rect::new(0, 0, 200, 60));
        let asked = std::cell::Cell::new(0);
        still.draw(
            &run_view,
            |row| {
                asked.set(asked.get() + 1);
                RowLine { label: format!("row {}", row.first()), ..RowLine::default() }
            },
            &mut buf,
        );
        assert!(asked.get() < 120, "{} rows were built", asked.get());
        still.press(&run_view, key::parse("<tab>").unwrap()[0]);
        still.press(&run_view, key::parse("<home>").unwrap()[0]);
        still.draw(&run_view, |row| RowLine { label: format!("row {}", row.first()), ..RowLine::default() }, &mut buf);
        let text: String = buf.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        assert!(text.contains("row 0 ") && text.contains("PAUSED"));
    }
}
