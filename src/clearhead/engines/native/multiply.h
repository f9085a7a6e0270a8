/* Products of quantised matrices: see quant.h for the formats, lanes.h for what the processor does. */

#ifndef CLEARHEAD_MULTIPLY_H
#define CLEARHEAD_MULTIPLY_H

#include <math.h>

#include "floats.h"
#include "lanes.h"

enum { PARTS = LANES / WIDTH, NEAR = 8 }; /* registers of one panel; blocks that are expanded at a time */
enum { LINE = 64, AHEAD = 256 * LINE };   /* bytes that are fetched at once, and how far before they are needed */

static const int QUANT_BYTES[KINDS] = {4 * BLOCK * LANES, BLOCK * LANES / 2, BLOCK * LANES / 2,
                                       BLOCK * LANES,     BLOCK * LANES / 2, BLOCK * LANES};
static const int SCALE_BYTES[KINDS] = {0, 2 * LANES, 4 * LANES, 2 * LANES, 8 * LANES, 12 * LANES};

static inline int is_nibbles(const int kind) {
    return kind == Q4_0 || kind == Q4_1 || kind == Q4_F;
}

/* One vector as bytes. */
static void quantise_vector(const float *x, int in, int8_t *bytes, BlockScale *scales) {
    for (int b = 0; b < in / BLOCK; b++, x += BLOCK, bytes += BLOCK, scales++) {
        float highest = largest_size(x, BLOCK), factor = highest > 0 ? 127.0f / highest : 0;
        int32_t low = 0, high = 0, first = 0, whole[BLOCK];
        for (int i = 0; i < BLOCK; i++) whole[i] = (int32_t)rintf(x[i] * factor);
        for (int i = 0; i < BLOCK; i++) bytes[i] = (int8_t)whole[i];
        for (int i = 0; i < BLOCK / 2; i++) low += whole[i], high += whole[BLOCK / 2 + i];
        for (int i = 0; i < BLOCK; i += 4) first += whole[i] + whole[i + 1];
        float scale = highest / 127.0f;
        *scales = (BlockScale){scale, scale * (low + high), {low, high}, {-8 * first, -8 * (low + high - first)}};
    }
}

/* --- vectors as bytes --- */

/* Fetch the memory that is read some blocks later, which is many panels for a small matrix and the next matrix after
   the last panel. The processor fetches by itself too, but guesses anew at each page and each panel. */
static inline __attribute__((always_inline)) void fetch_ahead(const int kind, const uint8_t *panel, int block) {
    const int size = QUANT_BYTES[kind] + SCALE_BYTES[kind];
    const uint8_t *from = panel + (int64_t)block * size + AHEAD;
    for (int at = 0; at < size; at += LINE) __builtin_prefetch(from + at, 0, 2);
}

/* d and m of one block for the part of a panel; d[1] only of Q8_F, m only of kinds that have one. */
static inline __attribute__((always_inline)) void load_scales(const int kind, const uint8_t *at, int part, vec *d,
                                                              vec *m) {
    const float *floats = (const float *)at + part * WIDTH;
    *m = all(0);
    if (kind == Q4_F)
        d[0] = load(floats), *m = load(floats + LANES);
    else if (kind == Q8_F)
        d[0] = load(floats), d[1] = load(floats + LANES), *m = load(floats + 2 * LANES);
    else
        d[0] = halves(at + 2 * part * WIDTH);
    if (kind == Q4_1) *m = halves(at + 2 * (LANES + part * WIDTH));
}

/* Of a matrix of 4 bits. */
static inline __attribute__((always_inline)) void nibble_tile(const int kind, const Matrix *matrix,
                                                              const uint8_t *panel, const int8_t *bytes,
                                                              const BlockScale *scales, float *y, int fetches,
                                                              const int tokens) {
    int blocks = matrix->inputs / BLOCK;
    const uint8_t *all_scales = panel + (int64_t)blocks * QUANT_BYTES[kind];
    for (int part = 0; part < PARTS; part += SIDE) {
        vec sums[TILE][SIDE];
#define EACH_SUM                                                                                                       \
    UNROLL(12)                                                                                                         \
    for (int t = 0; t < tokens; t++) UNROLL(2)                                                                         \
    for (int s = 0; s < SIDE; s++)
        EACH_SUM sums[t][s] = all(0);
        for (int b = 0; b < blocks; b++) {
            if (fetches && part == 0) fetch_ahead(kind, panel, b);
            vec d[SIDE], m[SIDE], whole[TILE][SIDE];
            nibble_sums(kind == Q4_0, panel + b * QUANT_BYTES[kind] + 4 * WIDTH * part, bytes + b * BLOCK,
                        matrix->inputs, scales + b, blocks, whole, tokens);
            UNROLL(2)
            for (int s = 0; s < SIDE; s++)
                load_scales(kind, all_scales + b * SCALE_BYTES[kind], part + s, &d[s], &m[s]);
            EACH_SUM {
                const BlockScale *own = scales + (int64_t)t * blocks + b;
                sums[t][s] += own->scale * d[s] * whole[t][s];
                if (kind != Q4_0) sums[t][s] += own->sum * m[s];
            }
        }
        EACH_SUM store(y + t * LANES + (part + s) * WIDTH, sums[t][s]);
#undef EACH_SUM
    }
}

/* Of a matrix of bytes. */
static inline __attribute__((always_inline)) void byte_tile(const int kind, const Matrix *matrix, const uint8_t *panel,
                                                            const int8_t *bytes, const BlockScale *scales, float *y,
                                                            int fetches, const int tokens) {
    int blocks = matrix->inputs / BLOCK;
    const uint8_t *all_scales = panel + (int64_t)blocks * QUANT_BYTES[kind];
    for (int part = 0; part < PARTS; part++) {
        vec sums[TILE];
        UNROLL(12)
        for (int t = 0; t < tokens; t++) sums[t] = all(0);
        for (int b = 0; b < blocks; b++) {
            if (fetches && part == 0) fetch_ahead(kind, panel, b);
            vec d[2], m;
            Bytes groups[GROUPS];
            const uint8_t *at = panel + b * QUANT_BYTES[kind] + 4 * WIDTH * part;
            load_scales(kind, all_scales + b * SCALE_BYTES[kind], part, d, &m);
            UNROLL(8)
            for (int g = 0; g < GROUPS; g++) groups[g] = load_bytes(at + 4 * LANES * g);
            UNROLL(12)
            for (int t = 0; t < tokens; t++) {
                const BlockScale *own = scales + (int64_t)t * blocks + b;
                const int8_t *x = bytes + (int64_t)t * matrix->inputs + b * BLOCK;
                if (kind == Q8_F) {
                    vec low = byte_sums(groups, x, GROUPS / 2, -BYTE_OFFSET * own->half[0]);
                    vec high = byte_sums(groups + GROUPS / 2, x + BLOCK / 2, GROUPS / 2, -BYTE_OFFSET * own->half[1]);
                    sums[t] += own->scale * d[0] * low + own->scale * d[1] * high + own->sum * m;
                } else {
                    sums[t] +=
                        own->scale * d[0] * byte_sums(groups, x, GROUPS, -BYTE_OFFSET * (own->half[0] + own->half[1]));
                }
            }
        }
        UNROLL(12)
        for (int t = 0; t < tokens; t++) store(y + t * LANES + part * WIDTH, sums[t]);
    }
}

/* --- vectors as floats --- */

/* One block of the part of a panel as floats w (BLOCK, WIDTH), rows of LANES, as its definition rounds them. */
static inline __attribute__((always_inline)) void expand_block(const int kind, const uint8_t *quants,
                                                               const uint8_t *scales, int part, float *w) {
    vec d[2], m;
    if (kind == F32) {
        for (int i = 0; i < BLOCK; i++) store(w + i * LANES, load((const float *)quants + i * LANES + part * WIDTH));
        return;
    }
    load_scales(kind, scales, part, d, &m);
    quants += 4 * WIDTH * part;
    UNROLL(8)
    for (int g = 0; g < GROUPS; g++) {
        ints four;
        memcpy(&four, quants + 4 * LANES * (is_nibbles(kind) ? g / 2 : g), sizeof four);
        UNROLL(4)
        for (int i = 0; i < 4; i++) {
            ints q = is_nibbles(kind) ? four >> (8 * i + 4 * (g & 1)) & 15 : four << (24 - 8 * i) >> 24;
            vec whole = __builtin_convertvector(kind == Q4_0 ? q - 8 : q, vec);
            vec scaled = (kind == Q8_F && g >= GROUPS / 2 ? d[1] : d[0]) * whole;
            store(w + (4 * g + i) * LANES, kind == Q4_0 || kind == Q8_0 ? scaled : scaled + m);
        }
    }
}

/* Some blocks of a panel as floats (blocks BLOCK, LANES): those of the matrix itself, or in `room`. */
static inline __attribute__((always_inline)) const float *
expand_blocks(const int kind, const Matrix *matrix, const uint8_t *panel, int first, int blocks, float *room) {
    const uint8_t *scales =
        panel + (int64_t)(matrix->inputs / BLOCK) * QUANT_BYTES[kind] + (int64_t)first * SCALE_BYTES[kind];
    panel += (int64_t)first * QUANT_BYTES[kind];
    if (kind == F32) return (const float *)panel;
    for (int b = 0; b < blocks; b++, panel += QUANT_BYTES[kind], scales += SCALE_BYTES[kind])
        for (int part = 0; part < PARTS; part++)
            expand_block(kind, panel, scales, part, room + b * BLOCK * LANES + part * WIDTH);
    return room;
}

/* y (tokens, LANES) += x (tokens, inputs), rows of `stride`, times w (inputs, LANES). */
static inline __attribute__((always_inline)) void float_tile(const float *w, const float *x, int64_t stride, int inputs,
                                                             float *y, const int tokens) {
    vec sums[FLOAT_TILE][PARTS];
#define EACH_SUM                                                                                                       \
    UNROLL(12)                                                                                                         \
    for (int t = 0; t < tokens; t++) UNROLL(4)                                                                         \
    for (int part = 0; part < PARTS; part++)
    EACH_SUM sums[t][part] = load(y + t * LANES + part * WIDTH);
    for (int i = 0; i < inputs; i++) EACH_SUM sums[t][part] += x[t * stride + i] * load(w + i * LANES + part * WIDTH);
    EACH_SUM store(y + t * LANES + part * WIDTH, sums[t][part]);
#undef EACH_SUM
}

/* All vectors; one function for all kinds, because the constants of a kind would take registers from the sums. */
static __attribute__((noinline)) void float_tiles(const float *w, const float *x, int64_t stride, int inputs, float *y,
                                                  int count) {
    int64_t t = 0;
#define FLOAT_TILES(N)                                                                                                 \
    for (; t + N <= count; t += N) float_tile(w, x + t * stride, stride, inputs, y + t * LANES, N);
    FLOAT_TILES(FLOAT_TILE) FLOAT_TILES(4) FLOAT_TILES(2) FLOAT_TILES(1)
#undef FLOAT_TILES
}

/* Each part of a panel is expanded once for all vectors, and small enough to stay near. A product is a sum in the order
   of the inputs, however many vectors there are. */
static inline __attribute__((always_inline)) void
multiply_floats(const int kind, const Matrix *matrix, const uint8_t *panel, const float *x, int count, float *y) {
    float room[NEAR * BLOCK * LANES];
    memset(y, 0, sizeof(float) * count * LANES);
    for (int b = 0, blocks = matrix->inputs / BLOCK; b < blocks; b += NEAR, x += NEAR * BLOCK) {
        int some = blocks - b < NEAR ? blocks - b : NEAR;
        const float *w = expand_blocks(kind, matrix, panel, b, some, room);
        float_tiles(w, x, matrix->inputs, some * BLOCK, y, count);
    }
}

/* --- any kind, any number of vectors --- */

#define BYTE_TILES(KIND, N)                                                                                            \
    for (; t + N <= count; t += N)                                                                                     \
        (is_nibbles(KIND) ? nibble_tile : byte_tile)(KIND, matrix, panel, bytes + t * matrix->inputs,                  \
                                                     scales + t * (matrix->inputs / BLOCK), y + t * LANES, t == 0, N);

#define KERNEL(KIND)                                                                                                   \
    static void multiply_##KIND(const Matrix *matrix, const uint8_t *panel, const Vectors *x, int64_t first,           \
                                int count, float *y) {                                                                 \
        if (KIND == F32 || !x->bytes) {                                                                                \
            multiply_floats(KIND, matrix, panel, x->floats + first * matrix->inputs, count, y);                        \
            return;                                                                                                    \
        }                                                                                                              \
        const int8_t *bytes = x->bytes + first * matrix->inputs;                                                       \
        const BlockScale *scales = x->scales + first * (matrix->inputs / BLOCK);                                       \
        int64_t t = 0;                                                                                                 \
        BYTE_TILES(KIND, TILE) BYTE_TILES(KIND, 4) BYTE_TILES(KIND, 2) BYTE_TILES(KIND, 1)                             \
    }

KERNEL(F32)
KERNEL(Q4_0)
KERNEL(Q4_1)
KERNEL(Q8_0)
KERNEL(Q4_F)
KERNEL(Q8_F)

typedef void Kernel(const Matrix *, const uint8_t *, const Vectors *, int64_t, int, float *);
static Kernel *const KERNELS[KINDS] = {multiply_F32,  multiply_Q4_0, multiply_Q4_1,
                                       multiply_Q8_0, multiply_Q4_F, multiply_Q8_F};

/* `count` vectors from `first` on, by one panel -> y (count, LANES), with the bias. */
static void multiply(const Matrix *matrix, int panel, const Vectors *x, int64_t first, int count, float *y) {
    KERNELS[matrix->kind](matrix, matrix->panels + panel * matrix->stride, x, first, count, y);
    if (matrix->bias)
        for (int t = 0; t < count; t++)
            for (int i = 0; i < LANES; i++) y[t * LANES + i] += matrix->bias[panel * LANES + i];
}

/* --- rows --- */

#define EXPAND(KIND)                                                                                                   \
    case KIND:                                                                                                         \
        expand_block(KIND, panel + (int64_t)b * QUANT_BYTES[KIND], scales + b * SCALE_BYTES[KIND], part, w);           \
        break;

/* One row of a matrix as floats. */
static void expand_row(const Matrix *matrix, int row, float *into) {
    int blocks = matrix->inputs / BLOCK, part = row % LANES / WIDTH, lane = row % WIDTH;
    const uint8_t *panel = matrix->panels + row / LANES * matrix->stride;
    const uint8_t *scales = panel + (int64_t)blocks * QUANT_BYTES[matrix->kind];
    for (int b = 0; b < blocks; b++) {
        float w[BLOCK * LANES];
        switch (matrix->kind) { EXPAND(F32) EXPAND(Q4_0) EXPAND(Q4_1) EXPAND(Q8_0) EXPAND(Q4_F) EXPAND(Q8_F) }
        for (int i = 0; i < BLOCK; i++) into[b * BLOCK + i] = w[i * LANES + lane];
    }
}

#endif
