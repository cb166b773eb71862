/*
 * The functions of this half for the other: see fg_host.
 */

#include "ngx_http_foregate.h"
#include "ngx_http_foregate_fields.h"

static int
ngx_http_foregate_target(void *data, fg_text path, fg_text args)
{
    ngx_http_request_t *r = data;
    u_char *copy = ngx_pnalloc(r->pool, path.len + args.len + 1);

    if (copy == NULL) {
        return -1;
    }
    ngx_memcpy(copy, path.data, path.len);
    ngx_memcpy(copy + path.len, args.data, args.len);
    r->uri.data = copy;
    r->uri.len = path.len;
    r->args.data = copy + path.len;
    r->args.len = args.len;
    r->valid_unparsed_uri = 0;
    r->valid_location = 0;
    /* It is to be encoded again on its way to an upstream. */
    r->quoted_uri = 1;
    ngx_http_set_exten(r);
    return 0;
}

static int
ngx_http_foregate_answer(void *data, uint32_t status, fg_text body)
{
    ngx_http_request_t *r = data;
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);

    if (ctx == NULL || ngx_http_foregate_clear_response(r) != NGX_OK) {
        return -1;
    }
    ctx->body.len = body.len;
    ctx->body.data = NULL;
    if (body.len) {
        ctx->body.data = ngx_pnalloc(r->pool, body.len);
        if (ctx->body.data == NULL) {
            return -1;
        }
        ngx_memcpy(ctx->body.data, body.data, body.len);
    }
    r->headers_out.status = status;
    r->headers_out.content_length_n = body.len;
    /* It is no longer the result of NGINX's own error. */
    r->err_status = 0;
    ctx->answered = 1;
    return 0;
}

static void
ngx_http_foregate_tls(void *data, fg_tls *out)
{
    ngx_memzero(out, sizeof(fg_tls));
#if (NGX_HTTP_SSL)
    ngx_http_request_t *r = data;
    ngx_connection_t *c = r->connection;
    ngx_str_t text;

    if (c->ssl == NULL) {
        return;
    }
    out->is_tls = 1;
    if (ngx_ssl_get_protocol(c, r->pool, &text) == NGX_OK) {
        /* It is a text of OpenSSL's, without a length. */
        text.len = ngx_strlen(text.data);
        out->version = ngx_http_foregate_text(&text);
    }
    if (ngx_ssl_get_server_name(c, r->pool, &text) == NGX_OK) {
        out->server_name = ngx_http_foregate_text(&text);
    }
    if (ngx_ssl_get_client_verify(c, r->pool, &text) == NGX_OK) {
        out->client_verified = text.len == sizeof("SUCCESS") - 1 && ngx_strncmp(text.data, "SUCCESS", text.len) == 0;
    }
    if (out->client_verified && ngx_ssl_get_subject_dn(c, r->pool, &text) == NGX_OK) {
        out->client_subject = ngx_http_foregate_text(&text);
    }
#endif
}

static void
ngx_http_foregate_now(uint64_t *unix_ms, uint64_t *steady_ms)
{
    ngx_time_t *now = ngx_timeofday();

    *unix_ms = (uint64_t) now->sec * 1000 + now->msec;
    *steady_ms = ngx_current_msec;
}

static void
ngx_http_foregate_log(void *data, int level, fg_text line)
{
    static const ngx_uint_t levels[] = { NGX_LOG_DEBUG, NGX_LOG_INFO, NGX_LOG_WARN, NGX_LOG_ERR };
    ngx_http_request_t *r = data;
    ngx_str_t text = { line.len, (u_char *) line.data };
    ngx_log_t *log = r != NULL ? r->connection->log : ngx_cycle->log;

    ngx_log_error(levels[level & 3], log, 0, "foregate: %V", &text);
}

static void
ngx_http_foregate_refuse(void *data, fg_text line)
{
    ngx_str_t text = { line.len, (u_char *) line.data };

    ngx_conf_log_error(NGX_LOG_EMERG, (ngx_conf_t *) data, 0, "foregate: %V", &text);
}

static void
ngx_http_foregate_address(struct sockaddr *address, fg_address *out)
{
    ngx_memzero(out, sizeof(fg_address));

    switch (address->sa_family) {
    case AF_INET:
        out->family = 4;
        ngx_memcpy(out->bytes, &((struct sockaddr_in *) address)->sin_addr, 4);
        break;
#if (NGX_HAVE_INET6)
    case AF_INET6:
        out->family = 6;
        ngx_memcpy(out->bytes, &((struct sockaddr_in6 *) address)->sin6_addr, 16);
        break;
#endif
    default:
        return;
    }
    out->port = ngx_inet_get_port(address);
}

/* The end of the connection that the client connected to. */
static void
ngx_http_foregate_local(void *data, fg_address *out)
{
    ngx_http_request_t *r = data;

    if (ngx_connection_local_sockaddr(r->connection, NULL, 0) == NGX_OK) {
        ngx_http_foregate_address(r->connection->local_sockaddr, out);
    } else {
        ngx_memzero(out, sizeof(fg_address));
    }
}

static void *
ngx_http_foregate_open_log(void *data, fg_text path)
{
    ngx_conf_t *cf = data;
    ngx_str_t name;

    name.len = path.len;
    name.data = ngx_pnalloc(cf->pool, path.len + 1);
    if (name.data == NULL) {
        return NULL;
    }
    ngx_memcpy(name.data, path.data, path.len);
    name.data[path.len] = '\0';

    /* It is opened with NGINX's own logs, and anew when they are. */
    return ngx_conf_open_file(cf->cycle, &name);
}

static void
ngx_http_foregate_write_log(void *data, fg_text line)
{
    ngx_open_file_t *file = data;

    if (ngx_write_fd(file->fd, (void *) line.data, line.len) == -1) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, ngx_errno, "foregate: cannot write to \"%V\"", &file->name);
    }
}

void
ngx_http_foregate_facts(ngx_http_request_t *r, fg_facts *facts)
{
    ngx_http_core_srv_conf_t *cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    ngx_memzero(facts, sizeof(fg_facts));

    ngx_http_foregate_address(r->connection->sockaddr, &facts->client);

#if (NGX_HTTP_SSL)
    facts->https = r->connection->ssl != NULL;
#endif
    /* A subrequest's target is not the one that was sent. */
    facts->raw_is_valid = r == r->main && r->valid_unparsed_uri && !r->internal;
    facts->chunked = r->headers_in.chunked;
    facts->version = r->http_version;
    facts->content_length = r->headers_in.content_length_n;
    facts->method = ngx_http_foregate_text(&r->method_name);
    facts->server = ngx_http_foregate_text(&r->headers_in.server);
    if (r->headers_in.host != NULL) {
        facts->host = ngx_http_foregate_text(&r->headers_in.host->value);
    }
    facts->uri = ngx_http_foregate_text(&r->uri);
    facts->args = ngx_http_foregate_text(&r->args);
    facts->raw = ngx_http_foregate_text(&r->unparsed_uri);
    facts->site = ngx_http_foregate_text(&cscf->server_name);
    facts->route = ngx_http_foregate_text(&clcf->name);
}

static int
ngx_http_foregate_place(void *data, int32_t number, uint64_t *server, fg_text *prefix)
{
    ngx_http_request_t *r = data;
    ngx_http_foregate_upstream_t *upstream;

    *server = (uintptr_t) ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    prefix->data = NULL;
    prefix->len = 0;
    if (number < 0) {
        return 0;
    }
    upstream = ngx_http_foregate_find_upstream(r, number);
    if (upstream == NULL) {
        return -1;
    }
    *prefix = ngx_http_foregate_text(&upstream->location);
    return 0;
}

static void
ngx_http_foregate_limit_body(void *data, uint64_t bytes)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(data);
    off_t limit = (off_t) ngx_min(bytes, (uint64_t) NGX_MAX_OFF_T_VALUE);

    if (ctx != NULL && (!ctx->limited || limit < ctx->body_limit)) {
        ctx->limited = 1;
        ctx->body_limit = limit;
    }
}

const fg_host ngx_http_foregate_host = {
    ngx_http_foregate_fields,
    ngx_http_foregate_append,
    ngx_http_foregate_replace,
    ngx_http_foregate_remove,
    ngx_http_foregate_target,
    ngx_http_foregate_answer,
    ngx_http_foregate_tls,
    ngx_http_foregate_now,
    ngx_http_foregate_log,
    ngx_http_foregate_refuse,
    ngx_http_foregate_local,
    ngx_http_foregate_open_log,
    ngx_http_foregate_write_log,
    ngx_http_foregate_place,
    ngx_http_foregate_limit_body,
};
