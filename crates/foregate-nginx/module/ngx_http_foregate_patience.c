/*
 * How long NGINX waits for an upstream and for the client while a response waits for something else. The filters take
 * nothing then, and NGINX reads no further. Its event pipe gives up early when the client could take something and the
 * filters do not (NGX_BUSY), and leaves the timers as they were, such as the one from when the upstream was asked; without a
 * pipe the upstream's timer is set even once all of it is there. They would end a response of which the upstream has long
 * sent everything, to a client that takes whatever it gets.
 */

#include "ngx_http_foregate.h"

/* Something has come of the upstream, or its time is up. That does not count while it may be we who keep NGINX from reading;
 * fetches have timeouts of their own. A response for a cache is read all the same. */
static void
ngx_http_foregate_read_upstream(ngx_http_request_t *r, ngx_http_upstream_t *u)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_event_t *rev = u->peer.connection->read;

    if (rev->timedout && ctx->asking && !(u->buffering && u->pipe->cacheable)) {
        rev->timedout = 0;
        return;
    }
    ctx->upstream_handler(r, u);
}

void
ngx_http_foregate_spare(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_upstream_t *u = r->upstream;
    ngx_connection_t *c = r->connection;

    if (!ctx->asking || u == NULL || u->peer.connection == NULL) {
        return;
    }
    if (u->read_event_handler != ngx_http_foregate_read_upstream) {
        ctx->upstream_handler = u->read_event_handler;
        u->read_event_handler = ngx_http_foregate_read_upstream;
    }
    /* Whoever sends to the client next sets it anew if it has to. */
    if (c->data == r && c->write->ready && !c->write->delayed && c->write->timer_set) {
        ngx_del_timer(c->write);
    }
}

void
ngx_http_foregate_unspare(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_upstream_t *u = r->upstream;
    ngx_event_t *rev;

    if (ctx->asking || u == NULL || u->peer.connection == NULL || u->read_event_handler != ngx_http_foregate_read_upstream) {
        return;
    }
    rev = u->peer.connection->read;
    if (rev->delayed) {
        /* The timer is that of proxy_limit_rate. */
        return;
    }
    if (rev->active && !rev->ready) {
        ngx_add_timer(rev, u->conf->read_timeout);
    } else if (rev->timer_set) {
        ngx_del_timer(rev);
    }
}
