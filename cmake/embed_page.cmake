# cmake -DINPUT=index.html -DOUTPUT=page.c -P embed_page.cmake
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "#include \"server/ui/page.h\"\n"
  "const char iso_ui_page[] = {${bytes}0};\n"
  "const size_t iso_ui_page_length = sizeof iso_ui_page - 1;\n")
