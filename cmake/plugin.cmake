# What plug-ins have in common: they export their entry and nothing else (plugin.map says why).
function(iso_export_entry_alone target)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin.map")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/plugin.map)
endfunction()
