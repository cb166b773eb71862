//! The two text formats of metrics.

use foregate_supervisor::exposition::without_exemplar;

/// The text formats in which metrics are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, for tools such as `promtool check metrics`.
    Prometheus,
}

impl ExpositionFormat {
    /// The format that a scraper asks for by `Accept`: OpenMetrics if the field names it, else the
    /// text format of Prometheus.
    pub fn for_accept(accept: &str) -> Self {
        let openmetrics = |part: &str| {
            let mut parameters = part.split(';').map(str::trim);
            parameters.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"))
                && !parameters.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
        };
        if accept.split(',').any(openmetrics) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Converts an OpenMetrics text to this format.
    pub(crate) fn of(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Prometheus => prometheus_text(&openmetrics),
        }
    }

    /// The media type of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Converts an OpenMetrics text to the text format of Prometheus, version 0.0.4. In that format, a
/// counter's family has the name of its samples (`_total`), and there are no units, no exemplars and
/// no `# EOF`.
fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    // The HELP line of a family comes before its TYPE line.
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(family) = line.strip_prefix("# HELP ") {
            help = family.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, total, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, total, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([without_exemplar(line), "\n"]);
        }
    }
    text
}
