//! Complete and ordered delivery over a transport that loses, repeats, delays and reorders messages.
//!
//! Both sides number what they send about an attempt. The sender keeps a part until the receiver has confirmed it, and
//! sends everything unconfirmed again when it hears nothing. The receiver takes each number once, in order. Pure: it
//! must not know transports, clocks or the meaning of a part.

use std::collections::VecDeque;

/// Parts that are sent and not confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Outbox<T> {
    /// Number of the first kept part.
    first: u64,
    parts: VecDeque<T>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self {
            first: 0,
            parts: VecDeque::new(),
        }
    }
}

impl<T> Outbox<T> {
    /// Keeps `part` and returns its number.
    pub(crate) fn push(&mut self, part: T) -> u64 {
        self.parts.push_back(part);
        self.first + self.parts.len() as u64 - 1
    }

    /// The receiver has the first `count` parts.
    pub(crate) fn confirm(&mut self, count: u64) {
        let known = count
            .saturating_sub(self.first)
            .min(self.parts.len() as u64);
        self.parts
            .drain(..usize::try_from(known).unwrap_or(usize::MAX));
        self.first += known;
    }

    /// The unconfirmed parts with their numbers.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.first..).zip(&self.parts)
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Takes each part once, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    received: u64,
}

/// What a received part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartArrival {
    /// It is the expected one.
    Next,
    /// It was received before.
    Repeated,
    /// Parts before it are missing; the sender sends it again.
    Early,
}

impl Inbox {
    /// Counts the part with this number if it is the next one.
    pub(crate) fn take(&mut self, number: u64) -> PartArrival {
        match number.cmp(&self.received) {
            std::cmp::Ordering::Less => PartArrival::Repeated,
            std::cmp::Ordering::Greater => PartArrival::Early,
            std::cmp::Ordering::Equal => {
                self.received += 1;
                PartArrival::Next
            }
        }
    }

    /// Number of parts that were received in order.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens next between a sender and a receiver.
    #[derive(Clone, Copy, Debug)]
    enum NetworkStep {
        Send,
        /// The message at this position arrives, whatever was sent before it.
        Deliver(usize),
        Lose(usize),
        Duplicate(usize),
        Resend,
        /// A confirmation of this many messages before the newest one arrives late.
        Confirm(usize),
    }

    fn step() -> impl Strategy<Value = NetworkStep> {
        prop_oneof![
            3 => Just(NetworkStep::Send),
            4 => any::<usize>().prop_map(NetworkStep::Deliver),
            1 => any::<usize>().prop_map(NetworkStep::Lose),
            1 => any::<usize>().prop_map(NetworkStep::Duplicate),
            1 => Just(NetworkStep::Resend),
            2 => (0..4_usize).prop_map(NetworkStep::Confirm),
        ]
    }

    /// A sender, a receiver, and the messages between them.
    #[derive(Default)]
    struct Network {
        outbox: Outbox<u64>,
        inbox: Inbox,
        sent: u64,
        in_flight: Vec<(u64, u64)>,
        received: Vec<u64>,
        confirmations: Vec<u64>,
    }

    impl Network {
        fn deliver(&mut self, (number, part): (u64, u64)) {
            if self.inbox.take(number) == PartArrival::Next {
                self.received.push(part);
            }
            self.confirmations.push(self.inbox.received());
        }

        fn apply(&mut self, step: NetworkStep) {
            let flying = self.in_flight.len();
            match step {
                NetworkStep::Send => {
                    let number = self.outbox.push(self.sent);
                    self.in_flight.push((number, self.sent));
                    self.sent += 1;
                }
                NetworkStep::Resend => {
                    self.in_flight.extend(
                        self.outbox
                            .unconfirmed()
                            .map(|(number, part)| (number, *part)),
                    );
                }
                NetworkStep::Deliver(at) if flying > 0 => {
                    let message = self.in_flight.swap_remove(at % flying);
                    self.deliver(message);
                }
                NetworkStep::Lose(at) if flying > 0 => {
                    self.in_flight.swap_remove(at % flying);
                }
                NetworkStep::Duplicate(at) if flying > 0 => {
                    self.in_flight.push(self.in_flight[at % flying])
                }
                NetworkStep::Confirm(age) => {
                    if let Some(count) = self.confirmations.iter().rev().nth(age) {
                        self.outbox.confirm(*count);
                    }
                }
                NetworkStep::Deliver(_) | NetworkStep::Lose(_) | NetworkStep::Duplicate(_) => {}
            }
        }
    }

    proptest! {
        #[test]
        fn every_part_arrives_once_and_in_order(steps in prop::collection::vec(step(), 0..200)) {
            let mut network = Network::default();
            for step in steps {
                network.apply(step);
                prop_assert!(network.received.iter().copied().eq(0..network.received.len() as u64));
                // Nothing that the receiver lacks is forgotten.
                let first = network.outbox.unconfirmed().next().map_or(network.sent, |(number, _)| number);
                prop_assert!(first <= network.inbox.received());
            }
            // Once messages arrive again, one repetition completes it.
            network.apply(NetworkStep::Resend);
            let mut rest = std::mem::take(&mut network.in_flight);
            rest.sort_unstable();
            rest.into_iter().for_each(|message| network.deliver(message));
            network.apply(NetworkStep::Confirm(0));
            prop_assert_eq!(network.received.len() as u64, network.sent);
            prop_assert!(network.outbox.is_confirmed());
        }
    }
}
