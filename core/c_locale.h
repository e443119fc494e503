/* The C locale for the calling thread, where numbers are read and written that are not for people:
 * a program that uses the library may have set another, with a comma for a point.
 *
 *   iso_c_locale locale = iso_c_locale_enter();
 *   ...
 *   iso_c_locale_leave(locale);
 *
 * Other threads keep their locale. Where memory runs out the thread keeps its own, too. */
#ifndef ISOMER_CORE_C_LOCALE_H
#define ISOMER_CORE_C_LOCALE_H

#include <locale.h>

typedef struct iso_c_locale {
  locale_t c, before;
} iso_c_locale;

static inline iso_c_locale iso_c_locale_enter(void) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return (iso_c_locale){c, uselocale(c)};
}

static inline void iso_c_locale_leave(iso_c_locale locale) {
  uselocale(locale.before);
  if (locale.c)
    freelocale(locale.c);
}

#endif
