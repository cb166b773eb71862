//! `requests` and `queue` of listeners, sites and upstreams.

use std::time::Duration;

use foregate_config::value;
use foregate_config::{Decoder, Item, Place, Problem};
use foregate_proxy::settings::RequestLimit;

use super::numbers::TIMES;

/// The default of the queue's `timeout`.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The default of the least value of an adaptive limit.
const LEAST: usize = 4;

/// The values of the two keys as they are read.
#[derive(Default)]
pub(super) struct Queueing {
    requests: Option<usize>,
    adaptive_from: Option<usize>,
    queue: Option<(usize, Duration, Place)>,
    is_wrong: bool,
}

impl Queueing {
    pub(super) fn requests(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>) {
        let read = decoder.read(item, 0, |v| value::number(v, 1..=u32::MAX.into()));
        self.is_wrong |= read.is_none();
        self.requests = read.map(|requests| requests as usize);
        let is_adaptive = decoder.prop(item, "adaptive", value::boolean).unwrap_or(false);
        let least = decoder.prop(item, "minimum", |v| value::number(v, 1..=u32::MAX.into()));
        match (is_adaptive, least, self.requests) {
            (false, Some(_), _) => {
                let problem =
                    Problem::new(Some(item.place()), "`minimum` is the least limit with `adaptive=#true`");
                decoder.push(problem.help("add `adaptive=#true`, or leave out `minimum`"));
            }
            (true, Some(least), Some(most)) if least as usize > most => {
                let message = format!("`minimum={least}` is larger than the largest limit, {most}");
                decoder.push(Problem::new(Some(item.place()), message).help("write a smaller `minimum`"));
            }
            (true, least, Some(most)) => {
                self.adaptive_from = Some(least.map_or(LEAST.min(most), |least| least as usize));
            }
            _ => {}
        }
    }

    pub(super) fn queue(&mut self, decoder: &mut Decoder<'_>, item: Item<'_>) {
        let length = decoder.read(item, 0, |v| value::number(v, 1..=1_000_000));
        let timeout = decoder.prop(item, "timeout", |v| value::duration(v, TIMES)).unwrap_or(TIMEOUT);
        self.queue = length.map(|length| (length as usize, timeout, item.place()));
    }

    /// The limit on requests, if `requests` is set. A `queue` without `requests` is an error, because nothing fills it.
    pub(super) fn finish(self, decoder: &mut Decoder<'_>) -> Option<RequestLimit> {
        let (queue, timeout) = self.queue.map_or((0, TIMEOUT), |(length, timeout, _)| (length, timeout));
        if let (None, Some((_, _, place)), false) = (self.requests, self.queue, self.is_wrong) {
            let problem = Problem::new(Some(place), "without `requests` no request waits");
            decoder.push(problem.help("write `requests NUMBER` beside it, the most requests in flight"));
        }
        let adaptive_from = self.adaptive_from;
        self.requests.map(|requests| RequestLimit { requests, queue, timeout, adaptive_from })
    }
}
