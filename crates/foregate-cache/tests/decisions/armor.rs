use super::scene::{Origin, Scene, Source, again_in};
use foregate_cache::{ExtensionRule, NotStored, Policy, StatusLifetime};

/// Returns whether a response of this type is cached by its extension.
fn by_extension(path: &str, content_type: Option<&str>) -> Result<(), NotStored> {
    let rule = ExtensionRule::default();
    let mut scene = Scene::with(Policy { extensions: Some(rule), ..Policy::default() });
    path.clone_into(&mut scene.path);
    let fields: Vec<_> = content_type.iter().map(|content_type| ("Content-Type", *content_type)).collect();
    let stored = scene.get(&[], &Origin::Reply(200, &fields)).stored.unwrap();
    assert_eq!(scene.get(&[], &Origin::Reply(200, &fields)).source == Source::Store, stored.is_ok());
    stored
}

#[test]
fn extension_and_type_have_to_agree() {
    let rows = [
        ("/x.css", "text/css", true),
        ("/x.CSS", "text/css; charset=utf-8", true),
        ("/x.css", "Text/CSS ; charset=utf-8", true),
        ("/account/x.css", "text/html", false),
        ("/account/x.css", "text/html; charset=utf-8", false),
        ("/account.js", "application/json", false),
        ("/x.js", "application/javascript", true),
        ("/x.js", "text/javascript", true),
        ("/x.js", "application/x-javascript", true),
        ("/x.jpg", "image/jpeg", true),
        ("/x.jpg", "image/webp", true),
        ("/x.jpg", "image/gif", true),
        ("/x.gif", "video/webm", true),
        ("/x.gif", "video/mp4", true),
        ("/x.png", "video/mp4", false),
        ("/x.jpg", "text/html", false),
        ("/x.jpg", "application/xhtml+xml", false),
        ("/x.svg", "image/svg+xml", true),
        ("/x.css", "application/octet-stream", true),
        ("/x.woff2", "font/woff2", true),
        ("/x.woff2", "application/font-woff2", true),
        ("/x.ttf", "application/x-font-ttf", true),
        ("/x.eot", "application/vnd.ms-fontobject", true),
        ("/x.mp3", "audio/mpeg", true),
        ("/x.mp4", "video/mp4", true),
        ("/x.pdf", "application/pdf", true),
        ("/x.zip", "application/zip", true),
        ("/x.zip", "application/json", false),
        ("/x.zip", "text/plain", false),
    ];
    for (path, content_type, stored) in rows {
        let expected = if stored { Ok(()) } else { Err(NotStored::Deception) };
        assert_eq!(by_extension(path, Some(content_type)), expected, "{path} {content_type}");
    }
    assert_eq!(by_extension("/x.css", None), Err(NotStored::Deception));
}

#[test]
fn extensions_that_an_origin_could_read_otherwise_do_not_count() {
    for path in [
        "/account%2Fx.css",
        "/account;x.css",
        "/account%3Bx.css",
        "/account%3Fx.css",
        "/account%23x.css",
        "/account%252Fx.css",
        "/account%5Cx.css",
        "/account;/x.css",
        "/x.html",
        "/x.json",
        "/x",
        "/x.",
        "/x.css/",
        "/x.averylongextension",
    ] {
        let stored = by_extension(path, Some("text/css"));
        // A slash that is decoded leaves the last segment as it is, so the extension is the same for all.
        let same_for_all = matches!(
            path,
            "/account%2Fx.css" | "/account%5Cx.css" | "/account%252Fx.css" | "/account;/x.css"
        );
        assert_eq!(stored.is_ok(), same_for_all, "{path}: {stored:?}");
    }
}

#[test]
fn the_origins_word_and_the_settings_override_the_check() {
    let html = ("Content-Type", "text/html");
    let policy = || Policy { extensions: Some(ExtensionRule::default()), ..Policy::default() };
    let mut scene = Scene { path: "/x.css".to_owned(), ..Scene::with(policy()) };
    assert_eq!(again_in(&mut scene, 200, &[html, ("Cache-Control", "max-age=60")]), Source::Store);
    let edge = StatusLifetime { statuses: 200..=200, seconds: 60, over_origin: false, condition: None };
    let edge = Policy { lifetimes: vec![edge], ..policy() };
    let mut scene = Scene { path: "/x.css".to_owned(), ..Scene::with(edge) };
    assert_eq!(again_in(&mut scene, 200, &[html]), Source::Store);
    // The origin forbids it.
    for directive in ["no-store", "private", "no-cache", "max-age=0"] {
        let mut scene = Scene { path: "/x.css".to_owned(), ..Scene::with(policy()) };
        let fields = [("Content-Type", "text/css"), ("Cache-Control", directive)];
        assert_eq!(again_in(&mut scene, 200, &fields), Source::Origin, "{directive}");
    }
    let mut scene = Scene { path: "/x.css".to_owned(), ..Scene::with(policy()) };
    assert_eq!(again_in(&mut scene, 404, &[("Content-Type", "text/css")]), Source::Origin);
}

#[test]
fn heuristics_do_not_store_pages_under_static_extensions() {
    for (path, content_type, expected) in [
        ("/x.css", "text/html", Err(NotStored::Deception)),
        ("/x.css", "text/css", Ok(())),
        ("/x.php", "text/html", Ok(())),
        ("/x.html", "text/html", Ok(())),
        ("/x", "text/html", Ok(())),
    ] {
        let mut scene = Scene { path: path.to_owned(), ..Scene::new() };
        let fields = [("Last-Modified", "@-86400"), ("Content-Type", content_type)];
        assert_eq!(
            scene.get(&[], &Origin::Reply(200, &fields)).stored,
            Some(expected),
            "{path} {content_type}"
        );
    }
}
