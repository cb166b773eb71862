//! The calendar, for rules and for logs.

/// A date and time of day in UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Date {
    pub(crate) year: i64,
    /// The month, from 1.
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// The day of the week, from 0 for Sunday.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

impl Date {
    /// Converts seconds since 1970 to a date of the Gregorian calendar. It counts in eras of 400 years that begin
    /// in March.
    pub(crate) fn of(seconds: u64) -> Self {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            weekday: (days + 4) % 7,
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, (1970, 1, 1, 4, 0, 0, 0)),
            (951_782_399, (2000, 2, 28, 1, 23, 59, 59)),
            (951_782_400, (2000, 2, 29, 2, 0, 0, 0)),
            (1_795_277_105, (2026, 11, 21, 6, 16, 5, 5)),
        ] {
            let date = Date::of(seconds);
            let found = (date.year, date.month, date.day, date.weekday, date.hour, date.minute, date.second);
            assert_eq!(found, expected, "{seconds}");
        }
    }
}
