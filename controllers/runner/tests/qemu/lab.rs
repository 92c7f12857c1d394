//! What every VM needs, made once: a kernel, a first root, an authority.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use neonvm_kit::ca::Authority;
use neonvm_test_support::guest::SmallGuest;
use neonvm_test_support::{Need, needs};

/// Slow machines under load take long; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Lab {
    pub(crate) guest: SmallGuest,
    pub(crate) authority: Authority,
}

/// The lab, made once.
pub(crate) fn lab() -> Need<&'static Lab> {
    static LAB: OnceLock<Need<Lab>> = OnceLock::new();
    LAB.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// A loopback address that no other runner of this process has.
pub(crate) fn address() -> std::net::IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let id = std::process::id();
    let bytes = id.to_be_bytes();
    // One network of 256 addresses for each process; 127.0 to 127.63 are others'.
    std::net::IpAddr::from([127, 64 + (bytes[2] & 63), bytes[3], NEXT.fetch_add(1, Ordering::Relaxed)])
}

fn make() -> Need<Lab> {
    needs::qemu()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/qemu/fixture/init.c");
    let guest = SmallGuest::compile("runner", &source)?;
    let (authority, _) = Authority::generate().unwrap();
    Ok(Lab { guest, authority })
}
