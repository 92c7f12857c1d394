//! The Containerfiles: users, programs, packages, labels and pins of the images.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;

use neonvm_images::release::{NAMES, PROTOCOLS, protocols};

/// The instructions of an image's Containerfile, each in one line.
fn instructions(image: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{image}.Containerfile"));
    let text = std::fs::read_to_string(file).unwrap().replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[track_caller]
fn has(image: &str, wanted: &[&str]) {
    let all = instructions(image);
    for wanted in wanted {
        assert!(all.iter().any(|line| line == wanted), "{image} has no {wanted:?}: {all:#?}");
    }
}

#[track_caller]
fn installs(image: &str, packages: &[&str]) -> String {
    let install = instructions(image).into_iter().find(|line| line.starts_with("RUN ")).unwrap();
    for package in packages {
        assert!(install.contains(&format!(" {package} ")), "{image} does not install {package}: {install}");
    }
    install
}

#[test]
fn packages_come_from_a_pinned_snapshot_that_can_be_replaced() {
    let pins = NAMES.map(|name| {
        has(
            name,
            &[
                "FROM ${BASE}",
                "ARG DEBIAN_MIRROR=http://snapshot.debian.org/archive/debian/${SNAPSHOT}",
                "ARG SECURITY_MIRROR=http://snapshot.debian.org/archive/debian-security/${SNAPSHOT}",
                "ARG SOURCE_DATE_EPOCH=0",
            ],
        );
        let is_pin = |line: &String| ["ARG BASE=", "ARG SNAPSHOT="].iter().any(|pin| line.starts_with(pin));
        instructions(name).into_iter().filter(is_pin).collect::<Vec<_>>()
    });
    let [services, runner] = pins;
    assert!(services.len() == 2 && services == runner, "base and snapshot: {services:?}, {runner:?}");
}

/// `neonctl image release` refuses images of other protocol versions.
#[test]
fn labels_name_the_protocols_of_this_build() {
    let label = format!("LABEL {PROTOCOLS}=\"{}\"", protocols());
    NAMES.iter().for_each(|name| has(name, &[&label]));
}

#[test]
fn services_run_as_a_user_without_rights() {
    has("neond", &["COPY --chmod=0755 neond /usr/local/bin/neond", "USER 65532:65532"]);
    installs("neond", &["ca-certificates", "iproute2", "nftables"]);
}

/// Manifests start `neond` in both images; the runner finds guest and kernel by its environment.
#[test]
fn the_runner_has_what_it_executes() {
    has(
        "neonvm-runner",
        &[
            "COPY --chmod=0755 neonvm-runner /usr/local/bin/neond",
            "COPY --chmod=0755 neonvm-guest /usr/local/lib/neonvm/neonvm-guest",
            "COPY --chmod=0644 kernel/* /vm/kernel/",
            "ENV NEONVM_GUEST=/usr/local/lib/neonvm/neonvm-guest",
            "ENV NEONVM_KERNEL=/vm/kernel/vmlinuz",
            "ENV NEONVM_INITRAMFS=/vm/kernel/initramfs",
            "ARG QEMU=qemu-system-x86",
            "USER 65534:65534",
        ],
    );
    let install = installs("neonvm-runner", &["e2fsprogs", "\"${QEMU}\""]);
    // What it runs is kept from other processes of its user.
    assert!(install.contains("chmod 0711 /usr/bin/qemu-system-*"), "{install}");
}
