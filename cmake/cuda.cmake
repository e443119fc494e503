# libisomer-cuda: the CUDA backend as a plug-in. AUTO builds it where nvcc is; a machine without
# driver or card still loads it. The runtime is linked in; libcuda and cuBLASLt are opened at run
# time.
set(ISO_BACKEND_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where nvcc is), ON or OFF")
set_property(CACHE ISO_BACKEND_CUDA PROPERTY STRINGS AUTO ON OFF)
# Hopper's own code, and an intermediate form that the driver turns into code for any newer or
# other card from sm_80 on. CMake's notation: "75;80;86;89;90a;100;120".
set(ISO_CUDA_ARCHITECTURES "90a-real;80-virtual" CACHE STRING
  "CUDA architectures to compile for, as in CMAKE_CUDA_ARCHITECTURES")

set(ISO_HAVE_CUDA OFF)
if(ISO_SANITIZE OR ISO_BUILD_FUZZERS)
  message(STATUS "isomer: CUDA backend: not built under sanitizers")
elseif(ISO_BACKEND_CUDA)
  include(CheckLanguage)
  find_program(ISO_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER AND ISO_NVCC)
    set(CMAKE_CUDA_COMPILER ${ISO_NVCC})
  endif()
  # Only the compiler is looked for: the architectures are set on the target.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.3)
      set(ISO_HAVE_CUDA ON)
      message(STATUS "isomer: CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, for ${ISO_CUDA_ARCHITECTURES}")
    elseif(ISO_BACKEND_CUDA STREQUAL "ON")
      message(FATAL_ERROR "ISO_BACKEND_CUDA is ON and needs nvcc 12.3 or later, not ${CMAKE_CUDA_COMPILER_VERSION}")
    else()
      message(STATUS "isomer: CUDA backend: not built, nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 12.3")
    endif()
  elseif(ISO_BACKEND_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ISO_BACKEND_CUDA is ON and there is no nvcc; set CUDA_PATH or CMAKE_CUDA_COMPILER")
  else()
    message(STATUS "isomer: CUDA backend: not built, there is no nvcc")
  endif()
else()
  message(STATUS "isomer: CUDA backend: off")
endif()

if(ISO_HAVE_CUDA)
  find_package(CUDAToolkit REQUIRED)
  file(GLOB_RECURSE ISO_CUDA_SOURCES CONFIGURE_DEPENDS backends/cuda/*.cu backends/simt/*.cu)
  string(REPLACE ";" ", " ISO_CUDA_ARCHITECTURES_TEXT "${ISO_CUDA_ARCHITECTURES}")
  add_library(isomer-cuda MODULE ${ISO_CUDA_SOURCES})
  target_include_directories(isomer-cuda PRIVATE include ${PROJECT_SOURCE_DIR} backends/cuda)
  target_compile_definitions(isomer-cuda PRIVATE _GNU_SOURCE
    ISO_CUDA_ARCHITECTURES="${ISO_CUDA_ARCHITECTURES_TEXT}")
  target_compile_options(isomer-cuda PRIVATE
    -std=c++20 -O3 -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror,-Wno-missing-field-initializers
    -Xcompiler=-Wno-format-truncation,-fno-exceptions)
  set_target_properties(isomer-cuda PROPERTIES
    CUDA_ARCHITECTURES "${ISO_CUDA_ARCHITECTURES}" CUDA_RUNTIME_LIBRARY Static
    CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(isomer-cuda PRIVATE CUDA::cudart_static ${CMAKE_DL_LIBS} Threads::Threads rt)
  target_link_options(isomer-cuda PRIVATE -static-libstdc++ -static-libgcc)
  iso_export_entry_alone(isomer-cuda)
  install(TARGETS isomer-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/isomer)
endif()
