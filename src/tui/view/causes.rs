//! What is left and what it will take, and failures by cause: how many units, which, and what can be done.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, dollars, pane};
use crate::run::state::UnitStatus;
use crate::{
    run::{
        causes,
        outlook::{Kind, Outlook},
    },
    tape::Millis,
    tui::{
        model::{CauseLine, Causes, is_failure},
        text,
        theme::{Role, status_role},
    },
    units::forecast::{Forecast, Range},
};

/// Rows above the failures, for a body of that height.
pub fn head(height: u16) -> u16 {
    if height >= 10 { 3 } else { 1 }
}

/// Paints the page.
pub fn draw(scene: &Scene<'_>, view: &Causes, area: Rect, buf: &mut Buffer) {
    let failed: usize = view.heaps.iter().map(|heap| heap.units.len()).sum();
    let units = view.heaps.iter().flat_map(|heap| &heap.units).filter_map(|unit| scene.story.state.units.get(*unit));
    let all_failed = units.map(|unit| unit.status).all(is_failure);
    let what = if all_failed { "failed unit" } else { "unfinished unit" };
    let title = format!(" {} of {}", counted(failed, what), counted(view.heaps.len(), "kind"));
    let place = if view.lines.is_empty() {
        String::new()
    } else {
        format!(" {}/{} ", view.list.selected + 1, view.lines.len())
    };
    let inside = pane(scene, area, true, &[(Role::Strong, "causes"), (Role::Dim, &title)], &[(Role::Dim, &place)], buf);
    let above = head(inside.height).min(inside.height);
    for (y, (role, line)) in (inside.y..inside.y + above).zip(outlook(scene)) {
        Pen::row(scene, buf, Rect { y, height: 1, ..inside }).put(role, &line);
    }
    let rows = Rect { y: inside.y + above, height: inside.height - above, ..inside };
    if view.lines.is_empty() {
        Pen::row(scene, buf, rows).put(Role::Dim, "no unit has failed");
    }
    for (y, (index, line)) in (rows.y..rows.bottom()).zip(view.lines.iter().enumerate().skip(view.list.offset)) {
        let row = Rect { y, height: 1, ..rows };
        self::line(scene, view, *line, row, buf);
        if index == view.list.selected {
            buf.set_style(row, scene.theme.style(Role::Selected));
        }
    }
}

fn line(scene: &Scene<'_>, view: &Causes, line: CauseLine, area: Rect, buf: &mut Buffer) {
    let mut pen = Pen::row(scene, buf, area);
    let Some(heap) = view.heaps.get(line.heap()) else { return };
    match line {
        CauseLine::Cause(_) => {
            let first = heap.units.first().and_then(|unit| scene.story.state.units.get(*unit));
            let status = first.map_or(UnitStatus::Failed, |unit| unit.status);
            let role = status_role(status);
            pen.cell(role, scene.theme.glyphs.status(status), 2);
            let units = counted(heap.units.len(), "unit");
            pen.put(role, &format!("{} {} {units}  ", heap.cause, scene.theme.glyphs.dot));
            // What they have in common; of a single one, what it says.
            let error = if heap.units.len() > 1 { &heap.pattern } else { &heap.example };
            pen.put(Role::Strong, &text::one_row(error, 300));
        }
        CauseLine::Remedy(_) => {
            pen.skip(2);
            pen.cell(Role::Text, scene.theme.glyphs.arrow, 2);
            pen.put(Role::Text, &text::one_row(heap.remedy.as_deref().unwrap_or_default(), 300));
        }
        CauseLine::Unit { unit, .. } => {
            let Some(unit) = scene.story.state.units.get(unit) else { return };
            pen.skip(4);
            pen.cell(status_role(unit.status), scene.theme.glyphs.unit(unit), 2);
            let width = (usize::from(area.width) * 2 / 5).min(40);
            pen.cell(Role::Text, &text::middle(&unit.key, width, scene.theme.glyphs.cut), width);
            if let Some(attempt) = unit.latest() {
                pen.cell_right(Role::Dim, &format!("try {}", attempt.number), 8);
                pen.skip(2);
            }
            // What a single unit says stands in the line of the cause.
            if heap.units.len() > 1 {
                pen.put(Role::Dim, &text::one_row(&causes::error(&scene.story.state, unit), 300));
            }
        }
    }
}

/// What is left, in lines that say the most first.
fn outlook(scene: &Scene<'_>) -> Vec<(Role, String)> {
    let outlook = scene.model.outlook();
    let forecast = &outlook.forecast;
    if forecast.units == 0 {
        let failed = scene.story.state.units.iter().any(|unit| unit.status.is_unfinished());
        let said = match (failed, scene.model.takes_orders()) {
            (false, _) => "nothing is left to do",
            (true, true) => "nothing is queued; what is not done can be retried",
            (true, false) => "nothing is queued",
        };
        return vec![(Role::Dim, said.to_owned())];
    }
    let mut first = format!(
        "{} left: cost {}, done in {}, {} at once",
        counted(forecast.units, "unit"),
        cost_words(forecast),
        time_words(outlook, scene.model.time),
        outlook.slots,
    );
    if forecast.overdue > 0 && forecast.time.is_some() {
        first.push_str(&format!(", {} overdue", forecast.overdue));
    }
    let kinds: Vec<_> = outlook
        .kinds
        .iter()
        .filter(|kind| kind.left > 0)
        .map(|kind| {
            let name = if kind.name.is_empty() { "units" } else { &kind.name };
            format!("{name}: {} left, {} finished", kind.left, kind.finished)
        })
        .collect();
    let known = !outlook.kinds.iter().any(Kind::is_unknown);
    let why = if known { "by what finished so far" } else { "not known before three of each kind have finished" };
    let without = if outlook.pass_follows { "; without reconcile" } else { "" };
    let mut lines = vec![(Role::Strong, first), (Role::Dim, format!("{} ({why}{without})", kinds.join(" · ")))];
    if let Some(purse) = Purse::of(scene) {
        let (role, sign) = match purse.verdict(scene) {
            Some((role, sign)) => (role, format!("  {sign}")),
            None => (Role::Text, String::new()),
        };
        let all = format!("{}{}", dollars(purse.high), if forecast.is_cost_whole() { "" } else { "+?" });
        lines.push((
            role,
            format!("budget: {} spent, P90 {all} of {}{sign}", dollars(Some(purse.spent)), purse.budget()),
        ));
    }
    lines
}

/// What the whole run may cost, has cost, and will cost by the forecast.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    budget: f64,
    spent: f64,
    high: Option<f64>,
}

impl Purse {
    /// The money of the run that is shown, if it has a budget.
    pub fn of(scene: &Scene<'_>) -> Option<Self> {
        let state = &scene.story.state;
        let budget = state.planned.as_ref()?.run_budget_usd?;
        let left = scene.model.outlook().forecast;
        let high = if left.units == 0 { Some(0.0) } else { left.cost.map(|cost| cost.high) };
        Some(Self { budget, spent: state.spent_usd, high: high.map(|high| state.spent_usd + high) })
    }

    /// `$1.00 budget`.
    pub fn budget(&self) -> String {
        format!("{} budget", dollars(Some(self.budget)))
    }

    /// Whether it is enough, if that is in doubt.
    pub fn verdict(&self, scene: &Scene<'_>) -> Option<(Role, String)> {
        let sign = scene.theme.glyphs.status(UnitStatus::Budget);
        let dear = |dollars: f64| dollars > self.budget;
        if self.spent >= self.budget {
            Some((Role::Failed, format!("{sign} spent")))
        } else {
            self.high.is_some_and(dear).then(|| (Role::Warning, format!("{sign} will be exceeded")))
        }
    }
}

/// `$0.40, P90 $0.90`; `+?` where some of it is not known.
fn cost_words(forecast: &Forecast) -> String {
    let more = if forecast.is_cost_whole() { "" } else { " +?" };
    match forecast.cost {
        None => "$?".to_owned(),
        Some(cost) => format!("{}, P90 {}{more}", dollars(Some(cost.likely)), dollars(Some(cost.high))),
    }
}

/// `5m 10s, P90 9m 02s`; `+?` where some of it is not known, `overdue` where all of it is.
fn time_words(outlook: &Outlook, now: Millis) -> String {
    let more = if outlook.forecast.is_time_whole() { "" } else { " +?" };
    match time_left(outlook, now) {
        None if outlook.forecast.overdue > 0 => "?, overdue".to_owned(),
        None => "?".to_owned(),
        Some(time) => format!("{}, P90 {}{more}", time.likely, time.high),
    }
}

/// The rest of the forecast time. A second at least, as something is left.
fn time_left(outlook: &Outlook, now: Millis) -> Option<Range<Millis>> {
    const SECOND: Millis = Millis(1000);
    let time = outlook.time_left(now)?;
    Some(Range { likely: time.likely.max(SECOND), high: time.high.max(SECOND) })
}

/// The line of a question about trying units again: `Forecast: $0.14–$0.17 for 7; reconcile unknown.`
pub fn forecast_words(outlook: &Outlook) -> String {
    let forecast = &outlook.forecast;
    if forecast.cost.is_none() && forecast.time.is_none() {
        return "Forecast: $?, since fewer than three units like them have finished.".to_owned();
    }
    let unknown: Vec<String> = outlook.kinds.iter().filter(|kind| kind.is_unknown()).map(kind_words).collect();
    if unknown.is_empty() && forecast.is_cost_whole() {
        return format!("Forecast: {}; {}.", cost_words(forecast), time_words(outlook, outlook.at));
    }
    let cost = forecast.cost.map_or_else(
        || "$?".to_owned(),
        |cost| {
            let cost = spread(&dollars(Some(cost.likely)), &dollars(Some(cost.high)), "–");
            format!("{cost} for {}", forecast.priced)
        },
    );
    let time = forecast.time.map_or_else(
        || "?".to_owned(),
        |time| format!("{} for {}", spread(&coarse(time.likely), &coarse(time.high), "–"), forecast.timed),
    );
    let unknown = if unknown.is_empty() { "some costs".to_owned() } else { unknown.join(", ") };
    format!("Forecast: {cost}; {time}; {unknown} unknown.")
}

/// A kind of units: the unit where there is one, else how many there are.
fn kind_words(kind: &Kind) -> String {
    match (&kind.first, kind.left) {
        (Some(unit), 1) => text::safe(unit, 40).into_owned(),
        _ => format!("{} of {}", kind.left, if kind.name.is_empty() { "an unknown kind" } else { &kind.name }),
    }
}

/// `left $0.40-0.90 in 5m-9m`, for the header; `None` when nothing is left. `+?` stands for what is not known.
pub fn brief(outlook: &Outlook, now: Millis) -> Option<String> {
    let forecast = &outlook.forecast;
    if forecast.units == 0 {
        return None;
    }
    let more = |whole| if whole { "" } else { "+?" };
    let cost = forecast.cost.map(|cost| {
        let cost = spread(&dollars(Some(cost.likely)), &dollars(Some(cost.high)), "-");
        format!("{cost}{}", more(forecast.is_cost_whole()))
    });
    let time = time_left(outlook, now).map(|time| {
        let time = spread(&coarse(time.likely), &coarse(time.high), "-");
        format!("{time}{}", more(forecast.is_time_whole()))
    });
    let late = match forecast.overdue {
        0 => None,
        late if late == forecast.units => Some("overdue".to_owned()),
        late => Some(format!("{late} overdue")),
    };
    let left = match (cost, time, &late) {
        (None, None, None) => "left ?".to_owned(),
        (None, None, Some(_)) => "left $?".to_owned(),
        (Some(cost), None, Some(_)) => format!("left {cost}"),
        (cost, time, _) => {
            format!("left {} in {}", cost.as_deref().unwrap_or("$?"), time.as_deref().unwrap_or("?"))
        }
    };
    Some([Some(left), late].into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn spread(low: &str, high: &str, dash: &str) -> String {
    if low == high { low.to_owned() } else { format!("{low}{dash}{high}") }
}

/// `40s`, `5m`, `2h 10m`: what a forecast is good for.
fn coarse(time: Millis) -> String {
    if time.0 < 60_000 || time.0 >= 3_600_000 { time.to_string() } else { format!("{}m", (time.0 + 30_000) / 60_000) }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
