//! `neond`: one binary that carries every service; each is a subcommand.

mod agent;
mod apiserver;
mod local;
mod log;
mod node;
mod pod_autoscaler;
mod runner;
mod scheduler;
mod service;
mod state;
mod vm_controller;
mod vxlan_controller;
mod workload;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "neond",
    version,
    about = "Services of the VM autoscaling system; started by neonctl or by pods"
)]
struct Args {
    #[command(subcommand)]
    service: Service,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// A complete cluster on this machine: starts the services below and keeps them running
    Local(Box<local::Args>),
    /// The embedded Kubernetes API with its state on disk
    Apiserver(apiserver::Args),
    /// The state of a stopped cluster as a whole: check, backup, restore
    #[command(hide = true)]
    State(state::Args),
    /// Reconciles virtual machines, serves the webhooks
    VmController(Box<vm_controller::Args>),
    /// Permits sizes, watches the pressure on nodes, places pods or helps a kube-scheduler to
    Scheduler(scheduler::Args),
    /// Scales the VMs of a node by their load
    Agent(Box<agent::Args>),
    /// Joins a node to the overlay network of machines
    VxlanController(Box<vxlan_controller::Args>),
    /// Scales the replicas of workloads by their metrics
    PodAutoscaler(pod_autoscaler::Args),
    /// A node on this machine
    Node(Box<node::Args>),
    /// One virtual machine; runs in its pod
    Runner(Box<runner::Args>),
    /// Whether KVM really runs guests: a line of JSON
    #[command(hide = true)]
    KvmProbe,
    /// Plays the pods of Deployments on this machine, for demonstrations
    #[command(hide = true)]
    Workload(workload::Args),
    /// One of these pods
    #[command(hide = true)]
    WorkloadPod(workload::server::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().service {
        Service::Runner(args) => runner::run(&args),
        Service::KvmProbe => runner::probe(),
        service => {
            log::to(std::io::stderr);
            match service {
                Service::Local(args) => local::run(&args),
                Service::Apiserver(args) => apiserver::run(&args),
                Service::State(args) => state::run(&args),
                Service::VmController(args) => vm_controller::run(&args),
                Service::Scheduler(args) => scheduler::run(&args),
                Service::Agent(args) => agent::run(&args),
                Service::VxlanController(args) => vxlan_controller::run(&args),
                Service::PodAutoscaler(args) => pod_autoscaler::run(&args),
                Service::Node(args) => node::run(&args),
                Service::Workload(args) => workload::run(&args),
                Service::WorkloadPod(args) => workload::server::run(&args),
                Service::Runner(_) | Service::KvmProbe => Ok(()),
            }
        }
    }
}
