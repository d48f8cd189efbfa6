//! Carries messages through a stream of JetStream, once and in order, from one sender to one receiver.
//!
//! A sender publishes one piece after the other and waits until the server has stored each. So a stream has no gap, and
//! what was published twice because a confirmation was lost has the same number. A message that exceeds the limit of the
//! server travels in pieces. The module must not know what the messages mean.

use std::{collections::HashSet, time::Duration};

use async_nats::jetstream;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use uuid::Uuid;

use super::super::protocol::MAX_MESSAGE_BYTES;

/// How long the server may take to store a piece.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait before a piece is published again.
const STORE_PAUSE: Duration = Duration::from_millis(500);
/// Bytes before the content of a piece: sender, number of the message, number of the piece, number of pieces.
const PIECE_HEAD: usize = 24;

/// Stores messages below one subject.
#[derive(Debug)]
pub(super) struct Outlet {
    jetstream: jetstream::Context,
    subject: String,
    sender: u64,
    next: u64,
}

impl Outlet {
    pub(super) fn new(jetstream: jetstream::Context, subject: String) -> Self {
        let (sender, _) = Uuid::new_v4().as_u64_pair();
        Self {
            jetstream,
            subject,
            sender,
            next: 0,
        }
    }

    /// Returns once the server has stored the message, however long it is away.
    pub(super) async fn store(&mut self, message: &[u8]) {
        let limit = self.jetstream.client().max_payload();
        let number = self.next;
        self.next += 1;
        for piece in pieces_of(message, (self.sender, number), limit) {
            let mut is_known = false;
            loop {
                let storing = async {
                    let stored = self
                        .jetstream
                        .publish(self.subject.clone(), piece.clone().into());
                    stored.await?.await
                };
                let problem = match timeout(STORE_TIMEOUT, storing).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                if !std::mem::replace(&mut is_known, true) {
                    tracing::debug!(subject = self.subject, problem, "a message is not stored");
                }
                tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// Splits a message into pieces that fit into `limit` bytes.
fn pieces_of(
    message: &[u8],
    (sender, number): (u64, u64),
    limit: usize,
) -> impl Iterator<Item = Vec<u8>> {
    let room = limit.saturating_sub(PIECE_HEAD).max(1);
    let count = u32::try_from(message.len().div_ceil(room)).unwrap_or(u32::MAX);
    (0_u32..)
        .zip(message.chunks(room))
        .map(move |(piece, content)| {
            let mut bytes = Vec::with_capacity(PIECE_HEAD + content.len());
            bytes.extend(sender.to_be_bytes());
            bytes.extend(number.to_be_bytes());
            bytes.extend(piece.to_be_bytes());
            bytes.extend(count.to_be_bytes());
            bytes.extend(content);
            bytes
        })
}

/// Takes each message of a sender once, in order. `A` confirms a piece.
#[derive(Debug)]
pub(super) struct Inlet<A> {
    /// The current sender, and the number of its next message.
    expected: Option<(u64, u64)>,
    /// Senders that another one has replaced.
    replaced: HashSet<u64>,
    /// The first sender may begin with any message.
    begins_anywhere: bool,
    /// Another sender may replace the first one.
    takes_successors: bool,
    next_piece: u32,
    content: Vec<u8>,
    confirmations: Vec<A>,
}

/// What an arrived piece is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PieceArrival<M, A> {
    /// It completes a message, which may be confirmed once it is handled.
    Complete {
        number: u64,
        message: M,
        confirmations: Vec<A>,
    },
    /// The message is not complete yet.
    Partial,
    /// The message with this number arrived before.
    Repeated(u64, A),
    /// A message before it is missing. The server delivers it again later.
    Early,
    /// It is part of no message, and can be confirmed.
    Garbage(A),
}

impl<A> Inlet<A> {
    pub(super) fn new() -> Self {
        Self {
            expected: None,
            replaced: HashSet::new(),
            begins_anywhere: false,
            takes_successors: false,
            next_piece: 0,
            content: Vec::new(),
            confirmations: Vec::new(),
        }
    }

    /// An inlet whose sender may be replaced by another process.
    pub(super) fn with_successors() -> Self {
        Self {
            takes_successors: true,
            ..Self::new()
        }
    }

    /// An inlet whose first messages were taken by another process.
    pub(super) fn resumed() -> Self {
        Self {
            begins_anywhere: true,
            ..Self::new()
        }
    }

    pub(super) fn add<M: DeserializeOwned>(
        &mut self,
        bytes: &[u8],
        confirmation: A,
    ) -> PieceArrival<M, A> {
        let Some((sender, number, piece, count, content)) = parse_piece(bytes) else {
            return PieceArrival::Garbage(confirmation);
        };
        match self.expected {
            Some((known, next)) if known == sender => {
                if number < next {
                    return PieceArrival::Repeated(number, confirmation);
                } else if number > next {
                    return PieceArrival::Early;
                }
            }
            _ if self.replaced.contains(&sender)
                || (self.expected.is_some() && !self.takes_successors) =>
            {
                return PieceArrival::Garbage(confirmation);
            }
            _ if number == 0 || (self.begins_anywhere && self.expected.is_none()) => {
                // The rest of a message that was taken before.
                if piece > 0 && self.expected.is_none() && self.begins_anywhere {
                    return PieceArrival::Garbage(confirmation);
                }
                self.replaced.extend(self.expected.map(|(known, _)| known));
                self.expected = Some((sender, number));
                self.forget_pieces();
            }
            _ => return PieceArrival::Early,
        }
        if piece == 0 {
            // All pieces were delivered again.
            self.forget_pieces();
        }
        if piece < self.next_piece {
            return PieceArrival::Partial;
        } else if piece > self.next_piece {
            return PieceArrival::Early;
        }
        self.confirmations.push(confirmation);
        // A message that is too large is counted and dropped.
        if self.content.len() + content.len() <= MAX_MESSAGE_BYTES {
            self.content.extend_from_slice(content);
        }
        self.next_piece += 1;
        if self.next_piece < count {
            return PieceArrival::Partial;
        }
        self.expected = Some((sender, number + 1));
        let (content, mut confirmations) = (
            std::mem::take(&mut self.content),
            std::mem::take(&mut self.confirmations),
        );
        self.next_piece = 0;
        match serde_json::from_slice(&content) {
            Ok(message) => PieceArrival::Complete {
                number,
                message,
                confirmations,
            },
            Err(error) => {
                tracing::warn!(%error, "a message from NATS is not understood");
                match confirmations.pop() {
                    Some(last) => PieceArrival::Garbage(last),
                    None => PieceArrival::Partial,
                }
            }
        }
    }

    fn forget_pieces(&mut self) {
        self.next_piece = 0;
        self.content.clear();
        self.confirmations.clear();
    }
}

fn parse_piece(bytes: &[u8]) -> Option<(u64, u64, u32, u32, &[u8])> {
    let (sender, rest) = bytes.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (piece, rest) = rest.split_first_chunk()?;
    let (count, content) = rest.split_first_chunk()?;
    Some((
        u64::from_be_bytes(*sender),
        u64::from_be_bytes(*number),
        u32::from_be_bytes(*piece),
        u32::from_be_bytes(*count),
        content,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a server does with a stored piece.
    #[derive(Clone, Copy, Debug)]
    enum PieceFate {
        Once,
        /// The sender got no confirmation and stored it again.
        Twice,
        /// The receiver did not confirm everything since this many pieces, and gets it again.
        Again(usize),
    }

    fn delivery() -> impl Strategy<Value = PieceFate> {
        prop_oneof![
            4 => Just(PieceFate::Once),
            1 => Just(PieceFate::Twice),
            1 => (1..12_usize).prop_map(PieceFate::Again),
        ]
    }

    fn stored(texts: &[String], sender: u64, limit: usize) -> Vec<Vec<u8>> {
        let messages = texts.iter().zip(0..);
        let pieces = messages.flat_map(|(text, number)| {
            let message = serde_json::to_vec(text).unwrap();
            pieces_of(&message, (sender, number), limit).collect::<Vec<_>>()
        });
        pieces.collect()
    }

    /// The numbers and the texts that an inlet takes.
    fn taken(inlet: &mut Inlet<()>, pieces: &[Vec<u8>]) -> Vec<String> {
        let messages = pieces
            .iter()
            .filter_map(|piece| match inlet.add(piece, ()) {
                PieceArrival::Complete { message, .. } => Some(message),
                _ => None,
            });
        messages.collect()
    }

    proptest! {
        #[test]
        fn every_message_is_taken_once_and_in_order(
            texts in prop::collection::vec("[a-z]{0,60}", 1..8),
            limit in 26..64_usize,
            deliveries in prop::collection::vec(delivery(), 1..60),
        ) {
            let pieces = stored(&texts, 7, limit);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= limit));
            let mut delivered = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                delivered.push(piece.clone());
                match deliveries[at % deliveries.len()] {
                    PieceFate::Once => {}
                    PieceFate::Twice => delivered.push(piece.clone()),
                    PieceFate::Again(count) => delivered.extend(pieces[at.saturating_sub(count)..=at].iter().cloned()),
                }
            }
            // What could not be used is delivered once more.
            delivered.extend(pieces.iter().cloned());
            prop_assert_eq!(taken(&mut Inlet::new(), &delivered), texts);
        }

        /// Another process goes through the rest, from a piece that the first one did not confirm.
        #[test]
        fn resumed_inlet_takes_the_rest(
            texts in prop::collection::vec("[a-z]{0,60}", 1..8), limit in 26..64_usize, first in any::<prop::sample::Index>(),
        ) {
            let pieces = stored(&texts, 7, limit);
            let rest = taken(&mut Inlet::resumed(), &pieces[first.index(pieces.len())..]);
            prop_assert!(texts.ends_with(&rest));
            prop_assert!(rest.len() + 1 >= texts.len() - taken(&mut Inlet::new(), &pieces[..first.index(pieces.len())]).len());
        }

        #[test]
        fn garbage_is_no_message(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let is_message = matches!(Inlet::new().add::<String>(&bytes, ()), PieceArrival::Complete { .. });
            prop_assert!(!is_message);
        }
    }

    #[test]
    fn new_sender_replaces_the_old_one() {
        let (old, new) = (["a", "b"].map(str::to_owned), ["c"].map(str::to_owned));
        let (old, new) = (stored(&old, 1, 64), stored(&new, 2, 64));
        let mut inlet = Inlet::with_successors();
        let pieces = [old[0].clone(), new[0].clone(), old[1].clone()];
        assert_eq!(taken(&mut inlet, &pieces), ["a", "c"]);
        assert_eq!(taken(&mut Inlet::new(), &pieces), ["a", "b"]);
    }
}
