#include "sg_threads.h"
#include "sg.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 100000
/* A thread that made no call for this long and is not asleep computes something that the model does
 * not see: nobody waits for it. */
#define BUSY_NS 50000000

struct thread {
    struct thread *next;
    uint64_t seen;
    pid_t tid;
    bool waits, gone;
    atomic_bool entering; /* about to take the lock */
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
        me->tid = gettid();
        me->next = threads;
        threads = me;
        nthreads++;
    }
    atomic_store_explicit(&me->entering, false, memory_order_relaxed);
    if (nthreads > 1)
        me->seen = real_ns();
}

void sg_thread_enters(void)
{
    if (me)
        atomic_store_explicit(&me->entering, true, memory_order_relaxed);
}

void sg_thread_waits(bool waits)
{
    if (!me)
        return;
    me->waits = waits;
    if (!waits && nthreads > 1)
        me->seen = real_ns();
}

/* Asleep, as the kernel says: in a system call, waiting for something that is not this driver. */
static bool asleep(struct thread *t)
{
    char name[64], text[512];
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)t->tid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        t->gone = true;
        return true;
    }
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return true;
    text[n] = 0;
    const char *p = strrchr(text, ')'); /* behind the name comes the state */
    return !p || p[1] != ' ' || p[2] == 'S';
}

bool sg_thread_knocks(void)
{
    for (struct thread *t = threads; t; t = t->next)
        if (t != me && !t->waits && atomic_load_explicit(&t->entering, memory_order_relaxed))
            return true;
    return false;
}

/* No other thread is about to issue work: those that sleep, or compute for long without a call, are
 * not waited for. */
static bool alone(void)
{
    uint64_t now = real_ns();
    for (struct thread *t = threads; t; t = t->next) {
        if (t == me || t->waits || t->gone)
            continue;
        if (atomic_load_explicit(&t->entering, memory_order_relaxed))
            return false;
        if (now - t->seen < BUSY_NS && !asleep(t))
            return false;
    }
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
        while (quiet && (sg.hostfns_pending || sg.parked || sg.shared_records) && seen == sg.entered && sg_play_one())
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

/* Twice, because a thread that was just woken still looks asleep. */
bool sg_thread_settled(void)
{
    if (nthreads <= 1)
        return true;
    bool first = alone();
    sg_thread_nap();
    return first && alone();
}
