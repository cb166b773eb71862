/*
 * Fetches of steps and filters. Each such request becomes a subrequest in the background: it is no part of
 * the response, so that its output goes on to the client meanwhile. Its answer is collected by the
 * other half, where there is a bound for it, and never reaches the filters behind ours.
 *
 * The asking side waits: a request in the rewrite phase, a response with its head, or the filters of a body. When the last answer
 * is there, it is woken by a posted request, as NGINX wakes the parent of a subrequest.
 */

#include "ngx_http_foregate.h"
#include "ngx_http_foregate_fields.h"

/* A subrequest. It lives as long as the main request. */
struct ngx_http_foregate_fetch_s {
    ngx_http_request_t *r;  /* the asking request */
    ngx_http_request_t *sr; /* NGINX's subrequest for it */
    ngx_http_foregate_ctx_t *ctx; /* of the asking request; NULL when nothing waits for it any more */
    ngx_http_foregate_fetch_t *next;
    size_t number; /* as the other half counts */
    ngx_event_t timer;
    ngx_int_t status; /* that NGINX has made an answer of */
    unsigned is_upstream : 1;
    unsigned placed : 1;   /* it has come to its location */
    unsigned answered : 1; /* the other half has been told */
    unsigned headed : 1;   /* the head has come by */
    unsigned ended : 1;    /* the end of the body has */
    unsigned over : 1;     /* the subrequest has come to its end */
};

static const struct {
    ngx_str_t name;
    ngx_uint_t method;
} ngx_http_foregate_methods[] = {
    { ngx_string("GET"), NGX_HTTP_GET },
    { ngx_string("HEAD"), NGX_HTTP_HEAD },
    { ngx_string("POST"), NGX_HTTP_POST },
    { ngx_string("PUT"), NGX_HTTP_PUT },
    { ngx_string("DELETE"), NGX_HTTP_DELETE },
    { ngx_string("OPTIONS"), NGX_HTTP_OPTIONS },
    { ngx_string("PATCH"), NGX_HTTP_PATCH },
};

static ngx_int_t ngx_http_foregate_fetch_done(ngx_http_request_t *sr, void *data, ngx_int_t rc);

ngx_http_foregate_upstream_t *
ngx_http_foregate_find_upstream(ngx_http_request_t *r, int32_t number)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_foregate_module);
    ngx_http_foregate_upstream_t *upstream;
    ngx_uint_t i;

    if (conf->upstreams == NULL) {
        return NULL;
    }
    upstream = conf->upstreams->elts;
    for (i = 0; i < conf->upstreams->nelts; i++) {
        if (upstream[i].number == number) {
            return &upstream[i];
        }
    }
    return NULL;
}

ngx_http_foregate_fetch_t *
ngx_http_foregate_fetch_of(ngx_http_request_t *r)
{
    /* An internal redirect clears the contexts of modules, but not this. */
    if (r != r->main && r->post_subrequest != NULL && r->post_subrequest->handler == ngx_http_foregate_fetch_done) {
        return r->post_subrequest->data;
    }
    return NULL;
}

/* Breaks off a subrequest that nobody waits for any more, if it waits for an upstream; others come to their end. */
static void
ngx_http_foregate_fetch_cancel(ngx_http_foregate_fetch_t *fetch)
{
    ngx_http_request_t *sr = fetch->sr;
    ngx_http_cleanup_pt handler;

    if (fetch->over || sr->main->blocked || sr->aio || sr->upstream == NULL || sr->upstream->cleanup == NULL) {
        return;
    }
    handler = *sr->upstream->cleanup;
    if (handler == NULL) {
        return;
    }
    /* As at the end of the main request: the connection is closed, and the main request counts one less. */
    fetch->over = 1;
    handler(sr);
    sr->done = 1;
}

/* Wakes the asking request. */
static void
ngx_http_foregate_wake(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    if (!ctx->paused) {
        ngx_http_foregate_wake_response(r, ctx);
    }
    if (ngx_http_post_request(r, NULL) != NGX_OK) {
        r->connection->error = 1;
    }
}

void
ngx_http_foregate_answered(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ctx->asking--;
    if (ctx->asking == 0) {
        ngx_http_foregate_wake(r, ctx);
    }
}

/* Passes the result of a subrequest to the other half, once. */
static void
ngx_http_foregate_fetch_answer(ngx_http_foregate_fetch_t *fetch, int how)
{
    ngx_http_foregate_ctx_t *ctx = fetch->ctx;
    ngx_http_request_t *sr = fetch->sr;
    fg_field *fields = NULL;
    size_t count = 0;

    if (fetch->answered || ctx == NULL) {
        return;
    }
    fetch->answered = 1;
    if (fetch->timer.timer_set) {
        ngx_del_timer(&fetch->timer);
    }
    if (how == FG_ANSWERED) {
        count = ngx_http_foregate_fields(sr, FG_RESPONSE, NULL, 0);
        fields = ngx_palloc(sr->pool, (count + 1) * sizeof(fg_field));
        if (fields == NULL) {
            how = FG_NO_CONNECTION;
            count = 0;
        } else {
            (void) ngx_http_foregate_fields(sr, FG_RESPONSE, fields, count);
        }
    }
    fg_answered(ctx->request, fetch->r, fetch->number, how, sr->headers_out.status, fields, count);
    ngx_http_foregate_answered(fetch->r, ctx);
}

/* The time is up, or the answer was too large. */
static void
ngx_http_foregate_fetch_stop(ngx_event_t *event)
{
    ngx_http_foregate_fetch_t *fetch = event->data;
    ngx_connection_t *c = fetch->r->connection;

    ngx_http_set_log_request(c->log, fetch->r);
    ngx_http_foregate_fetch_answer(fetch, FG_TIMED_OUT);
    ngx_http_foregate_fetch_cancel(fetch);
    ngx_http_run_posted_requests(c);
}

/* The subrequest has come to an end, or is going to be answered by NGINX. */
static ngx_int_t
ngx_http_foregate_fetch_done(ngx_http_request_t *sr, void *data, ngx_int_t rc)
{
    ngx_http_foregate_fetch_t *fetch = data;
    int how;

    if (sr->buffered && rc != NGX_ERROR && rc < NGX_HTTP_SPECIAL_RESPONSE) {
        /* It waits for a file; this is called again. */
        return rc;
    }
    if (rc > NGX_OK && !fetch->headed && rc != NGX_HTTP_CLOSE && rc != NGX_HTTP_CLIENT_CLOSED_REQUEST
        && rc != NGX_HTTP_REQUEST_TIME_OUT)
    {
        /* NGINX makes an answer of it, or `error_page` does. */
        fetch->status = rc;
        return rc;
    }

    if (rc == NGX_OK || rc == NGX_AGAIN || rc == NGX_DECLINED) {
        how = FG_ANSWERED;
    } else {
        how = FG_NO_CONNECTION;
    }
    if (!fetch->headed || !fetch->ended) {
        /* An upstream that breaks off makes NGINX end the body without its last buffer. */
        how = FG_NO_CONNECTION;
    } else if (how == FG_ANSWERED && sr->err_status == (ngx_uint_t) fetch->status) {
        /* NGINX's error for an upstream is no response of it. */
        how = fetch->status == NGX_HTTP_GATEWAY_TIME_OUT ? FG_TIMED_OUT
              : fetch->status == NGX_HTTP_BAD_GATEWAY ? FG_NO_CONNECTION : FG_ANSWERED;
    }
    fetch->over = 1;
    ngx_http_foregate_fetch_answer(fetch, how);
    /* An error would end the main request as well. */
    return NGX_OK;
}

ngx_int_t
ngx_http_foregate_fetch_head(ngx_http_request_t *sr, ngx_http_foregate_fetch_t *fetch)
{
    sr->header_sent = 1;
    if (sr->method == NGX_HTTP_HEAD) {
        sr->header_only = 1;
    }
    fetch->headed = 1;
    /* A body of nothing comes to no end of its own. */
    fetch->ended = sr->header_only || sr->headers_out.content_length_n == 0
                   || sr->headers_out.status == NGX_HTTP_NO_CONTENT || sr->headers_out.status == NGX_HTTP_NOT_MODIFIED;
    return NGX_OK;
}

ngx_int_t
ngx_http_foregate_fetch_body(ngx_http_request_t *sr, ngx_http_foregate_fetch_t *fetch, ngx_chain_t *in)
{
    ngx_buf_t *buf;
    fg_text part;

    for ( /* void */ ; in != NULL; in = in->next) {
        buf = in->buf;
        if (fetch->answered || fetch->ctx == NULL) {
            /* Nobody waits for it. */
        } else if (ngx_buf_in_memory(buf)) {
            part.data = buf->pos;
            part.len = buf->last - buf->pos;
            if (part.len && fg_receive(fetch->ctx->request, fetch->number, part) != 0) {
                ngx_http_foregate_fetch_answer(fetch, FG_TOO_LARGE);
                /* Not from here, where NGINX is busy with it. */
                ngx_post_event(&fetch->timer, &ngx_posted_events);
            }
        } else if (ngx_http_foregate_in_file(sr, buf)) {
            ngx_http_foregate_fetch_answer(fetch, FG_NO_CONNECTION);
        }
        fetch->ended |= buf->last_buf || buf->last_in_chain;
        buf->pos = buf->last;
        buf->file_pos = buf->file_last;
    }
    return NGX_OK;
}

/* Copies a text. */
static ngx_int_t
ngx_http_foregate_copy_text(ngx_pool_t *pool, ngx_str_t *to, fg_text text)
{
    to->len = text.len;
    to->data = ngx_pnalloc(pool, text.len + 1);
    if (to->data == NULL) {
        return NGX_ERROR;
    }
    if (text.len) {
        ngx_memcpy(to->data, text.data, text.len);
    }
    to->data[text.len] = '\0';
    return NGX_OK;
}

/* The head of a subrequest: nothing of the client's own is in it. */
static ngx_int_t
ngx_http_foregate_fetch_fields(ngx_http_foregate_fetch_t *fetch, const fg_question *question)
{
    static const fg_text host_name = { (const unsigned char *) "Host", sizeof("Host") - 1 };
    ngx_http_request_t *sr = fetch->sr;
    ngx_http_headers_in_t *head = &sr->headers_in;
    ngx_str_t host;
    fg_field field;
    size_t i;

    ngx_memzero(head, sizeof(ngx_http_headers_in_t));
    head->content_length_n = question->body.len ? (off_t) question->body.len : -1;
    head->keep_alive_n = -1;
    if (ngx_list_init(&head->headers, sr->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    field.name = host_name;
    field.value = question->host;
    field.element = NULL;
    if (ngx_http_foregate_append(sr, FG_REQUEST, &field) != 0
        || ngx_http_foregate_copy_text(sr->pool, &host, question->host) != NGX_OK)
    {
        return NGX_ERROR;
    }
    /* Without the port; an address of IPv6 has colons of its own, in brackets. */
    for (i = host.len; i > 0 && host.data[i - 1] >= '0' && host.data[i - 1] <= '9'; i--) { /* void */ }
    if (i > 0 && host.data[i - 1] == ':') {
        host.len = i - 1;
    }
    ngx_strlow(host.data, host.data, host.len);
    head->server = host;

    for (i = 0; fg_ask_field(fetch->ctx->request, fetch->number, i, &field); i++) {
        if (ngx_http_foregate_append(sr, FG_REQUEST, &field) != 0) {
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

/* Its body, so that NGINX does not take the client's. */
static ngx_http_request_body_t *
ngx_http_foregate_fetch_upload(ngx_http_request_t *r, fg_text body)
{
    ngx_http_request_body_t *upload = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));
    ngx_str_t text;

    if (upload == NULL || body.len == 0) {
        return upload;
    }
    if (ngx_http_foregate_copy_text(r->pool, &text, body) != NGX_OK) {
        return NULL;
    }
    upload->bufs = ngx_http_foregate_body(r, &text, 0);
    return upload->bufs == NULL ? NULL : upload;
}

/* How long a question may take. While a response waits the client gets nothing, for which NGINX gives it `send_timeout`:
 * rather no answer to the question than none to the client. */
static ngx_msec_t
ngx_http_foregate_fetch_time(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, uint64_t timeout_ms)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r->main, ngx_http_core_module);
    uint64_t most = ctx->responded ? clcf->send_timeout / 10 * 9 : NGX_MAX_INT32_VALUE;

    return (ngx_msec_t) ngx_min(timeout_ms, most);
}

/* Makes a subrequest. */
static ngx_int_t
ngx_http_foregate_fetch_start(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, size_t number,
                              const fg_question *question)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    ngx_http_foregate_upstream_t *upstream = NULL;
    ngx_http_foregate_fetch_t *fetch = ngx_pcalloc(r->pool, sizeof(ngx_http_foregate_fetch_t));
    ngx_http_post_subrequest_t *post = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    ngx_http_variable_value_t *variables;
    ngx_http_request_body_t *upload;
    ngx_http_request_t *sr;
    ngx_str_t uri, args, method;
    ngx_uint_t i;
    u_char *end;

    if (question->upstream >= 0) {
        upstream = ngx_http_foregate_find_upstream(r, question->upstream);
        if (upstream == NULL) {
            return NGX_DECLINED;
        }
    }

    uri.len = (upstream != NULL ? upstream->prefix.len : 0) + question->path.len;
    uri.data = ngx_pnalloc(r->pool, uri.len + 1);
    variables = ngx_pcalloc(r->pool, cmcf->variables.nelts * sizeof(ngx_http_variable_value_t));
    upload = ngx_http_foregate_fetch_upload(r, question->body);
    if (fetch == NULL || post == NULL || uri.data == NULL || variables == NULL || upload == NULL
        || ngx_http_foregate_copy_text(r->pool, &args, question->args) != NGX_OK
        || ngx_http_foregate_copy_text(r->pool, &method, question->method) != NGX_OK)
    {
        return NGX_ERROR;
    }
    end = uri.data;
    if (upstream != NULL) {
        end = ngx_cpymem(end, upstream->prefix.data, upstream->prefix.len);
    }
    end = ngx_cpymem(end, question->path.data, question->path.len);
    *end = '\0';

    post->handler = ngx_http_foregate_fetch_done;
    post->data = fetch;
    if (ngx_http_subrequest(r, &uri, &args, &sr, post, NGX_HTTP_SUBREQUEST_BACKGROUND) != NGX_OK) {
        return NGX_DECLINED;
    }

    sr->request_body = upload;
    /* Cached variables of the client's request do not apply to this one. */
    sr->variables = variables;
    sr->filter_need_in_memory = 1;
    sr->discard_body = 0;
    sr->method = NGX_HTTP_UNKNOWN;
    sr->method_name = method;
    for (i = 0; i < sizeof(ngx_http_foregate_methods) / sizeof(ngx_http_foregate_methods[0]); i++) {
        if (ngx_http_foregate_methods[i].name.len == method.len
            && ngx_strncmp(ngx_http_foregate_methods[i].name.data, method.data, method.len) == 0)
        {
            sr->method = ngx_http_foregate_methods[i].method;
        }
    }

    fetch->r = r;
    fetch->sr = sr;
    fetch->ctx = ctx;
    fetch->number = number;
    fetch->is_upstream = upstream != NULL;
    fetch->next = ctx->fetches;
    ctx->fetches = fetch;
    if (ngx_http_foregate_fetch_fields(fetch, question) != NGX_OK) {
        fetch->ctx = NULL;
        return NGX_ERROR;
    }

    fetch->timer.handler = ngx_http_foregate_fetch_stop;
    fetch->timer.data = fetch;
    fetch->timer.log = r->connection->log;
    ngx_add_timer(&fetch->timer, ngx_http_foregate_fetch_time(r, ctx, question->timeout_ms));
    ctx->asking++;
    return NGX_OK;
}

ngx_int_t
ngx_http_foregate_ask(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    fg_question question;
    ngx_int_t rc;
    size_t number;
    int asked;

    for (number = 0; ; number++) {
        asked = fg_ask(ctx->request, number, &question);
        if (asked < 0) {
            return NGX_OK;
        }
        if (asked == 0) {
            continue;
        }
        rc = ngx_http_foregate_fetch_start(r, ctx, number, &question);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }
        if (rc == NGX_DECLINED) {
            fg_answered(ctx->request, r, number, FG_NOT_ASKED, 0, NULL, 0);
        }
    }
}

ngx_int_t
ngx_http_foregate_fetch_place(ngx_http_request_t *r, ngx_http_foregate_fetch_t *fetch)
{
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (!fetch->is_upstream || fetch->placed || clcf->internal) {
        /* From there NGINX may lead it on to wherever it likes. */
        fetch->placed = 1;
        return NGX_DECLINED;
    }
    /* A location with a regular expression, for example, has come before the one that is meant: whatever it answers, it
     * was not asked by its author. */
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "foregate: \"%V\" leads to the location \"%V\", which is not internal", &r->uri, &clcf->name);
    ngx_http_foregate_fetch_answer(fetch, FG_NOT_ASKED);
    return NGX_HTTP_NOT_FOUND;
}

void
ngx_http_foregate_forget_fetches(ngx_http_foregate_ctx_t *ctx, ngx_uint_t live)
{
    ngx_http_foregate_fetch_t *fetch;

    for (fetch = ctx->fetches; fetch != NULL; fetch = fetch->next) {
        if (fetch->timer.timer_set) {
            ngx_del_timer(&fetch->timer);
        }
        if (fetch->timer.posted) {
            ngx_delete_posted_event(&fetch->timer);
        }
        fetch->ctx = NULL;
        if (live) {
            ngx_http_foregate_fetch_cancel(fetch);
        }
    }
    ctx->fetches = NULL;
    ngx_http_foregate_forget_job(ctx);
    ngx_http_foregate_forget_upload(ctx);
    ngx_http_foregate_end_holding(ctx);
    ctx->asking = 0;
}

void
ngx_http_foregate_watch_client(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_event_t *read = r->connection->read;

    ctx->paused = 1;
    ctx->read_handler = r->read_event_handler;
    if (r->discard_body) {
        /* Somebody reads from it already. */
        return;
    }
    r->read_event_handler = ngx_http_test_reading;
    if (read->ready) {
        /* It may have gone before anybody looked. */
        ngx_post_event(read, &ngx_posted_events);
    } else if (ngx_handle_read_event(read, 0) != NGX_OK) {
        r->connection->error = 1;
    }
}
