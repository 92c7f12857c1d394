//! Pools that others delete and edit while the controller works: a VM keeps its address, and no other VM gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use neonvm_core_overlay::{Book, Settings};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use crate::server::Server;

const RANGE: &str =
    r#"{"network_name": "n", "ipRanges": [{"range": "10.1.0.0/29"}, {"range": "10.2.0.0/29"}]}"#;

#[derive(Clone, Debug)]
enum Step {
    /// A VM wants an address; it is written and, unless the controller is late, reported in the VM's status.
    Acquire {
        vm: u8,
        late: bool,
    },
    Gone(u8),
    DeletePool(Index),
    DropEntry(Index),
    /// An entry names another VM.
    Reassign(Index, u8),
    /// The controller sees all pools as they are.
    Notice,
    Restart,
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let vm = 0_u8..9;
    let one = prop_oneof![
        6 => (vm.clone(), prop::bool::weighted(0.2)).prop_map(|(vm, late)| Step::Acquire { vm, late }),
        1 => vm.clone().prop_map(Step::Gone),
        1 => any::<Index>().prop_map(Step::DeletePool),
        1 => any::<Index>().prop_map(Step::DropEntry),
        1 => (any::<Index>(), vm).prop_map(|(entry, vm)| Step::Reassign(entry, vm)),
        2 => Just(Step::Notice),
        1 => Just(Step::Restart),
        1 => (0_u8..90).prop_map(Step::Pass),
    ];
    prop::collection::vec(one, 0..120)
}

struct World {
    server: Server,
    book: Book,
    now: i64,
    vms: BTreeMap<String, Option<IpAddr>>,
}

fn book() -> Book {
    Book::new(Settings::parse(RANGE).unwrap(), 60)
}

impl World {
    fn new() -> Self {
        Self { server: Server::default(), book: book(), now: 0, vms: BTreeMap::new() }
    }

    fn restart(&mut self) {
        self.book = book();
        self.server.load(&mut self.book);
        self.book.sweep(self.now, &self.vms);
        self.book.restore(self.now, &self.vms);
        // A VM whose address is in no status and in no pool any more has none.
        self.write();
    }

    fn rebuild(&mut self, name: &str) {
        let object = self.server.get(name);
        if object.as_ref().and_then(neonvm_core_overlay::PoolVersion::from_object).as_ref()
            != self.book.version(name)
        {
            self.book.rebuild(self.now, name, object.as_ref(), &self.vms);
        }
    }

    fn write(&mut self) {
        for _ in 0..4 {
            for name in self.book.pending().cloned().collect::<Vec<_>>() {
                let Some(write) = self.book.write_of(&name, self.now) else { continue };
                match self.server.write(&write) {
                    Some(version) => self.book.written(&name, self.now, version),
                    None => {
                        let object = self.server.get(&name);
                        self.book.rebuild(self.now, &name, object.as_ref(), &self.vms);
                    }
                }
            }
        }
        assert_eq!(self.book.pending().count(), 0, "nothing is written without end");
    }

    /// The pools by name with those of their entries.
    fn entries(&self) -> Vec<(String, String)> {
        let of = |(name, pool): (&String, &serde_json::Value)| {
            let entries = pool["spec"]["allocations"].as_object().unwrap();
            entries.keys().map(|offset| (name.clone(), offset.clone())).collect::<Vec<_>>()
        };
        self.server.pools.iter().flat_map(of).collect()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Acquire { vm, late } => {
                let id = format!("ns/vm-{vm}");
                let reported = *self.vms.entry(id.clone()).or_default();
                if self.book.acquire(self.now, &id, reported).is_ok() {
                    self.write();
                }
                let held = self.book.held(&id).map(|lease| lease.address);
                assert!(reported.is_none() || held == reported, "{id} had {reported:?} and has {held:?}");
                if !late {
                    self.vms.insert(id, reported.or(held));
                }
            }
            Step::Gone(vm) => {
                let id = format!("ns/vm-{vm}");
                self.vms.remove(&id);
                self.book.release(self.now, &id);
                self.write();
            }
            Step::DeletePool(which) => {
                let names: Vec<String> = self.server.pools.keys().cloned().collect();
                if !names.is_empty() {
                    self.server.pools.remove(which.get(&names));
                }
            }
            Step::DropEntry(which) => self.edit(which, None),
            Step::Reassign(which, vm) => self.edit(which, Some(format!("ns/vm-{vm}"))),
            Step::Notice => self.notice(),
            Step::Restart => self.restart(),
            Step::Pass(seconds) => self.now += i64::from(*seconds),
        }
    }

    fn edit(&mut self, which: &Index, to: Option<String>) {
        let entries = self.entries();
        if entries.is_empty() {
            return;
        }
        let (name, offset) = which.get(&entries);
        let change = to.map_or(serde_json::Value::Null, |id| json!({ "id": id }));
        self.server.edit(name, &json!({ "spec": { "allocations": { offset: change } } }));
    }

    fn notice(&mut self) {
        let known = ["n-10.1.0.0-29", "n-10.2.0.0-29"];
        known.iter().for_each(|name| self.rebuild(name));
        self.write();
        let given: BTreeMap<IpAddr, String> = self.server.given().into_iter().collect();
        for (id, address) in &self.vms {
            if let Some(address) = address {
                assert_eq!(given.get(address), Some(id), "{address} is not recorded as that of {id}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_address_has_two_vms_whatever_becomes_of_the_pools(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            let reported: Vec<IpAddr> = world.vms.values().flatten().copied().collect();
            let distinct: BTreeSet<IpAddr> = reported.iter().copied().collect();
            prop_assert_eq!(reported.len(), distinct.len(), "{:?}", world.vms);
        }
        world.notice();
    }
}

/// Two VMs that have one address already: the one in the pool keeps it, or else the first.
#[test]
fn an_address_of_two_vms_is_reported() {
    let address: IpAddr = "10.1.0.1".parse().unwrap();
    let vms = BTreeMap::from([("ns/a".to_owned(), Some(address)), ("ns/b".to_owned(), Some(address))]);
    let mut book = book();
    let shared = book.restore(0, &vms);
    assert_eq!(shared.len(), 1);
    assert_eq!((shared[0].address, shared[0].vms.join(" ")), (address, "ns/a ns/b".to_owned()));
    let refused = book.acquire(0, "ns/b", Some(address)).unwrap_err();
    assert_eq!(refused.to_string(), "10.1.0.1 is the address of ns/a");
    let mut server = Server::default();
    server.put("n-10.1.0.0-29", "10.1.0.0/29", &[(1, "ns/b")]);
    let mut book = self::book();
    server.load(&mut book);
    assert_eq!(book.restore(0, &vms)[0].vms.join(" "), "ns/b ns/a");
}
