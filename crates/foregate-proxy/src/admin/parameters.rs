//! The parameters of a resource, in the query of its address.

/// The number of times that a parameter may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterRule {
    Required,
    Optional,
    Repeated,
}

/// The parameters of a resource.
pub(super) type Parameters = &'static [(&'static str, ParameterRule)];

/// The parameters of a request, which fit the rules of the resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GivenParameters(Vec<(&'static str, String)>);

impl GivenParameters {
    /// Reads a query in the encoding of HTML forms: `&` between the parameters, `+` or `%20` for a space.
    ///
    /// # Errors
    ///
    /// A parameter is missing, unknown, there too often or no text; returns the reason.
    pub(super) fn read(query: Option<&str>, known: Parameters) -> Result<Self, String> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            let Some((name, rule)) = known.iter().find(|(known, _)| *known == name) else {
                let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "unknown parameter `{}`; known are: {}. `&` inside a value is written %26",
                    name.escape_debug(),
                    names.join(", ")
                ));
            };
            if *rule != ParameterRule::Repeated && given.iter().any(|(before, _)| before == name) {
                return Err(format!("the parameter `{name}` may be there only once"));
            }
            given.push((name, value));
        }
        let missing = known.iter().find(|(name, rule)| {
            *rule == ParameterRule::Required && !given.iter().any(|(given, _)| given == name)
        });
        match missing {
            Some((name, _)) => Err(format!("the parameter `{name}` is missing")),
            None => Ok(Self(given)),
        }
    }

    /// The value of a parameter that is there at most once.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a parameter, in their order.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(given, _)| *given == name).map(|(_, value)| &**value)
    }
}

/// Decodes a name or a value.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("`{}` is not UTF-8 in percent-encoding", text.escape_debug());
    let digit = |at: Option<&u8>| at.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let (high, low) = digit(bytes.get(at)).zip(digit(bytes.get(at + 1))).ok_or_else(wrong)?;
                at += 2;
                u8::try_from(high * 16 + low).map_err(|_| wrong())?
            }
            byte => *byte,
        });
    }
    String::from_utf8(decoded).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Parameters = &[
        ("url", ParameterRule::Required),
        ("field", ParameterRule::Repeated),
        ("format", ParameterRule::Optional),
    ];

    #[test]
    fn parameters_are_decoded() {
        let given =
            GivenParameters::read(Some("url=http://a/%C3%A4?b=c%26d&&field=A:+1&field=B%3a%202"), KNOWN)
                .unwrap();
        assert_eq!(given.get("url"), Some("http://a/ä?b=c&d"));
        assert_eq!(given.all("field").collect::<Vec<_>>(), ["A: 1", "B: 2"]);
        assert_eq!(given.get("format"), None);
        assert_eq!(GivenParameters::read(Some("url"), KNOWN).unwrap().get("url"), Some(""));
    }

    #[test]
    fn wrong_parameters_are_refused_with_the_reason() {
        for (query, reason) in [
            (None, "the parameter `url` is missing"),
            (Some("field=a"), "the parameter `url` is missing"),
            (Some("url=a&url=b"), "the parameter `url` may be there only once"),
            (Some("url=http://a/?x=1&y=2"), "unknown parameter `y`; known are: url, field, format."),
            (Some("url=%e4"), "`%e4` is not UTF-8 in percent-encoding"),
            (Some("url=%"), "`%` is not UTF-8 in percent-encoding"),
            (Some("url=%4"), "`%4` is not UTF-8 in percent-encoding"),
            (Some("url=%+1"), "`%+1` is not UTF-8 in percent-encoding"),
        ] {
            let refusal = GivenParameters::read(query, KNOWN).unwrap_err();
            assert!(refusal.starts_with(reason), "{query:?}: {refusal}");
        }
    }
}
