//! Room for answers. Each reading has a little; one with an answer beyond that takes one of a few larger rooms and
//! waits until there is one. So memory has a bound whatever endpoints send and however slowly, and small answers, which
//! most are, wait for no other.
//!
//! Rooms are taken from the smaller to the larger. A reading that holds the largest waits for nothing, so readings cannot
//! deadlock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Bytes that each reading has without a reservation.
pub(super) const SMALL: usize = 32 << 10;
/// Bytes of a medium room.
const MEDIUM: usize = 1 << 20;
/// Longest answer, in bytes; the limit of many scrapers. Larger ones are for endpoints that need an administrator's
/// attention.
pub(super) const LARGEST: usize = 16 << 20;
/// Bytes of a large room: what ends an answer is read as well.
const LARGE: usize = LARGEST + (64 << 10);
/// Names that are resolved at the same time, in all and for one object: each takes a thread.
const LOOKUPS: (usize, usize) = (32, 4);

/// What all objects share.
#[derive(Debug)]
pub(crate) struct Rooms {
    medium: Arc<Semaphore>,
    large: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    medium_of_one: usize,
    places_of_one: usize,
    turn: Duration,
}

/// The part of one object, for one reconcile.
#[derive(Debug)]
pub(crate) struct Share {
    pub(super) places: Semaphore,
    medium: Arc<Semaphore>,
    large: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    /// When the reconcile is over.
    pub(super) until: Instant,
}

impl Rooms {
    /// With so many bytes for medium and large rooms, half for each; with so many places and so much time for a
    /// reconcile of one object.
    pub(super) fn new(bytes: usize, places_of_one: usize, turn: Duration) -> Self {
        let medium = (bytes / 2 / MEDIUM).max(1);
        Self {
            medium: Arc::new(Semaphore::new(medium)),
            large: Arc::new(Semaphore::new((bytes / 2 / LARGEST).max(1))),
            lookups: Arc::new(Semaphore::new(LOOKUPS.0)),
            medium_of_one: (medium / 4).max(1),
            places_of_one: places_of_one.max(1),
            turn,
        }
    }

    /// What one object gets for a reconcile that begins now.
    pub(super) fn share(&self) -> Share {
        Share {
            places: Semaphore::new(self.places_of_one),
            medium: Arc::new(Semaphore::new(self.medium_of_one)),
            large: Arc::new(Semaphore::new(1)),
            lookups: Arc::new(Semaphore::new(LOOKUPS.1)),
            until: Instant::now() + self.turn,
        }
    }

    /// A permit to resolve a name; the thread that resolves it holds it to its end, because it cannot be stopped.
    pub(super) async fn lookup(&self, share: &Share) -> Option<[OwnedSemaphorePermit; 2]> {
        Some([acquire(&share.lookups).await?, acquire(&self.lookups).await?])
    }
}

async fn acquire(from: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(from).acquire_owned().await.ok()
}

/// The room of one reading, for as long as its answer is kept.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    rooms: &'a Rooms,
    share: &'a Share,
    bytes: usize,
    taken: Vec<OwnedSemaphorePermit>,
    /// Since when it waits for a larger one.
    waits: Option<Instant>,
    /// How long it waited for the last one that it got, and how many bytes it had meanwhile.
    waited: (Duration, usize),
}

impl<'a> Room<'a> {
    pub(super) fn small(rooms: &'a Rooms, share: &'a Share) -> Self {
        Self { rooms, share, bytes: SMALL, taken: Vec::new(), waits: None, waited: (Duration::ZERO, SMALL) }
    }

    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes the reading had when it waited for room for at least so long, not for its endpoint.
    pub(super) fn held_up(&self, least: Duration) -> Option<usize> {
        let now = self.waits.map(|since| (since.elapsed(), self.bytes));
        now.into_iter().chain([self.waited]).find_map(|(time, bytes)| (time >= least).then_some(bytes))
    }

    /// Takes the next larger one; `false`: there is none.
    pub(super) async fn grow(&mut self) -> bool {
        let (own, all, bytes) = match self.bytes {
            SMALL => (&self.share.medium, &self.rooms.medium, MEDIUM),
            MEDIUM => (&self.share.large, &self.rooms.large, LARGE),
            _ => return false,
        };
        let since = Instant::now();
        self.waits = Some(since);
        // First the object's own room: a reading that waits for that holds up no other object.
        let (Some(own), Some(all)) = (acquire(own).await, acquire(all).await) else { return false };
        self.waits = None;
        self.waited = (since.elapsed(), self.bytes);
        self.taken.extend([own, all]);
        self.bytes = bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    const MIB: usize = 1 << 20;

    fn rooms(bytes: usize) -> Rooms {
        Rooms::new(bytes, 8, Duration::from_secs(1))
    }

    /// As large as it gets without waiting.
    async fn grown<'a>(rooms: &'a Rooms, share: &'a Share) -> Room<'a> {
        let mut room = Room::small(rooms, share);
        while let Poll::Ready(true) = poll!(std::pin::pin!(room.grow())) {}
        room
    }

    #[tokio::test]
    async fn all_rooms_together_have_a_bound() {
        let rooms = rooms(64 * MIB);
        let shares: Vec<Share> = (0..100).map(|_| rooms.share()).collect();
        let mut held = Vec::new();
        for share in &shares {
            for _ in 0..8 {
                held.push(grown(&rooms, share).await);
            }
        }
        let beyond: usize = held.iter().map(Room::bytes).filter(|bytes| *bytes > SMALL).sum();
        assert!((48 * MIB..=65 * MIB).contains(&beyond), "{beyond}");
    }

    #[tokio::test]
    async fn one_object_leaves_room_for_others() {
        let rooms = rooms(64 * MIB);
        let (greedy, other) = (rooms.share(), rooms.share());
        let mut held = Vec::new();
        for _ in 0..32 {
            held.push(grown(&rooms, &greedy).await);
        }
        let count = |bytes| held.iter().filter(|room| room.bytes() == bytes).count();
        assert_eq!((count(LARGE), count(MEDIUM)), (1, 7));
        assert_eq!(grown(&rooms, &other).await.bytes(), LARGE);
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_another_is_done() {
        let rooms = rooms(2 * MIB);
        let share = rooms.share();
        let first = grown(&rooms, &share).await;
        let mut second = Room::small(&rooms, &share);
        {
            let mut growing = std::pin::pin!(second.grow());
            assert!(poll!(&mut growing).is_pending());
            drop(first);
            assert!(growing.await);
        }
        assert!(second.waits.is_none() && second.bytes() == MEDIUM);
        assert!(second.grow().await && second.bytes() == LARGE);
        assert!(!second.grow().await);
    }
}
