//! The answer to a request from a stored response.

use std::ops::Range;

use foregate_wire::{HeaderList, NameId};

use crate::conditions::{Conditions, Representation, evaluate};
use crate::moment::Moment;
use crate::ranges::{Multipart, Ranges, content_range, ranges};
use crate::request::Demands;
use crate::stored::StoredHead;

/// The status of an answer and the part of the stored body that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub content: Content,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No body.
    None,
    /// The whole stored body.
    Whole,
    /// A part of the body.
    Part(Range<u64>),
    /// Several parts of the body.
    Parts(Multipart),
}

impl StoredHead {
    /// The validators.
    pub fn representation(&self) -> Representation<'_> {
        Representation {
            etag: self.headers.get(NameId::Etag),
            last_modified: self.last_modified,
            date: self.date,
        }
    }

    /// Writes the fields of the answer to a request into `out`, which is cleared first. They are the fields of the
    /// stored response, and Age. The client's conditions and ranges are evaluated here (RFC 9111, section 4.3.2).
    ///
    /// `length` is the length of the stored body. It is `None` while the body is being fetched and its length is
    /// unknown: ranges are ignored then. `boundary` is a random number.
    pub fn answer(
        &self,
        demands: &Demands,
        request: &HeaderList,
        length: Option<u64>,
        now: Moment,
        boundary: u64,
        out: &mut HeaderList,
    ) -> Answer {
        // Conditions only apply to successful responses (RFC 9110, section 13.2.1).
        if demands.conditional && (200..300).contains(&self.status) {
            match evaluate(request, &self.representation(), now.wall) {
                Conditions::Met => {}
                Conditions::NotModified => return self.not_modified(now, out),
                Conditions::Failed => {
                    out.clear();
                    return Answer { status: 412, content: Content::None };
                }
            }
        }
        // Ranges only apply to GET (RFC 9110, section 14.2).
        if demands.range
            && !demands.head
            && self.status == 200
            && let Some(length) = length
        {
            let parts = ranges(request, &self.representation(), length, now.wall);
            if let Some(answer) = self.parts(parts, length, now, boundary, out) {
                return answer;
            }
        }
        self.head(now, out);
        let bodiless = matches!(self.status, 204 | 304);
        if let Some(length) = length
            && !bodiless
            && !out.contains(NameId::ContentLength)
        {
            push_number(out, NameId::ContentLength, length);
        }
        let content = if demands.head || bodiless { Content::None } else { Content::Whole };
        Answer { status: self.status, content }
    }

    fn head(&self, now: Moment, out: &mut HeaderList) {
        out.clone_from(&self.headers);
        push_number(out, NameId::Age, self.life.age(now.cache));
    }

    /// A 304 without the fields that describe the content (RFC 9110, section 15.4.5).
    fn not_modified(&self, now: Moment, out: &mut HeaderList) -> Answer {
        self.head(now, out);
        out.remove_each(&[
            NameId::ContentLength,
            NameId::ContentType,
            NameId::ContentEncoding,
            NameId::ContentLanguage,
            NameId::ContentRange,
            NameId::ContentMd5,
        ]);
        Answer { status: 304, content: Content::None }
    }

    /// Writes the answer for the parts that the request asks for. `None` if the whole response is to be sent.
    fn parts(
        &self,
        parts: Ranges,
        length: u64,
        now: Moment,
        boundary: u64,
        out: &mut HeaderList,
    ) -> Option<Answer> {
        match parts {
            Ranges::Whole => None,
            Ranges::One(range) => {
                self.head(now, out);
                out.remove_each(&[NameId::ContentLength, NameId::ContentRange, NameId::ContentMd5]);
                out.push_id(NameId::ContentRange, content_range(&range, length).as_bytes());
                push_number(out, NameId::ContentLength, range.end - range.start);
                Some(Answer { status: 206, content: Content::Part(range) })
            }
            Ranges::Several(parts) => {
                let multipart =
                    Multipart::new(parts, length, self.headers.get(NameId::ContentType), boundary);
                self.head(now, out);
                out.remove_each(&[
                    NameId::ContentLength,
                    NameId::ContentRange,
                    NameId::ContentMd5,
                    NameId::ContentType,
                ]);
                out.push_id(NameId::ContentType, multipart.content_type.as_bytes());
                push_number(out, NameId::ContentLength, multipart.length());
                Some(Answer { status: 206, content: Content::Parts(multipart) })
            }
            Ranges::Unsatisfiable => {
                out.clear();
                out.push_id(NameId::ContentRange, format!("bytes */{length}").as_bytes());
                Some(Answer { status: 416, content: Content::None })
            }
        }
    }
}

/// Adds a field with a number, without an allocation of its own.
fn push_number(out: &mut HeaderList, id: NameId, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        start -= 1;
        if number == 0 {
            break;
        }
    }
    out.push_id(id, digits.get(start..).unwrap_or_default());
}
