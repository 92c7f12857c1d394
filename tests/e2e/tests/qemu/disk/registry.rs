//! A real registry on loopback, and a real container image in it, put there by tools that are not ours.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use neonvm_test_support::eventually_blocking;
use serde_json::json;

use super::guest::own_port;

/// Debian's `docker-registry`; ended and removed when it goes out of scope.
pub(crate) struct Registry {
    child: Child,
    listen: neonvm_kit::port::Reserved,
    files: Rc<tempfile::TempDir>,
}

/// The password of [`Registry::secured`] for the user `reader`, and its bcrypt hash, as `htpasswd` makes it.
pub(crate) const PASSWORD: &str = "right-password";
const HASH: &str = "$2b$04$KCvOb5lSxiIiYMSU.uLifemX62HG68DKoC2HFSybhbgtK7JqxMWoy";

impl Registry {
    pub(crate) fn start() -> Self {
        let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self::serve(Rc::new(files), &json!({}), &json!({}))
    }

    /// Another one with the same content, for `reader` alone, over TLS with a certificate of an authority of its own; that is
    /// returned, PEM.
    pub(crate) fn secured(&self) -> (Self, String) {
        let (authority, _) = neonvm_kit::ca::Authority::generate_for("registry-ca", 86_400).unwrap();
        let identity = authority.server("registry", &["127.0.0.1".to_owned()]).unwrap();
        let put = |name: &str, text: &str| {
            let path = self.files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tls = json!({ "certificate": put("tls.crt", &identity.certificate), "key": put("tls.key", &identity.key) });
        let users = put("users", &format!("reader:{HASH}\n"));
        let auth = json!({ "htpasswd": { "realm": "test", "path": users } });
        let secured = Self::serve(Rc::clone(&self.files), &json!({ "tls": tls }), &json!({ "auth": auth }));
        (secured, authority.certificate().to_owned())
    }

    /// Starts one on a free port, with more settings of the part `http` and of the whole.
    fn serve(files: Rc<tempfile::TempDir>, http: &serde_json::Value, more: &serde_json::Value) -> Self {
        let listen = own_port();
        let mut text = json!({ "version": 0.1, "log": { "accesslog": { "disabled": true }, "level": "error" },
            "storage": { "filesystem": { "rootdirectory": files.path().join("data") } },
            "http": { "addr": listen.address().to_string() } });
        let put = |into: &mut serde_json::Value, more: &serde_json::Value| {
            into.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        };
        put(&mut text["http"], http);
        put(&mut text, more);
        let config = files.path().join(format!("{}.yml", listen.address().port()));
        std::fs::write(&config, text.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        let child =
            command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let registry = Self { child, listen, files };
        let connect = || TcpStream::connect(registry.listen.address()).ok();
        drop(eventually_blocking(|| "the registry listens".into(), connect));
        registry
    }

    pub(crate) fn name(&self, repository: &str) -> String {
        format!("{}/{repository}", self.listen.address())
    }

    /// Copies the image of a layout to the registry.
    pub(crate) fn receive(&self, layout: &Path, repository: &str) {
        let to = format!("docker://{}", self.name(repository));
        let from = format!("oci:{}:image", layout.display());
        let output =
            Command::new("skopeo").args(["copy", "--dest-tls-verify=false", &from, &to]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// An image layout with one compressed layer, made by `tar`, `gzip` and `sha256sum`.
pub(crate) fn layout(root: &Path, architecture: &str, config: &serde_json::Value, to: &Path) {
    let blobs = to.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let tar = to.join("layer.tar");
    let script = "tar --create --numeric-owner --xattrs --sort=name --directory \"$1\" --file \"$2\" . && gzip -1 -k -n \"$2\"";
    let made = Command::new("sh").args(["-c", script, "sh"]).arg(root).arg(&tar).status().unwrap();
    assert!(made.success());
    let packed = to.join("layer.tar.gz");
    let (plain, digest) = (sha256(&tar), sha256(&packed));
    let size = packed.metadata().unwrap().len();
    std::fs::remove_file(&tar).unwrap();
    std::fs::rename(&packed, blobs.join(&digest)).unwrap();
    let blob = |value: serde_json::Value| -> (String, usize) {
        let bytes = serde_json::to_vec(&value).unwrap();
        let path = to.join("blob");
        std::fs::File::create(&path).unwrap().write_all(&bytes).unwrap();
        let digest = sha256(&path);
        std::fs::rename(&path, blobs.join(&digest)).unwrap();
        (format!("sha256:{digest}"), bytes.len())
    };
    let (config, config_size) = blob(json!({
        "created": "2024-05-06T07:08:09Z", "architecture": architecture, "os": "linux", "config": config,
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{plain}")] },
    }));
    let (manifest, manifest_size) = blob(json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size },
        "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": format!("sha256:{digest}"), "size": size }],
    }));
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": manifest_size,
        "annotations": { "org.opencontainers.image.ref.name": "image" },
    }] });
    std::fs::write(to.join("index.json"), index.to_string()).unwrap();
    std::fs::write(to.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}
