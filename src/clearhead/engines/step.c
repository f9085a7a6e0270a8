/* Reading a source and one step of writing, for every stack of the lectures' blocks: what nn/block.py says, without
   Python between its parts.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size

   Keys and values of the past lie in slots, one for each token that any row has ever read. A row knows its past as a
   list of slots, so beams that change places or leave move no keys: only their lists change.

   Matrices are stored in panels of PANEL outputs: panel p holds, for each input, the weights of its PANEL outputs side
   by side. A panel is used for all tokens before the next one is touched. Weights of one byte are multiplied as bytes
   where the processor can do that, four inputs at a time: then the tokens are rounded to bytes, too.

   Everything runs inside one parallel region; each loop is shared by its threads, and ends where they meet.
   What others may call has names of its own: the C library has a `step`, too.                                           */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16, MOST = 12 };
#elif defined(__AVX__)
enum { WIDTH = 8, MOST = 6 };
#else
enum { WIDTH = 4, MOST = 6 };
#endif
enum { PANEL = 2 * WIDTH }; /* two registers of outputs, for up to MOST tokens at once */
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
    const float *scales, *bias;                 /* of each output, up to whole panels */
    const float *sums;                          /* of the bytes of each output */
    int32_t in, out, bytes;                     /* bytes: the panels are int8, inputs in whole groups */
} Linear;

typedef struct {
    uint8_t *bytes;                             /* (N, in), in whole groups: 128 stands for 0 */
    float *scales;                              /* (N,) */
} Rounded;                                      /* room for tokens as bytes */

typedef struct {
    const float *gain, *shift;                  /* (D,); shift may be NULL */
    float eps;
    int32_t kind;
} Norm;

typedef struct {
    Norm before, inside, after;                 /* after(x + inside(part(before(x)))) */
} Residual;

typedef struct {
    Linear project, output;                     /* project: queries, then keys and values where they are the layer's own */
    Linear source;                              /* keys and values of what is looked at across */
    const float *sin, *cos;                     /* (positions, K / 2) of rotary positions, or NULL */
    const float *bias;                          /* (H, 2 positions - 1) added by distance from the most negative, or NULL */
    int32_t heads, groups, key_dim, value_dim, positions;
    float scale;
} Attention;

typedef struct {
    Linear inner, gate, outer;                  /* gate: only of SwiGLU */
    int32_t activation;
} FeedForward;

typedef struct {
    Residual around_self, around_cross, around_feed;
    Attention self, cross;                      /* cross.heads = 0: there is none */
    FeedForward feed;
} Block;

typedef struct {
    const Block *blocks;
    Norm last;
    Linear output;
    int32_t layers, dim;
} Stack;

typedef struct {
    float *keys, *values;                       /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;                       /* (rows, length): the slots of each row, new tokens included */
    int64_t slots;
    int32_t length, stride;                     /* slots seen by the last new token; distance between two lists */
    int32_t first, window;                      /* position of a list's first slot; window 0: all the past is seen */
} Past;

typedef struct {
    int64_t list, slot;                         /* where its list begins, and where its own key and value belong */
    int32_t seen, place, position;              /* slots that it sees; which of them is its own; its position in the text */
} View;                                         /* what a token sees of its own text */

typedef struct {
    float *keys, *values;                       /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;
    const View *views;                          /* (N,) */
    int64_t slots;
    int32_t longest;                            /* slots that a token sees at most */
} Own;

typedef struct {
    const float *keys, *values;                 /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;                       /* (sentences, stride) */
    const int32_t *lengths;                     /* (sentences,) how much of its list is real */
    const int32_t *sentence;                    /* (rows,) */
    int64_t slots;
    int32_t stride;
} Memory;

typedef struct {
    const float *table, *places;                /* (vocabulary, D); (positions, D) what is added to a token's, or NULL */
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
        vec low[MOST] = {0}, high[MOST] = {0};                                                                           \
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

/* sum += four products of each lane; in assembler, since a compiler may not know that sums can stay where they are. */
static inline void add_products(__m512i *sum, __m512i x, __m512i w) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(w));
}

static inline __attribute__((always_inline)) void byte_tile(
    const Linear *f, int64_t begin, const int8_t *panel, const Rounded *rounded, int64_t first, float *y, int stride,
    const int tokens) {
    int64_t in = in_groups(f->in);
    const uint8_t *x = rounded->bytes + first * in;
    __m512i low[MOST], high[MOST];
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
            *(vec *)(y + (int64_t)t * stride + half * WIDTH) = (sum - zero) * (rounded->scales[first + t] * scale) + bias;
        }
    }
}

#define BYTES(N) byte_tile(f, begin, (const int8_t *)panel, rounded, first, into, stride, N)

#else

TILE(widened_tile, of_bytes)
#define BYTES(N) widened_tile(x, f->in, panel, f->scales + begin, f->bias + begin, into, stride, N)

#endif

#define CASE(N)                                                                                                          \
    case N:                                                                                                              \
        if (f->bytes) BYTES(N);                                                                                          \
        else float_tile(x, f->in, panel, f->scales + begin, f->bias + begin, into, stride, N);                           \
        break;

/* Some tokens (at most MOST) from `first` on by one panel; what is over of the last panel is not written. */
static void tile(const Linear *f, int p, const float *x, const Rounded *rounded, float *y, int64_t first, int tokens) {
    int64_t begin = (int64_t)p * PANEL;
    const char *panel = (const char *)f->panels + begin * (f->bytes ? in_groups(f->in) : f->in * (int64_t)sizeof(float));
    float aside[MOST * PANEL];
    int whole = begin + PANEL <= f->out, stride = whole ? f->out : PANEL;
    x += first * f->in, y += first * f->out;
    float *into = whole ? y + begin : aside;
    (void)rounded;
    switch (tokens) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512F__)
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
    for (int t = 0; !whole && t < tokens; t++)
        memcpy(y + (int64_t)t * f->out + begin, aside + t * PANEL, sizeof(float) * (f->out - begin));
}

/* x (N, in) as bytes, each token with a scale of its own. */
static void round_tokens(const Linear *f, const float *x, const Rounded *rounded, int tokens) {
    int64_t in = in_groups(f->in);
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const float *from = x + (int64_t)t * f->in;
        uint8_t *into = rounded->bytes + t * in;
        float largest = 1e-30f;
        for (int i = 0; i < f->in; i++) largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
        float factor = 127.0f / largest;
        for (int i = 0; i < f->in; i++) into[i] = (uint8_t)(int32_t)(rintf(from[i] * factor) + 128.0f);
        for (int64_t i = f->in; i < in; i++) into[i] = 128;
        rounded->scales[t] = largest / 127.0f;
    }
}

/* x (N, in) -> y (N, out) */
static void linear(const Linear *f, const float *x, const Rounded *rounded, float *y, int tokens) {
    int panels = (f->out + PANEL - 1) / PANEL, pieces = (tokens + MOST - 1) / MOST;
    if (f->bytes && GROUP > 1) round_tokens(f, x, rounded, tokens);
#pragma omp for schedule(static)
    for (int p = 0; p < panels; p++)
        for (int piece = 0; piece < pieces; piece++) {
            int64_t first = (int64_t)tokens * piece / pieces, last = (int64_t)tokens * (piece + 1) / pieces;
            tile(f, p, x, rounded, y, first, last - first);
        }
}

/* Room for so many tokens of at most so many inputs; whether there was memory. */
static int make_rounded(Rounded *rounded, int64_t tokens, int in) {
    rounded->bytes = malloc(tokens * in_groups(in)), rounded->scales = malloc(sizeof(float) * tokens);
    return rounded->bytes && rounded->scales;
}

static void free_rounded(Rounded *rounded) { free(rounded->bytes), free(rounded->scales); }

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

/* What a part reads: x itself, or its norm in y. */
static const float *input_of(const Residual *around, const float *x, float *y, int tokens, int dim) {
    if (around->before.kind == NO_NORM) return x;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) normalise(&around->before, y + (int64_t)t * dim, x + (int64_t)t * dim, dim);
    return y;
}

/* x <- after(x + inside(y)) */
static void add(const Residual *around, float *x, float *y, int tokens, int dim) {
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        float *into = x + (int64_t)t * dim, *from = y + (int64_t)t * dim;
        if (around->inside.kind != NO_NORM) normalise(&around->inside, from, from, dim);
        for (int i = 0; i < dim; i++) into[i] += from[i];
        if (around->after.kind != NO_NORM) normalise(&around->after, into, into, dim);
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

typedef float eight __attribute__((vector_size(32), aligned(4)));
typedef int32_t order __attribute__((vector_size(32)));

#ifdef __clang__
#define IN_ORDER(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define IN_ORDER(x, ...) __builtin_shuffle(x, (order){__VA_ARGS__})
#endif

static inline float dot(const float *a, const float *b, int size) {
    eight sum = {0};
    int i = 0;
    for (; i + 8 <= size; i += 8) sum += *(const eight *)(a + i) * *(const eight *)(b + i);
    sum += IN_ORDER(sum, 4, 5, 6, 7, 0, 1, 2, 3);
    sum += IN_ORDER(sum, 2, 3, 0, 1, 6, 7, 4, 5);
    float all = sum[0] + sum[1];
    for (; i < size; i++) all += a[i] * b[i];
    return all;
}

/* y += weight x */
static inline void add_weighted(float *y, float weight, const float *x, int size) {
    int i = 0;
    for (; i + 8 <= size; i += 8) *(eight *)(y + i) += weight * *(const eight *)(x + i);
    for (; i < size; i++) y[i] += weight * x[i];
}

/* One token: queries q (H, K) at a place look at the slots of a list -> mixed (H, V). */
static void attend(const Attention *a, const float *q, const float *keys, const float *values, const int32_t *list,
                   int count, int place, float *scores, float *restrict mixed) {
    int K = a->key_dim, V = a->value_dim, share = a->heads / a->groups;
    for (int j = 0; j < count; j++) {
        const float *key = keys + (int64_t)list[j] * a->groups * K;
        for (int h = 0; h < a->heads; h++) {
            float bias = a->bias ? a->bias[h * (2 * a->positions - 1) + a->positions - 1 + place - j] : 0;
            scores[h * count + j] = dot(q + h * K, key + h / share * K, K) * a->scale + bias;
        }
    }
    memset(mixed, 0, sizeof(float) * a->heads * V);
    if (count == 0) return;
    for (int h = 0; h < a->heads; h++) softmax(scores + h * count, count);
    for (int j = 0; j < count; j++) {
        const float *value = values + (int64_t)list[j] * a->groups * V;
        for (int h = 0; h < a->heads; h++) add_weighted(mixed + h * V, scores[h * count + j], value + h / share * V, V);
    }
}

/* Turn each pair (i, i + K / 2) of some heads by its position's angle. */
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

/* Tokens look at their own text; each first puts its key and value into its slot. */
static void attend_self(const Attention *a, const Own *own, int layer, float *projected, int tokens, float *scores,
                        float *mixed) {
    int K = a->groups * a->key_dim, V = a->groups * a->value_dim, Q = a->heads * a->key_dim;
    float *keys = own->keys + layer * own->slots * K, *values = own->values + layer * own->slots * V;
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const View *view = own->views + t;
        float *all = projected + (int64_t)t * (Q + K + V);
        if (a->sin) rotate(a, all, a->heads, view->position), rotate(a, all + Q, a->groups, view->position);
        memcpy(keys + view->slot * K, all + Q, sizeof(float) * K);
        memcpy(values + view->slot * V, all + Q + K, sizeof(float) * V);
    }
#pragma omp for schedule(static)
    for (int t = 0; t < tokens; t++) {
        const View *view = own->views + t;
        attend(a, projected + (int64_t)t * (Q + K + V), keys, values, own->lists + view->list, view->seen, view->place,
               scores, mixed + (int64_t)t * a->heads * a->value_dim);
    }
}

static void attend_cross(const Attention *a, const Memory *memory, int layer, const float *q, int rows, int tokens,
                         float *scores, float *mixed) {
    int K = a->groups * a->key_dim, V = a->groups * a->value_dim, each = tokens / rows;
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

static void feed_forward(const FeedForward *f, const float *x, const Rounded *rounded, float *inner, float *gate,
                         float *y, int tokens) {
    linear(&f->inner, x, rounded, inner, tokens);
    if (f->activation == SWIGLU) linear(&f->gate, x, rounded, gate, tokens);
    activate(f, inner, gate, tokens);
    linear(&f->outer, inner, rounded, y, tokens);
}

static int most(int a, int b) { return a > b ? a : b; }

/* --- the whole stack --- */

/* A token's vector: a row of the table, scaled, and the vector of its place. */
static void embed(const Input *input, int token, int place, float *x, int dim) {
    const float *row = input->table + (int64_t)token * dim, *added = input->places + (int64_t)place * dim;
    for (int i = 0; i < dim; i++) x[i] = row[i] * input->scale;
    for (int i = 0; input->places && i < dim; i++) x[i] += added[i];
}

/* x (N, D), tokens of all rows, row by row: embedded, they become what the stack makes of them. Whether memory sufficed. */
static int pass(const Stack *stack, const Own *own, const Memory *memory, float *x, int rows, int tokens, int threads) {
    int D = stack->dim, wide = D, inner = 0, mixing = 0, heads = 0;
    for (int l = 0; l < stack->layers; l++) {
        const Block *b = stack->blocks + l;
        wide = most(wide, most(b->self.project.out, b->cross.heads ? b->cross.project.out : 0));
        mixing = most(mixing, most(b->self.heads * b->self.value_dim, b->cross.heads * b->cross.value_dim));
        inner = most(inner, b->feed.inner.out);
        heads = most(heads, most(b->self.heads, b->cross.heads));
    }
    int64_t N = tokens, keys = memory ? most(own->longest, memory->stride) : own->longest;
    float *work = malloc(sizeof(float) * N * (2 * D + wide + mixing + 2 * inner));
    float *all_scores = malloc(sizeof(float) * threads * heads * keys);
    Rounded rounded;
    int there = make_rounded(&rounded, N, most(most(D, mixing), inner));
    if (!there || !work || !all_scores) return free(work), free(all_scores), free_rounded(&rounded), 0;
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
            linear(&b->self.project, input_of(&b->around_self, x, normal, tokens, D), &rounded, projected, tokens);
            attend_self(&b->self, own, l, projected, tokens, scores, mixed);
            linear(&b->self.output, mixed, &rounded, y, tokens);
            add(&b->around_self, x, y, tokens, D);
            if (b->cross.heads) {
                linear(&b->cross.project, input_of(&b->around_cross, x, normal, tokens, D), &rounded, projected, tokens);
                attend_cross(&b->cross, memory, l, projected, rows, tokens, scores, mixed);
                linear(&b->cross.output, mixed, &rounded, y, tokens);
                add(&b->around_cross, x, y, tokens, D);
            }
            feed_forward(&b->feed, input_of(&b->around_feed, x, normal, tokens, D), &rounded, within, gate, y, tokens);
            add(&b->around_feed, x, y, tokens, D);
        }
#pragma omp for schedule(static)
        for (int t = 0; t < tokens; t++)
            if (stack->last.kind != NO_NORM) normalise(&stack->last, x + (int64_t)t * D, x + (int64_t)t * D, D);
    }
    free(work), free(all_scores), free_rounded(&rounded);
    return 1;
}

/* The new tokens of a row see its past, and those of their own that stand before them. */
static View view_of(const Past *past, int64_t row, int each, int t) {
    int place = past->length - each + t, seen = place + 1;
    int first = past->window && seen > past->window ? seen - past->window : 0;
    int64_t list = row * past->stride;
    return (View){list + first, past->lists[list + place], seen - first, place - first, past->first + place};
}

/* x (N, D) embedded tokens of all rows, row by row -> logits (N, vocabulary), or with `last` only those that follow the
   last token of each row. 0, or 1 where memory ran out.                                                                 */
int clearhead_step(const Stack *stack, const Past *past, const Memory *memory, float *x, float *logits, int rows,
                   int tokens, int last, int threads) {
    int each = tokens / rows, kept = last ? rows : tokens, D = stack->dim;
    View *views = malloc(sizeof(View) * tokens);
    for (int t = 0; views && t < tokens; t++) views[t] = view_of(past, t / each, each, t % each);
    Own own = {past->keys, past->values, past->lists, views, past->slots, past->length};
    int there = views && pass(stack, &own, memory, x, rows, tokens, threads);
    free(views);
    if (!there) return 1;
    for (int64_t row = 0; last && each > 1 && row < rows; row++)
        memmove(x + row * D, x + ((row + 1) * each - 1) * D, sizeof(float) * D);
    Rounded rounded;
    there = make_rounded(&rounded, kept, D);
#pragma omp parallel num_threads(threads) if (there)
    if (there) linear(&stack->output, x, &rounded, logits, kept);
    free_rounded(&rounded);
    return !there;
}

/* --- reading a source --- */

/* The memory x (N, D) -> keys (layers, N, G K) and values (layers, N, G V) of each layer that looks across. */
static int keys_and_values(const Stack *decoder, const float *x, float *keys, float *values, int tokens, int threads) {
    int64_t N = tokens;
    float *both = malloc(sizeof(float) * N * decoder->blocks->cross.source.out);
    Rounded rounded;
    int there = make_rounded(&rounded, N, decoder->blocks->cross.source.in) && both;
    if (!there) return free(both), free_rounded(&rounded), 0;
#pragma omp parallel num_threads(threads)
    for (int l = 0; l < decoder->layers; l++) {
        const Attention *a = &decoder->blocks[l].cross;
        int64_t K = a->groups * a->key_dim, V = a->groups * a->value_dim;
        linear(&a->source, x, &rounded, both, tokens);
#pragma omp for schedule(static)
        for (int64_t t = 0; t < N; t++) {
            memcpy(keys + (l * N + t) * K, both + t * (K + V), sizeof(float) * K);
            memcpy(values + (l * N + t) * V, both + t * (K + V) + K, sizeof(float) * V);
        }
    }
    free(both), free_rounded(&rounded);
    return 1;
}

/* Sentences end to end, without padding: sentence i is the tokens from begins[i] to begins[i + 1]. They are read by the
   encoder -> keys and values for each layer of the decoder. 0, or 1 where memory ran out.                               */
int clearhead_read(const Stack *encoder, const Input *input, const Stack *decoder, const int32_t *tokens,
                   const int32_t *begins, int sentences, float *keys, float *values, int threads) {
    int N = begins[sentences], D = encoder->dim, longest = 0;
    const Attention *a = &encoder->blocks->self;
    int64_t size = (int64_t)a->groups * (a->key_dim + a->value_dim);
    float *x = malloc(sizeof(float) * N * D), *own_keys = malloc(sizeof(float) * N * size);
    int32_t *lists = malloc(sizeof(int32_t) * N);
    View *views = malloc(sizeof(View) * N);
    int there = x && own_keys && lists && views;
    for (int i = 0; there && i < sentences; i++) {
        int begin = begins[i], count = begins[i + 1] - begin;
        longest = most(longest, count);
        for (int t = 0; t < count; t++) {
            embed(input, tokens[begin + t], t, x + (int64_t)(begin + t) * D, D);
            lists[begin + t] = begin + t, views[begin + t] = (View){begin, begin + t, count, t, t};
        }
    }
    float *own_values = own_keys + (int64_t)N * a->groups * a->key_dim;
    Own own = {own_keys, own_values, lists, views, 0, longest}; /* 0 slots apart: a layer needs only its own keys */
    there = there && pass(encoder, &own, NULL, x, sentences, N, threads);
    there = there && keys_and_values(decoder, x, keys, values, N, threads);
    free(x), free(own_keys), free(lists), free(views);
    return !there;
}

/* --- what a search needs of the logits --- */

/* Of each row (rows, size): the `count` largest, falling, their places, and log of the sum of all exponentials. */
void clearhead_best(const float *logits, int rows, int size, int count, float *values, int64_t *places, float *totals,
          int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int row = 0; row < rows; row++) {
        const float *x = logits + (int64_t)row * size;
        float *value = values + (int64_t)row * count, sum = 0;
        int64_t *place = places + (int64_t)row * count;
        int found = 0;
        enum { SPAN = 64 };
        for (int first = 0; first < size; first += SPAN) { /* most spans have nothing that is large enough */
            int last = first + SPAN < size ? first + SPAN : size;
            float highest = -INFINITY;
            for (int i = first; i < last; i++) highest = x[i] > highest ? x[i] : highest;
            if (found == count && !(highest > value[count - 1])) continue;
            for (int i = first; i < last; i++) {
                if (found == count && !(x[i] > value[count - 1])) continue;
                int at = found < count ? found++ : count - 1;
                for (; at > 0 && x[i] > value[at - 1]; at--) value[at] = value[at - 1], place[at] = place[at - 1];
                value[at] = x[i], place[at] = i;
            }
        }
        for (int i = 0; i < size; i++) sum += exponential(x[i] - value[0]);
        totals[row] = value[0] + logf(sum);
    }
}
