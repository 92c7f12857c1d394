mod faults;
mod kinds;
mod login;
mod real;
mod stored;
mod tls;

use std::path::Path;

use super::fake::{Fake, Fault};
use crate::reference::Reference;
use crate::source::sample::{self, Form, RecordedProgress};
use crate::source::{Error, Loaded, Options, Source, load};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn pull(reference: &Reference, options: &Options) -> Result<Loaded, Error> {
    run(load(&Source::Registry(reference.clone()), options, &crate::source::Quiet))
}

fn files(cache: &Path, end: &str) -> usize {
    let mut count = 0;
    let mut ahead = vec![cache.to_path_buf()];
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            if entry.path().is_dir() {
                ahead.push(entry.path());
            } else if entry.file_name().to_string_lossy().ends_with(end) {
                count += 1;
            }
        }
    }
    count
}
