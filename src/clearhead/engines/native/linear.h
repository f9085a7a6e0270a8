/* y = x W + b, for all tokens of a step at once.

   Matrices are stored in panels of PANEL outputs: panel p holds, for each input, the weights of its PANEL outputs side
   by side. A panel is used for all tokens before the next one is touched; meanwhile the next one is fetched. A product
   is a sum in the order of the inputs, however many tokens and panels are computed together: a token gets the same
   numbers in every batch.

   Weights may be bytes, one scale per output. Where the processor multiplies bytes, the tokens are rounded to -127 …
   127 too, one scale per token, and stored as 1 … 255: 128 stands for 0. Four inputs are multiplied and added by one
   instruction of AVX-512 VNNI, or by two of AVX2, the first of which adds two products in 16 bits. They hold 255 × 128,
   so two neighbouring weights of one sign are at most 128 together: layout.py chooses the scale of an output by that.
   The sums are exact, so both give the same numbers.                                                                 */

#ifndef CLEARHEAD_LINEAR_H
#define CLEARHEAD_LINEAR_H

#include "clearhead.h"
#include "threads.h"
#include "vector.h"
#include <stdlib.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { PANEL = 2 * WIDTH }; /* two registers of outputs */

#if defined(__AVX512VNNI__)
enum { TOKENS = 12, GROUP = 4 }; /* tokens whose sums are registers */
#elif defined(__AVX2__)
enum { TOKENS = 6, GROUP = 4 };
#else
enum { TOKENS = 6, GROUP = 1 }; /* there the weights become floats, and tokens are not rounded */
#endif
enum { ZERO = 128 };     /* what stands for 0 in a rounded token */
typedef uint8_t Rounded; /* an input of a token */

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

/* Memory that is needed soon: some bytes of it are fetched with every stretch of inputs. One or two tokens do not need
   it: they are done with a panel as fast as it comes, and the processor sees the pattern. Many tokens do not need it
   where a panel is larger than the cache that is nearest to a core: it comes from the next one all the time.         */
typedef struct {
    const char *from;
    int64_t each;    /* bytes for an input */
    int64_t stretch; /* inputs between two fetches: many, because the processor guesses the end of a short loop wrong */
} Ahead;

enum { STRETCH = 32, FETCHED = 64, FETCHES = 16, FEW = 4 }; /* inputs; bytes of a fetch; fetches; pieces */

static inline void fetch(const Ahead *ahead, int64_t input) {
    const char *from = ahead->from + input * ahead->each;
    for (int64_t at = 0; at < ahead->stretch * ahead->each; at += FETCHED) __builtin_prefetch(from + at, 0, 2);
}

/* Where the next input of each token is: that of the first of every four tokens, and at most three strides from there,
   which one instruction adds. The compiler would keep an offset for each token instead, more than there are registers;
   so it must not see that one follows from another. */
enum { FOURS = (TOKENS + 3) / 4 };

typedef struct {
    const char *first[FOURS];
    int64_t stride, three; /* bytes; of one token, and of three */
} Rows;

static inline __attribute__((always_inline)) Rows rows_of(const void *x, int64_t stride) {
    Rows rows = {.stride = stride, .three = 3 * stride};
    UNROLL(4)
    for (int four = 0; four < FOURS; four++) {
        rows.first[four] = (const char *)x + 4 * four * stride;
        __asm__("" : "+r"(rows.first[four]));
    }
    __asm__("" : "+r"(rows.three));
    return rows;
}

static inline __attribute__((always_inline)) const void *row_of(const Rows *rows, const int t) {
    return rows->first[t / 4] + (t % 4 == 3 ? rows->three : t % 4 * rows->stride);
}

static inline __attribute__((always_inline)) void advance(Rows *rows, int bytes, const int tokens) {
    UNROLL(4)
    for (int four = 0; four < (tokens + 3) / 4; four++) rows->first[four] += bytes;
}

/* --- some tokens and one panel, or several side by side: x (tokens, inputs) -> y (tokens, panels PANEL) --- */

/* A sum += an input times its weights: in assembler, so that the sums stay in their registers, and are added to in the
   same order for any number of tokens. */
static inline void add_product(vec *sum, vec input, vec weights) {
#if defined(__AVX2__)
    __asm__("vfmadd231ps %1, %2, %0" : "+v"(*sum) : "v"(weights), "v"(input));
#else
    *sum += input * weights;
#endif
}

/* One input of every token, `at` from where their rows are. */
static inline __attribute__((always_inline)) void add_input(vec *low, vec *high, const float *panel, int64_t inputs,
                                                            const Rows *rows, const int at, const int tokens,
                                                            const int panels) {
    UNROLL(4)
    for (int p = 0; p < panels; p++) {
        const float *from = panel + (p * inputs + at) * PANEL;
        vec a = load_floats(from), b = load_floats(from + WIDTH);
        UNROLL(12)
        for (int t = 0; t < tokens; t++) {
            vec input = ((const float *)row_of(rows, t))[at] + (vec){0};
            add_product(&low[p * tokens + t], input, a);
            add_product(&high[p * tokens + t], input, b);
        }
    }
}

static inline __attribute__((always_inline)) void float_tile(const Linear *f, int64_t begin, const float *x, float *y,
                                                             int64_t stride, const Ahead *ahead, const int tokens,
                                                             const int panels) {
    int64_t inputs = f->inputs;
    const float *panel = (const float *)f->panels + begin * inputs;
    vec low[TOKENS] = {0}, high[TOKENS] = {0}; /* (panels, tokens) */
    Rows rows = rows_of(x, inputs * sizeof(float));
    for (int64_t i = 0; i < inputs;) {
        if (tokens > 2) fetch(ahead, i);
        int64_t end = i + ahead->stretch < inputs ? i + ahead->stretch : inputs;
        for (; i + 2 <= end; i += 2) { /* two, because the loop itself costs as much as some of the products */
            add_input(low, high, panel + i * PANEL, inputs, &rows, 0, tokens, panels);
            add_input(low, high, panel + i * PANEL, inputs, &rows, 1, tokens, panels);
            advance(&rows, 2 * sizeof(float), tokens);
        }
        for (; i < end; i++) {
            add_input(low, high, panel + i * PANEL, inputs, &rows, 0, tokens, panels);
            advance(&rows, sizeof(float), tokens);
        }
    }
    UNROLL(4)
    for (int p = 0; p < panels; p++) {
        const float *bias = f->bias + begin + p * PANEL;
        vec a = load_floats(bias), b = load_floats(bias + WIDTH);
        UNROLL(12)
        for (int t = 0; t < tokens; t++) {
            *(vec *)(y + t * stride + p * PANEL) = low[p * tokens + t] + a;
            *(vec *)(y + t * stride + p * PANEL + WIDTH) = high[p * tokens + t] + b;
        }
    }
}

#if defined(__AVX2__)

#if defined(__AVX512VNNI__)
typedef __m512i Sum;

/* Both sums += four products of each lane; in assembler, so that the sums stay in their registers. */
static inline void add_products(Sum *low, Sum *high, const Rounded *group, Sum a, Sum b) {
    int32_t four;
    memcpy(&four, group, sizeof four);
    __m512i inputs = _mm512_set1_epi32(four);
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*low) : "v"(inputs), "v"(a));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*high) : "v"(inputs), "v"(b));
}

static inline vec as_floats(Sum sum) {
    return (vec)_mm512_cvtepi32_ps(sum);
}
#else
typedef __m256i Sum;

static const int16_t ONES[16] __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* Both sums += four products of each lane; in assembler, because the sums of six tokens leave two registers for this.
 */
static inline void add_products(Sum *low, Sum *high, const Rounded *group, Sum a, Sum b) {
    __m256i inputs, products;
    __asm__("vpbroadcastd %4, %0\n\t"
            "vpmaddubsw %5, %0, %1\n\t"
            "vpmaddubsw %6, %0, %0\n\t"
            "vpmaddwd %7, %1, %1\n\t"
            "vpmaddwd %7, %0, %0\n\t"
            "vpaddd %1, %2, %2\n\t"
            "vpaddd %0, %3, %3"
            : "=&x"(inputs), "=&x"(products), "+x"(*low), "+x"(*high)
            : "m"(*(const Rounded(*)[GROUP])group), "x"(a), "x"(b), "m"(ONES));
}

static inline vec as_floats(Sum sum) {
    return (vec)_mm256_cvtepi32_ps(sum);
}
#endif

/* GROUP inputs of WIDTH outputs. */
static inline Sum load_weights(const int8_t *from) {
    Sum loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

/* One group of inputs of every token, `at` from where their rows are. */
static inline __attribute__((always_inline)) void add_group(Sum *low, Sum *high, const int8_t *panel, const Rows *rows,
                                                            const int at, const int tokens) {
    Sum a = load_weights(panel + at * PANEL), b = load_weights(panel + at * PANEL + GROUP * WIDTH);
    UNROLL(12)
    for (int t = 0; t < tokens; t++) add_products(&low[t], &high[t], (const Rounded *)row_of(rows, t) + at, a, b);
}

static inline __attribute__((always_inline)) void byte_tile(const Linear *f, int64_t begin, const Quantized *quantized,
                                                            int64_t first, float *y, int64_t stride, const Ahead *ahead,
                                                            const int tokens) {
    int64_t inputs = in_groups(f->inputs);
    const int8_t *panel = (const int8_t *)f->panels + begin * inputs;
    Rows rows = rows_of(quantized->inputs + first * inputs, inputs * sizeof(Rounded));
    Sum low[TOKENS], high[TOKENS];
    UNROLL(12)
    for (int t = 0; t < tokens; t++) low[t] = high[t] = (Sum){0};
    for (int64_t i = 0; i < inputs;) {
        if (tokens > 2) fetch(ahead, i);
        int64_t end = i + ahead->stretch < inputs ? i + ahead->stretch : inputs;
        for (; i + 2 * GROUP <= end; i += 2 * GROUP) {
            add_group(low, high, panel + i * PANEL, &rows, 0, tokens);
            add_group(low, high, panel + i * PANEL, &rows, GROUP, tokens);
            advance(&rows, 2 * GROUP * sizeof(Rounded), tokens);
        }
        for (; i < end; i += GROUP) {
            add_group(low, high, panel + i * PANEL, &rows, 0, tokens);
            advance(&rows, GROUP * sizeof(Rounded), tokens);
        }
    }
    UNROLL(2)
    for (int half = 0; half < 2; half++) {
        int64_t at = begin + half * WIDTH;
        vec scale = load_floats(f->scales + at), bias = load_floats(f->bias + at);
        vec zero = (float)ZERO * load_floats(f->sums + at);
        UNROLL(12)
        for (int t = 0; t < tokens; t++) {
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
    vec low[TOKENS] = {0}, high[TOKENS] = {0};
    for (int64_t i = 0; i < inputs; i++) {
        vec a = widened(panel + i * PANEL), b = widened(panel + i * PANEL + WIDTH);
        UNROLL(12)
        for (int t = 0; t < tokens; t++) {
            low[t] += x[t * inputs + i] * a;
            high[t] += x[t * inputs + i] * b;
        }
    }
    vec scale = load_floats(f->scales + begin), scale_high = load_floats(f->scales + begin + WIDTH);
    vec bias = load_floats(f->bias + begin), bias_high = load_floats(f->bias + begin + WIDTH);
    UNROLL(12)
    for (int t = 0; t < tokens; t++) {
        *(vec *)(y + t * stride) = low[t] * scale + bias;
        *(vec *)(y + t * stride + WIDTH) = high[t] * scale_high + bias_high;
    }
}

#endif

/* --- the whole product --- */

#if defined(__AVX2__)
#define BYTE_TILE(N) byte_tile(f, begin, quantized, first, into, stride, ahead, N)
#else
#define BYTE_TILE(N) widened_tile(f, begin, x, into, stride, N)
#endif
#define FLOAT_TILE(N, PANELS) float_tile(f, begin, x, into, stride, ahead, N, PANELS)
#define CASE(N)                                                                                                        \
    case N:                                                                                                            \
        if (f->bytes)                                                                                                  \
            BYTE_TILE(N);                                                                                              \
        else                                                                                                           \
            FLOAT_TILE(N, 1);                                                                                          \
        break;

/* Some tokens from `first` on by `count` panels; outputs beyond the last are not written. One or two tokens need
   several panels at once: a sum waits for its last addition, and others are computed meanwhile. */
static void tile(const Linear *f, int64_t panel, int count, const float *x, const Quantized *quantized, float *y,
                 int64_t first, int tokens, const Ahead *ahead) {
    int64_t begin = panel * PANEL;
    float aside[TOKENS * PANEL];
    int whole = begin + count * PANEL <= f->outputs, stride = whole ? f->outputs : PANEL;
    x += first * f->inputs, y += first * f->outputs;
    float *into = whole ? y + begin : aside;
    (void)quantized;
    if (count == 4)
        FLOAT_TILE(1, 4);
    else if (count == 2)
        FLOAT_TILE(2, 2);
    else
        switch (tokens) {
            /* clang-format off */
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512VNNI__)
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
            /* clang-format on */
        }
    for (int t = 0; !whole && t < tokens; t++)
        memcpy(y + (int64_t)t * f->outputs + begin, aside + t * PANEL, sizeof(float) * (f->outputs - begin));
}

/* The tokens of this thread, x (N, inputs), rounded; nothing where a product does not need it. */
static void quantize_tokens(const Worker *worker, const Linear *f, const float *x, const Quantized *quantized,
                            int tokens) {
    if (!f->bytes || GROUP == 1) return;
    int size = f->inputs;
    int64_t inputs = in_groups(size);
    Range mine = share(worker, tokens);
    for (int64_t t = mine.first; t < mine.last; t++) {
        const float *restrict from = x + t * size;
        Rounded *restrict into = quantized->inputs + t * inputs;
        float highest = fmaxf(largest_size(from, size), 1e-30f), factor = 127.0f / highest;
        for (int i = 0; i < size; i++) into[i] = (Rounded)((int32_t)rintf(from[i] * factor) + ZERO);
        for (int64_t i = size; i < inputs; i++) into[i] = ZERO;
        quantized->scales[t] = highest / 127.0f;
    }
}

static inline int64_t panels_of(const Linear *f) {
    return (f->outputs + PANEL - 1) / PANEL;
}

/* Some panels and all tokens: x (N, inputs), which is in `quantized` where the product needs it -> part of
   y (N, outputs).                                                                                                    */
static void linear_panels(const Linear *f, Range panels, const float *x, const Quantized *quantized, float *y,
                          int tokens) {
    int together = f->bytes || tokens > 2 ? 1 : 4 / tokens;
    int64_t pieces = (tokens + TOKENS - 1) / TOKENS, inputs = f->bytes ? in_groups(f->inputs) : f->inputs;
    int64_t input_size = PANEL * (f->bytes ? 1 : sizeof(float)), panel_size = inputs * input_size;
    int64_t each = pieces <= FEW ? input_size / pieces : WIDTH < 16 ? (input_size + pieces - 1) / pieces : 0;
    int64_t stretch = pieces <= FEW ? STRETCH : each ? in_groups(FETCHES * FETCHED / each) : inputs;
    int64_t share_of_next = panel_size / pieces, least = tokens / pieces, larger = tokens % pieces;
    for (int64_t p = panels.first, count; p < panels.last; p += count) {
        count = p + together <= panels.last && (p + together) * PANEL <= f->outputs ? together : 1;
        Ahead ahead = {(const char *)f->panels + (p + count) * panel_size, each, stretch};
        for (int64_t piece = 0, first = 0; piece < pieces; piece++) { /* each fetches its part of the next panel */
            int64_t some = least + (piece < larger);
            tile(f, p, count, x, quantized, y, first, some, &ahead);
            first += some, ahead.from += share_of_next;
        }
    }
}

/* All panels -> y (N, outputs). */
static void linear(const Worker *worker, const Linear *f, const float *x, const Quantized *quantized, float *y,
                   int tokens) {
    linear_panels(f, share(worker, panels_of(f)), x, quantized, y, tokens);
    barrier(worker);
}

#undef CASE
#undef FLOAT_TILE
#undef BYTE_TILE

#endif
