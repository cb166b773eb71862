/*
 * The module as NGINX sees it: three directives, handlers of two phases, a header filter and a body filter, and a few
 * variables. The other half (foregate.h) decides what the steps do; this file decides when they run.
 *
 *   rewrite phase    steps of the request, before `return` and `rewrite` of the location
 *   header filter    steps of the response, after gunzip's and before gzip's
 *   body filter      the filters that those have chosen
 *   log phase        steps of the log
 */

#include "ngx_http_foregate.h"

static char *ngx_http_foregate(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_foregate_upstream(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_foregate_threads(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static ngx_int_t ngx_http_foregate_postconfiguration(ngx_conf_t *cf);
static void *ngx_http_foregate_create_main_conf(ngx_conf_t *cf);
static char *ngx_http_foregate_init_main_conf(ngx_conf_t *cf, void *conf);
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
    { ngx_string("foregate_upstream"),
      NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE2,
      ngx_http_foregate_upstream,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },
    { ngx_string("foregate_threads"),
      NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE1,
      ngx_http_foregate_threads,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },
    ngx_null_command
};

static ngx_http_module_t ngx_http_foregate_module_ctx = {
    ngx_http_foregate_add_variables,
    ngx_http_foregate_postconfiguration,
    ngx_http_foregate_create_main_conf,
    ngx_http_foregate_init_main_conf,
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

/* Configuration. */

static ngx_http_foregate_place_t
ngx_http_foregate_here(ngx_conf_t *cf)
{
    ngx_http_foregate_place_t place = { cf->conf_file->file.name.data, cf->conf_file->line };

    return place;
}

/* Sets the place of the next report; returns the one before. */
static ngx_http_foregate_place_t
ngx_http_foregate_go_to(ngx_conf_t *cf, ngx_http_foregate_place_t place)
{
    ngx_http_foregate_place_t before = ngx_http_foregate_here(cf);

    cf->conf_file->file.name.data = place.file;
    cf->conf_file->line = place.line;
    return before;
}

/* The location of a prefix, as NGINX finds it for a path that begins with that; NULL when none has this very prefix. */
static ngx_http_core_loc_conf_t *
ngx_http_foregate_find_location(ngx_http_core_srv_conf_t *server, ngx_str_t *prefix)
{
    ngx_http_core_loc_conf_t *clcf = server->ctx->loc_conf[ngx_http_core_module.ctx_index], *found = NULL;
    ngx_http_location_tree_node_t *node = clcf->static_locations;
    u_char *path = prefix->data;
    size_t len = prefix->len;
    ngx_int_t rc;

    while (node != NULL) {
        rc = ngx_filename_cmp(path, node->name, ngx_min(len, (size_t) node->len));
        if (rc != 0) {
            node = rc < 0 ? node->left : node->right;
        } else if (len < (size_t) node->len) {
            node = node->left;
        } else if (len == (size_t) node->len) {
            if (node->inclusive != NULL) {
                found = node->inclusive;
            }
            break;
        } else if (node->inclusive != NULL) {
            found = node->inclusive;
            path += node->len;
            len -= node->len;
            node = node->tree;
        } else {
            node = node->right;
        }
    }

    if (found == NULL || found->name.len != prefix->len
        || ngx_filename_cmp(found->name.data, prefix->data, prefix->len) != 0)
    {
        return NULL;
    }
    return found;
}

/* Checks that the routes of a location can make their fetches there. */
static ngx_int_t
ngx_http_foregate_check_use(ngx_conf_t *cf, ngx_http_foregate_use_t *use)
{
    ngx_http_foregate_place_t before;
    ngx_http_foregate_upstream_t *upstream;
    ngx_http_core_loc_conf_t *location;
    ngx_uint_t i;

    if (use->conf->route == NULL || use->conf->upstreams == NULL) {
        return NGX_OK;
    }
    upstream = use->conf->upstreams->elts;
    for (i = 0; i < use->conf->upstreams->nelts; i++) {
        if (!fg_route_asks(use->conf->route, upstream[i].number)) {
            continue;
        }
        location = ngx_http_foregate_find_location(use->server, &upstream[i].location);
        if (location != NULL && location->internal) {
            continue;
        }
        before = ngx_http_foregate_go_to(cf, upstream[i].place);
        if (location == NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "foregate_upstream \"%V\": the server \"%V\" has no location \"%V\": write "
                               "location %V { internal; proxy_pass ...; }",
                               &upstream[i].name, &use->server->server_name, &upstream[i].location,
                               &upstream[i].location);
        } else {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "foregate_upstream \"%V\": clients can reach the location \"%V\" of the server \"%V\": "
                               "write \"internal;\" into it",
                               &upstream[i].name, &upstream[i].location, &use->server->server_name);
        }
        (void) ngx_http_foregate_go_to(cf, before);
        return NGX_ERROR;
    }
    return NGX_OK;
}

ngx_module_t *ngx_http_foregate_slices;

static void
ngx_http_foregate_find_slices(ngx_conf_t *cf)
{
    ngx_uint_t i;

    ngx_http_foregate_slices = NULL;
    for (i = 0; cf->cycle->modules[i] != NULL; i++) {
        if (ngx_strcmp(cf->cycle->modules[i]->name, "ngx_http_slice_filter_module") == 0) {
            ngx_http_foregate_slices = cf->cycle->modules[i];
        }
    }
}

/* True if the filters of a location would see all of a body: the slices of one but for the first are subrequests, which pass
 * by its route, or are bodies of their own. There are slices only of bodies from elsewhere (proxy_pass and its like):
 * files are sent whole, and so are responses of a server without a matching location. */
static ngx_int_t
ngx_http_foregate_check_slices(ngx_conf_t *cf, ngx_http_foregate_use_t *use)
{
    ngx_http_core_loc_conf_t *clcf = use->loc_conf[ngx_http_core_module.ctx_index];
    ngx_http_foregate_place_t before;
    size_t *size;

    if (ngx_http_foregate_slices == NULL || clcf->handler == NULL || use->conf->route == NULL
        || !fg_route_filters(use->conf->route))
    {
        return NGX_OK;
    }
    /* The size is the first and only member of its configuration. */
    size = use->loc_conf[ngx_http_foregate_slices->ctx_index];
    if (size == NULL || *size == 0 || *size == NGX_CONF_UNSET_SIZE) {
        return NGX_OK;
    }
    before = ngx_http_foregate_go_to(cf, use->conf->place);
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"slice\" is on in a location of the server \"%V\" whose route has filters for bodies of responses or holds them back, "
                       "which would see the first slice alone: write \"slice 0;\" or \"foregate off;\" there",
                       &use->server->server_name);
    (void) ngx_http_foregate_go_to(cf, before);
    return NGX_ERROR;
}

static ngx_int_t
ngx_http_foregate_postconfiguration(ngx_conf_t *cf)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_foregate_module);
    ngx_http_foregate_use_t *use = main->uses.elts;
    ngx_uint_t i;
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

    ngx_http_foregate_find_slices(cf);
    for (i = 0; i < main->uses.nelts; i++) {
        if (ngx_http_foregate_check_use(cf, &use[i]) != NGX_OK || ngx_http_foregate_check_slices(cf, &use[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    ngx_http_foregate_init_filters();
    ngx_http_foregate_init_body_limit();
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
    if (ngx_array_init(&conf->uses, cf->temp_pool, 16, sizeof(ngx_http_foregate_use_t)) != NGX_OK) {
        return NULL;
    }
    return conf;
}

/* True if something reads `$foregate_upstream`. */
static ngx_uint_t
ngx_http_foregate_is_asked(ngx_conf_t *cf)
{
    static const ngx_str_t name = ngx_string("foregate_upstream");
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_variable_t *variable = cmcf->variables.elts;
    ngx_uint_t i;

    for (i = 0; i < cmcf->variables.nelts; i++) {
        if (variable[i].name.len == name.len && ngx_strncmp(variable[i].name.data, name.data, name.len) == 0) {
            return 1;
        }
    }
    return 0;
}

/* All of the block `http` has been read, and no route yet. */
static char *
ngx_http_foregate_init_main_conf(ngx_conf_t *cf, void *data)
{
    ngx_http_foregate_main_conf_t *conf = data;
    ngx_http_upstream_main_conf_t *umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    ngx_http_upstream_srv_conf_t **upstream = umcf->upstreams.elts;
    ngx_uint_t i, threads = 0;
    fg_text *names;
    size_t count = 0;

    names = ngx_palloc(cf->temp_pool, (umcf->upstreams.nelts + 1) * sizeof(fg_text));
    if (names == NULL) {
        return NGX_CONF_ERROR;
    }
    for (i = 0; i < umcf->upstreams.nelts; i++) {
        if (upstream[i]->flags & NGX_HTTP_UPSTREAM_CREATE) {
            names[count++] = ngx_http_foregate_text(&upstream[i]->host);
        }
    }
#if (NGX_THREADS)
    threads = conf->threads != NULL;
#endif
    fg_surround(conf->cycle, names, count, (int) ngx_http_foregate_is_asked(cf), (int) threads);
    return NGX_CONF_OK;
}

static void *
ngx_http_foregate_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_foregate_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_foregate_loc_conf_t));

    return conf;
}

/* Reads the file of a location, unless it has been read. */
static char *
ngx_http_foregate_load(ngx_conf_t *cf, ngx_http_foregate_loc_conf_t *conf)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_foregate_module);
    ngx_uint_t i, count = conf->upstreams != NULL ? conf->upstreams->nelts : 0;
    ngx_http_foregate_upstream_t *upstream = count ? conf->upstreams->elts : NULL;
    ngx_http_foregate_place_t before;
    fg_terms terms;
    fg_text *names;

    if (conf->path.len == 0 || conf->route != NULL) {
        return NGX_CONF_OK;
    }
    names = ngx_palloc(cf->temp_pool, (count + 1) * sizeof(fg_text));
    if (names == NULL) {
        return NGX_CONF_ERROR;
    }
    for (i = 0; i < count; i++) {
        names[i] = ngx_http_foregate_text(&upstream[i].name);
    }

    terms.off = conf->off.elts;
    terms.off_count = conf->off.nelts;
    terms.upstreams = names;
    terms.upstream_count = count;
    terms.fallback = ngx_http_foregate_text(&conf->fallback);

    before = ngx_http_foregate_go_to(cf, conf->place);
    conf->route = fg_route(main->cycle, cf, ngx_http_foregate_text(&conf->path), &terms);
    (void) ngx_http_foregate_go_to(cf, before);
    return conf->route == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
}

static ngx_http_foregate_upstream_t *
ngx_http_foregate_named(ngx_http_foregate_loc_conf_t *conf, ngx_str_t *name)
{
    ngx_http_foregate_upstream_t *upstream;
    ngx_uint_t i;

    if (conf->upstreams == NULL) {
        return NULL;
    }
    upstream = conf->upstreams->elts;
    for (i = 0; i < conf->upstreams->nelts; i++) {
        if (upstream[i].name.len == name->len && ngx_strncmp(upstream[i].name.data, name->data, name->len) == 0) {
            return &upstream[i];
        }
    }
    return NULL;
}

/* Adds the upstreams that stand further out, as far as they are not given anew. */
static ngx_int_t
ngx_http_foregate_inherit(ngx_conf_t *cf, ngx_http_foregate_loc_conf_t *outer, ngx_http_foregate_loc_conf_t *conf)
{
    ngx_http_foregate_upstream_t *upstream, *added;
    ngx_uint_t i;

    if (outer->upstreams == NULL || conf->upstreams == NULL) {
        if (conf->upstreams == NULL) {
            conf->upstreams = outer->upstreams;
        }
        return NGX_OK;
    }
    upstream = outer->upstreams->elts;
    for (i = 0; i < outer->upstreams->nelts; i++) {
        if (ngx_http_foregate_named(conf, &upstream[i].name) != NULL) {
            continue;
        }
        added = ngx_array_push(conf->upstreams);
        if (added == NULL) {
            return NGX_ERROR;
        }
        *added = upstream[i];
    }
    return NGX_OK;
}

static char *
ngx_http_foregate_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_foregate_module);
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_foregate_loc_conf_t *outer = parent, *conf = child;
    ngx_http_foregate_use_t *use;

    if (ngx_http_foregate_inherit(cf, outer, conf) != NGX_OK || ngx_http_foregate_load(cf, outer) != NGX_CONF_OK
        || ngx_http_foregate_load(cf, conf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }
    if (!conf->set) {
        conf->route = outer->route;
        conf->place = outer->place;
        conf->fallback = outer->fallback;
        /* `if` makes a location of its own within one. */
        conf->own = clcf->noname && outer->own;
    }

    use = ngx_array_push(&main->uses);
    if (use == NULL) {
        return NGX_CONF_ERROR;
    }
    use->server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    use->conf = conf;
    use->loc_conf = ((ngx_http_conf_ctx_t *) cf->ctx)->loc_conf;
    return NGX_CONF_OK;
}

/* foregate FILE [off=KEY]... [upstream=NAME]; or foregate off; */
static char *
ngx_http_foregate(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_foregate_loc_conf_t *conf = data;
    ngx_str_t *value = cf->args->elts, path;
    ngx_uint_t i;
    fg_text *off;

    if (conf->set) {
        return "is duplicate";
    }
    conf->set = 1;
    conf->own = (cf->cmd_type & NGX_HTTP_LOC_CONF) != 0;
    conf->place = ngx_http_foregate_here(cf);

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        return NGX_CONF_OK;
    }

    path = value[1];
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK
        || ngx_array_init(&conf->off, cf->pool, 4, sizeof(fg_text)) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }
    for (i = 2; i < cf->args->nelts; i++) {
        if (value[i].len > 9 && ngx_strncmp(value[i].data, "upstream=", 9) == 0 && conf->fallback.len == 0) {
            conf->fallback.data = value[i].data + 9;
            conf->fallback.len = value[i].len - 9;
            continue;
        }
        if (value[i].len < 5 || ngx_strncmp(value[i].data, "off=", 4) != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\": write off=KEY, or once upstream=NAME",
                               &value[i]);
            return NGX_CONF_ERROR;
        }
        off = ngx_array_push(&conf->off);
        if (off == NULL) {
            return NGX_CONF_ERROR;
        }
        off->data = value[i].data + 4;
        off->len = value[i].len - 4;
    }
    conf->path = path;
    return NGX_CONF_OK;
}

/* foregate_upstream NAME PREFIX; */
static char *
ngx_http_foregate_upstream(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_foregate_module);
    ngx_http_foregate_loc_conf_t *conf = data;
    ngx_str_t *value = cf->args->elts;
    ngx_http_foregate_upstream_t *upstream;

    if (ngx_http_foregate_named(conf, &value[1]) != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate foregate_upstream \"%V\"", &value[1]);
        return NGX_CONF_ERROR;
    }
    if (value[2].len < 2 || value[2].data[0] != '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "foregate_upstream \"%V\": \"%V\" is no prefix of a location: write, for example, /@%V/",
                           &value[1], &value[2], &value[1]);
        return NGX_CONF_ERROR;
    }
    if (conf->upstreams == NULL) {
        conf->upstreams = ngx_array_create(cf->pool, 4, sizeof(ngx_http_foregate_upstream_t));
        if (conf->upstreams == NULL) {
            return NGX_CONF_ERROR;
        }
    }
    upstream = ngx_array_push(conf->upstreams);
    if (upstream == NULL) {
        return NGX_CONF_ERROR;
    }
    upstream->name = value[1];
    upstream->location = value[2];
    upstream->prefix = value[2];
    if (upstream->prefix.data[upstream->prefix.len - 1] == '/') {
        /* Every path begins with one. */
        upstream->prefix.len--;
    }
    upstream->number = fg_upstream(main->cycle, ngx_http_foregate_text(&value[1]));
    upstream->place = ngx_http_foregate_here(cf);
    return upstream->number < 0 ? NGX_CONF_ERROR : NGX_CONF_OK;
}

/* foregate_threads POOL; */
static char *
ngx_http_foregate_threads(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
#if (NGX_THREADS)
    ngx_http_foregate_main_conf_t *conf = data;
    ngx_str_t *value = cf->args->elts;

    if (conf->threads != NULL) {
        return "is duplicate";
    }
    /* NGINX refuses one that is nowhere configured, unless it is called "default". */
    conf->threads = ngx_thread_pool_add(cf, &value[1]);
    return conf->threads == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
#else
    return "needs an NGINX that was built --with-threads";
#endif
}

static ngx_int_t
ngx_http_foregate_init_process(ngx_cycle_t *cycle)
{
    fg_worker_start();
    return NGX_OK;
}
