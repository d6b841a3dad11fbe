/* cuDNN's backend API (cudnn_backend.def). cuDNN reads back neither an operation's tensors nor a
 * pack's pointers, so what matters of each descriptor is noted when it is set; at execution the
 * plan's graph says by identifier what is read and written, and the pack where that is. What was
 * not seen whole is not described: its launches are then all that libvmem knows. */
#include <cudnn.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_types.h"
#include "library.h"

/* The dispatchers: the parts they load (libcudnn_graph and others) never call these by name. */
static const char *const sonames[] = {"libcudnn.so.9", "libcudnn.so.8", NULL};
static const struct vm_library cudnn = {sonames};

/* ---- the table --------------------------------------------------------------------------------*/

enum access { BE_IN, BE_OUT, BE_TRAIN, BE_PW, BE_BOTH };

struct row {
    uint16_t attribute;
    uint8_t layer, direction, access, role;
};

#define VM_OPF_0 0
#define VM_BE_CALL(function, purpose)
#define VM_BE_PARTIAL(attribute)
#define VM_BE_BETA(attribute)
#define VM_BE_OTHER(attribute)
static const struct row rows[] = {
#define VM_BE_TENSOR(attribute, layer, direction, access, role)                                    \
    {attribute, VM_LAYER_##layer, VM_OPF_##direction, BE_##access, VM_ROLE_##role},
#include "cudnn_backend.def"
#undef VM_BE_TENSOR
};
#define VM_BE_TENSOR(attribute, layer, direction, access, role)
#undef VM_BE_PARTIAL
#undef VM_BE_BETA
#undef VM_BE_OTHER

static const struct row *row_of(int attribute)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].attribute == attribute)
            return &rows[i];
    return NULL;
}

/* What an attribute means beside naming a tensor. */
enum remark { BE_PLAIN, BE_PARTIAL, BE_BETA, BE_OTHER };

static enum remark remark_of(int attribute)
{
    switch (attribute) {
#define VM_BE_PARTIAL(a)                                                                           \
    case a:                                                                                        \
        return BE_PARTIAL;
#define VM_BE_BETA(a)                                                                              \
    case a:                                                                                        \
        return BE_BETA;
#define VM_BE_OTHER(a)                                                                             \
    case a:                                                                                        \
        return BE_OTHER;
#include "cudnn_backend.def"
#undef VM_BE_PARTIAL
#undef VM_BE_BETA
#undef VM_BE_OTHER
    default:
        return BE_PLAIN;
    }
}

/* Engines, kernel caches and device properties have numbers between the operations'. */
static bool is_of_operation(int attribute)
{
    return (attribute >= 700 && attribute < 800) ||
           (attribute >= 1500 && attribute / 100 != 24 && attribute / 100 != 27);
}

/* Attributes that are read here for their value or their place in the chain, by the same numbers.
 */
enum {
    A_POINTWISE_MODE = 0,
    A_HEUR_GRAPH = 201,
    A_HEUR_RESULTS = 202,
    A_CONFIG_ENGINE = 300,
    A_PLAN_CONFIG = 401,
    A_PLAN_WORKSPACE = 402,
    A_POINTWISE_DESC = 750,
    A_GRAPH_OPS = 801,
    A_TENSOR_TYPE = 901,
    A_TENSOR_DIMS = 902,
    A_TENSOR_STRIDES = 903,
    A_TENSOR_VECTOR = 904,
    A_TENSOR_UID = 906,
    A_TENSOR_VIRTUAL = 907,
    A_TENSOR_BY_VALUE = 908,
    A_TENSOR_REORDERED = 909,
    A_TENSOR_CONSTANT = 910,
    A_TENSOR_RAGGED = 913,
    A_PACK_UIDS = 1000,
    A_PACK_POINTERS = 1001,
    A_PACK_WORKSPACE = 1003,
    A_PACK_OVERRIDES = 1010,
    A_ENGINE_GRAPH = 1300,
    A_MATMUL_C = 1522,
    A_NORM_PHASE = 2001,
    A_SDPA_SUBGRAPH = 2811,
    A_SDPA_SOFTMAX = 2814,
    A_SDPA_DROPOUT = 2818,
    A_SDPA_BWD_SUBGRAPH = 2867,
};

/* ---- what is noted of a descriptor ------------------------------------------------------------*/

enum { DIMS = 8, USES = VM_LIBCALL_ACCESSES - 1 /* and the workspace */ };

struct tensor {
    int64_t uid, dim[DIMS], str[DIMS];
    int dims, strs, type;
    bool in_memory, odd; /* odd: the dims do not say which bytes it has */
};

/* A graph, or the part that one operation is of it. Never changes once it is shared. */
struct graph {
    unsigned refs, n, products;
    uint8_t layer, flags;
    bool unknown, partial, impure;
    struct use {
        int64_t uid;
        size_t bytes; /* 0: not known */
        uint8_t mode, role;
        bool packed;
    } use[USES];
};

struct pack {
    unsigned nuids, npointers;
    int64_t uid[USES + 1];
    void *pointer[USES + 1];
    void *workspace;
    bool too_many, overridden;
};

/* One descriptor; the parts that its attributes asked for. */
struct note {
    const void *desc;
    struct note *next; /* of the bucket */
    int64_t mode;      /* of a pointwise descriptor, or the phase of a normalisation */
    bool accumulates;
    int64_t workspace_bytes; /* of a plan; -1: not asked yet */
    struct tensor *tensor;
    struct operand {
        int attribute;
        struct tensor t;
    } * operands;
    unsigned noperands;
    struct graph *graph;
    struct pack *pack;
};

enum { BUCKETS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct note *buckets[BUCKETS];

static struct note **place_of(const void *desc)
{
    struct note **at = &buckets[((uintptr_t)desc >> 4) % BUCKETS];
    while (*at && (*at)->desc != desc)
        at = &(*at)->next;
    return at;
}

static struct note *find(const void *desc)
{
    return *place_of(desc);
}

static struct note *find_or_make(const void *desc)
{
    struct note **at = place_of(desc);
    if (!*at && (*at = calloc(1, sizeof **at))) {
        (*at)->desc = desc;
        (*at)->workspace_bytes = -1;
    }
    return *at;
}

static void release(struct graph *g)
{
    if (g && --g->refs == 0)
        free(g);
}

static void set_graph(struct note *n, struct graph *g)
{
    if (g)
        g->refs++;
    release(n->graph);
    n->graph = g;
}

static void forget(const void *desc)
{
    struct note **at = place_of(desc), *n = *at;
    if (!n)
        return;
    *at = n->next;
    release(n->graph);
    free(n->tensor);
    free(n->operands);
    free(n->pack);
    free(n);
}

/* ---- tensors ----------------------------------------------------------------------------------*/

/* Bytes from the first to the last, 0 where that is not known; whether all of them are elements. */
static size_t extent(const struct tensor *t, bool *packed)
{
    size_t element = vm_cudnn_element_bytes(t->type), count = element, last = 0;
    *packed = false;
    if (t->odd || !element || t->dims < 1 || t->dims != t->strs)
        return 0;
    for (int i = 0; i < t->dims; i++) {
        if (t->dim[i] < 1 || t->str[i] < 0)
            return 0;
        count *= (size_t)t->dim[i];
        last += (size_t)(t->dim[i] - 1) * (size_t)t->str[i];
    }
    *packed = count == (last + 1) * element;
    return (last + 1) * element;
}

static int copy_ints(int64_t out[DIMS], int64_t count, const void *data)
{
    if (count < 0 || count > DIMS)
        return -1;
    memcpy(out, data, (size_t)count * sizeof *out);
    return (int)count;
}

static void note_tensor(struct note *n, int attribute, int64_t count, const void *data)
{
    if (!n->tensor && (n->tensor = calloc(1, sizeof *n->tensor)))
        n->tensor->in_memory = true;
    struct tensor *t = n->tensor;
    if (!t || count < 1 || !data)
        return;
    switch (attribute) {
    case A_TENSOR_TYPE:
        memcpy(&t->type, data, sizeof t->type);
        break;
    case A_TENSOR_DIMS:
        t->dims = copy_ints(t->dim, count, data);
        break;
    case A_TENSOR_STRIDES:
        t->strs = copy_ints(t->str, count, data);
        break;
    case A_TENSOR_UID:
        memcpy(&t->uid, data, sizeof t->uid);
        break;
    case A_TENSOR_VECTOR:
        t->odd |= *(const int64_t *)data != 1;
        break;
    case A_TENSOR_VIRTUAL:
    case A_TENSOR_BY_VALUE:
        t->in_memory = t->in_memory && !*(const bool *)data;
        break;
    case A_TENSOR_CONSTANT:
        t->in_memory = false;
        break;
    case A_TENSOR_REORDERED:
        t->odd |= *(const int32_t *)data != 0;
        break;
    default: /* ragged */
        t->odd = true;
    }
}

/* ---- operations and graphs --------------------------------------------------------------------*/

static void add_use(struct graph *g, const struct tensor *t, unsigned mode, unsigned role)
{
    if (!t->in_memory)
        return;
    if (g->n == USES) {
        g->unknown = true; /* what is left out would be taken for untouched */
        return;
    }
    struct use *u = &g->use[g->n++];
    *u = (struct use){.uid = t->uid, .mode = (uint8_t)mode, .role = (uint8_t)role};
    u->bytes = extent(t, &u->packed);
    g->partial |= t->odd;
}

static struct graph *new_graph(void)
{
    struct graph *g = calloc(1, sizeof *g);
    if (g)
        g->refs = 1;
    return g;
}

/* Which layer a fused graph is: the one that does most. */
static int rank(int layer)
{
    static const uint8_t ranks[] = {
        [VM_LAYER_ELEMENTWISE] = 1, [VM_LAYER_DROPOUT] = 2, [VM_LAYER_ACT] = 3,
        [VM_LAYER_SOFTMAX] = 4,     [VM_LAYER_GEMM] = 5,    [VM_LAYER_POOL] = 6,
        [VM_LAYER_NORM] = 7,        [VM_LAYER_CONV] = 8,
    };
    return layer >= 0 && (size_t)layer < sizeof ranks ? ranks[layer] : 0;
}

static void mark(struct graph *g, int layer, unsigned direction)
{
    if (rank(layer) > rank(g->layer))
        g->layer = (uint8_t)layer;
    g->flags |= (uint8_t)direction;
}

static bool is_gradient(int64_t pointwise_mode)
{
    return pointwise_mode >= 200 && pointwise_mode < 300;
}

static unsigned mode_of(const struct note *op, const struct row *r)
{
    bool out = r->access == BE_OUT || (r->access == BE_TRAIN && op->mode == 1) ||
               (r->access == BE_PW && !is_gradient(op->mode));
    if (r->access == BE_BOTH || (out && op->accumulates))
        return VM_RW;
    return out ? VM_WRITE : VM_READ;
}

/* Adds an operation to a graph. Operations with parts of their own (attention) have noted those as
 * a graph of theirs. */
static void add_operation(struct graph *g, const struct note *op)
{
    if (!op || (!op->noperands && !op->graph)) {
        g->unknown = true;
        return;
    }
    for (unsigned i = 0; i < op->noperands; i++) {
        const struct row *r = row_of(op->operands[i].attribute);
        bool pointwise = r->attribute >= 751 && r->attribute <= 758;
        bool activation = pointwise && op->mode >= 100 && op->mode < 300;
        mark(g, activation ? VM_LAYER_ACT : r->layer,
             activation && !is_gradient(op->mode) ? VM_OPF_FORWARD : r->direction);
        g->partial |= remark_of(r->attribute) == BE_PARTIAL;
        g->products += r->attribute == A_MATMUL_C;
        g->impure |= r->layer == VM_LAYER_DROPOUT || r->direction == VM_OPF_BACKWARD ||
                     op->accumulates || r->access == BE_BOTH ||
                     (r->access == BE_TRAIN && op->mode == 1);
        add_use(g, &op->operands[i].t, mode_of(op, r), r->role);
    }
    if (op->graph) {
        const struct graph *part = op->graph;
        g->unknown |= part->unknown;
        g->partial |= part->partial;
        g->impure |= part->impure;
        g->products += part->products;
        for (unsigned i = 0; i < part->n; i++) {
            if (g->n == USES)
                g->unknown = true;
            else
                g->use[g->n++] = part->use[i];
        }
    }
}

/* The graph of an operation under construction, its own to change. */
static struct graph *own_graph(struct note *n)
{
    if (!n->graph)
        n->graph = new_graph();
    return n->graph;
}

static void note_operand(struct note *op, int attribute, const struct note *child)
{
    struct operand *more = realloc(op->operands, (op->noperands + 1) * sizeof *more);
    if (more) {
        op->operands = more;
        more[op->noperands].attribute = attribute;
        more[op->noperands++].t = *child->tensor;
    } else if (own_graph(op)) {
        op->graph->unknown = true;
    }
}

/* Descriptors set in a descriptor. */
static void note_children(struct note *n, int attribute, int64_t count, void *const *children)
{
    if (attribute == A_GRAPH_OPS) {
        struct graph *g = new_graph();
        for (int64_t i = 0; g && i < count; i++)
            add_operation(g, find(children[i]));
        set_graph(n, g);
        release(g);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const struct note *child = find(children[i]);
        if (attribute == A_HEUR_GRAPH || attribute == A_CONFIG_ENGINE ||
            attribute == A_PLAN_CONFIG || attribute == A_ENGINE_GRAPH) {
            set_graph(n, child ? child->graph : NULL);
        } else if (attribute == A_POINTWISE_DESC) {
            n->mode = child ? child->mode : 0;
        } else if (attribute == A_SDPA_SUBGRAPH || attribute == A_SDPA_SOFTMAX ||
                   attribute == A_SDPA_BWD_SUBGRAPH) {
            if (own_graph(n))
                add_operation(n->graph, child);
        } else if (row_of(attribute) && child && child->tensor) {
            note_operand(n, attribute, child);
        } else if (is_of_operation(attribute) && remark_of(attribute) != BE_OTHER && own_graph(n)) {
            n->graph->unknown = true; /* an operation that the table does not have */
        }
    }
}

/* ---- packs ------------------------------------------------------------------------------------*/

static void note_pack(struct note *n, int attribute, int64_t count, const void *data)
{
    if (!n->pack && !(n->pack = calloc(1, sizeof *n->pack)))
        return;
    struct pack *p = n->pack;
    size_t room = sizeof p->uid / sizeof p->uid[0], many = count < 0 ? 0 : (size_t)count;
    if (attribute >= A_PACK_OVERRIDES) {
        p->overridden = true;
    } else if (attribute == A_PACK_WORKSPACE) {
        if (many)
            memcpy(&p->workspace, data, sizeof p->workspace);
    } else if (many > room) {
        p->too_many = true;
    } else if (attribute == A_PACK_UIDS) {
        memcpy(p->uid, data, many * sizeof *p->uid);
        p->nuids = (unsigned)many;
    } else if (attribute == A_PACK_POINTERS) {
        memcpy(p->pointer, data, many * sizeof *p->pointer);
        p->npointers = (unsigned)many;
    }
}

static bool is_zero(int type, const void *data)
{
    return vm_library_zero(data, type == CUDNN_TYPE_DOUBLE ? sizeof(double) : sizeof(float));
}

static void note_attribute(const void *desc, int attribute, int type, int64_t count,
                           const void *data)
{
    pthread_mutex_lock(&lock);
    struct note *n = find_or_make(desc);
    if (!n || !data || count < 1) {
        /* nothing to note */
    } else if (attribute >= A_TENSOR_TYPE && attribute <= 999) {
        note_tensor(n, attribute, count, data);
    } else if (attribute >= A_PACK_UIDS && attribute <= 1099) {
        note_pack(n, attribute, count, data);
    } else if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        note_children(n, attribute, count, (void *const *)data);
    } else if (remark_of(attribute) == BE_BETA) {
        n->accumulates = !is_zero(type, data);
    } else if (attribute == A_POINTWISE_MODE || attribute == A_NORM_PHASE) {
        n->mode = *(const int32_t *)data;
    } else if (attribute == A_SDPA_DROPOUT && own_graph(n)) {
        n->graph->impure = true;
    }
    pthread_mutex_unlock(&lock);
}

/* Descriptors that cuDNN filled stand for what they were asked of. */
static void note_answer(const void *desc, int64_t count, void *const *children)
{
    pthread_mutex_lock(&lock);
    const struct note *from = find(desc);
    for (int64_t i = 0; from && i < count; i++) {
        struct note *n = find_or_make(children[i]);
        if (n)
            set_graph(n, from->graph);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the calls --------------------------------------------------------------------------------*/

typedef cudnnStatus_t (*set_fn)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                cudnnBackendAttributeType_t, int64_t, const void *);
typedef cudnnStatus_t (*get_fn)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
typedef cudnnStatus_t (*destroy_fn)(cudnnBackendDescriptor_t);
typedef cudnnStatus_t (*execute_fn)(cudnnHandle_t, cudnnBackendDescriptor_t,
                                    cudnnBackendDescriptor_t);

#define REAL(type, name, caller)                                                                   \
    VM_LIBRARY_SLOT(slot);                                                                         \
    type real = (type)vm_library_real(&cudnn, &slot, name, caller);                                \
    if (!real)                                                                                     \
    return CUDNN_STATUS_NOT_INITIALIZED

VM_EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                 cudnnBackendAttributeName_t attributeName,
                                                 cudnnBackendAttributeType_t attributeType,
                                                 int64_t elementCount, const void *arrayOfElements)
{
    REAL(set_fn, "cudnnBackendSetAttribute", __builtin_return_address(0));
    cudnnStatus_t status =
        real(descriptor, attributeName, attributeType, elementCount, arrayOfElements);
    if (status == CUDNN_STATUS_SUCCESS && vm_doors_open())
        note_attribute(descriptor, (int)attributeName, (int)attributeType, elementCount,
                       arrayOfElements);
    return status;
}

VM_EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                 cudnnBackendAttributeName_t attributeName,
                                                 cudnnBackendAttributeType_t attributeType,
                                                 int64_t requestedElementCount,
                                                 int64_t *elementCount, void *arrayOfElements)
{
    REAL(get_fn, "cudnnBackendGetAttribute", __builtin_return_address(0));
    int64_t count = 0;
    cudnnStatus_t status = real(descriptor, attributeName, attributeType, requestedElementCount,
                                &count, arrayOfElements);
    int name = (int)attributeName;
    if (status == CUDNN_STATUS_SUCCESS && elementCount)
        *elementCount = count;
    if (status == CUDNN_STATUS_SUCCESS && arrayOfElements && vm_doors_open() &&
        (name == A_HEUR_RESULTS || name == A_CONFIG_ENGINE || name == A_PLAN_CONFIG))
        note_answer(descriptor, count < requestedElementCount ? count : requestedElementCount,
                    (void *const *)arrayOfElements);
    return status;
}

VM_EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    REAL(destroy_fn, "cudnnBackendDestroyDescriptor", __builtin_return_address(0));
    if (vm_doors_open()) { /* before the number can be another descriptor's */
        pthread_mutex_lock(&lock);
        forget(descriptor);
        pthread_mutex_unlock(&lock);
    }
    return real(descriptor);
}

/* What an execution touches, and of how large a workspace. */
struct plan_uses {
    unsigned n;
    uint8_t layer, flags;
    struct {
        void *p;
        struct use use;
        bool total;
    } at[USES];
    void *workspace;
    int64_t workspace_bytes;
};

static void *pointer_of(const struct pack *p, int64_t uid)
{
    for (unsigned i = 0; i < p->nuids && i < p->npointers; i++)
        if (p->uid[i] == uid)
            return p->pointer[i];
    return NULL;
}

/* Under the lock. False: not known whole. */
static bool join(const void *plan, const void *pack, struct plan_uses *u)
{
    const struct note *a = find(plan), *b = find(pack);
    if (!a || !a->graph || a->graph->unknown || !b || !b->pack || b->pack->too_many)
        return false;
    const struct graph *g = a->graph;
    u->n = 0;
    u->layer = g->layer;
    u->flags = g->flags & VM_OPF_BACKWARD ? VM_OPF_BACKWARD : g->flags;
    if (g->products > 2) /* attention's gradient: its sums may come in any order */
        u->flags = VM_OPF_BACKWARD;
    bool sure = !b->pack->overridden && !g->partial;
    if (!g->impure && !(u->flags & VM_OPF_BACKWARD))
        u->flags |= VM_OPF_PURE;
    for (unsigned i = 0; i < g->n; i++) {
        void *p = pointer_of(b->pack, g->use[i].uid);
        if (!p)
            return false;
        u->at[u->n].p = p;
        u->at[u->n].use = g->use[i];
        if (b->pack->overridden)
            u->at[u->n].use.bytes = 0;
        u->at[u->n].total = sure && g->use[i].packed && g->use[i].mode == VM_WRITE;
        u->n++;
    }
    u->workspace = b->pack->workspace;
    u->workspace_bytes = a->workspace_bytes;
    return true;
}

/* cuDNN says how large a plan's workspace is; asked once. */
static int64_t ask_workspace(const void *caller, cudnnBackendDescriptor_t plan)
{
    VM_LIBRARY_SLOT(slot);
    get_fn get = (get_fn)vm_library_real(&cudnn, &slot, "cudnnBackendGetAttribute", caller);
    int64_t bytes = 0, count = 0;
    if (!get || get(plan, (cudnnBackendAttributeName_t)A_PLAN_WORKSPACE, CUDNN_TYPE_INT64, 1,
                    &count, &bytes) != CUDNN_STATUS_SUCCESS)
        bytes = 0;
    pthread_mutex_lock(&lock);
    struct note *n = find(plan);
    if (n)
        n->workspace_bytes = bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

VM_EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle,
                                            cudnnBackendDescriptor_t executionPlan,
                                            cudnnBackendDescriptor_t variantPack)
{
    const void *caller = __builtin_return_address(0);
    REAL(execute_fn, "cudnnBackendExecute", caller);
    struct plan_uses u;
    struct vm_libcall call;
    if (!vm_doors_open())
        return real(handle, executionPlan, variantPack);
    pthread_mutex_lock(&lock);
    bool known = join(executionPlan, variantPack, &u);
    pthread_mutex_unlock(&lock);
    if (known && u.workspace && u.workspace_bytes < 0)
        u.workspace_bytes = ask_workspace(caller, executionPlan);
    if (!known || !vm_library_begin(&call, "cudnnBackendExecute", u.layer, u.flags))
        return real(handle, executionPlan, variantPack);
    for (unsigned i = 0; i < u.n; i++)
        vm_library_touch(&call, u.at[i].p, u.at[i].use.bytes,
                         u.at[i].use.mode | (u.at[i].total ? VM_TOTAL : 0u), u.at[i].use.role);
    if (u.workspace && u.workspace_bytes > 0)
        vm_library_touch(&call, u.workspace, (size_t)u.workspace_bytes, VM_WRITE | VM_TOTAL,
                         VM_ROLE_WORKSPACE);
    vm_library_issue();
    cudnnStatus_t status = real(handle, executionPlan, variantPack);
    vm_library_end(&call);
    return status;
}
