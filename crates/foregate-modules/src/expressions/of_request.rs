//! Expressions over a request alone, for places that know no exchange.

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;

use foregate_module::Expression;
use foregate_rules::{FieldId, Lists, Scheme, Stage, StandardField};

use super::facts::Numbers;
use super::{Computed, Mistake, place};

/// A value of a request and the address of its client. It reads no named lists, no values of steps, and nothing about
/// the client's connection.
///
/// # Errors
///
/// The text has a mistake, or it reads another field, or none.
///
/// # Examples
///
/// ```
/// use foregate_modules::expressions::request_expression;
///
/// assert!(request_expression(r#"http.request.uri.args["user"][0]"#).is_ok());
/// assert!(request_expression("tls.server_name").is_err());
/// ```
pub fn request_expression(text: &str) -> Result<Arc<dyn Expression>, Mistake> {
    let scheme = Scheme::standard();
    let expression = scheme.compile_value(text, Stage::Request, &Lists::default())?;
    if let Some(field) = expression.reads().find(|field| !is_of_request(*field)) {
        let name = scheme.field(field).map_or("", |field| field.name.as_ref());
        let span = place(text, scheme.field(field), name);
        let help = "use parts of the request, such as http.request.headers, http.request.cookies or ip.src";
        return Err(Mistake::new(span, format!("`{name}` is not known here"), Some(help.to_string())));
    }
    if expression.reads().next().is_none() {
        let message = "this reads no part of the request, so it has the same value for all requests";
        return Err(Mistake::new(0..text.len(), message, None));
    }
    Ok(Arc::new(Computed { expression, numbers: Arc::<Numbers>::default() }))
}

/// Returns true if a field is a part of the request or the client's address.
fn is_of_request(field: FieldId) -> bool {
    use StandardField::{
        Cookie, Cookies, FullUri, Headers, HeadersNames, HeadersValues, Host, IpSrc, Method, RawUri,
        RawUriArgs, RawUriArgsNames, RawUriArgsValues, RawUriPath, RawUriQuery, Referer, Uri, UriArgs,
        UriArgsNames, UriArgsValues, UriPath, UriPathExtension, UriQuery, UserAgent, Version,
    };
    let of_head = [
        Host,
        Method,
        Version,
        Headers,
        HeadersNames,
        HeadersValues,
        Cookies,
        Cookie,
        UserAgent,
        Referer,
        IpSrc,
    ];
    let of_target = [
        Uri,
        UriPath,
        UriPathExtension,
        UriQuery,
        UriArgs,
        UriArgsNames,
        UriArgsValues,
        FullUri,
        RawUri,
        RawUriPath,
        RawUriQuery,
        RawUriArgs,
        RawUriArgsNames,
        RawUriArgsValues,
    ];
    field.standard().is_some_and(|field| of_head.contains(&field) || of_target.contains(&field))
}
