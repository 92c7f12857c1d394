//! The guest's memory in a file of the directory [`super::Resources::store`]. From QEMU 9 on, QEMU writes and reads it (`mapped-ram`), and the
//! next QEMU can have the file as memory instead of reading it ([`Stored::map`]). Older ones send the memory as they would send it to another
//! QEMU, and this process writes it down.

pub mod layout;
mod mapped;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use neonvm_types::Bytes;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

pub use mapped::{Mapped, Stored};

use super::migration::{MAPPED_RAM, MigrationError, MigrationPhase, Settings};
use super::{Machine, MachineEvent};
use crate::installation::Version;
use crate::patience::scaled;

/// Name of the socket, in the directory of sockets for migrations.
const SOCKET: &str = "state";
/// Bytes that are copied at once.
const CHUNK: usize = 256 << 10;
/// Bytes in a second that QEMU may send: as many as the disk takes.
const BANDWIDTH: Bytes = Bytes::gib(1024);
/// Time without a byte after which a transfer has failed.
const SILENCE: Duration = Duration::from_secs(30);
/// Time for QEMU to report the end of a transfer.
const END: Duration = Duration::from_secs(30);
/// Time for a cancelled transfer to end.
const CANCEL: Duration = Duration::from_secs(5);

/// Why the memory of a guest is not stored, or not loaded.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or a socket.
    #[error("{what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// QEMU refuses, or does not answer.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// The transfer ended in another way than it should.
    #[error("QEMU: the transfer of the memory ended as {0}")]
    Ended(String),
    /// Another QEMU has written it.
    #[error("QEMU {wrote} has written the memory, and {reads} would read it")]
    Version { wrote: Version, reads: Version },
    /// The guest is needed.
    #[error("cancelled")]
    Cancelled,
}

impl From<crate::qmp::QmpError> for StateError {
    fn from(error: crate::qmp::QmpError) -> Self {
        Self::Migration(error.into())
    }
}

/// The guest stands still, so that one pass is enough. One thread writes: with more (`multifd`) a transfer that is cancelled ends QEMU 10.0 now
/// and then, because it frees the map of pages while they still write, and the guest is lost.
fn settings(mapped: bool) -> Settings {
    let capabilities: &[&str] = if mapped { &["events", MAPPED_RAM] } else { &["events"] };
    Settings {
        capabilities: capabilities.iter().map(|&name| name.to_owned()).collect(),
        bandwidth: BANDWIDTH,
        downtime_limit_ms: 0,
        channels: 1,
        compression: neonvm_types::runner_protocol::Compression::None,
    }
}

impl Machine {
    /// Address by which QEMU writes or reads a file in its store; `None`: it writes to a stream only.
    fn address(&self, path: &Path) -> Option<String> {
        let store = self.store.as_ref().filter(|_| self.version >= mapped::SINCE)?;
        Some(format!("file:{}", store.path_of_qemu(path.file_name()?.to_str()?)))
    }

    /// Writes the memory and the devices of a stopped guest to a new file of the store, which only this user reads. Afterwards, and after an
    /// error, [`Machine::continue_`] lets the guest run on, or [`Machine::quit`] ends QEMU.
    ///
    /// # Errors
    /// If QEMU or the file system refuses, and [`StateError::Cancelled`] if `cancelled` came first; there is no file then.
    pub async fn store_memory(
        &self,
        path: &Path,
        cancelled: impl Future<Output = ()>,
    ) -> Result<Stored, StateError> {
        let failed = |source| StateError::File { what: "cannot write", path: path.to_owned(), source };
        let _ = std::fs::remove_file(path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        let stored = self.store_to(&file, path, cancelled).await;
        if stored.is_err() {
            let _ = std::fs::remove_file(path);
        }
        stored?;
        let blocks = file.metadata().map_err(failed)?.blocks();
        Ok(Stored::new(Bytes::new(blocks * 512), self.version))
    }

    async fn store_to(
        &self,
        file: &File,
        path: &Path,
        cancelled: impl Future<Output = ()>,
    ) -> Result<(), StateError> {
        let failed = |source| StateError::File { what: "cannot write", path: path.to_owned(), source };
        let address = self.address(path);
        self.set_migration(&settings(address.is_some())).await?;
        let mut events = self.events();
        let copied = match address {
            Some(address) => {
                self.send_stopped(&address).await?;
                None
            }
            None => Some(self.copied_to(file.try_clone().map_err(failed)?).await?),
        };
        let ended = async {
            let phase = end_of(&mut events).await;
            if phase != MigrationPhase::Completed {
                return Err(self.ended(phase).await);
            }
            let Some(copied) = copied else { return Ok(()) };
            let bytes = copied.await.map_err(|error| failed(io::Error::other(error)))?;
            bytes.map(drop).map_err(failed)
        };
        tokio::select! {
            stored = ended => stored,
            () = cancelled => {
                let mut events = self.events();
                self.cancel_migration().await?;
                let _ = tokio::time::timeout(scaled(CANCEL), end_of(&mut events)).await;
                Err(StateError::Cancelled)
            }
        }
    }

    /// Begins to send the memory as a stream, which a thread writes down.
    async fn copied_to(&self, file: File) -> Result<JoinHandle<io::Result<u64>>, StateError> {
        let socket = self.socket(SOCKET).ok_or(MigrationError::NoMeeting)?;
        let listener = listen(&socket).map_err(|source| StateError::File {
            what: "cannot listen on",
            path: socket.clone(),
            source,
        })?;
        let copied = tokio::task::spawn_blocking(move || {
            let (from, _) = listener.accept()?;
            let _ = std::fs::remove_file(&socket);
            copy(from, file)
        });
        self.send_stopped(&self.address_of_socket(SOCKET)?).await?;
        Ok(copied)
    }

    /// Gives a machine that was started for it ([`crate::plan::MachinePlan::incoming`]) the memory and the devices that a file has. Its guest
    /// stands still until [`Machine::continue_`].
    ///
    /// # Errors
    /// If another version of QEMU has written the file, it cannot be read, or QEMU does not take what it has: the machine is of no use then.
    pub async fn load_memory(&self, path: &Path, stored: &Stored) -> Result<(), StateError> {
        stored.is_for(self.version)?;
        let failed = |source| StateError::File { what: "cannot read", path: path.to_owned(), source };
        let address = self.address(path);
        self.set_migration(&settings(address.is_some())).await?;
        let mut events = self.events();
        let copied = match address {
            Some(address) => {
                self.receive_from(&address).await?;
                None
            }
            None => {
                let (file, socket) = (
                    File::open(path).map_err(failed)?,
                    self.socket(SOCKET).ok_or(MigrationError::NoMeeting)?,
                );
                self.receive_memory(SOCKET).await?;
                Some(tokio::task::spawn_blocking(move || {
                    let to = UnixStream::connect(&socket)?;
                    to.set_write_timeout(Some(scaled(SILENCE)))?;
                    copy(file, to)
                }))
            }
        };
        // QEMU has its own word for a file that does not fit, which is better than that of the socket.
        let phase = end_of(&mut events).await;
        if let Some(copied) = copied {
            copied.await.map_err(|error| failed(io::Error::other(error)))?.map_err(failed)?;
        }
        if phase == MigrationPhase::Completed { Ok(()) } else { Err(self.ended(phase).await) }
    }

    /// A transfer that has ended in another way than it should, with QEMU's reason if it gives one.
    async fn ended(&self, phase: MigrationPhase) -> StateError {
        let reason = self.migration().await.map(|info| info.error).unwrap_or_default();
        let colon = if reason.is_empty() { "" } else { ": " };
        StateError::Ended(format!("{phase:?}{colon}{reason}"))
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    // The directory is accessible to QEMU only.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777))?;
    Ok(listener)
}

/// Copies until the end; returns the number of bytes.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..count).unwrap_or_default())?;
        total += count as u64;
    }
}

/// The phase in which the transfer ends; [`MigrationPhase::Failed`] as well if QEMU reports none in time.
async fn end_of(events: &mut Receiver<MachineEvent>) -> MigrationPhase {
    let end = async {
        loop {
            match events.recv().await {
                Ok(MachineEvent::Migration(phase)) if phase.is_over() => return phase,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return MigrationPhase::Failed,
            }
        }
    };
    tokio::time::timeout(scaled(END), end).await.unwrap_or(MigrationPhase::Failed)
}
