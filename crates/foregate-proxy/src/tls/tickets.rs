//! Session tickets (RFC 5077, RFC 8446 section 4.6.1) with keys that several processes share, so
//! that a session can be resumed after an upgrade or a crash.
//!
//! All keys are derived from one secret, which is replaced by a one-way function of itself every
//! six hours: a stolen secret cannot decrypt yesterday's tickets. Each policy has keys of its own,
//! so that a ticket is only valid for the policy of its first handshake.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use parking_lot::Mutex;
use rustls::server::ProducesTickets;

use super::policy::PolicyId;
use crate::time::clock::Clock;

/// The time in seconds for which a secret encrypts tickets. After that, it decrypts them for the same
/// time again.
const SPAN: u64 = 6 * 3600;
/// Bytes of a secret.
const SECRET: usize = 32;
/// Bytes of the number of a span.
const NUMBER: usize = 8;
/// The greatest age, in spans, at which a secret can still be advanced to the present span.
const SPANS_MOST: u64 = 10_000;

/// The secrets of two spans.
#[derive(Clone)]
struct Secrets {
    span: u64,
    present: [u8; SECRET],
    /// The secret of the previous span.
    former: [u8; SECRET],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("span", &self.span).finish_non_exhaustive()
    }
}

impl Secrets {
    fn random(span: u64) -> Option<Self> {
        let mut secrets = Self { span, present: [0; SECRET], former: [0; SECRET] };
        aws_lc_rs::rand::fill(&mut secrets.present).ok()?;
        aws_lc_rs::rand::fill(&mut secrets.former).ok()?;
        Some(secrets)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (span, rest) = bytes.split_first_chunk::<NUMBER>()?;
        let (present, rest) = rest.split_first_chunk::<SECRET>()?;
        let former = rest.try_into().ok()?;
        Some(Self { span: u64::from_le_bytes(*span), present: *present, former })
    }

    fn bytes(&self) -> Vec<u8> {
        [&self.span.to_le_bytes()[..], &self.present, &self.former].concat()
    }

    /// Advances to a span.
    fn follow(&mut self, span: u64) {
        while self.span < span {
            self.former = self.present;
            self.present = derived(&self.present, b"next");
            self.span += 1;
        }
    }
}

fn derived(secret: &[u8; SECRET], label: &[u8]) -> [u8; SECRET] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), label);
    tag.as_ref().try_into().expect("HMAC with SHA-256 gives 32 bytes")
}

fn span_now(clock: Clock) -> u64 {
    clock.unix() / SPAN
}

/// The tickets of all policies. They outlive a reload as long as the policy does, and are never
/// shared by two policies.
#[derive(Debug, Default)]
pub(super) struct TicketStore {
    clock: Clock,
    secrets: Arc<Mutex<Option<Secrets>>>,
    policies: Mutex<HashMap<PolicyId, Weak<PolicyTickets>>>,
}

impl TicketStore {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The tickets of a policy. `None` if the system provides no random bytes; sessions are then not
    /// resumed.
    pub(super) fn of(&self, policy: &PolicyId) -> Option<Arc<dyn ProducesTickets>> {
        let mut policies = self.policies.lock();
        if let Some(known) = policies.get(policy).and_then(Weak::upgrade) {
            return Some(known);
        }
        policies.retain(|_, tickets| tickets.strong_count() > 0);
        if present(&self.secrets, span_now(self.clock)).is_none() {
            tracing::error!("no ticket keys; sessions are not resumed");
            return None;
        }
        let made = Arc::new(PolicyTickets {
            clock: self.clock,
            secrets: Arc::clone(&self.secrets),
            label: format!("{policy:?}").into_bytes().into(),
            keys: Mutex::default(),
        });
        policies.insert(policy.clone(), Arc::downgrade(&made));
        Some(made)
    }

    /// The secrets, for another process.
    pub(super) fn keys(&self) -> Option<Vec<u8>> {
        present(&self.secrets, span_now(self.clock)).map(|secrets| secrets.bytes())
    }

    /// Continues with the secrets of another process.
    pub(super) fn take_keys(&self, bytes: &[u8]) {
        if let Some(secrets) = Secrets::read(bytes) {
            *self.secrets.lock() = Some(secrets);
        }
    }
}

/// The secrets of this span. They are generated if there are none.
fn present(secrets: &Mutex<Option<Secrets>>, span: u64) -> Option<Secrets> {
    let mut secrets = secrets.lock();
    let known = secrets.as_mut().filter(|known| span.saturating_sub(known.span) < SPANS_MOST);
    match known {
        Some(known) => known.follow(span),
        None => *secrets = Secrets::random(span),
    }
    secrets.clone()
}

/// The keys of a policy in two spans.
#[derive(Debug)]
struct Keys {
    span: u64,
    present: LessSafeKey,
    former: LessSafeKey,
}

/// The tickets of one policy.
#[derive(Debug)]
struct PolicyTickets {
    clock: Clock,
    secrets: Arc<Mutex<Option<Secrets>>>,
    label: Box<[u8]>,
    keys: Mutex<Option<Arc<Keys>>>,
}

impl PolicyTickets {
    fn keys(&self) -> Option<Arc<Keys>> {
        let span = span_now(self.clock);
        let mut keys = self.keys.lock();
        if let Some(known) = keys.as_ref().filter(|known| known.span >= span) {
            return Some(Arc::clone(known));
        }
        let secrets = present(&self.secrets, span)?;
        let key = |secret: &[u8; SECRET]| {
            UnboundKey::new(&AES_256_GCM, &derived(secret, &self.label)).ok().map(LessSafeKey::new)
        };
        let made =
            Keys { span: secrets.span, present: key(&secrets.present)?, former: key(&secrets.former)? };
        let made = Arc::new(made);
        *keys = Some(Arc::clone(&made));
        Some(made)
    }
}

impl ProducesTickets for PolicyTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(2 * SPAN).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let number = keys.span.to_le_bytes();
        let sealed_with = Nonce::assume_unique_for_key(nonce);
        keys.present.seal_in_place_append_tag(sealed_with, Aad::from(number), &mut sealed).ok()?;
        Some([&number[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (number, rest) = ticket.split_first_chunk::<NUMBER>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys()?;
        let key = match u64::from_le_bytes(*number) {
            span if span == keys.span => &keys.present,
            span if span.checked_add(1) == Some(keys.span) => &keys.former,
            _ => return None,
        };
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key.open_in_place(nonce, Aad::from(*number), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(secrets: &Arc<Mutex<Option<Secrets>>>, label: &[u8]) -> PolicyTickets {
        let clock = Clock::default();
        PolicyTickets { clock, secrets: Arc::clone(secrets), label: label.into(), keys: Mutex::default() }
    }

    #[test]
    fn another_process_with_the_same_secrets_reads_the_tickets() {
        let (one, other) = (TicketStore::default(), TicketStore::default());
        let keys = one.keys().unwrap();
        other.take_keys(&keys);
        other.take_keys(b"no keys");
        let ticket = tickets(&one.secrets, b"a").encrypt(b"session").unwrap();
        assert_eq!(tickets(&other.secrets, b"a").decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert!(tickets(&other.secrets, b"b").decrypt(&ticket).is_none(), "another policy");
        assert!(tickets(&TicketStore::default().secrets, b"a").decrypt(&ticket).is_none(), "other secrets");
        for at in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken[at] ^= 1;
            assert!(tickets(&one.secrets, b"a").decrypt(&broken).is_none(), "{at}");
            assert!(tickets(&one.secrets, b"a").decrypt(&ticket[..at]).is_none(), "{at}");
        }
    }

    #[test]
    fn secrets_go_on_and_forget() {
        let first = Secrets::random(7).unwrap();
        let mut secrets = first.clone();
        secrets.follow(8);
        assert_eq!((secrets.span, secrets.former), (8, first.present));
        let mut both = [Secrets::read(&secrets.bytes()).unwrap(), first.clone()];
        both.iter_mut().for_each(|secrets| secrets.follow(12));
        assert_eq!(both[0].bytes(), both[1].bytes(), "processes agree without a word");
        assert!(Secrets::read(&secrets.bytes()[1..]).is_none());
        assert!(!format!("{secrets:?}").contains("present"));
    }

    #[test]
    fn old_secrets_are_replaced() {
        let secrets = Mutex::new(Secrets::random(1));
        let before = secrets.lock().clone().unwrap();
        let after = present(&secrets, 1 + SPANS_MOST).unwrap();
        assert!(after.span == 1 + SPANS_MOST && after.former != before.present);
    }
}
