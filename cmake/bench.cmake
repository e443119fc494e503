# Every bench/kernels/bench_<name>.c is one program, built on demand: ninja bench_<name>.
file(GLOB ISO_KERNEL_BENCHES CONFIGURE_DEPENDS bench/kernels/bench_*.c)
foreach(source IN LISTS ISO_KERNEL_BENCHES)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE isomer_static)
endforeach()
