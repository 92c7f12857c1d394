//! What the kubelet may call of one resource.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream;
use hyper::body::Incoming;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::devices::api::{
    self, AllocateRequest, AllocateResponse, ContainerAllocateRequest, ContainerAllocateResponse,
    DevicePluginOptions, DeviceSpec, Empty, ListAndWatchResponse, Mount, Unit,
};
use crate::devices::files;
use crate::devices::offer::{Device, Offer, SLOTS, is_unit, unit};

/// One resource.
#[derive(Debug)]
pub(crate) struct Plugin {
    pub(crate) device: Device,
    /// Renewed while the plugin runs.
    pub(crate) offer: watch::Receiver<Offer>,
    /// Directory on the node with the socket of the node service.
    sockets: PathBuf,
    registered: AtomicBool,
}

/// Handles one call.
pub(crate) async fn answer(plugin: Arc<Plugin>, request: http::Request<Incoming>) -> http::Response<Body> {
    match request.uri().path() {
        api::OPTIONS => unary(request, |_: Empty| Ok(DevicePluginOptions {})).await,
        api::ALLOCATE => unary(request, move |wanted| plugin.allocate(&wanted)).await,
        api::LIST_AND_WATCH => list_and_watch(&plugin, request).await,
        other => {
            let mut response = Status::unimplemented(other.to_owned()).into_http();
            response.headers_mut().insert(http::header::CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
            response
        }
    }
}

/// A call with one request and one response.
pub(crate) async fn unary<Q, A>(
    request: http::Request<Incoming>,
    handle: impl FnOnce(Q) -> Result<A, Status> + Clone + Send + 'static,
) -> http::Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let service = tower::service_fn(move |request: Request<Q>| {
        let handle = handle.clone();
        async move { handle(request.into_inner()).map(Response::new) }
    });
    Grpc::new(ProstCodec::<A, Q>::default()).unary(service, request).await
}

async fn list_and_watch(plugin: &Plugin, request: http::Request<Incoming>) -> http::Response<Body> {
    let (device, mut offers) = (plugin.device, plugin.offer.clone());
    offers.mark_changed();
    let service = tower::service_fn(move |_: Request<Empty>| {
        let lists = stream::unfold(offers.clone(), move |mut offers| async move {
            // The sender is gone when the plugin ends: so does the stream.
            offers.changed().await.ok()?;
            let offer = *offers.borrow_and_update();
            Some((Ok::<_, Status>(list(device, offer)), offers))
        });
        async move { Ok::<_, Status>(Response::new(lists)) }
    });
    Grpc::new(ProstCodec::<ListAndWatchResponse, Empty>::default()).server_streaming(service, request).await
}

/// The file by which QEMU handles page faults.
fn faults() -> DeviceSpec {
    device(&Path::new("/dev").join(files::FAULTS), &files::path(files::FAULTS))
}

fn device(inside: &Path, host: &Path) -> DeviceSpec {
    DeviceSpec {
        container_path: inside.display().to_string(),
        host_path: host.display().to_string(),
        permissions: "rw".to_owned(),
    }
}

fn list(device: Device, offer: Offer) -> ListAndWatchResponse {
    let health = if offer.healthy { "Healthy" } else { "Unhealthy" };
    let units = (0..SLOTS).map(|number| Unit { id: unit(device, number), health: health.to_owned() });
    ListAndWatchResponse { devices: units.collect() }
}

impl Plugin {
    pub(crate) fn new(device: Device, offer: watch::Receiver<Offer>, sockets: PathBuf) -> Self {
        Self { device, offer, sockets, registered: AtomicBool::new(false) }
    }

    /// Whether the kubelet that runs now has accepted the registration.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Relaxed)
    }

    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Relaxed);
    }

    fn allocate(&self, wanted: &AllocateRequest) -> Result<AllocateResponse, Status> {
        let offer = *self.offer.borrow();
        let containers = wanted.container_requests.iter().map(|container| self.container(container, offer));
        Ok(AllocateResponse { container_responses: containers.collect::<Result<_, _>>()? })
    }

    fn container(
        &self,
        wanted: &ContainerAllocateRequest,
        offer: Offer,
    ) -> Result<ContainerAllocateResponse, Status> {
        if let Some(unknown) = wanted.devices_ids.iter().find(|id| !is_unit(self.device, id)) {
            let text = format!("{} has no unit {unknown:?}", self.device.resource());
            return Err(Status::new(Code::InvalidArgument, text));
        }
        if !offer.healthy {
            let text = format!("this node has no {}", self.device.needs().path().display());
            return Err(Status::new(Code::FailedPrecondition, text));
        }
        let mut response = ContainerAllocateResponse::default();
        if offer.given && !wanted.devices_ids.is_empty() {
            match self.device {
                Device::Node => {
                    response.mounts.push(self.sockets());
                    response.devices.extend(offer.open.then(faults));
                }
                Device::Kvm | Device::Tun | Device::VhostNet => response.devices.push(self.file(offer)),
            }
        }
        Ok(response)
    }

    /// The directory, so that a socket that is made again is seen.
    fn sockets(&self) -> Mount {
        Mount {
            container_path: self.device.path().display().to_string(),
            host_path: self.sockets.display().to_string(),
            read_only: true,
        }
    }

    fn file(&self, offer: Offer) -> DeviceSpec {
        let path = self.device.path();
        let host = if offer.open { files::path(self.device.short()) } else { path.to_owned() };
        device(path, &host)
    }

    /// Name of the socket in the kubelet's directory.
    pub(crate) fn endpoint(&self) -> PathBuf {
        PathBuf::from(format!("neonvm-{}.sock", self.device.short()))
    }
}
