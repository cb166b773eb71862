/*
 * The module as NGINX sees it: a directive, handlers of two phases, a header filter and a body filter, and a few
 * variables. What the steps do is decided in the other half (foregate.h); here stands when they run.
 *
 *   rewrite phase    steps of the request, before `return` and `rewrite` of the location
 *   header filter    steps of the response, after gunzip's and before gzip's
 *   body filter      the filters that those have chosen
 *   log phase        steps of the log
 */

#include "ngx_http_foregate.h"

static char *ngx_http_foregate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_foregate_preconfiguration(ngx_conf_t *cf);
static ngx_int_t ngx_http_foregate_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_foregate_create_main_conf(ngx_conf_t *cf);
static void *ngx_http_foregate_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_foregate_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_foregate_init_process(ngx_cycle_t *cycle);

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

/* For Lua: ffi.C.foregate_feature_enable(request, name). */

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

    ngx_http_foregate_init_filters();
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
