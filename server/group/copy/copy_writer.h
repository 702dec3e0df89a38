// CopyWriter: writes the files of an arriving copy into `copying` of a data directory. Renames it
// to `copied` once all files have arrived and are verified and synced (copy_directory.h).
//
// Invariant:
//  COPY-2  Nothing outside of `copying` and `copied` is written, and at most as much as CopyBegin
//      announced. `copied` is missing, or holds all that the primary sent, synced.
//
// Thread safety: one thread. Blocks on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "rkv/result.h"
#include "server/group/copy/copy_digest.h"
#include "server/group/rules/encoding.h"
#include "server/persistence/files.h"

namespace rkv::server {

class CopyWriter {
 public:
  explicit CopyWriter(std::string directory) : directory_(std::move(directory)) {}
  ~CopyWriter();  // removes what is not whole

  CopyWriter(const CopyWriter&) = delete;
  CopyWriter& operator=(const CopyWriter&) = delete;

  // Removes the rest of earlier copies. On failure here and below `*problem` is a sentence.
  Status start(std::string* problem);
  // Takes the next message. Returns true if the copy is whole. After a failure nothing more is
  // taken.
  Result<bool> take(const ReplicationMessage& message, std::string* problem);

  std::uint64_t bytes() const { return bytes_; }        // received
  std::uint64_t total_bytes() const { return total_; }  // 0: not known yet
  std::uint64_t files() const { return files_; }

 private:
  Status begin(const CopyBegin& begin, std::string* problem);
  Status open_file(const CopyFile& file, std::string* problem);
  Status write_piece(const CopyPiece& piece, std::string* problem);
  Status close_file(std::string* problem);
  Status finish(const CopyEnd& end, std::string* problem);

  const std::string directory_;
  bool has_begun_ = false;
  bool is_over_ = false;
  std::uint64_t total_files_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t announced_ = 0;  // of all files so far
  bool has_current_ = false;     // whether the file CURRENT came, which every database has
  std::string path_;             // of the file being written
  Descriptor file_{-1};
  CopyDigest digest_;
};

}  // namespace rkv::server
