//! The role `log`: copies lines from pipes to the log port or the console.
//!
//! A port without a connected host reports a hang-up at once when polled, so it is waited on edge by edge: the kernel
//! wakes us when the host connects, disconnects, or makes room.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use neonvm_types::guest::LOG_PORT;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::lines::{Queue, Splitter};
use crate::device::{port, uevent};

const SIGNALS: u64 = 0;
const UEVENTS: u64 = 1;
const OUTPUT: u64 = 2;
const FIRST_SOURCE: u64 = 16;
/// How long a port may take to be announced before the console is taken instead.
const PORT_PATIENCE: Duration = Duration::from_secs(2);
/// After this long without more, a line that was begun is passed on as it is.
const LINE_PATIENCE: Duration = Duration::from_secs(1);
/// What is left is written within this time after SIGTERM.
const LAST_WORDS: Duration = Duration::from_millis(500);

struct Source {
    file: File,
    splitter: Splitter,
    open: bool,
    waited_on: bool,
}

enum Output {
    /// Not determined yet.
    None,
    Port(File),
    Console(File),
}

struct Forwarder {
    epoll: OwnedFd,
    sources: Vec<Source>,
    queue: Queue,
    output: Output,
    started: Instant,
    patience: Duration,
}

/// Copies until SIGTERM. The arguments are the numbers of the descriptors to read.
pub fn run(arguments: &[String]) -> std::io::Result<()> {
    let signals = crate::system::signal_descriptor(&[libc::SIGTERM, libc::SIGINT])?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &signals, EventData::new_u64(SIGNALS), EventFlags::IN)?;
    let uevents = uevent::Listener::open().ok();
    if let Some(uevents) = &uevents {
        epoll::add(&epoll, uevents.descriptor(), EventData::new_u64(UEVENTS), EventFlags::IN)?;
    }
    let sources = arguments
        .iter()
        .filter_map(|argument| crate::system::adopt(argument.parse().ok()?))
        .map(|descriptor| Source {
            file: descriptor.into(),
            splitter: Splitter::default(),
            open: true,
            waited_on: false,
        })
        .collect();
    let mut forwarder = Forwarder {
        epoll,
        sources,
        queue: Queue::default(),
        output: Output::None,
        started: Instant::now(),
        patience: PORT_PATIENCE,
    };
    forwarder.choose_output();
    let mut events = Vec::with_capacity(16);
    loop {
        forwarder.wait_for_sources();
        epoll::wait(&forwarder.epoll, spare_capacity(&mut events), forwarder.timeout().as_ref())
            .or_else(|error| if error == rustix::io::Errno::INTR { Ok(0) } else { Err(error) })?;
        let idle = events.is_empty();
        for event in events.drain(..) {
            match event.data.u64() {
                SIGNALS => {
                    forwarder.finish();
                    return Ok(());
                }
                UEVENTS => {
                    while uevents.as_ref().and_then(|uevents| uevents.next().ok()).flatten().is_some() {}
                    forwarder.choose_output();
                }
                OUTPUT => {}
                number => forwarder.read(number.saturating_sub(FIRST_SOURCE)),
            }
        }
        if idle {
            forwarder.end_lines();
            forwarder.choose_output();
        }
        forwarder.write();
    }
}

impl Forwarder {
    fn choose_output(&mut self) {
        if matches!(self.output, Output::Port(_)) {
            return;
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed();
        let open = |path: &std::path::Path, read| {
            OpenOptions::new().read(read).write(true).custom_flags(flags).open(path).ok()
        };
        if let Some(file) = port::find(LOG_PORT).and_then(|node| open(&node, true)) {
            self.replace_output(Output::Port(file));
        } else if matches!(self.output, Output::None)
            && (self.started.elapsed() >= self.patience || !port::may_appear())
            && let Some(file) = open(std::path::Path::new("/dev/console"), false)
        {
            self.replace_output(Output::Console(file));
        }
    }

    fn replace_output(&mut self, output: Output) {
        self.output = output;
        if let Some(file) = self.output_file() {
            let flags = EventFlags::OUT | EventFlags::HUP | EventFlags::ET;
            // A console that cannot be waited on is written to when something is read.
            let _ = epoll::add(&self.epoll, file, EventData::new_u64(OUTPUT), flags);
        }
    }

    fn output_file(&self) -> Option<&File> {
        match &self.output {
            Output::None => None,
            Output::Port(file) | Output::Console(file) => Some(file),
        }
    }

    /// Whether a reader is connected; always true for a console.
    fn connected(&self) -> bool {
        match &self.output {
            Output::None => false,
            Output::Console(_) => true,
            Output::Port(file) => !hung_up(file.as_fd()),
        }
    }

    fn wait_for_sources(&mut self) {
        let room = self.queue.has_room(self.connected());
        for (index, source) in (FIRST_SOURCE..).zip(&mut self.sources) {
            let wanted = room && source.open;
            if wanted == source.waited_on {
                continue;
            }
            let result = if wanted {
                epoll::add(&self.epoll, &source.file, EventData::new_u64(index), EventFlags::IN)
            } else {
                epoll::delete(&self.epoll, &source.file)
            };
            match result {
                Ok(()) => source.waited_on = wanted,
                Err(_) => source.open = false,
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let partial = self.sources.iter().any(|source| source.splitter.has_partial());
        let undecided = matches!(self.output, Output::None) && self.started.elapsed() < self.patience;
        (partial || undecided).then_some(LINE_PATIENCE).and_then(|wait| Timespec::try_from(wait).ok())
    }

    fn read(&mut self, index: u64) {
        let connected = self.connected();
        let Some(source) = usize::try_from(index).ok().and_then(|index| self.sources.get_mut(index)) else {
            return;
        };
        let mut buffer = [0; 16 << 10];
        match source.file.read(&mut buffer) {
            Ok(0) => source.open = false,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                source.splitter.push(bytes, &mut self.queue, connected);
            }
            Err(error) => source.open = is_passing(&error),
        }
    }

    fn end_lines(&mut self) {
        let connected = self.connected();
        for source in &mut self.sources {
            source.splitter.flush(&mut self.queue, connected);
        }
    }

    fn write(&mut self) {
        if !self.connected() {
            return;
        }
        loop {
            let bytes = self.queue.head();
            if bytes.is_empty() {
                return;
            }
            let file = match &mut self.output {
                Output::None => return,
                Output::Port(file) | Output::Console(file) => file,
            };
            match file.write(bytes) {
                Ok(count) => self.queue.advance(count),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => return,
                Err(_) => {
                    // Unplugged; another may come.
                    self.output = Output::None;
                    self.started = Instant::now();
                    return;
                }
            }
        }
    }

    /// Reads what was printed until now and writes as much as goes within the time for it.
    fn finish(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        self.patience = self.started.elapsed() + LAST_WORDS / 2;
        while matches!(self.output, Output::None) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            self.choose_output();
        }
        loop {
            let mut more = false;
            for index in 0..self.sources.len() {
                if self.queue.has_room(self.connected()) {
                    let readable = self
                        .sources
                        .get(index)
                        .is_some_and(|source| source.open && readable(source.file.as_fd()));
                    if readable {
                        self.read(index as u64);
                        more = true;
                    }
                }
            }
            if !more {
                self.end_lines();
            }
            self.write();
            let left = deadline.saturating_duration_since(Instant::now());
            if (!more && self.queue.is_empty()) || left.is_zero() || !self.connected() {
                return;
            }
            if !more && let Some(file) = self.output_file() {
                let mut waited = [PollFd::new(file, PollFlags::OUT)];
                let _ = poll(&mut waited, Timespec::try_from(left).ok().as_ref());
            }
        }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted)
}

fn hung_up(descriptor: BorrowedFd<'_>) -> bool {
    state(descriptor, PollFlags::empty()).intersects(PollFlags::HUP | PollFlags::ERR)
}

fn readable(descriptor: BorrowedFd<'_>) -> bool {
    state(descriptor, PollFlags::IN).contains(PollFlags::IN)
}

fn state(descriptor: BorrowedFd<'_>, wanted: PollFlags) -> PollFlags {
    let mut waited = [PollFd::from_borrowed_fd(descriptor, wanted)];
    let _ = poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    waited.first().map_or(PollFlags::empty(), PollFd::revents)
}
