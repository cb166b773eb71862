/*
 * The heads of a request and its response, as the other half reads and changes them.
 */

#ifndef NGX_HTTP_FOREGATE_FIELDS_H
#define NGX_HTTP_FOREGATE_FIELDS_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "foregate.h"

size_t ngx_http_foregate_fields(void *data, int which, fg_field *out, size_t room);
int ngx_http_foregate_append(void *data, int which, fg_field *field);
int ngx_http_foregate_replace(void *data, int which, fg_field *field, fg_text value);
int ngx_http_foregate_remove(void *data, int which, const fg_field *fields, size_t count);

/* Gives a subrequest fields of its own: NGINX has it share the list, and its elements, with the main request. */
ngx_int_t ngx_http_foregate_own_request_fields(ngx_http_request_t *r);

/* The body will have another length, which is not known yet. */
void ngx_http_foregate_body_changes(ngx_http_request_t *r);

/* Its trailers, as far as they are known, belonged to the body as it was. */
void ngx_http_foregate_trailers_change(ngx_http_request_t *r);

/* Empties the head of the response, so that another one can be made. */
ngx_int_t ngx_http_foregate_clear_response(ngx_http_request_t *r);

#endif
