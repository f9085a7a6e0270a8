/* What the C tests share: numbers that are the same in every run, and a way to fail. */

#ifndef CLEARHEAD_EXPECT_H
#define CLEARHEAD_EXPECT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline float uniform(void) { /* -1 … 1 */
    static uint32_t seed = 7;
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 23) - 1.0f;
}

static inline void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

#endif
