/* Regular expressions of JSON schemas, as automata over what a JSON string writes. */
#ifndef ISOMER_ENGINE_GRAMMAR_PATTERN_H
#define ISOMER_ENGINE_GRAMMAR_PATTERN_H

#include "engine/grammar/automaton.h"

/* The characters of strings in which `pattern` is found, up to the closing quote, which `next`
 * follows. Taken are literals, ".", \d \w \s and \D \W \S, classes of ASCII characters, groups,
 * "|", "*", "+", "?", {n}, {n,}, {n,m}, lazy ones too, "^" at the start and "$" at the end of
 * the whole. Others are refused: then `automaton->status` says why. The automaton has JSON's rules.
 */
uint32_t iso_pattern_add(iso_automaton *automaton, const char *pattern, uint32_t next);

#endif
