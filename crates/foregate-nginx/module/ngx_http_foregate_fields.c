/*
 * The heads of a request and its response, as the other half reads and changes them.
 *
 * NGINX keeps the fields of a head in a list, and pointers to those of well-known names beside it. Some fields of a
 * response exist only as numbers or texts until the head is written (Content-Type, Content-Length, Last-Modified, Server); they
 * are shown as if they were in the list, and setting or removing them goes where NGINX keeps them.
 */

#include "ngx_http_foregate_fields.h"

#define FG_TEXT(literal) { (const unsigned char *) literal, sizeof(literal) - 1 }

static ngx_table_elt_t ngx_http_foregate_nothing;

/* Fields of a response to which NGINX keeps a pointer. */
static const struct {
    fg_text name;
    size_t offset;
    unsigned list : 1; /* one pointer for each field of the name */
} ngx_http_foregate_known[] = {
    { FG_TEXT("server"), offsetof(ngx_http_headers_out_t, server), 0 },
    { FG_TEXT("date"), offsetof(ngx_http_headers_out_t, date), 0 },
    { FG_TEXT("content-encoding"), offsetof(ngx_http_headers_out_t, content_encoding), 0 },
    { FG_TEXT("location"), offsetof(ngx_http_headers_out_t, location), 0 },
    { FG_TEXT("refresh"), offsetof(ngx_http_headers_out_t, refresh), 0 },
    { FG_TEXT("last-modified"), offsetof(ngx_http_headers_out_t, last_modified), 0 },
    { FG_TEXT("content-range"), offsetof(ngx_http_headers_out_t, content_range), 0 },
    { FG_TEXT("accept-ranges"), offsetof(ngx_http_headers_out_t, accept_ranges), 0 },
    { FG_TEXT("www-authenticate"), offsetof(ngx_http_headers_out_t, www_authenticate), 0 },
    { FG_TEXT("expires"), offsetof(ngx_http_headers_out_t, expires), 0 },
    { FG_TEXT("etag"), offsetof(ngx_http_headers_out_t, etag), 0 },
    { FG_TEXT("cache-control"), offsetof(ngx_http_headers_out_t, cache_control), 1 },
    { FG_TEXT("link"), offsetof(ngx_http_headers_out_t, link), 1 },
};

static ngx_inline ngx_uint_t
ngx_http_foregate_is(fg_text name, const char *other, size_t len)
{
    return name.len == len && ngx_strncasecmp((u_char *) name.data, (u_char *) other, len) == 0;
}

#define fg_is(name, literal) ngx_http_foregate_is(name, literal, sizeof(literal) - 1)

static ngx_list_t *
ngx_http_foregate_list(ngx_http_request_t *r, int which)
{
    return which == FG_REQUEST ? &r->headers_in.headers : &r->headers_out.headers;
}

static void
ngx_http_foregate_show(fg_field *out, size_t room, size_t *count, fg_text name, const u_char *value, size_t len)
{
    if (*count < room) {
        out[*count].name = name;
        out[*count].value.data = value;
        out[*count].value.len = len;
        out[*count].element = NULL;
    }
    (*count)++;
}

/* The fields of a response that are not in its list. */
static size_t
ngx_http_foregate_unlisted(ngx_http_request_t *r, fg_field *out, size_t room)
{
    static const fg_text type_name = FG_TEXT("Content-Type");
    static const fg_text length_name = FG_TEXT("Content-Length");
    static const fg_text modified_name = FG_TEXT("Last-Modified");
    static const fg_text server_name = FG_TEXT("Server");
    ngx_http_headers_out_t *head = &r->headers_out;
    ngx_http_core_loc_conf_t *clcf;
    size_t count = 0;
    u_char *text, *end;

    if (head->content_type.len) {
        /* NGINX adds the charset unless the type has one already. */
        if (head->content_type_len == head->content_type.len && head->charset.len) {
            size_t len = head->content_type.len + sizeof("; charset=") - 1 + head->charset.len;
            text = ngx_pnalloc(r->pool, len);
            if (text != NULL) {
                end = ngx_cpymem(text, head->content_type.data, head->content_type.len);
                end = ngx_cpymem(end, "; charset=", sizeof("; charset=") - 1);
                ngx_memcpy(end, head->charset.data, head->charset.len);
                ngx_http_foregate_show(out, room, &count, type_name, text, len);
            }
        } else {
            ngx_http_foregate_show(out, room, &count, type_name, head->content_type.data, head->content_type.len);
        }
    }

    if (head->server == NULL) {
        clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
        if (clcf->server_tokens == NGX_HTTP_SERVER_TOKENS_OFF) {
            ngx_http_foregate_show(out, room, &count, server_name, (u_char *) "nginx", sizeof("nginx") - 1);
        } else {
            ngx_http_foregate_show(out, room, &count, server_name, (u_char *) NGINX_VER, sizeof(NGINX_VER) - 1);
        }
    }

    if (head->content_length == NULL && head->content_length_n >= 0) {
        text = ngx_pnalloc(r->pool, NGX_OFF_T_LEN);
        if (text != NULL) {
            end = ngx_sprintf(text, "%O", head->content_length_n);
            ngx_http_foregate_show(out, room, &count, length_name, text, end - text);
        }
    }

    if (head->last_modified == NULL && head->last_modified_time != -1) {
        text = ngx_pnalloc(r->pool, sizeof("Mon, 28 Sep 1970 06:00:00 GMT") - 1);
        if (text != NULL) {
            end = ngx_http_time(text, head->last_modified_time);
            ngx_http_foregate_show(out, room, &count, modified_name, text, end - text);
        }
    }

    return count;
}

size_t
ngx_http_foregate_fields(void *data, int which, fg_field *out, size_t room)
{
    ngx_http_request_t *r = data;
    ngx_list_part_t *part = &ngx_http_foregate_list(r, which)->part;
    ngx_table_elt_t *element;
    size_t count;
    ngx_uint_t i;

    count = which == FG_RESPONSE ? ngx_http_foregate_unlisted(r, out, room) : 0;

    for ( /* void */ ; part != NULL; part = part->next) {
        element = part->elts;
        for (i = 0; i < part->nelts; i++) {
            if (which == FG_RESPONSE && element[i].hash == 0) {
                continue;
            }
            if (count < room) {
                out[count].name.data = element[i].key.data;
                out[count].name.len = element[i].key.len;
                out[count].value.data = element[i].value.data;
                out[count].value.len = element[i].value.len;
                out[count].element = &element[i];
            }
            count++;
        }
    }

    return count;
}

/* Points a pointer that stands for all fields of a name, or for the first of them, to those in the list. */
static ngx_int_t
ngx_http_foregate_point(ngx_http_request_t *r, int which, fg_text name, void *pointer, ngx_uint_t all)
{
    ngx_list_part_t *part = &ngx_http_foregate_list(r, which)->part;
    ngx_table_elt_t *element, **place;
    ngx_uint_t i;

    place = pointer;

#if (nginx_version < 1023000)
    ngx_array_t *array = pointer;

    if (all) {
        /* One that has not been filled yet has no memory. */
        if (array->elts == NULL) {
            if (ngx_array_init(array, r->pool, 2, sizeof(ngx_table_elt_t *)) != NGX_OK) {
                return NGX_ERROR;
            }
        }
        array->nelts = 0;
    } else
#endif
    {
        *place = NULL;
    }

    for ( /* void */ ; part != NULL; part = part->next) {
        element = part->elts;
        for (i = 0; i < part->nelts; i++) {
            if (element[i].hash == 0
                || !ngx_http_foregate_is(name, (char *) element[i].key.data, element[i].key.len))
            {
                continue;
            }
#if (nginx_version < 1023000)
            if (all) {
                place = ngx_array_push(array);
                if (place == NULL) {
                    return NGX_ERROR;
                }
                *place = &element[i];
                continue;
            }
            *place = &element[i];
            return NGX_OK;
#else
            *place = &element[i];
            place = &element[i].next;
            *place = NULL;
#endif
        }
    }

    return NGX_OK;
}

/* The fields that NGINX keeps beside the list of the request's fields. */
static ngx_int_t
ngx_http_foregate_index_request(ngx_http_request_t *r, fg_text name)
{
    ngx_http_core_main_conf_t *cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    ngx_http_header_t *known;
    ngx_uint_t hash, i, all = 0;
    u_char lowcase[64];

    if (name.len > sizeof(lowcase)) {
        return NGX_OK;
    }

    hash = 0;
    for (i = 0; i < name.len; i++) {
        lowcase[i] = ngx_tolower(name.data[i]);
        hash = ngx_hash(hash, lowcase[i]);
    }

    known = ngx_hash_find(&cmcf->headers_in_hash, hash, lowcase, name.len);
    if (known == NULL) {
        return NGX_OK;
    }

#if (nginx_version < 1023000)
    all = known->offset == offsetof(ngx_http_headers_in_t, cookies);
#if (NGX_HTTP_X_FORWARDED_FOR)
    all = all || known->offset == offsetof(ngx_http_headers_in_t, x_forwarded_for);
#endif
#endif

    if (known->offset == offsetof(ngx_http_headers_in_t, authorization)) {
        /* They were read from the field that there was. */
        ngx_str_null(&r->headers_in.user);
        ngx_str_null(&r->headers_in.passwd);
    }

    return ngx_http_foregate_point(r, FG_REQUEST, name, (u_char *) &r->headers_in + known->offset, all);
}

static ngx_int_t
ngx_http_foregate_index_response(ngx_http_request_t *r, fg_text name)
{
    ngx_table_elt_t **place;
    ngx_uint_t i;
    u_char *pointer;

    for (i = 0; i < sizeof(ngx_http_foregate_known) / sizeof(ngx_http_foregate_known[0]); i++) {
        if (!ngx_http_foregate_is(name, (char *) ngx_http_foregate_known[i].name.data,
                                  ngx_http_foregate_known[i].name.len))
        {
            continue;
        }

        pointer = (u_char *) &r->headers_out + ngx_http_foregate_known[i].offset;
        place = (ngx_table_elt_t **) pointer;

        if (fg_is(name, "location")) {
            /* A relative one that NGINX knows of becomes absolute: it goes out as the step has made it. */
            *place = NULL;
            return NGX_OK;
        }

        if (ngx_http_foregate_point(r, FG_RESPONSE, name, pointer, ngx_http_foregate_known[i].list) != NGX_OK) {
            return NGX_ERROR;
        }

        if ((fg_is(name, "server") || fg_is(name, "date")) && *place == NULL) {
            /* With none NGINX would write its own; one of no hash is not written. */
            *place = &ngx_http_foregate_nothing;
        }

        if (fg_is(name, "last-modified")) {
            r->headers_out.last_modified_time = -1;
        }
        return NGX_OK;
    }

    return NGX_OK;
}

static int
ngx_http_foregate_index(ngx_http_request_t *r, int which, fg_text name)
{
    ngx_int_t rc = which == FG_REQUEST ? ngx_http_foregate_index_request(r, name)
                                       : ngx_http_foregate_index_response(r, name);
    return rc == NGX_OK ? 0 : -1;
}

static u_char *
ngx_http_foregate_copy(ngx_http_request_t *r, fg_text text)
{
    u_char *copy = ngx_pnalloc(r->pool, text.len + 1);

    if (copy != NULL) {
        ngx_memcpy(copy, text.data, text.len);
        /* Some readers of NGINX look one byte further. */
        copy[text.len] = '\0';
    }
    return copy;
}

/* The type that NGINX writes; gzip and others compare its first part. */
static int
ngx_http_foregate_set_type(ngx_http_request_t *r, fg_text value)
{
    u_char *copy = ngx_http_foregate_copy(r, value);
    u_char *semicolon;

    if (copy == NULL) {
        return -1;
    }

    r->headers_out.content_type.data = copy;
    r->headers_out.content_type.len = value.len;
    r->headers_out.content_type_len = value.len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_str_null(&r->headers_out.charset);

    semicolon = ngx_strlchr(copy, copy + value.len, ';');
    if (semicolon != NULL) {
        while (semicolon > copy && semicolon[-1] == ' ') {
            semicolon--;
        }
        r->headers_out.content_type_len = semicolon - copy;
    }
    return 0;
}

int
ngx_http_foregate_append(void *data, int which, fg_field *field)
{
    ngx_http_request_t *r = data;
    ngx_table_elt_t *element;
    u_char *name, *value, *lowcase;

    if (which == FG_RESPONSE && fg_is(field->name, "content-type")) {
        if (ngx_http_foregate_set_type(r, field->value) != 0) {
            return -1;
        }
        field->value.data = r->headers_out.content_type.data;
        field->element = NULL;
        return 0;
    }

    name = ngx_http_foregate_copy(r, field->name);
    value = ngx_http_foregate_copy(r, field->value);
    lowcase = ngx_pnalloc(r->pool, field->name.len);
    if (name == NULL || value == NULL || lowcase == NULL) {
        return -1;
    }
    /* Last, because pushed entries stay in the list. */
    element = ngx_list_push(ngx_http_foregate_list(r, which));
    if (element == NULL) {
        return -1;
    }

    ngx_memzero(element, sizeof(ngx_table_elt_t));
    element->key.data = name;
    element->key.len = field->name.len;
    element->value.data = value;
    element->value.len = field->value.len;
    element->lowcase_key = lowcase;
    element->hash = ngx_hash_strlow(lowcase, name, field->name.len);
    if (element->hash == 0) {
        /* None means that it has been taken away. */
        element->hash = 1;
    }

    field->name.data = name;
    field->value.data = value;
    field->element = element;
    return ngx_http_foregate_index(r, which, field->name);
}

int
ngx_http_foregate_replace(void *data, int which, fg_field *field, fg_text value)
{
    ngx_http_request_t *r = data;
    ngx_table_elt_t *element = field->element;
    fg_field listed;
    u_char *copy;

    if (element == NULL) {
        if (fg_is(field->name, "content-type")) {
            if (ngx_http_foregate_set_type(r, value) != 0) {
                return -1;
            }
            field->value.data = r->headers_out.content_type.data;
            field->value.len = value.len;
            return 0;
        }
        if (fg_is(field->name, "last-modified") || fg_is(field->name, "server")) {
            listed = *field;
            listed.value = value;
            if (ngx_http_foregate_append(r, which, &listed) != 0) {
                return -1;
            }
            *field = listed;
            return 0;
        }
        /* Content-Length, which no step sets. */
        return 0;
    }

    copy = ngx_http_foregate_copy(r, value);
    if (copy == NULL) {
        return -1;
    }
    element->value.data = copy;
    element->value.len = value.len;
    field->value.data = copy;
    field->value.len = value.len;
    return ngx_http_foregate_index(r, which, field->name);
}

/* Makes the list of the request's fields anew without some: readers take no list with an empty part, and there are
 * pointers to its elements, so that none can move. The old ones stay unchanged until the request's end. */
static ngx_int_t
ngx_http_foregate_without(ngx_http_request_t *r, const fg_field *fields, size_t count)
{
    ngx_list_t *list = &r->headers_in.headers, fresh;
    ngx_list_part_t *part;
    ngx_table_elt_t *element, *copy;
    ngx_uint_t i, room = 8;
    size_t k;

    for (part = &list->part; part != NULL; part = part->next) {
        room += part->nelts;
    }
    if (ngx_list_init(&fresh, r->pool, room, sizeof(ngx_table_elt_t)) != NGX_OK) {
        return NGX_ERROR;
    }

    for (part = &list->part; part != NULL; part = part->next) {
        element = part->elts;
        for (i = 0; i < part->nelts; i++) {
            for (k = 0; k < count && fields[k].element != &element[i]; k++) { /* void */ }
            if (k < count) {
                continue;
            }
            copy = ngx_list_push(&fresh);
            if (copy == NULL) {
                return NGX_ERROR;
            }
            *copy = element[i];
        }
    }

    *list = fresh;
    /* Whoever adds to it looks for its last part here, and not where it was made. */
    list->last = &list->part;
    return NGX_OK;
}

ngx_int_t
ngx_http_foregate_own_request_fields(ngx_http_request_t *r)
{
    ngx_list_part_t *part;
    ngx_table_elt_t *element;
    ngx_uint_t i;
    fg_text name;

    if (ngx_http_foregate_without(r, NULL, 0) != NGX_OK) {
        return NGX_ERROR;
    }
#if (nginx_version < 1023000)
    /* Their elements lie where those of the main request do. */
    ngx_memzero(&r->headers_in.cookies, sizeof(ngx_array_t));
#if (NGX_HTTP_X_FORWARDED_FOR)
    ngx_memzero(&r->headers_in.x_forwarded_for, sizeof(ngx_array_t));
#endif
#endif

    for (part = &r->headers_in.headers.part; part != NULL; part = part->next) {
        element = part->elts;
        for (i = 0; i < part->nelts; i++) {
            name.data = element[i].key.data;
            name.len = element[i].key.len;
            if (ngx_http_foregate_index_request(r, name) != NGX_OK) {
                return NGX_ERROR;
            }
        }
    }
    return NGX_OK;
}

int
ngx_http_foregate_remove(void *data, int which, const fg_field *fields, size_t count)
{
    ngx_http_request_t *r = data;
    ngx_table_elt_t *element;
    size_t i;

    if (which == FG_REQUEST && ngx_http_foregate_without(r, fields, count) != NGX_OK) {
        return -1;
    }

    for (i = 0; i < count; i++) {
        element = fields[i].element;
        if (which == FG_RESPONSE && element != NULL) {
            element->hash = 0;
        }
        if (which == FG_RESPONSE && fg_is(fields[i].name, "content-length")) {
            /* NGINX writes the number, whatever stands in the list. */
            ngx_http_clear_content_length(r);
        }
        if (element != NULL) {
            if (ngx_http_foregate_index(r, which, fields[i].name) != 0) {
                return -1;
            }
        } else if (fg_is(fields[i].name, "content-type")) {
            ngx_str_null(&r->headers_out.content_type);
            ngx_str_null(&r->headers_out.charset);
            r->headers_out.content_type_len = 0;
            r->headers_out.content_type_lowcase = NULL;
        } else if (fg_is(fields[i].name, "last-modified")) {
            r->headers_out.last_modified_time = -1;
        } else if (fg_is(fields[i].name, "server")) {
            r->headers_out.server = &ngx_http_foregate_nothing;
        }
    }
    return 0;
}

/* Removes the fields that identify a body byte by byte; of trailers the validator, too. */
static void
ngx_http_foregate_drop_digests(ngx_list_part_t *part, ngx_uint_t of_trailers)
{
    static const fg_text digests[] = {
        FG_TEXT("content-digest"), FG_TEXT("repr-digest"), FG_TEXT("digest"), FG_TEXT("content-md5"), FG_TEXT("etag"),
    };
    const size_t count = sizeof(digests) / sizeof(digests[0]) - (of_trailers ? 0 : 1);
    ngx_table_elt_t *element;
    ngx_uint_t i, k;

    for ( /* void */ ; part != NULL; part = part->next) {
        element = part->elts;
        for (i = 0; i < part->nelts; i++) {
            for (k = 0; k < count; k++) {
                if (ngx_http_foregate_is(digests[k], (char *) element[i].key.data, element[i].key.len)) {
                    element[i].hash = 0;
                }
            }
        }
    }
}

void
ngx_http_foregate_trailers_change(ngx_http_request_t *r)
{
    ngx_http_foregate_drop_digests(&r->headers_out.trailers.part, 1);
}

void
ngx_http_foregate_body_changes(ngx_http_request_t *r)
{
    ngx_http_clear_content_length(r);
    ngx_http_clear_accept_ranges(r);
    ngx_http_weak_etag(r);
    ngx_http_foregate_drop_digests(&r->headers_out.headers.part, 0);
    /* The end may have come before the head goes out. */
    ngx_http_foregate_trailers_change(r);
}

ngx_int_t
ngx_http_foregate_clear_response(ngx_http_request_t *r)
{
    ngx_memzero(&r->headers_out, sizeof(ngx_http_headers_out_t));
    r->headers_out.content_length_n = -1;
    r->headers_out.last_modified_time = -1;
    /* Those of the body that was to be sent. */
    r->allow_ranges = 0;
    if (ngx_list_init(&r->headers_out.headers, r->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK
        || ngx_list_init(&r->headers_out.trailers, r->pool, 4, sizeof(ngx_table_elt_t)) != NGX_OK)
    {
        return NGX_ERROR;
    }
    return NGX_OK;
}
