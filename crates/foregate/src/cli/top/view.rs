//! The screen of `foregate top`, as lines of text.

use serde_json::Value;

use super::moment::{Moments, Percentile, TrafficRow, percentile};
use super::terminal::TerminalKey;

/// The most rows of a part if several parts are shown.
const FEW: usize = 5;
/// The longest filter, in characters.
const FILTER: usize = 60;

/// The parts that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum TopPart {
    #[default]
    All,
    Sites,
    Routes,
    Upstreams,
    Requests,
    Steps,
}

const PARTS: [(TopPart, &str); 6] = [
    (TopPart::All, "all"),
    (TopPart::Sites, "sites"),
    (TopPart::Routes, "routes"),
    (TopPart::Upstreams, "upstreams"),
    (TopPart::Requests, "requests"),
    (TopPart::Steps, "steps"),
];

/// The order of sites and routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RowOrder {
    #[default]
    Rate,
    Failures,
    Latency,
    Total,
    Name,
}

const ORDERS: [(RowOrder, &str); 5] = [
    (RowOrder::Rate, "rate"),
    (RowOrder::Failures, "5xx"),
    (RowOrder::Latency, "p99"),
    (RowOrder::Total, "total"),
    (RowOrder::Name, "name"),
];

/// The choices of the operator.
#[derive(Debug, Default)]
pub(super) struct TopView {
    pub(super) part: TopPart,
    pub(super) order: RowOrder,
    pub(super) filter: String,
    /// True while a filter is being typed.
    pub(super) is_typing: bool,
    pub(super) has_help: bool,
    pub(super) paused: bool,
    pub(super) colour: bool,
    /// Why no more figures arrive; `None` while they do.
    pub(super) lost: Option<String>,
}

impl TopView {
    /// Applies a key; returns false if it quits.
    pub(super) fn press(&mut self, key: TerminalKey) -> bool {
        if self.is_typing {
            match key {
                TerminalKey::Character(character) if self.filter.chars().count() < FILTER => {
                    self.filter.push(character);
                }
                TerminalKey::Backspace => drop(self.filter.pop()),
                TerminalKey::Escape => {
                    self.filter.clear();
                    self.is_typing = false;
                }
                TerminalKey::Enter => self.is_typing = false,
                TerminalKey::Quit => return false,
                _ => {}
            }
            return true;
        }
        match key {
            TerminalKey::Quit | TerminalKey::Character('q' | 'Q') => return false,
            TerminalKey::Character(digit @ '1'..='6') => {
                let number = digit.to_digit(10).map_or(0, |digit| digit as usize - 1);
                self.part = PARTS.get(number).map_or(TopPart::All, |(part, _)| *part);
            }
            TerminalKey::Tab => self.part = after(&PARTS, self.part),
            TerminalKey::Character('s') => self.order = after(&ORDERS, self.order),
            TerminalKey::Character('p' | ' ') => self.paused = !self.paused,
            TerminalKey::Character('h' | '?') => self.has_help = !self.has_help,
            TerminalKey::Character('/') => self.is_typing = true,
            TerminalKey::Escape => {
                self.filter.clear();
                self.has_help = false;
            }
            _ => {}
        }
        true
    }

    fn keeps(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.filter.to_lowercase())
    }

    fn style(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The choice after `present`; the first one follows the last.
fn after<T: Copy + PartialEq>(all: &[(T, &str)], present: T) -> T {
    let next = all.iter().position(|(one, _)| *one == present).map_or(0, |at| (at + 1) % all.len());
    all.get(next).map_or(present, |(one, _)| *one)
}

/// The lines for a screen of this size; all lines if `rows` is `None`.
pub(super) fn frame(view: &TopView, moments: &Moments, columns: usize, rows: Option<usize>) -> Vec<String> {
    let mut lines = head(moments);
    if rows.is_some() {
        lines.push(bar(view));
    }
    let mut lines: Vec<_> = lines.iter().map(|line| cut(line, columns)).collect();
    if view.has_help && rows.is_some() {
        lines.extend(HELP.iter().map(|line| cut(line, columns)));
    } else {
        let few = match (view.part, rows) {
            (TopPart::All, Some(_)) => FEW,
            _ => usize::MAX,
        };
        for (title, table) in parts(view, moments) {
            lines.push(String::new());
            lines.push(view.style(&cut(&title, columns), "1"));
            let shown = table.len();
            lines.extend(table.into_iter().take(few.saturating_add(1)).map(|line| cut(&line, columns)));
            if shown > few.saturating_add(1) {
                lines.push(cut(&format!("  and {} more", shown - few - 1), columns));
            }
        }
    }
    if let Some(rows) = rows {
        lines.truncate(rows);
    }
    lines
}

const HELP: [&str; 9] = [
    "",
    "1 to 6, Tab   all, sites, routes, upstreams, requests, steps",
    "s             sort sites and routes by the next column",
    "/             filter by a text; Enter keeps it, Escape drops it",
    "p, Space      pause",
    "h, ?          this help",
    "q, Control-C  quit",
    "Rates and percentiles are of the last ten seconds. <= names the upper bound",
    "of the bucket of the metrics; those of servers are measured.",
];

/// The line that shows the operator's choices.
fn bar(view: &TopView) -> String {
    let parts: Vec<String> = PARTS
        .iter()
        .enumerate()
        .map(|(number, (part, name))| match *part == view.part {
            true => format!("[{} {name}]", number + 1),
            false => format!(" {} {name} ", number + 1),
        })
        .collect();
    let sort = ORDERS.iter().find(|(order, _)| *order == view.order).map_or("", |(_, name)| name);
    let mut line = format!("{} s:{sort}", parts.join(""));
    // The filter comes last: if the line is too long, a part of the filter is cut off.
    if view.paused {
        line.push_str(" PAUSED");
    }
    if view.is_typing || !view.filter.is_empty() {
        line.push_str(&format!(" /{}{}", view.filter, if view.is_typing { "_" } else { "" }));
    } else if !view.paused {
        line.push_str(" h:help");
    }
    match &view.lost {
        Some(error) => format!("THE PROXY HAS GONE ({error}); any key ends"),
        None => line,
    }
}

/// The lines about the whole process.
fn head(moments: &Moments) -> Vec<String> {
    let now = moments.now();
    let number = |pointer: &str| now.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
    let classes = moments.counted("/sites/classes");
    let (all, seconds) = (classes.iter().sum::<u64>(), moments.seconds());
    let share = |class: usize| {
        let count = classes.get(class).copied().unwrap_or_default();
        percent(if all == 0 { 0.0 } else { count as f64 / all as f64 })
    };
    let (durations, bounds) = (moments.counted("/sites/durations"), moments.bounds("duration_bounds_ms"));
    let latency = |of: f64| bounded(percentile(&durations, &bounds, of));
    let (blocked, waits) = (moments.counted("/event_loop_blocked/buckets"), moments.bounds("wait_bounds_ms"));
    let long = waits.iter().position(|end| *end > 10.0).unwrap_or(waits.len());
    let long: u64 = blocked.iter().skip(long).sum();
    let offload = moments.counted("/offload/wait/buckets");
    let cache = ["hit", "stale", "stale-error", "revalidated"]
        .map(|outcome| number(&format!("/cache/requests/{outcome}")));
    let asked: f64 = now
        .pointer("/cache/requests")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(_, n)| n.as_f64())
        .sum();
    vec![
        format!(
            "foregate {}  process {}  up {}  memory {}{}",
            now["version"].as_str().unwrap_or_default(),
            now["process"],
            span(number("/time") - number("/started")),
            bytes(number("/memory/resident")),
            if now["draining"] == Value::Bool(true) { "  DRAINING" } else { "" },
        ),
        format!(
            "{:>8} req/s  2xx {}  3xx {}  4xx {}  5xx {}  none {}",
            count(all as f64 / seconds),
            share(2),
            share(3),
            share(4),
            share(5),
            share(0),
        ),
        format!(
            "latency  p50 {}  p95 {}  p99 {}   under way {}  conns {}",
            latency(0.5),
            latency(0.95),
            latency(0.99),
            number("/requests_active"),
            number("/connections/active"),
        ),
        format!(
            "event loop  p99.9 {}  over 10 ms {long}   offload queue {}  wait p99 {}",
            bounded(percentile(&blocked, &waits, 0.999)),
            number("/offload/queue"),
            bounded(percentile(&offload, &waits, 0.99)),
        ),
        format!(
            "peers {} of {}   cache {} of {} requests   failures {}",
            bytes(number("/memory/held")),
            bytes(number("/memory/limit")),
            percent(if asked > 0.0 { cache.iter().sum::<f64>() / asked } else { 0.0 }),
            count(asked),
            count(number("/failures")),
        ),
    ]
}

/// The parts to show. Each has a title and lines; the first line has the names of the columns.
fn parts(view: &TopView, moments: &Moments) -> Vec<(String, Vec<String>)> {
    let wants = |part: TopPart| view.part == part || view.part == TopPart::All;
    let mut parts = Vec::new();
    let text = |value: &Value| clean(value.as_str().unwrap_or_default());
    if wants(TopPart::Sites) {
        let rows = moments.traffic("/sites/shown", |row| text(&row["site"]));
        parts.push(("Sites".to_owned(), traffic(view, moments, rows)));
    }
    if wants(TopPart::Routes) {
        let rows =
            moments.traffic("/routes", |row| format!("{} {}", text(&row["site"]), text(&row["route"])));
        parts.push(("Routes, since somebody watches".to_owned(), traffic(view, moments, rows)));
    }
    if wants(TopPart::Upstreams) {
        parts.push(("Servers of upstreams".to_owned(), servers(view, moments.now())));
    }
    if wants(TopPart::Requests) {
        parts.push(("Under way for longest".to_owned(), under_way(view, moments.now())));
        parts.push(("Slowest of the last minute".to_owned(), slowest(view, moments.now())));
    }
    if wants(TopPart::Steps) {
        parts.push(("Steps of modules by cost".to_owned(), steps(view, moments.now())));
    }
    parts
}

fn traffic(view: &TopView, moments: &Moments, mut rows: Vec<TrafficRow>) -> Vec<String> {
    let bounds = moments.bounds("duration_bounds_ms");
    let slow = |row: &TrafficRow| row.percentile(&bounds, 0.99).map(Percentile::bound).unwrap_or_default();
    rows.retain(|row| view.keeps(&row.name));
    rows.sort_by(|a, b| {
        let by = match view.order {
            RowOrder::Rate => b.rate.total_cmp(&a.rate),
            RowOrder::Failures => b.failed.cmp(&a.failed),
            RowOrder::Latency => slow(b).total_cmp(&slow(a)),
            RowOrder::Total => b.total.cmp(&a.total),
            RowOrder::Name => std::cmp::Ordering::Equal,
        };
        by.then_with(|| a.name.cmp(&b.name))
    });
    let mut lines =
        vec![format!("{:>9} {:>7} {:>8} {:>8} {:>9}  name", "req/s", "5xx", "p50", "p99", "total")];
    lines.extend(rows.iter().map(|row| {
        let latency = |share: f64| bounded(row.percentile(&bounds, share));
        let (rate, failed, total) = (count(row.rate), count(row.failed as f64), count(row.total as f64));
        format!("{rate:>9} {failed:>7} {:>8} {:>8} {total:>9}  {}", latency(0.5), latency(0.99), row.name)
    }));
    lines
}

fn servers(view: &TopView, now: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<9} {:>6} {:>6} {:>8} {:>8} {:>8}  upstream and server",
        "state", "active", "conns", "p50", "p99", "failures"
    )];
    for upstream in now["upstreams"].as_array().into_iter().flatten() {
        for server in upstream["servers"].as_array().into_iter().flatten() {
            let name = clean(&format!(
                "{} {}",
                upstream["upstream"].as_str().unwrap_or_default(),
                server["server"].as_str().unwrap_or_default()
            ));
            let failures: u64 = server["failures"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(_, count)| count.as_u64())
                .sum();
            if view.keeps(&name) {
                lines.push(format!(
                    "{:<9} {:>6} {:>6} {:>8} {:>8} {:>8}  {name}",
                    server["state"].as_str().unwrap_or_default(),
                    server["requests_in_flight"].to_string(),
                    server["connections"].to_string(),
                    millis(server["latency_ms"]["p50"].as_f64()),
                    millis(server["latency_ms"]["p99"].as_f64()),
                    count(failures as f64),
                ));
            }
        }
    }
    lines
}

fn under_way(view: &TopView, now: &Value) -> Vec<String> {
    let mut lines = vec![format!("{:>8}  request", "for")];
    lines.extend(now["under_way"].as_array().into_iter().flatten().filter_map(|request| {
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let name = clean(&format!("{} {}{}", text("method"), text("host"), text("target")));
        view.keeps(&name).then(|| format!("{:>8}  {name}", millis(request["ms"].as_f64())))
    }));
    lines
}

fn slowest(view: &TopView, now: &Value) -> Vec<String> {
    let mut lines = vec![format!("{:>8} {:>6}  request", "took", "status")];
    lines.extend(now["slowest"].as_array().into_iter().flatten().filter_map(|request| {
        let text = |name: &str| request[name].as_str().unwrap_or_default();
        let name = clean(&format!("{} {}{}", text("method"), text("host"), text("path")));
        let took = millis(request["duration_us"].as_f64().map(|micros| micros / 1e3));
        let status = request["status"].as_u64().map_or_else(|| "-".to_owned(), |status| status.to_string());
        view.keeps(&name).then(|| format!("{took:>8} {status:>6}  {name}"))
    }));
    lines
}

fn steps(view: &TopView, now: &Value) -> Vec<String> {
    let mut lines = vec![format!("{:>9} {:>9} {:>8} {:>8}  step", "runs", "mean", "stops", "blocked")];
    lines.extend(now["steps"].as_array().into_iter().flatten().filter_map(|step| {
        let name = step["step"].as_str().unwrap_or_default();
        let number = |name: &str| step[name].as_f64().unwrap_or_default();
        let mean = step["timed"].as_u64().filter(|timed| *timed > 0).map(|_| number("mean_us") / 1e3);
        let shown = format!(
            "{:>9} {:>9} {:>8} {:>8}  {name}",
            count(number("runs")),
            millis(mean),
            count(number("stops")),
            count(number("blocked"))
        );
        view.keeps(name).then_some(shown)
    }));
    lines
}

/// The text without control characters, because peers chose parts of it and could move the cursor.
fn clean(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

fn cut(line: &str, columns: usize) -> String {
    match line.chars().count() > columns {
        true => line.chars().take(columns.saturating_sub(1)).chain(['~']).collect(),
        false => line.to_owned(),
    }
}

fn count(value: f64) -> String {
    // The sum of no floating-point numbers is -0.
    let value = value + 0.0;
    match value {
        ..10.0 if value.fract() != 0.0 => format!("{value:.1}"),
        ..10_000.0 => format!("{value:.0}"),
        ..1e6 => format!("{:.1}k", value / 1e3),
        ..1e9 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.1 {
        format!("{:.1} %", share * 100.0)
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

/// A percentile of a histogram, milliseconds: such as `<=2.5 s`.
fn bounded(percentile: Option<Percentile>) -> String {
    match percentile {
        None => millis(None),
        Some(Percentile::AtMost(bound)) => format!("<={}", millis(Some(bound))),
        Some(Percentile::Above(bound)) => format!(">{}", millis(Some(bound))),
    }
}

fn millis(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value @ 1000.0..) => format!("{:.1} s", value / 1000.0),
        Some(value @ 10.0..) => format!("{value:.0} ms"),
        Some(value @ 1.0..) => format!("{value:.1} ms"),
        Some(value) => format!("{:.0} us", value * 1000.0),
    }
}

fn bytes(value: f64) -> String {
    let mebibytes = value / f64::from(1 << 20);
    if mebibytes < 10_000.0 {
        format!("{mebibytes:.1} MiB")
    } else {
        format!("{:.1} GiB", mebibytes / 1024.0)
    }
}

fn span(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use serde_json::json;

    use super::*;

    fn moments() -> Moments {
        let figures = |time: f64, count: u64| {
            let row = |site: &str, count: u64| json!({ "site": site, "route": "/**", "classes": [0, 0, count, 0, 0, 1, 0], "durations": [count, 0, 1] });
            json!({
                "version": "0.1.0", "process": 7, "time": time, "started": 0.0,
                "duration_bounds_ms": [1.0, 10.0], "wait_bounds_ms": [1.0, 25.0],
                "sites": { "classes": [0, 0, count, 0, 0, 1, 0], "durations": [count, 0, 1], "shown": [row("quiet.example", count / 10), row("busy.example", count)] },
                "routes": [row("busy.example", count)],
                "upstreams": [{ "upstream": "app", "servers": [{ "server": "127.0.0.1:3000", "state": "up", "requests_in_flight": 1, "connections": 2, "failures": { "connect": 3 }, "latency_ms": { "p50": 1.25, "p99": 90.0 } }] }],
                "under_way": [{ "method": "GET", "host": "busy.example", "target": format!("/\x1b[2J{}", "x".repeat(200)), "ms": 1234.5 }],
                "slowest": [], "steps": [],
            })
        };
        Moments(VecDeque::from([figures(100.0, 0), figures(110.0, 1000)]))
    }

    #[test]
    fn the_screen_keeps_to_its_size_and_to_plain_characters() {
        let mut view = TopView::default();
        for key in ['1', '2', '3', '4', '5', '6', 'h'] {
            assert!(view.press(TerminalKey::Character(key)));
            let lines = frame(&view, &moments(), 80, Some(24));
            assert!(lines.len() <= 24, "{}", lines.join("\n"));
            assert!(
                lines.iter().all(|line| line.chars().count() <= 80 && !line.contains('\x1b')),
                "{}",
                lines.join("\n")
            );
        }
        let whole = frame(&TopView::default(), &moments(), 80, None).join("\n");
        assert!(
            whole.contains("100 req/s")
                && whole.contains("up             1      2   1.2 ms    90 ms        3  app 127.0.0.1:3000"),
            "{whole}"
        );
        assert!(whole.contains("latency  p50 <=1.0 ms  p95 <=1.0 ms  p99 <=1.0 ms "), "{whole}");
        assert!(whole.contains("1.2 s  GET busy.example/?[2Jxxx"), "{whole}");
    }

    #[test]
    fn large_figures_fit_into_80_columns() {
        let mut moments = moments();
        let gibibytes = 900_u64 << 30;
        let last = moments.0.back_mut().unwrap();
        last["process"] = 4_194_304.into();
        last["time"] = 99e6.into();
        last["draining"] = true.into();
        last["memory"] = json!({ "resident": gibibytes, "held": gibibytes, "limit": gibibytes });
        last["cache"] = json!({ "requests": { "hit": 999_949_999_u64 } });
        last["failures"] = 999_949_999_u64.into();
        last["requests_active"] = 50_000.into();
        last["connections"] = json!({ "active": 50_000 });
        let mut view = TopView { paused: true, ..TopView::default() };
        for lines in [head(&moments), vec![bar(&view)]] {
            let longest = lines.iter().map(|line| line.chars().count()).max();
            assert!(longest <= Some(80), "{longest:?}: {lines:?}");
        }
        view.filter = "x".repeat(40);
        assert!(cut(&bar(&view), 80).contains("PAUSED /x"));
    }

    #[test]
    fn keys_sort_filter_and_quit() {
        let mut view = TopView::default();
        let order = |view: &TopView| {
            let text = frame(view, &moments(), 80, Some(60)).join("\n");
            (text.find("  busy.example"), text.find("  quiet.example"))
        };
        let (busy, quiet) = order(&view);
        assert!(busy < quiet && quiet.is_some());
        for key in "/quiet".chars() {
            assert!(view.press(TerminalKey::Character(key)));
        }
        assert!(
            view.press(TerminalKey::Character('q'))
                && view.press(TerminalKey::Backspace)
                && view.press(TerminalKey::Enter),
            "a letter of the filter"
        );
        assert_eq!(view.filter, "quiet");
        assert!(order(&view).0.is_none());
        assert!(view.press(TerminalKey::Escape) && view.filter.is_empty());
        assert!(!view.press(TerminalKey::Character('q')) && !view.press(TerminalKey::Quit));
    }
}
