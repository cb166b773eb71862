//! Sends an answer of our own.

use std::future::poll_fn;
use std::task::{Context, Poll};

use foregate_module::{Chain, Filtered, PhaseId, Source, Text};
use foregate_wire::{BodyLength, HeaderList, Method, NameId};

use super::modules::Ended;
use super::progress::Taking;
use super::respond::Answer;
use super::{Exchange, Step};
use crate::error::Error;
use crate::link::LinkError;
use crate::link::filter::{Filter, chain};
use crate::time::clock;
use crate::transport::outcome::CopyError;

impl Exchange<'_> {
    pub(super) async fn answer(&mut self, answer: Answer) -> Step {
        if matches!(answer.source, Source::Error(_)) {
            // No step's fault, or it has been said there: steps may have seen the head of the origin's response.
            self.start_over();
        }
        let mut body = self.take_answer(answer);
        while self.run.is_some() {
            match self.shape_answer(body).await {
                Ok(shaped) => {
                    body = shaped;
                    break;
                }
                Err(Ended::Answer(response, step)) => {
                    body = self.take_answer(Answer::module(*response, step));
                }
                Err(Ended::Failed(error)) => {
                    // Steps that have run do not run again, so that this comes to an end.
                    self.record.error = Some(error);
                    body = self.take_answer(Answer::error(&error));
                }
                Err(Ended::Abort(step)) => return Step::Broken(Error::Aborted(step)),
            }
        }
        let head_only = self.request.head.method == Method::Head;
        let forbidden = matches!(self.response.status, 204 | 304);
        self.response.headers.remove(NameId::ContentLength);
        if head_only && !forbidden {
            let length = body.len().to_string();
            self.response.headers.push_id(NameId::ContentLength, length.as_bytes());
        }
        self.down.client.close |= self.body_may_not_come();
        let length =
            if head_only || forbidden { BodyLength::Empty } else { BodyLength::Fixed(body.len() as u64) };
        if let Err(error) = self.down.room().await {
            return Step::Broken(error);
        }
        self.log_first().await;
        if let Err(error) = self.begin_response(length) {
            return Step::Broken(Error::Client(error));
        }
        let body = if length.is_empty() { &[][..] } else { &body[..] };
        let stall = self.config.settings.timeouts.write_stall;
        let most = self.config.settings.limits.early_response_drain;
        let mut sent = 0;
        let mut finished = false;
        let mut client = Taking::default();
        let result = poll_fn(|cx| {
            match self.poll_answer(cx, body, &mut sent, &mut finished) {
                Poll::Ready(result) => return Poll::Ready(result.map_err(Error::Client)),
                Poll::Pending => self.down.client.drop_body(cx, most),
            }
            let now = clock::now();
            client.observe(sent as u64, true, now);
            client.has_left(self.down.client.link.left_at());
            self.down.timer.poll(cx, client.stuck().unwrap_or(now) + stall).map(|()| Err(Error::WriteStall))
        })
        .await;
        self.down.download.moved = sent as u64;
        self.down.download.sent = sent as u64;
        match result {
            Ok(()) => Step::Done,
            Err(error) => Step::Broken(error),
        }
    }

    /// Makes an answer the response; gives its body.
    fn take_answer(&mut self, answer: Answer) -> Text {
        let Answer { mut head, body, source } = answer;
        // Which protocol has to be spoken instead no page says (RFC 9110, section 15.5.22).
        let from_origin = self.run.as_ref().is_some_and(|run| run.facts.source == Source::Upstream);
        let stays = from_origin && self.response.status == 426 && head.status == 426;
        let protocols = self.response.headers.get(NameId::Upgrade).filter(|_| stays).map(<[u8]>::to_vec);
        // A page keeps the fields of the error that it stands for, also in that they do not name us any more.
        let is_page = matches!(source, Source::Step { .. }) && self.is_at_error_page();
        if is_page && !self.response.headers.contains(NameId::Server) {
            head.headers.remove(NameId::Server);
        }
        **self.response = head;
        if let Some(protocols) = protocols {
            self.response.headers.push_id(NameId::Upgrade, &protocols);
        }
        self.response_is_from(source);
        if let Some(run) = &mut self.run {
            // They were chosen for another response.
            run.state.response_filters.clear();
        }
        body
    }

    /// Runs the steps of the response over an answer of our own; gives its body.
    async fn shape_answer(&mut self, body: Text) -> Result<Text, Ended> {
        self.skip_to(PhaseId::ResponseHeaders);
        self.response.headers.push_id(NameId::ContentLength, body.len().to_string().as_bytes());
        self.run_phases(PhaseId::ResponseErrorPage).await?;
        let mut share = self.proxy.filter_memory.share(self.account());
        let goes_on = self.plan().is_some_and(|plan| plan.hold_is_optional());
        if let Some(run) = &mut self.run {
            let mut start = body.get(..run.state.hold).unwrap_or(&body);
            if !share.hold(start.len()) {
                if !goes_on {
                    return Err(Ended::Failed(Error::FilterMemory));
                }
                start = &[];
            }
            run.facts.response_body_is_whole = start.len() == body.len();
            run.facts.response_body = start.to_vec();
            run.facts.response_share = Some(share);
        }
        self.run_phases(PhaseId::ResponseBody).await?;
        let filters = self.take_response_filters();
        if filters.is_empty() || body.is_empty() {
            return Ok(body);
        }
        // Apart, since it is large and most answers do without.
        Box::pin(self.filter_answer(filters, body)).await
    }

    async fn filter_answer(&mut self, filters: Vec<Filtered>, body: Text) -> Result<Text, Ended> {
        if filters.iter().any(Filtered::changes_length) {
            self.response.body_changes(BodyLength::Empty);
        }
        let mut filter = Filter::new(chain(filters), self.proxy.filter_memory.share(self.account()))
            .map_err(|_| Ended::Failed(Error::FilterMemory))?;
        let filtered = self.filter_whole(&mut filter, &body).await;
        self.count_filters(&mut filter);
        let body = filtered.map_err(|error| Ended::Failed(Error::of_download(error)))?;
        if let Some(run) = &mut self.run {
            // The client may take it slowly.
            run.facts.shares.push(filter.into_share(body.capacity()));
        }
        Ok(body.into())
    }

    /// Filters a body that is whole, and fetches what filters ask for.
    async fn filter_whole(&mut self, filter: &mut Filter, body: &[u8]) -> Result<Vec<u8>, CopyError> {
        let pieces = body.chunks(Chain::PIECE).map(Some).chain([None]);
        for piece in pieces {
            let mut asked = filter.of_whole(piece, piece.is_none())?;
            while let Some(question) = asked {
                let answer =
                    Box::pin(self.fetch_one(filter.asking(), question)).await.map_err(CopyError::Sink)?;
                filter.answer(answer)?;
                asked = filter.of_whole(None, false)?;
            }
        }
        Ok(filter.take_output())
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        body: &[u8],
        sent: &mut usize,
        finished: &mut bool,
    ) -> Poll<Result<(), LinkError>> {
        let link = &mut self.down.client.link;
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
