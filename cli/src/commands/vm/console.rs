//! `vm console`

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use neonvm_api::VirtualMachine;
use neonvm_api::virtual_machine::VirtualMachineStatus;
use neonvm_builder::out;
use rustix::termios::{self, OptionalActions, Termios};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::exec::{self, Command};
use super::waiting::until;
use crate::args::vm::Console;
use crate::commands::flags::duration;
use crate::commands::job::Stop;
use crate::commands::resource::NamespaceClient;
use crate::commands::watching::WaitProgress;
use crate::connect::block_on;
use crate::error::{Code, Error, Result};
use crate::render::Reporter;
use crate::report::Report;
use crate::settings::Settings;

/// Pause between two attempts to reach a VM that starts.
const AGAIN: Duration = Duration::from_millis(300);

/// The terminal without line editing and signals, until dropped.
struct Raw(Termios);

impl Raw {
    fn new() -> Option<Self> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = termios::tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

pub(crate) fn run(settings: &Settings, args: &Console, quiet: bool) -> Result<Report> {
    let escape = key(&args.escape)?;
    let boot = duration("boot-timeout", &args.boot_timeout)?;
    let record = match &args.record {
        Some(path) => Some(out::growing(path).map_err(|error| Error::file("write", path, &error))?),
        None => None,
    };
    block_on(async {
        let client = NamespaceClient::open(settings).await?;
        client.find::<VirtualMachine>(&args.name).await?;
        let command = reach(&client, args, boot).await?;
        let leave = written(escape);
        Reporter::lines(quiet)
            .show(&format!("connected to {} serial console; leave with {leave}", args.name));
        let raw = if args.read_only { None } else { Raw::new() };
        let ended = join(command, args.read_only, escape, record).await;
        let terminal = raw.is_some();
        drop(raw);
        if terminal {
            // The guest's last line was not ended; what follows begins on a line of its own.
            Reporter::lines(false).show("");
        }
        ended?;
        Ok(Report::text(String::new()))
    })
}

/// Waits until the VM has a console, which is as soon as QEMU runs.
async fn reach(client: &NamespaceClient, args: &Console, boot: Duration) -> Result<Command> {
    let start = Instant::now();
    let name = &args.name;
    let has_begun = |status: &VirtualMachineStatus| {
        !status.pod_name.is_empty() || status.phase.is_some_and(|phase| phase.is_alive())
    };
    loop {
        let left = boot.saturating_sub(start.elapsed());
        let waited = until(client, name, left, "phase=Running", |machine| match machine {
            None => WaitProgress::Never(Error::new(Code::NotFound, format!("{name} was deleted"))),
            Some(vm) if vm.status.as_ref().is_some_and(has_begun) => WaitProgress::Done,
            Some(_) => WaitProgress::NotYet,
        });
        let machine = waited.await?.object;
        let pod =
            machine.as_ref().map(|machine| exec::pod_of(client, machine)).transpose()?.unwrap_or_default();
        // The runner answers once the console is there; before, its message names what is missing.
        match exec::output(client, &pod, &["status"]).await {
            Ok(status) if status.contains("\"machine\"") => {
                return Command::start(client, &pod, &["console"], !args.read_only).await;
            }
            Err(error) if start.elapsed() > boot => return Err(Error { code: Code::Timeout, ..error }),
            _ if start.elapsed() > boot => {
                return Err(Error::new(
                    Code::Timeout,
                    format!("the console of {name} is not available after {boot:?}"),
                )
                .hint(format!("see why: neonctl vm describe {name}")));
            }
            Ok(_) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

async fn join(mut command: Command, read_only: bool, escape: u8, mut record: Option<File>) -> Result<()> {
    let to = command.stdin.take();
    let typed = async move {
        let (Some(mut to), false) = (to, read_only) else { return std::future::pending().await };
        let (mut input, mut buffer) = (tokio::io::stdin(), vec![0; 1024]);
        loop {
            let count = match input.read(&mut buffer).await {
                // A script has typed all it has; it may still want to see what comes of it.
                Ok(0) | Err(_) => return std::future::pending().await,
                Ok(count) => count,
            };
            let bytes = buffer.get(..count).unwrap_or_default();
            let until = bytes.iter().position(|byte| *byte == escape);
            let bytes = bytes.get(..until.unwrap_or(count)).unwrap_or_default();
            if to.write_all(bytes).await.is_err() || to.flush().await.is_err() || until.is_some() {
                return;
            }
        }
    };
    let shown = command.stdout.show(|bytes| {
        if let Some(file) = &mut record {
            let _ = file.write_all(bytes);
        }
    });
    let mut stop = Stop::listen()?;
    let is_over = tokio::select! {
        () = typed => false,
        is_over = shown => is_over,
        () = stop.requested() => false,
    };
    if is_over { command.unbroken().await } else { Ok(()) }
}

/// The byte of a key such as `^]`.
fn key(text: &str) -> Result<u8> {
    let bad = || {
        Error::new(Code::Usage, format!("--escape: {text:?} is not a key"))
            .hint("write ^ and a letter or one of ] \\ ^ _, such as ^] or ^A")
    };
    let mut characters = text.chars();
    match (characters.next(), characters.next(), characters.next()) {
        (Some('^'), Some(key), None) => {
            let key = u8::try_from(key.to_ascii_uppercase()).map_err(|_| bad())?;
            if (b'A'..=b'_').contains(&key) && key != b'[' { Ok(key & 0x1f) } else { Err(bad()) }
        }
        _ => Err(bad()),
    }
}

fn written(key: u8) -> String {
    format!("Ctrl-{}", char::from(key | 0x40))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        assert_eq!((key("^]").unwrap(), key("^a").unwrap(), key("^\\").unwrap()), (0x1d, 1, 0x1c));
        assert_eq!(written(0x1d), "Ctrl-]");
        for text in ["", "^", "x", "^[", "^]x", "^1", "^ü"] {
            assert_eq!(key(text).unwrap_err().code, Code::Usage, "{text}");
        }
    }
}
