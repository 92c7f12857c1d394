//! Commands in the runner's container, through the API server.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess};
use neonvm_api::VirtualMachine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, SimplexStream, WriteHalf};

use crate::commands::resource::{NamespaceClient, name_of};
use crate::error::{Code, Error, Result};

/// Most of an output that is kept.
const KEPT: usize = 1 << 20;

/// The status of a command's end; `None` if there is none, because the connection broke.
type End = Shared<BoxFuture<'static, Option<Status>>>;

/// A command that runs in a pod, until dropped.
pub(super) struct Command {
    /// Its standard input, until taken.
    pub(super) stdin: Option<WriteHalf<SimplexStream>>,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    end: End,
    _process: AttachedProcess,
}

pub(super) struct Output {
    stream: ReadHalf<SimplexStream>,
    end: End,
}

impl Output {
    /// The next bytes; 0: there are no more, or the connection broke. The library does not end the streams of a broken connection,
    /// and who reads them would wait forever.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> usize {
        let end = self.end.clone();
        let broken = async {
            if end.await.is_some() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            read = self.stream.read(buffer) => read.unwrap_or(0),
            () = broken => 0,
        }
    }

    /// Copies it to standard output as it comes, and gives it to `also`; false: standard output is closed.
    pub(super) async fn show(&mut self, mut also: impl FnMut(&[u8])) -> bool {
        let (mut shown, mut buffer) = (crate::render::interactive(), vec![0; 16 << 10]);
        while let count @ 1.. = self.read(&mut buffer).await {
            let bytes = buffer.get(..count).unwrap_or_default();
            also(bytes);
            if shown.write_all(bytes).await.is_err() || shown.flush().await.is_err() {
                return false;
            }
        }
        true
    }

    /// All of it, up to 1 MiB.
    pub(super) async fn text(&mut self) -> String {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
        while bytes.len() < KEPT {
            match self.read(&mut buffer).await {
                0 => break,
                count => bytes.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

impl Command {
    /// Starts the runner's own program in the pod; without `input` it has no standard input.
    pub(super) async fn start(
        client: &NamespaceClient,
        pod: &str,
        arguments: &[&str],
        input: bool,
    ) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client.connection.streams()?, &client.namespace);
        let parameters = AttachParams::default()
            .container(neonvm_api::names::RUNNER_CONTAINER)
            .stdin(input)
            .stdout(true)
            .stderr(true)
            .tty(false);
        let command = neonvm_api::runner_pod::COMMAND.iter().chain(arguments).copied();
        let started = api.exec(pod, command, &parameters);
        let mut process = client.connection.within(&format!("cannot reach pod {pod}"), started).await?;
        let broken = || Error::new(Code::Failed, "the connection could not be established");
        let status = process.take_status().ok_or_else(broken)?;
        let end = status.boxed().shared();
        let output =
            |stream: Option<_>| stream.map(|stream| Output { stream, end: end.clone() }).ok_or_else(broken);
        Ok(Self {
            stdin: process.stdin(),
            stdout: output(process.stdout())?,
            stderr: output(process.stderr())?,
            end: end.clone(),
            _process: process,
        })
    }

    /// How it ended: what it wrote to standard error, which is `stderr`, if it failed.
    pub(super) async fn ended(&self, stderr: &str) -> Result<()> {
        match self.end.clone().await {
            Some(status) if status.status.as_deref() == Some("Success") => Ok(()),
            Some(status) => {
                let stderr = stderr.lines().next_back().unwrap_or_default().trim_start_matches("Error: ");
                let message =
                    if stderr.is_empty() { status.message.unwrap_or_default() } else { stderr.to_owned() };
                Err(Error::new(Code::Failed, message))
            }
            None => Err(broke()),
        }
    }

    /// Waits for its end, however it ended: an error only if the connection broke before.
    pub(super) async fn unbroken(&self) -> Result<()> {
        self.end.clone().await.map(drop).ok_or_else(broke)
    }
}

fn broke() -> Error {
    Error::new(Code::Unreachable, "the connection to the pod broke")
}

/// Runs a command to its end; returns what it printed.
pub(crate) async fn output(client: &NamespaceClient, pod: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::start(client, pod, arguments, false).await?;
    let (text, errors) = tokio::join!(command.stdout.text(), command.stderr.text());
    command.ended(&errors).await?;
    Ok(text)
}

/// The runner pod of a VM.
///
/// # Errors
///
/// [`Code::Conflict`] if the VM has none.
pub(super) fn pod_of(client: &NamespaceClient, vm: &VirtualMachine) -> Result<String> {
    let name = name_of(vm);
    match vm.status.as_ref().map(|status| status.pod_name.as_str()).filter(|pod| !pod.is_empty()) {
        Some(pod) => Ok(pod.to_owned()),
        None => Err(Error::new(Code::Conflict, format!("{name} is not running: it has no pod"))
            .hint(format!("see why: neonctl vm describe {name} -n {}", client.namespace))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(end: BoxFuture<'static, Option<Status>>) -> (Output, WriteHalf<SimplexStream>) {
        let (stream, writer) = tokio::io::simplex(64);
        (Output { stream, end: end.shared() }, writer)
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_before_the_connection_broke_is_read_and_nothing_is_waited_for() {
        let (mut output, mut writer) = output(std::future::ready(None).boxed());
        writer.write_all(b"half a line").await.unwrap();
        // As the library does: dropped, and not ended.
        drop(writer);
        assert_eq!(output.text().await, "half a line");
        assert_eq!(output.read(&mut [0; 8]).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_the_end_of_the_command_is_read() {
        let (mut output, mut writer) = output(std::future::ready(Some(Status::default())).boxed());
        let late = tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            writer.write_all(b"late").await.unwrap();
            writer.shutdown().await.unwrap();
        });
        assert_eq!(output.text().await, "late");
        late.await.unwrap();
    }
}
