/*
 * The filters of a request's body. NGINX has read all of it, into memory and from a certain size on into a file; what the
 * filters make of it takes its place, in memory or in a file by the same measure. That is done a part at a time, so that
 * other requests have their turn in between.
 */

#include "ngx_http_foregate.h"

#define NGX_HTTP_FOREGATE_UPLOAD_BUFFER 16384
/* Buffers that are filled before other requests have their turn. */
#define NGX_HTTP_FOREGATE_UPLOAD_PART 16

struct ngx_http_foregate_upload_s {
    ngx_event_t event; /* goes on with it */
    ngx_http_request_t *r;
    ngx_http_foregate_ctx_t *ctx;
    ngx_chain_t *in; /* unread input */
    off_t at;        /* how much of the first has been */
    u_char *piece;   /* memory for data from a file */
    fg_text text;    /* data that was read and not yet taken */
    ngx_chain_t *out;
    ngx_chain_t **last;
    ngx_chain_t *free;
    ngx_buf_t *buf; /* that is being filled: the last of `out` */
    size_t held;    /* bytes of the buffers in `out` */
    off_t size;     /* of all that has been made */
    ngx_temp_file_t *file;
};

/* Goes on with a body after others have had their turn. */
static void
ngx_http_foregate_upload_handler(ngx_event_t *event)
{
    ngx_http_foregate_upload_t *upload = event->data;
    ngx_http_request_t *r = upload->r;
    ngx_connection_t *c = r->connection;

    ngx_http_set_log_request(c->log, r);
    ngx_http_foregate_answered(r, upload->ctx);
    ngx_http_run_posted_requests(c);
}

static ngx_http_foregate_upload_t *
ngx_http_foregate_upload_new(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_foregate_upload_t *upload = ngx_pcalloc(r->pool, sizeof(ngx_http_foregate_upload_t));

    if (upload == NULL) {
        return NULL;
    }
    upload->r = r;
    upload->ctx = ctx;
    upload->in = r->request_body->bufs;
    upload->last = &upload->out;
    upload->event.handler = ngx_http_foregate_upload_handler;
    upload->event.data = upload;
    upload->event.log = r->connection->log;
    return upload;
}

/* Reads more of the body, if all that has been read has been taken. */
static ngx_int_t
ngx_http_foregate_upload_read(ngx_http_foregate_upload_t *upload)
{
    ngx_buf_t *buf;
    size_t size;
    ssize_t n;

    while (upload->text.len == 0 && upload->in != NULL) {
        buf = upload->in->buf;
        if (ngx_buf_size(buf) - upload->at <= 0) {
            upload->in = upload->in->next;
            upload->at = 0;
            continue;
        }
        size = (size_t) (ngx_buf_size(buf) - upload->at);
        if (ngx_buf_in_memory(buf)) {
            upload->text.data = buf->pos + upload->at;
            upload->text.len = size;
        } else {
            if (upload->piece == NULL) {
                upload->piece = ngx_palloc(upload->r->pool, NGX_HTTP_FOREGATE_UPLOAD_BUFFER);
                if (upload->piece == NULL) {
                    return NGX_ERROR;
                }
            }
            size = ngx_min(size, NGX_HTTP_FOREGATE_UPLOAD_BUFFER);
            n = ngx_read_file(buf->file, upload->piece, size, buf->file_pos + upload->at);
            if (n < 0 || (size_t) n != size) {
                return NGX_ERROR;
            }
            upload->text.data = upload->piece;
            upload->text.len = size;
        }
        upload->at += size;
    }
    /* The end has to be known together with the last data. */
    while (upload->in != NULL && ngx_buf_size(upload->in->buf) - upload->at <= 0) {
        upload->in = upload->in->next;
        upload->at = 0;
    }
    return NGX_OK;
}

/* Writes the output so far into a file. */
static ngx_int_t
ngx_http_foregate_upload_spill(ngx_http_foregate_upload_t *upload)
{
    ngx_http_request_t *r = upload->r;
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    ngx_temp_file_t *file = upload->file;
    ngx_chain_t *link;
    ssize_t n;

    if (file == NULL) {
        file = ngx_pcalloc(r->pool, sizeof(ngx_temp_file_t));
        if (file == NULL) {
            return NGX_ERROR;
        }
        file->file.fd = NGX_INVALID_FILE;
        file->file.log = r->connection->log;
        file->path = clcf->client_body_temp_path;
        file->pool = r->pool;
        file->warn = "the filtered request body is buffered to a temporary file";
        file->log_level = r->request_body_file_log_level;
        file->persistent = r->request_body_in_persistent_file;
        file->clean = r->request_body_in_clean_file;
        if (r->request_body_file_group_access) {
            file->access = 0660;
        }
        upload->file = file;
    }
    if (upload->out == NULL) {
        return NGX_OK;
    }

    n = ngx_write_chain_to_temp_file(file, upload->out);
    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }
    file->offset += n;

    for (link = upload->out; link != NULL; link = link->next) {
        link->buf->pos = link->buf->start;
        link->buf->last = link->buf->start;
    }
    *upload->last = upload->free;
    upload->free = upload->out;
    upload->out = NULL;
    upload->last = &upload->out;
    upload->buf = NULL;
    upload->held = 0;
    return NGX_OK;
}

/* Has room for more. */
static ngx_int_t
ngx_http_foregate_upload_room(ngx_http_foregate_upload_t *upload)
{
    ngx_http_request_t *r = upload->r;
    ngx_http_core_loc_conf_t *clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    ngx_chain_t *link;

    if (upload->buf != NULL && upload->buf->last < upload->buf->end) {
        return NGX_OK;
    }
    if (upload->held >= clcf->client_body_buffer_size && ngx_http_foregate_upload_spill(upload) != NGX_OK) {
        return NGX_ERROR;
    }

    link = upload->free;
    if (link != NULL) {
        upload->free = link->next;
    } else {
        link = ngx_alloc_chain_link(r->pool);
        if (link == NULL) {
            return NGX_ERROR;
        }
        link->buf = ngx_create_temp_buf(r->pool, NGX_HTTP_FOREGATE_UPLOAD_BUFFER);
        if (link->buf == NULL) {
            return NGX_ERROR;
        }
        /* The other half may not be lent memory that nobody has written. */
        ngx_memzero(link->buf->start, NGX_HTTP_FOREGATE_UPLOAD_BUFFER);
    }
    link->next = NULL;
    *upload->last = link;
    upload->last = &link->next;
    upload->buf = link->buf;
    upload->held += NGX_HTTP_FOREGATE_UPLOAD_BUFFER;
    return NGX_OK;
}

/* Says how long the body is now. */
static ngx_int_t
ngx_http_foregate_upload_length(ngx_http_request_t *r, off_t size)
{
    ngx_table_elt_t *field = r->headers_in.content_length;
    u_char *text;

    r->headers_in.content_length_n = size;
    if (field == NULL) {
        return NGX_OK;
    }
    text = ngx_pnalloc(r->pool, NGX_OFF_T_LEN + 1);
    if (text == NULL) {
        return NGX_ERROR;
    }
    field->value.len = ngx_sprintf(text, "%O", size) - text;
    text[field->value.len] = '\0';
    field->value.data = text;
    return NGX_OK;
}

/* Replaces the body by the output. */
static ngx_int_t
ngx_http_foregate_upload_end(ngx_http_foregate_upload_t *upload)
{
    ngx_http_request_t *r = upload->r;
    ngx_http_request_body_t *body = r->request_body;
    ngx_chain_t *link, **place;
    ngx_buf_t *buf;

    if ((upload->file != NULL || r->request_body_in_file_only) && ngx_http_foregate_upload_spill(upload) != NGX_OK) {
        return NGX_ERROR;
    }
    if (r != r->main) {
        /* NGINX has a subrequest share the main request's. */
        body = ngx_palloc(r->pool, sizeof(ngx_http_request_body_t));
        if (body == NULL) {
            return NGX_ERROR;
        }
        *body = *r->request_body;
        r->request_body = body;
    }

    /* NGINX sends no buffer that is empty. */
    for (place = &upload->out; *place != NULL; /* void */) {
        if (ngx_buf_size((*place)->buf) == 0) {
            *place = (*place)->next;
        } else {
            place = &(*place)->next;
        }
    }

    body->temp_file = upload->file;
    body->bufs = upload->out;
    if (upload->file != NULL && upload->size != 0) {
        link = ngx_alloc_chain_link(r->pool);
        buf = ngx_calloc_buf(r->pool);
        if (link == NULL || buf == NULL) {
            return NGX_ERROR;
        }
        buf->in_file = 1;
        buf->file = &upload->file->file;
        buf->file_last = upload->file->file.offset;
        link->buf = buf;
        link->next = NULL;
        body->bufs = link;
    }
    return ngx_http_foregate_upload_length(r, upload->size);
}

/* A body that could not go through the filters is dropped: it does not match its fields any more. */
static void
ngx_http_foregate_upload_drop(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ctx->upload = NULL;
    if (r == r->main) {
        r->request_body->bufs = NULL;
        (void) ngx_http_foregate_upload_length(r, 0);
    }
}

ngx_int_t
ngx_http_foregate_filter_upload(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_foregate_upload_t *upload = ctx->upload;
    ngx_uint_t part, end;
    fg_moved moved;
    int status;

    if (r->request_body == NULL || ctx->broken) {
        /* There is none for a subrequest, nor where NGINX drops it: nobody gets it. */
        return NGX_OK;
    }
    if (upload == NULL) {
        upload = ngx_http_foregate_upload_new(r, ctx);
        if (upload == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        ctx->upload = upload;
    }

    for (part = 0; part < NGX_HTTP_FOREGATE_UPLOAD_PART; part++) {
        if (ngx_http_foregate_upload_read(upload) != NGX_OK || ngx_http_foregate_upload_room(upload) != NGX_OK) {
            ngx_http_foregate_upload_drop(r, ctx);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        end = upload->in == NULL;
        status = fg_upload(ctx->request, r, upload->text, (int) end, upload->buf->last,
                           upload->buf->end - upload->buf->last, &moved);
        if (status != 0) {
            if (status == NGX_HTTP_INTERNAL_SERVER_ERROR) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "foregate: a filter of the request's body has failed");
            }
            ngx_http_foregate_upload_drop(r, ctx);
            return status;
        }
        upload->buf->last += moved.produced;
        upload->size += moved.produced;
        upload->text.data += moved.consumed;
        upload->text.len -= moved.consumed;
        if (end && upload->text.len == 0 && !moved.more) {
            ctx->upload = NULL;
            return ngx_http_foregate_upload_end(upload) == NGX_OK ? NGX_OK : NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    ctx->asking++;
    ngx_post_event(&upload->event, &ngx_posted_next_events);
    return NGX_AGAIN;
}

void
ngx_http_foregate_forget_upload(ngx_http_foregate_ctx_t *ctx)
{
    if (ctx->upload != NULL && ctx->upload->event.posted) {
        ngx_delete_posted_event(&ctx->upload->event);
    }
    ctx->upload = NULL;
}
