//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use foregate_module::Fields;

use crate::coding::ContentCoding;
use crate::lists::{FULL, Quality, quality};

/// What a client takes.
pub(crate) struct AcceptEncoding<'f>(&'f dyn Fields);

impl<'f> AcceptEncoding<'f> {
    /// Reads the fields of a request.
    pub(crate) fn new(fields: &'f dyn Fields) -> Self {
        Self(fields)
    }

    /// How much the client likes a coding. A client that does not say what it takes is one that takes nothing: RFC 9110
    /// would permit anything, but those who do not ask seldom understand.
    pub(crate) fn quality(&self, coding: ContentCoding) -> Quality {
        let named = self.find(|name| ContentCoding::from_token(name) == Some(coding));
        named.or_else(|| self.find(|name| name == b"*")).unwrap_or(0)
    }

    /// How much the client likes the plain body, if it says so.
    fn identity(&self) -> Quality {
        self.find(|name| name.eq_ignore_ascii_case(b"identity")).unwrap_or(0)
    }

    /// The coding that the client likes most; among equals the first. `None`: the plain body.
    pub(crate) fn choose<T: Copy>(&self, codings: &[(ContentCoding, T)]) -> Option<(ContentCoding, T)> {
        let mut best = None;
        // The plain body has to be liked more than a coding to win; it always may be sent.
        let mut least = self.identity().max(1);
        for &(coding, with) in codings {
            let quality = self.quality(coding);
            if quality >= least {
                best = Some((coding, with));
                least = quality + 1;
            }
        }
        best
    }

    fn find(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Quality> {
        self.0.all("accept-encoding").flat_map(|value| value.split(|byte| *byte == b',')).find_map(
            |element| {
                let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
                let name = parts.next()?;
                wanted(name).then(|| parts.find_map(quality).unwrap_or(FULL))
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use foregate_module::FieldsMut;
    use foregate_module::testing::List;

    use super::ContentCoding::{Brotli, Gzip, Zstd};
    use super::*;

    fn chosen(values: &[&str]) -> Option<ContentCoding> {
        let mut fields = List::default();
        for value in values {
            fields.append(b"Accept-Encoding", value.as_bytes());
        }
        let codings = [(Zstd, ()), (Brotli, ()), (Gzip, ())];
        AcceptEncoding::new(&fields).choose(&codings).map(|(coding, ())| coding)
    }

    #[test]
    fn the_most_liked_coding_is_chosen_and_among_equals_the_first() {
        assert_eq!(chosen(&["gzip, deflate, br, zstd"]), Some(Zstd));
        assert_eq!(chosen(&["gzip, deflate, br"]), Some(Brotli));
        assert_eq!(chosen(&["gzip;q=1.0, br;q=0.5"]), Some(Gzip));
        assert_eq!(chosen(&["gzip;q=0.999", "br; Q=0.998"]), Some(Gzip));
        assert_eq!(chosen(&["X-GZIP"]), Some(Gzip));
        assert_eq!(chosen(&["*"]), Some(Zstd));
        assert_eq!(chosen(&["zstd;q=0, *;q=0.1"]), Some(Brotli));
        assert_eq!(chosen(&["gzip;level=9;q=0.2"]), Some(Gzip));
    }

    #[test]
    fn the_plain_body_is_sent_where_nothing_else_is_liked_more() {
        for values in [
            &[][..],
            &[""],
            &["identity"],
            &["identity, gzip;q=0.5"],
            &["gzip;q=0"],
            &["gzip;q=0.000, *;q=0"],
            &["compress, sdch"],
            &["gzip;q=abc"],
            &["gzip;q=2"],
            &["gzip;q=1.001"],
            &["gzip;q=0.0001"],
            &["gzip;q="],
        ] {
            assert_eq!(chosen(values), None, "{values:?}");
        }
        assert_eq!(chosen(&["identity;q=0.5, gzip;q=0.5"]), Some(Gzip));
        assert_eq!(chosen(&["identity;q=0, gzip;q=0.001"]), Some(Gzip));
    }
}
