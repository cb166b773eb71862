//! Nonces for scripts and styles that are inserted (CSP 3, section 2.3.1).

use foregate_module::{Edit, Edits, Field, Fields};

/// The fields that may contain a policy.
pub(crate) const FIELDS: [&str; 2] = ["content-security-policy", "content-security-policy-report-only"];
/// The directives that restrict script and style elements, each with its fallback: the directive that applies without
/// it.
const GUARDED: [(&str, &str); 2] = [("script-src-elem", "script-src"), ("style-src-elem", "style-src")];

/// A nonce of 128 bits, in letters, digits, `-` and `_`.
pub(crate) fn of(random: [u64; 2]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = random.iter().flat_map(|number| (0..11).map(move |place| number >> (6 * place) & 63));
    digits.filter_map(|digit| DIGITS.get(digit as usize)).map(|byte| char::from(*byte)).collect()
}

/// Changes the policies of a response so that they allow elements with this `nonce`.
///
/// A directive that allows all inline code stays unchanged: a nonce in it would forbid inline code without a nonce.
pub(crate) fn allow(response: &dyn Fields, nonce: &str) -> Edits {
    let mut edits = Edits::new();
    for name in FIELDS {
        let policies: Vec<_> = response.all(name).collect();
        if policies.is_empty() {
            continue;
        }
        let mut changed = policies.iter().map(|policies| allowed(policies, nonce));
        edits.push(Edit::Remove(name.into()));
        edits = changed.try_fold(edits, append(name)).unwrap_or_default();
    }
    edits
}

/// Adds a value of a field. `None` if no field can have the value, which cannot happen, because the value was made from
/// a field.
fn append(name: &'static str) -> impl FnMut(Edits, Vec<u8>) -> Option<Edits> {
    move |mut edits, value| {
        edits.push(Edit::Append(Field::new(name, value).ok()?));
        Some(edits)
    }
}

/// Changes a list of policies so that they allow the nonce.
fn allowed(policies: &[u8], nonce: &str) -> Vec<u8> {
    let policy = |policy: &[u8]| {
        let mut directives: Vec<Vec<u8>> = policy.split(|byte| *byte == b';').map(<[u8]>::to_vec).collect();
        for (element, kind) in GUARDED {
            guard(&mut directives, element, kind, nonce);
        }
        directives.join(&b";"[..])
    };
    policies.split(|byte| *byte == b',').map(policy).collect::<Vec<_>>().join(&b","[..])
}

fn guard(directives: &mut Vec<Vec<u8>>, element: &str, kind: &str, nonce: &str) {
    let named = |name: &str| {
        directives.iter().position(|directive| {
            words(directive).next().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        })
    };
    // Browsers that do not support the directive for elements (`script-src-elem`) use its fallback (`script-src`).
    let own: Vec<usize> = [named(element), named(kind)].into_iter().flatten().collect();
    if own.is_empty() {
        let Some(standard) = named("default-src").and_then(|at| directives.get(at)) else { return };
        let mut sources: Vec<u8> = words(standard).skip(1).collect::<Vec<_>>().join(&b' ');
        sources.splice(..0, format!(" {kind} ").into_bytes());
        directives.push(sources);
    }
    let own = if own.is_empty() { vec![directives.len() - 1] } else { own };
    for at in own {
        if let Some(directive) = directives.get_mut(at) {
            add(directive, nonce);
        }
    }
}

fn words(directive: &[u8]) -> impl Iterator<Item = &[u8]> {
    directive.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Adds the nonce to the sources of a directive.
fn add(directive: &mut Vec<u8>, nonce: &str) {
    let strict = |word: &[u8]| {
        let word = word.to_ascii_lowercase();
        [&b"'nonce-"[..], b"'sha256-", b"'sha384-", b"'sha512-", b"'strict-dynamic'"]
            .iter()
            .any(|start| word.starts_with(start))
    };
    let inline = words(directive).any(|word| word.eq_ignore_ascii_case(b"'unsafe-inline'"));
    if inline && !words(directive).any(strict) {
        return;
    }
    let mut kept: Vec<_> =
        words(directive).filter(|word| !word.eq_ignore_ascii_case(b"'none'")).map(<[u8]>::to_vec).collect();
    kept.push(format!("'nonce-{nonce}'").into_bytes());
    let blank: &[u8] = if directive.starts_with(b" ") { b" " } else { b"" };
    *directive = [blank, &kept.join(&b' ')].concat();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_have_128_bits() {
        let nonce = of([u64::MAX, 0]);
        assert_eq!(nonce.len(), 22);
        assert_ne!(of([1, 0]), of([0, 1]));
        assert!(nonce.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }

    #[test]
    fn policies_allow_what_says_the_nonce() {
        let allowed = |policy: &str| String::from_utf8(allowed(policy.as_bytes(), "N")).unwrap();
        assert_eq!(allowed("script-src 'self'"), "script-src 'self' 'nonce-N'");
        assert_eq!(allowed("img-src *; Script-Src 'none'"), "img-src *; Script-Src 'nonce-N'");
        assert_eq!(
            allowed("default-src 'self'; img-src *"),
            "default-src 'self'; img-src *; script-src 'self' 'nonce-N'; style-src 'self' 'nonce-N'"
        );
        assert_eq!(
            allowed("default-src 'none', script-src a.example"),
            "default-src 'none'; script-src 'nonce-N'; style-src 'nonce-N', script-src a.example 'nonce-N'"
        );
        assert_eq!(allowed("script-src 'unsafe-inline' 'self'"), "script-src 'unsafe-inline' 'self'");
        assert_eq!(
            allowed("script-src 'unsafe-inline' 'nonce-x'"),
            "script-src 'unsafe-inline' 'nonce-x' 'nonce-N'"
        );
        assert_eq!(
            allowed("script-src a; script-src-elem b; style-src c"),
            "script-src a 'nonce-N'; script-src-elem b 'nonce-N'; style-src c 'nonce-N'"
        );
        assert_eq!(allowed("frame-ancestors 'none'"), "frame-ancestors 'none'");
    }
}
