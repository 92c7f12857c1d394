//! The streams of a VM's workload, for `vm run`: through the runner's pod to the daemon in the guest.

use std::time::Duration;

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::Phase;
use neonvm_types::guest::{
    ATTACH_PATH, ATTACH_PROTOCOL, DAEMON_PORT, FRAME_HEADER, Frame, LONGEST_FRAME, frame_header,
    read_frame_header,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::exec::{self, Command, Output};
use crate::commands::resource::NamespaceClient;
use crate::commands::rights::{self, Right};
use crate::error::{Code, Error, Result};
use crate::render::Streams;
use crate::settings::Settings;

/// Pause before another attempt to reach a guest that starts.
const AGAIN: Duration = Duration::from_millis(300);
/// Longest time for one attempt.
const ATTEMPT: Duration = Duration::from_secs(15);
/// So many attempts may fail after the guest has reported that it is ready.
const REFUSALS: u32 = 20;
/// Longest head of a response.
const LONGEST_HEAD: usize = 4 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The workload has ended, and all of its output is written.
    Ended,
    /// The VM ended before its guest could be reached.
    NotReached,
    /// There is no way to the streams of this guest.
    NoWay(String),
    Closed,
}

/// What of the right to reach the streams the caller lacks; none if it has one of the verbs that API servers judge it by.
pub(super) async fn lacks(settings: &Settings) -> Result<Option<String>> {
    let client = NamespaceClient::open(settings).await?;
    let rights = ["create", "get"].map(|verb| Right::from_verb(verb, "", "pods/exec", &client.namespace));
    let missing = rights::missing(&client.connection, &rights).await?;
    let all = missing.len() == rights.len();
    Ok(missing.first().filter(|_| all).map(|right| format!("the right to {right} is missing")))
}

/// Joins standard output and error, and with `input` standard input, with those of the workload.
pub(super) async fn run(settings: &Settings, name: &str, input: bool) -> Result<End> {
    let client = NamespaceClient::open(settings).await?;
    let mut refusals = 0;
    loop {
        let machine: VirtualMachine = client.find(name).await?;
        let status = machine.status.as_ref();
        if matches!(status.and_then(|status| status.phase), Some(Phase::Succeeded | Phase::Failed)) {
            return Ok(End::NotReached);
        }
        if let Ok(pod) = exec::pod_of(&client, &machine) {
            let attempt = tokio::time::timeout(ATTEMPT, connect(&client, &pod)).await;
            match attempt.unwrap_or(Ok(Connected::Not)) {
                Ok(Connected::Joined(command, first)) => return join(*command, first, input).await,
                Ok(Connected::Refused(why)) => return Ok(End::NoWay(why)),
                // Guests of other builders have no such port.
                _ if is_up(&machine) && refusals >= REFUSALS => {
                    return Ok(End::NoWay("its guest does not answer".to_owned()));
                }
                Err(error) if error.code == Code::Denied => {
                    let parts: Vec<String> = std::iter::once(error.message).chain(error.causes).collect();
                    return Ok(End::NoWay(parts.join(": ")));
                }
                _ => refusals += u32::from(is_up(&machine)),
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn is_up(machine: &VirtualMachine) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|one| one.type_ == "Available" && one.status == "True")
}

enum Connected {
    /// The daemon has switched to our protocol; bytes that came with its response.
    Joined(Box<Command>, Vec<u8>),
    /// It has no streams for us.
    Refused(String),
    Not,
}

async fn connect(client: &NamespaceClient, pod: &str) -> Result<Connected> {
    let mut command = Command::start(client, pod, &["connect", &DAEMON_PORT.to_string()], true).await?;
    let request = format!(
        "GET {ATTACH_PATH} HTTP/1.1\r\nHost: guest-vm\r\nConnection: upgrade\r\nUpgrade: {ATTACH_PROTOCOL}\r\n\r\n"
    );
    let Some(to) = &mut command.stdin else { return Ok(Connected::Not) };
    if to.write_all(request.as_bytes()).await.is_err() || to.flush().await.is_err() {
        return Ok(Connected::Not);
    }
    let (mut head, mut buffer) = (Vec::new(), vec![0; LONGEST_HEAD]);
    while head.len() < LONGEST_HEAD {
        let count = command.stdout.read(&mut buffer).await;
        if count == 0 {
            return Ok(Connected::Not);
        }
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = head.split_off(end + 4);
            let head = String::from_utf8_lossy(&head);
            return Ok(match head.split(' ').nth(1) {
                Some("101") => Connected::Joined(Box::new(command), rest),
                Some("404") => Connected::Refused("its guest program is too old for it".to_owned()),
                Some("409") => {
                    Connected::Refused("no client came within a minute, or another one has it".to_owned())
                }
                _ => Connected::Refused(format!(
                    "the guest returned {}",
                    head.lines().next().unwrap_or_default()
                )),
            });
        }
    }
    Ok(Connected::Refused("the guest sent an invalid response".to_owned()))
}

/// Carries frames until the end of the output.
async fn join(mut command: Command, first: Vec<u8>, input: bool) -> Result<End> {
    let mut to = command.stdin.take();
    let typed = async {
        let Some(to) = to.as_mut().filter(|_| input) else { return std::future::pending().await };
        let (mut from, mut buffer) = (tokio::io::stdin(), vec![0; LONGEST_FRAME]);
        loop {
            // One that is closed, or a directory, has no input.
            let count = from.read(&mut buffer).await.unwrap_or_default();
            let frame = if count == 0 { Frame::End } else { Frame::Input };
            let bytes = buffer.get(..count).unwrap_or_default();
            let sent = async {
                to.write_all(&frame_header(frame, count)).await?;
                to.write_all(bytes).await?;
                to.flush().await
            };
            // What it means that nothing can be sent, the other direction shows.
            if sent.await.is_err() || count == 0 {
                return std::future::pending().await;
            }
        }
    };
    let mut frames = Frames { output: command.stdout, kept: first, start: 0 };
    let shown = async {
        let mut streams = Streams::open();
        loop {
            let (is_error, bytes) = match frames.next().await? {
                (Frame::Output, bytes) => (false, bytes),
                (Frame::Errors, bytes) => (true, bytes),
                (Frame::End, _) => break Ok(End::Ended),
                (Frame::Input, _) => return Err(invalid()),
            };
            match streams.write(is_error, bytes).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break Ok(End::Closed),
                Err(error) => {
                    return Err(Error::new(Code::Failed, "cannot write the output of the workload")
                        .cause(crate::error::reason(&error)));
                }
            }
        }
    };
    tokio::select! {
        end = shown => end,
        () = typed => Ok(End::Ended),
    }
}

fn invalid() -> Error {
    Error::new(Code::Failed, "the guest sent an invalid frame")
}

struct Frames {
    output: Output,
    kept: Vec<u8>,
    /// Bytes of `kept` that were taken.
    start: usize,
}

impl Frames {
    async fn next(&mut self) -> Result<(Frame, &[u8])> {
        let header = self.take(FRAME_HEADER).await?;
        let header = header.try_into().map_err(|_| invalid())?;
        let (frame, length) = read_frame_header(header).ok_or_else(invalid)?;
        Ok((frame, self.take(length).await?))
    }

    /// The next bytes.
    async fn take(&mut self, count: usize) -> Result<&[u8]> {
        while self.kept.len() - self.start < count {
            self.kept.drain(..std::mem::take(&mut self.start));
            let mut buffer = vec![0; LONGEST_FRAME];
            let read = self.output.read(&mut buffer).await;
            if read == 0 {
                return Err(Error::new(
                    Code::Unreachable,
                    "the connection to the workload broke before the end of its output",
                ));
            }
            self.kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        }
        let start = self.start;
        self.start += count;
        Ok(self.kept.get(start..self.start).unwrap_or_default())
    }
}
