//! The pipes of a workload whose streams a client has: the workload's ends, and those that the daemon gets.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use neonvm_types::guest::Attach;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::log::Pipes;
use crate::process::Ends;

/// The streams of the workload's first start. Later ones have the log and `/dev/null`.
#[derive(Debug)]
pub(super) struct Attached {
    /// Closed here once the workload is started, so that its end is the end of its output.
    workload: Option<Ends>,
    /// Closed here once the daemon is started, so that the daemon ends the workload's input.
    input: Option<OwnedFd>,
    /// Stay open: a restart of the daemon does not break the workload's output.
    outputs: [OwnedFd; 2],
    logs: [RawFd; 2],
    /// Whether the daemon was started with a client to wait for.
    awaited: bool,
    /// Whether all output was passed on, or cannot be any more.
    ended: bool,
    power_off: bool,
}

impl Attached {
    pub(super) fn open(attach: Attach, pipes: &mut Pipes) -> io::Result<Self> {
        let pair = || pipe_with(PipeFlags::CLOEXEC);
        let (input, to_input) = match attach {
            Attach::InputAndOutput => pair().map(|(reader, writer)| (Some(reader), Some(writer)))?,
            Attach::Output => (None, None),
        };
        let ((from_output, output), (from_errors, errors)) = (pair()?, pair()?);
        let logs = [
            pipes.writer("attached output")?.as_raw_fd(),
            pipes.writer("attached standard error")?.as_raw_fd(),
        ];
        Ok(Self {
            workload: Some(Ends { input, output, errors }),
            input: to_input,
            outputs: [from_output, from_errors],
            logs,
            awaited: true,
            ended: false,
            power_off: false,
        })
    }

    /// The workload's ends, once.
    pub(super) fn take_ends(&mut self) -> Option<Ends> {
        self.workload.take()
    }

    /// Flags of the daemon, which is about to be started.
    pub(super) fn flags(&self) -> Vec<String> {
        let [output, errors] = self.outputs.each_ref().map(AsRawFd::as_raw_fd);
        let [log, log_errors] = self.logs;
        let streams = format!("--streams={output},{errors},{log},{log_errors}");
        let client = match (&self.input, self.awaited) {
            (_, false) => return vec![streams],
            (Some(input), true) => format!("--client={}", input.as_raw_fd()),
            (None, true) => "--client=output".to_owned(),
        };
        vec![streams, client]
    }

    /// Descriptors that those flags name.
    pub(super) fn keep(&self) -> Vec<RawFd> {
        let all = self.outputs.iter().chain(&self.input).map(AsRawFd::as_raw_fd);
        all.chain(self.logs).collect()
    }

    /// The daemon has its own copies now.
    pub(super) fn daemon_started(&mut self) {
        (self.input, self.awaited) = (None, false);
    }

    /// All output was passed on, or the daemon is gone. Whether the VM is to end now.
    pub(super) fn end(&mut self) -> bool {
        self.ended = true;
        std::mem::take(&mut self.power_off)
    }

    /// The workload has ended, and the VM is to end. Whether that waits for the rest of the output.
    pub(super) fn holds_power_off(&mut self) -> bool {
        self.power_off = !self.ended;
        self.power_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_gets_a_client_once_and_the_vm_ends_after_the_output() {
        let mut pipes = Pipes::default();
        let mut attached = Attached::open(Attach::InputAndOutput, &mut pipes).unwrap();
        assert_eq!((attached.flags().len(), attached.keep().len()), (2, 5));
        attached.daemon_started();
        assert_eq!((attached.flags().len(), attached.keep().len()), (1, 4));
        assert!(attached.take_ends().unwrap().input.is_some() && attached.take_ends().is_none());
        assert!(attached.holds_power_off() && attached.end());
        assert!(!attached.end() && !attached.holds_power_off());
        let attached = Attached::open(Attach::Output, &mut pipes).unwrap();
        assert_eq!((attached.flags()[1].as_str(), attached.keep().len()), ("--client=output", 4));
    }
}
