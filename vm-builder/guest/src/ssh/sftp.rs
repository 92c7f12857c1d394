//! Placeholder until the subsystem is there.

use super::Error;

/// Serves files on standard input and output.
///
/// # Errors
/// When the connection breaks.
pub(super) fn run() -> Result<(), Error> {
    Err(Error::Usage("no sftp".into()))
}
