//! What the server counts, in the text format of Prometheus. All labels have few values: names of models, routes and statuses.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct AnswerLabels {
    pub(crate) task: &'static str,
    pub(crate) route: &'static str,
    pub(crate) status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reload {
    model: String,
    outcome: &'static str,
}

/// Buckets from 100 µs to about 52 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 20))
}

fn counts() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 20))
}

type Durations = Family<Route, Histogram, fn() -> Histogram>;

/// The counters, gauges and histograms of a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    requests: Family<AnswerLabels, Counter>,
    durations: Durations,
    rejected: Family<Reason, Counter>,
    reloads: Family<Reload, Counter>,
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

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(seconds),
            rejected: Family::default(),
            reloads: Family::default(),
            queued: Gauge::default(),
            in_work: Gauge::default(),
            waits: seconds(),
            batch_sequences: counts(),
            batch_tokens: counts(),
            first_token: seconds(),
            between_tokens: seconds(),
            truncated: Counter::default(),
            predicted: Gauge::default(),
            resident: Gauge::default(),
        };
        let (mut r, m) = (Registry::with_prefix("unpadded"), &metrics);
        r.register("requests", "Requests by task, route and status", m.requests.clone());
        let help = "Time from the head of a request to its answer";
        r.register_with_unit("request_duration", help, Unit::Seconds, m.durations.clone());
        r.register("rejected", "Requests refused because of a limit", m.rejected.clone());
        r.register("truncated", "Texts cut to the limit, as their requests asked", m.truncated.clone());
        r.register("reloads", "Reloads of models by outcome", m.reloads.clone());
        r.register("queue_texts", "Texts that wait for a batch", m.queued.clone());
        r.register("requests_in_work", "Requests in work", m.in_work.clone());
        r.register_with_unit("queue_wait", "Time in the queue", Unit::Seconds, m.waits.clone());
        r.register("batch_sequences", "Texts of a batch", m.batch_sequences.clone());
        r.register("batch_tokens", "Tokens of a batch", m.batch_tokens.clone());
        let help = "Time from a request to the first token";
        r.register_with_unit("first_token", help, Unit::Seconds, m.first_token.clone());
        r.register_with_unit(
            "between_tokens",
            "Time between two tokens",
            Unit::Seconds,
            m.between_tokens.clone(),
        );
        let help = "Memory computed for the last batch before it ran";
        r.register_with_unit("predicted", help, Unit::Bytes, m.predicted.clone());
        r.register_with_unit("resident", "Resident memory of the process", Unit::Bytes, m.resident.clone());
        metrics.registry = Arc::new(r);
        metrics
    }
}

impl Metrics {
    pub(crate) fn answered(&self, labels: &AnswerLabels, took: Duration) {
        self.requests.get_or_create(labels).inc();
        self.durations.get_or_create(&Route { route: labels.route }).observe(took.as_secs_f64());
    }

    pub(crate) fn reject(&self, reason: &'static str) {
        self.rejected.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn reloaded(&self, model: &str, outcome: &'static str) {
        self.reloads.get_or_create(&Reload { model: model.to_owned(), outcome }).inc();
    }

    pub(crate) fn text(&self) -> String {
        self.resident.set(unpadded::memory::resident().unwrap_or_default() as f64);
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
