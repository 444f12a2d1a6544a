/* What every driver is made of: driver.c plays the two sides of a measurement over the few functions that a file for
 * each library defines. A driver measures another system through its public interface, for `polyrail bench peers`.
 *
 *     peer-NAME ROLE WORKLOAD --size BYTES --warmup-ns NS --duration-ns NS --wait spin|adaptive|block
 *         --placement intra|inter --read place|copy --address RECEIVER --sender-address SENDER --port PORT [--sender-core N] [--receiver-core N]
 *
 * Copy: each message is to end in memory of the receiver's own, which is where these libraries put it.
 *
 * ROLE is sender or receiver, or both where a launcher starts the two; WORKLOAD is stream or pingpong. A receiver says
 * `ready` once a sender may be started. Each side ends with one line of JSON on its standard output; what goes wrong
 * is one line on standard error and exit code 1. */

#ifndef POLYRAIL_PEERS_DRIVER_H
#define POLYRAIL_PEERS_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the command line asks for. */
struct job {
    bool sender;
    bool pingpong;
    bool intra;
    size_t size;
    uint64_t warmup_ns;
    uint64_t duration_ns;
    const char *wait;
    const char *address;        /* the receiver's */
    const char *sender_address;
    int port;
    int core; /* of the measuring thread; -1: none */
};

/* How a library is used. Messages have job->size bytes; functions that cannot go on call fail(). */
struct peer {
    const char *name;
    /* Finds out, and starts what must be started, before the role is known: for launchers of both sides. May be null. */
    void (*begin)(struct job *job);
    /* Connects the two sides; the receiver calls ready() when a sender may come. */
    void (*open)(const struct job *job);
    /* Memory for the next message to send; waits until there is some. */
    void *(*buffer)(void);
    /* Sends what buffer() gave. */
    void (*send)(void);
    /* Waits for the next message; its bytes stay until the next call. */
    const void *(*recv)(size_t *length);
    /* Lets all that was sent leave, waits for the other side where the library wants that, and closes. */
    void (*close)(void);
    const char *(*version)(void);
    /* What carries the messages, in a few words. */
    const char *(*over)(const struct job *job);
    /* How it really waits if asked for `job->wait`. */
    const char *(*waits)(const struct job *job);
    /* Of a receiver: gives its report to the sender, and null. Of a sender: the receiver's report. Both sides of a
     * launcher share one standard output, in which long lines would be mixed; `done` follows. Null without a launcher. */
    const char *(*gather)(const struct job *job, const char *report);
};

extern const struct peer peer;

/* Says that a sender may be started. */
void ready(void);
/* Says what went wrong and ends the process. */
void fail(const char *what, const char *why) __attribute__((noreturn));
/* The machine's monotonic clock. */
uint64_t now_ns(void);
/* Memory for messages, on pages of its own. */
void *pages(size_t bytes);
/* Swaps `own` for the other side's bytes over a TCP connection, for libraries whose addresses travel by other means.
 * Gives memory that is never freed. */
void *exchange(const struct job *job, const void *own, size_t bytes, size_t *other_bytes);

#endif
