//! Patterns, what they require, and scans for it.

use foregate_waf::scan::{Literals, Pattern, PatternOptions, Scan, ScanHits, Words};
use proptest::prelude::*;
use regex_syntax::hir::{Class, Hir, HirKind};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text.as_bytes(), PatternOptions::default()).expect("a pattern")
}

/// What PCRE means, and where it matches.
#[test]
fn patterns_mean_what_pcre_means() {
    type Case = (&'static str, &'static [u8], Option<&'static [u8]>);
    #[rustfmt::skip]
    let cases: &[Case] = &[
        ("a.c", b"a\nc", Some(b"a\nc")),
        ("^b$", b"a\nb\nc", Some(b"b")),
        (r"\Ab", b"a\nb", None),
        (r"a\Z", b"ba\n", Some(b"a\n")),
        (r"a\z", b"ba\n", None),
        (r"\h+", b"a \t\xa0b", Some(b" \t\xa0")),
        (r"\v", b"a\x0cb", Some(b"\x0c")),
        (r"\R", b"a\r\nb", Some(b"\r\n")),
        (r"\N+", b"ab\nc", Some(b"ab")),
        (r"\x{41}\x42\x4\x", b"AB\x04\0", Some(b"AB\x04\0")),
        (r"\cA\e\a\f\07\012", b"\x01\x1b\x07\x0c\x07\n", Some(b"\x01\x1b\x07\x0c\x07\n")),
        (r"\Qa.b*\Ec", b"a.b*c", Some(b"a.b*c")),
        (r"\/\<\>\-\_\ \#", b"/<>-_ #", Some(b"/<>-_ #")),
        (r"a{,3}{x}", b"a{,3}{x}", Some(b"a{,3}{x}")),
        ("a{2,}?b{1}", b"aaab", Some(b"aaab")),
        ("]a}", b"]a}", Some(b"]a}")),
        ("[]a]+", b"a]", Some(b"a]")),
        ("[^]a]+", b"a]b", Some(b"b")),
        ("[a&&b~~d[e]+", b"&~[abde", Some(b"&~[abde")),
        (r"[\w-.]+", b"a-.b", Some(b"a-.b")),
        (r"[a\-z]+", b"bz-a", Some(b"z-a")),
        ("[[:alpha:][:digit:]_]+", b"-a1_-", Some(b"a1_")),
        ("[[:^alpha:]]+", b"a12b", Some(b"12")),
        (r"[\x00-\x1f\b\]]+", b"a\x08]\0b", Some(b"\x08]\0")),
        (r"[\Q]-\E]+", b"a-]", Some(b"-]")),
        ("\u{e9}+", b"\xc3\xa9\xa9", Some(b"\xc3\xa9\xa9")),
        ("[\u{e9}]", b"\xa9", Some(b"\xa9")),
        ("(?i)\\x{c3}STRASSE", b"\xc3strasse", Some(b"\xc3strasse")),
        ("(?i:A)b", b"aB ab", Some(b"ab")),
        ("(?#comment)a", b"a", Some(b"a")),
        ("(?x) a b # c", b"ab", Some(b"ab")),
        (r"(?x)[ ]\ a", b"  a", Some(b"  a")),
        (r"\bfoo\b", b"a foo-", Some(b"foo")),
        ("a|ab", b"ab", Some(b"a")),
        ("(?<n>a)(?'m'b)(?P<o>c)", b"abc", Some(b"abc")),
        ("", b"x", Some(b"")),
    ];
    for (text, value, expected) in cases {
        let found = pattern(text).find(value).map(|range| &value[range]);
        assert_eq!(found, *expected, "{text} in {}", value.escape_ascii());
    }
}

#[test]
fn options_change_what_patterns_mean() {
    let options = PatternOptions { ignore_case: true, multi_line: false, captures: true };
    let pattern = Pattern::new(b"^A(b)?(c)", options).unwrap();
    assert!(!pattern.is_match(b"\nac"));
    let groups = pattern.captures(b"ac", 0).unwrap();
    assert_eq!((&groups[0], &groups[1], &groups[2], &groups[3]), (&Some(0..2), &None, &Some(1..2), &None));
    assert_eq!(pattern.groups(), 3);
}

#[test]
fn captures_are_found_behind_a_place_and_counted_to_ten() {
    let options = PatternOptions { captures: true, ..PatternOptions::default() };
    let pattern = Pattern::new(b"(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)", options).unwrap();
    let groups = pattern.captures(b"0123456789abcdef", 2).unwrap();
    assert_eq!((groups[0].clone(), groups[9].clone()), (Some(2..13), Some(10..11)));
    assert!(pattern.captures(b"0123456789abcdef", 6).is_none());
    assert!(pattern.captures(b"", 6).is_none());
}

#[test]
fn what_takes_more_than_linear_time_is_an_error() {
    #[rustfmt::skip]
    let cases: &[(&str, &str, Option<usize>)] = &[
        ("a(?=b)", "look-aheads", Some(1)),
        ("a(?!b)", "look-aheads", Some(1)),
        ("(?<=a)b", "look-behinds", Some(0)),
        ("(?>a)", "atomic groups", Some(0)),
        ("a++", "possessive", Some(2)),
        ("a{2}+", "possessive", Some(4)),
        (r"(a)\1", "references back", Some(3)),
        (r"(?P<n>a)(?P=n)", "references back", Some(8)),
        ("(?R)", "recursive", Some(0)),
        ("(?(1)a)", "conditions", Some(0)),
        ("(*UTF8)a", "verbs", Some(0)),
        (r"\p{L}", "Unicode", Some(0)),
        (r"\x{263a}", "beyond", Some(0)),
        (r"\j", "no escape `\\j`", Some(0)),
        ("[a", "no closing bracket", Some(0)),
        ("[z-a]", "ends before it begins", Some(2)),
        ("[[:foo:]]", "no class of this name", Some(1)),
        ("a\\", "ends after a backslash", Some(1)),
        ("(?J)a", "flag `J`", Some(2)),
        ("(a", "unclosed group", None),
        ("*a", "missing expression", None),
        ("(?:(?:a{1000}){1000}){10}", "bytes when it is compiled", None),
    ];
    for (text, what, at) in cases {
        let error = Pattern::new(text.as_bytes(), PatternOptions::default()).unwrap_err();
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.at, *at, "{text}: {error}");
    }
    let long = vec![b'a'; 70_000];
    assert!(Pattern::new(&long, PatternOptions::default()).unwrap_err().what.contains("longer than"));
}

fn texts(text: &str) -> Option<Vec<String>> {
    let pattern = pattern(text);
    let texts = pattern.required()?.texts().iter();
    Some(texts.map(|text| text.escape_ascii().to_string()).collect())
}

#[test]
fn patterns_require_their_rarest_texts() {
    #[rustfmt::skip]
    let cases: &[(&str, Option<&[&str]>)] = &[
        ("abc", Some(&["abc"])),
        ("(?i)ABC", Some(&["abc"])),
        ("abc|def", Some(&["abc", "def"])),
        ("abc|b", Some(&["b"])),
        ("x?", None),
        ("[a-z]+", None),
        (r"\s*<\s*script", Some(&["script"])),
        (r"a.*union\s+select", Some(&["\\tselect", "\\nselect", "\\x0bselect", "\\x0cselect", "\\rselect", " select"])),
        ("(?:foo|bar)+baz", Some(&["barbaz", "foobaz"])),
        ("a{12}", Some(&["aaaaaaaa"])),
        ("(?:ab){2}", Some(&["abab"])),
        ("x(?:abc)?y", Some(&["xabcy", "xy"])),
        ("^$", None),
        ("[<>]", Some(&["<", ">"])),
        (r"[\x00-\x08]", Some(&["\\x00", "\\x01", "\\x02", "\\x03", "\\x04", "\\x05", "\\x06", "\\x07", "\\x08"])),
        ("abcdefghijk", Some(&["defghijk"])),
        ("wholly(?:one|[^a])", Some(&["wholly"])),
    ];
    for (text, expected) in cases {
        let expected = expected.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let mut got = texts(text);
        if let (Some(got), Some(_)) = (&mut got, &expected) {
            got.sort();
        }
        let sorted = expected.map(|mut texts| {
            texts.sort();
            texts
        });
        assert_eq!(got, sorted, "{text}");
    }
}

fn scan_of(patterns: &[Pattern]) -> (Scan, Vec<bool>) {
    let literals: Vec<Option<&Literals>> = patterns.iter().map(Pattern::required).collect();
    let entries = (0..).zip(&literals).filter_map(|(number, literals)| Some((number, (*literals)?.texts())));
    (Scan::new(entries).expect("few texts"), literals.iter().map(Option::is_some).collect())
}

#[test]
fn a_scan_finds_all_that_may_match() {
    let (scan, _) = scan_of(&[pattern("abc"), pattern("bc"), pattern("(?i)XYZ|abcd"), pattern("nothing")]);
    let mut found = ScanHits::new();
    scan.scan(b"_abCd_", &mut found);
    assert_eq!(found.iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((found.len(), found.has(2), found.has(3), found.has(1000)), (3, true, false, false));
    found.clear();
    assert!(found.is_empty());
    scan.scan(b"xyz", &mut found);
    assert_eq!(found.iter().collect::<Vec<_>>(), [2]);
}

/// What is found with one scan stays when another adds to it, and says nothing about what the other has seen.
#[test]
fn scans_add_to_what_others_have_found() {
    let (first, second) =
        (scan_of(&[pattern("aa")]).0, scan_of(&[pattern("bb"), pattern("aa"), pattern("cc")]).0);
    let mut found = ScanHits::new();
    first.scan(b"aa", &mut found);
    second.scan(b"bb aa", &mut found);
    assert_eq!(found.iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_automaton_over_many_texts_finds_them_as_well() {
    let words: Vec<Vec<u8>> = (0..20_000).map(|number| format!("word{number};").into_bytes()).collect();
    let scan = Scan::new((0..).zip(words.iter().map(std::iter::once))).unwrap();
    let mut found = ScanHits::new();
    scan.scan(b"a WORD7; and word19999;word20000;", &mut found);
    assert_eq!(found.iter().collect::<Vec<_>>(), [7, 19_999]);
    let long = vec![vec![b'a'; 2_000_000]];
    assert!(Scan::new([(0, &long)]).is_err());
}

#[test]
fn words_are_found_in_any_case() {
    let words = Words::new([&b"Select"[..], b"elec", b"", b"x"]).unwrap();
    assert_eq!(words.find(b"a SELECT"), Some(3..7), "the word that ends first");
    assert!(!words.is_match(b"a sele"));
    assert_eq!(words.iter().count(), 3);
    let literals = Literals::of_words(words.iter()).unwrap();
    assert_eq!(literals.texts(), [b"elec".to_vec(), b"x".to_vec()]);
}

/// A pattern made at random, with which texts that it matches are made as well.
#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Class(&'static str),
    Look(&'static str),
    Repeat(Box<Part>, &'static str),
    All(Vec<Part>),
    Any(Vec<Part>),
    Fold(Box<Part>),
}

impl Part {
    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(&regex_syntax::escape(text)),
            Self::Class(text) | Self::Look(text) => out.push_str(text),
            Self::Repeat(part, times) => {
                group("(?:", part, out);
                out.push_str(times);
            }
            Self::All(parts) => parts.iter().for_each(|part| group("(?:", part, out)),
            Self::Any(parts) => {
                out.push_str("(?:");
                for (at, part) in parts.iter().enumerate() {
                    if at > 0 {
                        out.push('|');
                    }
                    part.write(out);
                }
                out.push(')');
            }
            Self::Fold(part) => group("(?i:", part, out),
        }
    }
}

fn group(open: &str, part: &Part, out: &mut String) {
    out.push_str(open);
    part.write(out);
    out.push(')');
}

fn part() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        4 => "[a-eA-C<>'=0-2 ]{1,5}".prop_map(Part::Text),
        2 => prop::sample::select(vec![r"\s", r"\d", ".", "[a-c]", "[^a]", "[<>]", r"\W", "[A-Z]", r"[\x00-\x1f]"])
            .prop_map(Part::Class),
        1 => prop::sample::select(vec![r"\b", "^", "$", ""]).prop_map(Part::Look),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            2 => (inner.clone(), prop::sample::select(vec!["?", "*", "+", "+?", "{2}", "{1,3}", "{0,2}", "{10}"]))
                .prop_map(|(part, times)| Part::Repeat(Box::new(part), times)),
            3 => prop::collection::vec(inner.clone(), 1..5).prop_map(Part::All),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(Part::Any),
            1 => inner.prop_map(|part| Part::Fold(Box::new(part))),
        ]
    })
}

/// Numbers in a row that looks random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn parse(text: &str) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new();
    parser.unicode(false).utf8(false).dot_matches_new_line(true).multi_line(true);
    parser.build().parse(text).ok()
}

/// A text that the pattern matches, but for what it asks of the place.
fn sample(hir: &Hir, dice: &mut Dice, out: &mut Vec<u8>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.extend_from_slice(&literal.0),
        HirKind::Class(Class::Bytes(class)) if !class.ranges().is_empty() => {
            let range = class.ranges()[dice.below(class.ranges().len())];
            out.push(range.start() + dice.below(range.len()) as u8);
        }
        HirKind::Class(_) => {}
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min + 3).min(repetition.min + 3);
            for _ in 0..repetition.min + dice.below((most - repetition.min + 1) as usize) as u32 {
                sample(&repetition.sub, dice, out);
            }
        }
        HirKind::Capture(capture) => sample(&capture.sub, dice, out),
        HirKind::Concat(parts) => parts.iter().for_each(|part| sample(part, dice, out)),
        HirKind::Alternation(branches) => sample(&branches[dice.below(branches.len())], dice, out),
    }
}

/// A small change.
fn mutate(value: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(value.len() + 1);
    match (dice.below(5), value.get(at).copied()) {
        (0, Some(_)) => drop(value.remove(at)),
        (1, Some(_)) => value[at] = dice.below(256) as u8,
        (2, Some(byte)) if byte.is_ascii_alphabetic() => value[at] ^= 0x20,
        (3, _) => value.insert(at, b"a <'=\n"[dice.below(6)]),
        _ => value.splice(at..at, *b"b0").for_each(drop),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Whatever matches has one of the texts that the pattern requires.
    #[test]
    fn no_match_is_lost(parts in prop::collection::vec(part(), 1..4), seed in any::<u64>()) {
        let texts: Vec<String> = parts.iter().map(|part| { let mut text = String::new(); part.write(&mut text); text }).collect();
        let patterns: Vec<Pattern> = texts.iter().map(|text| pattern(text)).collect();
        let (scan, filtered) = scan_of(&patterns);
        let mut dice = Dice(seed);
        let mut found = ScanHits::new();
        for text in &texts {
            let hir = parse(text).expect("a pattern");
            for _ in 0..8 {
                let mut value = Vec::new();
                sample(&hir, &mut dice, &mut value);
                for _ in 0..4 {
                    found.clear();
                    scan.scan(&value, &mut found);
                    for (at, pattern) in patterns.iter().enumerate() {
                        let lost = filtered[at] && pattern.is_match(&value) && !found.has(at as u32);
                        prop_assert!(!lost, "`{}` matches `{}`", texts[at], value.escape_ascii());
                    }
                    mutate(&mut value, &mut dice);
                }
            }
        }
    }

    /// Any text is a pattern or an error.
    #[test]
    fn any_text_can_be_given(text in "[\\\\(){}|?*+.^$a-cxQE\\-&~,:<>=!#'0-9\\[\\]\u{e9} ]{0,20}") {
        let _ = Pattern::new(text.as_bytes(), PatternOptions::default());
    }
}

/// The patterns of the Core Rule Set, in the folder that the environment variable `CRS` names.
fn core_rule_set() -> Vec<String> {
    let folder = std::env::var_os("CRS").expect("CRS has to name the folder of the Core Rule Set");
    let mut folders = vec![std::path::PathBuf::from(folder)];
    let mut patterns = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "conf") {
                let text = std::fs::read_to_string(&path).expect("a file of rules");
                text.replace("\\\n", " ").lines().for_each(|line| patterns.extend(operator_rx(line)));
            }
        }
    }
    patterns.sort();
    patterns.dedup();
    patterns
}

/// The pattern of a rule's `"@rx ..."`.
fn operator_rx(line: &str) -> Option<String> {
    if !line.trim_start().starts_with("SecRule ") {
        return None;
    }
    let start = line.find("\"@rx ").map(|at| at + 5).or_else(|| line.find("\"!@rx ").map(|at| at + 6))?;
    let mut text = String::new();
    let mut characters = line[start..].chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(text),
            '\\' => match characters.next()? {
                '"' => text.push('"'),
                other => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    None
}

#[test]
#[ignore = "needs the Core Rule Set: its folder in the environment variable CRS"]
fn no_match_of_the_core_rule_set_is_lost() {
    let texts = core_rule_set();
    assert!(texts.len() >= 280, "only {} patterns", texts.len());
    let patterns: Vec<Pattern> = texts.iter().map(|text| pattern(text)).collect();
    let (scan, filtered) = scan_of(&patterns);
    let with = filtered.iter().filter(|has| **has).count();
    assert!(with * 10 >= texts.len() * 9, "only {with} of {} patterns require something", texts.len());
    let mut dice = Dice(1);
    let mut found = ScanHits::new();
    let mut matched = 0;
    for (at, text) in texts.iter().enumerate() {
        let Some(hir) = parse(text) else { continue };
        for _ in 0..40 {
            let mut value = Vec::new();
            sample(&hir, &mut dice, &mut value);
            for round in 0..4 {
                found.clear();
                scan.scan(&value, &mut found);
                let of_all = 0..if round == 0 { patterns.len() } else { 0 };
                for other in of_all.chain([at]) {
                    if filtered[other] && patterns[other].is_match(&value) {
                        matched += 1;
                        let text = &texts[other];
                        assert!(found.has(other as u32), "`{text}` matches `{}`", value.escape_ascii());
                    }
                }
                mutate(&mut value, &mut dice);
            }
        }
    }
    assert!(matched > 50_000, "only {matched} matches were compared");
}

/// What an ordinary request leaves to be matched.
#[test]
#[ignore = "needs the Core Rule Set: its folder in the environment variable CRS"]
fn ordinary_values_leave_few_candidates() {
    let patterns: Vec<Pattern> = core_rule_set().iter().map(|text| pattern(text)).collect();
    let (scan, _) = scan_of(&patterns);
    let mut found = ScanHits::new();
    for (value, most) in
        [("q", 0), ("hello", 5), ("shirt", 8), ("12345", 8), ("/index.html", 20), ("blue shirt", 25)]
    {
        found.clear();
        scan.scan(value.as_bytes(), &mut found);
        assert!(found.len() <= most, "{value} leaves {}", found.len());
    }
}
