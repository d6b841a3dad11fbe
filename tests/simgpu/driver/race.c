/* Race check. */
#include "sg.h"

void sg_race_issue(struct sg_op *op, struct sg_stream *s) { (void)op; (void)s; }
void sg_race_join(struct sg_op *op, const struct sg_op *pred) { (void)op; (void)pred; }
void sg_race_host_saw(const struct sg_op *op) { (void)op; }
void sg_race_access(struct sg_op *op, struct sg_phys *p, uint64_t off, size_t bytes, int mode, uint64_t va)
{ (void)op; (void)p; (void)off; (void)bytes; (void)mode; (void)va; }
void sg_race_host_write(struct sg_phys *p, uint64_t off, size_t bytes) { (void)p; (void)off; (void)bytes; }
void sg_race_free(struct sg_phys *p, uint64_t off, size_t bytes, uint64_t va, const char *what)
{ (void)p; (void)off; (void)bytes; (void)va; (void)what; }
void sg_race_forget(struct sg_phys *p) { (void)p; }
void sg_race_op_done(struct sg_op *op) { (void)op; }
unsigned sg_race_lane_new(void) { return 0; }
void sg_race_clock_free(struct sg_op *op) { (void)op; }
