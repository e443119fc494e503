# Every bench/kernels/bench_<name>.c is one program, built on demand: ninja bench_<name>.
file(GLOB ISO_KERNEL_BENCHES CONFIGURE_DEPENDS bench/kernels/bench_*.c)
foreach(source IN LISTS ISO_KERNEL_BENCHES)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE isomer_static)
endforeach()

# bench/limits: what the machine can do at most; bench/peers.py and its test run it.
add_executable(limits bench/limits.c)
if(ISO_SANITIZE)
  set_target_properties(limits PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
target_link_libraries(limits PRIVATE isomer_static)
set_target_properties(limits PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
