/* A decoder-only language model as native code reads it; lm.py mirrors its structures.

   N tokens (all new ones of all rows), D width, H heads, G key-value heads, K key size, V value size */

#ifndef CLEARHEAD_LM_H
#define CLEARHEAD_LM_H

#include "clearhead.h"
#include "quant.h"

enum { LM_NO_MEMORY = 1, LM_BAD_ROWS, LM_BAD_TOKEN, LM_BAD_LENGTH, LM_BAD_SLOT, LM_BAD_HEAD }; /* why a step failed */
enum { ACT_RELU, ACT_GELU, ACT_GELU_TANH, ACT_QUICK_GELU, ACT_SILU };

typedef struct {
    Matrix query, key, value, output;
    Norm query_norm, key_norm; /* of each head */
    const float *sin, *cos;    /* (positions, rotated / 2) of rotary positions, or NULL */
    const float *bias;         /* (H, 2 positions - 1) added by distance from the most negative, or NULL */
    int32_t heads, kv_heads, key_dim, value_dim, rotated, positions;
    int32_t window;   /* tokens that are visible; 0: all */
    float scale, cap; /* cap 0: none */
} LmAttention;

typedef struct {
    Matrix inner, gate, outer; /* gate.outputs 0: none */
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
    Matrix table, output;   /* rows of the table are token vectors */
    const float *positions; /* (positions, D) added to the token vectors, or NULL */
    float scale, cap;       /* of the token vectors; of the logits, 0: none */
    int32_t layers, dim;
    int32_t parallel; /* attention and feed-forward read the same x */
} LmModel;

typedef struct {
    int32_t layer, head; /* whose weights are wanted */
    float *weights;      /* (N, length): of each token, zeros where it sees nothing */
} LmSeen;

typedef struct {
    const int32_t *ids; /* (N,) tokens of all rows, row by row */
    float *logits;      /* (N, vocabulary), or (rows, vocabulary) with `last`; NULL: only to see */
    const LmSeen *seen;
    int32_t rows, tokens, last, exact; /* last: only what follows the last token of a row; exact: no rounding */
    int32_t seen_count, threads;
} LmStep;

#if defined(VARIANT)

/* New tokens of all rows -> logits. 0, or what is wrong. */
PUBLIC int EXPORT(lm_step)(const LmModel *model, const Cache *cache, const LmStep *step);

/* The kind that a format of GGUF becomes, -1: none; and the bytes of a panel of it, for whole blocks of inputs. */
PUBLIC int EXPORT(lm_kind)(int format);
PUBLIC int64_t EXPORT(lm_panel_bytes)(int kind, int inputs);

/* Rows (outputs, columns) of one of GGUF's formats -> panels, which are zeros before. */
PUBLIC void EXPORT(lm_pack)(const uint8_t *rows, int64_t row_bytes, int format, int outputs, int columns,
                            uint8_t *panels, int threads);

/* x (N, inputs) -> y (N, outputs) by one thread; `bytes` and `scales` have room for all vectors, or are NULL: nothing
   is rounded. */
PUBLIC void EXPORT(lm_product)(const Matrix *matrix, const float *x, int8_t *bytes, BlockScale *scales, float *y,
                               int count);

/* One row of a matrix as floats, (inputs,). */
PUBLIC void EXPORT(lm_row)(const Matrix *matrix, int row, float *into);

#endif
#endif
