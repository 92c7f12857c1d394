//! Units and wire protocols of the vertical autoscaling system.
//!
//! For: every other crate; the words in which components talk to each other. Owns: exact encodings, in every generation
//! that may still be running beside ours. May not: do I/O, read a clock, use Kubernetes clients or object schemas.
//!
//! Rules that hold in the whole crate:
//! * decoding is total – arbitrary bytes give an error, never a panic;
//! * nothing wraps – a negative or oversized number is an error that names its field;
//! * encoding is byte-exact, because some values live as text in annotations and are compared as text.
//!
//! ```
//! use neonvm_types::{Bytes, MilliCpu, Resources};
//!
//! // As an annotation of upstream has it, and written back to the same bytes.
//! let size: Resources = serde_json::from_str(r#"{"vCPUs":"250m","mem":"1Gi"}"#)?;
//! assert_eq!((size.vcpus, size.mem), (MilliCpu::new(250), Bytes::gib(1)));
//! assert_eq!(serde_json::to_string(&size)?, r#"{"vCPUs":"250m","mem":"1Gi"}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::float_cmp))]

mod accelerator;
pub mod agent_history;
pub mod agent_inspect;
pub mod bytes;
mod decode;
pub mod exposition;
pub mod guest;
pub mod informant_protocol;
pub mod jsonpath;
pub mod milli_cpu;
pub mod monitor_protocol;
pub mod name;
pub mod node_protocol;
pub mod objects;
pub mod quantity;
pub mod resources;
pub mod revision;
pub mod runner_protocol;
pub mod scheduler_inspect;
pub mod scheduler_protocol;
pub mod selector;
pub mod timestamp;
pub mod version;

pub use accelerator::Accelerator;
pub use bytes::Bytes;
pub use decode::DecodeError;
pub use milli_cpu::MilliCpu;
pub use name::NamespacedName;
pub use quantity::{Quantity, QuantityError};
pub use resources::{MoreResources, Resources, SlotResources};
pub use revision::{Revision, RevisionFlags, RevisionWithTime};
pub use timestamp::Timestamp;
