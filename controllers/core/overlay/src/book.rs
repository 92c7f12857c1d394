//! The allocated addresses: the pools in memory, and what is to be written to them.
//!
//! A pool is a small object, one for each slice of 256 addresses; a larger one that upstream made is read, kept and
//! emptied, and gets nothing new. A request changes the book at once and is *pending* until its pool is written; only then
//! the caller gets the address. A write that failed, or may have failed, ends with [`Book::reread`]: the pool is reset to
//! the server's object, and callers with pending requests repeat them. What another client took out of the object is put back from
//! the VMs ([`Book::rebuild`]).
//!
//! ```text
//!  acquire, release ──▶ pending ──▶ changes() ──▶ guarded write ──┬─ done ──────▶ written()
//!                          ▲                                     └─ conflict, ──▶ reread()
//!                          └──────────── ask again ◀──────────────── error
//! ```

mod cursor;
mod restore;
mod usage;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use neonvm_api::IPPool;

use crate::net::Net;
use crate::settings::Settings;
use cursor::Cursor;
pub use restore::Shared;
pub use usage::RangeUsage;
pub use write::{PoolVersion, PoolWrite};

/// An address of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub address: IpAddr,
    /// The network that determines its mask.
    pub net: Net,
    pub pool: Arc<str>,
}

/// Why a VM gets no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// All are given, or rest.
    #[error("no address is free in {ranges}: {held} are held, {resting} rest after use")]
    Exhausted {
        /// Ranges of the pool, as text.
        ranges: String,
        /// Addresses that VMs have.
        held: usize,
        /// Addresses that were given back lately.
        resting: usize,
    },
    /// The one it had is another's.
    #[error("{address} is the address of {by}")]
    Held {
        address: IpAddr,
        /// `<namespace>/<name>`.
        by: String,
    },
    /// The one it had is not ours to give.
    #[error("{address} lies outside of {ranges}")]
    Outside {
        address: IpAddr,
        /// Ranges of the pool, as text.
        ranges: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    net: Net,
    /// As last read or written; none: there is no such object yet.
    version: Option<PoolVersion>,
    /// By offset.
    held: BTreeMap<u128, Arc<str>>,
    /// Offset → second at which it was given back.
    released: BTreeMap<u128, i64>,
    /// Offsets that differ from the object.
    pending: BTreeSet<u128>,
    released_pending: bool,
}

/// The allocated addresses and their owners.
#[derive(Clone, Debug)]
pub struct Book {
    settings: Settings,
    /// Seconds an address rests before it is given again.
    rest: i64,
    pools: BTreeMap<Arc<str>, Pool>,
    /// Those that differ from their objects.
    dirty: BTreeSet<Arc<str>>,
    by_id: BTreeMap<Arc<str>, IpAddr>,
    /// Address and pool → VM. More than one entry for an address is an error made outside of this program.
    holders: BTreeMap<(IpAddr, Arc<str>), Arc<str>>,
    /// Address → second from which it may be given again.
    resting: BTreeMap<IpAddr, i64>,
    due: BTreeSet<(i64, IpAddr)>,
    cursors: Vec<Cursor>,
}

impl Book {
    /// An empty book. `rest`: seconds between giving back and giving again.
    #[must_use]
    pub fn new(settings: Settings, rest: i64) -> Self {
        let cursors = settings.ranges.iter().map(Cursor::new).collect();
        Self {
            settings,
            rest: rest.max(0),
            pools: BTreeMap::new(),
            dirty: BTreeSet::new(),
            by_id: BTreeMap::new(),
            holders: BTreeMap::new(),
            resting: BTreeMap::new(),
            due: BTreeSet::new(),
            cursors,
        }
    }

    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Addresses that VMs have, and addresses that rest.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.resting.len())
    }

    /// Takes an object in, as listed or read again: whatever was pending in it is forgotten. Objects of other networks are
    /// left alone. Whether it is ours.
    pub fn read(&mut self, object: &IPPool) -> bool {
        let Some(name) = object.metadata.name.as_deref() else { return false };
        let Ok(net) = object.spec.range.parse::<Net>() else { return false };
        if self.settings.pool_name(net) != name {
            return false;
        }
        self.forget(name);
        let held = object.spec.allocations.iter().filter_map(|(offset, allocation)| {
            let offset: u128 = offset.parse().ok()?;
            net.at(offset).map(|_| (offset, Arc::from(allocation.id.as_str())))
        });
        let held: BTreeMap<u128, Arc<str>> = held.collect();
        let released = write::released_of(object);
        let name: Arc<str> = Arc::from(name);
        for (offset, id) in &held {
            if let Some(address) = net.at(*offset) {
                self.holders.insert((address, Arc::clone(&name)), Arc::clone(id));
                self.by_id.entry(Arc::clone(id)).or_insert(address);
            }
        }
        for (offset, at) in &released {
            if let Some(address) = net.at(*offset) {
                self.rest(address, at.saturating_add(self.rest));
            }
        }
        let version = PoolVersion::from_object(object);
        let pool = Pool { net, version, held, released, pending: BTreeSet::new(), released_pending: false };
        self.pools.insert(name, pool);
        true
    }

    /// As [`Book::read`]; without an object there is none of that name.
    pub fn reread(&mut self, name: &str, object: Option<&IPPool>) {
        self.forget(name);
        if let Some(object) = object {
            self.read(object);
        }
    }

    /// The address of a VM: the one it has, or `wanted` if that is free, or the lowest free one. Pending until the
    /// pool is written.
    ///
    /// # Errors
    /// If there is none for it.
    pub fn acquire(&mut self, now: i64, id: &str, wanted: Option<IpAddr>) -> Result<Lease, Refusal> {
        self.wake(now);
        let has = self.by_id.get(id).copied();
        let address = match (has, wanted) {
            (Some(address), None) => return Ok(self.lease(address, id)),
            (Some(address), Some(wanted)) if wanted == address => return Ok(self.lease(address, id)),
            (_, Some(wanted)) => self.check(id, wanted)?,
            (None, None) => self.choose().ok_or_else(|| self.exhausted())?,
        };
        if self.holder(address) != Some(id) {
            self.hold(address, id);
        }
        if let Some(old) = has {
            // The address in the status counts; the other one was allocated by mistake.
            self.give_back(now, old, id);
        }
        self.by_id.insert(Arc::from(id), address);
        Ok(self.lease(address, id))
    }

    /// Gives back what a VM has. The pools to write; empty if it has nothing.
    pub fn release(&mut self, now: i64, id: &str) -> Vec<Arc<str>> {
        self.wake(now);
        let Some(address) = self.by_id.get(id).copied() else { return Vec::new() };
        let pools = self.give_back(now, address, id);
        self.by_id.remove(id);
        // There may be another that was given by a mistake; the sweep finds it.
        pools
    }

    /// The address of a VM, if nothing about it is pending.
    #[must_use]
    pub fn held(&self, id: &str) -> Option<Lease> {
        let address = *self.by_id.get(id)?;
        let lease = self.lease(address, id);
        let pool = self.pools.get(&lease.pool)?;
        let offset = pool.net.offset(address)?;
        (!pool.pending.contains(&offset)).then_some(lease)
    }

    /// Releases addresses without a VM: `alive` are all VMs, with the addresses in their status. A VM keeps one address:
    /// that of its status, if it holds it. Returns the number of released addresses.
    pub fn sweep(&mut self, now: i64, alive: &BTreeMap<String, Option<IpAddr>>) -> usize {
        self.wake(now);
        let keeps = |address: IpAddr, id: &str| match alive.get(id) {
            None => false,
            Some(reported) => {
                let known = self.by_id.get(id).copied();
                let reported = reported.filter(|address| self.holder(*address) == Some(id));
                reported.or(known) == Some(address)
            }
        };
        let gone: Vec<(IpAddr, Arc<str>)> = self
            .holders
            .iter()
            .filter(|((address, _), id)| !keeps(*address, id))
            .map(|((address, _), id)| (*address, Arc::clone(id)))
            .collect();
        for (address, id) in &gone {
            self.give_back(now, *address, id);
            if self.by_id.get(id) == Some(address) {
                self.by_id.remove(id);
            }
        }
        for (id, reported) in alive {
            if let Some(address) = reported.filter(|address| self.holder(*address) == Some(id.as_str())) {
                self.by_id.insert(Arc::from(id.as_str()), address);
            }
        }
        gone.len()
    }

    /// All VMs that have an address; more than once if they have several.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.holders.values().map(AsRef::as_ref)
    }

    /// The version of a pool that the book knows; none if there is no such object.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&PoolVersion> {
        self.pools.get(name)?.version.as_ref()
    }

    /// The pools that have an object.
    pub fn stored(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().filter(|(_, pool)| pool.version.is_some()).map(|(name, _)| name.as_ref())
    }

    /// The VM that has an address.
    #[must_use]
    pub fn holder(&self, address: IpAddr) -> Option<&str> {
        let first = (address, Arc::from(""));
        let (_, id) = self.holders.range(first..).next().filter(|((held, _), _)| *held == address)?;
        Some(id)
    }

    fn ranges(&self) -> String {
        let texts: Vec<String> = self.settings.ranges.iter().map(ToString::to_string).collect();
        texts.join(", ")
    }

    fn exhausted(&self) -> Refusal {
        let (held, resting) = self.counts();
        Refusal::Exhausted { ranges: self.ranges(), held, resting }
    }

    fn lease(&self, address: IpAddr, id: &str) -> Lease {
        let first = (address, Arc::from(""));
        let of_address = self.holders.range(first..).take_while(|((held, _), _)| *held == address);
        let own =
            of_address.filter(|(_, holder)| holder.as_ref() == id).map(|((_, pool), _)| Arc::clone(pool));
        let pool = own.last().unwrap_or_else(|| Arc::from(""));
        let range = self.settings.range_of(address).map(crate::Range::net);
        // Outside of today's ranges the pool itself is the best guess.
        let net = range.or_else(|| self.pools.get(&pool).map(|pool| pool.net));
        Lease { address, net: net.unwrap_or_else(|| Net::new(address, u8::MAX)), pool }
    }

    /// Checks whether a VM may keep the address in its status.
    fn check(&self, id: &str, wanted: IpAddr) -> Result<IpAddr, Refusal> {
        match self.holder(wanted) {
            Some(by) if by == id => Ok(wanted),
            Some(by) => Err(Refusal::Held { address: wanted, by: by.to_owned() }),
            // It may be in quarantine: then this VM had it, or no other VM has got it since.
            None if self.settings.range_of(wanted).is_some() => Ok(wanted),
            None => Err(Refusal::Outside { address: wanted, ranges: self.ranges() }),
        }
    }

    fn choose(&mut self) -> Option<IpAddr> {
        let (settings, holders, resting) = (&self.settings, &self.holders, &self.resting);
        let taken = |address: IpAddr| {
            let first = (address, Arc::from(""));
            resting.contains_key(&address)
                || holders.range(first..).next().is_some_and(|((held, _), _)| *held == address)
        };
        let mut cursors = settings.ranges.iter().zip(&mut self.cursors);
        cursors.find_map(|(range, cursor)| cursor.lowest(range, &taken))
    }

    fn hold(&mut self, address: IpAddr, id: &str) {
        let Some(range) = self.settings.range_of(address) else { return };
        let net = range.slice(address);
        let name: Arc<str> = Arc::from(self.settings.pool_name(net));
        let pool = self.pools.entry(Arc::clone(&name)).or_insert_with(|| Pool {
            net,
            version: None,
            held: BTreeMap::new(),
            released: BTreeMap::new(),
            pending: BTreeSet::new(),
            released_pending: false,
        });
        let id: Arc<str> = Arc::from(id);
        if let Some(offset) = net.offset(address) {
            pool.held.insert(offset, Arc::clone(&id));
            pool.pending.insert(offset);
            pool.released_pending |= pool.released.remove(&offset).is_some();
        }
        self.dirty.insert(Arc::clone(&name));
        self.holders.insert((address, name), id);
        if let Some(due) = self.resting.remove(&address) {
            self.due.remove(&(due, address));
        }
    }

    /// The pools that are to be written for it.
    fn give_back(&mut self, now: i64, address: IpAddr, id: &str) -> Vec<Arc<str>> {
        let first = (address, Arc::from(""));
        let of_address = self.holders.range(first..).take_while(|((held, _), _)| *held == address);
        let own =
            of_address.filter(|(_, holder)| holder.as_ref() == id).map(|((_, pool), _)| Arc::clone(pool));
        let names: Vec<Arc<str>> = own.collect();
        for name in &names {
            self.holders.remove(&(address, Arc::clone(name)));
            let Some(pool) = self.pools.get_mut(name) else { continue };
            self.dirty.insert(Arc::clone(name));
            if let Some(offset) = pool.net.offset(address) {
                pool.held.remove(&offset);
                pool.pending.insert(offset);
                if self.rest > 0 {
                    pool.released.insert(offset, now);
                    pool.released_pending = true;
                }
            }
        }
        self.rest(address, now.saturating_add(self.rest));
        names
    }

    fn rest(&mut self, address: IpAddr, until: i64) {
        let until = self.resting.get(&address).map_or(until, |known| until.max(*known));
        if let Some(known) = self.resting.insert(address, until) {
            self.due.remove(&(known, address));
        }
        self.due.insert((until, address));
    }

    /// Addresses that have rested enough can be given again.
    fn wake(&mut self, now: i64) {
        while let Some((due, address)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, address));
            self.resting.remove(&address);
            self.free(address);
        }
    }

    fn free(&mut self, address: IpAddr) {
        let ranges = self.settings.ranges.iter().zip(&mut self.cursors);
        if let Some((_, cursor)) = ranges.into_iter().find(|(range, _)| range.contains(address)) {
            cursor.free(address);
        }
    }

    /// Removes a pool and its allocations. Addresses in quarantine stay there.
    fn forget(&mut self, name: &str) {
        let Some(pool) = self.pools.remove(name) else { return };
        self.dirty.remove(name);
        let addresses = pool.held.iter().filter_map(|(offset, id)| Some((pool.net.at(*offset)?, id)));
        let addresses: Vec<(IpAddr, &Arc<str>)> = addresses.collect();
        for (address, id) in addresses {
            self.holders.remove(&(address, Arc::from(name)));
            if self.by_id.get(id) == Some(&address) && self.holder(address) != Some(id.as_ref()) {
                self.by_id.remove(id);
            }
            self.free(address);
        }
    }
}
