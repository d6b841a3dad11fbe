/* Op times from CUPTI's activity records (shim/timing.h). */
#ifndef VM_HOOKS_TIMING_CUPTI_H
#define VM_HOOKS_TIMING_CUPTI_H

/* Lets the recorder choose it. No library is opened before it does. */
void vm_timing_cupti_offer(void);

#endif
