//! The reading page: which line is on screen and selected, and what is folded.
//!
//! It must not read bodies of entries. Heights of rows are known once the shell has laid them out; until then, a row
//! counts as one line.

use std::collections::{HashMap, HashSet};

use crate::{
    cache::{ReadingKey, RowId, ScreenCache},
    model::is_problem_end,
    moved_rows::MovedRows,
    reading_order::{ReadingOrder, RowAddress, single_session},
    search_match::{matches, nearest},
    theme::StyleRole,
};
use ingestdeck_core::{
    run::state::{AttemptState, RowKind, RunView, StateVersion, StreamRow, UnitState},
    tape::UnitKey,
};

/// Columns of the sign of a row, and those by which the rows of a sub-agent are indented.
pub(super) const SIGN: u16 = 2;
pub(super) const INDENT: u16 = 2;

/// A session as a page to read.
#[derive(Clone, Debug)]
pub(crate) struct ReadingPage {
    pub unit: UnitKey,
    /// True until the user moves on a page that no key has opened.
    pub is_automatic: bool,
    pub(super) order: ReadingOrder,
    /// The moment of `order`.
    version: Option<StateVersion>,
    /// The first line on screen.
    pub(super) top: LinePosition,
    pub(super) cursor: LinePosition,
    follow: Following,
    /// Rows that are shown as a whole.
    unfolded: HashSet<RowAddress>,
    /// First rows of the sub-agents that are folded.
    folded_agents: HashSet<RowAddress>,
    /// The row with the last match, which is shown as a whole, and the text that is searched in it.
    found: Option<(RowAddress, Option<String>)>,
    /// Kinds and numbers of lines of the rows that are laid out, and whether that is all that they have.
    texts: HashMap<RowAddress, (RowKind, usize, bool)>,
    /// True to show the selected row as a whole, as far as it fits, once it is laid out.
    reveals: bool,
    /// Columns of the text, and lines on screen.
    size: (u16, usize),
}

/// What is selected as rows arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Following {
    Nothing,
    /// The last line of the page.
    End,
    /// The row that began last, which may be one of a sub-agent.
    Newest,
}

/// A line of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinePosition {
    /// Place of the row.
    pub(super) place: usize,
    pub(super) line: usize,
}

/// What a line of a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadingLine {
    Blank,
    /// The heading of a sub-agent, above its first row.
    SubAgent,
    /// The row as in the stream of actions.
    Action,
    /// A line of its text.
    Text(usize),
}

/// How many lines a row takes, apart from its text.
#[derive(Clone, Copy, Debug)]
struct RowShape {
    kind: RowKind,
    /// Its first lines: an empty line, and the heading of a sub-agent.
    is_spaced: bool,
    is_headed: bool,
    /// True if only the heading is shown.
    is_folded_away: bool,
}

impl RowShape {
    /// True if the text takes the place of the row in the stream of actions.
    fn is_message(self) -> bool {
        matches!(
            self.kind,
            RowKind::Prompt | RowKind::Text | RowKind::Thinking
        )
    }

    /// The lines above the text.
    fn lines_above(self) -> usize {
        let is_action = !self.is_folded_away && !self.is_message();
        usize::from(self.is_spaced) + usize::from(self.is_headed) + usize::from(is_action)
    }

    /// The line that names the row.
    fn first_line(self) -> usize {
        self.lines_above() - usize::from(!self.is_message())
    }

    /// Number of lines with a text of `lines` lines.
    fn height(self, lines: usize) -> usize {
        let lines = if self.is_folded_away { 0 } else { lines };
        (self.lines_above() + lines).max(1)
    }
}

/// A row of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRow<'a> {
    pub(super) row: &'a StreamRow,
    pub(super) address: RowAddress,
    pub(super) is_sub_agent: bool,
    shape: RowShape,
}

impl PageRow<'_> {
    /// What a line shows.
    pub(super) fn line(&self, line: usize) -> ReadingLine {
        let shape = self.shape;
        let (blank, heading) = (usize::from(shape.is_spaced), usize::from(shape.is_headed));
        match line.checked_sub(shape.lines_above()) {
            Some(text) => ReadingLine::Text(text),
            None if line < blank => ReadingLine::Blank,
            None if line < blank + heading => ReadingLine::SubAgent,
            None => ReadingLine::Action,
        }
    }

    /// Number of lines with a text of `lines` lines.
    pub(super) fn height(&self, lines: usize) -> usize {
        self.shape.height(lines)
    }

    /// True if its text takes the place of the row in the stream of actions.
    pub(super) fn is_message(&self) -> bool {
        self.shape.is_message()
    }

    /// True if only the heading of the sub-agent is shown.
    pub(super) fn is_folded_away(&self) -> bool {
        self.shape.is_folded_away
    }
}

impl ReadingPage {
    /// A page of the unit, at its beginning or at its newest row.
    pub(crate) fn new(unit: UnitKey, is_at_end: bool) -> Self {
        Self {
            unit,
            is_automatic: false,
            order: ReadingOrder::default(),
            version: None,
            top: LinePosition::default(),
            cursor: LinePosition::default(),
            follow: match is_at_end {
                true => Following::Newest,
                false => Following::Nothing,
            },
            unfolded: HashSet::new(),
            folded_agents: HashSet::new(),
            found: None,
            texts: HashMap::new(),
            reveals: false,
            size: (1, 1),
        }
    }

    /// The page of the only session of a record.
    pub(crate) fn of_single_session(run_view: &RunView, is_at_end: bool) -> Option<Self> {
        let unit = run_view.state.units.get(single_session(&run_view.state)?)?;
        Some(Self {
            is_automatic: true,
            ..Self::new(unit.key.clone(), is_at_end)
        })
    }

    fn shape(&self, place: usize, kind: RowKind) -> Option<RowShape> {
        let part = self.order.part(place)?;
        let is_headed = part.is_sub_agent && place == part.start;
        let is_opening = matches!(kind, RowKind::Prompt | RowKind::Text);
        Some(RowShape {
            kind,
            is_spaced: is_opening && place > 0 && !is_headed,
            is_headed,
            is_folded_away: self.is_agent_folded(place),
        })
    }

    /// The row at a place.
    pub(super) fn page_row<'a>(&self, run_view: &'a RunView, place: usize) -> Option<PageRow<'a>> {
        let address = self.order.address(place)?;
        let row = run_view.rows(address.attempt_id).get(address.row)?;
        Some(PageRow {
            row,
            address,
            is_sub_agent: self.order.part(place)?.is_sub_agent,
            shape: self.shape(place, row.kind)?,
        })
    }

    /// Number of rows of the sub-agent that begins with this row.
    pub(super) fn agent_rows(&self, first: RowAddress) -> usize {
        let place = self.order.place(first);
        let part = place.and_then(|place| self.order.part(place));
        part.map_or(0, |part| part.rows.len())
    }

    /// The unit and the attempt of the selected row: the index of the attempt, the attempt, and the index of the row.
    pub(super) fn selected_attempt<'a>(
        &self,
        run_view: &'a RunView,
    ) -> Option<(&'a UnitState, usize, &'a AttemptState, usize)> {
        let address = self.order.address(self.cursor.place)?;
        run_view.state.units.iter().find_map(|unit| {
            let mut attempts = unit.attempts.iter().enumerate();
            let (index, attempt) = attempts.find(|(_, it)| it.id == address.attempt_id)?;
            Some((unit, index, attempt, address.row))
        })
    }

    /// The key of the text of a row.
    pub(super) fn key(&self, run_view: &RunView, row: &PageRow<'_>) -> ReadingKey {
        let indent = if row.is_sub_agent { INDENT } else { 0 };
        ReadingKey {
            attempt_id: row.address.attempt_id,
            index: row.address.row,
            row: RowId::new(row.row, run_view),
            is_sub_agent: row.is_sub_agent,
            is_unfolded: self.is_unfolded(row.address),
            room: 0,
            width: self.size.0.saturating_sub(SIGN + indent),
        }
    }

    fn is_unfolded(&self, address: RowAddress) -> bool {
        let is_found = self.found.as_ref().is_some_and(|(at, _)| *at == address);
        is_found || self.unfolded.contains(&address)
    }

    /// The first row of the sub-agent at a place.
    fn agent_of(&self, place: usize) -> Option<(usize, RowAddress)> {
        let part = self.order.part(place).filter(|part| part.is_sub_agent)?;
        Some((part.start, self.order.address(part.start)?))
    }

    fn is_agent_folded(&self, place: usize) -> bool {
        let agent = self.agent_of(place);
        agent.is_some_and(|(_, first)| self.folded_agents.contains(&first))
    }

    /// The next row that is not folded away.
    fn after(&self, place: usize) -> Option<usize> {
        let next = match self.order.part(place) {
            Some(part) if self.is_agent_folded(place) => part.end(),
            _ => place + 1,
        };
        (next < self.order.len()).then_some(next)
    }

    /// The previous row that is not folded away.
    fn before(&self, place: usize) -> Option<usize> {
        let before = self.shown(place).checked_sub(1)?;
        Some(self.shown(before))
    }

    /// The place, or the heading that it is folded into.
    fn shown(&self, place: usize) -> usize {
        match self.agent_of(place) {
            Some((start, first)) if self.folded_agents.contains(&first) => start,
            _ => place,
        }
    }

    /// Number of lines of a row; `None` until it is laid out.
    fn known_height(&self, place: usize) -> Option<usize> {
        let (kind, lines, _) = self.texts.get(&self.order.address(place)?)?;
        Some(self.shape(place, *kind)?.height(*lines))
    }

    fn height(&self, place: usize) -> usize {
        self.known_height(place).unwrap_or(1)
    }

    /// The position `by` lines away, or the nearest one.
    fn moved(&self, from: LinePosition, by: isize) -> LinePosition {
        let (mut at, mut rest) = (from, by.unsigned_abs());
        loop {
            let room = if by > 0 {
                (self.height(at.place) - 1).saturating_sub(at.line)
            } else {
                at.line
            };
            if rest <= room {
                at.line = at.line.saturating_add_signed(if by > 0 {
                    rest.cast_signed()
                } else {
                    -rest.cast_signed()
                });
                return at;
            }
            let next = match by > 0 {
                true => self.after(at.place).map(|place| (place, 0)),
                false => (self.before(at.place)).map(|place| (place, self.height(place) - 1)),
            };
            let Some((place, line)) = next else {
                at.line = if by > 0 { at.line + room } else { 0 };
                return at;
            };
            rest -= room + 1;
            at = LinePosition { place, line };
        }
    }

    /// The last line on screen.
    fn bottom(&self) -> LinePosition {
        self.moved(self.top, self.size.1.cast_signed() - 1)
    }

    /// Rows of at least a screen above and below a position.
    fn rows_around(&self, at: LinePosition, places: &mut Vec<usize>) {
        let first = self.shown(at.place);
        places.push(first);
        let (mut place, mut lines) = (first, 0);
        while lines < self.size.1 + at.line
            && let Some(next) = self.after(place)
        {
            lines += self.height(place);
            place = next;
            places.push(place);
        }
        let (mut place, mut lines) = (first, at.line);
        while lines < self.size.1
            && let Some(before) = self.before(place)
        {
            place = before;
            lines += self.height(place);
            places.push(place);
        }
    }

    /// Places of the rows that the next frame may show.
    pub(super) fn wanted(&self) -> Vec<usize> {
        let mut places = Vec::new();
        if self.order.len() > 0 {
            self.rows_around(self.top, &mut places);
            self.rows_around(self.cursor, &mut places);
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Rows on screen: the first one, and the number of its lines above the screen.
    pub(super) fn visible(&self) -> (impl Iterator<Item = usize> + '_, usize) {
        let first = (self.order.len() > 0).then(|| self.shown(self.top.place));
        let rows = std::iter::successors(first, |place| self.after(*place));
        (rows, self.top.line)
    }

    /// Moves the selected line.
    pub(super) fn step_lines(&mut self, by: isize) {
        self.touch();
        if by < 0 {
            self.follow = Following::Nothing;
        }
        self.cursor = self.moved(self.cursor, by);
    }

    /// Moves the screen and the selected line.
    pub(super) fn page_lines(&mut self, by: isize) {
        self.step_lines(by);
        self.top = self.moved(self.top, by);
    }

    /// Moves the screen. The selected line moves only to remain visible.
    pub(super) fn scroll_lines(&mut self, by: isize) {
        self.touch();
        self.follow = Following::Nothing;
        self.top = self.moved(self.top, by);
        self.close_gap();
        self.cursor = self.cursor.clamp(self.top, self.bottom().max(self.top));
    }

    /// Selects the first line, or the last one and follows new ones.
    pub(super) fn go_to(&mut self, last: bool) {
        self.touch();
        self.follow = match last {
            true => Following::End,
            false => Following::Nothing,
        };
        self.cursor = match last {
            true => self.last_line(),
            false => LinePosition::default(),
        };
    }

    /// Selects the line on a row of the screen.
    pub(super) fn select_screen_row(&mut self, row: usize) {
        self.touch();
        self.follow = Following::Nothing;
        self.cursor = self.moved(self.top, row.cast_signed());
    }

    fn touch(&mut self) {
        self.is_automatic = false;
    }

    fn last_line(&self) -> LinePosition {
        self.last_line_of(self.order.len().saturating_sub(1))
    }

    fn last_line_of(&self, place: usize) -> LinePosition {
        let place = self.shown(place);
        LinePosition {
            place,
            line: self.height(place) - 1,
        }
    }

    /// Selects a row. If it is not on screen, it is shown in the upper third.
    pub(super) fn select_place(&mut self, place: usize) {
        self.touch();
        self.follow = Following::Nothing;
        if let Some((_, first)) = self.agent_of(place) {
            self.folded_agents.remove(&first);
        }
        self.cursor = LinePosition { place, line: 0 };
        if self.cursor < self.top || self.cursor > self.bottom() {
            self.top = self.moved(self.cursor, -(self.size.1 / 3).cast_signed());
        }
        self.reveals = true;
    }

    /// Selects the row of a prompt, and shows it at the top.
    pub(super) fn show_prompt(&mut self, place: usize) {
        self.select_place(place);
        // Below the empty line above it.
        self.cursor.line = usize::from(place > 0);
        self.top = self.cursor;
    }

    /// Selects the row with a match and shows all of its text.
    pub(super) fn select_found(&mut self, place: usize, query: Option<String>) {
        self.select_place(place);
        self.found = self.order.address(place).map(|address| {
            self.texts.remove(&address);
            (address, query)
        });
    }

    /// The next or previous place that passes, around the ends.
    pub(super) fn nearest(
        &self,
        run_view: &RunView,
        forward: bool,
        passes: impl Fn(&PageRow<'_>) -> bool,
    ) -> Option<usize> {
        nearest(self.order.len(), self.cursor.place, forward, |place| {
            self.page_row(run_view, place)
                .is_some_and(|row| passes(&row))
        })
    }

    /// The next or previous row with a problem.
    pub(super) fn nearest_failure(&self, run_view: &RunView, forward: bool) -> Option<usize> {
        let entries = run_view.state.entries;
        self.nearest(run_view, forward, |row| {
            is_problem_end(row.row.end(entries)) && !row.row.is_already_marked()
        })
    }

    /// Folds (`false`) or unfolds the selected row or sub-agent; `None` changes it.
    ///
    /// # Errors
    /// That there is nothing to unfold.
    pub(super) fn fold(
        &mut self,
        run_view: &RunView,
        unfold: Option<bool>,
    ) -> Result<(), &'static str> {
        self.touch();
        let Some(row) = self.page_row(run_view, self.cursor.place) else {
            return Ok(());
        };
        let address = row.address;
        let is_on_heading =
            row.is_folded_away() || row.line(self.cursor.line) == ReadingLine::SubAgent;
        let is_unfolded = self.is_unfolded(address);
        let agent = self.agent_of(self.cursor.place);
        match (unfold, agent) {
            // A row that is folded already folds its sub-agent.
            (None, Some((start, first))) if is_on_heading => {
                if !self.folded_agents.remove(&first) {
                    self.folded_agents.insert(first);
                    self.cursor = LinePosition {
                        place: start,
                        line: 0,
                    };
                }
            }
            (Some(true), Some((_, first))) if is_on_heading => {
                self.folded_agents.remove(&first);
            }
            (Some(false), Some((start, first))) if is_on_heading || !is_unfolded => {
                self.folded_agents.insert(first);
                self.cursor = LinePosition {
                    place: start,
                    line: 0,
                };
            }
            _ if unfold == Some(is_unfolded) => {}
            _ if is_unfolded => {
                self.found = None;
                self.unfolded.remove(&address);
                self.cursor.line = row.shape.first_line();
            }
            _ if matches!(self.texts.get(&address), Some((.., true))) => {
                return Err("all of it is shown");
            }
            _ => {
                self.unfolded.insert(address);
                self.texts.remove(&address);
                self.reveals = true;
            }
        }
        Ok(())
    }

    /// Updates the order of the rows and the size. Positions stay on their rows.
    pub(super) fn update(&mut self, run_view: &RunView, size: (u16, usize)) {
        if size.0 != self.size.0 {
            self.texts.clear();
        }
        self.size = (size.0, size.1.max(1));
        let version = run_view.state.version();
        if self.version != Some(version) {
            self.version = Some(version);
            let addresses = [self.top, self.cursor].map(|at| self.order.address(at.place));
            let mut units = run_view.state.units.iter();
            let unit = units.position(|unit| unit.key == self.unit);
            self.order = unit.map_or_else(ReadingOrder::default, |unit| {
                ReadingOrder::new(run_view, unit)
            });
            let [top, cursor] =
                addresses.map(|address| address.and_then(|address| self.order.place(address)));
            // At an earlier moment, the row is gone, and the last one is shown as the moment moves.
            if addresses[1].is_some() && cursor.is_none() {
                self.follow = Following::Newest;
            }
            let last = self.order.len().saturating_sub(1);
            self.top.place = top.unwrap_or(self.top.place).min(last);
            self.cursor.place = cursor.unwrap_or(self.cursor.place).min(last);
        }
        self.cursor = match self.follow {
            Following::Nothing => self.cursor,
            Following::End => self.last_line(),
            Following::Newest => {
                let place = self.order.newest(run_view).unwrap_or_default();
                self.last_line_of(place)
            }
        };
        self.settle();
    }

    /// Keeps positions and folds on their rows, after the whole source became known.
    pub(super) fn move_rows(&mut self, moved: &MovedRows<'_>) {
        let mut units = moved.before.state.units.iter();
        let unit = units.position(|unit| unit.key == self.unit);
        let Some(unit) = unit.and_then(|unit| moved.unit(unit)) else {
            return;
        };
        let order = ReadingOrder::new(moved.after, unit);
        for at in [&mut self.top, &mut self.cursor] {
            let address = self.order.address(at.place);
            let address = address.and_then(|address| moved.row(address));
            at.place = address
                .and_then(|address| order.place(address))
                .unwrap_or(at.place);
        }
        let rows = |rows: &HashSet<RowAddress>| -> HashSet<RowAddress> {
            rows.iter().filter_map(|row| moved.row(*row)).collect()
        };
        self.unfolded = rows(&self.unfolded);
        self.folded_agents = rows(&self.folded_agents);
        let found = self.found.take();
        self.found = found.and_then(|(row, text)| Some((moved.row(row)?, text)));
        let texts = std::mem::take(&mut self.texts).into_iter();
        self.texts = texts
            .filter_map(|(row, text)| Some((moved.row(row)?, text)))
            .collect();
        if let Some(unit) = moved.after.state.units.get(unit) {
            self.unit = unit.key.clone();
        }
        self.order = order;
        self.version = Some(moved.after.state.version());
    }

    /// Takes the sizes of the texts that are laid out, and looks for the match in the text of its row.
    pub(super) fn take_texts(&mut self, keys: &[ReadingKey], cache: &ScreenCache) {
        for key in keys {
            let address = RowAddress {
                attempt_id: key.attempt_id,
                row: key.index,
            };
            let Some(text) = cache.reading(key) else {
                continue;
            };
            self.texts
                .insert(address, (key.row.kind, text.len(), is_whole(key, text)));
            let Some((_, sought)) = self.found.as_mut().filter(|(found, _)| *found == address)
            else {
                continue;
            };
            let query = sought.take();
            let is_match = |line: &Vec<(StyleRole, String)>, query: &str| {
                let text: String = line.iter().map(|(_, text)| text.as_str()).collect();
                matches(&text, query)
            };
            let found = query
                .and_then(|query| text.iter().position(|line| is_match(line, &query)))
                .filter(|_| self.order.address(self.cursor.place) == Some(address));
            if let (Some(line), Some(shape)) = (found, self.shape(self.cursor.place, key.row.kind))
            {
                self.cursor.line = shape.lines_above() + line;
            }
        }
    }

    /// The position, or the nearest one that exists.
    fn in_range(&self, at: LinePosition) -> LinePosition {
        let place = self.shown(at.place);
        let height = self.known_height(place);
        LinePosition {
            place,
            line: height.map_or(at.line, |height| at.line.min(height - 1)),
        }
    }

    /// Brings the selected line on screen.
    fn settle(&mut self) {
        (self.top, self.cursor) = (self.in_range(self.top), self.in_range(self.cursor));
        if self.cursor < self.top {
            self.top = self.cursor;
        } else if self.cursor > self.bottom() {
            self.top = self.moved(self.cursor, 1 - self.size.1.cast_signed());
        }
        if let Some(height) = self
            .known_height(self.cursor.place)
            .filter(|_| self.reveals)
        {
            self.reveals = false;
            let place = self.cursor.place;
            let last = LinePosition {
                place,
                line: height - 1,
            };
            if last > self.bottom() {
                let top = self.moved(last, 1 - self.size.1.cast_signed());
                self.top = top.min(LinePosition { place, line: 0 });
            }
        }
        self.close_gap();
    }

    /// Leaves no empty lines below the last row. Needs the heights of all rows on screen.
    fn close_gap(&mut self) {
        let (rows, above) = self.visible();
        let mut lines = 0;
        for place in rows {
            let Some(height) = self.known_height(place) else {
                return;
            };
            lines += height;
            if lines >= above + self.size.1 {
                return;
            }
        }
        let top = self.moved(self.last_line(), 1 - self.size.1.cast_signed());
        self.top = self.top.min(top);
    }
}

/// True for a message of which no line is folded away.
fn is_whole(key: &ReadingKey, text: &[Vec<(StyleRole, String)>]) -> bool {
    let is_message = matches!(
        key.row.kind,
        RowKind::Text | RowKind::Thinking | RowKind::Prompt
    );
    let last = text.last().and_then(|line| line.first());
    is_message && last.is_some_and(|(role, _)| *role != StyleRole::Border)
}
