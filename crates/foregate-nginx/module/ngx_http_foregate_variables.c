/*
 * Variables, for the access log, and for handlers.
 */

#include "ngx_http_foregate.h"

static ngx_int_t
ngx_http_foregate_show(ngx_http_request_t *r, ngx_http_variable_value_t *v, fg_text text)
{
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
ngx_http_foregate_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t what)
{
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    fg_text text = { NULL, 0 };

    if (ctx != NULL && ctx->request != NULL) {
        text = fg_tell(ctx->request, (int) what);
    }
    return ngx_http_foregate_show(r, v, text);
}

/* The upstream that steps have chosen, or else that of the directive. */
static ngx_int_t
ngx_http_foregate_chosen(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_foregate_module);
    ngx_http_foregate_ctx_t *ctx = ngx_http_foregate_find_ctx(r);
    fg_text text = { NULL, 0 };

    if ((ctx == NULL || ctx->request == NULL) && r != r->main && ngx_http_foregate_fetch_of(r) == NULL) {
        /* A part of a response comes from where the rest does, unless it has another route. */
        ctx = ngx_http_foregate_find_ctx(r->main);
        if (ctx != NULL && ctx->route != conf->route) {
            ctx = NULL;
        }
    }
    if (ctx != NULL && ctx->request != NULL) {
        text = fg_tell(ctx->request, FG_UPSTREAM);
        ctx->upstream_told = 1;
    }
    return ngx_http_foregate_show(r, v, text.len ? text : ngx_http_foregate_text(&conf->fallback));
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
    { ngx_string("foregate_scheme"), NULL, ngx_http_foregate_variable, FG_SCHEME, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_upstream"), NULL, ngx_http_foregate_chosen, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    { ngx_string("foregate_panics"), NULL, ngx_http_foregate_panics, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },
    ngx_http_null_variable
};

ngx_int_t
ngx_http_foregate_add_variables(ngx_conf_t *cf)
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
