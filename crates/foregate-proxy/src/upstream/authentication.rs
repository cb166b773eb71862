//! Authentication schemes that authenticate a connection instead of a request: NTLM and Negotiate (RFC
//! 4559).
//!
//! The origin treats every later request on such a connection as one of the same user, whatever its
//! fields say.

use foregate_wire::{HeaderList, NameId};

/// The prefixes of these schemes: `NTLM`, `Negotiate` and `Nego2`.
const SCHEMES: [&[u8]; 2] = [b"ntlm", b"nego"];

/// Returns true if a request has credentials of such a scheme.
pub fn has_credentials(headers: &HeaderList) -> bool {
    names_a_scheme(headers, [NameId::Authorization, NameId::ProxyAuthorization])
}

/// Returns true if a response asks for such credentials, or continues a handshake.
pub fn has_challenge(headers: &HeaderList) -> bool {
    names_a_scheme(headers, [NameId::WwwAuthenticate, NameId::ProxyAuthenticate])
}

/// Returns true if a field names one of these schemes. Any comma separates challenges, even one within
/// a quoted string. A part of a realm may thus be mistaken for a challenge, which only costs a
/// connection, but no challenge is missed.
fn names_a_scheme(headers: &HeaderList, names: [NameId; 2]) -> bool {
    names.into_iter().filter(|name| headers.contains(*name)).any(|name| {
        let mut members = headers.get_all(name).flat_map(|value| value.split(|byte| *byte == b','));
        members.any(|member| {
            let member = member.trim_ascii_start();
            let begins = |scheme: &[u8]| {
                member.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            };
            SCHEMES.into_iter().any(begins)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: NameId, values: &[&str]) -> HeaderList {
        let mut headers = HeaderList::new();
        values.iter().for_each(|value| headers.push_id(name, value.as_bytes()));
        headers
    }

    #[test]
    fn schemes_are_found_wherever_they_stand() {
        let binding: [&[&str]; 12] = [
            &["NTLM"],
            &["ntlm TlRMTVNTUAAB"],
            &["Negotiate"],
            &["nEgOtIaTe YII="],
            &["Nego2"],
            &["Basic realm=\"a\"", "NTLM"],
            &["Basic realm=\"a\", NTLM"],
            &["Basic realm=\"a\",Negotiate,NTLM"],
            &["Bearer,\tNegotiate"],
            &[", NTLM"],
            &["Basic realm=\"not closed, NTLM"],
            &["Digest realm=\"a\", qop=\"auth,auth-int\", nonce=\"b\" , Negotiate abc=="],
        ];
        let others: [&[&str]; 7] = [
            &[],
            &[""],
            &["Basic TlRMTVNTUAAB"],
            &["Bearer ntlm"],
            &["Basic realm=\"ntlm\""],
            &["Digest username=\"negotiate\""],
            &["NTL", "Neg"],
        ];
        for (values, expected) in
            binding.map(|values| (values, true)).into_iter().chain(others.map(|values| (values, false)))
        {
            for name in [NameId::WwwAuthenticate, NameId::ProxyAuthenticate] {
                assert_eq!(has_challenge(&list(name, values)), expected, "{values:?}");
                assert!(!has_credentials(&list(name, values)));
            }
            for name in [NameId::Authorization, NameId::ProxyAuthorization] {
                assert_eq!(has_credentials(&list(name, values)), expected, "{values:?}");
                assert!(!has_challenge(&list(name, values)));
            }
        }
    }
}
