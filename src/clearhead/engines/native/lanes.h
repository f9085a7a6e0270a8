/* The few operations of a processor that quantised products are made of, for WIDTH outputs at a time.

   Bytes holds 4 inputs of each of WIDTH outputs. `byte_sums` multiplies such groups by the bytes of a vector; a
   processor may want signed bytes moved up by BYTE_OFFSET, which is taken off through `start`. `nibble_sums` multiplies
   a block of SIDE times WIDTH outputs by the 32 bytes of each of several vectors; `below` takes off the 8 of Q4_0. */

#ifndef CLEARHEAD_LANES_H
#define CLEARHEAD_LANES_H

#include <stdint.h>
#include <string.h>

#include "floats.h"
#include "quant.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define LANES_AVX512 1
#include <immintrin.h>
enum { WIDTH = 16, SIDE = 1, TILE = 12, FLOAT_TILE = 12, BYTE_OFFSET = 128 };
typedef __m512i Bytes;
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LANES_AVX2 1
#include <immintrin.h>
enum { WIDTH = 8, SIDE = 2, TILE = 4, FLOAT_TILE = 6, BYTE_OFFSET = 0 };
typedef __m256i Bytes;
#else
enum { WIDTH = 4, SIDE = 1, TILE = 4, FLOAT_TILE = 6, BYTE_OFFSET = 0 };
typedef struct {
    int8_t at[4 * WIDTH];
} Bytes;
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH), aligned(4)));

static inline vec load(const float *from) {
    return *(const vec *)from;
}
static inline void store(float *into, vec x) {
    *(vec *)into = x;
}
static inline vec all(float x) {
    return x - (vec){0};
}
static inline vec choose(ints where, vec yes, vec no) {
    return (vec)((where & (ints)yes) | (~where & (ints)no));
}
static inline vec larger(vec a, vec b) {
    return choose(a > b, a, b);
}

/* A number that is computed as it is written: otherwise the compiler may add in another order. */
#if defined(__x86_64__)
#define HELD "+v"
#else
#define HELD "+w"
#endif
#if defined(__x86_64__) || defined(__aarch64__)
static inline vec held(vec x) {
    return ({
        __asm__("" : HELD(x));
        x;
    });
}
static inline float held_float(float x) {
    return ({
        __asm__("" : HELD(x));
        x;
    });
}
#else
static inline vec held(vec x) {
    return x;
}
static inline float held_float(float x) {
    return x;
}
#endif

/* The sum of all lanes: the upper half is added to the lower, until one is left. */
static inline float total_of(vec x) {
#if defined(LANES_AVX512) || defined(LANES_AVX2)
#if defined(LANES_AVX512)
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
#else
    __m256 eight = (__m256)x;
#endif
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    return held_float(x[0] + x[2]) + held_float(x[1] + x[3]);
#endif
}

/* e^x for x <= 0, to the last bits of a float. */
static inline vec exponential(vec x) {
    x = larger(x, all(-87.0f));
    ints n = __builtin_convertvector(x * 1.44269504f - 0.5f, ints);
    vec whole = __builtin_convertvector(n, vec);
    vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec e = 1.0f + r +
            r * r *
                (0.5f + r * (1.66666654e-1f +
                             r * (4.16657959e-2f + r * (8.33345205e-3f + r * (1.39819994e-3f + r * 1.98756919e-4f)))));
    return e * (vec)((n + 127) << 23);
}

static inline vec absolute(vec x) {
    return (vec)((ints)x & 0x7fffffff);
}
static inline vec with_sign(vec size, vec x) {
    return (vec)((ints)size | ((ints)x & (int32_t)0x80000000));
}

static inline vec sigmoid(vec x) {
    vec e = exponential(-absolute(x));
    return choose(x < 0, e, all(1)) / (1 + e);
}

static inline vec hyperbolic_tangent(vec x) {
    vec e = exponential(-2 * absolute(x));
    return with_sign((1 - e) / (1 + e), x);
}

/* erf(x) within 1.5e-7 (Abramowitz and Stegun 7.1.26). */
static inline vec error_function(vec x) {
    vec size = absolute(x), t = 1 / (1 + 0.3275911f * size);
    vec sum = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    return with_sign(1 - sum * exponential(-size * size), x);
}

#if defined(LANES_AVX512)

static inline Bytes load_bytes(const uint8_t *from) {
    return _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8((char)0x80));
}

static inline void load_nibbles(const uint8_t *from, Bytes *low, Bytes *high) {
    Bytes both = _mm512_loadu_si512(from), mask = _mm512_set1_epi8(15);
    *low = _mm512_and_si512(both, mask), *high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
}

static inline vec halves(const uint8_t *from) {
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

static inline vec signed_bytes(const uint8_t *from) {
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
}

/* In assembler, so that the sum stays in its register and the four bytes are broadcast by the instruction itself. */
static inline void add_products(__m512i *sum, Bytes weights, const int8_t *four) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sum) : "v"(weights), "m"(*(const int32_t (*)[1])four));
}

static inline vec byte_sums(const Bytes *weights, const int8_t *x, int groups, int32_t start) {
    __m512i sum = _mm512_set1_epi32(start);
    UNROLL(8)
    for (int g = 0; g < groups; g++) add_products(&sum, weights[g], x + 4 * g);
    return (vec)_mm512_cvtepi32_ps(sum);
}

#elif defined(LANES_AVX2)

static inline Bytes load_bytes(const uint8_t *from) {
    return _mm256_loadu_si256((const void *)from);
}

static inline vec halves(const uint8_t *from) {
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

static inline vec signed_bytes(const uint8_t *from) {
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
}

static inline Bytes four_bytes(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

static inline __m256i pairs(__m256i sums16) {
    return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1));
}

/* |w| times x with w's sign: two products are at most 2 x 128 x 127, which 16 bits hold. */
static inline vec byte_sums(const Bytes *weights, const int8_t *x, int groups, int32_t start) {
    __m256i sum = _mm256_set1_epi32(start);
    UNROLL(8)
    for (int g = 0; g < groups; g++) {
        __m256i products =
            _mm256_maddubs_epi16(_mm256_abs_epi8(weights[g]), _mm256_sign_epi8(four_bytes(x + 4 * g), weights[g]));
        sum = _mm256_add_epi32(sum, pairs(products));
    }
    return (vec)_mm256_cvtepi32_ps(sum);
}

/* Four bytes times a group of each of two registers, added in pairs; in assembler, because the sums take most
 * registers. */
static inline void add_pairs(__m256i *sums, const Bytes *weights, const int8_t *four) {
    __m256i bytes, products;
    __asm__("vpbroadcastd %4, %0\n\t"
            "vpmaddubsw %0, %5, %1\n\t"
            "vpmaddubsw %0, %6, %0\n\t"
            "vpaddw %1, %2, %2\n\t"
            "vpaddw %0, %3, %3"
            : "=&x"(bytes), "=&x"(products), "+x"(sums[0]), "+x"(sums[1])
            : "m"(*(const int32_t (*)[1])four), "x"(weights[0]), "x"(weights[1]));
}

/* 16 products of at most 15 x 127 are 30,480: a whole block is summed in 16 bits. */
static inline __attribute__((always_inline)) void nibble_sums(const int below, const uint8_t *at, const int8_t *x,
                                                              int64_t stride, const BlockScale *scales, int64_t blocks,
                                                              vec whole[TILE][SIDE], const int tokens) {
    __m256i sums[TILE][SIDE], mask = _mm256_set1_epi8(15);
    UNROLL(4)
    for (int t = 0; t < tokens; t++)
        sums[t][0] = sums[t][1] = below ? four_bytes((const int8_t *)scales[t * blocks].below) : _mm256_setzero_si256();
    UNROLL(8)
    for (int g = 0; g < GROUPS; g++) {
        const uint8_t *from = at + 4 * LANES * (g / 2);
        Bytes both[SIDE] = {load_bytes(from), load_bytes(from + 4 * WIDTH)}, weights[SIDE];
        UNROLL(2)
        for (int s = 0; s < SIDE; s++)
            weights[s] = _mm256_and_si256(g & 1 ? _mm256_srli_epi16(both[s], 4) : both[s], mask);
        UNROLL(4)
        for (int t = 0; t < tokens; t++) add_pairs(sums[t], weights, x + t * stride + 4 * g);
    }
    UNROLL(4)
    for (int t = 0; t < tokens; t++) {
        UNROLL(2)
        for (int s = 0; s < SIDE; s++) whole[t][s] = (vec)_mm256_cvtepi32_ps(pairs(sums[t][s]));
    }
}

#else

static inline Bytes load_bytes(const uint8_t *from) {
    Bytes loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

static inline void load_nibbles(const uint8_t *from, Bytes *low, Bytes *high) {
    for (int i = 0; i < 4 * WIDTH; i++) low->at[i] = from[i] & 15, high->at[i] = from[i] >> 4;
}

static inline vec halves(const uint8_t *from) {
    vec x;
    for (int i = 0; i < WIDTH; i++) x[i] = half_at(from + 2 * i);
    return x;
}

static inline vec signed_bytes(const uint8_t *from) {
    vec x;
    for (int i = 0; i < WIDTH; i++) x[i] = (int8_t)from[i];
    return x;
}

static inline vec byte_sums(const Bytes *weights, const int8_t *x, int groups, int32_t start) {
    vec sums;
    for (int lane = 0; lane < WIDTH; lane++) {
        int32_t sum = start;
        for (int g = 0; g < groups; g++)
            for (int i = 0; i < 4; i++) sum += weights[g].at[4 * lane + i] * x[4 * g + i];
        sums[lane] = sum;
    }
    return sums;
}

#endif

#if !defined(LANES_AVX2)

/* Bytes are multiplied, which hold the 4 bits. */
static inline __attribute__((always_inline)) void nibble_sums(const int below, const uint8_t *at, const int8_t *x,
                                                              int64_t stride, const BlockScale *scales, int64_t blocks,
                                                              vec whole[TILE][SIDE], const int tokens) {
    Bytes groups[GROUPS];
    UNROLL(4)
    for (int j = 0; j < GROUPS / 2; j++) load_nibbles(at + 4 * LANES * j, &groups[2 * j], &groups[2 * j + 1]);
    UNROLL(12)
    for (int t = 0; t < tokens; t++) {
        const int32_t *half = scales[t * blocks].half;
        whole[t][0] = byte_sums(groups, x + t * stride, GROUPS, below ? -8 * (half[0] + half[1]) : 0);
    }
}

#endif
#endif
