use std::sync::mpsc::{Receiver, channel};

use super::*;

struct Lab {
    directory: tempfile::TempDir,
    freezer: Freezer,
    /// What the kernel was ordered: `true` to freeze.
    orders: Receiver<bool>,
}

impl Lab {
    fn new(answer: impl Fn(bool) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (sender, orders) = channel();
        let order = move |_: &File, freeze| answer(freeze).inspect(|()| sender.send(freeze).unwrap());
        let freezer = Freezer::with(directory.path(), Box::new(order), false);
        Self { directory, freezer, orders }
    }

    fn targets(&self, names: &[&str]) -> Vec<(String, File)> {
        names.iter().map(|name| ((*name).to_owned(), File::open(self.directory.path()).unwrap())).collect()
    }

    fn begin(&self, names: &[&str], bound: Duration) -> Result<Frozen, Refused> {
        self.freezer.begin(self.targets(names), bound)
    }
}

const LONG: Duration = Duration::from_secs(100);

#[test]
fn a_freeze_is_ended_once() {
    let lab = Lab::new(|_| Ok(()));
    assert_eq!(lab.freezer.thaw(), Thawed::default(), "nothing was frozen");
    let frozen = lab.begin(&["data", "/"], LONG).unwrap();
    assert_eq!((frozen.disks, frozen.seconds), (vec!["data".to_owned(), "/".to_owned()], 100));
    assert!(lab.freezer.is_active() && may_be_active(lab.directory.path()));
    assert!(matches!(lab.begin(&["log"], LONG), Err(Refused::Busy(why)) if why.contains("thaw first")));
    let thawed = lab.freezer.thaw();
    assert_eq!((thawed.disks.len(), thawed.expired), (2, false));
    assert_eq!(lab.freezer.thaw(), Thawed::default());
    assert!(!may_be_active(lab.directory.path()));
    assert_eq!(lab.orders.try_iter().collect::<Vec<_>>(), [true, true, false, false]);
}

#[test]
fn the_guest_ends_a_freeze_that_no_client_ends() {
    let lab = Lab::new(|_| Ok(()));
    lab.begin(&["data"], Duration::from_millis(20)).unwrap();
    assert_eq!(lab.orders.recv(), Ok(true));
    assert_eq!(lab.orders.recv_timeout(LONG), Ok(false));
    let until = Instant::now() + LONG;
    while lab.freezer.0.lock().expired.is_none() {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let thawed = lab.freezer.thaw();
    assert!(thawed.expired && thawed.frozen_ms >= 20 && thawed.disks == ["data"], "{thawed:?}");
    assert_eq!(lab.freezer.thaw(), Thawed::default(), "that is shown once");
}

#[test]
fn if_one_cannot_be_frozen_none_is() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let lab = Lab::new(move |freeze| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if freeze && call == 1 { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    });
    let Err(Refused::Failed(why)) = lab.begin(&["data", "log"], LONG) else { panic!("it is frozen") };
    assert!(why.contains("of log: it is frozen already"), "{why}");
    assert!(!lab.freezer.is_active());
    assert_eq!(lab.orders.try_iter().collect::<Vec<_>>(), [true, false]);
}

/// The kernel waits for what is written back while the time goes by.
#[test]
fn one_that_is_frozen_too_late_is_thawed_at_once() {
    let lab = Lab::new(|freeze| {
        std::thread::sleep(Duration::from_millis(if freeze { 1_000 } else { 0 }));
        Ok(())
    });
    let Err(Refused::Failed(why)) = lab.begin(&["data"], Duration::from_millis(1)) else {
        panic!("too late")
    };
    assert!(why.contains("within the time"), "{why}");
    assert_eq!(lab.orders.try_iter().collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_request_that_cannot_be_is_refused() {
    let lab = Lab::new(|_| Ok(()));
    let request = |disks: &[&str], seconds| FreezeRequest {
        disks: disks.iter().map(|name| (*name).to_owned()).collect(),
        root: false,
        seconds,
    };
    for (request, part) in [
        (request(&["data"], 0), "seconds"),
        (request(&["data"], 1), "data is not mounted"),
        (request(&[], 1), "name a disk"),
    ] {
        let Err(Refused::Wrong(why)) = lab.freezer.freeze(lab.directory.path(), &request) else { panic!() };
        assert!(why.contains(part), "{why}");
    }
}
