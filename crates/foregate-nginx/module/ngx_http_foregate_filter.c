/*
 * The filters: the steps of the response when its head comes by, and its body.
 */

#include "ngx_http_foregate.h"
#include "ngx_http_foregate_fields.h"

/* A bit of r->buffered that no module of NGINX uses for requests. */
#define NGX_HTTP_FOREGATE_BUFFERED 0x08
/* How long the start of a body is waited for, milliseconds. */
#define NGX_HTTP_FOREGATE_HOLD_TIME 10000

static ngx_http_output_header_filter_pt ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt ngx_http_next_body_filter;

static ngx_int_t ngx_http_foregate_move(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_uint_t gather);
static void ngx_http_foregate_end_waiting(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);
static void ngx_http_foregate_break_off(ngx_http_request_t *r);
static void ngx_http_foregate_write_handler(ngx_http_request_t *r);
static void ngx_http_foregate_await_client(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* The head goes out later than the body comes by. */
static void
ngx_http_foregate_keep_back(ngx_http_request_t *r)
{
    r->filter_need_in_memory = 1;
    /* The range filter comes before us, and would learn of them with the head, when the body is past it. */
    r->allow_ranges = 0;
}

/* Lets steps wait for fetches, or for one that runs on a thread, if they have to. The head goes out once it
 * is there, and the body waits with it. */
static ngx_int_t
ngx_http_foregate_wait(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, int outcome)
{
    ngx_int_t rc = outcome == FG_FETCH ? ngx_http_foregate_ask(r, ctx) : ngx_http_foregate_offload(r, ctx);

    if (rc != NGX_OK) {
        ctx->failed = 1;
        return NGX_ERROR;
    }
    if (ctx->asking == 0) {
        return NGX_OK;
    }
    ctx->waiting = 1;
    if (r->method == NGX_HTTP_HEAD && r == r->main) {
        /* The body's maker asks for it as soon as the head seems to be sent. */
        r->header_only = 1;
    }
    ngx_http_foregate_keep_back(r);
    r->buffered |= NGX_HTTP_FOREGATE_BUFFERED;
    return NGX_AGAIN;
}

/* The treatment of the response's body as it is now. */
static int
ngx_http_foregate_body_of(ngx_http_request_t *r)
{
    if (r->headers_out.status == NGX_HTTP_NO_CONTENT || r->headers_out.content_length_n == 0) {
        return FG_EMPTY;
    }
    if (r->method == NGX_HTTP_HEAD || r->header_only || r->headers_out.status == NGX_HTTP_NOT_MODIFIED) {
        return FG_UNSENT;
    }
    return FG_SENT;
}

/* Has a response go on now, by an event of its own. */
static void
ngx_http_foregate_go_on(ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_request_t *r = ctx->r;
    ngx_connection_t *c = r->connection;

    if (r->done || c->error) {
        return;
    }
    ngx_http_set_log_request(c->log, r);
    ngx_http_foregate_wake_response(r, ctx);
    if (ngx_http_post_request(r, NULL) != NGX_OK) {
        c->error = 1;
    }
    ngx_http_run_posted_requests(c);
}

/* The start of a body is late: waiting steps get the received part. */
static void
ngx_http_foregate_hold_late(ngx_event_t *event)
{
    ngx_http_foregate_ctx_t *ctx = event->data;

    ctx->late = 1;
    ngx_http_foregate_go_on(ctx);
}

static void
ngx_http_foregate_begin_holding(ngx_http_foregate_ctx_t *ctx)
{
    ctx->holding = 1;
    ctx->late = 0;
    ctx->hold_timer.handler = ngx_http_foregate_hold_late;
    ctx->hold_timer.data = ctx;
    ctx->hold_timer.log = ctx->r->connection->log;
    ngx_add_timer(&ctx->hold_timer, NGX_HTTP_FOREGATE_HOLD_TIME);
}

void
ngx_http_foregate_end_holding(ngx_http_foregate_ctx_t *ctx)
{
    ctx->holding = 0;
    if (ctx->hold_timer.timer_set) {
        ngx_del_timer(&ctx->hold_timer);
    }
}

/* Runs the steps of the response, and sends its head, unless they wait for its body or for something else. */
static ngx_int_t
ngx_http_foregate_respond(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    fg_shaped shaped;
    fg_facts facts;
    ngx_int_t rc;
    int source, outcome;

    do {
        ngx_memzero(&shaped, sizeof(fg_shaped));
        source = ctx->answered ? FG_FROM_STEP : r->err_status ? FG_FROM_ERROR : FG_FROM_ORIGIN;
        ngx_http_foregate_facts(r, &facts);
        outcome = fg_run_response(ctx->request, r, &facts, r->headers_out.status, source, ngx_http_foregate_body_of(r),
                                  &shaped);
        if (outcome == FG_FETCH || outcome == FG_OFFLOAD) {
            rc = ngx_http_foregate_wait(r, ctx, outcome);
            if (rc != NGX_OK) {
                return rc == NGX_AGAIN ? NGX_OK : rc;
            }
        }
    } while (outcome == FG_FETCH || outcome == FG_OFFLOAD);

    switch (outcome) {
    case FG_GO_ON:
        break;
    case FG_ANSWER:
        ctx->swallow = 1;
        if (ngx_http_foregate_slices != NULL) {
            /* No more slices of the replaced response. */
            r->ctx[ngx_http_foregate_slices->ctx_index] = NULL;
        }
        break;
    case FG_HOLD:
        ctx->held = ngx_palloc(r->pool, shaped.hold);
        if (ctx->held == NULL) {
            return NGX_ERROR;
        }
        ctx->held_len = 0;
        ctx->held_room = shaped.hold;
        ngx_http_foregate_begin_holding(ctx);
        ngx_http_foregate_keep_back(r);
        /* The head goes out with the start of the body. */
        return NGX_OK;
    default:
        ctx->failed = 1;
        return NGX_ERROR;
    }

    if (shaped.changes) {
        ngx_http_foregate_body_changes(r);
        r->allow_ranges = 0;
        ctx->changed = 1;
    }
    if (shaped.filters) {
        ctx->filters = 1;
        r->filter_need_in_memory = 1;
    }

    rc = ngx_http_next_header_filter(r);
    if (!ctx->swallow || rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    /* The body of the new response goes out now; later output of the old one's maker is dropped. */
    ctx->in = ngx_http_foregate_body(r, &ctx->body, 1);
    if (ctx->in == NULL) {
        return NGX_ERROR;
    }
    ctx->ended = 1;
    if (ctx->filters) {
        return ngx_http_foregate_move(r, ctx, 0);
    }
    ctx->done = 1;
    return ngx_http_next_body_filter(r, ctx->in);
}

static ngx_int_t
ngx_http_foregate_header_filter(ngx_http_request_t *r)
{
    const void *route = ngx_http_foregate_route(r);
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_http_foregate_fetch_t *fetch = ngx_http_foregate_fetch_of(r);
    fg_facts facts;

    if (fetch != NULL) {
        return ngx_http_foregate_fetch_head(r, fetch);
    }
    if (ctx != NULL && ctx->request != NULL && ctx->answered) {
        /* A step's answer is shaped by the route of the step, whatever location it was. */
        route = ctx->route;
    }
    if (route == NULL || r->unparsed_uri.len == 0 || (ctx != NULL && ctx->responded && !ctx->holding && !ctx->waiting)) {
        return ngx_http_next_header_filter(r);
    }
    if (r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS || (r->upstream != NULL && r->upstream->upgrade)) {
        /* The rest is a tunnel. */
        return ngx_http_next_header_filter(r);
    }

    ngx_http_foregate_facts(r, &facts);
    ctx = ngx_http_foregate_begin(r, route, &facts);
    if (ctx == NULL) {
        return NGX_ERROR;
    }
    /* A response with a held body has failed, and this reports it. */
    ngx_http_foregate_end_holding(ctx);
    if (ctx->waiting) {
        ngx_http_foregate_forget_fetches(ctx, 1);
        ngx_http_foregate_end_waiting(r, ctx);
        ctx->in = NULL;
    }
    if (r->upstream != NULL && !ctx->upstream_told && fg_tell(ctx->request, FG_UPSTREAM).len) {
        ctx->upstream_told = 1;
        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "foregate: steps have chosen an upstream, but the location does not ask $foregate_upstream for it");
    }
    ctx->responded = 1;
    return ngx_http_foregate_respond(r, ctx);
}

/* Marks a body as sent: another one is. */
static void
ngx_http_foregate_drop(ngx_chain_t *in)
{
    for ( /* void */ ; in != NULL; in = in->next) {
        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }
}

/* Steps see the kept part of the body; then the head goes out, that part, and the rest. */
static ngx_int_t
ngx_http_foregate_release(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t *in, ngx_uint_t end)
{
    ngx_chain_t *out;
    ngx_str_t held;
    fg_text text;
    ngx_int_t rc;

    ngx_http_foregate_end_holding(ctx);
    text.data = ctx->held;
    text.len = ctx->held_len;
    fg_give_body(ctx->request, FG_RESPONSE, text, (int) end);
    rc = ngx_http_foregate_respond(r, ctx);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }
    if (ctx->swallow) {
        ngx_http_foregate_drop(in);
        return rc;
    }

    held.data = ctx->held;
    held.len = ctx->held_len;
    out = ngx_http_foregate_body(r, &held, end);
    if (out == NULL) {
        return NGX_ERROR;
    }
    /* Nobody knows when more comes. */
    out->buf->flush = ctx->late;
    if (!end) {
        out->next = in;
    }
    if (!ctx->filters && !ctx->waiting) {
        return ngx_http_next_body_filter(r, out);
    }
    if (ngx_chain_add_copy(r->pool, &ctx->in, out) != NGX_OK) {
        return NGX_ERROR;
    }
    return ctx->waiting ? NGX_AGAIN : ngx_http_foregate_move(r, ctx, 0);
}

/* Keeps the start of the body until steps have seen it. */
static ngx_int_t
ngx_http_foregate_hold(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t *in)
{
    size_t size;
    ngx_uint_t end = 0;
    ngx_buf_t *buf;

    for ( /* void */ ; in != NULL; in = in->next) {
        buf = in->buf;
        if (ngx_buf_in_memory(buf)) {
            size = ngx_min((size_t) (buf->last - buf->pos), ctx->held_room - ctx->held_len);
            ngx_memcpy(ctx->held + ctx->held_len, buf->pos, size);
            ctx->held_len += size;
            buf->pos += size;
            if (buf->in_file) {
                /* It is in memory and in a file, of which the rest may be sent. */
                buf->file_pos += size;
            }
            if (buf->pos < buf->last) {
                break;
            }
        } else if (ngx_http_foregate_in_file(r, buf)) {
            ctx->failed = 1;
            return NGX_ERROR;
        }
        if (buf->last_buf || (buf->last_in_chain && r != r->main)) {
            end = 1;
            break;
        }
    }
    if (!end && in == NULL && ctx->held_len < ctx->held_room) {
        return NGX_OK;
    }
    return ngx_http_foregate_release(r, ctx, in, end);
}

static void
ngx_http_foregate_end_waiting(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ctx->waiting = 0;
    r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
}

/* The fetches of response steps are done: they go on, and then the head and the received part of the body. */
static ngx_int_t
ngx_http_foregate_resume(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *queued = ctx->in;
    ngx_int_t rc;

    ctx->in = NULL;
    ngx_http_foregate_end_waiting(r, ctx);
    rc = ngx_http_foregate_respond(r, ctx);
    if (rc == NGX_ERROR || rc > NGX_OK) {
        return rc;
    }
    if (ctx->waiting) {
        ctx->in = queued;
        return NGX_AGAIN;
    }
    if (ctx->holding) {
        return queued == NULL ? NGX_OK : ngx_http_foregate_hold(r, ctx, queued);
    }
    if (ctx->swallow || r->header_only) {
        ngx_http_foregate_drop(queued);
        return rc;
    }
    if (!ctx->filters) {
        return queued == NULL ? rc : ngx_http_next_body_filter(r, queued);
    }
    ctx->in = queued;
    return ngx_http_foregate_move(r, ctx, 0);
}

/* Runs instead of a response's handler once its wait is over. */
static void
ngx_http_foregate_wake_handler(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_http_event_handler_pt next = ctx->wake_handler;
    ngx_int_t rc;

    r->write_event_handler = next;
    rc = NGX_OK;
    if (ctx->waiting && !ctx->asking) {
        rc = ngx_http_foregate_resume(r, ctx);
    } else if (ctx->holding && ctx->late) {
        rc = ngx_http_foregate_release(r, ctx, NULL, 0);
        ngx_http_foregate_await_client(r, ctx);
    } else if (ctx->filters && !ctx->asking) {
        rc = ngx_http_foregate_move(r, ctx, 0);
        ngx_http_foregate_await_client(r, ctx);
    }
    if (rc == NGX_ERROR || rc > NGX_OK) {
        ngx_http_foregate_break_off(r);
        return;
    }
    ngx_http_foregate_unspare(r, ctx);
    next(r);
}

void
ngx_http_foregate_wake_response(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (r->write_event_handler != ngx_http_foregate_wake_handler) {
        ctx->wake_handler = r->write_event_handler;
        r->write_event_handler = ngx_http_foregate_wake_handler;
    }
}

/* The filters of the body. */

static void
ngx_http_foregate_watch_writing(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (r->upstream != NULL && r->write_event_handler != ngx_http_foregate_write_handler) {
        ctx->write_handler = r->write_event_handler;
        r->write_event_handler = ngx_http_foregate_write_handler;
    }
}

/* Late or gathered output, which the body's maker did not send, has to be sent to its end without it. Over HTTP/2 what was
 * gathered waits for the body's maker: a client may open its windows by a few bytes at a time, and to fill each as it comes would
 * cut the body into frames of ten bytes. */
static void
ngx_http_foregate_await_client(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_uint_t left = r->connection->buffered || r->buffered;
    ngx_uint_t alone = ctx->late || (ctx->filters && !ctx->done && r->http_version < NGX_HTTP_VERSION_20);

    if (left && alone) {
        ngx_http_foregate_watch_writing(r, ctx);
    }
}

/* Nothing was added to the gathered output in this turn. */
static void
ngx_http_foregate_gathered(ngx_event_t *event)
{
    ngx_http_foregate_go_on(event->data);
}

/* True if output may wait for more: NGINX passes a body on in pieces of two small buffers, and sending each by itself
 * costs more than making it. It waits while NGINX handles the same event, and no longer. */
static ngx_uint_t
ngx_http_foregate_gathers(ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *link;

    if (ctx->done || ctx->asking || ctx->full || ctx->soon || ctx->in != NULL || ctx->more) {
        return 0;
    }
    for (link = ctx->out; link != NULL; link = link->next) {
        if (ngx_http_foregate_marked(link->buf)) {
            return 0;
        }
    }
    return 1;
}

/* Puts the filtered body into buffers, until there is no more of it, all are under way, or they are to be sent first. */
static void
ngx_http_foregate_gather(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *link;
    ngx_buf_t *buf;

    while (!ctx->done && !ctx->asking && (ctx->in != NULL || ctx->more)) {
        buf = ngx_http_foregate_buffer(r, ctx, &link);
        if (buf == NULL) {
            ctx->full = 1;
            return;
        }
        if (ctx->failed || ngx_http_foregate_fill(r, ctx, buf) != NGX_OK) {
            ctx->failed = 1;
            return;
        }
        if (ngx_buf_size(buf) == 0) {
            link->next = ctx->free;
            ctx->free = link;
            link = ngx_http_foregate_mark(r, ctx, buf);
            if (ctx->failed) {
                return;
            }
        }
        if (link != NULL && link != ctx->last_out) {
            if (ctx->out == NULL) {
                ctx->out = link;
            } else {
                ctx->last_out->next = link;
            }
            ctx->last_out = link;
        }
        if (ctx->over || (ctx->soon && link != NULL)) {
            return;
        }
    }
}

/* Moves the body on until there is no more of it, until its rest passes by the filters, or until all buffers are under way. With
 * `gather`, the output may wait for NGINX's next piece. */
static ngx_int_t
ngx_http_foregate_move(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_uint_t gather)
{
    ngx_chain_t *out;
    ngx_int_t rc = NGX_OK;

    if (ctx->full || (ctx->in == NULL && !ctx->more && ctx->out == NULL)) {
        /* The buffers under way have to go first; or there is nothing of ours, and others may have something. */
        rc = ngx_http_next_body_filter(r, NULL);
        out = NULL;
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
        ctx->full = 0;
        if (rc == NGX_ERROR) {
            return rc;
        }
    }

    while (ctx->out != NULL || (!ctx->done && !ctx->asking && (ctx->in != NULL || ctx->more))) {
        ngx_http_foregate_gather(r, ctx);
        if (ctx->failed) {
            ngx_http_foregate_tell_broken(r);
            r->connection->error = 1;
            return NGX_ERROR;
        }
        if (gather && ctx->out != NULL && !ctx->over && ngx_http_foregate_gathers(ctx)) {
            r->buffered |= NGX_HTTP_FOREGATE_BUFFERED;
            ctx->gathering.handler = ngx_http_foregate_gathered;
            ctx->gathering.data = ctx;
            ctx->gathering.log = r->connection->log;
            ngx_post_event(&ctx->gathering, &ngx_posted_events);
            return NGX_AGAIN;
        }
        ngx_http_foregate_end_gathering(ctx);
        out = ctx->out;
        if (ctx->over) {
            /* Buffers of others go on as they are, behind ours; nobody needs ours again. */
            if (out == NULL) {
                out = ctx->in;
            } else {
                ctx->last_out->next = ctx->in;
            }
            ctx->out = NULL;
            ctx->in = NULL;
            ctx->filters = 0;
            r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
            return ngx_http_next_body_filter(r, out);
        }
        if (out == NULL) {
            break;
        }

        ctx->out = NULL;
        ctx->last_out = NULL;
        rc = ngx_http_next_body_filter(r, out);
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
        if (rc == NGX_ERROR) {
            return rc;
        }
        ctx->full = 0;
        if (ctx->free == NULL && ctx->buffers >= NGX_HTTP_FOREGATE_BUFFERS) {
            ctx->full = 1;
            break;
        }
    }

    if (!ctx->done && (ctx->in != NULL || ctx->more)) {
        /* NGINX comes back, without input, when the client has taken something. */
        r->buffered |= NGX_HTTP_FOREGATE_BUFFERED;
        ngx_http_foregate_watch_writing(r, ctx);
        ngx_http_foregate_spare(r, ctx);
        return NGX_AGAIN;
    }
    r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
    return rc;
}

void
ngx_http_foregate_end_gathering(ngx_http_foregate_ctx_t *ctx)
{
    if (ctx->gathering.posted) {
        ngx_delete_posted_event(&ctx->gathering);
    }
}

/* Ends a request from outside of its response's maker. That is at work still, and counts as one use of the request: NGINX
 * ends it first, and must not free the request then. */
static void
ngx_http_foregate_break_off(ngx_http_request_t *r)
{
    ngx_http_foregate_tell_broken(r);
    r->main->count++;
    ngx_http_finalize_request(r, NGX_ERROR);
}

/* The client has taken something. While an upstream has nothing new, its own handler does not ask filters that hold less
 * than it may have under way: large output of little input would wait for more input, and so would filters before
 * ours, such as NGINX's copies from a file. */
static void
ngx_http_foregate_write_handler(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);
    ngx_http_event_handler_pt next = ctx->write_handler;
    ngx_event_t *wev = r->connection->write;
    ngx_uint_t may_send = wev->ready && !wev->delayed && !r->aio;
    ngx_int_t rc = NGX_OK;

    r->write_event_handler = next;
    if (!wev->timedout && !ctx->failed) {
        /* With limit_rate the time may not have come. */
        if (may_send && !ctx->done && ctx->filters) {
            rc = r->http_version < NGX_HTTP_VERSION_20 ? ngx_http_output_filter(r, NULL) : ngx_http_foregate_move(r, ctx, 0);
        } else if (may_send && ctx->late) {
            rc = ngx_http_next_body_filter(r, NULL);
        }
        ngx_http_foregate_await_client(r, ctx);
    }
    if (rc == NGX_ERROR) {
        ngx_http_foregate_break_off(r);
        return;
    }
    next(r);
}

static ngx_int_t
ngx_http_foregate_filter_body(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t *in)
{
    if (ctx->failed) {
        return NGX_ERROR;
    }
    if (ctx->waiting) {
        if (in != NULL && ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK) {
            return NGX_ERROR;
        }
        ngx_http_foregate_spare(r, ctx);
        return ctx->asking ? NGX_AGAIN : ngx_http_foregate_resume(r, ctx);
    }
    if (ctx->holding) {
        return in == NULL ? NGX_OK : ngx_http_foregate_hold(r, ctx, in);
    }

    if (ctx->swallow) {
        ngx_http_foregate_drop(in);
        in = NULL;
    }
    if (ctx->done || !ctx->filters) {
        /* Buffers after the end belong to others, such as the end that addition's filter has held back. */
        return ngx_http_next_body_filter(r, in);
    }
    if (in != NULL && ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_foregate_move(r, ctx, in != NULL);
}

static ngx_int_t
ngx_http_foregate_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);
    ngx_http_foregate_fetch_t *fetch = ngx_http_foregate_fetch_of(r);
    ngx_int_t rc;

    if (fetch != NULL) {
        return ngx_http_foregate_fetch_body(r, fetch, in);
    }
    if (ctx == NULL || (!ctx->filters && !ctx->swallow && !ctx->holding && !ctx->waiting && !ctx->changed)) {
        return ngx_http_next_body_filter(r, in);
    }
    ngx_http_foregate_watch_end(r, ctx, in);
    rc = ngx_http_foregate_filter_body(r, ctx, in);
    return ctx->cut ? ngx_http_foregate_end_cut(r, rc) : rc;
}

void
ngx_http_foregate_init_filters(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_foregate_header_filter;
    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_foregate_body_filter;
}
