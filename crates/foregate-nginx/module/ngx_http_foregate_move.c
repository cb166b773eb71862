/*
 * How a body moves on through filters: into buffers, to the client, and on again when that has taken something.
 */

#include "ngx_http_foregate.h"

ngx_http_output_body_filter_pt ngx_http_foregate_next_body;

static void ngx_http_foregate_write_handler(ngx_http_request_t *r);

static void
ngx_http_foregate_watch_writing(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (r->upstream != NULL && r->write_event_handler != ngx_http_foregate_write_handler) {
        ctx->write_handler = r->write_event_handler;
        r->write_event_handler = ngx_http_foregate_write_handler;
    }
}

void
ngx_http_foregate_await_client(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if ((ctx->late || ctx->busy != NULL) && r->connection->buffered) {
        ngx_http_foregate_watch_writing(r, ctx);
    }
}

/* Sends what has been kept in the hope of more: whoever makes the body has handed on all that there is. */
static void
ngx_http_foregate_send_kept(ngx_event_t *event)
{
    ngx_http_foregate_ctx_t *ctx = event->data;
    ngx_http_request_t *r = ctx->r;
    ngx_connection_t *c = r->connection;
    ngx_chain_t *out = ctx->kept;
    ngx_int_t rc;

    if (r->done || c->error || out == NULL) {
        return;
    }
    ngx_http_set_log_request(c->log, r);
    ctx->kept = NULL;
    rc = ngx_http_foregate_next_body(r, out);
    ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
    if (rc == NGX_ERROR) {
        ngx_http_foregate_break_off(r);
    } else {
        ngx_http_foregate_await_client(r, ctx);
    }
    ngx_http_run_posted_requests(c);
}

/* A buffer with room left waits for more as long as the present event is handled: an upstream's body comes by in small parts,
 * and each that is written costs a call of the system. */
static void
ngx_http_foregate_keep(ngx_http_foregate_ctx_t *ctx)
{
    if (ngx_buf_size(ctx->kept->buf) == 0) {
        ctx->kept->next = ctx->free;
        ctx->free = ctx->kept;
        ctx->kept = NULL;
        return;
    }
    ctx->kept_event.handler = ngx_http_foregate_send_kept;
    ctx->kept_event.data = ctx;
    ctx->kept_event.log = ctx->r->connection->log;
    ngx_post_event(&ctx->kept_event, &ngx_posted_events);
}

/* Whether a buffer gets more before it goes out. */
static ngx_uint_t
ngx_http_foregate_takes_more(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *buf)
{
    if (ctx->soon || ctx->over || ctx->done || ctx->asking || buf->last == buf->end || buf->flush || buf->last_buf
        || buf->last_in_chain)
    {
        return 0;
    }
    /* Others than an upstream end a body with what they send last, or have somebody wait for it. */
    return ctx->in != NULL || ctx->more || (r == r->main && r->upstream != NULL && !ctx->swallow);
}

/* Fills buffers until there is nothing to fill them with, or until something is to be sent; says where the chain of them ends. */
static ngx_chain_t **
ngx_http_foregate_fill_buffers(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t **out)
{
    ngx_chain_t *link, **last = out;
    ngx_buf_t *buf;

    *out = NULL;
    while (!ctx->done && !ctx->asking && (ctx->in != NULL || ctx->more)) {
        link = ctx->kept;
        buf = link != NULL ? link->buf : ngx_http_foregate_buffer(r, ctx, &link);
        ctx->kept = NULL;
        if (buf == NULL) {
            ctx->full = 1;
            break;
        }
        if (ctx->failed || ngx_http_foregate_fill(r, ctx, buf) != NGX_OK) {
            ctx->failed = 1;
            break;
        }
        if (ngx_http_foregate_takes_more(r, ctx, buf)) {
            ctx->kept = link;
            continue;
        }
        if (ngx_buf_size(buf) == 0) {
            link->next = ctx->free;
            ctx->free = link;
            link = ngx_http_foregate_mark(r, ctx, buf);
            if (link == NULL) {
                if (ctx->failed || ctx->over) {
                    break;
                }
                continue;
            }
        }
        *last = link;
        last = &link->next;
        if (ctx->soon || ctx->over) {
            break;
        }
    }
    *last = NULL;
    return last;
}

ngx_int_t
ngx_http_foregate_move(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *out, **last;
    ngx_int_t rc = NGX_OK;

    if (ctx->full || (ctx->in == NULL && !ctx->more)) {
        /* The buffers under way have to go first; or there is nothing of ours, and others may have something. */
        rc = ngx_http_foregate_next_body(r, NULL);
        out = NULL;
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
        ctx->full = 0;
        if (rc == NGX_ERROR) {
            return rc;
        }
    }

    while (!ctx->done && !ctx->asking && (ctx->in != NULL || ctx->more)) {
        last = ngx_http_foregate_fill_buffers(r, ctx, &out);

        if (ctx->failed) {
            ngx_http_foregate_tell_broken(r);
            r->connection->error = 1;
            return NGX_ERROR;
        }
        if (ctx->over) {
            /* Buffers of others go on as they are, behind ours; nobody needs ours again. */
            *last = ctx->in;
            ctx->in = NULL;
            ctx->filters = 0;
            r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
            return ngx_http_foregate_next_body(r, out);
        }
        if (out == NULL) {
            break;
        }

        rc = ngx_http_foregate_next_body(r, out);
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
        if (rc == NGX_ERROR) {
            return rc;
        }
        ctx->full = 0;
        if (ctx->free == NULL && ctx->kept == NULL && ctx->buffers >= NGX_HTTP_FOREGATE_BUFFERS) {
            ctx->full = 1;
            break;
        }
    }

    if (!ctx->done && (ctx->in != NULL || ctx->more)) {
        /* NGINX comes back, without input, when the client has taken something. */
        r->buffered |= NGX_HTTP_FOREGATE_BUFFERED;
        ngx_http_foregate_watch_writing(r, ctx);
        return NGX_AGAIN;
    }
    if (ctx->kept != NULL) {
        ngx_http_foregate_keep(ctx);
    }
    r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
    return rc;
}

void
ngx_http_foregate_break_off(ngx_http_request_t *r)
{
    ngx_http_foregate_tell_broken(r);
    r->main->count++;
    ngx_http_finalize_request(r, NGX_ERROR);
}

/* The client has taken something. While an upstream has nothing new, its own handler does not ask filters that hold less
 * than it may have under way: what little input has become much would wait for more input. */
static void
ngx_http_foregate_write_handler(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);
    ngx_http_event_handler_pt next = ctx->write_handler;
    ngx_event_t *wev = r->connection->write;
    ngx_int_t rc = NGX_OK;

    r->write_event_handler = next;
    if (!wev->timedout && !wev->delayed && wev->ready && !ctx->failed) {
        if (!ctx->done && ctx->filters) {
            rc = ngx_http_foregate_move(r, ctx);
        } else if (ctx->late) {
            rc = ngx_http_foregate_next_body(r, NULL);
        }
        ngx_http_foregate_await_client(r, ctx);
    }
    if (rc == NGX_ERROR) {
        ngx_http_foregate_break_off(r);
        return;
    }
    next(r);
}
