#include "server/program/user_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <expected>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/auth/private_file.h"
#include "common/parse.h"
#include "server/admission/users.h"
#include "server/persistence/files.h"

namespace rkv::server {

namespace {

constexpr const char* kHelp =
    R"(usage: kvserver user add NAME --role ROLE [--users FILE] [--secret-file FILE]

Draws a secret for a new user, and adds the user's line to the users file of a server.

      --role ROLE         read: get and scan; write: also everything that changes keys;
                          admin: also stats and backups
      --users FILE        the server's users file, created if it is missing; unset: print the line
      --secret-file FILE  file to create for the secret; unset: print the secret

NAME has 1 to 64 letters, digits, '.', '_' and '-'. The secret is a random number of 256 bits, so
it cannot be found by trying. The users file does not hold it: keep the secret file, or add the
user again under another name. Without either file the secret is printed first, then the line.
A running server reads its users file again on SIGHUP.
)";

template <class T>
using OrSentence = std::expected<T, std::string>;

struct Wanted {
  std::string name;
  std::optional<Role> role;
  std::string users;
  std::string secret_file;
};

UserCommand failed(ExitCode exit_code, std::string sentence) {
  return {.exit_code = exit_code, .out = {}, .error = std::move(sentence)};
}

// The value of `flag` at arguments[i], given as the next argument or after '='. Nothing: it is
// another flag, or has no value.
std::optional<std::string> value_of(const std::vector<std::string>& arguments, std::size_t& i,
                                    const std::string& flag) {
  if (arguments[i].starts_with(flag + "=")) return arguments[i].substr(flag.size() + 1);
  if (arguments[i] != flag || i + 1 == arguments.size()) return std::nullopt;
  return arguments[++i];
}

OrSentence<Wanted> parse(const std::vector<std::string>& arguments) {
  Wanted wanted;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (const auto role = value_of(arguments, i, "--role")) {
      wanted.role = parse_role(*role);
      if (wanted.role) continue;
      return std::unexpected(
          fmt::format("--role must be read, write or admin, not \"{}\"", shown(*role)));
    }
    if (const auto file = value_of(arguments, i, "--users"); file && !file->empty()) {
      wanted.users = *file;
    } else if (const auto secret = value_of(arguments, i, "--secret-file");
               secret && !secret->empty()) {
      wanted.secret_file = *secret;
    } else if (!arguments[i].starts_with('-') && wanted.name.empty() &&
               is_user_name(arguments[i])) {
      wanted.name = arguments[i];
    } else {
      return std::unexpected(fmt::format(
          "\"{}\" is not a user's name or an option with a value: see kvserver user --help",
          shown(arguments[i])));
    }
  }
  if (wanted.name.empty()) return std::unexpected("the name is missing: see kvserver user --help");
  if (!wanted.role) {
    return std::unexpected("--role is missing: give --role read, --role write or --role admin");
  }
  return wanted;
}

std::string cannot(const char* what, const std::string& path, int error) {
  return fmt::format("cannot {} {}: {}", what, shown(path), strerror(error));
}

std::string directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// A new file for the owner alone, which is removed again unless keep() is called.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR)),
        error_(fd_.get() < 0 ? errno : 0) {}
  ~NewFile() {
    if (error_ == 0 && !kept_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  int error() const { return error_; }
  int fd() const { return fd_.get(); }
  void keep() { kept_ = true; }
  int write_synced(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(fd_.get(), text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return errno;
      text.remove_prefix(static_cast<std::size_t>(done));
    }
    if (::fsync(fd_.get()) != 0) return errno;
    return fd_.close();
  }

 private:
  const std::string path_;
  Descriptor fd_;
  const int error_;
  bool kept_ = false;
};

// The path without symbolic links, so that a link is followed and not replaced by a file.
OrSentence<std::string> resolved(const std::string& path) {
  std::error_code error;
  auto absolute = std::filesystem::absolute(path, error);
  if (!error) absolute = std::filesystem::weakly_canonical(absolute, error);
  if (error) return std::unexpected(cannot("find", path, error.value()));
  if (std::filesystem::is_symlink(absolute, error)) {
    return std::unexpected(fmt::format(
        "{} is a symbolic link to a file that does not exist: create the file or remove the link",
        shown(path)));
  }
  return absolute.string();
}

// Resolves both paths. Returns what is wrong with them.
std::optional<std::string> resolve_files(Wanted& wanted) {
  for (std::string* const path : {&wanted.users, &wanted.secret_file}) {
    if (path->empty()) continue;
    auto found = resolved(*path);
    if (!found) return std::move(found).error();
    *path = std::move(*found);
  }
  if (wanted.users.empty() || wanted.users != wanted.secret_file) return std::nullopt;
  return fmt::format("--users and --secret-file are both {}: give two files", shown(wanted.users));
}

// The text of the users file with the new line, or a sentence.
OrSentence<std::string> with_user(const std::string& path, const User& user, const NewFile& next) {
  std::string problem;
  std::string text;
  FileOwner owner;
  if (auto read = read_private_file(path, Users::kLongestFile, &problem, &owner)) {
    text = std::move(*read);
    // The file stays its owner's, so that a server that is not root can still read it.
    if (::fchown(next.fd(), owner.user, owner.group) != 0) {
      return std::unexpected(cannot("give its owner to the new", path, errno));
    }
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
  } else if (read.error().sys_errno != ENOENT) {
    return std::unexpected(problem);
  }
  text += Users::line_of(user) + '\n';
  if (!Users::parse(text, path, &problem)) return std::unexpected(problem);
  return text;
}

// Writes a file beside the users file and renames it. Its name is fixed, so that two commands
// cannot both do this and lose a user.
std::optional<std::string> write_files(const Wanted& wanted, const User& user,
                                       const std::string& secret) {
  std::optional<NewFile> kept_secret;
  std::optional<NewFile> next;
  const std::string next_path = wanted.users + ".new";
  std::string text;
  if (!wanted.users.empty()) {
    if (next.emplace(next_path).error() == EEXIST) {
      return fmt::format("{} exists: is another kvserver user add at work? Otherwise remove it",
                         shown(next_path));
    }
    if (next->error() != 0) return cannot("create", next_path, next->error());
    auto made = with_user(wanted.users, user, *next);
    if (!made) return std::move(made).error();
    text = std::move(*made);
  }
  if (!wanted.secret_file.empty()) {
    kept_secret.emplace(wanted.secret_file);
    int error = kept_secret->error();
    if (error == 0) error = kept_secret->write_synced(secret);
    if (error == 0) error = sync_directory(directory_of(wanted.secret_file));
    if (error != 0) return cannot("create", wanted.secret_file, error);
  }
  if (next) {
    int error = next->write_synced(text);
    if (error == 0 && ::rename(next_path.c_str(), wanted.users.c_str()) != 0) error = errno;
    if (error != 0) return cannot("write", wanted.users, error);
    next->keep();
    // The rename has happened: if it cannot be synced, the user may be gone after a crash.
    (void)sync_directory(directory_of(wanted.users));
  }
  if (kept_secret) kept_secret->keep();
  return std::nullopt;
}

}  // namespace

UserCommand run_user_command(const std::vector<std::string>& arguments) {
  const bool asks_help = std::ranges::any_of(
      arguments, [](const std::string& one) { return one == "--help" || one == "-h"; });
  if (asks_help) return {.exit_code = kExitClean, .out = kHelp, .error = {}};
  if (arguments.empty() || arguments.front() != "add") {
    return failed(kExitUsage, "user needs the word add after it: see kvserver user --help");
  }
  auto wanted = parse(arguments);
  if (!wanted) return failed(kExitUsage, wanted.error());
  if (auto problem = resolve_files(*wanted)) return failed(kExitUsage, std::move(*problem));
  const Secret secret = Secret::draw();
  const User user{
      .name = wanted->name, .role = *wanted->role, .keys = ClientKeys::of(secret).stored};
  const std::string secret_line = to_hex(secret.bytes) + "\n";
  if (auto problem = write_files(*wanted, user, secret_line)) {
    return failed(kExitOther, std::move(*problem));
  }
  UserCommand done;
  if (wanted->secret_file.empty()) done.out += secret_line;
  if (wanted->users.empty()) done.out += Users::line_of(user) + "\n";
  return done;
}

}  // namespace rkv::server
