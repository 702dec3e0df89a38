#include "server/group/copy/copy_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "server/persistence/files.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

namespace {

namespace fs = std::filesystem;

// Whether the part of a file's name behind its prefix, or before its suffix, is a number.
bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         std::ranges::all_of(text, [](char each) { return each >= '0' && each <= '9'; });
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

std::unexpected<Error> failed(const std::string& path, const char* what, int error,
                              std::string* problem) {
  *problem = fmt::format("cannot {} {}: {}: check the disk", what, path, std::strerror(error));
  return fail_call(Code::kIo, what, error);
}

Status rename_to(const std::string& from, const std::string& to, std::string* problem) {
  if (rename(from.c_str(), to.c_str()) == 0) return {};
  return failed(from, "rename", errno, problem);
}

Status sync(const std::string& directory, std::string* problem) {
  const int error = sync_directory(directory);
  if (error == 0) return {};
  return failed(directory, "sync", error, problem);
}

Status remove(const std::string& path, std::string* problem) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return {};
  return failed(path, "remove", error.value(), problem);
}

}  // namespace

bool is_database_file(std::string_view name) {
  if (name == "CURRENT" || name == "IDENTITY") return true;
  for (const std::string_view start : {"MANIFEST-", "OPTIONS-"})
    if (name.starts_with(start)) return is_number(name.substr(start.size()));
  for (const std::string_view end : {".sst", ".log", ".blob"})
    if (name.ends_with(end)) return is_number(name.substr(0, name.size() - end.size()));
  return false;
}

Status recover_copy(const std::string& directory, std::string* problem) {
  const std::string db = directory + kDatabaseDirectory;
  const std::string copied = directory + kCopied;
  const std::string replaced = directory + kReplaced;
  RKV_RETURN_IF_ERROR(remove(directory + kCopying, problem));
  RKV_RETURN_IF_ERROR(remove(directory + kSendingCopy, problem));
  if (is_there(replaced)) {
    const bool is_between = is_there(copied) && !is_there(db);
    if (!is_between && (is_there(copied) || !is_there(db))) {
      *problem = fmt::format(
          "{} holds {} beside {}: move the database that you want to keep to {} and remove the "
          "other directory",
          directory, kReplaced + 1, is_there(db) ? "a database and its copy" : "no database", db);
      return fail(Code::kConflict, "the directories of a copy contradict each other");
    }
    if (is_between) RKV_RETURN_IF_ERROR(rename_to(copied, db, problem));
    RKV_RETURN_IF_ERROR(sync(directory, problem));
    RKV_RETURN_IF_ERROR(remove(replaced, problem));
  } else {
    RKV_RETURN_IF_ERROR(remove(copied, problem));  // its installation has not begun
  }
  return sync(directory, problem);
}

Status install_copy(const std::string& directory, std::string* problem,
                    const std::function<bool()>& go_on) {
  const std::string db = directory + kDatabaseDirectory;
  const std::string replaced = directory + kReplaced;
  const auto ended = [&] { return go_on && !go_on(); };
  const auto end = [] { return fail(Code::kInternal, "ended by a test"); };
  if (!is_there(directory + kCopied) || is_there(replaced)) {
    *problem = fmt::format("{} holds no copy of a database that can be used", directory);
    return fail(Code::kConflict, "no copy was received");
  }
  if (ended()) return end();
  if (is_there(db)) RKV_RETURN_IF_ERROR(rename_to(db, replaced, problem));
  if (ended()) return end();
  RKV_RETURN_IF_ERROR(rename_to(directory + kCopied, db, problem));
  if (ended()) return end();
  RKV_RETURN_IF_ERROR(sync(directory, problem));  // before the old database is removed
  if (ended()) return end();
  RKV_RETURN_IF_ERROR(remove(replaced, problem));
  if (ended()) return end();
  return sync(directory, problem);
}

Status remove_copy(const std::string& directory, std::string* problem) {
  RKV_RETURN_IF_ERROR(remove(directory + kCopying, problem));
  return remove(directory + kCopied, problem);
}

}  // namespace rkv::server
