include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS isomer EXPORT isomer_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET isomer_tool)
  install(TARGETS isomer_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${ISO_MAN_PAGES} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(DIRECTORY include/isomer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
install(EXPORT isomer_targets NAMESPACE isomer:: FILE isomer-targets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isomer)
configure_package_config_file(cmake/isomer-config.cmake.in isomer-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isomer)
write_basic_package_version_file(isomer-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isomer-config.cmake ${PROJECT_BINARY_DIR}/isomer-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isomer)
# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH ISO_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/isomer.pc.in isomer.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/isomer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
