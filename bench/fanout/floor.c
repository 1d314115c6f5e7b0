/* The floor: what the kernel alone takes. One send() per event and reader, no HTTP framing, no queue.
 *
 * floor FRAME: the first line on stdout is where it listens, as the other candidates say it. Then lines on
 * stdin, each answered by `done CALLS`, the number of send() calls:
 *   paced N INTERVAL_MS   N events, one at a time
 *   burst N               N events at once
 * The 16 characters behind the `~` in FRAME become the monotonic time in ns.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
static int readers[MOST], joined;
static char *frame, *stamp;
static size_t frame_size;
static unsigned long calls;

static void fail(const char *what) {
    fprintf(stderr, "fan-out floor: %s\n", what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0) fail(strerror(errno));
        calls++;
        data += sent;
        size -= sent;
    }
}

static void emit(void) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)now_ns());
    memcpy(stamp, digits, 16);
    for (int i = 0; i < joined; i++) send_all(readers[i], frame, frame_size);
}

static void paced(int events, long interval_ms) {
    uint64_t due = now_ns();
    for (int i = 0; i < events; i++) {
        emit();
        due += (uint64_t)interval_ms * 1000000u;
        struct timespec until = {.tv_sec = due / 1000000000u, .tv_nsec = due % 1000000000u};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

static void join(int listener) {
    char request[8192];
    int one = 1, fd = accept(listener, NULL, NULL);
    size_t size = 0;
    if (fd < 0 || joined == MOST) fail("cannot accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    do {
        ssize_t got = recv(fd, request + size, sizeof request - 1 - size, 0);
        if (got <= 0) fail("a request ended early");
        size += got;
        request[size] = 0;
    } while (!strstr(request, "\r\n\r\n"));
    send_all(fd, answer, sizeof answer - 1);
    readers[joined++] = fd;
}

static void obey(const char *line) {
    int events;
    long interval_ms;
    calls = 0;
    if (sscanf(line, "paced %d %ld", &events, &interval_ms) == 2) paced(events, interval_ms);
    else if (sscanf(line, "burst %d", &events) == 1) for (int i = 0; i < events; i++) emit();
    else fail("expected `paced N INTERVAL_MS` or `burst N`");
    printf("done %lu\n", calls);
}

static int listen_anywhere(int *port) {
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t size = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) < 0 || listen(listener, 2048) < 0)
        fail(strerror(errno));
    getsockname(listener, (struct sockaddr *)&here, &size);
    *port = ntohs(here.sin_port);
    return listener;
}

int main(int argc, char **argv) {
    struct rlimit files;
    char line[256];
    int port;
    if (argc != 2 || !(stamp = strchr(argv[1], '~'))) fail("expected a FRAME with a ~");
    frame = argv[1], stamp += 1, frame_size = strlen(frame);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int listener = listen_anywhere(&port);
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("{\"port\": %d, \"path\": \"/\", \"headers\": []}\n", port);
    struct pollfd ready[2] = {{.fd = 0, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    while (poll(ready, 2, -1) > 0) {
        if (ready[1].revents) join(listener);
        if (ready[0].revents) {
            if (!fgets(line, sizeof line, stdin)) return 0;
            obey(line);
        }
    }
    return 1;
}
