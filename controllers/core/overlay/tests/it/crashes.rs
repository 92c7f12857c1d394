//! Controllers that crash between any two writes, work at the same time on stale state, and meet conflicts: no address
//! ever has two VMs, and a VM with an address in its status keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use neonvm_core_overlay::{Book, Settings};
use proptest::prelude::*;

use crate::server::Server;

/// What happens next. Numbers pick a controller and a VM.
#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    /// The VM is gone, and no controller gets a notification.
    Vanish(u8),
    Acquire {
        controller: u8,
        machine: u8,
    },
    Delete {
        controller: u8,
        machine: u8,
    },
    /// Writes one of the pools that are pending; the answer may be lost.
    Write {
        controller: u8,
        lost: bool,
    },
    Crash(u8),
    Sweep(u8),
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (c, m) = (0_u8..2, 0_u8..12);
    let one = prop_oneof![
        2 => m.clone().prop_map(Step::Create),
        1 => m.clone().prop_map(Step::Vanish),
        4 => (c.clone(), m.clone()).prop_map(|(controller, machine)| Step::Acquire { controller, machine }),
        2 => (c.clone(), m).prop_map(|(controller, machine)| Step::Delete { controller, machine }),
        6 => (c.clone(), prop::bool::weighted(0.2)).prop_map(|(controller, lost)| Step::Write { controller, lost }),
        1 => c.clone().prop_map(Step::Crash),
        1 => c.prop_map(Step::Sweep),
        1 => (0_u8..80).prop_map(Step::Pass),
    ];
    prop::collection::vec(one, 0..200)
}

const REST: i64 = 60;

struct World {
    settings: Settings,
    server: Server,
    /// The book of each controller.
    controllers: Vec<Book>,
    now: i64,
    /// Machines and the addresses in their status. A controller reads the status before it writes it.
    machines: BTreeMap<String, Option<IpAddr>>,
    /// Those that are being deleted: nothing of them runs any more.
    doomed: BTreeSet<String>,
}

impl World {
    fn new(settings: Settings) -> Self {
        let controllers = vec![Book::new(settings.clone(), REST); 2];
        let (machines, doomed) = (BTreeMap::new(), BTreeSet::new());
        Self { settings, server: Server::default(), controllers, now: 0, machines, doomed }
    }

    fn remove(&mut self, id: &str) {
        self.machines.remove(id);
        self.doomed.remove(id);
    }

    fn restart(&mut self, controller: usize) {
        let mut book = Book::new(self.settings.clone(), REST);
        self.server.load(&mut book);
        self.controllers[controller] = book;
    }

    /// What a controller does when an address is on record: the status, if it is still empty.
    fn write_statuses(&mut self, controller: usize) {
        for (id, address) in &mut self.machines {
            if address.is_none()
                && !self.doomed.contains(id)
                && let Some(lease) = self.controllers[controller].held(id)
                // The write of the status goes to a server that checks its version; the book may be old, its pool then
                // was not.
                && self.server.given().contains(&(lease.address, id.clone()))
            {
                *address = Some(lease.address);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let name = |machine: u8| format!("ns/{machine}");
        match *step {
            Step::Create(machine) => {
                self.machines.entry(name(machine)).or_insert(None);
            }
            Step::Vanish(machine) => {
                self.remove(&name(machine));
            }
            Step::Acquire { controller, machine } => {
                if let Some(address) =
                    self.machines.get(&name(machine)).filter(|_| !self.doomed.contains(&name(machine)))
                {
                    let _ =
                        self.controllers[usize::from(controller)].acquire(self.now, &name(machine), *address);
                }
            }
            Step::Delete { controller, machine } => {
                if !self.machines.contains_key(&name(machine)) {
                    return;
                }
                self.doomed.insert(name(machine));
                let book = &mut self.controllers[usize::from(controller)];
                book.release(self.now, &name(machine));
                // The finalizer goes only once that is written.
                if self.server.flush(book, self.now) {
                    self.remove(&name(machine));
                }
            }
            Step::Write { controller, lost } => self.write(usize::from(controller), lost),
            Step::Crash(controller) => self.restart(usize::from(controller)),
            Step::Sweep(controller) => {
                self.restart(usize::from(controller));
                let book = &mut self.controllers[usize::from(controller)];
                book.sweep(self.now, &self.machines);
                self.server.flush(book, self.now);
            }
            Step::Pass(seconds) => self.now += i64::from(seconds),
        }
    }

    fn write(&mut self, controller: usize, lost: bool) {
        let book = &mut self.controllers[controller];
        let Some(name) = book.pending().next().cloned() else { return };
        let write = book.write_of(&name, self.now).unwrap();
        match self.server.write(&write) {
            Some(version) if !lost => book.written(&name, self.now, version),
            // Refused, or the outcome is unknown: read the object again.
            _ => book.reread(&name, self.server.get(&name).as_ref()),
        }
        self.write_statuses(controller);
    }

    fn check(&mut self) {
        let given = self.server.given();
        let unique: BTreeSet<IpAddr> = given.iter().map(|(address, _)| *address).collect();
        assert_eq!(unique.len(), given.len(), "an address was given twice: {given:?}");
        let living = self.machines.iter().filter(|(id, _)| !self.doomed.contains(*id));
        let addresses: Vec<IpAddr> = living.filter_map(|(_, address)| *address).collect();
        let unique: BTreeSet<IpAddr> = addresses.iter().copied().collect();
        assert_eq!(unique.len(), addresses.len(), "two VMs have one address: {:?}", self.machines);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Six addresses for twelve machines.
    #[test]
    fn no_address_is_given_twice(steps in steps()) {
        let ranges = r#"{"ipRanges": [{"range": "10.1.0.0/30"}, {"range": "10.2.0.0/29", "range_end": "10.2.0.4"}]}"#;
        let mut world = World::new(Settings::parse(ranges).unwrap());
        for step in &steps {
            world.step(step);
            world.check();
        }
        // In the end one controller converges: every VM holds the address of its status, and nothing is leaked.
        let doomed: Vec<String> = world.doomed.iter().cloned().collect();
        doomed.iter().for_each(|id| world.remove(id));
        world.step(&Step::Sweep(0));
        world.step(&Step::Pass(79));
        let ids: Vec<(String, Option<IpAddr>)> = world.machines.clone().into_iter().collect();
        for (id, address) in ids {
            if world.controllers[0].acquire(world.now, &id, address).is_ok() {
                prop_assert!(world.server.flush(&mut world.controllers[0], world.now));
                world.write_statuses(0);
            }
        }
        world.check();
        let given: BTreeMap<String, IpAddr> =
            world.server.given().into_iter().map(|(address, id)| (id, address)).collect();
        for (id, address) in &given {
            prop_assert_eq!(world.machines.get(id), Some(&Some(*address)));
        }
        let want = world.machines.len().min(6);
        prop_assert!(given.len() >= want, "{:?} of {:?}", given, world.machines);
    }

    /// What rests is not given, whatever dies meanwhile.
    #[test]
    fn quarantine_is_kept(crash in any::<bool>(), wait in 0_i64..120) {
        let mut world = World::new(Settings::parse(r#"{"range": "10.1.0.5/32"}"#).unwrap());
        world.step(&Step::Create(0));
        world.step(&Step::Acquire { controller: 0, machine: 0 });
        world.step(&Step::Write { controller: 0, lost: false });
        world.step(&Step::Delete { controller: 0, machine: 0 });
        if crash {
            world.restart(0);
        }
        let given = world.controllers[0].acquire(wait, "ns/1", None).is_ok();
        prop_assert_eq!(given, wait >= REST);
    }
}
