//! The inputs of a boot: the kernel command line, the image's configuration, the runtime volume. Reading and merging
//! only; every function here is pure but [`load`].

pub mod command_line;
pub mod load;
pub mod merge;
pub mod mount_script;
pub mod shell_words;
pub mod user;

pub use command_line::CommandLine;
pub use load::{Settings, load};
pub use merge::{MergeError, Workload, merge};
pub use user::{Account, Accounts, UserError};
