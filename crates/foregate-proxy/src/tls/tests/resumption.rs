//! Sessions that are resumed: for which site, under which policy, and until which certificate expires.

use super::*;

#[tokio::test]
async fn nothing_is_resumed_once_the_clients_certificate_has_expired() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let authority = Authority::new();
    let authorities = folder.write("authorities.pem", &authority.pem);
    let clock = Clock::of_a_test();
    let store = CertificateStore::with_clock(clock);
    let (short, key) = authority.issue_with("alice", |params| {
        params.not_after = (clock.wall() + Duration::from_secs(60)).into();
    });
    let mut cases = Vec::new();
    for required in [true, false] {
        let mut listen = listen(vec![files.clone()]);
        listen.policy = asks(&authorities, required);
        for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
            let acceptor = acceptor_of(&listen, &[], &store);
            let client = Arc::new(client_with(Some((&short, &key)), &[version]));
            assert!(!shake(&acceptor, &client, "a.test").await.unwrap().info.resumed);
            assert!(shake(&acceptor, &client, "a.test").await.unwrap().info.resumed);
            cases.push((acceptor, client));
        }
    }
    clock.advance(Duration::from_secs(90));
    for (acceptor, client) in cases {
        let refused = shake(&acceptor, &client, "a.test").await;
        assert!(matches!(refused, Err(HandshakeError::ClientCertificate(_))));
    }
}

#[tokio::test]
async fn handshakes_that_share_all_else_have_certificates_of_their_own() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let authority = Authority::new();
    let mut listen = listen(vec![files]);
    listen.policy = asks(&folder.write("authorities.pem", &authority.pem), false);
    let clock = Clock::of_a_test();
    let acceptor = acceptor_of(&listen, &[], &CertificateStore::with_clock(clock));
    let (long, long_key) = authority.issue("bob", vec![]);
    let (short, short_key) = authority.issue_with("alice", |params| {
        params.not_after = (clock.wall() + Duration::from_secs(60)).into();
    });
    let mut cases = Vec::new();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let alice = Arc::new(client_with(Some((&short, &short_key)), &[version]));
        let bob = Arc::new(client_with(Some((&long, &long_key)), &[version]));
        let nobody = Arc::new(client_with(None, &[version]));
        for resumed in [false, true] {
            let all = [&bob, &alice, &nobody, &alice, &bob].map(|client| shake(&acceptor, client, "a.test"));
            for outcome in futures_util::future::join_all(all).await {
                assert!(resumed || !outcome.unwrap().info.resumed);
            }
        }
        cases.push([alice, bob, nobody]);
    }
    clock.advance(Duration::from_secs(90));
    for [alice, bob, nobody] in cases {
        let refused = shake(&acceptor, &alice, "a.test").await;
        assert!(matches!(refused, Err(HandshakeError::ClientCertificate(_))));
        for (other, certified) in [(bob, true), (nobody, false)] {
            let info = shake(&acceptor, &other, "a.test").await.unwrap().info;
            assert!(info.resumed && info.client.is_some() == certified);
        }
    }
}

#[tokio::test]
async fn two_sites_that_ask_for_certificates_share_nothing() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["*.test"]);
    let authorities = folder.write("authorities.pem", &Authority::new().pem);
    let site = Some(site_asks(&authorities, false));
    let sites = [(hosts(&["a.test"]), site.clone()), (hosts(&["b.test"]), site)];
    let acceptor = acceptor_of(&listen(vec![files]), &sites, &CertificateStore::new());
    let info = shake(&acceptor, &Arc::new(client()), "a.test").await.unwrap().info;
    assert!(acceptor.covers(&info, b"a.test") && !acceptor.covers(&info, b"b.test"));
}

#[tokio::test]
async fn a_ticket_resumes_under_its_own_policy_only() {
    let folder = Folder::new();
    let files = folder.certificate("a", &["a.test"]);
    let authorities = folder.write("authorities.pem", &Authority::new().pem);
    let store = CertificateStore::new();
    let open = acceptor_of(&listen(vec![files.clone()]), &[], &store);
    let site = |required| (hosts(&["a.test"]), Some(site_asks(&authorities, required)));
    let optional = acceptor_of(&listen(vec![files.clone()]), &[site(false)], &store);
    let required = acceptor_of(&listen(vec![files.clone()]), &[site(true)], &store);
    for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
        let client = Arc::new(client_with(None, versions));
        assert!(!shake(&open, &client, "a.test").await.unwrap().info.resumed);
        assert!(shake(&open, &client, "a.test").await.unwrap().info.resumed);
        let after_reload = acceptor_of(&listen(vec![files.clone()]), &[], &store);
        let again = shake(&after_reload, &client, "a.test").await.unwrap().info;
        assert!(again.resumed, "tickets outlive a reload");
        assert!(open.covers(&again, b"a.test"), "and so does the policy");
        assert!(!shake(&optional, &client, "a.test").await.unwrap().info.resumed, "another policy");
        assert!(shake(&required, &client, "a.test").await.is_err());
    }
}
