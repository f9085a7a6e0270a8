/* A decoder-only language model as native code reads it; lm.py has the same structures.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size                  */

#ifndef CLEARHEAD_LM_H
#define CLEARHEAD_LM_H

#include "clearhead.h"
#include "quant.h"

enum { ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_QUICK_GELU, ACT_SILU };

typedef struct {
    Matrix query, key, value, output;
    Norm query_norm, key_norm;                  /* of each head */
    const float *sin, *cos;                     /* (positions, rotated / 2) of rotary positions, or NULL */
    const float *bias;                          /* (H, 2 positions - 1) added by distance from the most negative, or NULL */
    int32_t heads, kv_heads, key_dim, value_dim, rotated, positions;
    int32_t window;                             /* tokens that are visible; 0: all */
    float scale, cap;                           /* cap 0: none */
} LmAttention;

typedef struct {
    Matrix inner, gate, outer;                  /* gate.out 0: none */
    int32_t activation;
} LmFeedForward;

typedef struct {
    Residual around_attention, around_feed_forward;
    LmAttention attention;
    LmFeedForward feed_forward;
} LmBlock;

typedef struct {
    const LmBlock *blocks;
    Norm final_norm;
    Matrix table, output;                       /* rows of the table are token vectors */
    const float *positions;                     /* (positions, D) added to the token vectors, or NULL */
    float scale, cap;                           /* of the token vectors; of the logits, 0: none */
    int32_t layers, dim;
    int32_t parallel;                           /* attention and feed-forward read the same x */
} LmModel;

typedef struct {
    void *keys, *values;                        /* (layers, slots, G K), (layers, slots, G V): float, or float16 */
    const int32_t *lists;                       /* (rows, stride): the slots of each row, new tokens included */
    const int32_t *lengths;                     /* (rows,) slots in the list of each row; NULL: `length` in all */
    const int32_t *firsts;                      /* (rows,) position of the first slot of each row; NULL: `first` in all */
    int64_t slots;
    int32_t length, stride;                     /* slots in the longest list; distance between two lists */
    int32_t first, window;                      /* window 0: every earlier token is visible */
    int32_t half;                               /* keys and values are float16 */
} LmCache;

typedef struct {
    int32_t layer, head;                        /* whose weights are wanted */
    float *weights;                             /* (N, length): of each token, zeros where it sees nothing */
} LmSeen;

typedef struct {
    const int32_t *ids;                         /* (N,) tokens of all rows, row by row */
    float *logits;                              /* (N, vocabulary), or (rows, vocabulary) with `last` */
    const LmSeen *seen;
    int32_t rows, tokens, last, exact;          /* last: only what follows the last token of a row; exact: no rounding */
    int32_t seen_count, threads;
} LmStep;

#endif
