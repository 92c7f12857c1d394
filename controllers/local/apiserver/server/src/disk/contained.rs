//! Work on a file that may be damaged. The database library checks pages when it repairs them, not when it reads them, and panics on
//! some of what it finds; here a panic is an answer.

use std::any::Any;
use std::sync::Once;

/// The thread of such work; its panics are reported by [`contained`] alone.
const THREAD: &str = "state-reader";

/// Runs work on a separate thread.
///
/// # Errors
/// The text of the panic that ended it, or why there is no thread.
pub(super) fn contained<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    silence();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(THREAD.into()).spawn_scoped(scope, work);
        let joined = thread.map_err(|error| error.to_string())?.join();
        joined.map_err(|panic| text(&*panic).to_owned())
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    let line = owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
    line.lines().next().unwrap_or_default()
}

/// Keeps such panics off standard error, where they would look like defects of ours.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some(THREAD) {
                tracing::debug!("{info}");
            } else {
                former(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer() {
        assert_eq!(contained(|| 7), Ok(7));
        assert_eq!(contained(|| panic!("bad page {}\nmore", 3)), Err::<(), _>("bad page 3".to_owned()));
        assert_eq!(contained(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
    }
}
