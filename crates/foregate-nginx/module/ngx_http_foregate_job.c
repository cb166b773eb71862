/*
 * Heavy steps, which run on threads of a pool of NGINX's. The other half copies the inputs of such a step, so that a
 * thread touches nothing of a request: that may end while the thread is still at work.
 */

#include "ngx_http_foregate.h"

#if (NGX_THREADS)

/* A step on its way. It has memory of its own, as it may outlive its request. */
struct ngx_http_foregate_job_s {
    ngx_thread_task_t task;
    ngx_event_t timer;
    ngx_http_request_t *r;
    ngx_http_foregate_ctx_t *ctx; /* NULL when nobody waits for it any more */
    void *job;                    /* of the other half */
};

static void
ngx_http_foregate_job_run(void *data, ngx_log_t *log)
{
    ngx_http_foregate_job_t *job = data;

    fg_job_run(job->job);
}

/* Has the request go on that waits for a job which has been settled. */
static void
ngx_http_foregate_job_wake(ngx_http_foregate_job_t *job)
{
    ngx_http_foregate_ctx_t *ctx = job->ctx;

    job->ctx = NULL;
    ctx->job = NULL;
    ngx_http_foregate_answered(job->r, ctx);
}

/* A thread has come to the end of it. */
static void
ngx_http_foregate_job_done(ngx_event_t *event)
{
    ngx_http_foregate_job_t *job = event->data;
    ngx_connection_t *c = NULL;

    if (job->timer.timer_set) {
        ngx_del_timer(&job->timer);
    }
    if (job->ctx != NULL) {
        c = job->r->connection;
        ngx_http_set_log_request(c->log, job->r);
        (void) fg_job_settle(job->ctx->request, job->job);
        ngx_http_foregate_job_wake(job);
    }
    fg_job_free(job->job);
    ngx_free(job);
    if (c != NULL) {
        ngx_http_run_posted_requests(c);
    }
}

/* It has waited long enough for a thread, unless one has it. */
static void
ngx_http_foregate_job_late(ngx_event_t *event)
{
    ngx_http_foregate_job_t *job = event->data;
    ngx_connection_t *c = job->r->connection;

    if (!fg_job_settle(job->ctx->request, job->job)) {
        return;
    }
    ngx_http_set_log_request(c->log, job->r);
    ngx_http_foregate_job_wake(job);
    ngx_http_run_posted_requests(c);
}

ngx_int_t
ngx_http_foregate_offload(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_foregate_main_conf_t *main = ngx_http_get_module_main_conf(r, ngx_http_foregate_module);
    ngx_http_foregate_job_t *job = ngx_calloc(sizeof(ngx_http_foregate_job_t), r->connection->log);
    uint64_t wait;

    if (job == NULL) {
        return NGX_ERROR;
    }
    job->job = fg_job_new(ctx->request, &wait);
    if (job->job == NULL) {
        ngx_free(job);
        return NGX_OK;
    }

    job->r = r;
    job->ctx = ctx;
    job->task.handler = ngx_http_foregate_job_run;
    job->task.ctx = job;
    job->task.event.handler = ngx_http_foregate_job_done;
    job->task.event.data = job;
    job->task.event.log = ngx_cycle->log;
    if (ngx_thread_task_post(main->threads, &job->task) != NGX_OK) {
        (void) fg_job_settle(ctx->request, job->job);
        fg_job_free(job->job);
        ngx_free(job);
        return NGX_OK;
    }

    job->timer.handler = ngx_http_foregate_job_late;
    job->timer.data = job;
    job->timer.log = ngx_cycle->log;
    ngx_add_timer(&job->timer, (ngx_msec_t) wait);
    ctx->job = job;
    ctx->asking++;
    return NGX_OK;
}

void
ngx_http_foregate_forget_job(ngx_http_foregate_ctx_t *ctx)
{
    ngx_http_foregate_job_t *job = ctx->job;

    if (job == NULL) {
        return;
    }
    ctx->job = NULL;
    job->ctx = NULL;
    if (job->timer.timer_set) {
        ngx_del_timer(&job->timer);
    }
    fg_job_forget(job->job);
}

#else

/* Files that need threads are refused, and steps for which they would be better run where they are. */
ngx_int_t
ngx_http_foregate_offload(ngx_http_request_t *r, ngx_http_foregate_ctx_t *ctx)
{
    return NGX_ERROR;
}

void
ngx_http_foregate_forget_job(ngx_http_foregate_ctx_t *ctx)
{
}

#endif
