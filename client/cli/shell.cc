#include "client/cli/shell.h"

#include <fmt/format.h>
#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "client/cli/output.h"
#include "rkv/limits.h"

namespace rkv::cli {

namespace {

// Completes verbs and the shell's own words.
std::vector<std::string> completions(std::string_view start) {
  std::vector<std::string> found;
  for (const VerbInfo& info : verbs()) {
    if (info.name.starts_with(start)) found.emplace_back(info.name);
  }
  for (const std::string_view own : {"help", "exit", "quit"}) {
    if (own.starts_with(start)) found.emplace_back(own);
  }
  return found;
}

std::string shell_help() {
  std::string text;
  for (const VerbInfo& info : verbs()) {
    text += fmt::format("  {:24} {}\n", fmt::format("{} {}", info.name, info.arguments), info.help);
  }
  return text + "  VERB --help              its options\n  exit\n";
}

// Edits lines with libedit.
class Editor {
 public:
  explicit Editor(std::string prompt)
      : prompt_(std::move(prompt)),
        history_(history_init()),
        edit_(el_init("kvclient", stdin, stdout, stderr)) {
    HistEvent event;
    ::history(history_.get(), &event, H_SETSIZE, 1000);
    // The history is kept in a file only on request: values may be secrets.
    if (const char* file = std::getenv("KVCLIENT_HISTORY")) {
      file_ = file;
      ::history(history_.get(), &event, H_LOAD, file_.c_str());
    }
    el_set(edit_.get(), EL_CLIENTDATA, this);
    el_set(edit_.get(), EL_PROMPT, prompt_of);
    el_set(edit_.get(), EL_EDITOR, "emacs");
    el_set(edit_.get(), EL_HIST, ::history, history_.get());
    el_set(edit_.get(), EL_SIGNAL, 1);
    el_set(edit_.get(), EL_ADDFN, "complete-verb", "Complete a verb", complete);
    el_set(edit_.get(), EL_BIND, "^I", "complete-verb", nullptr);
    el_source(edit_.get(), nullptr);
  }
  ~Editor() {
    HistEvent event;
    if (!file_.empty()) ::history(history_.get(), &event, H_SAVE, file_.c_str());
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> next_line() {
    int length = 0;
    const char* line = el_gets(edit_.get(), &length);
    if (line == nullptr || length <= 0) {
      print_raw("\n");
      return std::nullopt;
    }
    HistEvent event;
    std::string text(line, static_cast<std::size_t>(length));
    if (text.find_first_not_of(" \t\n") != std::string::npos) {
      ::history(history_.get(), &event, H_ENTER, line);
    }
    return text;
  }

 private:
  struct EndEdit {
    void operator()(EditLine* edit) const { el_end(edit); }
  };
  struct EndHistory {
    void operator()(History* history) const { history_end(history); }
  };

  static char* prompt_of(EditLine* edit) {
    Editor* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  static unsigned char complete(EditLine* edit, int) {
    const LineInfo* info = el_line(edit);
    const std::string_view typed(info->buffer,
                                 static_cast<std::size_t>(info->cursor - info->buffer));
    if (typed.find(' ') != std::string_view::npos) return CC_ERROR;  // only verbs are completed
    const auto found = completions(typed);
    if (found.size() != 1) return CC_ERROR;
    const std::string rest = found.front().substr(typed.size()) + " ";
    return el_insertstr(edit, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  std::string prompt_;
  std::string file_;
  std::unique_ptr<History, EndHistory> history_;  // declared before the editor, which uses it
  std::unique_ptr<EditLine, EndEdit> edit_;
};

// The longest line of a script: a value of zero bytes, each as \xNN, and other words.
constexpr std::size_t kLongestScriptLine = 4 * kMaxValueBytes + (std::size_t{64} << 10);

// Reads a line of a script from standard input: its end is nullopt.
OrFailure<std::optional<std::string>> next_script_line() {
  std::string line;
  errno = 0;
  for (int c = getc_unlocked(stdin); c != EOF; c = getc_unlocked(stdin)) {
    line += static_cast<char>(c);
    if (c == '\n') return line;
    if (line.size() > kLongestScriptLine) {
      return failure(kUsage, fmt::format("a line of standard input has more than {} bytes",
                                         kLongestScriptLine));
    }
  }
  if (std::ferror(stdin) != 0) {
    return failure(kFailed, fmt::format("cannot read standard input: {}", std::strerror(errno)));
  }
  if (line.empty()) return std::nullopt;
  return line;
}

bool is_end(const std::vector<std::string>& words) {
  return words.size() == 1 && (words[0] == "exit" || words[0] == "quit");
}

ExitCode run_words(Cluster& client, const std::vector<std::string>& words, const Globals& globals,
                   bool interactive) {
  if (words.front() == "help") {
    print_raw(shell_help());
    return kDone;
  }
  Parsed parsed = parse_shell_line(words, globals);
  if (parsed.kind == Parsed::Kind::kText) {
    print_raw(parsed.text);
    return kDone;
  }
  if (parsed.kind == Parsed::Kind::kUsageError) {
    complain(parsed.text);
    return kUsage;
  }
  const bool wants_stdin =
      parsed.command.last_from_stdin || parsed.command.keys_file == "-" ||
      (parsed.command.verb == Verb::kLoad &&
       (parsed.command.arguments.empty() || parsed.command.arguments.front() == "-"));
  if (wants_stdin) {
    complain("the shell reads standard input: name a file");
    return kUsage;
  }
  auto job = prepare(std::move(parsed.command));
  if (!job) {
    complain(job.error().sentence);
    return job.error().exit_code;
  }
  job->of_script = !interactive;
  const ExitCode exit_code = run(client, *job, interactive);
  std::fflush(stdout);
  return exit_code;
}

}  // namespace

ExitCode run_shell(Cluster& client, const Globals& globals) {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  std::optional<Editor> editor;
  if (terminal) editor.emplace(name_of_store(globals) + "> ");
  ExitCode worst = kDone;
  for (;;) {
    const auto read =
        terminal ? OrFailure<std::optional<std::string>>(editor->next_line()) : next_script_line();
    if (!read) {
      complain(read.error().sentence);
      worst = std::max(worst, read.error().exit_code);
      break;
    }
    const std::optional<std::string>& line = *read;
    if (!line) break;
    const auto words = split_words(*line);
    if (!words) {
      complain(words.error());
      worst = std::max(worst, kUsage);
      continue;
    }
    if (words->empty()) continue;
    if (is_end(*words)) break;
    worst = std::max(worst, run_words(client, *words, globals, terminal));
  }
  return terminal ? kDone : worst;
}

}  // namespace rkv::cli
