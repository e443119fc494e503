/* A shared library that is no backend. */
#include <isomer/backend.h>

ISO_BACKEND_EXPORT int isomer_nothing(void);

ISO_BACKEND_EXPORT int isomer_nothing(void) { return 0; }
