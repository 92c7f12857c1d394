//! The view, cell by cell, against golden screens (`UPDATE_GOLDEN=1` rewrites them); keys; hostile texts.

pub(crate) mod fixture;
mod hostile;
mod keys;
mod model;

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::model::Fleet;
use super::view::{self, Theme};
use super::{Page, Ui};
use fixture::{fleet, key};

const COLOR: Theme = Theme { color: true, unicode: true };
const PLAIN: Theme = Theme { color: false, unicode: true };
const ASCII: Theme = Theme { color: false, unicode: false };

/// The screen of a terminal of this size.
fn screen(fleet: &Fleet, ui: &mut Ui, theme: Theme, (columns, rows): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view::draw(frame.buffer_mut(), fleet, ui, theme)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer, cell: impl Fn(&ratatui::buffer::Cell) -> String) -> String {
    let width = usize::from(buffer.area.width);
    let line =
        |cells: &[ratatui::buffer::Cell]| cells.iter().map(&cell).collect::<String>().trim_end().to_owned();
    buffer.content.chunks(width).map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn text(buffer: &Buffer) -> String {
    lines(buffer, |cell| cell.symbol().to_owned())
}

/// A letter for the colour of each cell that is not blank.
fn colors(buffer: &Buffer) -> String {
    lines(buffer, |cell| {
        let letter = match cell.fg {
            Color::Reset => ".",
            Color::Green => "g",
            Color::Blue => "b",
            Color::Yellow => "y",
            Color::Red => "r",
            Color::Cyan => "c",
            _ => "?",
        };
        if cell.symbol() == " " { " " } else { letter }.to_owned()
    })
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/live/tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == text,
        "{} differs; run with UPDATE_GOLDEN=1 and look at it. Now:\n{text}",
        path.display()
    );
}

#[test]
fn overview() {
    for (size, name) in [((80, 24), "overview-80x24"), ((120, 40), "overview-120x40")] {
        let plain = screen(&fleet(), &mut Ui::default(), PLAIN, size);
        golden(&format!("{name}.txt"), &text(&plain));
        let color = screen(&fleet(), &mut Ui::default(), COLOR, size);
        golden(&format!("{name}-colors.txt"), &colors(&color));
        assert_eq!(text(&plain), text(&color), "colours repeat what signs show");
        assert!(plain.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    }
}

#[test]
fn without_unicode() {
    let ascii = text(&screen(&fleet(), &mut Ui::default(), ASCII, (80, 24)));
    assert!(ascii.is_ascii(), "{ascii}");
    golden("overview-80x24-ascii.txt", &ascii);
}

#[test]
fn all_namespaces() {
    let mut everything = fleet();
    everything.namespace = None;
    golden("all-namespaces-120x40.txt", &text(&screen(&everything, &mut Ui::default(), PLAIN, (120, 40))));
}

#[test]
fn pages() {
    let pages = [
        ("why", Page::Vm(key("pg"))),
        ("stream", Page::Stream),
        ("help", Page::Help),
        ("gone", Page::Vm(key("x"))),
    ];
    for (name, page) in pages {
        for size in [(80, 24), (120, 40)] {
            let mut ui = Ui { page: page.clone(), ..Ui::default() };
            let shown = text(&screen(&fleet(), &mut ui, PLAIN, size));
            golden(&format!("{name}-{}x{}.txt", size.0, size.1), &shown);
        }
    }
}

#[test]
fn nothing_is_known_yet() {
    let empty = Fleet::new("dev", Some("default".to_owned()));
    golden("empty-80x24.txt", &text(&screen(&empty, &mut Ui::default(), PLAIN, (80, 24))));
}

#[test]
fn every_size_is_drawn() {
    let many = fixture::many();
    for columns in [0, 1, 39, 40, 41, 79, 80, 109, 110, 300] {
        for rows in [0, 1, 9, 10, 11, 24, 80] {
            for page in [Page::Overview, Page::Vm(key("pg")), Page::Stream, Page::Help] {
                let mut ui = Ui { page, scroll: 10_000, ..Ui::default() };
                let area = ratatui::layout::Rect::new(0, 0, columns, rows);
                view::draw(&mut Buffer::empty(area), &many, &mut ui, ASCII);
            }
        }
    }
    let small = text(&screen(&fleet(), &mut Ui::default(), PLAIN, (30, 5)));
    assert!(small.starts_with("enlarge to 40x10"), "{small}");
}

#[test]
fn the_selected_row_is_on_the_screen() {
    let many = fixture::many();
    let mut ui = Ui { selected: Some(key("vm-150")), sort: super::Sort::Name, ..Ui::default() };
    let shown = text(&screen(&many, &mut ui, PLAIN, (80, 24)));
    assert!(shown.contains("vm-150") && shown.contains(" of 200)"), "{shown}");
}

#[test]
fn a_frame_of_many_vms_is_cheap() {
    // No measurement of time: the number of rows that are drawn does not depend on the number of VMs.
    let many = fixture::many();
    let shown = text(&screen(&many, &mut Ui::default(), PLAIN, (80, 24)));
    assert_eq!(shown.lines().count(), 24);
    assert!(shown.lines().filter(|line| line.contains("vm-")).count() < 12);
}
