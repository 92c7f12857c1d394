//! Leaders under a fake API server that keeps one `Lease`, in virtual time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;

/// Lease of the program beside us.
const BESIDE: &str = "beside";

/// What the server keeps, and what it does to writes.
#[derive(Default)]
struct Fake {
    lease: Option<Value>,
    version: u64,
    writes: usize,
    reads: usize,
    /// How many of the next writes find that another client has changed the annotations since the read.
    annotated_before_write: usize,
    /// Identity that takes the lease by force before the next write.
    taken_by: Option<&'static str>,
    /// The lease of the program beside us.
    beside: Option<Value>,
}

impl Fake {
    fn put(&mut self, mut lease: Value) -> (StatusCode, Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        (StatusCode::OK, lease)
    }

    fn interfere(&mut self) {
        let Some(mut lease) = self.lease.clone() else { return };
        if self.annotated_before_write > 0 {
            self.annotated_before_write -= 1;
            lease["metadata"]["annotations"]["note"] = json!(self.version.to_string());
            self.put(lease.clone());
        }
        if let Some(holder) = self.taken_by.take() {
            lease["spec"]["holderIdentity"] = json!(holder);
            self.put(lease);
        }
    }

    /// Of the program beside us: a replica renews its lease, of 8 s.
    fn beside(&mut self, holder: &str) {
        self.version += 1;
        self.beside = Some(json!({"metadata": {"name": BESIDE, "resourceVersion": self.version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 8, "leaseTransitions": self.version}}));
    }

    fn answer(&mut self, (method, path): (&Method, &str), body: &[u8]) -> (StatusCode, Value) {
        let failure = |code: u16, reason: &str| json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
        if *method == Method::GET {
            self.reads += usize::from(!path.ends_with(BESIDE));
            let asked = if path.ends_with(BESIDE) { &self.beside } else { &self.lease };
            return match asked {
                Some(lease) => (StatusCode::OK, lease.clone()),
                None => (StatusCode::NOT_FOUND, failure(404, "NotFound")),
            };
        }
        if *method == Method::PUT && self.lease.is_none() {
            return (StatusCode::NOT_FOUND, failure(404, "NotFound"));
        }
        self.interfere();
        let new: Value = serde_json::from_slice(body).unwrap();
        let stale = self
            .lease
            .as_ref()
            .is_some_and(|lease| lease["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]);
        if stale {
            return (StatusCode::CONFLICT, failure(409, "Conflict"));
        }
        self.writes += 1;
        self.put(new)
    }
}

fn server() -> (Client, Arc<Mutex<Fake>>) {
    let fake: Arc<Mutex<Fake>> = Arc::default();
    let kept = Arc::clone(&fake);
    let service = service_fn(move |request: Request<Body>| {
        let kept = Arc::clone(&kept);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (status, answer) = kept.lock().unwrap().answer((&parts.method, parts.uri.path()), &body);
            let answer = Response::builder().status(status).body(Full::new(Bytes::from(answer.to_string())));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    (Client::new(service, "default"), fake)
}

fn elector(client: Client) -> Elector {
    Elector::new(client, Config::new("ns", "lease", "us"))
}

fn holder(fake: &Mutex<Fake>) -> String {
    let fake = fake.lock().unwrap();
    fake.lease.as_ref().unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

/// Leads for a time; how many times the work began.
async fn lead_for(client: Client, time: Duration) -> usize {
    let begun = Mutex::new(0);
    let work = || {
        *begun.lock().unwrap() += 1;
        std::future::pending::<Result<(), Infallible>>()
    };
    elector(client).lead(sleep(time), work).await.unwrap();
    begun.into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_a_renewal_does_not_end_leadership() {
    let (client, fake) = server();
    let conflicts = async {
        sleep(Duration::from_secs(5)).await;
        fake.lock().unwrap().annotated_before_write = 1;
        sleep(Duration::from_secs(10)).await;
        // Several in a row are outlived, too.
        fake.lock().unwrap().annotated_before_write = 4;
    };
    let (begun, ()) = tokio::join!(lead_for(client, Duration::from_secs(60)), conflicts);
    assert_eq!(begun, 1);
    assert_eq!(fake.lock().unwrap().annotated_before_write, 0);
    assert_eq!(holder(&fake), "", "it was given back at the end");
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_without_reading() {
    let (client, fake) = server();
    assert_eq!(lead_for(client, Duration::from_secs(60)).await, 1);
    let fake = fake.lock().unwrap();
    assert!(fake.writes >= 25, "{}", fake.writes);
    // Before it is made, and before it is given back.
    assert_eq!(fake.reads, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_is_made_again() {
    let (client, fake) = server();
    let deleted = async {
        sleep(Duration::from_secs(5)).await;
        fake.lock().unwrap().lease = None;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(holder(&fake), "us");
    };
    let (begun, ()) = tokio::join!(lead_for(client, Duration::from_secs(60)), deleted);
    assert_eq!(begun, 1);
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_leadership_at_once() {
    let (client, fake) = server();
    let taken = async {
        sleep(Duration::from_secs(5)).await;
        fake.lock().unwrap().taken_by = Some("them");
    };
    let mut elector = elector(client);
    let started = elector.acquire().await;
    let (lost, ()) = tokio::join!(elector.hold(started), taken);
    let took = started.elapsed();
    assert_eq!(lost, Lost::Holder("them".into()));
    assert!(took >= Duration::from_secs(5) && took <= Duration::from_secs(8), "{took:?}");
    assert_eq!(holder(&fake), "them");
}

#[tokio::test(start_paused = true)]
async fn conflicts_without_end_lose_the_lease_at_the_deadline() {
    let (client, fake) = server();
    let mut elector = elector(client);
    let started = elector.acquire().await;
    fake.lock().unwrap().annotated_before_write = usize::MAX;
    assert!(matches!(elector.hold(started).await, Lost::Late(_)));
    let (took, deadline) = (started.elapsed(), Times::default().renew_deadline);
    assert!(
        took + Duration::from_secs(1) >= deadline && took <= deadline + Duration::from_secs(1),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_returns_at_once_is_started_again_with_backoff() {
    let (client, fake) = server();
    let started = Instant::now();
    let times = Mutex::new(Vec::new());
    let work = || {
        let mut times = times.lock().unwrap();
        times.push(started.elapsed().as_millis());
        // It must not take the test with it.
        assert!(times.len() < 1000, "it is started again without a pause");
        std::future::ready(Ok::<_, Infallible>(()))
    };
    elector(client).lead(sleep(Duration::from_secs(120)), work).await.unwrap();
    let times = times.into_inner().unwrap();
    assert_eq!(times[..4], [0, 100, 300, 700]);
    assert!(times.len() < 15, "{times:?}");
    assert!(fake.lock().unwrap().writes < 40);
}

#[tokio::test(start_paused = true)]
async fn work_that_fails_ends_the_lead_and_the_lease_is_given_back() {
    let (client, fake) = server();
    let work = || std::future::ready(Err("planted"));
    assert_eq!(elector(client.clone()).lead(std::future::pending(), work).await, Err("planted"));
    assert_eq!(holder(&fake), "");
    assert_eq!(lead(&client, None, std::future::pending(), work).await, Err("planted"));
}

/// A pair of replicas, each beside one of another program.
fn replica(client: &Client, identity: &str) -> Elector {
    let mut config = Config::new("ns", "lease", identity);
    config.times = Times { retry: Duration::from_secs(1), ..config.times };
    config.beside = Some(Beside { name: BESIDE.to_owned(), holder: format!("{identity}_") });
    Elector::new(client.clone(), config)
}

#[tokio::test(start_paused = true)]
async fn who_leads_beside_another_program_leads_where_that_does() {
    let (client, fake) = server();
    let (mut first, mut second) = (replica(&client, "one"), replica(&client, "two"));
    let renewing = |holder: &'static str, seconds: u64| {
        let fake = Arc::clone(&fake);
        async move {
            for _ in 0..seconds {
                fake.lock().unwrap().beside(holder);
                sleep(Duration::from_secs(1)).await;
            }
        }
    };
    // Whichever comes first: the other program decides.
    fake.lock().unwrap().beside("one_5e2a");
    let led = tokio::select! {
        _ = second.acquire() => "two",
        _ = async { tokio::join!(first.acquire(), renewing("one_5e2a", 30)) } => "one",
    };
    assert_eq!((led, holder(&fake).as_str()), ("one", "one"));
    // It leads in the other pod now: this one gives the lease up although it could be renewed.
    fake.lock().unwrap().beside("two_77aa");
    assert_eq!(first.renew(Duration::from_secs(5)).await, Err(Lost::Beside("two_77aa".into())));
    first.release().await;
    let started = Instant::now();
    tokio::join!(second.acquire(), renewing("two_77aa", 2));
    assert_eq!(holder(&fake), "two");
    assert!(started.elapsed() <= Duration::from_secs(2), "it need not wait for the end of the lease");
}

/// What is done for others does not wait for the program beside it.
#[tokio::test(start_paused = true)]
async fn without_a_leader_beside_it_a_replica_leads_nevertheless() {
    let (client, fake) = server();
    let (mut first, mut second) = (replica(&client, "one"), replica(&client, "two"));
    first.acquire().await;
    // The other program led with the pod that is gone.
    fake.lock().unwrap().beside("one_5e2a");
    first.renew(Duration::from_secs(5)).await.unwrap();
    let started = Instant::now();
    second.acquire().await;
    assert_eq!(holder(&fake), "two");
    assert!(started.elapsed() <= replica(&client, "two").config.times.takeover(), "{:?}", started.elapsed());
    // It gave its own lease back.
    fake.lock().unwrap().beside("");
    second.renew(Duration::from_secs(5)).await.unwrap();
}
