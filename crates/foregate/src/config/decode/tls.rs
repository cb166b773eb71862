//! What `tls` of a listener and of a site have in common.

use foregate_config::{Decoder, Item};
use foregate_proxy::settings::{CertificateFiles, ClientCertificates, TlsPolicy, TlsVersion};

use crate::config::schema::Block;
use foregate_config::value::choose;

const VERSIONS: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];

const MODES: &[(&str, bool)] = &[("required", true), ("optional", false)];

pub(super) fn decode(
    decoder: &mut Decoder<'_>,
    item: Item<'_>,
    block: &'static Block,
) -> (Vec<CertificateFiles>, TlsPolicy) {
    let mut certificates = Vec::new();
    let mut policy = TlsPolicy::default();
    for (key, item) in decoder.block(item, block) {
        match key.name {
            "certificate" => certificates.extend(certificate(decoder, item)),
            "minimum-version" => {
                policy.minimum_version = decoder.choice(item, 0, VERSIONS).unwrap_or_default();
            }
            "client-certificates" => {
                let required = decoder.prop(item, "mode", |v| choose(v, MODES)).unwrap_or(true);
                let authorities = decoder.file(item, 0);
                policy.client_certificates =
                    authorities.map(|authorities| ClientCertificates { authorities, required });
            }
            name => debug_assert!(false, "{name} is not read"),
        }
    }
    (certificates, policy)
}

pub(super) fn certificate(decoder: &mut Decoder<'_>, item: Item<'_>) -> Option<CertificateFiles> {
    let certificate = decoder.file(item, 0);
    let key = decoder.prop_file(item, "key");
    Some(CertificateFiles { certificate: certificate?, key: key? })
}
