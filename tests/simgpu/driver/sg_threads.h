/* sg_threads.h: who is about. The clock of the host is one; a thread that waits lets the others run
 * on before the clock jumps to the completion it waits for. */
#ifndef SG_THREADS_H
#define SG_THREADS_H

#include <stdbool.h>

void sg_thread_enters(void);      /* the calling thread is about to take the lock */
void sg_thread_called(void);      /* the calling thread made a call */
void sg_thread_waits(bool waits); /* it starts or stops to wait inside the driver */
bool sg_thread_settled(void); /* no other thread runs: the clock may jump; lets others in first */
bool sg_thread_knocks(void);  /* another thread wants the lock */
void sg_thread_nap(void);     /* lets others in for a moment; gives the lock back meanwhile */

/* A thread of the simulator's own plays on when the program has host functions pending and makes no
 * calls: a real device would not stand still while the host spins on what such a function sets. */
void sg_thread_keep_going(void);

#endif
