// The verbs that show many records: scan and dump.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "client/cli/commands.h"
#include "client/cli/many.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "common/bytes.h"

namespace rkv::cli {

Record record_of(const ScanEntry& entry) {
  Record record{.key = entry.key, .value = entry.value, .number = {}};
  record.expires_at_ms = entry.expires_at_ms;
  if (!entry.is_counter) return record;
  record.number = entry.value.empty() ? 0 : load_le<std::int64_t>(as_bytes(entry.value).data());
  record.value = {};
  return record;
}

Record record_of(std::string_view key, const Value& value) {
  return record_of(ScanEntry{.key = key,
                             .value = value.value,
                             .value_bytes = value.value.size(),
                             .version = value.version,
                             .expires_at_ms = value.expires_at_ms,
                             .is_counter = value.is_counter});
}

namespace {

// ------------------------------------------------------------------------------------------ scan

Json to_json(const ScanEntry& entry, bool keys_only, bool hex) {
  Json object;
  set_bytes(object, "key", entry.key, hex);
  if (keys_only) {
    object["value_bytes"] = entry.value_bytes;
    if (entry.is_counter) object["is_counter"] = true;
  } else if (entry.is_counter) {
    object["counter"] = *record_of(entry).number;
  } else {
    set_bytes(object, "value", entry.value, hex);
  }
  object["version"] = entry.version;
  if (entry.expires_at_ms != 0) object["expires_at_ms"] = entry.expires_at_ms;
  return object;
}

void show(const ScanEntry& entry, const Command& command) {
  const Globals& globals = command.globals;
  if (globals.json) return print_json(to_json(entry, command.keys_only, globals.hex));
  const auto escaped = globals.hex ? to_hex : escape_tsv;
  if (command.keys_only) return print_raw(escaped(entry.key) + "\n");
  const Record record = record_of(entry);
  if (globals.tsv) return print_raw(to_tsv(record, globals.hex));
  print_raw(fmt::format("{}\t{}\n", escaped(entry.key),
                        record.number ? std::to_string(*record.number) : escaped(entry.value)));
}

// Prints the token: as a line of JSON for programs that read JSON, otherwise on standard error.
void show_token(std::string_view token, const Command& command) {
  if (command.globals.json) return print_json(Json{{"token", to_hex(token)}});
  complain(fmt::format("more entries follow: continue with --token {}", to_hex(token)));
}

// ------------------------------------------------------------------------------------------ dump

// Standard output, or a file that appears under its name when it is complete. Until then it has no
// name, or, where the file system wants one, a name that no other process uses; an existing file of
// that name is left unchanged. It is for its owner alone, as the data of the server is.
class Target {
 public:
  static OrFailure<Target> open(const std::string& path) {
    Target target;
    if (path.empty() || path == "-") return target;
    struct stat facts{};
    const bool in_place = stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode);  // a pipe
    target.path_ = path;
    const std::string name = in_place ? path : fmt::format("{}.partial-{}", path, getpid());
    int fd = in_place ? -1 : open_nameless(path);
    target.has_name_ = fd < 0;
    if (fd < 0) {
      const int flags = in_place ? O_TRUNC : O_EXCL;
      fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    }
    if (fd < 0) return cannot(errno == EEXIST ? name : path, errno);
    if (!in_place) target.partial_ = name;
    target.file_.reset(fdopen(fd, "wb"));
    if (target.file_ == nullptr) return cannot(name, errno);
    return target;
  }
  void write(const std::string& line) {
    if (error_ != 0) return;
    std::FILE* const file = file_ ? file_.get() : stdout;
    if (std::fwrite(line.data(), 1, line.size(), file) != line.size()) error_ = errno;
  }
  bool failed() const { return error_ != 0; }
  OrFailure<void> finish() {
    if (file_ == nullptr) return {};  // main() flushes standard output
    if (!failed() && std::fflush(file_.get()) != 0) error_ = errno;
    if (!failed() && !partial_.empty() && fsync(fileno(file_.get())) != 0) error_ = errno;
    if (!failed() && !has_name_) give_name();
    if (std::fclose(file_.release()) != 0 && !failed()) error_ = errno;
    if (failed()) return cannot(path_, error_);
    if (partial_.empty()) return {};
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) return cannot(path_, errno);
    partial_.clear();
    return {};
  }
  Target(Target&&) = default;
  Target& operator=(Target&&) = delete;
  ~Target() {
    file_.reset();
    if (has_name_ && !partial_.empty()) std::remove(partial_.c_str());
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Target() = default;
  // A file that vanishes with its process, however that ends. -1: the file system has none.
  static int open_nameless(const std::string& path) {
    const auto directory = std::filesystem::path(path).parent_path();
    return ::open(directory.empty() ? "." : directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC,
                  0600);
  }
  // The name for the moment until the rename: linkat() replaces no file.
  void give_name() {
    const std::string nameless = fmt::format("/proc/self/fd/{}", fileno(file_.get()));
    has_name_ =
        linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (!has_name_) error_ = errno;
  }
  static std::unexpected<Failure> cannot(const std::string& path, int error) {
    return failure(kFailed, fmt::format("cannot write {}: {}", path, std::strerror(error)));
  }
  std::string path_;     // empty: standard output
  std::string partial_;  // temporary name; empty: written in place, or complete
  bool has_name_ = true;
  int error_ = 0;  // errno of the first write that failed
  std::unique_ptr<std::FILE, Close> file_;
};

// Both functions return the error that ended the dump, if any.
std::optional<Error> dump_all(Cluster& client, auto&& write, Progress& progress,
                              const Target& target) {
  Scanner scanner(client);
  std::uint64_t written = 0;
  for (const ScanEntry& entry : scanner) {
    write(record_of(entry));
    progress.update(++written);
    if (target.failed()) break;
  }
  if (scanner.status()) return std::nullopt;
  return scanner.status().error();
}

std::optional<Error> dump_keys(Cluster& client, const std::vector<std::string>& keys, auto&& write,
                               Progress& progress, const Target& target, std::uint64_t& missing,
                               std::string& failed_key) {
  for (std::size_t first = 0; first < keys.size() && !target.failed(); first += kBatchRecords) {
    const std::size_t end = std::min(first + kBatchRecords, keys.size());
    const std::vector<std::string_view> some(keys.begin() + static_cast<std::ptrdiff_t>(first),
                                             keys.begin() + static_cast<std::ptrdiff_t>(end));
    const auto values = client.multi_get(some);
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (values[i]) {
        write(record_of(some[i], *values[i]));
      } else if (values[i].error().code == Code::kNotFound) {
        ++missing;
      } else {
        failed_key = some[i];
        return values[i].error();
      }
    }
    progress.update(end);
  }
  return std::nullopt;
}

}  // namespace

ExitCode run_scan(Cluster& client, Job& job) {
  const Command& command = job.command;
  Progress progress("scanned", 0, command.progress);
  Scanner scanner(client, {.prefix = command.range.prefix,
                           .start = command.range.start,
                           .end = command.range.end,
                           .reverse = command.reverse,
                           .keys_only = command.keys_only,
                           .limit = command.limit,
                           .token = command.range.token});
  std::uint64_t shown = 0;
  for (const ScanEntry& entry : scanner) {
    show(entry, command);
    if (!stdout_is_terminal()) progress.update(++shown);
    if (std::ferror(stdout) != 0) break;  // main() reports it
  }
  progress.clear();
  if (!scanner.status()) {
    complain(describe(scanner.status().error(), client));
    return exit_code_of(scanner.status().error());
  }
  if (std::ferror(stdout) == 0 && !scanner.token().empty()) show_token(scanner.token(), command);
  return kDone;
}

ExitCode run_dump(Cluster& client, Job& job) {
  const Command& command = job.command;
  const Globals& globals = command.globals;
  const bool jsonl =
      command.format == Format::kJsonl || (command.format == Format::kAuto && globals.json);
  auto target = Target::open(command.arguments.empty() ? "" : command.arguments.front());
  if (!target) {
    complain(target.error().sentence);
    return target.error().exit_code;
  }
  std::uint64_t written = 0;
  const auto write = [&](const Record& record) {
    target->write(jsonl ? to_jsonl(record, globals.hex) : to_tsv(record, globals.hex));
    ++written;
  };
  const bool named = !command.keys_file.empty();
  Progress progress("dumped", named ? job.arguments.size() : 0, command.progress);
  std::uint64_t missing = 0;
  std::string failed_key;
  const auto error =
      named ? dump_keys(client, job.arguments, write, progress, *target, missing, failed_key)
            : dump_all(client, write, progress, *target);
  progress.clear();
  if (error) {
    complain(
        fmt::format("stopped after {} records: {}", written, describe(*error, client, failed_key)));
    return exit_code_of(*error);
  }
  if (const auto finished = target->finish(); !finished) {
    complain(finished.error().sentence);
    return finished.error().exit_code;
  }
  if (missing == 0) return kDone;
  complain(fmt::format("{} of {} keys were not found", missing, job.arguments.size()));
  return kNotFoundExit;
}

}  // namespace rkv::cli
