//! The heads of requests to origins and of their responses: HTTP/1 heads are written from the canonical
//! request, HTTP/2 heads are converted for and from `h2`.

use foregate_wire::serialise::{
    end_head, write_content_length, write_field, write_fields, write_request_line,
};
use foregate_wire::{
    BodyDecoder, BodyLength, HeadLimits, HeaderList, NameId, ResponseError, ResponseHead, Version,
};
use h2::ext::Protocol;

use crate::error::Error;
use crate::link::{LinkError, fields};
use crate::message::request::Request;
use crate::settings;

/// Looks for malformed chunks in the part of a body that arrived with its head. If one is found now, the
/// client can still get an error status; a later one can only break off the response.
pub(super) fn check_chunks(ahead: &[u8], limits: &HeadLimits) -> Result<(), Error> {
    let mut decoder = BodyDecoder::new(BodyLength::Chunked, limits);
    let mut trailers = HeaderList::default();
    let mut rest = ahead;
    while !rest.is_empty() {
        let decoded =
            decoder.decode(rest, &mut trailers).map_err(|error| Error::Origin(LinkError::Body(error)))?;
        rest = rest.get(decoded.consumed..).unwrap_or_default();
        if decoded.done {
            break;
        }
    }
    Ok(())
}

/// The head that an HTTP/1 origin gets, from the canonical request alone.
pub(super) fn write_head(out: &mut Vec<u8>, request: &Request, upstream: &settings::UpstreamSettings) {
    write_request_line(out, &request.head.method, request.target_for_origin());
    write_field(out, b"Host", request.origin_authority(upstream).as_bytes());
    write_fields(out, &request.head.headers);
    // `TE` is meant for the next hop alone, so `Connection` must name it (RFC 9110, section 10.1.4).
    let takes_trailers = request.head.headers.contains(NameId::Te);
    match (request.upgrade.is_some(), takes_trailers) {
        (true, true) => write_field(out, b"Connection", b"Upgrade, TE"),
        (true, false) => write_field(out, b"Connection", b"Upgrade"),
        (false, true) => write_field(out, b"Connection", b"TE"),
        (false, false) => {}
    }
    if let Some(protocol) = &request.upgrade {
        write_field(out, b"Upgrade", protocol);
        if let Some(key) = &request.websocket_key {
            write_field(out, b"Sec-WebSocket-Key", key.as_bytes());
        }
    }
    match request.length {
        BodyLength::Fixed(length) => write_content_length(out, length),
        BodyLength::Chunked => write_field(out, b"Transfer-Encoding", b"chunked"),
        // Origins may require a length for methods that usually have a body (RFC 9110, section
        // 8.6).
        BodyLength::Empty if request.head.method.has_body_usually() => write_content_length(out, 0),
        _ => {}
    }
    end_head(out);
}

pub(super) fn h2_request(
    request: &Request,
    upstream: &settings::UpstreamSettings,
) -> Result<http::Request<()>, Error> {
    let internal = |_| Error::Internal;
    let mut built = http::Request::new(());
    let extended = request.upgrade.as_deref();
    let connect = extended.is_some() || request.opens_tunnel();
    *built.method_mut() = if connect {
        http::Method::CONNECT
    } else {
        http::Method::from_bytes(request.head.method.as_bytes()).map_err(|_| Error::Internal)?
    };
    let uri = http::Uri::builder().authority(request.origin_authority(upstream));
    *built.uri_mut() = if connect && extended.is_none() {
        uri.build().map_err(internal)?
    } else {
        let scheme = if upstream.tls.is_some() { "https" } else { "http" };
        uri.scheme(scheme).path_and_query(request.target_for_origin()).build().map_err(internal)?
    };
    *built.version_mut() = http::Version::HTTP_2;
    *built.headers_mut() = fields::to_map(&request.head.headers);
    if let BodyLength::Fixed(length) = request.length
        && !connect
    {
        built.headers_mut().insert(http::header::CONTENT_LENGTH, length.into());
    }
    if extended.is_some() {
        built.extensions_mut().insert(Protocol::from_static("websocket"));
    }
    Ok(built)
}

pub(super) fn fill_head(head: &mut ResponseHead, map: &http::HeaderMap, status: u16) {
    head.clear();
    head.version = Version::Http2;
    head.status = status;
    fields::append(&mut head.headers, map);
}

/// Applies the limits of HTTP/1 heads that `h2` does not check.
pub(super) fn is_within(fields: &http::HeaderMap, limits: &HeadLimits) -> Result<(), Error> {
    if fields.len() > limits.fields {
        return Err(Error::Response(ResponseError::TooManyFields));
    }
    if fields.iter().any(|(name, value)| name.as_str().len() + value.len() > limits.line) {
        return Err(Error::Response(ResponseError::LineTooLong));
    }
    Ok(())
}
