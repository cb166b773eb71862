//! The meaning of valid input.

use std::net::IpAddr;

use foregate_waf::model::*;
use foregate_waf::seclang::{load, needs};

use crate::files::Memory;
use crate::{Source, set, shown};

fn rule(text: &str) -> Rule {
    let mut set = set(text);
    assert_eq!(set.rules.len(), 1, "{text}");
    set.rules.remove(0)
}

fn actions(list: &str) -> Vec<Action> {
    rule(&format!("SecAction \"id:1,{list}\"")).links.remove(0).actions
}

fn operator(text: &str) -> Operator {
    rule(&format!("SecRule ARGS \"{text}\" id:1")).links.remove(0).operator
}

fn ids(set: &RuleSet) -> Vec<RuleId> {
    set.rules.iter().map(|rule| rule.id).collect()
}

fn targets(text: &str) -> (Vec<String>, Vec<String>) {
    let link = rule(&format!("SecRule {text} a id:1")).links.remove(0);
    (
        link.targets.iter().map(ToString::to_string).collect(),
        link.exclusions.iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn a_rule_says_everything() {
    let rule = rule(
        "SecRule ARGS \"!@rx ^a$\" \"id:'7',phase:request,deny,status:406,log,noauditlog,capture,multiMatch,\\\n    \
         t:none,t:lowercase,t:urlDecodeUni,msg:'A, b: %{MATCHED_VAR}',logdata:%{TX.0},severity:'CRITICAL',\\\n    \
         tag:'one',tag:two,rev:2,ver:'x/1',maturity:9,accuracy:8\"",
    );
    assert_eq!((rule.id, rule.phase, rule.phase.number()), (7, Phase::RequestBody, 2));
    assert_eq!(rule.disruptive, Disruptive::Deny { status: 406 });
    assert_eq!((rule.log, rule.audit_log), (true, false));
    assert_eq!(rule.message.unwrap().to_string(), "A, b: %{MATCHED_VAR}");
    let data = rule.data.unwrap();
    assert_eq!(data.literal(), None);
    assert_eq!(data.macros().next(), Some(&Macro { variable: Variable::Tx, name: Some("0".into()) }));
    assert_eq!(rule.severity.map(Severity::name), Some("CRITICAL"));
    assert_eq!(rule.tags.iter().filter_map(Template::literal).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!((rule.revision.as_deref(), rule.version.as_deref()), (Some("2"), Some("x/1")));
    assert_eq!((rule.maturity, rule.accuracy), (Some(9), Some(8)));
    assert_eq!(rule.place.to_string(), "t:1:1");
    let [link] = &rule.links[..] else { panic!() };
    assert!(link.negated && link.capture && link.multi_match);
    assert_eq!(link.operator, Operator::Rx(Regex::new("^a$")));
    assert_eq!(link.transformations, [Transformation::Lowercase, Transformation::UrlDecodeUni]);
}

#[test]
fn what_is_not_said_has_a_default() {
    let rule = rule("SecRule ARGS a id:1");
    assert_eq!(rule.phase, Phase::RequestBody);
    assert_eq!(rule.disruptive, Disruptive::Pass);
    assert!(rule.log && rule.audit_log);
    assert_eq!(rule.skip_to, None);
    assert_eq!(set("").settings, Settings::default());
}

#[test]
fn commas_separate_targets_as_well() {
    let written = "REQUEST_HEADERS:User-Agent,ARGS,!ARGS:b,ARGS:/a,b/,TX:/x/|ARGS_NAMES:'c,d',XML:/*,FILES";
    let (all, out) = targets(written);
    let named =
        ["REQUEST_HEADERS:User-Agent", "ARGS", "ARGS:/a,b/", "TX:/x/", "ARGS_NAMES:c,d", "XML:/*", "FILES"];
    assert_eq!(all, named);
    assert_eq!(out, ["ARGS:b"]);
}

#[test]
fn targets_are_what_they_say() {
    let (all, out) = targets("ARGS|args_names:a|&REQUEST_HEADERS:Host|!ARGS:b|!XML|XML:/*|XML://@*|TX:/^x_/");
    assert_eq!(all, ["ARGS", "ARGS_NAMES:a", "&REQUEST_HEADERS:Host", "XML:/*", "XML://@*", "TX:/^x_/"]);
    assert_eq!(out, ["ARGS:b", "XML"]);
    // A bar, a slash or a quote may be in a pattern, and white space in quotes.
    let (all, out) = targets("ARGS:/a|b/|!ARGS:/c/d\\/|e/|REQUEST_COOKIES:'f g'|TX:'/h|i j/'|ARGS:k'l");
    assert_eq!(all, ["ARGS:/a|b/", "REQUEST_COOKIES:f g", "TX:/h|i j/", "ARGS:k'l"]);
    assert_eq!(out, ["ARGS:/c/d\\/|e/"]);
    let (all, _) = targets("\"ARGS:a b | ARGS_NAMES\"");
    assert_eq!(all, ["ARGS:a b", "ARGS_NAMES"]);
    let (all, _) = targets("MULTIPART_SEMICOLON_MISSING");
    assert_eq!(all, ["MULTIPART_MISSING_SEMICOLON"]);
}

#[test]
fn operators_are_what_they_say() {
    assert_eq!(operator("a b "), Operator::Rx(Regex::new("a b ")));
    assert_eq!(operator("  @rx  a\\\"b\\d\\\\"), Operator::Rx(Regex::new("a\"b\\d\\\\")));
    assert_eq!(operator("@STREQ"), Operator::StrEq(Template::default()));
    assert_eq!(operator("@eq 5"), Operator::Compare(Comparison::Equal, Number::Fixed(5)));
    let Operator::Compare(Comparison::AtLeast, Number::Computed(text)) = operator("@ge %{tx.a}") else {
        panic!()
    };
    assert_eq!(text.to_string(), "%{TX.a}");
    let Operator::Within(text) = operator("@within a %{REQUEST_HEADERS:X-Y} b") else { panic!() };
    assert_eq!(text.pieces().len(), 3);
    assert_eq!(text.to_string(), "a %{REQUEST_HEADERS.X-Y} b");
    let Operator::Pm(phrases) = operator("@pm  a|42|c |7c 00|  d ") else { panic!() };
    assert_eq!(phrases.iter().collect::<Vec<_>>(), [b"aBc".as_slice(), b"|\0", b"d"]);
    let Operator::ValidateByteRange(bytes) = operator("@validateByteRange 9, 32-126,255") else { panic!() };
    let within = (0..=255).filter(|byte| bytes.contains(*byte)).count();
    assert_eq!((within, bytes.contains(9), bytes.contains(31)), (97, true, false));
    for (text, expected) in [
        ("@unconditionalMatch", Operator::Unconditional),
        ("@noMatch", Operator::Never),
        ("@detectSQLi", Operator::DetectSqli),
        ("@detectXSS", Operator::DetectXss),
        ("@validateUrlEncoding", Operator::ValidateUrlEncoding),
        ("@validateUtf8Encoding", Operator::ValidateUtf8Encoding),
        ("@containsWord a", Operator::ContainsWord(Template::text("a"))),
        ("@verifyCC \\d{13,16}", Operator::VerifyCreditCard(Regex::new("\\d{13,16}"))),
    ] {
        assert_eq!(operator(text), expected);
        assert_eq!(format!("@{}", operator(text).name()), text.split(' ').next().unwrap());
    }
}

#[test]
fn networks_hold_addresses() {
    let Operator::IpMatch(networks) =
        operator("@ipMatch 192.0.2.0/24, 2001:db8::/32,::ffff:198.51.100.0/120,::1")
    else {
        panic!()
    };
    let holds = |address: &str| {
        let address: IpAddr = address.parse().unwrap();
        networks.iter().any(|network| network.contains(address))
    };
    for inside in ["192.0.2.255", "::ffff:192.0.2.1", "2001:db8:ffff::", "198.51.100.9", "::1"] {
        assert!(holds(inside), "{inside}");
    }
    for outside in ["192.0.3.0", "2001:db9::", "198.51.101.0", "::2"] {
        assert!(!holds(outside), "{outside}");
    }
    let all = Network::parse("0.0.0.0/0").unwrap();
    assert!(all.contains([1, 2, 3, 4].into()) && !all.contains("::1".parse().unwrap()));
    assert!(Network::parse("::/0").unwrap().contains("2001::".parse().unwrap()));
}

#[test]
fn defaults_hold_for_rules_that_follow() {
    let set = set("SecRule ARGS a id:1,block\n\
         SecDefaultAction phase:2,nolog,auditlog,deny,status:406,t:lowercase,t:none,t:trim\n\
         SecRule ARGS a id:2,block\n\
         SecRule ARGS a id:3,pass,log,t:none,t:length\n\
         SecRule ARGS a id:4,phase:1,block\n\
         SecRule ARGS a id:5,status:500,t:length\n\
         SecDefaultAction phase:2,pass\n\
         SecRule ARGS a id:6,block,nolog,auditlog\n\
         SecRule ARGS a id:7,chain,t:trim\nSecRule ARGS b t:lowercase");
    let said: Vec<_> = set.rules.iter().map(|rule| (&rule.disruptive, rule.log, rule.audit_log)).collect();
    assert_eq!(
        said,
        [
            (&Disruptive::Pass, true, true),
            (&Disruptive::Deny { status: 406 }, false, true),
            (&Disruptive::Pass, true, true),
            (&Disruptive::Pass, true, true),
            (&Disruptive::Deny { status: 500 }, false, true),
            (&Disruptive::Pass, false, true),
            (&Disruptive::Pass, true, true),
        ]
    );
    let transformed = |at: usize| &set.rules[at].links[0].transformations[..];
    assert_eq!(transformed(1), [Transformation::Trim]);
    assert_eq!(transformed(2), [Transformation::Length]);
    assert_eq!(transformed(3), []);
    assert_eq!(transformed(4), [Transformation::Trim, Transformation::Length]);
    assert_eq!(set.rules[6].links[1].transformations, [Transformation::Lowercase]);
}

#[test]
fn a_transaction_is_disrupted_as_it_says() {
    let disruptive = |list: &str| rule(&format!("SecAction \"id:1,{list}\"")).disruptive;
    let to = Template::text("https://a.example/");
    assert_eq!(disruptive("deny"), Disruptive::Deny { status: 403 });
    assert_eq!(disruptive("drop"), Disruptive::Drop);
    assert_eq!(disruptive("allow"), Disruptive::Allow(AllowScope::Transaction));
    assert_eq!(disruptive("allow:phase"), Disruptive::Allow(AllowScope::Phase));
    assert_eq!(disruptive("allow:REQUEST"), Disruptive::Allow(AllowScope::Request));
    let redirect = |status| Disruptive::Redirect { status, to: to.clone() };
    assert_eq!(disruptive("redirect:'https://a.example/'"), redirect(302));
    assert_eq!(disruptive("redirect:https://a.example/,status:307"), redirect(307));
    assert_eq!(disruptive("redirect:https://a.example/,status:403"), redirect(302));
}

#[test]
fn variables_change() {
    let change = |list: &str| match actions(list).remove(0) {
        Action::SetVar(set) => (set.collection, set.name.to_string(), set.change),
        other => panic!("{other:?}"),
    };
    let tx = |name: &str, change| (WritableCollection::Tx, name.to_owned(), change);
    assert_eq!(change("setvar:tx.a=b"), tx("a", Change::Set(Template::text("b"))));
    assert_eq!(change("setvar:'TX.a=b, c=d'"), tx("a", Change::Set(Template::text("b, c=d"))));
    assert_eq!(change("setvar:'tx.a=it\\'s'"), tx("a", Change::Set(Template::text("it's"))));
    assert_eq!(change("setvar:tx.a"), tx("a", Change::Set(Template::text("1"))));
    assert_eq!(change("setvar:tx.a="), tx("a", Change::Set(Template::default())));
    assert_eq!(change("setvar:!tx.a"), tx("a", Change::Unset));
    assert_eq!(change("setvar:tx.a=+5"), tx("a", Change::Add(Number::Fixed(5))));
    assert_eq!(change("setvar:tx.a=-5"), tx("a", Change::Subtract(Number::Fixed(5))));
    let (_, name, Change::Add(Number::Computed(by))) = change("setvar:'tx.%{RULE.id}.a=+%{tx.b}'") else {
        panic!()
    };
    assert_eq!((name.as_str(), by.to_string().as_str()), ("%{RULE.id}.a", "%{TX.b}"));
    assert_eq!(change("setvar:ip.a=1").0, WritableCollection::Persistent(PersistentCollection::Ip));
}

#[test]
fn collections_and_masks() {
    let key = Template::text("k");
    let init = |collection, known_as| vec![Action::InitCol { collection, key: key.clone(), known_as }];
    assert_eq!(actions("initcol:global=k"), init(PersistentCollection::Global, None));
    assert_eq!(actions("setsid:k"), init(PersistentCollection::Session, Some(Variable::SessionId)));
    assert_eq!(actions("setuid:k"), init(PersistentCollection::User, Some(Variable::UserId)));
    assert_eq!(actions("setrsc:k"), init(PersistentCollection::Resource, None));
    let (collection, name) = (PersistentCollection::Ip, Template::text("a"));
    assert_eq!(
        actions("expirevar:ip.a=60,deprecatevar:ip.a=2/300"),
        [
            Action::ExpireVar {
                collection: WritableCollection::Persistent(collection),
                name: name.clone(),
                seconds: Number::Fixed(60)
            },
            Action::DeprecateVar { collection, name, amount: 2, seconds: 300 }
        ]
    );
    assert_eq!(
        actions("setenv:A=k,sanitiseArg:a,sanitizeMatched,sanitiseMatchedBytes:1/2,sanitiseRequestHeader:b"),
        [
            Action::SetEnv { name: Template::text("A"), value: key.clone() },
            Action::Mask(Mask::Argument("a".into())),
            Action::Mask(Mask::Matched),
            Action::Mask(Mask::MatchedBytes { first: 1, last: 2 }),
            Action::Mask(Mask::RequestHeader("b".into())),
        ]
    );
}

#[test]
fn controls_are_typed() {
    let control = |text: &str| match actions(&format!("tag:x,msg:y,ctl:{text}")).remove(0) {
        Action::Ctl(ctl) => ctl,
        other => panic!("{other:?}"),
    };
    let tag = || RuleSelection::Tag(TextMatch::Exact("x".into()));
    let parts = |letters: &str| letters.chars().fold(AuditParts::NONE, AuditParts::with);
    for (text, expected) in [
        ("ruleEngine=detectiononly", Ctl::RuleEngine(EngineMode::DetectionOnly)),
        ("ruleRemoveById=1", Ctl::RemoveRules(RuleSelection::Ids(vec![1..=1]))),
        ("ruleRemoveById=1-9", Ctl::RemoveRules(RuleSelection::Ids(vec![1..=9]))),
        ("ruleRemoveByTag=x", Ctl::RemoveRules(tag())),
        (
            "ruleRemoveByMsg=/^y$/",
            Ctl::RemoveRules(RuleSelection::Message(TextMatch::Pattern(Regex::new("^y$")))),
        ),
        ("requestBodyAccess=off", Ctl::RequestBodyAccess(false)),
        ("requestBodyLimit=9", Ctl::RequestBodyLimit(9)),
        ("requestBodyProcessor=json", Ctl::RequestBodyProcessor(BodyProcessor::Json)),
        ("forceRequestBodyVariable=On", Ctl::ForceRequestBodyVariable(true)),
        ("responseBodyAccess=On", Ctl::ResponseBodyAccess(true)),
        ("responseBodyLimit=9", Ctl::ResponseBodyLimit(9)),
        ("parseXmlIntoArgs=OnlyArgs", Ctl::XmlArguments(XmlArguments::Only)),
        ("auditEngine=RelevantOnly", Ctl::AuditEngine(AuditEngine::RelevantOnly)),
        ("auditLogParts=+e", Ctl::AuditParts(AuditPartsChange::Add(parts("E")))),
        ("auditLogParts=-EF", Ctl::AuditParts(AuditPartsChange::Remove(parts("EF")))),
        ("auditLogParts=ABZ", Ctl::AuditParts(AuditPartsChange::Set(parts("ABZ")))),
    ] {
        assert_eq!(control(text), expected, "{text}");
    }
}

#[test]
fn targets_are_taken_from_rules() {
    let set = set("SecRule ARGS|XML:/* a \"id:1,tag:x,ctl:'ruleRemoveTargetByTag=x;ARGS:/a,;b/|XML'\"");
    let removed: Vec<_> = set.rules[0].links[0]
        .actions
        .iter()
        .map(|action| match action {
            Action::Ctl(Ctl::RemoveTarget(RuleSelection::Tag(_), exclusion)) => exclusion.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(removed, ["ARGS:/a,;b/", "XML"]);
}

#[test]
fn chains_and_skips_have_places() {
    let set = set("SecRule ARGS a id:1,skipAfter:END\n\
         SecRule ARGS a \"id:2,chain\"\n  SecRule ARGS b\n\
         SecMarker END\n\
         SecRule ARGS a id:3,skip:1\n\
         SecRule ARGS a id:4,phase:1\n\
         SecRule ARGS a id:5\n\
         SecRule ARGS a id:6,skipAfter:8\n\
         SecRule ARGS a id:7,skip:9\n\
         SecRule ARGS a id:8,skipAfter:END\n\
         SecMarker 'END'");
    assert_eq!(ids(&set), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(set.rules[1].links.len(), 2);
    assert_eq!(set.rules[1].links[1].place.to_string(), "t:3:3");
    let skips: Vec<_> = set.rules.iter().map(|rule| rule.skip_to).collect();
    assert_eq!(skips, [Some(2), None, Some(5), None, None, Some(8), Some(8), Some(8)]);
}

#[test]
fn removed_rules_leave_no_gap() {
    let set = set("SecRuleRemoveById 2 '10-19 30'\nSecRuleRemoveByTag x\nSecRuleRemoveByMsg 'm'\n\
         SecRuleRemoveByTag /^attack-/\n\
         SecRule ARGS a id:1,skipAfter:END\nSecRule ARGS a id:2\nSecRule ARGS a id:11\nSecMarker END\n\
         SecRule ARGS a id:3,tag:x\nSecRule ARGS a id:4,tag:attack-sqli\nSecRule ARGS a id:5,msg:m\n\
         SecRule ARGS a id:6,tag:xy,tag:an-attack-sqli,msg:mm");
    assert_eq!(ids(&set), [1, 6]);
    assert_eq!(set.rules[0].skip_to, Some(1));
    assert_eq!(shown(&set.warnings), "");
}

#[test]
fn updates_are_laid_over_rules() {
    let set = set("SecRuleUpdateActionById 1 \"deny,status:500,msg:new,t:none,t:trim,tag:more\"\n\
         SecRuleUpdateActionById 2:1 setvar:tx.a=1\n\
         SecRuleUpdateTargetById 1-2 \"!ARGS:a|ARGS_NAMES\"\n\
         SecRuleUpdateTargetByTag t REQUEST_HEADERS ARGS\n\
         SecRuleUpdateTargetByMsg /^old/ !ARGS:b\n\
         SecRule ARGS a id:1,block,msg:old,t:lowercase,tag:one\n\
         SecRule ARGS a id:2,tag:t,msg:old,chain\nSecRule ARGS_GET b");
    let [one, two] = &set.rules[..] else { panic!() };
    assert_eq!(one.disruptive, Disruptive::Deny { status: 500 });
    assert_eq!(one.message.as_ref().and_then(Template::literal), Some("new"));
    assert_eq!(one.links[0].transformations, [Transformation::Trim]);
    assert_eq!(one.tags.len(), 2);
    let shown = |link: &Link| {
        let targets = link.targets.iter().map(ToString::to_string);
        targets.chain(link.exclusions.iter().map(|out| format!("!{out}"))).collect::<Vec<_>>()
    };
    // An update by message uses the original message, not the result of an earlier update, unless that comes first.
    assert_eq!(shown(&one.links[0]), ["ARGS", "ARGS_NAMES", "!ARGS:a"]);
    assert_eq!(shown(&two.links[0]), ["ARGS_NAMES", "REQUEST_HEADERS", "!ARGS:a", "!ARGS:b"]);
    assert_eq!(shown(&two.links[1]), ["ARGS_GET"]);
    assert_eq!(two.links[1].actions.len(), 1);
}

#[test]
fn settings_are_set() {
    let settings = set("secruleengine on\nSecRequestBodyAccess On\nSecRequestBodyLimit 1\n\
         SecRequestBodyNoFilesLimit 2\nSecRequestBodyInMemoryLimit 8\nSecRequestBodyLimitAction ProcessPartial\nSecRequestBodyJsonDepthLimit 3\n\
         SecArgumentsLimit 4\nSecUploadFileLimit 5\nSecParseXmlIntoArgs On\nSecResponseBodyAccess On\n\
         SecResponseBodyLimit 6\nSecResponseBodyLimitAction ProcessPartial\n\
         SecResponseBodyMimeType text/HTML 'text/xml text/html'\nSecResponseBodyMimeType application/json\n\
         SecCollectionTimeout 7\nSecComponentSignature a/1\nSecComponentSignature \"b 2\"\nSecWebAppId w\n\
         SecSensorId s\nSecAuditEngine RelevantOnly\nSecAuditLogParts abz\nSecAuditLogRelevantStatus ^5")
    .settings;
    let expected = Settings {
        engine: Some(EngineMode::On),
        request_body_access: true,
        request_body_limit: 1,
        request_body_limit_said: true,
        request_body_no_files_limit: 2,
        request_body_in_memory_limit: 8,
        request_body_limit_action: BeyondLimit::ProcessPartial,
        request_body_limit_action_said: true,
        request_body_json_depth_limit: 3,
        arguments_limit: 4,
        upload_file_limit: 5,
        xml_arguments: XmlArguments::On,
        response_body_access: true,
        response_body_limit: 6,
        response_body_limit_action: BeyondLimit::ProcessPartial,
        response_body_types: ["text/html", "text/xml", "application/json"].map(Into::into).into(),
        collection_timeout: 7,
        unicode_map: None,
        components: ["a/1", "b 2"].map(Into::into).into(),
        web_app_id: Some("w".into()),
        sensor_id: Some("s".into()),
        audit_engine: AuditEngine::RelevantOnly,
        audit_parts: "ABZ".chars().fold(AuditParts::NONE, AuditParts::with),
        audit_relevant_status: StatusSet::new(500..600),
    };
    assert_eq!(settings, expected);
    assert_eq!(set("SecResponseBodyMimeTypesClear").settings.response_body_types, [] as [Box<str>; 0]);
}

#[test]
fn statuses_are_those_that_match() {
    let matches = |pattern: &str, status: u16| {
        set(&format!("SecAuditLogRelevantStatus \"{pattern}\""))
            .settings
            .audit_relevant_status
            .contains(status)
    };
    for (pattern, inside, outside) in [
        ("^(?:5|4(?!04))", [500, 403, 599].as_slice(), [404, 200, 145].as_slice()),
        ("^(?:(5|4)(0|1)[0-9])$", &[500, 419], &[420, 501 + 20]),
        ("0", &[200, 404, 110], &[444, 111]),
        ("^4\\d{2}$|503", &[400, 499, 503], &[500, 504]),
        ("^[^45]", &[200, 999], &[404, 500]),
        ("^5.+?3$", &[503, 593], &[53, 504]),
        ("^4(?=0)", &[404], &[414]),
        ("^(4|)0*4?$", &[404, 400], &[414]),
        ("(2*)*1", &[221, 201], &[222]),
    ] {
        for status in inside {
            assert!(matches(pattern, *status), "{pattern} {status}");
        }
        for status in outside {
            assert!(!matches(pattern, *status), "{pattern} {status}");
        }
    }
}

#[test]
fn lines_are_continued_quoted_and_commented() {
    let text = "\u{feff}# comment \\\r\n\r\n  SecRule \\\r\n ARGS \\\r\n   '@rx a b\"\\'' \\\r\n\t\"id:1,\\\r\n  msg:'a \\\r\n  b'\"\r\n#end";
    let rule = rule(text);
    assert_eq!(rule.place.to_string(), "t:3:3");
    assert_eq!(rule.links[0].operator, Operator::Rx(Regex::new("a b\"'")));
    assert_eq!(rule.message.unwrap().literal(), Some("a   b"));
}

#[test]
fn places_are_those_of_lines_that_continue() {
    let said = |text: &str| {
        let outcome = load(&[Source::text("t", text)], &mut Memory::default());
        outcome.map_or_else(|problems| shown(&problems), |_| String::new())
    };
    assert_eq!(
        said("SecRule ARGS \\\n  é|\\\n a \"id:1,\\\n\n    ärgs\""),
        "t:3:4: the quote `\"` is not closed\nt:5:5: there is no directive `ärgs\"`\n"
    );
    assert_eq!(
        said("SecRule ARGS \\\n  \"@rx é\" \\\n\"id:1,\\\n    ärgs\""),
        "t:4:5: there is no action `ärgs`\n"
    );
    assert_eq!(said("SecRule ARGS \\\n  \"é[\" \"id:1\""), "t:2:5: this class has no closing bracket\n");
}

#[test]
fn files_are_found_from_where_they_are_named() {
    let mut files = Memory::default()
        .with(
            "/etc/waf/main.conf",
            "Include rules/*.conf\nIncludeOptional none/*.conf\nInclude \"/opt/last.conf\"",
        )
        .with("/etc/waf/rules/a.conf", "SecRule ARGS \"@pmFromFile a.data /opt/b.data\" id:1")
        .with(
            "/etc/waf/rules/b.conf",
            "SecRule ARGS \"@ipMatchFromFile ../ips\" id:2\nSecRule ARGS \"@pmf a.data\" id:4",
        )
        .with("/etc/waf/rules/../ips", "192.0.2.1 # office\n#\n\n2001:db8::/32\r\n")
        .with("/etc/waf/rules/a.data", b"\xef\xbb\xbf# words\n One two \n\n\xff|41|\r\n".as_slice())
        .with("/opt/b.data", "three")
        .with("/opt/last.conf", "SecRule ARGS a id:3");
    let set = load(&[Source::files("/etc/waf/*.conf")], &mut files).unwrap();
    assert_eq!(ids(&set), [1, 2, 4, 3]);
    assert_eq!(set.rules[3].place.to_string(), "/opt/last.conf:1:1");
    let Operator::Pm(phrases) = &set.rules[0].links[0].operator else { panic!() };
    assert_eq!(phrases.iter().collect::<Vec<_>>(), [b"One two".as_slice(), b"\xff|41|", b"three"]);
    let Operator::IpMatch(networks) = &set.rules[1].links[0].operator else { panic!() };
    assert_eq!(networks.len(), 2);
}

#[test]
fn a_file_may_be_included_twice() {
    let mut files = Memory::default().with("a", "SecComponentSignature a");
    let set = load(&[Source::text("t", "Include a\nInclude a")], &mut files).unwrap();
    assert_eq!(set.settings.components.len(), 2);
}

#[test]
fn rules_are_selected() {
    let set =
        set("SecRule ARGS a id:1,tag:a,tag:b\nSecRule ARGS a id:2,tag:b,msg:'m %{TX.0}'\nSecAction id:3");
    let selected = |selection| set.index().selected(&selection);
    assert_eq!(selected(RuleSelection::Ids(vec![1..=1, 3..=9])), [0, 2]);
    assert_eq!(selected(RuleSelection::Tag(TextMatch::Exact("b".into()))), [0, 1]);
    assert_eq!(selected(RuleSelection::Message(TextMatch::Exact("m %{TX.0}".into()))), [1]);
    assert_eq!(selected(RuleSelection::Message(TextMatch::Pattern(Regex::new("m")))), [1]);
}

#[test]
fn what_rules_need_and_is_not_there() {
    let needs =
        |rules: &str| needs(&set(rules), true).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let body = "SecRule ARGS|REQUEST_HEADERS a \"id:1,phase:2\"\nSecRule REQUEST_BODY b \"id:2,phase:2\"\n";
    assert_eq!(
        needs(body),
        "t:1:1: bodies of requests are not looked at, and the rule 1 and 1 more would: what a POST sends passes \
         (write `SecRequestBodyAccess On`, as the recommended configuration does, which comes first)"
    );
    assert_eq!(needs(&format!("{body}SecRequestBodyAccess On\n")), "");
    assert_eq!(needs(&format!("{body}SecAction id:3,phase:1,ctl:requestBodyAccess=On\n")), "");
    assert_eq!(needs("SecRule REQUEST_HEADERS a \"id:1,phase:2\"\nSecRule ARGS a \"id:2,phase:1\"\n"), "");
    let setup = "SecAction id:900990,phase:1,pass,setvar:tx.crs_setup_version=4250\n";
    let rule = "SecRule &TX:crs_setup_version \"@eq 0\" \"id:901001,phase:1,deny,status:500\"\n";
    let told = |what: &str, line: u32| {
        format!(
            "t:{line}:1: {what}: the rule 901001 refuses every request (name crs-setup.conf, a copy of \
             crs-setup.conf.example, before rules/*.conf)"
        )
    };
    assert_eq!(needs(&format!("{setup}{rule}")), "");
    assert_eq!(
        needs(&format!("{rule}{setup}")),
        told("crs-setup.conf stands behind the rules of the Core Rule Set", 1)
    );
    assert_eq!(needs(rule), told("the rules of the Core Rule Set are there without their crs-setup.conf", 1));
    assert_eq!(needs(&format!("SecAction id:1,phase:1,pass,ctl:ruleRemoveById=901001\n{rule}")), "");
}

/// A rule that is a comment goes on where its lines say so, as in ModSecurity 3; other comments do not.
#[test]
fn comments_that_were_rules_go_on() {
    let ids = |text: &str| {
        let set = set(&format!("{text}\nSecAction \"id:9,phase:1,pass\""));
        set.rules.iter().map(|rule| rule.id).collect::<Vec<_>>()
    };
    let rule = "SecRule ARGS \"@rx a\" \"id:1,phase:1,pass\"";
    for text in [
        "#SecRule ARGS \"@rx a\" \\\n    \"id:1,phase:1,deny\"",
        "  # SecRule ARGS \"@rx a\" \\\r\n    \"id:1,\\\r\n  phase:1,\\ \r\n    deny\"\r",
        "#\tSecAction \\\n    \"id:1,phase:1,deny\"",
        "#SecRuleRemoveById \\\n   7",
        "#SecRule ARGS \"@rx a\" \\\n#    \"id:1,phase:1,deny\"",
        &format!("#SecRule ARGS \"@rx a\" \\\n{rule}"),
    ] {
        assert_eq!(ids(text), [9], "{text}");
    }
    // Behind an empty line ModSecurity takes some along and loads others: here all are loaded.
    for text in [
        &format!("#SecRule ARGS \"@rx a\" \\ \n\n{rule}"),
        &format!("#SecRule ARGS \"@rx a\" \\\n \n{rule}"),
        &format!("#SecRule ARGS \"@rx a\" \\\n  \"id:3,phase:1\" \\\n\n{rule}"),
        &format!("#SecAction \\\n\n{rule}"),
    ] {
        assert_eq!(ids(text), [1, 9], "{text}");
    }
    for text in [
        "# words \\",
        "# see SecRule \\",
        "##SecRule \\",
        "#secrule \\",
        "#SecMarker a \\",
        "#SecRule ARGS a \\\n#b",
    ] {
        assert_eq!(ids(&format!("{text}\n{rule}")), [1, 9], "{text}");
    }
    assert_eq!(set("SecAction \"id:9,phase:1,pass\"\n#SecRule ARGS \\").rules.len(), 1);
}
