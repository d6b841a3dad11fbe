/* cupti_sim.h: what the two halves of the simulated CUPTI share: subscribers and callbacks (cupti.c),
 * activity records (activity.c). Locks: the driver's is taken first, then the library's. */
#ifndef SIMGPU_CUPTI_SIM_H
#define SIMGPU_CUPTI_SIM_H

#include <cupti.h>
#include <stdbool.h>
#include <stdint.h>

#include "simgpu_activity.h"

/* The driver's table; NULL when there is no simulated driver in the process. */
const struct simgpu_activity_table *cs_driver(void);

/* What the driver tells: operations and calls under its lock, new contexts outside of it. */
void cs_record(const struct simgpu_activity *a);          /* activity.c */
void cs_call_back(const struct simgpu_activity *context); /* cupti.c */

/* Makes the driver tell us things while anybody wants them. Not under the library's lock. */
void cs_listen(void);
bool cs_records_wanted(void);
bool cs_runtime_wanted(void);
/* Holds the thread back until the client's clock has come to the virtual time `now_ns`. */
void cs_pace(uint64_t now_ns);
/* Asks the client for a buffer once there is a record; its callback runs. */
void cs_ask_ahead(void);
bool cs_callbacks_wanted(void);
/* Forgets all that activity.c was asked for, as cuptiFinalize does. */
void cs_records_end(void);

/* Ids of functions by name, from the toolkit's cbid headers (generated). 0: none. */
struct cs_name {
    const char *name;
    uint32_t id;
};
extern const struct cs_name cs_driver_names[], cs_runtime_names[];
extern const unsigned cs_ndriver_names, cs_nruntime_names;
extern const struct cs_name cs_runtime_plain[]; /* without versions */
extern const unsigned cs_nruntime_plain;
uint32_t cs_driver_cbid(const char *name);
uint32_t cs_runtime_cbid(const char *name);

/* Says on stderr, once for each text, what is not modelled. */
CUptiResult cs_not_modelled(const char *what);

#endif
