//! `image`

pub(super) mod inspect;
pub(super) mod list;
pub(super) mod release;
pub(super) mod remove;
pub(super) mod transfer;
mod usage;

use neonvm_builder::store::{Image, Store};

use super::{place, registry};
use crate::env::Env;
use crate::error::{Code, Error, Result};

/// The image that a name or a digest means in the local store, as all commands take it: `hello:1`, its full name, or at least 12 digits of
/// its digest. `None`: there is none.
///
/// # Errors
/// If several have that digest, or the store cannot be read.
fn stored(env: &Env, name: &str) -> Result<Option<(Store, Image)>> {
    use neonvm_builder::source::Error as E;
    let attempt = format!("cannot find image {name:?}");
    let directory = place::images(env);
    if !directory.exists() {
        return Ok(None);
    }
    let found = Store::open(&directory).and_then(|store| {
        let image = store.get(name);
        image.map(|image| (store, image))
    });
    match found {
        Ok(found) => Ok(Some(found)),
        Err(E::ImageNotFound { .. } | E::Invalid(_)) => Ok(None),
        Err(error @ E::Ambiguous { .. }) => Err(Error::new(Code::Usage, attempt)
            .cause(error.to_string())
            .hint("write more digits of the digest")),
        Err(error) => Err(registry::load_error(&attempt, &error)),
    }
}

/// The local store has no such image.
fn missing(name: &str) -> Error {
    Error::new(Code::NotFound, format!("image {name:?} not found"))
        .hint("list the images: neonctl image list; pull one: neonctl image pull")
}
