/* docs/ops.md is made from ops.def, by this program:
 *
 *     build/release/test_op_document --write
 *
 * Without the argument it is the test that the file is what ops.def says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "core/file.h"
#include <isomer/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH TEST_SOURCE_DIR "/docs/ops.md"

static const char introduction[] =
    "# Ops\n"
    "\n"
    "Made from `include/isomer/ops.def` by `test_op_document --write`; a test keeps it current.\n"
    "\n"
    "A dimension is one letter and stands for the same size wherever it appears in an op; `*` is\n"
    "any leading dimensions, `?` the same ones or none, a digit a constant, a lower-case letter "
    "an\n"
    "attribute. The last dimension is a row and is contiguous. *, T, Q and R may be empty; all "
    "other\n"
    "sizes are at least 1. `ops/rules.c` checks all of it, and what letters cannot say.\n"
    "\n"
    "| kind | schemes | layout |\n"
    "|---|---|---|\n";

static const struct {
  const char *name, *layout;
} kinds[ISO_OPERAND_KIND_COUNT] = {
    [ISO_OPERAND_ACTIVATION] = {"activation", "rows may have gaps between them"},
    [ISO_OPERAND_WEIGHT] = {"weight", "dense, or packed by the backend that reads it"},
    [ISO_OPERAND_PARAMETER] = {"parameter", "dense"},
    [ISO_OPERAND_INDEX] = {"index", "dense"},
    [ISO_OPERAND_KV] = {"KV", "dense pages"},
    [ISO_OPERAND_FLOAT] = {"float", "dense"},
    [ISO_OPERAND_BYTES] = {"bytes", "dense, in the scheme that an attribute names"},
};

static const char *const tolerances[] = {
    [ISO_TOLERANCE_EXACT] = "bit for bit",
    [ISO_TOLERANCE_ELEMENTWISE] = "to a fixed number of roundings an element",
    [ISO_TOLERANCE_REDUCTION] = "to roundings that grow with the reduced length",
};

static void write_kinds(FILE *file) {
  fputs(introduction, file);
  for (int kind = 0; kind < ISO_OPERAND_KIND_COUNT; kind++) {
    const char *comma = "";
    fprintf(file, "| %s | ", kinds[kind].name);
    for (int scheme = 0; scheme < ISO_SCHEME_COUNT; scheme++)
      if (iso_operand_schemes((iso_operand_kind)kind) & ISO_SCHEME_BIT(scheme)) {
        fprintf(file, "%s%s", comma, iso_scheme_get_info((iso_scheme)scheme)->name);
        comma = " ";
      }
    fprintf(file, " | %s |\n", kinds[kind].layout);
  }
}

static void write_operand(FILE *file, const iso_op_info *info, const iso_operand_info *operand,
                          const char *role) {
  fprintf(file, "| %s | %s%s | %s | ", operand->name, operand->optional ? "optional " : "", role,
          kinds[operand->kind].name);
  for (const char *letter = operand->dims; *letter; letter++)
    fprintf(file, "%s%s%c", letter == operand->dims ? "" : ", ", *letter == '*' ? "\\" : "",
            *letter);
  fprintf(file, " | %s", operand->doc);
  if (operand->alias_of >= 0)
    fprintf(file, "; the storage of %s", info->inputs[operand->alias_of].name);
  fputs(" |\n", file);
}

static void write_op(FILE *file, const iso_op_info *info) {
  fprintf(file, "\n## %s\n\n%s. Devices agree %s.\n\n", info->name, info->summary,
          tolerances[info->tolerance]);
  fputs("| operand | | kind | dimensions | |\n|---|---|---|---|---|\n", file);
  for (uint32_t i = 0; i < info->n_inputs; i++)
    write_operand(file, info, &info->inputs[i], "input");
  for (uint32_t i = 0; i < info->n_outputs; i++)
    write_operand(file, info, &info->outputs[i], "output");
  if (info->n_attributes > 0)
    fputs("\n| attribute | type | default | |\n|---|---|---|---|\n", file);
  for (uint32_t i = 0; i < info->n_attributes; i++) {
    const iso_attribute_info *attribute = &info->attributes[i];
    fprintf(file, "| %s | %s | ", attribute->name, attribute->type);
    if (strcmp(attribute->name, "scheme") == 0)
      fputs(iso_scheme_get_info((iso_scheme)attribute->default_value)->name, file);
    else
      fprintf(file, "%.6g", attribute->default_value);
    fprintf(file, " | %s |\n", attribute->doc);
  }
}

static void write_document(FILE *file) {
  write_kinds(file);
  for (int op = 0; op < ISO_OP_COUNT; op++)
    write_op(file, iso_op_get_info((iso_op)op));
}

static void test_document_is_current(void **state) {
  (void)state;
  char *wanted = NULL, *found = NULL;
  size_t wanted_size = 0, found_size = 0;
  FILE *file = open_memstream(&wanted, &wanted_size);
  assert_non_null(file);
  write_document(file);
  assert_int_equal(fclose(file), 0);
  if (iso_file_read(PATH, 1 << 20, &found, &found_size) != ISO_OK)
    fail_msg("%s", iso_status_message());
  if (found_size != wanted_size || memcmp(found, wanted, wanted_size) != 0)
    fail_msg("docs/ops.md is not what ops.def says: run test_op_document --write");
  free(wanted);
  free(found);
}

int main(int n_arguments, char **arguments) {
  if (n_arguments == 2 && strcmp(arguments[1], "--write") == 0) {
    FILE *file = fopen(PATH, "w");
    if (!file)
      return 1;
    write_document(file);
    return fclose(file) != 0;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_document_is_current)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
