/* Vectors of floats as wide as the processor's registers, and the functions of one row that every layer needs. */

#ifndef CLEARHEAD_VECTOR_H
#define CLEARHEAD_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "floats.h"

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

static inline float dot(const float *a, const float *b, int size) {
    vec8 sum = {0}, other = {0}; /* one is added to while the other waits for its last addition */
    int i = 0;
    for (; i + 16 <= size; i += 16) {
        sum += *(const vec8 *)(a + i) * *(const vec8 *)(b + i);
        other += *(const vec8 *)(a + i + 8) * *(const vec8 *)(b + i + 8);
    }
    for (; i + 8 <= size; i += 8) sum += *(const vec8 *)(a + i) * *(const vec8 *)(b + i);
    sum += other;
    sum += SHUFFLE(sum, 4, 5, 6, 7, 0, 1, 2, 3);
    sum += SHUFFLE(sum, 2, 3, 0, 1, 6, 7, 4, 5);
    float all = sum[0] + sum[1];
    for (; i < size; i++) all += a[i] * b[i];
    return all;
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

/* y (size,) = the rows of x that a list names, `apart` floats from each other, times their weights; sums stay in
   registers. */
static inline void mix(const float *x, int64_t apart, const int32_t *list, const float *weights, int count, float *y,
                       int size) {
    int i = 0;
    for (; i + 4 * WIDTH <= size; i += 4 * WIDTH) {
        vec sum[4] = {{0}};
        for (int j = 0; j < count; j++) {
            const float *row = x + list[j] * apart + i;
            for (int part = 0; part < 4; part++) sum[part] += weights[j] * *(const vec *)(row + WIDTH * part);
        }
        for (int part = 0; part < 4; part++) *(vec *)(y + i + WIDTH * part) = sum[part];
    }
    for (; i + 8 <= size; i += 8) {
        vec8 sum = {0};
        for (int j = 0; j < count; j++) sum += weights[j] * *(const vec8 *)(x + list[j] * apart + i);
        *(vec8 *)(y + i) = sum;
    }
    for (; i < size; i++) {
        y[i] = 0;
        for (int j = 0; j < count; j++) y[i] += weights[j] * x[list[j] * apart + i];
    }
}

#endif
