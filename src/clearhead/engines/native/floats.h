/* The largest of some floats, and the largest of their sizes. A plain loop over comparisons would not become vectors,
   since one of the floats might be no number. */

#ifndef CLEARHEAD_FLOATS_H
#define CLEARHEAD_FLOATS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Before a loop of so many rounds: it is written out, and what it computes stays in registers. */
#define PRAGMA(TEXT) _Pragma(#TEXT)
#define UNROLL(N) PRAGMA(GCC unroll N)

/* A function that is compiled anew for each constant that it is called with. */
#define INLINE static inline __attribute__((always_inline))

typedef float vec8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t ints8 __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#define SHUFFLE2(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define SHUFFLE(x, ...) __builtin_shuffle(x, (ints8){__VA_ARGS__})
#define SHUFFLE2(x, y, ...) __builtin_shuffle(x, y, (ints8){__VA_ARGS__})
#endif

static inline vec8 larger8(vec8 a, vec8 b) {
    ints8 where = a > b;
    return (vec8)((where & (ints8)a) | (~where & (ints8)b));
}

/* max x[i]; -infinity of none. */
static inline float largest(const float *x, int count) {
    vec8 one = (vec8){0} - INFINITY, two = one;
    int i = 0;
    for (; i + 16 <= count; i += 16) {
        one = larger8(*(const vec8 *)(x + i), one);
        two = larger8(*(const vec8 *)(x + i + 8), two);
    }
    one = larger8(one, two);
    one = larger8(one, SHUFFLE(one, 4, 5, 6, 7, 0, 1, 2, 3));
    one = larger8(one, SHUFFLE(one, 2, 3, 0, 1, 6, 7, 4, 5));
    float found = one[0] > one[1] ? one[0] : one[1];
    for (; i < count; i++) found = x[i] > found ? x[i] : found;
    return found;
}

/* max |x[i]|; 0 of none. Without their signs, floats are ordered like the integers that have the same bits. */
static inline float largest_size(const float *x, int count) {
    int32_t found = 0;
    for (int i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        found = bits > found ? bits : found;
    }
    float size;
    memcpy(&size, &found, sizeof size);
    return size;
}

#endif
