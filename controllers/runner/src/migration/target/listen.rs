//! The target's port: accepts no peer but the other runner of the same VM.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use neonvm_core_migration::target::Event;
use neonvm_hypervisor::patience::scaled;
use neonvm_kit::places::{Class, Door, Places, Seat};
use neonvm_types::runner_protocol::{
    MIGRATION_PORT, MigrationAnswer, MigrationChannel, MigrationHello, MigrationOrder, MigrationState,
    MigrationStatus,
};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Work;
use crate::config::PodFiles;
use crate::migration::carrier::Guarded;
use crate::migration::connect::{TLS_BUFFER, hold_little, hold_little_for_qemu, read, tune, write};
use crate::migration::relay::{BACK, FORTH, carry};
use crate::migration::{INCOMING, LINE, NBD};

/// Time for the handshake and the greeting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at a time: those of QEMU, and two for orders. A connection without a greeting is closed for the next one, and
/// takes none of those of the source.
const PLACES: Places = Places { arriving: 256, strangers: 0, per_address: 0, known: 512 };

type Stream = TlsStream<TcpStream>;

/// Listens until the guard is dropped; connections that are open by then end by themselves.
pub(super) async fn listen(work: &Arc<Work>, pod: &PodFiles, address: SocketAddr) -> Result<Guarded, String> {
    let address = SocketAddr::new(address.ip(), MIGRATION_PORT);
    let tls = neonvm_kit::tls::private_server(&pod.certificate.identity(), &pod.certificate.authorities());
    let acceptor = TlsAcceptor::from(Arc::new(tls.map_err(|error| format!("certificate: {error}"))?));
    let taken = |error| format!("port {MIGRATION_PORT} cannot be listened on: {error}");
    let handle = work.carrier.handle().ok_or("no threads")?;
    let listener = std::net::TcpListener::bind(address).map_err(taken)?;
    listener.set_nonblocking(true).map_err(taken)?;
    let (work, door) = (Arc::clone(work), Door::new(PLACES));
    let carrier = handle.clone();
    let task = handle.spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else { return };
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                // Out of descriptors, most likely.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(seat) = door.enter(from.ip(), Class::Arriving).map(Arc::new) else { continue };
            let (work, acceptor) = (Arc::clone(&work), acceptor.clone());
            carrier.spawn(async move {
                let ended = tokio::select! {
                    ended = connection(&work, &acceptor, stream, &seat) => ended,
                    () = seat.given_away() => Err("others came before its greeting".to_owned()),
                };
                if let Err(why) = ended {
                    tracing::warn!(%from, why, "a connection for a migration was refused");
                }
            });
        }
    });
    Ok(task.into())
}

async fn connection(
    work: &Arc<Work>,
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    seat: &Arc<Seat>,
) -> Result<(), String> {
    tune(&stream);
    let late = |_| "no greeting in time".to_owned();
    let stream = tokio::time::timeout(scaled(PATIENCE), acceptor.accept(stream)).await.map_err(late)?;
    let mut stream = stream.map_err(|error| format!("TLS: {}", crate::certificate::words(&error)))?;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let names = peer.map(neonvm_kit::tls::dns_names).unwrap_or_default();
    if !names.contains(&work.name) {
        return Err(format!("its certificate is for {names:?}"));
    }
    seat.turn(Class::Known).map_err(|full| full.to_string())?;
    // Not closed for others from here on.
    let _open = seat.request();
    let hello = tokio::time::timeout(scaled(PATIENCE), read::<MigrationHello, _>(&mut stream)).await;
    let hello = hello.map_err(late)?.map_err(|error| format!("greeting: {error}"))?;
    if hello.channel == MigrationChannel::Memory {
        hold_little(stream.get_ref().0);
    }
    match greet(work, &hello).await {
        Ok(qemu) => {
            write(&mut stream, &MigrationAnswer::default()).await.map_err(|error| error.to_string())?;
            match qemu {
                Some(mut qemu) => {
                    carry(&mut stream, &mut qemu, FORTH, BACK).await;
                }
                None => orders(work, stream).await,
            }
            Ok(())
        }
        Err(error) => {
            let answer = MigrationAnswer { error: error.clone(), ..MigrationAnswer::default() };
            let _ = write(&mut stream, &answer).await;
            let _ = stream.shutdown().await;
            Err(error)
        }
    }
}

/// What a connection leads to: a socket of QEMU, or `None` for orders.
async fn greet(work: &Work, hello: &MigrationHello) -> Result<Option<UnixStream>, String> {
    if hello.id != work.id {
        return Err(format!("this target waits for the move {}, not {}", work.id, hello.id));
    }
    let socket = match hello.channel {
        MigrationChannel::Control => return Ok(None),
        MigrationChannel::Memory => INCOMING,
        MigrationChannel::Disk => NBD,
    };
    let state = work.status.borrow().state;
    // After the arrival there is nothing more to write, but for memory that follows.
    if !matches!(state, MigrationState::Receiving | MigrationState::PostCopy) {
        return Err(format!("this target is {state:?}"));
    }
    let path: PathBuf = work.machine.socket(socket).ok_or("the VM has no place for it")?;
    let stream = tokio::time::timeout(scaled(PATIENCE), UnixStream::connect(path)).await;
    let stream = stream.map_err(|_| "QEMU does not answer".to_owned())?;
    let stream = stream.map_err(|error| format!("QEMU: {error}"))?;
    if hello.channel == MigrationChannel::Memory {
        hold_little_for_qemu(&stream);
    }
    Ok(Some(stream))
}

/// Follows orders until the connection ends.
async fn orders(work: &Arc<Work>, stream: Stream) {
    let _talk = work.talks.begin();
    let (read, mut to) = tokio::io::split(stream);
    let mut from = BufReader::new(read);
    let mut status = work.status.clone();
    let mut line = Vec::new();
    loop {
        let order = tokio::select! {
            order = next(&mut from, &mut line) => order,
            words = failure(&mut status) => {
                let answer = MigrationAnswer { error: words, ..MigrationAnswer::default() };
                let _ = write(&mut to, &answer).await;
                let _ = to.shutdown().await;
                return;
            }
        };
        let Ok(order) = order else { break };
        let last = order == MigrationOrder::Stop;
        let answer = work.order(order).await;
        if reply(&mut to, &answer).await.is_err() || last {
            break;
        }
    }
    let _ = to.shutdown().await;
    let _ = work.report(Event::Lost).await;
}

async fn reply<W: AsyncWrite + Unpin>(to: &mut W, answer: &MigrationAnswer) -> std::io::Result<()> {
    write(to, answer).await
}

/// Why this end has failed, once it has.
async fn failure(status: &mut tokio::sync::watch::Receiver<MigrationStatus>) -> String {
    let failed = status.wait_for(|status| status.state == MigrationState::Failed).await;
    let words = failed.ok().map(|status| status.reason.clone());
    match words {
        Some(words) => words,
        None => std::future::pending().await,
    }
}

/// The next order. May be dropped at any time: what was read is kept in `line`.
async fn next<R: tokio::io::AsyncBufRead + Unpin>(
    from: &mut R,
    line: &mut Vec<u8>,
) -> std::io::Result<MigrationOrder> {
    use tokio::io::AsyncBufReadExt as _;
    let left = u64::try_from(LINE.saturating_sub(line.len())).unwrap_or(0);
    from.take(left).read_until(b'\n', line).await?;
    if line.last() != Some(&b'\n') {
        return Err(std::io::Error::other("closed"));
    }
    let order = serde_json::from_slice(line).map_err(std::io::Error::other);
    line.clear();
    order
}
