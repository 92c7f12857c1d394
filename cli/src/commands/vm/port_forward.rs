//! `vm port-forward` and `vm connect`: TCP ports of the guest, through the runner's pod.

use std::net::SocketAddr;
use std::sync::Arc;

use neonvm_api::VirtualMachine;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::exec::{self, Command};
use crate::args::vm::{Connect, PortForward};
use crate::commands::job::Stop;
use crate::commands::resource::NamespaceClient;
use crate::connect::block_on;
use crate::error::{Code, Error, Result, reason};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

/// Most connections at a time.
const CONNECTIONS: usize = 256;

/// Listens and forwards until it is interrupted.
pub(super) fn run(settings: &Settings, args: &PortForward, quiet: bool) -> Result<Report> {
    let ports = args.ports.iter().map(|text| parse(text)).collect::<Result<Vec<_>>>()?;
    block_on(async {
        let client = Arc::new(NamespaceClient::open(settings).await?);
        let machine: VirtualMachine = client.find(&args.name).await?;
        exec::pod_of(&client, &machine)?;
        let reporter = Arc::new(Reporter::lines(quiet));
        let mut tasks = tokio::task::JoinSet::new();
        for (local, remote) in ports {
            let address = SocketAddr::new(args.address, local);
            let listener = TcpListener::bind(address).await.map_err(|error| {
                Error::new(Code::Failed, format!("cannot listen on {address}")).cause(reason(&error)).hint(
                    format!(
                        "choose another local port: {}:{remote}, or :{remote} for any",
                        u32::from(remote) + 10_000
                    ),
                )
            })?;
            let address = listener.local_addr().unwrap_or(address);
            reporter.show(&format!("Forwarding from {address} -> {remote}"));
            tasks.spawn(serve(
                listener,
                remote,
                args.name.clone(),
                Arc::clone(&client),
                Arc::clone(&reporter),
            ));
        }
        let mut stop = Stop::listen()?;
        tokio::select! {
            () = stop.requested() => {}
            _ = tasks.join_next() => {}
        }
        Ok(Report::text(String::new()))
    })
}

async fn serve(
    listener: TcpListener,
    remote: u16,
    name: String,
    client: Arc<NamespaceClient>,
    reporter: Arc<Reporter>,
) {
    let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for one.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let (name, client, reporter) = (name.clone(), Arc::clone(&client), Arc::clone(&reporter));
        tokio::spawn(async move {
            if let Err(error) = carry(stream, remote, &name, &client).await {
                let causes = error.causes.join("; ");
                let separator = if causes.is_empty() { "" } else { ": " };
                reporter.show(&format!("port {remote}: {}{separator}{causes}", error.message));
            }
            drop(permit);
        });
    }
}

async fn carry(stream: TcpStream, remote: u16, name: &str, client: &NamespaceClient) -> Result<()> {
    let _ = stream.set_nodelay(true);
    // The VM may have been migrated or started again since the last connection.
    let machine: VirtualMachine = client.find(name).await?;
    let pod = exec::pod_of(client, &machine)?;
    let mut command = Command::start(client, &pod, &["connect", &remote.to_string()], true).await?;
    let broken = || Error::new(Code::Failed, "the connection could not be established");
    let mut to = command.stdin.take().ok_or_else(broken)?;
    let (mut from_client, mut to_client) = stream.into_split();
    let sending = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to).await;
        let _ = to.shutdown().await;
    });
    let receiving = async {
        let mut buffer = vec![0; 64 << 10];
        while let count @ 1.. = command.stdout.read(&mut buffer).await {
            if to_client.write_all(buffer.get(..count).unwrap_or_default()).await.is_err() {
                return true;
            }
        }
        let _ = to_client.shutdown().await;
        false
    };
    let (closed, errors) = tokio::join!(receiving, command.stderr.text());
    sending.abort();
    if closed { Ok(()) } else { command.ended(&errors).await }
}

/// `[LOCAL:]REMOTE`; 0 is any free port.
fn parse(text: &str) -> Result<(u16, u16)> {
    let port = |part: &str| part.parse::<u16>().ok().filter(|port| *port > 0);
    let parsed = match text.split_once(':') {
        None => port(text).map(|remote| (remote, remote)),
        Some(("", remote)) => port(remote).map(|remote| (0, remote)),
        Some((local, remote)) => local.parse().ok().zip(port(remote)),
    };
    parsed.ok_or_else(|| {
        Error::new(Code::Usage, format!("{text:?} is not a port"))
            .hint("write [LOCAL:]REMOTE, such as 5432 or 15432:5432")
    })
}

pub(crate) fn connect(settings: &Settings, args: &Connect) -> Result<Report> {
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        let machine = client.find(&args.name).await?;
        let pod = exec::pod_of(&client, &machine)?;
        let port = args.port.to_string();
        let mut command = Command::start(&client, &pod, &["connect", &port], true).await?;
        let broken = || Error::new(Code::Failed, "the connection could not be established");
        let mut to = command.stdin.take().ok_or_else(broken)?;
        // A read of standard input cannot be taken back; the process ends with its main task.
        tokio::spawn(async move {
            let mut input = tokio::io::stdin();
            let _ = tokio::io::copy(&mut input, &mut to).await;
            let _ = to.shutdown().await;
        });
        let (_, errors) = tokio::join!(command.stdout.show(|_| ()), command.stderr.text());
        command.ended(&errors).await?;
        Ok(Report::text(String::new()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_as_kubectl_takes_them() {
        assert_eq!(parse("80").unwrap(), (80, 80));
        assert_eq!(parse("8080:80").unwrap(), (8080, 80));
        assert_eq!(parse(":80").unwrap(), (0, 80));
        for wrong in ["", "0", "x", "80:", "80:0", "1:2:3", "70000"] {
            assert_eq!(parse(wrong).unwrap_err().code, Code::Usage, "{wrong}");
        }
    }
}
