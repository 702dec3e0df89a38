// Files with secrets: only their owner may have access.
//
// Thread safety: free functions. They block on the disk.
#pragma once

#include <cstddef>
#include <string>

#include "rkv/result.h"

namespace rkv {

// Reads a regular file that belongs to this process's user or to root, and that no group and no
// other user may read or write. On failure `*problem` is a sentence that names the file and says
// what to do. kTooLarge: it has more than `most` bytes.
Result<std::string> read_private_file(const std::string& path, std::size_t most,
                                      std::string* problem);

}  // namespace rkv
