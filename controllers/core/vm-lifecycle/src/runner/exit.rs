//! Why a VM ended, from the last output of QEMU and the guest.

use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{Exit, ExitReason, ProcessExit};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QemuEnd {
    /// Reason of the last SHUTDOWN event, as QMP's `ShutdownCause` spells it.
    pub cause: Option<String>,
    /// Whether the accelerator failed.
    pub internal_error: bool,
    /// Whether the guest's panic device spoke.
    pub panicked: bool,
    /// Whether we killed it, because the guest did not power off in time.
    pub forced: bool,
    /// Exit status and last output of QEMU, for people.
    pub words: String,
    /// The last lines of the console.
    pub console: Vec<String>,
    /// The end of a migration, if that ended it.
    pub moved: Option<(ExitReason, String)>,
}

/// What the kernel writes before it resets the VM (`panic=-1`).
const PANIC: &str = "Kernel panic - not syncing";
/// The guest's message when the end of the workload ends the VM.
const WORKLOAD_ENDED: &str = "workload ended";

pub(crate) fn from_end(
    end: &QemuEnd,
    stopping: bool,
    announced: Option<&str>,
    workload: Option<ProcessExit>,
) -> Exit {
    let panic = end.console.iter().find(|line| line.contains(PANIC));
    let reset = end.cause.as_deref() == Some("guest-reset");
    let off = matches!(end.cause.as_deref(), Some("guest-shutdown"));
    if let Some((reason, message)) = &end.moved {
        return Exit::new(*reason, message.clone());
    }
    let exit = if end.internal_error {
        Exit::new(
            ExitReason::AcceleratorFailure,
            "the accelerator cannot run this guest (QEMU: internal-error)",
        )
    } else if end.forced {
        Exit::new(ExitReason::StoppedByForce, "the guest did not power off in time")
    } else if end.panicked || end.cause.as_deref() == Some("guest-panic") || (reset && panic.is_some()) {
        let line = panic.map_or("the guest's kernel panicked", |line| line.as_str());
        Exit::new(ExitReason::GuestPanic, without_time(line))
    } else if stopping && (reset || off) {
        Exit::new(ExitReason::Stopped, "the guest powered off as asked")
    } else if announced.is_some_and(|reason| reason.contains(WORKLOAD_ENDED)) && (reset || off) {
        let message = workload.map_or_else(|| "the workload ended".to_owned(), describe);
        Exit { workload, ..Exit::new(ExitReason::WorkloadEnded, message) }
    } else if off {
        Exit::new(
            ExitReason::PoweredOff,
            announced.map_or("the guest powered off".to_owned(), |r| format!("the guest powered off: {r}")),
        )
    } else if reset {
        Exit::new(ExitReason::Rebooted, "the guest asked for a reboot")
    } else {
        Exit::new(ExitReason::QemuEnded, end.words.clone())
    };
    Exit { console: end.console.clone(), ..exit }
}

/// How a workload ended, in words.
pub(crate) fn describe(exit: ProcessExit) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("the workload ended with exit code {code}"),
        (None, Some(signal)) => format!("the workload was ended by signal {signal}"),
        (None, None) => "the workload ended".to_owned(),
    };
    if exit.out_of_memory { format!("{how}, out of memory") } else { how }
}

/// The end of a guest that was reset before its init ran: its kernel could not boot.
pub(crate) fn never_up(end: &QemuEnd, memory: Bytes) -> Exit {
    let message = format!(
        "the guest never came up: it was reset before its init ran. {memory} of memory may be too little for its kernel, or the \
         kernel does not fit the disk"
    );
    Exit { console: end.console.clone(), ..Exit::new(ExitReason::StartFailure, message) }
}

/// The end of a guest that could not start its workload, and ended for that: the guest's own reason, and a failure.
pub(crate) fn without_workload(exit: Exit, why: &str) -> Exit {
    match exit.reason {
        ExitReason::WorkloadEnded => Exit { message: why.to_owned(), ..exit },
        ExitReason::PoweredOff => Exit { console: exit.console, ..Exit::new(ExitReason::StartFailure, why) },
        _ => exit,
    }
}

/// A line of the kernel's log without the time in front.
fn without_time(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(time, rest)| if time.starts_with('[') { rest } else { line })
}
