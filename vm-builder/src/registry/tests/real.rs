//! Against Debian's `docker-registry`: what we push, we and others pull.

use neonvm_test_support::{Need, eventually_blocking, need, needs};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::push::push;
use crate::source::Quiet;
use crate::store::Store;

struct Registry {
    child: Child,
    listen: neonvm_kit::port::Reserved,
    _data: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A registry on a free port.
fn registry() -> Need<Registry> {
    needs::program("docker-registry")?;
    let data = tempfile::tempdir().unwrap();
    let listen = neonvm_kit::port::Reserved::loopback().unwrap();
    let config = data.path().join("config.yml");
    let root = data.path().join("data");
    let text = format!(
        "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {}\n",
        root.display(),
        listen.address()
    );
    std::fs::write(&config, text).unwrap();
    let mut child = Command::new("docker-registry")
        .arg("serve")
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = child.stderr.take().unwrap();
    // Its messages must be read, or it stops one day.
    std::thread::spawn(move || for _ in BufReader::new(errors).lines() {});
    let registry = Registry { child, listen, _data: data };
    let connect = || std::net::TcpStream::connect(registry.listen.address());
    drop(eventually_blocking(|| "docker-registry listens".to_owned(), connect));
    Ok(registry)
}

#[test]
fn an_image_is_pushed_and_pulled_back() {
    let registry = need!(registry());
    let directory = tempfile::tempdir().unwrap();
    let options = sample::options(&directory.path().join("cache"));
    let image = sample::image(&sample::layers(), Form::Gzip, "amd64");
    let reference: Reference = format!("{}/team/image:v1", registry.listen.address()).parse().unwrap();
    let store = Store::open(&directory.path().join("store")).unwrap();
    store.put(&image, &reference).unwrap();
    // From files, as the store has them.
    let stored = store.get(&reference.to_string()).unwrap();
    let digest = run(push(&stored, &reference, &options.network, &RecordedProgress::default())).unwrap();
    assert_eq!(digest, image.digest());
    let loaded = pull(&reference, &options).unwrap();
    assert_eq!((loaded.digest, sample::listed(&loaded)), (digest, sample::expected()));
    // A second time nothing is uploaded; by digest it is there, too.
    assert_eq!(run(push(&stored, &reference, &options.network, &Quiet)).unwrap(), digest);
    let other = sample::options(&directory.path().join("other"));
    assert_eq!(pull(&reference.with_digest(digest), &other).unwrap().digest, digest);
    let missing: Reference = format!("{}/team/none:v1", registry.listen.address()).parse().unwrap();
    assert!(matches!(pull(&missing, &options).unwrap_err(), Error::RepositoryNotFound { .. }));
    let missing: Reference = format!("{}/team/image:v2", registry.listen.address()).parse().unwrap();
    assert!(matches!(pull(&missing, &options).unwrap_err(), Error::ManifestUnknown { .. }));
}

#[test]
fn what_other_programs_push_is_pulled() {
    let registry = need!(registry());
    need!(needs::program("skopeo"));
    let directory = tempfile::tempdir().unwrap();
    let options = sample::options(&directory.path().join("cache"));
    let store = Store::open(&directory.path().join("store")).unwrap();
    let name: Reference = "example.com/x:v1".parse().unwrap();
    store.put(&sample::image(&sample::layers(), Form::Plain, "amd64"), &name).unwrap();
    for (format, tag) in [("v2s2", "docker"), ("oci", "oci")] {
        let to = format!("docker://{}/x:{tag}", registry.listen.address());
        let output = Command::new("skopeo")
            .args(["copy", "--insecure-policy", "--dest-tls-verify=false", "--format", format])
            .arg(format!("oci:{}:{name}", store.root().display()))
            .arg(&to)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let Ok(Source::Registry(reference)) = Source::parse(&to) else { panic!("{to}") };
        assert_eq!(sample::listed(&pull(&reference, &options).unwrap()), sample::expected(), "{format}");
    }
}
