//! The stream of the selected unit: one row for each call with its result, and for each text, denial and notice.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{RowWriter, pane, titled_rule};
use crate::page::DrawContext;
use crate::stream_rows::row_at;
use crate::{
    action::UserAction,
    cache::{ReadingKey, RowId, RowLine},
    layout::{self, Pane, StreamAreas},
    model::{GroupKey, ScrollList, UnitGroup},
    stream_frame::{held_call, live_lines, verdict_lines},
    theme::{StyleRole, row_role, status_role},
    unit_row::{
        attempt_cost, failed_and_refused_calls, last_action_label, state_text, turns, turns_role,
        why,
    },
};
use ingestdeck_core::{
    run::slot_lanes::status_of,
    run::state::{
        AttemptState, HoldMode, RowKind, RowOutcome, RunView, StreamRow, UnitState, UnitStatus,
    },
    text::{self, dollars, latency},
};

/// Minimum columns for showing the time of a row.
const TIMED: u16 = 90;
/// Minimum free rows for showing what a call returned, with its name.
const MIN_RESULT_ROWS: u16 = 3;

pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let model = scene.model;
    let focus = model.units_view.focus == Pane::Stream;
    let Some(unit) = model.unit(scene.run_view) else {
        match model.heading() {
            Some(group) => self::group(scene, group, area, buf),
            None => {
                pane(scene, area, focus, &[(StyleRole::Dim, "actions")], &[], buf);
            }
        }
        return;
    };
    let attempt = model.attempt(scene.run_view);
    let new_rows = model.units_view.stream.new_rows(
        model
            .units_view
            .attempt_id
            .map_or(0, |attempt_id| scene.run_view.rows(attempt_id).len()),
    );
    let right = if model.units_view.stream.follow {
        String::new()
    } else if new_rows > 0 {
        format!(" SCROLLED, {new_rows} new ")
    } else {
        " SCROLLED ".to_owned()
    };
    let title = title(
        scene,
        unit,
        attempt,
        usize::from(area.width).saturating_sub(text::width(&right)),
    );
    let pieces: Vec<_> = title
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    let inside = pane(
        scene,
        area,
        focus,
        &pieces,
        &[(StyleRole::Paused, &right)],
        buf,
    );
    match attempt {
        Some((_, attempt)) => {
            self::rows(scene, attempt, &model.units_view.stream, focus, area, buf);
        }
        None => waiting(scene, unit, inside, buf),
    }
}

/// What the selected call returned or changed, or the last one that ended, and the free area below the rows for it.
/// `None` if there is no such call, or too little room.
pub(crate) fn result_below(
    list: &ScrollList,
    run_view: &RunView,
    attempt: &AttemptState,
    areas: &StreamAreas,
) -> Option<(ReadingKey, Rect)> {
    let all = run_view.rows(attempt.id);
    let listed = u16::try_from(all.len().saturating_sub(list.offset)).unwrap_or(u16::MAX);
    let used = listed.min(areas.rows.height);
    let room = areas.rows.height + areas.result.height;
    // Without room for an empty line, the title is enough of a gap.
    let used = used + u16::from(used + MIN_RESULT_ROWS < room);
    if room < used + MIN_RESULT_ROWS {
        return None;
    }
    let entries = run_view.state.entries;
    let has_ended =
        |row: &StreamRow| row.kind == RowKind::Tool && row.end(entries) != RowOutcome::Open;
    let index = match list.follow {
        true => all.iter().rposition(has_ended)?,
        false => list.selected,
    };
    let row = all.get(index).filter(|row| has_ended(row))?;
    let key = ReadingKey {
        attempt_id: attempt.id,
        index,
        row: RowId::new(row, run_view),
        is_sub_agent: false,
        is_unfolded: false,
        room,
        width: areas.rows.width,
    };
    let below = Rect {
        y: areas.rows.y + used,
        height: room - used,
        ..areas.rows
    };
    Some((key, below))
}

/// Paints what a call returned or changed, below its name.
fn result(scene: &DrawContext<'_>, key: &ReadingKey, area: Rect, buf: &mut Buffer) {
    let Some(lines) = scene.cache.reading(key).filter(|lines| !lines.is_empty()) else {
        return;
    };
    let name = scene.cache.row(key.row).map_or("", |line| &line.label);
    titled_rule(scene, name, "", area, buf);
    let rows = layout::below(area, 1);
    let is_cut = lines.len() > usize::from(rows.height);
    for (y, line) in (rows.y..rows.bottom()).zip(lines) {
        let row = Rect {
            y,
            height: 1,
            ..rows
        };
        let mut pen = RowWriter::row(scene, buf, row);
        if is_cut && y + 1 == rows.bottom() {
            pen.put(StyleRole::Border, scene.theme.glyphs.cut);
            break;
        }
        line.iter().for_each(|(role, text)| pen.put(*role, text));
    }
}

/// Paints the units of the selected group, also those that its fold hides.
fn group(scene: &DrawContext<'_>, group: &UnitGroup, area: Rect, buf: &mut Buffer) {
    let (state, listing) = (&scene.run_view.state, &scene.model.units_view.listing);
    let name = match &group.key {
        GroupKey::Need(need) => need.label(),
        GroupKey::Connection(name) if name.is_empty() => "no connection",
        GroupKey::Connection(name) => name,
        GroupKey::Cause(_) => &group.reason,
    };
    let count = format!(
        " {} {}",
        scene.theme.glyphs.dot,
        text::pluralize(group.units, "unit")
    );
    let focus = scene.model.units_view.focus == Pane::Stream;
    let inside = pane(
        scene,
        area,
        focus,
        &[(StyleRole::Strong, name), (StyleRole::Dim, &count)],
        &[],
        buf,
    );
    let names = listing.longest().min(usize::from(inside.width) / 2);
    let units = listing.units_of(group);
    let hidden = units.len().saturating_sub(usize::from(inside.height));
    for (y, unit) in
        (inside.y..inside.bottom()).zip(units.iter().filter_map(|unit| state.units.get(*unit)))
    {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..inside
            },
        );
        if hidden > 0 && y + 1 == inside.bottom() {
            pen.put(StyleRole::Dim, &format!("and {} more", hidden + 1));
            break;
        }
        pen.cell(status_role(unit.status), scene.theme.glyphs.unit(unit), 2);
        pen.cell(
            StyleRole::Text,
            &text::fit_middle(&unit.key, names, scene.theme.glyphs.cut),
            names,
        );
        pen.skip(2);
        let label = last_action_label(scene.cache, scene.run_view, unit);
        let (role, text) = why(state, unit, label, scene.source.origin.has_times);
        pen.put(role, &text);
    }
}

/// Paints the rows of an attempt inside a pane, the verdict above them, and the live text below.
pub(crate) fn rows(
    scene: &DrawContext<'_>,
    attempt: &AttemptState,
    list: &ScrollList,
    focus: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let areas = layout::stream_areas(area, Some(attempt), &scene.model.dialogs.held_changes);
    let StreamAreas {
        verdict,
        rows,
        below,
        ..
    } = areas;
    if let Some((key, area)) = result_below(list, scene.run_view, attempt, &areas) {
        result(scene, &key, area, buf);
    }
    self::verdict(scene, attempt, verdict, buf);
    let all = scene.run_view.rows(attempt.id);
    if all.is_empty() {
        RowWriter::row(scene, buf, rows).put(StyleRole::Dim, "no output yet");
    }
    let bookmarked = bookmarked_rows(scene, attempt);
    let visible = all.iter().enumerate().skip(list.offset);
    for (y, (index, row)) in (rows.y..rows.bottom()).zip(visible) {
        let line = Rect {
            y,
            height: 1,
            ..rows
        };
        self::row(scene, row, bookmarked.contains(&index), line, buf);
        if index == list.selected && (focus || !list.follow) {
            let role = if focus {
                StyleRole::Selected
            } else {
                StyleRole::Resting
            };
            buf.set_style(line, scene.theme.style(role));
        }
    }
    if let Some(call) = attempt.held_calls.first() {
        let held = &scene.model.dialogs.held_changes;
        let size = (below.width, below.height);
        let document = held_call(attempt, call, held, size);
        for (y, line) in (below.y..below.bottom()).zip(&document.lines) {
            let mut pen = RowWriter::row(
                scene,
                buf,
                Rect {
                    y,
                    height: 1,
                    ..below
                },
            );
            line.iter().for_each(|(role, text)| pen.put(*role, text));
        }
        return;
    }
    for (y, (role, text)) in
        (below.y..below.bottom()).zip(live_lines(attempt, below.width, below.height))
    {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..below
            },
        );
        let kind = if role == StyleRole::Said {
            RowKind::Text
        } else {
            RowKind::Thinking
        };
        pen.cell(role, scene.theme.glyphs.row(kind, RowOutcome::Ok), 2);
        pen.put(role, &text);
    }
}

/// Indexes of the rows of an attempt that have a bookmark.
pub(crate) fn bookmarked_rows(scene: &DrawContext<'_>, attempt: &AttemptState) -> Vec<usize> {
    let state = &scene.run_view.state;
    let bookmarks = scene.model.playhead.bookmarks.of_attempt(state, attempt.id);
    let rows = scene.run_view.rows(attempt.id);
    bookmarks
        .into_iter()
        .filter_map(|bookmark| row_at(rows, bookmark.entry, state.entries))
        .collect()
}

/// Paints why an attempt ended without success or seems to hang, with the keys that act on it.
fn verdict(scene: &DrawContext<'_>, attempt: &AttemptState, area: Rect, buf: &mut Buffer) {
    let mut lines = verdict_lines(attempt, area.width, area.height);
    if attempt.live.is_silent {
        let mut units = scene.run_view.state.units.iter();
        let unit = units.find(|unit| unit.latest().is_some_and(|latest| latest.id == attempt.id));
        lines = unit.map_or(lines, |unit| {
            let label = last_action_label(scene.cache, scene.run_view, unit);
            vec![why(
                &scene.run_view.state,
                unit,
                label,
                scene.source.origin.has_times,
            )]
        });
    }
    let keys = verdict_keys(scene, attempt);
    let mut keys: Vec<_> = keys
        .iter()
        .map(|(role, text)| (*role, text.as_str()))
        .collect();
    let taken: usize = keys.iter().map(|(_, text)| text::width(text)).sum();
    let mut previous = None;
    for (y, (role, text)) in (area.y..area.bottom()).zip(&lines) {
        let mut pen = RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        );
        let sign = match role {
            _ if previous == Some(*role) => "",
            _ if attempt.live.is_silent => scene.theme.glyphs.status(UnitStatus::Silent),
            StyleRole::Text => scene.theme.glyphs.arrow,
            StyleRole::Stopped => scene.theme.glyphs.status(UnitStatus::Stopped),
            StyleRole::Budget => scene.theme.glyphs.status(UnitStatus::BudgetExhausted),
            _ => scene.theme.glyphs.status(UnitStatus::Failed),
        };
        // The first line with room has the keys; the reason of a silence may be cut.
        if attempt.live.is_silent || taken + text::width(text) + 4 <= usize::from(area.width) {
            pen.end_with(&std::mem::take(&mut keys));
        }
        previous = Some(*role);
        pen.cell(*role, sign, 2);
        pen.put(*role, text);
    }
}

/// The keys that repair an attempt or end its silence, if it is the newest one of the selected unit.
fn verdict_keys(scene: &DrawContext<'_>, attempt: &AttemptState) -> Vec<(StyleRole, String)> {
    let (model, run_view) = (scene.model, scene.run_view);
    let is_newest = model
        .unit(run_view)
        .and_then(UnitState::latest)
        .is_some_and(|latest| latest.id == attempt.id);
    let actions: &[UserAction] = match attempt.live.is_silent {
        true => &[UserAction::Stop],
        false => &[UserAction::RetryWith, UserAction::Retry],
    };
    let available = actions
        .iter()
        .filter(|action| is_newest && action.spec().is_available(model, run_view));
    available
        .filter_map(|action| {
            Some((
                model.keymap.first(*action)?,
                action.spec().hint(model, run_view),
            ))
        })
        .flat_map(|(key, word)| {
            [
                (StyleRole::Key, format!("  {key}")),
                (StyleRole::Dim, format!(" {word}")),
            ]
        })
        .collect()
}

/// Paints the known facts about a unit that has not started.
pub(crate) fn waiting(scene: &DrawContext<'_>, unit: &UnitState, area: Rect, buf: &mut Buffer) {
    let earlier = scene.run_view.state.prior_unit_summary(&unit.key);
    let words = match unit.status {
        UnitStatus::Reused => "not run here: reused from a prior run",
        UnitStatus::NotStarted if scene.run_view.state.ended.is_none() => {
            "the run was interrupted before it started"
        }
        UnitStatus::NotStarted => "the run ended before it started",
        UnitStatus::Stopped => "stopped before it started",
        _ => "not started yet",
    };
    let mut lines = vec![(StyleRole::Dim, words.to_owned())];
    if let Some(earlier) = earlier {
        let attempts = if earlier.attempts == 1 {
            "1 attempt".into()
        } else {
            format!("{} attempts", earlier.attempts)
        };
        let (cost, run) = (dollars(earlier.cost_usd), earlier.run.short());
        lines.push((
            StyleRole::Dim,
            format!("earlier: {attempts}, {cost}; `ingestdeck replay {run}` shows the last"),
        ));
    }
    if let Some(planned) = &unit.planned {
        if !planned.why.is_empty() {
            lines.push((StyleRole::Text, planned.why.clone()));
        }
        let files = planned.raw_files.len();
        if files > 0 {
            lines.push((
                StyleRole::Dim,
                format!("{files} raw file{}", if files == 1 { "" } else { "s" }),
            ));
            lines.extend(
                planned
                    .raw_files
                    .iter()
                    .take(50)
                    .map(|file| (StyleRole::Text, format!("  {file}"))),
            );
        }
    }
    for (y, (role, text)) in (area.y..area.bottom()).zip(lines) {
        RowWriter::row(
            scene,
            buf,
            Rect {
                y,
                height: 1,
                ..area
            },
        )
        .put(role, &text);
    }
}

/// Role, sign and name of the state of a unit, or of an earlier attempt at it.
pub(crate) fn state(
    scene: &DrawContext<'_>,
    unit: &UnitState,
    attempt: Option<(usize, &AttemptState)>,
) -> (StyleRole, &'static str, String) {
    let glyphs = scene.theme.glyphs;
    let earlier = attempt.filter(|(index, _)| index + 1 < unit.attempts.len());
    match earlier.map(|(_, attempt)| status_of(unit, attempt)) {
        Some(status) => (
            status_role(status),
            glyphs.status(status),
            status.as_str().into(),
        ),
        None => (
            status_role(unit.status),
            glyphs.unit(unit),
            state_text(unit, scene.model.playhead.time).into_owned(),
        ),
    }
}

fn title(
    scene: &DrawContext<'_>,
    unit: &UnitState,
    attempt: Option<(usize, &AttemptState)>,
    width: usize,
) -> Vec<(StyleRole, String)> {
    let glyphs = scene.theme.glyphs;
    let name = width.saturating_sub(24).clamp(8, 48);
    let (role, glyph, status) = state(scene, unit, attempt);
    let title = vec![
        (role, format!("{glyph} ")),
        (
            StyleRole::Strong,
            text::fit_middle(&unit.key, name, glyphs.cut).into_owned(),
        ),
        (role, format!(" {status}")),
    ];
    let Some((index, attempt)) = attempt else {
        return title;
    };
    // Most important first: the last facts are dropped when room is short.
    let mut facts = Vec::new();
    if let (Some(call), true) = (attempt.held_calls.first(), scene.source.origin.has_times) {
        facts.push((
            StyleRole::Paused,
            format!("waits {}", scene.model.playhead.time.since(call.since)),
        ));
    } else if unit.status == UnitStatus::Running {
        match &unit.hold_mode {
            HoldMode::Off => {}
            HoldMode::EachCall => {
                facts.push((StyleRole::Paused, "holds at the next call".to_owned()))
            }
            HoldMode::Until(condition) => {
                let condition = text::printable(condition, 60);
                facts.push((
                    StyleRole::Paused,
                    format!("{} until {condition}", glyphs.breakpoint),
                ));
            }
        }
    }
    if unit.attempts.len() > 1 || attempt.number > 1 {
        let old = index + 1 < unit.attempts.len();
        facts.push((
            if old {
                StyleRole::Paused
            } else {
                StyleRole::Text
            },
            format!("try {} of {}", attempt.number, unit.attempts.len()),
        ));
    }
    if attempt.setup.continued().is_some() {
        facts.push((StyleRole::Text, "continued".to_owned()));
    } else if attempt.setup.amendment().is_some() {
        facts.push((StyleRole::Text, "amended".to_owned()));
    }
    facts.extend(failed_and_refused_calls(attempt, glyphs));
    if attempt.counts.declined > 0 {
        facts.push((
            StyleRole::Warning,
            format!(
                "{}{}",
                glyphs.row(RowKind::Tool, RowOutcome::Declined),
                attempt.counts.declined
            ),
        ));
    }
    let word = if attempt.setup.step_budget.is_none() && attempt.counts.turns == 1 {
        "turn"
    } else {
        "turns"
    };
    facts.push((turns_role(attempt), format!("{} {word}", turns(attempt))));
    facts.push((StyleRole::Text, attempt_cost(attempt)));
    facts.push((
        StyleRole::Text,
        if attempt.counts.calls == 1 {
            "1 call".to_owned()
        } else {
            format!("{} calls", attempt.counts.calls)
        },
    ));
    if unit.status == UnitStatus::Running
        && scene.source.origin.has_times
        && let Some(since) = attempt.silent_since
    {
        let silent = scene.model.playhead.time.since(since);
        let role = if silent.0 >= 30_000 {
            StyleRole::Warning
        } else {
            StyleRole::Dim
        };
        facts.push((role, format!("{silent} ago")));
    }
    if let Some(model) = &attempt.setup.model {
        let model = model.strip_prefix("claude-").unwrap_or(model);
        facts.push((StyleRole::Text, text::printable(model, 24).into_owned()));
    }
    title_with_facts(title, facts, glyphs.dot, width)
}

/// Title of a pane of `width` columns, with as many complete facts as fit.
pub(crate) fn title_with_facts(
    mut title: Vec<(StyleRole, String)>,
    facts: Vec<(StyleRole, String)>,
    dot: &str,
    width: usize,
) -> Vec<(StyleRole, String)> {
    /// Corners, and a space on each side.
    const AROUND: usize = 4;
    let mut used = AROUND
        + title
            .iter()
            .map(|(_, text)| text::width(text))
            .sum::<usize>();
    for (role, fact) in facts {
        let dot = format!(" {dot} ");
        used += text::width(&dot) + text::width(&fact);
        if used > width {
            break;
        }
        title.push((StyleRole::Dim, dot));
        title.push((role, fact));
    }
    title
}

/// Columns that a row of a call needs without its time and with all of its name, within limits; 0 for other rows, whose
/// text continues next to the list.
pub(crate) fn call_columns(row: &StreamRow, line: &RowLine) -> usize {
    /// The sign, a gap and the duration.
    const AROUND: usize = 2 + 2 + 8;
    const MAX_LABEL: usize = 48;
    const MAX_OUTCOME: usize = 10;
    if !matches!(row.kind, RowKind::Tool | RowKind::Task) {
        return 0;
    }
    let label = text::width_up_to(&line.label, MAX_LABEL);
    let outcome = text::width_up_to(&line.outcome, MAX_OUTCOME);
    usize::from(row.depth.min(6)) * 2 + AROUND + label + outcome
}

/// Paints a row, with its time from [`TIMED`] columns on.
pub(crate) fn row(
    scene: &DrawContext<'_>,
    row: &StreamRow,
    is_bookmarked: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let is_timed = area.width >= TIMED;
    timed_row(scene, row, (is_bookmarked, is_timed), area, buf);
}

pub(crate) fn timed_row(
    scene: &DrawContext<'_>,
    row: &StreamRow,
    (is_bookmarked, is_timed): (bool, bool),
    area: Rect,
    buf: &mut Buffer,
) {
    let unread = RowLine::default();
    let line = scene
        .cache
        .row(RowId::new(row, scene.run_view))
        .unwrap_or(&unread);
    let mut pen = RowWriter::row(scene, buf, area);
    if is_timed && scene.source.origin.has_times {
        let playhead = &scene.model.playhead;
        let columns = playhead.moment_columns();
        pen.cell(StyleRole::Dim, &playhead.moment(line.at), columns);
    }
    action(scene, row, line, is_bookmarked, &mut pen);
}

/// Paints a row without its time: its sign, what it is, its outcome and its duration.
pub(crate) fn action(
    scene: &DrawContext<'_>,
    row: &StreamRow,
    line: &RowLine,
    is_bookmarked: bool,
    pen: &mut RowWriter<'_>,
) {
    let entries = scene.run_view.state.entries;
    let (kind, end) = (row.kind, row.end(entries));
    let role = row_role(kind, end);
    pen.skip(usize::from(row.depth.min(6)) * 2);
    // Show the sign of a failure only once, in the row that reports it.
    let shown = if row.is_already_marked() {
        RowOutcome::Ok
    } else {
        end
    };
    pen.cell(role, scene.theme.glyphs.row(kind, shown), 2);
    if is_bookmarked {
        pen.cell(StyleRole::Key, scene.theme.glyphs.bookmark(), 2);
    }

    let timed = scene.source.origin.has_times && matches!(kind, RowKind::Tool | RowKind::Task);
    let took = match (end, line.took()) {
        _ if !timed => String::new(),
        (RowOutcome::Open, _) => format!(
            "{} {}",
            scene.model.playhead.time.since(line.at),
            scene.theme.glyphs.cut
        ),
        (_, Some(took)) => latency(took),
        (_, None) => String::new(),
    };
    let is_odd = matches!(
        end,
        RowOutcome::Failed | RowOutcome::Denied | RowOutcome::Declined
    );
    let fact_role = if is_odd { role } else { StyleRole::Dim };
    let took_width = if timed { 8 } else { 0 };
    // The label has priority, and the fact gets the remaining room but at least its minimum share: the reason of a
    // refusal or failure is more important than the end of the arguments.
    let room = pen.room().saturating_sub(took_width);
    let fact_width = text::width_up_to(&line.outcome, room);
    let label_width = text::width_up_to(&line.label, room);
    let share = match end {
        RowOutcome::Denied => room * 3 / 4,
        RowOutcome::Failed | RowOutcome::Declined => room / 2,
        RowOutcome::Open | RowOutcome::Ok | RowOutcome::Aborted => room / 3,
    };
    let fact_room = if fact_width == 0 {
        0
    } else {
        fact_width.min(share.max(room.saturating_sub(label_width + 2)))
    };
    let label_room = room.saturating_sub(if fact_room == 0 { 0 } else { fact_room + 2 });
    let label_role = match kind {
        RowKind::Thinking => StyleRole::Thinking,
        RowKind::Text => StyleRole::Said,
        RowKind::Prompt => StyleRole::Strong,
        RowKind::Tool | RowKind::Task | RowKind::Denial | RowKind::Completed => StyleRole::Text,
        RowKind::Warning => StyleRole::Warning,
        RowKind::Notice | RowKind::Started | RowKind::Note => StyleRole::Dim,
    };
    let label_role = if kind != RowKind::Tool && matches!(end, RowOutcome::Failed) {
        StyleRole::Failed
    } else {
        label_role
    };
    pen.cell(label_role, &line.label, label_room);
    if fact_room > 0 {
        pen.skip(2);
        pen.cell_right(fact_role, &line.outcome, fact_room);
    }
    if timed {
        pen.cell_right(
            if end == RowOutcome::Open {
                StyleRole::Running
            } else {
                StyleRole::Dim
            },
            &took,
            took_width,
        );
    }
}
