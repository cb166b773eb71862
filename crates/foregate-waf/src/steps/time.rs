//! Times in the format of logs.

use crate::date::Date;

/// The names of days, from Sunday on.
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats a time, given in milliseconds since 1970, as Apache's error log does, in UTC:
/// `Sat Nov 21 17:30:00.125000 2026`.
pub(super) fn apache(unix_ms: u64) -> String {
    let Date { year, month, day, weekday, hour, minute, second } = Date::of(unix_ms / 1000);
    format!(
        "{} {} {day:02} {hour:02}:{minute:02}:{second:02}.{:06} {year}",
        DAYS[weekday as usize],
        MONTHS[month as usize - 1],
        unix_ms % 1000 * 1000
    )
}

#[cfg(test)]
mod tests {
    use super::apache;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_ms, text) in [
            (0, "Thu Jan 01 00:00:00.000000 1970"),
            (951_782_399_999, "Mon Feb 28 23:59:59.999000 2000"),
            (951_782_400_000, "Tue Feb 29 00:00:00.000000 2000"),
            (1_795_282_200_125, "Sat Nov 21 17:30:00.125000 2026"),
            (4_107_542_400_000, "Mon Mar 01 00:00:00.000000 2100"),
        ] {
            assert_eq!(apache(unix_ms), text);
        }
    }
}
