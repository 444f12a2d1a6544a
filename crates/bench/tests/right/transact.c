// The least program that does what `polyrail bench transact --protocol tcp-nodelay --wait block` does, to hold the
// instrument against: `polyrail bench peers transact --peer transact-c` runs it (`make -C peers transact-c` builds it).
//
//     peer-transact-c answer ADDRESS PORT SIZE                             answers until it is killed
//     peer-transact-c call ADDRESS PORT SIZE WARMUP_NS DURATION_NS FILE    writes the time of each transaction, in ns
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TRANSACTIONS_MAX 4000000

static char message[1 << 20];
static size_t size;

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int open_socket(void) {
    int on = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(s >= 0, "socket");
    check(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    return s;
}

static void receive(int s) {
    for (size_t got = 0; got < size;) {
        ssize_t n = recv(s, message + got, size - got, 0);
        check(n > 0, "recv");
        got += n;
    }
}

static void transmit(int s) {
    for (size_t sent = 0; sent < size;) {
        ssize_t n = send(s, message + sent, size - sent, MSG_NOSIGNAL);
        check(n > 0, "send");
        sent += n;
    }
}

static void answer(const struct sockaddr_in *at) {
    int listening = open_socket();
    check(bind(listening, (const struct sockaddr *)at, sizeof *at) == 0 && listen(listening, 64) == 0, "listen");
    for (;;) {
        int s = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        check(s >= 0, "accept");
        receive(s);
        transmit(s);
        close(s);
    }
}

static void call(const struct sockaddr_in *at, uint64_t warmup_ns, uint64_t duration_ns, const char *path) {
    uint64_t *times_ns = malloc(TRANSACTIONS_MAX * sizeof *times_ns), open_ns = now_ns() + warmup_ns, begun_ns;
    int n = 0;
    check(times_ns != NULL, "malloc");
    while ((begun_ns = now_ns()) < open_ns + duration_ns && n < TRANSACTIONS_MAX) {
        int s = open_socket();
        check(connect(s, (const struct sockaddr *)at, sizeof *at) == 0, "connect");
        transmit(s);
        receive(s);
        check(recv(s, message, 1, 0) == 0, "end");
        close(s);
        if (begun_ns >= open_ns)
            times_ns[n++] = now_ns() - begun_ns;
    }
    FILE *file = fopen(path, "w");
    check(file != NULL, path);
    for (int i = 0; i < n; i++)
        fprintf(file, "%llu\n", (unsigned long long)times_ns[i]);
    check(fclose(file) == 0, path);
}

int main(int count, char **args) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    int calls = count == 8 && strcmp(args[1], "call") == 0;
    if (!calls && !(count == 5 && strcmp(args[1], "answer") == 0)) {
        fprintf(stderr, "usage: see the head of transact.c\n");
        return 2;
    }
    check(inet_pton(AF_INET, args[2], &at.sin_addr) == 1, "address");
    at.sin_port = htons(atoi(args[3]));
    size = strtoul(args[4], NULL, 10);
    check(size > 0 && size <= sizeof message, "size");
    if (calls)
        call(&at, strtoull(args[5], NULL, 10), strtoull(args[6], NULL, 10), args[7]);
    else
        answer(&at);
    return 0;
}
