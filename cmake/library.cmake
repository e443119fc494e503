# libisomer. Files are found by folder, so a new file needs no edit here; a CPU kernel's
# instruction tier is the end of its file name (matmul_q8_0_avx512.c).
file(GLOB_RECURSE ISO_SOURCES CONFIGURE_DEPENDS
  core/*.c ops/*.c quant/*.c models/*.c engine/*.c backends/host/*.c backends/cpu/*.c)
if(NOT ISO_HAVE_ONEDNN)
  list(FILTER ISO_SOURCES EXCLUDE REGEX "_onednn\\.c$")
endif()

set(ISO_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(ISO_FLAGS_avx512 ${ISO_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
  -mavx512bf16 -mavx512vbmi -mprefer-vector-width=512)
set(ISO_FLAGS_amx ${ISO_FLAGS_avx512} -mamx-tile -mamx-int8 -mamx-bf16)
# Unrolled kernels under a sanitizer take minutes to compile at full optimisation, for nothing.
set(ISO_KERNEL_OPTIMISATION -O3)
if(ISO_SANITIZE)
  set(ISO_KERNEL_OPTIMISATION -O1)
  if(ISO_BUILD_FUZZERS) # no parser is in them
    list(APPEND ISO_KERNEL_OPTIMISATION -fno-sanitize=all)
  endif()
endif()
foreach(source IN LISTS ISO_SOURCES)
  if(source MATCHES "_(avx2|avx512|amx)\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
      "${ISO_FLAGS_${CMAKE_MATCH_1}};${ISO_KERNEL_OPTIMISATION};-ffp-contract=fast")
  elseif(ISO_SANITIZE AND source MATCHES "_baseline\\.c$")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ISO_KERNEL_OPTIMISATION}")
  endif()
endforeach()

add_library(isomer_objects OBJECT ${ISO_SOURCES})
target_include_directories(isomer_objects PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_link_libraries(isomer_objects PUBLIC isomer_flags PkgConfig::PCRE2 PkgConfig::UTF8PROC
  PkgConfig::CJSON Threads::Threads m ${CMAKE_DL_LIBS})
if(ISO_HAVE_ONEDNN)
  target_link_libraries(isomer_objects PUBLIC DNNL::dnnl)
  target_compile_definitions(isomer_objects PRIVATE ISO_HAVE_ONEDNN)
endif()

# Where installed programs find backends, from their own folder.
file(RELATIVE_PATH ISO_BACKENDS_FROM_PROGRAMS /prefix/${CMAKE_INSTALL_BINDIR}
  /prefix/${CMAKE_INSTALL_LIBDIR}/isomer)
target_compile_definitions(isomer_objects PRIVATE
  ISO_BACKENDS_FROM_PROGRAMS="${ISO_BACKENDS_FROM_PROGRAMS}")

# What applications link: exported symbols only.
add_library(isomer SHARED $<TARGET_OBJECTS:isomer_objects>)
add_library(isomer::isomer ALIAS isomer)
set_target_properties(isomer PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_include_directories(isomer PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(isomer PRIVATE isomer_objects)

# What the tool and the tests link: everything, internal names too.
add_library(isomer_static STATIC $<TARGET_OBJECTS:isomer_objects>)
target_link_libraries(isomer_static PUBLIC isomer_objects)
