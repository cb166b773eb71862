/*
 * The module as NGINX sees it: a directive, handlers of two phases, a header filter and a body filter, and a few
 * variables. What the steps do is decided in the other half (foregate.h); here stands when they run.
 *
 *   rewrite phase    steps of the request, before `return` and `rewrite` of the location
 *   header filter    steps of the response, after gunzip's and before gzip's
 *   body filter      the filters that those have chosen
 *   log phase        steps of the log
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "foregate.h"
#include "ngx_http_foregate_fields.h"

/* Buffers that a response may have under way; whatever a filter makes of its input, no more is held. */
#define NGX_HTTP_FOREGATE_BUFFERS 4
#define NGX_HTTP_FOREGATE_BUFFER_SIZE 16384

/* A bit of r->buffered that no module of NGINX uses for requests. */
#define NGX_HTTP_FOREGATE_BUFFERED 0x08

/* Features that may be switched for one request. Beyond: refused. */
#define NGX_HTTP_FOREGATE_SWITCHES 32

typedef struct {
    void *cycle; /* of the other half */
} ngx_http_foregate_main_conf_t;

typedef struct {
    const void *route;
    ngx_flag_t set;
    ngx_flag_t own; /* the directive stands in this location, not further out */
} ngx_http_foregate_loc_conf_t;

typedef struct {
    ngx_str_t name;
    ngx_uint_t on;
} ngx_http_foregate_switch_t;

typedef struct {
    ngx_http_request_t *r;
    const void *route;
    void *request; /* of the other half */
    ngx_array_t switches;

    /* The answer that a step has made. */
    ngx_str_t body;

    /* What has not been consumed, and what is under way. */
    ngx_chain_t *in;
    ngx_chain_t *free;
    ngx_chain_t *busy;
    ngx_uint_t buffers;

    unsigned requested : 1; /* the steps of the request have run */
    unsigned answered : 1;  /* the response was made by a step */
    unsigned responded : 1; /* the steps of the response have run */
    unsigned filters : 1;   /* the body goes through filters */
    unsigned swallow : 1;   /* another body is sent: what comes is dropped */
    unsigned more : 1;      /* the filters have output left */
    unsigned full : 1;      /* all buffers are under way */
    unsigned done : 1;      /* the end has been sent */
    unsigned failed : 1;
} ngx_http_foregate_ctx_t;

static char *ngx_http_foregate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_foregate_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_foregate_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_foregate_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_foregate_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_foregate_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_foregate_init_process(ngx_cycle_t *cycle);

static ngx_http_output_header_filter_pt ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt ngx_http_next_body_filter;

static ngx_command_t ngx_http_foregate_commands[] = {
    { ngx_string("foregate"),
      NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_1MORE,
      ngx_http_foregate,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },
    ngx_null_command
};

static ngx_http_module_t ngx_http_foregate_module_ctx = {
    ngx_http_foregate_preconfiguration,
    ngx_http_foregate_postconfiguration,
    ngx_http_foregate_create_main_conf,
    NULL,
    NULL,
    NULL,
    ngx_http_foregate_create_loc_conf,
    ngx_http_foregate_merge_loc_conf
};

ngx_module_t ngx_http_foregate_module = {
    NGX_MODULE_V1,
    &ngx_http_foregate_module_ctx,
    ngx_http_foregate_commands,
    NGX_HTTP_MODULE,
    NULL,
    NULL,
    ngx_http_foregate_init_process,
    NULL,
    NULL,
    NULL,
    NULL,
    NGX_MODULE_V1_PADDING
};

/* What the other half is lent. */

static fg_text
ngx_http_foregate_text(ngx_str_t *str)
{
    fg_text text = { str->data, str->len };
    return text;
}

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
    /* It is not what an error of NGINX's own has led to any more. */
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
        /* It is a text of OpenSSL's, whose length nobody tells. */
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

static const fg_host ngx_http_foregate_host = {
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
};

/* What is known of a request. */
static void
ngx_http_foregate_facts(ngx_http_request_t *r, fg_facts *facts)
{
    ngx_http_core_srv_conf_t *cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    struct sockaddr *address = r->connection->sockaddr;

    ngx_memzero(facts, sizeof(fg_facts));

    switch (address->sa_family) {
    case AF_INET:
        facts->family = 4;
        ngx_memcpy(facts->address, &((struct sockaddr_in *) address)->sin_addr, 4);
        break;
#if (NGX_HAVE_INET6)
    case AF_INET6:
        facts->family = 6;
        ngx_memcpy(facts->address, &((struct sockaddr_in6 *) address)->sin6_addr, 16);
        break;
#endif
    default:
        break;
    }

#if (NGX_HTTP_SSL)
    facts->https = r->connection->ssl != NULL;
#endif
    /* A subrequest's target is not what was sent. */
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

/* What is kept of a request. */

static void
ngx_http_foregate_cleanup(void *data)
{
    ngx_http_foregate_ctx_t *ctx = data;

    if (ctx->request != NULL) {
        fg_request_free(ctx->request);
        ctx->request = NULL;
    }
}

/* NGINX forgets what modules keep when it redirects internally; the cleanup handler still knows. */
static ngx_http_foregate_ctx_t *
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

static ngx_http_foregate_ctx_t *
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

/* The route of a request; NULL when its steps do not run here. */
static const void *
ngx_http_foregate_route(ngx_http_request_t *r)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_foregate_module);

    /* What a subrequest brings becomes part of a response whose steps run anyway. */
    return r == r->main || conf->own ? conf->route : NULL;
}

/* Begins a route for a request, unless it has begun. */
static ngx_http_foregate_ctx_t *
ngx_http_foregate_begin(ngx_http_request_t *r, const void *route, const fg_facts *facts)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_ctx(r);
    ngx_http_foregate_switch_t *switched;
    ngx_uint_t i;

    if (ctx == NULL || (ctx->request != NULL && ctx->route == route)) {
        return ctx;
    }

    ngx_http_foregate_cleanup(ctx);
    ctx->route = route;
    ctx->requested = 0;
    ctx->request = fg_request_new(route, r, facts);
    if (ctx->request == NULL) {
        return NULL;
    }

    switched = ctx->switches.elts;
    for (i = 0; i < ctx->switches.nelts; i++) {
        (void) fg_switch(ctx->request, r, ngx_http_foregate_text(&switched[i].name), switched[i].on);
    }
    return ctx;
}

/* The body of an answer, as a chain. */
static ngx_chain_t *
ngx_http_foregate_body(ngx_http_request_t *r, ngx_str_t *body)
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
    buf->last_buf = r == r->main;
    buf->last_in_chain = 1;
    out->buf = buf;
    out->next = NULL;
    return out;
}

/* The steps of the request. */
static ngx_int_t
ngx_http_foregate_rewrite_handler(ngx_http_request_t *r)
{
    const void *route = ngx_http_foregate_route(r);
    ngx_http_foregate_ctx_t *ctx;
    ngx_chain_t *out;
    fg_facts facts;
    ngx_int_t rc;

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
    ctx->requested = 1;

    switch (fg_run_request(ctx->request, r, &facts)) {
    case FG_GO_ON:
        return NGX_DECLINED;
    case FG_ABORT:
        return NGX_HTTP_CLOSE;
    case FG_ANSWER:
        break;
    default:
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_discard_request_body(r);
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
    out = ngx_http_foregate_body(r, &ctx->body);
    return out == NULL ? NGX_ERROR : ngx_http_output_filter(r, out);
}

/* The steps of the response. */

static ngx_int_t ngx_http_foregate_move(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

static ngx_int_t
ngx_http_foregate_header_filter(ngx_http_request_t *r)
{
    const void *route = ngx_http_foregate_route(r);
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    int body;
    fg_shaped shaped = { 0, 0 };
    fg_facts facts;
    ngx_int_t rc;
    int source;

    if (ctx != NULL && ctx->request != NULL) {
        /* A step's answer is shaped by the route of the step, whatever location it was. */
        route = ctx->answered ? ctx->route : route;
    }
    if (route == NULL || r->unparsed_uri.len == 0 || (ctx != NULL && ctx->responded)) {
        return ngx_http_next_header_filter(r);
    }
    if (r->headers_out.status == NGX_HTTP_SWITCHING_PROTOCOLS || (r->upstream != NULL && r->upstream->upgrade)) {
        /* What follows is a tunnel. */
        return ngx_http_next_header_filter(r);
    }

    ngx_http_foregate_facts(r, &facts);
    ctx = ngx_http_foregate_begin(r, route, &facts);
    if (ctx == NULL) {
        return NGX_ERROR;
    }
    ctx->responded = 1;

    if (r->headers_out.status == NGX_HTTP_NO_CONTENT || r->headers_out.content_length_n == 0) {
        body = FG_EMPTY;
    } else if (r->method == NGX_HTTP_HEAD || r->header_only || r->headers_out.status == NGX_HTTP_NOT_MODIFIED) {
        body = FG_UNSENT;
    } else {
        body = FG_SENT;
    }
    source = ctx->answered ? FG_FROM_STEP : r->err_status ? FG_FROM_ERROR : FG_FROM_ORIGIN;

    switch (fg_run_response(ctx->request, r, &facts, r->headers_out.status, source, body, &shaped)) {
    case FG_GO_ON:
        break;
    case FG_ANSWER:
        ctx->swallow = 1;
        break;
    default:
        ctx->failed = 1;
        return NGX_ERROR;
    }

    if (shaped.changes) {
        ngx_http_foregate_body_changes(r);
        r->allow_ranges = 0;
    }
    if (shaped.filters) {
        ctx->filters = 1;
        r->filter_need_in_memory = 1;
    }

    rc = ngx_http_next_header_filter(r);
    if (!ctx->swallow || rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    /* The body of the new response goes out now; what the old one's maker still sends is dropped. */
    ctx->in = ngx_http_foregate_body(r, &ctx->body);
    if (ctx->in == NULL) {
        return NGX_ERROR;
    }
    if (ctx->filters) {
        return ngx_http_foregate_move(r, ctx);
    }
    ctx->done = 1;
    return ngx_http_next_body_filter(r, ctx->in);
}

/* The filters of the body. */

static ngx_buf_t *
ngx_http_foregate_buffer(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t **link)
{
    ngx_buf_t *buf;

    if (ctx->free != NULL) {
        *link = ctx->free;
        ctx->free = ctx->free->next;
        buf = (*link)->buf;
        /* Marks of the last time. */
        buf->temporary = 1;
        buf->flush = 0;
        buf->last_buf = 0;
        buf->last_in_chain = 0;
    } else {
        if (ctx->buffers >= NGX_HTTP_FOREGATE_BUFFERS) {
            return NULL;
        }
        *link = ngx_alloc_chain_link(r->pool);
        buf = ngx_create_temp_buf(r->pool, NGX_HTTP_FOREGATE_BUFFER_SIZE);
        if (*link == NULL || buf == NULL) {
            ctx->failed = 1;
            return NULL;
        }
        buf->tag = (ngx_buf_tag_t) &ngx_http_foregate_module;
        buf->recycled = 1;
        (*link)->buf = buf;
        ctx->buffers++;
    }
    (*link)->next = NULL;
    return buf;
}

/* Puts what the filters make of the first of the queued buffers into one of ours. */
static ngx_int_t
ngx_http_foregate_fill(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *out)
{
    ngx_buf_t *in = ctx->in != NULL ? ctx->in->buf : NULL;
    ngx_chain_t *link;
    ngx_uint_t end = 0;
    fg_moved moved;
    fg_text text = { NULL, 0 };
    int flags = 0;

    if (in != NULL) {
        if (ngx_buf_in_memory(in)) {
            text.data = in->pos;
            text.len = in->last - in->pos;
        } else if (in->in_file && in->file_last > in->file_pos) {
            ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0, "foregate: a buffer that is not in memory");
            return NGX_ERROR;
        }
        end = in->last_buf || (in->last_in_chain && r != r->main);
        flags = (end ? FG_END : 0) | (in->flush ? FG_FLUSH : 0);
    }

    if (fg_move(ctx->request, r, text, flags, out->last, out->end - out->last, &moved) != 0) {
        return NGX_ERROR;
    }
    out->last += moved.produced;
    ctx->more = moved.more;
    if (in == NULL) {
        return NGX_OK;
    }
    if (text.len) {
        in->pos += moved.consumed;
    }
    if (moved.consumed < text.len || moved.more) {
        return NGX_OK;
    }

    /* It is used up, and so is what came of it. */
    out->flush = in->flush;
    out->last_buf = in->last_buf;
    out->last_in_chain = in->last_in_chain;
    ctx->done = end;
    link = ctx->in;
    ctx->in = link->next;
    ngx_free_chain(r->pool, link);
    return NGX_OK;
}

/* Moves the body on until there is no more of it, or until all buffers are under way. */
static ngx_int_t
ngx_http_foregate_move(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *out, **last, *link;
    ngx_buf_t *buf;
    ngx_int_t rc = NGX_OK;

    if (ctx->full || (ctx->in == NULL && !ctx->more)) {
        /* The buffers under way have to go first; or there is nothing of ours, and others may have something. */
        rc = ngx_http_next_body_filter(r, NULL);
        out = NULL;
        ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t) &ngx_http_foregate_module);
        ctx->full = 0;
        if (rc == NGX_ERROR) {
            return rc;
        }
    }

    while (!ctx->done && (ctx->in != NULL || ctx->more)) {
        out = NULL;
        last = &out;

        while (!ctx->done && (ctx->in != NULL || ctx->more)) {
            buf = ngx_http_foregate_buffer(r, ctx, &link);
            if (buf == NULL) {
                ctx->full = 1;
                break;
            }
            if (ctx->failed || ngx_http_foregate_fill(r, ctx, buf) != NGX_OK) {
                ctx->failed = 1;
                break;
            }
            if (ngx_buf_size(buf) == 0 && !buf->flush && !buf->last_buf && !buf->last_in_chain) {
                link->next = ctx->free;
                ctx->free = link;
                continue;
            }
            /* A buffer that only marks something must not look like one that should hold something. */
            buf->temporary = ngx_buf_size(buf) > 0;
            *last = link;
            last = &link->next;
        }
        *last = NULL;

        if (ctx->failed) {
            r->connection->error = 1;
            return NGX_ERROR;
        }
        if (out == NULL) {
            break;
        }

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
        return NGX_AGAIN;
    }
    r->buffered &= ~NGX_HTTP_FOREGATE_BUFFERED;
    return rc;
}

static ngx_int_t
ngx_http_foregate_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_foregate_module);

    if (ctx == NULL || (!ctx->filters && !ctx->swallow)) {
        return ngx_http_next_body_filter(r, in);
    }
    if (ctx->failed) {
        return NGX_ERROR;
    }

    if (ctx->swallow) {
        for ( /* void */ ; in != NULL; in = in->next) {
            in->buf->pos = in->buf->last;
            in->buf->file_pos = in->buf->file_last;
        }
    }
    if (ctx->done || !ctx->filters) {
        /* What comes after the end is of others, such as the end that addition's filter has held back. */
        return ngx_http_next_body_filter(r, in);
    }
    if (in != NULL && ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_foregate_move(r, ctx);
}

/* The end of a request. */
static ngx_int_t
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

    duration = (int64_t) (now->sec - r->start_sec) * 1000 + ((int64_t) now->msec - (int64_t) r->start_msec);
    summary.duration_ms = duration > 0 ? duration : 0;
    summary.bytes_out = r->connection->sent - (off_t) r->header_size > 0 ? r->connection->sent - r->header_size : 0;
    summary.bytes_in = r->headers_in.content_length_n > 0 ? r->headers_in.content_length_n : 0;
    ngx_http_foregate_facts(r, &facts);
    fg_run_log(ctx->request, r, &facts, r->headers_out.status, &summary);
    return NGX_OK;
}

/* For Lua: ffi.C.foregate_feature_enable(request, name). */

static int
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
        return fg_switch(ctx->request, r, text, on);
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

int foregate_feature_enable(ngx_http_request_t *r, const char *name);
int foregate_feature_disable(ngx_http_request_t *r, const char *name);

int
foregate_feature_enable(ngx_http_request_t *r, const char *name)
{
    return ngx_http_foregate_switch(r, name, 1);
}

int
foregate_feature_disable(ngx_http_request_t *r, const char *name)
{
    return ngx_http_foregate_switch(r, name, 0);
}

/* Variables, for the access log. */

static ngx_int_t
ngx_http_foregate_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t what)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    fg_text text = { NULL, 0 };

    if (ctx != NULL && ctx->request != NULL) {
        text = fg_tell(ctx->request, (int) what);
    }
    if (text.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }
    v->data = ngx_pnalloc(r->pool, text.len);
    if (v->data == NULL) {
        return NGX_ERROR;
    }
    ngx_memcpy(v->data, text.data, text.len);
    v->len = text.len;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    return NGX_OK;
}

static ngx_int_t
ngx_http_foregate_panics(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char *text = ngx_pnalloc(r->pool, NGX_INT64_LEN);

    if (text == NULL) {
        return NGX_ERROR;
    }
    v->len = ngx_sprintf(text, "%uL", fg_panics()) - text;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = text;
    return NGX_OK;
}

static ngx_http_variable_t ngx_http_foregate_variables[] = {
    { ngx_string("foregate_notes"), NULL, ngx_http_foregate_variable, FG_NOTES, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_step"), NULL, ngx_http_foregate_variable, FG_STEP, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_events"), NULL, ngx_http_foregate_variable, FG_EVENTS, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_client"), NULL, ngx_http_foregate_variable, FG_CLIENT, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_panics"), NULL, ngx_http_foregate_panics, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    ngx_http_null_variable
};

/* Configuration. */

static ngx_int_t
ngx_http_foregate_preconfiguration(ngx_conf_t *cf)
{
    ngx_http_variable_t *variable, *added;

    for (variable = ngx_http_foregate_variables; variable->name.len; variable++) {
        added = ngx_http_add_variable(cf, &variable->name, variable->flags);
        if (added == NULL) {
            return NGX_ERROR;
        }
        added->get_handler = variable->get_handler;
        added->data = variable->data;
    }
    return NGX_OK;
}

static ngx_int_t
ngx_http_foregate_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *handler;

    handler = ngx_array_push(&cmcf->phases[NGX_HTTP_REWRITE_PHASE].handlers);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = ngx_http_foregate_rewrite_handler;

    handler = ngx_array_push(&cmcf->phases[NGX_HTTP_LOG_PHASE].handlers);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = ngx_http_foregate_log_handler;

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_foregate_header_filter;
    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_foregate_body_filter;
    return NGX_OK;
}

static void
ngx_http_foregate_cleanup_cycle(void *data)
{
    fg_cycle_free(data);
}

static void *
ngx_http_foregate_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_foregate_main_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_foregate_main_conf_t));
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);

    if (conf == NULL || cleanup == NULL) {
        return NULL;
    }
    fg_start(&ngx_http_foregate_host);
    conf->cycle = fg_cycle_new();
    if (conf->cycle == NULL) {
        return NULL;
    }
    cleanup->handler = ngx_http_foregate_cleanup_cycle;
    cleanup->data = conf->cycle;
    return conf;
}

static void *
ngx_http_foregate_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_foregate_loc_conf_t));

    return conf;
}

static char *
ngx_http_foregate_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_foregate_loc_conf_t *outer = parent, *conf = child;

    if (!conf->set) {
        conf->route = outer->route;
        /* `if` makes a location of its own within one. */
        conf->own = clcf->noname && outer->own;
    }
    return NGX_CONF_OK;
}

/* foregate FILE [off=KEY]...; or foregate off; */
static char *
ngx_http_foregate(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_foregate_module);
    ngx_http_foregate_loc_conf_t *conf = data;
    ngx_str_t *value = cf->args->elts, path;
    ngx_uint_t i, count = cf->args->nelts - 2;
    fg_text *off;

    if (conf->set) {
        return "is duplicate";
    }
    conf->set = 1;
    conf->own = (cf->cmd_type & NGX_HTTP_LOC_CONF) != 0;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    path = value[1];
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    off = ngx_palloc(cf->temp_pool, (count + 1) * sizeof(fg_text));
    if (off == NULL) {
        return NGX_CONF_ERROR;
    }
    for (i = 0; i < count; i++) {
        if (value[i + 2].len < 5 || ngx_strncmp(value[i + 2].data, "off=", 4) != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\": write off=KEY", &value[i + 2]);
            return NGX_CONF_ERROR;
        }
        off[i].data = value[i + 2].data + 4;
        off[i].len = value[i + 2].len - 4;
    }

    conf->route = fg_route(main->cycle, cf, ngx_http_foregate_text(&path), off, count);
    return conf->route == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
}

static ngx_int_t
ngx_http_foregate_init_process(ngx_cycle_t *cycle)
{
    fg_worker_start();
    return NGX_OK;
}
