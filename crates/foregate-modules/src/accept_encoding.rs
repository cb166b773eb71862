//! `Accept-Encoding` (RFC 9110, section 12.5.3).

use foregate_module::Fields;

use crate::coding::ContentCoding;
use crate::lists::{FULL, Quality, quality};

/// What a client takes.
#[derive(Default)]
pub(crate) struct AcceptEncoding {
    /// What it says of codings that are known, each at its place in [`ContentCoding::ALL`].
    codings: [Option<Quality>; ContentCoding::ALL.len()],
    /// What it says of all others (`*`).
    others: Option<Quality>,
    /// What it says of the plain body.
    identity: Option<Quality>,
}

impl AcceptEncoding {
    /// Reads the fields of a request, once: a client may fill them with elements. Of several for one coding the first counts.
    pub(crate) fn new(fields: &dyn Fields) -> Self {
        let mut accepted = Self::default();
        let elements = fields.all("accept-encoding").flat_map(|value| value.split(|byte| *byte == b','));
        for element in elements.filter(|element| !element.is_empty()) {
            let mut parts = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            if let Some(said) = accepted.said_of(name) {
                said.get_or_insert_with(|| parts.find_map(quality).unwrap_or(FULL));
            }
        }
        accepted
    }

    /// Where the quality of an element with this name belongs.
    fn said_of(&mut self, name: &[u8]) -> Option<&mut Option<Quality>> {
        match name {
            b"*" => Some(&mut self.others),
            name if name.eq_ignore_ascii_case(b"identity") => Some(&mut self.identity),
            name => self.codings.get_mut(place(ContentCoding::from_token(name)?)?),
        }
    }

    /// How much the client likes a coding. A client that does not say what it takes is one that takes nothing: RFC 9110
    /// would permit anything, but those who do not ask seldom understand.
    pub(crate) fn quality(&self, coding: ContentCoding) -> Quality {
        let named = place(coding).and_then(|place| *self.codings.get(place)?);
        named.or(self.others).unwrap_or(0)
    }

    /// The coding that the client likes most; among equals the first. `None`: the plain body.
    pub(crate) fn choose<T: Copy>(&self, codings: &[(ContentCoding, T)]) -> Option<(ContentCoding, T)> {
        let mut best = None;
        // The plain body has to be liked more than a coding to win; it always may be sent.
        let mut least = self.identity.unwrap_or(0).max(1);
        for &(coding, with) in codings {
            let quality = self.quality(coding);
            if quality >= least {
                best = Some((coding, with));
                least = quality + 1;
            }
        }
        best
    }
}

fn place(coding: ContentCoding) -> Option<usize> {
    ContentCoding::ALL.iter().position(|one| *one == coding)
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
        assert_eq!(chosen(&["*;q=0.1, gzip;q=0.2"]), Some(Gzip));
        // Of several for one coding the first counts, whatever stands between them.
        assert_eq!(chosen(&["br;q=0, x-gzip;q=0.5", "gzip;q=0, ,br"]), Some(Gzip));
        assert_eq!(chosen(&["*;q=0, *", ";q=1,zstd;q=0,br", "zstd"]), Some(Brotli));
        assert_eq!(chosen(&["identity;q=0.4, identity, gzip;q=0.5"]), Some(Gzip));
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
