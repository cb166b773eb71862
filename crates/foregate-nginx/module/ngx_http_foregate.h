/*
 * The declarations that the parts of this half share.
 */

#ifndef NGX_HTTP_FOREGATE_H
#define NGX_HTTP_FOREGATE_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "foregate.h"

extern ngx_module_t ngx_http_foregate_module;

/* Buffers that a response may have under way; whatever a filter makes of its input, no more is held. */
#define NGX_HTTP_FOREGATE_BUFFERS 4

typedef struct {
    void *cycle; /* of the other half */
    ngx_array_t uses; /* of ngx_http_foregate_use_t */
#if (NGX_THREADS)
    ngx_thread_pool_t *threads; /* for heavy steps; NULL: there are none */
#endif
} ngx_http_foregate_main_conf_t;

/* Where a directive stands. */
typedef struct {
    u_char *file;
    ngx_uint_t line;
} ngx_http_foregate_place_t;

/* An upstream of a route file, and the location of NGINX that it stands for. */
typedef struct {
    ngx_str_t name;
    ngx_str_t prefix; /* without a slash at its end */
    ngx_str_t location;
    int32_t number;
    ngx_http_foregate_place_t place;
} ngx_http_foregate_upstream_t;

typedef struct {
    const void *route; /* read once all is known that may stand around it */
    ngx_str_t path;    /* of its file; none: there is no route */
    ngx_array_t off;   /* of fg_text */
    ngx_str_t fallback; /* the upstream of requests for which none is chosen */
    ngx_http_foregate_place_t place;
    ngx_array_t *upstreams; /* of ngx_http_foregate_upstream_t */
    ngx_flag_t set;
    ngx_flag_t own; /* the directive stands in this location, not further out */
} ngx_http_foregate_loc_conf_t;

/* A location and its route, if it has one. */
typedef struct {
    ngx_http_core_srv_conf_t *server;
    ngx_http_foregate_loc_conf_t *conf;
    void **loc_conf; /* of all modules */
} ngx_http_foregate_use_t;

typedef struct ngx_http_foregate_fetch_s ngx_http_foregate_fetch_t;
typedef struct ngx_http_foregate_job_s ngx_http_foregate_job_t;
typedef struct ngx_http_foregate_upload_s ngx_http_foregate_upload_t;

typedef struct {
    ngx_str_t name;
    ngx_uint_t on;
} ngx_http_foregate_switch_t;

/* The marks of a buffer beside its bytes. */
typedef struct {
    unsigned flush : 1;
    unsigned last_buf : 1;
    unsigned last_in_chain : 1;
} ngx_http_foregate_marks_t;

typedef struct {
    ngx_http_request_t *r;
    const void *route;
    void *request; /* of the other half */
    ngx_array_t switches;

    /* The most that the request's body may have, if it is `limited`, and the result of the check. */
    off_t body_limit;
    off_t body_received;

    /* The answer that a step has made. */
    ngx_str_t body;

    /* The start of the response's body, while steps wait for it. */
    u_char *held;
    size_t held_len;
    size_t held_room;
    ngx_event_t hold_timer;

    /* Unconsumed input, and output under way. */
    ngx_chain_t *in;
    ngx_chain_t *out; /* gathered, and goes out when this turn is over at the latest */
    ngx_chain_t *last_out;
    ngx_event_t gathering;
    ngx_chain_t *free;
    ngx_chain_t *busy;
    ngx_uint_t buffers;
    ngx_http_foregate_marks_t marks; /* of the last buffer that has been consumed, while filters have output left */

    ngx_http_event_handler_pt write_handler; /* of the upstream, which ours calls */
    ngx_http_upstream_handler_pt upstream_handler; /* which reads from it, likewise */

    /* Pending work, and the function to call when it is done: fetches, a step on a thread, and
     * others that have their turn while the request's body goes through filters. */
    ngx_http_foregate_fetch_t *fetches;
    ngx_http_foregate_job_t *job;
    ngx_http_foregate_upload_t *upload;
    ngx_uint_t asking; /* how many of these are not there */
    ngx_http_event_handler_pt read_handler;
    ngx_http_event_handler_pt wake_handler;

    unsigned limited : 1;
    unsigned upstream_told : 1; /* somebody has asked which upstream was chosen */
    unsigned own_fields : 1; /* a subrequest: its fields are not those of the main request any more */
    unsigned requested : 1; /* the steps of the request have run */
    unsigned paused : 1;    /* they wait for a fetch */
    unsigned reading : 1;   /* the request's body is being read for them */
    unsigned broken : 1;    /* it could not be read to its end */
    unsigned answered : 1;  /* the response was made by a step */
    unsigned responded : 1; /* the steps of the response have run */
    unsigned holding : 1;   /* they wait for the start of its body */
    unsigned late : 1;      /* the wait for the start timed out: they have the received part */
    unsigned waiting : 1;   /* they wait for a fetch */
    unsigned filters : 1;   /* the body goes through filters */
    unsigned swallow : 1;   /* another body is sent: input is dropped */
    unsigned more : 1;      /* the filters have output left */
    unsigned soon : 1;      /* their output is to be sent before they get more */
    unsigned over : 1;      /* the rest of the body bypasses them */
    unsigned full : 1;      /* all buffers are under way */
    unsigned done : 1;      /* the end has been sent */
    unsigned changed : 1;   /* the length has been taken away */
    unsigned ended : 1;     /* the end of the body has come by, or of the one in its place */
    unsigned cut : 1;       /* its upstream has broken off */
    unsigned failed : 1;
} ngx_http_foregate_ctx_t;

/* NGINX's module that fetches a response in slices; NULL: there is none. */
extern ngx_module_t *ngx_http_foregate_slices;

/* The functions lent to the other half. */
extern const fg_host ngx_http_foregate_host;

static ngx_inline fg_text
ngx_http_foregate_text(const ngx_str_t *str)
{
    fg_text text = { str->data, str->len };
    return text;
}

/* The facts about a request. */
void ngx_http_foregate_facts(ngx_http_request_t *r, fg_facts *facts);

/* The context of a request; NULL without one. */
ngx_http_foregate_ctx_t *ngx_http_foregate_find_ctx(ngx_http_request_t *r);

/* The same; NULL when there is no memory. */
ngx_http_foregate_ctx_t *ngx_http_foregate_ctx(ngx_http_request_t *r);

/* The route of a request; NULL when its steps do not run here. */
const void *ngx_http_foregate_route(ngx_http_request_t *r);

/* Begins a route for a request, unless it has begun. */
ngx_http_foregate_ctx_t *ngx_http_foregate_begin(ngx_http_request_t *r, const void *route, const fg_facts *facts);

/* A body as a chain. */
ngx_chain_t *ngx_http_foregate_body(ngx_http_request_t *r, ngx_str_t *body, ngx_uint_t last);

/* Switches a feature for a request: see foregate_feature_enable. */
int ngx_http_foregate_switch(ngx_http_request_t *r, const char *name, ngx_uint_t on);

ngx_int_t ngx_http_foregate_rewrite_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_foregate_log_handler(ngx_http_request_t *r);

/* The upstream of this number where the request is; NULL when there is none. */
ngx_http_foregate_upstream_t *ngx_http_foregate_find_upstream(ngx_http_request_t *r, int32_t number);

/* The fetch of this subrequest, if it is one. */
ngx_http_foregate_fetch_t *ngx_http_foregate_fetch_of(ngx_http_request_t *r);

/* Checks that it has arrived at its location: NGX_DECLINED, or a status. */
ngx_int_t ngx_http_foregate_fetch_place(ngx_http_request_t *r, ngx_http_foregate_fetch_t *fetch);

/* Its head, and its body. */
ngx_int_t ngx_http_foregate_fetch_head(ngx_http_request_t *sr, ngx_http_foregate_fetch_t *fetch);
ngx_int_t ngx_http_foregate_fetch_body(ngx_http_request_t *sr, ngx_http_foregate_fetch_t *fetch, ngx_chain_t *in);

/* Makes subrequests of the fetches; `asking` is their number. */
ngx_int_t ngx_http_foregate_ask(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* One of the things that a request waits for is there. */
void ngx_http_foregate_answered(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* Nobody waits for answers any more; `live`: the main request goes on. */
void ngx_http_foregate_forget_fetches(ngx_http_foregate_ctx_t *ctx, ngx_uint_t live);

/* Runs a step on a thread; `asking` is set if it does. */
ngx_int_t ngx_http_foregate_offload(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);
void ngx_http_foregate_forget_job(ngx_http_foregate_ctx_t *ctx);

/* Moves the request's body, which has been read, through its filters: NGX_AGAIN while `asking` says that others have their
 * turn, or a status. */
ngx_int_t ngx_http_foregate_filter_upload(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);
void ngx_http_foregate_forget_upload(ngx_http_foregate_ctx_t *ctx);

/* Pauses a request in its rewrite phase; should the client go meanwhile, it ends. */
void ngx_http_foregate_watch_client(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* Has a response go on when its request is run next. */
void ngx_http_foregate_wake_response(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* While a response waits for something, the time does not count of an upstream that NGINX may be unable to read from, nor
 * that of a client for which there is nothing; and then it begins anew. */
void ngx_http_foregate_spare(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);
void ngx_http_foregate_unspare(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* Where neither a length nor chunks tell that there was to be more of a body, a reset does. */
void ngx_http_foregate_tell_broken(ngx_http_request_t *r);

/* Watches a body: its end, or that its upstream is over without (`cut`). */
void ngx_http_foregate_watch_end(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t *in);

/* Ends a response whose upstream has broken off, once all received bytes are sent, if nothing else would show that something is
 * missing. Left to itself, NGINX may say first that it has nothing more to send (lingering_close). */
ngx_int_t ngx_http_foregate_end_cut(ngx_http_request_t *r, ngx_int_t rc);

/* A request is over, however that has come: its client is to see it if its body is not, where nothing else would show that. */
void ngx_http_foregate_check_end(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx);

/* The start of a response's body is not waited for any more. */
void ngx_http_foregate_end_holding(ngx_http_foregate_ctx_t *ctx);

/* Sends the gathered output. */
void ngx_http_foregate_end_gathering(ngx_http_foregate_ctx_t *ctx);

/* True if a buffer has marks. */
static ngx_inline ngx_uint_t
ngx_http_foregate_marked(const ngx_buf_t *buf)
{
    return buf->flush || buf->last_buf || buf->last_in_chain;
}

/* A buffer of ours with room: the last that was gathered, or an empty one; NULL when all are under way, or when there is no
 * memory. */
ngx_buf_t *ngx_http_foregate_buffer(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t **link);

/* A buffer with the marks of an empty one of ours; NULL without marks, or when there is no memory. It is none of
 * ours: those count as sent once they are empty, and would be filled again while the mark still waits to be sent. */
ngx_chain_t *ngx_http_foregate_mark(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *empty);

/* Filters the first of the queued buffers into one of ours. */
ngx_int_t ngx_http_foregate_fill(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *out);

/* True if a buffer is only in a file, which NGINX was asked to avoid. */
ngx_uint_t ngx_http_foregate_in_file(ngx_http_request_t *r, ngx_buf_t *buf);

/* Makes the variables known. */
ngx_int_t ngx_http_foregate_add_variables(ngx_conf_t *cf);

/* Puts the filters in their places. */
void ngx_http_foregate_init_filters(void);
void ngx_http_foregate_init_body_limit(void);

#endif
