# One interface target that every Isomer target links: warnings as errors, sanitizers.
add_library(isomer_flags INTERFACE)
target_compile_options(isomer_flags INTERFACE
  -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wundef
  -Wpointer-arith -Wwrite-strings -Wvla -Wno-missing-field-initializers
  $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
  # Same answers: no contraction or reassociation that the source does not ask for.
  -ffp-contract=off -fno-math-errno)
target_compile_definitions(isomer_flags INTERFACE _GNU_SOURCE)
if(ISO_SANITIZE)
  target_compile_options(isomer_flags INTERFACE
    -fsanitize=${ISO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(isomer_flags INTERFACE -fsanitize=${ISO_SANITIZE})
endif()
