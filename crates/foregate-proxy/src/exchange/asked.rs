//! The fields of a request as its client has sent them, for steps that look at them once there is a response.

use foregate_module::Fields;
use foregate_wire::HeaderList;

use crate::limits::pressure::Charge;
use crate::message::request::Request;

/// How much memory lies ready for the next request, bytes and fields.
const KEPT: (usize, usize) = (4096, 64);

/// A copy of the request's fields as the origin got them, which responses are judged by.
#[derive(Debug, Default)]
pub(super) struct SentFields {
    fields: HeaderList,
    charge: Charge,
    is_kept: bool,
}

impl SentFields {
    /// Keeps the fields as they are.
    pub fn keep(&mut self, request: &Request) {
        self.fields.clone_from(&request.head.headers);
        self.charge.set(self.fields.memory());
        self.is_kept = true;
    }

    /// Forgets them, to lie ready for another request.
    pub fn put_away(&mut self) {
        if std::mem::take(&mut self.is_kept) {
            self.fields.clear();
            self.fields.shrink_to(KEPT.0, KEPT.1);
            self.charge.set(0);
        }
    }

    /// The fields, where they were kept.
    pub fn fields(&self) -> Option<&HeaderList> {
        self.is_kept.then_some(&self.fields)
    }
}

impl Fields for SentFields {
    fn count(&self) -> usize {
        self.fields.len()
    }

    fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.fields.at(number).map(|field| (field.name, field.value))
    }

    fn find(&self, name: &[u8], from: usize) -> Option<(usize, &[u8])> {
        self.fields.find_name(name, from)
    }

    fn find_again(&self, number: usize) -> Option<(usize, &[u8])> {
        self.fields.find_again(number)
    }
}
