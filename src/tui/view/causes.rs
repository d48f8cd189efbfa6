//! What is left and what it will take, and failures by cause: how many units, which, and what can be done.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Pen, Scene, dollars, pane};
use crate::run::state::UnitStatus;
use crate::{
    run::{causes, outlook::Outlook},
    tape::Millis,
    tui::{
        model::{CauseLine, Causes, is_failure},
        text,
        theme::{Role, status_role},
    },
    units::forecast::{ENOUGH, Forecast, Range},
};

/// Rows above the failures, for a body of that height.
pub fn head(height: u16) -> u16 {
    if height >= 10 { 3 } else { 1 }
}

/// Paints the page.
pub fn draw(scene: &Scene<'_>, view: &Causes, area: Rect, buf: &mut Buffer) {
    let failed: usize = view.heaps.iter().map(|heap| heap.units.len()).sum();
    let title = format!(" {} of {}", counted(failed, "failed unit"), counted(view.heaps.len(), "kind"));
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
            pen.cell(Role::Failed, scene.theme.glyphs.status(UnitStatus::Failed), 2);
            let units = counted(heap.units.len(), "unit");
            pen.put(Role::Failed, &format!("{} {} {units}  ", heap.cause, scene.theme.glyphs.dot));
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
                pen.put(Role::Dim, &text::one_row(causes::error(&scene.story.state, unit), 300));
            }
        }
    }
}

/// What is left, in lines that say the most first.
fn outlook(scene: &Scene<'_>) -> Vec<(Role, String)> {
    let outlook = scene.model.outlook();
    let forecast = &outlook.forecast;
    if forecast.units == 0 {
        let failed = scene.story.state.units.iter().any(|unit| is_failure(unit.status));
        let said = match (failed, scene.model.takes_orders()) {
            (false, _) => "nothing is left to do",
            (true, true) => "nothing is queued; what failed can be retried",
            (true, false) => "nothing is queued",
        };
        return vec![(Role::Dim, said.to_owned())];
    }
    let time = time_words(outlook.time_left(scene.model.time));
    let first = format!(
        "{} left: cost {}, done in {time}, {} at once",
        counted(forecast.units, "unit"),
        cost_words(forecast.cost),
        outlook.slots,
    );
    let kinds: Vec<_> = outlook
        .kinds
        .iter()
        .filter(|kind| kind.left > 0)
        .map(|kind| {
            let name = if kind.name.is_empty() { "units" } else { &kind.name };
            format!("{name}: {} left, {} finished", kind.left, kind.finished)
        })
        .collect();
    let known = outlook.kinds.iter().filter(|kind| kind.left > 0).all(|kind| kind.finished >= ENOUGH);
    let why = if known { "by what finished so far" } else { "not known before three of each kind have finished" };
    let without = if outlook.pass_follows { "; without reconcile" } else { "" };
    let mut lines = vec![(Role::Strong, first), (Role::Dim, format!("{} ({why}{without})", kinds.join(" · ")))];
    if let Some(purse) = Purse::of(scene) {
        let (role, sign) = match purse.verdict(scene) {
            Some((role, sign)) => (role, format!("  {sign}")),
            None => (Role::Text, String::new()),
        };
        let all = dollars(purse.high);
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

/// `$0.40, P90 $0.90`.
pub fn cost_words(cost: Option<Range<f64>>) -> String {
    match cost {
        None => "$?".to_owned(),
        Some(cost) => format!("{}, P90 {}", dollars(Some(cost.likely)), dollars(Some(cost.high))),
    }
}

/// `5m 10s, P90 9m 02s`.
pub fn time_words(time: Option<Range<Millis>>) -> String {
    match time {
        None => "?".to_owned(),
        Some(time) => format!("{}, P90 {}", time.likely, time.high),
    }
}

/// The line of a question about trying units again.
pub fn forecast_words(forecast: &Forecast) -> String {
    match (forecast.cost, forecast.time) {
        (None, None) => "Forecast: $?, since fewer than three units like them have finished.".to_owned(),
        (cost, time) => format!("Forecast: {}; {}.", cost_words(cost), time_words(time)),
    }
}

/// `left $0.40-0.90 in 5m-9m`, for the header; `None` when nothing is left.
pub fn brief(outlook: &Outlook, now: Millis) -> Option<String> {
    if outlook.forecast.units == 0 {
        return None;
    }
    let cost = match outlook.forecast.cost {
        None => "$?".to_owned(),
        Some(cost) => spread(&dollars(Some(cost.likely)), &dollars(Some(cost.high))),
    };
    let time = match outlook.time_left(now) {
        None => "?".to_owned(),
        Some(time) => spread(&coarse(time.likely), &coarse(time.high)),
    };
    Some(if cost == "$?" && time == "?" { "left ?".to_owned() } else { format!("left {cost} in {time}") })
}

fn spread(low: &str, high: &str) -> String {
    if low == high { low.to_owned() } else { format!("{low}-{high}") }
}

/// `40s`, `5m`, `2h 10m`: what a forecast is good for.
fn coarse(time: Millis) -> String {
    if time.0 < 60_000 || time.0 >= 3_600_000 { time.to_string() } else { format!("{}m", (time.0 + 30_000) / 60_000) }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
