/* params.h: the leading device pointers of a parameter block, as {offset, size} rows. */
#ifndef SG_PARAMS_H
#define SG_PARAMS_H

#define SG_POINTERS_1                                                                              \
    {                                                                                              \
        0, 8                                                                                       \
    }
#define SG_POINTERS_2                                                                              \
    SG_POINTERS_1,                                                                                 \
    {                                                                                              \
        8, 8                                                                                       \
    }
#define SG_POINTERS_3                                                                              \
    SG_POINTERS_2,                                                                                 \
    {                                                                                              \
        16, 8                                                                                      \
    }
#define SG_POINTERS_4                                                                              \
    SG_POINTERS_3,                                                                                 \
    {                                                                                              \
        24, 8                                                                                      \
    }
#define SG_POINTERS_5                                                                              \
    SG_POINTERS_4,                                                                                 \
    {                                                                                              \
        32, 8                                                                                      \
    }
#define SG_POINTERS_6                                                                              \
    SG_POINTERS_5,                                                                                 \
    {                                                                                              \
        40, 8                                                                                      \
    }
#define SG_POINTERS_9                                                                              \
    SG_POINTERS_6, {48, 8}, {56, 8},                                                               \
    {                                                                                              \
        64, 8                                                                                      \
    }
#define SG_POINTERS_7                                                                              \
    SG_POINTERS_6,                                                                                 \
    {                                                                                              \
        48, 8                                                                                      \
    }
#define SG_POINTERS_10                                                                             \
    SG_POINTERS_9,                                                                                 \
    {                                                                                              \
        72, 8                                                                                      \
    }

#define SG_POINTERS_16                                                                             \
    SG_POINTERS_10, {80, 8}, {88, 8}, {96, 8}, {104, 8}, {112, 8},                                 \
    {                                                                                              \
        120, 8                                                                                     \
    }

#endif
