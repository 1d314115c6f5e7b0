/* The readers of every candidate: many connections, one epoll, one process.
 *
 * client PORT PATH [HEADER...], then lines on stdin, each answered by one line on stdout:
 *   connect N   open N more streams and wait for their response heads; "connected"
 *   count N     wait until N more frames have come; "frames recvs p50_us p99_us"
 * The readers look once a millisecond. Woken by every frame, they would make slow senders pay for waking them
 * and fast ones not, which has nothing to do with readers that are elsewhere.
 * A frame holds one `~` and behind it 16 hexadecimal digits, the monotonic time in ns when it was made. Any
 * answer but 200, a stream that ends and a silence of 30 s end the process with a message: nothing is missed
 * quietly.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536
#define DIGITS 16
#define SILENCE_MS 30000
#define LOOK_US 1000

struct stream {
    int fd;
    int begun;         /* whether the status was seen */
    int head;          /* how much of the blank line after the response head was seen; 4 is all */
    int digits;        /* how many digits of a time are still to come */
    uint64_t made_ns;
};

static struct stream streams[MOST];
static char request[8192];
static int poller, opened, answered, port;
static uint64_t *taken_ns;
static size_t frames, expected, recvs;

static void fail(const char *what) {
    fprintf(stderr, "fan-out client: %s\n", what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void connect_one(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct stream *stream = &streams[opened];
    if (opened == MOST) fail("too many connections");
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    stream->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (stream->fd < 0 || connect(stream->fd, (struct sockaddr *)&to, sizeof to) < 0) fail(strerror(errno));
    if (send(stream->fd, request, strlen(request), MSG_NOSIGNAL) < 0) fail(strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
    epoll_ctl(poller, EPOLL_CTL_ADD, stream->fd, &event);
    opened++;
}

static const char *skip_head(struct stream *stream, const char *at, const char *end) {
    static const char blank[] = "\r\n\r\n";
    if (!stream->begun && (end - at < 12 || memcmp(at, "HTTP/1.1 200", 12) != 0))
        fail("expected the status 200");
    stream->begun = 1;
    for (; at < end && stream->head < 4; at++)
        stream->head = *at == blank[stream->head] ? stream->head + 1 : *at == '\r';
    answered += stream->head == 4;
    return at;
}

static int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static void take(struct stream *stream, const char *at, const char *end, uint64_t now) {
    if (stream->head < 4) at = skip_head(stream, at, end);
    while (at < end) {
        if (stream->digits == 0) {
            at = memchr(at, '~', end - at);
            if (at == NULL) return;
            at++;
            stream->digits = DIGITS;
            stream->made_ns = 0;
        }
        for (; at < end && stream->digits; at++, stream->digits--)
            stream->made_ns = stream->made_ns << 4 | digit(*at);
        if (stream->digits == 0) {
            if (frames == expected) fail("more frames than were sent");
            taken_ns[frames++] = now - stream->made_ns;
        }
    }
}

static void turn(void) {
    static char buffer[1 << 16];
    struct epoll_event events[256];
    usleep(LOOK_US);
    int ready = epoll_wait(poller, events, 256, SILENCE_MS);
    if (ready == 0) fail("nothing came for 30 s");
    for (int i = 0; i < ready; i++) {
        struct stream *stream = events[i].data.ptr;
        ssize_t size = recv(stream->fd, buffer, sizeof buffer, 0);
        if (size <= 0) fail("a stream ended");
        recvs++;
        take(stream, buffer, buffer + size, now_ns());
    }
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void count(size_t wanted) {
    taken_ns = malloc(wanted * sizeof *taken_ns);
    frames = recvs = 0;
    expected = wanted;
    while (frames < expected) turn();
    qsort(taken_ns, frames, sizeof *taken_ns, by_size);
    printf("%zu %zu %llu %llu\n", frames, recvs, (unsigned long long)taken_ns[frames / 2] / 1000,
           (unsigned long long)taken_ns[frames - 1 - frames / 100] / 1000);
    free(taken_ns);
    expected = frames = 0;
}

int main(int argc, char **argv) {
    struct rlimit files;
    char line[256];
    size_t wanted;
    if (argc < 3) fail("expected PORT PATH [HEADER...]");
    port = atoi(argv[1]);
    int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", argv[2]);
    for (int i = 3; i < argc; i++)
        size += snprintf(request + size, sizeof request - size, "%s\r\n", argv[i]);
    snprintf(request + size, sizeof request - size, "\r\n");
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    poller = epoll_create1(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "connect %zu", &wanted) == 1) {
            for (size_t i = 0; i < wanted; i++) {
                connect_one();
                while (answered < opened) turn();
            }
            puts("connected");
        } else if (sscanf(line, "count %zu", &wanted) == 1) {
            count(wanted);
        } else {
            fail("expected `connect N` or `count N`");
        }
    }
    return 0;
}
