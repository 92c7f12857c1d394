//! Images for tests.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use super::{Options, Platform, Progress};
use crate::layer::writer::Writer;
use crate::reference::Digest;
use crate::store::{Blob, Image};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Plain,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Form {
    pub(crate) const ALL: [Self; 5] = [Self::Plain, Self::Gzip, Self::Zstd, Self::Xz, Self::Bzip2];
}

pub(crate) fn compressed(form: Form, bytes: &[u8]) -> Vec<u8> {
    match form {
        Form::Plain => bytes.to_vec(),
        Form::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Form::Zstd => zstd::stream::encode_all(bytes, 1).unwrap(),
        Form::Xz => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Form::Bzip2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

/// Bytes that do not compress, so that lengths are what they seem.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

/// Layers of an image: the second changes the first.
pub(crate) fn layers() -> Vec<Vec<u8>> {
    vec![
        Writer::default()
            .directory("etc", 0o755)
            .file("etc/name", b"lower")
            .file("etc/gone", b"x")
            .file("big", &noise(300_000, 7))
            .end(),
        Writer::default().file("etc/name", b"upper").file("etc/.wh.gone", b"").end(),
    ]
}

pub(crate) fn image(layers: &[Vec<u8>], form: Form, architecture: &str) -> Image {
    let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::from_bytes(layer)).collect();
    let config = serde_json::json!({
        "architecture": architecture, "os": "linux", "created": "2024-01-02T03:04:05Z",
        "config": {"Entrypoint": ["/bin/a"], "Cmd": null, "Env": ["A=b c"], "User": "1:2", "WorkingDir": "/w",
                   "StopSignal": "SIGINT", "Labels": {"k": "v"}},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let media_type = match form {
        Form::Plain => "application/vnd.oci.image.layer.v1.tar",
        // Labels are often wrong; the content counts.
        Form::Gzip | Form::Xz | Form::Bzip2 => "application/vnd.oci.image.layer.v1.tar+gzip",
        Form::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
    };
    let blobs = layers.iter().map(|layer| Blob::bytes(media_type, compressed(form, layer))).collect();
    Image::new(&config, blobs, &BTreeMap::new()).unwrap()
}

/// Quick retries and no files of the user.
pub(crate) fn options(cache: &Path) -> Options {
    let mut options = Options::new(cache);
    options.platform = Platform { os: "linux".into(), architecture: "amd64".into(), variant: None };
    options.network.pause = std::time::Duration::from_millis(1);
    options.network.attempts = 3;
    options
}

#[derive(Default)]
pub(crate) struct RecordedProgress(pub(crate) Mutex<Vec<String>>);

impl RecordedProgress {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Progress for RecordedProgress {
    fn started(&self, task: &str, total: Option<u64>) {
        self.0.lock().unwrap().push(format!("started {task} {total:?}"));
    }

    fn advanced(&self, _: &str, _: u64) {}

    fn finished(&self, task: &str) {
        self.0.lock().unwrap().push(format!("finished {task}"));
    }

    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(format!("note {text}"));
    }

    fn line(&self, _: &str) {}
}

/// Files of a loaded image as lines.
pub(crate) fn listed(loaded: &super::Loaded) -> Vec<String> {
    use neonvm_disk::tree::{Kind, Origin};
    let mut lines = Vec::new();
    let mut ahead = vec![(String::new(), loaded.tree.root())];
    while let Some((path, id)) = ahead.pop() {
        match &loaded.tree.get(id).unwrap().kind {
            Kind::Directory(names) => {
                ahead.extend(
                    names
                        .iter()
                        .rev()
                        .map(|(name, child)| (format!("{path}/{}", name.escape_ascii()), *child)),
                );
            }
            Kind::File(content) => {
                let mut bytes = vec![0; usize::try_from(content.length).unwrap()];
                for piece in &content.pieces {
                    let into = &mut bytes[piece.at as usize..][..piece.length as usize];
                    match &piece.origin {
                        Origin::Source { source, offset } => {
                            loaded.sources.read_exact_at(*source, *offset, into).unwrap();
                        }
                        Origin::Memory(memory) => into.copy_from_slice(memory),
                    }
                }
                let text = if bytes.len() > 100 {
                    Digest::from_bytes(&bytes).hex()
                } else {
                    bytes.escape_ascii().to_string()
                };
                lines.push(format!("{path} {text}"));
            }
            other => lines.push(format!("{path} {other:?}")),
        }
    }
    lines
}

/// What [`layers`] make.
pub(crate) fn expected() -> Vec<String> {
    vec![format!("/big {}", Digest::from_bytes(&noise(300_000, 7)).hex()), "/etc/name upper".into()]
}
