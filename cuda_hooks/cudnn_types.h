/* What both of cuDNN's interfaces say of data types. */
#ifndef VM_HOOKS_CUDNN_TYPES_H
#define VM_HOOKS_CUDNN_TYPES_H

#include <cudnn.h>
#include <stddef.h>

/* Bytes of one element of a cudnnDataType_t; 0 for vectors of elements and for types not known: how
 * their tensors are packed is not asked. */
static inline size_t vm_cudnn_element_bytes(int type)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
        return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
        return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
        return 1;
    default:
        return 0;
    }
}

#endif
