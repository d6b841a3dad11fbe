/* torture.h: random CUDA programs with a plain model beside them.
 *
 * A seed makes a program: a list of intents in phases, some of which repeat like the iterations of a
 * trainer. An intent names slots and streams; it is carried out if the state allows it and skipped
 * otherwise, so that any part of a program is a program again (this is what makes shrinking easy).
 * Every operation is done twice: on the device by the driver API, and at once on ordinary host memory
 * (the model). The program orders its operations as CUDA demands, by events, stream and context waits
 * or the rules of the default stream, and knows at any time what it may read on the host. What comes
 * back from the device is compared with the model byte by byte.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#define SLOTS    20 /* blocks of one world; the upper half is freed at the end of each repeat */
#define STREAMS  5  /* 0 is the legacy default stream */
#define GRAPHS   3
#define TABLES   2  /* blocks that hold addresses of others */
#define ENTRIES  4  /* addresses in one table */
#define BUFFERS  8  /* pinned buffers for copies under way */
#define MAX_WORDS 16384u
#define MAX_ARGS 6
#define WORLDS   3  /* threads at most */

/* ---- the random source --------------------------------------------------------------------------*/

struct rng {
    uint64_t state;
};
uint32_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n); /* 0 .. n-1, n > 0 */

/* ---- programs (program.c) -----------------------------------------------------------------------*/

enum intent_kind {
    DO_ALLOC, DO_FREE, DO_LAUNCH, DO_SWAP, DO_UPLOAD, DO_READBACK, DO_COPY, DO_COPY_2D, DO_MEMSET,
    DO_SYNC, DO_GRAPH_MAKE, DO_GRAPH_LAUNCH, DO_GRAPH_DROP, DO_TABLE_COPY, DO_TABLE_STORE,
    DO_TABLE_MAPPED, DO_GATHER, DO_POLL, INTENT_KINDS
};
extern const char *const intent_names[INTENT_KINDS];

struct intent {
    uint8_t kind, stream, variant, nslots;
    uint8_t slot[MAX_ARGS];
    uint32_t words, salt;
    uint32_t id; /* position in the whole program */
};
struct phase {
    uint32_t first, count, repeats;
};
struct program {
    struct intent *intents;
    uint32_t nintents;
    struct phase phases[4];
    uint32_t nphases;
};

struct settings {
    uint32_t worlds;         /* threads */
    uint32_t budget_percent; /* of the peak of live bytes */
    uint32_t granularity;
    int numa;                /* which host backend */
    int scratch;             /* many graphs, and captures that allocate */
    int hidden;              /* accesses through tables that no copy shows */
};
/* `at_least` is the least number of threads. scratch is left 0. */
void settings_make(uint64_t seed, uint32_t at_least, struct settings *s);
/* The program of world `world`; freed by program_fini. Exits on lack of memory. */
void program_make(uint64_t seed, uint32_t world, const struct settings *s, struct program *p);
void program_fini(struct program *p);

/* ---- kernels and their arithmetic (kernels.c) ---------------------------------------------------*/

struct mix_args {
    uint64_t dst;
    uint32_t words, salt, total, nsrc;
    uint64_t src[4];
    uint32_t src_words[4];
};
struct swap_args {
    uint64_t a, b;
    uint32_t words, salt;
};
struct table_entry {
    uint64_t address, words;
};
struct gather_args {
    uint64_t table, dst;
    uint32_t entries, words, salt, stores; /* stores: what the table names is written too */
};
struct store_args {
    uint64_t table, address;
    uint32_t index, words;
};
extern const void *const torture_image;

/* The same on host memory: pointers in the structures are host addresses. */
void mix_compute(const struct mix_args *a);
void swap_compute(const struct swap_args *a);
void gather_compute(const struct gather_args *a);

/* ---- worlds (world.c, ops.c, graphs.c) ----------------------------------------------------------*/

struct slot {
    int live, defined;
    int async;        /* allocated in a stream */
    int held;         /* graphs that name it */
    int escaped;      /* its address is in a table: it may have to stay on the device */
    CUdeviceptr p;
    uint32_t words;
    uint32_t *model;
    uint64_t born;    /* tells one life from the next */
    int writer;       /* stream of the last write, -1: none */
    uint64_t writer_at, read_at[STREAMS];
};

struct table {
    struct slot block;          /* its model holds struct table_entry of host addresses */
    int mapped;                 /* in mapped host memory: the program writes it without a call */
    int target[ENTRIES];
    uint64_t target_born[ENTRIES];
    int entries;                /* 0: nothing written yet */
    struct table_entry *host;   /* mapped tables */
};

struct buffer { /* pinned memory that an operation under way reads or writes */
    uint32_t *pinned, *expected;
    uint32_t words;
    int stream, busy, check;
    uint64_t at;
    uint32_t intent;
};

enum sub_kind { SUB_MIX, SUB_SWAP, SUB_FILL, SUB_COPY };
struct sub { /* one node of a graph */
    enum sub_kind kind;
    int slot[3];
    uint32_t salt, total;
};
struct graph {
    int live;
    CUgraphExec exec;
    struct sub subs[6];
    uint32_t nsubs;
    uint64_t modes; /* two bits a slot: 1 read, 2 write */
    uint32_t scratch_words; /* allocated in the capture: the graph holds it */
};

/* One device of the program: worlds are dealt over them. */
struct gpu {
    CUcontext context;
    CUfunction mix, swap, gather, store;
};

#define GPUS 2

struct shared {
    struct gpu gpus[GPUS];
    uint32_t ngpus;
    int dry;           /* no device: only what the program would need */
    int graphs;        /* the driver can capture */
    int scratch;       /* and memory can be had in a capture */
    int verbose;
    _Atomic int hidden_used; /* a table of addresses was followed */
    /* whose turn it is among the threads; unused (turns 0) where they run freely */
    int turns;
    uint64_t seed;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t turn, alive; /* alive: one bit a world */
    int heart;            /* a file descriptor that gets a byte now and then, -1: none */
};

struct world {
    struct shared *shared;
    const struct gpu *gpu; /* the device it works on */
    uint32_t number;
    struct rng rng;    /* how things are done, not what */
    struct slot slots[SLOTS];
    struct table tables[TABLES];
    struct graph graphs[GRAPHS];
    struct buffer buffers[BUFFERS];
    CUstream streams[STREAMS];
    CUevent events[STREAMS], inner[2]; /* inner: inside captures */
    int blocking[STREAMS];
    uint64_t now[STREAMS];               /* operations issued */
    uint64_t order[STREAMS][STREAMS];    /* order[s][t]: what of t precedes new work on s */
    uint64_t known[STREAMS];             /* what of t the host knows to be done */
    /* as of the last operation of the legacy stream: what precedes it, and itself */
    uint64_t legacy_order[STREAMS], legacy_now;
    uint64_t lives;
    uint64_t scratch_words; /* that graphs hold */
    uint64_t live_words, peak_words; /* and what must be on the device at once: */
    uint64_t op_words, worst_op_words;
    uint32_t done, skipped, checked;
    const struct intent *current;
    int in_turn;          /* takes part in the turns */
    uint32_t step, calls; /* intents come to, left out or not; calls of the present one */
};

void world_open(struct world *w, struct shared *s, uint32_t number, uint64_t seed, int single);
void world_run(struct world *w, const struct program *p, const uint8_t *keep);
void world_close(struct world *w); /* reads everything back, compares, frees */

/* Ends the process as the result deserves unless `r` is a success. */
#define TRY(w, call)                                                                               \
    (turn_pass(w, 0), torture_check(w, call, #call, __FILE__, __LINE__))
void torture_check(const struct world *w, CUresult r, const char *call, const char *file, int line);
_Noreturn void torture_wrong(const struct world *w, const char *what, uint32_t word, uint32_t got,
                             uint32_t want);

/* Threads by turns: one runs at a time, and who goes on is drawn at each intent and at some calls. The
 * draw depends on the seed and on the place in the thread's program alone, so that a run repeats exactly
 * and most of the order stays when intents are left out. */
void turn_enter(struct world *w);           /* waits for the first turn */
void turn_pass(struct world *w, int always); /* may give the turn away and wait for the next */
void turn_leave(struct world *w);

/* Ordering; `mode` 1 reads, 2 writes, 3 both. touch() before the operation is issued on `s`, issue()
 * once, then mark() for each slot. */
void order_touch(struct world *w, struct slot *b, int s, int mode);
void order_issue(struct world *w, int s);
void order_issue_memory(struct world *w, int s); /* an allocation or a free in the stream */
void order_mark(struct world *w, struct slot *b, int s, int mode);
void order_host_sync(struct world *w, int s); /* waits for the stream */
void order_host_sync_all(struct world *w);
void buffers_settle(struct world *w);         /* compares what has arrived */
struct buffer *buffer_take(struct world *w, int s);

int slot_alloc(struct world *w, struct slot *b, uint32_t words, int s, int variant);
void slot_free(struct world *w, struct slot *b, int s, int variant);
void do_intent(struct world *w, const struct intent *i);
void do_graph(struct world *w, const struct intent *i);
void do_table(struct world *w, const struct intent *i);
void graph_drop(struct world *w, struct graph *g);
void table_drop(struct world *w, struct table *t);
void launch(struct world *w, CUfunction f, void *args, size_t bytes, uint32_t words, int s,
            int packed);

/* Exit codes. */
enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_LOUD = 3, EXIT_MEMORY = 4 };

#endif
