mod formats;
mod local;
mod parse;
mod root;

use neonvm_test_support::{Need, need, needs};
use std::path::Path;
use std::process::Command;

use super::sample::{self, Form};
use super::{Error, Loaded, Options, Quiet, Source, load};
use crate::reference::Reference;
use crate::store::Store;

fn loaded(source: &Source, options: &Options) -> Result<Loaded, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(load(source, options, &Quiet))
}

fn layout(path: &Path, form: Form) -> crate::store::Image {
    let image = sample::image(&sample::layers(), form, "amd64");
    let name: Reference = "example.com/x:v1".parse().unwrap();
    Store::open(path).unwrap().put(&image, &name).unwrap();
    image
}

/// Runs a program, which must succeed.
fn run(command: &mut Command) -> Need {
    needs::program(&command.get_program().to_string_lossy())?;
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
