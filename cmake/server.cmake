# The HTTP server, for the tool and its tests. http_parser has no pkg-config file.
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core libevent_extra)
find_path(HTTP_PARSER_INCLUDE http_parser.h REQUIRED)
find_library(HTTP_PARSER_LIBRARY http_parser REQUIRED)

# The chat page as a C array: the server is one file to copy.
set(ISO_PAGE_SOURCE ${PROJECT_BINARY_DIR}/server_page.c)
add_custom_command(OUTPUT ${ISO_PAGE_SOURCE}
  COMMAND ${CMAKE_COMMAND} -DINPUT=${PROJECT_SOURCE_DIR}/server/ui/index.html
    -DOUTPUT=${ISO_PAGE_SOURCE} -P ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  DEPENDS ${PROJECT_SOURCE_DIR}/server/ui/index.html ${PROJECT_SOURCE_DIR}/cmake/embed_page.cmake
  VERBATIM COMMENT "Embedding the chat page")

file(GLOB_RECURSE ISO_SERVER_SOURCES CONFIGURE_DEPENDS server/*.c)
add_library(isomer_server STATIC ${ISO_SERVER_SOURCES} ${ISO_PAGE_SOURCE})
target_include_directories(isomer_server PUBLIC ${HTTP_PARSER_INCLUDE})
target_link_libraries(isomer_server PUBLIC isomer_static PkgConfig::EVENT ${HTTP_PARSER_LIBRARY})
