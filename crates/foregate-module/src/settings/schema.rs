//! Keys of the configuration, as tables that the reader, the documentation and the tests share.

/// The keys of a block.
#[derive(Debug)]
pub struct Block {
    /// The keys.
    pub keys: &'static [Key],
    /// Names that are reserved for later versions. A configuration that uses one is refused.
    pub later: &'static [&'static str],
}

/// One key: the name of a node, and its arguments, properties and block.
#[derive(Debug)]
pub struct Key {
    /// The name.
    pub name: &'static str,
    /// The text after the name in the documentation.
    pub usage: &'static str,
    /// The least and the greatest number of arguments.
    pub args: (u8, u8),
    /// Its properties.
    pub props: &'static [Prop],
    /// Its block, if it has one.
    pub block: Option<&'static Block>,
    /// Set if the key may occur several times.
    pub many: bool,
    /// Set if it is required.
    pub required: bool,
    /// The default, as it would be written after the name; empty if [`otherwise`](Self::otherwise) describes it in words.
    pub default: &'static str,
    /// The default in words.
    pub otherwise: &'static str,
    /// The properties that hold a secret, which no message shows. An empty name stands for all arguments, because users
    /// easily confuse their order.
    pub secrets: &'static [&'static str],
    /// An example line, with another value than the default.
    pub example: &'static str,
    /// Its description.
    pub about: &'static str,
}

/// A property of a key.
#[derive(Debug)]
pub struct Prop {
    /// The name.
    pub name: &'static str,
    /// The text after `=`.
    pub usage: &'static str,
    /// Set if it is required.
    pub required: bool,
    /// The default.
    pub default: &'static str,
    /// Its description.
    pub about: &'static str,
}

/// Any number of arguments.
pub const ANY: u8 = u8::MAX;

impl Key {
    /// A key with one argument.
    #[must_use]
    pub const fn one(
        name: &'static str,
        usage: &'static str,
        example: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            usage,
            args: (1, 1),
            props: &[],
            block: None,
            many: false,
            required: false,
            default: "",
            otherwise: "",
            secrets: &[],
            example,
            about,
        }
    }

    /// A key that is on if it is present, unless its argument is `#false`.
    #[must_use]
    pub const fn flag(
        name: &'static str,
        default: &'static str,
        example: &'static str,
        about: &'static str,
    ) -> Self {
        Self { args: (0, 1), ..Self::one(name, "[#true|#false]", example, about) }.default(default)
    }

    /// A key that only has a block.
    #[must_use]
    pub const fn block(
        name: &'static str,
        block: &'static Block,
        example: &'static str,
        about: &'static str,
    ) -> Self {
        Self { args: (0, 0), block: Some(block), ..Self::one(name, "{ ... }", example, about) }
    }

    /// Sets the default.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// Sets the default in words.
    #[must_use]
    pub const fn otherwise(self, otherwise: &'static str) -> Self {
        Self { otherwise, ..self }
    }

    /// Sets the number of arguments: `least` to `most`.
    #[must_use]
    pub const fn args(self, least: u8, most: u8) -> Self {
        Self { args: (least, most), ..self }
    }

    /// Sets the block.
    #[must_use]
    pub const fn with(self, block: &'static Block) -> Self {
        Self { block: Some(block), ..self }
    }

    /// Sets the properties.
    #[must_use]
    pub const fn props(self, props: &'static [Prop]) -> Self {
        Self { props, ..self }
    }

    /// Marks these properties as secrets; an empty name marks the arguments.
    #[must_use]
    pub const fn secrets(self, secrets: &'static [&'static str]) -> Self {
        Self { secrets, ..self }
    }

    /// Lets the key occur several times.
    #[must_use]
    pub const fn many(self) -> Self {
        Self { many: true, ..self }
    }

    /// Makes the key required.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }
}
