//! QEMU's process. A separate thread starts it and waits for it: the kernel kills a child with `PR_SET_PDEATHSIG` when
//! the *thread* that started it ends, and threads of a runtime may end before their process.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::{oneshot, watch};

use crate::sys::{ChildSetup, before_exec};

/// A process that is reaped whatever happens.
#[derive(Debug)]
pub(super) struct Process {
    pid: i32,
    handle: Arc<OwnedFd>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

struct Started {
    pid: i32,
    handle: OwnedFd,
    stderr: ChildStderr,
}

impl Process {
    /// Starts it. The descriptors are closed in this process once it runs.
    pub(super) async fn start(
        mut command: Command,
        setup: ChildSetup,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<(Self, ChildStderr)> {
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        before_exec(&mut command, setup);
        let (started, receiver) = oneshot::channel();
        let (ended_sender, ended) = watch::channel(None);
        let body = move || {
            let result = command.spawn();
            drop(descriptors);
            let mut child = match result.and_then(open) {
                Ok((mut child, begun)) => {
                    if started.send(Ok(begun)).is_err() {
                        // The caller no longer waits for it.
                        let _ = child.kill();
                    }
                    child
                }
                Err(error) => return drop(started.send(Err(error))),
            };
            let status = child.wait().ok();
            ended_sender.send_replace(status);
        };
        std::thread::Builder::new().name("qemu-parent".to_owned()).spawn(body)?;
        let Started { pid, handle, stderr } =
            receiver.await.map_err(|_| io::Error::other("the thread that starts QEMU ended"))??;
        Ok((Self { pid, handle: Arc::new(handle), ended }, stderr))
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Kills it; nothing happens if it has ended.
    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(self.handle.as_fd(), Signal::KILL);
    }

    /// Reports the exit status once the process has ended.
    pub(super) fn ended(&self) -> watch::Receiver<Option<ExitStatus>> {
        self.ended.clone()
    }
}

/// A handle that cannot come to mean another process.
fn open(mut child: Child) -> io::Result<(Child, Started)> {
    let mut opened = || -> io::Result<Started> {
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        let number = Pid::from_raw(pid).ok_or_else(|| io::Error::other("a process without a number"))?;
        let handle = pidfd_open(number, PidfdFlags::empty())?;
        let stderr = child.stderr.take().ok_or_else(|| io::Error::other("a process without output"))?;
        Ok(Started { pid, handle, stderr })
    };
    match opened() {
        Ok(started) => Ok((child, started)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}
