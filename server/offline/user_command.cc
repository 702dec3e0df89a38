#include "server/offline/user_command.h"

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
#include "server/clients/admission/users.h"
#include "server/persistence/files.h"

namespace rkv::server {

namespace {

constexpr const char* kHelp =
    R"(usage: kvserver user add NAME --role ROLE [--users FILE] [--secret-file FILE]
       kvserver user renew NAME --users FILE [--secret-file FILE]
       kvserver user retire NAME --users FILE
       kvserver user remove NAME --users FILE

add draws a secret for a new user, and adds the user's line to the users file of a server. renew
draws a second secret for a user and adds a second line: both secrets are good. When all clients of
the user have the new one, retire removes the older line. remove removes all lines of the user.

      --role ROLE         read: get and scan; write: also everything that changes keys;
                          admin: also stats, backups and the revocation of users
      --users FILE        the server's users file, created if it is missing; unset: print the line
      --secret-file FILE  file to create for the secret; unset: print the secret

NAME has 1 to 64 letters, digits, '.', '_' and '-'. The secret is a random number of 256 bits, so
it cannot be found by trying. The users file does not hold it: keep the secret file, or add the
user again under another name. Without either file the secret is printed first, then the line.
A running server reads its users file again on SIGHUP, and ends the sessions of users that it does
not find there.
)";

template <class T>
using OrSentence = std::expected<T, std::string>;

struct WantedUser {
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

OrSentence<WantedUser> parse(const std::vector<std::string>& arguments) {
  WantedUser wanted;
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
  const std::string& command = arguments.front();
  if (command != "add") {
    const bool may_have_secret = command == "renew";
    if (wanted.users.empty()) return std::unexpected("--users is missing: give the users file");
    if (!wanted.role && (may_have_secret || wanted.secret_file.empty())) return wanted;
    return std::unexpected(fmt::format("{} takes only a name{} --users: see kvserver user --help",
                                       command, may_have_secret ? ", --secret-file and" : " and"));
  }
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
std::optional<std::string> resolve_files(WantedUser& wanted) {
  for (std::string* const path : {&wanted.users, &wanted.secret_file}) {
    if (path->empty()) continue;
    auto found = resolved(*path);
    if (!found) return std::move(found).error();
    *path = std::move(*found);
  }
  if (wanted.users.empty() || wanted.users != wanted.secret_file) return std::nullopt;
  return fmt::format("--users and --secret-file are both {}: give two files", shown(wanted.users));
}

// The text of the users file; none if it is missing and may be. Gives its owner and mode to the new
// file, so that a server that is not root can still read it.
OrSentence<std::string> read_users(const std::string& path, bool may_be_missing,
                                   const NewFile& next) {
  std::string problem;
  FileOwner owner;
  auto read = read_private_file(path, Users::kLongestFile, &problem, &owner);
  if (!read && read.error().sys_errno == ENOENT && may_be_missing) return std::string();
  if (!read) return std::unexpected(problem);
  if (::fchown(next.fd(), owner.user, owner.group) != 0 ||
      ::fchmod(next.fd(), owner.mode & (S_IRUSR | S_IWUSR | S_IRGRP)) != 0) {
    return std::unexpected(cannot("give its owner to the new", path, errno));
  }
  return std::move(*read);
}

// The text of the users file with the new line, or a sentence. Without a role the user is one of
// the file, and keeps its role.
OrSentence<std::string> with_user(const WantedUser& wanted, const StoredKeys& keys,
                                  const NewFile& next) {
  auto text = read_users(wanted.users, wanted.role.has_value(), next);
  if (!text) return text;
  std::string problem;
  const auto users = Users::parse(*text, wanted.users, &problem);
  if (!users) return std::unexpected(problem);
  const auto known = (*users)->find(number_of_user(wanted.name));
  const bool is_known = known != nullptr && known->name == wanted.name;
  if (is_known && wanted.role) {
    return std::unexpected(
        fmt::format("{} has the user {} already: kvserver user renew gives it a second secret",
                    shown(wanted.users), wanted.name));
  }
  if (!is_known && !wanted.role) {
    return std::unexpected(fmt::format("{} has no user {}", shown(wanted.users), wanted.name));
  }
  const User user{
      .name = wanted.name, .role = wanted.role ? *wanted.role : known->role, .keys = keys};
  if (!text->empty() && !text->ends_with('\n')) *text += '\n';
  *text += Users::line_of(user) + '\n';
  if (!Users::parse(*text, wanted.users, &problem)) return std::unexpected(problem);
  return text;
}

// Returns the text of the users file without the user's lines, or without the older of two;
// nullopt: the file has no such line. All other lines stay as they are.
OrSentence<std::optional<std::string>> without_user(const std::string& path,
                                                    const std::string& name, bool only_older,
                                                    const NewFile& next) {
  const auto text = read_users(path, false, next);
  if (!text) return std::unexpected(text.error());
  std::string problem;
  const auto users = Users::parse(*text, path, &problem);
  if (!users) return std::unexpected(problem);
  if (only_older && (*users)->find_newer(number_of_user(name)) == nullptr) return std::nullopt;
  std::string rest;
  bool is_removed = false;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size() - 1) + 1;
    const std::string line = text->substr(at, end - at);
    at = end;
    const std::size_t first = std::min(line.find_first_not_of(" \t\r"), line.size());
    const std::size_t length = std::min(line.find_first_of(" \t\r\n", first), line.size()) - first;
    const bool goes = line.compare(first, length, name) == 0 && !(only_older && is_removed);
    is_removed = is_removed || goes;
    if (!goes) rest += line;
  }
  if (rest.size() == text->size()) return std::nullopt;
  return rest;
}

// A file beside the users file, to be renamed to it. Its name is fixed, so that two commands cannot
// both do this and lose a user.
std::string next_of(const std::string& users) {
  return users + ".new";
}

std::optional<std::string> begin_next(std::optional<NewFile>& next, const std::string& users) {
  const std::string path = next_of(users);
  if (next.emplace(path).error() == EEXIST) {
    return fmt::format("{} exists: is another kvserver user at work? Otherwise remove it",
                       shown(path));
  }
  if (next->error() != 0) return cannot("create", path, next->error());
  return std::nullopt;
}

std::optional<std::string> replace_users(NewFile& next, const std::string& users,
                                         std::string_view text) {
  int error = next.write_synced(text);
  if (error == 0 && ::rename(next_of(users).c_str(), users.c_str()) != 0) error = errno;
  if (error != 0) return cannot("write", users, error);
  next.keep();
  // The rename has happened: if it cannot be synced, the change may be gone after a crash.
  (void)sync_directory(directory_of(users));
  return std::nullopt;
}

std::optional<std::string> write_files(const WantedUser& wanted, const StoredKeys& keys,
                                       const std::string& secret) {
  std::optional<NewFile> kept_secret;
  std::optional<NewFile> next;
  std::string text;
  if (!wanted.users.empty()) {
    if (auto problem = begin_next(next, wanted.users)) return problem;
    auto made = with_user(wanted, keys, *next);
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
    if (auto problem = replace_users(*next, wanted.users, text)) return problem;
  }
  if (kept_secret) kept_secret->keep();
  return std::nullopt;
}

UserCommand remove_lines(const WantedUser& wanted, bool only_older) {
  std::optional<NewFile> next;
  auto problem = begin_next(next, wanted.users);
  if (problem) return failed(kExitOther, std::move(*problem));
  const auto text = without_user(wanted.users, wanted.name, only_older, *next);
  if (!text) return failed(kExitOther, text.error());
  if (!*text) {
    return failed(kExitUsage, fmt::format("{} has no user {}{}", shown(wanted.users), wanted.name,
                                          only_older ? " with two lines" : ""));
  }
  problem = replace_users(*next, wanted.users, **text);
  if (problem) return failed(kExitOther, std::move(*problem));
  return {};
}

}  // namespace

UserCommand run_user_command(const std::vector<std::string>& arguments) {
  const bool asks_help = std::ranges::any_of(
      arguments, [](const std::string& one) { return one == "--help" || one == "-h"; });
  if (asks_help) return {.exit_code = kExitClean, .out = kHelp, .error = {}};
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command != "add" && command != "renew" && command != "retire" && command != "remove") {
    return failed(
        kExitUsage,
        "user needs the word add, renew, retire or remove after it: see kvserver user --help");
  }
  auto wanted = parse(arguments);
  if (!wanted) return failed(kExitUsage, wanted.error());
  if (auto problem = resolve_files(*wanted)) return failed(kExitUsage, std::move(*problem));
  if (command == "remove" || command == "retire") {
    return remove_lines(*wanted, command == "retire");
  }
  const Secret secret = Secret::draw();
  const StoredKeys keys = ClientKeys::of(secret).stored;
  const std::string secret_line = to_hex(secret.bytes) + "\n";
  if (auto problem = write_files(*wanted, keys, secret_line)) {
    return failed(kExitOther, std::move(*problem));
  }
  UserCommand done;
  if (wanted->secret_file.empty()) done.out += secret_line;
  if (wanted->users.empty()) {
    done.out += Users::line_of({.name = wanted->name, .role = *wanted->role, .keys = keys}) + "\n";
  }
  return done;
}

}  // namespace rkv::server
