// Files with secrets: their owner has access, and nobody else but the reader's own group.
//
// Thread safety: free functions. They block on the disk.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "rkv/result.h"

namespace rkv {

struct FileOwner {
  uid_t user = 0;
  gid_t group = 0;
  mode_t mode = 0600;
};

// Reads a regular file that belongs to this process's user or to root, and that no other user may
// read or write. A group may read a file of root, as the secrets that Kubernetes and systemd mount
// (0440): if this process is in the group, or if an access list lets it read the file, whose mask
// the mode then shows. On failure `*problem` is a sentence that names the file and says
// what to do. kTooLarge: it has more than `most` bytes.
// A caller that replaces the file for its owner gives `owner`, which is set to the owner of the
// file that was read. Root may then read a file of any user.
Result<std::string> read_private_file(const std::string& path, std::size_t most,
                                      std::string* problem, FileOwner* owner = nullptr);

}  // namespace rkv
