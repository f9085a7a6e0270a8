/* Threads that share the loops of a step, without OpenMP: not every compiler and not every machine has it.

       static void work(const Worker *worker, void *context) {
           Range mine = share(worker, count);
           for (int64_t i = mine.first; i < mine.last; i++) …
           barrier(worker);
       }
       run_parallel(threads, work, &context);                                                                        */

#ifndef CLEARHEAD_THREADS_H
#define CLEARHEAD_THREADS_H

#include <stdint.h>

typedef struct {
    int number, count; /* which of how many */
} Worker;

typedef struct {
    int64_t first, last; /* the last is not included */
} Range;

/* The part of a loop that a worker does. */
static inline Range share(const Worker *worker, int64_t count) {
    return (Range){count * worker->number / worker->count, count * (worker->number + 1) / worker->count};
}

/* Call `work` in as many threads, or in fewer where there are no more: another call may have them. */
void run_parallel(int threads, void (*work)(const Worker *, void *), void *context);

/* Wait until all workers of a call are here. */
void barrier(const Worker *worker);

#endif
