/*
 * The buffers in which a body goes on once filters have made something of it.
 */

#include "ngx_http_foregate.h"

#define NGX_HTTP_FOREGATE_BUFFER_SIZE 16384
/* With less room than this a buffer gets no more: the overflow is copied once more. */
#define NGX_HTTP_FOREGATE_ROOM 4096

/* Where the other half writes: it may not be lent memory that nobody has written, and clearing each buffer costs a short response
 * more than copying its output. */
static u_char ngx_http_foregate_written[NGX_HTTP_FOREGATE_BUFFER_SIZE];

ngx_uint_t
ngx_http_foregate_in_file(ngx_http_request_t *r, ngx_buf_t *buf)
{
    if (ngx_buf_in_memory(buf) || !buf->in_file || buf->file_last <= buf->file_pos) {
        return 0;
    }
    ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0, "foregate: a buffer that is not in memory");
    return 1;
}

ngx_buf_t *
ngx_http_foregate_buffer(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_chain_t **link)
{
    ngx_buf_t *buf;

    if (ctx->out != NULL) {
        buf = ctx->last_out->buf;
        if (buf->tag == (ngx_buf_tag_t) &ngx_http_foregate_module && !ngx_http_foregate_marked(buf)
            && buf->end - buf->last >= NGX_HTTP_FOREGATE_ROOM)
        {
            *link = ctx->last_out;
            return buf;
        }
    }
    if (ctx->free != NULL) {
        *link = ctx->free;
        ctx->free = ctx->free->next;
        buf = (*link)->buf;
        /* Marks of the last time. */
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

ngx_chain_t *
ngx_http_foregate_mark(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *empty)
{
    ngx_chain_t *link;
    ngx_buf_t *buf;

    if (!ngx_http_foregate_marked(empty)) {
        return NULL;
    }

    link = ngx_alloc_chain_link(r->pool);
    buf = ngx_calloc_buf(r->pool);
    if (link == NULL || buf == NULL) {
        ctx->failed = 1;
        return NULL;
    }
    buf->flush = empty->flush;
    buf->last_buf = empty->last_buf;
    buf->last_in_chain = empty->last_in_chain;
    /* The end of a subrequest alone is nothing that NGINX expects in an empty buffer. */
    buf->sync = !buf->flush && !buf->last_buf;
    link->buf = buf;
    link->next = NULL;
    return link;
}

/* Takes a buffer from the queue. Its maker may reuse it as soon as it is empty, so that none stays queued then; what
 * it marks is kept until all that came of it has been written. */
static void
ngx_http_foregate_take(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_chain_t *link = ctx->in;

    ctx->marks.flush = link->buf->flush;
    ctx->marks.last_buf = link->buf->last_buf;
    ctx->marks.last_in_chain = link->buf->last_in_chain;
    ctx->in = link->next;
    ngx_free_chain(r->pool, link);
}

ngx_int_t
ngx_http_foregate_fill(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx, ngx_buf_t *out)
{
    /* While there is something left of the last one, the next has to wait. */
    ngx_buf_t *in = !ctx->more && ctx->in != NULL ? ctx->in->buf : NULL;
    ngx_http_foregate_marks_t *marks = &ctx->marks;
    ngx_uint_t end;
    fg_moved moved;
    fg_text text = { NULL, 0 };
    int flags;

    if (in != NULL) {
        if (ngx_buf_in_memory(in)) {
            text.data = in->pos;
            text.len = in->last - in->pos;
        } else if (ngx_http_foregate_in_file(r, in)) {
            return NGX_ERROR;
        }
        end = in->last_buf || (in->last_in_chain && r != r->main);
        flags = (end ? FG_END : 0) | (in->flush ? FG_FLUSH : 0);
    } else {
        end = marks->last_buf || (marks->last_in_chain && r != r->main);
        flags = (end ? FG_END : 0) | (marks->flush ? FG_FLUSH : 0);
    }

    if (fg_move(ctx->request, r, text, flags, ngx_http_foregate_written, out->end - out->last, &moved) != 0) {
        return NGX_ERROR;
    }
    out->last = ngx_cpymem(out->last, ngx_http_foregate_written, moved.produced);
    if (in != NULL) {
        if (text.len) {
            in->pos += moved.consumed;
            if (in->in_file) {
                /* It is in memory and in a file, of which the rest may be sent. */
                in->file_pos += moved.consumed;
            }
        }
    }
    ctx->soon = moved.soon;
    ctx->over = moved.over;
    if (moved.asks) {
        if (ngx_http_foregate_ask(r, ctx) != NGX_OK) {
            return NGX_ERROR;
        }
        /* The output need not wait as well. */
        out->flush = ctx->asking != 0;
    }
    if (in != NULL) {
        if (moved.consumed < text.len) {
            return NGX_OK;
        }
        ngx_http_foregate_take(r, ctx);
    }
    ctx->more = moved.more;
    if (moved.more) {
        return NGX_OK;
    }

    /* It is used up, and so is its output. */
    out->flush = marks->flush;
    out->last_buf = marks->last_buf;
    out->last_in_chain = marks->last_in_chain;
    ngx_memzero(marks, sizeof(ngx_http_foregate_marks_t));
    ctx->done = end;
    return NGX_OK;
}
