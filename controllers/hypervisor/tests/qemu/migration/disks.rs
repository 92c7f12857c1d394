//! Disks that are migrated with their VM.

use neonvm_test_support::{need, needs};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use neonvm_hypervisor::disks::{inspect, overlay};
use neonvm_hypervisor::machine::JobEnd;
use neonvm_hypervisor::plan::{BaseFormat, DiskImage, DiskPlan};

use super::*;

const SIZE: u64 = 64 << 20;

/// Files of a machine with an overlay and a raw disk.
struct Files {
    directory: tempfile::TempDir,
    base: PathBuf,
}

impl Files {
    fn make(base: Option<&PathBuf>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = base.cloned().unwrap_or_else(|| {
            let path = directory.path().join("base.raw");
            let mut content = vec![0x5A; 1 << 20];
            content.resize(SIZE as usize, 0);
            std::fs::write(&path, content).unwrap();
            path
        });
        let files = Self { directory, base };
        overlay(&files.overlay(), &inspect(&files.base).unwrap(), None).unwrap();
        std::fs::File::create(files.raw()).unwrap().set_len(SIZE).unwrap();
        files
    }

    fn overlay(&self) -> PathBuf {
        self.directory.path().join("overlay.qcow2")
    }

    fn raw(&self) -> PathBuf {
        self.directory.path().join("data.raw")
    }

    fn disks(&self) -> Vec<DiskPlan> {
        let image = DiskImage::Overlay {
            file: self.overlay(),
            base: self.base.clone(),
            base_format: BaseFormat::Raw,
        };
        let disk =
            |name: &str, image, discard| DiskPlan { name: name.into(), image, read_only: false, discard };
        vec![disk("rootdisk", image, true), disk("data", DiskImage::Raw(self.raw()), false)]
    }
}

fn equal(one: &PathBuf, other: &PathBuf) {
    let output = Command::new("qemu-img").args(["compare", "-U"]).args([one, other]).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_are_written_all_the_time_arrive_whole() {
    let lab = need!(lab());
    need!(needs::program("qemu-img"));
    let here = Files::make(None);
    let there = Files::make(Some(&here.base));
    let mut source = Side::start(MachinePlan { disks: here.disks(), ..lab.plan("rewrite") }).await;
    source.console.ready().await;
    let plan = MachinePlan { incoming: true, disks: there.disks(), ..source.machine.plan().clone() };
    let mut target = Side::start(plan).await;
    let names = source.machine.written_disks();
    assert_eq!(names, ["rootdisk", "data"]);
    target.machine.export_disks("nbd", &names).await.unwrap();
    source.join("disk", &target, "nbd");
    assert!(matches!(source.machine.mirror_disk("disk", "other").await, Err(MigrationError::Disk(_))));
    // Cancelled once, and begun again.
    let index = source.machine.mirror_disk("disk", "data").await.unwrap();
    source.machine.abandon_mirror(index).await.unwrap();
    event(&mut source.events, "the end", |event| matches!(event, MachineEvent::MirrorEnded(1, _))).await;
    source.machine.close_mirror(index).await.unwrap();
    let mut ready = BTreeSet::new();
    for name in &names {
        ready.insert(source.machine.mirror_disk("disk", name).await.unwrap());
    }
    while !ready.is_empty() {
        let is_ready = |event: &MachineEvent| matches!(event, MachineEvent::MirrorReady(_));
        if let MachineEvent::MirrorReady(index) = event(&mut source.events, "whole disks", is_ready).await {
            ready.remove(&index);
        }
    }
    let (done, all) = source.machine.mirrored().await.unwrap();
    assert!(done > Bytes::ZERO && all >= done, "{done} of {all}");
    begin(&source, &target, &one_pass()).await;
    source.phase(Phase::PreSwitchover).await;
    for index in [0, 1] {
        source.machine.finish_mirror(index).await.unwrap();
        let ended = |event: &MachineEvent| *event == MachineEvent::MirrorEnded(index, JobEnd::Whole);
        event(&mut source.events, "the end of a copy", ended).await;
        source.machine.close_mirror(index).await.unwrap();
    }
    target.machine.stop_exports().await.unwrap();
    target.machine.stop_exports().await.unwrap();
    source.machine.switch_over().await.unwrap();
    source.phase(Phase::Completed).await;
    target.phase(Phase::Completed).await;
    source.machine.quit().await.unwrap();
    source.machine.wait_for(PATIENCE).await.unwrap();
    // Both QEMUs have ended: the disks no longer change.
    equal(&here.overlay(), &there.overlay());
    equal(&here.raw(), &there.raw());
    let blocks = std::fs::metadata(there.raw()).unwrap().blocks() * 512;
    assert!(blocks < SIZE / 2, "holes stay holes: {blocks} bytes are taken");
    let grown = std::fs::metadata(there.overlay()).unwrap().blocks() * 512;
    assert!(grown < SIZE / 2, "the base is not copied: {grown} bytes are taken");
    target.machine.continue_().await.unwrap();
    let before = std::fs::metadata(there.raw()).unwrap().mtime_nsec();
    until("writes at the target", async || std::fs::metadata(there.raw()).unwrap().mtime_nsec() != before)
        .await;
    target.machine.quit().await.unwrap();
    target.machine.wait_for(PATIENCE).await.unwrap();
    let output = Command::new("qemu-img").arg("check").arg(there.overlay()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
