/* A token's vector. */

#ifndef CLEARHEAD_EMBED_H
#define CLEARHEAD_EMBED_H

#include "clearhead.h"

/* A row of the table, scaled, plus the vector of its position: x (D,). */
static inline void embed(const Input *input, int64_t token, int64_t place, float *x, int dim) {
    const float *row = input->table + token * dim;
    for (int i = 0; i < dim; i++) x[i] = row[i] * input->scale;
    if (!input->positions) return;
    const float *added = input->positions + place * dim;
    for (int i = 0; i < dim; i++) x[i] += added[i];
}

#endif
