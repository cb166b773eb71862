/*
 * The ends of bodies: where a filter has taken the length away, a client may have nothing but the end of the connection to tell
 * that all has come, and has to see it where that is not so.
 */

#include "ngx_http_foregate.h"
#include "ngx_http_foregate_fields.h"

/* True if neither a length nor chunks tell the client the end of the body. */
static ngx_uint_t
ngx_http_foregate_ends_unmarked(ngx_http_request_t *r)
{
    return r->main->header_sent && r->main->headers_out.content_length_n == -1 && !r->main->chunked
           && r->http_version < NGX_HTTP_VERSION_20;
}

void
ngx_http_foregate_tell_broken(ngx_http_request_t *r)
{
    ngx_connection_t *c = r->connection;
    struct linger linger = { 1, 0 };

    if (!ngx_http_foregate_ends_unmarked(r)) {
        return;
    }
    if (setsockopt(c->fd, SOL_SOCKET, SO_LINGER, (const void *) &linger, sizeof(struct linger)) == -1) {
        ngx_log_error(NGX_LOG_ALERT, c->log, ngx_socket_errno, "setsockopt(SO_LINGER) failed");
    }
    /* No close_notify of TLS either. */
    c->error = 1;
}

void
ngx_http_foregate_watch_end(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_http_upstream_t *u = r->upstream;
    ngx_chain_t *link;

    for (link = in; link != NULL; link = link->next) {
        if (link->buf->last_buf) {
            ctx->ended = 1;
            if (ctx->changed) {
                ngx_http_foregate_trailers_change(r);
            }
        }
    }
    /* All that NGINX sends once it is done with an upstream is the end, or, where that has broken off, a flush. */
    if (in != NULL && !ctx->ended && in->buf->flush && !in->buf->last_in_chain && u != NULL && u->cleanup == NULL
        && u->header_sent)
    {
        ctx->cut = 1;
    }
}

ngx_int_t
ngx_http_foregate_end_cut(ngx_http_request_t *r, ngx_int_t rc)
{
    if (rc == NGX_ERROR || r != r->main || r->buffered || r->postponed != NULL || r->connection->buffered
        || !ngx_http_foregate_ends_unmarked(r))
    {
        return rc;
    }
    ngx_http_foregate_tell_broken(r);
    return NGX_ERROR;
}

void
ngx_http_foregate_check_end(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (ctx->changed && r == r->main && !r->header_only
        && (!ctx->ended || r->buffered || r->connection->buffered))
    {
        ngx_http_foregate_tell_broken(r);
    }
}
