/* The simulated CUPTI: subscribers, callbacks, names, identities. */
#include "cupti_sim.h"
#include "simgpu_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct subscriber {
    CUpti_CallbackFunc callback;
    void *userdata;
    bool created, destroyed; /* which of a context's callbacks it asked for */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct subscriber *subscriber; /* one at a time, as the header says */

/* ---- the driver --------------------------------------------------------------------------------*/

static const struct simgpu_activity_table *table;

static void find_driver(void)
{
    table = simgpu_table(dlopen("libcuda.so.1", RTLD_NOW), (CUuuid)SIMGPU_ACTIVITY_ID);
}

const struct simgpu_activity_table *cs_driver(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_driver);
    return table;
}

static void told(const struct simgpu_activity *a)
{
    if (a->kind == SIMGPU_ACT_CONTEXT || a->kind == SIMGPU_ACT_CONTEXT_END) {
        cs_call_back(a);
    } else if (a->kind == SIMGPU_ACT_RETURN) {
        cs_pace(a->end_ns);
        cs_ask_ahead();
    } else {
        cs_record(a);
    }
}

void cs_listen(void)
{
    const struct simgpu_activity_table *t = cs_driver();
    if (t)
        t->listen(cs_records_wanted() || cs_callbacks_wanted() ? told : NULL, cs_runtime_wanted());
}

CUptiResult cs_not_modelled(const char *what)
{
    fprintf(stderr, "libcupti (simulated): %s is not modelled: CUPTI_ERROR_NOT_SUPPORTED\n", what);
    return CUPTI_ERROR_NOT_SUPPORTED;
}

/* ---- subscribers -------------------------------------------------------------------------------*/

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback,
                                    void *userdata)
{
    CUptiResult r = CUPTI_SUCCESS;
    if (!handle)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (!cs_driver())
        return CUPTI_ERROR_UNKNOWN; /* what the real one says without a driver */
    struct subscriber *s = calloc(1, sizeof *s);
    if (!s)
        return CUPTI_ERROR_OUT_OF_MEMORY;
    s->callback = callback;
    s->userdata = userdata;
    pthread_mutex_lock(&lock);
    if (subscriber)
        r = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    else
        subscriber = s;
    pthread_mutex_unlock(&lock);
    if (r != CUPTI_SUCCESS)
        free(s);
    else
        *handle = (CUpti_SubscriberHandle)s;
    return r;
}

#if SG_CUPTI_MAJOR >= 13
CUptiResult CUPTIAPI cuptiSubscribe_v2(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback,
                                       void *userdata, CUpti_SubscriberParams *params)
{
    if (!params)
        return CUPTI_ERROR_INVALID_PARAMETER;
    return cuptiSubscribe(handle, callback, userdata);
}
#endif

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle handle)
{
    pthread_mutex_lock(&lock);
    bool ours = subscriber && handle == (CUpti_SubscriberHandle)subscriber;
    struct subscriber *gone = ours ? subscriber : NULL;
    if (ours)
        subscriber = NULL;
    pthread_mutex_unlock(&lock);
    free(gone);
    cs_listen();
    return ours ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

bool cs_callbacks_wanted(void)
{
    pthread_mutex_lock(&lock);
    bool wanted = subscriber && (subscriber->created || subscriber->destroyed);
    pthread_mutex_unlock(&lock);
    return wanted;
}

void cs_call_back(const struct simgpu_activity *a)
{
    CUpti_CallbackFunc f = NULL;
    void *userdata = NULL;
    pthread_mutex_lock(&lock);
    bool ends = a->kind == SIMGPU_ACT_CONTEXT_END;
    if (subscriber && (ends ? subscriber->destroyed : subscriber->created)) {
        f = subscriber->callback;
        userdata = subscriber->userdata;
    }
    pthread_mutex_unlock(&lock);
    CUpti_ResourceData data = {.context = a->u.context.handle};
    if (f)
        f(userdata, CUPTI_CB_DOMAIN_RESOURCE,
          ends ? CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING : CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
          &data);
}

static CUptiResult enable(uint32_t on, CUpti_SubscriberHandle handle, bool created, bool destroyed)
{
    pthread_mutex_lock(&lock);
    bool ours = subscriber && handle == (CUpti_SubscriberHandle)subscriber;
    if (ours && created)
        subscriber->created = on;
    if (ours && destroyed)
        subscriber->destroyed = on;
    pthread_mutex_unlock(&lock);
    if (!ours)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cs_listen();
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle handle,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId cbid)
{
    bool created = cbid == CUPTI_CBID_RESOURCE_CONTEXT_CREATED,
         destroyed = cbid == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && (created || destroyed))
        return enable(on, handle, created, destroyed);
    return on ? cs_not_modelled("a callback other than those of contexts") : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t on, CUpti_SubscriberHandle handle,
                                       CUpti_CallbackDomain domain)
{
    if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        return enable(on, handle, true, true); /* of its callbacks those that are modelled */
    return on ? cs_not_modelled("a callback domain other than resources") : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiFinalize(void)
{
    pthread_mutex_lock(&lock);
    free(subscriber);
    subscriber = NULL;
    pthread_mutex_unlock(&lock);
    cs_records_end();
    cs_listen();
    return CUPTI_SUCCESS;
}

/* ---- names and versions ------------------------------------------------------------------------*/

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *version)
{
    if (!version)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *version = SG_CUPTI_MAJOR >= 13 ? CUPTI_API_VERSION : 26; /* of CUDA 12.8 */
    return CUPTI_SUCCESS;
}

static int by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct cs_name *)row)->name);
}

uint32_t cs_driver_cbid(const char *name)
{
    const struct cs_name *n =
        bsearch(name, cs_driver_names, cs_ndriver_names, sizeof *cs_driver_names, by_name);
    return n ? n->id : 0;
}

uint32_t cs_runtime_cbid(const char *name)
{
    const struct cs_name *n =
        bsearch(name, cs_runtime_plain, cs_nruntime_plain, sizeof *cs_runtime_plain, by_name);
    return n ? n->id : 0;
}

CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                          const char **name)
{
    const struct cs_name *rows = cs_driver_names;
    unsigned n = cs_ndriver_names;
    if (!name)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
        rows = cs_runtime_names;
        n = cs_nruntime_names;
    } else if (domain != CUPTI_CB_DOMAIN_DRIVER_API) {
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
    for (unsigned i = 0; i < n; i++)
        if (rows[i].id == cbid) {
            *name = rows[i].name;
            return CUPTI_SUCCESS;
        }
    return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text)
{
#define NAMED(code)                                                                                \
    case code:                                                                                     \
        *text = #code;                                                                             \
        break
    if (!text)
        return CUPTI_ERROR_INVALID_PARAMETER;
    switch ((int)result) {
        NAMED(CUPTI_SUCCESS);
        NAMED(CUPTI_ERROR_INVALID_PARAMETER);
        NAMED(CUPTI_ERROR_INVALID_CONTEXT);
        NAMED(CUPTI_ERROR_INVALID_OPERATION);
        NAMED(CUPTI_ERROR_OUT_OF_MEMORY);
        NAMED(CUPTI_ERROR_MAX_LIMIT_REACHED);
        NAMED(CUPTI_ERROR_QUEUE_EMPTY);
        NAMED(CUPTI_ERROR_INVALID_KIND);
        NAMED(CUPTI_ERROR_NOT_SUPPORTED);
        NAMED(CUPTI_ERROR_NOT_COMPATIBLE);
        NAMED(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
        NAMED(CUPTI_ERROR_UNKNOWN);
    default:
        return CUPTI_ERROR_INVALID_PARAMETER;
    }
#undef NAMED
    return CUPTI_SUCCESS;
}

/* ---- identities --------------------------------------------------------------------------------*/

CUptiResult CUPTIAPI cuptiGetContextId(CUcontext context, uint32_t *id)
{
    const struct simgpu_activity_table *t = cs_driver();
    uint32_t n = t ? t->context_id(context) : 0;
    if (!id)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (!n)
        return CUPTI_ERROR_INVALID_CONTEXT;
    *id = n;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread,
                                        uint32_t *id)
{
    const struct simgpu_activity_table *t = cs_driver();
    if (!id)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (per_thread && !stream)
        return cs_not_modelled("the id of the per-thread default stream");
    uint32_t n = t ? t->stream_id(context, stream) : 0;
    if (!n)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *id = n;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *id)
{
    return cuptiGetStreamIdEx(context, stream, 0, id);
}
