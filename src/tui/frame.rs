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

    /// Until when what changes by itself need not be looked at, because no frame would show it before.
    pub fn rests_until(&self, now: Duration) -> Option<Duration> {
        self.last.map(|last| last + self.gap * GROWTH_FRAMES).filter(|end| *end > now)
    }

    /// A frame was drawn at `now`.
    pub fn drawn(&mut self, now: Duration) {
        self.dirty = Dirty::Clean;
        self.last = Some(now);
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
    fn growth_waits_for_its_own_gap() {
        let mut limiter = Limiter::new(30);
        assert_eq!(limiter.rests_until(ms(7)), None);
        limiter.drawn(ms(7));
        assert_eq!(limiter.rests_until(ms(72)), Some(ms(73)));
        assert_eq!(limiter.rests_until(ms(73)), None);
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
