//! `neonctl image release` with a small release: into a registry, an archive, and what stands for containerd.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use neonvm_builder::source::{self, Options, Source};
use neonvm_builder::store::{Blob, Image, Store};
use neonvm_images::release;
use neonvm_test_support::{Need, eventually_blocking, need, needs};
use serde_json::{Value, json};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A layout with both images, each with one file that holds its name.
fn layout(directory: &Path, version: &str) {
    let store = Store::open(directory).unwrap();
    for name in release::NAMES {
        let mut layer = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(name.len() as u64);
        layer.append_data(&mut header, "name", name.as_bytes()).unwrap();
        let layer = Blob::bytes("application/vnd.oci.image.layer.v1.tar", layer.into_inner().unwrap());
        let diff_id = layer.descriptor.digest.to_string();
        let labels = json!({ "org.opencontainers.image.version": version,
            "org.opencontainers.image.revision": "c0ffee", release::PROTOCOLS: release::protocols() });
        let config = json!({ "architecture": "amd64", "os": "linux", "config": { "Labels": labels },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] } });
        let image = Image::new(&config, vec![layer], &Default::default()).unwrap();
        store.put(&image, &release::reference(None, name, version).unwrap()).unwrap();
    }
}

fn neonctl(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_neonctl"));
    command.args(arguments).env_clear().env("HOME", home).current_dir(home);
    command.env("PATH", format!("{}:/usr/bin:/bin", home.join("bin").display()));
    command.output().unwrap()
}

fn good(home: &Path, arguments: &[&str]) -> Value {
    let output = neonctl(home, &[arguments, &["-o", "json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(home: &Path, arguments: &[&str], code: i32) -> String {
    let output = neonctl(home, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    error
}

/// Digests of the images by name, as `image release list` shows them.
fn digests(home: &Path) -> Vec<String> {
    let list = good(home, &["image", "release", "list", "--from", "release"]);
    assert_eq!(list["problems"], json!([]));
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|item| item["name"].as_str().unwrap()).collect::<Vec<_>>(), release::NAMES);
    items.iter().map(|item| item["digest"].as_str().unwrap().to_owned()).collect()
}

/// The file that an image has, and the image's digest.
fn loaded(home: &Path, from: &str) -> (String, String) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut options = Options::new(home.join("cache"));
    options.platform = "linux/amd64".parse().unwrap();
    let loaded =
        runtime.block_on(source::load(&Source::parse(from).unwrap(), &options, &source::Quiet)).unwrap();
    let bytes = neonvm_builder::content::read(&loaded.tree, &*loaded.sources, b"/name", 100).unwrap();
    (String::from_utf8(bytes).unwrap(), loaded.digest.to_string())
}

#[test]
fn images_of_another_version_are_refused() {
    let home = tempfile::tempdir().unwrap();
    layout(&home.path().join("release"), "9.9.9");
    let error = refused(home.path(), &["image", "release", "save", "--from", "release", "-O", "x.tar"], 5);
    assert!(error.contains("neond is of version 9.9.9, not") && error.contains("--any-version"), "{error}");
    assert!(!home.path().join("x.tar").exists());
    good(home.path(), &["image", "release", "save", "--from", "release", "-O", "x.tar", "--any-version"]);
    let output = neonctl(home.path(), &["image", "release", "list", "--from", "release"]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stderr).contains("warning: neond is of")
    );
}

#[test]
fn an_archive_is_what_docker_and_containerd_take() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    layout(&home.join("release"), VERSION);
    let digests = digests(home);
    let saved = good(home, &["image", "release", "save", "--from", "release", "-O", "a.tar"]);
    let again = good(home, &["image", "release", "save", "--from", "release", "-O", "b.tar"]);
    assert_eq!(saved["size"], again["size"]);
    let read = |name: &str| std::fs::read(home.join(name)).unwrap();
    assert_eq!(read("a.tar"), read("b.tar"));
    let path = home.join("a.tar");
    for (name, digest) in release::NAMES.iter().zip(&digests) {
        let full = format!("docker.io/library/{name}:{VERSION}");
        let oci = loaded(home, &format!("oci-archive:{}:{full}", path.display()));
        assert_eq!((oci.0.as_str(), &oci.1), (*name, digest));
        assert_eq!(loaded(home, &format!("docker-archive:{}:{name}:{VERSION}", path.display())).0, *name);
    }
    let named = good(
        home,
        &["image", "release", "save", "--from", "release", "-O", "c.tar", "--registry", "r.example/p/"],
    );
    assert_eq!(named["images"], json!(release::NAMES.map(|name| format!("r.example/p/{name}:{VERSION}"))));
}

#[test]
fn containerd_gets_the_archive_in_the_namespace_of_kubernetes() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    layout(&home.join("release"), VERSION);
    let load = ["image", "release", "load", "--from", "release", "--address", "/run/c.sock"];
    if needs::find_program("ctr").is_none() {
        let error = refused(home, &load, 5);
        assert!(
            error.contains("ctr, which is part of containerd") && error.contains("image release save -O"),
            "{error}"
        );
    }
    let script = |text: &str| {
        std::fs::create_dir_all(home.join("bin")).unwrap();
        std::fs::write(home.join("bin/ctr"), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(home.join("bin/ctr"), PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("echo \"$@\" > arguments; cat > got.tar");
    let done = good(home, &load);
    assert_eq!(done["images"][0], format!("docker.io/library/neond:{VERSION}"));
    let arguments = std::fs::read_to_string(home.join("arguments")).unwrap();
    assert_eq!(arguments.trim(), "--address /run/c.sock --namespace k8s.io images import -");
    good(home, &["image", "release", "save", "--from", "release", "-O", "a.tar"]);
    assert_eq!(std::fs::read(home.join("got.tar")).unwrap(), std::fs::read(home.join("a.tar")).unwrap());
    script("echo 'connection refused' >&2; exit 1");
    let error = refused(home, &load, 1);
    assert!(error.contains("ctr: connection refused") && error.contains("sudo"), "{error}");
}

/// Debian's `docker-registry` on a free port; ended and removed when it goes out of scope.
struct Registry {
    child: Child,
    listen: neonvm_kit::port::Reserved,
    _files: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn registry() -> Need<Registry> {
    let program = needs::program("docker-registry")?;
    let files = tempfile::tempdir().unwrap();
    let listen = neonvm_kit::port::Reserved::loopback().unwrap();
    let config = files.path().join("config.yml");
    let (data, address) = (files.path().join("data"), listen.address());
    let text = format!(
        "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: {address} }}\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let errors = child.stderr.take().unwrap();
    // Its messages must be read, or it stops one day.
    std::thread::spawn(move || BufReader::new(errors).lines().for_each(drop));
    let registry = Registry { child, listen, _files: files };
    let connect = || std::net::TcpStream::connect(registry.listen.address());
    drop(eventually_blocking(|| "docker-registry listens".to_owned(), connect));
    Ok(registry)
}

#[test]
fn a_registry_gives_back_what_was_pushed() {
    let registry = need!(registry());
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    layout(&home.join("release"), VERSION);
    let digests = digests(home);
    let host = format!("{}/neonvm", registry.listen.address());
    // The second time, it has everything.
    for _ in 0..2 {
        let pushed = good(home, &["image", "release", "push", "--from", "release", "--registry", &host]);
        let items = pushed["items"].as_array().unwrap();
        assert_eq!(items.iter().map(|item| item["digest"].as_str().unwrap()).collect::<Vec<_>>(), digests);
    }
    for (name, digest) in release::NAMES.iter().zip(&digests) {
        let pulled = loaded(home, &format!("docker://{host}/{name}:{VERSION}"));
        assert_eq!((pulled.0.as_str(), &pulled.1), (*name, digest));
    }
    let error =
        refused(home, &["image", "release", "push", "--from", "release", "--registry", "BAD NAME"], 2);
    assert!(error.contains("HOST[:PORT][/PREFIX]"), "{error}");
}
