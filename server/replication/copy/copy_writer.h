// CopyWriter: writes the files of a copy that arrives into `copying` of a data directory, and makes
// them `copied` once all of them have arrived, verified and synced (copy_directory.h).
//
// Invariant:
//  COPY-2  Nothing outside of `copying` and `copied` is written, at most what CopyBegin announced,
//      and `copied` is what the primary sent, whole and synced, or is not there.
//
// Thread safety: one thread. Blocks on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "rkv/result.h"
#include "server/persistence/files.h"
#include "server/replication/copy/copy_digest.h"
#include "server/replication/encoding.h"

namespace rkv::server {

class CopyWriter {
 public:
  explicit CopyWriter(std::string directory) : directory_(std::move(directory)) {}
  ~CopyWriter();  // removes what is not whole

  CopyWriter(const CopyWriter&) = delete;
  CopyWriter& operator=(const CopyWriter&) = delete;

  // Removes what is left of earlier copies. On failure here and below `*problem` is a sentence.
  Status start(std::string* problem);
  // Takes the next message. True: the copy is whole. After a failure nothing more is taken.
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
  bool has_current_ = false;     // the file that every database has
  std::string path_;             // of the file being written
  Descriptor file_{-1};
  CopyDigest digest_;
};

}  // namespace rkv::server
