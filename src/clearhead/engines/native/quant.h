/* Matrices in blocks of 32 inputs that share a scale, as GGUF stores them, and their products with float vectors.

   A weight is d q + m: q a small integer, d and m numbers of its block. Nothing is rounded when GGUF's rows are packed:

       kind    q of a block            d, m of a block             made of
       F32     32 floats               none                        F32, F16, BF16
       Q4_0    32 x 4 bits, less 8     float16 d                   Q4_0
       Q4_1    32 x 4 bits             float16 d, m                Q4_1
       Q8_0    32 signed bytes         float16 d                   Q8_0, Q5_0
       Q4_F    32 x 4 bits             float d, m                  Q4_K
       Q8_F    32 signed bytes         float d of 16 inputs, m     Q5_1, Q5_K, Q6_K

   A panel holds LANES outputs side by side, so that a register has the same input of many outputs and no product ends
   in a sum over the lanes of a register: first the q of all its blocks, then the d and m of all its blocks.

       bytes     (blocks, 8 groups, LANES, 4 inputs)
       4 bits    (blocks, 4 pairs of groups, LANES, 4 inputs): the first group of a pair is in the lower four bits
       floats    (blocks, 32 inputs, LANES)
       d and m   (blocks, d then m, LANES)

   Vectors are multiplied as floats (nothing is rounded) or as bytes with one scale for each block. */

#ifndef CLEARHEAD_QUANT_H
#define CLEARHEAD_QUANT_H

#include <stdint.h>
#include <string.h>

#include "half.h"

enum { LANES = 16, BLOCK = 32, GROUPS = 8 };
enum { F32, Q4_0, Q4_1, Q8_0, Q4_F, Q8_F, KINDS };

/* What a block of GGUF's rows is; the numbers are those of its format. */
enum {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q5_0 = 6,
    GGUF_Q5_1 = 7,
    GGUF_Q8_0 = 8,
    GGUF_Q4_K = 12,
    GGUF_Q5_K = 13,
    GGUF_Q6_K = 14,
    GGUF_BF16 = 30
};

typedef struct {
    const uint8_t *panels;
    const float *bias;             /* (outputs,) in whole panels, or NULL */
    int64_t stride;                /* bytes of a panel */
    int32_t inputs, outputs, kind; /* inputs: whole blocks */
} Matrix;

typedef struct {
    float scale, sum; /* of the bytes; of what they stand for */
    int32_t half[2];  /* sums of the first and the last 16 bytes */
    int16_t below[2]; /* -8 times the sums of the first and the last two of every four bytes */
} BlockScale;

typedef struct {
    const float *floats;      /* (N, inputs) */
    const int8_t *bytes;      /* (N, inputs), or NULL: the floats are multiplied */
    const BlockScale *scales; /* (N, inputs / BLOCK) */
} Vectors;

static inline int panels_of(const Matrix *matrix) {
    return (matrix->outputs + LANES - 1) / LANES;
}

#endif
