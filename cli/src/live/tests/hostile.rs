//! Whatever texts the model holds, no cell steers a terminal and every page can be drawn.

use proptest::prelude::*;
use ratatui::buffer::Buffer;

use super::PLAIN;
use super::fixture::{START, fleet, vm, why};
use crate::live::input::{Change, Entry, Input, Key, Kind, MoveFacts, NodeFacts, Origin};
use crate::live::keys::{Press, press};
use crate::live::view::{area, draw};
use crate::live::{Page, Ui};
use crate::render::hostile;

proptest! {
    #[test]
    fn no_cell_steers(text in hostile(), columns in 0_u16..130, rows in 0_u16..50, scroll in 0_usize..50) {
        let mut fleet = fleet();
        fleet.cluster.clone_from(&text);
        let key = Key::new(text.clone(), text.clone());
        let mut facts = vm(&text, 3);
        facts.phase.clone_from(&text);
        fleet.apply(START, Input::Vms(Change::Set(key.clone(), facts)));
        let mut why = why(&text);
        why.namespace.clone_from(&text);
        why.decisions[0].at.clone_from(&text);
        why.decisions[0].text.clone_from(&text);
        for field in [&mut why.stuck, &mut why.limit, &mut why.guest_protocol] {
            *field = Some(text.clone());
        }
        fleet.apply(START, Input::Agents(vec![why]));
        let node = NodeFacts { closed: Some(text.clone()), ..NodeFacts::default() };
        fleet.apply(START, Input::Nodes(Change::Set(text.clone(), node)));
        let facts = MoveFacts { vm: text.clone(), target: text.clone(), text: text.clone(), ..MoveFacts::default() };
        fleet.apply(START, Input::Moves(Change::Set(key.clone(), facts)));
        fleet.apply(START, Input::Trouble(Origin::Vms, Some(text.clone())));
        let entry = Entry { at: i64::MAX, id: text.clone(), kind: Kind::Warning, vm: key.clone(), text: text.clone() };
        fleet.apply(START, Input::Event(entry));
        for page in [Page::Overview, Page::Vm(key), Page::Stream, Page::Help] {
            let mut ui = Ui { page, scroll, filter: text.clone(), ..Ui::default() };
            let mut buffer = Buffer::empty(area(columns, rows));
            draw(&mut buffer, &fleet, &mut ui, PLAIN);
            let steers = |c: char| crate::render::one_line(&c.to_string()) != c.to_string();
            for cell in &buffer.content {
                prop_assert!(!cell.symbol().chars().any(steers), "{:?}", cell.symbol());
            }
        }
    }

    #[test]
    fn any_keys_are_taken(keys in prop::collection::vec((0_u8..10, any::<char>(), any::<bool>()), 0..60)) {
        let (fleet, mut ui) = (fleet(), Ui::default());
        for (kind, letter, way) in keys {
            let key = match kind {
                0 => Press::Enter,
                1 => Press::Escape,
                2 => Press::Backspace,
                3 => Press::Line(way),
                4 => Press::Page(way),
                5 => Press::End(way),
                6 => Press::Char('/'),
                _ => Press::Char(letter),
            };
            let _ = press(&mut ui, &fleet, key);
            draw(&mut Buffer::empty(area(80, 24)), &fleet, &mut ui, PLAIN);
        }
    }
}
