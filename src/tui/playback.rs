//! Plays a tape by its recorded times. Pure: it converts between clock time and run time.

use std::time::Duration;

use ingestdeck_core::tape::Millis;

/// How the timeline advances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Playback {
    /// Show new entries immediately: live, or to the end of a recorded run.
    Follow,
    /// Play in the recorded time, multiplied by this factor.
    Speed(f64),
    /// Show one entry after the other, as fast as possible.
    Unthrottled,
    Paused,
}

/// A clock of the run with an adjustable speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Player {
    since: Duration,
    from: Millis,
    speed: f64,
}

impl Player {
    /// Starts a player whose run time is `from` at clock time `now`.
    pub(crate) fn new(now: Duration, from: Millis, speed: f64) -> Self {
        Self {
            since: now,
            from,
            speed: if speed.is_finite() && speed > 0.0 {
                speed
            } else {
                1.0
            },
        }
    }

    /// The run time at clock time `now`.
    pub(crate) fn time(&self, now: Duration) -> Millis {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is never negative"
        )]
        let passed =
            (now.saturating_sub(self.since).as_secs_f64() * self.speed * 1000.0).round() as u64;
        Millis(self.from.0.saturating_add(passed))
    }

    /// Clock time at which the run time reaches `time`. Rounded up, so that a wake-up at that time is never early.
    pub(crate) fn due(&self, time: Millis) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "times of a run are small")]
        let wait = (time.since(self.from).0 as f64 / self.speed).ceil();
        // At most one day ahead: later timers are checked again.
        self.since + Duration::from_secs_f64(wait.min(86_400_000.0) / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn player_has_reached_a_time_when_it_is_due() {
        for speed in [0.25, 0.3, 1.0, 3.7, 64.0] {
            let player = Player::new(Duration::from_micros(1_234_567), Millis(17), speed);
            for time in 0..5_000 {
                assert!(
                    player.time(player.due(Millis(time))) >= Millis(time),
                    "{time} at {speed}"
                );
            }
        }
    }

    #[test]
    fn time_passes_at_its_speed() {
        let player = Player::new(Duration::from_secs(10), Millis(5_000), 4.0);
        assert_eq!(player.time(Duration::from_secs(11)), Millis(9_000));
        assert_eq!(player.due(Millis(9_000)), Duration::from_secs(11));
        assert_eq!(player.time(Duration::from_secs(1)), Millis(5_000));
        assert_eq!(player.due(Millis(1)), Duration::from_secs(10));
        assert_eq!(Player::new(Duration::ZERO, Millis(0), f64::NAN).speed, 1.0);
    }
}
