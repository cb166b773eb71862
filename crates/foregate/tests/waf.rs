//! `foregate waf`, from outside.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("foregate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), content).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_foregate"));
        command.args(arguments).current_dir(&self.0);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const RULES: &str = "\
SecRuleEngine DetectionOnly
SecComponentSignature \"site/1\"
SecTmpDir /tmp
SecRequestBodyAccess On
Include more/*.conf
";

#[test]
fn waf_check_counts_rules() {
    let folder = Folder::new("waf-check");
    std::fs::create_dir_all(folder.0.join("more")).unwrap();
    folder.write("main.conf", RULES);
    folder
        .write("more/b.conf", "SecRule ARGS \"@pmFromFile words\" \"id:2,phase:1,tag:'paranoia-level/2'\"\n");
    folder.write("more/a.conf", "SecRule ARGS a \"id:1,chain\"\n  SecRule ARGS b\n");
    folder.write("more/words", "one\ntwo\n");
    let output = folder.run(&["waf", "check", "ma?n.conf"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "main.conf:3:1: warning: `SecTmpDir` has no effect: nothing is written to disk\n\
         2 rules, 1 more chained to them, 1 warnings\n\
         components: site/1\n\
         engine: DetectionOnly\n\
         by phase: 1 in phase 1, 1 in phase 2\n\
         by paranoia level: 1 at level 2, 1 at every level\n"
    );
    let counts = json(&folder.run(&["waf", "check", "--json", "main.conf"]));
    assert_eq!((&counts["ok"], &counts["rules"], &counts["chained"]), (&true.into(), &2.into(), &1.into()));
    assert_eq!(counts["warnings"][0]["line"], 3);
}

#[test]
fn waf_check_tells_mistakes() {
    let folder = Folder::new("waf-check-wrong");
    folder.write("a.conf", "SecRuleEngine On\n  SecRule ARGZ \"@rx (\" \"id:1\"\n");
    let output = folder.run(&["waf", "check", "a.conf", "b.conf", "c*.conf"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "a.conf:2:11: error: there is no variable `ARGZ`\n    did you mean `ARGS`?\n\
         a.conf:2:21: error: this is no pattern: unclosed group\n\
         b.conf:1:1: error: the file `b.conf` cannot be read: No such file or directory (os error 2)\n\
         c*.conf:1:1: error: no file matches `c*.conf`\n"
    );
    let errors = json(&folder.run(&["waf", "check", "--json", "a.conf"]));
    assert_eq!((&errors["ok"], &errors["count"]), (&false.into(), &2.into()));
    let first = &errors["errors"][0];
    assert_eq!((&first["line"], &first["column"]), (&2.into(), &11.into()));
    assert_eq!(first["help"], "did you mean `ARGS`?");
}

/// A release of so many files, as an archive.
fn release(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&archive).unwrap();
    encoder.finish().unwrap()
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn install(folder: &Folder, to: &str, sha256: &str, more: &[&str]) -> Output {
    folder.run(&[&["waf", "install-crs", to, "--sha256", sha256], more].concat())
}

#[test]
fn install_crs_unpacks_what_has_the_digest() {
    let folder = Folder::new("waf-install");
    let archive = release(&[
        ("crs-9/crs-setup.conf.example", "SecAction id:1\n"),
        ("crs-9/rules/a.conf", "SecRule ARGS \"@pmFromFile a.data\" id:2,phase:1\n"),
        ("crs-9/rules/a.data", "a\n"),
        ("crs-9/tests/a.yaml", "a"),
    ]);
    folder.write("crs.tar.gz", &archive);
    let from = &["--from", "crs.tar.gz"][..];
    let wrong = install(&folder, "crs", &"0".repeat(64), from);
    assert_eq!(wrong.status.code(), Some(1));
    let text = stderr(&wrong);
    assert!(text.contains(&digest(&archive)) && text.contains("nothing is installed"), "{text}");
    assert!(!folder.0.join("crs").exists());

    let right = install(&folder, "crs", &digest(&archive).to_uppercase(), from);
    assert_eq!(right.status.code(), Some(0), "{}", stderr(&right));
    assert!(stdout(&right).starts_with("installed 5 files in crs\n"), "{}", stdout(&right));
    let block = "waf mode=\"detect\" log=\"waf.log\" {\n    \
                 rules \"crs/recommended.conf\" \"crs/crs-setup.conf\" \"crs/rules/*.conf\"\n}\n";
    assert!(stdout(&right).ends_with(block), "{}", stdout(&right));
    let site =
        format!("listen \"127.0.0.1:1\"\nsite \"*\" {{\n{block}route \"/**\" {{ respond 204; }}\n}}\n");
    folder.write("site.kdl", site.as_bytes());
    let checked = folder.run(&["check", "-c", "site.kdl"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    std::fs::remove_file(folder.0.join("site.kdl")).unwrap();
    let files = ["crs/recommended.conf", "crs/crs-setup.conf", "crs/rules/*.conf"];
    let checked = folder.run(&[&["waf", "check"], &files[..]].concat());
    assert!(stdout(&checked).starts_with("6 rules"), "{}", stderr(&checked));
    assert!(!folder.0.join("crs/tests").exists());

    let again = install(&folder, "crs", &digest(&archive), from);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("crs is not empty"), "{}", stderr(&again));
    let left: Vec<_> =
        std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn install_crs_refuses_what_is_no_release() {
    let folder = Folder::new("waf-install-wrong");
    let archive = release(&[("crs-9/rules/a.conf", "")]);
    folder.write("crs.tar.gz", &archive);
    let said = |sha256: &str, more: &[&str]| {
        let output = install(&folder, "crs", sha256, more);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    assert!(said("12", &[]).contains("64 hexadecimal digits"));
    assert!(said(&"ä".repeat(32), &[]).contains("64 hexadecimal digits"));
    let right = digest(&archive);
    assert!(said(&right, &["--version", "4/../.."]).contains("is no version"));
    assert!(said(&right, &["--from", "none.tar.gz"]).contains("none.tar.gz: No such file"));
    assert!(said(&right, &["--from", "crs.tar.gz"]).contains("it is no release of the Core Rule Set"));
    assert!(said(&right, &["--from", "https://"]).contains("this is no HTTPS URL"));
    let without = folder.run(&["waf", "install-crs", "crs"]);
    assert_eq!(without.status.code(), Some(2), "no digest, no release");
    for part in
        ["`--sha256` is missing", "gpg --verify coreruleset-", "sha256sum coreruleset-", "--sha256 DIGEST"]
    {
        assert!(stderr(&without).contains(part), "{part}: {}", stderr(&without));
    }
}

/// A proxy that ends with the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Folder, configuration: &str, port: u16) -> Proxy {
    folder.write("foregate.kdl", configuration);
    let proxy = Proxy(folder.command(&["run", "--single", "-c", "foregate.kdl"]).spawn().unwrap());
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the proxy does not start");
        std::thread::yield_now();
    }
    proxy
}

fn certificate(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("site.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("site.key"), made.signing_key.serialize_pem()).unwrap();
}

#[test]
fn install_crs_fetches_over_https_only() {
    let folder = Folder::new("waf-install-https");
    certificate(&folder.0);
    let [port] = free_ports();
    let configuration = format!(
        "listen \"127.0.0.1:{port}\" {{ tls {{ certificate \"site.pem\" key=\"site.key\" }} }}\n\
         site \"*\" {{\n\
         route \"/x\" {{ respond 200 \"x\" }}\n\
         route \"/gone\" {{ respond 410 \"x\" }}\n\
         }}\n"
    );
    let _proxy = serve(&folder, &configuration, port);
    let said = |path: &str, more: &[&str]| {
        let url = format!("https://localhost:{port}{path}");
        let output = install(&folder, "crs", &digest(b"x"), &[&["--from", &url], more].concat());
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let trusting = &["--authorities", "site.pem"][..];
    let text = said("/x", trusting);
    assert!(text.contains("the archive cannot be unpacked"), "it came, with the right digest: {text}");
    let text = said("/gone", trusting);
    assert!(text.contains("it is answered with 410"), "{text}");
    let text = said("/x", &[]);
    assert!(text.contains("certificate of localhost"), "{text}");
}

const SCORING: &str = "\
SecRuleEngine On
SecRequestBodyAccess On
SecAction \"id:1,phase:1,pass,nolog,setvar:tx.critical=5\"
SecRule ARGS \"@contains attack\" \\
    \"id:2,phase:2,block,t:lowercase,msg:'Attack in %{MATCHED_VAR_NAME}',severity:CRITICAL,\\
    setvar:'tx.score=+%{tx.critical}'\"
SecRule REQUEST_HEADERS:User-Agent \"!@streq good\" \"id:3,phase:1,pass,log,severity:5,setvar:tx.score=+2\"
SecRule TX:score \"@ge 7\" \"id:4,phase:2,deny,status:406,msg:'Score %{TX.score}'\"
";

#[test]
fn waf_explain_says_what_scores() {
    let folder = Folder::new("waf-explain");
    folder.write("rules.conf", SCORING);
    let explain = |more: &[&str]| folder.run(&[&["waf", "explain", "-r", "rules.conf"], more].concat());
    let blocked = explain(&["POST", "http://example.com/a", "-d", "b=An+ATTACK"]);
    assert_eq!(
        stdout(&blocked),
        "3 rules.conf:7 (phase 1, NOTICE)\n    not @streq good\n    REQUEST_HEADERS:User-Agent: foregate/0.1.0\n\
         \x20   tx.score +2 = 2\n\
         2 rules.conf:4 (phase 2, CRITICAL)\n    Attack in ARGS:b\n    @contains attack\n    after lowercase\n\
         \x20   ARGS:b: an attack\n    tx.score +5 = 7\n\
         4 rules.conf:8 (phase 2)\n    Score 7\n    @ge 7\n    TX:score: 7\n\
         tx.score: 7\nit is denied with 406 by the rule 4\n"
    );
    assert_eq!(blocked.status.code(), Some(1));

    let passed = explain(&["GET", "example.com/?b=attack", "-H", "User-Agent: good", "--json"]);
    let said = json(&passed);
    assert_eq!((passed.status.code(), &said["blocked"]), (Some(0), &false.into()));
    assert_eq!(said["matches"].as_array().unwrap().len(), 1, "{said}");
    assert_eq!(said["matches"][0]["transformations"][0], "lowercase");
    assert_eq!(said["scores"][0], serde_json::json!(["tx.score", "5"]));

    folder.write("request", "GET /?b=attack HTTP/1.1\nHost: a\nUser-Agent: bad\n\n");
    assert_eq!(explain(&["--request", "request"]).status.code(), Some(1));
    let quiet = explain(&["--set", "tx.score=9", "GET", "/", "-H", "User-Agent: good"]);
    assert!(stdout(&quiet).contains("Score 9"), "{}", stdout(&quiet));
}

/// A rule that lets the request through, or has the engine only detect, keeps later ones from stopping it; they match all the
/// same.
#[test]
fn waf_explain_says_what_would_be_let_through() {
    let folder = Folder::new("waf-explain-allow");
    folder.write(
        "rules.conf",
        "SecRule ARGS:a \"@eq 1\" \"id:1,phase:1,allow,nolog\"\n\
         SecRule ARGS:c \"@eq 1\" \"id:2,phase:1,pass,nolog,ctl:ruleEngine=DetectionOnly\"\n\
         SecRule ARGS:b \"@eq 2\" \"id:3,phase:2,deny,log\"\n",
    );
    for (query, code, verdict) in [
        ("b=2", 1, "it is denied with 403 by the rule 3"),
        ("a=1&b=2", 0, "it passes"),
        ("c=1&b=2", 0, "it passes"),
    ] {
        let said = folder.run(&["waf", "explain", "-r", "rules.conf", "GET", &format!("http://a/?{query}")]);
        assert_eq!(said.status.code(), Some(code), "{query}");
        let text = stdout(&said);
        assert!(text.starts_with("3 rules.conf:3 (phase 2)") && text.contains(verdict), "{query}: {text}");
    }
}

#[test]
fn waf_explain_needs_a_request() {
    let folder = Folder::new("waf-explain-wrong");
    folder.write("rules.conf", "SecAction id:1");
    folder.write("empty", "\n");
    let code =
        |more: &[&str]| folder.run(&[&["waf", "explain", "-r", "rules.conf"], more].concat()).status.code();
    assert_eq!(code(&["GET", "/"]), Some(0));
    for wrong in
        [&[][..], &["GET"], &["--request", "none"], &["--request", "empty"], &["GET", "/", "-H", "a"]]
    {
        assert_eq!(code(wrong), Some(2), "{wrong:?}");
    }
    let body = folder.run(&["waf", "explain", "-r", "rules.conf", "POST", "/", "-d", "a=b"]);
    assert!(stdout(&body).contains("do not look at the body"), "{}", stdout(&body));
    for off in ["requestBodyAccess=Off", "ruleEngine=Off"] {
        let rules = format!("SecRequestBodyAccess On\nSecAction \"id:1,phase:1,pass,nolog,ctl:{off}\"\n");
        folder.write("off.conf", &rules);
        let body = folder.run(&["waf", "explain", "-r", "off.conf", "POST", "/", "-d", "a=b"]);
        assert!(stdout(&body).contains("a rule has said that none looks at the body"), "{}", stdout(&body));
    }
    folder.write("wrong.conf", "SecAction id:0");
    let wrong = folder.run(&["waf", "explain", "-r", "wrong.conf", "GET", "/"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).starts_with("wrong.conf:1:14: error:"), "{}", stderr(&wrong));
}

const TESTED: &str = "\
SecRequestBodyAccess On
SecRule ARGS \"@contains evil\" \"id:7,phase:2,deny,status:403,log,msg:'it is evil'\"
";
const REGRESSION: &str = "\
rule_id: 7
tests:
  - test_id: 1
    desc: in a query, and in a form
    stages:
      - input: {uri: /?a=evil, headers: {Host: a}}
        output: {status: 403, log: {expect_ids: [7], match_regex: 'msg \"it is [a-z]+\"'}}
      - input: {method: POST, data: a=evil, headers: {Host: a}}
        output: {status: 403, log: {expect_ids: [7]}}
      - input: {uri: /?a=good, headers: {Host: a}}
        output: {status: 200, log: {no_expect_ids: [7]}}
  - test_id: 2
    stages:
      - input: {uri: /?a=good, headers: {Host: a}}
        output: {status: 403, log: {expect_ids: [7]}}
  - test_id: 3
    stages:
      - input:
          {method: POST, uri: /reflect, data: '{\"status\": 418}', headers: {Host: a, Content-Type: text/json}}
        output: {status: 418}
";
const OVERRIDES: &str = "\
overrides:
  - case: 7-2
    reason: it is good
    output: {status: 200, log: {no_expect_ids: [7]}}
";

#[test]
fn waf_test_runs_regression_files() {
    let folder = Folder::new("waf-test");
    std::fs::create_dir_all(folder.0.join("tests/more")).unwrap();
    folder.write("rules.conf", TESTED);
    folder.write("tests/more/7.yaml", REGRESSION);
    folder.write("known.yaml", OVERRIDES);
    let test = |more: &[&str]| folder.run(&[&["waf", "test", "-r", "rules.conf"], more].concat());
    let output = test(&["tests"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.starts_with(
            "FAILED 7-2: status 200 instead of 403, 7 did not match (status 200, matched [])\n\
             3 cases: 2 passed, 1 failed, 0 by an override\n5 requests, 2 lines of log"
        ),
        "{said}"
    );
    let output = test(&["--overrides", "known.yaml", "tests/more/7.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).starts_with("differs 7-2: it is good\n3 cases: 3 passed"), "{}", stdout(&output));
    let only = test(&["--only", "7-1", "--only=7-3", "--json", "tests"]);
    let results = json(&only);
    assert_eq!(
        (&results["ok"], &results["cases"], &results["requests"]),
        (&true.into(), &2.into(), &4.into())
    );
}

#[test]
fn waf_test_needs_rules_and_cases() {
    let folder = Folder::new("waf-test-wrong");
    folder.write("rules.conf", TESTED);
    folder.write("wrong.conf", "SecFoo\n");
    folder.write("7.yaml", REGRESSION);
    folder.write("wrong.yaml", REGRESSION.replace("expect_ids", "expect_idz"));
    folder.write("known.yaml", OVERRIDES.replace("7-2", "7-9"));
    for (code, told, arguments) in [
        (1, "wrong.conf:1:1", &["-r", "wrong.conf", "7.yaml"][..]),
        (2, "expect_idz", &["-r", "rules.conf", "wrong.yaml"]),
        (2, "none.yaml", &["-r", "rules.conf", "none.yaml"]),
        (2, "no such cases", &["-r", "rules.conf", "--only", "8", "7.yaml"]),
        (2, "there is no case 7-9", &["-r", "rules.conf", "--overrides", "known.yaml", "7.yaml"]),
        (2, "--rules", &["7.yaml"]),
    ] {
        let output = folder.run(&[&["waf", "test"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{arguments:?}: {}", stderr(&output));
    }
}

/// The largest number of cases of the Core Rule Set that may end otherwise here than its files say.
const DEVIATIONS: usize = 10;

#[test]
fn the_core_rule_set_has_few_deviations() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/crs/overrides.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let count = |start: &str| text.lines().filter(|line| line.trim_start().starts_with(start)).count();
    assert!((1..=DEVIATIONS).contains(&count("- case:")) && count("- case:") == count("reason:"));
}

const CONFIGURED: &str = "\
listen \"127.0.0.1:1\"
upstream \"app\" { server \"127.0.0.1:2\" }
waf mode=\"detect\" { rules \"rules.conf\" }
site \"example.com\" {
    route \"/search\" {
        waf mode=\"block\" {
            rules \"rules.conf\"
            exclude id=2 when=#\"http.request.method eq \"GET\"\"#
            exclude tag=\"never\"
            body-limit \"16B\"
        }
        proxy \"app\"
    }
    route \"/apart\" { waf mode=\"block\" when=#\"http.request.uri.query contains \"look\"\"# { rules \"rules.conf\" }; proxy \"app\"; }
    route \"/dry\" { waf mode=\"block\" dry-run=#true { rules \"rules.conf\" }; proxy \"app\"; }
    route \"/off\" { waf #false; proxy \"app\"; }
    route \"/a/*/c\" { proxy \"app\"; }
    route \"/plain\" { proxy \"app\"; }
}
";

/// A folder with a configuration of routes with firewalls of all kinds.
fn configured(name: &str) -> Folder {
    let folder = Folder::new(name);
    let rules = "SecRequestBodyAccess On\n\
                 SecRule ARGS:a \"@streq bad\" \"id:2,phase:2,deny,status:403,log,t:lowercase,tag:'some'\"\n\
                 SecRule ARGS:n \"@streq bad\" \"id:3,phase:1,deny,status:406,log,tag:'never'\"\n";
    folder.write("rules.conf", rules);
    folder.write("foregate.kdl", CONFIGURED);
    folder
}

/// The `waf` of the request's route is used: its rules, mode and limits, and the exclusions with true
/// conditions.
#[test]
fn waf_explain_takes_a_configuration() {
    let folder = configured("waf-explain-configured");
    let explain = |more: &[&str]| folder.run(&[&["waf", "explain", "-c", "foregate.kdl"], more].concat());
    let output = explain(&["GET", "http://example.com/search?a=BAD&n=bad"]);
    assert_eq!(
        (stdout(&output), output.status.code()),
        (
            "site example.com, route /search\nwaf mode=\"block\"\nexclude id=2\nexclude tag=\"never\"\nit passes\n"
                .to_owned(),
            Some(0)
        ),
        "{}",
        stderr(&output)
    );
    let denied = explain(&["--json", "POST", "http://example.com/search?a=BAD"]);
    let said = json(&denied);
    assert_eq!((denied.status.code(), &said["blocked"]), (Some(1), &true.into()), "{said}");
    assert_eq!(said["configured"]["excludes"], serde_json::json!(["exclude tag=\"never\""]));
    assert_eq!(said["configured"]["mode"], "block");
    assert_eq!(
        (&said["matches"][0]["id"], &said["matches"][0]["transformations"][0]),
        (&2.into(), &"lowercase".into())
    );
    // Rules do not see a body that is longer than the limit, which is refused; the same elsewhere is short enough.
    for (route, code, verdict) in [("/search", 1, "it is denied with 413"), ("/plain", 0, "it passes")] {
        let url = format!("http://example.com{route}");
        let output = explain(&["POST", &url, "-d", "b=01234567890123456789"]);
        assert_eq!(output.status.code(), Some(code), "{route}: {}", stdout(&output));
        assert!(stdout(&output).contains(verdict), "{route}: {}", stdout(&output));
    }
    for (url, code, text) in [
        ("http://example.com/plain?n=bad", 1, "waf mode=\"detect\""),
        ("http://example.com/plain?n=bad", 1, "note: this `waf` stops no request"),
        ("http://example.com/dry?n=bad", 1, "waf mode=\"block\", dry-run=#true"),
        ("http://example.com/apart?n=bad", 0, "the `when` of the `waf` does not hold"),
        ("http://example.com/apart?n=bad&look", 1, "it is denied with 406 by the rule 3"),
    ] {
        let output = explain(&["GET", url]);
        assert_eq!(output.status.code(), Some(code), "{url}: {}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains(text), "{url}: {}", stdout(&output));
    }
    folder.write("request", "GET /search/../search?n=bad HTTP/1.1\r\nHost: EXAMPLE.com:80\r\n\r\n");
    assert!(stdout(&explain(&["--request", "request"])).contains("route /search"));
}

/// Where no rule looks at a request, the command says so and ends with 2.
#[test]
fn waf_explain_says_where_nothing_looks() {
    let folder = configured("waf-explain-nothing");
    for (url, text) in [
        ("http://example.com/off", "the route \"/off\" of the site \"example.com\" has no `waf`"),
        ("http://example.com/none", "no route of the site \"example.com\" takes this path"),
        ("http://other.example/", "no site has the host \"other.example\""),
        ("http://example.com/a/%2F/c", "refused with 400"),
        ("http://example.com/a b", "refused before any rule"),
    ] {
        let output = folder.run(&["waf", "explain", "-c", "foregate.kdl", "GET", url]);
        assert_eq!(output.status.code(), Some(2), "{url}: {}", stdout(&output));
        assert!(stderr(&output).contains(text), "{url}: {}", stderr(&output));
    }
    for wrong in [
        &["-c", "none.kdl", "GET", "/"][..],
        &["-c", "foregate.kdl", "-r", "rules.conf", "GET", "/"],
        &["-c", "foregate.kdl", "--set", "tx.a=1", "GET", "/"],
        &["GET", "/"],
    ] {
        let output = folder.run(&[&["waf", "explain"], wrong].concat());
        assert!(!output.status.success() && stdout(&output).is_empty(), "{wrong:?}");
    }
}

/// The text of an answer to a request over a connection of its own, and how long it took.
fn ask(port: u16, request: &str) -> (String, Duration) {
    let began = Instant::now();
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut connection, &mut answer).unwrap();
    (answer, began.elapsed())
}

/// So many different ports that nobody listens on.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

/// With `log-sync` the line of a request is in the file when its response is there, however many come one after the other.
#[test]
fn log_sync_writes_before_the_response() {
    let folder = Folder::new("waf-log-sync");
    folder.write("rules.conf", "SecRule ARGS:a \"@eq 1\" \"id:1,phase:1,pass,log\"\n");
    let [port] = free_ports();
    let configuration = format!(
        "listen \"127.0.0.1:{port}\"\n\
         site \"*\" {{ route \"/**\" {{ waf log=\"waf.log\" log-sync=#true {{ rules \"rules.conf\" }}; respond 204; }}; }}\n"
    );
    let _proxy = serve(&folder, &configuration, port);
    for number in 0..200 {
        let (answer, _) =
            ask(port, &format!("GET /n{number}n?a=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        let log = std::fs::read_to_string(folder.0.join("waf.log")).unwrap();
        assert!(log.contains(&format!("/n{number}n")) && log.ends_with('\n'), "{number}");
    }
}

/// A file that takes nothing more holds up a response for a moment, and not for good; each such response is counted.
#[test]
fn log_sync_does_not_wait_for_a_stuck_file() {
    let folder = Folder::new("waf-log-stuck");
    folder.write("rules.conf", "SecRule ARGS:a \"@eq 1\" \"id:1,phase:1,pass,log\"\n");
    let pipe = folder.0.join("waf.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _unread = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let [port, metrics] = free_ports();
    let configuration = format!(
        "listen \"127.0.0.1:{port}\"\nmetrics \"127.0.0.1:{metrics}\"\n\
         site \"*\" {{ route \"/**\" {{ waf log=\"waf.log\" log-sync=#true {{ rules \"rules.conf\" }}; respond 204; }}; }}\n"
    );
    let _proxy = serve(&folder, &configuration, port);
    let request = format!("GET /{}?a=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "x".repeat(700));
    let late = || {
        let (text, _) = ask(metrics, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let line = text.lines().find_map(|line| line.strip_prefix("foregate_module_log_late_total "));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let mut count = 0;
    while late() == 0 {
        count += 1;
        assert!(count < 2000, "the pipe is never full");
        let (answer, took) = ask(port, &request);
        assert!(answer.starts_with("HTTP/1.1 204") && took < Duration::from_secs(5), "{took:?} {answer}");
    }
    let (answer, took) = ask(port, &request);
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!((Duration::from_millis(90)..Duration::from_secs(5)).contains(&took), "{took:?}");
}
