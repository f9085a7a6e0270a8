/* Layer norm and rms norm of one vector. */

#ifndef CLEARHEAD_NORM_H
#define CLEARHEAD_NORM_H

#include <math.h>

#include "clearhead.h"

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

#endif
