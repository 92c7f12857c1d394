//! The role `dhcp <interface>`: a child of init that keeps an interface's address.
//!
//! A UDP socket bound to the interface is enough: the kernel sends and takes broadcasts before there is an address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::client::{Action, Client};
use super::packet::{Offer, Reply};
use super::{hosts, link, resolver};
use crate::report;

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Flag with the content that the resolver's configuration has.
pub const RESOLVER: &str = "--resolver=";

/// Runs until killed. With `--hostname` the name of this host is taken from the server, too. `--resolver=TEXT` is the content that
/// `/etc/resolv.conf` was given before: it is written only when the server has another one, since the image may have changed it.
pub fn run(arguments: &[String]) -> io::Result<()> {
    let takes_name = arguments.iter().any(|argument| argument == "--hostname");
    let resolver = arguments.iter().find_map(|argument| argument.strip_prefix(RESOLVER)).map(str::to_owned);
    let name =
        arguments.iter().find(|argument| !argument.starts_with("--")).ok_or(io::ErrorKind::InvalidInput)?;
    let mut links = link::Links::open()?;
    let changes = link::changes()?;
    links.up(name, None)?;
    let hardware = link::hardware_address(name)?;
    let socket = open_socket(name)?;
    let mut seed = [0; 4];
    rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::INSECURE)?;
    let mut client = Client::new(hardware, u32::from_ne_bytes(seed), report::uptime());
    let mut worker = Worker { name, links, socket, takes_name, resolver };
    let mut carrier = link::has_carrier(name);
    loop {
        let now = report::uptime();
        if carrier {
            let actions = client.tick(now);
            worker.act(actions);
        }
        let wake = client.wake_at().filter(|_| carrier).map(|at| at.saturating_sub(report::uptime()));
        wait(&worker.socket, &changes, wake)?;
        link::drain(&changes);
        let has_carrier = link::has_carrier(name);
        if has_carrier && !carrier {
            client.link_up(report::uptime());
        }
        carrier = has_carrier;
        let mut buffer = [0; 2048];
        while let Ok((length, _)) = worker.socket.recv_from(&mut buffer) {
            if let Some(reply) = Reply::parse(buffer.get(..length).unwrap_or_default()) {
                let actions = client.receive(&reply, report::uptime());
                worker.act(actions);
            }
        }
    }
}

fn open_socket(name: &str) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_broadcast(&socket, true)?;
    crate::system::bind_to_interface(socket.as_fd(), name)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT))?;
    Ok(socket.into())
}

fn wait(socket: &UdpSocket, changes: &impl AsFd, wake: Option<Duration>) -> io::Result<()> {
    let mut waited = [PollFd::new(socket, PollFlags::IN), PollFd::new(changes, PollFlags::IN)];
    let timeout = wake.and_then(|wake| Timespec::try_from(wake).ok());
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Worker<'a> {
    name: &'a str,
    links: link::Links,
    socket: UdpSocket,
    takes_name: bool,
    /// What was written to the resolver's configuration last.
    resolver: Option<String>,
}

impl Worker<'_> {
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(query, to) => {
                    let to = SocketAddrV4::new(to.unwrap_or(Ipv4Addr::BROADCAST), SERVER_PORT);
                    // A lost message is sent again in time.
                    let _ = self.socket.send_to(&query.encode(), to);
                }
                Action::Configure(offer) => self.configure(&offer),
                Action::Remove(offer) => {
                    let _ = self.links.remove_address(self.name, offer.address, offer.prefix);
                    report::fail(&format!("{}: lost the lease of {}", self.name, offer.address));
                }
            }
        }
    }

    fn configure(&mut self, offer: &Offer) {
        let name = self.name;
        let mut problems = Vec::new();
        let mut note = |what: &str, result: io::Result<()>| {
            if let Err(error) = result {
                problems.push(format!("{what}: {error}"));
            }
        };
        note("address", self.links.add_address(name, offer.address, offer.prefix));
        if offer.mtu.is_some() {
            note("MTU", self.links.up(name, offer.mtu));
        }
        // Routes on the link come first: others may lead through them.
        let (on_link, others): (Vec<_>, Vec<_>) =
            offer.routes.iter().copied().partition(|(.., router)| router.is_unspecified());
        for (destination, prefix, router) in on_link.into_iter().chain(others) {
            let router = Some(router).filter(|router| !router.is_unspecified());
            note("route", self.links.add_route(name, destination, prefix, router));
        }
        if let Some(text) = resolver::render(offer).filter(|text| self.resolver.as_ref() != Some(text)) {
            note(resolver::PATH, resolver::write(Path::new(resolver::PATH), &text));
            self.resolver = Some(text);
        }
        if let Some(hostname) = offer.hostname.as_ref().filter(|_| self.takes_name) {
            note("host name", rustix::system::sethostname(hostname.as_bytes()).map_err(Into::into));
        }
        note(hosts::HOSTS, hosts::write(Some(offer.address)));
        if !problems.is_empty() {
            report::fail(&format!("{name}: settings by DHCP: {}", problems.join("; ")));
        }
    }
}
