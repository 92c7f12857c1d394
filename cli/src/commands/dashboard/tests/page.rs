//! What a person sees and does.

use neonvm_test_support::need;
use neonvm_test_support::needs::optional_program;
use serde_json::{Value, json};

use super::Served;
use super::browser::Browser;
use crate::live::input::{Change, Input, Key};
use crate::live::tests::fixture::{START, fleet, key, vm};

/// A name that a page which makes markup of texts would run.
const HOSTILE: &str = "<img src=x onerror=document.title='owned'>";

/// Contrast of each element's text to what is behind it, as [`WCAG`](https://www.w3.org/TR/WCAG22/) reckons it; those below 4.5.
const CONTRAST: &str = r"(() => {
  const numbers = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => numbers(color).slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return numbers(color)[3] === 0 ? (element.parentElement ? behind(element.parentElement) : 'rgb(255, 255, 255)') : color;
  };
  const low = [];
  for (const element of document.querySelectorAll('h1, h2, h3, p, li, span, dt, dd, button, time, figcaption, label')) {
    if (!element.textContent.trim() || !element.checkVisibility()) continue;
    const [one, other] = [luminance(getComputedStyle(element).color), luminance(behind(element))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) low.push([element.outerHTML.slice(0, 100), contrast]);
  }
  return low;
})()";

fn opened(served: &Served, browser: &mut Browser) {
    let url = format!("http://{}{}", served.address, served.target("/"));
    browser.call("Page.navigate", &json!({ "url": url }));
    browser.until("document.querySelectorAll('.timeline').length === 6");
}

fn with_hostile() -> Served {
    let mut fleet = fleet();
    let mut facts = vm("n1", 1);
    facts.phase = HOSTILE.to_owned();
    fleet.apply(START, Input::Vms(Change::Set(Key::new("default", HOSTILE), facts)));
    Served::start(fleet)
}

/// What the browser requested, and what it complains about.
fn reported(events: &[Value]) -> (Vec<String>, Vec<&Value>) {
    let of = |method: &str| {
        let method = json!(method);
        events.iter().filter(move |event| event["method"] == method)
    };
    let url = |event: &Value| event["params"]["request"]["url"].as_str().unwrap_or_default().to_owned();
    let requests = of("Network.requestWillBeSent").map(url).collect();
    let complaints =
        of("Runtime.exceptionThrown").chain(of("Log.entryAdded")).chain(of("Runtime.consoleAPICalled"));
    (requests, complaints.collect())
}

#[test]
fn shown_without_markup_of_others_and_requests_to_elsewhere() {
    let program = need!(optional_program("chromium"));
    let (served, mut browser) = (with_hostile(), Browser::start(&program));
    opened(&served, &mut browser);
    let text = browser.value("document.body.innerText").as_str().unwrap().to_owned();
    for part in [
        "pg",
        "4 → 8 CU",
        "0.75 missing",
        "iteration 3, 1.2Gi/s",
        "MonitorSilent",
        "takes no pods: cordoned",
        HOSTILE,
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(browser.value("document.querySelectorAll('img').length"), json!(0));
    assert_eq!(browser.value("document.title"), json!("neonctl dashboard"));
    let origin = format!("http://{}/", served.address);
    let (requests, complaints) = reported(&browser.events);
    assert!(complaints.is_empty(), "{complaints:?}");
    let others: Vec<&String> =
        requests.iter().filter(|url| !url.starts_with(&origin) && !url.starts_with("data:")).collect();
    assert!(others.is_empty() && requests.len() > 5, "{requests:?}");
}

#[test]
fn boxes_grow_and_change_their_node() {
    let program = need!(optional_program("chromium"));
    let (served, mut browser) = (with_hostile(), Browser::start(&program));
    opened(&served, &mut browser);
    let width = "document.querySelector('[data-key=\"default/pg\"].vm').getBoundingClientRect().width";
    let before = browser.value(width).as_f64().unwrap();
    served.change(|fleet| fleet.apply(START, Input::Vms(Change::Set(key("pg"), vm("n1", 12)))));
    browser.until(&format!("{width} > {}", before * 1.5));
    let on = |node: &str, kind: &str| {
        format!(
            "document.querySelector('.node[data-key=\"{node}\"] {kind}')?.textContent.includes('web') === true"
        )
    };
    browser.until(&on("n3", ".arriving"));
    browser.until(&on("n2", ".moving"));
    served.change(|fleet| {
        fleet.apply(START, Input::Moves(Change::Gone(key("web-1"))));
        fleet.apply(START, Input::Vms(Change::Set(key("web"), vm("n3", 2))));
    });
    browser.until(&on("n3", "button.vm"));
    browser.until("document.querySelector('.arriving') === null");
    served.change(|fleet| fleet.apply(START, Input::Vms(Change::Gone(key("web")))));
    browser.until("document.querySelectorAll('.timeline').length === 5");
}

#[test]
fn used_by_keyboard() {
    let program = need!(optional_program("chromium"));
    let (served, mut browser) = (with_hostile(), Browser::start(&program));
    opened(&served, &mut browser);
    let focused = "document.activeElement.dataset.key === 'default/pg'";
    for _ in 0..20 {
        if browser.value(focused) == json!(true) {
            break;
        }
        browser.press("Tab", 9, "");
    }
    browser.until(focused);
    assert_ne!(
        browser.value("getComputedStyle(document.activeElement).outlineStyle"),
        json!("none"),
        "focus is shown"
    );
    browser.press("Enter", 13, "\r");
    browser.until("document.getElementById('why').open");
    browser.until("document.getElementById('why').innerText.includes('the scheduler permits 5 of 8')");
    // Focus stays when a state arrives.
    served.change(|fleet| fleet.now += 1000);
    browser.press("Escape", 27, "");
    browser.until("!document.getElementById('why').open");
    browser.until(focused);
    browser.value("document.getElementById('filter').focus()");
    browser.call("Input.insertText", &json!({ "text": "n2 cache" }));
    browser.until("document.querySelectorAll('.timeline').length === 1");
    browser.until("document.getElementById('shown').textContent === '1 of 6 shown'");
}

#[test]
fn named_and_readable() {
    let program = need!(optional_program("chromium"));
    let (served, mut browser) = (with_hostile(), Browser::start(&program));
    for scheme in ["light", "dark"] {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        browser.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
        opened(&served, &mut browser);
        assert_eq!(browser.value(CONTRAST), json!([]), "{scheme}");
    }
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let named =
        ["button", "image", "searchbox", "combobox", "progressbar", "progressIndicator", "heading", "region"];
    let mut seen = 0;
    for node in tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] == json!(false)) {
        if named.iter().any(|role| node["role"]["value"] == json!(role)) {
            seen += 1;
            assert!(node["name"]["value"].as_str().is_some_and(|name| !name.is_empty()), "{node}");
        }
    }
    assert!(seen > 20, "{seen}");
}
