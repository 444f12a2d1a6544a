/* nng: a pair of sockets, over TCP between nodes and a Unix socket within one. Its own threads carry the messages. */

#include "driver.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdio.h>
#include <unistd.h>

/* Messages that wait on either side. */
#define QUEUE 256

static nng_socket link_socket;
static size_t size;
static nng_msg *filled, *taken;

static void check(const char *what, int error) {
    if (error) fail(what, nng_strerror(error));
}

static void open_pair(const struct job *job) {
    char url[256];
    size = job->size;
    if (job->intra)
        snprintf(url, sizeof url, "ipc:///dev/shm/peer-nng-%d", job->port);
    else
        snprintf(url, sizeof url, "tcp://%s:%d", job->address, job->port);
    check("pair", nng_pair0_open(&link_socket));
    check("receive queue", nng_socket_set_int(link_socket, NNG_OPT_RECVBUF, QUEUE));
    check("send queue", nng_socket_set_int(link_socket, NNG_OPT_SENDBUF, QUEUE));
    check("message size", nng_socket_set_size(link_socket, NNG_OPT_RECVMAXSZ, 0));
    if (job->sender) {
        check(url, nng_dial(link_socket, url, NULL, 0));
    } else {
        check(url, nng_listen(link_socket, url, NULL, 0));
        ready();
    }
}

static void *buffer(void) {
    check("message", nng_msg_alloc(&filled, size));
    return nng_msg_body(filled);
}

static void send_message(void) {
    check("send", nng_sendmsg(link_socket, filled, 0));
    filled = NULL;
}

static const void *recv_message(size_t *length) {
    if (taken) nng_msg_free(taken);
    check("receive", nng_recvmsg(link_socket, &taken, 0));
    *length = nng_msg_len(taken);
    return nng_msg_body(taken);
}

static void close_pair(void) {
    /* Closing discards what is still queued, and tells nobody when it has left. */
    usleep(300000);
    nng_close(link_socket);
}

static const char *version(void) {
    return nng_version();
}

static const char *over(const struct job *job) {
    return job->intra ? "a Unix socket (pair0)" : "TCP (pair0)";
}

static const char *waits(const struct job *job) {
    (void)job;
    return "block";
}

const struct peer peer = {"nng", NULL, open_pair, buffer, send_message, recv_message, close_pair, version, over, waits, NULL};
