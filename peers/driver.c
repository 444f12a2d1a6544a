/* The two sides of stream and pingpong, as `polyrail bench` plays them for its own protocols: every message carries
 * its number at both ends, a stream is counted by its receiver, and a window opens after the warm-up. */

#define _GNU_SOURCE
#include "driver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The number of the last message, which ends the run. */
#define END UINT64_MAX
/* Bytes and messages between two looks at the clock. */
#define LOOK_BYTES (64 * 1024)
#define LOOK_MESSAGES_MAX 64
/* How much longer than its window a sender goes on, so that the receiver's later window is full to its end. */
#define TAIL_NS 100000000ull
#define MESSAGE_BYTES_MIN 8
#define MESSAGE_BYTES_MAX (64u << 20)

static struct job job;
static char notes[512];

void fail(const char *what, const char *why) {
    fprintf(stderr, "peer-%s: %s: %s\n", peer.name, what, why);
    fflush(stderr);
    _exit(1);
}

void ready(void) {
    puts("ready");
    fflush(stdout);
}

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

void *pages(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) fail("memory", strerror(errno));
    return memory;
}

static void note(const char *text) {
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\"%s\"", used ? "," : "", text);
}

/* --- What the process sets about itself ------------------------------------------------------------------------- */

/* A launcher may have made a session of its own, which then has no weight yet. */
static void claim_the_machine(void) {
    int file = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        if (write(file, "-20", 3) != 3) note("session's weight not raised");
        close(file);
    }
    if (setpriority(PRIO_PROCESS, 0, -20) != 0) note("priority not raised");
}

/* Only the measuring thread: the library's own threads were started before and stay free. */
static void pin(void) {
    if (job.core < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)job.core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) note("not pinned");
}

static uint64_t cpu_ns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000ull +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000ull;
}

/* --- Histogram: three significant digits from a nanosecond on --------------------------------------------------- */

#define MANTISSA_BITS 10
#define BUCKETS ((65 - MANTISSA_BITS) << MANTISSA_BITS)
static uint64_t histogram[BUCKETS];

static void record(uint64_t ns) {
    int width = 64 - __builtin_clzll(ns | 1);
    int shift = width > MANTISSA_BITS + 1 ? width - MANTISSA_BITS - 1 : 0;
    histogram[((size_t)shift << MANTISSA_BITS) + (ns >> shift)]++;
}

static void print_histogram(FILE *out) {
    const char *comma = "";
    for (size_t index = 0; index < BUCKETS; index++) {
        if (!histogram[index]) continue;
        size_t shift = index >> MANTISSA_BITS ? (index >> MANTISSA_BITS) - 1 : 0;
        uint64_t low = (uint64_t)(index - (shift << MANTISSA_BITS)) << shift;
        uint64_t middle = low + ((1ull << shift) >> 1);
        fprintf(out, "%s[%llu,%llu]", comma, (unsigned long long)middle, (unsigned long long)histogram[index]);
        comma = ",";
    }
}

/* --- Window ----------------------------------------------------------------------------------------------------- */

struct mark {
    uint64_t now_ns, messages, cpu_ns;
};

static struct {
    uint64_t start_ns;
    bool is_open, is_closed;
    struct mark opened, closed;
} window;

/* Takes the counters; the length counts from the moment the window really opened. */
static void tick(uint64_t messages) {
    uint64_t now = now_ns();
    if (!window.is_open && now >= window.start_ns + job.warmup_ns) {
        window.opened = (struct mark){now, messages, cpu_ns()};
        window.is_open = true;
    } else if (window.is_open && !window.is_closed && now >= window.opened.now_ns + job.duration_ns) {
        window.closed = (struct mark){now, messages, cpu_ns()};
        window.is_closed = true;
    }
}

/* What ends before its window does is counted until then. */
static void close_window(uint64_t messages) {
    if (window.is_open && !window.is_closed) {
        window.closed = (struct mark){now_ns(), messages, cpu_ns()};
        window.is_closed = true;
    }
}

/* --- Messages --------------------------------------------------------------------------------------------------- */

static uint64_t sent, received, lost, duplicated, reordered, damaged, expected;

static void stamp(uint8_t *message, uint64_t number) {
    memcpy(message, &number, 8);
    if (job.size >= 16) memcpy(message + job.size - 8, &number, 8);
}

static void send_number(uint64_t number) {
    stamp(peer.buffer(), number);
    peer.send();
    sent++;
}

/* The number of a message; what is wrong with it is counted. */
static bool number_of(const uint8_t *message, size_t length, uint64_t *number) {
    uint64_t last;
    if (length == job.size) {
        memcpy(number, message, 8);
        memcpy(&last, message + (job.size >= 16 ? job.size - 8 : 0), 8);
        if (last == *number) return true;
    }
    damaged++;
    return false;
}

static void observe(uint64_t number) {
    if (number == expected) {
        expected++;
    } else if (number > expected) {
        lost += number - expected;
        expected = number + 1;
    } else if (lost > 0) {
        /* Below what was expected and missing until now; without gaps it can only be here a second time. */
        lost--;
        reordered++;
    } else {
        duplicated++;
        return;
    }
    received++;
}

/* --- The sides -------------------------------------------------------------------------------------------------- */

static uint64_t look_every(void) {
    uint64_t messages = LOOK_BYTES / job.size;
    return messages < 1 ? 1 : messages > LOOK_MESSAGES_MAX ? LOOK_MESSAGES_MAX : messages;
}

static void stream_out(void) {
    uint64_t number = 0, end_ns = 0, every = look_every();
    window.start_ns = now_ns();
    while (!end_ns || now_ns() < end_ns) {
        for (uint64_t i = 0; i < every; i++) send_number(number++);
        tick(number);
        if (window.is_closed && !end_ns) end_ns = window.closed.now_ns + TAIL_NS;
    }
    send_number(END);
}

static void stream_in(void) {
    uint64_t number, every = look_every(), since = 0;
    size_t length;
    for (;;) {
        const uint8_t *message = peer.recv(&length);
        if (!number_of(message, length, &number)) continue;
        if (number == END) break;
        observe(number);
        if (!window.start_ns) window.start_ns = now_ns();
        if (++since >= every) {
            tick(received);
            since = 0;
        }
    }
    close_window(received);
}

static void ask(void) {
    uint64_t got;
    size_t length;
    window.start_ns = now_ns();
    for (uint64_t number = 0; !window.is_closed; number++) {
        uint64_t asked_ns = now_ns();
        send_number(number);
        const uint8_t *answer = peer.recv(&length);
        uint64_t took_ns = now_ns() - asked_ns;
        if (number_of(answer, length, &got)) {
            if (got != number) fail("answer", "not to the message that was sent");
            received++;
        }
        if (window.is_open) record(took_ns);
        tick(number + 1);
    }
    send_number(END);
}

static void answer(void) {
    uint64_t number;
    size_t length;
    for (;;) {
        const uint8_t *message = peer.recv(&length);
        if (!number_of(message, length, &number)) continue;
        if (number == END) break;
        memcpy(peer.buffer(), message, job.size);
        peer.send();
        sent++;
        received++;
    }
}

/* One line, in memory of its own. */
static char *report(void) {
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (!out) fail("report", strerror(errno));
    uint64_t messages = window.is_closed ? window.closed.messages - window.opened.messages : 0;
    fprintf(out, "{\"peer\":\"%s\",\"version\":\"%s\",\"role\":\"%s\",\"wait\":\"%s\",\"over\":\"%s\"", peer.name,
           peer.version(), job.sender ? "sender" : "receiver", peer.waits(&job), peer.over(&job));
    const struct {
        const char *name;
        uint64_t value;
    } fields[] = {
        {"sent", sent},
        {"window_ns", window.is_closed ? window.closed.now_ns - window.opened.now_ns : 0},
        {"messages", messages},
        {"bytes", messages * job.size},
        {"cpu_ns", window.is_closed ? window.closed.cpu_ns - window.opened.cpu_ns : 0},
        {"received", received},
        {"lost", lost},
        {"duplicated", duplicated},
        {"reordered", reordered},
        {"damaged", damaged},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        fprintf(out, ",\"%s\":%llu", fields[i].name, (unsigned long long)fields[i].value);
    fprintf(out, ",\"rtt_ns\":[");
    print_histogram(out);
    fprintf(out, "],\"notes\":[%s]}", notes);
    fclose(out);
    return text;
}

/* Says both reports, or this side's. */
static void tell(const char *own) {
    const char *other = NULL;
    if (peer.gather) {
        other = peer.gather(&job, own);
        if (!other) return;
    }
    puts(own);
    if (other) printf("%s\ndone\n", other);
    fflush(stdout);
}

/* --- Addresses by other means ----------------------------------------------------------------------------------- */

static void move_all(int socket, void *bytes, size_t count, bool out) {
    for (size_t done = 0; done < count;) {
        ssize_t moved = out ? send(socket, (char *)bytes + done, count - done, MSG_NOSIGNAL)
                            : recv(socket, (char *)bytes + done, count - done, 0);
        if (moved <= 0) fail("exchange of addresses", moved ? strerror(errno) : "the other side has gone");
        done += (size_t)moved;
    }
}

void *exchange(const struct job *of, const void *own, size_t bytes, size_t *other_bytes) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)of->port)};
    if (inet_pton(AF_INET, of->address, &at.sin_addr) != 1) fail(of->address, "no IPv4 address");
    int on = 1, end, socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (of->sender) {
        end = socket_fd;
        if (connect(end, (struct sockaddr *)&at, sizeof at)) fail(of->address, strerror(errno));
    } else {
        if (bind(socket_fd, (struct sockaddr *)&at, sizeof at) || listen(socket_fd, 1))
            fail(of->address, strerror(errno));
        ready();
        end = accept(socket_fd, NULL, NULL);
        if (end < 0) fail("accept", strerror(errno));
        close(socket_fd);
    }
    uint64_t length = bytes;
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, own, bytes);
    move_all(end, &length, sizeof length, true);
    move_all(end, copy, bytes, true);
    move_all(end, &length, sizeof length, false);
    if (length > 1 << 20) fail("exchange of addresses", "an address of more than 1 MiB");
    void *other = malloc(length ? length : 1);
    move_all(end, other, length, false);
    free(copy);
    close(end);
    *other_bytes = length;
    return other;
}

/* --- Command line ----------------------------------------------------------------------------------------------- */

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || end == text || *text == '-' || value < least || value > most) fail(name, text);
    return value;
}

static void read_arguments(int count, char **arguments) {
    static const struct option options[] = {
        {"size", 1, 0, 's'},          {"warmup-ns", 1, 0, 'w'},     {"duration-ns", 1, 0, 'd'},
        {"wait", 1, 0, 'm'},          {"placement", 1, 0, 'l'},     {"address", 1, 0, 'a'},
        {"read", 1, 0, 'r'},          
        {"sender-address", 1, 0, 'o'}, {"port", 1, 0, 'p'},          {"sender-core", 1, 0, 'S'},
        {"receiver-core", 1, 0, 'R'}, {0, 0, 0, 0},
    };
    int cores[2] = {-1, -1}, option;
    job = (struct job){.wait = "spin", .address = "127.0.0.1", .sender_address = "127.0.0.1", .core = -1};
    while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) {
        switch (option) {
        case 's': job.size = number("--size", optarg, MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX); break;
        case 'w': job.warmup_ns = number("--warmup-ns", optarg, 0, INT64_MAX); break;
        case 'd': job.duration_ns = number("--duration-ns", optarg, 1, INT64_MAX); break;
        case 'm': job.wait = optarg; break;
        case 'l': job.intra = !strcmp(optarg, "intra"); break;
        case 'r': break;
        case 'a': job.address = optarg; break;
        case 'o': job.sender_address = optarg; break;
        case 'p': job.port = (int)number("--port", optarg, 1, 65535); break;
        case 'S': cores[0] = (int)number("--sender-core", optarg, 0, CPU_SETSIZE - 1); break;
        case 'R': cores[1] = (int)number("--receiver-core", optarg, 0, CPU_SETSIZE - 1); break;
        default: fail("arguments", "see peers/driver.h");
        }
    }
    if (count - optind != 2 || !job.size || !job.duration_ns || !job.port) fail("arguments", "see peers/driver.h");
    const char *role = arguments[optind], *workload = arguments[optind + 1];
    bool both = !strcmp(role, "both");
    job.sender = !strcmp(role, "sender");
    job.pingpong = !strcmp(workload, "pingpong");
    if (!both && !job.sender && strcmp(role, "receiver")) fail("no role", role);
    if (!job.pingpong && strcmp(workload, "stream")) fail("no workload", workload);
    if (both != (peer.begin != NULL)) fail("role", both ? "has no launcher: start each side" : "is for a launcher: both");
    if (peer.begin) peer.begin(&job);
    job.core = cores[job.sender ? 0 : 1];
}

int main(int count, char **arguments) {
    claim_the_machine();
    read_arguments(count, arguments);
    peer.open(&job);
    pin();
    if (job.pingpong)
        job.sender ? ask() : answer();
    else
        job.sender ? stream_out() : stream_in();
    /* A library that is closed may not tell its version. */
    char *own = report();
    if (peer.gather) tell(own);
    peer.close();
    if (!peer.gather) tell(own);
    free(own);
    return 0;
}
