# The `isomer` command: one file a subcommand.
file(GLOB ISO_TOOL_SOURCES CONFIGURE_DEPENDS tools/*.c)
if(ISO_TOOL_SOURCES)
  add_executable(isomer_tool ${ISO_TOOL_SOURCES})
  set_target_properties(isomer_tool PROPERTIES OUTPUT_NAME isomer)
  pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
  target_link_libraries(isomer_tool PRIVATE isomer_static PkgConfig::EDIT)
endif()
