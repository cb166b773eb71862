//! Keys of modules: their places, inheritance, sharing.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foregate_module::settings::{Block, Context, FromNode, Key, Node, Problem, Prop};
use foregate_module::{
    Emit, Filter, Never, Note, Notes, Pipeline, Plan, Step, Take, UpstreamId, Value, phase,
};
use foregate_proxy::configuration::Settings;
use foregate_proxy::settings::RoutePlan;

use super::{RefusedConfiguration, load_text};

/// One that may stand once.
#[derive(Debug, PartialEq)]
struct Greeting {
    text: String,
    loud: bool,
    times: u64,
}

static GREETING: Key = Key::one("greeting", "TEXT", "greeting \"hello\"", "Greets.")
    .props(&[Prop { name: "loud", usage: "#true|#false", required: false, default: "", about: "Shouts." }])
    .with(&Block {
        keys: &[Key::one("times", "NUMBER", "times 3", "How often.").default("1")],
        later: &["pause"],
    });

impl FromNode for Greeting {
    const KEY: Option<&'static Key> = Some(&GREETING);
    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Err(Problem::new(Default::default(), "more than one")) };
        let loud = node.prop("loud").map(|loud| loud.flag()).transpose()?;
        let times = node.child("times").map(|times| times.arg(0)?.number(1..=9)).transpose()?;
        assert!(node.prop("dry-run").is_none(), "the platform keeps it");
        assert!(times != Some(7), "a mistake of the module");
        Ok(Self {
            text: node.arg(0)?.text()?.into(),
            loud: loud.unwrap_or_default(),
            times: times.unwrap_or(1),
        })
    }
}

/// One that may stand several times.
#[derive(Debug, PartialEq)]
struct Tags(Vec<String>);

impl FromNode for Tags {
    const KEY: Option<&'static Key> = Some(&Key::one("tag", "TEXT", "tag \"a\"", "Tags.").many());
    fn from_nodes(nodes: &[Node], _: &mut dyn Context) -> Result<Self, Problem> {
        let text = |node: &Node| Ok(node.arg(0)?.text()?.to_owned());
        Ok(Self(nodes.iter().map(text).collect::<Result<_, Problem>>()?))
    }
}

/// One that asks for things.
#[derive(Debug, PartialEq)]
struct Asks {
    file: Vec<u8>,
    upstream: UpstreamId,
}

static ASKS: Key = Key::one("asks", "FILE of=UPSTREAM", "asks \"a\" of=\"app\"", "Asks.").props(&[Prop {
    name: "of",
    usage: "UPSTREAM",
    required: true,
    default: "",
    about: "Whom.",
}]);

impl FromNode for Asks {
    const KEY: Option<&'static Key> = Some(&ASKS);
    fn from_nodes(nodes: &[Node], context: &mut dyn Context) -> Result<Self, Problem> {
        let [node] = nodes else { return Err(Problem::new(Default::default(), "more than one")) };
        let file = context.file(node.arg(0)?, 8)?.to_vec();
        let of = node.prop("of").ok_or_else(|| node.wrong("of whom?"))?;
        Ok(Self { file, upstream: context.upstream(of)? })
    }
}

macro_rules! steps {
    ($($name:ident $label:literal $settings:ty, $filters:expr;)*) => { $(
        #[derive(Default)]
        struct $name;

        impl Step for $name {
            type At = phase::RequestEarly;
            type Settings = $settings;
            type In<'r> = ();
            type Out = (Notes,);
            type Stop = Never;
            const NAME: &'static str = $label;
            const ABOUT: &'static str = "Notes its settings.";
            const FILTERS: &'static [Filter] = $filters;
            fn run(&self, settings: &$settings, (): ()) -> ControlFlow<Never, Self::Out> {
                let value = format!("{settings:?}").into_bytes().into();
                ControlFlow::Continue((Notes(vec![Note { name: $label.into(), value }]),))
            }
        }
    )* };
}

steps! {
    Greet "greeting" Greeting, &[];
    Tag "tag" Tags, &[];
    Ask "asks" Asks, &[Filter::Proxied];
}

foregate_module::pipeline! { fn steps { Greet, Tag, Ask } }

const FRAME: &str = "listen \"127.0.0.1:1\"\nupstream \"app\" { server \"127.0.0.1:2\"; }\n";

fn load_in(folder: &Path, text: &str) -> Result<Settings, Box<RefusedConfiguration>> {
    load_text(&folder.join("test.kdl"), format!("{FRAME}{text}"), &Arc::new(steps()))
}

fn load(text: &str) -> Settings {
    load_in(Path::new(""), text).unwrap_or_else(|refused| panic!("{}", refused.plain()))
}

fn refused(text: &str) -> String {
    load_in(Path::new(""), text).map(|_| ()).unwrap_err().plain()
}

fn plan_of(settings: &Settings, host: &str, path: &str) -> RoutePlan {
    {
        let site = settings.sites.find(host.as_bytes()).unwrap();
        settings.sites.route(site, path.as_bytes()).unwrap().plan.clone()
    }
}

/// The settings of a step in a plan.
fn told<T: Send + Sync + 'static>(plan: &RoutePlan, name: &str) -> Option<Arc<T>> {
    let pipeline: Pipeline = steps();
    let plan: &Arc<Plan> = plan.get()?;
    let planned = plan
        .steps()
        .iter()
        .find(|planned| pipeline.entries()[usize::from(planned.step)].decl().name == name)?;
    Some(Arc::clone(&planned.settings).downcast().unwrap())
}

fn greeting(plan: &RoutePlan) -> Option<String> {
    Some(told::<Greeting>(plan, "greeting")?.text.clone())
}

fn tags(plan: &RoutePlan) -> Vec<String> {
    told::<Tags>(plan, "tag").map(|tags| tags.0.clone()).unwrap_or_default()
}

#[test]
fn a_module_that_panics_while_it_reads_is_told_as_the_mistake() {
    let told = refused("site \"*\" {\n    greeting \"a\" { times 7; }\n    proxy \"app\"\n}\n");
    assert!(told.contains("test.kdl:4:5"), "{told}");
    assert!(told.contains("the module panicked while it read this for its step `greeting`"), "{told}");
}

#[test]
fn the_innermost_wins_or_all_count() {
    let settings = load(
        "greeting \"file\"\ntag \"1\"\ntag \"2\"\n\
         site \"a\" { greeting \"site\"; tag \"3\"\n\
           route \"/r\" { greeting \"route\" loud=#true { times 3; }; tag \"4\"; respond 200; }\n\
           route \"/s\" { respond 200; }\n\
           route \"/off\" { greeting #false; tag #false; respond 200; }\n\
           route \"/only\" { tag \"5\"; tag #false; respond 200; }\n\
         }\n\
         site \"b\" { route \"/**\" { respond 200; }; }",
    );
    let plan = |host, path| plan_of(&settings, host, path);
    let route = told::<Greeting>(&plan("a", "/r"), "greeting").unwrap();
    assert_eq!(*route, Greeting { text: "route".into(), loud: true, times: 3 });
    assert_eq!(tags(&plan("a", "/r")), ["1", "2", "3", "4"]);
    assert_eq!(greeting(&plan("a", "/s")).as_deref(), Some("site"));
    assert_eq!(tags(&plan("a", "/s")), ["1", "2", "3"]);
    assert!(plan("a", "/off").get().is_none(), "nothing is left");
    assert_eq!(tags(&plan("a", "/only")), ["5"], "only what stands further out is turned off");
    assert_eq!(greeting(&plan("b", "/x")).as_deref(), Some("file"));
    assert_eq!(greeting(&settings.unrouted).as_deref(), Some("file"));
    assert_eq!(tags(&settings.unrouted), ["1", "2"]);
}

#[test]
fn equal_settings_and_plans_are_shared() {
    let site = |host: &str, extra: &str| {
        format!("site \"{host}\" {{ tag \"x\"; route \"/**\" {{ greeting \"g\"{extra}; respond 200; }}; }}\n")
    };
    let settings = load(&[site("a", ""), site("b", ""), site("c", " dry-run=#true")].concat());
    let [a, b, c] = ["a", "b", "c"].map(|host| plan_of(&settings, host, "/"));
    assert_eq!(a, b);
    assert_ne!(a, c);
    let routes = ["a", "b"].map(|host| {
        let site = settings.sites.find(host.as_bytes()).unwrap();
        Arc::clone(settings.sites.route(site, b"/").unwrap())
    });
    assert!(Arc::ptr_eq(&routes[0], &routes[1]), "routes that say the same are one");
    assert!(Arc::ptr_eq(&told::<Tags>(&a, "tag").unwrap(), &told::<Tags>(&c, "tag").unwrap()));
    let dry =
        |plan: &RoutePlan| plan.get().unwrap().steps().iter().map(|step| step.dry_run).collect::<Vec<_>>();
    assert_eq!((dry(&a), dry(&c)), (vec![false, false], vec![true, false]));
}

#[test]
fn without_keys_of_modules_there_is_no_plan() {
    let settings = load("site \"*\" { route \"/**\" { proxy \"app\"; }; }");
    assert!(plan_of(&settings, "x", "/").get().is_none());
    assert!(settings.unrouted.get().is_none());
    assert!(settings.watched.is_empty());
}

#[test]
fn files_and_upstreams_are_found() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("a.txt"), "content").unwrap();
    let text = "asks \"a.txt\" of=\"app\"\nsite \"*\" { route \"/p\" { proxy \"app\"; }; route \"/r\" { respond 200; }; }";
    let settings = load_in(&folder.0, text).unwrap_or_else(|refused| panic!("{}", refused.plain()));
    let asked = told::<Asks>(&plan_of(&settings, "x", "/p"), "asks").unwrap();
    assert_eq!(*asked, Asks { file: b"content".to_vec(), upstream: UpstreamId(0) });
    assert!(plan_of(&settings, "x", "/r").get().is_none(), "the step runs only where an upstream is asked");
    assert_eq!(settings.watched, [folder.0.join("a.txt")]);
    std::fs::write(folder.0.join("a.txt"), "too long a content").unwrap();
    let refused = load_in(&folder.0, text).map(|_| ()).unwrap_err().plain();
    assert!(refused.contains("a.txt is longer than 8"), "{refused}");
}

#[test]
fn equal_paths_in_other_folders_are_other_files() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
        std::fs::write(folder.0.join(name).join("x"), name).unwrap();
        let site =
            format!("site \"{name}\" {{ asks \"x\" of=\"app\"; route \"/**\" {{ proxy \"app\"; }}; }}");
        std::fs::write(folder.0.join(name).join("site.kdl"), site).unwrap();
    }
    let settings = load_in(&folder.0, "include \"*/site.kdl\"").unwrap();
    for name in ["a", "b"] {
        let asked = told::<Asks>(&plan_of(&settings, name, "/"), "asks").unwrap();
        assert_eq!(asked.file, name.as_bytes());
    }
}

#[test]
fn mistakes_are_told_as_for_our_own_keys() {
    let site = "site \"*\" { route \"/**\" { respond 200; }; }\n";
    let cases = [
        ("greting \"x\"", "3:1: error: `greting` is not known", "did you mean `greeting`?"),
        ("greeting", "3:1: error: `greeting` needs a value", "write `greeting TEXT`"),
        ("greeting \"x\" lod=1", "3:18: error: `greeting` has no property `lod`", "did you mean `loud`?"),
        ("greeting \"x\" wen=1", "3:18: error: `greeting` has no property `wen`", "did you mean `when`?"),
        ("greeting \"x\" loud=1", "3:19: error: `loud=1`: expected #true or #false", ""),
        ("greeting \"x\" dry-run=1", "3:22: error: `dry-run=1`: expected #true or #false", ""),
        ("greeting \"x\" { times 10; }", "3:22: error: `times 10`: expected a whole number from 1 to 9", ""),
        (
            "greeting \"x\" { time 1; }",
            "3:16: error: `time` is not known in `greeting`",
            "did you mean `times`?",
        ),
        ("greeting \"x\" { pause 1; }", "3:16: error: `pause` is not in this version", ""),
        ("greeting \"x\"\ngreeting \"y\"", "4:1: error: `greeting` is here twice", "3:1"),
        (
            "greeting #false loud=#true",
            "3:1: error: `greeting #false` turns it off and takes nothing else",
            "",
        ),
        (
            "greeting \"${env:SURELY_NOT_SET_1}\"",
            "3:10: error: `greeting \"${env:SURELY_NOT_SET_1}\"`: the environment",
            "",
        ),
        ("tag \"x\" dry-run=#true", "3:17: error: `tag` has no property `dry-run`", "write `tag TEXT`"),
        ("tag \"x\"\ntag 5", "4:5: error: `tag 5`: expected a text, found a number", "put it in quotes"),
        (
            "asks \"/dev/zero\" of=\"app\"",
            "3:6: error: `asks \"/dev/zero\"`: cannot read /dev/zero: it is not a file",
            "",
        ),
        ("asks \"\" of=\"app\"", "3:6: error: `asks \"\"`: expected a path", ""),
        (
            "greeting \"x\" when=\"ssl and http.hots eq 1\"",
            "3:28: error: there is no field `http.hots`",
            "did you mean `http.host`?",
        ),
        ("greeting \"x\" when=\"ssl \\\"\"", "3:24: error: this text has no end", ""),
        ("greeting \"x\" when=\"http.host\"", "3:20: error:", ""),
        ("greeting \"x\" when=\"http.response.code eq 200\"", "3:20: error:", ""),
        ("greeting \"x\" when=\"ip.src in $office\"", "3:30: error:", ""),
        ("greeting \"x\" when=5", "3:19: error: `when=5`: expected a text, found a number", ""),
        (
            "limits { greeting \"x\"; }",
            "3:10: error: `greeting` is not known in `limits`",
            "it belongs at the top of the file",
        ),
        (
            "list \"x\" type=\"ipp\"",
            "3:15: error: `type=\"ipp\"`: expected \"ip\" or \"host\" or \"string\"",
            "",
        ),
        ("list \"x y\" type=\"ip\"", "3:6: error: `list \"x y\"`: the name of a list", ""),
        (
            "list \"x\" type=\"ip\"\nlist \"x\" type=\"ip\"",
            "4:1: error: another list has this name already",
            "3:1",
        ),
        ("list \"x\" type=\"ip\" { entry \"1.2.3.4\" \"x\"; }", "3:38: error: `x` is neither an address", ""),
        ("list \"x\" type=\"ip\" file=\"none\"", "3:25: error: `file=\"none\"`: cannot read none", ""),
    ];
    for (line, message, help) in cases {
        let said = refused(&format!("{line}\n{site}"));
        assert!(said.contains(message) && said.contains(help), "{line}\n{said}");
        assert!(!said.contains("\ntest.kdl:"), "one mistake, one message:\n{said}");
    }
}

#[test]
fn conditions_belong_to_plans() {
    let settings = load(
        "list \"office\" \"192.0.2.0/24\" type=\"ip\"\ngreeting \"x\" when=\"ip.src in $office\"\n\
         site \"*\" { route \"/a\" { respond 200; }; route \"/b\" { greeting \"x\"; respond 200; }; }",
    );
    let conditions = |path| {
        let plan = plan_of(&settings, "x", path);
        plan.get().unwrap().steps().iter().map(|step| step.when.is_some()).collect::<Vec<_>>()
    };
    assert_eq!((conditions("/a"), conditions("/b")), (vec![true], vec![false]));
}

#[test]
fn a_mistake_further_out_is_told_once() {
    let said =
        refused("greeting 5\ntag 5\nsite \"*\" { tag \"x\"; route \"/**\" { tag \"y\"; respond 200; }; }");
    assert_eq!(said.matches("error:").count(), 2, "{said}");
}

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("foregate-modules-{number}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A value that moves.
struct Baton;

impl Value for Baton {
    type Data = ();
    const NAME: &'static str = "baton";
    const ABOUT: &'static str = "A value from one step to another.";
}

/// Emits it.
#[derive(Default)]
struct Gives;

impl Step for Gives {
    type At = phase::RequestEarly;
    type Settings = Greeting;
    type In<'r> = ();
    type Out = (Emit<Baton>,);
    type Stop = Never;
    const NAME: &'static str = "gives";
    const ABOUT: &'static str = "Emits the baton.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Greeting, (): ()) -> ControlFlow<Never, Self::Out> {
        ControlFlow::Continue((Emit(Some(())),))
    }
}

/// Takes it.
#[derive(Default)]
struct Gets;

impl Step for Gets {
    type At = phase::RequestRewrite;
    type Settings = Tags;
    type In<'r> = (Take<Baton>,);
    type Out = ();
    type Stop = Never;
    const NAME: &'static str = "gets";
    const ABOUT: &'static str = "Takes the baton.";
    const FILTERS: &'static [Filter] = &[];
    fn run(&self, _: &Tags, (Take(_),): Self::In<'_>) -> ControlFlow<Never> {
        ControlFlow::Continue(())
    }
}

foregate_module::pipeline! { fn batons { Gives, Gets } }

#[test]
fn a_route_on_which_a_taken_value_is_never_there_is_refused() {
    let load = |keys: &str| {
        let text = format!("{FRAME}site \"*\" {{\n    {keys}\n    route \"/**\" {{ respond 200; }}\n}}\n");
        load_text(Path::new("test.kdl"), text, &Arc::new(batons())).map(|_| ()).map_err(|wrong| wrong.plain())
    };
    assert_eq!(load("greeting \"a\"; tag \"x\""), Ok(()));
    for keys in ["tag \"x\"", "tag \"x\"; greeting \"a\" dry-run=#true"] {
        let told = load(keys).unwrap_err();
        let what = "the step `gets` takes `baton`, but no step before it on this route emits it";
        assert!(told.contains("test.kdl:4:5") && told.contains(what), "{told}");
        assert_eq!(told.matches(what).count(), 1, "{told}");
    }
}
