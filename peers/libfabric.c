/* libfabric: tagged messages of reliable-datagram endpoints; TCP beneath (tcp;ofi_rxm) between nodes, shared memory
 * (shm) within one. Addresses are swapped beforehand. Up to WINDOW messages of a stream are under way. */

#include "driver.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 64
#define MEMORY_BYTES (64u << 20)
#define TAG 1
/* How long the other side is served once all of ours has left. */
#define LINGER_NS 300000000ull

/* One operation under way. libfabric owns the context until the operation is complete. */
struct operation {
    struct fi_context2 context;
    bool pending;
    size_t length;
};

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *addresses;
static struct fid_cq *completions;
static struct fid_ep *endpoint;
static struct fid_mr *registered[2];
static fi_addr_t other_side;
static struct operation sends[WINDOW], receives[WINDOW];
static size_t size;
static unsigned window, next_out, next_in;
static char *out, *in;

static void check(const char *what, ssize_t result) {
    if (result < 0) fail(what, fi_strerror((int)-result));
}

static void progress(void) {
    struct fi_cq_tagged_entry entries[16];
    ssize_t count = fi_cq_read(completions, entries, 16);
    if (count == -FI_EAGAIN) return;
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        fi_cq_readerr(completions, &error, 0);
        fail("operation", fi_strerror(error.err));
    }
    check("completions", count);
    for (ssize_t i = 0; i < count; i++) {
        struct operation *operation = entries[i].op_context;
        operation->pending = false;
        operation->length = entries[i].len;
    }
}

static void *describe(int which) {
    return registered[which] ? fi_mr_desc(registered[which]) : NULL;
}

static void post(unsigned slot) {
    ssize_t result;
    receives[slot].pending = true;
    do {
        result = fi_trecv(endpoint, in + (size_t)slot * size, size, describe(1), FI_ADDR_UNSPEC, TAG, 0,
                          &receives[slot].context);
        if (result == -FI_EAGAIN) progress();
    } while (result == -FI_EAGAIN);
    check("receive", result);
}

static void find(const struct job *job) {
    struct fi_info *hints = fi_allocinfo();
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_TAGGED | FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(job->intra ? "shm" : "tcp;ofi_rxm");
    const char *at = job->intra ? NULL : job->sender ? job->sender_address : job->address;
    check("fi_getinfo", fi_getinfo(FI_VERSION(1, 17), at, NULL, at ? FI_SOURCE : 0, hints, &info));
    fi_freeinfo(hints);
}

static void open_endpoint(const struct job *job) {
    size = job->size;
    window = (unsigned)(MEMORY_BYTES / size);
    window = window < 2 ? 2 : window > WINDOW ? WINDOW : window;
    if (job->pingpong) window = 2;
    out = pages(size * window);
    in = pages(size * window);

    find(job);
    struct fi_av_attr table = {.type = FI_AV_TABLE, .count = 1};
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_TAGGED, .size = 4 * WINDOW, .wait_obj = FI_WAIT_NONE};
    check("fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("domain", fi_domain(fabric, info, &domain, NULL));
    check("addresses", fi_av_open(domain, &table, &addresses, NULL));
    check("completions", fi_cq_open(domain, &queue, &completions, NULL));
    check("endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    check("endpoint", fi_ep_bind(endpoint, &addresses->fid, 0));
    check("endpoint", fi_ep_bind(endpoint, &completions->fid, FI_SEND | FI_RECV));
    check("endpoint", fi_enable(endpoint));
    if (info->domain_attr->mr_mode & FI_MR_LOCAL) {
        check("memory", fi_mr_reg(domain, out, size * window, FI_SEND, 0, 0, 0, &registered[0], NULL));
        check("memory", fi_mr_reg(domain, in, size * window, FI_RECV, 0, 1, 0, &registered[1], NULL));
    }
    char own[256];
    size_t own_bytes = sizeof own, other_bytes;
    check("address", fi_getname(&endpoint->fid, own, &own_bytes));
    void *other = exchange(job, own, own_bytes, &other_bytes);
    if (fi_av_insert(addresses, other, 1, &other_side, 0, NULL) != 1) fail("address", "not understood");
    if (!job->sender || job->pingpong)
        for (unsigned slot = 0; slot < window; slot++) post(slot);
}

static void *buffer(void) {
    while (sends[next_out].pending) progress();
    return out + (size_t)next_out * size;
}

static void send_message(void) {
    ssize_t result;
    sends[next_out].pending = true;
    do {
        result = fi_tsend(endpoint, out + (size_t)next_out * size, size, describe(0), other_side, TAG,
                          &sends[next_out].context);
        if (result == -FI_EAGAIN) progress();
    } while (result == -FI_EAGAIN);
    check("send", result);
    next_out = (next_out + 1) % window;
}

static const void *recv_message(size_t *length) {
    static int held = -1;
    if (held >= 0) post((unsigned)held);
    held = (int)next_in;
    next_in = (next_in + 1) % window;
    while (receives[held].pending) progress();
    *length = receives[held].length;
    return in + (size_t)held * size;
}

static void close_endpoint(void) {
    for (unsigned slot = 0; slot < window; slot++)
        while (sends[slot].pending) progress();
    /* A send is complete before the other side has it: what it needs of us until then must be served. An error now
     * only means that it has gone first. */
    struct fi_cq_tagged_entry entry;
    for (uint64_t end_ns = now_ns() + LINGER_NS; now_ns() < end_ns;) (void)fi_cq_read(completions, &entry, 1);
    fi_close(&endpoint->fid);
    for (int which = 0; which < 2; which++)
        if (registered[which]) fi_close(&registered[which]->fid);
    fi_close(&completions->fid);
    fi_close(&addresses->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
}

static const char *version(void) {
    static char text[32];
    uint32_t number = fi_version();
    snprintf(text, sizeof text, "%u.%u", FI_MAJOR(number), FI_MINOR(number));
    return text;
}

static const char *over(const struct job *job) {
    return job->intra ? "shared memory (shm)" : "TCP (tcp;ofi_rxm)";
}

static const char *waits(const struct job *job) {
    (void)job;
    return "spin";
}

const struct peer peer = {"libfabric",  NULL,           open_endpoint, buffer, send_message,
                          recv_message, close_endpoint, version,       over,   waits, NULL};
