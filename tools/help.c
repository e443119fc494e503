/* Help and man pages from the option table. */
#include "tools/option_table.h"

#include <isomer/base.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 88, OPTION_COLUMN = 30 };

/* Prints words wrapped at WIDTH, from `column` on; lines after the first are indented. */
static void print_wrapped(const char *text, int column, int indent) {
  for (bool first = true; *text; first = false) {
    int length = (int)strcspn(text, " ");
    if (!first && column + 1 + length > WIDTH) {
      printf("\n%*s", indent, "");
      column = indent;
    } else if (!first) {
      putchar(' ');
      column++;
    }
    printf("%.*s", length, text);
    column += length;
    text += length;
    text += *text == ' ';
  }
  putchar('\n');
}

/* "-m, --model PATH" into `out`. */
static int format_option(const iso_option_row *row, char *out, size_t capacity) {
  char letter[8] = "    ";
  if (row->short_name)
    snprintf(letter, sizeof letter, "-%c, ", row->short_name);
  return snprintf(out, capacity, "%s--%s%s%s", letter, row->long_name, row->argument ? " " : "",
                  row->argument ? row->argument : "");
}

static void print_command_help(iso_command command) {
  const iso_command_row *row = &iso_command_rows[command];
  printf("isomer %s: %s\n\nUsage: isomer %s [options] %s\n\n", row->name, row->summary, row->name,
         row->positional);
  print_wrapped(row->description, 0, 0);
  puts("\nOptions:");
  for (int i = 0; i < iso_option_row_count; i++) {
    const iso_option_row *option = &iso_option_rows[i];
    if (!(option->commands >> command & 1))
      continue;
    char head[96], help[640];
    int used = format_option(option, head, sizeof head);
    snprintf(help, sizeof help, "%s%s%s%s%s%s", option->help, option->alias ? "; also --" : "",
             option->alias ? option->alias : "", option->default_value ? " (default " : "",
             option->default_value ? option->default_value : "", option->default_value ? ")" : "");
    printf("  %s", head);
    if (used + 2 >= OPTION_COLUMN)
      printf("\n%*s", OPTION_COLUMN, "");
    else
      printf("%*s", OPTION_COLUMN - used - 2, "");
    print_wrapped(help, OPTION_COLUMN, OPTION_COLUMN);
  }
}

void iso_help_print(iso_command command) {
  if (command != ISO_COMMAND_COUNT) {
    print_command_help(command);
    return;
  }
  puts("isomer: the same language model on any silicon\n\n"
       "Usage: isomer COMMAND [options]\n\nCommands:");
  for (int i = 0; i < ISO_COMMAND_COUNT; i++)
    printf("  %-12s %s\n", iso_command_rows[i].name, iso_command_rows[i].summary);
  puts("\nFirst steps:\n"
       "  isomer devices                     what can run a model here\n"
       "  isomer run model.gguf -p \"Hello\"   one answer\n"
       "  isomer chat model.gguf             a conversation\n\n"
       "isomer COMMAND --help explains a command; isomer --version prints the version.");
}

/* Text for roff: a leading dot or quote and every backslash and dash are escaped. */
static void print_roff(const char *text) {
  if (*text == '.' || *text == '\'')
    fputs("\\&", stdout);
  for (; *text; text++) {
    if (*text == '\\')
      fputs("\\e", stdout);
    else if (*text == '-')
      fputs("\\-", stdout);
    else
      putchar(*text);
  }
}

/* Without hyphenation, which would break the names of options. */
static void print_man_head(const char *name, const char *summary) {
  printf(".TH ISOMER%s%s 1 \"\" \"Isomer %s\" \"Isomer manual\"\n.nh\n.SH NAME\nisomer%s%s \\- ",
         *name ? "\\-" : "", name, ISO_VERSION_STRING, *name ? "\\-" : "", name);
  print_roff(summary);
  puts("");
}

static void print_command_man(iso_command command) {
  const iso_command_row *row = &iso_command_rows[command];
  print_man_head(row->name, row->summary);
  printf(".SH SYNOPSIS\n.B isomer %s\n[options]", row->name);
  if (*row->positional) {
    putchar(' ');
    print_roff(row->positional);
  }
  puts("\n.SH DESCRIPTION");
  print_roff(row->description);
  puts("\n.SH OPTIONS");
  for (int i = 0; i < iso_option_row_count; i++) {
    const iso_option_row *option = &iso_option_rows[i];
    if (!(option->commands >> command & 1))
      continue;
    fputs(".TP\n.B ", stdout);
    if (option->short_name)
      printf("\\-%c, ", option->short_name);
    fputs("\\-\\-", stdout);
    print_roff(option->long_name);
    if (option->argument)
      printf(" \\fI%s\\fR", option->argument);
    puts("");
    print_roff(option->help);
    if (option->alias) {
      fputs("; also \\-\\-", stdout);
      print_roff(option->alias);
    }
    if (option->default_value) {
      fputs(" (default ", stdout);
      print_roff(option->default_value);
      putchar(')');
    }
    puts("");
  }
  puts(".SH EXIT STATUS\n0 on success, 1 on a failure or a failed check, 2 on wrong usage.\n"
       ".SH SEE ALSO\n.BR isomer (1)");
}

void iso_man_print(iso_command command) {
  if (command != ISO_COMMAND_COUNT) {
    print_command_man(command);
    return;
  }
  print_man_head("", "the same language model on any silicon");
  puts(".SH SYNOPSIS\n.B isomer\n.I command\n[options]\n.SH COMMANDS");
  for (int i = 0; i < ISO_COMMAND_COUNT; i++) {
    printf(".TP\n.BR isomer\\-%s (1)\n", iso_command_rows[i].name);
    print_roff(iso_command_rows[i].summary);
    puts("");
  }
  puts(
      ".SH ENVIRONMENT\n"
      ".TP\n.B ISOMER_CPU_ISA\nForces the CPU's instruction tier: baseline, avx2, avx512 or amx.\n"
      ".TP\n.B ISOMER_BACKEND_PATH\nFolders, separated by colons, that hold backend libraries.\n"
      ".TP\n.B ISOMER_LOG\nWhat to log on standard error: error, warning, notice, debug or quiet.");
}
