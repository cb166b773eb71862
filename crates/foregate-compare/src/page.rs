//! The report as one HTML page that loads nothing else.

use std::fmt::Write as _;

use crate::report::{Report, RouteReport, Verdict};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b1f24;background:#fff}\
h1{font-size:1.4rem}details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}\
summary{cursor:pointer;font-weight:600}table{border-collapse:collapse;width:100%;margin:.5rem 0}\
td,th{border-top:1px solid #d0d7de;padding:.25rem .5rem;text-align:left;vertical-align:top}\
code{white-space:pre-wrap;overflow-wrap:anywhere}.noise{color:#57606a}.bad{color:#b42318}.good{color:#1a7f37}\
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}.noise{color:#9198a1}.bad{color:#ff7b72}.good{color:#56d364}\
td,th,details{border-color:#3d444d}}";

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// The page.
pub fn page(report: &Report) -> String {
    let mut html = String::new();
    let verdict = if report.is_different() { "bad" } else { "good" };
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Comparison of two systems</title><style>{STYLE}</style></head><body><h1>Comparison of two systems</h1>\
         <p class=\"{verdict}\">{} requests compared, {} different.</p><table><tr>",
        report.compared, report.different
    );
    for class in report.classes.keys() {
        let _ = write!(html, "<th>{class}</th>");
    }
    html.push_str("</tr><tr>");
    for count in report.classes.values() {
        let _ = write!(html, "<td>{count}</td>");
    }
    html.push_str("</tr></table>");
    if !report.ignored.is_empty() {
        let _ =
            write!(html, "<p>Ignored on request: <code>{}</code></p>", escape(&report.ignored.join(", ")));
    }
    for route in &report.routes {
        of_route(&mut html, route);
    }
    html.push_str("</body></html>\n");
    html
}

fn of_route(html: &mut String, route: &RouteReport) {
    let bad = route.different > 0 || route.time.slower;
    let _ = write!(
        html,
        "<details{}><summary class=\"{}\">{}: {} of {} different</summary>",
        if bad { " open" } else { "" },
        if bad { "bad" } else { "good" },
        escape(&route.route),
        route.different,
        route.compared
    );
    let time = &route.time;
    let _ = write!(
        html,
        "<p>Time in ms, old and new: median {:.1}, {:.1}; p90 {:.1}, {:.1}; p99 {:.1}, {:.1}{}. Old compared with old {} times.</p>",
        time.p50[0],
        time.p50[1],
        time.p90[0],
        time.p90[1],
        time.p99[0],
        time.p99[1],
        if time.slower { " (slower)" } else { "" },
        route.learned
    );
    for (reason, count) in &route.not_compared {
        let _ = write!(html, "<p>Not compared: {count} × {}</p>", escape(reason));
    }
    if route.partial_bodies > 0 {
        let _ = write!(html, "<p>{} bodies were compared up to the limit alone.</p>", route.partial_bodies);
    }
    if !route.parts.is_empty() {
        html.push_str("<table><tr><th>Class</th><th>Part</th><th>Count</th><th>Old</th><th>New</th></tr>");
        for part in &route.parts {
            let noise = part.verdict == Verdict::Noise;
            let value = |value: &Option<String>| value.as_deref().map_or_else(|| "(none)".to_owned(), escape);
            let _ = write!(
                html,
                "<tr{}><td>{}</td><td>{} {}</td><td>{}</td><td><code>{}</code></td><td><code>{}</code></td></tr>",
                if noise { " class=\"noise\"" } else { "" },
                if noise { "noise" } else { part.class },
                escape(&part.part),
                escape(part.place.as_deref().unwrap_or_default()),
                part.count,
                value(&part.old),
                value(&part.new)
            );
        }
        html.push_str("</table>");
    }
    html.push_str("</details>");
}
