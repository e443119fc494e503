/* Free text, in which what stands between marks is held to a rule: answers that may call tools. */
#ifndef ISOMER_ENGINE_GRAMMAR_MARKED_TEXT_H
#define ISOMER_ENGINE_GRAMMAR_MARKED_TEXT_H

#include <isomer/engine.h>

#include "engine/grammar/automaton.h"

/* The state at the start of such a text; it leads to AUTOMATON_END. Where a held stretch begins and
 * ends there may be a blank or a line end. The marks are not longer than ISO_MARK_MAX bytes. */
enum { ISO_MARK_MAX = 64 };
uint32_t iso_marked_text_add(iso_automaton *automaton, const iso_marks *marks, uint32_t rule);

#endif
