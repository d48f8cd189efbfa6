//! When to draw: never when clean, at once after input, otherwise at most so many times a second.
//!
//! A pure helper: times come in as values. It must not know what is drawn.

use std::time::Duration;

/// Frames that pass before a live record is looked at again. Text that streams in reads as well at half the rate, and
/// costs half.
const GROWTH_FRAMES: u32 = 2;

/// Whether the screen still shows the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dirty {
    /// It does.
    #[default]
    Clean,
    /// Something changed by itself: draw when the next frame is due.
    Soon,
    /// Somebody waits for it: draw now.
    Now,
}

/// Decides when the next frame is drawn.
#[derive(Clone, Debug)]
pub struct Limiter {
    /// Shortest time between two frames that no key asked for.
    gap: Duration,
    dirty: Dirty,
    last: Option<Duration>,
}

impl Limiter {
    /// At most so many frames a second, those that a key asked for apart.
    pub fn new(fps: u32) -> Self {
        Self { gap: Duration::from_millis(1000 / u64::from(fps.max(1))), dirty: Dirty::Clean, last: None }
    }

    /// Marks the screen. The strongest mark since the last frame counts.
    pub fn mark(&mut self, dirty: Dirty) {
        self.dirty = self.dirty.max(dirty);
    }

    /// When the next frame is due; `None` while the screen is clean.
    pub fn due(&self) -> Option<Duration> {
        match (self.dirty, self.last) {
            (Dirty::Clean, _) => None,
            (Dirty::Now, _) | (Dirty::Soon, None) => Some(Duration::ZERO),
            (Dirty::Soon, Some(last)) => Some(last + self.gap),
        }
    }

    /// True when a frame is due at `now`.
    pub fn is_due(&self, now: Duration) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// A frame was drawn at `now`.
    pub fn drawn(&mut self, now: Duration) {
        self.dirty = Dirty::Clean;
        self.last = Some(now);
    }
}

/// Decides when it is looked at how a live record grew: at once, and then not again for a while. To wake up for each
/// line that comes in between would cost more than all of them do.
#[derive(Clone, Debug)]
pub struct Growth {
    rest: Duration,
    last: Option<Duration>,
    /// The record grew since then.
    waits: bool,
}

impl Growth {
    /// Looks at most every few frames, at so many frames a second.
    pub fn new(fps: u32) -> Self {
        Self { rest: Limiter::new(fps).gap * GROWTH_FRAMES, last: None, waits: false }
    }

    /// False while it is known that the record grew, and when it will be looked at.
    pub fn is_news(&self) -> bool {
        !self.waits
    }

    /// The record grew. True if it is to be looked at now.
    pub fn arrives(&mut self, now: Duration) -> bool {
        self.waits = true;
        self.is_taken(now)
    }

    /// When to look; `None` until the record grows.
    pub fn due(&self) -> Option<Duration> {
        self.waits.then(|| self.last.map_or(Duration::ZERO, |last| last + self.rest))
    }

    /// True if it is time to look, which then is done.
    pub fn is_taken(&mut self, now: Duration) -> bool {
        let due = self.due().is_some_and(|due| due <= now);
        if due {
            (self.waits, self.last) = (false, Some(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_clean_screen_is_never_drawn() {
        let mut limiter = Limiter::new(30);
        assert_eq!(limiter.due(), None);
        limiter.mark(Dirty::Now);
        limiter.drawn(ms(5));
        assert!(!limiter.is_due(ms(10_000)));
    }

    #[test]
    fn changes_wait_for_the_gap_and_input_does_not() {
        let mut limiter = Limiter::new(30);
        limiter.mark(Dirty::Soon);
        assert!(limiter.is_due(ms(0)));
        limiter.drawn(ms(0));
        limiter.mark(Dirty::Soon);
        assert!(!limiter.is_due(ms(32)));
        assert!(limiter.is_due(ms(33)));
        limiter.mark(Dirty::Now);
        limiter.mark(Dirty::Soon);
        assert!(limiter.is_due(ms(1)));
    }

    #[test]
    fn growth_is_looked_at_once_and_then_not_for_a_while() {
        let mut growth = Growth::new(30);
        assert_eq!((growth.due(), growth.is_news()), (None, true));
        assert!(growth.arrives(ms(7)), "nothing to wait for");
        assert_eq!(growth.due(), None, "nobody wakes up as long as nothing grows");
        assert!(!growth.arrives(ms(20)));
        assert!(!growth.is_news(), "one is enough");
        assert_eq!(growth.due(), Some(ms(73)));
        assert!(!growth.is_taken(ms(72)) && growth.is_taken(ms(73)));
        assert_eq!((growth.due(), growth.is_news()), (None, true));
        assert!(growth.arrives(ms(500)));
    }

    #[test]
    fn a_flood_of_changes_is_thirty_frames_a_second() {
        let mut limiter = Limiter::new(30);
        let mut frames = 0;
        for now in 0..1000 {
            limiter.mark(Dirty::Soon);
            if limiter.is_due(ms(now)) {
                limiter.drawn(ms(now));
                frames += 1;
            }
        }
        assert_eq!(frames, 31);
    }
}
