#include "sg_threads.h"
#include "sg.h"

#include <stdlib.h>
#include <time.h>

/* A thread that made no call for this long is busy with something that the model does not see. */
#define QUIET_NS 400000
#define NAP_NS   100000

struct thread {
    struct thread *next;
    uint64_t seen;
    bool waits;
};
static struct thread *threads; /* never freed: a few words for each thread that ever called */
static unsigned nthreads;
static _Thread_local struct thread *me;

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void sg_thread_called(void)
{
    if (!me) {
        me = calloc(1, sizeof *me);
        if (!me)
            return;
        me->next = threads;
        threads = me;
        nthreads++;
    }
    if (nthreads > 1)
        me->seen = real_ns();
}

void sg_thread_waits(bool waits)
{
    if (!me)
        return;
    me->waits = waits;
    if (!waits && nthreads > 1)
        me->seen = real_ns();
}

bool sg_thread_alone(void)
{
    if (nthreads <= 1)
        return true;
    uint64_t now = real_ns();
    for (const struct thread *t = threads; t; t = t->next)
        if (t != me && !t->waits && now - t->seen < QUIET_NS)
            return false;
    return true;
}

void sg_thread_nap(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += NAP_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_cond_timedwait(&sg.moved, &sg.lock, &t);
}

static void *keep_going(void *unused)
{
    uint64_t seen = 0;
    pthread_mutex_lock(&sg.lock);
    for (;;) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 10000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_nsec -= 1000000000;
            t.tv_sec++;
        }
        pthread_cond_timedwait(&sg.moved, &sg.lock, &t);
        /* Only when nothing was called since last time, and no thread waits inside the driver. */
        bool quiet = seen == sg.entered;
        seen = sg.entered;
        for (const struct thread *w = threads; w; w = w->next)
            quiet = quiet && !w->waits;
        while (quiet && sg.hostfns_pending && seen == sg.entered && sg_play_one())
            ;
    }
    return unused;
}

void sg_thread_keep_going(void)
{
    static bool started;
    pthread_t t;
    if (started || pthread_create(&t, NULL, keep_going, NULL) != 0)
        return;
    started = true;
    pthread_detach(t);
}
