/* UCX: tagged messages between two workers whose addresses were swapped beforehand; UCX_TLS chooses what carries
 * them. Up to WINDOW messages of a stream are under way. */

#include "driver.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define WINDOW 64
#define MEMORY_BYTES (64u << 20)
#define TAG 1

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static size_t size;
static unsigned window;
static char *out, *in;
static ucs_status_ptr_t sends[WINDOW], receives[WINDOW];
static unsigned next_out, next_in;
static const struct job *of;
static int event_fd;
static bool blocks;

static void check(const char *what, ucs_status_t status) {
    if (status != UCS_OK) fail(what, ucs_status_string(status));
}

static ucs_status_t settled(const char *what, ucs_status_ptr_t request) {
    if (UCS_PTR_IS_ERR(request)) fail(what, ucs_status_string(UCS_PTR_STATUS(request)));
    return request ? ucp_request_check_status(request) : UCS_OK;
}

/* Works on until a request is done. */
static void work_until(const char *what, ucs_status_ptr_t request) {
    ucs_status_t status;
    while ((status = settled(what, request)) == UCS_INPROGRESS) {
        if (ucp_worker_progress(worker) || !blocks) continue;
        /* Busy: something came between the last look and now. */
        if (ucp_worker_arm(worker) != UCS_OK) continue;
        struct pollfd ready_fd = {.fd = event_fd, .events = POLLIN};
        poll(&ready_fd, 1, 50);
    }
    check(what, status);
}

static void release(ucs_status_ptr_t *request) {
    if (*request) ucp_request_free(*request);
    *request = NULL;
}

/* Always by a request: what is complete at once would tell its length by other means. */
static void post(unsigned slot) {
    ucp_request_param_t parameters = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    void *place = in + (size_t)slot * size;
    receives[slot] = ucp_tag_recv_nbx(worker, place, size, TAG, UINT64_MAX, &parameters);
}

static void open_worker(const struct job *job) {
    of = job;
    size = job->size;
    blocks = strcmp(job->wait, "block") == 0 && !job->intra;
    window = (unsigned)(MEMORY_BYTES / size);
    window = window < 2 ? 2 : window > WINDOW ? WINDOW : window;
    if (job->pingpong) window = 2;
    out = pages(size * window);
    in = pages(size * window);

    ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_TAG | (blocks ? UCP_FEATURE_WAKEUP : 0)};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    check("context", ucp_init(&parameters, NULL, &context));
    check("worker", ucp_worker_create(context, &single, &worker));
    if (blocks) check("waiting", ucp_worker_get_efd(worker, &event_fd));

    ucp_address_t *own;
    size_t own_bytes, other_bytes;
    check("address", ucp_worker_get_address(worker, &own, &own_bytes));
    void *other = exchange(job, own, own_bytes, &other_bytes);
    ucp_worker_release_address(worker, own);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = other};
    check("endpoint", ucp_ep_create(worker, &to, &endpoint));
    if (!job->sender || job->pingpong)
        for (unsigned slot = 0; slot < window; slot++) post(slot);
}

static void *buffer(void) {
    work_until("send", sends[next_out]);
    release(&sends[next_out]);
    return out + (size_t)next_out * size;
}

static void send_message(void) {
    ucp_request_param_t parameters = {.op_attr_mask = 0};
    sends[next_out] = ucp_tag_send_nbx(endpoint, out + (size_t)next_out * size, size, TAG, &parameters);
    settled("send", sends[next_out]);
    next_out = (next_out + 1) % window;
}

static const void *recv_message(size_t *length) {
    static int held = -1;
    if (held >= 0) post((unsigned)held);
    held = (int)next_in;
    next_in = (next_in + 1) % window;
    work_until("receive", receives[held]);
    ucp_tag_recv_info_t info;
    check("receive", ucp_tag_recv_request_test(receives[held], &info));
    release(&receives[held]);
    *length = info.length;
    return in + (size_t)held * size;
}

static void close_worker(void) {
    ucp_request_param_t parameters = {.op_attr_mask = 0};
    for (unsigned slot = 0; slot < window; slot++) {
        work_until("send", sends[slot]);
        release(&sends[slot]);
        if (receives[slot]) ucp_request_cancel(worker, receives[slot]);
    }
    /* Without force, this ends once all has reached the other side; it must answer until then. */
    ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &parameters);
    uint64_t end_ns = now_ns() + 300000000ull;
    while (now_ns() < end_ns) ucp_worker_progress(worker);
    settled("close", closing);
}

static const char *version(void) {
    return ucp_get_version_string();
}

static const char *over(const struct job *job) {
    return job->intra ? "shared memory (posix)" : "TCP";
}

static const char *waits(const struct job *job) {
    return strcmp(job->wait, "block") == 0 && !job->intra ? "block" : "spin";
}

const struct peer peer = {"ucx",        NULL,         open_worker, buffer, send_message,
                          recv_message, close_worker, version,     over,   waits, NULL};
