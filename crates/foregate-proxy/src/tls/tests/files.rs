//! Certificates and keys in files: read, watched, and refused with advice.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::der::{DerReader, SEQUENCE, element, explicit, sequence};
use super::store::read_pair;
use super::*;

#[tokio::test]
async fn changed_files_are_read_again() {
    let folder = Folder::new();
    let old = folder.certificate("a", &["a.test"]);
    let old_der = der(&old);
    let store = CertificateStore::new();
    let acceptor = acceptor_of(&listen(vec![old.clone()]), &[], &store);
    // Each handshake has another client: a client that resumes sees no certificate.
    let client = || Arc::new(client());
    assert_eq!(store.check(), 0);

    folder.write("a.key", "-----BEGIN NONSENSE-----");
    assert_eq!(store.check(), 0);
    assert_eq!(shake(&acceptor, &client(), "a.test").await.unwrap().certificate, old_der);
    let error = CertificateStore::new().load(&old).unwrap_err();
    assert_eq!(error.file, old.key);

    let before = shake(&acceptor, &client(), "a.test").await.unwrap().info;
    let renewed = folder.certificate("a", &["a.test", "b.test"]);
    assert_eq!(store.check(), 1);
    assert!(!acceptor.covers(&before, b"b.test"), "what it was served with says nothing of it");
    let outcome = shake(&acceptor, &client(), "a.test").await.unwrap();
    assert_eq!(outcome.certificate, der(&renewed));
    assert_ne!(outcome.certificate, old_der);
    assert!(acceptor.covers(&outcome.info, b"b.test"), "its names are new as well");
    folder.certificate("a", &["a.test"]);
    assert_eq!(store.check(), 1);
    assert!(acceptor.covers(&outcome.info, b"b.test"), "it was served with the one that had it");
}

#[tokio::test]
async fn a_watched_store_needs_no_telling() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let store = CertificateStore::new();
    let acceptor = acceptor_of(&listen(vec![files.clone()]), &[], &store);
    store.watch();
    let renewed = folder.certificate("a", &["a.test"]);
    for _ in 0..100 {
        if shake(&acceptor, &Arc::new(client()), "a.test").await.unwrap().certificate == der(&renewed) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the new certificate was not picked up within 5 s");
}

#[test]
fn errors_name_the_file_and_the_way_out() {
    let folder = Folder::new();
    let store = CertificateStore::new();
    let a = folder.certificate("a", &["a.test"]);
    let b = folder.certificate("b", &["b.test"]);
    let error = |certificate: &Path, key: &Path| {
        let files = CertificateFiles::new(certificate.to_owned(), key.to_owned());
        let error = store.load(&files).unwrap_err();
        let text = error.to_string();
        (error.file, text)
    };
    let (file, text) = error(&a.certificate, &b.key);
    assert!(file == b.key && text.contains("does not belong to") && text.contains("a.pem"), "{text}");
    let (file, text) = error(&a.key, &a.key);
    assert!(file == a.key && text.contains("no certificate in it"), "{text}");
    let (file, text) = error(&a.certificate, &a.certificate);
    assert!(file == a.certificate && text.contains("no usable private key"), "{text}");
    let (file, text) = error(Path::new("/nonexistent.pem"), &a.key);
    assert!(file == Path::new("/nonexistent.pem") && text.contains("check the path"), "{text}");
}

/// The certificate without the version and the extensions, as X.509 version 1 has it. Its signature no longer holds.
fn as_version_1(certificate: &CertificateDer<'_>) -> Vec<u8> {
    let mut certificate = DerReader::new(certificate);
    let mut parts = DerReader::new(certificate.next().unwrap().content);
    let mut fields = DerReader::new(parts.next().unwrap().content);
    let mut kept = Vec::new();
    while let Some(field) = fields.next() {
        if ![explicit(0), explicit(3)].contains(&field.tag) {
            kept.extend_from_slice(field.whole);
        }
    }
    let (algorithm, signature) = (parts.next().unwrap(), parts.next().unwrap());
    sequence(&[&element(SEQUENCE, &kept), algorithm.whole, signature.whole])
}

/// The verifier of rustls does not read version 1, but other clients may accept it.
#[test]
fn a_certificate_of_version_1_belongs_to_its_key() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let other = folder.certificate("b", &["b.test"]);
    let encoded = STANDARD.encode(as_version_1(&der(&files)));
    let version_1 = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
    folder.write("a.pem", &version_1);
    let pair = read_pair(&files).unwrap();
    assert!(rustls::server::ParsedCertificate::try_from(&pair.cert[0]).is_err());
    CertificateStore::new().load(&files).unwrap();
    let with_it = UpstreamTls { certificate: Some(files.clone()), verify: false, ..UpstreamTls::default() };
    Connector::new(&with_it, UpstreamProtocol::Http1).unwrap();

    let error = |certificate: &str, key: &Path| {
        let certificate = folder.write("c.pem", certificate);
        read_pair(&CertificateFiles::new(certificate, key.to_owned())).unwrap_err().to_string()
    };
    assert!(error(&version_1, &other.key).contains("does not belong to"));
    let reversed = format!("{}{version_1}", fs::read_to_string(&other.certificate).unwrap());
    assert!(error(&reversed, &files.key).contains("stands further down"));
}

/// Every oddity that PEM files have is read as OpenSSL reads it, or refused with its line.
#[test]
fn oddities_of_pem_are_read_or_refused() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let text = |file: &PathBuf| fs::read_to_string(file).unwrap().replace("\r\n", "\n");
    let [pem, key] = [&files.certificate, &files.key].map(text);
    let other = text(&folder.certificate("b", &["b.test"]).certificate);
    let chain = |text: &str| {
        read_chain(&folder.write("chain.pem", text)).map(|read| read.len()).map_err(|error| error.to_string())
    };
    let trusted = |pem: &str| pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    let joined = format!("{pem}{other}").replace("-----\n-----BEGIN", "----------BEGIN");
    let lines = pem.lines().count();
    for text in [
        format!("{pem}{other}"),
        format!("{pem}{other}").replace('\n', "\r\n"),
        format!("{key}{pem}text\n{other}"),
        format!("\u{feff}{}", format!("{pem}{other}").trim_end()),
        format!("{}{other}", trusted(&pem)),
        format!("{}{other}", pem.replace("CERTIFICATE", "X509 CERTIFICATE")),
        format!("-----BEGIN DH PARAMETERS-----\nMAA=\n-----END DH PARAMETERS-----\n{pem}{other}"),
        joined,
    ] {
        assert_eq!(chain(&text), Ok(2), "{text}");
    }
    let fails = |text: String, expected: &str| {
        let error = chain(&text).unwrap_err();
        assert!(error.contains("chain.pem: ") && error.contains(expected), "{error}");
    };
    fails(format!("{pem} {other}"), &format!("line {}: this looks like", lines + 1));
    fails(format!("{pem}{}", other.replace("-----END", "----END")), &format!("line {}", 2 * lines));
    fails(
        format!("{pem}{}", &other[..other.len() / 2]),
        &format!("line {}: the block that begins", lines + 1),
    );
    fails(
        format!("{pem}-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"),
        "this is no certificate",
    );
    fails(format!("{pem}-----BEGIN PKCS7-----\nMAA=\n-----END PKCS7-----\n"), "openssl pkcs7 -print_certs");
    fails(String::new(), "the file is empty");
    fails(key.clone(), "no certificate in it, but `PRIVATE KEY` on line 1");
    let authorities = folder.write("authorities.pem", &format!("{pem}{}", trusted(&other)));
    let error = read_authority_certificates(&authorities).unwrap_err().to_string();
    assert!(error.contains(&format!("line {}: a `TRUSTED CERTIFICATE`", lines + 1)), "{error}");
    let keys =
        |text: &str| read_key(&folder.write("key.pem", text)).map(drop).map_err(|error| error.to_string());
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    for text in
        [key.clone(), format!("{parameters}{key}"), format!("{pem}{key}{key}"), key.replace('\n', "\r\n")]
    {
        assert_eq!(keys(&text), Ok(()), "{text}");
    }
    for (text, expected) in [
        (key.replace("PRIVATE", "ENCRYPTED PRIVATE"), "encrypted; decrypt it: `openssl pkey -in"),
        (
            key.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: A,00\n\n", 1),
            "line 1: the private key is encrypted",
        ),
        (key.replace("PRIVATE", "OPENSSH PRIVATE"), "`OPENSSH PRIVATE KEY` is not read"),
        (parameters.to_owned(), "no usable private key in it, but `EC PARAMETERS`"),
        (String::new(), "the file is empty"),
    ] {
        let error = keys(&text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
