//! A plain pod: a network namespace on the bridge of a node, as the kubelet of a local cluster makes it. Gone when it is dropped.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::super::super::disk::run;
use super::super::{LIMIT, milliseconds};
use crate::report::quantile;

pub(super) struct Pod {
    namespace: String,
    address: IpAddr,
    busybox: PathBuf,
    server: Option<Child>,
}

impl Pod {
    /// On the node of a VM whose pod has this address; `number` is the last part of the pod's own address.
    pub(super) fn beside(vm: IpAddr, number: u8, busybox: &Path) -> anyhow::Result<Self> {
        let IpAddr::V4(vm) = vm else { bail!("{vm} is not an IPv4 address") };
        let [one, two, three, _] = vm.octets();
        let gateway = format!("{one}.{two}.{three}.1");
        let node = node(&gateway)?;
        let process = std::process::id();
        // Names of interfaces have at most 15 characters.
        let (namespace, link) =
            (format!("bench-{process}-{three}-{number}"), format!("bench{three}-{number}"));
        let address: IpAddr = format!("{one}.{two}.{three}.{number}").parse()?;
        ip(&["netns", "add", &namespace])?;
        let pod = Self { namespace, address, busybox: busybox.to_owned(), server: None };
        let inner = &pod.namespace;
        ip(&["-n", &node, "link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", inner])?;
        ip(&["-n", &node, "link", "set", &link, "master", "br0", "up"])?;
        ip(&["-n", inner, "link", "set", "lo", "up"])?;
        ip(&["-n", inner, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(&["-n", inner, "link", "set", "eth0", "up"])?;
        ip(&["-n", inner, "route", "add", "default", "via", &gateway])?;
        Ok(pod)
    }

    pub(super) const fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn busybox(&self) -> String {
        self.busybox.display().to_string()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(&self.busybox).args(["sh", "-c", line]);
        command
    }

    /// Runs a line of shell in it until the pod ends.
    pub(super) fn serve(&mut self, line: &str) -> anyhow::Result<()> {
        let mut command = self.command(line);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn()?);
        Ok(())
    }

    /// Output of a line of shell in it.
    pub(super) fn shell(&self, line: &str) -> anyhow::Result<String> {
        run(&mut self.command(line))
    }

    /// Median microseconds in which a message of 64 bytes comes back.
    pub(super) async fn messages(&self, to: SocketAddr, count: usize) -> anyhow::Result<f64> {
        let namespace = File::open(Path::new("/run/netns").join(&self.namespace))?;
        // A thread of its own, which ends with its namespace.
        let (sender, receiver) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let done = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(anyhow::Error::from)
                .and_then(|()| exchange(to, count));
            // The measurement may have been interrupted.
            sender.send(done).ok();
        });
        receiver.await.map_err(|_| anyhow!("the thread of the messages panicked"))?
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // What it started is ended below.
            server.kill().ok();
            server.wait().ok();
        }
        let pids = ip(&["netns", "pids", &self.namespace]).unwrap_or_default();
        for pid in pids.split_whitespace() {
            Command::new("kill").args(["-9", pid]).status().ok();
        }
        ip(&["netns", "del", &self.namespace]).ok();
    }
}

/// The namespace of the node whose pods have this gateway.
fn node(gateway: &str) -> anyhow::Result<String> {
    for entry in std::fs::read_dir("/run/netns")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let shown = ip(&["-n", &name, "-o", "-4", "addr", "show", "dev", "br0"]).unwrap_or_default();
        if shown.contains(&format!(" {gateway}/")) {
            return Ok(name);
        }
    }
    bail!("no node has the gateway {gateway}")
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    run(Command::new("ip").args(arguments))
}

fn exchange(to: SocketAddr, count: usize) -> anyhow::Result<f64> {
    let mut stream = connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let (mut times, mut back) = (Vec::new(), [0; 64]);
    for _ in 0..count {
        let begun = Instant::now();
        stream.write_all(&[b'x'; 64])?;
        stream.read_exact(&mut back)?;
        times.push(milliseconds(begun.elapsed()) * 1e3);
    }
    Ok(quantile(&mut times, 0.5))
}

/// The server may not listen yet.
fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let until = Instant::now() + LIMIT;
    loop {
        match TcpStream::connect_timeout(&to, Duration::from_secs(3)) {
            Ok(stream) => return Ok(stream),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => return Err(error).with_context(|| format!("{to}")),
        }
    }
}
