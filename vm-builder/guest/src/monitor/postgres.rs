//! The file cache of PostgreSQL, as the Neon extension has it: `neon.file_cache_size_limit`, at most
//! `neon.max_file_cache_size`.
//!
//! A connection is made for each change and closed after it: sizes change rarely, and an idle connection costs a server
//! process. PostgreSQL without the extension takes the two settings as placeholders when they are in its
//! `postgresql.conf`; that is how this is tested.

mod authenticate;
mod connection;
mod target;

use std::time::Duration;

pub use connection::Connection;
pub use target::{Host, Target};

const MIB: u64 = 1 << 20;
/// Pause before the second attempt: a server that restarts is back soon.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Why PostgreSQL did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("connection to PostgreSQL: {0}")]
    Io(#[from] std::io::Error),
    #[error("PostgreSQL: {0}")]
    Server(String),
    #[error("PostgreSQL: protocol: {0}")]
    Protocol(&'static str),
    /// The server requires a kind of password that is not supported, or one that is unknown.
    #[error("PostgreSQL: password: {0}")]
    Password(&'static str),
}

/// Gives the cache `size` bytes, rounded down to MiB, or its maximum if that is less. Returns the bytes it was given.
/// A connection that fails is made once more.
///
/// # Errors
/// Of the second attempt; of the first if the server refused.
pub async fn set_file_cache(target: &Target, size: u64) -> Result<u64, Error> {
    match attempt(target, size).await {
        Err(Error::Io(_) | Error::Protocol(_)) => {
            tokio::time::sleep(RETRY_PAUSE).await;
            attempt(target, size).await
        }
        result => result,
    }
}

async fn attempt(target: &Target, size: u64) -> Result<u64, Error> {
    let mut connection = Connection::open(target).await?;
    let maximum =
        connection.value("SELECT pg_size_bytes(current_setting('neon.max_file_cache_size'))").await?;
    let maximum = maximum.and_then(|text| text.parse::<u64>().ok()).ok_or(Error::Protocol("no size"))?;
    let mebibytes = size.min(maximum) / MIB;
    // No setting can be a parameter of this statement; it is a number.
    connection.value(&format!("ALTER SYSTEM SET neon.file_cache_size_limit = {mebibytes}")).await?;
    connection.value("SELECT pg_reload_conf()").await?;
    connection.close().await;
    if maximum < size {
        super::log(&format!("file cache: {size} bytes wanted, its maximum is {maximum}"));
    }
    Ok(mebibytes * MIB)
}
