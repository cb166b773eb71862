//! Receives the start of a request's body for the steps that look at it.

use std::future::poll_fn;
use std::task::{Context, Poll};

use super::Exchange;
use crate::budget::Share;
use crate::error::Error;
use crate::link::copy::Kept;
use crate::link::{LinkError, Received};
use crate::telemetry::clock;

impl Exchange<'_> {
    /// Receives as much of the request's body as the steps of the route ask for. It is sent to the origin like one that
    /// an earlier attempt has taken from the client.
    pub(super) async fn receive_start(&mut self) -> Result<(), Error> {
        let Some(run) = &self.run else { return Ok(()) };
        let wanted = run.plan.body();
        if wanted == 0 || self.request.length.is_empty() {
            return Ok(());
        }
        if self.request.expect_continue {
            let none = foregate_wire::HeaderList::new();
            self.client.send_interim(self.request, 100, &none).map_err(Error::Client)?;
            self.request.expect_continue = false;
        }
        self.progress.restart(clock::now());
        let mut start = Vec::new();
        let mut share = self.proxy.filter_memory.share();
        let whole = poll_fn(|cx| self.poll_start(cx, wanted, &mut start, &mut share)).await?;
        if whole {
            self.upload.source_ended();
        }
        if let Some(run) = &mut self.run {
            run.facts.body = start.clone();
            run.facts.body_share = Some(share);
            run.facts.body_is_whole = whole;
        }
        // What it holds is counted with the start that steps see.
        let share = self.proxy.filter_memory.share();
        self.upload.kept = Some(Kept { limit: start.len(), bytes: start, share });
        Ok(())
    }

    fn poll_start(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        start: &mut Vec<u8>,
        share: &mut Share,
    ) -> Poll<Result<bool, Error>> {
        let link = &mut self.client.link;
        if let Poll::Ready(Err(error)) = link.poll_flush(cx) {
            return Poll::Ready(Err(Error::Client(error)));
        }
        while start.len() < wanted {
            match link.poll_receive(cx) {
                Poll::Ready(Ok(Received::Data)) => {
                    let data = link.data();
                    let count = data.len().min(wanted - start.len());
                    if self.upload.moved.saturating_add(count as u64) > self.upload.limit {
                        return Poll::Ready(Err(Error::BodyTooLarge));
                    }
                    // It is kept twice: for the steps, and for the origin.
                    if !share.hold(2 * (start.len() + count)) {
                        return Poll::Ready(Err(Error::FilterMemory));
                    }
                    start.extend_from_slice(data.get(..count).unwrap_or_default());
                    link.consume(count);
                    self.upload.moved += count as u64;
                }
                Poll::Ready(Ok(Received::End)) => return Poll::Ready(Ok(true)),
                Poll::Ready(Err(error @ (LinkError::Body(_) | LinkError::Length))) => {
                    self.client.close = true;
                    return Poll::Ready(Err(Error::Client(error)));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::Client(error))),
                Poll::Pending => {
                    let now = clock::now();
                    self.progress.observe(self.upload.moved, 0, now);
                    let deadline = self.progress.client_deadline(&self.config.settings.timeouts, now);
                    return self.timer.poll(cx, deadline).map(|()| Err(Error::BodyTimeout));
                }
            }
        }
        Poll::Ready(Ok(false))
    }
}
