# Libraries Isomer stands on; each is justified in docs/architecture.md.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)

# oneDNN is optional: without it, the CPU backend's own kernels do all the work.
set(ISO_HAVE_ONEDNN OFF)
if(ISO_WITH_ONEDNN)
  find_package(dnnl CONFIG QUIET)
  if(dnnl_FOUND)
    set(ISO_HAVE_ONEDNN ON)
  endif()
endif()
message(STATUS "isomer: oneDNN ${ISO_HAVE_ONEDNN}")
