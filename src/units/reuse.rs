//! Which units of an earlier run stand, and why the others run again. Pure; it must not know tapes or files.

use std::fmt;

use crate::tape::{
    RunId,
    note::{Content, Earlier, Reused, Work},
};

/// How a unit stood when its run ended or broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// Its last attempt succeeded.
    Succeeded,
    /// Its last attempt spent its turns or its money before the model was done. What it wrote may be in the project.
    OutOfBudget(SpentBudget),
    /// Its last attempt failed, for this reason.
    Failed(&'a str),
    /// A person stopped it.
    Stopped,
    /// An attempt was running when the record breaks off.
    Interrupted,
    /// It waited for its turn, or for another try.
    Waiting,
}

/// The budget that an attempt spent before the model was done. Turns are zero where they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpentBudget {
    /// Turns that it took.
    pub turns: u32,
    /// Turns that it was allowed.
    pub allowed: Option<u32>,
}

/// `ran out of turns (20/20)`, as the end of a sentence.
impl fmt::Display for SpentBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { turns, allowed: Some(allowed) } if turns >= allowed => {
                write!(f, "ran out of turns ({turns}/{allowed})")
            }
            Self { turns: 1.., .. } => f.write_str("spent its cost budget"),
            Self { turns: 0, .. } => f.write_str("ran out of turns or spent its cost budget"),
        }
    }
}

/// A unit of an earlier run.
#[derive(Clone, Debug, PartialEq)]
pub struct Past<'a> {
    /// The run that it was tried in last.
    pub run: RunId,
    /// How it stood.
    pub standing: Standing<'a>,
    /// Its newest attempt; 0 if there was none.
    pub attempt: u32,
    /// What it was made of then.
    pub content: Option<&'a Content>,
    /// Its patch, relative to the project, if that never got onto the branch.
    pub patch: Option<&'a str>,
    /// What it left on record.
    pub work: Option<&'a Work>,
}

/// What becomes of a unit in the run that continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Its success stands.
    Reuse(Box<Reused>),
    /// It runs, because of this.
    Run(String),
}

/// Judges a unit that is made of `now`; `None` where that cannot be told. Only a success with the same content stands.
pub fn choose(past: &Past<'_>, now: Option<&Content>) -> Choice {
    let run = past.run.short();
    match past.standing {
        Standing::Succeeded => {}
        Standing::OutOfBudget(spent) => return Choice::Run(format!("{spent} in run {run}")),
        Standing::Failed(reason) => return Choice::Run(format!("failed in run {run}: {reason}")),
        Standing::Stopped => return Choice::Run(format!("was stopped in run {run}")),
        Standing::Interrupted => return Choice::Run(format!("was cut off in run {run}")),
        Standing::Waiting => return Choice::Run(format!("had no turn in run {run}")),
    }
    match (past.content, now) {
        (None, _) => Choice::Run(format!("run {run} did not record what it was made of")),
        (Some(_), None) => Choice::Run(format!("succeeded in run {run}, but its files cannot be compared now")),
        (Some(then), Some(now)) if then.key == now.key => {
            let patch = past.patch.map(str::to_owned);
            // What is on the branch already stands in the report of then.
            let work = past.work.filter(|_| patch.is_some()).cloned().unwrap_or_default();
            Choice::Reuse(Box::new(Reused { attempt: past.attempt, budget: false, content: now.clone(), patch, work }))
        }
        (Some(then), Some(now)) => Choice::Run(format!("succeeded in run {run}, but {}", difference(then, now))),
    }
}

/// Adds what one more run did about a unit to what those before it did.
pub fn add(before: Option<&Earlier>, mut last: Earlier) -> Earlier {
    if let Some(before) = before {
        last.attempts = last.attempts.saturating_add(before.attempts);
        last.cost_usd = match (before.cost_usd, last.cost_usd) {
            (Some(before), Some(last)) => Some(before + last),
            (known, None) | (None, known) => known,
        };
    }
    last
}

/// What changed, most telling first, as the end of a sentence.
fn difference(then: &Content, now: &Content) -> String {
    let model = |content: &Content| content.model.clone().unwrap_or_else(|| "the default".into());
    let mut changed = Vec::new();
    if then.program != now.program {
        changed.push("it was recorded by another version of this program".to_owned());
    } else {
        let parts = [
            (then.raw != now.raw, "its raw files changed"),
            (then.dependencies != now.dependencies, "its dependencies changed"),
            (then.prompt != now.prompt, "its prompt or skills changed"),
            (then.tools != now.tools, "its tools changed"),
        ];
        changed.extend(parts.into_iter().filter(|(differs, _)| *differs).map(|(_, words)| words.to_owned()));
        if then.model != now.model {
            changed.push(format!("its model changed from {} to {}", model(then), model(now)));
        }
    }
    if changed.is_empty() { "it is another unit now".to_owned() } else { changed.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(key: &str) -> Content {
        Content { key: key.into(), ..Content::default() }
    }

    fn past<'a>(standing: Standing<'a>, content: Option<&'a Content>) -> Past<'a> {
        Past {
            run: RunId(uuid::Uuid::from_u128(0xa1_b2c3)),
            standing,
            attempt: 2,
            content,
            patch: Some("0001-a.patch"),
            work: None,
        }
    }

    #[test]
    fn a_success_stands_while_nothing_changes() {
        let (same, work) = (content("k"), Work { fatal_failures: Some(0), ..Work::default() });
        let past = Past { work: Some(&work), ..past(Standing::Succeeded, Some(&same)) };
        let reused = |patch: Option<&str>, work| {
            let patch = patch.map(str::to_owned);
            Choice::Reuse(Box::new(Reused { attempt: 2, budget: false, content: same.clone(), patch, work }))
        };
        assert_eq!(choose(&past, Some(&same)), reused(Some("0001-a.patch"), work.clone()));
        let saved = Past { patch: None, ..past };
        assert_eq!(choose(&saved, Some(&same)), reused(None, Work::default()), "the run of then tells of it");
    }

    #[test]
    fn everything_else_runs_and_says_why() {
        let (then, now) = (content("k"), Content { raw: "r".into(), model: Some("opus".into()), ..content("n") });
        let newer = Content { program: 9, raw: "r".into(), ..content("n") };
        let success = Standing::Succeeded;
        let spent = |turns, allowed| Standing::OutOfBudget(SpentBudget { turns, allowed });
        let cases = [
            (Standing::Failed("no luck"), Some(&then), Some(&then), "failed in run a1b2c3: no luck"),
            (spent(20, Some(20)), Some(&then), Some(&then), "ran out of turns (20/20) in run a1b2c3"),
            (spent(7, Some(20)), Some(&then), Some(&then), "spent its cost budget in run a1b2c3"),
            (spent(0, None), Some(&then), None, "ran out of turns or spent its cost budget in run a1b2c3"),
            (Standing::Stopped, Some(&then), Some(&then), "was stopped in run a1b2c3"),
            (Standing::Interrupted, Some(&then), Some(&then), "was cut off in run a1b2c3"),
            (Standing::Waiting, None, Some(&then), "had no turn in run a1b2c3"),
            (success, None, Some(&then), "run a1b2c3 did not record what it was made of"),
            (success, Some(&then), None, "succeeded in run a1b2c3, but its files cannot be compared now"),
            (
                success,
                Some(&then),
                Some(&now),
                "succeeded in run a1b2c3, but its raw files changed, its model changed from the default to opus",
            ),
            (
                success,
                Some(&then),
                Some(&newer),
                "succeeded in run a1b2c3, but it was recorded by another version of this program",
            ),
            (success, Some(&then), Some(&content("n")), "succeeded in run a1b2c3, but it is another unit now"),
        ];
        for (standing, then, now, why) in cases {
            assert_eq!(choose(&past(standing, then), now), Choice::Run(why.into()), "{standing:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_added() {
        let earlier = |attempts, cost_usd| Earlier {
            run: RunId(uuid::Uuid::from_u128(u128::from(attempts))),
            attempts,
            cost_usd,
            reused: None,
        };
        let sum = add(Some(&earlier(2, None)), earlier(3, Some(0.5)));
        assert_eq!((sum.run, sum.attempts, sum.cost_usd), (earlier(3, None).run, 5, Some(0.5)));
        assert_eq!(add(Some(&earlier(1, Some(1.0))), earlier(1, Some(0.5))).cost_usd, Some(1.5));
        assert_eq!(add(Some(&earlier(1, None)), earlier(1, None)).cost_usd, None);
        assert_eq!(add(None, earlier(1, Some(1.0))), earlier(1, Some(1.0)));
    }
}
