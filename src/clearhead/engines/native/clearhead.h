/* What native code and Python share: the structures that layout.py mirrors field by field, and the exported functions.

   Each source is compiled once per variant (portable, avx2, avx512, neon) into one library, so an exported function has
   the name of its variant at its end, and everything else is static. native/library.py chooses the variant.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size                 */

#ifndef CLEARHEAD_H
#define CLEARHEAD_H

#include <stdint.h>

#if defined(_WIN32)
#define PUBLIC __declspec(dllexport)
#else
#define PUBLIC __attribute__((visibility("default")))
#endif

#define JOIN_NAMES(name, variant) clearhead_##name##_##variant
#define NAME_IN(name, variant) JOIN_NAMES(name, variant)
#define EXPORT(name) NAME_IN(name, VARIANT)

enum { NO_NORM, LAYER_NORM, RMS_NORM };
enum { RELU, GELU, SWIGLU };
enum { CACHE_FLOAT, CACHE_HALF, CACHE_BYTES }; /* numbers of keys and values: bytes have a float scale for each head */

typedef struct {
    const void *panels;         /* float, or int8 */
    const float *scales, *bias; /* of each output, padded to whole panels */
    const float *sums;          /* of the bytes of each output */
    int32_t inputs, outputs;
    int32_t bytes; /* the panels are int8, inputs in whole groups */
} Linear;

typedef struct {
    const float *gain, *shift; /* (D,); shift may be NULL */
    float eps;
    int32_t kind;
} Norm;

typedef struct {
    Norm before, inside, after; /* after(x + inside(part(before(x)))) */
} Residual;

typedef struct {
    Linear project, output; /* project: queries, in self-attention also keys and values */
    Linear source;          /* keys and values of cross-attention */
    const float *sin, *cos; /* (positions, K / 2) of rotary positions, or NULL */
    const float *bias;      /* (H, 2 positions - 1) added by distance from the most negative, or NULL */
    int32_t heads, kv_heads, key_dim, value_dim, positions;
    float scale;
} Attention;

typedef struct {
    Linear inner, gate, outer; /* gate: only of SwiGLU */
    int32_t activation;
} FeedForward;

typedef struct {
    Residual residual_self, residual_cross, residual_feed_forward;
    Attention self, cross; /* cross.heads = 0: no cross-attention */
    FeedForward feed_forward;
} Block;

typedef struct {
    const Block *blocks;
    Norm final_norm;
    Linear output;
    int32_t layers, dim;
} Stack;

typedef struct {
    void *keys, *values;    /* (layers, slots, G K), (layers, slots, G V), of bytes (layers, slots, G, K + scale), … */
    const int32_t *lists;   /* (rows, stride): the slots of each row, new tokens included */
    const int32_t *lengths; /* (rows,) slots in the list of each row; NULL: `length` in all */
    const int32_t *firsts;  /* (rows,) position of the first slot of each row; NULL: `first` in all */
    int64_t slots;
    int32_t length, stride; /* slots in the longest list; distance between two lists */
    int32_t first, window;  /* window 0: every earlier token is visible */
    int32_t format;         /* of keys and values; step.c has floats and float16, search.c floats */
} Cache;

typedef struct {
    const float *keys, *values; /* (layers, slots, G K), (layers, slots, G V) */
    const int32_t *lists;       /* (sentences, stride) */
    const int32_t *lengths;     /* (sentences,) slots in its list */
    const int32_t *sentence;    /* (rows,) */
    int64_t slots;
    int32_t stride;
} Memory;

typedef struct {
    float *weights, *scores;    /* (N, width) of each token, 0 where it sees nothing; or NULL: not wanted */
    int64_t width;              /* slots in the longest list */
    int32_t layer, head, cross; /* whose they are */
} Seen;

typedef struct {
    const float *table, *positions; /* (vocabulary, D); (positions, D) added to the token vectors, or NULL */
    float scale;                    /* of the table's rows */
} Input;

typedef struct {
    const int32_t *prompts;    /* (N, prompt) */
    const int32_t *max_tokens; /* (N,) at least one */
    double length_penalty;     /* score = sum / length^penalty */
    int32_t sentences, prompt, beam_width, n_best, stop, threads;
    int32_t scored; /* 0: greedy texts whose log-probabilities nobody asks for */
} SearchSettings;

typedef struct {
    int32_t *tokens;  /* (N, n_best, room), the stop token included */
    double *logprobs; /* (N, n_best, room) */
    double *scores;   /* (N, n_best) */
    int32_t *lengths; /* (N, n_best) tokens; 0: no such hypothesis */
    int32_t room;
} SearchResults;

typedef struct {
    float *numbers;
    int64_t batch, head, token; /* floats from one to the next; those of a vector lie side by side */
} HeadVectors;

typedef struct {
    const uint8_t *visible;    /* NULL: every key */
    int64_t batch, query, key; /* bytes from one to the next */
    int32_t rows, heads, kv_heads, queries, keys, key_dim, value_dim;
    int32_t causal; /* query i sees no key after i */
    float scale;
} ShortAttention;

#if defined(VARIANT)

/* Outputs that lie side by side in a panel, and inputs that are multiplied together where the weights are bytes. */
PUBLIC int EXPORT(panel)(void);
PUBLIC int EXPORT(group)(void);

/* x (N, D) embedded tokens of all rows, row by row -> logits (N, vocabulary), or with `last` only those that follow the
   last token of each row. 0, or 1 where memory ran out.                                                              */
PUBLIC int EXPORT(step)(const Stack *stack, const Cache *cache, const Memory *memory, float *x, float *logits, int rows,
                        int tokens, int last, int threads);

/* The same from ids (N,), which are embedded here, with the scores and weights of some heads. */
PUBLIC int EXPORT(step_tokens)(const Stack *stack, const Input *input, const Cache *cache, const Memory *memory,
                               const int32_t *ids, float *logits, const Seen *seen, int seen_count, int rows,
                               int tokens, int last, int threads);

/* Append a slot for each of `tokens` new tokens to the list of each row, which has counts[row] -> slots in use. A row
   takes a block of slots at a time, so that its keys lie side by side: next[row] is the next, left[row] how many. The
   last of `free` is taken first, and then what is not used yet.                                                      */
PUBLIC int64_t EXPORT(take_slots)(int32_t *lists, int64_t stride, int32_t *counts, int32_t *next, int32_t *left,
                                  int rows, int tokens, int block, int64_t used, const int32_t *free,
                                  int32_t *free_count);

/* Sentences end to end, without padding: sentence i is the tokens from begins[i] to begins[i + 1]. The encoder reads
   them -> keys and values for each layer of the decoder. 0, or 1 where memory ran out.                               */
PUBLIC int EXPORT(read)(const Stack *encoder, const Input *input, const Stack *decoder, const int32_t *tokens,
                        const int32_t *begins, int sentences, float *keys, float *values, int threads);

/* The same sentences for an encoder that stands alone: x (N, D) embedded tokens -> hidden states. Every token sees
   those of its sentence, with `causal` only the earlier ones. 0, or 1 where memory ran out. */
PUBLIC int EXPORT(encode)(const Stack *encoder, float *x, const int32_t *begins, int sentences, int causal,
                          int threads);

/* Of each row (rows, size): the `count` largest, descending, their indices, and the log of the sum of all exponentials,
   unless `totals` is NULL.                                                                                           */
PUBLIC void EXPORT(best)(const float *logits, int rows, int size, int count, float *values, int64_t *indices,
                         float *totals, int threads);

/* Continue each prompt, all of one length -> the results; the number of steps, or -1 if memory ran out. */
PUBLIC int EXPORT(search)(const Stack *stack, const Input *input, const Memory *memory, const SearchSettings *settings,
                          SearchResults *results);

/* Attention of whole short sequences, for training: q (B, H, T, K), k (B, G, S, K), v (B, G, S, V) -> out (B, H, T, V)
   and weights (B, H, T, `short_stride` of S); and from the gradient of `out` those of q, k and v. 0, or 1 where memory
   ran out. */
PUBLIC int EXPORT(short_stride)(int keys);
PUBLIC int EXPORT(short_forward)(const ShortAttention *a, const HeadVectors *q, const HeadVectors *k,
                                 const HeadVectors *v, const HeadVectors *out, float *weights);
PUBLIC int EXPORT(short_backward)(const ShortAttention *a, const HeadVectors *q, const HeadVectors *k,
                                  const HeadVectors *v, const HeadVectors *out, const float *weights,
                                  const HeadVectors *dq, const HeadVectors *dk, const HeadVectors *dv);

#endif
#endif
