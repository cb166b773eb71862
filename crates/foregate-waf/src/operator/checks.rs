//! Checks of addresses, encodings, and numbers with check digits.

use std::net::IpAddr;

use crate::model::Network;

/// Returns true if a text is an address in one of the networks.
pub(super) fn within(networks: &[Network], value: &[u8]) -> bool {
    let address = std::str::from_utf8(value.trim_ascii()).ok().and_then(|text| text.parse::<IpAddr>().ok());
    address.is_some_and(|address| networks.iter().any(|network| network.contains(address)))
}

/// Returns true if a `%` is not followed by two hexadecimal digits.
pub(super) fn broken_url_encoding(value: &[u8]) -> bool {
    memchr::memchr_iter(b'%', value).any(|at| {
        !matches!(value.get(at + 1..at + 3), Some([high, low]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
    })
}

/// The algorithm of a number's check digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Credit cards: the Luhn algorithm.
    CreditCard,
    /// `CPF`, Brazilian taxpayers.
    Cpf,
    /// Social security numbers of the United States. They have no check digits, but some numbers are never given
    /// out.
    Ssn,
    /// Austrian social security numbers.
    Svnr,
}

impl Checksum {
    /// Returns true if the digits in a text form a valid number. Other characters are ignored.
    pub(crate) fn holds(self, text: &[u8]) -> bool {
        let digits: Vec<u32> =
            text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0')).collect();
        match self {
            Self::CreditCard => luhn(&digits),
            Self::Cpf => cpf(&digits),
            Self::Ssn => ssn(&digits),
            Self::Svnr => svnr(&digits),
        }
    }
}

fn luhn(digits: &[u32]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled) => doubled / 10 + doubled % 10,
        })
        .sum();
    digits.len() > 1 && sum.is_multiple_of(10)
}

fn cpf(digits: &[u32]) -> bool {
    if digits.len() != 11 || digits.iter().all(|digit| *digit == digits[0]) {
        return false;
    }
    let check = |len: usize| {
        let sum: u32 =
            digits[..len].iter().zip((2..=len as u32 + 1).rev()).map(|(digit, weight)| digit * weight).sum();
        sum * 10 % 11 % 10
    };
    check(9) == digits[9] && check(10) == digits[10]
}

fn ssn(digits: &[u32]) -> bool {
    let [a, b, c, d, e, f, g, h, i] = *digits else { return false };
    let (area, group, serial) = (a * 100 + b * 10 + c, d * 10 + e, f * 1000 + g * 100 + h * 10 + i);
    let consecutive = digits.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let same = digits.iter().all(|digit| *digit == a);
    area != 0 && area != 666 && area < 740 && group != 0 && serial != 0 && !consecutive && !same
}

fn svnr(digits: &[u32]) -> bool {
    const WEIGHTS: [u32; 10] = [3, 7, 9, 0, 5, 8, 4, 2, 1, 6];
    let sum: u32 = digits.iter().zip(WEIGHTS).map(|(digit, weight)| digit * weight).sum();
    digits.len() == 10 && digits[0] != 0 && sum % 11 == digits[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_check_digits() {
        for (checksum, right, wrong) in [
            (Checksum::CreditCard, "4111 1111-1111 1111", "4111 1111-1111 1112"),
            (Checksum::Cpf, "529.982.247-25", "529.982.247-26"),
            (Checksum::Ssn, "078-05-1120", "666-05-1120"),
            (Checksum::Svnr, "1237 010180", "1238 010180"),
        ] {
            assert!(checksum.holds(right.as_bytes()), "{checksum:?}");
            assert!(!checksum.holds(wrong.as_bytes()), "{checksum:?}");
            assert!(!checksum.holds(b""), "{checksum:?}");
        }
    }

    #[test]
    fn encodings_and_addresses() {
        assert!(!broken_url_encoding(b"a%20b%2F"));
        for broken in ["%", "%2", "%zz", "a%2g", "%%20"] {
            assert!(broken_url_encoding(broken.as_bytes()), "{broken}");
        }
        let networks = [Network::parse("10.0.0.0/8").unwrap(), Network::parse("::1").unwrap()];
        assert!(
            within(&networks, b"10.9.8.7")
                && within(&networks, b"::1")
                && within(&networks, b"::ffff:10.0.0.1")
        );
        assert!(!within(&networks, b"11.0.0.1") && !within(&networks, b"localhost"));
    }
}
