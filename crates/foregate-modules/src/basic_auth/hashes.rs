//! Hashes of passwords, in the formats of `htpasswd` files.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordVerifier};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use sha_crypt::ShaCrypt;

/// The accepted costs of bcrypt; a higher one takes seconds.
const BCRYPT_COSTS: RangeInclusive<u32> = 4..=15;
/// The most memory that Argon2 may take for one password, KiB.
const ARGON2_MEMORY_MOST: u32 = 256 * 1024;
/// The most passes of Argon2.
const ARGON2_PASSES_MOST: u32 = 16;
/// The accepted rounds of SHA-512-crypt.
const SHA512_ROUNDS: RangeInclusive<u32> = 1000..=500_000;

/// The hash of a password.
pub enum Hash {
    /// bcrypt: `$2y$`, `$2b$`, `$2a$`.
    Bcrypt(Box<str>),
    /// Argon2: `$argon2id$` and similar.
    Argon2(Box<str>),
    /// SHA-512-crypt: `$6$`.
    Sha512(Box<str>),
    /// The SHA-256 digest of a password that the configuration contains in clear text, as
    /// `plain:PASSWORD`.
    Plain([u8; 32]),
}

impl Hash {
    /// Reads a hash. The error message never contains the hash.
    pub fn read(text: &str) -> Result<Self, String> {
        if let Some(password) = text.strip_prefix("plain:") {
            // Most likely an environment variable is not set.
            if password.is_empty() {
                return Err("the password is empty".into());
            }
            return Ok(Self::Plain(sha256(password.as_bytes())));
        }
        if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: bcrypt::HashParts = text.parse().map_err(|_| "this is not a bcrypt hash")?;
            if !BCRYPT_COSTS.contains(&parts.get_cost()) {
                return Err(format!("the cost of a bcrypt hash must be {BCRYPT_COSTS:?}"));
            }
            return Ok(Self::Bcrypt(text.into()));
        }
        if text.starts_with("$argon2") {
            return read_argon2(text);
        }
        if let Some(rest) = text.strip_prefix("$6$") {
            return read_sha512(text, rest);
        }
        Err(if text.starts_with("$apr1$") || text.starts_with("$1$") {
            "hashes made with MD5 (`$apr1$`, `$1$`) are too easy to break, and not taken. No tool can convert them without \
             the password: `htpasswd -B FILE NAME` asks for it and replaces the line; until then, leave the route to \
             the old proxy with `fallback`"
        } else if text.starts_with("{SHA}") {
            "hashes made with SHA-1 are too easy to break, and not taken; `htpasswd -B FILE NAME` asks for the password and \
             replaces the line"
        } else {
            "this is not a hash that is known: bcrypt (`htpasswd -B`), Argon2, SHA-512-crypt; an open password needs \
             `plain:` before it"
        }
        .into())
    }

    /// Returns true if verification takes next to no time.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Verifies a password. The time does not depend on the password.
    pub fn fits(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => Argon2::default().verify_password(password, &**hash).is_ok(),
            Self::Sha512(hash) => ShaCrypt::SHA512.verify_password(password, &**hash).is_ok(),
            Self::Plain(digest) => verify_slices_are_equal(digest, &sha256(password)).is_ok(),
        }
    }
}

fn read_argon2(text: &str) -> Result<Hash, String> {
    let wrong = |_| String::from("this is not an Argon2 hash");
    let hash = PasswordHash::new(text).map_err(wrong)?;
    let params =
        argon2::Params::try_from(&hash).map_err(|_| "the parameters of this Argon2 hash are wrong")?;
    if hash.hash.is_none() || hash.salt.is_none() {
        return Err("this Argon2 hash has no salt or no digest".into());
    }
    if params.m_cost() > ARGON2_MEMORY_MOST || params.t_cost() > ARGON2_PASSES_MOST {
        return Err(format!(
            "an Argon2 hash may take {ARGON2_MEMORY_MOST} KiB of memory and {ARGON2_PASSES_MOST} passes at most"
        ));
    }
    Ok(Hash::Argon2(text.into()))
}

fn read_sha512(text: &str, rest: &str) -> Result<Hash, String> {
    let (rounds, rest) = match rest.strip_prefix("rounds=").and_then(|rest| rest.split_once('$')) {
        Some((rounds, rest)) => (rounds.parse().unwrap_or_default(), rest),
        None => (5000, rest),
    };
    if !SHA512_ROUNDS.contains(&rounds) {
        return Err(format!("the rounds of a SHA-512-crypt hash must be {SHA512_ROUNDS:?}"));
    }
    let crypt = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte));
    match rest.split_once('$') {
        Some((salt, digest))
            if (1..=16).contains(&salt.len()) && digest.len() == 86 && crypt(salt) && crypt(digest) =>
        {
            Ok(Hash::Sha512(text.into()))
        }
        _ => Err("this is not a SHA-512-crypt hash".into()),
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}
