//! Progress of loading and pushing. A caller that shows it implements [`Progress`]; nothing here prints.

/// Receives progress. Tasks run beside one another: each has a name, such as `layer 3f2a91c07b44`.
pub trait Progress: Send + Sync {
    /// A task began. `total`: its bytes, if available.
    fn started(&self, task: &str, total: Option<u64>);
    /// A task got on by so many bytes.
    fn advanced(&self, task: &str, bytes: u64);
    /// A task has ended well.
    fn finished(&self, task: &str);
    /// Something worth a line: a retry, a wait for another process.
    fn note(&self, text: &str);
    /// One line of a container tool.
    fn line(&self, text: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn started(&self, _: &str, _: Option<u64>) {}
    fn advanced(&self, _: &str, _: u64) {}
    fn finished(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn line(&self, _: &str) {}
}
