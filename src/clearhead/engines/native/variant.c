/* Which variant this processor can run: what tools/build_native.py compiles each of them for. */

#include "clearhead.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum {
    FMA = 1 << 12,
    OSXSAVE = 1 << 27,
    F16C = 1 << 29, /* leaf 1, ecx */
    BMI1 = 1 << 3,
    AVX2 = 1 << 5,
    BMI2 = 1 << 8, /* leaf 7, ebx */
    AVX512F = 1 << 16,
    AVX512DQ = 1 << 17,
    AVX512BW = 1 << 30,   /* leaf 7, ebx */
    AVX512VNNI = 1 << 11, /* leaf 7, ecx */
    YMM = 0x6,
    ZMM = 0xe6, /* registers that the system saves */
};
static const unsigned AVX512VL = 1u << 31; /* leaf 7, ebx */

static int has(unsigned found, unsigned wanted) {
    return (found & wanted) == wanted;
}

static unsigned saved_registers(void) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static const char *best_variant(void) {
    unsigned a, b, c, d, b7, c7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, FMA | OSXSAVE | F16C)) return "portable";
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d) || !has(b7, BMI1 | AVX2 | BMI2)) return "portable";
    unsigned saved = saved_registers();
    if (!has(saved, YMM)) return "portable";
    int wide = has(saved, ZMM) && has(b7, AVX512F | AVX512DQ | AVX512BW | AVX512VL) && has(c7, AVX512VNNI);
    return wide ? "avx512" : "avx2";
}

#elif defined(__aarch64__)

static const char *best_variant(void) {
    return "neon";
}

#else

static const char *best_variant(void) {
    return "portable";
}

#endif

PUBLIC const char *clearhead_best_variant(void) {
    return best_variant();
}
