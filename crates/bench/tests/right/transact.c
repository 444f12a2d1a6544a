// The least program that does what `polyrail bench transact --protocol tcp-nodelay --placement intra --wait block` does,
// to hold the instrument against. Its figure is the median time of a transaction, in us.
//
//     cc -O2 -o transact transact.c && ./transact 128 1        (bytes each way, seconds)
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRANSACTIONS_MAX 4000000

static char message[1 << 20];

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        _exit(1);
    }
}

static void pin(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    check(sched_setaffinity(0, sizeof cores, &cores) == 0, "sched_setaffinity");
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static int open_socket(void) {
    int on = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(s >= 0, "socket");
    check(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    return s;
}

static void receive(int s, size_t size) {
    for (size_t got = 0; got < size;) {
        ssize_t n = recv(s, message + got, size - got, 0);
        check(n > 0, "recv");
        got += n;
    }
}

static void transmit(int s, size_t size) {
    for (size_t sent = 0; sent < size;) {
        ssize_t n = send(s, message + sent, size - sent, MSG_NOSIGNAL);
        check(n > 0, "send");
        sent += n;
    }
}

static void answer(int listening, size_t size) {
    pin(1);
    for (;;) {
        int s = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        check(s >= 0, "accept");
        receive(s, size);
        transmit(s, size);
        close(s);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **args) {
    size_t size = count > 1 ? strtoul(args[1], NULL, 10) : 128;
    double span_us = (count > 2 ? atof(args[2]) : 1) * 1e6;
    check(size > 0 && size <= sizeof message, "size");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listening = open_socket();
    check(bind(listening, (struct sockaddr *)&at, length) == 0 && listen(listening, 64) == 0, "listen");
    check(getsockname(listening, (struct sockaddr *)&at, &length) == 0, "getsockname");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0)
        answer(listening, size);
    pin(0);
    double *times_us = malloc(TRANSACTIONS_MAX * sizeof *times_us), start_us = now_us();
    int n = 0;
    check(times_us != NULL, "malloc");
    // The first 0.3 s are not counted.
    for (double begun_us = start_us; n < TRANSACTIONS_MAX && begun_us < start_us + 3e5 + span_us;) {
        int s = open_socket();
        check(connect(s, (struct sockaddr *)&at, sizeof at) == 0, "connect");
        transmit(s, size);
        receive(s, size);
        check(recv(s, message, 1, 0) == 0, "end");
        close(s);
        double ended_us = now_us();
        if (begun_us > start_us + 3e5)
            times_us[n++] = ended_us - begun_us;
        begun_us = ended_us;
    }
    qsort(times_us, n, sizeof *times_us, by_value);
    printf("%.2f\n", times_us[n / 2]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
