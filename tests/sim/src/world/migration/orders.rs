//! Orders of a source to its target, by one connection that breaks and is made again.

use neonvm_core_migration::{Phase, source, target};
use neonvm_types::runner_protocol::MigrationState as State;

use super::objects::Care;
use super::{Step, World};
use crate::Fault;
use crate::queue::{MILLI, Time};
use crate::world::model::Id;

/// Pause between two checks of whether the guest runs.
const LOOK: Time = 20 * MILLI;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Listen,
    Settle,
    Run,
    /// Take memory again, after the connection was lost.
    Recover,
    /// Nothing more comes.
    Stop,
}

/// The event for the source if the order cannot be sent, or is not answered.
fn failure(order: Order, why: &str) -> Option<source::Event> {
    match order {
        Order::Listen | Order::Settle => Some(source::Event::Trouble(why.to_owned())),
        Order::Run => Some(source::Event::NotHandedOver(why.to_owned())),
        Order::Recover => Some(source::Event::NotRecovered(why.to_owned())),
        Order::Stop => None,
    }
}

impl World {
    /// Whether source and target reach each other.
    pub(super) fn is_linked(&self, care: &Care, from: Id) -> bool {
        let Some(source) = care.runners.get(&from) else { return false };
        let there = source.partner.and_then(|pod| care.runners.get(&pod));
        source.alive && source.cut_until <= self.now && there.is_some_and(|there| there.alive && there.open)
    }

    /// The time that something takes between two runners.
    pub(super) fn hop(&mut self) -> Time {
        let late = if self.goes_wrong(Fault::LinkDelay, 0.1) { self.lapse(50, 4_000) } else { 0 };
        self.lapse(1, 5) + late
    }

    /// An order goes out; it must be answered within `within`.
    pub(super) fn order(&mut self, id: Id, care: &mut Care, from: Id, (order, within): (Order, Time)) {
        let hop = self.hop();
        let now = self.now;
        let Some(runner) = care.runners.get_mut(&from) else { return };
        let at = (now + hop).max(runner.orders_at);
        runner.orders_at = at;
        let tag = runner.tag;
        self.later(id, at - now, Step::Order { from, tag, order, until: now + within });
    }

    /// An order arrives, or is found not to.
    pub(super) fn order_arrives(
        &mut self,
        id: Id,
        care: &mut Care,
        from: Id,
        (tag, order, until): (u64, Order, Time),
    ) {
        if !self.is_linked(care, from) {
            if let Some(event) = failure(order, "the target is not reached") {
                let wait = until.saturating_sub(self.now).min(2_000 * MILLI);
                self.later(id, wait, Step::Source { pod: from, tag, event });
            }
            return;
        }
        let Some(to) = care.runners.get(&from).and_then(|runner| runner.partner) else { return };
        if let Some(source) = care.runners.get_mut(&from) {
            source.connected = true;
        }
        if let Some(there) = care.runners.get_mut(&to) {
            there.partner = Some(from);
        }
        let lost = self.goes_wrong(Fault::LinkDelay, 0.03);
        let back = self.hop();
        let result = match order {
            Order::Listen => self.target(id, care, to, target::Event::Listening),
            Order::Settle => {
                if let (Some(disk), true) = (care.runners.get(&from).map(|one| one.disk), care.disks)
                    && let Some(there) = care.runners.get_mut(&to)
                {
                    there.disk = disk;
                }
                self.target(id, care, to, target::Event::Settled)
            }
            Order::Run => return self.run_arrives(id, care, from, (tag, until)),
            Order::Recover => self.recover(care, from, to),
            Order::Stop => {
                let _ = self.target(id, care, to, target::Event::Stop);
                return;
            }
        };
        let event = match (order, result.is_ok() && !lost) {
            (Order::Listen, true) => source::Event::Agreed {
                mode: "one connection".to_owned(),
                dropped: Vec::new(),
                post_copy: care.post_copy,
                disks: care.disks,
            },
            (Order::Settle, true) => source::Event::Settled,
            (Order::Recover, true) => return self.recovered(id, care, from),
            (order, _) => {
                let Some(event) = failure(order, "the target does not follow") else { return };
                event
            }
        };
        self.later(id, back, Step::Source { pod: from, tag, event });
    }

    /// The order to let the guest run: what is on its way by the other connection is waited for.
    fn run_arrives(&mut self, id: Id, care: &mut Care, from: Id, (tag, until): (u64, Time)) {
        let Some(to) = care.runners.get(&from).and_then(|runner| runner.partner) else { return };
        let state = care.runners.get(&to).and_then(|there| there.state());
        if state == Some(State::Receiving) && self.now + LOOK < until {
            return self.later(id, LOOK, Step::Order { from, tag, order: Order::Run, until });
        }
        if self.target(id, care, to, target::Event::Run(Box::default())).is_err() {
            let back = self.hop();
            let event = source::Event::NotHandedOver("the guest is not whole there".to_owned());
            return self.later(id, back, Step::Source { pod: from, tag, event });
        }
        self.answer_run(id, care, from, (tag, until));
    }

    /// The order to let the guest run is answered when it runs.
    pub(super) fn answer_run(&mut self, id: Id, care: &mut Care, from: Id, (tag, until): (u64, Time)) {
        let Some(to) = care.runners.get(&from).and_then(|runner| runner.partner) else { return };
        let state = care.runners.get(&to).filter(|there| there.alive).and_then(|there| there.state());
        let linked = self.is_linked(care, from);
        let runs = matches!(state, Some(State::Completed | State::PostCopy));
        if linked && !runs && self.now + LOOK < until && state != Some(State::Failed) {
            return self.later(id, LOOK, Step::Running { from, tag, until });
        }
        let lost = self.goes_wrong(Fault::LinkDelay, 0.05);
        let event = if linked && runs && !lost {
            source::Event::HandedOver
        } else {
            source::Event::NotHandedOver("no answer of the target".to_owned())
        };
        let back = self.hop();
        self.later(id, back, Step::Source { pod: from, tag, event });
    }

    /// The target waits for memory again.
    fn recover(&mut self, care: &Care, from: Id, to: Id) -> Result<(), ()> {
        let paused = care.runners.get(&from).is_some_and(|one| one.qemu.phase == Phase::PostCopyPaused);
        let missing = care.runners.get(&to).is_some_and(|one| one.qemu.missing);
        if paused && missing { Ok(()) } else { Err(()) }
    }
}
