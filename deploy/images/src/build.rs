//! From a recipe to an image in a layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use neonvm_builder::reference::Digest;
use neonvm_builder::store::{Blob, Image, Store};
use serde_json::{Value, json};

use crate::apt::Apt;
use crate::packages::{Kind, Packages};
use crate::recipe::{Architecture, Layer, Recipe, parse_mode};
use crate::release::{self, Labels};
use crate::spdx::{Contents, copyright_path};
use crate::tree::{Node, Tree};
use crate::{Error, closure, elf, layer};

/// Where an image has the list of what is in it.
pub const LIST: &str = "/usr/share/neonvm/spdx.json";
/// Where it has the entries of its packages, one file each, as scanners of images look for them.
const STATUS: &str = "/var/lib/dpkg/status.d";
/// Package that depends on the newest kernel for VMs, and how that one's name starts.
const KERNEL: (&str, &str) = ("linux-image-cloud", "linux-image-");

/// What a build needs besides its recipe.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// What the image is for.
    pub architecture: Architecture,
    /// Name of Debian's release.
    pub release: String,
    /// Our programs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// What our programs are made of: SPDX documents, by name of the program.
    pub contents: BTreeMap<String, PathBuf>,
    /// Directory with `vmlinuz` and, if it needs one, `initramfs`; otherwise Debian's kernel is fetched.
    pub kernel: Option<PathBuf>,
    /// Directory for packages and kernels, kept between builds.
    pub work: PathBuf,
    /// When the source was made, RFC 3339.
    pub created: String,
    /// Labels with the image's own description.
    pub labels: Labels,
}

/// An image that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Name with version.
    pub reference: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// Bytes in a registry.
    pub compressed: u64,
    /// Bytes of its layers, unpacked.
    pub unpacked: u64,
    /// Debian packages and crates that it is made of.
    pub packages: usize,
    /// The list of these.
    pub list: Value,
}

/// Makes an image and puts it into a layout. `note` is called for each step.
///
/// # Errors
/// See [`Error`]: a file that no package has, a program of another architecture, what cannot be read or written.
pub fn build(
    recipe: &Recipe,
    inputs: &Inputs,
    apt: &Apt,
    store: &Store,
    note: &dyn Fn(&str),
) -> Result<Built, Error> {
    let mut contents = Contents::default();
    let mut trees = Vec::new();
    for layer in &recipe.layers {
        note(&format!("{}: {}", recipe.name, layer.name));
        trees.push((layer.name.as_str(), tree(layer, inputs, apt, &mut contents, note)?));
    }
    let list = contents.document(&recipe.name, &inputs.labels.version, &inputs.created);
    if let Some((_, last)) = trees.last_mut() {
        last.add(LIST, Node::Bytes(serde_json::to_vec(&list).unwrap_or_default()))?;
    }
    let work =
        tempfile::tempdir_in(&inputs.work).map_err(Error::file("make a directory in", &inputs.work))?;
    let (mut layers, mut diff_ids, mut history, mut unpacked) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for (index, (name, tree)) in trees.iter().enumerate() {
        note(&format!("{}: compress {name}", recipe.name));
        let path = work.path().join(index.to_string());
        let file = File::create(&path).map_err(Error::file("make", &path))?;
        let written = layer::write(tree, file).map_err(Error::file("write", &path))?;
        layers.push(Blob::file(layer::MEDIA_TYPE, path)?);
        diff_ids.push(written.diff_id.to_string());
        history.push(json!({ "created": inputs.created, "created_by": format!("neonvm-images: {name}") }));
        unpacked += written.length;
    }
    let labels = inputs.labels.render(&recipe.title, &inputs.created);
    let env: Vec<String> = recipe.config.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // No user is root.
    let config = json!({ "Env": env, "Labels": labels, "WorkingDir": "/", "User": recipe.config.user });
    let document = json!({
        "created": inputs.created,
        "architecture": inputs.architecture.name(),
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": history,
    });
    let image = Image::new(&document, layers, &labels)?;
    let reference = release::reference(None, &recipe.name, &inputs.labels.version)?;
    let digest = store.put(&image, &reference)?;
    let blobs: u64 = image.layers.iter().chain([&image.config]).map(|blob| blob.descriptor.size).sum();
    let compressed = blobs + image.manifest.len() as u64;
    let reference = format!("{}:{}", recipe.name, inputs.labels.version);
    Ok(Built { reference, digest, compressed, unpacked, packages: contents.count(), list })
}

fn tree(
    layer: &Layer,
    inputs: &Inputs,
    apt: &Apt,
    contents: &mut Contents,
    note: &dyn Fn(&str),
) -> Result<Tree, Error> {
    let mut tree = Tree::default();
    let names = layer.packages.for_architecture(inputs.architecture);
    if !names.is_empty() {
        let files = apt.closure(&names)?;
        note(&format!("{} packages to choose from", files.len()));
        let packages = Packages::open(&files, &inputs.work.join("unpacked"))?;
        add_packages(&mut tree, &packages, layer, inputs, contents)?;
    }
    if let Some(directory) = &layer.kernel {
        add_kernel(&mut tree, directory, inputs, apt, contents, note)?;
    }
    for (path, mode) in &layer.directories {
        tree.add(path, Node::Directory(parse_mode(mode).unwrap_or(0o755)))?;
    }
    for (path, target) in &layer.links {
        tree.add(path, Node::Link(target.clone()))?;
    }
    for (path, text) in &layer.text {
        tree.add(path, Node::Bytes(text.clone().into_bytes()))?;
    }
    for (path, name) in &layer.own {
        let from = inputs.programs.get(name).cloned().unwrap_or_else(|| PathBuf::from(name));
        check_program(&from, inputs.architecture)?;
        tree.add(path, Node::File { from, executable: true })?;
        if let Some(list) = inputs.contents.get(name) {
            contents.programs(list)?;
        }
    }
    Ok(tree)
}

/// Our programs bring everything with them: an image without a loader would not start them otherwise.
fn check_program(path: &Path, architecture: Architecture) -> Result<(), Error> {
    let bytes = std::fs::read(path).map_err(Error::file("read", path))?;
    let damaged =
        |problem: &str| Error::Elf { path: path.display().to_string(), problem: problem.to_owned() };
    let elf = elf::read(&bytes).map_err(|problem| damaged(&problem))?;
    match elf {
        Some(elf) if elf.machine != architecture.machine() => {
            Err(Error::Architecture { path: path.to_owned(), architecture: architecture.name() })
        }
        Some(elf) if elf.interpreter.is_some() => {
            Err(damaged("it is linked dynamically; build it with cargo xtask images"))
        }
        Some(_) => Ok(()),
        None => Err(damaged("it is not a program")),
    }
}

fn add_packages(
    tree: &mut Tree,
    packages: &Packages,
    layer: &Layer,
    inputs: &Inputs,
    contents: &mut Contents,
) -> Result<(), Error> {
    let programs = layer.programs.for_architecture(inputs.architecture);
    let mut taken = closure::closure(packages, &programs, inputs.architecture)?;
    let missing = |path: &str| Error::NotPackaged { path: path.to_owned() };
    for path in layer.files.for_architecture(inputs.architecture) {
        if !path.ends_with('/') {
            let end = closure::take(packages, &path, &mut taken)?;
            taken.insert(end);
            continue;
        }
        let before = taken.len();
        taken.extend(packages.below(&path).map(str::to_owned));
        if taken.len() == before {
            return Err(missing(&path));
        }
    }
    let mut owners = packages.owners(taken.iter());
    for (path, directory) in &layer.concatenate {
        let mut bytes = Vec::new();
        let parts: Vec<String> = packages.below(directory).map(str::to_owned).collect();
        for found in parts.iter().filter_map(|part| packages.get(part)) {
            bytes.extend(std::fs::read(&found.host).map_err(Error::file("read", &found.host))?);
        }
        if bytes.is_empty() {
            return Err(missing(directory));
        }
        owners.extend(packages.owners(parts.iter()));
        tree.add(path, Node::Bytes(bytes))?;
    }
    describe(tree, packages, &owners, &mut taken)?;
    contents.debian(packages, &owners, &inputs.release)?;
    taken.iter().try_for_each(|path| add_file(tree, packages, path))
}

/// Adds what has to go with packages: their copyright files, and an entry for scanners.
fn describe(
    tree: &mut Tree,
    packages: &Packages,
    owners: &BTreeSet<usize>,
    taken: &mut BTreeSet<String>,
) -> Result<(), Error> {
    for package in owners.iter().filter_map(|index| packages.all().get(*index)) {
        let copyright = copyright_path(package);
        if packages.way(&copyright).is_some() {
            let end = closure::take(packages, &copyright, taken)?;
            taken.insert(end);
        }
        let keys = ["Package", "Status", "Architecture", "Source", "Version", "Maintainer"];
        let line = |key: &str| match (key, package.field(key)) {
            ("Status", _) => "Status: install ok installed\n".to_owned(),
            (_, "") => String::new(),
            (key, value) => format!("{key}: {value}\n"),
        };
        let text: String = keys.iter().map(|key| line(key)).collect();
        tree.add(&format!("{STATUS}/{}", package.field("Package")), Node::Bytes(text.into_bytes()))?;
    }
    Ok(())
}

fn add_file(tree: &mut Tree, packages: &Packages, path: &str) -> Result<(), Error> {
    let found = packages.get(path).ok_or_else(|| Error::NotPackaged { path: path.to_owned() })?;
    let node = match &found.kind {
        Kind::Directory => Node::Directory(0o755),
        Kind::File { executable } => Node::File { from: found.host.clone(), executable: *executable },
        Kind::Link(target) => Node::Link(relative(path, target)),
    };
    tree.add(path, node)
}

/// A target in the link's own directory is written as its name, any other whole.
fn relative(path: &str, target: &str) -> String {
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    match target.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')) {
        Some(name) => name.to_owned(),
        None => target.to_owned(),
    }
}

fn add_kernel(
    tree: &mut Tree,
    directory: &str,
    inputs: &Inputs,
    apt: &Apt,
    contents: &mut Contents,
    note: &dyn Fn(&str),
) -> Result<(), Error> {
    let mut add = |name: &str, from: PathBuf| {
        tree.add(&format!("{directory}/{name}"), Node::File { from, executable: false })
    };
    if let Some(given) = &inputs.kernel {
        add("vmlinuz", given.join("vmlinuz"))?;
        let initramfs = given.join("initramfs");
        return if initramfs.exists() { add("initramfs", initramfs) } else { Ok(()) };
    }
    if inputs.architecture != Architecture::Amd64 {
        let problem =
            "kernels are fetched for amd64 only; give a directory with vmlinuz and initramfs by --kernel"
                .to_owned();
        return Err(Error::Release { path: inputs.work.clone(), problem });
    }
    let meta = format!("{}-{}", KERNEL.0, inputs.architecture.name());
    let package = apt.dependency(&meta, KERNEL.1)?;
    let missing = || Error::Release {
        path: inputs.work.clone(),
        problem: "the program neonvm-guest is missing".to_owned(),
    };
    let options = neonvm_kernel::fetch::Options {
        guest: inputs.programs.get("neonvm-guest").ok_or_else(missing)?,
        source: neonvm_kernel::fetch::Source::File { path: package.clone(), sha256: None },
        modules: Vec::new(),
        name: Some("image".to_owned()),
        default: false,
    };
    let store = neonvm_kernel::store::Store::new(inputs.work.join("kernels"));
    let kernel = neonvm_kernel::fetch::fetch(&options, &store, &neonvm_kernel::Silent)?;
    note(&format!("kernel {}", kernel.manifest.version));
    add("vmlinuz", kernel.image())?;
    if let Some(initramfs) = kernel.initramfs() {
        add("initramfs", initramfs)?;
    }
    let packages = Packages::open(&[package], &inputs.work.join("unpacked"))?;
    let all = BTreeSet::from([0]);
    let mut taken = BTreeSet::new();
    describe(tree, &packages, &all, &mut taken)?;
    contents.debian(&packages, &all, &inputs.release)?;
    taken.iter().try_for_each(|path| add_file(tree, &packages, path))
}
