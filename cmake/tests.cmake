# Every tests/unit/test_<name>.c and tests/cts/test_<name>.c is one cmocka program and one test.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
file(GLOB ISO_UNIT_TESTS CONFIGURE_DEPENDS tests/unit/test_*.c tests/cts/test_*.c)
foreach(source IN LISTS ISO_UNIT_TESTS)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE isomer_static PkgConfig::CMOCKA)
  if(name MATCHES "^test_server")
    target_link_libraries(${name} PRIVATE isomer_server)
  endif()
  if(ISO_SANITIZE AND name MATCHES "tiles") # they include the kernels
    target_compile_options(${name} PRIVATE ${ISO_KERNEL_OPTIMISATION})
  endif()
  if(name STREQUAL "test_engine_memory")
    target_link_options(${name} PRIVATE
      LINKER:--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup)
  endif()
  target_compile_definitions(${name} PRIVATE
    TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  # The engine's once more on a device that works beside the host.
  if(name MATCHES "^test_engine" AND NOT name MATCHES "overlap")
    add_test(NAME ${name}_late COMMAND ${name})
    set_tests_properties(${name}_late PROPERTIES TIMEOUT 300 ENVIRONMENT
      "ISOMER_TEST_DEVICE=late;ISOMER_BACKEND_PATH=${PROJECT_BINARY_DIR}/late_plugin")
  endif()
endforeach()

# The host backend once more, as the library of its own that a vendor would build.
add_library(isomer-template MODULE backends/host/host.c)
target_compile_definitions(isomer-template PRIVATE HOST_BACKEND_LIBRARY
  HOST_BACKEND_NAME="template")
target_link_libraries(isomer-template PRIVATE isomer_flags isomer)
set_target_properties(isomer-template PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/plugins")
add_subdirectory(tests/plugins)
add_dependencies(test_engine_overlap isomer-late)
add_dependencies(test_registry isomer-template)

# Every tests/e2e/test_<name>.py drives the built command; 77 means skipped, and it says why.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB ISO_E2E_TESTS CONFIGURE_DEPENDS tests/e2e/test_*.py)
foreach(source IN LISTS ISO_E2E_TESTS)
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "test_" "e2e_" name ${name})
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${source} $<TARGET_FILE:isomer_tool>)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
  # Real models under a sanitizer take many minutes; the golden models go the same ways.
  if(name MATCHES "smollm2|perplexity")
    set_tests_properties(${name} PROPERTIES LABELS slow-under-sanitizers)
  endif()
endforeach()
