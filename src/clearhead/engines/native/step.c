/* Encoding a source and one decoding step, for every stack of the lectures' blocks: what nn/block.py computes, without
   Python between its parts.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size

   The cache holds keys and values in slots, one for each token that any row has read. A row knows its tokens as a list
   of slots, so beams that change places or leave move no keys: only their lists change. Rows may be of unequal length.

   Matrices are stored in panels of PANEL outputs: panel p holds, for each input, the weights of its PANEL outputs side
   by side. A panel is used for all tokens before the next one is touched. int8 weights are multiplied as bytes where
   the processor can do that, four inputs at a time: then the tokens are quantized to bytes, too.

   Everything runs inside one parallel region; each loop is shared by its threads, and ends with a barrier.
   Exported functions have a prefix: the C library has a `step`, too.                                                     */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16, TILE_TOKENS = 12 };
#elif defined(__AVX__)
enum { WIDTH = 8, TILE_TOKENS = 6 };
#else
enum { WIDTH = 4, TILE_TOKENS = 6 };
#endif
enum { PANEL = 2 * WIDTH }; /* two registers of outputs, for up to TILE_TOKENS tokens at once */
#if defined(__AVX512VNNI__)
enum { GROUP = 4 };
#else
enum { GROUP = 1 };
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));

enum { NO_NORM, LAYER_NORM, RMS_NORM };
enum { RELU, GELU, SWIGLU };

typedef struct {
    const void *panels;                         /* float, or int8 */
    const float *scales, *bias;                 /* of each output, padded to whole panels */
    const float *sums;                          /* of the bytes of each output */
    int32_t in, out, bytes;                     /* bytes: the panels are int8, inputs in whole groups */
} Linear;

typedef struct {
    uint8_t *bytes;                             /* (N, in), in whole groups: 128 stands for 0 */
    float *scales;                              /* (N,) */
} Quantized;                                      /* room for tokens as bytes */

typedef struct {
    const float *gain, *shift;                  /* (D,); shift may be NULL */
    float eps;
    int32_t kind;
} Norm;

typedef struct {
    Norm before, inside, after;                 /* after(x + inside(part(before(x)))) */
} Residual;

typedef struct {
    Linear project, output;                     /* project: queries, in self-attention also keys and values */
    Linear source;                              /* keys and values of cross-attention */
    const float *sin, *cos;                     /* (positions, K / 2) of rotary positions, or NULL */
    const float *bias;                          /* (H, 2 positions - 1) added by distance from the most negative, or NULL */
    int32_t heads, kv_heads, key_dim, value_dim, positions;
    float scale;
} Attention;

typedef struct {
    Linear inner, gate, outer;                  /* gate: only of SwiGLU */
    int32_t activation;
} FeedForward;

typedef struct {
    Residual residual_self, residual_cross, residual_feed_forward;
    Attention self, cross;                      /* cross.heads = 0: no cross-attention */
    FeedForward feed_forward;
} Block;

typedef struct {
    const Block *blocks;
    Norm final_norm;
    Linear output;
    int32_t layers, dim;
} Stack;

typedef struct {
    float *keys, *values;                       /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;                       /* (rows, stride): the slots of each row, new tokens included */
    const int32_t *lengths;                     /* (rows,) slots in the list of each row; NULL: `length` in all */
    const int32_t *firsts;                      /* (rows,) position of the first slot of each row; NULL: `first` in all */
    int64_t slots;
    int32_t length, stride;                     /* slots in the longest list; distance between two lists */
    int32_t first, window;                      /* window 0: every earlier token is visible */
} Cache;

typedef struct {
    int64_t list, slot;                         /* where its list begins; the slot of its own key and value */
    int32_t seen, place, position;              /* visible slots; which of them is its own; its position in the text */
} TokenView;                                    /* what self-attention of one token sees */

typedef struct {
    float *keys, *values;                       /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;
    const TokenView *views;                          /* (N,) */
    int64_t slots;
    int32_t longest;                            /* the maximum number of slots that a token sees */
} KeyValues;

typedef struct {
    const float *keys, *values;                 /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;                       /* (sentences, stride) */
    const int32_t *lengths;                     /* (sentences,) slots in its list */
    const int32_t *sentence;                    /* (rows,) */
    int64_t slots;
    int32_t stride;
} Memory;

typedef struct {
    const float *table, *positions;                /* (vocabulary, D); (positions, D) added to the token vectors, or NULL */
    float scale;                                /* of the table's rows */
} Input;

int clearhead_width(void) { return WIDTH; }
int clearhead_group(void) { return GROUP; }

/* --- y = x W + b --- */

static inline vec of_floats(const void *panel, int at) { return *(const vec *)((const float *)panel + at); }

static inline vec of_bytes(const void *panel, int at) {
    const int8_t *from = (const int8_t *)panel + at;
#if defined(__AVX512F__)
    return (vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
#elif defined(__AVX2__)
    return (vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
#else
    vec whole;
    for (int i = 0; i < WIDTH; i++) whole[i] = from[i];
    return whole;
#endif
}

#define TILE(NAME, LOAD)                                                                                                 \
    static inline __attribute__((always_inline)) void NAME(                                                              \
        const float *x, int in, const void *panel, const float *scale, const float *bias, float *y, int stride,          \
        const int tokens) {                                                                                              \
        vec low[TILE_TOKENS] = {0}, high[TILE_TOKENS] = {0};                                                                           \
        for (int i = 0; i < in; i++) {                                                                                   \
            vec a = LOAD(panel, i * PANEL), b = LOAD(panel, i * PANEL + WIDTH);                                          \
            _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {                                                  \
                low[t] += x[t * in + i] * a;                                                                             \
                high[t] += x[t * in + i] * b;                                                                            \
            }                                                                                                            \
        }                                                                                                                \
        vec a = of_floats(scale, 0), b = of_floats(scale, WIDTH);                                                        \
        vec c = of_floats(bias, 0), d = of_floats(bias, WIDTH);                                                          \
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {                                                      \
            *(vec *)(y + (int64_t)t * stride) = low[t] * a + c;                                                          \
            *(vec *)(y + (int64_t)t * stride + WIDTH) = high[t] * b + d;                                                 \
        }                                                                                                                \
    }

TILE(float_tile, of_floats)

static inline int64_t in_groups(int in) { return (in + GROUP - 1) / GROUP * (int64_t)GROUP; }

#if defined(__AVX512VNNI__)

/* sum += four products of each lane; in assembler, so that the sums stay in their registers. */
static inline void add_products(__m512i *sum, __m512i x, __m512i w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(w));
}

static inline __attribute__((always_inline)) void byte_tile(
    const Linear *f, int64_t begin, const int8_t *panel, const Quantized *quantized, int64_t first, float *y, int stride,
    const int tokens) {
    int64_t in = in_groups(f->in);
    const uint8_t *x = quantized->bytes + first * in;
    __m512i low[TILE_TOKENS], high[TILE_TOKENS];
    _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) low[t] = high[t] = _mm512_setzero_si512();
    for (int64_t i = 0; i < in; i += GROUP) {
        __m512i a = _mm512_loadu_si512(panel + i * PANEL), b = _mm512_loadu_si512(panel + i * PANEL + GROUP * WIDTH);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            int32_t four;
            memcpy(&four, x + t * in + i, sizeof four);
            __m512i all = _mm512_set1_epi32(four);
            add_products(&low[t], all, a);
            add_products(&high[t], all, b);
        }
    }
    _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) {
        vec scale = of_floats(f->scales, begin + half * WIDTH), bias = of_floats(f->bias, begin + half * WIDTH);
        vec zero = 128.0f * of_floats(f->sums, begin + half * WIDTH);
        _Pragma("GCC unroll 12") for (int t = 0; t < tokens; t++) {
            vec sum = (vec)_mm512_cvtepi32_ps(half ? high[t] : low[t]);
            *(vec *)(y + (int64_t)t * stride + half * WIDTH) = (sum - zero) * (quantized->scales[first + t] * scale) + bias;
        }
    }
}

#define BYTES(N) byte_tile(f, begin, (const int8_t *)panel, quantized, first, into, stride, N)

#else

TILE(widened_tile, of_bytes)
#define BYTES(N) widened_tile(x, f->in, panel, f->scales + begin, f->bias + begin, into, stride, N)

#endif

#define CASE(N)                                                                                                          \
    case N:                                                                                                              \
        if (f->bytes) BYTES(N);                                                                                          \
        else float_tile(x, f->in, panel, f->scales + begin, f->bias + begin, into, stride, N);                           \
        break;

/* Some tokens (at most TILE_TOKENS) from `first` on by one panel; outputs beyond the last are not written. */
static void tile(const Linear *f, int p, const float *x, const Quantized *quantized, float *y, int64_t first, int tokens) {
    int64_t begin = (int64_t)p * PANEL;
    const char *panel = (const char *)f->panels + begin * (f->bytes ? in_groups(f->in) : f->in * (int64_t)sizeof(float));
    float aside[TILE_TOKENS * PANEL];
    int whole = begin + PANEL <= f->out, stride = whole ? f->out : PANEL;
    x += first * f->in, y += first * f->out;
    float *into = whole ? y + begin : aside;
    (void)quantized;
    switch (tokens) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512F__)
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
    for (int t = 0; !whole && t < tokens; t++)
        memcpy(y + (int64_t)t * f->out + begin, aside + t * PANEL, sizeof(float) * (f->out - begin));
}

/* x (N, in) as bytes, with one scale per token. */
static void quantize_tokens(const Linear *f, const float *x, const Quantized *quantized, int tokens) {
    int64_t in = in_groups(f->in);
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const float *from = x + (int64_t)t * f->in;
        uint8_t *into = quantized->bytes + t * in;
        float largest = 1e-30f;
        for (int i = 0; i < f->in; i++) largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
        float factor = 127.0f / largest;
        for (int i = 0; i < f->in; i++) into[i] = (uint8_t)(int32_t)(rintf(from[i] * factor) + 128.0f);
        for (int64_t i = f->in; i < in; i++) into[i] = 128;
        quantized->scales[t] = largest / 127.0f;
    }
}

/* x (N, in) -> y (N, out) */
static void linear(const Linear *f, const float *x, const Quantized *quantized, float *y, int tokens) {
    int panels = (f->out + PANEL - 1) / PANEL, pieces = (tokens + TILE_TOKENS - 1) / TILE_TOKENS;
    if (f->bytes && GROUP > 1) quantize_tokens(f, x, quantized, tokens);
#pragma omp for schedule(static)
    for (int p = 0; p < panels; p++)
        for (int piece = 0; piece < pieces; piece++) {
            int64_t first = (int64_t)tokens * piece / pieces, last = (int64_t)tokens * (piece + 1) / pieces;
            tile(f, p, x, quantized, y, first, last - first);
        }
}

/* Memory for `tokens` tokens of at most `in` inputs; 0 if there is none. */
static int make_quantized(Quantized *quantized, int64_t tokens, int in) {
    quantized->bytes = malloc(tokens * in_groups(in)), quantized->scales = malloc(sizeof(float) * tokens);
    return quantized->bytes && quantized->scales;
}

static void free_quantized(Quantized *quantized) { free(quantized->bytes), free(quantized->scales); }

/* --- parts of a block --- */

static void normalise(const Norm *norm, float *y, const float *x, int dim) {
    float mean = 0, square = 0;
    if (norm->kind == LAYER_NORM) {
        for (int i = 0; i < dim; i++) mean += x[i];
        mean /= dim;
    }
    for (int i = 0; i < dim; i++) square += (x[i] - mean) * (x[i] - mean);
    float factor = 1.0f / sqrtf(square / dim + norm->eps);
    for (int i = 0; i < dim; i++) y[i] = (x[i] - mean) * factor * norm->gain[i];
    if (norm->shift)
        for (int i = 0; i < dim; i++) y[i] += norm->shift[i];
}

/* The input of a sublayer: x itself, or its norm in y. */
static const float *input_of(const Residual *residual, const float *x, float *y, int tokens, int dim) {
    if (residual->before.kind == NO_NORM) return x;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) normalise(&residual->before, y + (int64_t)t * dim, x + (int64_t)t * dim, dim);
    return y;
}

/* x <- after(x + inside(y)) */
static void add(const Residual *residual, float *x, float *y, int tokens, int dim) {
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        float *into = x + (int64_t)t * dim, *from = y + (int64_t)t * dim;
        if (residual->inside.kind != NO_NORM) normalise(&residual->inside, from, from, dim);
        for (int i = 0; i < dim; i++) into[i] += from[i];
        if (residual->after.kind != NO_NORM) normalise(&residual->after, into, into, dim);
    }
}

/* e^x for x <= 0, to the last bits of a float. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float e = 1.0f + r + r * r * (0.5f + r * (1.66666654e-1f + r * (4.16657959e-2f + r * (8.33345205e-3f + r * (1.39819994e-3f + r * 1.98756919e-4f)))));
    int32_t power = ((int32_t)n + 127) << 23;
    float two;
    memcpy(&two, &power, sizeof two);
    return e * two;
}

static void softmax(float *scores, int count) {
    float highest = scores[0], sum = 0;
    for (int j = 1; j < count; j++) highest = scores[j] > highest ? scores[j] : highest;
    for (int j = 0; j < count; j++) sum += scores[j] = exponential(scores[j] - highest);
    float factor = 1.0f / sum;
    for (int j = 0; j < count; j++) scores[j] *= factor;
}

typedef float vec8 __attribute__((vector_size(32), aligned(4)));
typedef int32_t shuffle_mask __attribute__((vector_size(32)));

#ifdef __clang__
#define SHUFFLE(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define SHUFFLE(x, ...) __builtin_shuffle(x, (shuffle_mask){__VA_ARGS__})
#endif

static inline float dot(const float *a, const float *b, int size) {
    vec8 sum = {0};
    int i = 0;
    for (; i + 8 <= size; i += 8) sum += *(const vec8 *)(a + i) * *(const vec8 *)(b + i);
    sum += SHUFFLE(sum, 4, 5, 6, 7, 0, 1, 2, 3);
    sum += SHUFFLE(sum, 2, 3, 0, 1, 6, 7, 4, 5);
    float all = sum[0] + sum[1];
    for (; i < size; i++) all += a[i] * b[i];
    return all;
}

/* y += weight x */
static inline void add_weighted(float *y, float weight, const float *x, int size) {
    int i = 0;
    for (; i + 8 <= size; i += 8) *(vec8 *)(y + i) += weight * *(const vec8 *)(x + i);
    for (; i < size; i++) y[i] += weight * x[i];
}

/* One token: queries q (H, K) at a place attend to the slots of a list -> mixed (H, V). */
static void attend(const Attention *a, const float *q, const float *keys, const float *values, const int32_t *list,
                   int count, int place, float *scores, float *restrict mixed) {
    int K = a->key_dim, V = a->value_dim, share = a->heads / a->kv_heads;
    for (int j = 0; j < count; j++) {
        const float *key = keys + (int64_t)list[j] * a->kv_heads * K;
        for (int h = 0; h < a->heads; h++) {
            float bias = a->bias ? a->bias[h * (2 * a->positions - 1) + a->positions - 1 + place - j] : 0;
            scores[h * count + j] = dot(q + h * K, key + h / share * K, K) * a->scale + bias;
        }
    }
    memset(mixed, 0, sizeof(float) * a->heads * V);
    if (count == 0) return;
    for (int h = 0; h < a->heads; h++) softmax(scores + h * count, count);
    for (int j = 0; j < count; j++) {
        const float *value = values + (int64_t)list[j] * a->kv_heads * V;
        for (int h = 0; h < a->heads; h++) add_weighted(mixed + h * V, scores[h * count + j], value + h / share * V, V);
    }
}

/* Rotary positions: rotate each pair (i, i + K / 2) of some heads by its position's angle. */
static void rotate(const Attention *a, float *x, int heads, int position) {
    int half = a->key_dim / 2;
    const float *sin = a->sin + (int64_t)position * half, *cos = a->cos + (int64_t)position * half;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < half; i++) {
            float *left = x + h * a->key_dim + i, *right = left + half, old = *left;
            *left = old * cos[i] - *right * sin[i];
            *right = *right * cos[i] + old * sin[i];
        }
}

/* Self-attention; each token first writes its key and value into its slot. */
static void attend_self(const Attention *a, const KeyValues *kv, int layer, float *projected, int tokens, float *scores,
                        float *mixed) {
    int K = a->kv_heads * a->key_dim, V = a->kv_heads * a->value_dim, Q = a->heads * a->key_dim;
    float *keys = kv->keys + layer * kv->slots * K, *values = kv->values + layer * kv->slots * V;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const TokenView *view = kv->views + t;
        float *all = projected + (int64_t)t * (Q + K + V);
        if (a->sin) rotate(a, all, a->heads, view->position), rotate(a, all + Q, a->kv_heads, view->position);
        memcpy(keys + view->slot * K, all + Q, sizeof(float) * K);
        memcpy(values + view->slot * V, all + Q + K, sizeof(float) * V);
    }
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const TokenView *view = kv->views + t;
        attend(a, projected + (int64_t)t * (Q + K + V), keys, values, kv->lists + view->list, view->seen, view->place,
               scores, mixed + (int64_t)t * a->heads * a->value_dim);
    }
}

static void attend_cross(const Attention *a, const Memory *memory, int layer, const float *q, int rows, int tokens,
                         float *scores, float *mixed) {
    int K = a->kv_heads * a->key_dim, V = a->kv_heads * a->value_dim, each = tokens / rows;
    const float *keys = memory->keys + layer * memory->slots * K, *values = memory->values + layer * memory->slots * V;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        int sentence = memory->sentence[t / each];
        attend(a, q + (int64_t)t * a->heads * a->key_dim, keys, values, memory->lists + (int64_t)sentence * memory->stride,
               memory->lengths[sentence], 0, scores, mixed + (int64_t)t * a->heads * a->value_dim);
    }
}

static void activate(const FeedForward *f, float *inner, const float *gate, int tokens) {
    int size = f->inner.out;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        float *x = inner + (int64_t)t * size;
        const float *g = gate + (int64_t)t * size;
        if (f->activation == RELU)
            for (int i = 0; i < size; i++) x[i] = x[i] > 0 ? x[i] : 0;
        else if (f->activation == GELU)
            for (int i = 0; i < size; i++) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
        else
            for (int i = 0; i < size; i++) {
                float e = exponential(-fabsf(g[i]));
                x[i] *= g[i] * (g[i] >= 0 ? 1.0f : e) / (1.0f + e);
            }
    }
}

static void feed_forward(const FeedForward *f, const float *x, const Quantized *quantized, float *inner, float *gate,
                         float *y, int tokens) {
    linear(&f->inner, x, quantized, inner, tokens);
    if (f->activation == SWIGLU) linear(&f->gate, x, quantized, gate, tokens);
    activate(f, inner, gate, tokens);
    linear(&f->outer, inner, quantized, y, tokens);
}

static int max_int(int a, int b) { return a > b ? a : b; }

/* --- the whole stack --- */

/* A token's vector: a row of the table, scaled, plus the vector of its position. */
static void embed(const Input *input, int token, int place, float *x, int dim) {
    const float *row = input->table + (int64_t)token * dim, *added = input->positions + (int64_t)place * dim;
    for (int i = 0; i < dim; i++) x[i] = row[i] * input->scale;
    for (int i = 0; input->positions && i < dim; i++) x[i] += added[i];
}

/* x (N, D), tokens of all rows, row by row: embeddings in, hidden states out. 0 if memory ran out. */
static int pass(const Stack *stack, const KeyValues *kv, const Memory *memory, float *x, int rows, int tokens, int threads) {
    int D = stack->dim, wide = D, inner = 0, mixing = 0, heads = 0;
    for (int l = 0; l < stack->layers; l++) {
        const Block *b = stack->blocks + l;
        wide = max_int(wide, max_int(b->self.project.out, b->cross.heads ? b->cross.project.out : 0));
        mixing = max_int(mixing, max_int(b->self.heads * b->self.value_dim, b->cross.heads * b->cross.value_dim));
        inner = max_int(inner, b->feed_forward.inner.out);
        heads = max_int(heads, max_int(b->self.heads, b->cross.heads));
    }
    int64_t N = tokens, keys = memory ? max_int(kv->longest, memory->stride) : kv->longest;
    float *work = malloc(sizeof(float) * N * (2 * D + wide + mixing + 2 * inner));
    float *all_scores = malloc(sizeof(float) * threads * heads * keys);
    Quantized quantized;
    int ok = make_quantized(&quantized, N, max_int(max_int(D, mixing), inner));
    if (!ok || !work || !all_scores) return free(work), free(all_scores), free_quantized(&quantized), 0;
    float *normal = work, *y = normal + N * D, *projected = y + N * D, *mixed = projected + N * wide;
    float *within = mixed + N * mixing, *gate = within + N * inner;
    int taken = 0;
#pragma omp parallel num_threads(threads)
    {
        int mine;
#pragma omp atomic capture
        mine = taken++;
        float *scores = all_scores + mine * heads * keys;
        for (int l = 0; l < stack->layers; l++) {
            const Block *b = stack->blocks + l;
            linear(&b->self.project, input_of(&b->residual_self, x, normal, tokens, D), &quantized, projected, tokens);
            attend_self(&b->self, kv, l, projected, tokens, scores, mixed);
            linear(&b->self.output, mixed, &quantized, y, tokens);
            add(&b->residual_self, x, y, tokens, D);
            if (b->cross.heads) {
                linear(&b->cross.project, input_of(&b->residual_cross, x, normal, tokens, D), &quantized, projected, tokens);
                attend_cross(&b->cross, memory, l, projected, rows, tokens, scores, mixed);
                linear(&b->cross.output, mixed, &quantized, y, tokens);
                add(&b->residual_cross, x, y, tokens, D);
            }
            feed_forward(&b->feed_forward, input_of(&b->residual_feed_forward, x, normal, tokens, D), &quantized, within, gate, y, tokens);
            add(&b->residual_feed_forward, x, y, tokens, D);
        }
#pragma omp for schedule(static)
        for (int t = 0; t < tokens; t++)
            if (stack->final_norm.kind != NO_NORM) normalise(&stack->final_norm, x + (int64_t)t * D, x + (int64_t)t * D, D);
    }
    free(work), free(all_scores), free_quantized(&quantized);
    return 1;
}

/* A new token sees the earlier tokens of its row, the new ones included. */
static TokenView view_of(const Cache *cache, int64_t row, int each, int t) {
    int length = cache->lengths ? cache->lengths[row] : cache->length;
    int start = cache->firsts ? cache->firsts[row] : cache->first, place = length - each + t, seen = place + 1;
    int first = cache->window && seen > cache->window ? seen - cache->window : 0;
    int64_t list = row * cache->stride;
    return (TokenView){list + first, cache->lists[list + place], seen - first, place - first, start + place};
}

/* x (N, D) embedded tokens of all rows, row by row -> logits (N, vocabulary), or with `last` only those that follow the
   last token of each row. 0, or 1 where memory ran out.                                                                 */
int clearhead_step(const Stack *stack, const Cache *cache, const Memory *memory, float *x, float *logits, int rows,
                   int tokens, int last, int threads) {
    int each = tokens / rows, kept = last ? rows : tokens, D = stack->dim;
    TokenView *views = malloc(sizeof(TokenView) * tokens);
    for (int t = 0; views && t < tokens; t++) views[t] = view_of(cache, t / each, each, t % each);
    KeyValues kv = {cache->keys, cache->values, cache->lists, views, cache->slots, cache->length};
    int ok = views && pass(stack, &kv, memory, x, rows, tokens, threads);
    free(views);
    if (!ok) return 1;
    for (int64_t row = 0; last && each > 1 && row < rows; row++)
        memmove(x + row * D, x + ((row + 1) * each - 1) * D, sizeof(float) * D);
    Quantized quantized;
    ok = make_quantized(&quantized, kept, D);
#pragma omp parallel num_threads(threads) if (ok)
    if (ok) linear(&stack->output, x, &quantized, logits, kept);
    free_quantized(&quantized);
    return !ok;
}

/* --- encoding a source --- */

/* The memory x (N, D) -> keys (layers, N, G K) and values (layers, N, G V) of each layer with cross-attention. */
static int keys_and_values(const Stack *decoder, const float *x, float *keys, float *values, int tokens, int threads) {
    int64_t N = tokens;
    float *both = malloc(sizeof(float) * N * decoder->blocks->cross.source.out);
    Quantized quantized;
    int ok = make_quantized(&quantized, N, decoder->blocks->cross.source.in) && both;
    if (!ok) return free(both), free_quantized(&quantized), 0;
#pragma omp parallel num_threads(threads)
    for (int l = 0; l < decoder->layers; l++) {
        const Attention *a = &decoder->blocks[l].cross;
        int64_t K = a->kv_heads * a->key_dim, V = a->kv_heads * a->value_dim;
        linear(&a->source, x, &quantized, both, tokens);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < N; t++) {
            memcpy(keys + (l * N + t) * K, both + t * (K + V), sizeof(float) * K);
            memcpy(values + (l * N + t) * V, both + t * (K + V) + K, sizeof(float) * V);
        }
    }
    free(both), free_quantized(&quantized);
    return 1;
}

/* Sentences end to end, without padding: sentence i is the tokens from begins[i] to begins[i + 1]. The encoder reads
   them -> keys and values for each layer of the decoder. 0, or 1 where memory ran out.                               */
int clearhead_read(const Stack *encoder, const Input *input, const Stack *decoder, const int32_t *tokens,
                   const int32_t *begins, int sentences, float *keys, float *values, int threads) {
    int N = begins[sentences], D = encoder->dim, longest = 0;
    const Attention *a = &encoder->blocks->self;
    int64_t size = (int64_t)a->kv_heads * (a->key_dim + a->value_dim);
    float *x = malloc(sizeof(float) * N * D), *self_keys = malloc(sizeof(float) * N * size);
    int32_t *lists = malloc(sizeof(int32_t) * N);
    TokenView *views = malloc(sizeof(TokenView) * N);
    int ok = x && self_keys && lists && views;
    for (int i = 0; ok && i < sentences; i++) {
        int begin = begins[i], count = begins[i + 1] - begin;
        longest = max_int(longest, count);
        for (int t = 0; t < count; t++) {
            embed(input, tokens[begin + t], t, x + (int64_t)(begin + t) * D, D);
            lists[begin + t] = begin + t, views[begin + t] = (TokenView){begin, begin + t, count, t, t};
        }
    }
    float *self_values = self_keys + (int64_t)N * a->kv_heads * a->key_dim;
    KeyValues kv = {self_keys, self_values, lists, views, 0, longest}; /* 0 slots: every layer reuses the same memory */
    ok = ok && pass(encoder, &kv, NULL, x, sentences, N, threads);
    ok = ok && keys_and_values(decoder, x, keys, values, N, threads);
    free(x), free(self_keys), free(lists), free(views);
    return !ok;
}

/* --- the best tokens --- */

/* Of each row (rows, size): the `count` largest, descending, their indices, and the log of the sum of all exponentials. */
void clearhead_best(const float *logits, int rows, int size, int count, float *values, int64_t *indices, float *totals,
          int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int row = 0; row < rows; row++) {
        const float *x = logits + (int64_t)row * size;
        float *value = values + (int64_t)row * count, sum = 0;
        int64_t *index = indices + (int64_t)row * count;
        int found = 0;
        enum { SPAN = 64 };
        for (int first = 0; first < size; first += SPAN) { /* most spans have nothing large enough */
            int last = first + SPAN < size ? first + SPAN : size;
            float highest = -INFINITY;
            for (int i = first; i < last; i++) highest = x[i] > highest ? x[i] : highest;
            if (found == count && !(highest > value[count - 1])) continue;
            for (int i = first; i < last; i++) {
                if (found == count && !(x[i] > value[count - 1])) continue;
                int at = found < count ? found++ : count - 1;
                for (; at > 0 && x[i] > value[at - 1]; at--) value[at] = value[at - 1], index[at] = index[at - 1];
                value[at] = x[i], index[at] = i;
            }
        }
        for (int i = 0; i < size; i++) sum += exponential(x[i] - value[0]);
        totals[row] = value[0] + logf(sum);
    }
}
