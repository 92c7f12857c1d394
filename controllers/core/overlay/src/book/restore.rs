//! Addresses that are in use although no pool has them: after a pool was deleted or edited by another client.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use neonvm_api::IPPool;

use super::Book;

/// An address that several VMs report as theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    pub address: IpAddr,
    /// The VMs; the first one keeps it.
    pub vms: Vec<String>,
}

impl Book {
    /// As [`Book::reread`], and what the object has lost is given to its owners again: `vms` are all VMs, with the addresses in their
    /// status. An address that a VM reports, or got from this book, is never given to another. Pending until the pools are written.
    pub fn rebuild(
        &mut self,
        now: i64,
        name: &str,
        object: Option<&IPPool>,
        vms: &BTreeMap<String, Option<IpAddr>>,
    ) -> Vec<Shared> {
        let confirmed = self.by_id.keys().filter_map(|id| Some((Arc::clone(id), self.held(id)?.address)));
        let confirmed: BTreeMap<Arc<str>, IpAddr> = confirmed.collect();
        self.reread(name, object);
        let shared = self.restore(now, vms);
        for (id, address) in confirmed {
            let lost = vms.contains_key(id.as_ref()) && !self.by_id.contains_key(&id);
            if lost && self.holder(address).is_none() && self.settings.range_of(address).is_some() {
                self.hold(address, &id);
                self.by_id.insert(id, address);
            }
        }
        shared
    }

    /// Gives each VM the address in its status: `vms` are all VMs. Of several with the same address the one that the pool names
    /// keeps it, or else the first by name; they are the result. Addresses outside of the ranges are left alone.
    pub fn restore(&mut self, now: i64, vms: &BTreeMap<String, Option<IpAddr>>) -> Vec<Shared> {
        self.wake(now);
        let mut reported: BTreeMap<IpAddr, Vec<&str>> = BTreeMap::new();
        for (id, address) in vms {
            if let Some(address) = address.filter(|address| self.settings.range_of(*address).is_some()) {
                reported.entry(address).or_default().push(id);
            }
        }
        let mut shared = Vec::new();
        for (address, mut ids) in reported {
            let holder = self.holder(address).map(str::to_owned);
            if let Some(at) = ids.iter().position(|id| Some(*id) == holder.as_deref()) {
                ids.swap(0, at);
            }
            let Some(keeper) = ids.first() else { continue };
            self.give_to(now, address, keeper, holder.as_deref());
            if ids.len() > 1 {
                shared.push(Shared { address, vms: ids.into_iter().map(str::to_owned).collect() });
            }
        }
        shared
    }

    fn give_to(&mut self, now: i64, address: IpAddr, keeper: &str, holder: Option<&str>) {
        if holder != Some(keeper) {
            if let Some(wrong) = holder {
                self.give_back(now, address, wrong);
                if self.by_id.get(wrong) == Some(&address) {
                    self.by_id.remove(wrong);
                }
            }
            self.hold(address, keeper);
        }
        let before = self.by_id.insert(Arc::from(keeper), address);
        if let Some(before) =
            before.filter(|before| *before != address && self.holder(*before) == Some(keeper))
        {
            self.give_back(now, before, keeper);
        }
    }
}
