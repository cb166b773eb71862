/*
 * The interface between the two halves of the module. This half is compiled against the headers of the NGINX that loads
 * it and touches NGINX's structures; the other half (src/ffi.rs, which repeats every declaration here) runs the steps and
 * knows nothing of them. No structure of NGINX crosses: only pointers that the other side hands back, numbers and texts.
 */

#ifndef FOREGATE_H
#define FOREGATE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that live at least as long as the call, those of a request as long as the request. */
typedef struct {
    const unsigned char *data;
    size_t len;
} fg_text;

/* A field of a head. */
typedef struct {
    fg_text name;
    fg_text value;
    void *element; /* its ngx_table_elt_t; NULL for one that NGINX keeps elsewhere and writes itself */
} fg_field;

/* An end of a connection. */
typedef struct {
    uint8_t bytes[16];
    uint16_t port;
    uint8_t family; /* 0: none, 4, 6 */
} fg_address;

/* The facts about a request beside its fields. */
typedef struct {
    fg_address client;
    uint8_t https;
    uint8_t raw_is_valid; /* `uri` and `args` were made of `raw` */
    uint8_t chunked;
    uint32_t version; /* as NGINX counts: 1001 is HTTP/1.1 */
    int64_t content_length; /* -1: not announced */
    fg_text method;
    fg_text server;
    fg_text host; /* the field */
    fg_text uri;  /* decoded */
    fg_text args;
    fg_text raw; /* as it was sent */
    fg_text site;
    fg_text route;
} fg_facts;

typedef struct {
    uint8_t is_tls;
    uint8_t client_verified;
    fg_text version;
    fg_text server_name;
    fg_text client_subject;
} fg_tls;

enum { FG_REQUEST = 0, FG_RESPONSE = 1 };

/* The functions of this half for the other. */
typedef struct {
    /* Fills `out` with at most `room` fields of the request or response; says how many there are. */
    size_t (*fields)(void *r, int which, fg_field *out, size_t room);
    /* Adds a field; gives its element through `field`. 0, or -1 when there is no memory. */
    int (*append)(void *r, int which, fg_field *field);
    /* Gives a field, as `fields` has told it, another value. */
    int (*replace)(void *r, int which, fg_field *field, fg_text value);
    /* Takes fields away; those that are left must be asked for anew. */
    int (*remove)(void *r, int which, const fg_field *fields, size_t count);
    /* Changes the target: the decoded path, and the query. */
    int (*target)(void *r, fg_text path, fg_text args);
    /* Makes this the response, without fields; the body is copied. */
    int (*answer)(void *r, uint32_t status, fg_text body);
    void (*tls)(void *r, fg_tls *out);
    void (*now)(uint64_t *unix_ms, uint64_t *steady_ms);
    /* Writes a line into the error log; `r` may be NULL. 0: debug, 1: info, 2: warn, 3: error. */
    void (*log)(void *r, int level, fg_text line);
    /* Reports an error in a route file. */
    void (*refuse)(void *cf, fg_text line);
    /* The end of the connection that the client connected to. */
    void (*local)(void *r, fg_address *out);
    /* A log file of the configuration; NULL when it cannot be had. */
    void *(*open_log)(void *cf, fg_text path);
    /* Writes a line, including its end. */
    void (*write_log)(void *file, fg_text line);
    /* The meaning of an upstream at the request: its server, and a prefix; -1: the site itself, an empty
     * prefix. 0, or -1 when it stands for nothing. */
    int (*place)(void *r, int32_t upstream, uint64_t *server, fg_text *prefix);
    /* Limits the request's body to so many bytes, unless it is limited to fewer. */
    void (*limit_body)(void *r, uint64_t bytes);
} fg_host;

/* The result of a run of phases. */
enum {
    FG_GO_ON = 0,
    FG_ANSWER = 1, /* the response has been made by `answer` */
    FG_ABORT = 2,  /* break off */
    FG_FAILED = 3, /* a step has failed: 500 */
    FG_READ_BODY = 4, /* steps want the start of the request's body first; then call again */
    FG_HOLD = 5,      /* steps want the start of the response's body first; then call again */
    FG_FETCH = 6,     /* steps have asked for something (fg_ask): call again when all of it has been answered */
    FG_OFFLOAD = 7,   /* a step is to run on a thread (fg_job_new): call again when it has been settled */
    FG_FILTER_BODY = 8, /* they have run; the request's body is to go through filters (fg_upload) */
    FG_FULL = 9         /* there was no thread for a step: 503 */
};

/* A request that is to be made. The texts live until it is answered. */
typedef struct {
    int32_t upstream; /* -1: the site itself */
    fg_text method;
    fg_text path; /* decoded */
    fg_text args;
    fg_text host;
    fg_text body;
    uint64_t timeout_ms;
} fg_question;

/* The result of it. */
enum { FG_ANSWERED = 0, FG_NO_CONNECTION = 1, FG_TIMED_OUT = 2, FG_TOO_LARGE = 3, FG_NOT_ASKED = 4 };

/* The source of a response. */
enum { FG_FROM_ORIGIN = 0, FG_FROM_STEP = 1, FG_FROM_ERROR = 2 };

/* The treatment of the body: sent, not sent though there is one (HEAD, 304), or there is none. */
enum { FG_SENT = 0, FG_UNSENT = 1, FG_EMPTY = 2 };

typedef struct {
    uint8_t filters; /* the body goes through filters */
    uint8_t changes; /* which do not keep its length */
    size_t hold;     /* with FG_HOLD: how much is wanted */
} fg_shaped;

enum { FG_END = 1, FG_FLUSH = 2 };

typedef struct {
    size_t consumed;
    size_t produced;
    uint8_t more; /* there is output left, or input that makes some without more of it */
    uint8_t asks; /* a filter has asked for something (fg_ask): nothing moves until it has been answered */
    uint8_t soon; /* the output is to be sent before more is moved */
    uint8_t over; /* the rest of the body passes unchanged */
} fg_moved;

typedef struct {
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t duration_ms;
} fg_summary;

enum { FG_NOTES = 0, FG_STEP = 1, FG_EVENTS = 2, FG_CLIENT = 3, FG_UPSTREAM = 4, FG_SCHEME = 5 };

/* The arguments of a directive beside its file. */
typedef struct {
    const fg_text *off; /* keys that have to be switched on */
    size_t off_count;
    const fg_text *upstreams; /* names that stand for a location */
    size_t upstream_count;
    fg_text fallback; /* the upstream of requests for which none is chosen; none: empty */
} fg_terms;

/* The functions of the other half for this one. Nothing unwinds out of these. */
void fg_start(const fg_host *host);
void fg_worker_start(void);
uint64_t fg_panics(void);
void *fg_cycle_new(void);
void fg_cycle_free(void *cycle);
/* The number of the upstream of a name; -1 when that fails. */
int32_t fg_upstream(void *cycle, fg_text name);
/* Sets the surroundings of the route files, before there are any: the names of NGINX's own upstreams, if a variable reads the
 * chosen one, and if there are threads for heavy steps. */
void fg_surround(void *cycle, const fg_text *blocks, size_t count, int follows, int threads);
/* NULL when the file is refused; the error has been reported. The route lives as long as the cycle. */
const void *fg_route(void *cycle, void *cf, fg_text path, const fg_terms *terms);
/* True if a route asks an upstream. */
int fg_route_asks(const void *route, int32_t upstream);
/* True if a route has filters of the response's body. */
int fg_route_filters(const void *route);
void *fg_request_new(const void *route, const fg_facts *facts);
void fg_request_free(void *request);
/* With FG_READ_BODY `wanted` says how much. */
int fg_run_request(void *request, void *r, const fg_facts *facts, size_t *wanted);
/* The start of a body, for the steps that want it; it is copied. */
void fg_give_body(void *request, int which, fg_text start, int whole);
/* The next fetch: 1 when it is to be fetched, 0 when there is an answer already, -1 when there is no more. */
int fg_ask(void *request, size_t number, fg_question *question);
/* A field of it: 1, or 0 when there is no more. */
int fg_ask_field(void *request, size_t number, size_t field, fg_field *out);
/* A part of the answer's body: 0, or -1 when it has become too large. */
int fg_receive(void *request, size_t number, fg_text part);
/* The answer; its body has been received. */
void fg_answered(void *request, void *r, size_t number, int how, uint32_t status, const fg_field *fields, size_t count);
int fg_run_response(void *request, void *r, const fg_facts *facts, uint32_t status, int source, int body,
                    fg_shaped *shaped);
int fg_move(void *request, void *r, fg_text in, int flags, unsigned char *out, size_t room, fg_moved *moved);
/* Moves the request's body through its filters: 0, or the status with which it is answered. */
int fg_upload(void *request, void *r, fg_text in, int end, unsigned char *out, size_t room, fg_moved *moved);
/* A step that is to run on a thread, and how long it may wait for one; NULL when it has no place there. */
void *fg_job_new(void *request, uint64_t *wait_ms);
/* Runs it. The only function that is called on another thread. */
void fg_job_run(void *job);
/* Takes it back, with its result, or undone: 1; 0 while a thread runs it. */
int fg_job_settle(void *request, void *job);
/* Nobody waits for it any more; a thread may still be at it. */
void fg_job_forget(void *job);
void fg_job_free(void *job);
void fg_run_log(void *request, void *r, const fg_facts *facts, uint32_t status, const fg_summary *summary);
/* 1: done; 0: too late, the steps have run; -1: the route has no such key. */
int fg_switch(void *request, fg_text name, int on);
/* The text lives until the next call. */
fg_text fg_tell(void *request, int what);

#endif
