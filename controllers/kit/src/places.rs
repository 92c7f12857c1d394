//! Places for connections. A connection is first arriving (in the TLS handshake), then a stranger or known; each of the three
//! classes has its own places, so that strangers never take those of known peers, and unfinished handshakes take
//! none of either. When places run out, a connection without a request is closed first, of the address with the most: the
//! client with many connections loses its own. The table is pure; [`Door`] puts a lock around it and wakes that connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// How many connections a listener has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// In their TLS handshake. Not used by listeners without TLS.
    pub arriving: usize,
    pub strangers: usize,
    /// Of strangers, from one address. At most `strangers`.
    pub per_address: usize,
    pub known: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing yet: it is in the TLS handshake.
    Arriving,
    /// It showed no certificate that this listener accepts as known.
    Stranger,
    /// It showed one.
    Known,
}

/// All places of a class are taken by connections with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all places for connections are taken")]
pub struct Full;

#[derive(Debug)]
struct Entry {
    class: Class,
    address: IpAddr,
    /// Requests that are being answered.
    requests: usize,
}

/// The open connections. Numbers grow: the smallest came first.
#[derive(Debug)]
struct Table {
    places: Places,
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

impl Table {
    fn new(places: Places) -> Self {
        Self { places, next: 0, entries: BTreeMap::new() }
    }

    /// Takes a place. Returns its number, and that of the connection that is closed for it.
    fn enter(&mut self, address: IpAddr, class: Class) -> Result<(u64, Option<u64>), Full> {
        let closed = self.make_room(address, class)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.entries.insert(number, Entry { class, address, requests: 0 });
        Ok((number, closed))
    }

    /// Moves a connection to another class. Returns the number of the connection that is closed for it.
    fn turn(&mut self, number: u64, class: Class) -> Result<Option<u64>, Full> {
        // It was closed for another one meanwhile.
        let entry = self.entries.remove(&number).ok_or(Full)?;
        let closed = self.make_room(entry.address, class)?;
        self.entries.insert(number, Entry { class, ..entry });
        Ok(closed)
    }

    fn make_room(&mut self, address: IpAddr, class: Class) -> Result<Option<u64>, Full> {
        let (mut all, mut crowds) = (0, HashMap::<IpAddr, usize>::new());
        for entry in self.entries.values().filter(|entry| entry.class == class) {
            all += 1;
            *crowds.entry(entry.address).or_default() += 1;
        }
        let own = crowds.get(&address).copied().unwrap_or(0);
        let (most, only) = match class {
            Class::Arriving => (self.places.arriving, None),
            Class::Known => (self.places.known, None),
            Class::Stranger if own >= self.places.per_address => (0, Some(address)),
            Class::Stranger => (self.places.strangers, None),
        };
        if all < most {
            return Ok(None);
        }
        let crowd = |entry: &Entry| crowds.get(&entry.address).copied().unwrap_or(0);
        let idle = self.entries.iter().filter(|(_, entry)| {
            entry.class == class && entry.requests == 0 && only.is_none_or(|only| entry.address == only)
        });
        // Of equals the one that came first.
        let victim = idle.max_by_key(|(number, entry)| (crowd(entry), std::cmp::Reverse(**number)));
        let victim = victim.map(|(number, _)| *number).ok_or(Full)?;
        self.entries.remove(&victim);
        Ok(Some(victim))
    }
}

#[derive(Debug)]
struct Inner {
    table: Table,
    wake: HashMap<u64, Arc<Notify>>,
}

impl Inner {
    fn close(&mut self, number: Option<u64>) {
        if let Some(gone) = number.and_then(|number| self.wake.remove(&number)) {
            gone.notify_one();
        }
    }
}

/// The places of one listener, or of several that share them.
#[derive(Debug)]
pub struct Door(Mutex<Inner>);

impl Door {
    /// All places are free.
    #[must_use]
    pub fn new(places: Places) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner { table: Table::new(places), wake: HashMap::new() })))
    }

    /// A place for a connection that was accepted from this address.
    ///
    /// # Errors
    /// If there is none, and no connection without a request could be closed for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr, class: Class) -> Result<Seat, Full> {
        self.with(|inner| {
            let (number, closed) = inner.table.enter(address, class)?;
            let gone = Arc::new(Notify::new());
            inner.wake.insert(number, Arc::clone(&gone));
            inner.close(closed);
            Ok(Seat { door: Arc::clone(self), number, gone })
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The place of one connection; free again when dropped.
#[derive(Debug)]
pub struct Seat {
    door: Arc<Door>,
    number: u64,
    gone: Arc<Notify>,
}

impl Seat {
    /// Sets the class, once it is determined.
    ///
    /// # Errors
    /// If there is no place of that class, or this one was given away: the connection has to be closed.
    pub fn turn(&self, class: Class) -> Result<(), Full> {
        self.door.with(|inner| {
            let closed = inner.table.turn(self.number, class)?;
            inner.close(closed);
            Ok(())
        })
    }

    /// Ends when the place was given to another connection: this one has to be closed. For one waiter.
    pub async fn given_away(&self) {
        self.gone.notified().await;
    }

    /// The connection has a request until the result is dropped, and is not closed for others.
    #[must_use]
    pub fn request(self: &Arc<Self>) -> Busy {
        self.count(|requests| requests.saturating_add(1));
        Busy(Arc::clone(self))
    }

    fn count(&self, change: impl FnOnce(usize) -> usize) {
        self.door.with(|inner| {
            if let Some(entry) = inner.table.entries.get_mut(&self.number) {
                entry.requests = change(entry.requests);
            }
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.door.with(|inner| {
            inner.table.entries.remove(&self.number);
            inner.wake.remove(&self.number);
        });
    }
}

/// A request of a connection.
#[derive(Debug)]
pub struct Busy(Arc<Seat>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.count(|requests| requests.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests;
