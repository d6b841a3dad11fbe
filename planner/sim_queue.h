/* The plan simulator's queues: first in, first out, growing. One owner; not thread-safe. */
#ifndef VM_PLANNER_SIM_QUEUE_H
#define VM_PLANNER_SIM_QUEUE_H

#include <stddef.h>
#include <stdint.h>

/* Pages asked to leave or to come. */
struct vm_sim_request {
    uint32_t unit, npages, use, move;
    uint64_t need; /* absolute op that needs them */
};

struct vm_sim_requests {
    struct vm_sim_request *r; /* those waiting: r[head] .. r[tail - 1] */
    size_t head, tail, cap;
};

/* A copy that ended on the device and waits for the host to map or unmap its pages. */
struct vm_sim_done {
    double begun, at; /* ns */
    uint32_t unit, npages, move;
};

struct vm_sim_dones {
    struct vm_sim_done *d;
    size_t head, tail, cap;
};

/* Append. 0 or VM_ENOMEM. */
int vm_sim_requests_push(struct vm_sim_requests *q, struct vm_sim_request r);
int vm_sim_dones_push(struct vm_sim_dones *q, struct vm_sim_done d);

#endif
