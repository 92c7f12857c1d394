//! Disks that a target takes from its source: those that are not written, byte for byte, and the sizes of the others.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use neonvm_hypervisor::plan::{DiskImage, DiskPlan};
use neonvm_types::Bytes;
use neonvm_types::runner_protocol::{VOLUME_PATH, VolumeInfo, server_name};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::certificate;
use crate::config::PodFiles;

/// Time to connect, and for the head of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for a whole volume.
const VOLUME: Duration = Duration::from_secs(120);
/// Bytes of the list.
const LIST: usize = 1 << 20;

/// A disk of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) info: VolumeInfo,
    pub(crate) path: PathBuf,
    /// Bytes to which the disk has grown since.
    grown: Arc<AtomicU64>,
}

impl Volume {
    /// As it is now.
    pub(crate) fn info(&self) -> VolumeInfo {
        let grown = Bytes::new(self.grown.load(Ordering::Relaxed));
        VolumeInfo { size: self.info.size.max(grown), ..self.info.clone() }
    }

    /// The disk has this size from now on.
    pub(crate) fn grow_to(&self, size: Bytes) {
        self.grown.fetch_max(size.get(), Ordering::Relaxed);
    }
}

pub(crate) fn of_disks(disks: &[DiskPlan]) -> Vec<Volume> {
    let volume = |disk: &DiskPlan| {
        let (path, overlay) = match &disk.image {
            DiskImage::Raw(path) | DiskImage::Qcow2(path) => (path, None),
            // The target opens the volume itself.
            DiskImage::Volume { shared: true, .. } => return None,
            DiskImage::Volume { path, .. } => (path, None),
            DiskImage::Overlay { file, .. } => (file, Some(())),
        };
        let size = match overlay {
            Some(()) => neonvm_hypervisor::disks::overlay_size(path).ok()?,
            None => Bytes::new(File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).ok()?),
        };
        let info = VolumeInfo { name: disk.name.clone(), size, read_only: disk.read_only };
        Some(Volume { info, path: path.clone(), grown: Arc::default() })
    };
    disks.iter().filter_map(volume).collect()
}

/// Client of the target to the source's runner.
pub(crate) struct Source {
    sender: SendRequest<Empty<bytes::Bytes>>,
    _connection: super::carrier::Guarded,
    /// Why the connection broke, if it did.
    broke: Arc<OnceLock<String>>,
    disks: Vec<VolumeInfo>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Source {
    /// Connects and requests the list.
    pub(crate) async fn open(pod: &PodFiles, address: &str) -> Result<Self, String> {
        let late = |_| format!("{address} does not answer within {} s", PATIENCE.as_secs());
        let place: SocketAddr = address.parse().map_err(|_| format!("{address:?} is not ADDRESS:PORT"))?;
        let identity = pod.certificate.identity();
        let mut tls = neonvm_kit::tls::client(Some(&identity), pod.certificate.authorities().as_bytes())
            .map_err(text)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(server_name(&pod.config.uid)).map_err(text)?;
        let connected = async {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(Arc::new(tls)).connect(name, stream).await
        };
        let stream = tokio::time::timeout(PATIENCE, connected).await.map_err(late)?;
        let refused = |why: String| format!("{address}: {why}");
        let stream = stream.map_err(|error| refused(certificate::words(&error)))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
        let broke = Arc::new(OnceLock::new());
        let why = Arc::clone(&broke);
        let connection = tokio::spawn(async move {
            if let Err(error) = connection.await {
                let _ = why.set(certificate::words(&error));
            }
        });
        let mut source = Self { sender, _connection: connection.into(), broke, disks: Vec::new() };
        let list = source.get(VOLUME_PATH).await.map_err(refused)?;
        let list = http_body_util::Limited::new(list, LIST).collect();
        let list = tokio::time::timeout(PATIENCE, list).await.map_err(late)?.map_err(text)?;
        source.disks = serde_json::from_slice(&list.to_bytes()).map_err(text)?;
        Ok(source)
    }

    async fn get(&mut self, path: &str) -> Result<Incoming, String> {
        let request = Request::builder().method(Method::GET).uri(path).header(header::HOST, "runner");
        let request = request.body(Empty::new()).map_err(text)?;
        let answer = tokio::time::timeout(PATIENCE, self.sender.send_request(request)).await;
        let answer = answer.map_err(|_| "no answer".to_owned())?;
        // A source that rejects our certificate sends the reason, before the request or after it.
        let answer = answer
            .map_err(|error| self.broke.get().cloned().unwrap_or_else(|| certificate::words(&error)))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            other => Err(format!("GET {path}: {other}")),
        }
    }

    fn disk(&self, name: &str) -> Result<VolumeInfo, String> {
        let disk = self.disks.iter().find(|disk| disk.name == name);
        disk.cloned().ok_or_else(|| "the VM has no such disk where it comes from".to_owned())
    }

    /// Size of a disk that is written there.
    pub(crate) fn size(&self, name: &str) -> Result<Bytes, String> {
        self.disk(name).map(|disk| disk.size)
    }

    /// An empty file of the size that a written disk has there.
    pub(crate) fn make_empty(&self, name: &str, path: &Path) -> Result<(), String> {
        let size = self.size(name)?;
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(text)?;
        }
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.write(true).create(true).truncate(true).open(path).map_err(text)?;
        file.set_len(size.get()).map_err(text)
    }

    /// Copies a disk that is not written.
    pub(crate) async fn fetch(&mut self, name: &str, path: &Path) -> Result<(), String> {
        let size = self.disk(name)?.size.get();
        let whole = async {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory).map_err(text)?;
            }
            let mut body = self.get(&format!("{VOLUME_PATH}{name}")).await?;
            let mut options = tokio::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(path).await.map_err(text)?;
            let mut length = 0_u64;
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(text)?.into_data() else { continue };
                length = length.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if length > size {
                    return Err(format!("it is longer than {size} bytes"));
                }
                file.write_all(&data).await.map_err(text)?;
            }
            file.flush().await.map_err(text)?;
            if length == size { Ok(()) } else { Err(format!("it ended after {length} of {size} bytes")) }
        };
        tokio::time::timeout(VOLUME, whole)
            .await
            .map_err(|_| format!("it did not come within {} s", VOLUME.as_secs()))?
    }
}
