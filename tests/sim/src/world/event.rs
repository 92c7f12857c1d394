//! What the queue of the world holds.

use neonvm_core_scheduling::permits::Action;
use neonvm_core_vertical_scaling::agent::{PluginAnswer, Verdict};
use neonvm_types::{Resources, Revision, monitor_protocol::Wants};

use super::migration::step::Step;
use super::model::{Id, Person, Snapshot};
use crate::queue::Time;

#[derive(Debug)]
pub(crate) enum Event {
    Create(Id),
    Boot(Id),
    Demand(Id),
    Memory(Id),
    Sample(Id),
    Attach(Id),
    Connect { vm: Id, inc: u64 },
    Scrape { vm: Id, inc: u64 },
    Wake { vm: Id, inc: u64, at: Time },
    Watch { vm: Id, inc: u64, seen: Box<Snapshot> },
    Ask { vm: Id, inc: u64, id: u64, to: Resources, last: Option<Resources>, load: Option<f32>, again: bool },
    Permit { vm: Id, inc: u64, id: u64, result: Result<PluginAnswer, &'static str> },
    Patch { vm: Id, inc: u64, id: u64, from: Resources, to: Resources, revision: Revision, again: bool },
    Patched { vm: Id, inc: u64, id: u64, result: Result<Option<i64>, Option<&'static str>>, to: Resources },
    Question { vm: Id, inc: u64, connection: u64, id: u64, to: Resources, down: bool },
    Verdict { vm: Id, inc: u64, connection: u64, id: u64, result: Result<Verdict, String> },
    GuestRequest { vm: Id, inc: u64, connection: u64, wants: Option<Box<Wants>> },
    Control(Id),
    MemoryStep { vm: Id, epoch: u32 },
    PodWatch { replica: Id, inc: u64, pod: Id },
    NodeWatch { replica: Id, inc: u64, node: Id },
    MigrationWatch { replica: Id, inc: u64, migration: Id },
    SchedulerWake { replica: Id, inc: u64, at: Time },
    SchedulerList { replica: Id, inc: u64 },
    SchedulerRelist { replica: Id, inc: u64 },
    Lead { replica: Id },
    Act { replica: Id, inc: u64, action: Box<Action> },
    Acted { replica: Id, inc: u64, action: Box<Action>, ok: bool },
    Place,
    Bind { replica: Id, inc: u64, pod: Id, node: Id },
    Ends(Id),
    Removed(Id),
    Reconcile { vm: Id, at: Time },
    Move { vm: Id, step: Box<Step> },
    ControllerStarts,
    NodeLost(Id),
    Address(Id),
    AgentStart { node: Id },
    Uncordon(Id),
    Chaos,
    People(Person),
    Record,
    Audit,
    EndOfFaults,
}
