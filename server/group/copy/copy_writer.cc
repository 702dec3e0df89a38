#include "server/group/copy/copy_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/parse.h"
#include "server/group/copy/copy_directory.h"

namespace rkv::server {

namespace {

std::unexpected<Error> refused(const char* why, std::string* problem) {
  *problem = fmt::format("the copy of the primary's database is not one: {}", why);
  return fail(Code::kCorrupt, "the copy of a database is not one");
}

std::unexpected<Error> cannot_write(const std::string& path, const char* call, int error,
                                    std::string* problem) {
  *problem = fmt::format("cannot write {}: {}: the copy needs as much space as the database has",
                         path, std::strerror(error));
  return fail_call(Code::kIo, call, error);
}

}  // namespace

CopyWriter::~CopyWriter() {
  std::string ignored;
  if (has_begun_ && !is_over_) (void)remove_copy(directory_, &ignored);
}

Status CopyWriter::start(std::string* problem) {
  RKV_RETURN_IF_ERROR(remove_copy(directory_, problem));
  const std::string copying = directory_ + kCopying;
  if (mkdir(copying.c_str(), 0700) != 0) return cannot_write(copying, "mkdir", errno, problem);
  has_begun_ = true;
  return {};
}

Result<bool> CopyWriter::take(const ReplicationMessage& message, std::string* problem) {
  if (is_over_ || !has_begun_) return refused("a message comes behind its end", problem);
  if (std::holds_alternative<CopyWait>(message) && total_files_ == 0) return false;
  if (const auto* const begun = std::get_if<CopyBegin>(&message)) {
    RKV_RETURN_IF_ERROR(begin(*begun, problem));
  } else if (const auto* const file = std::get_if<CopyFile>(&message)) {
    RKV_RETURN_IF_ERROR(open_file(*file, problem));
  } else if (const auto* const piece = std::get_if<CopyPiece>(&message)) {
    RKV_RETURN_IF_ERROR(write_piece(*piece, problem));
  } else if (const auto* const end = std::get_if<CopyEnd>(&message)) {
    RKV_RETURN_IF_ERROR(finish(*end, problem));
  } else {
    return refused("a message does not belong to a copy", problem);
  }
  return is_over_;
}

Status CopyWriter::begin(const CopyBegin& begin, std::string* problem) {
  if (total_files_ != 0 || begin.files == 0) return refused("it begins wrongly", problem);
  total_files_ = begin.files;
  total_ = begin.bytes;
  return {};
}

Status CopyWriter::open_file(const CopyFile& file, std::string* problem) {
  RKV_RETURN_IF_ERROR(close_file(problem));
  if (!is_database_file(file.name)) {
    return refused(fmt::format("no database has a file {}", shown(file.name)).c_str(), problem);
  }
  if (files_ == total_files_ || file.bytes > total_ - announced_)
    return refused("it is longer than it was announced", problem);
  announced_ += file.bytes;
  ++files_;
  has_current_ = has_current_ || file.name == "CURRENT";
  digest_.file(file.name, file.bytes);
  path_ = fmt::format("{}{}/{}", directory_, kCopying, file.name);
  file_ = Descriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file_.get() < 0) return cannot_write(path_, "open", errno, problem);
  return {};
}

Status CopyWriter::write_piece(const CopyPiece& piece, std::string* problem) {
  if (file_.get() < 0 || piece.bytes.size() > announced_ - bytes_)
    return refused("a file is longer than it was announced", problem);
  Bytes rest = piece.bytes;
  while (!rest.empty()) {
    const ssize_t written = write(file_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return cannot_write(path_, "write", errno, problem);
    rest = rest.subspan(static_cast<std::size_t>(written));
  }
  bytes_ += piece.bytes.size();
  digest_.piece(piece.bytes);
  return {};
}

// Each file is synced on its own, so that the disk works while others arrive.
Status CopyWriter::close_file(std::string* problem) {
  if (bytes_ != announced_) return refused("a file is shorter than it was announced", problem);
  if (file_.get() < 0) return {};
  if (fsync(file_.get()) != 0) return cannot_write(path_, "fsync", errno, problem);
  if (const int error = file_.close(); error != 0)
    return cannot_write(path_, "close", error, problem);
  return {};
}

Status CopyWriter::finish(const CopyEnd& end, std::string* problem) {
  RKV_RETURN_IF_ERROR(close_file(problem));
  if (files_ != total_files_ || end.files != files_ || bytes_ != total_ || end.bytes != bytes_)
    return refused("files are missing", problem);
  if (end.digest != digest_.digest()) return refused("its digest is another one", problem);
  if (!has_current_) return refused("it has no file CURRENT", problem);
  const std::string copying = directory_ + kCopying;
  const std::string copied = directory_ + kCopied;
  if (const int error = sync_directory(copying); error != 0)
    return cannot_write(copying, "fsync", error, problem);
  if (rename(copying.c_str(), copied.c_str()) != 0)
    return cannot_write(copied, "rename", errno, problem);
  if (const int error = sync_directory(directory_); error != 0)
    return cannot_write(directory_, "fsync", error, problem);
  is_over_ = true;
  return {};
}

}  // namespace rkv::server
