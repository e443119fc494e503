# The Vulkan backend, a plug-in: libisomer-vulkan.so. Needs the Vulkan headers and glslc to build,
# and neither to run: the loader is opened when a device is asked for.
set(ISO_BACKEND_VULKAN AUTO CACHE STRING "Build the Vulkan backend: AUTO (if possible), ON or OFF")
set_property(CACHE ISO_BACKEND_VULKAN PROPERTY STRINGS AUTO ON OFF)

set(ISO_HAVE_VULKAN OFF)
find_program(ISO_GLSLC glslc)
find_path(ISO_VULKAN_INCLUDE vulkan/vulkan_core.h)
if(NOT ISO_BACKEND_VULKAN)
  message(STATUS "isomer: Vulkan backend: off")
elseif(ISO_SANITIZE OR ISO_BUILD_FUZZERS)
  message(STATUS "isomer: Vulkan backend: not built under sanitizers")
elseif(ISO_GLSLC AND ISO_VULKAN_INCLUDE)
  set(ISO_HAVE_VULKAN ON)
  message(STATUS "isomer: Vulkan backend: shaders by ${ISO_GLSLC}")
elseif(ISO_BACKEND_VULKAN STREQUAL "ON")
  message(FATAL_ERROR "ISO_BACKEND_VULKAN is ON and glslc or the Vulkan headers are missing")
else()
  message(STATUS "isomer: Vulkan backend: not built, there is no glslc or no Vulkan headers")
endif()
if(NOT ISO_HAVE_VULKAN)
  return()
endif()

# Each line of shaders.def becomes the words of a SPIR-V module, included by one made header.
set(folder ${PROJECT_SOURCE_DIR}/backends/vulkan)
set(made ${PROJECT_BINARY_DIR}/vulkan_shaders)
file(MAKE_DIRECTORY ${made})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/shaders.def)
file(STRINGS ${folder}/shaders.def lines REGEX "^VULKAN_(KEPT_)?SHADERS?\\(")
# The schemes of weights.
file(STRINGS ${PROJECT_SOURCE_DIR}/include/isomer/schemes.def schemes
  REGEX "^ISO_SCHEME\\([A-Z0-9_]+, [a-z0-9_]+, -?[0-9]+,.*(PLAIN_FLOAT|BLOCK)\\)")
list(TRANSFORM schemes REPLACE "^ISO_SCHEME\\(([A-Z0-9_]+),.*" "\\1")
set(header "/* Made from backends/vulkan/shaders.def. */\n#include <stdint.h>\n")
set(outputs)
function(add_shader name file)
  list(TRANSFORM ARGN PREPEND -D OUTPUT_VARIABLE defines)
  add_custom_command(OUTPUT ${made}/${name}.inc
    COMMAND ${ISO_GLSLC} -std=460 --target-env=vulkan1.2 -O -Werror ${defines} -mfmt=num
      -MD -MF ${made}/${name}.d -MT ${made}/${name}.inc -o ${made}/${name}.inc
      ${folder}/shaders/${file}.comp
    DEPENDS ${folder}/shaders/${file}.comp
    DEPFILE ${made}/${name}.d VERBATIM COMMENT "Shader ${name}")
  set(outputs ${outputs} ${made}/${name}.inc PARENT_SCOPE)
  string(APPEND header
    "static const uint32_t vulkan_words_${name}[] = {\n#include \"${name}.inc\"\n};\n")
  set(header "${header}" PARENT_SCOPE)
endfunction()
foreach(line IN LISTS lines)
  if(line MATCHES "^VULKAN_KEPT_SHADER\\(([a-z0-9_]+),")
    string(APPEND header "static const uint32_t vulkan_words_${CMAKE_MATCH_1}[] = {\n"
      "#include \"backends/vulkan/spirv/${CMAKE_MATCH_1}.inc\"\n};\n")
    continue()
  endif()
  string(REGEX MATCH "^VULKAN_SHADER(S?)\\(([a-z0-9_]+), ([a-z0-9_]+), \"(.*)\"\\)" matched "${line}")
  set(name ${CMAKE_MATCH_2})
  set(file ${CMAKE_MATCH_3})
  set(by_scheme "${CMAKE_MATCH_1}")
  separate_arguments(words UNIX_COMMAND "${CMAKE_MATCH_4}")
  if(NOT by_scheme)
    add_shader(${name} ${file} ${words})
    continue()
  endif()
  foreach(scheme IN LISTS schemes)
    string(TOLOWER ${scheme} suffix)
    add_shader(${name}_${suffix} ${file} ${words} SCHEME_${scheme})
  endforeach()
endforeach()
file(CONFIGURE OUTPUT ${made}/vulkan_shaders.h CONTENT "${header}" @ONLY)

file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
add_library(isomer-vulkan MODULE ${sources} ${outputs})
target_include_directories(isomer-vulkan PRIVATE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR} ${ISO_VULKAN_INCLUDE} ${made})
target_link_libraries(isomer-vulkan PRIVATE isomer_flags Threads::Threads m ${CMAKE_DL_LIBS})
iso_export_entry_alone(isomer-vulkan)
install(TARGETS isomer-vulkan LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/isomer)
