//! Times as logs have them.

/// The names of days, from the first of 1970 on.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time as Apache's error log has it, in UTC: `Sat Nov 21 17:30:00.125000 2026`. In milliseconds since 1970.
pub(super) fn apache(unix_ms: u64) -> String {
    let (seconds, milliseconds) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{} {} {day:02} {:02}:{:02}:{:02}.{:06} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60,
        milliseconds * 1000
    )
}

/// Year, month from 0, and day from 1, of a number of days since 1970. Years are counted from March on, so that a leap day
/// is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    // From the first of March of the year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    (year, (month + 2) % 12, day)
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
