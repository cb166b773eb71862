//! Keys. Each key is bound to one algorithm: the head of a token can only choose among the keys.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use aws_lc_rs::{hmac, signature};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

/// The most keys of a set; any further keys are ignored.
const KEYS_MOST: usize = 128;
/// The most keys that are tried for a token without a key id.
const TRIED_MOST: usize = 8;
/// The accepted lengths of an RSA modulus, bytes.
const MODULUS: core::ops::RangeInclusive<usize> = 256..=1024;

/// An algorithm of RFC 7518 or RFC 8037. There is no `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the names of the RFC")]
pub enum SignatureAlgorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

/// All algorithms, by name.
pub const ALGORITHMS: [(&str, SignatureAlgorithm); 12] = [
    ("HS256", SignatureAlgorithm::Hs256),
    ("HS384", SignatureAlgorithm::Hs384),
    ("HS512", SignatureAlgorithm::Hs512),
    ("RS256", SignatureAlgorithm::Rs256),
    ("RS384", SignatureAlgorithm::Rs384),
    ("RS512", SignatureAlgorithm::Rs512),
    ("PS256", SignatureAlgorithm::Ps256),
    ("PS384", SignatureAlgorithm::Ps384),
    ("PS512", SignatureAlgorithm::Ps512),
    ("ES256", SignatureAlgorithm::Es256),
    ("ES384", SignatureAlgorithm::Es384),
    ("EdDSA", SignatureAlgorithm::EdDsa),
];

impl SignatureAlgorithm {
    fn of_name(name: &str) -> Option<Self> {
        ALGORITHMS.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| *name)
    }

    /// The MAC algorithm, and the least length of its secret, bytes (RFC 7518, section 3.2).
    fn mac(self) -> Option<(hmac::Algorithm, usize)> {
        match self {
            Self::Hs256 => Some((hmac::HMAC_SHA256, 32)),
            Self::Hs384 => Some((hmac::HMAC_SHA384, 48)),
            Self::Hs512 => Some((hmac::HMAC_SHA512, 64)),
            _ => None,
        }
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }

    fn curve(self) -> Option<&'static dyn signature::VerificationAlgorithm> {
        match self {
            Self::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
            Self::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => Some(&signature::ED25519),
            _ => None,
        }
    }
}

/// Returns true if a public key is for RSA, as its label or an object identifier of PKCS #1 shows (RFC 8017, appendix
/// C).
fn is_rsa(pem: &str, der: &[u8]) -> bool {
    const PKCS_1: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    pem.contains("BEGIN RSA ") || der.windows(PKCS_1.len()).any(|bytes| bytes == PKCS_1)
}

enum Verifier {
    Mac(Box<hmac::Key>),
    Public(signature::ParsedPublicKey),
}

/// A key.
pub struct Key {
    id: Option<String>,
    algorithm: SignatureAlgorithm,
    verifier: Verifier,
}

impl Key {
    /// A shared secret.
    pub fn secret(algorithm: SignatureAlgorithm, secret: &[u8], id: Option<String>) -> Result<Self, String> {
        let Some((mac, least)) = algorithm.mac() else {
            return Err(format!("{} takes a public key, not a secret", algorithm.name()));
        };
        if secret.len() < least {
            return Err(format!("a secret for {} needs {least} bytes at least", algorithm.name()));
        }
        Ok(Self { id, algorithm, verifier: Verifier::Mac(Box::new(hmac::Key::new(mac, secret))) })
    }

    /// A public key in PEM: `PUBLIC KEY` or `RSA PUBLIC KEY`.
    pub fn pem(algorithm: SignatureAlgorithm, pem: &[u8], id: Option<String>) -> Result<Self, String> {
        let text = core::str::from_utf8(pem).map_err(|_| "this is not PEM")?;
        if algorithm.mac().is_some() {
            return Err(format!("{} takes a secret, not a public key", algorithm.name()));
        }
        if text.contains("PRIVATE KEY-----") {
            return Err(
                "this is a private key, which nobody needs here; `openssl pkey -pubout` makes the public one"
                    .into(),
            );
        }
        if text.contains("BEGIN CERTIFICATE-----") {
            return Err("this is a certificate; `openssl x509 -pubkey -noout` takes the key out".into());
        }
        let body = text.split_once("PUBLIC KEY-----").and_then(|(_, rest)| rest.split_once("-----END "));
        let (body, _) = body.ok_or("there is no public key in this file")?;
        let digits: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let der = STANDARD.decode(digits).map_err(|_| "the public key is not Base64")?;
        let verifying: &'static dyn signature::VerificationAlgorithm = match algorithm.rsa() {
            // A key with a modulus of 2048 bits would be longer.
            Some(_) if der.len() < *MODULUS.start() && is_rsa(text, &der) => {
                return Err("an RSA key needs 2048 bits at least".into());
            }
            Some(rsa) => rsa,
            None => algorithm.curve().ok_or("this algorithm takes no public key")?,
        };
        let public = signature::ParsedPublicKey::new(verifying, der)
            .map_err(|_| format!("this is not a public key for {}", algorithm.name()))?;
        Ok(Self { id, algorithm, verifier: Verifier::Public(public) })
    }

    /// Reads a key of a set (RFC 7517); `None` for a key that is not for signatures, or is of an unknown kind.
    fn jwk(jwk: &Json, secrets: bool) -> Option<Self> {
        let text = |name: &str| jwk.get(name)?.as_str();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let signs = text("use").is_none_or(|usage| usage == "sig")
            && jwk
                .get("key_ops")
                .and_then(Json::as_array)
                .is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let stated = match jwk.get("alg") {
            None => None,
            Some(name) => Some(SignatureAlgorithm::of_name(name.as_str()?)?),
        };
        let id = text("kid").map(String::from);
        if !signs {
            return None;
        }
        let (algorithm, public) = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let algorithm = stated.unwrap_or(SignatureAlgorithm::Rs256);
                let (n, e) = (bytes("n")?, bytes("e")?);
                if !MODULUS.contains(&n.len()) {
                    return None;
                }
                let components = signature::RsaPublicKeyComponents { n, e };
                (algorithm, components.to_parsed_public_key(algorithm.rsa()?).ok()?)
            }
            ("EC", Some(curve)) => {
                let (algorithm, size) = match curve {
                    "P-256" => (SignatureAlgorithm::Es256, 32),
                    "P-384" => (SignatureAlgorithm::Es384, 48),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if (x.len(), y.len()) != (size, size) {
                    return None;
                }
                let point = [&[4][..], &x, &y].concat();
                (algorithm, signature::ParsedPublicKey::new(algorithm.curve()?, point).ok()?)
            }
            ("OKP", Some("Ed25519")) => {
                let algorithm = SignatureAlgorithm::EdDsa;
                (algorithm, signature::ParsedPublicKey::new(algorithm.curve()?, bytes("x")?).ok()?)
            }
            // A secret must state its algorithm: it could be used with any.
            ("oct", _) if secrets => return Self::secret(stated?, &bytes("k")?, id).ok(),
            _ => return None,
        };
        let fits = stated.is_none_or(|stated| stated == algorithm);
        fits.then_some(Self { id, algorithm, verifier: Verifier::Public(public) })
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.verifier {
            // The comparison takes constant time.
            Verifier::Mac(key) => hmac::verify(key, message, signature).is_ok(),
            Verifier::Public(key) => key.verify_sig(message, signature).is_ok(),
        }
    }
}

/// Keys from one place.
#[derive(Default)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Adds a key.
    pub fn push(&mut self, key: Key) {
        self.0.push(key);
    }

    /// Adds the keys of another set.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if one of the keys may have signed a token with this key id.
    pub fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref().is_none_or(|known| known == id))
    }

    /// The usable keys of a set (RFC 7517). Keys of unknown kinds are left out, as section 5 requires.
    pub fn of_set(bytes: &[u8], secrets: bool) -> Result<Self, &'static str> {
        let set: Json = serde_json::from_slice(bytes).map_err(|_| "the set of keys is not JSON")?;
        let keys = set.get("keys").and_then(Json::as_array).ok_or("the set of keys has no `keys`")?;
        Ok(Self(keys.iter().take(KEYS_MOST).filter_map(|key| Key::jwk(key, secrets)).collect()))
    }

    /// Returns true if one of the keys verifies a signature. Only keys for this algorithm are tried; and if both the
    /// token and a key have an id, the ids must be equal.
    pub fn verify(&self, algorithm: &str, id: Option<&str>, message: &[u8], signature: &[u8]) -> bool {
        let Some(algorithm) = SignatureAlgorithm::of_name(algorithm) else { return false };
        let fits = |key: &&Key| match (&key.id, id) {
            (Some(known), Some(id)) => known == id,
            _ => true,
        };
        self.0
            .iter()
            .filter(|key| key.algorithm == algorithm)
            .filter(fits)
            .take(TRIED_MOST)
            .any(|key| key.verifies(message, signature))
    }
}
