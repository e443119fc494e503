#include "tools/tool.h"

#include <stdio.h>
#include <string.h>

static const iso_command_function functions[ISO_COMMAND_COUNT] = {
#define ISO_COMMAND(name, NAME, positional, summary, description) iso_command_##name,
#include "tools/commands.def"
#undef ISO_COMMAND
};

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int usage_error(const char *word) {
  const char *nearest = iso_command_nearest(word);
  if (nearest)
    fprintf(stderr, "isomer: unknown command \"%s\"; did you mean %s?\n", word, nearest);
  else
    fprintf(stderr, "isomer: unknown command \"%s\"; see isomer --help\n", word);
  return EXIT_USAGE;
}

/* `isomer help [--man] [COMMAND]`; the man pages are installed from its output. */
static int help(int argc, char **argv) {
  bool man = argc > 0 && strcmp(argv[0], "--man") == 0;
  const char *word = argc > man ? argv[man] : NULL;
  iso_command command = word ? iso_command_find(word) : ISO_COMMAND_COUNT;
  if (word && command == ISO_COMMAND_COUNT)
    return usage_error(word);
  if (man)
    iso_man_print(command);
  else
    iso_help_print(command);
  return EXIT_OK;
}

static int run_command(iso_command command, int argc, char **argv) {
  iso_options options;
  int exit_code = EXIT_OK;
  iso_status status = iso_options_parse(command, argc, argv, &options);
  bool parsed = status == ISO_OK;
  if (parsed && options.help) {
    iso_help_print(command);
    return EXIT_OK;
  }
  if (parsed)
    status = functions[command](&options, &exit_code);
  if (status == ISO_OK && fflush(stdout) == 0)
    return exit_code;
  fprintf(stderr, "isomer: %s\n",
          status == ISO_OK ? "cannot write to standard output" : iso_status_message());
  return status == ISO_ERROR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  if (argc < 2 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
    iso_help_print(ISO_COMMAND_COUNT);
    return argc < 2 ? EXIT_USAGE : EXIT_OK;
  }
  if (strcmp(word, "--version") == 0) {
    puts("isomer " ISO_VERSION_STRING);
    return EXIT_OK;
  }
  if (strcmp(word, "help") == 0)
    return help(argc - 2, argv + 2);
  iso_command command = iso_command_find(word);
  if (command == ISO_COMMAND_COUNT)
    return usage_error(word);
  return run_command(command, argc - 2, argv + 2);
}
