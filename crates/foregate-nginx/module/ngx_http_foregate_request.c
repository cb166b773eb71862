/*
 * A request on its way: its context, its steps before there is a response, and its end.
 */

#include "ngx_http_foregate.h"
#include "ngx_http_foregate_fields.h"

/* Features that may be switched for one request. Beyond: refused. */
#define NGX_HTTP_FOREGATE_SWITCHES 32

static ngx_http_request_body_filter_pt ngx_http_next_request_body_filter;

static void
ngx_http_foregate_cleanup(void *data)
{
    ngx_http_foregate_ctx_t *ctx = data;

    ngx_http_foregate_forget_fetches(ctx, 0);
    ngx_http_foregate_end_gathering(ctx);
    if (ctx->request != NULL) {
        fg_request_free(ctx->request);
        ctx->request = NULL;
    }
}

/* NGINX clears the contexts of modules when it redirects internally; the cleanup handler still has ours. */
ngx_http_foregate_ctx_t *
ngx_http_foregate_find_ctx(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);
    ngx_pool_cleanup_t *cleanup;

    if (ctx != NULL || (!r->internal && !r->filter_finalize)) {
        return ctx;
    }

    for (cleanup = r->pool->cleanup; cleanup != NULL; cleanup = cleanup->next) {
        if (cleanup->handler == ngx_http_foregate_cleanup) {
            ctx = cleanup->data;
            if (ctx->r == r) {
                ngx_http_set_ctx(r, ctx, ngx_http_foregate_module);
                return ctx;
            }
        }
    }
    return NULL;
}

ngx_http_foregate_ctx_t *
ngx_http_foregate_ctx(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_pool_cleanup_t *cleanup;

    if (ctx != NULL) {
        return ctx;
    }

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_foregate_ctx_t));
    cleanup = ngx_pool_cleanup_add(r->pool, 0);
    if (ctx == NULL || cleanup == NULL) {
        return NULL;
    }
    ctx->r = r;
    cleanup->handler = ngx_http_foregate_cleanup;
    cleanup->data = ctx;
    ngx_http_set_ctx(r, ctx, ngx_http_foregate_module);
    return ctx;
}

const void *
ngx_http_foregate_route(ngx_http_request_t *r)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_foregate_module);

    if (ngx_http_foregate_fetch_of(r) != NULL) {
        /* Steps have asked for it. */
        return NULL;
    }
    /* A subrequest's output becomes part of a response with steps that run anyway. */
    return r == r->main || conf->own ? conf->route : NULL;
}

ngx_http_foregate_ctx_t *
ngx_http_foregate_begin(ngx_http_request_t *r, const void *route, const fg_facts *facts)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_ctx(r);
    ngx_http_foregate_switch_t *switched;
    ngx_uint_t i;

    if (ctx == NULL || (ctx->request != NULL && ctx->route == route)) {
        return ctx;
    }

    ngx_http_foregate_forget_fetches(ctx, 1);
    ngx_http_foregate_cleanup(ctx);
    ctx->route = route;
    ctx->requested = 0;
    /* An error page with steps of its own takes over from a request with an unreadable body. */
    ctx->broken |= ctx->reading;
    ctx->reading = 0;
    ctx->request = fg_request_new(route, facts);
    if (ctx->request == NULL) {
        return NULL;
    }

    switched = ctx->switches.elts;
    for (i = 0; i < ctx->switches.nelts; i++) {
        (void) fg_switch(ctx->request, ngx_http_foregate_text(&switched[i].name), switched[i].on);
    }
    return ctx;
}

ngx_chain_t *
ngx_http_foregate_body(ngx_http_request_t *r, ngx_str_t *body, ngx_uint_t last)
{
    ngx_chain_t *out = ngx_alloc_chain_link(r->pool);
    ngx_buf_t *buf = ngx_calloc_buf(r->pool);

    if (out == NULL || buf == NULL) {
        return NULL;
    }
    if (body->len) {
        buf->pos = body->data;
        buf->last = body->data + body->len;
        buf->start = buf->pos;
        buf->end = buf->last;
        buf->memory = 1;
    }
    buf->last_buf = last && r == r->main;
    buf->last_in_chain = last;
    out->buf = buf;
    out->next = NULL;
    return out;
}

/* The request's body is there, or cannot be had. */
static void
ngx_http_foregate_body_handler(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);

    ctx->reading = 0;
    /* It is sent on from where it is, by whoever answers. */
    r->preserve_body = 1;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

/* Hands the start of the request's body to the steps that look at it. There is none for a subrequest, nor where NGINX has
 * begun to drop it: NGINX would say at once that it has been read. */
static ngx_int_t
ngx_http_foregate_give_body(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, size_t wanted)
{
    ngx_chain_t *link = r->request_body != NULL ? r->request_body->bufs : NULL;
    ngx_buf_t *buf;
    fg_text text;
    u_char *start;
    size_t len = 0, size;
    ngx_uint_t whole = r->request_body != NULL ? !ctx->broken
                                               : r->headers_in.content_length_n <= 0 && !r->headers_in.chunked;
    ssize_t n;

    start = ngx_palloc(r->pool, wanted);
    if (start == NULL) {
        return NGX_ERROR;
    }

    for ( /* void */ ; link != NULL; link = link->next) {
        buf = link->buf;
        size = ngx_buf_size(buf);
        if (size > wanted - len) {
            size = wanted - len;
            whole = 0;
        }
        if (size == 0) {
            continue;
        }
        if (ngx_buf_in_memory(buf)) {
            ngx_memcpy(start + len, buf->pos, size);
        } else {
            n = ngx_read_file(buf->file, start + len, size, buf->file_pos);
            if (n < 0 || (size_t) n != size) {
                return NGX_ERROR;
            }
        }
        len += size;
    }

    text.data = start;
    text.len = len;
    fg_give_body(ctx->request, FG_REQUEST, text, (int) whole);
    /* It has been copied. */
    ngx_pfree(r->pool, start);
    return NGX_OK;
}

/* True if a request's body is known to be larger than steps have allowed. */
static ngx_uint_t
ngx_http_foregate_too_large(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    /* The page that tells of it has a request without it. */
    if (!ctx->limited || r->err_status || ngx_max(r->headers_in.content_length_n, ctx->body_received) <= ctx->body_limit) {
        return 0;
    }
    ngx_log_error(NGX_LOG_INFO, r->connection->log, 0, "foregate: the request's body is larger than %O bytes",
                  ctx->body_limit);
    return 1;
}

/* Has all of the request's body read, unless there is nothing to read any more: NGX_OK when it is there. Otherwise the phase
 * ends with the given status, and begins again once the body is there. */
static ngx_int_t
ngx_http_foregate_read_body(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_int_t rc;

    if (r == r->main && ngx_http_foregate_too_large(r, ctx)) {
        ctx->requested = 1;
        return NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
    }
    if (r->request_body != NULL || r != r->main || r->discard_body) {
        return NGX_OK;
    }

    ctx->reading = 1;
    rc = ngx_http_read_client_request_body(r, ngx_http_foregate_body_handler);
    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        ctx->reading = 0;
        ctx->broken = 1;
        ctx->requested = 1;
        return rc;
    }
    ngx_http_finalize_request(r, NGX_DONE);
    return NGX_DONE;
}

/* The filter of the request's body as it arrives, for any reader. */
static ngx_int_t
ngx_http_foregate_request_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_chain_t *link;

    if (ctx != NULL) {
        for (link = in; link != NULL; link = link->next) {
            ctx->body_received += ngx_buf_size(link->buf);
        }
        if (ngx_http_foregate_too_large(r, ctx)) {
            r->lingering_close = 1;
            return NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
        }
    }
    return ngx_http_next_request_body_filter(r, in);
}

void
ngx_http_foregate_init_body_limit(void)
{
    ngx_http_next_request_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_foregate_request_body_filter;
}

/* Sends the answer that a step has made. */
static ngx_int_t
ngx_http_foregate_send(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *out;
    ngx_int_t rc = ngx_http_discard_request_body(r);

    if (rc != NGX_OK) {
        return rc;
    }
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }
    if (ctx->swallow) {
        /* A step of the response has made another one, which has been sent. */
        return rc;
    }
    out = ngx_http_foregate_body(r, &ctx->body, 1);
    return out == NULL ? NGX_ERROR : ngx_http_output_filter(r, out);
}

/* True if a request still waits; if not, its client is not watched any more. */
static ngx_uint_t
ngx_http_foregate_is_paused(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (!ctx->paused) {
        return 0;
    }
    if (ctx->asking) {
        return 1;
    }
    ctx->paused = 0;
    r->read_event_handler = ctx->read_handler;
    return 0;
}

/* Does the work that steps wait for: NGX_AGAIN when they can go on, or the result of the phase. */
static ngx_int_t
ngx_http_foregate_provide(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, int outcome, size_t wanted)
{
    ngx_int_t rc;

    switch (outcome) {
    case FG_FETCH:
    case FG_OFFLOAD:
        rc = outcome == FG_FETCH ? ngx_http_foregate_ask(r, ctx) : ngx_http_foregate_offload(r, ctx);
        if (rc != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        break;
    case FG_READ_BODY:
        rc = ngx_http_foregate_read_body(r, ctx);
        if (rc != NGX_OK) {
            return rc;
        }
        if (ngx_http_foregate_give_body(r, ctx, wanted) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        break;
    default: /* FG_FILTER_BODY */
        rc = ngx_http_foregate_read_body(r, ctx);
        if (rc != NGX_OK) {
            return rc;
        }
        rc = ngx_http_foregate_filter_upload(r, ctx);
        if (rc != NGX_AGAIN) {
            ctx->requested = 1;
            return rc == NGX_OK ? NGX_DECLINED : rc;
        }
    }

    if (ctx->asking) {
        ngx_http_foregate_watch_client(r, ctx);
        return NGX_DONE;
    }
    return NGX_AGAIN;
}

/* Runs the steps of the request, as far as they can. */
static ngx_int_t
ngx_http_foregate_run(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, const fg_facts *facts)
{
    ngx_int_t rc;
    size_t wanted;
    int outcome;

    do {
        outcome = fg_run_request(ctx->request, r, facts, &wanted);
        switch (outcome) {
        case FG_GO_ON:
            ctx->requested = 1;
            if (r == r->main && ngx_http_foregate_too_large(r, ctx)) {
                return NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
            }
            return NGX_DECLINED;
        case FG_ABORT:
            return NGX_HTTP_CLOSE;
        case FG_ANSWER:
            ctx->requested = 1;
            return ngx_http_foregate_send(r, ctx);
        case FG_FULL:
            ctx->requested = 1;
            return NGX_HTTP_SERVICE_UNAVAILABLE;
        case FG_FETCH:
        case FG_OFFLOAD:
        case FG_READ_BODY:
        case FG_FILTER_BODY:
            rc = ngx_http_foregate_provide(r, ctx, outcome, wanted);
            break;
        default:
            ctx->requested = 1;
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    } while (rc == NGX_AGAIN);

    return rc;
}

/* The steps of the request. */
ngx_int_t
ngx_http_foregate_rewrite_handler(ngx_http_request_t *r)
{
    const void *route = ngx_http_foregate_route(r);
    ngx_http_foregate_fetch_t *fetch = ngx_http_foregate_fetch_of(r);
    ngx_http_foregate_ctx_t *ctx;
    fg_facts facts;

    if (fetch != NULL) {
        return ngx_http_foregate_fetch_place(r, fetch);
    }
    if (route == NULL) {
        return NGX_DECLINED;
    }

    ngx_http_foregate_facts(r, &facts);
    ctx = ngx_http_foregate_begin(r, route, &facts);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (ctx->requested) {
        /* The request comes by again, on its way to another location or to an error page. */
        return NGX_DECLINED;
    }
    if (ngx_http_foregate_is_paused(r, ctx)) {
        return NGX_DONE;
    }
    if (ctx->reading) {
        if (!r->internal) {
            return NGX_DONE;
        }
        /* It could not be read, and this is the page that tells of it. */
        ctx->reading = 0;
        ctx->requested = 1;
        return NGX_DECLINED;
    }
    if (r != r->main && !ctx->own_fields) {
        if (ngx_http_foregate_own_request_fields(r) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        ctx->own_fields = 1;
    }
    return ngx_http_foregate_run(r, ctx, &facts);
}

/* The end of a request. */
ngx_int_t
ngx_http_foregate_log_handler(ngx_http_request_t *r)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    ngx_time_t *now = ngx_timeofday();
    fg_summary summary;
    fg_facts facts;
    int64_t duration;

    if (ctx == NULL || ctx->request == NULL) {
        return NGX_OK;
    }
    ngx_http_foregate_check_end(r, ctx);

    duration = (int64_t) (now->sec - r->start_sec) * 1000 + ((int64_t) now->msec - (int64_t) r->start_msec);
    summary.duration_ms = duration > 0 ? duration : 0;
    summary.bytes_out = r->connection->sent - (off_t) r->header_size > 0 ? r->connection->sent - r->header_size : 0;
    summary.bytes_in = r->headers_in.content_length_n > 0 ? r->headers_in.content_length_n : 0;
    ngx_http_foregate_facts(r, &facts);
    fg_run_log(ctx->request, r, &facts, r->headers_out.status, &summary);
    return NGX_OK;
}

int
ngx_http_foregate_switch(ngx_http_request_t *r, const char *name, ngx_uint_t on)
{
    ngx_http_foregate_switch_t *switched;
    ngx_http_foregate_ctx_t *ctx;
    fg_text text;

    if (r == NULL || name == NULL) {
        return -1;
    }
    ctx = ngx_http_foregate_ctx(r);
    if (ctx == NULL) {
        return -1;
    }

    text.data = (const unsigned char *) name;
    text.len = ngx_strlen(name);
    if (ctx->request != NULL && (ctx->route == ngx_http_foregate_route(r) || ctx->responded)) {
        return fg_switch(ctx->request, text, on);
    }

    /* Its route is not known yet, or will be another one. */
    if (ctx->switches.elts == NULL
        && ngx_array_init(&ctx->switches, r->pool, 4, sizeof(ngx_http_foregate_switch_t)) != NGX_OK)
    {
        return -1;
    }
    if (ctx->switches.nelts >= NGX_HTTP_FOREGATE_SWITCHES) {
        return -1;
    }
    switched = ngx_array_push(&ctx->switches);
    if (switched == NULL) {
        return -1;
    }
    switched->on = on;
    switched->name.len = text.len;
    switched->name.data = ngx_pnalloc(r->pool, text.len);
    if (switched->name.data == NULL) {
        ctx->switches.nelts--;
        return -1;
    }
    ngx_memcpy(switched->name.data, name, text.len);
    return 1;
}
