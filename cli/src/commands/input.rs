//! Files that people name on the command line.

use std::io::Read as _;
use std::path::Path;

use crate::error::{Code, Error, Result};

/// The text of a file, or with `-` of standard input; and its name for messages.
pub(super) fn read(file: &str) -> Result<(String, String)> {
    if file != "-" {
        let path = Path::new(file);
        let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, &error))?;
        return Ok((text, file.to_owned()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| {
        Error::new(Code::Failed, "cannot read standard input").cause(crate::error::reason(&error))
    })?;
    Ok((text, "standard input".to_owned()))
}
