//! The functions of the language.

mod json;
mod text;

pub(crate) use json::{json_integer, json_string};
pub(crate) use text::{
    address, decode_base64, encode_base64, lower, number, remove_bytes, sha256, split, substring, upper,
    url_decode,
};

/// A function of the language, as the reference shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its call and result; arguments in `[]` are optional.
    pub usage: &'static str,
    /// Its description, a sentence or two.
    pub about: &'static str,
}

/// All functions, by name.
pub const FUNCTIONS: &[Function] = &[
    function(
        "all",
        "all(array of booleans): boolean",
        "True if all elements are true, or if there are none.",
    ),
    function(
        "any",
        "any(array of booleans): boolean",
        "True if any element is true; false if there are none.",
    ),
    function(
        "cidr",
        "cidr(address, bits4, bits6): address",
        "The address cut to its first `bits4` bits (1 to 32) if it is IPv4, to `bits6` (1 to 128) if it is IPv6.",
    ),
    function(
        "cidr6",
        "cidr6(address, bits): address",
        "An IPv6 address cut to its first bits (1 to 128); an IPv4 address stays as it is.",
    ),
    function(
        "concat",
        "concat(value, ...): text",
        "The values one behind the other. Numbers, addresses and booleans become texts; what is absent adds nothing.",
    ),
    function(
        "decode_base64",
        "decode_base64(text): text",
        "The decoded Base64, in either alphabet and with or without padding; absent if it is invalid.",
    ),
    function(
        "encode_base64",
        "encode_base64(text [, flags]): text",
        "The text in Base64 without padding; `\"p\"` pads, `\"u\"` takes the alphabet for URLs.",
    ),
    function("ends_with", "ends_with(text, end): boolean", "True if the text ends with the other."),
    function("has_key", "has_key(map, name): boolean", "True if the map has a value under the name."),
    function(
        "has_value",
        "has_value(map or array, value): boolean",
        "True if one of the values is this literal.",
    ),
    function(
        "join",
        "join(array, separator): text",
        "The elements with the separator between them; absent for no elements.",
    ),
    function("len", "len(text or array): number", "The bytes of a text, or the elements of an array."),
    function(
        "lookup_json_integer",
        "lookup_json_integer(text, key, ...): number",
        "The whole number under the keys (names, or positions from 0) in a JSON document; absent if there is none. Of several under one name the last.",
    ),
    function(
        "lookup_json_string",
        "lookup_json_string(text, key, ...): text",
        "The text under the keys (names, or positions from 0) in a JSON document; absent if there is none. Of several under one name the last.",
    ),
    function("lower", "lower(text): text", "The text with ASCII letters in lower case."),
    function(
        "regex_replace",
        "regex_replace(text, pattern, replacement): text",
        "The text with the first match replaced; `${1}` is what the first group took, `$$` is `$`.",
    ),
    function("remove_bytes", "remove_bytes(text, bytes): text", "The text without any of these bytes."),
    function("sha256", "sha256(text): text", "The SHA-256 hash in 64 lower-case hexadecimal digits."),
    function(
        "split",
        "split(text, separator, limit): array of texts",
        "The parts between separators, at most `limit` (1 to 128); the last part holds what is left.",
    ),
    function("starts_with", "starts_with(text, start): boolean", "True if the text starts with the other."),
    function(
        "substring",
        "substring(text, from [, to]): text",
        "The bytes from one position to before another; negative ones count from the end.",
    ),
    function("to_string", "to_string(number, boolean or address): text", "The value as a text."),
    function("upper", "upper(text): text", "The text with ASCII letters in upper case."),
    function(
        "url_decode",
        "url_decode(text [, options]): text",
        "The text with `%HH` decoded and `+` as a blank; `\"r\"` decodes until nothing changes, `\"u\"` takes `%uHHHH` too.",
    ),
    function(
        "wildcard_replace",
        "wildcard_replace(text, pattern, replacement [, flags]): text",
        "If the whole text matches the pattern, the replacement, with `${1}` for what the first `*` took, as little as \
         possible; else the text. `\"s\"` regards case.",
    ),
];

const fn function(name: &'static str, usage: &'static str, about: &'static str) -> Function {
    Function { name, usage, about }
}

pub(crate) fn is_known(name: &str) -> bool {
    FUNCTIONS.iter().any(|function| function.name == name)
}
