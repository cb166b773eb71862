use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::counters::metrics::NameCounters;

#[test]
fn what_was_counted_is_rendered() {
    let metrics = Arc::new(Metrics::default());
    let (sites, _) = metrics.set_sites([&"a\"b.example".into()].into_iter());
    let site = &sites[0];
    for status in [Some(200), Some(204), Some(404), Some(999), None] {
        site.request(status, Duration::from_millis(2));
    }
    let upstream = metrics.upstream("app");
    upstream.opened.inc();
    upstream.reused.inc();
    upstream.reused.inc();
    upstream.all_down.inc();
    let server = metrics.server("app", "[::1]:80");
    server.failures.inc();
    site.error("timeout", "upstream", Some(&"app".into()));
    site.error("timeout", "upstream", Some(&"app".into()));
    site.error("head_timeout", "downstream", None);
    let name = Arc::new(NameCounters::default());
    name.addresses.set(3);
    let named = metrics.server("app", "app.test:80");
    named.name.store(Some(name));
    metrics.name_lookups.absent.inc();
    (0..3).for_each(|_| metrics.connections_accepted.inc());
    metrics.connections_active.add(1);
    metrics.handshake_failed("protocol");
    metrics.proxy_header_refused("malformed");
    metrics.proxy_header_refused("malformed");
    metrics.reloads_refused.inc();
    metrics.blocked(Duration::from_micros(50));
    metrics.blocked(Duration::from_secs(20));
    let text = Exposition::new(Arc::clone(&metrics)).render(ExpositionFormat::OpenMetrics);
    for line in [
        "foregate_requests_total{site=\"a\\\"b.example\",status=\"2xx\"} 2",
        "foregate_requests_total{site=\"a\\\"b.example\",status=\"4xx\"} 1",
        "foregate_requests_total{site=\"a\\\"b.example\",status=\"other\"} 1",
        "foregate_requests_total{site=\"a\\\"b.example\",status=\"none\"} 1",
        "foregate_request_errors_total{kind=\"timeout\",side=\"upstream\",site=\"a\\\"b.example\",upstream=\"app\"} 2",
        "foregate_request_errors_total{kind=\"head_timeout\",side=\"downstream\",site=\"a\\\"b.example\",upstream=\"-\"} 1",
        "foregate_request_duration_seconds_count{site=\"a\\\"b.example\"} 5",
        "foregate_request_duration_seconds_sum{site=\"a\\\"b.example\"} 0.01",
        "foregate_request_duration_seconds_bucket{le=\"0.001\",site=\"a\\\"b.example\"} 0",
        "foregate_request_duration_seconds_bucket{le=\"0.0025\",site=\"a\\\"b.example\"} 5",
        "foregate_requests_active 0",
        "foregate_requests_waiting 0",
        "foregate_upstream_server_up{upstream=\"app\",server=\"[::1]:80\"} 1",
        "foregate_upstream_connections_opened_total{upstream=\"app\"} 1",
        "foregate_upstream_connections_reused_total{upstream=\"app\"} 2",
        "foregate_upstream_connections_failed_total{upstream=\"app\"} 0",
        "foregate_upstream_all_down_total{upstream=\"app\"} 1",
        "foregate_upstream_server_failures_total{upstream=\"app\",server=\"[::1]:80\"} 1",
        "foregate_upstream_server_addresses{upstream=\"app\",server=\"app.test:80\"} 3",
        "foregate_name_lookups_total{result=\"found\"} 0",
        "foregate_name_lookups_total{result=\"absent\"} 1",
        "foregate_name_lookups_total{result=\"failed\"} 0",
        "foregate_connections_accepted_total 3",
        "foregate_connections_active 1",
        "foregate_connections_refused_total 0",
        "foregate_requests_reset_total 0",
        "foregate_tls_handshakes_total{result=\"ok\"} 0",
        "foregate_tls_handshakes_total{result=\"failed\"} 1",
        "foregate_tls_handshake_errors_total{kind=\"protocol\"} 1",
        "foregate_tls_handshakes_resumed_total 0",
        "foregate_proxy_header_errors_total{kind=\"malformed\"} 2",
        "foregate_retries_total 0",
        "foregate_retries_denied_total 0",
        "foregate_access_log_dropped_total 0",
        "foregate_reloads_total{result=\"ok\"} 0",
        "foregate_reloads_total{result=\"refused\"} 1",
        "foregate_panics_total 0",
        "foregate_event_loop_blocked_seconds_count 2",
        "foregate_event_loop_blocked_seconds_bucket{le=\"0.0001\"} 1",
        "foregate_event_loop_blocked_seconds_bucket{le=\"10.0\"} 1",
        "foregate_event_loop_blocked_seconds_bucket{le=\"+Inf\"} 2",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("status=\"5xx\""), "what never happened is left out:\n{text}");
}

/// Reads the text format of Prometheus strictly: each family has its help and type once, before its samples, each sample is there
/// once, and the buckets of a histogram rise to its count.
fn check_prometheus(text: &str) {
    let mut families = HashSet::new();
    let mut samples = HashSet::new();
    let (mut family, mut kind) = ("", "");
    let mut bucket = 0.0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            assert!(!help.trim().is_empty() && families.insert(name), "{line}");
            let kinds = lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
            (family, kind) = kinds.unwrap_or_else(|| panic!("no type behind {line}"));
            assert_eq!(family, name, "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let value: f64 = value.parse().unwrap();
        assert!(samples.insert(sample), "twice: {line}");
        match name.strip_prefix(family) {
            Some("") => assert_ne!(kind, "histogram", "{line}"),
            Some("_sum") => assert_eq!(kind, "histogram", "{line}"),
            Some("_count") => bucket = 0.0,
            Some("_bucket") => {
                assert!(kind == "histogram" && value >= bucket, "{line}");
                bucket = value;
                let count = sample.replacen("_bucket", "_count", 1).replacen("le=\"+Inf\",", "", 1);
                if sample.contains("le=\"+Inf\"") {
                    assert!(
                        text.contains(&format!("{} {value}\n", count.replace("{le=\"+Inf\"}", ""))),
                        "{line}"
                    );
                }
            }
            _ => panic!("{line} is no sample of {family}"),
        }
    }
    assert!(samples.len() > 60, "{text}");
}

#[test]
fn the_format_of_prometheus_is_kept_to_the_letter() {
    let metrics = Arc::new(Metrics::default());
    let (sites, _) = metrics.set_sites([&"a\"b.example".into(), &"c.example".into()].into_iter());
    for (millis, site) in sites.iter().cycle().take(9).enumerate() {
        site.request(Some(200), Duration::from_millis(1 << millis));
        site.error("timeout", "upstream", Some(&"app".into()));
    }
    let _server = metrics.server("app", "[::1]:80");
    metrics.blocked(Duration::from_micros(50));
    metrics.steps(["rules"].into_iter()).ran(0);
    let certificates = vec![CertificateExpiry {
        file: "site.pem".to_owned(),
        not_after: 4_102_444_800,
        is_revoked: true,
        failure: Some("no certificate in it".to_owned()),
        ..CertificateExpiry::default()
    }];
    let text = Exposition::new(Arc::clone(&metrics))
        .with_certificates(certificates)
        .render(ExpositionFormat::Prometheus);
    check_prometheus(&text);
    for line in [
        "foregate_tls_certificate_expiry_timestamp_seconds{certificate=\"site.pem\"} 4102444800",
        "foregate_tls_certificates_not_reloaded 1",
        "foregate_ocsp_responses{state=\"revoked\"} 1",
        concat!("foregate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    for name in ["cpu_seconds_total", "start_time_seconds", "resident_memory_bytes", "open_fds", "max_fds"] {
        assert!(
            text.contains(&format!("\nprocess_{name} ")) || text.contains(&format!("process_{name} ")),
            "{name}"
        );
    }
}

#[test]
fn scrapers_get_the_format_that_they_ask_for() {
    let prometheus_server = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";
    for accept in [prometheus_server, "text/plain, Application/OpenMetrics-Text"] {
        assert_eq!(ExpositionFormat::for_accept(accept), ExpositionFormat::OpenMetrics, "{accept}");
    }
    for accept in ["", "*/*", "text/plain", "application/openmetrics-text;q=0, */*"] {
        assert_eq!(ExpositionFormat::for_accept(accept), ExpositionFormat::Prometheus, "{accept}");
    }
}

#[test]
fn a_recorded_trace_is_the_exemplar_of_its_bucket() {
    let metrics = Arc::new(Metrics::default());
    let (sites, _) = metrics.set_sites([&"a.example".into(), &"b\"c".into()].into_iter());
    let (routes, _) = metrics.set_routes(&["b\"c\0/**".into()]);
    for site in &sites {
        site.request(Some(200), Duration::from_millis(3));
    }
    routes[0].request(Some(502), Duration::from_millis(700));
    sites[1].exemplars.take([0xab; 16], Duration::from_micros(2_600));
    routes[0].durations.exemplars.take([0xcd; 16], Duration::from_millis(700));
    let text = Exposition::new(Arc::clone(&metrics)).render(ExpositionFormat::OpenMetrics);
    let with: Vec<_> = text.lines().filter(|line| line.contains(" # {")).collect();
    let [request, route] = with[..] else { panic!("{with:?}") };
    assert!(request.starts_with("foregate_request_duration_seconds_bucket{"), "{request}");
    assert!(request.contains("le=\"0.005\"") && request.contains("site=\"b\\\"c\""), "{request}");
    assert!(request.contains(&format!("}} 1 # {{trace_id=\"{}\"}} 0.0026 ", "ab".repeat(16))), "{request}");
    assert!(route.contains("le=\"1.0\"") && route.contains("route=\"/**\""), "{route}");
    assert!(route.contains(&format!("}} 1 # {{trace_id=\"{}\"}} 0.7 ", "cd".repeat(16))), "{route}");
    let text = Exposition::new(metrics).render(ExpositionFormat::Prometheus);
    check_prometheus(&text);
    assert!(!text.contains(" # {"), "{text}");
}

/// The names of samples that the exposition has, whatever has happened so far.
fn names_of_samples() -> HashSet<String> {
    let metrics = Arc::new(Metrics::default());
    metrics.steps(["rules"].into_iter());
    let text = Exposition::new(metrics).render(ExpositionFormat::Prometheus);
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let samples = kinds.flat_map(|(name, kind)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
        _ => vec![name.to_owned()],
    });
    samples.collect()
}

#[test]
fn dashboard_and_alerts_use_metrics_that_exist() {
    let samples = names_of_samples();
    assert!(samples.len() > 80, "{samples:?}");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (file, least) in [("examples/grafana-dashboard.json", 20), ("examples/prometheus-alerts.yml", 10)] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        // Descriptions may name a family; expressions name samples.
        let expressions = text.lines().filter(|line| !line.contains("description"));
        let is_of_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let words = expressions.flat_map(|line| line.split(move |char| !is_of_name(char)));
        let used: HashSet<_> = words.filter(|word| word.starts_with("foregate_")).collect();
        assert!(used.len() >= least, "{file}: {used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !samples.contains(**name)).collect();
        assert!(unknown.is_empty(), "{file} uses {unknown:?}");
    }
}
