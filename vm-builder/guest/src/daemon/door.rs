//! The door of the SSH server: accepts connections and starts a process for each.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

/// Most sessions at a time.
const SESSIONS: usize = 32;
/// Most of them that have not logged in yet.
const STRANGERS: usize = 10;
/// How long a client may take to log in. The session ends by itself before; this is for one that hangs.
const LOGIN_DEADLINE: Duration = Duration::from_secs(35);

/// Accepts for ever. `options` are handed to every session.
pub(super) async fn serve(listener: TcpListener, options: Vec<String>) {
    let sessions = Arc::new(Semaphore::new(SESSIONS));
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    loop {
        let (stream, peer) = crate::http::accept(&listener).await;
        // Without room a connection is closed at once, because a client that waits would get no reason.
        let (Ok(session), Ok(stranger)) =
            (Arc::clone(&sessions).try_acquire_owned(), Arc::clone(&strangers).try_acquire_owned())
        else {
            continue;
        };
        match start(stream, peer, &options) {
            Ok(child) => {
                tokio::task::spawn_local(async move {
                    let _session = session;
                    attend(child, stranger).await;
                });
            }
            Err(error) => crate::log::of_daemon(&format!("start an SSH session: {error}")),
        }
    }
}

/// A session has the connection as standard input and closes standard output once the client has logged in.
fn start(stream: TcpStream, peer: SocketAddr, options: &[String]) -> std::io::Result<Child> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Command::new("/proc/self/exe")
        .arg("ssh")
        .arg(format!("--peer={peer}"))
        .args(options)
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(stream)))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

async fn attend(mut child: Child, stranger: tokio::sync::OwnedSemaphorePermit) {
    if let Some(mut signal) = child.stdout.take() {
        let mut byte = [0];
        let logged_in = tokio::time::timeout(LOGIN_DEADLINE, signal.read(&mut byte)).await;
        if logged_in.is_err() {
            let _ = child.start_kill();
        }
    }
    drop(stranger);
    let _ = child.wait().await;
}
