//! The header: run, state and counts in one or two lines. Values that leave something out are marked as partial.

mod context_bar;
mod publication;

use ratatui::{buffer::Buffer, layout::Rect};

use crate::page::DrawContext;
use crate::pages::failure_groups::view::BudgetForecast;
use crate::widgets::RowWriter;
use crate::{
    forecast_text,
    model::{RunTotals, wall_clock},
    reading_order::single_session,
    theme::{StyleRole, status_role},
};
use ingestdeck_core::{
    run::state::{HoldMode, RunState, UnitNeed, UnitStatus, UsageWindow},
    tape::{Millis, note::RunEndOutcome},
    text::{self, clock, count, dollars, pluralize},
    units::limits::window_name,
};

/// Columns between two items.
const GAP: usize = 2;
/// Minimum columns for showing unit names in addition to the state of the run.
const MIN_NAME_COLUMNS: u16 = 60;

/// One item of the header, whose parts stay together. Items with a higher rank are dropped first when room is short.
struct HeaderItem {
    spans: Vec<(StyleRole, String)>,
    rank: u8,
    /// Columns to which the item may be cut before another item of its rank is dropped.
    min_width: Option<usize>,
}

impl HeaderItem {
    fn new(rank: u8, role: StyleRole, text: impl Into<String>) -> Self {
        Self {
            spans: vec![(role, text.into())],
            rank,
            min_width: None,
        }
    }

    /// Creates a name that may be shortened.
    fn name(role: StyleRole, text: &str) -> Self {
        const LEAST: usize = 12;
        Self {
            min_width: Some(LEAST),
            ..Self::new(1, role, text::printable(text, 1000))
        }
    }

    /// Cuts the middle out of a name. Returns false if it cannot be shortened further.
    fn shrink(&mut self, by: usize, cut: &str) -> bool {
        let Some(least) = self.min_width.take() else {
            return false;
        };
        let to = self.width().saturating_sub(by).max(least);
        for (_, text) in &mut self.spans {
            *text = text::fit_middle(text, to, cut).into_owned();
        }
        true
    }

    fn width(&self) -> usize {
        self.spans.iter().map(|(_, text)| text::width(text)).sum()
    }
}

pub(crate) fn draw(scene: &DrawContext<'_>, area: Rect, buf: &mut Buffer) {
    let (mut first, second) = (identity(scene), numbers(scene));
    if area.height >= 2 {
        line(scene, Rect { height: 1, ..area }, first, buf);
        let message = message_place(scene, area).map_or(0, |(message, _)| message.width);
        let width = area.width - message;
        line(
            scene,
            Rect {
                y: area.y + 1,
                height: 1,
                width,
                ..area
            },
            second,
            buf,
        );
    } else {
        first.extend(second);
        line(scene, area, first, buf);
    }
}

/// The newest message and its place at the right of the second header line, if it fits there.
pub(crate) fn message_place(scene: &DrawContext<'_>, header: Rect) -> Option<(Rect, String)> {
    let text = text::one_row(&scene.model.toasts.list.last()?.text, 400);
    let width = u16::try_from(text::width(&text) + 2).unwrap_or(u16::MAX);
    let room = usize::from(header.width).saturating_sub(count_columns(scene));
    // The header of the home screen has counts of another kind.
    let fits = header.height > 1 && usize::from(width) < room && !scene.model.is_home;
    fits.then(|| {
        (
            Rect {
                x: header.right() - width,
                y: header.y + 1,
                width,
                height: 1,
            },
            text,
        )
    })
}

/// Columns of the counts of units, which a message must not hide.
pub(super) fn count_columns(scene: &DrawContext<'_>) -> usize {
    numbers(scene)
        .iter()
        .filter(|item| item.rank <= 1)
        .map(|item| item.width() + GAP)
        .sum()
}

fn line(scene: &DrawContext<'_>, area: Rect, mut facts: Vec<HeaderItem>, buf: &mut Buffer) {
    let room = usize::from(area.width).saturating_sub(1);
    let total = |facts: &[HeaderItem]| {
        facts
            .iter()
            .map(|fact| fact.width() + GAP)
            .sum::<usize>()
            .saturating_sub(GAP)
    };
    while total(&facts) > room
        && let Some(place) = (0..facts.len()).max_by_key(|place| facts[*place].rank)
    {
        let excess = total(&facts) - room;
        let cut = scene.theme.glyphs.cut;
        let shrunk =
            facts[place].rank <= 1 && facts.iter_mut().any(|fact| fact.shrink(excess, cut));
        if !shrunk && facts[place].rank == 0 {
            break;
        }
        if !shrunk {
            facts.remove(place);
        }
    }
    let mut pen = RowWriter::row(scene, buf, area);
    pen.skip(1);
    for (index, fact) in facts.iter().enumerate() {
        if index > 0 {
            pen.skip(GAP);
        }
        for (role, text) in &fact.spans {
            pen.put(*role, text);
        }
    }
}

fn identity(scene: &DrawContext<'_>) -> Vec<HeaderItem> {
    let (source, state) = (scene.source, &scene.run_view.state);
    let glyphs = scene.theme.glyphs;
    let mut facts = vec![HeaderItem::new(5, StyleRole::Dim, "ingestdeck")];
    let (name, detail) = match &source.origin.header {
        Some(header) => (
            header.project.as_deref().unwrap_or("run"),
            format!("run {}", header.run.short()),
        ),
        // The end of a path identifies the tape.
        None => {
            let name = source
                .origin
                .name
                .rsplit('/')
                .next()
                .unwrap_or(&source.origin.name);
            (
                source.origin.title.as_deref().unwrap_or(name),
                source.origin.format.to_owned(),
            )
        }
    };
    facts.push(HeaderItem::name(StyleRole::Strong, name));
    facts.push(HeaderItem::new(4, StyleRole::Dim, detail));
    if let Some(before) = state
        .planned
        .as_ref()
        .and_then(|plan| plan.continues.as_ref())
    {
        facts.push(HeaderItem::new(
            5,
            StyleRole::Dim,
            format!("continues {}", before.run.short()),
        ));
    }
    facts.push(state_word(scene));
    // The times of entries count the time before a retry, too.
    if source.origin.has_times && state.time_ended.0 >= 1000 {
        let text = format!("open for {}", clock(scene.model.playhead.time));
        facts.push(HeaderItem::new(5, StyleRole::Dim, text));
    }
    if state.is_review_interrupted() && scene.model.connection.is_live {
        let text = format!(
            "{} retry runs; review continues after it",
            scene.theme.glyphs.status(UnitStatus::Running)
        );
        facts.push(HeaderItem::new(1, StyleRole::Running, text));
    }
    facts.extend(progress(scene));
    facts.extend(remaining_time(scene));
    facts.extend(cost(scene));
    facts.extend(context_bar::context_bar(scene));
    facts.extend(publication::publication(scene));
    if scene.model.is_in_past() {
        let behind = clock(
            scene
                .model
                .playhead
                .bounds
                .now
                .since(scene.model.playhead.time),
        );
        facts.push(HeaderItem::new(
            0,
            StyleRole::Paused,
            format!("PAST -{behind}"),
        ));
    }
    if let Some(fact) = limit_pause(state, scene.model.playhead.time) {
        facts.push(fact);
    }
    if let Some(wait) = state.workers.wait {
        let bounds = &scene.model.playhead.bounds;
        let since = bounds
            .started_at
            .and_then(|began| wall_clock(began, wait.since, &bounds.zone));
        let since = since
            .map(|since| format!(" since {since}"))
            .unwrap_or_default();
        let left = wait.until.since(scene.model.playhead.time);
        let text = format!("WAITING for workers{since}, {left} left");
        facts.push(HeaderItem::new(0, StyleRole::Paused, text));
    }
    if let Some(why) = &scene.model.connection.recording_failure {
        facts.push(HeaderItem::new(0, StyleRole::Failed, cut(why, 60)));
    }
    if let Some(why) = &source.read_error {
        facts.push(HeaderItem::new(
            0,
            StyleRole::Failed,
            format!("reading stopped: {}", cut(why, 60)),
        ));
    }
    // While a live run is read, the last line shows it in place of LIVE.
    if let Some(percent) = source
        .percent_read()
        .filter(|_| !scene.model.connection.is_live)
    {
        facts.push(HeaderItem::new(
            2,
            StyleRole::Paused,
            format!("reading {percent} %"),
        ));
    }
    let scripted = source
        .origin
        .header
        .as_ref()
        .is_some_and(|header| header.scripted)
        || state.planned.as_ref().is_some_and(|plan| plan.scripted);
    if scripted {
        facts.push(HeaderItem::new(3, StyleRole::Dim, "scripted"));
    }
    if !state.inputs.env_passed.is_empty() {
        facts.push(HeaderItem::new(
            4,
            StyleRole::Dim,
            format!("passes {}", cut(&state.inputs.env_passed.join(" "), 40)),
        ));
    }
    if state.workers.had_any() && state.ended.is_none() {
        let present = state.workers.present.len();
        let role = if present == 0 {
            StyleRole::Warning
        } else {
            StyleRole::Dim
        };
        let slots = pluralize(state.workers.slots() as usize, "slot");
        facts.push(HeaderItem::new(
            3,
            role,
            format!("{} {} {slots}", pluralize(present, "worker"), glyphs.dot),
        ));
    }
    if scene.model.totals.isolation_breaches > 0 {
        facts.push(HeaderItem::new(
            0,
            StyleRole::Failed,
            format!("{} isolation", glyphs.status(UnitStatus::Failed)),
        ));
    }
    if !source.origin.has_times {
        facts.push(HeaderItem::new(4, StyleRole::Dim, "no times"));
    }
    facts
}

fn cut(text: &str, width: usize) -> String {
    text::printable(text, width).into_owned()
}

/// The state of a run whose changes wait, while its engine is open and after that.
const WAITS_FOR_REVIEW: &str = "waits for review";

fn state_word(scene: &DrawContext<'_>) -> HeaderItem {
    let (state, totals) = (&scene.run_view.state, &scene.model.totals);
    let glyphs = scene.theme.glyphs;
    // Its sub-agents, some of which Claude Code starts in advance and stops, do not decide how a session ended.
    let session = single_session(state).and_then(|unit| state.units.get(unit));
    let session = session.map(|unit| unit.status);
    let (role, glyph, word) = match &state.ended {
        _ if scene.model.connection.recording_failure.is_some() => (
            StyleRole::Failed,
            glyphs.status(UnitStatus::Failed),
            "broken",
        ),
        Some(end) if end.outcome == RunEndOutcome::Done && end.budget > 0 => (
            status_role(UnitStatus::BudgetExhausted),
            glyphs.status(UnitStatus::BudgetExhausted),
            "done",
        ),
        Some(end) if end.outcome == RunEndOutcome::Done && end.failed == 0 => (
            StyleRole::Succeeded,
            glyphs.status(UnitStatus::Succeeded),
            "done",
        ),
        Some(end) if end.outcome == RunEndOutcome::WaitingApproval => (
            StyleRole::Paused,
            glyphs.status(UnitStatus::Held),
            WAITS_FOR_REVIEW,
        ),
        Some(end) => {
            let role = if end.failed > 0 {
                StyleRole::Failed
            } else {
                StyleRole::Stopped
            };
            (
                role,
                glyphs.status(if end.failed > 0 {
                    UnitStatus::Failed
                } else {
                    UnitStatus::Stopped
                }),
                end.outcome.as_str(),
            )
        }
        None if totals.active_units() > 0 && state.limits.is_stopping => (
            StyleRole::Waiting,
            glyphs.status(UnitStatus::Waiting),
            "stopping",
        ),
        None if state.publication.open_review().is_some() => (
            StyleRole::Paused,
            glyphs.status(UnitStatus::Held),
            WAITS_FOR_REVIEW,
        ),
        None if state.limits.is_paused => {
            (StyleRole::Paused, glyphs.status(UnitStatus::Held), "paused")
        }
        None if state.limits.pause.is_some() && !totals.has_units_in_flight() => (
            StyleRole::Paused,
            glyphs.status(UnitStatus::Waiting),
            "limited",
        ),
        None if state.workers.wait.is_some() => (
            StyleRole::Paused,
            glyphs.status(UnitStatus::Waiting),
            "no workers",
        ),
        None if totals.active_units() > 0
            && totals.active_units() == totals.count(UnitStatus::Held) =>
        {
            (StyleRole::Paused, glyphs.status(UnitStatus::Held), "held")
        }
        None if totals.active_units() > 0
            && totals.active_units() == totals.count(UnitStatus::Silent) =>
        {
            (
                status_role(UnitStatus::Silent),
                glyphs.status(UnitStatus::Silent),
                "silent",
            )
        }
        None if totals.active_units() > 0 => (
            StyleRole::Running,
            glyphs.status(UnitStatus::Running),
            "running",
        ),
        None if state.publication.is_integrating => {
            let cut_off = scene.source.ended && scene.model.playhead.at_end;
            let status = if cut_off {
                UnitStatus::Interrupted
            } else {
                UnitStatus::Running
            };
            (
                status_role(status),
                glyphs.status(status),
                if cut_off {
                    "interrupted"
                } else {
                    "integrating"
                },
            )
        }
        None if session == Some(UnitStatus::Succeeded) => (
            StyleRole::Succeeded,
            glyphs.status(UnitStatus::Succeeded),
            "done",
        ),
        None if session == Some(UnitStatus::NotStarted) => (
            StyleRole::Queued,
            glyphs.status(UnitStatus::NotStarted),
            UnitStatus::NotStarted.as_str(),
        ),
        None if totals.count(UnitStatus::Interrupted) + totals.count(UnitStatus::NotStarted)
            > 0 =>
        {
            (
                StyleRole::Interrupted,
                glyphs.status(UnitStatus::Interrupted),
                "interrupted",
            )
        }
        None if totals.count(UnitStatus::Queued) > 0
            && scene.source.ended
            && scene.model.playhead.at_end =>
        {
            (
                StyleRole::Interrupted,
                glyphs.status(UnitStatus::Interrupted),
                "interrupted",
            )
        }
        None if totals.count(UnitStatus::Queued) > 0 => (
            StyleRole::Queued,
            glyphs.status(UnitStatus::Queued),
            "starting",
        ),
        None if totals.count(UnitStatus::Failed) > 0 => (
            StyleRole::Failed,
            glyphs.status(UnitStatus::Failed),
            "failed",
        ),
        None if totals.count(UnitStatus::BudgetExhausted) > 0 => {
            let status = UnitStatus::BudgetExhausted;
            (status_role(status), glyphs.status(status), "out of budget")
        }
        None if totals.finished_units() > 0 => (
            StyleRole::Succeeded,
            glyphs.status(UnitStatus::Succeeded),
            "done",
        ),
        None => (
            StyleRole::Queued,
            glyphs.status(UnitStatus::Queued),
            "empty",
        ),
    };
    let mut pieces = vec![(role, format!("{glyph} {}", cut(word, 16)))];
    if scene.source.origin.has_times {
        // A run that a retry reopened did not run while it waited for that.
        let time = scene.model.playhead.time.since(state.time_ended);
        pieces.push((StyleRole::Text, format!(" {}", clock(time))));
    }
    HeaderItem {
        spans: pieces,
        rank: 0,
        min_width: None,
    }
}

fn limit_pause(state: &RunState, now: Millis) -> Option<HeaderItem> {
    let paused = state.limits.pause.as_ref()?;
    let until = match paused.until {
        Some(until) => format!(", {} left", until.since(now)),
        None => String::new(),
    };
    let limit = window_name(&paused.reason);
    Some(HeaderItem::new(
        0,
        StyleRole::Paused,
        format!("WAITING for the {} limit{until}", cut(&limit, 40)),
    ))
}

/// The units that are done, as a bar and as a count.
fn progress(scene: &DrawContext<'_>) -> Vec<HeaderItem> {
    let (units, totals) = (scene.run_view.state.units.len(), &scene.model.totals);
    // A session is one unit.
    if units == 0 || units == 1 && scene.model.connection.is_session {
        return Vec::new();
    }
    let done = totals.finished_units() - totals.count(UnitStatus::Interrupted);
    let [full, rest, ..] = scene.theme.glyphs.progress;
    let width = (usize::from(scene.model.size.0) / 5).clamp(8, 40);
    let filled = (width * done / units).max(usize::from(done > 0));
    let filled = if done < units {
        filled.min(width - 1)
    } else {
        width
    };
    let failed = totals.with_need(UnitNeed::Person) > 0;
    let role = if failed {
        StyleRole::Failed
    } else {
        StyleRole::Succeeded
    };
    let bar = vec![
        (role, full.repeat(filled)),
        (StyleRole::Border, rest.repeat(width - filled)),
    ];
    let count = if units == 1 {
        "1 unit".to_owned()
    } else {
        format!("{done}/{units}")
    };
    let bar = (units > 1).then_some(HeaderItem {
        spans: bar,
        rank: 4,
        min_width: None,
    });
    bar.into_iter()
        .chain([HeaderItem::new(
            if units == 1 { 3 } else { 1 },
            StyleRole::Strong,
            count,
        )])
        .collect()
}

/// True while units of the run are active or may start, as far as the present is known.
fn is_active(scene: &DrawContext<'_>) -> bool {
    // A forecast from a part of the record would swing with each part that is read.
    let is_read_in_part = scene.source.is_catching_up || scene.source.percent_read().is_some();
    let is_unknown = scene.run_view.state.ended.is_some() || is_read_in_part;
    !is_unknown && (scene.model.totals.active_units() > 0 || !scene.source.ended)
}

/// The forecast time that is left, and when the run will end by the clock.
fn remaining_time(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    let (model, now) = (scene.model, scene.model.playhead.time);
    let has_forecast = is_active(scene) && !model.connection.is_session;
    let left = forecast_text::remaining_time(model.forecast(), now).filter(|_| has_forecast)?;
    let mut item = HeaderItem::new(2, StyleRole::Text, format!("left {}", left.text));
    if let (Some(end), true, false) = (left.end, model.connection.is_live, model.is_in_past()) {
        let bounds = &model.playhead.bounds;
        let clock = bounds
            .started_at
            .and_then(|start| wall_clock(start, end, &bounds.zone));
        // Seconds would suggest a precision that a forecast does not have.
        let clock = clock.map(|clock| clock[..clock.len().min(5)].to_owned());
        item.spans.extend(clock.map(|clock| {
            (
                StyleRole::Strong,
                format!(" {} {clock}", scene.theme.glyphs.arrow),
            )
        }));
    }
    Some(item)
}

/// The cost so far, the forecast cost of the whole run, and the budget.
fn cost(scene: &DrawContext<'_>) -> Vec<HeaderItem> {
    let (state, totals) = (&scene.run_view.state, &scene.model.totals);
    if totals.attempts == 0 {
        return Vec::new();
    }
    // Mark a sum that lacks the cost of some attempts.
    let is_incomplete = totals.cost.usd.is_some() && totals.cost.is_partial;
    let more = if is_incomplete { "+" } else { "" };
    let cost = totals.cost.dollars();
    let forecast = scene.model.forecast().forecast;
    let whole = forecast
        .cost
        .filter(|_| is_active(scene) && forecast.units > 0)
        .map(|left| {
            let unknown = if forecast.covers_all_costs() {
                ""
            } else {
                "+?"
            };
            format!(
                " of ~{}{unknown}",
                dollars(Some(state.spent_usd + left.p50))
            )
        });
    let budget_forecast = BudgetForecast::from_context(scene);
    let budget = budget_forecast
        .as_ref()
        .map(|budget_forecast| format!(", {}", budget_forecast.budget()));
    let text = format!(
        "{cost}{more}{}{}",
        whole.unwrap_or_default(),
        budget.unwrap_or_default()
    );
    let mut items = vec![HeaderItem::new(3, StyleRole::Text, text)];
    if let Some((role, sign)) =
        budget_forecast.and_then(|budget_forecast| budget_forecast.verdict(scene))
    {
        items.push(HeaderItem::new(2, role, sign));
    }
    items
}

/// Units that ended per minute, once enough of them have.
fn throughput(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    const LEAST: usize = 5;
    let (state, totals) = (&scene.run_view.state, &scene.model.totals);
    // Neither a wait for a review nor that for a retry of an ended run is running time.
    let until = if totals.active_units() > 0 {
        scene.model.playhead.time
    } else {
        totals.last_end
    };
    let minutes = until.since(state.time_ended).0 as f64 / 60_000.0;
    let ended = totals.finished_units() - totals.count(UnitStatus::Reused);
    let is_known =
        scene.source.origin.has_times && is_active(scene) && ended >= LEAST && minutes > 0.0;
    is_known.then(|| {
        HeaderItem::new(
            7,
            StyleRole::Dim,
            format!("{:.1} units/min", ended as f64 / minutes),
        )
    })
}

/// The breakpoint condition of a unit that runs until a call meets it.
fn until_item(scene: &DrawContext<'_>) -> Option<HeaderItem> {
    let totals = &scene.model.totals;
    let unit = scene.run_view.state.units.get(totals.first_until_unit?)?;
    let HoldMode::Until(condition) = &unit.hold_mode else {
        return None;
    };
    let glyph = scene.theme.glyphs.breakpoint;
    let text = match totals.until_units {
        1 if scene.model.size.0 < MIN_NAME_COLUMNS => format!("{glyph} {}", cut(condition, 40)),
        1 => format!(
            "{glyph} until {} {} {}",
            cut(condition, 40),
            scene.theme.glyphs.dot,
            cut(&unit.key, 24)
        ),
        several => format!("{glyph} {several} run until a call"),
    };
    Some(HeaderItem {
        min_width: Some(12),
        ..HeaderItem::new(1, StyleRole::Paused, text)
    })
}

/// Time until a usage window resets.
fn resets_in(scene: &DrawContext<'_>, limit: &UsageWindow) -> Option<Millis> {
    let now = scene
        .model
        .playhead
        .time
        .to_timestamp(scene.source.origin.started_at?)?;
    let left = limit.resets_at?.checked_sub(now.as_second())?;
    u64::try_from(left)
        .ok()
        .filter(|left| *left > 0)
        .map(|left| Millis(left.saturating_mul(1000)))
}

fn numbers(scene: &DrawContext<'_>) -> Vec<HeaderItem> {
    let (state, totals) = (&scene.run_view.state, &scene.model.totals);
    let units = state.units.len();
    let mut facts = Vec::new();
    for status in RunTotals::ORDER {
        let number = totals.count(status);
        if number > 0 {
            let glyph = scene.theme.glyphs.status(status);
            // Items that need the user's attention are dropped last.
            let rank = if matches!(
                status,
                UnitStatus::Held
                    | UnitStatus::Failed
                    | UnitStatus::Silent
                    | UnitStatus::Running
                    | UnitStatus::Interrupted
            ) {
                0
            } else {
                1
            };
            facts.push(HeaderItem::new(
                rank,
                status_role(status),
                format!("{glyph} {number} {}", status.as_str()),
            ));
        }
    }
    if let Some(fact) = until_item(scene) {
        facts.push(fact);
    }
    if totals.turns > 0 {
        let word = if totals.turns == 1 { "turn" } else { "turns" };
        facts.push(HeaderItem::new(
            6,
            StyleRole::Text,
            format!("{} {word}", count(totals.turns)),
        ));
    }
    if totals.tokens > 0 {
        facts.push(HeaderItem::new(
            7,
            StyleRole::Text,
            format!("{} tokens", count(totals.tokens)),
        ));
    }
    facts.extend(throughput(scene));
    if let Some(plan) = state
        .planned
        .as_ref()
        .filter(|plan| units > 1 && plan.concurrency > 0)
    {
        let all = plan.concurrency;
        facts.push(
            match state
                .limits
                .throttling
                .as_ref()
                .filter(|throttled| throttled.concurrency < all && state.ended.is_none())
            {
                Some(throttled) => {
                    let (allowed, why) = (throttled.concurrency, window_name(&throttled.reason));
                    let running = [UnitStatus::Running, UnitStatus::Silent, UnitStatus::Held];
                    let running: usize = running.map(|status| totals.count(status)).iter().sum();
                    // Attempts that run are not stopped.
                    let text = match running > allowed as usize {
                        true => format!("{} {allowed}", scene.theme.glyphs.arrow),
                        false => format!("of {all}"),
                    };
                    let now = running.max(allowed as usize);
                    HeaderItem::new(
                        1,
                        StyleRole::Warning,
                        format!("concurrency {now} {text}: {}", cut(&why, 20)),
                    )
                }
                None => HeaderItem::new(5, StyleRole::Dim, format!("concurrency {all}")),
            },
        );
    }
    if let Some(limit) = &state.limits.usage_window {
        let used = limit
            .utilization
            .map(|used| format!(" {:.0} %", used * 100.0))
            .unwrap_or_default();
        let bad = limit.status != "allowed";
        let status = if bad {
            format!(" {}", limit.status.replace('_', " "))
        } else {
            String::new()
        };
        let name = window_name(&limit.name);
        // Only the workers of that account wait for it.
        let of = limit
            .account
            .as_ref()
            .map(|account| format!(" of {}", cut(account, 24)))
            .unwrap_or_default();
        let role = if bad {
            StyleRole::Warning
        } else {
            StyleRole::Text
        };
        // The wait of the run already shows the time until the reset.
        let is_shown = state
            .limits
            .pause
            .as_ref()
            .is_some_and(|pause| pause.until.is_some());
        let left = resets_in(scene, limit)
            .filter(|_| bad && !is_shown)
            .map(|left| format!(", {left} left"))
            .unwrap_or_default();
        facts.push(HeaderItem::new(
            if bad { 1 } else { 5 },
            role,
            format!(
                "{} limit{of}{used}{}{left}",
                cut(&name, 16),
                cut(&status, 16)
            ),
        ));
    }
    let lost = state.loss_counts;
    let lost_lines = [
        (lost.malformed, "malformed"),
        (lost.corrupt_entries, "torn"),
        (lost.unknown, "unknown"),
        (lost.unknown_notes, "unknown notes"),
    ];
    let lost_lines: Vec<_> = lost_lines
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{} {word}", count(*number)))
        .collect();
    if !lost_lines.is_empty() {
        let bad = lost.malformed + lost.corrupt_entries > 0;
        facts.push(HeaderItem::new(
            if bad { 2 } else { 4 },
            if bad {
                StyleRole::Warning
            } else {
                StyleRole::Dim
            },
            format!("lines: {}", lost_lines.join(", ")),
        ));
    }
    facts
}
