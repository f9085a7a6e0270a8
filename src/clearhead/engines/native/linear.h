/* y = x W + b, for all tokens of a step at once.

   Matrices are stored in panels of PANEL outputs: panel p holds, for each input, the weights of its PANEL outputs side
   by side. A panel is used for all tokens before the next one is touched.

   Weights may be bytes, one scale per output. Where the processor multiplies small integers, the tokens are rounded to
   -127 … 127 too, one scale per token, and GROUP inputs are multiplied and added by one instruction: four with AVX-512
   VNNI, whose tokens are unsigned (128 stands for 0), and two with AVX2, where both become 16 bits wide. The sums are
   exact, so both give the same numbers.                                                                              */

#ifndef CLEARHEAD_LINEAR_H
#define CLEARHEAD_LINEAR_H

#include "clearhead.h"
#include "threads.h"
#include "vector.h"
#include <stdlib.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { PANEL = 2 * WIDTH }; /* two registers of outputs, for up to TILE_TOKENS tokens at once */

#if defined(__AVX512VNNI__)
enum { TILE_TOKENS = 12, GROUP = 4, ZERO = 128 };
typedef uint8_t Rounded; /* an input of a token */
#elif defined(__AVX2__)
enum { TILE_TOKENS = 6, GROUP = 2, ZERO = 0 };
typedef int16_t Rounded;
#else
enum { TILE_TOKENS = 6, GROUP = 1, ZERO = 0 };
typedef int8_t Rounded; /* never used: there the weights become floats */
#endif

typedef struct {
    Rounded *inputs; /* (N, inputs), in whole groups */
    float *scales;   /* (N,) */
} Quantized;         /* room for the tokens of a step */

static inline int64_t in_groups(int inputs) {
    return (inputs + GROUP - 1) / GROUP * (int64_t)GROUP;
}

/* Memory for `tokens` tokens of at most `inputs` inputs; 0 if there is none. */
static int make_quantized(Quantized *quantized, int64_t tokens, int inputs) {
    quantized->inputs = malloc(sizeof(Rounded) * tokens * in_groups(inputs));
    quantized->scales = malloc(sizeof(float) * tokens);
    return quantized->inputs && quantized->scales;
}

static void free_quantized(Quantized *quantized) {
    free(quantized->inputs), free(quantized->scales);
}

static inline vec load_floats(const float *from) {
    return *(const vec *)from;
}

/* --- one panel and some tokens: x (tokens, inputs) -> y (tokens, PANEL) --- */

static inline __attribute__((always_inline)) void float_tile(const Linear *f, int64_t begin, const float *x, float *y,
                                                             int64_t stride, const int tokens) {
    int64_t inputs = f->inputs;
    const float *panel = (const float *)f->panels + begin * inputs;
    vec low[TILE_TOKENS] = {0}, high[TILE_TOKENS] = {0};
    for (int64_t i = 0; i < inputs; i++) {
        vec a = load_floats(panel + i * PANEL), b = load_floats(panel + i * PANEL + WIDTH);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            low[t] += x[t * inputs + i] * a;
            high[t] += x[t * inputs + i] * b;
        }
    }
    vec c = load_floats(f->bias + begin), d = load_floats(f->bias + begin + WIDTH);
    _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
        *(vec *)(y + t * stride) = low[t] + c;
        *(vec *)(y + t * stride + WIDTH) = high[t] + d;
    }
}

#if defined(__AVX2__)

#if defined(__AVX512VNNI__)
typedef __m512i Sum;
typedef __m512i Weights;

static inline Weights load_weights(const int8_t *from) {
    return _mm512_loadu_si512(from);
}

/* sum += four products of each lane; in assembler, so that the sums stay in their registers. */
static inline void add_products(Sum *sum, const Rounded *group, Weights weights) {
    int32_t four;
    memcpy(&four, group, sizeof four);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(_mm512_set1_epi32(four)), "v"(weights));
}

static inline vec as_floats(Sum sum) {
    return (vec)_mm512_cvtepi32_ps(sum);
}
#else
typedef __m256i Sum;
typedef __m256i Weights;

static inline Weights load_weights(const int8_t *from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)from));
}

/* sum += two products of each lane. */
static inline void add_products(Sum *sum, const Rounded *group, Weights weights) {
    int32_t two;
    memcpy(&two, group, sizeof two);
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_set1_epi32(two), weights));
}

static inline vec as_floats(Sum sum) {
    return (vec)_mm256_cvtepi32_ps(sum);
}
#endif

static inline __attribute__((always_inline)) void byte_tile(const Linear *f, int64_t begin, const Quantized *quantized,
                                                            int64_t first, float *y, int64_t stride, const int tokens) {
    int64_t inputs = in_groups(f->inputs);
    const int8_t *panel = (const int8_t *)f->panels + begin * inputs;
    const Rounded *x = quantized->inputs + first * inputs;
    Sum low[TILE_TOKENS], high[TILE_TOKENS];
    _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) low[t] = high[t] = (Sum){0};
    for (int64_t i = 0; i < inputs; i += GROUP) {
        Weights a = load_weights(panel + i * PANEL), b = load_weights(panel + i * PANEL + GROUP * WIDTH);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            add_products(&low[t], x + t * inputs + i, a);
            add_products(&high[t], x + t * inputs + i, b);
        }
    }
    _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) {
        int64_t at = begin + half * WIDTH;
        vec scale = load_floats(f->scales + at), bias = load_floats(f->bias + at);
        vec zero = (float)ZERO * load_floats(f->sums + at);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            vec sum = as_floats(half ? high[t] : low[t]) - zero;
            *(vec *)(y + t * stride + half * WIDTH) = sum * (quantized->scales[first + t] * scale) + bias;
        }
    }
}

#else

/* Without such instructions bytes are made wider, and nothing else is rounded. */
static inline vec widened(const int8_t *from) {
    vec whole;
    for (int i = 0; i < WIDTH; i++) whole[i] = from[i];
    return whole;
}

static inline __attribute__((always_inline)) void widened_tile(const Linear *f, int64_t begin, const float *x, float *y,
                                                               int64_t stride, const int tokens) {
    int64_t inputs = f->inputs;
    const int8_t *panel = (const int8_t *)f->panels + begin * inputs;
    vec low[TILE_TOKENS] = {0}, high[TILE_TOKENS] = {0};
    for (int64_t i = 0; i < inputs; i++) {
        vec a = widened(panel + i * PANEL), b = widened(panel + i * PANEL + WIDTH);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            low[t] += x[t * inputs + i] * a;
            high[t] += x[t * inputs + i] * b;
        }
    }
    vec scale = load_floats(f->scales + begin), scale_high = load_floats(f->scales + begin + WIDTH);
    vec bias = load_floats(f->bias + begin), bias_high = load_floats(f->bias + begin + WIDTH);
    _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
        *(vec *)(y + t * stride) = low[t] * scale + bias;
        *(vec *)(y + t * stride + WIDTH) = high[t] * scale_high + bias_high;
    }
}

#endif

/* --- the whole product --- */

#if defined(__AVX2__)
#define BYTE_TILE(N) byte_tile(f, begin, quantized, first, into, stride, N)
#else
#define BYTE_TILE(N) widened_tile(f, begin, x, into, stride, N)
#endif
#define CASE(N)                                                                                                        \
    case N:                                                                                                            \
        if (f->bytes)                                                                                                  \
            BYTE_TILE(N);                                                                                              \
        else                                                                                                           \
            float_tile(f, begin, x, into, stride, N);                                                                  \
        break;

/* Some tokens (at most TILE_TOKENS) from `first` on by one panel; outputs beyond the last are not written. */
static void tile(const Linear *f, int64_t panel, const float *x, const Quantized *quantized, float *y, int64_t first,
                 int tokens) {
    int64_t begin = panel * PANEL;
    float aside[TILE_TOKENS * PANEL];
    int whole = begin + PANEL <= f->outputs, stride = whole ? f->outputs : PANEL;
    x += first * f->inputs, y += first * f->outputs;
    float *into = whole ? y + begin : aside;
    (void)quantized;
    switch (tokens) {
        CASE(1)
        CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512VNNI__)
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
    for (int t = 0; !whole && t < tokens; t++)
        memcpy(y + (int64_t)t * f->outputs + begin, aside + t * PANEL, sizeof(float) * (f->outputs - begin));
}

/* The tokens of this thread, x (N, inputs), rounded; nothing where a product does not need it. */
static void quantize_tokens(const Worker *worker, const Linear *f, const float *x, const Quantized *quantized,
                            int tokens) {
    if (!f->bytes || GROUP == 1) return;
    int64_t inputs = in_groups(f->inputs);
    Range mine = share(worker, tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        const float *from = x + t * f->inputs;
        Rounded *into = quantized->inputs + t * inputs;
        float largest = 1e-30f;
        for (int i = 0; i < f->inputs; i++) largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
        float factor = 127.0f / largest;
        for (int i = 0; i < f->inputs; i++) into[i] = (Rounded)((int32_t)rintf(from[i] * factor) + ZERO);
        for (int64_t i = f->inputs; i < inputs; i++) into[i] = ZERO;
        quantized->scales[t] = largest / 127.0f;
    }
}

static inline int64_t panels_of(const Linear *f) {
    return (f->outputs + PANEL - 1) / PANEL;
}

/* One panel and all tokens: x (N, inputs), which is in `quantized` where the product needs it -> part of y (N,
 * outputs). */
static void linear_panel(const Linear *f, int64_t panel, const float *x, const Quantized *quantized, float *y,
                         int tokens) {
    int64_t pieces = (tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = tokens * piece / pieces, last = tokens * (piece + 1) / pieces;
        tile(f, panel, x, quantized, y, first, last - first);
    }
}

/* All panels -> y (N, outputs). */
static void linear(const Worker *worker, const Linear *f, const float *x, const Quantized *quantized, float *y,
                   int tokens) {
    Range mine = share(worker, panels_of(f));
    for (int64_t panel = mine.first; panel < mine.last; panel++) linear_panel(f, panel, x, quantized, y, tokens);
    barrier(worker);
}

#undef CASE
#undef BYTE_TILE

#endif
