/* The example on a Cortex-M4 without an operating system. Files and words go
 * through semihosting, which a debugger or an emulator answers. */
#include "files.h"

enum { SYS_OPEN = 1, SYS_CLOSE = 2, SYS_WRITE0 = 4, SYS_WRITE = 5, SYS_READ = 6, SYS_EXIT = 0x20 };

static int32_t semihosting(int32_t operation, const void *block) {
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static uint32_t length(const char *text) {
    uint32_t n = 0;
    while (text[n] != 0) n++;
    return n;
}

int file_open(const char *path, int write) {
    uint32_t block[3] = {(uint32_t)path, write ? 5 : 1, length(path)};
    return semihosting(SYS_OPEN, block);
}

uint32_t file_read(int file, void *into, uint32_t bytes) {
    uint32_t block[3] = {(uint32_t)file, (uint32_t)into, bytes};
    return bytes - (uint32_t)semihosting(SYS_READ, block);
}

uint32_t file_write(int file, const void *from, uint32_t bytes) {
    uint32_t block[3] = {(uint32_t)file, (uint32_t)from, bytes};
    return bytes - (uint32_t)semihosting(SYS_WRITE, block);
}

void file_close(int file) { semihosting(SYS_CLOSE, &file); }

void say_number(const char *words, int64_t number) {
    char digits[24];
    int at = 23;
    digits[at] = 0;
    digits[--at] = '\n';
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (number < 0) digits[--at] = '-';
    semihosting(SYS_WRITE0, words);
    semihosting(SYS_WRITE0, &digits[at]);
}

/* SysTick: 24 bits that count down with the processor's clock. */
#define SYST ((volatile uint32_t *)0xe000e010)

uint32_t ticks_now(void) { return SYST[2]; }

uint32_t ticks_since(uint32_t before) { return (before - SYST[2]) & 0xffffff; }

static void leave(uint32_t code) {
    uint32_t block[2] = {0x20026, code};
    semihosting(SYS_EXIT, block);
    for (;;) {
    }
}

extern uint32_t data_begin, data_end, data_stored, bss_begin, bss_end, stack_top;

void start(void) {
    for (uint32_t *to = &data_begin, *from = &data_stored; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;) *to++ = 0;
    *(volatile uint32_t *)0xe000ed88 |= 0xf << 20; /* the floating-point unit */
    __asm__ volatile("dsb\nisb");
    SYST[1] = 0xffffff;
    SYST[2] = 0;
    SYST[0] = 5;
    int code = decide("rule.bin", "traces.bin", "decisions.bin");
    leave((uint32_t)code);
}

static void fault(void) { leave(99); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_top, start, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, fault, 0, fault, fault,
};
