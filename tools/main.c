#include "tools/json_output.h"
#include "tools/tool.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* Whether all that was printed is out. */
static bool flush_output(void) {
  if (fflush(stdout) == 0 && !ferror(stdout))
    return true;
  fputs("isomer: cannot write to standard output\n", stderr);
  return false;
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
    status = iso_options_check_words(command, &options);
  if (status == ISO_OK)
    status = functions[command](&options, &exit_code);
  if (status == ISO_OK)
    return exit_code;
  fprintf(stderr, "isomer: %s\n", iso_status_message());
  for (int i = 0; i < argc; i++)
    if (strcmp(argv[i], "--json") == 0) {
      iso_json_output_fail(iso_status_message());
      break;
    }
  return status == ISO_ERROR_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* A file opened later must not take the place of a closed standard stream, to be written over. */
static bool open_standard_streams(void) {
  int descriptor;
  do
    descriptor = open("/dev/null", O_RDWR);
  while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor < 0)
    return false;
  close(descriptor);
  return true;
}

/* A stack that runs out is a fault, whatever was asked for: so it is made to grow as far as usual,
 * as those of threads are, or what is too little is said. The pattern matcher alone takes 32 KiB.
 */
static bool raise_stack_limit(void) {
  const rlim_t usual = (rlim_t)8 << 20, least = (rlim_t)256 << 10;
  const size_t of_thread = (size_t)1 << 20;
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 ||
      limit.rlim_cur >= usual) /* RLIM_INFINITY is the most */
    return true;
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) == 0) {
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < of_thread &&
        pthread_attr_setstacksize(&attributes, of_thread) == 0)
      (void)pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  limit.rlim_cur = limit.rlim_max < usual ? limit.rlim_max : usual;
  (void)setrlimit(RLIMIT_STACK, &limit);
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least)
    return true;
  fprintf(stderr,
          "isomer: the stack is limited to %llu KiB, %llu KiB are needed; raise the limit with "
          "ulimit -s\n",
          (unsigned long long)limit.rlim_cur >> 10, (unsigned long long)least >> 10);
  return false;
}

/* Models are mapped: where a file is cut short or its disk fails, reading it is this signal. */
static void on_lost_file(int number, siginfo_t *facts, void *context) {
  static const char sentence[] =
      "isomer: a mapped file could not be read: it was cut short while in use, or its disk or "
      "network failed; copy the model to its place again and start anew\n";
  (void)context;
  if (facts->si_code != BUS_ADRERR) { /* a fault of the program: as without us */
    signal(number, SIG_DFL);
    return;
  }
  (void)!write(STDERR_FILENO, sentence, sizeof sentence - 1);
  _exit(EXIT_FAILED);
}

static int run(int argc, char **argv) {
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

int main(int argc, char **argv) {
  if (!open_standard_streams() || !raise_stack_limit())
    return EXIT_FAILED;
  sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_lost_file, .sa_flags = SA_SIGINFO},
            NULL);
  signal(SIGXFSZ, SIG_IGN); /* a file past its limit fails as on a full disk, and is taken away */
  int code = run(argc, argv);
  return flush_output() || code != EXIT_OK ? code : EXIT_FAILED;
}
