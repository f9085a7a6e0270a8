/* One pool of threads for the process. A call that finds it in use works alone: then there is a call for each core
   already. Threads wait for the next call for some microseconds, because the next step usually follows at once, and
   then sleep.                                                                                                        */

#if defined(__linux__)
#define _GNU_SOURCE /* for the processors that a thread runs on */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "threads.h"

#if defined(_WIN32)

void run_parallel(int threads, void (*work)(const Worker *, void *), void *context) {
    (void)threads;
    work(&(Worker){0, 1}, context);
}

void barrier(const Worker *worker) {
    (void)worker;
}

#else

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    MOST = 64,        /* threads of the pool */
    SPINS = 4000,     /* looks at a flag before a worker sleeps that waits for another one */
    PATIENCE = 20000, /* looks for the next call before a thread sleeps */
};

static struct {
    pthread_mutex_t in_use, sleep;
    pthread_cond_t wake, go_on;
    void (*work)(const Worker *, void *);
    void *context;
    int count;   /* workers of the call, the caller included */
    double last; /* when the last call ended */
#if defined(__linux__)
    cpu_set_t processors;        /* that a thread may run on */
    atomic_int apart, ids[MOST]; /* whether they were kept from the caller's; the threads, as the system counts them */
#endif
    int threads;          /* that were started */
    atomic_int sleeping;  /* of them */
    atomic_int busy;      /* those that have not finished the call */
    atomic_uint call;     /* its number */
    atomic_uint finished; /* calls that all threads have finished */
    atomic_int arrived;   /* workers at the barrier */
    atomic_uint barriers; /* that were passed */
    atomic_int resting;   /* workers that sleep within a call */
} pool = {.in_use = PTHREAD_MUTEX_INITIALIZER,
          .sleep = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .go_on = PTHREAD_COND_INITIALIZER};

static unsigned before_first_call[MOST]; /* of each thread */
static const double PAUSE = 0.005;       /* seconds between two calls after which the system may put threads anywhere */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static inline void look_again(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until a number has changed. Whoever waits for long sleeps: the other may have lost its processor to another
   program, and can have this one.                                                                                    */
static void await(const atomic_uint *number, unsigned old) {
    for (int looks = 0; looks < SPINS; looks++, look_again())
        if (atomic_load(number) != old) return;
    pthread_mutex_lock(&pool.sleep);
    atomic_fetch_add(&pool.resting, 1);
    while (atomic_load(number) == old) pthread_cond_wait(&pool.go_on, &pool.sleep);
    atomic_fetch_sub(&pool.resting, 1);
    pthread_mutex_unlock(&pool.sleep);
}

/* Count on a number that others may wait for. */
static void announce(atomic_uint *number) {
    atomic_fetch_add(number, 1);
    if (!atomic_load(&pool.resting)) return;
    pthread_mutex_lock(&pool.sleep);
    pthread_cond_broadcast(&pool.go_on);
    pthread_mutex_unlock(&pool.sleep);
}

void barrier(const Worker *worker) {
    if (worker->count == 1) return;
    unsigned passed = atomic_load(&pool.barriers);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 == worker->count) {
        atomic_store(&pool.arrived, 0);
        announce(&pool.barriers);
    } else
        await(&pool.barriers, passed);
}

/* Until there is another call than the last. */
static unsigned next_call(unsigned last) {
    for (int looks = 0; looks < PATIENCE; looks++) {
        if (atomic_load(&pool.call) != last) return atomic_load(&pool.call);
        look_again();
    }
    pthread_mutex_lock(&pool.sleep);
    atomic_fetch_add(&pool.sleeping, 1);
    while (atomic_load(&pool.call) == last) pthread_cond_wait(&pool.wake, &pool.sleep);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.sleep);
    return atomic_load(&pool.call);
}

/* A thread that wakes is often put beside the one that woke it, which does not let it begin for milliseconds. So before
   it wakes it is kept from that processor; when it has begun, it may run anywhere again.                             */
#if defined(__linux__)
static void keep_apart(void) {
    cpu_set_t others;
    int processor = sched_getcpu();
    if (processor < 0 || sched_getaffinity(0, sizeof pool.processors, &pool.processors)) return;
    others = pool.processors;
    CPU_CLR(processor, &others);
    pool.apart = CPU_COUNT(&others) > 0;
    for (int i = 1; pool.apart && i <= pool.threads; i++)
        if (pool.ids[i]) sched_setaffinity(pool.ids[i], sizeof others, &others);
}

static void clear_apart(void) {
    pool.apart = 0;
}

static void begin_anywhere(void) {
    if (pool.apart) sched_setaffinity(0, sizeof pool.processors, &pool.processors);
}

static void note_thread(int number) {
    pool.ids[number] = (int)syscall(SYS_gettid);
}
#else
static void keep_apart(void) {
}
static void clear_apart(void) {
}
static void begin_anywhere(void) {
}
static void note_thread(int number) {
    (void)number;
}
#endif

/* Every thread of the pool takes note of every call, so that none is late for the one after it. */
static void *work_on_calls(void *number) {
    int own = (int)(intptr_t)number;
    note_thread(own);
    for (unsigned call = before_first_call[own];;) {
        call = next_call(call);
        begin_anywhere();
        if (own < pool.count) pool.work(&(Worker){own, pool.count}, pool.context);
        if (atomic_fetch_sub(&pool.busy, 1) == 1) announce(&pool.finished);
    }
    return NULL;
}

/* A child process has none of the threads. */
static void forget_threads(void) {
    pthread_mutex_init(&pool.in_use, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.go_on, NULL);
    pool.threads = 0;
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.resting, 0);
    atomic_store(&pool.arrived, 0);
}

static void start_threads(int count) {
    static int prepared = 0;
    if (!prepared) prepared = 1, pthread_atfork(NULL, NULL, forget_threads);
    while (pool.threads < count) {
        pthread_t thread;
        intptr_t number = pool.threads + 1;
        before_first_call[number] = atomic_load(&pool.call);
        if (pthread_create(&thread, NULL, work_on_calls, (void *)number)) return;
        pthread_detach(thread);
        pool.threads++;
    }
}

void run_parallel(int threads, void (*work)(const Worker *, void *), void *context) {
    threads = threads < MOST ? threads : MOST;
    if (threads < 2 || pthread_mutex_trylock(&pool.in_use)) {
        work(&(Worker){0, 1}, context);
        return;
    }
    start_threads(threads - 1);
    pool.work = work, pool.context = context;
    pool.count = threads <= pool.threads ? threads : pool.threads + 1;
    Worker caller = {0, pool.count};
    atomic_store(&pool.busy, pool.threads);
    unsigned finished = atomic_load(&pool.finished);
    int asleep = atomic_load(&pool.sleeping);
    if (asleep && seconds() > pool.last + PAUSE) keep_apart();
    atomic_fetch_add(&pool.call, 1);
    if (asleep || atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    work(&caller, context);
    if (pool.threads) await(&pool.finished, finished);
    clear_apart();
    pool.last = seconds();
    pthread_mutex_unlock(&pool.in_use);
}

#endif
