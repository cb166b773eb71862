//! Dates of HTTP (RFC 9110, section 5.6.7), and the Gregorian calendar for other formats of dates.
//!
//! This parser is stricter than others, since a misread date could make a stale response count as fresh: it
//! accepts three forms, exact spacing, and no time zone but `GMT`. It is more lenient in one regard: the names
//! of days and months may be in upper or lower case, and the day of the week may be wrong.

/// Reads a date in one of the three forms, as seconds since 1970. A date before 1970 counts as 0.
///
/// If the year has two digits, `now` decides about its century: a year that would be more than 50 years in the
/// future is taken as one in the past.
pub fn parse_date(text: &[u8], now: u64) -> Option<u64> {
    match text {
        [a, b, c, b',', b' ', rest @ ..] if is_day(&[*a, *b, *c]) => fixed(rest),
        [a, b, c, b' ', rest @ ..] if is_day(&[*a, *b, *c]) => asctime(rest),
        _ => rfc850(text, now),
    }
}

/// Writes a date in the preferred form, for example `Sun, 06 Nov 1994 08:49:37 GMT`. The year has four digits at most.
pub fn format_date(seconds: u64) -> String {
    let days = (seconds / DAY).min(LAST_DAY);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let CalendarDay { year, month, day } = CalendarDay::of(days);
    let name = MONTHS.get(month as usize - 1);
    let name = name.map_or("", |name| std::str::from_utf8(&name[..]).unwrap_or_default());
    let mut name = name.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let weekday = DAYS.get(((days + 3) % 7) as usize).and_then(|day| day.get(..3)).unwrap_or_default();
    format!("{weekday}, {day:02} {name} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalendarDay {
    /// The year, such as 2026.
    pub year: u64,
    /// The month, from 1 to 12.
    pub month: u64,
    /// The day of the month, from 1.
    pub day: u64,
}

impl CalendarDay {
    /// The day that is `days` days after 1970-01-01.
    pub fn of(days: u64) -> Self {
        // Counts years from March, so that the leap day is the last day of a year, in cycles of 400 years.
        let from_march = days.saturating_add(DAYS_BEFORE_1970);
        let (cycle, of_cycle) = (from_march / CYCLE, from_march % CYCLE);
        let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / (CYCLE - 1)) / 365;
        let of_year = of_cycle - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Self { year: cycle * 400 + year + u64::from(month <= 2), month, day }
    }

    /// The number of days from 1970-01-01 to this day. `None` for an earlier day, and if the month or the day cannot
    /// be. The length of the month is not checked: a day behind its end counts as a day of the next month.
    pub fn days(self) -> Option<u64> {
        let Self { year, month, day } = self;
        if !(1970..=LAST_YEAR).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        // Years that begin in March have the leap day at their end.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
        days.checked_sub(DAYS_BEFORE_1970)
    }
}

/// The last year that is written with four digits.
const LAST_YEAR: u64 = 9999;

/// The number of days in 400 years.
const CYCLE: u64 = 146_097;
/// Days from the start of 1970 to the 31st of December 9999.
const LAST_DAY: u64 = 2_932_896;

/// `18 Aug 2050 02:01:18 GMT`
fn fixed(text: &[u8]) -> Option<u64> {
    let [d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', time @ ..] = text else { return None };
    let (year, day) = (number(&[*y1, *y2, *y3, *y4])?, number(&[*d1, *d2])?);
    compose(year, month(&[*m1, *m2, *m3])?, day, gmt(time)?)
}

/// `Thursday, 18-Aug-50 02:01:18 GMT`
fn rfc850(text: &[u8], now: u64) -> Option<u64> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let (day, rest) = text.split_at_checked(comma)?;
    if !DAYS.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(day)) {
        return None;
    }
    let [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', time @ ..] = rest else { return None };
    let this_year = year_of(now);
    let mut year = this_year - this_year % 100 + number(&[*y1, *y2])?;
    if year > this_year + 50 {
        year -= 100;
    } else if year + 50 <= this_year {
        year += 100;
    }
    compose(year, month(&[*m1, *m2, *m3])?, number(&[*d1, *d2])?, gmt(time)?)
}

/// `Aug  8 02:01:18 2050`
fn asctime(text: &[u8]) -> Option<u64> {
    let [m1, m2, m3, b' ', d1, d2, b' ', time @ ..] = text else { return None };
    let (time, year) = time.split_at_checked(8)?;
    let [b' ', year @ ..] = year else { return None };
    if year.len() != 4 {
        return None;
    }
    let tens = if *d1 == b' ' { b'0' } else { *d1 };
    compose(number(year)?, month(&[*m1, *m2, *m3])?, number(&[tens, *d2])?, time_of_day(time)?)
}

/// `02:01:18 GMT`, in seconds.
fn gmt(text: &[u8]) -> Option<u64> {
    let (time, zone) = text.split_at_checked(8)?;
    zone.eq_ignore_ascii_case(b" GMT").then(|| time_of_day(time))?
}

/// `02:01:18`, in seconds. A leap second counts as the second before it.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    let known = hour < 24 && minute < 60 && second <= 60;
    known.then(|| hour * 3600 + minute * 60 + second.min(59))
}

fn compose(year: u64, month: u64, day: u64, time: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    if year < 1970 {
        return Some(0);
    }
    Some(CalendarDay { year, month, day }.days()? * DAY + time)
}

/// Days from the 1st of March of the year 0 to the 1st of January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
const DAY: u64 = 86_400;

/// The year of a time. Around New Year, it may be off by one, which makes no difference when the century of a
/// date is chosen.
fn year_of(now: u64) -> u64 {
    1970 + (now / DAY).saturating_mul(400) / CYCLE
}

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

fn is_day(name: &[u8; 3]) -> bool {
    DAYS.iter()
        .any(|day| day.as_bytes().first_chunk().is_some_and(|day: &[u8; 3]| day.eq_ignore_ascii_case(name)))
}

fn month(name: &[u8; 3]) -> Option<u64> {
    let at = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(name))?;
    Some(at as u64 + 1)
}

fn number(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0, |number: u64, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 28 November 2026, 12:00.
    const NOW: u64 = 1_795_867_200;

    #[test]
    fn three_forms_are_read() {
        let rows = [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Sun Nov 16 08:49:37 1994", 784_975_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Mon, 01 Jan 1900 00:00:00 GMT", 0),
            ("Sat, 28 Nov 2026 12:00:00 GMT", NOW),
            ("Tue, 29 Feb 2028 23:59:60 GMT", 1_835_481_599),
            ("Tue, 19 Jan 2038 14:14:08 GMT", 2_147_523_248),
            ("Sun, 21 Nov 2286 04:46:39 GMT", 10_000_039_599),
            // The day of the week is not compared, names come in any case.
            ("THU Aug  8 02:01:18 2050", 2_543_536_878),
            ("thu, 18 AUG 2050 02:01:18 gMT", 2_544_400_878),
            ("Thursday, 18-Aug-50 02:01:18 GMT", 2_544_400_878),
        ];
        for (text, seconds) in rows {
            assert_eq!(parse_date(text.as_bytes(), NOW), Some(seconds), "{text}");
        }
    }

    #[test]
    fn written_dates_are_read_back() {
        assert_eq!(format_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(format_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(format_date(u64::MAX).get(..16), Some("Fri, 31 Dec 9999"));
        for day in 0..200_000 {
            let seconds = day * DAY + day % DAY;
            assert_eq!(parse_date(format_date(seconds).as_bytes(), NOW), Some(seconds), "{seconds}");
        }
    }

    #[test]
    fn days_of_the_calendar_are_counted_back() {
        let day = |year, month, day| CalendarDay { year, month, day };
        assert_eq!(CalendarDay::of(0), day(1970, 1, 1));
        assert_eq!(CalendarDay::of(11_016), day(2000, 2, 29));
        for days in (0..=LAST_DAY).step_by(13) {
            assert_eq!(CalendarDay::of(days).days(), Some(days));
        }
        assert_eq!(day(2026, 2, 29).days(), day(2026, 3, 1).days());
        for wrong in
            [day(1969, 12, 31), day(10_000, 1, 1), day(2026, 0, 1), day(2026, 13, 1), day(2026, 1, 0)]
        {
            assert_eq!(wrong.days(), None, "{wrong:?}");
        }
        assert!(CalendarDay::of(u64::MAX).month <= 12);
    }

    #[test]
    fn centuries_follow_the_rule_of_fifty_years() {
        let year = |digits: &str| {
            let text = format!("Monday, 01-Jul-{digits} 00:00:00 GMT");
            parse_date(text.as_bytes(), NOW).map(year_of)
        };
        assert_eq!(year("76"), Some(2076));
        assert_eq!(year("77"), Some(1977));
        assert_eq!(year("00"), Some(2000));
        // Near the end of a century the next one is closer.
        let late = parse_date(b"Thu, 01 Jul 2099 00:00:00 GMT", NOW).unwrap();
        assert_eq!(parse_date(b"Monday, 01-Jul-05 00:00:00 GMT", late).map(year_of), Some(2105));
    }

    #[test]
    fn anything_else_is_no_date() {
        for text in [
            "",
            "0",
            "-1",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 02:01:18 +0000",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 18 Aug 2050 02:60:18 GMT",
            "Thu, 18 Aug 2050 02:01:61 GMT",
            "Thu, 31 Jun 2050 02:01:18 GMT",
            "Tue, 29 Feb 2027 02:01:18 GMT",
            "Thu, 00 Aug 2050 02:01:18 GMT",
            "Thu, 18 Foo 2050 02:01:18 GMT",
            "Xyz, 18 Aug 2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02:01:18 GMT, Thu, 18 Aug 2050 02:01:18 GMT",
            "Thursday, 18-Aug-2050 02:01:18 GMT",
            "Thu Aug 8 02:01:18 2050",
            "Thu Aug  8 02:01:18 2050 GMT",
        ] {
            assert_eq!(parse_date(text.as_bytes(), NOW), None, "{text}");
        }
    }
}
