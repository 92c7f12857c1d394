//! Commands in containers: their streams.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::sync::{Mutex, watch};

use super::body::{Query, Response, text};
use super::capture;
use super::command::{Command, Started};
use super::terminal::{self, Terminal};
use super::websocket::{self, Receiver, Sender};
use crate::node::Node;
use crate::pod::Handle;

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Channels: input, output, errors, result, size of the terminal, end of a channel.
const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const RESULT: u8 = 3;
const SIZE: u8 = 4;
const CLOSED: u8 = 255;
/// How long output is waited for after the command has ended: others may hold it open.
const AFTERWARDS: Duration = Duration::from_secs(1);
/// How long a command may take to end once its client is gone.
const HANG_UP: Duration = Duration::from_secs(2);

/// What is to be run.
struct Exec {
    argv: Vec<String>,
    input: bool,
    terminal: bool,
}

/// Runs a command to its end, or until it is dropped. An error if it does not end with 0: the beginning of its output.
pub(crate) async fn check(node: &Node, handle: &Handle, name: &str, argv: &[String]) -> Result<(), String> {
    let mut command = Command::new(node, handle, name, argv, false).await?;
    capture::streams(&mut command.inner);
    let words = |error: io::Error| error.to_string();
    let Started { child, keeper } = command.start().await.map_err(words)?;
    let ended = capture::run(child).await.map_err(words);
    // What the command has left behind ends with its namespace.
    drop(keeper);
    let (status, output) = ended?;
    if status.success() {
        return Ok(());
    }
    let text: String = String::from_utf8_lossy(&output).chars().take(500).collect();
    Err(format!("command {:?} exited with {status}: {}", argv.join(" "), text.trim()))
}

/// `/exec/…` and `/attach/…`
pub(super) async fn serve(
    node: &Arc<Node>,
    handle: &Arc<Handle>,
    name: String,
    is_exec: bool,
    query: &Query,
    request: hyper::Request<Incoming>,
) -> Response {
    let exec = Exec { argv: query.all("command"), input: query.is_on("input"), terminal: query.is_on("tty") };
    if !is_exec {
        return attach(handle, name, request);
    }
    let running = match Running::start(node, handle, &name, &exec).await {
        Ok(running) => Ok(running),
        // The connection is made all the same: the client gets it like any other result.
        Err(Refusal::Command(why)) => Err(why),
        Err(Refusal::Container(why)) => return text(StatusCode::BAD_REQUEST, why),
    };
    let (opening, response) = match websocket::accept(request, &PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    tokio::spawn(async move {
        let Some((mut sender, receiver)) = opening.open().await else { return };
        match running {
            Ok(running) => running.converse(sender, receiver).await,
            Err(why) => {
                let status = json!({ "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                    "message": format!("error executing command in container: {why}") });
                sender.send(RESULT, status.to_string().as_bytes()).await;
                websocket::end(sender, receiver).await;
            }
        }
    });
    response
}

enum Refusal {
    Container(String),
    Command(String),
}

/// A command that runs.
struct Running {
    child: Child,
    /// Ends whatever it leaves behind.
    _keeper: Option<Child>,
    terminal: Option<Arc<Terminal>>,
}

impl Running {
    async fn start(node: &Node, handle: &Handle, name: &str, exec: &Exec) -> Result<Self, Refusal> {
        let made = Command::new(node, handle, name, &exec.argv, exec.terminal).await;
        let mut made = made.map_err(Refusal::Container)?;
        let command = &mut made.inner;
        let failed = |error: io::Error| {
            let program = exec.argv.first().cloned().unwrap_or_default();
            Refusal::Command(format!("exec: {program:?}: {error}"))
        };
        let mut terminal = None;
        if exec.terminal {
            let (ours, theirs) = terminal::open().map_err(failed)?;
            let side = |fd: &OwnedFd| fd.try_clone().map(Stdio::from);
            command
                .stdin(side(&theirs).map_err(failed)?)
                .stdout(side(&theirs).map_err(failed)?)
                .stderr(theirs);
            terminal = Some(Arc::new(ours));
        } else {
            command.stdin(if exec.input { Stdio::piped() } else { Stdio::null() });
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        // Our copies of the terminal's other side go with the command.
        let Started { child, keeper } = made.start().await.map_err(failed)?;
        Ok(Self { child, _keeper: keeper, terminal })
    }

    /// Carries the streams until the command has ended or the client is gone.
    async fn converse(mut self, sender: Sender, mut receiver: Receiver) {
        let sender = Arc::new(Mutex::new(sender));
        let (ended, watch) = watch::channel(false);
        let mut outputs = tokio::task::JoinSet::new();
        if let Some(terminal) = self.terminal.clone() {
            outputs.spawn(carry(Source::Terminal(terminal), OUTPUT, Arc::clone(&sender), watch.clone()));
        }
        if let Some(output) = self.child.stdout.take() {
            outputs.spawn(carry(Source::Output(output), OUTPUT, Arc::clone(&sender), watch.clone()));
        }
        if let Some(errors) = self.child.stderr.take() {
            outputs.spawn(carry(Source::Errors(errors), ERRORS, Arc::clone(&sender), watch));
        }
        let inputs = take_input(&mut receiver, self.child.stdin.take(), self.terminal.clone());
        let mut inputs = Box::pin(inputs);
        let status = tokio::select! {
            status = self.child.wait() => status,
            () = &mut inputs => {
                self.hang_up().await;
                return;
            }
        };
        ended.send_replace(true);
        // A slow client gets all of it; one that is gone, nothing.
        tokio::select! {
            () = async { while outputs.join_next().await.is_some() {} } => {}
            () = &mut inputs => {}
        }
        drop(inputs);
        outputs.shutdown().await;
        let Some(sender) = Arc::into_inner(sender) else { return };
        let mut sender = sender.into_inner();
        sender.send(RESULT, result(status).to_string().as_bytes()).await;
        websocket::end(sender, receiver).await;
    }

    /// Ends a command after its client has disconnected.
    async fn hang_up(&mut self) {
        let group = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let Some(group) = group else { return };
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::HUP);
        if tokio::time::timeout(HANG_UP, self.child.wait()).await.is_err() {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.child.wait().await;
        }
    }
}

/// What a command writes to.
enum Source {
    Output(ChildStdout),
    Errors(ChildStderr),
    Terminal(Arc<Terminal>),
}

impl Source {
    /// Bytes read; 0 at the end.
    async fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self {
            Self::Output(pipe) => pipe.read(buffer).await.unwrap_or(0),
            Self::Errors(pipe) => pipe.read(buffer).await.unwrap_or(0),
            Self::Terminal(terminal) => terminal.read(buffer).await,
        }
    }
}

/// Sends what comes until its end; once the command has ended, until nothing comes for a while.
async fn carry(mut from: Source, channel: u8, sender: Arc<Mutex<Sender>>, mut ended: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let over = *ended.borrow();
        let count = if over {
            tokio::time::timeout(AFTERWARDS, from.read(&mut buffer)).await.unwrap_or(0)
        } else {
            tokio::select! {
                count = from.read(&mut buffer) => count,
                _ = ended.changed() => continue,
            }
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        if bytes.is_empty() || !sender.lock().await.send(channel, bytes).await {
            return;
        }
    }
}

/// Takes what the client sends; ends when it is gone.
async fn take_input(
    receiver: &mut Receiver,
    mut stdin: Option<tokio::process::ChildStdin>,
    terminal: Option<Arc<Terminal>>,
) {
    while let Some(message) = receiver.next().await {
        let Some((channel, bytes)) = message.split_first() else { continue };
        match (*channel, &terminal) {
            (INPUT, Some(terminal)) => drop(terminal.write(bytes).await),
            (INPUT, None) => {
                // A command that reads no more is no reason to end it.
                if let Some(to) = &mut stdin
                    && (to.write_all(bytes).await.is_err() || to.flush().await.is_err())
                {
                    stdin = None;
                }
            }
            (SIZE, Some(terminal)) => {
                let size: Value = serde_json::from_slice(bytes).unwrap_or_default();
                let side = |key: &str| {
                    size.get(key).and_then(Value::as_u64).and_then(|side| u16::try_from(side).ok())
                };
                if let (Some(columns), Some(rows)) = (side("Width"), side("Height")) {
                    terminal.resize(columns, rows);
                }
            }
            (CLOSED, terminal) if bytes.first() == Some(&INPUT) => {
                stdin = None;
                if let Some(terminal) = terminal {
                    // Ctrl-D.
                    let _ = terminal.write(&[4]).await;
                }
            }
            _ => {}
        }
    }
}

/// The result, in the form of kubelets.
fn result(status: io::Result<std::process::ExitStatus>) -> Value {
    use std::os::unix::process::ExitStatusExt as _;
    let code = match status {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(error) => {
            return json!({ "metadata": {}, "status": "Failure", "reason": "InternalError", "message": error.to_string() });
        }
    };
    if code == 0 {
        return json!({ "metadata": {}, "status": "Success" });
    }
    json!({ "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] } })
}

/// Joins the output of a container's own process: its log, from now on. Its input is closed.
fn attach(handle: &Arc<Handle>, name: String, request: hyper::Request<Incoming>) -> Response {
    let (opening, response) = match websocket::accept(request, &PROTOCOLS) {
        Ok(accepted) => accepted,
        Err(refused) => return *refused,
    };
    let handle = Arc::clone(handle);
    tokio::spawn(async move {
        let Some((mut sender, mut receiver)) = opening.open().await else { return };
        let mut lines = super::logs::follow(&handle, &name);
        loop {
            tokio::select! {
                chunk = lines.recv() => match chunk {
                    Some(Ok(bytes)) => if !sender.send(OUTPUT, &bytes).await { return },
                    Some(Err(_)) | None => break,
                },
                message = receiver.next() => if message.is_none() { return },
            }
        }
        sender.send(RESULT, json!({ "metadata": {}, "status": "Success" }).to_string().as_bytes()).await;
        websocket::end(sender, receiver).await;
    });
    response
}
