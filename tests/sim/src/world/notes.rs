//! The last things that happened, formatted only when they are shown.

use std::collections::VecDeque;

use neonvm_core_vertical_scaling::agent::Note;
use neonvm_types::Resources;

use super::model::{Id, Vm};
use crate::queue::Time;

const KEPT: usize = 50;

#[derive(Debug)]
pub(crate) enum Line {
    Agent(Id, Box<Note>),
    Vm(Id, &'static str),
    /// The same, with a text made at run time.
    VmText(Id, String),
    /// The same, with a size.
    Size(Id, &'static str, Resources),
    Node(Id, &'static str),
    Text(&'static str),
}

#[derive(Debug, Default)]
pub(crate) struct Notes(VecDeque<(Time, Line)>);

/// A time as people read it: `00:12:07.350`.
pub(crate) fn clock(at: Time) -> String {
    let (seconds, milli) = (at / 1_000_000, at / 1000 % 1000);
    format!("{:02}:{:02}:{:02}.{milli:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Notes {
    pub(crate) fn push(&mut self, at: Time, line: Line) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back((at, line));
    }

    pub(crate) fn lines(&self, vms: &[Vm], nodes: &[super::model::Node]) -> Vec<String> {
        let vm = |id: &Id| vms.get(*id).map_or("?", |vm| vm.name.as_str());
        let line = |(at, line): &(Time, Line)| {
            let text = match line {
                Line::Agent(id, note) => format!("agent of {}: {note}", vm(id)),
                Line::Vm(id, what) => format!("{}: {what}", vm(id)),
                Line::VmText(id, what) => format!("{}: {what}", vm(id)),
                Line::Size(id, what, size) => format!("{}: {what} {}/{}", vm(id), size.vcpus, size.mem),
                Line::Node(id, what) => {
                    format!("{}: {what}", nodes.get(*id).map_or("?", |node| node.name.as_str()))
                }
                Line::Text(what) => (*what).to_owned(),
            };
            format!("{} {text}", clock(*at))
        };
        self.0.iter().map(line).collect()
    }
}
