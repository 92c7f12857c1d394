use std::path::Path;

use super::*;

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not happen within 60 s");
}

fn shell(directory: &Path, name: &str, script: &str) -> Service {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Service { name: name.into(), argv, log: directory.join(format!("logs/{name}.log")), ends_last: false }
}

fn pid(directory: &Path, name: &str, restarts: u64) -> Option<u32> {
    let all = Record::read(directory).ok()?;
    all.into_iter().find(|state| state.name == name && state.restarts >= restarts)?.pid
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn services_are_started_again_and_end_with_the_supervisor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let good = shell(&path, "good", "echo hello; exec sleep 1000");
    let stubborn = shell(&path, "stubborn", "trap '' TERM; echo armed; while :; do sleep 0.05; done");
    let short = shell(&path, "short", "exit 3");
    let mut config = Config::new(path.clone(), vec![good, stubborn, short]);
    config.grace = Duration::from_millis(300);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(run(config, async move {
        let _ = stopped.await;
    }));
    let first = until("the start", || pid(&path, "good", 0)).await;
    let log = path.join("logs/good.log");
    until("the output", || std::fs::read_to_string(&log).ok().filter(|text| text == "hello\n")).await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(first).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let second = until("the restart", || pid(&path, "good", 1)).await;
    assert_ne!(first, second);
    until("more restarts", || {
        Record::read(&path).ok()?.into_iter().find(|s| s.name == "short" && s.restarts >= 2)
    })
    .await;
    let stubborn = until("the stubborn one", || pid(&path, "stubborn", 0)).await;
    let armed = path.join("logs/stubborn.log");
    until("the trap", || std::fs::read_to_string(&armed).ok().filter(|text| !text.is_empty())).await;
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert!(!is_alive(second) && !is_alive(stubborn));
    assert_eq!(Record::read(&path).unwrap(), []);
}

#[tokio::test]
async fn a_service_that_ends_last_outlives_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let order = path.join("order");
    let noting = |name: &str, pause: &str| {
        let note = format!("echo {name} >> {}", order.display());
        shell(
            &path,
            name,
            &format!("trap '{pause} {note}; exit 0' TERM; echo armed; while :; do sleep 0.05; done"),
        )
    };
    // The one that ends last is the quicker one: without an order it would be the first.
    let needed = Service { ends_last: true, ..noting("needed", "") };
    let config = Config::new(path.clone(), vec![needed, noting("user", "sleep 0.5;")]);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(run(config, async move {
        let _ = stopped.await;
    }));
    for name in ["needed", "user"] {
        let log = path.join(format!("logs/{name}.log"));
        until("the trap", || std::fs::read_to_string(&log).ok().filter(|text| !text.is_empty())).await;
    }
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(std::fs::read_to_string(&order).unwrap(), "user\nneeded\n");
}

#[tokio::test]
async fn logs_are_moved_aside_when_they_are_large() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let line = "0123456789012345678901234567890123456789012345678901234567890123456789";
    let loud =
        shell(&path, "loud", &format!("yes {line} | head -c 11000000; echo; echo end; exec sleep 1000"));
    let config = Config::new(path.clone(), vec![loud]);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(run(config, async move {
        let _ = stopped.await;
    }));
    let log = path.join("logs/loud.log");
    let text =
        until("the end", || std::fs::read_to_string(&log).ok().filter(|text| text.ends_with("end\n"))).await;
    let old = std::fs::read_to_string(path.join("logs/loud.log.1")).unwrap();
    assert!(old.len() <= 11 << 20 && old.ends_with('\n'));
    assert_eq!(old.len() + text.len(), 11_000_005);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_path_buf();
    let twice = vec![shell(&path, "a", "true"), shell(&path, "a", "true")];
    assert!(
        matches!(run(Config::new(path, twice), async {}).await, Err(Error::Service(name)) if name == "a")
    );
}
