//! Configuration made of literals: nodes, and the other inputs of modules that read their settings.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::condition::{Condition, Conditions, Expression};
use crate::phase_id::PhaseId;
use crate::settings::value::ScalarKind;

use crate::settings::{
    ANY, Argument, Context, FromNode, Key, LogId, Node, Place, Problem, Scalar, UpstreamId,
};
use crate::steps::Steps;

/// A node of the configuration: `node("limit").arg(5).prop("per", "1s")`.
pub fn node(name: &str) -> Node {
    Node::new(name, Place::default())
}

impl Node {
    /// Adds an argument; see [`with_arg`](Self::with_arg) for one with a place.
    #[must_use]
    pub fn arg_literal(self, argument: impl Into<Argument>) -> Self {
        self.with_arg(argument.into())
    }

    /// Adds a property; see [`with_prop`](Self::with_prop) for one with a place.
    #[must_use]
    pub fn prop_literal(self, name: &str, argument: impl Into<Argument>) -> Self {
        self.with_prop(name, argument.into())
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        let scalar = Scalar { kind: ScalarKind::String, text: Cow::Owned(text.to_string()) };
        Self::new(scalar, Place::default())
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        let scalar = Scalar { kind: ScalarKind::Number, text: Cow::Owned(number.to_string()) };
        Self::new(scalar, Place::default())
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        let text = if flag { "#true" } else { "#false" };
        Self::new(Scalar { kind: ScalarKind::Bool(flag), text: Cow::Borrowed(text) }, Place::default())
    }
}

/// How expressions are compiled in tests; the crate of the expression language has one to give.
pub trait Compile {
    /// See [`Context::condition`].
    ///
    /// # Errors
    ///
    /// A sentence.
    fn condition(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Condition>, String>;

    /// See [`Context::expression`].
    ///
    /// # Errors
    ///
    /// A sentence.
    fn expression(&self, text: &str, phase: PhaseId) -> Result<Arc<dyn Expression>, String>;

    /// See [`Context::conditions`].
    ///
    /// # Errors
    ///
    /// A sentence, and the number of the text at fault.
    fn conditions(&self, texts: &[&str], phase: PhaseId) -> Result<Arc<dyn Conditions>, (usize, String)>;
}

/// The services for modules that read their settings, made of literals.
#[derive(Default)]
pub struct Literals {
    /// The names of the upstreams, in their order.
    pub upstreams: Vec<&'static str>,
    /// Files, by path.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// Steps, by the name of their module.
    pub steps: Vec<(&'static str, Steps)>,
    /// The log files that were asked for, in their order.
    pub logs: Vec<String>,
    /// The warnings.
    pub warnings: Vec<Problem>,
    /// The compiler of expressions.
    pub compile: Option<Box<dyn Compile>>,
}

impl Literals {
    fn compile(&self, text: &Argument) -> Result<&dyn Compile, Problem> {
        self.compile.as_deref().ok_or_else(|| text.wrong("nobody compiles expressions here"))
    }
}

impl Context for Literals {
    fn upstream(&mut self, name: &Argument) -> Result<UpstreamId, Problem> {
        let text = name.text()?;
        let found = self.upstreams.iter().position(|upstream| *upstream == text);
        let number = found.ok_or_else(|| name.wrong("there is no upstream of this name"))?;
        Ok(UpstreamId(number as u32))
    }

    fn file(&mut self, path: &Argument, limit: usize) -> Result<Arc<[u8]>, Problem> {
        let text = path.text()?;
        match self.files.iter().find(|(name, _)| *name == text) {
            Some((_, bytes)) if bytes.len() <= limit => Ok(bytes.as_slice().into()),
            Some(_) => Err(path.wrong(format!("{text} is longer than {limit} bytes"))),
            None => Err(path.wrong(format!("cannot read {text}"))),
        }
    }

    fn glob(&mut self, pattern: &Argument) -> Result<Vec<String>, Problem> {
        let text = pattern.text()?;
        let Some((start, end)) = text.split_once('*') else { return Ok(Vec::from([text.to_string()])) };
        let fits =
            |name: &&str| name.len() >= text.len() - 1 && name.starts_with(start) && name.ends_with(end);
        Ok(self.files.iter().map(|(name, _)| *name).filter(fits).map(ToString::to_string).collect())
    }

    fn log(&mut self, path: &Argument) -> Result<LogId, Problem> {
        let text = path.text()?;
        let known = self.logs.iter().position(|known| known == text);
        let number = known.unwrap_or(self.logs.len());
        if known.is_none() {
            self.logs.push(text.to_string());
        }
        Ok(LogId(number as u32))
    }

    fn warn(&mut self, warning: Problem) {
        self.warnings.push(warning);
    }

    fn condition(&mut self, text: &Argument, phase: PhaseId) -> Result<Arc<dyn Condition>, Problem> {
        self.compile(text)?.condition(text.text()?, phase).map_err(|message| text.wrong(message))
    }

    fn expression(&mut self, text: &Argument, phase: PhaseId) -> Result<Arc<dyn Expression>, Problem> {
        self.compile(text)?.expression(text.text()?, phase).map_err(|message| text.wrong(message))
    }

    fn conditions(&mut self, texts: &[Argument], phase: PhaseId) -> Result<Arc<dyn Conditions>, Problem> {
        let [first, ..] = texts else {
            return Err(Problem::new(Place::default(), "there is no expression"));
        };
        let strings = texts.iter().map(Argument::text).collect::<Result<Vec<_>, _>>()?;
        self.compile(first)?
            .conditions(&strings, phase)
            .map_err(|(number, message)| texts.get(number).unwrap_or(first).wrong(message))
    }

    fn steps(&mut self, name: &Argument) -> Result<Steps, Problem> {
        let text = name.text()?;
        let found = self.steps.iter().find(|(module, _)| *module == text);
        found.map(|(_, steps)| *steps).ok_or_else(|| name.wrong("there is no module of this name"))
    }
}

/// Reads settings from nodes without other inputs, as a configuration does: nodes that are not in the [key's](FromNode::KEY)
/// table are refused before the type is asked.
///
/// # Errors
///
/// Errors in the settings.
pub fn settings<T: FromNode>(nodes: &[Node]) -> Result<T, Problem> {
    if let Some(key) = T::KEY {
        if nodes.is_empty() {
            return Err(Problem::new(Place::default(), format!("`{}` stands nowhere", key.name)));
        }
        fit(nodes, core::slice::from_ref(key), &[])?;
    }
    T::from_nodes(nodes, &mut Literals::default())
}

/// Checks nodes against the keys of a block, and names that others read.
fn fit(nodes: &[Node], keys: &[Key], later: &[&str]) -> Result<(), Problem> {
    for (number, node) in nodes.iter().enumerate() {
        let name = node.name();
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            match later.contains(&name) {
                true => continue,
                false => return Err(node.wrong(format!("there is no key `{name}` here"))),
            }
        };
        let before = nodes.get(..number).unwrap_or_default();
        if !key.many && before.iter().any(|before| before.name() == name) {
            return Err(node.wrong(format!("`{name}` stands here already")));
        }
        let (least, most) = (usize::from(key.args.0), key.args.1);
        if node.args().len() < least || (most != ANY && node.args().len() > usize::from(most)) {
            return Err(node.wrong(format!("write `{name} {}`", key.usage)));
        }
        for (prop, value) in node.props() {
            if !key.props.iter().any(|known| known.name == prop) {
                return Err(value.wrong(format!("`{name}` has no property `{prop}`")));
            }
        }
        if let Some(missing) = key.props.iter().find(|prop| prop.required && node.prop(prop.name).is_none()) {
            return Err(node.wrong(format!("`{name}` needs the property `{}`", missing.name)));
        }
        match key.block {
            Some(block) => {
                fit(node.children(), block.keys, block.later)?;
                let missing = block.keys.iter().find(|key| key.required && node.child(key.name).is_none());
                if let Some(missing) = missing {
                    return Err(node.wrong(format!("`{name}` needs `{}` in its block", missing.name)));
                }
            }
            None => {
                if let Some(child) = node.children().first() {
                    return Err(child.wrong(format!("`{name}` has no block")));
                }
            }
        }
    }
    Ok(())
}
