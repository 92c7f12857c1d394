//! A process that a test started.

use std::process::Child;

/// Killed when it is dropped, however the test ends.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Whether it has not ended yet.
    pub fn goes_on(&mut self) -> bool {
        self.0.try_wait().expect("the process can be asked for").is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
