//! What the server counts, in the text format of Prometheus. All labels have few values: names of models, routes and statuses.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// The names and values of labels.
type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// Buckets from 100 µs to about 52 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 20))
}

fn counts() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 20))
}

/// The counters, gauges and histograms of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    requests: Family<Labels<3>, Counter>,
    durations: Family<Labels<1>, Histogram, fn() -> Histogram>,
    rejected: Family<Labels<1>, Counter>,
    reloads: Family<Labels<2>, Counter>,
    /// The texts that wait in the queue, and the requests in work.
    pub(crate) queued: Gauge,
    pub(crate) in_work: Gauge,
    pub(crate) waits: Histogram,
    pub(crate) batch_sequences: Histogram,
    pub(crate) batch_tokens: Histogram,
    pub(crate) first_token: Histogram,
    pub(crate) between_tokens: Histogram,
    pub(crate) truncated: Counter,
    pub(crate) predicted: Gauge<f64, AtomicU64>,
    resident: Gauge<f64, AtomicU64>,
}

/// Adds a metric to the registry and returns it.
fn add<M: Metric + Clone>(to: &mut Registry, name: &str, help: &str, metric: M) -> M {
    to.register(name, help, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("unpadded");
        let r = &mut registry;
        let by_route = Family::new_with_constructor(seconds as fn() -> Histogram);
        Self {
            requests: add(r, "requests", "Requests by task, route and status", Family::default()),
            durations: add(r, "request_duration_seconds", "Time from the head to the answer", by_route),
            rejected: add(r, "rejected", "Requests refused because of a limit", Family::default()),
            reloads: add(r, "reloads", "Reloads of models by outcome", Family::default()),
            queued: add(r, "queue_texts", "Texts that wait for a batch", Gauge::default()),
            in_work: add(r, "requests_in_work", "Requests in work", Gauge::default()),
            waits: add(r, "queue_wait_seconds", "Time in the queue", seconds()),
            batch_sequences: add(r, "batch_sequences", "Texts of a batch", counts()),
            batch_tokens: add(r, "batch_tokens", "Tokens of a batch", counts()),
            first_token: add(r, "first_token_seconds", "Time to the first token", seconds()),
            between_tokens: add(r, "between_tokens_seconds", "Time between two tokens", seconds()),
            truncated: add(r, "truncated", "Texts cut to the limit, as asked", Counter::default()),
            predicted: add(r, "predicted_bytes", "Memory computed for the last batch", Gauge::default()),
            resident: add(r, "resident_bytes", "Resident memory of the process", Gauge::default()),
            registry: Arc::new(registry),
        }
    }
}

impl Metrics {
    pub(crate) fn answered(&self, task: &'static str, route: String, status: u16, took: Duration) {
        let by_route = [("route", Cow::from(route))];
        self.durations.get_or_create(&by_route).observe(took.as_secs_f64());
        let [route] = by_route;
        let status = ("status", Cow::from(status.to_string()));
        self.requests.get_or_create(&[("task", task.into()), route, status]).inc();
    }

    pub(crate) fn reject(&self, reason: &'static str) {
        self.rejected.get_or_create(&[("reason", reason.into())]).inc();
    }

    pub(crate) fn reloaded(&self, model: &str, outcome: &'static str) {
        let model = ("model", Cow::from(model.to_owned()));
        self.reloads.get_or_create(&[model, ("outcome", outcome.into())]).inc();
    }

    pub(crate) fn text(&self) -> String {
        self.resident.set(unpadded::memory::resident().unwrap_or_default() as f64);
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
