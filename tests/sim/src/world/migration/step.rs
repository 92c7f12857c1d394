//! What happens to a VM in migration.

use neonvm_core_migration::{Phase, source, target};
use neonvm_types::runner_protocol::Exit;

use super::calls::Call;
use super::objects::Kind;
use super::orders::Order;
use crate::Fault;
use crate::queue::Time;
use crate::world::model::Id;

/// An event of a VM in migration.
#[derive(Debug)]
pub(crate) enum Step {
    // A watch shows the controller what is there now.
    Seen(Kind),
    // A runner's document reaches the controller.
    Report { pod: Id },
    // The controller connects to a runner, or loses the connection.
    Linked { pod: Id },
    Starts { pod: Id },
    Source { pod: Id, tag: u64, event: source::Event },
    Target { pod: Id, event: target::Event },
    Words { pod: Id, phase: Phase, words: &'static str },
    // QEMU has gone through memory once more.
    Pass { pod: Id, pass: u64 },
    Timer { pod: Id, at: Time },
    Qemu { pod: Id, epoch: u32 },
    // An order of one runner to the other arrives.
    Order { from: Id, tag: u64, order: Order, until: Time },
    // The target waits until it can answer the order to let the guest run.
    Running { from: Id, tag: u64, until: Time },
    // The guest may run here, and nothing is left of the migration.
    Cleaned { pod: Id, tag: u64 },
    // The target lets the guest run.
    Continue { pod: Id },
    // A request of the controller to a runner arrives late.
    Call { pod: Id, call: Call, sent: Time },
    Stop { pod: Id },
    Kill { pod: Id },
    Kubelet { pod: Id },
    Ends { pod: Id, exit: Exit },
    Goes { pod: Id },
    Inject { pod: Id, fault: Fault, length: Time },
    // A user deletes a migration that has ended.
    Tidy { name: String },
}
