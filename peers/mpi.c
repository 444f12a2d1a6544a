/* MPI: rank 0 sends, rank 1 receives; up to WINDOW messages of a stream are under way by non-blocking calls. */

#include "driver.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define WINDOW 64
/* Memory for messages under way on one side: of large ones there are fewer. */
#define MEMORY_BYTES (64u << 20)

static size_t size;
static int other, window;
static MPI_Request sends[WINDOW], receives[WINDOW];
static char *out, *in;
static int next_out, next_in;
static int posted;

static void begin(struct job *job) {
    int rank, ranks;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) fail("launcher", "start two processes");
    job->sender = rank == 0;
    other = !rank;
}

static void post(int slot) {
    MPI_Irecv(in + (size_t)slot * size, (int)size, MPI_BYTE, other, 0, MPI_COMM_WORLD, &receives[slot]);
}

static void open_world(const struct job *job) {
    size = job->size;
    window = (int)(MEMORY_BYTES / size);
    window = window < 2 ? 2 : window > WINDOW ? WINDOW : window;
    /* One message each way is under way in a ping-pong: more would only be looked at in vain. */
    if (job->pingpong) window = 2;
    out = pages(size * (size_t)window);
    in = pages(size * (size_t)window);
    for (int slot = 0; slot < window; slot++) sends[slot] = MPI_REQUEST_NULL;
    if (!job->sender || job->pingpong) {
        for (int slot = 0; slot < window; slot++) post(slot);
        posted = 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void *buffer(void) {
    MPI_Wait(&sends[next_out], MPI_STATUS_IGNORE);
    return out + (size_t)next_out * size;
}

static void send_message(void) {
    MPI_Isend(out + (size_t)next_out * size, (int)size, MPI_BYTE, other, 0, MPI_COMM_WORLD, &sends[next_out]);
    next_out = (next_out + 1) % window;
}

static const void *recv_message(size_t *length) {
    static int held = -1;
    MPI_Status status;
    int count;
    /* What was lent by the last call is free now. */
    if (held >= 0) post(held);
    held = next_in;
    MPI_Wait(&receives[held], &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    next_in = (next_in + 1) % window;
    *length = (size_t)count;
    return in + (size_t)held * size;
}

static void close_world(void) {
    for (int slot = 0; slot < window; slot++) MPI_Wait(&sends[slot], MPI_STATUS_IGNORE);
    if (posted) {
        for (int slot = 0; slot < window; slot++) {
            if (receives[slot] == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&receives[slot]);
            MPI_Wait(&receives[slot], MPI_STATUS_IGNORE);
        }
    }
    /* MPICH's end waits for ever for a side that has gone before it. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}

static const char *version(void) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    /* `Open MPI v4.1.4, package: ...`, or a paragraph that begins with `MPICH Version:`: the number says enough. */
    char *number = strpbrk(text, "0123456789");
    if (!number) return "of unknown version";
    number[strspn(number, "0123456789.")] = 0;
    return number;
}

static const char *over(const struct job *job) {
    return job->intra ? "shared memory" : "TCP";
}

static const char *waits(const struct job *job) {
    (void)job;
    return "spin";
}

/* Bytes of a report at most: its histogram has a bucket for every thousandth of a time. */
#define REPORT_BYTES (1 << 20)

static const char *gather(const struct job *job, const char *report) {
    static char text[REPORT_BYTES];
    if (!job->sender) {
        MPI_Send(report, (int)strlen(report) + 1, MPI_CHAR, other, 1, MPI_COMM_WORLD);
        return NULL;
    }
    MPI_Recv(text, REPORT_BYTES, MPI_CHAR, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return text;
}

const struct peer peer = {PEER_NAME,    begin,       open_world, buffer, send_message,
                          recv_message, close_world, version,    over,   waits,  gather};
