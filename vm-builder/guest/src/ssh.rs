//! The SSH server: one process a connection, key login only.
//!
//! The daemon accepts a connection and starts this program with it as standard input. The process keeps root's rights
//! for the protocol; what the client runs is started through [`login`], which takes the user's identity first.
//! Standard output is a pipe to the daemon: closing it reports that the client has logged in.

mod authorized;
mod channel;
mod forward;
mod handler;
mod host_key;
pub mod login;
mod options;
mod pump;
mod sftp;
mod shared;
mod terminal;

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::stdio;
use tokio::net::TcpStream;

pub use options::{Options, RUNTIME_KEYS};

/// How long a client may take to log in.
const LOGIN_DEADLINE: Duration = Duration::from_secs(30);
/// How often a silent client is sent a keepalive.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Questions without answer after which it is not.
const KEEPALIVES: usize = 3;
/// Most attempts to log in on a connection.
const ATTEMPTS: usize = 10;

/// Why a session could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("{what}: {source}")]
    System { what: &'static str, source: std::io::Error },
    #[error("host key: {0}")]
    HostKey(String),
    #[error(transparent)]
    Protocol(#[from] russh::Error),
}

impl Error {
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}

/// Serves the connection that is file descriptor 0 until it ends. The arguments are those after `ssh`; the forms
/// `--login …` and `--sftp` are how the server starts itself for a client's request.
///
/// # Errors
/// When the connection could not be served at all; what goes wrong within a session is logged.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    match arguments.split_first() {
        Some((form, rest)) if form == "--login" => login::run(rest),
        Some((form, _)) if form == "--sftp" => sftp::run(),
        _ => serve(Options::parse(arguments)?),
    }
}

fn serve(options: Options) -> Result<(), Error> {
    let key = host_key::load(&options.host_keys).map_err(Error::HostKey)?;
    let stream = take_connection()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(2)
        .build()
        .map_err(Error::system("start the event loop"))?;
    let result = runtime.block_on(connection(stream, options, key));
    // Threads that read terminals may still be blocked; this does not wait for them.
    runtime.shutdown_background();
    result
}

/// Moves the connection away from standard input, so that no child inherits it.
fn take_connection() -> Result<std::net::TcpStream, Error> {
    let connection =
        rustix::io::fcntl_dupfd_cloexec(stdio::stdin(), 3).map_err(Error::system("take the connection"))?;
    stdio::dup2_stdin(null()?).map_err(Error::system("leave standard input"))?;
    let stream = std::net::TcpStream::from(connection);
    stream.set_nonblocking(true).map_err(Error::system("take the connection"))?;
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let _ = rustix::net::sockopt::set_tcp_keepidle(&stream, KEEPALIVE);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, 120_000);
    Ok(stream)
}

fn null() -> Result<OwnedFd, Error> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    file.map(OwnedFd::from).map_err(Error::system("open /dev/null"))
}

/// Reports to the daemon that the client has logged in, by closing the pipe that is standard output.
fn logged_in() {
    if let Ok(null) = null() {
        let _ = stdio::dup2_stdout(null);
    }
}

async fn connection(
    stream: std::net::TcpStream,
    options: Options,
    key: russh::keys::PrivateKey,
) -> Result<(), Error> {
    let watch = stream.try_clone().map_err(Error::system("take the connection"))?;
    let addresses = shared::Addresses::from_stream(&stream, options.peer);
    let stream = TcpStream::from_std(stream).map_err(Error::system("take the connection"))?;
    let config = russh::server::Config {
        server_id: russh::SshId::Standard(concat!("SSH-2.0-neonvm_", env!("CARGO_PKG_VERSION")).into()),
        methods: russh::MethodSet::from(&[russh::MethodKind::PublicKey][..]),
        auth_rejection_time: Duration::from_millis(500),
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![key],
        max_auth_attempts: ATTEMPTS,
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: KEEPALIVES,
        event_buffer_size: 64,
        ..Default::default()
    };
    let (shared, mut authenticated) = shared::Shared::new(watch.into());
    let handler = handler::Handler::new(options, addresses, Arc::clone(&shared));
    let served = async {
        let session = russh::server::run_stream(Arc::new(config), stream, handler).await?;
        session.await
    };
    tokio::pin!(served);
    let result = tokio::select! {
        result = &mut served => Some(result),
        () = tokio::time::sleep(LOGIN_DEADLINE) => None,
        _ = authenticated.wait_for(|done| *done) => {
            logged_in();
            Some(served.await)
        }
    };
    shared.hang_up();
    result.unwrap_or_else(|| {
        log(&format!("no login within {} s", LOGIN_DEADLINE.as_secs()));
        Ok(())
    })
}

/// A line on standard error, which init forwards.
pub(crate) fn log(line: &str) {
    let _ = writeln!(std::io::stderr(), "neonvm-guest ssh: {line}");
}
