//! OCSP responses for our own certificates (RFC 6960), which handshakes send along ("stapled", RFC 6066).
//!
//! A response is a file: `CERTIFICATE.ocsp` next to the certificate, or one of the storage. This module makes the request to the
//! responder that the certificate names, and judges a response before it is stored or sent. It does no I/O.

use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use super::crypto::provider;
use super::der::{self, DerElement, DerReader};
use super::pem;

/// The most bytes of a response. Usual ones have less than 2,000.
pub const RESPONSE_MOST: usize = 64 * 1024;
/// A response without an end is used for this time, in seconds.
const WITHOUT_END: i64 = 24 * 3600;
/// The clock of a responder may be ahead of ours by this many seconds.
const AHEAD: i64 = 300;

/// The object identifier of SHA-1, 1.3.14.3.2.26. Responders expect certificates to be named by it (RFC 5019).
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
/// The object identifier of a basic response, 1.3.6.1.5.5.7.48.1.1.
const BASIC_RESPONSE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
/// The access method of a responder's address, 1.3.6.1.5.5.7.48.1.
const OCSP_ACCESS: &str = "1.3.6.1.5.5.7.48.1";

/// The extension of features that a TLS server must have, RFC 7633.
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
/// The feature of sending OCSP responses along: the number of the extension `status_request`.
const STATUS_REQUEST: &[u8] = &[5];

/// A certificate whose issuer runs an OCSP responder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StapleSubject {
    /// The URL of the responder.
    pub responder: String,
    /// The hashes of the issuer's name and key, and the serial number.
    id: CertificateId,
    /// The certificate of the issuer.
    issuer: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct CertificateId {
    issuer_name: Vec<u8>,
    issuer_key: Vec<u8>,
    serial: Vec<u8>,
}

/// A response that the issuer has signed for the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staple {
    /// True if the authority has revoked the certificate.
    pub is_revoked: bool,
    /// The time from which the response holds, seconds since 1970.
    pub from: i64,
    /// The end of the response, seconds since 1970.
    pub until: i64,
}

/// The reason why no OCSP response can be fetched for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StapleObstacle {
    /// The certificate is malformed, or there is none.
    #[error("the certificate cannot be read")]
    Malformed,
    /// It names no responder, or only one with another scheme.
    #[error("the certificate names no responder with http://")]
    NoResponder,
    /// The chain has no readable certificate of the issuer behind the leaf.
    #[error("the file lacks the certificate of its issuer")]
    NoIssuer,
}

impl StapleObstacle {
    /// The remedy. `is_demanded` says whether the certificate demands a response.
    pub fn fix(self, is_demanded: bool) -> &'static str {
        match self {
            Self::Malformed => "put a certificate in PEM at the start of the file",
            Self::NoResponder if is_demanded => {
                "get a certificate without must-staple, or one that names a responder"
            }
            Self::NoResponder => "leave out `ocsp`",
            Self::NoIssuer => "add the issuer's certificate behind the first one in the file",
        }
    }
}

/// An error status of a responder (RFC 6960, section 4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponderError {
    /// It does not understand the request.
    #[error("malformed request")]
    MalformedRequest,
    /// It has a fault of its own.
    #[error("internal error")]
    InternalError,
    /// It is overloaded, or not ready.
    #[error("try later")]
    TryLater,
    /// It answers only signed requests.
    #[error("signature required")]
    SignatureRequired,
    /// It does not answer for this certificate.
    #[error("unauthorized")]
    Unauthorized,
}

/// A response that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StapleError {
    /// It is not a response of OCSP.
    #[error("the answer is no OCSP response")]
    Malformed,
    /// The responder refuses to answer.
    #[error("the responder refuses to answer: {0}")]
    Refused(ResponderError),
    /// It is about other certificates.
    #[error("the response is about another certificate")]
    Other,
    /// The responder does not know the certificate.
    #[error("the responder does not know the certificate")]
    Unknown,
    /// Its end has passed.
    #[error("the response has expired")]
    Expired,
    /// It holds later only.
    #[error("the response is not valid yet")]
    Early,
    /// It is signed by somebody else.
    #[error("the response is not signed by the issuer of the certificate")]
    Signature,
}

/// The file in a folder into which responses for a certificate are fetched. Its name begins with the name of the
/// certificate's file, for people, and ends with a hash of its path, since two folders may have files of the same name.
pub fn staple_in(folder: &Path, certificate: &Path) -> PathBuf {
    const NAME_MOST: usize = 100;
    let path = certificate.as_os_str().as_encoded_bytes();
    let name = certificate.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(NAME_MOST).collect();
    let hash: String =
        digest(&SHA256, path).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    folder.join(format!("{name}.{hash}.ocsp"))
}

impl StapleSubject {
    /// Reads a chain in PEM, leaf first.
    ///
    /// # Errors
    ///
    /// The leaf names no responder, or the chain has no issuer.
    pub fn of_pem(text: &[u8]) -> Result<Self, StapleObstacle> {
        let blocks = pem::blocks(text).map_err(|_| StapleObstacle::Malformed)?;
        let mut certificates = blocks
            .into_iter()
            .filter(|block| block.label.ends_with("CERTIFICATE"))
            .map(|block| block.content);
        let leaf = certificates.next().ok_or(StapleObstacle::Malformed)?;
        Self::of_pair(&leaf, certificates.next().as_deref())
    }

    /// As [`Self::of_pem`], of a chain that has been read.
    pub(super) fn of_chain(chain: &[CertificateDer<'_>]) -> Result<Self, StapleObstacle> {
        let leaf = chain.first().ok_or(StapleObstacle::Malformed)?;
        Self::of_pair(leaf, chain.get(1).map(AsRef::as_ref))
    }

    fn of_pair(leaf: &[u8], issuer: Option<&[u8]>) -> Result<Self, StapleObstacle> {
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| StapleObstacle::Malformed)?;
        let responder = responder(&parsed).ok_or(StapleObstacle::NoResponder)?;
        let issuer = issuer.ok_or(StapleObstacle::NoIssuer)?;
        let (_, authority) = X509Certificate::from_der(issuer).map_err(|_| StapleObstacle::NoIssuer)?;
        let id = CertificateId {
            issuer_name: sha1(parsed.issuer().as_raw()),
            issuer_key: sha1(&authority.public_key().subject_public_key.data),
            serial: parsed.raw_serial().to_vec(),
        };
        Ok(Self { responder, id, issuer: issuer.to_vec() })
    }

    /// The body of the request to the responder. It has no nonce, so that the responder can send a prepared response.
    pub fn request(&self) -> Vec<u8> {
        let request = der::sequence(&[&self.id.encoded()]);
        der::sequence(&[&der::sequence(&[&der::sequence(&[&request])])])
    }

    /// Judges a response.
    ///
    /// # Errors
    ///
    /// The response is not good enough to be sent to clients.
    pub fn judge(&self, response: &[u8], now: i64) -> Result<Staple, StapleError> {
        let basic = basic_response(response)?;
        let mut all = basic_elements(basic).ok_or(StapleError::Malformed)?;
        let single = self.single(all.data)?;
        let staple = single.staple().ok_or(StapleError::Malformed)?;
        let status = single.status.tag;
        if status == der::context(2) {
            return Err(StapleError::Unknown);
        }
        if now < staple.from - AHEAD {
            return Err(StapleError::Early);
        }
        if now >= staple.until {
            return Err(StapleError::Expired);
        }
        if !self.is_signed(&mut all, now) {
            return Err(StapleError::Signature);
        }
        Ok(Staple { is_revoked: status != der::context(0), ..staple })
    }

    /// The part of the response about this certificate.
    fn single<'r>(&self, data: DerElement<'r>) -> Result<SingleResponse<'r>, StapleError> {
        let mut fields = DerReader::new(data.content);
        fields.optional(der::explicit(0));
        // The name of the responder, and the time at which it signed.
        let _ = fields.next().ok_or(StapleError::Malformed)?;
        let _ = fields.next().ok_or(StapleError::Malformed)?;
        let mut singles = DerReader::new(fields.expect(der::SEQUENCE).ok_or(StapleError::Malformed)?.content);
        while let Some(one) = singles.next() {
            let single = SingleResponse::read(one).ok_or(StapleError::Malformed)?;
            if self.id.is(single.id).ok_or(StapleError::Malformed)? {
                return Ok(single);
            }
        }
        Err(StapleError::Other)
    }

    /// Returns true if the issuer has signed the response, or a responder for whom the issuer has made a certificate
    /// (RFC 6960, section 4.2.2.2).
    fn is_signed(&self, all: &mut BasicElements<'_>, now: i64) -> bool {
        let Ok((_, issuer)) = X509Certificate::from_der(&self.issuer) else { return false };
        let issuer_key = issuer.public_key().raw;
        if verify(issuer_key, all.algorithm, all.data.whole, all.signature) {
            return true;
        }
        while let Some(element) = all.certificates.next() {
            let Ok((_, delegate)) = X509Certificate::from_der(element.whole) else { return false };
            if may_answer(&delegate, now)
                && is_issued(element, issuer_key)
                && verify(delegate.public_key().raw, all.algorithm, all.data.whole, all.signature)
            {
                return true;
            }
        }
        false
    }
}

/// The parts of a basic response.
struct BasicElements<'r> {
    data: DerElement<'r>,
    algorithm: &'r [u8],
    signature: &'r [u8],
    certificates: DerReader<'r>,
}

struct SingleResponse<'r> {
    id: DerElement<'r>,
    status: DerElement<'r>,
    from: DerElement<'r>,
    until: Option<DerElement<'r>>,
}

impl<'r> SingleResponse<'r> {
    fn read(single: DerElement<'r>) -> Option<Self> {
        let mut fields = DerReader::new(single.content);
        Some(Self {
            id: fields.expect(der::SEQUENCE)?,
            status: fields.next()?,
            from: fields.next()?,
            until: fields.optional(der::explicit(0)),
        })
    }

    fn staple(&self) -> Option<Staple> {
        let time = |bytes| Some(ASN1Time::from_der(bytes).ok()?.1.timestamp());
        let from = time(self.from.whole)?;
        let until = match &self.until {
            Some(until) => time(until.content)?,
            None => from.saturating_add(WITHOUT_END),
        };
        Some(Staple { is_revoked: false, from, until })
    }
}

impl CertificateId {
    fn encoded(&self) -> Vec<u8> {
        let algorithm = der::sequence(&[&der::element(der::OBJECT, SHA1), &der::element(der::NULL, b"")]);
        der::sequence(&[
            &algorithm,
            &der::element(der::OCTETS, &self.issuer_name),
            &der::element(der::OCTETS, &self.issuer_key),
            &der::element(der::INTEGER, &self.serial),
        ])
    }

    /// Returns true if the identifier in a response is this one. `None` if it is malformed.
    fn is(&self, id: DerElement<'_>) -> Option<bool> {
        let mut fields = DerReader::new(id.content);
        let algorithm = DerReader::new(fields.expect(der::SEQUENCE)?.content).expect(der::OBJECT)?;
        let name = fields.expect(der::OCTETS)?;
        let key = fields.expect(der::OCTETS)?;
        let serial = fields.expect(der::INTEGER)?;
        Some(
            algorithm.content == SHA1
                && name.content == self.issuer_name
                && key.content == self.issuer_key
                && serial.content == self.serial,
        )
    }
}

/// Returns true if clients shall refuse the certificate (DER) in handshakes without an OCSP response: it has the TLS feature
/// `status_request` (RFC 7633), "must-staple".
pub fn demands_staple(certificate: &[u8]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let found = parsed.extensions().iter().find(|extension| extension.oid.to_id_string() == TLS_FEATURE);
    let Some(features) = found.and_then(|found| DerReader::new(found.value).expect(der::SEQUENCE)) else {
        return false;
    };
    let mut features = DerReader::new(features.content);
    std::iter::from_fn(|| features.next()).any(|feature| feature.content == STATUS_REQUEST)
}

/// The address of the responder that a certificate names. Only cleartext HTTP is used, because responses are signed.
fn responder(certificate: &X509Certificate<'_>) -> Option<String> {
    let descriptions =
        certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(access) => Some(&access.accessdescs),
            _ => None,
        })?;
    descriptions.iter().find_map(|description| match &description.access_location {
        GeneralName::URI(address)
            if description.access_method.to_id_string() == OCSP_ACCESS && address.starts_with("http://") =>
        {
            Some((*address).to_owned())
        }
        _ => None,
    })
}

/// The basic response in an answer.
fn basic_response(response: &[u8]) -> Result<&[u8], StapleError> {
    let answer = DerReader::new(response).expect(der::SEQUENCE).ok_or(StapleError::Malformed)?;
    let mut fields = DerReader::new(answer.content);
    match fields.expect(der::ENUMERATED).ok_or(StapleError::Malformed)?.content {
        [0] => basic_content(fields).ok_or(StapleError::Malformed),
        [1] => Err(StapleError::Refused(ResponderError::MalformedRequest)),
        [2] => Err(StapleError::Refused(ResponderError::InternalError)),
        [3] => Err(StapleError::Refused(ResponderError::TryLater)),
        [5] => Err(StapleError::Refused(ResponderError::SignatureRequired)),
        [6] => Err(StapleError::Refused(ResponderError::Unauthorized)),
        _ => Err(StapleError::Malformed),
    }
}

fn basic_content(mut fields: DerReader<'_>) -> Option<&[u8]> {
    let bytes = DerReader::new(fields.expect(der::explicit(0))?.content).expect(der::SEQUENCE)?;
    let mut fields = DerReader::new(bytes.content);
    let kind = fields.expect(der::OBJECT)?;
    let content = fields.expect(der::OCTETS)?;
    (kind.content == BASIC_RESPONSE).then_some(content.content)
}

fn basic_elements(basic: &[u8]) -> Option<BasicElements<'_>> {
    let mut fields = DerReader::new(DerReader::new(basic).expect(der::SEQUENCE)?.content);
    let data = fields.expect(der::SEQUENCE)?;
    let algorithm = fields.expect(der::SEQUENCE)?.content;
    let signature = der::bits(fields.expect(der::BITS)?)?;
    let certificates = match fields.optional(der::explicit(0)) {
        Some(all) => DerReader::new(DerReader::new(all.content).expect(der::SEQUENCE)?.content),
        None => DerReader::new(&[]),
    };
    Some(BasicElements { data, algorithm, signature, certificates })
}

/// Returns true if a certificate may sign responses for its issuer at this time.
fn may_answer(certificate: &X509Certificate<'_>, now: i64) -> bool {
    let validity = certificate.validity();
    let usage = certificate.extended_key_usage().ok().flatten();
    (validity.not_before.timestamp() - AHEAD..=validity.not_after.timestamp()).contains(&now)
        && usage.is_some_and(|usage| usage.value.ocsp_signing)
}

/// Returns true if the key has signed the certificate.
fn is_issued(certificate: DerElement<'_>, issuer_key: &[u8]) -> bool {
    let mut fields = DerReader::new(certificate.content);
    let mut read = || {
        let data = fields.expect(der::SEQUENCE)?.whole;
        let algorithm = fields.expect(der::SEQUENCE)?.content;
        let signature = der::bits(fields.expect(der::BITS)?)?;
        Some(verify(issuer_key, algorithm, data, signature))
    };
    read().unwrap_or(false)
}

/// Verifies a signature. `key` is a SubjectPublicKeyInfo, `algorithm` the content of an AlgorithmIdentifier.
fn verify(key: &[u8], algorithm: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let read = || {
        let mut fields = DerReader::new(DerReader::new(key).expect(der::SEQUENCE)?.content);
        let kind = fields.expect(der::SEQUENCE)?.content;
        Some((kind, der::bits(fields.expect(der::BITS)?)?))
    };
    let Some((kind, key)) = read() else { return false };
    provider().signature_verification_algorithms.all.iter().any(|known| {
        known.public_key_alg_id().as_ref() == kind
            && known.signature_alg_id().as_ref() == algorithm
            && known.verify_signature(key, message, signature).is_ok()
    })
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
        SerialNumber, SigningKey as _,
    };

    const NOW: i64 = 1_800_000_000;
    const FROM: &[u8] = b"20270115080000Z";
    const UNTIL: &[u8] = b"20270116080000Z";
    /// The algorithm of signatures, ecdsa-with-SHA256.
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

    struct Bed {
        issuer: Issuer<'static, KeyPair>,
        issuer_pem: String,
        leaf_pem: String,
    }

    impl Bed {
        fn new(serial: &[u8]) -> Self {
            let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
            parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let issuer_pem = parameters.self_signed(&key).unwrap().pem();
            let issuer = Issuer::new(parameters, key);
            let mut leaf = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
            leaf.serial_number = Some(SerialNumber::from_slice(serial));
            let address = der::element(0x86, b"http://ocsp.test/a");
            let method = der::element(der::OBJECT, &[0x2b, 6, 1, 5, 5, 7, 0x30, 1]);
            let access = der::sequence(&[&der::sequence(&[&method, &address])]);
            leaf.custom_extensions =
                vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], access)];
            let leaf_pem = leaf.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().pem();
            Self { issuer, issuer_pem, leaf_pem }
        }

        fn subject(&self) -> StapleSubject {
            StapleSubject::of_pem(format!("{}{}", self.leaf_pem, self.issuer_pem).as_bytes()).unwrap()
        }
    }

    fn response(id: &CertificateId, status: &[u8], signer: &KeyPair, certificates: &[u8]) -> Vec<u8> {
        let time = |text| der::element(0x18, text);
        let until = der::element(der::explicit(0), &time(UNTIL));
        let single = der::sequence(&[&id.encoded(), status, &time(FROM), &until]);
        let name = der::element(der::explicit(2), &der::element(der::OCTETS, &[0; 20]));
        let data = der::sequence(&[&name, &time(FROM), &der::sequence(&[&single])]);
        let signature = [&[0][..], &signer.sign(&data).unwrap()].concat();
        let algorithm = der::sequence(&[&der::element(der::OBJECT, ECDSA)]);
        let basic = der::sequence(&[&data, &algorithm, &der::element(der::BITS, &signature), certificates]);
        let kind = der::element(der::OBJECT, BASIC_RESPONSE);
        let bytes = der::sequence(&[&kind, &der::element(der::OCTETS, &basic)]);
        der::sequence(&[&der::element(der::ENUMERATED, &[0]), &der::element(der::explicit(0), &bytes)])
    }

    fn good() -> Vec<u8> {
        der::element(der::context(0), b"")
    }

    #[test]
    fn a_response_of_the_issuer_counts_until_its_end() {
        // A serial number with its highest bit set has a zero before it.
        for serial in [&[0x7f_u8, 2, 3][..], &[0xff, 2, 3]] {
            let bed = Bed::new(serial);
            let subject = bed.subject();
            assert_eq!(subject.responder, "http://ocsp.test/a");
            assert!(subject.request().windows(serial.len()).any(|part| part == serial));
            let response = response(&subject.id, &good(), bed.issuer.key(), b"");
            let staple = subject.judge(&response, NOW).unwrap();
            assert_eq!((staple.is_revoked, staple.until - staple.from), (false, 86_400));
            assert_eq!(subject.judge(&response, staple.until), Err(StapleError::Expired));
            assert_eq!(subject.judge(&response, staple.from - AHEAD - 1), Err(StapleError::Early));
        }
    }

    #[test]
    fn other_responses_are_refused() {
        let bed = Bed::new(&[1]);
        let subject = bed.subject();
        let key = bed.issuer.key();
        let judge = |response: &[u8]| subject.judge(response, NOW);
        let other = CertificateId { serial: vec![2], ..subject.id.clone() };
        assert_eq!(judge(&response(&other, &good(), key, b"")), Err(StapleError::Other));
        let stranger = KeyPair::generate().unwrap();
        assert_eq!(judge(&response(&subject.id, &good(), &stranger, b"")), Err(StapleError::Signature));
        let unknown = der::element(der::context(2), b"");
        assert_eq!(judge(&response(&subject.id, &unknown, key, b"")), Err(StapleError::Unknown));
        let revoked = der::element(der::explicit(1), &der::element(0x18, FROM));
        assert!(judge(&response(&subject.id, &revoked, key, b"")).unwrap().is_revoked);
        let later = der::sequence(&[&der::element(der::ENUMERATED, &[3])]);
        assert_eq!(judge(&later), Err(StapleError::Refused(ResponderError::TryLater)));
    }

    #[test]
    fn a_responder_needs_a_certificate_for_that() {
        let bed = Bed::new(&[1]);
        let subject = bed.subject();
        let key = KeyPair::generate().unwrap();
        let judged = |may_sign: bool, issuer: &Issuer<'_, KeyPair>| {
            let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
            if may_sign {
                parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::OcspSigning];
            }
            let certificate = parameters.signed_by(&key, issuer).unwrap();
            let all = der::element(der::explicit(0), &der::sequence(&[certificate.der()]));
            subject.judge(&response(&subject.id, &good(), &key, &all), NOW).map(|_| ())
        };
        assert_eq!(judged(true, &bed.issuer), Ok(()));
        assert_eq!(judged(false, &bed.issuer), Err(StapleError::Signature));
        assert_eq!(judged(true, &Bed::new(&[1]).issuer), Err(StapleError::Signature));
    }

    #[test]
    fn a_certificate_may_demand_responses() {
        let key = KeyPair::generate().unwrap();
        let demands = |features: Option<&[u8]>| {
            let mut parameters = CertificateParams::new(Vec::<String>::new()).unwrap();
            let of = |features: &[u8]| {
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], features.to_vec())
            };
            parameters.custom_extensions = features.map(of).into_iter().collect();
            demands_staple(parameters.self_signed(&key).unwrap().der())
        };
        assert!(demands(Some(&[0x30, 3, 2, 1, 5])));
        assert!(demands(Some(&[0x30, 6, 2, 1, 17, 2, 1, 5])));
        // `status_request_v2`, none at all, and a malformed list.
        assert!(!demands(Some(&[0x30, 3, 2, 1, 17])));
        assert!(!demands(None));
        assert!(!demands(Some(&[0x30, 9, 2])));
    }

    #[test]
    fn each_certificate_has_a_file_for_its_responses() {
        let of = |certificate: &str| staple_in(Path::new("/s"), Path::new(certificate));
        let (one, other) = (of("/a/site.pem"), of("/b/site.pem"));
        assert!(one.to_str().unwrap().starts_with("/s/site.pem."), "{}", one.display());
        assert_ne!(one, other);
        assert_eq!(one, of("/a/site.pem"));
        // A name of 255 bytes is possible, and must leave room for the hash.
        let long = of(&format!("/a/{}", "\u{fc}".repeat(127)));
        assert!(long.file_name().unwrap().len() <= 255);
    }

    #[test]
    fn no_part_of_a_response_counts_as_one() {
        let bed = Bed::new(&[1]);
        let subject = bed.subject();
        let whole = response(&subject.id, &good(), bed.issuer.key(), b"");
        for length in 0..whole.len() {
            assert!(subject.judge(&whole[..length], NOW).is_err(), "{length}");
            let mut changed = whole.clone();
            changed[length] ^= 1;
            let _ = subject.judge(&changed, NOW);
        }
        let obstacle = |pem: &str| StapleSubject::of_pem(pem.as_bytes()).unwrap_err();
        assert_eq!(obstacle(&bed.leaf_pem), StapleObstacle::NoIssuer);
        assert_eq!(obstacle(&format!("{0}{0}", bed.issuer_pem)), StapleObstacle::NoResponder);
        assert_eq!(obstacle(""), StapleObstacle::Malformed);
    }
}
