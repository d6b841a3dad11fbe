/* The words that files and reports use for the enumerations of model.h. */
#ifndef VM_PLANNER_WORDS_H
#define VM_PLANNER_WORDS_H

#include <stddef.h>
#include <stdint.h>

enum vm_words {
    VM_WORDS_OP_KIND,
    VM_WORDS_LAYER,
    VM_WORDS_ROLE,
    VM_WORDS_HINT,
    VM_WORDS_OP_FLAG,    /* value = bit */
    VM_WORDS_BLOCK_FLAG, /* value = bit */
    VM_WORDS_MODE,       /* value = bit; one letter each */
    VM_WORDS_ACTION,
    VM_WORDS_REASON,
};

/* The word for a value, NULL if there is none. */
const char *vm_word(enum vm_words list, unsigned value);
/* The value of a word, -1 if it is unknown. */
int vm_word_value(enum vm_words list, const char *word);

#endif
