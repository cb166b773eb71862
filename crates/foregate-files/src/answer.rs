//! The answer to a request for a file that was found.

use foregate_cache::{
    Conditions, Content, Multipart, Ranges, Representation, content_range, evaluate, format_date, ranges,
};
use foregate_coding::ContentCoding;
use foregate_wire::{HeaderList, NameId};

use crate::kind::content_type;
use crate::rules::Rules;

/// Modification times before this one (3 January 1980) count as made up: reproducible builds give all files one fixed
/// time, such as the start of 1970, the start of 1980 (zip), or a second later.
const PINNED: i64 = 315_705_600;

/// The facts about a file that its validators depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The size in bytes.
    pub size: u64,
    /// The modification time of the content: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// The change time of the inode: seconds since 1970, and nanoseconds.
    pub changed: (i64, u32),
    /// The inode number.
    pub inode: u64,
}

/// A file that was found.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The name of the file below the served folder, without the suffix of a precompressed variant.
    pub name: &'a [u8],
    /// The facts about the file that is sent: the plain file or a precompressed variant.
    pub stat: Stat,
    /// The content coding of the file that is sent; `None` for the plain file.
    pub coding: Option<ContentCoding>,
}

/// The parts of a GET or HEAD request that matter for files.
#[derive(Clone, Copy, Debug)]
pub struct FileRequest<'a> {
    /// The header fields of the request.
    pub headers: &'a HeaderList,
    /// True if the method is HEAD.
    pub head: bool,
    /// The current time, seconds since 1970.
    pub now: u64,
    /// A random number for the boundary of a `multipart/byteranges` body.
    pub boundary: u64,
}

/// The status of an answer, and the bytes of the file that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200, 206, 304, 412 or 416.
    pub status: u16,
    /// The body that a GET request gets. It is set for a HEAD request too, although no body is sent then.
    pub content: Content,
    /// The length of the body in bytes.
    pub length: u64,
}

impl Stat {
    /// The value of ETag. It is weak if the file was changed in this second or the one before: a further change might
    /// leave the modification time the same. Otherwise it is strong.
    ///
    /// Machines that have the same file with the same modification time give the same value. If a build gives all files
    /// one time, the number and the change time of the inode are added, to distinguish versions.
    fn etag(&self, coding: Option<ContentCoding>, now: u64) -> String {
        let (seconds, nanoseconds) = self.modified;
        let weak = if self.seconds() + 1 >= now && self.seconds() <= now { "W/" } else { "" };
        let coding = coding.map_or("", ContentCoding::token);
        let dash = if coding.is_empty() { "" } else { "-" };
        let mut tag = format!("{weak}\"{seconds:x}.{nanoseconds:x}-{:x}{dash}{coding}", self.size);
        if self.is_pinned() {
            let (seconds, nanoseconds) = self.changed;
            tag.push_str(&format!("-{:x}-{seconds:x}.{nanoseconds:x}", self.inode));
        }
        tag.push('"');
        tag
    }

    /// Returns true if the modification time is a fixed one, which says nothing about the content.
    pub fn is_pinned(&self) -> bool {
        self.modified.0 < PINNED
    }

    fn seconds(&self) -> u64 {
        self.modified.0.try_into().unwrap_or(0)
    }
}

impl FileRequest<'_> {
    /// Returns true if the request has neither conditions nor ranges: the answer is then the whole file.
    pub fn is_plain(&self) -> bool {
        const SELECTING: [NameId; 5] = [
            NameId::IfMatch,
            NameId::IfNoneMatch,
            NameId::IfModifiedSince,
            NameId::IfUnmodifiedSince,
            NameId::Range,
        ];
        !SELECTING.iter().any(|id| self.headers.contains(*id))
    }
}

impl Answer {
    /// The answer to a [plain](FileRequest::is_plain) request: the whole file.
    pub fn whole(size: u64) -> Self {
        Self { status: 200, content: Content::Whole, length: size }
    }
}

impl Rules {
    /// The fields of the answer to a plain request. `None` if they still depend on the current time, because the file was
    /// changed just now or has a modification time in the future.
    pub fn whole(&self, document: &Document<'_>, now: u64) -> Option<HeaderList> {
        if document.stat.seconds() + 1 >= now {
            return None;
        }
        let mut out = HeaderList::new();
        let headers = &HeaderList::new();
        self.answer(document, &FileRequest { headers, head: false, now, boundary: 0 }, &mut out);
        Some(out)
    }

    /// Appends the fields of the answer to `out`. Conditions are evaluated in the order of RFC 9110, section 13.2.2. There
    /// is no Content-Length: the caller frames the body.
    pub fn answer(&self, document: &Document<'_>, asked: &FileRequest<'_>, out: &mut HeaderList) -> Answer {
        let (stat, size) = (&document.stat, document.stat.size);
        let etag = stat.etag(document.coding, asked.now);
        let modified = Some(stat.seconds()).filter(|_| !stat.is_pinned());
        let of = Representation { etag: Some(etag.as_bytes()), last_modified: modified, date: asked.now };
        match evaluate(asked.headers, &of, asked.now) {
            Conditions::Met => {}
            Conditions::NotModified => {
                self.validators(document, &etag, asked.now, out);
                return Answer { status: 304, content: Content::None, length: 0 };
            }
            Conditions::Failed => return Answer { status: 412, content: Content::None, length: 0 },
        }
        let parts = match asked.head {
            // Only GET requests have ranges (RFC 9110, section 14.2).
            true => Ranges::Whole,
            false => ranges(asked.headers, &of, size, asked.now),
        };
        if parts == Ranges::Unsatisfiable {
            out.push_id(NameId::ContentRange, format!("bytes */{size}").as_bytes());
            return Answer { status: 416, content: Content::None, length: 0 };
        }
        let kind = content_type(document.name);
        let answer = match parts {
            Ranges::One(range) => {
                out.push_id(NameId::ContentType, kind.as_bytes());
                out.push_id(NameId::ContentRange, content_range(&range, size).as_bytes());
                let length = range.end - range.start;
                Answer { status: 206, content: Content::Part(range), length }
            }
            Ranges::Several(parts) => {
                let parts = Multipart::new(parts, size, Some(kind.as_bytes()), asked.boundary);
                out.push_id(NameId::ContentType, parts.content_type.as_bytes());
                let length = parts.length();
                Answer { status: 206, content: Content::Parts(parts), length }
            }
            Ranges::Whole | Ranges::Unsatisfiable => {
                out.push_id(NameId::ContentType, kind.as_bytes());
                Answer { status: 200, content: Content::Whole, length: size }
            }
        };
        if let Some(coding) = document.coding {
            out.push_id(NameId::ContentEncoding, coding.token().as_bytes());
        }
        out.push_id(NameId::AcceptRanges, b"bytes");
        out.push_id(NameId::XContentTypeOptions, b"nosniff");
        self.validators(document, &etag, asked.now, out);
        answer
    }

    /// The fields that a 304 response has too.
    fn validators(&self, document: &Document<'_>, etag: &str, now: u64, out: &mut HeaderList) {
        if !document.stat.is_pinned() {
            // Never later than Date (RFC 9110, section 8.8.2.1).
            let modified = document.stat.seconds().min(now);
            out.push_id(NameId::LastModified, format_date(modified).as_bytes());
        }
        out.push_id(NameId::Etag, etag.as_bytes());
        if !self.precompressed.is_empty() {
            out.push_id(NameId::Vary, b"Accept-Encoding");
        }
        if let Some(expires) = self.expires(document.name) {
            out.push_id(NameId::CacheControl, expires.cache_control().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Expires;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const MODIFIED: i64 = 784_111_777;
    const NOW: u64 = 1_795_867_200;
    const TAG: &str = "\"2ebc98a1.5-64\"";

    fn stat() -> Stat {
        Stat { size: 100, modified: (MODIFIED, 5), changed: (MODIFIED, 6), inode: 7 }
    }

    type Fields<'f> = &'f [(&'f str, &'f str)];

    fn ask(fields: Fields<'_>, stat: Stat, coding: Option<ContentCoding>) -> (Answer, HeaderList) {
        let rules = Rules {
            precompressed: coding.into_iter().collect(),
            expires: vec![Expires { seconds: 60, immutable: false, on: None }],
            ..Rules::default()
        };
        let mut headers = HeaderList::new();
        fields.iter().for_each(|(name, value)| headers.push(name.as_bytes(), value.as_bytes()));
        let mut out = HeaderList::new();
        let asked = FileRequest { headers: &headers, head: false, now: NOW, boundary: 9 };
        let answer = rules.answer(&Document { name: b"a/b.txt", stat, coding }, &asked, &mut out);
        (answer, out)
    }

    fn get(out: &HeaderList, id: NameId) -> String {
        String::from_utf8_lossy(out.get(id).unwrap_or_default()).into_owned()
    }

    #[test]
    fn a_plain_request_gets_all_of_it() {
        let (answer, out) = ask(&[], stat(), None);
        assert_eq!(answer, Answer { status: 200, content: Content::Whole, length: 100 });
        assert_eq!(get(&out, NameId::ContentType), "text/plain; charset=utf-8");
        assert_eq!(get(&out, NameId::LastModified), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(get(&out, NameId::Etag), TAG);
        assert_eq!(get(&out, NameId::AcceptRanges), "bytes");
        assert_eq!(get(&out, NameId::CacheControl), "max-age=60");
        assert!(!out.contains(NameId::Vary) && !out.contains(NameId::ContentEncoding));
    }

    #[test]
    fn conditions_are_answered() {
        let rows: [(Fields<'_>, u16); 14] = [
            (&[("If-None-Match", TAG)], 304),
            (&[("If-None-Match", "W/\"2ebc98a1.5-64\"")], 304),
            (&[("If-None-Match", "\"a\", \"2ebc98a1.5-64\"")], 304),
            (&[("If-None-Match", "*")], 304),
            (&[("If-None-Match", "\"a\"")], 200),
            // With If-None-Match, If-Modified-Since does not count.
            (&[("If-None-Match", "\"a\""), ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")], 200),
            (&[("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")], 304),
            (&[("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], 200),
            (&[("If-Modified-Since", "yesterday")], 200),
            (&[("If-Match", TAG)], 200),
            (&[("If-Match", "\"a\"")], 412),
            (&[("If-Match", "W/\"2ebc98a1.5-64\"")], 412),
            (&[("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")], 412),
            (&[("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")], 200),
        ];
        for (fields, status) in rows {
            let (answer, out) = ask(fields, stat(), None);
            assert_eq!(answer.status, status, "{fields:?}");
            assert_eq!(out.contains(NameId::ContentType), status == 200, "{fields:?}");
            assert_eq!(out.contains(NameId::Etag), status != 412, "{fields:?}");
        }
    }

    #[test]
    fn ranges_are_answered() {
        let rows: [(Fields<'_>, u16, &str, u64); 8] = [
            (&[("Range", "bytes=0-9")], 206, "bytes 0-9/100", 10),
            (&[("Range", "bytes=90-")], 206, "bytes 90-99/100", 10),
            (&[("Range", "bytes=-5")], 206, "bytes 95-99/100", 5),
            (&[("Range", "bytes=100-")], 416, "bytes */100", 0),
            (&[("Range", "bytes=0-9"), ("If-Range", TAG)], 206, "bytes 0-9/100", 10),
            (&[("Range", "bytes=0-9"), ("If-Range", "\"a\"")], 200, "", 100),
            (
                &[("Range", "bytes=0-9"), ("If-Range", "Sun, 06 Nov 1994 08:49:37 GMT")],
                206,
                "bytes 0-9/100",
                10,
            ),
            (&[("Range", "lines=0-9")], 200, "", 100),
        ];
        for (fields, status, range, length) in rows {
            let (answer, out) = ask(fields, stat(), None);
            assert_eq!((answer.status, answer.length), (status, length), "{fields:?}");
            assert_eq!(get(&out, NameId::ContentRange), range, "{fields:?}");
        }
        let (answer, out) = ask(&[("Range", "bytes=0-1,50-51")], stat(), None);
        assert_eq!(get(&out, NameId::ContentType), "multipart/byteranges; boundary=0000000000000009");
        assert!(matches!(&answer.content, Content::Parts(parts) if parts.length() == answer.length));
    }

    #[test]
    fn a_flood_of_ranges_gets_all_of_it() {
        let flood = (0..500).map(|at| format!("{}-{}", at % 50, 99)).collect::<Vec<_>>().join(",");
        assert_eq!(ask(&[("Range", &format!("bytes={flood}"))], stat(), None).0.status, 200);
        let few = "bytes=0-99,0-99,1-99,2-98,3-,-100";
        let (answer, _) = ask(&[("Range", few)], stat(), None);
        assert_eq!(answer, Answer { status: 206, content: Content::Part(0..100), length: 100 });
    }

    #[test]
    fn variants_have_validators_of_their_own() {
        let (_, out) = ask(&[], stat(), Some(ContentCoding::Brotli));
        assert_eq!(get(&out, NameId::Etag), "\"2ebc98a1.5-64-br\"");
        assert_eq!(get(&out, NameId::ContentEncoding), "br");
        assert_eq!(get(&out, NameId::Vary), "Accept-Encoding");
        assert_eq!(get(&out, NameId::ContentType), "text/plain; charset=utf-8");
        let (answer, out) = ask(&[("If-None-Match", "*")], stat(), Some(ContentCoding::Brotli));
        assert_eq!((answer.status, get(&out, NameId::Vary)), (304, "Accept-Encoding".into()));
    }

    #[test]
    fn files_that_were_just_changed_have_weak_validators() {
        let now = NOW as i64;
        for (modified, is_weak) in [(now, true), (now - 1, true), (now - 2, false), (now + 5, false)] {
            let (_, out) = ask(&[], Stat { modified: (modified, 0), ..stat() }, None);
            assert_eq!(get(&out, NameId::Etag).starts_with("W/"), is_weak, "{modified}");
        }
        let (_, out) = ask(&[], Stat { modified: (now + 500, 0), ..stat() }, None);
        assert_eq!(get(&out, NameId::LastModified), format_date(NOW));
    }

    #[test]
    fn the_fields_of_a_plain_answer_are_those_that_each_request_gets() {
        let rules = Rules::default();
        let document = |modified: i64| Document {
            name: b"a/b.txt",
            stat: Stat { modified: (modified, 0), ..stat() },
            coding: None,
        };
        let fields = |list: &HeaderList| {
            list.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect::<Vec<_>>()
        };
        let (headers, mut out) = (HeaderList::new(), HeaderList::new());
        let asked = FileRequest { headers: &headers, head: false, now: NOW, boundary: 9 };
        assert!(asked.is_plain());
        let answer = rules.answer(&document(MODIFIED), &asked, &mut out);
        assert_eq!(answer, Answer::whole(100));
        let whole = rules.whole(&document(MODIFIED), NOW).map(|list| fields(&list));
        assert_eq!(whole, Some(fields(&out)));
        for modified in [NOW as i64 - 1, NOW as i64, NOW as i64 + 100] {
            assert!(rules.whole(&document(modified), NOW).is_none(), "{modified}");
        }
        let rows = ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Range"];
        for name in rows {
            let mut headers = HeaderList::new();
            headers.push(name.as_bytes(), b"x");
            assert!(!FileRequest { headers: &headers, ..asked }.is_plain(), "{name}");
        }
    }

    #[test]
    fn one_time_for_all_files_is_no_validator() {
        for modified in [0, 1, 315_532_800, -5] {
            let one = Stat { modified: (modified, 0), ..stat() };
            let (_, out) = ask(&[], one, None);
            assert!(!out.contains(NameId::LastModified), "{modified}");
            let (_, other) = ask(&[], Stat { inode: 8, ..one }, None);
            assert_ne!(get(&out, NameId::Etag), get(&other, NameId::Etag), "{modified}");
            let since = [("If-Modified-Since", "Thu, 01 Jan 1970 00:00:01 GMT")];
            assert_eq!(ask(&since, one, None).0.status, 200, "{modified}");
        }
    }
}
