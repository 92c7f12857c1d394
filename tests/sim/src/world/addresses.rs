//! Addresses on the overlay network: the real book of the controller, and the pools it is written to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use neonvm_api::IPPool;
use neonvm_api::merge_patch::merge;
use neonvm_api::overlay::hardware_address;
use neonvm_core_overlay::{Book, PoolVersion, Settings};
use serde_json::Value;

use super::World;
use super::model::{Id, Phase};
use crate::queue::{SECOND, Time};
use crate::{Bug, Fault, Invariant};

/// How long an address rests, in seconds.
const REST: i64 = 60;

/// The pools, and the controller's copy of them.
#[derive(Debug)]
pub(super) struct Addresses {
    book: Book,
    pools: BTreeMap<String, IPPool>,
    versions: u64,
    owners: BTreeMap<IpAddr, Id>,
}

fn book(bug: Option<Bug>) -> Book {
    let rest = if bug == Some(Bug::AddressGivenBackEarly) { 0 } else { REST };
    Book::new(Settings::default(), rest)
}

impl Addresses {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        Self { book: book(bug), pools: BTreeMap::new(), versions: 0, owners: BTreeMap::new() }
    }

    /// Writes what is pending; whether all was.
    fn write(&mut self, now: i64, fails: bool) -> bool {
        let names: Vec<String> = self.book.pending().map(ToString::to_string).collect();
        for name in names {
            if fails {
                let object = self.pools.get(&name).cloned();
                self.book.reread(&name, object.as_ref());
                return false;
            }
            let Some(write) = self.book.write_of(&name, now) else { continue };
            self.versions += 1;
            let number = self.versions.to_string();
            let before = self.pools.get(&name).filter(|_| !write.is_new);
            let mut value = before.and_then(|pool| serde_json::to_value(pool).ok()).unwrap_or(Value::Null);
            merge(&mut value, &write.body);
            let Ok(mut pool) = serde_json::from_value::<IPPool>(value) else { return false };
            pool.metadata = ObjectMeta {
                uid: Some(format!("pool-{name}")),
                resource_version: Some(number),
                ..pool.metadata
            };
            if let Some(version) = PoolVersion::from_object(&pool) {
                self.book.written(&name, now, version);
            }
            self.pools.insert(name, pool);
        }
        true
    }
}

fn seconds(now: Time) -> i64 {
    i64::try_from(now / SECOND).unwrap_or(0)
}

impl World {
    /// The mask of the overlay network.
    pub(super) fn mask(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(255, 255, 0, 0))
    }

    /// A VM gets its address. Whether it has one now.
    pub(super) fn take_address(&mut self, id: Id) -> bool {
        let name = format!("default/{}", self.vm_name(id));
        let (now, fails) = (seconds(self.now), self.fault(Fault::ApiError, 0.1));
        let Ok(lease) = self.addresses.book.acquire(now, &name, None) else { return false };
        if !self.addresses.write(now, fails) {
            return false;
        }
        if let Some(vm) = self.vms.get_mut(id) {
            vm.address = Some(lease.address);
        }
        self.check_address(id, lease.address);
        true
    }

    /// S5: no other VM has the address, and no VM gets a second one.
    pub(super) fn check_address(&mut self, id: Id, address: IpAddr) {
        self.check(Invariant::Address);
        let before = self.addresses.owners.insert(address, id).filter(|other| *other != id);
        let lives = before.filter(|other| {
            self.vms.get(*other).is_some_and(|vm| {
                vm.address == Some(address)
                    && (vm.phase != Phase::Gone || self.cares.contains_key(other) || self.has_pods(*other))
            })
        });
        let name = self.vm_name(id);
        if let Some(other) = lives {
            let other = self.vm_name(other);
            self.fail(Invariant::Address, format!("{name} gets {address}, the address of {other}"));
        }
    }

    /// Whether a VM has pods that may run.
    pub(super) fn has_pods(&self, id: Id) -> bool {
        let Some(vm) = self.vms.get(id) else { return false };
        let pods = [vm.pod, vm.target];
        pods.into_iter().flatten().any(|pod| self.pods.get(pod).is_some_and(|pod| pod.alive))
    }

    /// Nothing of the VM runs any more.
    pub(super) fn give_back_address(&mut self, id: Id) {
        if self.vms.get(id).is_none_or(|vm| vm.address.is_none()) {
            return;
        }
        let name = format!("default/{}", self.vm_name(id));
        let now = seconds(self.now);
        self.addresses.book.release(now, &name);
        // A write that fails is made again.
        while !self.addresses.write(now, false) {}
    }

    /// A VM is being deleted.
    pub(super) fn address_while_deleting(&mut self, id: Id) {
        if self.bug(Bug::AddressGivenBackEarly) {
            self.give_back_address(id);
        }
    }

    /// A controller that starts reads all pools.
    pub(super) fn read_pools(&mut self) {
        self.addresses.book = book(self.bug);
        if self.bug(Bug::PoolsNotRead) {
            self.addresses.pools.clear();
            return;
        }
        for pool in self.addresses.pools.values() {
            self.addresses.book.read(pool);
        }
        self.check_addresses();
    }

    /// S5: the pools match the VMs' addresses, and the hardware addresses differ.
    fn check_addresses(&mut self) {
        if self.addresses.owners.is_empty() {
            return;
        }
        self.check(Invariant::Address);
        let mut machines = BTreeMap::new();
        for id in 0..self.vms.len() {
            let Some(vm) = self.vms.get(id).filter(|vm| vm.phase != Phase::Gone) else { continue };
            let Some(address) = vm.address else { continue };
            let name = format!("default/{}", vm.name);
            let holder = self.addresses.book.holder(address);
            if holder != Some(name.as_str()) {
                let message = format!("{name} has {address}, by the pools it is {holder:?}'s");
                return self.fail(Invariant::Address, message);
            }
            let hardware = hardware_address(&super::migration::uid_of(id));
            if let Some(other) = machines.insert(hardware, id) {
                let (one, other) = (self.vm_name(id), self.vm_name(other));
                return self.fail(Invariant::Address, format!("{one} and {other} have one hardware address"));
            }
        }
    }
}
