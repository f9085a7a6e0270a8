/* The next token of each row from its logits, as decode/logits.py defines it; sampling.py has the same structures.

   V vocabulary                                                                                                       */

#ifndef CLEARHEAD_SAMPLE_H
#define CLEARHEAD_SAMPLE_H

#include "clearhead.h"

typedef struct {
    double temperature;    /* 0: the likeliest token */
    double top_p, min_p;   /* 1, 0: all tokens */
    const int32_t *banned; /* tokens that are never chosen */
    float repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;           /* 0: all tokens */
    int32_t no_repeat_ngram; /* 0: any */
    int32_t banned_count;
} Choice; /* how a row chooses */

typedef struct {
    const int32_t *tokens; /* the prompt and what was generated */
    int32_t count, prompt; /* of both; of the prompt */
    int32_t forced;        /* the token that must be chosen, or -1 */
} RowText;                 /* what choosing depends on besides the logits */

typedef struct {
    const float *logits;    /* (rows, V) */
    const Choice *choices;  /* (rows,) */
    const RowText *texts;   /* (rows,), or NULL: nothing is forced, and no row looks back */
    const double *uniforms; /* (rows,) random numbers in [0, 1) */
    int32_t *tokens;        /* (rows,) the answer */
    double *logprobs;       /* (rows, 2) log-probability before and after the processors, or NULL */
    int32_t rows, size;
} Sampling;

#if defined(VARIANT)

/* Choose a token for each row. 0, or 1 where memory ran out. */
PUBLIC int EXPORT(sample)(const Sampling *sampling);

/* The size of each structure that sampling.py mirrors, in its order; 0 after the last. */
PUBLIC int64_t EXPORT(sampling_size)(int number);

#endif
#endif
