//! QEMU's monitor protocol (`docs/interop/qmp-spec`): one session that stays, over any stream.
//!
//! A task reads, a task writes, callers wait for the answer with their number, each with its deadline. A monitor that
//! hangs costs its callers their deadlines and nothing else; late answers are counted and dropped.

mod error;
mod lines;
mod session;
mod wire;

pub use error::QmpError;
pub use lines::MOST_LINE_BYTES;
pub use session::{DEADLINE, EVENT_BUFFER, Session};
pub use wire::{Event, Greeting};
