//! Shaping a reply: the steps of the response run over it, whoever has made it.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use foregate_module::{Chain, Filtered, PhaseId, Source as MadeBy, Text};
use foregate_wire::{BodyLength, NameId, Version, connection};

use super::modules::Ended;
use super::reply::{Reply, Source};
use super::{Exchange, Step};
use crate::error::{Error, Side};
use crate::link::Link;
use crate::link::filter::{Filter, chain};
use crate::link::start::Front;
use crate::time::clock;
use crate::transport::outcome::CopyError;
use crate::upstream::Origin;

/// How long a response whose filters may be refused their memory waits for the first piece of its body before its head is sent.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);

impl Exchange<'_> {
    /// Makes the response of an origin what the client shall see.
    pub(super) fn take_response(&mut self, origin: Origin, length: BodyLength) -> Step {
        if length == BodyLength::Tunnel {
            return self.agree_on_tunnel(origin);
        }
        let extended = self.request.upgrade.is_some() && self.down.client.link.is_h2();
        if extended && (200..300).contains(&self.response.status) {
            // To the client a 2xx would say that the tunnel is open (RFC 8441, section 5).
            return Step::Failed(Error::NoUpgrade);
        }
        self.down.download.leave_out(connection::named_options(&self.response.headers));
        let required = self.required_upgrade();
        connection::strip_hop_by_hop(&mut self.response.headers, false);
        self.response.headers.remove(NameId::TransferEncoding);
        if let Some(protocols) = required {
            self.response.headers.push_id(NameId::Upgrade, &protocols);
        }
        let source = Source::Origin(origin, length);
        if self.response.status == 206 && self.shapes() && self.needs_whole() {
            return self.ask_whole(source);
        }
        self.shape_or_send(source)
    }

    /// Puts a reply that was made here in the place of whatever was to be the response.
    pub(super) fn take_reply(&mut self, reply: Reply) -> Step {
        let Reply { mut head, body, made_by } = reply;
        let before = self.run.as_ref().map_or(MadeBy::Nobody, |run| run.facts.source);
        // An error is no step's fault, or it has been said there: steps may have seen the head of the origin's response. Those that have
        // run over a reply of ours do not run again, so that this comes to an end.
        if matches!(made_by, MadeBy::Error(_)) && matches!(before, MadeBy::Nobody | MadeBy::Upstream) {
            self.start_over();
        }
        // Which protocol has to be spoken instead no page says (RFC 9110, section 15.5.22).
        let stays = before == MadeBy::Upstream && self.response.status == 426 && head.status == 426;
        let protocols = self.response.headers.get(NameId::Upgrade).filter(|_| stays).map(<[u8]>::to_vec);
        // A page keeps the fields of the error that it stands for, also in that they do not name us any more.
        let is_page = matches!(made_by, MadeBy::Step { .. }) && self.is_at_error_page();
        if is_page && !self.response.headers.contains(NameId::Server) {
            head.headers.remove(NameId::Server);
        }
        **self.response = head;
        if let Some(protocols) = protocols {
            self.response.headers.push_id(NameId::Upgrade, &protocols);
        }
        self.response_is_from(made_by);
        if let Some(run) = &mut self.run {
            // They were chosen for another response.
            run.state.response_filters.clear();
        }
        self.shape_or_send(body)
    }

    /// Whether steps of the response are planned.
    fn shapes(&self) -> bool {
        self.has_steps(PhaseId::UpstreamResponse, PhaseId::ResponseBody)
    }

    pub(super) fn shape_or_send(&self, source: Source) -> Step {
        if self.shapes() { Step::Shape(source) } else { Step::Send(source) }
    }

    /// Runs the steps of the response.
    pub(super) async fn shape(&mut self, mut source: Source) -> Step {
        match &source {
            Source::Origin(..) => {
                self.response_is_from(MadeBy::Upstream);
                self.skip_to(PhaseId::UpstreamResponse);
            }
            Source::Bytes(body) => {
                self.response.headers.push_id(NameId::ContentLength, body.len().to_string().as_bytes());
                self.skip_to(PhaseId::ResponseHeaders);
            }
        }
        match self.run_response(&mut source).await {
            Ok(()) => Step::Send(source),
            Err(ended) => {
                self.drop_source(source, if let Ended::Failed(error) = &ended { Some(error) } else { None });
                ended.into()
            }
        }
    }

    async fn run_response(&mut self, source: &mut Source) -> Result<(), Ended> {
        self.run_phases(PhaseId::ResponseErrorPage).await?;
        match source {
            Source::Origin(origin, length) => {
                self.hold_response(origin, *length).await.map_err(Ended::Failed)?;
            }
            Source::Bytes(body) => self.hold_bytes(body)?,
        }
        self.run_phases(PhaseId::ResponseBody).await?;
        let filters = self.take_response_filters();
        match source {
            Source::Origin(origin, length) => {
                if let Some(run) = &mut self.run {
                    let bytes = std::mem::take(&mut run.facts.response_body).into();
                    self.down.download.front = Front::new(bytes, run.facts.response_share.take());
                }
                // What passes through a tunnel is no body.
                if filters.is_empty() || *length == BodyLength::Tunnel {
                    return Ok(());
                }
                self.filter_response(origin, length, filters).await.map_err(Ended::Failed)
            }
            Source::Bytes(body) => {
                self.response.headers.remove(NameId::ContentLength);
                if !filters.is_empty() && !body.is_empty() {
                    // Apart, since it is large and most replies do without.
                    *body = Box::pin(self.filter_bytes(filters, body)).await?;
                }
                Ok(())
            }
        }
    }

    /// Shows steps as much of a body in memory as they have asked for.
    fn hold_bytes(&mut self, body: &Text) -> Result<(), Ended> {
        let mut share = self.proxy.filter_memory.share(self.account());
        let goes_on = self.plan().is_some_and(|plan| plan.hold_is_optional());
        let Some(run) = &mut self.run else { return Ok(()) };
        let mut start = body.get(..run.state.hold).unwrap_or(body);
        if !share.hold(start.len()) {
            if !goes_on {
                return Err(Ended::Failed(Error::FilterMemory));
            }
            start = &[];
        }
        run.facts.response_body_is_whole = start.len() == body.len();
        run.facts.response_body = start.to_vec();
        run.facts.response_share = Some(share);
        Ok(())
    }

    /// Puts a body in memory through filters, as a whole, so that its length is known, and fetches what they ask for.
    async fn filter_bytes(&mut self, filters: Vec<Filtered>, body: &[u8]) -> Result<Text, Ended> {
        if filters.iter().any(Filtered::changes_length) {
            self.response.body_changes(BodyLength::Empty);
        }
        let mut filter = Filter::new(chain(filters), self.proxy.filter_memory.share(self.account()))
            .map_err(|_| Ended::Failed(Error::FilterMemory))?;
        let filtered = self.filter_whole(&mut filter, body).await;
        self.count_filters(&mut filter);
        let body = filtered.map_err(|error| Ended::Failed(Error::of_download(error)))?;
        if let Some(run) = &mut self.run {
            // The client may take it slowly.
            run.facts.shares.push(filter.into_share(body.capacity()));
        }
        Ok(body.into())
    }

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

    /// Puts filters before the body of an origin, and has them take what is at hand of it: where their memory is refused, which decoders
    /// only know once they have seen how a body begins, the client gets an error instead of the head of a response that breaks off.
    async fn filter_response(
        &mut self,
        origin: &mut Origin,
        length: &mut BodyLength,
        filters: Vec<Filtered>,
    ) -> Result<(), Error> {
        let changes = filters.iter().any(Filtered::changes_length);
        if changes {
            *length = self.response.body_changes(*length);
        }
        if length.is_empty() {
            return Ok(());
        }
        let (memory, account) = (&self.proxy.filter_memory, self.account());
        let filter = Filter::new(chain(filters), memory.share(account)).map_err(|_| Error::FilterMemory)?;
        let mut filter = Box::new(filter.begins_soon());
        filter.rewrites = changes;
        let until = memory.is_felt(account).then(|| clock::now() + BEGINS_WITHIN);
        poll_fn(|cx| self.poll_begin(cx, origin, &mut filter, until)).await?;
        self.down.download.filter = Some(filter);
        Ok(())
    }

    /// Has filters take the first piece of the response's body, which is waited for at most `until`.
    fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        filter: &mut Filter,
        until: Option<Instant>,
    ) -> Poll<Result<(), Error>> {
        match self.down.download.poll_begin(cx, filter, &mut origin.link) {
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Ready(Err(error)) => {
                self.count_filters(filter);
                return Poll::Ready(Err(Error::of_download(error)));
            }
            Poll::Pending => {}
        }
        let Some(until) = until else { return Poll::Ready(Ok(())) };
        self.poll_upload(cx, origin)?;
        if let Poll::Ready(error) = self.down.poll_gone(cx) {
            return Poll::Ready(Err(error));
        }
        self.down.timer.poll(cx, until).map(Ok)
    }

    /// Nobody needs the body of a response any more. Where it was not lost by a peer, the rest of it is read, if that is little, so that
    /// the origin's connection can be kept.
    pub(super) fn drop_source(&self, source: Source, error: Option<&Error>) {
        let Source::Origin(mut origin, length) = source else { return };
        // A response that is too long for a step may be short enough for that.
        let is_lost = |error: &&Error| error.side() != Side::Internal && **error != Error::ResponseTooLarge;
        if let Some(error) = error.filter(is_lost) {
            return self.drop_origin(origin, error);
        }
        if length == BodyLength::Tunnel {
            return origin.link.abort();
        }
        let Some(upstream) = self.upstream() else { return };
        if self.down.upload.is_done() && !self.down.upload.gave_up() {
            upstream.drop_rest(origin);
        }
    }

    /// To which protocols the client has to switch: the origin must say so with 426 (RFC 9110, section 15.5.22), and the client can only ask
    /// for it over HTTP/1.1.
    fn required_upgrade(&self) -> Option<Vec<u8>> {
        let can_switch =
            matches!(self.down.client.link, Link::H1(_)) && self.request.head.version == Version::Http11;
        let is_required = self.response.status == 426 && can_switch;
        is_required.then(|| connection::upgrade(&self.response.headers).map(<[u8]>::to_vec)).flatten()
    }
}
