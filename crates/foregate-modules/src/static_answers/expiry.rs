//! The times of RFC 3339, for `Expires`.

/// Parses a time such as `2027-01-31T12:00:00Z` or `...+02:00` into seconds since the start of 1970. `None` if the
/// text is no such time.
pub fn read(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let number = |from: usize, digits: usize| {
        let part = bytes.get(from..from + digits)?;
        part.iter().try_fold(0_u64, |number, byte| {
            byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0'))
        })
    };
    let sign = |at: usize, signs: &[u8]| bytes.get(at).filter(|byte| signs.contains(byte)).map(|_| ());
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    for (at, signs) in [(4, &b"-"[..]), (7, b"-"), (10, b"Tt"), (13, b":"), (16, b":")] {
        sign(at, signs)?;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let month_days = *days.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if year < 1970 || !(1..=month_days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let years: u64 =
        (1970..year).map(|year| 365 + u64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0))).sum();
    let before: u64 = days.iter().take(usize::try_from(month).ok()? - 1).sum();
    let seconds = (years + before + day - 1) * 86_400 + hour * 3600 + minute * 60 + second;
    offset(fraction(bytes.get(19..)?)?, seconds)
}

/// Skips a fraction of a second, if there is one, and returns the rest of the text. `None` if the fraction is
/// malformed.
fn fraction(rest: &[u8]) -> Option<&[u8]> {
    let Some(digits) = rest.strip_prefix(b".") else { return Some(rest) };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
    if end == 0 { None } else { digits.get(end..) }
}

fn offset(zone: &[u8], seconds: u64) -> Option<u64> {
    if matches!(zone, b"Z" | b"z") {
        return Some(seconds);
    }
    let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = zone else { return None };
    let pair = |a: u8, b: u8| {
        let digits = a.is_ascii_digit() && b.is_ascii_digit();
        digits.then(|| u64::from(a - b'0') * 10 + u64::from(b - b'0'))
    };
    let (hours, minutes) = (pair(h1, h2)?, pair(m1, m2)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = hours * 3600 + minutes * 60;
    if sign == b'+' { seconds.checked_sub(offset) } else { Some(seconds + offset) }
}
