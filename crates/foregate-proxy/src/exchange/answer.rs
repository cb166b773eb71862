//! Sends an answer of our own.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_wire::{BodyLength, HeaderList, Method};

use super::respond::Answer;
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::LinkError;
use crate::telemetry::clock;

impl Exchange<'_> {
    pub(super) async fn answer(&mut self, answer: Answer) -> Step {
        let Answer { head, body } = answer;
        *self.response = head;
        let head_only = self.request.head.method == Method::Head;
        let forbidden = matches!(self.response.status, 204 | 304);
        if head_only && !forbidden {
            let length = body.len().to_string();
            self.response.headers.push_id(foregate_wire::NameId::ContentLength, length.as_bytes());
        }
        if self.request.expect_continue && !self.upload.is_done() {
            // The client was never told to go on, so it is not known whether its body will come.
            self.client.close = true;
        }
        let length =
            if head_only || forbidden { BodyLength::Empty } else { BodyLength::Fixed(body.len() as u64) };
        if let Err(error) = self.begin_response(length) {
            return Step::Broken(Error::Client(error));
        }
        let body = if length.is_empty() { &[][..] } else { &body[..] };
        let stall = self.config.settings.timeouts.write_stall;
        let mut sent = 0;
        let mut finished = false;
        let mut moved_at = clock::now();
        let result = poll_fn(|cx| {
            let before = sent;
            match self.poll_answer(cx, body, &mut sent, &mut finished) {
                Poll::Ready(result) => return Poll::Ready(result.map_err(Error::Client)),
                Poll::Pending => {}
            }
            if sent != before {
                moved_at = clock::now();
            }
            self.timer.poll(cx, moved_at + stall).map(|()| Err(Error::WriteStall))
        })
        .await;
        self.download.moved = sent as u64;
        match result {
            Ok(()) => Step::Done,
            Err(error) => Step::Broken(error),
        }
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        body: &[u8],
        sent: &mut usize,
        finished: &mut bool,
    ) -> Poll<Result<(), LinkError>> {
        let link = &mut self.client.link;
        while *sent < body.len() {
            *sent += std::task::ready!(link.poll_send(cx, &body[*sent..]))?;
        }
        if !*finished {
            link.finish(&HeaderList::new())?;
            *finished = true;
        }
        link.poll_flush(cx)
    }
}
