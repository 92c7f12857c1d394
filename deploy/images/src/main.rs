//! `neonvm-images`: makes the images of services and runner; `cargo xtask images` builds the programs and calls it.

#![allow(clippy::print_stdout, reason = "a program for people; there is no result type to render")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use neonvm_builder::store::Store;
use neonvm_images::apt::Apt;
use neonvm_images::build::{Built, Inputs, build};
use neonvm_images::recipe::{Architecture, Debian, Recipe};
use neonvm_images::release::{Labels, protocols};
use neonvm_images::{Error, release};

/// Container images of the services and of the runner, without a container engine
#[derive(Debug, Parser)]
#[command(name = "neonvm-images", version)]
struct Args {
    /// Directory of the recipes
    #[arg(long, default_value = "deploy/images")]
    recipes: PathBuf,
    /// What the images are for
    #[arg(long, value_enum, default_value = "amd64")]
    arch: Architecture,
    /// Directory with the static programs neond, neonvm-runner and neonvm-guest, and with an SPDX document NAME.spdx.json of each
    #[arg(long)]
    programs: PathBuf,
    /// Directory with vmlinuz and initramfs of the guest kernel [default: Debian's cloud kernel is fetched]
    #[arg(long)]
    kernel: Option<PathBuf>,
    /// Directory for the images: an OCI image layout
    #[arg(long)]
    out: PathBuf,
    /// Directory for packages, kept between builds
    #[arg(long)]
    work: PathBuf,
    /// Commit of the source
    #[arg(long, default_value = "")]
    revision: String,
    /// Where the source is
    #[arg(long, default_value = "")]
    source: String,
    /// When the source was made, RFC 3339
    #[arg(long, default_value = "1970-01-01T00:00:00Z")]
    created: String,
    /// Use the lists of packages that are there
    #[arg(long)]
    offline: bool,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let recipes = ["services.yaml", "runner.yaml"].map(|name| Recipe::read(&args.recipes.join(name)));
    let debian = Debian::read(&args.recipes.join("debian.yaml"))?;
    let work = args.work.join(args.arch.name());
    println!("packages of Debian {} for {}", debian.release, args.arch.name());
    let apt = Apt::open(&debian, args.arch, &work, args.offline)?;
    let inputs = inputs(args, debian.release, work);
    let store = Store::open(&args.out)?;
    let mut all = Vec::new();
    for recipe in recipes {
        let recipe = recipe?;
        let built = build(&recipe, &inputs, &apt, &store, &|step| println!("  {step}"))?;
        let path = args.out.join(format!("{}.spdx.json", recipe.name));
        let text = serde_json::to_string_pretty(&built.list).unwrap_or_default();
        std::fs::write(&path, text + "\n").map_err(|source| Error::File { verb: "write", path, source })?;
        all.push(built);
    }
    store.prune()?;
    table(&all, &args.out);
    Ok(())
}

fn inputs(args: &Args, release: String, work: PathBuf) -> Inputs {
    let names = ["neond", "neonvm-runner", "neonvm-guest"];
    let programs: BTreeMap<String, PathBuf> =
        names.iter().map(|name| ((*name).to_owned(), args.programs.join(name))).collect();
    let list = |name: &&str| {
        let path = args.programs.join(format!("{name}.spdx.json"));
        path.is_file().then(|| ((*name).to_owned(), path))
    };
    Inputs {
        architecture: args.arch,
        release,
        programs,
        contents: names.iter().filter_map(list).collect(),
        kernel: args.kernel.clone(),
        work,
        created: args.created.clone(),
        labels: Labels {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: args.revision.clone(),
            source: args.source.clone(),
            protocols: protocols(),
        },
    }
}

fn table(all: &[Built], out: &Path) {
    let megabytes = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000);
    println!("\n{:<22} {:>11} {:>10} {:>9}  DIGEST", "IMAGE", "COMPRESSED", "UNPACKED", "PACKAGES");
    for built in all {
        let (compressed, unpacked) = (megabytes(built.compressed), megabytes(built.unpacked));
        let (name, packages, digest) = (&built.reference, built.packages, built.digest);
        println!("{name:<22} {compressed:>11} {unpacked:>10} {packages:>9}  {digest}");
    }
    println!(
        "\n{}: push them with neonctl image release push --registry HOST ({})",
        out.display(),
        release::NAMES.join(", ")
    );
}
