/* How far two words are apart, to name the one that was probably meant. */
#ifndef ISOMER_CORE_SPELLING_H
#define ISOMER_CORE_SPELLING_H

enum { ISO_SPELLING_NEAR = 3 }; /* this many edits or more: another word */

/* Edits between two words, insertion, deletion, change and swap counting one each (optimal string
 * alignment); words longer than 32 bytes are that far from everything. */
int iso_spelling_distance(const char *a, const char *b);

#endif
