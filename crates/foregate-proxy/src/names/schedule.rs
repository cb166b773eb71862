//! Decides which addresses of a name are used, and when to look it up again. Without I/O: takes the
//! outcomes of lookups and the time, and returns addresses and waiting times.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The shortest time for which records are used; a lower TTL counts as this one.
pub const TTL_MIN: Duration = Duration::from_secs(1);
/// The longest time for which records are used; a higher TTL counts as this one.
pub const TTL_MAX: Duration = Duration::from_secs(300);
/// How long addresses are used after the last successful lookup, while further lookups fail.
pub const LAST_GOOD: Duration = Duration::from_secs(3600);
/// The number of answers in a row that have to say that a name has no address, before its known
/// addresses are dropped. A single such answer may come from a nameserver that has just started.
pub const ABSENCES: u32 = 3;
/// The wait between the lookups that confirm that a name has no address any more.
pub const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// The wait after the first failed lookup. It doubles with each further failure, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
/// See [`RETRY_MIN`].
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The most addresses kept for each family of a name; further ones are ignored.
const ADDRESSES_LIMIT: usize = 128;

/// The outcome of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOutcome {
    /// The name has addresses.
    Found(NameAddresses),
    /// The name has no addresses, according to an authoritative server.
    Absent(Absence),
    /// No server could answer, for this reason.
    Failed(String),
}

/// The addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameAddresses {
    /// The addresses of IPv4; `None` if the query for them failed.
    pub v4: Option<Vec<IpAddr>>,
    /// The addresses of IPv6; `None` if the query for them failed.
    pub v6: Option<Vec<IpAddr>>,
    /// How long the records are valid.
    pub valid_for: Duration,
    /// Set if these are all addresses of the name. Otherwise nameservers may return different ones each time.
    pub complete: bool,
    /// The reason why an earlier name of the search list, which may be the intended one, could not be looked up.
    pub doubt: Option<String>,
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// NXDOMAIN.
    #[error("there is no such name")]
    NoName,
    /// Neither A nor AAAA records.
    #[error("the name has no address")]
    NoAddress,
    /// No SRV record with a server.
    #[error("the service has no server")]
    WithoutServer,
}

/// The current knowledge about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge {
    /// The addresses of the name, never empty.
    Addresses(Vec<IpAddr>),
    /// The name has no address.
    Absent,
    /// Nothing.
    Unknown,
}

/// The results of earlier lookups of a name.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    v4: LastGood,
    v6: LastGood,
    /// Lookups that failed in a row, in whole or in part.
    failures: u32,
    /// The number of answers in a row that said that the name has no address. Failed lookups between them
    /// are ignored.
    absences: u32,
}

/// The addresses of one family, and when they were last confirmed.
#[derive(Debug, Clone, Default)]
struct LastGood(Option<(Vec<IpAddr>, Instant)>);

impl LastGood {
    fn update(&mut self, addresses: Option<Vec<IpAddr>>, now: Instant) {
        if let Some(mut addresses) = addresses {
            addresses.truncate(ADDRESSES_LIMIT);
            self.0 = Some((addresses, now));
        } else if self.0.as_ref().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= LAST_GOOD) {
            self.0 = None;
        }
    }

    fn addresses(&self) -> &[IpAddr] {
        self.0.as_ref().map_or(&[], |(addresses, _)| addresses)
    }
}

impl Schedule {
    /// A schedule that starts with the addresses of another process. `age` is the time since the addresses of each family
    /// were confirmed.
    pub fn going_on(v4: &[IpAddr], v6: &[IpAddr], age: [Duration; 2], now: Instant) -> Self {
        let family = |addresses: &[IpAddr], is_v4: bool, age: Duration| {
            let addresses = addresses.iter().copied().filter(|address| address.is_ipv4() == is_v4);
            let addresses: Vec<_> = addresses.take(ADDRESSES_LIMIT).collect();
            let at = now.checked_sub(age).filter(|_| age < LAST_GOOD && !addresses.is_empty());
            LastGood(at.map(|at| (addresses, at)))
        };
        let [v4_age, v6_age] = age;
        Self { v4: family(v4, true, v4_age), v6: family(v6, false, v6_age), ..Self::default() }
    }

    /// The current addresses of IPv4 and IPv6, each with the time since they were confirmed.
    pub fn last_good(&self, now: Instant) -> [(&[IpAddr], Duration); 2] {
        [&self.v4, &self.v6].map(|family| {
            let age = family.0.as_ref().map(|(_, at)| now.saturating_duration_since(*at));
            (family.addresses(), age.unwrap_or_default())
        })
    }

    /// Records the outcome of a lookup. Returns the knowledge from now on, and the time until the next
    /// lookup. `random` spreads the lookups of many names.
    pub fn next(&mut self, now: Instant, outcome: LookupOutcome, random: u64) -> (Knowledge, Duration) {
        let wait = match outcome {
            LookupOutcome::Found(found) if found.doubt.is_none() || !self.has_addresses(now) => {
                self.found(now, found)
            }
            LookupOutcome::Found(_) | LookupOutcome::Failed(_) => self.failed(),
            LookupOutcome::Absent(_) => self.absent(now),
        };
        let known = self.addresses(now);
        let knowledge = match (known.is_empty(), self.absences) {
            (false, _) => Knowledge::Addresses(known),
            (true, 0) => Knowledge::Unknown,
            (true, _) => Knowledge::Absent,
        };
        (knowledge, spread(wait, random))
    }

    fn found(&mut self, now: Instant, found: NameAddresses) -> Duration {
        let whole = found.v4.is_some() && found.v6.is_some() && found.doubt.is_none();
        self.v4.update(found.v4, now);
        self.v6.update(found.v6, now);
        self.absences = 0;
        let wait = found.valid_for.clamp(TTL_MIN, TTL_MAX);
        if whole {
            self.failures = 0;
            wait
        } else {
            wait.min(self.failed())
        }
    }

    fn failed(&mut self) -> Duration {
        let wait = doubled(self.failures);
        self.failures = self.failures.saturating_add(1);
        wait
    }

    fn absent(&mut self, now: Instant) -> Duration {
        self.failures = 0;
        self.absences = self.absences.saturating_add(1);
        if self.absences < ABSENCES && self.has_addresses(now) {
            return CONFIRM_AFTER;
        }
        (self.v4, self.v6) = <_>::default();
        doubled(self.absences - 1)
    }

    fn has_addresses(&mut self, now: Instant) -> bool {
        !self.addresses(now).is_empty()
    }

    /// The current addresses of both families.
    pub fn addresses(&mut self, now: Instant) -> Vec<IpAddr> {
        self.v4.update(None, now);
        self.v6.update(None, now);
        interleave(self.v6.addresses().iter().chain(self.v4.addresses()).copied())
    }
}

/// Lengthens a wait by up to an eighth, at random.
pub fn spread(wait: Duration, random: u64) -> Duration {
    wait + wait.mul_f64((random % 1024) as f64 / 1024.0 / 8.0)
}

/// The wait after a failed lookup that came after `times` failed ones.
pub fn doubled(times: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << times.min(16)).min(RETRY_MAX)
}

/// The addresses alternating between the families, starting with the family of the first one (RFC
/// 8305, section 4).
pub fn interleave(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut addresses = addresses.peekable();
    let first_is_v4 = addresses.peek().is_some_and(IpAddr::is_ipv4);
    let (first, second): (Vec<_>, Vec<_>) = addresses.partition(|address| address.is_ipv4() == first_is_v4);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut all = Vec::with_capacity(first.len() + second.len());
    while first.len() + second.len() > 0 {
        all.extend(first.next());
        all.extend(second.next());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn v4(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn v6(last: u16) -> IpAddr {
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()
    }

    fn found(v4: Option<&[IpAddr]>, v6: Option<&[IpAddr]>, seconds: u64) -> LookupOutcome {
        let own = |part: Option<&[IpAddr]>| part.map(<[_]>::to_vec);
        LookupOutcome::Found(NameAddresses {
            v4: own(v4),
            v6: own(v6),
            valid_for: SECOND * seconds as u32,
            complete: false,
            doubt: None,
        })
    }

    fn failed() -> LookupOutcome {
        LookupOutcome::Failed("SERVFAIL".to_owned())
    }

    fn absent() -> LookupOutcome {
        LookupOutcome::Absent(Absence::NoName)
    }

    fn known(addresses: &[IpAddr]) -> Knowledge {
        Knowledge::Addresses(addresses.to_vec())
    }

    #[test]
    fn records_are_believed_for_their_time_within_bounds() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let mut wait =
            |seconds, random| schedule.next(now, found(Some(&[v4(1)]), Some(&[]), seconds), random).1;
        assert_eq!(wait(60, 0), SECOND * 60);
        assert_eq!(wait(0, 0), TTL_MIN);
        assert_eq!(wait(86_400, 0), TTL_MAX);
        assert!((SECOND * 300..=SECOND * 338).contains(&wait(300, 1023)));
    }

    #[test]
    fn failures_leave_the_last_good_addresses_for_an_hour() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        assert_eq!(schedule.next(now, failed(), 0), (Knowledge::Unknown, SECOND));
        assert_eq!(schedule.next(now, failed(), 0), (Knowledge::Unknown, SECOND * 2));
        assert_eq!((0..10).map(|_| schedule.next(now, failed(), 0).1).last(), Some(RETRY_MAX));
        let good = known(&[v6(1), v4(1), v4(2)]);
        let answer = found(Some(&[v4(1), v4(2)]), Some(&[v6(1)]), 60);
        assert_eq!(schedule.next(now, answer, 0), (good.clone(), SECOND * 60));
        assert_eq!(schedule.next(now + SECOND * 3599, failed(), 0), (good, SECOND));
        assert_eq!(schedule.next(now + LAST_GOOD, failed(), 0).0, Knowledge::Unknown);
    }

    #[test]
    fn a_name_without_address_is_believed_when_it_was_said_three_times() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        assert_eq!(schedule.next(now, absent(), 0), (Knowledge::Absent, SECOND), "it never had any");
        let good = known(&[v4(1)]);
        let answer = || found(Some(&[v4(1)]), Some(&[]), 60);
        schedule.next(now, answer(), 0);
        for _ in 1..ABSENCES {
            assert_eq!(schedule.next(now, absent(), 0), (good.clone(), CONFIRM_AFTER));
        }
        assert_eq!(schedule.next(now, answer(), 0).0, good, "it is back");
        for _ in 1..ABSENCES {
            assert_eq!(schedule.next(now, absent(), 0).0, good);
            assert_eq!(schedule.next(now, failed(), 0).0, good, "a failure says nothing");
        }
        assert_eq!(schedule.next(now, absent(), 0), (Knowledge::Absent, SECOND * 4));
        assert_eq!(schedule.next(now, failed(), 0).0, Knowledge::Absent);
        assert_eq!(schedule.next(now, answer(), 0).0, good);
    }

    #[test]
    fn a_family_that_could_not_be_asked_for_keeps_its_addresses() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let partly = found(Some(&[v4(1)]), None, 60);
        assert_eq!(schedule.next(now, partly, 0), (known(&[v4(1)]), SECOND), "and is soon asked for again");
        schedule.next(now, found(Some(&[v4(1)]), Some(&[v6(1)]), 60), 0);
        let partly = |last| found(Some(&[v4(last)]), None, 60);
        assert_eq!(schedule.next(now, partly(2), 0), (known(&[v6(1), v4(2)]), SECOND));
        assert_eq!(schedule.next(now + LAST_GOOD, partly(3), 0).0, known(&[v4(3)]));
        let without = found(Some(&[v4(3)]), Some(&[]), 60);
        schedule.next(now, found(Some(&[v4(1)]), Some(&[v6(1)]), 60), 0);
        assert_eq!(schedule.next(now, without, 0), (known(&[v4(3)]), SECOND * 60));
    }

    #[test]
    fn a_doubtful_answer_does_not_take_the_place_of_a_good_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let doubtful = |last| match found(Some(&[v4(last)]), Some(&[]), 60) {
            LookupOutcome::Found(found) => {
                LookupOutcome::Found(NameAddresses { doubt: Some("SERVFAIL".to_owned()), ..found })
            }
            other => other,
        };
        assert_eq!(schedule.next(now, doubtful(1), 0), (known(&[v4(1)]), SECOND), "better than none");
        assert_eq!(schedule.next(now, found(Some(&[v4(2)]), Some(&[]), 60), 0).0, known(&[v4(2)]));
        assert_eq!(schedule.next(now, doubtful(1), 0), (known(&[v4(2)]), SECOND));
    }

    #[test]
    fn families_take_turns() {
        let mixed = |all: &[IpAddr]| interleave(all.iter().copied());
        assert_eq!(mixed(&[v4(1), v4(2), v6(1), v4(3)]), [v4(1), v6(1), v4(2), v4(3)]);
        assert_eq!(mixed(&[v6(1), v6(2), v4(1)]), [v6(1), v4(1), v6(2)]);
        assert_eq!(mixed(&[v4(1)]), [v4(1)]);
        assert!(mixed(&[]).is_empty());
        let many: Vec<_> = (0..=255).map(v4).collect();
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let Knowledge::Addresses(kept) = schedule.next(now, found(Some(&many), Some(&[]), 1), 0).0 else {
            panic!()
        };
        assert_eq!(kept.len(), ADDRESSES_LIMIT);
    }
}
