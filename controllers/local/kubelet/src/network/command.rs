//! `ip` and `nft`, in batches: one process for each batch.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

/// Longest time a batch may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a program to its end; what it prints.
pub(super) async fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<String> {
    let named = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), format!("the program {program} is not installed"))
        }
        _ => io::Error::new(error.kind(), format!("{program}: {error}")),
    };
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(named)?;
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // The program may end before it has read everything; its exit code gives the reason.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("{program} took more than 20 s"));
    let output = tokio::time::timeout(DEADLINE, work).await.map_err(late)?.map_err(named)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), text.join("; "))))
}

/// Lines for `ip -batch`, in a network namespace or in the node program's own.
pub(super) async fn ip(namespace: Option<&str>, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut arguments = vec!["-batch", "-"];
    if let Some(namespace) = namespace {
        arguments = vec!["-n", namespace, "-batch", "-"];
    }
    run("ip", &arguments, &(lines.join("\n") + "\n")).await.map(drop)
}

/// One question to `ip`.
pub(super) async fn ask(namespace: Option<&str>, question: &[&str]) -> io::Result<String> {
    let mut arguments = Vec::new();
    if let Some(namespace) = namespace {
        arguments.extend(["-n", namespace]);
    }
    arguments.extend(question);
    run("ip", &arguments, "").await
}

/// A script for `nft`; all of it takes effect, or nothing.
pub(super) async fn nft(script: &str) -> io::Result<()> {
    run("nft", &["-f", "-"], script).await.map(drop)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    /// Greatest packet.
    pub(super) mtu: u32,
}

/// The interfaces of a namespace, or of this process's.
pub(super) async fn links(namespace: Option<&str>) -> io::Result<Vec<Link>> {
    let text = ask(namespace, &["-o", "link", "show"]).await?;
    Ok(text.lines().filter_map(link).collect())
}

/// `3: eth0@if4: <…> mtu 1450 …`
fn link(line: &str) -> Option<Link> {
    let name = line.split(": ").nth(1)?.split('@').next()?.to_owned();
    let mut words = line.split_whitespace().skip_while(|word| *word != "mtu");
    Some(Link { name, mtu: words.nth(1)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ip_are_read() {
        let line =
            "3: eth0@if4: <BROADCAST,UP> mtu 1450 qdisc noqueue state UP \\    link/ether 02:00 brd ff:ff";
        assert_eq!(link(line), Some(Link { name: "eth0".to_owned(), mtu: 1450 }));
        assert_eq!(link("1: lo: <LOOPBACK> mtu 65536 qdisc").map(|link| link.mtu), Some(65536));
        assert_eq!((link(""), link("3: eth0: mtu")), (None, None));
    }
}
