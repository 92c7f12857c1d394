//! Keys change what is shown.

use super::fixture::{fleet, key, many};
use crate::live::keys::{Next, Press, press};
use crate::live::model::Fleet;
use crate::live::{Page, Sort, Ui};

fn typed(ui: &mut Ui, fleet: &Fleet, text: &str) {
    for character in text.chars() {
        assert_eq!(press(ui, fleet, Press::Char(character)), Next::Continue);
    }
}

fn names(ui: &Ui, fleet: &Fleet) -> Vec<String> {
    ui.rows(fleet).into_iter().map(|(key, _)| key.name.clone()).collect()
}

#[test]
fn sorted_and_reversed() {
    let (fleet, mut ui) = (fleet(), Ui::default());
    assert_eq!(names(&ui, &fleet), ["pg", "web", "cache", "fixed", "new"], "by CPU, unknown last");
    typed(&mut ui, &fleet, "r");
    assert_eq!(names(&ui, &fleet)[..2], ["new", "fixed"]);
    typed(&mut ui, &fleet, "s");
    assert_eq!((ui.sort, ui.reversed), (Sort::Memory, false));
    assert_eq!(names(&ui, &fleet)[..2], ["pg", "cache"]);
    typed(&mut ui, &fleet, "s");
    assert_eq!(names(&ui, &fleet)[..2], ["pg", "cache"], "by size");
    typed(&mut ui, &fleet, "s");
    assert_eq!(names(&ui, &fleet), ["cache", "fixed", "new", "pg", "web"]);
    typed(&mut ui, &fleet, "s");
    assert_eq!(names(&ui, &fleet), ["new", "fixed", "pg", "cache", "web"], "by node");
    typed(&mut ui, &fleet, "s");
    assert_eq!(ui.sort, Sort::Cpu);
}

#[test]
fn filtered_by_words() {
    let (fleet, mut ui) = (fleet(), Ui::default());
    typed(&mut ui, &fleet, "/N2 e");
    assert!(ui.editing);
    assert_eq!(names(&ui, &fleet), ["web", "cache"]);
    typed(&mut ui, &fleet, "qsr?d");
    assert_eq!(ui.filter, "N2 eqsr?d", "letters are part of the filter");
    for _ in 0..6 {
        press(&mut ui, &fleet, Press::Backspace);
    }
    press(&mut ui, &fleet, Press::Enter);
    assert_eq!((ui.filter.as_str(), ui.editing), ("N2 ", false));
    press(&mut ui, &fleet, Press::Escape);
    assert_eq!(ui.filter, "");
    typed(&mut ui, &fleet, &format!("/{}", "x".repeat(1000)));
    assert!(ui.filter.len() < 100);
    press(&mut ui, &fleet, Press::Escape);
    assert_eq!((ui.filter.as_str(), ui.editing), ("", false));
}

#[test]
fn the_selection_stays_with_its_vm() {
    let (mut fleet, mut ui) = (fleet(), Ui::default());
    press(&mut ui, &fleet, Press::Line(true));
    assert_eq!(ui.selected, Some(key("web")));
    typed(&mut ui, &fleet, "sss");
    assert_eq!(ui.selected, Some(key("web")));
    press(&mut ui, &fleet, Press::Enter);
    assert_eq!(ui.page, Page::Vm(key("web")));
    fleet.vms.clear();
    press(&mut ui, &fleet, Press::Escape);
    assert_eq!(ui.page, Page::Overview);
    for key in [
        Press::Line(true),
        Press::Line(false),
        Press::End(true),
        Press::End(false),
        Press::Page(true),
        Press::Enter,
    ] {
        assert_eq!(press(&mut ui, &fleet, key), Next::Continue, "nothing to select");
    }
    assert_eq!((ui.selected, ui.page), (None, Page::Overview));
}

#[test]
fn to_the_ends_and_no_further() {
    let (fleet, mut ui) = (many(), Ui { sort: Sort::Name, ..Ui::default() });
    press(&mut ui, &fleet, Press::End(true));
    assert_eq!(ui.selected, Some(key("web")));
    press(&mut ui, &fleet, Press::Page(true));
    typed(&mut ui, &fleet, "j");
    assert_eq!(ui.selected, Some(key("web")));
    press(&mut ui, &fleet, Press::End(false));
    press(&mut ui, &fleet, Press::Line(false));
    typed(&mut ui, &fleet, "k");
    assert_eq!(ui.selected, Some(key("cache")));
}

#[test]
fn pages_open_and_close() {
    let (fleet, mut ui) = (fleet(), Ui::default());
    for (letter, page) in [('?', Page::Help), ('d', Page::Stream)] {
        typed(&mut ui, &fleet, &letter.to_string());
        assert_eq!(ui.page, page);
        press(&mut ui, &fleet, Press::Line(true));
        assert_eq!(ui.scroll, 1);
        typed(&mut ui, &fleet, &letter.to_string());
        assert_eq!((&ui.page, ui.scroll), (&Page::Overview, 0));
    }
    press(&mut ui, &fleet, Press::Enter);
    typed(&mut ui, &fleet, "?q");
    assert_eq!(ui.page, Page::Overview, "q goes back from a page");
    assert_eq!(press(&mut ui, &fleet, Press::Char('q')), Next::Quit);
    typed(&mut ui, &fleet, "/");
    assert_eq!(press(&mut ui, &fleet, Press::Interrupt), Next::Quit, "Ctrl-C ends it everywhere");
}
