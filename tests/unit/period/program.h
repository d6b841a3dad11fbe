/* Makes the trace of a training program that does not exist: for tests of what reads traces. */
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

#include "trace.h"

struct program {
    unsigned layers;     /* >= 1 */
    unsigned steps;      /* time steps of an unrolled network; 1: not unrolled */
    unsigned accumulate; /* micro-batches an update */
    unsigned iterations;
    unsigned setup_ops;  /* irregular ops before the first iteration */
    bool first_differs;  /* the first iteration also searches algorithms and fills the momentum */
    bool upfront;        /* every tensor is allocated before the first iteration */
    bool slices;         /* the time steps of a layer share one block */
    bool quiet;          /* nothing is copied back */
    bool unknown_maps;   /* activation kernels are untyped */
    bool unknown_update; /* the optimizer is an untyped kernel */
    bool unknown_all;    /* no library call is typed */
    unsigned stale;      /* one untyped launch in so many shows the address of a block it does not use */
    unsigned pieces;     /* an untyped kernel works on the first map in so many launches; 0: there is none */
    bool marks;          /* vmem_step() after each iteration */
    bool constants;      /* layers also read a constant block */
    bool rebinds; /* each micro-batch has a new input block; the old one goes once that is filled */
    unsigned seed;
    /* results */
    size_t period;      /* ops of one iteration (not the first if it differs)  */
    size_t micro_batch; /* ops of one micro-batch */
    size_t ends[64];    /* position just after each iteration (the first 64) */
};

/* Appends to the empty trace. Aborts the test when memory ends. */
void program_trace(struct program *p, struct vm_trace *t);

/* Draws a program from a seed. */
void program_draw(struct program *p, unsigned seed);
void program_print(const struct program *p);

/* A small generator of its own, the same everywhere. */
unsigned program_random(unsigned *state, unsigned below);

#endif
