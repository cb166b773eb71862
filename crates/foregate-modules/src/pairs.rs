//! Names and values in one text: arguments of a query, cookies.
//!
//! A rule has to see the same values as the origin, so names are decoded as origins decode them, and only once.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// The kind of a text with pairs, which determines its reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairs {
    /// Arguments of a query: names and values are decoded, `+` is a blank.
    Arguments,
    /// Arguments as they were sent.
    RawArguments,
    /// Cookies: names are decoded and trimmed. Values are as they were sent.
    Cookies,
}

impl Pairs {
    /// Visits the values of all pairs of this name, in their order.
    pub(crate) fn named<'t>(
        self,
        text: &'t [u8],
        wanted: &[u8],
        visit: &mut dyn FnMut(Cow<'t, [u8]>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut rest = Some(text);
        while let Some(from) = rest {
            let at = find(from, [self.separator(); 2]);
            let (pair, behind) = from.split_at(at.unwrap_or(from.len()));
            rest = behind.get(1..);
            if let Some(value) = self.value_of(pair.trim_ascii(), wanted) {
                visit(self.value(value))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// All pairs, in their order.
    pub(crate) fn all(self, text: &[u8]) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
        let pairs = text.split(move |byte| *byte == self.separator()).map(<[u8]>::trim_ascii);
        pairs.filter(|pair| !pair.is_empty()).map(move |pair| {
            let (name, value) = split(pair);
            (self.name(name), self.value(value.unwrap_or_default()))
        })
    }

    fn separator(self) -> u8 {
        match self {
            Self::Arguments | Self::RawArguments => b'&',
            Self::Cookies => b';',
        }
    }

    /// The value of a pair as it was sent, if its name is this one.
    fn value_of<'t>(self, pair: &'t [u8], wanted: &[u8]) -> Option<&'t [u8]> {
        let first = *pair.first()?;
        // Fast path: most names begin with another byte.
        let other = first != *wanted.first().unwrap_or(&b'=');
        if other && first.is_ascii_graphic() && first != b'%' && first != b'+' {
            return None;
        }
        let (name, value) = split(pair);
        let is_wanted =
            if self == Self::RawArguments { name == wanted } else { self.decodes_to(name, wanted) };
        is_wanted.then_some(value.unwrap_or_default())
    }

    /// Returns true if some origin decodes the raw name `name` to `wanted`.
    fn decodes_to(self, name: &[u8], wanted: &[u8]) -> bool {
        if self == Self::Cookies {
            // If `wanted` itself has such ends, they are not stripped.
            let is_alone = self.name_alone(wanted).len() == wanted.len();
            let name = if is_alone { self.name_alone(name) } else { name.trim_ascii_end() };
            return self.decoded(name).eq(wanted.iter().copied());
        }
        // PHP strips blanks from the start of a name, and ignores everything from a NUL on.
        let blanks = |text: &mut dyn Iterator<Item = u8>| text.take_while(|byte| *byte == b' ').count();
        let front = blanks(&mut self.decoded(name)).saturating_sub(blanks(&mut wanted.iter().copied()));
        let ends = !wanted.contains(&0);
        let seen = self.decoded(name).skip(front).take_while(|byte| *byte != 0 || !ends);
        seen.eq(wanted.iter().copied())
    }

    /// A name without the ends that origins strip. From names of cookies, some origins strip all Unicode white space; no
    /// real name begins or ends with such bytes.
    fn name_alone(self, name: &[u8]) -> &[u8] {
        if self != Self::Cookies {
            return name;
        }
        let blank = |byte: &u8| !byte.is_ascii_graphic();
        let start = name.iter().position(|byte| !blank(byte)).unwrap_or(name.len());
        let end = name.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
        name.get(start..end).unwrap_or_default()
    }

    fn name(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::RawArguments => Cow::Borrowed(name),
            Self::Arguments | Self::Cookies => self.whole(self.name_alone(name)),
        }
    }

    fn value(self, value: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::RawArguments => Cow::Borrowed(value),
            Self::Cookies => Cow::Borrowed(value.trim_ascii_start()),
            Self::Arguments => self.whole(value),
        }
    }

    /// The decoded text. Most texts need no decoding, and are not copied.
    fn whole(self, text: &[u8]) -> Cow<'_, [u8]> {
        if memchr::memchr2(b'%', b'+', text).is_none() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(self.decoded(text).collect::<Vec<u8>>())
    }

    fn decoded(self, text: &[u8]) -> impl Iterator<Item = u8> {
        let mut rest = text;
        core::iter::from_fn(move || {
            let (&first, behind) = rest.split_first()?;
            rest = behind;
            Some(match (first, behind) {
                (b'+', _) if self == Self::Arguments => b' ',
                (b'%', [high, low, behind @ ..]) => match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => {
                        rest = behind;
                        high << 4 | low
                    }
                    _ => b'%',
                },
                _ => first,
            })
        })
    }
}

/// The values of all cookies that some origin may read under this name, with any way of decoding. Names are compared
/// without regard to case, with `_` for the characters that PHP replaces by it, and without the part from a NUL or an
/// index such as `[0]` on. A name may also begin inside a value, after white space, a comma or a quote: Python and old
/// versions of Java read a new cookie there.
///
/// Finds more than [`Pairs::named`]. Use it only to detect requests that origins could read in different ways.
pub(crate) fn like_cookie<'t>(text: &'t [u8], wanted: &[u8]) -> impl Iterator<Item = &'t [u8]> {
    let (mut rest, mut begins) = (text, true);
    core::iter::from_fn(move || {
        loop {
            let (name, behind) = rest.split_at(find(rest, *b"=;")?);
            let (sign, behind) = behind.split_first()?;
            rest = behind;
            let may_begin = begins;
            begins = *sign == b';'
                || begins && Pairs::Cookies.decoded(name).all(|byte| byte.is_ascii_whitespace());
            if *sign == b'=' && ends_like(name, wanted, may_begin) {
                let end = memchr::memchr(b';', behind).unwrap_or(behind.len());
                return Some(behind.get(..end).unwrap_or_default().trim_ascii());
            }
        }
    })
}

/// The position of the first byte that is one of these two. The next few bytes are compared one by one: the text may
/// contain many such bytes, and a fast search has a start-up cost.
fn find(text: &[u8], [one, other]: [u8; 2]) -> Option<usize> {
    const NEAR: usize = 8;
    let (near, far) = text.split_at(text.len().min(NEAR));
    let found = near.iter().position(|byte| *byte == one || *byte == other);
    found.or_else(|| memchr::memchr2(one, other, far).map(|at| NEAR + at))
}

/// Returns true if the last name of a text may be read as `wanted`. `begins` is true if a name may begin at the start
/// of the text.
///
/// Compares backwards from the end of names, so that other names cost next to nothing.
fn ends_like(text: &[u8], wanted: &[u8], begins: bool) -> bool {
    // Decoding never makes a text longer.
    if text.len() < wanted.len() {
        return false;
    }
    // In an escape such as `%5b`, only the first byte can match one of these.
    let is_end = |at: usize, byte: u8| match byte {
        0 | b'[' => true,
        b'%' => matches!(text.get(at + 1..at + 3), Some(b"00" | b"5b" | b"5B")),
        _ => false,
    };
    let ends = text.iter().enumerate().filter(|(at, byte)| is_end(*at, **byte)).map(|(at, _)| at);
    ends.chain([text.len()]).any(|end| {
        let name = text.get(..end).unwrap_or_default();
        let mut alone = name;
        while let Some((byte, before)) = last(alone)
            && !byte.is_ascii_graphic()
            && byte != 0
        {
            alone = before;
        }
        is_behind(name, wanted, begins) || alone.len() < end && is_behind(alone, wanted, begins)
    })
}

/// Returns true if a text ends with a name like `wanted`, at a position where a name may begin.
fn is_behind(text: &[u8], wanted: &[u8], begins: bool) -> bool {
    let alike = |byte: u8| match byte {
        b'.' | b' ' | b'[' | b'+' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    let mut rest = text;
    for wanted in wanted.iter().rev() {
        match last(rest) {
            Some((byte, before)) if alike(byte) == alike(*wanted) => rest = before,
            _ => return false,
        }
    }
    last(rest).map_or(begins, |(byte, _)| !byte.is_ascii_graphic() || b",\"".contains(&byte))
}

/// The last byte of a text, decoded, and the rest. Escapes can be read from the end as well, because `%` is no digit.
fn last(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [before @ .., b'%', high, low] = text
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Some((high << 4 | low, before));
    }
    text.split_last().map(|(byte, before)| (*byte, before))
}

/// Splits at the first `=`.
fn split(pair: &[u8]) -> (&[u8], Option<&[u8]>) {
    let at = memchr::memchr(b'=', pair).unwrap_or(pair.len());
    let (name, value) = pair.split_at(at);
    (name, value.get(1..))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use proptest::prelude::*;

    use super::*;

    fn named(pairs: Pairs, text: &[u8], wanted: &str) -> Vec<String> {
        let mut values = Vec::new();
        let _ = pairs.named(text, wanted.as_bytes(), &mut |value| {
            values.push(String::from_utf8_lossy(&value).into_owned());
            ControlFlow::Continue(())
        });
        values
    }

    fn all(pairs: Pairs, text: &[u8]) -> String {
        let shown = |text: Cow<'_, [u8]>| String::from_utf8_lossy(&text).into_owned();
        let parts = pairs.all(text).map(|(name, value)| [shown(name), shown(value)].join(":"));
        parts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arguments_are_decoded_once() {
        for (query, values) in [
            ("cmd=drop", &["drop"][..]),
            ("c%6dd=drop", &["drop"]),
            ("%63md=dr%6Fp", &["drop"]),
            ("cmd=a+b%20c", &["a b c"]),
            ("c%256dd=drop", &[]),
            ("cmd=%2564rop", &["%64rop"]),
            ("cmd=100%&cmd=%zz&cmd=%4", &["100%", "%zz", "%4"]),
            ("cmd", &[""]),
            ("c%6dd", &[""]),
            ("cmd=a%26cmd%3db", &["a&cmd=b"]),
            ("a=cmd&xcmd=1&cmd1=2&CMD=3", &[]),
            ("cmd%3dx=1", &[]),
            ("c+md=1&cm%=2&cmd+=3", &[]),
            ("+cmd=1&%20%20c%6dd=2", &["1", "2"]),
            ("cmd%00=1&cmd%00x=2&%00cmd=3&cm%00d=4", &["1", "2"]),
        ] {
            assert_eq!(named(Pairs::Arguments, query.as_bytes(), "cmd"), values, "{query}");
        }
        assert_eq!(named(Pairs::Arguments, b"a%3Db=1&a=b=2", "a=b"), ["1"]);
        assert_eq!(named(Pairs::Arguments, b"a+b=1&a%2Bb=2&a%20b=3", "a b"), ["1", "3"]);
        assert_eq!(named(Pairs::Arguments, b"a+b=1&a%2Bb=2", "a+b"), ["2"]);
        assert_eq!(named(Pairs::Arguments, b"a=1&+a=2&++a=3", " a"), ["2", "3"]);
        assert_eq!(named(Pairs::Arguments, b"=1&&%=2", ""), ["1"]);
        assert_eq!(all(Pairs::Arguments, b"a%62=1+2&&c&%=%41"), "ab:1 2 c: %:A");
    }

    /// A search for one name equals a filter over all, regardless of shortcuts.
    #[test]
    fn one_name_is_found_among_all() {
        const LETTERS: &[u8] = b"a%612=&;+ ";
        let count = LETTERS.len();
        for number in 0..count.pow(4) {
            let digits = (0..4).scan(number, |left, _| Some(core::mem::replace(left, *left / count) % count));
            let text: Vec<u8> = digits.map(|digit| LETTERS[digit]).collect();
            for pairs in [Pairs::Arguments, Pairs::RawArguments, Pairs::Cookies] {
                for wanted in ["a", "6", "%61", "a=", "+", "a+"] {
                    let front: &[u8] = if pairs == Pairs::Arguments { b" " } else { b"" };
                    let is_wanted = |name: &[u8]| {
                        let start = name.iter().position(|byte| !front.contains(byte)).unwrap_or(name.len());
                        &name[start..] == wanted.as_bytes()
                    };
                    let values = pairs.all(&text).filter(|(name, _)| is_wanted(name)).map(|(_, value)| value);
                    let values: Vec<_> =
                        values.map(|value| String::from_utf8_lossy(&value).into_owned()).collect();
                    assert_eq!(named(pairs, &text, wanted), values, "{pairs:?} {text:?} {wanted}");
                }
            }
        }
    }

    #[test]
    fn raw_arguments_are_as_they_were_sent() {
        assert_eq!(named(Pairs::RawArguments, b"c%6dd=1&cmd=%20+&c%6dd", "cmd"), ["%20+"]);
        assert_eq!(named(Pairs::RawArguments, b"c%6dd=1&cmd=%20+&c%6dd", "c%6dd"), ["1", ""]);
        assert_eq!(named(Pairs::RawArguments, b"a=b=1", "a=b"), [""; 0]);
        assert_eq!(all(Pairs::RawArguments, b"a%62=1+2&&c"), "a%62:1+2 c:");
    }

    #[test]
    fn cookies_are_like_another_where_some_origin_says_so() {
        for cookie in [
            "s_t=x",
            "a=1; s_t =x ",
            "S_T=x",
            "s.t=x",
            "s t=x",
            "s[t=x",
            "s+t=x",
            "s%2et=x",
            "s%5Ft=x",
            " %20s_t=x",
            "s_t%00a=x",
            "s_t[]=x",
            "s.t[a][b]=x",
            "a=b s_t=x",
            "a=b\ts_t = x",
            "a=b c=d S.T=x",
            "a=b,s_t=x",
            "a=\"b\"s_t=x",
            "=s_t=x",
        ] {
            let found: Vec<_> = like_cookie(cookie.as_bytes(), b"s_t").collect();
            assert_eq!(found, [b"x"], "{cookie}");
        }
        for cookie in ["as_t=x", "s_ta=x", "a-s_t=x", "s-t=x", "a=s_t=x", "a=b&s_t=x", "a=s_t", "s_t", "st=x"]
        {
            assert_eq!(like_cookie(cookie.as_bytes(), b"s_t").count(), 0, "{cookie}");
        }
        assert_eq!(like_cookie(b"s_=x; s =y", b"s_").collect::<Vec<_>>(), [b"x", b"y"]);
    }

    /// A simple model of [`like_cookie`].
    fn like_cookie_model(text: &[u8], wanted: &[u8]) -> Vec<Vec<u8>> {
        let alike = |byte: &u8| if b". [+".contains(byte) { b'_' } else { byte.to_ascii_lowercase() };
        let may_be_before = |byte: &u8| !byte.is_ascii_graphic() || b",\"".contains(byte);
        let mut found = Vec::new();
        for pair in text.split(|byte| *byte == b';') {
            let parts: Vec<&[u8]> = pair.split(|byte| *byte == b'=').collect();
            let mut begins = true;
            for (number, part) in parts.iter().enumerate().take(parts.len() - 1) {
                let name: Vec<u8> = Pairs::Cookies.decoded(part).collect();
                let ends = (0..=name.len()).filter(|end| matches!(name.get(*end), None | Some(0 | b'[')));
                let is_like = ends.into_iter().any(|end| {
                    let kept = name[..end].iter().rposition(|byte| byte.is_ascii_graphic() || *byte == 0);
                    [end, kept.map_or(0, |last| last + 1)].into_iter().any(|end| {
                        let Some(start) = end.checked_sub(wanted.len()) else { return false };
                        let at_start = name[..start].last().map_or(begins, may_be_before);
                        at_start && name[start..end].iter().map(alike).eq(wanted.iter().map(alike))
                    })
                });
                if is_like {
                    found.push(parts[number + 1..].join(&b'=').trim_ascii().to_vec());
                }
                begins &= name.trim_ascii().is_empty();
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn cookies_are_like_another_where_the_model_says_so(
            pieces in proptest::collection::vec(prop::sample::select(&[
                "a", "A", "%61", "_", ".", "[", "%5b", "%5B", "+", " ", "%20", "%09", "\0", "%00", "%01", "%", "%6", "b", "\"", "%2C",
                "-", "=", "=", "=", "%3d", ";", ";", "\u{a0}",
            ][..]), 0..14),
            wanted in prop::sample::select(&["a", "a_", "_a", "__", "%", "a.b"][..]),
        ) {
            let text = pieces.concat();
            let found: Vec<_> = like_cookie(text.as_bytes(), wanted.as_bytes()).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(found, like_cookie_model(text.as_bytes(), wanted.as_bytes()), "{:?} {}", text, wanted);
        }
    }

    #[test]
    fn names_of_cookies_are_what_origins_make_of_them() {
        for cookie in [
            "sid=x",
            "a=1; sid=x",
            "sid =x",
            "sid\t= x",
            "a;\tsid=x ",
            "s%69d=x",
            " sid\u{a0}=x",
            "\x0bsid\x1f=x",
        ] {
            assert_eq!(named(Pairs::Cookies, cookie.as_bytes(), "sid"), ["x"], "{cookie}");
        }
        assert_eq!(named(Pairs::Cookies, b"\xa0sid\x85=x", "sid"), ["x"]);
        assert_eq!(named(Pairs::Cookies, "\u{e4}=1; %C3%A4=2".as_bytes(), "\u{e4}"), ["1", "2"]);
        for cookie in ["SID=x", "s id=x", "sid.=x", "s+d=x", "=sid", "s%2569d=x"] {
            assert_eq!(named(Pairs::Cookies, cookie.as_bytes(), "sid"), [""; 0], "{cookie}");
        }
        assert_eq!(named(Pairs::Cookies, b"a=%41+\"; a; b=%41", "a"), ["%41+\"", ""]);
        assert_eq!(all(Pairs::Cookies, b"a =%41; %62=2 ;c"), "a:%41 b:2 c:");
    }
}
