//! A past as one HTML file that needs nothing else: to attach to an incident.

use super::{Kind, Past, chart, words};
use crate::plot::{Failed, escape};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{margin:0 auto;padding:1rem;max-width:64rem;font:0.95rem/1.45 system-ui,sans-serif}\
h1{font-size:1.25rem}h2{font-size:1.05rem}\
svg{width:100%;height:auto;border:1px solid #79828c}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:0.1rem 1rem}dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:0.15rem 0.6rem 0.15rem 0;border-bottom:1px solid #79828c55}\
td:nth-child(-n+3){white-space:nowrap}td:last-child{overflow-wrap:anywhere}\
.Warning td{font-weight:600}\
@media print{body{max-width:none}tr{break-inside:avoid}}";

/// Writes the page.
///
/// # Errors
/// If the plot cannot be drawn.
pub(crate) fn html(past: &Past) -> Result<String, Failed> {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    page.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<title>");
    escape(&format!("History of {}", past.vm), &mut page);
    page.push_str("</title>\n<style>");
    page.push_str(STYLE);
    page.push_str("</style></head><body><main>\n<h1>");
    escape(&format!("History of {}", past.vm), &mut page);
    page.push_str("</h1>\n<dl>");
    for (name, value) in words::facts(past) {
        page.push_str("<dt>");
        escape(name, &mut page);
        page.push_str("</dt><dd>");
        escape(&value, &mut page);
        page.push_str("</dd>");
    }
    page.push_str("</dl>\n");
    page.push_str(&chart::svg(past)?);
    page.push_str(
        "\n<p>load: one-minute load average, memory in use without page cache; goal: the size that load, requests and people \
         call for; permit: the size that the scheduler permits; size: the size of the VM.</p>\n<h2>What happened</h2>\n",
    );
    table(past, &mut page);
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn table(past: &Past, page: &mut String) {
    if past.entries.is_empty() {
        page.push_str("<p>No decision, event or migration is known in this window.</p>\n");
        return;
    }
    page.push_str("<table><thead><tr><th scope=\"col\">Time (UTC)</th><th scope=\"col\">From</th><th scope=\"col\">Kind</th>");
    page.push_str("<th scope=\"col\">What</th></tr></thead><tbody>\n");
    for entry in &past.entries {
        page.push_str(if entry.kind == Kind::Warning { "<tr class=\"Warning\">" } else { "<tr>" });
        for cell in words::row(past, entry) {
            page.push_str("<td>");
            escape(&cell, page);
            page.push_str("</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}
