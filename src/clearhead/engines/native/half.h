/* float16 numbers, which are only stored: they are computed with as floats. */

#ifndef CLEARHEAD_HALF_H
#define CLEARHEAD_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

static inline float float_of_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023, bits;
    float value;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * fraction * 0x1p-24f;
    bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float half_at(const void *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return float_of_half(half);
}

/* The nearest float16. */
static inline uint16_t half_of_float(float x) {
#if defined(__F16C__)
    return _cvtss_sh(x, 0);
#else
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x47800000) return sign | (size > 0x7f800000 ? 0x7e00 : 0x7c00); /* too large, or not a number */
    if (size < 0x38800000) return sign | (uint16_t)rintf(fabsf(x) * 0x1p24f);    /* below the normal numbers */
    return sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
#endif
}

static inline void store_halves(void *into, const float *from, int count) {
    int i = 0;
#if defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)((uint16_t *)into + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
    for (; i < count; i++) {
        uint16_t half = half_of_float(from[i]);
        memcpy((uint16_t *)into + i, &half, sizeof half);
    }
}

#endif
