//! Commands in the runner's container, through the API server.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, AttachedProcess};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::machines::Machines;
use crate::error::{Code, Error, Result};

/// Starts the runner's own program in the pod with standard input, output and error joined.
pub(super) async fn start(
    machines: &Machines,
    pod: &str,
    arguments: &[&str],
    input: bool,
) -> Result<AttachedProcess> {
    let api: Api<Pod> = Api::namespaced(machines.connection.client(), &machines.namespace);
    let parameters = AttachParams::default()
        .container(neonvm_api::names::RUNNER_CONTAINER)
        .stdin(input)
        .stdout(true)
        .stderr(true)
        .tty(false);
    let command = neonvm_api::runner_pod::COMMAND.iter().chain(arguments).copied();
    machines.connection.within(&format!("cannot reach pod {pod}"), api.exec(pod, command, &parameters)).await
}

/// What a stream holds, up to 1 MiB.
pub(super) async fn read<R: AsyncRead + Unpin>(stream: Option<R>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(1 << 20).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// How a command ended: what it wrote to standard error if it failed.
pub(super) async fn ended(process: &mut AttachedProcess, stderr: String) -> Result<()> {
    let status = match process.take_status() {
        Some(status) => status.await,
        None => None,
    };
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(()),
        Some(status) => {
            let said =
                stderr.lines().next_back().unwrap_or_default().trim_start_matches("Error: ").to_owned();
            let message = if said.is_empty() { status.message.unwrap_or_default() } else { said };
            Err(Error::new(Code::Failed, message))
        }
        None => Err(Error::new(Code::Unreachable, "the connection to the pod broke")),
    }
}

/// Runs a command to its end; returns what it printed.
pub(in crate::commands) async fn output(
    machines: &Machines,
    pod: &str,
    arguments: &[&str],
) -> Result<String> {
    let mut process = start(machines, pod, arguments, false).await?;
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let (text, errors) = tokio::join!(read(stdout), read(stderr));
    ended(&mut process, errors).await?;
    Ok(text)
}
