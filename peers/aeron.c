/* Aeron: exclusive publications both ways. The media driver runs inside the measuring thread: by itself it would be
 * one more thread that spins for each node. Within a machine one driver serves both sides, the receiver's. */

#include "driver.h"

#include <aeronc.h>
#include <aeronmd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAGMENTS 64
/* The largest fragment: what one poll can deliver at most follows from it. */
#define FRAGMENT_BYTES 65504
#define UDP_MTU 1408
#define SOCKET_BYTES (2u << 20)
/* Turns between two looks of the client at its driver, and of the driver at its work where that moves no message. */
#define SELDOM 256
#define SOMETIMES 16
/* How long what was sent is served after the last message. */
#define LINGER_NS 500000000ull
/* Longest time for the other side to appear. */
#define APPEAR_NS 20000000000ull

static aeron_driver_t *driver;
static aeron_t *client;
static aeron_exclusive_publication_t *publication;
static aeron_subscription_t *subscription;
static aeron_fragment_assembler_t *assembler;
static bool intra;
static size_t size;
static uint8_t *out, *batch;
static size_t lengths[FRAGMENTS], capacity, held, taken;
static uint64_t turns, offered;

static void check(const char *what, int result) {
    if (result < 0) fail(what, aeron_errmsg());
}

/* One turn of all that is not ours. Between nodes the driver moves every message, within one it only keeps books. */
static void work(void) {
    turns++;
    if (driver && (!intra || turns % SOMETIMES == 0)) aeron_driver_main_do_work(driver);
    if (turns % SELDOM == 0) aeron_main_do_work(client);
}

static void work_on_all(void) {
    if (driver) aeron_driver_main_do_work(driver);
    aeron_main_do_work(client);
}

static void take(void *unused, const uint8_t *bytes, size_t length, aeron_header_t *header) {
    (void)unused;
    (void)header;
    if (held == capacity) fail("receive", "more messages in one poll than fit");
    lengths[held] = length;
    memcpy(batch + held * size, bytes, length < size ? length : size);
    held++;
}

static void start_driver(const char *folder) {
    aeron_driver_context_t *context;
    check("driver", aeron_driver_context_init(&context));
    aeron_driver_context_set_dir(context, folder);
    aeron_driver_context_set_dir_delete_on_start(context, true);
    aeron_driver_context_set_dir_delete_on_shutdown(context, true);
    aeron_driver_context_set_threading_mode(context, AERON_THREADING_MODE_INVOKER);
    aeron_driver_context_set_mtu_length(context, UDP_MTU);
    aeron_driver_context_set_ipc_mtu_length(context, FRAGMENT_BYTES);
    aeron_driver_context_set_socket_so_rcvbuf(context, SOCKET_BYTES);
    aeron_driver_context_set_socket_so_sndbuf(context, SOCKET_BYTES);
    aeron_driver_context_set_rcv_initial_window_length(context, SOCKET_BYTES);
    check("driver", aeron_driver_init(&driver, context));
    check("driver", aeron_driver_start(driver, true));
}

static void start_client(const char *folder) {
    aeron_context_t *context;
    check("client", aeron_context_init(&context));
    aeron_context_set_dir(context, folder);
    aeron_context_set_use_conductor_agent_invoker(context, true);
    check("client", aeron_init(&client, context));
    check("client", aeron_start(client));
}

static void add_both(const char *out_channel, int out_stream, const char *in_channel, int in_stream) {
    aeron_async_add_exclusive_publication_t *adding_out;
    aeron_async_add_subscription_t *adding_in;
    check(in_channel, aeron_async_add_subscription(&adding_in, client, in_channel, in_stream, NULL, NULL, NULL, NULL));
    while (!subscription) {
        check(in_channel, aeron_async_add_subscription_poll(&subscription, adding_in));
        work_on_all();
    }
    check(out_channel, aeron_async_add_exclusive_publication(&adding_out, client, out_channel, out_stream));
    while (!publication) {
        check(out_channel, aeron_async_add_exclusive_publication_poll(&publication, adding_out));
        work_on_all();
    }
}

static void open_channels(const struct job *job) {
    char folder[64], forth[128] = "aeron:ipc", back[128] = "aeron:ipc";
    intra = job->intra;
    size = job->size;
    capacity = (size_t)FRAGMENTS * FRAGMENT_BYTES / size + 2;
    if (capacity > FRAGMENTS) capacity = FRAGMENTS;
    out = pages(size);
    batch = pages(size * capacity);
    snprintf(folder, sizeof folder, "/dev/shm/peer-aeron-%d", job->port);
    if (!intra) {
        snprintf(forth, sizeof forth, "aeron:udp?endpoint=%s:%d", job->address, job->port);
        snprintf(back, sizeof back, "aeron:udp?endpoint=%s:%d", job->sender_address, job->port);
    }
    if (!intra || !job->sender) start_driver(folder);
    start_client(folder);
    check("assembler", aeron_fragment_assembler_create(&assembler, take, NULL));
    if (job->sender)
        add_both(forth, 1, back, 2);
    else
        add_both(back, 2, forth, 1);
    if (!job->sender) ready();
    uint64_t end_ns = now_ns() + APPEAR_NS;
    while (!aeron_exclusive_publication_is_connected(publication) || !aeron_subscription_is_connected(subscription)) {
        if (now_ns() > end_ns) fail("connect", "the other side did not appear");
        work_on_all();
    }
}

static void *buffer(void) {
    return out;
}

static void send_message(void) {
    int64_t result;
    while ((result = aeron_exclusive_publication_offer(publication, out, size, NULL, NULL)) < 0) {
        if (result != AERON_PUBLICATION_BACK_PRESSURED && result != AERON_PUBLICATION_ADMIN_ACTION)
            fail("send", result == AERON_PUBLICATION_NOT_CONNECTED ? "the other side has gone" : aeron_errmsg());
        work();
    }
    /* What was offered lies in the log until the driver sends it. A stream need not call it for each message. */
    if (++offered % SOMETIMES == 0) work();
}

static const void *recv_message(size_t *length) {
    if (taken == held) {
        taken = held = 0;
        while (!held) {
            work();
            check("receive", aeron_subscription_poll(subscription, aeron_fragment_assembler_handler, assembler, FRAGMENTS));
        }
    }
    *length = lengths[taken];
    return batch + taken++ * size;
}

static void close_channels(void) {
    for (uint64_t end_ns = now_ns() + LINGER_NS; now_ns() < end_ns;) work_on_all();
    /* The folder is in memory that ends with its processes: a driver that is closed while the other side still looks
     * at it would only make that one complain. */
}

static const char *version(void) {
    static char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", aeron_version_major(), aeron_version_minor(), aeron_version_patch());
    return text;
}

static const char *over(const struct job *job) {
    return job->intra ? "shared memory (ipc)" : "UDP, driver in the measuring thread";
}

static const char *waits(const struct job *job) {
    (void)job;
    return "spin";
}

const struct peer peer = {"aeron",      NULL,           open_channels, buffer, send_message,
                          recv_message, close_channels, version,       over,   waits, NULL};
