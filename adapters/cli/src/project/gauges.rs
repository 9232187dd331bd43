//! How far a projector is behind its log, and whether it leads: read when it is scraped.

use std::fmt;

use decklog_engine::service::Progress;
use decklog_kube::lease::Leadership;
use decklog_schemas::Sequence;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;
use tokio::time::Instant;

/// The gauges of the fold.
#[derive(Debug)]
pub(super) struct Lag(pub(super) watch::Receiver<Progress>);

impl Collector for Lag {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let progress = *self.0.borrow();
        let number = |sequence: Option<Sequence>| sequence.map_or(0, Sequence::get);
        let behind = number(progress.tail).saturating_sub(number(progress.folded));
        let since = progress.recorded.filter(|_| behind > 0);
        let seconds = since.map_or(0.0, |recorded| jiff::Timestamp::now().duration_since(recorded).as_secs_f64());
        let mut gauge = |name, help, value: f64| {
            let metric = ConstGauge::new(value);
            let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(encoder)
        };
        gauge(
            "decklog_log_last_sequence",
            "Last record of the log, as of the last read.",
            number(progress.tail) as f64,
        )?;
        gauge("decklog_folded_sequence", "Last record that is folded.", number(progress.folded) as f64)?;
        gauge("decklog_lag_events", "Records of the log that are not folded yet.", behind as f64)?;
        gauge(
            "decklog_lag_seconds",
            "Age of the last folded record while there are others behind it.",
            seconds.max(0.0),
        )?;
        let quarantined = ConstCounter::new(progress.quarantined);
        let help = "Records since the start that are no event, or stand in the wrong place.";
        let encoder = encoder.encode_descriptor("decklog_quarantined", help, None, quarantined.metric_type())?;
        quarantined.encode(encoder)
    }
}

/// Whether we hold the Lease.
#[derive(Debug)]
pub(super) struct Leads(pub(super) watch::Receiver<Leadership>);

impl Collector for Leads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let leads = ConstGauge::new(i64::from(self.0.borrow().may_write(Instant::now())));
        let help = "1 while this projector holds the Lease and applies, 0 while it stands by.";
        leads.encode(encoder.encode_descriptor("decklog_leading", help, None, leads.metric_type())?)
    }
}
