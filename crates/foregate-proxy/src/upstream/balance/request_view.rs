//! A request on its way to a server, as expressions read it.

use std::net::IpAddr;

use foregate_module::{
    Exchange, Expression, Fields, FieldsMut, Now, Source, State, Summary, TlsFacts, UpstreamId, View,
};
use foregate_wire::BodyLength;

use super::BalancedRequest;
use crate::message::response::Nothing;
use crate::random;

impl BalancedRequest<'_> {
    /// The value of an expression that reads only the request and the client's address; `None` if the part that it
    /// reads is missing.
    pub(super) fn evaluate(&self, expression: &dyn Expression) -> Option<Vec<u8>> {
        let exchange = RequestView { asked: *self, nothing: Nothing };
        let state = State::default();
        let view = View::new(&exchange, &state.slots, &[]);
        expression.evaluate(&view).map(std::borrow::Cow::into_owned)
    }
}

/// A request without a connection, a site or a response. It cannot be changed.
struct RequestView<'a> {
    asked: BalancedRequest<'a>,
    nothing: Nothing,
}

impl Exchange for RequestView<'_> {
    fn client(&self) -> Option<IpAddr> {
        self.asked.client.map(|client| client.to_canonical())
    }

    fn peer(&self) -> Option<IpAddr> {
        self.client()
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        None
    }

    fn scheme(&self) -> &str {
        self.asked.request.scheme()
    }

    fn protocol(&self) -> &str {
        self.asked.request.head.version.as_str()
    }

    fn method(&self) -> &[u8] {
        self.asked.request.method()
    }

    fn host(&self) -> &str {
        self.asked.request.authority.host()
    }

    fn authority(&self) -> &str {
        self.asked.request.authority.as_str()
    }

    fn path(&self) -> &[u8] {
        self.asked.request.target.path()
    }

    fn query(&self) -> Option<&[u8]> {
        self.asked.request.target.query()
    }

    fn raw_target(&self) -> &[u8] {
        self.asked.request.head.target()
    }

    fn request_fields(&self) -> &dyn Fields {
        self.asked.request
    }

    fn request_length(&self) -> Option<u64> {
        match self.asked.request.length {
            BodyLength::Empty => Some(0),
            BodyLength::Fixed(length) => Some(length),
            _ => None,
        }
    }

    fn request_body(&self) -> (&[u8], bool) {
        (&[], false)
    }

    fn site(&self) -> &str {
        ""
    }

    fn route(&self) -> &str {
        ""
    }

    fn now(&self) -> Now {
        Now::default()
    }

    fn random(&self) -> u64 {
        random::number()
    }

    fn status(&self) -> Option<u16> {
        None
    }

    fn response_fields(&self) -> &dyn Fields {
        &self.nothing
    }

    fn source(&self) -> Source<'_> {
        Source::Nobody
    }

    fn summary(&self) -> Summary {
        Summary::default()
    }

    fn set_client(&mut self, _: IpAddr) {}

    fn set_secure(&mut self, _: bool) {}

    fn set_target(&mut self, _: Option<&[u8]>, _: Option<&[u8]>) -> bool {
        false
    }

    fn set_upstream(&mut self, _: UpstreamId) {}

    fn request_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.nothing
    }

    fn response_fields_mut(&mut self) -> &mut dyn FieldsMut {
        &mut self.nothing
    }

    fn limit_request_body(&mut self, _: u64) {}
}
