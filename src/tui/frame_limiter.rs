//! Schedules frames: none while nothing changed, immediately if the user waits for it, otherwise at a limited rate.
//!
//! Pure: times are passed as values. It must not know what is drawn.

use std::time::Duration;

/// Frames between two checks of a growing tape. Streamed text is as readable at half the frame rate, and costs half as
/// much.
const FRAMES_PER_GROWTH_POLL: u32 = 2;

/// How urgently the screen must be redrawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RedrawPriority {
    /// The screen is up to date.
    #[default]
    Clean,
    /// Something changed without input: draw when the next frame is due.
    Soon,
    /// The user waits for the change: draw immediately.
    Now,
}

/// Decides when the next frame is drawn.
#[derive(Clone, Debug)]
pub(crate) struct FrameLimiter {
    /// Shortest interval between two frames, unless the second is requested with [`RedrawPriority::Now`].
    min_interval: Duration,
    dirty: RedrawPriority,
    last: Option<Duration>,
}

impl FrameLimiter {
    /// Limits frames to `fps` per second, except those that are requested with [`RedrawPriority::Now`].
    pub(crate) fn new(fps: u32) -> Self {
        Self {
            min_interval: Duration::from_millis(1000 / u64::from(fps.max(1))),
            dirty: RedrawPriority::Clean,
            last: None,
        }
    }

    /// Requests a redraw. The highest priority since the last frame counts.
    pub(crate) fn mark(&mut self, dirty: RedrawPriority) {
        self.dirty = self.dirty.max(dirty);
    }

    /// When the next frame is due; `None` while the screen is clean.
    pub(crate) fn due(&self) -> Option<Duration> {
        match (self.dirty, self.last) {
            (RedrawPriority::Clean, _) => None,
            (RedrawPriority::Now, _) | (RedrawPriority::Soon, None) => Some(Duration::ZERO),
            (RedrawPriority::Soon, Some(last)) => Some(last + self.min_interval),
        }
    }

    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Records that a frame was drawn at `now`.
    pub(crate) fn frame_drawn(&mut self, now: Duration) {
        self.dirty = RedrawPriority::Clean;
        self.last = Some(now);
    }
}

/// Limits how often a growing tape is read: the first growth immediately, later growth after an interval. Waking up for
/// every appended line would cost more than processing all of them.
#[derive(Clone, Debug)]
pub(crate) struct GrowthLimiter {
    min_interval: Duration,
    last: Option<Duration>,
    /// The tape grew since the last check.
    is_pending: bool,
}

impl GrowthLimiter {
    /// Limits checks to one per `FRAMES_PER_GROWTH_POLL` frames at `fps` frames per second.
    pub(crate) fn new(fps: u32) -> Self {
        Self {
            min_interval: FrameLimiter::new(fps).min_interval * FRAMES_PER_GROWTH_POLL,
            last: None,
            is_pending: false,
        }
    }

    /// False while a growth is pending, since its check is already scheduled.
    pub(crate) fn accepts_growth(&self) -> bool {
        !self.is_pending
    }

    /// Records that the tape grew. Returns true if it must be read now.
    pub(crate) fn note_growth(&mut self, now: Duration) -> bool {
        self.is_pending = true;
        self.take_due(now)
    }

    /// When the next check is due; `None` until the tape grows.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.is_pending.then(|| {
            self.last
                .map_or(Duration::ZERO, |last| last + self.min_interval)
        })
    }

    /// Returns true if a check is due at `now`, and marks it as done.
    pub(crate) fn take_due(&mut self, now: Duration) -> bool {
        let due = self.due().is_some_and(|due| due <= now);
        if due {
            (self.is_pending, self.last) = (false, Some(now));
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
        let mut limiter = FrameLimiter::new(30);
        assert_eq!(limiter.due(), None);
        limiter.mark(RedrawPriority::Now);
        limiter.frame_drawn(ms(5));
        assert!(!limiter.is_due(ms(10_000)));
    }

    #[test]
    fn changes_wait_for_the_interval_and_input_does_not() {
        let mut limiter = FrameLimiter::new(30);
        limiter.mark(RedrawPriority::Soon);
        assert!(limiter.is_due(ms(0)));
        limiter.frame_drawn(ms(0));
        limiter.mark(RedrawPriority::Soon);
        assert!(!limiter.is_due(ms(32)));
        assert!(limiter.is_due(ms(33)));
        limiter.mark(RedrawPriority::Now);
        limiter.mark(RedrawPriority::Soon);
        assert!(limiter.is_due(ms(1)));
    }

    #[test]
    fn growth_is_polled_at_a_bounded_rate() {
        let mut growth = GrowthLimiter::new(30);
        assert_eq!((growth.due(), growth.accepts_growth()), (None, true));
        assert!(growth.note_growth(ms(7)), "nothing to wait for");
        assert_eq!(growth.due(), None, "no wake-up while nothing grows");
        assert!(!growth.note_growth(ms(20)));
        assert!(!growth.accepts_growth(), "one is enough");
        assert_eq!(growth.due(), Some(ms(73)));
        assert!(!growth.take_due(ms(72)) && growth.take_due(ms(73)));
        assert_eq!((growth.due(), growth.accepts_growth()), (None, true));
        assert!(growth.note_growth(ms(500)));
    }

    #[test]
    fn frame_rate_is_bounded_under_constant_change() {
        let mut limiter = FrameLimiter::new(30);
        let mut frames = 0;
        for now in 0..1000 {
            limiter.mark(RedrawPriority::Soon);
            if limiter.is_due(ms(now)) {
                limiter.frame_drawn(ms(now));
                frames += 1;
            }
        }
        assert_eq!(frames, 31);
    }
}
