use neonvm_types::Bytes;
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, split,
};

use super::*;
use crate::accelerator::Accelerator;
use crate::plan::{Architecture, CpuMode, CpuPlan, DiskImage, DiskPlan, Firmware, MemoryPlan};

/// A fake QEMU with output that the test determines.
struct Fake {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl Fake {
    async fn send(&mut self, line: &str) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, command: &str, result: &str) {
        let mut line = String::new();
        self.read.read_line(&mut line).await.unwrap();
        let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(asked["execute"], command);
        self.send(&format!(r#"{{"return":{result},"id":{}}}"#, asked["id"])).await;
    }
}

fn plan() -> MachinePlan {
    let size = Bytes::gib(1);
    let disk = |name: &str| {
        let image = DiskImage::Raw("/d".into());
        DiskPlan { name: name.into(), image, read_only: false, discard: false }
    };
    MachinePlan {
        name: String::new(),
        uuid: String::new(),
        architecture: Architecture::Amd64,
        accelerator: Accelerator::Kvm,
        machine_type: String::new(),
        cpu_model: None,
        cpu_features_off: vec![],
        network_features_off: &[],
        firmware: Firmware::Default,
        kernel: "/k".into(),
        initramfs: None,
        command_line: String::new(),
        cpu: CpuPlan { mode: CpuMode::Sysfs, boot: 1, max: 1 },
        memory: MemoryPlan { min: size, start: size, max: size, exact: false },
        disks: vec![disk("root"), disk("data")],
        disk_queues: None,
        interfaces: vec![],
        direct_io: false,
        incoming: false,
    }
}

#[tokio::test]
async fn a_failing_accelerator_is_distinguished_from_other_stops() {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (read, write) = split(theirs);
    let mut fake = Fake { read: BufReader::new(read), write };
    let greeting = async {
        fake.send(r#"{"QMP":{"version":{}}}"#).await;
        fake.answer("qmp_capabilities", "{}").await;
    };
    let (opened, ()) = tokio::join!(Session::open(ours, PATIENCE), greeting);
    let (session, _, first) = opened.unwrap();
    let (ended_sender, ended) = watch::channel(None);
    let watched = Watched {
        plan: Arc::new(plan()),
        session: Arc::new(session),
        ended,
        tail: Tail::default(),
        stderr: tokio::spawn(async {}),
    };
    let (_task, out, mut exit) = spawn(watched, first);
    let mut events = out.subscribe();
    let stop = r#"{"event":"STOP"}"#;
    fake.send(stop).await;
    fake.answer("query-status", r#"{"status":"paused"}"#).await;
    assert_eq!(events.recv().await, Ok(MachineEvent::Stopped(RunState::Paused)));
    fake.send(r#"{"event":"BLOCK_IO_ERROR","data":{"device":"","node-name":"disk1","operation":"write","action":"stop","nospace":true,"reason":"No space"}}"#).await;
    let failed = MachineEvent::DiskFailed {
        disk: "data".into(),
        write: true,
        full: true,
        stopped: true,
        reason: "No space".into(),
    };
    assert_eq!(events.recv().await, Ok(failed));
    fake.send(stop).await;
    fake.answer("query-status", r#"{"status":"internal-error"}"#).await;
    assert_eq!(events.recv().await, Ok(MachineEvent::AcceleratorFailed));
    assert_eq!(events.recv().await, Ok(MachineEvent::Stopped(RunState::InternalError)));
    // The last event comes together with the end.
    fake.send(r#"{"event":"SHUTDOWN","data":{"guest":false,"reason":"host-qmp-quit"}}"#).await;
    drop(fake);
    ended_sender.send_replace(Some(ExitStatus::from_raw(0)));
    let exit = exit.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(exit.internal_error && exit.is_quit() && exit.code == Some(0), "{exit:?}");
    assert_eq!(exit.to_string(), "QEMU ended with status 0 after its accelerator had failed");
}
