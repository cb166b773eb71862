//! A copy of the request's fields, for steps that look at them when they judge the response.

use foregate_module::Fields;
use foregate_wire::HeaderList;

use crate::limits::pressure::Charge;
use crate::message::request::Request;

/// The memory that is kept for the next request, in bytes and in fields.
const KEPT: (usize, usize) = (4096, 64);

/// A copy of the request's fields from before the request was prepared for the origin.
#[derive(Debug, Default)]
pub(super) struct SentFields {
    fields: HeaderList,
    charge: Charge,
    is_kept: bool,
}

impl SentFields {
    /// Copies the present fields of the request.
    pub fn keep(&mut self, request: &Request) {
        self.fields.clone_from(&request.head.headers);
        self.charge.set(self.fields.memory());
        self.is_kept = true;
    }

    /// Drops the fields and keeps the memory for another request.
    pub fn put_away(&mut self) {
        if std::mem::take(&mut self.is_kept) {
            self.fields.clear();
            self.fields.shrink_to(KEPT.0, KEPT.1);
            self.charge.set(0);
        }
    }

    /// The fields, if they were copied.
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
