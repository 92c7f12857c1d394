//! Requests to the node service, which makes what this process has no right to.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use neonvm_hypervisor::cgroup::CpuGroup;
use neonvm_types::node_protocol::{
    Answer, LONGEST_ANSWER, Link, LinkFile, Refusal, Request, Traffic, VERSION, Wants,
};
use neonvm_types::runner_protocol::{Problem, ProblemReason, RunnerStatus};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::sync::watch;

use super::Error;
use crate::config::through;

/// Time for an answer: the service may wait for the API server.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a service that is not there, or cannot answer yet, is asked again.
const AGAIN: Duration = Duration::from_secs(120);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// Files of an answer, at most.
const MOST_FILES: usize = 8;

/// The service of this node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its socket.
    pub(crate) socket: PathBuf,
    /// Where it is reported that the VM waits for the service.
    pub(crate) status: Reports,
}

/// The runner's status, while nothing but its preparation writes it.
pub(crate) type Reports = watch::Sender<Arc<RunnerStatus>>;

/// The files of a link; those that it has.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) tap: Option<OwnedFd>,
    pub(crate) dhcp: Option<OwnedFd>,
    pub(crate) advertisements: Option<OwnedFd>,
    pub(crate) overlay: Option<OwnedFd>,
    pub(crate) copies: Option<OwnedFd>,
}

impl Node {
    /// The guest's network. Waits while the service is not there: it may be starting. Blocks.
    pub(crate) fn network(&self) -> Result<(Link, Files), Error> {
        match self.ask_until(Wants::Network)? {
            (Answer::Network(link), files) => {
                let files = named(&link.files, files)?;
                Ok((link, files))
            }
            _ => Err(Error::Answer),
        }
    }

    /// The cgroup for the threads of the vCPUs. Waits as [`Self::network`]. Blocks.
    pub(crate) fn cpu(&self) -> Result<CpuGroup, String> {
        let (answer, files) = self.ask_until(Wants::Cpu).map_err(|error| error.to_string())?;
        let Answer::Cpu(made) = answer else { return Err(Error::Answer.to_string()) };
        let files = made.files.iter().copied().zip(files.into_iter().map(File::from)).collect();
        CpuGroup::of(made.version, files).map_err(|error| error.to_string())
    }

    /// Asks again while the service is not there, or cannot answer yet.
    fn ask_until(&self, wants: Wants) -> Result<(Answer, Vec<OwnedFd>), Error> {
        let until = Instant::now() + AGAIN;
        let mut waits = false;
        loop {
            let refusal = match self.ask(wants) {
                Ok((Answer::Refused(refusal), _)) => refusal,
                Ok(given) => {
                    if waits {
                        self.report(None);
                    }
                    return Ok(given);
                }
                Err(error) => self.missing(&error),
            };
            if !refusal.later || Instant::now() > until {
                return Err(Error::Refused(refusal.reason));
            }
            if !waits {
                tracing::warn!(reason = refusal.reason, "waiting for the node service");
                self.report(Some(refusal.reason));
                waits = true;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reports what the VM waits for, or that it does not wait any more.
    fn report(&self, waits_for: Option<String>) {
        let away = ProblemReason::NodeServiceAway;
        self.status.send_modify(|status| {
            let status = Arc::make_mut(status);
            status.sequence += 1;
            status.problems.retain(|problem| problem.reason != away);
            status.problems.extend(waits_for.map(|message| Problem { reason: away, message }));
        });
    }

    /// The counters of the guest's traffic. Blocks.
    pub(crate) fn traffic(&self) -> Result<Traffic, Error> {
        match self.ask(Wants::Traffic) {
            Ok((Answer::Traffic(traffic), _)) => Ok(traffic),
            Ok((Answer::Refused(refusal), _)) => Err(Error::Refused(refusal.reason)),
            Ok(_) => Err(Error::Answer),
            Err(error) => Err(Error::Refused(self.missing(&error).reason)),
        }
    }

    /// Why there is no answer.
    fn missing(&self, error: &io::Error) -> Refusal {
        let reason = format!(
            "no answer at {}: {error}; does the node service run on this node (DaemonSet neonvm-node)?",
            self.socket.display()
        );
        Refusal { reason, later: true }
    }

    fn ask(&self, wants: Wants) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let stream = connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(&Request { version: VERSION, wants })?;
        line.push(b'\n');
        (&stream).write_all(&line)?;
        receive(&stream)
    }
}

/// Addresses of sockets are short; paths may not be.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return UnixStream::connect(socket);
    };
    let directory = File::open(directory)?;
    UnixStream::connect(through(&directory).join(name))
}

/// Reads an answer: its files come with the first bytes.
fn receive(stream: &UnixStream) -> io::Result<(Answer, Vec<OwnedFd>)> {
    let mut bytes = vec![0; LONGEST_ANSWER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let first = {
        let mut target = [IoSliceMut::new(&mut bytes)];
        recvmsg(stream, &mut target, &mut beside, RecvFlags::CMSG_CLOEXEC)?.bytes
    };
    let mut files = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    bytes.truncate(first);
    if first == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let left = LONGEST_ANSWER - first;
    stream.take(left as u64).read_to_end(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, files))
}

/// The files by what they are.
fn named(kinds: &[LinkFile], files: Vec<OwnedFd>) -> Result<Files, Error> {
    if kinds.len() != files.len() {
        return Err(Error::Answer);
    }
    let mut all = Files::default();
    for (kind, file) in kinds.iter().zip(files) {
        let place = match kind {
            LinkFile::Tap => &mut all.tap,
            LinkFile::Dhcp => &mut all.dhcp,
            LinkFile::Advertisements => &mut all.advertisements,
            LinkFile::OverlayTap => &mut all.overlay,
            LinkFile::OverlayCopies => &mut all.copies,
        };
        *place = Some(file);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use neonvm_types::node_protocol::LinkFile;

    use super::*;

    /// A service that gives each connection the next of these answers.
    fn service(directory: &Path, answers: Vec<&'static str>) -> (Node, std::thread::JoinHandle<()>) {
        let socket = directory.join("node.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].starts_with(b"{\"version\":1,\"wants\":"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        (node(socket), serving)
    }

    fn node(socket: PathBuf) -> Node {
        Node { socket, status: watch::channel(Arc::default()).0 }
    }

    #[test]
    fn a_refusal_for_now_is_waited_for_and_one_for_good_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let answers = vec![
            r#"{"refused":{"reason":"the API server does not answer","later":true}}"#,
            "",
            r#"{"refused":{"reason":"pod db-1 is being deleted"}}"#,
        ];
        let (node, serving) = service(directory.path(), answers);
        let error = node.network().unwrap_err().to_string();
        assert!(error.contains("pod db-1 is being deleted"), "{error}");
        serving.join().unwrap();
    }

    /// Who looks at the VM sees what it waits for, and no more of it afterwards.
    #[test]
    fn it_is_reported_that_a_vm_waits_for_the_service() {
        let directory = tempfile::tempdir().unwrap();
        let node = node(directory.path().join("node.sock"));
        let asking = node.clone();
        let asking = std::thread::spawn(move || asking.ask_until(Wants::Traffic));
        let report = || node.status.borrow().problems.first().cloned();
        let waits = neonvm_test_support::eventually_blocking(|| "the report".to_owned(), report);
        assert_eq!(waits.reason, ProblemReason::NodeServiceAway);
        assert!(waits.message.contains("DaemonSet neonvm-node"), "{}", waits.message);
        let (_, serving) = service(directory.path(), vec![r#"{"traffic":{"ingress":1,"egress":2}}"#]);
        assert!(matches!(asking.join().unwrap(), Ok((Answer::Traffic(_), _))));
        serving.join().unwrap();
        assert!(node.status.borrow().problems.is_empty());
    }

    #[test]
    fn files_have_to_be_those_of_the_answer() {
        let directory = tempfile::tempdir().unwrap();
        let answer =
            r#"{"network":{"files":["tap"],"mtu":1450,"nameServers":[],"nameServersV6":[],"search":[]}}"#;
        let (node, serving) = service(directory.path(), vec![answer]);
        assert!(matches!(node.network(), Err(Error::Answer)), "a file is missing");
        serving.join().unwrap();
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let files = named(&[LinkFile::OverlayTap, LinkFile::Tap], vec![file(), file()]).unwrap();
        assert!(files.overlay.is_some() && files.tap.is_some() && files.dhcp.is_none());
    }

    /// A service of an earlier version does not know the request; the VM runs without.
    #[test]
    fn a_cgroup_of_missing_files_and_of_an_older_service_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let answers = vec![
            r#"{"cpu":{"version":"v2","files":["threads"]}}"#,
            r#"{"refused":{"reason":"the request is not understood: unknown variant `cpu`"}}"#,
            r#"{"traffic":{"ingress":1,"egress":2}}"#,
        ];
        let (node, serving) = service(directory.path(), answers);
        for part in ["of the cgroup is missing", "unknown variant `cpu`", "does not belong to the request"] {
            let error = node.cpu().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        serving.join().unwrap();
    }

    #[test]
    fn a_service_that_is_not_there_is_named() {
        let node = node("/no/such/directory/node.sock".into());
        let error = node.traffic().unwrap_err().to_string();
        assert!(error.contains("DaemonSet neonvm-node") && error.contains("/no/such/directory"), "{error}");
    }
}
