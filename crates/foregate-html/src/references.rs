//! Character references, as they stand in attributes and text.

/// Resolves the references that attributes of links have: numbers, and the five that XML knows. Others stay.
pub(crate) fn resolve(text: &str) -> String {
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'&', rest.as_bytes()) {
        let (before, reference) = rest.split_at(at);
        resolved.push_str(before);
        match one(reference) {
            Some((character, length)) => {
                resolved.push(character);
                rest = reference.get(length..).unwrap_or_default();
            }
            None => {
                resolved.push('&');
                rest = reference.get(1..).unwrap_or_default();
            }
        }
    }
    resolved.push_str(rest);
    resolved
}

/// The character that stands at the start, and how long its reference is. Only ASCII: another one would have to be brought
/// into the form of the document.
fn one(reference: &str) -> Option<(char, usize)> {
    const NAMES: [(&str, char); 7] = [
        ("&amp;", '&'),
        ("&lt;", '<'),
        ("&gt;", '>'),
        ("&quot;", '"'),
        ("&apos;", '\''),
        ("&commat;", '@'),
        ("&period;", '.'),
    ];
    if let Some((name, character)) = NAMES.iter().find(|(name, _)| reference.starts_with(name)) {
        return Some((*character, name.len()));
    }
    let (code, end) = {
        let end = reference.get(..12).unwrap_or(reference).find(';')?;
        let number = reference.get(2..end).filter(|_| reference.starts_with("&#"))?;
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        (code, end)
    };
    let character = char::from_u32(code).filter(char::is_ascii)?;
    Some((character, end + 1))
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn references_become_their_characters() {
        assert_eq!(resolve("a&amp;b&#64;c&#x40;d&commat;"), "a&b@c@d@");
        assert_eq!(resolve("&nbsp;&#233;&#xfffffff;&#;&"), "&nbsp;&#233;&#xfffffff;&#;&");
        assert_eq!(resolve(""), "");
    }
}
