/* A hostile guest, as the only program of its disk. What it does follows from SEED: it answers clients of the
 * ports of the guest program with damaged answers, sends packets that it may not send, writes nonsense to the ports for logs and
 * reports, and floods its console. Every second it prints the counts on the console. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static uint64_t state;
static uint64_t *done;
enum { ANSWERS, PACKETS, WRITES };
static int console;

static uint64_t next(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dULL;
}

static unsigned below(unsigned end)
{
    return end ? (next() >> 16) % end : 0;
}

static void noise(unsigned char *to, unsigned length)
{
    for (unsigned at = 0; at < length; at++)
        to[at] = next() >> 24;
}

/* Changes, repeats or takes away some bytes; the new length. */
static unsigned damage(unsigned char *bytes, unsigned length, unsigned most)
{
    for (unsigned times = below(4); times && length; times--) {
        unsigned at = below(length);
        switch (below(4)) {
        case 0:
            length = at;
            break;
        case 1:
            bytes[at] = next() >> 24;
            break;
        case 2:
            if (length + 64 < most) {
                memmove(bytes + at + 64, bytes + at, length - at);
                length += 64;
            }
            break;
        default:
            bytes[at] ^= 1 << below(8);
        }
    }
    return length;
}

static const char *const values[] = {"0", "-1", "1e999", "18446744073709551616", "\"\"", "null", "[]", "{}", "true", "\"1Gi\"",
    "\"\\u0000\\u001b[31m\"", "\"999999999999Ei\"", "4294967296", "0.1", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "\"a"};

/* A text with each @ replaced by a value. */
static unsigned fill(char *to, unsigned most, const char *text)
{
    unsigned length = 0;
    for (; *text && length + 64 < most; text++) {
        if (*text == '@')
            length += sprintf(to + length, "%s", values[below(COUNT(values))]);
        else
            to[length++] = *text;
    }
    return length;
}

static void sha1(const unsigned char *text, unsigned length, unsigned char *out)
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    unsigned char block[128] = {0};
    unsigned blocks = length < 56 ? 1 : 2;
    memcpy(block, text, length);
    block[length] = 0x80;
    for (int at = 0; at < 4; at++)
        block[blocks * 64 - 1 - at] = (uint64_t)length * 8 >> (8 * at);
    for (unsigned one = 0; one < blocks; one++) {
        uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
        for (int t = 0; t < 16; t++) {
            const unsigned char *p = block + one * 64 + t * 4;
            w[t] = (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        }
        for (int t = 16; t < 80; t++) {
            uint32_t x = w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16];
            w[t] = x << 1 | x >> 31;
        }
        for (int t = 0; t < 80; t++) {
            uint32_t f = t < 20 ? (b & c) | (~b & d) : t < 40 ? b ^ c ^ d : t < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
            uint32_t k = t < 20 ? 0x5a827999 : t < 40 ? 0x6ed9eba1 : t < 60 ? 0x8f1bbcdc : 0xca62c1d6;
            uint32_t x = (a << 5 | a >> 27) + f + e + k + w[t];
            e = d, d = c, c = b << 30 | b >> 2, b = a, a = x;
        }
        h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
    }
    for (int at = 0; at < 20; at++)
        out[at] = h[at / 4] >> (24 - 8 * (at % 4));
}

static void base64(const unsigned char *from, unsigned length, char *to)
{
    const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned at = 0; at < length; at += 3) {
        uint32_t three = from[at] << 16 | (at + 1 < length ? from[at + 1] << 8 : 0) | (at + 2 < length ? from[at + 2] : 0);
        *to++ = letters[three >> 18];
        *to++ = letters[three >> 12 & 63];
        *to++ = at + 1 < length ? letters[three >> 6 & 63] : '=';
        *to++ = at + 2 < length ? letters[three & 63] : '=';
    }
    *to = 0;
}

static void put(int to, const void *bytes, unsigned length)
{
    if (send(to, bytes, length, MSG_NOSIGNAL) < 0)
        return;
}

/* One frame of a websocket, of any kind, with a length that may be wrong. */
static void frame(int to, const char *text, unsigned length)
{
    static unsigned char out[80000];
    static const unsigned char kinds[] = {0x81, 0x81, 0x81, 0x81, 0x82, 0x88, 0x89, 0x8a, 0x01, 0x80, 0xf1, 0x8f};
    unsigned head = 2, shown = below(16) ? length : below(100000);
    out[0] = kinds[below(COUNT(kinds))];
    if (shown < 126) {
        out[1] = shown;
    } else if (shown < 65536) {
        out[1] = 126, out[2] = shown >> 8, out[3] = shown, head = 4;
    } else {
        out[1] = 127, memset(out + 2, below(8) ? 0 : 0xff, 8);
        out[6] = shown >> 24, out[7] = shown >> 16, out[8] = shown >> 8, out[9] = shown, head = 10;
    }
    if (length > sizeof out - head)
        length = sizeof out - head;
    memcpy(out + head, text, length);
    put(to, out, head + length);
}

static void monitor(int peer, const char *request)
{
    static const char *const messages[] = {
        "{\"type\":\"UpscaleRequest\",\"id\":@}", "{\"type\":\"UpscaleRequest\",\"id\":1,\"wants\":{\"cpu\":@,\"mem\":@}}",
        "{\"type\":\"DownscaleResult\",\"id\":@,\"ok\":@,\"status\":@}", "{\"type\":\"UpscaleConfirmation\",\"id\":@}",
        "{\"type\":\"HealthCheck\",\"id\":@}", "{\"type\":\"InternalError\",\"id\":@,\"error\":@}",
        "{\"type\":\"InvalidMessage\",\"id\":@,\"error\":@}", "{\"type\":@,\"id\":@}", "@", "{\"id\":1,\"type\":\"DownscaleResult\",\"ok\":true,\"status\":@}"};
    char text[4096], accepted[64], all[256];
    unsigned char hash[20];
    const char *key = strcasestr(request, "sec-websocket-key: ");
    unsigned length = key ? strcspn(key += 19, "\r\n") : 0;
    if (!key || length > 60)
        return;
    unsigned whole = sprintf(all, "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", (int)length, key);
    sha1((unsigned char *)all, whole, hash);
    base64(hash, 20, accepted);
    length = sprintf(text, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: %s\r\n\r\n", accepted);
    put(peer, text, length);
    recv(peer, all, sizeof all, 0);
    const char *version = below(4) ? "{\"version\":@}" : "{\"version\":1}";
    if (below(4) == 0)
        version = "@";
    length = below(3) ? fill(text, sizeof text, "{\"version\":1}") : fill(text, sizeof text, version);
    text[length] = 0;
    char head[2] = {(char)0x81, (char)length};
    put(peer, head, 2);
    put(peer, text, length);
    for (unsigned rest = 1 + below(40); rest; rest--) {
        length = fill(text, sizeof text, messages[below(COUNT(messages))]);
        frame(peer, text, length);
        __sync_fetch_and_add(&done[ANSWERS], 1);
        if (below(3) == 0 && recv(peer, all, sizeof all, 0) == 0)
            return;
    }
}

static const char *const bodies[] = {
    "host_load1 @\nhost_load5 @\nhost_memory_total_bytes @\nhost_memory_available_bytes @\nhost_memory_cached_bytes @\n",
    "# TYPE host_load1 gauge\nhost_load1{a=\"@\",b=@} 1\n", "{\"version\":@,\"cpus\":@,\"memory\":@}", "@", "250", "4294967295", "-0.0",
    "{\"apiVersion\":@,\"items\":[@,@,@]}", "true", ""};
static const char *const lines[] = {"200 OK", "200 OK", "200 OK", "204 No Content", "206 Partial Content", "301 Moved\r\nlocation: http://169.254.169.254/",
    "302 Found\r\nlocation: file:///etc/shadow", "400 Bad", "500 Error", "101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x", "999 \033[31m", "000 "};

static void answer(int peer, int port)
{
    static char request[8192], text[70000], body[65000];
    int got = recv(peer, request, sizeof request - 1, 0);
    request[got > 0 ? got : 0] = 0;
    if (port == 10301 && below(4)) {
        monitor(peer, request);
        return;
    }
    unsigned long length = fill(body, sizeof body, bodies[below(COUNT(bodies))]), shown = length;
    if (below(6) == 0) {
        length = below(sizeof body);
        noise((unsigned char *)body, length);
        shown = below(3) ? length : 1UL << below(63);
    }
    unsigned whole = sprintf(text, "HTTP/1.1 %s\r\n", lines[below(COUNT(lines))]);
    if (below(8) == 0) {
        memset(text + whole, 'h', 3000);
        whole += 3000 + sprintf(text + whole + 3000, ": x\r\n");
    }
    whole += sprintf(text + whole, below(5) ? "content-length: %lu\r\n\r\n" : "transfer-encoding: chunked\r\n\r\n%lx\r\n", shown);
    memcpy(text + whole, body, length < sizeof text - whole ? length : sizeof text - whole);
    whole += length < sizeof text - whole ? length : sizeof text - whole;
    if (below(4) == 0)
        whole = damage((unsigned char *)text, whole, sizeof text);
    put(peer, text, whole);
    /* Without end, until the other side has enough or for a while. */
    if (below(20) == 0)
        for (int times = 0; times < 64; times++)
            put(peer, body, sizeof body);
    __sync_fetch_and_add(&done[ANSWERS], 1);
}

static void serve(int port)
{
    int on = 1, server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bind(server, (struct sockaddr *)&at, sizeof at);
    listen(server, 64);
    int held[16], turn = 0;
    memset(held, -1, sizeof held);
    for (;;) {
        int peer = accept(server, 0, 0);
        if (peer < 0)
            continue;
        struct timeval within = {.tv_usec = 200000};
        setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within);
        setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &within, sizeof within);
        answer(peer, port);
        /* Some stay open, and nothing more comes. */
        if (below(4)) {
            close(peer);
        } else {
            close(held[turn % 16]);
            held[turn++ % 16] = peer;
        }
    }
}

/* A packet: ARP, IPv4 with DHCP in it, IPv6 with an advertisement or a solicitation of routers, or noise. */
static unsigned packet(unsigned char *p, const unsigned char *own)
{
    static const unsigned char gateway[] = {0x02, 0x6e, 0x65, 0x6f, 0x6e, 0x01};
    static const uint32_t addresses[] = {0xa9fefefe, 0xa9fefefd, 0xa9fea9fe, 0x0a000001, 0, 0xffffffff, 0x7f000001, 0xe00000fb};
    unsigned length = 14;
    memset(p, 0, 700);
    memset(p, 0xff, 6);
    if (below(2))
        memcpy(p, gateway, 6);
    memcpy(p + 6, below(3) ? own : gateway, 6);
    uint32_t from = htonl(addresses[below(8)]), to = htonl(addresses[below(8)]);
    switch (below(4)) {
    case 0:
        memcpy(p + 12, "\x08\x06\x00\x01\x08\x00\x06\x04\x00", 9);
        p[21] = 1 + below(2);
        memcpy(p + 22, p + 6, 6), memcpy(p + 28, &from, 4), memcpy(p + 38, &to, 4);
        return damage(p, 42, 1400);
    case 1:
        memcpy(p + 12, "\x86\xdd\x60", 3);
        p[19] = 32, p[20] = 58, p[21] = 255, p[22] = 0xfe, p[23] = 0x80, p[37] = 1, p[38] = 0xff, p[39] = 2, p[53] = 1 + below(2);
        p[54] = 133 + below(5);
        noise(p + 58, 28);
        return damage(p, 86, 1400);
    case 2: {
        unsigned options = below(300);
        memcpy(p + 12, "\x08\x00\x45", 3);
        p[22] = 64, p[23] = 17;
        memcpy(p + 26, &from, 4), memcpy(p + 30, &to, 4);
        p[35] = 68, p[37] = 67;
        p[42] = 1 + below(2), p[43] = 1, p[44] = 6;
        noise(p + 46, 4);
        memcpy(p + 70, own, 6);
        memcpy(p + 278, "\x63\x82\x53\x63\x35\x01", 6);
        p[284] = 1 + below(9);
        noise(p + 285, options);
        length = 285 + options;
        p[16] = (length - 14) >> 8, p[17] = length - 14;
        p[38] = (length - 34) >> 8, p[39] = length - 34;
        uint32_t sum = 0;
        for (int at = 14; at < 34; at += 2)
            sum += p[at] << 8 | p[at + 1];
        sum = (sum & 0xffff) + (sum >> 16);
        sum = ~((sum & 0xffff) + (sum >> 16));
        p[24] = sum >> 8, p[25] = sum;
        return below(3) ? length : damage(p, length, 1400);
    }
    default:
        length = 14 + below(1400);
        noise(p + 12, length - 12);
        return length;
    }
}

static void shout(const char *interface)
{
    unsigned char bytes[2000], own[6] = {2};
    int raw = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
    struct ifreq asked = {0};
    strncpy(asked.ifr_name, interface, sizeof asked.ifr_name - 1);
    if (ioctl(raw, SIOCGIFHWADDR, &asked) == 0)
        memcpy(own, asked.ifr_hwaddr.sa_data, 6);
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(interface), .sll_halen = 6};
    for (unsigned times = 0;; times++) {
        unsigned length = packet(bytes, own);
        sendto(raw, bytes, length, 0, (struct sockaddr *)&at, sizeof at);
        __sync_fetch_and_add(&done[PACKETS], 1);
        usleep(times % 256 ? 0 : 20000);
    }
}

/* Lines without end, control characters, reports that are none. */
static void scribble(int to)
{
    static const char *const reports[] = {"{\"uptimeMs\":@,\"event\":\"ready\"}\n", "{\"uptimeMs\":1,\"event\":\"workloadExited\",\"code\":@,\"outOfMemory\":@}\n",
        "{\"uptimeMs\":1,\"event\":\"booted\",\"version\":@}\n", "{\"uptimeMs\":1,\"event\":\"failure\",\"message\":@}\n", "@\n", "{\"event\":@}\n",
        "{\"uptimeMs\":1,\"event\":\"workloadStarted\",\"pid\":@,\"restarts\":@}\n", "\033]0;owned\007\033[2J\n"};
    static unsigned char bytes[16384];
    for (;;) {
        unsigned length = fill((char *)bytes, sizeof bytes, reports[below(COUNT(reports))]);
        if (below(4) == 0) {
            length = below(sizeof bytes);
            noise(bytes, length);
        }
        if (write(to, bytes, length) < 0)
            usleep(50000);
        __sync_fetch_and_add(&done[WRITES], 1);
        usleep(2000);
    }
}

static void in_another(void (*what)(int), int with)
{
    state += 0x9e3779b97f4a7c15ULL;
    if (fork() == 0) {
        what(with);
        _exit(0);
    }
}

static void connect_network(const char *interface)
{
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq asked = {0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    strncpy(asked.ifr_name, interface, sizeof asked.ifr_name - 1);
    address.sin_addr.s_addr = inet_addr("169.254.254.254");
    memcpy(&asked.ifr_addr, &address, sizeof address);
    ioctl(any, SIOCSIFADDR, &asked);
    address.sin_addr.s_addr = inet_addr("255.255.255.252");
    memcpy(&asked.ifr_addr, &address, sizeof address);
    ioctl(any, SIOCSIFNETMASK, &asked);
    asked.ifr_flags = IFF_UP | IFF_RUNNING;
    ioctl(any, SIOCSIFFLAGS, &asked);
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};
    struct sockaddr_in none = {.sin_family = AF_INET};
    memcpy(&route.rt_dst, &none, sizeof none), memcpy(&route.rt_genmask, &none, sizeof none);
    address.sin_addr.s_addr = inet_addr("169.254.254.253");
    memcpy(&route.rt_gateway, &address, sizeof address);
    ioctl(any, SIOCADDRT, &route);
    close(any);
}

static void shout_there(int index)
{
    char name[IF_NAMESIZE] = "eth0";
    if_indextoname(index, name);
    shout(name);
}

int main(void)
{
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("devtmpfs", "/dev", "devtmpfs", 0, 0);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    console = open("/dev/console", O_RDWR);
    done = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    state = SEED * 0x9e3779b97f4a7c15ULL + 1;
    struct if_nameindex *all = if_nameindex(), *one;
    for (one = all; one && one->if_index; one++)
        if (strcmp(one->if_name, "lo"))
            break;
    int index = one && one->if_index ? (int)one->if_index : 0;
    if (index) {
        connect_network(one->if_name);
        in_another(shout_there, index);
    }
    static const int ports[] = {25183, 10301, 9100, 22};
    for (unsigned at = 0; at < COUNT(ports); at++)
        in_another(serve, ports[at]);
    DIR *devices = opendir("/dev");
    for (struct dirent *entry; devices && (entry = readdir(devices));) {
        char path[300];
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        if (strncmp(entry->d_name, "vport", 5) == 0)
            in_another(scribble, open(path, O_RDWR | O_NONBLOCK));
    }
    in_another(scribble, open("/dev/console", O_RDWR | O_NONBLOCK));
    for (;;) {
        char report[120];
        sleep(1);
        int length = snprintf(report, sizeof report, "\nhostile: %llu answers, %llu packets, %llu writes.\n", (unsigned long long)done[ANSWERS],
            (unsigned long long)done[PACKETS], (unsigned long long)done[WRITES]);
        if (write(console, report, length) < 0)
            continue;
    }
}
