/* Vectors of floats as wide as the processor's registers, and the functions of one row that every layer needs. */

#ifndef CLEARHEAD_VECTOR_H
#define CLEARHEAD_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "floats.h"
#include "half.h"

#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

static inline vec load_floats(const float *from) {
    return *(const vec *)from;
}

static inline int max_int(int a, int b) {
    return a > b ? a : b;
}

/* e^x for x <= 0, to the last bits of a float. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float tail = 4.16657959e-2f + r * (8.33345205e-3f + r * (1.39819994e-3f + r * 1.98756919e-4f));
    float e = 1.0f + r + r * r * (0.5f + r * (1.66666654e-1f + r * tail));
    int32_t power = ((int32_t)n + 127) << 23;
    float two;
    memcpy(&two, &power, sizeof two);
    return e * two;
}

/* erf(x) within 1.5e-7 (Abramowitz and Stegun 7.1.26); without branches, so that a loop over it becomes vectors. */
static inline float error_function(float x) {
    float size = fabsf(x), t = 1.0f / (1.0f + 0.3275911f * size);
    float sum = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    return copysignf(1.0f - sum * exponential(-size * size), x);
}

/* The sums of the lanes of eight vectors, which are added in the same order. */
static inline vec8 sum_lanes(const vec8 sums[8]) {
    vec8 twos[4], fours[2];
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        vec8 a = sums[2 * i], b = sums[2 * i + 1];
        twos[i] = SHUFFLE2(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + SHUFFLE2(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL(2)
    for (int i = 0; i < 2; i++) {
        vec8 a = twos[2 * i], b = twos[2 * i + 1];
        fours[i] = SHUFFLE2(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + SHUFFLE2(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    vec8 a = fours[0], b = fours[1];
    return SHUFFLE2(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE2(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

/* Numbers that are floats, or with `halves` float16: so many bytes has each, and this is the i-th, or eight or WIDTH of
   them from there on. */
INLINE int64_t number_size(const int halves) {
    return halves ? 2 : 4;
}

INLINE float number_at(const int halves, const char *from, int64_t i) {
    return halves ? half_at(from + 2 * i) : ((const float *)from)[i];
}

INLINE vec8 eight_at(const int halves, const char *from, int64_t i) {
    if (!halves) return *(const vec8 *)(from + 4 * i);
#if defined(__F16C__)
    return (vec8)_mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 2 * i)));
#else
    vec8 found;
    for (int n = 0; n < 8; n++) found[n] = half_at(from + 2 * (i + n));
    return found;
#endif
}

INLINE vec wide_at(const int halves, const char *from, int64_t i) {
    if (!halves) return *(const vec *)(from + 4 * i);
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + 2 * i)));
#elif defined(__F16C__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 2 * i)));
#else
    vec found;
    for (int n = 0; n < WIDTH; n++) found[n] = half_at(from + 2 * (i + n));
    return found;
#endif
}

/* The dot products of a (size,) and eight others. */
INLINE vec8 dot_eight(const int halves, const float *a, const char *const others[8], int size) {
    vec8 sums[8] = {{0}};
    int i = 0;
    for (; i + 8 <= size; i += 8) {
        vec8 own = *(const vec8 *)(a + i);
        UNROLL(8)
        for (int n = 0; n < 8; n++) sums[n] += own * eight_at(halves, others[n], i);
    }
    vec8 found = sum_lanes(sums);
    for (; i < size; i++)
        for (int n = 0; n < 8; n++) found[n] += a[i] * number_at(halves, others[n], i);
    return found;
}

static inline int in_eights(int count) {
    return (count + 7) / 8 * 8;
}

/* In place, of `count` scores; up to the next multiple of eight there must be room. */
static inline void softmax(float *scores, int count) {
    int room = in_eights(count);
    float highest = largest(scores, count), sum = 0;
    for (int j = count; j < room; j++) scores[j] = -INFINITY;
    for (int j = 0; j < room; j++) scores[j] = exponential(scores[j] - highest);
    for (int j = 0; j < count; j++) sum += scores[j];
    float factor = 1.0f / sum;
    for (int j = 0; j < count; j++) scores[j] *= factor;
}

/* Some registers of y = the rows of x that a list names, `apart` numbers from each other, times their weights. Two rows
   at a time have sums of their own: one is added to while the other waits for its last addition. */
INLINE void mix_part(const int halves, const char *x, int64_t apart, const int32_t *list, const float *weights,
                     int count, float *y, const int parts) {
    vec even[4] = {{0}}, odd[4] = {{0}};
    int j = 0;
    for (; j + 2 <= count; j += 2) {
        int64_t row = list[j] * apart, next = list[j + 1] * apart;
        UNROLL(4)
        for (int part = 0; part < parts; part++) {
            even[part] += weights[j] * wide_at(halves, x, row + WIDTH * part);
            odd[part] += weights[j + 1] * wide_at(halves, x, next + WIDTH * part);
        }
    }
    UNROLL(4)
    for (int part = 0; part < parts; part++) {
        if (j < count) even[part] += weights[j] * wide_at(halves, x, list[j] * apart + WIDTH * part);
        *(vec *)(y + WIDTH * part) = even[part] + odd[part];
    }
}

/* y (size,) = the rows of x that a list names, `apart` numbers from each other, times their weights. */
INLINE void mix(const int halves, const char *x, int64_t apart, const int32_t *list, const float *weights, int count,
                float *y, int size) {
    int64_t each = number_size(halves);
    int i = 0;
    for (; i + 4 * WIDTH <= size; i += 4 * WIDTH) mix_part(halves, x + i * each, apart, list, weights, count, y + i, 4);
    for (; i + 2 * WIDTH <= size; i += 2 * WIDTH) mix_part(halves, x + i * each, apart, list, weights, count, y + i, 2);
    for (; i + WIDTH <= size; i += WIDTH) mix_part(halves, x + i * each, apart, list, weights, count, y + i, 1);
    for (; i + 8 <= size; i += 8) { /* half a register of sixteen */
        vec8 sum = {0};
        for (int j = 0; j < count; j++) sum += weights[j] * eight_at(halves, x, list[j] * apart + i);
        *(vec8 *)(y + i) = sum;
    }
    for (; i < size; i++) {
        y[i] = 0;
        for (int j = 0; j < count; j++) y[i] += weights[j] * number_at(halves, x, list[j] * apart + i);
    }
}

#endif
