//! A connection between two runners that holds a migration up at an exact place. It reads nothing but the lengths of
//! TLS records: each order, and each reply, is one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use neonvm_types::runner_protocol::MIGRATION_PORT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::lab::address;

/// Frames that are read ahead, so that the end of a connection is noticed behind what is held.
const AHEAD: usize = 256;
/// Bytes of disks and memory that are carried at once.
const CHUNK: usize = 64 << 10;
/// A record with less is the end of a connection, not disks or memory.
const END: usize = 64;

/// What does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// Disks and memory: the migration does not get beyond its beginning.
    Bulk,
    /// The order to finish the disks, and all after it.
    Settle,
    /// What is left of memory once the disks are finished, and all after it.
    Rest,
    /// The order to let the guest run, and all after it.
    Run,
    Answer,
    /// What the source sends once the guest runs at the target, and all after it.
    Farewell,
}

/// What passes now.
#[derive(Debug)]
struct Gate {
    orders: u32,
    answers: u32,
    bulk: bool,
    /// Whether disks and memory pass no longer than orders do.
    bulk_with_orders: bool,
    /// Whether something waits.
    holding: bool,
}

impl From<Hold> for Gate {
    /// Orders since the disks are copied: to claim frames, to finish the disks, to let the guest run.
    fn from(hold: Hold) -> Self {
        let (orders, answers) = match hold {
            Hold::Nothing | Hold::Bulk => (u32::MAX, u32::MAX),
            Hold::Settle => (1, u32::MAX),
            Hold::Rest | Hold::Run => (2, u32::MAX),
            Hold::Answer => (u32::MAX, 2),
            Hold::Farewell => (3, u32::MAX),
        };
        let bulk_with_orders = hold == Hold::Rest;
        Self { orders, answers, bulk: hold != Hold::Bulk, bulk_with_orders, holding: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Order,
    Answer,
    Bulk,
}

impl Gate {
    fn lets(&mut self, way: Way, length: usize) -> bool {
        let left = match way {
            Way::Order => &mut self.orders,
            Way::Answer => &mut self.answers,
            Way::Bulk => {
                let passes = self.bulk && !(self.bulk_with_orders && self.orders == 0);
                self.holding |= !passes && length > END;
                return passes;
            }
        };
        let passes = *left > 0;
        if *left != u32::MAX {
            *left = left.saturating_sub(1);
        }
        self.holding |= !passes;
        passes
    }
}

struct Shared {
    gate: watch::Sender<Gate>,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
}

/// The way; what is on it ends when it is dropped.
pub(crate) struct Link {
    /// Where a source finds its target.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// To the runner at `target`.
    pub(crate) async fn to(target: IpAddr, hold: Hold) -> Self {
        let listener = TcpListener::bind((address(), 0)).await.unwrap();
        let own = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { gate: watch::Sender::new(hold.into()), cuts: watch::Sender::new(0) });
        let carrier = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            // The first is for orders.
            let mut ways = (Way::Order, Way::Answer);
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect((target, MIGRATION_PORT)).await else { continue };
                open.spawn(carry(Arc::clone(&carrier), ways, near, far));
                ways = (Way::Bulk, Way::Bulk);
            }
        });
        Self { address: own, shared, task }
    }

    /// From now on this is held, and nothing else.
    pub(crate) fn hold(&self, hold: Hold) {
        self.shared.gate.send_replace(hold.into());
    }

    /// Whether something has come that is held.
    pub(crate) fn is_holding(&self) -> bool {
        self.shared.gate.borrow().holding
    }

    /// Ends all connections, with what they hold. New ones can be made.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn carry(shared: Arc<Shared>, (forth, back): (Way, Way), near: TcpStream, far: TcpStream) {
    let mut cut = shared.cuts.subscribe();
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_from, near_to), (far_from, far_to)) = (near.into_split(), far.into_split());
    let both = async {
        tokio::try_join!(
            one_way(&shared, forth, near_from, far_to),
            one_way(&shared, back, far_from, near_to)
        )
    };
    // What is let pass after a cut has gone with it.
    tokio::select! {
        biased;
        _ = cut.changed() => {}
        _ = both => {}
    }
}

/// Until one end closes. What is held by then is lost, and so is the connection.
async fn one_way(
    shared: &Shared,
    way: Way,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> Result<(), ()> {
    let (sender, mut frames) = mpsc::channel::<Vec<u8>>(AHEAD);
    let (ended, mut end) = watch::channel(false);
    let reader = async move {
        while let Some(frame) = read(&mut from, way).await {
            if sender.send(frame).await.is_err() {
                break;
            }
        }
        ended.send_replace(true);
        Ok(())
    };
    let writer = async {
        while let Some(frame) = frames.recv().await {
            pass(shared, way, frame.len(), &mut end).await?;
            to.write_all(&frame).await.map_err(drop)?;
        }
        to.shutdown().await.map_err(drop)
    };
    tokio::try_join!(reader, writer).map(drop)
}

/// The next record, or whatever has come of disks and memory.
async fn read(from: &mut OwnedReadHalf, way: Way) -> Option<Vec<u8>> {
    if way == Way::Bulk {
        let mut bytes = vec![0; CHUNK];
        let length = from.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        bytes.truncate(length);
        return Some(bytes);
    }
    // RFC 8446, 5.1: type, version, length.
    let mut frame = vec![0; 5];
    from.read_exact(&mut frame).await.ok()?;
    let length = usize::from(u16::from_be_bytes([frame[3], frame[4]]));
    frame.resize(5 + length, 0);
    from.read_exact(&mut frame[5..]).await.ok()?;
    Some(frame)
}

/// Waits until it may pass; an error if the connection has ended before.
async fn pass(shared: &Shared, way: Way, length: usize, end: &mut watch::Receiver<bool>) -> Result<(), ()> {
    let mut gate = shared.gate.subscribe();
    loop {
        let mut passes = false;
        // No notification: whether this one passes changes nothing for the others.
        shared.gate.send_if_modified(|gate| {
            passes = gate.lets(way, length);
            false
        });
        if passes {
            return Ok(());
        }
        tokio::select! {
            _ = gate.changed() => {}
            _ = end.wait_for(|ended| *ended) => return Err(()),
        }
    }
}
