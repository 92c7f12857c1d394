//! Attacks on a local cluster of real programs, each by a real attacker. What can be shown in a process of a test is shown there; here
//! is what needs the whole. Findings of the review, and what shows that each is closed (without a crate: a test of this program):
//!
//! | Finding | Shown by |
//! |---|---|
//! | C1 a VM is root on its node | `tenant::a_vm_carries_no_power_over_its_node`; `neonvm-vm-controller` `policy::`; `neonvm-core-vm-lifecycle` `pod::nothing_that_an_author_writes_is_privileged` |
//! | C2 state on disk is open | `state::an_unprivileged_user_opens_no_file_of_a_running_cluster` |
//! | C3 one node is the whole cluster | `authority::the_rights_of_one_agent_end_at_its_node` |
//! | H1 strangers migrate VMs | `evictions::strangers_evict_nothing`; `neonvm-vm-controller` `evictions::evictions_of_strangers_are_rejected`, `…a_request_of_unknown_origin_is_verified` |
//! | H2 names in certificates of guests | `authority::a_certificate_of_a_guest_passes_for_no_service` |
//! | H3 overcommit is the tenant's | as C1 |
//! | H4 a guest takes another's address | `neonvm-runner` `network::overlay` (frames through the real rules), `network::nft`; `neonvm-vxlan-controller` `wireguard::a_forged_packet_does_not_arrive` |
//! | H5 bodies before authorisation | `strangers::bodies_of_strangers_are_not_kept`; `neonvm-kit` `http::` |
//! | H6 strangers lock a runner | `runners::strangers_do_not_lock_a_runner_and_qemus_are_strangers_to_each_other` |
//! | H7 endpoints exhaust the pod-autoscaler | `scrapes::hostile_endpoints_neither_exhaust_nor_explore` |
//! | M1 certificates end while in use | `neonvm-kit` `certificate::renewal::`, `certificate::tests::`; `neonvm-runner` `certificate::files_that_are_exchanged_are_taken_up`; `neonvm-vm-controller` `signing::a_runners_certificate_is_renewed_in_its_secret` |
//! | M2 damaged state is served | `state::a_state_that_is_lost_or_damaged_is_refused_and_a_backup_brings_it_back`; `neonvm-apiserver` `disk::tests::damage::` |
//! | M3 escapes reach the terminal | `terminal::`; `neonvm-cli` test program `hostile` |
//! | M4 QEMUs share a user | `runners::strangers_do_not_lock_a_runner_and_qemus_are_strangers_to_each_other` |
//! | M5 a runner's key opens much, for long | `authority::a_runners_key_opens_nothing_else_and_not_for_long` |
//! | M6 full disk | `state::a_full_disk_serves_reads_and_deletes_starts_and_recovers` |
//! | Low: the key of `vm ssh` after a signal | there is no file any more: `neonvm-cli` `commands::vm::ssh::agent::` |
//! | Low: `spec.tls` takes a foreign secret; VM `x-tmp` | `tenant::secrets_of_others_are_not_taken` |
//! | Low: a flood of logs | `fuzz::guest::`; `neonvm-runner` `logs::bounded::a_flood_is_bounded_at_every_moment_and_lines_stay_whole` |
//! | Low: metadata services, the node's kubelet | `neonvm-runner` `network::nft::rules_of_a_pod_with_both_families` |
//! | Low: registries that drip, zip bombs | `neonvm-builder` `registry::tests::faults::a_registry_that_drips_is_given_up`, `…a_bomb_ends_at_the_limit` |
//! | Low: VM rights read secrets | by design: `SECURITY.md`, actor `author` |
//! | Likely: renewal of agent and scheduler | as M1 |
//! | Likely: privileges of the runner's container | `neonvm-core-vm-lifecycle` `pod::the_runner_has_what_it_needs_to_prepare_a_vm_and_no_more` |
//! | Likely: `schedulerName`, `interface`, `multusNetwork` | as C1 |
//! | Likely: source addresses at the tap | as H4 |
//! | Likely: half-open connections at a migration's target | `neonvm-kit` `places::strangers_and_handshakes_take_no_place_of_known_peers` |
//! | Tunnels take packets of guests; tags pass to the guest program | `overlay::no_guest_takes_over_what_is_for_another`; `neonvm-vxlan-controller` test program `root`, `attacks::`; `neonvm-runner` `network::overlay::tests::` |
//! | What a guest does not reach is a list of addresses | `neonvm-core-overlay` `closed::`; `neonvm-runner` `network::nft::tests::`; `neonvm-pod-autoscaler` `reach::` |
//! | Files of the node as images; paths that lead out; orders to plugins in annotations | `claims::paths_names_and_metadata_of_an_author_go_nowhere_else`; `neonvm-api` `guest_path::`; `neonvm-core-vm-lifecycle` `strings::` |
//! | A forged configuration | `claims::a_runner_refuses_a_forged_configuration`; `neonvm-runner` `config::`; `neonvm-kit` `anchors::` |
//! | A node filled with claims | `claims::a_node_is_not_filled_with_claims`; `neonvm-core-scheduling` `permits::tests::claims::` |
//! | Descriptors, outputs, bombs | `descriptors::`, `builds::` |
//! | The guest's daemon is root for all | `neonvm-guest` test program `services`, `api::a_process_of_the_guest_changes_nothing` |
//! | Patches that multiply | `neonvm-apiserver-engine` `patch::`, `engine::tests::` |
//! | Migrations before drains | `neonvm-core-migration` `phases::queue::tests::a_drain_waits_for_no_tenant` |
//! | what the review did not consider | `fuzz::anonymous::`, `fuzz::tenant::`, `fuzz::guest::`, `ports::` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests"
)]

mod attacker;
mod authority;
mod builds;
mod claims;
mod cluster;
mod descriptors;
mod evictions;
mod fuzz;
mod home;
mod overlay;
mod ports;
mod runners;
mod scrapes;
mod sockets;
mod state;
mod strangers;
mod tenant;
mod terminal;
